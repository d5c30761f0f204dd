//! A posterior over the biases of the last layer alone, in tests: what a new method takes is this file and its name in the list of methods.

use super::cost::{Sizes, Work};
use super::fit::{Fit, Rows};
use super::likelihood::Curvature;
use super::method::Recipe;
use super::passes::{Hidden, Passes};
use super::{Method, Structure};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::compute::Device;
use crate::linalg::eigh;
use crate::options::{Kind, Opt, Options};
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, Array3, ArrayView2};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

static SHARE: Opt = Opt::new("share", "NUMBER", Kind::Positive, "share of the curvature that counts [default: 1]");

/// `J = I` for every row: `H = share · Σ_i Λ_i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bias {
    percent: u32,
}

impl Default for Bias {
    fn default() -> Self {
        Bias { percent: 100 }
    }
}

/// `H = Q diag(λ) Qᵀ`
struct Biases {
    eigenvalues: Array1<f64>,
    rotation: Array2<f64>,
}

impl Recipe for Bias {
    fn name(&self) -> &'static str {
        "bias"
    }

    fn about(&self) -> &'static str {
        "the Gauss–Newton matrix over the biases of the last layer"
    }

    fn options(&self) -> Vec<&'static Opt> {
        [&[&SHARE][..], &super::method::POSTERIOR].concat()
    }

    fn with_options(&self, o: &mut Options) -> Result<Option<Method>> {
        Ok(o.take::<f64>(&SHARE)?.map(|share| Bias { percent: (100.0 * share) as u32 }.into()))
    }

    fn work(&self, &Sizes { n, c, pass, .. }: &Sizes) -> Result<Work> {
        Ok(Work { bytes: 32.0 * c * c, fit: n * (pass + c * c), predict: pass + c * c })
    }

    fn fit(&self, rows: &Rows, _: &FitContext) -> Result<Fit> {
        let z = rows.passes.forward(rows.x, Hidden::No)?.0;
        let h = Curvature::at(z.view(), rows.passes.classes()).sum(z.nrows()) * (f64::from(self.percent) / 100.0);
        let (eigenvalues, rotation) = eigh(Device::Cpu, h.view())?;
        let eigenvalues = eigenvalues.into_iter().map(|λ| λ.max(0.0)).collect();
        Ok(Fit::of((Biases { eigenvalues, rotation }, z)))
    }

    fn unpack(&self, bundle: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        let (eigenvalues, rotation) =
            (bundle.matrix("eigenvalues")?.remove_axis(ndarray::Axis(0)), bundle.matrix("rotation")?);
        Ok(Some(Arc::new(Biases { eigenvalues, rotation })))
    }
}

impl Structure for Biases {
    fn eigenvalues(&self) -> Vec<f64> {
        self.eigenvalues.to_vec()
    }

    fn square(&self) -> f64 {
        0.0
    }

    fn covariance(
        &self,
        passes: &Passes,
        x: ArrayView2<f64>,
        shifts: &[f64],
        full: bool,
    ) -> Result<(Array2<f64>, Vec<Array3<f64>>)> {
        let z = passes.forward(x, Hidden::No)?.0;
        let of = |s: &f64| {
            let covariance = (&self.rotation / &self.eigenvalues.mapv(|λ| λ + s)).dot(&self.rotation.t());
            let dim = (z.nrows(), z.ncols(), if full { z.ncols() } else { 1 });
            Array3::from_shape_fn(dim, |(_, a, b)| covariance[[a, if full { b } else { a }]])
        };
        let covariances = shifts.iter().map(of).collect();
        Ok((z, covariances))
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.put("eigenvalues", self.eigenvalues.view().insert_axis(ndarray::Axis(0)));
        bundle.put("rotation", self.rotation.view());
        Ok(())
    }
}
