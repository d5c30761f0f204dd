//! The dense layer with its activation: `y = φ(x W + b)`.

use super::ntk::{Evaluated, Jacobian, Parameterisation};
use super::{Draw, Facts, Gradient, Kept, Layer, Pass, Piece, Trace, WeightSpec, Weights, gain, input_gradient_of};
use crate::Result;
use crate::compute::{self, Activation, Hidden, Stack, Store, Tensor, gemm};

/// `y = φ(x W + b)`, `W` `[in, out]` with entries `N(0, w²/in)`, `b` `[out]` with entries `N(0, b²)`, or without b.
///
/// The activation belongs to the layer because the product, the bias, φ and φ' are then one pass over memory.
/// Parameters in order: W row by row, then b.
#[derive(Clone, Debug)]
pub struct Dense {
    pub inputs: usize,
    pub outputs: usize,
    pub activation: Activation,
    /// `w` and `b`; without them, see [`Draw::new`].
    pub spec: WeightSpec,
}

impl Dense {
    pub(super) fn matrix<'a>(&self, theta: &Weights<'a>) -> Stack<'a> {
        theta.matrix(0, self.inputs, self.outputs)
    }

    pub(super) fn is_activated(&self) -> bool {
        self.activation != Activation::Identity
    }

    fn has_bias(&self) -> bool {
        !self.spec.without_bias()
    }

    /// Where the bias starts, if there is one.
    pub(super) fn bias_place(&self) -> Option<usize> {
        self.has_bias().then(|| self.bias_at())
    }

    pub(super) fn bias<'a>(&self, theta: &Weights<'a>) -> Option<Stack<'a>> {
        self.bias_place().map(|at| theta.matrix(at, 1, self.outputs))
    }

    /// Where the bias starts.
    fn bias_at(&self) -> usize {
        self.inputs * self.outputs
    }

    /// `z ← x W` `[networks, b, out]`, for `x` `[b, in]` or `[networks, b, in]`.
    pub(super) fn product(&self, theta: &Weights<'_>, x: &Tensor, networks: usize, z: &mut Tensor) -> Result<()> {
        let batch = x.stack().rows();
        z.reshape(&[networks, batch, self.outputs])?;
        gemm(1.0, x.stack(), self.matrix(theta), Store::Replace, z.stack_mut());
        Ok(())
    }

    /// Back through it from the gradient dz of several networks: `∂W = xᵀ ∂z` and, where asked for, `∂x = ∂z Wᵀ`.
    fn product_vjp(
        &self,
        theta: &Weights<'_>,
        x: &Tensor,
        (networks, dz): (usize, Stack<'_>),
        grad: &mut Gradient<'_>,
        dx: Option<&mut Tensor>,
    ) {
        gemm(1.0, x.stack().t(), dz, Store::Replace, grad.matrix(0, self.inputs, self.outputs));
        if let Some(dx) = dx {
            let dx = input_gradient_of(dx, [networks, dz.rows(), self.inputs]);
            gemm(1.0, dz, self.matrix(theta).t(), Store::Replace, dx);
        }
    }

    /// Back through the activation of a layer that kept `z`: from `g` `[k, b, out]` to `dz`, and the gradient of the bias.
    pub(super) fn activation_vjp(
        &self,
        theta: &Weights<'_>,
        z: &Tensor,
        g: &Tensor,
        dz: &mut Tensor,
        grad: &mut Gradient<'_>,
    ) -> Result<()> {
        let bias = self.bias_place().map(|at| grad.matrix(at, 1, self.outputs));
        self.hidden(theta, z).vjp(g, dz, bias)
    }

    /// The rest of the way back, from the `dz` that [`Dense::activation_vjp`] or a head wrote.
    pub(super) fn units_vjp(
        &self,
        theta: &Weights<'_>,
        x: &Tensor,
        z: &Tensor,
        dz: &Tensor,
        grad: &mut Gradient<'_>,
        dx: Option<&mut Tensor>,
    ) {
        self.product_vjp(theta, x, (dz.shape()[0], self.hidden(theta, z).gradient(dz)), grad, dx);
    }

    /// Its units before the activation, which were kept as `z`.
    pub(super) fn hidden<'a>(&self, theta: &Weights<'a>, z: &'a Tensor) -> Hidden<'a> {
        Hidden { z, bias: self.bias(theta), phi: self.activation }
    }
}

impl Layer for Dense {
    fn facts(&self) -> Facts {
        Facts {
            outputs: self.outputs,
            parameters: self.bias_at() + if self.has_bias() { self.outputs } else { 0 },
            multiply_adds: self.bias_at(),
            branches: true,
            activated: self.is_activated(),
            stem: "fc",
            ..Facts::default()
        }
    }

    fn pieces(&self) -> Vec<Piece> {
        let weight = Piece { transposed: true, ..Piece::trained("weight", 0, &[self.outputs, self.inputs]) };
        let bias = self.bias_place().map(|at| Piece::trained("bias", at, &[self.outputs]));
        std::iter::once(weight).chain(bias).collect()
    }

    fn draw(&self) -> Option<Draw> {
        Some(Draw::new(self.bias_at(), self.inputs, self.spec, gain(self.activation)))
    }

    fn dense(&self) -> Option<&Dense> {
        Some(self)
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        if trace.kept == Kept::Units && self.is_activated() {
            self.product(theta, x, trace.y.shape()[0], &mut trace.slope)?;
            return self.hidden(theta, &trace.slope).values(&mut trace.y);
        }
        let (y, slope) = trace.with_slope(self.activation)?;
        compute::dense(x.stack(), self.matrix(theta), self.bias(theta), self.activation, y, slope);
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        // With z = x W + b:  ∂z = g ∘ φ'(z),  ∂b = Σ_batch ∂z,  ∂W = xᵀ ∂z,  ∂x = ∂z Wᵀ.
        let bias = self.bias_place().map(|at| grad.matrix(at, 1, self.outputs));
        compute::activation_vjp(g, trace.slope(self.activation), bias);
        self.product_vjp(theta, x, (g.shape()[0], g.stack()), grad, dx);
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        // ż = ẋ W + x Ẇ + ḃ,  t = φ'(z) ∘ ż.
        let mut store = Store::Replace;
        if let Some(dx) = dx {
            gemm(1.0, dx.stack(), self.matrix(theta), store, t.stack_mut());
            store = Store::Add;
        }
        match dtheta {
            Some(d) => gemm(1.0, x.stack(), self.matrix(d), store, t.stack_mut()),
            None if dx.is_none() => compute::fill(t, 0.0),
            None => {}
        }
        compute::bias_slope(t, dtheta.and_then(|d| self.bias(d)), trace.slope(self.activation));
        Ok(())
    }

    fn jacobian<'a>(&self, at: &Evaluated<'a, '_>, mut g: Tensor, dx: Option<&mut Tensor>) -> Result<Jacobian<'a>> {
        // δ = g ∘ φ'(z),  ∂x = δ Wᵀ;  ∂W = a ⊗ δ and ∂b = δ stay factors.
        at.times_slope(self.activation, &mut g);
        if let Some(dx) = dx {
            let &[c, batch, _] = g.shape() else { panic!("cotangents of shape {:?} are not [c, b, out]", g.shape()) };
            dx.reshape(&[c, batch, self.inputs])?;
            let (w, rows) = (self.matrix(&at.theta), c * batch);
            let (delta, dx) = (g.matrices(0, 0, rows, self.outputs), dx.matrices_mut(0, 0, 1, rows, self.inputs));
            gemm(1.0, delta, w.t(), Store::Replace, dx);
        }
        let (weight, bias) = match (at.parameterisation, self.draw()) {
            (Parameterisation::Ntk, Some(draw)) => (draw.gain.powi(2) / self.inputs as f64, draw.bias_std.powi(2)),
            _ => (1.0, if self.has_bias() { 1.0 } else { 0.0 }),
        };
        Ok(Jacobian::Outer { a: at.x, delta: g, weight: weight as f32, bias: bias as f32 })
    }

    fn written_out(&self) -> usize {
        0
    }

    fn jet(&self, theta: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        gemm(1.0, x.stack(), self.matrix(theta), Store::Replace, y.stack_mut());
        compute::jet(self.activation, self.bias(theta), points, y);
        Ok(())
    }
}
