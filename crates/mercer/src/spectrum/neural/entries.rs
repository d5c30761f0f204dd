//! The methods that train networks, by the names of their objectives, and the options that all of them take.

use super::{Kind as Objective, Neural};
use crate::Result;
use crate::compute::Rule;
use crate::net::ScheduleKind;
use crate::options::{Caps, Entry, Kind, Opt, Options};
use crate::spectrum::Size;
use crate::training::Checkpoint;

static STEPS: Opt = Opt::new(
    "steps",
    "N",
    Kind::Count(0),
    "Training steps; 0 leaves the networks as they were drawn [default: 2000, ritz 200]",
);
static BATCH: Opt = Opt::new("batch", "N", Kind::Count(1), "Points of a batch [default: 256]");
static RATE: Opt = Opt::new("rate", "RATE", Kind::Positive, "Largest learning rate [default: 1e-3]").or(&["lr"]);
static SCHEDULE: Opt = Opt::new(
    "schedule",
    "SCHEDULE",
    Kind::Word(|| ScheduleKind::NAMED.map(|(word, _)| word).to_vec()),
    "How the learning rate changes over the steps [default: cosine]",
);
static OPTIMISER: Opt = Opt::new(
    "optimiser",
    "OPTIMISER",
    Kind::Word(|| Rule::NAMED.map(|(word, _)| word).to_vec()),
    "Optimizer [default: adam]",
)
.or(&["optimizer"]);
static NET: Opt = Opt::new(
    "net",
    "LAYERS",
    Kind::Text,
    "The networks, such as \"dense(64) relu dense(64) relu dense(1)\"; a | ends a trunk that all share",
);

/// An option of the objectives whose functions are eigenfunctions by themselves.
pub(super) static NO_FINISH: Opt = Opt::flag(
    "no-finish",
    "Take the objective's own functions in its own order, each with its Rayleigh quotient, without a final Rayleigh–Ritz",
);
/// An option of the objectives that differ from their publication.
pub(super) static PUBLISHED: Opt = Opt::flag(
    "published",
    "the objective as published, which is less accurate where the first eigenvalue dominates. neuralef keeps functions \
           apart one by one, not together; spin has moving averages, which take k + 1 backward passes a step instead of one, \
           and k numbers for each parameter",
);

/// One method for each objective.
pub(crate) fn entries() -> Vec<Entry<Size>> {
    Objective::all().into_iter().map(entry).collect()
}

fn entry(objective: Objective) -> Entry<Size> {
    let common: [&'static Opt; 6] = [&STEPS, &BATCH, &RATE, &SCHEDULE, &OPTIMISER, &NET];
    Entry {
        can: Caps { trains: true, ..Caps::default() },
        ..Entry::<Size>::new(
            objective.name(),
            objective.about(),
            [&common[..], &Checkpoint::OPTIONS, &objective.options()].concat(),
            move |o, size| Ok(Box::new(built(objective, o, size)?)),
        )
    }
}

/// The method that trains by `objective`, as the options want it.
fn built(objective: Objective, o: &mut Options, size: &Size) -> Result<Neural> {
    let mut method = Neural::new(objective.with_options(o)?.unwrap_or(objective));
    let settings = &mut method.settings;
    settings.steps = o.take(&STEPS)?.unwrap_or(settings.steps);
    settings.batch = o.take(&BATCH)?.unwrap_or(settings.batch);
    settings.learning_rate = o.take(&RATE)?.unwrap_or(settings.learning_rate);
    settings.schedule = o.take_word(&SCHEDULE, &ScheduleKind::NAMED)?.unwrap_or(settings.schedule);
    settings.rule = o.take_word(&OPTIMISER, &Rule::NAMED)?.unwrap_or(settings.rule);
    settings.finish = !o.flag(&NO_FINISH)?;
    settings.math = size.math.unwrap_or(settings.math);
    if let Some(Checkpoint { path, seconds, resume, overwrite }) = Checkpoint::of(o)? {
        settings.checkpoint = Some(path);
        settings.checkpoint_seconds = seconds;
        (settings.resume, settings.overwrite) = (resume, overwrite);
    }
    method.architecture = o.take(&NET)?;
    Ok(method)
}
