//! tanh, sigmoid and softplus as sums of error functions, whose expectations have closed forms.
//!
//! The logistic distribution is a mixture of normal ones: `2κZ` is logistic for a standard normal Z and κ with Kolmogorov's
//! distribution (Andrews and Mallows 1974; Stefanski 1991). In terms of distribution functions, with F that of κ,
//!
//! ```text
//! tanh(u) = ∫ erf(s u) dF(κ),   s = 1/(√2 κ).
//! ```
//!
//! The trapezoidal rule in ln κ turns this into `tanh(u) = Σ_i w_i erf(s_i u)` with positive weights. Both ends of the integrand
//! fall faster than any exponential and it is analytic in between, so [`NODES`] nodes at a distance of [`STEP`] suffice, for u of
//! any size: no term knows the deviation σ of u. For `(u, v)` normal with variances a, b and covariance k, with
//! `α_i = √2 s_i/√(1 + 2 s_i² a)`, `β_j` the like for b, `c = α_i β_j` and `θ = arccos(−c k)`
//!
//! ```text
//! E[erf(s_i u) erf(s_j v)] = (2/π) arcsin(c k),   and its derivative by k is   (2/π) c/√(1 − c²k²),
//! E[φ_i(u) φ_j(v)] = (sin θ − θ cos θ)/(2πc)   for the φ_i with φ_i' = ½ + ½ erf(s_i u), which add up to a softplus.
//! ```
//!
//! All sums have positive terms. Their relative error is below 2e-10 for deviations from 1e-3 to 1e3 and every correlation (the
//! tests hold them against integrals over the plane); in softplus's `E` it is relative to `√(E[φ(u)²] E[φ(v)²])`, as a
//! correlation near −1 leaves a small difference of large numbers.

use super::dual::{Side, determinant};
use crate::compute::Activation;
use crate::simd::Num;
use std::array::from_fn;
use std::f64::consts::{FRAC_1_PI, FRAC_2_PI, PI, SQRT_2, TAU};
use std::sync::OnceLock;

/// Nodes of the rule.
pub(crate) const NODES: usize = 18;
/// Distance of two nodes in `ln κ`; the first is at `−9` of them.
const STEP: f64 = 1.0 / 6.0;
const FIRST: i32 = -9;
/// Pairs of nodes with a smaller product of weights are left out: together they are below 1e-11.
const LEAST: f64 = 1e-12;

/// `tanh(u) = Σ_i w_i erf(s_i u)`
pub(crate) struct Rule {
    /// `s_i`
    pub scales: [f64; NODES],
    /// `(i, j, w_i w_j)`; the products add up to one.
    pub pairs: Vec<(usize, usize, f64)>,
}

/// The rule for `φ`: tanh, or the others, which are made of `tanh(u/2)`.
pub(crate) fn rule(phi: Activation) -> &'static Rule {
    static RULES: [OnceLock<Rule>; 2] = [OnceLock::new(), OnceLock::new()];
    let is_tanh = matches!(phi, Activation::Tanh);
    RULES[usize::from(is_tanh)].get_or_init(|| {
        let kappa: [f64; NODES] = from_fn(|i| (STEP * f64::from(FIRST + i as i32)).exp());
        let weights = kappa.map(|kappa| STEP * kappa * kolmogorov(kappa));
        let product = |i: usize, j: usize| (i, j, weights[i] * weights[j]);
        let all = (0..NODES).flat_map(|i| (0..NODES).map(move |j| product(i, j)));
        let mut pairs: Vec<_> = all.filter(|&(_, _, w)| w > LEAST).collect();
        let total: f64 = pairs.iter().map(|&(_, _, w)| w).sum();
        pairs.iter_mut().for_each(|(_, _, w)| *w /= total);
        Rule { scales: kappa.map(|kappa| if is_tanh { 1.0 } else { 0.5 } / (SQRT_2 * kappa)), pairs }
    })
}

/// The density of Kolmogorov's distribution, by the one of its two series that converges at once:
/// `8x Σ_j (−1)^{j+1} j² e^{−2j²x²} = (√(2π)/x²) Σ_j (2q_j/x² − 1) e^{−q_j/x²}` with `q_j = (2j−1)²π²/8`.
fn kolmogorov(x: f64) -> f64 {
    let square = x * x;
    if x < 1.0 {
        let term = |j: i32| {
            let q = f64::from((2 * j - 1) * (2 * j - 1)) * PI * PI / 8.0 / square;
            (2.0 * q - 1.0) * (-q).exp()
        };
        return TAU.sqrt() / square * (1..=8).map(term).sum::<f64>();
    }
    let term = |j: i32| {
        let (sign, square_j) = (if j % 2 == 1 { 1.0 } else { -1.0 }, f64::from(j * j));
        sign * square_j * (-2.0 * square_j * square).exp()
    };
    8.0 * x * (1..=8).map(term).sum::<f64>()
}

/// What node i of one side brings to its terms.
#[derive(Clone, Copy)]
pub(crate) struct Node<R> {
    /// `α_i`
    pub alpha: R,
    /// `1/(1 + 2 s_i² a)`
    pub rest: R,
}

impl<R: Num> Node<R> {
    /// With the scale `s_i` at inputs of this variance.
    #[inline(always)]
    pub fn new(scale: f64, variance: R) -> Self {
        let rest = R::of(1.0) / R::of(2.0 * scale * scale).mul_add(variance, R::of(1.0));
        Node { alpha: R::of(SQRT_2 * scale) * rest.sqrt(), rest }
    }

    /// What a pair of nodes adds to both expectations of `phi`, over [`factor`] and its weight. `left` is `ab − k²`.
    ///
    /// * tanh: `E = (2/π) Σ arcsin(c k)`.
    /// * sigmoid, `φ(u) = ½ + ½ tanh(u/2)`: `E = ¼ + ¼ E[tanh tanh] = Σ θ/2π`.
    /// * softplus, `φ(u) = u/2 + g(u)` with g even and `g' = ½ tanh(u/2)`: `E = k/4 + E[g g] = Σ (sin θ − θ cos θ)/(2π c)` and
    ///   `E' = Σ θ/2π`.
    #[inline(always)]
    pub fn term(self, other: Self, phi: Activation, k: R, left: R) -> (R, R) {
        let (one, c) = (R::of(1.0), self.alpha * other.alpha);
        let sine = (c * k).min(one).max(-one);
        if matches!(phi, Activation::Softplus) {
            let (theta, bracket) = (-sine).angle();
            return (bracket / c, theta);
        }
        // 1 − c²k² without a difference of large numbers: c²ab = (1 − p)(1 − q).
        let (p, q) = (self.rest, other.rest);
        let slope = c / (c * c).mul_add(left, p + q - p * q).sqrt();
        (if matches!(phi, Activation::Tanh) { sine.asin() } else { (-sine).acos() }, slope)
    }
}

/// The device functions of `(k, a, b)` that are both expectations; `operator/cuda/logistic.rs` has their source.
pub(crate) fn functions(phi: Activation) -> [&'static str; 2] {
    match phi {
        Activation::Tanh => ["tanh_value", "tanh_slope"],
        Activation::Sigmoid => ["sigmoid_value", "sigmoid_slope"],
        _ => ["softplus_value", "softplus_slope"],
    }
}

/// The factor of both sums.
pub(crate) fn factor(phi: Activation) -> f64 {
    if matches!(phi, Activation::Tanh) { FRAC_2_PI } else { 0.5 * FRAC_1_PI }
}

/// `E[φ(u)φ(v)]` and `E[φ'(u)φ'(v)]` for tanh, sigmoid or softplus. The wider side comes first, whichever it is: nothing changes
/// when x and x' change places.
pub(super) fn dual<R: Num>(phi: Activation, k: R, x: Side<R>, y: Side<R>) -> (R, R) {
    let [value, slope] = functions(phi).map(|function| R::called(function, [k, x.variance, y.variance]));
    if let (Some(value), Some(slope)) = (value, slope) {
        return (value, slope);
    }
    let rule = rule(phi);
    let nodes = |variance: R| rule.scales.map(|scale| Node::new(scale, variance));
    // One comparison for both, so that of two equal variances each is taken once, with its own derivative.
    let (a, b) = (x.variance, y.variance);
    let (wide, narrow) = (nodes(R::select_gt(b, a, b, a)), nodes(R::select_gt(b, a, a, b)));
    let (mut value, mut slope, left) = (R::of(0.0), R::of(0.0), determinant(k, x, y));
    for &(i, j, weight) in &rule.pairs {
        let term = wide[i].term(narrow[j], phi, k, left);
        (value, slope) = (R::of(weight).mul_add(term.0, value), R::of(weight).mul_add(term.1, slope));
    }
    let factor = R::of(factor(phi));
    (factor * value, factor * slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum itself, for all u: the error of `sech²` bounds that of every expectation.
    #[test]
    fn the_sum_is_the_hyperbolic_tangent() {
        let rule = rule(Activation::Tanh);
        // The products of each node's weight with all others add up to the weight.
        let weight = |i: usize| rule.pairs.iter().filter(|pair| pair.0 == i).map(|pair| pair.2).sum::<f64>();
        assert!(rule.pairs.len() < 300, "{} pairs", rule.pairs.len());
        for u in (0..2000).map(|i| 0.01 * f64::from(i)) {
            let terms = (0..NODES).map(|i| (weight(i), rule.scales[i]));
            let value: f64 = terms.clone().map(|(w, s)| w * Num::erf(s * u)).sum();
            let slope: f64 = terms.map(|(w, s)| w * s * 2.0 / PI.sqrt() * (-(s * u).powi(2)).exp()).sum();
            assert!((value - u.tanh()).abs() < 1e-10 * u.tanh().abs().max(1e-3), "{u}: {value}");
            assert!((slope - u.cosh().powi(-2)).abs() < 1e-10, "{u}: {slope} for {}", u.cosh().powi(-2));
        }
    }
}
