//! From scores of classes to their probabilities.

use crate::data::Target;
use ndarray::{Array2, ArrayView2, Axis};

/// The sharpness for scores `[rows, C]` of some rows (all without them) that were left out; none where the target is numbers.
pub(super) fn left_out_sharpness(y: &Target, rows: Option<&[usize]>, scores: ArrayView2<f64>) -> Option<f64> {
    match y {
        Target::Values(_) => None,
        Target::Classes { labels, .. } => Some(match rows {
            None => sharpness(scores, labels),
            Some(rows) => sharpness(scores, &rows.iter().map(|&i| labels[i]).collect::<Vec<_>>()),
        }),
    }
}

/// `softmax(t s)` of every row of scores `[n, C]`, where t is known.
pub(super) fn sharpened(sharpness: Option<f64>, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
    sharpness.map(|t| softmax_rows(scores.mapv(|s| t * s)))
}

/// The sharpness t of `p_c ∝ exp(t s_c)` with the least log loss on scores `s` `[n, C]` of rows that were left out of the fit, whose
/// classes are `labels` `[n]`.
///
/// `L(t) = (1/n) Σ_i (log Σ_c exp(t s_ic) − t ŝ_i)` is convex; `ŝ` is the score of the true class, mixed with the mean score at the rate
/// `1/(n+2)`, so that t stays finite where every row is right (Laplace's rule of succession). Zero where the scores are worthless.
fn sharpness(scores: ArrayView2<f64>, labels: &[usize]) -> f64 {
    /// Beyond this, in units of the scores' spread, every probability is 0 or 1.
    const MOST: f64 = 1e4;
    let n = labels.len() as f64;
    let doubt = 1.0 / (n + 2.0);
    let means = scores.mean_axis(Axis(1)).expect("there are classes");
    let wanted: f64 = scores
        .rows()
        .into_iter()
        .zip(labels)
        .zip(&means)
        .map(|((row, &label), mean)| (1.0 - doubt) * row[label] + doubt * mean)
        .sum();
    // dL/dt, which rises with t.
    let slope = |t: f64| expected(scores, t) - wanted;
    let spread = (scores.iter().map(|s| s * s).sum::<f64>() / scores.len() as f64).sqrt();
    if !(spread > 0.0 && slope(0.0) < 0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0 / spread);
    while slope(high) < 0.0 && high < MOST / spread {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if slope(middle) < 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// `Σ_i Σ_c p_ic s_ic` for `p = softmax(t s)`.
fn expected(scores: ArrayView2<f64>, t: f64) -> f64 {
    let p = softmax_rows(scores.mapv(|s| t * s));
    p.iter().zip(scores).map(|(p, s)| p * s).sum()
}

/// `softmax` of every row `[n, C]`.
#[doc(hidden)]
pub fn softmax_rows(mut scores: Array2<f64>) -> Array2<f64> {
    scores.rows_mut().into_iter().for_each(|mut row| {
        softmax(row.as_slice_mut().expect("rows lie in order"));
    });
    scores
}

/// `−Σ_c p_c log p_c` `[n]` of probabilities `[n, C]`.
#[doc(hidden)]
pub fn entropies(p: ArrayView2<f64>) -> Vec<f64> {
    let term = |p: &f64| if *p > 0.0 { -p * p.ln() } else { 0.0 };
    p.rows().into_iter().map(|p| p.iter().map(term).sum()).collect()
}

/// Scores to probabilities in place; returns `log Σ exp`.
pub(super) fn softmax(row: &mut [f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::MIN, f64::max);
    row.iter_mut().for_each(|v| *v = (*v - largest).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|v| *v /= sum);
    largest + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::array;

    /// Scores whose true probabilities are `softmax(3 s)`: the sharpness is found again.
    #[test]
    fn the_sharpness_of_drawn_classes_is_found() {
        let (n, mut rng) = (20_000, Rng::new(1));
        let scores = Array2::from_shape_simple_fn((n, 3), || rng.normal());
        let p = softmax_rows(&scores * 3.0);
        let draw = |row: ndarray::ArrayView1<f64>| {
            let u = rng.uniform();
            usize::from(u > row[0]) + usize::from(u > row[0] + row[1])
        };
        let labels: Vec<usize> = p.rows().into_iter().map(draw).collect();
        let found = sharpness(scores.view(), &labels);
        assert!((found - 3.0).abs() < 0.1, "{found}");
        // It minimises the log loss.
        let loss = |t: f64| {
            let p = softmax_rows(&scores * t);
            -labels.iter().enumerate().map(|(i, &l)| p[[i, l]].ln()).sum::<f64>() / n as f64
        };
        assert!(loss(found) < loss(found * 1.02) && loss(found) < loss(found * 0.98));
    }

    #[test]
    fn scores_that_are_always_right_or_worthless_have_a_finite_sharpness() {
        let right = array![[1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]];
        let t = sharpness(right.view(), &[0, 1, 0]);
        // All of three rows right: the odds of an error are half of Laplace's 1 in 5.
        let p = softmax_rows(right.mapv(|s| t * s));
        assert!((p[[0, 1]] - 0.1).abs() < 1e-6, "{p}");
        // A constant added to all scores of a row changes nothing.
        assert!((sharpness((&right + 5.0).view(), &[0, 1, 0]) / t - 1.0).abs() < 1e-6);
        assert_eq!(sharpness(right.view(), &[1, 0, 1]), 0.0);
        assert_eq!(sharpness(Array2::zeros((3, 2)).view(), &[0, 0, 1]), 0.0);
    }
}
