//! Rayleigh–Ritz: eigenpairs within the span of features.

use super::{EigenPairs, Problem, zero_threshold};
use crate::Result;
use crate::compute::Device;
use crate::linalg::{eigh, matmul};
use crate::operator::Operator;
use crate::rng::Rng;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

/// Rayleigh–Ritz: the best eigenpairs of `K/n` within the span of features. Solves `Π a = μ Σ a` with `Σ = ΦᵀΦ/n`,
/// `Π = ΦᵀKΦ/n²` for features at the operator's n points, `Φ` `[n, p]`.
///
/// Returns at most `k` pairs, `μ` descending and `A` `[p, ·]`, such that `ψ = ΦA` has `ψᵀψ/n = I`. Directions in which
/// the features depend on each other are dropped, so there are fewer pairs than `k` where the span has fewer dimensions.
///
/// The features are made orthonormal first, `Q = ΦW`, and K is applied to Q: applied to Φ, its rounding would be amplified
/// by the condition of Σ, and small or zero eigenvalues would be lost in it.
///
/// ```
/// use mercer::{operator::DenseOperator, spectrum::rayleigh_ritz};
/// use ndarray::array;
/// // Φ spans the whole space, so the pairs of K/n are found exactly.
/// let k = DenseOperator::new(array![[2.0, 1.0], [1.0, 2.0]]);
/// let phi = array![[1.0, 3.0], [0.0, 1.0]];
/// let (mu, _) = rayleigh_ritz(phi.view(), &k, 2)?;
/// assert!((mu[0] - 1.5).abs() < 1e-12 && (mu[1] - 0.5).abs() < 1e-12);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn rayleigh_ritz(phi: ArrayView2<f64>, operator: &dyn Operator, k: usize) -> Result<(Vec<f64>, Array2<f64>)> {
    /// The squared error of double precision, with room for sums over features.
    const NOISE: f64 = 1e-13;
    let n = phi.nrows() as f64;
    let (q, w) = orthonormalise(phi, NOISE)?;
    let t = matmul(q.t(), operator.apply(q.view())?.view()) / (n * n);
    let (μ, v) = eigh(Device::Cpu, ((&t + &t.t()) * 0.5).view())?;
    let k = k.min(μ.len());
    Ok((μ[..k].to_vec(), matmul(w.view(), v.slice(s![.., ..k]))))
}

/// `W` `[p, r]` and `Q = ΦW` with `QᵀQ/m = I` for `Φ` `[m, p]`; directions that hold less than the share `noise` of the
/// mean square of the strongest are left out.
///
/// Twice `W ← W U Λ^{−1/2}` with `QᵀQ/m = UΛUᵀ`: the second pass repairs the rounding of the first.
pub(super) fn orthonormalise(phi: ArrayView2<f64>, noise: f64) -> Result<(Array2<f64>, Array2<f64>)> {
    let m = phi.nrows() as f64;
    let scale = phi.map_axis(Axis(0), |column| {
        let norm = (column.dot(&column) / m).sqrt();
        if norm > 0.0 { 1.0 / norm } else { 0.0 }
    });
    let mut w = Array2::from_diag(&scale);
    let mut q = &phi * &scale;
    for least in [noise, 0.1] {
        let (λ, u) = eigh(Device::Cpu, (matmul(q.t(), q.view()) / m).view())?;
        let rank = λ.iter().take_while(|&&l| l > (least * λ[0]).max(f64::MIN_POSITIVE)).count();
        w = matmul(w.view(), over_roots(&u, &λ[..rank]).view());
        q = matmul(phi, w.view());
    }
    Ok((q, w))
}

/// `U Λ^{−1/2}` `[p, r]` of the first r eigenpairs `λ`, `u` `[p, ·]`.
pub(crate) fn over_roots(u: &Array2<f64>, λ: &[f64]) -> Array2<f64> {
    u.slice(s![.., ..λ.len()]).to_owned() / &Array1::from_iter(λ.iter().map(|λ| λ.sqrt()))
}

/// Values on which Rayleigh–Ritz applies the operator itself; the cost is their square.
pub(super) const MOST_RITZ_POINTS: usize = 8192;

/// Pairs of κ itself in the span of p features: `μ` `[k]`, zero where rounding hides it, and `A` `[p, k]`, with columns of
/// zeros there. `φ(rows)` gives the features `[rows, p]` at some of the sample's values.
pub(super) fn ritz_pairs(problem: &Problem, φ: impl FnOnce(&[usize]) -> Result<Array2<f64>>) -> Result<EigenPairs> {
    let n = problem.operator.n();
    let sample = Rng::new(problem.context.seed).fork(0x7269_747a).sample(n, MOST_RITZ_POINTS.min(n));
    let operator = problem.operator.restricted(&sample)?;
    let phi = φ(&sample)?;
    let (μ, a) = rayleigh_ritz(phi.view(), operator.as_ref(), problem.k)?;
    let threshold = zero_threshold(operator.roundoff(), μ.first().copied().unwrap_or(0.0));
    let kept = μ.iter().take_while(|μ| **μ > threshold).count();
    Ok(padded(&μ[..kept], a.slice(s![.., ..kept]), problem.k))
}

/// Eigenvalues and the vectors `[p, ·]` in their columns, with zeros up to `k` of them.
pub(super) fn padded(values: &[f64], vectors: ArrayView2<f64>, k: usize) -> EigenPairs {
    let mut all = Array2::zeros((vectors.nrows(), k));
    all.slice_mut(s![.., ..values.len()]).assign(&vectors);
    (values.iter().copied().chain(std::iter::repeat(0.0)).take(k).collect(), all)
}
