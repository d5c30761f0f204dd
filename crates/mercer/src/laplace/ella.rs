//! ELLA: the NTK's Nyström approximation from few rows.

use super::Structure;
use super::cost::{Sizes, Work};
use super::fit::{Fit, Rows};
use super::functions::{Basis, Functions};
use super::method::{FUNCTIONS, Method, POSTERIOR, Recipe};
use super::passes::{Passes, square};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::linalg::eigh;
use crate::options::{Opt, Options};
use crate::rng::Rng;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Few functions by the NTK's Nyström approximation. Example: [the module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ella {
    /// Pairs of a row and an output that the kernel is computed at.
    pub samples: usize,
    /// Functions.
    pub rank: usize,
}

impl Default for Ella {
    fn default() -> Self {
        Ella { samples: 1000, rank: 20 }
    }
}

impl Recipe for Ella {
    fn name(&self) -> &'static str {
        "ella"
    }

    fn about(&self) -> &'static str {
        "few functions by the Nyström approximation of the NTK"
    }

    fn options(&self) -> Vec<&'static Opt> {
        [&[&FUNCTIONS][..], &POSTERIOR].concat()
    }

    fn with_options(&self, o: &mut Options) -> Result<Option<Method>> {
        Ok(o.take(&FUNCTIONS)?.map(|rank| Ella { rank, ..*self }.into()))
    }

    fn instead(&self) -> &'static str {
        "use fewer functions or rows, or last-layer-kfac"
    }

    fn work(&self, sizes: &Sizes) -> Result<Work> {
        let &Sizes { n, c, p, pass, dense, .. } = sizes;
        let (m, k) = ((self.samples as f64).min(n), self.rank as f64);
        // Back from every output, or forward along every function, whichever are fewer.
        let along = match c <= k {
            true => sizes.backward() + k * p * if dense { 1.0 } else { c },
            false => (1.0 + 2.0 * k) * pass,
        };
        let fit = sizes.kernel(m, 1.0) + 10.0 * m.powi(3) + m * (3.0 * pass + k * p) + n * along;
        Ok(Work { bytes: 12.0 * k * p + 32.0 * m * m + 8.0 * n * c * k, fit, predict: along + c * k * k })
    }

    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit> {
        fit(self.samples, self.rank, rows.passes, rows.x, context).map(Fit::of)
    }

    fn unpack(&self, bundle: &Bundle, network: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        let v = bundle.matrix("directions")?;
        fail_if!(
            v.ncols() != network.network.parameters(),
            "its parts do not fit together: the directions are of another network"
        );
        Ok(Some(Arc::new(Functions::unpack(bundle, Basis::Directions(v.mapv(|v| v as f32)))?)))
    }
}

/// The posterior over k functions `Ψ(x) = J(x)V`, `V = J_Mᵀ U diag(λ)^{−1/2}`, from the k largest eigenpairs λ, U of `J_M J_Mᵀ` at M pairs of a
/// row and an output drawn at random. With `J J'ᵀ ≈ ΨΨ'ᵀ`, only `[k, k]` matrices are left.
fn fit(
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
