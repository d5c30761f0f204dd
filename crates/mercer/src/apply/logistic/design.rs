//! The rows of a logistic regression: their features, products with them, and a sample of them.

use crate::apply::features::ridge_head::{BLOCK, FeatureRows, outer};
use crate::linalg::matmul_into;
use crate::rng::Rng;
use crate::{FitContext, Result};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, concatenate, s};
use rayon::prelude::*;

/// Parts into which the rows are divided, each summed by one thread; the parts are added in their order, so that the number of threads
/// does not matter.
const PARTS: usize = 16;

/// Rows that are multiplied while they are in cache.
const TILE: usize = 256;

/// Rows of a sample, at most.
const SAMPLE: usize = 8192;

/// What [`Design::pass`] makes of row i: `(i, z_iV, t_i)`, the last to be written.
pub(crate) type Pull<'a> = &'a (dyn Fn(usize, &[f64], &mut [f64]) + Sync);

/// `z_i = (c, φ(x_i) − φ̄)` `[1+p]` of n rows. A function `b + φ(x)W` is `zV`, and `‖V‖² = ‖W‖² + ‖b + φ̄W‖²/c²`.
pub(crate) struct Design<'a> {
    features: Source<'a>,
    n: usize,
    /// c, the size of the constant feature.
    constant: f64,
    /// φ̄ `[p]`, weighted.
    mean: Array1<f64>,
    /// The mean of `‖φ(x_i) − φ̄‖²`, weighted.
    pub size: f64,
}

enum Source<'a> {
    /// Φ `[n, p]`
    Stored(Array2<f64>),
    /// Computed again in every pass.
    Computed(FeatureRows<'a>),
    /// Of rows that are read again in every pass.
    InBlocks(InBlocks<'a>),
}

/// Where features come from.
pub(crate) enum Features<'a> {
    Rows(FeatureRows<'a>),
    /// Of rows that are not in memory; their scores are.
    InBlocks(InBlocks<'a>),
}

/// Takes φ `[b, p]` of the next rows.
pub(crate) type TakeFeatures<'t> = &'t mut dyn FnMut(Array2<f64>) -> Result<()>;

/// The features of rows that are not in memory.
pub(crate) struct InBlocks<'a> {
    /// Hands φ of all rows to its argument, block by block and in their order.
    pub pass: &'a dyn Fn(TakeFeatures) -> Result<()>,
    /// The rows that are in memory, ascending.
    pub kept: &'a [usize],
    /// φ `[rows, p]` of some of these.
    pub rows: FeatureRows<'a>,
}

/// How large the constant feature is, which says how much the intercept is penalised beside the weights.
pub(crate) enum Constant {
    One,
    /// As long as the other features of a row are on average.
    LikeFeatures,
}

impl<'a> Design<'a> {
    /// Of n rows of p features, with the weights w `[n]` of the rows, for C classes. Features of rows in memory are stored where it has
    /// room for them.
    pub fn new(
        features: Features<'a>,
        (p, classes): (usize, usize),
        weights: &[f64],
        constant: Constant,
        context: &FitContext,
    ) -> Result<Design<'a>> {
        let n = weights.len();
        let rows = if let Features::InBlocks(_) = features { "rows in blocks" } else { "points" };
        let (what, other) = (format!("logistic regression of {n} {rows} on {p} features"), memory(n, p, classes));
        context.budget.require(format!("{what} with {classes} classes"), other, "use fewer features")?;
        let stored = context.budget.allows(other.saturating_add(8 * (n as u64).saturating_mul(p as u64)));
        let features = match features {
            Features::Rows(features) if stored => Source::Stored(all_rows(features, n, p, context)?),
            Features::Rows(features) => Source::Computed(features),
            Features::InBlocks(blocks) => Source::InBlocks(blocks),
        };
        let (mean, size) = features.moments(weights)?;
        let constant = match constant {
            Constant::One => 1.0,
            Constant::LikeFeatures => size.sqrt(),
        };
        Ok(Design { features, n, constant, mean, size })
    }

    /// `1+p`
    pub fn width(&self) -> usize {
        1 + self.mean.len()
    }

    /// Some rows, drawn at random, ascending; all of them where there are few.
    pub fn sample(&self, seed: u64) -> Vec<usize> {
        let some = |n: usize| match n <= SAMPLE {
            true => (0..n).collect(),
            false => Rng::new(seed).fork(0x6c6f_6769).sample(n, SAMPLE),
        };
        let mut rows: Vec<usize> = match &self.features {
            Source::InBlocks(blocks) => some(blocks.kept.len()).into_iter().map(|i| blocks.kept[i]).collect(),
            _ => some(self.n),
        };
        rows.sort_unstable();
        rows
    }

    /// The same features at some rows alone, stored.
    pub fn select(&self, rows: &[usize]) -> Result<Design<'static>> {
        let (constant, mean, size) = (self.constant, self.mean.clone(), self.size);
        Ok(Design { features: Source::Stored(self.features.select(rows)?), n: rows.len(), constant, mean, size })
    }

    /// Z `[rows, 1+p]` of some rows.
    pub fn rows(&self, rows: &[usize]) -> Result<Array2<f64>> {
        let centred = self.features.select(rows)? - &self.mean;
        let constant = Array2::from_elem((rows.len(), 1), self.constant);
        Ok(concatenate(Axis(1), &[constant.view(), centred.view()]).expect("as many rows"))
    }

    /// W `[p, C]` and b `[C]` of `v` `[1+p, C]`.
    pub fn weights(&self, v: &Array2<f64>) -> (Array2<f64>, Array1<f64>) {
        let w = v.slice(s![1.., ..]).to_owned();
        let b = &v.row(0) * self.constant - self.mean.dot(&w);
        (w, b)
    }

    /// One pass over the rows: puts `ZV` into `scores` `[n, C]`, lets `pull` make `t_i` of each row, and returns `Σ_i z_i t_iᵀ` `[1+p, C]`.
    pub fn pass(&self, v: &Array2<f64>, scores: &mut Array2<f64>, pull: Pull) -> Result<Array2<f64>> {
        let (w, b) = self.weights(v);
        let step = Step { w, b, pull };
        let mut sums = step.sums();
        match &self.features {
            Source::Stored(phi) => sums.add(phi.view(), 0, scores.view_mut(), &step),
            Source::Computed(features) => {
                for start in (0..self.n).step_by(BLOCK) {
                    let rows: Vec<usize> = (start..self.n.min(start + BLOCK)).collect();
                    let scores = scores.slice_mut(s![start..start + rows.len(), ..]);
                    sums.add(features(&rows)?.view(), start, scores, &step);
                }
            }
            Source::InBlocks(blocks) => {
                let mut start = 0;
                (blocks.pass)(&mut |phi| {
                    let scores = scores.slice_mut(s![start..start + phi.nrows(), ..]);
                    sums.add(phi.view(), start, scores, &step);
                    start += phi.nrows();
                    Ok(())
                })?;
            }
        }
        let Sums { cross, total } = sums;
        let centred = cross - &outer(self.mean.view(), total.view());
        let first = (&total * self.constant).insert_axis(Axis(0));
        Ok(concatenate(Axis(0), &[first.view(), centred.view()]).expect("as many classes"))
    }
}

impl Source<'_> {
    /// Φ `[rows, p]` of some rows.
    fn select(&self, rows: &[usize]) -> Result<Array2<f64>> {
        match self {
            Source::Stored(phi) => Ok(phi.select(Axis(0), rows)),
            Source::Computed(features) => features(rows),
            Source::InBlocks(blocks) => (blocks.rows)(rows),
        }
    }

    /// Calls `f` with φ of all n rows, block by block.
    fn each_block(&self, n: usize, f: TakeFeatures) -> Result<()> {
        match self {
            Source::InBlocks(blocks) => (blocks.pass)(f),
            _ => (0..n)
                .step_by(BLOCK)
                .try_for_each(|start| f(self.select(&(start..n.min(start + BLOCK)).collect::<Vec<_>>())?)),
        }
    }

    /// φ̄ `[p]` and the mean of `‖φ − φ̄‖²`, weighted by w `[n]`. Sums are taken about a first estimate of the mean, so that a distant
    /// origin costs no digits.
    fn moments(&self, weights: &[f64]) -> Result<(Array1<f64>, f64)> {
        let (mut shift, mut sum, mut squares, mut start) = (Array1::zeros(0), Array1::zeros(0), 0.0, 0);
        self.each_block(weights.len(), &mut |mut phi| {
            if start == 0 {
                shift = phi.mean_axis(Axis(0)).expect("there are rows");
                sum = Array1::zeros(shift.len());
            }
            phi -= &shift;
            let w = ndarray::aview1(&weights[start..start + phi.nrows()]);
            sum += &phi.t().dot(&w);
            squares += phi.rows().into_iter().zip(w).map(|(row, w)| w * row.dot(&row)).sum::<f64>();
            start += phi.nrows();
            Ok(())
        })?;
        let total: f64 = weights.iter().sum();
        sum /= total;
        let size = (squares / total - sum.dot(&sum)).max(0.0);
        Ok((shift + sum, size))
    }
}

/// What a pass does with a row: the scores `φ_iW + b`, and `pull`.
struct Step<'a> {
    w: Array2<f64>,
    b: Array1<f64>,
    pull: Pull<'a>,
}

impl Step<'_> {
    /// Of no rows.
    fn sums(&self) -> Sums {
        Sums { cross: Array2::zeros(self.w.dim()), total: Array1::zeros(self.b.len()) }
    }
}

/// `Σ_i φ_i t_iᵀ` `[p, C]` and `Σ_i t_i` `[C]`.
struct Sums {
    cross: Array2<f64>,
    total: Array1<f64>,
}

impl Sums {
    /// Adds the rows `phi` `[m, p]`, the first of which has the number `start`; their scores `ΦW + b` go into `scores` `[m, C]`.
    fn add(&mut self, phi: ArrayView2<f64>, start: usize, mut scores: ArrayViewMut2<f64>, step: &Step) {
        let part = phi.nrows().div_ceil(PARTS).max(TILE);
        let parts: Vec<_> =
            phi.axis_chunks_iter(Axis(0), part).zip(scores.axis_chunks_iter_mut(Axis(0), part)).collect();
        let sums: Vec<Sums> = parts
            .into_par_iter()
            .enumerate()
            .map(|(i, (phi, mut scores))| {
                let mut sum = step.sums();
                let tiles = phi.axis_chunks_iter(Axis(0), TILE).zip(scores.axis_chunks_iter_mut(Axis(0), TILE));
                for (j, (phi, scores)) in tiles.enumerate() {
                    sum.add_tile(phi, start + i * part + j * TILE, scores, step);
                }
                sum
            })
            .collect();
        for sum in sums {
            self.cross += &sum.cross;
            self.total += &sum.total;
        }
    }

    fn add_tile(&mut self, phi: ArrayView2<f64>, start: usize, mut scores: ArrayViewMut2<f64>, step: &Step) {
        scores.assign(&step.b);
        matmul_into(scores.view_mut(), Accum::Add, phi, step.w.view(), 1.0, Par::Seq);
        let mut t = Array2::zeros(scores.dim());
        for (i, (score, mut t)) in scores.rows().into_iter().zip(t.rows_mut()).enumerate() {
            let lies = "rows lie in order";
            (step.pull)(start + i, score.as_slice().expect(lies), t.as_slice_mut().expect(lies));
        }
        matmul_into(self.cross.view_mut(), Accum::Add, phi.t(), t.view(), 1.0, Par::Seq);
        self.total += &t.sum_axis(Axis(0));
    }
}

/// Φ `[n, p]`
fn all_rows(features: FeatureRows, n: usize, p: usize, context: &FitContext) -> Result<Array2<f64>> {
    let mut phi = Array2::zeros((n, p));
    for (i, mut block) in phi.axis_chunks_iter_mut(Axis(0), BLOCK).enumerate() {
        let rows: Vec<usize> = (i * BLOCK..i * BLOCK + block.nrows()).collect();
        block.assign(&features(&rows)?);
        context.progress.step("features", i * BLOCK + rows.len(), n, "");
    }
    Ok(phi)
}

/// Bytes that a logistic regression takes beside stored features: six matrices of scores, the parts of sums over rows, the sample
/// twice, and the preconditioner.
pub(crate) fn memory(n: usize, p: usize, classes: usize) -> u64 {
    let sample = 2 * (n.min(SAMPLE) as u64).saturating_mul(p as u64);
    let scores = 6u64.saturating_mul(n as u64).saturating_mul(classes as u64);
    let sums = (PARTS as u64 + 8).saturating_mul(p as u64).saturating_mul(classes as u64);
    let blocks =
        (crate::apply::logistic::preconditioner::blocks(classes) as u64 + 3).saturating_mul((p as u64 + 1).pow(2));
    8u64.saturating_mul(sample.saturating_add(scores).saturating_add(sums).saturating_add(blocks))
}
