//! Training steps that stay on a CUDA device.
//!
//! The data and what the operator is made of lie on the device. The host draws row numbers (or, for a Schrödinger operator,
//! points and the potential there) and learning rates for a chunk of steps ahead, with the generator that it would use by
//! itself, and reads losses, eigenvalues and whether all was finite after the chunk. Within it, a step is recorded once and
//! replayed: a launch-bound step costs one launch.
//!
//! | a NeuralEF step on two hidden layers | kernels |
//! |---|---|
//! | batch: rows and points; kernel matrix | 1 + 2 |
//! | ψ: product, bias and activation a layer; copy; norm | 6 + 1 + 3 |
//! | Kψ, R, C, coefficients, g | 5 |
//! | back: norm; slopes and bias, weights, input a layer | 3 + 11 |
//! | squares of the gradient, verdict, update | 3 |
//!
//! | the operator | a batch's Kψ | file |
//! |---|---|---|
//! | a kernel | its matrix `[B, B]`, then one product | `average` |
//! | a stored matrix | rows and columns gathered, then the same | `average` |
//! | sampled functions, with one output or more | rows of `F` gathered, then two products, `Fᵀ(Fψ)` | `average` |
//! | a graph Laplacian | ψ at the neighbours, padded to the most there can be, then a sparse sum | `walk` |
//! | a Schrödinger operator | value, gradient and Laplacian of ψ in one pass, then one kernel | `local` |
//!
//! An envelope is taken at all data by the host, once. Where an operator's numbers do not fit beside the networks, steps
//! pass through the host.
//!
//! Ritz solves its `[p, p]` eigenproblem in one kernel of one block; SpIN factors Σ in such a kernel, and makes k more
//! backward passes for the Jacobian, with two kernels each beside those of the pass.

mod average;
mod image;
mod local;
mod objective;
mod walk;

use super::objective::{Objective, Outcome};
use super::{Action, Functions};
use crate::compute::cuda::{Gpu, Graph, gather_rows_at, gpu, resident};
use crate::compute::{Device, Math, Tensor};
use crate::net::Optimizer;
use crate::rng::Rng;
use crate::{Error, Result};
use image::{Image, Points};
use ndarray::Array2;
use objective::Formed;
use resident::{Chunk, Spoilt};
use std::time::Instant;

pub use average::Values;
pub use image::DeviceAction;

/// An objective as a device can follow it by itself, with what it remembers between steps.
pub enum OnDevice<'a> {
    /// [`super::NeuralEf`]
    NeuralEf {
        /// Share of the old value that R's moving average keeps at each step, and its value, where there is one.
        averaged: Option<(f64, &'a mut Option<Array2<f64>>)>,
    },
    /// [`super::NeuralEf::joint`]
    NeuralEfJoint,
    /// [`super::Nested`]
    Nested(super::Nesting),
    /// [`super::Spin`]
    Spin(&'a mut super::Spin),
    /// [`super::Ritz`]
    Ritz {
        /// Pairs that are wanted.
        k: usize,
    },
}

/// Most steps of a chunk.
const MOST: usize = 256;
/// Steps of the first chunk, whose duration is not known.
const FIRST: usize = 8;
/// Seconds that a chunk may take, so that Ctrl-C is heard.
const SECONDS: f64 = 0.4;
/// Steps that run before one is recorded: buffers trade places between layers, and have grown to all their roles after two.
const PLAIN: usize = 2;

/// Training steps on a CUDA device, and all their buffers.
///
/// [`Resident::steps`] is also what a benchmark times.
pub struct Resident {
    gpu: &'static Gpu,
    math: Math,
    /// All points that batches are rows of.
    points: Points,
    image: Image,
    formed: Formed,
    chunk: Chunk,
    batch: Batch,
    graph: Option<Graph>,
    /// Whether steps are recorded at all.
    record: bool,
    plain: usize,
    /// Steps of a chunk.
    most: usize,
    /// Where the parameters, the moments and what the objective remembers lay when the step was recorded.
    places: Vec<u64>,
    seconds_per_step: Option<f64>,
}

/// One batch on its way through a step.
struct Batch {
    /// `[B, d]`
    points: Points,
    /// `[k, B, c]` each
    psi: Tensor,
    kpsi: Tensor,
    g: Tensor,
    /// `[k, k]`
    r: Tensor,
    /// `[P]`
    gradient: Tensor,
}

/// What came of a chunk of steps.
#[derive(Debug)]
pub struct Steps {
    /// Of each step that was made.
    pub outcomes: Vec<Outcome>,
    /// Why the next one was not.
    pub failure: Option<Error>,
}

impl Resident {
    /// The device's own steps for this action, these functions and this objective on batches of `batch` points, where
    /// there are such; networks' products round as `math` says. `None` where a step has to pass through the host.
    pub fn new(
        action: &dyn Action,
        functions: &Functions,
        objective: &mut dyn Objective,
        batch: usize,
        math: Math,
    ) -> Result<Option<Resident>> {
        let device = functions.device();
        let (Device::Cuda(ordinal), Some(way), Some(form)) = (device, action.on_device(), objective.on_device()) else {
            return Ok(None);
        };
        let (k, c, b) = (functions.count(), functions.outputs(), way.batch(batch));
        if c != action.outputs() || !functions.stay_on_device() || b < 2 {
            return Ok(None);
        }
        let gpu = gpu(ordinal)?;
        let Some((image, points)) = Image::new(gpu, action, way, functions, [MOST, b], math)? else { return Ok(None) };
        let formed = Formed::new(gpu, &form, k, b * c, functions.network().parameters())?;
        let zeros = |shape: &[usize]| Tensor::zeros(device, shape);
        Ok(Some(Resident {
            gpu,
            math: image.math(math),
            points,
            most: image.chunk(functions, [MOST, b]),
            image,
            chunk: Chunk::new(gpu, MOST, b, formed.eigenvalues(k), c)?,
            formed,
            batch: Batch {
                points: Points::room(functions, b)?,
                psi: zeros(&[k, b, c])?,
                kpsi: zeros(&[k, b, c])?,
                g: zeros(&[k, b, c])?,
                r: zeros(&[k, k])?,
                gradient: zeros(&[functions.network().parameters()])?,
            },
            graph: None,
            record: true,
            plain: 0,
            places: vec![],
            seconds_per_step: None,
        }))
    }

    /// The same with every kernel launched by itself at every step.
    pub fn without_graph(mut self) -> Resident {
        self.record = false;
        self
    }

    /// Points of a batch.
    pub fn batch(&self) -> usize {
        self.chunk.batch
    }

    /// Makes the next steps, at most `most` and few enough that they end soon, in one go. An error is one of the device;
    /// what was not finite is told in [`Steps::failure`], and leaves the parameters, the optimiser's count and `rng` as
    /// they are after the steps before it and the drawing of its batch.
    pub fn steps(
        &mut self,
        functions: &mut Functions,
        objective: &mut dyn Objective,
        optimizer: &mut Optimizer,
        rng: &mut Rng,
        most: usize,
    ) -> Result<Steps> {
        let count = most.min(self.chunk_size());
        if count == 0 {
            return Ok(Steps { outcomes: vec![], failure: None });
        }
        let start = Instant::now();
        let states = self.upload(objective, optimizer, rng, count)?;
        self.forget_stale_graph(functions, optimizer);
        for _ in 0..count {
            self.step(functions, optimizer)?;
        }
        let steps = self.download(objective, count)?;
        let made = steps.outcomes.len();
        optimizer.advance(made as u64);
        // The step that failed has drawn its batch.
        *rng = states[made.min(count - 1)].clone();
        self.seconds_per_step = Some(start.elapsed().as_secs_f64() / count as f64);
        Ok(steps)
    }

    fn chunk_size(&self) -> usize {
        self.seconds_per_step.map_or(FIRST.min(self.most), |each| ((SECONDS / each) as usize).clamp(1, self.most))
    }

    /// Brings row numbers, learning rates and the objective's memory for `count` steps; the generator's states after
    /// each.
    fn upload(
        &mut self,
        objective: &mut dyn Objective,
        optimizer: &Optimizer,
        rng: &Rng,
        count: usize,
    ) -> Result<Vec<Rng>> {
        let (rows, states) = self.image.draw(&mut self.points, rng, self.chunk.batch, count);
        let (rule, learning) = optimizer.rates();
        let rates = resident::rates(rule, optimizer.steps(), learning.take(count));
        let average = self.formed.borrow(objective.on_device())?;
        self.chunk.start(&rows, &rates, average.as_deref());
        Ok(states)
    }

    /// A recorded step writes where the parameters, the moments and what the objective remembers were; after a recovery
    /// they may be elsewhere.
    fn forget_stale_graph(&mut self, functions: &Functions, optimizer: &mut Optimizer) {
        let [m, v] = optimizer.parts().2.each_ref().map(Tensor::address);
        let mut places = vec![functions.parameters().trained.address(), m, v];
        places.extend(self.formed.places());
        if places != self.places {
            (self.graph, self.places) = (None, places);
        }
    }

    /// One step: replayed, or queued kernel by kernel, or recorded and replayed.
    fn step(&mut self, functions: &mut Functions, optimizer: &mut Optimizer) -> Result<()> {
        if !self.record || self.plain < PLAIN {
            self.plain += 1;
            return self.queue(functions, optimizer);
        }
        if self.graph.is_none() {
            let gpu = self.gpu;
            self.graph = Some(Graph::record(gpu, || self.queue(functions, optimizer))?);
        }
        if let Some(graph) = &mut self.graph {
            graph.replay();
        }
        Ok(())
    }

    /// Queues every kernel of a step.
    fn queue(&mut self, functions: &mut Functions, optimizer: &mut Optimizer) -> Result<()> {
        let Batch { points: Points { x, w }, psi, kpsi, g, r, gradient } = &mut self.batch;
        let (device, gpu) = (Device::Cuda(self.gpu.ordinal), self.gpu);
        let (chunk, image, all, formed) = (&mut self.chunk, &mut self.image, &self.points, &mut self.formed);
        chunk.begin(&all.x, x);
        if let (Some(all), Some(w)) = (&all.w, &mut *w) {
            gather_rows_at(gpu, all, chunk.step_rows(), chunk.batch, w);
        }
        device.with_math(Math::F32, || image.begin(chunk, all));
        functions.with_envelope_at(w, |functions| {
            device.with_math(self.math, || functions.forward(x, psi))?;
            device.with_math(Math::F32, || {
                image.apply(chunk, all, x, functions, psi, kpsi)?;
                resident::form(gpu, psi, kpsi, 0..chunk.values(), r);
                // The networks' backward pass has used g up.
                g.reshape(psi.shape())?;
                let estimate = image.estimate(chunk.batch);
                formed.gradient(gpu, chunk, estimate, psi, kpsi, r, g)
            })?;
            device.with_math(self.math, || {
                functions.vjp_in_place(x, psi, g, gradient)?;
                formed.finish(gpu, functions, x, psi, gradient)
            })
        })?;
        let (rule, clip, moments) = optimizer.parts();
        self.chunk.end(rule, clip, &mut functions.parameters_mut().trained, gradient, moments);
        Ok(())
    }

    /// Waits for `count` steps and reads what they found.
    fn download(&mut self, objective: &mut dyn Objective, count: usize) -> Result<Steps> {
        let k = self.chunk.k;
        let report = self.chunk.report(count)?;
        self.formed.give_back(objective.on_device(), report.average, k);
        let made = report.spoilt.map_or(count, |(step, _)| step);
        let outcome = |row: &[f64]| Outcome { loss: row[0], eigenvalues: row[1..].to_vec() };
        let outcomes = report.record.chunks_exact(1 + k).take(made).map(outcome).collect();
        let failure = report.spoilt.map(|(_, what)| Error::Numerical(format!("{} is not finite", name(what))));
        Ok(Steps { outcomes, failure })
    }
}

fn name(what: Spoilt) -> &'static str {
    match what {
        Spoilt::Psi => "a network's output",
        Spoilt::Image => "the operator's action on a network",
        Spoilt::Gradient => "the gradient",
        Spoilt::Loss => "the loss",
        Spoilt::Problem => "the solution of the batch's eigenproblem",
    }
}
