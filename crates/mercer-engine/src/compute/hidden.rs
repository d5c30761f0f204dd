//! Hidden units that are kept before their activation: φ and φ' are found from them again where they are needed, so that a layer
//! writes one tensor where it would write its values and their slopes.

use super::activation::{activation_vjp, bias_activation};
use super::cuda::hidden as cuda;
use super::elementwise::copy;
use super::formula::Activation;
use super::gemm::{Store, gemm};
use super::stack::{Stack, StackMut};
use super::tensor::{Tensor, on_gpu};
use crate::Result;

/// Units `u = z + b` before their activation φ.
#[derive(Clone, Copy, Debug)]
pub struct Hidden<'a> {
    /// `[k, rows, n]`
    pub z: &'a Tensor,
    /// `[k, 1, n]`
    pub bias: Option<Stack<'a>>,
    /// φ
    pub phi: Activation,
}

/// Where the gradients of a head go in a flat tensor: those of network j start at `w + j·stride` and `bias + j·stride`.
#[derive(Debug)]
pub struct HeadGradient<'a> {
    /// The gradient of all parameters.
    pub tensor: &'a mut Tensor,
    /// Numbers from one network to the next.
    pub stride: usize,
    /// The weights of the head, n of each network.
    pub w: usize,
    /// The biases of the hidden units, n of each network.
    pub bias: Option<usize>,
}

impl HeadGradient<'_> {
    /// Panics unless the vectors of `n` numbers of each of `count` networks lie within the tensor and do not overlap.
    fn check(&mut self, count: usize, n: usize) {
        let HeadGradient { ref mut tensor, stride, w, bias } = *self;
        let (first, both) = bias.map_or((w, n), |bias| (w.min(bias), w.abs_diff(bias) + n));
        assert!(bias.is_none_or(|bias| w.abs_diff(bias) >= n), "the gradients of a head of {n} units overlap");
        tensor.matrices_mut(first, stride, count, 1, both);
    }
}

impl Hidden<'_> {
    /// `y ← φ(u)` `[k, rows, n]`.
    ///
    /// ```
    /// use mercer_engine::compute::{Activation, Device, Hidden, Tensor};
    ///
    /// let z = Tensor::from_host(Device::Cpu, &[1, 2, 2], &[-1.0, 2.0, 3.0, -4.0])?;
    /// let mut y = z.clone();
    /// Hidden { z: &z, bias: None, phi: Activation::Relu }.values(&mut y)?;
    /// assert_eq!(y.to_host()?, [0.0, 2.0, 3.0, 0.0]);
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn values(&self, y: &mut Tensor) -> Result<()> {
        y.reshape(self.z.shape())?;
        self.check();
        on_gpu!(y, |gpu| {
            cuda::values(gpu, self, y);
            Ok(())
        });
        copy(self.z, y);
        bias_activation(self.bias, self.phi, y, None);
        Ok(())
    }

    /// Back through `y = φ(u)` from `g` `[k, rows, n]`: `dz ← g ∘ φ'(u)`, which [`Hidden::gradient`] reads, and the bias's gradient
    /// `Σ_rows dz` `[k, 1, n]`.
    pub fn vjp(&self, g: &Tensor, dz: &mut Tensor, bias_grad: Option<StackMut<'_>>) -> Result<()> {
        let (count, _, n) = self.check();
        assert!(g.shape() == self.z.shape(), "hidden units {} and a gradient {g}", self.z);
        assert!(
            bias_grad.as_ref().is_none_or(|b| b.count == count && b.rows * b.cols == n),
            "the gradient of the bias"
        );
        self.shape_gradient(dz)?;
        on_gpu!(g, |gpu| {
            cuda::vjp(gpu, self, g, dz, bias_grad.as_ref());
            Ok(())
        });
        let [_, slope] = self.both()?;
        copy(g, dz);
        activation_vjp(dz, Some(&slope), bias_grad);
        Ok(())
    }

    /// A gradient by the units `[k, rows, n]`, as [`Hidden::vjp`] and [`Hidden::head_vjp`] write it into `dz`: where the device multiplies
    /// them faster so, every matrix is stored transposed.
    pub fn gradient<'a>(&self, dz: &'a Tensor) -> Stack<'a> {
        if self.turned() { dz.stack().t() } else { dz.stack() }
    }

    /// Whether gradients are stored transposed.
    fn turned(&self) -> bool {
        self.z.gpu().is_some_and(|gpu| cuda::turned(gpu, self.z.as_matrices()))
    }

    fn shape_gradient(&self, dz: &mut Tensor) -> Result<()> {
        let (count, m, n) = self.z.as_matrices();
        dz.reshape(&if self.turned() { [count, n, m] } else { [count, m, n] })
    }

    /// One unit on top: `y ← φ(u) w + b'` `[k, rows, 1]` for `w` `[k, n, 1]` and `b'` `[k, 1, 1]`.
    pub fn head(&self, w: Stack<'_>, bias: Option<Stack<'_>>, y: &mut Tensor) -> Result<()> {
        let (count, m, n) = self.check();
        assert!(w.rows() * w.cols() == n && bias.is_none_or(|b| b.rows * b.cols == 1), "a head {w} on {n} units");
        [Some(w), bias].iter().flatten().for_each(|stack| stack.check(count));
        y.reshape(&[count, m, 1])?;
        on_gpu!(y, |gpu| {
            cuda::head(gpu, self, w, bias, y);
            Ok(())
        });
        let [value, _] = self.both()?;
        gemm(1.0, value.stack(), w, Store::Replace, y.stack_mut());
        bias_activation(bias, Activation::Identity, y, None);
        Ok(())
    }

    /// Back through [`Hidden::head`] from `g` `[k, rows, 1]`: `dz ← g wᵀ ∘ φ'(u)`, which [`Hidden::gradient`] reads, and into `grad` the
    /// gradient of w, `φ(u)ᵀ g`, and that of the bias of the units, `Σ_rows dz`.
    pub fn head_vjp(&self, w: Stack<'_>, g: &Tensor, dz: &mut Tensor, mut grad: HeadGradient<'_>) -> Result<()> {
        let (count, m, n) = self.check();
        assert!(w.rows() * w.cols() == n && g.len() == count * m, "a gradient {g} of a head {w} on {}", self.z);
        w.check(count);
        grad.check(count, n);
        self.shape_gradient(dz)?;
        on_gpu!(g, |gpu| {
            cuda::head_vjp(gpu, self, w, g, dz, &grad);
            Ok(())
        });
        let [value, slope] = self.both()?;
        gemm(
            1.0,
            value.stack().t(),
            g.stack(),
            Store::Replace,
            grad.tensor.matrices_mut(grad.w, grad.stride, count, n, 1),
        );
        gemm(1.0, g.stack(), w.t(), Store::Replace, dz.stack_mut());
        activation_vjp(dz, Some(&slope), grad.bias.map(|at| grad.tensor.matrices_mut(at, grad.stride, count, 1, n)));
        Ok(())
    }

    /// `(k, rows, n)`, after a look at the bias.
    fn check(&self) -> (usize, usize, usize) {
        let (count, m, n) = self.z.as_matrices();
        assert!(self.bias.is_none_or(|b| b.rows * b.cols == n), "hidden units {} and their bias", self.z);
        self.bias.iter().for_each(|b| b.check(count));
        (count, m, n)
    }

    /// φ(u) and φ'(u).
    fn both(&self) -> Result<[Tensor; 2]> {
        let (mut value, mut slope) = (self.z.clone(), self.z.clone());
        bias_activation(self.bias, self.phi, &mut value, Some(&mut slope));
        Ok([value, slope])
    }
}
