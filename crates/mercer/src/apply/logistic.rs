//! Multinomial logistic regression on a few features, by Newton's method.

use super::probabilities::{softmax, softmax_rows};
use super::reference::check_new;
use super::targets::Encoding;
use super::traits::{fields, saved};
use super::{Fit, Predict, check_points};
use crate::compute::Device;
use crate::data::Target;
use crate::linalg::{Cholesky, matmul};
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;
use std::time::Instant;

/// Classes by `p_c(x) ∝ exp(z·w_c)`, `z = (1, x)` with every column of x brought to mean 0 and variance 1. The weights `W`
/// `[1+k, C]`, the intercepts among them, minimise
///
/// `L(W) = −(1/n) Σ_i log p_{y_i}(x_i) + (α/2)‖W‖²`
///
/// which is strictly convex: there is one answer, and it depends on no seed. A step solves a system of order `(1+k)C`, so
/// this is for few features, such as the values of k eigenfunctions. It runs on the CPU in double precision.
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
    /// The iteration ends when the gradient's norm is below this, or cannot fall any further.
    pub tolerance: f64,
    /// Newton steps at most.
    pub steps: usize,
}

/// `α = 1e-5` and a gradient of `1e-8` in at most 100 steps.
impl Default for Logistic {
    fn default() -> Self {
        Logistic { alpha: 1e-5, tolerance: 1e-8, steps: 100 }
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
        let (encoding, _) = Encoding::encode(y, x.nrows(), 0.0, 1.0)?;
        let labels = self.check(y)?;
        let mean = x.mean_axis(Axis(0)).expect("there are rows");
        let scale = x.std_axis(Axis(0), 0.0).mapv(|s| if s > 0.0 { s } else { 1.0 });
        let loss = Loss { z: design(x, &mean, &scale), labels, alpha: self.alpha };
        let mut w = Array2::zeros((x.ncols() + 1, encoding.width()));
        let (mut value, mut p) = loss.at(&w);
        let mut g = loss.gradient(&w, &p);
        let mut steps = 0;
        while norm(&g) > self.tolerance && steps < self.steps {
            let direction = loss.newton(&g, &p)?;
            let Some((next, lower, at)) = loss.descend(&w, value, &g, &direction) else { break };
            (w, value, p) = (next, lower, at);
            g = loss.gradient(&w, &p);
            steps += 1;
        }
        let origin = Origin::new("logistic", "", x.dim(), context, start);
        Ok(FittedLogistic { gradient: norm(&g), weights: w, steps, origin, encoding, mean, scale })
    }
}

impl Logistic {
    /// The class of each row; numbers and too few classes are refused.
    fn check<'a>(&self, y: &'a Target) -> Result<&'a [usize]> {
        fail_if!(!(self.alpha > 0.0 && self.alpha.is_finite()), "the ridge α must be above 0, got {}", self.alpha);
        match y {
            Target::Classes { labels, names } if names.len() >= 2 => Ok(labels),
            Target::Classes { names, .. } => {
                Err(Error::input(format!("logistic regression needs at least 2 classes, got {}", names.len())))
            }
            Target::Values(_) => Err(Error::input("logistic regression needs classes as its target, not numbers")),
        }
    }
}

impl Predict for FittedLogistic {
    fields! { origin: Origin = origin; }

    /// `p_c(x)` `[n, C]`
    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.origin.d)?;
        Ok(softmax_rows(matmul(design(x, &self.mean, &self.scale).view(), self.weights.view())))
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
    mean: Array1<f64> = vector("mean", origin.d);
    scale: Array1<f64> = vector("scale", origin.d, all_above_zero);
}

/// Refuses scales that cannot divide.
fn all_above_zero(scale: Array1<f64>) -> Result<Array1<f64>> {
    fail_if!(scale.iter().any(|s| *s <= 0.0), "the model's 'scale' must be above 0 everywhere");
    Ok(scale)
}

/// `Z = (1, (X − mean)/scale)` `[n, 1+k]`.
fn design(x: ArrayView2<f64>, mean: &Array1<f64>, scale: &Array1<f64>) -> Array2<f64> {
    let standard = (&x - mean) / scale;
    concatenate(Axis(1), &[Array2::ones((x.nrows(), 1)).view(), standard.view()]).expect("as many rows")
}

fn norm(a: &Array2<f64>) -> f64 {
    a.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// L at data `Z` `[n, 1+k]`.
struct Loss<'a> {
    z: Array2<f64>,
    labels: &'a [usize],
    alpha: f64,
}

impl Loss<'_> {
    /// `L(W)` and the probabilities `P` `[n, C]`.
    fn at(&self, w: &Array2<f64>) -> (f64, Array2<f64>) {
        let mut p = matmul(self.z.view(), w.view());
        let rows = p.rows_mut().into_iter().zip(self.labels);
        let loss: f64 = rows
            .map(|(mut row, &label)| {
                let score = row[label];
                softmax(row.as_slice_mut().expect("rows lie in order")) - score
            })
            .sum();
        (loss / self.labels.len() as f64 + 0.5 * self.alpha * norm(w).powi(2), p)
    }

    /// `∂L/∂W = Zᵀ(P − Y)/n + αW`, Y one in the place of each row's class.
    fn gradient(&self, w: &Array2<f64>, p: &Array2<f64>) -> Array2<f64> {
        let mut error = p.clone();
        self.labels.iter().enumerate().for_each(|(i, &label)| error[[i, label]] -= 1.0);
        matmul(self.z.t(), error.view()) / self.labels.len() as f64 + w * self.alpha
    }

    /// `H⁻¹g`, where the block of H for classes a, b is `Zᵀ diag(p_a (δ_ab − p_b)) Z/n + α δ_ab I`.
    fn newton(&self, g: &Array2<f64>, p: &Array2<f64>) -> Result<Array2<f64>> {
        let (d, c) = g.dim();
        let pairs: Vec<(usize, usize)> = (0..c).flat_map(|a| (0..=a).map(move |b| (a, b))).collect();
        let block = |&(a, b): &(usize, usize)| {
            let own = f64::from(u8::from(a == b));
            let weight = &p.column(a) * &p.column(b).mapv(|q| own - q);
            self.z.t().dot(&(&self.z * &weight.insert_axis(Axis(1)))) / self.labels.len() as f64
        };
        let blocks: Vec<Array2<f64>> = pairs.par_iter().map(block).collect();
        let mut h = Array2::eye(c * d) * self.alpha;
        for (&(a, b), block) in pairs.iter().zip(&blocks) {
            let mut place = h.slice_mut(s![a * d..(a + 1) * d, b * d..(b + 1) * d]);
            place += block;
        }
        let g = Array2::from_shape_fn((c * d, 1), |(i, _)| g[[i % d, i / d]]);
        let step = Cholesky::new(Device::Cpu, h.view())?.solve(g.view())?;
        Ok(Array2::from_shape_fn((d, c), |(j, a)| step[[a * d + j, 0]]))
    }

    /// The first of `W − t·direction`, `t = 1, ½, ¼, …`, that lowers L by a share of what its slope predicts; none where
    /// rounding hides any decrease.
    fn descend(
        &self,
        w: &Array2<f64>,
        value: f64,
        g: &Array2<f64>,
        direction: &Array2<f64>,
    ) -> Option<(Array2<f64>, f64, Array2<f64>)> {
        let slope: f64 = g.iter().zip(direction).map(|(a, b)| a * b).sum();
        (0..40).map(|i| 0.5f64.powi(i)).find_map(|t| {
            let next = w - &(direction * t);
            let (lower, p) = self.at(&next);
            (lower < value - 1e-4 * t * slope).then_some((next, lower, p))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn derivatives_are_those_of_the_loss() {
        let (x, labels) = clouds(60);
        let one = (Array1::zeros(2), Array1::ones(2));
        let loss = Loss { z: design(x.view(), &one.0, &one.1), labels: &labels, alpha: 0.01 };
        let mut rng = Rng::new(1);
        let mut draw = || Array2::from_shape_simple_fn((3, 3), || 0.1 * rng.normal());
        let (w, v) = (draw(), draw());
        let (_, p) = loss.at(&w);
        let g = loss.gradient(&w, &p);
        let h = 1e-5;
        let [up, down] = [h, -h].map(|h| &w + &(&v * h));
        let along = (loss.at(&up).0 - loss.at(&down).0) / (2.0 * h);
        assert!((along - (&g * &v).sum()).abs() < 1e-8, "{along}");
        // H⁻¹ of the gradient's change along v is v again.
        let change = (loss.gradient(&up, &loss.at(&up).1) - loss.gradient(&down, &loss.at(&down).1)) / (2.0 * h);
        let back = loss.newton(&change, &p).unwrap();
        assert!(norm(&(back - &v)) < 1e-6 * norm(&v));
    }

    #[test]
    fn the_optimum_has_no_gradient_and_no_better_neighbour() {
        let (x, labels) = clouds(600);
        let found = fit(&x, &labels, 3).unwrap();
        assert!(found.gradient < 1e-8 && found.steps < 20, "{found:?}");
        // Without a penalty to speak of, predicted and true frequencies of a class agree.
        let p = found.scores(x.view()).unwrap();
        assert!(p.rows().into_iter().all(|row| (row.sum() - 1.0).abs() < 1e-12));
        for c in 0..3 {
            assert!((p.column(c).mean().unwrap() - 1.0 / 3.0).abs() < 1e-4);
        }
        let loss = Loss { z: design(x.view(), &found.mean, &found.scale), labels: &labels, alpha: 1e-5 };
        let least = loss.at(&found.weights).0;
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            let near = &found.weights + &Array2::from_shape_simple_fn((3, 3), || 0.01 * rng.normal());
            assert!(loss.at(&near).0 > least);
        }
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
