//! Products of rows that are rounded to bytes, with a bound of what the rounding changes: a CPU with AVX-512 VNNI multiplies four times as many bytes as
//! numbers in f32.
//!
//! A row is `x̂ = s b + e` with bytes b, `s = max|x̂|/127` and the rest e. For two rows,
//! `|ẑ·x̂ − s_z s_x b_z·b_x| = |ẑ·e_x + e_z·(x̂ − e_x)| ≤ ‖ẑ‖‖e_x‖ + ‖e_z‖(‖x̂‖ + ‖e_x‖)`.

use crate::operator::nearest::tiles::{GROUP, ITEMS, PANEL};
use crate::simd::vectorized;

/// Columns at most, so that sums of products fit into 32 bits.
const MOST_COLUMNS: usize = 32_768;

/// Whether this CPU multiplies bytes of so many columns.
pub(crate) fn are_fast(columns: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let there = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni");
        there && columns <= MOST_COLUMNS
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = columns;
        false
    }
}

/// Rows as bytes, in groups of `W` whose words of four coordinates lie side by side.
#[derive(Default)]
pub(crate) struct Bytes<const W: usize> {
    /// `b` `[groups, ⌈d/4⌉, W]`, four signed bytes in a word; those that fill up are zero.
    pub words: Vec<u32>,
    /// `s` `[W groups]`; not a number where there is no row.
    pub scales: Vec<f32>,
    /// `−128 Σ b` `[W groups]`
    pub offsets: Vec<i32>,
    /// `‖e‖` `[n]`, and the largest of each [`ITEMS`] of them.
    pub errors: Vec<f64>,
    pub largest: Vec<f64>,
}

/// What is written for a part of the rows, whole groups: words, scales, offsets and errors.
pub(crate) type Part<'a> = (&'a mut [u32], &'a mut [f32], &'a mut [i32], &'a mut [f64]);

impl<const W: usize> Bytes<W> {
    /// Room for `n` rows of `d` columns.
    pub fn resize(&mut self, n: usize, d: usize) {
        let padded = n.next_multiple_of(W);
        self.words.clear();
        self.words.resize(padded * d.div_ceil(4), 0);
        self.scales.clear();
        self.scales.resize(padded, f32::NAN);
        self.offsets.clear();
        self.offsets.resize(padded, 0);
        self.errors.resize(n, 0.0);
    }

    /// Parts of `some` rows, a multiple of `W`.
    pub fn parts(&mut self, some: usize, d: usize) -> impl Iterator<Item = Part<'_>> {
        let words = self.words.chunks_mut((some * d.div_ceil(4)).max(1));
        let rest = self.offsets.chunks_mut(some).zip(self.errors.chunks_mut(some));
        words
            .zip(self.scales.chunks_mut(some))
            .zip(rest)
            .map(|((words, scales), (offsets, errors))| (words, scales, offsets, errors))
    }

    /// Row `i` of a part, from `x̂` `[d]`, filled up with zeros to a multiple of [`LANES`], and its norm. `bytes` is as long as `x`, and is overwritten.
    pub fn put(
        (words, scales, offsets, errors): &mut Part<'_>,
        i: usize,
        d: usize,
        (x, norm): (&[f32], f64),
        bytes: &mut [i8],
    ) {
        let mut found = Rounded::default();
        round(x, bytes, &mut found);
        let group = &mut words[i / W * W * d.div_ceil(4)..];
        for (c, four) in bytes.as_chunks::<4>().0.iter().take(d.div_ceil(4)).enumerate() {
            group[c * W + i % W] = u32::from_le_bytes(four.map(|b| b as u8));
        }
        // A row with a number that is not finite is near nothing.
        scales[i] = if norm.is_finite() { found.scale } else { f32::NAN };
        (offsets[i], errors[i]) = (-128 * found.sum, found.error.sqrt());
    }

    /// After all rows are there.
    pub fn finish(&mut self) {
        self.largest = self.errors.chunks(ITEMS).map(|errors| errors.iter().copied().fold(0.0, f64::max)).collect();
    }
}

/// Numbers that are rounded side by side.
pub(crate) const LANES: usize = 16;

/// How a row was rounded: s, Σ b and ‖e‖².
#[derive(Default)]
struct Rounded {
    scale: f32,
    sum: i32,
    error: f64,
}

vectorized! {
    /// `b = round(x/s)` with `s = max|x|/127`, for `x` in whole lanes.
    fn round<FMA, 'a>(x: &'a [f32], bytes: &'a mut [i8], found: &'a mut Rounded) {
        /// A sum with this number is rounded to a whole number.
        const WHOLE: f32 = 12_582_912.0;
        let x = x.as_chunks::<LANES>().0;
        let mut most = [0f32; LANES];
        for x in x {
            for (most, x) in most.iter_mut().zip(x) {
                *most = if x.abs() > *most { x.abs() } else { *most };
            }
        }
        let most = most.into_iter().fold(0f32, f32::max);
        let (scale, inverse) = if most > 0.0 { (most / 127.0, 127.0 / most) } else { (0.0, 0.0) };
        let (mut sums, mut errors) = ([0i32; LANES], [0f64; LANES]);
        for (x, bytes) in x.iter().zip(bytes.as_chunks_mut::<LANES>().0) {
            for l in 0..LANES {
                let whole = ((x[l] * inverse).clamp(-127.0, 127.0) + WHOLE) - WHOLE;
                let byte = whole as i32;
                bytes[l] = byte as i8;
                sums[l] += byte;
                let rest = f64::from(x[l]) - f64::from(byte) * f64::from(scale);
                errors[l] += rest * rest;
            }
        }
        *found = Rounded { scale, sum: sums.iter().sum(), error: errors.iter().sum() };
    }
}

impl Bytes<GROUP> {
    /// Adds 128 to every byte, as the instruction wants one of its factors: the other's offset takes it off again.
    pub fn unsigned(mut self) -> Self {
        self.words.iter_mut().for_each(|word| *word ^= 0x8080_8080);
        self
    }
}

/// A block of items: words `[panels, ⌈d/4⌉, PANEL]`, scales, offsets and `h` `[PANEL panels]`.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub words: &'a [u32],
    pub scales: &'a [f32],
    pub offsets: &'a [i32],
    pub halves: &'a [f32],
}

/// The scores `s_z s_x b_z·b_x − h` that are not below `least` `[GROUP groups]`, with the item, for each query. Only where [`are_fast`].
pub(crate) fn at_least(z: &Bytes<GROUP>, x: Block<'_>, least: &[f32], found: &mut [Vec<(f32, usize)>]) {
    #[cfg(target_arch = "x86_64")]
    if are_fast(1) {
        // SAFETY: the CPU has the features that the function is compiled for.
        return unsafe { vnni::at_least(z, x, least, found) };
    }
    plain(z, x, least, found);
}

/// [`at_least`] by plain loops.
fn plain(z: &Bytes<GROUP>, x: Block<'_>, least: &[f32], found: &mut [Vec<(f32, usize)>]) {
    let (columns, panels) = (z.words.len() / least.len().max(1), x.scales.len() / PANEL);
    for p in 0..panels {
        for (q, (least, found)) in least.iter().zip(found.iter_mut()).enumerate() {
            for j in 0..PANEL {
                let mut sum = x.offsets[p * PANEL + j];
                for c in 0..columns {
                    let a = z.words[(q / GROUP * columns + c) * GROUP + q % GROUP].to_le_bytes();
                    let b = x.words[(p * columns + c) * PANEL + j].to_le_bytes();
                    sum += a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(b as i8)).sum::<i32>();
                }
                let at = p * PANEL + j;
                let score = sum as f32 * x.scales[at] * z.scales[q] - x.halves[at];
                if score >= *least {
                    found.push((score, at));
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use super::{Block, Bytes, GROUP, PANEL};
    use std::arch::x86_64::*;

    /// Panels whose sums are in registers at a time, with those of a group of queries.
    const SIDE: usize = 2;

    /// # Safety
    /// The CPU has these instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub fn at_least(z: &Bytes<GROUP>, x: Block<'_>, least: &[f32], found: &mut [Vec<(f32, usize)>]) {
        let (least, scales) = (least.as_chunks::<GROUP>().0, z.scales.as_chunks::<GROUP>().0);
        let columns = z.words.len() / (GROUP * least.len().max(1));
        let (words, panels) = (x.words.as_chunks::<PANEL>().0, x.scales.len() / PANEL);
        let mut first = 0;
        while first < panels {
            let side = SIDE.min(panels - first);
            let of = |p: usize| &words[p * columns..(p + 1) * columns];
            let groups = z.words.as_chunks::<GROUP>().0.chunks_exact(columns).zip(least.iter().zip(scales));
            for ((z, (least, scales)), found) in groups.zip(found.as_chunks_mut::<GROUP>().0) {
                if side == SIDE {
                    tile([of(first), of(first + 1)], first, z, x, (least, scales), found);
                } else {
                    tile([of(first)], first, z, x, (least, scales), found);
                }
            }
            first += side;
        }
    }

    /// A group of queries and the panels from `first` on.
    ///
    /// # Safety
    /// The CPU has these instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn tile<const N: usize>(
        panels: [&[[u32; PANEL]]; N],
        first: usize,
        z: &[[u32; GROUP]],
        x: Block<'_>,
        (least, scales): (&[f32; GROUP], &[f32; GROUP]),
        found: &mut [Vec<(f32, usize)>; GROUP],
    ) {
        let mut sums = [[_mm512_setzero_si512(); N]; GROUP];
        for (p, panel) in panels.iter().enumerate() {
            let offsets: &[i32; PANEL] = x.offsets[(first + p) * PANEL..].first_chunk().expect("whole panels");
            let offset = load(offsets.map(i32::cast_unsigned));
            sums.iter_mut().for_each(|sums| sums[p] = offset);
            debug_assert_eq!(panel.len(), z.len());
        }
        for (c, z) in z.iter().enumerate() {
            let x: [__m512i; N] = std::array::from_fn(|p| load(panels[p][c]));
            for (sums, z) in sums.iter_mut().zip(z) {
                let z = _mm512_set1_epi32(z.cast_signed());
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = _mm512_dpbusd_epi32(*sum, z, x);
                }
            }
        }
        for p in 0..N {
            let at = (first + p) * PANEL;
            let [of_item, half] = [x.scales, x.halves].map(|all| {
                let some: &[f32; PANEL] = all[at..].first_chunk().expect("whole panels");
                // SAFETY: 64 bytes each.
                unsafe { std::mem::transmute::<[f32; PANEL], __m512>(*some) }
            });
            for (q, sums) in sums.iter().enumerate() {
                let product = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[p]), of_item);
                let score = _mm512_sub_ps(_mm512_mul_ps(product, _mm512_set1_ps(scales[q])), half);
                let mut there = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(score, _mm512_set1_ps(least[q]));
                if there != 0 {
                    // SAFETY: 64 bytes each.
                    let score = unsafe { std::mem::transmute::<__m512, [f32; PANEL]>(score) };
                    while there != 0 {
                        let j = there.trailing_zeros() as usize;
                        found[q].push((score[j], at + j));
                        there &= there - 1;
                    }
                }
            }
        }
    }

    /// # Safety
    /// The CPU has these instructions.
    #[target_feature(enable = "avx512f")]
    fn load(words: [u32; PANEL]) -> __m512i {
        // SAFETY: 64 bytes each.
        unsafe { std::mem::transmute::<[u32; PANEL], __m512i>(words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Rows of `d` columns of different sizes, as they are and as bytes.
    fn rows<const W: usize>(n: usize, d: usize, seed: u64) -> (Vec<Vec<f32>>, Bytes<W>) {
        let mut rng = Rng::new(seed);
        let x: Vec<Vec<f32>> =
            (0..n).map(|i| (0..d).map(|_| (rng.normal() / (1 + i % 5) as f64) as f32).collect()).collect();
        let mut bytes = Bytes::default();
        bytes.resize(n, d);
        for (first, mut part) in bytes.parts(ITEMS / W * W, d).enumerate() {
            let rows = x.iter().skip(first * (ITEMS / W * W)).take(part.3.len());
            for (i, x) in rows.enumerate() {
                let mut filled = x.clone();
                filled.resize(d.next_multiple_of(LANES), 0.0);
                Bytes::<W>::put(&mut part, i, d, (&filled, 1.0), &mut vec![0; filled.len()]);
            }
        }
        bytes.finish();
        (x, bytes)
    }

    /// Scores are within the bound of the products in f64; vector instructions give those of plain loops.
    #[test]
    fn scores_are_within_their_bound() {
        for (n, d) in [(37, 1), (48, 7), (600, 64), (5, 130)] {
            let ((x, items), (z, queries)) = (rows::<PANEL>(n, d, 1), rows::<GROUP>(11, d, 2));
            let errors = queries.errors.clone();
            let queries = queries.unsigned();
            let halves: Vec<f32> = (0..items.scales.len()).map(|i| 0.01 * i as f32).collect();
            let Bytes { words, scales, offsets, .. } = &items;
            let block = Block { words, scales, offsets, halves: &halves };
            let least = vec![f32::NEG_INFINITY; queries.scales.len()];
            let mut all = [vec![vec![]; least.len()], vec![vec![]; least.len()]];
            plain(&queries, block, &least, &mut all[0]);
            at_least(&queries, block, &least, &mut all[1]);
            let norm = |x: &[f32]| x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            for (q, z) in z.iter().enumerate() {
                assert_eq!(all[0][q], all[1][q]);
                assert_eq!(all[0][q].len(), n);
                for &(score, i) in &all[0][q] {
                    let exact: f64 = z.iter().zip(&x[i]).map(|(z, x)| f64::from(*z) * f64::from(*x)).sum();
                    let bound = norm(z) * items.errors[i] + errors[q] * (norm(&x[i]) + items.errors[i]);
                    let off = (f64::from(score) - (exact - f64::from(halves[i]))).abs();
                    assert!(off <= bound + 1e-5, "{off} {bound}");
                    assert!(items.errors[i] <= items.largest[i / ITEMS]);
                }
            }
            // Some of them, by a threshold.
            let least = vec![0.1; least.len()];
            let mut some = vec![vec![]; least.len()];
            at_least(&queries, block, &least, &mut some);
            for (some, all) in some.iter().zip(&all[0]) {
                assert_eq!(*some, all.iter().copied().filter(|(s, _)| *s >= 0.1).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn rows_of_zeros_and_of_numbers_that_are_not_finite() {
        let mut bytes = Bytes::<PANEL>::default();
        bytes.resize(2, 3);
        for mut part in bytes.parts(PANEL, 3) {
            let mut bytes = [0; LANES];
            Bytes::<PANEL>::put(&mut part, 0, 3, (&[0.0; LANES], 0.0), &mut bytes);
            Bytes::<PANEL>::put(&mut part, 1, 3, (&[f32::NAN; LANES], f64::NAN), &mut bytes);
        }
        assert_eq!((bytes.scales[0], bytes.errors[0], bytes.offsets[0]), (0.0, 0.0, 0));
        assert!(bytes.scales[1].is_nan() && bytes.scales[2].is_nan());
    }
}
