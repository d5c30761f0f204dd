//! Batch norm, pooling, softmax cross-entropy, augmentation and broadcasting on a GPU. The primitives have checked the shapes.

use super::gpu::Gpu;
use super::launch::{Arg, args, vectors};
use super::memory::Buffer;
use super::module::{Source, kernels};
use super::primitives::scratch;
use crate::compute::formula::device_functions;
use crate::compute::gemm::Store;
use crate::compute::stack::{Stack, StackMut};
use crate::compute::tensor::Tensor;
use crate::compute::{Activation, EPSILON, Normalized, Pool};
use std::sync::OnceLock;

/// Least number of elements that one block sums. Larger channels are split to fill the device.
const CHUNK: usize = 2048;
/// Number of blocks that fills any device.
const BLOCKS: usize = 264;

kernels!(include_str!("images.cu"));

/// Queues a kernel that loops over the `per` elements of each of `count` networks.
pub fn over_networks(gpu: &Gpu, name: &'static str, count: usize, per: usize, arguments: &[Arg]) {
    gpu.over(compiled(), name, [per, count], arguments);
}

/// The source of the kernels on channels, which access `pack` elements at a time: 1 or 4.
pub(super) fn channels_source(pack: usize) -> String {
    let functions = device_functions();
    format!("#define V {pack}\nconstexpr float EPSILON = {EPSILON:e}f;\n{functions}\n{}", include_str!("channels.cu"))
}

fn channels(pack: usize) -> &'static Source {
    static SOURCES: [OnceLock<Source>; 2] = [const { OnceLock::new() }; 2];
    SOURCES[usize::from(pack == 4)].get_or_init(|| Source::new(channels_source(pack)))
}

/// Address and stride of writable matrices.
pub fn out(stack: &StackMut<'_>) -> [Arg; 2] {
    [Arg::U64(stack.tensor.address() + 4 * stack.offset as u64), Arg::long(stack.stride)]
}

/// Address and stride of the matrices of a tensor.
fn whole(tensor: &Tensor) -> [Arg; 2] {
    let (_, rows, n) = tensor.as_matrices();
    [Arg::U64(tensor.address()), Arg::long(rows * n)]
}

/// The shape of a tensor `[count, rows, channels·plane]`. Kernels access `pack` elements at a time.
#[derive(Clone, Copy)]
struct Channels {
    count: usize,
    rows: usize,
    channels: usize,
    plane: usize,
    pack: usize,
}

impl Channels {
    /// `arrays` are the addresses and strides of all arrays that the kernel accesses.
    fn new((count, rows, n): (usize, usize, usize), channels: usize, arrays: &[[Arg; 2]]) -> Channels {
        let aligned = |array: &[Arg; 2]| matches!(array, [Arg::U64(address), Arg::U64(stride)] if address % 16 == 0 && stride % 4 == 0);
        let plane = n / channels;
        let pack = if plane.is_multiple_of(4) && arrays.iter().all(aligned) { 4 } else { 1 };
        Channels { count, rows, channels, plane, pack }
    }

    /// 1 / (number of elements of a channel).
    fn share(&self) -> f32 {
        1.0 / (self.rows * self.plane) as f32
    }

    /// `(chunks, rows of a chunk)` of a sum over one channel.
    fn chunks(&self) -> (usize, usize) {
        let most = (self.rows * self.plane).div_ceil(CHUNK).clamp(1, self.rows.max(1));
        let wanted = BLOCKS.div_ceil(self.count * self.channels).clamp(1, most);
        let per = self.rows.div_ceil(wanted).max(1);
        (self.rows.div_ceil(per).max(1), per)
    }

    /// Queues a kernel that loops over packs. Its arguments are `[per, channels, plane]`, then `arguments`.
    fn over(&self, gpu: &Gpu, name: &'static str, count: usize, arguments: &[Arg]) {
        let per = self.rows * self.channels * self.plane / self.pack;
        let sizes = [per, self.channels, self.plane / self.pack].map(Arg::size);
        gpu.over(channels(self.pack), name, [per, count], &[&sizes[..], arguments].concat());
    }

    /// Two partial sums for each channel and chunk. The kernel's arguments are `[rows, channels, plane, rows of a chunk]`,
    /// then `arguments`, then the result.
    fn partial(&self, gpu: &'static Gpu, name: &'static str, arguments: &[Arg]) -> Option<Buffer> {
        let (chunks, per) = self.chunks();
        let part = scratch(gpu, 8 * self.count * self.channels * chunks)?;
        let sizes = [self.rows, self.channels, self.plane / self.pack, per].map(Arg::size);
        let arguments = [&sizes[..], arguments, &[Arg::from(&part)]].concat();
        let grid = [self.channels as u32, self.count as u32, chunks as u32];
        // SAFETY: the arrays have the shape of `self`, and `part` two numbers for each channel and chunk of each network.
        unsafe { gpu.launch(channels(self.pack), name, grid, 256, 0, &arguments) };
        Some(part)
    }

    /// Queues a kernel that combines the partial sums of each channel.
    fn finish(&self, gpu: &Gpu, name: &'static str, arguments: &[Arg]) {
        gpu.over(channels(self.pack), name, [self.channels, self.count], arguments);
    }

    /// `(Σ g x̂, Σ g)` of each channel into `out` `[k, 2, channels]`; without `x` only `Σ g` into `[k, channels]`.
    fn dots(&self, gpu: &'static Gpu, x: [Arg; 2], statistics: [Arg; 2], g: [Arg; 2], out: [Arg; 2]) {
        let Some(part) = self.partial(gpu, "dots", &args![x, statistics, g]) else { return };
        let sizes = [self.channels, self.chunks().0].map(Arg::size);
        self.finish(gpu, "finish_dots", &args![sizes, part, statistics, out]);
    }
}

/// Queues a kernel that loops over packs of `t` `[k, b, n]`, with channels of `plane` elements. Its arguments are
/// `[packs, packs of a row, plane]`, then `arguments`.
fn over_rows(gpu: &Gpu, name: &'static str, t: &Tensor, plane: usize, arguments: &[Arg]) {
    let (count, batch, n) = t.as_matrices();
    let pack = if n.is_multiple_of(4) { 4 } else { 1 };
    let sizes = [batch * n / pack, n / pack, plane].map(Arg::size);
    gpu.over(channels(pack), name, [batch * n / pack, count], &[&sizes[..], arguments].concat());
}

pub fn channel_bias_activation(
    gpu: &Gpu,
    plane: usize,
    bias: Option<Stack<'_>>,
    phi: Activation,
    y: &mut Tensor,
    slope: Option<&mut Tensor>,
) {
    if phi == Activation::Identity && bias.is_none() && slope.is_none() {
        return;
    }
    over_rows(gpu, "channel_bias_activation", y, plane, &args![phi, bias, y, slope.as_deref()]);
}

pub fn channel_bias_slope(gpu: &Gpu, t: &mut Tensor, bias: Option<Stack<'_>>, slope: Option<&Tensor>) {
    if bias.is_none() && slope.is_none() {
        return;
    }
    let (_, _, n) = t.as_matrices();
    let plane = bias.map_or(n, |b| n / (b.rows * b.cols));
    over_rows(gpu, "channel_bias_slope", t, plane, &args![bias, slope, t]);
}

pub fn channel_sums(gpu: &'static Gpu, g: &Tensor, sums: &StackMut<'_>) {
    let shape = Channels::new(g.as_matrices(), sums.rows * sums.cols, &[whole(g)]);
    shape.dots(gpu, vectors(None), vectors(None), whole(g), out(sums));
}

pub fn batch_statistics(gpu: &'static Gpu, x: Stack<'_>, statistics: &mut Tensor) {
    let (count, _, channels) = statistics.as_matrices();
    let (x, rows, n) = (vectors(Some(x)), x.rows, x.cols);
    let shape = Channels::new((count, rows, n), channels, &[x]);
    let Some(part) = shape.partial(gpu, "moments", &x) else { return };
    let (chunks, per) = shape.chunks();
    let sizes = [rows, channels, shape.plane, per, chunks].map(Arg::size);
    shape.finish(gpu, "finish_moments", &args![sizes, part, statistics]);
}

pub fn batch_norm(gpu: &Gpu, norm: Normalized<'_>, y: &mut Tensor) {
    let Normalized { x, statistics, affine, .. } = norm;
    let shape = Channels::new(y.as_matrices(), norm.channels(), &[vectors(Some(x)), whole(y)]);
    shape.over(gpu, "batch_norm", shape.count, &args![x, statistics, affine, y]);
}

pub fn batch_norm_vjp(
    gpu: &'static Gpu,
    norm: Normalized<'_>,
    g: &Tensor,
    grad: &StackMut<'_>,
    dx: Option<StackMut<'_>>,
) {
    let [x, statistics, scale] = [Some(norm.x), Some(norm.statistics), norm.affine].map(vectors);
    let (from, grad) = (whole(g), out(grad));
    let dx = dx.as_ref().map(|dx| (out(dx), [dx.count, dx.terms]));
    let arrays: Vec<[Arg; 2]> = [x, from].into_iter().chain(dx.map(|(dx, _)| dx)).collect();
    let shape = Channels::new(g.as_matrices(), norm.channels(), &arrays);
    shape.dots(gpu, x, statistics, from, grad);
    // If dx is shared, each thread sums over the networks.
    let Some((dx, [stacks, terms])) = dx else { return };
    let share = if norm.of_batch { shape.share() } else { 0.0 };
    let arguments = args![Arg::size(terms), share, x, statistics, scale, g, grad, dx];
    shape.over(gpu, "batch_norm_back", stacks, &arguments);
}

pub fn batch_norm_jvp(gpu: &'static Gpu, norm: Normalized<'_>, [dx, daffine]: [Option<Stack<'_>>; 2], t: &mut Tensor) {
    let [x, statistics, scale] = [Some(norm.x), Some(norm.statistics), norm.affine].map(vectors);
    let (tangent, channels) = (vectors(dx), norm.channels());
    let shape = Channels::new(t.as_matrices(), channels, &[x, tangent, whole(t)]);
    let sums = if norm.of_batch && dx.is_some() {
        let Some(sums) = scratch(gpu, 8 * shape.count * channels) else { return };
        shape.dots(gpu, x, statistics, tangent, [Arg::from(&sums), Arg::long(2 * channels)]);
        Some(sums)
    } else {
        None
    };
    let arguments = args![shape.share(), x, tangent, sums.as_ref(), statistics, scale, daffine, t];
    shape.over(gpu, "batch_norm_tangent", shape.count, &arguments);
}

/// Queues a pooling kernel with `threads` threads for each element of `to`. Its arguments are
/// `[per, height, width, h, w, down, across]`, then `arguments`.
pub fn pool(gpu: &Gpu, name: &'static str, pool: &Pool, to: &Tensor, threads: usize, arguments: &[Arg]) {
    let (count, rows, n) = to.as_matrices();
    let ([_, height, width], [h, w], [down, across]) = (pool.image, pool.window, pool.out());
    let sizes = [rows * n, height, width, h, w, down, across].map(Arg::size);
    over_networks(gpu, name, count, threads * rows * n, &[&sizes[..], arguments].concat());
}

/// `to[i] ← Σ_l from[l, i]`, or added to it, for `i` below `per` and `l` below `terms`.
pub fn sum_terms(gpu: &Gpu, per: usize, terms: usize, store: Store, from: u64, to: u64) {
    over(gpu, "collect", per, &args![Arg::size(per), Arg::size(terms), store == Store::Add, from, to]);
}

/// A warp for each row, then one block for their sums.
pub fn softmax_cross_entropy(
    gpu: &'static Gpu,
    logits: &Tensor,
    labels: &Tensor,
    grad: Option<&Tensor>,
    totals: &Tensor,
) {
    let (_, batch, classes) = logits.as_matrices();
    let Some(part) = scratch(gpu, 16 * batch) else { return };
    over(gpu, "softmax_rows", 32 * batch, &args![[batch, classes].map(Arg::size), logits, labels, grad, part]);
    // SAFETY: `part` has two numbers of each row, and `totals` has two.
    unsafe { gpu.launch(compiled(), "softmax_totals", [1, 1, 1], 1024, 0, &args![Arg::size(batch), part, totals]) };
}
