//! Cholesky at the speed of single precision with the answer of double precision.

use crate::Result;
use crate::apply::solvers::conjugate_gradients::{excess, largest};
use crate::compute::Device;
use crate::linalg::Cholesky;
use crate::operator::{DenseOperator, Operator};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis};
use rayon::prelude::*;

/// `A⁻¹B` `[n, m]` for a symmetric positive definite `A` `[n, n]` whose eigenvalues are at least `smallest`.
///
/// Where `‖A‖/smallest` allows it, A is factored in single precision, in half the time, and the solution refined,
/// `X ← X + Ã⁻¹(B − AX)`, until it is as good as the factor in double precision would have made it (LAPACK's `dsposv`);
/// else, when the refinement stalls, or on a GPU, A is factored in double precision.
pub(crate) fn solve_positive_definite(
    device: Device,
    a: Array2<f64>,
    b: ArrayView2<f64>,
    smallest: f64,
) -> Result<Array2<f64>> {
    /// Below this a factor in double precision takes no time.
    const FEW: usize = 500;
    /// Condition number up to which a factor in single precision (rounding 6e-8) refines quickly.
    const CONDITION: f64 = 3e6;
    let a = DenseOperator::new(a);
    // On a GPU a factor in double precision is faster than refinement on the host.
    if device == Device::Cpu && a.n() > FEW && infinity_norm(a.matrix()) < CONDITION * smallest {
        let single = in_single_precision(a.matrix());
        if let Ok(factor) = Cholesky::new(device, single.t())
            && let Some(x) = refined(&a, &factor, b)?
        {
            return Ok(x);
        }
    }
    // A is symmetric, and its transpose is stored by columns, as the factorisation needs it.
    Cholesky::new(device, a.matrix().t())?.solve(b)
}

/// `X ← X + Ã⁻¹R`, `R = B − AX`, as long as that halves the residual; none unless then `‖r‖ ≤ √n ε ‖A‖‖x‖` in each column.
fn refined(a: &DenseOperator<f64>, factor: &Cholesky<f32>, b: ArrayView2<f64>) -> Result<Option<Array2<f64>>> {
    const ROUNDS: usize = 30;
    let goal = (a.n() as f64).sqrt() * f64::EPSILON * infinity_norm(a.matrix());
    let mut x = Array2::<f64>::zeros(b.dim());
    let mut r = b.to_owned();
    let mut before = f64::INFINITY;
    for _ in 0..ROUNDS {
        // Each residual column is brought to unit size first, which single precision can hold.
        let sizes = column_maxima(r.view()).mapv(|m| if m > 0.0 { m } else { 1.0 });
        let unit = (&r / &sizes).mapv(|r| r as f32);
        let next = &x + &(factor.solve(unit.view())?.mapv(f64::from) * &sizes);
        r = &b - &a.apply(next.view())?;
        let (residual, size) = (column_maxima(r.view()), column_maxima(next.view()));
        let worst = largest(residual.iter().zip(&size).map(|(r, x)| excess(*r, goal * x)));
        if worst < before {
            x = next;
        }
        if worst == 0.0 || worst.is_nan() || worst > 0.5 * before {
            return Ok((worst.min(before) <= 1.0).then_some(x));
        }
        before = worst;
    }
    Ok(None)
}

/// The largest magnitude of each column `[m]`.
fn column_maxima(a: ArrayView2<f64>) -> Array1<f64> {
    a.map_axis(Axis(0), |column| largest(column.iter().copied()))
}

/// `max_i Σ_j |a_ij|`, no less than the largest eigenvalue.
fn infinity_norm(a: ArrayView2<f64>) -> f64 {
    let rows: Vec<_> = a.axis_chunks_iter(Axis(0), 256).collect();
    let of = |rows: ArrayView2<f64>| {
        rows.rows().into_iter().map(|r| r.iter().map(|v| v.abs()).sum::<f64>()).fold(0.0, f64::max)
    };
    rows.into_par_iter().map(of).reduce(|| 0.0, f64::max)
}

fn in_single_precision(a: ArrayView2<f64>) -> Array2<f32> {
    const ROWS: usize = 256;
    let mut single = Array2::<f32>::zeros(a.dim());
    let strips: Vec<(ArrayViewMut2<f32>, ArrayView2<f64>)> =
        single.axis_chunks_iter_mut(Axis(0), ROWS).zip(a.axis_chunks_iter(Axis(0), ROWS)).collect();
    strips.into_par_iter().for_each(|(mut single, a)| single.zip_mut_with(&a, |s, a| *s = *a as f32));
    single
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// A positive definite matrix with eigenvalues from `1/condition` to one, its solution by double precision alone.
    fn system(condition: f64) -> (Array2<f64>, Array2<f64>, Array2<f64>) {
        let n = 600;
        let mut rng = Rng::new(1);
        let q = crate::linalg::orthonormal_basis(rng.normals((n, n))).unwrap();
        let λ: Array1<f64> = (0..n).map(|i| condition.powf(-(i as f64) / (n - 1) as f64)).collect();
        let a = crate::linalg::matmul((&q * &λ).view(), q.t());
        let a = (&a + &a.t()) * 0.5;
        let mut b = rng.normals((n, 3));
        b.column_mut(1).fill(0.0);
        let x = Cholesky::new(Device::Cpu, a.t()).unwrap().solve(b.view()).unwrap();
        (a, b, x)
    }

    /// The error that rounding allows: ε times the condition number.
    fn error(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
        let scale = b.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        (a - b).iter().fold(0.0f64, |m, v| m.max(v.abs())) / scale
    }

    #[test]
    fn refined_solutions_have_the_accuracy_of_double_precision() {
        for condition in [1e1, 1e4, 1e5] {
            let (a, b, want) = system(condition);
            let factor = Cholesky::new(Device::Cpu, in_single_precision(a.view()).t()).unwrap();
            let x = refined(&DenseOperator::new(a), &factor, b.view()).unwrap().expect("well within reach");
            assert!(error(&x, &want) < 1e-14 * condition, "{condition}: {}", error(&x, &want));
        }
    }

    #[test]
    fn ill_conditioned_systems_use_double_precision() {
        let (a, b, want) = system(1e10);
        // With a wrong lower bound the refinement stalls (or the factor fails), and double precision is used.
        let x = solve_positive_definite(Device::Cpu, a.clone(), b.view(), 1.0).unwrap();
        assert_eq!(x, want);
        assert_eq!(solve_positive_definite(Device::Cpu, a, b.view(), 1e-10).unwrap(), want);
        let mut broken = Array2::<f64>::eye(600);
        broken[[3, 3]] = f64::NAN;
        let factor = Cholesky::new(Device::Cpu, Array2::<f32>::eye(600).view()).unwrap();
        assert!(refined(&DenseOperator::new(broken), &factor, b.view()).unwrap().is_none());
        let negative = -Array2::<f64>::eye(3);
        assert!(solve_positive_definite(Device::Cpu, negative, Array2::ones((3, 1)).view(), 1.0).is_err());
    }
}
