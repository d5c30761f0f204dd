//! Richardson's iteration on the kernel ridge equations, with the preconditioner of conjugate gradients.

use super::{EpochSolver, Epochs, Equations, squares};
use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
use crate::bundle::Bundle;
use crate::linalg::{Panel, Part};
use crate::rng::Rng;
use crate::{FitContext, Result};

/// Richardson's iteration, `C ← C + η P⁻¹(Y − (K + αI)C)` with `P = UΣUᵀ + αI`, the preconditioner of conjugate gradients, and η the inverse of
/// the largest eigenvalue of `P⁻¹(K + αI)`.
///
/// What `UΣUᵀ` leaves of K is positive, so that no eigenvalue is below 1: the error falls by `1 − η` at least in each step.
pub(crate) struct Richardson<'a, 'p> {
    equations: Equations<'a>,
    preconditioner: &'p LowRankPreconditioner,
    /// η, from the first epoch on.
    step: Option<f64>,
    seed: u64,
}

impl<'a, 'p> Richardson<'a, 'p> {
    pub fn new(equations: &Equations<'a>, preconditioner: &'p LowRankPreconditioner, context: &FitContext<'_>) -> Self {
        Richardson { equations: *equations, preconditioner, step: None, seed: context.seed }
    }

    /// η by the power iteration, which takes a few products.
    fn rate(&self) -> Result<f64> {
        /// Steps of the power iteration, and the factor by which it may still be too small.
        const POWERS: usize = 12;
        const MARGIN: f64 = 1.1;
        let start = Rng::new(self.seed).fork(0x7269_6368).normals((self.equations.y.nrows(), 1));
        let mut v = self.equations.y.sharding().panel(self.equations.y.device(), start.view())?;
        let mut largest = 1.0f64;
        for _ in 0..POWERS {
            v.scale(&[1.0 / v.norms()?[0]])?;
            let mut product = self.equations.operator.apply_panel(&v)?;
            product.axpy(&[self.equations.alpha], &v)?;
            v = self.preconditioned(&product)?;
            largest = largest.max(v.norms()?[0]);
        }
        Ok(1.0 / (MARGIN * largest))
    }

    /// `P⁻¹V` `[n, m]`
    fn preconditioned(&self, v: &Panel) -> Result<Panel> {
        let mut solved = self.preconditioner.solve(self.equations.alpha, v)?;
        solved.scale(&vec![1.0 / self.equations.alpha; v.ncols()])?;
        Ok(solved)
    }
}

impl Epochs for Richardson<'_, '_> {
    fn kind(&self) -> EpochSolver {
        EpochSolver::Richardson
    }

    fn epoch(&mut self, c: &mut Panel) -> Result<Vec<f64>> {
        let step = match self.step {
            Some(step) => step,
            None => *self.step.insert(self.rate()?),
        };
        let r = self.equations.residual(&Part::All, c)?;
        c.axpy(&vec![step; r.ncols()], &self.preconditioned(&r)?)?;
        squares(&r)
    }

    fn save(&self, bundle: &mut Bundle) -> Result<()> {
        bundle.set("step", self.step);
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle, _: &Panel) -> Result<()> {
        self.step = bundle.value("step")?;
        Ok(())
    }
}
