//! A fitted posterior over given functions: predictions, and its file.

use super::functions::covariances;
use super::network_functions::{NetworkFunctions, parts};
use super::predictive::{probit, sampled};
use super::{Method, Predictive, Searched};
use crate::apply::{Predict, Saved, softmax_rows};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::data::Target;
use crate::finite::finite_rows;
use crate::linalg::matmul;
use crate::spectrum::Origin;
use crate::{Error, Result, fail_if};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, concatenate, s};
use std::sync::Arc;

/// A network of another program with the uncertainty of its outputs. Its rows are those of [`NetworkFunctions::rows`]. Example:
/// [`Laplace::fit_functions`](super::Laplace::fit_functions).
#[derive(Clone)]
pub struct FittedFunctionLaplace {
    /// Names of the classes, in the order of the outputs; none where the network predicts a number.
    pub classes: Vec<String>,
    /// What was fitted.
    pub method: Method,
    /// How probabilities are found.
    pub predictive: Predictive,
    /// τ, of the prior `N(0, I/τ)` over the functions' weights; 1 without a posterior.
    pub found: Searched,
    /// T, by which scores of classes are divided; 1 unless one was found.
    pub temperature: f64,
    /// σ², the noise of a number; 1 for classes.
    pub noise: f64,
    pub(super) weights: Option<Arc<Weights>>,
    pub(super) origin: Origin,
    pub(super) notes: Vec<String>,
}

/// A Gaussian over the weights of functions: `ΨQ` with `H = Q diag(λ) Qᵀ`.
pub(super) struct Weights {
    /// λ `[k]`, not negative.
    pub eigenvalues: Array1<f64>,
    /// From the given functions to those in which H is diagonal, `[K, k]`.
    pub map: Array2<f64>,
    /// The mean of `Σ_j Ψ_cj²` over rows and outputs.
    pub mean_square: f64,
}

impl Weights {
    /// `Ψ(H + s)⁻¹Ψᵀ` `[b, C, C]`, or its diagonal `[b, C, 1]`, of functions `ψ` `[b·C, K]` for every shift s.
    fn covariance(&self, psi: &Array2<f64>, c: usize, shifts: &[f64], full: bool) -> Vec<Array3<f64>> {
        let all = matmul(psi.view(), self.map.view());
        let rotated: Vec<Array2<f64>> = (0..c).map(|output| all.slice(s![output..;c, ..]).to_owned()).collect();
        covariances(&rotated, &self.eigenvalues, shifts, full)
    }

    /// The diagonals `[n, C]` at all rows of a network, for every shift.
    pub fn variances(&self, network: &NetworkFunctions, shifts: &[f64]) -> Result<Vec<Array2<f64>>> {
        let c = network.outputs();
        let mut all = vec![Array2::zeros((network.n(), c)); shifts.len()];
        for rows in network.batches() {
            let (_, psi) = parts(network.rows(rows.clone())?.view(), c);
            for (all, found) in all.iter_mut().zip(self.covariance(&psi, c, shifts, false)) {
                all.slice_mut(s![rows.clone(), ..]).assign(&found.index_axis(Axis(2), 0));
            }
        }
        Ok(all)
    }
}

impl NetworkFunctions<'_> {
    /// The outputs `[n, C]` of all rows.
    pub(super) fn all_outputs(&self) -> Result<Array2<f64>> {
        let parts = self.batches().map(|rows| Ok(self.rows(rows)?.slice(s![.., ..self.outputs()]).to_owned()));
        joined(parts.collect::<Result<Vec<_>>>()?)
    }

    /// [`Predict::scores`] of a model at all rows, a few at a time.
    pub fn scores_of(&self, model: &dyn Predict) -> Result<Array2<f64>> {
        joined(self.batches().map(|rows| model.scores(self.rows(rows)?.view())).collect::<Result<Vec<_>>>()?)
    }

    /// [`Predict::deviations`] of a model at all rows, a few at a time.
    pub fn deviations_of(&self, model: &dyn Predict) -> Result<Option<Array1<f64>>> {
        let mut all = vec![];
        for rows in self.batches() {
            let Some(some) = model.deviations(self.rows(rows)?.view())? else { return Ok(None) };
            all.extend(some);
        }
        Ok(Some(all.into()))
    }
}

fn joined(parts: Vec<Array2<f64>>) -> Result<Array2<f64>> {
    let views: Vec<ArrayView2<f64>> = parts.iter().map(|part| part.view()).collect();
    concatenate(Axis(0), &views).map_err(|_| Error::input("there are no rows"))
}

impl FittedFunctionLaplace {
    /// Outputs `[b, C]` and their covariances `[b, C, C]`, or variances `[b, C, 1]`, the noise not included, at rows `[b, C(1 + K)]`.
    fn moments(&self, x: ArrayView2<f64>, full: bool) -> Result<(Array2<f64>, Array3<f64>)> {
        let (c, d) = (self.origin.outputs, self.origin.d);
        fail_if!(
            x.ncols() != d,
            "the model takes rows of {d} numbers, {c} outputs and {} functions of each; these have {}",
            d / c - 1,
            x.ncols()
        );
        let (z, psi) = parts(x, c);
        let covariance = match &self.weights {
            None => Array3::zeros((z.nrows(), c, if full { c } else { 1 })),
            Some(weights) => {
                let shift = self.found.value * self.noise;
                weights.covariance(&psi, c, &[shift], full).remove(0).mapv(|v| self.noise * v)
            }
        };
        Ok((z, covariance))
    }
}

impl Predict for FittedFunctionLaplace {
    fn functions_of_network(&self) -> Option<usize> {
        Some(self.origin.d / self.origin.outputs - 1)
    }

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let count = match self.predictive {
            Predictive::Sampling { count } if self.weights.is_some() && !self.classes.is_empty() => Some(count),
            _ => None,
        };
        let (z, covariance) = self.moments(x, count.is_some())?;
        if self.classes.is_empty() {
            return Ok(z);
        }
        let scores = match count {
            Some(count) => sampled(z.view(), &covariance, count, self.origin.seed, 0)?,
            None => probit(z.view(), covariance.index_axis(Axis(2), 0)),
        };
        Ok(scores / self.temperature)
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        Target::of_scores(scores, &self.classes)
    }

    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        (!self.classes.is_empty()).then(|| softmax_rows(scores.as_standard_layout().into_owned()))
    }

    fn deviations(&self, x: ArrayView2<f64>) -> Result<Option<Array1<f64>>> {
        if !self.classes.is_empty() {
            return Ok(None);
        }
        let (_, variances) = self.moments(x, false)?;
        let deviations = variances.index_axis(Axis(2), 0).mapv(|v| (v.max(0.0) + self.noise).sqrt());
        Ok(Some(finite_rows("the deviation", deviations, 1)?.column(0).to_owned()))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Saved for FittedFunctionLaplace {
    const KIND: &'static str = "function laplace";

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("classes", &self.classes);
        bundle.set("method", self.method);
        bundle.set("predictive", self.predictive);
        bundle.set("found", &self.found);
        bundle.set("temperature", self.temperature);
        bundle.set("noise", self.noise);
        bundle.set("origin", &self.origin);
        bundle.set("notes", &self.notes);
        bundle.set("mean_square", self.weights.as_ref().map(|weights| weights.mean_square));
        if let Some(Weights { eigenvalues, map, .. }) = self.weights.as_deref() {
            bundle.put("eigenvalues", eigenvalues.view().insert_axis(Axis(0)));
            bundle.put("map", map.view());
        }
        Ok(())
    }

    fn unpack(bundle: &Bundle, _device: Device) -> Result<FittedFunctionLaplace> {
        let (classes, origin): (Vec<String>, Origin) = (bundle.value("classes")?, bundle.value("origin")?);
        let (method, mean_square): (Method, Option<f64>) = (bundle.value("method")?, bundle.value("mean_square")?);
        let c = origin.outputs;
        fail_if!(
            c != classes.len().max(1) || origin.d <= c || !origin.d.is_multiple_of(c),
            "its parts do not fit together: {} classes, {c} outputs and {} columns",
            classes.len(),
            origin.d
        );
        let weights = match mean_square {
            None => None,
            Some(mean_square) => {
                let (eigenvalues, map) = (bundle.matrix("eigenvalues")?, bundle.matrix("map")?);
                let k = eigenvalues.ncols();
                fail_if!(
                    eigenvalues.nrows() != 1
                        || map.dim() != (origin.d / c - 1, k)
                        || eigenvalues.iter().any(|λ| *λ < 0.0),
                    "its parts do not fit together: the eigenvalues and the map of the functions"
                );
                Some(Arc::new(Weights { eigenvalues: eigenvalues.remove_axis(Axis(0)), map, mean_square }))
            }
        };
        let found: Searched = bundle.value("found")?;
        let (temperature, noise): (f64, f64) = (bundle.value("temperature")?, bundle.value("noise")?);
        let predictive: Predictive = bundle.value("predictive")?;
        let posterior = method.has_posterior();
        fail_if!(
            !(found.value > 0.0 && noise > 0.0 && temperature > 0.0)
                || posterior != weights.is_some()
                || !predictive.is_possible(),
            "its parts do not fit together: the method, the precision or the noise"
        );
        let notes = bundle.value("notes")?;
        Ok(FittedFunctionLaplace { classes, method, predictive, found, temperature, noise, weights, origin, notes })
    }
}
