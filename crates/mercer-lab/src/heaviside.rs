//! A jump in noise: a network adapts to where it is, kernel ridge regression cannot.
//!
//! From n noisy values of a step function, the squared error of the best linear estimator, kernel ridge regression with any
//! lengthscale and ridge among them, falls like `n^{−1/2}` at best; estimators that adapt, such as trained networks, can reach
//! `n^{−1}` up to logarithms.

use crate::statistics::{Interval, exponent, with_intervals};
use crate::{Findings, Options, Shown, table};
use mercer::apply::{Alpha, Fit, Predict, Ridge};
use mercer::classifier::{Classifier, Settings, Standardizer, train};
use mercer::compute::Rule;
use mercer::data::{Dataset, Target};
use mercer::kernel::Kernel;
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot};
use ndarray::{Array2, ArrayView2};
use serde::Serialize;
use serde_json::json;

config! {
    /// Numbers of examples.
    sizes: Vec<usize> = vec![64, 256, 1024]; quick vec![64, 256]; published vec![64, 256, 1024, 4096],
    /// Draws of the examples.
    runs: usize = 8; quick 2; published 20,
    /// Steps of Adam of the networks.
    steps: u64 = 3000; quick 300; published 6000,
}

/// Deviation of the noise; the jump has height 1.
const NOISE: f64 = 0.3;
/// Points of [−1, 1] at which errors are measured.
const GRID: usize = 2000;
const LENGTHSCALES: [f64; 6] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0];
const RIDGES: [f64; 5] = [1e-2, 1e-1, 1.0, 10.0, 100.0];
const BATCH: usize = 64;

#[derive(Clone, Copy, PartialEq, Serialize)]
enum Learner {
    Rbf,
    Laplacian,
    Network,
}

impl Learner {
    const ALL: [Learner; 3] = [Learner::Rbf, Learner::Laplacian, Learner::Network];

    fn name(self) -> &'static str {
        match self {
            Learner::Rbf => "RBF ridge",
            Learner::Laplacian => "Laplacian ridge",
            Learner::Network => "network",
        }
    }
}

/// n examples of the step at `jump`.
fn examples(n: usize, jump: f64, rng: &mut Rng) -> (Array2<f64>, Vec<f64>) {
    let x = Array2::from_shape_simple_fn((n, 1), || 2.0 * rng.uniform() - 1.0);
    let y = x.iter().map(|x| step(*x, jump) + NOISE * rng.normal()).collect();
    (x, y)
}

fn step(x: f64, jump: f64) -> f64 {
    f64::from(u8::from(x >= jump))
}

fn grid() -> Array2<f64> {
    Array2::from_shape_fn((GRID, 1), |(i, _)| 2.0 * (i as f64 + 0.5) / GRID as f64 - 1.0)
}

/// The values on the grid of the kernel whose lengthscale and ridge have the least error *there*: no choice from data is better.
fn best_ridge(name: &str, x: ArrayView2<f64>, y: &[f64], truth: &[f64], context: &FitContext) -> Result<Vec<f64>> {
    let (grid, target) = (grid(), Target::Values(y.to_vec()));
    let mut best = (f64::INFINITY, vec![]);
    for (l, alpha) in LENGTHSCALES.into_iter().flat_map(|l| RIDGES.map(|alpha| (l, alpha))) {
        let ridge = Ridge { alpha: Alpha::Fixed(alpha), ..Ridge::new(Kernel::parse(&format!("{name}({l})"))?) };
        let fitted = ridge.fit(x, &target, &FitContext { progress: &mercer::Silent, ..*context })?;
        let values = fitted.scores(grid.view())?.column(0).to_vec();
        let error = mean_square(&values, truth);
        if error < best.0 {
            best = (error, values);
        }
    }
    Ok(best.1)
}

/// The values on the grid of a trained network; that of the last step.
fn network(x: ArrayView2<f64>, y: &[f64], config: &Config, seed: u64, context: &FitContext) -> Result<Vec<f64>> {
    let data = Dataset::new("step", x.to_owned(), Some(Target::Values(y.to_vec())))?.with_numbers()?;
    let mut start = Classifier::new("dense(16, w=6, b=3) relu dense(16) relu dense(1)", &data, context.device, seed)?;
    start.standardizer = Standardizer::identity();
    let settings = Settings {
        epochs: config.steps.div_ceil(data.n().div_ceil(BATCH) as u64),
        batch: BATCH,
        rule: Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.02 },
        learning_rate: 0.01,
        seed,
        ..Settings::default()
    };
    let context = FitContext { progress: &mercer::Silent, ..*context };
    train(start, &data, None, &settings, &context, &|_| ())?.classifier.predict(grid().view())
}

fn mean_square(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / a.len() as f64
}

#[derive(Serialize)]
struct Measured {
    learner: Learner,
    n: usize,
    error: Interval,
    #[serde(skip)]
    example: Vec<f64>,
}

struct Results {
    measured: Vec<Measured>,
    exponents: Vec<(Learner, Interval)>,
    jump: f64,
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let rng = Rng::new(config.seed);
    let jump_of = |run: usize| 0.6 * rng.fork(run as u64).uniform() - 0.3;
    let (mut measured, mut exponents) = (vec![], vec![]);
    for (l, learner) in Learner::ALL.into_iter().enumerate() {
        let mut errors = vec![];
        for (i, &n) in config.sizes.iter().enumerate() {
            context.progress.step("heaviside", l * config.sizes.len() + i, 3 * config.sizes.len(), learner.name());
            let (mut of_runs, mut example) = (vec![], vec![]);
            for run in 0..config.runs {
                let jump = jump_of(run);
                let (x, y) = examples(n, jump, &mut rng.fork(1000 + run as u64).fork(n as u64));
                let truth: Vec<f64> = grid().iter().map(|x| step(*x, jump)).collect();
                let values = match learner {
                    Learner::Rbf => best_ridge("rbf", x.view(), &y, &truth, context)?,
                    Learner::Laplacian => best_ridge("laplacian", x.view(), &y, &truth, context)?,
                    Learner::Network => network(x.view(), &y, config, run as u64, context)?,
                };
                of_runs.push(mean_square(&values, &truth));
                if run == 0 {
                    example = values;
                }
            }
            measured.push(Measured { learner, n, error: Interval::of(&of_runs), example });
            errors.push(of_runs);
        }
        let sizes: Vec<f64> = config.sizes.iter().map(|n| *n as f64).collect();
        exponents.push((learner, exponent(&sizes, &errors)));
    }
    Ok(Results { measured, exponents, jump: jump_of(0) })
}

fn figure(found: &Results, config: &Config) -> String {
    let last = config.sizes[config.sizes.len() - 1];
    let x = grid().column(0).to_vec();
    let truth: Vec<f64> = x.iter().map(|x| step(*x, found.jump)).collect();
    let mut fits =
        Plot::new(format!("Estimates from {last} examples")).x("x").y("f(x)").line("truth", &x, &truth).colour(6);
    let mut errors = Plot::new("Mean squared error").x_log("examples n").y_log("error");
    for (i, learner) in Learner::ALL.into_iter().enumerate() {
        let of: Vec<&Measured> = found.measured.iter().filter(|m| m.learner == learner).collect();
        fits = fits.line(learner.name(), &x, &of[of.len() - 1].example).colour(i);
        let n: Vec<f64> = of.iter().map(|m| m.n as f64).collect();
        let values: Vec<Interval> = of.iter().map(|m| m.error).collect();
        errors = with_intervals(errors, learner.name(), &n, &values, Some(3.0)).colour(i);
    }
    Grid::new("A jump in noise", 2).panel_size(330.0, 230.0).panel(fits).panel(errors).svg()
}

const EXPECTATION: &str = "kernel ridge regression is linear in the targets, and its error falls like n^(−1/2) at best, even with the lengthscale and the \
     ridge of the least true error; a trained network adapts to the jump and may reach n^(−1).";

fn observation(found: &Results) -> String {
    let exponents: Vec<String> =
        found.exponents.iter().map(|(learner, e)| format!("{} for the {}", e.text(), learner.name())).collect();
    let last = |learner: Learner| found.measured.iter().rfind(|m| m.learner == learner).map(|m| m.error.text());
    format!(
        "the exponents of the error in n are {}. With the most examples the errors are {}.",
        exponents.join(", "),
        Learner::ALL.map(|l| format!("{} ({})", last(l).unwrap_or_default(), l.name())).join(", ")
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let figure = figure(&found, &config);
    let of =
        |l: Learner| found.exponents.iter().find(|(learner, _)| *learner == l).map_or(String::new(), |(_, e)| e.text());
    let verdict = format!(
        "on a jump in noise, the error of kernel ridge regression falls like n^({}) (Laplacian) at best, that of a network like n^({})",
        of(Learner::Laplacian),
        of(Learner::Network)
    );
    let setting = format!(
        "n values of the step function on [−1, 1] with noise of deviation {NOISE}, the jump at random in the middle, {} draws. Ridge regression \
         with the best of {} lengthscales and {} ridges for each draw, by the true error. The network \"dense(16) relu dense(16) relu dense(1)\" is \
         trained by Adam with weight decay, {} steps; nothing of it is chosen by the true error. ± is a 95 % interval over draws.",
        config.runs,
        LENGTHSCALES.len(),
        RIDGES.len(),
        config.steps
    );
    let (title, observation) = ("A jump in noise", observation(&found));
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let rows = table(
        &found.measured,
        &[
            ("learner", |m| m.learner.name().into()),
            ("n", |m| m.n.to_string()),
            ("mean squared error", |m| m.error.text()),
        ],
    );
    let exponents = table(&found.exponents, &[("learner", |e| e.0.name().into()), ("exponent of n", |e| e.1.text())]);
    let text = findings.text(&[&rows, &exponents]);
    let report = findings
        .report(&["y_i = 1{x_i ≥ c} + ε_i:  E‖f̂ − f‖^2 ~ n^{−1/2} for kernels,  up to n^{−1} for networks"])
        .section("Estimates and errors")
        .figure(&figure, "Left: the estimates of the first draw. Right: errors over draws with 95 % intervals.")
        .table(exponents)
        .table(rows);
    let numbers = json!({
        "plan": config, "measured": found.measured, "exponents": found.exponents, "verdict": findings.verdict,
    });
    Ok(Shown { figure, report, numbers, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best kernel is better than the noise, and than the mean.
    #[test]
    fn the_best_ridge_sees_the_jump() {
        let (x, y) = examples(200, 0.1, &mut Rng::new(1));
        let truth: Vec<f64> = grid().iter().map(|x| step(*x, 0.1)).collect();
        let values = best_ridge("laplacian", x.view(), &y, &truth, &FitContext::default()).unwrap();
        assert!(mean_square(&values, &truth) < 0.03);
        assert!((mean_square(&[1.0, 2.0], &[0.0, 4.0]) - 2.5).abs() < 1e-15);
    }
}
