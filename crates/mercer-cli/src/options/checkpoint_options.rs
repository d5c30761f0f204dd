//! Options of commands that keep the state of a long run in a file.

use crate::options::values::positive;
use crate::program::output::{NewFile, Output};
use clap::Args;
use mercer::Result;
use std::path::{Path, PathBuf};

/// Where the state of a run is kept.
#[derive(Args, Clone, Default)]
pub struct CheckpointOptions {
    /// File to keep the state of the run in, every --checkpoint-every seconds
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<NewFile>,

    /// Seconds between checkpoints [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = positive, requires = "checkpoint")]
    pub checkpoint_every: Option<f64>,

    /// Continue from the checkpoint; the result is the same to the bit as that of an uninterrupted run
    #[arg(long, requires = "checkpoint")]
    pub resume: bool,

    /// Replace a checkpoint that is there, by that of this run
    #[arg(long, requires = "checkpoint", conflicts_with = "resume")]
    pub overwrite: bool,
}

impl CheckpointOptions {
    /// Fails unless the file can be written.
    pub fn check(&self) -> Result<()> {
        self.checkpoint.as_ref().map_or(Ok(()), |path| Output::new(path).map(|_| ()))
    }

    /// The file.
    pub fn path(&self) -> Option<PathBuf> {
        self.checkpoint.as_deref().map(Path::to_owned)
    }
}
