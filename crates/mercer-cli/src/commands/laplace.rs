//! `mercer laplace`: calibrated probabilities, or numbers with deviations, of a network that was trained.

use crate::context::Context;
use crate::input::Reader;
use crate::methods::choice;
use crate::network::{Foreign, Input};
use crate::output::Output;
use crate::text;
use crate::uncertainty::{Judged, Judgement, page};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use mercer::apply::{Predict, Saved};
use mercer::classifier::{Classifier, Labelled};
use mercer::data::{Dataset, Scaling, Schema};
use mercer::error::human_bytes;
use mercer::laplace::{Cost, FittedLaplace, Laplace as Settings, Method, Predictive, Prior};
use mercer::{Error, FitContext, Result, fail_if};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Seconds that `auto` spends on a method at most, as estimated.
const PATIENCE: f64 = 600.0;

/// Give a trained network calibrated probabilities, or deviations, by linearised Laplace
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer laplace net.safetensors train.csv --target y --validation other.csv --test test.csv --out m.mercer\n  mercer predict m.mercer new.csv --out p.csv"
)]
pub struct Laplace {
    /// Network file: one that `mercer train` wrote, or a state dict of PyTorch as safetensors
    network: PathBuf,

    /// Rows that the network was trained on, with their targets
    data: String,

    /// Network of a file that does not name it, as for `mercer train`; it sees rows as they are, unless --mean and --std are given
    #[arg(long, value_name = "NET")]
    net: Option<String>,

    /// How the posterior is approximated: auto takes the method with the lowest NLL on the validation rows; map is the network alone
    #[arg(long, default_value = "auto", value_parser = methods())]
    method: String,

    /// How the precision of the prior is found: by the marginal likelihood, or by the NLL on the validation rows
    #[arg(long, default_value = "likelihood", value_parser = choice(&[("likelihood", Prior::Likelihood), ("validation", Prior::Validation)]))]
    prior: Prior,

    /// Rows to find the temperature, and what else is validated, on: a file or named set that the network has not seen, or a share of
    /// the data to hold out
    #[arg(long, value_name = "DATA|SHARE", default_value = "0.2")]
    validation: String,

    /// Labelled rows to measure all methods on [default: the validation rows]
    #[arg(long, value_name = "DATA")]
    test: Option<String>,

    /// Rows of another distribution, to be told from the test rows
    #[arg(long, value_name = "DATA")]
    ood: Option<String>,

    /// Draws of the outputs for each row whose mean probabilities are taken [default: the probit approximation]
    #[arg(long, value_name = "N")]
    draws: Option<usize>,

    /// Divide the scores of every posterior by a temperature, too, found on the validation rows
    #[arg(long)]
    tempered: bool,

    /// Functions of ella and eigenfunctions [default: ella 20, eigenfunctions 64]
    #[arg(long, value_name = "N")]
    functions: Option<usize>,

    /// Model file to write, for `mercer predict`
    #[arg(long, short, visible_alias = "model", value_name = "FILE")]
    out: Option<PathBuf>,

    /// Report to write, with reliability diagrams
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    #[command(flatten)]
    foreign: Foreign,

    #[command(flatten)]
    reader: Reader,
}

fn methods() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(std::iter::once("auto").chain(Method::ALL.iter().map(|method| method.name())))
}

/// The network and all rows that the command is given.
struct Given {
    network: Arc<Classifier>,
    schema: Schema,
    fit: Labelled,
    validation: Labelled,
    test: Option<Labelled>,
    ood: Option<Dataset>,
}

impl Given {
    /// The rows that methods are measured on.
    fn measured(&self) -> &Labelled {
        self.test.as_ref().unwrap_or(&self.validation)
    }
}

impl Laplace {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_deref().map(Output::new).transpose()?;
        let report = self.report.as_deref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let given = self.read(context)?;
        let methods = self.planned(&given, context)?;
        let mut all: Vec<(FittedLaplace, Judged)> = vec![];
        for (i, method) in methods.iter().enumerate() {
            match self.fitted(*method, (i, methods.len()), &given, context) {
                Ok(fitted) => all.push(fitted),
                Err(error @ Error::Memory { .. }) if self.method == "auto" => {
                    context.warn(format_args!("{} is left out: {error}", method.name()));
                }
                Err(error) => return Err(error),
            }
        }
        let (chosen, why) = self.chosen(&all, &given);
        let judged = Judgement::new(all.iter().map(|(_, judged)| judged), chosen, context.seed);
        if let Some(out) = &out {
            all[chosen].0.save_with(Some(&given.schema), out.path())?;
            context.wrote(out);
        }
        let rows = self.test.as_deref().unwrap_or("the validation rows");
        if let Some(report) = &report {
            let title = format!("Uncertainty of {} on {}", self.network.display(), self.data);
            let page = page(&judged, &title, &why, rows).command(&context.command);
            report.text(&page.html())?;
            context.wrote(report);
        }
        let object = json!({
            "network": self.network.to_string_lossy(), "data": self.data, "n": given.fit.n(), "validation": given.validation.n(),
            "measured_on": rows, "rows": given.measured().n(), "method": all[chosen].0.method.name(), "why": why,
            "methods": judged.objects(), "out": out, "report": report,
        });
        context.costly_result(&object, || format!("{}\n{}\n", judged.table(), why))
    }

    /// Reads the network and the rows; says what the network sees of them.
    fn read(&self, context: &Context) -> Result<Given> {
        let written = Classifier::load(&self.network, context.device, None).ok().and_then(|written| written.schema);
        let (rows, schema) = match written {
            Some(schema) => (self.reader.source.open_like(&self.data, &schema, context)?, schema),
            None => self.reader.features(&self.data, Some(Scaling::None), context)?,
        };
        let network = self.foreign.load(&self.network, self.net.as_deref(), &rows, context)?;
        context.note(Input::new(&network.standardizer, network.foreign, rows.x.rows()).words);
        let labelled = |rows: &Dataset| match network.number {
            Some(_) => Labelled::with_numbers(rows),
            None => Labelled::of(rows),
        };
        let open = |source: &str| self.reader.open_like(source, &schema, context);
        let (fit, validation) = match self.validation.parse::<f64>() {
            Ok(share) => {
                fail_if!(
                    !(share > 0.0 && share < 1.0),
                    "--validation must be a share between 0 and 1, or data, not {share}"
                );
                context.note(format_args!(
                    "{} of {} held out for validation; if the network was trained on them, give others by --validation",
                    text::percent(share),
                    self.data
                ));
                rows.split(share, context.seed)?
            }
            Err(_) => (rows, open(&self.validation)?),
        };
        let test = self.test.as_deref().map(open).transpose()?;
        if test.is_none() {
            context.note("without --test, methods are measured on the validation rows, which also choose among them");
        }
        let (fit, validation) = (labelled(&fit)?, labelled(&validation)?);
        let test = test.as_ref().map(labelled).transpose()?;
        let ood = self.ood.as_deref().map(open).transpose()?;
        fail_if!(
            ood.is_some() && network.number.is_some(),
            "--ood is for classes: the network predicts a number, whose deviations `mercer predict` gives"
        );
        Ok(Given { network: Arc::new(network), schema, fit, validation, test, ood })
    }

    /// The methods to fit, baselines first. Says what each will take.
    fn planned(&self, given: &Given, context: &Context) -> Result<Vec<Method>> {
        fail_if!(
            given.network.number.is_some() && self.method == Method::Temperature.name(),
            "the temperature scales logits of classes; the network predicts a number"
        );
        let wanted = |method: &Method| {
            let baseline = !method.has_posterior() && (*method == Method::Map || given.network.number.is_none());
            baseline || self.method == method.name() || self.method == "auto" && method.has_posterior()
        };
        let rate = self.rate(given)?;
        let (mut planned, mut rows) = (vec![], vec![]);
        for method in Method::ALL.into_iter().map(|method| self.with_functions(method)).filter(wanted) {
            let Cost { bytes, fit, predict } = self.settings(method).cost(&given.network, given.fit.n())?;
            // τ by validation sees these rows once for each of its four grids.
            let grids = if self.prior == Prior::Validation { 4 } else { 0 };
            let others = given.measured().n() + 2 * given.ood.as_ref().map_or(0, Dataset::n);
            let predicted = ((1 + grids) * given.validation.n() + others) * given.network.network.multiply_adds();
            let seconds = (fit + predict * predicted as f64) * rate;
            let (too_slow, too_large) = (seconds > PATIENCE, !context.budget.allows(bytes));
            let left_out = self.method == "auto" && (too_slow || too_large);
            let remark = match (left_out, too_slow) {
                (false, _) => String::new(),
                (true, true) => format!("left out; --method {} fits it", method.name()),
                (true, false) => "left out: too little memory".into(),
            };
            let predict = format!("{}× the network", text::number(predict, 2));
            rows.push(vec![method.name().into(), human_bytes(bytes), text::seconds(seconds), predict, remark]);
            if !left_out {
                planned.push(method);
            }
        }
        let table = text::table(&["method", "memory", "time", "prediction", "remark"], &rows);
        context.note(format_args!("estimated for {}:\n{}", text::count(given.fit.n(), "row"), table.trim_end()));
        Ok(planned)
    }

    /// Seconds for a multiply-add of the network, measured on a few rows.
    fn rate(&self, given: &Given) -> Result<f64> {
        const FEW: usize = 256;
        let rows = given.fit.x.slice(ndarray::s![..given.fit.n().min(FEW), ..]);
        given.network.logits(rows)?;
        let start = Instant::now();
        given.network.logits(rows)?;
        let work = (rows.nrows() * given.network.network.multiply_adds()).max(1);
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
        let predictive = self.draws.map_or(Predictive::Probit, |count| Predictive::Sampling { count });
        Settings { method, prior: self.prior, predictive, tempered: self.tempered && method.has_posterior() }
    }

    /// Fits a method, the `i`-th of `count`, and measures it.
    fn fitted(
        &self,
        method: Method,
        (i, count): (usize, usize),
        given: &Given,
        context: &Context,
    ) -> Result<(FittedLaplace, Judged)> {
        let start = Instant::now();
        let fitted = context.fitting(|fit| {
            let stage = fit.stage(method.name(), i + 1, count);
            let fit = FitContext { data: &self.data, progress: &stage, ..*fit };
            self.settings(method).fit(&given.network, &given.fit, Some(&given.validation), &fit)
        })?;
        let seconds = start.elapsed().as_secs_f64();
        fitted.notes().iter().for_each(|note| context.warn(format_args!("{}: {note}", method.name())));
        let ood = given.ood.as_ref().map(|rows| rows.x.to_f64());
        let judged =
            Judged::new(&fitted, seconds, &given.validation, given.measured(), ood.as_ref().map(|x| x.view()))?;
        Ok((fitted, judged))
    }

    /// The place of the method that was asked for, or of the one with the lowest NLL on the validation rows; and why.
    fn chosen(&self, all: &[(FittedLaplace, Judged)], given: &Given) -> (usize, String) {
        if self.method != "auto" {
            let place = all.iter().position(|(fitted, _)| fitted.method.name() == self.method);
            return (place.expect("it was planned"), format!("{} was asked for", self.method));
        }
        let losses: Vec<f64> = all.iter().map(|(_, judged)| judged.validation_nll).collect();
        let best = (0..losses.len()).fold(0, |best, i| if losses[i] < losses[best] { i } else { best });
        let others: Vec<String> = (0..losses.len())
            .filter(|i| *i != best)
            .map(|i| format!("{} {:.4}", all[i].0.method.name(), losses[i]))
            .collect();
        let why = format!(
            "{} has the lowest NLL on {}: {:.4} ({})",
            all[best].0.method.name(),
            text::count(given.validation.n(), "validation row"),
            losses[best],
            others.join(", ")
        );
        (best, why)
    }
}
