//! A fitted posterior of a trajectory: predictions, and its file.

use super::fit::temperature;
use super::functions::{Functions, Values};
use super::networks::outputs;
use super::{Method, Predictive, Searched, predictive};
use crate::apply::{Predict, Saved, softmax_rows};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::compute::Device;
use crate::data::{Dataset, Target};
use crate::laplace::fitted::check_rows;
use crate::laplace::passes::batches;
use crate::spectrum::Origin;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array2, Array3, ArrayView2, s};
use std::sync::Arc;

/// Rows whose outputs are in memory at a time.
const ROWS: usize = 4096;

/// What predicts after a fit to a trajectory. Example: [the module](super).
#[derive(Clone)]
pub struct FittedTrajectory {
    pub(super) networks: Vec<Arc<Classifier>>,
    /// What was fitted.
    pub method: Method,
    /// How probabilities are found from eigenfunctions.
    pub predictive: Predictive,
    pub(super) functions: Option<Functions>,
    /// s, the scale of the trajectory's covariance; 1 where there is none.
    pub found: Searched,
    /// T, by which scores are divided; 1 unless one was found ([`Self::temper`]).
    pub temperature: f64,
    pub(super) origin: Origin,
    pub(super) notes: Vec<String>,
}

impl FittedTrajectory {
    /// Passes through a network that a prediction takes.
    pub fn passes(&self) -> usize {
        self.networks.len()
    }

    /// The eigenvalues of the trajectory's kernel, where they were found; not scaled by s.
    pub fn eigenvalues(&self) -> &[f64] {
        self.functions.as_ref().map_or(&[], |functions| &functions.eigenvalues)
    }

    /// Finds the temperature by the scores `[n, C]` of other labelled rows, and divides by it from now on.
    pub fn temper(&mut self, scores: ArrayView2<f64>, data: &Dataset) -> Result<()> {
        let found = temperature(&self.networks[0], scores, data)?;
        self.temperature *= found.value;
        self.notes.extend(found.note_of_end("temperature"));
        Ok(())
    }

    /// Means `[n, C]` of the outputs at rows `x` `[n, d]`, and their covariances `[n, C, C]`, scaled by s; without eigenfunctions they are none.
    pub fn moments(&self, x: ArrayView2<f64>) -> Result<Option<(Array2<f64>, Array3<f64>)>> {
        if self.functions.is_none() {
            return Ok(None);
        }
        let (mean, f) = self.values(x, &FitContext::default())?;
        let mut covariance = Array3::zeros((mean.nrows(), mean.ncols(), mean.ncols()));
        for (mut of_row, f) in covariance.outer_iter_mut().zip(f.outer_iter()) {
            of_row.assign(&(f.dot(&f.t()) * self.found.value));
        }
        Ok(Some((mean, covariance)))
    }

    /// The mean and the functions at rows, where there are some.
    pub(super) fn values(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<Values> {
        let functions = self.functions.as_ref().expect("asked for where there are functions");
        match self.method {
            Method::Ritz { .. } => functions.of_hidden_units(&self.networks[0], x),
            _ => functions.of_outputs(outputs(&self.networks, x, context)?),
        }
    }
}

impl Predict for FittedTrajectory {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_rows(x)?;
        let context = FitContext::default();
        let mut scores = Array2::zeros((x.nrows(), self.networks[0].network.outputs()));
        for rows in batches(x.nrows(), ROWS) {
            let x = x.slice(s![rows.clone(), ..]);
            let found = match &self.functions {
                None => predictive::mean_of_networks(outputs(&self.networks, x, &context)?),
                Some(_) => {
                    let (mean, f) = self.values(x, &context)?;
                    predictive::scores(&mean, &f, self.found.value, self.predictive, self.origin.seed)
                }
            };
            scores.slice_mut(s![rows, ..]).assign(&found);
        }
        Ok(scores / self.temperature)
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        Target::of_scores(scores, &self.networks[0].classes)
    }

    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        Some(softmax_rows(scores.as_standard_layout().into_owned()))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Saved for FittedTrajectory {
    const KIND: &'static str = "trajectory";

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        Classifier::pack_all(&self.networks, bundle)?;
        bundle.set("method", self.method);
        bundle.set("predictive", self.predictive);
        bundle.set("found", &self.found);
        bundle.set("temperature", self.temperature);
        bundle.set("origin", &self.origin);
        bundle.set("notes", &self.notes);
        if let Some(functions) = &self.functions {
            bundle.set("eigenvalues", &functions.eigenvalues);
            bundle.put("coefficients", functions.coefficients.view());
        }
        Ok(())
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<FittedTrajectory> {
        let networks: Vec<Arc<Classifier>> =
            Classifier::unpack_all(bundle, device)?.into_iter().map(Arc::new).collect();
        let (method, predictive): (Method, Predictive) = (bundle.value("method")?, bundle.value("predictive")?);
        let functions = match method.functions() {
            None => None,
            Some(_) => Some(Functions {
                eigenvalues: bundle.value("eigenvalues")?,
                coefficients: bundle.matrix("coefficients")?,
            }),
        };
        let (found, temperature): (Searched, f64) = (bundle.value("found")?, bundle.value("temperature")?);
        let origin: Origin = bundle.value("origin")?;
        let (net, rows) = (&networks[0].network, functions.as_ref().map(|f| (f.coefficients.dim(), f.count())));
        let fits = match (method, rows) {
            (Method::Eigenfunctions { functions: k }, Some((dim, count))) => dim == (networks.len(), k) && count == k,
            (Method::Ritz { functions: k }, Some(((_, columns), count))) => columns == net.outputs() * k && count == k,
            _ => true,
        };
        fail_if!(
            !(fits && networks.len() == method.passes(networks.len()) && found.value > 0.0 && temperature > 0.0)
                || origin.d != net.inputs()
                || networks[0].number.is_some()
                || !predictive.is_possible(),
            "its parts do not fit together: the networks, their functions, the scale or the temperature"
        );
        Ok(FittedTrajectory {
            networks,
            method,
            predictive,
            functions,
            found,
            temperature,
            origin,
            notes: bundle.value("notes")?,
        })
    }
}
