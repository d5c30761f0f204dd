//! A network as a value: its layers and their options, before anything is known of the points that it will see.
//!
//! From one [`Description`] come a network to train ([`super::Network::new`]) and, in the library, the kernels of the network
//! of infinite width. [`Description::parse`] reads the words of the table in [`super`], and `Display` writes them.

mod parse;
mod show;

use crate::compute::Activation;

/// A network: layers in order.
///
/// ```
/// use mercer_engine::net::{Description, LayerSpec, Spread, WeightSpec};
/// let text = "image(3, 32, 32) conv(16, 3) bn relu res(conv(16, 3) bn) gap | dense(10, w=2)";
/// let net = Description::parse(text)?;
/// assert_eq!(net.to_string(), text);
/// let [LayerSpec::Conv { window, .. }, .., LayerSpec::Dense { weights, .. }] = &net.layers[..] else { panic!() };
/// assert_eq!((window.size, *weights), (3, WeightSpec { weight: Some(Spread::Deviation(2.0)), bias: None }));
/// # Ok::<(), mercer_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// Channels, height and width of the images that the points are, where it is said.
    pub image: Option<[usize; 3]>,
    /// The layers.
    pub layers: Vec<LayerSpec>,
    /// How many of them several networks share: those before `|`.
    pub trunk: usize,
}

/// One layer of a [`Description`]. Example: [`Description`].
#[derive(Clone, Debug, PartialEq)]
pub enum LayerSpec {
    /// Affine map of all units.
    Dense {
        /// Units that it puts out; an infinite network has none.
        width: Option<usize>,
        /// How its weights and biases are drawn.
        weights: WeightSpec,
    },
    /// Affine map of every window of an image.
    Conv {
        /// Channels that it puts out; an infinite network has none.
        channels: Option<usize>,
        /// The windows.
        window: Window,
        /// How its weights and biases are drawn.
        weights: WeightSpec,
    },
    /// Batch norm.
    BatchNorm,
    /// Layer norm.
    LayerNorm,
    /// Dropout of this share of the units, the identity where a network is evaluated.
    Dropout(f64),
    /// The largest value of every window of this size.
    MaxPool(usize),
    /// The mean of every window, without padding.
    AvgPool(Window),
    /// The mean over all positions of an image.
    Gap,
    /// All positions of an image side by side.
    Flatten,
    /// `body(x) + shortcut(x)`; an empty shortcut is the identity.
    Residual {
        /// The first branch.
        body: Vec<LayerSpec>,
        /// The second branch.
        shortcut: Vec<LayerSpec>,
    },
    /// Random Fourier features.
    Fourier {
        /// How many.
        outputs: usize,
        /// Lengthscale of their Gaussian kernel.
        lengthscale: f64,
    },
    /// Points drawn in towards the unit ball.
    Radial {
        /// Unit of length.
        scale: f64,
    },
    /// Every unit divided by its root mean square.
    L2Norm,
    /// A function of every unit.
    Activation(Activation),
}

/// How the weights and biases of a layer are drawn, where it is said. Example: [`Description`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightSpec {
    /// Spread of the weights times `√fan-in`.
    pub weight: Option<Spread>,
    /// Spread of the biases.
    pub bias: Option<Spread>,
}

impl WeightSpec {
    /// Whether the layer is said to have no biases: `b=no`.
    pub fn without_bias(&self) -> bool {
        self.bias == Some(Spread::Absent)
    }
}

/// The width of a normal distribution. Example: [`Description`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Its standard deviation: `w=`, `b=`.
    Deviation(f64),
    /// Its variance: `w_var=`, `b_var=`.
    Variance(f64),
    /// There are no such numbers: `b=no`.
    Absent,
}

impl Spread {
    /// The standard deviation.
    pub fn deviation(self) -> f64 {
        match self {
            Spread::Deviation(d) => d,
            Spread::Variance(v) => v.sqrt(),
            Spread::Absent => 0.0,
        }
    }

    /// The variance.
    pub fn variance(self) -> f64 {
        match self {
            Spread::Deviation(d) => d * d,
            Spread::Variance(v) => v,
            Spread::Absent => 0.0,
        }
    }
}

/// Square windows of an image, in networks to train and in infinite ones alike. Example: [`Description`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub size: usize,
    /// Distance between neighbouring windows.
    pub stride: usize,
    /// Zeros around the image.
    pub pad: Pad,
}

/// How many zeros are added around an image. Example: [`Window::along`].
///
/// With stride 1, `pad=same` and, for odd sizes, `pad=⌊size/2⌋` are the same. With a larger stride they differ where the stride
/// divides the side: `conv(3, stride=2, pad=same)` on 8 pixels adds none before and one after, `pad=1` one on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pad {
    /// `pad=same`: room for `⌈n/stride⌉` windows along a side of n, with as few zeros as they need; where their number is odd, the
    /// additional one comes after the image. This is `SAME` of TensorFlow, JAX and neural-tangents.
    Same,
    /// `pad=1`: so many on every side, fewer than the size of a window. This is `padding=1` of PyTorch; `pad=valid` is 0.
    Each(usize),
}

/// The windows along one side of an image. Example: [`Window::along`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along {
    /// Their number.
    pub count: usize,
    /// Zeros before the image.
    pub before: usize,
    /// Zeros after it.
    pub after: usize,
}

impl Window {
    /// The windows along a side of `n`; none where they do not fit.
    ///
    /// ```
    /// use mercer_engine::net::{Along, Pad, Window};
    /// let of = |pad| Window { size: 3, stride: 2, pad };
    /// assert_eq!(of(Pad::Same).along(8), Along { count: 4, before: 0, after: 1 });
    /// assert_eq!(of(Pad::Each(1)).along(8), Along { count: 4, before: 1, after: 1 });
    /// ```
    pub fn along(self, n: usize) -> Along {
        match self.pad {
            Pad::Same => {
                let count = n.div_ceil(self.stride);
                let zeros = (count.saturating_sub(1) * self.stride + self.size).saturating_sub(n);
                Along { count, before: zeros / 2, after: zeros - zeros / 2 }
            }
            Pad::Each(pad) => {
                let count = (n + 2 * pad + self.stride).saturating_sub(self.size) / self.stride;
                Along { count, before: pad, after: pad }
            }
        }
    }
}

impl Description {
    /// The same network without `l2norm` at its end.
    pub fn without_final_norm(mut self) -> Description {
        while self.layers.last() == Some(&LayerSpec::L2Norm) {
            self.layers.pop();
        }
        self.trunk = self.trunk.min(self.layers.len());
        self
    }

    /// Everything before the last dense layer, in one network.
    pub fn hidden_units(mut self) -> Description {
        let last = self.layers.iter().rposition(|layer| matches!(layer, LayerSpec::Dense { .. }));
        self.layers.truncate(last.unwrap_or(0));
        Description { trunk: 0, ..self }
    }

    /// The same network without the layers that `drop(before, layer, after)` names, also inside residual layers. `before` is the
    /// last layer that was kept ahead of it in its chain, `after` the next one.
    pub(super) fn without(&self, drop: Discard) -> Description {
        let trunk = without(&self.layers[..self.trunk], drop).len();
        Description { layers: without(&self.layers, drop), trunk, ..*self }
    }

    /// Whether any layer, also inside residual layers, is one that `f` accepts.
    pub fn any(&self, f: impl Fn(&LayerSpec) -> bool) -> bool {
        self.layers.iter().any(|layer| layer.any(&f))
    }
}

impl LayerSpec {
    /// Whether it, or any layer inside it, is one that `f` accepts.
    pub fn any(&self, f: &dyn Fn(&LayerSpec) -> bool) -> bool {
        f(self)
            || matches!(self, LayerSpec::Residual { body, shortcut } if body.iter().chain(shortcut).any(|l| l.any(f)))
    }
}

/// Whether a layer goes, given its neighbours.
type Discard = fn(Option<&LayerSpec>, &LayerSpec, Option<&LayerSpec>) -> bool;

fn without(layers: &[LayerSpec], drop: Discard) -> Vec<LayerSpec> {
    let mut kept: Vec<LayerSpec> = vec![];
    for (i, layer) in layers.iter().enumerate() {
        match layer {
            layer if drop(kept.last(), layer, layers.get(i + 1)) => {}
            LayerSpec::Residual { body, shortcut } => {
                kept.push(LayerSpec::Residual { body: without(body, drop), shortcut: without(shortcut, drop) });
            }
            layer => kept.push(layer.clone()),
        }
    }
    kept
}

/// Channels, height and width of points that are one or three square planes, if `inputs` numbers can be that.
#[doc(hidden)]
pub fn guess_image(inputs: usize) -> Option<[usize; 3]> {
    [1, 3].into_iter().find_map(|channels| {
        let side = (inputs / channels).isqrt();
        (side > 0 && channels * side * side == inputs).then_some([channels, side, side])
    })
}
