//! Kernel ridge regression as a low-pass filter, and how fast a spectrum falls.
//!
//! In the eigenbasis of the kernel, `(K + αI)⁻¹` multiplies each component of y by `μ_j/(μ_j + α/n)`, `μ_j` the
//! eigenvalues of `K/n`: large ones pass, those below `α/n` are cut off.

use crate::{Result, fail_if};
use serde::{Deserialize, Serialize};

/// `μ_j/(μ_j + α/n)` for the eigenvalues `μ` of `K/n` over n points; zero where `μ_j` is zero.
///
/// ```
/// let filter = mercer::apply::filter::factors(&[0.3, 0.1, 0.0], 10.0, 100);
/// assert!((filter[0] - 0.75).abs() < 1e-15 && filter[1..] == [0.5, 0.0]);
/// ```
pub fn factors(eigenvalues: &[f64], alpha: f64, n: usize) -> Vec<f64> {
    let cut = alpha / n as f64;
    eigenvalues.iter().map(|&μ| if μ > 0.0 { μ / (μ + cut) } else { 0.0 }).collect()
}

/// The straight line through `log μ_j` against `j^{1/d}`, over a window of eigenvalues. Example: [`decay`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decay {
    /// d
    pub dimension: f64,
    /// `log μ_j ≈ intercept − rate · j^{1/d}`
    pub rate: f64,
    /// See `rate`.
    pub intercept: f64,
    /// Share of the variance of `log μ_j` that the line explains: 1 is a perfect line.
    pub r2: f64,
    /// Eigenvalues in the window.
    pub count: usize,
}

/// Fits `log μ_j ≈ c − rate·j^{1/d}`, j counted from 1, over the leading eigenvalues above `floor·μ_1`.
///
/// ```
/// let mu: Vec<f64> = (1..=30).map(|j| 2.0 * (-0.7 * (j as f64).sqrt()).exp()).collect();
/// let line = mercer::apply::filter::decay(&mu, 2.0, 1e-12)?;
/// assert!((line.rate - 0.7).abs() < 1e-12 && (line.r2 - 1.0).abs() < 1e-12);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn decay(eigenvalues: &[f64], dimension: f64, floor: f64) -> Result<Decay> {
    let largest = eigenvalues.first().copied().unwrap_or(0.0);
    let count = eigenvalues.iter().take_while(|&&μ| μ > 0.0 && μ > floor * largest).count();
    fail_if!(count < 3, "a line of decay needs three eigenvalues above zero, got {count}");
    let points: Vec<(f64, f64)> =
        (0..count).map(|j| (((j + 1) as f64).powf(1.0 / dimension), eigenvalues[j].ln())).collect();
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / count as f64;
    let (t, l) = (mean(&|p| p.0), mean(&|p| p.1));
    let (tt, ll) = (mean(&|p| (p.0 - t).powi(2)), mean(&|p| (p.1 - l).powi(2)));
    let tl = mean(&|p| (p.0 - t) * (p.1 - l));
    let r2 = if ll > 0.0 { tl * tl / (tt * ll) } else { 1.0 };
    Ok(Decay { dimension, rate: -tl / tt, intercept: l - tl / tt * t, r2, count })
}

/// The number of eigenvalues, descending, above `roundoff` times the largest: the others are numerically zero.
///
/// ```
/// assert_eq!(mercer::apply::filter::numerical_rank(&[2.0, 0.5, 1e-17], 1e-15), 2);
/// ```
pub fn numerical_rank(eigenvalues: &[f64], roundoff: f64) -> usize {
    let floor = roundoff * eigenvalues.first().copied().unwrap_or(0.0).max(0.0);
    eigenvalues.iter().take_while(|&&μ| μ > floor).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three points (t, log μ) = (1, 0), (2, −1), (3, −3): slope −3/2, mean (2, −4/3), R² = 27/28.
    #[test]
    fn the_line_of_decay_is_that_of_least_squares() {
        let line = decay(&[1.0, (-1.0f64).exp(), (-3.0f64).exp(), 1e-20], 1.0, 1e-10).unwrap();
        assert_eq!(line.count, 3);
        assert!((line.rate - 1.5).abs() < 1e-12, "{line:?}");
        assert!((line.intercept - (3.0 - 4.0 / 3.0)).abs() < 1e-12, "{line:?}");
        assert!((line.r2 - 27.0 / 28.0).abs() < 1e-12, "{line:?}");
        // In two dimensions the line is one in √j.
        let mu: Vec<f64> = (1..=9).map(|j| (1.0 - 0.4 * f64::from(j).sqrt()).exp()).collect();
        let line = decay(&mu, 2.0, 0.0).unwrap();
        assert!((line.rate - 0.4).abs() < 1e-12 && (line.intercept - 1.0).abs() < 1e-12, "{line:?}");
        assert!(decay(&[1.0, 0.5], 1.0, 0.0).is_err());
    }
}
