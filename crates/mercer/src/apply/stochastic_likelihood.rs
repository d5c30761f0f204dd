//! The marginal likelihood of a Gaussian process by conjugate gradients, its determinant by stochastic Lanczos quadrature.
//!
//! With `A = K + αI`, amplitude c and noise `σ² = cα`, the targets have the covariance `cA`, and
//!
//! `−2 log p(y) = yᵀA⁻¹y/c + n log c + log|A| + n log 2π`.
//!
//! For given α the best amplitude is `c = yᵀA⁻¹y/n`, so that one number is left to be searched for. Its Krylov spaces could be shared by all α
//! only without a preconditioner, where they take several times as many products as the four or five values of α that a secant needs with one:
//! `P = UΣUᵀ + αI` is known for every α, and each solution starts at the last one.
//!
//! With signs ε and probes `z = P^{1/2}ε`, whose covariance is P,
//!
//! `log|A| = log|P| + E[εᵀ log(P^{−1/2}AP^{−1/2}) ε]`,  `tr A⁻¹ = tr P⁻¹ + E[zᵀP⁻¹A⁻¹z − zᵀP⁻²z]`:
//!
//! both are exact in expectation, and vary only by what P leaves out of A. Conjugate gradients on the probes give both.

use super::conjugate_gradients::{Converged, Krylov, Shifted};
use super::preconditioner::LowRankPreconditioner;
use crate::linalg::Panel;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::{Error, FitContext, KeepsBest, Result};
use ndarray::{Array1, Array2, s};
use std::f64::consts::TAU;

/// Probes.
const PROBES: usize = 15;

/// The relative residual of solutions for the search, whose derivative then has about three digits.
const ROUGH: f64 = 1e-3;

/// Most products with K for a solution.
const PRODUCTS: usize = 1000;

/// Most values of α that are tried.
const TRIALS: usize = 12;

/// A mean over probes, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimated {
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
pub(super) struct StochasticLikelihood<'a> {
    operator: &'a dyn Operator,
    preconditioner: &'a LowRankPreconditioner,
    /// `[n, 1]`
    y: Panel,
    /// ε `[n, m]`
    signs: Panel,
    context: &'a FitContext<'a>,
}

/// The solutions at one α.
pub(super) struct AtShift {
    pub alpha: f64,
    /// `A⁻¹[y | z]` `[n, 1 + m]`
    solved: Panel,
    /// `yᵀA⁻¹y`
    pub quadratic: f64,
    /// `tr A⁻¹`
    pub trace: Estimated,
    /// The derivative of the negative logarithm of the likelihood by log α, the amplitude at its best.
    pub slope: Estimated,
}

/// The process with the best amplitude for an α.
pub(super) struct Solution {
    /// `A⁻¹y` `[n]`
    pub solved: Array1<f64>,
    pub amplitude: f64,
    /// `log p(y)`
    pub likelihood: Estimated,
    /// `tr A⁻¹`
    pub trace: Estimated,
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
        let y = y.clone().insert_axis(ndarray::Axis(1));
        let [y, signs] = [y, signs].map(|columns| Panel::from_host(context.device, columns));
        Ok(StochasticLikelihood { operator, preconditioner, y: y?, signs: signs?, context })
    }

    /// The system `A X = [y | z]` at α: the right-hand sides, and what solves it.
    fn system(&self, alpha: f64) -> Result<(Shifted<'_>, Panel)> {
        let shifted = Shifted { operator: self.operator, preconditioner: self.preconditioner, alpha };
        Ok((shifted, self.y.joined(&self.preconditioner.root(alpha, &self.signs)?)?))
    }

    /// Zeros `[n, m]` on the device.
    fn zeros(&self, columns: usize) -> Result<Panel> {
        Panel::from_host(self.context.device, Array2::zeros((self.y.nrows(), columns)))
    }

    /// What the solutions `[n, 1 + m]` at α say: with `s = A⁻¹y`, the derivative by log α is `½(α tr A⁻¹ − n α sᵀs/yᵀs)`.
    fn read(&self, alpha: f64, b: &Panel, solved: Panel) -> Result<AtShift> {
        let (n, columns) = (self.y.nrows() as f64, b.ncols());
        let quadratic = b.dots(&solved)?[0];
        let square = solved.dots(&solved)?[0];
        // w = αP⁻¹z
        let w = self.preconditioner.solve(alpha, &b.columns(1..columns)?)?;
        let differences = w.dots(&solved.columns(1..columns)?)? / alpha - w.dots(&w)? / (alpha * alpha);
        let trace = Estimated::new(self.preconditioner.inverse_trace(alpha), &differences);
        let slope = 0.5 * alpha * (trace.value - n * square / quadratic);
        Ok(AtShift {
            alpha,
            solved,
            quadratic,
            trace,
            slope: Estimated { value: slope, error: 0.5 * alpha * trace.error },
        })
    }

    /// The rough solutions at α, from those at another; none where an interrupt came first.
    fn at(&self, alpha: f64, last: Option<&AtShift>, context: &FitContext) -> Result<Option<AtShift>> {
        let (shifted, b) = self.system(alpha)?;
        let start = last.map_or_else(|| self.zeros(b.ncols()), |last| last.solved.try_clone())?;
        let found = shifted.solve(&b, start, (ROUGH, PRODUCTS), None, context)?;
        if context.interrupted() {
            return Ok(None);
        }
        require_converged(&found, ROUGH)?;
        self.read(alpha, &b, found.x).map(Some)
    }

    /// α with the largest likelihood within bounds, from a start, and whether an interrupt cut the search short: the zero of the
    /// derivative by secants, within the interval where its sign changes. It ends where the derivative is below half its standard error.
    pub fn best(&self, start: f64, (low, high): (f64, f64)) -> Result<(f64, bool)> {
        let n = self.y.nrows() as f64;
        let (mut low, mut high) = (low.ln(), high.ln());
        let mut t = start.ln().clamp(low, high);
        let mut keeps: Option<KeepsBest> = None;
        let mut last: Option<(f64, AtShift)> = None;
        for trial in 1..=TRIALS {
            let stage = self.context.stage("noise", trial, TRIALS);
            let context = FitContext { progress: &stage, ..*self.context };
            let Some(at) = self.at(t.exp(), last.as_ref().map(|(_, at)| at), &context)? else {
                self.context.keeps_best().cut_short();
                return Ok((last.map_or(t, |(t, _)| t).exp(), true));
            };
            keeps.get_or_insert_with(|| self.context.keeps_best());
            let slope = at.slope.value;
            if slope.abs() <= (0.5 * at.slope.error).max(1e-9 * n) {
                return Ok((at.alpha, false));
            }
            if slope < 0.0 {
                low = t
            } else {
                high = t
            }
            // Without a secant: as if the second derivative were n/8.
            let rise =
                last.as_ref().map(|(before, b)| (slope - b.slope.value) / (t - before)).filter(|rise| *rise > 0.0);
            let step = (-slope / rise.unwrap_or(n / 8.0)).clamp(-2.0, 2.0);
            let next = if (low..=high).contains(&(t + step)) { t + step } else { 0.5 * (low + high) };
            if (next - t).abs() < 1e-7 {
                return Ok((at.alpha, false));
            }
            last = Some((t, at));
            t = next;
        }
        Ok((t.exp(), false))
    }

    /// The solution at α to a relative residual of `tolerance`, and the likelihood. An interrupt ends it with what there is.
    pub fn solution(&self, alpha: f64, tolerance: f64) -> Result<Solution> {
        let (shifted, b) = self.system(alpha)?;
        let mut krylov = Krylov::default();
        let rough = shifted.solve(&b, self.zeros(b.ncols())?, (ROUGH, PRODUCTS), Some(&mut krylov), self.context)?;
        let (n, columns) = (self.y.nrows() as f64, b.ncols());
        let fine = shifted.solve(&self.y, rough.x.columns(0..1)?, (tolerance, PRODUCTS), None, self.context)?;
        if !self.context.interrupted() {
            require_converged(&rough, ROUGH)?;
            require_converged(&fine, tolerance)?;
        }
        // Preconditioning is by αP⁻¹, and the norm of every sign vector is √n.
        let of = |column: usize| krylov.quadrature(column, |θ| n * (θ / alpha).max(f64::MIN_POSITIVE).ln());
        let quadratures: Array1<f64> = (1..columns).map(of).collect::<Result<_>>()?;
        let determinant = Estimated::new(self.preconditioner.log_determinant(alpha), &quadratures);
        let trace = self.read(alpha, &b, rough.x)?.trace;
        let solved = fine.x.into_host()?.slice(s![.., 0]).to_owned();
        let quadratic: f64 = self.y.to_host()?.column(0).dot(&solved);
        let amplitude = quadratic / n;
        let value = -0.5 * (n + n * amplitude.ln() + determinant.value + n * TAU.ln());
        Ok(Solution {
            solved,
            amplitude,
            likelihood: Estimated { value, error: 0.5 * determinant.error },
            trace,
            iterations: rough.iterations + fine.iterations,
            residual: fine.residual,
        })
    }
}

/// An error unless the relative residual is `tolerance` at most.
fn require_converged(found: &Converged, tolerance: f64) -> Result<()> {
    if found.residual <= tolerance {
        return Ok(());
    }
    Err(Error::Numerical(format!(
        "conjugate gradients stopped after {} products at a relative residual of {:.1e}, above the {tolerance:.0e} that the posterior needs; use \
         a preconditioner of higher rank, or features in place of the kernel",
        found.iterations, found.residual
    )))
}
