//! Covariances of pooled images, and the sums that read a network out.

use super::{Patch, Size};
use crate::net::Window;
use crate::operator::Real;
use crate::operator::tile::aligned::Aligned;
use crate::operator::tile::network::{Covariances, LANES};
use crate::simd::vectorized;

/// Covariances between all positions of a pooled image, `[positions, positions, LANES]`.
#[derive(Default)]
pub(super) struct Pooled<T> {
    pub size: Size,
    pub values: Covariances<T>,
}

impl<T: Real> Pooled<T> {
    /// K, and Θ where it is wanted.
    fn parts(&mut self) -> impl Iterator<Item = &mut Aligned<T>> {
        [&mut self.values.k, &mut self.values.theta].into_iter().filter(|part| !part.is_empty())
    }

    /// Adds a patch to every pair of windows that its pairs of positions lie in.
    pub fn add(&mut self, window: Window, patch_values: &Covariances<T>, patch: &Patch, offset: [isize; 2]) {
        let (rows, columns) = self.size;
        let around = |p: usize, count: usize| {
            let first = (p + 1).saturating_sub(window.size).div_ceil(window.stride);
            first..count.min(p / window.stride + 1)
        };
        let windows = |y: usize, x: usize| {
            around(y, rows).flat_map(move |qy| around(x, columns).map(move |qx| qy * columns + qx))
        };
        let from = [&patch_values.k, &patch_values.theta];
        for (to, from) in self.parts().zip(from) {
            let mut groups = from.chunks_exact(LANES);
            for y in patch.y.clone() {
                for x in patch.x.clone() {
                    let values = groups.next().expect("a group for each position");
                    let (y2, x2) = (y.wrapping_add_signed(offset[0]), x.wrapping_add_signed(offset[1]));
                    for q in windows(y, x) {
                        for r in windows(y2, x2) {
                            let at = (q * rows * columns + r) * LANES;
                            to[at..at + LANES].iter_mut().zip(values).for_each(|(t, &v)| *t += v);
                        }
                    }
                }
            }
        }
    }

    /// Adds all positions of a patch.
    pub fn sum(&mut self, patch: &Covariances<T>) {
        let from = [&patch.k, &patch.theta];
        for (to, from) in self.parts().zip(from) {
            add_total(from, to);
        }
    }

    pub fn scale(&mut self, by: f64) {
        self.parts().for_each(|part| part.iter_mut().for_each(|v| *v *= T::of(by)));
    }
}

/// The patch at `offset` of `all` `[positions, positions, LANES]`.
pub(super) fn gather<T: Real>(all: &[T], size: Size, patch: &Patch, offset: [isize; 2], out: &mut [T]) {
    let positions = size.0 * size.1;
    let shift = offset[0] * size.1 as isize + offset[1];
    let places = patch.y.clone().flat_map(|y| patch.x.clone().map(move |x| y * size.1 + x));
    for (out, p) in out.chunks_exact_mut(LANES).zip(places) {
        let at = (p * positions + p.wrapping_add_signed(shift)) * LANES;
        out.copy_from_slice(&all[at..at + LANES]);
    }
}

vectorized! {
    /// Adds the sum of all groups of lanes to `to` `[LANES]`.
    fn add_total<FMA, 'a, T: Real>(from: &'a [T], to: &'a mut [T]) {
        let mut sum = [T::of(0.0).lane::<FMA>(); LANES];
        for from in from.as_chunks::<LANES>().0 {
            for l in 0..LANES {
                sum[l] = sum[l] + from[l].lane::<FMA>();
            }
        }
        for (to, sum) in to.iter_mut().zip(sum) {
            *to = T::of_lane(to.lane::<FMA>() + sum);
        }
    }
}
