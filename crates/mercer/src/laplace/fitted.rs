//! A fitted posterior: predictions, and its file.

use super::outputs::Outputs;
use super::passes::{Hidden, Passes, batches};
use super::predictive::sampled;
use super::{Method, NUMBERS, Predictive, ROWS, Searched, Structure};
use crate::apply::{Predict, Saved, softmax_rows};
use crate::bundle::Bundle;
use crate::classifier::{Classifier, Number};
use crate::compute::Device;
use crate::data::Target;
use crate::finite::{finite_rows, non_finite_row};
use crate::spectrum::Origin;
use crate::{Error, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::sync::Arc;

/// A network with the uncertainty of its outputs. Example: [the module](super).
pub struct FittedLaplace {
    /// The network, at the parameters that it was trained to.
    pub network: Arc<Classifier>,
    /// What was fitted.
    pub method: Method,
    /// How probabilities are found.
    pub predictive: Predictive,
    /// τ, of the prior `N(0, I/τ)` over the parameters; T for [`Temperature`](super::Temperature); 1 for the network alone.
    pub found: Searched,
    /// T, by which scores of classes are divided; 1 unless one was found.
    pub temperature: f64,
    /// The logarithm of the marginal likelihood at τ, where there is one.
    pub evidence: Option<f64>,
    /// σ², the noise of a number in units of the network's output; 1 for classes.
    pub noise: f64,
    pub(super) structure: Option<Arc<dyn Structure>>,
    pub(super) origin: Origin,
    pub(super) notes: Vec<String>,
}

impl FittedLaplace {
    /// Means `[n, C]` and variances `[n, C]` of the outputs at rows `x` `[n, d]`, the noise of a number not included; in units of the
    /// network's output. Variances are zero for the network alone and for temperature scaling.
    pub fn outputs(&self, x: ArrayView2<f64>) -> Result<(Array2<f64>, Array2<f64>)> {
        let passes = Passes::new(&self.network)?;
        let Some(structure) = &self.structure else {
            let (z, _) = passes.forward(x, Hidden::No)?;
            let variances = Array2::zeros(z.dim());
            return Ok((z, variances));
        };
        let empty = || Array2::zeros((x.nrows(), passes.outputs()));
        let (mut mean, mut variances) = (empty(), empty());
        for rows in batches(x.nrows(), ROWS) {
            let shift = self.found.value * self.noise;
            let (z, covariance) = structure.covariance(&passes, x.slice(s![rows.clone(), ..]), &[shift], false)?;
            mean.slice_mut(s![rows.clone(), ..]).assign(&z);
            // J(H/σ² + τ)⁻¹Jᵀ = σ² J(H + σ²τ)⁻¹Jᵀ
            let of_rows = covariance[0].index_axis(Axis(2), 0).mapv(|v| self.noise * v.max(0.0));
            variances.slice_mut(s![rows, ..]).assign(&of_rows);
        }
        Ok((mean, variances))
    }

    /// The scores `[n, C]` of classes at rows with these outputs, whose softmax are the probabilities: what [`Predict::scores`] returns without
    /// draws, with variances right to about 1e-5.
    pub fn scores_of(&self, outputs: &Outputs) -> Result<Array2<f64>> {
        fail_if!(self.network.number.is_some(), "a number has no scores of classes");
        let scores = match &self.structure {
            Some(structure) => structure.scores_of(outputs, self.found.value)?,
            None => outputs.mean.clone(),
        };
        Ok(scores / self.temperature)
    }

    /// The scores whose softmax are the probabilities `[n, C]`.
    pub(super) fn class_scores(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let passes = Passes::new(&self.network)?;
        let Some(structure) = &self.structure else { return Ok(passes.forward(x, Hidden::No)?.0 / self.temperature) };
        let Predictive::Sampling { count } = self.predictive else {
            return Ok(structure.scores(&passes, x, self.found.value)? / self.temperature);
        };
        let mut scores = Array2::zeros((x.nrows(), passes.outputs()));
        let size = (NUMBERS / passes.outputs().pow(2)).clamp(1, ROWS);
        for rows in batches(x.nrows(), size) {
            let x = x.slice(s![rows.clone(), ..]);
            let (z, covariance) = structure.covariance(&passes, x, &[self.found.value], true)?;
            let drawn = sampled(z.view(), &covariance[0], count, self.origin.seed, rows.start)?;
            scores.slice_mut(s![rows, ..]).assign(&drawn);
        }
        Ok(scores / self.temperature)
    }
}

/// Refuses rows `[n, d]` with a number that is not finite.
pub(crate) fn check_rows(x: ArrayView2<f64>) -> Result<()> {
    match non_finite_row(x) {
        None => Ok(()),
        Some((i, value)) => {
            Err(Error::input(format!("row {} (counted from 1) holds {value}; drop the row or fill the value", i + 1)))
        }
    }
}

impl Predict for FittedLaplace {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_rows(x)?;
        match self.network.number {
            None => self.class_scores(x),
            Some(Number { mean, spread }) => Ok(self.outputs(x)?.0.mapv(|z| mean + spread * z)),
        }
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        Target::of_scores(scores, &self.network.classes)
    }

    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        self.network.number.is_none().then(|| softmax_rows(scores.as_standard_layout().into_owned()))
    }

    fn deviations(&self, x: ArrayView2<f64>) -> Result<Option<Array1<f64>>> {
        let Some(Number { spread, .. }) = self.network.number else { return Ok(None) };
        check_rows(x)?;
        let (_, variances) = self.outputs(x)?;
        let deviations = variances.mapv(|v| spread * (v + self.noise).sqrt());
        Ok(Some(finite_rows("the deviation", deviations, 1)?.column(0).to_owned()))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Saved for FittedLaplace {
    const KIND: &'static str = "laplace";

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        self.network.pack(bundle)?;
        bundle.set("method", self.method);
        bundle.set("predictive", self.predictive);
        bundle.set("found", &self.found);
        bundle.set("temperature", self.temperature);
        bundle.set("evidence", self.evidence);
        bundle.set("noise", self.noise);
        bundle.set("origin", &self.origin);
        bundle.set("notes", &self.notes);
        self.structure.as_ref().map_or(Ok(()), |structure| structure.pack(bundle))
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<FittedLaplace> {
        let network = Classifier::unpack(bundle, device)?;
        let method: Method = bundle.value("method")?;
        let structure = method.recipe().unpack(bundle, &network)?;
        let found: Searched = bundle.value("found")?;
        let (temperature, noise): (f64, f64) = (bundle.value("temperature")?, bundle.value("noise")?);
        let (origin, predictive): (Origin, Predictive) = (bundle.value("origin")?, bundle.value("predictive")?);
        fail_if!(
            !(found.value > 0.0 && noise > 0.0 && temperature > 0.0)
                || origin.d != network.network.inputs()
                || !predictive.is_possible(),
            "its parts do not fit together: the precision, the noise or the number of columns"
        );
        Ok(FittedLaplace {
            network: Arc::new(network),
            method,
            predictive,
            found,
            temperature,
            evidence: bundle.value("evidence")?,
            noise,
            structure,
            origin,
            notes: bundle.value("notes")?,
        })
    }
}
