//! Ensembles of real wide networks beside the Gaussian process that theory says they are.
//!
//! Networks of infinite width, trained for a time t from random weights, are a Gaussian process: its mean and covariance are in
//! closed form ([`mercer::apply::NtkEnsemble`]). Here ensembles of finite networks are trained by gradient descent, and their mean and
//! spread at new points are compared with it.

use crate::statistics::{Interval, with_intervals};
use crate::wide::{Wide, targets, tensor};
use crate::{Findings, Options, Shown, table};
use mercer::apply::{Fit, NtkEnsemble, Predict};
use mercer::compute::Device;
use mercer::data::Target;
use mercer::kernel::Kernel;
use mercer::linalg::eigh;
use mercer::operator::gram;
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use serde::Serialize;
use serde_json::json;

config! {
    /// Widths of the networks.
    widths: Vec<usize> = vec![16, 64, 256]; quick vec![8, 64]; published vec![16, 64, 256, 1024, 10_000],
    /// Ensembles of each width.
    ensembles: usize = 10; quick 4; published 5,
    /// Networks of an ensemble.
    size: usize = 20; quick 10; published 10,
    /// Steps of gradient descent, with the rate 1/(2μ₁).
    steps: usize = 1000; quick 200; published 500,
}

/// Points to learn from, in two groups.
const POINTS: usize = 12;
/// Networks that a figure shows.
const SHOWN: usize = 12;

fn architecture(width: usize) -> String {
    let of = "w=1.5, b=0.5";
    format!("dense({width}, {of}) erf dense({width}, {of}) erf dense(1, {of})")
}

/// What theory says at one time, at the new points.
struct Predicted {
    time: f64,
    mean: Array1<f64>,
    variance: Array1<f64>,
}

impl Predicted {
    fn at(time: f64, kernel: &Kernel, x: ArrayView2<f64>, y: &[f64], new: ArrayView2<f64>) -> Result<Predicted> {
        let ensemble = NtkEnsemble { kernel: kernel.clone(), time };
        let fitted = ensemble.fit(x, &Target::Values(y.to_vec()), &FitContext::default())?;
        let deviations = fitted.deviations(new)?.expect("an ensemble has deviations");
        Ok(Predicted { time, mean: fitted.scores(new)?.column(0).to_owned(), variance: deviations.mapv(|v| v * v) })
    }

    /// For N networks with the values `f` `[N, m]`:
    ///
    /// * `mean_x N(f̄(x) − m(x))²/σ²(x)`, 1 in expectation if they are draws of the process;
    /// * `mean_x s²(x)/σ²(x)`, with s² their variance: 1 too;
    /// * the share of values within `m ± 1.96σ`: 95 %.
    fn compare(&self, f: ArrayView2<f64>) -> [f64; 3] {
        let (n, points) = (f.nrows() as f64, f.ncols() as f64);
        let mean = f.mean_axis(Axis(0)).expect("networks");
        let offset = (&mean - &self.mean).mapv(|v| v * v) / &self.variance;
        let ratio = f.var_axis(Axis(0), 1.0) / &self.variance;
        let inside = |(row, x): (usize, usize)| (f[[row, x]] - self.mean[x]).abs() <= 1.96 * self.variance[x].sqrt();
        let pairs = (0..f.nrows()).flat_map(|r| (0..f.ncols()).map(move |x| (r, x)));
        [n * offset.sum() / points, ratio.sum() / points, pairs.filter(|at| inside(*at)).count() as f64 / (n * points)]
    }

    /// `√(mean_x (f̄(x) − m(x))² / mean_x σ²(x))` for all networks of a width, and what it would be for draws of the process.
    fn bias(&self, f: ArrayView2<f64>) -> [f64; 2] {
        let off = f.mean_axis(Axis(0)).expect("networks") - &self.mean;
        [(off.dot(&off) / self.variance.sum()).sqrt(), (f.nrows() as f64).powf(-0.5)]
    }
}

/// All networks of one width at one time.
#[derive(Serialize)]
struct Measured {
    width: usize,
    time: f64,
    /// See [`Predicted::compare`], over ensembles.
    offset: Interval,
    variance: Interval,
    coverage: Interval,
    /// See [`Predicted::bias`].
    bias: f64,
    floor: f64,
    /// Mean, deviation and a few networks at the new points.
    #[serde(skip)]
    mean: Array1<f64>,
    #[serde(skip)]
    deviation: Array1<f64>,
    #[serde(skip)]
    examples: Vec<Vec<f64>>,
}

struct Problem {
    x: Array2<f64>,
    y: Vec<f64>,
    new: Array2<f64>,
    kernel: Kernel,
}

/// Points around −1 and 1, standardised values of a wave, and new points from −2.5 to 2.5.
fn problem() -> Result<Problem> {
    let at = |i: usize| (if i < POINTS / 2 { -1.6 } else { 0.6 }) + 0.2 * (i % (POINTS / 2)) as f64;
    let x = Array2::from_shape_fn((POINTS, 1), |(i, _)| at(i));
    let wave: Array1<f64> = x.column(0).mapv(|x| (3.0 * x).sin() + 0.3 * x);
    let (mean, deviation) = (wave.mean().unwrap_or(0.0), wave.std(0.0));
    Ok(Problem {
        y: wave.iter().map(|v| (v - mean) / deviation).collect(),
        x,
        new: Array2::from_shape_fn((51, 1), |(i, _)| -2.5 + 0.1 * i as f64),
        kernel: Kernel::parse(&format!("ntk('{}')", architecture(1)))?,
    })
}

/// Values `[ensembles·size, m]` at the new points of networks of this width, at every number of steps.
fn train(
    width: usize,
    looks: &[usize],
    rate: f64,
    problem: &Problem,
    config: &Config,
    context: &FitContext,
) -> Result<Vec<Array2<f64>>> {
    let device = context.device;
    let (x, new) = (tensor(problem.x.view(), device)?, tensor(problem.new.view(), device)?);
    let y = targets(&problem.y, config.size, device)?;
    let mut values = vec![Array2::zeros((0, problem.new.nrows())); looks.len()];
    // One set of networks for all ensembles: at large widths, making one takes as long as training it.
    let mut nets = Wide::new(&architecture(width), 1, config.size, device, &mut Rng::new(config.seed))?;
    for e in 0..config.ensembles {
        context.progress.step(&format!("ensembles of width {width}"), e, config.ensembles, "");
        nets.draw(&mut Rng::new(config.seed).fork(width as u64).fork(e as u64));
        let mut done = 0;
        for (look, all) in looks.iter().zip(&mut values) {
            nets.train(&x, &y, rate, look - done)?;
            done = *look;
            all.append(Axis(0), nets.values(&new)?.view()).expect("as many columns");
        }
    }
    Ok(values)
}

fn measured(width: usize, predicted: &Predicted, f: &Array2<f64>, config: &Config) -> Measured {
    let each: Vec<[f64; 3]> = f.axis_chunks_iter(Axis(0), config.size).map(|f| predicted.compare(f)).collect();
    let of = |i: usize| Interval::of(&each.iter().map(|e| e[i]).collect::<Vec<f64>>());
    let [bias, floor] = predicted.bias(f.view());
    Measured {
        width,
        time: predicted.time,
        offset: of(0),
        variance: of(1),
        coverage: of(2),
        bias,
        floor,
        mean: f.mean_axis(Axis(0)).expect("networks"),
        deviation: f.std_axis(Axis(0), 1.0),
        examples: f.rows().into_iter().take(SHOWN).map(|row| row.to_vec()).collect(),
    }
}

struct Results {
    problem: Problem,
    predicted: Vec<Predicted>,
    /// Of training to the end.
    end: Predicted,
    measured: Vec<Measured>,
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let problem = problem()?;
    let theta = gram::<f64>(&problem.kernel, problem.x.view(), Device::Cpu)? / POINTS as f64;
    let rate = 0.5 / eigh(Device::Cpu, theta.view())?.0[0];
    let looks = [config.steps / 50, config.steps / 8, config.steps];
    let at = |time: f64| Predicted::at(time, &problem.kernel, problem.x.view(), &problem.y, problem.new.view());
    let predicted = looks.iter().map(|steps| at(rate * *steps as f64)).collect::<Result<Vec<_>>>()?;
    let mut all = vec![];
    for &width in &config.widths {
        let values = train(width, &looks, rate, &problem, config, context)?;
        all.extend(predicted.iter().zip(&values).map(|(p, f)| measured(width, p, f, config)));
    }
    Ok(Results { end: at(f64::INFINITY)?, problem, predicted, measured: all })
}

/// Bands of the process at each time, and the widest networks in them.
fn figure(found: &Results, config: &Config) -> String {
    let widest = config.widths.iter().copied().max().unwrap_or(0);
    let x = found.problem.new.column(0).to_vec();
    let mut grid = Grid::new(format!("Networks of width {widest} in the bands of the process"), 2)
        .panel_size(320.0, 220.0)
        .shared();
    for (predicted, seen) in found.predicted.iter().zip(found.measured.iter().filter(|m| m.width == widest)) {
        let [low, high] =
            [-1.96, 1.96].map(|z| (&predicted.mean + &predicted.variance.mapv(|v| z * v.sqrt())).to_vec());
        let mut plot = Plot::new(format!("t = {}", text::short(predicted.time))).x("x").y("f_t(x)");
        plot = plot.line("process: mean and 95 %", &x, &predicted.mean.to_vec()).band(&low, &high);
        for (i, example) in seen.examples.iter().enumerate() {
            plot = plot.line(if i == 0 { "networks" } else { "" }, &x, example).colour(7);
        }
        plot = plot.line("mean of all networks", &x, &seen.mean.to_vec()).colour(1).dashed();
        grid = grid.panel(plot.scatter("examples", &found.problem.x.column(0).to_vec(), &found.problem.y).colour(6));
    }
    let last = found.measured.iter().rfind(|m| m.width == widest);
    let deviations = |v: &Array1<f64>| v.mapv(f64::sqrt).to_vec();
    let mut plot = Plot::new("Deviations").x("x").y("deviation");
    plot = plot.line("process, last t", &x, &deviations(&found.predicted[found.predicted.len() - 1].variance));
    plot = plot.line("process, t = ∞", &x, &deviations(&found.end.variance)).dotted();
    if let Some(last) = last {
        plot = plot.scatter("networks, last t", &x, &last.deviation.to_vec());
    }
    grid.panel(plot).svg()
}

fn by_width(found: &Results, config: &Config) -> String {
    let last = found.predicted.len() - 1;
    let of: Vec<&Measured> = found.measured.iter().skip(last).step_by(last + 1).collect();
    let widths: Vec<f64> = config.widths.iter().map(|w| *w as f64).collect();
    let line = |f: fn(&Measured) -> f64| of.iter().map(|m| f(m)).collect::<Vec<f64>>();
    let variance: Vec<Interval> = of.iter().map(|m| m.variance).collect();
    let ratio = Plot::new("Variance of the networks over that of the process").x_log("width").y("s²/σ²");
    let ratio = with_intervals(ratio, "measured, 95 % interval", &widths, &variance, None)
        .line("theory", &widths, &vec![1.0; widths.len()])
        .dashed();
    let bias = Plot::new("Distance of the means, in deviations")
        .x_log("width")
        .y_log("distance")
        .line("measured", &widths, &line(|m| m.bias))
        .markers()
        .line("draws of the process", &widths, &line(|m| m.floor))
        .dashed();
    Grid::new("At the last time, by width", 2).panel_size(320.0, 220.0).panel(ratio).panel(bias).svg()
}

const EXPECTATION: &str = "the values of wide networks after a time t of training are draws of the Gaussian process in closed form: means of \
     ensembles scatter around its mean as draws would (offset 1), variances agree (ratio 1), and 95 % of the values lie in its 95 % \
     bands. Narrow networks differ from it by terms of order 1/width.";

fn observation(found: &Results) -> String {
    let times = found.predicted.len();
    let (narrow, wide) = (&found.measured[times - 1], &found.measured[found.measured.len() - 1]);
    let verdict = |i: Interval| if i.holds(1.0) { "agrees with 1" } else { "differs from 1" };
    format!(
        "at the last time, the offset is {} at width {} and {} at width {}, which {}; the ratio of variances is {} and {}, which {}; {} and \
         {} of the values lie in the bands.",
        narrow.offset.text(),
        narrow.width,
        wide.offset.text(),
        wide.width,
        verdict(wide.offset),
        narrow.variance.text(),
        wide.variance.text(),
        verdict(wide.variance),
        text::percent(narrow.coverage.mean),
        text::percent(wide.coverage.mean)
    )
}

fn verdict(found: &Results) -> String {
    let wide = &found.measured[found.measured.len() - 1];
    format!(
        "after training, networks of width {} have {} times the variance of the Gaussian process in closed form, and {} of their values lie \
         in its 95 % bands",
        wide.width,
        wide.variance.text(),
        text::percent(wide.coverage.mean)
    )
}

fn setting(config: &Config) -> String {
    format!(
        "{} ensembles of {} networks \"{}\" of each width m, on {POINTS} points of the line, trained by gradient descent on all points \
         with the rate 1/(2μ₁), {} steps. The process is NtkEnsemble of the kernel ntk of the same layers, at the times of {}, {} and {} \
         steps. Offset: the mean over 51 new points of N(f̄ − m)²/σ² for ensembles of N networks. ± is a 95 % interval over ensembles.",
        config.ensembles,
        config.size,
        architecture(0).replace("(0,", "(m,"),
        text::grouped(config.steps),
        config.steps / 50,
        config.steps / 8,
        config.steps
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let figure = figure(&found, &config);
    let (setting, observation, verdict) = (setting(&config), observation(&found), verdict(&found));
    let title = "Ensembles of wide networks in closed form";
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let rows = table(
        &found.measured,
        &[
            ("width", |m| m.width.to_string()),
            ("t", |m| text::short(m.time)),
            ("offset", |m| m.offset.text()),
            ("s²/σ²", |m| m.variance.text()),
            ("in 95 % bands", |m| text::percent(m.coverage.mean)),
            ("distance of means", |m| text::number(m.bias, 2)),
            ("of draws", |m| text::number(m.floor, 2)),
        ],
    );
    let text = findings.text(&[&rows]);
    let report = findings
        .report(&[
            "E f_t(x) = Θ(x,X) A_t y,  A_t = Θ^{−1}(1 − e^{−tΘ/n})",
            "Cov f_t(x),f_t(x′) = K(x,x′) − G_x^T K(X,x′) − K(x,X) G_{x′} + G_x^T K(X,X) G_{x′},  G_x = A_t Θ(X,x)",
        ])
        .section("Networks and the process")
        .figure(&figure, "Bands of the process with some networks and the mean of all, at three times; and deviations at the last time.")
        .figure(&by_width(&found, &config), "Left: the ratio of the variances. Right: the distance of the mean of all networks from that of the process, in deviations of the process, and what it would be for as many draws.")
        .table(rows);
    let numbers = json!({ "plan": config, "measured": found.measured, "verdict": findings.verdict });
    Ok(Shown { figure, report, numbers, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws of the process itself have offset and ratio 1 and the coverage of the bands.
    #[test]
    fn draws_of_the_process_agree_with_it() {
        let mut rng = Rng::new(4);
        let (mean, deviation) = (ndarray::array![1.0, -2.0, 0.5], ndarray::array![0.1, 2.0, 1.0]);
        let predicted = Predicted { time: 1.0, variance: deviation.mapv(|v: f64| v * v), mean: mean.clone() };
        let f = Array2::from_shape_fn((4000, 3), |(_, x)| mean[x] + deviation[x] * rng.normal());
        let each: Vec<[f64; 3]> = f.axis_chunks_iter(Axis(0), 20).map(|f| predicted.compare(f)).collect();
        let of = |i: usize| each.iter().map(|e| e[i]).sum::<f64>() / each.len() as f64;
        assert!((of(0) - 1.0).abs() < 0.15 && (of(1) - 1.0).abs() < 0.05 && (of(2) - 0.95).abs() < 0.01);
        let [bias, floor] = predicted.bias(f.view());
        assert!(bias < 3.0 * floor);
    }

    #[test]
    fn wide_networks_are_closer_to_the_process_than_narrow_ones() {
        let config = Config { widths: vec![2, 512], ..Config::new(true, 2) };
        let found = run(&config, &FitContext::default()).unwrap();
        let last = found.predicted.len() - 1;
        let (narrow, wide) = (&found.measured[last], &found.measured[2 * last + 1]);
        assert!(
            (wide.variance.mean.ln()).abs() < (narrow.variance.mean.ln()).abs(),
            "{} {}",
            wide.variance.mean,
            narrow.variance.mean
        );
        assert!((wide.variance.mean - 1.0).abs() < 2.0 * wide.variance.half_width, "{:?}", wide.variance);
    }
}
