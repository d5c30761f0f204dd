//! Layer-wise adaptive rates on a GPU. The primitive has checked the shapes.

use super::gpu::Gpu;
use super::launch::{BLOCK, args};
use super::primitives::{compiled, scratch};
use crate::compute::adapt::Adapted;
use crate::compute::tensor::Tensor;

pub fn adapt(gpu: &'static Gpu, tensors: &Adapted, trust: f32, decay: f32, theta: &Tensor, grad: &Tensor) {
    let (pieces, table) = tensors.pieces();
    let Some(part) = scratch(gpu, 16 * pieces) else { return };
    let grid = [pieces as u32, 1, 1];
    // SAFETY: the pieces of the table lie within both buffers, and `part` holds two sums of each.
    unsafe {
        gpu.launch(compiled(), "tensor_sums", grid, BLOCK, 0, &args![decay, table, theta, grad, part]);
        gpu.launch(compiled(), "adapt", grid, BLOCK, 0, &args![trust, decay, table, theta, part, grad]);
    }
}
