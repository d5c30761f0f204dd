//! From an architecture string to layers.

use super::{Dense, Elementwise, FourierFeatures, L2Norm, Layer, Radial};
use crate::compute::Activation;
use crate::error::nearest;
use crate::{Error, Result};

/// The widest layer accepted: anything wider is a slip of the fingers.
const WIDEST: usize = 1 << 20;

/// The layers of `text` for `inputs` input units, and how many of them form the shared trunk.
pub(super) fn parse(text: &str, inputs: usize) -> Result<(Vec<Box<dyn Layer>>, usize)> {
    let words = words(text)?;
    let mut layers: Vec<Box<dyn Layer>> = Vec::new();
    let (mut width, mut trunk, mut i) = (inputs, None, 0);
    while i < words.len() {
        let word = &words[i];
        i += 1;
        if word.name == "|" {
            if trunk.replace(layers.len()).is_some() {
                return Err(Error::input(format!("the architecture \"{text}\" has more than one |")));
            }
            continue;
        }
        let layer: Box<dyn Layer> = if word.name == "dense" {
            // An activation right after a dense layer is part of it.
            let phi = words.get(i).and_then(|next| Activation::parse(&next.name).ok());
            i += usize::from(phi.is_some());
            Box::new(dense(word, width, phi.unwrap_or(Activation::Identity))?)
        } else if word.name == "radial" && !layers.is_empty() {
            return Err(Error::input(format!("in \"{text}\" radial is not the first layer; it is one of points")));
        } else {
            simple_layer(word, width)?
        };
        width = layer.outputs();
        layers.push(layer);
    }
    if layers.is_empty() {
        return Err(Error::input(format!(
            "the architecture \"{text}\" has no layers; write for example dense(32) relu dense(1)"
        )));
    }
    // Layers that act alike in every network join the trunk.
    let mut trunk = trunk.unwrap_or(0);
    while layers.get(trunk).is_some_and(|layer| !layer.branches()) {
        trunk += 1;
    }
    if trunk == layers.len() {
        return Err(Error::input(format!(
            "in \"{text}\" all networks are the same; end it with a layer that tells them apart, such as dense(1)"
        )));
    }
    Ok((layers, trunk))
}

fn simple_layer(word: &Word, width: usize) -> Result<Box<dyn Layer>> {
    match word.name.as_str() {
        "rff" => Ok(Box::new(fourier(word, width)?)),
        "radial" => Ok(Box::new(radial(word, width)?)),
        "l2norm" => word.expects_nothing().map(|()| Box::new(L2Norm { width }) as Box<dyn Layer>),
        name if Activation::parse(name).is_ok() => {
            word.expects_nothing()?;
            Ok(Box::new(Elementwise { width, activation: Activation::parse(name)? }))
        }
        name => {
            let known =
                || ["dense", "rff", "radial", "l2norm"].into_iter().chain(Activation::ALL.map(Activation::name));
            let hint = nearest(name, known()).map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default();
            let known = known().collect::<Vec<_>>().join(", ");
            Err(Error::input(format!("unknown layer \"{name}\"{hint} (known: {known})")))
        }
    }
}

fn dense(word: &Word, inputs: usize, activation: Activation) -> Result<Dense> {
    word.expects(1, &["w", "b"])?;
    Ok(Dense {
        inputs,
        outputs: word.width()?,
        activation,
        weight_std: word.option("w", |w| w > 0.0, "above 0")?,
        bias_std: word.option("b", |b| b >= 0.0, "at least 0")?,
    })
}

fn fourier(word: &Word, inputs: usize) -> Result<FourierFeatures> {
    word.expects(1, &["lengthscale"])?;
    let lengthscale = word.option("lengthscale", |l| l > 0.0, "above 0")?.unwrap_or(1.0);
    Ok(FourierFeatures { inputs, outputs: word.width()?, lengthscale })
}

fn radial(word: &Word, inputs: usize) -> Result<Radial> {
    word.expects(0, &["scale"])?;
    let scale = word.option("scale", |s| s > 0.0, "above 0")?.unwrap_or(1.0);
    Ok(Radial { inputs, scale })
}

/// `name(positional, …, key=value, …)`
#[derive(Debug)]
struct Word {
    name: String,
    positional: Vec<String>,
    named: Vec<(String, String)>,
}

impl Word {
    fn expects(&self, positional: usize, named: &[&str]) -> Result<()> {
        if self.positional.len() != positional {
            let (name, got) = (&self.name, self.positional.len());
            return Err(Error::input(format!(
                "{name} takes {positional} number(s) in brackets, such as {name}(32); {got} given"
            )));
        }
        match self.named.iter().find(|(key, _)| !named.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let hint =
                    nearest(key, named.iter().copied()).map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default();
                Err(Error::input(format!("{} has no option \"{key}\"{hint} (known: {})", self.name, named.join(", "))))
            }
        }
    }

    fn expects_nothing(&self) -> Result<()> {
        if self.positional.is_empty() && self.named.is_empty() {
            return Ok(());
        }
        Err(Error::input(format!("{} takes no arguments", self.name)))
    }

    fn width(&self) -> Result<usize> {
        let text = &self.positional[0];
        text.parse().ok().filter(|w| (1..=WIDEST).contains(w)).ok_or_else(|| {
            Error::input(format!("{}({text}): the width must be a whole number from 1 to {WIDEST}", self.name))
        })
    }

    fn option(&self, key: &str, valid: impl Fn(f64) -> bool, range: &str) -> Result<Option<f64>> {
        let Some((_, text)) = self.named.iter().find(|(k, _)| k == key) else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && valid(value) => Ok(Some(value)),
            _ => Err(Error::input(format!("{}: {key}={text} must be a number {range}", self.name))),
        }
    }
}

/// Splits into words; brackets hold arguments, `|` is a word of its own.
fn words(text: &str) -> Result<Vec<Word>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '|' {
            words.push(Word { name: "|".into(), positional: vec![], named: vec![] });
            rest = rest[1..].trim_start();
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '(' || c == '|').unwrap_or(rest.len());
        let name = rest[..end].to_owned();
        let after = rest[end..].trim_start();
        let mut word = Word { name, positional: vec![], named: vec![] };
        if let Some(inside) = after.strip_prefix('(') {
            let close =
                inside.find(')').ok_or_else(|| Error::input(format!("\"{}(\" has no closing bracket", word.name)))?;
            for argument in inside[..close].split(',').map(str::trim).filter(|a| !a.is_empty()) {
                match argument.split_once('=') {
                    Some((key, value)) => word.named.push((key.trim().into(), value.trim().into())),
                    None => word.positional.push(argument.into()),
                }
            }
            rest = inside[close + 1..].trim_start();
        } else {
            rest = after;
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        let (layers, _) = parse(text, 3).unwrap();
        layers.iter().map(|l| l.expression()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn architectures_are_read_as_written() {
        assert_eq!(
            round_trip(" dense(32)  sincos dense( 4 , b=0.5, w=2 )relu l2norm tanh"),
            "dense(32) sincos dense(4, w=2, b=0.5) relu l2norm tanh"
        );
        assert_eq!(round_trip("rff(64) dense(1)"), "rff(64, lengthscale=1) dense(1)");
        assert_eq!(parse("dense(8) relu | dense(1)", 2).unwrap().1, 1);
        assert_eq!(parse("dense(8)|relu dense(1)", 2).unwrap().1, 2);
        assert_eq!(parse("dense(8) relu dense(1)", 2).unwrap().1, 0);
        assert_eq!(parse("| dense(1)", 2).unwrap().1, 0);
        assert_eq!(parse("tanh l2norm rff(4)", 2).unwrap().1, 2);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("", "no layers"),
            ("denes(3)", "did you mean \"dense\""),
            ("dense(3) rellu", "did you mean \"relu\""),
            ("dense", "dense(32)"),
            ("dense(0)", "dense(0)"),
            ("dense(-4)", "dense(-4)"),
            ("dense(1e99)", "dense(1e99)"),
            ("dense(3, c=1)", "no option \"c\""),
            ("dense(3, w=nan)", "w=nan"),
            ("dense(3", "closing bracket"),
            ("relu(3)", "takes no arguments"),
            ("rff(8, lenghtscale=2)", "did you mean \"lengthscale\""),
            ("rff(8, lengthscale=0)", "above 0"),
            ("radial(scale=0) dense(1)", "above 0"),
            ("dense(3) radial dense(1)", "not the first"),
            ("dense(3) | dense(2) | dense(1)", "more than one |"),
            ("dense(3) |", "all networks are the same"),
            ("tanh l2norm", "all networks are the same"),
            (")", "unknown layer"),
            ("é(3)", "unknown layer"),
        ] {
            let error = parse(text, 3).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
