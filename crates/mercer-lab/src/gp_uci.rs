//! Gaussian-process regression on nine tables of the UCI repository, on their published splits: error, log likelihood and coverage.

use crate::statistics::mean_and_error;
use crate::{Column, Options, Shown, report, sentence, table};
use mercer::apply::{FeatureProcess, Fit, GaussianProcess, IntervalReport, Predict, ProcessFeatures, Tuning};
use mercer::data::{Dataset, ReadOptions, Scaler, Scaling, Target, open};
use mercer::kernel::Expression;
use mercer::{Error, FitContext, Result};
use mercer_figure::report::Table;
use mercer_figure::{Plot, text};
use serde::Serialize;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

config! {
    /// Splits of a table, at most.
    splits: usize = 3; quick 2; published 20,
    /// Tables with more rows are left out.
    most_rows: usize = usize::MAX; quick 800,
    /// Rows above which landmarks stand for the others.
    exact: usize = 8000; quick 400,
    landmarks: usize = 1000; quick 100,
    /// Rows on which hyper-parameters are searched, at most.
    search_rows: usize = 2000; quick 300,
    /// Random starts of the search, beside that at the median distances.
    restarts: usize = 0; published 1,
    /// Names of the tables; all if there are none.
    tables: Vec<String> = vec![],
}

const KERNEL: &str = "rbf(lengthscale=ard)";

/// The tables, with their numbers of splits and of rows.
const TABLES: [(&str, usize, usize); 9] = [
    ("boston", 20, 506),
    ("concrete", 20, 1030),
    ("energy", 20, 768),
    ("kin8nm", 20, 8192),
    ("naval", 20, 11934),
    ("power-plant", 20, 9568),
    ("protein", 5, 45730),
    ("wine", 20, 1599),
    ("yacht", 20, 308),
];

/// One table over its splits.
#[derive(Serialize)]
struct Measured {
    name: &'static str,
    /// Rows to learn from, and columns.
    n: usize,
    d: usize,
    /// The posterior: exact, or on landmarks.
    posterior: String,
    reports: Vec<IntervalReport>,
    /// Of all splits together, each on its own thread, predictions included.
    seconds: f64,
}

impl Measured {
    /// Mean and standard error over the splits.
    fn summary(&self, of: fn(&IntervalReport) -> f64) -> (f64, f64) {
        mean_and_error(&self.reports.iter().map(of).collect::<Vec<f64>>())
    }
}

/// The rows of a split, counted from 1, with the columns standardised by those to learn from.
fn split(name: &str, number: usize) -> Result<(Dataset, Dataset)> {
    let part = |part: &str| open(&format!("{name}(split={number}, part={part})"), &ReadOptions::default());
    let (mut train, mut test) = (part("train")?, part("test")?);
    let scaler = Scaler::fit(Scaling::Standard, train.x.rows())?;
    (train.x, test.x) = (scaler.apply(train.x.rows())?.into(), scaler.apply(test.x.rows())?.into());
    Ok((train, test))
}

fn values(data: &Dataset) -> Result<Vec<f64>> {
    match &data.y {
        Some(Target::Values(values)) => Ok(values.clone()),
        _ => Err(Error::input(format!("`{}` has no numbers to predict", data.name))),
    }
}

/// The process fitted to `train`, and its report on `test`.
fn judged(train: &Dataset, test: &Dataset, config: &Config, context: &FitContext) -> Result<IntervalReport> {
    let kernel = Expression::parse(KERNEL)?;
    let (x, y) = (train.x.to_f64(), Target::Values(values(train)?));
    let tuned = |tuning: Tuning| Tuning { restarts: config.restarts, rows: config.search_rows, ..tuning };
    let fitted: Box<dyn Predict> = if train.n() <= config.exact {
        let process = GaussianProcess::new(kernel);
        let tuning = tuned(process.tuning);
        Box::new(GaussianProcess { tuning, ..process }.fit(x.view(), &y, context)?)
    } else {
        let process = FeatureProcess::new(kernel, ProcessFeatures::Landmarks(config.landmarks));
        let tuning = tuned(process.tuning);
        Box::new(FeatureProcess { tuning, ..process }.fit(x.view(), &y, context)?)
    };
    let x = test.x.to_f64();
    let deviations = fitted.deviations(x.view())?.expect("a Gaussian process has deviations");
    let means = fitted.scores(x.view())?.column(0).to_vec();
    IntervalReport::new(&values(test)?, &means, &deviations.to_vec(), 0.95)
}

/// The report on one split of a table, counted from 0.
struct Judged {
    report: IntervalReport,
    /// Rows to learn from, and columns.
    dim: (usize, usize),
    seconds: f64,
}

fn judge(name: &str, number: usize, config: &Config, context: &FitContext) -> Result<Judged> {
    let start = Instant::now();
    let (train, test) = split(name, number + 1)?;
    let report = judged(&train, &test, config, context)?;
    Ok(Judged { report, dim: (train.n(), train.d()), seconds: start.elapsed().as_secs_f64() })
}

/// The splits of all tables side by side: one table alone has too few of them at its end.
fn measure(tables: &[(&'static str, usize)], config: &Config, context: &FitContext) -> Result<Vec<Measured>> {
    let pairs: Vec<(&str, usize)> =
        tables.iter().flat_map(|&(name, splits)| (0..splits).map(move |number| (name, number))).collect();
    let found = in_parallel(
        pairs.len(),
        |i| judge(pairs[i].0, pairs[i].1, config, context),
        |done| context.progress.step("splits", done, pairs.len(), ""),
    );
    let mut found = found.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
    Ok(tables.iter().map(|&(name, splits)| summarised(name, found.by_ref().take(splits).collect(), config)).collect())
}

fn summarised(name: &'static str, splits: Vec<Judged>, config: &Config) -> Measured {
    let (n, d) = splits.last().map_or((0, 0), |split| split.dim);
    let posterior = if n <= config.exact { "exact".into() } else { format!("{} landmarks", config.landmarks) };
    let seconds = splits.iter().map(|split| split.seconds).sum();
    Measured { name, n, d, posterior, reports: splits.into_iter().map(|split| split.report).collect(), seconds }
}

/// `of(i)` for i from 0 to n, as many at a time as there are threads, each on its share of them: a split is too small for all. Calls
/// `done` with the number of results so far.
fn in_parallel<T: Send>(n: usize, of: impl Fn(usize) -> T + Sync, done: impl Fn(usize) + Sync) -> Vec<T> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(n)));
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return;
            }
            let value = of(i);
            let mut found = found.lock().expect("no thread panics while it holds the results");
            found.push((i, value));
            done(found.len());
        }
    };
    let threads = rayon::current_num_threads();
    let workers = threads.min(n).max(1);
    let pool =
        || rayon::ThreadPoolBuilder::new().num_threads(threads / workers).build().expect("threads can be started");
    let pools: Vec<_> = (0..workers).map(|_| pool()).collect();
    std::thread::scope(|scope| pools.iter().for_each(|pool| drop(scope.spawn(|| pool.install(work)))));
    let mut found = found.into_inner().expect("no thread panicked");
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, value)| value).collect()
}

fn with_error((mean, error): (f64, f64)) -> String {
    format!("{} ± {}", text::number(mean, 4), text::number(error, 2))
}

fn rows(found: &[Measured]) -> Table {
    let columns: [Column<Measured>; 9] = [
        ("table", |m| m.name.into()),
        ("rows", |m| text::grouped(m.n)),
        ("columns", |m| m.d.to_string()),
        ("posterior", |m| m.posterior.clone()),
        ("splits", |m| m.reports.len().to_string()),
        ("RMSE", |m| with_error(m.summary(|r| r.rmse))),
        ("NLL", |m| with_error(m.summary(|r| r.nll))),
        ("in 95 % interval", |m| text::percent(m.summary(|r| r.coverage).0)),
        ("time", |m| text::seconds(m.seconds)),
    ];
    table(found, &columns)
}

/// Coverage of the intervals, by table.
fn figure(found: &[Measured]) -> String {
    let x: Vec<f64> = (1..=found.len()).map(|i| i as f64).collect();
    let y: Vec<f64> = found.iter().map(|m| 100.0 * m.summary(|r| r.coverage).0).collect();
    let names: Vec<String> = found.iter().enumerate().map(|(i, m)| format!("{}: {}", i + 1, m.name)).collect();
    Plot::new("Share of the test targets in 95 % intervals")
        .x(names.join(", "))
        .y("percent")
        .scatter("measured", &x, &y)
        .line("asked for", &[x[0], x[x.len() - 1]], &[95.0, 95.0])
        .svg()
}

fn verdict(found: &[Measured]) -> String {
    let coverage: Vec<f64> = found.iter().map(|m| m.summary(|r| r.coverage).0).collect();
    let (least, most) = coverage.iter().fold((f64::INFINITY, 0.0f64), |(a, b), &c| (a.min(c), b.max(c)));
    let [least, most] = [least, most].map(text::percent);
    format!("95 % intervals contain {least} to {most} of the test targets, over {} tables", found.len())
}

fn setting(config: &Config) -> String {
    let Config { splits, exact, landmarks, search_rows, restarts, .. } = config;
    let [exact, search_rows] = [*exact, *search_rows].map(text::grouped);
    format!(
        "A Gaussian process with the kernel {KERNEL} on tables of the UCI repository, {splits} of their published splits each (fewer where there \
         are fewer), columns standardised by the rows to learn from. Hyper-parameters by the marginal likelihood of at most {search_rows} rows, \
         from {} start(s). The posterior is exact up to {exact} rows, and on {landmarks} landmarks above. NLL is the mean of −log of the \
         predicted density in the units of the target; ± is the standard error over the splits.",
        restarts + 1
    )
}

/// The tables that take part, with their numbers of splits.
fn chosen(config: &Config) -> Result<Vec<(&'static str, usize)>> {
    if let Some(unknown) = config.tables.iter().find(|name| TABLES.iter().all(|(table, ..)| table != name)) {
        let possible: Vec<&str> = TABLES.iter().map(|(name, ..)| *name).collect();
        return Err(Error::input(format!("there is no table {unknown:?}; choose among {}", possible.join(", "))));
    }
    let named = |name: &str| config.tables.is_empty() || config.tables.iter().any(|table| table == name);
    let tables = TABLES.iter().filter(|(name, _, rows)| named(name) && *rows <= config.most_rows);
    Ok(tables.map(|(name, splits, _)| (*name, config.splits.min(*splits))).collect())
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config { tables: options.tables.clone(), ..Config::new(options, context.seed) };
    let found = measure(&chosen(&config)?, &config, context)?;
    let (figure, verdict, rows) = (figure(&found), verdict(&found), rows(&found));
    let text = format!("{}\n\n{}\n{}\n", setting(&config), rows.text(), sentence(&verdict));
    let report = report("Gaussian processes on tables of the UCI repository", &verdict, &setting(&config))
        .section("Error, likelihood and coverage")
        .table(rows)
        .figure(&figure, "The share of the test targets within the predicted 95 % intervals.");
    Ok(Shown { figure, report, numbers: json!({ "plan": config, "tables": found, "verdict": verdict }), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mercer::rng::Rng;

    /// y = sin(x₁) + 0.2ε: both posteriors find the noise.
    #[test]
    fn both_posteriors_predict_the_noise() {
        let mut rng = Rng::new(1);
        let mut data = |n: usize| {
            let x = rng.normals((n, 2));
            let y = x.column(0).iter().map(|x| (2.0 * x).sin() + 0.2 * rng.normal()).collect();
            Dataset::new("waves", x, Some(Target::Values(y))).unwrap()
        };
        let (train, test) = (data(300), data(400));
        for exact in [1000, 100] {
            let config = Config { exact, landmarks: 60, search_rows: 150, ..Config::new(true, 0) };
            let report = judged(&train, &test, &config, &FitContext::default()).unwrap();
            assert!(report.rmse < 0.25 && (0.91..0.99).contains(&report.coverage), "{exact}: {report:?}");
        }
    }

    #[test]
    fn tables_are_chosen_by_name() {
        let config = |tables: &[&str]| Config {
            tables: tables.iter().map(|t| t.to_string()).collect(),
            ..Config::new(false, 0)
        };
        assert_eq!(chosen(&config(&["yacht", "protein"])).unwrap(), [("protein", 3), ("yacht", 3)]);
        assert_eq!(chosen(&config(&[])).unwrap().len(), TABLES.len());
        assert!(chosen(&config(&["bostn"])).unwrap_err().to_string().contains("choose among boston"));
    }

    #[test]
    fn results_keep_their_order_on_any_number_of_threads() {
        let seen = AtomicUsize::new(0);
        let note = |done: usize| {
            seen.fetch_max(done, Ordering::Relaxed);
        };
        let found = in_parallel(20, |i| i * i, note);
        assert_eq!(found, (0..20).map(|i| i * i).collect::<Vec<_>>());
        assert_eq!(seen.into_inner(), 20);
    }

    #[test]
    fn summaries_are_means_and_standard_errors() {
        let report = |rmse: f64| IntervalReport { rmse, nll: 0.0, level: 0.95, coverage: 0.9, width: 1.0 };
        let reports = vec![report(1.0), report(3.0)];
        let found = Measured { name: "a", n: 10, d: 2, posterior: "exact".into(), reports, seconds: 1.0 };
        // Deviations ±1: the variance is 2, over 2 splits.
        assert_eq!(found.summary(|r| r.rmse), (2.0, 1.0));
        assert!(rows(&[found]).text().contains("2.000 ± 1"));
    }
}
