//! Bootstrap intervals of measures of rows.

use crate::rng::Rng;
use serde::Serialize;

/// Resamples of a bootstrap interval.
const RESAMPLES: usize = 1000;
/// Share of the resamples beyond each end of an interval of 95 %.
const TAIL: f64 = 0.025;

/// A number with its bootstrap interval of 95 %, in which it lies. Example: [`Cases`](super::Cases).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// On the rows themselves.
    pub value: f64,
    /// Lower and upper end: percentiles over resamples, or for a calibration error, which chance in every bin raises, itself ± a bound.
    pub interval: [f64; 2],
}

impl Estimate {
    /// The mean of one number a row, with its bootstrap interval.
    ///
    /// ```
    /// let found = mercer::classifier::Estimate::of_mean(&[0.0, 1.0, 1.0, 0.0], 0);
    /// assert_eq!(found.value, 0.5);
    /// assert!(found.interval[0] < 0.5 && found.interval[1] > 0.5);
    /// ```
    pub fn of_mean(values: &[f64], seed: u64) -> Estimate {
        let mean = |sum: f64| sum / values.len() as f64;
        let interval = bootstrap(values.len(), seed, |rows| mean(rows.iter().map(|&row| values[row]).sum()));
        Estimate { value: mean(values.iter().sum()), interval }
    }
}

/// The interval of 95 % of a statistic of n rows: its percentiles over resamples of as many rows, drawn with replacement.
pub(super) fn bootstrap(n: usize, seed: u64, mut statistic: impl FnMut(&[usize]) -> f64) -> [f64; 2] {
    let [interval] = bootstraps(n, seed, |rows| [statistic(rows)]);
    interval
}

/// The intervals of several statistics, on the same resamples.
pub(super) fn bootstraps<const K: usize>(
    n: usize,
    seed: u64,
    mut statistics: impl FnMut(&[usize]) -> [f64; K],
) -> [[f64; 2]; K] {
    let mut rng = Rng::new(seed).fork(0x626f_6f74);
    let mut rows = vec![0; n];
    let mut values = [(); K].map(|()| Vec::with_capacity(RESAMPLES));
    for _ in 0..RESAMPLES {
        rows.iter_mut().for_each(|row| *row = rng.below(n));
        values.iter_mut().zip(statistics(&rows)).for_each(|(values, value)| values.push(value));
    }
    let place = |share: f64| ((RESAMPLES - 1) as f64 * share).round() as usize;
    values.map(|mut values| {
        values.sort_by(f64::total_cmp);
        [values[place(TAIL)], values[place(1.0 - TAIL)]]
    })
}
