//! Ritz: the last layer is solved, not trained.

use super::OnDevice;
use super::objective::{Objective, Outcome, Step, mix};
use crate::Result;
use crate::compute::{Device, Store, Tensor};
use crate::linalg::{eigh, matmul};
use ndarray::{Array1, Array2, Axis, s};

/// Maximises the trace that the span of the hidden units captures: `Σ_{j≤k} μ_j` with `Π a = μ Σ a`,
/// `Σ = ⟨φ,φᵀ⟩`, `Π = ⟨φ,Kφᵀ⟩`, `aᵀΣa = 1`. For the top k pairs of the batch,
///
/// `∂ℓ/∂φ = −(2/m) Σ_j a_j (a_jᵀKφ − μ_j a_jᵀφ)`.
pub struct Ritz {
    k: usize,
    g: Option<Tensor>,
}

/// Directions of Σ below this share of the largest are left out of the batch's problem: so few points cannot tell them
/// from noise, and dividing by them would drown the gradient in it.
pub(super) const FLOOR: f64 = 1e-6;

impl Ritz {
    /// For the top `k` pairs.
    pub fn new(k: usize) -> Self {
        Ritz { k, g: None }
    }
}

/// At most `k` pairs of `Π a = μ Σ a` `[p, p]` within the directions of Σ above `floor` times its largest:
/// `μ` descending and `A` `[p, ·]` with `AᵀΣA = I`.
pub(super) fn top_pairs(
    sigma: &Array2<f64>,
    pi: &Array2<f64>,
    k: usize,
    floor: f64,
) -> Result<(Vec<f64>, Array2<f64>)> {
    let (λ, u) = eigh(Device::Cpu, sigma.view())?;
    let rank = λ.iter().take_while(|&&l| l > floor * λ[0] && l > 0.0).count();
    let mut w = u.slice(s![.., ..rank]).to_owned();
    for (mut column, l) in w.axis_iter_mut(Axis(1)).zip(&λ) {
        column /= l.sqrt();
    }
    let t = matmul(w.t(), matmul(pi.view(), w.view()).view());
    let (μ, v) = eigh(Device::Cpu, ((&t + &t.t()) * 0.5).view())?;
    let k = k.min(rank);
    Ok((μ[..k].to_vec(), matmul(w.view(), v.slice(s![.., ..k]))))
}

impl Objective for Ritz {
    fn name(&self) -> &'static str {
        "ritz"
    }

    fn on_device(&mut self) -> Option<OnDevice<'_>> {
        Some(OnDevice::Ritz { k: self.k })
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<Outcome> {
        let (μ, a) = top_pairs(step.covariance, step.r, self.k, FLOOR)?;
        let mut g = match self.g.take() {
            Some(g) => g,
            None => Tensor::zeros(step.psi.device(), &[0])?,
        };
        // g = −(2/m) (A Aᵀ Kφ − A diag(μ) Aᵀ φ)
        let factor = -2.0 / step.points() as f64;
        mix(&(matmul(a.view(), a.t()) * factor), step.kpsi, Store::Replace, &mut g)?;
        let weighted = &a * &Array1::from(μ.clone());
        mix(&(matmul(weighted.view(), a.t()) * -factor), step.psi, Store::Add, &mut g)?;
        step.backward(&g)?;
        self.g = Some(g);
        let loss = -μ.iter().sum::<f64>();
        let mut eigenvalues = μ;
        eigenvalues.resize(self.k, 0.0);
        Ok(Outcome { loss, eigenvalues })
    }
}
