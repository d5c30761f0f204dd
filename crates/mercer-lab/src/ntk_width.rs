//! The NTK of networks of growing width, at the start and after training, on the unit circle.
//!
//! The kernel `Θ(x₀, (cos γ, sin γ))` of a network of four layers, x₀ = (1, 0), over independent starts: at infinite width it is the same
//! function for all of them and does not change in training. Training: 200 steps of gradient descent with the rate 1 on
//! `f*(x) = x₁x₂` at standard normal inputs.

use crate::statistics::{Interval, exponent, with_intervals};
use crate::wide::{Wide, targets, tensor};
use crate::{Findings, Options, Shown, table};
use mercer::compute::Device;
use mercer::kernel::Kernel;
use mercer::operator::gram_cross;
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array1, Array2, array};
use serde::Serialize;
use serde_json::json;
use std::f64::consts::PI;

config! {
    /// Widths of the three hidden layers.
    widths: Vec<usize> = vec![50, 150, 500, 1500]; quick vec![30, 120]; published vec![50, 150, 500, 1500, 5000, 10_000],
    /// Independent starts of each width.
    starts: usize = 10; quick 4,
    /// Inputs to learn from.
    n: usize = 32; quick 16,
    /// Steps of gradient descent with the rate 1.
    steps: usize = 200; quick 40,
}

/// Angles of the figure.
const ANGLES: usize = 81;

/// Four layers with the weights and biases of the published figure: `√(1/n) W a + 0.1 b`.
fn architecture(width: usize) -> String {
    let of = "w=1, b=0.1";
    format!("dense({width}, {of}) relu dense({width}, {of}) relu dense({width}, {of}) relu dense(1, {of})")
}

/// Networks of one width.
#[derive(Serialize)]
struct Measured {
    width: usize,
    /// `‖Θ₀ − Θ_∞‖/‖Θ_∞‖` over the circle.
    distance: Interval,
    /// `‖Θ₀ − mean Θ₀‖/‖Θ_∞‖`: the spread of the starts.
    spread: Interval,
    /// `‖mean Θ₀ − Θ_∞‖/‖Θ_∞‖`, and what the spread alone would make of it.
    bias: f64,
    bias_floor: f64,
    /// `‖Θ_t − Θ₀‖/‖Θ₀‖` after training.
    change: Interval,
    /// `Θ_t(x₀,x₀)/Θ₀(x₀,x₀)`
    inflation: Interval,
    /// Training loss at the end over that at the start.
    loss: Interval,
    #[serde(skip)]
    curves: Vec<[Array1<f64>; 2]>,
}

struct Results {
    angles: Vec<f64>,
    infinite: Array1<f64>,
    measured: Vec<Measured>,
    spread_exponent: Interval,
    change_exponent: Interval,
}

fn norm(v: &Array1<f64>) -> f64 {
    v.dot(v).sqrt()
}

/// One start: the kernel along the circle before and after training, and the ratio of the losses.
fn train(net: &mut Wide, config: &Config, circle: &Array2<f64>, rng: &mut Rng) -> Result<([Array1<f64>; 2], f64)> {
    let device = net.theta.trained.device();
    net.draw(rng);
    let x = rng.normals((config.n, 2));
    let y: Vec<f64> = x.rows().into_iter().map(|x| x[0] * x[1]).collect();
    let (points, goal) = (tensor(x.view(), device)?, targets(&y, 1, device)?);
    let (first, circle) = (tensor(array![[1.0, 0.0]].view(), device)?, tensor(circle.view(), device)?);
    let loss = |net: &mut Wide| {
        Ok::<f64, mercer::Error>(norm(&(net.values(&points)?.row(0).to_owned() - Array1::from(y.clone()))).powi(2))
    };
    let (before, start) = (net.ntk(&first, Some(&circle))?.row(0).to_owned(), loss(net)?);
    net.train(&points, &goal, 1.0, config.steps)?;
    let after = net.ntk(&first, Some(&circle))?.row(0).to_owned();
    Ok(([before, after], loss(net)? / start))
}

fn measure(
    width: usize,
    config: &Config,
    circle: &Array2<f64>,
    infinite: &Array1<f64>,
    context: &FitContext,
) -> Result<(Measured, [Vec<f64>; 2])> {
    let rng = Rng::new(config.seed).fork(width as u64);
    let mut net = Wide::new(&architecture(width), 2, 1, context.device, &mut rng.fork(0))?;
    let (mut curves, mut losses) = (vec![], vec![]);
    for s in 0..config.starts {
        context.progress.step(&format!("width {width}"), s, config.starts, "");
        let (curve, loss) = train(&mut net, config, circle, &mut rng.fork(1 + s as u64))?;
        curves.push(curve);
        losses.push(loss);
    }
    let (starts, whole) = (config.starts as f64, norm(infinite));
    let mean = curves.iter().fold(Array1::zeros(infinite.len()), |sum: Array1<f64>, c| sum + &c[0]) / starts;
    let of = |f: &dyn Fn(&[Array1<f64>; 2]) -> f64| curves.iter().map(f).collect::<Vec<f64>>();
    // With their own mean subtracted, n starts have the share (n−1)/n of their variance.
    let spread = of(&|c| norm(&(&c[0] - &mean)) / whole * (starts / (starts - 1.0)).sqrt());
    let change = of(&|c| norm(&(&c[1] - &c[0])) / norm(&c[0]));
    let middle = infinite.len() / 2;
    let measured = Measured {
        width,
        distance: Interval::of(&of(&|c| norm(&(&c[0] - infinite)) / whole)),
        bias: norm(&(&mean - infinite)) / whole,
        bias_floor: (spread.iter().map(|s| s * s).sum::<f64>() / starts / starts).sqrt(),
        spread: Interval::of(&spread),
        change: Interval::of(&change),
        inflation: Interval::of(&of(&|c| c[1][middle] / c[0][middle])),
        loss: Interval::of(&losses),
        curves,
    };
    Ok((measured, [spread, change]))
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let angles: Vec<f64> = (0..ANGLES).map(|i| PI * (2.0 * i as f64 / (ANGLES - 1) as f64 - 1.0)).collect();
    let circle = Array2::from_shape_fn((ANGLES, 2), |(i, j)| if j == 0 { angles[i].cos() } else { angles[i].sin() });
    let kernel = Kernel::parse(&format!("ntk('{}')", architecture(1)))?;
    let infinite = gram_cross::<f64>(&kernel, array![[1.0, 0.0]].view(), circle.view(), Device::Cpu)?.row(0).to_owned();
    let (mut measured, mut spreads, mut changes) = (vec![], vec![], vec![]);
    for &width in &config.widths {
        let (found, [spread, change]) = measure(width, config, &circle, &infinite, context)?;
        measured.push(found);
        spreads.push(spread);
        changes.push(change);
    }
    let widths: Vec<f64> = config.widths.iter().map(|w| *w as f64).collect();
    Ok(Results {
        spread_exponent: exponent(&widths, &spreads),
        change_exponent: exponent(&widths, &changes),
        angles,
        infinite,
        measured,
    })
}

/// The published figure: all starts of two widths at both times.
fn figure(found: &Results, config: &Config) -> String {
    let mut grid = Grid::new("Θ(x_0, (cos γ, sin γ)), ten starts", 2).panel_size(330.0, 230.0).shared();
    // The published widths where they are there; else the two largest.
    let published: Vec<&Measured> = found.measured.iter().filter(|m| [500, 10_000].contains(&m.width)).collect();
    let last: Vec<&Measured> = found.measured.iter().rev().take(2).rev().collect();
    for m in if published.len() == 2 { published } else { last } {
        let mut plot = Plot::new(format!("width {}", m.width)).x("angle γ").y("Θ");
        for (i, [before, after]) in m.curves.iter().enumerate() {
            let named = |name: &str| if i == 0 { name.to_owned() } else { String::new() };
            plot = plot
                .line(named("t = 0"), &found.angles, &before.to_vec())
                .colour(0)
                .line(named(&format!("t = {}", config.steps)), &found.angles, &after.to_vec())
                .colour(1)
                .dashed();
        }
        grid = grid.panel(plot.line("infinite width", &found.angles, &found.infinite.to_vec()).colour(6));
    }
    grid.svg()
}

fn by_width(found: &Results) -> String {
    let widths: Vec<f64> = found.measured.iter().map(|m| m.width as f64).collect();
    let power = |first: f64, a: f64| widths.iter().map(|w| first * (w / widths[0]).powf(a)).collect::<Vec<f64>>();
    let of = |value: fn(&Measured) -> Interval| found.measured.iter().map(value).collect::<Vec<_>>();
    let (spread, change) = (of(|m| m.spread), of(|m| m.change));
    let plot = Plot::new("The kernel by width").x_log("width").y_log("relative size");
    let plot = with_intervals(plot, "spread of the starts", &widths, &spread, Some(5.0));
    with_intervals(plot, "change in training", &widths, &change, Some(5.0))
        .line("width^{−1/2}", &widths, &power(spread[0].mean, -0.5))
        .dashed()
        .colour(0)
        .line("width^{−1}", &widths, &power(change[0].mean, -1.0))
        .dashed()
        .colour(1)
        .svg()
}

const EXPECTATION: &str = "the kernel of a network at its start tends to that of infinite width, with a spread over starts that falls like \
     width^(−1/2), and it does not change in training at infinite width; at finite width it changes by at most the order width^(−1/2), by \
     finer analyses width^(−1).";

fn observation(found: &Results) -> String {
    let (narrow, wide) = (&found.measured[0], &found.measured[found.measured.len() - 1]);
    let spread =
        if found.spread_exponent.holds(-0.5) { "which agrees with −1/2" } else { "which differs from −1/2" };
    format!(
        "the spread falls from {} at width {} to {} at width {}, with the exponent {}, {spread}. Training changes the kernel by {} and {} \
         there, with the exponent {}, while the loss falls to {} and {} of its first value. The kernel at x₀ grows in training, by \
         the factors {} and {}.",
        narrow.spread.text(),
        narrow.width,
        wide.spread.text(),
        wide.width,
        found.spread_exponent.text(),
        narrow.change.text(),
        wide.change.text(),
        found.change_exponent.text(),
        narrow.loss.text(),
        wide.loss.text(),
        narrow.inflation.text(),
        wide.inflation.text()
    )
}

fn verdict(found: &Results) -> String {
    format!(
        "the spread of the NTK over starts falls like width^({}), and its change in training like width^({})",
        found.spread_exponent.text(),
        found.change_exponent.text()
    )
}

fn setting(config: &Config) -> String {
    format!(
        "Networks of four layers, \"{}\", {} starts of each width m. The kernel is that of the NTK parameterisation, exact. Training: {} steps \
         of gradient descent with the rate 1 on (1/2n) Σ (f(x) − x₁x₂)² at {} standard normal inputs, drawn for each start. Norms are \
         over {ANGLES} angles. ± is a 95 % interval over starts.",
        architecture(0).replace("(0,", "(m,"),
        config.starts,
        config.steps,
        config.n
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let figure = figure(&found, &config);
    let (setting, observation, verdict) = (setting(&config), observation(&found), verdict(&found));
    let title = "The NTK by width, before and after training";
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let rows = table(
        &found.measured,
        &[
            ("width", |m| m.width.to_string()),
            ("spread of starts", |m| m.spread.text()),
            ("distance from Θ∞", |m| m.distance.text()),
            ("mean's distance", |m| text::number(m.bias, 2)),
            ("by spread alone", |m| text::number(m.bias_floor, 2)),
            ("change in training", |m| m.change.text()),
            ("growth at x₀", |m| m.inflation.text()),
            ("loss left", |m| m.loss.text()),
        ],
    );
    let text = findings.text(&[&rows]);
    let report = findings
        .report(&["Θ_t(x,x′) = ∂_θ f(x) · ∂_θ f(x′),  Θ_t → Θ_∞ for all t as the width grows"])
        .section("The kernel on the circle")
        .figure(&figure, "Every line is one start: before training and after it. The dark line is the kernel of infinite width.")
        .section("By width")
        .figure(&by_width(&found), "The spread of the kernels at the start and their change in training, relative to their norm, with 95 % intervals.")
        .table(rows);
    let numbers = json!({
        "plan": config, "measured": found.measured, "spread_exponent": found.spread_exponent,
        "change_exponent": found.change_exponent, "verdict": findings.verdict,
    });
    Ok(Shown { figure, report, numbers, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wider networks spread and change less, and their mean is the closed form.
    #[test]
    fn wider_networks_have_a_steadier_kernel() {
        let config = Config { widths: vec![20, 320], starts: 5, n: 16, steps: 30, ..Config::new(true, 5) };
        let found = run(&config, &FitContext::default()).unwrap();
        let (narrow, wide) = (&found.measured[0], &found.measured[1]);
        assert!(wide.spread.mean < 0.5 * narrow.spread.mean && wide.change.mean < 0.5 * narrow.change.mean);
        assert!(wide.bias < 3.0 * wide.bias_floor + 0.02, "{} {}", wide.bias, wide.bias_floor);
        assert!((found.spread_exponent.mean + 0.5).abs() < 0.25, "{:?}", found.spread_exponent);
    }
}
