//! Data on a low-dimensional sheet: kernels and networks both adapt to its dimension, whatever the ambient space is.
//!
//! A function of points on a smooth sheet of dimension k in D dimensions is as hard to learn as one of k variables. Where the points
//! fill the D dimensions, the same number of examples says much less.

use crate::chosen_ridge::chosen_ridge;
use crate::statistics::{Interval, exponent};
use crate::{Findings, Options, Shown, table};
use mercer::classifier::{Classifier, Settings, train};
use mercer::compute::Rule;
use mercer::data::{Dataset, Target};
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use serde::Serialize;
use serde_json::json;

config! {
    /// Numbers of examples.
    sizes: Vec<usize> = vec![100, 400, 1600]; quick vec![50, 200]; published vec![100, 400, 1600, 6400],
    /// Dimensions D of the ambient space.
    ambient: Vec<usize> = vec![3, 10, 30]; quick vec![3, 10]; published vec![3, 10, 30, 100],
    /// Draws of function and examples.
    runs: usize = 4; quick 2; published 10,
    /// Steps of Adam of the networks.
    steps: u64 = 2000; quick 200; published 6000,
}

/// Dimension k of the sheets.
const SHEET: usize = 2;
const TEST: usize = 500;
const RIDGES: [f64; 3] = [1e-8, 1e-4, 1e-1];
const BATCH: usize = 64;

#[derive(Clone, Copy, PartialEq, Serialize)]
enum Learner {
    Kernel,
    Network,
}

impl Learner {
    const ALL: [Learner; 2] = [Learner::Kernel, Learner::Network];

    fn name(self) -> &'static str {
        if self == Learner::Kernel { "RBF ridge" } else { "network" }
    }
}

/// Points and values: a random wave of unit frequency in the coordinates of the points, of variance about one.
struct World {
    /// `[k or D, D]` and `[D]`: the sheet is `√2 cos(uW + b)`; none where points fill the space.
    sheet: Option<(Array2<f64>, Array1<f64>)>,
    /// The wave's directions `[3, D]`.
    waves: Array2<f64>,
    ambient: usize,
}

impl World {
    fn draw(ambient: usize, on_sheet: bool, rng: &mut Rng) -> World {
        let sheet = on_sheet.then(|| {
            let w = rng.normals((SHEET, ambient));
            (w, Array1::from_shape_simple_fn(ambient, || std::f64::consts::TAU * rng.uniform()))
        });
        let waves = Array2::from_shape_simple_fn((3, ambient), || rng.normal() / (ambient as f64).sqrt());
        World { sheet, waves, ambient }
    }

    /// Coordinates have variance about one in both cases.
    fn sample(&self, n: usize, rng: &mut Rng) -> (Array2<f64>, Vec<f64>) {
        let x = match &self.sheet {
            Some((w, b)) => {
                let u = Array2::from_shape_simple_fn((n, SHEET), || 2.0 * rng.uniform() - 1.0);
                (u.dot(w) + b).mapv(|angle| 2f64.sqrt() * angle.cos())
            }
            None => Array2::from_shape_simple_fn((n, self.ambient), || 12f64.sqrt() * (rng.uniform() - 0.5)),
        };
        let y = x.dot(&self.waves.t()).map_axis(Axis(1), |z| z.iter().map(|z| (2.0 * z).sin()).sum::<f64>());
        (x, y.to_vec())
    }
}

fn network(
    x: ArrayView2<f64>,
    y: &[f64],
    new: ArrayView2<f64>,
    config: &Config,
    seed: u64,
    context: &FitContext,
) -> Result<Vec<f64>> {
    let data = Dataset::new("sheet", x.to_owned(), Some(Target::Values(y.to_vec())))?.with_numbers()?;
    let start = Classifier::new("dense(64) relu dense(64) relu dense(1)", &data, context.device, seed)?;
    let epochs = config.steps.div_ceil(data.n().div_ceil(BATCH) as u64);
    let settings =
        Settings { epochs, batch: BATCH, rule: Rule::ADAM, learning_rate: 3e-3, seed, ..Settings::default() };
    let context = FitContext { progress: &mercer::Silent, ..*context };
    train(start, &data, None, &settings, &context, &|_| ())?.classifier.predict(new)
}

/// One learner in one world.
#[derive(Serialize)]
struct Measured {
    learner: Learner,
    ambient: usize,
    on_sheet: bool,
    /// Error over the variance of the values, by number of examples.
    errors: Vec<Interval>,
    exponent: Interval,
}

impl Measured {
    fn world(&self) -> String {
        if self.on_sheet {
            format!("sheet in {} dimensions", self.ambient)
        } else {
            format!("all {} dimensions", self.ambient)
        }
    }
}

fn measure(
    learner: Learner,
    ambient: usize,
    on_sheet: bool,
    config: &Config,
    context: &FitContext,
) -> Result<Measured> {
    let mut errors = vec![];
    for &n in &config.sizes {
        let error = |run: usize| {
            let rng = Rng::new(config.seed).fork(run as u64).fork(ambient as u64);
            let world = World::draw(ambient, on_sheet, &mut rng.fork(1));
            let ((x, y), (new, truth)) = (world.sample(n, &mut rng.fork(2)), world.sample(TEST, &mut rng.fork(3)));
            let predicted = match learner {
                Learner::Kernel => chosen_ridge("rbf(lengthscale=median)", &RIDGES, x.view(), &y, new.view(), context)?,
                Learner::Network => network(x.view(), &y, new.view(), config, run as u64, context)?,
            };
            let variance = Array1::from(truth.clone()).var(0.0);
            Ok::<f64, mercer::Error>(
                predicted.iter().zip(&truth).map(|(p, t)| (p - t).powi(2)).sum::<f64>() / TEST as f64 / variance,
            )
        };
        errors.push((0..config.runs).map(error).collect::<Result<Vec<f64>>>()?);
    }
    let sizes: Vec<f64> = config.sizes.iter().map(|n| *n as f64).collect();
    let exponent = exponent(&sizes, &errors);
    Ok(Measured { learner, ambient, on_sheet, errors: errors.iter().map(|e| Interval::of(e)).collect(), exponent })
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Vec<Measured>> {
    let plan: Vec<(Learner, usize, bool)> = Learner::ALL
        .into_iter()
        .flat_map(|l| {
            [true, false].into_iter().flat_map(move |sheet| config.ambient.iter().map(move |d| (l, *d, sheet)))
        })
        .collect();
    let one = |(i, (learner, ambient, sheet)): (usize, &(Learner, usize, bool))| {
        context.progress.step("low-dimensional-support", i, plan.len(), learner.name());
        measure(*learner, *ambient, *sheet, config, context)
    };
    plan.iter().enumerate().map(one).collect()
}

fn figure(found: &[Measured], config: &Config) -> String {
    let mut grid = Grid::new("Error against the number of examples", 2).panel_size(320.0, 230.0).shared();
    let sizes: Vec<f64> = config.sizes.iter().map(|n| *n as f64).collect();
    for learner in Learner::ALL {
        let mut plot = Plot::new(learner.name()).x_log("examples n").y_log("error/variance");
        for m in found.iter().filter(|m| m.learner == learner) {
            let place = config.ambient.iter().position(|d| *d == m.ambient).unwrap_or(0);
            let means: Vec<f64> = m.errors.iter().map(|e| e.mean).collect();
            plot = plot.line(m.world(), &sizes, &means).markers().colour(place);
            if m.on_sheet {
                plot = plot.dashed();
            }
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

const EXPECTATION: &str = "on a sheet of dimension two, kernel and network both learn at a rate that does not depend on the dimension of the space around \
     it; where the points fill the space, more dimensions make both slower.";

fn observation(found: &[Measured]) -> String {
    let of = |learner: Learner, sheet: bool| {
        let all = found.iter().filter(|m| m.learner == learner && m.on_sheet == sheet);
        all.map(|m| format!("{} (D = {})", m.exponent.text(), m.ambient)).collect::<Vec<_>>().join(", ")
    };
    let one = |l: Learner| {
        format!("for the {}, {} on sheets and {} where the points fill the space", l.name(), of(l, true), of(l, false))
    };
    format!("the exponents of the error in n are, {}.", Learner::ALL.map(one).join("; "))
}

fn verdict(found: &[Measured]) -> String {
    let last = |m: &Measured| m.errors[m.errors.len() - 1].mean;
    let widest = found.iter().map(|m| m.ambient).max().unwrap_or(0);
    let at = |learner: Learner, sheet: bool| {
        found.iter().find(|m| m.learner == learner && m.on_sheet == sheet && m.ambient == widest).map_or(f64::NAN, last)
    };
    let number = |v: f64| text::number(v, 2);
    let one = |l: Learner| format!("{} against {} for the {}", number(at(l, true)), number(at(l, false)), l.name());
    format!(
        "on a sheet in {widest} dimensions the same examples leave less error than in all of them: {}",
        Learner::ALL.map(one).join(", ")
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let figure = figure(&found, &config);
    let setting = format!(
        "Values of sums of three waves sin(2 v·x), v of length about one, at points of smooth sheets √2 cos(uW + b) of dimension {SHEET} in D dimensions, \
         and at points that fill a cube of D dimensions with the same variance; no noise, {} draws. Ridge regression with an RBF at the median \
         distance, its ridge chosen on a fifth of the examples; the network \"dense(64) relu dense(64) relu dense(1)\", {} steps of Adam. ± is a 95 % \
         interval over draws.",
        config.runs, config.steps
    );
    let (title, observation, verdict) =
        ("Data of low dimension in a space of many", observation(&found), verdict(&found));
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let rows = table(
        &found,
        &[
            ("learner", |m| m.learner.name().into()),
            ("points", Measured::world),
            ("error, fewest examples", |m| m.errors[0].text()),
            ("error, most examples", |m| m.errors[m.errors.len() - 1].text()),
            ("exponent of n", |m| m.exponent.text()),
        ],
    );
    let text = findings.text(&[&rows]);
    let report = findings
        .report(&[])
        .section("Errors")
        .figure(&figure, "Sheets (dashed) and full spaces (solid), one colour for each dimension D.")
        .table(rows);
    Ok(Shown {
        figure,
        report,
        numbers: json!({ "plan": config, "measured": found, "verdict": findings.verdict }),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_have_variance_one_on_sheets_and_in_the_space() {
        for on_sheet in [true, false] {
            let mut rng = Rng::new(3);
            let world = World::draw(40, on_sheet, &mut rng);
            let (x, y) = world.sample(2000, &mut rng);
            let square = x.mapv(|v| v * v).mean().unwrap();
            assert!(x.dim() == (2000, 40) && y.len() == 2000 && (square - 1.0).abs() < 0.2, "{square}");
        }
    }

    #[test]
    fn the_kernel_learns_on_a_sheet_what_it_does_not_in_the_space() {
        let config = Config { sizes: vec![50, 200], runs: 2, ..Config::new(true, 0) };
        let of = |sheet| measure(Learner::Kernel, 20, sheet, &config, &FitContext::default()).unwrap().errors[1].mean;
        assert!(of(true) < 0.5 * of(false));
    }
}
