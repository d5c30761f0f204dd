//! An allocation that the system refuses ends the program in a sentence.

use std::alloc::{GlobalAlloc, Layout, System};

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// The system's allocator. Where it has no memory, the program ends with [`crate::BAD_INPUT`]; Rust itself would abort it.
struct Refusing;

// SAFETY: every call is the system's own; a pointer that is returned is never null, and so is what was asked for.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`.
        given(unsafe { System.realloc(pointer, layout, size) }, size)
    }
}

/// The pointer, unless the system had no memory for so many bytes.
fn given(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() { refused(bytes) } else { pointer }
}

/// Ends the program. Nothing here allocates, and no other thread goes on.
#[cold]
fn refused(bytes: usize) -> ! {
    use std::io::Write;
    let mebibytes = bytes.div_ceil(1 << 20);
    // Standard error has no buffer. Where it is closed, there is nobody to tell.
    let _ = writeln!(
        std::io::stderr(),
        "error: the system has no memory for {mebibytes} MiB more; fit fewer points, choose another method, or raise the limit on memory"
    );
    end()
}

#[cfg(unix)]
fn end() -> ! {
    // SAFETY: the call only ends the process.
    unsafe { libc::_exit(crate::BAD_INPUT.into()) }
}

#[cfg(not(unix))]
fn end() -> ! {
    std::process::exit(crate::BAD_INPUT.into())
}
