//! Ridge regression by a factor or a decomposition of K, in one process.

use crate::Result;
use crate::apply::alpha::{LeaveOneOut, best, cross_validate, filtered_inverse, grid, squared_error};
use crate::apply::ridge::refinement::solve_positive_definite;
use crate::apply::ridge::system::{Solved, System};
use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
use crate::apply::{Alpha, Convergence, Tried};
use crate::context::ONE_STEP;
use crate::kernel::Kernel;
use crate::linalg::{Cholesky, eigh, matmul};
use crate::operator::{DenseOperator, Precision, gram_reported};
use ndarray::{Array2, ArrayView2, Axis};

/// Points up to which K is decomposed for leave-one-out. An eigendecomposition takes about forty times as long as a factor; above,
/// leave-one-out is that of `K ≈ UΣUᵀ + δI` of rank [`RANK`].
const DECOMPOSED: usize = 2000;

/// Rank for leave-one-out with a direct solver.
const RANK: usize = 2000;

/// Bytes that the direct solver takes: Cholesky holds K and its factor, an eigendecomposition two more matrices.
pub(crate) fn direct_memory(kernel: &Kernel, alpha: Alpha, n: usize) -> u64 {
    let decomposed = n <= DECOMPOSED && alpha == Alpha::LeaveOneOut;
    let matrices = if decomposed || matches!(alpha, Alpha::CrossValidation { .. }) { 4 } else { 2 };
    8 * (n as u64).pow(2) * (matrices + u64::from(kernel.sees_images()))
}

impl System<'_> {
    /// By factoring K.
    pub fn direct(&self, alpha: Alpha) -> Result<Solved> {
        let n = self.n();
        self.context.budget.require(
            format!("direct ridge regression on {n} points"),
            direct_memory(self.kernel, alpha, n),
            concat!(crate::advice!(ConjugateGradients), ", or fit fewer points"),
        )?;
        let mut k = self.matrix()?;
        if let Some(roots) = self.roots {
            k *= roots;
            k *= &roots.view().insert_axis(Axis(1));
        }
        let low_rank = match alpha {
            _ if n <= DECOMPOSED => None,
            Alpha::LeaveOneOut => Some(self.low_rank(RANK, &k)?),
            _ if self.left_out => Some(self.low_rank(RANK / 2, &k)?),
            _ => None,
        };
        let scale = k.diag().sum() / n as f64;
        let mut notes = vec![];
        let (alpha, tried) = match (alpha, &low_rank) {
            (Alpha::Fixed(alpha), _) => (alpha, vec![]),
            (Alpha::LeaveOneOut, Some(low_rank)) => best(low_rank.left_out_error(&grid(scale), self.y)?)?,
            (Alpha::LeaveOneOut, None) => return self.by_leave_one_out(k, &grid(scale)),
            (Alpha::CrossValidation { folds }, _) => {
                let (tried, note) = self.cross_validated(k.view(), folds, &grid(scale))?;
                notes.extend(note);
                best(tried)?
            }
        };
        let left_out = low_rank.map(|low_rank| low_rank.left_out_scores(alpha, self.y));
        let left_out = left_out.transpose()?;
        k.diag_mut().mapv_inplace(|d| d + alpha);
        self.context.progress.step("factorisation", 0, 1, ONE_STEP);
        if self.left_out && left_out.is_none() {
            return Ok(Solved { notes, ..self.with_inverse(k, alpha, tried)? });
        }
        let coefficients = solve_positive_definite(self.context.device, k, self.y, alpha)?;
        Ok(Solved { alpha, tried, coefficients, convergence: Convergence::default(), left_out, notes })
    }

    /// K `[n, n]`. A pair of images takes so long that the precision which was asked for is kept; other values are f64.
    fn matrix(&self) -> Result<Array2<f64>> {
        let (x, device, progress) = (self.x.into(), self.context.device, self.context.progress);
        if self.kernel.sees_images() && self.context.precision != Precision::F64 {
            return Ok(gram_reported::<f32>(self.kernel, x, device, progress)?.mapv(f64::from));
        }
        gram_reported(self.kernel, x, device, progress)
    }

    /// Of `k`, K̃ `[n, n]`. A pair of images takes so long that the matrix is read; other values are computed anew, which takes no memory.
    fn low_rank(&self, rank: usize, k: &Array2<f64>) -> Result<LowRankPreconditioner> {
        let rank = rank.min(self.n() / 2);
        if self.kernel.sees_images() {
            return LowRankPreconditioner::new(&DenseOperator::new(k.clone()), rank, self.context);
        }
        let operator = self.scaled(Box::new(self.context.kernel_operator(self.kernel, self.x)?));
        LowRankPreconditioner::new(operator.as_ref(), rank, self.context)
    }

    /// The solution with `A = K + αI` and the predictions of left-out points, `y_i − c_i/(A⁻¹)_ii`: few points, for all of `A⁻¹` is
    /// computed.
    fn with_inverse(&self, a: Array2<f64>, alpha: f64, tried: Vec<Tried>) -> Result<Solved> {
        let factor = Cholesky::new(self.context.device, a.view())?;
        let coefficients = factor.solve(self.y)?;
        let inverse = factor.solve(Array2::eye(a.nrows()).view())?;
        let left_out = &self.y - &(&coefficients / &inverse.diag().insert_axis(Axis(1)));
        Ok(Solved {
            alpha,
            tried,
            coefficients,
            convergence: Convergence::default(),
            left_out: Some(left_out),
            notes: vec![],
        })
    }

    /// One eigendecomposition serves every α, and the solution.
    fn by_leave_one_out(&self, k: Array2<f64>, grid: &[f64]) -> Result<Solved> {
        self.context.progress.step("eigendecomposition", 0, 1, ONE_STEP);
        let (λ, u) = eigh(self.context.device, k.view())?;
        drop(k);
        let points = LeaveOneOut { u: u.view(), λ: &λ, y: self.y };
        let (alpha, tried) = best(points.errors(grid))?;
        let left_out = self.left_out.then(|| points.scores(alpha));
        let coefficients = filtered_inverse(u.view(), &λ, matmul(u.t(), self.y).view(), alpha);
        Ok(Solved { alpha, tried, coefficients, convergence: Convergence::default(), left_out, notes: vec![] })
    }

    /// One eigendecomposition a fold serves every α.
    fn cross_validated(&self, k: ArrayView2<f64>, folds: usize, grid: &[f64]) -> Result<(Vec<Tried>, Option<String>)> {
        cross_validate(self.n(), folds, self.context, grid, |rest, out| {
            let rows = k.select(Axis(0), rest);
            let (λ, u) = eigh(self.context.device, rows.select(Axis(1), rest).view())?;
            let uy = matmul(u.t(), self.y.select(Axis(0), rest).view());
            // Predictions K[out, rest] U (Λ + α)⁻¹ Uᵀy.
            let ku = matmul(rows.select(Axis(1), out).t(), u.view());
            let truth = self.y.select(Axis(0), out);
            let error =
                |&alpha: &f64| squared_error(filtered_inverse(ku.view(), &λ, uy.view(), alpha).view(), truth.view());
            Ok(grid.iter().map(error).collect())
        })
    }
}
