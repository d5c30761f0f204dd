//! One layer's part of a Jacobian, factored, and products of two of them.

use crate::Result;
use crate::compute::{self, Activation, Convolution, Device, Stack, StackMut, Store, Tensor, gemm};
use crate::net::{Gradient, Layer, Mode, Pass, Slot, Trace, Weights};
use std::borrow::Cow;

/// Which numbers count as the parameters of a network. Example: [`EmpiricalNtk`](super::EmpiricalNtk).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parameterisation {
    /// The weights themselves.
    #[default]
    Standard,
    /// Numbers of unit variance, of which the weights are multiples: `W = (w/√in) W̃`, `b = β b̃`. Derivatives, and with
    /// them the kernel, then have a limit as the network widens.
    Ntk,
}

impl Parameterisation {
    /// The factors `[1, p]` on derivatives by the weights of `layer`, where there are some.
    pub(in crate::net) fn spread<L: Layer + ?Sized>(self, layer: &L, device: Device) -> Result<Option<Tensor>> {
        if self == Parameterisation::Standard {
            return Ok(None);
        }
        let mut spread = vec![0.0; layer.facts().parameters];
        layer.spread(&mut spread);
        Tensor::from_host(device, &[1, spread.len()], &spread).map(Some)
    }
}

/// Derivatives of c cotangents at b points with respect to one layer's parameters, in a form whose products are cheap.
#[derive(Debug)]
#[doc(hidden)]
pub enum Jacobian<'a> {
    /// The layer has no parameters.
    None,
    /// An affine map: `∂/∂W = a_n ⊗ δ_n^c` and `∂/∂b = δ_n^c`, never written out.
    Outer {
        /// The layer's input `[b, in]` (or `[1, b, in]`).
        a: &'a Tensor,
        /// Cotangents of its affine map `[c, b, out]`.
        delta: Tensor,
        /// Factor on products of derivatives by the weights.
        weight: f32,
        /// Factor on products of derivatives by the biases.
        bias: f32,
    },
    /// A convolution: `∂/∂w = Σ_t δ_n^c(t) ⊗ a_n(t)` over positions t, with the patch `a_n(t)`; written out in products.
    Convolved(Convolved<'a>),
    /// Written out: `[c, b, p]`.
    Rows(Tensor),
    /// Those of the layers inside a layer, each with the place of its first parameter among this one's.
    Several(Vec<(usize, Jacobian<'a>)>),
}

/// Numbers of the patches that derivatives are written out from at a time.
const PATCHES: usize = 1 << 22;

/// The factors of a convolution's derivatives.
#[derive(Debug)]
#[doc(hidden)]
pub struct Convolved<'a> {
    /// The convolution.
    pub shape: Convolution,
    /// Its input `[b, in]` (or `[1, b, in]`).
    pub a: &'a Tensor,
    /// Cotangents of its affine map `[c, b, out]`, channel by channel.
    pub delta: Tensor,
    /// Whether it has a bias.
    pub bias: bool,
    /// Factors `[1, p]` on the derivatives, where these are by other numbers than the weights.
    pub(in crate::net) spread: Option<Tensor>,
}

impl Convolved<'_> {
    /// The derivatives `[c, b, p]`: by the filters `[out, patch]`, `δ_n^c a_nᵀ` of δ `[out, positions]` and the patches a `[patch, positions]`,
    /// then by the biases.
    pub fn rows(&self) -> Result<Tensor> {
        let &[c, b, out] = self.delta.shape() else { panic!("{:?} are not [c, b, out]", self.delta.shape()) };
        let (channels, patch, positions) = (self.shape.channels, self.shape.patch(), out / self.shape.channels);
        let p = channels * patch + if self.bias { channels } else { 0 };
        let mut jacobian = Tensor::zeros(self.delta.device(), &[1, c * b, p])?;
        let some = (PATCHES / (patch * positions)).clamp(1, b);
        for first in (0..b).step_by(some) {
            let count = some.min(b - first);
            let patches = self.patches_of(first, count)?;
            for row in (0..c).map(|c| c * b + first) {
                let signals = self.delta.matrices(row * out, out, channels, positions);
                let filters = jacobian.matrices_mut(row * p, p, count, channels, patch);
                gemm(1.0, signals, patches.stack().t(), Store::Replace, filters);
            }
        }
        if self.bias {
            let mut delta = self.delta.clone();
            delta.reshape(&[c * b, 1, out])?;
            compute::channel_sums(&delta, jacobian.matrices_mut(channels * patch, p, c * b, 1, channels));
        }
        if let Some(spread) = &self.spread {
            compute::scale_columns(&mut jacobian, spread.stack());
        }
        jacobian.reshape(&[c, b, p])?;
        Ok(jacobian)
    }

    /// The patches `[b, patch, positions]`.
    pub fn patches(&self) -> Result<Tensor> {
        self.patches_of(0, self.a.stack().rows())
    }

    /// The patches `[count, patch, positions]` of the points from `first` on.
    fn patches_of(&self, first: usize, count: usize) -> Result<Tensor> {
        let pixels = self.a.stack().cols();
        let positions = self.shape.out().iter().product();
        let mut patches = Tensor::zeros(self.a.device(), &[count, self.shape.patch(), positions])?;
        compute::patches(&self.shape, self.a.matrices(first * pixels, 0, count, pixels), &mut patches);
        Ok(patches)
    }
}

/// A layer of one network after a forward pass in [`Mode::Eval`].
pub(in crate::net) struct Evaluated<'a, 't> {
    /// Its numbers, for any number of networks that all have the same.
    pub theta: Weights<'t>,
    /// Its input `[b, in]` (or `[1, b, in]`).
    pub x: &'a Tensor,
    pub trace: &'a Trace,
    pub parameterisation: Parameterisation,
}

impl Evaluated<'_, '_> {
    /// `g^c ← φ' ∘ g^c` for all cotangents `g` `[c, b, out]`.
    pub fn times_slope(&self, phi: Activation, g: &mut Tensor) {
        self.trace.slope(phi).into_iter().for_each(|slope| compute::multiply_each(g, slope));
    }
}

/// The b points of `x` c times over, in the given shape.
fn repeated(x: &Tensor, [c, b]: [usize; 2], shape: &[usize]) -> Result<Tensor> {
    let rows: Vec<usize> = (0..c).flat_map(|_| 0..b).collect();
    let mut points = Tensor::zeros(x.device(), &[0])?;
    compute::gather_rows(x, &rows, &mut points)?;
    points.reshape(shape)?;
    Ok(points)
}

/// The rule of any layer, from its forward and vjp alone: every point with every cotangent is a network of its own with
/// a batch of one, so that the gradients of these networks are the rows of the Jacobian.
pub(in crate::net) fn written_out<L: Layer + ?Sized>(
    layer: &L,
    at: &Evaluated<'_, '_>,
    mut g: Tensor,
    mut dx: Option<&mut Tensor>,
) -> Result<Jacobian<'static>> {
    let (device, p, theta) = (g.device(), layer.facts().parameters, &at.theta);
    let inputs = at.x.shape()[at.x.shape().len() - 1];
    let &[c, b, out] = g.shape() else { panic!("cotangents of shape {:?} are not [c, b, out]", g.shape()) };
    // Without parameters nothing keeps the points apart.
    let (networks, batch) = if p == 0 { (c, b) } else { (c * b, 1) };
    let points = repeated(at.x, [c, b], &[networks, batch, inputs])?;
    let mut trace = Trace::new(device)?;
    trace.mode = Mode::Eval;
    trace.y.reshape(&[networks, batch, out])?;
    layer.forward(theta, &points, &mut trace)?;
    let mut rows = Tensor::zeros(device, &[networks * p])?;
    g.reshape(&[networks, batch, out])?;
    if let Some(dx) = dx.as_deref_mut() {
        dx.reshape(&[networks, batch, inputs])?;
    }
    let mut slot = Gradient { tensor: &mut rows, slot: Slot { at: 0, stride: p }, networks };
    let pass = Pass { theta, x: &points, trace: &mut trace };
    layer.vjp(pass, &mut g, &mut slot, dx.as_deref_mut())?;
    if let Some(dx) = dx {
        dx.reshape(&[c, b, inputs])?;
    }
    if p == 0 {
        return Ok(Jacobian::None);
    }
    Jacobian::rows(layer, rows, [c, b], at.parameterisation)
}

/// Scratch of sums of products of Jacobians.
pub(super) struct Scratch {
    inputs: Tensor,
    products: Tensor,
}

impl Scratch {
    pub(super) fn new(device: Device) -> Result<Scratch> {
        Ok(Scratch { inputs: Tensor::zeros(device, &[0])?, products: Tensor::zeros(device, &[0])? })
    }

    /// `out += left rightᵀ` in the matrices that `place` names; for affine maps, each entry times that of `inputs`.
    fn add(
        &mut self,
        affine: bool,
        [left, right]: [Stack<'_>; 2],
        out: &mut Tensor,
        place: impl Fn(&mut Tensor) -> StackMut<'_>,
    ) -> Result<()> {
        if affine {
            self.products.reshape(out.shape())?;
            gemm(1.0, left, right.t(), Store::Replace, place(&mut self.products));
            compute::add_product_each(out, &self.products, &self.inputs);
        } else {
            gemm(1.0, left, right.t(), Store::Add, place(out));
        }
        Ok(())
    }
}

impl Jacobian<'_> {
    /// From the derivatives `rows` by the weights of `layer`, for c cotangents at b points.
    pub(in crate::net) fn rows<L: Layer + ?Sized>(
        layer: &L,
        mut rows: Tensor,
        [c, b]: [usize; 2],
        parameterisation: Parameterisation,
    ) -> Result<Jacobian<'static>> {
        let p = layer.facts().parameters;
        if let Some(spread) = parameterisation.spread(layer, rows.device())? {
            rows.reshape(&[1, c * b, p])?;
            compute::scale_columns(&mut rows, spread.stack());
        }
        rows.reshape(&[c, b, p])?;
        Ok(Jacobian::Rows(rows))
    }

    /// `tiles[c][c'−f(c)] += J^c (J'^{c'})ᵀ` `[b, b']` for every `c' ≥ f(c)`, with `f(c)` the first that `tiles[c]` has room for.
    ///
    /// For an affine map, `J^c_n · J'^{c'}_m = (δ_n^c · δ_m^{c'}) (w a_n·a_m + β)`.
    pub(super) fn add_products(&self, other: &Jacobian<'_>, tiles: &mut [Tensor], scratch: &mut Scratch) -> Result<()> {
        if let (Jacobian::Several(left), Jacobian::Several(right)) = (self, other) {
            return left.iter().zip(right).try_for_each(|((_, j), (_, k))| j.add_products(k, tiles, scratch));
        }
        let (outputs, affine) = (tiles.len(), self.inputs(other, &mut scratch.inputs)?);
        let (Some(left), Some(right)) = (self.signals()?, other.signals()?) else { return Ok(()) };
        let (left, right) = (&*left, &*right);
        for (c, tile) in tiles.iter_mut().enumerate() {
            let first = outputs - tile.shape()[0];
            scratch.add(affine, [matrices(left, c, 0), matrices(right, first, 1)], tile, Tensor::stack_mut)?;
        }
        Ok(())
    }

    /// `sum += Σ_c J^c (J'^c)ᵀ` `[b, b']`.
    pub(super) fn add_trace(&self, other: &Jacobian<'_>, sum: &mut Tensor, scratch: &mut Scratch) -> Result<()> {
        let &[b, b2] = sum.shape() else { panic!("a trace of shape {:?} is not [b, b']", sum.shape()) };
        if let (Jacobian::Several(left), Jacobian::Several(right)) = (self, other) {
            return left.iter().zip(right).try_for_each(|((_, j), (_, k))| j.add_trace(k, sum, scratch));
        }
        let affine = self.inputs(other, &mut scratch.inputs)?;
        let (Some(left), Some(right)) = (self.signals()?, other.signals()?) else { return Ok(()) };
        let count = left.shape()[0];
        scratch.add(affine, [left.stack(), right.stack()], sum, |sum| sum.matrices_mut(0, 0, 1, b, b2).sum_of(count))
    }

    /// Whether both are affine maps, and then `w a_n·a_m + β` `[b, b']`.
    fn inputs(&self, other: &Jacobian<'_>, out: &mut Tensor) -> Result<bool> {
        let (Jacobian::Outer { a, weight, bias, .. }, Jacobian::Outer { a: a2, .. }) = (self, other) else {
            return Ok(false);
        };
        let (a, a2) = (a.stack(), a2.stack());
        out.reshape(&[a.rows(), a2.rows()])?;
        compute::fill(out, *bias);
        gemm(*weight, a, a2.t(), Store::Add, out.stack_mut());
        Ok(true)
    }

    /// The cotangents or derivatives `[c, b, p]`, if the layer has parameters.
    fn signals(&self) -> Result<Option<Cow<'_, Tensor>>> {
        Ok(match self {
            Jacobian::Outer { delta, .. } => Some(Cow::Borrowed(delta)),
            Jacobian::Rows(rows) => Some(Cow::Borrowed(rows)),
            Jacobian::Convolved(convolved) => Some(Cow::Owned(convolved.rows()?)),
            Jacobian::None | Jacobian::Several(_) => None,
        })
    }

    /// Calls `each` with the Jacobian of every layer of weights that this one is made of, and the place of its first
    /// parameter, counted from `start`.
    pub fn each(&self, start: usize, each: &mut dyn FnMut(usize, &Jacobian<'_>) -> Result<()>) -> Result<()> {
        match self {
            Jacobian::None => Ok(()),
            Jacobian::Several(parts) => parts.iter().try_for_each(|(at, part)| part.each(start + at, each)),
            one => each(start, one),
        }
    }
}

/// The matrices of a stack `[c, b, p]` from the `first` on, every `step`-th; step zero repeats the first.
fn matrices(stack: &Tensor, first: usize, step: usize) -> Stack<'_> {
    let &[_, b, p] = stack.shape() else { panic!("{:?} is not a stack", stack.shape()) };
    stack.matrices(first * b * p, step * b * p, b, p)
}
