//! Batch norm, pooling, softmax cross-entropy, augmentation and broadcasting on a GPU. The primitives have checked the shapes.

use super::gpu::Gpu;
use super::launch::{Arg, BLOCK, MOST_BLOCKS, args, vectors};
use super::memory::Buffer;
use super::module::Source;
use super::primitives::{at, scratch};
use crate::compute::formula::device_functions;
use crate::compute::gemm::Store;
use crate::compute::tensor::{Stack, StackMut, Tensor};
use crate::compute::{Activation, EPSILON, Pool};
use std::sync::OnceLock;

/// Least number of elements that one block sums. Larger channels are split to fill the device.
const CHUNK: usize = 2048;
/// Number of blocks that fills any device.
const BLOCKS: usize = 264;

/// The source of all kernels here.
pub(super) fn source() -> String {
    format!("constexpr float EPSILON = {EPSILON:e}f;\n{}\n{}", device_functions(), include_str!("images.cu"))
}

pub fn compiled() -> &'static Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    SOURCE.get_or_init(|| Source::new(source()))
}

/// Queues a kernel that loops over the `per` elements of each of `count` networks.
pub fn over(gpu: &Gpu, name: &'static str, count: usize, per: usize, arguments: &[Arg]) {
    let blocks = (per as u64).div_ceil(u64::from(BLOCK)).min(MOST_BLOCKS) as u32;
    gpu.launch(compiled(), name, [blocks, count as u32, 1], BLOCK, 0, arguments);
}

/// Address and stride of writable matrices.
pub fn out(stack: &StackMut<'_>) -> [Arg; 2] {
    [Arg::U64(stack.tensor.address() + 4 * stack.offset as u64), Arg::long(stack.stride)]
}

/// The shape of a tensor `[count, rows, channels·plane]`. If `wide`, kernels access four elements (a pack) at a time.
#[derive(Clone, Copy)]
struct Channels {
    count: usize,
    rows: usize,
    channels: usize,
    plane: usize,
    wide: bool,
}

impl Channels {
    /// `arrays` are the addresses and strides of all arrays that the kernel accesses.
    fn new([count, rows, n]: [usize; 3], channels: usize, arrays: &[[Arg; 2]]) -> Channels {
        let aligned = |array: &[Arg; 2]| matches!(array, [Arg::U64(address), Arg::U64(stride)] if address % 16 == 0 && stride % 4 == 0);
        let plane = n / channels;
        Channels { count, rows, channels, plane, wide: plane.is_multiple_of(4) && arrays.iter().all(aligned) }
    }

    /// The kernel for single elements or the one for packs of four.
    fn pick(&self, [one, four]: [&'static str; 2]) -> &'static str {
        if self.wide { four } else { one }
    }

    fn pack(&self) -> usize {
        if self.wide { 4 } else { 1 }
    }

    /// Number of packs of one network.
    fn per(&self) -> usize {
        self.rows * self.channels * self.plane / self.pack()
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
    fn over(&self, gpu: &Gpu, names: [&'static str; 2], count: usize, arguments: &[Arg]) {
        let sizes = [self.per(), self.channels, self.plane / self.pack()].map(Arg::size);
        over(gpu, self.pick(names), count, self.per(), &[&sizes[..], arguments].concat());
    }

    /// Two partial sums for each channel and chunk. The kernel's arguments are `[rows, channels, plane, rows of a chunk]`,
    /// then `arguments`, then the result.
    fn partial(&self, gpu: &'static Gpu, names: [&'static str; 2], arguments: &[Arg]) -> Option<Buffer> {
        let (chunks, per) = self.chunks();
        let part = scratch(gpu, 8 * self.count * self.channels * chunks)?;
        let sizes = [self.rows, self.channels, self.plane / self.pack(), per].map(Arg::size);
        let arguments = [&sizes[..], arguments, &[Arg::from(&part)]].concat();
        let grid = [self.channels as u32, self.count as u32, chunks as u32];
        gpu.launch(compiled(), self.pick(names), grid, 256, 0, &arguments);
        Some(part)
    }

    /// `(Σ g x̂, Σ g)` of each channel into `out` `[k, 2, channels]`; without `x` only `Σ g` into `[k, channels]`.
    fn dots(&self, gpu: &'static Gpu, x: [Arg; 2], statistics: [Arg; 2], g: [Arg; 2], out: [Arg; 2]) {
        let Some(part) = self.partial(gpu, ["dots_1", "dots_4"], &args![x, statistics, g]) else { return };
        let sizes = [self.channels, self.chunks().0].map(Arg::size);
        over(gpu, "finish_dots", self.count, self.channels, &args![sizes, part, statistics, out]);
    }
}

/// A missing array.
const NONE: [Arg; 2] = [Arg::U64(0), Arg::U64(0)];

/// The kernel for rows of `n` elements and the size of its packs: four if `n` is a multiple of four, else one.
fn by_width([one, four]: [&'static str; 2], n: usize) -> (&'static str, usize) {
    if n.is_multiple_of(4) { (four, 4) } else { (one, 1) }
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
    let (count, batch, n) = y.as_matrices();
    let (name, pack) = by_width(["channel_bias_activation_1", "channel_bias_activation_4"], n);
    let sizes = [batch * n / pack, n / pack, plane].map(Arg::size);
    let arguments = args![sizes, phi as i32, bias, y, slope.as_deref()];
    over(gpu, name, count, batch * n / pack, &arguments);
}

pub fn channel_bias_slope(gpu: &Gpu, t: &mut Tensor, bias: Option<Stack<'_>>, slope: Option<&Tensor>) {
    if bias.is_none() && slope.is_none() {
        return;
    }
    let (count, batch, n) = t.as_matrices();
    let plane = bias.map_or(n, |b| n / (b.rows * b.cols));
    let (name, pack) = by_width(["channel_bias_slope_1", "channel_bias_slope_4"], n);
    let sizes = [batch * n / pack, n / pack, plane].map(Arg::size);
    over(gpu, name, count, batch * n / pack, &args![sizes, bias, slope, t]);
}

pub fn channel_sums(gpu: &'static Gpu, g: &Tensor, sums: &StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    let from = [at(g), Arg::long(batch * n)];
    let shape = Channels::new([count, batch, n], sums.rows * sums.cols, &[from]);
    shape.dots(gpu, NONE, NONE, from, out(sums));
}

pub fn batch_statistics(gpu: &'static Gpu, x: Stack<'_>, statistics: &mut Tensor) {
    let (count, _, channels) = statistics.as_matrices();
    let (x, rows, n) = (vectors(Some(x)), x.rows, x.cols);
    let shape = Channels::new([count, rows, n], channels, &[x]);
    let Some(part) = shape.partial(gpu, ["moments_1", "moments_4"], &x) else { return };
    let (chunks, per) = shape.chunks();
    let sizes = [rows, channels, shape.plane, per, chunks].map(Arg::size);
    over(gpu, "finish_moments", count, channels, &args![sizes, part, statistics]);
}

pub fn batch_norm(gpu: &Gpu, x: Stack<'_>, statistics: Stack<'_>, affine: Stack<'_>, y: &mut Tensor) {
    let (count, batch, n) = y.as_matrices();
    let (x, statistics) = (vectors(Some(x)), vectors(Some(statistics)));
    let shape = Channels::new([count, batch, n], affine.cols, &[x, [at(y), Arg::long(batch * n)]]);
    shape.over(gpu, ["batch_norm_1", "batch_norm_4"], count, &args![x, statistics, affine, y]);
}

#[allow(clippy::too_many_arguments)]
pub fn batch_norm_vjp(
    gpu: &'static Gpu,
    x: Stack<'_>,
    statistics: Stack<'_>,
    affine: Stack<'_>,
    batch: bool,
    g: &Tensor,
    grad: &StackMut<'_>,
    dx: Option<StackMut<'_>>,
) {
    let (count, rows, n) = g.as_matrices();
    let [x, statistics, scale] = [x, statistics, affine].map(|stack| vectors(Some(stack)));
    let (from, grad) = ([at(g), Arg::long(rows * n)], out(grad));
    let dx = dx.as_ref().map(|dx| (out(dx), dx.stride == 0));
    let arrays: Vec<[Arg; 2]> = [x, from].into_iter().chain(dx.map(|(dx, _)| dx)).collect();
    let shape = Channels::new([count, rows, n], affine.cols, &arrays);
    shape.dots(gpu, x, statistics, from, grad);
    let Some((dx, shared)) = dx else { return };
    // If dx is shared, each thread sums over the networks.
    let (stacks, terms) = if shared { (1, count) } else { (count, 1) };
    let share = if batch { shape.share() } else { 0.0 };
    let arguments = args![Arg::size(terms), share, x, statistics, scale, g, grad, dx];
    shape.over(gpu, ["batch_norm_back_1", "batch_norm_back_4"], stacks, &arguments);
}

#[allow(clippy::too_many_arguments)]
pub fn batch_norm_jvp(
    gpu: &'static Gpu,
    x: Stack<'_>,
    dx: Option<Stack<'_>>,
    statistics: Stack<'_>,
    affine: Stack<'_>,
    daffine: Option<Stack<'_>>,
    batch: bool,
    t: &mut Tensor,
) {
    let (count, rows, n) = t.as_matrices();
    let [x, statistics, scale] = [x, statistics, affine].map(|stack| vectors(Some(stack)));
    let (tangent, to) = (vectors(dx), [at(t), Arg::long(rows * n)]);
    let shape = Channels::new([count, rows, n], affine.cols, &[x, tangent, to]);
    let sums = if batch && dx.is_some() {
        let Some(sums) = scratch(gpu, 8 * count * affine.cols) else { return };
        shape.dots(gpu, x, statistics, tangent, [Arg::from(&sums), Arg::long(2 * affine.cols)]);
        Some(sums)
    } else {
        None
    };
    let arguments = args![shape.share(), x, tangent, sums.as_ref(), statistics, scale, daffine, t];
    shape.over(gpu, ["batch_norm_tangent_1", "batch_norm_tangent_4"], count, &arguments);
}

/// The first arguments of the pooling kernels: `[per, height, width, h, w, down, across]`.
fn windows(pool: &Pool, per: usize) -> [Arg; 7] {
    let ([_, height, width], [h, w], [down, across]) = (pool.image, pool.window, pool.out());
    [per, height, width, h, w, down, across].map(Arg::size)
}

/// Queues a pooling kernel for each element of `to`; its arguments are those of [`windows`], then `arguments`.
pub fn pool(gpu: &Gpu, name: &'static str, pool: &Pool, to: &Tensor, threads: usize, arguments: &[Arg]) {
    let (count, rows, n) = to.as_matrices();
    over(gpu, name, count, threads * rows * n, &[&windows(pool, rows * n)[..], arguments].concat());
}

/// `to[i] ← Σ_l from[l, i]`, or added to it, for `i` below `per` and `l` below `terms`.
pub fn sum_terms(gpu: &Gpu, per: usize, terms: usize, store: Store, from: u64, to: u64) {
    over(gpu, "collect", 1, per, &args![Arg::size(per), Arg::size(terms), store == Store::Add, from, to]);
}
