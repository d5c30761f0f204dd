//! From a process with few functions to probabilities.

use crate::laplace::Predictive;
use crate::laplace::passes::batches;
use crate::laplace::predictive::probit;
use crate::linalg::matmul;
use crate::rng::Rng;
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, s};

/// Rows whose draws are in memory at a time.
const ROWS: usize = 1024;

/// The scores `[n, C]`, whose softmax are probabilities, of the process `z(x) = m(x) + √s Σ_j ε_j f_j(x)`, `ε ~ N(0, I)`, for its mean `[n, C]` and
/// functions `f` `[n, C, k]`.
pub(super) fn scores(mean: &Array2<f64>, f: &Array3<f64>, s: f64, how: Predictive, seed: u64) -> Array2<f64> {
    match how {
        Predictive::Probit => {
            // Softmax sees differences of logits only: functions that all outputs share are taken out. Independent logits of variance v have
            // the variance v(C − 1)/C then, so that the variances are divided by that share.
            let centred = f - &f.mean_axis(Axis(1)).expect("there are outputs").insert_axis(Axis(1));
            let c = f.dim().1 as f64;
            probit(mean.view(), (centred.mapv(|v| v * v).sum_axis(Axis(2)) * (s * c / (c - 1.0).max(1.0))).view())
        }
        Predictive::Sampling { count } => {
            let (n, c, k) = f.dim();
            let mut rng = Rng::new(seed).fork(0x7472_616a);
            // In pairs ε, −ε, so that the mean of the draws is m.
            let noise = Array2::from_shape_simple_fn((k, count.div_ceil(2)), || s.sqrt() * rng.normal());
            let mut out = Array2::zeros((n, c));
            for rows in batches(n, ROWS) {
                let block = f.slice(s![rows.clone(), .., ..]);
                let flat = block.to_shape((rows.len() * c, k)).expect("row by row");
                let shifts = matmul(flat.view(), noise.view());
                for (i, row) in rows.enumerate() {
                    let p = mean_softmax(mean.row(row), shifts.slice(s![i * c..(i + 1) * c, ..]));
                    out.row_mut(row).assign(&logarithm(p));
                }
            }
            out
        }
    }
}

/// The mean of `softmax(m ± δ)` over the columns δ of shifts `[C, draws]`.
fn mean_softmax(mean: ndarray::ArrayView1<f64>, shifts: ArrayView2<f64>) -> Array1<f64> {
    let mut sum = Array1::<f64>::zeros(mean.len());
    let mut p = Array1::<f64>::zeros(mean.len());
    for shift in shifts.columns() {
        for sign in [1.0, -1.0] {
            p.assign(&mean);
            p.scaled_add(sign, &shift);
            let most = p.fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            p.mapv_inplace(|z| (z - most).exp());
            sum.scaled_add(1.0 / p.sum(), &p);
        }
    }
    sum / (2 * shifts.ncols()) as f64
}

/// `log p`, never −∞.
fn logarithm(p: Array1<f64>) -> Array1<f64> {
    p.mapv_into(|p| p.max(f64::MIN_POSITIVE).ln())
}

/// The logarithms of the mean of `softmax(z_i)` `[n, C]` over the outputs `[M, n, C]` of networks; of one network its outputs.
pub(super) fn mean_of_networks(outputs: Array3<f64>) -> Array2<f64> {
    let (m, n, c) = outputs.dim();
    if m == 1 {
        return outputs.index_axis_move(Axis(0), 0);
    }
    let all = crate::apply::softmax_rows(outputs.into_shape_with_order((m * n, c)).expect("the same numbers"));
    let all = all.into_shape_with_order((m, n, c)).expect("the same numbers");
    all.mean_axis(Axis(0)).expect("there are networks").mapv(|p| p.max(f64::MIN_POSITIVE).ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::softmax_rows;
    use ndarray::array;

    /// Two classes whose difference is `N(m, v)`: the mean of the sigmoid, by quadrature.
    #[test]
    fn both_predictives_are_close_to_the_mean_over_the_process() {
        // The first logit is m + √s (1.5 ε_1 + ε_2), the second √s ε_2, which the softmax does not see.
        let f = array![[[1.5, 1.0], [0.0, 1.0]], [[1.5, 1.0], [0.0, 1.0]]];
        let mean = array![[0.7, 0.0], [-2.0, 0.0]];
        for s in [0.3, 2.0] {
            let sampled = softmax_rows(scores(&mean, &f, s, Predictive::Sampling { count: 20_000 }, 1));
            let probit = softmax_rows(scores(&mean, &f, s, Predictive::Probit, 1));
            for i in 0..2 {
                let (m, deviation) = (mean[[i, 0]], 1.5 * f64::sqrt(s));
                let node = |j: usize| -8.0 + 16.0 * j as f64 / 20_000.0;
                let weights: Vec<f64> = (0..=20_000).map(|j| (-0.5 * node(j) * node(j)).exp()).collect();
                let sigmoid = |j: usize| 1.0 / (1.0 + (-m - deviation * node(j)).exp());
                let want = (0..=20_000).map(|j| weights[j] * sigmoid(j)).sum::<f64>() / weights.iter().sum::<f64>();
                assert!((sampled[[i, 0]] - want).abs() < 0.01, "{} {want}", sampled[[i, 0]]);
                assert!((probit[[i, 0]] - want).abs() < 0.05, "{} {want}", probit[[i, 0]]);
            }
        }
        // Without a covariance both are the softmax of the mean.
        for how in [Predictive::Probit, Predictive::Sampling { count: 10 }] {
            let p = softmax_rows(scores(&mean, &f, 0.0, how, 1));
            assert!((p - softmax_rows(mean.clone())).iter().all(|gap| gap.abs() < 1e-12));
        }
    }

    #[test]
    fn probabilities_of_networks_are_averaged() {
        let l = 3f64.ln();
        let scores = mean_of_networks(array![[[l, 0.0]], [[0.0, 0.0]]]);
        let p = softmax_rows(scores);
        assert!((p[[0, 0]] - 0.625).abs() < 1e-12);
        // The outputs of one network stay as they are, however large.
        assert_eq!(mean_of_networks(array![[[2000.0, -2000.0]]]), array![[2000.0, -2000.0]]);
    }
}
