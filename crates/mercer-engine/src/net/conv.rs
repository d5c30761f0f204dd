//! The convolution with its activation: `y = φ(w ⋆ x + b)`.

use super::ntk::{Jacobian, Parameterisation};
use super::{Draw, Gradient, Layer, Pass, Piece, Trace, Weights, input_gradient, rectifies};
use crate::Result;
use crate::compute::{self, Activation, Convolution, Store, Tensor};
use crate::rng::Rng;

/// `y[o] = φ(Σ_c w[o, c] ⋆ x[c] + b[o])` on images stored channel by channel.
///
/// Filters `w` `[out, in, size, size]` have entries `N(0, w²/fan-in)` with fan-in `in·size²`, biases `N(0, b²)`; they are the
/// layer's parameters in that order. With `pad=same` and stride s, an image of height h becomes one of `⌈h/s⌉`: the frame of
/// zeros has `⌊(size−1)/2⌋` rows before and `⌊size/2⌋` after it, whatever the stride, as PyTorch's `padding=size//2` does
/// for odd sizes.
#[derive(Clone, Debug)]
pub struct Conv {
    /// The geometry.
    pub shape: Convolution,
    /// φ
    pub activation: Activation,
    /// `w`; without it, √2 before the ReLU family and before a norm, and 1 otherwise.
    pub weight_std: Option<f64>,
    /// Whether there is a bias.
    pub bias: bool,
    /// `b`; without it, `1/√(3·fan-in)`.
    pub bias_std: Option<f64>,
    /// Whether a batch norm comes next.
    pub before_norm: bool,
}

impl Conv {
    fn weights(&self) -> usize {
        self.shape.channels * self.shape.patch()
    }

    fn draw(&self) -> Draw {
        let lost = rectifies(self.activation) || self.before_norm;
        Draw::new(self.weights(), self.shape.patch(), self.weight_std, self.bias_std, lost)
    }

    fn filters<'a>(&self, theta: &Weights<'a>) -> compute::Stack<'a> {
        theta.matrix(0, self.shape.channels, self.shape.patch())
    }

    fn biases<'a>(&self, theta: &Weights<'a>) -> Option<compute::Stack<'a>> {
        self.bias.then(|| theta.matrix(self.weights(), 1, self.shape.channels))
    }
}

impl Layer for Conv {
    fn outputs(&self) -> usize {
        self.shape.channels * self.shape.out().iter().product::<usize>()
    }

    fn parameters(&self) -> usize {
        self.weights() + if self.bias { self.shape.channels } else { 0 }
    }

    fn multiply_adds(&self) -> usize {
        self.outputs() * self.shape.patch()
    }

    fn activation(&self) -> Activation {
        self.activation
    }

    fn branches(&self) -> bool {
        true
    }

    fn sees_images(&self) -> bool {
        true
    }

    fn stem(&self) -> &'static str {
        "conv"
    }

    fn pieces(&self) -> Vec<Piece> {
        let Convolution { image: [channels, ..], channels: out, size, .. } = self.shape;
        let mut pieces = vec![Piece::trained("weight", 0, &[out, channels, size, size])];
        if self.bias {
            pieces.push(Piece::trained("bias", self.weights(), &[out]));
        }
        pieces
    }

    fn init(&self, rng: &mut Rng, parameters: &mut [f32], _: &mut [f32]) {
        self.draw().init(rng, parameters);
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let (w, bias, (y, slope)) = (self.filters(theta), self.biases(theta), trace.with_slope(self.activation)?);
        compute::conv2d(&self.shape, x.stack(), w, bias, self.activation, Store::Replace, y, slope);
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        // With z = w ⋆ x + b:  ∂z = g ∘ φ'(z),  ∂b = Σ_{batch, plane} ∂z,  and the two adjoints of w ⋆ x.
        if !self.is_linear() {
            compute::multiply(g, &trace.slope);
        }
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

    fn jacobian<'a>(
        &self,
        theta: &Weights<'_>,
        x: &'a Tensor,
        trace: &Trace,
        mut g: Tensor,
        dx: Option<&mut Tensor>,
        parameterisation: Parameterisation,
    ) -> Result<Jacobian<'a>> {
        // δ = g ∘ φ'(z);  ∂x is its adjoint with all c·b cotangents as one batch, for they share the filters.
        if !self.is_linear() {
            compute::multiply_each(&mut g, &trace.slope);
        }
        let &[c, b, out] = g.shape() else { panic!("cotangents of shape {:?} are not [c, b, out]", g.shape()) };
        let (rows, p, pixels) = (c * b, self.parameters(), self.shape.image.iter().product());
        if let Some(dx) = dx {
            g.reshape(&[1, rows, out])?;
            dx.reshape(&[c, b, pixels])?;
            let filters = self.filters(theta);
            compute::conv2d_vjp_input(&self.shape, &g, filters, dx.matrices_mut(0, 0, 1, rows, pixels));
        }
        // ∂w at (c, n) is δ_n^c ⋆ x_n: every pair is a network of its own with a batch of one image.
        let repeated: Vec<usize> = (0..c).flat_map(|_| 0..b).collect();
        let mut images = Tensor::zeros(g.device(), &[0])?;
        compute::gather_rows(x, &repeated, &mut images)?;
        images.reshape(&[rows, 1, pixels])?;
        g.reshape(&[rows, 1, out])?;
        let mut jacobian = Tensor::zeros(g.device(), &[1, rows, p])?;
        let (channels, patch) = (self.shape.channels, self.shape.patch());
        compute::conv2d_vjp_weights(
            &self.shape,
            images.stack(),
            &g,
            jacobian.matrices_mut(0, p, rows, channels, patch),
        );
        if self.bias {
            compute::channel_sums(&g, jacobian.matrices_mut(self.weights(), p, rows, 1, channels));
        }
        Jacobian::rows(self, jacobian, [c, b], parameterisation)
    }

    fn spread(&self, spread: &mut [f32]) {
        self.draw().spread(spread);
    }
}
