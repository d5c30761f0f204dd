//! Products of a few rows with packed columns: dot products of points, and products with a matrix of which half is zero. faer's are as
//! fast for large matrices; for small ones much of its time goes into arranging them, for every tile again.

use crate::kernel::Statistic;
use crate::operator::Real;
use crate::operator::tile::points::{Plan, Prepared, View};
use crate::simd::Level;
use ndarray::{ArrayView2, ArrayViewMut2, s};
use std::ops::Range;

/// Rows and columns of a block of sums, which stays in registers: of the 32 that AVX-512 has, 12 in f32 and 24 in f64.
pub const ROWS: usize = 6;
const COLUMNS: usize = 32;
/// The most coordinates of a point for which this is faster.
const MOST: usize = 256;

/// The most rows of a matrix for which this is faster: faer divides longer sums, so that what they read stays in cache.
const DEEP: usize = 1024;

/// Some coordinate of so many points.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Line<T>([T; COLUMNS]);

/// Points of a set, 32 side by side, so that a vector register holds one coordinate of several.
pub(crate) struct Packed<T> {
    /// The set, its view and the points.
    of: (u64, usize, Range<usize>),
    /// `[⌈n/32⌉, p]`
    lines: Vec<Line<T>>,
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Packed { of: (u64::MAX, 0, 0..0), lines: vec![] }
    }
}

/// Whether dot products with these points are computed from packed ones.
pub(crate) fn packs<T: Real>(plan: &Plan, statistic: usize, b: &Prepared<T>) -> bool {
    let (view, kind) = plan.statistics[statistic];
    let p = b.views[view].x.ncols();
    kind == Statistic::Dot && plan.images[view].is_none() && (1..=MOST).contains(&p) && packing_pays()
}

impl<T: Real> Packed<T> {
    /// `out_ij = a_i·b_j` `[rows, columns]`. Each sum runs from the first coordinate to the last.
    pub fn dots(
        &mut self,
        (a, rows): (&View<T>, Range<usize>),
        (b, view, columns): (&Prepared<T>, usize, Range<usize>),
        out: &mut [T],
    ) {
        assert!(packing_pays(), "packed points are for AVX-512");
        let p = a.x.ncols();
        let first = self.hold(b, view, columns.clone()) / COLUMNS * p;
        let last = first + columns.len().div_ceil(COLUMNS) * p;
        let x = a.x.as_slice().expect("points lie row by row");
        for (out, start) in out.chunks_mut((ROWS * columns.len()).max(1)).zip(rows.clone().step_by(ROWS)) {
            // Rows beyond the last are computed like it, and not written.
            let row = |r: usize| (start + r).min(rows.end - 1) * p;
            let few: [&[T]; ROWS] = std::array::from_fn(|r| &x[row(r)..row(r) + p]);
            // SAFETY: AVX-512 is there.
            unsafe { few_rows(few, &self.lines[first..last], out, columns.len(), 0) };
        }
    }

    /// Packs the `columns` of a view, unless they are; returns where they begin.
    fn hold(&mut self, b: &Prepared<T>, view: usize, columns: Range<usize>) -> usize {
        let (set, of_view, held) = &self.of;
        let begins = columns.start.wrapping_sub(held.start);
        let is_part = (held.start..=held.end).contains(&columns.start) && columns.end <= held.end;
        if (*set, *of_view) == (b.id, view) && is_part && begins % COLUMNS == 0 {
            return begins;
        }
        let (x, p) = (b.views[view].x.as_slice().expect("points lie row by row"), b.views[view].x.ncols());
        self.lines.clear();
        self.lines.resize(columns.len().div_ceil(COLUMNS) * p, Line([T::default(); COLUMNS]));
        for (lines, points) in
            self.lines.chunks_exact_mut(p).zip(x[columns.start * p..columns.end * p].chunks(COLUMNS * p))
        {
            for (j, point) in points.chunks_exact(p).enumerate() {
                lines.iter_mut().zip(point).for_each(|(line, x)| line.0[j] = *x);
            }
        }
        self.of = (b.id, view, columns);
        0
    }
}

/// A matrix `[m, r]`, packed for products with many rows from the left.
pub(crate) struct Factor<T> {
    /// For each 32 columns, from the first row to the last that is not zero, `[rows]`.
    panels: Vec<Vec<Line<T>>>,
    r: usize,
}

impl<T: Real> Factor<T> {
    /// Packs `b` `[m, r]`, where that is faster than a matrix product in general; `triangular` says that it is zero below its diagonal.
    pub fn new(b: ArrayView2<f64>, triangular: bool) -> Option<Self> {
        let (m, r) = b.dim();
        let panel = |start: usize| {
            let columns = b.slice(s![.., start..r.min(start + COLUMNS)]);
            let last = if triangular { m.min(start + COLUMNS) } else { m };
            let line = |f: usize| {
                let mut line = Line([T::default(); COLUMNS]);
                line.0.iter_mut().zip(columns.row(f)).for_each(|(to, b)| *to = T::of(*b));
                line
            };
            (0..last).map(line).collect()
        };
        (m <= DEEP && packing_pays()).then(|| Factor { panels: (0..r).step_by(COLUMNS).map(panel).collect(), r })
    }

    /// `out = A B` `[n, r]` for `A` `[n, m]`.
    pub fn product(&self, a: ArrayView2<T>, mut out: ArrayViewMut2<T>) {
        let ((n, m), r) = (a.dim(), self.r);
        let a = a.as_slice().expect("a strip lies row by row");
        let out = out.as_slice_mut().expect("a strip lies row by row");
        for (panel, column) in self.panels.iter().zip((0..).step_by(COLUMNS)) {
            for (out, start) in out.chunks_mut(ROWS * r).zip((0..n).step_by(ROWS)) {
                let row = |i: usize| &a[(start + i).min(n - 1) * m..][..panel.len()];
                // SAFETY: there is no factor without AVX-512.
                unsafe { few_rows(std::array::from_fn(row), panel, out, r, column) };
            }
        }
    }
}

/// Dot products of the rows `a` `[ROWS, p]` with packed ones, into as many rows of `width` as `out` has, from a column on.
///
/// # Safety
/// The CPU has AVX-512.
unsafe fn few_rows<T: Real>(a: [&[T]; ROWS], lines: &[Line<T>], out: &mut [T], width: usize, column: usize) {
    assert!(a.iter().all(|row| row.len() == a[0].len()), "rows of one length");
    for (lines, start) in lines.chunks_exact(a[0].len()).zip((column..width).step_by(COLUMNS)) {
        let columns = COLUMNS.min(width - start);
        if columns == COLUMNS && out.len() == ROWS * width {
            // SAFETY: the CPU has AVX-512; there is a line for each coordinate, and room for ROWS rows and COLUMNS columns.
            unsafe { T::block(a, lines, &mut out[start..], width) };
            continue;
        }
        let mut block = [T::default(); ROWS * COLUMNS];
        // SAFETY: as above.
        unsafe { T::block(a, lines, &mut block, COLUMNS) };
        for (out, sums) in out.chunks_exact_mut(width).zip(block.chunks_exact(COLUMNS)) {
            out[start..start + columns].copy_from_slice(&sums[..columns]);
        }
    }
}

/// Whether the CPU has the registers for it.
fn packing_pays() -> bool {
    Level::best() == Level::Avx512
}

/// A type whose sums of products fill registers of AVX-512.
pub trait Block: Sized {
    /// `to_rc = Σ_f a_rf b_fc` for ROWS rows and COLUMNS columns; rows of `to` are `stride` apart.
    ///
    /// # Safety
    /// The CPU has AVX-512, each of `a` has a value for each of the `lines`, and the last value that is written lies in `to`.
    #[doc(hidden)]
    unsafe fn block(a: [&[Self]; ROWS], lines: &[Line<Self>], to: &mut [Self], stride: usize);
}

macro_rules! block {
    ($type:ident, $vector:ident, $zero:ident, $one:ident, $load:ident, $fma:ident, $store:ident) => {
        impl Block for $type {
            #[cfg(target_arch = "x86_64")]
            unsafe fn block(a: [&[$type]; ROWS], lines: &[Line<$type>], to: &mut [$type], stride: usize) {
                use std::arch::x86_64::{$fma, $load, $one, $store, $vector, $zero};
                const LANES: usize = 64 / size_of::<$type>();
                const VECTORS: usize = COLUMNS / LANES;

                /// Written out in vectors, because the compiler does not keep arrays of numbers in registers reliably.
                ///
                /// # Safety
                /// As of [`Block::block`].
                #[target_feature(enable = "avx512f")]
                unsafe fn sums(a: [&[$type]; ROWS], lines: &[Line<$type>], to: &mut [$type], stride: usize) {
                    let mut sums = [[$zero(); VECTORS]; ROWS];
                    for (f, Line(b)) in lines.iter().enumerate() {
                        let b: [$vector; VECTORS] = std::array::from_fn(|v| {
                            // SAFETY: a line has COLUMNS values.
                            unsafe { $load(b.as_ptr().add(v * LANES)) }
                        });
                        for (sums, a) in sums.iter_mut().zip(a) {
                            // SAFETY: by the caller, there is a value for each line.
                            let a = $one(unsafe { *a.get_unchecked(f) });
                            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum = $fma(a, b, *sum));
                        }
                    }
                    for (r, sums) in sums.into_iter().enumerate() {
                        for (v, sum) in sums.into_iter().enumerate() {
                            // SAFETY: by the caller, this lies in `to`.
                            unsafe { $store(to.as_mut_ptr().add(r * stride + v * LANES), sum) };
                        }
                    }
                }
                debug_assert!(a.iter().all(|a| a.len() == lines.len()) && to.len() >= (ROWS - 1) * stride + COLUMNS);
                // SAFETY: by the caller.
                unsafe { sums(a, lines, to, stride) }
            }

            #[cfg(not(target_arch = "x86_64"))]
            unsafe fn block(_: [&[$type]; ROWS], _: &[Line<$type>], _: &mut [$type], _: usize) {
                unreachable!("no such CPU has AVX-512")
            }
        }
    };
}
block!(f32, __m512, _mm512_setzero_ps, _mm512_set1_ps, _mm512_loadu_ps, _mm512_fmadd_ps, _mm512_storeu_ps);
block!(f64, __m512d, _mm512_setzero_pd, _mm512_set1_pd, _mm512_loadu_pd, _mm512_fmadd_pd, _mm512_storeu_pd);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::rng::Rng;
    use ndarray::Array2;

    fn prepared<T: Real>(n: usize, p: usize, seed: u64) -> (Plan, Prepared<T>) {
        let x = Rng::new(seed).normals((n, p));
        let plan = Plan::new(&Kernel::parse("linear").unwrap(), x.view().into());
        let points = plan.points(x.view().into());
        (plan, points)
    }

    /// The largest error of the dot products, in units of roundoff of a sum of p terms of size one.
    fn off<T: Real>(
        a: &Prepared<T>,
        b: &Prepared<T>,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &mut Packed<T>,
    ) -> f64 {
        let (x, z) = (&a.views[0].x, &b.views[0].x);
        let mut out = vec![T::of(f64::NAN); rows.len() * columns.len()];
        packed.dots((&a.views[0], rows.clone()), (b, 0, columns.clone()), &mut out);
        let wide = |x: &Array2<T>, i: usize| x.row(i).mapv(|v| v.wide());
        let pairs = rows.flat_map(|i| columns.clone().map(move |j| (i, j)));
        let errors = pairs.zip(&out).map(|((i, j), got)| (got.wide() - wide(x, i).dot(&wide(z, j))).abs());
        let u = T::epsilon_impl().wide();
        errors.fold(0.0, |most: f64, e| if e.is_nan() { f64::NAN } else { most.max(e) }) / (u * x.ncols() as f64)
    }

    #[test]
    fn dot_products_of_any_number_of_points_are_right() {
        if !packing_pays() {
            return;
        }
        fn check<T: Real>() {
            for p in [1, 2, 7, 64, 256] {
                let ((_, a), (_, b)) = (prepared::<T>(40, p, 1), prepared::<T>(130, p, 2));
                let mut packed = Packed::default();
                for rows in [0..1, 3..9, 5..18, 0..40] {
                    // A block, parts of it that begin where a line does and where none does, all, and one point.
                    for columns in [0..64, 32..64, 32..45, 33..64, 0..130, 129..130, 70..70] {
                        let off = off(&a, &b, rows.clone(), columns.clone(), &mut packed);
                        assert!(off < 4.0, "{rows:?}, {columns:?} of {p} coordinates: {off} u");
                    }
                }
            }
        }
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn products_with_a_factor_are_right() {
        fn check<T: Real>() {
            let mut rng = Rng::new(7);
            for (n, m, r) in [(1, 1, 1), (5, 40, 33), (6, 64, 64), (13, 100, 100), (7, 3, 50)] {
                for triangular in [false, true] {
                    let mut draw =
                        |n: usize, m: usize| Array2::from_shape_simple_fn((n, m), || T::of(rng.normal()).wide());
                    let (a, mut b) = (draw(n, m), draw(m, r));
                    if triangular {
                        b.indexed_iter_mut().filter(|((i, j), _)| i > j).for_each(|(_, v)| *v = 0.0);
                    }
                    let mut out = Array2::from_elem((n, r), T::of(f64::NAN));
                    let Some(factor) = Factor::new(b.view(), triangular) else { return };
                    factor.product(a.mapv(T::of).view(), out.view_mut());
                    let within = T::epsilon_impl().wide() * m as f64;
                    let close = (out.mapv(|v| v.wide()) - a.dot(&b)).iter().all(|e| e.abs() < 4.0 * within);
                    assert!(close, "{n}×{m} and {m}×{r}, triangular: {triangular}");
                }
            }
        }
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn another_set_with_the_same_rows_is_packed_anew() {
        if !packing_pays() {
            return;
        }
        let ((_, a), mut packed) = (prepared::<f64>(8, 3, 1), Packed::default());
        for seed in 2..5 {
            let (_, b) = prepared(8, 3, seed);
            assert!(off(&a, &b, 0..8, 0..8, &mut packed) < 4.0);
        }
    }

    #[test]
    fn points_of_many_coordinates_and_other_statistics_are_not_packed() {
        for (text, p, can) in
            [("linear", 256, true), ("rbf(1)", 3, true), ("linear", 257, false), ("laplacian(1)", 3, false)]
        {
            let x = Array2::<f64>::ones((2, p));
            let plan = Plan::new(&Kernel::parse(text).unwrap(), x.view().into());
            let packed = packs(&plan, 0, &plan.points::<f32>(x.view().into()));
            assert_eq!(packed, can && Level::best() == Level::Avx512, "{text}, {p}");
        }
    }
}
