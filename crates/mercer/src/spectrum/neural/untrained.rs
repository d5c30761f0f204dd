//! Whether training helped, measured on points that it did not see.

use crate::Result;
use crate::operator::Points;
use crate::spectrum::{Certificate, Problem, Solution};

/// The solution with its certificate; the one before training, where that has the smaller mean residual on the held-out points.
/// Training is validated on fitted points, and can fit these better and all others worse.
pub(crate) fn unless_worse(
    problem: &Problem,
    mut trained: Solution,
    certificate: Certificate,
    held_out: Option<Points<'_>>,
) -> Result<(Solution, Certificate)> {
    let Some(untrained) = trained.untrained.take().filter(|_| certificate.held_out > 0) else {
        return Ok((trained, certificate));
    };
    let before = Certificate::measure(problem, &untrained, held_out)?;
    let [was, is] = [&before, &certificate].map(Certificate::mean_residual);
    if was >= is {
        return Ok((trained, certificate));
    }
    let training = trained.training.map(|mut training| {
        training.kept = 0;
        training.notes.push(format!(
            "training made the mean residual on the held-out points worse, {is:.2e} instead of {was:.2e}; the untrained \
             networks were kept: use more points, fewer steps or narrower networks"
        ));
        training
    });
    Ok((Solution { training, ..*untrained }, before))
}
