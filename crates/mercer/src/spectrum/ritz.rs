use crate::Result;
use crate::linalg::{eigh, matmul};
use ndarray::{Array2, ArrayView2, Axis, s};

/// Rayleigh–Ritz: the best eigenpairs within the span of features. Solves `Π a = μ Σ a` with `Σ = ΦᵀΦ/n`,
/// `Π = Φᵀ(KΦ)/n²` for features at n points `Φ` `[n, p]` and their image under the operator `KΦ` `[n, p]`.
///
/// Returns at most `k` pairs, `μ` descending and `A` `[p, ·]`, such that `ψ = ΦA` has `ψᵀψ/n = I`. Directions in which
/// the features depend on each other are dropped, so there are fewer pairs than `k` where the span has fewer dimensions.
///
/// ```
/// use ndarray::array;
/// // Φ spans the whole space, so the pairs of K/n are found exactly.
/// let k = array![[2.0, 1.0], [1.0, 2.0]];
/// let phi = array![[1.0, 3.0], [0.0, 1.0]];
/// let (mu, _) = mercer::spectrum::rayleigh_ritz(phi.view(), k.dot(&phi).view(), 2)?;
/// assert!((mu[0] - 1.5).abs() < 1e-12 && (mu[1] - 0.5).abs() < 1e-12);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn rayleigh_ritz(phi: ArrayView2<f64>, k_phi: ArrayView2<f64>, k: usize) -> Result<(Vec<f64>, Array2<f64>)> {
    let n = phi.nrows() as f64;
    let sigma = matmul(phi.t(), phi) / n;
    let pi = matmul(phi.t(), k_phi) / (n * n);
    generalised_eigenpairs(sigma.view(), pi.view(), k)
}

/// `Π a = μ Σ a` for symmetric `Π` and positive semi-definite `Σ` `[p, p]`: `Σ = UΛUᵀ` is whitened by
/// `W = UΛ^{−1/2}` over its numerically positive part, and `WᵀΠW` is diagonalised.
pub fn generalised_eigenpairs(
    sigma: ArrayView2<f64>,
    pi: ArrayView2<f64>,
    k: usize,
) -> Result<(Vec<f64>, Array2<f64>)> {
    // Features of very different size are first brought to unit norm, so that the threshold compares directions, not units.
    let scale = sigma.diag().mapv(|s| if s > 0.0 { 1.0 / s.sqrt() } else { 0.0 });
    let unit = |m: ArrayView2<f64>| (&m * &scale) * scale.view().insert_axis(Axis(1));
    let (λ, u) = eigh(unit(sigma).view())?;
    let rank = λ.iter().take_while(|&&l| l > 1e-12 * λ[0]).count();
    let mut w = u.slice(s![.., ..rank]).to_owned();
    for (mut column, l) in w.axis_iter_mut(Axis(1)).zip(&λ) {
        column /= l.sqrt();
    }
    let projected = matmul(w.t(), matmul(unit(pi).view(), w.view()).view());
    let symmetric = (&projected + &projected.t()) * 0.5;
    let (μ, v) = eigh(symmetric.view())?;
    let k = k.min(rank);
    let a = matmul(w.view(), v.slice(s![.., ..k])) * scale.insert_axis(Axis(1));
    Ok((μ[..k].to_vec(), a))
}
