//! What an activation φ of an infinite network does to the covariance of its inputs: `E[φ(u)φ(v)]` and `E[φ'(u)φ'(v)]` for
//! centred normal `u`, `v` with variances `a`, `b` and covariance `k`.
//!
//! By Price's theorem the second is the derivative of the first by `k`. All are symmetric to the last bit, so that kernel
//! matrices are.

use super::logistic;
use crate::compute::{Activation, PARAMETERS, SIGMOID_LIKE};
use crate::simd::Num;
use std::f64::consts::{FRAC_1_PI, FRAC_2_PI, TAU};

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
    /// Accuracy, for deviations of the inputs from 1e-3 to 1e3 and every correlation: rounding, for the closed forms; 2e-10 for
    /// tanh, sigmoid and softplus (`logistic.rs`). Where the slope jumps (ReLU and its kin, sign, step) the second value depends
    /// on the angle itself, and an angle below √(4ε), 5e-4 in f32, is lost in the rounding of `k`.
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
            Activation::Relu => bent(0.5, 0.5, k, x, y),
            Activation::LeakyRelu(slope) => bent(0.5 + 0.5 * slope, 0.5 - 0.5 * slope, k, x, y),
            Activation::AbRelu(a, b) => bent(0.5 * (b + a), 0.5 * (b - a), k, x, y),
            Activation::Abs => bent(0.0, 1.0, k, x, y),
            Activation::Erf => erf(1.0, k, x, y),
            // φ(u) = ½ + ½ erf(u/s): E = ¼ + ¼ E[erf erf]
            Activation::SigmoidLike => {
                let (value, slope) = erf(1.0 / SIGMOID_LIKE, k, x, y);
                (R::of(0.25).mul_add(value, R::of(0.25)), R::of(0.25) * slope)
            }
            // E = e^{−(a+b)/2} sinh k, E' = e^{−(a+b)/2} cosh k
            Activation::Sin => {
                let (near, far) = waves(k, x, y);
                (difference(near, far, k, x, y), near + far)
            }
            // E = e^{−(a+b)/2} cosh k, E' = e^{−(a+b)/2} sinh k
            Activation::Cos => {
                let (near, far) = waves(k, x, y);
                (near + far, difference(near, far, k, x, y))
            }
            // Half the units each: E = E' = ½ e^{k−(a+b)/2}, an RBF kernel of the inputs.
            Activation::SinCos => {
                let (near, _) = waves(k, x, y);
                (near, near)
            }
            // φ(u) = √2 sin(√(2γ) u + π/4): E = e^{−γ(a+b−2k)}, E' = 2γ E
            Activation::Rbf(gamma) => {
                let value = (R::of(gamma) * (k + k - (x.variance + y.variance))).exp();
                (value, R::of(2.0 * gamma) * value)
            }
            // E = 1 − 2θ/π; the slope is zero almost everywhere, E' = 0.
            Activation::Sign => (R::of(1.0) - R::of(FRAC_2_PI) * correlation(k, x, y).acos(), R::of(0.0)),
            // E = ½ − θ/2π, E' = 0
            Activation::Step => (R::of(0.5) - R::of(0.5 * FRAC_1_PI) * correlation(k, x, y).acos(), R::of(0.0)),
            // φ(u) = e^{−u²}: with D = (1+2a)(1+2b) − 4k², E = D^{−1/2} and E' = 4k D^{−3/2}
            Activation::Gaussian => {
                let d = one_plus_twice(k, x, y);
                let value = R::of(1.0) / d.sqrt();
                (value, R::of(4.0) * k * value / d)
            }
            // E = E' = e^{(a+b)/2 + k}
            Activation::Exp => {
                let value = (R::of(0.5) * (x.variance + y.variance) + k).exp();
                (value, value)
            }
            // E = √(ab) e^{γ(ρ+s)}, E' = γ e^{γ(ρ+s)}
            Activation::ExpNormalized(gamma, shift) => {
                let value = (R::of(gamma) * (correlation(k, x, y) + R::of(shift))).exp();
                (x.deviation * y.deviation * value, R::of(gamma) * value)
            }
            Activation::Gelu => gelu(k, x, y),
            Activation::Tanh | Activation::Sigmoid | Activation::Softplus => logistic::dual(self, k, x, y),
            Activation::Polynomial(_) | Activation::Monomial(_) | Activation::Hermite(_) => {
                polynomial(&self.parameters(), k, x, y)
            }
        }
    }

    #[inline(always)]
    fn second_moment<R: Num>(self, a: R) -> R {
        let one = R::of(1.0);
        match self {
            Activation::Identity => a,
            Activation::Relu => bent_moment(0.5, 0.5, a),
            Activation::LeakyRelu(slope) => bent_moment(0.5 + 0.5 * slope, 0.5 - 0.5 * slope, a),
            Activation::AbRelu(below, above) => bent_moment(0.5 * (above + below), 0.5 * (above - below), a),
            Activation::Abs => bent_moment(0.0, 1.0, a),
            Activation::Erf => R::of(FRAC_2_PI) * (R::of(2.0) * a / (one + R::of(2.0) * a)).asin(),
            Activation::Cos => R::of(0.5) * (one + (R::of(-2.0) * a).exp()),
            Activation::SinCos | Activation::Step => R::of(0.5),
            Activation::Sign | Activation::Rbf(_) => one,
            Activation::Gaussian => one / (one + R::of(4.0) * a).sqrt(),
            Activation::Exp => (a + a).exp(),
            // a/4 + (a/2π) asin(a/(1+a)) + a²/(π(1+a)√(1+2a))
            Activation::Gelu => {
                let both = R::of(0.25) + R::of(1.0 / TAU) * (a / (one + a)).asin();
                a * both + R::of(FRAC_1_PI) * a * a / ((one + a) * (one + a + a).sqrt())
            }
            _ => self.dual(a, Side::of(a), Side::of(a)).0,
        }
    }
}

/// `k/√(ab)` in [−1, 1]; zero where a variance is.
#[inline(always)]
fn correlation<R: Num>(k: R, x: Side<R>, y: Side<R>) -> R {
    (k * (x.inverse * y.inverse)).min(R::of(1.0)).max(R::of(-1.0))
}

/// `ab − k²`, the determinant of the covariance.
#[inline(always)]
pub(super) fn determinant<R: Num>(k: R, x: Side<R>, y: Side<R>) -> R {
    (x.variance * y.variance - k * k).max(R::of(0.0))
}

/// `(1+2a)(1+2b) − 4k² = 1 + 2(a+b) + 4(ab−k²)`
#[inline(always)]
fn one_plus_twice<R: Num>(k: R, x: Side<R>, y: Side<R>) -> R {
    R::of(1.0) + R::of(2.0) * (x.variance + y.variance) + R::of(4.0) * determinant(k, x, y)
}

/// `φ(u) = erf(s u)`: `E = (2/π) asin(2k/√((1+2a)(1+2b)))`, `E' = (4/π)/√((1+2a)(1+2b) − 4k²)` for `s = 1`; any other scales u.
#[inline(always)]
fn erf<R: Num>(scale: f64, k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let square = scale * scale;
    let of = |side: Side<R>| Side { variance: R::of(square) * side.variance, ..side };
    let (k, x, y) = if scale == 1.0 { (k, x, y) } else { (R::of(square) * k, of(x), of(y)) };
    let (a, b) = (R::of(1.0) + R::of(2.0) * x.variance, R::of(1.0) + R::of(2.0) * y.variance);
    let sine = (R::of(2.0) * k / (a * b).sqrt()).min(R::of(1.0)).max(R::of(-1.0));
    (R::of(FRAC_2_PI) * sine.asin(), R::of(4.0 * square * FRAC_1_PI) / one_plus_twice(k, x, y).sqrt())
}

/// `φ(u) = Σ_i c_i uⁱ`: with `R_l(a) = Σ_i c_{2i+l} (2i+l)!/(2ⁱ i! l!) aⁱ`, the coefficients of φ in Hermite polynomials of
/// variance a, `E = Σ_l l! R_l(a) R_l(b) kˡ` and `E' = Σ_l l l! R_l(a) R_l(b) k^{l−1}`.
#[inline(always)]
fn polynomial<R: Num>(c: &[f64; PARAMETERS], k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let degree = c.iter().rposition(|&c| c != 0.0).unwrap_or(0);
    let (mut value, mut slope) = (R::of(0.0), R::of(0.0));
    for l in (0..=degree).rev() {
        let (mut of_x, mut of_y) = (R::of(0.0), R::of(0.0));
        for n in (l..=degree).rev().filter(|n| (n - l) % 2 == 0) {
            let i = (n - l) / 2;
            let factor = R::of(c[n] * factorial(n) / (f64::from(1u32 << i) * factorial(i) * factorial(l)));
            of_x = of_x.mul_add(x.variance, factor);
            of_y = of_y.mul_add(y.variance, factor);
        }
        slope = slope.mul_add(k, value);
        value = value.mul_add(k, R::of(factorial(l)) * (of_x * of_y));
    }
    (value, slope)
}

fn factorial(n: usize) -> f64 {
    (1..=n).map(|i| i as f64).product()
}

/// `½(e^{k−(a+b)/2}, e^{−k−(a+b)/2})`: their difference is `E[sin u sin v]`, their sum `E[cos u cos v]`.
#[inline(always)]
fn waves<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let mean = R::of(0.5) * (x.variance + y.variance);
    (R::of(0.5) * (k - mean).exp(), R::of(0.5) * (-k - mean).exp())
}

/// The difference of two [`waves`], `e^{−(a+b)/2} sinh k`, by the series of sinh where they cancel.
#[inline(always)]
fn difference<R: Num>(near: R, far: R, k: R, x: Side<R>, y: Side<R>) -> R {
    let square = k * k;
    // sinh k = k (1 + k²/(2·3) (1 + k²/(4·5) (1 + …))); the terms left out are below 1e-17 for |k| < ½.
    let mut sum = R::of(1.0);
    for n in (1..=7).rev() {
        sum = (square * sum).mul_add(R::of(1.0 / f64::from(2 * n * (2 * n + 1))), R::of(1.0));
    }
    let small = (R::of(-0.5) * (x.variance + y.variance)).exp() * k * sum;
    R::select_gt(k.abs(), R::of(0.5), near - far, small)
}

/// `φ(u) = p u + q |u|`: ReLU, leaky ReLU and the absolute value. With θ the angle, `cos θ = k/√(ab)`,
/// `E = (p² + q²) k + (2/π) q² √(ab) (sin θ − θ cos θ)` and `E' = p² + q² − (2/π) q² θ`.
///
/// Both terms of the bracket come from the same cosine: an error in it changes the bracket by no more than itself, although
/// it changes θ by its root.
#[inline(always)]
fn bent<R: Num>(p: f64, q: f64, k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (theta, bracket) = (k * (x.inverse * y.inverse)).angle();
    let (straight, bend) = (R::of(p * p + q * q), R::of(FRAC_2_PI * q * q));
    let value = (bend * (x.deviation * y.deviation)).mul_add(bracket, straight * k);
    (value, (-bend).mul_add(theta, straight))
}

/// `(p² + q²) a`, rounded as [`bent`] rounds it.
#[inline(always)]
fn bent_moment<R: Num>(p: f64, q: f64, a: R) -> R {
    R::of(p * p + q * q) * a
}

/// `φ(u) = u Φ(u)`: with `D = (1+a)(1+b) − k²` and `N = ab − k² + k²/(1+a) + k²/(1+b)`,
/// `E = k/4 + (k/2π) asin(k/√((1+a)(1+b))) + N/(2π√D)`, and by `∂/∂k`
/// `E' = 1/4 + (1/2π) asin(k/√((1+a)(1+b))) + (k + N' + Nk/D)/(2π√D)`, `N' = 2k (1/(1+a) + 1/(1+b) − 1)`.
///
/// (Stein's lemma on both factors `u`, `v`; the remaining integrals of `Φ` and its density are Gaussian.)
#[inline(always)]
fn gelu<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let one = R::of(1.0);
    let (a, b) = (one + x.variance, one + y.variance);
    let sine = (k / (a * b).sqrt()).min(one).max(-one);
    let inverses = one / a + one / b;
    let d = one + (x.variance + y.variance) + determinant(k, x, y);
    let n = determinant(k, x, y) + k * k * inverses;
    let both = R::of(0.25) + R::of(1.0 / TAU) * sine.asin();
    let root = R::of(1.0 / TAU) / d.sqrt();
    let slope = k + R::of(2.0) * k * (inverses - one) + n * k / d;
    (k * both + n * root, both + slope * root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Lane;

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
            let jumps = matches!(phi, Activation::Sign | Activation::Step);
            for (k, a, b) in CASES {
                let dual = |k: f64| phi.dual(k, Side::of(a), Side::of(b));
                let (got, slope) = dual(k);
                let halves =
                    [false, true].map(|half| expectation(k, a, b, |u, v| phi.at(u, half).0 * phi.at(v, half).0));
                let want = 0.5 * (halves[0] + halves[1]);
                // The sum over points of the plane sees a jump only to the distance of two of them.
                let bound = if jumps { 2e-3 } else { 2e-4 };
                assert!((got - want).abs() < bound * got.abs().max(1.0), "{phi:?} at {k}, {a}, {b}: {got} for {want}");
                // Price: ∂/∂k E[φ(u)φ(v)] = E[φ'(u)φ'(v)]; a jump has no slope.
                let h = 1e-5;
                let want = (dual(k + h).0 - dual(k - h).0) / (2.0 * h);
                assert!(
                    jumps || (slope - want).abs() < 1e-8 * slope.abs().max(1.0),
                    "{phi:?} at {k}, {a}, {b}: {slope} for {want}"
                );
            }
        }
    }

    /// tests/golden/duals.py wrote the values: integrals over the plane, for deviations from 1e-3 to 1e3 and correlations
    /// up to ±1.
    #[test]
    fn duals_are_right_at_inputs_of_any_size() {
        let golden: serde_json::Value = serde_json::from_str(include_str!("../../../tests/golden/duals.json")).unwrap();
        let cases = golden["duals"].as_array().unwrap();
        assert!(cases.len() > 1000);
        for case in cases {
            let number = |key: &str| case[key].as_f64().unwrap();
            let phi = Activation::parse(case["act"].as_str().unwrap()).unwrap();
            let (k, a, b) = (number("k"), number("a"), number("b"));
            let plain = phi.dual(k, Side::of(a), Side::of(b));
            let lane = phi.dual(Lane(k), Side::of(Lane::<f64, false>(a)), Side::of(Lane(b)));
            // The values at equal points, by Cauchy's inequality the largest for these variances.
            let own = [a, b].map(|a| phi.dual(a, Side::of(a), Side::of(a)));
            let most = [(own[0].0 * own[1].0).sqrt(), (own[0].1 * own[1].1).sqrt()];
            // An angle of 2e-8 is lost in the rounding of k, and bends and jumps see it.
            let bends = phi.at(1.0, false).1 == phi.at(2.0, false).1 && phi.at(-1.0, false).1 == phi.at(-2.0, false).1;
            for (got, what) in [(plain, "f64"), (((lane.0).0, (lane.1).0), "a lane")] {
                for (got, key, most) in [(got.0, "value", most[0]), (got.1, "slope", most[1])] {
                    let want = number(key);
                    let lost = if bends {
                        4e-8
                    } else if phi == Activation::Softplus {
                        3e-10
                    } else {
                        1e-13
                    };
                    let bound = 3e-10 * want.abs() + lost * most;
                    assert!(
                        (got - want).abs() <= bound,
                        "{phi}, {key} in {what} at k = {k}, a = {a}, b = {b}: {got:e} for {want:e}, of {most:e}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_second_moment_is_the_dual_at_equal_points_and_zero_variance_is_finite() {
        for phi in Activation::ALL {
            for a in [1e-12, 0.01, 0.5, 1.0, 3.0] {
                let (dual, moment) = (phi.dual(a, Side::of(a), Side::of(a)).0, phi.second_moment(a));
                assert!((dual - moment).abs() <= 4e-16 * moment.abs().max(1e-3), "{phi:?} at {a}: {dual}, {moment}");
            }
            // Values stay finite where a variance is zero.
            let zero = Side::of(0.0);
            for other in [zero, Side::of(2.0)] {
                let (value, slope) = phi.dual(0.0, zero, other);
                assert!(value.is_finite() && slope.is_finite(), "{phi:?}: {value}, {slope}");
            }
        }
    }
}
