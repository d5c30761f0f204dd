//! An activation that stands alone (one right after a dense layer is part of that layer).

use super::ntk::{Jacobian, Parameterisation};
use super::{Gradient, Layer, Trace, Weights};
use crate::Result;
use crate::compute::{self, Activation, Tensor};

/// `y = φ(x)`.
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
        trace.slope.reshape(trace.y.shape())?;
        compute::copy(x, &mut trace.y);
        compute::activation(self.activation, &mut trace.y, Some(&mut trace.slope));
        Ok(())
    }

    fn vjp(
        &self,
        _: &Weights<'_>,
        _: &Tensor,
        trace: &mut Trace,
        g: &mut Tensor,
        _: &mut Gradient<'_>,
        dx: Option<&mut Tensor>,
    ) -> Result<()> {
        if let Some(dx) = dx {
            compute::multiply(g, &trace.slope);
            std::mem::swap(g, dx);
        }
        Ok(())
    }

    fn jvp(
        &self,
        _: &Weights<'_>,
        _: Option<&Weights<'_>>,
        _: &Tensor,
        dx: Option<&Tensor>,
        trace: &mut Trace,
        t: &mut Tensor,
    ) -> Result<()> {
        match dx {
            Some(dx) => {
                compute::copy(dx, t);
                compute::multiply(t, &trace.slope);
            }
            None => compute::fill(t, 0.0),
        }
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
            compute::multiply_each(&mut g, &trace.slope);
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
