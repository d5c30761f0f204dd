//! From text to a [`Description`].

use super::{Description, LayerSpec, Pad, Spread, WeightSpec, Window};
use crate::compute::Activation;
use crate::syntax::{Call, Scanner};
use crate::{Error, Result, fail_if};

/// The widest layer accepted: anything wider is a typing error.
const WIDEST: usize = 1 << 20;

/// The words that are not activations.
const WORDS: [&str; 14] = [
    "dense", "conv", "bn", "ln", "dropout", "maxpool", "avgpool", "gap", "flatten", "res", "image", "rff", "radial",
    "l2norm",
];

impl Description {
    /// Reads an architecture.
    pub fn parse(text: &str) -> Result<Description> {
        let mut scanner = Scanner::new("architecture", text);
        let image = image(&mut scanner)?;
        let mut trunk = None;
        let layers = chain(&mut scanner, false, &mut trunk)?;
        Ok(Description { image, layers, trunk: trunk.unwrap_or(0) })
    }
}

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
fn chain(scanner: &mut Scanner, inside: bool, trunk: &mut Option<usize>) -> Result<Vec<LayerSpec>> {
    let mut layers = vec![];
    while let Some(next) = scanner.peek() {
        let here = scanner.clone();
        match next {
            ')' | ';' if inside => break,
            ')' | ';' => return Err(here.error(&format!("there is a '{next}' too many"))),
            '|' if inside => {
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
                    "res" => residual(scanner)?,
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

fn residual(scanner: &mut Scanner) -> Result<LayerSpec> {
    fail_if!(!scanner.take('('); scanner.error("res holds its layers in brackets, such as res(dense relu dense)"));
    let (body, shortcut) = scanner.nested(|scanner| {
        let body = chain(scanner, true, &mut None)?;
        let shortcut = if scanner.take(';') { chain(scanner, true, &mut None)? } else { vec![] };
        Ok((body, shortcut))
    })?;
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
            Ok(LayerSpec::AvgPool(Window { pad: Pad::Each(0), ..window }))
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
        "ln" => bare(LayerSpec::LayerNorm),
        "dropout" => {
            call.check(1, &["p"])?;
            let share = call.value("p").or(call.values().next()).unwrap_or("0.5");
            let number = share.parse().ok().filter(|p| (0.0..1.0).contains(p));
            let wrong = || Error::input(format!("dropout: '{share}' must be a number from 0 to below 1"));
            number.map(LayerSpec::Dropout).ok_or_else(wrong)
        }
        "gap" => bare(LayerSpec::Gap),
        "flatten" => bare(LayerSpec::Flatten),
        "l2norm" => bare(LayerSpec::L2Norm),
        "image" => Err(Error::input("image says what the points are; it is the first word or is left out")),
        name => match Activation::of_call(call)? {
            Some(phi) => Ok(LayerSpec::Activation(phi)),
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

/// Windows of the given size, padded by [`Pad::Same`] unless it is said otherwise; the stride is 1 or `usual` where it is not.
fn window(call: &Call, size: Option<&str>, usual: Option<&str>) -> Result<Window> {
    let size = whole(call, "size", size.ok_or_else(|| missing(call, "size", "3"))?)?;
    let stride = call.value("stride").or(usual).map_or(Ok(1), |text| whole(call, "stride", text))?;
    let pad = match call.value("pad") {
        None | Some("same") => Pad::Same,
        Some("valid") => Pad::Each(0),
        Some(text) => {
            let zeros = text.parse().ok().filter(|&zeros: &usize| zeros < size);
            Pad::Each(zeros.ok_or_else(|| {
                Error::input(format!(
                    "{}: pad={text} must be same, valid, or a whole number from 0 to {}",
                    call.name,
                    size - 1
                ))
            })?)
        }
    };
    Ok(Window { size, stride, pad })
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
    let weight = spread("w", |w| w > 0.0, "above 0")?;
    let bias = match (call.value("b"), call.value("b_var")) {
        (Some("no"), Some(_)) => return Err(Error::input(format!("{}: give b_var or b, not both", call.name))),
        (Some("no"), None) => Some(Spread::Absent),
        _ => spread("b", |b| b >= 0.0, "of at least 0, or no")?,
    };
    Ok(WeightSpec { weight, bias })
}
