//! Lazy training: how far a network is from its linearisation at the start, by width and by the scale of its output.
//!
//! A model `h(w) = α(f(w) − f(w₀))` with targets ȳ moves its Jacobian by the relative amount
//! `κ(w₀) = ‖h(w₀) − ȳ‖ ‖∇²h‖/‖∇h‖² = ‖ȳ‖ ‖∇²f‖/(α‖∇f‖²)` before it has fitted them. Where κ is small, training is that of the
//! linear model `α ∂f(w₀)(w − w₀)`. Descent on h with the rate η/α² is descent on f towards `f(w₀) + ȳ/α` with the rate η.

use crate::statistics::{Interval, exponent, logarithmic, with_intervals};
use crate::wide::{Wide, targets, tensor};
use crate::{Findings, Options, Shown, table};
use mercer::compute::Device;
use mercer::linalg::{eigh, matmul};
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array1, Array2};
use serde::Serialize;
use serde_json::json;

config! {
    /// Widths, with the scale 1.
    widths: Vec<usize> = vec![32, 128, 512]; quick vec![16, 64]; published vec![32, 128, 512, 2048, 10_000],
    /// Scales α of the output, at the width `at_width`.
    scales: Vec<f64> = vec![0.25, 1.0, 4.0, 16.0, 64.0]; quick vec![0.5, 2.0, 8.0],
    at_width: usize = 128; quick 32,
    /// Networks of each width and scale.
    runs: usize = 10; quick 3,
    /// Steps of gradient descent with the rate 1/(2μ₁).
    steps: usize = 600; quick 100,
    /// Iterations for the norm of the Hessian.
    iterations: usize = 40; quick 20,
}

/// Points to learn from, and new points.
const POINTS: usize = 20;
const NEW: usize = 40;

fn architecture(width: usize) -> String {
    let of = "w=1.5, b=0.5";
    format!("dense({width}, {of}) erf dense({width}, {of}) erf dense(1, {of})")
}

/// One network.
struct Trained {
    kappa: f64,
    hessian: f64,
    /// `‖θ − θ₀‖/‖θ₀‖`
    weights: f64,
    /// `‖h − h_lin‖/‖h_lin‖` at new points, at the end.
    gap: f64,
    /// `‖Θ_t − Θ₀‖/‖Θ₀‖`
    kernel: f64,
    /// Losses of the network and of its linearisation, in units of `‖ȳ‖²/2n`, at some numbers of steps.
    losses: [Vec<f64>; 2],
}

/// Networks of one width and scale.
#[derive(Serialize)]
struct Measured {
    width: usize,
    scale: f64,
    kappa: Interval,
    hessian: Interval,
    weights: Interval,
    gap: Interval,
    kernel: Interval,
    #[serde(skip)]
    losses: [Vec<f64>; 2],
}

/// The four exponents in the width or in the scale, and those that theory expects.
#[derive(Serialize)]
struct Exponents {
    by: &'static str,
    kappa: Interval,
    weights: Interval,
    gap: Interval,
    kernel: Interval,
}

fn norm(v: &Array1<f64>) -> f64 {
    v.dot(v).sqrt()
}

/// The linearised network: `k` steps of descent with the rate η from zero towards y, at the fitted and at new points.
///
/// With `Θ = U diag(λ) Uᵀ` on the fitted points, `h(X) = U (1 − (1 − ηλ/n)^k) Uᵀy` and
/// `h(x) = Θ(x,X) U ((1 − (1 − ηλ/n)^k)/λ) Uᵀy`.
struct Linear {
    values: Vec<f64>,
    vectors: Array2<f64>,
    /// `Θ(x,X)U` `[m, n]`
    cross: Array2<f64>,
    /// `Uᵀy`
    y: Array1<f64>,
}

impl Linear {
    fn new(theta: &Array2<f64>, cross: &Array2<f64>, y: &Array1<f64>) -> Result<Linear> {
        let (values, vectors) = eigh(Device::Cpu, theta.view())?;
        Ok(Linear { cross: matmul(cross.view(), vectors.view()), y: vectors.t().dot(y), values, vectors })
    }

    fn learnt(&self, rate: f64, steps: usize) -> Array1<f64> {
        let n = self.values.len() as f64;
        self.values.iter().map(|λ| 1.0 - (1.0 - rate * λ / n).powi(steps as i32)).collect()
    }

    fn fitted(&self, rate: f64, steps: usize) -> Array1<f64> {
        self.vectors.dot(&(self.learnt(rate, steps) * &self.y))
    }

    fn new_points(&self, rate: f64, steps: usize) -> Array1<f64> {
        let positive: Array1<f64> = self.values.iter().map(|λ| λ.max(1e-9 * self.values[0])).collect();
        self.cross.dot(&(self.learnt(rate, steps) / positive * &self.y))
    }
}

fn train(net: &mut Wide, scale: f64, config: &Config, rng: &mut Rng) -> Result<Trained> {
    let device = net.theta.trained.device();
    net.draw(rng);
    let mut points = |n: usize| Array2::from_shape_simple_fn((n, 1), || 4.0 * rng.uniform() - 2.0);
    let (x, new) = (points(POINTS), points(NEW));
    let y: Array1<f64> = x.column(0).mapv(|x| (2.0 * x).sin());
    let (x, new) = (tensor(x.view(), device)?, tensor(new.view(), device)?);
    let (start, at_new) = (net.values(&x)?.row(0).to_owned(), net.values(&new)?.row(0).to_owned());
    let (first, theta) = (net.weights(), net.ntk(&x, None)?);
    let linear = Linear::new(&theta, &net.ntk(&new, Some(&x))?, &y)?;
    let hessian = net.curvature(&x, config.iterations, rng)?;
    let rate = 0.5 * POINTS as f64 / linear.values[0];
    let goal = targets(&(&start + &y / scale).to_vec(), 1, device)?;
    let (mut losses, mut done) = ([vec![], vec![]], 0);
    let relative = |u: Array1<f64>| (norm(&u) / norm(&y)).powi(2);
    for &look in &logarithmic(config.steps, LOOKS) {
        net.train(&x, &goal, rate, look - done)?;
        done = look;
        losses[0].push(relative((net.values(&x)?.row(0).to_owned() - &start) * scale - &y));
        losses[1].push(relative(linear.fitted(rate, look) - &y));
    }
    let (found, expected) =
        ((net.values(&new)?.row(0).to_owned() - &at_new) * scale, linear.new_points(rate, config.steps));
    let [moved, length] = net.moved(&first)?;
    let after = net.ntk(&x, None)?;
    let frobenius = |m: &Array2<f64>| m.iter().map(|v| v * v).sum::<f64>().sqrt();
    Ok(Trained {
        kappa: norm(&y) * hessian / (scale * linear.values[0]),
        hessian,
        weights: moved / length,
        gap: norm(&(&found - &expected)) / norm(&expected),
        kernel: frobenius(&(&after - &theta)) / frobenius(&theta),
        losses,
    })
}

/// Numbers of steps at which losses are looked at.
const LOOKS: usize = 30;

/// The same networks at every scale; each value over runs.
fn measure(width: usize, scale: f64, config: &Config, context: &FitContext) -> Result<(Measured, Vec<Trained>)> {
    let rng = Rng::new(config.seed).fork(width as u64);
    let mut net = Wide::new(&architecture(width), 1, 1, context.device, &mut rng.fork(0))?;
    let mut all = vec![];
    for r in 0..config.runs {
        context.progress.step(&format!("width {width}, scale {scale}"), r, config.runs, "");
        all.push(train(&mut net, scale, config, &mut rng.fork(1 + r as u64))?);
    }
    let of = |f: fn(&Trained) -> f64| Interval::of(&all.iter().map(f).collect::<Vec<f64>>());
    let mean = |i: usize| {
        let looks = all[0].losses[i].len();
        (0..looks).map(|t| all.iter().map(|a| a.losses[i][t]).sum::<f64>() / all.len() as f64).collect::<Vec<f64>>()
    };
    let measured = Measured {
        width,
        scale,
        kappa: of(|t| t.kappa),
        hessian: of(|t| t.hessian),
        weights: of(|t| t.weights),
        gap: of(|t| t.gap),
        kernel: of(|t| t.kernel),
        losses: [mean(0), mean(1)],
    };
    Ok((measured, all))
}

fn exponents(by: &'static str, at: &[f64], runs: &[Vec<Trained>]) -> Exponents {
    let of = |f: fn(&Trained) -> f64| {
        let values: Vec<Vec<f64>> = runs.iter().map(|r| r.iter().map(f).collect()).collect();
        exponent(at, &values)
    };
    Exponents { by, kappa: of(|t| t.kappa), weights: of(|t| t.weights), gap: of(|t| t.gap), kernel: of(|t| t.kernel) }
}

struct Results {
    by_width: Vec<Measured>,
    by_scale: Vec<Measured>,
    exponents: [Exponents; 2],
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let sweep = |at: Vec<(usize, f64)>| {
        let found = at.into_iter().map(|(width, scale)| measure(width, scale, config, context));
        Ok::<_, mercer::Error>(found.collect::<Result<Vec<_>>>()?.into_iter().unzip::<_, _, Vec<_>, Vec<_>>())
    };
    let (by_width, width_runs) = sweep(config.widths.iter().map(|w| (*w, 1.0)).collect())?;
    let (by_scale, scale_runs) = sweep(config.scales.iter().map(|a| (config.at_width, *a)).collect())?;
    let widths: Vec<f64> = config.widths.iter().map(|w| *w as f64).collect();
    // The law in α is one of large α.
    let from = config.scales.iter().position(|a| *a >= 1.0).unwrap_or(0);
    let exponents = [
        exponents("width", &widths, &width_runs),
        exponents("scale α ≥ 1", &config.scales[from..], &scale_runs[from..]),
    ];
    Ok(Results { by_width, by_scale, exponents })
}

fn figure(found: &Results) -> String {
    let mut grid = Grid::new("How lazy training is", 2).panel_size(320.0, 230.0);
    for (rows, label, at) in [
        (&found.by_width, "width, at α = 1", (|m: &Measured| m.width as f64) as fn(&Measured) -> f64),
        (&found.by_scale, "scale α of the output", (|m: &Measured| m.scale) as fn(&Measured) -> f64),
    ] {
        let x: Vec<f64> = rows.iter().map(at).collect();
        let mut plot = Plot::new(label).x_log(label).y_log("relative size");
        type Series = (&'static str, fn(&Measured) -> Interval);
        let series: [Series; 4] = [
            ("κ(w_0)", |m| m.kappa),
            ("distance from the linear model", |m| m.gap),
            ("change of the NTK", |m| m.kernel),
            ("change of the weights", |m| m.weights),
        ];
        for (name, of) in series {
            plot = with_intervals(plot, name, &x, &rows.iter().map(of).collect::<Vec<_>>(), Some(5.0));
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

fn losses(found: &Results, config: &Config) -> String {
    let steps: Vec<f64> = logarithmic(config.steps, LOOKS).iter().map(|s| *s as f64).collect();
    let mut grid = Grid::new(format!("Losses at width {}", config.at_width), 3).panel_size(210.0, 170.0).shared();
    for m in &found.by_scale {
        grid = grid.panel(
            Plot::new(format!("α = {}", m.scale))
                .x_log("steps")
                .y_log("loss")
                .line("network", &steps, &m.losses[0])
                .line("linearised", &steps, &m.losses[1])
                .dashed(),
        );
    }
    grid.svg()
}

const EXPECTATION: &str = "κ falls like width^(−1/2) and like 1/α. Weights in units of their deviations move by a length that does not depend on \
     the width, so that their relative change falls like 1/width in networks with about width² weights, and like 1/α. The distance of \
     the trained network from its linearisation falls at least like width^(−1/2), and like 1/α.";

fn observation(found: &Results) -> String {
    let one = |e: &Exponents| {
        format!(
            "in the {}: κ {}, weights {}, distance from the linear model {}, change of the NTK {}",
            e.by,
            e.kappa.text(),
            e.weights.text(),
            e.gap.text(),
            e.kernel.text()
        )
    };
    let (least, gap) = (&found.by_scale[0], found.exponents[1].gap);
    let law = if gap.holds(-1.0) {
        "The distance falls like 1/α"
    } else if gap.mean > -1.0 {
        "The distance falls more slowly than 1/α: at α = 1 training is not lazy yet"
    } else {
        "The distance falls faster than 1/α"
    };
    format!(
        "the exponents are, {}; {}. {law}. At α = {} the linear model is no description: the network ends at a relative distance of {} from it, \
         and its κ is {}.",
        one(&found.exponents[0]),
        one(&found.exponents[1]),
        least.scale,
        least.gap.text(),
        least.kappa.text()
    )
}

fn verdict(found: &Results) -> String {
    let [width, scale] = &found.exponents;
    format!(
        "κ falls like width^({}) and α^({}), and the distance of the trained network from its linearisation like width^({}) and α^({})",
        width.kappa.text(),
        scale.kappa.text(),
        width.gap.text(),
        scale.gap.text()
    )
}

fn setting(config: &Config) -> String {
    format!(
        "Networks \"{}\" with the output α(f − f₀), on {POINTS} points of [−2, 2] with the targets sin 2x, {} steps of gradient descent on all \
         points with the rate 1/(2μ₁α²); {} networks for each width m at α = 1, and for each α at the width {}. ‖∇²f‖ by power iteration \
         on exact gradients and their differences, ‖∇f‖² the largest eigenvalue of the NTK. The linear model is trained by the \
         same steps, in closed form; distances are at {NEW} new points. ± is a 95 % interval over networks.",
        architecture(0).replace("(0,", "(m,"),
        config.steps,
        config.runs,
        config.at_width
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let figure = figure(&found);
    let (setting, observation, verdict) = (setting(&config), observation(&found), verdict(&found));
    let title = "Lazy training";
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let rows = table(
        found.by_width.iter().chain(&found.by_scale),
        &[
            ("width", |m| m.width.to_string()),
            ("α", |m| text::short(m.scale)),
            ("κ(w₀)", |m| m.kappa.text()),
            ("‖∇²f‖", |m| m.hessian.text()),
            ("weights", |m| m.weights.text()),
            ("distance from linear", |m| m.gap.text()),
            ("NTK", |m| m.kernel.text()),
        ],
    );
    let rates = table(
        &found.exponents,
        &[
            ("exponents in", |e| e.by.into()),
            ("κ(w₀)", |e| e.kappa.text()),
            ("weights", |e| e.weights.text()),
            ("distance from linear", |e| e.gap.text()),
            ("NTK", |e| e.kernel.text()),
        ],
    );
    let text = findings.text(&[&rows, &rates]);
    let report = findings
        .report(&["κ(w_0) = ‖y(w_0) − ȳ‖ ‖∇^2 y(w_0)‖ / ‖∇y(w_0)‖^2"])
        .section("By width and by scale")
        .figure(&figure, "κ at the start, and relative changes in training, with 95 % intervals.")
        .table(rates)
        .table(rows)
        .section("Losses of the network and of its linearisation")
        .figure(&losses(&found, &config), "Training losses in units of the first one, means over networks.");
    let numbers = json!({
        "plan": config, "by_width": found.by_width, "by_scale": found.by_scale, "exponents": found.exponents,
        "verdict": findings.verdict,
    });
    Ok(Shown { figure, report, numbers, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closed form of the linear model against its steps.
    #[test]
    fn the_linear_model_is_trained_as_by_its_steps() {
        let (theta, cross) = (ndarray::array![[2.0, 0.6], [0.6, 1.0]], ndarray::array![[0.3, 0.9]]);
        let (y, rate) = (ndarray::array![1.0, -0.5], 0.4);
        let linear = Linear::new(&theta, &cross, &y).unwrap();
        let (mut h, mut at_new) = (Array1::<f64>::zeros(2), Array1::<f64>::zeros(1));
        for step in 1..=7 {
            let residual = (&y - &h) * (rate / 2.0);
            at_new = at_new + cross.dot(&residual);
            h = h + theta.dot(&residual);
            assert!(norm(&(linear.fitted(rate, step) - &h)) < 1e-12);
            assert!(norm(&(linear.new_points(rate, step) - &at_new)) < 1e-12);
        }
    }

    #[test]
    fn wide_networks_and_large_scales_are_lazier() {
        let config =
            Config { widths: vec![8, 128], scales: vec![1.0, 8.0], runs: 3, steps: 60, ..Config::new(true, 1) };
        let found = run(&config, &FitContext::default()).unwrap();
        let ([narrow, wide], [small, large]) =
            ([&found.by_width[0], &found.by_width[1]], [&found.by_scale[0], &found.by_scale[1]]);
        for [a, b] in [[narrow, wide], [small, large]] {
            assert!(
                b.kappa.mean < 0.6 * a.kappa.mean
                    && b.gap.mean < 0.6 * a.gap.mean
                    && b.weights.mean < 0.6 * a.weights.mean
            );
        }
        // κ is 1/α by its definition.
        assert!((found.exponents[1].kappa.mean + 1.0).abs() < 1e-9);
    }
}
