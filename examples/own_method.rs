//! A method written outside the crate: subspace iteration in twenty lines. It decomposes every operator, and its result is
//! certified, evaluated at new points and saved like any other. `cargo run --release -p mercer --example own_method`

use mercer::data;
use mercer::kernel::Expression;
use mercer::rng::Rng;
use mercer::spectrum::{Krylov, Method, Problem, Solution, Spectrum};
use mercer::{FitContext, Result};
use mercer_engine::linalg::{eigh, orthonormal_basis};
use ndarray::{Array2, aview1, s};

/// `Q ← orthonormal basis of KQ`, again and again, then Rayleigh–Ritz: eigenpairs of `QᵀKQ`.
struct SubspaceIteration {
    rounds: usize,
}

impl Method for SubspaceIteration {
    fn name(&self) -> String {
        "subspace iteration".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let Problem { operator, k, context } = problem;
        let (n, mut rng) = (operator.n(), Rng::new(context.seed));
        let mut q = Array2::from_shape_simple_fn((n, (2 * k).min(n)), || rng.normal());
        for round in 0..self.rounds {
            q = orthonormal_basis(operator.apply(q.view())?)?;
            context.progress.step("subspace iteration", round + 1, self.rounds, "");
        }
        let (θ, v) = eigh(context.device, q.t().dot(&operator.apply(q.view())?).view())?;
        let (θ, u) = (θ[..*k].to_vec(), q.dot(&v.slice(s![.., ..*k])));
        // ψ_j(x) = Σ_i κ(x, x_i) u_ij √n/θ_j
        let coefficients = u * (n as f64).sqrt() / aview1(&θ);
        let eigenvalues = θ.iter().map(|θ| θ / n as f64).collect();
        Ok(Solution::new(eigenvalues, operator.extend(None, coefficients)?))
    }
}

fn main() -> Result<()> {
    let (fit, held_out) = data::open("digits", &Default::default())?.split(0.2, 0)?;
    let (x, new) = (fit.x.to_f64(), held_out.x.to_f64());
    let kernel = Expression::parse("rbf(lengthscale=median)")?.resolve(x.view(), 0)?;
    let operator = FitContext::default().kernel_operator(&kernel, x.view())?;
    for method in [&SubspaceIteration { rounds: 20 } as &dyn Method, &Krylov::default()] {
        let spectrum = Spectrum::fit(method, &Problem::new(&operator, 5), Some(new.view().into()))?;
        let residual = spectrum.certificate.worst_residual();
        println!("{:>18}: μ = {:.5?}, worst residual {residual:.1e}", method.name(), spectrum.eigenvalues);
        assert!(residual < 1e-2);
    }
    Ok(())
}
