//! Views of images and rows on a GPU. The primitive has checked the shapes.

use super::gpu::Gpu;
use super::launch::{Arg, args};
use super::module::Source;
use crate::compute::augment::ViewLayout;
use crate::compute::tensor::Tensor;
use std::sync::OnceLock;

pub(super) fn source() -> String {
    include_str!("views.cu").into()
}

fn compiled() -> &'static Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    SOURCE.get_or_init(|| Source::new(source()))
}

/// Threads of a block, which the kernel's sums count on.
const THREADS: u32 = 256;

/// One block for each view.
pub fn views(gpu: &Gpu, x: &Tensor, views: &Tensor, layout: &ViewLayout, work: &mut Tensor, out: &mut Tensor) {
    let (count, d) = (out.shape()[0], out.shape()[1]);
    let [channels, height, width] = layout.image.unwrap_or([0, 1, 1]);
    let sizes = [count, d, channels, height, width].map(Arg::size);
    let arguments = args![sizes, layout.white, layout.scale, views, layout.centre, x, work, out];
    // SAFETY: `views` has the numbers of each of the views, `x` half as many rows of d numbers, `work` and `out` as many.
    unsafe { gpu.launch(compiled(), "views", [count.min(1 << 16) as u32, 1, 1], THREADS, 0, &arguments) };
}
