//! Intervals of calibration errors, by simulation.

use mercer::classifier::{Cases, Estimate, Measure};
use mercer::rng::Rng;
use ndarray::{Array2, ArrayView1};

/// Of probabilities p of the predicted class that are told as c: `Σ_bins |Σ (c − p)|/n`, over bins of equal width or of equally many rows.
fn expected(told: &[(f64, f64)], equal_width: bool) -> f64 {
    let mut told = told.to_vec();
    told.sort_by(|a, b| a.0.total_cmp(&b.0));
    let n = told.len();
    let bin = |i: usize| if equal_width { ((told[i].0 * 15.0) as usize).min(14) } else { 15 * i / n };
    let of_bin = |b: usize| (0..n).filter(|&i| bin(i) == b).map(|i| told[i].0 - told[i].1).sum::<f64>().abs();
    (0..15).map(of_bin).sum::<f64>() / n as f64
}

#[test]
fn intervals_of_calibration_errors_hold_the_error_found_and_that_of_all_rows() {
    let (n, runs, mut rng) = (250, 60, Rng::new(4));
    // Logits that are told 1, 1.4 and 3 times as large as they are.
    for factor in [1.0, 1.4, 3.0] {
        let mut drawn = |n: usize| Array2::from_shape_simple_fn((n, 2), || 1.2 * rng.normal());
        let told = |scores: &Array2<f64>| -> Vec<(f64, f64)> {
            let gap = scores.rows().into_iter().map(|row| (row[0] - row[1]).abs());
            gap.map(|gap| [factor * gap, gap].map(|z| 1.0 / (1.0 + (-z).exp())).into()).collect()
        };
        let all = told(&drawn(60_000));
        let samples: Vec<Array2<f64>> = (0..runs).map(|_| drawn(n)).collect();
        let mut covered = [0; 2];
        for (run, scores) in samples.iter().enumerate() {
            let draw = |(p, row): ((f64, f64), ArrayView1<f64>)| {
                let likely = usize::from(row[1] > row[0]);
                if rng.uniform() < p.1 { likely } else { 1 - likely }
            };
            let labels: Vec<usize> = told(scores).into_iter().zip(scores.rows()).map(draw).collect();
            let cases = Cases::of((scores * factor).view(), &labels);
            let found = cases.estimates([Measure::Ece, Measure::AdaptiveEce], run as u64);
            for (k, (Estimate { value, interval: [low, high] }, equal_width)) in
                found.into_iter().zip([true, false]).enumerate()
            {
                assert!(low <= value && value <= high && low >= 0.0, "{factor}: {value} ({low} … {high})");
                let truth = if factor == 1.0 { 0.0 } else { expected(&all, equal_width) };
                covered[k] += usize::from(low <= truth && truth <= high);
            }
        }
        assert!(covered.iter().all(|&covered| covered * 100 >= 90 * runs), "{factor}: {covered:?} of {runs}");
    }
}
