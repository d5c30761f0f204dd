//! Confidence intervals of eigenvalues and residuals: what held-out points say about the pairs under the distribution q that they come from.

use super::Larger;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::special::student_quantile;
use crate::{FitContext, Progress, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, aview1, s};
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
        let bounds = groups.bounds(&squares);
        let of_pair = |j: usize| Population {
            residual: Some(squares[j].value.max(0.0).sqrt()).filter(|r| r.is_finite()),
            bound: bounds[j],
            interval: groups.interval(j),
        };
        Ok((0..μ.len()).map(|j| if μ[j] > 0.0 { of_pair(j) } else { Population::default() }).collect())
    }
}

/// Averages over groups of a sample.
struct Groups {
    /// `[h, k]`
    ψ: Array2<f64>,
    /// The groups, as ranges of values.
    ranges: Vec<Range<usize>>,
    /// `Σ_y κ(x,y)ψ(y)` over the points y of each group, `[h, k]`.
    sums: Vec<Array2<f64>>,
    /// `K[x,x]ψ(x)` of every point x by itself, `[h, k]`.
    own: Array2<f64>,
    /// C, values of a point.
    outputs: usize,
}

/// An estimate and its standard error.
struct Measured {
    value: f64,
    error: f64,
}

/// One half of the groups, on whose points functions are measured that were averaged over the groups of the other half.
struct Half {
    /// Its groups.
    measured: Range<usize>,
    /// The groups of the other half.
    averaged: Range<usize>,
    /// `√f D_j⁻¹(K_aψ_j − μ_jψ_j)` at its points for each group a of the other half, `[m, k]`; `f` makes up for the directions taken off.
    errors: Vec<Array2<f64>>,
}

impl Groups {
    /// Of functions ψ `[h, k]` on the operator's sample of points with `c` values each.
    fn new(operator: &dyn Operator, ψ: Array2<f64>, c: usize, progress: &dyn Progress) -> Result<Groups> {
        let points = ψ.nrows() / c;
        let count = GROUPS.min(points);
        let ranges: Vec<_> = (0..count).map(|g| g * points / count * c..(g + 1) * points / count * c).collect();
        let own = own_images(operator, &ψ, c)?;
        let sum = |(group, range): (usize, &Range<usize>)| {
            progress.step("what fresh points would show", group, count, "");
            operator.product(0..ψ.nrows(), range.clone(), ψ.slice(s![range.clone(), ..]))
        };
        let sums = ranges.iter().enumerate().map(sum).collect::<Result<_>>()?;
        Ok(Groups { ψ, ranges, sums, own, outputs: c })
    }

    /// The values of some groups that follow one another.
    fn values(&self, groups: &Range<usize>) -> Range<usize> {
        self.ranges[groups.start].start..self.ranges[groups.end - 1].end
    }

    /// Functions averaged over some groups and measured at the points of the others. Points that served for both would bias the
    /// residual downwards: the directions that the weight takes off would contain the noise of the averages.
    fn half(&self, measured: Range<usize>, averaged: Range<usize>, μ: &[f64]) -> Half {
        let rows = self.values(&measured);
        let ψ = self.ψ.slice(s![rows.clone(), ..]);
        let larger = Larger::new(ψ, μ);
        let scale = Array1::from_iter((0..μ.len()).map(|j| larger.freedom(j).sqrt() / μ[j]));
        let error = |a: usize| {
            let image = &self.sums[a].slice(s![rows.clone(), ..]) / self.ranges[a].len() as f64;
            larger.weighted(image - &ψ * &aview1(μ)) * &scale
        };
        Half { errors: averaged.clone().map(error).collect(), measured, averaged }
    }

    /// `‖D_j⁻¹(Kψ_j − μ_jψ_j)‖²/‖ψ_j‖²` for each pair j.
    ///
    /// With `M_a = D_j⁻¹(K_aψ_j − μ_jψ_j)`, `K_a` the average over group a, the mean of `⟨M_a,M_b⟩` over `a ≠ b` has no
    /// noise term: the noises of two groups are independent. Its standard error is that of the jackknife which leaves out
    /// one group, as points to average over and as points to measure at.
    fn squared_residuals(&self, μ: &[f64]) -> Vec<Measured> {
        let (g, middle) = (self.ranges.len(), self.ranges.len() / 2);
        let halves = [self.half(0..middle, middle..g, μ), self.half(middle..g, 0..middle, μ)];
        let measured = |j: usize| {
            let without: Vec<f64> = (0..g).map(|group| self.squared_residual(&halves, j, Some(group))).collect();
            Measured { value: self.squared_residual(&halves, j, None), error: jackknife(&without) }
        };
        (0..μ.len()).map(measured).collect()
    }

    /// The mean over both halves of the mean of `⟨M_a,M_b⟩/‖ψ_j‖²` over `a ≠ b`, one group left out.
    fn squared_residual(&self, halves: &[Half; 2], j: usize, left_out: Option<usize>) -> f64 {
        let kept = |group: &usize| Some(*group) != left_out;
        let of_half = |half: &Half| {
            let errors: Vec<_> =
                half.averaged.clone().filter(kept).map(|a| half.errors[a - half.averaged.start].column(j)).collect();
            let (mut products, mut squares, count) = (0.0, 0.0, errors.len() as f64);
            let start = self.values(&half.measured).start;
            for x in half.measured.clone().filter(kept).flat_map(|group| self.ranges[group].clone()) {
                let (sum, own) = errors.iter().map(|m| m[x - start]).fold((0.0, 0.0), |(s, o), m| (s + m, o + m * m));
                products += sum * sum - own;
                squares += self.ψ[[x, j]].powi(2);
            }
            products / (count * (count - 1.0)) / squares
        };
        halves.iter().map(of_half).sum::<f64>() / 2.0
    }

    /// Upper bounds of the residuals, none from the first that reaches 1: rare points decide on functions of an eigenvalue so small,
    /// and a sample does not show them.
    fn bounds(&self, squares: &[Measured]) -> Vec<Option<f64>> {
        let t = student_quantile(0.95, self.ranges.len() as f64 - 1.0);
        let bound = |square: &Measured| {
            let (value, width) = (square.value.max(0.0), t * square.error);
            // The last term makes up for the skewness of the estimate: where it is large, the bound is that of its root.
            (value + width + width * width / (2.0 * value.max(width)).max(f64::MIN_POSITIVE)).sqrt()
        };
        let known: Vec<f64> = squares.iter().map(bound).take_while(|bound| *bound < 1.0).collect();
        (0..squares.len()).map(|j| known.get(j).copied()).collect()
    }

    /// 95 % interval of `ρ = ⟨ψ,Kψ⟩/⟨ψ,ψ⟩`.
    ///
    /// The estimate without the products of a point with itself has no bias, but may be negative. With them it is `ρ + b`, a
    /// squared length: the interval is that of the jackknife of `log(ρ + b)` over points, less b. It follows the skewness of the
    /// estimate, also where that is mostly noise. Its upper end is that of the jackknife of ρ itself at least, which no error of b moves.
    fn interval(&self, j: usize) -> Option<[f64; 2]> {
        let (c, ψ) = (self.outputs, self.ψ.column(j));
        let h = ψ.len();
        let own = &ψ * &self.own.column(j);
        let image = self.sums.iter().fold(Array1::<f64>::zeros(h), |sum, s| sum + s.column(j));
        let (products, squares) = (&ψ * &image - &own, &ψ * &ψ);
        let of_point = |v: &Array1<f64>, i: usize| v.slice(s![i * c..(i + 1) * c]).sum();
        // `h (h−C) ⟨ψ,Kψ⟩` with a point's own products, and `h ⟨ψ,ψ⟩`.
        let quotient = |form: f64, square: f64, h: usize| form / (square * (h - c) as f64);
        let (form, own_form, square) = (products.sum(), own.sum(), squares.sum());
        let without = |i: usize| {
            let [product, own_i, square_i] = [&products, &own, &squares].map(|v| of_point(v, i));
            [form - 2.0 * product, own_form - own_i].map(|form| quotient(form, square - square_i, h - c))
        };
        let (plain, logarithms): (Vec<f64>, Vec<f64>) = (0..h / c).map(without).map(|[ρ, b]| (ρ, (ρ + b).ln())).unzip();
        let t = student_quantile(0.975, (h / c) as f64 - 1.0);
        let (ρ, b, width) = (quotient(form, square, h), quotient(own_form, square, h), t * jackknife(&logarithms));
        let low = (ρ + b) * (-width).exp() - b;
        let high = (ρ + b) * width.exp() - b;
        let interval = [low.max(0.0), high.max(ρ.max(0.0) + t * jackknife(&plain))];
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
