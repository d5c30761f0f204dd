//! From an architecture string to the layers of an infinite network.
//!
//! ```text
//! layers := layer*
//! layer  := word [ '(' [argument (',' argument)*] ')' ]  |  'res' '(' layers [ ';' layers ] ')'
//! ```

use super::phi::Phi;
use crate::error::nearest;
use crate::{Error, Result};
use std::fmt;

/// A layer of an infinite network.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// `z = √(C_w/n) W y + √C_b b`
    Dense(Variances),
    /// The same in every window of a picture.
    Conv(Window, Variances),
    /// `y = φ(z)`
    Activation(Phi),
    /// The mean over windows.
    AvgPool(Window),
    /// All positions side by side.
    Flatten,
    /// The mean over all positions.
    Gap,
    /// `body(y) + shortcut(y)`, with the identity for an empty shortcut.
    Residual(Vec<Layer>, Vec<Layer>),
}

/// Variances of a layer's weights (times the number of inputs) and biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variances {
    /// `C_w`
    pub weight: f64,
    /// `C_b`
    pub bias: f64,
}

/// Square windows of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub size: usize,
    /// Distance between neighbouring windows.
    pub stride: usize,
    /// Whether zeros are added around the picture so that `⌈n/stride⌉` windows fit a side of n.
    pub same: bool,
}

impl Window {
    /// How many windows fit a side of `n`, and how far the first one reaches over the edge.
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

/// Residual sums may hold residual sums, up to this depth.
pub const DEEPEST: usize = 4;

/// The words of the grammar that are not activations.
const WORDS: [&str; 6] = ["dense", "conv", "avgpool", "flatten", "gap", "res"];

/// The layers of `text`; those that do not say otherwise have the variances `default`.
pub(super) fn parse(text: &str, default: Variances) -> Result<Vec<Layer>> {
    let mut parser = Parser { text, rest: text, default };
    let layers = parser.layers(0)?;
    if !parser.rest.is_empty() {
        return Err(parser.error("there is a ')' too many"));
    }
    Ok(layers)
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    default: Variances,
}

impl<'a> Parser<'a> {
    fn layers(&mut self, depth: usize) -> Result<Vec<Layer>> {
        let mut layers = vec![];
        loop {
            self.rest = self.rest.trim_start();
            // At the top, '|' marks the trunk that trained networks share; here all are infinitely many.
            if depth == 0 && self.take('|') {
                continue;
            }
            if self.rest.is_empty() || self.rest.starts_with([')', ';']) {
                return Ok(layers);
            }
            layers.push(self.layer(depth)?);
        }
    }

    fn layer(&mut self, depth: usize) -> Result<Layer> {
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            let found = self.rest.chars().next().unwrap_or(' ');
            return Err(self.error(&format!("expected a layer, got '{found}'")));
        }
        self.rest = rest.trim_start();
        if word == "res" {
            return self.residual(depth + 1);
        }
        let arguments = if self.take('(') { self.arguments(word)? } else { vec![] };
        let given = Arguments { word, given: arguments };
        match word {
            "dense" => {
                given.allow(1, &["w_var", "b_var", "w", "b"])?;
                given.whole(0, "width")?;
                Ok(Layer::Dense(given.variances(self.default)?))
            }
            "conv" => {
                given.allow(2, &["size", "stride", "pad", "w_var", "b_var", "w", "b"])?;
                // One number is the size; of two the first is the number of channels, which here is infinite.
                let size = if given.positional() == 2 { 1 } else { 0 };
                Ok(Layer::Conv(given.window(size, 1, true)?, given.variances(self.default)?))
            }
            "avgpool" => {
                given.allow(1, &["size", "stride"])?;
                Ok(Layer::AvgPool(given.window(0, 0, false)?))
            }
            "flatten" => given.allow(0, &[]).map(|()| Layer::Flatten),
            "gap" => given.allow(0, &[]).map(|()| Layer::Gap),
            name => match Phi::NAMES.iter().position(|n| *n == name) {
                Some(i) => given.allow(0, &[]).map(|()| Layer::Activation(Phi::ALL[i])),
                None => Err(self.unknown(name)),
            },
        }
    }

    fn residual(&mut self, depth: usize) -> Result<Layer> {
        if !self.take('(') {
            return Err(self.error("res holds its layers in brackets, such as res(dense relu dense)"));
        }
        if depth > DEEPEST {
            return Err(self.error(&format!("res is nested deeper than {DEEPEST}")));
        }
        let body = self.layers(depth)?;
        let shortcut = if self.take(';') { self.layers(depth)? } else { vec![] };
        if !self.take(')') {
            return Err(self.error("\"res(\" has no closing bracket"));
        }
        Ok(Layer::Residual(body, shortcut))
    }

    fn arguments(&mut self, word: &str) -> Result<Vec<(Option<&'a str>, &'a str)>> {
        let close = self.rest.find(')').ok_or_else(|| self.error(&format!("\"{word}(\" has no closing bracket")))?;
        let inside = &self.rest[..close];
        self.rest = &self.rest[close + 1..];
        let given = inside.split(',').map(str::trim).filter(|a| !a.is_empty());
        Ok(given
            .map(|argument| match argument.split_once('=') {
                Some((key, value)) => (Some(key.trim()), value.trim()),
                None => (None, argument),
            })
            .collect())
    }

    fn take(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    fn unknown(&self, name: &str) -> Error {
        let known = || WORDS.into_iter().chain(Phi::NAMES);
        let hint = nearest(name, known()).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
        let known = known().collect::<Vec<_>>().join(", ");
        self.error(&format!("no infinite layer is called '{name}'{hint} (known: {known})"))
    }

    fn error(&self, what: &str) -> Error {
        Error::input(format!("architecture '{}': {what}", self.text.trim()))
    }
}

/// The arguments given to a word: `(name, value)`.
struct Arguments<'a> {
    word: &'a str,
    given: Vec<(Option<&'a str>, &'a str)>,
}

impl Arguments<'_> {
    fn positional(&self) -> usize {
        self.given.iter().filter(|(key, _)| key.is_none()).count()
    }

    fn allow(&self, positional: usize, named: &[&str]) -> Result<()> {
        let word = self.word;
        if positional + named.len() == 0 && !self.given.is_empty() {
            return Err(Error::input(format!("{word} takes no arguments")));
        }
        if self.positional() > positional {
            return Err(Error::input(format!("{word} takes at most {positional} number(s) without a name")));
        }
        match self.given.iter().filter_map(|(key, _)| *key).find(|key| !named.contains(key)) {
            None => Ok(()),
            Some(key) => {
                let hint =
                    nearest(key, named.iter().copied()).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
                Err(Error::input(format!("{word} has no option '{key}'{hint} (known: {})", named.join(", "))))
            }
        }
    }

    fn named(&self, key: &str) -> Option<&str> {
        self.given.iter().find(|(k, _)| *k == Some(key)).map(|(_, value)| *value)
    }

    /// The value without a name at this place, a whole number from 1 to a million.
    fn whole(&self, place: usize, what: &str) -> Result<Option<usize>> {
        let text = self.given.iter().filter(|(key, _)| key.is_none()).nth(place).map(|(_, value)| *value);
        text.map(|text| self.whole_number(text, what)).transpose()
    }

    fn whole_number(&self, text: &str, what: &str) -> Result<usize> {
        text.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(|| {
            Error::input(format!("{}: its {what} must be a whole number from 1 to 1000000, got '{text}'", self.word))
        })
    }

    /// A window whose size is the unnamed number at `place`; a stride of 0 stands for the size.
    fn window(&self, place: usize, stride: usize, same: bool) -> Result<Window> {
        let size = match self.named("size") {
            Some(text) => Some(self.whole_number(text, "size")?),
            None => self.whole(place, "size")?,
        };
        let word = self.word;
        let size = size.ok_or_else(|| Error::input(format!("{word} needs its size, such as {word}(3)")))?;
        let stride = match self.named("stride") {
            Some(text) => self.whole_number(text, "stride")?,
            None if stride == 0 => size,
            None => stride,
        };
        let same = match self.named("pad") {
            None => same,
            Some("same") => true,
            Some("valid") => false,
            Some(other) => return Err(Error::input(format!("{word}: pad is same or valid, got '{other}'"))),
        };
        Ok(Window { size, stride, same })
    }

    /// `w_var`, `b_var`, or their roots `w`, `b` as trained networks have them.
    fn variances(&self, default: Variances) -> Result<Variances> {
        let number = |key: &str, least: f64, range: &str| {
            let Some(text) = self.named(key) else { return Ok(None) };
            match text.parse::<f64>() {
                Ok(value) if value.is_finite() && value >= least => Ok(Some(value)),
                _ => Err(Error::input(format!("{}: {key}={text} must be a number {range}", self.word))),
            }
        };
        let pair = |key: &str, least: f64, range: &str, default: f64| {
            let variance = number(&format!("{key}_var"), least, range)?;
            let deviation = number(key, least, range)?;
            if variance.is_some() && deviation.is_some() {
                return Err(Error::input(format!("{}: give {key}_var or {key}, not both", self.word)));
            }
            Ok(variance.or(deviation.map(|d| d * d)).unwrap_or(default))
        };
        Ok(Variances {
            weight: pair("w", f64::MIN_POSITIVE, "above 0", default.weight)?,
            bias: pair("b", 0.0, "of at least 0", default.bias)?,
        })
    }
}

/// Layers as [`parse`] reads them back.
pub(super) struct Shown<'a>(pub &'a [Layer], pub Variances);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = self.1;
        for (i, layer) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { " " })?;
            match layer {
                Layer::Dense(v) => write!(f, "dense{}", bracketed(overrides(*v, default))),
                Layer::Conv(w, v) => {
                    let mut arguments = vec![w.size.to_string()];
                    arguments.extend((w.stride != 1).then(|| format!("stride={}", w.stride)));
                    arguments.extend((!w.same).then(|| "pad=valid".into()));
                    arguments.extend(overrides(*v, default));
                    write!(f, "conv{}", bracketed(arguments))
                }
                Layer::Activation(phi) => f.write_str(phi.name()),
                Layer::AvgPool(w) if w.stride == w.size => write!(f, "avgpool({})", w.size),
                Layer::AvgPool(w) => write!(f, "avgpool({}, stride={})", w.size, w.stride),
                Layer::Flatten => f.write_str("flatten"),
                Layer::Gap => f.write_str("gap"),
                Layer::Residual(body, short) if short.is_empty() => write!(f, "res({})", Shown(body, default)),
                Layer::Residual(body, short) => write!(f, "res({}; {})", Shown(body, default), Shown(short, default)),
            }?;
        }
        Ok(())
    }
}

fn overrides(v: Variances, default: Variances) -> Vec<String> {
    let weight = (v.weight != default.weight).then(|| format!("w_var={}", v.weight));
    let bias = (v.bias != default.bias).then(|| format!("b_var={}", v.bias));
    weight.into_iter().chain(bias).collect()
}

fn bracketed(arguments: Vec<String>) -> String {
    if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) }
}
