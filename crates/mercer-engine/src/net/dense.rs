//! The dense layer with its activation: `y = φ(x W + b)`.

use super::ntk::{Jacobian, Parameterisation};
use super::{Draw, Gradient, Layer, Pass, Piece, Trace, Weights, input_gradient, rectifies};
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
    fn draw(&self) -> Draw {
        Draw::new(self.bias_at(), self.inputs, self.weight_std, self.bias_std, rectifies(self.activation))
    }

    fn matrix<'a>(&self, theta: &Weights<'a>) -> compute::Stack<'a> {
        theta.matrix(0, self.inputs, self.outputs)
    }

    fn bias<'a>(&self, theta: &Weights<'a>) -> compute::Stack<'a> {
        theta.matrix(self.bias_at(), 1, self.outputs)
    }

    /// Where the bias starts.
    fn bias_at(&self) -> usize {
        self.inputs * self.outputs
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
        self.draw().init(rng, parameters);
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let (y, slope) = trace.with_slope(self.activation)?;
        compute::dense(x.stack(), self.matrix(theta), Some(self.bias(theta)), self.activation, y, slope);
        Ok(())
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        // With z = x W + b:  ∂z = g ∘ φ'(z),  ∂b = Σ_batch ∂z,  ∂W = xᵀ ∂z,  ∂x = ∂z Wᵀ.
        let bias = grad.matrix(self.bias_at(), 1, self.outputs);
        compute::activation_vjp(g, trace.slope(self.activation), Some(bias));
        gemm(1.0, x.stack().t(), g.stack(), Store::Replace, grad.matrix(0, self.inputs, self.outputs));
        if let Some(dx) = dx {
            let dx = input_gradient(dx, g, self.inputs);
            gemm(1.0, g.stack(), self.matrix(theta).t(), Store::Replace, dx);
        }
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
        compute::bias_slope(t, dtheta.map(|d| self.bias(d)), trace.slope(self.activation));
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
            let (w, rows) = (self.matrix(theta), c * batch);
            let (delta, dx) = (g.matrices(0, 0, rows, self.outputs), dx.matrices_mut(0, 0, 1, rows, self.inputs));
            gemm(1.0, delta, w.t(), Store::Replace, dx);
        }
        let (weight, bias) = match parameterisation {
            Parameterisation::Standard => (1.0, 1.0),
            Parameterisation::Ntk => (self.draw().gain.powi(2) / self.inputs as f64, self.draw().bias_std.powi(2)),
        };
        Ok(Jacobian::Outer { a: x, delta: g, weight: weight as f32, bias: bias as f32 })
    }

    fn written_out(&self) -> usize {
        0
    }

    fn spread(&self, spread: &mut [f32]) {
        self.draw().spread(spread);
    }

    fn jet(&self, theta: &Weights<'_>, x: &Tensor, points: usize, y: &mut Tensor) -> Result<()> {
        gemm(1.0, x.stack(), self.matrix(theta), Store::Replace, y.stack_mut());
        compute::jet(self.activation, Some(self.bias(theta)), points, y);
        Ok(())
    }
}
