//! Device memory: one pool for every tensor and matrix.

use super::gpu::{Gpu, lock, words};
use crate::{Error, Result};
use cudarc::driver::{result, sys::CUdeviceptr};
use std::collections::BTreeMap;

/// Blocks that were given back and wait for the next request, by size.
#[derive(Default)]
pub struct Pool {
    free: BTreeMap<usize, Vec<CUdeviceptr>>,
    /// Bytes taken from the driver: in use and waiting.
    taken: usize,
    /// What may be taken at most, where that is less than what there is.
    limit: Option<usize>,
    /// While a graph is recorded: blocks given back since, which belong to the graph.
    recording: Option<BTreeMap<usize, Vec<CUdeviceptr>>>,
}

/// Sizes are rounded up, so that blocks of nearly one size serve each other.
fn rounded(bytes: usize) -> usize {
    let step = if bytes <= 1 << 20 { 512 } else { 2 << 20 };
    bytes.max(1).next_multiple_of(step)
}

/// A free block of at least `size` and at most a quarter more.
fn take(free: &mut BTreeMap<usize, Vec<CUdeviceptr>>, size: usize) -> Option<(CUdeviceptr, usize)> {
    let (&found, blocks) = free.range_mut(size..=size + size / 4).next()?;
    let pointer = blocks.pop();
    if blocks.is_empty() {
        free.remove(&found);
    }
    pointer.map(|p| (p, found))
}

/// Device memory that goes back to the pool when it is dropped. Its contents are whatever was there before.
pub struct Buffer {
    pub(super) gpu: &'static Gpu,
    pub(super) pointer: CUdeviceptr,
    bytes: usize,
    size: usize,
}

impl Buffer {
    /// The device it lies on.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Address of its first byte.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Bytes that were asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a copy from the host; the host's memory is free again when this returns.
    pub fn write<T: Copy>(&mut self, at_bytes: usize, data: &[T]) {
        assert!(
            at_bytes + size_of_val(data) <= self.bytes,
            "{} bytes at {at_bytes} of {}",
            size_of_val(data),
            self.bytes
        );
        if data.is_empty() {
            return;
        }
        self.gpu.bind();
        // SAFETY: the range was checked; the driver stages pageable memory before it returns.
        let queued =
            unsafe { result::memcpy_htod_async(self.pointer + at_bytes as u64, data, self.gpu.stream.cu_stream()) };
        self.gpu.note(queued);
    }

    /// Queues a copy from the host on the second stream, beside the computing one: see `Gpu::copies_after` and
    /// `Gpu::work_after_copies`, which order the two.
    pub fn write_beside<T: Copy>(&mut self, at_bytes: usize, data: &[T]) {
        assert!(at_bytes + size_of_val(data) <= self.bytes, "{} bytes of {}", size_of_val(data), self.bytes);
        self.gpu.bind();
        // SAFETY: as in `write`.
        let queued =
            unsafe { result::memcpy_htod_async(self.pointer + at_bytes as u64, data, self.gpu.copies.cu_stream()) };
        self.gpu.note(queued);
    }

    /// Waits for the device and copies to the host.
    pub fn read<T: Copy>(&self, at_bytes: usize, data: &mut [T]) -> Result<()> {
        let bytes = size_of_val(data);
        assert!(at_bytes + bytes <= self.bytes, "{bytes} bytes at {at_bytes} of {}", self.bytes);
        self.gpu.bind();
        if bytes > 0 {
            // SAFETY: the range was checked, and the stream is waited for before `data` is looked at.
            let queued =
                unsafe { result::memcpy_dtoh_async(data, self.pointer + at_bytes as u64, self.gpu.stream.cu_stream()) };
            self.gpu.note(queued);
        }
        self.gpu.note(self.gpu.stream.synchronize());
        self.gpu.check()
    }

    /// Queues zeros over a range of bytes.
    pub fn zero(&mut self, at_bytes: usize, bytes: usize) {
        assert!(at_bytes + bytes <= self.bytes, "{bytes} bytes at {at_bytes} of {}", self.bytes);
        if bytes > 0 {
            self.gpu.bind();
            // SAFETY: the range was checked.
            let queued = unsafe {
                result::memset_d8_async(self.pointer + at_bytes as u64, 0, bytes, self.gpu.stream.cu_stream())
            };
            self.gpu.note(queued);
        }
    }

    /// Queues a copy of `bytes` between buffers of one device.
    pub fn copy_from(&mut self, at_bytes: usize, other: &Buffer, from_bytes: usize, bytes: usize) {
        assert!(at_bytes + bytes <= self.bytes && from_bytes + bytes <= other.bytes, "copy outside of a buffer");
        if bytes > 0 {
            self.gpu.bind();
            let (to, from) = (self.pointer + at_bytes as u64, other.pointer + from_bytes as u64);
            // SAFETY: both ranges were checked, and two buffers do not overlap.
            self.gpu.note(unsafe { result::memcpy_dtod_async(to, from, bytes, self.gpu.stream.cu_stream()) });
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Queued work may still use the block; whoever gets it next is queued behind that work.
        let mut pool = lock(&self.gpu.pool);
        let pool = &mut *pool;
        pool.recording.as_mut().unwrap_or(&mut pool.free).entry(self.size).or_default().push(self.pointer);
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes on {:?}", self.bytes, self.gpu)
    }
}

impl Gpu {
    /// `bytes` of memory for `what`, which error messages name; `instead` says what would fit.
    pub fn allocate(&'static self, bytes: usize, what: &dyn Fn() -> String, instead: &str) -> Result<Buffer> {
        let size = rounded(bytes);
        let mut pool = lock(&self.pool);
        let pool = &mut *pool;
        let found = pool.recording.as_mut().and_then(|free| take(free, size)).or_else(|| take(&mut pool.free, size));
        if let Some((pointer, size)) = found {
            return Ok(Buffer { gpu: self, pointer, bytes, size });
        }
        self.check()?;
        self.bind();
        let fits = |pool: &Pool| pool.limit.is_none_or(|limit| pool.taken + size <= limit);
        // SAFETY: the block is owned by the buffer that is returned.
        let ask = || unsafe { result::malloc_sync(size) };
        let mut answer = fits(pool).then(ask);
        if !matches!(answer, Some(Ok(_))) {
            // What lies idle in the pool may be just what is missing.
            self.release_idle(pool);
            answer = fits(pool).then(ask);
        }
        match answer {
            Some(Ok(pointer)) => {
                pool.taken += size;
                Ok(Buffer { gpu: self, pointer, bytes, size })
            }
            Some(Err(error)) if error.0 != cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                self.fail(words(error));
                Err(self.check().expect_err("just noted"))
            }
            _ => {
                let free = result::mem_get_info().map_or(0, |(free, _)| free);
                let left = pool.limit.map_or(free, |limit| limit.saturating_sub(pool.taken).min(free));
                Err(Error::DeviceMemory {
                    device: format!("cuda:{}", self.ordinal),
                    what: what(),
                    needed: size as u64,
                    free: left as u64,
                    instead: instead.into(),
                })
            }
        }
    }

    /// Gives idle blocks back to the driver, once nothing queued can use them.
    fn release_idle(&self, pool: &mut Pool) {
        self.note(self.stream.synchronize());
        self.note(self.copies.synchronize());
        for (size, blocks) in std::mem::take(&mut pool.free) {
            for pointer in blocks {
                // SAFETY: the block came from `malloc_sync` and nobody holds it.
                self.note(unsafe { result::free_sync(pointer) });
                pool.taken -= size;
            }
        }
    }

    /// Bytes that are free on the device and all it has; what idles in the pool counts as free.
    pub fn memory(&self) -> (u64, u64) {
        self.bind();
        let (free, total) = self.note(result::mem_get_info()).unwrap_or((0, 0));
        let pool = lock(&self.pool);
        let idle: usize = pool.free.iter().map(|(size, blocks)| size * blocks.len()).sum();
        let free = pool.limit.map_or(free + idle, |limit| (limit + idle).saturating_sub(pool.taken).min(free + idle));
        (free as u64, total as u64)
    }

    /// Takes at most `bytes` from the driver from now on (`None`: as much as there is).
    pub fn limit_memory(&self, bytes: Option<u64>) {
        let mut pool = lock(&self.pool);
        self.bind();
        self.release_idle(&mut pool);
        pool.limit = bytes.map(|b| b as usize);
    }

    /// From now on, blocks that are given back are kept for the graph that is being recorded.
    pub(super) fn keep_for_graph(&self) {
        lock(&self.pool).recording = Some(BTreeMap::new());
    }

    /// Ends [`Gpu::keep_for_graph`]: the blocks that the recorded work uses beside those of living tensors.
    pub(super) fn kept_for_graph(&self) -> Vec<(usize, CUdeviceptr)> {
        let kept = lock(&self.pool).recording.take().unwrap_or_default();
        kept.into_iter().flat_map(|(size, blocks)| blocks.into_iter().map(move |b| (size, b))).collect()
    }

    /// Gives a graph's blocks back to the pool.
    pub(super) fn return_blocks(&self, blocks: &mut Vec<(usize, CUdeviceptr)>) {
        let mut pool = lock(&self.pool);
        for (size, pointer) in blocks.drain(..) {
            pool.free.entry(size).or_default().push(pointer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_by_size_and_not_wasted() {
        let mut free = BTreeMap::from([(1024, vec![1]), (4096, vec![2, 3])]);
        assert_eq!(take(&mut free, 1024), Some((1, 1024)));
        assert_eq!(take(&mut free, 1024), None, "four times the size would be waste");
        assert_eq!(take(&mut free, 3584), Some((3, 4096)));
        assert_eq!(free.len(), 1);
        assert_eq!((rounded(0), rounded(513), rounded((1 << 20) + 1)), (512, 1024, 2 << 20));
    }
}
