use super::exact::from_eigenvectors;
use super::{Method, Problem, Progress, Solution, zero_threshold};
use crate::linalg::{eigh, matmul, orthonormal_basis};
use crate::operator::{DenseOperator, KernelOperator, Operator, Precision, gram};
use crate::rng::Rng;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis, concatenate, s};

/// The top k pairs by block Krylov iteration on the operator. K is kept in memory only where it fits easily;
/// otherwise every product computes it anew, tile by tile, and n is bounded by patience alone.
pub struct Krylov {
    /// Residual `‖Kψ − μψ‖/μ` at which a pair is done.
    pub tolerance: f64,
}

impl Default for Krylov {
    fn default() -> Self {
        Krylov { tolerance: 1e-6 }
    }
}

impl Method for Krylov {
    fn name(&self) -> String {
        "krylov".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let n = problem.x.nrows() as u64;
        let basis = 3 * n * (largest_basis(block_size(problem.k)) as u64) * 8;
        problem.budget.require(
            format!("the Krylov basis for k = {} at {n} points", problem.k),
            basis,
            "ask for fewer pairs, or use --method nystrom",
        )?;
        // A stored matrix is read faster than it is computed; a third of the budget is no burden.
        let stored = problem.budget.allows(basis + 3 * n * n * problem.precision.bytes());
        let operator: Box<dyn Operator> = match (stored, problem.precision) {
            (true, Precision::F32 | Precision::Tf32) => {
                Box::new(DenseOperator::new(gram::<f32>(problem.kernel, problem.x)))
            }
            (true, Precision::F64) => Box::new(DenseOperator::new(gram::<f64>(problem.kernel, problem.x))),
            (false, precision) => Box::new(KernelOperator::new(problem.kernel, problem.x, precision)),
        };
        let top = top_pairs(operator.as_ref(), problem.k, self.tolerance, problem.seed, problem.progress)?;
        let threshold = zero_threshold(operator.roundoff(), top.values[0]) / n as f64;
        let values = top.values.iter().map(|θ| θ / n as f64).collect();
        let mut solution = from_eigenvectors(problem, values, top.vectors.view(), threshold);
        // The function `Σ_i κ(·,x_i) u_i √n/θ` takes the value `√n Ku/θ` at the points, which is `√n u` only once the
        // iteration has converged; the certificate must see the function itself.
        let mut at_points = top.images;
        for ((mut column, θ), μ) in at_points.axis_iter_mut(Axis(1)).zip(&top.values).zip(&solution.eigenvalues) {
            column *= if *μ > 0.0 { (n as f64).sqrt() / θ } else { 0.0 };
        }
        solution.at_points = Some(at_points);
        Ok(solution)
    }
}

/// The largest eigenvalues of an operator and their vectors.
pub struct TopPairs {
    /// Eigenvalues of K, descending `[k]`.
    pub values: Vec<f64>,
    /// Orthonormal eigenvectors u `[n, k]`.
    pub vectors: Array2<f64>,
    /// `Ku` `[n, k]`
    pub images: Array2<f64>,
    /// `‖Ku − θu‖ / θ_1` of each pair.
    pub residuals: Vec<f64>,
    /// Products with K that it took, each with a block of vectors.
    pub products: usize,
}

/// Vectors per product: a few more than wanted, so that the last pairs converge as fast as the first.
fn block_size(k: usize) -> usize {
    k + 8
}

/// Vectors kept before a restart.
fn largest_basis(block: usize) -> usize {
    (6 * block).clamp(48, 600.max(3 * block))
}

/// The `k` largest eigenpairs of a symmetric positive semi-definite operator, by block Krylov iteration with
/// Rayleigh–Ritz over the whole basis and thick restarts. Both the basis `Q` and `KQ` are kept, so every residual
/// `‖Ku − θu‖` is measured, not estimated. A pair is done when it is below `tolerance · θ`, or below the rounding of K.
pub fn top_pairs(
    operator: &dyn Operator,
    k: usize,
    tolerance: f64,
    seed: u64,
    progress: &dyn Progress,
) -> Result<TopPairs> {
    const MOST_PRODUCTS: usize = 300;
    let n = operator.n();
    let (block, room) = (block_size(k).min(n), largest_basis(block_size(k)).min(n));
    let mut rng = Rng::new(seed).fork(0x6b72_796c);
    let mut fresh = orthonormal_basis(Array2::from_shape_simple_fn((n, block), || rng.normal()))?;
    let mut q = Array2::<f64>::zeros((n, 0));
    let mut kq = q.clone();
    for products in 1.. {
        let image = operator.apply(fresh.view());
        (q, kq) = (joined(&q, &fresh), joined(&kq, &image));
        let (θ, rotation) = ritz_pairs(&q, &kq)?;
        let found = k.min(θ.len());
        let rotation = rotation.slice(s![.., ..found.max(block).min(θ.len())]);
        let (vectors, images) = (matmul(q.view(), rotation), matmul(kq.view(), rotation));
        let residuals: Vec<f64> = (0..found)
            .map(|j| (&images.column(j) - &(θ[j] * &vectors.column(j))).mapv(|r| r * r).sum().sqrt())
            .collect();
        let floor = 3.0 * operator.roundoff() * θ[0];
        let done = residuals.iter().zip(&θ).filter(|(r, θ)| **r <= (tolerance * **θ).max(floor)).count();
        let worst = residuals.iter().zip(&θ).map(|(r, θ)| r / θ.max(floor)).fold(0.0, f64::max);
        progress.step("krylov", done, k, &format!("product {products}, worst residual {worst:.1e}"));

        let mut next = image;
        for _ in 0..2 {
            next = &next - &matmul(q.view(), matmul(q.t(), next.view()).view());
        }
        // What is left of K Q outside of Q is rounding: the space is invariant and holds every non-zero pair.
        let exhausted = next.iter().all(|r| r.abs() <= floor / (n as f64).sqrt()) || q.ncols() >= n;
        if done == k || exhausted {
            let [vectors, images] = [vectors, images].map(|m| padded(m.slice(s![.., ..found]), k));
            let scale = θ[0].max(f64::MIN_POSITIVE);
            let pad = |values: Vec<f64>| values.into_iter().chain(std::iter::repeat(0.0)).take(k).collect();
            let residuals = pad(residuals.iter().map(|r| r / scale).collect());
            return Ok(TopPairs { values: pad(θ[..found].to_vec()), vectors, images, residuals, products });
        }
        if products == MOST_PRODUCTS {
            return Err(Error::NoConvergence {
                what: "the Krylov iteration",
                iterations: products,
                residual: worst,
                tolerance,
                instead: "ask for fewer pairs, or a larger --tolerance",
            });
        }
        if q.ncols() + block > room {
            (q, kq) = (vectors, images);
        }
        fresh = orthonormal_basis(next)?;
        fresh = orthonormal_basis(&fresh - &matmul(q.view(), matmul(q.t(), fresh.view()).view()))?;
    }
    unreachable!("the loop returns")
}

/// Rayleigh–Ritz on an orthonormal basis: eigenpairs of `QᵀKQ`.
fn ritz_pairs(q: &Array2<f64>, kq: &Array2<f64>) -> Result<(Vec<f64>, Array2<f64>)> {
    let t = matmul(q.t(), kq.view());
    eigh(((&t + &t.t()) * 0.5).view())
}

fn joined(a: &Array2<f64>, b: &Array2<f64>) -> Array2<f64> {
    concatenate(Axis(1), &[a.view(), b.view()]).expect("equal heights")
}

/// Exactly `k` columns: where the operator had fewer pairs, the rest are zero.
fn padded(found: ArrayView2<f64>, k: usize) -> Array2<f64> {
    let mut all = Array2::zeros((found.nrows(), k));
    all.slice_mut(s![.., ..found.ncols()]).assign(&found);
    all
}
