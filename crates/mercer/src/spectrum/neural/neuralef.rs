//! NeuralEF: eigenfunctions one after the other, each kept apart from those before it by the operator itself.

use super::OnDevice;
use super::objective::{MovingAverage, Objective, Outcome, Step, mix};
use crate::Result;
use crate::compute::{Store, Tensor};
use crate::model::Bundle;
use ndarray::Array2;

/// Maximises `R_jj − Σ_{i<j} R_ij²/R_ii` over each normalised `ψ_j`, the earlier ones held fixed:
///
/// `∂ℓ/∂ψ_j = −(2/m) K(ψ_j − Σ_{i<j} (R_ij/R_ii) ψ_i)`.
///
/// The coefficients `R_ij/R_ii` are those of the batch, as published, or of moving averages of R.
pub struct NeuralEf {
    average: Option<MovingAverage>,
    g: Option<Tensor>,
}

/// `R_ii` below this share of the largest is not told from zero in single precision; nothing is divided by it.
pub(super) const TINY: f64 = 1e-6;

impl NeuralEf {
    /// With the batch's own coefficients, or (`averaged`) moving averages over ten steps.
    pub fn new(averaged: bool) -> Self {
        NeuralEf { average: averaged.then(|| MovingAverage::new(0.9)), g: None }
    }
}

/// `M` with `g = M Kψ`: one on the diagonal, `−R_ij/R_ii` at `(j, i)` below it; nothing where `R_ii` vanishes.
pub(super) fn gram_schmidt(r: &Array2<f64>) -> Array2<f64> {
    let largest = r.diag().iter().fold(0.0f64, |a, b| a.max(*b));
    Array2::from_shape_fn(r.dim(), |(j, i)| match i.cmp(&j) {
        std::cmp::Ordering::Equal => 1.0,
        std::cmp::Ordering::Less if r[[i, i]] > TINY * largest => -r[[i, j]] / r[[i, i]],
        _ => 0.0,
    })
}

impl Objective for NeuralEf {
    fn name(&self) -> &'static str {
        "neuralef"
    }

    fn describe(&self) -> String {
        format!("neuralef (decay {:?})", self.average.as_ref().map(|a| a.decay))
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<Outcome> {
        let r = self.average.as_mut().map_or(step.r, |average| average.update(step.r));
        let coefficients = gram_schmidt(r);
        let mut g = match self.g.take() {
            Some(g) => g,
            None => Tensor::zeros(step.psi.device(), &[0])?,
        };
        mix(&(&coefficients * (-2.0 / step.points() as f64)), step.kpsi, Store::Replace, &mut g)?;
        step.backward(&g)?;
        self.g = Some(g);
        // ℓ = −Σ_j (R_jj − Σ_{i<j} (R_ij/R_ii) R_ij)
        let loss = -(&coefficients * &step.r.t()).sum();
        Ok(Outcome { loss, eigenvalues: step.unbiased.diag().to_vec() })
    }

    fn on_device(&mut self) -> Option<OnDevice<'_>> {
        Some(OnDevice::NeuralEf { averaged: self.average.as_mut().map(|average| (average.decay, &mut average.value)) })
    }

    fn save(&self, bundle: &mut Bundle) {
        if let Some(average) = &self.average {
            average.save("neuralef.r", bundle);
        }
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        self.average.as_mut().map_or(Ok(()), |average| average.load("neuralef.r", bundle))
    }
}
