//! Layers one after the other: what networks and residual layers are made of.

use super::head::Head;
use super::{Gradient, Kept, Layer, Mode, Pass, Slot, Trace, Weights};
use crate::Result;
use crate::compute::Tensor;

/// Layers in order, with the numbers of the i-th. `x` is the input of the first; `traces` has one trace for each.
pub(super) struct Chain<'a, W> {
    pub layers: &'a [Box<dyn Layer>],
    pub theta: W,
}

impl<'a, W: Fn(usize) -> Weights<'a>> Chain<'_, W> {
    /// The outputs of all layers for a batch of `batch` points; the i-th has one for each of `networks(i)` networks. A `lean` pass keeps
    /// what [`Chain::vjp`] needs and no more: dense layers [`Kept::Units`], or [`Kept::UnitsAlone`] below a single unit.
    pub fn forward(
        &self,
        x: &Tensor,
        batch: usize,
        networks: impl FnMut(usize) -> usize,
        (mode, lean): (Mode, bool),
        traces: &mut [Trace],
    ) -> Result<()> {
        let networks: Vec<usize> = (0..self.layers.len()).map(networks).collect();
        for (i, layer) in self.layers.iter().enumerate() {
            let (before, after) = traces.split_at_mut(i);
            let head = self.head(i).filter(|_| lean && networks[i] == networks[i + 1]);
            after[0].mode = mode;
            after[0].kept = match (lean, &head) {
                (false, _) => Kept::Slopes,
                (true, None) => Kept::Units,
                (true, Some(_)) => Kept::UnitsAlone,
            };
            if before.last().is_some_and(|below| below.kept == Kept::UnitsAlone) {
                continue;
            }
            let x = before.last().map_or(x, |t| &t.y);
            if let ([hidden, top, ..], Some(head)) = (&mut *after, head) {
                top.y.reshape(&[networks[i], batch, 1])?;
                head.forward(x, &mut hidden.slope, &mut top.y)?;
                continue;
            }
            after[0].y.reshape(&[networks[i], batch, layer.facts().outputs])?;
            layer.forward(&(self.theta)(i), x, &mut after[0])?;
        }
        Ok(())
    }

    /// Layers i and i + 1, if they are a hidden layer and the one unit on top of it.
    fn head(&self, i: usize) -> Option<Head<'_, 'a>> {
        Head::of(&self.layers[i..], |l| (self.theta)(i + l))
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
            if let Some(below) = before.last().filter(|below| below.kept == Kept::UnitsAlone)
                && let Some(head) = self.head(i - 1)
            {
                head.vjp(&below.slope, flow, next, grad, [slot(i - 1).0, slot(i).0])?;
                std::mem::swap(flow, next);
                continue;
            }
            let (theta, trace, (slot, networks)) = ((self.theta)(i), &mut after[0], slot(i));
            let mut part = Gradient { tensor: grad, slot, networks };
            let x = before.last().map_or(x, |t| &t.y);
            let hidden = layer.dense().filter(|dense| trace.kept != Kept::Slopes && dense.is_activated());
            if let Some(dense) = hidden.filter(|_| trace.kept == Kept::Units) {
                dense.activation_vjp(&theta, &trace.slope, flow, next, &mut part)?;
                std::mem::swap(flow, next);
            }
            let mut into = if i > 0 { Some(&mut *next) } else { dx.as_deref_mut() };
            if let Some(into) = into.as_deref_mut() {
                into.reshape(x.shape())?;
            }
            match hidden {
                Some(dense) => dense.units_vjp(&theta, x, &trace.slope, flow, &mut part, into),
                None => layer.vjp(Pass { theta: &theta, x, trace }, flow, &mut part, into)?,
            }
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
