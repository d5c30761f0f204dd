//! Kernel ridge regression on all points by the names of its solvers: ridge, askotch, eigenpro, richardson.

use crate::apply::regression::of_matrix::OfMatrix;
use crate::apply::regression::on_landmarks::OnLandmarks;
use crate::apply::regression::outcome::Outcome;
use crate::apply::regression::{
    IterationOptions, KernelOptions, Objective, Points, RANK, Regression, RegressionTask, UnderKernel,
};
use crate::apply::{EpochSolver, Fit, LandmarkSolver, Ridge, RidgeSolver};
use crate::kernel::Kernel;
use crate::options::{Caps, Entry, Kind, Opt, Options};
use crate::{Error, Result, fail_if};

pub(crate) static SOLVER: Opt = Opt::new(
    "solver",
    "SOLVER",
    Kind::Word(|| DenseSolver::NAMED.map(|(word, _)| word).to_vec()),
    "how the linear system of ridge is solved [default: by size and memory]",
);

/// The solvers that have a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenseSolver {
    /// Dense factorisation.
    Direct,
    /// Preconditioned conjugate gradients; the kernel matrix need not be stored.
    ConjugateGradients,
}

impl DenseSolver {
    const NAMED: [(&'static str, DenseSolver); 2] =
        [("direct", DenseSolver::Direct), ("cg", DenseSolver::ConjugateGradients)];
}

/// How the linear system of all points is solved.
pub(crate) struct OnAllPoints {
    /// By its word, where one is given.
    pub solver: Option<DenseSolver>,
    /// Rank of the preconditioner, where it is given.
    pub rank: Option<usize>,
    pub iteration: IterationOptions,
    pub intercept: bool,
}

/// By a solver that sees a part of K at a time.
struct ByEpochs {
    solver: EpochSolver,
    iteration: IterationOptions,
    intercept: bool,
}

impl Ridge {
    pub(crate) fn entry() -> Entry<RegressionTask> {
        Entry {
            can: Caps {
                numbers: true,
                classes: true,
                weights: true,
                precision: true,
                matrix: true,
                shards: true,
                no_intercept: true,
                ..Caps::default()
            },
            ..Entry::<RegressionTask>::new(
                "ridge",
                "Kernel ridge regression on all points",
                OnAllPoints::options(),
                |o, known| {
                    if known.matrix {
                        return OnAllPoints::of_matrix(o, known);
                    }
                    let objective = Objective::squared(o)?;
                    let estimator = OnAllPoints::of(o, known)?;
                    Regression::searched(o, known, objective, estimator)
                },
            )
        }
    }

    /// The solvers that see a part of K at a time.
    pub(crate) fn entries_by_epochs() -> [Entry<RegressionTask>; 3] {
        let entry = |name, about, solver, own: &[&'static Opt]| Entry {
            can: Caps {
                numbers: true,
                classes: true,
                weights: true,
                precision: true,
                shards: true,
                no_intercept: true,
                ..Caps::default()
            },
            ..Entry::<RegressionTask>::new(
                name,
                about,
                [&Objective::OPTIONS[..], own, &KernelOptions::OPTIONS, &IterationOptions::OPTIONS].concat(),
                move |o, known| {
                    let (objective, rank) = (Objective::squared(o)?, o.take(&RANK)?);
                    let iteration = IterationOptions::of(o)?;
                    let intercept = known.intercept.unwrap_or(true);
                    if rank.is_none() {
                        return Regression::searched(o, known, objective, ByEpochs { solver, iteration, intercept });
                    }
                    fail_if!(
                        !intercept,
                        "a model on landmarks has an intercept; leave {} out, or the intercept in",
                        o.option(&RANK)
                    );
                    let estimator = OnLandmarks { solver: LandmarkSolver::EigenPro, rank, iteration };
                    Regression::searched(o, known, objective, estimator)
                },
            )
        };
        [
            entry(
                "askotch",
                "Kernel ridge regression on all points by ASkotch: the exact solution on one block of rows after the other, accelerated",
                EpochSolver::Askotch,
                &[],
            ),
            entry(
                "eigenpro",
                "The same by EigenPro: gradient steps on batches of rows, with the leading eigenvectors damped; with a rank, on landmark points",
                EpochSolver::EigenPro,
                &[&RANK],
            ),
            entry("richardson", "The same by Richardson's iteration", EpochSolver::Richardson, &[]),
        ]
    }
}

impl OnAllPoints {
    /// The options of [`OnAllPoints::of`], with the objective and the kernels.
    pub fn options() -> Vec<&'static Opt> {
        let [loss, alpha, class_weight, cv] = Objective::OPTIONS;
        let first = [loss, alpha, &RANK, class_weight, cv];
        [&first[..], &KernelOptions::OPTIONS, &[&SOLVER], &IterationOptions::OPTIONS].concat()
    }

    /// The solver that the options ask for; the direct one refuses options of iterative ones.
    pub fn of(o: &mut Options, known: &RegressionTask) -> Result<OnAllPoints> {
        let solver = o.take_word(&SOLVER, &DenseSolver::NAMED)?;
        let iterative = [&[&RANK][..], &IterationOptions::OPTIONS].concat();
        if let (Some(DenseSolver::Direct), Some(given)) = (solver, o.given(&iterative)) {
            let [cg, direct] = ["cg", "direct"].map(|word| o.spelling().set(SOLVER.name, word));
            return Err(Error::input(format!("{} is for {cg}; {direct} takes none", o.option(given))));
        }
        let (rank, iteration) = (o.take(&RANK)?, IterationOptions::of(o)?);
        Ok(OnAllPoints { solver, rank, iteration, intercept: known.intercept.unwrap_or(true) })
    }

    /// Ridge regression of a kernel matrix, which takes the options of the objective only.
    pub fn of_matrix(o: &mut Options, known: &RegressionTask) -> Result<Regression> {
        let others = [&[&RANK, &SOLVER][..], &KernelOptions::OPTIONS, &IterationOptions::OPTIONS].concat();
        if let Some(given) = o.given(&others) {
            return Err(Error::input(format!(
                "{} is for points and a kernel expression; a kernel matrix takes no such option",
                o.option(given)
            )));
        }
        let objective = Objective::squared(o)?;
        Ok(Regression::new(vec![], OfMatrix { objective, intercept: known.intercept.unwrap_or(true) }))
    }

    /// The solver; `chosen` where the options do not say otherwise.
    fn solver(&self, chosen: Option<RidgeSolver>, points: &Points) -> RidgeSolver {
        let by_default = RidgeSolver::conjugate_gradients(points.context.precision);
        let solver = match (self.solver, chosen) {
            (Some(DenseSolver::Direct), _) => RidgeSolver::Direct,
            (None, Some(chosen)) => chosen,
            (None, None) if self.rank.is_none() => RidgeSolver::Auto,
            _ => by_default,
        };
        // A tolerance, a limit or a checkpoint is for an iterative solver.
        let solver = if solver == RidgeSolver::Auto && self.iteration.is_given() { by_default } else { solver };
        match solver {
            RidgeSolver::ConjugateGradients { tolerance, iterations, .. } => RidgeSolver::ConjugateGradients {
                tolerance: self.iteration.tolerance.unwrap_or(tolerance),
                iterations: self.iteration.most.unwrap_or(iterations),
                rank: self.rank,
            },
            other => other,
        }
    }

    /// By `chosen` where the options do not say otherwise.
    pub fn fit_by(
        &self,
        chosen: Option<RidgeSolver>,
        kernel: Kernel,
        objective: &Objective,
        points: &Points,
    ) -> Result<Outcome> {
        let solver = self.solver(chosen, points);
        fit(kernel, solver, self.intercept, &self.iteration, objective, points)
    }
}

/// Kernel ridge regression on all points.
fn fit(
    kernel: Kernel,
    solver: RidgeSolver,
    centred: bool,
    iteration: &IterationOptions,
    objective: &Objective,
    points: &Points,
) -> Result<Outcome> {
    let Points { x, y, context, .. } = points;
    let Objective { alpha, class_weights, .. } = objective.clone();
    let ridge = Ridge { kernel, alpha, solver, centred, class_weights, monitoring: points.monitoring(iteration) };
    let expected = ridge.memory(x.dim().into(), y, context).beside_the_process();
    let fitted = match points.is_sharded {
        true => ridge.fit_sharded(*x, y, context)?,
        false => ridge.fit(*x, y, context)?,
    };
    let (alpha, tried, convergence) = (fitted.alpha, fitted.tried.clone(), fitted.convergence.clone());
    Ok(Outcome { convergence, expected: Some(expected), ..Outcome::new(fitted, alpha, tried) })
}

impl UnderKernel for OnAllPoints {
    fn fit(&self, kernel: Kernel, objective: &Objective, points: &Points) -> Result<Outcome> {
        self.fit_by(None, kernel, objective, points)
    }

    fn shards(&self) -> bool {
        self.solver == Some(DenseSolver::ConjugateGradients)
    }
}

impl UnderKernel for ByEpochs {
    fn fit(&self, kernel: Kernel, objective: &Objective, points: &Points) -> Result<Outcome> {
        let RidgeSolver::Epochs { solver, tolerance, epochs } = RidgeSolver::epochs(self.solver) else {
            unreachable!("it is one by epochs")
        };
        let tolerance = self.iteration.tolerance.unwrap_or(tolerance);
        let epochs = self.iteration.most.unwrap_or(epochs);
        let by = RidgeSolver::Epochs { solver, tolerance, epochs };
        let outcome = fit(kernel, by, self.intercept, &self.iteration, objective, points)?;
        Ok(Outcome { solver: self.solver.named(), ..outcome })
    }

    fn shards(&self) -> bool {
        true
    }
}
