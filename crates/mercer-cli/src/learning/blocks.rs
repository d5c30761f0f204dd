//! How `mercer regress` learns from rows that do not fit into memory.

use super::Learning;
use crate::learnt::Learnt;
use crate::ways::{By, Way};
use mercer::apply::{FeatureMap, FeatureRidge};
use mercer::data::{BlockDataset, TableBlocks};
use mercer::kernel::Expression;
use mercer::{FitContext, Result};
use ndarray::Array2;

/// How often the rows are read, and what for.
pub const PASSES: (usize, &str) = (2, "for the columns and for the fit");

impl Learning {
    /// Whether the method, with the kernels to choose among, can learn from rows in blocks.
    pub fn takes_blocks(&self, candidates: &[Expression]) -> bool {
        let method = matches!(self.method, Way::Auto | Way::Nystrom | Way::RandomFeatures | Way::Linear);
        let searches = self.criterion == By::Likelihood || candidates.iter().any(Expression::is_automatic);
        method
            && candidates.len() == 1
            && !searches
            && self.solver.is_none()
            && !self.is_logistic()
            && self.cv.is_none()
    }

    /// Landmarks for rows of `d` features in blocks, 0 where there are none, and the bytes that the fit takes.
    pub fn size_in_blocks(
        &self,
        kernel: &Expression,
        blocks: &TableBlocks,
        d: usize,
        fit: &FitContext<'_>,
    ) -> Result<(usize, u64)> {
        // Two points stand for the rows: the size does not depend on the lengthscale.
        let points = Array2::from_shape_fn((2, d), |(i, _)| i as f64);
        let map = self.feature_map(kernel.resolve(&points, fit.seed)?, (blocks.n(), d), fit)?;
        let (p, landmarks) = match map {
            FeatureMap::Nystrom { landmarks, .. } => (landmarks, landmarks),
            FeatureMap::Random { features, .. } => (features, 0),
            _ => (d, 0),
        };
        Ok((landmarks, FeatureRidge::memory_in_blocks(blocks, (d, p), landmarks)))
    }

    /// Fits rows in blocks.
    pub fn learn_blocks(&self, kernel: &Expression, data: &BlockDataset, fit: &FitContext<'_>) -> Result<Learnt> {
        let (_, some) = data.rows(&Expression::rows(data.drawn_of(), fit.seed));
        let map = self.feature_map(kernel.resolve(&some.x, fit.seed)?, (data.n(), data.d()), fit)?;
        let ridge = FeatureRidge { map, alpha: self.alpha(), class_weights: self.weights() };
        let fitted = ridge.fit_blocks(data, fit)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        let learnt = Learnt { rank: Some(rank), ..Learnt::new(fitted, alpha, tried) };
        let why = || format!("method {}: it learns from rows in blocks", learnt.origin().method);
        Ok(Learnt { why: (self.method == Way::Auto).then(why), ..learnt })
    }
}
