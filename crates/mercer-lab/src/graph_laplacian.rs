//! Neural eigenfunctions of a graph: the smallest eigenvalues of the random-walk Laplacian `I − D⁻¹W` of a neighbour graph,
//! computed by the same training loop as for kernels and compared with those of the dense matrix.

use mercer::FitContext;
use mercer::Result;
use mercer::compute::Device;
use mercer::data::generate;
use mercer::linalg::eigh;
use mercer::operator::{NeighbourGraph, Operator};
use mercer::rng::Rng;
use mercer::spectrum::neural::{FunctionOperator, GraphLaplacian, Kind, Settings, rayleigh_ritz, train};
use ndarray::{Array2, Axis};
use serde::Serialize;
use std::time::Instant;

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Number of points of the graph, on two interleaved half circles.
    pub n: usize,
    /// Neighbours of each point.
    pub neighbours: usize,
    /// Eigenvalues of the dense matrix, ascending, with one zero for each component of the graph.
    pub exact: Vec<f64>,
    /// The results of the methods.
    pub methods: Vec<Found>,
}

/// The result of one method.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Name of the objective.
    pub method: &'static str,
    /// Eigenvalues, ascending.
    pub eigenvalues: Vec<f64>,
    /// Training steps.
    pub steps: u64,
    /// Seconds of training and of the final Rayleigh–Ritz step.
    pub seconds: f64,
}

impl Found {
    /// The largest difference to the exact eigenvalues, relative to the largest of them.
    pub fn worst(&self, exact: &[f64]) -> f64 {
        let gaps = self.eigenvalues.iter().zip(exact).map(|(a, b)| (a - b).abs());
        gaps.fold(0.0, f64::max) / exact.last().copied().unwrap_or(1.0)
    }
}

/// The `k` smallest eigenvalues for `n` points, by all objectives with `steps` training steps (Ritz: a tenth of them).
pub fn run(n: usize, k: usize, steps: u64, seed: u64, context: &FitContext<'_>) -> Result<Report> {
    const NEIGHBOURS: usize = 12;
    let x = generate::moons(n, 0.05, seed)?.x.into_f64();
    let graph = NeighbourGraph::new(x.view(), NEIGHBOURS);
    let mut methods = vec![];
    for (method, kind) in Kind::ALL {
        let start = Instant::now();
        let steps = if kind == Kind::Ritz { steps / 10 } else { steps };
        let architecture = match kind {
            Kind::Ritz => "dense(64, w=3) sincos dense(128) sincos dense(1)",
            _ => "dense(32, w=4) sincos dense(32) sincos dense(1)",
        };
        let operator = GraphLaplacian::new(&graph, x.view(), 0.1)?;
        let functions = kind.functions(architecture, operator.inputs(), k, context.device, &Rng::new(seed).fork(1))?;
        let objective = kind.objective(&functions, k)?;
        let settings = Settings { steps, learning_rate: 3e-3, seed, ..Settings::default() };
        let mut trained = train(&operator, functions, objective, k, &settings, context)?;
        let whole = operator.sample(context.device, &mut Rng::new(seed).fork(2), operator.ends())?;
        let pairs = rayleigh_ritz(&operator, &mut trained.functions, &whole, k)?;
        let eigenvalues = pairs.eigenvalues.iter().map(|μ| operator.eigenvalue(*μ)).collect();
        methods.push(Found { method, eigenvalues, steps, seconds: start.elapsed().as_secs_f64() });
    }
    Ok(Report { n, neighbours: NEIGHBOURS, exact: dense_spectrum(&graph, k)?, methods })
}

/// The `k` smallest eigenvalues of `I − D^{−1/2}WD^{−1/2}`, which are those of `I − D⁻¹W`.
fn dense_spectrum(graph: &NeighbourGraph, k: usize) -> Result<Vec<f64>> {
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
