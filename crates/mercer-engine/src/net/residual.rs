//! A sum of two chains of layers on the same input: `y = φ(body(x) + shortcut(x))`.

use super::chain::{Chain, consecutive};
use super::ntk::{Evaluated, Jacobian};
use super::{Facts, Gradient, Layer, Part, Pass, Trace, Weights};
use crate::Result;
use crate::compute::{self, Activation, Store, Tensor};
use crate::rng::Rng;
use std::ops::Range;

/// `y = φ(body(x) + shortcut(x))`; an empty shortcut is the identity.
///
/// Parameters and constants: those of the body layer by layer, then those of the shortcut.
#[derive(Debug)]
pub struct Residual {
    inputs: usize,
    /// The body, then the shortcut.
    layers: Vec<Box<dyn Layer>>,
    /// Where the parameters and the constants of each start among this layer's.
    starts: Vec<[usize; 2]>,
    /// Layers of the body.
    body: usize,
    activation: Activation,
    facts: Facts,
}

impl Residual {
    /// On `inputs` units; both chains put out equally many.
    pub fn new(
        inputs: usize,
        body: Vec<Box<dyn Layer>>,
        shortcut: Vec<Box<dyn Layer>>,
        activation: Activation,
    ) -> Residual {
        let outputs = body.last().map_or(inputs, |layer| layer.facts().outputs);
        let (body, layers) = (body.len(), body.into_iter().chain(shortcut).collect::<Vec<_>>());
        let (starts, [parameters, constants]) = consecutive(&layers, [0, 0], 1);
        let mut facts = Facts { outputs, parameters, constants, stem: "layer", ..Facts::default() };
        facts.activated = activation != Activation::Identity;
        for inner in layers.iter().map(|layer| layer.facts()) {
            facts.multiply_adds += inner.multiply_adds;
            facts.branches |= inner.branches;
            facts.sees_images |= inner.sees_images;
        }
        Residual { inputs, layers, starts, body, activation, facts }
    }

    /// The layers of the body and those of the shortcut.
    fn ranges(&self) -> [Range<usize>; 2] {
        [0..self.body, self.body..self.layers.len()]
    }

    /// The chain of some layers, with their places among this layer's numbers.
    fn chain<'a>(&'a self, range: Range<usize>, theta: &'a Weights<'a>) -> Chain<'a, impl Fn(usize) -> Weights<'a>> {
        let starts = &self.starts[range.clone()];
        Chain { layers: &self.layers[range], theta: move |i| theta.inside(starts[i]) }
    }
}

impl Layer for Residual {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn inner(&self) -> [&[Box<dyn Layer>]; 2] {
        self.ranges().map(|range| &self.layers[range])
    }

    fn part(&self) -> Part<'_> {
        Part::Sum(self.activation)
    }

    fn init(&self, rng: &mut Rng, parameters: &mut [f32], constants: &mut [f32]) {
        for (layer, start) in self.layers.iter().zip(&self.starts) {
            let [own, measured] = layer.facts().ranges(*start);
            layer.init(rng, &mut parameters[own], &mut constants[measured]);
        }
    }

    fn spread(&self, spread: &mut [f32]) {
        for (layer, start) in self.layers.iter().zip(&self.starts) {
            let [own, _] = layer.facts().ranges(*start);
            layer.spread(&mut spread[own]);
        }
    }

    fn forward(&self, theta: &Weights<'_>, x: &Tensor, trace: &mut Trace) -> Result<()> {
        let &[networks, batch, _] = trace.y.shape() else { unreachable!("outputs are [k, b, out]") };
        while trace.inner.len() < self.layers.len() {
            trace.inner.push(Trace::new(trace.y.device())?);
        }
        for (range, store) in self.ranges().into_iter().zip([Store::Replace, Store::Add]) {
            let (chain, traces) = (self.chain(range.clone(), theta), &mut trace.inner[range]);
            // An input that all networks share stays shared until a layer tells them apart.
            let mut count = x.len() / (batch * self.inputs);
            let counts = |i: usize| {
                count = if chain.layers[i].facts().branches { networks } else { count };
                count
            };
            chain.forward(x, batch, counts, (trace.mode, false), traces)?;
            compute::spread(traces.last().map_or(x, |trace| &trace.y).stack(), store, &mut trace.y);
        }
        trace.activate(self.activation)
    }

    fn vjp(&self, pass: Pass<'_>, g: &mut Tensor, grad: &mut Gradient<'_>, mut dx: Option<&mut Tensor>) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        trace.times_slope(self.activation, g);
        let Trace { inner, factor: flow, work: next, .. } = trace;
        let (slot, networks) = (grad.slot, grad.networks);
        for range in self.ranges() {
            let (chain, traces, shortcut) =
                (self.chain(range.clone(), theta), &mut inner[range.clone()], range.start > 0);
            let Some(last) = traces.last() else {
                dx.iter_mut().for_each(|dx| compute::collect(g, Store::Add, dx));
                continue;
            };
            flow.reshape(last.y.shape())?;
            compute::collect(g, Store::Replace, flow);
            // g has done its work then; what comes back through the shortcut may lie there.
            let into = if shortcut { dx.is_some().then_some(&mut *g) } else { dx.as_deref_mut() };
            let slots = |i: usize| (slot.inside(self.starts[range.start + i][0]), networks);
            chain.vjp(x, traces, [flow, next], grad.tensor, slots, into)?;
            if let Some(dx) = dx.as_deref_mut().filter(|_| shortcut) {
                compute::axpy(1.0, g, dx);
            }
        }
        Ok(())
    }

    fn jvp(&self, pass: Pass<'_>, dtheta: Option<&Weights<'_>>, dx: Option<&Tensor>, t: &mut Tensor) -> Result<()> {
        let Pass { theta, x, trace } = pass;
        let Trace { inner, factor: flow, work: next, .. } = &mut *trace;
        for (range, store) in self.ranges().into_iter().zip([Store::Replace, Store::Add]) {
            if range.is_empty() {
                dx.into_iter().for_each(|dx| compute::spread(dx.stack(), store, t));
                continue;
            }
            let dtheta = |i: usize| dtheta.map(|d| d.inside(self.starts[range.start + i]));
            self.chain(range.clone(), theta).jvp(dtheta, x, dx, &mut inner[range.clone()], [flow, next])?;
            compute::spread(flow.stack(), store, t);
        }
        trace.times_slope(self.activation, t);
        Ok(())
    }

    fn jacobian<'a>(&self, at: &Evaluated<'a, '_>, mut g: Tensor, mut dx: Option<&mut Tensor>) -> Result<Jacobian<'a>> {
        at.times_slope(self.activation, &mut g);
        let mut parts = vec![];
        for range in self.ranges() {
            let (mut g, body) = (g.clone(), range.start == 0 && !range.is_empty());
            for i in range.clone().rev() {
                let (first, trace) = (i == range.start, &at.trace.inner[i]);
                let x = if first { at.x } else { &at.trace.inner[i - 1].y };
                let inner = Evaluated { theta: at.theta.inside(self.starts[i]), x, trace, ..*at };
                let mut back = Tensor::zeros(g.device(), &[0])?;
                let wanted = !first || dx.is_some();
                parts.push((self.starts[i][0], self.layers[i].jacobian(&inner, g, wanted.then_some(&mut back))?));
                g = back;
            }
            match dx.as_deref_mut() {
                Some(dx) if body => *dx = g,
                Some(dx) => compute::axpy(1.0, &g, dx),
                None => {}
            }
        }
        Ok(Jacobian::Several(parts))
    }

    fn written_out(&self) -> usize {
        let inner = self.layers.iter().map(|layer| layer.facts().outputs + layer.written_out());
        inner.sum()
    }

    fn track(&self, trace: &Trace, share: f32, constants: &mut Gradient<'_>) {
        for ((layer, [_, at]), inner) in self.layers.iter().zip(&self.starts).zip(&trace.inner) {
            layer.track(inner, share, &mut constants.inside(*at));
        }
    }
}
