//! The options of a checkpoint, which every long run has.

use super::Checkpoint;
use crate::options::{Kind, Opt, Options};
use crate::{Error, Result, fail_if};
use std::path::PathBuf;

static CHECKPOINT: Opt = Opt {
    name: "checkpoint",
    aliases: &[],
    value: "FILE",
    help: "File to keep the state of the run in, every 30 seconds unless said otherwise",
    kind: Kind::File,
};
static EVERY: Opt = Opt {
    name: "checkpoint-every",
    aliases: &[],
    value: "SECONDS",
    help: "Seconds between checkpoints [default: 30]",
    kind: Kind::Positive,
};
static RESUME: Opt = Opt {
    name: "resume",
    aliases: &[],
    value: "",
    help: "Continue from the checkpoint; the result is the same to the bit as that of an uninterrupted run",
    kind: Kind::Flag,
};
static OVERWRITE: Opt = Opt {
    name: "overwrite",
    aliases: &[],
    value: "",
    help: "Replace a checkpoint that is there, by that of this run",
    kind: Kind::Flag,
};

impl Checkpoint {
    /// The options of a checkpoint, which [`Checkpoint::of`] takes.
    pub(crate) const OPTIONS: [&'static Opt; 4] = [&CHECKPOINT, &EVERY, &RESUME, &OVERWRITE];

    /// The checkpoint that the options ask for.
    pub(crate) fn of(o: &mut Options) -> Result<Option<Checkpoint>> {
        let Some(path) = o.take::<PathBuf>(&CHECKPOINT)? else {
            let alone = o.given(&[&EVERY, &RESUME, &OVERWRITE]);
            return match alone {
                None => Ok(None),
                Some(alone) => {
                    Err(Error::input(format!("{} needs {} and its file", o.option(alone), o.option(&CHECKPOINT))))
                }
            };
        };
        let usual = Checkpoint::new(path);
        let seconds = o.take(&EVERY)?.unwrap_or(usual.seconds);
        let (resume, overwrite) = (o.flag(&RESUME)?, o.flag(&OVERWRITE)?);
        fail_if!(resume && overwrite, "{} and {} cannot be given together", o.option(&RESUME), o.option(&OVERWRITE));
        Ok(Some(Checkpoint { seconds, resume, overwrite, ..usual }))
    }
}
