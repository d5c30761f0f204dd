//! The convolutions of one network, trained on images in bf16, channel last.
//!
//! A network that begins with convolutions, batch norms, sums of two such chains and the mean of the plane computes that part in a
//! training step by the primitives of [`halves`] where its workspace asks for it: activations and their gradients are bf16, a batch norm
//! takes the ReLU and the sum after it along, and parameters, statistics and their gradients stay f32, where the layers have them.

use super::chain::consecutive;
use super::{BatchNorm, Conv, Layer, Parameters};
use crate::Result;
use crate::compute::halves::{self, CHANNELS, HalfNorm, Halves, MOST_CHANNELS};
use crate::compute::{self, Activation, Convolution, Device, Pool, Tensor};
use std::collections::BTreeMap;

/// What a layer is to a trunk of images.
pub(super) enum Part<'a> {
    Conv(&'a Conv),
    Norm(&'a BatchNorm),
    /// The sum of the two chains of [`Layer::inner`], and what follows it.
    Sum(Activation),
    /// The mean of windows.
    Mean(Pool),
    Other,
}

/// The first layers of a network as steps on images. Value 0 is the input; each step makes the next value.
#[derive(Debug)]
pub(super) struct ImageTrunk {
    steps: Vec<Step>,
    /// Numbers of an image in each value.
    sizes: Vec<usize>,
    /// Channels of the input.
    channels: usize,
    /// Pixels of the last value.
    plane: usize,
    /// Layers of the network that the trunk stands for.
    pub layers: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// `shape` has the channels of the images, `inputs` those that have weights, which start at `at`.
    Conv { shape: Convolution, inputs: usize, from: usize, at: usize },
    /// Parameters and constants start at `at`.
    Norm { channels: usize, from: usize, plus: Option<usize>, relu: bool, at: [usize; 2] },
}

/// What a pass through a trunk leaves behind.
#[derive(Debug)]
pub(super) struct ImagePass {
    device: Device,
    /// Images of the batch.
    batch: usize,
    values: Vec<Halves>,
    /// Of each step: the filters of a convolution, the statistics of a norm.
    filters: Vec<Halves>,
    statistics: Vec<Tensor>,
    /// The gradient of filters.
    dw: Halves,
    /// Room for gradients, by the numbers of an image.
    free: BTreeMap<usize, Vec<Halves>>,
    /// `[1, b, c]`: the means, and their gradient.
    pub means: Tensor,
    pub gradient: Tensor,
}

impl ImageTrunk {
    /// Of the first layers of one network on images, if they are such; `starts` says where their numbers lie.
    pub fn new(layers: &[Box<dyn Layer>], starts: &[[usize; 2]], image: [usize; 3]) -> Option<ImageTrunk> {
        let [channels, height, width] = image;
        let padded = [channels.next_multiple_of(CHANNELS), height, width];
        let mut built = Building { steps: vec![], images: vec![padded], channels };
        let mut value = 0;
        for (i, (layer, start)) in layers.iter().zip(starts).enumerate() {
            if let Part::Mean(pool) = layer.part() {
                let [_, height, width] = built.images[value];
                return (pool.window == [height, width] && value > 0).then(|| built.trunk(value, i + 1)).flatten();
            }
            value = built.add(layer.as_ref(), *start, value)?;
        }
        None
    }

    pub fn pass(&self, device: Device) -> Result<ImagePass> {
        let none = || Halves::zeros(device, &[0]);
        let empty = || Tensor::zeros(device, &[0]);
        Ok(ImagePass {
            device,
            batch: 0,
            values: (0..self.sizes.len()).map(|_| none()).collect::<Result<_>>()?,
            filters: self.steps.iter().map(|_| none()).collect::<Result<_>>()?,
            statistics: self.steps.iter().map(|_| empty()).collect::<Result<_>>()?,
            dw: none()?,
            free: BTreeMap::new(),
            means: empty()?,
            gradient: empty()?,
        })
    }

    /// The means of the last value `[1, b, c]` for images `x` `[b, d]`.
    pub fn forward(&self, theta: &Parameters, x: &Tensor, pass: &mut ImagePass) -> Result<()> {
        let b = x.len() / (self.channels * self.sizes[0] / self.padded());
        pass.batch = b;
        pass.values[0].reshape(&[b, self.sizes[0]])?;
        halves::images(x, self.channels, &mut pass.values[0]);
        for (i, step) in self.steps.iter().enumerate() {
            let (before, after) = pass.values.split_at_mut(i + 1);
            let y = &mut after[0];
            y.reshape(&[b, self.sizes[i + 1]])?;
            match *step {
                Step::Conv { shape, inputs, from, at } => {
                    let (w, taps) = (&mut pass.filters[i], shape.size * shape.size);
                    w.reshape(&[shape.channels, shape.patch()])?;
                    halves::filters(&shape, theta.trained.matrices(at, 0, shape.channels, inputs * taps), w);
                    halves::convolve(&shape, &before[from], w, y);
                }
                Step::Norm { channels, from, plus, .. } => {
                    pass.statistics[i].reshape(&[1, 2, channels])?;
                    halves::statistics(&before[from], &mut pass.statistics[i]);
                    let norm = step.norm(theta, &before[from], &pass.statistics[i]);
                    halves::batch_norm(norm, plus.map(|plus| &before[plus]), y);
                }
            }
        }
        let last = &pass.values[self.steps.len()];
        pass.means.reshape(&[1, b, self.sizes[self.steps.len()] / self.plane])?;
        halves::means(last, self.plane, &mut pass.means);
        Ok(())
    }

    /// Back through the last [`Self::forward`], from [`ImagePass::gradient`]: writes the parameters' part of `grad`.
    pub fn vjp(&self, theta: &Parameters, pass: &mut ImagePass, grad: &mut Tensor) -> Result<()> {
        // Gradients of each value, which add up.
        let mut flow: Vec<Vec<Halves>> = self.sizes.iter().map(|_| vec![]).collect();
        let last = self.steps.len();
        let mut first = pass.room(self.sizes[last])?;
        halves::means_vjp(&pass.gradient, self.plane, &mut first);
        flow[last].push(first);
        for (i, step) in self.steps.iter().enumerate().rev() {
            let mut all = std::mem::take(&mut flow[i + 1]).into_iter();
            let (Some(mut g), more) = (all.next(), all.next()) else { unreachable!("every value is used") };
            match *step {
                Step::Conv { shape, inputs, from, at } => {
                    let taps = shape.size * shape.size;
                    pass.dw.reshape(&[shape.channels, shape.patch()])?;
                    halves::convolve_vjp_weights(&shape, &pass.values[from], &g, &mut pass.dw);
                    let part = grad.matrices_mut(at, 0, 1, shape.channels, inputs * taps);
                    halves::filter_gradient(&shape, &pass.dw, part);
                    if from > 0 {
                        let mut dx = pass.room(self.sizes[from])?;
                        halves::convolve_vjp_input(&shape, &g, &pass.filters[i], &mut dx);
                        flow[from].push(dx);
                    }
                    pass.give_back(self.sizes[i + 1], g);
                }
                Step::Norm { channels, from, plus, at, .. } => {
                    let mut dz = plus.map(|_| pass.room(self.sizes[from])).transpose()?;
                    let norm = step.norm(theta, &pass.values[from], &pass.statistics[i]);
                    let part = grad.matrices_mut(at[0], 0, 1, 2, channels);
                    let added = dz.as_mut().map(|dz| (&pass.values[i + 1], dz));
                    halves::batch_norm_vjp(norm, &mut g, more.as_ref(), part, added);
                    match (plus, dz) {
                        (Some(plus), Some(dz)) => {
                            flow[plus].push(g);
                            flow[from].push(dz);
                        }
                        _ => flow[from].push(g),
                    }
                }
            }
            more.into_iter().for_each(|more| pass.give_back(self.sizes[i + 1], more));
        }
        Ok(())
    }

    /// Moves the stored statistics by `share` towards those of the last pass.
    pub fn track(&self, pass: &ImagePass, share: f32, constants: &mut Tensor) {
        for (step, statistics) in self.steps.iter().zip(&pass.statistics) {
            if let Step::Norm { channels, at, .. } = *step {
                compute::running_average(share, statistics, constants.matrices_mut(at[1], 0, 1, 2, channels));
            }
        }
    }

    /// Channels of the input with those that fill it up.
    fn padded(&self) -> usize {
        self.channels.next_multiple_of(CHANNELS)
    }
}

impl Step {
    fn norm<'a>(&self, theta: &'a Parameters, z: &'a Halves, statistics: &'a Tensor) -> HalfNorm<'a> {
        let Step::Norm { channels, relu, at, .. } = *self else { unreachable!("{self:?} is no norm") };
        HalfNorm { z, statistics, affine: theta.trained.matrices(at[0], 0, 2, channels), relu }
    }
}

impl ImagePass {
    /// Room for a gradient of `size` numbers an image.
    fn room(&mut self, size: usize) -> Result<Halves> {
        let free = self.free.get_mut(&size).and_then(Vec::pop);
        let mut room = free.map_or_else(|| Halves::zeros(self.device, &[0]), Ok)?;
        room.reshape(&[self.batch, size])?;
        Ok(room)
    }

    fn give_back(&mut self, size: usize, room: Halves) {
        self.free.entry(size).or_default().push(room);
    }
}

/// A trunk under way.
struct Building {
    steps: Vec<Step>,
    /// Of each value.
    images: Vec<[usize; 3]>,
    /// Channels of the input that are no filling.
    channels: usize,
}

impl Building {
    /// Adds a layer that is applied to `value`; returns the value that it makes.
    fn add(&mut self, layer: &dyn Layer, at: [usize; 2], value: usize) -> Option<usize> {
        let image @ [channels, height, width] = self.images[value];
        let (step, image) = match layer.part() {
            Part::Conv(conv) => {
                let plain = !conv.bias && conv.activation == Activation::Identity;
                let inputs = if value == 0 { self.channels } else { channels };
                let fits = conv.shape.image == [inputs, height, width] && fits(conv.shape.channels);
                let shape = Convolution { image, ..conv.shape };
                let [down, across] = shape.out();
                let step = Step::Conv { shape, inputs, from: value, at: at[0] };
                (plain && fits).then_some((step, [shape.channels, down, across]))?
            }
            Part::Norm(norm) => {
                let relu = norm.activation == Activation::Relu;
                let known = relu || norm.activation == Activation::Identity;
                let fits = value > 0 && norm.channels == channels && norm.plane == height * width;
                let step = Step::Norm { channels, from: value, plus: None, relu, at };
                (known && fits).then_some((step, image))?
            }
            Part::Sum(activation) => return self.sum(layer.inner(), at, value, activation),
            Part::Mean(_) | Part::Other => return None,
        };
        self.steps.push(step);
        self.images.push(image);
        Some(self.steps.len())
    }

    /// Layers one after the other.
    fn chain(&mut self, layers: &[Box<dyn Layer>], at: [usize; 2], value: usize) -> Option<usize> {
        let starts = consecutive(layers, at, 1).0;
        layers.iter().zip(starts).try_fold(value, |value, (layer, start)| self.add(layer.as_ref(), start, value))
    }

    /// The body's last norm takes what the shortcut makes, and the activation, along.
    fn sum(
        &mut self,
        [body, shortcut]: [&[Box<dyn Layer>]; 2],
        at: [usize; 2],
        value: usize,
        activation: Activation,
    ) -> Option<usize> {
        let last = self.chain(body, at, value)?;
        let (Some(Step::Norm { channels, from, plus: None, relu: false, at: own }), Some(image)) =
            (self.steps.pop(), self.images.pop())
        else {
            return None;
        };
        let relu = activation == Activation::Relu;
        let known = relu || activation == Activation::Identity;
        let plus = self.chain(shortcut, consecutive(body, at, 1).1, value)?;
        if !known || last == value || plus == 0 || self.images[plus] != image {
            return None;
        }
        self.steps.push(Step::Norm { channels, from, plus: Some(plus), relu, at: own });
        self.images.push(image);
        Some(self.steps.len())
    }

    /// The trunk that ends with the mean of `last`, if every gradient has a way back: one use of each value, or two where a norm makes it.
    fn trunk(self, last: usize, layers: usize) -> Option<ImageTrunk> {
        let mut uses = vec![0; self.images.len()];
        uses[last] += 1;
        for step in &self.steps {
            match *step {
                Step::Conv { from, .. } => uses[from] += 1,
                Step::Norm { from, plus, .. } => {
                    uses[from] += 1;
                    plus.into_iter().for_each(|plus| uses[plus] += 1);
                }
            }
        }
        let by_norm = |value: usize| matches!(self.steps[value - 1], Step::Norm { .. });
        let ways_back = (1..uses.len()).all(|value| uses[value] == 1 || (uses[value] == 2 && by_norm(value)));
        let [_, height, width] = self.images[last];
        (ways_back && last + 1 == self.images.len()).then(|| ImageTrunk {
            sizes: self.images.iter().map(|image| image.iter().product()).collect(),
            steps: self.steps,
            channels: self.channels,
            plane: height * width,
            layers,
        })
    }
}

/// Whether the kernels take so many channels.
fn fits(channels: usize) -> bool {
    channels.is_multiple_of(CHANNELS) && channels <= MOST_CHANNELS
}

#[cfg(test)]
mod tests {
    use crate::compute::{Device, Tensor};
    use crate::net::tests::{empty, host, random, start};
    use crate::net::{Mode, Network, Parameters, Workspace};

    const RESIDUAL: &str = "image(3, 8, 6) conv(8, 3) bn relu res(conv(8, 3) bn relu conv(8, 3) bn) relu \
        res(conv(16, 3, stride=2, pad=1) bn relu conv(16, 3) bn; conv(16, 1, stride=2) bn) relu gap dense(8) bn relu dense(5)";

    /// `‖a − b‖/‖b‖`
    fn off(a: &[f32], b: &[f32]) -> f64 {
        let square = |v: f32| f64::from(v).powi(2);
        let gap: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
        (gap / b.iter().map(|b| square(*b)).sum::<f64>()).sqrt()
    }

    fn gradient(net: &Network, theta: &Parameters, x: &Tensor, u: &Tensor, workspace: &mut Workspace) -> [Vec<f32>; 2] {
        let y = host(net.forward(theta, x, Mode::Train, workspace).unwrap());
        let mut grad = empty();
        net.vjp(theta, x, workspace, &mut u.clone(), &mut grad, None).unwrap();
        [y, host(&grad)]
    }

    /// Values and gradients in bf16 are those in f32 up to its rounding, for every tensor of the network. With ReLU, rounding also opens and
    /// closes units whose value is near zero: a share p of them changes the gradient by some √p of itself.
    #[test]
    fn passes_in_bf16_are_those_in_f32_up_to_rounding() {
        for (text, most) in [(RESIDUAL.replace(" relu", ""), 0.03), (RESIDUAL.to_owned(), 0.25)] {
            let (net, theta, mut exact, mut rng) = start(&text, 3 * 48, 1, 3);
            let (x, u) = (random(&[64, 3 * 48], &mut rng), random(&[1, 64, 5], &mut rng));
            let mut rounded = net.workspace_in_bf16(Device::Cpu).unwrap();
            assert_eq!(net.image_trunk.as_ref().unwrap().layers, 5);
            let [y, grad] = gradient(&net, &theta, &x, &u, &mut rounded);
            let [want, exact_grad] = gradient(&net, &theta, &x, &u, &mut exact);
            assert!(off(&y, &want) < 0.02, "{}", off(&y, &want));
            let tensors = net.trained_tensors().unwrap();
            assert_eq!(tensors.len(), 24);
            // A batch norm takes constants off again: without ReLU, what is added before it has hardly any gradient but rounding.
            let constant = |name: &str| name == "fc1.bias" || (most < 0.1 && name.ends_with(".bias"));
            for (name, range, _) in tensors.into_iter().filter(|(name, ..)| !constant(name)) {
                let gap = off(&grad[range.clone()], &exact_grad[range]);
                assert!(gap < most, "{name}: {gap}");
            }
            // A pass that is not one of training has the bits of the other workspace.
            let evaluate = |workspace: &mut Workspace| host(net.forward(&theta, &x, Mode::Eval, workspace).unwrap());
            assert_eq!(evaluate(&mut rounded), evaluate(&mut exact));
        }
    }

    /// The statistics that are stored are those of the pass.
    #[test]
    fn statistics_are_tracked() {
        let (net, mut theta, mut exact, mut rng) = start(RESIDUAL, 3 * 48, 1, 3);
        let mut other = theta.clone();
        let (x, mut rounded) = (random(&[40, 3 * 48], &mut rng), net.workspace_in_bf16(Device::Cpu).unwrap());
        for (theta, workspace) in [(&mut theta, &mut exact), (&mut other, &mut rounded)] {
            net.forward(theta, &x, Mode::Train, workspace).unwrap();
            net.track(theta, workspace, 0.5);
        }
        let gap = off(&host(&other.constants), &host(&theta.constants));
        assert!(gap < 0.01 && gap > 0.0, "{gap}");
    }

    /// Networks that the kernels do not know compute in f32 as before.
    #[test]
    fn other_networks_have_no_trunk_of_images() {
        for text in [
            "conv(8, 3) relu gap dense(2)",
            "conv(4, 3) bn relu gap dense(2)",
            "conv(8, 3) bn tanh gap dense(2)",
            "conv(8, 3) bn relu maxpool(2) gap dense(2)",
            "conv(8, 3) bn relu flatten dense(2)",
            "conv(8, 3) bn relu res(conv(8, 3) bn relu) gap dense(2)",
            "conv(8, 3) bn relu res(conv(8, 3) relu conv(8, 3) bn) gap dense(2)",
        ] {
            let net = Network::parse(&format!("image(3, 4, 4) {text}"), 48, 1).unwrap();
            assert!(net.image_trunk.is_none(), "{text}");
        }
        let two = Network::parse("image(3, 4, 4) conv(8, 3) bn relu gap dense(2)", 48, 2).unwrap();
        assert!(two.image_trunk.is_none());
        let one = Network::parse("image(3, 4, 4) conv(8, 3) bn relu gap dense(2)", 48, 1).unwrap();
        assert!(one.image_trunk.is_some());
    }
}
