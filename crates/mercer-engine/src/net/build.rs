//! From a [`Description`] and the number of inputs to layers.

use super::{
    BatchNorm, Conv, Dense, Description, Dropout, Elementwise, FourierFeatures, L2Norm, Layer, LayerNorm, LayerSpec,
    Pooling, Radial, Residual, guess_image,
};
use crate::compute::{Activation, Convolution, Pool};
use crate::error::excerpt;
use crate::{Error, Result, fail_if};

/// Most units of a layer: the parameters between two layers can then be counted without overflow.
const MOST: usize = 1 << 32;

/// A chain of layers that can run.
pub(super) struct Built {
    pub layers: Vec<Box<dyn Layer>>,
    /// What each of them puts out, where that is an image.
    pub images: Vec<Option<[usize; 3]>>,
    /// How many of them form the shared trunk.
    pub trunk: usize,
    /// What was built: with the image where that matters, and the whole trunk.
    pub description: Description,
}

/// The layers of `description` for `inputs` input units.
pub(super) fn build(description: &Description, inputs: usize) -> Result<Built> {
    let flow = match description.image {
        Some(image) if image.iter().try_fold(1usize, |n, side| n.checked_mul(*side)) != Some(inputs) => {
            let [c, h, w] = image;
            return Err(Error::input(format!("image({c}, {h}, {w}) does not fit points of {inputs} columns")));
        }
        Some(image) => Flow::image(image),
        None => Flow { width: inputs, image: guess_image(inputs), sure: false },
    };
    let no_function = |layer: &LayerSpec| matches!(layer, LayerSpec::Activation(Activation::ExpNormalized(..)));
    fail_if!(
        description.any(no_function),
        "exp_normalized is the kernel of an infinite network and no function of a unit; use for example exp or rbf"
    );
    let description = description.without(is_redundant);
    let built = read(description.clone(), flow)?;
    // What was guessed becomes certain, for all layers alike, when one of them sees images.
    match flow.image.filter(|_| !flow.sure && built.layers.iter().any(|layer| layer.facts().sees_images)) {
        Some(image) => read(description, Flow::image(image)),
        None => Ok(built),
    }
}

fn read(mut description: Description, mut flow: Flow) -> Result<Built> {
    description.image = flow.image.filter(|_| flow.sure);
    let (before, after) = description.layers.split_at(description.trunk);
    let mut chained = chain(before, &mut flow)?;
    let mut trunk = chained.len();
    chained.extend(chain(after, &mut flow)?);
    fail_if!(chained.is_empty(), "the architecture has no layers; write for example dense(32) relu dense(1)");
    fail_if!(
        description.layers[1..].iter().any(|layer| layer.any(&is_radial)),
        "in \"{}\" radial is not the first layer; it is one of points",
        excerpt(&description.to_string())
    );
    // Layers that act alike in every network join the trunk.
    while chained.get(trunk).is_some_and(|(layer, ..)| !layer.facts().branches) {
        trunk += 1;
    }
    fail_if!(
        trunk == chained.len(),
        "in \"{}\" all networks are the same; end it with a layer that tells them apart, such as dense(1)",
        excerpt(&description.to_string())
    );
    description.trunk = chained[..trunk].iter().map(|(_, words, _)| words).sum();
    let images = chained.iter().map(|(.., image)| *image).collect();
    Ok(Built { layers: chained.into_iter().map(|(layer, ..)| layer).collect(), images, trunk, description })
}

fn is_radial(layer: &LayerSpec) -> bool {
    matches!(layer, LayerSpec::Radial { .. })
}

/// Whether a layer computes the activation that follows it in the same pass.
fn takes_activation(layer: &LayerSpec) -> bool {
    use LayerSpec::{BatchNorm, Conv, Dense, Residual};
    matches!(layer, Dense { .. } | Conv { .. } | BatchNorm | Residual { .. })
}

/// Whether a layer is an `identity` that says nothing: the activation of the layer before it.
fn is_redundant(before: Option<&LayerSpec>, layer: &LayerSpec, after: Option<&LayerSpec>) -> bool {
    *layer == LayerSpec::Activation(Activation::Identity)
        && before.is_some_and(takes_activation)
        && !matches!(after, Some(LayerSpec::Activation(_)))
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
    fn image(image: [usize; 3]) -> Flow {
        Flow { width: image.iter().product(), image: Some(image), sure: true }
    }

    /// The image that `word` needs.
    fn image_for(&self, layer: &LayerSpec) -> Result<[usize; 3]> {
        self.image.ok_or_else(|| {
            Error::input(format!(
                "{layer} needs images, but gets {} numbers in a row; start with image(channels, height, width), and put it before any dense or flatten",
                self.width
            ))
        })
    }
}

/// A layer, the number of words that it stands for, and the image that it puts out, where it does.
type Chained = (Box<dyn Layer>, usize, Option<[usize; 3]>);

fn chain(specs: &[LayerSpec], flow: &mut Flow) -> Result<Vec<Chained>> {
    let mut layers = vec![];
    let mut i = 0;
    while let Some(spec) = specs.get(i) {
        let next = specs.get(i + 1);
        let phi = match next {
            Some(LayerSpec::Activation(phi)) if takes_activation(spec) => Some(*phi),
            _ => None,
        };
        let before_norm = next == Some(&LayerSpec::BatchNorm);
        fail_if!(flow.width > MOST, "{spec} gets {} numbers a point; at most {MOST} are possible", flow.width);
        let (layer, out) = layer(spec, *flow, phi.unwrap_or(Activation::Identity), before_norm)?;
        *flow = out;
        let words = 1 + usize::from(phi.is_some());
        layers.push((layer, words, flow.image.filter(|_| flow.sure)));
        i += words;
    }
    Ok(layers)
}

/// The layer of `spec` and what flows out of it.
fn layer(spec: &LayerSpec, flow: Flow, activation: Activation, before_norm: bool) -> Result<(Box<dyn Layer>, Flow)> {
    let width = flow.width;
    let wide = |layer: Box<dyn Layer>| {
        let out = Flow { width: layer.facts().outputs, image: None, sure: false };
        Ok((layer, out))
    };
    match *spec {
        LayerSpec::Dense { width: outputs, weights: spec } => {
            let outputs = outputs
                .ok_or_else(|| Error::input("dense has no width; a network to train needs one, such as dense(32)"))?;
            wide(Box::new(Dense { inputs: width, outputs, activation, spec }))
        }
        LayerSpec::Fourier { outputs, lengthscale } => {
            wide(Box::new(FourierFeatures { inputs: width, outputs, lengthscale }))
        }
        LayerSpec::Radial { scale } => wide(Box::new(Radial { inputs: width, scale })),
        LayerSpec::Flatten => wide(Box::new(Elementwise { width, activation: Activation::Identity })),
        LayerSpec::L2Norm => Ok((Box::new(L2Norm { width }), flow)),
        LayerSpec::Activation(activation) => Ok((Box::new(Elementwise { width, activation }), flow)),
        LayerSpec::Conv { .. } => {
            let conv = conv(spec, flow.image_for(spec)?, activation, before_norm)?;
            let [height, width] = conv.shape.out();
            let out = Flow::image([conv.shape.channels, height, width]);
            Ok((Box::new(conv), out))
        }
        LayerSpec::BatchNorm => {
            // A guess is no reason to take all columns of a table for one channel.
            let channels = flow.image.filter(|_| flow.sure).map_or(width, |[channels, ..]| channels);
            Ok((Box::new(BatchNorm { channels, plane: width / channels, activation }), flow))
        }
        LayerSpec::LayerNorm => {
            let image = flow.image.filter(|_| flow.sure);
            let shape = image.map_or_else(|| vec![width], |sides| sides.to_vec());
            Ok((Box::new(LayerNorm { width, shape }), flow))
        }
        LayerSpec::Dropout(_) => Ok((Box::new(Dropout { width }), flow)),
        LayerSpec::MaxPool(_) | LayerSpec::AvgPool(_) | LayerSpec::Gap => {
            let pooling = pooling(spec, flow)?;
            let [height, width] = pooling.pool.out();
            let out = Flow::image([pooling.pool.image[0], height, width]);
            Ok((Box::new(pooling), out))
        }
        LayerSpec::Residual { ref body, ref shortcut } => residual(spec, body, shortcut, flow, activation),
    }
}

fn conv(spec: &LayerSpec, image: [usize; 3], activation: Activation, before_norm: bool) -> Result<Conv> {
    let &LayerSpec::Conv { channels, window, weights } = spec else { unreachable!("{spec} is no convolution") };
    let channels = channels.ok_or_else(|| {
        Error::input(format!("{spec} has no number of channels; a network to train needs one, such as conv(16, 3)"))
    })?;
    let ([_, height, width], size) = (image, window.size);
    let [down, across] = [height, width].map(|n| window.along(n));
    fail_if!(down.count == 0 || across.count == 0, "{spec} does not fit into an image of {height}×{width}");
    let (before, after) = ([down.before, across.before], [down.after, across.after]);
    let shape = Convolution { image, channels, size, stride: window.stride, before, after };
    let outputs = shape.out().iter().try_fold(channels, |n, side| n.checked_mul(*side));
    fail_if!(
        outputs.and_then(|n| n.checked_mul(shape.patch())).is_none_or(|n| n > 1 << 40),
        "conv({channels}, {size}) on {image:?} is larger than any memory"
    );
    // A norm would take a constant off again.
    let bias = (!before_norm || weights.bias.is_some()) && !weights.without_bias();
    Ok(Conv { shape, activation, spec: weights, bias, before_norm })
}

fn pooling(spec: &LayerSpec, flow: Flow) -> Result<Pooling> {
    let image @ [_, height, width] = flow.image_for(spec)?;
    let window = match spec {
        LayerSpec::MaxPool(size) => [*size; 2],
        LayerSpec::AvgPool(window) if window.stride != window.size => {
            return Err(Error::input(format!("{spec}: in a network to train, the stride of avgpool is its size")));
        }
        LayerSpec::AvgPool(window) => [window.size; 2],
        _ => [height, width],
    };
    fail_if!(
        window[0] > height || window[1] > width,
        "{spec} is larger than the image of {height}×{width} that it gets"
    );
    Ok(Pooling { pool: Pool { image, window }, max: matches!(spec, LayerSpec::MaxPool(_)) })
}

fn residual(
    spec: &LayerSpec,
    body: &[LayerSpec],
    shortcut: &[LayerSpec],
    flow: Flow,
    activation: Activation,
) -> Result<(Box<dyn Layer>, Flow)> {
    fail_if!(body.is_empty(), "res() is empty; write for example res(conv(16, 3) bn relu conv(16, 3) bn)");
    fail_if!(
        body.iter().chain(shortcut).any(is_radial),
        "radial inside res(…) has no points to look at; it is the first layer or none"
    );
    let read = |specs: &[LayerSpec]| {
        let mut flow = flow;
        let layers = chain(specs, &mut flow)?.into_iter().map(|(layer, ..)| layer).collect();
        Ok::<(Vec<Box<dyn Layer>>, Flow), Error>((layers, flow))
    };
    let ((body, out), (shortcut, other)) = (read(body)?, read(shortcut)?);
    if out.width != other.width || (out.image != other.image && out.sure && other.sure) {
        let shape =
            |flow: Flow| flow.image.filter(|_| flow.sure).map_or(format!("{}", flow.width), |i| format!("{i:?}"));
        return Err(Error::input(format!(
            "in {spec} the body puts out {} and the shortcut {}; they must be alike: give the shortcut a layer, such as res(…; conv(32, 1, stride=2) bn)",
            shape(out),
            shape(other)
        )));
    }
    Ok((Box::new(Residual::new(flow.width, body, shortcut, activation)), if out.sure { out } else { other }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, inputs: usize) -> Result<Built> {
        build(&Description::parse(text)?, inputs)
    }

    fn round_trip(text: &str, inputs: usize) -> String {
        let description = parse(text, inputs).unwrap().description;
        Description { image: None, trunk: 0, ..description }.to_string()
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
        assert_eq!(
            round_trip("identity dense(2) identity res(dense(2) identity) tanh", 3),
            "identity dense(2) res(dense(2)) tanh"
        );
        assert_eq!(parse("dense(8)|relu dense(1)", 2).unwrap().description.to_string(), "dense(8) relu | dense(1)");
    }

    #[test]
    fn images_flow_through_the_layers() {
        let text = "conv(4, 3) bn relu res( conv(4,3) bn relu conv(4, 3) bn ) relu maxpool(2) \
                    res(conv(6, 3, stride=2) bn; conv(6,1,stride=2)bn) conv(2, 2, pad=valid, b=0) flatten dense(5)";
        let told = round_trip(text, 3 * 64);
        assert_eq!(
            told,
            "conv(4, 3) bn relu res(conv(4, 3) bn relu conv(4, 3) bn) relu maxpool(2) \
             res(conv(6, 3, stride=2, pad=same) bn; conv(6, 1, stride=2) bn) conv(2, 2, pad=valid, b=0) flatten dense(5)"
        );
        assert_eq!(round_trip(&told, 3 * 64), told);
        let outputs = |text: &str, inputs| -> Vec<usize> {
            parse(text, inputs).unwrap().layers.iter().map(|l| l.facts().outputs).collect()
        };
        assert_eq!(outputs("conv(2, 5, pad=valid) avgpool(2) gap dense(3)", 64), [2 * 16, 2 * 4, 2, 3]);
        assert_eq!(outputs("image(2, 3, 5) conv(1, 3, stride=2) flatten dense(1)", 30), [2 * 3, 6, 1]);
        let image = |text: &str, inputs| parse(text, inputs).unwrap().description.image;
        assert_eq!(image("conv(2, 3) gap dense(1)", 48), Some([3, 4, 4]));
        assert_eq!(image("dense(1)", 48), None);
        assert_eq!(image("image(3, 4, 4) dense(1)", 48), Some([3, 4, 4]));
        // Without an image, every column is a channel of its own.
        assert_eq!(parse("bn dense(1)", 48).unwrap().layers[0].facts().parameters, 96);
        assert_eq!(parse("image(3, 4, 4) bn dense(1)", 48).unwrap().layers[0].facts().parameters, 6);
        assert_eq!(parse("bn conv(1, 1)", 48).unwrap().layers[0].facts().parameters, 6);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in [
            ("", "no layers"),
            ("denes(3)", "did you mean 'dense'"),
            ("dense(3) rellu", "did you mean 'relu'"),
            ("dense", "dense(32)"),
            ("dense(0)", "dense(0)"),
            ("dense(-4)", "dense(-4)"),
            ("dense(1e99)", "dense(1e99)"),
            ("dense(3, c=1)", "no parameter 'c'"),
            ("dense(3, w=nan)", "w=nan"),
            ("dense(3", "closing bracket"),
            ("relu(3)", "takes no arguments"),
            ("rff(8, lenghtscale=2)", "did you mean 'lengthscale'"),
            ("rff(8, lengthscale=0)", "above 0"),
            ("radial(scale=0) dense(1)", "above 0"),
            ("dense(3) radial dense(1)", "not the first"),
            ("dense(3) | dense(2) | dense(1)", "more than one |"),
            ("dense(3) |", "all networks are the same"),
            ("tanh l2norm", "all networks are the same"),
            (")", "too many"),
            ("é(3)", "unknown layer"),
            ("conv(3) gap dense(1)", "has no number of channels"),
            ("conv(3, 0) gap dense(1)", "size must be a whole number"),
            ("conv(3, 3, stride=0) dense(1)", "stride must be a whole number"),
            ("avgpool(2, stride=1) dense(1)", "stride of avgpool is its size"),
            ("conv(3, 3, pad=full) dense(1)", "must be same, valid, or a whole number from 0 to 2"),
            ("conv(3, 3, pad=3) dense(1)", "must be same, valid, or a whole number from 0 to 2"),
            ("leaky_relu(x) dense(1)", "'x' must be a number"),
            ("ab_relu(1) dense(1)", "slopes below and above zero"),
            ("hermite(8) dense(1)", "from 0 to 7"),
            ("polynomial dense(1)", "coefficients, the constant first"),
            ("rbf(0) dense(1)", "above 0"),
            ("dropout(1) dense(1)", "from 0 to below 1"),
            ("ln(3) dense(1)", "takes no arguments"),
            ("dense(3) exp_normalized dense(1)", "no function of a unit"),
            ("conv(3, 5, pad=valid) dense(1)", "does not fit into an image of 2×2"),
            ("conv(1000000, 1000000) dense(1)", "larger than any memory"),
            ("maxpool(3) dense(1)", "maxpool(3) is larger than the image of 2×2"),
            ("gap(2) dense(1)", "takes no arguments"),
            ("dense(4) conv(3, 3)", "conv(3, 3) needs images"),
            ("flatten conv(3, 3)", "conv(3, 3) needs images"),
            ("image(3, 3, 3) conv(3, 3)", "does not fit points of 12 columns"),
            ("conv(3, 3) image(3, 2, 2)", "first word or is left out"),
            ("image(3, 2) dense(1)", "such as image(3, 32, 32)"),
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
        // Of a long architecture, messages quote the ends.
        let long = format!("dense(3) {}dense(1)", "radial ".repeat(5000));
        let error = parse(&long, 12).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("dense(3) radial") && error.contains(") dense(1)\"") && error.len() < 300, "{error}");
    }
}
