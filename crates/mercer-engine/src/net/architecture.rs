//! From an architecture string to layers.

use super::words::{Word, branches, words};
use super::{
    BatchNorm, Conv, Dense, Elementwise, Flatten, FourierFeatures, L2Norm, Layer, Pooling, PoolingKind, Radial,
    Residual,
};
use crate::compute::{Activation, Convolution, Pool};
use crate::error::nearest;
use crate::{Error, Result};

/// A chain of layers that has been read.
pub(super) struct Architecture {
    pub layers: Vec<Box<dyn Layer>>,
    /// How many of them form the shared trunk.
    pub trunk: usize,
    /// What the input is a picture of, where that matters.
    pub image: Option<[usize; 3]>,
}

/// Reads `text` for `inputs` input units.
pub(super) fn parse(text: &str, inputs: usize) -> Result<Architecture> {
    let mut words = words(text)?;
    let mut flow = Flow { width: inputs, image: guess(inputs), sure: false };
    if words.first().is_some_and(|word| word.name == "image") {
        flow = image(&words.remove(0), inputs)?;
    }
    let chains = read(text, &words, flow)?;
    // What was guessed becomes certain, for all layers alike, when one of them sees images.
    match flow.image.filter(|_| !flow.sure && chains.layers.iter().any(|layer| layer.sees_images())) {
        Some(image) => read(text, &words, Flow::picture(image)),
        None => Ok(chains),
    }
}

fn read(text: &str, words: &[Word], mut flow: Flow) -> Result<Architecture> {
    let image = flow.image.filter(|_| flow.sure);
    let at_trunk = words.iter().position(|word| word.name == "|");
    if words.iter().filter(|word| word.name == "|").count() > 1 {
        return Err(Error::input(format!("the architecture \"{text}\" has more than one |")));
    }
    let (before, after) = words.split_at(at_trunk.unwrap_or(0));
    let mut layers = chain(before, &mut flow)?;
    let mut trunk = layers.len();
    layers.extend(chain(&after[usize::from(at_trunk.is_some())..], &mut flow)?);
    if layers.is_empty() {
        return Err(Error::input(format!(
            "the architecture \"{text}\" has no layers; write for example dense(32) relu dense(1)"
        )));
    }
    if layers.iter().skip(1).any(|layer| layer.expression().starts_with("radial")) {
        return Err(Error::input(format!("in \"{text}\" radial is not the first layer; it is one of points")));
    }
    // Layers that act alike in every network join the trunk.
    while layers.get(trunk).is_some_and(|layer| !layer.branches()) {
        trunk += 1;
    }
    if trunk == layers.len() {
        return Err(Error::input(format!(
            "in \"{text}\" all networks are the same; end it with a layer that tells them apart, such as dense(1)"
        )));
    }
    Ok(Architecture { layers, trunk, image })
}

/// What flows from layer to layer: so many units, perhaps as an image.
#[derive(Clone, Copy, Debug)]
struct Flow {
    width: usize,
    /// Channels, height and width.
    image: Option<[usize; 3]>,
    /// Whether the image was asked for, not guessed.
    sure: bool,
}

impl Flow {
    fn flat(width: usize) -> Flow {
        Flow { width, image: None, sure: false }
    }

    fn picture(image: [usize; 3]) -> Flow {
        Flow { width: image.iter().product(), image: Some(image), sure: true }
    }

    /// The image that `word` needs.
    fn image_for(&self, word: &Word) -> Result<[usize; 3]> {
        self.image.ok_or_else(|| {
            Error::input(format!(
                "{} needs images, but gets {} numbers in a row; start with image(channels, height, width), and put it before any dense or flatten",
                word.name, self.width
            ))
        })
    }
}

/// One or three square planes, if `inputs` numbers can be that.
fn guess(inputs: usize) -> Option<[usize; 3]> {
    [1, 3].into_iter().find_map(|channels| {
        let side = (inputs / channels).isqrt();
        (channels * side * side == inputs).then_some([channels, side, side])
    })
}

fn image(word: &Word, inputs: usize) -> Result<Flow> {
    word.expects(3, &[])?;
    let image = [word.whole(0, "number of channels")?, word.whole(1, "height")?, word.whole(2, "width")?];
    let [c, h, w] = image;
    if c.checked_mul(h).and_then(|n| n.checked_mul(w)) != Some(inputs) {
        return Err(Error::input(format!("image({c}, {h}, {w}) does not fit points of {inputs} columns")));
    }
    Ok(Flow::picture(image))
}

fn chain(words: &[Word], flow: &mut Flow) -> Result<Vec<Box<dyn Layer>>> {
    let mut layers: Vec<Box<dyn Layer>> = Vec::new();
    let mut i = 0;
    while i < words.len() {
        let (word, next) = (&words[i], words.get(i + 1));
        // An activation right after a layer that takes one is part of it.
        let phi = next.and_then(|next| Activation::parse(&next.name).ok().filter(|_| next.inside.is_none()));
        let takes_one = ["dense", "conv", "bn", "res"].contains(&word.name.as_str());
        let before_norm = next.is_some_and(|next| next.name == "bn");
        let (layer, out) = layer(word, *flow, phi.filter(|_| takes_one).unwrap_or(Activation::Identity), before_norm)?;
        *flow = out;
        layers.push(layer);
        i += 1 + usize::from(takes_one && phi.is_some());
    }
    Ok(layers)
}

/// The layer of `word` and what flows out of it.
fn layer(word: &Word, flow: Flow, activation: Activation, before_norm: bool) -> Result<(Box<dyn Layer>, Flow)> {
    let width = flow.width;
    let wide = |layer: Box<dyn Layer>| {
        let out = Flow::flat(layer.outputs());
        (layer, out)
    };
    match word.name.as_str() {
        "dense" => dense(word, width, activation).map(|l| wide(Box::new(l))),
        "rff" => fourier(word, width).map(|l| wide(Box::new(l))),
        "radial" => radial(word, width).map(|l| wide(Box::new(l))),
        "flatten" => word.expects_nothing().map(|()| wide(Box::new(Flatten { width }))),
        "l2norm" => {
            word.expects_nothing()?;
            Ok((Box::new(L2Norm { width }), flow))
        }
        "conv" => {
            let conv = conv(word, flow, activation, before_norm)?;
            let [height, width] = conv.shape.out();
            let out = Flow::picture([conv.shape.channels, height, width]);
            Ok((Box::new(conv), out))
        }
        "bn" => {
            word.expects_nothing()?;
            // A guess is no reason to take all columns of a table for one channel.
            let channels = flow.image.filter(|_| flow.sure).map_or(width, |[channels, ..]| channels);
            Ok((Box::new(BatchNorm { channels, plane: width / channels, activation }), flow))
        }
        "maxpool" | "avgpool" | "gap" => {
            let pooling = pooling(word, flow)?;
            let [height, width] = pooling.pool.out();
            let out = Flow::picture([pooling.pool.image[0], height, width]);
            Ok((Box::new(pooling), out))
        }
        "res" => residual(word, flow, activation),
        "image" => Err(Error::input("image says what the points are pictures of; it is the first word or none")),
        "|" => Err(Error::input("a | inside res(…) has no meaning; a shared trunk ends between layers")),
        name if Activation::parse(name).is_ok() => {
            word.expects_nothing()?;
            Ok((Box::new(Elementwise { width, activation: Activation::parse(name)? }), flow))
        }
        name => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let layers =
        ["dense", "conv", "bn", "maxpool", "avgpool", "gap", "flatten", "res", "image", "rff", "radial", "l2norm"];
    let known = || layers.into_iter().chain(Activation::ALL.map(Activation::name));
    let hint = nearest(name, known()).map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default();
    Error::input(format!("unknown layer \"{name}\"{hint} (known: {})", known().collect::<Vec<_>>().join(", ")))
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

fn conv(word: &Word, flow: Flow, activation: Activation, before_norm: bool) -> Result<Conv> {
    word.expects(2, &["stride", "pad", "w", "b"])?;
    let image = flow.image_for(word)?;
    let (channels, size) = (word.whole(0, "number of channels")?, word.whole(1, "size")?);
    let whole = |s: f64| s >= 1.0 && s.fract() == 0.0 && s <= 1e6;
    let stride = word.option("stride", whole, "that is whole and at least 1")?.unwrap_or(1.0) as usize;
    let (before, after) = match word.text("pad") {
        None | Some("same") => ((size - 1) / 2, size / 2),
        Some("valid") => (0, 0),
        Some(other) => return Err(Error::input(format!("conv: pad={other} must be same or valid"))),
    };
    let [_, height, width] = image;
    if size > height.min(width) + before + after {
        return Err(Error::input(format!(
            "conv({channels}, {size}) with pad=valid does not fit into an image of {height}×{width}"
        )));
    }
    let shape = Convolution { image, channels, size, stride, before, after };
    let outputs = shape.out().iter().try_fold(channels, |n, side| n.checked_mul(*side));
    if outputs.and_then(|n| n.checked_mul(shape.patch())).is_none_or(|n| n > 1 << 40) {
        return Err(Error::input(format!("conv({channels}, {size}) on {image:?} is larger than any memory")));
    }
    let bias_std = word.option("b", |b| b >= 0.0, "at least 0")?;
    Ok(Conv {
        shape,
        activation,
        weight_std: word.option("w", |w| w > 0.0, "above 0")?,
        // A norm would take a constant off again.
        bias: !before_norm || bias_std.is_some(),
        bias_std,
        before_norm,
    })
}

fn pooling(word: &Word, flow: Flow) -> Result<Pooling> {
    let image = flow.image_for(word)?;
    let [_, height, width] = image;
    if word.name == "gap" {
        word.expects_nothing()?;
        return Ok(Pooling { pool: Pool { image, window: [height, width] }, kind: PoolingKind::Global });
    }
    word.expects(1, &[])?;
    let size = word.whole(0, "size")?;
    if size > height.min(width) {
        return Err(Error::input(format!(
            "{}({size}) is larger than the image of {height}×{width} that it gets",
            word.name
        )));
    }
    let kind = if word.name == "maxpool" { PoolingKind::Max } else { PoolingKind::Average };
    Ok(Pooling { pool: Pool { image, window: [size, size] }, kind })
}

fn residual(word: &Word, flow: Flow, activation: Activation) -> Result<(Box<dyn Layer>, Flow)> {
    let inside = word.inside.as_deref().unwrap_or("");
    let (body, shortcut) = match branches(inside)[..] {
        [body] => (body, ""),
        [body, shortcut] => (body, shortcut),
        _ => return Err(Error::input(format!("res({inside}) has more than one ; (body; shortcut)"))),
    };
    let read = |text: &str| {
        let mut flow = flow;
        let layers = chain(&words(text)?, &mut flow)?;
        match layers.iter().map(|layer| layer.expression()).find(|e| e.starts_with("radial")) {
            Some(_) => {
                Err(Error::input("radial inside res(…) has no points to look at; it is the first layer or none"))
            }
            None => Ok((layers, flow)),
        }
    };
    let ((body, out), (shortcut, other)) = (read(body)?, read(shortcut)?);
    if body.is_empty() {
        return Err(Error::input("res() is empty; write for example res(conv(16, 3) bn relu conv(16, 3) bn)"));
    }
    if out.width != other.width || (out.image != other.image && out.sure && other.sure) {
        let shape =
            |flow: Flow| flow.image.filter(|_| flow.sure).map_or(format!("{}", flow.width), |i| format!("{i:?}"));
        return Err(Error::input(format!(
            "in res({inside}) the body puts out {} and the shortcut {}; they must be alike: give the shortcut a layer, such as res(…; conv(32, 1, stride=2) bn)",
            shape(out),
            shape(other)
        )));
    }
    Ok((Box::new(Residual::new(flow.width, body, shortcut, activation)), if out.sure { out } else { other }))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str, inputs: usize) -> String {
        let layers = parse(text, inputs).unwrap().layers;
        layers.iter().map(|l| l.expression()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn architectures_are_read_as_written() {
        assert_eq!(
            round_trip(" dense(32)  sincos dense( 4 , b=0.5, w=2 )relu l2norm tanh", 3),
            "dense(32) sincos dense(4, w=2, b=0.5) relu l2norm tanh"
        );
        assert_eq!(round_trip("rff(64) dense(1)", 3), "rff(64, lengthscale=1) dense(1)");
        let trunk = |text: &str| parse(text, 2).unwrap().trunk;
        assert_eq!(trunk("dense(8) relu | dense(1)"), 1);
        assert_eq!(trunk("dense(8)|relu dense(1)"), 2);
        assert_eq!(trunk("dense(8) relu dense(1)"), 0);
        assert_eq!(trunk("| dense(1)"), 0);
        assert_eq!(trunk("tanh l2norm rff(4)"), 2);
    }

    #[test]
    fn images_flow_through_the_layers() {
        let text = "conv(4, 3) bn relu res( conv(4,3) bn relu conv(4, 3) bn ) relu maxpool(2) \
                    res(conv(6, 3, stride=2) bn; conv(6,1,stride=2)bn) conv(2, 2, pad=valid, b=0) flatten dense(5)";
        let told = round_trip(text, 3 * 64);
        assert_eq!(
            told,
            "conv(4, 3) bn relu res(conv(4, 3) bn relu conv(4, 3) bn) relu maxpool(2) \
             res(conv(6, 3, stride=2) bn; conv(6, 1, stride=2) bn) conv(2, 2, pad=valid, b=0) flatten dense(5)"
        );
        assert_eq!(round_trip(&told, 3 * 64), told);
        let outputs = |text: &str, inputs| -> Vec<usize> {
            parse(text, inputs).unwrap().layers.iter().map(|l| l.outputs()).collect()
        };
        assert_eq!(outputs("conv(2, 5, pad=valid) avgpool(2) gap dense(3)", 64), [2 * 16, 2 * 4, 2, 3]);
        assert_eq!(outputs("image(2, 3, 5) conv(1, 3, stride=2) flatten dense(1)", 30), [2 * 3, 6, 1]);
        let image = |text: &str, inputs| parse(text, inputs).unwrap().image;
        assert_eq!(image("conv(2, 3) gap dense(1)", 48), Some([3, 4, 4]));
        assert_eq!(image("dense(1)", 48), None);
        assert_eq!(image("image(3, 4, 4) dense(1)", 48), Some([3, 4, 4]));
        // Without a picture, every column is a channel of its own.
        assert_eq!(parse("bn dense(1)", 48).unwrap().layers[0].parameters(), 96);
        assert_eq!(parse("image(3, 4, 4) bn dense(1)", 48).unwrap().layers[0].parameters(), 6);
        assert_eq!(parse("bn conv(1, 1)", 48).unwrap().layers[0].parameters(), 6);
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
            ("conv(3) gap dense(1)", "conv takes 2 number(s)"),
            ("conv(3, 0) gap dense(1)", "size must be a whole number"),
            ("conv(3, 3, stride=0) dense(1)", "stride=0"),
            ("conv(3, 3, pad=full) dense(1)", "same or valid"),
            ("conv(3, 5, pad=valid) dense(1)", "does not fit into an image of 2×2"),
            ("conv(1000000, 1000000) dense(1)", "larger than any memory"),
            ("maxpool(3) dense(1)", "maxpool(3) is larger than the image of 2×2"),
            ("gap(2) dense(1)", "takes no arguments"),
            ("dense(4) conv(3, 3)", "conv needs images"),
            ("flatten conv(3, 3)", "conv needs images"),
            ("image(3, 3, 3) conv(3, 3)", "does not fit points of 12 columns"),
            ("conv(3, 3) image(3, 2, 2)", "first word or none"),
            ("res() dense(1)", "res() is empty"),
            ("res(conv(3, 3)", "closing bracket"),
            ("res(conv(4, 3)) dense(1)", "must be alike"),
            ("res(conv(3, 3); relu; relu) dense(1)", "more than one ;"),
            ("res(conv(3, 3) | relu) dense(1)", "inside res"),
            ("res(radial) dense(1)", "inside res"),
        ] {
            let error = parse(text, 12).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
