//! The preconditioner of `K + αI`: randomly pivoted Cholesky.

use crate::apply::Tried;
use crate::compute::Device;
use crate::compute::ledger::ran;
use crate::linalg::{Panel, Part, eigh};
use crate::operator::Operator;
use crate::operator::cuda::Planned;
use crate::rng::Rng;
use crate::spectrum::{draw, over_roots, running_sums};
use crate::{Error, FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// `K ≈ UΣUᵀ` of low rank, and with it `(UΣUᵀ + αI)⁻¹` for any α: the preconditioner of `K + αI`.
///
/// By randomly pivoted Cholesky (Chen, Epperly, Tropp and Webber): pivots are drawn with the residual diagonal as their
/// probability, a block at a time, so that a few hundred rows of the operator are all it takes.
/// Example: [`conjugate_gradients`](crate::apply::conjugate_gradients), which takes one.
pub struct LowRankPreconditioner {
    /// Orthonormal columns `[n, r]`, on the context's device.
    u: Panel,
    /// Σ, descending `[r]`.
    sigma: Array1<f64>,
    /// The mean over the diagonal of what the low rank leaves of K.
    rest: f64,
}

impl LowRankPreconditioner {
    /// Of rank `rank` at most; less where the operator has less.
    pub fn new(operator: &dyn Operator, rank: usize, context: &FitContext<'_>) -> Result<LowRankPreconditioner> {
        LowRankPreconditioner::growing(operator, [rank; 2], 0.0, context)
    }

    /// Of the first rank, from `least` on, that leaves no more than `rest` of the diagonal of K on average; `most` at most. With α for `rest`, more
    /// would not be seen beside α.
    pub(crate) fn growing(
        operator: &dyn Operator,
        [least, most]: [usize; 2],
        rest: f64,
        context: &FitContext<'_>,
    ) -> Result<LowRankPreconditioner> {
        let (n, trace) = (operator.n() as f64, operator.diagonal()?.sum());
        let f = pivoted_cholesky(operator, [least, most.min(operator.n())], rest, context)?;
        // FFᵀ = UΣUᵀ with FᵀF = VΣVᵀ and U = F V Σ^{−1/2}.
        let (mut sigma, v) = eigh(context.device, f.t_matmul(&f)?.view())?;
        sigma.truncate(sigma.iter().take_while(|&&s| s > 1e-13 * sigma[0]).count());
        let rest = ((trace - sigma.iter().sum::<f64>()) / n).max(0.0);
        Ok(LowRankPreconditioner { u: f.matmul(over_roots(&v, &sigma).view())?, sigma: sigma.into(), rest })
    }

    /// The errors of predicting each point from the others under `K ≈ UΣUᵀ + δI`, with the trace of K: one space for all α. `y` is `[n, m]`,
    /// on the device of the preconditioner, and so is the result. With `ν = δ + α` they are `c_i/G_ii` for
    ///
    /// `c = y/ν − U T Uᵀy`, `G_ii = 1/ν − Σ_j u_ij² T_j`, `T_j = 1/ν − 1/(σ_j + ν) ≥ 0`
    fn left_out_errors(&self, alpha: f64, y: &Panel) -> Result<Panel> {
        let (ν, sharding) = (self.rest + alpha, y.sharding());
        let t = self.sigma.mapv(|s| s / (ν * (s + ν)));
        let mut c = y.try_clone()?;
        c.scale(&vec![1.0 / ν; y.ncols()])?;
        let mut c = self.changed(c, y, |s| -s / (ν * (s + ν)))?;
        let own = Array2::from_elem((sharding.rows(y.nrows()).len(), 1), 1.0 / ν);
        let mut g = Panel::sharded(y.device(), sharding, own)?;
        let mut roots = self.u.try_clone()?;
        roots.scale(&t.mapv(f64::sqrt).to_vec())?;
        g.subtract_row_squares(&roots);
        // No element of the diagonal of an inverse is less than the least eigenvalue of it, whatever rounding says.
        let least = 1.0 / (self.sigma.first().copied().unwrap_or(0.0) + ν);
        let inverse = g.own_through_host(|g| Ok(g.mapv(|g| g.max(least).recip())))?;
        c.scale_rows(&inverse);
        Ok(c)
    }

    /// The mean squared error of predicting each point from the others, for each α.
    pub(crate) fn left_out_error(&self, grid: &[f64], y: ArrayView2<f64>) -> Result<Vec<Tried>> {
        let (n, y) = (y.nrows() as f64, self.u.sharding().panel(self.u.device(), y)?);
        let tried = |&value: &f64| {
            let errors = self.left_out_errors(value, &y)?;
            Ok(Tried { value, error: errors.dots(&errors)?.sum() / n })
        };
        grid.iter().map(tried).collect()
    }

    /// The prediction of each point from the others `[n, m]`.
    pub(crate) fn left_out_scores(&self, alpha: f64, y: ArrayView2<f64>) -> Result<Array2<f64>> {
        let errors = self.left_out_errors(alpha, &self.u.sharding().panel(self.u.device(), y)?)?;
        Ok(&y - &errors.into_host()?)
    }

    /// `α (UΣUᵀ + αI)⁻¹ V = V − U Σ(Σ + α)⁻¹ UᵀV` for `V` `[n, m]`, on the device of the preconditioner. The factor α stays:
    /// it may be small, and it does not change conjugate gradients.
    pub fn solve(&self, alpha: f64, v: &Panel) -> Result<Panel> {
        self.changed(v.try_clone()?, v, |s| -s / (s + alpha))
    }

    /// `(UΣUᵀ + αI)^{1/2} V = √α V + U(√(Σ + α) − √α)UᵀV` for `V` `[n, m]`.
    pub(crate) fn root(&self, alpha: f64, v: &Panel) -> Result<Panel> {
        let mut outside = v.try_clone()?;
        outside.scale(&vec![alpha.sqrt(); v.ncols()])?;
        // √(s + α) − √α without cancellation
        self.changed(outside, v, |s| s / ((s + alpha).sqrt() + alpha.sqrt()))
    }

    /// `V' + U change(Σ) UᵀV` for `V'` and `V` `[n, m]`.
    fn changed(&self, mut outside: Panel, v: &Panel, change: impl Fn(f64) -> f64) -> Result<Panel> {
        let inside = self.u.t_matmul(v)? * self.sigma.mapv(change).insert_axis(Axis(1));
        outside.add_product(1.0, &self.u, inside.view())?;
        Ok(outside)
    }

    /// r
    pub(crate) fn rank(&self) -> usize {
        self.sigma.len()
    }

    /// The first r columns of U `[n, r]`, or all.
    pub(crate) fn into_basis(self, r: usize) -> Result<Panel> {
        if r < self.u.ncols() { self.u.columns(0..r) } else { Ok(self.u) }
    }

    /// `log|UΣUᵀ + αI| = Σ_j log(σ_j + α) + (n − r) log α`
    pub(crate) fn log_determinant(&self, alpha: f64) -> f64 {
        self.sigma.mapv(|s| (s + alpha).ln()).sum() + self.outside() * alpha.ln()
    }

    /// `tr (UΣUᵀ + αI)⁻¹`
    pub(crate) fn inverse_trace(&self, alpha: f64) -> f64 {
        self.sigma.mapv(|s| 1.0 / (s + alpha)).sum() + self.outside() / alpha
    }

    /// `n − r`
    fn outside(&self) -> f64 {
        (self.u.nrows() - self.sigma.len()) as f64
    }
}

/// Pivots of a step.
const BLOCK: usize = 64;

/// Plans the memory of a GPU for a preconditioner of `n` points that are on it: the pieces of F, F, and U.
pub(crate) fn plan(planned: &mut Planned, n: usize, rank: usize) {
    let mut pieces = vec![];
    for first in (0..rank).step_by(BLOCK) {
        let width = BLOCK.min(rank - first);
        let points = planned.gathered(width);
        let g = planned.block([n, width]);
        planned.release(points);
        pieces.push(planned.matrix([n, width]));
        planned.release(g);
    }
    let f = planned.matrix([n, rank]);
    pieces.into_iter().for_each(|piece| planned.release(piece));
    planned.matrix([n, rank]);
    planned.release(f);
}

/// `F` `[n, r]` with `FFᵀ ≈ K` and `K − FFᵀ` positive semi-definite, on the context's device: r is the first from `least` to `most` for which
/// the mean of the diagonal that is left is `rest` at most. Of its steps the host sees the residual diagonal, from which pivots are drawn, and the
/// pivot blocks.
fn pivoted_cholesky(
    operator: &dyn Operator,
    [least, most]: [usize; 2],
    rest: f64,
    context: &FitContext<'_>,
) -> Result<Panel> {
    let (n, device) = (operator.n(), context.device);
    ran("low-rank approximations of a preconditioner", device, 1);
    let mut rng = Rng::new(context.seed).fork(0x7069_766f);
    let diagonal = operator.diagonal()?.mapv(|d| d.max(0.0));
    let trace = diagonal.sum();
    if !(trace > 0.0 && trace.is_finite()) {
        return Err(Error::Numerical(format!("the kernel matrix has the trace {trace}; it needs a number above zero")));
    }
    let mut left = operator.sharding().panel(device, diagonal.insert_axis(Axis(1)).view())?;
    let (mut known, mut chosen, mut done): (Vec<Panel>, Vec<usize>, usize) = (vec![], vec![], 0);
    while done < most {
        let mut weight = left.to_host()?.remove_axis(Axis(1));
        chosen.iter().for_each(|&i| weight[i] = 0.0);
        let sum = weight.sum();
        if sum <= 1e-13 * trace || (done >= least && sum <= rest * n as f64) {
            break;
        }
        let pivots = draw_some(&weight, BLOCK.min(most - done), &mut rng);
        let at = Part::Rows(&pivots);
        // The residual columns G = K[:, S] − F F[S]ᵀ, of which G[S] = QΛQᵀ is the pivot block.
        let mut g = operator.block_panel(&Part::All, &at, device)?;
        for f in &known {
            g.add_product(-1.0, f, f.rows(&at)?.to_host()?.t())?;
        }
        // Pivots that depend on each other give a singular block; only its non-zero eigenvalues are kept: F ← [F, G QΛ^{−1/2}].
        let (λ, q) = eigh(Device::Cpu, g.rows(&at)?.to_host()?.view())?;
        let kept = λ.iter().take_while(|&&l| l > 1e-10 * λ[0] && l > 1e-13 * trace / n as f64).count();
        let new = g.matmul(over_roots(&q, &λ[..kept]).view())?;
        left.subtract_row_squares(&new);
        known.push(new);
        done += kept;
        chosen.extend(pivots);
        context.progress.step("low-rank approximation", done, most, "");
    }
    if known.is_empty() { left.columns(0..0) } else { Panel::concatenated(&known) }
}

/// Up to `count` different indices, each drawn with probability proportional to `weight`.
fn draw_some(weight: &Array1<f64>, count: usize, rng: &mut Rng) -> Vec<usize> {
    let sums = running_sums(weight.as_slice().expect("own array"));
    let mut drawn: Vec<usize> = (0..count).map(|_| draw(&sums, rng.uniform() * sums[sums.len() - 1])).collect();
    drawn.sort_unstable();
    drawn.dedup();
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::linalg::Cholesky;
    use crate::operator::{DenseOperator, gram};

    fn preconditioner(operator: &dyn Operator, rank: usize, seed: u64) -> LowRankPreconditioner {
        LowRankPreconditioner::new(operator, rank, &FitContext { seed, ..FitContext::default() }).unwrap()
    }

    fn matrix(kernel: &str, x: &Array2<f64>) -> Array2<f64> {
        gram(&Kernel::parse(kernel).unwrap(), x.view(), Device::Cpu).unwrap()
    }

    fn points(n: usize, d: usize) -> Array2<f64> {
        Rng::new(5).normals((n, d))
    }

    #[test]
    fn full_rank_is_the_inverse() {
        let x = points(120, 2);
        let k = matrix("laplacian(1)", &x);
        let p = preconditioner(&DenseOperator::new(k.clone()), 120, 0);
        let v = points(120, 3);
        let shifted = &k + &(0.1 * Array2::<f64>::eye(120));
        let back = p.solve(0.1, &shifted.dot(&v).into()).unwrap().into_host().unwrap() / 0.1;
        assert!((back - v).iter().all(|d| d.abs() < 1e-8));
    }

    /// The functions of `P = UΣUᵀ + αI` from the matrix written out.
    #[test]
    fn functions_of_the_matrix_are_those_of_its_eigenvalues() {
        let p = preconditioner(&DenseOperator::new(matrix("laplacian(1)", &points(50, 2))), 15, 0);
        let (u, alpha) = (p.u.to_host().unwrap(), 0.3);
        let dense = (&u * &p.sigma).dot(&u.t()) + Array2::<f64>::eye(50) * alpha;
        let (λ, _) = eigh(Device::Cpu, dense.view()).unwrap();
        assert!((p.log_determinant(alpha) - λ.iter().map(|λ| λ.ln()).sum::<f64>()).abs() < 1e-9);
        assert!((p.inverse_trace(alpha) - λ.iter().map(|λ| 1.0 / λ).sum::<f64>()).abs() < 1e-9);
        let v = points(50, 3);
        let twice = p.root(alpha, &p.root(alpha, &v.clone().into()).unwrap()).unwrap().into_host().unwrap();
        assert!((twice - dense.dot(&v)).iter().all(|d| d.abs() < 1e-9));
    }

    #[test]
    fn a_low_rank_kernel_is_found_whole() {
        // Quadratic in two dimensions: rank 6.
        let k = DenseOperator::new(matrix("poly(degree=2, offset=1)", &points(300, 2)));
        assert_eq!(preconditioner(&k, 100, 0).sigma.len(), 6);
    }

    #[test]
    fn the_rank_grows_until_little_is_left() {
        let x = points(400, 3);
        let k = DenseOperator::new(matrix("rbf(1)", &x));
        let context = FitContext::default();
        let grown = |ranks: [usize; 2], rest: f64| LowRankPreconditioner::growing(&k, ranks, rest, &context).unwrap();
        let (easy, hard, most) = (grown([20, 380], 0.2), grown([20, 380], 0.01), grown([20, 100], 1e-9));
        assert!(easy.rest <= 0.2 && hard.rest <= 0.01 && most.rest > 1e-9);
        let ranks = [&easy, &hard, &most].map(|p| p.sigma.len());
        assert!(ranks[0] < ranks[1] && ranks[1] < 380 && ranks[2] == 100, "{ranks:?}");
        // No more than one block of pivots beyond what is needed.
        assert!(grown([20, ranks[1] - 64], 0.01).rest > 0.01, "{ranks:?}");
        assert_eq!(hard.into_basis(30).unwrap().ncols(), 30);
    }

    #[test]
    fn the_condition_number_falls_with_the_rank() {
        let x = points(200, 2);
        let k = matrix("rbf(1)", &x);
        let alpha = 1e-3;
        let shifted = &k + &(alpha * Array2::<f64>::eye(200));
        let condition = |rank: usize| {
            let p = preconditioner(&DenseOperator::new(k.clone()), rank, 1);
            // P^{−1/2} A P^{−1/2} is similar to P⁻¹A; its eigenvalues through the symmetric A^{1/2} P⁻¹ A^{1/2}.
            let (λ, u) = eigh(Device::Cpu, shifted.view()).unwrap();
            let root = (&u * &Array1::from(λ).mapv(f64::sqrt)).dot(&u.t());
            let solved = p.solve(alpha, &root.clone().into()).unwrap().into_host().unwrap();
            let (λ, _) = eigh(Device::Cpu, root.dot(&solved).view()).unwrap();
            λ[0] / λ[199]
        };
        let (few, many) = (condition(10), condition(60));
        assert!(many < 0.05 * few, "{few} {many}");
        assert!(many < 50.0, "{many}");
    }

    /// Under `UΣUᵀ + δI`, written out as a dense matrix, each point is predicted from the others.
    #[test]
    fn leave_one_out_is_that_of_the_low_rank_matrix() {
        let (x, y) = (points(60, 2), points(60, 2));
        let p = preconditioner(&DenseOperator::new(matrix("laplacian(1)", &x)), 20, 0);
        let u = p.u.to_host().unwrap();
        let k = (&u * &p.sigma).dot(&u.t()) + Array2::<f64>::eye(60) * p.rest;
        assert!(p.rest > 0.05 && (k.diag().sum() - 60.0).abs() < 1e-10);
        for alpha in [1e-3, 0.1] {
            let scores = p.left_out_scores(alpha, y.view()).unwrap();
            for i in [0, 17, 59] {
                let rest: Vec<usize> = (0..60).filter(|&j| j != i).collect();
                let mut inner = k.select(Axis(0), &rest).select(Axis(1), &rest);
                inner.diag_mut().mapv_inplace(|d| d + alpha);
                let c =
                    Cholesky::new(Device::Cpu, inner.view()).unwrap().solve(y.select(Axis(0), &rest).view()).unwrap();
                let want = k.select(Axis(0), &[i]).select(Axis(1), &rest).dot(&c);
                assert!((0..2).all(|m| (scores[[i, m]] - want[[0, m]]).abs() < 1e-10));
            }
            let errors = p.left_out_error(&[alpha], y.view()).unwrap();
            let mean = (&scores - &y).mapv(|e| e * e).sum() / 60.0;
            assert!((errors[0].error - mean).abs() < 1e-12);
        }
    }
}
