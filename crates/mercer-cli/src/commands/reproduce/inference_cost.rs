//! Trained networks, random features and landmarks at equal inference cost.

use super::{Shown, command, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::inference_cost::{self, Plan, Point};
use serde_json::json;

pub fn run(context: &Context, quick: bool) -> Result<Shown> {
    let plan = if quick { Plan::quick(context.seed) } else { Plan::full(context.seed) };
    let bar = context.bar();
    let found = inference_cost::run(&plan, &context.fit(&bar))?;
    drop(bar);
    let figure = curves(&found);
    let report = Report::new("Where training earns its keep")
        .lead(&sentence(&found.verdict))
        .section("What was run")
        .text(&words(&found))
        .section("Curves")
        .figure(
            &figure,
            "Left: mean over the pairs of the residual ‖Kψ − μψ‖/μ‖ψ‖ on points that no method has seen, at most one each. Right: \
             share of the kernel's trace that the functions capture there; the line is what the exact functions of all fitted \
             points capture.",
        )
        .table(table(&found))
        .command(&command("inference-cost", context, quick));
    Ok(Shown { figure, report, text: said(&found), numbers: json!(found) })
}

fn words(found: &inference_cost::Report) -> String {
    let plan = &found.plan;
    format!(
        "The {} leading pairs of {} on {} ({} points of {} columns, {} more held out). The cost of a new point is counted in \
         multiply-adds of matrix products: m(d+k) for m landmarks, M(d+2k) for M random frequencies, dh + h² + hk for a network \
         with two hidden layers of h half sines, half cosines and a last layer of k. At each cost every method is as large as \
         it may be. Ritz solves the last layer, on random hidden layers or on hidden layers trained for {} steps on batches of {} \
         to capture more of the trace; NeuralEF trains all layers, with a trunk that the functions share, and ends in \
         Rayleigh–Ritz. Landmarks are chosen by k-means++. The exact functions, with every point a landmark, cost {} \
         multiply-adds.",
        plan.k,
        found.kernel,
        plan.data,
        text::grouped(plan.n),
        found.d,
        text::grouped(plan.held_out),
        text::grouped(plan.steps as usize),
        plan.batch,
        text::grouped(found.exact_multiply_adds),
    )
}

/// The methods in the order of the points, each once.
fn methods(found: &inference_cost::Report) -> Vec<&'static str> {
    let mut names = vec![];
    for point in found.points.iter().flatten() {
        if !names.contains(&point.method) {
            names.push(point.method);
        }
    }
    names
}

fn curves(found: &inference_cost::Report) -> String {
    let cost = "multiply-adds for a new point";
    let mut residual = Plot::new("Certified residual").x_log(cost).y_log("mean residual");
    let mut captured = Plot::new("Captured trace").x_log(cost).y("share of the trace");
    for (i, method) in methods(found).into_iter().enumerate() {
        let of_method: Vec<&Point> = found.points.iter().flatten().filter(|p| p.method == method).collect();
        let values = |value: fn(&Point) -> f64| of_method.iter().map(|p| value(p)).collect::<Vec<f64>>();
        let costs = values(|p| p.multiply_adds as f64);
        residual = residual.line(method, &costs, &values(|p| p.mean_residual)).markers().colour(i);
        captured = captured.line(method, &costs, &values(|p| p.captured)).markers().colour(i);
        if !of_method.iter().all(|p| p.trained) {
            residual = residual.dashed();
            captured = captured.dashed();
        }
    }
    let ends = [found.plan.budgets[0] as f64, found.plan.budgets[found.plan.budgets.len() - 1] as f64];
    captured = captured.line("exact", &ends, &[found.exact_captured; 2]).colour(6);
    let title = format!("{} on {}: trained (solid) and untrained (dashed)", found.plan.kernel, found.plan.data);
    Grid::new(title, 2).panel_size(330.0, 260.0).panel(residual).panel(captured).svg()
}

const HEADINGS: [&str; 7] = ["at most", "method", "size", "multiply-adds", "mean residual", "captured", "seconds"];

fn rows(found: &inference_cost::Report) -> Vec<Vec<String>> {
    let row = |budget: usize, p: &Point| {
        vec![
            text::grouped(budget),
            p.method.into(),
            p.size.to_string(),
            text::grouped(p.multiply_adds),
            format!("{:.4}", p.mean_residual),
            format!("{:.4}", p.captured),
            format!("{:.2}", p.seconds),
        ]
    };
    let budgets = found.plan.budgets.iter().zip(&found.points);
    budgets.flat_map(|(budget, points)| points.iter().map(|p| row(*budget, p))).collect()
}

fn table(found: &inference_cost::Report) -> Table {
    let table = rows(found).iter().fold(Table::new(&HEADINGS), |table, row| table.row(row));
    table.caption(format!(
        "Size: hidden units, frequencies or landmarks. The exact functions capture {:.4} of the trace on the held-out points.",
        found.exact_captured
    ))
}

fn said(found: &inference_cost::Report) -> String {
    format!("{}\n{}\n", text::table(&HEADINGS, &rows(found)), sentence(&found.verdict))
}
