//! Arrays aligned to cache lines, because a SIMD vector across two cache lines takes two accesses.

use crate::operator::tile::network::LANES;
use std::ops::{Deref, DerefMut};

/// One cache line of f32, two of f64.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Group<T>([T; LANES]);

/// A growable array of `T` = f32 or f64, aligned to a cache line.
#[derive(Clone, Debug)]
pub(crate) struct Aligned<T> {
    groups: Vec<Group<T>>,
    len: usize,
}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Aligned { groups: vec![], len: 0 }
    }
}

impl<T: Copy + Default> Aligned<T> {
    /// Sets the length; new elements are `value`.
    pub fn resize(&mut self, len: usize, value: T) {
        const { assert!(size_of::<Group<T>>() == LANES * size_of::<T>(), "a group has no padding") };
        let (old, groups) = (self.len, len.div_ceil(LANES).max(self.groups.len()));
        self.groups.resize(groups, Group([value; LANES]));
        self.len = len;
        if old < len {
            self[old..].fill(value);
        }
    }

    /// Sets the length; the values of the elements are unspecified, and the caller must write them all.
    pub fn room(&mut self, len: usize) {
        if self.groups.len() * LANES < len {
            self.resize(len, T::default());
        }
        self.len = len;
    }

    /// Sets the length to zero.
    pub fn clear(&mut self) {
        self.room(0);
    }

    /// Replaces the contents by a copy of `values`.
    pub fn copy(&mut self, values: &[T]) {
        self.room(values.len());
        self.copy_from_slice(values);
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: a group is `LANES` elements without padding (asserted in `resize`), and all groups hold at least `len`.
        unsafe { std::slice::from_raw_parts(self.groups.as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `self` is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.groups.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::Aligned;

    #[test]
    fn it_grows_like_a_vector_and_is_aligned() {
        let (mut aligned, mut vec) = (Aligned::<f32>::default(), vec![]);
        for (step, len) in [3usize, 40, 17, 18, 64, 0, 5, 33].into_iter().enumerate() {
            aligned.resize(len, step as f32);
            vec.resize(len, step as f32);
            assert_eq!(&aligned[..], &vec[..]);
            assert_eq!(aligned.as_ptr() as usize % 64, 0);
        }
        aligned.copy(&[1.0; 100]);
        assert_eq!(&aligned[..], &[1.0; 100]);
    }
}
