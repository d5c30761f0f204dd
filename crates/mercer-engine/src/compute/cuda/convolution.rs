//! Convolutions on a GPU: by cuDNN, or by patch matrices and cuBLAS where cuDNN is missing or cannot compute them.

use super::blas::Matrix;
use super::dnn::Direction;
use super::gpu::Gpu;
use super::images::{compiled, over, sum_terms};
use super::launch::{Arg, BLOCK, args};
use super::memory::Buffer;
use super::primitives::scratch;
use crate::compute::Convolution;
use crate::compute::gemm::Store;
use crate::compute::tensor::{Stack, StackMut, Tensor};

/// Largest number of elements of a patch matrix.
const PATCHES: usize = 16 << 20;

/// The address of matrix `j` of a stack.
fn address(stack: Stack<'_>, j: usize) -> u64 {
    stack.tensor.address() + 4 * (stack.offset + j * stack.stride) as u64
}

/// The address of matrix `j`, or of a copy if that address is not a multiple of 16 bytes, and the copy.
fn aligned(gpu: &'static Gpu, stack: Stack<'_>, j: usize) -> Option<(u64, Option<Buffer>)> {
    let address = address(stack, j);
    if address.is_multiple_of(16) {
        return Some((address, None));
    }
    let bytes = 4 * stack.rows * stack.cols;
    let mut copy = scratch(gpu, bytes)?;
    copy.copy_from(0, stack.tensor.buffer()?, 4 * (stack.offset + j * stack.stride), bytes);
    Some((copy.pointer(), Some(copy)))
}

/// Queues a convolution by cuDNN, or by patch matrices. `addresses` are those of x, w and y.
fn convolve(
    gpu: &'static Gpu,
    shape: &Convolution,
    batch: usize,
    direction: Direction,
    addresses: [u64; 3],
    beta: f32,
) {
    let empty = batch * shape.channels * shape.out().iter().product::<usize>() == 0;
    if !empty && !gpu.convolve(shape, batch, direction, addresses, beta) {
        Patches { gpu, shape, batch }.run(direction, addresses, beta);
    }
}

/// `y_j = w_j ⋆ x_j`, or `y_j += w_j ⋆ x_j` with [`Store::Add`].
pub fn forward(gpu: &'static Gpu, shape: &Convolution, x: Stack<'_>, w: Stack<'_>, store: Store, y: &mut Tensor) {
    let (count, batch, n) = y.as_matrices();
    let beta = if store == Store::Add { 1.0 } else { 0.0 };
    for j in 0..count {
        let Some((filters, _held)) = aligned(gpu, w, j) else { return };
        let (from, to) = (address(x, j), y.address() + 4 * (j * batch * n) as u64);
        convolve(gpu, shape, batch, Direction::Forward, [from, filters, to], beta);
    }
}

/// `dx_j = w_jᵀ ⋆ g_j`; with stride 0, dx is the sum over the networks.
pub fn vjp_input(gpu: &'static Gpu, shape: &Convolution, g: &Tensor, w: Stack<'_>, dx: &StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    for j in 0..count {
        let Some((filters, _held)) = aligned(gpu, w, j) else { return };
        let beta = if dx.stride == 0 && j > 0 { 1.0 } else { 0.0 };
        let to = dx.tensor.address() + 4 * (dx.offset + j * dx.stride) as u64;
        let from = g.address() + 4 * (j * batch * n) as u64;
        convolve(gpu, shape, batch, Direction::Input, [to, filters, from], beta);
    }
}

/// `dw_j = Σ_images g_j ⋆ x_j`.
pub fn vjp_weights(gpu: &'static Gpu, shape: &Convolution, x: Stack<'_>, g: &Tensor, dw: &mut StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    let bytes = 4 * shape.channels * shape.patch();
    for j in 0..count {
        let at = 4 * (dw.offset + j * dw.stride);
        let address_of_dw = dw.tensor.address() + at as u64;
        let copy = if address_of_dw.is_multiple_of(16) { None } else { scratch(gpu, bytes) };
        let to = copy.as_ref().map_or(address_of_dw, Buffer::pointer);
        let (image, from) = (address(x, j), g.address() + 4 * (j * batch * n) as u64);
        convolve(gpu, shape, batch, Direction::Weights, [image, to, from], 0.0);
        if let (Some(copy), Some(grad)) = (copy, dw.tensor.buffer_mut()) {
            grad.copy_from(at, &copy, 0, bytes);
        }
    }
}

/// A convolution by patch matrices, a block of images at a time.
struct Patches<'a> {
    gpu: &'static Gpu,
    shape: &'a Convolution,
    batch: usize,
}

impl Patches<'_> {
    fn plane(&self) -> usize {
        self.shape.out().iter().product()
    }

    fn pixels(&self) -> usize {
        self.shape.image.iter().product()
    }

    /// Blocks `(first image, number of images)`, and a buffer for the patches of one block.
    fn blocks(&self) -> Option<(Vec<(usize, usize)>, Buffer)> {
        let per = self.shape.patch() * self.plane();
        let images = (PATCHES / per).clamp(1, self.batch.min(1 << 15));
        let patches = scratch(self.gpu, 4 * images * per)?;
        let block = |first| (first, images.min(self.batch - first));
        Some(((0..self.batch).step_by(images).map(block).collect(), patches))
    }

    /// The first arguments of the kernels: `[per, height, width, size, stride, before, down, across, pixels]`.
    fn sizes(&self) -> [Arg; 9] {
        let Convolution { image: [_, height, width], size, stride, before, .. } = *self.shape;
        let [down, across] = self.shape.out();
        let per = self.shape.patch() * self.plane();
        [per, height, width, size, stride, before, down, across, self.pixels()].map(Arg::size)
    }

    fn gather(&self, images: usize, x: u64, patches: &Buffer) {
        let arguments = args![self.sizes(), x, patches];
        over(self.gpu, "gather_patches", images, self.shape.patch() * self.plane(), &arguments);
    }

    fn scatter(&self, images: usize, patches: &Buffer, beta: f32, x: u64) {
        let arguments = args![self.sizes(), beta != 0.0, patches, x];
        let blocks = self.pixels().div_ceil(BLOCK as usize) as u32;
        self.gpu.launch(compiled(), "scatter_patches", [blocks, images as u32, 1], BLOCK, 0, &arguments);
    }

    /// `w` `[channels, patch]`, `patches` `[images, patch, plane]`, `y` `[images, channels, plane]`.
    fn matrices(&self, w: u64, patches: u64, y: u64) -> [Matrix; 3] {
        let (channels, patch, plane) = (self.shape.channels, self.shape.patch(), self.plane());
        let matrix = |pointer, row_stride, stride| Matrix { stride, ..Matrix::new(pointer, row_stride) };
        [matrix(w, patch, 0), matrix(patches, plane, patch * plane), matrix(y, plane, channels * plane)]
    }

    /// Forward: `y_i = w p_i`. Input: `p_i = wᵀ y_i`, scattered into `x`. Weights: `w = Σ_i y_i p_iᵀ`, summed in the order of
    /// the images.
    fn run(&self, direction: Direction, [x, w, y]: [u64; 3], beta: f32) {
        let Some((blocks, patches)) = self.blocks() else { return };
        let (channels, patch, plane) = (self.shape.channels, self.shape.patch(), self.plane());
        let most = if direction == Direction::Weights { blocks[0].1 } else { 0 };
        let Some(terms) = scratch(self.gpu, 4 * most * channels * patch) else { return };
        for (first, images) in blocks {
            let x = x + 4 * (first * self.pixels()) as u64;
            let [filters, p, y] = self.matrices(w, patches.pointer(), y + 4 * (first * channels * plane) as u64);
            match direction {
                Direction::Forward => {
                    self.gather(images, x, &patches);
                    self.gpu.gemm_f32([channels, patch, plane], images, 1.0, filters, p, beta, y);
                }
                Direction::Input => {
                    self.gpu.gemm_f32([patch, channels, plane], images, 1.0, filters.t(), y, 0.0, p);
                    self.scatter(images, &patches, beta, x);
                }
                Direction::Weights => {
                    self.gather(images, x, &patches);
                    let each = Matrix { pointer: terms.pointer(), stride: channels * patch, ..filters };
                    self.gpu.gemm_f32([channels, plane, patch], images, 1.0, y, p.t(), 0.0, each);
                    let store = if first == 0 { Store::Replace } else { Store::Add };
                    sum_terms(self.gpu, channels * patch, images, store, terms.pointer(), w);
                }
            }
        }
    }
}
