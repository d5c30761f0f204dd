//! Gradient-based training of a two-layer network in two steps, as the source gives it.
//!
//! `f(x) = aᵀσ(Wx + b)`, σ = ReLU, width m even. Start: `a_j = −a_{m−j} ∈ {−1, 1}`, `w_j = w_{m−j} ~ N(0, I/d)`, `b = 0`, so that
//! f = 0. Then
//!
//! 1. preprocessing: `α = (1/n) Σ y_i`, `β = (1/n) Σ y_i x_i`, `y_i ← y_i − α − β·x_i`;
//! 2. `W ← W − η₁(∇_W L + λ₁W)` with `λ₁ = 1/η₁`, that is `W = −η₁ ∇_W L`, for `L = (1/n) Σ (f(x_i) − y_i)²`;
//! 3. `b_j ~ N(0, 1)`;
//! 4. ridge regression of the head a, to which gradient descent on a with weight decay λ converges.

use crate::statistics::least_cosine;
use mercer::Result;
use mercer::compute::Device;
use mercer::linalg::{Cholesky, eigh, matmul};
use mercer::rng::Rng;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

/// The trained network.
pub struct TwoStep {
    alpha: f64,
    /// `[d]`
    beta: Array1<f64>,
    /// `[m, d]`
    pub w: Array2<f64>,
    /// `[m]`
    b: Array1<f64>,
    /// `[m]`
    a: Array1<f64>,
}

/// Strengths λ of the ridge that are tried, times the mean square of a feature and n.
const RIDGES: [f64; 8] = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];
/// Share of the examples on which λ is chosen.
const VALIDATION: f64 = 0.2;

/// `σ(xWᵀ + b)` `[n, m]`
fn features(x: ArrayView2<f64>, w: &Array2<f64>, b: &Array1<f64>) -> Array2<f64> {
    let mut z = matmul(x, w.t());
    z.rows_mut().into_iter().for_each(|mut row| row.zip_mut_with(b, |z, b| *z = (*z + b).max(0.0)));
    z
}

/// `−∇_W L` at the symmetric start, where f = 0: row j is `(2/n) Σ_i y_i a_j 1{w_j·x_i ≥ 0} x_i`.
fn descent_direction(x: ArrayView2<f64>, y: &Array1<f64>, a: &Array1<f64>, w: &Array2<f64>) -> Array2<f64> {
    let mut active = matmul(x, w.t());
    active.mapv_inplace(|z| f64::from(u8::from(z >= 0.0)));
    active.rows_mut().into_iter().zip(y).for_each(|(mut row, y)| row *= *y);
    active.columns_mut().into_iter().zip(a).for_each(|(mut column, a)| column *= *a);
    matmul(active.t(), x) * (2.0 / x.nrows() as f64)
}

impl TwoStep {
    /// Trains a network of `width` hidden units on `x` `[n, d]`, `y` `[n]`.
    /// `η₁ = √d`: the source leaves constants and logarithms of this order open.
    pub fn fit(x: ArrayView2<f64>, y: &[f64], width: usize, rng: &mut Rng) -> Result<TwoStep> {
        let (n, d) = x.dim();
        let y = Array1::from(y.to_vec());
        let alpha = y.mean().unwrap_or(0.0);
        let beta = x.t().dot(&y) / n as f64;
        let y = &y - alpha - x.dot(&beta);
        let half = width / 2;
        let mirrored = |j: usize| if j < half { j } else { 2 * half - 1 - j };
        let signs: Vec<f64> = (0..half).map(|_| rng.sign()).collect();
        let drawn = Array2::from_shape_simple_fn((half, d), || rng.normal() / (d as f64).sqrt());
        let a = Array1::from_shape_fn(2 * half, |j| if j < half { signs[j] } else { -signs[mirrored(j)] });
        let start = Array2::from_shape_fn((2 * half, d), |(j, i)| drawn[[mirrored(j), i]]);
        let w = descent_direction(x, &y, &a, &start) * (d as f64).sqrt();
        let b = Array1::from_shape_simple_fn(2 * half, || rng.normal());
        let a = head(&features(x, &w, &b), &y)?;
        Ok(TwoStep { alpha, beta, w, b, a })
    }

    /// `α + β·x + aᵀσ(Wx + b)` `[m]`
    pub fn predict(&self, x: ArrayView2<f64>) -> Array1<f64> {
        features(x, &self.w, &self.b).dot(&self.a) + x.dot(&self.beta) + self.alpha
    }

    /// The cosine of the largest angle between span U, for orthonormal rows `u` `[r, d]`, and the r leading right singular vectors of W.
    pub fn recovered(&self, u: ArrayView2<f64>) -> Result<f64> {
        let (_, vectors) = eigh(Device::Cpu, matmul(self.w.t(), self.w.view()).view())?;
        least_cosine(u, vectors.slice(s![.., ..u.nrows()]))
    }
}

/// The head `(ΦᵀΦ + λ)⁻¹Φᵀy` `[m]`, λ by the error on the last part of the examples.
fn head(phi: &Array2<f64>, y: &Array1<f64>) -> Result<Array1<f64>> {
    let n = phi.nrows();
    let kept = n - ((VALIDATION * n as f64) as usize).max(1);
    let (train, test) = phi.view().split_at(Axis(0), kept);
    let size = phi.mapv(|v| v * v).mean().unwrap_or(1.0) * n as f64;
    let mut best = (f64::INFINITY, RIDGES[0]);
    for ridge in RIDGES {
        let a = solve(train, &y.slice(s![..kept]).to_owned(), ridge * size)?;
        let off = test.dot(&a) - y.slice(s![kept..]);
        let error = off.dot(&off);
        if error < best.0 {
            best = (error, ridge);
        }
    }
    solve(phi.view(), y, best.1 * size)
}

/// By the smaller of the two systems: `(ΦᵀΦ + λ)⁻¹Φᵀ = Φᵀ(ΦΦᵀ + λ)⁻¹`.
fn solve(phi: ArrayView2<f64>, y: &Array1<f64>, ridge: f64) -> Result<Array1<f64>> {
    let wide = phi.ncols() > phi.nrows();
    let mut gram = if wide { matmul(phi, phi.t()) } else { matmul(phi.t(), phi) };
    gram.diag_mut().mapv_inplace(|v| v + ridge);
    let factor = Cholesky::new(Device::Cpu, gram.view())?;
    let right = if wide { y.clone() } else { phi.t().dot(y) };
    let solved = factor.solve(right.insert_axis(Axis(1)).view())?.remove_axis(Axis(1));
    Ok(if wide { phi.t().dot(&solved) } else { solved })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first step against finite differences of the loss of the network, at the symmetric start.
    #[test]
    fn the_first_step_is_along_the_gradient() {
        let mut rng = Rng::new(1);
        let x = rng.normals((7, 3));
        let y = Array1::from_shape_simple_fn(7, || rng.normal());
        let half = rng.normals((2, 3));
        let w = ndarray::concatenate![Axis(0), half, half];
        let a = ndarray::array![1.0, -1.0, -1.0, 1.0];
        let loss = |w: &Array2<f64>| {
            let off = features(x.view(), w, &Array1::zeros(4)).dot(&a) - &y;
            off.dot(&off) / 7.0
        };
        let direction = descent_direction(x.view(), &y, &a, &w);
        for ((j, i), want) in direction.indexed_iter() {
            let mut moved = w.clone();
            moved[[j, i]] += 1e-6;
            let up = loss(&moved);
            moved[[j, i]] -= 2e-6;
            assert!(((loss(&moved) - up) / 2e-6 - want).abs() < 1e-5, "{j} {i}");
        }
        assert!((loss(&w) - y.dot(&y) / 7.0).abs() < 1e-12); // f = 0
    }

    /// Both systems give the same head, the normal equations' solution.
    #[test]
    fn the_head_is_ridge_regression() {
        let mut rng = Rng::new(2);
        for (n, m) in [(9, 4), (4, 9)] {
            let phi = rng.normals((n, m));
            let y = Array1::from_shape_simple_fn(n, || rng.normal());
            let a = solve(phi.view(), &y, 0.3).unwrap();
            let residual = phi.t().dot(&(phi.dot(&a) - &y)) + 0.3 * &a;
            assert!(residual.dot(&residual) < 1e-20);
        }
    }

    /// `f* = x₁x₂` in ten dimensions: the span is found, and the function.
    #[test]
    fn a_product_of_two_coordinates_is_learnt() {
        let mut rng = Rng::new(3);
        let mut points = |n: usize| rng.normals((n, 10));
        let (x, new) = (points(3000), points(500));
        let value = |x: &Array2<f64>| x.rows().into_iter().map(|x| x[0] * x[1]).collect::<Vec<f64>>();
        let net = TwoStep::fit(x.view(), &value(&x), 200, &mut Rng::new(4)).unwrap();
        let u = Array2::from_shape_fn((2, 10), |(i, j)| f64::from(u8::from(i == j)));
        assert!(net.recovered(u.view()).unwrap() > 0.9);
        let off = net.predict(new.view()) - Array1::from(value(&new));
        assert!(off.dot(&off) / 500.0 < 0.1, "{}", off.dot(&off) / 500.0);
    }
}
