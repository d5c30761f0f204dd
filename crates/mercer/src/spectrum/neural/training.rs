//! Training of functions towards eigenfunctions.

use super::finish::own_pairs;
use super::memory_advice::MemoryAdvice;
use super::objective::{Objective, Own, State};
use super::{FunctionOperator, Functions, Pairs, Sample, Settings, Stepper, Stop, Training, rayleigh_ritz};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::net::{Optimizer, Schedule};
use crate::rng::Rng;
use crate::training::{
    Identity, Run, Saving, Task, load_optimizer, numbers, optional_matrix, put_numbers, put_optimizer,
    put_optional_matrix,
};
use crate::{FitContext, Group, Result, fail_if};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};

/// Functions after training. Example: [the module](super).
pub struct Trained {
    /// The functions.
    pub functions: Functions,
    /// How they came about; `finished` is false.
    pub record: Training,
}

/// Most entries of the loss curve.
const CURVE: u64 = 400;
/// Share of the old value that the moving average of the eigenvalues keeps at each step.
const DECAY: f64 = 0.99;

/// The fixed sample on which training is validated.
pub(super) fn validation_sample(
    operator: &dyn FunctionOperator,
    device: Device,
    seed: &Rng,
    settings: &Settings,
) -> Result<Sample> {
    operator.sample(device, &mut seed.fork(3), settings.validation_points)
}

/// Trains `functions` towards the top `k` eigenfunctions of `operator`, with the progress and the interrupt of the context.
/// Example: [the module](super).
pub fn train(
    operator: &dyn FunctionOperator,
    functions: Functions,
    objective: Box<dyn Objective>,
    k: usize,
    settings: &Settings,
    context: &FitContext<'_>,
) -> Result<Trained> {
    settings.check()?;
    fail_if!(
        !settings.finish && objective.own() == Own::Span,
        "{} trains a span and no functions of its own; end it with Rayleigh–Ritz",
        name_of(objective.as_ref())
    );
    let device = functions.device();
    let memory = MemoryAdvice::new(device, &functions)?;
    let work = || {
        let mut task = Eigenfunctions::new(operator, functions, objective, k, settings, context.group)?;
        let saving = Saving {
            path: settings.checkpoint.as_deref(),
            seconds: settings.checkpoint_seconds,
            resume: settings.resume,
            overwrite: settings.overwrite,
        };
        let mut run = Run::new(&mut task, saving, context)?;
        let stop = run.run(&mut task)?;
        task.trained(run, stop)
    };
    // Ranks that wait for each other keep out of the pool of threads, which they may share.
    let trained = if context.group.is_single() { device.enter(work) } else { work() };
    trained.map_err(|error| memory.advise(error))
}

/// The objective without its constants.
fn name_of(objective: &dyn Objective) -> String {
    objective.describe().split(' ').next().unwrap_or_default().into()
}

/// The pairs that the functions stand for: the best in their span, or they themselves where no Rayleigh–Ritz follows.
pub(crate) fn pairs_of(
    operator: &dyn FunctionOperator,
    functions: &mut Functions,
    sample: &Sample,
    k: usize,
    own: Option<Own>,
) -> Result<Pairs> {
    match own {
        None => rayleigh_ritz(operator, functions, sample, k),
        Some(own) => own_pairs(operator, functions, sample, own),
    }
}

/// All that training changes, and what it is measured on.
struct Eigenfunctions<'a> {
    operator: &'a dyn FunctionOperator,
    stepper: Stepper<'a>,
    settings: &'a Settings,
    k: usize,
    validation: Sample,
    /// Moving average of the objective's eigenvalues; `None` before the first step.
    raw: Option<Vec<f64>>,
    best: Option<Best>,
    patience: Patience,
    loss: Vec<[f64; 2]>,
    validations: Vec<[f64; 2]>,
    accuracy: Vec<[f64; 2]>,
    last_loss: f64,
    group: Group<'a>,
}

/// The best functions so far.
struct Best {
    step: u64,
    residual: f64,
    trained: Vec<f32>,
}

/// When to stop waiting for progress.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Patience {
    /// The step of the last validation.
    validated: Option<u64>,
    /// The last residual that was a hundredth below the one before it.
    anchor: f64,
    /// Validations since.
    since: usize,
}

impl<'a> Eigenfunctions<'a> {
    fn new(
        operator: &'a dyn FunctionOperator,
        functions: Functions,
        objective: Box<dyn Objective>,
        k: usize,
        settings: &'a Settings,
        group: Group<'a>,
    ) -> Result<Self> {
        let (seed, device) = (Rng::new(settings.seed), functions.device());
        let validation = validation_sample(operator, device, &seed, settings)?;
        let rates = Schedule::new(settings.schedule, settings.learning_rate, settings.steps);
        let optimizer = Optimizer::for_network(device, settings.rule, rates, settings.clip, functions.network())?;
        let rng = seed.fork(2);
        let mut stepper = Stepper::new(operator, functions, objective, optimizer, rng, settings.batch, settings.math)?;
        if !group.is_single() && settings.steps > 0 {
            stepper = stepper.among(group)?;
        }
        Ok(Eigenfunctions {
            operator,
            stepper,
            settings,
            k,
            validation,
            raw: None,
            best: None,
            patience: Patience { validated: None, anchor: f64::MAX, since: 0 },
            loss: vec![],
            validations: vec![],
            accuracy: vec![],
            last_loss: f64::NAN,
            group,
        })
    }

    fn done(&self) -> u64 {
        self.stepper.optimizer.steps()
    }

    /// The residual of rank 0, by which all decide.
    fn of_first(&self, residual: f64) -> Result<f64> {
        let mut sum = [if self.group.rank() == 0 { residual } else { 0.0 }];
        self.group.sum(&mut sum)?;
        Ok(sum[0])
    }

    fn remember(&mut self, step: u64, loss: f64, eigenvalues: &[f64]) {
        self.raw = Some(match self.raw.take() {
            Some(old) => old.iter().zip(eigenvalues).map(|(old, new)| old * DECAY + new * (1.0 - DECAY)).collect(),
            None => eigenvalues.to_vec(),
        });
        if step.is_multiple_of(self.settings.steps.div_ceil(CURVE).max(1)) {
            self.loss.push([step as f64, loss]);
        }
        self.last_loss = loss;
    }

    fn raw_eigenvalues(&self) -> Vec<f64> {
        self.raw.iter().flatten().map(|μ| self.operator.eigenvalue(*μ)).take(self.k).collect()
    }

    fn trained(mut self, mut run: Run<'_>, stop: Stop) -> Result<Trained> {
        let steps = self.done();
        let mut kept = steps;
        if let Some(best) = self.best.as_ref().filter(|_| self.settings.keep_best) {
            self.stepper.functions.parameters_mut().trained.copy_from_host(&best.trained)?;
            kept = best.step;
        }
        if kept == 0 && steps > 0 {
            let note = "the untrained networks had the smallest residual and were kept: training did not help";
            run.note(&self, note.into());
        }
        if let (false, [[_, first], .., [_, last]]) = (self.settings.keep_best, &self.validations[..])
            && last > first
        {
            let note = format!("training made the mean residual worse, {last:.2e} instead of {first:.2e}");
            run.note(&self, note);
        }
        if let Some(note) = self.stepper.note().map(str::to_owned) {
            run.note(&self, note);
        }
        let (wanted, batch) = (self.settings.batch, self.stepper.batch());
        if steps > 0 && batch < wanted {
            run.note(&self, format!("a batch of {wanted} was asked for; there are {batch} points, and all were used"));
        }
        let network = self.stepper.functions.network();
        let record = Training {
            objective: self.name(),
            architecture: network.expression(),
            parameters: network.parameters(),
            steps,
            planned: self.settings.steps,
            kept,
            batch: if steps > 0 { batch } else { wanted },
            seconds: run.seconds(),
            stop,
            recoveries: run.recoveries,
            raw_eigenvalues: self.raw_eigenvalues(),
            finished: false,
            loss: self.loss,
            validation: self.validations,
            accuracy: self.accuracy,
            notes: run.notes,
        };
        Ok(Trained { functions: self.stepper.functions, record })
    }
}

impl Task for Eigenfunctions<'_> {
    fn name(&self) -> String {
        name_of(self.stepper.objective.as_ref())
    }

    fn identity(&self) -> Identity {
        let Settings { steps, batch, rule, learning_rate, schedule, clip, seed, patience, validation_points, .. } =
            self.settings;
        let functions = &self.stepper.functions;
        let device = match functions.device() {
            Device::Cpu => "cpu".into(),
            device => format!("{device} in {:?}", self.settings.math).to_lowercase(),
        };
        let networks = format!("{} × \"{}\"", functions.network().networks(), functions.network().expression());
        [
            ("objective", self.stepper.objective.describe()),
            ("pairs", self.k.to_string()),
            ("operator", self.operator.identity()),
            ("networks", networks),
            ("steps", steps.to_string()),
            ("batch", batch.to_string()),
            ("optimizer", format!("{rule:?}")),
            ("learning rate", learning_rate.to_string()),
            ("schedule", format!("{schedule:?}")),
            ("clip", format!("{clip:?}")),
            ("patience", patience.to_string()),
            ("validation points", validation_points.to_string()),
            ("seed", seed.to_string()),
            ("Rayleigh–Ritz finish", self.settings.finish.to_string()),
            ("device", device),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn steps(&self) -> (u64, u64) {
        (self.done(), self.settings.steps)
    }

    fn advance(&mut self) -> Result<()> {
        let (step, interval) = (self.done(), self.settings.steps_between());
        let most = (interval - step % interval).min(self.settings.steps - step);
        let made = self.stepper.steps(most as usize)?;
        for (step, outcome) in (step..).zip(&made.outcomes) {
            self.remember(step, outcome.loss, &outcome.eigenvalues);
        }
        made.failure.map_or(Ok(()), Err)
    }

    fn due(&self) -> bool {
        let step = self.done();
        let due = step.is_multiple_of(self.settings.steps_between()) || step >= self.settings.steps;
        due && self.patience.validated != Some(step)
    }

    /// Measures the pairs on the fixed sample; keeps the functions if they are the best so far.
    fn validate(&mut self) -> Result<()> {
        self.stepper.check_same()?;
        let (step, Stepper { functions, objective, .. }) = (self.done(), &mut self.stepper);
        let own = (!self.settings.finish).then(|| objective.own());
        let pairs = pairs_of(self.operator, functions, &self.validation, self.k, own)?;
        let residual = self.of_first(self.operator.shortfall(&pairs, self.k))?;
        let functions = &mut self.stepper.functions;
        self.validations.push([step as f64, residual]);
        self.accuracy.extend(self.operator.watch(functions, &pairs)?.map(|share| [step as f64, share]));
        if self.best.as_ref().is_none_or(|best| residual < best.residual) {
            let trained = functions.parameters().trained.to_host()?;
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

    fn converged(&self) -> bool {
        self.patience.since >= self.settings.patience
    }

    /// What was drawn ahead is not in a checkpoint.
    fn saves_anywhere(&self) -> bool {
        false
    }

    fn report(&mut self, rate: f64, left: f64) -> Result<String> {
        let mut note = format!("loss {:.5}, {rate:.0} steps/s, {left:.0} s left, μ", self.last_loss);
        self.raw_eigenvalues().iter().take(5).for_each(|μ| note.push_str(&format!(" {μ:.4}")));
        if let Some([_, residual]) = self.validations.last() {
            note.push_str(&format!(", residual {residual:.1e}"));
        }
        if let Some([_, share]) = self.accuracy.last() {
            note.push_str(&format!(", accuracy of neighbours {:.1} %", 100.0 * share));
        }
        Ok(note)
    }

    fn save(&mut self, bundle: &mut Bundle) -> Result<()> {
        let Stepper { functions, optimizer, objective, rng, .. } = &mut self.stepper;
        put_numbers(bundle, "theta", &functions.parameters().trained.to_host()?);
        put_optimizer(bundle, optimizer)?;
        bundle.set("rng", &*rng);
        put_optional_matrix(bundle, "raw", self.raw.as_deref().map(row));
        for (name, state) in objective.state() {
            match state {
                State::Average(average) => put_optional_matrix(bundle, name, average.get()?),
                State::Tensor(tensor) => put_numbers(bundle, name, &tensor.to_host()?),
            }
        }
        bundle.set("best", self.best.as_ref().map(|best| (best.step, best.residual)));
        if let Some(best) = &self.best {
            put_numbers(bundle, "best.theta", &best.trained);
        }
        bundle.set("patience", self.patience);
        bundle.set("loss", &self.loss);
        bundle.set("validations", &self.validations);
        bundle.set("accuracy", &self.accuracy);
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        let Stepper { functions, optimizer, objective, rng, .. } = &mut self.stepper;
        functions.parameters_mut().trained.copy_from_host(&numbers(bundle, "theta")?)?;
        load_optimizer(bundle, optimizer)?;
        *rng = bundle.value("rng")?;
        self.raw = optional_matrix(bundle, "raw")?.map(|raw| raw.iter().copied().collect());
        for (name, state) in objective.state() {
            match state {
                State::Average(average) => average.set(optional_matrix(bundle, name)?.as_ref())?,
                State::Tensor(tensor) => tensor.copy_from_host(&numbers(bundle, name)?)?,
            }
        }
        self.best = match bundle.value("best")? {
            Some((step, residual)) => Some(Best { step, residual, trained: numbers(bundle, "best.theta")? }),
            None => None,
        };
        self.patience = bundle.value("patience")?;
        self.loss = bundle.value("loss")?;
        self.validations = bundle.value("validations")?;
        self.accuracy = bundle.value("accuracy")?;
        Ok(())
    }

    fn recovers(&self) -> bool {
        true
    }

    /// At half the learning rate; the batches go on from where they are.
    fn recover(&mut self, good: &Bundle) -> Result<bool> {
        let rng = self.stepper.rng.clone();
        self.load(good)?;
        self.stepper.rng = rng;
        self.stepper.optimizer.halve_rate();
        Ok(true)
    }
}

fn row(values: &[f64]) -> Array2<f64> {
    ArrayView2::from_shape((1, values.len()), values).expect("one row").to_owned()
}
