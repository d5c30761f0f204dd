//! Linearised Laplace: the uncertainty of a network that was trained, without training it again.
//!
//! Around its parameters θ the network is `g(x,θ) + J(x)(θ' − θ)`. With the prior `θ' ~ N(θ, I/τ)` and the curvature `Λ_i` of the loss in the
//! outputs (`diag(p) − ppᵀ` for classes, `1/σ²` for numbers), its outputs at x have the covariance
//! `Σ(x) = J(x)(H + τ)⁻¹J(x)ᵀ`, `H = Σ_i J_iᵀ Λ_i J_i`. A [`Method`] says how `H`, which has as many rows as the network has parameters, is
//! approximated; all end as `Σ(x)`, from which probabilities or deviations follow.
//!
//! | method | H | passes to predict |
//! |---|---|---|
//! | [`Method::LastLayer`] | in full, over the last layer | 1 |
//! | [`Method::LastLayerKfac`] | a Kronecker product, over the last layer | 1 |
//! | [`Method::Kfac`] | a Kronecker product in every dense and convolutional layer | one back for each output |
//! | [`Method::Diagonal`] | its diagonal | one back for each output |
//! | [`Method::Ella`] | `J ≈ Ψ` by the NTK's Nyström approximation | one for each function |
//! | [`Method::Eigenfunctions`] | `J ≈ Ψ` by eigenfunctions of the NTK in the span of the hidden units | 1 |
//! | [`Method::Map`], [`Method::Temperature`] | none: the network alone, and `softmax(z/T)` | 1 |
//!
//! τ is found by the marginal likelihood or by the loss on other rows.
//!
//! ```
//! use mercer::apply::Predict;
//! use mercer::classifier::{Classifier, Labelled, Settings, train};
//! use mercer::laplace::{Laplace, Method, Predictive, Prior};
//! use mercer::{Device, FitContext, data};
//! use std::sync::Arc;
//!
//! let (fit, held_out) = data::open("digits", &Default::default())?.split(0.3, 0)?;
//! let (fit, held_out) = (Labelled::of(&fit)?, Labelled::of(&held_out)?);
//! let start = Classifier::new("dense(32) relu dense(10)", &fit, Device::Cpu, 0)?;
//! let settings = Settings { epochs: 20, batch: 64, learning_rate: 0.1, ..Settings::default() };
//! let network = Arc::new(train(start, &fit, None, &settings, &Default::default(), &|_| ())?.classifier);
//! let laplace = Laplace { prior: Prior::Validation, predictive: Predictive::Probit, ..Laplace::new(Method::LastLayer) };
//! let fitted = laplace.fit(&network, &fit, Some(&held_out), &FitContext::default())?;
//! let scores = fitted.scores(held_out.x.view())?;
//! assert_eq!(fitted.probabilities(scores.view()).unwrap().dim(), (held_out.n(), 10));
//! assert!(fitted.found.value > 0.0 && fitted.found.loss < 0.5); // τ, and the loss on the held-out rows
//! # Ok::<(), mercer::Error>(())
//! ```

mod blocks;
mod diagonal;
mod eigenfunctions;
mod ella;
mod fitted;
mod functions;
mod kfac;
mod likelihood;
mod passes;
mod predictive;
mod search;

pub use fitted::FittedLaplace;
pub use predictive::Predictive;
pub use search::Searched;

use crate::classifier::{Classifier, Labelled};
use crate::model::Bundle;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, fail_if};
use fitted::moments;
use functions::{Basis, Functions};
use likelihood::Likelihood;
use ndarray::{Array2, Array3, ArrayView2};
use passes::{Hidden, Passes};
use search::search;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// How the Gauss–Newton matrix H is approximated, or a baseline without it. Example: [the module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The network alone.
    Map,
    /// `softmax(z/T)`, T with the least loss on other rows.
    Temperature,
    /// H in full, over the last layer.
    LastLayer,
    /// A Kronecker product, over the last layer.
    LastLayerKfac,
    /// A Kronecker product for every dense and convolutional layer; norms stay as they are.
    Kfac,
    /// The diagonal, over all parameters.
    Diagonal,
    /// Few functions by the NTK's Nyström approximation.
    Ella {
        /// Pairs of a row and an output that the kernel is computed at.
        samples: usize,
        /// Functions.
        rank: usize,
    },
    /// Eigenfunctions of the NTK, averaged over the outputs, in the span of the hidden units.
    Eigenfunctions {
        /// Functions, at most as many as there are hidden units.
        functions: usize,
        /// Rows that the kernel is computed at.
        rows: usize,
    },
}

impl Method {
    /// All methods, with their usual settings, the baselines first.
    pub const ALL: [Method; 8] = [
        Method::Map,
        Method::Temperature,
        Method::LastLayer,
        Method::LastLayerKfac,
        Method::Kfac,
        Method::Diagonal,
        Method::Ella { samples: 1000, rank: 20 },
        Method::Eigenfunctions { functions: 64, rows: 1000 },
    ];

    /// Its name, such as `last-layer`.
    pub fn name(self) -> &'static str {
        match self {
            Method::Map => "map",
            Method::Temperature => "temperature",
            Method::LastLayer => "last-layer",
            Method::LastLayerKfac => "last-layer-kfac",
            Method::Kfac => "kfac",
            Method::Diagonal => "diagonal",
            Method::Ella { .. } => "ella",
            Method::Eigenfunctions { .. } => "eigenfunctions",
        }
    }

    /// Whether it has a covariance of the outputs.
    pub fn has_posterior(self) -> bool {
        !matches!(self, Method::Map | Method::Temperature)
    }
}

/// How the prior precision τ is found. Example: [the module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prior {
    /// By the marginal likelihood of the rows that the curvature is taken at.
    #[default]
    Likelihood,
    /// By the loss on other rows.
    Validation,
    /// Not found but given, with the noise σ² of numbers in units of the network's output: for comparisons with other programs.
    Given {
        /// τ
        precision: f64,
        /// σ²; not looked at for classes.
        noise: f64,
    },
}

/// What a fit takes, estimated before it starts. Example: [`Laplace::cost`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Bytes of the largest arrays.
    pub bytes: u64,
    /// Multiply-adds of a fit.
    pub fit: f64,
    /// Multiply-adds of a prediction, in those of the network alone.
    pub predict: f64,
}

/// A Gaussian over parameters: what [`Method`]s share.
trait Structure: Send + Sync {
    /// Eigenvalues of H, those that are zero by construction left out.
    fn eigenvalues(&self) -> Vec<f64>;

    /// `‖θ‖²` of the parameters whose prior it is.
    fn square(&self) -> f64;

    /// The outputs `[n, C]` at rows `x` `[n, d]`, and for every shift s their covariances `J(H + s)⁻¹Jᵀ` `[n, C, C]`, or, unless `full`, the
    /// diagonals `[n, C, 1]`.
    fn covariance(
        &self,
        passes: &Passes,
        x: ArrayView2<f64>,
        shifts: &[f64],
        full: bool,
    ) -> Result<(Array2<f64>, Vec<Array3<f64>>)>;

    /// Puts its numbers into a file.
    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>);
}

/// A structure, unless the method is a baseline.
type Fit = Option<Box<dyn Structure>>;

/// Settings of a posterior. Example: [the module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Laplace {
    /// How H is approximated.
    pub method: Method,
    /// How τ is found.
    pub prior: Prior,
    /// How probabilities are found.
    pub predictive: Predictive,
}

impl Laplace {
    /// With τ by the marginal likelihood, and probabilities by the probit approximation.
    pub fn new(method: Method) -> Laplace {
        Laplace { method, prior: Prior::default(), predictive: Predictive::default() }
    }

    /// An estimate of what a fit to `n` rows takes.
    ///
    /// ```
    /// use mercer::classifier::{Classifier, Labelled};
    /// use mercer::laplace::{Laplace, Method};
    /// let data = Labelled::of(&mercer::data::digits())?;
    /// let network = Classifier::new("dense(100) relu dense(10)", &data, mercer::Device::Cpu, 0)?;
    /// let cost = Laplace::new(Method::LastLayer).cost(&network, data.n())?;
    /// assert_eq!((cost.bytes > 1_010 * 1_010 * 8, cost.predict < 30.0), (true, true)); // H is 1010×1010
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn cost(&self, network: &Classifier, n: usize) -> Result<Cost> {
        let net = &network.network;
        let (c, p, pass) = (net.outputs() as f64, net.parameters() as f64, net.multiply_adds() as f64);
        let layers = net.affine_layers();
        let hidden = layers.last().map_or(0.0, |[inputs, _]| (*inputs + 1) as f64);
        let n = n as f64;
        let small = |order: f64| (32.0 * order * order, 10.0 * order.powi(3));
        let (bytes, fit, predict) = match self.method {
            Method::Map | Method::Temperature => (0.0, n * pass, pass),
            Method::LastLayer => {
                let (bytes, algebra) = small(hidden * c);
                (bytes, n * (pass + (c * hidden).powi(2) / 2.0) + algebra, pass + c * hidden * (c * hidden + c))
            }
            Method::LastLayerKfac => (
                32.0 * (hidden * hidden + c * c),
                n * (pass + hidden * hidden + c * c),
                pass + hidden * hidden + c * (hidden + c),
            ),
            Method::Kfac | Method::Diagonal => {
                let factors: f64 = layers.iter().map(|[i, o]| (3 * (i * i + o * o) + i * o) as f64).sum();
                let bytes = if self.method == Method::Kfac { 8.0 * factors } else { 32.0 * p };
                (bytes, n * (1.0 + 2.0 * c) * pass, (1.0 + 2.0 * c) * pass + c * c * p)
            }
            Method::Ella { samples, rank } => {
                let (m, k) = ((samples as f64).min(n), rank as f64);
                let fit = m * m * p + 3.0 * m * k * pass + n * 2.0 * k * pass;
                (12.0 * k * p + 32.0 * m * m + 8.0 * n * c * k, fit, (1.0 + 2.0 * k) * pass + c * k * k)
            }
            Method::Eigenfunctions { functions, rows } => {
                let (m, k) = ((rows as f64).min(n), functions as f64);
                let (bytes, algebra) = small(k * c);
                let fit = m * m * c * p + 2.0 * m * c * pass + n * (pass + (c * k).powi(2) / 2.0) + algebra;
                (bytes + 20.0 * m * m, fit, pass + c * k * (c * k + c))
            }
        };
        Ok(Cost { bytes: (bytes + 8.0 * n * (hidden + 2.0 * c)) as u64, fit, predict: predict / pass.max(1.0) })
    }

    /// Fits the posterior of `network` to labelled rows. `validation` rows are needed for the temperature and for
    /// [`Prior::Validation`]; they should be others than those that the network was trained on.
    pub fn fit(
        &self,
        network: &Arc<Classifier>,
        data: &Labelled,
        validation: Option<&Labelled>,
        context: &FitContext,
    ) -> Result<FittedLaplace> {
        let start = Instant::now();
        fail_if!(self.predictive == Predictive::Sampling { count: 0 }, "at least one sample is needed");
        fail_if!(
            self.method == Method::Temperature && network.number.is_some(),
            "the temperature scales logits of classes; the network predicts a number"
        );
        context.budget.require(
            format!("the {} posterior", self.method.name()),
            self.cost(network, data.n())?.bytes,
            "use last-layer-kfac or diagonal, or fewer rows",
        )?;
        let passes = Passes::new(network)?;
        let likelihood = Likelihood::of(network, data)?;
        let (structure, z) = self.structure(&passes, data.x.view(), context)?;
        let (mut noise, mut evidence) = (1.0, None);
        let mut found = Searched { value: 1.0, loss: 0.0, at_end: false };
        if let Some(structure) = &structure {
            let eigenvalues = structure.eigenvalues();
            let by_likelihood = |τ: f64, noise: f64| {
                let determinant: f64 = eigenvalues.iter().map(|λ| (λ / (noise * τ)).ln_1p()).sum();
                likelihood.log_likelihood(z.view(), noise) - 0.5 * (τ * structure.square() + determinant)
            };
            let numbers = network.number.is_some();
            let noise_at = |τ: f64| match numbers {
                true => search(|all| Ok(all.iter().map(|noise| -by_likelihood(τ, *noise)).collect())).map(|s| s.value),
                false => Ok(1.0),
            };
            if let Prior::Given { precision, noise: given } = self.prior {
                noise = if numbers { given } else { 1.0 };
                found = Searched { value: precision, loss: -by_likelihood(precision, noise), at_end: false };
            } else {
                found = search(|all| all.iter().map(|τ| Ok(-by_likelihood(*τ, noise_at(*τ)?))).collect())?;
                noise = noise_at(found.value)?;
            }
            if self.prior == Prior::Validation {
                found = by_validation(structure.as_ref(), &passes, needed(validation, "the prior precision")?, noise)?;
            }
            evidence = Some(by_likelihood(found.value, noise));
        } else if self.method == Method::Temperature {
            let rows = needed(validation, "the temperature")?;
            let (likelihood, (z, _)) = (Likelihood::of(network, rows)?, passes.forward(rows.x.view(), Hidden::No)?);
            let loss = |t: &f64| likelihood.mean_loss((&z / *t).view(), z.view());
            found = search(|all| Ok(all.iter().map(loss).collect()))?;
        } else if let Likelihood::Numbers(y) = &likelihood {
            noise = z.iter().zip(y).map(|(z, y)| (z - y).powi(2)).sum::<f64>() / y.len() as f64;
        }
        fail_if!(
            !(found.loss.is_finite() && noise > 0.0);
            Error::Numerical("the loss is not finite for any precision of the prior; look at the rows and their targets".into())
        );
        let mut notes = vec![];
        if found.at_end {
            let what = if self.method == Method::Temperature { "temperature" } else { "prior precision" };
            notes.push(format!("the {what} {:.1e} is at the end of the range that was searched", found.value));
        }
        let kernel = format!("the NTK of \"{}\"", network.network.expression());
        let method = format!("laplace ({})", self.method.name());
        let origin = Origin::new(method, kernel, (data.n(), data.d()), context, start);
        let origin = Origin { outputs: network.network.outputs(), ..origin };
        let (network, method, predictive) = (network.clone(), self.method, self.predictive);
        Ok(FittedLaplace { network, method, predictive, found, evidence, noise, structure, origin, notes })
    }

    /// The structure at rows `x` `[n, d]`, and the outputs there `[n, C]`.
    fn structure(&self, passes: &Passes, x: ArrayView2<f64>, context: &FitContext) -> Result<(Fit, Array2<f64>)> {
        fn boxed<S: Structure + 'static>((structure, z): (S, Array2<f64>)) -> (Fit, Array2<f64>) {
            (Some(Box::new(structure)), z)
        }
        Ok(match self.method {
            Method::Map | Method::Temperature => (None, passes.forward(x, Hidden::No)?.0),
            Method::LastLayer => {
                boxed(Functions::fit(Basis::LastLayer, passes.square_of_last_layer()?, passes, x, context)?)
            }
            Method::LastLayerKfac => boxed(kfac::last_layer(passes, x, context)?),
            Method::Kfac => boxed(kfac::fit(passes, x, context)?),
            Method::Diagonal => boxed(diagonal::fit(passes, x, context)?),
            Method::Ella { samples, rank } => boxed(ella::fit(samples, rank, passes, x, context)?),
            Method::Eigenfunctions { functions, rows } => {
                boxed(eigenfunctions::fit(functions, rows, passes, x, context)?)
            }
        })
    }
}

fn needed<'a>(validation: Option<&'a Labelled>, what: &str) -> Result<&'a Labelled> {
    validation.ok_or_else(|| {
        Error::input(format!(
            "{what} is found on rows that the network was not trained on; give such rows to validate on"
        ))
    })
}

/// τ with the least loss on the rows of `data`.
fn by_validation(structure: &dyn Structure, passes: &Passes, data: &Labelled, noise: f64) -> Result<Searched> {
    let likelihood = Likelihood::of(passes.classifier, data)?;
    search(|precisions| {
        let all = moments(structure, passes, data.x.view(), precisions, noise)?;
        let loss = |m: fitted::Moments| match passes.classes() {
            true => {
                likelihood.mean_loss(predictive::probit(m.mean.view(), m.variances.view()).view(), m.variances.view())
            }
            false => likelihood.mean_loss(m.mean.view(), (m.variances + noise).view()),
        };
        Ok(all.into_iter().map(loss).collect())
    })
}
