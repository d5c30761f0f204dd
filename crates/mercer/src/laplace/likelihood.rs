//! How the targets depend on the network's outputs, and the curvature of that.

use crate::classifier::{Classifier, Labelled, Number};
use crate::{Result, fail_if};
use ndarray::{Array2, Array3, ArrayView2};
use std::f64::consts::TAU;

/// Targets of rows, as the network sees them.
pub(crate) enum Likelihood {
    /// The class of each row, by its place among the network's outputs: `p(y|z) = softmax(z)_y`.
    Classes(Vec<usize>),
    /// The number of each row in units of the network's output: `p(y|z) = N(y; z, σ²)`.
    Numbers(Vec<f64>),
}

impl Likelihood {
    /// Of labelled rows.
    pub fn of(classifier: &Classifier, data: &Labelled) -> Result<Likelihood> {
        fail_if!(data.n() == 0, "there are no rows to fit the uncertainty on");
        match classifier.number {
            None => {
                let labels = data.labels_for(&classifier.classes)?;
                fail_if!(labels.len() != data.n(), "the network tells classes apart, but the rows have numbers");
                Ok(Likelihood::Classes(labels))
            }
            Some(Number { mean, spread }) => {
                fail_if!(data.numbers.len() != data.n(), "the network predicts a number, but the rows have classes");
                Ok(Likelihood::Numbers(data.numbers.iter().map(|y| (y - mean) / spread).collect()))
            }
        }
    }

    /// `Σ_i log p(y_i|z_i)` for outputs `z` `[n, C]` and the noise σ² of numbers.
    pub fn log_likelihood(&self, z: ArrayView2<f64>, noise: f64) -> f64 {
        match self {
            Likelihood::Classes(labels) => z.rows().into_iter().zip(labels).map(|(z, &y)| log_probability(z, y)).sum(),
            Likelihood::Numbers(y) => {
                let squares: f64 = z.iter().zip(y).map(|(z, y)| (z - y).powi(2)).sum();
                -0.5 * (squares / noise + y.len() as f64 * (TAU * noise).ln())
            }
        }
    }

    /// The mean of `(y_i − z_i)²` of numbers, their noise without a posterior, for outputs `z` `[n, 1]`; 1 for classes.
    pub fn mean_square(&self, z: ArrayView2<f64>) -> f64 {
        match self {
            Likelihood::Classes(_) => 1.0,
            Likelihood::Numbers(y) => z.iter().zip(y).map(|(z, y)| (z - y).powi(2)).sum::<f64>() / y.len() as f64,
        }
    }

    /// The mean of `−log p(y_i)` for scores `s` `[n, C]` of classes, or for means `s` `[n, 1]` and variances `[n, 1]` of numbers, the
    /// noise included.
    pub fn mean_loss(&self, scores: ArrayView2<f64>, variances: ArrayView2<f64>) -> f64 {
        let n = scores.nrows() as f64;
        match self {
            Likelihood::Classes(_) => -self.log_likelihood(scores, 1.0) / n,
            Likelihood::Numbers(y) => {
                let terms = scores.iter().zip(variances).zip(y);
                terms.map(|((m, v), y)| 0.5 * ((y - m).powi(2) / v + (TAU * v).ln())).sum::<f64>() / n
            }
        }
    }
}

/// `log softmax(z)_y`
fn log_probability(z: ndarray::ArrayView1<f64>, y: usize) -> f64 {
    let most = z.iter().copied().fold(f64::MIN, f64::max);
    z[y] - most - z.iter().map(|z| (z - most).exp()).sum::<f64>().ln()
}

/// `Λ_i = −∂² log p(y_i|z_i)/∂z²` `[n, C, C]` at outputs `z` `[n, C]`: `diag(p) − ppᵀ` for classes, 1 for a number of noise one.
pub(super) fn curvature(z: ArrayView2<f64>, classes: bool) -> Array3<f64> {
    let (n, c) = z.dim();
    if !classes {
        return Array3::ones((n, 1, 1));
    }
    let p = probabilities(z);
    Array3::from_shape_fn((n, c, c), |(i, a, b)| p[[i, a]] * (f64::from(u8::from(a == b)) - p[[i, b]]))
}

/// `L_i` `[n, C, C]` with `Λ_i = L_i L_iᵀ`: `diag(√p) − p √pᵀ` for classes, 1 for numbers.
pub(super) fn curvature_root(z: ArrayView2<f64>, classes: bool) -> Array3<f64> {
    let (n, c) = z.dim();
    if !classes {
        return Array3::ones((n, 1, 1));
    }
    let p = probabilities(z);
    Array3::from_shape_fn((n, c, c), |(i, a, b)| (f64::from(u8::from(a == b)) - p[[i, a]]) * p[[i, b]].sqrt())
}

fn probabilities(z: ArrayView2<f64>) -> Array2<f64> {
    crate::apply::softmax_rows(z.as_standard_layout().into_owned())
}
