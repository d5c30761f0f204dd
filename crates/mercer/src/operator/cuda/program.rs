//! Generates the CUDA source of a kernel expression, and its launches.

use super::super::points::{Plan, Prepared};
use super::launch::{Shape, elementwise, padded, simt_shape, tensor_shape, tiling};
use super::{Arithmetic, Card, Launch, Scalar, Tiling, columns_per_pass, kappa};
use crate::data::Rows;
use crate::kernel::{Kernel, Statistic, catalogue};
use crate::simd::source::{PRELUDE, Style};
use ndarray::{Array2, ArrayView2, Axis, concatenate};
use std::fmt::Write;

const TENSOR: &str = include_str!("tensor.cu");
const SIMT: &str = include_str!("simt.cu");
const PREPARE: &str = include_str!("prepare.cu");

/// Largest number of operations of a formula that is unrolled twice in the inner loop.
const UNROLLED: usize = 16;
/// Largest number of operations of a formula. Longer ones take minutes to compile.
const MAX_OPERATIONS: usize = 4000;

/// The CUDA program of a kernel for one device.
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

/// The position of a view's coordinates in a prepared point and in a raw point.
#[derive(Clone, Debug)]
struct View {
    first: usize,
    width: usize,
    source_first: usize,
    source_width: usize,
}

impl Program {
    /// For `kernel` on points of width `d`, without a shift of the origin.
    pub fn for_kernel(kernel: &Kernel, d: usize, arithmetic: Arithmetic, card: Card) -> Program {
        Program::new(kernel, Rows::from(&Array2::<f64>::zeros((1, d))), arithmetic, card)
    }

    /// For `kernel` on points like `reference` `[n, d]`; for shift-invariant kernels its mean is subtracted from all points.
    /// Tensor cores require a kernel of one inner product and compute capability 8.0; otherwise [`Arithmetic::F32`] replaces
    /// `arithmetic`.
    pub fn new(kernel: &Kernel, reference: Rows<'_>, arithmetic: Arithmetic, card: Card) -> Program {
        let plan = Plan::new(kernel, reference);
        let one_product = matches!(plan.statistics[..], [(_, Statistic::Dot)]);
        let tensor = one_product && card.capability >= 80;
        let arithmetic = if arithmetic.is_tensor() && !tensor { Arithmetic::F32 } else { arithmetic };
        let style = if arithmetic == Arithmetic::Tf32 { Style::Fast } else { Style::Exact };
        let operations = kappa::listing(&plan, style).operations();
        let views = views(&plan, reference.d(), if arithmetic.is_tensor() { 16 } else { 8 });
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

    /// The raw points for `prepare_points`, f64 `[n, source_width]`, from `x` `[n, d]`: shifted and transformed for the
    /// kernel.
    pub fn pack(&self, x: Rows<'_>) -> Array2<f64> {
        let Prepared { views, .. } = self.plan.points::<f64>(x);
        let views: Vec<ArrayView2<f64>> = views.iter().map(|v| v.x.view()).collect();
        concatenate(Axis(1), &views).expect("every view has a row for each point")
    }

    /// The arithmetic of the tiles.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Number of coordinates of a point in the layout of the tiles.
    pub fn width(&self) -> usize {
        self.views.last().map_or(0, |v| v.first + v.width)
    }

    /// Number of coordinates of a raw point, see [`Self::pack`].
    pub fn source_width(&self) -> usize {
        self.views.last().map_or(0, |v| v.source_first + v.source_width)
    }

    /// Number of values that `prepare_points` stores per point besides its coordinates: the norm in each view, and `κ(x,x)`.
    pub fn views(&self) -> usize {
        self.views.len() + 1
    }

    /// `Y = κ(A, B) V` for up to [`columns_per_pass`]`(columns)` columns per pass.
    pub fn product_source(&self, columns: usize) -> String {
        self.source(columns_per_pass(columns), None)
    }

    /// `κ(A, B)` itself.
    pub fn gram_source(&self) -> String {
        self.source(0, Some(false))
    }

    /// `κ(A, A)`, which computes only the tiles on and above the diagonal; launched by [`Program::mirrored_gram`].
    pub fn mirrored_gram_source(&self) -> String {
        self.source(0, Some(true))
    }

    /// `prepare_points`, `prepare_values` and `reduce_partials`; `scalar` is the type of their inputs and results.
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
        // For a point with itself, inner products are norms and distances are zero.
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

    /// The launch of [`Self::mirrored_gram_source`] for `n` points. Splits are short, so that blocks below the diagonal, which
    /// have no work, end early.
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

    /// The launch of `prepare_points` for `n` points: one warp per padded row.
    pub fn prepare_points(&self, n: usize) -> Launch {
        elementwise("prepare_points", padded(n) * 32)
    }

    /// The launch of `prepare_values`, or of `prepare_values_tensor` on tensor cores: one thread per element of a pass.
    pub fn prepare_values(&self, m: usize, columns: usize) -> Launch {
        let name = if self.arithmetic.is_tensor() { "prepare_values_tensor" } else { "prepare_values" };
        elementwise(name, padded(m) * columns_per_pass(columns))
    }

    /// The launch of `reduce_partials` for a pass of `columns` columns: one thread per element of `[n, columns]`.
    pub fn reduce(&self, n: usize, columns: usize) -> Launch {
        elementwise("reduce_partials", n * columns)
    }

    fn partial_scalar(&self) -> usize {
        if self.arithmetic.is_tensor() { 4 } else { 8 }
    }

    /// Rows and columns per thread without tensor cores, limited by the registers.
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

    /// The source of the product with `nc` columns, or of the Gram matrix; `gram` says whether it is mirrored.
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
            // Unroll twice if there are enough registers.
            let twice = self.operations <= UNROLLED && self.arithmetic == Arithmetic::Tf32 && nc <= 16;
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
    writeln!(text, "#define {name} {value}").expect("writing to a String cannot fail");
}

/// The positions of the views of points of width `d`, each padded to a multiple of `unit`.
fn views(plan: &Plan, d: usize, unit: usize) -> Vec<View> {
    let (mut first, mut source_first) = (0, 0);
    let lifted = plan.points::<f64>(Rows::from(&Array2::<f64>::zeros((1, d))));
    let layout = lifted.views.iter().map(|view| {
        let source_width = view.x.ncols();
        let width = source_width.max(1).next_multiple_of(unit);
        let view = View { first, width, source_first, source_width };
        (first, source_first) = (first + width, source_first + source_width);
        view
    });
    layout.collect()
}

/// Whether `kernel` can run on a GPU. Kernels of images run on the CPU, and so do formulas that are too long to compile
/// (activations that need a quadrature, through several layers).
pub(crate) fn compiles(kernel: &Kernel) -> bool {
    let operations = || Program::for_kernel(kernel, 1, Arithmetic::F32, Card::HOPPER).operations;
    !kernel.sees_images() && operations() <= MAX_OPERATIONS
}

/// The sources of all kernels of the catalogue and of some expressions, in all arithmetics, as `(unique name, text)`.
/// `.ci/check_cuda_sources.py` compiles them.
pub fn sources() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = vec![];
    let mut put = |name: String, text: String| texts.push((name, text));
    let program = |expression: &str, d: usize, arithmetic| {
        let kernel = Kernel::parse(expression).expect("a valid expression");
        Program::for_kernel(&kernel, d, arithmetic, Card::HOPPER)
    };
    let all = [Arithmetic::Tf32, Arithmetic::Split, Arithmetic::F32, Arithmetic::F64];
    for entry in catalogue() {
        // Split uses the functions of f32; a kernel that cannot use it falls back to f32.
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
