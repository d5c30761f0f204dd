//! What an activation φ of an infinite network does to the covariance of its inputs: `E[φ(u)φ(v)]` and `E[φ'(u)φ'(v)]` for
//! centred normal `u`, `v` with variances `a`, `b` and covariance `k`.
//!
//! By Price's theorem the second is the derivative of the first by `k`. All are symmetric to the last bit, so that kernel
//! matrices are.

use crate::compute::{Activation, LEAK};
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
            Activation::Relu => bent(0.5, 0.5, k, x, y),
            Activation::LeakyRelu => bent(0.5 + 0.5 * LEAK, 0.5 - 0.5 * LEAK, k, x, y),
            Activation::Abs => bent(0.0, 1.0, k, x, y),
            // E = (2/π) asin(2k/√((1+2a)(1+2b))), E' = (4/π)/√((1+2a)(1+2b) − 4k²)
            Activation::Erf => {
                let (a, b) = (R::of(1.0) + R::of(2.0) * x.variance, R::of(1.0) + R::of(2.0) * y.variance);
                let sine = (R::of(2.0) * k / (a * b).sqrt()).min(R::of(1.0)).max(R::of(-1.0));
                (R::of(FRAC_2_PI) * sine.asin(), R::of(4.0 * FRAC_1_PI) / one_plus_twice(k, x, y).sqrt())
            }
            // E = e^{−(a+b)/2} sinh k, E' = e^{−(a+b)/2} cosh k
            Activation::Sin => {
                let (near, far) = waves(k, x, y);
                (near - far, near + far)
            }
            // E = e^{−(a+b)/2} cosh k, E' = e^{−(a+b)/2} sinh k
            Activation::Cos => {
                let (near, far) = waves(k, x, y);
                (near + far, near - far)
            }
            // Half the units each: E = E' = ½ e^{k−(a+b)/2}, an RBF kernel of the inputs.
            Activation::SinCos => {
                let (near, _) = waves(k, x, y);
                (near, near)
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
            Activation::Gelu => gelu(k, x, y),
            Activation::Tanh => FINE.dual(k, x, y, tanh),
            // φ(u) = ½ + ½ tanh(u/2): E = ¼ + ¼ E[tanh tanh], E' = E[sech² sech²]/16, both at u/2
            Activation::Sigmoid => {
                let (value, slope) = COARSE.dual(k, x, y, tanh_of_half);
                (R::of(0.25) + R::of(0.25) * value, R::of(0.0625) * slope)
            }
            // φ(u) = u/2 + g(u) with g even: E = k/4 + E[g g] and E' = ¼ + E[g' g'], as the mixed terms are odd
            Activation::Softplus => {
                let (value, slope) = COARSE.dual(k, x, y, even_softplus);
                (R::of(0.25) * k + value, R::of(0.25) + slope)
            }
        }
    }

    #[inline(always)]
    fn second_moment<R: Num>(self, a: R) -> R {
        let one = R::of(1.0);
        match self {
            Activation::Identity => a,
            Activation::Relu => bent_moment(0.5, 0.5, a),
            Activation::LeakyRelu => bent_moment(0.5 + 0.5 * LEAK, 0.5 - 0.5 * LEAK, a),
            Activation::Abs => bent_moment(0.0, 1.0, a),
            Activation::Erf => R::of(FRAC_2_PI) * (R::of(2.0) * a / (one + R::of(2.0) * a)).asin(),
            Activation::Sin => R::of(0.5) * (one - (R::of(-2.0) * a).exp()),
            Activation::Cos => R::of(0.5) * (one + (R::of(-2.0) * a).exp()),
            Activation::SinCos | Activation::Step => R::of(0.5),
            Activation::Sign => one,
            Activation::Gaussian => one / (one + R::of(4.0) * a).sqrt(),
            Activation::Exp => (a + a).exp(),
            // a/4 + (a/2π) asin(a/(1+a)) + a²/(π(1+a)√(1+2a))
            Activation::Gelu => {
                let both = R::of(0.25) + R::of(1.0 / TAU) * (a / (one + a)).asin();
                a * both + R::of(FRAC_1_PI) * a * a / ((one + a) * (one + a + a).sqrt())
            }
            Activation::Tanh => FINE.moment(a, tanh),
            Activation::Sigmoid => R::of(0.25) + R::of(0.25) * COARSE.moment(a, tanh_of_half),
            Activation::Softplus => R::of(0.25) * a + COARSE.moment(a, even_softplus),
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
fn determinant<R: Num>(k: R, x: Side<R>, y: Side<R>) -> R {
    (x.variance * y.variance - k * k).max(R::of(0.0))
}

/// `(1+2a)(1+2b) − 4k² = 1 + 2(a+b) + 4(ab−k²)`
#[inline(always)]
fn one_plus_twice<R: Num>(k: R, x: Side<R>, y: Side<R>) -> R {
    R::of(1.0) + R::of(2.0) * (x.variance + y.variance) + R::of(4.0) * determinant(k, x, y)
}

/// `½(e^{k−(a+b)/2}, e^{−k−(a+b)/2})`: their difference is `E[sin u sin v]`, their sum `E[cos u cos v]`.
#[inline(always)]
fn waves<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let mean = R::of(0.5) * (x.variance + y.variance);
    (R::of(0.5) * (k - mean).exp(), R::of(0.5) * (-k - mean).exp())
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

/// A grid of equally spaced nodes: `2 n + 1` of them, to 6⅔ deviations, where the normal density is 1e-10.
struct Grid<const N: usize> {
    spacing: f64,
}

/// For tanh, whose poles are near.
const FINE: Grid<34> = Grid { spacing: 0.2 };
/// For sigmoid and softplus, whose poles are twice as far away.
const COARSE: Grid<20> = Grid { spacing: 1.0 / 3.0 };

impl<const N: usize> Grid<N> {
    /// The normal density at the nodes 0, 1, … times the spacing; over both sides these weights add up to 1.
    fn weight(&self, i: usize) -> f64 {
        let z = self.spacing * i as f64;
        self.spacing * (-0.5 * z * z).exp() / TAU.sqrt()
    }

    /// `E[g(u)g(v)]` and `E[h(u)h(v)]` for `(g, h) = f(u)`, both products the same at `(−u, −v)`.
    ///
    /// With `u = √a z` and `v = √b (ρ z + √(1−ρ²) w)`, `z` and `w` independent: the sum over a square grid of nodes, weighted
    /// with the normal density. For functions with poles equally spaced nodes beat as many of Gauss–Hermite's: the error
    /// falls as `e^{−2πη/spacing}`, η the distance of the nearest pole from the real axis in standard deviations σ of
    /// the input, against `e^{−2η√m}` for m Gauss–Hermite nodes. It is largest for `ρ → 1`, where two poles meet. Measured
    /// there against a grid ten times as fine:
    ///
    /// | σ | 1 | 2 | 3 | 4 | 6 |
    /// |---|---|---|---|---|---|
    /// | tanh, `E` | 7e-12 | 8e-10 | 1e-6 | 4e-5 | 9e-4 |
    /// | tanh, `E'` | 2e-12 | 3e-8 | 2e-5 | 4e-4 | 5e-3 |
    /// | softplus, `E` | 2e-10 | 7e-10 | 4e-9 | 5e-7 | 5e-5 |
    /// | softplus, `E'` | 5e-12 | 2e-11 | 4e-8 | 3e-6 | 1e-4 |
    ///
    /// (`ρ = 0.999`; `softplus' = sigmoid`, so its `E'` is also sigmoid's `E`, less ¼.)
    #[inline(always)]
    fn dual<R: Num>(&self, k: R, x: Side<R>, y: Side<R>, f: impl Fn(R) -> (R, R)) -> (R, R) {
        let rho = correlation(k, x, y);
        let rest = ((R::of(1.0) - rho) * (R::of(1.0) + rho)).sqrt();
        // The wider side comes first, whichever it is: the sum does not change when x and x' change places.
        let (wide, narrow) = (x.deviation.max(y.deviation), x.deviation.min(y.deviation));
        let (along, across) = (narrow * rho, narrow * rest);
        let (mut values, mut slopes) = (R::of(0.0), R::of(0.0));
        for i in 0..=N {
            let z = R::of(self.spacing * i as f64);
            let (g_u, h_u) = f(wide * z);
            let (mut g_v, mut h_v) = (R::of(0.0), R::of(0.0));
            for j in 0..=2 * N {
                let w = R::of(self.spacing * (j as f64 - N as f64));
                let (g, h) = f(along * z + across * w);
                let weight = R::of(self.weight(j.abs_diff(N)));
                g_v = g_v + weight * g;
                h_v = h_v + weight * h;
            }
            // The node −i gives what i gives.
            let weight = R::of(self.weight(i) * if i == 0 { 1.0 } else { 2.0 });
            values = values + weight * g_u * g_v;
            slopes = slopes + weight * h_u * h_v;
        }
        (values, slopes)
    }

    /// `E[g(u)²]` for `g = f(u)`, `g²` even.
    #[inline(always)]
    fn moment<R: Num>(&self, a: R, f: impl Fn(R) -> (R, R)) -> R {
        let deviation = a.sqrt();
        let mut sum = R::of(0.0);
        for i in 0..=N {
            let g = f(deviation * R::of(self.spacing * i as f64)).0;
            sum = sum + R::of(self.weight(i) * if i == 0 { 1.0 } else { 2.0 }) * g * g;
        }
        sum
    }
}

/// `tanh(u)` and its derivative.
#[inline(always)]
fn tanh<R: Num>(u: R) -> (R, R) {
    // 1 − 2/(1 + e^{2u}), with the exponential inside the range of f32.
    let e = (u + u).min(R::of(80.0)).max(R::of(-80.0)).exp();
    let t = R::of(1.0) - R::of(2.0) / (R::of(1.0) + e);
    (t, R::of(1.0) - t * t)
}

/// `tanh` and its derivative, both at `u/2`.
#[inline(always)]
fn tanh_of_half<R: Num>(u: R) -> (R, R) {
    tanh(R::of(0.5) * u)
}

/// The even part of softplus, `ln(1 + e^u) − u/2 = |u|/2 + ln(1 + e^{−|u|})`, and its derivative, `½ tanh(u/2)`.
#[inline(always)]
fn even_softplus<R: Num>(u: R) -> (R, R) {
    let e = (-u.abs()).max(R::of(-80.0)).exp();
    let value = R::of(0.5) * u.abs() + (R::of(1.0) + e).ln();
    (value, R::of(0.5) * tanh_of_half(u).0)
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
            let jumps = matches!(phi, Activation::Sign | Activation::Step);
            for (k, a, b) in CASES {
                let dual = |k: f64| phi.dual(k, Side::of(a), Side::of(b));
                let (got, slope) = dual(k);
                let halves =
                    [false, true].map(|half| expectation(k, a, b, |u, v| phi.at(u, half).0 * phi.at(v, half).0));
                let want = 0.5 * (halves[0] + halves[1]);
                // The sum over points of the plane sees a jump only to the distance of two of them.
                let bound = if jumps { 2e-3 } else { 2e-4 };
                assert!((got - want).abs() < bound, "{phi:?} at {k}, {a}, {b}: {got} for {want}");
                // Price: ∂/∂k E[φ(u)φ(v)] = E[φ'(u)φ'(v)]; a jump has no slope.
                let h = 1e-5;
                let want = (dual(k + h).0 - dual(k - h).0) / (2.0 * h);
                assert!(jumps || (slope - want).abs() < 1e-8, "{phi:?} at {k}, {a}, {b}: {slope} for {want}");
            }
        }
    }

    #[test]
    fn the_second_moment_is_the_dual_at_equal_points_and_zero_variance_is_finite() {
        for phi in Activation::ALL {
            for a in [1e-12, 0.01, 0.5, 1.0, 3.0] {
                let (dual, moment) = (phi.dual(a, Side::of(a), Side::of(a)).0, phi.second_moment(a));
                // Integrated ones agree to the error that is stated for them.
                let integrated = matches!(phi, Activation::Tanh | Activation::Sigmoid | Activation::Softplus);
                let bound = if integrated { 1e-9 } else { 4e-16 };
                assert!((dual - moment).abs() <= bound * moment.abs().max(1e-3), "{phi:?} at {a}: {dual}, {moment}");
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
