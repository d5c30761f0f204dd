//! L2 batch norm: `y = h / √(mean_batch h²)` for every unit.

use super::{Facts, Gradient, Layer, Mode, Pass, Piece, Trace, Weights, zero};
use crate::Result;
use crate::compute::{self, Tensor};
use crate::rng::Rng;

/// Divides every unit by its root mean square over the batch, so that each output has `mean ψ² = 1`.
///
/// In [`Mode::Eval`] the factors are its constants, which [`super::Network::calibrate`] measures (one until then).
/// A unit that vanishes on the batch stays zero.
#[derive(Clone, Debug)]
pub struct L2Norm {
    pub width: usize,
}

impl L2Norm {
    /// The derivative, which is symmetric: it serves forward and backward.
    fn tangent(&self, theta: &Weights<'_>, trace: &mut Trace, t: &mut Tensor) -> Result<()> {
        match trace.mode {
            Mode::Train => {
                trace.work.reshape(trace.factor.shape())?;
                compute::l2_norm_tangent(&trace.y, &trace.factor, t, &mut trace.work);
            }
            Mode::Eval => compute::scale_columns(t, theta.constant(1, self.width)),
        }
        Ok(())
    }
}

impl Layer for L2Norm {
    fn facts(&self) -> Facts {
        Facts { outputs: self.width, constants: self.width, stem: "l2norm", ..Facts::default() }
    }

    fn init(&self, _: &mut Rng, _: &mut [f32], constants: &mut [f32]) {
        constants.fill(1.0);
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        compute::copy(x, &mut trace.y);
        match trace.mode {
            Mode::Train => {
                let networks = trace.y.shape()[0];
                trace.factor.reshape(&[networks, self.width])?;
                compute::l2_norm(&mut trace.y, &mut trace.factor);
            }
            Mode::Eval => compute::scale_columns(&mut trace.y, theta.constant(1, self.width)),
        }
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, trace, .. } = pass;
        if let Some(dx) = dx {
            self.tangent(theta, trace, g)?;
            std::mem::swap(g, dx);
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, trace, .. } = pass;
        let Some(dx) = dx else { return zero(t) };
        compute::copy(dx, t);
        self.tangent(theta, trace, t)
    }

    fn pieces(&self) -> Vec<Piece> {
        vec![Piece::constant("factor", 0, &[self.width])]
    }

    fn track(&self, trace: &Trace, share: f32, constants: &mut Gradient<'_>) {
        compute::running_average(share, &trace.factor, constants.matrix(0, 1, self.width));
    }
}
