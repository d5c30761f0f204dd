//! Neural Eigenmap: all functions from one network, kept apart by a penalty on what the operator sees of two of them.

use super::objective::{Masked, Objective, Own, Step};
use super::{Functions, Recipe};
use crate::compute::{Store, small};
use crate::{Result, fail_if};

/// Minimises `ℓ = Σ_j (−R_jj + a Σ_{i<j} R_ij²)` over normalised functions, where `ψ_i` is held fixed in the terms of every
/// `ψ_j` after it. So `ψ_j` follows
///
/// `∂ℓ/∂ψ_j = −(2/m) K(ψ_j − a Σ_{i<j} R_ij ψ_i)`,
///
/// and the functions come in the order of their eigenvalues. Unordered, nothing is held fixed: the sum runs over all `i ≠ j`, and
/// the functions find the span alone.
///
/// The published loss, `[−2 Σψ¹ψ² + α(Σ triu((sg ψ²)ᵀψ¹)² + mirrored)]/k` of columns of squared norm t, is this one times `2t/k`
/// with `a = αt`, but for R, which is symmetric here: the two views of a pair have the same law. An earlier function `ψ_i` is
/// taken away for good where `a ≥ 1/μ_i`; [`NeuralEf`](super::NeuralEf) has that for any eigenvalue.
///
/// ```
/// use mercer::spectrum::neural::{Eigenmap, PairObjective};
/// let unordered = PairObjective::from(Eigenmap { ordered: false, ..Eigenmap::default() });
/// assert_eq!(unordered.name(), "eigenmap");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eigenmap {
    /// a; without it `205/k`, which is the published `αt` at k = 2048, 4096 and 8192, but at most 2: a batch
    /// of B pairs adds noise of `a/√B` to what is taken away.
    pub penalty: Option<f64>,
    /// Whether earlier functions are held fixed.
    pub ordered: bool,
}

/// `αt k` of the published settings, and the largest penalty that follows from it.
const PUBLISHED: f64 = 205.0;
const LARGEST: f64 = 2.0;

impl Default for Eigenmap {
    fn default() -> Self {
        Eigenmap { penalty: None, ordered: true }
    }
}

struct Run {
    penalty: f64,
    ordered: bool,
    /// a where i < j (row j), or where i ≠ j, and zero elsewhere.
    work: Masked,
}

impl Recipe for Eigenmap {
    fn name(&self) -> &'static str {
        "eigenmap"
    }

    fn about(&self) -> &'static str {
        "functions in the order of their eigenvalues, kept apart by a penalty"
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let penalty = self.penalty.unwrap_or((PUBLISHED / functions.count() as f64).min(LARGEST));
        fail_if!(!(penalty >= 0.0 && penalty.is_finite()), "the penalty of the eigenmap must be from 0, got {penalty}");
        let counts = |(j, i): (usize, usize)| if self.ordered { i < j } else { i != j };
        let work = Masked::new(functions, |at| if counts(at) { penalty } else { 0.0 })?;
        Ok(Box::new(Run { penalty, ordered: self.ordered, work }))
    }
}

impl Objective for Run {
    fn describe(&self) -> String {
        format!("eigenmap (penalty {}, {})", self.penalty, if self.ordered { "ordered" } else { "unordered" })
    }

    fn own(&self) -> Own {
        if self.ordered { Own::Networks } else { Own::Span }
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let (Masked { identity, mask, masked, loss, g }, ordered) = (&mut self.work, self.ordered);
        let factor = 2.0 / step.points() as f64;
        small::multiply(mask, step.r, masked);
        small::mix(identity.times(-factor), step.kpsi, step.all(), Store::Replace, g)?;
        small::mix(masked.times(factor), step.kpsi, step.all(), Store::Add, g)?;
        step.backward(g)?;
        small::sum(-1.0, step.r.diagonal(), Store::Replace, loss);
        // Unordered, every pair i < j is in the mask twice.
        small::inner(masked.times(if ordered { 1.0 } else { 0.5 }), step.r, Store::Add, loss);
        step.control.record(loss, step.unbiased.diagonal());
        Ok(())
    }
}
