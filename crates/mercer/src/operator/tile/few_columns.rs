//! Products of strips of K with vectors. A matrix product in general runs at half its speed for so few columns; here the sums of
//! six rows and sixteen columns stay in registers, and both products with a tile, `K v` and `Kᵀ w`, read each of its values once.

use crate::operator::Real;
use crate::operator::tile::packed::ROWS;
use crate::operator::tile::point_pair::PointPair;
use crate::operator::tile::workspace::Workspace;
use crate::simd::{Num, vectorized};
use ndarray::{ArrayView2, ArrayViewMut2, s};
use std::ops::Range;

/// Columns that are multiplied together.
const GROUP: usize = 16;
/// The most groups with which a strip of K is multiplied while it is in the first cache. For more, the vectors would not stay there.
const FEW: usize = 2;

/// One row of such columns.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line<T>([T; GROUP]);

impl<T: Real> Line<T> {
    fn zero() -> Self {
        Line([T::default(); GROUP])
    }
}

/// Vectors `[n, k]` in the precision of K.
pub(crate) struct Vectors<T> {
    /// k
    count: usize,
    /// Sixteen columns side by side, `[n]` for each group. The last group may be filled up with zeros.
    groups: Vec<Vec<Line<T>>>,
    /// The columns that are left, `[n]` each, if they are few.
    single: Vec<Vec<T>>,
}

impl<T: Real> Vectors<T> {
    /// `v` `[n, k]`, rounded.
    pub fn new(v: ArrayView2<f64>) -> Self {
        let (n, k) = v.dim();
        let mut vectors = Vectors::zeros(n, k);
        for (g, group) in vectors.groups.iter_mut().enumerate() {
            let columns = v.slice(s![.., of_group(g, k)]);
            for (line, row) in group.iter_mut().zip(columns.rows()) {
                line.0.iter_mut().zip(row).for_each(|(to, v)| *to = T::of(*v));
            }
        }
        for (single, c) in vectors.single.iter_mut().zip(vectors.groups.len() * GROUP..) {
            single.iter_mut().zip(v.column(c)).for_each(|(to, v)| *to = T::of(*v));
        }
        vectors
    }

    fn zeros(n: usize, k: usize) -> Self {
        // More than half a group takes as long as a whole one.
        let groups = (k + GROUP / 2 - 1) / GROUP;
        let single = (groups * GROUP..k).map(|_| vec![T::default(); n]).collect();
        Vectors { count: k, groups: (0..groups).map(|_| vec![Line::zero(); n]).collect(), single }
    }
}

/// The columns of a group among `k`.
fn of_group(g: usize, k: usize) -> Range<usize> {
    g * GROUP..k.min((g + 1) * GROUP)
}

/// `y_a += K v_b`, and `y_b += Kᵀ v_a` where there is a `v_a`, for one tile of K that is given in strips of its rows. Sums over a
/// tile are in `T`, all others in f64.
pub(crate) struct Products<'v, T> {
    a: Option<&'v Vectors<T>>,
    b: &'v Vectors<T>,
    /// The rows of `v_b` that this tile is multiplied with.
    columns: Range<usize>,
    /// `Kᵀ v_a` of the strips so far.
    transposed: Vectors<T>,
}

impl<'v, T: Real> Products<'v, T> {
    /// For the columns `columns` of K.
    pub fn new(a: Option<&'v Vectors<T>>, b: &'v Vectors<T>, columns: Range<usize>) -> Self {
        let transposed = Vectors::zeros(columns.len(), a.map_or(0, |a| a.count));
        Products { a, b, columns, transposed }
    }

    /// Takes the `rows` of `κ(a, b)`; `y` `[rows, ·]` are those of `y_a`.
    pub fn tile(
        &mut self,
        workspace: &mut Workspace<T>,
        point_pair: &PointPair<'_, T>,
        rows: Range<usize>,
        mut y: ArrayViewMut2<f64>,
    ) {
        let columns = self.columns.clone();
        if self.b.groups.len() > FEW {
            return self.strip(rows.clone(), workspace.tile(point_pair, rows, columns).view(), y);
        }
        workspace.strips(point_pair, rows.clone(), columns, |strip, k| {
            let y = y.slice_mut(s![strip.start - rows.start..strip.end - rows.start, ..]);
            self.strip(strip, k, y);
        });
    }

    /// Takes some `rows` of K, `k` `[rows, columns]`; `y` `[rows, ·]` are those of `y_a`.
    pub fn strip(&mut self, rows: Range<usize>, k: ArrayView2<T>, mut y: ArrayViewMut2<f64>) {
        for (g, v) in self.b.groups.iter().enumerate() {
            let v = &v[self.columns.clone()];
            for first in rows.clone().step_by(ROWS) {
                let (few, values) = (first..rows.end.min(first + ROWS), row_slices(&k, first - rows.start));
                let mut sums = [Line::zero(); ROWS];
                match self.a {
                    None => rows_of_group(values, v, &mut sums),
                    Some(a) => {
                        let mut w = [Line::zero(); ROWS];
                        w[..few.len()].copy_from_slice(&a.groups[g][few.clone()]);
                        both_of_group(values, v, &mut sums, &w, &mut self.transposed.groups[g]);
                    }
                }
                for (i, Line(sums)) in few.zip(&sums) {
                    add_line(&mut row_mut(&mut y, i - rows.start)[of_group(g, self.b.count)], sums);
                }
            }
        }
        for (c, v) in self.b.single.iter().enumerate() {
            let v = &v[self.columns.clone()];
            for first in rows.clone().step_by(ROWS) {
                let (few, values) = (first..rows.end.min(first + ROWS), row_slices(&k, first - rows.start));
                let mut sums = [T::default(); ROWS];
                match self.a {
                    None => rows_of_single(values, v, &mut sums),
                    Some(a) => {
                        let mut w = [T::default(); ROWS];
                        w[..few.len()].copy_from_slice(&a.single[c][few.clone()]);
                        both_of_single(values, v, &mut sums, &w, &mut self.transposed.single[c]);
                    }
                }
                let mut y = y.column_mut(self.b.groups.len() * GROUP + c);
                few.zip(&sums).for_each(|(i, sum)| y[i - rows.start] += sum.wide());
            }
        }
    }

    /// After all strips: `y` `[columns, ·]` are the rows of `y_b`.
    pub fn finish(self, mut y: ArrayViewMut2<f64>) {
        let count = self.transposed.count;
        for (g, group) in self.transposed.groups.iter().enumerate() {
            for (j, Line(sums)) in group.iter().enumerate() {
                add_line(&mut row_mut(&mut y, j)[of_group(g, count)], sums);
            }
        }
        for (single, c) in self.transposed.single.iter().zip(self.transposed.groups.len() * GROUP..) {
            y.column_mut(c).iter_mut().zip(single).for_each(|(y, sum)| *y += sum.wide());
        }
    }
}

/// Row `i` of sums that lie row by row.
fn row_mut<'y>(y: &'y mut ArrayViewMut2<f64>, i: usize) -> &'y mut [f64] {
    let k = y.ncols();
    &mut y.as_slice_mut().expect("sums lie row by row")[i * k..(i + 1) * k]
}

fn add_line<T: Real>(y: &mut [f64], sums: &[T; GROUP]) {
    y.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum.wide());
}

/// The rows of `k` from `first` on. Rows beyond the last are like it: they are multiplied with zeros, or the result is not used.
fn row_slices<'k, T: Real>(k: &'k ArrayView2<T>, first: usize) -> [&'k [T]; ROWS] {
    let (values, (height, width)) = (k.as_slice().expect("a strip lies row by row"), k.dim());
    std::array::from_fn(|r| &values[(first + r).min(height - 1) * width..][..width])
}

/// `sums += K v` `[ROWS, GROUP]` and, if `BOTH`, `y += Kᵀ w` `[columns, GROUP]`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops of this form become vector code")]
fn group<T: Real, const FMA: bool, const BOTH: bool>(
    k: [&[T]; ROWS],
    v: &[Line<T>],
    sums: &mut [Line<T>; ROWS],
    w: &[Line<T>; ROWS],
    y: &mut [Line<T>],
) {
    assert!(k.iter().all(|k| k.len() == v.len()) && (!BOTH || y.len() == v.len()), "a value of K for each line");
    let (w, mut all) = (*w, *sums);
    for (i, Line(v)) in v.iter().enumerate() {
        let mut t = if BOTH { y[i].0 } else { [T::default(); GROUP] };
        for r in 0..ROWS {
            // SAFETY: each row of K has as many values as there are lines.
            let k = unsafe { *k[r].get_unchecked(i) }.lane::<FMA>();
            for c in 0..GROUP {
                all[r].0[c] = T::of_lane(k.mul_add(v[c].lane::<FMA>(), all[r].0[c].lane::<FMA>()));
            }
            if BOTH {
                for c in 0..GROUP {
                    t[c] = T::of_lane(k.mul_add(w[r].0[c].lane::<FMA>(), t[c].lane::<FMA>()));
                }
            }
        }
        if BOTH {
            y[i] = Line(t);
        }
    }
    *sums = all;
}

vectorized! {
    fn rows_of_group<FMA, 'a, T: Real>(k: [&'a [T]; ROWS], v: &'a [Line<T>], sums: &'a mut [Line<T>; ROWS]) {
        group::<T, FMA, false>(k, v, sums, &[Line([T::default(); GROUP]); ROWS], &mut []);
    }
}

vectorized! {
    fn both_of_group<FMA, 'a, T: Real>(
        k: [&'a [T]; ROWS], v: &'a [Line<T>], sums: &'a mut [Line<T>; ROWS], w: &'a [Line<T>; ROWS], y: &'a mut [Line<T>]
    ) {
        group::<T, FMA, true>(k, v, sums, w, y);
    }
}

/// `sums += K v` `[ROWS]` and, if `BOTH`, `y += Kᵀ w` `[columns]`, sixteen columns of K at a time.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "loops of this form become vector code")]
fn single<T: Real, const FMA: bool, const BOTH: bool>(
    k: [&[T]; ROWS],
    v: &[T],
    sums: &mut [T; ROWS],
    w: &[T; ROWS],
    y: &mut [T],
) {
    let mut all = [[T::default(); GROUP]; ROWS];
    let whole = v.len() / GROUP * GROUP;
    let sixteen =
        |values: &[T], start: usize| -> [T; GROUP] { std::array::from_fn(|c| values[start..start + GROUP][c]) };
    for start in (0..whole).step_by(GROUP) {
        let v = sixteen(v, start);
        let mut t = if BOTH { sixteen(y, start) } else { v };
        for r in 0..ROWS {
            let k = sixteen(k[r], start);
            for c in 0..GROUP {
                let k = k[c].lane::<FMA>();
                all[r][c] = T::of_lane(k.mul_add(v[c].lane::<FMA>(), all[r][c].lane::<FMA>()));
                if BOTH {
                    t[c] = T::of_lane(k.mul_add(w[r].lane::<FMA>(), t[c].lane::<FMA>()));
                }
            }
        }
        if BOTH {
            y[start..start + GROUP].copy_from_slice(&t);
        }
    }
    for r in 0..ROWS {
        for (i, c) in (whole..v.len()).zip(0..) {
            let k = k[r][i].lane::<FMA>();
            all[r][c] = T::of_lane(k.mul_add(v[i].lane::<FMA>(), all[r][c].lane::<FMA>()));
            if BOTH {
                y[i] = T::of_lane(k.mul_add(w[r].lane::<FMA>(), y[i].lane::<FMA>()));
            }
        }
        // Halves are added to each other until one number is left.
        let mut half = GROUP / 2;
        while half > 0 {
            for c in 0..half {
                all[r][c] = T::of_lane(all[r][c].lane::<FMA>() + all[r][c + half].lane::<FMA>());
            }
            half /= 2;
        }
        sums[r] = T::of_lane(sums[r].lane::<FMA>() + all[r][0].lane::<FMA>());
    }
}

vectorized! {
    fn rows_of_single<FMA, 'a, T: Real>(k: [&'a [T]; ROWS], v: &'a [T], sums: &'a mut [T; ROWS]) {
        single::<T, FMA, false>(k, v, sums, &[T::default(); ROWS], &mut []);
    }
}

vectorized! {
    fn both_of_single<FMA, 'a, T: Real>(
        k: [&'a [T]; ROWS], v: &'a [T], sums: &'a mut [T; ROWS], w: &'a [T; ROWS], y: &'a mut [T]
    ) {
        single::<T, FMA, true>(k, v, sums, w, y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::Array2;

    /// `K v` and `Kᵀ w` of a strip in two pieces, against f64, for numbers of rows, columns and vectors that are no multiples of anything.
    fn off<T: Real>([height, width]: [usize; 2], k: usize, both: bool) -> f64 {
        let mut rng = Rng::new((height + 100 * width + 10_000 * k) as u64);
        let mut draw = |n: usize, m: usize| Array2::from_shape_simple_fn((n, m), || T::of(rng.normal()).wide());
        // Rows 5.. of a, and columns 3.. of b, belong to the tile.
        let (tile, w, v) = (draw(height, width), draw(height + 5, k), draw(width + 3, k));
        let (y_a, y_b) = (draw(height, k), draw(width, k));
        let rounded = tile.mapv(T::of);
        let (of_w, of_v) = (Vectors::<T>::new(w.view()), Vectors::<T>::new(v.view()));
        let mut products = Products::new(both.then_some(&of_w), &of_v, 3..3 + width);
        let (mut got_a, mut got_b) = (y_a.clone(), y_b.clone());
        let cut = height / 3;
        for rows in [0..cut, cut..height] {
            let some = rounded.slice(s![rows.clone(), ..]);
            products.strip(rows.start + 5..rows.end + 5, some, got_a.slice_mut(s![rows, ..]));
        }
        products.finish(got_b.view_mut());
        let want_a = y_a + tile.dot(&v.slice(s![3.., ..]));
        let want_b = if both { y_b + tile.t().dot(&w.slice(s![5.., ..])) } else { y_b };
        let most = |a: Array2<f64>| a.iter().fold(0.0, |m: f64, v| if v.is_nan() { f64::NAN } else { m.max(v.abs()) });
        let terms = (height + width) as f64;
        (most(got_a - want_a) + most(got_b - want_b)) / (T::epsilon_impl().wide() * terms)
    }

    #[test]
    fn products_with_any_number_of_columns_are_right() {
        for shape in [[1, 1], [1, 40], [6, 16], [7, 17], [13, 33], [384, 384], [50, 0]] {
            for k in [0, 1, 2, 8, 9, 15, 16, 17, 25, 35, 64] {
                for both in [false, true] {
                    let (single, double) = (off::<f32>(shape, k, both), off::<f64>(shape, k, both));
                    assert!(single < 2.0 && double < 2.0, "{shape:?}, {k} columns: {single} and {double} u");
                }
            }
        }
    }
}
