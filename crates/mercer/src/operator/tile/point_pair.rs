//! Two sets of points, and what is known of them together before a tile is computed.

use crate::operator::Real;
use crate::operator::tile::duplicates::{Duplicates, Names};
use crate::operator::tile::near::{Near, Roundoff};
use crate::operator::tile::points::{Plan, Prepared};
use ndarray::Array1;
use std::sync::Arc;

/// The points A and B of `κ(A, B)`.
pub(crate) struct PointPair<'a, T> {
    pub plan: &'a Plan,
    pub a: &'a Prepared<T>,
    pub b: &'a Prepared<T>,
    /// For each base kernel, from left to right: which entries are computed anew, from differences of coordinates.
    pub near: Vec<Option<Near>>,
    /// The entries whose points are equal.
    pub duplicates: Duplicates,
}

impl<'a, T: Real> PointPair<'a, T> {
    /// For `κ(a, b)`; `diagonal` gives `κ(x,x)` of some points of `a`.
    pub fn new(
        plan: &'a Plan,
        a: &'a Prepared<T>,
        b: &'a Prepared<T>,
        diagonal: impl FnOnce(&[usize]) -> Array1<f64>,
    ) -> Self {
        let names = if std::ptr::eq(a, b) { Names::repeated(&a.keys) } else { Names::shared(&a.keys, &b.keys) };
        let columns = Arc::new(names.members(&b.keys));
        PointPair {
            near: near(plan, a, b, 1.0),
            duplicates: Duplicates::new(&names, &a.keys, columns, diagonal),
            plan,
            a,
            b,
        }
    }
}

/// The entries to compute anew between `a` and `b`, and points of a squared norm `room` times as large.
pub(crate) fn near<T: Real>(plan: &Plan, a: &Prepared<T>, b: &Prepared<T>, room: f64) -> Vec<Option<Near>> {
    let views = a.views.iter().zip(&b.views);
    let largest: Vec<f64> = views.map(|(a, b)| room * (a.largest + b.largest)).collect();
    let widths: Vec<usize> = b.views.iter().map(|view| view.x.ncols()).collect();
    plan.near(&largest, &widths, Roundoff::of::<T>())
}
