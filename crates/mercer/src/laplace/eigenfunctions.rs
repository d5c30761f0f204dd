//! Eigenfunctions of the network's NTK that cost no more than a forward pass.

use super::Structure;
use super::cost::{self, Sizes, Work};
use super::fit::{Fit, Rows};
use super::functions::{Basis, Functions};
use super::method::{FUNCTIONS, Method, POSTERIOR, Recipe, Span};
use super::passes::{Hidden, Passes, square};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::compute::Tensor;
use crate::operator::DenseOperator;
use crate::options::{Caps, Opt, Options};
use crate::rng::Rng;
use crate::spectrum::rayleigh_ritz;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Eigenfunctions of the NTK, averaged over differences of outputs, in the span of the hidden units; of a network that is known by its
/// functions, the leading ones in their span. Example: [the module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Eigenfunctions {
    /// Functions, at most as many as there are hidden units, or functions of the network.
    #[serde(alias = "count")]
    pub functions: usize,
    /// Rows that the NTK is computed at.
    pub rows: usize,
}

impl Default for Eigenfunctions {
    fn default() -> Self {
        Eigenfunctions { functions: 64, rows: 1000 }
    }
}

impl Recipe for Eigenfunctions {
    fn name(&self) -> &'static str {
        "eigenfunctions"
    }

    fn about(&self) -> &'static str {
        "eigenfunctions of the NTK by the hidden units, or of the functions of a network of another program"
    }

    fn can(&self) -> Caps {
        Caps { networks: true, functions: true, numbers: true, classes: true, ..Caps::default() }
    }

    fn options(&self) -> Vec<&'static Opt> {
        [&[&FUNCTIONS][..], &POSTERIOR].concat()
    }

    fn with_options(&self, o: &mut Options) -> Result<Option<Method>> {
        Ok(o.take(&FUNCTIONS)?.map(|functions| Eigenfunctions { functions, ..*self }.into()))
    }

    fn instead(&self) -> &'static str {
        "use fewer functions or rows, or last-layer-kfac"
    }

    fn work(&self, sizes: &Sizes) -> Result<Work> {
        let &Sizes { n, c, pass, .. } = sizes;
        let (m, k) = ((self.rows as f64).min(n), self.functions as f64);
        let [bytes, algebra] = cost::functions(k * c);
        let units = sizes.sum(|[_, o]| o);
        let ritz = m * m * units + 10.0 * units.powi(3);
        let fit = sizes.kernel(m, c) + m * sizes.backward() + ritz + n * (pass + (c * k).powi(2) / 2.0) + algebra;
        Ok(Work { bytes: bytes + 20.0 * m * m + 8.0 * n * units, fit, predict: pass + units * k + c * k * k })
    }

    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit> {
        fit(self.functions, self.rows, rows.passes, rows.x, context).map(Fit::of)
    }

    fn unpack(&self, bundle: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(Some(Arc::new(Functions::unpack(bundle, Basis::Eigenfunctions(bundle.matrix("functions")?))?)))
    }

    fn span(&self) -> Option<Span> {
        Some(Span::Leading(self.functions))
    }
}

/// The posterior over `f(x)ᵀ ⊗ I_C` with `f_j = √μ_j ψ_j` for the k largest eigenpairs of the operator with the kernel κ, found by
/// Rayleigh–Ritz at some rows within the span of the hidden units: `κ(x,x') ≈ Σ_j f_j(x) f_j(x')`.
///
/// For a number κ is the NTK. For classes, whose probabilities depend on differences of logits only, it is the mean of the NTK Θ over these,
/// `κ = (tr Θ − 1ᵀΘ1/C)/(C − 1)`, and `Θ ≈ κ I_C` on them; what Θ has between different outputs beyond that is left out.
fn fit(
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
    let kernel = shared_kernel(passes, &passes.points(chosen.view())?)?;
    let (_, means) = passes.forward(chosen.view(), Hidden::Means)?;
    fail_if!(means.ncols() < 2, "the network has no hidden layer whose units could span eigenfunctions");
    let (μ, a) = rayleigh_ritz(means.view(), &DenseOperator::new(kernel), functions)?;
    let kept = μ.iter().take_while(|value| **value > 1e-7 * μ[0]).count();
    let scale = Array1::from_iter(μ[..kept].iter().map(|μ| μ.sqrt()));
    let a = a.slice(ndarray::s![.., ..kept]).to_owned() * &scale;
    Functions::fit(Basis::Eigenfunctions(a), square(&passes.trained()?), passes, x, context)
}

/// κ `[m, m]` at points `[m, d]` as the network takes them.
fn shared_kernel(passes: &Passes, points: &Tensor) -> Result<Array2<f64>> {
    let (ntk, c) = (passes.ntk()?, passes.outputs());
    let mean = ntk.mean(points, None, &(0..c).collect::<Vec<_>>())?.mapv(f64::from);
    if c == 1 {
        return Ok(mean);
    }
    let ones = Array2::ones((points.shape()[0], c));
    let common = ntk.contracted(points, ones.view())?.mapv(f64::from);
    let c = c as f64;
    Ok((mean * c - common / c) / (c - 1.0))
}
