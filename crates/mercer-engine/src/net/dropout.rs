//! Dropout, as evaluation sees it.

use super::{Facts, Gradient, Layer, Mode, Pass, Trace, Weights, zero};
use crate::compute::{self, Tensor};
use crate::{Error, Result};

/// `y = x` in [`Mode::Eval`]. Training with it is refused: units are not dropped at random here.
#[derive(Clone, Debug)]
pub struct Dropout {
    pub width: usize,
}

impl Layer for Dropout {
    fn facts(&self) -> Facts {
        Facts { outputs: self.width, ..Facts::default() }
    }

    fn forward(&self, _: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        if trace.mode == Mode::Train {
            return Err(Error::input(
                "dropout has no effect in an evaluated network, and Mercer does not train with it; leave it out",
            ));
        }
        compute::copy(x, &mut trace.y);
        Ok(())
    }

    fn vjp(&self, _: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        if let Some(dx) = dx {
            std::mem::swap(g, dx);
        }
        Ok(())
    }

    fn jvp(&self, _: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Some(dx) = dx else { return zero(t) };
        compute::copy(dx, t);
        Ok(())
    }
}
