//! The spectral contrastive loss: the best approximation of the operator by k functions, in no order.

use super::objective::Objective;
use super::{Functions, Nested, Nesting, Recipe};
use crate::Result;

/// Minimises `−2 Σ_l ⟨f_l,Kf_l⟩ + Σ_lm Λ_lm Λ'_lm` with `Λ = ⟨f,fᵀ⟩`, the best approximation of rank k: [`Nested`] without its
/// nesting. Λ and Λ' come from two halves of the pairs, so that no view is a negative of its own partner.
/// Example: [`PairObjective`](super::PairObjective) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpectralContrastive;

impl Recipe for SpectralContrastive {
    fn name(&self) -> &'static str {
        "spectral-contrastive"
    }

    fn about(&self) -> &'static str {
        "the best approximation of the kernel by k functions, in no order"
    }

    fn normalises(&self) -> bool {
        false
    }

    fn objective(&self, functions: &Functions, k: usize) -> Result<Box<dyn Objective>> {
        Nested { nesting: Some(Nesting::Flat) }.objective(functions, k)
    }
}
