//! How well normal predictions describe targets.

use crate::special::normal_quantile;
use crate::{Result, fail_if};
use serde::Serialize;
use std::f64::consts::TAU;

/// How well predictions `N(f_i, s_i²)` describe targets y.
///
/// ```
/// use mercer::apply::IntervalReport;
/// let report = IntervalReport::new(&[0.0, 3.0], &[0.0, 0.0], &[1.0, 1.0], 0.95)?;
/// assert_eq!(report.coverage, 0.5); // 3 lies outside of ±1.96
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IntervalReport {
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean of `−log N(y_i; f_i, s_i²)`.
    pub nll: f64,
    /// The level of the intervals.
    pub level: f64,
    /// Share of the targets within `f_i ± z s_i`, z the normal quantile of the level.
    pub coverage: f64,
    /// Mean width of the intervals.
    pub width: f64,
}

impl IntervalReport {
    /// The report on targets `[n]`, predictions `[n]` and standard deviations `[n]` above zero.
    pub fn new(truth: &[f64], predicted: &[f64], deviations: &[f64], level: f64) -> Result<IntervalReport> {
        let rows = row_measures(truth, predicted, deviations, level)?;
        let mut sums = [0.0; 4];
        rows.iter().for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += v));
        let [nll, square, coverage, width] = sums.map(|sum| sum / rows.len() as f64);
        Ok(IntervalReport { rmse: square.sqrt(), nll, level, coverage, width })
    }
}

/// Of each target: `−log N(y_i; f_i, s_i²)`, the squared error, 1 within the interval of this level, and the interval's width.
pub(crate) fn row_measures(truth: &[f64], predicted: &[f64], deviations: &[f64], level: f64) -> Result<Vec<[f64; 4]>> {
    let n = truth.len();
    fail_if!(
        n == 0 || predicted.len() != n || deviations.len() != n,
        "there are {n} targets, {} predictions and {} deviations",
        predicted.len(),
        deviations.len()
    );
    let z = interval_factor(level)?;
    let row = |i: usize| {
        let (error, s) = (truth[i] - predicted[i], deviations[i]);
        let nll = 0.5 * (error / s).powi(2) + s.ln() + 0.5 * TAU.ln();
        [nll, error * error, f64::from(u8::from(error.abs() <= z * s)), 2.0 * z * s]
    };
    Ok((0..n).map(row).collect())
}

/// The z with `P(|N(0,1)| ≤ z) = level`.
#[doc(hidden)]
pub fn interval_factor(level: f64) -> Result<f64> {
    fail_if!(!(level > 0.0 && level < 1.0), "the level of an interval lies between 0 and 1, not at {level}");
    Ok(normal_quantile(0.5 + 0.5 * level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measures_are_those_of_the_definitions() {
        let report = IntervalReport::new(&[1.0, 2.0, -1.0], &[0.0, 2.0, 1.0], &[0.5, 1.0, 2.0], 0.95).unwrap();
        assert!((report.rmse - (5.0f64 / 3.0).sqrt()).abs() < 1e-15);
        let logs = 0.5f64.ln() + 2.0f64.ln();
        assert!((report.nll - ((2.0 + 0.5 + logs) / 3.0 + 0.5 * TAU.ln())).abs() < 1e-14);
        assert!((report.coverage - 2.0 / 3.0).abs() < 1e-15);
        assert!((report.width - 2.0 * 1.959_963_984_540_054 * 3.5 / 3.0).abs() < 1e-8);
        // Every target inside is a share of one, to the bit.
        for n in [3, 49, 121, 1000] {
            let zeros = vec![0.0; n];
            let share = |inside: usize| {
                let truth: Vec<f64> = (0..n).map(|i| if i < inside { 0.0 } else { 9.0 }).collect();
                IntervalReport::new(&truth, &zeros, &vec![1.0; n], 0.95).unwrap().coverage
            };
            assert!((0..=n).all(|inside| share(inside) == inside as f64 / n as f64), "{n}");
        }
        assert!(IntervalReport::new(&[1.0], &[1.0], &[], 0.95).is_err());
        assert!(IntervalReport::new(&[1.0], &[1.0], &[1.0], 1.0).is_err());
    }
}
