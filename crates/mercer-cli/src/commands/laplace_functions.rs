//! `mercer laplace --logits`: a network of another program, by its outputs and functions.

use super::laplace::Laplace;
use super::laplace_shown::{Counts, Outcome};
use crate::options::function_files::Opened;
use crate::options::input::{Beside, say_unscored};
use crate::options::validation_rows::ValidationRows;
use crate::program::context::Context;
use crate::show::uncertainty::{About, Answers, Judged, halves};
use crate::text;
use mercer::apply::Predict;
use mercer::data::{Dataset, Scaling, Task, split_rows};
use mercer::error::human_bytes;
use mercer::laplace::{FittedFunctionLaplace, FunctionLaplace, FunctionMethod, NetworkFunctions, Prior};
use mercer::linalg::matmul;
use mercer::{FitContext, Result, fail_if};
use ndarray::Array2;
use serde_json::json;
use std::time::Instant;

/// Eigenfunctions by default.
const COUNT: usize = 64;

/// A network at rows whose targets are known.
struct Part<'a> {
    network: NetworkFunctions<'a>,
    rows: Dataset,
}

/// All rows that the command is given.
struct Given<'a> {
    fit: Part<'a>,
    validation: Part<'a>,
    test: Option<Part<'a>>,
    ood: Option<NetworkFunctions<'a>>,
}

impl<'a> Part<'a> {
    fn new(opened: &'a Opened, rows: Dataset, chosen: Option<&[usize]>) -> Result<Part<'a>> {
        let name = &rows.name;
        fail_if!(
            opened.n() != rows.n(),
            "--logits has outputs of {} rows, {name} has {}; give the same rows in the same order",
            opened.n(),
            rows.n()
        );
        let (mut network, mut rows) = (opened.network()?, rows);
        if let Some((_, Some(known))) = rows.known() {
            network = network.at(known);
        }
        rows = rows.labelled();
        if let Some(chosen) = chosen {
            (network, rows) = (network.at(chosen), rows.select(chosen));
        }
        let rows = if opened.width() == 1 { rows.with_numbers() } else { rows.with_classes() }?;
        Ok(Part { network, rows })
    }

    /// Some of the rows, in the given order.
    fn select(&self, rows: &[usize]) -> Part<'a> {
        Part { network: self.network.clone().at(rows), rows: self.rows.select(rows) }
    }

    fn target(&self) -> &mercer::data::Target {
        self.rows.y.as_ref().expect("labelled rows have targets")
    }
}

impl Laplace {
    /// The command for a network that is given by its functions.
    pub(super) fn of_functions(&self, context: &Context) -> Result<()> {
        let outputs = self.outputs()?;
        fail_if!(
            self.data.is_some(),
            "--logits stands for the network; give the rows alone, not `{}` and `{}`",
            self.first,
            self.source()
        );
        fail_if!(
            self.prior == Prior::Likelihood,
            "--prior likelihood needs the network's parameters, which --logits does not tell; use --prior validation"
        );
        let share = self.validation_rows.share(self.source(), context)?;
        let ValidationRows { validation, test, ood, .. } = &self.validation_rows;
        let sources = [Some(self.source()), share.is_none().then_some(&**validation)];
        let sources: Vec<&str> = sources.into_iter().chain([test.as_deref(), ood.as_deref()]).flatten().collect();
        let opened = self.files.open(&sources, context)?;
        let given = self.given(&opened, share, context)?;
        let methods = self.function_methods(&given, context)?;
        let fit =
            |(i, method): (usize, &FunctionMethod)| self.function_fit(*method, (i, methods.len()), &given, context);
        let all = methods.iter().enumerate().map(fit).collect::<Result<Vec<_>>>()?;
        let measured = given.test.as_ref().unwrap_or(&given.validation);
        let counts = Counts {
            fit: given.fit.network.n(),
            validation: given.validation.network.n(),
            measured: measured.network.n(),
        };
        self.finish(&all, counts, None, outputs, context)
    }

    /// The rows with their targets, beside what the files say of them.
    fn given<'a>(&self, opened: &'a [Opened], share: Option<f64>, context: &Context) -> Result<Given<'a>> {
        let task = if opened[0].width() == 1 { Task::Regression } else { Task::Classification };
        let table = self.reader.table(self.source(), Some(task), context)?;
        let schema = self.reader.schema(&table, Some(Scaling::None), context)?;
        let rows = crate::options::input::encoded(&schema, table, context)?;
        let other = |beside: Beside| {
            let rows = self.reader.open_beside(beside, &schema, context)?;
            say_unscored(&rows, context);
            beside.check(&rows, &schema)?;
            Ok(rows)
        };
        let mut rest = opened[1..].iter();
        let mut next = || rest.next().expect("a file for each set of rows");
        let (fit, validation) = match share {
            Some(share) => {
                let [kept, held_out] = split_rows(rows.n(), share, context.seed)?;
                (Part::new(&opened[0], rows.clone(), Some(&kept))?, Part::new(&opened[0], rows, Some(&held_out))?)
            }
            None => (
                Part::new(&opened[0], rows, None)?,
                Part::new(next(), other(self.validation_rows.validation_rows())?, None)?,
            ),
        };
        let test = self.validation_rows.test_rows(context);
        let test = test.map(|beside| Part::new(next(), other(beside)?, None)).transpose()?;
        self.validation_rows.check_ood(opened[0].width() == 1)?;
        let ood = self.validation_rows.ood.as_ref().map(|_| next().network()).transpose()?;
        Ok(Given { fit, validation, test, ood })
    }

    /// The methods to fit, baselines first. Says what each will take.
    fn function_methods(&self, given: &Given, context: &Context) -> Result<Vec<FunctionMethod>> {
        let network = &given.fit.network;
        let (n, c, k) = (network.n(), network.outputs(), network.functions());
        let all = FunctionMethod::all(self.functions.unwrap_or(COUNT).min(k));
        let names: Vec<&str> = all.iter().map(|method| method.name()).collect();
        fail_if!(
            self.method != "auto" && !names.contains(&&*self.method),
            "--method {} needs the network itself; for --logits there are {}",
            self.method,
            names.join(", ")
        );
        fail_if!(
            c == 1 && self.method == "temperature",
            "the temperature scales logits of classes; the network predicts a number"
        );
        let rate = rate();
        let (mut planned, mut rows) = (vec![], vec![]);
        for method in all {
            let posterior = !matches!(method, FunctionMethod::Map | FunctionMethod::Temperature);
            let asked = self.method == "auto" || self.method == method.name();
            if posterior && !asked || c == 1 && method == FunctionMethod::Temperature {
                continue;
            }
            let [n, c, order] = [n, c, k].map(|v| v as f64);
            // One or two Gram matrices, one or two eigenproblems; τ sees the validation rows once for each of its four grids.
            let width = if let FunctionMethod::Eigenfunctions { count } = method { count as f64 } else { order };
            let others = 6.0 * given.validation.network.n() as f64;
            let work = n * c * order * (order + width) + 20.0 * order.powi(3) + others * c * order * width;
            let seconds = if posterior { work * rate } else { 0.0 };
            let bytes = method.bytes(network.n(), network.outputs(), k);
            let remark = self.left_out(method.name(), seconds, bytes, context);
            if remark.is_none() {
                planned.push(method);
            }
            let cells = vec![method.name().into(), human_bytes(bytes), text::seconds(seconds)];
            rows.push([cells, vec![remark.unwrap_or_default()]].concat());
        }
        let table = text::table(&["method", "memory", "time", "remark"], &rows);
        let (rows, functions) = (text::count(n, "row"), text::count(k, "function"));
        context.note(format_args!("estimated for {rows} and {functions}:\n{}", table.trim_end()));
        Ok(planned)
    }

    /// Fits a method, the `i`-th of `count`, and measures it.
    fn function_fit(
        &self,
        method: FunctionMethod,
        (i, count): (usize, usize),
        given: &Given,
        context: &Context,
    ) -> Result<Outcome> {
        let start = Instant::now();
        let Given { fit, validation, test, ood } = given;
        let measured = test.as_ref().unwrap_or(validation);
        let tempered = self.tempered && fit.network.outputs() > 1;
        let laplace = FunctionLaplace { predictive: self.predictive(), tempered, ..FunctionLaplace::new(method) };
        let halves = halves(validation.network.n(), context.seed)?;
        let parts = [validation.select(&halves[0]), validation.select(&halves[1])];
        let mut fits = context.fitting(|context| {
            let stage = context.stage(method.name(), i + 1, count);
            let context = FitContext { data: self.source(), progress: &stage, ..*context };
            let choices = [validation, &parts[0], &parts[1]].map(|part| Some((&part.network, part.target())));
            laplace.fit_on(&fit.network, fit.target(), &choices, &context)
        })?;
        let fit_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let by_other = |half: usize| answers(&fits[2 - half], &parts[half].network);
        let on_validation = Answers::joined(&halves, [by_other(0)?, by_other(1)?]);
        let mut predict_seconds = start.elapsed().as_secs_f64();
        let fitted = fits.swap_remove(0);
        fitted.notes().iter().for_each(|note| context.warn(format_args!("{}: {note}", method.name())));
        let start = Instant::now();
        let on_test = test.as_ref().map(|part| answers(&fitted, &part.network)).transpose()?;
        if on_test.is_some() {
            predict_seconds = start.elapsed().as_secs_f64();
        }
        let seconds = [fit_seconds, predict_seconds];
        let mut object = json!({ "method": method.name(), "seconds": fit_seconds });
        let (name, value) =
            if fitted.classes.is_empty() { ("noise", fitted.noise) } else { ("temperature", fitted.temperature) };
        object[name] = json!(value);
        if !matches!(method, FunctionMethod::Map | FunctionMethod::Temperature) {
            object["prior_precision"] = json!(fitted.found.value);
        }
        let about = About { name: method.name(), object, classes: fitted.classes.clone(), seconds };
        let on_ood = ood.as_ref().map(|network| answers(&fitted, network)).transpose()?;
        let judged = Judged::new(
            about,
            (&validation.rows, &on_validation),
            (&measured.rows, on_test.as_ref().unwrap_or(&on_validation)),
            on_ood.as_ref(),
        )?;
        Ok(Outcome { name: method.name(), model: Box::new(fitted), judged })
    }
}

fn answers(fitted: &FittedFunctionLaplace, network: &NetworkFunctions) -> Result<Answers> {
    Ok(Answers { scores: fitted.scores_at(network)?, deviations: fitted.deviations_at(network)? })
}

/// Seconds for a multiply-add of a product of matrices, measured on small ones.
fn rate() -> f64 {
    const ORDER: usize = 256;
    let a = Array2::from_shape_fn((ORDER, ORDER), |(i, j)| ((i + 3 * j) % 7) as f64);
    matmul(a.view(), a.view());
    let start = Instant::now();
    let product = matmul(a.view(), a.view());
    assert!(product[[0, 0]] >= 0.0);
    start.elapsed().as_secs_f64() / (ORDER * ORDER * ORDER) as f64
}
