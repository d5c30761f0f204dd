//! Trained networks, random features and landmarks at equal inference cost.

use super::{Shown, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::inference_cost::{self, Config, Point};
use serde_json::json;

pub fn run(context: &Context, quick: bool) -> Result<Shown> {
    let config = if quick { Config::quick(context.seed) } else { Config::full(context.seed) };
    let found = context.fitting(|fit| inference_cost::run(&config, fit))?;
    let figure = curves(&found);
    let report = Report::new("When training pays off")
        .lead(&sentence(&found.verdict))
        .section("What was run")
        .text(&description(&found))
        .section("Curves")
        .figure(
            &figure,
            "Left: mean over the pairs of min(1, ‖Kψ − μψ‖/μ‖ψ‖) on held-out points. Right: share of the kernel's trace that the \
             functions capture on these points; the line shows the share of the exact functions of the fitted points.",
        )
        .table(table(&found));
    Ok(Shown { figure, report, text: text_of(&found), numbers: json!(found) })
}

fn description(found: &inference_cost::Report) -> String {
    let config = &found.config;
    format!(
        "The {} leading pairs of {} on {} ({} points of {} columns, {} more held out). The cost of a new point is counted in \
         multiply-adds of matrix products: m(d+k) for m landmarks, M(d+2k) for M random frequencies, dh + h² + hk for a network \
         with two hidden layers of h units (half sines, half cosines) and a last layer of k. At each cost every method is as large \
         as the cost allows. Ritz solves the last layer, on random hidden layers or on hidden layers trained for {} steps on batches \
         of {} to capture more of the trace; NeuralEF trains all layers, with a trunk shared by the functions, and ends with \
         Rayleigh–Ritz. Landmarks are chosen by k-means++. The exact functions, with all points as landmarks, cost {} \
         multiply-adds.",
        config.k,
        found.kernel,
        config.data,
        text::grouped(config.n),
        found.d,
        text::grouped(config.held_out),
        text::grouped(config.steps as usize),
        config.batch,
        text::grouped(found.exact_multiply_adds),
    )
}

/// The names of the methods, each once, in the order of the points.
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
    let ends = [found.config.budgets[0] as f64, found.config.budgets[found.config.budgets.len() - 1] as f64];
    captured = captured.line("exact", &ends, &[found.exact_captured; 2]).colour(6);
    let title = format!("{} on {}: trained (solid) and untrained (dashed)", found.config.kernel, found.config.data);
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
    let budgets = found.config.budgets.iter().zip(&found.points);
    budgets.flat_map(|(budget, points)| points.iter().map(|p| row(*budget, p))).collect()
}

fn table(found: &inference_cost::Report) -> Table {
    Table::of(&HEADINGS, &rows(found)).caption(format!(
        "Size: hidden units, frequencies or landmarks. The exact functions capture {:.4} of the trace on the held-out points.",
        found.exact_captured
    ))
}

fn text_of(found: &inference_cost::Report) -> String {
    format!("{}\n{}\n", text::table(&HEADINGS, &rows(found)), sentence(&found.verdict))
}
