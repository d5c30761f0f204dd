//! The convolution with its activation: `y = φ(w ⋆ x + b)`.

use super::ntk::{Jacobian, Parameterisation};
use super::{Gradient, Layer, Piece, Trace, Weights};
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

    fn is_linear(&self) -> bool {
        self.activation == Activation::Identity
    }

    fn weight_std(&self) -> f64 {
        let rectifies = matches!(self.activation, Activation::Relu | Activation::LeakyRelu | Activation::Gelu);
        self.weight_std.unwrap_or(if rectifies || self.before_norm { std::f64::consts::SQRT_2 } else { 1.0 })
    }

    /// Standard deviations that a weight and a bias are drawn with.
    fn stds(&self) -> [f64; 2] {
        let fan_in = self.shape.patch() as f64;
        [self.weight_std() / fan_in.sqrt(), self.bias_std.unwrap_or_else(|| 1.0 / (3.0 * fan_in).sqrt())]
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
        let [std, bias_std] = self.stds();
        let (weights, biases) = parameters.split_at_mut(self.weights());
        weights.iter_mut().for_each(|w| *w = (std * rng.normal()) as f32);
        biases.iter_mut().for_each(|b| *b = (bias_std * rng.normal()) as f32);
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let slope = if self.is_linear() {
            None
        } else {
            trace.slope.reshape(trace.y.shape())?;
            Some(&mut trace.slope)
        };
        let (w, bias) = (self.filters(theta), self.biases(theta));
        compute::conv2d(&self.shape, x.stack(), w, bias, self.activation, Store::Replace, &mut trace.y, slope);
        Ok(())
    }

    fn vjp(
        &self,
        theta: &Weights<'_>,
        x: &Tensor,
        trace: &mut Trace,
        g: &mut Tensor,
        grad: &mut Gradient<'_>,
        dx: Option<&mut Tensor>,
    ) -> Result<()> {
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
            let (networks, batch) = (g.shape()[0], g.shape()[1]);
            let pixels = self.shape.image.iter().product::<usize>();
            let own = dx.len() == networks * batch * pixels;
            let dx = dx.matrices_mut(0, if own { batch * pixels } else { 0 }, networks, batch, pixels);
            compute::conv2d_vjp_input(&self.shape, g, self.filters(theta), dx);
        }
        Ok(())
    }

    fn jvp(
        &self,
        theta: &Weights<'_>,
        dtheta: Option<&Weights<'_>>,
        x: &Tensor,
        dx: Option<&Tensor>,
        trace: &mut Trace,
        t: &mut Tensor,
    ) -> Result<()> {
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
        let slope = if self.is_linear() { None } else { Some(&trace.slope) };
        compute::channel_bias_slope(t, dtheta.and_then(|d| self.biases(d)), slope);
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
        if parameterisation == Parameterisation::Ntk {
            let mut spread = vec![0.0; p];
            self.spread(&mut spread);
            compute::scale_columns(&mut jacobian, Tensor::from_host(g.device(), &[1, p], &spread)?.stack());
        }
        jacobian.reshape(&[c, b, p])?;
        Ok(Jacobian::Rows(jacobian))
    }

    fn spread(&self, spread: &mut [f32]) {
        let ([std, bias_std], (weights, biases)) = (self.stds(), spread.split_at_mut(self.weights()));
        weights.fill(std as f32);
        biases.fill(bias_std as f32);
    }
}

impl Conv {
    fn filters<'a>(&self, theta: &Weights<'a>) -> compute::Stack<'a> {
        theta.matrix(0, self.shape.channels, self.shape.patch())
    }

    fn biases<'a>(&self, theta: &Weights<'a>) -> Option<compute::Stack<'a>> {
        self.bias.then(|| theta.matrix(self.weights(), 1, self.shape.channels))
    }
}
