//! The convolution with its activation: `y = φ(w ⋆ x + b)`.

use super::ntk::{Convolved, Evaluated, Jacobian};
use super::{Draw, Facts, Gradient, Layer, Part, Pass, Piece, Trace, WeightSpec, Weights, gain, input_gradient};
use crate::Result;
use crate::compute::{self, Activation, Convolution, Store, Tensor};

/// `y[o] = φ(Σ_c w[o, c] ⋆ x[c] + b[o])` on images stored channel by channel.
///
/// Filters `w` `[out, in, size, size]` have entries `N(0, w²/fan-in)` with fan-in `in·size²`, biases `N(0, b²)`; they are the
/// layer's parameters in that order. [`super::Window`] says where the windows lie.
#[derive(Clone, Debug)]
pub struct Conv {
    pub shape: Convolution,
    pub activation: Activation,
    /// `w` and `b`; without them, see [`Draw::new`].
    pub spec: WeightSpec,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether a batch norm comes next, which takes half of the signal away as the ReLU family does.
    pub before_norm: bool,
}

impl Conv {
    fn weights(&self) -> usize {
        self.shape.channels * self.shape.patch()
    }

    fn filters<'a>(&self, theta: &Weights<'a>) -> compute::Stack<'a> {
        theta.matrix(0, self.shape.channels, self.shape.patch())
    }

    fn biases<'a>(&self, theta: &Weights<'a>) -> Option<compute::Stack<'a>> {
        self.bias.then(|| theta.matrix(self.weights(), 1, self.shape.channels))
    }
}

impl Layer for Conv {
    fn facts(&self) -> Facts {
        let outputs = self.shape.channels * self.shape.out().iter().product::<usize>();
        Facts {
            outputs,
            parameters: self.weights() + if self.bias { self.shape.channels } else { 0 },
            multiply_adds: outputs * self.shape.patch(),
            branches: true,
            sees_images: true,
            activated: self.activation != Activation::Identity,
            stem: "conv",
            ..Facts::default()
        }
    }

    fn pieces(&self) -> Vec<Piece> {
        let Convolution { image: [channels, ..], channels: out, size, .. } = self.shape;
        let mut pieces = vec![Piece::trained("weight", 0, &[out, channels, size, size])];
        if self.bias {
            pieces.push(Piece::trained("bias", self.weights(), &[out]));
        }
        pieces
    }

    fn part(&self) -> Part<'_> {
        Part::Conv(self)
    }

    fn draw(&self) -> Option<Draw> {
        let gain = if self.before_norm { std::f64::consts::SQRT_2 } else { gain(self.activation) };
        Some(Draw::new(self.weights(), self.shape.patch(), self.spec, gain))
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let (w, bias, (y, slope)) = (self.filters(theta), self.biases(theta), trace.with_slope(self.activation)?);
        compute::conv2d(&self.shape, x.stack(), w, bias, self.activation, Store::Replace, y, slope);
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        // With z = w ⋆ x + b:  ∂z = g ∘ φ'(z),  ∂b = Σ_{batch, plane} ∂z,  and the two adjoints of w ⋆ x.
        trace.times_slope(self.activation, g);
        if self.bias {
            compute::channel_sums(g, grad.matrix(self.weights(), 1, self.shape.channels));
        }
        let (channels, patch) = (self.shape.channels, self.shape.patch());
        compute::conv2d_vjp_weights(&self.shape, x.stack(), g, grad.matrix(0, channels, patch));
        if let Some(dx) = dx {
            let pixels = self.shape.image.iter().product();
            compute::conv2d_vjp_input(&self.shape, g, self.filters(theta), input_gradient(dx, g, pixels));
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        // ż = w ⋆ ẋ + ẇ ⋆ x + ḃ,  t = φ'(z) ∘ ż.
        let linear = Activation::Identity;
        let mut store = Store::Replace;
        if let Some(dx) = dx {
            compute::conv2d(&self.shape, dx.stack(), self.filters(theta), None, linear, store, t, None);
            store = Store::Add;
        }
        match dtheta {
            Some(d) => compute::conv2d(&self.shape, x.stack(), self.filters(d), None, linear, store, t, None),
            None if dx.is_none() => compute::fill(t, 0.0),
            None => {}
        }
        compute::bias_slope(t, dtheta.and_then(|d| self.biases(d)), trace.slope(self.activation));
        Ok(())
    }

    fn jacobian<'a>(&self, at: &Evaluated<'a, '_>, mut g: Tensor, dx: Option<&mut Tensor>) -> Result<Jacobian<'a>> {
        // δ = g ∘ φ'(z);  ∂x is its adjoint with all c·b cotangents as one batch, for they share the filters.
        at.times_slope(self.activation, &mut g);
        let &[c, b, out] = g.shape() else { panic!("cotangents of shape {:?} are not [c, b, out]", g.shape()) };
        if let Some(dx) = dx {
            let (rows, pixels) = (c * b, self.shape.image.iter().product());
            g.reshape(&[1, rows, out])?;
            dx.reshape(&[c, b, pixels])?;
            let filters = self.filters(&at.theta);
            compute::conv2d_vjp_input(&self.shape, &g, filters, dx.matrices_mut(0, 0, 1, rows, pixels));
            g.reshape(&[c, b, out])?;
        }
        // ∂w at (c, n) is δ_n^c ⋆ x_n.
        let spread = at.parameterisation.spread(self, g.device())?;
        Ok(Jacobian::Convolved(Convolved { shape: self.shape, a: at.x, delta: g, bias: self.bias, spread }))
    }
}
