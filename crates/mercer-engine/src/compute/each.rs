//! Elementwise products of each matrix of a stack with one matrix.

use super::cuda::primitives as cuda;
use super::parallel::{CHUNK, Parts, block, for_each};
use super::tensor::Tensor;
use crate::simd::{SimdJob, dispatch};

/// `y_j ← y_j ∘ x` for each matrix of the stack: `y` `[k, m, n]`, `x` `[m, n]` (or `[1, m, n]`).
pub fn multiply_each(y: &mut Tensor, x: &Tensor) {
    let (len, size) = (y.len(), matrix_size(y, x));
    if let Some(gpu) = y.gpu() {
        return cuda::multiply_each(gpu, y, x);
    }
    let (y, x) = (Parts::new(y.host_mut()), x.host());
    let pieces = size.div_ceil(CHUNK);
    for_each(len / size.max(1) * pieces, 2 * len, |task| {
        let (start, range) = (task / pieces * size, block(task % pieces, CHUNK, size));
        // SAFETY: tasks have different (matrix, range).
        let y = unsafe { y.part(start + range.start..start + range.end) };
        dispatch(Multiply { y, x: &x[range] });
    });
}

/// `out_j ← out_j + y_j ∘ x` for each matrix of the stack: `out`, `y` `[k, m, n]`, `x` `[m, n]` (or `[1, m, n]`).
pub fn add_product_each(out: &mut Tensor, y: &Tensor, x: &Tensor) {
    assert!(out.len() == y.len(), "shapes {:?} and {:?} differ in size", out.shape(), y.shape());
    let (len, size) = (out.len(), matrix_size(y, x));
    if let Some(gpu) = out.gpu() {
        return cuda::add_product_each(gpu, out, y, x);
    }
    let (out, y, x) = (Parts::new(out.host_mut()), y.host(), x.host());
    let pieces = size.div_ceil(CHUNK);
    for_each(len / size.max(1) * pieces, 3 * len, |task| {
        let (start, range) = (task / pieces * size, block(task % pieces, CHUNK, size));
        let elements = start + range.start..start + range.end;
        // SAFETY: tasks have different (matrix, range).
        let out = unsafe { out.part(elements.clone()) };
        dispatch(AddProduct { out, y: &y[elements], x: &x[range] });
    });
}

/// Number of elements of `x`. Panics unless `y` is a stack of matrices of this size.
fn matrix_size(y: &Tensor, x: &Tensor) -> usize {
    let size = x.len();
    assert!(
        y.len().is_multiple_of(size.max(1)),
        "a tensor of shape {:?} is not a stack of matrices of shape {:?}",
        y.shape(),
        x.shape()
    );
    size
}

struct Multiply<'a> {
    y: &'a mut [f32],
    x: &'a [f32],
}

impl SimdJob for Multiply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        self.y.iter_mut().zip(self.x).for_each(|(y, x)| *y *= x);
    }
}

struct AddProduct<'a> {
    out: &'a mut [f32],
    y: &'a [f32],
    x: &'a [f32],
}

impl SimdJob for AddProduct<'_> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        self.out.iter_mut().zip(self.y.iter().zip(self.x)).for_each(|(out, (y, x))| *out += y * x);
    }
}
