//! The iterative solvers of `mercer regress`: their options, and what they fit.

use crate::learning::Learning;
use crate::learnt::Learnt;
use crate::options::checkpoint_options::CheckpointOptions;
use crate::options::values::positive;
use crate::program::context::{peak_memory, resident_memory};
use crate::ways::{Solver, Way};
use clap::Args;
use mercer::apply::{EpochSolver, Falkon, Fit, HeldOutRows, LandmarkSolver, Memory, Monitoring, Ridge, RidgeSolver};
use mercer::data::{Dataset, Target};
use mercer::kernel::Kernel;
use mercer::{FitContext, Result};
use ndarray::ArrayView2;

/// Landmarks of Falkon by default.
const CENTRES: usize = 5000;

/// Options of iterative solvers.
#[derive(Args)]
pub struct Solving {
    /// Iterative solvers: relative residual to reach [default: cg 1e-8, in f32 1e-4; falkon, krill 1e-6; askotch, eigenpro,
    /// richardson 1e-3; eigenpro on landmarks 1e-2]
    #[arg(long, value_name = "NUMBER", value_parser = positive, allow_negative_numbers = true)]
    pub tolerance: Option<f64>,

    /// Iterative solvers: most products with the matrix, or epochs [default: cg 1000; falkon, krill 200; askotch, eigenpro,
    /// richardson 300; eigenpro on landmarks 20]
    #[arg(long, visible_alias = "epochs", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,

    #[command(flatten)]
    pub checkpointing: CheckpointOptions,
}

/// What is fitted under a kernel.
pub struct Solved<'a> {
    pub learning: &'a Learning,
    pub kernel: Kernel,
    /// `[n, d]`, or the rows of this rank
    pub x: ArrayView2<'a, f64>,
    pub y: &'a Target,
    /// Rows whose error is measured along the iterations.
    pub watched: Option<&'a Dataset>,
    /// Whether each rank has some of the points.
    pub is_sharded: bool,
    pub fit: &'a FitContext<'a>,
}

impl Solved<'_> {
    /// By the method that was named.
    pub fn learn(self) -> Result<Learnt> {
        match self.learning.method {
            Way::Askotch => self.by_epochs(EpochSolver::Askotch),
            Way::Richardson => self.by_epochs(EpochSolver::Richardson),
            Way::Eigenpro if self.learning.rank.is_none() => self.by_epochs(EpochSolver::EigenPro),
            Way::Eigenpro => self.on_landmarks(LandmarkSolver::EigenPro),
            Way::Falkon => self.on_landmarks(LandmarkSolver::Falkon),
            Way::Krill => self.on_landmarks(LandmarkSolver::Krill),
            _ => self.ridge(None),
        }
    }

    /// Kernel ridge regression on all points; by `chosen` where the options do not say otherwise.
    pub fn ridge(self, chosen: Option<RidgeSolver>) -> Result<Learnt> {
        let rank = self.learning.rank.map(|rank| rank as usize);
        let by_default = RidgeSolver::conjugate_gradients(self.fit.precision);
        let solver = match (self.learning.solver, chosen) {
            (Some(Solver::Direct), _) => RidgeSolver::Direct,
            (None, Some(chosen)) => chosen,
            (None, None) if rank.is_none() => RidgeSolver::Auto,
            _ => by_default,
        };
        let Solving { tolerance: asked, iterations: most, .. } = &self.learning.solving;
        // A tolerance, a limit or a checkpoint is for an iterative solver.
        let iterates = asked.is_some() || most.is_some() || self.learning.solving.checkpointing.checkpoint.is_some();
        let solver = if solver == RidgeSolver::Auto && iterates { by_default } else { solver };
        let solver = match solver {
            RidgeSolver::ConjugateGradients { tolerance, iterations, .. } => RidgeSolver::ConjugateGradients {
                tolerance: asked.unwrap_or(tolerance),
                iterations: most.map_or(iterations, |most| most as usize),
                rank,
            },
            other => other,
        };
        self.ridge_by(solver)
    }

    fn by_epochs(self, solver: EpochSolver) -> Result<Learnt> {
        let Solving { tolerance: asked, iterations: most, .. } = &self.learning.solving;
        let solver = match RidgeSolver::epochs(solver) {
            RidgeSolver::Epochs { solver, tolerance, epochs } => RidgeSolver::Epochs {
                solver,
                tolerance: asked.unwrap_or(tolerance),
                epochs: most.map_or(epochs, |most| most as usize),
            },
            other => other,
        };
        self.ridge_by(solver)
    }

    fn ridge_by(self, solver: RidgeSolver) -> Result<Learnt> {
        let (alpha, class_weights, monitoring) = (self.learning.alpha(), self.learning.weights(), self.monitoring());
        let ridge = Ridge { kernel: self.kernel, alpha, solver, centred: true, class_weights, monitoring };
        let expected = Some(in_all(ridge.memory(self.x.dim().into(), self.y, self.fit)));
        let fitted = match self.is_sharded {
            true => ridge.fit_sharded(self.x, self.y, self.fit)?,
            false => ridge.fit(self.x, self.y, self.fit)?,
        };
        let (alpha, tried, convergence) = (fitted.alpha, fitted.tried.clone(), fitted.convergence.clone());
        Ok(Learnt { convergence, expected, ..Learnt::new(fitted, alpha, tried) })
    }

    fn on_landmarks(self, solver: LandmarkSolver) -> Result<Learnt> {
        let Solving { tolerance, iterations, .. } = &self.learning.solving;
        let landmarks = self.learning.rank.map_or(CENTRES, |rank| rank as usize).min(self.x.nrows());
        let (alpha, class_weights, monitoring) = (self.learning.alpha(), self.learning.weights(), self.monitoring());
        let usual = match solver {
            LandmarkSolver::EigenPro => Falkon::eigenpro(self.kernel, landmarks),
            _ => Falkon { solver, ..Falkon::new(self.kernel, landmarks) },
        };
        let tolerance = tolerance.unwrap_or(usual.tolerance);
        let iterations = iterations.map_or(usual.iterations, |most| most as usize);
        let falkon = Falkon { alpha, class_weights, monitoring, tolerance, iterations, ..usual };
        let expected = Some(in_all(falkon.memory(self.x.dim().into(), self.y, self.fit)));
        let fitted = falkon.fit(self.x, self.y, self.fit)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        let convergence = fitted.convergence.clone();
        Ok(Learnt { rank: Some(rank), convergence, expected, ..Learnt::new(fitted, alpha, tried) })
    }

    /// The checkpoint that was asked for, and the rows to watch.
    fn monitoring(&self) -> Monitoring {
        let rows = self.watched.and_then(|data| Some((data, data.y.clone()?)));
        let held_out = rows.map(|(data, y)| HeldOutRows { x: data.x.to_f64().into_owned(), y });
        Monitoring { checkpoint: self.learning.solving.checkpointing.checkpoint(), held_out }
    }
}

/// What a fit takes beside what the program holds before it, and no less than it held at any time.
fn in_all(fit: Memory) -> Memory {
    let host = (resident_memory() + fit.host).max(peak_memory().unwrap_or(0));
    Memory { host, ..fit }
}

impl Learning {
    /// The iterative solver in words, and what it counts.
    pub fn solver_name(&self) -> (&'static str, &'static str) {
        match self.method {
            Way::Askotch => ("ASkotch", "epoch"),
            Way::Eigenpro => ("EigenPro", "epoch"),
            Way::Richardson => ("Richardson's iteration", "epoch"),
            Way::Falkon => ("Falkon", "product"),
            Way::Krill => ("KRILL", "product"),
            _ => ("conjugate gradients", "product"),
        }
    }
}
