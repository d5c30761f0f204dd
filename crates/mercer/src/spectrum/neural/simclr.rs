//! SimCLR: each view told apart from all others by its partner.

use super::objective::{Objective, Own, Step};
use super::{Functions, Recipe};
use crate::compute::{self, Device, Small, Store, Tensor, small};
use crate::{Result, fail_if};
use ndarray::Array2;

/// Minimises the mean over the m views of a batch of `−ln (e^{s_bb'} / Σ_{c≠b} e^{s_bc})`, where b' is the partner of b and
/// `s_bc = z_b·z_c/τ` with `z_b = ψ(x_b)/‖ψ(x_b)‖`.
///
/// At the minimum `s` is `ln κ` up to a constant: of the same kernel, but not linear in its eigenfunctions.
/// Example: [`PairObjective`](super::PairObjective) takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimClr {
    /// τ
    pub temperature: f64,
}

impl Default for SimClr {
    fn default() -> Self {
        SimClr { temperature: 0.5 }
    }
}

impl Recipe for SimClr {
    fn name(&self) -> &'static str {
        "simclr"
    }

    fn about(&self) -> &'static str {
        "each view told apart from all others of the batch by its partner"
    }

    fn normalises(&self) -> bool {
        false
    }

    fn centres(&self) -> bool {
        false
    }

    fn objective(&self, functions: &Functions, _: usize) -> Result<Box<dyn Objective>> {
        let (device, k, τ) = (functions.device(), functions.count(), self.temperature);
        fail_if!(!(τ > 0.0 && τ.is_finite()), "the temperature of SimCLR must be above 0, got {τ}");
        let empty = || Tensor::zeros(device, &[0]);
        Ok(Box::new(Run {
            temperature: τ,
            batch: Batch {
                z: empty()?,
                factor: empty()?,
                s: empty()?,
                g: empty()?,
                flow: empty()?,
                turned: empty()?,
                work: empty()?,
            },
            fixed: None,
            totals: Tensor::zeros(device, &[1, 2])?,
            loss: Small::zeros(device, [1, 1])?,
            eigenvalues: Small::zeros(device, [1, k])?,
        }))
    }
}

struct Run {
    temperature: f64,
    batch: Batch,
    /// Of the size of the batch, which the first step shows.
    fixed: Option<Fixed>,
    /// Summed loss, and views whose partner is nearest.
    totals: Tensor,
    loss: Small,
    /// `[1, k]`
    eigenvalues: Small,
}

/// Buffers of a step.
struct Batch {
    /// z `[m, k]`, times √k.
    z: Tensor,
    /// `√k/‖ψ(x_b)‖` `[m, 1]`
    factor: Tensor,
    /// s and the gradient by it, `[1, m, m]`.
    s: Tensor,
    g: Tensor,
    /// Gradients `[m, k]` and `[k, m]`.
    flow: Tensor,
    turned: Tensor,
    work: Tensor,
}

struct Fixed {
    /// Far below zero on the diagonal: no view is told apart from itself; `[m, m]`.
    own: Tensor,
    /// The number of each view's partner, `[m, 1]`.
    partners: Tensor,
    /// `totals` to the mean loss: `(2/m, 0)`.
    shares: Tensor,
}

impl Fixed {
    fn new(device: Device, m: usize) -> Result<Fixed> {
        let own: Vec<f32> =
            Array2::from_shape_fn((m, m), |(b, c)| if b == c { -1e9 } else { 0.0 }).into_iter().collect();
        let partners: Vec<f32> = (0..m).map(|b| (b ^ 1) as f32).collect();
        Ok(Fixed {
            own: Tensor::from_host(device, &[m, m], &own)?,
            partners: Tensor::from_host(device, &[m, 1], &partners)?,
            // The form is a mean over two numbers.
            shares: Tensor::from_host(device, &[1, 2], &[2.0 / m as f32, 0.0])?,
        })
    }
}

impl Objective for Run {
    fn describe(&self) -> String {
        format!("simclr (temperature {})", self.temperature)
    }

    fn own(&self) -> Own {
        Own::Span
    }

    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()> {
        let Run { temperature, batch, fixed, totals, loss, eigenvalues } = self;
        let Batch { z, factor, s, g, flow, turned, work } = batch;
        let (device, k, m) = (step.psi.device(), step.psi.shape()[0], step.points());
        if fixed.is_none() {
            *fixed = Some(Fixed::new(device, m)?);
        }
        let Some(Fixed { own, partners, shares }) = fixed else { unreachable!("made above") };
        let share = (1.0 / (k as f64 * *temperature)) as f32;
        // z
        turned.reshape(&[1, k, m])?;
        compute::copy(step.psi, turned);
        z.reshape(&[1, m, k])?;
        compute::transpose(turned, z);
        z.reshape(&[m, k, 1])?;
        factor.reshape(&[m, 1])?;
        compute::l2_norm(z, factor);
        // s, and the gradient by it
        s.reshape(&[1, m, m])?;
        let rows = z.matrices(0, 0, m, k);
        compute::gemm(share, rows, rows.t(), Store::Replace, s.matrices_mut(0, 0, 1, m, m));
        compute::axpy(1.0, own, s);
        compute::fill(totals, 0.0);
        totals.reshape(&[2])?;
        g.reshape(&[1, m, m])?;
        compute::softmax_cross_entropy(s, partners, Some(g), totals);
        totals.reshape(&[1, 2])?;
        // (G + Gᵀ) z/τ, then back through the norm
        flow.reshape(&[m, k, 1])?;
        let g = g.matrices(0, 0, m, m);
        compute::gemm(share, g, rows, Store::Replace, flow.matrices_mut(0, 0, 1, m, k));
        compute::gemm(share, g.t(), rows, Store::Add, flow.matrices_mut(0, 0, 1, m, k));
        work.reshape(&[m, 1])?;
        compute::l2_norm_tangent(z, factor, flow, work);
        flow.reshape(&[1, m, k])?;
        compute::transpose(flow, turned);
        turned.reshape(&[k, m, 1])?;
        step.backward(turned)?;
        small::form(totals, shares, 0..2, loss)?;
        small::divide(step.unbiased.diagonal(), step.covariance.diagonal(), eigenvalues);
        step.control.record(loss, eigenvalues.row(0));
        Ok(())
    }
}
