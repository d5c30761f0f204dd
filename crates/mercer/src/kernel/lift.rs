//! What a formula sees of a point: the maps that are taken before the statistic of two points.

use ndarray::{Array1, Array2, ArrayView2, s};
use std::f64::consts::TAU;

/// The map of a point before the statistic is taken, `[d] → [p]`. There are no others: whatever takes points to a GPU, or derivatives by
/// them, knows each of these.
///
/// ```
/// use mercer::kernel::Lift;
/// let x = ndarray::array![[0.0, 4.0]];
/// assert_eq!(Lift::OverNorm.of(x.view()), Some(ndarray::array![[0.0, 1.0]]));
/// assert_eq!(Lift::Itself.of(x.view()), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lift<'a> {
    /// `x`
    Itself,
    /// `x/c`
    Over(f64),
    /// `x/‖x‖`; the origin stays itself.
    OverNorm,
    /// `x/√‖x‖`; the origin stays itself.
    OverRootOfNorm,
    /// `(cos t, sin t)` of the angles `t_i = 2π x_i/p_i`.
    Circles(Circles<'a>),
}

/// The periods of the columns, and by what the columns of cosines and sines are divided. Example: [`Lift`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Circles<'a> {
    /// p, where there is one for all columns.
    pub period: f64,
    /// The period of each column `[d]`.
    pub periods: Option<&'a [f64]>,
    /// The divisor of each column `[d]`, where there are some.
    pub lengthscales: Option<&'a [f64]>,
}

impl Lift<'_> {
    /// The points `x` `[n, d]` after the map, `[n, p]`; none where they stay as they are.
    pub fn of(self, x: ArrayView2<f64>) -> Option<Array2<f64>> {
        match self {
            Lift::Itself => None,
            Lift::Over(by) => Some(&x / by),
            Lift::OverNorm => Some(over_norms(x, 1.0)),
            Lift::OverRootOfNorm => Some(over_norms(x, 0.5)),
            Lift::Circles(circles) => Some(circles.of(x)),
        }
    }
}

impl Circles<'_> {
    /// `(cos t, sin t)` `[n, 2d]` of points `x` `[n, d]`.
    fn of(self, x: ArrayView2<f64>) -> Array2<f64> {
        let (n, d) = x.dim();
        let each = |values: Option<&[f64]>, usual: f64| match values {
            Some(each) => Array1::from(each.to_vec()),
            None => Array1::from_elem(d, usual),
        };
        let (periods, lengthscales) = (each(self.periods, self.period), each(self.lengthscales, 1.0));
        // The remainder is exact, so that points many periods away lose no digits.
        let angles = Array2::from_shape_fn((n, d), |(i, j)| TAU * (x[[i, j]] % periods[j] / periods[j]));
        let mut lifted = Array2::zeros((n, 2 * d));
        lifted.slice_mut(s![.., ..d]).assign(&(angles.mapv(f64::cos) / &lengthscales));
        lifted.slice_mut(s![.., d..]).assign(&(angles.mapv(f64::sin) / &lengthscales));
        lifted
    }
}

/// `x_i / ‖x_i‖^power` `[n, d]`, so that the squares of tiny and of huge coordinates stay in range. The origin stays itself.
fn over_norms(x: ArrayView2<f64>, power: f64) -> Array2<f64> {
    let mut lifted = x.to_owned();
    for mut row in lifted.rows_mut() {
        let largest = row.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        if largest > 0.0 {
            row.mapv_inplace(|v| v / largest);
            let factor = largest.powf(1.0 - power) / row.dot(&row).powf(0.5 * power);
            row.mapv_inplace(|v| v * factor);
        }
    }
    lifted
}
