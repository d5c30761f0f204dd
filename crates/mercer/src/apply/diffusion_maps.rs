use super::extension::Extension;
use super::laplacian_eigenmaps::nearly_separate;
use super::reference::{Reference, Saved};
use super::walk::{RandomWalk, slow_functions};
use super::{EigenSolver, FitContext, check_k, check_points};
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::model::Bundle;
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2};
use std::time::Instant;

/// Diffusion maps (Coifman and Lafon): the walk `D⁻¹W'` on `W' = Q^{−a}κ(X,X)Q^{−a}`, its eigenvalues `λ_j` and
/// functions `ψ_j`, and the coordinates `λ_j^t ψ_j(x)`, whose distances are those between two diffusions after t steps.
///
/// ```
/// use mercer::apply::{DiffusionMaps, FitContext};
/// use mercer::kernel::Kernel;
/// // Two clusters: the first coordinate tells them apart by its sign.
/// let x = ndarray::array![[0.0], [0.3], [0.6], [5.0], [5.3], [5.6]];
/// let maps = DiffusionMaps { k: 1, ..Default::default() }.fit(&Kernel::parse("rbf(1)")?, x.view(), &FitContext::default())?;
/// let z = maps.embedding();
/// assert!((0..3).all(|i| z[[i, 0]] * z[[i + 3, 0]] < 0.0));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DiffusionMaps {
    /// How many coordinates, the constant one not counted.
    pub k: usize,
    /// `a`: 0 keeps the density of the points in the walk, 1 takes it out (the Laplace–Beltrami operator of the surface
    /// that they lie on), ½ is the Fokker–Planck operator.
    pub alpha: f64,
    /// t, not below zero.
    pub time: f64,
    /// How the functions are found.
    pub solver: EigenSolver,
    /// Residual at which the Krylov solver is done with a pair.
    pub tolerance: f64,
}

impl Default for DiffusionMaps {
    fn default() -> Self {
        DiffusionMaps { k: 2, alpha: 1.0, time: 1.0, solver: EigenSolver::Auto, tolerance: 1e-6 }
    }
}

/// Diffusion coordinates, ready to place new points.
pub struct FittedDiffusionMaps {
    /// `λ_j` of the walk, descending, the trivial one left out.
    pub eigenvalues: Vec<f64>,
    /// Coordinates that were asked for but whose eigenvalue is not told from zero.
    pub dropped: usize,
    /// t
    pub time: f64,
    /// What a user should know: parts of the data between which nothing diffuses.
    pub notes: Vec<String>,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    extension: Extension,
}

impl DiffusionMaps {
    /// Finds the coordinates of the points `x` `[n, d]` under a kernel that is never negative.
    pub fn fit(&self, kernel: &Kernel, x: ArrayView2<f64>, context: &FitContext) -> Result<FittedDiffusionMaps> {
        let start = Instant::now();
        check_points(x)?;
        check_k(self.k, x.nrows().saturating_sub(1))?;
        for (name, value) in [("alpha", self.alpha), ("time", self.time)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::input(format!(
                    "diffusion maps: {name} must be a number of at least 0, got {value}"
                )));
            }
        }
        let operator = context.operator(kernel, x, 18 * (x.nrows() * (self.k + 8)) as u64 * 8)?;
        let walk = RandomWalk::new(operator.as_ref(), self.alpha)?;
        let slow = slow_functions(&walk, self.k, self.solver, self.tolerance, context)?;
        Ok(FittedDiffusionMaps {
            eigenvalues: slow.eigenvalues.clone(),
            dropped: slow.dropped,
            time: self.time,
            notes: nearly_separate(&slow).into_iter().collect(),
            reference: Reference::new("diffusion", kernel, x, context, start),
            kernel: kernel.clone(),
            extension: Extension::new(&walk, slow),
        })
    }
}

impl FittedDiffusionMaps {
    /// Number of coordinates.
    pub fn k(&self) -> usize {
        self.eigenvalues.len()
    }

    /// `λ_j^t` `[k]`
    fn damping(&self) -> Array1<f64> {
        self.eigenvalues.iter().map(|λ| λ.powf(self.time)).collect()
    }

    /// Coordinates `λ_j^t ψ_j(x_i)` `[n, k]` of the fitted points.
    pub fn embedding(&self) -> Array2<f64> {
        &self.extension.functions * &self.damping()
    }

    /// Coordinates `[m, k]` of new points `[m, d]` by Nyström's extension; fitted points keep theirs.
    pub fn transform(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let x = self.reference.prepare(x)?;
        let precision = self.reference.origin.precision;
        let ψ = self.extension.at(&self.kernel, self.reference.points(), x.view(), precision, self.reference.device)?;
        Ok(ψ * self.damping())
    }
}

impl Saved for FittedDiffusionMaps {
    const KIND: &'static str = "diffusion";

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) {
        self.reference.pack(bundle);
        bundle.set("dropped", self.dropped);
        bundle.set("time", self.time);
        bundle.set("notes", &self.notes);
        self.extension.pack(bundle);
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<Self> {
        let reference = Reference::unpack(bundle, device)?;
        let extension = Extension::unpack(bundle, reference.origin.n)?;
        Ok(FittedDiffusionMaps {
            eigenvalues: extension.eigenvalues.clone(),
            dropped: bundle.value("dropped")?,
            time: bundle.value("time")?,
            notes: bundle.value("notes")?,
            kernel: reference.kernel()?,
            reference,
            extension,
        })
    }
}
