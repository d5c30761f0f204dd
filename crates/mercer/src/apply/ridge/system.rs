//! The linear system `(K + αI) c = y` of ridge regression: solved directly or by conjugate gradients, α given or chosen.
//!
//! With weights w of the rows it is `(K + αW⁻¹) c = y`. In the units `c = √w c̃`, `y = ỹ/√w` and `K̃ = √w K √w` that is
//! `(K̃ + αI) c̃ = ỹ` again, and so are its left-out errors: `Σ_i w_i e_i²` is the sum of those of `ỹ`.

use crate::apply::alpha::{best, cross_validate_paths, grid, risen_twice, squared_error};
use crate::apply::ridge::sharded_points::ShardedPoints;
use crate::apply::solvers::conjugate_gradients::{Converged, Shifted};
use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
use crate::apply::solvers::monitor::{HeldOut, Kept, Monitor, Watch};
use crate::apply::solvers::{
    Askotch, EigenPro, Epochs, Equations, Richardson, block_memory, rows_of_residual, run, sample_memory,
};
use crate::apply::{Alpha, Convergence, EpochSolver, Tried};
use crate::kernel::Kernel;
use crate::linalg::{Panel, Sharding};
use crate::operator::{Operator, Pair, Precision, Scaled};
use crate::rng::Rng;
use crate::training::{Fingerprint, Identity, Saving};
use crate::{FitContext, KeepsBest, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// c, and how it was found.
pub(crate) struct Solved {
    pub alpha: f64,
    pub tried: Vec<Tried>,
    pub coefficients: Array2<f64>,
    pub convergence: Convergence,
    /// The prediction of each point from the others `[n, m]`, where they were asked for.
    pub left_out: Option<Array2<f64>>,
    /// Warnings.
    pub notes: Vec<String>,
}

/// What is found before an iteration begins; its checkpoint keeps it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub alpha: f64,
    pub tried: Vec<Tried>,
    pub notes: Vec<String>,
    /// Whether kernel values are in double precision.
    pub double: bool,
}

/// A regression to be solved.
#[derive(Clone, Copy)]
pub(crate) struct System<'a> {
    pub kernel: &'a Kernel,
    /// The points X of this process `[n_r, d]`, and how they are sharded
    pub x: ArrayView2<'a, f64>,
    pub sharding: &'a Sharding,
    /// ỹ `[n, m]`, on every rank
    pub y: ArrayView2<'a, f64>,
    /// `√w` `[n]`; one for each row without them.
    pub roots: Option<&'a Array1<f64>>,
    /// Whether the predictions of left-out points are wanted.
    pub left_out: bool,
    /// Rows whose error is measured along an iteration.
    pub held_out: Option<&'a HeldOut<'a>>,
    /// Where the state of an iteration is kept.
    pub saving: Saving<'a>,
    pub context: &'a FitContext<'a>,
}

/// Points above which cross-validation by conjugate gradients looks at one fold only: it holds thousands of points, and all of them
/// would take `folds` times as long.
const MANY: usize = 20_000;

/// Settings of an iterative solver: the relative residual to reach, the most products or epochs, the rank of the preconditioner.
pub(crate) struct Iteration {
    /// Without it, conjugate gradients.
    pub method: Option<EpochSolver>,
    pub tolerance: f64,
    pub limit: usize,
    pub rank: usize,
}

impl Iteration {
    /// The solver in words.
    fn name(&self) -> &'static str {
        self.method.map_or("conjugate gradients", EpochSolver::name)
    }

    /// The rank of the preconditioner, where the solver has one, or where points are left out by it.
    pub fn rank_needed(&self, leaves_out: bool) -> Option<usize> {
        (leaves_out || !self.method.is_some_and(EpochSolver::takes_blocks)).then_some(self.rank)
    }

    /// Bytes for `n` points and `m` targets besides the matrix: the factor of the preconditioner, its orthonormal form, and about eight blocks of
    /// vectors; a checkpoint has six more.
    pub fn memory(&self, [n, m]: [u64; 2], leaves_out: bool, kept: bool) -> u64 {
        let rank = self.rank_needed(leaves_out).unwrap_or(0) as u64;
        8 * n * (2 * rank + if kept { 14 } else { 8 } * m)
    }

    /// Bytes that its method takes beside vectors, for `n` points of `d` columns: solvers that take blocks of rows have the points in another
    /// order, and decompose a block or a sample.
    pub fn memory_of_method(&self, [n, d]: [usize; 2]) -> u64 {
        let decomposed = match self.method {
            Some(EpochSolver::Askotch) => block_memory(n),
            Some(EpochSolver::EigenPro) => sample_memory(n),
            _ => return 0,
        };
        (8 * n as u64).saturating_mul(d as u64).saturating_add(decomposed)
    }

    /// Whether the residual that was reached is above the one asked for.
    pub fn missed(&self, residual: Option<f64>) -> bool {
        residual.is_some_and(|residual| residual > self.tolerance)
    }

    /// A warning where the iteration ended early: whether it was interrupted, and with a checkpoint.
    pub fn note(&self, found: &Convergence, interrupted: (bool, bool)) -> Option<String> {
        let [was, unit] = if self.method.is_some() { ["was", "epochs"] } else { ["were", "products"] };
        let advice = concat!(
            "use ",
            crate::advice!(MoreIterations),
            ", ",
            crate::advice!(HigherRank),
            " or ",
            crate::advice!(LargerAlpha)
        );
        found.early_end([self.name(), was, unit], self.tolerance, interrupted, advice)
    }

    /// What the residual is of, where it is not of all n rows.
    pub fn note_on_residual(&self, n: usize) -> Option<String> {
        let rows = self.method.and_then(|_| rows_of_residual(n))?;
        Some(format!(
            "the relative residual is estimated from {rows} of {n} rows, drawn at random, which tell it to about a percent"
        ))
    }
}

impl System<'_> {
    pub fn n(&self) -> usize {
        self.y.nrows()
    }

    fn points(&self) -> ShardedPoints<'_> {
        ShardedPoints::new(self.x, self.sharding)
    }

    /// Whether the rounding of kernel values, times coefficients `c` `[n, m]`, changes predictions by more than a thousandth of
    /// the targets: the errors of n values are independent, so they add up to `ε κ ‖c‖`.
    pub fn too_coarse(&self, c: ArrayView2<f64>) -> Result<bool> {
        const MOST: f64 = 1e-3;
        if self.context.precision != Precision::F32 {
            return Ok(false);
        }
        let square = |v: ArrayView1<f64>| v.dot(&v);
        let error = self.context.roundoff() * self.points().mean_diagonal(self.kernel, self.context)?;
        let mut columns = c.columns().into_iter().zip(self.y.columns());
        Ok(columns.any(|(c, y)| error * square(c).sqrt() > MOST * (square(y) / y.len() as f64).sqrt()))
    }

    /// What must agree between a checkpoint and the run that continues it; nothing without a checkpoint.
    pub fn identity(&self, alpha: Alpha, iteration: &Iteration) -> Result<Identity> {
        if self.saving.path.is_none() {
            return Ok(vec![]);
        }
        let bits = |a: ArrayView2<f64>| Fingerprint::of(a.iter().map(|v| v.to_bits()));
        let targets = bits(self.y).then(self.roots.into_iter().flatten().map(|w| w.to_bits()));
        let FitContext { precision, seed, device, .. } = *self.context;
        let identity = [
            ("method", iteration.name().to_owned()),
            ("kernel", self.kernel.to_string()),
            ("rows", self.points().dim().0.to_string()),
            ("columns", self.points().dim().1.to_string()),
            ("data", self.points().fingerprint()?.to_string()),
            ("targets", targets.to_string()),
            ("held-out rows", self.held_out.map_or("none".into(), |rows| rows.fingerprint().to_string())),
            ("alpha", alpha.to_string()),
            ("tolerance", iteration.tolerance.to_string()),
            ("rank", iteration.rank.to_string()),
            ("precision", format!("{precision:?}")),
            ("seed", seed.to_string()),
            ("device", device.to_string()),
        ];
        Ok(identity.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// By an iterative solver, with α of `plan` where it was found before. The preconditioner's low-rank approximation of K gives
    /// leave-one-out for all α.
    pub fn iterative(
        &self,
        alpha: Alpha,
        plan: Option<Plan>,
        iteration: &Iteration,
        identity: &Identity,
    ) -> Result<Solved> {
        fail_if!(
            alpha == Alpha::Fixed(0.0),
            "{} need a ridge α above 0; use the direct solver for α = 0",
            iteration.name()
        );
        if iteration.method.is_some_and(EpochSolver::takes_blocks) {
            return self.shuffled(alpha, plan, iteration, identity);
        }
        self.in_order(alpha, plan, iteration, identity)
    }

    /// The rows in random order, so that every block of them is a sample.
    fn shuffled(&self, alpha: Alpha, plan: Option<Plan>, iteration: &Iteration, identity: &Identity) -> Result<Solved> {
        let n = self.n();
        let order = Rng::new(self.context.seed).fork(0x7368_7566).sample(n, n);
        let mut place = vec![0; n];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        let (points, y) = (self.points().in_order(&order)?, self.y.select(Axis(0), &order));
        let roots = self.roots.map(|roots| roots.select(Axis(0), &order));
        let system = System {
            x: points.view().own(),
            sharding: points.view().sharding(),
            y: y.view(),
            roots: roots.as_ref(),
            ..*self
        };
        let solved = system.in_order(alpha, plan, iteration, identity)?;
        let back = |rows: &Array2<f64>| rows.select(Axis(0), &place);
        let (coefficients, left_out) = (back(&solved.coefficients), solved.left_out.as_ref().map(back));
        Ok(Solved { coefficients, left_out, ..solved })
    }

    fn in_order(&self, alpha: Alpha, plan: Option<Plan>, iteration: &Iteration, identity: &Identity) -> Result<Solved> {
        let searched = match (&plan, alpha) {
            (None, Alpha::CrossValidation { folds }) => Some(self.cross_validated_paths(folds, iteration)?),
            _ => None,
        };
        let leaves_out = self.left_out || (plan.is_none() && alpha == Alpha::LeaveOneOut);
        let (operator, preconditioner) = self.prepared(iteration, leaves_out)?;
        let low_rank = || preconditioner.as_ref().expect("prepared where points are left out");
        let double = self.context.precision == Precision::F64;
        let planned = |(alpha, tried), notes| Plan { alpha, tried, notes, double };
        let plan = match (plan, searched, alpha) {
            (Some(plan), ..) => Plan { double, ..plan },
            (None, Some((tried, note)), _) => planned(best(tried)?, note.into_iter().collect()),
            (None, None, Alpha::Fixed(alpha)) => planned((alpha, vec![]), vec![]),
            (None, None, _) => {
                let grid = grid(self.points().mean_diagonal(self.kernel, self.context)?);
                planned(best(low_rank().left_out_error(&grid, self.y)?)?, vec![])
            }
        };
        let found = self.monitored(operator.as_ref(), preconditioner.as_ref(), &plan, iteration, identity)?;
        let Plan { alpha, tried, notes, .. } = plan;
        let left_out = self.left_out.then(|| low_rank().left_out_scores(alpha, self.y));
        let convergence = Convergence::of(&found);
        let coefficients = found.x.into_host()?;
        Ok(Solved { alpha, tried, coefficients, convergence, left_out: left_out.transpose()?, notes })
    }

    /// The error of each α on left-out folds, and a note on an interrupt.
    fn cross_validated_paths(&self, folds: usize, iteration: &Iteration) -> Result<(Vec<Tried>, Option<String>)> {
        let n = self.n();
        // All folds would take as many times as long, and one of them holds thousands of points.
        let looked_at = if n > MANY { 1 } else { folds };
        cross_validate_paths(n, (folds, looked_at), self.context, |context, rest, out| {
            System { context, ..*self }.path(rest, out, iteration)
        })
    }

    /// The iteration from zero, with its checkpoint and the error on held-out rows.
    fn monitored(
        &self,
        operator: &dyn Operator,
        preconditioner: Option<&LowRankPreconditioner>,
        plan: &Plan,
        iteration: &Iteration,
        identity: &Identity,
    ) -> Result<Converged> {
        let (identity, value) = (identity.clone(), serde_json::to_value(plan).expect("plain data"));
        let kept = Kept { saving: self.saving, identity, plan: value };
        let FitContext { precision, device, .. } = *self.context;
        let (points, sharding) = (self.x, self.sharding);
        let watched = self.held_out.map(|rows| {
            let pair = Pair::new(self.kernel, rows.x.view(), points, precision, device)?;
            let own = |roots: &Array1<f64>| sharding.own(roots.view().insert_axis(Axis(1))).to_owned();
            let roots = self.roots.map(|roots| Panel::from_host(device, own(roots)));
            Ok::<_, crate::Error>((rows, pair, roots.transpose()?))
        });
        let watched = watched.transpose()?;
        let error = |c: &Panel| {
            let (rows, pair, roots) = watched.as_ref().expect("watched where there are rows");
            let mut weighted = c.own_panel()?;
            roots.iter().for_each(|roots| weighted.scale_rows(roots));
            let mut predicted = pair.apply(&weighted)?.into_host()?;
            sharding.sum(predicted.as_slice_mut().expect("own array"))?;
            rows.error(predicted)
        };
        let watch = self.held_out.map(|rows| Watch { every: rows.every(self.n()), error: &error });
        let kept = self.saving.path.is_some().then_some(&kept);
        let monitor = Monitor { kept, watch, record: None };
        let start = self.zeros(operator)?;
        self.iterate(operator, preconditioner, plan.alpha, start, iteration, monitor)
    }

    /// The start of an iteration, `[n, m]`.
    fn zeros(&self, operator: &dyn Operator) -> Result<Panel> {
        let (sharding, (n, m)) = (operator.sharding(), self.y.dim());
        Panel::sharded(self.context.device, &sharding, Array2::zeros((sharding.rows(n).len(), m)))
    }

    /// The operator, and a preconditioner for any α where the solver has one or `leaves_out` says that points are left out by it.
    fn prepared(
        &self,
        iteration: &Iteration,
        leaves_out: bool,
    ) -> Result<(Box<dyn Operator + '_>, Option<LowRankPreconditioner>)> {
        let (n, held) = (self.n(), self.points().own().nrows() as u64);
        let rank = iteration.rank_needed(leaves_out);
        let vectors = iteration.memory([held, self.y.ncols() as u64], leaves_out, self.saving.path.is_some());
        let other = vectors + iteration.memory_of_method([held as usize, self.x.ncols()]);
        let (what, advice) = match rank {
            Some(rank) => (format!("the preconditioner of rank {rank} for {n} points"), "use a smaller rank"),
            None => (format!("the iterates of {} for {n} points", iteration.name()), "fit fewer points"),
        };
        self.context.budget.require(what, other, advice)?;
        let operator = self.scaled(self.points().operator(self.kernel, self.context, other)?);
        let preconditioner = rank.map(|rank| LowRankPreconditioner::new(operator.as_ref(), rank, self.context));
        Ok((operator, preconditioner.transpose()?))
    }

    /// K̃ from K.
    pub(crate) fn scaled<'o>(&self, inner: Box<dyn Operator + 'o>) -> Box<dyn Operator + 'o> {
        match self.roots {
            None => inner,
            Some(roots) => Box::new(Scaled { inner, scale: roots.clone() }),
        }
    }

    fn iterate(
        &self,
        operator: &dyn Operator,
        preconditioner: Option<&LowRankPreconditioner>,
        alpha: f64,
        start: Panel,
        iteration: &Iteration,
        monitor: Monitor,
    ) -> Result<Converged> {
        let Iteration { method, tolerance, limit, .. } = *iteration;
        let y = operator.sharding().panel(self.context.device, self.y)?;
        let equations = Equations { operator, alpha, y: &y };
        let preconditioner = || preconditioner.expect("a preconditioner for a solver that has one");
        let mut solver: Box<dyn Epochs + '_> = match method {
            None => {
                let shifted = Shifted { operator, preconditioner: preconditioner(), alpha };
                return shifted.solve(&y, start, (tolerance, limit), monitor, self.context);
            }
            Some(EpochSolver::Richardson) => Box::new(Richardson::new(&equations, preconditioner(), self.context)),
            Some(EpochSolver::EigenPro) => Box::new(EigenPro::new(&equations, self.context)?),
            Some(EpochSolver::Askotch) => Box::new(Askotch::new(&equations, self.context)?),
        };
        run(solver.as_mut(), &equations, start, (tolerance, limit), monitor, self.context)
    }

    /// The error on the rows `out` when the rows `rest` are fitted, from large α to small, each solution the start of the
    /// next, until the error has risen twice in a row. Also whether it was interrupted.
    fn path(&self, rest: &[usize], out: &[usize], iteration: &Iteration) -> Result<(Vec<Tried>, bool)> {
        let (points, y) = (self.points().some(rest)?, self.y.select(Axis(0), rest));
        let y_out = self.y.select(Axis(0), out);
        let roots = self.roots.map(|roots| [rest, out].map(|rows| roots.select(Axis(0), rows)));
        let [roots, roots_out] = roots.map_or([None, None], |roots| roots.map(Some));
        let (kernel, context) = (self.kernel, self.context);
        let (held_out, saving, left_out) = (None, Saving::NONE, false);
        let (roots, points, y) = (roots.as_ref(), points.view(), y.view());
        let (x, sharding) = (points.own(), points.sharding());
        let system = System { kernel, x, sharding, y, roots, left_out, held_out, saving, context };
        // α is found to half a decade, for which three digits of the solution are enough.
        let Iteration { method, tolerance, limit, rank } = *iteration;
        let rough = Iteration { method, tolerance: tolerance.max(1e-4), limit, rank: rank.min(rest.len()) };
        let (operator, preconditioner) = system.prepared(&rough, false)?;
        let mut tried: Vec<Tried> = Vec::new();
        let mut c = system.zeros(operator.as_ref())?;
        let (grid, mut keeps, mut interrupted) =
            (grid(self.points().mean_diagonal(kernel, self.context)?), None, false);
        for (number, &alpha) in grid.iter().rev().enumerate() {
            let stage = self.context.stage("α", number + 1, grid.len());
            // Without a first α there is nothing to keep.
            let interrupt = self.context.interrupt.filter(|_| !tried.is_empty());
            let system = System { context: &FitContext { progress: &stage, interrupt, ..*self.context }, ..system };
            let (operator, monitor) = (operator.as_ref(), Monitor::default());
            let found = system.iterate(operator, preconditioner.as_ref(), alpha, c.try_clone()?, &rough, monitor)?;
            interrupted = keeps.as_ref().is_some_and(KeepsBest::cut_short);
            // Smaller α are harder; those that were solved remain valid.
            if interrupted || (found.residual > rough.tolerance && !tried.is_empty()) {
                break;
            }
            c = found.x;
            let weighted = times(c.to_host()?, roots);
            let predicted = points.expand_at(kernel, (self.points(), out), weighted.view(), context)?;
            let predicted = times(predicted, roots_out.as_ref());
            let error = squared_error(predicted.view(), y_out.view()) / out.len() as f64;
            tried.push(Tried { value: alpha, error });
            keeps.get_or_insert_with(|| self.context.keeps_best());
            if risen_twice(&tried) {
                break;
            }
        }
        Ok((tried, interrupted))
    }
}

/// Rows `[n, m]` times numbers `[n]`, where there are some.
pub(crate) fn times(a: Array2<f64>, roots: Option<&Array1<f64>>) -> Array2<f64> {
    match roots {
        None => a,
        Some(roots) => a * roots.view().insert_axis(Axis(1)),
    }
}
