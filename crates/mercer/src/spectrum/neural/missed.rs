//! Pairs that training missed. A residual is small for every eigenfunction, whichever it is; that one was left out shows only in what the
//! functions do not span.

use crate::linalg::{eigh, matmul, orthonormal_basis};
use crate::rng::Rng;
use crate::spectrum::{Problem, Solution};
use crate::{Device, Result};
use ndarray::s;

/// A function outside the span of those that were found, with a Rayleigh quotient above the eigenvalue of one of them.
pub(super) struct Missed {
    /// `⟨φ,Kφ⟩` for the φ of norm 1 with the largest, orthogonal to the functions found, on a sample.
    pub quotient: f64,
    /// Its standard error, as an eigenvalue of the sample.
    pub error: f64,
    /// Points of the sample.
    points: usize,
}

impl Missed {
    /// By the largest eigenvalue of `(I − QQᵀ) K (I − QQᵀ)/m` on a sample of m values, Q an orthonormal basis of the values of the functions
    /// there. (By Courant and Fischer, it is the next eigenvalue where Q spans the eigenvectors of the largest.)
    pub fn by(solution: &Solution, problem: &Problem) -> Result<Option<Missed>> {
        /// Values of the sample at most.
        const VALUES: usize = 600;
        /// Standard errors by which the quotient exceeds an eigenvalue.
        const CLEAR: f64 = 3.0;
        /// Quotients below this, times the largest eigenvalue, are rounding.
        const LEAST: f64 = 1e-6;
        let (operator, μ) = (problem.operator, &solution.eigenvalues);
        let (Some(_), Some(x)) = (&solution.networks, operator.points()) else { return Ok(None) };
        let c = operator.outputs();
        let points = (operator.n() / c).min((VALUES / c).max(1));
        let drawn = Rng::new(problem.context.seed).fork(0x6d69_7373).sample(operator.n() / c, points);
        let values: Vec<usize> = drawn.iter().flat_map(|point| point * c..(point + 1) * c).collect();
        let found = μ.iter().filter(|μ| **μ > 0.0).count();
        let (m, ψ) = (
            values.len() as f64,
            solution.features.project(x.select(&drawn).rows().into(), solution.coefficients.view())?,
        );
        if found == 0 || values.len() <= 2 * found {
            return Ok(None);
        }
        let q = orthonormal_basis(ψ.slice(s![.., ..found]).to_owned())?;
        let mut k = operator.block(&values, &values)? / m;
        for _ in 0..2 {
            // (I − QQᵀ)K, then its transpose once more: K is symmetric.
            k = &k - &matmul(q.view(), matmul(q.t(), k.view()).view());
            k = k.t().as_standard_layout().into_owned();
        }
        let (θ, u) = eigh(Device::Cpu, k.view())?;
        let influence = u.column(0).mapv(|u| θ[0] * (m * u * u - 1.0));
        let error = (influence.mapv(|v| v * v).sum() / m / points as f64).sqrt();
        let last = μ.last().copied().unwrap_or(0.0).max(LEAST * μ[0]);
        Ok((θ[0] - CLEAR * error > last).then_some(Missed { quotient: θ[0], error, points }))
    }

    /// What the user should know, of the eigenvalues `μ` that were found.
    pub fn note(&self, μ: &[f64]) -> String {
        let pair = 1 + μ.iter().take_while(|μ| **μ >= self.quotient).count();
        format!(
            "training missed a pair: on {} points, a function outside the span of those found has the Rayleigh quotient {:.4} ± {:.4}, which is \
             more than the eigenvalue of pair {}; pairs from {} on are not those of their numbers. Train for more steps, or use {krylov}",
            self.points,
            self.quotient,
            self.error,
            μ.len(),
            pair.min(μ.len()),
            krylov = crate::advice!(Krylov)
        )
    }
}
