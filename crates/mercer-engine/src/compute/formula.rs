//! The table of activations: the name of each, and its formula with two derivatives, written once over [`Num`]. The loops of
//! the CPU run them on vector lanes, and [`device_functions`] writes them as CUDA source.

use crate::simd::source::{PRELUDE, Source, Style, Variable, record, record_all};
use crate::simd::{Num, SimdJob, dispatch};
use crate::syntax::Call;
use crate::{Error, Result, fail_if};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_4, SQRT_2};
use std::fmt;
use std::marker::PhantomData;

/// Most numbers that an activation can have as parameters; a polynomial is of a lower degree.
pub const PARAMETERS: usize = 8;

/// A function of one unit. `p` are the activation's parameters, see [`Activation::parameters`].
pub(super) trait Formula {
    /// `(φ(z), φ'(z))`
    fn at<T: Num>(p: &[T; PARAMETERS], z: T) -> (T, T);
    /// `φ''(z)`, given `z`, `φ(z)` and `φ'(z)`; zero at a kink or jump.
    fn curvature<T: Num>(p: &[T; PARAMETERS], z: T, value: T, slope: T) -> T;
}

/// What can be done with an activation whose formulas are types: `F` of the first half of a layer's units, `G` of the second,
/// both with the parameters `p`. It is compiled for every instruction set, as a [`SimdJob`] is.
pub(super) trait Visitor {
    type Output;
    fn visit<F: Formula, G: Formula, const FMA: bool>(self, p: &[f64; PARAMETERS]) -> Self::Output;
}

/// A visitor with its formulas.
struct Visit<V, F, G>(V, [f64; PARAMETERS], PhantomData<(F, G)>);

impl<V: Visitor, F: Formula, G: Formula> SimdJob for Visit<V, F, G> {
    type Output = V::Output;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> V::Output {
        self.0.visit::<F, G, FMA>(&self.1)
    }
}

macro_rules! activations {
    (@second $first:ident) => { $first };
    (@second $first:ident $second:ident) => { $second };
    ($($(#[$doc:meta])* $name:ident $(($($type:ty),*) = ($($sample:expr),*))? $text:literal $(then $second:ident)?:
        |$p:pat_param, $z:pat_param| $at:expr,
        |$q:pat_param, $u:pat_param, $v:pat_param, $s:pat_param| $curvature:expr;)*) => {
        /// A function applied to every unit of a layer.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Activation {
            $($(#[$doc])* $name $(($($type),*))?,)*
            /// In infinite networks only: `E[φ(u)φ(v)] = √(ab) exp(γ(ρ + s))` for inputs of variances a, b and correlation ρ,
            /// with γ and s. No function of a unit has it.
            ExpNormalized(f64, f64),
        }

        /// The places of the activations in the table.
        #[derive(Clone, Copy)]
        enum Place {
            $($name),*
        }

        impl Activation {
            /// Every function of a unit; those with parameters with some values of these.
            pub const ALL: [Activation; [$($text),*].len()] = [$(Activation::$name $(($($sample),*))?),*];

            /// Their names, in the order of [`Activation::ALL`], and that of the one that is no function.
            pub const NAMES: [&'static str; Activation::ALL.len() + 1] = [$($text,)* "exp_normalized"];

            /// Its place in [`Activation::NAMES`], whatever its parameters.
            #[inline(always)]
            pub const fn place(self) -> usize {
                match self {
                    $(Activation::$name { .. } => Place::$name as usize,)*
                    Activation::ExpNormalized(..) => Activation::ALL.len(),
                }
            }

            pub(super) fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                let p = self.parameters();
                match self {
                    $(Activation::$name { .. } => {
                        dispatch(Visit::<V, $name, activations!(@second $name $($second)?)>(visitor, p, PhantomData))
                    })*
                    Activation::ExpNormalized(..) => panic!("{self} is no function of a unit"),
                }
            }
        }

        $(
            struct $name;
            impl Formula for $name {
                #[inline(always)]
                fn at<T: Num>($p: &[T; PARAMETERS], $z: T) -> (T, T) {
                    $at
                }
                #[inline(always)]
                fn curvature<T: Num>($q: &[T; PARAMETERS], $u: T, $v: T, $s: T) -> T {
                    $curvature
                }
            }
        )*
    };
}

/// Slope of the leaky ReLU below zero, unless it is given.
pub const LEAK: f64 = 0.01;

/// `1/√(2π)`
const DENSITY: f64 = 0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI;

/// The unit of the sigmoid-like error function, as neural-tangents has it: nearest to the sigmoid on [−5, 5].
pub const SIGMOID_LIKE: f64 = 2.402_056_353_171_979_6;

activations! {
    /// `z`
    Identity "identity": |_, z| (z, T::of(1.0)), |_, _, _, _| T::of(0.0);
    /// `max(z, 0)`
    Relu "relu": |_, z| (z.max(T::of(0.0)), T::select_gt(z, T::of(0.0), T::of(1.0), T::of(0.0))), |_, _, _, _| T::of(0.0);
    /// `z` above zero, `slope·z` below
    LeakyRelu(f64) = (LEAK) "leaky_relu": |p, z| bent(p[0], T::of(1.0), z), |_, _, _, _| T::of(0.0);
    /// `a·z` below zero, `b·z` above
    AbRelu(f64, f64) = (-0.5, 1.5) "ab_relu": |p, z| bent(p[0], p[1], z), |_, _, _, _| T::of(0.0);
    /// `|z|`
    Abs "abs": |_, z| (z.abs(), T::select_gt(z, T::of(0.0), T::of(1.0), T::of(-1.0))), |_, _, _, _| T::of(0.0);
    /// The error function
    Erf "erf": |_, z| (z.erf(), T::of(FRAC_2_SQRT_PI) * (-(z * z)).exp()), |_, z, _, slope| z * (T::of(-2.0) * slope);
    /// `½ + ½ erf(z/2.402…)`, close to the sigmoid
    SigmoidLike "sigmoid_like":
        |p, z| {
            let (value, slope) = Erf::at(p, z * T::of(1.0 / SIGMOID_LIKE));
            (T::of(0.5).mul_add(value, T::of(0.5)), T::of(0.5 / SIGMOID_LIKE) * slope)
        },
        |_, z, _, slope| z * (T::of(-2.0 / (SIGMOID_LIKE * SIGMOID_LIKE)) * slope);
    /// Sine
    Sin "sin": |_, z| z.sin_cos(), |_, _, value, _| -value;
    /// Cosine
    Cos "cos": |_, z| { let (s, c) = z.sin_cos(); (c, -s) }, |_, _, value, _| -value;
    /// Sine of the first half of the units, cosine of the second
    SinCos "sincos" then Cos: |p, z| Sin::at(p, z), |p, z, value, slope| Sin::curvature(p, z, value, slope);
    /// `√2 sin(√(2γ) z + π/4)`, a random feature of the Gaussian kernel `exp(−γ(u − v)²)`
    Rbf(f64) = (1.0) "rbf":
        |p, z| {
            let (sin, cos) = (p[0] * z + T::of(FRAC_PI_4)).sin_cos();
            (T::of(SQRT_2) * sin, T::of(SQRT_2) * p[0] * cos)
        },
        |p, _, value, _| -(p[0] * p[0] * value);
    /// `±1`, the sign
    Sign "sign": |_, z| (T::select_gt(T::of(0.0), z, T::of(-1.0), T::of(1.0)), T::of(0.0)), |_, _, _, _| T::of(0.0);
    /// 1 above zero, 0 below
    Step "step": |_, z| (T::select_gt(z, T::of(0.0), T::of(1.0), T::of(0.0)), T::of(0.0)), |_, _, _, _| T::of(0.0);
    /// `exp(−z²)`
    Gaussian "gaussian": |_, z| { let e = (-(z * z)).exp(); (e, T::of(-2.0) * z * e) },
        |_, z, value, slope| T::of(-2.0) * (value + z * slope);
    /// `exp(z)`
    Exp "exp": |_, z| { let e = z.exp(); (e, e) }, |_, _, value, _| value;
    /// `z Φ(z)` with Φ the normal distribution function
    Gelu "gelu":
        // Φ(z) = (1 + erf(z/√2))/2, and its derivative is the density e^{−z²/2}/√(2π).
        |_, z| {
            let cdf = T::of(0.5) * (T::of(1.0) + (z * T::of(FRAC_1_SQRT_2)).erf());
            let density = T::of(DENSITY) * (T::of(-0.5) * z * z).exp();
            (z * cdf, cdf + z * density)
        },
        |_, z, _, _| {
            let square = z * z;
            (T::of(2.0) - square) * (T::of(DENSITY) * (T::of(-0.5) * square).exp())
        };
    /// Hyperbolic tangent
    Tanh "tanh": |_, z| { let t = z.tanh(); (t, T::of(1.0) - t * t) }, |_, _, value, slope| T::of(-2.0) * value * slope;
    /// `1/(1 + exp(−z))`
    Sigmoid "sigmoid": |_, z| { let v = logistic(z); (v, v * (T::of(1.0) - v)) },
        |_, _, value, slope| slope * (T::of(1.0) - (value + value));
    /// `ln(1 + exp(z))`
    Softplus "softplus":
        |_, z| (z.max(T::of(0.0)) + (T::of(1.0) + (-z.abs()).exp()).ln(), logistic(z)),
        |_, _, _, slope| slope * (T::of(1.0) - slope);
    /// `Σ c_i zⁱ`, the constant first
    Polynomial([f64; PARAMETERS]) = ([0.5, -1.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0]) "polynomial":
        |p, z| power_sum(p, z), |p, z, _, _| power_sum(&derivative(p), z).1;
    /// `zⁿ`
    Monomial(u32) = (2) "monomial": |p, z| power_sum(p, z), |p, z, _, _| power_sum(&derivative(p), z).1;
    /// The n-th Hermite polynomial, normalised: `E[h_n(z)²] = 1` for a standard normal z
    Hermite(u32) = (3) "hermite": |p, z| power_sum(p, z), |p, z, _, _| power_sum(&derivative(p), z).1;
    /// `z σ(z)` with σ the sigmoid, also called swish
    Silu "silu":
        // With σ' = σ(1 − σ): φ' = σ + zσ', φ'' = σ'(2 + z(1 − 2σ)).
        |_, z| { let v = logistic(z); (z * v, v + z * (v * (T::of(1.0) - v))) },
        |_, z, _, _| {
            let v = logistic(z);
            v * (T::of(1.0) - v) * (T::of(2.0) + z * (T::of(1.0) - (v + v)))
        };
}

/// `below·z` below zero and `above·z` above it, and the slope.
#[inline(always)]
fn bent<T: Num>(below: T, above: T, z: T) -> (T, T) {
    let slope = T::select_gt(z, T::of(0.0), above, below);
    (slope * z, slope)
}

/// `Σ c_i zⁱ` and its derivative, by Horner's rule.
#[inline(always)]
fn power_sum<T: Num>(c: &[T; PARAMETERS], z: T) -> (T, T) {
    let (mut value, mut slope) = (c[PARAMETERS - 1], T::of(0.0));
    for i in (0..PARAMETERS - 1).rev() {
        slope = slope.mul_add(z, value);
        value = value.mul_add(z, c[i]);
    }
    (value, slope)
}

/// The coefficients of the derivative of `Σ c_i zⁱ`.
#[inline(always)]
fn derivative<T: Num>(c: &[T; PARAMETERS]) -> [T; PARAMETERS] {
    let mut by_z = [T::of(0.0); PARAMETERS];
    for i in 1..PARAMETERS {
        by_z[i - 1] = T::of(i as f64) * c[i];
    }
    by_z
}

#[inline(always)]
fn logistic<T: Num>(z: T) -> T {
    T::of(1.0) / (T::of(1.0) + (-z).exp())
}

/// Two are equal when their formulas and parameters are; no parameter is NaN.
impl Eq for Activation {}

impl std::hash::Hash for Activation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.place().hash(state);
        self.parameters().map(f64::to_bits).hash(state);
    }
}

/// Its name, and its parameters where it has some that are not the usual ones.
impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            Activation::LeakyRelu(slope) if slope != LEAK => write!(f, "{name}({slope})"),
            Activation::AbRelu(a, b) => write!(f, "{name}({a}, {b})"),
            Activation::ExpNormalized(gamma, shift) if (gamma, shift) != (1.0, -1.0) => {
                write!(f, "{name}({gamma}, {shift})")
            }
            Activation::Rbf(gamma) if gamma != 1.0 => write!(f, "{name}({gamma})"),
            Activation::Monomial(n) | Activation::Hermite(n) => write!(f, "{name}({n})"),
            Activation::Polynomial(c) => {
                let degree = c.iter().rposition(|&c| c != 0.0).unwrap_or(0);
                let words: Vec<String> = c[..=degree].iter().map(f64::to_string).collect();
                write!(f, "{name}({})", words.join(", "))
            }
            _ => f.write_str(name),
        }
    }
}

impl Activation {
    /// The name used in architectures.
    pub fn name(self) -> &'static str {
        Activation::NAMES[self.place()]
    }

    /// The numbers that its formula takes: slopes, a frequency, the coefficients of a polynomial.
    pub fn parameters(self) -> [f64; PARAMETERS] {
        let mut p = [0.0; PARAMETERS];
        match self {
            Activation::LeakyRelu(slope) => p[0] = slope,
            Activation::AbRelu(a, b) | Activation::ExpNormalized(a, b) => [p[0], p[1]] = [a, b],
            Activation::Rbf(gamma) => p[0] = (2.0 * gamma).sqrt(),
            Activation::Polynomial(c) => p = c,
            Activation::Monomial(n) => p[n as usize] = 1.0,
            Activation::Hermite(n) => p = hermite(n as usize),
            _ => {}
        }
        p
    }

    /// The activation that a call names, `leaky_relu(0.2)`; nothing where the name is none of an activation.
    pub(crate) fn of_call(call: &Call) -> Result<Option<Activation>> {
        let mut all = Activation::ALL.into_iter().chain([Activation::ExpNormalized(1.0, -1.0)]);
        let Some(named) = all.find(|a| a.name() == call.name) else { return Ok(None) };
        let name = call.name;
        let numbers = || -> Result<Vec<f64>> {
            let number = |text: &str| text.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(|| text.to_owned());
            let all = call.values().map(number).collect::<std::result::Result<Vec<f64>, String>>();
            all.map_err(|text| Error::input(format!("{name}: '{text}' must be a number")))
        };
        let wrong = |what: &str| Error::input(format!("{name} needs {what}"));
        let degree = || -> Result<u32> {
            call.check(1, &[])?;
            let n = call.values().next().and_then(|text| text.parse().ok()).filter(|n| (*n as usize) < PARAMETERS);
            n.ok_or_else(|| wrong(&format!("its degree, a whole number from 0 to {}", PARAMETERS - 1)))
        };
        Ok(Some(match named {
            Activation::LeakyRelu(usual) => {
                call.check(1, &[])?;
                Activation::LeakyRelu(numbers()?.first().copied().unwrap_or(usual))
            }
            Activation::AbRelu(..) => {
                call.check(2, &[])?;
                let &[a, b] = &numbers()?[..] else {
                    return Err(wrong("its slopes below and above zero, such as ab_relu(-0.5, 2)"));
                };
                Activation::AbRelu(a, b)
            }
            Activation::Rbf(usual) => {
                call.check(1, &[])?;
                let gamma = numbers()?.first().copied().unwrap_or(usual);
                fail_if!(gamma <= 0.0, "{name}: {gamma} must be above 0");
                Activation::Rbf(gamma)
            }
            Activation::ExpNormalized(usual, shift) => {
                call.check(2, &[])?;
                let given = numbers()?;
                let gamma = given.first().copied().unwrap_or(usual);
                fail_if!(gamma <= 0.0, "{name}: {gamma} must be above 0");
                Activation::ExpNormalized(gamma, given.get(1).copied().unwrap_or(shift))
            }
            Activation::Polynomial(_) => {
                call.check(PARAMETERS, &[])?;
                let given = numbers()?;
                fail_if!(given.is_empty(); wrong("its coefficients, the constant first, such as polynomial(0, 1, 0.5)"));
                let mut c = [0.0; PARAMETERS];
                c[..given.len()].copy_from_slice(&given);
                Activation::Polynomial(c)
            }
            Activation::Monomial(_) => Activation::Monomial(degree()?),
            Activation::Hermite(_) => Activation::Hermite(degree()?),
            plain => {
                call.check(0, &[])?;
                plain
            }
        }))
    }

    /// The activation that is written so.
    ///
    /// ```
    /// use mercer_engine::compute::Activation;
    /// assert_eq!(Activation::parse("gelu")?, Activation::Gelu);
    /// assert_eq!(Activation::parse("leaky_relu(0.2)")?, Activation::LeakyRelu(0.2));
    /// let error = Activation::parse("rellu").unwrap_err().to_string();
    /// assert!(error.contains("did you mean 'relu'"), "{error}");
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Activation> {
        let call = Call::parse("activation", text)?;
        Activation::of_call(&call)?.ok_or_else(|| Error::unknown("activation", call.name, Activation::NAMES))
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
            fn visit<F: Formula, G: Formula, const FMA: bool>(self, p: &[f64; PARAMETERS]) -> (f64, f64) {
                if self.1 { G::at(p, self.0) } else { F::at(p, self.0) }
            }
        }
        self.visit(At(z, second_half))
    }
}

/// The coefficients of the n-th Hermite polynomial: `√(n+1) h_{n+1} = z h_n − √n h_{n−1}`, `h_0 = 1`.
fn hermite(n: usize) -> [f64; PARAMETERS] {
    let (mut before, mut now) = ([0.0; PARAMETERS], [0.0; PARAMETERS]);
    now[0] = 1.0;
    for n in 0..n {
        let shifted = |i: usize| if i == 0 { 0.0 } else { now[i - 1] };
        let (root, next) = ((n as f64).sqrt(), ((n + 1) as f64).sqrt());
        let after = std::array::from_fn(|i| (shifted(i) - root * before[i]) / next);
        (before, now) = (now, after);
    }
    now
}

/// The formulas as device code: `activate(phi, p, z, value, slope)` and `curvature(phi, p, z, value, slope)`, with `phi` a place
/// in [`Activation::ALL`] and `p` its parameters, and `formula(phi, column, width)`, the `phi` of a unit: sine or cosine in the
/// halves of a sincos layer.
pub(super) fn device_functions() -> String {
    device_functions_in(Arithmetic::F32)
}

/// The accuracy of the elementary functions of device code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    /// A few units in the last place.
    F32 = 2,
    /// A few 1e-7, absolute near zeros of a function: for values that are rounded to TF32 or bf16 next.
    Fast = 3,
}

/// The same in another arithmetic.
pub(super) fn device_functions_in(arithmetic: Arithmetic) -> String {
    struct Write;
    impl Visitor for Write {
        type Output = [String; 2];
        fn visit<F: Formula, G: Formula, const FMA: bool>(self, _: &[f64; PARAMETERS]) -> [String; 2] {
            const NAMES: [&str; PARAMETERS] =
                ["p.v[0]", "p.v[1]", "p.v[2]", "p.v[3]", "p.v[4]", "p.v[5]", "p.v[6]", "p.v[7]"];
            let [z, v, s] = ["z", "v", "s"].map(|name| move || Source::variable(Variable::Named(name)));
            let p = || NAMES.map(|name| Source::variable(Variable::Named(name)));
            let both = record_all(Style::Exact, || <[Source; 2]>::from(F::at(&p(), z())));
            let second = record(Style::Exact, || F::curvature(&p(), z(), v(), s()));
            [both.statements(&["v", "s"]), second.statements(&["c"])]
        }
    }
    let case =
        |phi: Activation| phi.visit(Write).map(|text| format!("case {}: {{\n{text}    break;\n}}\n", phi.place()));
    let cases: Vec<[String; 2]> = Activation::ALL.into_iter().map(case).collect();
    let [values, curvatures] = [0, 1].map(|i| cases.iter().map(|case| case[i].as_str()).collect::<String>());
    let [sin, cos, both] = [Activation::Sin, Activation::Cos, Activation::SinCos].map(Activation::place);
    format!(
        "#define ARITHMETIC {}\n{PRELUDE}\n\
         struct Parameters {{ float v[{PARAMETERS}]; }};\n\
         INLINE int formula(int phi, unsigned column, unsigned width) {{\n\
         return phi == {both} ? (column < width / 2 ? {sin} : {cos}) : phi;\n}}\n\
         INLINE void activate(int phi, const Parameters& p, float z, float& v, float& s) {{\nswitch (phi) {{\n{values}}}\n}}\n\
         INLINE float curvature(int phi, const Parameters& p, float z, float v, float s) {{\nfloat c = 0.0f;\nswitch (phi) {{\n{curvatures}}}\nreturn c;\n}}\n",
        arithmetic as i32
    )
}
