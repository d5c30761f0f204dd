//! Settings of training, and the record of a run.

use super::Stop;
use crate::compute::{Math, Rule};
use crate::net::ScheduleKind;
use crate::{Result, fail_if};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Settings of training, the same for every objective. Example: [the module](super).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Steps; zero leaves the networks as they were drawn.
    pub steps: u64,
    /// Points of a batch.
    pub batch: usize,
    /// The optimizer.
    pub rule: Rule,
    /// The largest learning rate.
    pub learning_rate: f64,
    /// How it changes over the steps.
    pub schedule: ScheduleKind,
    /// Bound on the norm of the gradient.
    pub clip: Option<f32>,
    /// Seed of batches.
    pub seed: u64,
    /// Training ends early when the validation residual has not fallen by a hundredth in this many validations, of
    /// which there are twenty or more in a run.
    pub patience: usize,
    /// Most steps between two validations.
    pub interval: u64,
    /// Whether Rayleigh–Ritz over a large sample ends the training; otherwise the functions and their order are those of the
    /// objective itself, and their eigenvalues are their Rayleigh quotients. Training is validated by what it will return.
    pub finish: bool,
    /// Points of the fixed sample on which training is validated.
    pub validation_points: usize,
    /// Whether the functions of the best validation are kept rather than the last ones.
    pub keep_best: bool,
    /// Where checkpoints go.
    pub checkpoint: Option<PathBuf>,
    /// Seconds between checkpoints.
    pub checkpoint_seconds: f64,
    /// How a GPU rounds the factors of the networks' products, with bf16 also images from layer to layer, and the points whose kernel a batch takes, in training steps.
    /// Steps on graph Laplacians and Schrödinger operators, validation, the finish and certificates are in f32, and the
    /// CPU always is.
    pub math: Math,
    /// Whether a checkpoint that is there is continued; the result has the same bits as that of an uninterrupted run.
    pub resume: bool,
    /// Whether a checkpoint that is there and not continued may be replaced; otherwise it is an error.
    pub overwrite: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            steps: 2000,
            batch: 256,
            rule: Rule::ADAM,
            learning_rate: 1e-3,
            schedule: ScheduleKind::Cosine,
            clip: None,
            seed: 0,
            patience: 10,
            interval: 200,
            finish: true,
            validation_points: 1024,
            keep_best: true,
            checkpoint: None,
            math: Math::Tf32,
            checkpoint_seconds: 30.0,
            resume: false,
            overwrite: false,
        }
    }
}

impl Settings {
    /// Steps between validations.
    pub(super) fn steps_between(&self) -> u64 {
        (self.steps / 20).clamp(1, self.interval.max(1))
    }

    pub(super) fn check(&self) -> Result<()> {
        fail_if!(self.batch == 0, "the batch must hold at least one point");
        fail_if!(
            !(self.learning_rate > 0.0 && self.learning_rate.is_finite()),
            "the learning rate must be above 0, got {}",
            self.learning_rate
        );
        Ok(())
    }
}

/// How a neural spectrum was trained: kept in the spectrum and in its file. Example: [the module](super).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Name of the objective.
    pub objective: String,
    /// The networks, in full.
    pub architecture: String,
    /// Trained numbers in all.
    pub parameters: usize,
    /// Steps done.
    pub steps: u64,
    /// Steps planned.
    pub planned: u64,
    /// The step whose functions were kept: the best by validation, or the last.
    pub kept: u64,
    /// Points of a batch.
    pub batch: usize,
    /// Seconds of training, over all parts of a resumed run.
    pub seconds: f64,
    /// Why it ended.
    pub stop: Stop,
    /// Times that a step was not finite and the last good state was taken up again at half the learning rate.
    pub recoveries: usize,
    /// Eigenvalues as the objective itself has them at the end: moving averages over batches.
    pub raw_eigenvalues: Vec<f64>,
    /// Whether the spectrum's eigenvalues come from a final Rayleigh–Ritz over a large sample rather than from
    /// [`Self::raw_eigenvalues`].
    pub finished: bool,
    /// `[step, ℓ]`, a few hundred at most.
    pub loss: Vec<[f64; 2]>,
    /// `[step, residual]`: the mean residual `min(1, ‖Kψ−μψ‖/μ)` of the k pairs on a fixed sample of the points; without a
    /// finish, a function's overlap with those before it counts as well.
    pub validation: Vec<[f64; 2]>,
    /// `[step, share]`: accuracies of neighbours at the validations, where classes are known; see [`super::ViewPairs`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accuracy: Vec<[f64; 2]>,
    /// What the user should know, in words.
    pub notes: Vec<String>,
}
