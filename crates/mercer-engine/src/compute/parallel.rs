//! Splits work over threads in a way that depends on shapes alone.

use rayon::prelude::*;
use std::marker::PhantomData;

/// Work (roughly in floating-point operations) below which one thread is faster than several.
const PARALLEL_WORK: usize = 100_000;

/// Rows of a batch that one task handles. A block of activations of this height stays in cache.
pub(super) const ROWS: usize = 128;

/// Elements of a flat array that one task handles.
pub(super) const CHUNK: usize = 16_384;

/// Calls `f` for `0..tasks`, in parallel if `work` is large enough.
pub(super) fn for_each(tasks: usize, work: usize, f: impl Fn(usize) + Sync + Send) {
    if tasks < 2 || work < PARALLEL_WORK {
        (0..tasks).for_each(f);
    } else {
        (0..tasks).into_par_iter().for_each(f);
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
pub(super) fn block(i: usize, size: usize, len: usize) -> std::ops::Range<usize> {
    i * size..((i + 1) * size).min(len)
}

/// A writable slice that is shared by parallel tasks, each of which takes a disjoint part.
pub(super) struct Parts<'a> {
    start: *mut f32,
    len: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: `part` is the only access, and its callers promise that parts taken at the same time are disjoint.
unsafe impl Sync for Parts<'_> {}

impl<'a> Parts<'a> {
    pub(super) fn new(slice: &'a mut [f32]) -> Self {
        Parts { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The part `range`.
    ///
    /// # Safety
    /// No other part that is in use may overlap `range`.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn part(&self, range: std::ops::Range<usize>) -> &'a mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range lies within the slice, and the caller promises that no other part overlaps it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }

    /// `range` clamped to the slice.
    pub(super) fn clamp(&self, range: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        range.start.min(self.len)..range.end.min(self.len)
    }

    /// A pointer to element `at`. The caller accesses only elements that no other task accesses.
    pub(super) fn pointer(&self, at: usize) -> *mut f32 {
        assert!(at <= self.len, "{at} of {}", self.len);
        self.start.wrapping_add(at)
    }
}
