//! `κ(X, Z)` in strips that fit into cache, for callers that do not store the matrix.

use super::Real;
use super::points::{Plan, Prepared};
use super::tile::{SIDE, Workspace};
use crate::kernel::Kernel;
use ndarray::{Array1, ArrayView1, ArrayView2, ArrayViewMut2, CowArray, Ix2};
use std::collections::HashMap;
use std::ops::Range;

/// The points `Z` `[m, d]` of `κ(X, Z)`, prepared once; `X` is given a few rows at a time.
///
/// If a row of X equals a row of Z, the value is set to `κ(z,z)`. From dot products, `‖x−z‖²` would have a rounding error,
/// and a kernel with a kink at zero (Matérn 1/2) turns 1e-16 into 1e-8.
pub(crate) struct Strips<'a, T> {
    plan: Plan,
    points: Prepared<T>,
    z: CowArray<'a, f64, Ix2>,
    /// `κ(z,z)` `[m]`
    diagonal: Array1<f64>,
    /// Rows of Z by their hash.
    rows_by_hash: HashMap<u64, Vec<usize>>,
}

/// Buffers that one thread reuses from strip to strip.
#[derive(Default)]
pub(crate) struct StripBuffer<T>(Workspace<T>);

impl<'a, T: Real> Strips<'a, T> {
    /// For the points `z` `[m, d]`.
    pub fn new(kernel: &Kernel, z: impl Into<CowArray<'a, f64, Ix2>>) -> Self {
        let z = z.into();
        let plan = Plan::new(kernel, z.view());
        let mut rows_by_hash: HashMap<u64, Vec<usize>> = HashMap::with_capacity(z.nrows());
        for (j, z_j) in z.rows().into_iter().enumerate() {
            rows_by_hash.entry(hash(z_j)).or_default().push(j);
        }
        Strips { points: plan.points(z.view()), diagonal: plan.diagonal(z.view()), plan, z, rows_by_hash }
    }

    /// `κ(z,z)` `[m]`, in f64.
    pub fn diagonal(&self) -> &Array1<f64> {
        &self.diagonal
    }

    /// Number of rows of `X` for which `κ(X, Z)` is about as large as one tile.
    pub fn height(&self) -> usize {
        (SIDE * SIDE / self.points.n.max(1)).clamp(16, 2 * SIDE)
    }

    /// `κ(x, Z)` `[h, m]` for a few points `x` `[h, d]`.
    pub fn strip<'b>(&self, buffer: &'b mut StripBuffer<T>, x: ArrayView2<f64>) -> ArrayViewMut2<'b, T> {
        self.block(buffer, x, 0..self.points.n)
    }

    /// `κ(x, Z[columns])` `[h, columns]` for a few points `x` `[h, d]`.
    pub fn block<'b>(
        &self,
        buffer: &'b mut StripBuffer<T>,
        x: ArrayView2<f64>,
        columns: Range<usize>,
    ) -> ArrayViewMut2<'b, T> {
        let mut k = buffer.0.tile(&self.plan, &self.plan.points(x), 0..x.nrows(), &self.points, columns.clone());
        for (i, x_i) in x.rows().into_iter().enumerate() {
            for &j in self.rows_by_hash.get(&hash(x_i)).into_iter().flatten() {
                if columns.contains(&j) && self.z.row(j) == x_i {
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
