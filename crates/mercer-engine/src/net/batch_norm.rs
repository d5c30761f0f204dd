//! Batch norm with its activation: `y = φ(γ (x − μ)/√(σ² + ε) + β)` for every channel.

use super::{Facts, Gradient, Layer, Mode, Pass, Piece, Trace, Weights, input_gradient};
use crate::Result;
use crate::compute::{self, Activation, Stack, Tensor};
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
    /// μ and σ² that the forward pass used.
    fn statistics<'a>(&self, theta: &Weights<'a>, mode: Mode, of_batch: &'a Tensor) -> Stack<'a> {
        match mode {
            Mode::Train => of_batch.stack(),
            Mode::Eval => theta.constant(2, self.channels),
        }
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
        let statistics = self.statistics(theta, trace.mode, &trace.factor);
        compute::batch_norm(x.stack(), statistics, theta.matrix(0, 2, self.channels), &mut trace.y);
        trace.activate(self.activation)
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        trace.times_slope(self.activation, g);
        let dx = dx.map(|dx| input_gradient(dx, g, self.channels * self.plane));
        let (statistics, affine) =
            (self.statistics(theta, trace.mode, &trace.factor), theta.matrix(0, 2, self.channels));
        let of_batch = trace.mode == Mode::Train;
        compute::batch_norm_vjp(x.stack(), statistics, affine, of_batch, g, grad.matrix(0, 2, self.channels), dx);
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        let (statistics, affine) =
            (self.statistics(theta, trace.mode, &trace.factor), theta.matrix(0, 2, self.channels));
        let daffine = dtheta.map(|d| d.matrix(0, 2, self.channels));
        let of_batch = trace.mode == Mode::Train;
        compute::batch_norm_jvp(x.stack(), dx.map(Tensor::stack), statistics, affine, daffine, of_batch, t);
        trace.times_slope(self.activation, t);
        Ok(())
    }

    fn track(&self, trace: &Trace, share: f32, constants: &mut Gradient<'_>) {
        compute::running_average(share, &trace.factor, constants.matrix(0, 2, self.channels));
    }
}
