//! What is remembered of a training run.

use super::Stop;
use serde::{Deserialize, Serialize};

/// How a neural spectrum was trained: kept in the spectrum and in its file.
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
    /// `[step, residual]`: the mean residual `min(1, ‖Kψ−μψ‖/μ)` of the k pairs on a fixed sample of the points.
    pub validation: Vec<[f64; 2]>,
    /// What the user should know, in words.
    pub notes: Vec<String>,
}
