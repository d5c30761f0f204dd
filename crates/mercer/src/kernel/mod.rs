//! Kernels: formulas for similarity, and the expressions that combine them.
//!
//! Each base kernel writes its formula once, as a function of a [`Pair`] over any [`Num`]: `f64` is the oracle, vector lanes
//! run inside the operator's tiles.
//! To add a kernel: add its `formula!` to `dot.rs`, `distance.rs` or a file of its own, and its name to the `kernels!` list below.
//!
//! ```
//! use mercer::kernel::Kernel;
//! let k = Kernel::parse("0.5*rbf(lengthscale=2) + poly(degree=3)")?;
//! let (x, y) = ([1.0, 0.0], [0.0, 2.0]);
//! let d2 = 5.0f64;
//! assert!((k.value(&x, &y) - (0.5 * (-d2 / 8.0).exp() + 1.0)).abs() < 1e-15);
//! # Ok::<(), mercer::Error>(())
//! ```

/// Declares a base kernel whose parameters are numbers: `Type("name", "help") { field: parameter, … }`, then the constants
/// and methods of its [`Formula`]. With the word `columns` before the bracket its lengthscale may be one for each column.
macro_rules! formula {
    (
        $(#[$doc:meta])*
        $type:ident($name:literal, $help:literal) $($columns:ident)? { $($field:ident: $parameter:expr),* $(,)? }
        $($item:tt)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $type {
            $(pub(crate) $field: f64,)*
            $(pub(crate) $columns: Option<std::sync::Arc<[f64]>>,)?
        }

        impl Formula for $type {
            const NAME: &'static str = $name;
            const HELP: &'static str = $help;
            const PARAMETERS: &'static [Parameter] = &[$($parameter),*];

            fn from_arguments(arguments: &[Option<Value>], _inputs: Option<usize>) -> Result<Self> {
                $(let $columns = crate::kernel::parameter::lengthscale_of_each(Self::NAME, Self::PARAMETERS, arguments, _inputs)?;)?
                let [$($field),*] = arguments else { unreachable!("one argument for each parameter") };
                Ok($type { $($field: $parameter.number($field),)* $($columns)? })
            }

            fn arguments(&self) -> Vec<String> {
                let given: &[Option<String>] = &[$(crate::kernel::text::argument(self, stringify!($field), self.$field)),*];
                given.iter().flatten().cloned().collect()
            }

            $(fn columns(&self) -> Option<&[f64]> {
                self.$columns.as_deref()
            })?

            $($item)*
        }
    };
}

mod custom;
mod distance;
mod dot;
mod expression;
pub mod infinite;
mod lift;
mod median;
mod parameter;
mod periodic;
mod registered;
mod text;
mod tunable;

use custom::Custom;
use distance::{Laplacian, Matern12, Matern32, Matern52, Rbf};
use dot::{ArcCosine, Cosine, ExpDot, Linear, Polynomial};
pub use expression::Expression;
use expression::Known;
pub use infinite::{Nngp, Ntk};
pub use lift::{Circles, Lift};
pub use median::Median;
pub use parameter::{Kind, Parameter, Value};
use periodic::Periodic;
pub use tunable::Tunable;
pub(crate) use tunable::{OpenLengthscale, power};

use crate::simd::Num;
use crate::{Error, Registry, Result};
use ndarray::{Array2, ArrayView1, ArrayView2};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What a formula sees of two points. `examples/own_kernel.rs` uses it.
#[derive(Clone, Copy, Debug)]
pub struct Pair<R> {
    /// The statistic the formula asked for.
    pub s: R,
    /// `‖x‖²`
    pub xx: R,
    /// `‖x'‖²`
    pub yy: R,
}

impl<R> Pair<R> {
    /// The same pair in other numbers.
    pub(crate) fn map<S>(self, f: impl Fn(R) -> S) -> Pair<S> {
        Pair { s: f(self.s), xx: f(self.xx), yy: f(self.yy) }
    }
}

impl<R: Num> Pair<R> {
    /// From `s = x·x'`, the pair with `s = ‖x−x'‖² = ‖x‖² + ‖x'‖² − 2 x·x'`, never below zero.
    #[inline(always)]
    pub(crate) fn expanded(self) -> Pair<R> {
        Pair { s: (self.xx + self.yy - (self.s + self.s)).max(R::of(0.0)), ..self }
    }
}

/// The one number, beside the norms, that a formula needs of two points. `examples/own_kernel.rs` uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// `x·x'`, a matrix product.
    Dot,
    /// `‖x−x'‖²`. It comes from the same matrix product; where that would cancel, from the differences of the coordinates. Such
    /// a formula must be convex in it, as every kernel of the distance is that is one in any dimension.
    SquaredDistance,
    /// `‖x−x'‖₁`
    L1,
    /// No number: a network that looks at images computes its kernel from the images ([`Base::network`]).
    Images,
}

/// A base kernel: a formula with named parameters. `examples/own_kernel.rs` implements one outside the crate.
pub trait Formula: Clone + fmt::Debug + PartialEq + Send + Sync {
    /// Its name in expressions.
    const NAME: &'static str;
    /// The formula and one line of help.
    const HELP: &'static str;
    /// Its parameters in the order in which they may be given without a name.
    const PARAMETERS: &'static [Parameter];
    /// What it needs of two points.
    const STATISTIC: Statistic = Statistic::Dot;
    /// Whether `κ(x,x')` depends on `x−x'` alone.
    const SHIFT_INVARIANT: bool = false;
    /// What a lengthscale of `median` is, about which others are searched for.
    const MEDIAN: Median = Median::Distance;
    /// How many standard normals beyond the `d` of the input one Fourier frequency takes.
    const EXTRA_NORMALS: usize = 0;

    /// From checked values, one for each of [`Self::PARAMETERS`] where it is given; `inputs` is the dimension of the points,
    /// where it is known.
    ///
    /// Outside the crate, it is needed to load models that hold the kernel ([`Registry`]).
    fn from_arguments(_arguments: &[Option<Value>], _inputs: Option<usize>) -> Result<Self> {
        Err(Error::input(format!("the kernel `{}` cannot be read: its formula has no from_arguments", Self::NAME)))
    }

    /// The arguments that [`Self::from_arguments`] reads back, as they are written in an expression.
    fn arguments(&self) -> Vec<String> {
        vec![]
    }

    /// Whether it is the kernel of an infinite network, which has loops of its own.
    #[doc(hidden)]
    const IS_NETWORK: bool = false;

    /// What it needs of two points, where that depends on its parameters.
    fn statistic(&self) -> Statistic {
        Self::STATISTIC
    }

    /// `κ(x,x')`. Must be `#[inline(always)]` and free of branches on `R`, so that loops over it become vector code.
    fn eval<R: Num>(&self, pair: Pair<R>) -> R;

    /// The lengthscales `[d]` by which the columns of the inputs are divided before anything else; none where there is one for all.
    fn columns(&self) -> Option<&[f64]> {
        None
    }

    /// The lengthscale of all columns by which the inputs are divided before anything else, where [`Self::eval`] does not take it into account.
    fn divisor(&self) -> f64 {
        1.0
    }

    /// The map of points of `d` columns before the statistic is taken. [`Lift::Circles`] takes the lengthscales of columns by itself,
    /// and [`Self::frequency`] does so too; before any other map the points are divided by them.
    fn lift(&self, _d: usize) -> Lift<'_> {
        Lift::Itself
    }

    /// One frequency of the kernel's spectral measure, from standard normals:
    /// `κ(x,x')/κ(0) = E_z[cos(ω(z)·(x−x'))]`. `normals` holds `d + EXTRA_NORMALS` of them; ω replaces the first `d`.
    /// Only for shift-invariant kernels.
    fn frequency(&self, _normals: &mut [f64]) {
        unreachable!("{} is not shift-invariant", Self::NAME)
    }
}

macro_rules! kernels {
    // `$d` is a dollar sign, for the macro within.
    ($d:tt $($name:ident),*) => {
        /// One of the base kernels; [`catalogue`] describes each. Example: [`Kernel`].
        #[derive(Clone, Debug, PartialEq)]
        pub enum Base {
            $(#[doc = concat!("`", stringify!($name), "`")] $name($name),)*
            /// See [`Kernel::from_formula`].
            Custom(Custom),
        }

        impl Base {
            pub(crate) fn from_arguments(name: &str, arguments: &[Option<Value>], inputs: Option<usize>) -> Result<Base> {
                $(if name == $name::NAME { return $name::from_arguments(arguments, inputs).map(Base::$name); })*
                unreachable!("the parser checked the name {name}")
            }
        }

        /// An expression in the formula of a base kernel, whose type it knows.
        macro_rules! with_formula {
            ($d base:expr, $d formula:ident => $d value:expr) => {
                match $d base {
                    $(crate::kernel::Base::$name($d formula) => $d value,)*
                    crate::kernel::Base::Custom($d formula) => $d value,
                }
            };
        }

        /// Every base kernel there is.
        ///
        /// ```
        /// let rbf = mercer::kernel::catalogue().into_iter().find(|entry| entry.name == "rbf").unwrap();
        /// assert_eq!((rbf.shift_invariant, rbf.parameters[0].name), (true, "lengthscale"));
        /// ```
        pub fn catalogue() -> Vec<Entry> {
            vec![$(Entry {
                name: $name::NAME,
                help: $name::HELP,
                parameters: $name::PARAMETERS,
                shift_invariant: $name::SHIFT_INVARIANT,
                statistic: $name::STATISTIC,
                median: $name::MEDIAN,
            }),*]
        }
    };
}

kernels!($
    Linear, Polynomial, Rbf, Laplacian, Matern12, Matern32, Matern52, Periodic, Cosine, ArcCosine, ExpDot, Nngp, Ntk
);
pub(crate) use with_formula;

/// A line of the [`catalogue`]. Example: [`catalogue`].
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name in expressions.
    pub name: &'static str,
    /// Formula and one line of help.
    pub help: &'static str,
    /// Parameters in order.
    pub parameters: &'static [Parameter],
    /// Whether random Fourier features exist for it.
    pub shift_invariant: bool,
    /// What it needs of two points.
    pub statistic: Statistic,
    /// What a lengthscale of `median` is.
    pub median: Median,
}

/// A kernel: base kernels under sums, products and positive scalings. Example: [the module](self).
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// A base kernel.
    Base(Base),
    /// `c·κ`, `c > 0`
    Scale(f64, Box<Kernel>),
    /// `Σ κ_i`
    Sum(Vec<Kernel>),
    /// `Π κ_i`
    Product(Vec<Kernel>),
}

impl Kernel {
    /// Reads an expression whose parameters are all numbers. For one that looks at the data
    /// (`rbf(lengthscale=median)`), see [`Expression::resolve`].
    pub fn parse(text: &str) -> Result<Kernel> {
        expression::constant(text, Known::default(), None)
    }

    /// The same, with the kernels of `registry` too. Example: [`Registry`].
    pub fn parse_with(text: &str, registry: &Registry) -> Result<Kernel> {
        expression::constant(text, Known { registry: Some(registry), of_model: false }, None)
    }

    /// The kernel of a saved model of points of `d` columns; one of images of another size is refused.
    pub(crate) fn of_model(text: &str, d: usize, registry: &Registry) -> Result<Kernel> {
        expression::constant(text, Known { registry: Some(registry), of_model: true }, Some(d))
    }

    /// A kernel written outside the crate, used like any other: alone, in sums and products, on the CPU and on a GPU.
    ///
    /// ```
    /// use mercer::kernel::{Formula, Kernel, Pair, Parameter, Statistic};
    /// use mercer::Num;
    /// /// 1/(1 + ‖x−x'‖²)
    /// #[derive(Clone, Debug, PartialEq)]
    /// struct Cauchy;
    /// impl Formula for Cauchy {
    ///     const NAME: &'static str = "cauchy";
    ///     const HELP: &'static str = "1/(1 + ‖x−x'‖²)";
    ///     const PARAMETERS: &'static [Parameter] = &[];
    ///     const STATISTIC: Statistic = Statistic::SquaredDistance;
    ///     fn eval<R: Num>(&self, pair: Pair<R>) -> R {
    ///         R::of(1.0) / (R::of(1.0) + pair.s)
    ///     }
    /// }
    /// assert_eq!(Kernel::from_formula(Cauchy).value(&[0.0], &[1.0]), 0.5);
    /// ```
    pub fn from_formula(formula: impl Formula + 'static) -> Kernel {
        Kernel::Base(Base::Custom(Custom(Arc::new(formula))))
    }

    /// `κ(x,x')` in f64 by the plain formula: the oracle.
    pub fn value(&self, x: &[f64], y: &[f64]) -> f64 {
        fn at(base: &Base, x: &[f64], y: &[f64]) -> f64 {
            let lifted = |v: &[f64]| {
                let row = ArrayView2::from_shape((1, v.len()), v).expect("a slice is a row");
                base.lift(row).map_or_else(|| v.to_vec(), |l| l.into_raw_vec_and_offset().0)
            };
            let (x, y) = (lifted(x), lifted(y));
            if let Some((network, ntk)) = base.network().filter(|(network, _)| network.shape().is_some()) {
                return infinite::value(network, ntk, &x, &y);
            }
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let differences = x.iter().zip(&y).map(|(a, b)| a - b);
            let s = match base.statistic() {
                Statistic::Dot => dot(&x, &y),
                Statistic::SquaredDistance => differences.map(|t| t * t).sum(),
                Statistic::L1 => differences.map(f64::abs).sum(),
                Statistic::Images => unreachable!("images are compared by their network"),
            };
            base.eval(Pair { s, xx: dot(&x, &x), yy: dot(&y, &y) })
        }
        self.combine(&mut |base| at(base, x, y))
    }

    /// The value of the expression from those of its base kernels, which are asked for from left to right.
    pub(crate) fn combine<R: Num>(&self, value: &mut dyn FnMut(&Base) -> R) -> R {
        let terms = match self {
            Kernel::Base(base) => return value(base),
            Kernel::Scale(c, k) => return k.combine(value) * R::of(*c),
            Kernel::Sum(ks) | Kernel::Product(ks) => ks.iter().map(|k| k.combine(value)),
        };
        let join = |a: R, b: R| if matches!(self, Kernel::Sum(_)) { a + b } else { a * b };
        terms.reduce(join).expect("a sum or product has terms")
    }

    /// The base kernels of the expression, from left to right.
    pub fn bases(&self) -> Vec<&Base> {
        match self {
            Kernel::Base(base) => vec![base],
            Kernel::Scale(_, k) => k.bases(),
            Kernel::Sum(ks) | Kernel::Product(ks) => ks.iter().flat_map(Kernel::bases).collect(),
        }
    }

    /// Whether a network in it compares images, position by position, rather than points.
    pub fn sees_images(&self) -> bool {
        self.bases().into_iter().any(|base| base.network().is_some_and(|(network, _)| network.shape().is_some()))
    }

    /// The number of features that it has on points of d columns, where its formula bounds it: d of a linear kernel, `C(d+p, p)` of a
    /// polynomial of degree p. Those of a sum add up, and those of a product multiply.
    ///
    /// ```
    /// use mercer::kernel::Kernel;
    /// assert_eq!(Kernel::parse("poly(degree=2) + 3*linear")?.rank(4), Some(15 + 4));
    /// assert_eq!(Kernel::parse("linear + rbf(1)")?.rank(4), None);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn rank(&self, d: usize) -> Option<usize> {
        match self {
            Kernel::Base(Base::Linear(_)) => Some(d),
            Kernel::Base(Base::Polynomial(formula)) => {
                // C(d+p, p) = Π_i (d+i)/i, whole after each factor.
                (1..=formula.degree as usize).try_fold(1usize, |count, i| Some(count.checked_mul(d + i)? / i))
            }
            Kernel::Base(_) => None,
            Kernel::Scale(_, kernel) => kernel.rank(d),
            Kernel::Sum(ks) => ks.iter().try_fold(0usize, |sum, k| sum.checked_add(k.rank(d)?)),
            Kernel::Product(ks) => ks.iter().try_fold(1usize, |product, k| product.checked_mul(k.rank(d)?)),
        }
    }

    /// The lengthscale of each column `[d]`, of the first base kernel that has one for each.
    ///
    /// ```
    /// let kernel = mercer::kernel::Kernel::parse("2*rbf([1, 0.5]) + linear")?;
    /// assert_eq!(kernel.lengthscale_of_columns(), Some(&[1.0, 0.5][..]));
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn lengthscale_of_columns(&self) -> Option<&[f64]> {
        self.bases().into_iter().find_map(Base::columns)
    }

    /// Refuses points of d columns where the kernel has lengthscales or periods for another number of them.
    pub(crate) fn check_columns(&self, d: usize) -> Result<()> {
        for base in self.bases() {
            for (what, each) in [("lengthscale", base.columns()), ("period", base.periods())] {
                if let Some(each) = each.filter(|each| each.len() != d) {
                    return Err(Error::input(format!(
                        "the kernel has a {what} for each of {} columns, and the points have {d}",
                        each.len()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether `κ(x,x')` depends on `x−x'` alone, so that Fourier features exist.
    pub fn is_shift_invariant(&self) -> bool {
        self.bases().into_iter().all(Base::is_shift_invariant)
    }
}

impl Base {
    /// The formula at `pair`, in f64. Compiled once: the formulas of networks are long.
    #[inline(never)]
    pub(crate) fn eval(&self, pair: Pair<f64>) -> f64 {
        with_formula!(self, formula => formula.eval(pair))
    }

    /// What the formula needs of two points.
    pub(crate) fn statistic(&self) -> Statistic {
        with_formula!(self, formula => formula.statistic())
    }

    /// The map of the points before the statistic is taken, where there is one: `[n, d] → [n, p]`.
    pub(crate) fn lift(&self, x: ArrayView2<f64>) -> Option<Array2<f64>> {
        let lift = self.lift_of(x.ncols());
        let Some(lengthscales) = self.divisors(x.ncols()) else { return lift.of(x) };
        let x = &x / &ArrayView1::from(&*lengthscales);
        lift.of(x.view()).or(Some(x))
    }

    /// The map of points of `d` columns, after they were divided by lengthscales, before the statistic is taken.
    pub(crate) fn lift_of(&self, d: usize) -> Lift<'_> {
        with_formula!(self, formula => formula.lift(d))
    }

    /// Whether the lift does no more than divide the columns of points of `d` columns by lengthscales.
    pub(crate) fn only_divides(&self, d: usize) -> bool {
        self.divisors(d).is_some() && self.lift_of(d) == Lift::Itself
    }

    /// The lengthscales `[d]` by which the columns of points of `d` columns are divided before the formula sees them, where there are some.
    pub(crate) fn divisors(&self, d: usize) -> Option<Cow<'_, [f64]>> {
        fn of<F: Formula>(formula: &F, d: usize) -> Option<Cow<'_, [f64]>> {
            match (formula.columns(), formula.divisor()) {
                _ if matches!(formula.lift(d), Lift::Circles(_)) => None,
                (Some(each), _) => Some(each.into()),
                (None, 1.0) => None,
                (None, one) => Some(vec![one; d].into()),
            }
        }
        with_formula!(self, formula => of(formula, d))
    }

    /// The lengthscale of each column `[d]`, where there is one for each.
    pub(crate) fn columns(&self) -> Option<&[f64]> {
        with_formula!(self, formula => formula.columns())
    }

    /// The period of each column `[d]`, where there is one for each.
    fn periods(&self) -> Option<&[f64]> {
        if let Base::Periodic(formula) = self { formula.periods.as_deref() } else { None }
    }

    /// The network, for the kernel of an infinite one, and whether the kernel is its NTK.
    pub fn network(&self) -> Option<(&infinite::Network, bool)> {
        match self {
            Base::Ntk(formula) => Some((&formula.network, true)),
            Base::Nngp(formula) => Some((&formula.network, false)),
            _ => None,
        }
    }

    /// Whether `κ(x,x')` depends on `x−x'` alone.
    pub fn is_shift_invariant(&self) -> bool {
        fn ask<F: Formula>(_: &F) -> bool {
            F::SHIFT_INVARIANT
        }
        with_formula!(self, formula => ask(formula))
    }
}
