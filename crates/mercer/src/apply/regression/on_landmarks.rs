//! Ridge regression on many landmarks by iterative solvers: falkon, krill, and eigenpro on landmarks.

use super::outcome::Outcome;
use super::{IterationOptions, KernelOptions, Objective, Points, RANK, Regression, RegressionTask, UnderKernel};
use crate::Result;
use crate::apply::{Falkon, Fit, LandmarkSolver};
use crate::kernel::Kernel;
use crate::options::{Caps, Entry};

/// Landmarks by default.
const LANDMARKS: usize = 5000;

/// Ridge regression on landmarks.
pub(crate) struct OnLandmarks {
    pub solver: LandmarkSolver,
    /// How many, where that is given.
    pub rank: Option<usize>,
    pub iteration: IterationOptions,
}

impl OnLandmarks {
    pub(crate) fn entries() -> [Entry<RegressionTask>; 2] {
        let entry = |name, about, solver| Entry {
            can: Caps { numbers: true, classes: true, weights: true, precision: true, ..Caps::default() },
            ..Entry::<RegressionTask>::new(
                name,
                about,
                [&Objective::OPTIONS[..], &[&RANK], &KernelOptions::OPTIONS, &IterationOptions::OPTIONS].concat(),
                move |o, known| {
                    let (objective, rank) = (Objective::squared(o)?, o.take(&RANK)?);
                    let estimator = OnLandmarks { solver, rank, iteration: IterationOptions::of(o)? };
                    Regression::searched(o, known, objective, estimator)
                },
            )
        };
        [
            entry(
                "falkon",
                "Ridge regression on features of many landmark points, by conjugate gradients",
                LandmarkSolver::Falkon,
            ),
            entry("krill", "The same, preconditioned by a sketch of all rows", LandmarkSolver::Krill),
        ]
    }
}

impl UnderKernel for OnLandmarks {
    fn fit(&self, kernel: Kernel, objective: &Objective, points: &Points) -> Result<Outcome> {
        let Points { x, y, context, .. } = points;
        let landmarks = self.rank.unwrap_or(LANDMARKS).min(x.nrows());
        let usual = match self.solver {
            LandmarkSolver::EigenPro => Falkon::eigenpro(kernel, landmarks),
            solver => Falkon { solver, ..Falkon::new(kernel, landmarks) },
        };
        let falkon = Falkon {
            alpha: objective.alpha,
            class_weights: objective.class_weights.clone(),
            monitoring: points.monitoring(&self.iteration),
            tolerance: self.iteration.tolerance.unwrap_or(usual.tolerance),
            iterations: self.iteration.most.unwrap_or(usual.iterations),
            ..usual
        };
        let expected = falkon.memory(x.dim().into(), y, context).beside_the_process();
        let fitted = falkon.fit(*x, y, context)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        let (solver, convergence) = (self.solver.named(), fitted.convergence.clone());
        let outcome = Outcome::new(fitted, alpha, tried);
        Ok(Outcome { rank: Some(rank), solver, convergence, expected: Some(expected), ..outcome })
    }
}
