//! How well normal predictions describe targets: their density, and the coverage and width of their intervals.

use super::bootstrap::{Estimate, bootstrap};
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
        let cases = NumberCases::of(truth, predicted, deviations, level)?;
        let [nll, rmse, coverage, width] = NumberMeasure::ALL.map(|measure| cases.measure(measure));
        Ok(IntervalReport { rmse, nll, level, coverage, width })
    }
}

/// A measure of predictions `N(f_i, s_i²)`. Example: [`NumberCases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberMeasure {
    /// Mean of `−log N(y_i; f_i, s_i²)`.
    Nll,
    /// Root of the mean of `(y_i − f_i)²`.
    Rmse,
    /// Share of the targets within the intervals.
    Coverage,
    /// Mean width of the intervals: their sharpness.
    Width,
}

impl NumberMeasure {
    /// All of them.
    pub const ALL: [NumberMeasure; 4] =
        [NumberMeasure::Nll, NumberMeasure::Rmse, NumberMeasure::Coverage, NumberMeasure::Width];
}

/// Predicted numbers of rows whose number is known.
///
/// ```
/// use mercer::classifier::{NumberCases, NumberMeasure};
/// let cases = NumberCases::of(&[0.0, 3.0], &[0.0, 0.0], &[1.0, 1.0], 0.95)?;
/// assert_eq!(cases.measure(NumberMeasure::Coverage), 0.5); // 3 lies outside of ±1.96
/// assert_eq!(cases.difference(&cases, NumberMeasure::Nll, 0).interval, [0.0, 0.0]);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NumberCases {
    /// Of each row: −log of the density, the squared error, 1 within the interval, and the interval's width.
    rows: Vec<[f64; 4]>,
}

impl NumberCases {
    /// Of targets `[n]`, predictions `[n]`, standard deviations `[n]` above zero, and intervals of this level.
    pub fn of(truth: &[f64], predicted: &[f64], deviations: &[f64], level: f64) -> Result<NumberCases> {
        row_measures(truth, predicted, deviations, level).map(|rows| NumberCases { rows })
    }

    /// A measure on all rows.
    pub fn measure(&self, measure: NumberMeasure) -> f64 {
        self.on(measure, 0..self.rows.len())
    }

    /// A measure with its bootstrap interval.
    pub fn estimate(&self, measure: NumberMeasure, seed: u64) -> Estimate {
        let interval = bootstrap(self.rows.len(), seed, |rows| self.on(measure, rows.iter().copied()));
        Estimate { value: self.measure(measure), interval }
    }

    /// How much larger a measure is than that of `other` on the same rows, by paired bootstrap: both see the same resamples.
    pub fn difference(&self, other: &NumberCases, measure: NumberMeasure, seed: u64) -> Estimate {
        let gap = |rows: &[usize]| self.on(measure, rows.iter().copied()) - other.on(measure, rows.iter().copied());
        let value = self.measure(measure) - other.measure(measure);
        Estimate { value, interval: bootstrap(self.rows.len(), seed, gap) }
    }

    fn on(&self, measure: NumberMeasure, rows: impl ExactSizeIterator<Item = usize>) -> f64 {
        let (place, n) = (NumberMeasure::ALL.iter().position(|m| *m == measure).expect("all"), rows.len() as f64);
        let mean = rows.map(|row| self.rows[row][place]).sum::<f64>() / n;
        if measure == NumberMeasure::Rmse { mean.sqrt() } else { mean }
    }
}

/// Of each target: `−log N(y_i; f_i, s_i²)`, the squared error, 1 within the interval of this level, and the interval's width.
fn row_measures(truth: &[f64], predicted: &[f64], deviations: &[f64], level: f64) -> Result<Vec<[f64; 4]>> {
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
    use crate::rng::Rng;

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

    #[test]
    fn measures_are_means_and_intervals_those_of_the_central_limit() {
        let mut rng = Rng::new(3);
        let n = 1500;
        let mut draw = || (0..n).map(|_| rng.normal()).collect::<Vec<f64>>();
        let (truth, predicted, noise) = (draw(), draw(), draw());
        let deviations: Vec<f64> = noise.iter().map(|v| 1.0 + 0.3 * v.abs()).collect();
        let cases = NumberCases::of(&truth, &predicted, &deviations, 0.9).unwrap();
        let mean = |of: &dyn Fn(usize) -> f64| (0..n).map(of).sum::<f64>() / n as f64;
        let square = |i: usize| (truth[i] - predicted[i]).powi(2);
        let (z, tau) = (1.644_853_626_951_472_7, std::f64::consts::TAU);
        let wanted = [
            mean(&|i| 0.5 * square(i) / deviations[i].powi(2) + 0.5 * (tau * deviations[i].powi(2)).ln()),
            mean(&square).sqrt(),
            mean(&|i| f64::from(u8::from(square(i).sqrt() <= z * deviations[i]))),
            mean(&|i| 2.0 * z * deviations[i]),
        ];
        for (measure, want) in NumberMeasure::ALL.into_iter().zip(wanted) {
            assert!((cases.measure(measure) - want).abs() < 1e-12, "{measure:?}");
        }
        let Estimate { value, interval: [low, high] } = cases.estimate(NumberMeasure::Coverage, 1);
        let error = (value * (1.0 - value) / n as f64).sqrt();
        assert!((high - low - 3.92 * error).abs() < 0.4 * error, "{low} {high}");
        assert!(NumberCases::of(&truth, &predicted[1..], &deviations, 0.9).is_err());
    }
}
