//! Copies of large arrays from the host: one piece is filled while the one before is copied and the one before that is used.

use super::gpu::Gpu;
use super::memory::{Buffer, Plain};
use crate::Result;
use cudarc::driver::{CudaEvent, result};
use std::ffi::c_void;

/// Two pieces of page-locked host memory, each with as much device memory.
pub struct Staging {
    gpu: &'static Gpu,
    pieces: [Piece; 2],
    next: usize,
}

struct Piece {
    host: *mut c_void,
    device: Buffer,
    /// After the copy from `host`.
    copied: Option<CudaEvent>,
    /// After the work that reads `device`.
    used: Option<CudaEvent>,
}

impl Staging {
    /// Pieces of `bytes`. None where the system locks no more pages. If device memory is short, the error names `what` and gives the
    /// advice `instead`.
    pub fn new(gpu: &'static Gpu, bytes: usize, what: &dyn Fn() -> String, instead: &str) -> Result<Option<Staging>> {
        let devices = [gpu.allocate(bytes, what, instead)?, gpu.allocate(bytes, what, instead)?];
        gpu.bind();
        // SAFETY: the memory is freed once, by `drop`, or here where the second piece cannot be had.
        let lock = || unsafe { result::malloc_host(bytes.max(1), 0) };
        let Ok(first) = lock() else { return Ok(None) };
        let Ok(second) = lock() else {
            // SAFETY: it was just allocated, and nothing uses it.
            gpu.note(unsafe { result::free_host(first) });
            return Ok(None);
        };
        let [one, two] = devices;
        let piece = |host, device| Piece { host, device, copied: None, used: None };
        Ok(Some(Staging { gpu, pieces: [piece(first, one), piece(second, two)], next: 0 }))
    }

    /// Lets `fill` write `len` numbers, copies them to the device, and lets `queue` queue the work that reads them at the address it is given.
    pub fn pass<T: Plain>(&mut self, len: usize, fill: impl FnOnce(&mut [T]), queue: impl FnOnce(u64)) {
        let gpu = self.gpu;
        let piece = &mut self.pieces[self.next];
        self.next = 1 - self.next;
        assert!(len * size_of::<T>() <= piece.device.bytes(), "{len} numbers in a piece of {}", piece.device.bytes());
        if let Some(copied) = piece.copied.take() {
            gpu.note(copied.synchronize());
        }
        // SAFETY: the memory has room for `len` numbers, any bytes are plain numbers, it is aligned to a page, and no copy reads it any more.
        let numbers = unsafe { std::slice::from_raw_parts_mut(piece.host.cast::<T>(), len) };
        fill(numbers);
        gpu.copies_wait_for(piece.used.take());
        piece.device.write_later(numbers);
        piece.copied = gpu.record_copies();
        gpu.work_waits_for_copies();
        queue(piece.device.pointer());
        piece.used = gpu.record_event();
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.gpu.bind();
        // Work that was queued waits for the copies, so that the device memory may return to the pool.
        for piece in &mut self.pieces {
            if let Some(copied) = piece.copied.take() {
                self.gpu.note(copied.synchronize());
            }
            // SAFETY: it came from `malloc_host`, and its last copy is done.
            self.gpu.note(unsafe { result::free_host(piece.host) });
        }
    }
}
