//! How operators that are no kernels act on a batch: what of it is not a matrix product.

use super::gpu::Gpu;
use super::launch::Arg;
use super::module::Source;
use super::primitives::{BLOCK, MOST_BLOCKS, at};
use crate::compute::Tensor;
use std::sync::OnceLock;

pub(super) fn source() -> String {
    include_str!("action.cu").into()
}

fn compiled() -> &'static Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    SOURCE.get_or_init(|| Source::new(source()))
}

/// Queues a kernel that loops over `n` elements.
fn over(gpu: &Gpu, name: &'static str, n: usize, arguments: &[Arg]) {
    let blocks = (n as u64).div_ceil(u64::from(BLOCK)).min(MOST_BLOCKS) as u32;
    gpu.launch(compiled(), name, [blocks, 1, 1], BLOCK, 0, arguments);
}

/// The first `count` rows of `part` `[·, m]`, which are the functions `first, first + 1, …` of S at m values, into columns
/// of `f` `[m, S]`.
pub(crate) fn lay_samples(gpu: &Gpu, part: &Tensor, count: usize, [samples, first]: [usize; 2], f: &mut Tensor) {
    let m = part.shape()[1];
    let sizes = [count, m, samples, first].map(Arg::long);
    over(gpu, "lay_samples", count * m, &[&sizes[..], &[at(part), at(f)]].concat());
}

/// `out ← K[rows, rows]` `[B, B]` of a stored matrix `k` `[n, n]`, with the row numbers (u32 `[B]`) at `rows`.
pub(crate) fn gather_block(gpu: &Gpu, k: &Tensor, rows: u64, out: &mut Tensor) {
    let b = out.shape()[0];
    let arguments = [Arg::long(b), Arg::long(k.shape()[0]), Arg::U64(rows), at(k), at(out)];
    over(gpu, "gather_block", b * b, &arguments);
}
