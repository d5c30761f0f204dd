//! Splits work over threads in a way that depends on shapes alone. A task owns the slices that it writes.

use ndarray::{ArrayViewMut2, Axis};
use rayon::prelude::*;
use std::ops::Range;

/// Work (roughly in floating-point operations) below which one thread is faster than several.
const PARALLEL_WORK: usize = if cfg!(miri) { 0 } else { 100_000 }; // Miri looks for races, so it gets threads.

/// Rows of a batch that one task handles. A block of activations of this height stays in cache.
pub(super) const ROWS: usize = 128;

/// Elements of a flat array that one task handles.
pub(super) const CHUNK: usize = 16_384;

/// Calls `f` with each of `tasks`, in parallel if `work` is large enough.
pub(super) fn for_each<T: Send>(tasks: impl Iterator<Item = T>, work: usize, f: impl Fn(T) + Sync + Send) {
    if work < PARALLEL_WORK {
        return tasks.for_each(f);
    }
    let tasks: Vec<T> = tasks.collect();
    if tasks.len() < 2 {
        tasks.into_iter().for_each(f);
    } else {
        tasks.into_par_iter().for_each(f);
    }
}

/// `f(0), f(1), …, f(tasks − 1)`, in parallel if `work` is large enough.
pub(super) fn map<T: Send>(tasks: usize, work: usize, f: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
    if tasks < 2 || work < PARALLEL_WORK {
        (0..tasks).map(f).collect()
    } else {
        (0..tasks).into_par_iter().map(f).collect()
    }
}

/// Calls `f(i, chunk)` for each chunk of at most `size` elements of `slice`, in parallel if `work` is large enough.
pub(super) fn for_each_chunk(slice: &mut [f32], size: usize, work: usize, f: impl Fn(usize, &mut [f32]) + Sync + Send) {
    if slice.len() <= size || work < PARALLEL_WORK {
        slice.chunks_mut(size.max(1)).enumerate().for_each(|(i, chunk)| f(i, chunk));
    } else {
        slice.par_chunks_mut(size.max(1)).enumerate().for_each(|(i, chunk)| f(i, chunk));
    }
}

/// Block `i` of `0..len`, split into blocks of `size`.
pub(super) fn block(i: usize, size: usize, len: usize) -> Range<usize> {
    i * size..((i + 1) * size).min(len)
}

/// The first `count` pieces of `size` elements, one after the other.
pub(super) fn pieces(mut slice: &mut [f32], size: usize, count: usize) -> impl Iterator<Item = &mut [f32]> {
    (0..count).map(move |_| slice.split_off_mut(..size).expect("the slice holds all pieces"))
}

/// The rows of each of `count` matrices `[m, n]` that follow one another, in blocks of at most `size`: `(j, rows, elements)`.
pub(super) fn row_blocks(
    slice: &mut [f32],
    [count, m, n]: [usize; 3],
    size: usize,
) -> impl Iterator<Item = (usize, Range<usize>, &mut [f32])> {
    pieces(slice, m * n, count).enumerate().flat_map(move |(j, mut matrix)| {
        (0..m.div_ceil(size)).map(move |i| {
            let rows = block(i, size, m);
            let elements = matrix.split_off_mut(..rows.len() * n).expect("the matrix holds all rows");
            (j, rows, elements)
        })
    })
}

/// A matrix cut into blocks of at most `[rows, cols]`, with the ranges of their rows and columns.
pub(super) fn blocks<'a>(
    mut matrix: ArrayViewMut2<'a, f32>,
    [rows, cols]: [usize; 2],
) -> Vec<(Range<usize>, Range<usize>, ArrayViewMut2<'a, f32>)> {
    let (m, n) = matrix.dim();
    let mut all = Vec::with_capacity(m.div_ceil(rows) * n.div_ceil(cols));
    for of_rows in (0..m.div_ceil(rows)).map(|i| block(i, rows, m)) {
        let (mut strip, rest) = matrix.split_at(Axis(0), of_rows.len());
        matrix = rest;
        for of_cols in (0..n.div_ceil(cols)).map(|j| block(j, cols, n)) {
            let (one, rest) = strip.split_at(Axis(1), of_cols.len());
            strip = rest;
            all.push((of_rows.clone(), of_cols, one));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_a_matrix_once() {
        let mut data = vec![0.0; 7 * 5];
        let matrix = ArrayViewMut2::from_shape((7, 5), &mut data).unwrap();
        for (rows, cols, mut one) in blocks(matrix, [3, 2]) {
            assert_eq!(one.dim(), (rows.len(), cols.len()));
            one.indexed_iter_mut().for_each(|((i, j), v)| *v += (5 * (rows.start + i) + cols.start + j) as f32);
        }
        assert!(data.iter().enumerate().all(|(i, v)| *v == i as f32));
    }

    #[test]
    fn row_blocks_cover_all_matrices_once() {
        let mut data = vec![0.0; 2 * 5 * 3];
        for (j, rows, elements) in row_blocks(&mut data, [2, 5, 3], 2) {
            elements.iter_mut().enumerate().for_each(|(i, v)| *v += (15 * j + 3 * rows.start + i) as f32);
        }
        assert!(data.iter().enumerate().all(|(i, v)| *v == i as f32));
        assert_eq!(row_blocks(&mut data, [2, 0, 3], 2).count(), 0);
    }
}
