//! The report of the demonstration.

use super::{Found, K, median};
use crate::certificate::{HEADINGS, rows, sentences};
use crate::commands::embed::{plane, scatter};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer::apply::{Fit, KernelPca, LaplacianEigenmaps, Transform};
use mercer::data::Dataset;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Gallery, Grid, Plot};
use ndarray::{Array2, ArrayView1, Axis};

pub fn page(found: &Found, context: &Context) -> Result<Report> {
    let train = &found.data[0];
    let (exact, x) = (found.exact(), train.x.to_f64());
    let psi = exact.transform(x.view())?;
    let bar = context.bar();
    let fit = context.fit(&bar);
    let components = KernelPca::new(found.kernel.clone()).fit(x.view(), &(), &fit)?.embedding();
    let slow = LaplacianEigenmaps::default().fit(x.view(), &(), &fit)?;
    let (headings, cells) = found.table();
    Ok(Report::new("A kernel on handwritten digits, decomposed")
        .lead(&format!("{}. The same {K} pairs, by every method.", found.setting()))
        .section("Methods")
        .text(
            "Each method looks for the leading eigenvalues μ and eigenfunctions ψ of the kernel. The residual is how far a \
             pair is from solving Kψ = μψ, relative to μ, on points that no method has seen.",
        )
        .table(methods(found))
        .table(Table::of(&headings, &cells[..K]))
        .section("Spectrum")
        .figure(&spectrum(found), "Eigenvalues on a logarithmic axis; the band is the exact method's 95 % interval.")
        .figure(&residuals(found), "Residual of each pair on the held-out digits.")
        .section("Eigenfunctions")
        .figure(
            &extremes(train, &psi),
            "For each eigenfunction, the digits where it is lowest (left) and highest (right).",
        )
        .figure(
            &functions(&components, &psi),
            "Eigenfunctions over the first two kernel principal components: blue negative, red positive.",
        )
        .section("Embedding")
        .figure(
            &scatter("Kernel principal components", components.view(), train.y.as_ref()),
            "Every digit at its first two kernel principal components, coloured by its label.",
        )
        .figure(
            &scatter("Laplacian eigenmaps", slow.embedding().view(), train.y.as_ref()),
            "The same digits at the two slowest functions on the graph of their ten nearest neighbours.",
        )
        .section("Certificate")
        .table(
            Table::of(&HEADINGS, &rows(&exact.eigenvalues, &exact.certificate))
                .caption("The exact method, pair by pair."),
        )
        .text(&sentences(&exact.certificate).join("\n\n"))
        .command(&format!("mercer demo --seed {}", context.seed)))
}

fn methods(found: &Found) -> Table {
    let mut table = Table::new(&["method", "seconds", "error of μ", "largest residual", "median residual", "trace"]);
    for s in &found.spectra {
        table = table.row(&[
            s.origin.method.clone(),
            format!("{:.3}", s.origin.seconds),
            text::error(found.eigenvalue_error(s)),
            text::error(s.certificate.worst_residual()),
            text::error(median(&s.certificate.residual)),
            text::percent(s.certificate.trace_captured),
        ]);
    }
    let left_out: Vec<String> = found.unsuited.iter().map(|(m, why)| format!("{m} is left out: {why}.")).collect();
    table.caption(format!(
        "Error of μ: the largest, relative to the exact method. Trace: what the {K} pairs carry of it. {}",
        left_out.join(" ")
    ))
}

fn spectrum(found: &Found) -> String {
    let js: [f64; K] = std::array::from_fn(|j| j as f64 + 1.0);
    let exact = found.exact();
    let bound = |side: usize| -> Vec<f64> {
        exact.certificate.interval.iter().map(|i| i.map_or(f64::NAN, |i| i[side])).collect()
    };
    let mut plot = Plot::new("Eigenvalues").x("index j").y_log("eigenvalue μ_j");
    plot = plot.line("exact", &js, &exact.eigenvalues).band(&bound(0), &bound(1));
    for s in &found.spectra[1..] {
        plot = plot.scatter(&s.origin.method, &js, &s.eigenvalues);
    }
    plot.svg()
}

fn residuals(found: &Found) -> String {
    let js: [f64; K] = std::array::from_fn(|j| j as f64 + 1.0);
    let mut plot = Plot::new("Residuals").x("index j").y_log("residual");
    for s in &found.spectra {
        let values: Vec<f64> = s.certificate.residual.iter().map(|r| r.unwrap_or(f64::NAN)).collect();
        plot = plot.line(&s.origin.method, &js, &values).markers();
    }
    plot.svg()
}

/// The places of the `count` smallest and the `count` largest values, in increasing order of the value.
fn ends(values: ArrayView1<f64>, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let n = order.len();
    order[..count.min(n)].iter().chain(&order[n.saturating_sub(count)..]).copied().collect()
}

fn extremes(data: &Dataset, psi: &Array2<f64>) -> String {
    let [_, height, width] = data.shape.unwrap_or([1, 1, data.d()]);
    let mut gallery = Gallery::new("The digits at both ends of each eigenfunction", [height, width]);
    for (j, function) in psi.axis_iter(Axis(1)).enumerate().take(8) {
        let chosen = ends(function, 6);
        let pixels: Vec<f64> = data.x.select(&chosen).into_f64().into_iter().collect();
        let captions: Vec<String> = chosen.iter().map(|&i| format!("{:+.1}", function[i])).collect();
        gallery = gallery.row(format!("ψ_{}", j + 1), &pixels).captions(&captions);
    }
    gallery.svg()
}

fn functions(components: &Array2<f64>, psi: &Array2<f64>) -> String {
    let (xs, ys) = plane(components.view());
    let mut grid = Grid::new("Eigenfunctions over the digits", 4).panel_size(170.0, 150.0).shared();
    for (j, function) in psi.axis_iter(Axis(1)).enumerate().take(8) {
        grid = grid.panel(Plot::new(format!("ψ_{}", j + 1)).values("", &xs, &ys, &function.to_vec()).diverging());
    }
    grid.svg()
}
