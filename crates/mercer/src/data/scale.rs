//! Scaling of columns: `(x − shift)·scale`, fitted once and then applied to any rows.

use std::str::FromStr;

use ndarray::{Array2, ArrayView1};
use serde::{Deserialize, Serialize};

use super::matrix::Rows;
use crate::{Error, Result, fail_if};

/// How columns are scaled. Example: [`Scaler`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// Not at all.
    #[default]
    None,
    /// Mean zero and variance one (the variance divides by n).
    Standard,
    /// From zero to one.
    MinMax,
}

impl FromStr for Scaling {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "none" => Ok(Scaling::None),
            "standard" => Ok(Scaling::Standard),
            "min-max" | "minmax" => Ok(Scaling::MinMax),
            _ => Err(Error::unknown("scaling", word, ["none", "standard", "min-max"])),
        }
    }
}

/// A fitted scaling of `d` columns: `x ↦ (x − shift)·scale`.
///
/// A constant column has scale zero, so it is mapped to zero.
///
/// ```
/// use mercer::data::{Scaler, Scaling};
/// let x = ndarray::array![[1.0, 5.0], [3.0, 5.0]];
/// let scaler = Scaler::fit(Scaling::Standard, x.view())?;
/// assert_eq!(scaler.apply(x.view())?, ndarray::array![[-1.0, 0.0], [1.0, 0.0]]);
/// assert_eq!(scaler.constant_columns(), [1]);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaler {
    /// Subtracted from each column, `[d]`.
    pub shift: Vec<f64>,
    /// Multiplied to each column afterwards, `[d]`; zero where the column was constant.
    pub scale: Vec<f64>,
}

impl Scaler {
    /// Fits the scaling to the columns of `x` `[n, d]`.
    pub fn fit<'x>(scaling: Scaling, x: impl Into<Rows<'x>>) -> Result<Self> {
        let x = x.into().to_f64();
        fail_if!(x.nrows() == 0, "a scaling cannot be fitted to no rows");
        Scaler::of_columns(x.columns().into_iter().map(|column| fit_column(scaling, column)))
    }

    /// From `(shift, scale)` of each column.
    pub(super) fn of_columns(columns: impl Iterator<Item = (f64, f64)>) -> Result<Self> {
        let checked = |(j, (shift, scale)): (usize, (f64, f64))| {
            fail_if!(
                !(shift.is_finite() && scale.is_finite()),
                "column {} (counted from 1) spans too wide or too narrow a range to be scaled in double precision; \
                 change its unit or leave it out",
                j + 1
            );
            Ok((shift, scale))
        };
        let (shift, scale) = columns.enumerate().map(checked).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(Scaler { shift, scale })
    }

    /// The scaled `x`, `[n, d]` to `[n, d]`; `d` must be what the scaling was fitted on.
    pub fn apply<'x>(&self, x: impl Into<Rows<'x>>) -> Result<Array2<f64>> {
        let x = x.into();
        let (fitted, d) = (self.shift.len(), x.d());
        fail_if!(d != fitted, "the scaling was fitted on {fitted} columns, but there are {d}");
        let mut x = x.to_f64().into_owned();
        self.apply_in_place(&mut x);
        Ok(x)
    }

    /// Scales `x` `[n, d]`, which has the columns that the scaling was fitted on.
    pub(super) fn apply_in_place(&self, x: &mut Array2<f64>) {
        for mut row in x.rows_mut() {
            row.iter_mut().zip(&self.shift).zip(&self.scale).for_each(|((v, shift), scale)| *v = (*v - shift) * scale);
        }
    }

    /// The constant columns (counted from 0), which are mapped to zero.
    pub fn constant_columns(&self) -> Vec<usize> {
        (0..self.scale.len()).filter(|&j| self.scale[j] == 0.0).collect()
    }

    /// A warning for each constant column, with its name in `columns` `[d]`.
    pub fn warnings(&self, columns: &[String]) -> Vec<String> {
        let warning = |j: usize| {
            let name = columns.get(j).map(|c| format!(" (`{c}`)")).unwrap_or_default();
            format!("column {}{name} has the same value in every row; it is mapped to zero", j + 1)
        };
        self.constant_columns().into_iter().map(warning).collect()
    }
}

/// `(shift, scale)` of one column `[n]`, n > 0.
fn fit_column(scaling: Scaling, column: ArrayView1<f64>) -> (f64, f64) {
    if scaling == Scaling::None { (0.0, 1.0) } else { Moments::of(column).scaling(scaling) }
}

/// What a scaling needs to know of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moments {
    pub count: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// `Σ (v − mean)²`
    pub squares: f64,
}

impl Moments {
    /// Of no numbers.
    pub const NONE: Moments = Moments { count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, mean: 0.0, squares: 0.0 };

    /// Of these numbers `[n]`.
    pub fn of(values: ArrayView1<f64>) -> Moments {
        if values.is_empty() {
            return Moments::NONE;
        }
        let min = values.fold(f64::INFINITY, |m, &v| m.min(v));
        let max = values.fold(f64::NEG_INFINITY, |m, &v| m.max(v));
        let mean = values.sum() / values.len() as f64;
        let squares = values.fold(0.0, |s, &v| s + (v - mean).powi(2));
        Moments { count: values.len() as u64, min, max, mean, squares }
    }

    /// Of the numbers of both. With `δ = m_b − m_a`, `m = m_a + δ n_b/n` and `S = S_a + S_b + δ² n_a n_b/n`.
    pub fn merged(self, other: Moments) -> Moments {
        if self.count == 0 || other.count == 0 {
            return if self.count == 0 { other } else { self };
        }
        let [a, b] = [self.count as f64, other.count as f64];
        let (δ, share) = (other.mean - self.mean, b / (a + b));
        Moments {
            count: self.count + other.count,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            mean: self.mean + δ * share,
            squares: self.squares + other.squares + δ * δ * a * share,
        }
    }

    /// The same with the mean in the place of numbers that are missing, `count` in all.
    pub fn filled(self, count: u64) -> Moments {
        Moments { count, ..self }
    }

    /// `(shift, scale)` of the numbers.
    pub fn scaling(&self, scaling: Scaling) -> (f64, f64) {
        // Tested on the values themselves: the rounded variance of a constant column may be nonzero.
        match scaling {
            Scaling::None => (0.0, 1.0),
            _ if self.min == self.max => (self.min, 0.0),
            Scaling::MinMax => (self.min, inverse(self.max - self.min)),
            Scaling::Standard => (self.mean, inverse((self.squares / self.count as f64).sqrt())),
        }
    }
}

/// 1/s; NaN where that overflows or s is zero, which the caller reports.
fn inverse(s: f64) -> f64 {
    if s.is_finite() && s > 0.0 { 1.0 / s } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Axis, array};
    use proptest::prelude::*;

    #[test]
    fn none_is_the_identity_even_on_constants() {
        let x = array![[2.0, -1.0], [2.0, 7.0]];
        let scaler = Scaler::fit(Scaling::None, x.view()).unwrap();
        assert_eq!(scaler.apply(x.view()).unwrap(), x);
        assert!(scaler.warnings(&[]).is_empty());
    }

    #[test]
    fn constant_columns_go_to_zero_and_are_named() {
        // The rounded mean of three 0.1 is not 0.1: its variance would be a tiny positive number.
        let x = array![[0.1, 1.0], [0.1, 2.0], [0.1, 4.0]];
        for scaling in [Scaling::Standard, Scaling::MinMax] {
            let scaler = Scaler::fit(scaling, x.view()).unwrap();
            assert!(scaler.apply(x.view()).unwrap().column(0).iter().all(|&v| v == 0.0));
            let warnings = scaler.warnings(&["age".into(), "b".into()]);
            assert_eq!(warnings, ["column 1 (`age`) has the same value in every row; it is mapped to zero"]);
        }
    }

    #[test]
    fn extreme_ranges_and_wrong_widths_are_errors() {
        for x in [array![[-1.5e308], [1.5e308]], array![[0.0], [5e-324]]] {
            for scaling in [Scaling::Standard, Scaling::MinMax] {
                assert!(Scaler::fit(scaling, x.view()).unwrap_err().to_string().contains("column 1"));
            }
        }
        assert!(Scaler::fit(Scaling::None, &Array2::<f64>::zeros((0, 2))).is_err());
        let scaler = Scaler::fit(Scaling::MinMax, array![[0.0, 1.0], [1.0, 0.0]].view()).unwrap();
        assert!(scaler.apply(&Array2::<f64>::zeros((1, 3))).is_err());
    }

    /// Numbers in parts, some of them empty, have the moments of all; a large mean costs no digits.
    #[test]
    fn moments_of_parts_are_those_of_the_whole() {
        let values: Vec<f64> = (0..1000).map(|i| 1e8 + f64::from(i * i % 97)).collect();
        let parts = [0..0, 0..1, 1..400, 400..400, 400..1000].map(|r| Moments::of(ArrayView1::from(&values[r])));
        let merged = parts.into_iter().fold(Moments::NONE, Moments::merged);
        let whole = Moments::of(ArrayView1::from(&values));
        assert_eq!((merged.count, merged.min, merged.max), (whole.count, whole.min, whole.max));
        assert!((merged.mean / whole.mean - 1.0).abs() < 1e-15);
        assert!((merged.squares / whole.squares - 1.0).abs() < 1e-9, "{merged:?} {whole:?}");
        let exact: f64 = values.iter().map(|v| (v - whole.mean).powi(2)).sum();
        assert_eq!(whole.squares, exact);
    }

    #[test]
    fn words_are_parsed_and_mistakes_are_answered() {
        assert_eq!("min-max".parse::<Scaling>().unwrap(), Scaling::MinMax);
        assert!("standart".parse::<Scaling>().unwrap_err().to_string().contains("'standard'"));
    }

    proptest! {
        #[test]
        fn scaled_columns_have_the_stated_range_or_moments(values in proptest::collection::vec(-1e3..1e3f64, 6..60)) {
            let n = values.len() / 3;
            let x = Array2::from_shape_vec((n, 3), values[..3 * n].to_vec()).unwrap();
            let z = Scaler::fit(Scaling::Standard, x.view()).unwrap().apply(x.view()).unwrap();
            for column in z.axis_iter(Axis(1)) {
                prop_assert!(column.mean().unwrap().abs() < 1e-9);
                prop_assert!((column.fold(0.0, |s, v| s + v * v) / n as f64 - 1.0).abs() < 1e-9);
            }
            let z = Scaler::fit(Scaling::MinMax, x.view()).unwrap().apply(x.view()).unwrap();
            for column in z.axis_iter(Axis(1)) {
                prop_assert_eq!(column.fold(1.0, |m: f64, &v| m.min(v)), 0.0);
                prop_assert!((column.fold(0.0, |m: f64, &v| m.max(v)) - 1.0).abs() < 1e-12);
            }
        }
    }
}
