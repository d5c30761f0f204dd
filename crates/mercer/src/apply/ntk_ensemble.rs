//! The ensemble of all infinitely wide networks, trained for a time t.

use super::reference::{Reference, check_new};
use super::traits::{fields, not_kept, saved};
use super::{Fit, Predict, check_points, gaussian_process::moments};
use crate::data::Target;
use crate::kernel::{Base, Kernel};
use crate::linalg::{eigh, matmul};
use crate::operator::{Precision, gram, gram_cross};
use crate::spectrum::Origin;
use crate::{Error, FitContext, Registry, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};
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
/// Deviations are those of the networks' values: they know of no noise in the targets. Training to the end, `t = ∞`, leaves out
/// directions whose eigenvalue of Θ is numerically zero.
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
    /// `A_t` and `A_t K(X,X) A_t`, made when a variance is first asked for.
    smoother: OnceLock<[Array2<f64>; 2]>,
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

/// `A_t = Θ⁻¹(1 − e^{−tΘ/n})` `[n, n]` from one eigendecomposition, and the number of directions that were left out.
///
/// A finite t has the limit t/n where Θ's eigenvalue λ is zero.
fn trained(theta: &Array2<f64>, time: f64, device: crate::Device) -> Result<(Array2<f64>, usize)> {
    let n = theta.nrows() as f64;
    let (values, vectors) = eigh(device, theta.view())?;
    let zero = n * f64::EPSILON * values.first().copied().unwrap_or(0.0);
    let factor = |λ: f64| match time {
        t if t.is_infinite() => {
            if λ > zero {
                1.0 / λ
            } else {
                0.0
            }
        }
        t if λ > zero => -(-λ * t / n).exp_m1() / λ,
        t => t / n,
    };
    let factors: Array1<f64> = values.iter().map(|λ| factor(*λ)).collect();
    let left_out = if time.is_infinite() { factors.iter().filter(|f| **f == 0.0).count() } else { 0 };
    Ok((matmul((&vectors * &factors).view(), vectors.t()), left_out))
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
        let (a, left_out) = trained(&theta, self.time, context.device)?;
        let notes = (left_out > 0).then(|| {
            format!("{left_out} of {n} directions have an NTK eigenvalue that is numerically zero; they are not learnt")
        });
        let fitted = FittedNtkEnsemble {
            time: self.time.is_finite().then_some(self.time),
            reference: Reference::new(Origin::new("ntk-ensemble", &self.kernel, x.dim(), context, start), x, context),
            kernel: self.kernel.clone(),
            prior,
            notes: notes.into_iter().collect(),
            mean,
            spread: variance.sqrt(),
            coefficients: matmul(a.view(), y.view()),
            smoother: OnceLock::new(),
        };
        fitted.with_smoother(a)?;
        Ok(fitted)
    }
}

impl FittedNtkEnsemble {
    /// t
    pub fn time(&self) -> f64 {
        self.time.unwrap_or(f64::INFINITY)
    }

    /// Keeps `A_t` and `A_t K(X,X) A_t`.
    fn with_smoother(&self, a: Array2<f64>) -> Result<&[Array2<f64>; 2]> {
        let k = gram::<f64>(&self.prior, self.reference.points(), self.reference.device)?;
        let both = matmul(matmul(a.view(), k.view()).view(), a.view());
        Ok(self.smoother.get_or_init(|| [a, both]))
    }

    fn smoother(&self) -> Result<&[Array2<f64>; 2]> {
        match self.smoother.get() {
            Some(smoother) => Ok(smoother),
            None => {
                let theta = gram::<f64>(&self.kernel, self.reference.points(), self.reference.device)?;
                self.with_smoother(trained(&theta, self.time(), self.reference.device)?.0)
            }
        }
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
        let ([theta, k], [a, both]) = (self.cross(x)?, self.smoother()?);
        let once = matmul(matmul(theta.view(), a.view()).view(), k.t());
        let twice = matmul(matmul(theta.view(), both.view()).view(), theta.t());
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
        let ([theta, k], [a, both]) = (self.cross(x)?, self.smoother()?);
        let once = (matmul(theta.view(), a.view()) * &k).sum_axis(Axis(1));
        let twice = (matmul(theta.view(), both.view()) * &theta).sum_axis(Axis(1));
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
    smoother: OnceLock<[Array2<f64>; 2]> = known(not_kept, ());
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
