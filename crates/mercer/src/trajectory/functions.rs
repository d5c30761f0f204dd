//! The leading eigenfunctions of the trajectory's kernel, as functions of networks' outputs or of hidden units.

use super::networks::centred;
use crate::classifier::Classifier;
use crate::laplace::passes::{Hidden, Passes};
use crate::linalg::{eigh, matmul};
use crate::operator::{FunctionSamples, LowRankOperator};
use crate::spectrum::{Exact, Method as _, Problem, Solution};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, Array3, ArrayView2, ArrayView3, Axis};

/// Directions of hidden units whose variance is below this share of the largest are rounding.
const LEAST: f64 = 1e-10;

/// The functions `√μ_j ψ_j(x)` with C outputs each, such that `κ(x,x') ≈ Σ_j μ_j ψ_j(x)ψ_j(x')ᵀ`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Functions {
    /// `μ_j` `[k]`, descending.
    pub eigenvalues: Vec<f64>,
    /// `[M, k]` over the centred outputs of M networks, or `[q, C·k]` over the q hidden units of one.
    pub coefficients: Array2<f64>,
}

/// Means `[n, C]` of the outputs, and functions `[n, C, k]`.
pub(super) type Values = (Array2<f64>, Array3<f64>);

impl Functions {
    /// By the exact eigendecomposition of the kernel of the functions `f` `[M, n, C]` at n rows:
    /// `√μ_j ψ_j(x) = Σ_i F_i(x) B_ij`, `B = A diag(√μ)/√M`.
    pub fn exact(f: ArrayView3<f64>, k: usize, context: &FitContext) -> Result<Functions> {
        let operator = context.sample_operator(&FunctionSamples::from(f), false)?;
        let Solution { eigenvalues, coefficients, .. } = solved(&operator, k, context)?;
        let scale = Array1::from_iter(eigenvalues.iter().map(|μ| (μ / f.dim().0 as f64).sqrt()));
        Ok(Functions { coefficients: coefficients * &scale, eigenvalues })
    }

    /// By Rayleigh–Ritz in the span of q hidden units `m(x)` in every output. With `m̃ = mW` orthonormal over the rows, the kernel's
    /// projection is that of the functions `T_i = E[m̃ F_iᵀ]` on `q·C` coordinates, whose eigenvectors are coefficients of m̃.
    pub fn ritz(units: ArrayView2<f64>, f: ArrayView3<f64>, k: usize, context: &FitContext) -> Result<Functions> {
        let ((count, n, c), w) = (f.dim(), whitening(units, context)?);
        let orthonormal = matmul(units, w.view());
        let q = w.ncols();
        let mut t = Array3::zeros((count, q, c));
        for (mut t, f) in t.outer_iter_mut().zip(f.outer_iter()) {
            t.assign(&(matmul(orthonormal.t(), f) / n as f64));
        }
        let operator = LowRankOperator::new(t.into_shape_with_order((count, q * c)).expect("the same numbers"))?;
        let found = solved(&operator, k, context)?;
        let values = found.at_points.expect("the exact method has them");
        let roots = Array1::from_iter(found.eigenvalues.iter().map(|μ| μ.sqrt()));
        let a = (values * &roots).as_standard_layout().into_owned();
        let a = a.into_shape_with_order((q, c * k)).expect("the same numbers");
        // A function with the coefficients v has the mean square ‖v‖²/C over rows and outputs.
        let eigenvalues = found.eigenvalues.iter().map(|μ| μ * q as f64).collect();
        Ok(Functions { eigenvalues, coefficients: matmul(w.view(), a.view()) })
    }

    /// k
    pub fn count(&self) -> usize {
        self.eigenvalues.len()
    }

    /// The mean and the functions from outputs `[M, n, C]` of the networks.
    pub fn of_outputs(&self, outputs: Array3<f64>) -> Result<Values> {
        let (m, n, c) = outputs.dim();
        fail_if!(self.coefficients.nrows() != m, "its parts do not fit together: the functions are of other networks");
        let mean = outputs.mean_axis(Axis(0)).expect("there are networks");
        let f = centred(outputs).into_shape_with_order((m, n * c)).expect("the same numbers");
        let values = matmul(f.t(), self.coefficients.view());
        let values = values.as_standard_layout().into_owned();
        Ok((mean, values.into_shape_with_order((n, c, self.count())).expect("the same numbers")))
    }

    /// The mean and the functions from the hidden units of one network at rows `x` `[n, d]`, by one pass.
    pub fn of_hidden_units(&self, network: &Classifier, x: ArrayView2<f64>) -> Result<Values> {
        let (mean, units) = Passes::new(network)?.forward(x, Hidden::Means)?;
        fail_if!(
            units.ncols() != self.coefficients.nrows() || self.coefficients.ncols() != mean.ncols() * self.count(),
            "its parts do not fit together: the functions are of another network"
        );
        let values = matmul(units.view(), self.coefficients.view()).as_standard_layout().into_owned();
        let shape = (x.nrows(), mean.ncols(), self.count());
        Ok((mean, values.into_shape_with_order(shape).expect("the same numbers")))
    }
}

fn solved(operator: &LowRankOperator, k: usize, context: &FitContext) -> Result<Solution> {
    let problem = Problem { context: *context, ..Problem::new(operator, k) };
    Exact.solve(&problem)
}

/// W `[q, q']` such that `mW` has the identity as its mean product over rows, for units `m` `[n, q]`.
fn whitening(units: ArrayView2<f64>, context: &FitContext) -> Result<Array2<f64>> {
    let gram = matmul(units.t(), units) / units.nrows() as f64;
    let (λ, u) = eigh(context.device, gram.view())?;
    let kept = λ.iter().take_while(|value| **value > LEAST * λ[0]).count();
    fail_if!(kept == 0, "the hidden units of the network are zero at the rows");
    let scale = Array1::from_iter(λ[..kept].iter().map(|λ| 1.0 / λ.sqrt()));
    Ok(u.slice(ndarray::s![.., ..kept]).to_owned() * &scale)
}
