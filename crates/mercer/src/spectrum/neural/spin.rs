//! SpIN: spectral inference networks, ordered by a masked gradient through a Cholesky factor.

use super::entries::{NO_FINISH, PUBLISHED};
use super::objective::{Objective, Own, State, Step};
use super::{Functions, Kind, Recipe};
use crate::compute::{Control, Small, Store, Tensor, small};
use crate::options::{Opt, Options};
use crate::{Result, fail_if};
use ndarray::Array2;

/// Maximises `Tr Λ`, `Λ = L⁻¹ΠL⁻ᵀ`, `Σ = ⟨ψ,ψᵀ⟩ = LLᵀ`, `Π = ⟨ψ,Kψᵀ⟩`, where `ψ_i` follows the gradient of `Λ_ii`
/// alone: `Λ_jj` depends on `ψ_i` for all `i ≤ j`, and without the mask the functions would find the span but no order.
///
/// With `A = L⁻ᵀ diag(L)⁻¹` and `G = L⁻ᵀ triu(Λ diag(L)⁻¹)` the masked gradient is
/// `∂Λ_ii/∂θ_i = 2 Σ_b A_bi ⟨∂ψ_i,Kψ_b⟩ − 2 Σ_b G_bi ⟨∂ψ_i,ψ_b⟩`,
///
/// so with Σ and Π of the batch it is one backward pass of
///
/// `∂ℓ/∂ψ_i = −(2/m) (Σ_b A_bi Kψ_b − Σ_b G_bi ψ_b)`.
///
/// The gradient is not linear in Σ: its mean over batches is not the gradient of the mean. Hence the published form keeps two
/// moving averages ([`Spin::PUBLISHED`]): of Σ, from which L comes, and of its Jacobian `J_b = ⟨∂ψ_i,ψ_b⟩`. That takes k + 1
/// backward passes a step, k numbers for each parameter, and networks without a shared trunk. And it is less accurate. On a
/// batch of B points every function shares `1/√B` of the first one; L of the same batch takes that away, L of an older Σ leaves
/// some `μ_1/√B` in Λ, which is more than `μ_j` where the first eigenvalue dominates.
/// Example: [`Neural`](super::Neural) takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spin {
    /// Share of their value that the moving averages keep at each step; 0 takes the batch's own.
    pub decay: f64,
}

impl Spin {
    /// With the moving averages of the published form.
    pub const PUBLISHED: Spin = Spin { decay: 0.99 };
}

struct Run {
    /// None takes the batch's own Σ.
    averages: Option<Averages>,
    masked: Masked,
    /// `L⁻¹R'L⁻ᵀ` with R' the unbiased R.
    shown: Small,
    loss: Small,
    g: Tensor,
}

/// The moving averages of the published form.
struct Averages {
    sigma: small::Average,
    /// `J̄_b` `[k, P]`, each network's part in the place of its parameters.
    jacobian: Tensor,
    /// `P_b` with `P_b ψ = (ψ_b, …, ψ_b)`, for each b; `[k, k]`.
    picks: Vec<Small>,
}

impl Averages {
    fn new(functions: &Functions, decay: f64) -> Result<Averages> {
        let (network, device, k) = (functions.network(), functions.device(), functions.count());
        fail_if!(
            network.shares_trunk(),
            "SpIN with moving averages needs networks that share nothing, and \"{}\" has a shared trunk; leave out the | or the averages",
            network.expression()
        );
        let pick = |b: usize| {
            let column = Array2::from_shape_fn((k, k), |(_, i)| f64::from(u8::from(i == b)));
            Small::from_host(device, &column)
        };
        Ok(Averages {
            sigma: small::Average::new(device, decay, [k, k])?,
            jacobian: Tensor::zeros(device, &[k, network.parameters()])?,
            picks: (0..k).map(pick).collect::<Result<_>>()?,
        })
    }

    fn state(&mut self) -> [(&'static str, State<'_>); 2] {
        [("spin.sigma", State::Average(&mut self.sigma)), ("spin.jacobian", State::Tensor(&mut self.jacobian))]
    }

    /// `J̄_b ← β J̄_b + (1 − β) ⟨∂ψ_i,ψ_b⟩`: one backward pass for each b, with `ψ_b` as every network's cotangent.
    fn blend(&mut self, step: &mut Step<'_, '_>, g: &mut Tensor) -> Result<()> {
        let m = step.points() as f64;
        for (b, pick) in self.picks.iter().enumerate() {
            small::mix(pick.times(1.0 / m), step.psi, step.all(), Store::Replace, g)?;
            step.backward(g)?;
            self.sigma.blend(step.gradient, b, &mut self.jacobian)?;
        }
        Ok(())
    }
}

impl Recipe for Spin {
    fn name(&self) -> &'static str {
        "spin"
    }

    fn about(&self) -> &'static str {
        "trained networks, by spectral inference with a masked gradient"
    }

    /// The averaged Jacobian.
    fn options(&self) -> Vec<&'static Opt> {
        vec![&NO_FINISH, &PUBLISHED]
    }

    fn with_options(&self, o: &mut Options) -> Result<Option<Kind>> {
        Ok(o.flag(&PUBLISHED)?.then_some(Spin::PUBLISHED.into()))
    }

    fn memory(&self, k: usize) -> usize {
        if self.decay == 0.0 { 0 } else { k }
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let decay = self.decay;
        fail_if!(!(0.0..1.0).contains(&decay), "SpIN's decay must lie in [0, 1), got {decay}");
        let (device, k) = (functions.device(), functions.count());
        Ok(Box::new(Run {
            averages: (decay > 0.0).then(|| Averages::new(functions, decay)).transpose()?,
            masked: Masked::new(device, k)?,
            shown: Small::zeros(device, [k, k])?,
            loss: Small::zeros(device, [1, 1])?,
            g: Tensor::zeros(device, &[0])?,
        }))
    }
}

/// What the masked gradient is made of; all `[k, k]`.
struct Masked {
    l: Small,
    lambda: Small,
    identity: Small,
    /// `A = L⁻ᵀ diag(L)⁻¹`
    a: Small,
    /// `G = L⁻ᵀ triu(Λ diag(L)⁻¹)`
    g: Small,
}

impl Masked {
    fn new(device: crate::compute::Device, k: usize) -> Result<Masked> {
        let square = || Small::zeros(device, [k, k]);
        let identity = Small::identity(device, k)?;
        Ok(Masked { l: square()?, lambda: square()?, identity, a: square()?, g: square()? })
    }

    fn factor(&mut self, sigma: &Small, pi: &Small, control: &mut Control) -> Result<()> {
        small::cholesky(sigma, control, &mut self.l)?;
        small::congruence(&self.l, pi, &mut self.lambda)?;
        small::solve_upper(&self.l, &self.identity, &mut self.a);
        small::solve_upper(&self.l, &self.lambda, &mut self.g);
        Ok(())
    }
}

impl Objective for Run {
    fn describe(&self) -> String {
        format!("spin (decay {})", self.averages.as_ref().map_or(0.0, |averages| averages.sigma.decay()))
    }

    /// The eigenfunctions are `L⁻¹ψ`.
    fn own(&self) -> Own {
        Own::InOrder
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let Run { averages, masked, shown, loss, g } = self;
        let factor = 2.0 / step.points() as f64;
        if let Some(averages) = averages {
            averages.sigma.update(step.covariance, step.control);
        }
        let sigma = averages.as_ref().map_or(step.covariance, |averages| averages.sigma.value());
        masked.factor(sigma, step.r, step.control)?;
        if let Some(averages) = averages.as_mut() {
            averages.blend(step, g)?;
        }
        // −∂Λ_ii/∂θ_i: the part of Π, and that of Σ by the same backward pass or from the averaged Jacobian.
        small::mix(masked.a.t().times(-factor), step.kpsi, step.all(), Store::Replace, g)?;
        match averages {
            None => {
                small::mix(masked.g.t().times(factor), step.psi, step.all(), Store::Add, g)?;
                step.backward(g)?;
            }
            Some(averages) => {
                step.backward(g)?;
                small::add_rows(masked.g.times(2.0), &averages.jacobian, step.gradient)?;
            }
        }
        small::sum(-1.0, masked.lambda.diagonal(), Store::Replace, loss);
        small::congruence(&masked.l, step.unbiased, shown)?;
        step.control.record(loss, shown.diagonal());
        Ok(())
    }

    fn state(&mut self) -> Vec<(&'static str, State<'_>)> {
        self.averages.iter_mut().flat_map(Averages::state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Device;

    #[test]
    fn coinciding_functions_are_told_apart_by_jitter() {
        let mut masked = Masked::new(Device::Cpu, 3).unwrap();
        let sigma = Small::from_host(Device::Cpu, &Array2::from_elem((3, 3), 1.0)).unwrap();
        masked.factor(&sigma, &sigma, &mut Control::new(Device::Cpu, 1, 0).unwrap()).unwrap();
        for matrix in [&masked.a, &masked.g] {
            assert!(matrix.to_host().unwrap().iter().all(|v| v.is_finite()));
        }
    }
}
