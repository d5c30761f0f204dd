//! Options of the methods that train networks.

use crate::keeping::Keeping;
use crate::methods::{Entry, choice, positive};
use clap::Args;
use mercer::compute::{Math, Rule};
use mercer::net::ScheduleKind;
use mercer::spectrum::Method;
use mercer::spectrum::neural::{Kind, Nested, Nesting, Neural, NeuralEf, Spin, Stop, Training};

/// Options of the methods that train networks.
#[derive(Args, Default)]
#[command(next_help_heading = "Options of methods that train networks")]
pub struct TrainingOptions {
    /// Training steps; 0 leaves the networks as they were drawn [default: 2000, ritz 200]
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,

    /// Points of a batch [default: 256]
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,

    /// Largest learning rate [default: 1e-3]
    #[arg(long, alias = "lr", value_name = "RATE", value_parser = positive, allow_negative_numbers = true)]
    pub rate: Option<f64>,

    /// How the learning rate changes over the steps [default: cosine]
    #[arg(long, value_parser = choice(&ScheduleKind::NAMED))]
    pub schedule: Option<ScheduleKind>,

    /// Optimizer [default: adam]
    #[arg(long, alias = "optimizer", value_parser = choice(&Rule::NAMED))]
    pub optimiser: Option<Rule>,

    /// The networks, such as "dense(64) relu dense(64) relu dense(1)"; a | ends a trunk that all share
    #[arg(long, value_name = "LAYERS")]
    pub net: Option<String>,

    /// Take the objective's own functions in its own order, each with its Rayleigh quotient, without a final Rayleigh–Ritz
    #[arg(long)]
    pub no_finish: bool,

    #[command(flatten)]
    pub keeping: Keeping,

    /// neuralef, spin: the objective as published, which is less accurate where the first eigenvalue dominates. neuralef
    /// keeps functions apart one by one, not together; spin has moving averages, which take k + 1 backward passes a step
    /// instead of one, and k numbers for each parameter
    #[arg(long)]
    pub published: bool,

    /// nested: how the problems of rank 1 to k are nested [default: joint with a shared trunk, else sequential]
    #[arg(long, value_parser = choice(&[("sequential", Nesting::Sequential), ("joint", Nesting::Joint)]))]
    pub nesting: Option<Nesting>,

    /// How a GPU rounds the factors of the networks' products, where --precision says so.
    #[arg(skip)]
    pub math: Option<Math>,
}

/// The options that every training method takes.
const COMMON: [&str; 10] =
    ["steps", "batch", "rate", "schedule", "optimiser", "net", "checkpoint", "checkpoint-every", "resume", "overwrite"];

/// The method that trains by `kind`.
pub fn entry(kind: Kind) -> Entry {
    let own: &[&str] = match kind {
        Kind::NeuralEf(_) | Kind::Spin(_) => &["no-finish", "published"],
        Kind::Nested(_) => &["no-finish", "nesting"],
        Kind::Omm(_) => &["no-finish"],
        Kind::Ritz(_) => &[],
    };
    let (name, help, options) = (kind.name(), kind.about(), [&COMMON[..], own].concat());
    Entry { name, help, options, make: Box::new(move |options, _, _| make(kind, &options.training)) }
}

/// The method that trains by `kind`, as the options want it.
fn make(kind: Kind, o: &TrainingOptions) -> Box<dyn Method> {
    let kind = match kind {
        Kind::NeuralEf(_) if o.published => NeuralEf::Published.into(),
        Kind::Spin(_) if o.published => Spin::PUBLISHED.into(),
        Kind::Nested(_) => Nested { nesting: o.nesting }.into(),
        other => other,
    };
    let mut method = Neural::new(kind);
    let settings = &mut method.settings;
    settings.steps = o.steps.unwrap_or(settings.steps);
    settings.batch = o.batch.unwrap_or(settings.batch);
    settings.learning_rate = o.rate.unwrap_or(settings.learning_rate);
    settings.schedule = o.schedule.unwrap_or(settings.schedule);
    settings.rule = o.optimiser.unwrap_or(settings.rule);
    settings.checkpoint = o.keeping.checkpoint.clone();
    settings.checkpoint_seconds = o.keeping.checkpoint_every.unwrap_or(settings.checkpoint_seconds);
    (settings.resume, settings.overwrite) = (o.keeping.resume, o.keeping.overwrite);
    settings.finish = !o.no_finish;
    settings.math = o.math.unwrap_or(settings.math);
    method.architecture = o.net.clone();
    Box::new(method)
}

/// The result of a training run in words, a sentence each.
pub fn sentences(training: &Training) -> Vec<String> {
    let ended = match training.stop {
        Stop::Budget => "all steps done".to_owned(),
        Stop::Converged => format!("ended early, as validation no longer improved (planned: {})", training.planned),
        Stop::Interrupted => format!("interrupted (planned: {})", training.planned),
    };
    let mut said = vec![format!(
        "Training: {} steps of {} points in {}, {} parameters; {ended}; the functions of step {} are kept.",
        training.steps,
        training.batch,
        crate::text::seconds(training.seconds),
        training.parameters,
        training.kept
    )];
    if training.finished {
        let raw: Vec<String> = training.raw_eigenvalues.iter().map(|μ| crate::text::number(*μ, 4)).collect();
        said.push(format!("Before the Rayleigh–Ritz finish, the objective's own eigenvalues were {}.", raw.join(", ")));
    }
    if training.recoveries > 0 {
        said.push(format!("Recovered {} times from a step that was not finite.", training.recoveries));
    }
    said.extend(training.notes.iter().map(|note| format!("Note: {note}")));
    said
}
