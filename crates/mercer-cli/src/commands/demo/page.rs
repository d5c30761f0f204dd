//! The report of the demonstration.

use super::{Found, K, median};
use crate::program::context::Context;
use crate::show::page;
use crate::text;
use mercer::Result;
use mercer::apply::{Fit, KernelPca, LaplacianEigenmaps, Transform};
use mercer_figure::Plot;
use mercer_figure::report::{Report, Table};

pub fn page(found: &Found, context: &Context) -> Result<Report> {
    let train = &found.data[0];
    let (exact, x) = (found.exact(), train.x.to_f64());
    let psi = exact.transform(x.view())?;
    let bar = context.bar();
    let fit = context.fit(&bar);
    let components = KernelPca::new(found.kernel.clone()).fit(x.view(), &(), &fit)?.embedding();
    let slow = LaplacianEigenmaps::default().fit(x.view(), &(), &fit)?;
    let (mut headings, mut cells) = found.table();
    headings[0] = "j".into();
    cells.iter_mut().enumerate().for_each(|(j, row)| row[0] = (j + 1).to_string());
    let axes = |title: &str| Plot::new(title).x("first coordinate").y("second coordinate");
    let report = Report::new("A kernel on handwritten digits, decomposed")
        .lead(&format!("{}. The same {K} pairs, by every method.", found.setting()))
        .section("Methods")
        .text(
            "Each method looks for the leading eigenvalues μ and eigenfunctions ψ of the kernel. The residual is how far a \
             pair is from solving Kψ = μψ, relative to μ, on points that no method has seen.",
        )
        .table(methods(found))
        .table(Table::of(&headings, &cells[..K]).caption("Eigenvalues by every method."))
        .section("Spectrum")
        .figure(
            &page::eigenvalues(exact, &found.spectra[1..]),
            "Eigenvalues on a logarithmic axis; the band is the 95 % interval of the Rayleigh quotients of the exact method.",
        )
        .figure(&page::residuals(&found.spectra), "Residual of each pair on the held-out digits.")
        .section("Eigenfunctions")
        .figure(
            &page::extremes("The digits at both ends of each eigenfunction", train, psi.view()).unwrap_or_default(),
            "For each eigenfunction, the digits where it is lowest (left) and highest (right).",
        )
        .figure(
            &page::functions_on_plane("Eigenfunctions over the digits", ["", ""], components.view(), psi.view()),
            "Eigenfunctions over the first two kernel principal components; values beyond ±3 have the colours of the ends.",
        )
        .section("Embedding")
        .figure(
            &page::scatter(axes("Kernel principal components"), components.view(), train.y.as_ref()),
            "Every digit at its first two kernel principal components, coloured by its label.",
        )
        .figure(
            &page::scatter(axes("Laplacian eigenmaps"), slow.embedding().view(), train.y.as_ref()),
            "The same digits at the two slowest functions on the graph of their ten nearest neighbours.",
        )
        .section("Certificate");
    let report = page::certificate(report, exact, "The exact method, pair by pair.");
    Ok(report.command(&format!("mercer demo --seed {}", context.seed)))
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
