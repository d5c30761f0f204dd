//! Report: neural eigenfunctions of a neighbour graph.

use super::{Shown, indices};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::Plot;
use mercer_figure::report::{Report, Table};
use mercer_lab::graph_laplacian;
use serde_json::json;

pub fn run(context: &Context, quick: bool) -> Result<Shown> {
    let (n, steps) = if quick { (200, 300) } else { (1000, 2000) };
    let found = context.fitting(|fit| graph_laplacian::run(n, 8, steps, context.seed, fit))?;
    let js = indices(found.exact.len());
    let mut plot = Plot::new("Smallest eigenvalues of I − D^{-1}W").x("index j").y("eigenvalue");
    plot = plot.line("dense matrix", &js, &found.exact).markers();
    for method in &found.methods {
        plot = plot.line(method.method, &js, &method.eigenvalues).markers().dashed();
    }
    let figure = plot.svg();
    let headings = ["method", "largest gap", "steps", "seconds"];
    let rows: Vec<Vec<String>> = found
        .methods
        .iter()
        .map(|m| {
            vec![
                m.method.into(),
                text::percent(m.worst(&found.exact)),
                m.steps.to_string(),
                format!("{:.1}", m.seconds),
            ]
        })
        .collect();
    let setting = format!(
        "Two interleaved half circles of {} points, each joined to its {} nearest neighbours. The largest gap is relative to the \
         largest of the {} eigenvalues.",
        found.n,
        found.neighbours,
        found.exact.len()
    );
    let report = Report::new("Eigenfunctions of a graph")
        .lead(&setting)
        .figure(
            &figure,
            "Rayleigh–Ritz eigenvalues are upper bounds: networks are smoother than the eigenfunctions of the graph.",
        )
        .table(Table::of(&headings, &rows));
    let text = format!("{setting}\n{}", text::table(&headings, &rows));
    Ok(Shown { figure, report, numbers: json!(found), text })
}
