//! Regression on the features of rows that are not in memory: ridge regression in one pass over them, logistic regression in many.

use crate::apply::features::feature_map::{FeatureFunctions, FeatureMap, Map};
use crate::apply::features::feature_ridge::{FeatureRidge, FittedFeatureRidge};
use crate::apply::features::ridge_head::{BLOCK, BlockHead, MOST_LEFT_OUT, Part, Solved, left_out_rows};
use crate::apply::logistic::design::{Constant, Design, Features, InBlocks, TakeFeatures, memory};
use crate::apply::logistic::solver::{LogisticHead, labels};
use crate::apply::probabilities::left_out_sharpness;
use crate::apply::solvers::monitor::Convergence;
use crate::apply::targets::Encoding;
use crate::apply::traits::finite;
use crate::apply::{FeatureLogistic, FittedFeatureLogistic, check_points};
use crate::data::{BlockDataset, Dataset, TableBlocks, Target};
use crate::kernel::Expression;
use crate::operator::Budget;
use crate::spectrum::{Landmarks, Origin};
use crate::{Error, FitContext, Result, Silent, fail_if};
use ndarray::Array1;
use std::time::Instant;

impl FeatureRidge {
    /// The rows of n that [`Self::fit_blocks`] needs in memory: some to predict from all the others, some to choose `landmarks` among
    /// (0 where there are none), and those that lengthscales are found from.
    pub fn rows_in_memory(n: usize, landmarks: usize, seed: u64) -> Vec<usize> {
        let candidates = if landmarks == 0 { vec![] } else { Landmarks::candidates(n, landmarks, seed) };
        [left_out_rows(n, seed), Expression::rows(n, seed), candidates].concat()
    }

    /// Bytes that [`Self::fit_blocks`] takes on `p` features of the rows of a file with `d` features each, with `landmarks` (0 where
    /// there are none), and with cross-validation of `folds` (0 without).
    ///
    /// First a pass takes a block, its features and two sums `[p, p]`, with cross-validation two for each fold. Then the decomposition takes six matrices `[p, p]`, and the
    /// left-out rows their features, rotated and squared, beside what the allocator keeps of the pass. Some rows stay in memory, and the
    /// choice of landmarks among them takes their points twice and four matrices of the landmarks.
    pub fn memory_in_blocks(blocks: &TableBlocks, (d, p): (usize, usize), landmarks: usize, folds: usize) -> u64 {
        let n = blocks.n() as u64;
        let kept = n.min(MOST_LEFT_OUT as u64 + 1000 + (landmarks > 0) as u64 * 8192.max(4 * landmarks as u64));
        let (b, l, d, p) = (n.min(BLOCK as u64), n.min(MOST_LEFT_OUT as u64), d as u64, p as u64);
        let pass = 8 * (b * (d + p)).saturating_add(2 * p * p);
        let after = 8 * (6 * p * p).max(p * p + l * (2 * p + 2 * d));
        // Two sums a fold, and all of them, those without one fold and both halves of those of a fold.
        let folds = if folds == 0 { 0 } else { 8 * (2 * folds as u64 + 6) * p * p };
        let most = pass.max(Budget::kept_by_allocator(8 * b * p).saturating_add(after)).saturating_add(folds);
        let choice = if landmarks > 0 { 8 * (2 * kept * d + 4 * p * p) } else { 0 };
        let rows = 8 * (2 * kept * d + d * p);
        blocks.block_memory().saturating_add(rows).saturating_add(choice).saturating_add(most)
    }

    /// Fits the rows of a data set that is not in memory, in one pass over it. α is that of leave-one-out or cross-validation, or given. An interrupt leaves
    /// the fit to the rows so far. Example: [`BlockDataset`].
    pub fn fit_blocks(&self, data: &BlockDataset, context: &FitContext) -> Result<FittedFeatureRidge> {
        let (start, n, d) = (Instant::now(), data.n(), data.d());
        self.alpha.check(n)?;
        let landmarks = if let FeatureMap::Nystrom { landmarks, .. } = self.map { landmarks } else { 0 };
        let p = self.map.dim(d);
        context.budget.require(
            format!("regression on {p} features of rows in blocks"),
            FeatureRidge::memory_in_blocks(data.blocks(), (d, p), landmarks, self.alpha.folds()),
            "use fewer features",
        )?;
        let (drawn_of, seed) = (data.drawn_of(), context.seed);
        let (map, some) = prepared(&self.map, data, context)?;
        let encoding = Encoding::of(target(&some)?, some.n())?;
        let of_class = self.weights_of_classes(data, target(&some)?)?;
        let part = |block: Dataset| {
            check_points(block.x.to_f64().view())?;
            let y = target(&block)?;
            let (_, encoded) = Encoding::encode(y, block.n(), -1.0, 1.0)?;
            let weights = weights(&of_class, y);
            Ok(Part { y: encoded, weights, phi: map.at(block.x.into_f64())? })
        };
        let head = BlockHead {
            n,
            pass: &|take| {
                let FitContext { group, progress, .. } = *context;
                data.pass("ridge on features", group, progress, &mut |block| take(part(block)?))
            },
            left_out: left_out_rows(drawn_of, seed),
            rows: &|rows| {
                let (rows, data) = data.rows(rows);
                Ok((rows, part(data)?))
            },
            intercept: true,
            context,
        };
        let Solved { alpha, tried, weights, offset, left_out: (rows, scores), notes } = head.solve(self.alpha)?;
        let sharpness = left_out_sharpness(target(&data.rows(&rows).1)?, None, scores.view());
        let functions = map.functions(weights, d, context)?;
        let origin = Origin::new(self.map.name(), self.map.kernel(), (n, d), context, start);
        let functions = FeatureFunctions { origin, encoding, functions, offset };
        finite(FittedFeatureRidge { alpha, tried, sharpness, functions, convergence: Convergence::default(), notes })
    }

    /// The weight of a row of each class; none where the target is numbers.
    fn weights_of_classes(&self, data: &BlockDataset, y: &Target) -> Result<Vec<f64>> {
        match y {
            Target::Classes { names, .. } => self.class_weights.of_classes(data.class_counts(), names),
            // An error where there are weights.
            Target::Values(_) => self.class_weights.of_rows(y).map(|_| vec![]),
        }
    }
}

impl FeatureLogistic {
    /// Bytes that [`Self::fit_blocks`] takes on `p` features of the rows of a file with `d` features each, with `landmarks` (0 where there are none) and
    /// C classes: those of ridge regression, and the scores of all rows.
    pub fn memory_in_blocks(blocks: &TableBlocks, (d, p): (usize, usize), landmarks: usize, classes: usize) -> u64 {
        let ridge = FeatureRidge::memory_in_blocks(blocks, (d, p), landmarks, 0);
        ridge.saturating_add(memory(blocks.n(), p, classes))
    }

    /// Fits the rows of a data set that is not in memory. They are read once for their classes, and then for every product of Newton's method; their scores
    /// are in memory. α is given or found by cross-validation on rows in memory. Example: [`BlockDataset`].
    pub fn fit_blocks(&self, data: &BlockDataset, context: &FitContext) -> Result<FittedFeatureLogistic> {
        let (start, n, d) = (Instant::now(), data.n(), data.d());
        let group = context.group;
        fail_if!(!group.is_single(), "logistic regression runs in one process; use ridge regression on several ranks");
        self.alpha.check(n)?;
        let (map, some) = prepared(&self.map, data, context)?;
        let encoding = Encoding::of(target(&some)?, some.n())?;
        let of_class = match target(&some)? {
            Target::Classes { names, .. } => self.class_weights.of_classes(data.class_counts(), names)?,
            values => labels(values).map(|_| vec![])?,
        };
        let (mut classes, mut weights): (Vec<usize>, Vec<f64>) = (Vec::with_capacity(n), Vec::with_capacity(n));
        data.pass("classes", group, context.progress, &mut |block| {
            let labels = labels(target(&block)?)?;
            classes.extend(labels);
            weights.extend(labels.iter().map(|&label| of_class[label]));
            Ok(true)
        })?;
        let features = |block: Dataset| {
            check_points(block.x.to_f64().view())?;
            map.at(block.x.into_f64())
        };
        let pass = |take: TakeFeatures| {
            data.pass("", group, &Silent, &mut |block| take(features(block)?).map(|()| true)).map(|_| ())
        };
        let rows = |rows: &[usize]| features(data.rows(rows).1);
        let shape = (rows(&data.sample().0[..1])?.ncols(), encoding.width());
        let blocks = InBlocks { pass: &pass, kept: data.sample().0, rows: &rows };
        let design = Design::new(Features::InBlocks(blocks), shape, &weights, Constant::LikeFeatures, context)?;
        fail_if!(
            !(design.size > 0.0 && design.size.is_finite()),
            "every feature is constant on these points; use a kernel that tells them apart, or points that differ"
        );
        let head =
            LogisticHead { design: &design, labels: &classes, classes: encoding.width(), weights: &weights, context };
        let solved = head.solve(self.alpha)?;
        let weights = design.weights(&solved.2.v);
        finite(self.fitted(solved, weights, map, encoding, ((n, d), start), context)?)
    }
}

/// The features of the rows of a data set, and the rows that were looked at for them.
fn prepared(map: &FeatureMap, data: &BlockDataset, context: &FitContext) -> Result<(Map, Dataset)> {
    fail_if!(
        matches!(map, FeatureMap::Eigenfunctions { .. }),
        concat!("eigenfunctions need all rows in memory; use random features or ", crate::advice!(Nystrom))
    );
    let (_, some) = match map {
        FeatureMap::Nystrom { landmarks, .. } => {
            data.rows(&Landmarks::candidates(data.drawn_of(), *landmarks, context.seed))
        }
        _ => data.rows(&data.sample().0[..1.min(data.sample().0.len())]),
    };
    let map = map.prepare_around(some.x.to_f64().view(), data.mean(), context)?;
    Ok((map, some))
}

fn target(data: &Dataset) -> Result<&Target> {
    data.y.as_ref().ok_or_else(|| Error::input(format!("`{}` has no target to learn", data.name)))
}

/// The weight of each row `[b]`.
fn weights(of_class: &[f64], y: &Target) -> Array1<f64> {
    match y {
        Target::Values(values) => Array1::ones(values.len()),
        Target::Classes { labels, .. } => labels.iter().map(|&label| of_class[label]).collect(),
    }
}
