//! Gaussian-process regression.

use crate::apply::process::softmax_laplace::half_log_determinant;
use crate::apply::reference::{Reference, check_new};
use crate::apply::search::tuning::{LEAST_NOISE, Tuned};
use crate::apply::traits::{fields, not_kept, posterior_of_numbers, saved};
use crate::apply::{
    Criterion, Fit, FittedProcess, GaussianProcessClassifier, LeftOut, Likelihood, Predict, Process, ProcessTask,
    Tuning, check_points,
};
use crate::data::Target;
use crate::finite::{check_squares, finite_rows};
use crate::kernel::{Expression, Kernel};
use crate::linalg::{Cholesky, matmul, solve_lower};
use crate::operator::{Precision, gram, gram_cross};
use crate::options::{Caps, Entry, Options};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use std::sync::OnceLock;
use std::time::Instant;

/// Gaussian-process regression: `y_i = m + f(x_i) + ε_i` with `f ~ GP(0, κ)` and `ε_i ~ N(0, σ²)`, m the mean of the targets.
///
/// The amplitudes, the lengthscales that are `auto` or `ard`, and the noise σ² are those of the largest marginal likelihood ([`Tuning`]).
/// Given them, with `A = K + σ²I`,
///
/// `E[f(x)|y] = m + κ(x,X)A⁻¹(y − m)`,  `Var[f(x)|y] = κ(x,x) − κ(x,X)A⁻¹κ(X,x)`.
///
/// The posterior is exact and takes n²/2 numbers and n³/3 operations.
///
/// ```
/// use mercer::apply::{Fit, GaussianProcess, Predict};
/// use mercer::{FitContext, data::Target, kernel::Expression};
/// let x = ndarray::Array2::from_shape_fn((40, 1), |(i, _)| i as f64 / 8.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let process = GaussianProcess::new(Expression::parse("rbf(lengthscale=auto)")?);
/// let fitted = process.fit(x.view(), &y, &FitContext::default())?;
/// let new = ndarray::array![[2.03], [30.0]];
/// assert!((fitted.scores(new.view())?[[0, 0]] - 2.03f64.sin()).abs() < 1e-3);
/// let deviations = fitted.deviations(new.view())?.unwrap();
/// assert!(deviations[0] < 0.01 && deviations[1] > 0.3); // known between the points, unknown far from them
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GaussianProcess {
    /// κ, with numbers, `median`, `auto` or `ard` for its lengthscales.
    pub kernel: Expression,
    /// How hyper-parameters are found.
    pub tuning: Tuning,
}

impl GaussianProcess {
    /// With hyper-parameters by the marginal likelihood, from three starts and 2000 rows at most.
    pub fn new(kernel: Expression) -> Self {
        GaussianProcess { kernel, tuning: Tuning { criterion: Criterion::Likelihood, ..Tuning::default() } }
    }

    pub(crate) fn entry() -> Entry<ProcessTask> {
        Entry {
            can: Caps { numbers: true, classes: true, functions: true, ..Caps::default() },
            ..Entry::<ProcessTask>::new(
                "exact",
                "The posterior given all rows, by a factor of the kernel matrix",
                Tuning::OPTIONS.to_vec(),
                |o, task| match task.classes {
                    true => GaussianProcessClassifier::built(o, task),
                    false => GaussianProcess::built(o, task, &format!("the posterior given all {} rows", task.n)),
                },
            )
        }
    }

    /// The process as the options want it, and why.
    pub(crate) fn built(o: &mut Options, task: &ProcessTask, why: &str) -> Result<Process> {
        let usual = GaussianProcess::new(task.kernel.clone());
        let tuning = usual.tuning.with_options(o)?;
        Ok(Process::new(GaussianProcess { tuning, ..usual }, format!("method exact: {why}")))
    }

    /// Bytes that the posterior of n points takes: K, its factor and a workspace.
    #[doc(hidden)]
    pub fn memory(n: usize) -> u64 {
        3 * 8 * (n as u64).pow(2)
    }
}

/// The posterior, ready to predict. Example: [`GaussianProcess`].
pub struct FittedGaussianProcess {
    /// σ²
    pub noise: f64,
    /// `log p(y)` of the fitted points.
    pub likelihood: f64,
    /// How the search for hyper-parameters ended.
    pub search: SearchEnd,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    notes: Vec<String>,
    /// m
    mean: f64,
    /// `A⁻¹(y − m)` `[n, 1]`
    coefficients: Array2<f64>,
    /// The factor of A, made when a variance is first asked for.
    factor: OnceLock<Cholesky<f64>>,
}

/// How a search for hyper-parameters ended. Example: [`GaussianProcess`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchEnd {
    /// Whether the gradient vanishes, or the last steps changed next to nothing.
    pub converged: bool,
    /// Its largest component, in the logarithms of the parameters, for each row.
    pub gradient: f64,
    /// Steps that were made from the best start.
    pub steps: usize,
    /// `log p(y)` for each row that every start reached.
    pub starts: Vec<f64>,
    /// Rows that were looked at.
    pub rows: usize,
}

impl SearchEnd {
    /// Of a search that saw the targets divided by the root of `variance`.
    pub(crate) fn new(found: &Tuned, variance: f64) -> SearchEnd {
        SearchEnd {
            converged: found.converged,
            gradient: found.gradient,
            steps: found.steps,
            starts: found.starts.iter().map(|value| -value - 0.5 * variance.ln()).collect(),
            rows: found.rows,
        }
    }
}

impl Fit for GaussianProcess {
    type Target = Target;
    type Fitted = FittedGaussianProcess;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedGaussianProcess> {
        let start = Instant::now();
        check_points(x)?;
        let context = &FitContext { precision: Precision::F64, ..*context };
        let n = x.nrows();
        let values = numbers(y, n, "use the Gaussian process for classes")?;
        context.budget.require(
            format!("the exact posterior of {n} points"),
            GaussianProcess::memory(n),
            "use fewer points, conjugate gradients, or features",
        )?;
        let (mean, variance) = moments(values)?;
        let found = self.tuning.best(&self.kernel, x, y, context)?;
        // A request to end early was about the search; the posterior is computed.
        let interrupted = context.keeps_best().cut_short();
        let (kernel, noise) = (scaled(found.kernel.clone(), variance), found.noise * variance);
        let y = Array2::from_shape_fn((n, 1), |(i, _)| values[i] - mean);
        context.progress.step("gaussian process", 0, 1, "factorisation");
        let factor = factored(&kernel, x, noise, context.device)?;
        let coefficients = factor.solve(y.view())?;
        let likelihood = log_likelihood(&factor, &y, &coefficients)?;
        let origin = Origin::new("gaussian-process", &kernel, x.dim(), context, start);
        Ok(FittedGaussianProcess {
            noise,
            likelihood,
            notes: notes(&found, interrupted),
            search: SearchEnd::new(&found, variance),
            reference: Reference::new(origin, x, context),
            kernel,
            mean,
            coefficients,
            factor: OnceLock::from(factor),
        })
    }
}

/// The targets of n points, which must be numbers.
pub(crate) fn numbers<'y>(y: &'y Target, n: usize, otherwise: &str) -> Result<&'y [f64]> {
    let Target::Values(values) = y else {
        return Err(Error::input(format!(
            "the target holds classes, and this Gaussian process predicts numbers; {otherwise}"
        )));
    };
    fail_if!(values.len() != n, "there are {n} points but {} targets", values.len());
    Ok(values)
}

/// Mean and variance of the targets.
pub(crate) fn moments(values: &[f64]) -> Result<(f64, f64)> {
    check_squares(values)?;
    let y = Array1::from_vec(values.to_vec());
    let (mean, variance) = (y.mean().unwrap_or(0.0), y.var(0.0));
    fail_if!(
        !(variance > 0.0 && variance.is_finite()),
        "every target is {mean}; a Gaussian process needs some that differ"
    );
    Ok((mean, variance))
}

/// `c·κ`, with the factor in every term of a sum.
pub(crate) fn scaled(kernel: Kernel, c: f64) -> Kernel {
    match kernel {
        Kernel::Scale(factor, inner) => Kernel::Scale(c * factor, inner),
        Kernel::Sum(terms) => Kernel::Sum(terms.into_iter().map(|term| scaled(term, c)).collect()),
        other => Kernel::Scale(c, Box::new(other)),
    }
}

/// The factor of `K + σ²I` on the points `x` `[n, d]`.
fn factored(kernel: &Kernel, x: ArrayView2<f64>, noise: f64, device: crate::Device) -> Result<Cholesky<f64>> {
    let mut a = gram::<f64>(kernel, x, device)?;
    a.diag_mut().mapv_inplace(|k| k + noise);
    Cholesky::new(device, a.view())
}

/// `−½ yᵀA⁻¹y − ½ log|A| − (n/2) log 2π`
fn log_likelihood(factor: &Cholesky<f64>, y: &Array2<f64>, solved: &Array2<f64>) -> Result<f64> {
    Ok(-0.5 * (y * solved).sum() - half_log_determinant(factor)? - 0.5 * y.nrows() as f64 * TAU.ln())
}

/// What a user should know of the search.
pub(crate) fn notes(found: &Tuned, interrupted: bool) -> Vec<String> {
    let ended = if interrupted { "was interrupted" } else { "ended" };
    let missed = (interrupted || !found.converged).then(|| {
        format!(
            "the search for hyper-parameters {ended} after {} starts and {} steps, with a gradient of {:.1e}; the best of them are \
             used",
            found.starts.len(),
            found.steps,
            found.gradient
        )
    });
    let least = found.has_least_noise().then(|| {
        format!(
            "the noise is at its lower limit, {LEAST_NOISE:.0e} of the variance of the target: the likelihood has no maximum above it, and intervals may \
             be too wide for targets without noise"
        )
    });
    missed.into_iter().chain(least).collect()
}

impl FittedGaussianProcess {
    /// The factor of `A = K + σ²I`.
    fn factor(&self) -> Result<&Cholesky<f64>> {
        if let Some(factor) = self.factor.get() {
            return Ok(factor);
        }
        let factor = factored(&self.kernel, self.reference.points(), self.noise, self.reference.device)?;
        Ok(self.factor.get_or_init(|| factor))
    }

    /// `L⁻¹κ(X,x)` `[n, m]` for new points `x` `[m, d]`, with `A = LLᵀ`.
    fn whitened(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.reference.origin.d)?;
        let mut cross = gram_cross::<f64>(&self.kernel, self.reference.points(), x, self.reference.device)?;
        solve_lower(self.factor()?.lower()?, cross.view_mut());
        Ok(cross)
    }

    /// `Var[f(x)|y]` `[m]` at new points `x` `[m, d]`, without the noise; never negative.
    pub fn variance(&self, x: ArrayView2<f64>) -> Result<Array1<f64>> {
        let whitened = self.whitened(x)?;
        let known = whitened.mapv(|v| v * v).sum_axis(Axis(0));
        Ok((self.kernel.diagonal(x) - known).mapv(|v| v.max(0.0)))
    }

    /// Functions drawn from the posterior, `[m, count]` at new points `x` `[m, d]`, without the noise.
    ///
    /// ```
    /// # use mercer::apply::{Fit, GaussianProcess};
    /// # use mercer::{FitContext, data::Target, kernel::Expression};
    /// # let x = ndarray::Array2::from_shape_fn((30, 1), |(i, _)| i as f64 / 8.0);
    /// # let y = Target::Values(x.iter().map(|x| x.sin()).collect());
    /// # let process = GaussianProcess::new(Expression::parse("rbf(lengthscale=auto)")?);
    /// let fitted = process.fit(x.view(), &y, &FitContext::default())?;
    /// assert_eq!(fitted.samples(ndarray::array![[1.0], [5.0]].view(), 3, 0)?.dim(), (2, 3));
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn samples(&self, x: ArrayView2<f64>, count: usize, seed: u64) -> Result<Array2<f64>> {
        let whitened = self.whitened(x)?;
        let covariance = gram::<f64>(&self.kernel, x, self.reference.device)? - matmul(whitened.t(), whitened.view());
        let (λ, u) = crate::linalg::eigh(self.reference.device, covariance.view())?;
        // Rounding leaves eigenvalues below zero, which are zero.
        let root = &u * &λ.iter().map(|λ| λ.max(0.0).sqrt()).collect::<Array1<f64>>();
        let mut rng = Rng::new(seed).fork(0x7361_6d70);
        let normals = Array2::from_shape_simple_fn((x.nrows(), count), || rng.normal());
        Ok(self.evaluate(x)? + matmul(root.view(), normals.view()))
    }

    /// For each fitted point the mean and the standard deviation of its target given all others, `[n, 2]`:
    /// `y_i − α_i/Q_ii` and `1/√Q_ii` with `Q = A⁻¹`, `α = Q(y − m)`.
    pub fn leave_one_out(&self, y: &[f64]) -> Result<Array2<f64>> {
        let n = self.reference.origin.n;
        fail_if!(y.len() != n, "there are {n} points but {} targets", y.len());
        let q = self.factor()?.inverse()?;
        let at = |i: usize| [y[i] - self.coefficients[[i, 0]] / q[[i, i]], 1.0 / q[[i, i]].sqrt()];
        finite_rows("the left-out prediction", Array2::from_shape_fn((n, 2), |(i, j)| at(i)[j]), 1)
    }
}

impl Predict for FittedGaussianProcess {
    fields! {
        origin: Origin = reference.origin;
        notes: [String] = notes;
    }
    posterior_of_numbers!();

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.reference.expand(&self.kernel, 1.0, x, self.coefficients.view())? + self.mean)
    }
}

impl FittedProcess for FittedGaussianProcess {
    fields! {
        kernel: Kernel = kernel;
        search: SearchEnd = search;
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::exact(self.likelihood)
    }

    fn noise(&self) -> Option<f64> {
        Some(self.noise)
    }

    fn left_out(&self, y: &Target) -> Result<LeftOut> {
        let predicted = self.leave_one_out(&y.values())?;
        Ok(LeftOut::Numbers(predicted.rows().into_iter().map(|row| [row[0], row[1]]).enumerate().collect()))
    }
}

saved! {
    FittedGaussianProcess, "gaussian-process":
    reference: Reference = whole(Reference::unpack);
    noise: f64 = value("noise", positive);
    likelihood: f64 = value("likelihood");
    search: SearchEnd = value("search");
    notes: Vec<String> = value("notes");
    mean: f64 = value("mean");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, 1));
    factor: OnceLock<Cholesky<f64>> = known(not_kept, ());
}

/// Refuses a noise that is no variance.
pub(crate) fn positive(noise: f64) -> Result<f64> {
    fail_if!(!(noise > 0.0 && noise.is_finite()), "the model's 'noise' is {noise}, which is no variance");
    Ok(noise)
}
