//! Functions `f*(x) = g(Ux)` of r hidden directions of d, with variance one over standard normal inputs.

use mercer::Result;
use mercer::linalg::orthonormal_basis;
use mercer::rng::Rng;
use ndarray::{Array1, Array2, ArrayView2};

/// The link g of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Link {
    /// Degree p = 2: `Σ_k h₂(z_k)`. Its average Hessian has rank r.
    Quadratic,
    /// Degree p = 3: `Σ_k h₂(z_k) + h₃(z_k)`. Its average Hessian has rank r.
    Cubic,
    /// `Σ_k h₃(z_k)`: its average Hessian is zero, and Assumption 2 is violated.
    Degenerate,
}

/// Hermite polynomials with mean zero and variance one.
fn h2(z: f64) -> f64 {
    (z * z - 1.0) / 2f64.sqrt()
}

fn h3(z: f64) -> f64 {
    (z * z * z - 3.0 * z) / 6f64.sqrt()
}

impl Link {
    pub fn degree(self) -> usize {
        if self == Link::Quadratic { 2 } else { 3 }
    }

    pub fn name(self) -> &'static str {
        match self {
            Link::Quadratic => "h₂",
            Link::Cubic => "h₂ + h₃",
            Link::Degenerate => "h₃ (degenerate)",
        }
    }

    /// `g(z)/√Var` for the r coordinates z.
    fn value(self, z: &[f64]) -> f64 {
        let one = |z: f64| match self {
            Link::Quadratic => h2(z),
            Link::Cubic => (h2(z) + h3(z)) / 2f64.sqrt(),
            Link::Degenerate => h3(z),
        };
        z.iter().map(|z| one(*z)).sum::<f64>() / (z.len() as f64).sqrt()
    }
}

/// A target in d dimensions.
pub struct Hidden {
    pub link: Link,
    /// Orthonormal rows `[r, d]`.
    pub u: Array2<f64>,
}

impl Hidden {
    pub fn draw(link: Link, d: usize, r: usize, rng: &mut Rng) -> Result<Hidden> {
        let u = orthonormal_basis(rng.normals((d, r)))?;
        Ok(Hidden { link, u: u.t().to_owned() })
    }

    /// `n` standard normal points `[n, d]` and their values.
    pub fn sample(&self, n: usize, rng: &mut Rng) -> (Array2<f64>, Vec<f64>) {
        let x = rng.normals((n, self.u.ncols()));
        let y = self.values(x.view()).to_vec();
        (x, y)
    }

    pub fn values(&self, x: ArrayView2<f64>) -> Array1<f64> {
        let z = x.dot(&self.u.t());
        z.rows().into_iter().map(|z| self.link.value(&z.to_vec())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean zero, variance one, and the gradient of the average Hessian: `E[∇²f]` is zero for the degenerate link alone.
    #[test]
    fn targets_have_their_moments() {
        for link in [Link::Quadratic, Link::Cubic, Link::Degenerate] {
            let mut rng = Rng::new(5);
            let target = Hidden::draw(link, 4, 2, &mut rng).unwrap();
            let (x, y) = target.sample(200_000, &mut rng);
            let n = y.len() as f64;
            let (mean, square) = (y.iter().sum::<f64>() / n, y.iter().map(|y| y * y).sum::<f64>() / n);
            assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.1, "{link:?} {mean} {square}");
            // E[f (xxᵀ − I)] = E[∇²f] along u₁.
            let z = x.dot(&target.u.row(0));
            let hessian = y.iter().zip(&z).map(|(y, z)| y * (z * z - 1.0)).sum::<f64>() / n;
            let want = match link {
                Link::Quadratic => 1.0,
                Link::Cubic => 0.5f64.sqrt(),
                Link::Degenerate => 0.0,
            };
            assert!((hessian - want).abs() < 0.05, "{link:?} {hessian}");
        }
    }
}
