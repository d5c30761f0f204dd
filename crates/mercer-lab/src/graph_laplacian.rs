//! Neural eigenfunctions of a graph: the smallest eigenvalues of the random-walk Laplacian `I − D⁻¹W` of a neighbour graph,
//! computed by the same training loop as for kernels and compared with those of the dense matrix.

use crate::{Options, Shown, indices, method_colour, table};
use mercer::compute::Device;
use mercer::data::generate;
use mercer::linalg::eigh;
use mercer::operator::{NeighbourGraph, Operator};
use mercer::rng::Rng;
use mercer::spectrum::neural::{FunctionOperator, GraphLaplacian, Kind, Settings, rayleigh_ritz, train};
use mercer::{FitContext, Result};
use mercer_figure::report::Report;
use mercer_figure::{Plot, text};
use ndarray::{Array2, Axis};
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

#[derive(Serialize)]
struct Results {
    /// Number of points of the graph, on two interleaved half circles.
    n: usize,
    neighbours: usize,
    /// Eigenvalues of the dense matrix, ascending, with one zero for each component of the graph.
    exact: Vec<f64>,
    methods: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    method: &'static str,
    /// Ascending.
    eigenvalues: Vec<f64>,
    steps: u64,
    /// Seconds of training and of the final Rayleigh–Ritz step.
    seconds: f64,
}

impl Found {
    /// The largest difference to the exact eigenvalues, relative to the largest of them.
    fn worst(&self, exact: &[f64]) -> f64 {
        let gaps = self.eigenvalues.iter().zip(exact).map(|(a, b)| (a - b).abs());
        gaps.fold(0.0, f64::max) / exact.last().copied().unwrap_or(1.0)
    }
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let (n, steps) = if options.quick { (200, 300) } else { (1000, 2000) };
    let found = run(n, 8, steps, context.seed, context)?;
    let js = indices(found.exact.len());
    let mut plot = Plot::new("Smallest eigenvalues of I − D^{-1}W").x("index j").y("eigenvalue");
    plot = plot.line("dense matrix", &js, &found.exact).markers().colour(method_colour("exact"));
    for method in &found.methods {
        plot =
            plot.line(method.method, &js, &method.eigenvalues).markers().dashed().colour(method_colour(method.method));
    }
    let figure = plot.svg();
    let rows: Vec<(&Found, f64)> = found.methods.iter().map(|m| (m, m.worst(&found.exact))).collect();
    let methods = table(
        &rows,
        &[
            ("method", |(m, _)| m.method.into()),
            ("largest gap", |(_, worst)| text::percent(*worst)),
            ("steps", |(m, _)| m.steps.to_string()),
            ("seconds", |(m, _)| format!("{:.1}", m.seconds)),
        ],
    );
    let setting = format!(
        "Two interleaved half circles of {} points, each joined to its {} nearest neighbours. The largest gap is relative to the \
         largest of the {} eigenvalues.",
        found.n,
        found.neighbours,
        found.exact.len()
    );
    let text = format!("{setting}\n{}", methods.text());
    let report = Report::new("Eigenfunctions of a graph")
        .lead(&setting)
        .figure(
            &figure,
            "Rayleigh–Ritz eigenvalues are upper bounds: networks are smoother than the eigenfunctions of the graph.",
        )
        .table(methods);
    Ok(Shown { figure, report, numbers: json!(found), text })
}

/// The `k` smallest eigenvalues for `n` points, by all objectives with `steps` training steps (Ritz: a tenth of them).
fn run(n: usize, k: usize, steps: u64, seed: u64, context: &FitContext<'_>) -> Result<Results> {
    const NEIGHBOURS: usize = 12;
    let x = generate::moons(n, 0.05, seed)?.x.into_f64();
    let graph = NeighbourGraph::new(x.view(), NEIGHBOURS);
    let mut methods = vec![];
    for kind in Kind::all() {
        let start = Instant::now();
        let (architecture, steps) = match kind.solves_last_layer() {
            true => ("dense(64, w=3) sincos dense(128) sincos dense(1)", steps / 10),
            false => ("dense(32, w=4) sincos dense(32) sincos dense(1)", steps),
        };
        let operator = GraphLaplacian::new(&graph, x.view(), 0.1)?;
        let functions = kind.functions(architecture, operator.inputs(), k, context.device, &Rng::new(seed).fork(1))?;
        let objective = kind.objective(&functions, k)?;
        let settings = Settings { steps, learning_rate: 3e-3, seed, ..Settings::default() };
        let mut trained = train(&operator, functions, objective, k, &settings, context)?;
        let whole = operator.sample(context.device, &mut Rng::new(seed).fork(2), operator.ends())?;
        let pairs = rayleigh_ritz(&operator, &mut trained.functions, &whole, k)?;
        let eigenvalues = pairs.eigenvalues.iter().map(|μ| operator.eigenvalue(*μ)).collect();
        methods.push(Found { method: kind.name(), eigenvalues, steps, seconds: start.elapsed().as_secs_f64() });
    }
    Ok(Results { n, neighbours: NEIGHBOURS, exact: dense_spectrum(&graph, k)?, methods })
}

/// The `k` smallest eigenvalues of `I − D^{−1/2}WD^{−1/2}`, which are those of `I − D⁻¹W`.
pub fn dense_spectrum(graph: &NeighbourGraph, k: usize) -> Result<Vec<f64>> {
    let all: Vec<usize> = (0..graph.n()).collect();
    let w = graph.block(&all, &all)?;
    let degrees = w.sum_axis(Axis(1));
    let symmetric = Array2::from_shape_fn(w.dim(), |(i, j)| w[[i, j]] / (degrees[i] * degrees[j]).sqrt());
    Ok(eigh(Device::Cpu, symmetric.view())?.0[..k].iter().map(|λ| 1.0 - λ).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_approaches_the_dense_spectrum_from_above() {
        let report = run(200, 4, 300, 0, &FitContext::default()).unwrap();
        assert!(report.exact[0].abs() < 1e-12);
        for found in &report.methods {
            let above = found.eigenvalues.iter().zip(&report.exact).all(|(a, b)| *a > b - 1e-6);
            assert!(above, "{}: {:?} {:?}", found.method, found.eigenvalues, report.exact);
        }
        let ritz = report.methods.iter().find(|m| m.method == "ritz").unwrap();
        assert!(ritz.worst(&report.exact) < 0.05, "{:?} {:?}", ritz.eigenvalues, report.exact);
    }
}
