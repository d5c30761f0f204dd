//! Networks with a name.

use super::Description;
use crate::{Error, Result};

/// The names that [`named`] knows. Example: [`named`].
pub const NAMES: [&str; 8] = ["mlp", "lenet", "resnet18", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110"];

/// A named network on images of `[channels, height, width]` with so many `outputs`.
///
/// - `mlp`: two hidden layers of 512 ReLU units.
/// - `lenet`: two convolutions of 5×5 with 6 and 16 channels, each followed by ReLU and max pooling, then dense layers of 120
///   and 84. The second convolution is not padded (LeNet-5) unless the image has fewer than 20 rows or columns.
/// - `resnetN` for N = 20, 32, 44, 56, 110: the networks of He et al. (2016) for CIFAR-10, with n = (N − 2)/6 blocks of two
///   3×3 convolutions in each of three stages of 16, 32 and 64 channels; where a stage begins with stride 2, the shortcut is
///   a 1×1 convolution with batch norm (their option B). `resnet18` is the wider one for ImageNet in the form used on CIFAR-10: two
///   such blocks in each of four stages of 64, 128, 256 and 512 channels, after a 3×3 convolution and no pooling. Windows lie as with PyTorch's `padding=1`, as in published weights.
///
/// ```
/// use mercer_engine::net::{Network, named};
/// let resnet = Network::new(&named("resnet20", [3, 32, 32], 10)?, 3072, 1)?;
/// assert_eq!(resnet.trained(), 272_474);
/// let lenet = Network::new(&named("lenet", [1, 28, 28], 10)?, 784, 1)?;
/// assert_eq!(lenet.trained(), 61_706);
/// # Ok::<(), mercer_engine::Error>(())
/// ```
pub fn named(name: &str, image: [usize; 3], outputs: usize) -> Result<Description> {
    let [_, height, width] = image;
    let layers = match name {
        "mlp" => format!("flatten dense(512) relu dense(512) relu dense({outputs})"),
        "lenet" => {
            let pad = if height.min(width) < 20 { "" } else { ", pad=valid" };
            format!(
                "conv(6, 5) relu maxpool(2) conv(16, 5{pad}) relu maxpool(2) flatten dense(120) relu dense(84) relu dense({outputs})"
            )
        }
        _ => match name.strip_prefix("resnet").filter(|_| NAMES.contains(&name)).and_then(|n| n.parse().ok()) {
            Some(18) => resnet(2, &[64, 128, 256, 512], outputs),
            Some(depth) => resnet((depth - 2) / 6, &[16, 32, 64], outputs),
            None => return Err(Error::unknown("network", name, NAMES)),
        },
    };
    Ok(Description { image: Some(image), ..Description::parse(&layers)? })
}

/// The residual network of so many blocks in each of its stages, with the channels of these.
fn resnet(blocks: usize, stages: &[usize], outputs: usize) -> String {
    let mut layers = vec![format!("conv({}, 3) bn relu", stages[0])];
    for (stage, c) in stages.iter().enumerate() {
        for block in 0..blocks {
            layers.push(if stage > 0 && block == 0 {
                format!("res(conv({c}, 3, stride=2, pad=1) bn relu conv({c}, 3) bn; conv({c}, 1, stride=2) bn) relu")
            } else {
                format!("res(conv({c}, 3) bn relu conv({c}, 3) bn) relu")
            });
        }
    }
    layers.push(format!("gap flatten dense({outputs})"));
    layers.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Network;

    #[test]
    fn residual_networks_have_the_published_sizes() {
        // Millions of parameters in He et al. (2016), table 6, whose shortcuts have none.
        for (name, millions) in
            [("resnet20", 0.27), ("resnet32", 0.46), ("resnet44", 0.66), ("resnet56", 0.85), ("resnet110", 1.7)]
        {
            let net = Network::new(&named(name, [3, 32, 32], 10).unwrap(), 3072, 1).unwrap();
            let shortcuts = 16 * 32 + 64 + 32 * 64 + 128;
            let own = (net.trained() - shortcuts) as f64 / 1e6;
            assert!((own - millions).abs() < 0.005 + 0.04 * f64::from(name == "resnet110"), "{name}: {own}");
            assert_eq!(net.outputs(), 10);
        }
        // The figure of torchvision's layers in this form.
        assert_eq!(Network::new(&named("resnet18", [3, 32, 32], 10).unwrap(), 3072, 1).unwrap().trained(), 11_173_962);
        // Of the 3×3 convolutions: 442 368 + 6·2 359 296 in the first stage, 1 179 648 + 5·2 359 296 in each other; the classifier.
        let net = Network::new(&named("resnet20", [3, 32, 32], 10).unwrap(), 3072, 1).unwrap();
        let shortcuts = 32 * 256 * 16 + 64 * 64 * 32;
        assert_eq!(net.multiply_adds() - shortcuts, 40_550_400 + 640);
    }

    #[test]
    fn unknown_names_are_answered_with_the_nearest() {
        let error = named("resnet21", [3, 32, 32], 10).unwrap_err().to_string();
        assert!(error.contains("did you mean 'resnet20'"), "{error}");
        assert!(named("resnetx", [3, 32, 32], 10).is_err() && named("resnet8", [3, 32, 32], 10).is_err());
        let small = named("lenet", [1, 8, 8], 10).unwrap();
        assert!(Network::new(&small, 64, 1).is_ok());
        let tiny = named("lenet", [1, 2, 2], 10).unwrap();
        assert!(Network::new(&tiny, 4, 1).unwrap_err().to_string().contains("larger than the image"));
    }
}
