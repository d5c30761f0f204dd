use crate::linalg::eigh;
use crate::operator::Operator;
use crate::spectrum::top_pairs;
use crate::{FitContext, Result};
use ndarray::{Array2, Axis, s};

/// How eigenpairs are found.
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
    /// The solver for `k` pairs of `n` points: below a few hundred points, or for a sixth of all pairs, dense is faster.
    pub(super) fn chosen(self, n: usize, k: usize) -> EigenSolver {
        match self {
            EigenSolver::Auto if n <= 400 || (k + 8) * 6 >= n => EigenSolver::Exact,
            EigenSolver::Auto => EigenSolver::Krylov,
            chosen => chosen,
        }
    }

    /// Bytes that finding `k` pairs of `n` points takes beside the operator; refused where memory has no room for them.
    pub(super) fn require(self, n: usize, k: usize, context: &FitContext) -> Result<u64> {
        let (what, needed, instead) = match self.chosen(n, k) {
            EigenSolver::Exact => (
                format!("the exact eigendecomposition of {n} points"),
                4 * (n as u64).pow(2) * 8,
                "use the Krylov solver, which does not store the matrix",
            ),
            // The solver keeps up to six blocks of k + 8 vectors and their images.
            _ => (
                format!("the Krylov basis for k = {k} at {n} points"),
                18 * (n * (k + 8)) as u64 * 8,
                "ask for fewer coordinates",
            ),
        };
        context.budget.require(what, needed, instead)?;
        Ok(needed)
    }

    /// The `k` largest eigenvalues of `operator`, descending, and their orthonormal vectors `[n, k]`. `tolerance` is the
    /// residual at which the Krylov iteration accepts a pair.
    pub(super) fn pairs(
        self,
        operator: &dyn Operator,
        k: usize,
        tolerance: f64,
        context: &FitContext,
    ) -> Result<(Vec<f64>, Array2<f64>)> {
        let n = operator.n();
        if self.chosen(n, k) != EigenSolver::Exact {
            let top = top_pairs(operator, k, tolerance, context)?;
            return Ok((top.values, top.vectors));
        }
        let all: Vec<usize> = (0..n).collect();
        let (mut values, vectors) = eigh(context.device, operator.block(&all, &all)?.view())?;
        values.truncate(k);
        Ok((values, vectors.slice(s![.., ..k]).to_owned()))
    }
}

/// Fixes the sign that an eigenvector leaves open: the entry of the largest magnitude of each column is positive.
pub(super) fn fix_signs(u: &mut Array2<f64>) {
    for mut column in u.axis_iter_mut(Axis(1)) {
        let largest = column.iter().fold(0.0f64, |m, &v| if v.abs() > m.abs() { v } else { m });
        if largest < 0.0 {
            column.mapv_inplace(|v| -v);
        }
    }
}

/// The note on coordinates that were asked for but have no eigenvalue above rounding.
pub(super) fn dropped(asked: usize, kept: usize) -> Option<String> {
    let dropped = asked - kept;
    (dropped > 0).then(|| format!("{dropped} of the {asked} coordinates do not exist: their eigenvalue is zero"))
}
