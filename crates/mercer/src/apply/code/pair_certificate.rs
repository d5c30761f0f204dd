//! How good functions are on pairs that were not used to find them.

use crate::linalg::{Cholesky, matmul, solve_lower};
use crate::{Device, Result, fail_if};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};

/// Eigenfunctions of an operator that is known through pairs, measured on pairs. With `C = ⟨ψ,ψᵀ⟩` and `R = ⟨ψ,Kψᵀ⟩` there:
///
/// `‖Kψ_j − μ_jψ_j‖` needs the expectation over all partners of a point, and there is one. What the functions themselves see of it can
/// be measured: the norm of its projection on their span, `‖L⁻¹(R − μ_jC)e_j‖` with `C = LLᵀ`. It is zero where they are the eigenfunctions of
/// K within their span, and a lower bound of the residual. Example: [`ViewEigenmap`](crate::apply::ViewEigenmap).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairCertificate {
    /// Pairs that it was measured on.
    pub pairs: usize,
    /// Whether these are of rows that the fit did not see.
    pub held_out: bool,
    /// `⟨ψ_j,Kψ_j⟩/⟨ψ_j,ψ_j⟩` there, `[k]`.
    pub quotients: Vec<f64>,
    /// A 95 % confidence interval of each quotient, from its spread over pairs, `[k]`.
    pub intervals: Vec<[f64; 2]>,
    /// `‖L⁻¹(R − μ_jC)e_j‖/μ_j`, at most 1, with the eigenvalues `μ_j` of the fit, `[k]`.
    pub residuals: Vec<f64>,
    /// The largest entry of `|C − I|`.
    pub orthonormality: f64,
    /// `tr(C⁻¹R)`: the part of the trace of `κ − 1` that is in the span of the functions, whatever functions span it; the largest quotient where C is
    /// singular. The whole trace is not known.
    pub captured: f64,
}

/// Normal quantile of 0.975.
const INTERVAL: f64 = 1.959_963_984_540_054;

impl PairCertificate {
    /// Of `ψ` `[m, k]` and `Kψ` `[m, k]`, with the eigenvalues μ of the fit. Rows that follow one another in groups of `together` are not
    /// independent: two views of a pair.
    pub(crate) fn new(
        psi: ArrayView2<f64>,
        image: ArrayView2<f64>,
        eigenvalues: &[f64],
        together: usize,
        held_out: bool,
    ) -> Result<PairCertificate> {
        let (m, k) = psi.dim();
        let mean = |a: ArrayView2<f64>, b: ArrayView2<f64>| matmul(a.t(), b) / m as f64;
        let (c, r) = (mean(psi, psi), mean(psi, image));
        let r = (&r + &r.t()) * 0.5;
        let quotient = |j: usize| if c[[j, j]] > 0.0 { r[[j, j]] / c[[j, j]] } else { 0.0 };
        let quotients: Vec<f64> = (0..k).map(quotient).collect();
        let groups = m / together;
        let interval = |j: usize| {
            // The ratio of two means, linearised: its error is the mean of ψ(Kψ − qψ) over ⟨ψ,ψ⟩.
            let q = quotients[j];
            let of = |g: usize| -> f64 {
                let rows = g * together..(g + 1) * together;
                rows.map(|i| psi[[i, j]] * (image[[i, j]] - q * psi[[i, j]])).sum::<f64>() / together as f64
            };
            let variance = (0..groups).map(|g| of(g).powi(2)).sum::<f64>() / groups.max(1) as f64;
            let width = INTERVAL * (variance / groups.max(1) as f64).sqrt() / c[[j, j]].max(f64::MIN_POSITIVE);
            if width.is_finite() { [q - width, q + width] } else { [q, q] }
        };
        let intervals = (0..k).map(interval).collect();
        let off = |((i, j), v): ((usize, usize), &f64)| (v - f64::from(u8::from(i == j))).abs();
        let mut error = Array2::from_shape_fn((k, k), |(i, j)| r[[i, j]] - eigenvalues[j] * c[[i, j]]);
        // A direction that the pairs do not show, or where C is singular, has no residual to speak of: it counts as 1.
        let (residuals, captured) = match Cholesky::new(Device::Cpu, c.view()) {
            Ok(factor) => {
                solve_lower(factor.lower()?, error.view_mut());
                let share = |j: usize| (error.column(j).dot(&error.column(j)).sqrt() / eigenvalues[j]).min(1.0);
                let residuals = (0..k).map(|j| if eigenvalues[j] > 0.0 { share(j) } else { 1.0 }).collect();
                // tr(C⁻¹R) = tr(L⁻¹ R L⁻ᵀ)
                let mut half = r;
                solve_lower(factor.lower()?, half.view_mut());
                let mut whole = half.t().as_standard_layout().into_owned();
                solve_lower(factor.lower()?, whole.view_mut());
                (residuals, whole.diag().sum())
            }
            Err(_) => (vec![1.0; k], quotients.iter().copied().fold(0.0, f64::max)),
        };
        Ok(PairCertificate {
            pairs: groups,
            held_out,
            captured,
            quotients,
            intervals,
            residuals,
            orthonormality: c.indexed_iter().map(off).fold(0.0, f64::max),
        })
    }

    /// Refuses one that is not of `k` functions.
    pub(crate) fn checked(self, k: usize) -> Result<PairCertificate> {
        let lengths = [self.quotients.len(), self.intervals.len(), self.residuals.len()];
        fail_if!(lengths != [k; 3], "the model's 'certificate' must be of {k} functions, not of {lengths:?}");
        Ok(self)
    }

    /// The mean of the residuals.
    pub fn mean_residual(&self) -> f64 {
        self.residuals.iter().sum::<f64>() / self.residuals.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::spectrum::neural::partners;

    const RHO: f64 = 0.8;

    fn hermite(x: f64) -> [f64; 2] {
        [x, (x * x - 1.0) / 2f64.sqrt()]
    }

    /// Pairs of correlated normal numbers, one after the other. The coordinate and its second Hermite polynomial are eigenfunctions, of
    /// RHO and RHO².
    fn correlated(pairs: usize, rng: &mut Rng) -> Vec<f64> {
        let pair = |_| {
            let first = rng.normal();
            [first, RHO * first + (1.0 - RHO * RHO).sqrt() * rng.normal()]
        };
        (0..pairs).flat_map(pair).collect()
    }

    fn certified(x: &[f64]) -> PairCertificate {
        let psi = Array2::from_shape_fn((x.len(), 2), |(i, j)| hermite(x[i])[j]);
        PairCertificate::new(psi.view(), partners(psi.view()).view(), &[RHO, RHO * RHO], 2, true).unwrap()
    }

    #[test]
    fn intervals_hold_the_eigenvalue_about_as_often_as_they_say() {
        let mut rng = Rng::new(2);
        let mut held = [0; 2];
        for _ in 0..100 {
            let certificate = certified(&correlated(500, &mut rng));
            for (j, [low, high]) in certificate.intervals.iter().enumerate() {
                held[j] += usize::from((*low..*high).contains(&RHO.powi(j as i32 + 1)));
            }
        }
        assert!(held.iter().all(|count| (82..=99).contains(count)), "{held:?}");
    }

    #[test]
    fn eigenfunctions_of_a_correlation_are_certified_and_others_are_not() {
        let pairs = 20_000;
        let x = correlated(pairs, &mut Rng::new(1));
        let certificate = certified(&x);
        assert!(certificate.residuals.iter().all(|r| *r < 0.05), "{certificate:?}");
        assert!(certificate.orthonormality < 0.05 && (certificate.captured - 1.44).abs() < 0.05);
        assert!(certificate.intervals.iter().all(|[low, high]| (0.0..0.05).contains(&(high - low))), "{certificate:?}");
        // Mixed, they are orthonormal still, but each sees the other in its image.
        let turned = Array2::from_shape_fn((2 * pairs, 2), |(i, j)| {
            let [a, b] = hermite(x[i]);
            [0.6 * a + 0.8 * b, 0.8 * a - 0.6 * b][j]
        });
        let mixed = PairCertificate::new(turned.view(), partners(turned.view()).view(), &[0.7, 0.7], 2, true).unwrap();
        assert!(mixed.residuals.iter().all(|r| *r > 0.08), "{mixed:?}");
        // The trace is that of the span, whatever functions there are in it.
        let skew = Array2::from_shape_fn((2 * pairs, 2), |(i, j)| {
            let [a, b] = hermite(x[i]);
            a + 0.1 * j as f64 * b
        });
        let skew = PairCertificate::new(skew.view(), partners(skew.view()).view(), &[0.7, 0.7], 2, true).unwrap();
        assert!(
            (skew.captured - certificate.captured).abs() < 1e-9 && skew.quotients.iter().sum::<f64>() > 1.5,
            "{skew:?}"
        );
    }
}
