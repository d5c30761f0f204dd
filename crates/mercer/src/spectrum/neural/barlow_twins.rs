//! Barlow Twins: the correlation of the functions between the views of a pair, brought to the identity.

use super::objective::{Masked, Objective, Own, Step};
use super::{Functions, Recipe};
use crate::compute::{Store, small};
use crate::{Result, fail_if};

/// Minimises `ℓ = Σ_i (1 − R_ii)² + λ Σ_{i≠j} R_ij²` over functions of mean zero and norm one on the batch, for which R is the
/// correlation between the views of a pair:
///
/// `∂ℓ/∂ψ_i = (4/m) K(−(1 − R_ii) ψ_i + λ Σ_{j≠i} R_ij ψ_j)`.
///
/// The mean, the norm and R are those of both views together; published, each view has its own. The two have the same law.
/// Example: [`PairObjective`](super::PairObjective) takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BarlowTwins {
    /// λ
    pub redundancy: f64,
}

impl Default for BarlowTwins {
    fn default() -> Self {
        BarlowTwins { redundancy: 0.005 }
    }
}

struct Run {
    redundancy: f64,
    /// One on the diagonal, λ elsewhere.
    work: Masked,
}

impl Recipe for BarlowTwins {
    fn name(&self) -> &'static str {
        "barlow-twins"
    }

    fn about(&self) -> &'static str {
        "the correlation of the functions between views, brought to the identity"
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let λ = self.redundancy;
        fail_if!(!(λ >= 0.0 && λ.is_finite()), "the weight of Barlow Twins' redundancy must be from 0, got {λ}");
        let work = Masked::new(functions, |(i, j)| if i == j { 1.0 } else { λ })?;
        Ok(Box::new(Run { redundancy: λ, work }))
    }
}

impl Objective for Run {
    fn describe(&self) -> String {
        format!("barlow-twins (redundancy {})", self.redundancy)
    }

    fn own(&self) -> Own {
        Own::Span
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let Masked { identity, mask, masked, loss, g } = &mut self.work;
        let factor = 4.0 / step.points() as f64;
        small::multiply(mask, step.r, masked);
        small::mix(masked.times(factor), step.kpsi, step.all(), Store::Replace, g)?;
        small::mix(identity.times(-factor), step.kpsi, step.all(), Store::Add, g)?;
        step.backward(g)?;
        // Σ mask R² − 2 Σ R_ii + k
        small::inner(&*masked, step.r, Store::Replace, loss);
        small::sum(-2.0, step.r.diagonal(), Store::Add, loss);
        small::sum(1.0, identity.diagonal(), Store::Add, loss);
        step.control.record(loss, step.unbiased.diagonal());
        Ok(())
    }
}
