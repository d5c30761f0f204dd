//! VICReg: views alike, deviations of at least one, no correlation between functions.

use super::objective::{Objective, Own, Step};
use super::{Functions, Recipe};
use crate::compute::{Small, Store, Tensor, small};
use crate::{Result, fail_if};
use ndarray::Array2;

/// Minimises `ℓ = (1/k) (λ Σ_i 2(C_ii − R_ii) + μ Σ_i max(0, 1 − √(C_ii + ε)) + 2ν Σ_{i≠j} C_ij²)` over functions of mean zero on
/// the batch, with `C = ⟨ψ,ψᵀ⟩`: the mean squared difference between views, deviations below one, covariances.
///
/// `∂ℓ/∂ψ = (2/m) (∂ℓ/∂R Kψ + ∂ℓ/∂C ψ)`. The covariance is that of both views together; published, each view has its own, hence
/// the 2. Example: [`PairObjective`](super::PairObjective) takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VicReg {
    /// λ
    pub invariance: f64,
    /// μ
    pub variance: f64,
    /// ν
    pub covariance: f64,
}

impl Default for VicReg {
    fn default() -> Self {
        VicReg { invariance: 25.0, variance: 25.0, covariance: 1.0 }
    }
}

/// ε
const EPSILON: f64 = 1e-4;

struct Run {
    recipe: VicReg,
    identity: Small,
    /// One off the diagonal, `[k, k]`.
    mask: Small,
    /// C off the diagonal.
    off: Small,
    /// `max(0, 1 − √(C_ii + ε))` `[1, k]`, and its slope `[k, k]`.
    hinge: [Small; 2],
    loss: Small,
    /// `[1, k]`
    eigenvalues: Small,
    g: Tensor,
}

impl Recipe for VicReg {
    fn name(&self) -> &'static str {
        "vicreg"
    }

    fn about(&self) -> &'static str {
        "views alike, deviations of at least one, no covariance between functions"
    }

    fn normalises(&self) -> bool {
        false
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let (device, k) = (functions.device(), functions.count());
        for weight in [self.invariance, self.variance, self.covariance] {
            fail_if!(!(weight >= 0.0 && weight.is_finite()), "the weights of VICReg must be from 0, got {weight}");
        }
        let mask = Array2::from_shape_fn((k, k), |(i, j)| f64::from(u8::from(i != j)));
        let square = || Small::zeros(device, [k, k]);
        Ok(Box::new(Run {
            recipe: *self,
            identity: Small::identity(device, k)?,
            mask: Small::from_host(device, &mask)?,
            off: square()?,
            hinge: [Small::zeros(device, [1, k])?, square()?],
            loss: Small::zeros(device, [1, 1])?,
            eigenvalues: Small::zeros(device, [1, k])?,
            g: Tensor::zeros(device, &[0])?,
        }))
    }
}

impl Objective for Run {
    fn describe(&self) -> String {
        let VicReg { invariance, variance, covariance } = self.recipe;
        format!("vicreg (weights {invariance}, {variance}, {covariance})")
    }

    fn own(&self) -> Own {
        Own::Span
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let Run { recipe, identity, mask, off, hinge: [value, slope], loss, eigenvalues, g } = self;
        let (k, all) = (identity.shape()[0] as f64, step.all());
        let [λ, μ, ν] = [2.0 * recipe.invariance, recipe.variance, 2.0 * recipe.covariance].map(|weight| weight / k);
        small::multiply(mask, step.covariance, off);
        small::hinge(step.covariance.diagonal(), EPSILON, value, slope);
        let factor = 2.0 / step.points() as f64;
        small::mix(identity.times(-factor * λ), step.kpsi, all.clone(), Store::Replace, g)?;
        small::mix(identity.times(factor * λ), step.psi, all.clone(), Store::Add, g)?;
        small::mix(slope.times(factor * μ), step.psi, all.clone(), Store::Add, g)?;
        small::mix(off.times(2.0 * factor * ν), step.psi, all, Store::Add, g)?;
        step.backward(g)?;
        small::sum(λ, step.covariance.diagonal(), Store::Replace, loss);
        small::sum(-λ, step.r.diagonal(), Store::Add, loss);
        small::sum(μ, value.row(0), Store::Add, loss);
        small::inner(off.times(ν), &*off, Store::Add, loss);
        small::divide(step.unbiased.diagonal(), step.covariance.diagonal(), eigenvalues);
        step.control.record(loss, eigenvalues.row(0));
        Ok(())
    }
}
