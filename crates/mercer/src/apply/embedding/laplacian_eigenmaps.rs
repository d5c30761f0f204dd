//! Laplacian eigenmaps.

use crate::apply::embedding::eigenmaps::{Eigenmaps, FittedEigenmaps};
use crate::apply::{EigenSolver, Embedding, EmbeddingTask, Fit};
use crate::kernel::Kernel;
use crate::options::{Caps, Entry, Kind, Opt, Options};
use crate::spectrum::Origin;
use crate::{Error, FitContext, Registry, Result, fail_if};
use ndarray::ArrayView2;
use std::fmt;

static NEIGHBOURS: Opt = Opt::new(
    "neighbours",
    "N",
    Kind::Count(1),
    "join every point to so many nearest others [default: 10, unless a kernel is given]",
);

/// The slowest functions on the points: eigenvectors of the normalised Laplacian `I − D⁻¹W` with the smallest
/// eigenvalues, without the constant one.
///
/// The functions are those of the random walk `D⁻¹W`, `Σ_i π_i ψ_ij² = 1` under its stationary distribution π; the symmetric
/// Laplacian `I − D^{−1/2}WD^{−1/2}` has the same eigenvalues and the vectors `√π_i ψ_ij`. The entry of the largest
/// magnitude of each function is positive.
///
/// ```
/// use mercer::{FitContext, apply::{Affinity, Fit, LaplacianEigenmaps}};
/// let ring = ndarray::Array2::from_shape_fn((100, 2), |(i, j)| {
///     let angle = i as f64 * std::f64::consts::TAU / 100.0;
///     if j == 0 { angle.cos() } else { angle.sin() }
/// });
/// let maps = LaplacianEigenmaps { k: 2, affinity: Affinity::Neighbours(2), ..Default::default() };
/// let fitted = maps.fit(ring.view(), &(), &FitContext::default())?;
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
    /// Residual at which the Krylov solver accepts a pair.
    pub tolerance: f64,
}

/// What joins two points, and how strongly. Example: [`LaplacianEigenmaps`].
#[derive(Clone, Debug, PartialEq)]
pub enum Affinity {
    /// Each point to its m nearest others: `W = (A + Aᵀ)/2` with `A_ij = 1` when j is among the nearest of i.
    Neighbours(usize),
    /// All to all, `W_ij = κ(x_i, x_j)`, for a kernel that is never negative. W is never stored unless it fits easily.
    Kernel(Kernel),
}

impl Affinity {
    /// That of a saved model.
    pub(crate) fn of_model(origin: &Origin, registry: &Registry) -> Result<Affinity> {
        match origin.kernel.parse() {
            Ok(neighbours @ Affinity::Neighbours(_)) => neighbours.within(origin.n),
            _ => Kernel::of_model(&origin.kernel, origin.d, registry).map(Affinity::Kernel),
        }
    }

    /// Refuses more neighbours than n points have.
    pub(crate) fn within(self, n: usize) -> Result<Affinity> {
        match self {
            Affinity::Neighbours(m) if m == 0 || m >= n => Err(Error::input(format!(
                "the number of neighbours must lie between 1 and {}, one less than there are points; got {m}",
                n.saturating_sub(1)
            ))),
            affinity => Ok(affinity),
        }
    }
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

impl LaplacianEigenmaps {
    pub(crate) fn entry() -> Entry<EmbeddingTask> {
        Entry {
            can: Caps { precision: true, ..Caps::default() },
            ..Entry::<EmbeddingTask>::new(
                "laplacian",
                "Laplacian eigenmaps: the slowest functions on a graph of neighbours, or on a kernel",
                [&[&NEIGHBOURS][..], &EigenSolver::OPTIONS].concat(),
                LaplacianEigenmaps::built,
            )
        }
    }

    fn built(o: &mut Options, task: &EmbeddingTask) -> Result<Embedding> {
        let usual = LaplacianEigenmaps::default();
        let (solver, tolerance) = EigenSolver::of(o)?;
        let tolerance = tolerance.unwrap_or(usual.tolerance);
        let neighbours = o.take(&NEIGHBOURS)?;
        fail_if!(
            neighbours.is_some() && task.kernel.is_some(),
            "{} and {} cannot be given together",
            o.option(&NEIGHBOURS),
            o.spelling().option("kernel")
        );
        let affinity = neighbours.map_or(usual.affinity, Affinity::Neighbours);
        let (maps, kernel) = (LaplacianEigenmaps { k: task.k, affinity, solver, tolerance }, task.kernel.clone());
        Ok(Embedding::new(move |x, context| match &kernel {
            None => maps.fit(x, &(), context),
            Some(kernel) => {
                let affinity = Affinity::Kernel(kernel.resolve(x, context.seed)?);
                LaplacianEigenmaps { affinity, ..maps.clone() }.fit(x, &(), context)
            }
        }))
    }
}

impl Fit for LaplacianEigenmaps {
    type Target = ();
    type Fitted = FittedEigenmaps;

    fn learn(&self, x: ArrayView2<f64>, _: &(), context: &FitContext) -> Result<FittedEigenmaps> {
        let LaplacianEigenmaps { k, affinity, solver, tolerance } = self;
        let (k, solver, tolerance) = (*k, *solver, *tolerance);
        let maps = Eigenmaps { method: "laplacian", affinity, density: 0.0, k, time: 0.0, solver, tolerance };
        let mut fitted = maps.fit(x, context)?;
        // The Laplacian has no eigenvalue below zero; what is below is rounding.
        fitted.eigenvalues.iter_mut().for_each(|λ| *λ = (1.0 - *λ).max(0.0));
        Ok(fitted)
    }
}
