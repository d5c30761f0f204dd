//! NeuralEF: eigenfunctions one after the other, each kept apart from those before it by the operator itself.

use super::entries::{NO_FINISH, PUBLISHED};
use super::objective::{Objective, Step};
use super::{Functions, Kind, Recipe};
use crate::Result;
use crate::compute::{Small, Store, Tensor, small};
use crate::options::{Opt, Options};

/// Maximises `R_jj − r_jᵀR⁻¹r_j` over each normalised `ψ_j`, the earlier ones held fixed, with `r_j` and R those of the
/// functions before it: what the operator has left when their span is taken away.
///
/// `∂ℓ/∂ψ_j = −(2/m) K(ψ_j − Σ_{i<j} (R⁻¹r_j)_i ψ_i)`.
///
/// The published penalties take the earlier functions away one by one, `R_jj − Σ_{i<j} R_ij²/R_ii`, and so count what two of
/// them share twice. On a batch all functions share some of the first one: a mean of 1/√B, which weighs `μ_1/B`, and that is
/// more than `μ_j` where the first eigenvalue dominates. Where the functions are apart already, as eigenfunctions are, the two
/// are the same. Example: [`Neural`](super::Neural) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NeuralEf {
    /// The coefficients are `R⁻¹r_j` of the batch: each function is kept apart from all those before it together.
    #[default]
    Joint,
    /// The coefficients are `R_ij/R_ii` of the batch, as published: from each of those before it by itself.
    Published,
}

impl Recipe for NeuralEf {
    fn name(&self) -> &'static str {
        "neuralef"
    }

    fn about(&self) -> &'static str {
        "trained networks, each orthogonal to those before it"
    }

    fn options(&self) -> Vec<&'static Opt> {
        vec![&NO_FINISH, &PUBLISHED]
    }

    fn with_options(&self, o: &mut Options) -> Result<Option<Kind>> {
        Ok(o.flag(&PUBLISHED)?.then_some(NeuralEf::Published.into()))
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let (device, k) = (functions.device(), functions.count());
        Ok(Box::new(Run {
            penalties: *self,
            m: Small::zeros(device, [k, k])?,
            loss: Small::zeros(device, [1, 1])?,
            g: Tensor::zeros(device, &[0])?,
        }))
    }
}

struct Run {
    penalties: NeuralEf,
    /// `g = −(2/m) M Kψ`: one on the diagonal, minus the coefficients below it; `[k, k]`.
    m: Small,
    loss: Small,
    g: Tensor,
}

/// `R_ii` below this share of the largest is numerically zero in single precision; nothing is divided by it.
const TINY: f64 = 1e-6;

impl Objective for Run {
    fn describe(&self) -> String {
        match self.penalties {
            NeuralEf::Joint => "neuralef (joint)".into(),
            NeuralEf::Published => "neuralef (published)".into(),
        }
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        match self.penalties {
            NeuralEf::Joint => small::inverse_unit_lower(step.r, TINY, &mut self.m)?,
            NeuralEf::Published => small::quotients(step.r, TINY, &mut self.m),
        }
        let factor = -2.0 / step.points() as f64;
        small::mix(self.m.times(factor), step.kpsi, step.all(), Store::Replace, &mut self.g)?;
        step.backward(&mut self.g)?;
        // ℓ = −Σ_j (R_jj − Σ_{i<j} c_ij R_ij), c the factors of the earlier functions.
        small::inner(self.m.times(-1.0), step.r.t(), Store::Replace, &mut self.loss);
        step.control.record(&self.loss, step.unbiased.diagonal());
        Ok(())
    }
}
