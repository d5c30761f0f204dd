//! The regressions, and where the rows are that they learn from.

use crate::apply::regression::on_features::OnFeatures;
use crate::apply::regression::on_landmarks::OnLandmarks;
use crate::apply::{
    Examples, HeldOutRows, Learner, NadarayaWatson, NtkEnsemble, Outcome, RecursiveFeatureMachine, Regression,
    RegressionTask, Ridge, SpectralRidge,
};
use crate::data::BlockDataset;
use crate::options::Family;
use crate::{FitContext, Result};
use std::sync::LazyLock;

/// Every regression: the choice among them first. Example: [`Regression`].
pub fn regressions() -> &'static Family<RegressionTask> {
    static REGRESSIONS: LazyLock<Family<RegressionTask>> = LazyLock::new(|| {
        let [nystrom, random_features, linear] = OnFeatures::entries();
        let [askotch, eigenpro, richardson] = Ridge::entries_by_epochs();
        let [falkon, krill] = OnLandmarks::entries();
        Family {
            noun: "method",
            entries: vec![
                Learner::entry(),
                Ridge::entry(),
                nystrom,
                random_features,
                SpectralRidge::entry(),
                linear,
                NadarayaWatson::entry(),
                askotch,
                eigenpro,
                richardson,
                falkon,
                krill,
                RecursiveFeatureMachine::entry(),
                NtkEnsemble::entry(),
            ],
            renamed: &[],
        }
    });
    &REGRESSIONS
}

/// Where the rows are that a regression learns from. Example: [`Regression`].
pub enum Source<'a> {
    /// All rows, or a kernel matrix `[n, n]` with its targets, in memory.
    Memory(Examples<'a>),
    /// Rows that are read in blocks.
    Blocks(&'a BlockDataset),
    /// Rows of which each rank reads its own.
    Shards {
        /// The rows.
        data: &'a BlockDataset,
        /// Rows whose error the solver measures along the way.
        watched: Option<HeldOutRows>,
    },
}

impl Regression {
    /// Fits the rows, wherever they are, under the best of the kernels.
    pub fn learn(&self, source: Source, context: &FitContext) -> Result<Outcome> {
        match source {
            Source::Memory(examples) => self.estimator().learn(&self.kernels, &examples, context),
            Source::Blocks(data) => self.in_blocks()?.learn(data, context),
            Source::Shards { data, watched } => self.estimator().learn_shards(&self.kernels, data, watched, context),
        }
    }
}
