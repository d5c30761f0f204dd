//! What a regression fitted, and how it was chosen.

use crate::apply::{
    Convergence, FoundKernel, Memory, MetricForm, SavedPredict, Tried, TriedMetric, solvers::monitor::SolverName,
};
use crate::spectrum::Origin;

/// A fitted model, and how it was chosen. Example: [`Regression`](super::Regression).
pub struct Outcome {
    /// What predicts, and can be saved.
    pub model: Box<dyn SavedPredict>,
    /// Why the method was chosen, where it was not given.
    pub why: Option<String>,
    /// What was tried on the way to the parameter.
    pub tried: Vec<Tried>,
    /// The error of what was tried, in words.
    pub measure: &'static str,
    /// The number that was given or chosen, by its name.
    pub parameter: (&'static str, f64),
    /// The iterative solver, and what it counts.
    pub solver: SolverName,
    /// How an iterative solver went.
    pub convergence: Convergence,
    /// Landmarks, features or eigenfunctions.
    pub rank: Option<usize>,
    /// The search for the kernel, where there was one.
    pub search: Option<FoundKernel>,
    /// The metrics that a recursive feature machine tried.
    pub metrics: Option<Metrics>,
    /// The memory that was expected at most, where the solver estimates it.
    pub expected: Option<Memory>,
}

/// The metrics that a recursive feature machine tried. Example: [`Regression`](super::Regression).
pub struct Metrics {
    /// All of them, with their errors.
    pub tried: Vec<TriedMetric>,
    /// The form that was chosen.
    pub form: MetricForm,
    /// How often the metric was replaced.
    pub rounds: usize,
}

impl Outcome {
    /// A model whose α was given or found.
    pub(crate) fn new(model: impl SavedPredict + 'static, alpha: f64, tried: Vec<Tried>) -> Outcome {
        Outcome {
            model: Box::new(model),
            why: None,
            tried,
            measure: "mean squared error",
            parameter: ("alpha", alpha),
            solver: SolverName::default(),
            convergence: Convergence::default(),
            rank: None,
            search: None,
            metrics: None,
            expected: None,
        }
    }

    /// How and on what the model was fitted.
    pub fn origin(&self) -> &Origin {
        self.model.origin()
    }

    /// Says why the method of the model was chosen.
    pub(crate) fn because(self, why: &str) -> Outcome {
        Outcome { why: Some(format!("method {}: {why}", self.origin().method)), ..self }
    }
}
