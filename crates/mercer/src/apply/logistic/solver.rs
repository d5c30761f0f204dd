//! Multinomial logistic regression by Newton's method, each step by preconditioned conjugate gradients: products with the features
//! are all that it needs.

use crate::apply::alpha::{best, cross_validate_paths, grid, risen_twice};
use crate::apply::logistic::design::Design;
use crate::apply::logistic::preconditioner::Preconditioner;
use crate::apply::probabilities::softmax;
use crate::apply::{Alpha, Tried};
use crate::data::Target;
use crate::{Error, FitContext, KeepsBest, Result, fail_if};
use ndarray::{Array2, ArrayView1};
use rayon::prelude::*;

/// The mean loss of the result is within this of the least.
pub(crate) const TOLERANCE: f64 = 1e-10;

/// Where α is chosen, to a decade, less is enough.
const ROUGH: f64 = 1e-5;

/// Newton steps at most.
pub(crate) const STEPS: usize = 100;

/// Products at most for one Newton step.
const PRODUCTS: usize = 500;

/// Products in a Newton step above which the next has a new preconditioner.
const WORN: usize = 12;

/// Points above which the first fold alone is looked at.
const MANY: usize = 2000;

/// Rows whose losses are summed by one thread.
const BLOCK: usize = 4096;

/// `L(V) = −Σ_i w_i log p_{y_i}(z_i) + (α/2)‖V‖²`, `p_c(z) ∝ exp(zV)_c`, for V `[1+p, C]`. It is strictly convex, and the columns of its
/// minimiser add up to zero, as do those of every iterate.
#[derive(Clone, Copy)]
pub(crate) struct LogisticHead<'a> {
    pub design: &'a Design<'a>,
    /// y `[n]`
    pub labels: &'a [usize],
    /// C
    pub classes: usize,
    /// w `[n]`, not below zero.
    pub weights: &'a [f64],
    pub context: &'a FitContext<'a>,
}

/// Weights, and how they were found.
pub(crate) struct Found {
    /// V `[1+p, C]`
    pub v: Array2<f64>,
    /// Norm of the gradient there.
    pub gradient: f64,
    /// Newton steps that were made.
    pub steps: usize,
    /// Why it ended before the tolerance was reached, where it did.
    pub note: Option<String>,
    /// `ZV` `[n, C]`
    scores: Array2<f64>,
}

/// L at some weights.
struct At {
    /// `ZV` `[n, C]`
    scores: Array2<f64>,
    /// `[n, C]`
    p: Array2<f64>,
    value: f64,
    /// `[1+p, C]`
    gradient: Array2<f64>,
}

/// A Newton step, whole or cut off.
struct Direction {
    /// `d ≈ −H⁻¹g` `[1+p, C]`
    d: Array2<f64>,
    /// `Zd` `[n, C]`
    along: Array2<f64>,
    /// `−g·d ≈ gᵀH⁻¹g`, twice as much as L can fall.
    slope: f64,
    /// Products that it took.
    products: usize,
}

/// What was tried from large α to small, the least log loss and its weights V `[1+p, C]`.
struct AlphaPath {
    tried: Vec<Tried>,
    least: f64,
    v: Array2<f64>,
}

/// The class of each row; numbers and too few classes are refused.
pub(crate) fn labels(y: &Target) -> Result<&[usize]> {
    match y {
        Target::Classes { labels, names } if names.len() >= 2 => Ok(labels),
        Target::Classes { names, .. } => {
            Err(Error::input(format!("logistic regression needs at least 2 classes, got {}", names.len())))
        }
        Target::Values(_) => Err(Error::input("logistic regression needs classes as its target, not numbers")),
    }
}

/// What cross-validation found.
struct CrossValidated<'a> {
    /// How many rows the sample has.
    rows: usize,
    tried: Vec<Tried>,
    /// The weights of the least loss.
    v: Array2<f64>,
    /// That an interrupt does not lose them.
    keeps: Option<KeepsBest<'a>>,
}

impl LogisticHead<'_> {
    /// α, given or with the least log loss on left-out rows; what was tried; and the weights.
    pub fn solve(&self, alpha: Alpha) -> Result<(f64, Vec<Tried>, Found)> {
        let (mut start, mut _keeps) = (self.zero(), None);
        let (alpha, tried) = match alpha {
            Alpha::Fixed(alpha) => {
                fail_if!(alpha == 0.0, "logistic regression needs an α above 0, so that its weights are finite");
                (alpha, vec![])
            }
            Alpha::LeaveOneOut => {
                return Err(Error::input(
                    "logistic regression has no leave-one-out error in closed form; choose α by cross-validation",
                ));
            }
            Alpha::CrossValidation { folds } => {
                let CrossValidated { rows, tried, v, keeps } = self.cross_validate(folds)?;
                _keeps = keeps;
                // Weights of a few rows are too large for many, and Newton's method would take more steps from there than from zero.
                if rows == self.labels.len() || self.context.interrupted() {
                    start = v;
                }
                best(tried)?
            }
        };
        let found = self.minimise(alpha, start, TOLERANCE, STEPS)?;
        Ok((alpha, tried, found))
    }

    /// The log loss of each α on left-out rows of a sample.
    fn cross_validate(&self, folds: usize) -> Result<CrossValidated<'_>> {
        let rows = self.design.sample(self.context.seed);
        let design = self.design.select(&rows)?;
        let labels: Vec<usize> = rows.iter().map(|&i| self.labels[i]).collect();
        let weights: Vec<f64> = rows.iter().map(|&i| self.weights[i]).collect();
        let sample = LogisticHead { design: &design, labels: &labels, weights: &weights, ..*self };
        let (mut least, mut start) = (f64::INFINITY, self.zero());
        let looked_at = if rows.len() > MANY { 1 } else { folds };
        let mut keeps = None;
        let (tried, _) = cross_validate_paths(rows.len(), (folds, looked_at), self.context, |context, _, out| {
            let path = LogisticHead { context, ..sample }.path(out)?;
            keeps.get_or_insert_with(|| self.context.keeps_best());
            if path.least < least {
                (least, start) = (path.least, path.v);
            }
            Ok((path.tried, context.interrupted()))
        })?;
        Ok(CrossValidated { rows: rows.len(), tried, v: start, keeps })
    }

    /// The log loss of the rows `out` when the others are fitted, from large α to small, each solution the start of the next, until the
    /// loss has risen twice in a row.
    fn path(&self, out: &[usize]) -> Result<AlphaPath> {
        // Rows of weight zero are left out.
        let mut weights = self.weights.to_vec();
        out.iter().for_each(|&i| weights[i] = 0.0);
        let total: f64 = out.iter().map(|&i| self.weights[i]).sum();
        let mut path = AlphaPath { tried: vec![], least: f64::INFINITY, v: self.zero() };
        let (mut v, mut keeps) = (self.zero(), None);
        // Whole decades: the log loss changes little from one to the next.
        let grid: Vec<f64> = grid(self.design.size).into_iter().rev().step_by(2).collect();
        for (i, &alpha) in grid.iter().enumerate() {
            let stage = self.context.stage("α", i + 1, grid.len());
            let context = FitContext { progress: &stage, ..*self.context };
            let found =
                LogisticHead { weights: &weights, context: &context, ..*self }.minimise(alpha, v, ROUGH, STEPS)?;
            if self.context.interrupted() && !path.tried.is_empty() {
                break;
            }
            let error =
                out.iter().map(|&i| self.weights[i] * row_loss(found.scores.row(i), self.labels[i])).sum::<f64>()
                    / total;
            path.tried.push(Tried { value: alpha, error });
            keeps.get_or_insert_with(|| self.context.keeps_best());
            if error < path.least {
                (path.least, path.v) = (error, found.v.clone());
            }
            v = found.v;
            if risen_twice(&path.tried) || self.context.interrupted() {
                break;
            }
        }
        Ok(path)
    }

    fn zero(&self) -> Array2<f64> {
        Array2::zeros((self.design.width(), self.classes))
    }

    /// The V that minimises L, from a start whose columns add up to zero. It ends when the mean loss is within `tolerance` of the least, by
    /// Newton's decrement `½gᵀH⁻¹g`, or when rounding hides any decrease.
    pub fn minimise(&self, alpha: f64, start: Array2<f64>, tolerance: f64, limit: usize) -> Result<Found> {
        let mut v = start;
        let mut at = self.at(alpha, &v)?;
        let (sample, total) = (self.design.sample(self.context.seed), self.weights.iter().sum::<f64>());
        let (mut steps, first, mut converged) = (0, norm(&at.gradient), norm(&at.gradient) == 0.0);
        let (mut preconditioner, mut keeps) = (None, None);
        while !converged && steps < limit && !self.context.interrupted() {
            let by = match preconditioner.take() {
                Some(by) => by,
                None => Preconditioner::new(self.design, &sample, &at.p, self.weights, alpha)?,
            };
            let direction = self.newton(alpha, &at, &by, (norm(&at.gradient) / first).sqrt().min(0.1))?;
            preconditioner = (direction.products <= WORN).then_some(by);
            let gap = 0.5 * direction.slope / total;
            let Some(t) = self.descend(alpha, &v, &at, &direction) else {
                converged = true;
                break;
            };
            v.scaled_add(t, &direction.d);
            at = self.at(alpha, &v)?;
            steps += 1;
            keeps.get_or_insert_with(|| self.context.keeps_best());
            converged = gap <= tolerance && !self.context.interrupted();
            self.context.progress.step("logistic regression", steps, limit, &format!("loss within {gap:.1e}"));
        }
        let why = if self.context.interrupted() { "was interrupted" } else { "stopped" };
        let s = if steps == 1 { "" } else { "s" };
        let note = (!converged).then(|| {
            format!(
                "logistic regression {why} after {steps} Newton step{s}, before it had converged; the best weights so far are used"
            )
        });
        Ok(Found { gradient: norm(&at.gradient), v, steps, note, scores: at.scores })
    }

    /// L and `∂L/∂V = Zᵀ diag(w)(P − Y) + αV`, Y one in the place of each row's class.
    fn at(&self, alpha: f64, v: &Array2<f64>) -> Result<At> {
        let mut scores = Array2::zeros((self.labels.len(), self.classes));
        let gradient = self.design.pass(v, &mut scores, &|i, score, t| {
            t.copy_from_slice(score);
            softmax(t);
            t[self.labels[i]] -= 1.0;
            t.iter_mut().for_each(|t| *t *= self.weights[i]);
        })?;
        let mut p = scores.clone();
        p.as_slice_mut().expect("rows lie in order").par_chunks_mut(self.classes).for_each(|row| {
            softmax(row);
        });
        let value = self.loss(&scores, None) + 0.5 * alpha * dot(v, v);
        Ok(At { value, gradient: gradient + v * alpha, scores, p })
    }

    /// `Σ_i w_i (log Σ_c exp f_ic − f_{i,y_i})` of the scores f `[n, C]`, or of `f + t·along`.
    fn loss(&self, scores: &Array2<f64>, step: Option<(f64, &Array2<f64>)>) -> f64 {
        let (n, labels, weights) = (self.labels.len(), self.labels, self.weights);
        let block = |start: usize| {
            let row = |i: usize| {
                weights[i]
                    * match step {
                        None => row_loss(scores.row(i), labels[i]),
                        Some((t, along)) => row_loss((&scores.row(i) + &(&along.row(i) * t)).view(), labels[i]),
                    }
            };
            (start..n.min(start + BLOCK)).map(row).sum::<f64>()
        };
        let starts: Vec<usize> = (0..n).step_by(BLOCK).collect();
        starts.into_par_iter().map(block).collect::<Vec<f64>>().iter().sum()
    }

    /// `Hd` `[1+p, C]`, `H = Zᵀ diag(w)(diag(p) − ppᵀ)Z + α`, with `Zd` in `along` `[n, C]`.
    fn curvature(&self, alpha: f64, p: &Array2<f64>, d: &Array2<f64>, along: &mut Array2<f64>) -> Result<Array2<f64>> {
        let h = self.design.pass(d, along, &|i, s, t| {
            let p = p.row(i);
            let mean: f64 = p.iter().zip(s).map(|(p, s)| p * s).sum();
            t.iter_mut().zip(&p).zip(s).for_each(|((t, p), s)| *t = self.weights[i] * p * (s - mean));
        })?;
        Ok(h + d * alpha)
    }

    /// `H d = −g` by conjugate gradients, to the relative residual `tolerance` in the norm of the preconditioner.
    fn newton(&self, alpha: f64, at: &At, by: &Preconditioner, tolerance: f64) -> Result<Direction> {
        let mut r = -&at.gradient;
        let (mut d, mut along) = (Array2::zeros(r.dim()), Array2::zeros(at.p.dim()));
        let (mut of_q, mut products) = (Array2::zeros(at.p.dim()), 0);
        let mut q = by.solve(&r)?;
        let mut rz = dot(&r, &q);
        let goal = tolerance * tolerance * rz;
        while products < PRODUCTS {
            let hq = self.curvature(alpha, &at.p, &q, &mut of_q)?;
            products += 1;
            let curvature = dot(&q, &hq);
            if !(rz > 0.0 && curvature > 0.0) {
                break;
            }
            let step = rz / curvature;
            d.scaled_add(step, &q);
            along.scaled_add(step, &of_q);
            r.scaled_add(-step, &hq);
            let z = by.solve(&r)?;
            let next = dot(&r, &z);
            if next <= goal || self.context.interrupted() {
                break;
            }
            // q ← z + q (r·z)/(r·z before)
            q = z + q * (next / rz);
            rz = next;
        }
        let slope = -dot(&at.gradient, &d);
        Ok(Direction { d, along, slope, products })
    }

    /// The first of `t = 1, ½, ¼, …` for which `V + td` lowers L by a share of what its slope predicts; none where rounding hides any
    /// decrease. `Z(V + td)` is known, so this takes no pass over the features.
    fn descend(&self, alpha: f64, v: &Array2<f64>, at: &At, direction: &Direction) -> Option<f64> {
        let Direction { d, along, slope, .. } = direction;
        let (vv, vd, dd) = (dot(v, v), dot(v, d), dot(d, d));
        (0..40).map(|i| 0.5f64.powi(i)).find(|&t| {
            let value = self.loss(&at.scores, Some((t, along))) + 0.5 * alpha * (vv + 2.0 * t * vd + t * t * dd);
            value < at.value - 1e-4 * t * slope
        })
    }
}

/// `log Σ_c exp f_c − f_y` of the scores f `[C]` of a row of class y.
fn row_loss(f: ArrayView1<f64>, y: usize) -> f64 {
    let largest = f.fold(f64::MIN, |m, f| m.max(*f));
    largest + f.iter().map(|f| (f - largest).exp()).sum::<f64>().ln() - f[y]
}

fn dot(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &Array2<f64>) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interrupt;
    use crate::apply::logistic::design::{Constant, Features};
    use crate::operator::Budget;
    use crate::rng::Rng;
    use ndarray::Axis;

    const N: usize = 70;

    /// Features far from their mean, and their classes and weights.
    fn rows() -> (Array2<f64>, Vec<usize>, Vec<f64>) {
        let mut rng = Rng::new(4);
        let phi = Array2::from_shape_fn((N, 4), |(i, j)| 30.0 + rng.normal() + (i % 3 * j) as f64 * 0.4);
        (phi, (0..N).map(|i| i % 3).collect(), (0..N).map(|i| 0.5 + (i % 5) as f64).collect())
    }

    /// Runs `check` on the problem of these rows.
    fn with_head<T>(context: &FitContext, check: impl FnOnce(&LogisticHead) -> T) -> T {
        let (phi, labels, weights) = rows();
        let features = |rows: &[usize]| Ok(phi.select(Axis(0), rows));
        let design = Design::new(Features::Rows(&features), (4, 3), &weights, Constant::LikeFeatures, context).unwrap();
        check(&LogisticHead { design: &design, labels: &labels, classes: 3, weights: &weights, context })
    }

    fn drawn(seed: u64) -> Array2<f64> {
        let mut rng = Rng::new(seed);
        Array2::from_shape_simple_fn((5, 3), || 0.1 * rng.normal())
    }

    #[test]
    fn derivatives_are_those_of_the_loss() {
        with_head(&FitContext::default(), |head| {
            let (v, d, alpha, h) = (drawn(1), drawn(2), 0.7, 1e-5);
            let at = head.at(alpha, &v).unwrap();
            let [up, down] = [h, -h].map(|h| head.at(alpha, &(&v + &(&d * h))).unwrap());
            let along = (up.value - down.value) / (2.0 * h);
            assert!((along - dot(&at.gradient, &d)).abs() < 1e-7 * along.abs(), "{along}");
            let change = (up.gradient - down.gradient) / (2.0 * h);
            let mut of_d = Array2::zeros((N, 3));
            let product = head.curvature(alpha, &at.p, &d, &mut of_d).unwrap();
            assert!(norm(&(&product - &change)) < 1e-7 * norm(&change));
            // A step along d is known without a pass over the features.
            let moved =
                head.loss(&at.scores, Some((h, &of_d))) + 0.5 * alpha * dot(&(&v + &(&d * h)), &(&v + &(&d * h)));
            assert!((moved - up.value).abs() < 1e-12 * moved);
        });
    }

    #[test]
    fn coordinates_are_those_of_weights_and_offset() {
        with_head(&FitContext::default(), |head| {
            let (phi, _, weights) = rows();
            let v = drawn(3);
            let (w, b) = head.design.weights(&v);
            let at = head.at(1.0, &v).unwrap();
            assert!(norm(&(phi.dot(&w) + &b - &at.scores)) < 1e-11);
            // The weighted mean of the features is zero there, and their mean square that of the constant.
            let z = head.design.rows(&(0..N).collect::<Vec<_>>()).unwrap();
            assert!(norm(&(z.dot(&v) - &at.scores)) < 1e-11);
            let w = ndarray::aview1(&weights);
            let means = z.t().dot(&w) / w.sum();
            assert!(means.iter().skip(1).all(|m| m.abs() < 1e-12));
            let squares = z.mapv(|z| z * z).t().dot(&w) / w.sum();
            assert!((squares[0] - squares.iter().skip(1).sum::<f64>()).abs() < 1e-10);
        });
    }

    /// Without room for the features they are computed again in every pass, with the same result.
    #[test]
    fn features_need_not_be_stored() {
        let all = FitContext::default();
        let want = with_head(&all, |head| head.minimise(0.1, head.zero(), 1e-12, STEPS).unwrap().v);
        // The sample twice, six matrices of scores, sums, and blocks.
        let least = 8 * (2 * N as u64 * 4 + 6 * N as u64 * 3 + 24 * 4 * 3 + 6 * 25);
        let small = FitContext { budget: Budget::of(least), ..all };
        let found = with_head(&small, |head| head.minimise(0.1, head.zero(), 1e-12, STEPS).unwrap().v);
        assert!(norm(&(found - &want)) < 1e-9 * norm(&want));
        let none = FitContext { budget: Budget::of(least - 1), ..all };
        let (phi, ..) = rows();
        let features = |rows: &[usize]| Ok(phi.select(Axis(0), rows));
        let refused = Design::new(Features::Rows(&features), (4, 3), &[1.0; N], Constant::One, &none);
        assert!(refused.err().unwrap().to_string().contains("logistic regression of 70 points on 4 features"));
    }

    #[test]
    fn the_minimiser_has_no_gradient_and_an_interrupted_one_is_kept_with_a_note() {
        with_head(&FitContext::default(), |head| {
            let found = head.minimise(0.1, head.zero(), 1e-14, STEPS).unwrap();
            assert!(found.note.is_none() && found.gradient < 1e-6 && found.steps < 20, "{}", found.gradient);
            assert!(found.v.sum_axis(Axis(1)).iter().all(|sum| sum.abs() < 1e-9));
            let short = head.minimise(0.1, head.zero(), 1e-14, 1).unwrap();
            assert!(short.note.unwrap().contains("stopped after 1 Newton step,"));
        });
        let stop = Interrupt::new();
        stop.request();
        with_head(&FitContext { interrupt: Some(&stop), ..FitContext::default() }, |head| {
            let start = drawn(5);
            let found = head.minimise(0.1, start.clone(), 1e-14, STEPS).unwrap();
            assert_eq!(found.v, start);
            assert!(found.note.unwrap().contains("was interrupted after 0 Newton steps"));
            // The choice of α ends with what was tried.
            let (alpha, tried, found) = head.solve(Alpha::CrossValidation { folds: 3 }).unwrap();
            assert!(tried.len() == 1 && tried[0].value == alpha && found.note.is_some());
        });
    }

    #[test]
    fn the_error_of_an_alpha_is_the_log_loss_of_rows_that_were_left_out() {
        with_head(&FitContext::default(), |head| {
            let out: Vec<usize> = (0..N).step_by(4).collect();
            let AlphaPath { tried, least, .. } = head.path(&out).unwrap();
            let Tried { value, error } = tried[tried.len() / 2];
            // The others alone, solved to more digits.
            let mut weights = head.weights.to_vec();
            out.iter().for_each(|&i| weights[i] = 0.0);
            let rest = LogisticHead { weights: &weights, ..*head };
            let v = rest.minimise(value, head.zero(), 1e-13, STEPS).unwrap().v;
            let p = rest.at(value, &v).unwrap().p;
            let total: f64 = out.iter().map(|&i| head.weights[i]).sum();
            let want = -out.iter().map(|&i| head.weights[i] * p[[i, head.labels[i]]].ln()).sum::<f64>() / total;
            assert!((error - want).abs() < 1e-3 * want, "{error} {want}");
            assert!(tried.iter().all(|t| t.error >= least) && tried.len() > 5);
        });
    }
}
