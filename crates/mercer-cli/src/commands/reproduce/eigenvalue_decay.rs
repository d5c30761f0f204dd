//! Report: the decay of eigenvalues depends on the dimension of the data, not on that of the ambient space.

use super::{Shown, indices, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::eigenvalue_decay::{self, PolynomialRank, Series};
use serde_json::json;

pub fn run(context: &Context, quick: bool) -> Result<Shown> {
    let n = if quick { 300 } else { 1000 };
    let found = context.fitting(|fit| eigenvalue_decay::run(n, context.seed, fit))?;
    let figure = spectra(&found.dimensions);
    let report = Report::new("Eigenvalue decay and the dimension of the data")
        .lead(&sentence(&found.dimension_verdict))
        .section("Dimension")
        .text(&format!(
            "{n} points, uniform on cubes of dimension d and on smooth sheets of dimension d in ten dimensions, with an RBF \
             of lengthscale 1. For such data the logarithm of the eigenvalues falls like the index to the power 1/d."
        ))
        .figure(&figure, "Spectra: a sheet (dashed) falls like the cube of its own dimension, not like the ten-dimensional cube.")
        .figure(&lines(&found.dimensions), "The same against the index to the power 1/d, with the fitted lines.")
        .table(decays(&found.dimensions))
        .section("Lengthscale")
        .text(&sentence(&found.lengthscale_verdict))
        .figure(&lengthscales(&found.lengthscales), "Wider kernels have fewer large eigenvalues.")
        .section("Polynomial kernels")
        .text("A polynomial kernel of degree p in d dimensions has finite rank C(d+p, p).")
        .table(ranks(&found.ranks));
    Ok(Shown { figure, report, text: text_of(&found), numbers: json!(found) })
}

fn text_of(found: &eigenvalue_decay::Report) -> String {
    let each = |s: &Series| format!("{}: {}\n", s.name, s.verdict);
    let mut text: String = found.dimensions.iter().map(each).collect();
    text += &format!("\n{}\n{}\n\n", sentence(&found.dimension_verdict), sentence(&found.lengthscale_verdict));
    text + &found.ranks.iter().map(|r| format!("{}\n", sentence(&r.verdict))).collect::<String>()
}

fn spectra(all: &[Series]) -> String {
    let mut plot = Plot::new("Eigenvalues of an RBF on data of dimension d").x_log("index j").y_log("eigenvalue μ_j");
    for s in all {
        // Cube and sheet of the same dimension have the same colour.
        plot = plot.line(&s.name, &indices(s.eigenvalues.len()), &s.eigenvalues).colour(s.intrinsic.min(4) - 1);
        if s.intrinsic < s.ambient {
            plot = plot.dashed();
        }
    }
    plot.size(720.0, 460.0).svg()
}

fn lines(all: &[Series]) -> String {
    let mut grid = Grid::new("Straight lines against the index to the power 1/d", 3).panel_size(210.0, 170.0);
    for s in all.iter().filter(|s| s.intrinsic < s.ambient) {
        let power = |j: &f64| j.powf(1.0 / s.intrinsic as f64);
        let xs: Vec<f64> = indices(s.line.count).iter().map(power).collect();
        let fitted: Vec<f64> = xs.iter().map(|x| (s.line.intercept - s.line.rate * x).exp()).collect();
        let fitted_values = &s.eigenvalues[..s.line.count.min(s.eigenvalues.len())];
        let label = if s.intrinsic == 1 { "j".into() } else { format!("j^{{1/{}}}", s.intrinsic) };
        grid = grid.panel(
            Plot::new(format!("sheet, d = {}", s.intrinsic))
                .x(label)
                .y_log("μ_j")
                .scatter("eigenvalues", &xs, fitted_values)
                .line("fitted line", &xs, &fitted),
        );
    }
    grid.svg()
}

fn decays(all: &[Series]) -> Table {
    let headings = ["data", "d", "space", "rate", "R² at 1/d", "R² at 1/space", "straightest at 1/"];
    let row = |table: Table, s: &Series| {
        table.row(&[
            s.name.clone(),
            s.intrinsic.to_string(),
            s.ambient.to_string(),
            text::number(s.line.rate, 3),
            format!("{:.4}", s.line.r2),
            format!("{:.4}", s.ambient_line.r2),
            s.straightest.to_string(),
        ])
    };
    all.iter().fold(Table::new(&headings), row)
}

fn lengthscales(all: &[Series]) -> String {
    let mut grid = Grid::new("Eigenvalues by lengthscale", 2).panel_size(300.0, 220.0);
    for d in [1, 2] {
        let mut plot = Plot::new(format!("cube, d = {d}")).x_log("index j").y_log("eigenvalue μ_j");
        for s in all.iter().filter(|s| s.intrinsic == d) {
            plot = plot.line(format!("lengthscale {}", s.lengthscale), &indices(s.eigenvalues.len()), &s.eigenvalues);
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

fn ranks(all: &[PolynomialRank]) -> Table {
    let row = |table: Table, r: &PolynomialRank| {
        table.row(&[r.dimension.to_string(), r.degree.to_string(), r.expected.to_string(), r.found.to_string()])
    };
    all.iter().fold(Table::new(&["d", "degree p", "C(d+p, p)", "rank found"]), row)
}
