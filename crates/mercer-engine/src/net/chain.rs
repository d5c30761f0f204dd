//! Layers one after the other: what networks and residual layers are made of.

use super::{Gradient, Layer, Mode, Pass, Slot, Trace, Weights};
use crate::Result;
use crate::compute::Tensor;

/// Layers in order, with the numbers of the i-th. `x` is the input of the first; `traces` has one trace for each.
pub(super) struct Chain<'a, W> {
    pub layers: &'a [Box<dyn Layer>],
    pub theta: W,
}

impl<'a, W: Fn(usize) -> Weights<'a>> Chain<'_, W> {
    /// The outputs of all layers for a batch of `batch` points; the i-th has one for each of `networks(i)` networks.
    pub fn forward(
        &self,
        x: &Tensor,
        batch: usize,
        mut networks: impl FnMut(usize) -> usize,
        mode: Mode,
        traces: &mut [Trace],
    ) -> Result<()> {
        for (i, layer) in self.layers.iter().enumerate() {
            let (before, after) = traces.split_at_mut(i);
            let (x, trace) = (before.last().map_or(x, |t| &t.y), &mut after[0]);
            trace.mode = mode;
            trace.y.reshape(&[networks(i), batch, layer.facts().outputs])?;
            layer.forward(&(self.theta)(i), x, trace)?;
        }
        Ok(())
    }

    /// Backwards from the gradient in `flow`, which is used up; `next` is scratch. Layer i's part of the gradient of the
    /// parameters goes to `slot(i)` of `grad`: where it lies, and for how many networks.
    pub fn vjp(
        &self,
        x: &Tensor,
        traces: &mut [Trace],
        [flow, next]: [&mut Tensor; 2],
        grad: &mut Tensor,
        slot: impl Fn(usize) -> (Slot, usize),
        mut dx: Option<&mut Tensor>,
    ) -> Result<()> {
        for (i, layer) in self.layers.iter().enumerate().rev() {
            let (before, after) = traces.split_at_mut(i);
            let (theta, trace, (slot, networks)) = ((self.theta)(i), &mut after[0], slot(i));
            let mut part = Gradient { tensor: grad, slot, networks };
            let x = before.last().map_or(x, |t| &t.y);
            let mut into = if i > 0 { Some(&mut *next) } else { dx.as_deref_mut() };
            if let Some(into) = into.as_deref_mut() {
                into.reshape(x.shape())?;
            }
            layer.vjp(Pass { theta: &theta, x, trace }, flow, &mut part, into)?;
            if i > 0 {
                std::mem::swap(flow, next);
            }
        }
        Ok(())
    }

    /// The tangent of the last layer, left in `flow`; `next` is scratch.
    pub fn jvp<'d>(
        &self,
        dtheta: impl Fn(usize) -> Option<Weights<'d>>,
        x: &Tensor,
        dx: Option<&Tensor>,
        traces: &mut [Trace],
        [flow, next]: [&mut Tensor; 2],
    ) -> Result<()> {
        for (i, layer) in self.layers.iter().enumerate() {
            let (before, after) = traces.split_at_mut(i);
            let (x, dx) = before.last().map_or((x, dx), |trace| (&trace.y, Some(&*flow)));
            next.reshape(after[0].y.shape())?;
            let pass = Pass { theta: &(self.theta)(i), x, trace: &mut after[0] };
            layer.jvp(pass, dtheta(i).as_ref(), dx, next)?;
            std::mem::swap(flow, next);
        }
        Ok(())
    }
}

/// Where the parameters and constants of layers start that lie one after the other from `at` on, and where the last ones end;
/// each layer takes up a multiple of `multiple` parameters.
pub(super) fn consecutive(
    layers: &[Box<dyn Layer>],
    mut at: [usize; 2],
    multiple: usize,
) -> (Vec<[usize; 2]>, [usize; 2]) {
    let mut starts = Vec::with_capacity(layers.len());
    for facts in layers.iter().map(|layer| layer.facts()) {
        starts.push(at);
        at = [at[0] + facts.parameters.next_multiple_of(multiple), at[1] + facts.constants];
    }
    (starts, at)
}

/// A layer that holds no others.
pub(super) struct Leaf<'a> {
    pub layer: &'a dyn Layer,
    /// Where its parameters and constants start in the first network.
    pub start: [usize; 2],
    /// Whether the leaf before it is the layer before it in the same chain.
    pub follows: bool,
}

/// All leaves of a chain in the order of their numbers; those of its layers start at `starts`.
pub(super) fn leaves<'a>(layers: &'a [Box<dyn Layer>], starts: &[[usize; 2]]) -> Vec<Leaf<'a>> {
    let (mut all, mut follows) = (Vec::new(), false);
    for (layer, &start) in layers.iter().zip(starts) {
        let [body, shortcut] = layer.inner();
        if body.is_empty() {
            all.push(Leaf { layer: layer.as_ref(), start, follows });
        } else {
            let (starts, end) = consecutive(body, start, 1);
            all.extend(leaves(body, &starts));
            all.extend(leaves(shortcut, &consecutive(shortcut, end, 1).0));
        }
        follows = body.is_empty();
    }
    all
}
