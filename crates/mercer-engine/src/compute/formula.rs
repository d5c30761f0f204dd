//! The table of activations: the name of each, and its formula with two derivatives, written once over [`Num`]. The loops of
//! the CPU run them on vector lanes, and [`device_functions`] writes them as CUDA source.

use crate::simd::source::{PRELUDE, Source, Style, Variable, record, record_all};
use crate::simd::{Num, SimdJob, dispatch};
use crate::{Error, Result};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use std::marker::PhantomData;

/// A function of one unit.
pub(super) trait Formula {
    /// `(φ(z), φ'(z))`
    fn at<T: Num>(z: T) -> (T, T);
    /// `φ''(z)`, given `z`, `φ(z)` and `φ'(z)`; zero at a kink or jump.
    fn curvature<T: Num>(z: T, value: T, slope: T) -> T;
}

/// What can be done with an activation whose formulas are types: `F` of the first half of a layer's units, `G` of the second.
/// It is compiled for every instruction set, as a [`SimdJob`] is.
pub(super) trait Visitor {
    type Output;
    fn visit<F: Formula, G: Formula, const FMA: bool>(self) -> Self::Output;
}

/// A visitor with its formulas.
struct Visit<V, F, G>(V, PhantomData<(F, G)>);

impl<V: Visitor, F: Formula, G: Formula> SimdJob for Visit<V, F, G> {
    type Output = V::Output;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> V::Output {
        self.0.visit::<F, G, FMA>()
    }
}

macro_rules! activations {
    (@second $first:ident) => { $first };
    (@second $first:ident $second:ident) => { $second };
    ($($(#[$doc:meta])* $name:ident $text:literal $(then $second:ident)?:
        |$z:pat_param| $at:expr, |$u:pat_param, $v:pat_param, $s:pat_param| $curvature:expr;)*) => {
        /// A function applied to every unit of a layer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Activation {
            $($(#[$doc])* $name),*
        }

        impl Activation {
            /// Every one of them.
            pub const ALL: [Activation; [$($text),*].len()] = [$(Activation::$name),*];

            /// Their names, in the order of [`Activation::ALL`].
            pub const NAMES: [&'static str; Activation::ALL.len()] = [$($text),*];

            pub(super) fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Activation::$name => {
                        dispatch(Visit::<V, $name, activations!(@second $name $($second)?)>(visitor, PhantomData))
                    })*
                }
            }
        }

        $(
            struct $name;
            impl Formula for $name {
                #[inline(always)]
                fn at<T: Num>($z: T) -> (T, T) {
                    $at
                }
                #[inline(always)]
                fn curvature<T: Num>($u: T, $v: T, $s: T) -> T {
                    $curvature
                }
            }
        )*
    };
}

/// Slope of the leaky ReLU below zero.
pub const LEAK: f64 = 0.01;

/// `1/√(2π)`
const DENSITY: f64 = 0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI;

activations! {
    /// `z`
    Identity "identity": |z| (z, T::of(1.0)), |_, _, _| T::of(0.0);
    /// `max(z, 0)`
    Relu "relu": |z| (z.max(T::of(0.0)), T::select_gt(z, T::of(0.0), T::of(1.0), T::of(0.0))), |_, _, _| T::of(0.0);
    /// `z` above zero, `z/100` below
    LeakyRelu "leaky_relu":
        |z| (z.max(z * T::of(LEAK)), T::select_gt(z, T::of(0.0), T::of(1.0), T::of(LEAK))), |_, _, _| T::of(0.0);
    /// `|z|`
    Abs "abs": |z| (z.abs(), T::select_gt(z, T::of(0.0), T::of(1.0), T::of(-1.0))), |_, _, _| T::of(0.0);
    /// The error function
    Erf "erf": |z| (z.erf(), T::of(FRAC_2_SQRT_PI) * (-(z * z)).exp()), |z, _, slope| z * (T::of(-2.0) * slope);
    /// Sine
    Sin "sin": |z| z.sin_cos(), |_, value, _| -value;
    /// Cosine
    Cos "cos": |z| { let (s, c) = z.sin_cos(); (c, -s) }, |_, value, _| -value;
    /// Sine of the first half of the units, cosine of the second
    SinCos "sincos" then Cos: |z| Sin::at(z), |z, value, slope| Sin::curvature(z, value, slope);
    /// `±1`, the sign
    Sign "sign": |z| (T::select_gt(T::of(0.0), z, T::of(-1.0), T::of(1.0)), T::of(0.0)), |_, _, _| T::of(0.0);
    /// 1 above zero, 0 below
    Step "step": |z| (T::select_gt(z, T::of(0.0), T::of(1.0), T::of(0.0)), T::of(0.0)), |_, _, _| T::of(0.0);
    /// `exp(−z²)`
    Gaussian "gaussian": |z| { let e = (-(z * z)).exp(); (e, T::of(-2.0) * z * e) },
        |z, value, slope| T::of(-2.0) * (value + z * slope);
    /// `exp(z)`
    Exp "exp": |z| { let e = z.exp(); (e, e) }, |_, value, _| value;
    /// `z Φ(z)` with Φ the normal distribution function
    Gelu "gelu":
        // Φ(z) = (1 + erf(z/√2))/2, and its derivative is the density e^{−z²/2}/√(2π).
        |z| {
            let cdf = T::of(0.5) * (T::of(1.0) + (z * T::of(FRAC_1_SQRT_2)).erf());
            let density = T::of(DENSITY) * (T::of(-0.5) * z * z).exp();
            (z * cdf, cdf + z * density)
        },
        |z, _, _| {
            let square = z * z;
            (T::of(2.0) - square) * (T::of(DENSITY) * (T::of(-0.5) * square).exp())
        };
    /// Hyperbolic tangent
    Tanh "tanh": |z| { let t = z.tanh(); (t, T::of(1.0) - t * t) }, |_, value, slope| T::of(-2.0) * value * slope;
    /// `1/(1 + exp(−z))`
    Sigmoid "sigmoid": |z| { let v = logistic(z); (v, v * (T::of(1.0) - v)) },
        |_, value, slope| slope * (T::of(1.0) - (value + value));
    /// `ln(1 + exp(z))`
    Softplus "softplus":
        |z| (z.max(T::of(0.0)) + (T::of(1.0) + (-z.abs()).exp()).ln(), logistic(z)),
        |_, _, slope| slope * (T::of(1.0) - slope);
}

#[inline(always)]
fn logistic<T: Num>(z: T) -> T {
    T::of(1.0) / (T::of(1.0) + (-z).exp())
}

impl Activation {
    /// The name used in architectures.
    pub fn name(self) -> &'static str {
        Activation::NAMES[self as usize]
    }

    /// The activation of that name, if there is one.
    pub fn find(name: &str) -> Option<Activation> {
        Activation::ALL.into_iter().find(|a| a.name() == name)
    }

    /// The activation of that name.
    ///
    /// ```
    /// use mercer_engine::compute::Activation;
    /// assert_eq!(Activation::parse("gelu")?, Activation::Gelu);
    /// let error = Activation::parse("rellu").unwrap_err().to_string();
    /// assert!(error.contains("did you mean 'relu'"), "{error}");
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn parse(name: &str) -> Result<Activation> {
        Activation::find(name).ok_or_else(|| Error::unknown("activation", name, Activation::NAMES))
    }

    /// Value and slope at `z` in double precision, for a unit in the first (`false`) or second half of a layer.
    ///
    /// ```
    /// use mercer_engine::compute::Activation;
    /// assert_eq!(Activation::Relu.at(3.0, false), (3.0, 1.0));
    /// assert_eq!(Activation::SinCos.at(0.0, true), (1.0, 0.0));
    /// ```
    pub fn at(self, z: f64, second_half: bool) -> (f64, f64) {
        struct At(f64, bool);
        impl Visitor for At {
            type Output = (f64, f64);
            fn visit<F: Formula, G: Formula, const FMA: bool>(self) -> (f64, f64) {
                if self.1 { G::at(self.0) } else { F::at(self.0) }
            }
        }
        self.visit(At(z, second_half))
    }
}

/// The formulas as device code: `activate(phi, z, value, slope)` and `curvature(phi, z, value, slope)`, with `phi` a place in
/// [`Activation::ALL`], and `formula(phi, column, width)`, the `phi` of a unit: sine or cosine in the halves of a sincos layer.
pub(super) fn device_functions() -> String {
    struct Write;
    impl Visitor for Write {
        type Output = [String; 2];
        fn visit<F: Formula, G: Formula, const FMA: bool>(self) -> [String; 2] {
            let [z, v, s] = ["z", "v", "s"].map(|name| move || Source::variable(Variable::Named(name)));
            let both = record_all(Style::Exact, || <[Source; 2]>::from(F::at(z())));
            let second = record(Style::Exact, || F::curvature(z(), v(), s()));
            [both.statements(&["v", "s"]), second.statements(&["c"])]
        }
    }
    let case =
        |phi: Activation| phi.visit(Write).map(|text| format!("case {}: {{\n{text}    break;\n}}\n", phi as i32));
    let cases: Vec<[String; 2]> = Activation::ALL.into_iter().map(case).collect();
    let [values, curvatures] = [0, 1].map(|i| cases.iter().map(|case| case[i].as_str()).collect::<String>());
    let [sin, cos, both] = [Activation::Sin, Activation::Cos, Activation::SinCos].map(|phi| phi as i32);
    format!(
        "#define ARITHMETIC 2\n{PRELUDE}\n\
         INLINE int formula(int phi, unsigned column, unsigned width) {{\n\
         return phi == {both} ? (column < width / 2 ? {sin} : {cos}) : phi;\n}}\n\
         INLINE void activate(int phi, float z, float& v, float& s) {{\nswitch (phi) {{\n{values}}}\n}}\n\
         INLINE float curvature(int phi, float z, float v, float s) {{\nfloat c = 0.0f;\nswitch (phi) {{\n{curvatures}}}\nreturn c;\n}}\n"
    )
}
