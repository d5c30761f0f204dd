//! An activation that stands alone (one right after a dense layer is part of that layer), and `flatten`.

use super::ntk::{Jacobian, Parameterisation};
use super::{Gradient, Layer, Pass, Trace, Weights, zero};
use crate::Result;
use crate::compute::{self, Activation, Tensor};

/// `y = φ(x)`; with the identity, the layer `flatten`: numbers keep their order, but later layers see no image.
#[derive(Clone, Debug)]
pub struct Elementwise {
    /// Units in and out.
    pub width: usize,
    /// φ
    pub activation: Activation,
}

impl Layer for Elementwise {
    fn outputs(&self) -> usize {
        self.width
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        compute::copy(x, &mut trace.y);
        trace.activate(self.activation)
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        if let Some(dx) = dx {
            pass.trace.slope(self.activation).into_iter().for_each(|slope| compute::multiply(g, slope));
            std::mem::swap(g, dx);
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Some(dx) = dx else { return zero(t) };
        compute::copy(dx, t);
        pass.trace.slope(self.activation).into_iter().for_each(|slope| compute::multiply(t, slope));
        Ok(())
    }

    fn jacobian<'a>(
        &self,
        _: &Weights<'_>,
        _: &'a Tensor,
        trace: &Trace,
        mut g: Tensor,
        dx: Option<&mut Tensor>,
        _: Parameterisation,
    ) -> Result<Jacobian<'a>> {
        if let Some(dx) = dx {
            trace.slope(self.activation).into_iter().for_each(|slope| compute::multiply_each(&mut g, slope));
            std::mem::swap(&mut g, dx);
        }
        Ok(Jacobian::None)
    }

    fn jet(&self, _: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        compute::copy(x, y);
        compute::jet(self.activation, None, points, y);
        Ok(())
    }
}
