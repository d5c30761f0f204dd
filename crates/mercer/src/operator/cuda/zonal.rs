//! Zonal kernels `κ(x,x') = (‖x‖‖x'‖)^p f(θ)`, with f approximated by a polynomial.
//!
//! ReLU networks without biases have this form, with f analytic on [0, π] for any depth. So a polynomial in θ gives f to
//! single precision, and the kernel costs only one arc cosine.

use crate::kernel::{Base, Formula, Pair, Statistic, with_formula};
use crate::operator::kinds::walk::chebyshev_coefficients;
use crate::simd::Num;
use std::f64::consts::PI;

/// `(‖x‖‖x'‖)^p Σ_j c_j t^j` with `t = 2θ/π − 1`.
#[derive(Clone, Debug)]
pub(super) struct Zonal {
    power: u32,
    coefficients: Vec<f64>,
}

/// Largest error accepted, relative to the largest value: the error of the functions of a fast tile.
const ERROR: f64 = 5e-7;
/// Highest degree tried.
const DEGREE: usize = 20;

impl Zonal {
    /// The zonal form of `base`, if it is zonal and smooth enough in the angle.
    pub fn of(base: &Base) -> Option<Zonal> {
        with_formula!(base, formula => {
            let value = |s, xx, yy| formula.eval(Pair { s, xx, yy });
            (formula.statistic() == Statistic::Dot).then(|| Zonal::fit(&value)).flatten()
        })
    }

    /// The zonal form of a function of `(x·x', ‖x‖², ‖x'‖²)`.
    fn fit(value: &dyn Fn(f64, f64, f64) -> f64) -> Option<Zonal> {
        let power = [0, 1, 2, 4].into_iter().find(|&p| scales_by(value, p as i32))?;
        let f = |t: f64| value(((t + 1.0) * PI / 2.0).cos(), 1.0, 1.0);
        let most = |g: &dyn Fn(f64) -> f64| grid().fold(0.0f64, |m, t| m.max(g(t).abs()));
        let largest = most(&f);
        (4..=DEGREE).step_by(2).find_map(|degree| {
            let coefficients = interpolant(&f, degree);
            let error = most(&|t| f(t) - coefficients.iter().rev().fold(0.0, |sum, c| sum * t + c));
            (error <= ERROR * largest).then_some(Zonal { power, coefficients })
        })
    }

    /// The kernel of a pair of points.
    pub fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        let norms = pair.xx.sqrt() * pair.yy.sqrt();
        let cos = (pair.s / norms.max(R::of(1e-18))).min(R::of(1.0)).max(R::of(-1.0));
        let t = cos.acos().mul_add(R::of(2.0 / PI), R::of(-1.0));
        let highest = R::of(*self.coefficients.last().expect("a degree of four or more"));
        let lower = self.coefficients.iter().rev().skip(1);
        let f = lower.fold(highest, |sum, &c| sum.mul_add(t, R::of(c)));
        (0..self.power).fold(f, |value, _| value * norms)
    }
}

/// Points of [−1, 1] at which the error of an approximation is measured.
fn grid() -> impl Iterator<Item = f64> {
    (0..=2000).map(|i| i as f64 / 1000.0 - 1.0)
}

/// Whether `κ(s, a, b) = (√a √b)^p κ(s/(√a √b), 1, 1)`.
fn scales_by(value: &dyn Fn(f64, f64, f64) -> f64, p: i32) -> bool {
    let pairs = [(0.3, 1.7, 0.4), (-0.8, 0.6, 5.0), (2.5, 3.0, 2.9), (1.0, 1.0, 1.0), (-0.2, 40.0, 0.02)];
    pairs.iter().all(|&(cos, a, b)| {
        let cos: f64 = cos / 3.0;
        let norms = f64::sqrt(a) * f64::sqrt(b);
        let (got, want) = (value(cos * norms, a, b), norms.powi(p) * value(cos, 1.0, 1.0));
        (got - want).abs() <= 1e-12 * want.abs().max(1e-300)
    })
}

/// Monomial coefficients of the interpolant of `f` at the Chebyshev points of `[−1, 1]`.
fn interpolant(f: &dyn Fn(f64) -> f64, degree: usize) -> Vec<f64> {
    let terms = chebyshev_coefficients(f, degree + 1, degree + 1);
    // T_{j+1} = 2 t T_j − T_{j−1}
    let (mut before, mut now) = (vec![1.0], vec![0.0, 1.0]);
    let mut sum = vec![0.0; degree + 1];
    sum[0] = terms[0];
    for c in &terms[1..] {
        now.iter().zip(&mut sum).for_each(|(t, s)| *s += c * t);
        let mut next: Vec<f64> = std::iter::once(0.0).chain(now.iter().map(|t| 2.0 * t)).collect();
        before.iter().zip(&mut next).for_each(|(b, n)| *n -= b);
        (before, now) = (now, next);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn base(expression: &str) -> Base {
        Kernel::parse(expression).unwrap().bases()[0].clone()
    }

    #[test]
    fn networks_without_biases_are_zonal_and_agree_with_their_formula() {
        for expression in [
            "ntk(depth=3, act=relu, b_var=0)",
            "nngp(depth=5, act=relu, b_var=0)",
            "arccos(1)",
            "ntk(depth=1, act=abs, b_var=0)",
        ] {
            let base = base(expression);
            let zonal = Zonal::of(&base).unwrap_or_else(|| panic!("{expression} is zonal"));
            for (cos, xx, yy) in
                [(0.3, 2.0, 0.1), (1.0, 1.0, 1.0), (-0.97, 5.0, 7.0), (0.999, 0.3, 3.0), (-1.0, 1.0, 2.0)]
            {
                let norms = f64::sqrt(xx) * f64::sqrt(yy);
                let pair = Pair { s: cos * norms, xx, yy };
                let (got, want) = (zonal.eval(pair), with_formula!(&base, formula => formula.eval(pair)));
                let largest = with_formula!(&base, formula => formula.eval(Pair { s: norms, xx, yy }));
                assert!((got - want).abs() <= 2.0 * ERROR * largest, "{expression} at {cos}: {got}, {want}");
            }
        }
    }

    #[test]
    fn other_kernels_are_not_zonal() {
        for expression in
            ["rbf(1)", "poly(2)", "ntk(depth=2, act=relu, b_var=0.1)", "ntk(depth=2, act=erf)", "laplacian"]
        {
            assert!(Zonal::of(&base(expression)).is_none(), "{expression}");
        }
    }
}
