//! The end of many networks, a hidden dense layer below one unit, as one: `y = φ(x W + b) w + b'`. The hidden units are passed over
//! once on the way forward and once on the way back, and neither their values nor their slopes are stored.

use super::dense::Dense;
use super::{Layer, Slot, Weights};
use crate::Result;
use crate::compute::{self, HeadGradient, Tensor};

/// The two layers and their numbers.
pub(super) struct Head<'l, 't> {
    hidden: &'l Dense,
    top: &'l Dense,
    theta: [Weights<'t>; 2],
}

impl<'l, 't> Head<'l, 't> {
    /// The two layers with these numbers, if they are such.
    pub fn of(layers: &'l [Box<dyn Layer>], theta: impl Fn(usize) -> Weights<'t>) -> Option<Self> {
        let [hidden, top, ..] = layers else { return None };
        let (hidden, top) = (hidden.dense()?, top.dense()?);
        let fits = top.outputs == 1 && !top.is_activated();
        (fits && hidden.is_activated()).then(|| Head { hidden, top, theta: [theta(0), theta(1)] })
    }

    /// `y` `[networks, b, 1]`, which has its shape, at `x`; `z` `[networks, b, h]` is what [`Head::vjp`] needs of it.
    pub fn forward(&self, x: &Tensor, z: &mut Tensor, y: &mut Tensor) -> Result<()> {
        let [hidden, top] = &self.theta;
        self.hidden.product(hidden, x, y.shape()[0], z)?;
        self.hidden.hidden(hidden, z).head(self.top.matrix(top), self.top.bias(top), y)
    }

    /// Back from `g` `[networks, b, 1]` to `dz` `[networks, b, h]`, with the gradients of w, b and b' into `grad`, where the numbers of
    /// the two layers start at these slots.
    pub fn vjp(
        &self,
        z: &Tensor,
        g: &mut Tensor,
        dz: &mut Tensor,
        grad: &mut Tensor,
        [hidden, top]: [Slot; 2],
    ) -> Result<()> {
        let (networks, stride) = (g.shape()[0], top.stride);
        let bias = self.top.bias_place().map(|at| grad.matrices_mut(top.at + at, stride, networks, 1, 1));
        compute::activation_vjp(g, None, bias);
        let bias = self.hidden.bias_place().map(|at| hidden.at + at);
        let grad = HeadGradient { tensor: grad, stride, w: top.at, bias };
        self.hidden.hidden(&self.theta[0], z).head_vjp(self.top.matrix(&self.theta[1]), g, dz, grad)
    }
}
