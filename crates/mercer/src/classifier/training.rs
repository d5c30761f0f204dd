//! The training loop of classifiers: epochs of shuffled batches, views of the images, scores, checkpoints.

use super::checkpoint::Mark;
use super::{Classifier, Labelled, Scores, on_device};
use crate::compute::{self, Math, Move, Rule, Tensor};
use crate::net::{Mode, Optimizer, Schedule, Workspace};
use crate::rng::Rng;
use crate::{Error, Result};
use crate::{Progress, Silent};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pixels by which a view of an image may be shifted.
const SHIFT: i32 = 4;

/// How far the running averages of batch norms move at each step.
const TRACKED: f32 = 0.1;

/// The budget and the means of training.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Times that every row is seen.
    pub epochs: u64,
    /// Rows of a batch; the last one of an epoch may be smaller.
    pub batch: usize,
    /// The optimiser.
    pub rule: Rule,
    /// The largest learning rate: reached after the first twentieth of the steps, then half a cosine down to zero.
    pub learning_rate: f64,
    /// Whether images are shifted by up to four pixels and mirrored at random, anew every time.
    pub augment: bool,
    /// Seed of the order of rows and of the views.
    pub seed: u64,
    /// Where checkpoints go.
    pub checkpoint: Option<PathBuf>,
    /// Seconds between checkpoints.
    pub checkpoint_seconds: f64,
    /// Whether a checkpoint that is there is continued; the result has the same bits as that of an uninterrupted run.
    pub resume: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            epochs: 10,
            batch: 128,
            rule: Rule::Sgd { momentum: 0.9, weight_decay: 5e-4 },
            learning_rate: 0.1,
            augment: false,
            seed: 0,
            checkpoint: None,
            checkpoint_seconds: 30.0,
            resume: false,
        }
    }
}

/// Those who look on while training runs.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told of progress within epochs.
    pub progress: &'a dyn Progress,
    /// Told of every epoch that has ended.
    pub epoch: &'a (dyn Fn(&Epoch) + Sync),
    /// Set from outside (by Ctrl-C, say) to end training after the current step with what there is.
    pub interrupt: Option<&'a AtomicBool>,
}

impl Default for Watch<'_> {
    fn default() -> Self {
        Watch { progress: &Silent, epoch: &|_| (), interrupt: None }
    }
}

/// What an epoch gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Counted from 1.
    pub epoch: u64,
    /// Mean loss over the epoch, on the views that were seen and with batch statistics.
    pub loss: f64,
    /// Share of these that were classified rightly.
    pub accuracy: f64,
    /// Scores on the test rows at its end.
    pub test: Option<Scores>,
    /// Seconds that its steps took, without the scores.
    pub seconds: f64,
}

/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// All epochs are done.
    Done,
    /// From outside; a checkpoint, where one was asked for, holds the state.
    Interrupted,
}

/// A classifier after training.
#[derive(Debug)]
pub struct Trained {
    /// The classifier.
    pub classifier: Classifier,
    /// All epochs, in order.
    pub history: Vec<Epoch>,
    /// Why it ended.
    pub stop: Stop,
    /// Steps done.
    pub steps: u64,
}

/// Trains `classifier` on the rows of `data` by softmax cross-entropy; scores it on `test` after every epoch.
pub fn train(
    classifier: Classifier,
    data: &Labelled,
    test: Option<&Labelled>,
    settings: &Settings,
    watch: Watch<'_>,
) -> Result<Trained> {
    check(&classifier, data, settings)?;
    let device = classifier.parameters.trained.device();
    device.enter(|| Run::new(classifier, data, test, settings, watch)?.run())
}

fn check(classifier: &Classifier, data: &Labelled, settings: &Settings) -> Result<()> {
    classifier.check_columns(data.d())?;
    if settings.batch == 0 {
        return Err(Error::input("the batch must hold at least one row"));
    }
    if !(settings.learning_rate > 0.0 && settings.learning_rate.is_finite()) {
        return Err(Error::input(format!("the learning rate must be above 0, got {}", settings.learning_rate)));
    }
    if settings.augment && classifier.network.image().is_none() {
        return Err(Error::input("rows that are no images cannot be shifted or mirrored; train without augmentation"));
    }
    Ok(())
}

/// All that a run is made of; what of it changes from step to step is in its [`Mark`].
pub(super) struct Run<'a> {
    pub classifier: Classifier,
    pub optimizer: Optimizer,
    /// `[2]`: summed loss and right answers of the epoch so far.
    pub totals: Tensor,
    pub history: Vec<Epoch>,
    /// Seconds of the epoch so far in the parts of the run before this one.
    pub seconds_before: f64,
    settings: &'a Settings,
    watch: Watch<'a>,
    test: Option<&'a Labelled>,
    /// `[n, d]`
    x: Tensor,
    /// `[n, 1]`
    labels: Tensor,
    order: Vec<usize>,
    workspace: Workspace,
    batch: Batch,
    started: Instant,
    first_step: u64,
    reported: Instant,
    saved: Instant,
}

/// Buffers of one step.
struct Batch {
    x: Tensor,
    view: Tensor,
    labels: Tensor,
    g: Tensor,
    gradient: Tensor,
}

impl<'a> Run<'a> {
    fn new(
        classifier: Classifier,
        data: &Labelled,
        test: Option<&'a Labelled>,
        settings: &'a Settings,
        watch: Watch<'a>,
    ) -> Result<Run<'a>> {
        let device = classifier.parameters.trained.device();
        let steps = settings.epochs * data.n().div_ceil(settings.batch) as u64;
        let schedule =
            Schedule::WarmupCosine { rate: settings.learning_rate, warmup: steps.div_ceil(20).max(1), steps };
        let parameters = classifier.network.parameters();
        let labels: Vec<f32> = data.labels_for(&classifier.classes)?.iter().map(|&l| l as f32).collect();
        let empty = || Tensor::zeros(device, &[0]);
        let now = Instant::now();
        let mut run = Run {
            optimizer: Optimizer::new(device, settings.rule, schedule, None, parameters)?,
            totals: Tensor::zeros(device, &[2])?,
            history: Vec::new(),
            seconds_before: 0.0,
            x: on_device(&classifier.standard, data.x.view(), device)?,
            labels: Tensor::from_host(device, &[labels.len(), 1], &labels)?,
            order: Vec::new(),
            workspace: classifier.network.workspace(device)?,
            batch: Batch { x: empty()?, view: empty()?, labels: empty()?, g: empty()?, gradient: empty()? },
            classifier,
            settings,
            watch,
            test,
            started: now,
            first_step: 0,
            reported: now,
            saved: now,
        };
        if let Some(path) = settings.checkpoint.as_ref().filter(|path| settings.resume && path.exists()) {
            Mark::read(path)?.restore(&mut run, path)?;
        }
        run.first_step = run.optimizer.steps();
        Ok(run)
    }

    fn rows(&self) -> usize {
        self.x.shape()[0]
    }

    fn steps_of_epoch(&self) -> u64 {
        self.rows().div_ceil(self.settings.batch) as u64
    }

    fn run(mut self) -> Result<Trained> {
        let (device, per_epoch) = (self.x.device(), self.steps_of_epoch());
        let total = self.settings.epochs * per_epoch;
        let mut stop = Stop::Done;
        while self.optimizer.steps() < total {
            if self.watch.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                stop = Stop::Interrupted;
                break;
            }
            // Scores are taken without it: what is reported is the network that a user has.
            device.with_math(Math::Tf32, || self.step())?;
            if self.optimizer.steps().is_multiple_of(per_epoch) {
                self.end_epoch()?;
            } else if self.reported.elapsed() > Duration::from_millis(200) {
                self.report()?;
            }
            if self.saved.elapsed().as_secs_f64() > self.settings.checkpoint_seconds {
                self.save()?;
            }
        }
        self.save()?;
        let steps = self.optimizer.steps();
        Ok(Trained { classifier: self.classifier, history: self.history, stop, steps })
    }

    /// Gathers the next batch and moves the parameters along its gradient. All that is random follows from the seed and
    /// the number of the step, so that nothing of it needs to be kept.
    fn step(&mut self) -> Result<()> {
        let step = self.optimizer.steps();
        let (epoch, i) = (step / self.steps_of_epoch(), (step % self.steps_of_epoch()) as usize);
        let seed = Rng::new(self.settings.seed);
        if i == 0 || self.order.is_empty() {
            self.order = (0..self.rows()).collect();
            seed.fork(2).fork(epoch).shuffle(&mut self.order);
        }
        let rows = &self.order[i * self.settings.batch..((i + 1) * self.settings.batch).min(self.order.len())];
        let Batch { x, view, labels, g, gradient } = &mut self.batch;
        compute::gather_rows(&self.x, rows, x)?;
        compute::gather_rows(&self.labels, rows, labels)?;
        let network = &self.classifier.network;
        if let Some(image) = network.image().filter(|_| self.settings.augment) {
            let mut rng = seed.fork(3).fork(step);
            let moves: Vec<Move> = rows.iter().map(|_| random_move(&mut rng)).collect();
            compute::shift_mirror(x, image, &moves, view)?;
            std::mem::swap(x, view);
        }
        let theta = &mut self.classifier.parameters;
        let logits = network.forward(theta, x, Mode::Train, &mut self.workspace)?;
        g.reshape(logits.shape())?;
        compute::softmax_cross_entropy(logits, labels, Some(g), &mut self.totals);
        network.vjp(theta, x, &mut self.workspace, g, gradient, None)?;
        network.track(theta, &self.workspace, TRACKED);
        self.optimizer.step(&mut theta.trained, gradient);
        Ok(())
    }

    /// Mean loss and share of right answers in the epoch so far, which must be finite.
    fn means(&self) -> Result<(f64, f64)> {
        let step = self.optimizer.steps();
        let done = (step - 1) % self.steps_of_epoch() + 1;
        let rows = (done as usize * self.settings.batch).min(self.rows()) as f64;
        let totals = self.totals.to_host()?;
        let [loss, right] = [0, 1].map(|i| f64::from(totals[i]) / rows);
        if loss.is_finite() && compute::all_finite(&self.classifier.parameters.trained) {
            return Ok((loss, right));
        }
        let saved = self.settings.checkpoint.as_ref();
        let saved = saved.map(|path| format!("; {} holds a state from before, if it was written", path.display()));
        Err(Error::Numerical(format!(
            "training diverged in epoch {}: the loss is {loss}; use a smaller learning rate than {}{}",
            (step - 1) / self.steps_of_epoch() + 1,
            self.settings.learning_rate,
            saved.unwrap_or_default()
        )))
    }

    fn end_epoch(&mut self) -> Result<()> {
        let (loss, accuracy) = self.means()?;
        let seconds = self.seconds();
        let test = self.test.map(|test| self.classifier.score(test)).transpose()?;
        let epoch = self.optimizer.steps() / self.steps_of_epoch();
        self.history.push(Epoch { epoch, loss, accuracy, test, seconds });
        (self.watch.epoch)(&self.history[self.history.len() - 1]);
        compute::fill(&mut self.totals, 0.0);
        (self.started, self.first_step, self.seconds_before) = (Instant::now(), self.optimizer.steps(), 0.0);
        Ok(())
    }

    fn report(&mut self) -> Result<()> {
        self.reported = Instant::now();
        let (loss, _) = self.means()?;
        let (done, total) = (self.optimizer.steps(), self.settings.epochs * self.steps_of_epoch());
        let rate = (done - self.first_step) as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let (images, left) = (rate * self.settings.batch as f64, (total - done) as f64 / rate.max(1e-9));
        let epoch = done / self.steps_of_epoch() + 1;
        let note = format!("epoch {epoch}, loss {loss:.4}, {images:.0} rows/s, {left:.0} s left");
        self.watch.progress.step("train", done as usize, total as usize, &note);
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        if let Some(path) = &self.settings.checkpoint {
            if !self.optimizer.steps().is_multiple_of(self.steps_of_epoch()) {
                self.means()?;
            }
            Mark::of(self)?.write(path)?;
        }
        self.saved = Instant::now();
        Ok(())
    }

    /// Seconds of the epoch so far.
    pub fn seconds(&self) -> f64 {
        self.seconds_before + self.started.elapsed().as_secs_f64()
    }

    /// What must agree between a checkpoint and the run that continues it.
    pub fn identity(&self) -> String {
        let Settings { epochs, batch, rule, learning_rate, augment, seed, .. } = self.settings;
        let (network, standard) = (&self.classifier.network, &self.classifier.standard);
        format!(
            "\"{}\" on {} rows of mean {:?}, {epochs} epochs of batches of {batch}, {rule:?} at {learning_rate}, augmented: {augment}, seed {seed}",
            network.expression(),
            self.rows(),
            standard.mean,
        )
    }
}

fn random_move(rng: &mut Rng) -> Move {
    let mut shift = || rng.below(2 * SHIFT as usize + 1) as i32 - SHIFT;
    let (up, left) = (shift(), shift());
    Move { up, left, mirror: rng.sign() > 0.0 }
}
