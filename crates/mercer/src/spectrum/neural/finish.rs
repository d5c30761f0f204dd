//! The finish: Rayleigh–Ritz within the span of the functions, in double precision over a large sample.

use super::{FunctionOperator, Functions, Sample};
use crate::compute::Device;
use crate::linalg::{eigh, matmul};
use crate::spectrum::ritz::orthonormalise;
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

/// The best eigenpairs of `K` within a span: `ψ = Φ A`. Example: [the module](super).
pub struct Pairs {
    /// Eigenvalues of `K`, descending; fewer than asked for where the span has fewer dimensions.
    pub eigenvalues: Vec<f64>,
    /// `A` `[p, k]`, for the functions without their norms ([`Functions::forget_norm`]).
    pub coefficients: Array2<f64>,
    /// `ψ` `[B·c, k]` on the sample, orthonormal there.
    pub values: Array2<f64>,
    /// `‖Kψ_j − μ_jψ_j‖` on the sample.
    pub residuals: Vec<f64>,
}

impl Pairs {
    /// The mean over the k pairs asked for of `min(1, ‖Kψ_j − μ_jψ_j‖/μ_j)`: the certificate's residual on the sample.
    /// A pair whose eigenvalue is numerically zero counts as exact, a missing one as wrong.
    pub fn mean_residual(&self, k: usize, roundoff: f64) -> f64 {
        let zero = 10.0 * roundoff * self.eigenvalues.first().map_or(0.0, |μ| μ.abs());
        let found = self.eigenvalues.iter().zip(&self.residuals);
        let sum: f64 = found.map(|(μ, r)| if μ.abs() <= zero { 0.0 } else { (r / μ.abs()).min(1.0) }).sum();
        (sum + k.saturating_sub(self.eigenvalues.len()) as f64) / k as f64
    }
}

/// The squared error of single precision is some 1e-15; at this share a direction is known to a percent.
const NOISE: f64 = 1e-11;

/// Solves `Π a = μ Σ a`, `Σ = ⟨φ,φᵀ⟩`, `Π = ⟨φ,Kφᵀ⟩`, over the points of `sample`, for at most `k` pairs.
///
/// The functions are made orthonormal first, for the reason given at [`crate::spectrum::rayleigh_ritz`].
/// Example: [the module](super).
pub fn rayleigh_ritz(
    operator: &dyn FunctionOperator,
    functions: &mut Functions,
    sample: &Sample,
    k: usize,
) -> Result<Pairs> {
    functions.calibrate(&sample.x)?;
    functions.forget_norm()?;
    let phi = functions.columns(&sample.x)?;
    if phi.iter().any(|v| !v.is_finite()) {
        return Err(Error::Numerical("a network's output is not finite; use a smaller learning rate".into()));
    }
    within_span(phi.view(), k, |q, w| operator.image(sample, q, w, functions))
}

/// The same for functions known by their values `Φ` `[m, p]` alone; `image` gives `K(ΦW)` for `ΦW` and `W` `[p, r]`.
pub(super) fn within_span(
    phi: ArrayView2<f64>,
    k: usize,
    image: impl FnOnce(ArrayView2<f64>, ArrayView2<f64>) -> Result<Array2<f64>>,
) -> Result<Pairs> {
    let (q, w) = orthonormalise(phi, NOISE)?;
    let image = image(q.view(), w.view())?;
    if image.iter().any(|v| !v.is_finite()) {
        return Err(Error::Numerical("the operator's action on the networks is not finite; scale the data".into()));
    }
    let m = phi.nrows() as f64;
    let t = matmul(q.t(), image.view()) / m;
    let (eigenvalues, v) = eigh(Device::Cpu, ((&t + &t.t()) * 0.5).view())?;
    let k = k.min(eigenvalues.len());
    let v = v.slice(s![.., ..k]);
    let eigenvalues = eigenvalues[..k].to_vec();
    let (values, image) = (matmul(q.view(), v), matmul(image.view(), v));
    let error = image - &values * &Array1::from(eigenvalues.clone());
    let residuals = error.axis_iter(Axis(1)).map(|e| (e.dot(&e) / m).sqrt()).collect();
    Ok(Pairs { coefficients: matmul(w.view(), v), eigenvalues, values, residuals })
}
