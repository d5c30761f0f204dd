//! Figures and tables of the results.

use super::{Attempt, CASES, Errors, Family, Setting};
use crate::{Column, indices, method_colour};
use mercer_figure::report::Table;
use mercer_figure::{Grid, Plot, text};

/// The colour of Ritz without training.
const UNTRAINED: usize = 8;

/// The colour of a method, the same in all figures.
fn colour(name: &str) -> usize {
    match name {
        "nested low-rank" => method_colour("nested"),
        "random Fourier features, Ritz" => method_colour("rff"),
        "Ritz, untrained" => UNTRAINED,
        "Nyström" => method_colour("nystrom"),
        other => method_colour(other),
    }
}

/// The errors over the pairs: one panel per setting, one line per method.
pub(super) fn error_grid(title: &str, settings: &[Setting], error: fn(&Attempt, usize) -> Option<f64>) -> String {
    let columns = settings.len() / CASES.len();
    let mut grid = Grid::new(title, columns).panel_size(250.0, 190.0).shared();
    for setting in settings {
        let mut plot = Plot::new(setting.title()).x("pair j").y_log("error");
        for attempt in &setting.attempts {
            let errors = |a: &Attempt| -> Vec<f64> {
                (0..setting.of_points.len()).map(|j| error(a, j).filter(|e| *e > 0.0).unwrap_or(f64::NAN)).collect()
            };
            let (js, colour) = (indices(setting.of_points.len()), colour(attempt.name));
            if let Some(last) = &attempt.last_step {
                plot = plot.line("", &js, &errors(last)).dotted().colour(colour);
            }
            plot = plot.line(attempt.name, &js, &errors(attempt)).markers().colour(colour);
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

/// One panel per pair: the functions of all methods and the exact one.
pub(super) fn functions(setting: &Setting) -> String {
    let title = format!("{}: functions over the exact ones", setting.title());
    let mut grid = Grid::new(title, 5).panel_size(170.0, 120.0);
    for j in (0..setting.of_points.len()).filter(|j| setting.of_points[*j] > 0.0) {
        let mut plot = Plot::new(format!("ψ_{{{}}} (μ = {})", j + 1, text::number(setting.of_points[j], 3))).x("x");
        for attempt in setting.attempts.iter().filter(|a| a.family != Family::Landmarks) {
            let shown = attempt.last_step.as_deref().unwrap_or(attempt);
            let values = shown.functions.column(j).to_vec();
            plot = plot.line(attempt.name, &setting.grid, &values).colour(colour(attempt.name));
        }
        grid = grid.panel(
            plot.line("exact", &setting.grid, &setting.exact.column(j).to_vec())
                .dashed()
                .colour(method_colour("exact")),
        );
    }
    grid.svg()
}

/// The columns of the summary of a setting.
pub(super) const SUMMARY: [Column<Attempt>; 9] = [
    ("method", |a| a.name.into()),
    ("steps", |a| a.steps.to_string()),
    ("kept", |a| a.kept.map_or(text::GAP.into(), |kept| kept.to_string())),
    ("pairs found", |a| a.pairs_found().to_string()),
    ("by last step", |a| a.last_step.as_ref().map_or(text::GAP.into(), |last| last.pairs_found().to_string())),
    ("typical function error", |a| text::error(a.typical_function_error())),
    ("worst residual", |a| text::error(a.residual.iter().flatten().fold(0.0f64, |worst, r| worst.max(*r)))),
    ("seconds", |a| format!("{:.3}", a.seconds)),
    ("multiply-adds", |a| text::grouped(a.multiply_adds)),
];

/// Errors of each pair for each method: raw eigenvalues, eigenvalues after Rayleigh–Ritz, functions.
pub(super) fn errors(what: &str, setting: &Setting, exact: &[f64], of: fn(&Attempt) -> &Errors) -> Table {
    let headings: Vec<String> =
        ["method", "error of"].map(String::from).into_iter().chain(exact.iter().map(|μ| text::number(*μ, 3))).collect();
    let row = |name: &str, what: &str, errors: Vec<Option<f64>>| -> Vec<String> {
        let errors = errors.into_iter().map(|e| e.map_or(text::GAP.into(), text::error));
        [name.to_owned(), what.to_owned()].into_iter().chain(errors).collect()
    };
    let all = |errors: &[f64]| errors.iter().copied().map(Some).collect();
    let mut table = Table::new(&headings).key(2).caption(format!("Errors {what}, whose eigenvalues are the headings."));
    for attempt in &setting.attempts {
        let Errors { eigenvalue, raw_eigenvalue, function } = of(attempt);
        if let Some(raw) = raw_eigenvalue.as_ref().filter(|_| attempt.steps > 0) {
            table = table.row(&row(attempt.name, "eigenvalue, raw", all(raw)));
        }
        table = table.row(&row(attempt.name, "eigenvalue", all(eigenvalue)));
        table = table.row(&row("", "function", function.clone()));
        if let Some(last) = &attempt.last_step {
            table = table.row(&row("", "eigenvalue, last step", all(&of(last).eigenvalue)));
            table = table.row(&row("", "function, last step", of(last).function.clone()));
        }
    }
    table
}
