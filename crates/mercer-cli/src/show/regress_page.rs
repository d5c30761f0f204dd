//! The report of `mercer regress`: scores, the choice of α, and how an iterative solver went.

use crate::commands::regress::Shown;
use crate::show::columns::{importances_of, metrics_of};
use crate::show::page as parts;
use crate::show::score::Score;
use crate::show::table_with_notes::TableWithNotes;
use crate::show::units;
use crate::text;
use mercer::apply::{Convergence, Importances, Outcome, SolverName};
use mercer::data::Target;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};

/// The score on each part of the data, where it has targets.
pub type Scores<'a> = [(&'a str, Option<Score>)];

/// What is known of each class, for the last part of the data: that which is the least known to the model.
pub fn classes<'a>(scores: &Scores<'a>) -> Option<(&'a str, Vec<TableWithNotes>)> {
    let last = scores.iter().rev().find_map(|(part, score)| Some((*part, score.as_ref()?.details())));
    last.filter(|(_, details)| !details.is_empty())
}

/// The page for a model fitted to `data`, with what is shown of its rows.
pub fn page(data: &str, learnt: &Outcome, scores: &Scores, shown: &Shown) -> Report {
    let Shown { y, columns, lengthscales, schema, .. } = shown;
    let (y, columns) = (*y, *columns);
    let task = if matches!(y, Some(Target::Classes { .. })) { "Classification" } else { "Regression" };
    let mut page = Report::new(format!("{task} on {data}"));
    let (mut headings, mut rows) = (vec![], vec![]);
    for (part, score) in scores.iter().filter_map(|(part, score)| Some((part, score.as_ref()?))) {
        let (names, cells): (Vec<&str>, Vec<String>) = score.cells().into_iter().unzip();
        headings = [&["rows"][..], &names].concat();
        rows.push([vec![part.to_string()], cells].concat());
    }
    page = page.section("Scores").table(Table::of(&headings, &rows));
    if let Some((part, details)) = classes(scores) {
        page = page.text(&format!("Classes of {part}:"));
        page = details.into_iter().fold(page, |page, table| table.onto(page));
    }
    if let Some(importances) = learnt.model.importances() {
        page = page.section("Importance of columns").figure(&importance_bars(importances, columns), IMPORTANCE);
        page = importances_of(importances, columns).into_iter().fold(page, |page, table| table.onto(page));
    }
    if let Some(metrics) = &learnt.metrics {
        page = metrics_of(metrics).onto(page.section("Metric"));
    }
    if let Some(lengthscales) = lengthscales {
        page = lengthscales.table().onto(page.section("Lengthscales of columns"));
    }
    if learnt.tried.len() > 1 {
        let tried = |of: fn(&mercer::apply::Tried) -> f64| learnt.tried.iter().map(of).collect::<Vec<f64>>();
        let plot = Plot::new(format!("Choice of {}", learnt.parameter.0)).x_log(learnt.parameter.0);
        let plot = plot.y_log(learnt.measure).line("", &tried(|t| t.value), &tried(|t| t.error)).markers();
        let caption = "The error on left-out points of every value that was tried; the least is taken.";
        page = page.section("Choice").figure(&plot.size(760.0, 360.0).svg(), caption);
    }
    if !learnt.convergence.curve.is_empty() {
        let curves = curves(&learnt.convergence, learnt.solver.unit, y);
        page = page.section("Iterations").figure(&curves, &caption(learnt));
    }
    for note in learnt.model.notes() {
        page = page.text(&format!("Note: {note}."));
    }
    let origin = learnt.origin();
    let mut facts = vec![
        ("method", origin.method.clone()),
        ("kernel", text::rounded(&units::as_written(&origin.kernel, *schema))),
        ("points", format!("{} of {} columns", text::grouped(origin.n), origin.d)),
        (learnt.parameter.0, text::short(learnt.parameter.1)),
        ("time of the fit", text::seconds(origin.seconds)),
    ];
    facts.extend(learnt.rank.map(|rank| ("landmarks or features", text::grouped(rank))));
    facts.extend(learnt.why.clone().map(|why| ("why this method", why)));
    facts.push(("program", parts::program()));
    page.section("How it was made").table(parts::facts(&facts))
}

const IMPORTANCE: &str = "How much the prediction changes along each column.";

/// The shares of the most important columns.
fn importance_bars(importances: &Importances, columns: &[String]) -> String {
    /// Names stay apart up to so many.
    const MOST: usize = 12;
    let mut order: Vec<usize> = (0..importances.columns.len().min(columns.len())).collect();
    order.sort_by(|a, b| importances.columns[*b].total_cmp(&importances.columns[*a]));
    order.truncate(MOST);
    let names: Vec<&String> = order.iter().map(|i| &columns[*i]).collect();
    let shares: Vec<f64> = order.iter().map(|i| importances.columns[*i]).collect();
    let plot = Plot::new("Importance of columns").y("share of the mean squared gradient").bars("", &names, &shares);
    plot.size(760.0, 360.0).svg()
}

/// The residual, and the error on held-out rows where there are some, over the iterations.
fn curves(found: &Convergence, unit: &str, y: Option<&Target>) -> String {
    let count: Vec<f64> = (1..=found.curve.len()).map(|i| i as f64).collect();
    let x = format!("{unit}s");
    let residual = Plot::new("Residual").x(&x).y_log("relative residual").line("", &count, &found.curve);
    if found.held_out.is_empty() {
        return residual.size(760.0, 360.0).svg();
    }
    let label = match y {
        Some(Target::Classes { .. }) => "share of wrong classes",
        _ => "root of the mean squared error",
    };
    let iterations: Vec<f64> = found.held_out.iter().map(|at| at.iteration as f64).collect();
    let errors: Vec<f64> = found.held_out.iter().map(|at| at.error).collect();
    let held_out = Plot::new("Error on held-out rows").x(&x).y(label).line("", &iterations, &errors).markers();
    Grid::new("Iterations", 2).panel_size(330.0, 220.0).panel(residual).panel(held_out).svg()
}

fn caption(learnt: &Outcome) -> String {
    let SolverName { name, unit } = learnt.solver;
    let found = &learnt.convergence;
    let (iterations, residual) = (found.iterations.unwrap_or_default(), found.residual.unwrap_or_default());
    let took =
        format!("{name} took {} to a relative residual of {}.", text::count(iterations, unit), text::error(residual));
    let least = found.held_out.iter().min_by(|a, b| a.error.total_cmp(&b.error));
    match least {
        None => format!(
            "{took} Rows held out (--holdout), or new rows with targets (--predict), would show their error here."
        ),
        Some(least) => format!(
            "{took} The error on held-out rows was least, {}, after {}.",
            text::number(least.error, 4),
            text::count(least.iteration, unit)
        ),
    }
}
