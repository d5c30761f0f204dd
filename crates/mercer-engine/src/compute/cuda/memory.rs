//! Device memory: one pool for all tensors and matrices.

use super::gpu::{Gpu, lock, message};
use crate::{Error, Result};
use cudarc::driver::{CudaStream, result, sys::CUdeviceptr};
use std::collections::BTreeMap;

/// Numbers whose every bit pattern is a value and that have no padding: what may be copied to and from a device.
pub trait Plain: Copy + Default + Send + Sync + sealed::Sealed + 'static {}

mod sealed {
    /// Only this file says which numbers are plain.
    pub trait Sealed {}
}

macro_rules! plain {
    ($($type:ty)*) => {
        $(impl sealed::Sealed for $type {}
        impl Plain for $type {})*
    };
}
plain!(u8 u16 i32 u32 u64 f32 f64);

/// Device memory blocks. Free blocks are kept, by size, for the next request.
#[derive(Default)]
pub struct Pool {
    free: BTreeMap<usize, Vec<CUdeviceptr>>,
    /// Bytes allocated from the driver, in use or free.
    allocated: usize,
    /// The most that it was.
    peak: usize,
    /// Largest number of bytes that may be allocated, if set.
    limit: Option<usize>,
    /// While a graph is recorded: the blocks freed since the start of the recording. They belong to the graph.
    recording: Option<BTreeMap<usize, Vec<CUdeviceptr>>>,
}

/// Rounds a size up, so that a block can be reused for requests of similar size.
pub(super) fn rounded(bytes: usize) -> usize {
    let step = if bytes <= 1 << 20 { 512 } else { 2 << 20 };
    bytes.max(1).next_multiple_of(step)
}

/// Takes a free block of at least `size` and at most 1.25 `size` bytes.
pub(super) fn take(free: &mut BTreeMap<usize, Vec<CUdeviceptr>>, size: usize) -> Option<(CUdeviceptr, usize)> {
    let (&found, blocks) = free.range_mut(size..=size + size / 4).next()?;
    let pointer = blocks.pop();
    if blocks.is_empty() {
        free.remove(&found);
    }
    pointer.map(|p| (p, found))
}

/// Device memory that returns to the pool when it is dropped. Its initial contents are unspecified.
pub struct Buffer {
    pub(super) gpu: &'static Gpu,
    pub(super) pointer: CUdeviceptr,
    bytes: usize,
    size: usize,
}

/// Bytes that the driver copies from the host before a call returns. Of larger copies from pageable memory it promises nothing: a
/// function that is asynchronous "might be synchronous".
const STAGED: usize = 64 << 10;

impl Buffer {
    /// The device that holds the buffer.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Address of the first byte.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a copy from the host. `data` may be changed as soon as this returns.
    pub fn write<T: Plain>(&mut self, at_bytes: usize, data: &[T]) {
        self.write_on(&self.gpu.stream, at_bytes, data);
    }

    /// Queues a copy from the host on the copy stream, which overlaps with computation. [`Gpu::copies_wait_for`] and
    /// [`Gpu::work_waits_for_copies`] order the two streams.
    pub fn write_on_copy_stream<T: Plain>(&mut self, at_bytes: usize, data: &[T]) {
        self.write_on(&self.gpu.copies, at_bytes, data);
    }

    /// Queues a copy of page-locked memory on the copy stream. The caller keeps `data` as it is until the copy is done.
    pub(super) fn write_later<T: Plain>(&mut self, data: &[T]) {
        if let Some(to) = self.range(0, size_of_val(data)).filter(|_| self.may_transfer()) {
            // SAFETY: the range was checked, plain numbers have no bytes that are not set, and the caller keeps them.
            self.gpu.note(unsafe { result::memcpy_htod_async(to, data, self.gpu.copies.cu_stream()) });
        }
    }

    fn write_on<T: Plain>(&self, stream: &CudaStream, at_bytes: usize, data: &[T]) {
        if let Some(to) = self.range(at_bytes, size_of_val(data)).filter(|_| self.may_transfer()) {
            // SAFETY: the range was checked, plain numbers have no bytes that are not set, and the copy has read `data` when this returns:
            // the driver takes few bytes at once, and more are waited for. Nothing is being recorded, so that no later replay reads `data`.
            self.gpu.note(unsafe { result::memcpy_htod_async(to, data, stream.cu_stream()) });
            if size_of_val(data) > STAGED {
                self.gpu.note(stream.synchronize());
            }
        }
    }

    /// Waits for the device and copies to the host.
    pub fn read<T: Plain>(&self, at_bytes: usize, data: &mut [T]) -> Result<()> {
        let stream = &self.gpu.stream;
        if let Some(from) = self.range(at_bytes, size_of_val(data)).filter(|_| self.may_transfer()) {
            // SAFETY: the range was checked, any bytes are plain numbers, and the stream is synchronized before `data` is
            // read. Nothing is being recorded, so that no later replay writes `data`.
            self.gpu.note(unsafe { result::memcpy_dtoh_async(data, from, stream.cu_stream()) });
        }
        self.gpu.note(stream.synchronize());
        self.gpu.check()
    }

    /// Queues setting a range of bytes to zero.
    pub fn zero(&mut self, at_bytes: usize, bytes: usize) {
        if let Some(to) = self.range(at_bytes, bytes) {
            // SAFETY: the range was checked.
            self.gpu.note(unsafe { result::memset_d8_async(to, 0, bytes, self.gpu.stream.cu_stream()) });
        }
    }

    /// Queues a copy of `bytes` between buffers of one device.
    pub fn copy_from(&mut self, at_bytes: usize, other: &Buffer, from_bytes: usize, bytes: usize) {
        if let (Some(to), Some(from)) = (self.range(at_bytes, bytes), other.range(from_bytes, bytes)) {
            // SAFETY: both ranges were checked; `self` is borrowed uniquely, so that the buffers are two, which do not overlap.
            self.gpu.note(unsafe { result::memcpy_dtod_async(to, from, bytes, self.gpu.stream.cu_stream()) });
        }
    }

    /// Whether a copy between host and device may be queued. While a graph is recorded it may not: the graph would keep the
    /// address of host memory and use it at each replay. Then the device has failed.
    fn may_transfer(&self) -> bool {
        let recording = self.gpu.is_recording();
        if recording {
            self.gpu.fail("a copy between host and device was asked for while work was recorded".into());
        }
        !recording
    }

    /// Makes the device current and returns the address of a range, or `None` if it is empty.
    fn range(&self, at_bytes: usize, bytes: usize) -> Option<CUdeviceptr> {
        let end = at_bytes.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{bytes} bytes at {at_bytes} of {}", self.bytes);
        self.gpu.bind();
        (bytes > 0).then_some(self.pointer + at_bytes as u64)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Queued work may still use the block, but the next user is queued after that work.
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
    /// Allocates `bytes`. If that fails, the error names `what` and gives the advice `instead`.
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
        // SAFETY: the block is owned by the buffer that is returned.
        let allocate = || unsafe { result::malloc_sync(size) };
        let attempt = |pool: &Pool| pool.limit.is_none_or(|limit| pool.allocated + size <= limit).then(allocate);
        let mut block = attempt(pool);
        if !matches!(block, Some(Ok(_))) {
            self.release_free_blocks(pool);
            block = attempt(pool);
        }
        match block {
            Some(Ok(pointer)) => {
                pool.allocated += size;
                pool.peak = pool.peak.max(pool.allocated);
                Ok(Buffer { gpu: self, pointer, bytes, size })
            }
            Some(Err(error)) if error.0 != cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                self.fail(message(error));
                Err(self.check().expect_err("an error was just noted"))
            }
            _ => {
                let free = result::mem_get_info().map_or(0, |(free, _)| free);
                let left = pool.limit.map_or(free, |limit| limit.saturating_sub(pool.allocated).min(free));
                let device = format!("cuda:{}", self.ordinal);
                let (needed, free, instead) = (size as u64, left as u64, instead.into());
                Err(Error::DeviceMemory { device, what: what(), needed, free, instead })
            }
        }
    }

    /// A copy of `data`; see [`Gpu::allocate`].
    pub fn upload<T: Plain>(&'static self, data: &[T], what: &dyn Fn() -> String, instead: &str) -> Result<Buffer> {
        let mut buffer = self.allocate(size_of_val(data), what, instead)?;
        buffer.write(0, data);
        Ok(buffer)
    }

    /// The number that the work queued by `queue` leaves in a buffer of four bytes, which are zero at first. Waits for it.
    pub(super) fn status(&'static self, queue: impl FnOnce(&Buffer) -> Result<()>) -> Result<i32> {
        let mut status = [0i32];
        let buffer = self.upload(&status, &|| "a status".into(), "close other programs on the device")?;
        queue(&buffer)?;
        buffer.read(0, &mut status)?;
        Ok(status[0])
    }

    /// Waits for queued work and returns the free blocks to the driver.
    fn release_free_blocks(&self, pool: &mut Pool) {
        self.note(self.stream.synchronize());
        self.note(self.copies.synchronize());
        for (size, blocks) in std::mem::take(&mut pool.free) {
            for pointer in blocks {
                // SAFETY: the block came from `malloc_sync` and no buffer uses it.
                self.note(unsafe { result::free_sync(pointer) });
                pool.allocated -= size;
            }
        }
    }

    /// Free and total bytes of the device. Free blocks of the pool count as free.
    pub fn memory(&self) -> (u64, u64) {
        self.bind();
        let (free, total) = self.note(result::mem_get_info()).unwrap_or((0, 0));
        let pool = lock(&self.pool);
        let pooled: usize = pool.free.iter().map(|(size, blocks)| size * blocks.len()).sum();
        let free = free + pooled;
        let free = pool.limit.map_or(free, |limit| (limit + pooled).saturating_sub(pool.allocated).min(free));
        (free as u64, total as u64)
    }

    /// The most bytes that were allocated from the driver at once.
    pub fn peak_memory(&self) -> u64 {
        lock(&self.pool).peak as u64
    }

    /// Limits the memory allocated from the driver to `bytes`; `None` removes the limit.
    pub fn limit_memory(&self, bytes: Option<u64>) {
        let mut pool = lock(&self.pool);
        self.bind();
        self.release_free_blocks(&mut pool);
        pool.limit = bytes.map(|b| b as usize);
    }

    /// Whether work is being recorded.
    pub(super) fn is_recording(&self) -> bool {
        lock(&self.pool).recording.is_some()
    }

    /// From now on, freed blocks are kept for the graph that is being recorded.
    pub(super) fn keep_for_graph(&self) {
        lock(&self.pool).recording = Some(BTreeMap::new());
    }

    /// Ends [`Gpu::keep_for_graph`] and returns the kept blocks, which the recorded work uses as temporary memory.
    pub(super) fn kept_for_graph(&self) -> Vec<(usize, CUdeviceptr)> {
        let kept = lock(&self.pool).recording.take().unwrap_or_default();
        kept.into_iter().flat_map(|(size, blocks)| blocks.into_iter().map(move |b| (size, b))).collect()
    }

    /// Returns the blocks of a graph to the pool.
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
    fn a_free_block_is_reused_for_requests_of_similar_size_only() {
        let mut free = BTreeMap::from([(1024, vec![1]), (4096, vec![2, 3])]);
        assert_eq!(take(&mut free, 1024), Some((1, 1024)));
        assert_eq!(take(&mut free, 1024), None, "a block four times as large is not used");
        assert_eq!(take(&mut free, 3584), Some((3, 4096)));
        assert_eq!(free.len(), 1);
        assert_eq!((rounded(0), rounded(513), rounded((1 << 20) + 1)), (512, 1024, 2 << 20));
    }
}
