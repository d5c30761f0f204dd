//! Layer norm: `y = γ ∘ (x − μ)/√(σ² + ε) + β`, with the mean μ and variance σ² of the units of each point.

use super::{Facts, Gradient, Layer, Pass, Piece, Trace, Weights, input_gradient};
use crate::Result;
use crate::compute::{self, Normalized, Stack, Tensor};
use crate::rng::Rng;

/// Every point shifted and scaled by the mean and variance of its own units, in either [`super::Mode`]; then every unit by numbers
/// of its own. Parameters: γ, then β.
///
/// The first half is a batch norm in which the points are the channels, and their units the planes.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    pub width: usize,
    /// What γ and β look like in a file: `[width]`, or `[channels, height, width]` of images.
    pub shape: Vec<usize>,
}

impl LayerNorm {
    fn gamma<'a>(&self, theta: &Weights<'a>) -> Stack<'a> {
        theta.matrix(0, 1, self.width)
    }

    fn beta<'a>(&self, theta: &Weights<'a>) -> Stack<'a> {
        theta.matrix(self.width, 1, self.width)
    }

    /// `x` `[k, b, width]`, or shared by the networks, as one row of b channels each.
    fn points<'a>(&self, x: &'a Tensor, points: usize) -> Stack<'a> {
        let all = points * self.width;
        x.matrices(0, if x.len() == all { 0 } else { all }, 1, all)
    }

    /// The points `x` and their statistics `[k, 2, b]`.
    fn norm<'a>(&self, x: &'a Tensor, statistics: &'a Tensor) -> Normalized<'a> {
        let x = self.points(x, statistics.shape()[2]);
        Normalized { x, statistics: statistics.stack(), affine: None, of_batch: true }
    }

    /// `x̂ = (x − μ)/√(σ² + ε)` into `y`, which gets the shape `[k, b, width]`.
    fn normalize(&self, x: &Tensor, statistics: &Tensor, y: &mut Tensor) -> Result<()> {
        let [networks, points] = [0, 2].map(|axis| statistics.shape()[axis]);
        y.reshape(&[networks, 1, points * self.width])?;
        compute::batch_norm(self.norm(x, statistics), y);
        y.reshape(&[networks, points, self.width])
    }
}

impl Layer for LayerNorm {
    fn facts(&self) -> Facts {
        Facts { outputs: self.width, parameters: 2 * self.width, branches: true, stem: "ln", ..Facts::default() }
    }

    fn pieces(&self) -> Vec<Piece> {
        vec![Piece::trained("weight", 0, &self.shape), Piece::trained("bias", self.width, &self.shape)]
    }

    fn init(&self, _: &mut Rng, parameters: &mut [f32], _: &mut [f32]) {
        let (gamma, beta) = parameters.split_at_mut(self.width);
        gamma.fill(1.0);
        beta.fill(0.0);
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let (networks, points) = (trace.y.shape()[0], trace.y.shape()[1]);
        trace.factor.reshape(&[networks, 2, points])?;
        compute::batch_statistics(self.points(x, points), &mut trace.factor);
        self.normalize(x, &trace.factor, &mut trace.y)?;
        compute::scale_columns(&mut trace.y, self.gamma(theta));
        compute::bias_slope(&mut trace.y, Some(self.beta(theta)), None);
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        let [networks, points] = [0, 2].map(|axis| trace.factor.shape()[axis]);
        // ∂β = Σ_points g,  ∂γ = Σ_points g ∘ x̂,  and ∂x̂ = g ∘ γ goes back through the norm.
        compute::activation_vjp(g, None, Some(grad.matrix(self.width, 1, self.width)));
        let Trace { factor, slope: product, work: sums, .. } = trace;
        self.normalize(x, factor, product)?;
        compute::activation_vjp(product, Some(g), Some(grad.matrix(0, 1, self.width)));
        if let Some(dx) = dx {
            compute::scale_columns(g, self.gamma(theta));
            g.reshape(&[networks, 1, points * self.width])?;
            sums.reshape(&[networks, 2, points])?;
            let dx = input_gradient(dx, g, points * self.width);
            compute::batch_norm_vjp(self.norm(x, factor), g, sums.stack_mut(), Some(dx));
            g.reshape(&[networks, points, self.width])?;
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        let [networks, points] = [0, 2].map(|axis| trace.factor.shape()[axis]);
        // t = γ ∘ (∂x̂/∂x) ẋ + γ̇ ∘ x̂ + β̇.
        t.reshape(&[networks, 1, points * self.width])?;
        let moved = dx.map(|dx| self.points(dx, points));
        compute::batch_norm_jvp(self.norm(x, &trace.factor), [moved, None], t);
        t.reshape(&[networks, points, self.width])?;
        compute::scale_columns(t, self.gamma(theta));
        if let Some(dtheta) = dtheta {
            let Trace { factor, slope: hat, .. } = trace;
            self.normalize(x, factor, hat)?;
            compute::scale_columns(hat, self.gamma(dtheta));
            compute::axpy(1.0, hat, t);
            compute::bias_slope(t, Some(self.beta(dtheta)), None);
        }
        Ok(())
    }
}
