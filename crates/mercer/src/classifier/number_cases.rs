//! What numbers with standard deviations are worth, row by row, with bootstrap intervals.

use super::Estimate;
use super::calibration::bootstrap;
use crate::Result;
use crate::apply::row_measures;
use serde::Serialize;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

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
