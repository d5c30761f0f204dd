//! Elementwise operations, random fills, row gathering and transposition.

use super::cuda::primitives as cuda;
use super::parallel::{CHUNK, Parts, block, for_each};
use super::tensor::Tensor;
use crate::rng::Rng;
use crate::simd::{SimdJob, dispatch};

/// `y ← f(y, x)` elementwise.
struct Zip<'a, F>(&'a mut [f32], &'a [f32], F);

impl<F: Fn(f32, f32) -> f32> SimdJob for Zip<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, &x) in self.0.iter_mut().zip(self.1) {
            *y = (self.2)(*y, x);
        }
    }
}

fn zip(y: &mut Tensor, x: &Tensor, f: impl Fn(f32, f32) -> f32 + Copy + Sync + Send) {
    same_size(y, x);
    let len = y.len();
    let (y, x) = (Parts::new(y.host_mut()), x.host());
    for_each(len.div_ceil(CHUNK), 4 * len, |task| {
        let range = block(task, CHUNK, len);
        // SAFETY: tasks have different ranges.
        dispatch(Zip(unsafe { y.part(range.clone()) }, &x[range], f));
    });
}

fn same_size(y: &Tensor, x: &Tensor) {
    assert!(y.len() == x.len(), "shapes {:?} and {:?} differ in size", y.shape(), x.shape());
}

/// `y ← x`.
pub fn copy(x: &Tensor, y: &mut Tensor) {
    if let Some(gpu) = y.gpu() {
        same_size(y, x);
        return cuda::copy(gpu, x, y);
    }
    zip(y, x, |_, x| x);
}

/// `y ← y + α x`.
pub fn axpy(alpha: f32, x: &Tensor, y: &mut Tensor) {
    if let Some(gpu) = y.gpu() {
        same_size(y, x);
        return cuda::axpy(gpu, alpha, x, y);
    }
    zip(y, x, move |y, x| y + alpha * x);
}

/// `y ← y ∘ x`.
pub fn multiply(y: &mut Tensor, x: &Tensor) {
    if let Some(gpu) = y.gpu() {
        same_size(y, x);
        return cuda::multiply(gpu, y, x);
    }
    zip(y, x, |y, x| y * x);
}

/// `y ← α y`.
pub fn scale(alpha: f32, y: &mut Tensor) {
    if let Some(gpu) = y.gpu() {
        return cuda::scale(gpu, alpha, y);
    }
    y.host_mut().iter_mut().for_each(|y| *y *= alpha);
}

/// `y ← value`.
pub fn fill(y: &mut Tensor, value: f32) {
    if let Some(gpu) = y.gpu() {
        return cuda::fill(gpu, y, value);
    }
    y.host_mut().fill(value);
}

/// Fills `y` with independent standard normal numbers. A seed always gives the same numbers on one kind of device; the CPU
/// and GPUs give different ones.
pub fn fill_normal(y: &mut Tensor, rng: &mut Rng) {
    if let Some(gpu) = y.gpu() {
        return cuda::fill_random(gpu, y, cuda::Law::Normal, rng);
    }
    y.host_mut().iter_mut().for_each(|y| *y = rng.normal() as f32);
}

/// Fills `y` with independent numbers, uniform on [low, high).
pub fn fill_uniform(y: &mut Tensor, low: f32, high: f32, rng: &mut Rng) {
    if let Some(gpu) = y.gpu() {
        return cuda::fill_random(gpu, y, cuda::Law::Uniform(low, high), rng);
    }
    y.host_mut().iter_mut().for_each(|y| *y = low + (high - low) * rng.uniform() as f32);
}

/// Fills `y` with independent numbers −1 or +1, each with probability one half.
pub fn fill_rademacher(y: &mut Tensor, rng: &mut Rng) {
    if let Some(gpu) = y.gpu() {
        return cuda::fill_random(gpu, y, cuda::Law::Rademacher, rng);
    }
    y.host_mut().iter_mut().for_each(|y| *y = rng.sign() as f32);
}

/// `out[i] ← x[rows[i]]`, which forms a batch of the data. `x` `[n, d]`; `out` is reshaped to `[rows, d]`, which
/// allocates only if it was never this large. Panics if an index is not below n.
pub fn gather_rows(x: &Tensor, rows: &[usize], out: &mut Tensor) -> crate::Result<()> {
    let (_, _, d) = x.as_matrices();
    out.reshape(&[rows.len(), d])?;
    if let Some(gpu) = x.gpu() {
        let n = x.len() / d.max(1);
        assert!(rows.iter().all(|&row| row < n), "gather_rows: an index is not below {n}");
        return cuda::gather_rows(gpu, x, rows, out);
    }
    let x = x.host();
    for (out, &row) in out.host_mut().chunks_exact_mut(d.max(1)).zip(rows) {
        out.copy_from_slice(&x[row * d..(row + 1) * d]);
    }
    Ok(())
}

/// `out_j ← x_jᵀ`: `x` `[k, m, n]`, `out` `[k, n, m]`.
pub fn transpose(x: &Tensor, out: &mut Tensor) {
    let (count, m, n) = x.as_matrices();
    assert!(out.as_matrices() == (count, n, m), "transpose of {:?} into {:?}", x.shape(), out.shape());
    if let Some(gpu) = x.gpu() {
        return cuda::transpose(gpu, x, out);
    }
    let x = x.host();
    for (j, out) in out.host_mut().chunks_exact_mut((m * n).max(1)).enumerate() {
        for (c, out) in out.chunks_exact_mut(m).enumerate() {
            for (r, out) in out.iter_mut().enumerate() {
                *out = x[j * m * n + r * n + c];
            }
        }
    }
}
