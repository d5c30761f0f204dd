//! The slow functions of a random walk as coordinates: what Laplacian eigenmaps and diffusion maps have in common.

use crate::apply::embedding::eigen_solver::{above, dropped, fix_signs};
use crate::apply::embedding::slow_pairs::{heat_bytes, slow_pairs};
use crate::apply::reference::{Reference, check_new};
use crate::apply::traits::{fields, saved};
use crate::apply::{Affinity, EigenSolver, Transform, check_k, check_points};
use crate::kernel::Kernel;
use crate::operator::{NeighbourGraph, Operator, RandomWalk, nearest_neighbours};
use crate::spectrum::{Eigenvectors, Origin, Problem, zero_threshold};
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, aview1, concatenate, s};
use std::time::Instant;

/// Laplacian eigenmaps or diffusion maps, ready to place new points.
/// Example: [`LaplacianEigenmaps`](crate::apply::LaplacianEigenmaps).
pub struct FittedEigenmaps {
    /// Laplacian eigenmaps: eigenvalues of the normalised Laplacian, ascending, without the trivial zero. Diffusion maps:
    /// `λ_j` of the walk, descending, without the trivial one.
    pub eigenvalues: Vec<f64>,
    /// t: the coordinates are `λ_j^t ψ_j`. Zero for Laplacian eigenmaps.
    pub time: f64,
    /// Warnings: parts of the data that the walk does not connect, coordinates that do not exist, an iteration that ended early.
    pub notes: Vec<String>,
    /// What it was fitted on.
    pub reference: Reference,
    affinity: Affinity,
    /// `w = Q^{−a}1` `[n]`
    weights: Array1<f64>,
    /// `λ_j` of the walk
    walk_eigenvalues: Vec<f64>,
    /// ψ `[n, k]`, `Σ_i π_i ψ_ij² = 1`
    functions: Array2<f64>,
}

/// The walk whose slow functions are sought.
pub(crate) struct Eigenmaps<'a> {
    pub method: &'static str,
    pub affinity: &'a Affinity,
    /// `a` of [`RandomWalk`].
    pub density: f64,
    pub k: usize,
    pub time: f64,
    pub solver: EigenSolver,
    pub tolerance: f64,
}

impl Eigenmaps<'_> {
    /// Finds the slow functions on the points `x` `[n, d]`.
    pub fn fit(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<FittedEigenmaps> {
        let start = Instant::now();
        check_points(x)?;
        let n = x.nrows();
        check_k(self.k, n.saturating_sub(1))?;
        let (mut notes, mut early) = (Vec::new(), Vec::new());
        let (weights, walk_eigenvalues, functions) = match self.affinity {
            Affinity::Neighbours(m) => {
                self.affinity.clone().within(n)?;
                self.require_memory(x.dim(), *m, context)?;
                let graph = NeighbourGraph::reported(x, *m, context.progress);
                notes.extend(components(&graph, *m, self.k));
                self.slow_functions(&RandomWalk::new(&graph, self.density)?, &mut early, context)?
            }
            Affinity::Kernel(kernel) => {
                let operator = context.operator(kernel, x, self.solver.require(n, self.k, context)?)?;
                let walk = RandomWalk::new(operator.as_ref(), self.density)?;
                let found = self.slow_functions(&walk, &mut early, context)?;
                notes.extend(nearly_separate(&found.1));
                found
            }
        };
        notes.extend(dropped(self.k, walk_eigenvalues.len(), !early.is_empty()));
        notes.extend(early);
        let (eigenvalues, time, affinity) = (walk_eigenvalues.clone(), self.time, self.affinity.clone());
        let reference = Reference::new(Origin::new(self.method, &affinity, x.dim(), context, start), x, context);
        Ok(FittedEigenmaps { eigenvalues, time, notes, reference, affinity, weights, walk_eigenvalues, functions })
    }

    /// Refuses a graph of `m` neighbours that the memory has no room for beside the solver and the copy of the points.
    fn require_memory(&self, (n, d): (usize, usize), m: usize, context: &FitContext) -> Result<()> {
        let solver = self.solver.require(n, self.k, context)? + heat_bytes(n, self.k);
        context.budget.require(
            format!("the graph of {m} neighbours of {n} points, with the vectors of its solver,"),
            NeighbourGraph::bytes(n, d, m) + 8 * (n * d) as u64 + solver,
            "use fewer points or fewer neighbours",
        )
    }

    /// The weights `w`, the eigenvalues `λ`, descending, and the functions `ψ = u/√π` `[n, k]` of the pairs above rounding. `early` gets
    /// a warning where the iteration ended early.
    fn slow_functions(
        &self,
        walk: &RandomWalk,
        early: &mut Vec<String>,
        context: &FitContext,
    ) -> Result<(Array1<f64>, Vec<f64>, Array2<f64>)> {
        let (n, k) = (walk.n(), self.k);
        let sparse = matches!(self.affinity, Affinity::Neighbours(_));
        let found = if sparse && self.solver.chosen(n, k) == EigenSolver::Krylov {
            slow_pairs(walk, k, self.tolerance, context)?
        } else {
            let problem = Problem { operator: walk, k, context: *context };
            self.solver.method(n, k, self.tolerance).eigenvectors(&problem)?
        };
        let Eigenvectors { values, vectors, notes: warnings } = found;
        early.extend(warnings);
        fail_if!(
            values[0] > 1.0 + 1e-6,
            "the walk has the eigenvalue {}, above 1, so some affinities are negative; use a kernel that is never negative",
            values[0]
        );
        let none = "every non-trivial eigenvalue of the walk is zero: one step reaches all points alike; use a smaller lengthscale";
        let (values, u) = above(zero_threshold(walk.roundoff(), 1.0), (values, vectors), none)?;
        let mut functions = &u / &walk.root.view().insert_axis(Axis(1));
        fix_signs(&mut functions);
        Ok((walk.weights.clone(), values, functions))
    }
}

/// The note on a graph of `m` neighbours that is not connected.
fn components(graph: &NeighbourGraph, m: usize, k: usize) -> Option<String> {
    let pieces = graph.components();
    (pieces > 1).then(|| {
        format!(
            "the graph of {m} neighbours falls into {pieces} pieces that no edge joins; the first {} coordinates only tell \
             the pieces apart; use more neighbours",
            (pieces - 1).min(k)
        )
    })
}

/// The note on a walk that almost never leaves a part of the points: eigenvalues that are one up to rounding.
fn nearly_separate(eigenvalues: &[f64]) -> Option<String> {
    let stuck = eigenvalues.iter().filter(|&&λ| λ > 1.0 - 1e-9).count();
    (stuck > 0).then(|| {
        format!(
            "the points fall into {} or more parts between which the kernel is almost zero; the first {stuck} coordinates \
             only tell the parts apart; use a larger lengthscale",
            stuck + 1
        )
    })
}

impl FittedEigenmaps {
    /// `λ_j^t` `[k]`
    fn damping(&self) -> Array1<f64> {
        self.walk_eigenvalues.iter().map(|λ| λ.powf(self.time)).collect()
    }

    /// `ψ_j(x) = (1/λ_j) Σ_i p_i(x) ψ_ij`, `p_i(x) = κ(x,x_i) w_i / Σ κ(x,x_l) w_l` (Nyström's extension).
    fn extended(&self, kernel: &Kernel, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let w = self.weights.view().insert_axis(Axis(1));
        let columns = &concatenate![Axis(1), self.functions, Array2::ones((self.weights.len(), 1))] * &w;
        let sums = self.reference.expand(kernel, 1.0, x, columns.view())?;
        let k = self.walk_eigenvalues.len();
        let total = sums.column(k);
        if let Some(i) = total.iter().position(|t| !(*t > f64::MIN_POSITIVE && t.is_finite())) {
            return Err(Error::input(format!(
                "row {} (counted from 1) is so far from every fitted point that the kernel between them is zero; \
                 leave it out or use a larger lengthscale",
                i + 1
            )));
        }
        Ok(&sums.slice(s![.., ..k]) / &total.insert_axis(Axis(1)) / aview1(&self.walk_eigenvalues))
    }

    /// The same with `p(x)` uniform on the `m` points nearest to x.
    fn averaged(&self, m: usize, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.reference.origin.d)?;
        let mut z = Array2::zeros((x.nrows(), self.walk_eigenvalues.len()));
        for (mut z, near) in z.rows_mut().into_iter().zip(nearest_neighbours(self.reference.points(), x, m)) {
            near.iter().for_each(|&(i, _)| z += &self.functions.row(i));
            z /= m as f64;
            z /= &aview1(&self.walk_eigenvalues);
        }
        Ok(z)
    }
}

impl Transform for FittedEigenmaps {
    fields! {
        origin: Origin = reference.origin;
        eigenvalues: [f64] = eigenvalues;
        notes: [String] = notes;
    }

    /// `λ_j^t ψ_j(x_i)` `[n, k]`
    fn embedding(&self) -> Array2<f64> {
        &self.functions * &self.damping()
    }

    /// One step of the walk from the new points. With a kernel, fitted points keep their coordinates. With neighbours, a
    /// fitted point, which may also be joined to points that are not its own nearest, keeps them only approximately.
    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let ψ = match &self.affinity {
            Affinity::Kernel(kernel) => self.extended(kernel, x)?,
            Affinity::Neighbours(m) => self.averaged(*m, x)?,
        };
        Ok(ψ * self.damping())
    }
}

saved! {
    FittedEigenmaps, "eigenmaps":
    reference: Reference = whole(Reference::unpack);
    eigenvalues: Vec<f64> = value("eigenvalues");
    time: f64 = value("time");
    notes: Vec<String> = value("notes");
    affinity: Affinity = known(Affinity::of_model, &reference.origin);
    weights: Array1<f64> = vector("walk.weights", reference.origin.n);
    walk_eigenvalues: Vec<f64> = list("walk.eigenvalues", eigenvalues.len());
    functions: Array2<f64> = matrix("walk.functions", (reference.origin.n, walk_eigenvalues.len()));
}
