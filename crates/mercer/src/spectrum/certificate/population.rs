//! What held-out points say about the pairs under the distribution q that they come from.

use super::Larger;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::special::student_quantile;
use crate::{FitContext, Progress, Result};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s};
use std::ops::Range;

/// Estimates for one pair.
#[derive(Clone, Copy, Default)]
pub(super) struct Population {
    /// `‖D⁻¹(Kψ − μψ)‖/‖ψ‖`, 0 where the estimate of its square is negative.
    pub residual: Option<f64>,
    /// Its upper confidence bound.
    pub bound: Option<f64>,
    /// Confidence interval of the Rayleigh quotient.
    pub interval: Option<[f64; 2]>,
}

/// Points below which nothing is said.
const FEWEST: usize = 10;
/// Values used at most; the cost is their square.
const MOST: usize = 4000;
/// Groups of points at most.
const GROUPS: usize = 10;

impl Population {
    /// Estimates for functions ψ `[n, k]` on the sample of `operator`, one for each `μ` `[k]`. They use [`MOST`] values at
    /// most, drawn at random, and are none below [`FEWEST`] points.
    pub fn new(
        operator: &dyn Operator,
        ψ: ArrayView2<f64>,
        μ: &[f64],
        context: &FitContext,
    ) -> Result<Vec<Population>> {
        let c = operator.outputs();
        let points = (operator.n() / c).min((MOST / c).max(1));
        if points < FEWEST {
            return Ok(vec![Population::default(); μ.len()]);
        }
        let drawn = Rng::new(context.seed).fork(0x706f_7075).sample(operator.n() / c, points);
        let values: Vec<usize> = drawn.into_iter().flat_map(|point| point * c..(point + 1) * c).collect();
        let operator = operator.restricted(&values)?;
        let groups = Groups::new(operator.as_ref(), ψ.select(Axis(0), &values), c, context.progress)?;
        let squares = groups.squared_residuals(μ);
        let of_pair = |j: usize| {
            let [square, error] = squares[j];
            // The last term makes up for the skewness of the estimate: where it is large, the bound is that of its root.
            let width = student_quantile(0.95, groups.ranges.len() as f64 - 1.0) * error;
            let bound = square + width + width * width / (2.0 * square.max(width)).max(f64::MIN_POSITIVE);
            Population {
                residual: Some(square.max(0.0).sqrt()).filter(|r| r.is_finite()),
                bound: Some(bound.max(0.0).sqrt()).filter(|b| b.is_finite()),
                interval: groups.interval(j),
            }
        };
        Ok((0..μ.len()).map(|j| if μ[j] > 0.0 { of_pair(j) } else { Population::default() }).collect())
    }
}

/// Averages over groups of a sample, each point left out of its own average.
struct Groups {
    /// `[h, k]`
    ψ: Array2<f64>,
    /// The groups, as ranges of values.
    ranges: Vec<Range<usize>>,
    /// `Σ_y κ(x,y)ψ(y)` over the points `y ≠ x` of each group, `[h, k]`.
    sums: Vec<Array2<f64>>,
    /// C, values of a point.
    outputs: usize,
}

impl Groups {
    /// Of functions ψ `[h, k]` on the operator's sample of points with `c` values each.
    fn new(operator: &dyn Operator, ψ: Array2<f64>, c: usize, progress: &dyn Progress) -> Result<Groups> {
        let points = ψ.nrows() / c;
        let count = GROUPS.min(points / 2);
        let ranges: Vec<_> = (0..count).map(|g| g * points / count * c..(g + 1) * points / count * c).collect();
        let own = own_images(operator, &ψ, c)?;
        let sum = |(group, range): (usize, &Range<usize>)| {
            progress.step("what fresh points would show", group, count, "");
            let mut sum = operator.product(0..ψ.nrows(), range.clone(), ψ.slice(s![range.clone(), ..]))?;
            let mut inside = sum.slice_mut(s![range.clone(), ..]);
            inside -= &own.slice(s![range.clone(), ..]);
            Ok(sum)
        };
        let sums = ranges.iter().enumerate().map(sum).collect::<Result<_>>()?;
        Ok(Groups { ψ, ranges, sums, outputs: c })
    }

    /// `‖D_j⁻¹(Kψ_j − μ_jψ_j)‖²/‖ψ_j‖²` and its standard error, for each pair j.
    ///
    /// With `M_a = μ_j D_j⁻¹(K_aψ_j − μ_jψ_j)`, `K_a` the average over group a, the mean of `⟨M_a,M_b⟩` over `a ≠ b` has no
    /// noise term: the noises of two groups are independent. Its standard error is that of the jackknife which leaves out
    /// one group, as points to average over and as points to measure at.
    fn squared_residuals(&self, μ: &[f64]) -> Vec<[f64; 2]> {
        let larger = Larger::new(self.ψ.view(), μ);
        let errors: Vec<Array2<f64>> = (0..self.ranges.len()).map(|a| larger.weighted(self.error(a, μ))).collect();
        let g = errors.len() as f64;
        let total = errors.iter().fold(Array2::<f64>::zeros(self.ψ.dim()), |sum, m| sum + m);
        let squares = errors.iter().fold(Array2::<f64>::zeros(self.ψ.dim()), |sum, m| sum + m * m);
        // Σ over measured points of the sum over a ≠ b, and of ψ².
        let all = |x: &dyn Fn(usize) -> f64| (0..self.ψ.nrows()).map(x).sum::<f64>();
        let estimate = |j: usize| {
            let scale = larger.freedom(j) / (μ[j] * μ[j]);
            let pairs = all(&|x| total[[x, j]].powi(2) - squares[[x, j]]);
            let whole = scale * pairs / (g * (g - 1.0)) / all(&|x| self.ψ[[x, j]].powi(2));
            let without: Vec<f64> = (0..errors.len())
                .map(|a| {
                    let outside = |x: usize| !self.ranges[a].contains(&x);
                    let m = |x: usize| errors[a][[x, j]];
                    let pairs = all(&|x| match outside(x) {
                        true => (total[[x, j]] - m(x)).powi(2) - (squares[[x, j]] - m(x).powi(2)),
                        false => 0.0,
                    });
                    let ψψ = all(&|x| if outside(x) { self.ψ[[x, j]].powi(2) } else { 0.0 });
                    scale * pairs / ((g - 1.0) * (g - 2.0)) / ψψ
                })
                .collect();
            [whole, jackknife(&without)]
        };
        (0..μ.len()).map(|j| if μ[j] > 0.0 { estimate(j) } else { [0.0; 2] }).collect()
    }

    /// `K_aψ − μψ` `[h, k]` for group a.
    fn error(&self, a: usize, μ: &[f64]) -> Array2<f64> {
        let mut error = self.sums[a].clone();
        for (x, mut row) in error.axis_iter_mut(Axis(0)).enumerate() {
            let others = self.ranges[a].len() - if self.ranges[a].contains(&x) { self.outputs } else { 0 };
            row.indexed_iter_mut().for_each(|(j, v)| *v = *v / others as f64 - μ[j] * self.ψ[[x, j]]);
        }
        error
    }

    /// 95 % interval of `ρ = ⟨ψ,Kψ⟩/⟨ψ,ψ⟩`, by the jackknife of `log ρ` over points: it is never inverted, and it follows the
    /// skewness of ρ. With too few points for `ρ > 0`, it begins at zero.
    fn interval(&self, j: usize) -> Option<[f64; 2]> {
        let (c, ψ) = (self.outputs, self.ψ.column(j));
        let h = ψ.len();
        let image = self.sums.iter().fold(Array1::<f64>::zeros(h), |sum, s| sum + s.column(j));
        let (products, squares) = (&ψ * &image, &ψ * &ψ);
        let (form, square) = (products.sum(), squares.sum());
        // `h (h−C) ⟨ψ,Kψ⟩` and `h ⟨ψ,ψ⟩`, with and without one point.
        let quotient = |form: f64, square: f64, h: usize| form / (square * (h - c) as f64);
        let of_point = |v: &ArrayView1<f64>, i: usize| v.slice(s![i * c..(i + 1) * c]).sum();
        let without: Vec<f64> = (0..h / c)
            .map(|i| {
                let (form_i, square_i) = (of_point(&products.view(), i), of_point(&squares.view(), i));
                quotient(form - 2.0 * form_i, square - square_i, h - c)
            })
            .collect();
        let (ρ, t) = (quotient(form, square, h), student_quantile(0.975, (h / c) as f64 - 1.0));
        let interval = if ρ > 0.0 && without.iter().all(|ρ| *ρ > 0.0) {
            let width = t * jackknife(&without.iter().map(|ρ| ρ.ln()).collect::<Vec<_>>());
            [ρ * (-width).exp(), ρ * width.exp()]
        } else {
            [0.0, ρ.max(0.0) + t * jackknife(&without)]
        };
        interval.iter().all(|end| end.is_finite()).then_some(interval)
    }
}

/// The standard error of an estimate from its values without each of m parts.
fn jackknife(without: &[f64]) -> f64 {
    let m = without.len() as f64;
    let mean = without.iter().sum::<f64>() / m;
    ((m - 1.0) / m * without.iter().map(|v| (v - mean).powi(2)).sum::<f64>()).sqrt()
}

/// `K[x,x] ψ(x)` `[h, k]` of every point x by itself, over its `c` outputs.
fn own_images(operator: &dyn Operator, ψ: &Array2<f64>, c: usize) -> Result<Array2<f64>> {
    const POINTS: usize = 8;
    if c == 1 {
        return Ok(ψ * &operator.diagonal()?.insert_axis(Axis(1)));
    }
    let mut own = Array2::zeros(ψ.dim());
    for start in (0..ψ.nrows()).step_by(POINTS * c) {
        let values: Vec<usize> = (start..ψ.nrows().min(start + POINTS * c)).collect();
        let k = operator.block(&values, &values)?;
        for point in (0..values.len()).step_by(c) {
            let (here, there) = (s![point..point + c, point..point + c], s![start + point..start + point + c, ..]);
            own.slice_mut(there).assign(&k.slice(here).dot(&ψ.slice(there)));
        }
    }
    Ok(own)
}
