//! Batch norm with its activation: `y = φ(γ (x − μ)/√(σ² + ε) + β)` for every channel.

use super::{Facts, Gradient, Layer, Mode, Part, Pass, Piece, Trace, Weights, input_gradient};
use crate::Result;
use crate::compute::{self, Activation, Normalized, Tensor};
use crate::rng::Rng;

/// Every channel shifted and scaled: by its mean and variance over the batch and its plane in [`Mode::Train`], by their running
/// averages in [`Mode::Eval`] (see [`super::Network::track`]).
///
/// Parameters: γ, then β. Constants: running mean, then running variance (of mean squared deviations).
#[derive(Clone, Debug)]
pub struct BatchNorm {
    pub channels: usize,
    /// Numbers of a channel in a row.
    pub plane: usize,
    pub activation: Activation,
}

impl BatchNorm {
    /// `x` and the numbers that a pass in this mode normalizes it by; `of_batch` are the statistics of the batch.
    fn norm<'a>(&self, theta: &Weights<'a>, x: &'a Tensor, mode: Mode, of_batch: &'a Tensor) -> Normalized<'a> {
        let statistics = match mode {
            Mode::Train => of_batch.stack(),
            Mode::Eval => theta.constant(2, self.channels),
        };
        let affine = Some(theta.matrix(0, 2, self.channels));
        Normalized { x: x.stack(), statistics, affine, of_batch: mode == Mode::Train }
    }
}

impl Layer for BatchNorm {
    fn facts(&self) -> Facts {
        Facts {
            outputs: self.channels * self.plane,
            parameters: 2 * self.channels,
            constants: 2 * self.channels,
            branches: true,
            activated: self.activation != Activation::Identity,
            stem: "bn",
            ..Facts::default()
        }
    }

    fn pieces(&self) -> Vec<Piece> {
        let c = self.channels;
        vec![
            Piece::trained("weight", 0, &[c]),
            Piece::trained("bias", c, &[c]),
            Piece::constant("running_mean", 0, &[c]),
            Piece::constant("running_var", c, &[c]),
        ]
    }

    fn part(&self) -> Part<'_> {
        Part::Norm(self)
    }

    fn init(&self, _: &mut Rng, parameters: &mut [f32], constants: &mut [f32]) {
        for (first, numbers) in [(1.0, parameters), (0.0, constants)] {
            let (a, b) = numbers.split_at_mut(self.channels);
            a.fill(first);
            b.fill(1.0 - first);
        }
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        if trace.mode == Mode::Train {
            trace.factor.reshape(&[trace.y.shape()[0], 2, self.channels])?;
            compute::batch_statistics(x.stack(), &mut trace.factor);
        }
        compute::batch_norm(self.norm(theta, x, trace.mode, &trace.factor), &mut trace.y);
        trace.activate(self.activation)
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        trace.times_slope(self.activation, g);
        let dx = dx.map(|dx| input_gradient(dx, g, self.channels * self.plane));
        let norm = self.norm(theta, x, trace.mode, &trace.factor);
        compute::batch_norm_vjp(norm, g, grad.matrix(0, 2, self.channels), dx);
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        let daffine = dtheta.map(|d| d.matrix(0, 2, self.channels));
        let norm = self.norm(theta, x, trace.mode, &trace.factor);
        compute::batch_norm_jvp(norm, [dx.map(Tensor::stack), daffine], t);
        trace.times_slope(self.activation, t);
        Ok(())
    }

    fn track(&self, trace: &Trace, share: f32, constants: &mut Gradient<'_>) {
        compute::running_average(share, &trace.factor, constants.matrix(0, 2, self.channels));
    }
}
