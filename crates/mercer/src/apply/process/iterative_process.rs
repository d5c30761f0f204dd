//! Gaussian-process regression by conjugate gradients: all points, and no kernel matrix.

use crate::apply::process::feature_process::MOST_LEFT_OUT;
use crate::apply::process::gaussian_process::{moments, notes, numbers, positive, scaled};
use crate::apply::process::partial_inverse::{COLUMNS, Covariance, PartialInverse, VALUES, Vectors};
use crate::apply::process::stochastic_likelihood::{NoiseEnd, Solution, StochasticLikelihood};
use crate::apply::reference::{Reference, check_new};
use crate::apply::search::tuning::LEAST_NOISE;
use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
use crate::apply::traits::{fields, not_kept, posterior_of_numbers, saved};
use crate::apply::{
    Criterion, Fit, FittedProcess, Iteration, LeftOut, Likelihood, Predict, Process, ProcessFeatures, ProcessTask,
    SearchEnd, Tuning, check_points,
};
use crate::data::Target;
use crate::kernel::{Expression, Kernel};
use crate::operator::{KernelOperator, Operator, Precision};
use crate::options::{Caps, Entry, Kind, Opt, Options};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::time::Instant;

static PRECISION: Opt = Opt::new(
    "precision",
    "PRECISION",
    Kind::Word(|| Precision::NAMED.map(|(word, _)| word).to_vec()),
    "precision of kernel values; f32 takes about half the time [default: f64]",
);

/// How many times the least rank the preconditioner may have.
const GROWTH: usize = 4;

/// Rows at which deviations are compared with the exact ones.
const COMPARED: usize = 32;

/// Numbers of neighbours that are tried: the first that brings the deviations close enough is kept.
const NEIGHBOURS: [usize; 4] = [64, 128, 256, 512];

/// An excess of the deviations that is close enough.
const CLOSE: f64 = 0.01;

/// Gaussian-process regression on all points by preconditioned conjugate gradients: products with the kernel matrix alone, which need not be
/// stored. Time grows like n², memory like n times the rank of the preconditioner.
///
/// Lengthscales are those of the largest marginal likelihood on some rows ([`Tuning`]). The amplitude c and the noise σ² are found again on
/// all rows, along stochastic gradients of their likelihood that are exact in expectation; its logarithm, by stochastic Lanczos quadrature, comes with
/// a standard error. The mean is that of the exact posterior, to the residual of conjugate gradients.
///
/// With `A = K + σ²I`, U the directions of the preconditioner and S the fitted points nearest to x, by their correlation under κ, the variance is
///
/// `κ(x,x) − κ(x,X)V(VᵀAV)⁻¹Vᵀκ(X,x)`,  `V = [U, e_S]`,
///
/// that of f(x) given `Uᵀy` and `y_S`. It is never below the exact one: `V(VᵀAV)⁻¹Vᵀ ≤ A⁻¹` for every V. Exact solutions at some rows say how far
/// the deviations are above, and how many neighbours bring that below 1 %, 512 at most: [`FittedIterativeProcess::excess`].
///
/// ```
/// use mercer::apply::{Fit, IterativeProcess, Predict};
/// use mercer::{FitContext, data::Target, kernel::Expression};
/// let x = ndarray::Array2::from_shape_fn((600, 1), |(i, _)| i as f64 / 100.0);
/// let y = Target::Values(x.iter().enumerate().map(|(i, x)| x.sin() + 0.1 * ((i * 37 % 11) as f64 / 5.0 - 1.0)).collect());
/// let mut process = IterativeProcess::new(Expression::parse("rbf(lengthscale=auto)")?);
/// process.tuning.rows = 100;
/// let fitted = process.fit(x.view(), &y, &FitContext::default())?;
/// let new = ndarray::array![[2.22], [30.0]];
/// assert!((fitted.scores(new.view())?[[0, 0]] - 2.22f64.sin()).abs() < 0.05);
/// let deviations = fitted.deviations(new.view())?.unwrap();
/// assert!((deviations[0] - 0.06).abs() < 0.01 && deviations[1] > 0.3); // the noise alone, and far from the points
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct IterativeProcess {
    /// κ, with numbers, `median`, `auto` or `ard` for its lengthscales.
    pub kernel: Expression,
    /// Rank of the preconditioner; none chooses `4√n`, 500 at least, or what the memory has room for, and up to four times as much where what
    /// is left of the kernel matrix is above the noise.
    pub rank: Option<usize>,
    /// Precision of kernel values; none takes that of the context.
    pub precision: Option<Precision>,
    /// How hyper-parameters are found.
    pub tuning: Tuning,
}

impl IterativeProcess {
    /// With lengthscales by the marginal likelihood, from three starts and 2000 rows at most.
    pub fn new(kernel: Expression) -> Self {
        let tuning = Tuning { criterion: Criterion::Likelihood, ..Tuning::default() };
        IterativeProcess { kernel, rank: None, precision: None, tuning }
    }

    pub(crate) fn entry() -> Entry<ProcessTask> {
        Entry {
            can: Caps { numbers: true, precision: true, ..Caps::default() },
            ..Entry::<ProcessTask>::new(
                "cg",
                "The posterior given all rows, by conjugate gradients, without the kernel matrix in memory; time grows like n²",
                [&[ProcessFeatures::RANK][..], &Tuning::OPTIONS, &[&PRECISION]].concat(),
                IterativeProcess::built,
            )
        }
    }

    fn built(o: &mut Options, task: &ProcessTask) -> Result<Process> {
        let usual = IterativeProcess::new(task.kernel.clone());
        let (rank, precision) = (o.take(ProcessFeatures::RANK)?, o.take_word(&PRECISION, &Precision::NAMED)?);
        let tuning = usual.tuning.with_options(o)?;
        let why = format!("method cg: the posterior given all {} rows, without a matrix", task.n);
        Ok(Process::new(IterativeProcess { rank, precision, tuning, ..usual }, why))
    }

    /// The least and the largest rank for n points, and the bytes that the latter takes beside K.
    fn sized(&self, n: usize, context: &FitContext) -> Result<([usize; 2], u64)> {
        // Two factors [n, rank], the parts of a product with K, of which every thread has some, and kernel values of a few rows.
        let bytes = |rank: usize| 8 * n as u64 * (2 * rank as u64 + 12 * COLUMNS as u64) + VALUES.min(8 * n * n) as u64;
        let mut rank = self.rank.unwrap_or((4 * n.isqrt()).max(500)).min(n);
        while self.rank.is_none() && rank > 64 && !context.budget.allows(bytes(rank)) {
            rank /= 2;
        }
        context.budget.require(
            format!("conjugate gradients on {n} points with a preconditioner of rank {rank}"),
            bytes(rank),
            "use a smaller rank, or fewer points",
        )?;
        let mut most = if self.rank.is_some() { rank } else { (GROWTH * rank).min(n) };
        while most > rank && !context.budget.allows(bytes(most)) {
            most = (most / 2).max(rank);
        }
        Ok(([rank, most], bytes(most)))
    }
}

/// The posterior, ready to predict. Example: [`IterativeProcess`].
pub struct FittedIterativeProcess {
    /// σ²
    pub noise: f64,
    /// `log p(y)` of the fitted points.
    pub likelihood: f64,
    /// Its standard error, from the probes of the determinant.
    pub likelihood_error: f64,
    /// How the search for hyper-parameters ended.
    pub search: SearchEnd,
    /// Rank of the preconditioner.
    pub rank: usize,
    /// Products with K that the last solution took.
    pub iterations: usize,
    /// Its relative residual.
    pub residual: f64,
    /// How far the deviations of targets are above the exact ones, on average over some fitted rows, each predicted from all others:
    /// 0.02 is 2 %.
    pub excess: f64,
    /// For some fitted rows: the row, and the mean and the standard deviation of its target given all others, with the diagonal of `A⁻¹` from
    /// below. A file does not keep them.
    pub left_out: Vec<(usize, [f64; 2])>,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    notes: Vec<String>,
    /// m
    mean: f64,
    /// `A⁻¹(y − m)` `[n, 1]`
    coefficients: Array2<f64>,
    /// A⁻¹ from below, for variances.
    inverse: PartialInverse,
}

impl Fit for IterativeProcess {
    type Target = Target;
    type Fitted = FittedIterativeProcess;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedIterativeProcess> {
        let start = Instant::now();
        check_points(x)?;
        let context = &FitContext { precision: self.precision.unwrap_or(context.precision), ..*context };
        let n = x.nrows();
        let values = numbers(y, n, "use the Gaussian process for classes")?;
        let (ranks, other) = self.sized(n, context)?;
        let (mean, variance) = moments(values)?;
        let found = self.tuning.best(&self.kernel, x, y, context)?;
        // A request to end early was about the search.
        let mut notes = notes(&found, context.keeps_best().cut_short());
        let kernel = scaled(found.kernel.clone(), variance);
        let operator = context.operator(&kernel, x, other)?;
        let operator = operator.as_ref();
        let noise = found.noise * variance;
        let preconditioner = LowRankPreconditioner::growing(operator, ranks, noise, context)?;
        let y: Array1<f64> = values.iter().map(|y| y - mean).collect();
        let likelihood = StochasticLikelihood::new(operator, &preconditioner, &y, context)?;
        let (at, end) = likelihood.best(noise, bounds(operator)?)?;
        notes.extend(match end {
            NoiseEnd::Found => None,
            NoiseEnd::CutShort => {
                Some("the search for the noise on all rows was interrupted; its best value so far is used".to_owned())
            }
            NoiseEnd::Slow(seconds) => Some(format!(
                "the noise is that of the {} rows of the search: one value takes {:.0} minutes on all rows",
                found.rows,
                seconds / 60.0
            )),
        });
        let solution = likelihood.solution(at, tolerance(context.precision))?;
        notes.extend(context.keeps_best().cut_short().then(|| {
            format!(
                "conjugate gradients were interrupted after {} products at a relative residual of {:.1e}",
                solution.iterations, solution.residual
            )
        }));
        let rows = Rng::new(context.seed).fork(0x006c_6f6f).sample(n, MOST_LEFT_OUT.min(n));
        let compared = &rows[..COMPARED.min(n)];
        let Solution { alpha, solved, amplitude, .. } = solution;
        let exact = likelihood.inverse_diagonal(alpha, compared)? / amplitude;
        let fine;
        let operator = if context.precision == Precision::F64 {
            operator
        } else {
            fine = KernelOperator::new(&kernel, x, Precision::F64, context.device)?;
            &fine
        };
        let rank = preconditioner.rank();
        let mut inverse =
            PartialInverse::new(operator, preconditioner.into_basis(ranks[0])?, (alpha, amplitude), context)?;
        let kernel = scaled(kernel, amplitude);
        let of = Covariance { kernel: &kernel, points: x, device: context.device };
        let excess = choose_neighbours(&mut inverse, of, compared, &exact)?;
        notes.extend((excess > CLOSE).then(|| {
            format!(
                "standard deviations are upper bounds, {:.0} % above the exact ones on average; use {higher_rank} for closer ones",
                100.0 * excess, higher_rank = crate::advice!(HigherRank))
        }));
        let solved = solved / amplitude;
        let left_out = left_out(&inverse, of, &rows, values, &solved)?;
        let origin = Origin::new("conjugate-gradients", &kernel, x.dim(), context, start);
        Ok(FittedIterativeProcess {
            noise: amplitude * alpha,
            likelihood: solution.likelihood.value,
            likelihood_error: solution.likelihood.error,
            search: SearchEnd::new(&found, variance),
            rank,
            iterations: solution.iterations,
            residual: solution.residual,
            excess,
            left_out,
            reference: Reference::new(origin, x, context),
            kernel,
            notes,
            mean,
            coefficients: solved.insert_axis(Axis(1)),
            inverse,
        })
    }
}

/// The relative residual of the mean: in single precision no less than rounding allows.
fn tolerance(precision: Precision) -> f64 {
    if precision == Precision::F64 { 1e-6 } else { 1e-4 }
}

/// Bounds of α for a kernel matrix; products in single precision cannot tell less from rounding.
fn bounds(operator: &dyn Operator) -> Result<(f64, f64)> {
    let diagonal = operator.diagonal()?.mean().unwrap_or(1.0);
    let least = LEAST_NOISE.max(10.0 * operator.roundoff() * (operator.n() as f64).sqrt());
    Ok((least * diagonal, 1e4 * diagonal))
}

/// Some rows, each predicted from all others: `y_i − s_i/Q_ii` with variance `1/Q_ii`, `s = A⁻¹y` and Q the diagonal of `A⁻¹` from below.
fn left_out(
    inverse: &PartialInverse,
    of: Covariance,
    rows: &[usize],
    values: &[f64],
    solved: &Array1<f64>,
) -> Result<Vec<(usize, [f64; 2])>> {
    let q = inverse.diagonal(of, rows)?;
    let at = |(&i, q): (&usize, &f64)| (i, [values[i] - solved[i] / q, 1.0 / q.sqrt()]);
    Ok(rows.iter().zip(&q).map(at).collect())
}

/// Takes as many neighbours as bring the deviations of left-out rows close to the exact ones, `1/√Q_ii` with the diagonal `exact` of `A⁻¹` at `rows`;
/// returns how far they are above them.
fn choose_neighbours(inverse: &mut PartialInverse, of: Covariance, rows: &[usize], exact: &Array1<f64>) -> Result<f64> {
    let n = of.points.nrows();
    let mut excess = 0.0;
    for count in NEIGHBOURS {
        inverse.neighbours = count.min(n);
        let ratios = (exact / &inverse.diagonal(of, rows)?).mapv(f64::sqrt);
        excess = (ratios.mean().unwrap_or(1.0) - 1.0).max(0.0);
        if excess <= CLOSE || count >= n {
            break;
        }
    }
    Ok(excess)
}

impl FittedIterativeProcess {
    /// `Var[f(x)|y]` `[m]` at new points `x` `[m, d]`, without the noise: never negative, and not below the exact one but for rounding.
    pub fn variance(&self, x: ArrayView2<f64>) -> Result<Array1<f64>> {
        check_new(x, self.reference.origin.d)?;
        let known = self.inverse.forms(self.covariance(), x, Vectors::Kernel)?;
        Ok((self.kernel.diagonal(x) - known).mapv(|v| v.max(0.0)))
    }

    fn covariance(&self) -> Covariance<'_> {
        Covariance { kernel: &self.kernel, points: self.reference.points(), device: self.reference.device }
    }
}

impl Predict for FittedIterativeProcess {
    fields! {
        origin: Origin = reference.origin;
        notes: [String] = notes;
    }
    posterior_of_numbers!();

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.reference.expand(&self.kernel, 1.0, x, self.coefficients.view())? + self.mean)
    }
}

impl FittedProcess for FittedIterativeProcess {
    fields! {
        kernel: Kernel = kernel;
        search: SearchEnd = search;
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood { error: Some(self.likelihood_error), ..Likelihood::exact(self.likelihood) }
    }

    fn noise(&self) -> Option<f64> {
        Some(self.noise)
    }

    fn iteration(&self) -> Option<Iteration> {
        let FittedIterativeProcess { rank, iterations, residual, excess: deviation_excess, .. } = *self;
        Some(Iteration { rank, iterations, residual, deviation_excess })
    }

    fn left_out(&self, _: &Target) -> Result<LeftOut> {
        Ok(LeftOut::Numbers(self.left_out.clone()))
    }
}

saved! {
    FittedIterativeProcess, "iterative-process":
    reference: Reference = whole(Reference::unpack);
    noise: f64 = value("noise", positive);
    likelihood: f64 = value("likelihood");
    likelihood_error: f64 = value("likelihood_error");
    search: SearchEnd = value("search");
    rank: usize = value("rank");
    iterations: usize = value("iterations");
    residual: f64 = value("residual");
    excess: f64 = value("excess");
    left_out: Vec<(usize, [f64; 2])> = known(not_kept, ());
    notes: Vec<String> = value("notes");
    mean: f64 = value("mean");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, 1));
    inverse: PartialInverse = whole(PartialInverse::unpack);
}
