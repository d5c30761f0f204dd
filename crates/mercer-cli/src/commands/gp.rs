//! `mercer gp`: numbers with standard deviations and intervals, or classes with probabilities, by a Gaussian process.

use super::predict::Predictions;
use crate::options::examples::{Examples, Outputs, Parts};
use crate::options::input::warn_of_other_kind;
use crate::options::offered::{self, Given};
use crate::options::values::number;
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::program::usage::with_options;
use crate::show::certificate;
use crate::show::columns::Lengthscales;
use crate::show::gp_page;
use crate::show::process_score::{self, ProcessScore};
use crate::show::table_with_notes::joined;
use crate::show::units;
use crate::text;
use clap::Args;
use mercer::apply::{FittedProcess, IntervalReport, Likelihood, Predict, ProcessTask, interval_factor};
use mercer::data::{Dataset, Schema, Target};
use mercer::kernel::Expression;
use mercer::{Error, FitContext, Result, learn};
use mercer_figure::report::Table;
use ndarray::{Array2, Axis};
use serde_json::json;

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
    #[arg(long, default_value = "auto", value_parser = offered::name::<ProcessTask>())]
    method: &'static str,

    /// Functions sampled at the rows, an array [S, n]: their kernel FᵀF/S in place of --kernel. New rows are predicted from the same
    /// functions there, by `mercer predict --samples`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "scale", "predict"])]
    samples: Option<String>,

    #[command(flatten)]
    options: Given<ProcessTask>,

    /// Level of the intervals of numbers
    #[arg(long, value_name = "LEVEL", default_value = "0.95", value_parser = level, allow_negative_numbers = true)]
    level: f64,

    /// Report to write: measures, the posterior over the line or the plane, reliability diagrams of classes
    #[arg(long, value_name = "FILE.html")]
    report: Option<NewFile>,
}

fn level(word: &str) -> Result<f64, String> {
    number(word, |v| v > 0.0 && v < 1.0, "it must lie between 0 and 1")
}

impl Gp {
    pub fn run(self, context: &Context) -> Result<()> {
        let outputs = self.examples.outputs()?;
        let page = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let processes = learn::processes();
        processes.check(processes.find(self.method)?, self.options.options())?;
        let kernel = Expression::parse(&self.kernel)?;
        let Parts { schema, train, held_out, new } = match &self.samples {
            None => self.examples.read(self.examples.scale, context)?,
            Some(file) => self.examples.read_samples(file, context)?,
        };
        let kernel = units::for_columns_said(&[kernel], schema.as_ref(), context).remove(0);
        let fitted = context.fitting(|fit| {
            let fit = FitContext { data: &self.examples.data, ..*fit };
            self.fit(kernel, &train, &fit, context)
        })?;
        let fitted = fitted.as_ref();
        fitted.notes().iter().for_each(|note| context.warn(with_options(note)));
        outputs.write_model(fitted, schema.as_ref(), context);
        let left_out = ProcessScore::left_out(fitted, &train, self.level)?;
        let mut reports: Vec<(&str, ProcessScore)> = left_out.map(|report| ("left out", report)).into_iter().collect();
        for (name, data) in [("holdout", &held_out), ("test", &new)] {
            let Some(data) = data else { continue };
            let out = outputs.out.as_ref().filter(|_| name == "test");
            reports.extend(self.score(fitted, data, out, context)?.map(|report| (name, report)));
        }
        if let Some(page) = page {
            let others = [("holdout", &held_out), ("test", &new)];
            let others = others.map(|(name, data)| (name, data.clone().map(Dataset::labelled)));
            let others: Vec<_> = others.iter().filter_map(|(name, data)| Some((*name, data.as_ref()?))).collect();
            let report = self.page(fitted, &reports, schema.as_ref());
            let report = report.page(&self.title(), schema.as_ref(), &train, &others)?.command(&context.command);
            context.written(&page, page.text(&report.html()));
        }
        self.show(fitted, (&train, schema.as_ref()), &reports, outputs.out, context)
    }

    fn title(&self) -> String {
        format!("A Gaussian process on {}", self.examples.data)
    }

    /// What the report shows of a fitted process.
    fn page<'a>(
        &self,
        fitted: &'a dyn FittedProcess,
        reports: &[(&str, ProcessScore)],
        schema: Option<&Schema>,
    ) -> gp_page::Process<'a> {
        let (origin, likelihood) = (fitted.origin(), fitted.likelihood());
        let mut facts = vec![
            ("method", origin.method.clone()),
            ("kernel", units::as_written(&origin.kernel, schema)),
            (likelihood.name, text::number(likelihood.value, 6)),
        ];
        facts.extend(fitted.noise().map(|noise| ("deviation of the noise", text::number(noise.sqrt(), 4))));
        let (headings, rows) = rows(reports);
        gp_page::Process { model: fitted, facts, measures: Table::of(&headings, &rows) }
    }

    /// The process for these rows; says why it is computed as it is.
    fn fit(
        &self,
        kernel: Expression,
        train: &Dataset,
        fit: &FitContext,
        context: &Context,
    ) -> Result<Box<dyn FittedProcess>> {
        let y = train.y.as_ref().ok_or_else(|| Error::input("name the column to predict by --target"))?;
        let size = (train.n(), train.d());
        let task = match self.samples {
            None => ProcessTask::new(kernel, size, y, fit),
            Some(_) => ProcessTask::of_functions(size, y, fit)?,
        };
        let process = learn::processes().build(self.method, self.options.options(), &task)?;
        process.why.iter().for_each(|why| context.note(why));
        process.fit(train.x.to_f64().view(), y, fit)
    }

    /// Predicts the rows of `data`, writes the predictions to `out`, and scores them where the target is known.
    fn score(
        &self,
        fitted: &dyn FittedProcess,
        data: &Dataset,
        out: Option<&Output>,
        context: &Context,
    ) -> Result<Option<ProcessScore>> {
        let score = match intervals(fitted, data, self.level)? {
            None => {
                let predictions = Predictions::of(fitted, data)?;
                out.map(|out| predictions.write(out, context)).transpose()?;
                predictions.score(data, context).map(ProcessScore::Classes)
            }
            Some(intervals) => {
                let headings = ["mean", "deviation", "low", "high"].map(String::from);
                out.map(|out| out.matrix(intervals.view(), &headings)).transpose()?;
                match data.known() {
                    Some((Target::Values(truth), rows)) => {
                        let intervals = rows.map_or_else(|| intervals.clone(), |rows| intervals.select(Axis(0), rows));
                        let column = |j: usize| intervals.column(j).to_vec();
                        let report = IntervalReport::new(truth, &column(0), &column(1), self.level)?;
                        Some(ProcessScore::Numbers(report))
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
        Ok(score)
    }

    /// The lengthscales of the kernel, and how much each column changes the prediction.
    fn lengthscales(
        &self,
        fitted: &dyn FittedProcess,
        (train, schema): (&Dataset, Option<&Schema>),
        context: &Context,
    ) -> Result<Option<Lengthscales>> {
        match self.samples {
            Some(_) => Ok(None),
            None => Lengthscales::of(fitted.kernel(), fitted, train, schema, context.seed),
        }
    }

    fn show(
        &self,
        fitted: &dyn FittedProcess,
        (train, schema): (&Dataset, Option<&Schema>),
        reports: &[(&str, ProcessScore)],
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let origin = &units::origin_as_written(fitted.origin(), schema);
        let (search, data) = (fitted.search(), &self.examples.data);
        let lengthscales = self.lengthscales(fitted, (train, schema), context)?;
        let Likelihood { name: what, value: likelihood, error } = fitted.likelihood();
        let iteration = fitted.iteration();
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
                iteration.map_or_else(String::new, |done| process_score::iteration(&done) + "\n"),
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
            if let Some((name, ProcessScore::Classes(score))) = reports.last() {
                said += &format!("\nclasses of {name}:\n{}", joined(&score.details()));
            }
            said
        })
    }
}

/// Headings and rows of a table of reports.
fn rows(reports: &[(&str, ProcessScore)]) -> (Vec<String>, Vec<Vec<String>>) {
    let (mut headings, mut rows) = (vec![], vec![]);
    for (name, report) in reports {
        let (names, cells): (Vec<String>, Vec<String>) = report.cells().into_iter().unzip();
        headings = [vec!["rows".into()], names].concat();
        rows.push([vec![name.to_string()], cells].concat());
    }
    (headings, rows)
}

/// Mean, standard deviation and both ends of the interval at the rows of `data`, `[n, 4]`; none of classes.
fn intervals(fitted: &dyn Predict, data: &Dataset, level: f64) -> Result<Option<Array2<f64>>> {
    let x = data.x.to_f64();
    let Some(deviations) = fitted.deviations(x.view())? else { return Ok(None) };
    let (mean, z) = (fitted.scores(x.view())?, interval_factor(level)?);
    Ok(Some(Array2::from_shape_fn((data.n(), 4), |(i, j)| {
        let (mean, deviation) = (mean[[i, 0]], deviations[i]);
        [mean, deviation, mean - z * deviation, mean + z * deviation][j]
    })))
}
