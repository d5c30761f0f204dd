//! The sources of kernels of images, and their launches.

use super::Arithmetic;
use super::launch::{Card, Launch};
use super::program::{MAX_OPERATIONS, define};
use crate::kernel::Kernel;
use crate::operator::images::Images;
use crate::operator::tile::points::Plan;
use crate::simd::source::{PRELUDE, Source, Style, Variable, record};

const IMAGES: &str = include_str!("images.cu");
const COMBINE: &str = include_str!("combine.cu");
/// Bytes of shared memory for the sums of a warp.
const SUMS: usize = 16;
/// Most warps of a block.
const WARPS: usize = 16;

/// The kernel of one network between pairs of images.
#[derive(Clone, Debug)]
pub(super) struct PairSource {
    pub text: String,
    warps: usize,
    /// Whether each warp has a pair of its own.
    alone: bool,
    /// Bytes of shared memory of a block.
    shared: usize,
    /// Numbers in the record of an image.
    pub record: usize,
    /// Bytes of device memory of a block, which then goes from pair to pair; 0 where each pair has a block.
    pub scratch: usize,
    multiprocessors: usize,
}

impl PairSource {
    /// None where the network's layers have no CUDA source.
    pub fn new(images: &Images, arithmetic: Arithmetic, card: Card) -> Option<PairSource> {
        let layers = images.layers().filter(|layers| layers.operations <= MAX_OPERATIONS)?;
        let value = arithmetic.bytes() * if images.is_ntk() { 2 } else { 1 };
        let each = 32 * layers.patch * value;
        // What patches leave of the memory of a multiprocessor is its cache, in which both images stay.
        let fit = (card.shared / 16 * 9 / each).clamp(1, WARPS);
        let units = layers.offsets[0] * layers.offsets[1];
        let scratch = layers.scratch * value;
        let (warps, alone) = if units < WARPS && scratch == 0 { (fit.min(8), true) } else { (fit, false) };
        let shared = warps * (each + SUMS);
        if shared > card.shared {
            return None;
        }
        let mut text = String::new();
        define(&mut text, "ARITHMETIC", functions(arithmetic));
        layers.defines.iter().for_each(|(name, value)| define(&mut text, name, value));
        define(&mut text, "WARPS", warps);
        define(&mut text, "ALONE", u32::from(alone));
        text.push_str(PRELUDE);
        text.push_str(&IMAGES.replace("//LAYERS", &layers.functions));
        let (record, multiprocessors) = (images.record_length(), card.multiprocessors);
        Some(PairSource { text, warps, alone, shared, record, scratch, multiprocessors })
    }

    /// The launch for `rows` rows and `columns` columns of pairs.
    pub fn launch(&self, rows: usize, columns: usize) -> Launch {
        let blocks = if self.alone { columns.div_ceil(self.warps) } else { columns };
        let (grid, block) = match self.scratch {
            0 => ([blocks as u32, rows as u32], 32 * self.warps as u32),
            _ => ([(rows * columns).min(2 * self.multiprocessors) as u32, 1], 32 * self.warps as u32),
        };
        Launch { name: "image_pairs", grid, block, shared: self.shared as u32 }
    }
}

/// The source of `combine` and `multiply` for a plan whose base kernels all see images.
pub(super) fn combine_source(plan: &Plan, arithmetic: Arithmetic) -> String {
    let listing = record(Style::Exact, || {
        let mut leaves = plan.leaves.iter();
        plan.kernel.combine(&mut |_| {
            Source::variable(Variable::Statistic(*leaves.next().expect("a leaf for each base kernel")))
        })
    });
    let kernels = plan.statistics.len();
    let list = |of: &dyn Fn(usize) -> String| (0..kernels).map(of).collect::<Vec<_>>().join(", ");
    let mut text = String::new();
    define(&mut text, "ARITHMETIC", functions(arithmetic));
    define(&mut text, "COMBINED", format!("combined({})", list(&|i| format!("s({i})"))));
    let parameters = list(&|i| format!("const real s{i}"));
    format!("{text}{PRELUDE}INLINE real combined({parameters}) {{\n{}}}\n{COMBINE}", listing.body())
}

/// The set of functions for kernels of images. TF32 has no meaning for them: it only stands for faster functions.
fn functions(arithmetic: Arithmetic) -> &'static str {
    match arithmetic {
        Arithmetic::F64 => "F64",
        Arithmetic::F32 | Arithmetic::Split => "F32",
        Arithmetic::Half | Arithmetic::Tf32 => "FAST",
    }
}

/// Whether every base kernel of `kernel` sees images and has CUDA source.
pub(super) fn compiles(kernel: &Kernel) -> bool {
    kernel.bases().into_iter().all(|base| {
        base.network().filter(|(network, _)| network.shape().is_some()).is_some_and(|(network, ntk)| {
            PairSource::new(&Images::new(network, ntk), Arithmetic::F64, Card::HOPPER).is_some()
        })
    })
}

/// Sources for `.ci/check_cuda_sources.py` and `.ci/emulate_images.py`, as `(name, text)`.
pub(super) fn sources() -> Vec<(String, String)> {
    const NETWORKS: [(&str, &str); 11] = [
        ("gap", "ntk('conv(3) relu conv(3) relu conv(3) relu gap dense', shape=32x32x3)"),
        ("nngp", "nngp('conv(3) relu conv(3) relu gap dense', shape=28x28x1)"),
        ("flatten", "ntk('conv(3) relu conv(3) relu flatten dense', shape=6x5x2, w_var=1.5, b_var=0)"),
        ("small", "ntk('conv(3) relu conv(3) relu gap dense', shape=6x5x2, w_var=1.5, b_var=0.1)"),
        ("square", "ntk('conv(3) relu conv(3) relu gap dense', shape=8x8x1, w_var=1.5, b_var=0)"),
        ("strided", "ntk('conv(3, stride=2) relu conv(2, pad=1) relu gap dense', shape=7x6x1, w_var=1.5, b_var=0.2)"),
        (
            "halved",
            "ntk('conv(3, stride=2) relu conv(3) relu gap dense relu dense', shape=8x8x1, w_var=1.5, b_var=0.2)",
        ),
        (
            "residual",
            "ntk('conv(3) res(relu conv(3, stride=2); conv(1, stride=2)) relu gap res(dense) dense', shape=8x8x2, w_var=1.5, b_var=0)",
        ),
        ("pooled", "ntk('conv(3) relu avgpool(2) conv(3) relu gap dense', shape=8x6x1, w_var=1.5, b_var=0.1)"),
        (
            "pools",
            "ntk('conv(3) relu avgpool(2) conv(3, stride=2) relu avgpool(2, stride=1) flatten dense relu dense', shape=12x11x2, w_var=1.5, b_var=0.2)",
        ),
        ("other", "ntk('conv(3) gelu conv(5) erf conv(3, pad=valid) sin gap dense', shape=12x12x1)"),
    ];
    let mut texts = vec![];
    for (name, expression) in NETWORKS {
        let kernel = Kernel::parse(expression).expect("a valid expression");
        let plan = Plan::new(&kernel, (&ndarray::Array2::<f64>::zeros((1, columns(&kernel)))).into());
        for arithmetic in [Arithmetic::Tf32, Arithmetic::F32, Arithmetic::F64] {
            let images = plan.images[0].as_ref().expect("a network of images");
            let source = PairSource::new(images, arithmetic, Card::HOPPER).expect("it has a source");
            texts.push((format!("images-{name}-{arithmetic:?}"), source.text));
            if name == "gap" {
                texts.push((format!("images-combine-{arithmetic:?}"), combine_source(&plan, arithmetic)));
            }
        }
    }
    let sum = "0.5*ntk('conv(3) relu gap dense', shape=8x8x1) + 2*nngp('conv(3) erf gap dense', shape=8x8x1)";
    let plan = Plan::new(&Kernel::parse(sum).expect("valid"), (&ndarray::Array2::<f64>::zeros((1, 64))).into());
    texts.push(("images-sum".into(), combine_source(&plan, Arithmetic::F64)));
    texts
}

/// Numbers in an image of the kernel's network.
fn columns(kernel: &Kernel) -> usize {
    kernel.bases()[0].network().and_then(|(network, _)| network.shape()).map_or(1, |shape| shape.iter().product())
}
