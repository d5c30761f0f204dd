//! Regression on the features of rows that are read in blocks.

use super::Objective;
use super::on_features::OnFeatures;
use super::outcome::Outcome;
use crate::apply::{FeatureLogistic, FeatureMap, FeatureRidge, KernelSearch};
use crate::data::{BlockDataset, TableBlocks};
use crate::kernel::Expression;
use crate::{Error, FitContext, Result};
use ndarray::Array2;

/// Classes that memory is counted for before they are known; with more of them the fit asks for itself.
const CLASSES: usize = 10;

/// How rows in blocks are fitted. Example: [`Regression`](super::Regression).
pub struct InBlocks<'a> {
    pub(crate) kernels: &'a [Expression],
    pub(crate) search: Option<KernelSearch>,
    pub(crate) objective: &'a Objective,
    pub(crate) features: &'a OnFeatures,
}

/// What a fit of rows in blocks takes: the most under any of the kernels. Example: [`Regression`](super::Regression).
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockwiseSize {
    /// Landmarks; 0 where there are none.
    pub landmarks: usize,
    /// Bytes of the search and the fit.
    pub bytes: u64,
}

impl InBlocks<'_> {
    /// How often the rows are read, where that is known before, and what for.
    pub fn passes(&self) -> (Option<usize>, &'static str) {
        match self.objective.is_logistic() {
            true => (None, "for the columns, for the classes, and for every product of the fit"),
            false => (Some(2), "for the columns and for the fit"),
        }
    }

    /// What the fit of rows of `d` features takes.
    pub fn size(&self, blocks: &TableBlocks, d: usize, context: &FitContext) -> Result<BlockwiseSize> {
        // Two points stand for the rows: the size does not depend on the lengthscale.
        let points = Array2::from_shape_fn((2, d), |(i, _)| i as f64);
        let bytes = self.search.as_ref().map_or(0, |search| search.memory(d));
        let mut most = BlockwiseSize { landmarks: 0, bytes };
        for kernel in self.kernels {
            let kernel = kernel.resolve_scaled(&points, context.seed, 1.0)?;
            let map = self.features.map(kernel, (blocks.n(), d), context)?;
            let landmarks = if let FeatureMap::Nystrom { landmarks, .. } = map { landmarks } else { 0 };
            let dim = (d, map.dim(d));
            let bytes = match self.objective.is_logistic() {
                true => FeatureLogistic::memory_in_blocks(blocks, dim, landmarks, CLASSES),
                false => FeatureRidge::memory_in_blocks(blocks, dim, landmarks, self.objective.alpha.folds()),
            };
            most = BlockwiseSize { landmarks: most.landmarks.max(landmarks), bytes: most.bytes.max(bytes) };
        }
        Ok(most)
    }

    /// Fits the rows, under the kernel that suits those in memory best.
    pub(crate) fn learn(&self, data: &BlockDataset, context: &FitContext) -> Result<Outcome> {
        let found = match &self.search {
            None => None,
            Some(search) => {
                let sample = data.sample().1;
                let y = sample.y.as_ref().ok_or_else(|| Error::input("the rows have no target to learn"))?;
                Some(search.best(sample.x.to_f64().view(), y, context)?)
            }
        };
        let kernel = match &found {
            Some(found) => found.kernel.clone(),
            None => {
                let (_, some) = data.rows(&Expression::rows(data.drawn_of(), context.seed));
                self.kernels[0].resolve(&some.x, context.seed)?
            }
        };
        let map = self.features.map(kernel, (data.n(), data.d()), context)?;
        let outcome = match self.objective.is_logistic() {
            true => OnFeatures::logistic(self.objective.logistic(map).fit_blocks(data, context)?),
            false => {
                let outcome = OnFeatures::ridge(self.objective.ridge(map).fit_blocks(data, context)?);
                match self.features.is_chosen() {
                    true => outcome.because("it learns from rows in blocks"),
                    false => outcome,
                }
            }
        };
        Ok(Outcome { search: found, ..outcome })
    }
}
