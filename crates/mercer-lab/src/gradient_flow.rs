//! Gradient descent in the eigenbasis of the NTK.
//!
//! In the kernel regime the residual `u = f(X) − y` of the loss `(1/2n)‖u‖²` obeys `u̇ = −(Θ/n)u`: along the eigenvector of
//! `Θ/n` with eigenvalue `μ_j` it decays like `e^{−μ_j t}`. At time t, `1 − e^{−μ_j t}` of the target's j-th component has been
//! learnt, which ridge regression with `α/n = 1/t` replaces by `μ_j/(μ_j + 1/t)`. Gradient descent with the rate η makes steps of
//! this flow: after time t, `(1 − ημ_j)^{t/η}` is left, which tends to `e^{−μ_j t}` for small η. If `μ_j` falls exponentially with j, training K times
//! longer adds `O(log K)` directions.

mod early_stopping;
mod figures;

use crate::statistics::{Interval, Line, exponent, logarithmic};
use crate::wide::{Wide, targets, tensor};
use crate::{Findings, Options, Shown, table};
use early_stopping::Stopped;
use mercer::compute::{Device, Tensor};
use mercer::kernel::Kernel;
use mercer::linalg::eigh;
use mercer::operator::gram;
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::text;
use ndarray::{Array1, Array2, ArrayView2};
use serde::Serialize;
use serde_json::json;

config! {
    /// Points of the interval.
    n: usize = 60; quick 20,
    /// Widths of the trained networks.
    widths: Vec<usize> = vec![64, 256, 1024, 4096]; quick vec![64, 256]; published vec![64, 256, 1024, 4096, 16384],
    /// Networks of each width.
    runs: usize = 5; quick 2; published 10,
    /// Steps of gradient descent, with the rate that is a tenth of 1/μ₁.
    steps: usize = 4000; quick 300,
    /// Steps of the long runs on a white residual, with the rate 1/μ₁.
    long: usize = 20_000; quick 500,
    /// Networks of the long runs, of the largest width.
    long_runs: usize = 3; quick 2; published 5,
    /// Draws of noisy targets for the comparison of early stopping with ridge regression.
    draws: usize = 20; quick 4; published 100,
}

/// Directions whose rate of decay is measured.
const DIRECTIONS: usize = 6;
/// Size of each component of a white residual: so small that weights hardly move.
const WHITE: f64 = 0.02;
/// A direction is learnt when half of it is.
const LEARNT: f64 = 0.5;

/// The network of this width and activation. The same words are its kernel at infinite width.
fn architecture(width: usize, activation: &str) -> String {
    format!("dense({width}, w=2, b=1) {activation} dense(1, w=1, b=no)")
}

/// Eigenvalues `μ_j` of `Θ/n`, descending, and eigenvectors as columns.
struct Basis {
    values: Vec<f64>,
    vectors: Array2<f64>,
}

impl Basis {
    fn of(kernel: ArrayView2<f64>) -> Result<Basis> {
        let (values, vectors) = eigh(Device::Cpu, (&kernel / kernel.nrows() as f64).view())?;
        Ok(Basis { values, vectors })
    }

    /// Of the infinitely wide network.
    fn infinite(activation: &str, x: ArrayView2<f64>) -> Result<Basis> {
        let kernel = Kernel::parse(&format!("ntk('{}')", architecture(1, activation)))?;
        Basis::of(gram::<f64>(&kernel, x, Device::Cpu)?.view())
    }

    fn components(&self, u: &Array1<f64>) -> Array1<f64> {
        self.vectors.t().dot(u)
    }
}

/// What descent did to the components of a residual.
struct Descent {
    basis: Basis,
    /// η
    step: f64,
    /// Times `t = η·steps`.
    times: Vec<f64>,
    /// `u_j(t)` `[times, n]`
    components: Array2<f64>,
    /// `u_j(0)`
    start: Array1<f64>,
}

impl Descent {
    /// Trains a network with `steps` steps of the rate `share/μ₁`. The targets are those of `target(f₀, basis)`.
    fn run(
        text: &str,
        x: &Tensor,
        steps: usize,
        share: f64,
        target: impl Fn(&Array1<f64>, &Basis) -> Array1<f64>,
        rng: &mut Rng,
    ) -> Result<Descent> {
        let mut net = Wide::new(text, x.shape()[1], 1, x.device(), rng)?;
        let basis = Basis::of(net.ntk(x, None)?.view())?;
        let first = net.values(x)?.row(0).to_owned();
        let y = target(&first, &basis);
        let (goal, rate) = (targets(&y.to_vec(), 1, x.device())?, share / basis.values[0]);
        let looks = logarithmic(steps, 60);
        let mut components = Array2::zeros((looks.len(), y.len()));
        let mut done = 0;
        for (i, &look) in looks.iter().enumerate() {
            net.train(x, &goal, rate, look - done)?;
            done = look;
            let u = net.values(x)?.row(0).to_owned() - &y;
            components.row_mut(i).assign(&basis.components(&u));
        }
        let times = looks.iter().map(|&steps| rate * steps as f64).collect();
        Ok(Descent { start: basis.components(&(first - &y)), basis, step: rate, times, components })
    }

    /// `(1 − ημ_j)^{t/η}`, what steps of the rate η leave of direction j after the time t.
    fn left(&self, j: usize, t: f64) -> f64 {
        (1.0 - self.step * self.basis.values[j]).powf((t / self.step).round())
    }

    /// `max_t ‖u(t) − (1 − ηΘ/n)^{t/η}u(0)‖/‖u(0)‖`
    fn error(&self) -> f64 {
        let off = |(i, t): (usize, &f64)| {
            let row = self.components.row(i);
            row.iter().enumerate().map(|(j, u)| (u - self.left(j, *t) * self.start[j]).powi(2)).sum::<f64>().sqrt()
        };
        self.times.iter().enumerate().map(off).fold(0.0, f64::max) / self.start.dot(&self.start).sqrt()
    }

    /// `u_j(t)/u_j(0)` for all t.
    fn ratio(&self, j: usize) -> Vec<f64> {
        self.components.column(j).iter().map(|u| u / self.start[j]).collect()
    }

    /// The rate at which direction j decays: the slope of `−log(u_j(t)/u_j(0))` against t, through the origin, while the ratio falls from
    /// 0.9 to 0.1. None where it does not get there.
    fn rate(&self, j: usize) -> Option<f64> {
        let ratios = self.ratio(j);
        ratios.iter().any(|r| *r < 0.3).then_some(())?;
        let while_falling = self.times.iter().zip(&ratios).take_while(|(_, r)| **r > 0.1).filter(|(_, r)| **r < 0.9);
        let (mut tl, mut tt) = (0.0, 0.0);
        while_falling.for_each(|(t, r)| (tl, tt) = (tl - t * r.ln(), tt + t * t));
        (tt > 0.0).then(|| tl / tt)
    }

    /// The rate that descent predicts: `−log(1 − ημ_j)/η`, which is `μ_j` for small η.
    fn predicted_rate(&self, j: usize) -> f64 {
        -(-self.step * self.basis.values[j]).ln_1p() / self.step
    }

    /// Directions of which half is learnt at each time.
    fn learnt(&self) -> Vec<f64> {
        let count = |row: ndarray::ArrayView1<f64>| {
            row.iter().zip(&self.start).filter(|(u, s)| 1.0 - *u / *s >= LEARNT).count()
        };
        self.components.rows().into_iter().map(|row| count(row) as f64).collect()
    }

    /// The same, predicted.
    fn predicted_learnt(&self) -> Vec<f64> {
        let count = |t: &f64| self.basis.values.iter().filter(|μ| **μ * t >= LEARNT.recip().ln()).count() as f64;
        self.times.iter().map(count).collect()
    }
}

/// One direction at the largest width.
#[derive(Serialize)]
struct Direction {
    number: usize,
    /// `μ_j` at infinite width.
    infinite: f64,
    /// `μ_j` of the networks at their start.
    at_start: Interval,
    /// Rates that were measured.
    measured: Interval,
    /// The measured rate over that which `μ_j` of the same network predicts.
    ratio: Interval,
}

/// Networks of one activation on a white residual: how many directions they have learnt at each time.
#[derive(Serialize)]
struct Growth {
    activation: &'static str,
    /// Times in units of 1/μ₁.
    times: Vec<f64>,
    measured: Vec<f64>,
    predicted: Vec<f64>,
    /// The measured number against log t, and its logarithm against log t, from three directions on.
    logarithmic: Line,
    power: Line,
    /// `1 − u_j(t)/u_j(0)` of the first network at three times against `μ_j t`.
    #[serde(skip)]
    filters: Vec<(f64, Vec<f64>, Vec<f64>)>,
    /// The largest difference to `1 − (1 − ημ_j)^{t/η}`, over networks, directions and times.
    filter_error: Interval,
}

#[derive(Serialize)]
struct Results {
    /// `max_t ‖u(t) − (1 − ηΘ/n)^{t/η}u(0)‖/‖u(0)‖` by width.
    errors: Vec<(usize, Interval)>,
    /// Its exponent in the width.
    exponent: Interval,
    directions: Vec<Direction>,
    growth: Vec<Growth>,
    stopped: Stopped,
    /// A network of the largest width: times, and measured and predicted ratios of the first directions.
    #[serde(skip)]
    example: Vec<(Vec<f64>, Vec<f64>, Vec<f64>)>,
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let rng = Rng::new(config.seed);
    let mut points = rng.fork(1);
    let x = Array2::from_shape_simple_fn((config.n, 1), || 2.0 * points.uniform() - 1.0);
    let input = tensor(x.view(), context.device)?;
    let target = |_: &Array1<f64>, _: &Basis| x.column(0).mapv(|x| (3.0 * x).sin() + 0.5 * (7.0 * x).cos());
    let (mut errors, mut descents) = (vec![], vec![]);
    for (i, &width) in config.widths.iter().enumerate() {
        descents = (0..config.runs)
            .map(|r| {
                let (text, mut rng) = (architecture(width, "erf"), rng.fork(100 + (i * 1000 + r) as u64));
                context.progress.step("descent", i * config.runs + r, config.runs * config.widths.len(), &text);
                Descent::run(&text, &input, config.steps, 0.1, target, &mut rng)
            })
            .collect::<Result<Vec<Descent>>>()?;
        errors.push(descents.iter().map(Descent::error).collect::<Vec<f64>>());
    }
    let widths: Vec<f64> = config.widths.iter().map(|w| *w as f64).collect();
    let infinite = Basis::infinite("erf", x.view())?;
    let growth = ["erf", "relu"].into_iter().enumerate();
    let growth = growth.map(|(i, activation)| grow(activation, &input, config, &rng.fork(7 + i as u64), context));
    let first = &descents[0];
    Ok(Results {
        exponent: exponent(&widths, &errors),
        errors: config.widths.iter().copied().zip(errors.iter().map(|e| Interval::of(e))).collect(),
        directions: (0..DIRECTIONS).filter_map(|j| direction(j, &infinite, &descents)).collect(),
        growth: growth.collect::<Result<_>>()?,
        stopped: early_stopping::run(config.n, config.draws, config.seed)?,
        example: (0..DIRECTIONS)
            .map(|j| {
                let predicted = first.times.iter().map(|t| first.left(j, *t)).collect();
                (first.times.clone(), first.ratio(j), predicted)
            })
            .collect(),
    })
}

/// What the networks say of direction j, if it decays in all of them.
fn direction(j: usize, infinite: &Basis, descents: &[Descent]) -> Option<Direction> {
    let rates: Vec<f64> = descents.iter().map(|d| d.rate(j)).collect::<Option<_>>()?;
    let own: Vec<f64> = descents.iter().map(|d| d.basis.values[j]).collect();
    let ratios: Vec<f64> = rates.iter().zip(descents).map(|(rate, d)| rate / d.predicted_rate(j)).collect();
    Some(Direction {
        number: j + 1,
        infinite: infinite.values[j],
        at_start: Interval::of(&own),
        measured: Interval::of(&rates),
        ratio: Interval::of(&ratios),
    })
}

/// Long runs of the largest networks, whose targets differ from the first outputs by the same amount in every direction.
fn grow(activation: &'static str, x: &Tensor, config: &Config, rng: &Rng, context: &FitContext<'_>) -> Result<Growth> {
    let width = config.widths.iter().copied().max().unwrap_or(1);
    let signs = |f: &Array1<f64>, basis: &Basis| {
        let white = Array1::from_shape_fn(f.len(), |j| if j % 2 == 0 { WHITE } else { -WHITE });
        f - &basis.vectors.dot(&white)
    };
    let mut runs = vec![];
    for r in 0..config.long_runs {
        context.progress.step(&format!("long runs, {activation}"), r, config.long_runs, "");
        let text = architecture(width, activation);
        runs.push(Descent::run(&text, x, config.long, 1.0, signs, &mut rng.fork(r as u64))?);
    }
    let mean = |of: &dyn Fn(&Descent) -> Vec<f64>| {
        let all: Vec<Vec<f64>> = runs.iter().map(of).collect();
        (0..all[0].len()).map(|i| all.iter().map(|v| v[i]).sum::<f64>() / all.len() as f64).collect::<Vec<f64>>()
    };
    let (measured, predicted) = (mean(&Descent::learnt), mean(&Descent::predicted_learnt));
    let times = mean(&|d: &Descent| d.times.iter().map(|t| t * d.basis.values[0]).collect());
    // One or two directions say nothing of a law, and once all are learnt there is nothing to add.
    let most = 0.9 * config.n as f64;
    let used: Vec<usize> = (0..times.len()).filter(|&i| (3.0..most).contains(&measured[i])).collect();
    let pick = |v: &[f64]| used.iter().map(|&i| v[i]).collect::<Vec<f64>>();
    let (t, counts) = (pick(&times), pick(&measured));
    let logs: Vec<f64> = t.iter().map(|t| t.ln()).collect();
    let first = &runs[0];
    let looks = [first.times.len() / 3, 2 * first.times.len() / 3, first.times.len() - 1];
    let filters = looks.map(|i| {
        let t = first.times[i];
        let seen: Vec<usize> = (0..config.n).filter(|&j| (1e-4..1e3).contains(&(first.basis.values[j] * t))).collect();
        let factor = |j: usize| 1.0 - first.components[[i, j]] / first.start[j];
        let at: Vec<f64> = seen.iter().map(|&j| first.basis.values[j] * t).collect();
        (t * first.basis.values[0], at, seen.iter().map(|&j| factor(j)).collect::<Vec<f64>>())
    });
    let errors: Vec<f64> = runs.iter().map(filter_error).collect();
    Ok(Growth {
        activation,
        logarithmic: Line::through(&logs, &counts),
        power: Line::power(&t, &counts),
        times,
        measured,
        predicted,
        filters: filters.into(),
        filter_error: Interval::of(&errors),
    })
}

/// `max |u_j(t)/u_j(0) − (1 − ημ_j)^{t/η}|` over the directions and times.
fn filter_error(run: &Descent) -> f64 {
    let off = run.times.iter().enumerate().flat_map(|(i, &t)| {
        (0..run.start.len()).map(move |j| (run.components[[i, j]] / run.start[j] - run.left(j, t)).abs())
    });
    off.fold(0.0, f64::max)
}

fn observation(found: &Results) -> String {
    let [erf, relu] = [&found.growth[0], &found.growth[1]];
    let worst = found.directions.iter().map(|d| (d.ratio.mean - 1.0).abs()).fold(0.0, f64::max);
    let (narrow, wide) = (&found.errors[0], &found.errors[found.errors.len() - 1]);
    let filter = |of: &Growth| text::number(of.filter_error.mean, 2);
    let law = match found.exponent {
        e if e.mean - e.half_width > -0.5 => ", more slowly than expected",
        e if e.mean + e.half_width < -1.0 => ", faster than expected",
        _ => ", as expected",
    };
    format!(
        "the distance of the residual from its prediction is {} of its first length at width {} and {} at width {}; it falls \
         like the width to the power {}{law}. At the largest width the rates of {} directions agree with the predicted ones to {}. \
         The largest error of a filter factor in the long runs is {} with erf and {} with ReLU, whose networks leave their \
         linearisation in directions of small eigenvalues. With erf, whose eigenvalues fall \
         exponentially, the number of learnt directions is a line in log t (R² {:.3}, {:.2} directions for each factor e; a power law \
         {:.3}); with ReLU, whose eigenvalues fall like a power, it is a power of t (exponent {:.2}, R² {:.3}; a line in log t {:.3}): \
         there the O(log K) law does not hold. {}",
        narrow.1.text(),
        narrow.0,
        wide.1.text(),
        wide.0,
        found.exponent.text(),
        found.directions.len(),
        text::percent(worst),
        filter(erf),
        filter(relu),
        erf.logarithmic.r2,
        erf.logarithmic.slope,
        erf.power.r2,
        relu.power.slope,
        relu.power.r2,
        relu.logarithmic.r2,
        found.stopped.sentence()
    )
}

const EXPECTATION: &str = "the residual follows exp(−Θt/n)u(0), in steps of the rate η (1 − ηΘ/n)^(t/η)u(0), the better the wider the network is, by a power between −1/2 and −1 of the \
     width. At time t the share 1 − exp(−μt) of a direction has been learnt, so that stopping early is a low-pass filter like ridge \
     regression with α/n = 1/t. Where eigenvalues fall exponentially, K times longer training adds O(log K) directions.";

fn verdict(found: &Results) -> String {
    let (width, error) = &found.errors[found.errors.len() - 1];
    format!(
        "gradient descent follows its prediction by the NTK to {} at width {width}; K times longer training adds {:.1} log K directions with erf, and a power \
         of K with ReLU",
        text::percent(error.mean),
        found.growth[0].logarithmic.slope
    )
}

fn setting(config: &Config) -> String {
    let widths: Vec<String> = config.widths.iter().map(|w| w.to_string()).collect();
    format!(
        "Networks \"{}\" of the widths {} on {} points of [−1, 1], with the targets sin 3x + cos(7x)/2, trained by gradient descent on all \
         points, {} steps at the rate 0.1/μ₁, {} networks of each width. Θ is the empirical NTK of each network at its start. The long \
         runs start from a residual with the same size in all directions, {} steps at the rate 1/μ₁, {} networks of the largest width. \
         ± is a 95 % interval over networks.",
        architecture(0, "erf").replace("(0,", "(m,"),
        widths.join(", "),
        config.n,
        text::grouped(config.steps),
        config.runs,
        text::grouped(config.long),
        config.long_runs
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let (setting, observation, verdict) = (setting(&config), observation(&found), verdict(&found));
    let title = "Gradient descent in the eigenbasis of the NTK";
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let directions = table(
        &found.directions,
        &[
            ("direction", |d| d.number.to_string()),
            ("μ, infinite width", |d| text::number(d.infinite, 4)),
            ("μ, networks", |d| d.at_start.text()),
            ("measured rate", |d| d.measured.text()),
            ("measured/predicted", |d| d.ratio.text()),
        ],
    );
    let errors = table(
        &found.errors,
        &[("width", |e| e.0.to_string()), ("largest distance from the prediction, over ‖u(0)‖", |e| e.1.text())],
    );
    let growth = table(
        &found.growth,
        &[
            ("activation", |g| g.activation.into()),
            ("R², line in log t", |g| format!("{:.4}", g.logarithmic.r2)),
            ("directions for each factor e", |g| format!("{:.2}", g.logarithmic.slope)),
            ("R², power of t", |g| format!("{:.4}", g.power.r2)),
            ("exponent", |g| format!("{:.2}", g.power.slope)),
            ("largest error of a filter factor", |g| g.filter_error.text()),
        ],
    );
    let stopped = found.stopped.table();
    let figure = figures::decay(&found);
    let text = findings.text(&[&directions, &errors, &growth, &stopped]);
    let report = findings
        .report(&["u̇ = −(Θ/n) u,  u_j(t) = e^{−μ_j t} u_j(0);  in steps of the rate η  u_j(t) = (1 − ημ_j)^{t/η} u_j(0)"])
        .section("Every direction at its own rate")
        .figure(&figure, "Left: components of the residual of one network of the largest width, dots, and the prediction, lines. Right: the distance from the prediction by width.")
        .table(directions)
        .table(errors)
        .section("Early stopping is a low-pass filter")
        .formula("1 − e^{−μ_j t}  beside  μ_j/(μ_j + 1/t)")
        .figure(&figures::filters(&found), "Shares of the directions that real networks have learnt at three times, the curve that is predicted, and that of ridge regression.")
        .table(stopped)
        .section("The O(log K) law")
        .figure(&figures::growth(&found), "Directions of which half is learnt, measured (dots) and predicted from the eigenvalues (lines).")
        .table(growth);
    Ok(Shown { figure, report, numbers: json!({ "plan": config, "found": found, "verdict": findings.verdict }), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descent that is exactly the prediction has no error and the rates of its eigenvalues.
    #[test]
    fn an_exact_descent_has_no_error() {
        let kernel = ndarray::array![[2.0, 0.5], [0.5, 1.0]];
        let basis = Basis::of(kernel.view()).unwrap();
        let times: Vec<f64> = (1..200).map(|i| 0.05 * f64::from(i)).collect();
        let start = ndarray::array![1.0, -2.0];
        let components = Array2::from_shape_fn((times.len(), 2), |(i, j)| {
            start[j] * (1.0 - 0.05 * basis.values[j]).powi(i as i32 + 1)
        });
        let descent = Descent { basis, step: 0.05, times, components, start };
        assert!(descent.error() < 1e-12);
        for j in 0..2 {
            assert!((descent.rate(j).unwrap() - descent.predicted_rate(j)).abs() < 1e-12);
            assert!((descent.predicted_rate(j) / descent.basis.values[j] - 1.0).abs() < 0.05);
        }
        assert_eq!(descent.learnt(), descent.predicted_learnt());
    }

    #[test]
    fn wider_networks_follow_the_flow_more_closely() {
        let config = Config { widths: vec![32, 512], runs: 3, steps: 200, long: 100, ..Config::new(true, 1) };
        let found = run(&config, &FitContext::default()).unwrap();
        assert!(found.errors[1].1.mean < 0.6 * found.errors[0].1.mean, "{:?}", found.errors);
        assert!(found.directions.iter().all(|d| (d.ratio.mean - 1.0).abs() < 0.2));
    }
}
