//! `mercer gp`: numbers with standard deviations and intervals, by a Gaussian process.

use crate::certificate;
use crate::context::Context;
use crate::input::{Reader, TaskChoice, encoded, scaling};
use crate::learning::lengthscale_table;
use crate::methods::number;
use crate::output::Output;
use crate::text;
use crate::usage::with_options;
use clap::Args;
use mercer::apply::{
    Fit, FittedGaussianProcess, GaussianProcess, IntervalReport, Predict, SavedPredict, Tuning, interval_factor,
};
use mercer::data::{Dataset, Scaling, Schema, Target};
use mercer::kernel::Expression;
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::Array2;
use serde_json::json;
use std::path::PathBuf;

/// Learn to predict a number with its standard deviation, by a Gaussian process
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer gp train.csv --target price --kernel \"matern52(lengthscale=ard)\" --predict test.csv --out p.csv"
)]
pub struct Gp {
    /// Examples: a file (.npy, .npz, .csv, .parquet) or named set (see `mercer datasets`)
    data: String,

    /// Kernel expression (see `mercer kernels`); lengthscales auto and ard, the amplitude of each term and the noise are found by the
    /// marginal likelihood
    #[arg(long, value_name = "EXPRESSION", default_value = "rbf(lengthscale=auto)")]
    kernel: String,

    #[command(flatten)]
    task: TaskChoice,

    /// Scaling of the columns [default: standard for tables, none for images and generated sets]
    #[arg(long, value_parser = scaling())]
    scale: Option<Scaling>,

    /// Share of the rows held out to score the result
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, allow_negative_numbers = true)]
    holdout: f64,

    /// Random starts of the search for hyper-parameters, beside the one at the median distances
    #[arg(long, value_name = "N", default_value_t = 2)]
    restarts: usize,

    /// Level of the intervals
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = level, allow_negative_numbers = true)]
    level: f64,

    /// Points to predict; the target may be missing
    #[arg(long, value_name = "FILE")]
    predict: Option<String>,

    /// Predictions to write, .npy or .csv: mean, standard deviation, and both ends of the interval
    #[arg(long, short, value_name = "FILE", requires = "predict")]
    out: Option<PathBuf>,

    /// Model file to write, for `mercer predict`
    #[arg(long = "model", value_name = "FILE")]
    save: Option<PathBuf>,

    #[command(flatten)]
    reader: Reader,
}

fn level(word: &str) -> Result<f64, String> {
    number(word, |v| v > 0.0 && v < 1.0, "it must lie between 0 and 1")
}

/// Mean, standard deviation and both ends of the interval at the rows of `data`, `[n, 4]`.
fn intervals(fitted: &FittedGaussianProcess, data: &Dataset, level: f64) -> Result<Array2<f64>> {
    let x = data.x.to_f64();
    let (mean, z) = (fitted.scores(x.view())?, interval_factor(level)?);
    let deviations = fitted.deviations(x.view())?.expect("a Gaussian process has deviations");
    Ok(Array2::from_shape_fn((data.n(), 4), |(i, j)| {
        let (mean, deviation) = (mean[[i, 0]], deviations[i]);
        [mean, deviation, mean - z * deviation, mean + z * deviation][j]
    }))
}

/// How well intervals `[n, 4]` describe the targets of `data`, where it has some.
fn judged(data: &Dataset, intervals: &Array2<f64>, level: f64) -> Result<Option<IntervalReport>> {
    let Some(Target::Values(truth)) = &data.y else { return Ok(None) };
    let column = |j: usize| intervals.column(j).to_vec();
    IntervalReport::new(truth, &column(0), &column(1), level).map(Some)
}

impl Gp {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_deref().map(Output::table).transpose()?;
        let model = self.save.as_deref().map(Output::new).transpose()?;
        fail_if!(!(0.0..1.0).contains(&self.holdout), "--holdout must lie from 0 to below 1, not {}", self.holdout);
        let kernel = Expression::parse(&self.kernel)?;
        let (schema, train, held_out, new) = self.read(context)?;
        let fitted = context.fitting(|fit| {
            let fit = FitContext { data: &self.data, ..*fit };
            let process = GaussianProcess::new(kernel);
            let tuning = Tuning { restarts: self.restarts, ..process.tuning };
            let y = train.y.as_ref().ok_or_else(|| Error::input("name the column to predict by --target"))?;
            GaussianProcess { tuning, ..process }.fit(train.x.to_f64().view(), y, &fit)
        })?;
        fitted.notes().iter().for_each(|note| context.warn(with_options(note)));
        let mut reports = vec![("left out", self.left_out(&fitted, &train)?)];
        for (name, data) in [("holdout", &held_out), ("test", &new)] {
            let Some(data) = data else { continue };
            let intervals = intervals(&fitted, data, self.level)?;
            reports.extend(judged(data, &intervals, self.level)?.map(|report| (name, report)));
            if let Some(out) = out.as_ref().filter(|_| name == "test") {
                out.matrix(intervals.view(), &["mean", "deviation", "low", "high"].map(String::from))?;
                context.note(format_args!("wrote {}: {}", out.path().display(), text::count(data.n(), "prediction")));
            }
        }
        if let Some(model) = &model {
            fitted.write(Some(&schema), model.path())?;
            context.wrote(model);
        }
        self.show(&fitted, &train, &reports, out, context)
    }

    /// How tables become features, and the rows to learn from, to score on, and to predict.
    fn read(&self, context: &Context) -> Result<(Schema, Dataset, Option<Dataset>, Option<Dataset>)> {
        let table = self.task.table(&self.reader, &self.data, context)?;
        let (train, held_out) = table.held_out(self.holdout, context.seed)?;
        let schema = self.reader.schema(&train, self.scale, context)?;
        let new = self.predict.as_ref().map(|file| self.reader.open_like(file, &schema, context)).transpose()?;
        let encoded = |table| encoded(&schema, table, context);
        let (train, held_out) = (encoded(train)?, held_out.map(encoded).transpose()?);
        Ok((schema, train, held_out, new))
    }

    /// The report on every fitted row, each predicted from all others.
    fn left_out(&self, fitted: &FittedGaussianProcess, train: &Dataset) -> Result<IntervalReport> {
        let Some(Target::Values(truth)) = &train.y else { unreachable!("the fit takes numbers") };
        let predicted = fitted.leave_one_out(truth)?;
        IntervalReport::new(truth, &predicted.column(0).to_vec(), &predicted.column(1).to_vec(), self.level)
    }

    fn show(
        &self,
        fitted: &FittedGaussianProcess,
        train: &Dataset,
        reports: &[(&str, IntervalReport)],
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let (origin, search) = (fitted.origin(), &fitted.search);
        let mut object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": self.data, "n": origin.n, "d": origin.d,
            "noise": fitted.noise, "log_likelihood": fitted.likelihood, "search": search, "seconds": origin.seconds, "out": out,
        });
        for (name, report) in reports {
            object[name.replace(' ', "_")] = json!(report);
        }
        context.costly_result(&object, || {
            let origin = certificate::origin(origin, &format!("on {}", self.data), "");
            let (likelihood, noise) = (text::number(fitted.likelihood, 6), text::number(fitted.noise.sqrt(), 4));
            let best = search.starts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let alike = search.starts.iter().filter(|start| best - **start < 1e-3).count();
            let mut said = format!(
                "{origin}\nlog marginal likelihood {likelihood}, noise of standard deviation {noise}\nhyper-parameters: {alike} of {} reached the best likelihood, on {}\n",
                text::count(search.starts.len(), "start"),
                text::count(search.rows, "row"),
            );
            if let Some(lengthscales) = fitted.kernel().lengthscale_of_columns() {
                said += &format!("\n{}", lengthscale_table(lengthscales, &train.columns));
            }
            let covered = format!("in {} interval", text::percent(self.level));
            let row = |(name, report): &(&str, IntervalReport)| {
                let number = |v: f64| text::number(v, 4);
                vec![name.to_string(), number(report.rmse), number(report.nll), text::percent(report.coverage), number(report.width)]
            };
            let rows: Vec<Vec<String>> = reports.iter().map(row).collect();
            said + &format!("\n{}", text::table(&["rows", "RMSE", "NLL", &covered, "its width"], &rows))
        })
    }
}
