//! Random Fourier features of the input: `y = [sin(x Ω), cos(x Ω)]`.

use super::{Facts, Gradient, Layer, Pass, Piece, Trace, Weights, input_gradient, zero};
use crate::Result;
use crate::compute::{self, Activation, Store, Tensor, gemm};
use crate::rng::Rng;

/// Half sines, half cosines of `x Ω`, with `Ω` `[in, out]` constant, entries `N(0, 1/lengthscale²)`: the features whose
/// inner products approximate the RBF kernel of that lengthscale (up to a factor out/2).
#[derive(Clone, Debug)]
pub struct FourierFeatures {
    pub inputs: usize,
    pub outputs: usize,
    /// Of the kernel.
    pub lengthscale: f64,
}

impl Layer for FourierFeatures {
    fn facts(&self) -> Facts {
        let numbers = self.inputs * self.outputs;
        Facts {
            outputs: self.outputs,
            constants: numbers,
            multiply_adds: numbers,
            branches: true,
            stem: "rff",
            ..Facts::default()
        }
    }

    fn pieces(&self) -> Vec<Piece> {
        vec![Piece { transposed: true, ..Piece::constant("weight", 0, &[self.outputs, self.inputs]) }]
    }

    fn init(&self, rng: &mut Rng, _: &mut [f32], constants: &mut [f32]) {
        // A sine and the cosine half a row later share their frequency, so that sin² + cos² = 1 in every pair.
        let half = self.outputs / 2;
        for row in constants.chunks_exact_mut(self.outputs) {
            row.iter_mut().for_each(|w| *w = (rng.normal() / self.lengthscale) as f32);
            let (sines, cosines) = row.split_at_mut(half);
            cosines[..half].copy_from_slice(sines);
        }
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        trace.slope.reshape(trace.y.shape())?;
        let omega = theta.constant(self.inputs, self.outputs);
        compute::dense(x.stack(), omega, None, Activation::SinCos, &mut trace.y, Some(&mut trace.slope));
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, _: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, trace, .. } = pass;
        if let Some(dx) = dx {
            compute::multiply(g, &trace.slope);
            let omega = theta.constant(self.inputs, self.outputs);
            gemm(1.0, g.stack(), omega.t(), Store::Replace, input_gradient(dx, g, self.inputs));
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, _: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, trace, .. } = pass;
        let Some(dx) = dx else { return zero(t) };
        gemm(1.0, dx.stack(), theta.constant(self.inputs, self.outputs), Store::Replace, t.stack_mut());
        compute::multiply(t, &trace.slope);
        Ok(())
    }

    fn jet(&self, theta: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        gemm(1.0, x.stack(), theta.constant(self.inputs, self.outputs), Store::Replace, y.stack_mut());
        compute::jet(Activation::SinCos, None, points, y);
        Ok(())
    }
}
