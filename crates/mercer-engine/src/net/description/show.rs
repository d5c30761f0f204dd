//! A [`Description`] as text.

use super::{Description, LayerSpec, Pad, Spread, WeightSpec, Window};
use std::fmt;

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
                let shape = [channels.map(|c| c.to_string()), Some(window.size.to_string()), stride, window.padding()];
                ("conv", [&shape[..], &weights.arguments()].concat())
            }
            LayerSpec::BatchNorm => ("bn", vec![]),
            LayerSpec::LayerNorm => ("ln", vec![]),
            LayerSpec::Dropout(p) => ("dropout", vec![Some(p.to_string())]),
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
            LayerSpec::Activation(phi) => return phi.fmt(f),
        };
        let arguments: Vec<String> = arguments.into_iter().flatten().collect();
        f.write_str(name)?;
        if arguments.is_empty() { Ok(()) } else { write!(f, "({})", arguments.join(", ")) }
    }
}

impl Window {
    /// The padding, where it makes a difference: `same` goes without saying at stride 1.
    fn padding(self) -> Option<String> {
        match self.pad {
            Pad::Same if self.stride == 1 || self.size == 1 => None,
            Pad::Same => Some("pad=same".into()),
            Pad::Each(0) => Some("pad=valid".into()),
            Pad::Each(zeros) => Some(format!("pad={zeros}")),
        }
    }
}

impl WeightSpec {
    fn arguments(&self) -> [Option<String>; 2] {
        let written = |key: &str, spread: Option<Spread>| {
            spread.map(|spread| match spread {
                Spread::Deviation(d) => format!("{key}={d}"),
                Spread::Variance(v) => format!("{key}_var={v}"),
                Spread::Absent => format!("{key}=no"),
            })
        };
        [written("w", self.weight), written("b", self.bias)]
    }
}
