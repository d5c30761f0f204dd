//! The kernels of infinitely wide networks: `nngp`, the covariance of a random network's outputs, and `ntk`, the kernel
//! under which gradient descent trains it.
//!
//! ```text
//! ntk(depth=3, act=relu, w_var=2, b_var=0.1)          three hidden layers and a linear read-out
//! nngp("dense erf dense relu dense", w_var=1.5)       layer by layer
//! ntk("conv(3) relu conv(3) relu gap dense", shape=28x28x1)
//! ```
//!
//! `depth` counts the hidden layers, those with an activation: `depth=0` is the linear kernel `w_var·x·x'/d + b_var`.
//!
//! The layers are those of [`crate::net`], in the same words: the same string is a network to train and a kernel, with the same
//! windows. Widths and numbers of channels are ignored, and may be left out: `dense`, `conv(3)`. `bn`, `ln`, `maxpool`, `rff`,
//! `radial`, `l2norm` and `silu` have no kernel. A layer of weights may have its own `w_var` and `b_var` (or `w` and `b`, their roots).
//! [`crate::net::Pad`] says what `pad=same` and `pad=1` mean.
//!
//! Images are `shape=HxWxC`, their numbers stored channel by channel and row by row within a channel, as CIFAR-10 and MNIST
//! are; without a shape, a kernel that meets its data guesses a square with one channel or three.
//!
//! # Conventions
//!
//! Those of neural-tangents. Weights are `N(0, C_w/inputs)`, biases `N(0, C_b)`, in the parameterisation in which
//! the NTK has a limit: `z = √(C_w/n) W y + √C_b b` with standard normal parameters. With K the covariance and Θ the tangent
//! kernel, from `K = x·x'/d`, `Θ = 0`:
//!
//! - dense: `K ← C_w K + C_b`, `Θ ← K + C_w Θ` with the new K;
//! - activation: `Θ ← Θ E[φ'(u)φ'(v)]`, `K ← E[φ(u)φ(v)]`, `(u, v)` normal with covariance K;
//! - residual sum: both add.
//!
//! `dual.rs` has those expectations in closed form. tanh, sigmoid and softplus are sums of error functions, right to 2e-10 at
//! inputs of any size (`logistic.rs`); in matrices of fully connected networks they are Hermite series where the inputs are
//! narrow (`hermite.rs` says how narrow, and has the error).

mod dual;
pub(crate) mod hermite;
mod images;
pub(crate) mod logistic;
mod network;
mod recursion;

pub(crate) use dual::{Expectations, Side, dual_at, place};
pub(crate) use network::{DEEPEST, Network, Step, Variances};

pub(in crate::kernel) use images::value;
pub(in crate::kernel) use network::parse_shape;

use super::parameter::{SCALE_OF_INPUTS, lengthscale_of_each};
use super::text::argument;
use super::{Formula, Kind, Lift, Median, Pair, Parameter, Statistic, Value};
use crate::compute::Activation;
use crate::error::excerpt;
use crate::net::Description;
use crate::simd::Num;
use crate::{Error, Result};
use std::sync::Arc;

/// The neural tangent kernel of an infinitely wide network.
///
/// ```
/// use mercer::kernel::Kernel;
/// let k = Kernel::parse("ntk(depth=1, act=relu, w_var=2)")?;
/// // K = 2·1/2 = 1 at the hidden units; K = 2·½ and Θ = K + 2·1·½ at the output.
/// assert!((k.value(&[1.0, 0.0], &[1.0, 0.0]) - 2.0).abs() < 1e-12);
/// # Ok::<(), mercer::Error>(())
/// ```
pub type Ntk = Infinite<true>;

/// The covariance of the outputs of an infinitely wide network with random weights. Example: [`Ntk`].
pub type Nngp = Infinite<false>;

/// The kernel of an infinitely wide network: [`Ntk`] or [`Nngp`]. Example: [`Ntk`].
#[derive(Clone, Debug, PartialEq)]
pub struct Infinite<const NTK: bool> {
    pub(crate) network: Network,
    pub(crate) lengthscale: f64,
    pub(crate) columns: Option<Arc<[f64]>>,
}

impl Ntk {
    /// The covariance of the networks' outputs.
    pub(crate) fn covariance(&self) -> Nngp {
        let Infinite { network, lengthscale, columns } = self.clone();
        Infinite { network, lengthscale, columns }
    }
}

const PARAMETERS: &[Parameter] = &[
    Parameter::new("depth", 3.0, Kind::Integer(0, 256), "hidden layers"),
    Parameter::new("act", 1.0, Kind::Activation, "their activation"),
    Parameter::new("w_var", 2.0, Kind::Positive, "variance of the weights, times the number of inputs"),
    Parameter::new("b_var", 0.0, Kind::NonNegative, "variance of the biases"),
    Parameter::new(
        "layers",
        0.0,
        Kind::Text,
        "instead of depth and act, the layers one by one: ntk(\"conv(3) relu gap dense\")",
    ),
    Parameter::new(
        "shape",
        0.0,
        Kind::Shape,
        "images' height, width and channels, such as 28x28x1; square ones are recognised",
    ),
    SCALE_OF_INPUTS,
];

impl<const NTK: bool> Formula for Infinite<NTK> {
    const NAME: &'static str = if NTK { "ntk" } else { "nngp" };
    const HELP: &'static str = if NTK {
        "tangent kernel of an infinitely wide network: Θ = K + w_var·Θ·E[φ'φ'], layer by layer"
    } else {
        "covariance of an infinitely wide network's outputs: K = w_var·E[φφ] + b_var, layer by layer"
    };
    const PARAMETERS: &'static [Parameter] = PARAMETERS;
    const IS_NETWORK: bool = true;
    const MEDIAN: Median = Median::Coordinate;

    fn from_arguments(arguments: &[Option<Value>], inputs: Option<usize>) -> Result<Self> {
        let number = |i: usize| PARAMETERS[i].number(&arguments[i]);
        let word = |i: usize| match &arguments[i] {
            Some(Value::Word(text) | Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let variances = Variances { weight: number(2), bias: number(3) };
        let (lengthscale, columns) = (number(6), lengthscale_of_each(Self::NAME, Self::PARAMETERS, arguments, inputs)?);
        let Some(layers) = word(4) else {
            let phi = word(1).map_or(Ok(Activation::Relu), Activation::parse)?;
            network::require_kernel(phi)?;
            let network = Network::plain(number(0) as u32, phi, variances);
            return Ok(Infinite { network, lengthscale, columns });
        };
        if arguments[..2].iter().any(Option::is_some) {
            let name = Self::NAME;
            return Err(Error::input(format!("kernel {name}: give the layers in quotes, or depth and act, not both")));
        }
        let shape = word(5).and_then(parse_shape);
        let network = Network::new(&Description::parse(layers)?, variances, shape, inputs);
        let network = network.map_err(|e| Error::input(format!("architecture '{}': {e}", excerpt(layers))))?;
        Ok(Infinite { network, lengthscale, columns })
    }

    fn arguments(&self) -> Vec<String> {
        let lengthscale = argument(self, SCALE_OF_INPUTS.name, self.lengthscale);
        self.network.arguments.iter().cloned().chain(lengthscale).collect()
    }

    fn columns(&self) -> Option<&[f64]> {
        self.columns.as_deref()
    }

    fn divisor(&self) -> f64 {
        self.lengthscale
    }

    fn statistic(&self) -> Statistic {
        if self.network.shape().is_some() { Statistic::Images } else { Statistic::Dot }
    }

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        recursion::kernel::<R, NTK>(self.network.steps(), pair)
    }

    /// `x/√d`, so that the statistic is `x·x'/d`; images by their channels.
    fn lift(&self, d: usize) -> Lift<'_> {
        Lift::Over((self.network.inputs(d) as f64).sqrt())
    }
}
