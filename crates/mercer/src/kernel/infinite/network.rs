//! An infinite network: its layers, checked, and the steps in which they act on covariances.

use crate::compute::Activation;
use crate::net::{Description, LayerSpec, Spread, WeightSpec, Window, guess_image};
use crate::{Error, Result, fail_if};

/// Residual layers may hold residual layers, up to this depth.
pub const DEEPEST: usize = 4;

/// Variances of a layer's weights (times the number of inputs) and biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variances {
    /// `C_w`
    pub weight: f64,
    /// `C_b`
    pub bias: f64,
}

impl Variances {
    /// The variances of a layer: its own, or these where it gives none.
    fn of(self, weights: &WeightSpec) -> Variances {
        let variance = |said: Option<Spread>, usual: f64| said.map_or(usual, Spread::variance);
        Variances { weight: variance(weights.weight, self.weight), bias: variance(weights.bias, self.bias) }
    }

    /// The options of a layer whose variances are `own`, when these are the default.
    fn overridden_by(self, own: Variances) -> WeightSpec {
        let said = |own: f64, usual: f64| (own != usual).then_some(Spread::Variance(own));
        WeightSpec { weight: said(own.weight, self.weight), bias: said(own.bias, self.bias) }
    }
}

/// An infinitely wide network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The arguments of a kernel expression that describe it.
    pub(super) arguments: Vec<String>,
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
    Activation(Activation),
    /// The mean over pairs of positions of two windows.
    AvgPool(Window),
    /// The mean over equal positions.
    Flatten,
    /// The mean over all pairs of positions.
    Gap,
    /// Stores a copy of the covariances; the body of a residual sum follows.
    Fork,
    /// Exchanges the covariances with those stored last, the input of the residual sum: its shortcut follows.
    Shortcut,
    /// Adds the covariances stored last.
    Join,
}

impl Network {
    /// `depth` times dense and `phi`, then a dense read-out.
    pub fn plain(depth: u32, phi: Activation, variances: Variances) -> Network {
        let hidden = (0..depth).flat_map(|_| [Step::Dense(variances), Step::Activation(phi)]);
        let steps = hidden.chain([Step::Dense(variances)]).collect();
        let layers = vec![format!("depth={depth}"), format!("act={phi}")];
        Network { arguments: arguments(layers, variances, None), shape: None, steps }
    }

    /// The network of a description at infinite width: widths, channels and a shared trunk have no meaning here. Layers that
    /// do not say otherwise have the given `variances`. The shape of images, where the layers see such, is `shape`
    /// `[height, width, channels]`, or that of the description, or is guessed from the number of `inputs`.
    pub fn new(
        description: &Description,
        variances: Variances,
        shape: Option<[usize; 3]>,
        inputs: Option<usize>,
    ) -> Result<Network> {
        use LayerSpec::{AvgPool, Conv, Dense, Gap};
        let layers = widened(&description.layers, variances, 0)?;
        if !description.any(|layer| matches!(layer, Dense { .. } | Conv { .. })) {
            return Err(Error::input("it has no layer with weights; write for example dense relu dense"));
        }
        let images = description.any(|layer| matches!(layer, Conv { .. } | AvgPool(_) | Gap));
        let shape = shape.or(description.image.map(|[c, h, w]| [h, w, c]));
        let shape = images.then(|| image_shape(shape, inputs)).transpose()?;
        let mut steps = vec![];
        let start = At { image: shape.map(|[h, w, _]| (h, w)), gaussian: false };
        fail_if!(
            walk(&layers, variances, start, &mut steps)?.image.is_some(),
            "it ends with an image; add gap or flatten, and then dense"
        );
        let text = format!("\"{}\"", Description { layers, ..Description::default() });
        Ok(Network { arguments: arguments(vec![text], variances, shape), shape, steps })
    }

    /// `[height, width, channels]` of the images, for a network that looks at them.
    pub fn shape(&self) -> Option<[usize; 3]> {
        self.shape
    }

    /// How many inputs a first unit adds up at each position: the channels of images, or all `d` numbers of a point.
    pub fn inputs(&self, d: usize) -> usize {
        self.shape.map_or(d.max(1), |[_, _, channels]| channels)
    }

    /// What happens to the covariances, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// The arguments of a kernel expression: `layers`, the variances and the shape of images.
fn arguments(mut layers: Vec<String>, variances: Variances, shape: Option<[usize; 3]>) -> Vec<String> {
    layers.extend([format!("w_var={}", variances.weight), format!("b_var={}", variances.bias)]);
    layers.extend(shape.map(|[h, w, c]| format!("shape={h}x{w}x{c}")));
    layers
}

/// Reads `HxWxC`.
pub(in crate::kernel) fn parse_shape(text: &str) -> Option<[usize; 3]> {
    let sides = text.split('x').map(|side| side.parse().ok().filter(|n| (1..=65536).contains(n)));
    sides.collect::<Option<Vec<usize>>>()?.try_into().ok()
}

/// The images' shape as given, or guessed: a square with one channel or three.
fn image_shape(given: Option<[usize; 3]>, inputs: Option<usize>) -> Result<[usize; 3]> {
    match (given, inputs) {
        (Some([h, w, c]), Some(d)) if h * w * c != d => {
            Err(Error::input(format!("shape={h}x{w}x{c} holds {} numbers, but the points have {d}", h * w * c)))
        }
        (Some(shape), _) => Ok(shape),
        (None, None) => Err(Error::input("it sees images; say their shape, such as shape=28x28x1")),
        (None, Some(d)) => guess_image(d).map(|[c, h, w]| [h, w, c]).ok_or_else(|| {
            Error::input(format!(
                "points of {d} numbers are no square images with 1 or 3 channels; say their shape, such as shape=28x20x1"
            ))
        }),
    }
}

/// An error for the activation whose expectations have no closed form.
pub(super) fn require_kernel(phi: Activation) -> Result<()> {
    fail_if!(
        phi == Activation::Silu,
        "silu has no kernel at infinite width; use for example gelu, which is near to it"
    );
    Ok(())
}

/// The layers without widths and channels, in the form in which they are shown; layers that have no kernel are refused.
fn widened(layers: &[LayerSpec], usual: Variances, depth: usize) -> Result<Vec<LayerSpec>> {
    let own = |weights: &WeightSpec| usual.overridden_by(usual.of(weights));
    let wide = |layer: &LayerSpec| match layer {
        LayerSpec::Dense { weights, .. } => Ok(LayerSpec::Dense { width: None, weights: own(weights) }),
        LayerSpec::Conv { window, weights, .. } => {
            Ok(LayerSpec::Conv { channels: None, window: *window, weights: own(weights) })
        }
        LayerSpec::Residual { .. } if depth == DEEPEST => {
            Err(Error::input(format!("res is nested deeper than {DEEPEST}")))
        }
        LayerSpec::Residual { body, shortcut } => Ok(LayerSpec::Residual {
            body: widened(body, usual, depth + 1)?,
            shortcut: widened(shortcut, usual, depth + 1)?,
        }),
        LayerSpec::Activation(phi) => require_kernel(*phi).map(|()| layer.clone()),
        LayerSpec::AvgPool(_) | LayerSpec::Flatten | LayerSpec::Gap => Ok(layer.clone()),
        LayerSpec::MaxPool(size) => {
            Err(Error::input(format!("maxpool has no kernel at infinite width; use for example avgpool({size})")))
        }
        _ => Err(Error::input(format!("{layer} has no kernel at infinite width; leave it out"))),
    };
    layers.iter().map(wide).collect()
}

/// What is known at a place of the network.
#[derive(Clone, Copy, PartialEq)]
struct At {
    /// Height and width, while there are positions.
    image: Option<(usize, usize)>,
    /// Whether the units are normal in the limit, as a layer of weights leaves them and an activation needs them.
    gaussian: bool,
}

/// Checks the layers one after the other, and appends what they do to the covariances to `steps`.
fn walk(layers: &[LayerSpec], usual: Variances, start: At, steps: &mut Vec<Step>) -> Result<At> {
    layers.iter().try_fold(start, |at, layer| after(layer, usual, at, steps))
}

fn after(layer: &LayerSpec, usual: Variances, at: At, steps: &mut Vec<Step>) -> Result<At> {
    let invalid = |what: &str| Err(Error::input(what));
    let windows = |what: &str, window: &Window| {
        let Some((h, w)) = at.image else {
            return Err(Error::input(format!("{what} comes after the image has become one vector")));
        };
        let counts = (window.along(h).count, window.along(w).count);
        fail_if!(counts.0 == 0 || counts.1 == 0, "{what}({}) does not fit an image of {h}×{w}", window.size);
        Ok(Some(counts))
    };
    let (step, next) = match layer {
        LayerSpec::Dense { .. } if at.image.is_some() => {
            return invalid("dense needs one vector; put gap or flatten before it");
        }
        LayerSpec::Dense { weights, .. } => (Step::Dense(usual.of(weights)), At { gaussian: true, ..at }),
        LayerSpec::Conv { window, weights, .. } => {
            (Step::Conv(*window, usual.of(weights)), At { image: windows("conv", window)?, gaussian: true })
        }
        LayerSpec::AvgPool(window) => (Step::AvgPool(*window), At { image: windows("avgpool", window)?, ..at }),
        LayerSpec::Activation(phi) => {
            let identity = *phi == Activation::Identity;
            if !(identity || at.gaussian) {
                return invalid(&format!("{phi} needs a layer of weights (dense or conv) right before it"));
            }
            (Step::Activation(*phi), At { gaussian: identity && at.gaussian, ..at })
        }
        LayerSpec::Flatten => (Step::Flatten, At { image: None, ..at }),
        LayerSpec::Gap if at.image.is_none() => return invalid("gap comes after the image has become one vector"),
        LayerSpec::Gap => (Step::Gap, At { image: None, ..at }),
        LayerSpec::Residual { body, shortcut } => {
            use LayerSpec::{AvgPool, Conv, Dense, Flatten, Gap, Residual};
            if body.iter().chain(shortcut).any(|layer| matches!(layer, AvgPool(_) | Flatten | Gap)) {
                return invalid("res cannot hold avgpool, flatten or gap; put them outside");
            }
            steps.push(Step::Fork);
            let end = walk(body, usual, at, steps)?;
            steps.push(Step::Shortcut);
            let short = walk(shortcut, usual, at, steps)?;
            if !matches!(body.last(), Some(Dense { .. } | Conv { .. } | Residual { .. })) {
                return invalid("the first branch of res must end with dense or conv, to be independent of the other");
            }
            if stride(body) != stride(shortcut) {
                return invalid("the two branches of res have different strides, so they cannot be added");
            }
            if end.image != short.image {
                let [a, b] = [end, short].map(|at| at.image.map_or("a vector".into(), |(h, w)| format!("{h}×{w}")));
                return invalid(&format!("the two branches of res give {a} and {b}, which cannot be added"));
            }
            (Step::Join, At { image: end.image, gaussian: end.gaussian && short.gaussian })
        }
        _ => unreachable!("layers without a kernel are refused first"),
    };
    steps.push(step);
    Ok(next)
}

/// Product of the strides of the convolutions.
fn stride(layers: &[LayerSpec]) -> usize {
    let of = |layer: &LayerSpec| match layer {
        LayerSpec::Conv { window, .. } => window.stride,
        LayerSpec::Residual { body, .. } => stride(body),
        _ => 1,
    };
    layers.iter().map(of).product()
}
