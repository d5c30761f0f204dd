//! Batch norms taken into the layers before them, for evaluation.

use super::{Layer, Network, Parameters, consecutive};
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
        let folded = Network::new(&self.description().without_folded_norms(), self.inputs(), self.networks())?;
        let (trained, constants) = (theta.trained.to_host()?, theta.constants.to_host()?);
        let (mut new, mut new_constants) = (vec![0.0; folded.parameters()], vec![0.0; folded.constants()]);
        let layers = fold_chain(&self.layers, &self.starts(), [&trained, &constants]);
        for (layer, [at, constants_at]) in layers.iter().zip(folded.starts()) {
            new[at..at + layer.trained.len()].copy_from_slice(&layer.trained);
            new_constants[constants_at..constants_at + layer.constants.len()].copy_from_slice(&layer.constants);
        }
        let parameters = folded.parameters_from(theta.trained.device(), &new, &new_constants)?;
        Ok((folded, parameters))
    }
}

/// The numbers of one layer.
#[derive(Default)]
struct Numbers {
    trained: Vec<f32>,
    constants: Vec<f32>,
}

/// The numbers of the layers that are left of a chain, whose layers have theirs in `[trained, constants]` at `starts`.
fn fold_chain(layers: &[Box<dyn Layer>], starts: &[[usize; 2]], all: [&[f32]; 2]) -> Vec<Numbers> {
    let numbers = |i: usize| {
        let ([at, constants_at], layer) = (starts[i], &layers[i]);
        (&all[0][at..at + layer.parameters()], &all[1][constants_at..constants_at + layer.constants()])
    };
    let mut folded = Vec::new();
    let mut i = 0;
    while let Some(layer) = layers.get(i) {
        let [body, shortcut] = layer.inner();
        let mut own = Numbers::default();
        if body.is_empty() {
            own.add(numbers(i));
        } else {
            let (body_starts, end) = consecutive(body, starts[i]);
            let inner = fold_chain(body, &body_starts, all);
            let rest = fold_chain(shortcut, &consecutive(shortcut, end).0, all);
            inner.iter().chain(&rest).for_each(|layer| own.add((&layer.trained, &layer.constants)));
        }
        let mut takes = matches!(layer.stem(), "conv" | "fc") && layer.is_linear();
        i += 1;
        while let Some(norm) = layers.get(i).filter(|next| takes && next.stem() == "bn") {
            let (affine, moments) = numbers(i);
            scale(layer.as_ref(), affine, moments, &mut own.trained);
            takes = norm.is_linear();
            i += 1;
        }
        folded.push(own);
    }
    folded
}

impl Numbers {
    fn add(&mut self, (trained, constants): (&[f32], &[f32])) {
        self.trained.extend(trained);
        self.constants.extend(constants);
    }
}

/// Scales the weights and bias of `layer` by a norm of as many channels.
fn scale(layer: &dyn Layer, affine: &[f32], moments: &[f32], numbers: &mut Vec<f32>) {
    let ((gamma, beta), (mean, variance)) = (affine.split_at(affine.len() / 2), moments.split_at(moments.len() / 2));
    let channels = gamma.len();
    let weights = layer.pieces()[0].shape.iter().product::<usize>();
    numbers.resize(weights + channels, 0.0);
    let (weight, bias) = numbers.split_at_mut(weights);
    let by_row = layer.stem() == "conv";
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
    use crate::net::{Mode, Network, named};
    use crate::rng::Rng;

    /// A network whose norms have seen some batches and whose parameters are not the ones that it starts with.
    fn check(text: &str, inputs: usize, norms_left: usize) {
        let mut rng = Rng::new(8);
        let net = Network::parse(text, inputs, 1).unwrap();
        let mut theta = net.init(Device::Cpu, &rng).unwrap();
        let mut random = |shape: &[usize]| {
            let data: Vec<f32> = (0..shape.iter().product()).map(|_| 0.5 + rng.normal() as f32).collect();
            Tensor::from_host(Device::Cpu, shape, &data).unwrap()
        };
        crate::compute::axpy(0.1, &random(&[net.parameters()]), &mut theta.trained);
        let mut workspace = net.workspace(Device::Cpu).unwrap();
        for _ in 0..3 {
            net.forward(&theta, &random(&[8, inputs]), Mode::Train, &mut workspace).unwrap();
            net.track(&mut theta, &workspace, 0.3);
        }
        let (folded, less) = net.fold(&theta).unwrap();
        assert_eq!(folded.expression().matches("bn").count(), norms_left, "{}", folded.expression());
        let x = random(&[5, inputs]);
        let want = net.forward(&theta, &x, Mode::Eval, &mut workspace).unwrap().to_host().unwrap();
        let mut workspace = folded.workspace(Device::Cpu).unwrap();
        let got = folded.forward(&less, &x, Mode::Eval, &mut workspace).unwrap().to_host().unwrap();
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
