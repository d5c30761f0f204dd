//! Means over runs with their intervals, lines through points, and angles between spans.

use mercer::Result;
use mercer::compute::Device;
use mercer::linalg::{eigh, matmul};
use mercer_figure::{Plot, text};
use ndarray::ArrayView2;
use serde::Serialize;

/// A mean over independent runs and the half width of its 95 % interval by Student's t.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub mean: f64,
    /// Infinite for a single run.
    pub half_width: f64,
}

/// The 97.5 % quantile of Student's t with 1, 2, … degrees of freedom.
const STUDENT: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086,
];

impl Interval {
    /// Of one value from each run.
    pub fn of(values: &[f64]) -> Interval {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        if values.len() < 2 {
            return Interval { mean, half_width: f64::INFINITY };
        }
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let quantile = STUDENT.get(values.len() - 2).copied().unwrap_or(1.96 + 2.4 / n);
        Interval { mean, half_width: quantile * (variance / n).sqrt() }
    }

    /// Whether the interval holds `value`.
    pub fn holds(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }

    /// `0.51 ± 0.02`; a dash where there is no mean, and the mean alone where the runs differ by rounding only.
    pub fn text(&self) -> String {
        match self.half_width.is_finite() && !(self.half_width > 0.0 && self.half_width < 1e-9 * self.mean.abs()) {
            _ if self.mean.is_nan() => text::GAP.into(),
            true => format!("{} ± {}", text::number(self.mean, 3), text::number(self.half_width, 2)),
            false => text::number(self.mean, 3),
        }
    }
}

/// A line through the means with markers, and the band of the intervals. On a logarithmic axis no band reaches below the share
/// `1/lowest` of its mean.
pub fn with_intervals(
    plot: Plot,
    name: impl Into<String>,
    x: &[f64],
    values: &[Interval],
    lowest: Option<f64>,
) -> Plot {
    let line = |of: &dyn Fn(&Interval) -> f64| values.iter().map(of).collect::<Vec<f64>>();
    let low = line(&|i| (i.mean - i.half_width).max(lowest.map_or(f64::NEG_INFINITY, |lowest| i.mean / lowest)));
    plot.line(name, x, &line(&|i| i.mean)).markers().band(&low, &line(&|i| i.mean + i.half_width))
}

/// The mean of values, and its standard error.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    (mean, (variance / n).sqrt())
}

/// The line `y ≈ intercept + slope·x` of least squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    pub slope: f64,
    pub intercept: f64,
    /// Share of the variance of y that the line explains.
    pub r2: f64,
}

impl Line {
    /// Through the points `(x, y)`; at least two with different x.
    pub fn through(x: &[f64], y: &[f64]) -> Line {
        let n = x.len().min(y.len()) as f64;
        let mean = |v: &[f64]| v.iter().take(n as usize).sum::<f64>() / n;
        let (a, b) = (mean(x), mean(y));
        let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(x, y)| f(x - a, y - b)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        let slope = xy / xx;
        Line { slope, intercept: b - slope * a, r2: if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 } }
    }

    /// The exponent a of `y ≈ c xᵃ`: the line through the logarithms.
    pub fn power(x: &[f64], y: &[f64]) -> Line {
        let logs = |v: &[f64]| v.iter().map(|v| v.ln()).collect::<Vec<f64>>();
        Line::through(&logs(x), &logs(y))
    }
}

/// The exponent of `y ≈ c xᵃ` over runs: `values[i]` are the y of all runs at `x[i]`, the r-th of each from the same run.
pub fn exponent(x: &[f64], values: &[Vec<f64>]) -> Interval {
    let runs = values.iter().map(Vec::len).min().unwrap_or(0);
    let of_run = |r: usize| Line::power(x, &values.iter().map(|v| v[r]).collect::<Vec<f64>>()).slope;
    Interval::of(&(0..runs).map(of_run).collect::<Vec<f64>>())
}

/// The cosine of the largest angle between the span of orthonormal rows `u` `[r, d]` and that of orthonormal columns `v` `[d, r]`.
pub fn least_cosine(u: ArrayView2<f64>, v: ArrayView2<f64>) -> Result<f64> {
    let overlap = matmul(u, v);
    let (squares, _) = eigh(Device::Cpu, matmul(overlap.view(), overlap.t()).view())?;
    Ok(squares.last().copied().unwrap_or(0.0).clamp(0.0, 1.0).sqrt())
}

/// About `count` whole numbers from 1 to `last`, evenly spaced in their logarithms, ascending, without repeats.
pub fn logarithmic(last: usize, count: usize) -> Vec<usize> {
    let at = |i: usize| (last as f64).powf(i as f64 / (count - 1).max(1) as f64).round() as usize;
    let mut numbers: Vec<usize> = (0..count).map(at).collect();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_student_s() {
        // Deviations ±1 around 2: the variance is 2, that of the mean 1.
        assert_eq!(Interval::of(&[1.0, 3.0]), Interval { mean: 2.0, half_width: 12.706 });
        let many = Interval::of(&(0..100).map(|i| f64::from(i % 2)).collect::<Vec<_>>());
        assert!((many.half_width - 1.984 * (25.0f64 / 99.0 / 100.0).sqrt()).abs() < 1e-5, "{many:?}");
        assert!(many.holds(0.55) && !many.holds(0.7) && Interval::of(&[1.0]).holds(9.0));
        assert_eq!(Interval { mean: 0.5, half_width: 0.021 }.text(), "0.500 ± 0.021");
    }

    #[test]
    fn lines_are_those_of_least_squares() {
        let line = Line::through(&[1.0, 2.0, 3.0], &[0.0, -1.0, -3.0]);
        assert!((line.slope + 1.5).abs() < 1e-12 && (line.intercept - 5.0 / 3.0).abs() < 1e-12);
        assert!((line.r2 - 27.0 / 28.0).abs() < 1e-12);
        let found = exponent(&[1.0, 4.0], &[vec![3.0, 5.0], vec![6.0, 10.0]]);
        assert!((found.mean - 0.5).abs() < 1e-12 && found.half_width < 1e-9);
    }

    #[test]
    fn logarithmic_numbers_end_at_both_ends() {
        let numbers = logarithmic(1000, 20);
        assert_eq!((numbers[0], *numbers.last().unwrap()), (1, 1000));
        assert!(numbers.windows(2).all(|w| w[0] < w[1]));
    }
}
