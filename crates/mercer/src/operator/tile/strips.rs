//! `κ(X, Z)` in strips that fit into cache, for callers that do not store the matrix.

use crate::data::Rows;
use crate::kernel::Kernel;
use crate::operator::Real;
use crate::operator::tile::duplicates::{Duplicates, Names};
use crate::operator::tile::near::Near;
use crate::operator::tile::point_pair::{PointPair, near};
use crate::operator::tile::points::{Plan, Prepared};
use crate::operator::tile::workspace::{SIDE, Workspace};
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

    /// Number of rows of `X` for which `κ(X, Z)` takes about half an L2 cache, as one tile in f32 does.
    pub fn height(&self) -> usize {
        let values = SIDE * SIDE * size_of::<f32>() / size_of::<T>();
        (values / self.points.n.max(1)).clamp(16, 2 * SIDE)
    }

    /// `κ(x, Z[columns])` `[h, columns]` for a few points `x` `[h, d]`.
    pub fn block<'b>(&self, buffer: &'b mut Workspace<T>, x: Rows<'_>, columns: Range<usize>) -> ArrayViewMut2<'b, T> {
        let (plan, b) = (&self.plan, &self.points);
        let a = &plan.points(x);
        let is_far = a.views.iter().zip(&b.views).any(|(a, b)| a.largest > ROOM * b.largest);
        let near = if is_far { near(plan, a, b, 1.0) } else { self.near.clone() };
        let diagonal = |rows: &[usize]| plan.diagonal(x.select(rows).rows());
        let duplicates = Duplicates::new(&self.names, &a.keys, self.members.clone(), diagonal);
        buffer.tile(&PointPair { plan, a, b, near, duplicates }, 0..x.n(), columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::Array2;

    /// Every row of κ(X, Z), a few at a time.
    fn off<T: Real>(kernel: &Kernel, x: &Array2<f64>, z: &Array2<f64>) -> f64 {
        let strips = Strips::<T>::new(kernel, z.into());
        let (mut buffer, mut most) = (Workspace::default(), 0.0f64);
        for (few, first) in x.axis_chunks_iter(ndarray::Axis(0), 7).zip((0..).step_by(7)) {
            for columns in [0..40, 40..z.nrows()] {
                let k = strips.block(&mut buffer, few.into(), columns.clone());
                for ((i, j), k) in k.indexed_iter() {
                    let (x, z) = (x.row(first + i).to_vec(), z.row(columns.start + j).to_vec());
                    let want = kernel.value(&x, &z);
                    assert!(x != z || k.wide() == T::of(want).wide(), "equal points have the diagonal's value");
                    most = most.max((k.wide() - want).abs());
                }
            }
        }
        most
    }

    #[test]
    fn strips_keep_the_digits_of_far_points() {
        let mut rng = Rng::new(0);
        let mut draw =
            |n: usize, apart: f64| Array2::from_shape_fn((n, 3), |(i, _)| apart * (i % 2) as f64 + rng.normal());
        let mut z = draw(100, 1e3);
        let first = z.row(0).to_owned();
        z.row_mut(60).assign(&first);
        // Queries like the centres, some equal to them, and queries much further away, in clusters of their own.
        let (mut like, mut far) = (draw(50, 1e3), draw(50, 1e6));
        like.row_mut(20).assign(&z.row(0));
        far.row_mut(3).assign(&z.row(99));
        for text in ["rbf(1.3)", "matern12(2)", "laplacian(2)", "0.5*rbf(1) + 0.3*matern32(1)"] {
            let kernel = Kernel::parse(text).unwrap();
            for x in [&like, &far] {
                let (single, double) = (off::<f32>(&kernel, x, &z), off::<f64>(&kernel, x, &z));
                assert!(single < 4e-6 && double < 7e-15, "{text}: {single:e}, {double:e}");
            }
        }
    }
}
