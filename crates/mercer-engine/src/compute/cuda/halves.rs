//! Images in bf16 on a GPU: batch norm by own kernels, convolutions by cuDNN. The primitives have checked the shapes.

use super::dnn;
pub use super::dnn::Direction;
use super::gpu::Gpu;
use super::images::out;
use super::launch::{Arg, BLOCK, args, vectors};
use super::memory::Buffer;
use super::module::kernels;
use super::primitives::scratch;
use crate::compute::halves::{CHANNELS, HalfNorm, Halves};
use crate::compute::stack::{Stack, StackMut};
use crate::compute::tensor::Tensor;
use crate::compute::{Convolution, EPSILON};

kernels!(format!("constexpr float EPSILON = {EPSILON:e}f;\n{}", include_str!("halves.cu")));

/// Most blocks of the kernels: as many as the registers of 132 multiprocessors hold at once, or twice that where no sums follow.
const MOMENTS: usize = 5 * 132;
const FORWARD: usize = 8 * 132;
const SUMS: usize = 2 * 132;
const BACK: usize = 6 * 132;

/// Whether cuDNN is there, and tensor cores that multiply bf16.
pub fn available(gpu: &Gpu) -> bool {
    gpu.architecture >= 80 && dnn::version().is_some()
}

pub fn images(gpu: &Gpu, x: &Tensor, [count, channels, plane, padded]: [usize; 4], to: &Halves) {
    let groups = padded / CHANNELS;
    let sizes = [count, channels, plane, groups].map(Arg::size);
    over(gpu, "images", count * plane * groups, &args![sizes, x, to]);
}

pub fn filters(gpu: &Gpu, w: Stack<'_>, [rows, channels, taps, padded]: [usize; 4], to: &Halves) {
    let sizes = [rows, channels, taps, padded].map(Arg::size);
    over(gpu, "filters", rows * taps * padded, &args![sizes, vectors(Some(w))[0], to]);
}

pub fn filter_gradient(gpu: &Gpu, dw: &Halves, [rows, channels, taps, padded]: [usize; 4], grad: &StackMut<'_>) {
    let sizes = [rows, channels, taps, padded].map(Arg::size);
    over(gpu, "filter_gradient", rows * channels * taps, &args![sizes, dw, out(grad)[0]]);
}

/// Addresses of x, w and y; `direction` says which of them is the result.
pub fn convolve(gpu: &'static Gpu, shape: &Convolution, batch: usize, direction: Direction, [x, w, y]: [&Halves; 3]) {
    gpu.convolve_halves(shape, batch, direction, [x, w, y].map(Halves::address));
}

/// Rows and packs of a row of an array `[·, channels]`.
fn sizes(z: &Halves, channels: usize) -> [usize; 2] {
    [z.len() / channels, channels / CHANNELS]
}

/// Queues a kernel in which a block has 256/groups rows side by side; `most` blocks at most. Its arguments are `[rows, groups]`, then
/// `arguments`. Returns the number of blocks.
fn over_rows(gpu: &Gpu, name: &'static str, [rows, groups]: [usize; 2], most: usize, arguments: &[Arg]) {
    let blocks = blocks([rows, groups], most);
    let arguments = [&[rows, groups].map(Arg::size)[..], arguments].concat();
    // SAFETY: the arrays have `rows` rows of `groups` packs, and room for the sums of as many blocks where the kernel writes them.
    unsafe { gpu.launch(compiled(), name, [blocks as u32, 1, 1], BLOCK, 0, &arguments) };
}

fn blocks([rows, groups]: [usize; 2], most: usize) -> usize {
    rows.div_ceil(BLOCK as usize / groups).clamp(1, most)
}

/// Room for two sums of each channel of each block.
fn parts(gpu: &'static Gpu, size: [usize; 2], most: usize) -> Option<Buffer> {
    scratch(gpu, 4 * 2 * CHANNELS * size[1] * blocks(size, most))
}

/// Queues a kernel that adds up the sums of all blocks, eight channels a block.
fn finish(gpu: &Gpu, name: &'static str, [_, groups]: [usize; 2], arguments: &[Arg]) {
    // SAFETY: there are `CHANNELS` channels a group, and two sums of each channel of each block.
    unsafe { gpu.launch(compiled(), name, [groups as u32, 1, 1], BLOCK, 0, arguments) };
}

pub fn statistics(gpu: &'static Gpu, z: &Halves, statistics: &Tensor) {
    let channels = statistics.len() / 2;
    let size = sizes(z, channels);
    let Some(part) = parts(gpu, size, MOMENTS) else { return };
    over_rows(gpu, "moments", size, MOMENTS, &args![z, part]);
    let numbers = [size[0], channels, blocks(size, MOMENTS)].map(Arg::size);
    finish(gpu, "finish_moments", size, &args![numbers, z, part, statistics]);
}

/// The arguments that all kernels of a batch norm begin with.
fn normal(norm: HalfNorm<'_>) -> Vec<Arg> {
    args![norm.relu, norm.z, norm.statistics, vectors(Some(norm.affine))[0]]
}

pub fn batch_norm(gpu: &Gpu, norm: HalfNorm<'_>, plus: Option<&Halves>, y: &Halves) {
    let arguments = [normal(norm), args![plus, y]].concat();
    over_rows(gpu, "batch_norm", sizes(y, norm.channels()), FORWARD, &arguments);
}

pub fn batch_norm_vjp(
    gpu: &'static Gpu,
    norm: HalfNorm<'_>,
    g: &Halves,
    more: Option<&Halves>,
    grad: &StackMut<'_>,
    added: Option<(&Halves, &mut Halves)>,
) {
    let size = sizes(norm.z, norm.channels());
    let Some(part) = parts(gpu, size, SUMS) else { return };
    let (grad, none) = (out(grad)[0], None::<&Halves>);
    // With a sum, the gradient behind the ReLU is stored by the first kernel, and the second has no ReLU to look at.
    let (y, kept) = added.as_ref().map_or((none, none), |(y, _)| (Some(*y), Some(g)));
    over_rows(gpu, "batch_norm_sums", size, SUMS, &[normal(norm), args![y, g, more, kept, part]].concat());
    let numbers = [norm.channels(), blocks(size, SUMS)].map(Arg::size);
    finish(gpu, "finish_sums", size, &args![numbers, part, norm.statistics, grad]);
    let (rest, more, dz) = match &added {
        Some((_, dz)) => (HalfNorm { relu: false, ..norm }, none, &**dz),
        None => (norm, more, g),
    };
    over_rows(gpu, "batch_norm_back", size, BACK, &[normal(rest), args![grad, g, more, dz]].concat());
}

pub fn means(gpu: &Gpu, x: &Halves, plane: usize, y: &Tensor) {
    let (_, count, channels) = y.as_matrices();
    let groups = channels / CHANNELS;
    over(gpu, "means", count * groups, &args![[count, plane, groups].map(Arg::size), x, y]);
}

pub fn means_vjp(gpu: &Gpu, g: &Tensor, plane: usize, dx: &Halves) {
    let (_, count, channels) = g.as_matrices();
    let groups = channels / CHANNELS;
    over(gpu, "means_back", count * plane * groups, &args![[count, plane, groups].map(Arg::size), g, dx]);
}
