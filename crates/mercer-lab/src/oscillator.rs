//! The harmonic oscillator in the plane: `H = −Δ + |x|²`, energies `2n + 2` with multiplicity `n + 1`.

use crate::bound_states::{self, Budget, Contender, System};
use crate::{Options, Shown};
use mercer::spectrum::neural::{Gaussian, Schroedinger};
use mercer::{FitContext, Result};
use mercer_figure::report::Report;

pub const SYSTEM: System =
    System { name: "Harmonic oscillator in the plane, H = −Δ + |x|²", operator, energies, extent: 5.0 };

/// The first `k` energies: 2, 4, 4, 6, 6, 6, …
pub fn energies(k: usize) -> Vec<f64> {
    (0..).flat_map(|n| std::iter::repeat_n(2.0 * n as f64 + 2.0, n + 1)).take(k).collect()
}

/// The operator `K = (E − H)/E`, with the energy `E` two levels above the `k`-th, and points from a normal distribution.
///
/// The density of the points is wider than the square of the ground state (width `1/√2`), so it contains no exact state.
pub fn operator(k: usize) -> Result<Schroedinger> {
    let above = energies(k).last().copied().unwrap_or(2.0) + 4.0;
    let potential = |x: &[f64]| x.iter().map(|x| x * x).sum();
    let guide = Gaussian { dimension: 2, width: 1.0 };
    Schroedinger::new("−Δ + |x|²", Box::new(potential), Box::new(guide), above, above)
}

pub fn budget() -> Budget {
    Budget::published(16_384, "dense(32) sincos dense(32) sincos dense(1)", "dense(128, b=1) sincos dense(1)")
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let budget = Budget { seed: context.seed, ..budget() };
    let (k, budget) = if options.quick { (6, budget.quick()) } else { (10, budget) };
    let found = bound_states::run(&SYSTEM, k, &Contender::all(), &budget, context)?;
    let report = Report::new("The harmonic oscillator in the plane").lead(&found.lead());
    Ok(bound_states::shown(found.section(report), &[found]))
}
