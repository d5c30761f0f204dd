//! Layers that compute and differentiate themselves, and k [`Network`]s of them that run as one.
//!
//! A network is a [`Description`], which is written as one string: layers in order, `|` where a trunk shared by all k networks
//! ends (without it the networks share nothing but their input). The same words describe infinite networks, whose kernels are
//! in the library; "trained" and "infinite" say where a word or option has no meaning in the other.
//!
//! | word | layer |
//! |---|---|
//! | `image(3, 32, 32)` | first of all: the points are images, channel by channel (guessed for 1 or 3 square planes) |
//! | `dense(h)` | affine map to h units; infinite networks need no width |
//! | `conv(c, 3)`, `conv(c, 5, stride=2, pad=valid)` | convolution to c channels by filters of 3×3; `pad=same` (TensorFlow's and JAX's, unless said otherwise), `pad=1` (PyTorch's `padding=1`: so many zeros on every side) or `pad=valid`, see [`Pad`]; trained: no bias right before `bn` unless `b` is given; infinite: `conv(3)` has no number of channels |
//! | `bn` | trained: batch norm of every channel (of every unit, where there is no image) |
//! | `ln` | trained: layer norm, of all units of a point |
//! | `dropout(0.5)` | evaluated only: the identity; a network with it cannot be trained here |
//! | `maxpool(2)` | trained: the largest of windows of 2×2 |
//! | `avgpool(2)` | the mean of windows of 2×2; infinite: `stride=1` lets them overlap |
//! | `gap` | the mean of the plane |
//! | `flatten` | the end of the image; its numbers go on in a row |
//! | `res(body)`, `res(body; shortcut)` | `body(x) + x`, or `body(x) + shortcut(x)`, of any layers |
//! | `relu`, `erf`, `leaky_relu(0.2)`, … | an [`Activation`] of every unit, with its parameters in brackets |
//! | `rff(m, lengthscale=1)` | trained: m random Fourier features of the input, not trained |
//! | `l2norm` | trained: each unit divided by its root mean square over the batch |
//! | `radial(scale=1)` | trained, first of all: the points drawn in towards the unit ball, and the logarithm of their radius |
//!
//! `dense` and `conv` take `w=1.4` and `b=0.1`: weights are `N(0, w²/fan-in)`, biases `N(0, b²)`; or the variances
//! themselves, `w_var=2` and `b_var=0.01`. With `b=no` there are no biases.
//!
//! ```
//! use mercer_engine::compute::{Device, Tensor};
//! use mercer_engine::net::{Mode, Network};
//! use mercer_engine::rng::Rng;
//!
//! let net = Network::parse("dense(32) sincos dense(32) sincos dense(1) l2norm", 1, 10)?;
//! let parameters = net.init(Device::Cpu, &Rng::new(0))?;
//! let mut workspace = net.workspace(Device::Cpu)?;
//! let x = Tensor::from_host(Device::Cpu, &[5, 1], &[-2.0, -1.0, 0.0, 1.0, 2.0])?;
//! let psi = net.forward(&parameters, &x, Mode::Train, &mut workspace)?;
//! assert_eq!(psi.shape(), [10, 5, 1]);
//! # Ok::<(), mercer_engine::Error>(())
//! ```

mod activation;
mod batch_norm;
mod build;
mod chain;
mod conv;
mod dense;
mod description;
mod dropout;
mod fold;
mod foreign;
mod fourier;
mod head;
mod image_trunk;
mod l2_norm;
mod layer_norm;
mod named;
mod network;
pub mod ntk;
mod optimizer;
mod pooling;
mod radial;
mod residual;
mod state;

use crate::compute::{self, Activation, Device, Stack, StackMut, Tensor};
use crate::rng::Rng;
use crate::{Error, Result};
use ntk::{Evaluated, Jacobian};
use std::ops::Range;

use activation::Elementwise;
use batch_norm::BatchNorm;
use conv::Conv;
use dense::Dense;
pub use description::{Along, Description, LayerSpec, Pad, Spread, WeightSpec, Window, guess_image};
use dropout::Dropout;
pub use foreign::rename;
use fourier::FourierFeatures;
use image_trunk::Part;
use l2_norm::L2Norm;
use layer_norm::LayerNorm;
pub use named::{NAMES, named};
pub use network::{Network, Parameters, Workspace};
pub use optimizer::{Optimizer, OptimizerState, Schedule, ScheduleKind};
use pooling::Pooling;
use radial::Radial;
use residual::Residual;
use state::Piece;
pub use state::{NamedTensor, Placed};

/// Whether statistics over the batch are taken from the batch or from the stored constants. Example: [the module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// From the batch.
    #[default]
    Train,
    /// From the constants, see [`Network::calibrate`] and [`Network::track`].
    Eval,
}

/// One layer `y = f(x; θ)` of k networks at once: how it starts, computes, and differentiates.
///
/// Arrays: `x` `[b, in]` (shared by the networks) or `[k, b, in]`; `y`, `g` and `t` `[k, b, out]`. A layer keeps
/// nothing between calls; what its derivatives need is in the [`Trace`] that `forward` wrote.
trait Layer: std::fmt::Debug + Send + Sync {
    /// What it is, apart from how it computes.
    fn facts(&self) -> Facts;

    /// Its own tensors as files hold them.
    fn pieces(&self) -> Vec<Piece> {
        Vec::new()
    }

    /// The two chains of layers inside it whose outputs are added, if it is made of such.
    fn inner(&self) -> [&[Box<dyn Layer>]; 2] {
        [&[], &[]]
    }

    /// The layer, if it is a dense one.
    fn dense(&self) -> Option<&Dense> {
        None
    }

    /// What it is to a trunk of images in bf16.
    fn part(&self) -> Part<'_> {
        Part::Other
    }

    /// How its parameters are drawn, if they are.
    fn draw(&self) -> Option<Draw> {
        None
    }

    /// Draws one network's parameters and constants.
    fn init(&self, rng: &mut Rng, parameters: &mut [f32], _constants: &mut [f32]) {
        if let Some(Draw { weights, weight_std, bias_std, .. }) = self.draw() {
            let (weights, biases) = parameters.split_at_mut(weights);
            weights.iter_mut().for_each(|w| *w = (weight_std * rng.normal()) as f32);
            biases.iter_mut().for_each(|b| *b = (bias_std * rng.normal()) as f32);
        }
    }

    /// The standard deviation that each parameter of one network was drawn with; one where it was not drawn.
    fn spread(&self, spread: &mut [f32]) {
        spread.fill(1.0);
        if let Some(Draw { weights, weight_std, bias_std, .. }) = self.draw() {
            let (weights, biases) = spread.split_at_mut(weights);
            weights.fill(weight_std as f32);
            biases.fill(bias_std as f32);
        }
    }

    /// `y = f(x; θ)` into `trace.y`, which already has its shape.
    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()>;

    /// Backward: given `g = ∂ℓ/∂y` (which it may overwrite), writes `∂ℓ/∂θ = (∂y/∂θ)ᵀ g` and, where asked for,
    /// `∂ℓ/∂x = (∂y/∂x)ᵀ g`, summed over the networks when they share x.
    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()>;

    /// Forward: `t = (∂y/∂x) ẋ + (∂y/∂θ) θ̇`; a missing tangent is zero.
    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()>;

    /// Second order: value, gradient and Laplacian in the networks' input, laid out as in [`crate::compute::jet`]: `x`
    /// `[(d+2)·points, in]` or `[k, (d+2)·points, in]`, `y` `[k, (d+2)·points, out]`.
    fn jet(&self, _theta: &Weights<'_>, _x: &Tensor, _points: usize, _y: &mut Tensor) -> Result<()> {
        Err(Error::input("a layer of the network has no Laplacian"))
    }

    /// For the empirical NTK (see [`ntk`]): back through the layer of *one* network with c cotangents `g` `[c, b, out]` at
    /// once. Writes `(∂y/∂x)ᵀ g` `[c, b, in]` into `dx` where asked for, and returns `(∂y/∂θ)ᵀ g`.
    ///
    /// The rule given here writes every derivative out, by [`Layer::forward`] and [`Layer::vjp`] alone, and is right for
    /// every layer that treats points separately; a layer with many parameters should have a faster one.
    fn jacobian<'a>(&self, at: &Evaluated<'a, '_>, g: Tensor, dx: Option<&mut Tensor>) -> Result<Jacobian<'a>> {
        ntk::written_out(self, at, g, dx)
    }

    /// Numbers that [`Layer::jacobian`] writes out for one point and one cotangent.
    fn written_out(&self) -> usize {
        self.facts().parameters
    }

    /// Moves its constants by `share` towards the statistics of the batch in `trace`, if it has such; share one sets them.
    fn track(&self, _trace: &Trace, _share: f32, _constants: &mut Gradient<'_>) {}
}

/// What a layer is, apart from how it computes.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Units that it puts out.
    outputs: usize,
    /// Trained numbers of one network.
    parameters: usize,
    /// Numbers of one network that are drawn or measured, not trained.
    constants: usize,
    /// Multiply-adds of one network's matrix products at one point.
    multiply_adds: usize,
    /// Whether it turns one shared input into k different outputs. A layer that does not acts alike in every network.
    branches: bool,
    /// Whether it needs to know that its input is an image.
    sees_images: bool,
    /// Whether it ends with an activation other than the identity.
    activated: bool,
    /// The first part of the names of its tensors in a file: `conv` in `conv1.weight`.
    stem: &'static str,
}

impl Facts {
    /// Its parameters and its constants in flat buffers where they start at `at` and `constants_at`.
    fn ranges(self, [at, constants_at]: [usize; 2]) -> [Range<usize>; 2] {
        [at..at + self.parameters, constants_at..constants_at + self.constants]
    }
}

/// What a forward pass leaves behind for the derivatives; buffers are reused from step to step.
#[derive(Debug)]
struct Trace {
    /// How the pass was run.
    mode: Mode,
    /// What is in `slope`.
    kept: Kept,
    /// `[k, b, out]`: the output.
    y: Tensor,
    /// `[k, b, out]`: for layers with an activation, `φ'` at the pre-activations, or what `kept` says.
    slope: Tensor,
    /// `[k, out]`: factors of a norm.
    factor: Tensor,
    /// Scratch, `[k, out]`.
    work: Tensor,
    /// Traces of the layers inside a layer that is made of others.
    inner: Vec<Trace>,
}

/// What a dense layer with an activation keeps for its derivatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// `φ'`
    Slopes,
    /// `z = x W`, from which a vjp finds `φ'`.
    Units,
    /// z, and not even the output: the layer after it is one unit, and found its own output from z ([`head`]).
    UnitsAlone,
}

impl Trace {
    /// With empty buffers.
    fn new(device: Device) -> Result<Trace> {
        let empty = || Tensor::zeros(device, &[0]);
        let (y, slope, factor, work) = (empty()?, empty()?, empty()?, empty()?);
        Ok(Trace { mode: Mode::Train, kept: Kept::Slopes, y, slope, factor, work, inner: Vec::new() })
    }

    /// `y`, and a buffer for φ' of the same shape unless φ is the identity.
    fn with_slope(&mut self, phi: Activation) -> Result<(&mut Tensor, Option<&mut Tensor>)> {
        if phi == Activation::Identity {
            return Ok((&mut self.y, None));
        }
        self.slope.reshape(self.y.shape())?;
        Ok((&mut self.y, Some(&mut self.slope)))
    }

    /// `y ← φ(y)`, with φ' kept.
    fn activate(&mut self, phi: Activation) -> Result<()> {
        if let (y, Some(slope)) = self.with_slope(phi)? {
            compute::activation(phi, y, Some(slope));
        }
        Ok(())
    }

    /// φ', unless φ is the identity.
    fn slope(&self, phi: Activation) -> Option<&Tensor> {
        (phi != Activation::Identity).then_some(&self.slope)
    }

    /// `t ← φ' ∘ t`
    fn times_slope(&self, phi: Activation, t: &mut Tensor) {
        self.slope(phi).into_iter().for_each(|slope| compute::multiply(t, slope));
    }
}

/// One layer of a forward pass: its numbers, its input, and what [`Layer::forward`] left behind.
#[derive(Debug)]
struct Pass<'a> {
    theta: &'a Weights<'a>,
    x: &'a Tensor,
    trace: &'a mut Trace,
}

/// The gradient `dx` of an input of `width` units, one matrix for each network, from the gradient `g` of the output; networks
/// that share the input share the matrix, and their gradients add up.
fn input_gradient<'a>(dx: &'a mut Tensor, g: &Tensor, width: usize) -> StackMut<'a> {
    let (networks, batch) = (g.shape()[0], g.shape()[1]);
    input_gradient_of(dx, [networks, batch, width])
}

/// The same of an input of `width` units at `batch` points in `networks` networks.
fn input_gradient_of(dx: &mut Tensor, [networks, batch, width]: [usize; 3]) -> StackMut<'_> {
    if dx.len() == networks * batch * width {
        dx.matrices_mut(0, batch * width, networks, batch, width)
    } else {
        dx.matrices_mut(0, 0, 1, batch, width).sum_of(networks)
    }
}

/// The tangent of a layer that nothing moves.
fn zero(t: &mut Tensor) -> Result<()> {
    compute::fill(t, 0.0);
    Ok(())
}

/// How a layer of weights is drawn: its `weights` first weights `N(0, w²/fan-in)`, its biases `N(0, b²)`.
struct Draw {
    weights: usize,
    /// `w`
    gain: f64,
    /// `w/√fan-in`
    weight_std: f64,
    /// `b`
    bias_std: f64,
}

impl Draw {
    /// As `spec` says; without it, `w` is the `usual` gain, and `b = 1/√(3·fan-in)`.
    fn new(weights: usize, fan_in: usize, spec: WeightSpec, usual: f64) -> Draw {
        let fan_in = fan_in as f64;
        let [gain, bias_std] = [spec.weight, spec.bias].map(|spread| spread.map(Spread::deviation));
        let gain = gain.unwrap_or(usual);
        let bias_std = bias_std.unwrap_or_else(|| 1.0 / (3.0 * fan_in).sqrt());
        Draw { weights, gain, weight_std: gain / fan_in.sqrt(), bias_std }
    }
}

/// The gain with which signals keep their size through a layer and φ: where φ has slopes a below zero and b above it, it keeps
/// the share (a² + b²)/2 of the signal; 1 for all others.
fn gain(phi: Activation) -> f64 {
    let [below, above] = match phi {
        Activation::Relu | Activation::Gelu | Activation::Silu => [0.0, 1.0],
        Activation::LeakyRelu(slope) => [slope, 1.0],
        Activation::AbRelu(a, b) if a != 0.0 || b != 0.0 => [a, b],
        _ => return 1.0,
    };
    (2.0 / (below * below + above * above)).sqrt()
}

/// Where a layer's numbers lie in a flat buffer: network j's start at `at + j·stride`.
#[derive(Clone, Copy, Debug)]
struct Slot {
    at: usize,
    stride: usize,
}

impl Slot {
    /// That of a layer inside this one, whose numbers start `at` numbers into this one's.
    fn inside(self, at: usize) -> Slot {
        Slot { at: self.at + at, ..self }
    }
}

/// One layer's numbers in k networks.
#[derive(Clone, Copy, Debug)]
struct Weights<'a> {
    parameters: &'a Tensor,
    constants: &'a Tensor,
    /// Of the parameters and of the constants.
    slots: [Slot; 2],
}

impl<'a> Weights<'a> {
    /// A `rows × cols` matrix of each network, `start` numbers into the layer's parameters.
    fn matrix(&self, start: usize, rows: usize, cols: usize) -> Stack<'a> {
        let Slot { at, stride } = self.slots[0];
        self.parameters.matrices(at + start, stride, rows, cols)
    }

    /// A `rows × cols` matrix of each network at the start of the layer's constants.
    fn constant(&self, rows: usize, cols: usize) -> Stack<'a> {
        let Slot { at, stride } = self.slots[1];
        self.constants.matrices(at, stride, rows, cols)
    }

    /// The numbers of a layer inside this one, which start `[at, constants_at]` numbers into this one's.
    fn inside(&self, [at, constants_at]: [usize; 2]) -> Weights<'a> {
        Weights { slots: [self.slots[0].inside(at), self.slots[1].inside(constants_at)], ..*self }
    }
}

/// Where one layer's part of the gradient (or of the constants, when they are measured) goes, laid out like [`Weights`].
#[derive(Debug)]
struct Gradient<'a> {
    tensor: &'a mut Tensor,
    slot: Slot,
    networks: usize,
}

impl Gradient<'_> {
    /// A `rows × cols` matrix of each network, `start` numbers into the layer's parameters.
    fn matrix(&mut self, start: usize, rows: usize, cols: usize) -> StackMut<'_> {
        self.tensor.matrices_mut(self.slot.at + start, self.slot.stride, self.networks, rows, cols)
    }

    /// The part of a layer inside this one, which starts `at` numbers into this one's.
    fn inside(&mut self, at: usize) -> Gradient<'_> {
        Gradient { slot: self.slot.inside(at), networks: self.networks, tensor: self.tensor }
    }
}

#[cfg(test)]
mod tests;
