//! The spectrum of sampled functions, kept in a file and used at new points.

use super::NetworkFeatures;
use crate::compute::Device;
use crate::linalg::matmul;
use crate::model::Bundle;
use crate::operator::{FunctionSamples, LowRankOperator};
use crate::spectrum::Features;
use crate::{Error, Result};
use ndarray::{Array2, Array3, ArrayView2};
use std::path::Path;

/// Eigenfunctions of the kernel of sampled functions, at points where the same functions are sampled again: the Nyström
/// extension `ψ_j(x) = (1/(m μ_j)) Σ_i κ(x, x_i) ψ_j(x_i)` over the m values needs only the S numbers
/// `W_sj = (1/(S m μ_j)) Σ_i F_s(x_i) ψ_j(x_i)`, for `ψ_j(x) = Σ_s F_s(x) W_sj`. Where networks were trained, they are
/// functions of the points themselves.
pub struct SampledModel {
    /// Descending.
    pub eigenvalues: Vec<f64>,
    /// Of each pair, over the points that were fitted; none where `μ_j = 0`.
    pub residuals: Vec<Option<f64>>,
    /// C, as the samples have it.
    pub outputs: usize,
    /// Whether the kernel was taken to be `κ(x,x')·I_C`.
    pub factorised: bool,
    /// `√S·W` `[S or S·C, k]`
    pub(super) weights: Array2<f64>,
    /// Networks and the coefficients `[p, k]` of the functions in them.
    pub(super) networks: Option<(NetworkFeatures, Array2<f64>)>,
}

impl SampledModel {
    const KIND: &'static str = "samples";

    /// Outputs of an eigenfunction.
    fn function_outputs(&self) -> usize {
        if self.factorised { 1 } else { self.outputs }
    }

    /// `ψ` `[n, C, k]` (C = 1 where factorised) at new points, from the same S functions there: `F` `[S, n, C]`.
    pub fn at_samples(&self, samples: &FunctionSamples) -> Result<Array3<f64>> {
        let (count, n, outputs) = samples.dim();
        let rows = if self.factorised { count * outputs } else { count };
        if outputs != self.outputs || rows != self.weights.nrows() {
            return Err(Error::input(format!(
                "the model was fitted to {} functions with {} outputs; the new samples are {count} with {outputs}: they \
                 must be the same functions at new points",
                self.weights.nrows() / if self.factorised { self.outputs } else { 1 },
                self.outputs
            )));
        }
        let psi = LowRankOperator::of_samples(samples, self.factorised)?.pulled(self.weights.view());
        Ok(self.shaped(psi, n))
    }

    /// `ψ` `[n, C, k]` at new points `[n, d]`, by the networks that were trained.
    pub fn at_points(&self, x: ArrayView2<f64>) -> Result<Array3<f64>> {
        let Some((networks, coefficients)) = &self.networks else {
            return Err(Error::input(
                "the model holds no networks, so it needs the sampled functions at the new points; give the samples, \
                 or fit by the NeuralEF method",
            ));
        };
        if x.ncols() != networks.inputs() {
            return Err(Error::input(format!(
                "the networks are functions of {} columns; the new points have {}",
                networks.inputs(),
                x.ncols()
            )));
        }
        Ok(self.shaped(matmul(networks.eval(x)?.view(), coefficients.view()), x.nrows()))
    }

    /// Multiply-adds at a new point: of the networks that were trained, or of `F(x)ᵀW` once `F(x)` is known.
    pub fn multiply_adds(&self) -> usize {
        match &self.networks {
            Some((networks, coefficients)) => networks.multiply_adds() + coefficients.len(),
            None => self.weights.len(),
        }
    }

    fn shaped(&self, psi: Array2<f64>, n: usize) -> Array3<f64> {
        let k = self.eigenvalues.len();
        psi.into_shape_with_order((n, self.function_outputs(), k)).expect("n·C rows of k")
    }

    /// Writes the model to a file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut bundle = Bundle::default();
        bundle.set("kind", Self::KIND);
        bundle.set("eigenvalues", &self.eigenvalues);
        bundle.set("residuals", &self.residuals);
        bundle.set("outputs", self.outputs);
        bundle.set("factorised", self.factorised);
        bundle.put("weights", self.weights.view());
        bundle.set("networks", self.networks.is_some());
        if let Some((networks, coefficients)) = &self.networks {
            networks.save(&mut bundle);
            bundle.put("coefficients", coefficients.view());
        }
        bundle.write(path)
    }

    /// Reads a model back; none where the file holds a model of another kind.
    pub fn load(path: &Path, device: Device) -> Result<Option<SampledModel>> {
        SampledModel::from_bundle(&Bundle::read(path)?, device).map_err(|e| Error::file(path, e.to_string()))
    }

    /// The model of a file that was read; none where it holds a model of another kind.
    pub fn from_bundle(bundle: &Bundle, device: Device) -> Result<Option<SampledModel>> {
        if bundle.text("kind")? != Self::KIND {
            return Ok(None);
        }
        let networks = match bundle.value::<bool>("networks")? {
            true => Some((NetworkFeatures::load(bundle, device)?, bundle.matrix("coefficients")?)),
            false => None,
        };
        let model = SampledModel {
            eigenvalues: bundle.value("eigenvalues")?,
            residuals: bundle.value("residuals")?,
            outputs: bundle.value("outputs")?,
            factorised: bundle.value("factorised")?,
            weights: bundle.matrix("weights")?,
            networks,
        };
        let k = model.eigenvalues.len();
        let fits = model.networks.as_ref().is_none_or(|(features, a)| a.dim() == (features.dim(), k));
        if model.outputs == 0 || model.weights.ncols() != k || model.residuals.len() != k || !fits {
            return Err(Error::input(format!(
                "its parts do not fit together: {k} pairs, weights {:?}",
                model.weights.dim()
            )));
        }
        Ok(Some(model))
    }
}
