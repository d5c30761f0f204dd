//! Whether training helped and what it missed, measured on points that it did not see.

use super::{Missed, Training};
use crate::Result;
use crate::operator::Points;
use crate::spectrum::{Certificate, Certified, Problem, Solution};

/// What is known of the networks of pairs beside the pairs. Example: `tests/neural_spectra.rs`.
pub struct TrainedPairs {
    /// How they were trained.
    pub training: Training,
    /// The pairs of the same networks before training; returned instead where they are better on held-out points.
    pub untrained: Option<Box<Solution>>,
}

/// The pairs of trained networks with their certificate; those before training, where these have the smaller mean residual on the
/// held-out points. Training is validated on fitted points, and can fit these better and all others worse. Where it missed a pair, the
/// certificate and a note say so.
pub(super) fn certify_trained(
    problem: &Problem,
    mut found: Solution,
    held_out: Option<Points<'_>>,
) -> Result<Certified> {
    let untrained = found.networks.as_mut().and_then(|networks| networks.untrained.take());
    let mut best = Certified::measure(problem, found, held_out)?;
    if let Some(untrained) = untrained.filter(|_| best.certificate.held_out > 0) {
        best = unless_worse(best, Certified::measure(problem, *untrained, held_out)?);
    }
    let Certified { mut solution, mut certificate } = best;
    if let Some(missed) = Missed::by(&solution, problem)? {
        certificate.has_missed(missed.quotient, missed.error, &solution.eigenvalues);
        solution.notes.push(missed.note(&solution.eigenvalues));
    }
    Ok(Certified { solution, certificate })
}

/// The pairs after training, or those before it where their mean residual is smaller.
fn unless_worse(after: Certified, mut before: Certified) -> Certified {
    let [was, is] = [&before, &after].map(|found| Certificate::mean_residual(&found.certificate));
    if was >= is {
        return after;
    }
    before.solution.networks = after.solution.networks.map(|mut networks| {
        networks.training.kept = 0;
        networks.training.notes.push(format!(
            "training made the mean residual on the held-out points worse, {is:.2e} instead of {was:.2e}; the untrained \
             networks were kept: use more points, fewer steps or narrower networks"
        ));
        networks
    });
    before
}
