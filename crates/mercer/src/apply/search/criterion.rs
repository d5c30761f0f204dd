//! What hyper-parameters are chosen by: the marginal likelihood, or the leave-one-out error, with derivatives.

use crate::Result;
use crate::apply::process::softmax_laplace::{Mode, half_log_determinant};
use crate::compute::Device;
use crate::linalg::{Cholesky, matmul};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use std::sync::{Mutex, PoisonError};

/// What hyper-parameters are chosen by. Example: [`Tuning`](crate::apply::Tuning).
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
pub(crate) struct AtMatrix {
    pub value: f64,
    /// `∂value/∂A` `[n, n]`, symmetric.
    pub gradient: Array2<f64>,
}

/// A function of a matrix, to be minimised.
pub(crate) trait OnMatrix {
    /// Whether the matrix is `K + σ²I`, and not K alone.
    const NOISE: bool;

    /// The function at a matrix `[n, n]` and its derivative; an [`Error::Numerical`] where it has no value.
    fn at(&self, a: ArrayView2<f64>, device: Device) -> Result<AtMatrix>;
}

/// A criterion for targets `y` `[n, m]` of a regression.
pub(crate) struct Regression<'a> {
    pub criterion: Criterion,
    pub y: ArrayView2<'a, f64>,
}

impl OnMatrix for Regression<'_> {
    const NOISE: bool = true;

    fn at(&self, a: ArrayView2<f64>, device: Device) -> Result<AtMatrix> {
        // A is symmetric, and read fastest by columns.
        let factor = Cholesky::new(device, a.t())?;
        let inverse = factor.inverse()?;
        let solved = matmul(inverse.view(), self.y);
        match self.criterion {
            Criterion::Likelihood => likelihood(&factor, inverse, self.y, solved),
            Criterion::LeftOut => Ok(left_out(inverse.view(), solved.view())),
        }
    }
}

/// The approximate marginal likelihood of classes `y` `[n, C]` of zeros and ones.
pub(crate) struct Classification<'a> {
    pub y: ArrayView2<'a, f64>,
    /// The mode for the last matrix, from which the next is found in fewer steps.
    pub last: Mutex<Array2<f64>>,
}

impl OnMatrix for Classification<'_> {
    const NOISE: bool = false;

    fn at(&self, k: ArrayView2<f64>, device: Device) -> Result<AtMatrix> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (mode, likelihood) = Mode::find(k, self.y, last.clone(), device)?;
        let gradient = mode.derivative(k)?;
        *last = mode.coefficients;
        Ok(AtMatrix { value: -likelihood / k.nrows() as f64, gradient })
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
    let value = (0.5 * (&y * &solved).sum() + m * half_log_determinant(factor)?) / n + 0.5 * m * TAU.ln();
    // In the memory of the inverse, a row at a time.
    let mut gradient = inverse;
    let (half, columns) = (0.5 / n, solved.t().as_standard_layout().into_owned());
    let rows: Vec<_> = gradient.rows_mut().into_iter().collect();
    rows.into_par_iter().enumerate().for_each(|(i, mut row)| {
        row *= half * m;
        columns.rows().into_iter().for_each(|column| row.scaled_add(-half * column[i], &column));
    });
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
