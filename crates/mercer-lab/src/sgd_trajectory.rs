//! The kernel of the snapshots of a training run: its eigenfunctions as a posterior, beside SWA, SWAG, the snapshots and ensembles.

use crate::statistics::mean_and_error;
use crate::{Column, Options, Shown, report, sentence, table};
use mercer::apply::{Predict, softmax_rows};
use mercer::classifier::{Cases, Classifier, Detection, Measure, Settings as Training, Snapshots, train};
use mercer::data::{Dataset, ReadOptions, open};
use mercer::rng::Rng;
use mercer::trajectory::{Method, Settings, Trajectory};
use mercer::{FitContext, Result};
use mercer_figure::report::Table;
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

config! {
    /// The rows to learn from: a named set.
    data: &'static str = "fashion-mnist"; quick "digits",
    /// Rows of another distribution; the same rows with their columns shuffled where there is none.
    other: Option<&'static str> = Some("mnist(part=test)"); quick None,
    net: &'static str = "conv(16, 5, stride=2) bn relu conv(32, 3, stride=2) bn relu flatten dense(10)"; quick "dense(32) bn relu dense(10)",
    /// Rows that networks learn from, validate on, and are tested on, and rows of the other distribution.
    rows: [usize; 4] = [10_000, 2000, 5000, 2000]; quick [900, 300, 500, 500],
    epochs: u64 = 16; quick 16,
    batch: usize = 128; quick 64,
    /// The largest learning rate, and that of snapshots.
    rates: [f64; 2] = [0.1, 0.02],
    /// The share of the steps after which snapshots begin, and the steps between them.
    from: f64 = 0.75,
    every: u64 = 15; quick 3,
    runs: usize = 5; quick 3,
    /// Eigenfunctions.
    functions: usize = 10; quick 5,
    /// Draws of SWAG.
    draws: usize = 30; quick 10,
    augment: bool = false,
}

impl Config {
    /// ResNet-20 on CIFAR-10, its logits taken every five steps of the last four of 200 epochs.
    fn published(seed: u64) -> Config {
        Config {
            data: "cifar-10",
            other: None,
            net: "resnet20",
            rows: [45_000, 5000, 10_000, 10_000],
            epochs: 200,
            from: 0.98,
            every: 5,
            runs: 3,
            augment: true,
            ..Config::new(false, seed)
        }
    }
}

/// The rows of the experiment.
struct Rows {
    fit: Dataset,
    validation: Dataset,
    test: Dataset,
    other: Array2<f64>,
}

/// A method in one run.
#[derive(Clone, Serialize)]
struct Measured {
    name: &'static str,
    passes: usize,
    /// NLL, ECE and AUROC as they are, and after temperature scaling.
    nll: [f64; 2],
    ece: [f64; 2],
    auroc: [f64; 2],
    accuracy: f64,
    temperature: f64,
    scale: Option<f64>,
    eigenvalues: Vec<f64>,
    fit_seconds: f64,
    /// Seconds for a thousand new rows.
    predict_seconds: f64,
}

/// One method over the runs.
#[derive(Serialize)]
struct Summary {
    name: &'static str,
    runs: Vec<Measured>,
}

impl Summary {
    /// Mean and standard error over the runs.
    fn of(&self, value: impl Fn(&Measured) -> f64) -> (f64, f64) {
        mean_and_error(&self.runs.iter().map(value).collect::<Vec<f64>>())
    }
}

fn some(data: &Dataset, from: usize, count: usize) -> Dataset {
    let rows = from..data.n().min(from + count);
    data.select(&rows.collect::<Vec<_>>())
}

fn read(config: &Config) -> Result<Rows> {
    let opened = |name: &str| -> Result<Dataset> { open(name, &ReadOptions::default()) };
    let [fit, validation, test, other] = config.rows;
    let whole = opened(config.data)?;
    let (train, tested) = match config.data {
        "digits" => whole.split(0.3, config.seed)?,
        _ => (whole, opened(&format!("{}(part=test)", config.data))?),
    };
    let (train, tested) = (train.with_classes()?, tested.with_classes()?);
    let test = some(&tested, 0, test);
    let other = match config.other {
        Some(name) => opened(name)?.x.to_f64().slice(s![..other, ..]).to_owned(),
        None => {
            let mut columns: Vec<usize> = (0..test.d()).collect();
            Rng::new(config.seed).fork(9).shuffle(&mut columns);
            test.x.rows().slice(0..other.min(test.n())).to_f64().select(Axis(1), &columns)
        }
    };
    Ok(Rows { fit: some(&train, 0, fit), validation: some(&train, fit, validation), test, other })
}

/// The snapshots of one run.
fn trained(rows: &Rows, config: &Config, run: usize, context: &FitContext) -> Result<Trajectory> {
    let folder = tempfile::tempdir().map_err(|e| mercer::Error::io(&std::env::temp_dir(), e))?;
    let seed = config.seed.wrapping_add(run as u64);
    let start = Classifier::new(config.net, &rows.fit, context.device, seed)?;
    let snapshots = Snapshots {
        from: config.from,
        every: Some(config.every),
        rate: Some(config.rates[1]),
        ..Snapshots::new(folder.path())
    };
    let training = Training {
        epochs: config.epochs,
        batch: config.batch,
        learning_rate: config.rates[0],
        augment: config.augment,
        snapshots: Some(snapshots),
        seed,
        ..Training::default()
    };
    train(start, &rows.fit, None, &training, context, &|_| ())?;
    Trajectory::open(folder.path(), context.device)
}

fn entropies(scores: ArrayView2<f64>) -> Vec<f64> {
    mercer::apply::entropies(softmax_rows(scores.as_standard_layout().into_owned()).view())
}

fn measure(
    name: &'static str,
    method: Method,
    networks: &Trajectory,
    rows: &Rows,
    context: &FitContext,
) -> Result<Measured> {
    let start = Instant::now();
    let mut fitted = Settings::new(method).fit(networks, &rows.fit, &rows.validation, context)?;
    let fit_seconds = start.elapsed().as_secs_f64();
    let validated = fitted.scores(rows.validation.x.to_f64().view())?;
    let labels = rows.test.target()?.labels_for(&networks.last().classes)?;
    let start = Instant::now();
    let inside = fitted.scores(rows.test.x.to_f64().view())?;
    let predict_seconds = 1000.0 * start.elapsed().as_secs_f64() / rows.test.n() as f64;
    let outside = fitted.scores(rows.other.view())?;
    fitted.temper(validated.view(), &rows.validation)?;
    let both = [1.0, fitted.temperature].map(|t| {
        let (inside, outside) = (&inside / t, &outside / t);
        let cases = Cases::of(inside.view(), &labels);
        let found = Detection::of(&entropies(inside.view()), &entropies(outside.view()), context.seed);
        (cases.measure(Measure::Nll), cases.measure(Measure::Ece), found.auroc.value, cases.measure(Measure::Accuracy))
    });
    Ok(Measured {
        name,
        passes: fitted.passes(),
        nll: both.map(|m| m.0),
        ece: both.map(|m| m.1),
        auroc: both.map(|m| m.2),
        accuracy: both[0].3,
        temperature: fitted.temperature,
        scale: method.functions().map(|_| fitted.found.value),
        eigenvalues: fitted.eigenvalues().to_vec(),
        fit_seconds,
        predict_seconds,
    })
}

/// All methods of all runs; the ensemble of a run is the last networks of the others.
fn measure_all(rows: &Rows, config: &Config, context: &FitContext) -> Result<Vec<Summary>> {
    let mut runs = vec![];
    for run in 0..config.runs {
        let stage = context.stage("run", run + 1, config.runs);
        runs.push(trained(rows, config, run, &FitContext { progress: &stage, ..*context })?);
    }
    let functions = config.functions.min(runs[0].count() - 1);
    let methods = [
        ("last iterate", Method::Last),
        ("SWA", Method::Swa),
        ("SWAG", Method::Swag { draws: config.draws, rank: 20 }),
        ("snapshots", Method::Networks),
        ("ensemble", Method::Networks),
        ("eigenfunctions", Method::Eigenfunctions { functions }),
        ("eigenfunctions, Ritz", Method::Ritz { functions }),
    ];
    let mut found = vec![];
    for (i, (name, method)) in methods.into_iter().enumerate() {
        let stage = context.stage(name, i + 1, methods.len());
        let context = FitContext { progress: &stage, ..*context };
        let of_run = |run: usize| match name {
            "ensemble" => {
                let others = (0..runs.len()).filter(|other| *other != run).map(|other| runs[other].last().clone());
                measure(name, method, &Trajectory::of(others.collect())?, rows, &context)
            }
            _ => measure(name, method, &runs[run], rows, &context),
        };
        found.push(Summary { name, runs: (0..runs.len()).map(of_run).collect::<Result<_>>()? });
    }
    Ok(found)
}

fn with_error((mean, error): (f64, f64)) -> String {
    format!("{mean:.4} ± {error:.4}")
}

fn summary_table(found: &[Summary]) -> Table {
    let columns: [Column<Summary>; 9] = [
        ("method", |s| s.name.into()),
        ("passes", |s| s.runs[0].passes.to_string()),
        ("NLL", |s| with_error(s.of(|m| m.nll[0]))),
        ("ECE", |s| with_error(s.of(|m| m.ece[0]))),
        ("accuracy", |s| with_error(s.of(|m| m.accuracy))),
        ("AUROC", |s| with_error(s.of(|m| m.auroc[0]))),
        ("NLL, tempered", |s| with_error(s.of(|m| m.nll[1]))),
        ("ECE, tempered", |s| with_error(s.of(|m| m.ece[1]))),
        ("1000 new rows", |s| text::seconds(s.of(|m| m.predict_seconds).0)),
    ];
    table(found, &columns).lowest(2).lowest(3).lowest(6).lowest(7)
}

fn figure(found: &[Summary]) -> String {
    let names: Vec<&str> = found.iter().map(|s| s.name).collect();
    let bars = |title: &str, of: fn(&Measured) -> [f64; 2]| {
        let heights = |tempered: usize| found.iter().map(|s| s.of(|m| of(m)[tempered]).0).collect::<Vec<f64>>();
        Plot::new(title).bars("as it is", &names, &heights(0)).bars("tempered", &names, &heights(1))
    };
    let mut spectrum = Plot::new("Kernel of the trajectory, first run").x("j").y_log("eigenvalue μ_{j}");
    for summary in found.iter().filter(|s| !s.runs[0].eigenvalues.is_empty()) {
        let μ = &summary.runs[0].eigenvalues;
        spectrum = spectrum.line(summary.name, &crate::indices(μ.len()), μ).markers();
    }
    let grid = Grid::new("Snapshots of a training run", 1).panel_size(760.0, 240.0);
    grid.panel(bars("NLL", |m| m.nll)).panel(bars("ECE", |m| m.ece)).panel(spectrum).svg()
}

/// How much lower the NLL of `a` is than that of `b`, paired by run, as it is or tempered.
fn gap(found: &[Summary], a: &str, b: &str, tempered: usize) -> (f64, f64) {
    let runs = |name: &str| &found.iter().find(|s| s.name == name).expect("it was measured").runs;
    let gaps: Vec<f64> = runs(a).iter().zip(runs(b)).map(|(a, b)| b.nll[tempered] - a.nll[tempered]).collect();
    mean_and_error(&gaps)
}

fn compared(found: &[Summary], a: &str, b: &str) -> String {
    let words = |tempered: usize| {
        let (mean, error) = gap(found, a, b, tempered);
        let word = if mean.abs() <= 2.0 * error {
            "level with"
        } else if mean > 0.0 {
            "below"
        } else {
            "above"
        };
        format!("{word} ({:+.4} ± {error:.4})", -mean)
    };
    format!("against {b} {}, and {} when both are tempered", words(0), words(1))
}

/// What was expected, and what was seen.
fn observation(found: &[Summary]) -> String {
    let least = |tempered: usize| {
        let nll = |s: &&Summary| s.of(|m| m.nll[tempered]).0;
        found.iter().min_by(|a, b| nll(a).total_cmp(&nll(b))).expect("there are methods").name
    };
    format!(
        "Expected: averages over the end of a run are better calibrated than its last iterate; the published results have SWA with the trajectory's \
         eigenfunctions slightly below SWAG in NLL, and both far below a single network. Observed: the NLL of the exact eigenfunctions is, \
         {}; {}; {}; {}. In the span of hidden units, with one pass, it is, {}. The lowest NLL has {}, and after \
         temperature scaling of each {}. Differences are paired by run, ± is one standard error; two of them count as level.",
        compared(found, "eigenfunctions", "last iterate"),
        compared(found, "eigenfunctions", "SWA"),
        compared(found, "eigenfunctions", "SWAG"),
        compared(found, "eigenfunctions", "snapshots"),
        compared(found, "eigenfunctions, Ritz", "eigenfunctions"),
        least(0),
        least(1)
    )
}

fn verdict(found: &[Summary]) -> String {
    let of = |name: &str| found.iter().find(|s| s.name == name).expect("it was measured");
    let nll = |name: &str| format!("{:.4}", of(name).of(|m| m.nll[0]).0);
    format!(
        "NLL {} by eigenfunctions of the trajectory, {} by them with one pass; {} by SWA, {} by SWAG, {} by the last iterate, {} by ensembles",
        nll("eigenfunctions"),
        nll("eigenfunctions, Ritz"),
        nll("SWA"),
        nll("SWAG"),
        nll("last iterate"),
        nll("ensemble")
    )
}

fn setting(config: &Config, count: usize) -> String {
    let Config {
        data, net, rows: [fit, validation, test, other], epochs, batch, rates, from, every, runs, draws, ..
    } = config;
    let [fit, validation, test, other] = [fit, validation, test, other].map(|n| text::grouped(*n));
    let outside = config.other.unwrap_or("the test rows with their columns shuffled");
    format!(
        "{runs} runs of {net} on {fit} rows of {data}: {epochs} epochs of batches of {batch}, SGD with momentum 0.9, the learning rate down from {} to \
         {} after {} of the steps, then constant; {count} snapshots, one every {every} steps. Scales of the covariance and temperatures by the NLL on \
         {validation} other rows; SWAG with {draws} draws, as published; an ensemble is the last iterates of the {} other runs. Measured on {test} test rows; \
         AUROC: how well the entropy of the probabilities separates {other} rows of {outside} from them. ± is the standard error over the runs.",
        rates[0],
        rates[1],
        text::percent(*from),
        runs - 1
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config =
        if options.published { Config::published(context.seed) } else { Config::new(options.quick, context.seed) };
    let rows = read(&config)?;
    let found = measure_all(&rows, &config, context)?;
    let count = found.iter().find(|s| s.name == "snapshots").map_or(0, |s| s.runs[0].passes);
    let (figure, verdict, observed, rows) =
        (figure(&found), verdict(&found), observation(&found), summary_table(&found));
    let setting = setting(&config, count);
    let text = format!("{setting}\n\n{}\n{observed}\n\n{}\n", rows.text(), sentence(&verdict));
    let report = report("The kernel of a training run", &verdict, &setting)
        .section("Measures")
        .table(rows)
        .text(&observed)
        .figure(&figure, "NLL and ECE of the methods, and the eigenvalues of the trajectory's kernel.");
    Ok(Shown {
        figure,
        report,
        numbers: json!({ "plan": config, "methods": found, "verdict": verdict, "observed": observed }),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_measured_in_every_run() {
        let config =
            Config { rows: [300, 100, 100, 50], epochs: 6, every: 2, functions: 3, draws: 3, ..Config::new(true, 0) };
        let rows = read(&config).unwrap();
        assert_eq!([rows.fit.n(), rows.validation.n(), rows.test.n(), rows.other.nrows()], config.rows);
        let found = measure_all(&rows, &config, &FitContext::default()).unwrap();
        let passes: Vec<usize> = found.iter().map(|s| s.runs[0].passes).collect();
        assert_eq!(passes, [1, 1, 3, 4, 2, 4, 1]);
        for measured in found.iter().flat_map(|s| &s.runs) {
            assert!(measured.nll[1] < 2.0 && (0.3..=1.0).contains(&measured.accuracy), "{}", measured.name);
            assert_eq!(measured.eigenvalues.len(), if measured.scale.is_some() { 3 } else { 0 });
        }
        // Projected functions have no larger eigenvalues.
        let first = |name: &str| found.iter().find(|s| s.name == name).unwrap().runs[0].eigenvalues[0];
        assert!(first("eigenfunctions, Ritz") <= first("eigenfunctions") * (1.0 + 1e-9));
        assert!(observation(&found).contains("against SWAG") && summary_table(&found).text().contains("ensemble"));
    }
}
