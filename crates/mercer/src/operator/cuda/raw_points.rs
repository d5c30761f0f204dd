//! Raw points: what the host makes of points before the device brings them into the layout of the tiles.

use super::program::Program;
use crate::data::Rows;
use crate::operator::Real;
use crate::operator::memory::zeros;
use crate::operator::tile::duplicates::keys;
use crate::operator::tile::workspace::ranges;
use ndarray::Array2;
use rayon::prelude::*;
use std::ops::Range;

/// Bytes of the points in f64 that a thread packs together, and the most points.
const STRIP_BYTES: usize = 256 << 10;
const MOST_ROWS: usize = 1024;

impl Program {
    /// The raw points for `prepare_points`, `[n, source_width]`, from `x` `[n, d]`: shifted and transformed for the
    /// kernel, contiguous and row-major; then their low parts and their names, where the program has some. `T` is f64, or f32
    /// where that is enough ([`Self::single`]).
    pub fn pack<T: Real>(&self, x: Rows<'_>) -> Array2<T> {
        let shape = (x.n(), self.source_width());
        let mut all = Array2::from_shape_vec(shape, zeros(shape.0 * shape.1)).expect("n·p values");
        self.pack_into(x, all.as_slice_mut().expect("an array of its own"));
        all
    }

    /// The same into `all` `[n, source_width]`, a few rows at a time: what they are in f64 stays in the cache.
    pub fn pack_into<T: Real>(&self, x: Rows<'_>, all: &mut [T]) {
        let (width, low_first) = (self.source_width(), self.low_first());
        assert_eq!(all.len(), x.n() * width, "raw points");
        // Whether low parts are needed is said of all points together.
        let whole = (low_first > 0).then(|| self.plan.points::<T>(x));
        let rows = (STRIP_BYTES / (8 * width.max(1))).clamp(1, MOST_ROWS);
        if width == 0 {
            return;
        }
        let strips = all.par_chunks_mut(rows * width).zip(ranges(x.n(), rows));
        strips.for_each(|(all, rows)| {
            let few = x.slice(rows.clone());
            if let Some(points) = &whole {
                for (view, place) in points.views.iter().zip(&self.views) {
                    let (at, columns) = (place.source_first, place.source_width);
                    let of = |part: &Array2<T>, i: usize, j: usize| part.get([i, j]).copied().unwrap_or_default();
                    put(all, width, at..at + columns, |i, j| of(&view.x, rows.start + i, j));
                    put(all, width, low_first + at..low_first + at + columns, |i, j| of(&view.low, rows.start + i, j));
                }
            } else {
                let few = few.to_f64();
                for (view, place) in self.views.iter().enumerate() {
                    let (at, seen) = (place.source_first, self.plan.seen(few.view(), view));
                    let seen = seen.as_standard_layout();
                    let (values, p) = (seen.as_slice().expect("row by row"), place.source_width);
                    put(all, width, at..at + p, |i, j| T::of(values[i * p + j]));
                }
            }
            if self.has_duplicates() {
                let keys = keys(few);
                put(all, width, width - 1..width, |i, _| T::of(self.name(keys[i])));
            }
        });
    }
}

/// Writes `value(i, j)` into these columns of the row-major `all` `[n, width]`.
fn put<T>(all: &mut [T], width: usize, columns: Range<usize>, value: impl Fn(usize, usize) -> T) {
    for (i, to) in all.chunks_mut(width).enumerate() {
        to[columns.clone()].iter_mut().enumerate().for_each(|(j, to)| *to = value(i, j));
    }
}
