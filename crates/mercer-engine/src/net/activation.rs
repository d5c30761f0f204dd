//! An activation that stands alone (one right after a dense layer is part of that layer), and `flatten`.

use super::{Facts, Gradient, Layer, Pass, Trace, Weights, zero};
use crate::Result;
use crate::compute::{self, Activation, Tensor};

/// `y = φ(x)`; with the identity, the layer `flatten`: numbers keep their order, but later layers see no image.
#[derive(Clone, Debug)]
pub struct Elementwise {
    pub width: usize,
    pub activation: Activation,
}

impl Layer for Elementwise {
    fn facts(&self) -> Facts {
        Facts { outputs: self.width, ..Facts::default() }
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        compute::copy(x, &mut trace.y);
        trace.activate(self.activation)
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        if let Some(dx) = dx {
            pass.trace.times_slope(self.activation, g);
            std::mem::swap(g, dx);
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Some(dx) = dx else { return zero(t) };
        compute::copy(dx, t);
        pass.trace.times_slope(self.activation, t);
        Ok(())
    }

    fn jet(&self, _: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        compute::copy(x, y);
        compute::jet(self.activation, None, points, y);
        Ok(())
    }
}
