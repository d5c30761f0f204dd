//! tanh, sigmoid and softplus at narrow inputs as series, for matrices of fully connected networks.
//!
//! With `φ(σz) = Σ_n a_n(σ) h_n(z)` in normalised Hermite polynomials, Mehler's formula gives for `u = σ z`, `v = σ' z'`, `z`
//! and `z'` standard normal with correlation ρ
//!
//! ```text
//! E[φ(u)φ(v)] = Σ_n a_n(σ) a_n(σ') ρⁿ,
//! ```
//!
//! exactly. The coefficients are found once a point by a sum over nodes, and a pair takes a short polynomial instead of a sum
//! over the plane. By Price's theorem the derivative by `σσ'ρ` is `E[φ'(u)φ'(v)]`.
//!
//! What the terms left out add is at most, by Cauchy's inequality, `√(R(σ) R(σ'))` with `R = E[φ²] − Σ a_n²` (and the like for
//! φ'), at ρ = 1. With [`TERMS`] terms, every second n up to 255, that is for inputs of standard deviation σ
//!
//! | σ | 1 | 1.7 | 3.4 |
//! |---|---|---|---|
//! | tanh, `E` | 1e-15 | 3e-13 | |
//! | tanh, `E'` | 1e-15 | 3e-11 | |
//! | sigmoid, `E` | 1e-15 | 1e-15 | 1e-13 |
//! | sigmoid, `E'` | 1e-15 | 1e-15 | 3e-12 |
//! | softplus, `E` | 1e-15 | 1e-15 | 2e-14 |
//! | softplus, `E'` | 1e-15 | 1e-15 | 2e-13 |
//!
//! The functions grow steeper with σ, and the series worse. At inputs wider than [`widest`] the sums of `logistic.rs` take over,
//! which take some hundred terms for a pair and are right for every σ.

use super::dual::Side;
use crate::compute::Activation;
use crate::simd::Num;
use std::f64::consts::TAU;
use std::sync::OnceLock;

/// Terms of a series.
pub(crate) const TERMS: usize = 128;

/// Nodes `0, h, 2h, …` to twelve deviations. The polynomials oscillate with wave numbers up to 16, and these nodes tell
/// such waves from others up to 84.
const NODES: usize = 193;
const SPACING: f64 = 1.0 / 16.0;

/// The part of φ that needs a series: `tanh u`, `tanh(u/2) = 2 sigmoid(u) − 1`, `softplus(u) − u/2`.
fn core(phi: Activation, u: f64) -> f64 {
    match phi {
        Activation::Tanh => u.tanh(),
        Activation::Sigmoid => (0.5 * u).tanh(),
        _ => 0.5 * u.abs() + (-u.abs()).exp().ln_1p(),
    }
}

/// 1 or 0 where the part of φ that needs a series is odd or even; nothing for the closed forms.
fn parity(phi: Activation) -> Option<usize> {
    match phi {
        Activation::Tanh | Activation::Sigmoid => Some(1),
        Activation::Softplus => Some(0),
        _ => None,
    }
}

/// The widest inputs, by their variance, at which φ is a series; nothing for the closed forms.
pub(crate) fn widest(phi: Activation) -> Option<f64> {
    let deviation: f64 = if phi == Activation::Tanh { 1.7 } else { 3.4 };
    parity(phi).map(|_| deviation * deviation)
}

/// `a_n` for `n = parity, parity + 2, …` `[TERMS]` at inputs of this variance; zeros where they are wider than [`widest`].
pub(crate) fn series(phi: Activation, variance: f64) -> Vec<f64> {
    let (Some(parity), Some(widest)) = (parity(phi), widest(phi)) else { return vec![] };
    // A little more, for a variance that is rounded to f32 afterwards.
    if variance > 1.001 * widest {
        return vec![0.0; TERMS];
    }
    // As in `Side::of`: a variance of zero is a very small one, and the slope comes out as φ'(0)².
    let deviation = variance.sqrt().max(1e-18);
    let mut coefficients = vec![0.0; TERMS];
    for (i, weights) in weights(parity).chunks_exact(TERMS).enumerate() {
        let value = core(phi, deviation * SPACING * i as f64);
        coefficients.iter_mut().zip(weights).for_each(|(a, w)| *a += w * value);
    }
    coefficients
}

/// [`super::Expectations::dual`] from `terms` products of coefficients.
#[inline(always)]
pub(crate) fn dual_of_series<R: Num>(
    phi: Activation,
    k: R,
    x: Side<R>,
    y: Side<R>,
    terms: usize,
    product: impl Fn(usize) -> R,
) -> (R, R) {
    let inverse = x.inverse * y.inverse;
    let rho = (k * inverse).min(R::of(1.0)).max(R::of(-1.0));
    // P(r) = Σ_m c_m r^m and its derivative at r = ρ², by Horner's rule. All c_m are positive: nothing cancels.
    let square = rho * rho;
    let (mut value, mut slope) = (R::of(0.0), R::of(0.0));
    for m in (0..terms).rev() {
        slope = slope.mul_add(square, value);
        value = value.mul_add(square, product(m));
    }
    // S(ρ) = ρ P(ρ²) or P(ρ²), and dS/dk.
    let twice = R::of(2.0) * rho * slope;
    let (sum, by_rho) = if parity(phi) == Some(1) { (rho * value, rho.mul_add(twice, value)) } else { (value, twice) };
    let by_k = by_rho * inverse;
    match phi {
        Activation::Sigmoid => (R::of(0.25).mul_add(sum, R::of(0.25)), R::of(0.25) * by_k),
        Activation::Softplus => (R::of(0.25).mul_add(k, sum), R::of(0.25) + by_k),
        _ => (sum, by_k),
    }
}

/// `w_i h_n(z_i)` `[NODES, TERMS]` for `n = parity, parity + 2, …`; the nodes stand for their mirror images too.
fn weights(parity: usize) -> &'static [f64] {
    static TABLES: [OnceLock<Vec<f64>>; 2] = [OnceLock::new(), OnceLock::new()];
    TABLES[parity].get_or_init(|| {
        let mut table = vec![0.0; NODES * TERMS];
        for i in 0..NODES {
            let z = SPACING * i as f64;
            let weight = SPACING * (-0.5 * z * z).exp() / TAU.sqrt() * if i == 0 { 1.0 } else { 2.0 };
            // √(n+1) h_{n+1} = z h_n − √n h_{n−1}
            let (mut before, mut now) = (0.0, weight);
            for n in 0..2 * TERMS {
                if n % 2 == parity {
                    table[i * TERMS + n / 2] = now;
                }
                let next = (z * now - (n as f64).sqrt() * before) / ((n + 1) as f64).sqrt();
                (before, now) = (now, next);
            }
        }
        table
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dual(phi: Activation, k: f64, a: f64, b: f64) -> (f64, f64) {
        let (x, y) = (series(phi, a), series(phi, b));
        dual_of_series(phi, k, Side::of(a), Side::of(b), TERMS, |m| x[m] * y[m])
    }

    /// Both expectations as sums over a fine grid.
    fn over_the_plane(phi: Activation, rho: f64, sx: f64, sy: f64) -> (f64, f64) {
        let h = 0.06;
        let nodes: Vec<(f64, f64)> =
            (-140..=140).map(|i| h * f64::from(i)).map(|z| (z, h * (-0.5 * z * z).exp() / TAU.sqrt())).collect();
        let across = (1.0 - rho * rho).sqrt();
        let (mut value, mut by_k) = (0.0, 0.0);
        for &(z, wz) in &nodes {
            let (g, d) = phi.at(sx * z, false);
            for &(t, wt) in &nodes {
                let v = sy * (rho * z + across * t);
                value += wz * wt * g * phi.at(v, false).0;
                by_k += wz * wt * d * phi.at(v, false).1;
            }
        }
        (value, by_k)
    }

    #[test]
    fn the_series_is_the_expectation() {
        for phi in [Activation::Tanh, Activation::Sigmoid, Activation::Softplus] {
            let widest = widest(phi).unwrap().sqrt();
            for rho in [-1.0, -0.3, 0.0, 0.7, 0.999, 1.0] {
                for (sx, sy) in [(0.3, 0.3), (1.0, 0.2), (widest, 0.5), (widest, widest)] {
                    let got = dual(phi, rho * sx * sy, sx * sx, sy * sy);
                    let want = over_the_plane(phi, rho, sx, sy);
                    assert!((got.0 - want.0).abs() < 2e-11, "{phi:?} at {rho}, {sx}, {sy}: {got:?} for {want:?}");
                    assert!((got.1 - want.1).abs() < 1e-9, "{phi:?} at {rho}, {sx}, {sy}: {got:?} for {want:?}");
                }
            }
        }
        // A variance of zero gives the slope at zero.
        let (value, slope) = dual(Activation::Tanh, 0.0, 0.0, 0.0);
        assert!(value.abs() < 1e-30 && (slope - 1.0).abs() < 1e-12, "{value}, {slope}");
    }

    #[test]
    fn what_is_left_out_is_as_stated() {
        // E[g²] and E[g'²] on a grid of its own.
        let mean = |f: &dyn Fn(f64) -> f64| -> f64 {
            let h = 0.01;
            (-1400..=1400).map(|i| h * f64::from(i)).map(|z| h * (-0.5 * z * z).exp() / TAU.sqrt() * f(z)).sum()
        };
        // The derivative of the part that needs a series.
        let by_core = |phi: Activation, u: f64| match phi {
            Activation::Tanh => phi.at(u, false).1,
            Activation::Sigmoid => 2.0 * phi.at(u, false).1,
            _ => phi.at(u, false).1 - 0.5,
        };
        for (phi, deviation, stated) in [
            (Activation::Tanh, 1.0, [1e-14, 1e-14]),
            (Activation::Tanh, 1.7, [5e-13, 4e-11]),
            (Activation::Sigmoid, 3.4, [4.0 * 2e-13, 4.0 * 5e-12]),
            (Activation::Softplus, 3.4, [4e-14, 4e-13]),
        ] {
            let a = series(phi, deviation * deviation);
            let n = |m: usize| (2 * m + parity(phi).unwrap()) as f64;
            let left = mean(&|z| core(phi, deviation * z).powi(2)) - a.iter().map(|a| a * a).sum::<f64>();
            let by_slope: f64 = a.iter().enumerate().map(|(m, a)| n(m) * a * a).sum();
            let left_slope = mean(&|z| by_core(phi, deviation * z).powi(2)) - by_slope / deviation.powi(2);
            assert!(
                left.abs() <= stated[0] && left_slope.abs() <= stated[1],
                "{phi:?}, {deviation}: {left:e}, {left_slope:e}"
            );
        }
    }
}
