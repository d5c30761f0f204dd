//! The operations of [`crate::linalg::Panel`] on a GPU: tall row-major f64 matrices `[n, b]`.
//!
//! The panel has checked the shapes. Only functions that allocate or transfer can fail.

use super::blas::Matrix;
use super::gpu::Gpu;
use super::launch::{Arg, BLOCK, args};
use super::memory::Buffer;
use super::module::kernels;
use crate::Result;
use crate::compute::Math;
use crate::compute::Part;
use std::ops::Range;

/// Rows that one block sums, unless that gives more than [`MAX_CHUNKS`] partial sums.
const CHUNK_ROWS: usize = 1024;
const MAX_CHUNKS: usize = 1024;
/// Advice when a panel does not fit into device memory.
const ADVICE: &str = concat!("ask for fewer pairs or a smaller rank, use fewer points, or ", advice!(UseCpu));

kernels!(include_str!("panel.cu"));

/// Memory for a panel `[n, b]`; its contents are unspecified.
pub fn allocate(gpu: &'static Gpu, [n, b]: [usize; 2]) -> Result<Buffer> {
    gpu.allocate(8 * n * b, &|| format!("a block of {b} vectors of {n} numbers in double precision"), ADVICE)
}

/// A copy of `data` on the device.
pub fn upload(gpu: &'static Gpu, shape: [usize; 2], data: &[f64]) -> Result<Buffer> {
    let mut buffer = allocate(gpu, shape)?;
    buffer.write(0, data);
    Ok(buffer)
}

/// The panel `[n, b]` as a matrix for cuBLAS.
fn matrix(buffer: &Buffer, b: usize) -> Matrix {
    Matrix::new(buffer.pointer(), b)
}

/// `AᵀB` `[a, b]` of `A` `[n, a]` and `B` `[n, b]`, copied to the host.
pub fn t_matmul(n: usize, (left, a): (&Buffer, usize), (right, b): (&Buffer, usize)) -> Result<Vec<f64>> {
    let gpu = left.gpu();
    if n == 0 {
        return Ok(vec![0.0; a * b]);
    }
    let small = allocate(gpu, [a, b])?;
    let (left, right) = (matrix(left, a).t(), matrix(right, b));
    gpu.gemm_f64([a, n, b], 1.0, left, right, 0.0, matrix(&small, b));
    let mut product = vec![0.0; a * b];
    small.read(0, &mut product)?;
    Ok(product)
}

/// `out ← α A S + β out` for `A` `[n, a]`, a small `S` `[a, b]` from the host and `out` `[n, b]`.
pub fn matmul(
    n: usize,
    alpha: f64,
    (tall, a): (&Buffer, usize),
    (small, b): (&[f64], usize),
    beta: f64,
    out: &mut Buffer,
) -> Result<()> {
    let gpu = tall.gpu();
    if a == 0 {
        // The product is zero.
        if beta == 0.0 {
            out.zero(0, 8 * n * b);
        }
        return Ok(());
    }
    let small = upload(gpu, [a, b], small)?;
    let (tall, small) = (matrix(tall, a), matrix(&small, b));
    gpu.gemm_f64([n, a, b], alpha, tall, small, beta, matrix(out, b));
    Ok(())
}

/// `y_ij += step_j x_ij` for `[n, b]`, `step` `[b]`.
pub fn axpy_columns(n: usize, step: &[f64], x: &Buffer, y: &mut Buffer) -> Result<()> {
    let b = step.len();
    let step = upload(y.gpu(), [1, b], step)?;
    over(y.gpu(), "axpy_columns", n * b, &args![n * b, b, step, x, y]);
    Ok(())
}

/// `y_ij *= factor_j` for `[n, b]`, `factor` `[b]`.
pub fn scale_columns(n: usize, factor: &[f64], y: &mut Buffer) -> Result<()> {
    let b = factor.len();
    let factor = upload(y.gpu(), [1, b], factor)?;
    over(y.gpu(), "scale_columns", n * b, &args![n * b, b, factor, y]);
    Ok(())
}

/// Copies the columns `from` of `x` `[n, b]` to the columns of `out` `[n, width]` that start at `to`.
pub fn copy_columns(
    n: usize,
    (x, b): (&Buffer, usize),
    from: Range<usize>,
    (out, width): (&mut Buffer, usize),
    to: usize,
) {
    let count = from.len();
    assert!(from.end <= b && to + count <= width, "columns {from:?} of {b} do not fit at {to} of {width}");
    let at = |buffer: &Buffer, column: usize| buffer.pointer() + 8 * column as u64;
    let arguments = args![n, count, at(x, from.start), b, at(out, to), width];
    over(x.gpu(), "copy_columns", n * count, &arguments);
}

/// `out_i ← factor x_ij` in f32 for column j of `x` `[n, b]`, at the address of n numbers.
pub fn round_column([n, b]: [usize; 2], (x, column): (&Buffer, usize), factor: f64, out: u64) {
    let from = x.pointer() + 8 * column as u64;
    over(x.gpu(), "round_column", n, &args![n, b, factor, from, out]);
}

/// `x_ij ← factor v_i` for column j of `x` `[n, b]` and n numbers in f32 at an address.
pub fn put_column([n, b]: [usize; 2], (x, column): (&mut Buffer, usize), factor: f64, values: u64) {
    let to = x.pointer() + 8 * column as u64;
    over(x.gpu(), "put_column", n, &args![n, b, factor, values, to]);
}

/// The list of a part of `n` rows on the device, if it is one, and the first row of a range.
fn upload_part(gpu: &'static Gpu, part: &Part<'_>, n: usize) -> Result<(Option<Buffer>, usize)> {
    if let Some(range) = part.range(n) {
        assert!(range.start <= range.end && range.end <= n, "rows {range:?} of {n}");
        return Ok((None, range.start));
    }
    let number = |&row: &usize| {
        assert!(row < n, "row {row} of {n}");
        u32::try_from(row).expect("a row's number is below 2^32")
    };
    let rows: Vec<u32> = part.list(n).iter().map(number).collect();
    Ok((Some(gpu.upload(&rows, &|| "a list of rows".into(), ADVICE)?), 0))
}

/// `out_i ← x_rows(i)` for rows of `x` `[n, b]`.
pub fn gather_rows((x, [n, b]): (&Buffer, [usize; 2]), rows: &Part<'_>, out: &mut Buffer) -> Result<()> {
    let ((list, first), count) = (upload_part(x.gpu(), rows, n)?, rows.len(n));
    over(x.gpu(), "gather_rows", count * b, &args![count, b, list.as_ref(), first, x, out]);
    Ok(())
}

/// `y_rows(i) ← y_rows(i) + factor x_i` for rows of `y` `[n, b]`.
pub fn scatter_rows(factor: f64, x: &Buffer, rows: &Part<'_>, (y, [n, b]): (&mut Buffer, [usize; 2])) -> Result<()> {
    let ((list, first), count) = (upload_part(y.gpu(), rows, n)?, rows.len(n));
    over(y.gpu(), "scatter_rows", count * b, &args![count, b, list.as_ref(), first, factor, x, y]);
    Ok(())
}

/// `y_ij ← factor_i y_ij` for `y` `[n, b]` and factors `[n, 1]`.
pub fn scale_rows([n, b]: [usize; 2], factors: &Buffer, y: &mut Buffer) {
    over(y.gpu(), "scale_rows", n * b, &args![n * b, b, factors, y]);
}

/// `left_i ← max(left_i − Σ_j x_ij², 0)` for `x` `[n, b]` and `left` `[n, 1]`.
pub fn subtract_row_squares([n, b]: [usize; 2], x: &Buffer, left: &mut Buffer) {
    over(x.gpu(), "subtract_row_squares", n, &args![n, b, x, left]);
}

/// `left_i ← min(left_i, d_i + d'_j − 2k_ij)` over the columns of `k` `[n, b]`, `d` `[n]` and `d'` `[b]`, zero below `share` of the sum.
pub fn lower_to_distances(
    [n, b]: [usize; 2],
    k: &Buffer,
    diagonal: &Buffer,
    of_columns: &[f64],
    share: f64,
    left: &mut Buffer,
) -> Result<()> {
    let of_columns = upload(k.gpu(), [1, b], of_columns)?;
    over(k.gpu(), "lower_to_distances", n, &args![n, b, k, diagonal, of_columns, share, left]);
    Ok(())
}

/// `to` `[n, 2m]` ← amplitude times `(cos t, sin t)` of `t` `[n, m]`.
pub fn waves([n, m]: [usize; 2], amplitude: f64, t: &Buffer, to: &mut Buffer) {
    over(t.gpu(), "waves", n * m, &args![n, m, amplitude, t, to]);
}

/// `y_ii ← y_ii + shift` for `y` `[n, n]`.
pub fn shift_diagonal(n: usize, shift: f64, y: &mut Buffer) {
    over(y.gpu(), "shift_diagonal", n, &args![n, shift, y]);
}

/// `to` `[m, n]` ← the transpose of `from` `[n, m]`, whose numbers are f64 if `double`, else f32.
pub fn transpose([n, m]: [usize; 2], double: bool, from: &Buffer, to: &mut Buffer) {
    let bytes = if double { 8 } else { 4 };
    assert!(from.bytes() >= bytes * n * m && to.bytes() >= 8 * n * m, "transpose: the buffers are too small");
    let name = if double { "transpose_f64" } else { "transpose_f32" };
    let tiles = (n.div_ceil(32) * m.div_ceil(32)) as u32;
    // SAFETY: the buffers hold n·m numbers each.
    unsafe { from.gpu().launch(compiled(), name, [tiles, 1, 1], BLOCK, 0, &args![n, m, from, to]) };
}

/// `to ← from`, f32 numbers in f64.
pub fn widen(total: usize, from: &Buffer, to: &mut Buffer) {
    assert!(from.bytes() >= 4 * total && to.bytes() >= 8 * total, "widen: the buffers are too small");
    over(from.gpu(), "widen", total, &args![total, from, to]);
}

/// `out ← op(A) B` for panels `A` `[n, a]`, or its transpose, and `B` with `b` columns.
pub fn product([n, a, b]: [usize; 3], (left, transposed): (&Buffer, bool), right: &Buffer, out: &mut Buffer) {
    let (gpu, left, right) = (left.gpu(), matrix(left, a), matrix(right, b));
    let ([rows, inner], left) = if transposed { ([a, n], left.t()) } else { ([n, a], left) };
    if inner == 0 {
        return out.zero(0, 8 * rows * b);
    }
    gpu.gemm_f64([rows, inner, b], 1.0, left, right, 0.0, matrix(out, b));
}

/// `out` `[n, m]` ← `A Bᵀ` in `math`, for f32 matrices `A` `[n, p]` and `B` `[m, p]` that begin with these rows of their buffers; the result
/// begins with this element of its buffer.
pub fn row_products(
    math: Math,
    [n, p, m]: [usize; 3],
    [(a, a_row), (b, b_row)]: [(&Buffer, usize); 2],
    (out, first): (&mut Buffer, usize),
) -> Result<()> {
    out.gpu().blas_ready()?;
    let fits = |buffer: &Buffer, rows: usize, width: usize| buffer.bytes() >= 4 * rows * width;
    let inside = fits(a, a_row + n, p) && fits(b, b_row + m, p) && out.bytes() >= 4 * (first + n * m);
    assert!(inside, "row_products: the buffers are too small for [{n}, {p}] and [{m}, {p}]");
    let (gpu, at) = (out.gpu(), |buffer: &Buffer, row: usize| Matrix::new(buffer.pointer() + 4 * (row * p) as u64, p));
    let to = Matrix::new(out.pointer() + 4 * first as u64, m);
    let before = gpu.set_math(math);
    gpu.gemm_f32([n, p, m], 1, 1.0, at(a, a_row), at(b, b_row).t(), 0.0, to);
    gpu.set_math(before);
    Ok(())
}

/// The sum that is taken over each column.
#[derive(Clone, Copy)]
pub enum Sum<'a> {
    /// `Σ_i x_ij y_ij`
    Products(&'a Buffer),
    /// `Σ_i (x_ij − θ_j y_ij)²`, θ `[b]`
    Residuals(&'a Buffer, &'a [f64]),
    /// `Σ_i x_ij`
    Plain,
}

/// Sums over the columns of `x` `[n, b]`; the result `[b]` stays on the device.
fn sums_on_device([n, b]: [usize; 2], x: &Buffer, sum: Sum<'_>) -> Result<Buffer> {
    let gpu = x.gpu();
    let out = allocate(gpu, [1, b])?;
    if b == 0 {
        return Ok(out);
    }
    let chunks = n.div_ceil(CHUNK_ROWS).clamp(1, MAX_CHUNKS);
    let per = n.div_ceil(chunks).max(1);
    let part = allocate(gpu, [chunks, b])?;
    let (kind, y, theta) = match sum {
        Sum::Products(y) => (0i32, y.pointer(), None),
        Sum::Residuals(y, theta) => (1, y.pointer(), Some(upload(gpu, [1, b], theta)?)),
        Sum::Plain => (2, 0, None),
    };
    let width = b.next_power_of_two().min(32);
    let arguments = args![n, b, per, Arg::size(width), kind, x, y, theta.as_ref(), part];
    let grid = [b.div_ceil(width) as u32, chunks as u32, 1];
    // SAFETY: of both launches: the panels are [n, b]; `part` holds b sums of each chunk, and `out` b sums.
    unsafe {
        gpu.launch(compiled(), "column_sums", grid, BLOCK, 0, &arguments);
        gpu.launch(compiled(), "finish_sums", [b as u32, 1, 1], BLOCK, 0, &args![b, chunks, part, out]);
    }
    Ok(out)
}

/// Sums over the columns of `x` `[n, b]`; the result `[b]` is copied to the host.
pub fn column_sums(shape: [usize; 2], x: &Buffer, sum: Sum<'_>) -> Result<Vec<f64>> {
    let sums = sums_on_device(shape, x, sum)?;
    let mut host = vec![0.0; shape[1]];
    sums.read(0, &mut host)?;
    Ok(host)
}

/// Subtracts from each column of `y` `[n, b]` its mean.
pub fn centre([n, b]: [usize; 2], y: &mut Buffer) -> Result<()> {
    let sums = sums_on_device([n, b], y, Sum::Plain)?;
    over(y.gpu(), "subtract_means", n * b, &args![n * b, b, n as f64, sums, y]);
    Ok(())
}

/// Whether `|x| ≤ bound` for all `total` elements.
pub fn all_within(total: usize, bound: f64, x: &Buffer) -> Result<bool> {
    let beyond = x.gpu().status(|flag| {
        over(x.gpu(), "flag_beyond", total, &args![total, bound, x, flag]);
        Ok(())
    })?;
    Ok(beyond == 0)
}

/// Eigenvectors as columns in descending order, `U` `[n, n]`, from cuSOLVER's `v` `[n, n]`: rows in ascending order.
pub fn eigenvectors_as_columns(n: usize, v: &Buffer, u: &mut Buffer) {
    assert!(v.bytes().min(u.bytes()) >= 8 * n * n, "eigenvectors_as_columns: the buffers are too small for n = {n}");
    let tiles = n.div_ceil(32).pow(2) as u32;
    // SAFETY: both buffers hold n² doubles.
    unsafe { v.gpu().launch(compiled(), "eigenvectors_as_columns", [tiles, 1, 1], BLOCK, 0, &args![n, v, u]) };
}
