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
///
/// Published penalties count what two earlier functions share twice. On a batch all functions share some of the first one: a
/// mean of 1/√B, which weighs `μ_1/B`, and that is more than `μ_j` where the first eigenvalue dominates. [`NeuralEf::joint`]
/// takes all penalties of a function together: `R_jj − r_jᵀR⁻¹r_j`, with `r_j` and R those of the functions before it. Where
/// these are apart already, as eigenfunctions are, the two are the same.
pub struct NeuralEf {
    coefficients: Coefficients,
    g: Option<Tensor>,
}

/// Where the factors of the earlier functions come from.
enum Coefficients {
    /// `R_ij/R_ii` of the batch.
    Batch,
    /// `R_ij/R_ii` of a moving average of R.
    Averaged(MovingAverage),
    /// `R⁻¹r_j` of the batch.
    Joint,
}

/// `R_ii` below this share of the largest is not told from zero in single precision; nothing is divided by it.
pub(super) const TINY: f64 = 1e-6;

impl NeuralEf {
    /// With the batch's own coefficients, or (`averaged`) moving averages over ten steps.
    pub fn new(averaged: bool) -> Self {
        let average = averaged.then(|| MovingAverage::new(0.9));
        NeuralEf { coefficients: average.map_or(Coefficients::Batch, Coefficients::Averaged), g: None }
    }

    /// With `R⁻¹r_j` of the batch: each function is kept apart from all those before it together.
    pub fn joint() -> Self {
        NeuralEf { coefficients: Coefficients::Joint, g: None }
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

/// `M = L⁻¹` for `R = LDLᵀ`: one on the diagonal, `−R⁻¹r_j` in row j before it, with R and `r_j` those of the functions
/// before j; functions that add nothing to the earlier ones are left out.
fn elimination(r: &Array2<f64>) -> Array2<f64> {
    let k = r.nrows();
    let least = TINY * r.diag().iter().fold(0.0f64, |a, b| a.max(*b));
    let mut m = Array2::<f64>::eye(k);
    for i in 0..k {
        let (row, image) = (m.row(i).to_owned(), m.row(i).dot(r));
        // d_i = (M R Mᵀ)_ii, and what function j has of the i-th remainder.
        if image[i] > least {
            for j in i + 1..k {
                m.row_mut(j).scaled_add(-image[j] / image[i], &row);
            }
        }
    }
    m
}

impl Objective for NeuralEf {
    fn name(&self) -> &'static str {
        "neuralef"
    }

    fn describe(&self) -> String {
        match &self.coefficients {
            Coefficients::Batch => "neuralef (decay None)".into(),
            Coefficients::Averaged(average) => format!("neuralef (decay {:?})", Some(average.decay)),
            Coefficients::Joint => "neuralef (joint)".into(),
        }
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<Outcome> {
        let coefficients = match &mut self.coefficients {
            Coefficients::Batch => gram_schmidt(step.r),
            Coefficients::Averaged(average) => gram_schmidt(average.update(step.r)),
            Coefficients::Joint => elimination(step.r),
        };
        let mut g = match self.g.take() {
            Some(g) => g,
            None => Tensor::zeros(step.psi.device(), &[0])?,
        };
        mix(&(&coefficients * (-2.0 / step.points() as f64)), step.kpsi, Store::Replace, &mut g)?;
        step.backward(&g)?;
        self.g = Some(g);
        // ℓ = −Σ_j (R_jj − Σ_{i<j} c_ij R_ij), c the factors of the earlier functions.
        let loss = -(&coefficients * &step.r.t()).sum();
        Ok(Outcome { loss, eigenvalues: step.unbiased.diag().to_vec() })
    }

    fn on_device(&mut self) -> Option<OnDevice<'_>> {
        let averaged = match &mut self.coefficients {
            Coefficients::Batch => None,
            Coefficients::Averaged(average) => Some((average.decay, &mut average.value)),
            Coefficients::Joint => return Some(OnDevice::NeuralEfJoint),
        };
        Some(OnDevice::NeuralEf { averaged })
    }

    fn save(&self, bundle: &mut Bundle) {
        if let Coefficients::Averaged(average) = &self.coefficients {
            average.save("neuralef.r", bundle);
        }
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        match &mut self.coefficients {
            Coefficients::Averaged(average) => average.load("neuralef.r", bundle),
            Coefficients::Batch | Coefficients::Joint => Ok(()),
        }
    }
}
