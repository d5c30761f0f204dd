//! Training steps, the same on every device.
//!
//! Batches and learning rates are drawn ahead for a chunk of steps: one on the CPU, some hundred on a GPU. There a step is
//! recorded once and replayed, so that its many small kernels cost one launch, and nothing is read back within a chunk.

use super::objective::{Objective, Step};
use super::sharded_batch::ShardedBatch;
use super::{Batches, FunctionOperator, Functions, Points};
use crate::compute::ledger::ran;
use crate::compute::{Control, Math, NonFinite, Replay, Small, Tensor, small};
use crate::net::Optimizer;
use crate::rng::Rng;
use crate::training::Fingerprint;
use crate::{Error, Group, Result, fail_if};
use std::time::Instant;

/// Steps of the first chunk, whose duration is not known.
const FIRST: usize = 8;
/// Seconds that a chunk may take, so that an interrupt is noticed.
const SECONDS: f64 = 0.4;

/// What a step found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// ℓ
    pub loss: f64,
    /// This batch's estimates of the eigenvalues, as the objective has them.
    pub eigenvalues: Vec<f64>,
}

/// What came of a chunk of steps.
#[derive(Debug)]
pub struct Steps {
    /// Of each step that was made.
    pub outcomes: Vec<Outcome>,
    /// Why the next one was not.
    pub failure: Option<Error>,
}

/// Makes training steps; it owns all that they change.
pub struct Stepper<'a> {
    batches: Box<dyn Batches + 'a>,
    pub(super) functions: Functions,
    pub(super) objective: Box<dyn Objective>,
    pub(super) optimizer: Optimizer,
    pub(super) rng: Rng,
    control: Control,
    buffers: Buffers,
    replay: Replay,
    math: Math,
    seconds_per_step: Option<f64>,
    /// Where there are several ranks. Recorded steps use it, and end before.
    sharded: Option<ShardedBatch<'a>>,
}

/// One batch on its way through a step.
struct Buffers {
    points: Points,
    /// `[k, B, c]` each
    psi: Tensor,
    kpsi: Tensor,
    /// `[k, k]` each
    covariance: Small,
    r: Small,
    unbiased: Small,
    /// `[P]`
    gradient: Tensor,
}

impl<'a> Stepper<'a> {
    /// Steps on batches of `batch` points, drawn with `rng`; networks' products on a GPU round as `math` says.
    pub fn new(
        operator: &'a dyn FunctionOperator,
        mut functions: Functions,
        objective: Box<dyn Objective>,
        optimizer: Optimizer,
        rng: Rng,
        batch: usize,
        math: Math,
    ) -> Result<Stepper<'a>> {
        let (device, k, c) = (functions.device(), functions.count(), functions.outputs());
        fail_if!(
            c != operator.outputs(),
            "the functions have {c} outputs, those of the operator {}",
            operator.outputs()
        );
        let batches = operator.batches(&functions, batch, math)?;
        let math = batches.math(math);
        functions.train_in(math)?;
        let square = || Small::zeros(device, [k, k]);
        let empty = || Tensor::zeros(device, &[0]);
        Ok(Stepper {
            control: Control::new(device, batches.most(), objective.eigenvalues(k))?,
            buffers: Buffers {
                points: Points::empty(&functions)?,
                psi: empty()?,
                kpsi: empty()?,
                covariance: square()?,
                r: square()?,
                unbiased: square()?,
                gradient: Tensor::zeros(device, &[functions.network().parameters()])?,
            },
            replay: Replay::new(device, batches.recordable())?,
            math,
            seconds_per_step: None,
            sharded: None,
            batches,
            functions,
            objective,
            optimizer,
            rng,
        })
    }

    /// The same with the points of every batch sharded to the ranks of `group`, all of which make the same steps. Collective.
    pub fn among(mut self, group: Group<'a>) -> Result<Self> {
        let sharded = ShardedBatch::new(group, &self.functions, self.batch())?;
        let recordable = self.replay.records() && sharded.sums.is_queued();
        self.replay = Replay::new(self.functions.device(), recordable)?;
        self.sharded = Some(sharded);
        Ok(self)
    }

    /// What the user should know of the sums over ranks.
    pub(super) fn note(&self) -> Option<&str> {
        self.sharded.as_ref().and_then(|sharded| sharded.sums.note())
    }

    /// Refuses ranks whose parameters differ, as they would with processors that round differently. Collective.
    pub(super) fn check_same(&self) -> Result<()> {
        let Some(sharded) = &self.sharded else { return Ok(()) };
        let theta = self.functions.parameters().trained.to_host()?;
        let print = Fingerprint::of(theta.iter().map(|v| u64::from(v.to_bits())));
        sharded.sums.agree("parameters", print.to_string().as_bytes())
    }

    /// The same with every kernel launched by itself at every step.
    pub fn without_graph(mut self) -> Result<Self> {
        self.replay = Replay::new(self.functions.device(), false)?;
        Ok(self)
    }

    /// Whether steps are recorded and replayed.
    pub fn is_recorded(&self) -> bool {
        self.replay.records()
    }

    /// The functions.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The objective.
    pub fn objective(&mut self) -> &mut dyn Objective {
        self.objective.as_mut()
    }

    /// Points of a batch.
    pub fn batch(&self) -> usize {
        self.batches.size()
    }

    /// Makes the next steps, at most `most` and few enough that they end soon. An error is one of the device; what was not
    /// finite is told in [`Steps::failure`], and leaves the parameters, the optimizer's count and the generator as they are
    /// after the steps before it and the drawing of its batch.
    pub fn steps(&mut self, most: usize) -> Result<Steps> {
        let count = most.min(self.chunk());
        if count == 0 {
            return Ok(Steps { outcomes: vec![], failure: None });
        }
        let start = Instant::now();
        let mut states = Vec::with_capacity(count);
        let mut rng = self.rng.clone();
        for _ in 0..count {
            self.batches.draw(&mut rng);
            states.push(rng.clone());
        }
        self.batches.bring()?;
        self.optimizer.start(&mut self.control);
        for _ in 0..count {
            self.step()?;
        }
        let report = self.control.report(count)?;
        let made = report.failure.map_or(count, |(step, _)| step);
        self.optimizer.advance(made as u64);
        ran("training steps", self.functions.device(), made);
        // The step that failed has drawn its batch.
        self.rng = states.swap_remove(made.min(count - 1));
        self.seconds_per_step = Some(self.agreed(start.elapsed().as_secs_f64() / count as f64, made)?);
        let width = 1 + self.objective.eigenvalues(self.functions.count());
        let outcome = |row: &[f64]| Outcome { loss: row[0], eigenvalues: row[1..].to_vec() };
        let failure = report.failure.map(|(_, what)| Error::Numerical(format!("{} is not finite", name(what))));
        Ok(Steps { outcomes: report.record.chunks_exact(width).take(made).map(outcome).collect(), failure })
    }

    /// The mean of `seconds` over the ranks, which then take equal chunks; all must have `made` as many steps. A chunk of one step has nothing to
    /// agree on.
    fn agreed(&self, seconds: f64, made: usize) -> Result<f64> {
        let Some(sharded) = self.sharded.as_ref().filter(|_| self.batches.most() > 1) else { return Ok(seconds) };
        sharded.sums.agree("steps that were not finite", &made.to_le_bytes())?;
        sharded.sums.mean(seconds)
    }

    /// Steps of a chunk.
    fn chunk(&self) -> usize {
        let most = self.batches.most();
        self.seconds_per_step.map_or(FIRST.min(most), |each| ((SECONDS / each) as usize).clamp(1, most))
    }

    /// One step: a batch, ψ and Kψ on it, the objective's gradient, and the move of the parameters.
    fn step(&mut self) -> Result<()> {
        let Stepper { batches, functions, objective, optimizer, control, buffers, replay, math, sharded, .. } = self;
        let (device, math) = (functions.device(), *math);
        let Buffers { points, psi, kpsi, covariance, r, unbiased, gradient } = buffers;
        replay.run(|| {
            device.with_math(Math::F32, || {
                batches.begin(control, points)?;
                functions.envelope_ahead(points.envelope.take());
                device.with_math(math, || functions.forward_sharded(&points.x, psi, sharded.as_mut()))?;
                batches.apply(control, points, functions, psi, kpsi)?;
                small::forms(psi, kpsi, control, covariance, r)?;
                let unbiased = batches.unbiased(psi, covariance, r, unbiased)?;
                let x = &points.x;
                objective.step(&mut Step {
                    x,
                    psi,
                    kpsi,
                    covariance,
                    r,
                    unbiased,
                    control,
                    functions,
                    gradient,
                    math,
                    sharded: sharded.as_mut(),
                })?;
                points.envelope = functions.envelope_ahead(None);
                optimizer.end_step(control, &mut functions.parameters_mut().trained, gradient);
                Ok(())
            })
        })
    }
}

fn name(what: NonFinite) -> &'static str {
    match what {
        NonFinite::Output => "a network's output",
        NonFinite::Image => "the operator's action on a network",
        NonFinite::Gradient => "the gradient",
        NonFinite::Loss => "the loss",
        NonFinite::Problem => "the solution of the batch's eigenproblem",
    }
}
