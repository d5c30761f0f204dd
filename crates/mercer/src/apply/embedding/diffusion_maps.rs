//! Diffusion maps.

use crate::apply::embedding::eigenmaps::{Eigenmaps, FittedEigenmaps};
use crate::apply::{Affinity, EigenSolver, Embedding, EmbeddingTask, Fit};
use crate::kernel::Kernel;
use crate::options::{Caps, Entry, Kind, Opt, Options};
use crate::{FitContext, Result, fail_if};
use ndarray::ArrayView2;

static ALPHA: Opt = Opt::new(
    "alpha",
    "SHARE",
    Kind::NonNegative,
    "how far the density of the points is taken out of the walk: 1 wholly, 0 not at all [default: 1]",
);
static TIME: Opt = Opt::new("time", "STEPS", Kind::NonNegative, "steps of the diffusion [default: 1]");

/// Diffusion maps (Coifman and Lafon): the walk `D⁻¹W'` on `W' = Q^{−a}κ(X,X)Q^{−a}`, its eigenvalues `λ_j` and
/// functions `ψ_j`, and the coordinates `λ_j^t ψ_j(x)`, whose distances are those between two diffusions after t steps.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel};
/// use mercer::apply::{DiffusionMaps, Fit, Transform};
/// // Two clusters: the first coordinate tells them apart by its sign.
/// let x = ndarray::array![[0.0], [0.3], [0.6], [5.0], [5.3], [5.6]];
/// let maps = DiffusionMaps { k: 1, ..DiffusionMaps::new(Kernel::parse("rbf(1)")?) };
/// let z = maps.fit(x.view(), &(), &FitContext::default())?.embedding();
/// assert!((0..3).all(|i| z[[i, 0]] * z[[i + 3, 0]] < 0.0));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DiffusionMaps {
    /// κ, never negative.
    pub kernel: Kernel,
    /// How many coordinates, the constant one not counted.
    pub k: usize,
    /// `a`: 0 keeps the density of the points in the walk, 1 takes it out (the Laplace–Beltrami operator of the surface
    /// that they lie on), ½ is the Fokker–Planck operator.
    pub alpha: f64,
    /// t, not below zero.
    pub time: f64,
    /// How the functions are found.
    pub solver: EigenSolver,
    /// Residual at which the Krylov solver accepts a pair.
    pub tolerance: f64,
}

impl DiffusionMaps {
    /// Two coordinates under `kernel`, without the effect of the density, after one step.
    pub fn new(kernel: Kernel) -> Self {
        DiffusionMaps { kernel, k: 2, alpha: 1.0, time: 1.0, solver: EigenSolver::Auto, tolerance: 1e-6 }
    }

    pub(crate) fn entry() -> Entry<EmbeddingTask> {
        Entry {
            can: Caps { precision: true, ..Caps::default() },
            ..Entry::<EmbeddingTask>::new(
                "diffusion",
                "Diffusion maps: distances are those of a diffusion over the points",
                [&[&ALPHA, &TIME][..], &EigenSolver::OPTIONS].concat(),
                DiffusionMaps::built,
            )
        }
    }

    fn built(o: &mut Options, task: &EmbeddingTask) -> Result<Embedding> {
        let (k, kernel, (solver, tolerance)) = (task.k, task.kernel()?, EigenSolver::of(o)?);
        let (alpha, time) = (o.take(&ALPHA)?, o.take(&TIME)?);
        Ok(Embedding::new(move |x, context| {
            let usual = DiffusionMaps::new(kernel.resolve(x, context.seed)?);
            let (alpha, time) = (alpha.unwrap_or(usual.alpha), time.unwrap_or(usual.time));
            let tolerance = tolerance.unwrap_or(usual.tolerance);
            DiffusionMaps { k, alpha, time, solver, tolerance, ..usual }.fit(x, &(), context)
        }))
    }
}

impl Fit for DiffusionMaps {
    type Target = ();
    type Fitted = FittedEigenmaps;

    fn learn(&self, x: ArrayView2<f64>, _: &(), context: &FitContext) -> Result<FittedEigenmaps> {
        for (name, value) in [("alpha", self.alpha), ("time", self.time)] {
            fail_if!(
                !(value >= 0.0 && value.is_finite()),
                "diffusion maps: {name} must be a number of at least 0, got {value}"
            );
        }
        let DiffusionMaps { k, alpha: density, time, solver, tolerance, .. } = *self;
        let affinity = &Affinity::Kernel(self.kernel.clone());
        Eigenmaps { method: "diffusion", affinity, density, k, time, solver, tolerance }.fit(x, context)
    }
}
