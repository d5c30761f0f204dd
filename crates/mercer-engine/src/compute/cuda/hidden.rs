//! Hidden units that are kept before their activation, on a GPU. The primitives have checked the shapes.

use super::gpu::{Gpu, lock};
use super::launch::{Arg, args};
use super::memory::Buffer;
use super::module::Source;
use super::primitives::{finish_sums, place, scratch};
use crate::compute::Math;
use crate::compute::formula::{Activation, Arithmetic, device_functions_in};
use crate::compute::hidden::{HeadGradient, Hidden};
use crate::compute::stack::{Stack, StackMut};
use crate::compute::tensor::Tensor;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// Blocks that fill any device so many times that it hardly matters how few the last ones are.
const BLOCKS: usize = 8448;
/// Least number of rows of a block.
const LEAST_ROWS: usize = 64;

/// How the kernels of an activation are compiled.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Variant {
    /// Elements that they access at a time: 1 or 4.
    pub pack: usize,
    /// Whether they write gradients transposed.
    pub turned: bool,
    pub arithmetic: Arithmetic,
}

/// The source for an activation.
pub(super) fn hidden_source(phi: Activation, Variant { pack, turned, arithmetic }: Variant) -> String {
    let (place, write) = (phi.place(), if turned { "turned" } else { "as_it_is" });
    let constants = format!("#define V {pack}\n#define PHI {place}\n#define WRITE {write}");
    format!("{constants}\n{}\n{}", device_functions_in(arithmetic), include_str!("hidden.cu"))
}

/// Sources of the kernels of activations, by their places.
type Sources = HashMap<(usize, Variant), Source>;

/// The source for `phi`, whatever its parameters.
fn source(phi: Activation, variant: Variant) -> Source {
    static SOURCES: LazyLock<Mutex<Sources>> = LazyLock::new(Mutex::default);
    let mut sources = lock(&SOURCES);
    sources.entry((phi.place(), variant)).or_insert_with(|| Source::new(hidden_source(phi, variant))).clone()
}

/// Some of the sources, as `(name, text)`: every formula, and every way of reading and writing.
pub(super) fn sources() -> Vec<(String, String)> {
    let single = |arithmetic| Variant { pack: 1, turned: false, arithmetic };
    let fours = |turned, arithmetic| Variant { pack: 4, turned, arithmetic };
    let every = Activation::ALL.into_iter().map(|phi| (phi, single(Arithmetic::Fast), "1-fast"));
    let some = [Activation::SinCos, Activation::Gelu].into_iter().flat_map(|phi| {
        let turned = (phi, fours(true, Arithmetic::Fast), "4-fast-turned");
        [(phi, single(Arithmetic::F32), "1"), (phi, fours(false, Arithmetic::F32), "4"), turned]
    });
    every
        .chain(some)
        .map(|(phi, variant, how)| (format!("hidden-{}-{how}", phi.name()), hidden_source(phi, variant)))
        .collect()
}

/// Elements that kernels on rows of `n` units access at a time. In rows of less than a warp's fours, lanes would be idle.
fn pack(n: usize) -> usize {
    if n.is_multiple_of(4) && n >= 128 { 4 } else { 1 }
}

/// Units `[count, m, n·pack]` and the source of their kernels; rows are sharded to blocks in chunks of `per`.
struct Shape {
    count: usize,
    m: usize,
    n: usize,
    pack: usize,
    per: usize,
    source: Source,
}

impl Shape {
    fn new(gpu: &Gpu, hidden: &Hidden<'_>) -> Shape {
        let (count, m, width) = hidden.z.as_matrices();
        let pack = pack(width);
        let n = width / pack;
        let chunks = (BLOCKS / (count * n.div_ceil(32)).max(1)).clamp(1, m.div_ceil(LEAST_ROWS).max(1));
        let arithmetic = if gpu.math() == Math::F32 { Arithmetic::F32 } else { Arithmetic::Fast };
        let turned = turned(gpu, (count, m, width));
        let source = source(hidden.phi, Variant { pack, turned, arithmetic });
        Shape { count, m, n, pack, per: m.div_ceil(chunks).max(1), source }
    }

    fn chunks(&self) -> usize {
        self.m.div_ceil(self.per).max(1)
    }

    /// Queues a kernel on columns: its arguments are the sizes, the parameters of the activation, then `arguments`.
    fn columns(&self, gpu: &Gpu, name: &'static str, hidden: &Hidden<'_>, arguments: &[Arg]) {
        let grid = [self.n.div_ceil(32), self.count, self.chunks()].map(|n| n as u32);
        let sizes = [self.m, self.n, self.per].map(Arg::size);
        self.launch(gpu, name, grid, &sizes, hidden, arguments);
    }

    fn launch(&self, gpu: &Gpu, name: &'static str, grid: [u32; 3], sizes: &[Arg], hidden: &Hidden<'_>, rest: &[Arg]) {
        // The activation's place is a constant of the source.
        let parameters = &args![hidden.phi, hidden.bias][1..];
        // SAFETY: the primitives have found all arrays to have the shapes of `hidden`.
        unsafe { gpu.launch(&self.source, name, grid, 256, 0, &[sizes, parameters, rest].concat()) };
    }

    /// Where sums over rows go before the chunks are added up: straight to their place where there is one chunk.
    fn sums(&self, gpu: &'static Gpu, to: Option<(u64, usize)>) -> Option<Sums> {
        let shape @ [count, width, chunks] = [self.count, self.n * self.pack, self.chunks()];
        let part = if to.is_some() && chunks > 1 { Some(scratch(gpu, 4 * count * chunks * width)?) } else { None };
        Some(Sums { to, part, shape })
    }
}

/// Sums over the rows of each chunk, on their way to the gradient.
struct Sums {
    /// Address and stride of the gradient.
    to: Option<(u64, usize)>,
    /// `[count, chunks, width]`, where there are several chunks.
    part: Option<Buffer>,
    /// `[count, width, chunks]`
    shape: [usize; 3],
}

impl Sums {
    /// Address, and how far apart networks and chunks are.
    fn place(&self) -> [Arg; 3] {
        let [_, width, chunks] = self.shape;
        match (&self.part, self.to) {
            (Some(part), _) => [Arg::from(part), Arg::long(chunks * width), Arg::long(width)],
            (None, Some((address, stride))) => [Arg::U64(address), Arg::long(stride), Arg::long(0)],
            (None, None) => [0, 0, 0].map(Arg::U64),
        }
    }

    /// Adds up the chunks.
    fn finish(&self, gpu: &Gpu) {
        if let (Some(part), Some(to)) = (&self.part, self.to) {
            finish_sums(gpu, self.shape, part, to);
        }
    }
}

pub fn values(gpu: &Gpu, hidden: &Hidden<'_>, y: &mut Tensor) {
    Shape::new(gpu, hidden).columns(gpu, "hidden_values", hidden, &args![hidden.z, y]);
}

/// Whether gradients by units `[count, m, n]` are stored transposed. Tensor cores of compute capability 9.0 read TF32 factors along the
/// sum: of `xᵀ dz`, a sum over rows, neither factor is stored so, and cuBLAS is half as fast; with dz transposed one is.
pub fn turned(gpu: &Gpu, (_, m, n): (usize, usize, usize)) -> bool {
    gpu.math() == Math::Tf32 && gpu.architecture == 90 && pack(n) == 4 && m.is_multiple_of(4) && m >= 128
}

pub fn vjp(gpu: &'static Gpu, hidden: &Hidden<'_>, g: &Tensor, dz: &mut Tensor, bias_grad: Option<&StackMut<'_>>) {
    let shape = Shape::new(gpu, hidden);
    let Some(sums) = shape.sums(gpu, bias_grad.map(place)) else { return };
    shape.columns(gpu, "hidden_back", hidden, &args![hidden.z, g, dz, sums.place()]);
    sums.finish(gpu);
}

pub fn head(gpu: &Gpu, hidden: &Hidden<'_>, w: Stack<'_>, bias: Option<Stack<'_>>, y: &mut Tensor) {
    let shape = Shape::new(gpu, hidden);
    // A block has eight warps, and a warp four rows.
    let grid = [shape.m.div_ceil(32) as u32, shape.count as u32, 1];
    let sizes = [shape.m, shape.n].map(Arg::size);
    shape.launch(gpu, "hidden_head", grid, &sizes, hidden, &args![w, bias, hidden.z, y]);
}

pub fn head_vjp(
    gpu: &'static Gpu,
    hidden: &Hidden<'_>,
    w: Stack<'_>,
    g: &Tensor,
    dz: &mut Tensor,
    grad: &HeadGradient<'_>,
) {
    let shape = Shape::new(gpu, hidden);
    let to = |at: usize| (grad.tensor.address() + 4 * at as u64, grad.stride);
    let sums = |at: Option<usize>| shape.sums(gpu, at.map(to));
    let (Some(w_sums), Some(sums)) = (sums(Some(grad.w)), sums(grad.bias)) else { return };
    let arguments = args![w, hidden.z, g, dz, w_sums.place(), sums.place()];
    shape.columns(gpu, "hidden_head_back", hidden, &arguments);
    w_sums.finish(gpu);
    sums.finish(gpu);
}
