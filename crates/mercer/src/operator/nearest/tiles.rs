//! Rows prepared for the search of the nearest, and the tiles of their products.

use crate::operator::Real;
use crate::operator::nearest::bytes::{Block, Bytes, LANES};
use crate::operator::nearest::{Items, Metric};
use crate::simd::vectorized;
use ndarray::{ArrayView2, Axis};
use rayon::prelude::*;
use std::ops::Range;

/// Items after which a thread looks at what it has found.
pub(crate) const ITEMS: usize = 512;

/// Queries and items whose products are in registers at a time.
pub(crate) const GROUP: usize = 6;
pub(crate) const PANEL: usize = 16;

/// Rows prepared for tiles, in groups of `W` whose coordinates lie side by side.
#[derive(Default)]
pub(crate) struct Packed<const W: usize> {
    d: usize,
    /// `x̂` `[groups, d, W]`; rows that fill up the last group are zero.
    pub packed: Vec<f32>,
    /// `h` `[W groups]`; not a number where there is no row.
    halves: Vec<f32>,
    /// `‖x̂‖` `[n]`, and the largest of each [`ITEMS`] of them.
    pub norms: Vec<f64>,
    pub largest: Vec<f64>,
    /// The same as bytes, where they are wanted.
    pub bytes: Option<Bytes<W>>,
}

impl<const W: usize> Packed<W> {
    /// No rows yet; they will be kept as bytes, too, where these are wanted.
    pub fn empty(bytes: bool) -> Self {
        Packed { bytes: bytes.then(Bytes::default), ..Packed::default() }
    }

    pub fn of<T: Real>(items: &Items<T>, rows: ArrayView2<T>, bytes: bool) -> Self {
        let mut packed = Packed::empty(bytes);
        packed.pack(items, rows);
        packed
    }

    pub fn pack<T: Real>(&mut self, items: &Items<T>, rows: ArrayView2<T>) {
        let (n, d) = rows.dim();
        self.d = d;
        self.packed.resize(n.next_multiple_of(W) * d, 0.0);
        self.norms.resize(n, 0.0);
        // Whole groups for each thread.
        let some = ITEMS / W * W;
        let mut bytes: Vec<_> = match &mut self.bytes {
            Some(bytes) => {
                bytes.resize(n, d);
                bytes.parts(some, d).map(Some).collect()
            }
            None => (0..n.div_ceil(some)).map(|_| None).collect(),
        };
        let parts: Vec<_> = rows
            .axis_chunks_iter(Axis(0), some)
            .zip(self.packed.chunks_mut(some * d))
            .zip(self.norms.chunks_mut(some).zip(&mut bytes))
            .collect();
        parts.into_par_iter().for_each(|((rows, packed), (norms, bytes))| {
            let mut one = vec![0.0; d.next_multiple_of(LANES)];
            let mut rounded = vec![0; one.len()];
            packed[rows.nrows() / W * W * d..].fill(0.0);
            for (i, (row, norm)) in rows.rows().into_iter().zip(norms).enumerate() {
                *norm = items.pack_row(row, &mut one[..d]);
                let group = packed[i / W * W * d..][..W * d].as_chunks_mut::<W>().0;
                group.iter_mut().zip(&one).for_each(|(column, v)| column[i % W] = *v);
                if let Some(part) = bytes {
                    Bytes::<W>::put(part, i, d, (&one, *norm), &mut rounded);
                }
            }
        });
        drop(bytes);
        if let Some(bytes) = &mut self.bytes {
            bytes.finish();
        }
        let half = |norm: &f64| if items.metric == Metric::Cosine { 0.0 } else { (0.5 * norm * norm) as f32 };
        self.halves.clear();
        self.halves.extend(self.norms.iter().map(half));
        self.halves.resize(n.next_multiple_of(W), f32::NAN);
        self.largest = self.norms.chunks(ITEMS).map(|norms| norms.iter().copied().fold(0.0, f64::max)).collect();
    }

    /// `x̂` and `h` of the groups of some rows, the first of which begins a group.
    pub fn part(&self, rows: Range<usize>) -> (&[f32], &[f32]) {
        let rows = rows.start..rows.end.next_multiple_of(W);
        (&self.packed[rows.start * self.d..rows.end * self.d], &self.halves[rows])
    }

    /// The same as bytes, where there are some.
    pub fn part_as_bytes(&self, rows: Range<usize>) -> Option<Block<'_>> {
        let rows = rows.start..rows.end.next_multiple_of(W);
        let columns = self.d.div_ceil(4);
        self.bytes.as_ref().map(|bytes| Block {
            words: &bytes.words[rows.start * columns..rows.end * columns],
            scales: &bytes.scales[rows.clone()],
            offsets: &bytes.offsets[rows.clone()],
            halves: &self.halves[rows],
        })
    }
}

vectorized! {
    /// `packed = (row − centre)·scale`, `[d]` each.
    pub(crate) fn centred<FMA, 'a, T: Real>(row: &'a [T], centre: &'a [f64], scale: f64, packed: &'a mut [f32]) {
        for (p, (x, c)) in packed.iter_mut().zip(row.iter().zip(centre)) {
            *p = ((x.wide() - c) * scale) as f32;
        }
    }
}

vectorized! {
    /// The scores `s = ẑ·x̂ − h` that are not below `least` `[GROUP groups]`, with the item, for each query. `z` is `[groups, d, GROUP]`, `x`
    /// `[panels, d, PANEL]` and `halves` `[PANEL panels]`.
    pub(crate) fn at_least<FMA, 'a>(z: &'a [f32], x: &'a [f32], halves: &'a [f32], least: &'a [f32], found: &'a mut [Vec<(f32, usize)>]) {
        let (least, halves) = (least.as_chunks::<GROUP>().0, halves.as_chunks::<PANEL>().0);
        let (group, panel) = (z.len() / least.len().max(1), x.len() / halves.len().max(1));
        for (p, (x, halves)) in x.chunks_exact(panel.max(1)).zip(halves).enumerate() {
            let groups = z.chunks_exact(group.max(1)).zip(least).zip(found.as_chunks_mut::<GROUP>().0);
            for ((z, least), found) in groups {
                let mut scores = [[0f32; PANEL]; GROUP];
                for (x, z) in x.as_chunks::<PANEL>().0.iter().zip(z.as_chunks::<GROUP>().0) {
                    for (scores, z) in scores.iter_mut().zip(z) {
                        for (score, x) in scores.iter_mut().zip(x) {
                            *score = if FMA { z.mul_add(*x, *score) } else { z * x + *score };
                        }
                    }
                }
                for ((scores, least), found) in scores.iter().zip(least).zip(found) {
                    let mut any = 0u32;
                    for (score, half) in scores.iter().zip(halves) {
                        any |= u32::from(score - half >= *least);
                    }
                    if any != 0 {
                        let all = scores.iter().zip(halves).map(|(score, half)| score - half).enumerate();
                        found.extend(all.filter(|(_, s)| s >= least).map(|(j, s)| (s, p * PANEL + j)));
                    }
                }
            }
        }
    }
}
