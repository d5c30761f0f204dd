//! How `mercer regress` learns from rows that do not fit into memory.

use super::Learning;
use crate::learnt::Learnt;
use crate::solving::Solved;
use crate::ways::{Way, name};
use mercer::apply::{FeatureLogistic, FeatureMap, FeatureRidge};
use mercer::data::{BlockDataset, Dataset, TableBlocks};
use mercer::kernel::Expression;
use mercer::{FitContext, Result};
use ndarray::Array2;

/// Classes that memory is counted for before they are known; with more of them the fit asks for itself.
const CLASSES: usize = 10;

impl Learning {
    /// What of the options needs all rows in memory, where something does.
    pub fn refused_in_blocks(&self) -> Option<String> {
        let method = matches!(self.method, Way::Auto | Way::Nystrom | Way::RandomFeatures | Way::Linear);
        let what = [(!method, format!("--method {}", name(self.method))), (self.solver.is_some(), "--solver".into())];
        what.into_iter().find_map(|(given, what)| given.then_some(what))
    }

    /// How often the rows are read, where that is known before, and what for.
    pub fn passes(&self) -> (Option<usize>, &'static str) {
        match self.is_logistic() {
            true => (None, "for the columns, for the classes, and for every product of the fit"),
            false => (Some(2), "for the columns and for the fit"),
        }
    }

    /// Landmarks for rows of `d` features in blocks, 0 where there are none, and the bytes that the search and the fit take: the most under any of
    /// the kernels.
    pub fn size_in_blocks(
        &self,
        candidates: &[Expression],
        blocks: &TableBlocks,
        d: usize,
        fit: &FitContext<'_>,
    ) -> Result<(usize, u64)> {
        // Two points stand for the rows: the size does not depend on the lengthscale.
        let points = Array2::from_shape_fn((2, d), |(i, _)| i as f64);
        let mut most = (0, if self.searches(candidates) { self.kernel_search(candidates).memory(d) } else { 0 });
        for kernel in candidates {
            let map = self.feature_map(kernel.resolve_scaled(&points, fit.seed, 1.0)?, (blocks.n(), d), fit)?;
            let (p, landmarks) = match map {
                FeatureMap::Nystrom { landmarks, .. } => (landmarks, landmarks),
                FeatureMap::Random { features, .. } => (features, 0),
                _ => (d, 0),
            };
            let folds = self.cv.unwrap_or(0) as usize;
            let bytes = match self.is_logistic() {
                true => FeatureLogistic::memory_in_blocks(blocks, (d, p), landmarks, CLASSES),
                false => FeatureRidge::memory_in_blocks(blocks, (d, p), landmarks, folds),
            };
            most = (most.0.max(landmarks), most.1.max(bytes));
        }
        Ok(most)
    }

    /// Fits points of which each rank reads its own, by the iterative solver that was asked for. It measures the error on `watched` along the way.
    pub fn learn_sharded(
        &self,
        candidates: &[Expression],
        data: &BlockDataset,
        watched: Option<&Dataset>,
        fit: &FitContext<'_>,
    ) -> Result<Learnt> {
        let (_, some) = data.rows(&Expression::rows(data.drawn_of(), fit.seed));
        let kernel = candidates[0].resolve(&some.x, fit.seed)?;
        let (own, y) = data.own_examples(fit.group, fit.progress)?;
        let (x, y) = (own.into_f64(), y.expect("checked"));
        Solved { learning: self, kernel, x: x.view(), y: &y, watched, is_sharded: true, fit }.learn()
    }

    /// Fits rows in blocks, under the kernel that suits the rows in memory best.
    pub fn learn_blocks(&self, candidates: &[Expression], data: &BlockDataset, fit: &FitContext<'_>) -> Result<Learnt> {
        let (kernel, search) = match candidates {
            [one] if !self.searches(candidates) => {
                let (_, some) = data.rows(&Expression::rows(data.drawn_of(), fit.seed));
                (one.resolve(&some.x, fit.seed)?, None)
            }
            _ => {
                let sample = data.sample().1;
                let y = sample.y.as_ref().expect("checked");
                let found = self.kernel_search(candidates).best(sample.x.to_f64().view(), y, fit)?;
                (found.kernel.clone(), Some(found))
            }
        };
        let map = self.feature_map(kernel, (data.n(), data.d()), fit)?;
        if self.is_logistic() {
            let alpha = self.logistic_alpha(&map);
            let fitted = FeatureLogistic { map, alpha, class_weights: self.weights() }.fit_blocks(data, fit)?;
            let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
            return Ok(Learnt { rank: Some(rank), search, measure: "log loss", ..Learnt::new(fitted, alpha, tried) });
        }
        let ridge = FeatureRidge { map, alpha: self.alpha(), class_weights: self.weights() };
        let fitted = ridge.fit_blocks(data, fit)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        let learnt = Learnt { rank: Some(rank), search, ..Learnt::new(fitted, alpha, tried) };
        let why = || format!("method {}: it learns from rows in blocks", learnt.origin().method);
        Ok(Learnt { why: (self.method == Way::Auto).then(why), ..learnt })
    }
}
