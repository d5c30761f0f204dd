//! Batch norms taken into the layers before them, for evaluation.

use super::chain::leaves;
use super::{Layer, LayerSpec, Network, Parameters};
use crate::Result;
use crate::compute::EPSILON;

impl Network {
    /// The same function in [`super::Mode::Eval`] without batch norms: every `bn` that follows a `conv` or `dense` directly is
    /// taken into its weights and bias. Other norms stay. One network.
    ///
    /// With `s = γ/√(σ² + ε)` of a channel, `s (w·x + b − μ) + β = (s w)·x + (s (b − μ) + β)`.
    ///
    /// ```
    /// use mercer_engine::compute::Device;
    /// use mercer_engine::net::Network;
    /// use mercer_engine::rng::Rng;
    /// let net = Network::parse("conv(4, 3) bn relu gap dense(2)", 64, 1)?;
    /// let theta = net.init(Device::Cpu, &Rng::new(0))?;
    /// let (folded, _) = net.fold(&theta)?;
    /// assert_eq!(folded.expression(), "image(1, 8, 8) conv(4, 3) relu gap dense(2)");
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn fold(&self, theta: &Parameters) -> Result<(Network, Parameters)> {
        let folds = |before: Option<&LayerSpec>, layer: &LayerSpec, _: Option<&LayerSpec>| {
            matches!((before, layer), (Some(LayerSpec::Dense { .. } | LayerSpec::Conv { .. }), LayerSpec::BatchNorm))
        };
        let mut description = self.description().clone();
        give_biases(&mut description.layers);
        let folded = Network::new(&description.without(folds), self.inputs(), self.networks())?;
        let (trained, constants) = (theta.trained.to_host()?, theta.constants.to_host()?);
        let (mut new, mut new_constants) = (vec![0.0; folded.parameters()], vec![0.0; folded.constants()]);
        let (starts, new_starts) = (self.starts(), folded.starts());
        let mut places = leaves(&folded.layers, &new_starts).into_iter();
        // The layer that takes norms, and where its parameters are now.
        let mut target = None;
        for leaf in leaves(&self.layers, &starts) {
            let facts = leaf.layer.facts();
            let [own, measured] = facts.ranges(leaf.start);
            let (numbers, measured) = (&trained[own], &constants[measured]);
            let taker = target.filter(|_| leaf.follows && facts.stem == "bn");
            if let Some((layer, at)) = taker {
                scale(layer, numbers, measured, &mut new[at..]);
                target = taker.filter(|_| !facts.activated);
                continue;
            }
            let start = places.next().expect("a layer for each that is left").start;
            let [own, kept] = facts.ranges(start);
            new[own].copy_from_slice(numbers);
            new_constants[kept].copy_from_slice(measured);
            target = (matches!(facts.stem, "conv" | "fc") && !facts.activated).then_some((leaf.layer, start[0]));
        }
        let parameters = folded.parameters_from(theta.trained.device(), &new, &new_constants)?;
        Ok((folded, parameters))
    }
}

/// Layers without biases take those of the norms that follow them.
fn give_biases(layers: &mut [LayerSpec]) {
    for i in 0..layers.len() {
        let normed = layers.get(i + 1) == Some(&LayerSpec::BatchNorm);
        match &mut layers[i] {
            LayerSpec::Dense { weights, .. } | LayerSpec::Conv { weights, .. } if normed && weights.without_bias() => {
                weights.bias = None;
            }
            LayerSpec::Residual { body, shortcut } => {
                give_biases(body);
                give_biases(shortcut);
            }
            _ => {}
        }
    }
}

/// Scales the weights and bias of `layer`, with which `numbers` starts, by a norm of as many channels.
fn scale(layer: &dyn Layer, affine: &[f32], moments: &[f32], numbers: &mut [f32]) {
    let ((gamma, beta), (mean, variance)) = (affine.split_at(affine.len() / 2), moments.split_at(moments.len() / 2));
    let channels = gamma.len();
    let weights = layer.pieces()[0].shape.iter().product::<usize>();
    let (weight, bias) = numbers.split_at_mut(weights);
    let by_row = layer.facts().stem == "conv";
    for c in 0..channels {
        let s = f64::from(gamma[c]) / f64::from(variance[c] + EPSILON).sqrt();
        let scaled = |w: &mut f32| *w = (s * f64::from(*w)) as f32;
        if by_row {
            weight.chunks_exact_mut(weights / channels).nth(c).into_iter().flatten().for_each(scaled);
        } else {
            weight.iter_mut().skip(c).step_by(channels).for_each(scaled);
        }
        bias[c] = (s * f64::from(bias[c] - mean[c]) + f64::from(beta[c])) as f32;
    }
}

#[cfg(test)]
mod tests {
    use crate::compute::{Device, Tensor};
    use crate::net::tests::{host, start};
    use crate::net::{Mode, named};

    /// A network whose norms have seen some batches and whose parameters are not the ones that it starts with.
    fn check(text: &str, inputs: usize, norms_left: usize) {
        let (net, mut theta, mut workspace, mut rng) = start(text, inputs, 1, 8);
        let mut random = |shape: &[usize]| {
            let data: Vec<f32> = (0..shape.iter().product()).map(|_| 0.5 + rng.normal() as f32).collect();
            Tensor::from_host(Device::Cpu, shape, &data).unwrap()
        };
        crate::compute::axpy(0.1, &random(&[net.parameters()]), &mut theta.trained);
        for _ in 0..3 {
            net.forward(&theta, &random(&[8, inputs]), Mode::Train, &mut workspace).unwrap();
            net.track(&mut theta, &workspace, 0.3);
        }
        let (folded, less) = net.fold(&theta).unwrap();
        assert_eq!(folded.expression().matches("bn").count(), norms_left, "{}", folded.expression());
        let x = random(&[5, inputs]);
        let want = host(net.forward(&theta, &x, Mode::Eval, &mut workspace).unwrap());
        let mut workspace = folded.workspace(Device::Cpu).unwrap();
        let got = host(folded.forward(&less, &x, Mode::Eval, &mut workspace).unwrap());
        let scale = want.iter().fold(0.0f32, |s, y| s.max(y.abs()));
        assert!(want.iter().zip(&got).all(|(a, b)| (a - b).abs() < 2e-5 * scale), "{text}: {want:?} {got:?}");
    }

    #[test]
    fn a_folded_network_is_the_same_function() {
        check("conv(3, 3, b=0.5) bn relu conv(2, 3) bn bn relu gap dense(3) bn tanh dense(2)", 48, 0);
        check("bn conv(3, 3) relu bn maxpool(2) bn flatten dense(2)", 48, 3);
        check("dense(4) bn relu bn dense(2)", 7, 1);
        check(&named("resnet20", [3, 8, 8], 4).unwrap().to_string(), 192, 0);
        // A wide network, whose layers start at multiples of four.
        check("dense(3) bn relu dense(255) bn relu dense(260) bn relu dense(3) relu dense(2)", 7, 0);
    }
}
