//! One layer's part of a Jacobian, factored, and products of two of them.

use crate::Result;
use crate::compute::{self, Device, Store, Tensor, gemm};
use crate::net::{Gradient, Layer, Mode, Pass, Trace, Weights};

/// Which numbers count as the parameters of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parameterisation {
    /// The weights themselves.
    #[default]
    Standard,
    /// Numbers of unit variance, of which the weights are multiples: `W = (w/√in) W̃`, `b = β b̃`. Derivatives, and with
    /// them the kernel, then have a limit as the network widens.
    Ntk,
}

/// Derivatives of c cotangents at b points with respect to one layer's parameters, in a form whose products are cheap.
#[derive(Debug)]
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
    /// Written out: `[c, b, p]`.
    Rows(Tensor),
}

/// The rule of any layer, from its forward and vjp alone: every point with every cotangent is a network of its own with
/// a batch of one, so that the gradients of these networks are the rows of the Jacobian.
pub(in crate::net) fn written_out<L: Layer + ?Sized>(
    layer: &L,
    theta: &Weights<'_>,
    x: &Tensor,
    mut g: Tensor,
    mut dx: Option<&mut Tensor>,
    parameterisation: Parameterisation,
) -> Result<Jacobian<'static>> {
    let (device, p, inputs) = (g.device(), layer.parameters(), x.shape()[x.shape().len() - 1]);
    let &[c, b, out] = g.shape() else { panic!("cotangents of shape {:?} are not [c, b, out]", g.shape()) };
    // Without parameters nothing keeps the points apart.
    let (networks, batch) = if p == 0 { (c, b) } else { (c * b, 1) };
    let repeated: Vec<usize> = (0..c).flat_map(|_| 0..b).collect();
    let mut points = Tensor::zeros(device, &[0])?;
    compute::gather_rows(x, &repeated, &mut points)?;
    points.reshape(&[networks, batch, inputs])?;
    let mut trace = Trace::new(device)?;
    trace.mode = Mode::Eval;
    trace.y.reshape(&[networks, batch, out])?;
    layer.forward(theta, &points, &mut trace)?;
    let mut rows = Tensor::zeros(device, &[networks * p])?;
    g.reshape(&[networks, batch, out])?;
    if let Some(dx) = dx.as_deref_mut() {
        dx.reshape(&[networks, batch, inputs])?;
    }
    let mut slot = Gradient { gradient: &mut rows, at: 0, stride: p, networks };
    let pass = Pass { theta, x: &points, trace: &mut trace };
    layer.vjp(pass, &mut g, &mut slot, dx.as_deref_mut())?;
    if let Some(dx) = dx {
        dx.reshape(&[c, b, inputs])?;
    }
    if p == 0 {
        return Ok(Jacobian::None);
    }
    Jacobian::rows(layer, rows, [c, b], parameterisation)
}

/// Scratch of [`Jacobian::add_products`].
pub(super) struct Scratch {
    inputs: Tensor,
    products: Tensor,
}

impl Scratch {
    pub(super) fn new(device: Device) -> Result<Scratch> {
        Ok(Scratch { inputs: Tensor::zeros(device, &[0])?, products: Tensor::zeros(device, &[0])? })
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
        let p = layer.parameters();
        if parameterisation == Parameterisation::Ntk {
            let mut spread = vec![0.0; p];
            layer.spread(&mut spread);
            rows.reshape(&[1, c * b, p])?;
            let spread = Tensor::from_host(rows.device(), &[1, p], &spread)?;
            compute::scale_columns(&mut rows, spread.stack());
        }
        rows.reshape(&[c, b, p])?;
        Ok(Jacobian::Rows(rows))
    }

    /// `tiles[c][c'−f(c)] += J^c (J'^{c'})ᵀ` `[b, b']` for every `c' ≥ f(c)`, with `f(c)` the first that `tiles[c]` has room for.
    ///
    /// For an affine map, `J^c_n · J'^{c'}_m = (δ_n^c · δ_m^{c'}) (w a_n·a_m + β)`.
    pub(super) fn add_products(&self, other: &Jacobian<'_>, tiles: &mut [Tensor], scratch: &mut Scratch) -> Result<()> {
        let (outputs, Scratch { inputs, products }) = (tiles.len(), scratch);
        let affine = self.inputs(other, inputs)?;
        if let Jacobian::None = self {
            return Ok(());
        }
        let (left, right) = (self.signals(), other.signals());
        for (c, tile) in tiles.iter_mut().enumerate() {
            let first = outputs - tile.shape()[0];
            if affine {
                products.reshape(tile.shape())?;
                gemm(1.0, one(left, c), from(right, first).t(), Store::Replace, products.stack_mut());
                compute::add_product_each(tile, products, inputs);
            } else {
                gemm(1.0, one(left, c), from(right, first).t(), Store::Add, tile.stack_mut());
            }
        }
        Ok(())
    }

    /// `sum += Σ_c J^c (J'^c)ᵀ` `[b, b']`.
    pub(super) fn add_trace(&self, other: &Jacobian<'_>, sum: &mut Tensor, scratch: &mut Scratch) -> Result<()> {
        let &[b, b2] = sum.shape() else { panic!("a trace of shape {:?} is not [b, b']", sum.shape()) };
        let Scratch { inputs, products } = scratch;
        let affine = self.inputs(other, inputs)?;
        if let Jacobian::None = self {
            return Ok(());
        }
        let (left, right) = (self.signals(), other.signals());
        let count = left.shape()[0];
        if affine {
            products.reshape(&[b, b2])?;
            gemm(1.0, left.stack(), right.stack().t(), Store::Replace, products.matrices_mut(0, 0, count, b, b2));
            compute::add_product_each(sum, products, inputs);
        } else {
            gemm(1.0, left.stack(), right.stack().t(), Store::Add, sum.matrices_mut(0, 0, count, b, b2));
        }
        Ok(())
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

    fn signals(&self) -> &Tensor {
        match self {
            Jacobian::Outer { delta, .. } => delta,
            Jacobian::Rows(rows) => rows,
            Jacobian::None => unreachable!("a layer without parameters has no signals"),
        }
    }
}

/// Matrix `c` of a stack `[c, b, p]`, for all.
fn one(stack: &Tensor, c: usize) -> compute::Stack<'_> {
    let &[_, b, p] = stack.shape() else { panic!("{:?} is not a stack", stack.shape()) };
    stack.matrices(c * b * p, 0, b, p)
}

/// The matrices of a stack `[c, b, p]` from the `first` on.
fn from(stack: &Tensor, first: usize) -> compute::Stack<'_> {
    let &[_, b, p] = stack.shape() else { panic!("{:?} is not a stack", stack.shape()) };
    stack.matrices(first * b * p, b * p, b, p)
}
