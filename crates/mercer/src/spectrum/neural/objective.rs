//! An objective: from functions and their image under the operator to a gradient.

use super::{Functions, OnDevice};
use crate::Result;
use crate::compute::{Store, Tensor, gemm};
use crate::model::Bundle;
use ndarray::Array2;

/// One training step as an objective sees it; `m = B·c` values of each of k functions.
pub struct Step<'a> {
    /// The batch `[B, d]`.
    pub x: &'a Tensor,
    /// `ψ` `[k, B, c]`
    pub psi: &'a Tensor,
    /// `Kψ` `[k, B, c]`
    pub kpsi: &'a Tensor,
    /// `C_ij = ⟨ψ_i,ψ_j⟩` `[k, k]`
    pub covariance: &'a Array2<f64>,
    /// `R_ij = ⟨ψ_i,Kψ_j⟩` `[k, k]`
    pub r: &'a Array2<f64>,
    /// R without the bias of the batch, for eigenvalues that are shown.
    pub unbiased: &'a Array2<f64>,
    /// The functions, for their vjp.
    pub functions: &'a mut Functions,
    /// `[P]`: where `∂ℓ/∂θ` goes.
    pub gradient: &'a mut Tensor,
}

impl Step<'_> {
    /// `gradient ← (∂ψ/∂θ)ᵀ g` for `g = ∂ℓ/∂ψ` `[k, B, c]`.
    pub fn backward(&mut self, g: &Tensor) -> Result<()> {
        self.functions.vjp(self.x, self.psi, g, self.gradient)
    }

    /// Values of each function, `B·c`.
    pub fn points(&self) -> usize {
        self.psi.shape()[1] * self.psi.shape()[2]
    }
}

/// What a step found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// ℓ
    pub loss: f64,
    /// This batch's estimates of the eigenvalues, as the objective has them.
    pub eigenvalues: Vec<f64>,
}

/// A way of training functions into eigenfunctions.
pub trait Objective: Send {
    /// Its name in the program and in saved models.
    fn name(&self) -> &'static str;

    /// The name and every constant, so that a checkpoint is not continued with others.
    fn describe(&self) -> String {
        self.name().into()
    }

    /// Writes the gradient of a loss that is to fall, and says where it stands.
    fn step(&mut self, step: &mut Step<'_>) -> Result<Outcome>;

    /// The objective as a device can follow it by itself, if it can.
    fn on_device(&mut self) -> Option<OnDevice<'_>> {
        None
    }

    /// Puts what the objective remembers between steps into a checkpoint.
    fn save(&self, _bundle: &mut Bundle) {}

    /// Takes it out again.
    fn load(&mut self, _bundle: &Bundle) -> Result<()> {
        Ok(())
    }
}

/// `⟨a_i,b_j⟩` `[k, k]`, the mean of the products over all values, for `a`, `b` `[k, B, c]`.
pub fn form(a: &Tensor, b: &Tensor) -> Result<Array2<f64>> {
    let k = a.shape()[0];
    let m = a.len() / k.max(1);
    let mut out = Tensor::zeros(a.device(), &[k, k])?;
    gemm(1.0 / m as f32, a.matrices(0, 0, k, m), b.matrices(0, 0, k, m).t(), Store::Replace, out.stack_mut());
    let values = out.to_host()?.into_iter().map(f64::from).collect();
    Ok(Array2::from_shape_vec((k, k), values).expect("k² values"))
}

/// `out_j ← Σ_i M_ji t_i`, or that added, for `M` `[k, k]` and `t`, `out` `[k, B, c]`.
pub fn mix(m: &Array2<f64>, t: &Tensor, store: Store, out: &mut Tensor) -> Result<()> {
    let k = t.shape()[0];
    let values = t.len() / k.max(1);
    out.reshape(t.shape())?;
    let host: Vec<f32> = m.iter().map(|v| *v as f32).collect();
    let m = Tensor::from_host(t.device(), &[k, k], &host)?;
    gemm(1.0, m.stack(), t.matrices(0, 0, k, values), store, out.matrices_mut(0, 0, 1, k, values));
    Ok(())
}

/// A moving average that starts at its first value; `None` before it.
#[derive(Clone, Debug)]
pub(super) struct MovingAverage {
    /// Share of the old value that stays at each step.
    pub decay: f64,
    pub value: Option<Array2<f64>>,
}

impl MovingAverage {
    pub fn new(decay: f64) -> Self {
        MovingAverage { decay, value: None }
    }

    /// `v̄ ← β v̄ + (1 − β) v`
    pub fn update(&mut self, new: &Array2<f64>) -> &Array2<f64> {
        let value = match self.value.take() {
            Some(old) => old * self.decay + new * (1.0 - self.decay),
            None => new.clone(),
        };
        self.value.insert(value)
    }

    pub fn save(&self, name: &str, bundle: &mut Bundle) {
        bundle.set(name, self.value.is_some());
        if let Some(value) = &self.value {
            bundle.put(name, value.clone());
        }
    }

    pub fn load(&mut self, name: &str, bundle: &Bundle) -> Result<()> {
        self.value = if bundle.value(name)? { Some(bundle.matrix(name)?) } else { None };
        Ok(())
    }
}
