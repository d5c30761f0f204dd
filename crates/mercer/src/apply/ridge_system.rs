//! The linear system `(K + αI) c = y` of ridge regression: solved directly or by conjugate gradients, α given or chosen.
//!
//! With weights w of the rows it is `(K + αW⁻¹) c = y`. In the units `c = √w c̃`, `y = ỹ/√w` and `K̃ = √w K √w` that is
//! `(K̃ + αI) c̃ = ỹ` again, and so are its left-out errors: `Σ_i w_i e_i²` is the sum of those of `ỹ`.

use super::alpha::{
    LeaveOneOut, best, cross_validate, cross_validate_paths, filtered_inverse, grid, risen_twice, squared_error,
};
use super::conjugate_gradients::{Converged, Shifted};
use super::monitor::{HeldOut, Kept, Monitor, Watch};
use super::preconditioner::LowRankPreconditioner;
use super::refinement::solve_positive_definite;
use super::solvers::{Askotch, EigenPro, Epochs, Equations, Richardson, rows_of_residual, run};
use super::{Alpha, Convergence, EpochSolver, Tried};
use crate::context::ONE_STEP;
use crate::kernel::Kernel;
use crate::linalg::{Cholesky, Panel, eigh, matmul};
use crate::operator::{DenseOperator, Operator, Pair, Precision, Scaled, cross_apply, gram_reported};
use crate::rng::Rng;
use crate::training::{Fingerprint, Identity, Saving};
use crate::{FitContext, KeepsBest, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use serde::{Deserialize, Serialize};

/// c, and how it was found.
pub(super) struct Solved {
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
pub(super) struct Plan {
    pub alpha: f64,
    pub tried: Vec<Tried>,
    pub notes: Vec<String>,
    /// Whether kernel values are in double precision.
    pub double: bool,
}

/// A regression to be solved.
#[derive(Clone, Copy)]
pub(super) struct System<'a> {
    pub kernel: &'a Kernel,
    /// `[n, d]`
    pub x: ArrayView2<'a, f64>,
    /// ỹ `[n, m]`
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

/// Points up to which K is decomposed for leave-one-out. An eigendecomposition takes about forty times as long as a factor; above,
/// leave-one-out is that of `K ≈ UΣUᵀ + δI` of rank [`RANK`].
const DECOMPOSED: usize = 2000;

/// Rank for leave-one-out with a direct solver.
const RANK: usize = 2000;

/// Points above which cross-validation by conjugate gradients looks at one fold only: it holds thousands of points, and all of them
/// would take `folds` times as long.
const MANY: usize = 20_000;

/// Settings of an iterative solver: the relative residual to reach, the most products or epochs, the rank of the preconditioner.
pub(super) struct Iteration {
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

    /// Whether the residual that was reached is above the one asked for.
    pub fn missed(&self, residual: Option<f64>) -> bool {
        residual.is_some_and(|residual| residual > self.tolerance)
    }

    /// A warning where the iteration ended early: whether it was interrupted, and with a checkpoint.
    pub fn note(&self, found: &Convergence, interrupted: (bool, bool)) -> Option<String> {
        let [was, unit] = if self.method.is_some() { ["was", "epochs"] } else { ["were", "products"] };
        let advice = "use more iterations, a preconditioner of higher rank or a larger α";
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
    /// Whether the rounding of kernel values, times coefficients `c` `[n, m]`, changes predictions by more than a thousandth of
    /// the targets: the errors of n values are independent, so they add up to `ε κ ‖c‖`.
    pub fn too_coarse(&self, c: ArrayView2<f64>) -> bool {
        const MOST: f64 = 1e-3;
        let square = |v: ArrayView1<f64>| v.dot(&v);
        let error = self.context.roundoff() * self.mean_diagonal();
        let columns = c.columns().into_iter().zip(self.y.columns());
        self.context.precision == Precision::F32
            && columns.into_iter().any(|(c, y)| error * square(c).sqrt() > MOST * (square(y) / y.len() as f64).sqrt())
    }

    /// By factoring K.
    pub fn direct(&self, alpha: Alpha) -> Result<Solved> {
        let n = self.x.nrows();
        let decomposed = n <= DECOMPOSED && alpha == Alpha::LeaveOneOut;
        // Cholesky holds K and its factor; an eigendecomposition two more.
        let matrices = if decomposed || matches!(alpha, Alpha::CrossValidation { .. }) { 4 } else { 2 };
        let matrices = matrices + u64::from(self.kernel.sees_images());
        self.context.budget.require(
            format!("direct ridge regression on {n} points"),
            matrices * (n as u64).pow(2) * 8,
            "solve by conjugate gradients, or fit fewer points",
        )?;
        let mut k = self.matrix()?;
        if let Some(roots) = self.roots {
            k *= roots;
            k *= &roots.view().insert_axis(Axis(1));
        }
        let low_rank = match alpha {
            _ if n <= DECOMPOSED => None,
            Alpha::LeaveOneOut => Some(self.low_rank(RANK, &k)?),
            _ if self.left_out => Some(self.low_rank(RANK / 2, &k)?),
            _ => None,
        };
        let scale = k.diag().sum() / n as f64;
        let mut notes = vec![];
        let (alpha, tried) = match (alpha, &low_rank) {
            (Alpha::Fixed(alpha), _) => (alpha, vec![]),
            (Alpha::LeaveOneOut, Some(low_rank)) => best(low_rank.left_out_error(&grid(scale), self.y)?)?,
            (Alpha::LeaveOneOut, None) => return self.by_leave_one_out(k, &grid(scale)),
            (Alpha::CrossValidation { folds }, _) => {
                let (tried, note) = self.cross_validated(k.view(), folds, &grid(scale))?;
                notes.extend(note);
                best(tried)?
            }
        };
        let left_out = low_rank.map(|low_rank| low_rank.left_out_scores(alpha, self.y));
        let left_out = left_out.transpose()?;
        k.diag_mut().mapv_inplace(|d| d + alpha);
        self.context.progress.step("factorisation", 0, 1, ONE_STEP);
        if self.left_out && left_out.is_none() {
            return Ok(Solved { notes, ..self.with_inverse(k, alpha, tried)? });
        }
        let coefficients = solve_positive_definite(self.context.device, k, self.y, alpha)?;
        Ok(Solved { alpha, tried, coefficients, convergence: Convergence::default(), left_out, notes })
    }

    /// K `[n, n]`. A pair of images takes so long that the precision which was asked for is kept; other values are f64.
    fn matrix(&self) -> Result<Array2<f64>> {
        let (x, device, progress) = (self.x.into(), self.context.device, self.context.progress);
        if self.kernel.sees_images() && self.context.precision != Precision::F64 {
            return Ok(gram_reported::<f32>(self.kernel, x, device, progress)?.mapv(f64::from));
        }
        gram_reported(self.kernel, x, device, progress)
    }

    /// Of `k`, K̃ `[n, n]`. A pair of images takes so long that the matrix is read; other values are computed anew, which takes no memory.
    fn low_rank(&self, rank: usize, k: &Array2<f64>) -> Result<LowRankPreconditioner> {
        let rank = rank.min(self.x.nrows() / 2);
        if self.kernel.sees_images() {
            return LowRankPreconditioner::new(&DenseOperator::new(k.clone()), rank, self.context);
        }
        let operator = self.scaled(Box::new(self.context.kernel_operator(self.kernel, self.x)?));
        LowRankPreconditioner::new(operator.as_ref(), rank, self.context)
    }

    /// The solution with `A = K + αI` and the predictions of left-out points, `y_i − c_i/(A⁻¹)_ii`: few points, for all of `A⁻¹` is
    /// computed.
    fn with_inverse(&self, a: Array2<f64>, alpha: f64, tried: Vec<Tried>) -> Result<Solved> {
        let factor = Cholesky::new(self.context.device, a.view())?;
        let coefficients = factor.solve(self.y)?;
        let inverse = factor.solve(Array2::eye(a.nrows()).view())?;
        let left_out = &self.y - &(&coefficients / &inverse.diag().insert_axis(Axis(1)));
        Ok(Solved {
            alpha,
            tried,
            coefficients,
            convergence: Convergence::default(),
            left_out: Some(left_out),
            notes: vec![],
        })
    }

    /// One eigendecomposition serves every α, and the solution.
    fn by_leave_one_out(&self, k: Array2<f64>, grid: &[f64]) -> Result<Solved> {
        self.context.progress.step("eigendecomposition", 0, 1, ONE_STEP);
        let (λ, u) = eigh(self.context.device, k.view())?;
        drop(k);
        let points = LeaveOneOut { u: u.view(), λ: &λ, y: self.y };
        let (alpha, tried) = best(points.errors(grid))?;
        let left_out = self.left_out.then(|| points.scores(alpha));
        let coefficients = filtered_inverse(u.view(), &λ, matmul(u.t(), self.y).view(), alpha);
        Ok(Solved { alpha, tried, coefficients, convergence: Convergence::default(), left_out, notes: vec![] })
    }

    /// One eigendecomposition a fold serves every α.
    fn cross_validated(&self, k: ArrayView2<f64>, folds: usize, grid: &[f64]) -> Result<(Vec<Tried>, Option<String>)> {
        cross_validate(self.x.nrows(), folds, self.context, grid, |rest, out| {
            let rows = k.select(Axis(0), rest);
            let (λ, u) = eigh(self.context.device, rows.select(Axis(1), rest).view())?;
            let uy = matmul(u.t(), self.y.select(Axis(0), rest).view());
            // Predictions K[out, rest] U (Λ + α)⁻¹ Uᵀy.
            let ku = matmul(rows.select(Axis(1), out).t(), u.view());
            let truth = self.y.select(Axis(0), out);
            let error =
                |&alpha: &f64| squared_error(filtered_inverse(ku.view(), &λ, uy.view(), alpha).view(), truth.view());
            Ok(grid.iter().map(error).collect())
        })
    }

    /// What must agree between a checkpoint and the run that continues it.
    pub fn identity(&self, alpha: Alpha, iteration: &Iteration) -> Identity {
        let bits = |a: ArrayView2<f64>| Fingerprint::of(a.iter().map(|v| v.to_bits()));
        let targets = bits(self.y).then(self.roots.into_iter().flatten().map(|w| w.to_bits()));
        let FitContext { precision, seed, device, .. } = *self.context;
        [
            ("method", iteration.name().to_owned()),
            ("kernel", self.kernel.to_string()),
            ("rows", self.x.nrows().to_string()),
            ("columns", self.x.ncols().to_string()),
            ("data", bits(self.x).to_string()),
            ("targets", targets.to_string()),
            ("held-out rows", self.held_out.map_or("none".into(), |rows| rows.fingerprint().to_string())),
            ("alpha", alpha.to_string()),
            ("tolerance", iteration.tolerance.to_string()),
            ("rank", iteration.rank.to_string()),
            ("precision", format!("{precision:?}")),
            ("seed", seed.to_string()),
            ("device", device.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
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
        let n = self.x.nrows();
        let order = Rng::new(self.context.seed).fork(0x7368_7566).sample(n, n);
        let mut place = vec![0; n];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        let (x, y) = (self.x.select(Axis(0), &order), self.y.select(Axis(0), &order));
        let roots = self.roots.map(|roots| roots.select(Axis(0), &order));
        let system = System { x: x.view(), y: y.view(), roots: roots.as_ref(), ..*self };
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
                let grid = grid(self.mean_diagonal());
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
        let n = self.x.nrows();
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
        let watched = self.held_out.map(|rows| {
            let pair = Pair::new(self.kernel, rows.x.view(), self.x, precision, device)?;
            let roots = self.roots.map(|roots| Panel::from_host(device, roots.clone().insert_axis(Axis(1))));
            Ok::<_, crate::Error>((rows, pair, roots.transpose()?))
        });
        let watched = watched.transpose()?;
        let error = |c: &Panel| {
            let (rows, pair, roots) = watched.as_ref().expect("watched where there are rows");
            let mut weighted = c.whole()?;
            let Some(roots) = roots else { return rows.error(pair.apply(&weighted)?.into_host()?) };
            weighted.scale_rows(roots);
            rows.error(pair.apply(&weighted)?.into_host()?)
        };
        let watch = self.held_out.map(|rows| Watch { every: rows.every(self.x.nrows()), error: &error });
        let kept = self.saving.path.is_some().then_some(&kept);
        let monitor = Monitor { kept, watch, record: None };
        let start = self.zeros(operator)?;
        self.iterate(operator, preconditioner, plan.alpha, start, iteration, monitor)
    }

    /// The start of an iteration, `[n, m]`.
    fn zeros(&self, operator: &dyn Operator) -> Result<Panel> {
        let (deal, (n, m)) = (operator.deal(), self.y.dim());
        Panel::dealt(self.context.device, &deal, Array2::zeros((deal.rows(n).len(), m)))
    }

    /// `κ(x, X) √w c̃` `[m, c]` at points `x` `[m, d]`, for c̃ `[n, c]`.
    fn predicted(&self, x: ArrayView2<f64>, c: Array2<f64>) -> Result<Array2<f64>> {
        let FitContext { precision, device, .. } = *self.context;
        cross_apply(self.kernel, x, self.x, times(c, self.roots).view(), precision, device)
    }

    /// The operator, and a preconditioner for any α where the solver has one or `leaves_out` says that points are left out by it.
    fn prepared(
        &self,
        iteration: &Iteration,
        leaves_out: bool,
    ) -> Result<(Box<dyn Operator + '_>, Option<LowRankPreconditioner>)> {
        let n = self.x.nrows() as u64;
        let needed = leaves_out || !iteration.method.is_some_and(EpochSolver::takes_blocks);
        let rank = if needed { iteration.rank } else { 0 };
        // The factor, its orthonormal form, and about eight blocks of vectors; a checkpoint has six more.
        let blocks = if self.saving.path.is_some() { 14 } else { 8 };
        let other = 8 * n * (2 * rank as u64 + blocks * self.y.ncols() as u64);
        let (what, advice) = match needed {
            true => (format!("the preconditioner of rank {rank} for {n} points"), "use a smaller rank"),
            false => (format!("the iterates of {} for {n} points", iteration.name()), "fit fewer points"),
        };
        self.context.budget.require(what, other, advice)?;
        let operator = self.scaled(self.context.operator(self.kernel, self.x, other)?);
        let preconditioner = needed.then(|| LowRankPreconditioner::new(operator.as_ref(), rank, self.context));
        Ok((operator, preconditioner.transpose()?))
    }

    /// K̃ from K.
    fn scaled<'o>(&self, inner: Box<dyn Operator + 'o>) -> Box<dyn Operator + 'o> {
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
        let y = operator.deal().panel(self.context.device, self.y)?;
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
        let (x, y) = (self.x.select(Axis(0), rest), self.y.select(Axis(0), rest));
        let (x_out, y_out) = (self.x.select(Axis(0), out), self.y.select(Axis(0), out));
        let roots = self.roots.map(|roots| [rest, out].map(|rows| roots.select(Axis(0), rows)));
        let [roots, roots_out] = roots.map_or([None, None], |roots| roots.map(Some));
        let (kernel, context) = (self.kernel, self.context);
        let (held_out, saving, left_out) = (None, Saving::NONE, false);
        let (roots, x, y) = (roots.as_ref(), x.view(), y.view());
        let system = System { kernel, x, y, roots, left_out, held_out, saving, context };
        // α is found to half a decade, for which three digits of the solution are enough.
        let Iteration { method, tolerance, limit, rank } = *iteration;
        let rough = Iteration { method, tolerance: tolerance.max(1e-4), limit, rank: rank.min(x.nrows()) };
        let (operator, preconditioner) = system.prepared(&rough, false)?;
        let mut tried: Vec<Tried> = Vec::new();
        let mut c = system.zeros(operator.as_ref())?;
        let (grid, mut keeps, mut interrupted) = (grid(self.mean_diagonal()), None, false);
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
            let predicted = times(system.predicted(x_out.view(), c.to_host()?)?, roots_out.as_ref());
            let error = squared_error(predicted.view(), y_out.view()) / out.len() as f64;
            tried.push(Tried { value: alpha, error });
            keeps.get_or_insert_with(|| self.context.keeps_best());
            if risen_twice(&tried) {
                break;
            }
        }
        Ok((tried, interrupted))
    }

    /// The mean of `κ(x_i, x_i)`.
    fn mean_diagonal(&self) -> f64 {
        let diagonal = self.x.rows().into_iter().map(|r| self.kernel.value(&r.to_vec(), &r.to_vec()));
        diagonal.sum::<f64>() / self.x.nrows() as f64
    }
}

/// Rows `[n, m]` times numbers `[n]`, where there are some.
pub(super) fn times(a: Array2<f64>, roots: Option<&Array1<f64>>) -> Array2<f64> {
    match roots {
        None => a,
        Some(roots) => a * roots.view().insert_axis(Axis(1)),
    }
}
