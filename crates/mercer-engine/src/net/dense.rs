//! The dense layer with its activation: `y = φ(x W + b)`.

use super::ntk::{Jacobian, Parameterisation};
use super::{Gradient, Layer, Piece, Trace, Weights};
use crate::Result;
use crate::compute::{self, Activation, Store, Tensor, gemm};
use crate::rng::Rng;

/// `y = φ(x W + b)`, `W` `[in, out]` with entries `N(0, w²/in)`, `b` `[out]` with entries `N(0, b²)`.
///
/// The activation belongs to the layer because the product, the bias, φ and φ' are then one pass over memory.
/// Parameters in order: W row by row, then b.
#[derive(Clone, Debug)]
pub struct Dense {
    /// Units coming in.
    pub inputs: usize,
    /// Units going out.
    pub outputs: usize,
    /// φ
    pub activation: Activation,
    /// `w`; without it, √2 before the ReLU family and 1 otherwise, so that signals keep their size through the layers.
    pub weight_std: Option<f64>,
    /// `b`; without it, `1/√(3·in)`.
    pub bias_std: Option<f64>,
}

impl Dense {
    fn weight_std(&self) -> f64 {
        let rectifies = matches!(self.activation, Activation::Relu | Activation::LeakyRelu | Activation::Gelu);
        self.weight_std.unwrap_or(if rectifies { std::f64::consts::SQRT_2 } else { 1.0 })
    }

    fn bias_std(&self) -> f64 {
        self.bias_std.unwrap_or_else(|| 1.0 / (3.0 * self.inputs as f64).sqrt())
    }

    /// Where the bias starts.
    fn bias_at(&self) -> usize {
        self.inputs * self.outputs
    }

    fn is_linear(&self) -> bool {
        self.activation == Activation::Identity
    }
}

impl Layer for Dense {
    fn outputs(&self) -> usize {
        self.outputs
    }

    fn parameters(&self) -> usize {
        self.bias_at() + self.outputs
    }

    fn multiply_adds(&self) -> usize {
        self.inputs * self.outputs
    }

    fn activation(&self) -> Activation {
        self.activation
    }

    fn branches(&self) -> bool {
        true
    }

    fn stem(&self) -> &'static str {
        "fc"
    }

    fn pieces(&self) -> Vec<Piece> {
        vec![
            Piece { transposed: true, ..Piece::trained("weight", 0, &[self.outputs, self.inputs]) },
            Piece::trained("bias", self.bias_at(), &[self.outputs]),
        ]
    }

    fn init(&self, rng: &mut Rng, parameters: &mut [f32], _: &mut [f32]) {
        let std = self.weight_std() / (self.inputs as f64).sqrt();
        let (weights, biases) = parameters.split_at_mut(self.bias_at());
        weights.iter_mut().for_each(|w| *w = (std * rng.normal()) as f32);
        biases.iter_mut().for_each(|b| *b = (self.bias_std() * rng.normal()) as f32);
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let slope = if self.is_linear() {
            None
        } else {
            trace.slope.reshape(trace.y.shape())?;
            Some(&mut trace.slope)
        };
        let w = theta.matrix(0, self.inputs, self.outputs);
        let bias = theta.matrix(self.bias_at(), 1, self.outputs);
        compute::dense(x.stack(), w, Some(bias), self.activation, &mut trace.y, slope);
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
        // With z = x W + b:  ∂z = g ∘ φ'(z),  ∂b = Σ_batch ∂z,  ∂W = xᵀ ∂z,  ∂x = ∂z Wᵀ.
        let slope = if self.is_linear() { None } else { Some(&trace.slope) };
        compute::activation_vjp(g, slope, Some(grad.matrix(self.bias_at(), 1, self.outputs)));
        gemm(1.0, x.stack().t(), g.stack(), Store::Replace, grad.matrix(0, self.inputs, self.outputs));
        if let Some(dx) = dx {
            let (networks, batch) = (g.shape()[0], g.shape()[1]);
            let own = dx.len() == networks * batch * self.inputs;
            let stride = if own { batch * self.inputs } else { 0 };
            let w = theta.matrix(0, self.inputs, self.outputs);
            gemm(1.0, g.stack(), w.t(), Store::Replace, dx.matrices_mut(0, stride, networks, batch, self.inputs));
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
        // ż = ẋ W + x Ẇ + ḃ,  t = φ'(z) ∘ ż.
        let mut store = Store::Replace;
        if let Some(dx) = dx {
            gemm(1.0, dx.stack(), theta.matrix(0, self.inputs, self.outputs), store, t.stack_mut());
            store = Store::Add;
        }
        match dtheta {
            Some(d) => gemm(1.0, x.stack(), d.matrix(0, self.inputs, self.outputs), store, t.stack_mut()),
            None if dx.is_none() => compute::fill(t, 0.0),
            None => {}
        }
        let bias = dtheta.map(|d| d.matrix(self.bias_at(), 1, self.outputs));
        compute::bias_slope(t, bias, if self.is_linear() { None } else { Some(&trace.slope) });
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
        // δ = g ∘ φ'(z),  ∂x = δ Wᵀ;  ∂W = a ⊗ δ and ∂b = δ stay factors.
        if !self.is_linear() {
            compute::multiply_each(&mut g, &trace.slope);
        }
        if let Some(dx) = dx {
            let &[c, batch, _] = g.shape() else { panic!("cotangents of shape {:?} are not [c, b, out]", g.shape()) };
            dx.reshape(&[c, batch, self.inputs])?;
            let (w, rows) = (theta.matrix(0, self.inputs, self.outputs), c * batch);
            let (delta, dx) = (g.matrices(0, 0, rows, self.outputs), dx.matrices_mut(0, 0, 1, rows, self.inputs));
            gemm(1.0, delta, w.t(), Store::Replace, dx);
        }
        let (weight, bias) = match parameterisation {
            Parameterisation::Standard => (1.0, 1.0),
            Parameterisation::Ntk => (self.weight_std().powi(2) / self.inputs as f64, self.bias_std().powi(2)),
        };
        Ok(Jacobian::Outer { a: x, delta: g, weight: weight as f32, bias: bias as f32 })
    }

    fn written_out(&self) -> usize {
        0
    }

    fn spread(&self, spread: &mut [f32]) {
        let (weights, biases) = spread.split_at_mut(self.bias_at());
        weights.fill((self.weight_std() / (self.inputs as f64).sqrt()) as f32);
        biases.fill(self.bias_std() as f32);
    }

    fn jet(&self, theta: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        gemm(1.0, x.stack(), theta.matrix(0, self.inputs, self.outputs), Store::Replace, y.stack_mut());
        compute::jet(self.activation, Some(theta.matrix(self.bias_at(), 1, self.outputs)), points, y);
        Ok(())
    }
}
