//! The activations of infinite networks, and what they do to the covariance of their inputs.

use super::dual;
use crate::compute::{Activation, LEAK};
use crate::simd::Num;

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

/// Expectations of an activation at normal inputs: what a layer of infinite width does to covariances.
pub trait Expectations {
    /// `E[φ(u)φ(v)]` and `E[φ'(u)φ'(v)]` for centred normal `(u, v)` with covariance `k` and the two sides' variances.
    ///
    /// Accuracy: rounding, for the closed forms. Where the slope jumps (ReLU and its kin, sign, step) the second value
    /// depends on the angle itself, and an angle below √(4ε), 5e-4 in f32, is lost in the rounding of `k`.
    /// The quadratures state their error in `dual.rs`: for tanh 3e-8 up to a deviation of 2 of the inputs, 4e-4 at 4; sigmoid
    /// and softplus are as good at twice the deviation.
    fn dual<R: Num>(self, k: R, x: Side<R>, y: Side<R>) -> (R, R);

    /// `E[φ(u)²]` for centred normal `u` of variance `a`: the first of [`Self::dual`] at `x = x'`, for less, and equal to it
    /// to the last bit where a correlation of 1 must stay one.
    fn second_moment<R: Num>(self, a: R) -> R;
}

impl Expectations for Activation {
    #[inline(always)]
    fn dual<R: Num>(self, k: R, x: Side<R>, y: Side<R>) -> (R, R) {
        match self {
            Activation::Identity => (k, R::of(1.0)),
            Activation::Relu => dual::bent(0.5, 0.5, k, x, y),
            Activation::LeakyRelu => dual::bent(0.5 + 0.5 * LEAK, 0.5 - 0.5 * LEAK, k, x, y),
            Activation::Abs => dual::bent(0.0, 1.0, k, x, y),
            Activation::Erf => dual::erf(k, x, y),
            Activation::Sin => dual::sin(k, x, y),
            Activation::Cos => dual::cos(k, x, y),
            Activation::SinCos => dual::sin_cos(k, x, y),
            Activation::Sign => dual::sign(k, x, y),
            Activation::Step => dual::step(k, x, y),
            Activation::Gaussian => dual::gaussian(k, x, y),
            Activation::Exp => dual::exp(k, x, y),
            Activation::Gelu => dual::gelu(k, x, y),
            Activation::Tanh => dual::tanh(k, x, y),
            Activation::Sigmoid => dual::sigmoid(k, x, y),
            Activation::Softplus => dual::softplus(k, x, y),
        }
    }

    #[inline(always)]
    fn second_moment<R: Num>(self, a: R) -> R {
        match self {
            Activation::Identity => a,
            Activation::Relu => dual::bent_moment(0.5, 0.5, a),
            Activation::LeakyRelu => dual::bent_moment(0.5 + 0.5 * LEAK, 0.5 - 0.5 * LEAK, a),
            Activation::Abs => dual::bent_moment(0.0, 1.0, a),
            Activation::Erf => dual::erf_moment(a),
            Activation::Sin => R::of(0.5) * (R::of(1.0) - (R::of(-2.0) * a).exp()),
            Activation::Cos => R::of(0.5) * (R::of(1.0) + (R::of(-2.0) * a).exp()),
            Activation::SinCos | Activation::Step => R::of(0.5),
            Activation::Sign => R::of(1.0),
            Activation::Gaussian => R::of(1.0) / (R::of(1.0) + R::of(4.0) * a).sqrt(),
            Activation::Exp => (a + a).exp(),
            Activation::Gelu => dual::gelu_moment(a),
            Activation::Tanh => dual::tanh_moment(a),
            Activation::Sigmoid => dual::sigmoid_moment(a),
            Activation::Softplus => dual::softplus_moment(a),
        }
    }
}

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
        for phi in Activation::ALL {
            for (k, a, b) in CASES {
                let got = phi.dual(k, Side::of(a), Side::of(b)).0;
                let halves =
                    [false, true].map(|half| expectation(k, a, b, |u, v| phi.at(u, half).0 * phi.at(v, half).0));
                let want = 0.5 * (halves[0] + halves[1]);
                // The sum over points of the plane sees a jump only to the distance of two of them.
                let bound = if matches!(phi, Activation::Sign | Activation::Step) { 2e-3 } else { 2e-4 };
                assert!((got - want).abs() < bound, "{phi:?} at {k}, {a}, {b}: {got} for {want}");
            }
        }
    }

    #[test]
    fn the_slope_is_the_derivative_by_the_covariance() {
        // Price: ∂/∂k E[φ(u)φ(v)] = E[φ'(u)φ'(v)]; sign and step have no slope where they have one at all.
        for phi in Activation::ALL.into_iter().filter(|p| !matches!(p, Activation::Sign | Activation::Step)) {
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
        for phi in Activation::ALL {
            for a in [1e-12, 0.01, 0.5, 1.0, 3.0] {
                let (dual, moment) = (phi.dual(a, Side::of(a), Side::of(a)).0, phi.second_moment(a));
                // Integrated ones agree to the error that is stated for them.
                let bound = if matches!(phi, Activation::Tanh | Activation::Sigmoid | Activation::Softplus) {
                    1e-9
                } else {
                    4e-16
                };
                assert!((dual - moment).abs() <= bound * moment.abs().max(1e-3), "{phi:?} at {a}: {dual}, {moment}");
            }
        }
    }

    #[test]
    fn zero_variance_gives_finite_values() {
        for phi in Activation::ALL {
            let zero = Side::of(0.0);
            for other in [zero, Side::of(2.0)] {
                let (value, slope) = phi.dual(0.0, zero, other);
                assert!(value.is_finite() && slope.is_finite(), "{phi:?}: {value}, {slope}");
            }
        }
    }
}
