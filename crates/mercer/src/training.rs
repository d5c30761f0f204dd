//! The loop around the steps of training and of iterative solvers: validation, checkpoints, resuming, recovery, interrupts, progress.

mod contents;
mod fingerprint;
mod options;

pub(crate) use contents::{load_optimizer, numbers, optional_matrix, put_numbers, put_optimizer, put_optional_matrix};
#[doc(hidden)]
pub use fingerprint::Fingerprint;

use crate::bundle::Bundle;
use crate::{Error, FitContext, Group, KeepsBest, Result, fail_if};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why training ended. Example: [`crate::classifier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// All steps were done.
    Budget,
    /// The validation residual had stopped falling.
    Converged,
    /// It was interrupted.
    Interrupted,
}

/// What is trained.
pub(crate) trait Task {
    /// Its name in progress updates.
    fn name(&self) -> String;

    /// What must agree between a checkpoint and the run that continues it: settings by name.
    fn identity(&self) -> Identity;

    /// Steps done, and steps in all.
    fn steps(&self) -> (u64, u64);

    /// Makes one step or more, none of them beyond the next validation.
    fn advance(&mut self) -> Result<()>;

    /// Whether a validation is due.
    fn due(&self) -> bool;

    /// Validates.
    fn validate(&mut self) -> Result<()>;

    /// Whether more steps are of no use.
    fn converged(&self) -> bool {
        false
    }

    /// How many times the residual is above the one asked for, in an iteration that ends when it is small enough.
    fn excess(&self) -> Option<f64> {
        None
    }

    /// Whether there is a result that an interrupt does not lose.
    fn has_result(&self) -> bool {
        true
    }

    /// How it stands, in a few words; `rate` steps are made a second, and `left` seconds remain.
    fn report(&mut self, rate: f64, left: f64) -> Result<String>;

    /// Whether checkpoints may be taken between validations.
    fn saves_anywhere(&self) -> bool {
        true
    }

    /// Puts all that changes from step to step into a checkpoint.
    fn save(&mut self, bundle: &mut Bundle) -> Result<()>;

    /// Takes it out again.
    fn load(&mut self, bundle: &Bundle) -> Result<()>;

    /// Whether [`Self::recover`] can help, for which the last good state is kept.
    fn recovers(&self) -> bool {
        false
    }

    /// Goes back to the checkpoint `good` after a step that was not finite, and changes what may help; false where nothing can.
    fn recover(&mut self, _good: &Bundle) -> Result<bool> {
        Ok(false)
    }
}

/// Settings by name.
pub(crate) type Identity = Vec<(String, String)>;

/// The settings that differ, each with its value `there` and `here`.
fn differences(there: &Identity, here: &Identity) -> Vec<String> {
    let value =
        |of: &Identity, name: &str| of.iter().find(|(n, _)| n == name).map_or("none".into(), |(_, v)| v.clone());
    let mut names: Vec<&String> = here.iter().chain(there).map(|(name, _)| name).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name));
    let values = names.into_iter().map(|name| (name, value(there, name), value(here, name)));
    values.filter(|(_, a, b)| a != b).map(|(name, a, b)| format!("{name} {a} there, {b} here")).collect()
}

/// Where the state of an iterative solver is kept. Example: [`Monitoring`](crate::apply::Monitoring).
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The file.
    pub path: PathBuf,
    /// Seconds between two writes.
    pub seconds: f64,
    /// Whether a file that is there is continued; the result has the same bits as that of an uninterrupted run on the same device.
    pub resume: bool,
    /// Whether a file that is there and not continued may be replaced; otherwise it is an error.
    pub overwrite: bool,
}

impl Checkpoint {
    /// In this file, every 30 seconds; a file that is there is an error.
    pub fn new(path: impl Into<PathBuf>) -> Checkpoint {
        Checkpoint { path: path.into(), seconds: 30.0, resume: false, overwrite: false }
    }

    pub(crate) fn saving(&self) -> Saving<'_> {
        Saving { path: Some(&self.path), seconds: self.seconds, resume: self.resume, overwrite: self.overwrite }
    }
}

/// Where checkpoints go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saving<'a> {
    /// The file.
    pub path: Option<&'a Path>,
    /// Seconds between checkpoints.
    pub seconds: f64,
    /// Whether a file that exists is continued.
    pub resume: bool,
    /// Whether a file that exists may be replaced.
    pub overwrite: bool,
}

impl Saving<'_> {
    /// No checkpoints.
    pub const NONE: Saving<'static> = Saving { path: None, seconds: f64::INFINITY, resume: false, overwrite: false };

    /// Refuses a file that would be lost.
    pub fn check(&self) -> Result<()> {
        match self.path {
            // A device or a pipe holds nothing that could be lost.
            Some(path) if !self.resume && !self.overwrite && path.is_file() => {
                let what = concat!(
                    "exists already; ",
                    crate::advice!(ContinueRun),
                    ", ",
                    crate::advice!(Overwrite),
                    ", or name another file"
                );
                Err(Error::file(path, what))
            }
            _ => Ok(()),
        }
    }

    /// A note where there is no checkpoint to continue.
    pub fn missing(&self) -> Option<String> {
        let path = self.path.filter(|path| self.resume && !path.exists())?;
        Some(format!("there is no checkpoint at {}; started from the beginning", path.display()))
    }

    /// The checkpoint to continue, where there is one; that of a run with other settings is refused.
    pub fn stored(&self, identity: &Identity) -> Result<Option<Bundle<'static>>> {
        self.stored_among(Group::SINGLE, identity)
    }

    /// The same on every rank of `group`: rank 0 reads the file for all.
    pub fn stored_among(&self, group: Group<'_>, identity: &Identity) -> Result<Option<Bundle<'static>>> {
        let Some(path) = self.path.filter(|_| self.resume) else { return Ok(None) };
        // Rank 0 says whether there is a file, and then what is in it.
        let found = group.of_first(|| Ok(vec![u8::from(path.exists())]))? == [1];
        if !found {
            return Ok(None);
        }
        let bytes = group.of_first(|| std::fs::read(path).map_err(|e| Error::io(path, e)))?;
        let checkpoint = Bundle::from_bytes_of(path, &bytes)?;
        let there: Identity =
            checkpoint.value("identity").map_err(|e| Error::file(path, format!("is not a checkpoint: {e}")))?;
        if there != *identity {
            let differ = differences(&there, identity).join("; ");
            let what =
                format!("is the checkpoint of another run: {differ}. Give the same options, or another checkpoint");
            return Err(Error::file(path, what));
        }
        Ok(Some(checkpoint))
    }
}

/// Recoveries from non-finite steps before training gives up.
const MOST_RECOVERIES: usize = 5;

/// A run of a [`Task`], apart from the task itself.
pub(crate) struct Run<'a> {
    saving: Saving<'a>,
    context: &'a FitContext<'a>,
    /// From the first result on, for as long as the run lives.
    keeps: Option<KeepsBest<'a>>,
    /// The last good state, to go back to and to write to the file.
    checkpoint: Bundle<'static>,
    /// Times that a step was not finite.
    pub recoveries: usize,
    /// What the user should know, in words.
    pub notes: Vec<String>,
    /// Seconds of the parts of the run before this one.
    seconds_before: f64,
    first_step: u64,
    started: Instant,
    saved: Instant,
    reported: Option<Instant>,
}

impl<'a> Run<'a> {
    /// Prepares a run of `task`, from its checkpoint where there is one to resume.
    pub fn new(task: &mut dyn Task, saving: Saving<'a>, context: &'a FitContext<'a>) -> Result<Run<'a>> {
        let now = Instant::now();
        let mut run = Run {
            saving,
            context,
            keeps: None,
            checkpoint: Bundle::default(),
            recoveries: 0,
            notes: vec![],
            seconds_before: 0.0,
            first_step: 0,
            started: now,
            saved: now,
            reported: None,
        };
        context.group.of_first(|| saving.check().map(|()| vec![]))?;
        run.keep(task)?;
        if saving.resume {
            run.resume(task)?;
        }
        // A path that cannot be written to is reported now, not after half an hour.
        run.write()?;
        Ok(run)
    }

    fn resume(&mut self, task: &mut dyn Task) -> Result<()> {
        let Some(path) = self.saving.path else { return Ok(()) };
        let Some(checkpoint) = self.saving.stored_among(self.context.group, &task.identity())? else {
            self.saving.missing().into_iter().for_each(|note| self.note(task, note));
            return Ok(());
        };
        let mut load = |bundle: &Bundle| -> Result<()> {
            self.recoveries = bundle.value("recoveries")?;
            self.notes = bundle.value("notes")?;
            self.seconds_before = bundle.value("seconds")?;
            task.load(bundle)
        };
        load(&checkpoint).map_err(|e| Error::file(path, e.to_string()))?;
        (self.checkpoint, self.first_step) = (checkpoint, task.steps().0);
        Ok(())
    }

    /// Trains until the end; whatever happens, the last good state goes to the file.
    pub fn run(&mut self, task: &mut dyn Task) -> Result<Stop> {
        let stop = self.train(task).map_err(|error| self.rescue(error))?;
        if task.saves_anywhere() {
            self.keep(task)?;
        }
        self.write_or_warn(task)?;
        Ok(stop)
    }

    fn train(&mut self, task: &mut dyn Task) -> Result<Stop> {
        loop {
            self.hold(task);
            if self.context.interrupted() {
                self.keep(task)?;
                return Ok(Stop::Interrupted);
            }
            if task.due() {
                if let Err(error) = task.validate() {
                    self.recover(task, error)?;
                    continue;
                }
                self.keep(task)?;
            }
            let (done, all) = task.steps();
            if done >= all {
                return Ok(Stop::Budget);
            }
            if task.converged() {
                return Ok(Stop::Converged);
            }
            if self.save_is_due()? {
                if task.saves_anywhere() {
                    self.keep(task)?;
                }
                self.write_or_warn(task)?;
            }
            match task.advance() {
                Ok(()) => {
                    self.hold(task);
                    self.report(task)?;
                }
                Err(error) => self.recover(task, error)?,
            }
        }
    }

    /// Whether the time between two checkpoints has passed: on rank 0, which decides for all.
    fn save_is_due(&self) -> Result<bool> {
        let own = self.saved.elapsed().as_secs_f64() >= self.saving.seconds;
        if self.saving.path.is_none() || self.context.group.is_single() {
            return Ok(own);
        }
        Ok(self.context.group.all_gather(&[u8::from(own)])?[0] == [1])
    }

    /// Holds the result, from the first on.
    fn hold(&mut self, task: &dyn Task) {
        if self.keeps.is_none() && task.has_result() {
            self.keeps = Some(self.context.keeps_best());
        }
    }

    /// Back to the last good state, where the task can go on from there.
    fn recover(&mut self, task: &mut dyn Task, cause: Error) -> Result<()> {
        let Error::Numerical(what) = cause else { return Err(cause) };
        let step = task.steps().0;
        fail_if!(!task.recover(&self.checkpoint)?; Error::Numerical(what));
        if self.recoveries == MOST_RECOVERIES {
            self.write()?;
            let saved = self.saving.path.map(|path| format!("; the last good state is in {}", path.display()));
            return Err(Error::Numerical(format!(
                "training by {} broke down at step {step}: {what}, after {MOST_RECOVERIES} recoveries at half the learning rate each; use a smaller learning rate{}",
                task.name(),
                saved.unwrap_or_default()
            )));
        }
        self.recoveries += 1;
        self.note(task, format!("step {step}: {what}; went back to step {} at half the learning rate", task.steps().0));
        self.keep(task)
    }

    /// Adds what the user should know.
    pub fn note(&mut self, task: &dyn Task, note: String) {
        let (done, all) = task.steps();
        self.context.progress.step(&task.name(), done as usize, all as usize, &note);
        self.notes.push(note);
    }

    fn report(&mut self, task: &mut dyn Task) -> Result<()> {
        if let Some(excess) = task.excess() {
            if !task.has_result() {
                return Ok(());
            }
            let ((done, all), note) = (task.steps(), task.report(0.0, 0.0)?);
            self.context.progress.iteration(&task.name(), done as usize, all as usize, excess, &note);
            return Ok(());
        }
        if self.reported.is_some_and(|at| at.elapsed() <= Duration::from_millis(100)) {
            return Ok(());
        }
        self.reported = Some(Instant::now());
        let (done, all) = task.steps();
        let rate = (done - self.first_step) as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let note = task.report(rate, (all - done) as f64 / rate.max(1e-9))?;
        self.context.progress.step(&task.name(), done as usize, all as usize, &note);
        Ok(())
    }

    /// Makes the present state the last good one.
    fn keep(&mut self, task: &mut dyn Task) -> Result<()> {
        if self.saving.path.is_none() && !task.recovers() {
            return Ok(());
        }
        let mut bundle = Bundle::default();
        bundle.set("kind", "checkpoint");
        if self.saving.path.is_some() {
            bundle.set("identity", task.identity());
        }
        bundle.set("recoveries", self.recoveries);
        bundle.set("notes", &self.notes);
        bundle.set("seconds", self.seconds());
        task.save(&mut bundle)?;
        self.checkpoint = bundle;
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        // Rank 0 writes for all; the others give it what they have.
        let first = self.context.group.rank() == 0;
        if let Some(path) = self.saving.path.filter(|_| first || self.checkpoint.is_of_another_rank()) {
            self.checkpoint.write(path)?;
        }
        self.saved = Instant::now();
        Ok(())
    }

    /// As [`Self::write`]; where the file cannot be written any more, the run goes on, and a warning says so.
    fn write_or_warn(&mut self, task: &dyn Task) -> Result<()> {
        let Err(error) = self.write() else { return Ok(()) };
        let (Error::Io { .. }, step) = (&error, task.steps().0) else { return Err(error) };
        self.saved = Instant::now();
        let said = format!("the checkpoint of step {step} could not be written: {error}; the run goes on without it");
        self.context.progress.warning(&said);
        Ok(())
    }

    /// The error of a device that failed, with what was kept: the last good state is in host memory.
    fn rescue(&mut self, error: Error) -> Error {
        // Ranks that have lost one of them cannot write together any more.
        let failed = matches!(error, Error::Device(_) | Error::DeviceMemory { .. }) && !self.checkpoint.is_sharded();
        let Some(path) = self.saving.path.filter(|_| failed) else { return error };
        let kept = match self.write() {
            Ok(()) => {
                format!("the last good state is in {}; {resume}", path.display(), resume = crate::advice!(Resume))
            }
            Err(e) => format!("the last good state could not be written: {e}"),
        };
        with_advice(error, &kept)
    }

    /// Seconds of all parts of the run.
    pub fn seconds(&self) -> f64 {
        self.seconds_before + self.started.elapsed().as_secs_f64()
    }
}

/// A device's error with more advice.
pub(crate) fn with_advice(error: Error, advice: &str) -> Error {
    match error {
        Error::DeviceMemory { device, what, needed, free, instead } => {
            Error::DeviceMemory { device, what, needed, free, instead: format!("{instead}; {advice}") }
        }
        Error::Device(what) => Error::Device(format!("{what}; {advice}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, differences};

    #[test]
    fn the_settings_of_two_runs_that_differ_are_named() {
        let identity = |steps: &str, more: &[&str]| -> Identity {
            let more = more.iter().map(|name| (name.to_string(), "yes".to_string()));
            [("steps".to_owned(), steps.to_owned()), ("seed".into(), "0".into())].into_iter().chain(more).collect()
        };
        assert_eq!(differences(&identity("200", &[]), &identity("300", &[])), ["steps 200 there, 300 here"]);
        let both = differences(&identity("200", &["augmented"]), &identity("300", &[]));
        assert_eq!(both, ["steps 200 there, 300 here", "augmented yes there, none here"]);
        assert!(differences(&identity("200", &[]), &identity("200", &[])).is_empty());
    }
}
