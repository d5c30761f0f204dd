//! A batch whose points are sharded to the ranks of a group.
//!
//! Rank r runs the networks at its own points, forward and backward. In between, every rank has the values of all points: a kernel needs
//! them, because it pairs all points of a batch, and with them norms, means, the `[k, k]` statistics and the objective are those of
//! the whole batch. So the objectives do not know of ranks. One operation connects them, the sum of a tensor: of values that are zero at the
//! points of other ranks, which is exact in any order, and of the gradients.

use super::Functions;
use crate::compute::{self, Tensor};
use crate::group::TensorSums;
use crate::net::LayerSpec;
use crate::{Group, Result, fail_if};
use std::ops::Range;

/// The points of a batch that belong to this rank, and what is known there.
pub(super) struct ShardedBatch<'a> {
    pub sums: TensorSums<'a>,
    group: Group<'a>,
    /// Its points among the B of the batch.
    part: Range<usize>,
    /// `[b, d]`
    x: Tensor,
    /// Values of the functions, and then the gradient by them, `[k, b, c]`.
    own: Tensor,
    /// `[k, B, c]`
    shape: [usize; 3],
}

impl<'a> ShardedBatch<'a> {
    /// Batches of `batch` points or pairs of points for `functions`, which must not depend on other points of the batch before their last layer. Collective.
    pub fn new(group: Group<'a>, functions: &Functions, batch: usize) -> Result<ShardedBatch<'a>> {
        let network = functions.network();
        fail_if!(
            batch < group.size(),
            "a batch of {batch} points cannot be sharded to {} ranks; use a larger batch or fewer ranks",
            group.size()
        );
        let is_norm = |layer: &LayerSpec| matches!(layer, LayerSpec::BatchNorm | LayerSpec::L2Norm);
        fail_if!(
            network.description().any(is_norm),
            "\"{}\" has a norm over the batch between its layers, and each of several ranks sees a part of the batch there; leave the norm \
             out, or train in one process",
            network.expression()
        );
        let device = functions.device();
        Ok(ShardedBatch {
            sums: TensorSums::new(group, device)?,
            group,
            part: 0..0,
            x: Tensor::zeros(device, &[0])?,
            own: Tensor::zeros(device, &[0])?,
            shape: [functions.count(), 0, functions.outputs()],
        })
    }

    /// The points of this rank, out of `x` `[B, d]`.
    pub fn own_points(&mut self, x: &Tensor) -> Result<&Tensor> {
        let [batch, d] = [x.shape()[0], x.shape()[1]];
        (self.part, self.shape[1]) = (self.group.share(batch), batch);
        self.x.reshape(&[self.part.len(), d])?;
        compute::take_points(x, self.part.start, &mut self.x);
        Ok(&self.x)
    }

    /// `psi` `[k, B, c]` from the values of every rank at its own points, which `own` writes as `[k, b, c]`. Collective.
    pub fn complete(&mut self, psi: &mut Tensor, own: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<()> {
        own(&mut self.own)?;
        psi.reshape(&self.shape)?;
        compute::place_points(&self.own, self.part.start, psi);
        self.sums.sum(psi)
    }

    /// The points `[b, d]` of this rank and the part `[k, b, c]` of `g` `[k, B, c]` there.
    pub fn own_part(&mut self, g: &Tensor) -> Result<(&Tensor, &mut Tensor)> {
        let [k, _, c] = self.shape;
        self.own.reshape(&[k, self.part.len(), c])?;
        compute::take_points(g, self.part.start, &mut self.own);
        Ok((&self.x, &mut self.own))
    }
}
