//! Features that stand for a kernel, and functions that are linear in them.

use super::reference::{check_new, matrix};
use super::ridge_head::memory;
use super::targets::Encoding;
use crate::compute::Device;
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::linalg::matmul;
use crate::model::Bundle;
use crate::operator::{Extension, RowFeatures};
use crate::spectrum::{
    Krylov, Landmarks, Method, Nystrom, NystromFeatures, Origin, Problem, RandomFeatures, Sampling, features,
};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

/// Features that stand for a kernel, `φ(x)·φ(x') ≈ κ(x,x')`. Example: [`FeatureRidge`](super::FeatureRidge).
#[derive(Clone, Debug, PartialEq)]
pub enum FeatureMap {
    /// `φ(x) = √scale x`: the kernel `scale·x·x'` in its primal form.
    Linear {
        /// Factor on `x·x'`, above zero.
        scale: f64,
    },
    /// [`NystromFeatures`] of landmarks among the points. With every point a landmark they are those of the kernel itself.
    Nystrom {
        /// κ
        kernel: Kernel,
        /// How many; no more than there are points.
        landmarks: usize,
        /// How they are chosen.
        choice: Landmarks,
    },
    /// [`RandomFeatures::fourier`] of a kernel of `x−x'` alone.
    Random {
        /// κ
        kernel: Kernel,
        /// How many, an even number.
        features: usize,
        /// How their frequencies are drawn.
        sampling: Sampling,
    },
    /// `√μ_j ψ_j(x)` of the leading eigenfunctions, by the Krylov method.
    Eigenfunctions {
        /// κ
        kernel: Kernel,
        /// How many; no more than there are points.
        pairs: usize,
    },
}

/// Features for given points.
pub(super) enum Map {
    Linear(f64),
    Nystrom(NystromFeatures),
    Random(RandomFeatures),
    Eigenfunctions(Extension),
}

impl FeatureMap {
    /// The name of the method in models and in the program.
    pub(super) fn name(&self) -> &'static str {
        match self {
            FeatureMap::Linear { .. } => "linear",
            FeatureMap::Nystrom { .. } => "nystrom",
            FeatureMap::Random { .. } => "random-features",
            FeatureMap::Eigenfunctions { .. } => "spectrum",
        }
    }

    /// The kernel that the features stand for.
    pub(super) fn kernel(&self) -> String {
        match self {
            FeatureMap::Linear { scale: 1.0 } => "linear".into(),
            FeatureMap::Linear { scale } => format!("{scale}*linear"),
            FeatureMap::Nystrom { kernel, .. }
            | FeatureMap::Random { kernel, .. }
            | FeatureMap::Eigenfunctions { kernel, .. } => kernel.to_string(),
        }
    }

    /// Number of features of points of `d` columns, at most.
    pub(super) fn dim(&self, d: usize) -> usize {
        match self {
            FeatureMap::Linear { .. } => d,
            FeatureMap::Nystrom { landmarks, .. } => *landmarks,
            FeatureMap::Random { features, .. } => *features,
            FeatureMap::Eigenfunctions { pairs, .. } => *pairs,
        }
    }

    /// The map for the points `x` `[n, d]`.
    pub(super) fn prepare(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<Map> {
        let p = self.dim(x.ncols());
        context.budget.require(format!("regression on {p} features"), memory(p), "use fewer features")?;
        self.prepare_around(x, Rows::from(x).mean().unwrap_or_default().view(), context)
    }

    /// The map for points with this `mean` `[d]`, of which `x` `[n, d]` are some: landmarks are chosen among these.
    pub(super) fn prepare_around(
        &self,
        x: ArrayView2<f64>,
        mean: ArrayView1<f64>,
        context: &FitContext,
    ) -> Result<Map> {
        let (n, d) = x.dim();
        match self {
            FeatureMap::Linear { scale } => {
                fail_if!(
                    !(*scale > 0.0 && scale.is_finite()),
                    "a kernel can only be scaled by a number above 0, got {scale}"
                );
                Ok(Map::Linear(scale.sqrt()))
            }
            FeatureMap::Nystrom { kernel, landmarks, choice } => {
                let operator = context.kernel_operator(kernel, x)?;
                let nystrom = Nystrom { landmarks: *landmarks, choice: *choice };
                nystrom.features(&Problem { operator: &operator, k: 1, context: *context }).map(Map::Nystrom)
            }
            FeatureMap::Random { kernel, features, sampling } => {
                context.budget.require(
                    format!("{features} random features at {n} points"),
                    16u64.saturating_mul(*features as u64).saturating_mul(d as u64),
                    "use fewer features",
                )?;
                let map = RandomFeatures::fourier(kernel, d, *features, *sampling, context.seed)?;
                Ok(Map::Random(map.centred_at(mean.to_owned())))
            }
            FeatureMap::Eigenfunctions { kernel, pairs } => {
                let operator = context.kernel_operator(kernel, x)?;
                let found = Krylov::default().solve(&Problem { operator: &operator, k: *pairs, context: *context })?;
                let root: Array1<f64> = found.eigenvalues.iter().map(|μ| μ.max(0.0).sqrt()).collect();
                let coefficients = found.coefficients * root;
                Ok(Map::Eigenfunctions(Extension { features: found.features, coefficients }))
            }
        }
    }
}

impl Map {
    /// φ `[b, p]` at points `[b, d]`.
    pub fn at(&self, x: Array2<f64>) -> Result<Array2<f64>> {
        match self {
            Map::Linear(root) => Ok(x * *root),
            Map::Nystrom(map) => map.transform(&x),
            Map::Random(map) => map.transform(&x),
            Map::Eigenfunctions(map) => map.features.project(x.view().into(), map.coefficients.view()),
        }
    }

    /// The functions `x ↦ φ(x)W` of points of `d` columns, for `w` `[p, m]`.
    pub fn functions(self, w: Array2<f64>, d: usize, context: &FitContext) -> Extension {
        match self {
            Map::Linear(root) => {
                Extension { features: Box::new(RowFeatures { values: d, outputs: 1 }), coefficients: w * root }
            }
            Map::Nystrom(map) => map.functions(w.view(), context),
            Map::Random(map) => Extension { features: Box::new(map), coefficients: w },
            Map::Eigenfunctions(map) => Extension { coefficients: matmul(map.coefficients.view(), w.view()), ..map },
        }
    }
}

/// `f(x) = b + φ(x)W`, and what it was fitted on.
pub(super) struct FeatureFunctions {
    pub origin: Origin,
    pub encoding: Encoding,
    /// `x ↦ φ(x)W`
    pub functions: Extension,
    /// b `[m]`
    pub offset: Array1<f64>,
}

impl FeatureFunctions {
    /// Number of features, or of landmarks.
    pub fn rank(&self) -> usize {
        self.functions.features.dim()
    }

    /// f `[n, m]` at new points `[n, d]`.
    pub fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        Ok(self.functions.features.project(x.into(), self.functions.coefficients.view())? + &self.offset)
    }

    pub fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.set("origin", &self.origin);
        bundle.set("target", &self.encoding);
        let kind = self.functions.features.save(bundle)?;
        bundle.set("features", kind);
        bundle.put("coefficients", self.functions.coefficients.view());
        bundle.put("offset", self.offset.view().insert_axis(Axis(0)));
        Ok(())
    }

    pub fn unpack(bundle: &Bundle, device: Device) -> Result<FeatureFunctions> {
        let origin: Origin = bundle.value("origin")?;
        let encoding: Encoding = bundle.value::<Encoding>("target")?.checked()?;
        let features = features(bundle.text("features")?, bundle, device)?;
        fail_if!(
            features.inputs() != Some(origin.d) || features.outputs() != 1,
            "its parts do not fit together: it was fitted on {} columns, and its features take others",
            origin.d
        );
        let coefficients = matrix(bundle, "coefficients", (features.dim(), encoding.width()))?;
        let offset = matrix(bundle, "offset", (1, encoding.width()))?.remove_axis(Axis(0));
        Ok(FeatureFunctions { functions: Extension { features, coefficients }, origin, encoding, offset })
    }
}
