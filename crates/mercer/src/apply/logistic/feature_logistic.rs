//! Logistic regression on features of few dimensions: time linear in the number of points.

use crate::apply::class_weights::ClassWeights;
use crate::apply::features::feature_map::{FeatureFunctions, FeatureMap, Map};
use crate::apply::logistic::design::{Constant, Design, Features};
use crate::apply::logistic::solver::{Found, LogisticHead, labels};
use crate::apply::probabilities::softmax_rows;
use crate::apply::targets::Encoding;
use crate::apply::traits::{fields, saved};
use crate::apply::{Alpha, Fit, Predict, Tried, check_points};
use crate::data::Target;
use crate::spectrum::Origin;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::time::Instant;

/// Classes by logistic regression on p features φ: `p_c(x) ∝ exp f_c(x)`, `f(x) = b + (φ(x) − φ̄)W` with the W and b that minimise
///
/// `−Σ_i w_i log p_{y_i}(x_i) + (α/2)(‖W‖² + ‖b‖²/s)`
///
/// where φ̄ is the mean of the features, s the mean of `‖φ(x) − φ̄‖²`, and w the weights of the classes. It is strictly convex: there is
/// one answer. With the penalty on b, a class without rows has a finite score. α is `1/C` of scikit-learn.
///
/// It is solved by Newton's method and conjugate gradients on the CPU, in time `O(n p C)` for a product and `O(p³ C)` for a preconditioner,
/// which is made from 8192 rows at most. Features are stored where the memory has room for them, and otherwise computed again for each product. The scores are
/// `f(x)`, and the probabilities their softmax.
///
/// ```
/// use mercer::apply::{FeatureLogistic, FeatureMap, Fit, Predict};
/// use mercer::{FitContext, data::generate::moons, kernel::Kernel, spectrum::Landmarks};
/// let (train, test) = moons(400, 0.1, 0)?.split(0.5, 0)?;
/// let map = FeatureMap::Nystrom { kernel: Kernel::parse("rbf(0.5)")?, landmarks: 40, choice: Landmarks::KMeansPlusPlus };
/// let (x, new) = (train.x.to_f64(), test.x.to_f64());
/// let fitted = FeatureLogistic::new(map).fit(x.view(), train.y.as_ref().unwrap(), &FitContext::default())?;
/// assert!(fitted.accuracy(new.view(), test.y.as_ref().unwrap())? > 0.98);
/// let p = fitted.probabilities(fitted.scores(new.view())?.view()).unwrap();
/// assert!((p.row(0).sum() - 1.0).abs() < 1e-12);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureLogistic {
    /// φ
    pub map: FeatureMap,
    /// α, above zero, or chosen to a decade by the log loss of cross-validation on 8192 rows at most. Above 2000 points the first fold
    /// alone is looked at. There is no leave-one-out error in closed form.
    pub alpha: Alpha,
    /// How much the rows of each class count.
    pub class_weights: ClassWeights,
}

impl FeatureLogistic {
    /// On these features, with α by cross-validation of five folds and equal classes.
    pub fn new(map: FeatureMap) -> Self {
        FeatureLogistic { map, alpha: Alpha::CrossValidation { folds: 5 }, class_weights: ClassWeights::Equal }
    }
}

/// Weights of features, ready to predict. Example: [`FeatureLogistic`].
pub struct FittedFeatureLogistic {
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α, with its log loss on left-out points.
    pub tried: Vec<Tried>,
    /// Norm of the gradient at the weights.
    pub gradient: f64,
    /// Newton steps of the last fit.
    pub steps: usize,
    notes: Vec<String>,
    /// f
    functions: FeatureFunctions,
}

impl Fit for FeatureLogistic {
    type Target = Target;
    type Fitted = FittedFeatureLogistic;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedFeatureLogistic> {
        let start = Instant::now();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let labels = labels(y)?;
        let context = &context.beside_classes(y)?;
        let encoding = Encoding::of(y, x.nrows())?;
        let weights = self.class_weights.of_rows(y)?.unwrap_or_else(|| vec![1.0; labels.len()]);
        let map = self.map.prepare(x, encoding.width(), context)?;
        let at_rows = |rows: &[usize]| map.at(x.select(Axis(0), rows));
        let p = at_rows(&[0])?.ncols();
        let shape = (p, encoding.width());
        let design = Design::new(Features::Rows(&at_rows), shape, &weights, Constant::LikeFeatures, context)?;
        fail_if!(
            !(design.size > 0.0 && design.size.is_finite()),
            "every feature is constant on these points; use a kernel that tells them apart, or points that differ"
        );
        let head = LogisticHead { design: &design, labels, classes: encoding.width(), weights: &weights, context };
        let solved = head.solve(self.alpha)?;
        let weights = design.weights(&solved.2.v);
        self.fitted(solved, weights, map, encoding, (x.dim(), start), context)
    }
}

impl FeatureLogistic {
    /// The model of a solution with the weights W `[p, C]` and b `[C]` on the features of `map`, for n points of d columns.
    pub(crate) fn fitted(
        &self,
        (alpha, tried, found): (f64, Vec<Tried>, Found),
        (w, offset): (Array2<f64>, Array1<f64>),
        map: Map,
        encoding: Encoding,
        ((n, d), start): ((usize, usize), Instant),
        context: &FitContext,
    ) -> Result<FittedFeatureLogistic> {
        let functions = map.functions(w, d, context)?;
        let method = format!("{}-logistic", self.map.name());
        let origin = Origin::new(method, self.map.kernel(), (n, d), context, start);
        let functions = FeatureFunctions { origin, encoding, functions, offset };
        let notes = found.note.into_iter().collect();
        Ok(FittedFeatureLogistic { alpha, tried, gradient: found.gradient, steps: found.steps, notes, functions })
    }
}

impl FittedFeatureLogistic {
    /// Number of features, or of landmarks.
    pub fn rank(&self) -> usize {
        self.functions.rank()
    }
}

impl Predict for FittedFeatureLogistic {
    fields! {
        origin: Origin = functions.origin;
        notes: [String] = notes;
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.functions.evaluate(x)
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        self.functions.encoding.decode(scores)
    }

    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        Some(softmax_rows(scores.to_owned()))
    }
}

saved! {
    FittedFeatureLogistic, "feature-logistic":
    functions: FeatureFunctions = whole(FeatureFunctions::unpack);
    alpha: f64 = value("alpha");
    tried: Vec<Tried> = value("tried");
    gradient: f64 = value("gradient");
    steps: usize = value("steps");
    notes: Vec<String> = value("notes");
}
