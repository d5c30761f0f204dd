use super::{EpochSolver, Epochs, Equations};
use crate::apply::preconditioner::LowRankPreconditioner;
use crate::compute::Device;
use crate::linalg::Panel;
use crate::rng::Rng;
use crate::{FitContext, Result};
use ndarray::Array2;

/// Richardson's iteration, `C ← C + η P⁻¹(Y − (K + αI)C)` with `P = UΣUᵀ + αI`, the preconditioner of conjugate gradients, and η the inverse of
/// the largest eigenvalue of `P⁻¹(K + αI)`.
///
/// What `UΣUᵀ` leaves of K is positive, so that no eigenvalue is below 1: the error falls by `1 − η` at least in each step.
pub(in crate::apply) struct Richardson<'a, 'p> {
    equations: Equations<'a>,
    preconditioner: &'p LowRankPreconditioner,
    /// η
    step: f64,
    device: Device,
}

impl<'a, 'p> Richardson<'a, 'p> {
    /// Takes a few products to find η.
    pub fn new(
        equations: &Equations<'a>,
        preconditioner: &'p LowRankPreconditioner,
        context: &FitContext<'_>,
    ) -> Result<Self> {
        /// Steps of the power iteration, and the factor by which it may still be too small.
        const POWERS: usize = 12;
        const MARGIN: f64 = 1.1;
        let mut solver = Richardson { equations: *equations, preconditioner, step: 1.0, device: context.device };
        let mut rng = Rng::new(context.seed).fork(0x7269_6368);
        let mut v = Array2::from_shape_simple_fn((equations.y.nrows(), 1), || rng.normal());
        let mut largest = 1.0f64;
        for _ in 0..POWERS {
            let size = v.mapv(|v| v * v).sum().sqrt();
            v /= size;
            let product = equations.operator.apply(v.view())? + &(&v * equations.alpha);
            v = solver.preconditioned(product)?;
            largest = largest.max(v.mapv(|v| v * v).sum().sqrt());
        }
        solver.step = 1.0 / (MARGIN * largest);
        Ok(solver)
    }

    /// `P⁻¹V` `[n, m]`
    fn preconditioned(&self, v: Array2<f64>) -> Result<Array2<f64>> {
        let v = Panel::from_host(self.device, v)?;
        Ok(self.preconditioner.solve(self.equations.alpha, &v)?.into_host()? / self.equations.alpha)
    }
}

impl Epochs for Richardson<'_, '_> {
    fn kind(&self) -> EpochSolver {
        EpochSolver::Richardson
    }

    fn epoch(&mut self, c: &mut Array2<f64>) -> Result<Vec<f64>> {
        let r = self.equations.residual(0..c.nrows(), c.view())?;
        let seen = r.columns().into_iter().map(|r| r.dot(&r)).collect();
        c.scaled_add(self.step, &self.preconditioned(r)?);
        Ok(seen)
    }
}
