//! Elementwise operations, random fills, row gathering, transposition, and operations of a stack with one matrix.

use super::cuda::{Arg, args, images, primitives as cuda};
use super::gemm::Store;
use super::parallel::{CHUNK, Parts, block, for_each};
use super::tensor::{Stack, Tensor};
use crate::rng::Rng;
use crate::simd::{SimdJob, dispatch};
use std::ops::Range;

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

/// `y ← f(y, x)` in host memory.
fn zip(y: &mut Tensor, x: &Tensor, f: impl Fn(f32, f32) -> f32 + Copy + Sync + Send) {
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
    same_size(y, x);
    match (x.buffer(), y.buffer_mut()) {
        (Some(from), Some(to)) => to.copy_from(0, from, 0, 4 * x.len()),
        _ => zip(y, x, |_, x| x),
    }
}

/// `y ← y + α x`.
pub fn axpy(alpha: f32, x: &Tensor, y: &mut Tensor) {
    same_size(y, x);
    match y.gpu() {
        Some(gpu) => cuda::over(gpu, "axpy", y.len(), &args![y.len(), alpha, x, y]),
        None => zip(y, x, move |y, x| y + alpha * x),
    }
}

/// `y ← y ∘ x`.
pub fn multiply(y: &mut Tensor, x: &Tensor) {
    same_size(y, x);
    match y.gpu() {
        Some(gpu) => cuda::over(gpu, "multiply", y.len(), &args![y.len(), x, y]),
        None => zip(y, x, |y, x| y * x),
    }
}

/// `y ← α y`.
pub fn scale(alpha: f32, y: &mut Tensor) {
    match y.gpu() {
        Some(gpu) => cuda::over(gpu, "scale", y.len(), &args![y.len(), alpha, y]),
        None => y.host_mut().iter_mut().for_each(|y| *y *= alpha),
    }
}

/// `y ← value`.
pub fn fill(y: &mut Tensor, value: f32) {
    match y.gpu() {
        Some(gpu) => cuda::over(gpu, "fill", y.len(), &args![y.len(), value, y]),
        None => y.host_mut().fill(value),
    }
}

/// Fills `y` with independent standard normal numbers. A seed always gives the same numbers on one kind of device; the CPU
/// and GPUs give different ones.
pub fn fill_normal(y: &mut Tensor, rng: &mut Rng) {
    if let Some(gpu) = y.gpu() {
        return cuda::fill_random(gpu, y, cuda::Law::Normal, [0.0; 2], rng);
    }
    y.host_mut().iter_mut().for_each(|y| *y = rng.normal() as f32);
}

/// Fills `y` with independent numbers, uniform on [low, high).
pub fn fill_uniform(y: &mut Tensor, low: f32, high: f32, rng: &mut Rng) {
    if let Some(gpu) = y.gpu() {
        return cuda::fill_random(gpu, y, cuda::Law::Uniform, [low, high], rng);
    }
    y.host_mut().iter_mut().for_each(|y| *y = low + (high - low) * rng.uniform() as f32);
}

/// Fills `y` with independent numbers −1 or +1, each with probability one half.
pub fn fill_rademacher(y: &mut Tensor, rng: &mut Rng) {
    if let Some(gpu) = y.gpu() {
        return cuda::fill_random(gpu, y, cuda::Law::Rademacher, [0.0; 2], rng);
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

/// `y_j ← y_j ∘ x` for each matrix of the stack: `y` `[k, m, n]`, `x` `[m, n]` (or `[1, m, n]`).
pub fn multiply_each(y: &mut Tensor, x: &Tensor) {
    let (len, size) = (y.len(), matrix_size(y, x));
    if let Some(gpu) = y.gpu() {
        return cuda::over(gpu, "multiply_each", len, &args![len, size, x, y]);
    }
    let (y, x) = (Parts::new(y.host_mut()), x.host());
    for_each_piece([len, size], 2 * len, |elements, range| {
        // SAFETY: pieces do not overlap.
        dispatch(Zip(unsafe { y.part(elements) }, &x[range], |y, x| y * x));
    });
}

/// `out_j ← out_j + y_j ∘ x` for each matrix of the stack: `out`, `y` `[k, m, n]`, `x` `[m, n]` (or `[1, m, n]`).
pub fn add_product_each(out: &mut Tensor, y: &Tensor, x: &Tensor) {
    assert!(out.len() == y.len(), "shapes {:?} and {:?} differ in size", out.shape(), y.shape());
    let (len, size) = (out.len(), matrix_size(y, x));
    if let Some(gpu) = out.gpu() {
        return cuda::over(gpu, "add_product_each", len, &args![len, size, x, y, out]);
    }
    let (out, y, x) = (Parts::new(out.host_mut()), y.host(), x.host());
    for_each_piece([len, size], 3 * len, |elements, range| {
        // SAFETY: pieces do not overlap.
        let out = unsafe { out.part(elements.clone()) };
        dispatch(AddProduct { out, y: &y[elements], x: &x[range] });
    });
}

/// Calls `f` with pieces of a stack of `len` elements, and the range of each within its matrix of `size` elements.
fn for_each_piece([len, size]: [usize; 2], work: usize, f: impl Fn(Range<usize>, Range<usize>) + Sync + Send) {
    let pieces = size.div_ceil(CHUNK);
    for_each(len / size.max(1) * pieces, work, |task| {
        let (start, range) = (task / pieces * size, block(task % pieces, CHUNK, size));
        f(start + range.start..start + range.end, range);
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

/// `y_j ← x_j`, or `y_j ← y_j + x_j` with [`Store::Add`]; a shared x is broadcast to all networks. `x` `[k, m, n]` or `[m, n]`, `y` `[k, m, n]`.
pub fn spread(x: Stack<'_>, store: Store, y: &mut Tensor) {
    let (count, m, n) = y.as_matrices();
    assert!(x.rows == m && x.cols == n, "spread of [{}, {}] over {:?}", x.rows, x.cols, y.shape());
    if let Some(gpu) = y.gpu() {
        return images::over_networks(gpu, "spread", count, m * n, &args![Arg::size(m * n), store == Store::Add, x, y]);
    }
    for (j, y) in y.host_mut().chunks_exact_mut((m * n).max(1)).enumerate() {
        match store {
            Store::Replace => y.copy_from_slice(x.host(j)),
            Store::Add => y.iter_mut().zip(x.host(j)).for_each(|(y, x)| *y += x),
        }
    }
}

/// The adjoint of [`spread`]: `dx_j ← g_j`, or `dx ← Σ_j g_j` if dx is shared; [`Store::Add`] adds to dx.
/// `g` `[k, m, n]`, `dx` `[k, m, n]` or `[m, n]`.
pub fn collect(g: &Tensor, store: Store, dx: &mut Tensor) {
    let size = dx.len().max(1);
    assert!(g.len().is_multiple_of(size), "collect of {:?} into {:?}", g.shape(), dx.shape());
    if let Some(gpu) = g.gpu() {
        return images::sum_terms(gpu, dx.len(), g.len() / size, store, g.address(), dx.address());
    }
    let dx = dx.host_mut();
    for (j, g) in g.host().chunks_exact(size).enumerate() {
        if j == 0 && store == Store::Replace {
            dx.copy_from_slice(g);
        } else {
            dx.iter_mut().zip(g).for_each(|(dx, g)| *dx += g);
        }
    }
}
