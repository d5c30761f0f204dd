//! Regressions under a kernel whose parameters are numbers, which a search finds where they are open.

use super::in_blocks::InBlocks;
use super::on_features::OnFeatures;
use super::outcome::Outcome;
use super::{Estimator, Examples, Objective, Points};
use crate::apply::{Criterion, HeldOutRows, KernelSearch};
use crate::data::BlockDataset;
use crate::kernel::{Expression, Kernel};
use crate::{Error, FitContext, Result};

/// What fits points under a kernel whose parameters are numbers.
pub(crate) trait UnderKernel: Send + Sync {
    /// Fits the points.
    fn fit(&self, kernel: Kernel, objective: &Objective, points: &Points) -> Result<Outcome>;

    /// The features of rows in blocks, where the regression is on such features.
    fn on_features(&self) -> Option<&OnFeatures> {
        None
    }

    /// Whether ranks can each hold a part of the points.
    fn shards(&self) -> bool {
        false
    }
}

/// The best of some kernels, and the regression under it.
pub(crate) struct Searched<E> {
    pub criterion: Criterion,
    pub objective: Objective,
    pub estimator: E,
}

impl<E> Searched<E> {
    /// The search among the kernels; none where there is nothing to be found.
    fn search(&self, kernels: &[Expression]) -> Option<KernelSearch> {
        let open = kernels.len() != 1 || kernels.iter().any(Expression::is_automatic);
        (open || self.criterion == Criterion::Likelihood).then(|| KernelSearch {
            candidates: kernels.to_vec(),
            criterion: self.criterion,
            alpha: self.objective.alpha,
            class_weights: self.objective.class_weights.clone(),
        })
    }
}

impl<E: UnderKernel> Estimator for Searched<E> {
    fn learn(&self, kernels: &[Expression], examples: &Examples, context: &FitContext) -> Result<Outcome> {
        let Examples { x: rows, y, watched } = examples;
        self.objective.check(y)?;
        let x = rows.to_f64();
        let points = Points { x: x.view(), y, watched: watched.as_ref(), is_sharded: false, context };
        let fit = |kernel| self.estimator.fit(kernel, &self.objective, &points);
        match self.search(kernels) {
            None => fit(kernels[0].resolve(*rows, context.seed)?),
            Some(search) => {
                let found = search.best(x.view(), y, context)?;
                Ok(Outcome { search: Some(found.clone()), ..fit(found.kernel)? })
            }
        }
    }

    fn in_blocks<'a>(&'a self, kernels: &'a [Expression]) -> Option<InBlocks<'a>> {
        let (search, objective) = (self.search(kernels), &self.objective);
        self.estimator.on_features().map(|features| InBlocks { kernels, search, objective, features })
    }

    fn shards(&self, kernels: &[Expression]) -> bool {
        self.estimator.shards() && self.search(kernels).is_none() && !self.objective.is_logistic()
    }

    fn learn_shards(
        &self,
        kernels: &[Expression],
        data: &BlockDataset,
        watched: Option<HeldOutRows>,
        context: &FitContext,
    ) -> Result<Outcome> {
        let (_, some) = data.rows(&Expression::rows(data.drawn_of(), context.seed));
        let kernel = kernels[0].resolve(&some.x, context.seed)?;
        let (own, y) = data.own_examples(context.group, context.progress)?;
        let (x, y) = (own.into_f64(), y.ok_or_else(|| Error::input("the rows have no target to learn"))?);
        let points = Points { x: x.view(), y: &y, watched: watched.as_ref(), is_sharded: true, context };
        self.estimator.fit(kernel, &self.objective, &points)
    }
}
