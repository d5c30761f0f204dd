use super::{KernelFeatures, Method, Problem, Solution, zero_threshold};
use crate::Result;
use crate::linalg::eigh;
use crate::operator::gram;
use ndarray::{Array2, ArrayView2, Axis, s};

/// The dense eigendecomposition of `K/n`: `ψ_j(x_i) = √n u_ij`, and elsewhere
/// `ψ_j(x) = (1/(n μ_j)) Σ_i κ(x, x_i) ψ_j(x_i)`.
pub struct Exact;

impl Method for Exact {
    fn name(&self) -> String {
        "exact".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let n = problem.x.nrows();
        // K, the eigenvectors, and faer's copy of the one and workspace of the other.
        let needed = 4 * (n as u64).pow(2) * 8;
        problem.context.budget.require(
            format!("the exact eigendecomposition of {n} points"),
            needed,
            "use the Krylov method, which does not store the kernel matrix, or the Nyström method",
        )?;
        problem.context.progress.step("exact", 0, 2, "kernel matrix");
        let k = gram::<f64>(problem.kernel, problem.x, problem.context.device)? / n as f64;
        problem.context.progress.step("exact", 1, 2, "eigendecomposition");
        let (eigenvalues, u) = eigh(problem.context.device, k.view())?;
        problem.context.progress.step("exact", 2, 2, "done");
        let threshold = zero_threshold(4e-15, eigenvalues[0]);
        Ok(from_eigenvectors(problem, eigenvalues[..problem.k].to_vec(), u.slice(s![.., ..problem.k]), threshold))
    }
}

/// The solution from eigenvalues `μ` of `K/n` and orthonormal eigenvectors `u` `[n, k]`; eigenvalues below
/// `threshold` become zero, and so do their functions.
pub(super) fn from_eigenvectors(
    problem: &Problem,
    mut eigenvalues: Vec<f64>,
    u: ArrayView2<f64>,
    threshold: f64,
) -> Solution {
    let n = problem.x.nrows() as f64;
    let mut at_points: Array2<f64> = &u * n.sqrt();
    let mut coefficients = at_points.clone();
    for (j, μ) in eigenvalues.iter_mut().enumerate() {
        if *μ <= threshold {
            *μ = 0.0;
            at_points.index_axis_mut(Axis(1), j).fill(0.0);
            coefficients.index_axis_mut(Axis(1), j).fill(0.0);
        } else {
            coefficients.index_axis_mut(Axis(1), j).mapv_inplace(|c| c / (n * *μ));
        }
    }
    let features = Box::new(KernelFeatures::new(problem.kernel, problem.x, &problem.context));
    Solution { eigenvalues, features, coefficients, at_points: Some(at_points) }
}
