//! ELLA: the NTK's Nyström approximation from few rows.

use super::functions::{Basis, Functions};
use super::passes::{Passes, square};
use crate::linalg::eigh;
use crate::rng::Rng;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

/// The posterior over k functions `Ψ(x) = J(x)V`, `V = J_Mᵀ U diag(λ)^{−1/2}`, from the k largest eigenpairs λ, U of `J_M J_Mᵀ` at M pairs of a
/// row and an output drawn at random. With `J J'ᵀ ≈ ΨΨ'ᵀ`, only `[k, k]` matrices are left.
pub(super) fn fit(
    samples: usize,
    rank: usize,
    passes: &Passes,
    x: ArrayView2<f64>,
    context: &FitContext,
) -> Result<(Functions, Array2<f64>)> {
    let (c, p) = (passes.outputs(), passes.classifier.network.parameters());
    let samples = samples.min(x.nrows());
    let rank = rank.min(samples);
    fail_if!(rank == 0, "at least one function is needed");
    context.budget.require(
        format!("{rank} directions of {p} parameters and a kernel of {samples} samples"),
        (rank as u64).saturating_mul(p as u64).saturating_mul(12).saturating_add(32 * (samples * samples) as u64),
        "use fewer functions or samples",
    )?;
    let mut rng = Rng::new(context.seed).fork(0x656c_6c61);
    let rows = rng.sample(x.nrows(), samples);
    let picked: Vec<usize> = rows.iter().map(|_| rng.below(c)).collect();
    let chosen = x.select(Axis(0), &rows);
    let units = Array2::from_shape_fn((samples, c), |(m, output)| f32::from(u8::from(picked[m] == output)));
    let kernel = passes.ntk()?.contracted(&passes.points(chosen.view())?, units.view())?.mapv(f64::from);
    let (values, u) = eigh(context.device, kernel.view())?;
    // What rounding in single precision leaves is no direction.
    let kept = values.iter().take(rank).take_while(|λ| **λ > 1e-6 * values[0] && **λ > 0.0).count();
    fail_if!(kept == 0, "the derivatives of the network are zero at the rows that were drawn");
    context.progress.step("ELLA", 0, 1, "directions");
    let roots = Array1::from_iter(values.iter().take(kept).map(|λ| λ.sqrt()));
    let directions = passes.combined(chosen.view(), &picked, (&u.slice(s![.., ..kept]) / &roots).view())?;
    Functions::fit(Basis::Directions(directions), square(&passes.trained()?), passes, x, context)
}
