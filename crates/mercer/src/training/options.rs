//! The options of a checkpoint, which every long run has.

use super::Checkpoint;
use crate::options::{Kind, Opt, Options};
use crate::{Error, Result, fail_if};
use std::path::PathBuf;

static CHECKPOINT: Opt = Opt::new(
    "checkpoint",
    "FILE",
    Kind::File,
    "File to keep the state of the run in, every 30 seconds unless said otherwise",
);
static EVERY: Opt =
    Opt::new("checkpoint-every", "SECONDS", Kind::Positive, "Seconds between checkpoints [default: 30]");
static RESUME: Opt = Opt::flag(
    "resume",
    "Continue from the checkpoint; the result is the same to the bit as that of an uninterrupted run",
);
static OVERWRITE: Opt = Opt::flag("overwrite", "Replace a checkpoint that is there, by that of this run");

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
