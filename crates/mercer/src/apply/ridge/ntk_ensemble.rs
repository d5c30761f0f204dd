//! The ensemble of all infinitely wide networks, trained for a time t.

use crate::apply::reference::{Reference, check_new};
use crate::apply::regression::outcome::Outcome;
use crate::apply::regression::{Estimator, Examples, Regression, RegressionTask};
use crate::apply::traits::{fields, not_kept, saved};
use crate::apply::{Fit, Predict, check_points, process::gaussian_process::moments};
use crate::data::Target;
use crate::kernel::{Base, Expression, Kernel};
use crate::linalg::{eigh, matmul};
use crate::operator::{Precision, gram, gram_cross};
use crate::options::{Caps, Entry, Kind, Opt};
use crate::spectrum::Origin;
use crate::{Error, FitContext, Registry, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::sync::OnceLock;
use std::time::Instant;

/// Infinitely wide networks whose random weights were trained for a time t by gradient flow on `(1/2n) Σ_i (f(x_i) − y_i)²`: a
/// Gaussian process in closed form.
///
/// With Θ the NTK, K the covariance of untrained networks (NNGP), `A_t = Θ⁻¹(1 − e^{−tΘ/n})` on the fitted points X, and y the
/// targets with mean zero and variance one,
///
/// `E[f_t(x)] = Θ(x,X) A_t y`,
///
/// `Cov[f_t(x), f_t(x')] = K(x,x') − G_xᵀK(X,x') − K(x,X)G_x' + G_xᵀK(X,X)G_x'` with `G_x = A_t Θ(X,x)`.
///
/// Deviations are those of the networks' values: they know of no noise in the targets.
///
/// `A_t = V a_t(λ) Vᵀ` is never formed: where Θ has tiny eigenvalues λ, as under smooth activations, its entries are so large that sums of them
/// have no digits left. `G_x = V (a_t(λ) ∘ VᵀΘ(X,x))` has entries of the size of the targets' weights. Directions that t reaches though their λ is
/// zero to rounding are left out, and a note says so.
///
/// ```
/// use mercer::apply::{Fit, NtkEnsemble, Predict};
/// use mercer::{FitContext, data::Target, kernel::Kernel};
/// let x = ndarray::Array2::from_shape_fn((20, 1), |(i, _)| i as f64 / 4.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let kernel = Kernel::parse("ntk(depth=1, act=erf, w_var=2, b_var=1)")?;
/// let trained = NtkEnsemble { kernel: kernel.clone(), time: f64::INFINITY }.fit(x.view(), &y, &FitContext::default())?;
/// let untrained = NtkEnsemble { kernel, time: 0.0 }.fit(x.view(), &y, &FitContext::default())?;
/// let new = ndarray::array![[2.1]];
/// assert!((trained.scores(new.view())?[[0, 0]] - 2.1f64.sin()).abs() < 0.01);
/// let deviation = |model: &dyn Predict| Ok::<f64, mercer::Error>(model.deviations(new.view())?.unwrap()[0]);
/// assert!(deviation(&trained)? < 0.05 * deviation(&untrained)?); // training makes the networks agree
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NtkEnsemble {
    /// Θ: the kernel `ntk(…)` of the networks.
    pub kernel: Kernel,
    /// t, from 0 to infinity.
    pub time: f64,
}

static TIME: Opt = Opt::new(
    "time",
    "NUMBER",
    Kind::Or(&Kind::NonNegative, &["inf", "infinity"]),
    "how long the networks are trained; a rate of learning times a number of steps [default: inf]",
);

/// The networks where none are given.
const USUAL: &str = "ntk(depth=3, b_var=0.1)";

impl NtkEnsemble {
    pub(crate) fn entry() -> Entry<RegressionTask> {
        Entry {
            can: Caps { numbers: true, ..Caps::default() },
            ..Entry::<RegressionTask>::new(
                "ntk-ensemble",
                "All infinitely wide networks of the kernel ntk(…), trained for a time: their mean and deviations, for numbers",
                vec![&TIME],
                |o, known| {
                    let time = o.take_number(&TIME)?.flatten().unwrap_or(f64::INFINITY);
                    Regression::of_one(known, USUAL, Trained { time })
                },
            )
        }
    }
}

/// Networks that are trained for a time.
struct Trained {
    time: f64,
}

impl Estimator for Trained {
    fn learn(&self, kernels: &[Expression], examples: &Examples, context: &FitContext) -> Result<Outcome> {
        let (kernel, time) = (kernels[0].resolve(examples.x, context.seed)?, self.time);
        let fitted = NtkEnsemble { kernel, time }.fit(examples.x.to_f64().view(), examples.y, context)?;
        Ok(Outcome { parameter: ("time", time), ..Outcome::new(fitted, 0.0, vec![]) })
    }
}

/// The trained ensemble, ready to predict. Example: [`NtkEnsemble`].
pub struct FittedNtkEnsemble {
    /// t; none for infinity, which files cannot hold.
    time: Option<f64>,
    /// What it was fitted on.
    pub reference: Reference,
    /// Θ
    kernel: Kernel,
    /// K
    prior: Kernel,
    notes: Vec<String>,
    /// Mean and deviation of the targets.
    mean: f64,
    spread: f64,
    /// `A_t y` `[n, 1]`
    coefficients: Array2<f64>,
    /// What variances need, made when one is first asked for.
    covariance_parts: OnceLock<CovarianceParts>,
}

struct CovarianceParts {
    smoother: Smoother,
    /// `K(X,X)` `[n, n]`
    prior: Array2<f64>,
}

/// `A_t = V a_t(λ) Vᵀ`, without the directions that are left out.
struct Smoother {
    /// V `[n, r]`
    vectors: Array2<f64>,
    /// `a_t(λ)` `[r]`
    factors: Array1<f64>,
}

impl Smoother {
    /// `A_t B` `[n, m]` of B `[n, m]`.
    fn apply(&self, b: ArrayView2<f64>) -> Array2<f64> {
        let along = matmul(self.vectors.t(), b) * self.factors.view().insert_axis(Axis(1));
        matmul(self.vectors.view(), along.view())
    }
}

/// The NNGP kernel of the networks whose NTK is `kernel`.
fn prior_of(kernel: &Kernel) -> Result<Kernel> {
    match kernel {
        Kernel::Base(Base::Ntk(formula)) => Ok(Kernel::Base(Base::Nngp(formula.covariance()))),
        other => Err(Error::input(format!(
            "an ensemble of networks needs the tangent kernel of one, such as ntk(depth=2, act=erf), not {other}"
        ))),
    }
}

/// `A_t` from one eigendecomposition `Θ = V λ Vᵀ`, with `a_t(λ) = (1 − e^{−tλ/n})/λ`.
///
/// An eigenvalue below `ε n λ_1` is known no better than as zero, and `a_t(0) = t/n`. That holds as long as such an eigenvalue leaves `tλ/n` below 1;
/// after longer training the direction is left out.
fn trained(theta: &Array2<f64>, time: f64, device: crate::Device) -> Result<Smoother> {
    let n = theta.nrows() as f64;
    let (values, vectors) = eigh(device, theta.view())?;
    let zero = n * f64::EPSILON * values.first().copied().unwrap_or(0.0);
    let factor = |λ: f64| match time {
        t if λ <= zero => (t * zero <= n).then_some(t / n),
        t if t.is_infinite() => Some(1.0 / λ),
        t => Some(-(-λ * t / n).exp_m1() / λ),
    };
    // The eigenvalues fall: what is left out is at the end.
    let factors: Array1<f64> = values.iter().map_while(|λ| factor(*λ)).collect();
    let vectors = vectors.slice(s![.., ..factors.len()]).to_owned();
    Ok(Smoother { vectors, factors })
}

/// What is not learnt of the targets `y` `[n, 1]` of variance 1, where directions are left out.
fn left_out(smoother: &Smoother, y: &Array2<f64>) -> Option<String> {
    let (n, r) = smoother.vectors.dim();
    let learnt = matmul(smoother.vectors.view(), matmul(smoother.vectors.t(), y.view()).view());
    let off = (y - &learnt).mapv(|e| e * e).mean().unwrap_or(0.0).sqrt();
    (r < n).then(|| {
        format!(
            "{} of {n} directions have an NTK eigenvalue that is zero to rounding; they are not learnt: the mean at the fitted points \
             is off by {off:.1e} standard deviations of the target (root mean square), and deviations away from these points may be too large",
            n - r
        )
    })
}

impl Fit for NtkEnsemble {
    type Target = Target;
    type Fitted = FittedNtkEnsemble;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedNtkEnsemble> {
        let start = Instant::now();
        check_points(x)?;
        let context = &FitContext { precision: Precision::F64, ..*context };
        let prior = prior_of(&self.kernel)?;
        checked_time(self.time)?;
        let Target::Values(values) = y else {
            return Err(Error::input("an ensemble of networks predicts numbers; the target holds classes"));
        };
        let n = x.nrows();
        fail_if!(values.len() != n, "there are {n} points but {} targets", values.len());
        context.budget.require(
            format!("the ensemble trained on {n} points"),
            5 * 8 * (n as u64).pow(2),
            "use fewer points, or ridge regression with the same kernel",
        )?;
        let (mean, variance) = moments(values)?;
        let y = Array2::from_shape_fn((n, 1), |(i, _)| (values[i] - mean) / variance.sqrt());
        context.progress.step("ntk ensemble", 0, 1, "eigendecomposition");
        let theta = gram::<f64>(&self.kernel, x, context.device)?;
        let smoother = trained(&theta, self.time, context.device)?;
        let fitted = FittedNtkEnsemble {
            time: self.time.is_finite().then_some(self.time),
            reference: Reference::new(Origin::new("ntk-ensemble", &self.kernel, x.dim(), context, start), x, context),
            kernel: self.kernel.clone(),
            prior,
            notes: left_out(&smoother, &y).into_iter().collect(),
            mean,
            spread: variance.sqrt(),
            coefficients: smoother.apply(y.view()),
            covariance_parts: OnceLock::new(),
        };
        fitted.with_smoother(smoother)?;
        Ok(fitted)
    }
}

impl FittedNtkEnsemble {
    /// t
    pub fn time(&self) -> f64 {
        self.time.unwrap_or(f64::INFINITY)
    }

    /// Keeps `A_t` and `K(X,X)`.
    fn with_smoother(&self, smoother: Smoother) -> Result<&CovarianceParts> {
        let prior = gram::<f64>(&self.prior, self.reference.points(), self.reference.device)?;
        Ok(self.covariance_parts.get_or_init(|| CovarianceParts { smoother, prior }))
    }

    fn covariance_parts(&self) -> Result<&CovarianceParts> {
        match self.covariance_parts.get() {
            Some(parts) => Ok(parts),
            None => {
                let theta = gram::<f64>(&self.kernel, self.reference.points(), self.reference.device)?;
                self.with_smoother(trained(&theta, self.time(), self.reference.device)?)
            }
        }
    }

    /// `G = A_t Θ(X,x)` `[n, m]`, `K(X,x)` `[n, m]` and `K(X,X) G` `[n, m]` of new points `x` `[m, d]`.
    fn weights(&self, x: ArrayView2<f64>) -> Result<[Array2<f64>; 3]> {
        let ([theta, k], parts) = (self.cross(x)?, self.covariance_parts()?);
        let g = parts.smoother.apply(theta.t());
        let spread = matmul(parts.prior.view(), g.view());
        Ok([g, k.reversed_axes(), spread])
    }

    /// `Θ(x,X)` and `K(x,X)` `[m, n]` of new points `x` `[m, d]`.
    fn cross(&self, x: ArrayView2<f64>) -> Result<[Array2<f64>; 2]> {
        check_new(x, self.reference.origin.d)?;
        let cross = |kernel| gram_cross::<f64>(kernel, x, self.reference.points(), self.reference.device);
        Ok([cross(&self.kernel)?, cross(&self.prior)?])
    }

    /// `Cov[f_t(x), f_t(x')]` `[m, m]` at new points `x` `[m, d]`, in the squared units of the target.
    ///
    /// ```
    /// # use mercer::apply::{Fit, NtkEnsemble, Predict};
    /// # use mercer::{FitContext, data::Target, kernel::Kernel};
    /// # let x = ndarray::Array2::from_shape_fn((20, 1), |(i, _)| i as f64 / 4.0);
    /// # let y = Target::Values(x.iter().map(|x| x.sin()).collect());
    /// # let kernel = Kernel::parse("ntk(depth=1, act=erf, w_var=2, b_var=1)")?;
    /// let fitted = NtkEnsemble { kernel, time: 100.0 }.fit(x.view(), &y, &FitContext::default())?;
    /// let new = ndarray::array![[2.1], [9.0]];
    /// let (covariance, deviations) = (fitted.covariance(new.view())?, fitted.deviations(new.view())?.unwrap());
    /// assert!((covariance[[1, 1]].sqrt() - deviations[1]).abs() < 1e-9);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn covariance(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let [g, k, spread] = self.weights(x)?;
        let once = matmul(g.t(), k.view());
        let twice = matmul(g.t(), spread.view());
        let prior = gram::<f64>(&self.prior, x, self.reference.device)?;
        Ok((prior - &once - once.t() + twice) * self.spread.powi(2))
    }
}

impl Predict for FittedNtkEnsemble {
    fields! { origin: Origin = reference.origin; }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.reference.expand(&self.kernel, 1.0, x, self.coefficients.view())? * self.spread + self.mean)
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        Target::Values(scores.column(0).to_vec())
    }

    /// Of the networks' values; never negative where rounding would make it so.
    fn deviations(&self, x: ArrayView2<f64>) -> Result<Option<Array1<f64>>> {
        let [g, k, spread] = self.weights(x)?;
        let once = (&g * &k).sum_axis(Axis(0));
        let twice = (&g * &spread).sum_axis(Axis(0));
        let variance = self.prior.diagonal(x) - 2.0 * once + twice;
        Ok(Some(variance.mapv(|v| v.max(0.0).sqrt() * self.spread)))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

saved! {
    FittedNtkEnsemble, "ntk-ensemble":
    reference: Reference = whole(Reference::unpack);
    time: Option<f64> = value("time", finite_time);
    mean: f64 = value("mean");
    spread: f64 = value("spread", positive);
    notes: Vec<String> = value("notes");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    prior: Kernel = known(prior_kernel, &kernel);
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, 1));
    covariance_parts: OnceLock<CovarianceParts> = known(not_kept, ());
}

fn prior_kernel(kernel: &Kernel, _: &Registry) -> Result<Kernel> {
    prior_of(kernel)
}

fn checked_time(time: f64) -> Result<f64> {
    fail_if!(time.is_nan() || time < 0.0, "the time of training must be a number from 0 to inf, got {time}");
    Ok(time)
}

fn finite_time(time: Option<f64>) -> Result<Option<f64>> {
    time.map(checked_time).transpose()
}

/// Refuses a deviation that is none.
fn positive(spread: f64) -> Result<f64> {
    fail_if!(!(spread > 0.0 && spread.is_finite()), "the model's 'spread' is {spread}, which is no standard deviation");
    Ok(spread)
}
