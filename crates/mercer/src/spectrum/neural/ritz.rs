//! Ritz: the last layer is solved, not trained.

use super::objective::{Objective, Own, Step};
use super::{Functions, Recipe};
use crate::compute::{Device, Small, Store, Tensor, small};
use crate::rng::Rng;
use crate::{Result, fail_if};

/// Maximises the trace that the span of the hidden units captures: `Σ_{j≤k} μ_j` with `Π a = μ Σ a`,
/// `Σ = ⟨φ,φᵀ⟩`, `Π = ⟨φ,Kφᵀ⟩`, `aᵀΣa = 1`. For the top k pairs of the batch,
///
/// `∂ℓ/∂φ = −(2/m) Σ_j a_j (a_jᵀKφ − μ_j a_jᵀφ)`. Example: [`Neural`](super::Neural) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ritz;

struct Run {
    /// μ `[1, k]` and A `[p, k]` of the batch.
    values: Small,
    vectors: Small,
    /// `A Aᵀ` and `A diag(μ) Aᵀ` `[p, p]`.
    factors: [Small; 2],
    loss: Small,
    g: Tensor,
}

/// Directions of Σ below this share of the largest are left out of the batch's problem: so few points cannot tell them
/// from noise, and the gradient would be divided by them.
const FLOOR: f64 = 1e-6;

impl Recipe for Ritz {
    fn name(&self) -> &'static str {
        "ritz"
    }

    fn about(&self) -> &'static str {
        "a trained trunk whose last layer is solved for; 0 steps are random features"
    }

    fn solves_last_layer(&self) -> bool {
        true
    }

    fn functions(&self, architecture: &str, d: usize, k: usize, device: Device, rng: &Rng) -> Result<Functions> {
        let functions = Functions::hidden_units(architecture, d, device, rng)?;
        fail_if!(
            functions.count() < k,
            "{} hidden units cannot give k = {k} functions; widen the last hidden layer of \"{architecture}\"",
            functions.count()
        );
        Ok(functions)
    }

    fn objective(&self, functions: &Functions, k: usize) -> Result<Box<dyn Objective>> {
        let (device, p) = (functions.device(), functions.count());
        let zeros = |shape| Small::zeros(device, shape);
        Ok(Box::new(Run {
            values: zeros([1, k])?,
            vectors: zeros([p, k])?,
            factors: [zeros([p, p])?, zeros([p, p])?],
            loss: zeros([1, 1])?,
            g: Tensor::zeros(device, &[0])?,
        }))
    }
}

impl Objective for Run {
    fn describe(&self) -> String {
        "ritz".into()
    }

    fn eigenvalues(&self, _: usize) -> usize {
        self.values.shape()[1]
    }

    fn own(&self) -> Own {
        Own::Span
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let Run { values, vectors, factors: [image, own], loss, g } = self;
        small::top_pairs(step.covariance, step.r, FLOOR, step.control, values, vectors)?;
        // g = −(2/m) (A Aᵀ Kφ − A diag(μ) Aᵀ φ)
        let factor = -2.0 / step.points() as f64;
        small::gram(vectors, None, image)?;
        small::gram(vectors, Some(values.row(0)), own)?;
        small::mix(image.times(factor), step.kpsi, step.all(), Store::Replace, g)?;
        small::mix(own.times(-factor), step.psi, step.all(), Store::Add, g)?;
        step.backward(g)?;
        small::sum(-1.0, values.row(0), Store::Replace, loss);
        step.control.record(loss, values.row(0));
        Ok(())
    }
}
