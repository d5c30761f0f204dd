//! Ridge regression on features of few dimensions: time linear in the number of points.

use crate::apply::class_weights::ClassWeights;
use crate::apply::features::combined::Combined;
use crate::apply::features::feature_map::{FeatureFunctions, FeatureMap};
use crate::apply::features::ridge_head::{Head, Solved};
use crate::apply::probabilities::left_out_sharpness;
use crate::apply::targets::Encoding;
use crate::apply::traits::{encoded_scores, fields, not_kept, saved};
use crate::apply::{Alpha, Convergence, Fit, Predict, Tried, check_points};
use crate::data::Target;
use crate::spectrum::Origin;
use crate::{FitContext, Result};
use ndarray::{Array2, ArrayView2, Axis};
use std::time::Instant;

/// Ridge regression and classification on p features φ: `f(x) = b + φ(x)W` with the W and b that minimise
/// `Σ_i w_i ‖y_i − f(x_i)‖² + α‖W‖²`. The intercept b is not penalised, and w are the weights of the classes.
///
/// It takes one pass over the points and a p×p system for all α and all targets, in time `O(n p²)` and memory `O(p²)`. α has the
/// convention of [`Ridge`](crate::apply::Ridge). With classes, y is +1 in the column of the class and −1 in the others;
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
    /// t of `softmax(t f(x))`, for classes.
    pub(crate) sharpness: Option<f64>,
    /// f
    pub(crate) functions: FeatureFunctions,
    /// How an iterative solver went; a file does not keep it.
    pub convergence: Convergence,
    /// Warnings of the fit; a file does not keep them.
    pub(crate) notes: Vec<String>,
}

impl Fit for FeatureRidge {
    type Target = Target;
    type Fitted = FittedFeatureRidge;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedFeatureRidge> {
        let start = Instant::now();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let context = &context.beside_classes(y)?;
        let (encoding, encoded) = Encoding::encode(y, x.nrows(), -1.0, 1.0)?;
        let weights = self.class_weights.of_rows(y)?;
        let map = self.map.prepare(x, encoding.width(), context)?;
        let at_rows = |rows: &[usize]| map.at(x.select(Axis(0), rows));
        let (y_view, weights) = (encoded.view(), weights.as_deref());
        let values = |rows: &[usize]| map.values(x.select(Axis(0), rows));
        let combined = map.normalisation().map(|normalisation| Combined { values: &values, normalisation });
        let solved = {
            let on_device = map.on_device(x, context)?;
            let on_device = on_device.as_ref();
            let head = Head { features: &at_rows, combined, on_device, y: y_view, weights, intercept: true, context };
            head.solve(self.alpha)?
        };
        let Solved { alpha, tried, weights, offset, left_out: (rows, scores), notes } = solved;
        let sharpness = left_out_sharpness(y, Some(&rows), scores.view());
        let functions = map.functions(weights, x.ncols(), context)?;
        let origin = Origin::new(self.map.name(), self.map.kernel(), x.dim(), context, start);
        let functions = FeatureFunctions { origin, encoding, functions, offset };
        Ok(FittedFeatureRidge { alpha, tried, sharpness, functions, convergence: Convergence::default(), notes })
    }
}

impl FittedFeatureRidge {
    /// Number of features, or of landmarks.
    pub fn rank(&self) -> usize {
        self.functions.rank()
    }
}

impl Predict for FittedFeatureRidge {
    fields! {
        origin: Origin = functions.origin;
        notes: [String] = notes;
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.functions.evaluate(x)
    }

    encoded_scores!(functions.encoding);
}

saved! {
    FittedFeatureRidge, "feature-ridge":
    functions: FeatureFunctions = whole(FeatureFunctions::unpack);
    alpha: f64 = value("alpha");
    tried: Vec<Tried> = value("tried");
    sharpness: Option<f64> = value("sharpness");
    convergence: Convergence = known(not_kept, ());
    notes: Vec<String> = known(not_kept, ());
}
