//! What hyper-parameters are chosen by: the marginal likelihood, or the leave-one-out error, with derivatives.

use crate::compute::Device;
use crate::linalg::{Cholesky, matmul};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// What hyper-parameters are chosen by. Example: [`Tuning`](super::Tuning).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// The mean squared error at each point of the prediction from all others.
    #[default]
    LeftOut,
    /// The negative logarithm of the marginal likelihood of a Gaussian process, for each row.
    Likelihood,
}

/// A criterion at a matrix `A = K + σ²I`.
pub(super) struct AtMatrix {
    pub value: f64,
    /// `∂value/∂A` `[n, n]`, symmetric.
    pub gradient: Array2<f64>,
}

impl Criterion {
    /// The criterion at `A = K + σ²I` `[n, n]` for targets `y` `[n, m]`. None where A is not positive definite.
    pub(super) fn at(self, a: ArrayView2<f64>, y: ArrayView2<f64>, device: Device) -> Result<Option<AtMatrix>> {
        let factor = match Cholesky::new(device, a) {
            Ok(factor) => factor,
            Err(Error::Numerical(_)) => return Ok(None),
            Err(other) => return Err(other),
        };
        let inverse = factor.inverse()?;
        let solved = matmul(inverse.view(), y);
        let at = match self {
            Criterion::Likelihood => likelihood(&factor, inverse, y, solved)?,
            Criterion::LeftOut => left_out(inverse.view(), solved.view()),
        };
        Ok(Some(at).filter(|at| at.value.is_finite()))
    }
}

/// `−log p(Y)/n = (1/n) Σ_c [½ y_cᵀA⁻¹y_c + ½ log|A| + (n/2) log 2π]`, with derivative `(1/2n)(m A⁻¹ − A⁻¹YYᵀA⁻¹)`.
fn likelihood(
    factor: &Cholesky<f64>,
    inverse: Array2<f64>,
    y: ArrayView2<f64>,
    solved: Array2<f64>,
) -> Result<AtMatrix> {
    let (n, m) = (y.nrows() as f64, y.ncols() as f64);
    let l = factor.lower()?;
    let half_determinant: f64 = (0..y.nrows()).map(|i| l[(i, i)].ln()).sum();
    let value = (0.5 * (&y * &solved).sum() + m * half_determinant) / n + 0.5 * m * TAU.ln();
    let gradient = (inverse * m - matmul(solved.view(), solved.t())) * (0.5 / n);
    Ok(AtMatrix { value, gradient })
}

/// `(1/nm) Σ e_ic²` with the leave-one-out errors `e_ic = α_ic/Q_ii`, `Q = A⁻¹`, `α = QY`. From `dQ = −Q dA Q`,
/// `d(e²) = 2e(dα_i/Q_ii − α_i dQ_ii/Q_ii²)`, the derivative is `Q D Q − ½(uαᵀ + αuᵀ)` with `u = Q(2e/Q_ii)` and
/// `D = diag(Σ_c 2e_ic α_ic/Q_ii²)`, over nm.
fn left_out(q: ArrayView2<f64>, solved: ArrayView2<f64>) -> AtMatrix {
    let count = solved.len() as f64;
    let diagonal: Array1<f64> = q.diag().to_owned();
    let by_row = diagonal.view().insert_axis(Axis(1));
    let errors = &solved / &by_row;
    let u = matmul(q, (&errors * 2.0 / by_row).view());
    let d = (&errors * &solved * 2.0).sum_axis(Axis(1)) / (&diagonal * &diagonal);
    let mixed = matmul(u.view(), solved.t());
    let gradient = matmul((&q * &d).view(), q) - (&mixed + &mixed.t()) * 0.5;
    AtMatrix { value: (&errors * &errors).sum() / count, gradient: gradient / count }
}
