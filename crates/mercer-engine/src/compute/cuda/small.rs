//! CUDA implementations of [`crate::compute::small`]. Shapes have been checked.

use super::blas::Matrix;
use super::gpu::Gpu;
use super::launch::{Arg, BLOCK, args};
use super::memory::Buffer;
use super::module::kernels;
use crate::Result;
use crate::compute::gemm::Store;
use crate::compute::small::{Small, Vector, View, allocate};
use crate::compute::{Control, Tensor};
use std::ops::Range;

kernels!(concat!(include_str!("control.cuh"), include_str!("small.cu"), include_str!("eigh.cu")));

/// Address of the first entry, and numbers from one to the next.
pub(in crate::compute) fn vector(v: Vector<'_>) -> [Arg; 2] {
    [Arg::U64(v.address()), Arg::size(v.stride)]
}

/// Queues a kernel of one block for matrices of order `k`, whose shapes the primitive has compared.
pub(in crate::compute) fn one_block(gpu: &Gpu, name: &'static str, k: usize, arguments: &[Arg]) {
    let threads = if k <= 32 { BLOCK } else { 1024 };
    // SAFETY: the kernel reads and writes matrices whose extents are among its arguments and were compared by the primitive.
    unsafe { gpu.launch(compiled(), name, [1, 1, 1], threads, 0, arguments) };
}

/// Memory for `numbers` floats that lasts for one primitive.
fn floats(gpu: &'static Gpu, numbers: usize) -> Result<Buffer> {
    allocate(gpu, numbers.div_ceil(2))
}

/// The values `part` of `[k, m]`, as a matrix `[k, part]`.
fn columns(t: &Tensor, part: &Range<usize>) -> Matrix {
    Matrix::new(t.address() + 4 * part.start as u64, t.len() / t.shape()[0].max(1))
}

pub(in crate::compute) fn form(
    gpu: &'static Gpu,
    a: &Tensor,
    b: &Tensor,
    part: Range<usize>,
    out: &mut Small,
) -> Result<()> {
    let (k, n) = (a.shape()[0], part.len());
    let product = floats(gpu, k * k)?;
    let (left, right) = (columns(a, &part), columns(b, &part).t());
    gpu.gemm_f32([k, n, k], 1, 1.0 / n as f32, left, right, 0.0, Matrix::new(product.pointer(), k));
    over(gpu, "widen", k * k, &args![k * k, product, out]);
    Ok(())
}

pub(in crate::compute) fn forms(
    gpu: &'static Gpu,
    a: &Tensor,
    b: &Tensor,
    control: &Control,
    c: &mut Small,
    r: &mut Small,
) -> Result<()> {
    let k = a.shape()[0];
    let all = 0..a.len() / k.max(1);
    let products = floats(gpu, 2 * k * k)?;
    for (i, right) in [a, b].into_iter().enumerate() {
        let (left, right) = (columns(a, &all), columns(right, &all).t());
        let out = Matrix::new(products.pointer() + 4 * (i * k * k) as u64, k);
        gpu.gemm_f32([k, all.len(), k], 1, 1.0 / all.len() as f32, left, right, 0.0, out);
    }
    one_block(gpu, "widen_forms", k, &args![Arg::size(k * k), products, control, c, r]);
    Ok(())
}

pub(in crate::compute) fn mix(
    gpu: &'static Gpu,
    by: View<'_>,
    t: &Tensor,
    part: Range<usize>,
    store: Store,
    out: &mut Tensor,
) -> Result<()> {
    let k = t.shape()[0];
    let rounded = floats(gpu, k * k)?;
    over(gpu, "narrow", k * k, &args![k, k, by.scale, by.transposed, by.matrix, rounded]);
    let beta = if store == Store::Add { 1.0 } else { 0.0 };
    let [from, to] = [t, &*out].map(|t| columns(t, &part));
    gpu.gemm_f32([k, k, part.len()], 1, 1.0, Matrix::new(rounded.pointer(), k), from, beta, to);
    Ok(())
}

/// Most sweeps of rotations over a matrix, and most threads of a block that makes them, as in `eigh.cu`.
const SWEEPS: usize = 32;
const THREADS: usize = 768;

/// Shared memory of a block that rotates a matrix of even order `m` in numbers of `size` bytes, and whether it holds the
/// matrix twice.
fn room(gpu: &Gpu, m: usize, size: usize) -> (u32, bool) {
    // The kernels' own shared memory is less than a kilobyte.
    let (turns, matrix) = (size * m, 2 * size * m * (m / 2 + 1));
    let fits = turns + matrix + 1024 <= gpu.shared_memory as usize;
    (if fits { turns + matrix } else { turns } as u32, fits)
}

/// Which eigenpairs are wanted, and how exactly.
pub(in crate::compute) struct Wanted {
    /// The largest of them; estimates will do for the others.
    pub top: usize,
    /// Error of the vectors, relative to the norm of the matrix.
    pub error: f64,
}

/// The error of the batch's eigenvectors: far below the rounding of its matrices, which are sums in `f32`.
const TRAINING_ERROR: f64 = 1e-11;

/// Rotations of a matrix of order `p` that make it diagonal.
struct Jacobi {
    gpu: &'static Gpu,
    p: usize,
    /// p rounded up to even.
    m: usize,
    threads: u32,
    work: Buffer,
    log: Buffer,
    /// Where each eigenvalue goes `[p]`, and the rounds of rotations in the log.
    words: Buffer,
}

impl Jacobi {
    fn new(gpu: &'static Gpu, p: usize) -> Result<Jacobi> {
        let m = p.next_multiple_of(2);
        // As few rounds over the blocks of two pairs as there can be, of equal size.
        let blocks = (m / 2) * (m / 2 + 1) / 2;
        let threads = blocks.div_ceil(blocks.div_ceil(THREADS)).next_multiple_of(32).max(64) as u32;
        let work = allocate(gpu, if room(gpu, m, 8).1 { 1 } else { 2 * m * (m / 2 + 1) })?;
        Ok(Jacobi { gpu, p, m, threads, work, log: floats(gpu, SWEEPS * (m - 1) * m / 2)?, words: floats(gpu, p + 1)? })
    }

    fn count(&self) -> u64 {
        self.words.pointer() + 4 * self.p as u64
    }

    /// Rotates the rows of `start`, or of the identity; column j goes to `place[j]`.
    fn rotate(&self, start: u64, place: u64, out: u64) {
        let arguments = args![Arg::size(self.p), self.log, self.count(), start, place, out];
        // SAFETY: log and words have the sizes of order p; `start` and `out` are matrices `[p, p]`, `place` has p words.
        unsafe {
            self.gpu.launch(compiled(), "rotate_vectors", [self.p as u32, 1, 1], 32, 16 * self.m as u32, &arguments);
        }
    }

    /// Orthogonal `V` and `VᵀAV` `[p, p]`, which is diagonal up to single precision as far as the `top` pairs need it.
    fn nearly(&self, top: usize, a: u64, control: &Control) -> Result<[Buffer; 2]> {
        let [v, out] = [allocate(self.gpu, self.p * self.p)?, allocate(self.gpu, self.p * self.p)?];
        let ((shared, fits), size) = (room(self.gpu, self.m, 4), Arg::size(self.p));
        let arguments = args![size, a, Arg::size(top), fits, self.work, control, self.log, self.count()];
        // SAFETY: `a` is a matrix `[p, p]`; work, log and the shared memory have the sizes of order p.
        unsafe { self.gpu.launch(compiled(), "jacobi_f32", [1, 1, 1], self.threads, shared, &arguments) };
        self.rotate(0, 0, v.pointer());
        self.conjugate(a, &v, &out);
        Ok([v, out])
    }

    /// `out ← VᵀAV`
    fn conjugate(&self, a: u64, v: &Buffer, out: &Buffer) {
        let (p, arguments) = (self.p as u32, args![Arg::size(self.p), a, v, out]);
        // SAFETY: the three matrices are `[p, p]`.
        unsafe { self.gpu.launch(compiled(), "conjugate", [p, 1, 1], 128, 8 * p, &arguments) };
    }
}

/// Eigenvalues to `values` and the eigenvectors to the columns of `vectors` `[p, p]`, at these addresses.
pub(in crate::compute) fn eigenpairs(
    gpu: &'static Gpu,
    p: usize,
    wanted: Wanted,
    a: u64,
    control: &Control,
    values: u64,
    vectors: u64,
) -> Result<()> {
    if p == 0 {
        return Ok(());
    }
    let jacobi = Jacobi::new(gpu, p)?;
    let [v, nearly] = jacobi.nearly(wanted.top, a, control)?;
    let ((shared, fits), Jacobi { work, log, words, .. }) = (room(gpu, jacobi.m, 8), &jacobi);
    let sizes = [p, wanted.top].map(Arg::size);
    let arguments =
        args![sizes[0], nearly, sizes[1], wanted.error, fits, work, control, log, words, jacobi.count(), values];
    // SAFETY: `nearly` is `[p, p]`, `values` has p numbers; work, log, words and the shared memory have the sizes of order p.
    unsafe { gpu.launch(compiled(), "jacobi_f64", [1, 1, 1], jacobi.threads, shared, &arguments) };
    jacobi.rotate(v.pointer(), words.pointer(), vectors);
    Ok(())
}

/// As the host's `host_pairs`, but `W` comes from the Cholesky factor of `VᵀΣV`, which is nearly diagonal, after the
/// directions that are kept were separated from the others: that takes less time than the eigenvalues of Σ. Directions that
/// are left out are zero columns of W.
pub(in crate::compute) fn top_pairs(
    gpu: &'static Gpu,
    sigma: &Small,
    pi: &Small,
    floor: f64,
    control: &Control,
    values: &mut Small,
    vectors: &mut Small,
) -> Result<()> {
    let (p, k) = (sigma.shape()[0], values.shape()[1]);
    let (all, size, kept) = (allocate(gpu, p)?, Arg::size(p), floats(gpu, p + 1)?);
    let rank = kept.pointer() + 4 * p as u64;
    let [l, w, half, t] = [allocate(gpu, p * p)?, allocate(gpu, p * p)?, allocate(gpu, p * p)?, allocate(gpu, p * p)?];
    let square = |m: &Buffer| Matrix::new(m.pointer(), p);
    let jacobi = Jacobi::new(gpu, p)?;
    let [turned, nearly] = jacobi.nearly(p, sigma.address(), control)?;
    one_block(gpu, "away_from_rest", p, &args![size, floor, nearly, half]);
    let v = &t;
    gpu.gemm_f64([p; 3], 1.0, square(&turned), square(&half), 0.0, square(v));
    jacobi.conjugate(sigma.address(), v, &nearly);
    let fits = 8 * p * p + 1024 <= gpu.shared_memory as usize;
    let shared = if fits { 8 * p * p } else { 0 };
    let arguments = args![size, floor, nearly, fits, l, kept, rank];
    // SAFETY: of both launches: the matrices are `[p, p]`, and `kept` has p + 1 words, of which `rank` is the last.
    unsafe {
        gpu.launch(compiled(), "factor_kept", [1, 1, 1], 1024, shared as u32, &arguments);
        gpu.launch(compiled(), "whiten", [p as u32, 1, 1], 32, 8 * p as u32, &args![size, v, l, kept, w]);
    }
    let middle = Matrix::new(pi.address(), p);
    gpu.gemm_f64([p; 3], 1.0, middle, square(&w), 0.0, square(&half));
    gpu.gemm_f64([p; 3], 1.0, square(&w).t(), square(&half), 0.0, square(&t));
    one_block(gpu, "symmetric_part", p, &args![size, kept, t, half]);
    let wanted = Wanted { top: k, error: TRAINING_ERROR };
    eigenpairs(gpu, p, wanted, half.pointer(), control, all.pointer(), l.pointer())?;
    let out = Matrix::new(vectors.address(), k);
    gpu.gemm_f64([p, p, k], 1.0, square(&w), square(&l), 0.0, out);
    one_block(gpu, "take_top", k, &args![Arg::size(k), rank, all, values]);
    Ok(())
}

pub(in crate::compute) fn gram(
    gpu: &'static Gpu,
    a: &Small,
    weights: Option<Vector<'_>>,
    out: &mut Small,
) -> Result<()> {
    let [p, k] = a.shape();
    let scaled = match weights {
        None => None,
        Some(w) => {
            let scaled = allocate(gpu, p * k)?;
            over(gpu, "times_columns", p * k, &args![p, k, a, w.address(), w.stride, scaled]);
            Some(scaled)
        }
    };
    let left = scaled.as_ref().map_or(a.address(), Buffer::pointer);
    let [left, right] = [Matrix::new(left, k), Matrix::new(a.address(), k).t()];
    gpu.gemm_f64([p, k, p], 1.0, left, right, 0.0, Matrix::new(out.address(), p));
    Ok(())
}
