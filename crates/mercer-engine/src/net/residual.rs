//! A sum of two chains of layers on the same input: `y = φ(body(x) + shortcut(x))`.

use super::{Gradient, Layer, Pass, Trace, Weights, consecutive};
use crate::Result;
use crate::compute::{self, Activation, Store, Tensor};
use crate::rng::Rng;

/// `y = φ(body(x) + shortcut(x))`; an empty shortcut is the identity.
///
/// Parameters and constants: those of the body layer by layer, then those of the shortcut.
#[derive(Debug)]
pub struct Residual {
    inputs: usize,
    body: Vec<Box<dyn Layer>>,
    shortcut: Vec<Box<dyn Layer>>,
    activation: Activation,
}

impl Residual {
    /// On `inputs` units; both chains put out equally many.
    pub fn new(
        inputs: usize,
        body: Vec<Box<dyn Layer>>,
        shortcut: Vec<Box<dyn Layer>>,
        activation: Activation,
    ) -> Residual {
        Residual { inputs, body, shortcut, activation }
    }

    fn layers(&self) -> impl Iterator<Item = &dyn Layer> {
        self.body.iter().chain(&self.shortcut).map(AsRef::as_ref)
    }

    /// The two chains, each with its place among the numbers and the inner traces.
    fn chains(&self) -> [Chain<'_>; 2] {
        let (starts, end) = consecutive(&self.body, [0, 0]);
        let shortcut = Chain { layers: &self.shortcut, starts: consecutive(&self.shortcut, end).0 };
        [Chain { layers: &self.body, starts }, shortcut]
    }
}

/// Layers in order, and where their parameters and constants start among the residual layer's.
struct Chain<'a> {
    layers: &'a [Box<dyn Layer>],
    starts: Vec<[usize; 2]>,
}

impl<'a> Chain<'a> {
    /// The layers with their places.
    fn placed(&self) -> Vec<(&'a dyn Layer, usize, usize)> {
        let places = self.layers.iter().zip(&self.starts);
        places.map(|(layer, &[at, constants_at])| (layer.as_ref(), at, constants_at)).collect()
    }

    /// Shapes of the outputs: an input that all networks share stays shared until a layer tells them apart.
    fn shapes(&self, x: &Tensor, inputs: usize, networks: usize, batch: usize) -> Vec<[usize; 3]> {
        let mut count = x.len() / (batch * inputs);
        let mut shape = |layer: &dyn Layer| {
            count = if layer.branches() { networks } else { count };
            [count, batch, layer.outputs()]
        };
        self.layers.iter().map(|layer| shape(layer.as_ref())).collect()
    }

    /// Backwards from the gradient in `flow`, which is used up; `next` is scratch.
    #[allow(clippy::too_many_arguments)]
    fn vjp(
        &self,
        theta: &Weights<'_>,
        x: &Tensor,
        traces: &mut [Trace],
        flow: &mut Tensor,
        next: &mut Tensor,
        grad: &mut Gradient<'_>,
        mut dx: Option<&mut Tensor>,
    ) -> Result<()> {
        for (i, (layer, at, constants_at)) in self.placed().into_iter().enumerate().rev() {
            let (before, after) = traces.split_at_mut(i);
            let theta = theta.inside(at, constants_at);
            let (mut slot, trace) = (grad.inside(at), &mut after[0]);
            match before.last() {
                Some(input) => {
                    next.reshape(input.y.shape())?;
                    layer.vjp(Pass { theta: &theta, x: &input.y, trace }, flow, &mut slot, Some(next))?;
                    std::mem::swap(flow, next);
                }
                None => layer.vjp(Pass { theta: &theta, x, trace }, flow, &mut slot, dx.as_deref_mut())?,
            }
        }
        Ok(())
    }

    /// The tangent of the last layer, left in `flow`; `next` is scratch.
    #[allow(clippy::too_many_arguments)]
    fn jvp(
        &self,
        theta: &Weights<'_>,
        dtheta: Option<&Weights<'_>>,
        x: &Tensor,
        dx: Option<&Tensor>,
        traces: &mut [Trace],
        flow: &mut Tensor,
        next: &mut Tensor,
    ) -> Result<()> {
        for (i, (layer, at, constants_at)) in self.placed().into_iter().enumerate() {
            let (before, after) = traces.split_at_mut(i);
            let (input, dinput) = before.last().map_or((x, dx), |trace| (&trace.y, Some(&*flow)));
            let (theta, dtheta) = (theta.inside(at, constants_at), dtheta.map(|d| d.inside(at, constants_at)));
            next.reshape(after[0].y.shape())?;
            let pass = Pass { theta: &theta, x: input, trace: &mut after[0] };
            layer.jvp(pass, dtheta.as_ref(), dinput, next)?;
            std::mem::swap(flow, next);
        }
        Ok(())
    }
}

impl Layer for Residual {
    fn outputs(&self) -> usize {
        self.body.last().map_or(self.inputs, |layer| layer.outputs())
    }

    fn parameters(&self) -> usize {
        self.layers().map(|layer| layer.parameters()).sum()
    }

    fn constants(&self) -> usize {
        self.layers().map(|layer| layer.constants()).sum()
    }

    fn multiply_adds(&self) -> usize {
        self.layers().map(|layer| layer.multiply_adds()).sum()
    }

    fn activation(&self) -> Activation {
        self.activation
    }

    fn branches(&self) -> bool {
        self.layers().any(|layer| layer.branches())
    }

    fn sees_images(&self) -> bool {
        self.layers().any(|layer| layer.sees_images())
    }

    fn stem(&self) -> &'static str {
        "layer"
    }

    fn inner(&self) -> [&[Box<dyn Layer>]; 2] {
        [&self.body, &self.shortcut]
    }

    fn init(&self, rng: &mut Rng, mut parameters: &mut [f32], mut constants: &mut [f32]) {
        for layer in self.layers() {
            let (own, rest) = parameters.split_at_mut(layer.parameters());
            let (own_constants, rest_constants) = constants.split_at_mut(layer.constants());
            layer.init(rng, own, own_constants);
            (parameters, constants) = (rest, rest_constants);
        }
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let &[networks, batch, _] = trace.y.shape() else { unreachable!("outputs are [k, b, out]") };
        while trace.inner.len() < self.body.len() + self.shortcut.len() {
            trace.inner.push(Trace::new(trace.y.device())?);
        }
        let mut traces = &mut trace.inner[..];
        for (chain, store) in self.chains().iter().zip([Store::Replace, Store::Add]) {
            let (own, rest) = traces.split_at_mut(chain.layers.len());
            let shapes = chain.shapes(x, self.inputs, networks, batch);
            for (i, ((layer, at, constants_at), shape)) in chain.placed().into_iter().zip(shapes).enumerate() {
                let (before, after) = own.split_at_mut(i);
                let (input, inner) = (before.last().map_or(x, |trace| &trace.y), &mut after[0]);
                inner.mode = trace.mode;
                inner.y.reshape(&shape)?;
                layer.forward(&theta.inside(at, constants_at), input, inner)?;
            }
            compute::spread(own.last().map_or(x, |trace| &trace.y).stack(), store, &mut trace.y);
            traces = rest;
        }
        trace.activate(self.activation)
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, mut dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        if !self.is_linear() {
            compute::multiply(g, &trace.slope);
        }
        let [body, shortcut] = self.chains();
        let Trace { inner, factor: flow, work: next, .. } = trace;
        let (inner_body, inner_shortcut) = inner.split_at_mut(self.body.len());
        let into = |last: Option<&Trace>, g: &Tensor, flow: &mut Tensor| -> Result<()> {
            flow.reshape(last.map_or(g.shape(), |trace| trace.y.shape()))?;
            compute::collect(g, Store::Replace, flow);
            Ok(())
        };
        into(inner_body.last(), g, flow)?;
        body.vjp(theta, x, inner_body, flow, next, grad, dx.as_deref_mut())?;
        if shortcut.layers.is_empty() {
            dx.into_iter().for_each(|dx| compute::collect(g, Store::Add, dx));
            return Ok(());
        }
        into(inner_shortcut.last(), g, flow)?;
        let Some(dx) = dx else { return shortcut.vjp(theta, x, inner_shortcut, flow, next, grad, None) };
        // g has done its work; what comes back through the shortcut may lie there.
        g.reshape(dx.shape())?;
        shortcut.vjp(theta, x, inner_shortcut, flow, next, grad, Some(g))?;
        compute::axpy(1.0, g, dx);
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        let [body, shortcut] = self.chains();
        let Trace { inner, factor: flow, work: next, slope, .. } = trace;
        let (inner_body, inner_shortcut) = inner.split_at_mut(self.body.len());
        body.jvp(theta, dtheta, x, dx, inner_body, flow, next)?;
        compute::spread(flow.stack(), Store::Replace, t);
        if !shortcut.layers.is_empty() {
            shortcut.jvp(theta, dtheta, x, dx, inner_shortcut, flow, next)?;
            compute::spread(flow.stack(), Store::Add, t);
        } else if let Some(dx) = dx {
            compute::spread(dx.stack(), Store::Add, t);
        }
        if !self.is_linear() {
            compute::multiply(t, slope);
        }
        Ok(())
    }

    fn spread(&self, spread: &mut [f32]) {
        let places = self.chains().into_iter().flat_map(|chain| chain.placed());
        for (layer, at, _) in places {
            layer.spread(&mut spread[at..at + layer.parameters()]);
        }
    }

    fn track(&self, trace: &Trace, share: f32, constants: &mut Gradient<'_>) {
        let places = self.chains().into_iter().flat_map(|chain| chain.placed());
        for ((layer, _, constants_at), inner) in places.zip(&trace.inner) {
            layer.track(inner, share, &mut constants.inside(constants_at));
        }
    }
}
