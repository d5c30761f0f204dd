//! Iterative solvers that see a part of K at a time: of `(K + αI) C = Y`, and of regression on landmarks.
//!
//! | file | step |
//! |---|---|
//! | `richardson` | a preconditioned gradient step on all rows |
//! | `eigenpro` | a gradient step on a batch of rows, with the leading eigenvectors of a sample damped |
//! | `askotch` | the exact solution on a block of rows, accelerated |
//! | `delayed` | gradient steps on batches of rows, projected on the span of the landmarks after some of them |
//!
//! Each is an [`Epochs`]: an epoch takes as many kernel values as one product with K, or fewer where there are millions of rows. What they share is here: the tolerance, the limit, the
//! best iterate, the curve of residuals. Checkpoints, interrupts and progress are those of training (`training.rs`), which
//! conjugate gradients use too.
//!
//! Solvers are written once for both devices. They compute with a [`crate::linalg::Panel`], a few tall vectors in f64 on the device of the
//! context. Only matrices of the size of a basis come to the host.
//!
//! Landmarks (`apply/features/falkon.rs`): the products with `κ(X,Z)` and with the normalisation N of `φ = κ(x,Z)N` are taken one after the
//! other, `n M` numbers a product and not `n M²`. On a GPU with many landmarks, N is applied as two blocked triangular solves with the
//! Cholesky factor of `κ(Z,Z)`.
//!
//! A solver estimates its memory before it starts. On a GPU the estimate is the sequence of its requests (`plan`, `compute::cuda::PoolPlan`).

pub(crate) mod conjugate_gradients;
pub(crate) mod low_rank_preconditioner;
pub(crate) mod monitor;

mod askotch;
mod delayed;
mod eigenpro;
mod richardson;

pub(crate) use askotch::{Askotch, block_memory, plan as plan_askotch};
pub(crate) use delayed::{DelayedEigenPro, Landmarked, plan as plan_delayed};
pub(crate) use eigenpro::{EigenPro, plan as plan_eigenpro, sample_memory};
pub(crate) use richardson::Richardson;

use crate::apply::solvers::conjugate_gradients::{Converged, excess, largest};
use crate::apply::solvers::monitor::{Course, Monitor, SolverName, load_panel, save_panel};
use crate::bundle::Bundle;
use crate::linalg::{Panel, Part};
use crate::operator::Operator;
use crate::rng::Rng;
use crate::training::{Identity, Run, Task};
use crate::{FitContext, Result};
use std::cell::OnceCell;
use std::ops::Range;

/// An iterative solver of `(K + αI) C = Y` that sees a part of K at a time. Example: [`Ridge`](crate::apply::Ridge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochSolver {
    /// Richardson's iteration with the preconditioner of conjugate gradients: the plain one.
    Richardson,
    /// EigenPro 2 (Ma and Belkin, 2019): gradient steps on batches of rows, with the leading eigenvectors of a sample damped.
    EigenPro,
    /// ASkotch (Rathore and others, 2024): the exact solution on one block of rows after the other, accelerated.
    Askotch,
}

impl EpochSolver {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            EpochSolver::Richardson => "Richardson's iteration",
            EpochSolver::EigenPro => "EigenPro",
            EpochSolver::Askotch => "ASkotch",
        }
    }

    /// Its name, and what it counts.
    pub(crate) fn named(self) -> SolverName {
        SolverName { name: self.name(), unit: "epoch" }
    }

    /// Whether it takes blocks of rows, which must then come in random order.
    pub(crate) fn takes_blocks(self) -> bool {
        self != EpochSolver::Richardson
    }
}

/// `(K + αI) C = Y`
#[derive(Clone, Copy)]
pub(crate) struct Equations<'a> {
    /// K
    pub operator: &'a dyn Operator,
    /// α
    pub alpha: f64,
    /// Y `[n, m]`, on the device of the solver.
    pub y: &'a Panel,
}

impl Equations<'_> {
    /// `Y − (K + αI) C` `[rows, m]` in some rows, for `C` `[n, m]`.
    pub fn residual(&self, rows: &Part<'_>, c: &Panel) -> Result<Panel> {
        let product = self.operator.product_panel(rows, &Part::All, c)?;
        let mut r = self.y.rows(rows)?;
        r.subtract(&product);
        r.axpy(&vec![-self.alpha; c.ncols()], &c.rows(rows)?)?;
        Ok(r)
    }
}

/// A linear system whose solutions can be judged.
pub(crate) trait Judged {
    /// `‖b_j‖²` of the right-hand sides `[m]`.
    fn norms(&self) -> Result<Vec<f64>>;

    /// `‖b_j − A c_j‖²` `[m]` for `C` `[n, m]`.
    fn missed(&self, c: &Panel) -> Result<Vec<f64>>;
}

/// Rows from which the residual of many more is estimated.
const SAMPLED: usize = 65_536;

/// The rows of n from which the last residual is estimated; none where it is that of all.
pub(crate) fn rows_of_residual(n: usize) -> Option<usize> {
    (n > 16 * SAMPLED).then_some(SAMPLED)
}

impl Judged for Equations<'_> {
    fn norms(&self) -> Result<Vec<f64>> {
        squares(self.y)
    }

    /// From [`SAMPLED`] rows drawn at random where there are many more: their sum is that of all rows to a percent, and takes seconds where all
    /// rows would take as long as an epoch.
    fn missed(&self, c: &Panel) -> Result<Vec<f64>> {
        let n = c.nrows();
        let Some(count) = rows_of_residual(n) else {
            return squares(&self.residual(&Part::All, c)?);
        };
        let mut rows = Rng::new(n as u64).fork(0x7265_7369).sample(n, count);
        rows.sort_unstable();
        let sums = squares(&self.residual(&Part::Rows(&rows), c)?)?;
        Ok(sums.into_iter().map(|sum| sum * n as f64 / count as f64).collect())
    }
}

/// A solver that goes over the rows again and again.
pub(crate) trait Epochs {
    /// Which one it is.
    fn kind(&self) -> EpochSolver;

    /// Improves `c` `[n, m]`; returns the sum of the squared residuals of every column `[m]` over all rows, as they were seen on the way.
    fn epoch(&mut self, c: &mut Panel) -> Result<Vec<f64>>;

    /// Puts what changes from epoch to epoch, beside `c`, into a checkpoint.
    fn save(&self, bundle: &mut Bundle) -> Result<()>;

    /// Takes it out again, for `c` like this one.
    fn load(&mut self, bundle: &Bundle, like: &Panel) -> Result<()>;
}

/// Runs epochs from `start` `[n, m]` until every `‖b − Ac‖ ≤ tolerance·‖b‖`, at most `limit` of them. Where they end before, the
/// result is the best iterate with its true residual, estimated from a sample of rows where there are more than a million.
pub(crate) fn run(
    solver: &mut dyn Epochs,
    equations: &dyn Judged,
    start: Panel,
    (tolerance, limit): (f64, usize),
    monitor: Monitor,
    context: &FitContext,
) -> Result<Converged> {
    let (norms, saving, c) = (OnceCell::new(), monitor.saving(), start.try_clone()?);
    let (course, reached, ended) = (monitor.begin(), None, false);
    let mut passes = Passes { solver, equations, norms, tolerance, limit, start, c, course, reached, ended };
    let mut run = Run::new(&mut passes, saving, context)?;
    run.run(&mut passes)?;
    passes.finish()
}

/// `‖a_j‖²` of the columns of `a` `[n, m]`.
fn squares(a: &Panel) -> Result<Vec<f64>> {
    Ok(a.dots(a)?.to_vec())
}

/// Times the best residual at which an iteration has diverged.
const DIVERGED: f64 = 1e4;

/// A run of epochs.
struct Passes<'a> {
    solver: &'a mut dyn Epochs,
    equations: &'a dyn Judged,
    /// `‖b_j‖²` `[m]`, from the first time that they are needed.
    norms: OnceCell<Vec<f64>>,
    tolerance: f64,
    limit: usize,
    /// `[n, m]`
    start: Panel,
    /// The iterate `[n, m]`.
    c: Panel,
    /// Its best iterate is that with the least residual that was seen.
    course: Course<'a>,
    /// The true residual of the best iterate, where it was measured.
    reached: Option<f64>,
    /// Whether it has converged or diverged.
    ended: bool,
}

impl Passes<'_> {
    /// `‖b_j‖²` `[m]`
    fn norms(&self) -> Result<&[f64]> {
        if let Some(norms) = self.norms.get() {
            return Ok(norms);
        }
        let norms = self.equations.norms()?;
        Ok(self.norms.get_or_init(|| norms))
    }

    /// The largest `‖r‖/‖b‖` of the columns, from the squares of the residuals `[m]`.
    fn relative(&self, sums: &[f64]) -> Result<f64> {
        Ok(largest(sums.iter().zip(self.norms()?).map(|(r, y)| excess(r.sqrt(), y.sqrt()))))
    }

    /// The true residual of `c` `[n, m]`.
    fn measured(&self, c: &Panel) -> Result<f64> {
        if c.all_within(0.0)? {
            return self.relative(self.norms()?);
        }
        self.relative(&self.equations.missed(c)?)
    }

    /// The best iterate and its true residual.
    fn finish(mut self) -> Result<Converged> {
        let mut x = match self.course.best.take() {
            Some((_, c)) => c,
            None => self.start.try_clone()?,
        };
        let mut residual = match self.reached {
            Some(reached) => reached,
            None => self.measured(&x)?,
        };
        // What was seen on the way may be less than what an iteration that was cut short has reached.
        let of_start = self.measured(&self.start)?;
        if residual.is_nan() || residual > of_start {
            (x, residual) = (self.start, of_start);
        }
        let Course { curve, held_out, .. } = self.course;
        Ok(Converged { x, iterations: curve.len(), residual, curve, held_out })
    }
}

impl Task for Passes<'_> {
    fn name(&self) -> String {
        self.solver.kind().name().into()
    }

    fn identity(&self) -> Identity {
        self.course.monitor.identity()
    }

    fn steps(&self) -> (u64, u64) {
        (self.course.curve.len() as u64, self.limit as u64)
    }

    fn advance(&mut self) -> Result<()> {
        let sums = self.solver.epoch(&mut self.c)?;
        let seen = self.relative(&sums)?;
        let least = self.course.least();
        if !(seen.is_finite() && seen < DIVERGED * least.min(1.0)) {
            self.course.curve.extend(seen.is_finite().then_some(seen));
            self.ended = true;
            return Ok(());
        }
        self.course.curve.push(seen);
        if seen < least {
            self.course.best = Some((seen, self.c.try_clone()?));
        }
        // What was seen on the way is that of earlier iterates: the true residual decides.
        if seen <= self.tolerance {
            let reached = self.measured(&self.c)?;
            if reached <= self.tolerance {
                self.course.best = Some((0.0, self.c.try_clone()?));
                (self.ended, self.reached) = (true, Some(reached));
            }
        }
        Ok(())
    }

    fn due(&self) -> bool {
        let diverged = self.ended && self.course.least() > 0.0;
        !diverged && self.course.due(self.ended)
    }

    fn validate(&mut self) -> Result<()> {
        self.course.validate(&self.c)
    }

    fn converged(&self) -> bool {
        self.ended
    }

    fn excess(&self) -> Option<f64> {
        Some(self.course.curve.last().map_or(f64::INFINITY, |seen| excess(*seen, self.tolerance)))
    }

    fn has_result(&self) -> bool {
        self.course.best.is_some()
    }

    fn report(&mut self, _: f64, _: f64) -> Result<String> {
        Ok(self.course.note())
    }

    fn save(&mut self, bundle: &mut Bundle) -> Result<()> {
        self.course.save(bundle)?;
        bundle.set("ended", self.ended);
        // An iterate that diverged may not be finite, and is not needed again.
        if !self.ended {
            save_panel(bundle, "x", &self.c)?;
            self.solver.save(bundle)?;
        }
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        self.ended = bundle.value("ended")?;
        self.course.load(bundle, &self.start)?;
        if !self.ended {
            self.c = load_panel(bundle, "x", &self.start)?;
            self.solver.load(bundle, &self.start)?;
        }
        Ok(())
    }
}

/// `0..n` in blocks of about `size`.
fn blocks(n: usize, size: usize) -> Vec<Range<usize>> {
    let count = n.div_ceil(size.max(1)).max(1);
    (0..count).map(|i| i * n / count..(i + 1) * n / count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
    use crate::compute::Device;
    use crate::kernel::Kernel;
    use crate::linalg::Cholesky;
    use crate::operator::DenseOperator;
    use ndarray::Array2;

    fn normal(n: usize, d: usize, seed: u64) -> Array2<f64> {
        Rng::new(seed).normals((n, d))
    }

    /// Every solver on K, from zero.
    fn solve(
        equations: &Equations,
        tolerance: f64,
        limit: usize,
        context: &FitContext,
    ) -> Vec<(&'static str, Converged)> {
        let low_rank = LowRankPreconditioner::new(equations.operator, 60, context).unwrap();
        let solve = |solver: &mut dyn Epochs| {
            let start = Panel::zeros(Device::Cpu, [equations.y.nrows(), equations.y.ncols()]).unwrap();
            (
                solver.kind().name(),
                run(solver, equations, start, (tolerance, limit), Monitor::default(), context).unwrap(),
            )
        };
        vec![
            solve(&mut Richardson::new(equations, &low_rank, context)),
            solve(&mut EigenPro::new(equations, context).unwrap()),
            solve(&mut Askotch::new(equations, context).unwrap()),
        ]
    }

    #[test]
    fn every_solver_reaches_the_direct_solution() {
        let (x, mut y) = (normal(150, 3, 1), normal(150, 2, 2));
        y.column_mut(1).fill(0.0);
        let context = FitContext::default();
        for (text, alpha) in [("rbf(1.5)", 0.1), ("matern32(2)", 0.05), ("ntk(depth=2)", 0.5)] {
            let kernel = Kernel::parse(text).unwrap();
            let free = context.kernel_operator(&kernel, x.view()).unwrap();
            let dense = DenseOperator::new(free.to_dense(&crate::Silent).unwrap());
            let a = dense.matrix().to_owned() + Array2::<f64>::eye(150) * alpha;
            let direct = Cholesky::new(Device::Cpu, a.view()).unwrap().solve(y.view()).unwrap();
            for operator in [&free as &dyn Operator, &dense] {
                let y = Panel::from(y.clone());
                let equations = Equations { operator, alpha, y: &y };
                for (name, found) in solve(&equations, 1e-4, 3000, &context) {
                    assert!(found.residual <= 1e-4, "{name} on {text}: {:e} in {}", found.residual, found.iterations);
                    let c = found.x.into_host().unwrap();
                    let off = (&c - &direct).mapv(|v| v * v).sum().sqrt() / direct.mapv(|v| v * v).sum().sqrt();
                    assert!(off < 5e-3, "{name} on {text}: {off}");
                    assert!(c.column(1).iter().all(|v| *v == 0.0));
                    assert_eq!(found.curve.len(), found.iterations);
                    assert!(found.curve.last() < found.curve.first());
                }
            }
        }
    }

    #[test]
    fn an_early_end_has_the_best_iterate_and_its_true_residual() {
        let (x, y) = (normal(200, 2, 3), normal(200, 1, 4));
        let context = FitContext::default();
        let operator = context.kernel_operator(&Kernel::parse("rbf(1)").unwrap(), x.view()).unwrap();
        let right = Panel::from(y.clone());
        let equations = Equations { operator: &operator, alpha: 1e-3, y: &right };
        for (name, found) in solve(&equations, 1e-12, 20, &context) {
            assert_eq!(found.iterations, 20, "{name}");
            let c = found.x.into_host().unwrap();
            let r = equations.residual(&Part::All, &c.into()).unwrap().into_host().unwrap();
            let want = (r.mapv(|r| r * r).sum() / y.mapv(|y| y * y).sum()).sqrt();
            assert!((found.residual - want).abs() < 1e-12 && want <= 1.0 && want > 1e-12, "{name}: {want}");
        }
    }

    #[test]
    fn an_interrupt_keeps_the_best_iterate() {
        let (x, y) = (normal(100, 2, 5), normal(100, 1, 6));
        let flag = crate::Interrupt::new();
        struct Third<'a>(&'a crate::Interrupt);
        impl crate::Progress for Third<'_> {
            fn step(&self, what: &str, done: usize, _: usize, _: &str) {
                if done == 3 && !what.contains("approximation") {
                    assert!(self.0.request());
                }
            }
        }
        let progress = Third(&flag);
        let context = FitContext { interrupt: Some(&flag), progress: &progress, ..FitContext::default() };
        let operator = context.kernel_operator(&Kernel::parse("matern12(1)").unwrap(), x.view()).unwrap();
        let y = Panel::from(y);
        let equations = Equations { operator: &operator, alpha: 1e-3, y: &y };
        let mut solver = Askotch::new(&equations, &context).unwrap();
        let start = Panel::from(Array2::zeros((100, 1)));
        let found = run(&mut solver, &equations, start, (1e-12, 500), Monitor::default(), &context).unwrap();
        assert!(found.iterations == 3 && found.residual < 1.0, "{} {}", found.iterations, found.residual);
    }

    #[test]
    fn blocks_are_all_rows_once() {
        for (n, size) in [(10, 3), (9, 3), (1, 100), (1000, 7)] {
            let all: Vec<usize> = blocks(n, size).into_iter().flatten().collect();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
            assert!(blocks(n, size).iter().all(|b| b.len() <= size && !b.is_empty()));
        }
    }
}
