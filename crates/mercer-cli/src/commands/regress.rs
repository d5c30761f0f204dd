//! `mercer regress`: numbers or classes, learnt from examples.

use crate::args::Ranks;
use crate::commands::predict::Predictions;
use crate::options::examples::{Examples, Outputs, Parts};
use crate::options::offered::{self, Given};
use crate::options::precomputed::{self, PRECOMPUTED};
use crate::options::values;
use crate::program::context::Context;
use crate::program::distributed;
use crate::program::output::{NewFile, Output};
use crate::program::usage::with_options;
use crate::show::certificate::{self, shortened};
use crate::show::columns::{Lengthscales, importances_of, metrics_of};
use crate::show::regress_page::{self, Scores};
use crate::show::table_with_notes::joined;
use crate::show::units;
use crate::text;
use clap::Args;
use mercer::apply::{
    Averages, Convergence, Criterion, Examples as InMemory, FoundKernel, HeldOutRows, Memory, Metrics, Outcome,
    Regression, RegressionTask, SolverName, TriedKernel,
};
use mercer::data::{Dataset, Scaling, Schema, TableBlocks, Target};
use mercer::kernel::Kernel;
use mercer::learn::{self, Source};
use mercer::operator::Precision;
use mercer::rng::Rng;
use mercer::spectrum::Origin;
use mercer::{Error, FitContext, Result, fail_if};
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;

/// Learn to predict a column: numbers by regression, words by classification
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer regress train.csv --target price --kernel \"matern52(2)\" --predict test.csv --out y.npy"
)]
pub struct Regress {
    #[command(flatten)]
    examples: Examples,

    /// Kernel expression (see `mercer kernels`, with the units of its numbers), or precomputed: the data is a kernel matrix [n, n], and new points are rows of
    /// their values with the n points, [m, n] [default: rbf(lengthscale=median); ntk-ensemble: ntk(depth=3, b_var=0.1)]
    #[arg(long, value_name = "EXPRESSION")]
    kernel: Option<String>,

    /// Precision of kernel values; sums are always taken in f64
    #[arg(long, default_value = "f64", value_parser = values::precision())]
    precision: Precision,

    /// How to learn
    #[arg(long, default_value = "auto", value_parser = offered::name::<RegressionTask>())]
    method: &'static str,

    #[command(flatten)]
    options: Given<RegressionTask>,

    /// Report to write: scores, the choice of alpha, the residual and the held-out error along the iterations
    #[arg(long, value_name = "FILE.html")]
    report: Option<NewFile>,

    #[command(flatten)]
    ranks: Ranks,
}

/// What is shown of the training rows.
pub struct Shown<'a> {
    pub y: Option<&'a Target>,
    pub columns: &'a [String],
    /// Those that a search found.
    pub lengthscales: Option<Lengthscales>,
    pub schema: Option<&'a Schema>,
    /// How the rows were read, where that was in blocks.
    pub blocks: Option<BlockwiseFit>,
}

/// A fit to rows in blocks: how often they were read, the memory that was expected, and the rows that the score on training rows is measured on.
#[derive(Serialize)]
pub struct BlockwiseFit {
    passes: usize,
    expected_memory: u64,
    train_rows: usize,
}

impl<'a> Shown<'a> {
    fn of(learnt: &Outcome, train: &'a Dataset, schema: Option<&'a Schema>, context: &Context) -> Result<Shown<'a>> {
        let lengthscales = match &learnt.search {
            Some(found) => Lengthscales::of(&found.kernel, learnt.model.as_ref(), train, schema, context.seed)?,
            None => None,
        };
        Ok(Shown { y: train.y.as_ref(), columns: &train.columns, lengthscales, schema, blocks: None })
    }
}

/// Writes the kernels that were tried with periods in the units of the columns.
fn in_units_of(learnt: &mut Outcome, schema: Option<&Schema>) {
    for tried in learnt.search.iter_mut().flat_map(|found| &mut found.tried) {
        tried.kernel = units::as_written(&tried.kernel, schema);
    }
}

/// Rows whose error an iterative solver measures along the way, where they have targets.
fn watched(rows: Option<&Dataset>) -> Option<HeldOutRows> {
    let rows = rows?;
    Some(HeldOutRows { y: rows.y.clone()?, x: rows.x.to_f64().into_owned() })
}

/// The targets of rows to learn from.
fn target(train: &Dataset) -> Result<&Target> {
    train.y.as_ref().ok_or_else(|| Error::input(format!("`{}` has no target to learn", train.name)))
}

/// Predictions of `learnt` for `data`.
fn predictions(learnt: &Outcome, data: &Dataset, context: &Context) -> Result<Predictions> {
    let Averages { scores, unreached: far } = learnt.model.scores_and_reach(data.x.to_f64().view())?;
    if !far.is_empty() {
        context.warn(format_args!(
            "{} of `{}` out of reach of every example: predicted as the mean",
            text::count(far.len(), "row"),
            data.name
        ));
    }
    Predictions::of_scores(learnt.model.as_ref(), data, scores)
}

/// The training rows that are scored: all of them, or a sample of many, whose score is known to less than a percent. A pair of images takes so
/// long that fewer are scored: all of them would take twice as long as the fit.
fn scored<'a>(train: &'a Dataset, learnt: &Outcome, context: &Context) -> Cow<'a, Dataset> {
    let images = Kernel::parse(&learnt.origin().kernel).is_ok_and(|kernel| kernel.sees_images());
    let most = if images { 500 } else { 20_000 };
    if train.n() <= 2 * most {
        return Cow::Borrowed(train);
    }
    let some = train.select(&Rng::new(context.seed).fork(0x7363_6f72).sample(train.n(), most));
    say_scored(&some, context);
    Cow::Owned(some)
}

/// Says that the score on training rows is that of `some` of them.
fn say_scored(some: &Dataset, context: &Context) {
    context.note(format_args!("the score on training rows is that of {} of them", text::grouped(some.n())));
}

fn warn_of_interrupt(learnt: &Outcome, context: &Context) {
    if let Some(found) = learnt.search.as_ref().filter(|found| found.cut_short) {
        let tried = text::count(found.tried.len(), "kernel");
        context.warn(format_args!("the search was interrupted: the kernel is the best of the {tried} tried so far"));
    }
}

/// The kernels that were tried, the best first.
fn searched(found: &FoundKernel) -> String {
    const MOST: usize = 20;
    let row = |tried: &TriedKernel| {
        vec![text::rounded(&shortened(&tried.kernel)), text::short(tried.alpha), text::number(tried.error, 4)]
    };
    let rows: Vec<Vec<String>> = found.tried.iter().take(MOST).map(row).collect();
    let more = found.tried.len() - rows.len();
    let error = match found.criterion {
        Criterion::LeftOut => "left-out MSE",
        Criterion::Likelihood => "-log likelihood/row",
    };
    let table = text::table(&["kernel tried", "alpha", error], &rows);
    let on = format!("on {}", text::count(found.rows, "row"));
    if more > 0 { format!("{table}{on}; {more} more were worse\n") } else { format!("{table}{on}\n") }
}

/// A few of the numbers on the way, each after the iterations that it was found after.
fn on_the_way(what: &str, numbers: &[(usize, String)]) -> String {
    const SHOWN: usize = 6;
    if numbers.len() < 3 {
        return String::new();
    }
    let mut places: Vec<usize> = (0..SHOWN).map(|i| i * (numbers.len() - 1) / (SHOWN - 1)).collect();
    places.dedup();
    let shown: Vec<String> = places.into_iter().map(|i| format!("{} after {}", numbers[i].1, numbers[i].0)).collect();
    format!("\n{what} on the way: {}", shown.join(", "))
}

/// How the iterative solver `name` went, which counts in `unit`s.
fn converged(SolverName { name, unit }: SolverName, found: &Convergence) -> Option<String> {
    let (iterations, residual) = (found.iterations?, found.residual?);
    let residuals: Vec<_> = found.curve.iter().map(|r| text::error(*r)).zip(1..).map(|(r, i)| (i, r)).collect();
    let errors: Vec<_> = found.held_out.iter().map(|at| (at.iteration, text::number(at.error, 4))).collect();
    let (count, residual) = (text::count(iterations, unit), text::error(residual));
    let (residuals, errors) = (on_the_way("residuals", &residuals), on_the_way("held-out errors", &errors));
    Some(format!("{name} took {count} to a relative residual of {residual}{residuals}{errors}\n"))
}

impl Regress {
    pub fn run(self, context: &Context) -> Result<()> {
        let outputs = self.examples.outputs()?;
        let page = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let mut regression = self.regression()?;
        let report = self.report.as_ref().map(|_| "--report".to_owned());
        let refused = report.or_else(|| self.refused_in_blocks(&regression));
        let matrix = self.is_matrix();
        let on_all_points = !context.group.is_single() && regression.shards();
        if !context.group.is_single() {
            fail_if!(
                matrix || refused.is_some() && !on_all_points,
                "on several ranks, {} not run; the methods nystrom, random-features and linear do, and, with a kernel whose parameters are \
                 given or lengthscale=median, --method ridge --solver cg, askotch, richardson and eigenpro without --rank",
                refused.as_ref().map_or("--kernel precomputed does".into(), |option| format!("{option} does"))
            );
        }
        if !matrix
            && !on_all_points
            && let Some(large) =
                self.examples.large(regression.in_blocks().ok().filter(|_| refused.is_none()).as_ref(), context)?
        {
            return match refused {
                None => self.run_blocks(large, regression, outputs, context),
                Some(refused) => Err(self.examples.needs_all_rows(&large, &refused, context)),
            };
        }
        let scale = if matrix { Some(Scaling::None) } else { self.examples.scale };
        let shared = on_all_points && self.examples.can_share();
        let shared = shared.then(|| self.examples.read_shared(context)).transpose()?;
        let (Parts { schema, train, held_out, new }, shared) = match shared {
            Some((parts, data)) => (parts, Some(data)),
            None => (self.examples.read(scale, context)?, None),
        };
        match &shared {
            Some(_) => say_scored(&train, context),
            None => distributed::check_same_rows(&train)?,
        }
        regression.kernels = units::for_columns_said(&regression.kernels, schema.as_ref(), context);
        // Rows that are scored anyway are watched along the iterations.
        let watched = watched(held_out.as_ref().or(new.as_ref()));
        let mut learnt = context.fitting(|fit| {
            let fit = FitContext { precision: self.precision, data: &self.examples.data, ..*fit };
            if let Some(data) = &shared {
                return regression.learn(Source::Shards { data, watched }, &fit);
            }
            let (y, k) = (target(&train)?, matrix.then(|| precomputed::matrix(&train)).transpose()?);
            let x = k.as_ref().map_or(train.x.rows(), |k| k.view().into());
            regression.learn(Source::Memory(InMemory { x, y, watched }), &fit)
        })?;
        in_units_of(&mut learnt, schema.as_ref());
        learnt.why.iter().for_each(|why| context.note(with_options(why)));
        learnt.model.as_ref().notes().iter().for_each(|note| context.warn(with_options(note)));
        warn_of_interrupt(&learnt, context);
        outputs.write_model(learnt.model.as_ref(), schema.as_ref(), context);
        let score = |data: &Dataset| predictions(&learnt, data, context).map(|predictions| predictions.score(data));
        let on_train = score(&scored(&train, &learnt, context))?;
        let on_held_out = held_out.as_ref().map(score).transpose()?.flatten();
        let predicted = new.as_ref().map(|new| predictions(&learnt, new, context)).transpose()?;
        if let (Some(out), Some(predicted), Some(new)) = (&outputs.out, &predicted, &new) {
            predicted.write(out, context)?;
            Outputs::wrote(out, new.n(), context);
        }
        let on_new = new.as_ref().zip(predicted).and_then(|(new, predicted)| predicted.score(new));
        let scores = [("train", on_train), ("holdout", on_held_out), ("test", on_new)];
        let shown = Shown::of(&learnt, &train, schema.as_ref(), context)?;
        if let Some(page) = page {
            let report = regress_page::page(&self.examples.data, &learnt, &scores, &shown);
            context.written(&page, page.text(&report.command(&context.command).html()));
        }
        self.show(&learnt, &shown, &scores, outputs.out, context)
    }

    /// Learns from rows that do not fit into memory.
    fn run_blocks(
        &self,
        large: TableBlocks,
        mut regression: Regression,
        outputs: Outputs,
        context: &Context,
    ) -> Result<()> {
        let (data, expected_memory) = self.examples.read_blocks(large, &regression.in_blocks()?, context)?;
        regression.kernels = units::for_columns_said(&regression.kernels, Some(data.schema()), context);
        let mut learnt = context.fitting(|fit| {
            // A pass that ends early on one rank ends at another block on the next.
            let interrupt = fit.interrupt.filter(|_| context.group.is_single());
            let fit = FitContext { precision: self.precision, data: &self.examples.data, interrupt, ..*fit };
            regression.learn(Source::Blocks(&data), &fit)
        })?;
        in_units_of(&mut learnt, Some(data.schema()));
        let sample = data.sample().1;
        let blocks = BlockwiseFit { passes: data.passes(), expected_memory, train_rows: sample.n() };
        learnt.why.iter().for_each(|why| context.note(with_options(why)));
        learnt.model.as_ref().notes().iter().for_each(|note| context.warn(with_options(note)));
        warn_of_interrupt(&learnt, context);
        outputs.write_model(learnt.model.as_ref(), Some(data.schema()), context);
        let score = |data: &Dataset| predictions(&learnt, data, context).map(|predictions| predictions.score(data));
        let (on_train, on_held_out) = (score(sample)?, data.held_out().map(score).transpose()?.flatten());
        say_scored(sample, context);
        let on_new =
            self.examples.predict_blocks(learnt.model.as_ref(), data.schema(), outputs.out.as_ref(), context)?;
        let scores = [("train", on_train), ("holdout", on_held_out), ("test", on_new)];
        let shown = Shown { blocks: Some(blocks), ..Shown::of(&learnt, sample, Some(data.schema()), context)? };
        self.show(&learnt, &shown, &scores, outputs.out, context)
    }

    /// The regression that the options ask for; what can be refused is, before any work.
    fn regression(&self) -> Result<Regression> {
        let (matrix, Examples { holdout, scale, .. }) = (self.is_matrix(), &self.examples);
        let kernel = self.kernel.clone().filter(|_| !matrix);
        let known = RegressionTask { kernel, matrix, intercept: None, precision: self.precision };
        let regression = learn::regressions().build(self.method, self.options.options(), &known)?;
        let whole = *holdout == 0.0 && scale.is_none() && self.precision == Precision::F64;
        fail_if!(matrix && !whole, "--kernel precomputed is without --holdout, --scale and --precision");
        self.options.check_files()?;
        Ok(regression)
    }

    /// Whether the data is a kernel matrix.
    fn is_matrix(&self) -> bool {
        self.kernel.as_deref() == Some(PRECOMPUTED)
    }

    /// What of the options needs all rows in memory, where something does.
    fn refused_in_blocks(&self, regression: &Regression) -> Option<String> {
        let by_method = !learn::regressions().find(self.method).is_ok_and(|entry| entry.can.blocks);
        let what = if by_method { format!("--method {}", self.method) } else { "--solver".into() };
        regression.in_blocks().is_err().then_some(what)
    }

    fn show(
        &self,
        learnt: &Outcome,
        shown: &Shown,
        scores: &Scores,
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let Shown { y, columns, schema, lengthscales, blocks } = shown;
        let origin = &units::origin_as_written(learnt.origin(), *schema);
        let left_out = learnt.tried.iter().map(|t| t.error).filter(|e| e.is_finite()).reduce(f64::min);
        let (name, value) = learnt.parameter;
        let mut object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": self.examples.data, "n": origin.n, "d": origin.d,
            name: value, "rank": learnt.rank, "why": learnt.why, "tried": learnt.tried,
            "iterations": learnt.convergence.iterations, "residual": learnt.convergence.residual,
            "seconds": origin.seconds, "out": out,
        });
        object[if learnt.measure == "log loss" { "left_out_log_loss" } else { "left_out_mse" }] = json!(left_out);
        let Convergence { curve, held_out, .. } = &learnt.convergence;
        if !curve.is_empty() {
            object["curve"] = json!(curve);
        }
        if !held_out.is_empty() {
            object["held_out_curve"] = json!(held_out);
        }
        if let Some(found) = &learnt.search {
            object["search"] = json!({
                "rows": found.rows, "criterion": found.criterion, "tried": found.tried, "cut_short": found.cut_short,
            });
        }
        if let Some(found) = lengthscales {
            object["lengthscales"] = found.object();
        }
        if let Some(Metrics { tried, form, rounds }) = &learnt.metrics {
            object["metric"] = json!({ "form": form, "rounds": rounds, "tried": tried });
            object["importances"] = json!(learnt.model.as_ref().importances());
        }
        if let Some(blocks) = blocks {
            object["blocks"] = json!(blocks);
        }
        if let Some(Memory { host, device }) = learnt.expected {
            object["expected_memory"] = json!(host);
            if device.is_some() {
                object["expected_device_memory"] = json!(device);
            }
        }
        for (part, score) in scores {
            object[*part] = json!(score);
        }
        context.estimated_result(&object, learnt.expected, || {
            let task = match y {
                Some(Target::Classes { names, .. }) => format!("{} classes", names.len()),
                _ => "numbers".into(),
            };
            let stretched = learnt.model.used_kernel();
            let kernel = stretched.as_ref().map_or_else(|| origin.kernel.clone(), Kernel::to_string);
            let used = Origin { kernel, ..origin.clone() };
            let used = certificate::origin(&used, &format!("on {}", self.examples.data), &format!(", {task}"));
            let chosen = left_out.map(text::short).map_or_else(String::new, |error| {
                format!(", chosen for its {} {error} on left-out points", learnt.measure)
            });
            let of =
                stretched.map_or_else(String::new, |_| format!(" on {}", text::rounded(&shortened(&origin.kernel))));
            let mut said = format!("{used}\n{name} {}{of}{chosen}\n", text::short(value));
            said += &converged(learnt.solver, &learnt.convergence).unwrap_or_default();
            if let Some(found) = &learnt.search {
                said += &format!("\n{}", searched(found));
            }
            if let Some(found) = lengthscales {
                said += &format!("\n{}", found.table().text());
            }
            if let Some(metrics) = &learnt.metrics {
                said += &format!("\n{}", metrics_of(metrics).text());
            }
            if let Some(importances) = learnt.model.as_ref().importances() {
                said += &format!("\n{}", joined(&importances_of(importances, columns)));
            }
            let (mut headings, mut rows) = (vec![], vec![]);
            for (part, score) in scores.iter().filter_map(|(part, score)| Some((part, score.as_ref()?))) {
                let (names, cells): (Vec<&str>, Vec<String>) = score.cells().into_iter().unzip();
                headings = [&["rows"][..], &names].concat();
                rows.push([vec![part.to_string()], cells].concat());
            }
            said += &format!("\n{}", text::table(&headings, &rows));
            if let Some((part, details)) = regress_page::classes(scores) {
                said += &format!("\nclasses of {part}:\n{}", joined(&details));
            }
            said
        })
    }
}
