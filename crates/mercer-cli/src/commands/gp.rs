//! `mercer gp`: numbers with standard deviations and intervals, or classes with probabilities, by a Gaussian process.

use super::predict::Predictions;
use crate::options::examples::{Examples, Outputs, Parts};
use crate::options::input::warn_of_other_kind;
use crate::options::values::{self, number};
use crate::process::{Judged, Process};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::program::usage::with_options;
use crate::show::certificate;
use crate::show::columns::Lengthscales;
use crate::show::gp_page;
use crate::show::table_with_notes::joined;
use crate::show::units;
use crate::text;
use clap::{Args, ValueEnum};
use mercer::apply::{
    FeatureProcess, Fit, GaussianProcess, GaussianProcessClassifier, IntervalReport, IterativeProcess, ProcessFeatures,
    SavedPredict, Tuning, interval_factor,
};
use mercer::data::{Dataset, Schema, Target};
use mercer::kernel::Expression;
use mercer::operator::Precision;
use mercer::{Error, FitContext, Result, fail_if};
use mercer_figure::report::Table;
use ndarray::{Array2, Axis};
use serde_json::json;

/// Most rows of the exact posterior by default: its factorisation takes seconds there.
const EXACT: usize = 8000;
/// Landmarks, random features and eigenfunctions by default.
const RANKS: [usize; 3] = [1000, 2000, 200];

/// Learn to predict a number with its standard deviation, or a class with its probability, by a Gaussian process
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer gp train.csv --target price --kernel \"matern52(lengthscale=ard)\" --predict test.csv --out p.csv"
)]
pub struct Gp {
    #[command(flatten)]
    examples: Examples,

    /// Kernel expression (see `mercer kernels`, with the units of its numbers); lengthscales auto and ard, the amplitude of each term and the noise are found by the
    /// marginal likelihood
    #[arg(long, value_name = "EXPRESSION", default_value = "rbf(lengthscale=auto)")]
    kernel: String,

    /// How the posterior is computed
    #[arg(long, default_value = "auto")]
    method: Way,

    /// Functions sampled at the rows, an array [S, n]: their kernel FᵀF/S in place of --kernel. New rows are predicted from the same
    /// functions there, by `mercer predict --samples`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "scale", "predict"])]
    samples: Option<String>,

    /// nystrom: landmarks [default: 1000]; random-features: features [default: 2000]; spectrum: eigenfunctions [default: 200];
    /// cg: rank of the preconditioner [default: 4√n, 500 at least, up to four times that where it helps]
    #[arg(long, visible_aliases = ["landmarks", "features"], value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rank: Option<u32>,

    /// Random starts of the search for hyper-parameters, beside the one at the median distances
    #[arg(long, value_name = "N", default_value_t = 2)]
    restarts: usize,

    /// Rows that the search for hyper-parameters looks at, at most, drawn at random [default: 2000; 500 for classes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    search_rows: Option<u32>,

    /// cg: precision of kernel values; f32 takes about half the time
    #[arg(long, default_value = "f64", value_parser = values::precision())]
    precision: Precision,

    /// Level of the intervals of numbers
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = level, allow_negative_numbers = true)]
    level: f64,

    /// Report to write: measures, the posterior over the line or the plane, reliability diagrams of classes
    #[arg(long, value_name = "FILE.html")]
    report: Option<NewFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// exact up to 8000 rows and for classes, else nystrom; with --samples by the smaller of rows and functions
    Auto,
    /// The posterior given all rows, by a factor of the kernel matrix
    Exact,
    /// The posterior given all rows, by conjugate gradients, without the kernel matrix in memory; time grows like n²
    Cg,
    /// On features of landmark points (inducing points); time grows like n
    Nystrom,
    /// On random Fourier features; for shift-invariant kernels
    #[value(alias = "rff")]
    RandomFeatures,
    /// On the leading eigenfunctions
    Spectrum,
}

fn level(word: &str) -> Result<f64, String> {
    number(word, |v| v > 0.0 && v < 1.0, "it must lie between 0 and 1")
}

/// How a posterior of numbers is computed.
enum Posterior {
    Exact,
    Iterative,
    Features(ProcessFeatures),
}

impl Gp {
    pub fn run(self, context: &Context) -> Result<()> {
        let outputs = self.examples.outputs()?;
        let page = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        fail_if!(
            self.precision != Precision::F64 && self.method != Way::Cg,
            "--precision is for --method cg; the other methods compute in f64"
        );
        fail_if!(
            self.samples.is_some() && (!matches!(self.method, Way::Auto | Way::Exact) || self.rank.is_some()),
            "--method and --rank are for kernels; with --samples the functions are the features"
        );
        fail_if!(
            self.rank.is_some() && self.method == Way::Exact,
            "--rank is for methods on features and for cg; --method exact takes all rows"
        );
        let kernel = Expression::parse(&self.kernel)?;
        let Parts { schema, train, held_out, new } = match &self.samples {
            None => self.examples.read(self.examples.scale, context)?,
            Some(file) => self.examples.read_samples(file, context)?,
        };
        let kernel = match &self.samples {
            None => kernel,
            // x·x'/S of the values of S functions
            Some(_) => Expression::parse(&format!("{}*linear", 1.0 / train.d() as f64))?,
        };
        let kernel = units::for_columns_said(&[kernel], schema.as_ref(), context).remove(0);
        let fitted = context.fitting(|fit| {
            let fit = FitContext { data: &self.examples.data, precision: self.precision, ..*fit };
            self.fit(kernel, &train, &fit, context)
        })?;
        fitted.model().notes().iter().for_each(|note| context.warn(with_options(note)));
        outputs.write_model(fitted.model(), schema.as_ref(), context);
        let left_out = fitted.left_out(&train, self.level)?;
        let mut reports: Vec<(&str, Judged)> = left_out.map(|report| ("left out", report)).into_iter().collect();
        for (name, data) in [("holdout", &held_out), ("test", &new)] {
            let Some(data) = data else { continue };
            let out = outputs.out.as_ref().filter(|_| name == "test");
            reports.extend(self.judge(&fitted, data, out, context)?.map(|report| (name, report)));
        }
        if let Some(page) = page {
            let others = [("holdout", &held_out), ("test", &new)];
            let others = others.map(|(name, data)| (name, data.clone().map(Dataset::labelled)));
            let others: Vec<_> = others.iter().filter_map(|(name, data)| Some((*name, data.as_ref()?))).collect();
            let report = self.page(&fitted, &reports, schema.as_ref());
            let report = report.page(&self.title(), schema.as_ref(), &train, &others)?.command(&context.command);
            context.written(&page, page.text(&report.html()));
        }
        self.show(&fitted, (&train, schema.as_ref()), &reports, outputs.out, context)
    }

    fn title(&self) -> String {
        format!("A Gaussian process on {}", self.examples.data)
    }

    /// What the report shows of a fitted process.
    fn page<'a>(
        &self,
        fitted: &'a Process,
        reports: &[(&str, Judged)],
        schema: Option<&Schema>,
    ) -> gp_page::Process<'a> {
        let (origin, (what, likelihood, _)) = (fitted.model().origin(), fitted.likelihood());
        let mut facts = vec![
            ("method", origin.method.clone()),
            ("kernel", units::as_written(&origin.kernel, schema)),
            (what, text::number(likelihood, 6)),
        ];
        facts.extend(fitted.noise().map(|noise| ("deviation of the noise", text::number(noise.sqrt(), 4))));
        let (headings, rows) = rows(reports);
        gp_page::Process { model: fitted.model(), facts, measures: Table::of(&headings, &rows) }
    }

    /// The process for these rows; says why it is computed as it is.
    fn fit(&self, kernel: Expression, train: &Dataset, fit: &FitContext, context: &Context) -> Result<Process> {
        let y = train.y.as_ref().ok_or_else(|| Error::input("name the column to predict by --target"))?;
        let x = train.x.to_f64();
        let tuned = |tuning: Tuning| {
            let rows = self.search_rows.map_or(tuning.rows, |rows| rows as usize);
            Tuning { restarts: self.restarts, rows, ..tuning }
        };
        if matches!(y, Target::Classes { .. }) {
            fail_if!(
                !matches!(self.method, Way::Auto | Way::Exact) || self.rank.is_some(),
                "--method and --rank are for numbers; for classes on features use `mercer regress --loss logistic`"
            );
            let process = GaussianProcessClassifier::new(kernel);
            let tuning = tuned(process.tuning);
            return GaussianProcessClassifier { tuning, ..process }
                .fit(x.view(), y, fit)
                .map(|fitted| Process::Classes(fitted.into()));
        }
        let (posterior, why) = self.posterior((train.n(), train.d()), fit);
        context.note(why);
        match posterior {
            Posterior::Features(features) => {
                let process = FeatureProcess::new(kernel, features);
                let tuning = tuned(process.tuning);
                FeatureProcess { tuning, ..process }.fit(x.view(), y, fit).map(Process::Features)
            }
            Posterior::Iterative => {
                let process = IterativeProcess::new(kernel);
                let (tuning, rank) = (tuned(process.tuning), self.rank.map(|rank| rank as usize));
                let fitted = IterativeProcess { tuning, rank, ..process }.fit(x.view(), y, fit)?;
                Ok(Process::Iterative(fitted.into()))
            }
            Posterior::Exact => {
                let process = GaussianProcess::new(kernel);
                let tuning = tuned(process.tuning);
                GaussianProcess { tuning, ..process }.fit(x.view(), y, fit).map(Process::Exact)
            }
        }
    }

    /// How the posterior of n rows of d columns is computed, and why.
    fn posterior(&self, (n, d): (usize, usize), fit: &FitContext) -> (Posterior, String) {
        let rank = |default: usize| self.rank.map_or(default, |rank| rank as usize);
        let [landmarks, random, pairs] = RANKS.map(rank);
        let (landmarks, pairs) = (landmarks.min(n), pairs.min(n));
        let nystrom = |why: String| {
            let said = format!("method nystrom: {why}; {landmarks} landmarks stand for them");
            (Posterior::Features(ProcessFeatures::Landmarks(landmarks)), said)
        };
        match self.method {
            Way::Exact => (Posterior::Exact, format!("method exact: the posterior given all {n} rows")),
            Way::Cg => (Posterior::Iterative, format!("method cg: the posterior given all {n} rows, without a matrix")),
            Way::Nystrom => nystrom(format!("{n} rows")),
            Way::RandomFeatures => {
                let said = format!("method random-features: {random} features stand for the kernel");
                (Posterior::Features(ProcessFeatures::Random(random)), said)
            }
            Way::Spectrum => {
                let said = format!("method spectrum: {pairs} eigenfunctions stand for the kernel");
                (Posterior::Features(ProcessFeatures::Eigenfunctions(pairs)), said)
            }
            Way::Auto if self.samples.is_some() && d <= n => {
                let said =
                    format!("method linear: {n} rows are more than the {d} functions, each of which has a weight");
                (Posterior::Features(ProcessFeatures::Columns), said)
            }
            Way::Auto if self.samples.is_some() => {
                (Posterior::Exact, format!("method exact: {n} rows are fewer than the {d} functions"))
            }
            Way::Auto if self.rank.is_some() => nystrom("--rank was given".into()),
            Way::Auto if n > EXACT => nystrom(format!(
                "{n} rows are too many for the exact posterior in seconds (--method cg takes all of them)"
            )),
            Way::Auto if !fit.budget.allows(GaussianProcess::memory(n)) => {
                nystrom(format!("the matrix of {n} rows does not fit the memory (--method cg takes all without it)"))
            }
            Way::Auto => {
                (Posterior::Exact, format!("method exact: {n} rows are few enough for the posterior given all of them"))
            }
        }
    }

    /// Predicts the rows of `data`, writes the predictions to `out`, and scores them where the target is known.
    fn judge(
        &self,
        fitted: &Process,
        data: &Dataset,
        out: Option<&Output>,
        context: &Context,
    ) -> Result<Option<Judged>> {
        let judged = match fitted {
            Process::Classes(classes) => {
                let predictions = Predictions::of(&**classes, data)?;
                out.map(|out| predictions.write(out, context)).transpose()?;
                predictions.score(data, context).map(Judged::Classes)
            }
            _ => {
                let intervals = intervals(fitted.model(), data, self.level)?;
                let headings = ["mean", "deviation", "low", "high"].map(String::from);
                out.map(|out| out.matrix(intervals.view(), &headings)).transpose()?;
                match data.known() {
                    Some((Target::Values(truth), rows)) => {
                        let intervals = rows.map_or_else(|| intervals.clone(), |rows| intervals.select(Axis(0), rows));
                        let column = |j: usize| intervals.column(j).to_vec();
                        let report = IntervalReport::new(truth, &column(0), &column(1), self.level)?;
                        Some(Judged::Numbers(report))
                    }
                    Some(_) => {
                        warn_of_other_kind(&data.name, false, context);
                        None
                    }
                    None => None,
                }
            }
        };
        if let Some(out) = out {
            Outputs::wrote(out, data.n(), context);
        }
        Ok(judged)
    }

    /// The lengthscales of the kernel, and how much each column changes the prediction.
    fn lengthscales(
        &self,
        fitted: &Process,
        (train, schema): (&Dataset, Option<&Schema>),
        context: &Context,
    ) -> Result<Option<Lengthscales>> {
        match self.samples {
            Some(_) => Ok(None),
            None => Lengthscales::of(fitted.kernel(), fitted.model(), train, schema, context.seed),
        }
    }

    fn show(
        &self,
        fitted: &Process,
        (train, schema): (&Dataset, Option<&Schema>),
        reports: &[(&str, Judged)],
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let origin = &units::origin_as_written(fitted.model().origin(), schema);
        let (search, data) = (fitted.search(), &self.examples.data);
        let lengthscales = self.lengthscales(fitted, (train, schema), context)?;
        let (what, likelihood, error) = fitted.likelihood();
        let (iteration, iterated) = fitted.iteration().unzip();
        let mut object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": data, "n": origin.n, "d": origin.d,
            "noise": fitted.noise(), "log_likelihood": likelihood,
            "log_likelihood_error": error, "conjugate_gradients": iteration, "search": search, "seconds": origin.seconds, "out": out,
        });
        if let Some(found) = &lengthscales {
            object["lengthscales"] = found.object();
        }
        for (name, report) in reports {
            object[name.replace(' ', "_")] = report.object();
        }
        context.costly_result(&object, || {
            let origin = certificate::origin(origin, &format!("on {data}"), "");
            let noise = fitted.noise().map_or_else(String::new, |noise| {
                format!(", noise of standard deviation {}", text::number(noise.sqrt(), 4))
            });
            let best = search.starts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let alike = search.starts.iter().filter(|start| best - **start < 1e-3).count();
            let mut said = format!(
                "{origin}\n{what} {}{}{noise}\n{}hyper-parameters: {alike} of {} reached the best likelihood, on {}\n",
                text::number(likelihood, 6),
                error.map_or_else(String::new, |error| format!(" ± {}", text::number(error, 2))),
                iterated.map_or_else(String::new, |said| said + "\n"),
                text::count(search.starts.len(), "start"),
                text::count(search.rows, "row"),
            );
            if let Some(found) = &lengthscales {
                said += &format!("\n{}", found.table().text());
            }
            let (headings, rows) = rows(reports);
            if !rows.is_empty() {
                said += &format!("\n{}", text::table(&headings, &rows));
            }
            if let Some((name, Judged::Classes(score))) = reports.last() {
                said += &format!("\nclasses of {name}:\n{}", joined(&score.details()));
            }
            said
        })
    }
}

/// Headings and rows of a table of reports.
fn rows(reports: &[(&str, Judged)]) -> (Vec<String>, Vec<Vec<String>>) {
    let (mut headings, mut rows) = (vec![], vec![]);
    for (name, report) in reports {
        let (names, cells): (Vec<String>, Vec<String>) = report.cells().into_iter().unzip();
        headings = [vec!["rows".into()], names].concat();
        rows.push([vec![name.to_string()], cells].concat());
    }
    (headings, rows)
}

/// Mean, standard deviation and both ends of the interval at the rows of `data`, `[n, 4]`.
fn intervals(fitted: &dyn SavedPredict, data: &Dataset, level: f64) -> Result<Array2<f64>> {
    let x = data.x.to_f64();
    let (mean, z) = (fitted.scores(x.view())?, interval_factor(level)?);
    let deviations = fitted.deviations(x.view())?.expect("a Gaussian process has deviations");
    Ok(Array2::from_shape_fn((data.n(), 4), |(i, j)| {
        let (mean, deviation) = (mean[[i, 0]], deviations[i]);
        [mean, deviation, mean - z * deviation, mean + z * deviation][j]
    }))
}
