//! How the targets depend on the network's outputs, and the curvature of that.

use crate::classifier::{Classifier, Number};
use crate::data::Dataset;
use crate::linalg::matmul;
use crate::{Result, fail_if};
use ndarray::{Array2, Array3, ArrayView2, Axis};
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
    pub fn of(classifier: &Classifier, data: &Dataset) -> Result<Likelihood> {
        fail_if!(data.n() == 0, "there are no rows to fit the uncertainty on");
        let y = data.target()?;
        match classifier.number {
            None => y.labels_for(&classifier.classes).map(Likelihood::Classes),
            Some(Number { mean, spread }) => {
                Ok(Likelihood::Numbers(y.numbers()?.iter().map(|y| (y - mean) / spread).collect()))
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

    /// The mean of `−log p(y_i)` for scores `s` `[n, C]` of classes.
    pub fn mean_loss(&self, scores: ArrayView2<f64>) -> f64 {
        -self.log_likelihood(scores, 1.0) / scores.nrows() as f64
    }

    /// The derivatives of `−log softmax(βs)_y`, averaged over rows of classes with the scores `s` `[n, C]`, by β: the mean of `E_p s − s_y`, and
    /// of the variance of s under `p = softmax(βs)`.
    pub fn slope_and_curvature(&self, scores: ArrayView2<f64>, beta: f64) -> [f64; 2] {
        let Likelihood::Classes(labels) = self else { unreachable!("a number has no temperature") };
        let p = probabilities((&scores * beta).view());
        let (mut slope, mut curvature) = (0.0, 0.0);
        for ((s, p), &label) in scores.rows().into_iter().zip(p.rows()).zip(labels) {
            let mean = s.dot(&p);
            slope += mean - s[label];
            curvature += s.iter().zip(p).map(|(s, p)| p * (s - mean).powi(2)).sum::<f64>();
        }
        [slope, curvature].map(|sum| sum / labels.len() as f64)
    }
}

/// The noise σ² with the least loss of numbers, and that loss.
pub(super) struct Profile {
    pub noise: f64,
    pub loss: f64,
}

/// Of numbers `y` `[n]` with the means `z` `[n, 1]` and the variances `σ²(1 + q)`, `q` `[n, 1]`: σ² is the mean of `(y − z)²/(1 + q)`.
pub(super) fn profile(y: &[f64], z: ArrayView2<f64>, q: ArrayView2<f64>) -> Profile {
    let n = y.len() as f64;
    let noise = z.iter().zip(y).zip(q).map(|((z, y), q)| (z - y).powi(2) / (1.0 + q)).sum::<f64>() / n;
    let logarithms = q.iter().map(|q| q.ln_1p()).sum::<f64>() / n;
    Profile { noise, loss: 0.5 * (logarithms + noise.ln() + 1.0 + TAU.ln()) }
}

/// `log softmax(z)_y`
fn log_probability(z: ndarray::ArrayView1<f64>, y: usize) -> f64 {
    let most = z.iter().copied().fold(f64::MIN, f64::max);
    z[y] - most - z.iter().map(|z| (z - most).exp()).sum::<f64>().ln()
}

/// The curvature `Λ_i = −∂² log p(y_i|z_i)/∂z²` of the loss in the outputs: `diag(p_i) − p_i p_iᵀ` for classes, 1 for a number of noise one. It is
/// never written out, for there may be thousands of classes.
pub(super) enum Curvature {
    /// The probabilities p `[n, C]`.
    Classes(Array2<f64>),
    Number,
}

impl Curvature {
    /// At outputs `z` `[n, C]`.
    pub fn at(z: ArrayView2<f64>, classes: bool) -> Curvature {
        if classes { Curvature::Classes(probabilities(z)) } else { Curvature::Number }
    }

    /// The entries `Λ_i,ab` `[n, 1]` of outputs a and b.
    pub fn entries(&self, a: usize, b: usize, n: usize) -> Array2<f64> {
        let Curvature::Classes(p) = self else { return Array2::ones((n, 1)) };
        let one = f64::from(u8::from(a == b));
        Array2::from_shape_fn((n, 1), |(i, _)| p[[i, a]] * (one - p[[i, b]]))
    }

    /// `Λ_i ψ_i` `[n·C, k]` for functions `ψ` `[n·C, k]`: `p ∘ (ψ − 1 pᵀψ)`.
    pub fn times(&self, psi: &Array2<f64>) -> Array2<f64> {
        let mut out = psi.clone();
        let Curvature::Classes(p) = self else { return out };
        let c = p.ncols();
        for (p, mut rows) in p.rows().into_iter().zip(out.axis_chunks_iter_mut(Axis(0), c)) {
            let mean = p.dot(&rows);
            rows -= &mean;
            rows *= &p.insert_axis(Axis(1));
        }
        out
    }

    /// `Σ_i Λ_i` `[C, C]` over n rows: `diag(Σ_i p_i) − PᵀP`.
    pub fn sum(&self, n: usize) -> Array2<f64> {
        let Curvature::Classes(p) = self else { return Array2::from_elem((1, 1), n as f64) };
        let mut sum = -matmul(p.t(), p.view());
        sum.diag_mut().scaled_add(1.0, &p.sum_axis(Axis(0)));
        sum
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::s;

    #[test]
    fn curvatures_are_those_written_out() {
        let mut rng = Rng::new(5);
        let z = rng.normals((6, 4));
        let psi = rng.normals((24, 3));
        let (curvature, root) = (Curvature::at(z.view(), true), curvature_root(z.view(), true));
        let (times, mut sum) = (curvature.times(&psi), Array2::<f64>::zeros((4, 4)));
        for i in 0..6 {
            let λ = root.index_axis(Axis(0), i).dot(&root.index_axis(Axis(0), i).t());
            sum += &λ;
            let rows = s![4 * i..4 * i + 4, ..];
            assert!((&times.slice(rows) - &λ.dot(&psi.slice(rows))).iter().all(|v| v.abs() < 1e-12));
            for (a, b) in [(0, 0), (1, 3), (3, 1)] {
                assert!((curvature.entries(a, b, 6)[[i, 0]] - λ[[a, b]]).abs() < 1e-12);
            }
        }
        assert!((curvature.sum(6) - sum).iter().all(|v| v.abs() < 1e-12));
        let number = Curvature::at(z.slice(s![.., ..1]), false);
        assert_eq!(
            (number.times(&psi), number.sum(6)[[0, 0]], number.entries(0, 0, 2)),
            (psi, 6.0, Array2::ones((2, 1)))
        );
    }
}
