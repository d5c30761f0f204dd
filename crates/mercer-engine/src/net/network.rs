//! k networks of one architecture, run as one.

use super::build::{Built, build};
use super::{Description, Gradient, Layer, LayerSpec, Mode, Pass, Trace, Weights};
use crate::compute::{self, Device, Tensor};
use crate::rng::Rng;
use crate::{Error, Result};

/// k networks `x ↦ [c]` of one architecture: layers in order, the first few perhaps shared by all (the trunk).
#[derive(Debug)]
pub struct Network {
    pub(super) layers: Vec<Box<dyn Layer>>,
    places: Vec<Place>,
    description: Description,
    inputs: usize,
    networks: usize,
    parameters: usize,
    constants: usize,
}

/// Where a layer's numbers lie in the flat buffers, and how many networks have their own.
#[derive(Clone, Copy, Debug)]
struct Place {
    networks: usize,
    at: usize,
    stride: usize,
    constants_at: usize,
    constants_stride: usize,
}

/// The numbers of k networks, each kind in one flat buffer: first the shared trunk's, then network by network.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// What training moves.
    pub trained: Tensor,
    /// What was drawn or measured once.
    pub constants: Tensor,
}

/// Buffers of a network's passes; they grow to the largest batch seen and are then reused.
#[derive(Debug)]
pub struct Workspace {
    traces: Vec<Trace>,
    /// Gradients or tangents on their way through the layers.
    flow: [Tensor; 2],
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
        if inputs == 0 || networks == 0 {
            return Err(Error::input(format!("{networks} networks on {inputs} inputs: both must be at least 1")));
        }
        let Built { layers, trunk, description } = build(description, inputs)?;
        let wide = layers.iter().any(|layer| layer.parameters() >= WIDE);
        let room = |layer: &dyn Layer| layer.parameters().next_multiple_of(if wide { 4 } else { 1 });
        let size = |layers: &[Box<dyn Layer>]| {
            layers.iter().fold((0, 0), |(p, c), l| (p + room(l.as_ref()), c + l.constants()))
        };
        let (shared, own) = (size(&layers[..trunk]), size(&layers[trunk..]));
        let (mut places, mut at, mut constants_at) = (Vec::new(), 0, 0);
        for (i, layer) in layers.iter().enumerate() {
            let (networks, stride, constants_stride) = if i < trunk { (1, 0, 0) } else { (networks, own.0, own.1) };
            places.push(Place { networks, at, stride, constants_at, constants_stride });
            at += room(layer.as_ref());
            constants_at += layer.constants();
        }
        let total = |shared: usize, own: usize| {
            own.checked_mul(networks).and_then(|own| own.checked_add(shared)).ok_or_else(|| {
                Error::input(format!(
                    "{networks} networks \"{description}\" have more parameters than memory has addresses"
                ))
            })
        };
        let (parameters, constants) = (total(shared.0, own.0)?, total(shared.1, own.1)?);
        Ok(Network { layers, places, description, inputs, networks, parameters, constants })
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
        self.networks > 1 && layers.any(|(layer, place)| place.stride == 0 && layer.parameters() > 0)
    }

    /// Channels, height and width of the images that it looks at, if it takes its input for such.
    pub fn image(&self) -> Option<[usize; 3]> {
        self.description.image
    }

    /// Input units d.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Output units c of each network.
    pub fn outputs(&self) -> usize {
        self.layers.last().map_or(self.inputs, |l| l.outputs())
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
        self.places.iter().map(|place| [place.at, place.constants_at]).collect()
    }

    /// Trained numbers in all.
    pub fn trained(&self) -> usize {
        self.layers.iter().zip(&self.places).map(|(layer, place)| layer.parameters() * place.networks).sum()
    }

    /// Length of the buffer of trained numbers: those, and the few zeros between the layers of wide networks.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Multiply-adds of the matrix products of all networks at one point; a shared trunk counts once.
    pub fn multiply_adds(&self) -> usize {
        self.layers.iter().zip(&self.places).map(|(layer, place)| layer.multiply_adds() * place.networks).sum()
    }

    /// Bytes that a forward and a backward pass take for each point of a batch.
    pub fn bytes_per_point(&self) -> usize {
        let sizes = || self.layers.iter().zip(&self.places).map(|(layer, place)| layer.outputs() * place.networks);
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
                let at = place.at + j * place.stride;
                let constants_at = place.constants_at + j * place.constants_stride;
                layer.init(
                    &mut rng,
                    &mut trained[at..at + layer.parameters()],
                    &mut constants[constants_at..constants_at + layer.constants()],
                );
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
        Ok(Workspace { traces, flow: [Tensor::zeros(device, &[0])?, Tensor::zeros(device, &[0])?] })
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
        for (i, layer) in self.layers.iter().enumerate() {
            let (before, after) = workspace.traces.split_at_mut(i);
            let (x, trace) = (before.last().map_or(x, |t| &t.y), &mut after[0]);
            trace.mode = mode;
            trace.y.reshape(&[self.places[i].networks, batch, layer.outputs()])?;
            layer.forward(&self.weights(i, &theta.trained, &theta.constants), x, trace)?;
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
        mut dx: Option<&mut Tensor>,
    ) -> Result<()> {
        let next = &mut workspace.flow[0];
        grad.reshape(&[self.parameters])?;
        for (i, layer) in self.layers.iter().enumerate().rev() {
            let (before, after) = workspace.traces.split_at_mut(i);
            let (input, trace) = (before.last().map_or(x, |t| &t.y), &mut after[0]);
            let weights = self.weights(i, &theta.trained, &theta.constants);
            let place = self.places[i];
            let mut slot = Gradient { gradient: grad, at: place.at, stride: place.stride, networks: place.networks };
            let pass = Pass { theta: &weights, x: input, trace };
            if i > 0 {
                next.reshape(input.shape())?;
                layer.vjp(pass, g, &mut slot, Some(next))?;
                std::mem::swap(g, next);
            } else {
                if let Some(dx) = dx.as_deref_mut() {
                    dx.reshape(x.shape())?;
                }
                layer.vjp(pass, g, &mut slot, dx.as_deref_mut())?;
            }
        }
        Ok(())
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
        let batch = self.batch_of(x)?;
        let [flow, next] = &mut workspace.flow;
        for (i, layer) in self.layers.iter().enumerate() {
            let (before, after) = workspace.traces.split_at_mut(i);
            let (input, trace) = (before.last().map_or(x, |t| &t.y), &mut after[0]);
            let weights = self.weights(i, &theta.trained, &theta.constants);
            let dweights = dtheta.map(|d| self.weights(i, d, &theta.constants));
            let dinput = if i == 0 { dx } else { Some(&*flow) };
            next.reshape(&[self.places[i].networks, batch, layer.outputs()])?;
            layer.jvp(Pass { theta: &weights, x: input, trace }, dweights.as_ref(), dinput, next)?;
            std::mem::swap(flow, next);
        }
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
            next.reshape(&[self.places[i].networks, rows, layer.outputs()])?;
            layer.jet(&weights, flow, batch, next)?;
            std::mem::swap(flow, next);
        }
        Ok(&workspace.flow[0])
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
        for ((layer, place), trace) in self.layers.iter().zip(&self.places).zip(&workspace.traces) {
            let Place { networks, constants_at: at, constants_stride: stride, .. } = *place;
            layer.track(trace, share, &mut Gradient { gradient: &mut theta.constants, at, stride, networks });
        }
    }

    /// The standard deviation that each parameter was drawn with; one where it was not drawn.
    pub(super) fn spread(&self) -> Vec<f32> {
        let mut spread = vec![0.0; self.parameters];
        for (layer, place) in self.layers.iter().zip(&self.places) {
            for j in 0..place.networks {
                let at = place.at + j * place.stride;
                layer.spread(&mut spread[at..at + layer.parameters()]);
            }
        }
        spread
    }

    /// Layer `i`'s numbers of the first network, for any number of networks.
    pub(super) fn shared_weights<'a>(&self, i: usize, theta: &'a Parameters) -> Weights<'a> {
        Weights { stride: 0, constants_stride: 0, ..self.weights(i, &theta.trained, &theta.constants) }
    }

    fn weights<'a>(&self, i: usize, parameters: &'a Tensor, constants: &'a Tensor) -> Weights<'a> {
        let Place { at, stride, constants_at, constants_stride, .. } = self.places[i];
        Weights { parameters, at, stride, constants, constants_at, constants_stride }
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
    /// What the last forward pass left behind, layer by layer.
    pub(super) fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// The output of the last forward pass, `[k, b, c]`.
    pub fn output(&self) -> &Tensor {
        &self.traces[self.traces.len() - 1].y
    }
}
