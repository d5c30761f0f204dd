//! The search for hyper-parameters along the gradient of a criterion.

use crate::apply::search::criterion::{Classification, Criterion, OnMatrix, Regression};
use crate::apply::search::lbfgs::{Evaluated, Minimum, minimise};
use crate::apply::targets::Encoding;
use crate::data::Target;
use crate::kernel::{Expression, Kernel, Tunable};
use crate::operator::gram;
use crate::options::{Kind, Opt, Options};
use crate::rng::Rng;
use crate::{Error, FitContext, Progress, Result};
use ndarray::{Array2, ArrayView2, Axis};
use std::sync::Mutex;

/// The noise of the first start, where the targets have variance 1.
const FIRST_NOISE: f64 = 0.1;

/// The smallest noise, where the targets have variance 1.
pub(crate) const LEAST_NOISE: f64 = 1e-8;

/// The largest component of the gradient that counts as zero, for a criterion of order 1.
const TOLERANCE: f64 = 1e-5;

/// A search has settled when so many steps lower the criterion, which is of order 1, by less than this: a mean over 2000 rows cannot tell less.
const SETTLED: (usize, f64) = (10, 1e-5);

/// How far an amplitude or a lengthscale may go from its start: this factor up or down.
const FARTHEST: f64 = 1e5;

static RESTARTS: Opt = Opt::new(
    "restarts",
    "N",
    Kind::Count(0),
    "Random starts of the search for hyper-parameters, beside the one at the median distances [default: 2]",
);
static SEARCH_ROWS: Opt = Opt::new(
    "search-rows",
    "N",
    Kind::Count(2),
    "Rows that the search for hyper-parameters looks at, at most, drawn at random [default: 2000; 500 for classes]",
);

/// The search for the amplitudes, the lengthscales that are `auto` or `ard`, and the noise of a kernel, by a [`Criterion`] and its exact
/// gradient (L-BFGS in their logarithms).
///
/// The targets are brought to mean 0 and variance 1; classes are columns of ±1 under one kernel. A step costs about n³ operations, so that
/// it is for a few thousand points at most; more than `rows` are drawn from at random.
///
/// ```
/// use mercer::apply::{Criterion, Tuning};
/// use mercer::{FitContext, data::Target, kernel::Expression};
/// // The target depends on the first of two columns alone.
/// let x = ndarray::Array2::from_shape_fn((80, 2), |(i, j)| (i as f64 * [0.61, 0.37][j]) % 1.0);
/// let y = Target::Values(x.column(0).iter().map(|x| (6.0 * x).sin()).collect());
/// let tuning = Tuning { criterion: Criterion::Likelihood, ..Tuning::default() };
/// let found = tuning.best(&Expression::parse("rbf(ard)")?, x.view(), &y, &FitContext::default())?;
/// let lengthscales = &found.parameters[1..];
/// assert!(lengthscales[1] > 10.0 * lengthscales[0]);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// What is minimised.
    pub criterion: Criterion,
    /// Random starts beside the one at the median distances.
    pub restarts: usize,
    /// Steps of a start, at most.
    pub steps: usize,
    /// Rows that are looked at, at most.
    pub rows: usize,
}

/// The leave-one-out error, two restarts, 200 steps, 2000 rows.
impl Default for Tuning {
    fn default() -> Self {
        Tuning { criterion: Criterion::LeftOut, restarts: 2, steps: 200, rows: 2000 }
    }
}

/// Hyper-parameters that were found. Example: [`Tuning`].
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The kernel with them, for targets of variance 1.
    pub kernel: Kernel,
    /// The amplitude of each term, then the lengthscales from left to right.
    pub parameters: Vec<f64>,
    /// `σ²`, added to the diagonal of the kernel matrix, for targets of variance 1.
    pub noise: f64,
    /// The criterion there.
    pub value: f64,
    /// The largest component of its gradient, in the logarithms of the parameters.
    pub gradient: f64,
    /// Whether the gradient vanishes there, or ten steps changed the criterion by less than 1e-5.
    pub converged: bool,
    /// Steps that were made from this start.
    pub steps: usize,
    /// The criterion that each start reached, the one at the median distances first.
    pub starts: Vec<f64>,
    /// Rows that were looked at.
    pub rows: usize,
}

impl Tuned {
    /// Whether the search ended at the smallest noise that it tries; classes have none.
    pub(crate) fn has_least_noise(&self) -> bool {
        self.noise > 0.0 && self.noise <= LEAST_NOISE * 1.001
    }
}

impl Tuning {
    /// The options of a search, which [`Tuning::with_options`] takes.
    pub(crate) const OPTIONS: [&'static Opt; 2] = [&RESTARTS, &SEARCH_ROWS];

    /// The search as the options want it.
    pub(crate) fn with_options(self, o: &mut Options) -> Result<Tuning> {
        let restarts = o.take(&RESTARTS)?.unwrap_or(self.restarts);
        Ok(Tuning { restarts, rows: o.take(&SEARCH_ROWS)?.unwrap_or(self.rows), ..self })
    }

    /// The best hyper-parameters of `expression` for the points `x` `[n, d]` and their targets.
    pub fn best(&self, expression: &Expression, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Tuned> {
        let mut rng = Rng::new(context.seed).fork(0x7475_6e65);
        let rows = rng.sample(x.nrows(), self.rows.min(x.nrows()));
        let (x, y) = (x.select(Axis(0), &rows), columns(&y.select(&rows), rows.len())?);
        self.search(expression, x.view(), y.view(), context)?.best(&mut rng)
    }

    /// The criterion and its gradient at the logarithms θ of the amplitudes, the lengthscales and the noise, on all points.
    #[doc(hidden)]
    pub fn at(
        &self,
        expression: &Expression,
        x: ArrayView2<f64>,
        y: &Target,
        θ: &[f64],
        context: &FitContext,
    ) -> Result<(f64, Vec<f64>)> {
        let y = columns(y, x.nrows())?;
        let at = self.search(expression, x, y.view(), context)?.at(θ)?;
        at.ok_or_else(|| Error::Numerical("the kernel matrix is not positive definite there".into()))
    }

    /// The search on points `x` `[n, d]` with targets `y` `[n, m]`.
    fn search<'a>(
        &self,
        expression: &Expression,
        x: ArrayView2<'a, f64>,
        y: ArrayView2<'a, f64>,
        context: &'a FitContext<'a>,
    ) -> Result<Search<'a, Regression<'a>>> {
        // K, its factor, its inverse, the derivative and two matrices within it.
        let needed = 8 * x.nrows() as u64 * (6 * x.nrows() as u64 + 4 * y.ncols() as u64);
        context.budget.require("the search for hyper-parameters", needed, "look at fewer rows")?;
        let kernel = Tunable::new(expression, x, context.seed)?;
        Ok(Search { tuning: *self, kernel, x, target: Regression { criterion: self.criterion, y }, context })
    }

    /// The hyper-parameters of `expression` with the largest approximate marginal likelihood of classes at `x` `[n, d]`.
    pub(crate) fn best_for_classes(
        &self,
        expression: &Expression,
        x: ArrayView2<f64>,
        y: &Target,
        context: &FitContext,
    ) -> Result<Tuned> {
        let mut rng = Rng::new(context.seed).fork(0x7475_6e65);
        let rows = rng.sample(x.nrows(), self.rows.min(x.nrows()));
        let (x, y) = (x.select(Axis(0), &rows), y.select(&rows));
        let (_, y) = Encoding::encode(&y, x.nrows(), 0.0, 1.0)?;
        context.budget.require(
            "the search for hyper-parameters",
            (3 * y.ncols() as u64 + 6) * 8 * (x.nrows() as u64).pow(2),
            "look at fewer rows",
        )?;
        let target = Classification { y: y.view(), last: Mutex::new(Array2::zeros(y.dim())) };
        let kernel = Tunable::new(expression, x.view(), context.seed)?;
        Search { tuning: *self, kernel, x: x.view(), target, context }.best(&mut rng)
    }
}

/// The targets of n points as columns `[n, m]`: the numbers, or ±1 for each class, with mean 0 and variance 1.
fn columns(y: &Target, n: usize) -> Result<Array2<f64>> {
    standardised(Encoding::encode(y, n, -1.0, 1.0)?.1)
}

/// Columns `[n, m]` with mean 0 and variance 1.
pub(crate) fn standardised(y: Array2<f64>) -> Result<Array2<f64>> {
    let mean = y.mean_axis(Axis(0)).ok_or_else(|| Error::input("there are no points to learn from"))?;
    // A column that is constant stays 0.
    let deviation = y.std_axis(Axis(0), 0.0).mapv(|s| if s > 0.0 { s } else { 1.0 });
    Ok((y - mean) / deviation)
}

/// A search on points and targets.
struct Search<'a, T> {
    tuning: Tuning,
    kernel: Tunable,
    /// `[n, d]`
    x: ArrayView2<'a, f64>,
    target: T,
    context: &'a FitContext<'a>,
}

impl<T: OnMatrix> Search<'_, T> {
    /// The best of all starts.
    fn best(&self, rng: &mut Rng) -> Result<Tuned> {
        let mut first = self.kernel.start();
        if T::NOISE {
            first.push(FIRST_NOISE.ln());
        }
        let bounds = bounds(&first, T::NOISE);
        let (mut best, mut starts): (Option<Minimum>, Vec<f64>) = (None, vec![]);
        // From the first step on there is a result.
        let mut keeps = None;
        let count = self.tuning.restarts + 1;
        for number in 0..count {
            let start: Vec<f64> = match number {
                0 => first.clone(),
                // Within a factor e of the first, most of the time.
                _ => first.iter().map(|θ| θ + rng.normal()).collect(),
            };
            let stage = self.context.stage("start", number + 1, count);
            let (mut values, mut settled) = (vec![], false);
            let goes_on = |step: usize, value: f64, gradient: f64| {
                values.push(value);
                settled = values.len() > SETTLED.0 && values[values.len() - 1 - SETTLED.0] - value < SETTLED.1;
                keeps.get_or_insert_with(|| self.context.keeps_best());
                let note = format!("criterion {value:.4}, gradient {gradient:.1e}");
                stage.step("hyper-parameters", step, self.tuning.steps, &note);
                !(settled || self.context.interrupted())
            };
            let found = minimise(start, &bounds, (TOLERANCE, self.tuning.steps), |θ| self.at(θ), goes_on)?;
            let found = found.map(|found| Minimum { converged: found.converged || settled, ..found });
            starts.extend(found.as_ref().map(|found| found.value));
            best = [best, found].into_iter().flatten().min_by(|a, b| a.value.total_cmp(&b.value));
            if self.context.interrupted() {
                break;
            }
        }
        let best = best.ok_or_else(|| {
            Error::Numerical("the kernel matrix is not positive definite at any start; are all points equal?".into())
        })?;
        let (θ, noise) = self.parts(&best.x);
        Ok(Tuned {
            kernel: self.kernel.at(θ)?,
            parameters: θ.iter().map(|θ| θ.exp()).collect(),
            noise,
            value: best.value,
            gradient: best.gradient,
            converged: best.converged,
            steps: best.steps,
            starts,
            rows: self.x.nrows(),
        })
    }

    /// The hyper-parameters of the kernel, and σ²; zero where the target has none.
    fn parts<'b>(&self, θ: &'b [f64]) -> (&'b [f64], f64) {
        match θ {
            [kernel @ .., noise] if T::NOISE => (kernel, noise.exp()),
            _ => (θ, 0.0),
        }
    }

    /// The criterion and its gradient at the hyper-parameters and the logarithm of the noise.
    fn at(&self, θ: &[f64]) -> Result<Evaluated> {
        let (θ, noise) = self.parts(θ);
        let mut a = gram::<f64>(&self.kernel.at(θ)?, self.x, self.context.device)?;
        a.diag_mut().mapv_inplace(|k| k + noise);
        let at = match self.target.at(a.view(), self.context.device) {
            Ok(at) if at.value.is_finite() => at,
            Ok(_) | Err(Error::Numerical(_)) => return Ok(None),
            Err(other) => return Err(other),
        };
        a.diag_mut().mapv_inplace(|a| a - noise);
        let mut gradient = self.kernel.gradient(θ, self.x, a.view(), at.gradient.view(), self.context.device)?;
        if T::NOISE {
            gradient.push(noise * at.gradient.diag().sum());
        }
        Ok(Some((at.value, gradient)))
    }
}

/// Bounds about a start; with noise, its last entry is the logarithm of σ².
fn bounds(start: &[f64], noise: bool) -> Vec<(f64, f64)> {
    let far = FARTHEST.ln();
    let mut bounds: Vec<(f64, f64)> = start.iter().map(|θ| (θ - far, θ + far)).collect();
    if let Some(last) = bounds.last_mut().filter(|_| noise) {
        *last = (LEAST_NOISE.ln(), FARTHEST.ln());
    }
    bounds
}
