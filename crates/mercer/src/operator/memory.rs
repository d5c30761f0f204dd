//! Large arrays of zeros.

#[doc(hidden)]
pub use crate::free_memory::{free_memory, peak_memory, resident_memory};

/// A vector of zeros, on huge pages if the system has them. With pages of 4 KiB, the page faults of a large kernel matrix
/// cost more time than computing its values.
pub(crate) fn zeros<T: Copy + Default>(len: usize) -> Vec<T> {
    // Zeroed memory has no pages assigned yet, so the advice below still takes effect.
    let mut values = vec![T::default(); len];
    advise_huge_pages(&mut values);
    values
}

#[cfg(target_os = "linux")]
fn advise_huge_pages<T>(values: &mut [T]) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(values);
    if bytes >= 4 << 20 {
        let start = (values.as_mut_ptr() as usize).next_multiple_of(PAGE);
        // SAFETY: the range lies within the allocation of the vector, and the advice does not change its contents.
        unsafe { libc::madvise(start as *mut libc::c_void, bytes - PAGE, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages<T>(_: &mut [T]) {}
