//! An objective: from functions and their image under the operator to a gradient.
//!
//! Objectives are written over primitives that have a host and a device arm ([`crate::compute::small`]), and read nothing
//! back within a step. So the same function runs on the CPU and is recorded on a GPU.

use super::Functions;
use super::sharded_batch::ShardedBatch;
use crate::Result;
use crate::compute::{Control, Math, Small, Tensor, small};
use ndarray::Array2;
use std::ops::Range;

/// One training step as an objective sees it; `m = B·c` values of each of k functions.
pub struct Step<'a, 'b> {
    /// The batch `[B, d]`.
    pub x: &'a Tensor,
    /// `ψ` `[k, B, c]`
    pub psi: &'a Tensor,
    /// `Kψ` `[k, B, c]`
    pub kpsi: &'a Tensor,
    /// `C_ij = ⟨ψ_i,ψ_j⟩` `[k, k]`
    pub covariance: &'a Small,
    /// `R_ij = ⟨ψ_i,Kψ_j⟩` `[k, k]`
    pub r: &'a Small,
    /// R without the bias of the batch, for eigenvalues that are shown.
    pub unbiased: &'a Small,
    /// Where failures, the loss `[1, 1]` and this batch's estimates of the eigenvalues are recorded.
    pub control: &'a mut Control,
    /// The functions, for their vjp.
    pub functions: &'a mut Functions,
    /// `[P]`: where `∂ℓ/∂θ` goes.
    pub gradient: &'a mut Tensor,
    /// How the networks' products round their factors.
    pub math: Math,
    /// How the points are sharded to ranks, where there are several.
    pub(super) sharded: Option<&'a mut ShardedBatch<'b>>,
}

impl<'a> Step<'a, '_> {
    /// A step on one rank.
    pub fn alone(
        (x, psi, kpsi): (&'a Tensor, &'a Tensor, &'a Tensor),
        (covariance, r): (&'a Small, &'a Small),
        control: &'a mut Control,
        functions: &'a mut Functions,
        gradient: &'a mut Tensor,
    ) -> Step<'a, 'static> {
        let (unbiased, math) = (r, Math::F32);
        Step { x, psi, kpsi, covariance, r, unbiased, control, functions, gradient, math, sharded: None }
    }

    /// `gradient ← (∂ψ/∂θ)ᵀ g` for `g = ∂ℓ/∂ψ` `[k, B, c]`, which is used up.
    pub fn backward(&mut self, g: &mut Tensor) -> Result<()> {
        let (x, psi, functions, gradient) = (self.x, self.psi, &mut *self.functions, &mut *self.gradient);
        let sharded = self.sharded.as_deref_mut();
        psi.device().with_math(self.math, || functions.vjp_in_place(x, psi, g, gradient, sharded))
    }

    /// Values of each function, `B·c`.
    pub fn points(&self) -> usize {
        self.psi.shape()[1] * self.psi.shape()[2]
    }

    /// All of these values.
    pub fn all(&self) -> Range<usize> {
        0..self.points()
    }
}

/// What objectives compute with whose gradient is made of `Kψ` and of R under a mask.
pub(super) struct Masked {
    pub identity: Small,
    /// M `[k, k]`
    pub mask: Small,
    /// `M ∘ R`
    pub masked: Small,
    pub loss: Small,
    pub g: Tensor,
}

impl Masked {
    /// With the mask `M_ij = mask(i, j)`.
    pub fn new(functions: &Functions, mask: impl Fn((usize, usize)) -> f64) -> Result<Masked> {
        let (device, k) = (functions.device(), functions.count());
        Ok(Masked {
            identity: Small::identity(device, k)?,
            mask: Small::from_host(device, &Array2::from_shape_fn((k, k), mask))?,
            masked: Small::zeros(device, [k, k])?,
            loss: Small::zeros(device, [1, 1])?,
            g: Tensor::zeros(device, &[0])?,
        })
    }
}

/// A way of training functions into eigenfunctions.
pub trait Objective: Send {
    /// Its name, then every constant, so that a checkpoint is not continued with others.
    fn describe(&self) -> String;

    /// How many eigenvalues a step records, where there are k functions.
    fn eigenvalues(&self, k: usize) -> usize {
        k
    }

    /// What its eigenfunctions are where no Rayleigh–Ritz follows.
    fn own(&self) -> Own {
        Own::Networks
    }

    /// Writes the gradient of a loss that is to fall, and records the loss and the eigenvalues.
    fn step(&mut self, step: &mut Step<'_, '_>) -> Result<()>;

    /// What it remembers between steps, by name.
    fn state(&mut self) -> Vec<(&'static str, State<'_>)> {
        vec![]
    }
}

/// What an objective's eigenfunctions are without a final Rayleigh–Ritz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Each function, brought to norm one.
    Networks,
    /// Each function less its part along those before it, brought to norm one.
    InOrder,
    /// There are none: only the span of the functions means something.
    Span,
}

/// Something that an objective remembers between steps.
pub enum State<'a> {
    /// A moving average.
    Average(&'a mut small::Average),
    /// Numbers.
    Tensor(&'a mut Tensor),
}
