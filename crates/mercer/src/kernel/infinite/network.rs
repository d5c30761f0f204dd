//! An infinite network: its layers, checked, and the steps in which they act on covariances.

use super::architecture::{self, Layer, Shown, Variances, Window};
use super::phi::Phi;
use crate::{Error, Result};

/// An infinitely wide network, described by its layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    layers: Vec<Layer>,
    variances: Variances,
    /// Depth and activation, where that was all that was said.
    plain: Option<(u32, Phi)>,
    shape: Option<[usize; 3]>,
    steps: Vec<Step>,
}

/// What is done to the covariances at one place of the network. Residual sums become a fork, two branches and a join, so
/// that the steps run one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// `K ← C_w K + C_b`
    Dense(Variances),
    /// The same of the mean of K over windows.
    Conv(Window, Variances),
    /// `K ← E[φφ]`
    Activation(Phi),
    /// The mean over pairs of positions of two windows.
    AvgPool(Window),
    /// The mean over equal positions.
    Flatten,
    /// The mean over all pairs of positions.
    Gap,
    /// Lays the covariances aside and goes on with them: the body of a residual sum.
    Fork,
    /// Takes up again what was laid aside last, and lays the body's result in its place: the shortcut.
    Shortcut,
    /// Adds what was laid aside last.
    Join,
}

impl Network {
    /// `depth` times dense and `phi`, then a dense read-out.
    pub fn plain(depth: u32, phi: Phi, variances: Variances) -> Network {
        let hidden = (0..depth).flat_map(|_| [Layer::Dense(variances), Layer::Activation(phi)]);
        let layers: Vec<Layer> = hidden.chain([Layer::Dense(variances)]).collect();
        let steps = steps(&layers);
        Network { layers, variances, plain: Some((depth, phi)), shape: None, steps }
    }

    /// From an architecture, see [`super`]. The shape of the pictures, where the layers look at pictures, is `shape`
    /// `[height, width, channels]`, or is guessed from the number of `inputs`.
    pub fn parse(
        text: &str,
        variances: Variances,
        shape: Option<[usize; 3]>,
        inputs: Option<usize>,
    ) -> Result<Network> {
        let layers = architecture::parse(text, variances)?;
        let named = |e: Error| Error::input(format!("architecture '{}': {e}", text.trim()));
        if !layers.iter().any(has_weights) {
            return Err(named(Error::input("it has no layer with weights; write for example dense relu dense")));
        }
        let shape = if layers.iter().any(sees_pictures) { Some(picture(shape, inputs).map_err(named)?) } else { None };
        let start = At { picture: shape.map(|[h, w, _]| (h, w)), gaussian: false };
        let end = walk(&layers, start).map_err(named)?;
        if end.picture.is_some() {
            return Err(named(Error::input("it ends with a picture; add gap or flatten, and then dense")));
        }
        let steps = steps(&layers);
        Ok(Network { layers, variances, plain: None, shape, steps })
    }

    /// `[height, width, channels]` of the pictures, for a network that looks at them.
    pub fn shape(&self) -> Option<[usize; 3]> {
        self.shape
    }

    /// How many inputs a first unit adds up at each position: the channels of pictures, or all `d` numbers of a point.
    pub fn inputs(&self, d: usize) -> usize {
        self.shape.map_or(d.max(1), |[_, _, channels]| channels)
    }

    /// What happens to the covariances, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The arguments that say all this in a kernel expression: name and value.
    pub(super) fn arguments(&self) -> Vec<(&'static str, String)> {
        let mut said = match self.plain {
            Some((depth, phi)) => vec![("depth", depth.to_string()), ("act", phi.name().into())],
            None => vec![("", format!("\"{}\"", Shown(&self.layers, self.variances)))],
        };
        said.push(("w_var", self.variances.weight.to_string()));
        said.push(("b_var", self.variances.bias.to_string()));
        said.extend(self.shape.map(|[h, w, c]| ("shape", format!("{h}x{w}x{c}"))));
        said
    }
}

/// Reads `HxWxC`.
pub(in crate::kernel) fn parse_shape(text: &str) -> Option<[usize; 3]> {
    let sides = text.split('x').map(|side| side.parse().ok().filter(|n| (1..=65536).contains(n)));
    sides.collect::<Option<Vec<usize>>>()?.try_into().ok()
}

/// The pictures' shape as given, or guessed: a square with one channel or three.
fn picture(given: Option<[usize; 3]>, inputs: Option<usize>) -> Result<[usize; 3]> {
    match (given, inputs) {
        (Some(shape), Some(d)) if shape.iter().product::<usize>() != d => {
            let [h, w, c] = shape;
            Err(Error::input(format!("shape={h}x{w}x{c} holds {} numbers, but the points have {d}", h * w * c)))
        }
        (Some(shape), _) => Ok(shape),
        (None, None) => Err(Error::input("it looks at pictures; say their shape, such as shape=28x28x1")),
        (None, Some(d)) => {
            let square = |c: usize| (1..=d).find(|side| side * side * c >= d).filter(|side| side * side * c == d);
            let guess = [1, 3].into_iter().find_map(|c| square(c).map(|side| [side, side, c]));
            guess.ok_or_else(|| {
                Error::input(format!(
                    "points of {d} numbers are no square pictures with 1 or 3 channels; say their shape, such as shape=28x20x1"
                ))
            })
        }
    }
}

fn has_weights(layer: &Layer) -> bool {
    match layer {
        Layer::Dense(_) | Layer::Conv(..) => true,
        Layer::Residual(body, shortcut) => body.iter().chain(shortcut).any(has_weights),
        _ => false,
    }
}

fn sees_pictures(layer: &Layer) -> bool {
    match layer {
        Layer::Conv(..) | Layer::AvgPool(_) | Layer::Gap => true,
        Layer::Residual(body, shortcut) => body.iter().chain(shortcut).any(sees_pictures),
        _ => false,
    }
}

/// What is known at a place of the network.
#[derive(Clone, Copy, PartialEq)]
struct At {
    /// Height and width, while there are positions.
    picture: Option<(usize, usize)>,
    /// Whether the units are normal in the limit, as a layer of weights leaves them and an activation needs them.
    gaussian: bool,
}

fn walk(layers: &[Layer], start: At) -> Result<At> {
    layers.iter().try_fold(start, |at, layer| after(layer, at))
}

fn after(layer: &Layer, at: At) -> Result<At> {
    let windows = |what: &str, window: &Window| {
        let Some((h, w)) = at.picture else {
            return Err(Error::input(format!("{what} comes after the picture has become one vector")));
        };
        let counts = (window.along(h).0, window.along(w).0);
        if counts.0 == 0 || counts.1 == 0 {
            return Err(Error::input(format!("{what}({}) does not fit a picture of {h}×{w}", window.size)));
        }
        Ok(Some(counts))
    };
    match layer {
        Layer::Dense(_) if at.picture.is_some() => {
            Err(Error::input("dense needs one vector; put gap or flatten before it"))
        }
        Layer::Dense(_) => Ok(At { gaussian: true, ..at }),
        Layer::Conv(window, _) => Ok(At { picture: windows("conv", window)?, gaussian: true }),
        Layer::AvgPool(window) => Ok(At { picture: windows("avgpool", window)?, ..at }),
        Layer::Activation(Phi::Identity) => Ok(at),
        Layer::Activation(phi) if !at.gaussian => {
            Err(Error::input(format!("{} needs a layer of weights (dense or conv) right before it", phi.name())))
        }
        Layer::Activation(_) => Ok(At { gaussian: false, ..at }),
        Layer::Flatten => Ok(At { picture: None, ..at }),
        Layer::Gap if at.picture.is_none() => Err(Error::input("gap comes after the picture has become one vector")),
        Layer::Gap => Ok(At { picture: None, ..at }),
        Layer::Residual(body, shortcut) => {
            let pools = |l: &Layer| matches!(l, Layer::AvgPool(_) | Layer::Flatten | Layer::Gap);
            if body.iter().chain(shortcut).any(pools) {
                return Err(Error::input("res cannot hold avgpool, flatten or gap; put them outside"));
            }
            let (end, short) = (walk(body, at)?, walk(shortcut, at)?);
            if !matches!(body.last(), Some(Layer::Dense(_) | Layer::Conv(..) | Layer::Residual(..))) {
                return Err(Error::input(
                    "the first branch of res must end with dense or conv, to be independent of the other",
                ));
            }
            if stride(body) != stride(shortcut) {
                return Err(Error::input("the two branches of res have different strides, so they cannot be added"));
            }
            if end.picture != short.picture {
                let side = |at: At| at.picture.map_or("a vector".into(), |(h, w)| format!("{h}×{w}"));
                let (a, b) = (side(end), side(short));
                return Err(Error::input(format!("the two branches of res give {a} and {b}, which cannot be added")));
            }
            Ok(At { picture: end.picture, gaussian: end.gaussian && short.gaussian })
        }
    }
}

/// Product of the strides of the convolutions.
fn stride(layers: &[Layer]) -> usize {
    let of = |layer: &Layer| match layer {
        Layer::Conv(window, _) => window.stride,
        Layer::Residual(body, _) => stride(body),
        _ => 1,
    };
    layers.iter().map(of).product()
}

fn steps(layers: &[Layer]) -> Vec<Step> {
    let of = |layer: &Layer| match layer {
        Layer::Dense(v) => vec![Step::Dense(*v)],
        Layer::Conv(window, v) => vec![Step::Conv(*window, *v)],
        Layer::Activation(phi) => vec![Step::Activation(*phi)],
        Layer::AvgPool(window) => vec![Step::AvgPool(*window)],
        Layer::Flatten => vec![Step::Flatten],
        Layer::Gap => vec![Step::Gap],
        Layer::Residual(body, shortcut) => {
            [vec![Step::Fork], steps(body), vec![Step::Shortcut], steps(shortcut), vec![Step::Join]].concat()
        }
    };
    layers.iter().flat_map(of).collect()
}
