use super::{EpochSolver, Epochs, Equations};
use crate::apply::preconditioner::LowRankPreconditioner;
use crate::compute::Device;
use crate::linalg::Panel;
use crate::model::Bundle;
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
    /// η, from the first epoch on.
    step: Option<f64>,
    seed: u64,
    device: Device,
}

impl<'a, 'p> Richardson<'a, 'p> {
    pub fn new(equations: &Equations<'a>, preconditioner: &'p LowRankPreconditioner, context: &FitContext<'_>) -> Self {
        let FitContext { seed, device, .. } = *context;
        Richardson { equations: *equations, preconditioner, step: None, seed, device }
    }

    /// η by the power iteration, which takes a few products.
    fn rate(&self) -> Result<f64> {
        /// Steps of the power iteration, and the factor by which it may still be too small.
        const POWERS: usize = 12;
        const MARGIN: f64 = 1.1;
        let mut rng = Rng::new(self.seed).fork(0x7269_6368);
        let mut v = Array2::from_shape_simple_fn((self.equations.y.nrows(), 1), || rng.normal());
        let mut largest = 1.0f64;
        for _ in 0..POWERS {
            let size = v.mapv(|v| v * v).sum().sqrt();
            v /= size;
            let product = self.equations.operator.apply(v.view())? + &(&v * self.equations.alpha);
            v = self.preconditioned(product)?;
            largest = largest.max(v.mapv(|v| v * v).sum().sqrt());
        }
        Ok(1.0 / (MARGIN * largest))
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
        let step = match self.step {
            Some(step) => step,
            None => *self.step.insert(self.rate()?),
        };
        let r = self.equations.residual(0..c.nrows(), c.view())?;
        let seen = r.columns().into_iter().map(|r| r.dot(&r)).collect();
        c.scaled_add(step, &self.preconditioned(r)?);
        Ok(seen)
    }

    fn save(&self, bundle: &mut Bundle) {
        bundle.set("step", self.step);
    }

    fn load(&mut self, bundle: &Bundle, _: (usize, usize)) -> Result<()> {
        self.step = bundle.value("step")?;
        Ok(())
    }
}
