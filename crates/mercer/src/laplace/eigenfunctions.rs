//! Eigenfunctions of the network's NTK that cost no more than a forward pass.

use super::functions::{Basis, Functions};
use super::passes::{Hidden, Passes, square};
use crate::operator::DenseOperator;
use crate::rng::Rng;
use crate::spectrum::rayleigh_ritz;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// The posterior over `f(x)ᵀ ⊗ I_C` with `f_j = √μ_j ψ_j` for the k largest eigenpairs of the operator with the kernel
/// `κ(x,x') = (1/C) Σ_c J_c(x)J_c(x')ᵀ`, found by Rayleigh–Ritz at some rows within the span of the hidden units: `κ ≈ Σ_j f_j f_j`,
/// and `JJ'ᵀ ≈ κ I_C`. What the NTK has between different outputs is left out.
pub(super) fn fit(
    functions: usize,
    points: usize,
    passes: &Passes,
    x: ArrayView2<f64>,
    context: &FitContext,
) -> Result<(Functions, Array2<f64>)> {
    fail_if!(functions == 0, "at least one eigenfunction is needed");
    let m = points.min(x.nrows());
    context.budget.require(
        format!("the NTK at {m} rows"),
        20u64.saturating_mul((m as u64).saturating_mul(m as u64)),
        "use fewer rows for the eigenfunctions",
    )?;
    let rows = Rng::new(context.seed).fork(0x6569_6765).sample(x.nrows(), m);
    let chosen = x.select(Axis(0), &rows);
    let all: Vec<usize> = (0..passes.outputs()).collect();
    let kernel = passes.ntk()?.mean(&passes.points(chosen.view())?, None, &all)?.mapv(f64::from);
    let (_, means) = passes.forward(chosen.view(), Hidden::Means)?;
    fail_if!(means.ncols() < 2, "the network has no hidden layer whose units could span eigenfunctions");
    let (μ, a) = rayleigh_ritz(means.view(), &DenseOperator::new(kernel), functions)?;
    let kept = μ.iter().take_while(|value| **value > 1e-7 * μ[0]).count();
    let scale = Array1::from_iter(μ[..kept].iter().map(|μ| μ.sqrt()));
    let a = a.slice(ndarray::s![.., ..kept]).to_owned() * &scale;
    Functions::fit(Basis::Eigenfunctions(a), square(&passes.trained()?), passes, x, context)
}
