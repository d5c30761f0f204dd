//! Kernel quantile regression: the number that a share q of the targets lies below.

use crate::apply::alpha::{best, cross_validate};
use crate::apply::reference::Reference;
use crate::apply::regression::outcome::Outcome;
use crate::apply::regression::{AlphaOptions, Estimator, Examples, KERNEL, Regression, RegressionTask};
use crate::apply::solvers::monitor::SolverName;
use crate::apply::traits::{fields, saved};
use crate::apply::{Alpha, Convergence, Fit, Predict, Tried, check_points};
use crate::data::Target;
use crate::kernel::{Expression, Kernel};
use crate::linalg::Cholesky;
use crate::operator::gram;
use crate::options::{Caps, Entry, Kind, Opt};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip};
use std::time::Instant;

/// Kernel quantile regression (Takeuchi, Le, Sears and Smola, 2006): `f(x) = b + Σ_i c_i κ(x,x_i)` with the c and b that minimise
///
/// `Σ_i ρ_q(y_i − f(x_i)) + (α/2s) cᵀKc`, `ρ_q(r) = max(q r, (q − 1) r)`
///
/// The pinball loss ρ_q is least where a share q of the targets lies below f. s is the mean loss of the best constant, so that α does not depend
/// on the unit of y. There is one minimum f. Its dual has the weights `a = αc/s`,
///
/// `max_a aᵀy − (s/2α) aᵀKa` with `q − 1 ≤ a_i ≤ q`, `Σ_i a_i = 0`
///
/// and is solved by a primal-dual interior-point method: about twenty factorisations of matrices `[n, n]`. The residual that is reported
/// is the duality gap, over the loss of the best constant.
///
/// ```
/// use mercer::apply::{Alpha, Fit, Predict, QuantileRegression};
/// use mercer::{FitContext, data::Target, kernel::Kernel};
/// let mut rng = mercer::rng::Rng::new(0);
/// let x = ndarray::Array2::from_shape_fn((300, 1), |(i, _)| i as f64 / 100.0);
/// let y: Vec<f64> = x.iter().map(|x| x + (1.0 + x) * rng.normal()).collect();
/// let usual = QuantileRegression::new(Kernel::parse("rbf(2)")?);
/// let regression = QuantileRegression { quantile: 0.9, alpha: Alpha::Fixed(1.0), ..usual };
/// let fitted = regression.fit(x.view(), &Target::Values(y.clone()), &FitContext::default())?;
/// let f = fitted.scores(x.view())?;
/// let below = y.iter().zip(&f).filter(|(y, f)| y < f).count();
/// assert!((264..=276).contains(&below) && fitted.convergence.residual.unwrap() < 1e-8);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct QuantileRegression {
    /// κ
    pub kernel: Kernel,
    /// q, between 0 and 1.
    pub quantile: f64,
    /// α, above zero, or chosen to a decade by the pinball loss of cross-validation on 1000 rows at most. There is no leave-one-out error in closed
    /// form; five folds take its place.
    pub alpha: Alpha,
}

/// Folds of cross-validation by default.
const FOLDS: usize = 5;

/// Rows that α is chosen on, at most.
const ROWS: usize = 1000;

/// The duality gap, over the loss of the best constant, at which the solver ends.
const GAP: f64 = 1e-9;

/// Most steps of the solver; some twenty are usual.
const STEPS: usize = 100;

static QUANTILE: Opt = Opt::new(
    "quantile",
    "SHARE",
    Kind::Share,
    "the share of the targets that lies below the prediction [default: 0.5]",
);

impl QuantileRegression {
    /// The median under `kernel`, with α by cross-validation.
    pub fn new(kernel: Kernel) -> Self {
        QuantileRegression { kernel, quantile: 0.5, alpha: Alpha::LeaveOneOut }
    }

    pub(crate) fn entry() -> Entry<RegressionTask> {
        Entry {
            can: Caps { numbers: true, ..Caps::default() },
            ..Entry::<RegressionTask>::new(
                "quantile",
                "Quantiles of numbers by the pinball loss; all points and their kernel matrix are in memory",
                [&[&QUANTILE][..], &AlphaOptions::OPTIONS].concat(),
                |o, known| {
                    let (quantile, alpha) = (o.take(&QUANTILE)?.unwrap_or(0.5), AlphaOptions::of(o)?);
                    Regression::of_one(known, KERNEL, Quantile { quantile, alpha })
                },
            )
        }
    }

    /// The least value of the dual, for the share q.
    fn solve(&self, k: ArrayView2<f64>, y: ArrayView1<f64>, alpha: f64, context: &FitContext) -> Result<Solution> {
        let base = quantile(y, self.quantile);
        let spread = y.iter().map(|y| pinball(self.quantile, y - base)).sum::<f64>() / y.len() as f64;
        if spread == 0.0 {
            let coefficients = Array1::zeros(y.len());
            return Ok(Solution { coefficients, offset: base, gaps: vec![0.0], interrupted: false });
        }
        let dual = Dual { h: k.mapv(|k| k / alpha), y: y.mapv(|y| (y - base) / spread), q: self.quantile };
        let Solution { coefficients, offset, gaps, interrupted } = dual.solve(context)?;
        let coefficients = coefficients * (spread / alpha);
        Ok(Solution { coefficients, offset: base + spread * offset, gaps, interrupted })
    }

    /// The mean loss of every α of a grid on rows that are left out.
    fn choose(
        &self,
        k: ArrayView2<f64>,
        y: ArrayView1<f64>,
        folds: usize,
        context: &FitContext,
    ) -> Result<(Vec<Tried>, Option<String>)> {
        let n = y.len();
        let rows = Rng::new(context.seed).fork(0x7175_616e).sample(n, n.min(ROWS));
        let scale = k.diag().mean().unwrap_or(1.0).max(f64::MIN_POSITIVE);
        let grid: Vec<f64> = (-4..=1).map(|decade| scale * 10f64.powi(decade)).collect();
        let at = |rows: &[usize], some: &[usize]| some.iter().map(|&i| rows[i]).collect::<Vec<usize>>();
        cross_validate(rows.len(), folds, context, &grid, |rest, out| {
            let (rest, out) = (at(&rows, rest), at(&rows, out));
            let own = k.select(Axis(0), &rest).select(Axis(1), &rest);
            let cross = k.select(Axis(0), &out).select(Axis(1), &rest);
            let (y_rest, y_out) = (y.select(Axis(0), &rest), y.select(Axis(0), &out));
            let loss = |&alpha: &f64| {
                let Solution { coefficients, offset, .. } = self.solve(own.view(), y_rest.view(), alpha, context)?;
                let f = cross.dot(&coefficients) + offset;
                Ok(y_out.iter().zip(&f).map(|(y, f)| pinball(self.quantile, y - f)).sum())
            };
            grid.iter().map(loss).collect()
        })
    }
}

/// `ρ_q(r)`
fn pinball(q: f64, r: f64) -> f64 {
    (q * r).max((q - 1.0) * r)
}

/// The q-quantile of numbers: a constant of least loss.
fn quantile(y: ArrayView1<f64>, q: f64) -> f64 {
    let mut sorted = y.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((q * y.len() as f64) as usize).min(y.len() - 1)]
}

/// `max_a aᵀy − ½ aᵀHa` with `q − 1 ≤ a_i ≤ q`, `Σ_i a_i = 0`.
struct Dual {
    /// `[n, n]`
    h: Array2<f64>,
    /// `[n]`, whose best constant has the loss 1 on average.
    y: Array1<f64>,
    q: f64,
}

/// Weights of the points and the constant, with the gap after every step.
struct Solution {
    coefficients: Array1<f64>,
    offset: f64,
    gaps: Vec<f64>,
    interrupted: bool,
}

/// A point inside the bounds: weights a, the constant b, and the multipliers of the lower and upper bounds.
struct Iterate {
    a: Array1<f64>,
    b: f64,
    lower: Array1<f64>,
    upper: Array1<f64>,
}

/// A change of an [`Iterate`].
type Direction = Iterate;

/// The equations of a Newton step at an iterate.
struct Newton<'a> {
    at: &'a Iterate,
    /// `a − (q − 1)` and `q − a`
    room: [Array1<f64>; 2],
    /// `y − Ha − b + lower − upper`
    residual: Array1<f64>,
    /// Of `H + lower/room₀ + upper/room₁`.
    factor: Cholesky<f64>,
    /// `(H + …)⁻¹ 1`
    ones: Array1<f64>,
}

impl Newton<'_> {
    /// The step to products of multipliers and rooms that change by `change`.
    fn direction(&self, change: [Array1<f64>; 2]) -> Result<Direction> {
        let [below, above] = &self.room;
        let right = &self.residual + &(&change[0] / below) - &(&change[1] / above);
        let solved = self.factor.solve(right.view().insert_axis(Axis(1)))?.remove_axis(Axis(1));
        let b = (solved.sum() + self.at.a.sum()) / self.ones.sum();
        let a = solved - &self.ones * b;
        let lower = (&change[0] - &(&self.at.lower * &a)) / below;
        let upper = (&change[1] + &(&self.at.upper * &a)) / above;
        Ok(Iterate { a, b, lower, upper })
    }

    /// The largest step along a direction that leaves no bound, up to 1.
    fn longest(&self, along: &Direction) -> f64 {
        let most = |values: &Array1<f64>, changes: ArrayView1<f64>, sign: f64| {
            let until =
                |(value, change): (&f64, &f64)| if sign * change < 0.0 { -value / (sign * change) } else { 1.0 };
            values.iter().zip(changes).map(until).fold(1.0, f64::min)
        };
        let rooms = most(&self.room[0], along.a.view(), 1.0).min(most(&self.room[1], along.a.view(), -1.0));
        let lower = most(&self.at.lower, along.lower.view(), 1.0);
        rooms.min(lower).min(most(&self.at.upper, along.upper.view(), 1.0))
    }

    /// The mean product of multipliers and rooms after a step.
    fn product(&self, step: f64, along: &Direction) -> f64 {
        let Iterate { lower, upper, .. } = self.at;
        let mut sum = 0.0;
        Zip::from(lower).and(&along.lower).and(&self.room[0]).and(&along.a).for_each(|z, dz, room, da| {
            sum += (z + step * dz) * (room + step * da);
        });
        Zip::from(upper).and(&along.upper).and(&self.room[1]).and(&along.a).for_each(|w, dw, room, da| {
            sum += (w + step * dw) * (room - step * da);
        });
        sum / (2 * lower.len()) as f64
    }
}

impl Dual {
    /// By Mehrotra's predictor and corrector.
    fn solve(&self, context: &FitContext) -> Result<Solution> {
        /// How near to the bounds a step comes.
        const NEAR: f64 = 0.995;
        let n = self.y.len();
        let mut at = Iterate {
            a: Array1::zeros(n),
            b: 0.0,
            lower: self.y.mapv(|y| (-y).max(0.0) + 1.0),
            upper: self.y.mapv(|y| y.max(0.0) + 1.0),
        };
        let (mut gaps, mut interrupted) = (vec![], false);
        let keeps = context.keeps_best();
        loop {
            let ha = self.h.dot(&at.a);
            let r = &self.y - &ha - at.b;
            let loss: f64 = r.iter().map(|r| pinball(self.q, *r)).sum();
            gaps.push((loss + at.a.dot(&ha) - at.a.dot(&self.y)).max(0.0) / n as f64);
            interrupted = interrupted || keeps.cut_short();
            if gaps.last().is_some_and(|gap| *gap <= GAP) || gaps.len() > STEPS || interrupted {
                return Ok(Solution { coefficients: at.a, offset: at.b, gaps, interrupted });
            }
            let newton = self.newton(&at, r, context)?;
            let [below, above] = &newton.room;
            let predicted = newton.direction([-(&at.lower * below), -(&at.upper * above)])?;
            let now = newton.product(0.0, &predicted);
            let after = newton.product(newton.longest(&predicted), &predicted);
            let centre = now * (after / now).powi(3);
            let changes = [
                -(&at.lower * below) - &predicted.a * &predicted.lower + centre,
                -(&at.upper * above) + &predicted.a * &predicted.upper + centre,
            ];
            let along = newton.direction(changes)?;
            let step = NEAR * newton.longest(&along);
            at = Iterate {
                a: &at.a + &(along.a * step),
                b: at.b + along.b * step,
                lower: &at.lower + &(along.lower * step),
                upper: &at.upper + &(along.upper * step),
            };
        }
    }

    /// The equations at an iterate with the residuals `r = y − Ha − b`.
    fn newton<'a>(&self, at: &'a Iterate, r: Array1<f64>, context: &FitContext) -> Result<Newton<'a>> {
        let room = [at.a.mapv(|a| a - (self.q - 1.0)), at.a.mapv(|a| self.q - a)];
        let mut matrix = self.h.clone();
        let bounds = &at.lower / &room[0] + &at.upper / &room[1];
        // Points at the same place have the same row: what is far below the rounding of K keeps the matrix definite.
        let least = f64::EPSILON * (1.0 + self.h.diag().sum());
        matrix.diag_mut().zip_mut_with(&bounds, |k, bound| *k += bound + least);
        let factor = Cholesky::new(context.device, matrix.view())?;
        let ones = factor.solve(Array2::ones((r.len(), 1)).view())?.remove_axis(Axis(1));
        let residual = r + &at.lower - &at.upper;
        Ok(Newton { at, room, residual, factor, ones })
    }
}

/// A fitted quantile, ready to predict. Example: [`QuantileRegression`].
pub struct FittedQuantileRegression {
    /// q
    pub quantile: f64,
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α, with its mean pinball loss.
    pub tried: Vec<Tried>,
    /// How the solver went: its steps, and the duality gap over the loss of the best constant.
    pub convergence: Convergence,
    /// What it was fitted on.
    pub reference: Reference,
    notes: Vec<String>,
    kernel: Kernel,
    /// b
    offset: f64,
    /// c `[n, 1]`
    coefficients: Array2<f64>,
}

impl FittedQuantileRegression {
    /// c `[n]`
    pub fn coefficients(&self) -> ArrayView1<'_, f64> {
        self.coefficients.column(0)
    }
}

impl Fit for QuantileRegression {
    type Target = Target;
    type Fitted = FittedQuantileRegression;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedQuantileRegression> {
        let (start, n) = (Instant::now(), x.nrows());
        check_points(x)?;
        self.alpha.check(n)?;
        fail_if!(
            !(0.0 < self.quantile && self.quantile < 1.0),
            "the quantile must lie between 0 and 1, got {}",
            self.quantile
        );
        fail_if!(self.alpha == Alpha::Fixed(0.0), "quantile regression needs an α above 0");
        let Target::Values(y) = y else {
            return Err(Error::input("quantiles are those of numbers, and the target is classes"));
        };
        fail_if!(y.len() != n, "there are {n} points but {} targets", y.len());
        context.budget.require(
            format!("quantile regression on {n} points"),
            4 * 8 * (n as u64).pow(2),
            "use fewer points",
        )?;
        let y = ArrayView1::from(y);
        let k: Array2<f64> = gram(&self.kernel, x, context.device)?;
        let (alpha, tried, mut notes) = match self.alpha {
            Alpha::Fixed(alpha) => (alpha, vec![], vec![]),
            Alpha::CrossValidation { .. } | Alpha::LeaveOneOut => {
                let folds = self.alpha.folds().max(if self.alpha == Alpha::LeaveOneOut { FOLDS.min(n) } else { 0 });
                let (tried, note) = self.choose(k.view(), y, folds, context)?;
                let (alpha, tried) = best(tried)?;
                (alpha, tried, note.into_iter().collect())
            }
        };
        let Solution { coefficients, offset, gaps, interrupted } = self.solve(k.view(), y, alpha, context)?;
        let (iterations, residual) = (gaps.len() - 1, gaps[gaps.len() - 1]);
        let convergence =
            Convergence { iterations: Some(iterations), residual: Some(residual), curve: gaps, held_out: vec![] };
        let named = ["the interior-point method", "was", "steps"];
        notes.extend(convergence.early_end(named, GAP, (interrupted, false), crate::advice!(LargerAlpha)));
        let origin = Origin::new("quantile", &self.kernel, x.dim(), context, start);
        Ok(FittedQuantileRegression {
            quantile: self.quantile,
            alpha,
            tried,
            convergence,
            reference: Reference::new(origin, x, context),
            notes,
            kernel: self.kernel.clone(),
            offset,
            coefficients: coefficients.insert_axis(Axis(1)),
        })
    }
}

impl Predict for FittedQuantileRegression {
    fields! { origin: Origin = reference.origin; }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.reference.expand(&self.kernel, 1.0, x, self.coefficients.view())? + self.offset)
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        Target::Values(scores.column(0).to_vec())
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

saved! {
    FittedQuantileRegression, "quantile":
    reference: Reference = whole(Reference::unpack);
    quantile: f64 = value("quantile");
    alpha: f64 = value("alpha");
    tried: Vec<Tried> = value("tried");
    convergence: Convergence = whole(Convergence::unpack);
    notes: Vec<String> = value("notes");
    offset: f64 = value("offset");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, 1));
}

/// A quantile under a kernel that is still to come.
struct Quantile {
    quantile: f64,
    alpha: Alpha,
}

impl Estimator for Quantile {
    fn learn(&self, kernels: &[Expression], examples: &Examples, context: &FitContext) -> Result<Outcome> {
        let (kernel, x) = (kernels[0].resolve(examples.x, context.seed)?, examples.x.to_f64());
        let regression = QuantileRegression { kernel, quantile: self.quantile, alpha: self.alpha };
        let fitted = regression.fit(x.view(), examples.y, context)?;
        let (alpha, tried, convergence) = (fitted.alpha, fitted.tried.clone(), fitted.convergence.clone());
        let solver = SolverName { name: "the interior-point method", unit: "step" };
        Ok(Outcome { convergence, solver, measure: "pinball loss", ..Outcome::new(fitted, alpha, tried) })
    }
}
