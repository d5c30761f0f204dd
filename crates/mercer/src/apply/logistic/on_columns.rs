//! Multinomial logistic regression on given columns.

use crate::apply::logistic::design::{Constant, Design, Features};
use crate::apply::logistic::solver::{LogisticHead, STEPS, labels};
use crate::apply::probabilities::softmax_rows;
use crate::apply::reference::check_new;
use crate::apply::targets::Encoding;
use crate::apply::traits::{fields, saved};
use crate::apply::{Fit, Predict, check_points};
use crate::data::Target;
use crate::linalg::matmul;
use crate::spectrum::Origin;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use std::time::Instant;

/// Classes by `p_c(x) ∝ exp(z·w_c)`, `z = (1, x)` with every column of x brought to mean 0 and variance 1. The weights `W`
/// `[1+k, C]`, the intercepts among them, minimise
///
/// `L(W) = −(1/n) Σ_i log p_{y_i}(x_i) + (α/2)‖W‖²`
///
/// which is strictly convex: there is one answer, and it depends on no seed. It is found by the solver of
/// [`FeatureLogistic`](crate::apply::FeatureLogistic), which computes features from the points and chooses α; this is for columns that are
/// features already, such as the values of k eigenfunctions. It runs on the CPU in double precision.
///
/// ```
/// use mercer::apply::{Fit, Logistic, Predict};
/// use mercer::{FitContext, data::Target};
/// let x = ndarray::array![[-2.0], [-1.0], [1.0], [2.0]];
/// let y = Target::Values(vec![0.0, 0.0, 1.0, 1.0]).as_classes()?;
/// let fitted = Logistic::default().fit(x.view(), &y, &FitContext::default())?;
/// assert_eq!(fitted.predict(x.view())?, y);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Logistic {
    /// α
    pub alpha: f64,
    /// The iteration ends when L is within this of its least value, by Newton's decrement, or cannot fall any further.
    pub tolerance: f64,
    /// Newton steps at most.
    pub steps: usize,
}

/// `α = 1e-5`, to within `1e-13` of the least L in at most 100 steps.
impl Default for Logistic {
    fn default() -> Self {
        Logistic { alpha: 1e-5, tolerance: 1e-13, steps: STEPS }
    }
}

/// The weights, ready to predict. Example: [`Logistic`].
#[derive(Clone, Debug)]
pub struct FittedLogistic {
    /// `W` `[1+k, C]` on standardised features, the intercepts first.
    pub weights: Array2<f64>,
    /// Norm of the gradient there.
    pub gradient: f64,
    /// Newton steps that were made.
    pub steps: usize,
    notes: Vec<String>,
    origin: Origin,
    encoding: Encoding,
    mean: Array1<f64>,
    scale: Array1<f64>,
}

impl Fit for Logistic {
    type Target = Target;
    type Fitted = FittedLogistic;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedLogistic> {
        let start = Instant::now();
        check_points(x)?;
        let (n, k) = x.dim();
        let context = &context.beside_classes(y)?;
        let encoding = Encoding::of(y, n)?;
        let labels = labels(y)?;
        fail_if!(!(self.alpha > 0.0 && self.alpha.is_finite()), "the ridge α must be above 0, got {}", self.alpha);
        let mean = x.mean_axis(Axis(0)).expect("there are rows");
        let scale = x.std_axis(Axis(0), 0.0).mapv(|s| if s > 0.0 { s } else { 1.0 });
        let standard = |rows: &[usize]| Ok((x.select(Axis(0), rows) - &mean) / &scale);
        let weights = vec![1.0; n];
        let classes = encoding.width();
        let design = Design::new(Features::Rows(&standard), (k, classes), &weights, Constant::One, context)?;
        let head = LogisticHead { design: &design, labels, classes, weights: &weights, context };
        let zero = Array2::zeros((design.width(), classes));
        // The solver's L is a sum over rows.
        let found = head.minimise(n as f64 * self.alpha, zero, self.tolerance, self.steps)?;
        let (w, b) = design.weights(&found.v);
        let weights = concatenate(Axis(0), &[b.insert_axis(Axis(0)).view(), w.view()]).expect("as many classes");
        let (gradient, steps, notes) = (found.gradient / n as f64, found.steps, found.note.into_iter().collect());
        let origin = Origin::new("logistic", "", x.dim(), context, start);
        Ok(FittedLogistic { weights, gradient, steps, notes, origin, encoding, mean, scale })
    }
}

impl Predict for FittedLogistic {
    fields! {
        origin: Origin = origin;
        notes: [String] = notes;
    }

    /// `p_c(x)` `[n, C]`
    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        let standard = (&x - &self.mean) / &self.scale;
        Ok(softmax_rows(matmul(standard.view(), self.weights.slice(s![1.., ..])) + self.weights.row(0)))
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        self.encoding.decode(scores)
    }

    /// The scores are probabilities.
    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        Some(scores.to_owned())
    }
}

saved! {
    FittedLogistic, "logistic":
    origin: Origin = value("origin");
    encoding: Encoding = value("target", Encoding::checked);
    weights: Array2<f64> = matrix("weights", (origin.d + 1, encoding.width()));
    gradient: f64 = value("gradient");
    steps: usize = value("steps");
    notes: Vec<String> = value("notes");
    mean: Array1<f64> = vector("mean", origin.d);
    scale: Array1<f64> = vector("scale", origin.d, all_above_zero);
}

/// Refuses scales that cannot divide.
fn all_above_zero(scale: Array1<f64>) -> Result<Array1<f64>> {
    fail_if!(scale.iter().any(|s| *s <= 0.0), "the model's 'scale' must be above 0 everywhere");
    Ok(scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::Device;
    use crate::linalg::Cholesky;
    use crate::rng::Rng;

    fn fit(x: &Array2<f64>, labels: &[usize], classes: usize) -> Result<FittedLogistic> {
        Logistic::default().fit(x.view(), &target(labels, classes), &FitContext::default())
    }

    fn target(labels: &[usize], classes: usize) -> Target {
        Target::Classes { labels: labels.to_vec(), names: (0..classes).map(|c| c.to_string()).collect() }
    }

    /// Three overlapping clouds in the plane.
    fn clouds(n: usize) -> (Array2<f64>, Vec<usize>) {
        let mut rng = Rng::new(3);
        let labels: Vec<usize> = (0..n).map(|i| i % 3).collect();
        let x = Array2::from_shape_fn((n, 2), |(i, j)| {
            [[0.0, 0.0], [2.0, 0.0], [1.0, 2.0]][labels[i]][j] * 5.0 + 5.0 * rng.normal()
        });
        (x, labels)
    }

    /// W by Newton's method with the whole Hessian, whose block of the classes a, b is `Zᵀ diag(p_a (δ_ab − p_b)) Z/n + α δ_ab I`.
    fn dense_newton(z: &Array2<f64>, labels: &[usize], classes: usize, alpha: f64) -> Array2<f64> {
        let ((n, d), mut w) = (z.dim(), Array2::<f64>::zeros((z.ncols(), classes)));
        for _ in 0..30 {
            let p = softmax_rows(z.dot(&w));
            let mut error = p.clone();
            labels.iter().enumerate().for_each(|(i, &label)| error[[i, label]] -= 1.0);
            let g = z.t().dot(&error) / n as f64 + &w * alpha;
            let mut h = Array2::eye(classes * d) * alpha;
            for (a, b) in (0..classes).flat_map(|a| (0..classes).map(move |b| (a, b))) {
                let own = f64::from(u8::from(a == b));
                let share = &p.column(a) * &p.column(b).mapv(|q| own - q) / n as f64;
                let mut block = h.slice_mut(s![a * d..(a + 1) * d, b * d..(b + 1) * d]);
                block += &z.t().dot(&(z * &share.insert_axis(Axis(1))));
            }
            let g = Array2::from_shape_fn((classes * d, 1), |(i, _)| g[[i % d, i / d]]);
            let step = Cholesky::new(Device::Cpu, h.view()).unwrap().solve(g.view()).unwrap();
            w -= &Array2::from_shape_fn((d, classes), |(j, a)| step[[a * d + j, 0]]);
        }
        w
    }

    #[test]
    fn the_weights_are_those_of_newtons_method_with_the_whole_hessian() {
        let (x, labels) = clouds(600);
        let found = fit(&x, &labels, 3).unwrap();
        assert!(found.gradient < 1e-8 && found.steps < 20, "{found:?}");
        let z = concatenate![Axis(1), Array2::ones((600, 1)), (&x - &found.mean) / &found.scale];
        let want = dense_newton(&z, &labels, 3, 1e-5);
        let off = (&found.weights - &want).iter().fold(0.0f64, |m, d| m.max(d.abs()));
        assert!(off < 1e-6, "{off:e}: {} for {want}", found.weights);
        // Without a penalty to speak of, predicted and true frequencies of a class agree.
        let p = found.scores(x.view()).unwrap();
        assert!(p.rows().into_iter().all(|row| (row.sum() - 1.0).abs() < 1e-12));
        for c in 0..3 {
            assert!((p.column(c).mean().unwrap() - 1.0 / 3.0).abs() < 1e-4);
        }
    }

    #[test]
    fn constant_columns_have_no_weight() {
        let (x, labels) = clouds(90);
        let with = concatenate![Axis(1), x, Array2::from_elem((90, 1), 3.0)];
        let (found, without) = (fit(&with, &labels, 3).unwrap(), fit(&x, &labels, 3).unwrap());
        assert!(found.weights.row(3).iter().all(|w| w.abs() < 1e-12));
        let off = (&found.weights.slice(s![..3, ..]) - &without.weights).iter().fold(0.0f64, |m, d| m.max(d.abs()));
        assert!(off < 1e-7, "{off}");
        // Nothing but the frequencies is left.
        let p =
            fit(&Array2::ones((9, 1)), &[0, 0, 0, 0, 0, 0, 1, 1, 1], 2).unwrap().scores(Array2::ones((1, 1)).view());
        assert!((p.unwrap()[[0, 0]] - 2.0 / 3.0).abs() < 1e-4);
    }

    #[test]
    fn two_classes_apart_on_the_line_are_parted_between_them() {
        let x = ndarray::array![[-3.0], [-2.0], [-1.0], [3.0], [4.0], [5.0]];
        let found = fit(&x, &[0, 0, 0, 1, 1, 1], 2).unwrap();
        assert!(found.gradient < 1e-8);
        // By symmetry the classes are equally probable at 1.
        let p = found.scores(ndarray::array![[1.0], [0.9], [1.1]].view()).unwrap();
        assert!((p[[0, 0]] - 0.5).abs() < 1e-6 && p[[1, 0]] > 0.5 && p[[2, 0]] < 0.5);
        assert_eq!(found.accuracy(x.view(), &target(&[0, 0, 0, 1, 1, 1], 2)).unwrap(), 1.0);
    }

    #[test]
    fn the_scale_of_a_feature_does_not_matter() {
        let (x, labels) = clouds(90);
        let mut y = x.clone();
        y.column_mut(1).mapv_inplace(|v| 1e4 * v - 7.0);
        let difference = fit(&x, &labels, 3).unwrap().weights - fit(&y, &labels, 3).unwrap().weights;
        assert!(difference.iter().all(|d| d.abs() < 1e-6));
    }

    #[test]
    fn bad_targets_are_refused() {
        let x = ndarray::array![[0.0], [1.0]];
        assert!(fit(&x, &[0, 0], 1).unwrap_err().to_string().contains("at least 2"));
        let context = FitContext::default();
        assert!(Logistic::default().fit(x.view(), &Target::Values(vec![0.0, 1.0]), &context).is_err());
        assert!(Logistic { alpha: 0.0, ..Logistic::default() }.fit(x.view(), &target(&[0, 1], 2), &context).is_err());
    }
}
