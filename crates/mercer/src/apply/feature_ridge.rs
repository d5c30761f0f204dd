//! Ridge regression on features of few dimensions: time linear in the number of points.

use super::class_weights::ClassWeights;
use super::probabilities::{left_out_sharpness, sharpened};
use super::reference::{check_new, matrix};
use super::ridge_head::{Head, Solved, memory};
use super::targets::Encoding;
use super::traits::fields;
use super::{Alpha, Fit, Predict, Saved, Tried, check_points};
use crate::compute::Device;
use crate::data::{Rows, Target};
use crate::kernel::Kernel;
use crate::model::Bundle;
use crate::operator::{Extension, RowFeatures};
use crate::spectrum::{Landmarks, Nystrom, NystromFeatures, Origin, Problem, RandomFeatures, Sampling, features};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::time::Instant;

/// Ridge regression and classification on p features φ: `f(x) = b + φ(x)W` with the W and b that minimise
/// `Σ_i w_i ‖y_i − f(x_i)‖² + α‖W‖²`. The intercept b is not penalised, and w are the weights of the classes.
///
/// It takes one pass over the points and a p×p system for all α and all targets, in time `O(n p²)` and memory `O(p²)`. α has the
/// convention of [`Ridge`](super::Ridge). With classes, y is +1 in the column of the class and −1 in the others;
/// probabilities are `softmax(t f(x))`, t fitted to the scores of rows that were left out.
///
/// ```
/// use mercer::apply::{FeatureMap, FeatureRidge, Fit, Predict};
/// use mercer::{FitContext, data::Target, kernel::Kernel, spectrum::Landmarks};
/// let x = ndarray::Array2::from_shape_fn((3000, 1), |(i, _)| i as f64 / 500.0);
/// let y = Target::Values(x.iter().map(|x| 7.0 + x.sin()).collect());
/// let kernel = Kernel::parse("rbf(1)")?;
/// let map = FeatureMap::Nystrom { kernel, landmarks: 30, choice: Landmarks::KMeansPlusPlus };
/// let fitted = FeatureRidge::new(map).fit(x.view(), &y, &FitContext::default())?;
/// assert!((fitted.scores(ndarray::array![[2.22]].view())?[[0, 0]] - 7.0 - 2.22f64.sin()).abs() < 1e-3);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureRidge {
    /// φ
    pub map: FeatureMap,
    /// α
    pub alpha: Alpha,
    /// How much the rows of each class count.
    pub class_weights: ClassWeights,
}

/// Features that stand for a kernel, `φ(x)·φ(x') ≈ κ(x,x')`. Example: [`FeatureRidge`].
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
}

/// Features for given points.
enum Map {
    Linear(f64),
    Nystrom(NystromFeatures),
    Random(RandomFeatures),
}

impl FeatureMap {
    /// The name of the method in models and in the program.
    fn name(&self) -> &'static str {
        match self {
            FeatureMap::Linear { .. } => "linear",
            FeatureMap::Nystrom { .. } => "nystrom",
            FeatureMap::Random { .. } => "random-features",
        }
    }

    /// The kernel that the features stand for.
    fn kernel(&self) -> String {
        match self {
            FeatureMap::Linear { scale: 1.0 } => "linear".into(),
            FeatureMap::Linear { scale } => format!("{scale}*linear"),
            FeatureMap::Nystrom { kernel, .. } | FeatureMap::Random { kernel, .. } => kernel.to_string(),
        }
    }

    /// The map for the points `x` `[n, d]`.
    fn prepare(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<Map> {
        let (n, d) = x.dim();
        let p = match self {
            FeatureMap::Linear { .. } => d,
            FeatureMap::Nystrom { landmarks, .. } => *landmarks,
            FeatureMap::Random { features, .. } => *features,
        };
        context.budget.require(format!("ridge regression on {p} features"), memory(p), "use fewer features")?;
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
                Ok(Map::Random(map.centred(Rows::from(x))))
            }
        }
    }
}

impl Map {
    /// φ `[b, p]` at points `[b, d]`.
    fn at(&self, x: Array2<f64>) -> Result<Array2<f64>> {
        match self {
            Map::Linear(root) => Ok(x * *root),
            Map::Nystrom(map) => map.transform(&x),
            Map::Random(map) => map.transform(&x),
        }
    }

    /// The functions `x ↦ φ(x)W` of points of `d` columns, for `w` `[p, m]`.
    fn functions(self, w: Array2<f64>, d: usize, context: &FitContext) -> Extension {
        match self {
            Map::Linear(root) => {
                Extension { features: Box::new(RowFeatures { values: d, outputs: 1 }), coefficients: w * root }
            }
            Map::Nystrom(map) => map.functions(w.view(), context),
            Map::Random(map) => Extension { features: Box::new(map), coefficients: w },
        }
    }
}

impl FeatureRidge {
    /// On these features, with α by leave-one-out and equal classes.
    pub fn new(map: FeatureMap) -> Self {
        FeatureRidge { map, alpha: Alpha::LeaveOneOut, class_weights: ClassWeights::Equal }
    }
}

/// Weights of features, ready to predict. Example: [`FeatureRidge`].
pub struct FittedFeatureRidge {
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α.
    pub tried: Vec<Tried>,
    origin: Origin,
    encoding: Encoding,
    /// t of `softmax(t f(x))`, for classes.
    sharpness: Option<f64>,
    /// `x ↦ φ(x)W`
    functions: Extension,
    /// b `[m]`
    offset: Array1<f64>,
    /// Warnings of the fit; a file does not keep them.
    notes: Vec<String>,
}

impl Fit for FeatureRidge {
    type Target = Target;
    type Fitted = FittedFeatureRidge;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedFeatureRidge> {
        let start = Instant::now();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let (encoding, encoded) = Encoding::encode(y, x.nrows(), -1.0, 1.0)?;
        let weights = self.class_weights.of_rows(y)?;
        let map = self.map.prepare(x, context)?;
        let at_rows = |rows: &[usize]| map.at(x.select(Axis(0), rows));
        let (y_view, weights) = (encoded.view(), weights.as_deref());
        let head = Head { features: &at_rows, y: y_view, weights, intercept: true, context };
        let Solved { alpha, tried, weights, offset, left_out: (rows, scores), notes } = head.solve(self.alpha)?;
        let sharpness = left_out_sharpness(y, Some(&rows), scores.view());
        let functions = map.functions(weights, x.ncols(), context);
        let origin = Origin::new(self.map.name(), self.map.kernel(), x.dim(), context, start);
        Ok(FittedFeatureRidge { alpha, tried, origin, encoding, sharpness, functions, offset, notes })
    }
}

impl FittedFeatureRidge {
    /// Number of features, or of landmarks.
    pub fn rank(&self) -> usize {
        self.functions.features.dim()
    }
}

impl Predict for FittedFeatureRidge {
    fields! { origin: Origin = origin; }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        Ok(self.functions.features.project(x.into(), self.functions.coefficients.view())? + &self.offset)
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        self.encoding.decode(scores)
    }

    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        sharpened(self.sharpness, scores)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Saved for FittedFeatureRidge {
    const KIND: &'static str = "feature-ridge";

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) {
        bundle.set("origin", &self.origin);
        bundle.set("target", &self.encoding);
        bundle.set("alpha", self.alpha);
        bundle.set("tried", &self.tried);
        bundle.set("sharpness", self.sharpness);
        let kind = self.functions.features.save(bundle);
        bundle.set("features", kind);
        bundle.put("coefficients", self.functions.coefficients.view());
        bundle.put("offset", self.offset.view().insert_axis(Axis(0)));
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<FittedFeatureRidge> {
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
        Ok(FittedFeatureRidge {
            alpha: bundle.value("alpha")?,
            tried: bundle.value("tried")?,
            sharpness: bundle.value("sharpness")?,
            functions: Extension { features, coefficients },
            origin,
            encoding,
            offset,
            notes: vec![],
        })
    }
}
