//! The rows nearest to given rows: tiles of dot products in single precision choose candidates, double precision decides.
//!
//! A tile says of a pair no more than a number with a bound of its error. Whoever may be among the nearest by that bound is compared
//! in f64, so that the answer is that of comparing all pairs in f64, whatever the tiles and the number of threads. Where the CPU is fast with bytes, tiles are of
//! bytes first, with a larger bound, and of f32 where that leaves too many.
//!
//! Items are prepared once for all queries. Products of six queries with sixteen items are compared with the queries' thresholds in
//! registers and never stored (`nearest_tiles.rs`). On a CPU with AVX-512 VNNI rows are rounded to bytes first (`nearest_bytes.rs`); where that
//! leaves more than one pair in 64, f32 follows. Candidates are compared in f64, ties are ordered by row.

pub(crate) mod bytes;
pub(crate) mod tiles;

use crate::linalg::matmul_into;
use crate::operator::Real;
use crate::operator::nearest::tiles::{GROUP, ITEMS, PANEL, Packed, at_least, centred};
use crate::operator::tile::workspace::ranges;
use crate::{Progress, Result, fail_if};
use faer::{Accum, Par};
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut1, Axis, Zip, aview1, s};
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

/// Queries that a thread compares with an item while it is in cache.
const QUERIES: usize = 256;

/// Bytes of items that are prepared at a time, for all queries.
const ROUND: usize = 32 << 20;

/// Bytes of keys that a thread puts in order at a time, and queries at most.
const RANKED: usize = 16 << 20;
const MOST_RANKED: usize = 32;

/// Rows that a thread passes over at a time.
const PASS: usize = 4096;

/// A query so many radii away is compared with every item: f32 overflows there.
const FAR: f64 = 1e15;

/// Queries from which on items are prepared as bytes, too.
const BYTES_FROM: usize = 64;

/// One in so many pairs may be left by bytes beside those that are to be expected; where more are, f32 tells them apart faster than f64 does.
const LEFT_BY_BYTES: usize = 64;

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

/// Queries that one thread compares with a part of the items, and the nearest that it has found.
struct Task {
    rows: Range<usize>,
    /// Which of the parts of every round.
    part: usize,
    best: Vec<BinaryHeap<Candidate>>,
}

/// Items of `d` columns that are prepared at a time.
fn round_of(d: usize) -> usize {
    (ROUND / (4 * d.max(1))).next_multiple_of(ITEMS)
}

/// Rows `[n, d]` to be searched.
///
/// The key of a pair, the smaller the nearer, is `‖x − z‖²`, or the cosine with a minus sign. A tile computes
/// `s = ẑ·x̂ − h(x)` with `x̂ = (x − c)/R`, `h = ‖x̂‖²/2` about the mean c with all `‖x̂‖ ≤ 1`, or with `x̂ = x/‖x‖`, `h = 0`:
/// `s = ‖ẑ‖²/2 − key/(2R²)`, or `s = −key`.
pub(crate) struct Items<'a, T> {
    x: ArrayView2<'a, T>,
    pub(crate) metric: Metric,
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

    /// `x̂` of a row into `packed` `[d]`, and its norm.
    pub(crate) fn pack_row(&self, row: ArrayView1<T>, packed: &mut [f32]) -> f64 {
        let norm = self.centred_norm(row);
        let scale = match self.metric {
            Metric::Euclidean => 1.0 / self.radius,
            Metric::Cosine if norm > 0.0 => 1.0 / norm,
            Metric::Cosine => 0.0,
        };
        let kept = if norm * scale < FAR { scale } else { 0.0 };
        match row.to_slice() {
            Some(row) => centred(row, &self.centre, kept, packed),
            None => packed
                .iter_mut()
                .zip(row.iter().zip(&self.centre))
                .for_each(|(p, (x, c))| *p = ((x.wide() - c) * kept) as f32),
        }
        norm * scale
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
        let (n, d) = self.x.dim();
        let blocks = ranges(queries.nrows(), QUERIES);
        let parts = (TASKS * rayon::current_num_threads()).div_ceil(blocks.len().max(1));
        let task =
            |rows: &Range<usize>, part| Task { rows: rows.clone(), part, best: vec![BinaryHeap::new(); rows.len()] };
        let mut tasks: Vec<Task> =
            blocks.iter().flat_map(|rows| (0..parts).map(move |part| task(rows, part))).collect();
        let by_bytes = queries.nrows() >= BYTES_FROM && bytes::are_fast(d);
        let mut x = Packed::<PANEL>::empty(by_bytes);
        let rounds = ranges(n, round_of(d));
        let (done, all) = (Mutex::new(0), tasks.len() * rounds.len());
        for round in &rounds {
            x.pack(self, self.x.slice(s![round.clone(), ..]));
            let strips = ranges(round.len(), round.len().div_ceil(parts).next_multiple_of(ITEMS));
            tasks.par_iter_mut().for_each(|task| {
                if let Some(strip) = strips.get(task.part) {
                    self.block(queries, (&x, round.start), strip.clone(), task, (top, others));
                }
                let mut done = done.lock().expect("no panic");
                *done += 1;
                progress.step("nearest neighbours", *done, all, "");
            });
        }
        let list = |of_block: &[Task], q: usize| merged(of_block.iter().map(|task| &task.best[q]), top);
        tasks.chunks(parts).flat_map(|of| (0..of[0].rows.len()).map(move |q| list(of, q))).collect()
    }

    /// Looks for the nearest to the queries of a task among the items `strip` of those prepared, the first of which is row `start`.
    fn block(
        &self,
        queries: ArrayView2<T>,
        (x, start): (&Packed<PANEL>, usize),
        strip: Range<usize>,
        Task { rows, best, .. }: &mut Task,
        (top, others): (usize, bool),
    ) {
        let some = queries.slice(s![rows.clone(), ..]);
        let mut z = Packed::<GROUP>::of(self, some, x.bytes.is_some());
        let mut bytes = z.bytes.take().map(|bytes| bytes.unsigned());
        // Queries that only fill up a group find nothing.
        let mut least = vec![f32::INFINITY; rows.len().next_multiple_of(GROUP)];
        let mut found: Vec<Vec<(f32, usize)>> = vec![vec![]; least.len()];
        for items in ranges(strip.len(), ITEMS) {
            let items = strip.start + items.start..strip.start + items.end;
            let largest = x.largest[items.start / ITEMS];
            // What rounding to bytes adds to the error of f32.
            let left_out = bytes.as_ref().zip(x.bytes.as_ref()).map(|(z, x)| (z, x.largest[items.start / ITEMS]));
            let threshold = |best: &BinaryHeap<Candidate>, q: usize| {
                let more = left_out.map_or(0.0, |(z_bytes, e)| z.norms[q] * e + z_bytes.errors[q] * (largest + e));
                self.threshold(best, top, z.norms[q], largest, more)
            };
            best.iter().enumerate().for_each(|(q, best)| least[q] = threshold(best, q));
            match (left_out, x.part_as_bytes(items.clone())) {
                (Some((z, _)), Some(x)) => bytes::at_least(z, x, &least, &mut found),
                _ => {
                    let (near, halves) = x.part(items.clone());
                    at_least(&z.packed, near, halves, &least, &mut found);
                }
            }
            // Of items in any order, the nearest so far are `top` of all before; bytes may leave that twice, and a few.
            let expected = 2 * top / (items.start - strip.start).div_ceil(ITEMS).max(1);
            let left = found.iter().map(Vec::len).sum::<usize>();
            let few = best.iter().any(|best| best.len() < top)
                || left <= rows.len() * (expected + items.len() / LEFT_BY_BYTES);
            for (q, (best, found)) in best.iter_mut().zip(&mut found).enumerate() {
                if found.len() > top && top > 0 {
                    // Those that are probably the nearest first: they raise the threshold for the others.
                    found.select_nth_unstable_by(top - 1, |a, b| b.0.total_cmp(&a.0));
                }
                let mut least = least[q];
                for (score, i) in found.drain(..) {
                    let i = start + items.start + i;
                    if score < least || others && i == rows.start + q {
                        continue;
                    }
                    keep(best, Candidate(self.key(some.row(q), i), i), top);
                    least = threshold(best, q);
                }
            }
            if !few {
                bytes = None;
            }
        }
    }

    /// Of each of `queries` `[m, d]`, what `of` makes of all items in their order, nearest first; of equally near ones, those with the smaller row first.
    ///
    /// Keys are those of tiles in f64, less what all items of a query share: `h(x) − ẑ·x̂`.
    pub fn ranked<R: Send>(&self, queries: ArrayView2<T>, of: impl Fn(usize, &[usize]) -> R + Sync) -> Vec<R> {
        let n = self.x.nrows();
        let few = (RANKED / (8 * n.max(1))).clamp(1, MOST_RANKED);
        let of_block = |rows: Range<usize>| -> Vec<R> {
            let (z, _) = self.wide(queries.slice(s![rows.clone(), ..]));
            let mut keys = Array2::<f64>::zeros((rows.len(), n));
            for items in ranges(n, ITEMS) {
                let (x, halves) = self.wide(self.x.slice(s![items.clone(), ..]));
                let mut tile = keys.slice_mut(s![.., items]);
                tile.assign(&aview1(&halves));
                matmul_into(tile, Accum::Add, z.view(), x.t(), -1.0, Par::Seq);
            }
            let mut order: Vec<usize> = (0..n).collect();
            let in_order = |(q, keys): (usize, ArrayView1<f64>)| {
                order.sort_unstable_by(|&a, &b| keys[a].total_cmp(&keys[b]).then(a.cmp(&b)));
                of(q, &order)
            };
            rows.zip(keys.rows()).map(in_order).collect()
        };
        ranges(queries.nrows(), few).into_par_iter().map(of_block).flatten().collect()
    }

    /// `x̂` `[n, d]` and `h` `[n]` in f64.
    fn wide(&self, rows: ArrayView2<T>) -> (Array2<f64>, Vec<f64>) {
        let mut wide = Array2::zeros(rows.dim());
        let row = |(mut wide, row): (ArrayViewMut1<f64>, ArrayView1<T>)| {
            let norm = self.centred_norm(row);
            let scale = match self.metric {
                Metric::Euclidean => self.radius,
                Metric::Cosine => norm,
            };
            let scale = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            Zip::from(&mut wide).and(row).and(&aview1(&self.centre)).for_each(|w, x, c| *w = (x.wide() - c) * scale);
            if self.metric == Metric::Cosine { 0.0 } else { 0.5 * (norm * scale).powi(2) }
        };
        let halves = wide.rows_mut().into_iter().zip(rows.rows()).map(row).collect();
        (wide, halves)
    }

    /// The least s that an item among the `top` can have, for a query with `‖ẑ‖ = z` and items with `‖x̂‖ ≤ r`.
    ///
    /// In f32 with unit roundoff u, rounded coordinates, d products and their sum are within `(d+2)u z r` of `ẑ·x̂`, and h within
    /// `2u r²`; `(d+8)u(z r + r²)` is more than both and the rounding of s. With bytes, sums are exact, their error is `more`, and what is rounded are a sum of at most
    /// `4 z r` (no rounding moves a row by more than its norm), its products with two scales and s: 16 more than covers it.
    fn threshold(&self, best: &BinaryHeap<Candidate>, top: usize, z: f64, r: f64, more: f64) -> f32 {
        let Some(&Candidate(key, _)) = best.peek().filter(|_| best.len() >= top) else { return f32::NEG_INFINITY };
        let s = match self.metric {
            Metric::Euclidean => 0.5 * (z * z - key / (self.radius * self.radius)),
            Metric::Cosine => -key,
        };
        let u = f64::from(f32::EPSILON) / 2.0;
        let error = (self.x.ncols() + 24) as f64 * u * (z * r + r * r) + more + 1e-30;
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

/// Bytes that a search of `n` rows of `d` columns for `top` each takes beside its result.
pub(crate) fn search_bytes(n: usize, d: usize, top: usize) -> u64 {
    let of_thread = 4 * QUERIES * d + (16 * ITEMS + 32 * top) * QUERIES;
    (rayon::current_num_threads() * of_thread + 5 * round_of(d).min(n) * d) as u64
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
