//! The largest piece of memory that the program has asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Inputs are a few kilobytes, and gzip unpacks a byte to a thousand at most: no input needs a larger piece.
pub const MOST_MEMORY: usize = 64 << 20;

/// Larger pieces are not given, so that a defect ends the process and not the machine.
const NEVER: usize = 4 << 30;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The largest piece since the last call.
pub fn take_largest() -> usize {
    LARGEST.swap(0, Ordering::Relaxed)
}

struct Watch;

/// Notes a request; false where it is refused.
fn granted(size: usize) -> bool {
    LARGEST.fetch_max(size, Ordering::Relaxed);
    size < NEVER
}

// SAFETY: every call is handed on to the system's allocator unchanged, or fails by returning null as the trait allows.
unsafe impl GlobalAlloc for Watch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the trait.
        if granted(layout.size()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the trait.
        if granted(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of the trait.
        if granted(size) { unsafe { System.realloc(ptr, layout, size) } } else { std::ptr::null_mut() }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static WATCH: Watch = Watch;
