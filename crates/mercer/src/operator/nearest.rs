//! The rows nearest to given rows: tiles of dot products in single precision choose candidates, double precision decides.
//!
//! A tile says of a pair no more than a number with a bound of its error. Whoever may be among the nearest by that bound is compared
//! in f64, so that the answer is that of comparing all pairs in f64, whatever the tiles and the number of threads.

use super::Real;
use super::tile::ranges;
use crate::linalg::matmul_into;
use crate::simd::vectorized;
use crate::{Progress, Result, fail_if};
use faer::{Accum, Par};
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Mutex;

/// What makes two rows near. Example: [`ExactSearch`](crate::retrieval::ExactSearch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// A small distance `‖x − z‖`.
    Euclidean,
    /// A large cosine `x·z/(‖x‖‖z‖)`; that of a row of zeros is 0.
    #[default]
    Cosine,
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(word: &str) -> Result<Metric, String> {
        match word {
            "euclidean" => Ok(Metric::Euclidean),
            "cosine" => Ok(Metric::Cosine),
            _ => Err(format!("'{word}' is not a metric; it is cosine or euclidean")),
        }
    }
}

/// Queries and items of a tile: half an L2 cache of products in f32.
const QUERIES: usize = 256;
const ITEMS: usize = 512;

/// Rows that a thread passes over at a time.
const PASS: usize = 4096;

/// A query so many radii away is compared with every item: f32 overflows there.
const FAR: f64 = 1e15;

/// Tasks for each thread that there should be at least: few queries are compared with parts of the items.
const TASKS: usize = 2;

/// A candidate: how far it is, and its row. The nearer is the smaller; of equally near ones, the one with the smaller row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate(f64, usize);

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Rows `[n, d]` to be searched.
///
/// The key of a pair, the smaller the nearer, is `‖x − z‖²`, or the cosine with a minus sign. A tile computes
/// `s = ẑ·x̂ − h(x)` with `x̂ = (x − c)/R`, `h = ‖x̂‖²/2` about the mean c with all `‖x̂‖ ≤ 1`, or with `x̂ = x/‖x‖`, `h = 0`:
/// `s = ‖ẑ‖²/2 − key/(2R²)`, or `s = −key`.
pub(crate) struct Items<'a, T> {
    x: ArrayView2<'a, T>,
    metric: Metric,
    /// c; zero for cosines.
    centre: Vec<f64>,
    /// R
    radius: f64,
}

impl<'a, T: Real> Items<'a, T> {
    /// Rows `[n, d]`, compared by `metric`.
    pub fn new(x: ArrayView2<'a, T>, metric: Metric) -> Items<'a, T> {
        let mut items = Items { x, metric, centre: vec![0.0; x.ncols()], radius: 1.0 };
        if metric == Metric::Euclidean {
            let parts: Vec<ArrayView2<T>> = x.axis_chunks_iter(Axis(0), PASS).collect();
            let sum = |part: &ArrayView2<T>| {
                let mut sum = vec![0.0; x.ncols()];
                part.rows().into_iter().for_each(|row| sum.iter_mut().zip(row).for_each(|(s, x)| *s += x.wide()));
                sum
            };
            for sum in parts.par_iter().map(sum).collect::<Vec<_>>() {
                items.centre.iter_mut().zip(sum).for_each(|(c, sum)| *c += sum / x.nrows() as f64);
            }
            let norms =
                |part: &ArrayView2<T>| part.rows().into_iter().map(|r| items.centred_norm(r)).fold(0.0, f64::max);
            let largest = parts.par_iter().map(norms).reduce(|| 0.0, f64::max);
            items.radius = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        }
        items
    }

    /// `‖x − c‖`, summed in lanes, so that no sum waits for the one before.
    fn centred_norm(&self, row: ArrayView1<T>) -> f64 {
        const LANES: usize = 8;
        let square = |(x, c): (&T, &f64)| (x.wide() - c).powi(2);
        let Some(row) = row.to_slice() else { return row.iter().zip(&self.centre).map(square).sum::<f64>().sqrt() };
        let ((row, end), (centre, end_centre)) = (row.as_chunks::<LANES>(), self.centre.as_chunks::<LANES>());
        let mut sums = [0.0; LANES];
        for (x, c) in row.iter().zip(centre) {
            sums.iter_mut().zip(x.iter().zip(c)).for_each(|(sum, pair)| *sum += square(pair));
        }
        (sums.iter().sum::<f64>() + end.iter().zip(end_centre).map(square).sum::<f64>()).sqrt()
    }

    /// How far the row `i` is from a query.
    pub fn key(&self, query: ArrayView1<T>, i: usize) -> f64 {
        let pairs = query.into_iter().zip(self.x.row(i));
        match self.metric {
            Metric::Euclidean => pairs.map(|(z, x)| (z.wide() - x.wide()).powi(2)).sum(),
            Metric::Cosine => {
                let (zx, zz, xx) = pairs.fold((0.0, 0.0, 0.0), |(zx, zz, xx), (z, x)| {
                    let (z, x) = (z.wide(), x.wide());
                    (zx + z * x, zz + z * z, xx + x * x)
                });
                if zx == 0.0 { 0.0 } else { -zx / (zz.sqrt() * xx.sqrt()) }
            }
        }
    }

    /// The `top` items nearest to each of `queries` `[m, d]`, as `(row, key)`, nearest first; of equally near ones, those with the
    /// smaller row. Where the queries are the items, `others` leaves each out of its own list.
    pub fn nearest(
        &self,
        queries: ArrayView2<T>,
        top: usize,
        others: bool,
        progress: &dyn Progress,
    ) -> Vec<Vec<(usize, f64)>> {
        let n = self.x.nrows();
        let blocks = ranges(queries.nrows(), QUERIES);
        let parts = (TASKS * rayon::current_num_threads()).div_ceil(blocks.len().max(1));
        let strips = ranges(n, n.div_ceil(parts).next_multiple_of(ITEMS).max(1));
        let tasks: Vec<_> = blocks.iter().flat_map(|rows| strips.iter().map(move |part| (rows, part))).collect();
        let (done, all) = (Mutex::new(0), tasks.len());
        let of_task = |(rows, part): (&Range<usize>, &Range<usize>)| {
            let found = self.block(queries, rows.clone(), part.clone(), top, others);
            let mut done = done.lock().expect("no panic");
            *done += 1;
            progress.step("nearest neighbours", *done, all, "");
            found
        };
        let found: Vec<Vec<BinaryHeap<Candidate>>> = tasks.into_par_iter().map(of_task).collect();
        let mut lists = Vec::with_capacity(queries.nrows());
        let mut found = found.into_iter();
        for rows in &blocks {
            let of_parts: Vec<_> = found.by_ref().take(strips.len()).collect();
            lists.extend((0..rows.len()).map(|q| merged(of_parts.iter().map(|part| &part[q]), top)));
        }
        lists
    }

    /// The nearest among the items `part` to each of the queries `rows`.
    fn block(
        &self,
        queries: ArrayView2<T>,
        rows: Range<usize>,
        part: Range<usize>,
        top: usize,
        others: bool,
    ) -> Vec<BinaryHeap<Candidate>> {
        let some = queries.slice(s![rows.clone(), ..]);
        let (mut z, mut x) = (Packed::default(), Packed::default());
        z.pack(self, some);
        let mut dots = vec![0f32; rows.len() * ITEMS];
        let mut found: Vec<(f32, usize)> = vec![];
        let of_query = |_| BinaryHeap::with_capacity(top.min(part.len()));
        let mut best: Vec<BinaryHeap<Candidate>> = rows.clone().map(of_query).collect();
        for items in ranges(part.len(), ITEMS) {
            let items = part.start + items.start..part.start + items.end;
            x.pack(self, self.x.slice(s![items.clone(), ..]));
            let dots = &mut dots[..rows.len() * items.len()];
            let shape = (rows.len(), items.len());
            let tile = ArrayViewMut2::from_shape(shape, &mut *dots).expect("the buffer has the size of the tile");
            matmul_into(tile, Accum::Replace, z.rows.view(), x.rows.t(), 1.0, Par::Seq);
            for (q, dots) in dots.chunks_exact(items.len()).enumerate() {
                let threshold = |best: &BinaryHeap<Candidate>| self.threshold(best, top, z.norms[q], x.largest);
                let mut least = threshold(&best[q]);
                found.clear();
                at_least(dots, &x.halves, least, &mut found);
                if found.len() > top && top > 0 {
                    // Those that are probably the nearest first: they raise the threshold for the others.
                    found.select_nth_unstable_by(top - 1, |a, b| b.0.total_cmp(&a.0));
                }
                for &(score, i) in &found {
                    let i = items.start + i;
                    if score < least || others && i == rows.start + q {
                        continue;
                    }
                    keep(&mut best[q], Candidate(self.key(some.row(q), i), i), top);
                    least = threshold(&best[q]);
                }
            }
        }
        best
    }

    /// The least s that an item among the `top` can have, for a query with `‖ẑ‖ = z` and items with `‖x̂‖ ≤ r`.
    ///
    /// In f32 with unit roundoff u, rounded coordinates, d products and their sum are within `(d+2)u z r` of `ẑ·x̂`, and h within
    /// `2u r²`; `(d+8)u(z r + r²)` is more than both and the rounding of s.
    fn threshold(&self, best: &BinaryHeap<Candidate>, top: usize, z: f64, r: f64) -> f32 {
        let Some(&Candidate(key, _)) = best.peek().filter(|_| best.len() >= top) else { return f32::NEG_INFINITY };
        let s = match self.metric {
            Metric::Euclidean => 0.5 * (z * z - key / (self.radius * self.radius)),
            Metric::Cosine => -key,
        };
        let u = f64::from(f32::EPSILON) / 2.0;
        let error = (self.x.ncols() + 8) as f64 * u * (z * r + r * r) + 1e-30;
        if z < FAR && s.is_finite() { ((s - error) as f32).next_down() } else { f32::NEG_INFINITY }
    }
}

/// Keeps a candidate if it is among the `top` nearest so far.
fn keep(best: &mut BinaryHeap<Candidate>, candidate: Candidate, top: usize) {
    if best.len() < top {
        best.push(candidate);
    } else if let Some(mut last) = best.peek_mut()
        && candidate < *last
    {
        *last = candidate;
    }
}

/// The `top` nearest of the lists of several parts, nearest first, in a list no longer than needed.
fn merged<'h>(parts: impl Iterator<Item = &'h BinaryHeap<Candidate>>, top: usize) -> Vec<(usize, f64)> {
    let mut all: Vec<Candidate> = parts.flatten().copied().collect();
    all.sort_unstable();
    all.iter().take(top).map(|&Candidate(key, i)| (i, key)).collect()
}

/// Rows prepared for tiles.
#[derive(Default)]
struct Packed {
    /// `x̂` `[n, d]`
    rows: Array2<f32>,
    /// `h` `[n]`
    halves: Vec<f32>,
    /// `‖x̂‖` `[n]`, and the largest of them.
    norms: Vec<f64>,
    largest: f64,
}

impl Packed {
    fn pack<T: Real>(&mut self, items: &Items<T>, rows: ArrayView2<T>) {
        if self.rows.dim() != rows.dim() {
            self.rows = Array2::zeros(rows.dim());
        }
        self.norms.clear();
        for (mut packed, row) in self.rows.axis_iter_mut(Axis(0)).zip(rows.rows()) {
            let norm = items.centred_norm(row);
            let scale = match items.metric {
                Metric::Euclidean => 1.0 / items.radius,
                Metric::Cosine if norm > 0.0 => 1.0 / norm,
                Metric::Cosine => 0.0,
            };
            self.norms.push(norm * scale);
            let scale = if norm * scale < FAR { scale } else { 0.0 };
            let centred = row.iter().zip(&items.centre);
            packed.iter_mut().zip(centred).for_each(|(p, (x, c))| *p = ((x.wide() - c) * scale) as f32);
        }
        let half = |norm: &f64| if items.metric == Metric::Cosine { 0.0 } else { (0.5 * norm * norm) as f32 };
        self.halves = self.norms.iter().map(half).collect();
        self.largest = self.norms.iter().copied().fold(0.0, f64::max);
    }
}

vectorized! {
    /// The scores `s = dots − halves` that are not below `least`, with their places.
    fn at_least<FMA, 'a>(dots: &'a [f32], halves: &'a [f32], least: f32, found: &'a mut Vec<(f32, usize)>) {
        const WIDTH: usize = 32;
        for (c, (dots, halves)) in dots.chunks(WIDTH).zip(halves.chunks(WIDTH)).enumerate() {
            let mut any = 0u32;
            for (dot, half) in dots.iter().zip(halves) {
                any |= u32::from(dot - half >= least);
            }
            if any != 0 {
                for (j, (dot, half)) in dots.iter().zip(halves).enumerate() {
                    let score = dot - half;
                    if score >= least {
                        found.push((score, c * WIDTH + j));
                    }
                }
            }
        }
    }
}

/// Bytes that a search of rows of `d` columns for `top` each takes beside its result.
pub(crate) fn search_bytes(d: usize, top: usize) -> u64 {
    let of_thread = 4 * (QUERIES * ITEMS + (QUERIES + ITEMS) * d) + 32 * QUERIES * top;
    (rayon::current_num_threads() * of_thread) as u64
}

/// Refuses rows of other widths, or with numbers that are not finite.
pub(crate) fn check_rows(what: &str, x: ArrayView2<f32>, d: Option<usize>) -> Result<()> {
    let (n, width) = x.dim();
    fail_if!(n == 0 || width == 0, "the {what} are empty: {n} rows of {width} columns");
    if let Some(d) = d {
        fail_if!(width != d, "the {what} have {width} columns, but the items have {d}");
    }
    let odd = (0..n).into_par_iter().find_first(|&i| x.row(i).iter().any(|v| !v.is_finite()));
    if let Some(i) = odd {
        fail_if!(true, "row {} of the {what} (counted from 1) holds a number that is not finite", i + 1);
    }
    Ok(())
}
