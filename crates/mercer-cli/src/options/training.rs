//! Training runs in words.

use mercer::spectrum::neural::{Stop, Training};

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
