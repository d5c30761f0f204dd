//! The activations of infinite networks, and what they do to the covariance of their inputs.

use super::dual;
use crate::error::nearest;
use crate::simd::Num;
use crate::{Error, Result};

/// An activation function `φ` of an infinitely wide layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phi {
    /// `u`
    Identity,
    /// `max(u, 0)`
    Relu,
    /// `u` above zero, `u/100` below
    LeakyRelu,
    /// `|u|`
    Abs,
    /// The error function
    Erf,
    /// Sine
    Sin,
    /// Cosine
    Cos,
    /// Sine of half the units, cosine of the others
    SinCos,
    /// `±1`, the sign
    Sign,
    /// 1 above zero, 0 below
    Step,
    /// `exp(−u²)`
    Gaussian,
    /// `exp(u)`
    Exp,
    /// `u` times the normal distribution function
    Gelu,
    /// Hyperbolic tangent (a series, or quadrature)
    Tanh,
    /// `1/(1 + exp(−u))` (a series, or quadrature)
    Sigmoid,
    /// `ln(1 + exp(u))` (a series, or quadrature)
    Softplus,
}

/// What a layer knows of one of the two points: the variance of its inputs, and two functions of it that would be
/// taken again for every pair.
#[derive(Clone, Copy, Debug)]
pub struct Side<R> {
    /// `K(x,x)`
    pub variance: R,
    /// `√K(x,x)`
    pub deviation: R,
    /// `1/√K(x,x)`, and a few units in the last place of an f64 more: see [`Side::of`].
    pub inverse: R,
}

impl<R: Num> Side<R> {
    /// From the variance.
    ///
    /// The angle between two inputs is the arc cosine of `K(x,x')/√(K(x,x)K(x',x'))`, which turns a rounding error ε
    /// below 1 into an angle of √(2ε). The inverse is therefore rounded up, so that for `x = x'` the quotient, cut off
    /// at 1, is exactly 1 in f64. (In f32 the factor is 1: the diagonal is computed in f64 anyway.)
    #[inline(always)]
    pub fn of(variance: R) -> Self {
        let deviation = variance.sqrt();
        Side { variance, deviation, inverse: R::of(1.0 + 1.2e-15) / deviation.max(R::of(1e-18)) }
    }
}

impl Phi {
    /// Every one of them.
    pub const ALL: [Phi; 16] = [
        Phi::Identity,
        Phi::Relu,
        Phi::LeakyRelu,
        Phi::Abs,
        Phi::Erf,
        Phi::Sin,
        Phi::Cos,
        Phi::SinCos,
        Phi::Sign,
        Phi::Step,
        Phi::Gaussian,
        Phi::Exp,
        Phi::Gelu,
        Phi::Tanh,
        Phi::Sigmoid,
        Phi::Softplus,
    ];

    /// Their names, in the order of [`Phi::ALL`].
    pub const NAMES: [&'static str; 16] = [
        "identity",
        "relu",
        "leaky_relu",
        "abs",
        "erf",
        "sin",
        "cos",
        "sincos",
        "sign",
        "step",
        "gaussian",
        "exp",
        "gelu",
        "tanh",
        "sigmoid",
        "softplus",
    ];

    /// Its name in expressions and architectures.
    pub fn name(self) -> &'static str {
        Phi::NAMES[self as usize]
    }

    /// The activation of that name.
    pub fn parse(name: &str) -> Result<Phi> {
        Phi::NAMES.iter().position(|n| *n == name).map(|i| Phi::ALL[i]).ok_or_else(|| {
            let hint = nearest(name, Phi::NAMES).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
            Error::input(format!("unknown activation '{name}'{hint} (known: {})", Phi::NAMES.join(", ")))
        })
    }

    /// `E[φ(u)φ(v)]` and `E[φ'(u)φ'(v)]` for centred normal `(u, v)` with covariance `k` and the two sides' variances.
    ///
    /// Accuracy: rounding, for the closed forms. Where the slope jumps (ReLU and its kin, sign, step) the second value
    /// depends on the angle itself, and an angle below √(4ε), 5e-4 in f32, is lost in the rounding of `k`.
    /// The quadratures state their error in `dual.rs`: for tanh 3e-8 up to a deviation of 2 of the inputs, 4e-4 at 4; sigmoid
    /// and softplus are as good at twice the deviation.
    #[inline(always)]
    pub fn dual<R: Num>(self, k: R, x: Side<R>, y: Side<R>) -> (R, R) {
        match self {
            Phi::Identity => (k, R::of(1.0)),
            Phi::Relu => dual::bent(0.5, 0.5, k, x, y),
            Phi::LeakyRelu => dual::bent(0.5 + 0.5 * LEAK, 0.5 - 0.5 * LEAK, k, x, y),
            Phi::Abs => dual::bent(0.0, 1.0, k, x, y),
            Phi::Erf => dual::erf(k, x, y),
            Phi::Sin => dual::sin(k, x, y),
            Phi::Cos => dual::cos(k, x, y),
            Phi::SinCos => dual::sin_cos(k, x, y),
            Phi::Sign => dual::sign(k, x, y),
            Phi::Step => dual::step(k, x, y),
            Phi::Gaussian => dual::gaussian(k, x, y),
            Phi::Exp => dual::exp(k, x, y),
            Phi::Gelu => dual::gelu(k, x, y),
            Phi::Tanh => dual::tanh(k, x, y),
            Phi::Sigmoid => dual::sigmoid(k, x, y),
            Phi::Softplus => dual::softplus(k, x, y),
        }
    }

    /// `E[φ(u)²]` for centred normal `u` of variance `a`: the first of [`Self::dual`] at `x = x'`, for less, and equal to it
    /// to the last bit where a correlation of 1 must stay one.
    #[inline(always)]
    pub fn second_moment<R: Num>(self, a: R) -> R {
        match self {
            Phi::Identity => a,
            Phi::Relu => dual::bent_moment(0.5, 0.5, a),
            Phi::LeakyRelu => dual::bent_moment(0.5 + 0.5 * LEAK, 0.5 - 0.5 * LEAK, a),
            Phi::Abs => dual::bent_moment(0.0, 1.0, a),
            Phi::Erf => dual::erf_moment(a),
            Phi::Sin => R::of(0.5) * (R::of(1.0) - (R::of(-2.0) * a).exp()),
            Phi::Cos => R::of(0.5) * (R::of(1.0) + (R::of(-2.0) * a).exp()),
            Phi::SinCos | Phi::Step => R::of(0.5),
            Phi::Sign => R::of(1.0),
            Phi::Gaussian => R::of(1.0) / (R::of(1.0) + R::of(4.0) * a).sqrt(),
            Phi::Exp => (a + a).exp(),
            Phi::Gelu => dual::gelu_moment(a),
            Phi::Tanh => dual::tanh_moment(a),
            Phi::Sigmoid => dual::sigmoid_moment(a),
            Phi::Softplus => dual::softplus_moment(a),
        }
    }

    /// `φ(u)`, with sine and cosine halves told apart as in [`crate::compute::Activation::at`].
    pub fn at(self, u: f64, second_half: bool) -> f64 {
        match self {
            Phi::Identity => u,
            Phi::Relu => u.max(0.0),
            Phi::LeakyRelu => u.max(LEAK * u),
            Phi::Abs => u.abs(),
            Phi::Erf => Num::erf(u),
            Phi::Sin => u.sin(),
            Phi::Cos => u.cos(),
            Phi::SinCos => {
                if second_half {
                    u.cos()
                } else {
                    u.sin()
                }
            }
            Phi::Sign => u.signum(),
            Phi::Step => f64::from(u > 0.0),
            Phi::Gaussian => (-u * u).exp(),
            Phi::Exp => u.exp(),
            Phi::Gelu => u * crate::special::normal_cdf(u),
            Phi::Tanh => u.tanh(),
            Phi::Sigmoid => 1.0 / (1.0 + (-u).exp()),
            Phi::Softplus => u.max(0.0) + (-u.abs()).exp().ln_1p(),
        }
    }
}

/// Slope of the leaky ReLU below zero, the one of [`crate::compute::Activation::LeakyRelu`].
const LEAK: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// `E[f(u,v)]` by the trapezoidal rule in polar form: `u = σ_x r cos(t)`, … has no kinks along r for functions with kinks
    /// at zero, so a fine rule is an oracle for every activation.
    fn expectation(k: f64, a: f64, b: f64, f: impl Fn(f64, f64) -> f64) -> f64 {
        let rho = (k / (a * b).sqrt()).clamp(-1.0, 1.0);
        let (angles, radii, step) = (4000, 600, 0.02);
        let mut sum = 0.0;
        for i in 0..angles {
            let t = std::f64::consts::TAU * (f64::from(i) + 0.5) / f64::from(angles);
            let (c, s) = (t.cos(), t.sin());
            let v = rho * c + (1.0 - rho * rho).sqrt() * s;
            for j in 0..radii {
                let r = step * (f64::from(j) + 0.5);
                sum += r * (-0.5 * r * r).exp() * f(a.sqrt() * r * c, b.sqrt() * r * v);
            }
        }
        sum * step / f64::from(angles)
    }

    const CASES: [(f64, f64, f64); 4] = [(0.3, 1.0, 0.7), (-0.5, 0.6, 1.3), (0.9, 1.1, 0.8), (0.0, 0.4, 0.4)];

    #[test]
    fn duals_are_the_expectations_they_stand_for() {
        for phi in Phi::ALL {
            for (k, a, b) in CASES {
                let got = phi.dual(k, Side::of(a), Side::of(b)).0;
                let halves = [false, true].map(|half| expectation(k, a, b, |u, v| phi.at(u, half) * phi.at(v, half)));
                let want = 0.5 * (halves[0] + halves[1]);
                // The sum over points of the plane sees a jump only to the distance of two of them.
                let bound = if matches!(phi, Phi::Sign | Phi::Step) { 2e-3 } else { 2e-4 };
                assert!((got - want).abs() < bound, "{phi:?} at {k}, {a}, {b}: {got} for {want}");
            }
        }
    }

    #[test]
    fn the_slope_is_the_derivative_by_the_covariance() {
        // Price: ∂/∂k E[φ(u)φ(v)] = E[φ'(u)φ'(v)]; sign and step have no slope where they have one at all.
        for phi in Phi::ALL.into_iter().filter(|p| !matches!(p, Phi::Sign | Phi::Step)) {
            for (k, a, b) in CASES {
                let h = 1e-5;
                let at = |k: f64| phi.dual(k, Side::of(a), Side::of(b)).0;
                let want = (at(k + h) - at(k - h)) / (2.0 * h);
                let got = phi.dual(k, Side::of(a), Side::of(b)).1;
                assert!((got - want).abs() < 1e-8, "{phi:?} at {k}, {a}, {b}: {got} for {want}");
            }
        }
    }

    #[test]
    fn the_second_moment_is_the_dual_at_equal_points() {
        for phi in Phi::ALL {
            for a in [1e-12, 0.01, 0.5, 1.0, 3.0] {
                let (dual, moment) = (phi.dual(a, Side::of(a), Side::of(a)).0, phi.second_moment(a));
                // Integrated ones agree to the error that is stated for them.
                let bound = if matches!(phi, Phi::Tanh | Phi::Sigmoid | Phi::Softplus) { 1e-9 } else { 4e-16 };
                assert!((dual - moment).abs() <= bound * moment.abs().max(1e-3), "{phi:?} at {a}: {dual}, {moment}");
            }
        }
    }

    #[test]
    fn zero_variance_gives_finite_values() {
        for phi in Phi::ALL {
            let zero = Side::of(0.0);
            for other in [zero, Side::of(2.0)] {
                let (value, slope) = phi.dual(0.0, zero, other);
                assert!(value.is_finite() && slope.is_finite(), "{phi:?}: {value}, {slope}");
            }
        }
    }
}
