//! The end of an image: its numbers in a row, as they already lie.

use super::{Gradient, Layer, Trace, Weights};
use crate::Result;
use crate::compute::{self, Tensor};

/// `y = x`; what comes after it sees no image.
#[derive(Clone, Debug)]
pub struct Flatten {
    /// Units in and out.
    pub width: usize,
}

impl Layer for Flatten {
    fn outputs(&self) -> usize {
        self.width
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        compute::copy(x, &mut trace.y);
        Ok(())
    }

    fn vjp(
        &self,
        _: &Weights<'_>,
        _: &Tensor,
        _: &mut Trace,
        g: &mut Tensor,
        _: &mut Gradient<'_>,
        dx: Option<&mut Tensor>,
    ) -> Result<()> {
        if let Some(dx) = dx {
            compute::copy(g, dx);
        }
        Ok(())
    }

    fn jvp(
        &self,
        _: &Weights<'_>,
        _: Option<&Weights<'_>>,
        _: &Tensor,
        dx: Option<&Tensor>,
        _: &mut Trace,
        t: &mut Tensor,
    ) -> Result<()> {
        match dx {
            Some(dx) => compute::copy(dx, t),
            None => compute::fill(t, 0.0),
        }
        Ok(())
    }

    fn jet(&self, _: &Weights<'_>, x: &Tensor, _: usize, y: &mut Tensor) -> Result<()> {
        compute::copy(x, y);
        Ok(())
    }
}
