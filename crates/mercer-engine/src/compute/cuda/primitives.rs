//! CUDA implementations of the primitives. Shapes have been checked by the primitive itself.

use super::blas::Matrix;
use super::gpu::Gpu;
use super::images::sum_terms;
use super::launch::{Arg, BLOCK, MOST_BLOCKS, args};
use super::memory::Buffer;
use super::module::kernels;
use crate::compute::formula::device_functions;
use crate::compute::gemm::Store;
use crate::compute::stack::{Stack, StackMut};
use crate::compute::tensor::Tensor;
use crate::compute::update::Rule;
use crate::rng::Rng;

/// Rows that one block sums; more are cut into chunks.
const CHUNK_ROWS: usize = 1024;
/// Numbers of the products that are summed over a stack at a time.
const PRODUCTS: usize = 16 << 20;

kernels!(format!("{}\n{}", device_functions(), include_str!("primitives.cu")));

/// Memory for the length of one primitive. Where it is missing, the next transfer or check returns the error.
pub fn scratch(gpu: &'static Gpu, bytes: usize) -> Option<Buffer> {
    let buffer = gpu.allocate(bytes, &|| "partial sums".into(), "use a smaller batch");
    buffer.map_err(|e| gpu.defer(e)).ok()
}

impl Gpu {
    /// Queues `y ← y + α x` on `n` doubles at these addresses.
    ///
    /// # Safety
    /// There must be `n` doubles of device memory at both addresses until the work is done.
    pub unsafe fn add_f64(&self, n: usize, alpha: f64, x: u64, y: u64) {
        over(self, "add_f64", n, &args![n, alpha, x, y]);
    }
}

/// The law of a random fill.
#[derive(Clone, Copy)]
pub enum Law {
    Normal,
    Rademacher,
}

/// Random numbers by a counter-based generator whose key is the next number of `rng`.
pub fn fill_random(gpu: &Gpu, y: &mut Tensor, law: Law, rng: &mut Rng) {
    over(gpu, "fill_random", y.len().div_ceil(4), &args![y.len(), rng.next_u64(), law as i32, y]);
}

pub fn transpose(gpu: &Gpu, x: &Tensor, out: &mut Tensor) {
    let (count, m, n) = x.as_matrices();
    transpose_at(gpu, [count, m, n], (x.address(), m * n), out.address());
}

/// The transposes of `count` matrices `[m, n]`, which lie `stride` apart, one after the other.
pub(super) fn transpose_at(gpu: &Gpu, [count, m, n]: [usize; 3], (x, stride): (u64, usize), out: u64) {
    let tiles = m.div_ceil(32) * n.div_ceil(32);
    // SAFETY: the callers have found `count` matrices of m·n elements at both addresses.
    unsafe {
        gpu.launch(compiled(), "transpose", [tiles as u32, count as u32, 1], 256, 0, &args![m, n, x, stride, out])
    };
}

/// `size` numbers of each of `count` matrices at `x` as bf16 at `out`, `stride` from one matrix to the next.
pub(super) fn to_bf16(gpu: &Gpu, [count, size]: [usize; 2], x: Matrix, out: u64, stride: usize) {
    let arguments = args![size, x.pointer, x.stride, out, stride];
    gpu.over(compiled(), "to_bf16", [size.div_ceil(4), count], &arguments);
}

fn matrix(stack: Stack<'_>) -> Matrix {
    let pointer = stack.tensor.address() + 4 * stack.offset as u64;
    Matrix { pointer, row_stride: stack.cols, stride: stack.stride, transposed: stack.transposed }
}

/// `C_j ← α a_j b_jᵀ + β C_j`, a product over one element, which takes as long as writing C.
fn outer(gpu: &Gpu, [m, n]: [usize; 2], count: usize, [alpha, beta]: [f32; 2], [a, b, c]: [Matrix; 3]) {
    let fours = n.is_multiple_of(4) && c.stride.is_multiple_of(4) && c.pointer.is_multiple_of(16);
    let arguments = args![m, n, alpha, a.pointer, a.stride, b.pointer, b.stride, beta, c.pointer, c.stride];
    let rows = (m as u64).min(MOST_BLOCKS) as u32;
    let name = if fours { "outer_4" } else { "outer_1" };
    // SAFETY: `gemm` has found `count` matrices of these shapes within their tensors; the kernel loops over the m rows.
    unsafe { gpu.launch(compiled(), name, [rows, count as u32, 1], BLOCK, 0, &arguments) };
}

pub fn gemm(gpu: &'static Gpu, alpha: f32, a: Stack<'_>, b: Stack<'_>, store: Store, c: &mut StackMut<'_>) {
    let shape = [a.rows(), a.cols(), b.cols()];
    let (count, terms) = (c.count, c.terms);
    let out = Matrix { stride: c.stride, ..Matrix::new(place(c).0, c.cols) };
    let beta = if store == Store::Add { 1.0 } else { 0.0 };
    if shape[1] == 1 && terms == 1 {
        outer(gpu, [shape[0], shape[2]], count, [alpha, beta], [matrix(a), matrix(b), out]);
    } else if terms > 1 {
        sum_of_products(gpu, shape, terms, alpha, [matrix(a), matrix(b), out], store);
    } else {
        gpu.gemm_f32(shape, count, alpha, matrix(a), matrix(b), beta, out);
    }
}

/// `C = α Σ_j A_j B_j`, or that added: as many products side by side as [`PRODUCTS`] holds, then their sum in order.
fn sum_of_products(
    gpu: &'static Gpu,
    shape: [usize; 3],
    terms: usize,
    alpha: f32,
    [a, b, c]: [Matrix; 3],
    store: Store,
) {
    let per = shape[0] * shape[2];
    let some = (PRODUCTS / per.max(1)).clamp(1, terms);
    let step = |m: Matrix, j: usize| Matrix { pointer: m.pointer + 4 * (j * m.stride) as u64, ..m };
    for first in (0..terms).step_by(some) {
        let (count, store) = (some.min(terms - first), if first == 0 { store } else { Store::Add });
        let (a, b) = (step(a, first), step(b, first));
        if count == 1 {
            gpu.gemm_f32(shape, 1, alpha, a, b, if store == Store::Add { 1.0 } else { 0.0 }, c);
            continue;
        }
        let Some(products) = scratch(gpu, 4 * count * per) else { return };
        let each = Matrix { stride: per, ..Matrix::new(products.pointer(), shape[2]) };
        gpu.gemm_f32(shape, count, alpha, a, b, 0.0, each);
        sum_terms(gpu, per, count, store, products.pointer(), c.pointer);
    }
}

/// What a pass over columns sums.
#[derive(Clone, Copy, PartialEq)]
enum Sum {
    Products = 0,
    /// `x ← x ∘ y` first, if there is a y.
    Scaled = 2,
}

/// What becomes of the sums.
#[derive(Clone, Copy)]
enum Finish {
    AsTheyAre = 0,
    InverseRoot = 1,
    Mean = 2,
}

/// Sums over the rows of `count` matrices `[m, n]` at the address `x` (and `y`, if not 0), finished into `out + j·stride`.
fn column_sums(
    gpu: &'static Gpu,
    (count, m, n): (usize, usize, usize),
    sum: Sum,
    [x, y]: [u64; 2],
    finish: Finish,
    (out, stride): (u64, usize),
) {
    if count * n == 0 {
        return;
    }
    // A few long columns are cut up to fill the device; many columns are not.
    let wanted = (1056usize).div_ceil(count * n.div_ceil(32)).clamp(1, m.div_ceil(CHUNK_ROWS).max(1));
    let per = m.div_ceil(wanted).max(1);
    let chunks = m.div_ceil(per).max(1);
    let Some(part) = scratch(gpu, 4 * count * chunks * n) else { return };
    let (name, across, arguments) = if n == 1 {
        ("vector_sums", 1, args![m, per, sum as i32, x, y, part])
    } else if sum == Sum::Scaled && y != 0 && n.is_multiple_of(4) {
        ("slope_sums", n.div_ceil(128), args![m, n, per, x, y, part])
    } else {
        ("column_sums", n.div_ceil(32), args![m, n, per, sum as i32, x, y, part])
    };
    // SAFETY: there are `count` matrices [m, n] at x, and at y unless it is 0; `part` holds n sums of each chunk of each.
    unsafe { gpu.launch(compiled(), name, [across as u32, count as u32, chunks as u32], 256, 0, &arguments) };
    over(gpu, "finish_sums", count * n, &args![count, n, chunks, m, finish as i32, part, out, stride]);
}

/// Adds up the `chunks` partial sums of each of `n` columns of `count` matrices, `[count, chunks, n]`, into `out + j·stride`.
pub(super) fn finish_sums(gpu: &Gpu, [count, n, chunks]: [usize; 3], part: &Buffer, (out, stride): (u64, usize)) {
    let rows = 1usize; // Only means divide by it.
    let finish = Finish::AsTheyAre as i32;
    over(gpu, "finish_sums", count * n, &args![count, n, chunks, rows, finish, part, out, stride]);
}

pub fn activation_vjp(gpu: &'static Gpu, g: &mut Tensor, slope: Option<&Tensor>, bias_grad: &StackMut<'_>) {
    let from = [g.address(), slope.map_or(0, Tensor::address)];
    column_sums(gpu, g.as_matrices(), Sum::Scaled, from, Finish::AsTheyAre, place(bias_grad));
}

/// Address and stride of writable matrices.
pub(super) fn place(stack: &StackMut<'_>) -> (u64, usize) {
    (stack.tensor.address() + 4 * stack.offset as u64, stack.stride)
}

pub fn l2_norm(gpu: &'static Gpu, y: &mut Tensor, factor: &mut Tensor) {
    let ((_, m, n), from) = (y.as_matrices(), [y.address(); 2]);
    column_sums(gpu, y.as_matrices(), Sum::Products, from, Finish::InverseRoot, (factor.address(), n));
    over(gpu, "scale_columns", y.len(), &args![y.len(), m * n, n, factor, n, y]);
}

pub fn l2_norm_tangent(gpu: &'static Gpu, y: &Tensor, factor: &Tensor, t: &mut Tensor, work: &mut Tensor) {
    let ((_, m, n), from) = (t.as_matrices(), [y.address(), t.address()]);
    column_sums(gpu, t.as_matrices(), Sum::Products, from, Finish::Mean, (work.address(), n));
    over(gpu, "norm_tangent", t.len(), &args![t.len(), m * n, n, y, factor, work, t]);
}

pub fn centre(gpu: &'static Gpu, y: &mut Tensor, mean: &mut Tensor) {
    let ((_, m, n), from) = (y.as_matrices(), [y.address(), 0]);
    column_sums(gpu, y.as_matrices(), Sum::Scaled, from, Finish::Mean, (mean.address(), n));
    over(gpu, "subtract_columns", y.len(), &args![y.len(), m * n, n, mean, y]);
}

/// At most this many partial sums of squares.
const MOST_SQUARES: u32 = 1024;

/// Partial sums of squares of `x` as doubles at `part`; how many there are, at most 1024.
pub fn square_sums(gpu: &Gpu, x: &Tensor, part: u64) -> u32 {
    let blocks = (x.len() as u64).div_ceil(4 * u64::from(BLOCK)).clamp(1, u64::from(MOST_SQUARES)) as u32;
    // SAFETY: the kernel reads the elements of x; both callers have room for MOST_SQUARES sums at `part`.
    unsafe { gpu.launch(compiled(), "sum_squares", [blocks, 1, 1], BLOCK, 0, &args![x.len(), x, part]) };
    blocks
}

pub fn sum_squares(gpu: &'static Gpu, x: &Tensor, out: &mut Tensor) {
    let Some(part) = scratch(gpu, 8 * MOST_SQUARES as usize) else { return };
    let blocks = square_sums(gpu, x, part.pointer());
    // SAFETY: `part` holds as many sums, and `out` one number.
    unsafe { gpu.launch(compiled(), "finish_squares", [1, 1, 1], BLOCK, 0, &args![blocks as i32, part, out]) };
}

/// Waits for the answer; whether the device failed is for the next transfer to say.
pub fn all_finite(gpu: &'static Gpu, x: &Tensor) -> bool {
    let bad = gpu.status(|bad| {
        over(gpu, "any_not_finite", x.len(), &args![x.len(), x, bad]);
        Ok(())
    });
    bad.map_err(|e| gpu.defer(e)) == Ok(0)
}

/// The learning rate and Adam's corrections of one step, as the kernel reads them.
pub fn scalars(rule: Rule, eta: f32, t: u64) -> [f32; 3] {
    let correction = |beta: f32| (1.0 / (1.0 - f64::from(beta).powf(t as f64))) as f32;
    match rule {
        Rule::Adam { beta1, beta2, .. } => [eta, correction(beta1), correction(beta2)],
        _ => [eta, 1.0, 1.0],
    }
}

/// A step whose scalars lie on the device at `scalars`. With `guard`, the address of the gradient's squared norm, a step
/// whose gradient is not finite is not made.
#[allow(clippy::too_many_arguments)]
pub fn update_at(
    gpu: &Gpu,
    rule: Rule,
    scalars: u64,
    clip: Option<f32>,
    norm: u64,
    theta: &mut Tensor,
    grad: &Tensor,
    m: &mut Tensor,
    v: &mut Tensor,
) {
    let (kind, a, b, epsilon, decay) = match rule {
        Rule::Sgd { momentum, weight_decay } => (0i32, momentum, 0.0, 0.0, weight_decay),
        Rule::Lars { momentum, .. } => (0, momentum, 0.0, 0.0, 0.0),
        Rule::RmsProp { decay, epsilon } => (1, decay, 0.0, epsilon, 0.0),
        Rule::Adam { beta1, beta2, epsilon, weight_decay } => (2, beta1, beta2, epsilon, weight_decay),
    };
    let bound = clip.unwrap_or(f32::INFINITY);
    let numbers = args![theta.len(), kind, a, b, epsilon, decay, scalars, norm, bound, norm != 0];
    let arguments = [numbers, args![theta, grad, m, v]].concat();
    over(gpu, "update", theta.len().div_ceil(4), &arguments);
}
