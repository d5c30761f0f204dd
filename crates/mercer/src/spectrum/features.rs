//! Feature maps: the functions that eigenfunctions are combinations of.

use super::neural::{NetworkFeatures, Training};
use super::{FourierFeatures, PositiveFeatures};
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::linalg::matmul;
use crate::model::Bundle;
use crate::operator::{Precision, cross_apply, gram_cross};
use crate::{Error, FitContext, Result};
use ndarray::{Array2, ArrayView2, Axis};

/// A feature map `φ: R^d → R^p`.
pub trait Features: Send + Sync {
    /// p
    fn dim(&self) -> usize;

    /// `φ(x)` `[n, p]` at points `[n, d]`.
    fn eval(&self, x: ArrayView2<f64>) -> Result<Array2<f64>>;

    /// `φ(x) A` `[n, k]` for `A` `[p, k]`, in strips of rows so that `φ(x)` is never whole in memory.
    fn project(&self, x: ArrayView2<f64>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        const STRIP: usize = 4096;
        let mut out = Array2::zeros((x.nrows(), a.ncols()));
        for (x, mut out) in x.axis_chunks_iter(Axis(0), STRIP).zip(out.axis_chunks_iter_mut(Axis(0), STRIP)) {
            out.assign(&matmul(self.eval(x)?.view(), a));
        }
        Ok(out)
    }

    /// Multiply-adds of the matrix products in `φ(x)` at one point: what a new point costs, before `A`.
    fn multiply_adds(&self) -> usize;

    /// Name of the kind in saved models, and what loading needs to build it again put into `bundle`.
    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> &'static str;

    /// How the features were trained, where they were.
    fn training(&self) -> Option<&Training> {
        None
    }
}

/// The feature map of a saved model. A new kind of feature is one more line here.
pub(super) fn load(kind: &str, bundle: &Bundle, device: Device) -> Result<Box<dyn Features>> {
    match kind {
        NetworkFeatures::KIND => Ok(Box::new(NetworkFeatures::load(bundle, device)?)),
        KernelFeatures::KIND => Ok(Box::new(KernelFeatures::load(bundle, device)?)),
        FourierFeatures::KIND => Ok(Box::new(FourierFeatures::load(bundle)?)),
        PositiveFeatures::KIND => Ok(Box::new(PositiveFeatures::load(bundle)?)),
        other => {
            Err(Error::input(format!("the model holds features of kind '{other}', which this version does not know")))
        }
    }
}

/// `φ_m(x) = κ(x, z_m)` for centres `z_m`: the features of the exact method and of Nyström's.
pub struct KernelFeatures {
    kernel: Kernel,
    /// `[m, d]`
    centres: Array2<f64>,
    precision: Precision,
    device: Device,
}

impl KernelFeatures {
    const KIND: &'static str = "kernel";

    /// Features at `centres` `[m, d]`.
    pub fn new(kernel: &Kernel, centres: ArrayView2<f64>, context: &FitContext<'_>) -> Self {
        let FitContext { precision, device, .. } = *context;
        KernelFeatures { kernel: kernel.clone(), centres: centres.to_owned(), precision, device }
    }

    fn load(bundle: &Bundle, device: Device) -> Result<Self> {
        let kernel = Kernel::parse(bundle.text("features.kernel")?)?;
        let precision = bundle.value("features.precision")?;
        Ok(KernelFeatures { kernel, centres: bundle.matrix("centres")?, precision, device })
    }
}

impl Features for KernelFeatures {
    fn dim(&self) -> usize {
        self.centres.nrows()
    }

    fn eval(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        match self.precision {
            Precision::F32 | Precision::Tf32 => {
                Ok(gram_cross::<f32>(&self.kernel, x, self.centres.view(), self.device)?.mapv(f64::from))
            }
            Precision::F64 => gram_cross(&self.kernel, x, self.centres.view(), self.device),
        }
    }

    fn project(&self, x: ArrayView2<f64>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        cross_apply(&self.kernel, x, self.centres.view(), a, self.precision, self.device)
    }

    fn multiply_adds(&self) -> usize {
        self.centres.len()
    }

    fn save<'a>(&'a self, bundle: &mut Bundle<'a>) -> &'static str {
        bundle.set("features.kernel", self.kernel.to_string());
        bundle.set("features.precision", self.precision);
        bundle.put("centres", self.centres.view());
        Self::KIND
    }
}
