//! Elementwise operations, random fills, gathering of rows, transposition, and operations of a stack with one matrix.

use super::cuda::{Arg, args, images, points, primitives as cuda};
use super::gemm::Store;
use super::parallel::{CHUNK, for_each, for_each_chunk, pieces};
use super::stack::Stack;
use super::tensor::{Indices, Tensor, on_gpu};
use crate::Result;
use crate::rng::Rng;
use crate::simd::vectorized;
use std::ops::Range;

/// `y ← f(y, x)` elementwise.
fn zip_slices(y: &mut [f32], x: &[f32], f: impl Fn(f32, f32) -> f32) {
    vectorized!(y.iter_mut().zip(x).for_each(|(y, &x)| *y = f(*y, x)));
}

/// `y ← f(y, x)` in host memory.
fn zip(y: &mut Tensor, x: &Tensor, f: impl Fn(f32, f32) -> f32 + Copy + Sync + Send) {
    let (x, work) = (x.host(), 4 * y.len());
    for_each_chunk(y.host_mut(), CHUNK, work, |i, y| zip_slices(y, &x[i * CHUNK..][..y.len()], f));
}

fn same_size(y: &Tensor, x: &Tensor) {
    assert!(y.len() == x.len(), "shapes {y} and {x} differ in size");
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
    on_gpu!(y, |gpu| cuda::over(gpu, "axpy", y.len(), &args![y.len(), alpha, x, y]));
    zip(y, x, move |y, x| y + alpha * x);
}

/// `y ← y ∘ x`.
pub fn multiply(y: &mut Tensor, x: &Tensor) {
    same_size(y, x);
    on_gpu!(y, |gpu| cuda::over(gpu, "multiply", y.len(), &args![y.len(), x, y]));
    zip(y, x, |y, x| y * x);
}

/// `y ← α y`.
pub fn scale(alpha: f32, y: &mut Tensor) {
    on_gpu!(y, |gpu| cuda::over(gpu, "scale", y.len(), &args![y.len(), alpha, y]));
    y.host_mut().iter_mut().for_each(|y| *y *= alpha);
}

/// `y ← value`.
pub fn fill(y: &mut Tensor, value: f32) {
    on_gpu!(y, |gpu| cuda::over(gpu, "fill", y.len(), &args![y.len(), value, y]));
    y.host_mut().fill(value);
}

/// Fills `y` with independent standard normal numbers. With the same seed, the CPU and GPUs give different numbers.
pub fn fill_normal(y: &mut Tensor, rng: &mut Rng) {
    on_gpu!(y, |gpu| cuda::fill_random(gpu, y, cuda::Law::Normal, rng));
    y.host_mut().iter_mut().for_each(|y| *y = rng.normal() as f32);
}

/// Fills `y` with independent numbers −1 or +1, each with probability one half.
pub fn fill_rademacher(y: &mut Tensor, rng: &mut Rng) {
    on_gpu!(y, |gpu| cuda::fill_random(gpu, y, cuda::Law::Rademacher, rng));
    y.host_mut().iter_mut().for_each(|y| *y = rng.sign() as f32);
}

/// `out_i ← x[rows_i]`, which forms a batch of the data. `x` `[n, d]`, `out` `[rows, d]`. Row numbers must be below n.
pub fn gather(x: &Tensor, rows: &Indices, out: &mut Tensor) -> Result<()> {
    let (_, _, d) = x.as_matrices();
    out.reshape(&[rows.len(), d])?;
    on_gpu!(x, |gpu| {
        cuda::over(gpu, "gather_rows", rows.len() * d, &args![rows.len(), d, rows, x, out]);
        Ok(())
    });
    let x = x.host();
    for (out, &row) in out.host_mut().chunks_exact_mut(d.max(1)).zip(rows.host()) {
        out.copy_from_slice(&x[row as usize * d..][..d]);
    }
    Ok(())
}

/// [`gather`] with row numbers on the host. Panics if one is not below n.
pub fn gather_rows(x: &Tensor, rows: &[usize], out: &mut Tensor) -> Result<()> {
    let (_, _, d) = x.as_matrices();
    let n = x.len() / d.max(1);
    assert!(rows.iter().all(|&row| row < n), "gather_rows: an index is not below {n}");
    let rows: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
    gather(x, &Indices::from_host(x.device(), &[rows.len()], &rows)?, out)
}

/// `out_ij ← K[rows_i, rows_j]`; `K` `[n, n]`, `out` `[rows, rows]`. Row numbers must be below n.
pub fn gather_block(k: &Tensor, rows: &Indices, out: &mut Tensor) -> Result<()> {
    let (b, n) = (rows.len(), k.shape()[0]);
    out.reshape(&[b, b])?;
    on_gpu!(k, |gpu| {
        points::over(gpu, "gather_block", b * b, &args![b, n, rows, k, out]);
        Ok(())
    });
    let (k, rows) = (k.host(), rows.host());
    for (out, &row) in out.host_mut().chunks_exact_mut(b.max(1)).zip(rows) {
        let from = &k[row as usize * n..][..n];
        out.iter_mut().zip(rows).for_each(|(out, &column)| *out = from[column as usize]);
    }
    Ok(())
}

/// `out_j ← x_jᵀ`: `x` `[k, m, n]`, `out` `[k, n, m]`.
pub fn transpose(x: &Tensor, out: &mut Tensor) {
    let (count, m, n) = x.as_matrices();
    assert!(out.as_matrices() == (count, n, m), "transpose of {x} into {out}");
    on_gpu!(x, |gpu| cuda::transpose(gpu, x, out));
    let x = x.host();
    for (j, out) in out.host_mut().chunks_exact_mut((m * n).max(1)).enumerate() {
        for (c, out) in out.chunks_exact_mut(m).enumerate() {
            for (r, out) in out.iter_mut().enumerate() {
                *out = x[j * m * n + r * n + c];
            }
        }
    }
}

/// `psi_jb ← w_b psi_jb`; `w` `[B, 1]`, `psi` `[k, B, c]`.
pub fn scale_points(w: &Tensor, psi: &mut Tensor) {
    let (b, c) = (psi.shape()[1], psi.shape()[2]);
    assert_eq!(w.len(), b, "factors {w} of functions {psi}");
    on_gpu!(psi, |gpu| points::over(gpu, "scale_points", psi.len(), &args![psi.len(), b, c, w, psi]));
    let w = w.host();
    for (i, values) in psi.host_mut().chunks_exact_mut(c.max(1)).enumerate() {
        values.iter_mut().for_each(|v| *v *= w[i % b]);
    }
}

/// `out_jb ← psi_jb'` with `b' = b + 1` for an even b and `b − 1` for an odd one: each point takes the values of its partner.
/// `psi`, `out` `[k, B, c]` with an even B.
pub fn swap_pairs(psi: &Tensor, out: &mut Tensor) -> Result<()> {
    let (b, c) = (psi.shape()[1], psi.shape()[2]);
    assert!(b.is_multiple_of(2), "pairs of {psi}");
    out.reshape(psi.shape())?;
    on_gpu!(psi, |gpu| {
        points::over(gpu, "swap_pairs", psi.len(), &args![psi.len(), c, psi, out]);
        Ok(())
    });
    for (out, pair) in out.host_mut().chunks_exact_mut(2 * c.max(1)).zip(psi.host().chunks_exact(2 * c.max(1))) {
        let (first, second) = pair.split_at(c);
        out[..c].copy_from_slice(second);
        out[c..].copy_from_slice(first);
    }
    Ok(())
}

/// `out_jb ← psi_j(first+b)`: the part of the points from `first` on that `out` has room for; `psi` `[k, B, c]`, `out` `[k, b, c]`.
pub fn take_points(psi: &Tensor, first: usize, out: &mut Tensor) {
    let [(k, all, c), (functions, b, outputs)] = [psi.as_matrices(), out.as_matrices()];
    assert!([k, c] == [functions, outputs] && first + b <= all, "points from {first} on of {psi} into {out}");
    on_gpu!(psi, |gpu| points::over(gpu, "take_points", out.len(), &args![out.len(), all, b, c, first, psi, out]));
    for (out, psi) in out.host_mut().chunks_exact_mut((b * c).max(1)).zip(psi.host().chunks_exact((all * c).max(1))) {
        out.copy_from_slice(&psi[first * c..(first + b) * c]);
    }
}

/// The adjoint of [`take_points`]: `out` has `psi` at the points from `first` on, and zeros at all others; `psi` `[k, b, c]`, `out` `[k, B, c]`.
pub fn place_points(psi: &Tensor, first: usize, out: &mut Tensor) {
    let [(k, b, c), (functions, all, outputs)] = [psi.as_matrices(), out.as_matrices()];
    assert!([k, c] == [functions, outputs] && first + b <= all, "{psi} at points from {first} on of {out}");
    on_gpu!(psi, |gpu| points::over(gpu, "place_points", out.len(), &args![out.len(), all, b, c, first, psi, out]));
    let out = out.host_mut();
    out.fill(0.0);
    for (out, psi) in out.chunks_exact_mut((all * c).max(1)).zip(psi.host().chunks_exact((b * c).max(1))) {
        out[first * c..(first + b) * c].copy_from_slice(psi);
    }
}

/// `y_j ← y_j ∘ x` for each matrix of the stack: `y` `[k, m, n]`, `x` `[m, n]` (or `[1, m, n]`).
pub fn multiply_each(y: &mut Tensor, x: &Tensor) {
    let (len, size) = (y.len(), matrix_size(y, x));
    on_gpu!(y, |gpu| cuda::over(gpu, "multiply_each", len, &args![len, size, x, y]));
    let x = x.host();
    for_each_piece(y, size, |y, _, range| zip_slices(y, &x[range], |y, x| y * x));
}

/// `out_j ← out_j + y_j ∘ x` for each matrix of the stack: `out`, `y` `[k, m, n]`, `x` `[m, n]` (or `[1, m, n]`).
pub fn add_product_each(out: &mut Tensor, y: &Tensor, x: &Tensor) {
    same_size(out, y);
    let (len, size) = (out.len(), matrix_size(y, x));
    on_gpu!(out, |gpu| cuda::over(gpu, "add_product_each", len, &args![len, size, x, y, out]));
    let (y, x) = (y.host(), x.host());
    for_each_piece(out, size, |out, elements, range| {
        let (y, x) = (&y[elements], &x[range]);
        vectorized!(out.iter_mut().zip(y.iter().zip(x)).for_each(|(out, (y, x))| *out += y * x));
    });
}

/// Calls `f` with pieces of a stack of matrices of `size` elements, where each lies in the stack, and where in its matrix.
fn for_each_piece(y: &mut Tensor, size: usize, f: impl Fn(&mut [f32], Range<usize>, Range<usize>) + Sync + Send) {
    let len = y.len();
    let matrices = pieces(y.host_mut(), size, len / size.max(1)).enumerate();
    let tasks = matrices.flat_map(|(j, matrix)| matrix.chunks_mut(CHUNK).enumerate().map(move |(i, y)| (j, i, y)));
    for_each(tasks, 2 * len, |(j, i, y)| {
        let range = i * CHUNK..i * CHUNK + y.len();
        f(y, j * size + range.start..j * size + range.end, range);
    });
}

/// Number of elements of `x`. Panics unless `y` is a stack of matrices of this size.
fn matrix_size(y: &Tensor, x: &Tensor) -> usize {
    let size = x.len();
    assert!(y.len().is_multiple_of(size.max(1)), "a tensor of shape {y} is not a stack of matrices of shape {x}");
    size
}

/// `y_j ← x_j`, or `y_j ← y_j + x_j` with [`Store::Add`]; a shared x is broadcast to all networks. `x` `[k, m, n]` or `[m, n]`, `y` `[k, m, n]`.
pub fn spread(x: Stack<'_>, store: Store, y: &mut Tensor) {
    let (count, m, n) = y.as_matrices();
    assert!(x.rows == m && x.cols == n, "spread of {x} over {y}");
    x.check(count);
    let size = m * n;
    on_gpu!(y, |gpu| images::over_networks(
        gpu,
        "spread",
        count,
        size,
        &args![Arg::size(size), store == Store::Add, x, y]
    ));
    for (j, y) in y.host_mut().chunks_exact_mut(size.max(1)).enumerate() {
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
    assert!(g.len().is_multiple_of(size), "collect of {g} into {dx}");
    on_gpu!(g, |gpu| images::sum_terms(gpu, dx.len(), g.len() / size, store, g.address(), dx.address()));
    let dx = dx.host_mut();
    for (j, g) in g.host().chunks_exact(size).enumerate() {
        if j == 0 && store == Store::Replace {
            dx.copy_from_slice(g);
        } else {
            dx.iter_mut().zip(g).for_each(|(dx, g)| *dx += g);
        }
    }
}
