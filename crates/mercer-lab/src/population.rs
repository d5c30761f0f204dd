//! The spectrum of a kernel with respect to a distribution, instead of points drawn from it.

use mercer::Result;
use mercer::compute::Device;
use mercer::kernel::Kernel;
use mercer::linalg::eigh;
use mercer::operator::gram;
use ndarray::Array2;

/// Eigenpairs of a kernel with respect to the uniform distribution on an interval, by Gauss–Legendre quadrature. For a
/// smooth kernel they are exact to rounding.
pub struct Population {
    /// `μ_j`, descending; those below rounding error are zero.
    pub eigenvalues: Vec<f64>,
    /// Nodes `[m, 1]` of the quadrature.
    pub nodes: Array2<f64>,
    /// Weights `[m]` of the nodes; they sum to one.
    pub weights: Vec<f64>,
    /// `ψ_j` at the nodes `[m, k]`; zero if `μ_j` is zero.
    pub values: Array2<f64>,
}

/// Number of nodes, enough for the kernels here: 40 nodes give the same digits.
const NODES: usize = 64;

impl Population {
    /// The `k` leading pairs for the uniform distribution on `[a, b]`.
    ///
    /// `E[κ(x,x')ψ(x')] ≈ Σ_i w_i κ(x,z_i) ψ(z_i)`, so that `√W K √W v = μ v` with `ψ(z_i) = v_i/√w_i`.
    pub fn on_interval(kernel: &Kernel, [a, b]: [f64; 2], k: usize) -> Result<Population> {
        let (points, weights) = gauss_legendre(NODES);
        let nodes = Array2::from_shape_fn((NODES, 1), |(i, _)| 0.5 * (a + b) + 0.5 * (b - a) * points[i]);
        let weights: Vec<f64> = weights.iter().map(|w| 0.5 * w).collect();
        let mut matrix = gram::<f64>(kernel, nodes.view(), Device::Cpu)?;
        for ((i, j), entry) in matrix.indexed_iter_mut() {
            *entry *= (weights[i] * weights[j]).sqrt();
        }
        let (λ, v) = eigh(Device::Cpu, matrix.view())?;
        let threshold = 1e-14 * λ[0].max(0.0);
        let mut eigenvalues = vec![0.0; k];
        let mut values = Array2::zeros((NODES, k));
        for (j, μ) in eigenvalues.iter_mut().enumerate().take_while(|(j, _)| *j < NODES && λ[*j] > threshold) {
            *μ = λ[j];
            values.column_mut(j).indexed_iter_mut().for_each(|(i, ψ)| *ψ = v[[i, j]] / weights[i].sqrt());
        }
        Ok(Population { eigenvalues, nodes, weights, values })
    }
}

/// Nodes and weights of Gauss–Legendre quadrature on `[−1, 1]`: the zeros of `P_m`, by Newton's method, and
/// `w = 2/((1−z²) P'_m(z)²)`.
pub fn gauss_legendre(m: usize) -> (Vec<f64>, Vec<f64>) {
    // P_m and P'_m by the recurrence (j+1) P_{j+1} = (2j+1) z P_j − j P_{j−1}.
    let legendre = |z: f64| {
        let (mut p, mut before) = (1.0, 0.0);
        for j in 0..m {
            (p, before) = (((2 * j + 1) as f64 * z * p - j as f64 * before) / (j + 1) as f64, p);
        }
        (p, m as f64 * (z * p - before) / (z * z - 1.0))
    };
    let node = |i: usize| {
        let mut z = -(std::f64::consts::PI * (i as f64 + 0.75) / (m as f64 + 0.5)).cos();
        for _ in 0..20 {
            let (p, slope) = legendre(z);
            z -= p / slope;
        }
        let (_, slope) = legendre(z);
        (z, 2.0 / ((1.0 - z * z) * slope * slope))
    };
    (0..m).map(node).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrature_is_exact_for_polynomials() {
        let (z, w) = gauss_legendre(7);
        for degree in 0..14 {
            let got: f64 = z.iter().zip(&w).map(|(z, w)| w * z.powi(degree)).sum();
            let want = if degree % 2 == 0 { 2.0 / f64::from(degree + 1) } else { 0.0 };
            assert!((got - want).abs() < 1e-14, "degree {degree}: {got}");
        }
    }

    fn population(kernel: &str, interval: [f64; 2], k: usize) -> Population {
        Population::on_interval(&Kernel::parse(kernel).unwrap(), interval, k).unwrap()
    }

    /// `E[x²] = 1/3` for the linear kernel; other values from an independent computation with 30 and with 40 nodes.
    #[test]
    fn classic_spectra() {
        let linear = population("linear", [-1.0, 1.0], 2).eigenvalues;
        assert!((linear[0] - 1.0 / 3.0).abs() < 1e-14 && linear[1] == 0.0);
        let rbf = [
            0.5212157, 0.3025390, 0.1257423, 0.0389239, 0.0093883, 0.0018393, 3.0259e-4, 4.2857e-5, 5.326e-6, 5.894e-7,
        ];
        for (μ, want) in population("rbf(1)", [-2.0, 2.0], 10).eigenvalues.iter().zip(rbf) {
            assert!((μ / want - 1.0).abs() < 1e-4 && (μ - want).abs() < 6e-8, "{μ} {want}");
        }
        let poly = [6.9441344, 5.2393530, 0.9239805, 0.1177899, 0.0054963];
        let found = population("poly(degree=4, offset=1.5)", [-1.0, 1.0], 10).eigenvalues;
        for (μ, want) in found.iter().zip(poly) {
            assert!((μ - want).abs() < 6e-8, "{μ} {want}");
        }
        assert!(found[5..].iter().all(|μ| *μ == 0.0), "{found:?}");
    }

    #[test]
    fn functions_are_orthonormal() {
        let found = population("rbf(1)", [-2.0, 2.0], 6);
        let gram = Array2::from_shape_fn((6, 6), |(i, j)| {
            found.weights.iter().enumerate().map(|(p, w)| w * found.values[[p, i]] * found.values[[p, j]]).sum::<f64>()
        });
        assert!((gram - Array2::<f64>::eye(6)).iter().all(|d| d.abs() < 1e-12));
    }
}
