//! The one training loop: batches, steps, validation, checkpoints, recovery.

use super::checkpoint::Mark;
use super::finish::rayleigh_ritz;
use super::objective::{MovingAverage, Objective, Outcome};
use super::room::Room;
use super::{Action, Batch, Functions, Resident, Settings, Stepper, Stop, Training};
use crate::Progress;
use crate::compute::Device;
use crate::net::{Optimizer, Schedule};
use crate::rng::Rng;
use crate::{Error, Result};
use ndarray::Array2;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Those who look on while training runs.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told of progress.
    pub progress: &'a dyn Progress,
    /// Set from outside (by Ctrl-C, say) to end training after the current step with what there is.
    pub interrupt: Option<&'a AtomicBool>,
}

/// Functions after training.
pub struct Trained {
    /// The functions.
    pub functions: Functions,
    /// How they came about; `finished` is false.
    pub record: Training,
}

/// Recoveries from non-finite steps before training gives up.
const MOST_RECOVERIES: usize = 5;
/// Most entries of the loss curve.
const CURVE: u64 = 400;

/// The fixed sample on which training is validated.
pub(super) fn validation_sample(
    action: &mut dyn Action,
    device: Device,
    seed: &Rng,
    settings: &Settings,
) -> Result<Batch> {
    action.sample(device, &mut seed.fork(3), settings.validation_points)
}

/// Trains `functions` towards the top `k` eigenfunctions of `action`.
pub fn train(
    action: &mut dyn Action,
    functions: Functions,
    objective: &mut dyn Objective,
    k: usize,
    settings: &Settings,
    watch: Watch<'_>,
) -> Result<Trained> {
    settings.check()?;
    let device = functions.device();
    let room = Room::new(device, &functions)?;
    let trained = device.enter(|| Run::new(action, functions, objective, k, settings, watch)?.run());
    trained.map_err(|error| room.advise(error))
}

/// All that a run is made of; what of it changes from step to step is in its [`Mark`].
pub(super) struct Run<'a> {
    pub action: &'a mut dyn Action,
    pub functions: Functions,
    pub objective: &'a mut dyn Objective,
    pub settings: &'a Settings,
    pub optimizer: Optimizer,
    pub rng: Rng,
    /// Moving average of the objective's eigenvalues `[1, k]`.
    pub raw: MovingAverage,
    pub best: Option<Best>,
    pub patience: Patience,
    pub recoveries: usize,
    pub loss: Vec<[f64; 2]>,
    pub validations: Vec<[f64; 2]>,
    /// Seconds of the parts of the run before this one.
    pub seconds_before: f64,
    k: usize,
    watch: Watch<'a>,
    validation: Batch,
    mark: Mark,
    saved: Instant,
    started: Instant,
    first_step: u64,
    reported: Option<Instant>,
    batch: usize,
    stepper: Stepper,
    /// Steps that the device makes by itself, where it can.
    resident: Option<Resident>,
    pub notes: Vec<String>,
}

/// The best functions so far.
#[derive(Clone, Debug)]
pub(super) struct Best {
    pub step: u64,
    pub residual: f64,
    pub trained: Vec<f32>,
}

/// When to stop waiting for progress.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Patience {
    /// The step of the last validation.
    pub validated: Option<u64>,
    /// The last residual that was a hundredth below the one before it.
    pub anchor: f64,
    /// Validations since.
    pub since: usize,
}

impl<'a> Run<'a> {
    fn new(
        action: &'a mut dyn Action,
        functions: Functions,
        objective: &'a mut dyn Objective,
        k: usize,
        settings: &'a Settings,
        watch: Watch<'a>,
    ) -> Result<Run<'a>> {
        let seed = Rng::new(settings.seed);
        let device = functions.device();
        let validation = validation_sample(action, device, &seed, settings)?;
        let optimizer = Optimizer::new(
            device,
            settings.rule,
            settings.schedule(),
            settings.clip,
            functions.network().parameters(),
        )?;
        let mut run = Run {
            action,
            functions,
            objective,
            settings,
            optimizer,
            rng: seed.fork(2),
            raw: MovingAverage::new(0.99),
            best: None,
            patience: Patience { validated: None, anchor: f64::MAX, since: 0 },
            recoveries: 0,
            loss: vec![],
            validations: vec![],
            seconds_before: 0.0,
            k,
            watch,
            validation,
            mark: Mark::default(),
            saved: Instant::now(),
            started: Instant::now(),
            first_step: 0,
            reported: None,
            batch: settings.batch,
            stepper: Stepper::new(device)?,
            resident: None,
            notes: vec![],
        };
        run.resident = Resident::new(run.action, &run.functions, run.objective, settings.batch, settings.math)?;
        run.mark = Mark::of(&run)?;
        if let Some(path) = settings.checkpoint.as_deref().filter(|_| settings.resume) {
            run.resume(path)?;
        }
        // A place that cannot be written to shows now, not after half an hour.
        run.save()?;
        Ok(run)
    }

    fn resume(&mut self, path: &Path) -> Result<()> {
        if !path.exists() {
            self.note(format!("there is no checkpoint at {}; started from the beginning", path.display()));
            return Ok(());
        }
        let mark = Mark::read(path)?;
        mark.check_identity(self, path)?;
        mark.restore(self).map_err(|e| Error::file(path, e.to_string()))?;
        (self.mark, self.first_step) = (mark, self.optimizer.steps());
        Ok(())
    }

    fn run(mut self) -> Result<Trained> {
        let stop = match self.train() {
            Ok(stop) => stop,
            Err(error) => return Err(self.rescue(error)),
        };
        self.save()?;
        self.trained(stop)
    }

    /// The loop itself.
    fn train(&mut self) -> Result<Stop> {
        Ok(loop {
            let step = self.optimizer.steps();
            if self.watch.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                self.mark = Mark::of(self)?;
                break Stop::Interrupted;
            }
            let due = step.is_multiple_of(self.settings.interval()) || step >= self.settings.steps;
            if due && self.patience.validated != Some(step) {
                if let Err(error) = self.validate() {
                    self.recover(error)?;
                    continue;
                }
                self.mark = Mark::of(self)?;
            }
            if step >= self.settings.steps {
                break Stop::Budget;
            }
            if self.patience.since >= self.settings.patience {
                break Stop::Converged;
            }
            self.save_when_due()?;
            if let Err(error) = self.advance() {
                self.recover(error)?;
            }
        })
    }

    /// One step, or as many as the device makes in one go: up to the next validation.
    fn advance(&mut self) -> Result<()> {
        let step = self.optimizer.steps();
        let Some(resident) = &mut self.resident else {
            let outcome = self.step()?;
            self.remember(step, &outcome);
            return Ok(());
        };
        let interval = self.settings.interval();
        let most = (interval - step % interval).min(self.settings.steps - step);
        let (functions, optimizer) = (&mut self.functions, &mut self.optimizer);
        let steps = resident.steps(functions, self.objective, optimizer, &mut self.rng, most as usize)?;
        self.batch = resident.batch();
        for (step, outcome) in (step..).zip(&steps.outcomes) {
            self.remember(step, outcome);
        }
        steps.failure.map_or(Ok(()), Err)
    }

    /// What to say when a device fails: the last good state is in host memory, and goes where checkpoints go.
    fn rescue(&mut self, error: Error) -> Error {
        let failed = matches!(error, Error::Device(_) | Error::DeviceMemory { .. });
        let Some(path) = self.settings.checkpoint.clone().filter(|_| failed) else { return error };
        let kept = match self.mark.write(&path) {
            Ok(()) => format!("the last good state is in {}; training can resume from it", path.display()),
            Err(e) => format!("the last good state could not be written: {e}"),
        };
        match error {
            Error::DeviceMemory { device, what, needed, free, instead } => {
                Error::DeviceMemory { device, what, needed, free, instead: format!("{instead}; {kept}") }
            }
            Error::Device(what) => Error::Device(format!("{what}; {kept}")),
            other => other,
        }
    }

    fn step(&mut self) -> Result<Outcome> {
        let (outcome, batch) = self.stepper.step(
            self.action,
            &mut self.functions,
            self.objective,
            &mut self.optimizer,
            &mut self.rng,
            self.settings.batch,
        )?;
        self.batch = batch;
        Ok(outcome)
    }

    fn remember(&mut self, step: u64, outcome: &Outcome) {
        let μ = &outcome.eigenvalues;
        self.raw.update(&Array2::from_shape_fn((1, μ.len()), |(_, j)| μ[j]));
        if step.is_multiple_of(self.settings.steps.div_ceil(CURVE).max(1)) {
            self.loss.push([step as f64, outcome.loss]);
        }
        if self.reported.is_none_or(|at| at.elapsed() > Duration::from_millis(100)) {
            self.reported = Some(Instant::now());
            self.report(outcome.loss);
        }
    }

    fn report(&self, loss: f64) {
        let (done, total) = (self.optimizer.steps(), self.settings.steps);
        let rate = (done - self.first_step) as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let left = (total - done) as f64 / rate.max(1e-9);
        let mut note = format!("loss {loss:.5}, {rate:.0} steps/s, {left:.0} s left, μ");
        self.raw_eigenvalues().iter().take(5).for_each(|μ| note.push_str(&format!(" {μ:.4}")));
        if let Some([_, residual]) = self.validations.last() {
            note.push_str(&format!(", residual {residual:.1e}"));
        }
        self.watch.progress.step(self.objective.name(), done as usize, total as usize, &note);
    }

    /// Measures the span on the fixed sample, keeps the functions if they are the best so far.
    fn validate(&mut self) -> Result<()> {
        let step = self.optimizer.steps();
        let pairs = rayleigh_ritz(self.action, &mut self.functions, &self.validation, self.k)?;
        let residual = pairs.mean_residual(self.k, self.action.roundoff());
        self.validations.push([step as f64, residual]);
        if self.best.as_ref().is_none_or(|best| residual < best.residual) {
            let trained = self.functions.parameters().trained.to_host()?;
            self.best = Some(Best { step, residual, trained });
        }
        let Patience { anchor, since, .. } = self.patience;
        let falls = residual < 0.99 * anchor;
        self.patience = Patience {
            validated: Some(step),
            anchor: if falls { residual } else { anchor },
            since: if falls { 0 } else { since + 1 },
        };
        Ok(())
    }

    /// Back to the last good state at half the learning rate; the batches go on from where they are.
    fn recover(&mut self, cause: Error) -> Result<()> {
        let Error::Numerical(what) = cause else { return Err(cause) };
        let (step, recoveries, rng) = (self.optimizer.steps(), self.recoveries + 1, self.rng.clone());
        let seconds_before = self.seconds_before;
        let mark = std::mem::take(&mut self.mark);
        mark.restore(self)?;
        (self.mark, self.seconds_before) = (mark, seconds_before);
        if recoveries > MOST_RECOVERIES {
            self.save()?;
            let saved = self.settings.checkpoint.as_ref();
            let saved = saved.map(|path| format!("; the last good state is in {}", path.display())).unwrap_or_default();
            return Err(Error::Numerical(format!(
                "training by {} broke down at step {step}: {what}, after {MOST_RECOVERIES} recoveries at half the learning rate each; use a smaller learning rate{saved}",
                self.objective.name()
            )));
        }
        (self.recoveries, self.rng) = (recoveries, rng);
        let mut state = self.optimizer.state()?;
        state.schedule = halved(state.schedule);
        self.optimizer = Optimizer::from_state(self.functions.parameters().trained.device(), &state)?;
        self.note(format!("step {step}: {what}; went back to step {} at half the learning rate", state.step));
        self.mark = Mark::of(self)?;
        Ok(())
    }

    fn note(&mut self, note: String) {
        let (done, total) = (self.optimizer.steps() as usize, self.settings.steps as usize);
        self.watch.progress.step(self.objective.name(), done, total, &note);
        self.notes.push(note);
    }

    fn save_when_due(&mut self) -> Result<()> {
        if self.saved.elapsed().as_secs_f64() < self.settings.checkpoint_seconds {
            return Ok(());
        }
        self.save()
    }

    fn save(&mut self) -> Result<()> {
        if let Some(path) = &self.settings.checkpoint {
            self.mark.write(path)?;
        }
        self.saved = Instant::now();
        Ok(())
    }

    /// Seconds of all parts of the run.
    pub fn seconds(&self) -> f64 {
        self.seconds_before + self.started.elapsed().as_secs_f64()
    }

    /// What must agree between a checkpoint and the run that continues it.
    pub fn identity(&self) -> String {
        let Settings { steps, batch, rule, learning_rate, course, clip, seed, patience, validation_points, .. } =
            self.settings;
        let device = match self.functions.device() {
            Device::Cpu => String::new(),
            device => format!(", on {device} in {}", self.settings.math.name()),
        };
        format!(
            "{} for k = {} of {} by {} × \"{}\", steps {steps}, batch {batch}, {rule:?} at {learning_rate} ({course:?}), clip {clip:?}, patience {patience} over {validation_points} points, seed {seed}{device}",
            self.objective.describe(),
            self.k,
            self.action.identity(),
            self.functions.network().networks(),
            self.functions.network().expression(),
        )
    }

    fn raw_eigenvalues(&self) -> Vec<f64> {
        let raw = self.raw.value.iter().flatten();
        raw.map(|μ| self.action.eigenvalue(*μ)).take(self.k).collect()
    }

    fn trained(mut self, stop: Stop) -> Result<Trained> {
        let mut kept = self.optimizer.steps();
        if let Some(best) = self.best.as_ref().filter(|_| self.settings.keep_best) {
            self.functions.parameters_mut().trained.copy_from_host(&best.trained)?;
            kept = best.step;
        }
        if kept == 0 && self.optimizer.steps() > 0 {
            self.note("the untrained networks had the smallest residual and were kept: training did not help".into());
        }
        if self.batch < self.settings.batch {
            let (wanted, batch) = (self.settings.batch, self.batch);
            self.note(format!("a batch of {wanted} was asked for; there are {batch} points, and all were used"));
        }
        let network = self.functions.network();
        let record = Training {
            objective: self.objective.name().into(),
            architecture: network.expression(),
            parameters: network.parameters(),
            steps: self.optimizer.steps(),
            planned: self.settings.steps,
            kept,
            batch: self.batch,
            seconds: self.seconds(),
            stop,
            recoveries: self.recoveries,
            raw_eigenvalues: self.raw_eigenvalues(),
            finished: false,
            loss: self.loss,
            validation: self.validations,
            notes: self.notes,
        };
        Ok(Trained { functions: self.functions, record })
    }
}

fn halved(schedule: Schedule) -> Schedule {
    match schedule {
        Schedule::Constant { rate } => Schedule::Constant { rate: rate / 2.0 },
        Schedule::Cosine { rate, steps } => Schedule::Cosine { rate: rate / 2.0, steps },
        Schedule::WarmupCosine { rate, warmup, steps } => Schedule::WarmupCosine { rate: rate / 2.0, warmup, steps },
    }
}
