//! A kernel expression put into the templates.

use super::super::points::{Plan, Prepared};
use super::launch::{Shape, elementwise, padded, simt_shape, tensor_shape, tiling};
use super::{Arithmetic, Card, Launch, Scalar, Tiling, columns_per_pass, kappa};
use crate::kernel::{Kernel, Statistic, catalogue};
use crate::simd::source::Style;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis, concatenate};
use std::fmt::Write;

const PRELUDE: &str = include_str!("prelude.cu");
const TENSOR: &str = include_str!("tensor.cu");
const SIMT: &str = include_str!("simt.cu");
const PREPARE: &str = include_str!("prepare.cu");

/// Above so many operations the formula is not written out twice in the inner loop.
const LONG: usize = 16;
/// Above so many operations a formula takes the compiler minutes.
const LONGEST: usize = 4000;

/// A kernel made ready for a device.
///
/// ```
/// use mercer::kernel::Kernel;
/// use mercer::operator::cuda::{Arithmetic, Card, Program};
/// let program = Program::for_kernel(&Kernel::parse("rbf(2)")?, 64, Arithmetic::Tf32, Card::HOPPER);
/// assert!(program.product_source(16).contains("m_exp2"));
/// let product = program.product(65_536, 65_536, 16);
/// assert_eq!(product.launch.block, 192);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    plan: Plan,
    arithmetic: Arithmetic,
    card: Card,
    kappa: String,
    operations: usize,
    views: Vec<View>,
    /// (view, is it L1?)
    statistics: Vec<(usize, bool)>,
}

/// Where a view's coordinates are, in the tile's points and in what comes in.
#[derive(Clone, Debug)]
struct View {
    first: usize,
    width: usize,
    source_first: usize,
    source_width: usize,
}

impl Program {
    /// For `kernel` on points of width `d`, with the origin where it is.
    pub fn for_kernel(kernel: &Kernel, d: usize, wanted: Arithmetic, card: Card) -> Program {
        Program::new(kernel, Array2::zeros((1, d)).view(), wanted, card)
    }

    /// For `kernel` on points like `reference` `[n, d]`; shift-invariant kernels take its mean off every point. Tensor
    /// cores take one inner product and compute capability 8.0; where a kernel or a card has not, `wanted` becomes
    /// [`Arithmetic::F32`].
    pub fn new(kernel: &Kernel, reference: ArrayView2<f64>, wanted: Arithmetic, card: Card) -> Program {
        let plan = Plan::new(kernel, reference);
        let one_product = matches!(plan.statistics[..], [(_, Statistic::Dot)]);
        let tensor = one_product && card.capability >= 80;
        let arithmetic = if wanted.is_tensor() && !tensor { Arithmetic::F32 } else { wanted };
        let style = if arithmetic == Arithmetic::Tf32 { Style::Fast } else { Style::Exact };
        let operations = kappa::listing(&plan, style).operations();
        let views = views(&plan, reference.ncols(), if arithmetic.is_tensor() { 16 } else { 8 });
        Program {
            arithmetic,
            card,
            kappa: kappa::function(&plan, views.len(), style),
            operations,
            views,
            statistics: plan.statistics.iter().map(|&(view, kind)| (view, kind == Statistic::L1)).collect(),
            plan,
        }
    }

    /// The points `x` `[n, d]` as `prepare_points` takes them, in f64: `[n, source_width]`, shifted and lifted as the
    /// kernel wants it.
    pub fn pack(&self, x: ArrayView2<f64>) -> Array2<f64> {
        let Prepared { views, .. } = self.plan.points::<f64>(x);
        let views: Vec<ArrayView2<f64>> = views.iter().map(|v| v.x.view()).collect();
        concatenate(Axis(1), &views).expect("every view has a row for each point")
    }

    /// Whether the formula is short enough to be compiled for a GPU.
    pub fn check(&self) -> Result<()> {
        if self.operations <= LONGEST {
            return Ok(());
        }
        Err(Error::input(format!(
            "kernel {} takes {} operations for a pair of points, more than the {LONGEST} that are compiled for a GPU: \
             use the CPU",
            self.plan.kernel, self.operations
        )))
    }

    /// What the tiles are computed in.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Numbers of a point in the tile's layout.
    pub fn width(&self) -> usize {
        self.views.last().map_or(0, |v| v.first + v.width)
    }

    /// Numbers of a point as `prepare_points` takes it: see [`Self::pack`].
    pub fn source_width(&self) -> usize {
        self.views.last().map_or(0, |v| v.source_first + v.source_width)
    }

    /// Numbers that `prepare_points` keeps of a point beside the point: its norm in each view, and `κ(x,x)`.
    pub fn views(&self) -> usize {
        self.views.len() + 1
    }

    /// `Y = κ(A, B) V` for up to [`columns_per_pass`]`(columns)` columns a pass.
    pub fn product_source(&self, columns: usize) -> String {
        self.source(columns_per_pass(columns), None)
    }

    /// `κ(A, B)` itself.
    pub fn gram_source(&self) -> String {
        self.source(0, Some(false))
    }

    /// The same for points with themselves: half of the tiles, [`Program::mirrored_gram`] of them.
    pub fn mirrored_gram_source(&self) -> String {
        self.source(0, Some(true))
    }

    /// Points and values into the tile's layout, partial sums out of it; `scalar` is the type outside.
    pub fn prepare_source(&self, scalar: Scalar, columns: usize) -> String {
        let mut text = String::new();
        let name = |double: bool| if double { "double" } else { "float" };
        define(&mut text, "SOURCE", name(scalar == Scalar::F64));
        define(&mut text, "TARGET", name(self.arithmetic == Arithmetic::F64));
        define(&mut text, "PARTIAL", name(!self.arithmetic.is_tensor()));
        define(&mut text, "ROUND_TF32", u32::from(self.arithmetic == Arithmetic::Tf32));
        define(&mut text, "HALVES", if self.arithmetic == Arithmetic::Split { 2 } else { 1 });
        define(&mut text, "NC", columns_per_pass(columns));
        define(&mut text, "D", self.width());
        define(&mut text, "SOURCE_D", self.source_width());
        let views = self
            .views
            .iter()
            .enumerate()
            .map(|(i, v)| format!("V({i}, {}, {}, {}, {})", v.first, v.width, v.source_first, v.source_width));
        define(&mut text, "VIEW_LIST", views.collect::<Vec<_>>().join(" "));
        define(&mut text, "VIEWS", self.views.len());
        // A point with itself: every inner product is a norm, every distance nothing.
        let with_itself = |&(view, l1): &(usize, bool)| if l1 { "0.0".to_string() } else { format!("norms[{view}]") };
        let norms = (0..2 * self.views.len()).map(|i| format!("norms[{}]", i % self.views.len()));
        let arguments: Vec<String> = self.statistics.iter().map(with_itself).chain(norms).collect();
        define(&mut text, "DIAGONAL", format!("kappa({})", arguments.join(", ")));
        define(&mut text, "ARITHMETIC", "F64");
        format!("{text}{PRELUDE}{}{PREPARE}", kappa::function(&self.plan, self.views.len(), Style::Exact))
    }

    /// The launch of a product of `[n, m]` with `columns` columns.
    pub fn product(&self, n: usize, m: usize, columns: usize) -> Tiling {
        let nc = columns_per_pass(columns);
        tiling(self.shape(nc), n, m, nc * self.partial_scalar(), self.card)
    }

    /// The launch of a Gram matrix `[n, m]`.
    pub fn gram(&self, n: usize, m: usize) -> Tiling {
        tiling(self.shape(0), n, m, 0, self.card)
    }

    /// The tiles of [`Self::mirrored_gram_source`] for `n` points. Splits are short: those below the diagonal have nothing to
    /// do, and others take their place.
    pub fn mirrored_gram(&self, n: usize) -> Tiling {
        const TILES: usize = 4;
        let whole = self.gram(n, n);
        let tiles_per_split = whole.tiles_per_split.min(TILES);
        let splits = whole.tiles.div_ceil(tiles_per_split);
        let launch = Launch { grid: (whole.launch.grid.0, splits as u32), ..whole.launch };
        Tiling { launch, tiles_per_split, splits, ..whole }
    }

    /// Bytes of the partial results of [`Self::product`]: `[splits, padded(n), columns of a pass]` in f32 on tensor
    /// cores, f64 elsewhere.
    pub fn partial_bytes(&self, n: usize, m: usize, columns: usize) -> usize {
        let splits = self.product(n, m, columns).splits;
        splits * padded(n) * columns_per_pass(columns) * self.partial_scalar()
    }

    /// Bytes of the values of one pass as `prepare_values` writes them.
    pub fn values_bytes(&self, m: usize, columns: usize) -> usize {
        let halves = if self.arithmetic == Arithmetic::Split { 2 } else { 1 };
        halves * padded(m) * columns_per_pass(columns) * self.arithmetic.bytes()
    }

    /// The launch of `prepare_points` for `n` points: a warp a padded row.
    pub fn prepare_points(&self, n: usize) -> Launch {
        elementwise("prepare_points", padded(n) * 32)
    }

    /// The launch of `prepare_values`, or of `prepare_values_tensor` on tensor cores: a thread an element of a pass.
    pub fn prepare_values(&self, m: usize, columns: usize) -> Launch {
        let name = if self.arithmetic.is_tensor() { "prepare_values_tensor" } else { "prepare_values" };
        elementwise(name, padded(m) * columns_per_pass(columns))
    }

    /// The launch of `reduce_partials` for a pass that holds `columns` columns: a thread an element of `[n, columns]`.
    pub fn reduce(&self, n: usize, columns: usize) -> Launch {
        elementwise("reduce_partials", n * columns)
    }

    fn partial_scalar(&self) -> usize {
        if self.arithmetic.is_tensor() { 4 } else { 8 }
    }

    /// Rows and columns of a thread without tensor cores: what the registers hold.
    fn side(&self) -> usize {
        if self.arithmetic == Arithmetic::F64 || self.statistics.len() > 1 { 4 } else { 8 }
    }

    fn shape(&self, nc: usize) -> Shape {
        match self.arithmetic {
            Arithmetic::Tf32 | Arithmetic::Split => {
                tensor_shape(self.width(), nc, self.arithmetic == Arithmetic::Split, self.card)
            }
            Arithmetic::F32 | Arithmetic::F64 => simt_shape(self.side(), nc, self.arithmetic),
        }
    }

    /// The product with `nc` columns, or the matrix itself, mirrored or not.
    fn source(&self, nc: usize, gram: Option<bool>) -> String {
        let shape = self.shape(nc);
        let mut text = String::new();
        if self.arithmetic.is_tensor() {
            text.push_str("// arch: 80\n");
        }
        let functions = match self.arithmetic {
            Arithmetic::Tf32 => "FAST",
            Arithmetic::Split | Arithmetic::F32 => "F32",
            Arithmetic::F64 => "F64",
        };
        define(&mut text, "ARITHMETIC", functions);
        define(&mut text, "D", self.width());
        define(&mut text, "NC", if gram.is_some() { 8 } else { nc });
        define(&mut text, "GRAM", u32::from(gram.is_some()));
        define(&mut text, "MIRROR", u32::from(gram == Some(true)));
        if self.arithmetic.is_tensor() {
            define(&mut text, "SPLIT", u32::from(self.arithmetic == Arithmetic::Split));
            define(&mut text, "WARPS", shape.rows / 32);
            define(&mut text, "MIN_BLOCKS", shape.blocks);
            define(&mut text, "STAGES", shape.stages);
            // Twice where the registers allow it.
            let twice = self.operations <= LONG && self.arithmetic == Arithmetic::Tf32 && nc <= 16;
            define(&mut text, "UNROLL", if twice { 2 } else { 1 });
            return format!("{text}{PRELUDE}{}{TENSOR}", self.kappa);
        }
        define(&mut text, "TM", self.side());
        define(&mut text, "VIEWS", self.views.len());
        define(&mut text, "STATISTICS", self.statistics.len());
        let list =
            self.statistics.iter().enumerate().map(|(i, &(view, l1))| {
                format!("X({i}, {}, {}, {l1})", self.views[view].first, self.views[view].width)
            });
        define(&mut text, "STATISTIC_LIST", list.collect::<Vec<_>>().join(" "));
        let statistics = (0..self.statistics.len()).map(|i| format!("s[{i}][i][j]"));
        let norms = |name: &str, index: &str| {
            (0..self.views.len()).map(move |v| format!("{name}[{v}][{index}]")).collect::<Vec<_>>()
        };
        let arguments = statistics.chain(norms("xx", "i")).chain(norms("yy", "j")).collect::<Vec<_>>().join(", ");
        define(&mut text, "KAPPA(s, i, j)", format!("kappa({arguments})"));
        format!("{text}{PRELUDE}{}{SIMT}", self.kappa)
    }
}

fn define(text: &mut String, name: &str, value: impl std::fmt::Display) {
    writeln!(text, "#define {name} {value}").expect("a String takes every line");
}

/// Where the views of points of width `d` lie, each padded to a multiple of `unit`.
fn views(plan: &Plan, d: usize, unit: usize) -> Vec<View> {
    let (mut first, mut source_first) = (0, 0);
    let lifted = plan.points::<f64>(Array2::zeros((1, d)).view());
    let layout = lifted.views.iter().map(|view| {
        let source_width = view.x.ncols();
        let width = source_width.max(1).next_multiple_of(unit);
        let view = View { first, width, source_first, source_width };
        (first, source_first) = (first + width, source_first + source_width);
        view
    });
    layout.collect()
}

/// Whether a GPU can have `kernel`: pictures are compared on the processor, and so are formulas too long to compile (those
/// of activations that take a quadrature, through several layers).
pub(crate) fn compiles(kernel: &Kernel) -> bool {
    !kernel.sees_pictures() && Program::for_kernel(kernel, 1, Arithmetic::F32, Card::HOPPER).check().is_ok()
}

/// Every kernel of the catalogue and some expressions in every arithmetic, with names that tell them apart: what a
/// compiler must accept, see `.ci/check_cuda_sources.py`.
pub fn sources() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = vec![];
    let mut put = |name: String, text: String| texts.push((name, text));
    let program = |expression: &str, d: usize, arithmetic| {
        let kernel = Kernel::parse(expression).expect("written here");
        Program::for_kernel(&kernel, d, arithmetic, Card::HOPPER)
    };
    let all = [Arithmetic::Tf32, Arithmetic::Split, Arithmetic::F32, Arithmetic::F64];
    for entry in catalogue() {
        // Split has the functions of f32; a kernel that cannot have it becomes f32 itself.
        for arithmetic in [Arithmetic::Tf32, Arithmetic::Split, Arithmetic::F64] {
            let p = program(entry.name, 64, arithmetic);
            if p.arithmetic() == arithmetic || arithmetic == Arithmetic::Split {
                put(format!("{}-{:?}", entry.name, p.arithmetic()), p.product_source(16));
            }
        }
    }
    for arithmetic in all {
        for d in [3, 64, 100, 784] {
            let p = program("rbf", d, arithmetic);
            put(format!("gram-{d}-{arithmetic:?}"), p.gram_source());
            put(format!("mirrored-{d}-{arithmetic:?}"), p.mirrored_gram_source());
            put(format!("product-{d}-{arithmetic:?}-32"), p.product_source(32));
        }
        for columns in [8, 16, 24] {
            put(format!("product-64-{arithmetic:?}-{columns}"), program("rbf", 64, arithmetic).product_source(columns));
        }
        put(format!("prepare-{arithmetic:?}"), program("rbf", 5, arithmetic).prepare_source(Scalar::F32, 3));
    }
    for arithmetic in [Arithmetic::F32, Arithmetic::F64] {
        let mixed = program("rbf*linear + 2*laplacian + periodic", 5, arithmetic);
        put(format!("mixed-{arithmetic:?}"), mixed.product_source(16));
        put(format!("mixed-gram-{arithmetic:?}"), mixed.gram_source());
        put(format!("mixed-prepare-{arithmetic:?}"), mixed.prepare_source(Scalar::F64, 16));
    }
    put("sum-Tf32".into(), program("0.5*rbf(2)*poly(2) + matern32", 20, Arithmetic::Tf32).product_source(8));
    texts
}
