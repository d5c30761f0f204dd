//! [`Layer`]s that compute and differentiate themselves, and k [`Network`]s of them that run as one.
//!
//! A network is a [`Description`], which is written as one string: layers in order, `|` where a trunk shared by all k networks
//! ends (without it the networks share nothing but their input). The same words describe infinite networks, whose kernels are
//! in the library; "trained" and "infinite" say where a word or option has no meaning in the other.
//!
//! | word | layer |
//! |---|---|
//! | `image(3, 32, 32)` | first of all: the points are images, channel by channel (guessed for 1 or 3 square planes) |
//! | `dense(h)` | affine map to h units; infinite networks need no width |
//! | `conv(c, 3)`, `conv(c, 5, stride=2, pad=valid)` | convolution to c channels by filters of 3×3; `pad=same` unless said otherwise (see [`Window`]); trained: no bias right before `bn` unless `b` is given; infinite: `conv(3)` has no number of channels |
//! | `bn` | trained: batch norm of every channel (of every unit, where there is no image) |
//! | `maxpool(2)` | trained: the largest of windows of 2×2 |
//! | `avgpool(2)` | the mean of windows of 2×2; infinite: `stride=1` lets them overlap |
//! | `gap` | the mean of the plane |
//! | `flatten` | the end of the image; its numbers go on in a row |
//! | `res(body)`, `res(body; shortcut)` | `body(x) + x`, or `body(x) + shortcut(x)`, of any layers |
//! | `relu`, `erf`, `sincos`, … | an [`Activation`] of every unit |
//! | `rff(m, lengthscale=1)` | trained: m random Fourier features of the input, not trained |
//! | `l2norm` | trained: each unit divided by its root mean square over the batch |
//! | `radial(scale=1)` | trained, first of all: the points drawn in towards the unit ball, and the logarithm of their radius |
//!
//! `dense` and `conv` take `w=1.4` and `b=0.1`: weights are `N(0, w²/fan-in)`, biases `N(0, b²)`; or the variances
//! themselves, `w_var=2` and `b_var=0.01`.
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
mod conv;
mod dense;
mod description;
mod fold;
mod fourier;
mod l2_norm;
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

pub use activation::Elementwise;
pub use batch_norm::BatchNorm;
pub use conv::Conv;
pub use dense::Dense;
pub use description::{Description, LayerSpec, Spread, WeightSpec, Window, guess_image};
pub use fourier::FourierFeatures;
pub use l2_norm::L2Norm;
pub use named::{NAMES, named};
pub use network::{Network, Parameters, Workspace};
pub use optimizer::{Optimizer, OptimizerState, Schedule, ScheduleKind};
pub use pooling::{Pooling, PoolingKind};
pub use radial::Radial;
pub use residual::Residual;
pub use state::{NamedTensor, Piece};

/// Whether statistics over the batch are taken from the batch or from the stored constants.
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
pub trait Layer: std::fmt::Debug + Send + Sync {
    /// Units that it puts out.
    fn outputs(&self) -> usize;

    /// Trained numbers of one network.
    fn parameters(&self) -> usize {
        0
    }

    /// Numbers of one network that are drawn or measured, not trained.
    fn constants(&self) -> usize {
        0
    }

    /// Multiply-adds of one network's matrix products at one point.
    fn multiply_adds(&self) -> usize {
        0
    }

    /// The activation that it ends with.
    fn activation(&self) -> Activation {
        Activation::Identity
    }

    /// Whether it has no activation.
    fn is_linear(&self) -> bool {
        self.activation() == Activation::Identity
    }

    /// Whether it turns one shared input into k different outputs. A layer that does not acts alike in every network.
    fn branches(&self) -> bool {
        false
    }

    /// Whether it needs to know that its input is an image.
    fn sees_images(&self) -> bool {
        false
    }

    /// The first part of the names of its tensors in a file: `conv` in `conv1.weight`.
    fn stem(&self) -> &'static str {
        ""
    }

    /// Its own tensors as files hold them.
    fn pieces(&self) -> Vec<Piece> {
        Vec::new()
    }

    /// The two chains of layers inside it whose outputs are added, if it is made of such.
    fn inner(&self) -> [&[Box<dyn Layer>]; 2] {
        [&[], &[]]
    }

    /// Draws one network's parameters and constants.
    fn init(&self, _rng: &mut Rng, _parameters: &mut [f32], _constants: &mut [f32]) {}

    /// `y = f(x; θ)` into `trace.y`, which already has its shape.
    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()>;

    /// Backward: given `g = ∂ℓ/∂y` (which it may overwrite), writes `∂ℓ/∂θ = (∂y/∂θ)ᵀ g` and, where asked for,
    /// `∂ℓ/∂x = (∂y/∂x)ᵀ g`, summed over the networks when they share x.
    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, dx: Option<&mut Tensor>) -> Result<()>;

    /// Forward: `t = (∂y/∂x) ẋ + (∂y/∂θ) θ̇`; a missing tangent is zero.
    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()>;

    /// Second order: value, partial derivatives and Laplacian, as functions of the networks' input. `x` `[(d+2)·points, in]`
    /// or `[k, (d+2)·points, in]` and `y` `[k, (d+2)·points, out]` hold them one after the other, see
    /// [`crate::compute::jet`].
    fn jet(&self, _theta: &Weights<'_>, _x: &Tensor, _points: usize, _y: &mut Tensor) -> Result<()> {
        Err(Error::input("a layer of the network has no Laplacian"))
    }

    /// For the empirical NTK (see [`ntk`]): back through the layer of *one* network with c cotangents of its
    /// output at once. Takes `g` `[c, b, out]`, writes `(∂y/∂x)ᵀ g` `[c, b, in]` into `dx` where asked for, and returns
    /// `(∂y/∂θ)ᵀ g`. `theta` serves any number of networks, all with the same numbers; `trace` is that of the forward pass
    /// at `x` in [`Mode::Eval`].
    ///
    /// The rule given here writes every derivative out, by [`Layer::forward`] and [`Layer::vjp`] alone, and is right for
    /// every layer that treats points separately; a layer with many parameters should have a faster one.
    fn jacobian<'a>(
        &self,
        theta: &Weights<'_>,
        x: &'a Tensor,
        _trace: &Trace,
        g: Tensor,
        dx: Option<&mut Tensor>,
        parameterisation: ntk::Parameterisation,
    ) -> Result<ntk::Jacobian<'a>> {
        ntk::written_out(self, theta, x, g, dx, parameterisation)
    }

    /// Numbers that [`Layer::jacobian`] writes out for one point and one cotangent.
    fn written_out(&self) -> usize {
        self.parameters()
    }

    /// The standard deviation that each parameter of one network was drawn with; one where it was not drawn.
    fn spread(&self, spread: &mut [f32]) {
        spread.fill(1.0);
    }

    /// Moves its constants by `share` towards the statistics of the batch in `trace`, if it has such; share one sets them.
    fn track(&self, _trace: &Trace, _share: f32, _constants: &mut Gradient<'_>) {}
}

/// What a forward pass leaves behind for the derivatives; buffers are reused from step to step.
#[derive(Debug)]
pub struct Trace {
    /// How the pass was run.
    pub mode: Mode,
    /// `[k, b, out]`: the output.
    pub y: Tensor,
    /// `[k, b, out]`: `φ'` at the pre-activations, for layers with an activation.
    pub slope: Tensor,
    /// `[k, out]`: factors of a norm.
    pub factor: Tensor,
    /// Scratch, `[k, out]`.
    pub work: Tensor,
    /// Traces of the layers inside a layer that is made of others.
    pub inner: Vec<Trace>,
}

impl Trace {
    /// With empty buffers.
    pub fn new(device: Device) -> Result<Trace> {
        let empty = || Tensor::zeros(device, &[0]);
        let (y, slope, factor, work) = (empty()?, empty()?, empty()?, empty()?);
        Ok(Trace { mode: Mode::Train, y, slope, factor, work, inner: Vec::new() })
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
}

/// One layer of a forward pass: its numbers, its input, and what [`Layer::forward`] left behind.
#[derive(Debug)]
pub struct Pass<'a> {
    /// Its parameters and constants.
    pub theta: &'a Weights<'a>,
    /// Its input.
    pub x: &'a Tensor,
    /// What it left behind.
    pub trace: &'a mut Trace,
}

/// The gradient `dx` of an input of `width` units, one matrix for each network, from the gradient `g` of the output; networks
/// that share the input share the matrix, and their gradients add up.
fn input_gradient<'a>(dx: &'a mut Tensor, g: &Tensor, width: usize) -> StackMut<'a> {
    let (networks, batch) = (g.shape()[0], g.shape()[1]);
    let own = dx.len() == networks * batch * width;
    dx.matrices_mut(0, if own { batch * width } else { 0 }, networks, batch, width)
}

/// Where the parameters and constants of layers start that lie one after the other from `at` on, and where the last ones end.
fn consecutive(layers: &[Box<dyn Layer>], mut at: [usize; 2]) -> (Vec<[usize; 2]>, [usize; 2]) {
    let mut starts = Vec::with_capacity(layers.len());
    for layer in layers {
        starts.push(at);
        at = [at[0] + layer.parameters(), at[1] + layer.constants()];
    }
    (starts, at)
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
    /// With the gain and the deviation of the biases that were asked for; without them, √2 where half of the signal is `lost`
    /// and 1 otherwise, so that signals keep their size through the layers, and `1/√(3·fan-in)`.
    fn new(weights: usize, fan_in: usize, gain: Option<f64>, bias_std: Option<f64>, lost: bool) -> Draw {
        let fan_in = fan_in as f64;
        let gain = gain.unwrap_or(if lost { std::f64::consts::SQRT_2 } else { 1.0 });
        let bias_std = bias_std.unwrap_or_else(|| 1.0 / (3.0 * fan_in).sqrt());
        Draw { weights, gain, weight_std: gain / fan_in.sqrt(), bias_std }
    }

    fn init(&self, rng: &mut Rng, parameters: &mut [f32]) {
        let (weights, biases) = parameters.split_at_mut(self.weights);
        weights.iter_mut().for_each(|w| *w = (self.weight_std * rng.normal()) as f32);
        biases.iter_mut().for_each(|b| *b = (self.bias_std * rng.normal()) as f32);
    }

    fn spread(&self, spread: &mut [f32]) {
        let (weights, biases) = spread.split_at_mut(self.weights);
        weights.fill(self.weight_std as f32);
        biases.fill(self.bias_std as f32);
    }
}

/// Whether φ lets about half of its input through: the ReLU family.
fn rectifies(phi: Activation) -> bool {
    matches!(phi, Activation::Relu | Activation::LeakyRelu | Activation::Gelu)
}

/// One layer's numbers in k networks: network j's trained ones start at `at + j·stride` of the flat buffer.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    parameters: &'a Tensor,
    at: usize,
    stride: usize,
    constants: &'a Tensor,
    constants_at: usize,
    constants_stride: usize,
}

impl<'a> Weights<'a> {
    /// A `rows × cols` matrix of each network, `start` numbers into the layer's parameters.
    pub fn matrix(&self, start: usize, rows: usize, cols: usize) -> Stack<'a> {
        self.parameters.matrices(self.at + start, self.stride, rows, cols)
    }

    /// A `rows × cols` matrix of each network at the start of the layer's constants.
    pub fn constant(&self, rows: usize, cols: usize) -> Stack<'a> {
        self.constants.matrices(self.constants_at, self.constants_stride, rows, cols)
    }

    /// The numbers of a layer inside this one, which start `at` and `constants_at` numbers into this one's.
    pub fn inside(&self, at: usize, constants_at: usize) -> Weights<'a> {
        Weights { at: self.at + at, constants_at: self.constants_at + constants_at, ..*self }
    }
}

/// Where one layer's part of the gradient (or of the constants, when they are measured) goes, laid out like [`Weights`].
#[derive(Debug)]
pub struct Gradient<'a> {
    gradient: &'a mut Tensor,
    at: usize,
    stride: usize,
    networks: usize,
}

impl Gradient<'_> {
    /// A `rows × cols` matrix of each network, `start` numbers into the layer's parameters.
    pub fn matrix(&mut self, start: usize, rows: usize, cols: usize) -> StackMut<'_> {
        self.gradient.matrices_mut(self.at + start, self.stride, self.networks, rows, cols)
    }

    /// The part of a layer inside this one, which starts `at` numbers into this one's.
    pub fn inside(&mut self, at: usize) -> Gradient<'_> {
        Gradient { at: self.at + at, stride: self.stride, networks: self.networks, gradient: self.gradient }
    }
}

#[cfg(test)]
mod tests;
