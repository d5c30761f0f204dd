//! k networks of one architecture, run as one.

use super::build::{Built, build};
use super::chain::{Chain, consecutive};
use super::image_trunk::{ImagePass, ImageTrunk};
use super::{Description, Facts, Gradient, Layer, LayerSpec, Mode, Slot, Trace, Weights};
use crate::compute::{self, Device, Pool, Tensor, halves};
use crate::error::excerpt;
use crate::rng::Rng;
use crate::{Error, Result, fail_if};

/// k networks `x ↦ [c]` of one architecture: layers in order, the first few perhaps shared by all (the trunk).
#[derive(Debug)]
pub struct Network {
    pub(super) layers: Vec<Box<dyn Layer>>,
    /// What each of them puts out, where that is an image.
    images: Vec<Option<[usize; 3]>>,
    places: Vec<Place>,
    /// Its first layers on images in bf16, where they are such.
    pub(super) image_trunk: Option<ImageTrunk>,
    description: Description,
    inputs: usize,
    networks: usize,
    parameters: usize,
    constants: usize,
}

/// Where a layer's parameters and constants lie in the flat buffers, and how many networks have their own.
#[derive(Clone, Copy, Debug)]
struct Place {
    networks: usize,
    slots: [Slot; 2],
}

/// The numbers of k networks, each kind in one flat buffer: first the shared trunk's, then network by network.
/// Example: [the module](super).
#[derive(Clone, Debug)]
pub struct Parameters {
    /// What training moves.
    pub trained: Tensor,
    /// What was drawn or measured once.
    pub constants: Tensor,
}

/// Buffers of a network's passes; they grow to the largest batch seen and are then reused. Example: [the module](super).
#[derive(Debug)]
pub struct Workspace {
    pub(super) traces: Vec<Trace>,
    /// Gradients or tangents on their way through the layers.
    flow: [Tensor; 2],
    /// Training passes through the trunk of images in bf16, where they were asked for.
    images: Option<ImagePass>,
    /// Whether the last forward pass was one of those.
    in_bf16: bool,
    /// Whether training passes are to keep what a vjp needs and no more.
    lean: bool,
    /// Whether the last forward pass did.
    was_lean: bool,
}

/// With a layer of this many parameters or more, every layer's start at a multiple of four: tensor cores read 16 bytes at
/// a time, and large products are half as fast from elsewhere.
const WIDE: usize = 1 << 16;

impl Network {
    /// `networks` networks of the architecture `text` on `inputs` input units.
    pub fn parse(text: &str, inputs: usize, networks: usize) -> Result<Network> {
        Network::new(&Description::parse(text)?, inputs, networks)
    }

    /// `networks` networks on `inputs` input units.
    pub fn new(description: &Description, inputs: usize, networks: usize) -> Result<Network> {
        fail_if!(inputs == 0 || networks == 0, "{networks} networks on {inputs} inputs: both must be at least 1");
        let Built { layers, images, trunk, description } = build(description, inputs)?;
        let multiple = if layers.iter().any(|layer| layer.facts().parameters >= WIDE) { 4 } else { 1 };
        let (shared_starts, shared) = consecutive(&layers[..trunk], [0, 0], multiple);
        let (own_starts, end) = consecutive(&layers[trunk..], shared, multiple);
        let own = [end[0] - shared[0], end[1] - shared[1]];
        let place = |networks: usize, at: [usize; 2], strides: [usize; 2]| Place {
            networks,
            slots: [0, 1].map(|kind| Slot { at: at[kind], stride: strides[kind] }),
        };
        let places = shared_starts.into_iter().map(|at| place(1, at, [0, 0]));
        let places: Vec<Place> = places.chain(own_starts.into_iter().map(|at| place(networks, at, own))).collect();
        let starts: Vec<[usize; 2]> = places.iter().map(|place| place.slots.map(|slot| slot.at)).collect();
        let image = description.image.filter(|_| networks == 1);
        let image_trunk = image.and_then(|image| ImageTrunk::new(&layers, &starts, image));
        let total = |kind: usize| {
            own[kind].checked_mul(networks).and_then(|own| own.checked_add(shared[kind])).ok_or_else(|| {
                Error::input(format!(
                    "{networks} networks \"{}\" have more parameters than memory has addresses",
                    excerpt(&description.to_string())
                ))
            })
        };
        let (parameters, constants) = (total(0)?, total(1)?);
        Ok(Network { layers, images, places, image_trunk, description, inputs, networks, parameters, constants })
    }

    /// The description in full: with the image where it matters, and the whole shared trunk.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The description as text; [`Network::parse`] reads it back.
    pub fn expression(&self) -> String {
        self.description.to_string()
    }

    /// Whether several networks share trained numbers: those of a trunk.
    pub fn shares_trunk(&self) -> bool {
        let mut layers = self.layers.iter().zip(&self.places);
        self.networks > 1 && layers.any(|(layer, place)| place.slots[0].stride == 0 && layer.facts().parameters > 0)
    }

    /// Input units d.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Output units c of each network.
    pub fn outputs(&self) -> usize {
        self.layers.last().map_or(self.inputs, |l| l.facts().outputs)
    }

    /// k
    pub fn networks(&self) -> usize {
        self.networks
    }

    /// Numbers in all that are drawn or measured, not trained.
    pub fn constants(&self) -> usize {
        self.constants
    }

    /// Where the parameters and the constants of every layer start, in the first network.
    pub(super) fn starts(&self) -> Vec<[usize; 2]> {
        self.places.iter().map(|place| place.slots.map(|slot| slot.at)).collect()
    }

    /// What `f` finds in the layers, each times the number of networks that have their own.
    fn counts(&self, f: fn(Facts) -> usize) -> impl Iterator<Item = usize> {
        self.layers.iter().zip(&self.places).map(move |(layer, place)| f(layer.facts()) * place.networks)
    }

    /// Trained numbers in all.
    pub fn trained(&self) -> usize {
        self.counts(|facts| facts.parameters).sum()
    }

    /// Length of the buffer of trained numbers: those, and the few zeros between the layers of wide networks.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Multiply-adds of the matrix products of all networks at one point; a shared trunk counts once.
    pub fn multiply_adds(&self) -> usize {
        self.counts(|facts| facts.multiply_adds).sum()
    }

    /// Bytes that a forward and a backward pass take for each point of a batch.
    pub fn bytes_per_point(&self) -> usize {
        let sizes = || self.counts(|facts| facts.outputs);
        // The output and the slope of every layer, and two buffers for the gradient on its way back.
        4 * (2 * sizes().sum::<usize>() + 2 * sizes().max().unwrap_or(0))
    }

    /// Draws parameters; network j's depend on the seed and j alone.
    pub fn init(&self, device: Device, rng: &Rng) -> Result<Parameters> {
        let mut trained = vec![0.0; self.parameters];
        let mut constants = vec![0.0; self.constants];
        for j in 0..self.networks {
            let mut rng = rng.fork(j as u64);
            for (layer, place) in self.layers.iter().zip(&self.places).filter(|(_, p)| j < p.networks) {
                let [own, measured] = layer.facts().ranges(place.slots.map(|slot| slot.at + j * slot.stride));
                layer.init(&mut rng, &mut trained[own], &mut constants[measured]);
            }
        }
        self.parameters_from(device, &trained, &constants)
    }

    /// Parameters from the two flat buffers, as saved.
    pub fn parameters_from(&self, device: Device, trained: &[f32], constants: &[f32]) -> Result<Parameters> {
        Ok(Parameters {
            trained: Tensor::from_host(device, &[self.parameters], trained)?,
            constants: Tensor::from_host(device, &[self.constants], constants)?,
        })
    }

    /// Empty buffers for this network's passes.
    pub fn workspace(&self, device: Device) -> Result<Workspace> {
        let traces = self.layers.iter().map(|_| Trace::new(device)).collect::<Result<Vec<_>>>()?;
        let flow = [Tensor::zeros(device, &[0])?, Tensor::zeros(device, &[0])?];
        Ok(Workspace { traces, flow, images: None, in_bf16: false, lean: false, was_lean: false })
    }

    /// The same; training passes of one network that begins with convolutions and batch norms keep images and their gradients in bf16,
    /// channel last, up to the mean of the plane, where the device can. Derivatives forward ([`Network::jvp`]) need the other one.
    pub fn workspace_in_bf16(&self, device: Device) -> Result<Workspace> {
        let trunk = self.image_trunk.as_ref().filter(|_| halves::available(device));
        let images = trunk.map(|trunk| trunk.pass(device)).transpose()?;
        Ok(Workspace { images, ..self.workspace(device)? })
    }

    /// `y` `[k, b, c]` at the batch `x` `[b, d]` (shared) or `[k, b, d]`.
    pub fn forward<'w>(
        &self,
        theta: &Parameters,
        x: &Tensor,
        mode: Mode,
        workspace: &'w mut Workspace,
    ) -> Result<&'w Tensor> {
        let batch = self.batch_of(x)?;
        let Workspace { traces, images, in_bf16, lean, was_lean, .. } = &mut *workspace;
        *in_bf16 = mode == Mode::Train && images.is_some();
        *was_lean = mode == Mode::Train && *lean;
        let how = (mode, *was_lean);
        match (&self.image_trunk, images) {
            (Some(trunk), Some(pass)) if *in_bf16 => {
                let first = trunk.layers;
                trunk.forward(theta, x, pass)?;
                let networks = |i: usize| self.places[first + i].networks;
                self.chain(first, theta).forward(&pass.means, batch, networks, how, &mut traces[first..])?;
            }
            _ => self.chain(0, theta).forward(x, batch, |i| self.places[i].networks, how, traces)?,
        }
        Ok(workspace.output())
    }

    /// Back through the last [`Network::forward`] of this workspace (same `theta` and `x`): `grad ← (∂y/∂θ)ᵀ g`, and
    /// `dx ← (∂y/∂x)ᵀ g` where asked for. `g` `[k, b, c]` is overwritten; `grad` is as long as the parameters, `dx` like `x`.
    pub fn vjp(
        &self,
        theta: &Parameters,
        x: &Tensor,
        workspace: &mut Workspace,
        g: &mut Tensor,
        grad: &mut Tensor,
        dx: Option<&mut Tensor>,
    ) -> Result<()> {
        grad.reshape(&[self.parameters])?;
        let Workspace { traces, flow: [next, _], images, in_bf16, .. } = workspace;
        let slot = |i: usize| (self.places[i].slots[0], self.places[i].networks);
        match (&self.image_trunk, images) {
            (Some(trunk), Some(pass)) if *in_bf16 => {
                fail_if!(dx.is_some(), "a pass in bf16 has no gradient of the images");
                let (first, ImagePass { means, gradient, .. }) = (trunk.layers, &mut *pass);
                gradient.reshape(means.shape())?;
                let rest = self.chain(first, theta);
                rest.vjp(means, &mut traces[first..], [g, next], grad, |i| slot(first + i), Some(gradient))?;
                trunk.vjp(theta, pass, grad)
            }
            _ => self.chain(0, theta).vjp(x, traces, [g, next], grad, slot, dx),
        }
    }

    /// Forward through the linearisation at the last [`Network::forward`] of this workspace:
    /// `(∂y/∂θ) θ̇ + (∂y/∂x) ẋ` `[k, b, c]`, a missing tangent being zero. `dtheta` as long as the parameters, `dx` like `x`.
    pub fn jvp<'w>(
        &self,
        theta: &Parameters,
        x: &Tensor,
        workspace: &'w mut Workspace,
        dtheta: Option<&Tensor>,
        dx: Option<&Tensor>,
    ) -> Result<&'w Tensor> {
        self.batch_of(x)?;
        fail_if!(workspace.in_bf16 || workspace.was_lean, "a pass in bf16 or a lean one has no derivatives forward");
        let dtheta = |i| dtheta.map(|d| self.weights(i, d, &theta.constants));
        self.chain(0, theta).jvp(dtheta, x, dx, &mut workspace.traces, workspace.flow.each_mut())?;
        Ok(&workspace.flow[0])
    }

    /// Value, gradient and Laplacian in the input, exactly, by one second-order forward pass: `[k, (d+2)·b, c]` at the
    /// points `x` `[b, d]`, holding `y`, then `∂y/∂x_1`, …, `∂y/∂x_d`, then `Δy`.
    pub fn jet<'w>(&self, theta: &Parameters, x: &Tensor, workspace: &'w mut Workspace) -> Result<&'w Tensor> {
        use LayerSpec::{Activation, Dense, Flatten, Fourier, Radial};
        let has_rule = |layer: &&LayerSpec| {
            matches!(layer, Activation(_) | Dense { .. } | Flatten | Fourier { .. } | Radial { .. })
        };
        if let Some(layer) = self.description.layers.iter().find(|layer| !has_rule(layer)) {
            return Err(Error::input(format!("'{layer}' inside a network has no Laplacian; use dense layers")));
        }
        let (batch, d) = (self.batch_of(x)?, self.inputs);
        let rows = (d + 2) * batch;
        let [flow, next] = &mut workspace.flow;
        flow.reshape(&[rows, d])?;
        compute::points_jet(x, flow);
        for (i, layer) in self.layers.iter().enumerate() {
            let weights = self.weights(i, &theta.trained, &theta.constants);
            next.reshape(&[self.places[i].networks, rows, layer.facts().outputs])?;
            layer.jet(&weights, flow, batch, next)?;
            std::mem::swap(flow, next);
        }
        Ok(&workspace.flow[0])
    }

    /// The input of the last layer `[b, h]` at the last [`Network::forward`] of this workspace at `x` `[b, d]`, and the place of that
    /// layer's first parameter: weights `[h, outputs]`, then the biases. An error unless the network ends with a dense layer that
    /// has a bias and no activation.
    #[doc(hidden)]
    pub fn last_layer<'w>(&self, x: &'w Tensor, workspace: &'w Workspace) -> Result<(&'w Tensor, usize)> {
        fail_if!(workspace.in_bf16 || workspace.was_lean, "a pass in bf16 or a lean one keeps no hidden units");
        let last = self.layers.len() - 1;
        let facts = self.layers[last].facts();
        let inputs = if last == 0 { self.inputs } else { self.layers[last - 1].facts().outputs };
        fail_if!(
            facts.stem != "fc" || facts.activated || facts.parameters != (inputs + 1) * facts.outputs,
            "the network \"{}\" does not end with a dense layer with biases and without an activation",
            self.description
        );
        let hidden = if last == 0 { x } else { &workspace.traces[last - 1].y };
        Ok((hidden, self.places[last].slots[0].at))
    }

    /// `[b, q]`: the units of the layers of weights at the last [`Network::forward`] of this workspace, without the last layer's;
    /// of images, the mean of every channel. One network.
    #[doc(hidden)]
    pub fn hidden_means(&self, workspace: &Workspace) -> Result<Vec<Tensor>> {
        fail_if!(workspace.in_bf16 || workspace.was_lean, "a pass in bf16 or a lean one keeps no hidden units");
        let mut all = vec![];
        for (i, layer) in self.layers.iter().enumerate().take(self.layers.len() - 1) {
            let y = &workspace.traces[i].y;
            let batch = y.shape()[1];
            match self.images[i] {
                _ if layer.facts().parameters == 0 => {}
                Some(image @ [channels, height, width]) => {
                    let mut means = Tensor::zeros(y.device(), &[1, batch, channels])?;
                    compute::average_pool(&Pool { image, window: [height, width] }, y, &mut means);
                    all.push(means);
                }
                None => all.push(y.clone()),
            }
        }
        Ok(all)
    }

    /// Fixes every statistic of a batch at what it is on `x` `[n, d]`, for [`Mode::Eval`].
    pub fn calibrate(&self, theta: &mut Parameters, x: &Tensor, workspace: &mut Workspace) -> Result<()> {
        self.forward(theta, x, Mode::Train, workspace)?;
        self.track(theta, workspace, 1.0);
        Ok(())
    }

    /// Moves the stored statistics by `share` towards those of the batch of the last forward pass, which was one in
    /// [`Mode::Train`]: running averages for [`Mode::Eval`].
    pub fn track(&self, theta: &mut Parameters, workspace: &Workspace, share: f32) {
        let trunk = self.image_trunk.as_ref().zip(workspace.images.as_ref()).filter(|_| workspace.in_bf16);
        if let Some((trunk, pass)) = trunk {
            trunk.track(pass, share, &mut theta.constants);
        }
        let first = trunk.map_or(0, |(trunk, _)| trunk.layers);
        for ((layer, place), trace) in self.layers.iter().zip(&self.places).zip(&workspace.traces).skip(first) {
            let Place { networks, slots: [_, slot] } = *place;
            layer.track(trace, share, &mut Gradient { tensor: &mut theta.constants, slot, networks });
        }
    }

    /// The standard deviation that each parameter was drawn with; one where it was not drawn.
    #[doc(hidden)]
    pub fn spread(&self) -> Vec<f32> {
        let mut spread = vec![0.0; self.parameters];
        for (layer, place) in self.layers.iter().zip(&self.places) {
            for j in 0..place.networks {
                let [own, _] = layer.facts().ranges(place.slots.map(|slot| slot.at + j * slot.stride));
                layer.spread(&mut spread[own]);
            }
        }
        spread
    }

    /// Layer `i`'s numbers of the first network, for any number of networks.
    pub(super) fn shared_weights<'a>(&self, i: usize, theta: &'a Parameters) -> Weights<'a> {
        let weights = self.weights(i, &theta.trained, &theta.constants);
        Weights { slots: weights.slots.map(|slot| Slot { stride: 0, ..slot }), ..weights }
    }

    fn weights<'a>(&self, i: usize, parameters: &'a Tensor, constants: &'a Tensor) -> Weights<'a> {
        Weights { parameters, constants, slots: self.places[i].slots }
    }

    /// The layers from `first` on.
    fn chain<'a>(&'a self, first: usize, theta: &'a Parameters) -> Chain<'a, impl Fn(usize) -> Weights<'a>> {
        let theta = move |i| self.weights(first + i, &theta.trained, &theta.constants);
        Chain { layers: &self.layers[first..], theta }
    }

    /// The batch size of an input, after a look at its shape.
    fn batch_of(&self, x: &Tensor) -> Result<usize> {
        match *x.shape() {
            [batch, d] if d == self.inputs && batch > 0 => Ok(batch),
            [k, batch, d] if d == self.inputs && batch > 0 && k == self.places[0].networks => Ok(batch),
            _ => Err(Error::input(format!(
                "a batch of shape {:?} does not fit {} networks on {} inputs",
                x.shape(),
                self.networks,
                self.inputs
            ))),
        }
    }
}

impl Workspace {
    /// The same for training on a GPU: its training passes write each hidden dense layer once, before its activation, and read that of
    /// a single last unit once a pass. Only [`Network::vjp`] may follow such a pass, not [`Network::jvp`].
    pub fn lean(self) -> Workspace {
        Workspace { lean: true, ..self }
    }

    /// The output of the last forward pass, `[k, b, c]`.
    pub fn output(&self) -> &Tensor {
        &self.traces[self.traces.len() - 1].y
    }
}
