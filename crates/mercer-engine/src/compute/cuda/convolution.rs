//! Convolutions on a GPU: by cuDNN, or by patch matrices and cuBLAS where cuDNN is missing or cannot compute them.

use super::blas::Matrix;
use super::dnn::{Direction, Job};
use super::gpu::Gpu;
use super::images::{over_networks, sum_terms};
use super::launch::{Arg, args};
use super::memory::Buffer;
use super::primitives::scratch;
use crate::compute::Convolution;
use crate::compute::gemm::Store;
use crate::compute::stack::{Stack, StackMut};
use crate::compute::tensor::Tensor;

/// Largest number of elements of a patch matrix.
const PATCHES: usize = 16 << 20;
/// Largest number of images of one kernel.
const IMAGES: usize = 1 << 15;

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

/// Queues a convolution by cuDNN, or by patch matrices.
fn convolve(gpu: &'static Gpu, job: Job<'_>) {
    let empty = job.batch * job.shape.channels * job.shape.plane_out() == 0;
    if !empty && !gpu.convolve(job) {
        convolve_patches(gpu, job);
    }
}

/// `y_j = w_j ⋆ x_j`, or `y_j += w_j ⋆ x_j` with [`Store::Add`].
pub fn forward(gpu: &'static Gpu, shape: &Convolution, x: Stack<'_>, w: Stack<'_>, store: Store, y: &mut Tensor) {
    let (count, batch, n) = y.as_matrices();
    let beta = if store == Store::Add { 1.0 } else { 0.0 };
    for j in 0..count {
        let Some((filters, _held)) = aligned(gpu, w, j) else { return };
        let addresses = [address(x, j), filters, y.address() + 4 * (j * batch * n) as u64];
        convolve(gpu, Job { shape, batch, direction: Direction::Forward, addresses, beta });
    }
}

/// `dx_j = w_jᵀ ⋆ g_j`, or their sum over the networks.
pub fn vjp_input(gpu: &'static Gpu, shape: &Convolution, g: &Tensor, w: Stack<'_>, dx: &StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    for j in 0..count {
        let Some((filters, _held)) = aligned(gpu, w, j) else { return };
        let beta = if j % dx.terms > 0 { 1.0 } else { 0.0 };
        let to = dx.tensor.address() + 4 * (dx.offset + j / dx.terms * dx.stride) as u64;
        let addresses = [to, filters, g.address() + 4 * (j * batch * n) as u64];
        convolve(gpu, Job { shape, batch, direction: Direction::Input, addresses, beta });
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
        let addresses = [address(x, j), to, g.address() + 4 * (j * batch * n) as u64];
        convolve(gpu, Job { shape, batch, direction: Direction::Weights, addresses, beta: 0.0 });
        if let (Some(copy), Some(grad)) = (copy, dw.tensor.buffer_mut()) {
            grad.copy_from(at, &copy, 0, bytes);
        }
    }
}

/// Queues the kernel that fills `images` patch matrices at the address `to` from the images at `x`.
fn gather(gpu: &'static Gpu, shape: &Convolution, images: usize, x: u64, to: u64) {
    let per = shape.patch() * shape.plane_out();
    over_networks(gpu, "gather_patches", images, per, &args![sizes(shape), x, to]);
}

/// The patches `[batch, patch, height·width]` of images.
pub fn patches(gpu: &'static Gpu, shape: &Convolution, x: Stack<'_>, out: &Tensor) {
    let (pixels, per) = (shape.pixels_in(), shape.patch() * shape.plane_out());
    for first in (0..x.rows).step_by(IMAGES) {
        let [from, to] =
            [(address(x, 0), pixels), (out.address(), per)].map(|(at, size)| at + 4 * (first * size) as u64);
        gather(gpu, shape, IMAGES.min(x.rows - first), from, to);
    }
}

/// The numbers of a shape that the kernels on patches take.
fn sizes(shape: &Convolution) -> [Arg; 10] {
    let Convolution { image: [_, height, width], size, stride, before, .. } = *shape;
    let ([down, across], per) = (shape.out(), shape.patch() * shape.plane_out());
    [per, height, width, size, stride, before[0], before[1], down, across, shape.pixels_in()].map(Arg::size)
}

/// A convolution by patch matrices, a block of images at a time. Forward: `y_i = w p_i`. Input: `p_i = wᵀ y_i`, scattered
/// into `x`. Weights: `w = Σ_i y_i p_iᵀ`, summed in the order of the images.
fn convolve_patches(gpu: &'static Gpu, job: Job<'_>) {
    let Job { shape, batch, direction, addresses: [x, w, y], beta } = job;
    let (channels, plane, patch, pixels) = (shape.channels, shape.plane_out(), shape.patch(), shape.pixels_in());
    let per = patch * plane;
    let most = (PATCHES / per).clamp(1, batch.min(IMAGES));
    let sum = if direction == Direction::Weights { most * channels * patch } else { 0 };
    let (Some(patches), Some(terms)) = (scratch(gpu, 4 * most * per), scratch(gpu, 4 * sum)) else { return };
    let matrix = |pointer, row_stride, stride| Matrix { stride, ..Matrix::new(pointer, row_stride) };
    for first in (0..batch).step_by(most) {
        let images = most.min(batch - first);
        let x = x + 4 * (first * pixels) as u64;
        // w [channels, patch], p [images, patch, plane], y [images, channels, plane]
        let filters = matrix(w, patch, 0);
        let p = matrix(patches.pointer(), plane, per);
        let y = matrix(y + 4 * (first * channels * plane) as u64, plane, channels * plane);
        if direction != Direction::Input {
            gather(gpu, shape, images, x, patches.pointer());
        }
        match direction {
            Direction::Forward => gpu.gemm_f32([channels, patch, plane], images, 1.0, filters, p, beta, y),
            Direction::Input => {
                gpu.gemm_f32([patch, channels, plane], images, 1.0, filters.t(), y, 0.0, p);
                over_networks(gpu, "scatter_patches", images, pixels, &args![sizes(shape), beta != 0.0, patches, x]);
            }
            Direction::Weights => {
                let each = matrix(terms.pointer(), patch, channels * patch);
                gpu.gemm_f32([channels, plane, patch], images, 1.0, y, p.t(), 0.0, each);
                let store = if first == 0 { Store::Replace } else { Store::Add };
                sum_terms(gpu, channels * patch, images, store, terms.pointer(), w);
            }
        }
    }
}
