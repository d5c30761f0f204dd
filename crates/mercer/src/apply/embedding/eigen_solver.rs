//! The eigensolver of embeddings, its options, and what is made of the pairs that it finds.

use crate::options::{Kind, Opt, Options};
use crate::spectrum::{EigenPairs, Exact, Krylov, Method};
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, Axis, s};

static SOLVER: Opt = Opt::new(
    "solver",
    "SOLVER",
    Kind::Word(|| EigenSolver::NAMED.map(|(word, _)| word).to_vec()),
    "How eigenpairs are found [default: auto, exact for few points or many coordinates]",
);
static TOLERANCE: Opt = Opt::new(
    "tolerance",
    "RESIDUAL",
    Kind::Positive,
    "Relative residual at which the krylov solver accepts a pair [default: 1e-4 for kpca, else 1e-6]",
);

/// How eigenpairs are found. Example: [`KernelPca`](crate::apply::KernelPca).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EigenSolver {
    /// [`Exact`](EigenSolver::Exact) for few points or many pairs, else [`Krylov`](EigenSolver::Krylov).
    #[default]
    Auto,
    /// Dense eigendecomposition.
    Exact,
    /// Block Krylov iteration on the operator; the kernel matrix is stored only where it fits easily.
    Krylov,
}

impl EigenSolver {
    const NAMED: [(&'static str, EigenSolver); 3] =
        [("auto", EigenSolver::Auto), ("exact", EigenSolver::Exact), ("krylov", EigenSolver::Krylov)];

    /// The options of a solver, which [`EigenSolver::of`] takes.
    pub(crate) const OPTIONS: [&'static Opt; 2] = [&SOLVER, &TOLERANCE];

    /// The solver that the options ask for, and its tolerance where it is given.
    pub(crate) fn of(o: &mut Options) -> Result<(EigenSolver, Option<f64>)> {
        let solver = o.take_word(&SOLVER, &EigenSolver::NAMED)?.unwrap_or_default();
        let tolerance = o.take(&TOLERANCE)?;
        fail_if!(
            solver == EigenSolver::Exact && tolerance.is_some(),
            "{} is for the solver krylov, and exact leaves no residual; leave it out",
            o.option(&TOLERANCE)
        );
        Ok((solver, tolerance))
    }

    /// The solver for `k` pairs of `n` points: below a few hundred points, or for a sixth of all pairs, dense is faster.
    pub(crate) fn chosen(self, n: usize, k: usize) -> EigenSolver {
        match self {
            EigenSolver::Auto if n <= 400 || (k + 8) * 6 >= n => EigenSolver::Exact,
            EigenSolver::Auto => EigenSolver::Krylov,
            chosen => chosen,
        }
    }

    /// The method that finds `k` pairs of `n` points; the Krylov iteration accepts a pair at the residual `tolerance`.
    pub(crate) fn method(self, n: usize, k: usize, tolerance: f64) -> Box<dyn Method> {
        match self.chosen(n, k) {
            EigenSolver::Exact => Box::new(Exact),
            _ => Box::new(Krylov::to(tolerance)),
        }
    }

    /// Bytes that the method needs beside the operator; refused where the memory has no room for them.
    pub(crate) fn require(self, n: usize, k: usize, context: &FitContext) -> Result<u64> {
        match self.chosen(n, k) {
            EigenSolver::Exact => Exact::require(n, context),
            _ => Krylov::require(n, k, context),
        }
    }
}

/// The pairs `(λ, U)`, λ descending, whose eigenvalue is above `threshold`; `none` is the error if there is no such pair.
pub(crate) fn above(threshold: f64, (mut λ, u): EigenPairs, none: &str) -> Result<EigenPairs> {
    λ.truncate(λ.iter().take_while(|&&λ| λ > threshold).count());
    match λ.len() {
        0 => Err(Error::input(none)),
        kept => Ok((λ, u.slice(s![.., ..kept]).to_owned())),
    }
}

/// Fixes the sign that an eigenvector leaves open: the entry of the largest magnitude of each column is positive.
pub(crate) fn fix_signs(u: &mut Array2<f64>) {
    for mut column in u.axis_iter_mut(Axis(1)) {
        let largest = column.iter().fold(0.0f64, |m, &v| if v.abs() > m.abs() { v } else { m });
        if largest < 0.0 {
            column.mapv_inplace(|v| -v);
        }
    }
}

/// The note on coordinates that were asked for but have no eigenvalue above rounding: there are none, unless the iteration `ended_early`.
pub(crate) fn dropped(asked: usize, kept: usize, ended_early: bool) -> Option<String> {
    let dropped = asked - kept;
    let why = match ended_early {
        false => "do not exist: their eigenvalue is zero",
        true => "were not found before the iteration ended",
    };
    (dropped > 0).then(|| format!("{dropped} of the {asked} coordinates {why}"))
}
