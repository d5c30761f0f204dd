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
//! | [`Method::Ella`] | `J ≈ Ψ` by the NTK's Nyström approximation | one back for each output, or one for each function |
//! | [`Method::Eigenfunctions`] | `J ≈ Ψ` by eigenfunctions of the NTK in the span of the hidden units | 1 |
//! | [`Method::FixedMean`] | none: a Gaussian process, its mean fixed at the network | 1 |
//! | [`Method::Map`], [`Method::Temperature`] | none: the network alone, and `softmax(z/T)` | 1 |
//!
//! τ, and the noise of numbers, are found by the loss on other rows, or by the marginal likelihood; what [`Method::FixedMean`] has beside
//! them, by that loss always.
//!
//! A network of another program needs no weights here: [`FunctionLaplace`] takes its outputs and functions that stand for its derivatives.
//!
//! A `Structure` has the eigenvalues of H, of which the marginal likelihood is a function, and `J(H + s)⁻¹Jᵀ` at rows for several shifts s at once.
//! The search for the prior, predictions and files exist once for all structures. `functions.rs` has few functions and algebra
//! of their number (last layer, ELLA, eigenfunctions); `blocks.rs` has a matrix that is diagonal in a basis of its own in every layer (KFAC,
//! diagonal). Neither makes a Jacobian `[n, C, P]`. `fixed_mean.rs` (FMGP) is a Gaussian process with its mean fixed to the temperature-scaled
//! outputs; it has no Gauss–Newton matrix.
//!
//! ```
//! use mercer::apply::Predict;
//! use mercer::classifier::{Classifier, Settings, train};
//! use mercer::laplace::{Laplace, Method, Predictive, Prior};
//! use mercer::{Device, FitContext, data};
//! use std::sync::Arc;
//!
//! let (fit, held_out) = data::open("digits", &Default::default())?.with_classes()?.split(0.3, 0)?;
//! let start = Classifier::new("dense(32) relu dense(10)", &fit, Device::Cpu, 0)?;
//! let settings = Settings { epochs: 20, batch: 64, learning_rate: 0.1, ..Settings::default() };
//! let network = Arc::new(train(start, &fit, None, &settings, &Default::default(), &|_| ())?.classifier);
//! let laplace = Laplace { prior: Prior::Validation, predictive: Predictive::Probit, ..Laplace::new(Method::LastLayer) };
//! let fitted = laplace.fit(&network, &fit, Some(&held_out), &FitContext::default())?;
//! let scores = fitted.scores(held_out.x.to_f64().view())?;
//! assert_eq!(fitted.probabilities(scores.view()).unwrap().dim(), (held_out.n(), 10));
//! assert!(fitted.found.value > 0.0 && fitted.found.loss < 0.5); // τ, and the loss on the held-out rows
//! # Ok::<(), mercer::Error>(())
//! ```

mod blocks;
mod cost;
mod diagonal;
mod directions;
mod eigenfunctions;
mod ella;
pub(crate) mod fit;
pub(crate) mod fitted;
mod fixed_mean;
mod fixed_mean_loss;
mod function_fit;
mod function_fitted;
mod functions;
mod kfac;
pub(crate) mod likelihood;
mod network_functions;
mod outputs;
pub(crate) mod passes;
pub(crate) mod predictive;
pub(crate) mod search;

pub use cost::Cost;
pub use fit::Structured;
pub use fitted::FittedLaplace;
pub use function_fit::{FunctionLaplace, FunctionMethod};
pub use function_fitted::FittedFunctionLaplace;
pub use network_functions::NetworkFunctions;
pub use outputs::Outputs;
pub use predictive::Predictive;
pub use search::Searched;

use crate::Result;
use crate::bundle::Bundle;
use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use passes::{Passes, batches};
use predictive::probit;
use serde::{Deserialize, Serialize};

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
    /// Eigenfunctions of the NTK, averaged over differences of outputs, in the span of the hidden units.
    Eigenfunctions {
        /// Functions, at most as many as there are hidden units.
        functions: usize,
        /// Rows that the kernel is computed at.
        rows: usize,
    },
    /// A Gaussian process whose mean is fixed at the network (FMGP), divided by a temperature: temperature, amplitude and the covariance of the
    /// outputs have the least loss on other rows, the first two as functions of the row.
    FixedMean,
}

impl Method {
    /// All methods, with their usual settings, the baselines first.
    pub const ALL: [Method; 9] = [
        Method::Map,
        Method::Temperature,
        Method::LastLayer,
        Method::LastLayerKfac,
        Method::Kfac,
        Method::Diagonal,
        Method::Ella { samples: 1000, rank: 20 },
        Method::Eigenfunctions { functions: 64, rows: 1000 },
        Method::FixedMean,
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
            Method::FixedMean => "fixed-mean",
        }
    }

    /// Whether it has a covariance of the outputs.
    pub fn has_posterior(self) -> bool {
        !matches!(self, Method::Map | Method::Temperature)
    }
}

/// How the prior precision τ, and the noise σ² of numbers, are found. Example: [the module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prior {
    /// By the loss on other rows. On these rows no posterior is worse than the network alone.
    #[default]
    Validation,
    /// By the marginal likelihood of the rows that the curvature is taken at, which needs no other rows. Where the model is wrong, as it is
    /// for most networks, the posterior can be far worse than the network alone.
    Likelihood,
    /// Not found but given, with the noise σ² of numbers in units of the network's output: for comparisons with other programs.
    Given {
        /// τ
        precision: f64,
        /// σ²; not looked at for classes.
        noise: f64,
    },
}

/// Rows whose variances are in memory at a time.
const ROWS: usize = 4096;

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

    /// The scores of classes `[n, C]` at rows `x` `[n, d]` for the precision τ; by the probit approximation.
    fn scores(&self, passes: &Passes, x: ArrayView2<f64>, τ: f64) -> Result<Array2<f64>> {
        let mut scores = Array2::zeros((x.nrows(), passes.outputs()));
        for rows in batches(x.nrows(), ROWS) {
            let (z, covariance) = self.covariance(passes, x.slice(s![rows.clone(), ..]), &[τ], false)?;
            let variances = covariance[0].index_axis(Axis(2), 0).mapv(|v| v.max(0.0));
            scores.slice_mut(s![rows, ..]).assign(&probit(z.view(), variances.view()));
        }
        Ok(scores)
    }

    /// The same at rows with these outputs.
    fn scores_of(&self, outputs: &Outputs, τ: f64) -> Result<Array2<f64>> {
        Ok(probit(outputs.mean.view(), outputs.variances(τ).view()))
    }

    /// Puts its numbers into a file.
    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()>;
}

/// Settings of a posterior. Example: [the module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Laplace {
    /// How H is approximated.
    pub method: Method,
    /// How τ is found.
    pub prior: Prior,
    /// How probabilities are found.
    pub predictive: Predictive,
    /// Whether the scores of classes are divided by a temperature, found on validation rows, too.
    pub tempered: bool,
}

impl Laplace {
    /// With τ by the loss on validation rows, and probabilities by the probit approximation.
    pub fn new(method: Method) -> Laplace {
        Laplace { method, prior: Prior::default(), predictive: Predictive::default(), tempered: false }
    }
}
