//! From a normal posterior over the outputs to predictions.

use crate::Result;
use crate::apply::softmax_rows;
use crate::compute::Device;
use crate::linalg::eigh;
use crate::rng::Rng;
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// How probabilities of classes are found from logits `z ~ N(m, Σ)`. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Predictive {
    /// `softmax(m_c/√(1 + π/8 Σ_cc))`: needs variances only. A process with a fixed mean takes the draws that it was fitted with instead.
    #[default]
    Probit,
    /// The mean of `softmax(z)` over draws of z.
    Sampling {
        /// Draws for each row.
        count: usize,
    },
}

impl Predictive {
    /// Most draws: beyond, their error is far below that of the posterior.
    const MOST: usize = 1_000_000;

    /// Whether there are draws, and not too many of them.
    pub(crate) fn is_possible(self) -> bool {
        !matches!(self, Predictive::Sampling { count } if count == 0 || count > Predictive::MOST)
    }
}

/// `m_c/√(1 + π/8 Σ_cc)` `[n, C]` for means `[n, C]` and variances `[n, C]`.
pub(crate) fn probit(mean: ArrayView2<f64>, variances: ArrayView2<f64>) -> Array2<f64> {
    &mean / &variances.mapv(|v| (1.0 + PI / 8.0 * v).sqrt())
}

/// The logarithms of the mean of `softmax(z)` `[n, C]` over `count` draws of `z ~ N(m, Σ)`, for means `[n, C]` and covariances
/// `[n, C, C]`; row i draws by `first + i` alone.
pub(super) fn sampled(
    mean: ArrayView2<f64>,
    covariance: &Array3<f64>,
    count: usize,
    seed: u64,
    first: usize,
) -> Result<Array2<f64>> {
    let mut out = Array2::zeros(mean.dim());
    let c = mean.ncols();
    for (i, mut out) in out.rows_mut().into_iter().enumerate() {
        // Σ = U diag(λ) Uᵀ: z = m + U √λ ε.
        let (λ, u) = eigh(Device::Cpu, covariance.index_axis(Axis(0), i))?;
        let root = u * &Array1::from_iter(λ.iter().map(|λ| λ.max(0.0).sqrt()));
        let noise = Rng::new(seed).fork((first + i) as u64).normals((count, c));
        let z = noise.dot(&root.t()) + mean.row(i);
        let p = softmax_rows(z).mean_axis(Axis(0)).expect("there are draws");
        out.assign(&p.mapv(|p| p.max(f64::MIN_POSITIVE).ln()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    /// Two classes whose difference is `N(m, v)`: the mean of the sigmoid, by quadrature.
    #[test]
    fn both_predictives_are_close_to_the_mean_of_the_sigmoid() {
        for (m, v) in [(0.7f64, 0.5f64), (-2.0, 4.0), (3.0, 9.0)] {
            let nodes = 20_001;
            let density = |t: f64| (-0.5 * t * t).exp();
            let node = |i: usize| -8.0 + 16.0 * i as f64 / (nodes - 1) as f64;
            let total: f64 = (0..nodes).map(|i| density(node(i))).sum();
            let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
            let want: f64 = (0..nodes).map(|i| density(node(i)) * sigmoid(m + v.sqrt() * node(i))).sum::<f64>() / total;
            // The second logit is fixed at zero.
            let covariance = array![[[v, 0.0], [0.0, 0.0]]];
            let p = sampled(array![[m, 0.0]].view(), &covariance, 40_000, 1, 0).unwrap()[[0, 0]].exp();
            assert!((p - want).abs() < 0.01, "{p} {want}");
            let scores = probit(array![[m, 0.0]].view(), array![[v, 0.0]].view());
            let p = sigmoid(scores[[0, 0]] - scores[[0, 1]]);
            assert!((p - want).abs() < 0.02, "{p} {want}");
        }
    }
}
