//! The marginal likelihood of a Gaussian process by conjugate gradients, its determinant by stochastic Lanczos quadrature.
//!
//! With `A = K + αI`, amplitude c and noise `σ² = cα`, the targets have the covariance `cA`, and
//!
//! `−2 log p(y) = yᵀA⁻¹y/c + n log c + log|A| + n log 2π`.
//!
//! For given α the best amplitude is `c = yᵀA⁻¹y/n`, so that one number is left to be searched for. Its Krylov spaces could be shared by all α
//! only without a preconditioner, where they take several times as many products as the four or five values of α that a secant needs with one:
//! `P = UΣUᵀ + αI` is known for every α. Every solution starts at zero: one that starts at the last α's ends where its residual is small enough, and
//! leaves the derivative too close to the last one.
//!
//! With signs ε and probes `z = P^{1/2}ε`, whose covariance is P,
//!
//! `log|A| = log|P| + E[εᵀ log(P^{−1/2}AP^{−1/2}) ε]`,  `tr A⁻¹ = tr P⁻¹ + E[zᵀP⁻¹A⁻¹z − zᵀP⁻²z]`:
//!
//! both are exact in expectation, and vary only by what P leaves out of A. Conjugate gradients on the probes give both.

use crate::apply::solvers::conjugate_gradients::{Converged, Krylov, Shifted};
use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
use crate::apply::solvers::monitor::Monitor;
use crate::linalg::Panel;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::{Error, FitContext, KeepsBest, Result};
use ndarray::{Array1, Array2, Axis};
use std::f64::consts::TAU;
use std::time::Instant;

/// Probes.
const PROBES: usize = 15;

/// The relative residual of solutions for the search, whose derivative then has about three digits.
const ROUGH: f64 = 1e-3;

/// The relative residual that is small enough for a diagonal of the inverse, whose relative error is about its square. Products in single
/// precision do not reach [`ROUGH`] for every unit vector.
const FOR_DIAGONAL: f64 = 1e-2;

/// Most products with K for a solution.
const PRODUCTS: usize = 1000;

/// Most values of α that are tried.
const TRIALS: usize = 12;

/// Seconds of the first value of α beyond which no other is tried.
const PATIENCE: f64 = 120.0;

/// How the search for the noise ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoiseEnd {
    /// At the largest likelihood.
    Found,
    /// By an interrupt.
    CutShort,
    /// At the start, which took so many seconds.
    Slow(f64),
}

/// A mean over probes, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimated {
    pub value: f64,
    pub error: f64,
}

impl Estimated {
    /// `known` and the mean of values that vary.
    fn new(known: f64, values: &Array1<f64>) -> Estimated {
        let count = values.len() as f64;
        Estimated { value: known + values.mean().unwrap_or(0.0), error: values.std(1.0) / count.sqrt() }
    }
}

/// Targets and probes of a kernel matrix.
pub(crate) struct StochasticLikelihood<'a> {
    operator: &'a dyn Operator,
    preconditioner: &'a LowRankPreconditioner,
    /// `[n, 1]`
    y: Panel,
    /// ε `[n, m]`
    signs: Panel,
    context: &'a FitContext<'a>,
}

/// The solutions at one α.
pub(crate) struct AtShift {
    pub alpha: f64,
    /// `A⁻¹y` `[n, 1]`, roughly.
    solved: Panel,
    /// `log|A|`
    determinant: Estimated,
    /// The derivative of the negative logarithm of the likelihood by log α, the amplitude at its best.
    slope: Estimated,
    iterations: usize,
}

/// The process with the best amplitude for an α.
pub(crate) struct Solution {
    pub alpha: f64,
    /// `A⁻¹y` `[n]`
    pub solved: Array1<f64>,
    pub amplitude: f64,
    /// `log p(y)`
    pub likelihood: Estimated,
    pub iterations: usize,
    /// `‖y − AA⁻¹y‖/‖y‖`
    pub residual: f64,
}

impl<'a> StochasticLikelihood<'a> {
    /// For centred targets `y` `[n]`.
    pub fn new(
        operator: &'a dyn Operator,
        preconditioner: &'a LowRankPreconditioner,
        y: &Array1<f64>,
        context: &'a FitContext<'a>,
    ) -> Result<Self> {
        let mut rng = Rng::new(context.seed).fork(0x7072_6f62);
        let signs = Array2::from_shape_simple_fn((y.len(), PROBES), || if rng.uniform() < 0.5 { -1.0 } else { 1.0 });
        let y = y.clone().insert_axis(Axis(1));
        let [y, signs] = [y, signs].map(|columns| Panel::from_host(context.device, columns));
        Ok(StochasticLikelihood { operator, preconditioner, y: y?, signs: signs?, context })
    }

    /// `A = K + αI`
    fn shifted(&self, alpha: f64) -> Shifted<'a> {
        Shifted { operator: self.operator, preconditioner: self.preconditioner, alpha }
    }

    /// The solutions of `A X = [y | z]` at α and what they say: with `s = A⁻¹y`, the derivative by log α is `½(α tr A⁻¹ − n α sᵀs/yᵀs)`.
    /// An interrupt leaves what there is.
    fn at(&self, alpha: f64, context: &FitContext) -> Result<AtShift> {
        let n = self.y.nrows() as f64;
        let z = self.preconditioner.root(alpha, &self.signs)?;
        let (b, columns) = (self.y.joined(&z)?, 1 + z.ncols());
        let zeros = Panel::from_host(context.device, Array2::zeros((b.nrows(), columns)))?;
        let mut krylov = Krylov::default();
        let monitor = Monitor { record: Some(&mut krylov), ..Monitor::default() };
        let found = self.shifted(alpha).solve(&b, zeros, (ROUGH, PRODUCTS), monitor, context)?;
        if !context.interrupted() {
            require_converged(&found, ROUGH)?;
        }
        let (solved, probes) = (found.x.columns(0..1)?, found.x.columns(1..columns)?);
        // w = αP⁻¹z
        let w = self.preconditioner.solve(alpha, &z)?;
        let differences = w.dots(&probes)? / alpha - w.dots(&w)? / (alpha * alpha);
        let trace = Estimated::new(self.preconditioner.inverse_trace(alpha), &differences);
        // Preconditioning is by αP⁻¹, and the norm of every sign vector is √n.
        let of = |column: usize| krylov.quadrature(column, |θ| n * (θ / alpha).max(f64::MIN_POSITIVE).ln());
        let quadratures: Array1<f64> = (1..columns).map(of).collect::<Result<_>>()?;
        let determinant = Estimated::new(self.preconditioner.log_determinant(alpha), &quadratures);
        let share = solved.dots(&solved)?[0] / self.y.dots(&solved)?[0];
        let slope = Estimated { value: 0.5 * alpha * (trace.value - n * share), error: 0.5 * alpha * trace.error };
        Ok(AtShift { alpha, solved, determinant, slope, iterations: found.iterations })
    }

    /// The solutions at the α with the largest likelihood within bounds, from a start, and how the search ended: the zero
    /// of the derivative by secants, within the interval where its sign changes. It ends where the derivative is below half its standard
    /// error, or at the start, where that alone takes longer than [`PATIENCE`].
    pub fn best(&self, start: f64, (low, high): (f64, f64)) -> Result<(AtShift, NoiseEnd)> {
        let n = self.y.nrows() as f64;
        let (mut low, mut high) = (low.ln(), high.ln());
        let mut t = start.ln().clamp(low, high);
        let mut keeps: Option<KeepsBest> = None;
        let mut last: Option<(f64, AtShift)> = None;
        let began = Instant::now();
        for trial in 1..=TRIALS {
            let stage = self.context.stage("noise", trial, TRIALS);
            let at = self.at(t.exp(), &FitContext { progress: &stage, ..*self.context })?;
            let keeps = keeps.get_or_insert_with(|| self.context.keeps_best());
            if keeps.cut_short() {
                return Ok((last.map_or(at, |(_, last)| last), NoiseEnd::CutShort));
            }
            let seconds = began.elapsed().as_secs_f64();
            if trial == 1 && seconds > PATIENCE {
                return Ok((at, NoiseEnd::Slow(seconds)));
            }
            let slope = at.slope.value;
            if slope < 0.0 {
                low = t;
            } else {
                high = t;
            }
            // Without a secant: as if the second derivative were n/8.
            let rise =
                last.as_ref().map(|(before, b)| (slope - b.slope.value) / (t - before)).filter(|rise| *rise > 0.0);
            let step = (-slope / rise.unwrap_or(n / 8.0)).clamp(-2.0, 2.0);
            let next = if (low..=high).contains(&(t + step)) { t + step } else { 0.5 * (low + high) };
            let found = slope.abs() <= 0.5 * at.slope.error || (next - t).abs() < 1e-7;
            last = Some((t, at));
            if found {
                break;
            }
            t = next;
        }
        Ok((last.expect("there is a trial").1, NoiseEnd::Found))
    }

    /// The process at the solutions for α, that of y to a relative residual of `tolerance`. An interrupt ends it with what there is.
    pub fn solution(&self, at: AtShift, tolerance: f64) -> Result<Solution> {
        let n = self.y.nrows() as f64;
        let fine = self.shifted(at.alpha).solve(
            &self.y,
            at.solved,
            (tolerance, PRODUCTS),
            Monitor::default(),
            self.context,
        )?;
        if !self.context.interrupted() {
            require_converged(&fine, tolerance)?;
        }
        let amplitude = self.y.dots(&fine.x)?[0] / n;
        let value = -0.5 * (n + n * amplitude.ln() + at.determinant.value + n * TAU.ln());
        Ok(Solution {
            alpha: at.alpha,
            solved: fine.x.into_host()?.column(0).to_owned(),
            amplitude,
            likelihood: Estimated { value, error: 0.5 * at.determinant.error },
            iterations: at.iterations + fine.iterations,
            residual: fine.residual,
        })
    }

    /// `(A⁻¹)_ii` `[rows]` at α for some rows i, a little below by the residual's square. An interrupt leaves what there is.
    pub fn inverse_diagonal(&self, alpha: f64, rows: &[usize]) -> Result<Array1<f64>> {
        let mut units = Array2::zeros((self.y.nrows(), rows.len()));
        rows.iter().enumerate().for_each(|(column, &row)| units[[row, column]] = 1.0);
        let zeros = Panel::from_host(self.context.device, Array2::zeros(units.dim()))?;
        let units = Panel::from_host(self.context.device, units)?;
        let stage = self.context.stage("exact variances", 1, 1);
        let context = FitContext { progress: &stage, ..*self.context };
        let found = self.shifted(alpha).solve(&units, zeros, (ROUGH, PRODUCTS), Monitor::default(), &context)?;
        if !context.interrupted() {
            require_converged(&found, FOR_DIAGONAL)?;
        }
        units.dots(&found.x)
    }
}

/// An error unless the relative residual is `tolerance` at most.
fn require_converged(found: &Converged, tolerance: f64) -> Result<()> {
    if found.residual <= tolerance {
        return Ok(());
    }
    Err(Error::Numerical(format!(
        "conjugate gradients stopped after {} products at a relative residual of {:.1e}, above the {tolerance:.0e} that the posterior needs; use \
         {higher_rank}, or features in place of the kernel",
        found.iterations,
        found.residual,
        higher_rank = crate::advice!(HigherRank)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Device;
    use crate::kernel::Kernel;
    use crate::linalg::Cholesky;
    use crate::operator::{DenseOperator, gram};

    const N: usize = 80;

    /// A kernel matrix of points in the plane, and targets.
    fn problem() -> (Array2<f64>, Array1<f64>) {
        let mut rng = Rng::new(3);
        let x = Array2::from_shape_simple_fn((N, 2), || rng.normal());
        let y = x.rows().into_iter().map(|x| x[0].sin() + 0.3 * rng.normal()).collect();
        (gram(&Kernel::parse("matern32(1)").unwrap(), x.view(), Device::Cpu).unwrap(), y)
    }

    /// Runs `work` with the likelihood under a preconditioner of this rank.
    fn with<T>(
        k: Array2<f64>,
        y: &Array1<f64>,
        rank: usize,
        seed: u64,
        work: impl FnOnce(&StochasticLikelihood) -> T,
    ) -> T {
        let (operator, context) = (DenseOperator::new(k), FitContext { seed, ..FitContext::default() });
        let preconditioner = LowRankPreconditioner::new(&operator, rank, &context).unwrap();
        work(&StochasticLikelihood::new(&operator, &preconditioner, y, &context).unwrap())
    }

    /// `−log p(y)` with the best amplitude, by a factor of `A = K + αI`.
    fn dense(k: &Array2<f64>, y: &Array1<f64>, alpha: f64) -> f64 {
        let a = k + &(Array2::<f64>::eye(N) * alpha);
        let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
        let (l, inverse) = (factor.lower().unwrap(), factor.inverse().unwrap());
        let determinant: f64 = (0..N).map(|i| 2.0 * l[(i, i)].ln()).sum();
        let (n, quadratic) = (N as f64, y.dot(&inverse.dot(y)));
        0.5 * (n + n * (quadratic / n).ln() + determinant + n * TAU.ln())
    }

    /// Its derivative by log α, by differences.
    fn dense_slope(k: &Array2<f64>, y: &Array1<f64>, alpha: f64) -> f64 {
        let step = 1e-4;
        let [more, less] = [step, -step].map(|step| dense(k, y, (alpha.ln() + step).exp()));
        (more - less) / (2.0 * step)
    }

    /// Over many seeds the means of derivative and likelihood tend to the dense ones, and standard errors say how fast.
    #[test]
    fn many_probes_give_the_dense_likelihood_and_slope() {
        let ((k, y), alpha, seeds) = (problem(), 0.05, 60);
        let found: Vec<[Estimated; 2]> = (0..seeds)
            .map(|seed| {
                with(k.clone(), &y, 8, seed, |l| {
                    let at = l.at(alpha, l.context).unwrap();
                    [at.slope, l.solution(at, 1e-10).unwrap().likelihood]
                })
            })
            .collect();
        let check = |which: usize, want: f64| {
            let values: Array1<f64> = found.iter().map(|f| f[which].value).collect();
            let error = values.std(1.0) / (seeds as f64).sqrt();
            assert!(
                (values.mean().unwrap() - want).abs() < 4.0 * error,
                "{} ± {error} for {want}",
                values.mean().unwrap()
            );
            // The standard error of one seed is the spread over all of them.
            let said = found.iter().map(|f| f[which].error.powi(2)).sum::<f64>() / seeds as f64;
            assert!((said.sqrt() / values.std(1.0) - 1.0).abs() < 0.3, "{} {}", said.sqrt(), values.std(1.0));
        };
        check(0, dense_slope(&k, &y, alpha));
        check(1, -dense(&k, &y, alpha));
    }

    /// With a preconditioner of full rank nothing is random: the derivative is that of the dense likelihood.
    #[test]
    fn the_slope_is_that_of_the_dense_likelihood() {
        let (k, y) = problem();
        for alpha in [0.02f64, 0.3] {
            let slope = with(k.clone(), &y, N, 0, |l| l.at(alpha, l.context).unwrap().slope);
            assert!((slope.value - dense_slope(&k, &y, alpha)).abs() < 1e-4 && slope.error < 1e-6, "{slope:?}");
        }
        // Its zero is the largest likelihood.
        let (best, _) = with(k.clone(), &y, N, 0, |l| l.best(1.0, (1e-6, 1e3)).unwrap());
        let best = best.alpha;
        let least = dense(&k, &y, best);
        assert!([0.97, 1.03].iter().all(|f| dense(&k, &y, f * best) > least), "{best}");
    }

    #[test]
    fn the_diagonal_of_the_inverse_is_the_dense_one() {
        let ((k, y), alpha, rows) = (problem(), 0.05, [7, 0, 79]);
        let a = &k + &(Array2::<f64>::eye(N) * alpha);
        let inverse = Cholesky::new(Device::Cpu, a.view()).unwrap().inverse().unwrap();
        let found = with(k, &y, 8, 0, |l| l.inverse_diagonal(alpha, &rows).unwrap());
        assert!(found.iter().zip(rows).all(|(q, i)| (q / inverse[[i, i]] - 1.0).abs() < 1e-4), "{found}");
    }

    #[test]
    fn what_does_not_converge_is_an_error_with_its_numbers() {
        let (k, y) = problem();
        let (operator, context) = (DenseOperator::new(k.clone()), FitContext::default());
        let preconditioner = LowRankPreconditioner::new(&operator, 5, &context).unwrap();
        let negative = DenseOperator::new(-k);
        let likelihood = StochasticLikelihood::new(&negative, &preconditioner, &y, &context).unwrap();
        let said = likelihood.at(0.1, &context).err().unwrap().to_string();
        assert!(said.contains("products at a relative residual of") && said.contains("higher rank"), "{said}");
    }
}
