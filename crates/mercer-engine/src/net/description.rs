//! A network as a value: its layers and their options, before anything is known of the points that it will see.
//!
//! From one [`Description`] come a network to train ([`super::Network::new`]) and, in the library, the kernels of the network
//! of infinite width. [`Description::parse`] reads the words of the table in [`super`], and `Display` writes them.

use crate::compute::Activation;
use crate::syntax::{Call, Scanner};
use crate::{Error, Result};
use std::fmt;

/// A network: layers in order.
///
/// ```
/// use mercer_engine::net::Description;
/// let text = "image(3, 32, 32) conv(16, 3) bn relu res(conv(16, 3) bn) gap | dense(10, w=2)";
/// assert_eq!(Description::parse(text)?.to_string(), text);
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

/// One layer of a [`Description`].
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

/// How the weights and biases of a layer are drawn, where it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightSpec {
    /// Spread of the weights times `√fan-in`.
    pub weight: Option<Spread>,
    /// Spread of the biases.
    pub bias: Option<Spread>,
}

/// The width of a normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Its standard deviation: `w=`, `b=`.
    Deviation(f64),
    /// Its variance: `w_var=`, `b_var=`.
    Variance(f64),
}

impl Spread {
    /// The standard deviation.
    pub fn deviation(self) -> f64 {
        match self {
            Spread::Deviation(d) => d,
            Spread::Variance(v) => v.sqrt(),
        }
    }

    /// The variance.
    pub fn variance(self) -> f64 {
        match self {
            Spread::Deviation(d) => d * d,
            Spread::Variance(v) => v,
        }
    }
}

/// Square windows of an image.
///
/// With `pad=same`, zeros around an image of side n make room for `⌈n/stride⌉` windows a side. With stride 1,
/// `⌊(size−1)/2⌋` zeros come before the image and `⌊size/2⌋` after it. With larger strides, two conventions are in use, and
/// they place the windows differently:
///
/// - networks to train keep that frame whatever the stride, as PyTorch does for odd sizes ([`Window::frame`]);
/// - infinite networks add as few zeros as the windows need, as TensorFlow and neural-tangents do ([`Window::along`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub size: usize,
    /// Distance between neighbouring windows.
    pub stride: usize,
    /// Whether zeros are added around the image; without them, windows lie inside it.
    pub same: bool,
}

impl Window {
    /// Zeros before and after the image in a network to train.
    pub fn frame(self) -> (usize, usize) {
        if self.same { ((self.size - 1) / 2, self.size / 2) } else { (0, 0) }
    }

    /// In an infinite network: how many windows fit a side of `n`, and how many zeros come before it.
    pub fn along(self, n: usize) -> (usize, usize) {
        if self.same {
            let count = n.div_ceil(self.stride);
            let reach = ((count - 1) * self.stride + self.size).saturating_sub(n);
            (count, reach / 2)
        } else {
            ((n + self.stride).saturating_sub(self.size) / self.stride, 0)
        }
    }
}

impl Description {
    /// Reads an architecture.
    pub fn parse(text: &str) -> Result<Description> {
        let mut scanner = Scanner::new("architecture", text);
        let image = image(&mut scanner)?;
        let mut trunk = None;
        let layers = chain(&mut scanner, 0, &mut trunk)?;
        Ok(Description { image, layers, trunk: trunk.unwrap_or(0) })
    }

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

    /// The same network without the batch norms that follow a dense layer or a convolution directly.
    pub fn without_folded_norms(&self) -> Description {
        let trunk = without_folded_norms(&self.layers[..self.trunk]).len();
        Description { layers: without_folded_norms(&self.layers), trunk, ..*self }
    }

    /// Whether a layer of it computes statistics of the batch.
    pub fn has_norms(&self) -> bool {
        self.any(|layer| matches!(layer, LayerSpec::BatchNorm | LayerSpec::L2Norm))
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

fn without_folded_norms(layers: &[LayerSpec]) -> Vec<LayerSpec> {
    let mut kept: Vec<LayerSpec> = vec![];
    for layer in layers {
        match (layer, kept.last()) {
            (LayerSpec::BatchNorm, Some(LayerSpec::Dense { .. } | LayerSpec::Conv { .. })) => {}
            (LayerSpec::Residual { body, shortcut }, _) => kept.push(LayerSpec::Residual {
                body: without_folded_norms(body),
                shortcut: without_folded_norms(shortcut),
            }),
            _ => kept.push(layer.clone()),
        }
    }
    kept
}

/// The widest layer accepted: anything wider is a typing error.
const WIDEST: usize = 1 << 20;

/// Residual layers may hold residual layers, up to this depth.
const DEEPEST: usize = 32;

/// The words that are not activations.
const WORDS: [&str; 12] =
    ["dense", "conv", "bn", "maxpool", "avgpool", "gap", "flatten", "res", "image", "rff", "radial", "l2norm"];

/// `image(channels, height, width)`, if that is the first word.
fn image(scanner: &mut Scanner) -> Result<Option<[usize; 3]>> {
    let start = scanner.clone();
    if scanner.word() != Some("image") {
        *scanner = start;
        return Ok(None);
    }
    let call = Call { name: "image", arguments: scanner.arguments("image")? };
    let numbers = call.check(3, &[]).and_then(|()| call.values().map(|v| whole(&call, "extents", v)).collect());
    let numbers: Vec<usize> = numbers.map_err(|e: Error| start.error(&e.to_string()))?;
    let wrong = |_| start.error("image needs channels, height and width, such as image(3, 32, 32)");
    numbers.try_into().map(Some).map_err(wrong)
}

/// Layers up to the end, or up to the `;` or `)` that ends a branch of `res`.
fn chain(scanner: &mut Scanner, depth: usize, trunk: &mut Option<usize>) -> Result<Vec<LayerSpec>> {
    let mut layers = vec![];
    while let Some(next) = scanner.peek() {
        let here = scanner.clone();
        match next {
            ')' | ';' if depth > 0 => break,
            ')' | ';' => return Err(here.error(&format!("there is a '{next}' too many"))),
            '|' if depth > 0 => {
                return Err(here.error("a | inside res(…) has no meaning; a shared trunk ends between layers"));
            }
            '|' if trunk.is_some() => return Err(here.error("there is more than one |")),
            '|' => {
                scanner.take('|');
                *trunk = Some(layers.len());
            }
            _ => {
                let name = scanner.word().ok_or_else(|| here.error(&format!("expected a layer, got '{next}'")))?;
                layers.push(match name {
                    "res" => residual(scanner, depth + 1)?,
                    _ => {
                        let call = Call { name, arguments: scanner.arguments(name)? };
                        layer(&call).map_err(|e| here.error(&e.to_string()))?
                    }
                });
            }
        }
    }
    Ok(layers)
}

fn residual(scanner: &mut Scanner, depth: usize) -> Result<LayerSpec> {
    if !scanner.take('(') {
        return Err(scanner.error("res holds its layers in brackets, such as res(dense relu dense)"));
    }
    if depth > DEEPEST {
        return Err(scanner.error(&format!("res is nested deeper than {DEEPEST}")));
    }
    let body = chain(scanner, depth, &mut None)?;
    let shortcut = if scanner.take(';') { chain(scanner, depth, &mut None)? } else { vec![] };
    match scanner.peek() {
        Some(';') => Err(scanner.error("res has more than one ; (body; shortcut)")),
        _ if !scanner.take(')') => Err(scanner.error("'res(' has no closing bracket")),
        _ => Ok(LayerSpec::Residual { body, shortcut }),
    }
}

fn layer(call: &Call) -> Result<LayerSpec> {
    const SPREADS: [&str; 4] = ["w", "b", "w_var", "b_var"];
    let bare = |layer: LayerSpec| call.check(0, &[]).map(|()| layer);
    match call.name {
        "dense" => {
            call.check(1, &SPREADS)?;
            let width = call.values().next().map(|text| whole(call, "width", text)).transpose()?;
            Ok(LayerSpec::Dense { width, weights: weights(call)? })
        }
        "conv" => {
            call.check(2, &[&["size", "stride", "pad"][..], &SPREADS].concat())?;
            // One number alone is the size; before a size, it is the number of channels.
            let mut numbers: Vec<&str> = call.values().chain(call.value("size")).collect();
            let window = window(call, numbers.pop(), None)?;
            let channels = match numbers[..] {
                [] => None,
                [channels] => Some(whole(call, "number of channels", channels)?),
                _ => return Err(Error::input("conv: the size is given twice")),
            };
            Ok(LayerSpec::Conv { channels, window, weights: weights(call)? })
        }
        "maxpool" => {
            call.check(1, &[])?;
            window(call, call.values().next(), None).map(|window| LayerSpec::MaxPool(window.size))
        }
        "avgpool" => {
            call.check(1, &["size", "stride"])?;
            let size = call.value("size").or(call.values().next());
            let window = window(call, size, size)?;
            Ok(LayerSpec::AvgPool(Window { same: false, ..window }))
        }
        "rff" => {
            call.check(1, &["lengthscale"])?;
            let outputs = call.values().next().ok_or_else(|| missing(call, "number of features", "32"))?;
            let lengthscale = positive(call, "lengthscale")?.unwrap_or(1.0);
            Ok(LayerSpec::Fourier { outputs: whole(call, "number of features", outputs)?, lengthscale })
        }
        "radial" => {
            call.check(0, &["scale"])?;
            Ok(LayerSpec::Radial { scale: positive(call, "scale")?.unwrap_or(1.0) })
        }
        "bn" => bare(LayerSpec::BatchNorm),
        "gap" => bare(LayerSpec::Gap),
        "flatten" => bare(LayerSpec::Flatten),
        "l2norm" => bare(LayerSpec::L2Norm),
        "image" => Err(Error::input("image says what the points are; it is the first word or is left out")),
        name => match Activation::find(name) {
            Some(phi) => bare(LayerSpec::Activation(phi)),
            None => Err(Error::unknown("layer", name, WORDS.into_iter().chain(Activation::NAMES))),
        },
    }
}

fn missing(call: &Call, what: &str, example: &str) -> Error {
    Error::input(format!("{0} needs its {what}, such as {0}({example})", call.name))
}

fn whole(call: &Call, what: &str, text: &str) -> Result<usize> {
    text.parse().ok().filter(|n| (1..=WIDEST).contains(n)).ok_or_else(|| {
        Error::input(format!("{}: the {what} must be a whole number from 1 to {WIDEST}, not '{text}'", call.name))
    })
}

/// The option `key`, a number that `valid` accepts.
fn option(call: &Call, key: &str, valid: impl Fn(f64) -> bool, range: &str) -> Result<Option<f64>> {
    let Some(text) = call.value(key) else { return Ok(None) };
    let number = text.parse().ok().filter(|v: &f64| v.is_finite() && valid(*v));
    let wrong = || Error::input(format!("{}: {key}={text} must be a number {range}", call.name));
    number.map(Some).ok_or_else(wrong)
}

fn positive(call: &Call, key: &str) -> Result<Option<f64>> {
    option(call, key, |v| v > 0.0, "above 0")
}

/// Windows of the given size, padded unless `pad=valid`; the stride is 1 or `usual` where it is not said.
fn window(call: &Call, size: Option<&str>, usual: Option<&str>) -> Result<Window> {
    let size = whole(call, "size", size.ok_or_else(|| missing(call, "size", "3"))?)?;
    let stride = call.value("stride").or(usual).map_or(Ok(1), |text| whole(call, "stride", text))?;
    match call.value("pad") {
        None | Some("same") => Ok(Window { size, stride, same: true }),
        Some("valid") => Ok(Window { size, stride, same: false }),
        Some(other) => Err(Error::input(format!("{}: pad={other} must be same or valid", call.name))),
    }
}

fn weights(call: &Call) -> Result<WeightSpec> {
    let spread = |key: &str, valid: fn(f64) -> bool, range: &str| {
        let (deviation, variance) =
            (option(call, key, valid, range)?, option(call, &format!("{key}_var"), valid, range)?);
        match (deviation, variance) {
            (Some(_), Some(_)) => Err(Error::input(format!("{}: give {key}_var or {key}, not both", call.name))),
            _ => Ok(deviation.map(Spread::Deviation).or(variance.map(Spread::Variance))),
        }
    };
    Ok(WeightSpec { weight: spread("w", |w| w > 0.0, "above 0")?, bias: spread("b", |b| b >= 0.0, "of at least 0")? })
}

/// Writes what [`Description::parse`] reads back.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = self.image.map(|[c, h, w]| format!("image({c}, {h}, {w})"));
        let mut words: Vec<String> = self.layers.iter().map(LayerSpec::to_string).collect();
        if self.trunk > 0 {
            words.insert(self.trunk, "|".into());
        }
        f.write_str(&image.into_iter().chain(words).collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for LayerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, arguments): (&str, Vec<Option<String>>) = match self {
            LayerSpec::Dense { width, weights } => {
                ("dense", [&[width.map(|w| w.to_string())][..], &weights.arguments()].concat())
            }
            LayerSpec::Conv { channels, window, weights } => {
                let stride = (window.stride != 1).then(|| format!("stride={}", window.stride));
                let pad = (!window.same).then(|| "pad=valid".into());
                let shape = [channels.map(|c| c.to_string()), Some(window.size.to_string()), stride, pad];
                ("conv", [&shape[..], &weights.arguments()].concat())
            }
            LayerSpec::BatchNorm => ("bn", vec![]),
            LayerSpec::MaxPool(size) => ("maxpool", vec![Some(size.to_string())]),
            LayerSpec::AvgPool(window) => {
                let stride = (window.stride != window.size).then(|| format!("stride={}", window.stride));
                ("avgpool", vec![Some(window.size.to_string()), stride])
            }
            LayerSpec::Gap => ("gap", vec![]),
            LayerSpec::Flatten => ("flatten", vec![]),
            LayerSpec::Residual { body, shortcut } => {
                let words =
                    |layers: &[LayerSpec]| layers.iter().map(LayerSpec::to_string).collect::<Vec<_>>().join(" ");
                let shortcut = if shortcut.is_empty() { String::new() } else { format!("; {}", words(shortcut)) };
                return write!(f, "res({}{shortcut})", words(body));
            }
            LayerSpec::Fourier { outputs, lengthscale } => {
                ("rff", vec![Some(outputs.to_string()), Some(format!("lengthscale={lengthscale}"))])
            }
            LayerSpec::Radial { scale } => ("radial", vec![Some(format!("scale={scale}"))]),
            LayerSpec::L2Norm => ("l2norm", vec![]),
            LayerSpec::Activation(phi) => (phi.name(), vec![]),
        };
        let arguments: Vec<String> = arguments.into_iter().flatten().collect();
        f.write_str(name)?;
        if arguments.is_empty() { Ok(()) } else { write!(f, "({})", arguments.join(", ")) }
    }
}

impl WeightSpec {
    fn arguments(&self) -> [Option<String>; 2] {
        let written = |key: &str, spread: Option<Spread>| {
            spread.map(|spread| match spread {
                Spread::Deviation(d) => format!("{key}={d}"),
                Spread::Variance(v) => format!("{key}_var={v}"),
            })
        };
        [written("w", self.weight), written("b", self.bias)]
    }
}
