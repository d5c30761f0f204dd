//! `mercer gp`: numbers with standard deviations and intervals, or classes with probabilities, by a Gaussian process.

use super::predict::Predictions;
use crate::certificate;
use crate::columns::lengthscale_table;
use crate::context::Context;
use crate::examples::{Examples, Outputs, Parts};
use crate::methods::number;
use crate::output::Output;
use crate::score::{Score, score};
use crate::text;
use crate::usage::with_options;
use clap::{Args, ValueEnum};
use mercer::apply::{
    FeatureProcess, Fit, FittedFeatureProcess, FittedGaussianProcess, FittedGaussianProcessClassifier, GaussianProcess,
    GaussianProcessClassifier, IntervalReport, Predict, ProcessFeatures, SavedPredict, SearchEnd, Tuning,
    interval_factor,
};
use mercer::data::{Dataset, Target};
use mercer::kernel::{Expression, Kernel};
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::Array2;
use serde_json::{Value, json};

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

    /// Kernel expression (see `mercer kernels`); lengthscales auto and ard, the amplitude of each term and the noise are found by the
    /// marginal likelihood
    #[arg(long, value_name = "EXPRESSION", default_value = "rbf(lengthscale=auto)")]
    kernel: String,

    /// How the posterior is computed
    #[arg(long, default_value = "auto")]
    method: Way,

    /// nystrom: landmarks [default: 1000]; random-features: features [default: 2000]; spectrum: eigenfunctions [default: 200]
    #[arg(long, visible_aliases = ["landmarks", "features"], value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rank: Option<u32>,

    /// Random starts of the search for hyper-parameters, beside the one at the median distances
    #[arg(long, value_name = "N", default_value_t = 2)]
    restarts: usize,

    /// Rows that the search for hyper-parameters looks at, at most, drawn at random [default: 2000; 500 for classes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    search_rows: Option<u32>,

    /// Level of the intervals of numbers
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = level, allow_negative_numbers = true)]
    level: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// exact up to 8000 rows and for classes, else nystrom
    Auto,
    /// The posterior given all rows
    Exact,
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

/// A fitted process.
enum Process {
    Exact(FittedGaussianProcess),
    Features(FittedFeatureProcess),
    Classes(Box<FittedGaussianProcessClassifier>),
}

impl Process {
    fn model(&self) -> &dyn SavedPredict {
        match self {
            Process::Exact(fitted) => fitted,
            Process::Features(fitted) => fitted,
            Process::Classes(fitted) => &**fitted,
        }
    }

    fn kernel(&self) -> &Kernel {
        match self {
            Process::Exact(fitted) => fitted.kernel(),
            Process::Features(fitted) => fitted.kernel(),
            Process::Classes(fitted) => fitted.kernel(),
        }
    }

    fn search(&self) -> &SearchEnd {
        match self {
            Process::Exact(fitted) => &fitted.search,
            Process::Features(fitted) => &fitted.search,
            Process::Classes(fitted) => &fitted.search,
        }
    }

    /// `log p(y)`, and what it is.
    fn likelihood(&self) -> (&'static str, f64) {
        match self {
            Process::Exact(fitted) => ("log marginal likelihood", fitted.likelihood),
            Process::Features(fitted) => ("lower bound of the log marginal likelihood", fitted.bound),
            Process::Classes(fitted) => ("log marginal likelihood (Laplace approximation)", fitted.likelihood),
        }
    }

    /// The variance of the noise; classes have none.
    fn noise(&self) -> Option<f64> {
        match self {
            Process::Exact(fitted) => Some(fitted.noise),
            Process::Features(fitted) => Some(fitted.noise),
            Process::Classes(_) => None,
        }
    }

    /// The report on fitted rows, each predicted from all others.
    fn left_out(&self, train: &Dataset, level: f64) -> Result<Option<Judged>> {
        let Some(y) = &train.y else { return Ok(None) };
        let predicted: Vec<(usize, [f64; 2])> = match self {
            Process::Exact(fitted) => {
                let all = fitted.leave_one_out(&y.values())?;
                all.rows().into_iter().enumerate().map(|(i, row)| (i, [row[0], row[1]])).collect()
            }
            Process::Features(fitted) => fitted.left_out.clone(),
            Process::Classes(fitted) => {
                let scores = fitted.left_out.view();
                let p = fitted.probabilities(scores);
                let score = score(y, &fitted.decode(scores), p.as_ref().map(|p| p.view()));
                return Ok(score.map(Judged::Classes));
            }
        };
        let column = |j: usize| predicted.iter().map(|(_, row)| row[j]).collect::<Vec<_>>();
        let truth: Vec<f64> = predicted.iter().map(|(i, _)| y.values()[*i]).collect();
        IntervalReport::new(&truth, &column(0), &column(1), level).map(|report| Some(Judged::Numbers(report)))
    }
}

/// How well predictions describe the targets.
enum Judged {
    Numbers(IntervalReport),
    Classes(Score),
}

impl Judged {
    fn object(&self) -> Value {
        match self {
            Judged::Numbers(report) => json!(report),
            Judged::Classes(score) => json!(score),
        }
    }

    /// The numbers, each under its heading.
    fn cells(&self) -> Vec<(String, String)> {
        match self {
            Judged::Numbers(report) => {
                let number = |v: f64| text::number(v, 4);
                vec![
                    ("RMSE".into(), number(report.rmse)),
                    ("NLL".into(), number(report.nll)),
                    (format!("in {} interval", text::percent(report.level)), text::percent(report.coverage)),
                    ("its width".into(), number(report.width)),
                ]
            }
            Judged::Classes(score) => score.cells().into_iter().map(|(name, cell)| (name.into(), cell)).collect(),
        }
    }
}

impl Gp {
    pub fn run(self, context: &Context) -> Result<()> {
        let outputs = self.examples.outputs()?;
        let kernel = Expression::parse(&self.kernel)?;
        let Parts { schema, train, held_out, new } = self.examples.read(self.examples.scale, context)?;
        let fitted =
            context.fitting(|fit| self.fit(kernel, &train, &FitContext { data: &self.examples.data, ..*fit }))?;
        if let Process::Features(features) = &fitted {
            context.note(self.why(train.n(), features.rank()));
        }
        fitted.model().notes().iter().for_each(|note| context.warn(with_options(note)));
        outputs.write_model(fitted.model(), &schema, context)?;
        let left_out = fitted.left_out(&train, self.level)?;
        let mut reports: Vec<(&str, Judged)> = left_out.map(|report| ("left out", report)).into_iter().collect();
        for (name, data) in [("holdout", &held_out), ("test", &new)] {
            let Some(data) = data else { continue };
            let out = outputs.out.as_ref().filter(|_| name == "test");
            reports.extend(self.judge(&fitted, data, out, context)?.map(|report| (name, report)));
        }
        self.show(&fitted, &train, &reports, outputs.out, context)
    }

    /// The process for these rows.
    fn fit(&self, kernel: Expression, train: &Dataset, context: &FitContext) -> Result<Process> {
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
                .fit(x.view(), y, context)
                .map(|fitted| Process::Classes(fitted.into()));
        }
        if let Some(features) = self.features(train.n()) {
            let process = FeatureProcess::new(kernel, features);
            let tuning = tuned(process.tuning);
            return FeatureProcess { tuning, ..process }.fit(x.view(), y, context).map(Process::Features);
        }
        let process = GaussianProcess::new(kernel);
        let tuning = tuned(process.tuning);
        GaussianProcess { tuning, ..process }.fit(x.view(), y, context).map(Process::Exact)
    }

    /// The features for n rows; none where the posterior is exact.
    fn features(&self, n: usize) -> Option<ProcessFeatures> {
        let rank = |default: usize| self.rank.map_or(default, |rank| rank as usize);
        let [landmarks, random, pairs] = RANKS.map(rank);
        match self.method {
            Way::Exact => None,
            Way::Auto if n <= EXACT && self.rank.is_none() => None,
            Way::Auto | Way::Nystrom => Some(ProcessFeatures::Landmarks(landmarks)),
            Way::RandomFeatures => Some(ProcessFeatures::Random(random)),
            Way::Spectrum => Some(ProcessFeatures::Eigenfunctions(pairs)),
        }
    }

    /// Why features were used.
    fn why(&self, n: usize, rank: usize) -> String {
        match self.method {
            Way::Auto if n > EXACT => {
                format!("{n} rows are too many for the exact posterior in seconds; {rank} landmarks stand for them")
            }
            _ => format!("{rank} features stand for the kernel"),
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
                predictions.score(data).map(Judged::Classes)
            }
            _ => {
                let intervals = intervals(fitted.model(), data, self.level)?;
                let headings = ["mean", "deviation", "low", "high"].map(String::from);
                out.map(|out| out.matrix(intervals.view(), &headings)).transpose()?;
                let column = |j: usize| intervals.column(j).to_vec();
                match &data.y {
                    Some(Target::Values(truth)) => {
                        let report = IntervalReport::new(truth, &column(0), &column(1), self.level)?;
                        Some(Judged::Numbers(report))
                    }
                    _ => None,
                }
            }
        };
        if let Some(out) = out {
            Outputs::wrote(out, data.n(), context);
        }
        Ok(judged)
    }

    fn show(
        &self,
        fitted: &Process,
        train: &Dataset,
        reports: &[(&str, Judged)],
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let (origin, search, data) = (fitted.model().origin(), fitted.search(), &self.examples.data);
        let (what, likelihood) = fitted.likelihood();
        let mut object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": data, "n": origin.n, "d": origin.d,
            "noise": fitted.noise(), "log_likelihood": likelihood, "search": search, "seconds": origin.seconds, "out": out,
        });
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
                "{origin}\n{what} {}{noise}\nhyper-parameters: {alike} of {} reached the best likelihood, on {}\n",
                text::number(likelihood, 6),
                text::count(search.starts.len(), "start"),
                text::count(search.rows, "row"),
            );
            if let Some(lengthscales) = fitted.kernel().lengthscale_of_columns() {
                said += &format!("\n{}", lengthscale_table(lengthscales, &train.columns));
            }
            let (mut headings, mut rows) = (vec![], vec![]);
            for (name, report) in reports {
                let (names, cells): (Vec<String>, Vec<String>) = report.cells().into_iter().unzip();
                headings = [vec!["rows".into()], names].concat();
                rows.push([vec![name.to_string()], cells].concat());
            }
            if !rows.is_empty() {
                said += &format!("\n{}", text::table(&headings, &rows));
            }
            if let Some((name, Judged::Classes(score))) = reports.last() {
                said += &format!("\nclasses of {name}:\n{}", score.details());
            }
            said
        })
    }
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
