//! Eigenpairs of the operator `Φ ↦ φ(·)ᵀφ(·)` that a feature map defines, from the small matrix `Σ = ΦᵀΦ/n`.

use super::exact::decomposed;
use super::ritz::{over_roots, padded};
use super::{EigenPairs, zero_threshold};
use crate::compute::Device;
use crate::compute::ledger::ran;
use crate::linalg::{Panel, view, view_mut};
use crate::operator::Real;
use crate::{FitContext, Group, Progress, Result};
use faer::Accum;
use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

/// Rows of Φ that are in memory at once, as many as are read from a file at a time.
pub(super) const BLOCK: usize = crate::data::BLOCK;

/// Bytes that [`covariance`] and the eigendecomposition of its result take, for `p` features of `bytes` each.
pub(super) fn memory(p: usize, bytes: u64) -> u64 {
    let p = p as u128;
    let all = (BLOCK as u128 * p * u128::from(bytes)).saturating_add((p * p).saturating_mul(u128::from(bytes + 5 * 8)));
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// The lower half of `Σ = ΦᵀΦ/n` `[p, p]`, with `φ` `[b, p]` computed for a block of the n rows at a time. Products are
/// in `T`, the sum over blocks in f64.
pub(super) fn covariance<T: Real>(
    n: usize,
    p: usize,
    progress: &dyn Progress,
    φ: impl Fn(Range<usize>) -> Result<Array2<T>>,
) -> Result<Array2<f64>> {
    let mut covariance = Covariance::new(p);
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        covariance.add(φ(start..end)?.view());
        progress.step("features of the points", end, n, "");
    }
    Ok(covariance.finish())
}

/// [`covariance`] on a GPU, with features `[b, p]` that are there, in f64.
pub(super) fn covariance_on(
    device: Device,
    (n, p): (usize, usize),
    progress: &dyn Progress,
    φ: impl Fn(Range<usize>) -> Result<Panel>,
) -> Result<Array2<f64>> {
    /// Rows at a time: enough to fill a GPU.
    const ROWS: usize = 4 * BLOCK;
    ran("passes over features", device, 1);
    let mut sum = Panel::zeros(device, [p, p])?;
    for start in (0..n).step_by(ROWS) {
        let end = n.min(start + ROWS);
        let phi = φ(start..end)?;
        sum.axpy(&vec![1.0; p], &phi.t_times(&phi)?)?;
        progress.step("features of the points", end, n, "");
    }
    Ok(sum.into_host()? / n as f64)
}

/// `ΦᵀΦ` over the rows so far.
pub(super) struct Covariance<T> {
    sum: Array2<f64>,
    product: Array2<T>,
    rows: usize,
}

impl<T: Real> Covariance<T> {
    /// Of no rows of `p` features.
    pub fn new(p: usize) -> Self {
        Covariance { sum: Array2::zeros((p, p)), product: Array2::from_elem((p, p), T::default()), rows: 0 }
    }

    /// Adds features `[b, p]`.
    pub fn add(&mut self, phi: ArrayView2<T>) {
        add_gram(&mut self.sum, &mut self.product, phi);
        self.rows += phi.nrows();
    }

    /// The same over the rows of all ranks.
    pub fn over(mut self, group: Group<'_>) -> Result<Self> {
        group.sum(self.sum.as_slice_mut().expect("own array"))?;
        let mut rows = [self.rows as f64];
        group.sum(&mut rows)?;
        Ok(Covariance { rows: rows[0] as usize, ..self })
    }

    /// The lower half of `ΦᵀΦ/n` `[p, p]`.
    pub fn finish(self) -> Array2<f64> {
        self.sum / self.rows as f64
    }
}

/// Adds the lower half of `ΦᵀΦ` to `sum` `[p, p]`, for `phi` `[b, p]`; `product` `[p, p]` is room for it.
pub(crate) fn add_gram<T: Real>(sum: &mut Array2<f64>, product: &mut Array2<T>, phi: ArrayView2<T>) {
    let (half, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
    let (target, left, right) = (view_mut(product.view_mut()), view(phi.t()), view(phi));
    matmul(target, half, Accum::Replace, left, whole, right, whole, T::one_impl(), faer::get_global_parallelism());
    sum.zip_mut_with(product, |s, p| *s += p.wide());
}

/// The `k` leading eigenvalues `μ_j` of `Σ` `[p, p]` (its lower half is read), and `A` `[p, k]` with columns
/// `v_j/√μ_j`, so that `ψ = φA` has unit norm and `φ(x)·φ(x') = Σ_j μ_j ψ_j(x) ψ_j(x')`. Eigenvalues that
/// rounding hides are zero, and so are their columns.
pub(super) fn principal_pairs(context: &FitContext<'_>, sigma: ArrayView2<f64>, k: usize) -> Result<EigenPairs> {
    let (λ, v) = decomposed(context, sigma)?;
    let threshold = zero_threshold(context.roundoff(), λ.first().copied().unwrap_or(0.0));
    let kept = λ.iter().take(k).take_while(|λ| **λ > threshold).count();
    Ok(padded(&λ[..kept], over_roots(&v, &λ[..kept]).view(), k))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use crate::rng::Rng;
    use ndarray::s;

    #[test]
    fn blocks_add_up_to_the_covariance() {
        let x = Rng::new(1).normals((BLOCK + 5, 7));
        let want = x.t().dot(&x) / x.nrows() as f64;
        let rows = |rows: Range<usize>| x.slice(s![rows, ..]);
        let double = covariance(x.nrows(), 7, &Silent, |r| Ok(rows(r).to_owned())).unwrap();
        let single = covariance(x.nrows(), 7, &Silent, |r| Ok(rows(r).mapv(|v| v as f32))).unwrap();
        for ((i, j), want) in want.indexed_iter().filter(|((i, j), _)| j <= i) {
            assert!((double[[i, j]] - want).abs() < 1e-14);
            assert!((single[[i, j]] - want).abs() < 1e-6);
        }
    }
}
