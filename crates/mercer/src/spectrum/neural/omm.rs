//! Orbital minimisation: functions that become orthonormal without a constraint.

use super::entries::NO_FINISH;
use super::objective::{Objective, Step};
use super::{Functions, Recipe};
use crate::Result;
use crate::compute::{Small, Store, Tensor, small};
use crate::options::Opt;
use ndarray::Array2;

/// Minimises `−2 Tr Π + Tr ΛΠ` with `Λ = ⟨f,fᵀ⟩` and `Π = ⟨f,Kfᵀ⟩`, which for a positive K is least, `−Σ_j μ_j`, where the
/// functions span the first eigenfunctions and `Λ = I`. For the order, function l follows the problem of the functions up to
/// it, those before it held fixed:
///
/// `∂ℓ/∂f_l = (2/m) (−2 K f_l + Σ_{o≤l} (Λ_lo K f_o + Π_lo f_o))`. Example: [`Neural`](super::Neural) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Omm;

impl Recipe for Omm {
    fn name(&self) -> &'static str {
        "omm"
    }

    fn about(&self) -> &'static str {
        "trained networks that become orthonormal by themselves, by orbital minimisation"
    }

    fn options(&self) -> Vec<&'static Opt> {
        vec![&NO_FINISH]
    }

    fn normalises(&self) -> bool {
        false
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let (device, k) = (functions.device(), functions.count());
        let earlier = Array2::from_shape_fn((k, k), |(l, o)| f64::from(u8::from(o <= l)));
        let square = || Small::zeros(device, [k, k]);
        Ok(Box::new(Run {
            identity: Small::identity(device, k)?,
            mask: Small::from_host(device, &earlier)?,
            masked: [square()?, square()?],
            loss: Small::zeros(device, [1, 1])?,
            eigenvalues: Small::zeros(device, [1, k])?,
            g: Tensor::zeros(device, &[0])?,
        }))
    }
}

struct Run {
    identity: Small,
    /// One where `o ≤ l`; `[k, k]`.
    mask: Small,
    /// Λ and Π where `o ≤ l`; `[k, k]`.
    masked: [Small; 2],
    loss: Small,
    /// `Π_ll/Λ_ll` `[1, k]`
    eigenvalues: Small,
    g: Tensor,
}

impl Objective for Run {
    fn describe(&self) -> String {
        "omm".into()
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let Run { identity, mask, masked: [lambda, pi], loss, eigenvalues, g } = self;
        let (factor, all) = (2.0 / step.points() as f64, step.all());
        small::multiply(mask, step.covariance, lambda);
        small::multiply(mask, step.r, pi);
        small::mix(identity.times(-2.0 * factor), step.kpsi, all.clone(), Store::Replace, g)?;
        small::mix(lambda.times(factor), step.kpsi, all.clone(), Store::Add, g)?;
        small::mix(pi.times(factor), step.psi, all, Store::Add, g)?;
        step.backward(g)?;
        small::sum(-2.0, step.r.diagonal(), Store::Replace, loss);
        small::inner(step.covariance, step.r, Store::Add, loss);
        small::divide(step.unbiased.diagonal(), step.covariance.diagonal(), eigenvalues);
        step.control.record(loss, eigenvalues.row(0));
        Ok(())
    }
}
