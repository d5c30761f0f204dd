//! Networks that are kept along the last part of training.

use super::Classifier;
use crate::{Error, Result, fail_if};
use std::path::{Path, PathBuf};

/// How many there are unless their distance is given.
const COUNT: u64 = 20;
/// Their learning rate, as a share of the largest, unless it is given.
const RATE: f64 = 0.2;

/// Networks written along the last part of training, at a constant learning rate, as averages of weights need them. They are files that
/// [`Classifier::load`] reads; the last one holds the network that training ends with. Example: [`crate::trajectory`].
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshots {
    /// The folder for `step-N.safetensors`; it is made where there is none.
    pub folder: PathBuf,
    /// Share of the steps after which they begin, below 1.
    pub from: f64,
    /// Steps between them; without it there are twenty.
    pub every: Option<u64>,
    /// The learning rate while they are written; without it a fifth of the largest. Before, half a cosine goes down to it.
    pub rate: Option<f64>,
}

impl Snapshots {
    /// Twenty over the last quarter of training.
    pub fn new(folder: impl Into<PathBuf>) -> Snapshots {
        Snapshots { folder: folder.into(), from: 0.75, every: None, rate: None }
    }

    /// When a run of so many steps writes them; `largest` is its learning rate before.
    pub(super) fn plan(&self, steps: u64, largest: f64) -> Result<Plan> {
        fail_if!(
            !(0.0..1.0).contains(&self.from),
            "snapshots begin at a share of the steps from 0 to below 1, not {}",
            self.from
        );
        let rate = self.rate.unwrap_or(RATE * largest);
        fail_if!(!(rate > 0.0 && rate.is_finite()), "the learning rate of snapshots must be above 0, got {rate}");
        let from = (self.from * steps as f64) as u64;
        let every = self.every.unwrap_or_else(|| ((steps - from) / COUNT).max(1));
        fail_if!(every == 0, "snapshots must be at least one step apart");
        fail_if!(
            (steps - from).div_ceil(every) < 2,
            "{steps} steps, of which {} are left for snapshots, give a single one; train longer, or write snapshots more often",
            steps - from
        );
        Ok(Plan { from, every, steps, rate })
    }

    /// Makes the folder, which must hold no networks unless a run is continued.
    pub(super) fn prepare(&self, resume: bool) -> Result<()> {
        std::fs::create_dir_all(&self.folder).map_err(|e| Error::io(&self.folder, e))?;
        fail_if!(
            !resume && !snapshot_files(&self.folder)?.is_empty();
            Error::file(&self.folder, "holds networks already; name an empty folder for the snapshots")
        );
        Ok(())
    }

    /// Writes the network after so many steps.
    pub(super) fn write(&self, classifier: &Classifier, steps: u64) -> Result<()> {
        classifier.save(&self.folder.join(format!("step-{steps:08}.safetensors")))
    }
}

/// The steps after which snapshots are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub from: u64,
    pub every: u64,
    steps: u64,
    pub rate: f64,
}

impl Plan {
    /// Whether one is due when so many steps are done: counted from the last step back.
    pub fn due(&self, done: u64) -> bool {
        done > self.from && (self.steps - done).is_multiple_of(self.every)
    }
}

/// The networks in a folder of [`Snapshots`], in the order of their names, which is that of training. Example: [`crate::trajectory`].
pub fn snapshot_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))?;
    let all = read.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>();
    let mut files = all.map_err(|e| Error::io(folder, e))?;
    files.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_end_with_the_last_step() {
        let due = |snapshots: Snapshots, steps: u64| -> Vec<u64> {
            let plan = snapshots.plan(steps, 0.1).unwrap();
            (1..=steps).filter(|done| plan.due(*done)).collect()
        };
        let new = || Snapshots::new("s");
        assert_eq!(due(Snapshots { every: Some(3), ..new() }, 40), [31, 34, 37, 40]);
        assert_eq!(due(new(), 400).len(), 20);
        assert_eq!(due(Snapshots { from: 0.0, every: Some(4), ..new() }, 9), [1, 5, 9]);
        assert_eq!(new().plan(400, 0.1).unwrap().rate, 0.1 * 0.2);
        for (bad, word) in [
            (Snapshots { from: 1.0, ..new() }, "share"),
            (Snapshots { every: Some(0), ..new() }, "one step"),
            (Snapshots { every: Some(100), ..new() }, "single"),
            (Snapshots { rate: Some(0.0), ..new() }, "above 0"),
        ] {
            assert!(bad.plan(400, 0.1).unwrap_err().to_string().contains(word), "{word}");
        }
    }
}
