//! How far predicted numbers are off: RMSE and R², of all rows at once or of a few at a time.

use serde::{Deserialize, Serialize};

/// How far predicted numbers are off.
///
/// ```
/// use mercer::measures::Errors;
/// let found = Errors::of(&[1.0, 1.0], &[1.0, 3.0]).unwrap();
/// assert_eq!((found.rmse, found.r2), (2f64.sqrt(), Some(-1.0)));
/// assert_eq!(Errors::of(&[2.0, 3.0], &[5.0, 5.0]).unwrap().r2, None); // numbers that are all alike have no variance
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Rows.
    pub n: usize,
    /// `√(mean (ŷ − y)²)`
    pub rmse: f64,
    /// `1 − Σ (ŷ − y)²/Σ (y − mean y)²`; none where all numbers are alike.
    pub r2: Option<f64>,
}

impl Errors {
    /// Of predictions `[n]` of the numbers `[n]`; none of no rows.
    pub fn of(predicted: &[f64], numbers: &[f64]) -> Option<Errors> {
        let mut running = RunningErrors::default();
        running.add(predicted, numbers);
        running.finish()
    }
}

/// [`Errors`] of rows that come a few at a time.
///
/// ```
/// use mercer::measures::{Errors, RunningErrors};
/// let mut running = RunningErrors::default();
/// running.add(&[1.0], &[1.0]);
/// running.add(&[1.0, 2.0], &[3.0, 2.0]);
/// let whole = Errors::of(&[1.0, 1.0, 2.0], &[1.0, 3.0, 2.0]).unwrap();
/// assert!((running.finish().unwrap().rmse - whole.rmse).abs() < 1e-15);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunningErrors {
    n: usize,
    /// The unit of what follows: a power of two, so that squares of huge and of tiny numbers stay in range and no digit is lost.
    unit: f64,
    /// Mean of the numbers.
    mean: f64,
    /// `Σ (y − mean)²`
    spread: f64,
    /// `Σ (ŷ − y)²`
    squares: f64,
    /// The first number, and whether another one differs from it.
    first: Option<f64>,
    differ: bool,
}

impl RunningErrors {
    /// Adds predictions `[n]` of the numbers `[n]`.
    pub fn add(&mut self, predicted: &[f64], numbers: &[f64]) {
        assert_eq!(predicted.len(), numbers.len(), "a prediction for each number");
        let Some(&first) = numbers.first() else { return };
        let first = *self.first.get_or_insert(first);
        self.differ |= numbers.iter().any(|y| *y != first);
        let largest = numbers.iter().chain(predicted).fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
        self.raise_unit(2f64.powi(largest.log2().floor() as i32));
        let unit = self.unit;
        let (before, n) = (self.n as f64, numbers.len() as f64);
        let mean = numbers.iter().map(|y| y / unit).sum::<f64>() / n;
        let spread = numbers.iter().map(|y| (y / unit - mean).powi(2)).sum::<f64>();
        self.squares += numbers.iter().zip(predicted).map(|(y, f)| (y / unit - f / unit).powi(2)).sum::<f64>();
        let (all, δ) = (before + n, mean - self.mean);
        self.spread += spread + δ * δ * before * n / all;
        self.mean += δ * n / all;
        self.n += numbers.len();
    }

    /// Counts in a larger unit.
    fn raise_unit(&mut self, unit: f64) {
        if unit > self.unit {
            let factor = self.unit / unit;
            self.unit = unit;
            self.mean *= factor;
            self.spread *= factor * factor;
            self.squares *= factor * factor;
        }
    }

    /// The errors of all rows; none of no rows.
    pub fn finish(self) -> Option<Errors> {
        let n = self.n as f64;
        let (error, variance) = (self.squares / n, self.spread / n);
        let r2 = (self.differ && variance > 0.0).then(|| 1.0 - error / variance);
        (self.n > 0).then(|| Errors { n: self.n, rmse: error.sqrt() * self.unit, r2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_their_definitions() {
        let of = |predicted: &[f64], numbers: &[f64]| Errors::of(predicted, numbers).unwrap();
        // Errors 1 and 1; the numbers' own squares are 1 and 1.
        assert_eq!(of(&[2.0, 4.0], &[1.0, 3.0]), Errors { n: 2, rmse: 1.0, r2: Some(0.0) });
        assert_eq!(of(&[2.0], &[2.0]), Errors { n: 1, rmse: 0.0, r2: None });
        assert_eq!(Errors::of(&[], &[]), None);
        // Their mean differs from them by rounding.
        assert_eq!(of(&[0.2; 10], &[0.1; 10]).r2, None);
        // Squares out of range.
        for unit in [2f64.powi(1000), 2f64.powi(-1000)] {
            let found = of(&[unit, unit], &[unit, 3.0 * unit]);
            assert_eq!(found, Errors { n: 2, rmse: 2f64.sqrt() * unit, r2: Some(-1.0) });
        }
    }

    /// Parts of any size, of small numbers before large ones, add up.
    #[test]
    fn parts_add_up() {
        let numbers: Vec<f64> = (0..50).map(|i| 3.0 + f64::from(i * i % 11) * 1.2f64.powi(i)).collect();
        let predicted: Vec<f64> = numbers.iter().enumerate().map(|(i, y)| y + (i as f64).sin()).collect();
        let mut running = RunningErrors::default();
        for part in [0..7, 7..8, 8..8, 8..50] {
            running.add(&predicted[part.clone()], &numbers[part]);
        }
        let (found, want) = (running.finish().unwrap(), Errors::of(&predicted, &numbers).unwrap());
        assert!(found.n == 50 && (found.rmse - want.rmse).abs() < 1e-14);
        assert!((found.r2.unwrap() - want.r2.unwrap()).abs() < 1e-14);
        let mut constant = RunningErrors::default();
        constant.add(&[1.0, 2.0], &[5.0, 5.0]);
        constant.add(&[1.0], &[5.0]);
        assert_eq!(constant.finish().unwrap().r2, None);
    }
}
