//! NeuralEF: eigenfunctions one after the other, each kept apart from those before it by the operator itself.

use super::Functions;
use super::objective::{Objective, State, Step};
use crate::Result;
use crate::compute::{Small, Store, Tensor, small};

/// Maximises `R_jj − Σ_{i<j} R_ij²/R_ii` over each normalised `ψ_j`, the earlier ones held fixed:
///
/// `∂ℓ/∂ψ_j = −(2/m) K(ψ_j − Σ_{i<j} (R_ij/R_ii) ψ_i)`.
///
/// The coefficients `R_ij/R_ii` are those of the batch, as published, or of moving averages of R.
///
/// Published penalties count what two earlier functions share twice. On a batch all functions share some of the first one: a
/// mean of 1/√B, which weighs `μ_1/B`, and that is more than `μ_j` where the first eigenvalue dominates. [`NeuralEf::joint`]
/// takes all penalties of a function together: `R_jj − r_jᵀR⁻¹r_j`, with `r_j` and R those of the functions before it. Where
/// these are apart already, as eigenfunctions are, the two are the same.
pub struct NeuralEf {
    coefficients: Coefficients,
    /// `g = −(2/m) M Kψ`: one on the diagonal, minus the coefficients below it; `[k, k]`.
    m: Small,
    loss: Small,
    g: Tensor,
}

/// Where the factors of the earlier functions come from.
enum Coefficients {
    /// `R_ij/R_ii` of the batch.
    Batch,
    /// `R_ij/R_ii` of a moving average of R.
    Averaged(small::Average),
    /// `R⁻¹r_j` of the batch.
    Joint,
}

/// `R_ii` below this share of the largest is numerically zero in single precision; nothing is divided by it.
const TINY: f64 = 1e-6;
/// Share of the old value that the moving average keeps at each step.
const DECAY: f64 = 0.9;

impl NeuralEf {
    /// With the batch's own coefficients, or (`averaged`) moving averages over ten steps.
    pub fn new(functions: &Functions, averaged: bool) -> Result<Self> {
        let k = functions.count();
        let average = averaged.then(|| small::Average::new(functions.device(), DECAY, [k, k])).transpose()?;
        NeuralEf::with(functions, average.map_or(Coefficients::Batch, Coefficients::Averaged))
    }

    /// With `R⁻¹r_j` of the batch: each function is kept apart from all those before it together.
    pub fn joint(functions: &Functions) -> Result<Self> {
        NeuralEf::with(functions, Coefficients::Joint)
    }

    fn with(functions: &Functions, coefficients: Coefficients) -> Result<Self> {
        let (device, k) = (functions.device(), functions.count());
        let (m, loss) = (Small::zeros(device, [k, k])?, Small::zeros(device, [1, 1])?);
        Ok(NeuralEf { coefficients, m, loss, g: Tensor::zeros(device, &[0])? })
    }
}

impl Objective for NeuralEf {
    fn name(&self) -> &'static str {
        "neuralef"
    }

    fn describe(&self) -> String {
        match &self.coefficients {
            Coefficients::Batch => "neuralef (decay None)".into(),
            Coefficients::Averaged(average) => format!("neuralef (decay {:?})", Some(average.decay())),
            Coefficients::Joint => "neuralef (joint)".into(),
        }
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<()> {
        match &mut self.coefficients {
            Coefficients::Batch => small::quotients(step.r, TINY, &mut self.m),
            Coefficients::Averaged(average) => {
                average.update(step.r, step.control);
                small::quotients(average.value(), TINY, &mut self.m);
            }
            Coefficients::Joint => small::inverse_unit_lower(step.r, TINY, &mut self.m)?,
        }
        let factor = -2.0 / step.points() as f64;
        small::mix(self.m.times(factor), step.kpsi, step.all(), Store::Replace, &mut self.g)?;
        step.backward(&mut self.g)?;
        // ℓ = −Σ_j (R_jj − Σ_{i<j} c_ij R_ij), c the factors of the earlier functions.
        small::inner(self.m.times(-1.0), step.r.t(), Store::Replace, &mut self.loss);
        step.control.record(&self.loss, step.unbiased.diagonal());
        Ok(())
    }

    fn state(&mut self) -> Vec<(&'static str, State<'_>)> {
        match &mut self.coefficients {
            Coefficients::Averaged(average) => vec![("neuralef.r", State::Average(average))],
            Coefficients::Batch | Coefficients::Joint => vec![],
        }
    }
}
