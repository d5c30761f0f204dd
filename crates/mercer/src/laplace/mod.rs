//! Linearised Laplace: the uncertainty of a network that was trained, without training it again.
//!
//! Around its parameters θ the network is `g(x,θ) + J(x)(θ' − θ)`. With the prior `θ' ~ N(θ, I/τ)` and the curvature `Λ_i` of the loss in the
//! outputs (`diag(p) − ppᵀ` for classes, `1/σ²` for numbers), its outputs at x have the covariance
//! `Σ(x) = J(x)(H + τ)⁻¹J(x)ᵀ`, `H = Σ_i J_iᵀ Λ_i J_i`. A [`Method`] says how `H`, which has as many rows as the network has parameters, is
//! approximated; all end as `Σ(x)`, from which probabilities or deviations follow.
//!
//! | method | H | passes to predict |
//! |---|---|---|
//! | [`LastLayer`] | in full, over the last layer | 1 |
//! | [`LastLayerKfac`] | a Kronecker product, over the last layer | 1 |
//! | [`Kfac`] | a Kronecker product in every dense and convolutional layer | one back for each output |
//! | [`Diagonal`] | its diagonal | one back for each output |
//! | [`Ella`] | `J ≈ Ψ` by the NTK's Nyström approximation | one back for each output, or one for each function |
//! | [`Eigenfunctions`] | `J ≈ Ψ` by eigenfunctions of the NTK in the span of the hidden units | 1 |
//! | [`FixedMean`] | none: a Gaussian process, its mean fixed at the network | 1 |
//! | [`Map`], [`Temperature`] | none: the network alone, and `softmax(z/T)` | 1 |
//!
//! τ, and the noise of numbers, are found by the loss on other rows, or by the marginal likelihood; what [`FixedMean`] has beside
//! them, by that loss always.
//!
//! A network of another program needs no weights here: [`Laplace::fit_functions`] takes its outputs and functions that
//! stand for its derivatives.
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
//! use mercer::laplace::{Laplace, LastLayer, Predictive, Prior};
//! use mercer::{Device, FitContext, data};
//! use std::sync::Arc;
//!
//! let (fit, held_out) = data::open("digits", &Default::default())?.with_classes()?.split(0.3, 0)?;
//! let start = Classifier::new("dense(32) relu dense(10)", &fit, Device::Cpu, 0)?;
//! let settings = Settings { epochs: 20, batch: 64, learning_rate: 0.1, ..Settings::default() };
//! let network = Arc::new(train(start, &fit, None, &settings, &Default::default(), &|_| ())?.classifier);
//! let laplace = Laplace { prior: Prior::Validation, predictive: Predictive::Probit, ..Laplace::new(LastLayer) };
//! let fitted = laplace.fit(&network, &fit, Some(&held_out), &FitContext::default())?;
//! let scores = fitted.scores(held_out.x.to_f64().view())?;
//! assert_eq!(fitted.probabilities(scores.view()).unwrap().dim(), (held_out.n(), 10));
//! assert!(fitted.found.value > 0.0 && fitted.found.loss < 0.5); // τ, and the loss on the held-out rows
//! # Ok::<(), mercer::Error>(())
//! ```

mod baselines;
#[cfg(test)]
mod bias;
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
mod given_functions;
mod kfac;
mod last_layer;
pub(crate) mod likelihood;
pub(crate) mod method;
mod network_functions;
mod outputs;
pub(crate) mod passes;
pub(crate) mod predictive;
pub(crate) mod search;

pub use baselines::{Map, Temperature};
pub use cost::Cost;
pub use diagonal::Diagonal;
pub use eigenfunctions::Eigenfunctions;
pub use ella::Ella;
pub use fit::Structured;
pub use fitted::FittedLaplace;
pub use fixed_mean::FixedMean;
pub use function_fitted::FittedFunctionLaplace;
pub use given_functions::GivenFunctions;
pub use kfac::{Kfac, LastLayerKfac};
pub use last_layer::LastLayer;
pub use method::{Method, NetworkKind};
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

impl Prior {
    /// The ways to find it, by name.
    pub(crate) const NAMED: [(&str, Prior); 2] = [("validation", Prior::Validation), ("likelihood", Prior::Likelihood)];
}

/// Rows whose variances are in memory at a time, at most.
const ROWS: usize = 4096;

/// Numbers of covariances that are in memory at a time.
const NUMBERS: usize = 1 << 22;

/// A Gaussian over parameters: what [`Method`]s share.
pub(crate) trait Structure: Send + Sync {
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
    pub fn new(method: impl Into<Method>) -> Laplace {
        Laplace { method: method.into(), prior: Prior::default(), predictive: Predictive::default(), tempered: false }
    }
}
