//! Eigenproblems.

use super::{Small, Vector};
use crate::Result;
use crate::compute::control::{Control, NonFinite};
use crate::compute::cuda::small as cuda;
use crate::dense::{self, matmul};
use ndarray::{Array1, Array2, Axis, s};

/// Eigenvalues `[1, p]` in descending order and the eigenvectors as columns `[p, p]`, of symmetric `A` `[p, p]` (its lower
/// half is read). Where there are none, [`NonFinite::Problem`] is noted.
pub fn eigh(a: &Small, control: &mut Control, values: &mut Small, vectors: &mut Small) -> Result<()> {
    let p = a.order();
    values.expect([1, p]);
    vectors.expect([p, p]);
    if let Some(gpu) = values.gpu() {
        let wanted = cuda::Wanted { top: p, error: 1e-15 };
        return cuda::eigenpairs(gpu, p, wanted, a.address(), control, values.address(), vectors.address());
    }
    if control.failed() {
        return Ok(());
    }
    match dense::eigh(a.host().view()) {
        Ok((λ, u)) if λ.iter().all(|λ| λ.is_finite()) => {
            values.set(Array1::from(λ).insert_axis(Axis(0)));
            vectors.set(u);
        }
        _ => control.note(NonFinite::Problem),
    }
    Ok(())
}

/// The k largest `μ` `[1, k]` of `Π a = μ Σ a` and their vectors as the columns of `A` `[p, k]` with `AᵀΣA = I`, within the
/// directions of Σ above `floor` times its largest eigenvalue; zero for those that are missing. Σ, Π symmetric `[p, p]`.
/// Where the problem has no solution, [`NonFinite::Problem`] is noted.
pub fn top_pairs(
    sigma: &Small,
    pi: &Small,
    floor: f64,
    control: &mut Control,
    values: &mut Small,
    vectors: &mut Small,
) -> Result<()> {
    let (p, k) = (sigma.order(), values.shape()[1]);
    pi.expect([p, p]);
    values.expect([1, k]);
    vectors.expect([p, k]);
    assert!(k <= p, "{k} pairs of a problem of order {p}");
    if let Some(gpu) = values.gpu() {
        return cuda::top_pairs(gpu, sigma, pi, floor, control, values, vectors);
    }
    if control.failed() {
        return Ok(());
    }
    match host_pairs(sigma.host(), pi.host(), k, floor) {
        Ok((μ, a)) => {
            let (mut row, mut columns) = (Array2::zeros((1, k)), Array2::zeros((p, k)));
            row.slice_mut(s![0, ..μ.len()]).assign(&Array1::from(μ));
            columns.slice_mut(s![.., ..a.ncols()]).assign(&a);
            values.set(row);
            vectors.set(columns);
        }
        Err(_) => control.note(NonFinite::Problem),
    }
    Ok(())
}

/// `W = U Λ^(−1/2)` over the kept directions of `Σ = UΛUᵀ`, then `WᵀΠW = VMVᵀ` and `A = WV`.
fn host_pairs(sigma: &Array2<f64>, pi: &Array2<f64>, k: usize, floor: f64) -> Result<(Vec<f64>, Array2<f64>)> {
    let (λ, u) = dense::eigh(sigma.view())?;
    let rank = λ.iter().take_while(|&&l| l > floor * λ[0] && l > 0.0).count();
    let mut w = u.slice(s![.., ..rank]).to_owned();
    for (mut column, l) in w.axis_iter_mut(Axis(1)).zip(&λ) {
        column /= l.sqrt();
    }
    let t = matmul(w.t(), matmul(pi.view(), w.view()).view());
    let (μ, v) = dense::eigh(((&t + &t.t()) * 0.5).view())?;
    let k = k.min(rank);
    Ok((μ[..k].to_vec(), matmul(w.view(), v.slice(s![.., ..k]))))
}

/// `out ← A diag(w) Aᵀ` `[p, p]`, without `w` `A Aᵀ`; `A` `[p, k]`, `w` `[k]`.
pub fn gram(a: &Small, weights: Option<Vector<'_>>, out: &mut Small) -> Result<()> {
    let [p, k] = a.shape();
    out.expect([p, p]);
    assert!(weights.is_none_or(|w| w.len == k), "weights do not fit a matrix of {k} columns");
    if let Some(gpu) = out.gpu() {
        return cuda::gram(gpu, a, weights, out);
    }
    let a = a.host();
    let weighted = weights.map(|w| a * &w.host());
    out.set(matmul(weighted.as_ref().unwrap_or(a).view(), a.t()));
    Ok(())
}
