//! One step of training.

use super::objective::{Objective, Outcome, Step, form};
use super::{Action, Functions};
use crate::compute::{self, Device, Tensor};
use crate::net::Optimizer;
use crate::rng::Rng;
use crate::{Error, Result};

/// Makes training steps; it holds the buffers that they reuse.
pub struct Stepper {
    psi: Tensor,
    kpsi: Tensor,
    gradient: Tensor,
    norm: Tensor,
}

impl Stepper {
    /// With empty buffers on `device`.
    pub fn new(device: Device) -> Result<Stepper> {
        let empty = || Tensor::zeros(device, &[0]);
        Ok(Stepper { psi: empty()?, kpsi: empty()?, gradient: empty()?, norm: Tensor::zeros(device, &[1])? })
    }

    /// Draws a batch, takes ψ and Kψ on it, has the objective make a gradient of them, and moves the parameters. Returns
    /// what the objective found and the points of the batch. An error leaves the parameters as they were.
    pub fn step(
        &mut self,
        action: &mut dyn Action,
        functions: &mut Functions,
        objective: &mut dyn Objective,
        optimizer: &mut Optimizer,
        rng: &mut Rng,
        batch: usize,
    ) -> Result<(Outcome, usize)> {
        let batch = action.sample(functions.device(), rng, batch)?;
        let Stepper { psi, kpsi, gradient, norm } = self;
        functions.forward(&batch.x, psi)?;
        action.apply(&batch, psi, functions, kpsi)?;
        let not_finite = |what: &str| Err(Error::Numerical(format!("{what} is not finite")));
        if !compute::all_finite(psi) {
            return not_finite("a network's output");
        }
        if !compute::all_finite(kpsi) {
            return not_finite("the operator's action on a network");
        }
        let (covariance, r) = (form(psi, psi)?, form(psi, kpsi)?);
        let unbiased = action.unbiased(&batch, psi, &covariance, &r)?;
        let outcome = objective.step(&mut Step {
            x: &batch.x,
            psi,
            kpsi,
            covariance: &covariance,
            r: &r,
            unbiased: &unbiased,
            functions,
            gradient,
        })?;
        // A finite sum of squares has no term that is not, and none large enough to spoil a second moment.
        compute::sum_squares(gradient, norm);
        if !norm.to_host()?[0].is_finite() {
            return not_finite("the gradient");
        }
        if !outcome.loss.is_finite() || outcome.eigenvalues.iter().any(|v| !v.is_finite()) {
            return not_finite("the loss");
        }
        optimizer.step(&mut functions.parameters_mut().trained, gradient);
        Ok((outcome, batch.x.shape()[0]))
    }
}
