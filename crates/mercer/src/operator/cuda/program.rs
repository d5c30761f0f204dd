//! Generates the CUDA source of a kernel expression, and its launches.

use super::launch::{Card, Shape, Tiling, padded, simt_shape, tensor_shape, tiling};
use super::recomputation::{Recomputation, norms};
use super::{Arithmetic, external, half, image_source, kappa, logistic, wide};
use crate::data::Rows;
use crate::kernel::{Kernel, Statistic, catalogue};
use crate::operator::tile::duplicates::{Names, keys};
use crate::operator::tile::points::{Norms, Plan};
use crate::simd::source::{PRELUDE, Style};
use ndarray::Array2;
use std::fmt::Write;

const INSTRUCTIONS: &str = include_str!("instructions.cu");
const TENSOR: &str = include_str!("tensor.cu");
const SIMT: &str = include_str!("simt.cu");
const WIDE: &str = include_str!("wide.cu");
const PREPARE: &str = include_str!("prepare.cu");

/// Largest number of operations of a formula that is unrolled twice in the inner loop.
const UNROLLED: usize = 16;
/// Largest number of operations of a formula. Longer ones take minutes to compile.
pub(super) const MAX_OPERATIONS: usize = 4000;

/// A kernel expression compiled for one device and one width of points.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub plan: Plan,
    /// The arithmetic of the tiles.
    pub arithmetic: Arithmetic,
    card: Card,
    kappa: String,
    operations: usize,
    pub views: Vec<View>,
    recomputation: Recomputation,
    /// Points are multiplied by two to this power, see [`half`].
    exponent: i32,
    /// Names for points that have a duplicate.
    names: Names,
}

/// The most names; each must be a number of the tiles.
const MOST_NAMES: usize = 1 << 24;

/// The position of a view's coordinates in a prepared point and in a raw point.
#[derive(Clone, Debug)]
pub(super) struct View {
    first: usize,
    width: usize,
    pub source_first: usize,
    pub source_width: usize,
}

/// One of the sources of a program. `nc` is the number of columns of a pass, see [`super::launch::columns_per_pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// `Y = κ(A, B) V`
    Product { nc: usize },
    /// The same, where A or B may be points of a set in another order, see [`super::sets`].
    GatheredProduct { nc: usize },
    /// `Y += κ(A, B) V` from inner products, for points that are wide, see [`wide`].
    Wide { nc: usize },
    /// `κ(A, B)`
    Gram,
    /// The same, where A or B may be points of a set in another order.
    GatheredGram,
    /// `κ(A, A)`; only the tiles on and above the diagonal are computed.
    MirroredGram,
    /// `prepare_points`, `prepare_values` and `reduce_partials`; their inputs and results are f64 if `double`, else f32.
    Prepare { nc: usize, double: bool },
}

impl Program {
    /// For `kernel` on points of width `d`, without a shift of the origin.
    pub fn for_kernel(kernel: &Kernel, d: usize, arithmetic: Arithmetic, card: Card) -> Program {
        Program::new(kernel, Rows::from(&Array2::<f64>::zeros((1, d))), None, arithmetic, card)
    }

    /// As [`Program::new`] for two sets of points, each of which may be on either side of a product: points that are equal to another
    /// one of either set have names.
    pub fn for_sets(kernel: &Kernel, x: Rows<'_>, z: Rows<'_>, arithmetic: Arithmetic, card: Card) -> Program {
        let both = [keys(x), keys(z)].concat();
        Program::with_names(kernel, z, Some(x), Names::repeated(&both), arithmetic, card)
    }

    /// For `kernel` on points `reference` `[n, d]`, whose mean is subtracted from all points where the kernel allows it, and on
    /// the points `others` if A and B differ. Tensor cores require a kernel of one inner product and compute capability 8.0;
    /// otherwise [`Arithmetic::F32`] replaces `arithmetic`.
    pub fn new(
        kernel: &Kernel,
        reference: Rows<'_>,
        others: Option<Rows<'_>>,
        arithmetic: Arithmetic,
        card: Card,
    ) -> Program {
        let names = match others {
            None => Names::repeated(&keys(reference)),
            Some(others) => Names::shared(&keys(others), &keys(reference)),
        };
        Program::with_names(kernel, reference, others, names, arithmetic, card)
    }

    fn with_names(
        kernel: &Kernel,
        reference: Rows<'_>,
        others: Option<Rows<'_>>,
        names: Names,
        arithmetic: Arithmetic,
        card: Card,
    ) -> Program {
        let plan = Plan::new(kernel, reference);
        let of_reference = norms(&plan, reference);
        let of_others = others.map(|others| norms(&plan, others));
        let norms = [&of_reference, of_others.as_ref().unwrap_or(&of_reference)];
        Program::of_facts(plan, reference.d(), norms, names, arithmetic, card)
    }

    /// As [`Self::new`], for points of width `d` of which this is known: the norms in each view, of both sides, and the names of equal
    /// points. [`Arithmetic::Half`] is for points of fewer coordinates than [`wide`] wants and without entries to compute anew.
    pub fn of_facts(
        plan: Plan,
        d: usize,
        norms: [&Vec<Norms>; 2],
        names: Names,
        arithmetic: Arithmetic,
        card: Card,
    ) -> Program {
        let one_product = matches!(plan.statistics[..], [(_, Statistic::Dot)]);
        let tensor = one_product && card.capability >= 80;
        let arithmetic = if arithmetic.is_tensor() && !tensor { Arithmetic::F32 } else { arithmetic };
        let operations = kappa::listing(&plan, arithmetic.style()).operations();
        let views = views(&plan, d, if arithmetic.is_tensor() { 16 } else { 8 });
        let widths: Vec<usize> = views.iter().map(|view| view.source_width).collect();
        let norms = norms.map(Vec::as_slice);
        let recomputation = Recomputation::new(&plan, &widths, norms, arithmetic);
        let width: usize = views.iter().map(|view| view.width).sum();
        let fits = arithmetic == Arithmetic::Half && recomputation.is_empty() && !wide::is_wide(arithmetic, width);
        let exponent = if fits { half::exponent(&plan, width, norms) } else { None };
        let arithmetic =
            if arithmetic == Arithmetic::Half && exponent.is_none() { Arithmetic::Tf32 } else { arithmetic };
        let names = if names.len() < MOST_NAMES { names } else { Names::default() };
        let kappa = kappa::function(&plan, views.len(), arithmetic.style());
        Program {
            arithmetic,
            card,
            kappa,
            operations,
            views,
            recomputation,
            exponent: exponent.unwrap_or(0),
            names,
            plan,
        }
    }

    /// Whether raw points may be rounded to f32: the tiles are, and nothing of what rounding removes is kept.
    pub fn single(&self) -> bool {
        self.arithmetic != Arithmetic::F64 && !self.low()
    }

    /// The name of a point with this key: above 0 where it may have a duplicate, else 0.
    pub fn name(&self, key: u128) -> f64 {
        self.names.find(key).map_or(0.0, |name| 1.0 + name as f64)
    }

    /// Whether some points are equal.
    pub fn has_duplicates(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether what rounding removes from the points is kept.
    pub fn low(&self) -> bool {
        self.recomputation.low
    }

    /// Where the low parts of a raw point begin; 0 if it has none. Rounding to f32 leaves them in the number itself.
    pub fn low_first(&self) -> usize {
        if self.low() && self.arithmetic == Arithmetic::F64 { self.coordinates() } else { 0 }
    }

    /// Number of coordinates of the views of a raw point.
    fn coordinates(&self) -> usize {
        self.views.last().map_or(0, |v| v.source_first + v.source_width)
    }

    /// Number of coordinates of a point in the layout of the tiles.
    pub fn width(&self) -> usize {
        self.views.last().map_or(0, |v| v.first + v.width)
    }

    /// Number of numbers that `prepare_points` stores for the coordinates of a point, low parts included.
    pub fn stored_width(&self) -> usize {
        self.width() * if self.low() { 2 } else { 1 }
    }

    /// Number of coordinates of a raw point, see [`Self::pack`].
    pub fn source_width(&self) -> usize {
        self.coordinates() + self.low_first() + usize::from(self.has_duplicates())
    }

    /// Number of values that `prepare_points` stores per point besides its coordinates: the norm in each view, `κ(x,x)`, and
    /// the name where there are some.
    pub fn norms(&self) -> usize {
        self.views.len() + 1 + usize::from(self.has_duplicates())
    }

    /// The launch of a product or a Gram matrix `[n, m]`.
    pub fn tiling(&self, kind: Kind, n: usize, m: usize) -> Tiling {
        let nc = if let Kind::Product { nc } | Kind::GatheredProduct { nc } = kind { nc } else { 0 };
        // Short splits, so that blocks below the diagonal, which have no work, end early.
        let most = if kind == Kind::MirroredGram { 4 } else { usize::MAX };
        tiling(self.shape(nc), [n, m], nc * self.partial_scalar(), most, self.card)
    }

    /// Bytes of the partial results of a product: `[splits, padded(n), nc]` in f32 on tensor cores, f64 elsewhere.
    pub fn partial_bytes(&self, n: usize, m: usize, nc: usize) -> usize {
        if self.is_wide() {
            return wide::partial_bytes(n, m, nc);
        }
        self.tiling(Kind::Product { nc }, n, m).splits() * padded(n) * nc * self.partial_scalar()
    }

    /// Bytes of the values of one pass as `prepare_values` writes them.
    pub fn values_bytes(&self, m: usize, nc: usize) -> usize {
        // Rows of 64 values are 4 further apart in tiles of tensor cores.
        let rows = if self.arithmetic.is_tensor() && !self.is_wide() { padded(m) / 64 * 68 } else { padded(m) };
        self.halves() * rows * nc * self.arithmetic.bytes()
    }

    /// Whether products are those of `wide.rs`.
    pub fn is_wide(&self) -> bool {
        wide::is_wide(self.arithmetic, self.width())
    }

    /// Numbers that represent one value.
    fn halves(&self) -> usize {
        if self.arithmetic == Arithmetic::Split { 2 } else { 1 }
    }

    fn partial_scalar(&self) -> usize {
        if self.arithmetic.is_tensor() { 4 } else { 8 }
    }

    /// Rows and columns per thread without tensor cores, limited by the registers.
    fn side(&self) -> usize {
        if self.arithmetic == Arithmetic::F64 || self.plan.statistics.len() > 1 { 4 } else { 8 }
    }

    /// The tile of a product with `nc` columns, or of a Gram matrix (0).
    pub fn shape(&self, nc: usize) -> Shape {
        if self.arithmetic.is_tensor() {
            tensor_shape(self.width(), nc, self.arithmetic, self.card)
        } else {
            simt_shape(self.side(), nc, self.arithmetic)
        }
    }

    /// The text of a source.
    pub fn source(&self, kind: Kind) -> String {
        match kind {
            Kind::Product { nc } | Kind::GatheredProduct { nc } => self.tile_source(nc, kind),
            Kind::Gram | Kind::GatheredGram | Kind::MirroredGram => self.tile_source(0, kind),
            Kind::Wide { nc } => self.wide_source(nc),
            Kind::Prepare { nc, double } => self.prepare_source(nc, double),
        }
    }

    fn prepare_source(&self, nc: usize, double: bool) -> String {
        let mut text = String::new();
        let name = |double: bool| if double { "double" } else { "float" };
        define(&mut text, "SOURCE", name(double));
        define(&mut text, "TARGET", name(self.arithmetic == Arithmetic::F64));
        define(&mut text, "PARTIAL", name(!self.arithmetic.is_tensor()));
        define(&mut text, "ROUND_TF32", u32::from(self.arithmetic == Arithmetic::Tf32));
        define(&mut text, "HALF", u32::from(self.arithmetic == Arithmetic::Half));
        define(&mut text, "SCALE", format_args!("{:e}", f64::from(self.exponent).exp2()));
        define(&mut text, "TRANSPOSED", u32::from(self.arithmetic.is_tensor() && !self.is_wide()));
        define(&mut text, "HALVES", self.halves());
        define(&mut text, "NC", nc);
        define(&mut text, "D", self.width());
        define(&mut text, "SOURCE_D", self.source_width());
        let views = self.views.iter().enumerate();
        let views =
            views.map(|(i, v)| format!("V({i}, {}, {}, {}, {})", v.first, v.width, v.source_first, v.source_width));
        define(&mut text, "VIEW_LIST", views.collect::<Vec<_>>().join(" "));
        define(&mut text, "VIEWS", self.views.len());
        define(&mut text, "LOW", u32::from(self.low()));
        define(&mut text, "LOW_FIRST", self.low_first());
        define(&mut text, "DUPLICATES", u32::from(self.has_duplicates()));
        // For a point with itself, inner products are norms and distances are zero.
        let norm = |view: usize| format!("norms[{view}]");
        let with_itself = |i: usize| match self.plan.statistics[i] {
            (_, Statistic::L1) => "0.0".into(),
            (view, _) => norm(view),
        };
        let arguments = kappa::arguments(self.plan.statistics.len(), self.views.len(), with_itself, norm, norm);
        define(&mut text, "DIAGONAL", format!("kappa({arguments})"));
        define(&mut text, "ARITHMETIC", "F64");
        format!("{text}{PRELUDE}{}{PREPARE}", kappa::function(&self.plan, self.views.len(), Style::Exact))
    }

    /// What the sources of tiles and of wide points have in common.
    fn define_statistics(&self, text: &mut String) {
        define(text, "VIEWS", self.views.len());
        define(text, "DUPLICATES", u32::from(self.has_duplicates()));
        define(text, "STATISTICS", self.plan.statistics.len());
        let list = self.plan.statistics.iter().enumerate().map(|(i, &(view, kind))| {
            let View { first, width, .. } = self.views[view];
            format!("X({i}, {first}, {width}, {})", kind == Statistic::L1)
        });
        define(text, "STATISTIC_LIST", list.collect::<Vec<_>>().join(" "));
    }

    fn wide_source(&self, nc: usize) -> String {
        let mut text = String::new();
        define(&mut text, "ARITHMETIC", "FAST");
        define(&mut text, "D", self.width());
        define(&mut text, "NC", nc);
        self.define_statistics(&mut text);
        let recomputation = self.recomputation.source(&self.plan, self.views.len(), self.arithmetic, false, &mut text);
        format!("{text}{PRELUDE}{}{recomputation}{WIDE}", self.kappa)
    }

    /// `nc` is 0 for a Gram matrix.
    fn tile_source(&self, nc: usize, kind: Kind) -> String {
        let (gram, mirror) = (nc == 0, kind == Kind::MirroredGram);
        let gathered = matches!(kind, Kind::GatheredProduct { .. } | Kind::GatheredGram);
        let shape = self.shape(nc);
        let mut text = String::new();
        if self.arithmetic.is_tensor() {
            text.push_str(if shape.group { "// arch: 90\n" } else { "// arch: 80\n" });
        }
        let functions = match self.arithmetic {
            Arithmetic::Half | Arithmetic::Tf32 => "FAST",
            Arithmetic::Split | Arithmetic::F32 => "F32",
            Arithmetic::F64 => "F64",
        };
        define(&mut text, "ARITHMETIC", functions);
        define(&mut text, "D", self.width());
        define(&mut text, "NC", if gram { 8 } else { nc });
        define(&mut text, "GRAM", u32::from(gram));
        define(&mut text, "MIRROR", u32::from(mirror));
        define(&mut text, "GATHERED", u32::from(gathered));
        self.define_statistics(&mut text);
        let recomputation = self.recomputation.source(
            &self.plan,
            self.views.len(),
            self.arithmetic,
            self.arithmetic.is_tensor(),
            &mut text,
        );
        if self.arithmetic.is_tensor() {
            define(&mut text, "SPLIT", self.halves() - 1);
            define(&mut text, "HALF", u32::from(self.arithmetic == Arithmetic::Half));
            define(&mut text, "UNSCALE", format_args!("{:e}f", f64::from(-2 * self.exponent).exp2()));
            define(&mut text, "GROUP", u32::from(shape.group));
            define(&mut text, "WARPS", shape.threads / 32);
            define(&mut text, "MT", 2 * shape.rows / shape.threads);
            define(&mut text, "MIN_BLOCKS", shape.blocks);
            define(&mut text, "STAGES", shape.stages);
            // Unroll twice if there are enough registers.
            let twice = self.operations <= UNROLLED && self.arithmetic.is_fast() && nc <= 16;
            define(&mut text, "UNROLL", if twice && self.recomputation.is_empty() { 2 } else { 1 });
            return format!("{text}{PRELUDE}{}{recomputation}{INSTRUCTIONS}{TENSOR}", self.kappa);
        }
        define(&mut text, "TM", self.side());
        let [statistic, xx, yy] = [("s", "[i][j]"), ("xx", "[i]"), ("yy", "[j]")]
            .map(|(name, index)| move |number: usize| format!("{name}[{number}]{index}"));
        let arguments = kappa::arguments(self.plan.statistics.len(), self.views.len(), statistic, xx, yy);
        define(&mut text, "KAPPA(s, i, j)", format!("kappa({arguments})"));
        define(&mut text, "IS_NEAR(s, i, j)", format!("is_near({arguments})"));
        format!("{text}{PRELUDE}{}{recomputation}{SIMT}", self.kappa)
    }
}

pub(super) fn define(text: &mut String, name: &str, value: impl std::fmt::Display) {
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

/// Whether `kernel` can run on a GPU. Formulas that are too long to compile run on the CPU, and so do some networks of images: those that
/// see more than 32 rows or columns, or are combined with kernels of points.
pub(crate) fn compiles(kernel: &Kernel) -> bool {
    if kernel.sees_images() {
        return image_source::compiles(kernel);
    }
    let d = kernel.lengthscale_of_columns().map_or(1, <[f64]>::len);
    Program::for_kernel(kernel, d, Arithmetic::F32, Card::HOPPER).operations <= MAX_OPERATIONS
}

/// The sources of all kernels of the catalogue and of some expressions, in all arithmetics, as `(unique name, text)`.
/// `.ci/check_cuda_sources.py` compiles them.
pub fn sources() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = vec![];
    let mut put = |name: String, program: &Program, kind: Kind| texts.push((name, program.source(kind)));
    let program = |expression: &str, d: usize, arithmetic| {
        let kernel = Kernel::parse(expression).expect("a valid expression");
        Program::for_kernel(&kernel, d, arithmetic, Card::HOPPER)
    };
    // Two equal points and one far from them: every part of a tile is needed.
    let far = |expression: &str, d: usize, arithmetic| {
        let kernel = Kernel::parse(expression).expect("a valid expression");
        let x = Array2::from_shape_fn((3, d), |(i, _)| if i < 2 { 0.1 } else { 3e7 });
        Program::new(&kernel, Rows::from(&x), None, arithmetic, Card::HOPPER)
    };
    for entry in catalogue() {
        // Split uses the functions of f32; a kernel that cannot use it falls back to f32.
        for arithmetic in [Arithmetic::Half, Arithmetic::Tf32, Arithmetic::Split, Arithmetic::F64] {
            let p = program(entry.name, 64, arithmetic);
            if p.arithmetic == arithmetic || arithmetic == Arithmetic::Split {
                put(format!("{}-{:?}", entry.name, p.arithmetic), &p, Kind::Product { nc: 16 });
            }
        }
    }
    for arithmetic in [Arithmetic::Half, Arithmetic::Tf32, Arithmetic::Split, Arithmetic::F32, Arithmetic::F64] {
        for d in [3, 64, 100, 784] {
            let p = program("rbf", d, arithmetic);
            if p.arithmetic != arithmetic {
                continue;
            }
            put(format!("gram-{d}-{arithmetic:?}"), &p, Kind::Gram);
            put(format!("mirrored-{d}-{arithmetic:?}"), &p, Kind::MirroredGram);
            put(format!("product-{d}-{arithmetic:?}-32"), &p, Kind::Product { nc: 32 });
            put(format!("gathered-{d}-{arithmetic:?}"), &p, Kind::GatheredProduct { nc: 8 });
            put(format!("gathered-gram-{d}-{arithmetic:?}"), &p, Kind::GatheredGram);
        }
        for nc in [8, 16, 24] {
            put(format!("product-64-{arithmetic:?}-{nc}"), &program("rbf", 64, arithmetic), Kind::Product { nc });
        }
        let p = program("rbf", 5, arithmetic);
        put(format!("prepare-{arithmetic:?}"), &p, Kind::Prepare { nc: 8, double: false });
    }
    // Without wgmma.
    let ampere = Card { capability: 80, ..Card::HOPPER };
    let p = Program::for_kernel(&Kernel::parse("rbf").expect("a valid expression"), 64, Arithmetic::Half, ampere);
    put("ampere-gram-64-Half".into(), &p, Kind::Gram);
    for nc in [16, 32] {
        put(format!("ampere-64-Half-{nc}"), &p, Kind::Product { nc });
    }
    for nc in [8, 16, 32] {
        put(format!("wide-784-Tf32-{nc}"), &program("rbf", 784, Arithmetic::Tf32), Kind::Wide { nc });
        put(format!("near-wide-784-Tf32-{nc}"), &far("rbf", 784, Arithmetic::Tf32), Kind::Wide { nc });
    }
    for arithmetic in [Arithmetic::F32, Arithmetic::F64] {
        let p = program("rbf*linear + 2*laplacian + periodic", 5, arithmetic);
        put(format!("mixed-{arithmetic:?}"), &p, Kind::Product { nc: 16 });
        put(format!("mixed-gram-{arithmetic:?}"), &p, Kind::Gram);
        put(format!("mixed-prepare-{arithmetic:?}"), &p, Kind::Prepare { nc: 16, double: true });
    }
    for arithmetic in [Arithmetic::Half, Arithmetic::Tf32] {
        let p = program("0.5*rbf(2)*poly(2) + matern32", 20, arithmetic);
        put(format!("sum-{arithmetic:?}"), &p, Kind::Product { nc: 8 });
    }
    for arithmetic in [Arithmetic::Tf32, Arithmetic::Split, Arithmetic::F32, Arithmetic::F64] {
        for d in [5, 64, 100] {
            let p = far("rbf", d, arithmetic);
            put(format!("near-gram-{d}-{arithmetic:?}"), &p, Kind::Gram);
            put(format!("near-mirrored-{d}-{arithmetic:?}"), &p, Kind::MirroredGram);
            put(format!("near-product-{d}-{arithmetic:?}"), &p, Kind::Product { nc: 16 });
            put(format!("near-gathered-{d}-{arithmetic:?}"), &p, Kind::GatheredProduct { nc: 16 });
        }
        put(format!("near-prepare-{arithmetic:?}"), &far("rbf", 5, arithmetic), Kind::Prepare { nc: 8, double: true });
        let p = far("matern12 + 0.5*rbf(2)*poly(2)", 64, arithmetic);
        put(format!("near-sum-{arithmetic:?}"), &p, Kind::Product { nc: 16 });
    }
    for arithmetic in [Arithmetic::F32, Arithmetic::F64] {
        let p = far("rbf*linear + 2*laplacian + periodic(1, 0.01)", 5, arithmetic);
        put(format!("near-mixed-{arithmetic:?}"), &p, Kind::Product { nc: 16 });
    }
    for arithmetic in [Arithmetic::Half, Arithmetic::F32, Arithmetic::F64] {
        let p = program("ntk(depth=3, act=tanh, b_var=0.1) + nngp(depth=2, act=softplus)", 20, arithmetic);
        put(format!("logistic-sum-{arithmetic:?}"), &p, Kind::Product { nc: 8 });
        let p = program("ntk(depth=3, act=sigmoid)", 20, arithmetic);
        put(format!("logistic-gram-{arithmetic:?}"), &p, Kind::MirroredGram);
    }
    texts.extend(logistic::sources());
    texts.extend(image_source::sources());
    texts.extend(external::sources());
    texts
}
