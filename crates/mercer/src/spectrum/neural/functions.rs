//! Networks as functions: what training moves and Rayleigh–Ritz combines.

use super::sharded_batch::ShardedBatch;
use crate::compute::{self, Device, Math, Tensor};
use crate::net::{Description, LayerSpec, Mode, Network, Parameters, Workspace};
use crate::rng::Rng;
use crate::{Result, fail_if};
use ndarray::Array2;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Points whose functions are evaluated at a time.
pub(super) const STRIP: usize = 4096;

/// What counts as one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Each of the networks; its c output units are the function's outputs.
    Networks,
    /// Each output unit of the one network.
    Units,
}

/// A factor `w(x)` of every function, such as one that vanishes at a boundary; x is the point as the networks see it.
pub type Envelope = dyn Fn(&[f32]) -> f32 + Send + Sync;

/// The functions `ψ_j(x) = s_j w(x) f_j(x)`: networks `f`, an envelope `w` (one unless given), and, where asked for,
/// factors `s_j` that make `mean ψ_j² = 1` on the batch of the last forward pass. A batch's mean may be subtracted before. Example: [the module](super).
pub struct Functions {
    network: Network,
    parameters: Parameters,
    passes: Workspace,
    /// A second set of buffers: [`Functions::evaluate`] must not disturb a forward pass whose derivative is wanted.
    probe: Option<Workspace>,
    layout: Layout,
    normalise: bool,
    /// Whether the mean over the batch is subtracted first.
    centre: bool,
    envelope: Option<Arc<Envelope>>,
    /// `w(x)` `[B, 1]` on the batch at hand, where a device has it.
    ahead: Option<Tensor>,
    /// `s` `[k, 1]`
    factor: Tensor,
    /// Means over the batch `[k, 1]`, where they are subtracted.
    mean: Tensor,
    work: Tensor,
    /// The transpose of a gradient on its way back, where units are functions.
    turned: Tensor,
}

impl Functions {
    /// `count` networks of `architecture` on `inputs` columns, each one function. A norm at the end of the
    /// architecture is what `normalise` does, and is left out.
    pub fn networks(
        architecture: &str,
        inputs: usize,
        count: usize,
        normalise: bool,
        device: Device,
        rng: &Rng,
    ) -> Result<Functions> {
        Functions::drawn(separate_networks(architecture, inputs, count)?, Layout::Networks, normalise, device, rng)
    }

    /// The last hidden units of `architecture`, each one function: all layers but the last dense one, which is solved for.
    pub fn hidden_units(architecture: &str, inputs: usize, device: Device, rng: &Rng) -> Result<Functions> {
        Functions::drawn(network_of_units(architecture, inputs)?, Layout::Units, false, device, rng)
    }

    /// The outputs of one network of `architecture`, each one function; where `centre` is set, the mean over the batch is subtracted
    /// before they are normalised.
    pub fn units(
        architecture: &Description,
        inputs: usize,
        [normalise, centre]: [bool; 2],
        device: Device,
        rng: &Rng,
    ) -> Result<Functions> {
        let network = Network::new(&architecture.clone().without_final_norm(), inputs, 1)?;
        Ok(Functions { centre, ..Functions::drawn(network, Layout::Units, normalise, device, rng)? })
    }

    /// From a network whose numbers are drawn. A method asks the budget of its context for them before.
    fn drawn(network: Network, layout: Layout, normalise: bool, device: Device, rng: &Rng) -> Result<Functions> {
        let parameters = network.init(device, rng)?;
        Functions::from_parts(network, parameters, layout, normalise)
    }

    /// From a network and its numbers.
    pub(super) fn from_parts(
        network: Network,
        parameters: Parameters,
        layout: Layout,
        normalise: bool,
    ) -> Result<Functions> {
        let device = parameters.trained.device();
        let empty = || Tensor::zeros(device, &[0]);
        let passes = network.workspace(device)?;
        let mut functions = Functions {
            network,
            parameters,
            passes,
            probe: None,
            layout,
            normalise,
            centre: false,
            envelope: None,
            ahead: None,
            factor: empty()?,
            mean: empty()?,
            work: empty()?,
            turned: empty()?,
        };
        functions.forget_norm()?;
        Ok(functions)
    }

    /// Training passes round as `math` says. On a GPU they are lean ([`Workspace::lean`]), and with bf16 images stay in bf16 from layer
    /// to layer ([`Network::workspace_in_bf16`]).
    pub(super) fn train_in(&mut self, math: Math) -> Result<()> {
        let device = self.device();
        if device != Device::Cpu {
            let in_bf16 = math == Math::Bf16;
            let passes = if in_bf16 { self.network.workspace_in_bf16(device) } else { self.network.workspace(device) };
            self.passes = passes?.lean();
        }
        Ok(())
    }

    /// The units of the first layers, `architecture`, of this one network, each one function, with their parameters.
    pub(crate) fn first_layers(&self, architecture: &Description) -> Result<Functions> {
        let (network, device) = (Network::new(architecture, self.network.inputs(), 1)?, self.device());
        let from = self.parameters.trained.to_host()?;
        let mut to = vec![0.0; network.parameters()];
        let all = self.network.trained_tensors()?;
        for ((_, place, shape), (name, source, known)) in network.trained_tensors()?.into_iter().zip(all) {
            fail_if!(
                shape != known,
                "the tensor {name} of {known:?} is not one of the first layers, which have {shape:?}"
            );
            to[place].copy_from_slice(&from[source]);
        }
        let constants = self.parameters.constants.to_host()?[..network.constants()].to_vec();
        let parameters = network.parameters_from(device, &to, &constants)?;
        Functions::from_parts(network, parameters, Layout::Units, false)
    }

    /// The same functions times `w(x)`.
    pub fn with_envelope(mut self, envelope: Arc<Envelope>) -> Functions {
        self.envelope = Some(envelope);
        self
    }

    /// Number of functions k.
    pub fn count(&self) -> usize {
        match self.layout {
            Layout::Networks => self.network.networks(),
            Layout::Units => self.network.outputs(),
        }
    }

    /// Outputs c of each.
    pub fn outputs(&self) -> usize {
        match self.layout {
            Layout::Networks => self.network.outputs(),
            Layout::Units => 1,
        }
    }

    /// The network beneath.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// What counts as one function.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The network's numbers.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The network's numbers, to be moved.
    pub fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    /// Where they are computed.
    pub fn device(&self) -> Device {
        self.parameters.trained.device()
    }

    /// `w(x)` `[n, 1]` at the points `x` `[n, d]`, if there is an envelope.
    pub(super) fn envelope_at(&self, x: &Tensor) -> Result<Option<Tensor>> {
        self.envelope.as_ref().map(|envelope| weights(envelope.as_ref(), x)).transpose()
    }

    /// Exchanges the envelope's values `[B, 1]` on the batch at hand, which the host is then not asked for.
    pub(super) fn envelope_ahead(&mut self, w: Option<Tensor>) -> Option<Tensor> {
        std::mem::replace(&mut self.ahead, w)
    }

    /// `psi ← ψ` `[k, B, c]` at the points `x` `[B, d]`, ready for [`Functions::vjp`].
    pub fn forward(&mut self, x: &Tensor, psi: &mut Tensor) -> Result<()> {
        self.forward_sharded(x, psi, None)
    }

    /// [`Functions::forward`], with the points sharded to ranks where `sharded` says so.
    pub(super) fn forward_sharded(
        &mut self,
        x: &Tensor,
        psi: &mut Tensor,
        sharded: Option<&mut ShardedBatch<'_>>,
    ) -> Result<()> {
        let Functions { network, parameters, passes, layout, .. } = self;
        match sharded {
            None => arrange(*layout, network.forward(parameters, x, Mode::Train, passes)?, psi)?,
            Some(sharded) => {
                let y = network.forward(parameters, sharded.own_points(x)?, Mode::Train, passes)?;
                sharded.complete(psi, |own| arrange(*layout, y, own))?;
            }
        }
        self.times_envelope(x, self.ahead.as_ref(), psi)?;
        let shape = psi.shape().to_vec();
        psi.reshape(&[shape[0], shape[1] * shape[2], 1])?;
        if self.centre {
            self.mean.reshape(&[shape[0], 1])?;
            compute::centre(psi, &mut self.mean);
        }
        if self.normalise {
            compute::l2_norm(psi, &mut self.factor);
        }
        psi.reshape(&shape)
    }

    /// Back through the last [`Functions::forward`], of `psi` at `x`: `gradient ← (∂ψ/∂θ)ᵀ g` `[P]` for `g` `[k, B, c]`.
    pub fn vjp(&mut self, x: &Tensor, psi: &Tensor, g: &Tensor, gradient: &mut Tensor) -> Result<()> {
        self.vjp_in_place(x, psi, &mut g.clone(), gradient, None)
    }

    /// [`Functions::vjp`] that uses up `g`, with the points sharded to ranks where `sharded` says so.
    pub(super) fn vjp_in_place(
        &mut self,
        x: &Tensor,
        psi: &Tensor,
        flow: &mut Tensor,
        gradient: &mut Tensor,
        mut sharded: Option<&mut ShardedBatch<'_>>,
    ) -> Result<()> {
        let shape = psi.shape().to_vec();
        flow.reshape(&[shape[0], shape[1] * shape[2], 1])?;
        if self.normalise {
            self.work.reshape(&[shape[0], 1])?;
            compute::l2_norm_tangent(psi, &self.factor, flow, &mut self.work);
        }
        if self.centre {
            compute::centre(flow, &mut self.mean);
        }
        flow.reshape(&shape)?;
        self.times_envelope(x, self.ahead.as_ref(), flow)?;
        let (x, flow) = match &mut sharded {
            None => (x, flow),
            Some(sharded) => sharded.own_part(flow)?,
        };
        let flow = match self.layout {
            Layout::Networks => flow,
            Layout::Units => {
                let [units, points] = [flow.shape()[0], flow.shape()[1]];
                flow.reshape(&[1, units, points])?;
                self.turned.reshape(&[1, points, units])?;
                compute::transpose(flow, &mut self.turned);
                &mut self.turned
            }
        };
        self.network.vjp(&self.parameters, x, &mut self.passes, flow, gradient, None)?;
        sharded.map_or(Ok(()), |sharded| sharded.sums.sum(gradient))
    }

    /// ψ `[k, B, c]` at other points `x` `[B, d]`, with the factors of the last forward pass; its buffers do not change.
    pub fn evaluate(&mut self, x: &Tensor) -> Result<Tensor> {
        self.with_probe(|functions, probe, psi| functions.evaluate_in(probe, x, None, psi))
    }

    /// [`Functions::evaluate`] into `psi` by buffers of the caller's own; `w` `[B, 1]` is the envelope, if it is known.
    pub(super) fn evaluate_in(
        &self,
        probe: &mut Workspace,
        x: &Tensor,
        w: Option<&Tensor>,
        psi: &mut Tensor,
    ) -> Result<()> {
        let y = self.network.forward(&self.parameters, x, Mode::Eval, probe)?;
        arrange(self.layout, y, psi)?;
        self.times_envelope(x, w, psi)?;
        self.times_factor(psi)
    }

    /// `psi_j ← s_j psi_j`; `psi` `[k, ·, ·]`.
    fn times_factor(&self, psi: &mut Tensor) -> Result<()> {
        let shape = psi.shape().to_vec();
        psi.reshape(&[shape[0], shape[1] * shape[2], 1])?;
        compute::scale_columns(psi, self.factor.matrices(0, 1, 1, 1));
        psi.reshape(&shape)
    }

    /// What `f` writes to its last argument, with the second set of buffers.
    fn with_probe(&mut self, f: impl FnOnce(&mut Self, &mut Workspace, &mut Tensor) -> Result<()>) -> Result<Tensor> {
        let mut out = Tensor::zeros(self.device(), &[0])?;
        let mut probe = self.probe.take().map_or_else(|| self.network.workspace(self.device()), Ok)?;
        let done = f(self, &mut probe, &mut out);
        self.probe = Some(probe);
        done.map(|()| out)
    }

    /// [`Functions::evaluate`] as columns `[B·c, k]` in double precision, a few thousand points at a time.
    pub fn columns(&mut self, x: &Tensor) -> Result<Array2<f64>> {
        let (points, d) = (x.shape()[0], x.shape()[1]);
        if points <= STRIP {
            return wide(&self.evaluate(x)?);
        }
        let host = x.to_host()?;
        let mut all = Array2::zeros((points * self.outputs(), self.count()));
        for (strip, mut out) in
            host.chunks(STRIP * d).zip(all.axis_chunks_iter_mut(ndarray::Axis(0), STRIP * self.outputs()))
        {
            let strip = Tensor::from_host(x.device(), &[strip.len() / d, d], strip)?;
            out.assign(&wide(&self.evaluate(&strip)?)?);
        }
        Ok(all)
    }

    /// ψ, its gradient and its Laplacian in x: `[k, (d+2)·B, c]` at the points `x` `[B, d]`, holding `ψ`, then `∂ψ/∂x_1`,
    /// …, `∂ψ/∂x_d`, then `Δψ`, with the factors of the last forward pass, whose buffers stay as they are.
    pub fn jet(&mut self, x: &Tensor) -> Result<Tensor> {
        self.with_probe(|functions, probe, jet| functions.jet_in(probe, x, jet))
    }

    /// [`Functions::jet`] into `jet` by buffers of the caller's own.
    pub(super) fn jet_in(&self, probe: &mut Workspace, x: &Tensor, jet: &mut Tensor) -> Result<()> {
        fail_if!(
            self.envelope.is_some(),
            "functions with an envelope have no Laplacian here; put it into the operator"
        );
        let y = self.network.jet(&self.parameters, x, probe)?;
        arrange(self.layout, y, jet)?;
        self.times_factor(jet)
    }

    /// Sets every factor to one, so that [`Functions::evaluate`] gives the bare functions.
    pub fn forget_norm(&mut self) -> Result<()> {
        self.factor.reshape(&[self.count(), 1])?;
        compute::fill(&mut self.factor, 1.0);
        Ok(())
    }

    /// Fixes norms inside the networks at what they are on `x` `[B, d]`, for [`Functions::evaluate`]: the mean over strips of a few
    /// thousand points.
    pub fn calibrate(&mut self, x: &Tensor) -> Result<()> {
        let is_norm = |layer: &LayerSpec| matches!(layer, LayerSpec::BatchNorm | LayerSpec::L2Norm);
        if !self.network.description().any(is_norm) {
            return Ok(());
        }
        let (points, d) = (x.shape()[0], x.shape()[1]);
        if points <= STRIP {
            let calibrated =
                self.with_probe(|functions, probe, _| functions.network.calibrate(&mut functions.parameters, x, probe));
            return calibrated.map(drop);
        }
        let host = x.to_host()?;
        let calibrated = self.with_probe(|Functions { network, parameters, .. }, probe, _| {
            let mut seen = 0;
            for strip in host.chunks(STRIP * d) {
                let few = Tensor::from_host(x.device(), &[strip.len() / d, d], strip)?;
                network.forward(parameters, &few, Mode::Train, probe)?;
                seen += few.shape()[0];
                // The mean over the points so far moves by the strip's share of them.
                network.track(parameters, probe, few.shape()[0] as f32 / seen as f32);
            }
            Ok(())
        });
        calibrated.map(drop)
    }

    /// `psi ← w psi` `[k, B, c]` with the envelope at `x` `[B, d]`: `w` `[B, 1]`, or by the host where that is not known.
    fn times_envelope(&self, x: &Tensor, w: Option<&Tensor>, psi: &mut Tensor) -> Result<()> {
        let Some(envelope) = &self.envelope else { return Ok(()) };
        match w {
            Some(w) => compute::scale_points(w, psi),
            None => compute::scale_points(&weights(envelope.as_ref(), x)?, psi),
        }
        Ok(())
    }
}

/// The network's output `y` as functions `[k, B, c]`.
fn arrange(layout: Layout, y: &Tensor, psi: &mut Tensor) -> Result<()> {
    match layout {
        Layout::Networks => {
            psi.reshape(y.shape())?;
            compute::copy(y, psi);
        }
        Layout::Units => {
            let (b, h) = (y.shape()[1], y.shape()[2]);
            psi.reshape(&[1, h, b])?;
            compute::transpose(y, psi);
            psi.reshape(&[h, b, 1])?;
        }
    }
    Ok(())
}

/// `w(x_b)` `[B, 1]` at the points `x` `[B, d]`.
fn weights(envelope: &Envelope, x: &Tensor) -> Result<Tensor> {
    let (b, d) = (x.shape()[0], x.shape()[1]);
    let w: Vec<f32> = x.to_host()?.chunks_exact(d.max(1)).map(envelope).collect();
    Tensor::from_host(x.device(), &[b, 1], &w)
}

/// Values `[k, B, c]` of functions as columns `[B·c, k]` in double precision.
fn wide(values: &Tensor) -> Result<Array2<f64>> {
    let (k, host) = (values.shape()[0], values.to_host()?);
    let points = host.len() / k.max(1);
    Ok(Array2::from_shape_fn((points, k), |(b, j)| f64::from(host[j * points + b])))
}

/// `count` networks of one architecture, less the norms at its end; nothing is drawn.
pub(super) fn separate_networks(architecture: &str, inputs: usize, count: usize) -> Result<Network> {
    Network::new(&without_final_norm(architecture, inputs)?, inputs, count)
}

/// All layers of `architecture` but the last dense one; nothing is drawn.
pub(super) fn network_of_units(architecture: &str, inputs: usize) -> Result<Network> {
    let hidden = without_final_norm(architecture, inputs)?.hidden_units();
    fail_if!(
        hidden.layers.is_empty(),
        "\"{architecture}\" has no hidden layer whose units could be combined; write for example dense(64) sincos dense(1)"
    );
    Network::new(&hidden, inputs, 1)
}

/// The architecture in full, less the norms at its end.
fn without_final_norm(architecture: &str, inputs: usize) -> Result<Description> {
    Ok(Network::parse(architecture, inputs, 1)?.description().clone().without_final_norm())
}
