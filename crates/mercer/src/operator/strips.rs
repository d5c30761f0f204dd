//! `κ(X, Z)` in strips that fit into cache, for callers that do not store the matrix.

use super::Real;
use super::couple::{Couple, near};
use super::near::Near;
use super::points::{Plan, Prepared};
use super::tile::{SIDE, Workspace};
use super::twins::{Names, Twins};
use crate::data::Rows;
use crate::kernel::Kernel;
use ndarray::ArrayViewMut2;
use std::ops::Range;
use std::sync::Arc;

/// The points `Z` `[m, d]` of `κ(X, Z)`, prepared once; `X` is given a few rows at a time.
pub(crate) struct Strips<T> {
    plan: Plan,
    points: Prepared<T>,
    names: Names,
    /// The points of each name.
    members: Arc<Vec<Vec<usize>>>,
    /// Which entries are computed anew if no point of X is more than [`ROOM`] times as far from the centre as those of Z.
    near: Vec<Option<Near>>,
}

/// See [`Strips::near`], squared.
const ROOM: f64 = 4.0;

impl<T: Real> Strips<T> {
    /// For the points `z` `[m, d]`.
    pub fn new(kernel: &Kernel, z: Rows<'_>) -> Self {
        let plan = Plan::new(kernel, z);
        let points = plan.points(z);
        let names = Names::all(&points.keys);
        let members = Arc::new(names.members(&points.keys));
        Strips { near: near(&plan, &points, &points, ROOM), plan, points, names, members }
    }

    /// Number of rows of `X` for which `κ(X, Z)` is about as large as one tile.
    pub fn height(&self) -> usize {
        (SIDE * SIDE / self.points.n.max(1)).clamp(16, 2 * SIDE)
    }

    /// `κ(x, Z[columns])` `[h, columns]` for a few points `x` `[h, d]`.
    pub fn block<'b>(&self, buffer: &'b mut Workspace<T>, x: Rows<'_>, columns: Range<usize>) -> ArrayViewMut2<'b, T> {
        let (plan, b) = (&self.plan, &self.points);
        let a = &plan.points(x);
        let is_far = a.views.iter().zip(&b.views).any(|(a, b)| a.largest > ROOM * b.largest);
        let near = if is_far { near(plan, a, b, 1.0) } else { self.near.clone() };
        let diagonal = |rows: &[usize]| plan.diagonal(x.select(rows).rows());
        let twins = Twins::new(&self.names, &a.keys, self.members.clone(), diagonal);
        buffer.tile(&Couple { plan, a, b, near, twins }, 0..x.n(), columns)
    }
}
