//! The fit: a structure, then the precision of the prior, the noise and the temperature.

use super::fixed_mean::Reference;
use super::likelihood::{Likelihood, profile};
use super::outputs::{Outputs, Spread};
use super::passes::{Hidden, Passes};
use super::search::{ENDS, search};
use super::{
    FittedLaplace, Laplace, Method, NetworkKind, Predictive, Prior, Searched, Structure, fixed_mean, predictive,
};
use crate::classifier::Classifier;
use crate::data::Dataset;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, ArrayView2};
use std::sync::Arc;
use std::time::Instant;

/// Most of Newton's steps to a temperature.
const STEPS: usize = 100;

/// Rows that a method is fitted to: `x` `[n, d]`, their targets, and the network as a function of them.
pub struct Rows<'a> {
    pub passes: &'a Passes<'a>,
    pub x: ArrayView2<'a, f64>,
    pub likelihood: &'a Likelihood,
}

/// What a method finds at rows, before the precision of the prior.
pub struct Fit {
    /// None of a baseline.
    pub structure: Option<Arc<dyn Structure>>,
    /// Of a process with a fixed mean, whose structure is found on validation rows.
    pub reference: Option<Reference>,
    /// The outputs at the rows `[n, C]`.
    pub z: Array2<f64>,
}

impl Fit {
    /// A structure with the outputs at its rows.
    pub fn of<S: Structure + 'static>((structure, z): (S, Array2<f64>)) -> Fit {
        Fit { structure: Some(Arc::new(structure)), ..Fit::alone(z) }
    }

    /// The network alone.
    pub fn alone(z: Array2<f64>) -> Fit {
        Fit { structure: None, reference: None, z }
    }
}

/// A posterior before its precision, noise and temperature are found: the structure takes the time, and what is found afterwards, on any
/// validation rows, little.
///
/// ```
/// use mercer::classifier::{Classifier, Settings, train};
/// use mercer::laplace::{Laplace, LastLayer, Prior};
/// use std::sync::Arc;
/// let (data, other) = mercer::data::digits().with_classes()?.split(0.5, 0)?;
/// let start = Classifier::new("dense(16) relu dense(10)", &data, mercer::Device::Cpu, 0)?;
/// let settings = Settings { epochs: 3, ..Settings::default() };
/// let network = Arc::new(train(start, &data, None, &settings, &Default::default(), &|_| ())?.classifier);
/// let laplace = Laplace { prior: Prior::Validation, ..Laplace::new(LastLayer) };
/// let structured = laplace.structured(&network, &data, &Default::default())?;
/// let outputs = structured.outputs(other.x.to_f64().view())?; // one pass, for every τ and temperature
/// let plain = structured.tuned(&laplace, Some((&outputs, &other)))?;
/// let tempered = structured.tuned(&Laplace { tempered: true, ..laplace }, Some((&outputs, &other)))?;
/// assert!(tempered.found.loss <= plain.found.loss + 1e-6);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Structured {
    network: Arc<Classifier>,
    method: Method,
    fit: Fit,
    /// The targets of the rows it was fitted to.
    likelihood: Likelihood,
    origin: Origin,
}

impl Laplace {
    /// Fits the posterior of `network` to labelled rows. `validation` rows are needed for temperatures and for
    /// [`Prior::Validation`]; they should be others than those that the network was trained on.
    pub fn fit(
        &self,
        network: &Arc<Classifier>,
        data: &Dataset,
        validation: Option<&Dataset>,
        context: &FitContext,
    ) -> Result<FittedLaplace> {
        let start = Instant::now();
        let structured = self.structured(network, data, context)?;
        let looked_at = validation.filter(|_| self.method.recipe().looks_at_validation(self, network.number.is_some()));
        let outputs = looked_at.map(|rows| structured.outputs_within(rows, context)).transpose()?;
        let mut fitted = structured.tuned(self, outputs.as_ref().zip(looked_at))?;
        fitted.origin.seconds = start.elapsed().as_secs_f64();
        Ok(fitted)
    }

    /// One fit for each choice of validation rows, with what is found on such rows found on these: predictions of the other rows compare
    /// methods fairly. The structure, and one pass over all validation rows, serve all fits.
    ///
    /// ```
    /// use mercer::apply::Predict;
    /// use mercer::classifier::Classifier;
    /// use mercer::laplace::{Laplace, Temperature};
    /// use std::sync::Arc;
    /// let (data, other) = mercer::data::digits().with_classes()?.split(0.1, 0)?;
    /// let network = Arc::new(Classifier::new("dense(16) relu dense(10)", &data, mercer::Device::Cpu, 0)?);
    /// let halves = [(0..90).collect::<Vec<_>>(), (90..180).collect()];
    /// let fits = Laplace::new(Temperature).fit_on(&network, &data, &other, &halves, &Default::default())?;
    /// assert_ne!(fits[0].temperature, fits[1].temperature);
    /// fits[0].scores(other.select(&halves[1]).x.to_f64().view())?; // of rows that its temperature was not found on
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn fit_on(
        &self,
        network: &Arc<Classifier>,
        data: &Dataset,
        validation: &Dataset,
        choices: &[Vec<usize>],
        context: &FitContext,
    ) -> Result<Vec<FittedLaplace>> {
        let start = Instant::now();
        let structured = self.structured(network, data, context)?;
        let looked_at = self.method.recipe().looks_at_validation(self, network.number.is_some());
        let outputs = looked_at.then(|| structured.outputs_within(validation, context)).transpose()?;
        let tuned = |rows: &Vec<usize>| {
            let chosen = outputs.as_ref().map(|outputs| (outputs.select(rows), validation.select(rows)));
            let mut fitted = structured.tuned(self, chosen.as_ref().map(|(outputs, rows)| (outputs, rows)))?;
            fitted.origin.seconds = start.elapsed().as_secs_f64();
            Ok(fitted)
        };
        choices.iter().map(tuned).collect()
    }

    /// Fits the structure of the posterior of `network` to labelled rows: all but what [`Structured::tuned`] finds.
    pub fn structured(&self, network: &Arc<Classifier>, data: &Dataset, context: &FitContext) -> Result<Structured> {
        let start = Instant::now();
        self.check(network, data.n(), context)?;
        let passes = Passes::new(network)?;
        let likelihood = Likelihood::of(network, data)?;
        let x = data.x.to_f64();
        let rows = Rows { passes: &passes, x: x.view(), likelihood: &likelihood };
        let fit = self.method.recipe().fit(&rows, context)?;
        let kernel = format!("the NTK of \"{}\"", network.network.expression());
        let origin =
            Origin::new(format!("laplace ({})", self.method.name()), kernel, (data.n(), data.d()), context, start);
        let origin = Origin { outputs: network.network.outputs(), ..origin };
        Ok(Structured { network: network.clone(), method: self.method, fit, likelihood, origin })
    }

    /// Refuses settings that do not fit, and work that does not fit into memory.
    fn check(&self, network: &Classifier, n: usize, context: &FitContext) -> Result<()> {
        fail_if!(!self.predictive.is_possible(), "draws must be one at least, and a million at most");
        let recipe = self.method.recipe();
        recipe.check(NetworkKind::of(network))?;
        context.budget.require(
            format!("the {} posterior", self.method.name()),
            self.cost(network, n)?.bytes,
            recipe.instead(),
        )
    }
}

impl Structured {
    /// What the posterior says of rows `x` `[n, d]` for every precision of the prior.
    pub fn outputs(&self, x: ArrayView2<f64>) -> Result<Outputs> {
        let passes = Passes::new(&self.network)?;
        match (&self.fit.structure, &self.fit.reference) {
            (Some(structure), _) => {
                let noise = if passes.classes() { 1.0 } else { self.marginal(structure.as_ref()).largest()?.1 };
                Outputs::on_grid(structure.as_ref(), &passes, x, noise)
            }
            (None, Some(reference)) => reference.outputs(&passes, x),
            (None, None) => Ok(Outputs { mean: passes.forward(x, Hidden::No)?.0, spread: Spread::None }),
        }
    }

    /// [`Structured::outputs`] at validation rows, where they fit into memory.
    fn outputs_within(&self, rows: &Dataset, context: &FitContext) -> Result<Outputs> {
        let (n, c) = (rows.n(), self.network.network.outputs());
        let bytes = if self.fit.structure.is_some() { Outputs::memory(n, c) } else { 0 };
        let what = format!("the variances of {c} outputs at {n} validation rows for every precision of the prior");
        context.budget.require(what, bytes, "use fewer validation rows")?;
        self.outputs(rows.x.to_f64().view())
    }

    fn marginal(&self, structure: &dyn Structure) -> Marginal<'_> {
        Marginal::new(structure, &self.likelihood, self.fit.z.view())
    }

    /// Finds the precision of the prior, the noise and the temperature as `laplace` says, whose method is that of the structure; on the
    /// validation rows with these outputs, where they are needed.
    pub fn tuned(&self, laplace: &Laplace, validation: Option<(&Outputs, &Dataset)>) -> Result<FittedLaplace> {
        fail_if!(
            laplace.method != self.method,
            "the structure is that of {}, not of {}",
            self.method.name(),
            laplace.method.name()
        );
        let network = &self.network;
        if let Some((outputs, rows)) = validation {
            fail_if!(outputs.n() != rows.n(), "there are outputs of {} rows and targets of {}", outputs.n(), rows.n());
        }
        let likelihood = validation.map(|(_, rows)| Likelihood::of(network, rows)).transpose()?;
        let on = |what: &str| needed(validation.as_ref().zip(likelihood.as_ref()), what);
        let mut structure = self.fit.structure.clone();
        let mut found = Searched { value: 1.0, loss: 0.0, at_end: false };
        let mut noise = match (validation, &likelihood) {
            (Some((outputs, _)), Some(rows)) => rows.mean_square(outputs.mean.view()),
            _ => self.likelihood.mean_square(self.fit.z.view()),
        };
        let mut evidence = None;
        if let Some(reference) = &self.fit.reference {
            let ((outputs, _), likelihood) = on("the amplitude of a process with a fixed mean")?;
            let process;
            (process, found, noise) = fixed_mean::fit(reference, outputs, likelihood)?;
            structure = Some(Arc::new(process));
        } else if let Some(structure) = &structure {
            let marginal = self.marginal(structure.as_ref());
            (found, noise) = match laplace.prior {
                Prior::Given { precision, noise } => marginal.given(precision, noise),
                Prior::Likelihood => marginal.largest()?,
                Prior::Validation => {
                    let ((outputs, _), likelihood) = on("the prior precision")?;
                    laplace.by_validation(outputs, likelihood)?
                }
            };
            evidence = Some(marginal.at(found.value, noise));
        }
        let mut fitted = FittedLaplace {
            network: network.clone(),
            method: self.method,
            predictive: laplace.predictive,
            found,
            temperature: 1.0,
            evidence,
            noise,
            structure,
            origin: self.origin.clone(),
            notes: vec![],
        };
        if self.method.recipe().tempers(laplace, network.number.is_some()) {
            let ((outputs, rows), likelihood) = on("the temperature")?;
            let scores = match fitted.predictive {
                Predictive::Sampling { .. } if fitted.structure.is_some() => {
                    fitted.class_scores(rows.x.to_f64().view())?
                }
                _ => fitted.scores_of(outputs)?,
            };
            let found = temperature(&scores, likelihood)?;
            fitted.notes.extend(found.note_of_end("temperature"));
            fitted.temperature = found.value;
            fitted.found = if fitted.structure.is_none() { found } else { fitted.found };
        }
        if fitted.structure.is_some() {
            fitted.notes.extend(fitted.found.note_of_precision(fitted.found.value));
        }
        fail_if!(
            !(fitted.found.loss.is_finite() && noise > 0.0);
            Error::Numerical("the loss is not finite for any precision of the prior; look at the rows and their targets".into())
        );
        Ok(fitted)
    }
}

impl Laplace {
    /// τ with the least loss on rows, each with its best temperature where there is one; and for numbers the noise σ², 1 for classes. The
    /// variance of a number is `σ²(1 + q)` with `q = J(H + s)⁻¹Jᵀ`, `s = σ²τ`.
    fn by_validation(&self, outputs: &Outputs, likelihood: &Likelihood) -> Result<(Searched, f64)> {
        if let Likelihood::Numbers(y) = likelihood {
            let profiled = |τ: f64| profile(y, outputs.mean.view(), outputs.variances(τ).view());
            let found = search(|all| Ok(all.iter().map(|τ| profiled(*τ).loss).collect()))?;
            let noise = profiled(found.value).noise;
            return Ok((Searched { value: found.value * outputs.noise() / noise, ..found }, noise));
        }
        let loss = |τ: &f64| {
            let scores = predictive::probit(outputs.mean.view(), outputs.variances(*τ).view());
            match self.tempered {
                true => temperature(&scores, likelihood).map(|found| found.loss),
                false => Ok(likelihood.mean_loss(scores.view())),
            }
        };
        Ok((search(|all| all.iter().map(loss).collect())?, 1.0))
    }
}

/// The temperature T from 1e-6 to 1e6 with the least loss of `softmax(s/T)` for scores `[n, C]` of classes. The loss is convex in β = 1/T: Newton's
/// steps on its derivative, or, where one leaves the range that is left, the geometric mean of its ends.
pub(crate) fn temperature(scores: &Array2<f64>, likelihood: &Likelihood) -> Result<Searched> {
    let ends = ENDS.map(|power| 10f64.powf(power));
    let ([mut low, mut high], mut β) = (ends, 1.0);
    for _ in 0..STEPS {
        let [slope, curvature] = likelihood.slope_and_curvature(scores.view(), β);
        *(if slope > 0.0 { &mut high } else { &mut low }) = β;
        let newton = β - slope / curvature;
        let next = if newton > low && newton < high { newton } else { (low * high).sqrt() };
        let moved = (next / β).ln().abs();
        β = next;
        if moved < 1e-7 {
            break;
        }
    }
    let loss = likelihood.mean_loss((scores * β).view());
    Ok(Searched { value: 1.0 / β, loss, at_end: ends.iter().any(|end| (β / end).ln().abs() < 1e-6) })
}

pub(super) fn needed<T>(validation: Option<T>, what: &str) -> Result<T> {
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
