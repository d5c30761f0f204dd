//! Entries of a kernel of a distance, computed anew from differences of coordinates; [`crate::operator::near`] says which.

use crate::kernel::{Base, Formula, Pair, Statistic, with_formula};
use crate::operator::Real;
use crate::operator::tile::near::Near;
use crate::operator::tile::workspace::Part;
use crate::simd::{Num, vectorized};
use std::cmp::Ordering;

/// The new values of one base kernel in a tile, and their places.
#[derive(Default)]
pub(crate) struct Recomputed<T> {
    places: Vec<usize>,
    values: Vec<T>,
    /// Whether a row of the tile has any.
    rows: Vec<T>,
    columns: Vec<usize>,
    zeros: Vec<T>,
}

/// Sums that run side by side.
const SUMS: usize = 16;

impl<T: Real> Recomputed<T> {
    /// Computes the values of `base` for the entries of a tile that are `near`; `statistics` are its dot products or distances.
    pub fn find(&mut self, base: &Base, near: Near, statistics: &[T], [(a, rows), (b, columns)]: [Part<'_, T>; 2]) {
        let l1 = base.statistic() == Statistic::L1;
        let bounds = [near.from, near.within, near.share].map(T::of);
        let (xx, yy) = (a.side(rows.clone()).xx, b.side(columns.clone()).xx);
        let width = columns.len();
        self.places.clear();
        self.values.clear();
        self.rows.clear();
        self.rows.resize(rows.len(), T::default());
        find_rows(&mut self.rows, statistics, xx, yy, bounds, l1);
        let p = a.x.ncols();
        self.zeros.resize(p, T::default());
        let zeros = &self.zeros[..p];
        let a_high = a.x.as_slice().expect("points lie row by row");
        let [a_low, b_low] = [a, b].map(|view| view.low.as_slice().expect("points lie row by row"));
        let b_high = b.x.as_slice().expect("points lie row by row");
        for i in (0..rows.len()).filter(|&i| self.rows[i].wide() != 0.0) {
            let row = &statistics[i * width..(i + 1) * width];
            self.columns.clear();
            self.columns.extend((0..width).filter(|&j| is_near(row[j], xx[i], yy[j], near, l1)));
            self.places.extend(self.columns.iter().map(|j| i * width + j));
            self.columns.iter_mut().for_each(|j| *j += columns.start);
            let of_row = (rows.start + i) * p..(rows.start + i + 1) * p;
            let row = [&a_high[of_row.clone()], a_low.get(of_row).unwrap_or(zeros)];
            let start = self.values.len();
            self.values.resize(start + self.columns.len(), T::default());
            distances(&mut self.values[start..], &self.columns, row, [b_high, b_low], zeros, l1);
        }
        with_formula!(base, formula => apply_to_distances(formula, &mut self.values));
    }

    /// Writes the values to their places in the tile.
    pub fn write(&self, tile: &mut [T]) {
        self.places.iter().zip(&self.values).for_each(|(&place, &value)| tile[place] = value);
    }
}

/// Whether an entry is near. What is not a number is.
fn is_near<T: Real>(s: T, xx: T, yy: T, near: Near, l1: bool) -> bool {
    let (s, sum) = (s.wide(), xx.wide() + yy.wide());
    let (d, bound) = if l1 { (s, near.within) } else { (sum - 2.0 * s, near.within.min(near.share * sum)) };
    let far = |a: f64, b: f64| a.partial_cmp(&b) == Some(Ordering::Greater);
    !(far(d, bound) || (!l1 && far(near.from, sum)))
}

vectorized! {
    /// Sets `rows_i` to 1 where an entry of row i is near, within the rounding error of this very test.
    fn find_rows<FMA, 'a, T: Real>(
        rows: &'a mut [T], statistics: &'a [T], xx: &'a [T], yy: &'a [T], bounds: [T; 3], l1: bool
    ) {
        let lane = |v: T| v.lane::<FMA>();
        let (zero, one) = (T::Lane::<FMA>::of(0.0), T::Lane::<FMA>::of(1.0));
        let [from, within, share] = bounds.map(lane);
        for ((row, &xx), found) in statistics.chunks_exact(yy.len()).zip(xx).zip(rows) {
            let mut any = [zero; SUMS];
            for (row, yy) in row.chunks(SUMS).zip(yy.chunks(SUMS)) {
                for ((any, &s), &yy) in any.iter_mut().zip(row).zip(yy) {
                    let sum = lane(xx) + lane(yy);
                    let (d, bound) = if l1 {
                        (lane(s), within)
                    } else {
                        // No distance is below zero by more than a rounding error.
                        let bound = T::Lane::<FMA>::select_gt(from, sum, T::Lane::<FMA>::of(-1.0) * sum, within.min(share * sum));
                        (sum - (lane(s) + lane(s)), bound)
                    };
                    *any = T::Lane::<FMA>::select_gt(d, bound, *any, one);
                }
            }
            *found = T::of_lane(any.into_iter().fold(zero, |most, any| most.max(any)));
        }
    }
}

vectorized! {
    /// `out_k = ‖a − b_j‖²`, or `‖a − b_j‖₁`, with j = `columns_k`. A point is the sum of a high and a low part `[p]`; the low
    /// parts of B may be missing.
    fn distances<FMA, 'a, T: Real>(
        out: &'a mut [T], columns: &'a [usize], a: [&'a [T]; 2], b: [&'a [T]; 2], zeros: &'a [T], l1: bool
    ) {
        let p = zeros.len();
        for (out, &j) in out.iter_mut().zip(columns) {
            let point = j * p..(j + 1) * p;
            let b = [&b[0][point.clone()], b[1].get(point).unwrap_or(zeros)];
            let mut sums = [T::Lane::<FMA>::of(0.0); SUMS];
            for f in (0..p).step_by(SUMS) {
                let part = f..p.min(f + SUMS);
                let (a, b) = (a.map(|a| &a[part.clone()]), b.map(|b| &b[part.clone()]));
                for (k, sum) in sums.iter_mut().enumerate().take(part.len()) {
                    let [high, low] = [0, 1].map(|h| a[h][k].lane::<FMA>() - b[h][k].lane::<FMA>());
                    let difference = high + low;
                    *sum = *sum + if l1 { difference.abs() } else { difference * difference };
                }
            }
            *out = T::of_lane(sums.into_iter().reduce(|a, b| a + b).expect("sums"));
        }
    }
}

vectorized! {
    /// Applies a formula of a distance to distances.
    fn apply_to_distances<FMA, 'a, F: Formula, T: Real>(formula: &'a F, values: &'a mut [T]) {
        // No other formula is ever asked: this keeps their code from being compiled.
        if const { F::IS_NETWORK } || !matches!(formula.statistic(), Statistic::SquaredDistance | Statistic::L1) {
            return;
        }
        let zero = T::Lane::<FMA>::of(0.0);
        for s in values {
            *s = T::of_lane(formula.eval(Pair { s: s.lane::<FMA>(), xx: zero, yy: zero }));
        }
    }
}
