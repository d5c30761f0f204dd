use super::extension::Extension;
use super::graph::{NeighbourGraph, nearest_neighbours};
use super::reference::{Reference, Saved};
use super::walk::{RandomWalk, SlowFunctions, slow_functions, slow_functions_sparse};
use super::{EigenSolver, FitContext, check_k, check_points};
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::model::Bundle;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, aview1};
use std::fmt;
use std::time::Instant;

/// The slowest functions on the points: eigenvectors of the normalised Laplacian `I − D⁻¹W` with the smallest
/// eigenvalues, the constant one left out.
///
/// The functions are those of the random walk `D⁻¹W`, `Σ_i π_i ψ_ij² = 1` under its stationary law π; the symmetric
/// Laplacian `I − D^{−1/2}WD^{−1/2}` has the same eigenvalues and the vectors `√π_i ψ_ij`. The entry of the largest
/// magnitude of each function is positive.
///
/// ```
/// use mercer::apply::{Affinity, LaplacianEigenmaps, FitContext};
/// let ring = ndarray::Array2::from_shape_fn((100, 2), |(i, j)| {
///     let angle = i as f64 * std::f64::consts::TAU / 100.0;
///     if j == 0 { angle.cos() } else { angle.sin() }
/// });
/// let maps = LaplacianEigenmaps { k: 2, affinity: Affinity::Neighbours(2), ..Default::default() };
/// let fitted = maps.fit(ring.view(), &FitContext::default())?;
/// // A closed chain: both functions have the eigenvalue 1 − cos(2π/100).
/// let want = 1.0 - (std::f64::consts::TAU / 100.0).cos();
/// assert!(fitted.eigenvalues.iter().all(|e| (e - want).abs() < 1e-12));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LaplacianEigenmaps {
    /// How many coordinates.
    pub k: usize,
    /// What joins two points.
    pub affinity: Affinity,
    /// How the functions are found.
    pub solver: EigenSolver,
    /// Residual at which the Krylov solver is done with a pair.
    pub tolerance: f64,
}

/// What joins two points, and how strongly.
#[derive(Clone, Debug, PartialEq)]
pub enum Affinity {
    /// Each to so many nearest others: `W = (A + Aᵀ)/2` with `A_ij = 1` when j is among the nearest of i.
    Neighbours(usize),
    /// All to all, `W_ij = κ(x_i, x_j)`, for a kernel that is never negative. W is never stored unless it fits easily.
    Kernel(Kernel),
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Affinity::Neighbours(m) => write!(f, "neighbours({m})"),
            Affinity::Kernel(kernel) => kernel.fmt(f),
        }
    }
}

impl std::str::FromStr for Affinity {
    type Err = Error;

    /// Reads what `Display` writes: `neighbours(10)`, or a kernel.
    fn from_str(text: &str) -> Result<Affinity> {
        match text.trim().strip_prefix("neighbours(").and_then(|rest| rest.strip_suffix(')')) {
            None => Kernel::parse(text).map(Affinity::Kernel),
            Some(number) => number.trim().parse().map(Affinity::Neighbours).map_err(|_| {
                Error::input(format!("neighbours({number}): the number of neighbours must be a whole number above 0"))
            }),
        }
    }
}

impl Default for LaplacianEigenmaps {
    fn default() -> Self {
        LaplacianEigenmaps { k: 2, affinity: Affinity::Neighbours(10), solver: EigenSolver::Auto, tolerance: 1e-6 }
    }
}

/// Laplacian eigenmaps, ready to place new points.
pub struct FittedLaplacianEigenmaps {
    /// Eigenvalues of the normalised Laplacian, ascending, the trivial zero left out.
    pub eigenvalues: Vec<f64>,
    /// Coordinates that were asked for but whose function is as fast as noise: `1 − eigenvalue` is not told from zero.
    pub dropped: usize,
    /// What a user should know: pieces of the graph that nothing joins.
    pub notes: Vec<String>,
    /// What it was fitted on.
    pub reference: Reference,
    affinity: Affinity,
    extension: Extension,
}

impl LaplacianEigenmaps {
    /// Finds the slow functions on the points `x` `[n, d]`.
    pub fn fit(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<FittedLaplacianEigenmaps> {
        let start = Instant::now();
        check_points(x)?;
        let n = x.nrows();
        check_k(self.k, n.saturating_sub(1))?;
        let mut notes = Vec::new();
        let extension = match &self.affinity {
            Affinity::Neighbours(m) => {
                if *m == 0 || *m >= n {
                    return Err(Error::input(format!(
                        "the number of neighbours must lie between 1 and {}, one less than there are points; got {m}",
                        n - 1
                    )));
                }
                let graph = NeighbourGraph::new(x, *m);
                let walk = RandomWalk::new(&graph, 0.0)?;
                let pieces = graph.components();
                if pieces > 1 {
                    notes.push(format!(
                        "the graph of {m} neighbours falls into {pieces} pieces that no edge joins; the first {} \
                         coordinates only tell the pieces apart; use more neighbours",
                        (pieces - 1).min(self.k)
                    ));
                }
                Extension::new(&walk, slow_functions_sparse(&walk, self.k, self.solver, self.tolerance, context)?)
            }
            Affinity::Kernel(kernel) => {
                let operator = context.operator(kernel, x, 18 * (n * (self.k + 8)) as u64 * 8)?;
                let walk = RandomWalk::new(operator.as_ref(), 0.0)?;
                let slow = slow_functions(&walk, self.k, self.solver, self.tolerance, context)?;
                notes.extend(nearly_separate(&slow));
                Extension::new(&walk, slow)
            }
        };
        Ok(FittedLaplacianEigenmaps {
            eigenvalues: extension.eigenvalues.iter().map(|λ| 1.0 - λ).collect(),
            dropped: self.k - extension.eigenvalues.len(),
            reference: Reference::new("laplacian", &self.affinity, x, context, start),
            affinity: self.affinity.clone(),
            notes,
            extension,
        })
    }
}

/// A walk that all but never leaves a part of the points: eigenvalues that are one up to rounding.
pub(super) fn nearly_separate(slow: &SlowFunctions) -> Option<String> {
    let stuck = slow.eigenvalues.iter().filter(|&&λ| λ > 1.0 - 1e-9).count();
    (stuck > 0).then(|| {
        format!(
            "the points fall into {} or more parts between which the kernel is almost zero; the first {stuck} coordinates \
             only tell the parts apart; use a larger lengthscale",
            stuck + 1
        )
    })
}

impl FittedLaplacianEigenmaps {
    /// Number of coordinates.
    pub fn k(&self) -> usize {
        self.eigenvalues.len()
    }

    /// Coordinates `ψ_j(x_i)` `[n, k]` of the fitted points.
    pub fn embedding(&self) -> ArrayView2<'_, f64> {
        self.extension.functions.view()
    }

    /// Coordinates `[m, k]` of new points `[m, d]`: one step of the walk from there, `ψ_j(x) = (1/λ_j) Σ_i p_i(x) ψ_ij`.
    ///
    /// With a kernel, fitted points keep their coordinates. With neighbours, `p(x)` is uniform on those nearest to x, and
    /// a fitted point, which may also be joined to points that are not its own nearest, keeps them only nearly.
    pub fn transform(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let x = self.reference.prepare(x)?;
        let points = self.reference.points();
        match &self.affinity {
            Affinity::Kernel(kernel) => {
                let Reference { origin, device, .. } = &self.reference;
                self.extension.at(kernel, points, x.view(), origin.precision, *device)
            }
            Affinity::Neighbours(m) => {
                let mut z = Array2::zeros((x.nrows(), self.k()));
                for (mut z, near) in z.rows_mut().into_iter().zip(nearest_neighbours(points, x.view(), *m)) {
                    near.iter().for_each(|&(i, _)| z += &self.extension.functions.row(i));
                    z /= *m as f64;
                    z /= &aview1(&self.extension.eigenvalues);
                }
                Ok(z)
            }
        }
    }
}

impl Saved for FittedLaplacianEigenmaps {
    const KIND: &'static str = "laplacian";

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) {
        self.reference.pack(bundle);
        bundle.set("dropped", self.dropped);
        bundle.set("notes", &self.notes);
        self.extension.pack(bundle);
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<Self> {
        let reference = Reference::unpack(bundle, device)?;
        let extension = Extension::unpack(bundle, reference.origin.n)?;
        Ok(FittedLaplacianEigenmaps {
            eigenvalues: extension.eigenvalues.iter().map(|λ| 1.0 - λ).collect(),
            dropped: bundle.value("dropped")?,
            notes: bundle.value("notes")?,
            affinity: reference.origin.kernel.parse()?,
            reference,
            extension,
        })
    }
}
