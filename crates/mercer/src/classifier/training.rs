//! Training of classifiers: epochs of shuffled batches, views of the images, scores.

use super::snapshots::Plan;
use super::{Classifier, Number, Quality, Snapshots, linearised};
use crate::bundle::Bundle;
use crate::compute::ledger::ran;
use crate::compute::{self, Math, Move, Rule, Tensor};
use crate::data::{Dataset, Target};
use crate::net::{LayerSpec, Mode, Optimizer, Schedule, ScheduleKind, Workspace};
use crate::rng::Rng;
use crate::training::{
    Fingerprint, Identity, Run, Saving, Stop, Task, load_optimizer, numbers, put_numbers, put_optimizer,
};
use crate::{Error, FitContext, Result, fail_if};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;

/// Pixels by which a view of an image may be shifted.
const SHIFT: i32 = 4;

/// Rows that are in double precision at a time.
const FEW: usize = 256;

/// How far the running averages of batch norms move at each step.
const TRACKED: f32 = 0.1;

/// Settings of training. Example: [the module](crate::classifier).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Times that every row is seen.
    pub epochs: u64,
    /// Rows of a batch; the last one of an epoch may be smaller.
    pub batch: usize,
    /// The optimizer.
    pub rule: Rule,
    /// The largest learning rate: reached after the first twentieth of the steps, then half a cosine down to zero.
    pub learning_rate: f64,
    /// Whether images are shifted by up to four pixels and mirrored at random, anew every time.
    pub augment: bool,
    /// Networks to keep along the last part of training, where some are wanted.
    pub snapshots: Option<Snapshots>,
    /// Seed of the order of rows and of the views.
    pub seed: u64,
    /// Where checkpoints go.
    pub checkpoint: Option<PathBuf>,
    /// Seconds between checkpoints.
    pub checkpoint_seconds: f64,
    /// Whether a checkpoint that is there is continued; the result has the same bits as that of an uninterrupted run.
    pub resume: bool,
    /// Whether a checkpoint that is there and not continued may be replaced; otherwise it is an error.
    pub overwrite: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            epochs: 10,
            batch: 128,
            rule: Rule::Sgd { momentum: 0.9, weight_decay: 5e-4 },
            learning_rate: 0.1,
            augment: false,
            snapshots: None,
            seed: 0,
            checkpoint: None,
            checkpoint_seconds: 30.0,
            resume: false,
            overwrite: false,
        }
    }
}

/// What an epoch gave. Example: [the module](crate::classifier).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Counted from 1.
    pub epoch: u64,
    /// Mean loss over the epoch, on the views that were seen and with batch statistics: cross-entropy, or the squared error of
    /// numbers in units of their variance.
    pub loss: f64,
    /// Share of these that were classified rightly; none of numbers.
    pub accuracy: Option<f64>,
    /// How well the network does on the test rows at its end.
    pub test: Option<Quality>,
    /// Seconds that its steps took, without the scores.
    pub seconds: f64,
}

/// A classifier after training. Example: [the module](crate::classifier).
#[derive(Debug)]
pub struct Trained {
    /// The classifier.
    pub classifier: Classifier,
    /// All epochs, in order.
    pub history: Vec<Epoch>,
    /// Why it ended. When it was interrupted, a checkpoint, where one was asked for, holds the state.
    pub stop: Stop,
    /// Steps done.
    pub steps: u64,
}

/// Trains `classifier` on the rows of `data` by softmax cross-entropy, or by the squared error of a number, where its parameters are; scores it on `test` after every
/// epoch and calls `ended` with the result. The context's progress updates and interrupt are used.
/// Example: [the module](crate::classifier).
pub fn train(
    classifier: Classifier,
    data: &Dataset,
    test: Option<&Dataset>,
    settings: &Settings,
    context: &FitContext<'_>,
    ended: &(dyn Fn(&Epoch) + Sync),
) -> Result<Trained> {
    check(&classifier, data, settings)?;
    // The numbers, their gradient, the optimizer's two moments and a checkpoint, which is in double precision.
    context.budget.require_network(&classifier.network, 12, settings.batch.min(data.n()))?;
    let device = classifier.parameters.trained.device();
    device.enter(|| {
        let mut task = Epochs::new(classifier, data, test, settings, ended)?;
        settings.snapshots.as_ref().map_or(Ok(()), |snapshots| snapshots.prepare(settings.resume))?;
        let saving = Saving {
            path: settings.checkpoint.as_deref(),
            seconds: settings.checkpoint_seconds,
            resume: settings.resume,
            overwrite: settings.overwrite,
        };
        let stop = Run::new(&mut task, saving, context)?.run(&mut task)?;
        let steps = task.optimizer.steps();
        Ok(Trained { classifier: task.classifier, history: task.history, stop, steps })
    })
}

fn check(classifier: &Classifier, data: &Dataset, settings: &Settings) -> Result<()> {
    classifier.check_columns(data.d())?;
    let (numbers, rows) = (classifier.number.is_some(), matches!(data.target()?, Target::Values(_)));
    fail_if!(numbers != rows, "the network predicts a number and the rows have classes, or the other way round");
    fail_if!(
        classifier.network.description().any(|layer| matches!(layer, LayerSpec::Dropout(_))),
        "dropout is for networks that are evaluated: Mercer does not train with it; leave it out"
    );
    fail_if!(settings.batch == 0, "the batch must hold at least one row");
    fail_if!(
        steps(settings, data.n()).is_none(),
        "{} epochs of {} rows are more steps than can be counted; ask for fewer epochs",
        settings.epochs,
        data.n()
    );
    fail_if!(
        !(settings.learning_rate > 0.0 && settings.learning_rate.is_finite()),
        "the learning rate must be above 0, got {}",
        settings.learning_rate
    );
    fail_if!(
        settings.augment && classifier.network.description().image.is_none(),
        "rows that are no images cannot be shifted or mirrored; train without augmentation"
    );
    Ok(())
}

/// Steps of an epoch over `n` rows, and steps in all, where they can be counted.
fn steps(settings: &Settings, n: usize) -> Option<(u64, u64)> {
    let of_epoch = n.div_ceil(settings.batch) as u64;
    Some((of_epoch, of_epoch.checked_mul(settings.epochs)?))
}

/// All that training changes, and what it sees.
struct Epochs<'a> {
    classifier: Classifier,
    optimizer: Optimizer,
    /// `[2]`: summed loss and right answers of the epoch so far; `[1]` of numbers, which have no answers.
    totals: Tensor,
    history: Vec<Epoch>,
    /// Seconds of the epoch so far in the parts of the run before this one.
    seconds_before: f64,
    started: Instant,
    settings: &'a Settings,
    ended: &'a (dyn Fn(&Epoch) + Sync),
    test: Option<&'a Dataset>,
    steps_of_epoch: u64,
    /// When networks are kept.
    plan: Option<Plan>,
    /// Of the rows and their classes.
    fingerprint: Fingerprint,
    /// `[n, d]`
    x: Tensor,
    /// `[n, 1]`: classes, or numbers as the network puts them out.
    labels: Tensor,
    order: Vec<usize>,
    workspace: Workspace,
    batch: Batch,
}

/// Buffers of one step.
struct Batch {
    x: Tensor,
    view: Tensor,
    labels: Tensor,
    /// Of a linearised network.
    outputs: Tensor,
    g: Tensor,
    gradient: Tensor,
    /// `[1]`: the loss of numbers.
    loss: Tensor,
}

impl<'a> Epochs<'a> {
    fn new(
        classifier: Classifier,
        data: &Dataset,
        test: Option<&'a Dataset>,
        settings: &'a Settings,
        ended: &'a (dyn Fn(&Epoch) + Sync),
    ) -> Result<Epochs<'a>> {
        let device = classifier.parameters.trained.device();
        let (steps_of_epoch, steps) = steps(settings, data.n()).expect("checked");
        let plan = settings.snapshots.as_ref().map(|kept| kept.plan(steps, settings.learning_rate)).transpose()?;
        let schedule = Schedule::new(ScheduleKind::WarmupCosine, settings.learning_rate, steps);
        let schedule = plan.map_or(schedule, |plan| schedule.with_tail(plan.from, plan.rate));
        let y = data.target()?;
        let labels: Vec<f32> = match classifier.number {
            Some(Number { mean, spread }) => y.numbers()?.iter().map(|y| ((y - mean) / spread) as f32).collect(),
            None => y.labels_for(&classifier.classes)?.iter().map(|&l| l as f32).collect(),
        };
        let totals = if classifier.number.is_some() { 1 } else { 2 };
        let x = data.x.rows();
        let values = x.chunks(FEW).flat_map(|few| few.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        let bits = values.chain(labels.iter().map(|l| u64::from(l.to_bits())));
        let empty = || Tensor::zeros(device, &[0]);
        Ok(Epochs {
            optimizer: Optimizer::for_network(device, settings.rule, schedule, None, &classifier.network)?,
            totals: Tensor::zeros(device, &[totals])?,
            history: Vec::new(),
            seconds_before: 0.0,
            started: Instant::now(),
            x: classifier.standardizer.apply(x, device)?,
            labels: Tensor::from_host(device, &[labels.len(), 1], &labels)?,
            order: Vec::new(),
            workspace: classifier.network.workspace(device)?,
            batch: Batch {
                x: empty()?,
                view: empty()?,
                labels: empty()?,
                outputs: empty()?,
                g: empty()?,
                gradient: empty()?,
                loss: Tensor::zeros(device, &[1])?,
            },
            classifier,
            settings,
            ended,
            test,
            steps_of_epoch,
            plan,
            fingerprint: Fingerprint::of(bits),
        })
    }

    fn rows(&self) -> usize {
        self.x.shape()[0]
    }

    /// Gathers the next batch and moves the parameters along its gradient. All that is random follows from the seed and
    /// the number of the step, so that nothing of it needs to be kept.
    fn step(&mut self) -> Result<()> {
        ran("training steps", self.x.device(), 1);
        let step = self.optimizer.steps();
        let (epoch, i) = (step / self.steps_of_epoch, (step % self.steps_of_epoch) as usize);
        let seed = Rng::new(self.settings.seed);
        if i == 0 || self.order.is_empty() {
            self.order = (0..self.rows()).collect();
            seed.fork(2).fork(epoch).shuffle(&mut self.order);
        }
        let rows = &self.order[i * self.settings.batch..((i + 1) * self.settings.batch).min(self.order.len())];
        let Batch { x, view, labels, outputs, g, gradient, loss } = &mut self.batch;
        compute::gather_rows(&self.x, rows, x)?;
        compute::gather_rows(&self.labels, rows, labels)?;
        let network = &self.classifier.network;
        if let Some(image) = network.description().image.filter(|_| self.settings.augment) {
            let mut rng = seed.fork(3).fork(step);
            let random_move = |_| {
                let mut shift = || rng.below(2 * SHIFT as usize + 1) as i32 - SHIFT;
                let (up, left) = (shift(), shift());
                Move { up, left, mirror: rng.sign() > 0.0 }
            };
            let moves: Vec<Move> = rows.iter().map(random_move).collect();
            compute::shift_mirror(x, image, &moves, view)?;
            std::mem::swap(x, view);
        }
        let theta = &mut self.classifier.parameters;
        let logits = match &self.classifier.displacement {
            None => network.forward(theta, x, Mode::Train, &mut self.workspace)?,
            Some(displacement) => {
                linearised::outputs(network, theta, displacement, x, &mut self.workspace, outputs)?;
                &*outputs
            }
        };
        g.reshape(logits.shape())?;
        if self.classifier.number.is_some() {
            squared_error(logits, labels, g, loss, &mut self.totals);
        } else {
            compute::softmax_cross_entropy(logits, labels, Some(g), &mut self.totals);
        }
        network.vjp(theta, x, &mut self.workspace, g, gradient, None)?;
        network.track(theta, &self.workspace, TRACKED);
        self.optimizer.step(moving(&mut self.classifier), gradient);
        Ok(())
    }

    /// Mean loss and share of right answers in the epoch so far, which must be finite.
    fn means(&self) -> Result<(f64, Option<f64>)> {
        let step = self.optimizer.steps();
        let done = (step - 1) % self.steps_of_epoch + 1;
        let rows = (done as usize * self.settings.batch).min(self.rows()) as f64;
        let totals = self.totals.to_host()?;
        let (loss, right) = (f64::from(totals[0]) / rows, totals.get(1).map(|right| f64::from(*right) / rows));
        let Classifier { parameters, displacement, .. } = &self.classifier;
        if loss.is_finite() && compute::all_finite(displacement.as_ref().unwrap_or(&parameters.trained)) {
            return Ok((loss, right));
        }
        let saved = self.settings.checkpoint.as_ref();
        let saved = saved.map(|path| format!("; {} holds a state from before, if it was written", path.display()));
        Err(Error::Numerical(format!(
            "training diverged in epoch {}: the loss is {loss}; use a smaller learning rate than {}{}",
            (step - 1) / self.steps_of_epoch + 1,
            self.settings.learning_rate,
            saved.unwrap_or_default()
        )))
    }

    /// Seconds of the epoch so far.
    fn seconds(&self) -> f64 {
        self.seconds_before + self.started.elapsed().as_secs_f64()
    }

    fn within_epoch(&self) -> bool {
        !self.optimizer.steps().is_multiple_of(self.steps_of_epoch)
    }
}

/// What training moves: the weights, or the displacement of a linearised network's.
fn moving(classifier: &mut Classifier) -> &mut Tensor {
    classifier.displacement.as_mut().unwrap_or(&mut classifier.parameters.trained)
}

/// The loss `mean (y − t)²` of outputs `y` `[1, b, 1]` for `t` `[b, 1]`: its gradient `2 (y − t)/b` into `g`, and `Σ (y − t)²`, by
/// way of `sum` `[1]`, added to `total` `[1]`.
fn squared_error(y: &Tensor, t: &Tensor, g: &mut Tensor, sum: &mut Tensor, total: &mut Tensor) {
    compute::copy(y, g);
    compute::axpy(-1.0, t, g);
    compute::sum_squares(g, sum);
    compute::axpy(1.0, sum, total);
    compute::scale(2.0 / t.len() as f32, g);
}

impl Task for Epochs<'_> {
    fn name(&self) -> String {
        "train".into()
    }

    fn identity(&self) -> Identity {
        let Settings { epochs, batch, rule, learning_rate, augment, seed, .. } = self.settings;
        let kept = self.plan.map(|plan| ("snapshots".to_owned(), format!("{plan:?}")));
        [
            ("network", format!("\"{}\"", self.classifier.network.expression())),
            ("linearisation", self.classifier.displacement.is_some().to_string()),
            ("rows", self.rows().to_string()),
            ("data", self.fingerprint.to_string()),
            ("epochs", epochs.to_string()),
            ("batch", batch.to_string()),
            ("optimizer", format!("{rule:?}")),
            ("learning rate", learning_rate.to_string()),
            ("augmentation", augment.to_string()),
            ("seed", seed.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .chain(kept)
        .collect()
    }

    fn steps(&self) -> (u64, u64) {
        (self.optimizer.steps(), self.settings.epochs * self.steps_of_epoch)
    }

    /// Scores are taken in f32: what is reported is the network that a user has.
    fn advance(&mut self) -> Result<()> {
        self.x.device().with_math(Math::Tf32, || self.step())?;
        let done = self.optimizer.steps();
        match (&self.settings.snapshots, self.plan) {
            (Some(kept), Some(plan)) if plan.due(done) => kept.write(&self.classifier, done),
            _ => Ok(()),
        }
    }

    fn due(&self) -> bool {
        !self.within_epoch() && self.history.len() as u64 != self.optimizer.steps() / self.steps_of_epoch
    }

    /// Ends an epoch.
    fn validate(&mut self) -> Result<()> {
        let (loss, accuracy) = self.means()?;
        let seconds = self.seconds();
        let test = self.test.map(|test| self.classifier.score(test)).transpose()?;
        let epoch = self.optimizer.steps() / self.steps_of_epoch;
        self.history.push(Epoch { epoch, loss, accuracy, test, seconds });
        (self.ended)(&self.history[self.history.len() - 1]);
        compute::fill(&mut self.totals, 0.0);
        (self.started, self.seconds_before) = (Instant::now(), 0.0);
        Ok(())
    }

    fn report(&mut self, rate: f64, left: f64) -> Result<String> {
        let (loss, _) = self.means()?;
        let (rows, epoch) = (rate * self.settings.batch as f64, (self.optimizer.steps() - 1) / self.steps_of_epoch + 1);
        Ok(format!("epoch {epoch}, loss {loss:.4}, {rows:.0} rows/s, {left:.0} s left"))
    }

    fn save(&mut self, bundle: &mut Bundle) -> Result<()> {
        if self.within_epoch() {
            self.means()?;
        }
        put_numbers(bundle, "theta", &moving(&mut self.classifier).to_host()?);
        put_numbers(bundle, "constants", &self.classifier.parameters.constants.to_host()?);
        put_numbers(bundle, "totals", &self.totals.to_host()?);
        put_optimizer(bundle, &self.optimizer)?;
        bundle.set("history", &self.history);
        bundle.set("epoch.seconds", self.seconds());
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        moving(&mut self.classifier).copy_from_host(&numbers(bundle, "theta")?)?;
        self.classifier.parameters.constants.copy_from_host(&numbers(bundle, "constants")?)?;
        self.totals.copy_from_host(&numbers(bundle, "totals")?)?;
        load_optimizer(bundle, &mut self.optimizer)?;
        self.history = bundle.value("history")?;
        self.seconds_before = bundle.value("epoch.seconds")?;
        Ok(())
    }
}
