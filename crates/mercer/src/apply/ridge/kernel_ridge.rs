//! Kernel ridge regression and classification.

use crate::apply::class_weights::ClassWeights;
use crate::apply::probabilities::left_out_sharpness;
use crate::apply::reference::Reference;
use crate::apply::ridge::sharded_points::{ShardedPoints, sharded};
use crate::apply::ridge::system::{Iteration, Plan, Solved, System, times};
use crate::apply::solvers::monitor::HeldOut;
use crate::apply::targets::Encoding;
use crate::apply::traits::{encoded_scores, fields, finite, saved};
use crate::apply::{Alpha, Convergence, EpochSolver, Fit, Monitoring, Predict, Tried, check_points};
use crate::data::Target;
use crate::kernel::Kernel;
use crate::operator::Precision;
use crate::spectrum::Origin;
use crate::training::{Checkpoint, Saving};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::time::Instant;

/// Kernel ridge regression and classification, `f(x) = κ(x,X)(K + αI)⁻¹y`; α is added to the diagonal of K as it is
/// (scikit-learn's convention).
///
/// Single precision is used where it is precise enough: small α make large coefficients, and with them the rounding of kernel
/// values grows. Where it would change predictions by more than a thousandth of the targets, double precision is used
/// instead, and the origin of the fitted value says so.
///
/// With classes, y is +1 in the column of the class and −1 in the others, and the answer is the class whose column of
/// `f(x)` is the largest. Probabilities are `softmax(t f(x))`, t fitted to the scores of left-out points.
///
/// ```
/// use mercer::apply::{Alpha, Fit, Predict, Ridge, RidgeSolver};
/// use mercer::{FitContext, data::Target, kernel::Kernel};
/// let x = ndarray::Array2::from_shape_fn((50, 1), |(i, _)| i as f64 / 10.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let (alpha, solver) = (Alpha::Fixed(1e-6), RidgeSolver::Direct);
/// let ridge = Ridge { alpha, solver, ..Ridge::new(Kernel::parse("rbf(1)")?) };
/// let fitted = ridge.fit(x.view(), &y, &FitContext::default())?;
/// let at = fitted.scores(ndarray::array![[2.22]].view())?[[0, 0]];
/// assert!((at - 2.22f64.sin()).abs() < 1e-5);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ridge {
    /// κ
    pub kernel: Kernel,
    /// α
    pub alpha: Alpha,
    /// How the linear system is solved.
    pub solver: RidgeSolver,
    /// Whether the mean of the targets is subtracted before the fit, and added to what is predicted: far from all points the
    /// prediction is then the mean, not zero.
    pub centred: bool,
    /// How much the rows of each class count: with weights w, `(K + αW⁻¹)` takes the place of `(K + αI)`.
    pub class_weights: ClassWeights,
    /// What is kept and measured while an iterative solver runs.
    pub monitoring: Monitoring,
}

impl Ridge {
    /// Under `kernel`, with α by leave-one-out, targets as they are, and equal classes.
    pub fn new(kernel: Kernel) -> Self {
        let (alpha, solver, class_weights) = (Alpha::LeaveOneOut, RidgeSolver::Auto, ClassWeights::Equal);
        Ridge { kernel, alpha, solver, centred: false, class_weights, monitoring: Monitoring::default() }
    }

    /// The settings of the iterative solver, where it is one.
    pub(crate) fn iteration(&self, n: usize, context: &FitContext) -> Option<Iteration> {
        let default_rank = (2 * n.isqrt()).max(200);
        match self.solver.chosen(n, context) {
            RidgeSolver::ConjugateGradients { tolerance, iterations, rank } => {
                let rank = rank.unwrap_or(default_rank).min(n);
                Some(Iteration { method: None, tolerance, limit: iterations, rank })
            }
            RidgeSolver::Epochs { solver, tolerance, epochs } => {
                let (method, rank) = (Some(solver), default_rank.min(n));
                Some(Iteration { method, tolerance, limit: epochs, rank })
            }
            _ => None,
        }
    }

    /// By an iterative solver, in double precision where single precision is not enough; also whether it was not.
    fn iterate(&self, system: &System, iteration: &Iteration, double: &FitContext) -> Result<(Solved, bool)> {
        let identity = system.identity(self.alpha, iteration)?;
        let stored = system.saving.stored_among(system.context.group, &identity)?;
        let plan: Option<Plan> = stored.map(|bundle| bundle.value("plan")).transpose()?;
        let single = system.context.precision == Precision::F32;
        let continued = plan.as_ref().is_some_and(|plan| plan.double && single);
        let plan = match plan {
            Some(plan) if continued => plan,
            plan => {
                let solved = system.iterative(self.alpha, plan, iteration, &identity)?;
                // Where all iterations were used, more of them may help, and not more digits.
                let cut = solved.convergence.iterations.is_some_and(|count| count >= iteration.limit);
                let stuck = single && !cut && iteration.missed(solved.convergence.residual);
                if !(stuck || system.too_coarse(solved.coefficients.view())?) || system.context.interrupted() {
                    return Ok((solved, false));
                }
                let Solved { alpha, tried, notes, .. } = solved;
                Plan { alpha, tried, notes, double: true }
            }
        };
        // The checkpoint of the solution in single precision is of no use any more.
        let saving = Saving { resume: continued, overwrite: true, ..system.saving };
        let in_double = System { context: double, saving, ..*system };
        let solved = in_double.iterative(Alpha::Fixed(plan.alpha), Some(plan), iteration, &identity)?;
        Ok((solved, true))
    }
}

/// How `(K + αI) c = y` is solved. Example: [`Ridge`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RidgeSolver {
    /// [`Direct`](RidgeSolver::Direct) up to ten thousand points in one process where it fits the memory; else
    /// [`ConjugateGradients`](RidgeSolver::ConjugateGradients) with their defaults.
    #[default]
    Auto,
    /// By Cholesky, or by eigendecomposition where α is to be found and the points are few; stores K.
    Direct,
    /// By preconditioned conjugate gradients on the operator; stores K only where it fits easily. Above 20 000 points,
    /// cross-validation of α looks at the first fold only. Where they end before the tolerance is reached, the best iterate is used,
    /// and a note says so.
    ConjugateGradients {
        /// `‖(K + αI)c − y‖/‖y‖` at which a column is solved.
        tolerance: f64,
        /// Most products with K.
        iterations: usize,
        /// Rank of the preconditioner; none chooses `2√n`, or 200 where that is more.
        rank: Option<usize>,
    },
    /// By a solver that sees a part of K at a time, and never needs all of it. α is chosen as with conjugate gradients, and an early end is
    /// treated as there.
    Epochs {
        /// Which one.
        solver: EpochSolver,
        /// `‖(K + αI)c − y‖/‖y‖` at which a column is solved.
        tolerance: f64,
        /// Most passes over K.
        epochs: usize,
    },
}

impl RidgeSolver {
    /// Conjugate gradients to a residual of 1e-8. In single precision to 1e-4: the rounding of `Kc` is about `1e-7·‖K‖‖c‖`,
    /// and c grows as α falls. The predictions for the fitted points are off by no more than the residual.
    pub fn conjugate_gradients(precision: Precision) -> RidgeSolver {
        let tolerance = if precision == Precision::F64 { 1e-8 } else { 1e-4 };
        RidgeSolver::ConjugateGradients { tolerance, iterations: 1000, rank: None }
    }

    /// A solver that sees a part of K at a time, to a residual of 1e-3: its error is then far below that of the prediction, as a rule.
    pub fn epochs(solver: EpochSolver) -> RidgeSolver {
        RidgeSolver::Epochs { solver, tolerance: 1e-3, epochs: 300 }
    }

    fn chosen(self, n: usize, context: &FitContext) -> RidgeSolver {
        let fits = context.budget.allows(4 * (n as u64).pow(2) * 8);
        match self {
            RidgeSolver::Auto if n <= 10_000 && fits && context.group.is_single() => RidgeSolver::Direct,
            RidgeSolver::Auto => RidgeSolver::conjugate_gradients(context.precision),
            chosen => chosen,
        }
    }
}

/// The note on a checkpoint that a direct solver was given.
const NO_CHECKPOINT: &str = "the direct solver has no state to keep; no checkpoint was written";

/// Coefficients over the fitted points, ready to predict. Example: [`Ridge`].
pub struct FittedRidge {
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α.
    pub tried: Vec<Tried>,
    /// How an iterative solver went: products with K, or passes over it, and `‖(K + αI)c − y‖/‖y‖`.
    pub convergence: Convergence,
    /// What it was fitted on.
    pub reference: Reference,
    notes: Vec<String>,
    pub(crate) kernel: Kernel,
    encoding: Encoding,
    /// t of `softmax(t f(x))`, for classes.
    sharpness: Option<f64>,
    /// What is added to every prediction `[m]`.
    offset: Array1<f64>,
    /// c `[n, m]`
    pub coefficients: Array2<f64>,
}

impl Fit for Ridge {
    type Target = Target;
    type Fitted = FittedRidge;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedRidge> {
        check_points(x)?;
        let (start, own) = (Instant::now(), x.slice(s![context.group.share(x.nrows()), ..]));
        let sharding = sharded(context.group, own.nrows())?;
        let points = ShardedPoints::new(own, &sharding);
        let origin = |context: &FitContext| Origin::new("ridge", &self.kernel, x.dim(), context, start);
        self.solve(points, y, context, &|context| Reference::new(origin(context), x, context))
    }
}

impl Ridge {
    /// As [`Fit::fit`], where each rank of the context has the points `own` `[n_r, d]`, those of rank 0 first, and all have the targets `y`
    /// `[n]`. The fitted value keeps the points of its rank: its predictions, at points that are the same on every rank, and its file are
    /// made by all ranks together.
    ///
    /// ```
    /// use mercer::apply::{Alpha, Fit, Predict, Ridge, RidgeSolver};
    /// use mercer::{FitContext, data::Target, group::on_threads, kernel::Kernel, operator::Precision};
    /// let x = ndarray::Array2::from_shape_fn((60, 1), |(i, _)| i as f64 / 10.0);
    /// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
    /// let (alpha, solver) = (Alpha::Fixed(1e-4), RidgeSolver::conjugate_gradients(Precision::F64));
    /// let ridge = Ridge { alpha, solver, ..Ridge::new(Kernel::parse("rbf(1)")?) };
    /// let at = on_threads(2, |group| {
    ///     let own = x.slice(ndarray::s![group.share(60), ..]);
    ///     let fitted = ridge.fit_sharded(own, &y, &FitContext { group, ..FitContext::default() })?;
    ///     fitted.scores(ndarray::array![[2.22]].view())
    /// });
    /// for scores in at {
    ///     assert!((scores?[[0, 0]] - 2.22f64.sin()).abs() < 1e-3);
    /// }
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn fit_sharded(&self, own: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedRidge> {
        let (start, group) = (Instant::now(), context.group);
        group.all_succeed(check_points(own))?;
        let sharding = sharded(group, own.nrows())?;
        let points = ShardedPoints::new(own, &sharding);
        let origin = |context: &FitContext| Origin::new("ridge", &self.kernel, points.dim(), context, start);
        let fitted = self.solve(points, y, context, &|context| Reference::sharded(origin(context), points, context))?;
        group.all_succeed(finite(fitted))
    }

    /// The fit; `reference` keeps the points, in the context in which they are used.
    fn solve(
        &self,
        points: ShardedPoints<'_>,
        y: &Target,
        context: &FitContext,
        reference: &dyn Fn(&FitContext) -> Reference,
    ) -> Result<FittedRidge> {
        let (n, d) = points.dim();
        self.alpha.check(n)?;
        let context = &context.beside_classes(y)?;
        let (encoding, encoded) = Encoding::encode(y, n, -1.0, 1.0)?;
        let weights = self.class_weights.of_rows(y)?.map(Array1::from);
        let roots = weights.as_ref().map(|w| w.mapv(f64::sqrt));
        let total = weights.as_ref().map_or(n as f64, |w| w.sum());
        let offset = match (self.centred, &weights) {
            (false, _) => Array1::zeros(encoding.width()),
            (true, None) => encoded.mean_axis(Axis(0)).expect("there are rows"),
            (true, Some(w)) => encoded.t().dot(w) / total,
        };
        let encoded = times(encoded - &offset, roots.as_ref());
        let double = FitContext { precision: Precision::F64, ..*context };
        let left_out = matches!(encoding, Encoding::Classes(_));
        let Monitoring { checkpoint, held_out } = &self.monitoring;
        let held_out = held_out.as_ref().map(|rows| HeldOut::new(rows, d, &encoding, &offset)).transpose()?;
        let (held_out, saving) = (held_out.as_ref(), checkpoint.as_ref().map_or(Saving::NONE, Checkpoint::saving));
        let (kernel, y_view, roots_view) = (&self.kernel, encoded.view(), roots.as_ref());
        let (x, sharding) = (points.own(), points.sharding());
        let system = System { kernel, x, sharding, y: y_view, roots: roots_view, left_out, held_out, saving, context };
        let iteration = self.iteration(n, context);
        fail_if!(
            iteration.is_none() && !context.group.is_single(),
            concat!("the direct solver runs in one process; ", crate::advice!(ConjugateGradients))
        );
        let (solved, coarse) = match &iteration {
            // The coefficients are in double precision whatever the precision of predictions.
            None => {
                let mut solved = system.direct(self.alpha)?;
                solved.notes.extend(checkpoint.is_some().then(|| NO_CHECKPOINT.to_owned()));
                let coarse = system.too_coarse(solved.coefficients.view())?;
                (solved, coarse)
            }
            Some(iteration) => {
                // Rank 0 sees the file for all.
                let group = context.group;
                group.of_first(|| saving.check().map(|()| vec![]))?;
                let missing = group.of_first(|| Ok(saving.missing().unwrap_or_default().into_bytes()))?;
                self.memory([x.nrows(), d], y, context).tell(context);
                let (mut solved, coarse) = self.iterate(&system, iteration, &double)?;
                solved.notes.extend(String::from_utf8(missing).ok().filter(|note| !note.is_empty()));
                (solved, coarse)
            }
        };
        let context = if coarse { &double } else { context };
        let Solved { alpha, mut tried, coefficients, convergence, left_out, mut notes } = solved;
        // From the mean over rows to the weighted mean.
        tried.iter_mut().for_each(|t| t.error *= n as f64 / total);
        let coefficients = times(coefficients, roots.as_ref());
        let left_out = left_out.map(|scores| times(scores, roots.map(|r| r.mapv(|r| 1.0 / r)).as_ref()));
        let ended = (context.interrupted(), checkpoint.is_some());
        notes.extend(iteration.iter().filter_map(|i| i.note(&convergence, ended)));
        notes.extend(iteration.iter().filter_map(|i| i.note_on_residual(n)));
        let sharpness = left_out.and_then(|scores| left_out_sharpness(y, None, (scores + &offset).view()));
        let (kernel, reference) = (self.kernel.clone(), reference(context));
        Ok(FittedRidge {
            alpha,
            tried,
            convergence,
            reference,
            notes,
            kernel,
            encoding,
            sharpness,
            offset,
            coefficients,
        })
    }
}

impl Predict for FittedRidge {
    fields! {
        origin: Origin = reference.origin;
        notes: [String] = notes;
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.reference.expand(&self.kernel, 1.0, x, self.coefficients.view())? + &self.offset)
    }

    encoded_scores!(encoding);
}

saved! {
    FittedRidge, "ridge":
    reference: Reference = whole(Reference::unpack);
    encoding: Encoding = value("target", Encoding::checked);
    alpha: f64 = value("alpha");
    tried: Vec<Tried> = value("tried");
    convergence: Convergence = whole(Convergence::unpack);
    notes: Vec<String> = value("notes");
    sharpness: Option<f64> = value("sharpness");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    offset: Array1<f64> = vector("offset", encoding.width());
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, encoding.width()));
}
