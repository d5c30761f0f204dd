//! The dense eigendecomposition.

use super::{EigenPairs, Eigenvectors, Method, Problem, Size, Solution, zero_threshold};
use crate::compute::Device;
use crate::context::ONE_STEP;
use crate::linalg::{Panel, eigh};
use crate::operator::LowRankOperator;
use crate::options::{Caps, Entry};
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, s};

/// The dense eigendecomposition of `K/n`: `ψ_j(x_i) = √n u_ij`, and elsewhere
/// `ψ_j(x) = (1/(n μ_j)) Σ_i κ(x, x_i) ψ_j(x_i)`.
///
/// Where `K = FᵀF/S` is of low rank, the smaller of `FᵀF` and `FFᵀ` is decomposed, which have the same eigenvalues.
///
/// ```
/// use mercer::{operator::LowRankOperator, spectrum::{Exact, Problem, Spectrum}};
/// let f = ndarray::array![[1.0, 2.0, 0.0], [0.0, 2.0, 4.0]]; // two functions at three points
/// let operator = LowRankOperator::new(f)?;
/// let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 3), None)?;
/// assert!((spectrum.eigenvalues.iter().sum::<f64>() - 25.0 / 6.0).abs() < 1e-12); // ‖F‖²/(S n)
/// assert_eq!(spectrum.eigenvalues[2], 0.0); // two functions span two dimensions
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Exact;

impl Method for Exact {
    fn name(&self) -> String {
        "exact".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        match problem.operator.low_rank() {
            Some(f) => low_rank(problem, f),
            None => dense(problem),
        }
    }

    fn eigenvectors(&self, problem: &Problem) -> Result<Eigenvectors> {
        Exact::require(problem.operator.n(), &problem.context)?;
        let k = problem.operator.to_dense(problem.context.progress)?;
        let (mut values, u) = decomposed(&problem.context, k.view())?;
        values.truncate(problem.k);
        Ok(Eigenvectors { values, vectors: u.slice(s![.., ..problem.k]).to_owned(), notes: vec![] })
    }
}

impl Exact {
    pub(crate) fn entry() -> Entry<Size> {
        Entry {
            can: Caps { shards: true, ..Caps::default() },
            ..Entry::<Size>::new("exact", "dense eigendecomposition; time grows like n³", vec![], |_, _| {
                Ok(Box::new(Exact))
            })
        }
    }

    /// Refuses more points than the memory has room for; returns the bytes that are needed beside K.
    pub(crate) fn require(n: usize, context: &FitContext) -> Result<u64> {
        // K, the eigenvectors, and faer's copy of the one and workspace of the other.
        let matrix = (n as u64).pow(2) * 8;
        context.budget.require(
            format!("the exact eigendecomposition of {n} points"),
            4 * matrix,
            concat!(
                "use ",
                crate::advice!(Krylov),
                ", which does not store the kernel matrix, or ",
                crate::advice!(Nystrom)
            ),
        )?;
        Ok(matrix)
    }
}

fn dense(problem: &Problem) -> Result<Solution> {
    let (n, context) = (problem.operator.n(), &problem.context);
    Exact::require(n, context)?;
    let k = problem.operator.to_dense(context.progress)? / n as f64;
    let (eigenvalues, u) = decomposed(context, k.view())?;
    let _keeps = context.keeps_best();
    let threshold = zero_threshold(4e-15, eigenvalues[0]);
    let at_points = &problem.operator.sharding().own(u.slice(s![.., ..problem.k])) * (n as f64).sqrt();
    let next = eigenvalues.get(problem.k).copied();
    let solution = extended(problem, eigenvalues[..problem.k].to_vec(), at_points, None, threshold)?;
    Ok(Solution { next, ..solution })
}

/// The eigendecomposition of a symmetric matrix `[n, n]`, with progress.
pub(super) fn decomposed(context: &FitContext, a: ArrayView2<f64>) -> Result<EigenPairs> {
    context.progress.step("eigendecomposition", 0, 1, ONE_STEP);
    let found = eigh(context.device, a)?;
    context.progress.step("eigendecomposition", 1, 1, "");
    Ok(found)
}

/// With `FFᵀ/S = UΛUᵀ`, the vectors `v = Fᵀu` are eigenvectors of `FᵀF/S`.
fn low_rank(problem: &Problem, f: &LowRankOperator) -> Result<Solution> {
    let ((count, m), context) = (f.dim(), &problem.context);
    let least = count.min(m) as u64;
    context.budget.require(
        format!("the eigendecomposition of {count} functions of {m} values"),
        4 * 8 * least * least,
        concat!("use ", crate::advice!(Krylov), ", which reads the samples again and again instead"),
    )?;
    context.progress.step("products of functions", 0, 1, "");
    let gram = f.smaller_gram();
    let (values, u) = decomposed(context, gram.view())?;
    let _keeps = context.keeps_best();
    let found = problem.k.min(values.len());
    let u = u.slice(s![.., ..found]);
    let v = if m <= count { u.to_owned() } else { f.pulled(u) };
    let mut at_points = Array2::zeros((m, problem.k));
    let mut eigenvalues = vec![0.0; problem.k];
    for (j, v) in v.columns().into_iter().enumerate() {
        eigenvalues[j] = values[j] / m as f64;
        at_points.column_mut(j).assign(&(&v * (m as f64 / v.dot(&v)).sqrt()));
    }
    let next = values.get(problem.k).map(|value| value / m as f64);
    let solution = extended(problem, eigenvalues, at_points, None, zero_below(problem, values[0] / m as f64))?;
    Ok(Solution { next, ..solution })
}

/// Eigenvalues of `K/n` below this are numerically zero, where `largest` is the largest.
pub(super) fn zero_below(problem: &Problem, largest: f64) -> f64 {
    // Sums over functions or points of products of samples.
    let terms = problem.operator.low_rank().map_or(1, |f| f.dim().0.max(f.dim().1));
    zero_threshold(problem.operator.roundoff(), largest) * terms as f64
}

/// The solution from eigenvalues `μ` of `K/n`, functions `ψ` `[n, k]` on the sample with `ψᵀψ/n = I`, and `Kψ` where it is known (both in the rows of
/// this rank, where vectors are sharded):
/// `ψ_j(x) = (1/(n μ_j)) Σ_i κ(x, x_i) ψ_j(x_i)`. Eigenvalues below `threshold` become zero, and so do their functions.
///
/// On the sample, this function takes the values `Kc` of its coefficients `c`, and not those of the vector that it was made
/// from: with the latter, `Kψ − μψ` would vanish by definition, whatever the vector.
pub(super) fn extended(
    problem: &Problem,
    mut eigenvalues: Vec<f64>,
    ψ: Array2<f64>,
    image: Option<Array2<f64>>,
    threshold: f64,
) -> Result<Solution> {
    let n = problem.operator.n() as f64;
    eigenvalues.iter_mut().filter(|μ| **μ <= threshold).for_each(|μ| *μ = 0.0);
    let scale: Array1<f64> = eigenvalues.iter().map(|μ| if *μ > 0.0 { 1.0 / (n * μ) } else { 0.0 }).collect();
    let coefficients = ψ * &scale;
    let at_points = match image {
        Some(image) => image * &scale,
        None => {
            let sharded = Panel::sharded(Device::Cpu, &problem.operator.sharding(), coefficients.clone())?;
            problem.operator.apply_panel(&sharded)?.into_own_rows()?
        }
    };
    let extension = problem.operator.extend(None, coefficients)?;
    Ok(Solution { at_points: Some(at_points), ..Solution::new(eigenvalues, extension) })
}
