//! `E[φ(u)φ(v)]` and `E[φ'(u)φ'(v)]` for centred normal `u`, `v` with variances `a`, `b` and covariance `k`.
//!
//! Each function returns both; by Price's theorem the second is the derivative of the first by `k`. All are symmetric to the
//! last bit, so that kernel matrices are.

use super::phi::Side;
use crate::simd::Num;
use std::f64::consts::{FRAC_1_PI, FRAC_2_PI, TAU};

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

/// `φ(u) = p u + q |u|`: ReLU, leaky ReLU and the absolute value. With θ the angle, `cos θ = k/√(ab)`,
/// `E = (p² + q²) k + (2/π) q² √(ab) (sin θ − θ cos θ)` and `E' = p² + q² − (2/π) q² θ`.
///
/// Both terms of the bracket come from the same cosine: an error in it changes the bracket by no more than itself, although
/// it changes θ by its root.
#[inline(always)]
pub(super) fn bent<R: Num>(p: f64, q: f64, k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (theta, bracket) = (k * (x.inverse * y.inverse)).angle();
    let (straight, bend) = (R::of(p * p + q * q), R::of(FRAC_2_PI * q * q));
    let value = (bend * (x.deviation * y.deviation)).mul_add(bracket, straight * k);
    (value, (-bend).mul_add(theta, straight))
}

/// `(p² + q²) a`, rounded as [`bent`] rounds it.
#[inline(always)]
pub(super) fn bent_moment<R: Num>(p: f64, q: f64, a: R) -> R {
    R::of(p * p + q * q) * a
}

/// `E = (2/π) asin(2k/√((1+2a)(1+2b)))`, `E' = (4/π)/√((1+2a)(1+2b) − 4k²)`.
#[inline(always)]
pub(super) fn erf<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (a, b) = (R::of(1.0) + R::of(2.0) * x.variance, R::of(1.0) + R::of(2.0) * y.variance);
    let sine = (R::of(2.0) * k / (a * b).sqrt()).min(R::of(1.0)).max(R::of(-1.0));
    (R::of(FRAC_2_PI) * sine.asin(), R::of(4.0 * FRAC_1_PI) / one_plus_twice(k, x, y).sqrt())
}

/// `(1+2a)(1+2b) − 4k² = 1 + 2(a+b) + 4(ab−k²)`
#[inline(always)]
fn one_plus_twice<R: Num>(k: R, x: Side<R>, y: Side<R>) -> R {
    R::of(1.0) + R::of(2.0) * (x.variance + y.variance) + R::of(4.0) * determinant(k, x, y)
}

#[inline(always)]
pub(super) fn erf_moment<R: Num>(a: R) -> R {
    R::of(FRAC_2_PI) * (R::of(2.0) * a / (R::of(1.0) + R::of(2.0) * a)).asin()
}

/// `½(e^{k−(a+b)/2}, e^{−k−(a+b)/2})`: their difference is `E[sin u sin v]`, their sum `E[cos u cos v]`.
#[inline(always)]
fn waves<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let mean = R::of(0.5) * (x.variance + y.variance);
    (R::of(0.5) * (k - mean).exp(), R::of(0.5) * (-k - mean).exp())
}

/// `E = e^{−(a+b)/2} sinh k`, `E' = e^{−(a+b)/2} cosh k`.
#[inline(always)]
pub(super) fn sin<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (near, far) = waves(k, x, y);
    (near - far, near + far)
}

/// `E = e^{−(a+b)/2} cosh k`, `E' = e^{−(a+b)/2} sinh k`.
#[inline(always)]
pub(super) fn cos<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (near, far) = waves(k, x, y);
    (near + far, near - far)
}

/// Half the units each: `E = E' = ½ e^{k−(a+b)/2}`, an RBF kernel of the inputs.
#[inline(always)]
pub(super) fn sin_cos<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (near, _) = waves(k, x, y);
    (near, near)
}

/// `E = 1 − 2θ/π`; the slope is zero almost everywhere, `E' = 0`.
#[inline(always)]
pub(super) fn sign<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    (R::of(1.0) - R::of(FRAC_2_PI) * correlation(k, x, y).acos(), R::of(0.0))
}

/// `E = ½ − θ/2π`, `E' = 0`.
#[inline(always)]
pub(super) fn step<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    (R::of(0.5) - R::of(0.5 * FRAC_1_PI) * correlation(k, x, y).acos(), R::of(0.0))
}

/// `φ(u) = e^{−u²}`: with `D = (1+2a)(1+2b) − 4k²`, `E = D^{−1/2}` and `E' = 4k D^{−3/2}`.
#[inline(always)]
pub(super) fn gaussian<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let d = one_plus_twice(k, x, y);
    let value = R::of(1.0) / d.sqrt();
    (value, R::of(4.0) * k * value / d)
}

/// `E = E' = e^{(a+b)/2 + k}`.
#[inline(always)]
pub(super) fn exp<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let value = (R::of(0.5) * (x.variance + y.variance) + k).exp();
    (value, value)
}

/// `φ(u) = u Φ(u)`: with `D = (1+a)(1+b) − k²` and `N = ab − k² + k²/(1+a) + k²/(1+b)`,
/// `E = k/4 + (k/2π) asin(k/√((1+a)(1+b))) + N/(2π√D)`, and by `∂/∂k`
/// `E' = 1/4 + (1/2π) asin(k/√((1+a)(1+b))) + (k + N' + Nk/D)/(2π√D)`, `N' = 2k (1/(1+a) + 1/(1+b) − 1)`.
///
/// (Stein's lemma on both factors `u`, `v`; the remaining integrals of `Φ` and its density are Gaussian.)
#[inline(always)]
pub(super) fn gelu<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
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

/// `E[φ²] = a/4 + (a/2π) asin(a/(1+a)) + a²/(π(1+a)√(1+2a))`.
#[inline(always)]
pub(super) fn gelu_moment<R: Num>(a: R) -> R {
    let one = R::of(1.0);
    let both = R::of(0.25) + R::of(1.0 / TAU) * (a / (one + a)).asin();
    a * both + R::of(FRAC_1_PI) * a * a / ((one + a) * (one + a + a).sqrt())
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
fn tanh_of<R: Num>(u: R) -> (R, R) {
    // 1 − 2/(1 + e^{2u}), with the exponential inside the range of f32.
    let e = (u + u).min(R::of(80.0)).max(R::of(-80.0)).exp();
    let t = R::of(1.0) - R::of(2.0) / (R::of(1.0) + e);
    (t, R::of(1.0) - t * t)
}

/// The even part of softplus, `ln(1 + e^u) − u/2 = |u|/2 + ln(1 + e^{−|u|})`, and its derivative, `½ tanh(u/2)`.
#[inline(always)]
fn softplus_of<R: Num>(u: R) -> (R, R) {
    let e = (-u.abs()).max(R::of(-80.0)).exp();
    let value = R::of(0.5) * u.abs() + (R::of(1.0) + e).ln();
    (value, R::of(0.5) * tanh_of(R::of(0.5) * u).0)
}

#[inline(always)]
pub(super) fn tanh<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    FINE.dual(k, x, y, tanh_of)
}

#[inline(always)]
pub(super) fn tanh_moment<R: Num>(a: R) -> R {
    FINE.moment(a, tanh_of)
}

/// `φ(u) = ½ + ½ tanh(u/2)`: `E = ¼ + ¼ E[tanh tanh]`, `E' = E[sech² sech²]/16`, both at `u/2`.
#[inline(always)]
pub(super) fn sigmoid<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (value, slope) = COARSE.dual(
        k,
        x,
        y,
        #[inline(always)]
        |u| tanh_of(R::of(0.5) * u),
    );
    (R::of(0.25) + R::of(0.25) * value, R::of(0.0625) * slope)
}

#[inline(always)]
pub(super) fn sigmoid_moment<R: Num>(a: R) -> R {
    R::of(0.25)
        + R::of(0.25)
            * COARSE.moment(
                a,
                #[inline(always)]
                |u| tanh_of(R::of(0.5) * u),
            )
}

/// `φ(u) = u/2 + g(u)` with `g` even: `E = k/4 + E[g g]` and `E' = ¼ + E[g' g']`, as the mixed terms are odd.
#[inline(always)]
pub(super) fn softplus<R: Num>(k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let (value, slope) = COARSE.dual(k, x, y, softplus_of);
    (R::of(0.25) * k + value, R::of(0.25) + slope)
}

#[inline(always)]
pub(super) fn softplus_moment<R: Num>(a: R) -> R {
    R::of(0.25) * a + COARSE.moment(a, softplus_of)
}
