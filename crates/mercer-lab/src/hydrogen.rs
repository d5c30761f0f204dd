//! Hydrogen in the plane: `H = −Δ − 1/|x|`, energies `−1/(2n+1)²` with multiplicity `2n + 1`.

use crate::bound_states::{self, Budget, Contender, System};
use crate::{Options, Shown};
use mercer::spectrum::neural::{Exponentials, Schroedinger};
use mercer::{FitContext, Result};
use mercer_figure::report::Report;

pub const SYSTEM: System =
    System { name: "Hydrogen in the plane, H = −Δ − 1/|x|", operator, energies, extent: 30.0 };

/// The first `k` energies: −1, −1/9 three times, −1/25 five times, …
pub fn energies(k: usize) -> Vec<f64> {
    (0..).flat_map(|n| std::iter::repeat_n(-1.0 / (2.0 * n as f64 + 1.0).powi(2), 2 * n + 1)).take(k).collect()
}

/// The operator, with `K = −H`.
///
/// Points are drawn from two exponentials: a core with the cusp of the charge at the origin, and a tail that decays half as
/// fast as the square of the `k`-th state. The density contains no exact state.
pub fn operator(k: usize) -> Result<Schroedinger> {
    // ψ² of level n decays as exp(−2r/(2n+1)), and 2n+1 = |E|^{−1/2}.
    let longest = energies(k).last().map_or(1.0, |e| 1.0 / e.abs().sqrt());
    let guide = Exponentials::with_cusp(1.0, 0.485, longest.max(2.0))?;
    let potential = |x: &[f64]| -1.0 / x[0].hypot(x[1]).max(1e-10);
    Schroedinger::new("−Δ − 1/|x|", Box::new(potential), Box::new(guide), 0.0, 1.0)
}

pub fn budget() -> Budget {
    let networks = "radial(scale=2) dense(32, w=2) sincos dense(32) sincos dense(1)";
    Budget::published(32_768, networks, "radial(scale=2) dense(128, w=2, b=1) tanh dense(1)")
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let run = |k: usize, contenders: &[Contender], budget: Budget| {
        bound_states::run(&SYSTEM, k, contenders, &Budget { seed: context.seed, ..budget }, context)
    };
    let (k, first) = if options.quick { (4, budget().quick()) } else { (9, budget()) };
    let mut all = vec![run(k, &Contender::all(), first)?];
    let mut report = all[0].section(Report::new("Hydrogen in the plane").lead(&all[0].lead()));
    if !options.quick {
        // As many states as in the published comparison; Ritz is left out because it takes minutes.
        let some = |c: &Contender| !c.trained || c.name != "ritz";
        let contenders: Vec<Contender> = Contender::all().into_iter().filter(some).collect();
        // Up to n = 5: a wider network with a longer scale.
        let networks = "radial(scale=4) dense(32, w=2) sincos dense(32) sincos dense(1)".into();
        let units = "radial(scale=8) dense(512, w=5, b=2) tanh dense(1)".into();
        let many = run(36, &contenders, Budget { networks, units, ..budget() })?;
        report = many.section(report.text(
            "Published relative errors of the first 36 energies are 0.6 to 0.9 % for NeuralSVD and 3.5 to 7 % for NeuralEF. \
             These are the first 36 with a wider network. Energies from the 26th on are −1/121, a hundredth of the first and close to \
             the continuum at 0. NeuralEF divides by ⟨ψ,Kψ⟩, which is negative for functions that are not bound yet, and nested \
             low-rank and orbital minimisation weigh these states by their energy: they do not resolve them in this budget. SpIN, \
             which divides by ⟨ψ,ψ⟩ alone, does.",
        ));
        all.push(many);
    }
    Ok(bound_states::shown(report, &all))
}
