//! `κ(X, Z)` in strips that fit into cache, for callers that do not store the matrix.

use super::Real;
use super::points::{Plan, Prepared};
use super::tile::{SIDE, Workspace};
use crate::data::{CowRows, Rows};
use crate::kernel::Kernel;
use ndarray::{Array1, ArrayView1, ArrayViewMut2};
use std::collections::HashMap;
use std::ops::Range;

/// The points `Z` `[m, d]` of `κ(X, Z)`, prepared once; `X` is given a few rows at a time.
///
/// If a row of X equals a row of Z, the value is set to `κ(z,z)`. From dot products, `‖x−z‖²` would have a rounding error,
/// and a kernel with a kink at zero (Matérn 1/2) turns 1e-16 into 1e-8.
pub(crate) struct Strips<'a, T> {
    plan: Plan,
    points: Prepared<T>,
    z: CowRows<'a>,
    /// `κ(z,z)` `[m]`
    diagonal: Array1<f64>,
    /// Rows of Z by their hash.
    rows_by_hash: HashMap<u64, Vec<usize>>,
}

impl<'a, T: Real> Strips<'a, T> {
    /// For the points `z` `[m, d]`.
    pub fn new(kernel: &Kernel, z: CowRows<'a>) -> Self {
        let rows = z.rows();
        let plan = Plan::new(kernel, rows);
        let mut rows_by_hash: HashMap<u64, Vec<usize>> = HashMap::with_capacity(rows.n());
        for (j, z_j) in rows.chunks(1).enumerate() {
            rows_by_hash.entry(hash(z_j.row(0))).or_default().push(j);
        }
        Strips { points: plan.points(rows), diagonal: plan.diagonal(rows), plan, z, rows_by_hash }
    }

    /// Number of rows of `X` for which `κ(X, Z)` is about as large as one tile.
    pub fn height(&self) -> usize {
        (SIDE * SIDE / self.points.n.max(1)).clamp(16, 2 * SIDE)
    }

    /// `κ(x, Z[columns])` `[h, columns]` for a few points `x` `[h, d]`.
    pub fn block<'b>(&self, buffer: &'b mut Workspace<T>, x: Rows<'_>, columns: Range<usize>) -> ArrayViewMut2<'b, T> {
        let mut k = buffer.tile(&self.plan, &self.plan.points(x), 0..x.n(), &self.points, columns.clone());
        for (i, x_i) in x.chunks(1).enumerate() {
            for &j in self.rows_by_hash.get(&hash(x_i.row(0))).into_iter().flatten() {
                if columns.contains(&j) && self.z.rows().slice(j..j + 1).to_f64() == x_i {
                    k[[i, j - columns.start]] = T::of(self.diagonal[j]);
                }
            }
        }
        k
    }
}

/// A hash of a point.
fn hash(x: ArrayView1<f64>) -> u64 {
    x.iter().fold(0, |h: u64, v| (h.rotate_left(23) ^ v.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
