//! Reports: bound states in the plane, the harmonic oscillator and hydrogen.

use super::{Shown, indices};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::bound_states::{BoundStates, Budget, Contender, Levels};
use mercer_lab::{hydrogen, oscillator};
use serde_json::json;

pub fn oscillator(context: &Context, quick: bool) -> Result<Shown> {
    let budget = Budget { seed: context.seed, ..oscillator::budget() };
    let (k, budget) = if quick { (6, budget.quick()) } else { (10, budget) };
    let found = context.fitting(|fit| oscillator::run(k, &Contender::all(), &budget, fit))?;
    let report = section(Report::new("The harmonic oscillator in the plane").lead(&lead(&found)), &found);
    Ok(shown(report, &[found]))
}

pub fn hydrogen(context: &Context, quick: bool) -> Result<Shown> {
    let budget = Budget { seed: context.seed, ..hydrogen::budget() };
    let (k, budget) = if quick { (4, budget.quick()) } else { (9, budget) };
    let mut all = vec![context.fitting(|fit| hydrogen::run(k, &Contender::all(), &budget, fit))?];
    if !quick {
        // As many states as in the published comparison; Ritz and SpIN are left out because they take minutes.
        let some = |c: &Contender| !c.trained || matches!(c.name, "neuralef" | "nested");
        let contenders: Vec<Contender> = Contender::all().into_iter().filter(some).collect();
        let budget = Budget { seed: context.seed, ..hydrogen::many_states() };
        all.push(context.fitting(|fit| hydrogen::run(36, &contenders, &budget, fit))?);
    }
    let mut report = section(Report::new("Hydrogen in the plane").lead(&lead(&all[0])), &all[0]);
    if let Some(many) = all.get(1) {
        report = section(
            report.text(
                "Published relative errors of the first 36 energies are 0.6 to 0.9 % for NeuralSVD and 3.5 to 7 % for NeuralEF. \
                 These are the first 36 with a wider network.",
            ),
            many,
        );
    }
    Ok(shown(report, &all))
}

fn shown(report: Report, all: &[BoundStates]) -> Shown {
    let texts: Vec<String> = all
        .iter()
        .map(|found| {
            let rows: Vec<Vec<String>> = found.ranking().into_iter().map(|m| cells(m).to_vec()).collect();
            format!("{}, {}\n{}\n{}\n", found.system, budget(found), text::table(&HEADINGS, &rows), found.verdict())
        })
        .collect();
    Shown { figure: states(&all[0]), report, numbers: json!(all), text: texts.join("\n") }
}

/// The system and the result of the best method.
fn lead(found: &BoundStates) -> String {
    format!("{}. Best: {}", found.system, found.verdict().lines().next().unwrap_or_default())
}

fn section(report: Report, found: &BoundStates) -> Report {
    let k = found.exact.len();
    let ranking = found.ranking().into_iter().fold(Table::new(&HEADINGS), |table, m| table.row(&cells(m)));
    let mut report = report
        .section(&format!("The first {k} energies"))
        .text(&budget(found))
        .table(ranking.lowest(1).lowest(2).lowest(6).caption("Best first; errors are relative to the exact energies."))
        .figure(&errors(found), "Relative error of each energy after Rayleigh–Ritz.")
        .table(energies(found));
    for (method, why) in &found.failed {
        report = report.text(&format!("{method} failed: {why}."));
    }
    match found.ranking().first() {
        Some(best) => report.figure(
            &states(found),
            &format!("The states of {}. States of equal energy are defined up to a rotation.", best.method),
        ),
        None => report,
    }
}

fn budget(found: &BoundStates) -> String {
    let Budget { steps, batch, learning_rate, finish_points, networks, units, seed } = &found.budget;
    format!(
        "{steps} steps on batches of {batch}, Adam at {learning_rate} (cosine), seed {seed}; one network \"{networks}\" per state, or \
         the units of \"{units}\" (ritz, random features); all end with Rayleigh–Ritz over {} points.",
        text::grouped(*finish_points)
    )
}

const HEADINGS: [&str; 7] = ["method", "worst error", "mean error", "multiplicities", "steps", "parameters", "seconds"];

fn cells(m: &Levels) -> [String; 7] {
    let counts: Vec<String> = m.multiplets.iter().map(|(_, count)| count.to_string()).collect();
    let trained = if m.steps == 0 { 0 } else { m.parameters };
    [
        m.method.clone(),
        format!("{:.3} %", 100.0 * m.worst()),
        format!("{:.3} %", 100.0 * m.mean()),
        if counts.len() > 8 { format!("{} …", counts[..8].join(", ")) } else { counts.join(", ") },
        m.steps.to_string(),
        text::grouped(trained),
        format!("{:.1}", m.seconds),
    ]
}

fn errors(found: &BoundStates) -> String {
    let mut plot = Plot::new(format!("{}: errors", found.system)).x("state j").y_log("relative error");
    for (i, m) in found.methods.iter().enumerate() {
        plot = plot.line(&m.method, &indices(m.errors.len()), &m.errors).markers().colour(i);
    }
    plot.size(720.0, 400.0).svg()
}

/// The exact energies, and for each method those after Rayleigh–Ritz and the raw ones.
fn energies(found: &BoundStates) -> Table {
    let exact = found.exact.iter().map(|e| text::number(*e, 4));
    let headings: Vec<String> = ["energies".to_owned()].into_iter().chain(exact).collect();
    let row = |table: Table, name: String, energies: &[f64]| {
        let cells: Vec<String> = [name].into_iter().chain(energies.iter().map(|e| text::number(*e, 5))).collect();
        table.row(&cells)
    };
    let table =
        Table::new(&headings).caption("The headings are the exact energies. Raw energies are the objective's own.");
    found.methods.iter().fold(table, |table, m| {
        let table = row(table, m.method.clone(), &m.energies);
        if m.raw.len() == m.energies.len() { row(table, format!("{}, raw", m.method), &m.raw) } else { table }
    })
}

/// The states of the best method over the plane.
fn states(found: &BoundStates) -> String {
    let mut grid = Grid::new(found.system.clone(), 5).panel_size(150.0, 150.0);
    let (side, range) = (found.side, (-found.extent, found.extent));
    for m in found.ranking().into_iter().take(1) {
        for (psi, e) in m.states.columns().into_iter().zip(&m.energies) {
            let plot = Plot::new(format!("E = {}", text::number(*e, 4)));
            grid = grid.panel(plot.field("", range, range, [side, side], &psi.to_vec()).diverging().equal());
        }
    }
    grid.svg()
}
