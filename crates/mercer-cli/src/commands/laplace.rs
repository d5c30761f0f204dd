//! `mercer laplace`: calibrated probabilities, or numbers with deviations, of a network that was trained.

use super::laplace_shown::{Counts, Outcome};
use crate::options::function_files::FunctionFiles;
use crate::options::input::{Reader, labelled};
use crate::options::network::{Foreign, Input};
use crate::options::validation_rows::{JudgedRows, ValidationRows};
use crate::options::values::choice;
use crate::program::context::Context;
use crate::program::output::NewFile;
use crate::show::posterior::Rows;
use crate::show::uncertainty::{About, Answers, Judged, choices, halves};
use crate::text;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use mercer::apply::Predict;
use mercer::classifier::Classifier;
use mercer::data::{Dataset, Scaling, Schema};
use mercer::error::human_bytes;
use mercer::laplace::{Cost, FittedLaplace, Laplace as Settings, Method, Predictive, Prior};
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::ArrayView2;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Seconds that `auto` spends on a method at most, as estimated.
const PATIENCE: f64 = 600.0;

/// Give a trained network calibrated probabilities, or deviations, by linearised Laplace
#[derive(Args)]
#[command(
    after_help = "Examples:\n  mercer laplace net.safetensors train.csv --target y --validation other.csv --test test.csv --out m.mercer\n  mercer predict m.mercer new.csv --out p.csv\n  mercer laplace train.csv --target y --test test.csv --logits z.npy,z-test.npy --samples F.npy,F-test.npy --out m.mercer"
)]
pub struct Laplace {
    /// Network file: one that `mercer train` wrote, or a state dict of PyTorch as safetensors; left out with --logits
    #[arg(value_name = "NETWORK")]
    pub(super) first: String,

    /// Rows that the network was trained on, with their targets
    #[arg(required_unless_present = "logits")]
    pub(super) data: Option<String>,

    /// Network of a file that does not name it, as for `mercer train`; it sees rows as they are, unless --mean and --std are given
    #[arg(long, value_name = "NET")]
    net: Option<String>,

    /// How the posterior is approximated: auto takes the method with the lowest NLL on the validation rows; map is the network alone;
    /// functions and eigenfunctions are those for --logits
    #[arg(long, default_value = "auto", value_parser = methods())]
    pub(super) method: String,

    /// How the precision of the prior, and the noise of a number, are found: by the NLL on the validation rows, or by the marginal
    /// likelihood, which may give posteriors far worse than the network alone
    #[arg(long, default_value = "validation", value_parser = choice(&[("validation", Prior::Validation), ("likelihood", Prior::Likelihood)]))]
    pub(super) prior: Prior,

    #[command(flatten)]
    pub(super) validation_rows: ValidationRows,

    /// Draws of the outputs for each row whose mean probabilities are taken [default: the probit approximation]
    #[arg(long, value_name = "N")]
    pub(super) draws: Option<usize>,

    /// Divide the scores of every posterior by a temperature, too, found on the validation rows
    #[arg(long)]
    pub(super) tempered: bool,

    /// Functions of ella and eigenfunctions [default: ella 20, eigenfunctions 64]
    #[arg(long, value_name = "N")]
    pub(super) functions: Option<usize>,

    /// Model file to write, for `mercer predict`
    #[arg(long, short, visible_alias = "model", value_name = "FILE")]
    pub(super) out: Option<NewFile>,

    /// Report to write, with reliability diagrams
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<NewFile>,

    #[command(flatten)]
    foreign: Foreign,

    #[command(flatten)]
    pub(super) files: FunctionFiles,

    #[command(flatten)]
    pub(super) reader: Reader,
}

fn methods() -> impl TypedValueParser<Value = String> {
    let known = Method::ALL.iter().map(|method| method.name());
    PossibleValuesParser::new(std::iter::once("auto").chain(known).chain(["functions"]))
}

/// The network and all rows that the command is given.
struct Given {
    network: Arc<Classifier>,
    schema: Schema,
    rows: JudgedRows,
}

impl Laplace {
    pub fn run(self, context: &Context) -> Result<()> {
        if self.files.given() {
            return self.of_functions(context);
        }
        fail_if!(!self.files.samples.is_empty(), "--samples needs the network's outputs too; give --logits");
        let outputs = self.outputs()?;
        let given = self.read(context)?;
        let methods = self.planned(&given, context)?;
        let mut all: Vec<Outcome> = vec![];
        for (i, method) in methods.iter().enumerate() {
            match self.fitted(*method, (i, methods.len()), &given, context) {
                Ok(fitted) => all.push(fitted),
                Err(error @ Error::Memory { .. }) if self.method == "auto" => {
                    context.warn(format_args!("{} is left out: {error}", method.name()));
                }
                Err(error) => return Err(error),
            }
        }
        let (names, x) = (given.schema.features(), given.rows.fit.x.to_f64());
        let rows = Rows { x: x.view(), names: &names, y: given.rows.fit.target()?, scaler: given.schema.scaler() };
        let counts = Counts {
            fit: given.rows.fit.n(),
            validation: given.rows.validation.n(),
            measured: given.rows.measured().n(),
        };
        self.finish(&all, counts, Some((&given.schema, &rows)), outputs, context)
    }

    /// The rows that the network was trained on.
    pub(super) fn source(&self) -> &str {
        self.data.as_deref().unwrap_or(&self.first)
    }

    /// Reads the network and the rows; says what the network sees of them.
    fn read(&self, context: &Context) -> Result<Given> {
        let file = Path::new(&self.first);
        let (rows, schema) = match Classifier::schema_of(file)? {
            Some(schema) => (labelled(self.reader.source.open_like(self.source(), &schema, context)?, context), schema),
            None => self.reader.features(self.source(), Some(Scaling::None), context)?,
        };
        let network = self.foreign.load(file, self.net.as_deref(), &rows, context)?;
        context.note(Input::new(&network.standardizer, network.foreign, rows.x.rows()).words);
        let rows = self.validation_rows.read(rows, self.source(), &network, (&self.reader, &schema), context)?;
        Ok(Given { network: Arc::new(network), schema, rows })
    }

    /// The methods to fit, baselines first. Says what each will take.
    fn planned(&self, given: &Given, context: &Context) -> Result<Vec<Method>> {
        fail_if!(
            given.network.number.is_some() && self.method == Method::Temperature.name(),
            "the temperature scales logits of classes; the network predicts a number"
        );
        fail_if!(self.method == "functions", "--method functions is for a network that is given by --logits");
        let wanted = |method: &Method| {
            let baseline = !method.has_posterior() && (*method == Method::Map || given.network.number.is_none());
            baseline || self.method == method.name() || self.method == "auto" && method.has_posterior()
        };
        let rate = self.rate(given)?;
        let (mut planned, mut rows) = (vec![], vec![]);
        for method in Method::ALL.into_iter().map(|method| self.with_functions(method)).filter(wanted) {
            let Cost { bytes, fit, predict } = self.settings(method).cost(&given.network, given.rows.fit.n())?;
            // τ by validation sees these rows once.
            let searched = usize::from(self.prior == Prior::Validation);
            let others = given.rows.measured().n() + 2 * given.rows.ood.as_ref().map_or(0, Dataset::n);
            let predicted =
                ((1 + searched) * given.rows.validation.n() + others) * given.network.network.multiply_adds();
            let seconds = (fit + predict * predicted as f64) * rate;
            let predict = format!("{}× the network", text::number(predict, 2));
            let remark = self.left_out(method.name(), seconds, bytes, context);
            if remark.is_none() {
                planned.push(method);
            }
            let cells = vec![method.name().into(), human_bytes(bytes), text::seconds(seconds), predict];
            rows.push([cells, vec![remark.unwrap_or_default()]].concat());
        }
        let table = text::table(&["method", "memory", "time", "prediction", "remark"], &rows);
        context.note(format_args!("estimated for {}:\n{}", text::count(given.rows.fit.n(), "row"), table.trim_end()));
        Ok(planned)
    }

    /// Why `auto` leaves a method out that takes so much; nothing where it is fitted.
    pub(super) fn left_out(&self, method: &str, seconds: f64, bytes: u64, context: &Context) -> Option<String> {
        let (too_slow, too_large) = (seconds > PATIENCE, !context.budget.allows(bytes));
        match (self.method == "auto", too_large, too_slow) {
            (true, true, _) => Some("left out: too little memory".into()),
            (true, _, true) => Some(format!("left out; --method {method} fits it")),
            _ => None,
        }
    }

    /// How probabilities are found.
    pub(super) fn predictive(&self) -> Predictive {
        self.draws.map_or(Predictive::Probit, |count| Predictive::Sampling { count })
    }

    /// Seconds for a multiply-add of the network, measured on a few rows.
    fn rate(&self, given: &Given) -> Result<f64> {
        const FEW: usize = 256;
        let rows = given.rows.fit.x.rows().slice(0..given.rows.fit.n().min(FEW));
        given.network.logits(rows)?;
        let start = Instant::now();
        given.network.logits(rows)?;
        let work = (rows.n() * given.network.network.multiply_adds()).max(1);
        Ok(start.elapsed().as_secs_f64() / work as f64)
    }

    fn with_functions(&self, method: Method) -> Method {
        match (method, self.functions) {
            (Method::Ella { samples, .. }, Some(rank)) => Method::Ella { samples, rank },
            (Method::Eigenfunctions { rows, .. }, Some(functions)) => Method::Eigenfunctions { functions, rows },
            _ => method,
        }
    }

    fn settings(&self, method: Method) -> Settings {
        let tempered = self.tempered && method.has_posterior();
        Settings { method, prior: self.prior, predictive: self.predictive(), tempered }
    }

    /// Fits a method, the `i`-th of `count`, and measures it.
    fn fitted(&self, method: Method, (i, count): (usize, usize), given: &Given, context: &Context) -> Result<Outcome> {
        let start = Instant::now();
        let halves = halves(given.rows.validation.n(), context.seed)?;
        let mut fits = context.fitting(|fit| {
            let stage = fit.stage(method.name(), i + 1, count);
            let fit = FitContext { data: self.source(), progress: &stage, ..*fit };
            let choices = choices(given.rows.validation.n(), &halves);
            self.settings(method).fit_on(&given.network, &given.rows.fit, &given.rows.validation, &choices, &fit)
        })?;
        let fit_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let by_other =
            |half: usize| answers(&fits[2 - half], given.rows.validation.select(&halves[half]).x.to_f64().view());
        let validation = Answers::joined(&halves, [by_other(0)?, by_other(1)?]);
        let mut predict_seconds = start.elapsed().as_secs_f64();
        let fitted = fits.swap_remove(0);
        fitted.notes().iter().for_each(|note| context.warn(format_args!("{}: {note}", method.name())));
        let start = Instant::now();
        let test = given.rows.test.as_ref().map(|rows| answers(&fitted, rows.x.to_f64().view())).transpose()?;
        if test.is_some() {
            predict_seconds = start.elapsed().as_secs_f64();
        }
        let about = About {
            name: method.name(),
            object: object(&fitted, fit_seconds),
            classes: fitted.network.classes.clone(),
            seconds: [fit_seconds, predict_seconds],
        };
        let test = test.as_ref().unwrap_or(&validation);
        let ood = given.rows.ood.as_ref().map(|rows| answers(&fitted, rows.x.to_f64().view())).transpose()?;
        let judged =
            Judged::new(about, (&given.rows.validation, &validation), (given.rows.measured(), test), ood.as_ref())?;
        Ok(Outcome { name: method.name(), model: Box::new(fitted), judged })
    }
}

/// What a model says of rows `[n, d]`.
fn answers(model: &dyn Predict, x: ArrayView2<f64>) -> Result<Answers> {
    Ok(Answers { scores: model.scores(x)?, deviations: model.deviations(x)? })
}

/// What is known of a fitted posterior.
fn object(fitted: &FittedLaplace, seconds: f64) -> serde_json::Value {
    let mut object = json!({ "method": fitted.method.name(), "evidence": fitted.evidence, "seconds": seconds });
    if fitted.method.has_posterior() {
        object["prior_precision"] = json!(fitted.found.value);
    }
    let (name, value) = match fitted.network.number {
        // σ², in units of the target.
        Some(number) => ("noise", fitted.noise * number.spread.powi(2)),
        None => ("temperature", fitted.temperature),
    };
    object[name] = json!(value);
    object
}
