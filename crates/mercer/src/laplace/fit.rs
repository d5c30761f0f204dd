//! The fit: a structure, then the precision of the prior, the noise and the temperature.

use super::functions::{Basis, Functions};
use super::likelihood::Likelihood;
use super::passes::{Hidden, Passes};
use super::search::search;
use super::{FittedLaplace, Laplace, Method, Prior, Searched, Structure};
use super::{diagonal, eigenfunctions, ella, fitted, fixed_mean, kfac, predictive};
use crate::classifier::{Classifier, Labelled};
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, ArrayView2};
use std::sync::Arc;
use std::time::Instant;

/// A structure, unless the method is a baseline.
type Fit = Option<Box<dyn Structure>>;

impl Laplace {
    /// Fits the posterior of `network` to labelled rows. `validation` rows are needed for temperatures and for
    /// [`Prior::Validation`]; they should be others than those that the network was trained on.
    pub fn fit(
        &self,
        network: &Arc<Classifier>,
        data: &Labelled,
        validation: Option<&Labelled>,
        context: &FitContext,
    ) -> Result<FittedLaplace> {
        let start = Instant::now();
        self.check(network, data.n(), context)?;
        let passes = Passes::new(network)?;
        let likelihood = Likelihood::of(network, data)?;
        let (mut structure, z) = self.structure(&passes, data.x.view(), context)?;
        let mut found = Searched { value: 1.0, loss: 0.0, at_end: false };
        let (mut noise, mut evidence) = (likelihood.mean_square(z.view()), None);
        if let Method::FixedMean { landmarks } = self.method {
            let rows = needed(validation, "the amplitude of a process with a fixed mean")?;
            let on = (rows.x.view(), &Likelihood::of(network, rows)?);
            let process;
            (process, found, noise) = fixed_mean::fit(landmarks, &passes, data.x.view(), on, context)?;
            structure = Some(Box::new(process));
        } else if let Some(structure) = &structure {
            let marginal = Marginal::new(structure.as_ref(), &likelihood, z.view());
            (found, noise) = match self.prior {
                Prior::Given { precision, noise } => marginal.given(precision, noise),
                _ => marginal.largest()?,
            };
            if self.prior == Prior::Validation {
                let rows = needed(validation, "the prior precision")?;
                found = self.by_validation(structure.as_ref(), &passes, rows, noise)?;
            }
            evidence = Some(marginal.at(found.value, noise));
        }
        let kernel = format!("the NTK of \"{}\"", network.network.expression());
        let origin =
            Origin::new(format!("laplace ({})", self.method.name()), kernel, (data.n(), data.d()), context, start);
        let origin = Origin { outputs: network.network.outputs(), ..origin };
        let mut fitted = FittedLaplace {
            network: network.clone(),
            method: self.method,
            predictive: self.predictive,
            found,
            temperature: 1.0,
            evidence,
            noise,
            structure,
            origin,
            notes: vec![],
        };
        if self.method == Method::Temperature || self.tempered && network.number.is_none() {
            let rows = needed(validation, "the temperature")?;
            let found = temperature(&fitted.class_scores(rows.x.view())?, &Likelihood::of(network, rows)?)?;
            fitted.note_end("temperature", &found);
            fitted.temperature = found.value;
            fitted.found = if fitted.structure.is_none() { found } else { fitted.found };
        }
        if fitted.structure.is_some() {
            fitted.note_end("prior precision", &fitted.found.clone());
        }
        fail_if!(
            !(fitted.found.loss.is_finite() && noise > 0.0);
            Error::Numerical("the loss is not finite for any precision of the prior; look at the rows and their targets".into())
        );
        Ok(fitted)
    }

    /// Refuses settings that do not fit, and work that does not fit into memory.
    fn check(&self, network: &Classifier, n: usize, context: &FitContext) -> Result<()> {
        fail_if!(!self.predictive.is_possible(), "draws must be one at least, and a million at most");
        fail_if!(
            self.method == Method::Temperature && network.number.is_some(),
            "the temperature scales logits of classes; the network predicts a number"
        );
        let instead = match self.method {
            Method::Map | Method::Temperature | Method::LastLayerKfac => "use fewer rows",
            Method::Ella { .. } | Method::Eigenfunctions { .. } => "use fewer functions or rows, or last-layer-kfac",
            _ => "use last-layer-kfac, or fewer rows",
        };
        context.budget.require(format!("the {} posterior", self.method.name()), self.cost(network, n)?.bytes, instead)
    }

    /// The structure at rows `x` `[n, d]`, and the outputs there `[n, C]`.
    fn structure(&self, passes: &Passes, x: ArrayView2<f64>, context: &FitContext) -> Result<(Fit, Array2<f64>)> {
        fn boxed<S: Structure + 'static>((structure, z): (S, Array2<f64>)) -> (Fit, Array2<f64>) {
            (Some(Box::new(structure)), z)
        }
        Ok(match self.method {
            Method::Map | Method::Temperature => (None, passes.forward(x, Hidden::No)?.0),
            // Its mean is the network's: the outputs at the rows it is fitted to are not needed.
            Method::FixedMean { .. } => (None, Array2::zeros((0, passes.outputs()))),
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

    /// τ with the least loss on the rows of `data`, each with its best temperature where there is one.
    fn by_validation(
        &self,
        structure: &dyn Structure,
        passes: &Passes,
        data: &Labelled,
        noise: f64,
    ) -> Result<Searched> {
        let likelihood = Likelihood::of(passes.classifier, data)?;
        search(|precisions| {
            let all = fitted::moments(structure, passes, data.x.view(), precisions, noise)?;
            let loss = |m: fitted::Moments| {
                if !passes.classes() {
                    return Ok(likelihood.mean_loss(m.mean.view(), (m.variances + noise).view()));
                }
                let scores = predictive::probit(m.mean.view(), m.variances.view());
                match self.tempered {
                    true => temperature(&scores, &likelihood).map(|found| found.loss),
                    false => Ok(likelihood.mean_loss(scores.view(), scores.view())),
                }
            };
            all.into_iter().map(loss).collect()
        })
    }
}

/// The temperature T with the least loss of `softmax(s/T)` for scores `[n, C]`.
pub(crate) fn temperature(scores: &Array2<f64>, likelihood: &Likelihood) -> Result<Searched> {
    search(|all| Ok(all.iter().map(|t| likelihood.mean_loss((scores / *t).view(), scores.view())).collect()))
}

pub(super) fn needed<'a, T>(validation: Option<&'a T>, what: &str) -> Result<&'a T> {
    validation.ok_or_else(|| {
        Error::input(format!(
            "{what} is found on rows that the network was not trained on; give such rows to validate on"
        ))
    })
}

/// The marginal likelihood `p(y) ≈ p(y|θ) e^{−τ‖θ‖²/2} det(I + H/(σ²τ))^{−1/2}` of the precision τ and the noise σ².
pub(super) struct Marginal<'a> {
    pub likelihood: &'a Likelihood,
    /// Outputs `[n, C]`.
    pub z: ArrayView2<'a, f64>,
    /// Eigenvalues of H for a noise of one.
    pub eigenvalues: Vec<f64>,
    /// `‖θ‖²`
    pub square: f64,
}

impl<'a> Marginal<'a> {
    fn new(structure: &dyn Structure, likelihood: &'a Likelihood, z: ArrayView2<'a, f64>) -> Marginal<'a> {
        Marginal { likelihood, z, eigenvalues: structure.eigenvalues(), square: structure.square() }
    }

    /// Its logarithm.
    fn at(&self, τ: f64, noise: f64) -> f64 {
        let determinant: f64 = self.eigenvalues.iter().map(|λ| (λ / (noise * τ)).ln_1p()).sum();
        self.likelihood.log_likelihood(self.z, noise) - 0.5 * (τ * self.square + determinant)
    }

    fn given(&self, τ: f64, noise: f64) -> (Searched, f64) {
        let noise = if self.numbers() { noise } else { 1.0 };
        (Searched { value: τ, loss: -self.at(τ, noise), at_end: false }, noise)
    }

    /// τ, and for numbers σ², with the largest marginal likelihood.
    pub fn largest(&self) -> Result<(Searched, f64)> {
        let noise = |τ: f64| match self.numbers() {
            true => search(|all| Ok(all.iter().map(|noise| -self.at(τ, *noise)).collect())).map(|s| s.value),
            false => Ok(1.0),
        };
        let found = search(|all| all.iter().map(|τ| Ok(-self.at(*τ, noise(*τ)?))).collect())?;
        let noise = noise(found.value)?;
        Ok((found, noise))
    }

    fn numbers(&self) -> bool {
        matches!(self.likelihood, Likelihood::Numbers(_))
    }
}
