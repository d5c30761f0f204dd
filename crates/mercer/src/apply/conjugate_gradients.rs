use crate::spectrum::Progress;
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip};

/// A linear map of columns `[n, m] → [n, m]`.
type Map<'a> = &'a dyn Fn(ArrayView2<f64>) -> Array2<f64>;

/// The solution of linear systems, and what it took.
pub struct Converged {
    /// `X` `[n, m]` with `AX = B`.
    pub x: Array2<f64>,
    /// Products with A, each with all columns.
    pub iterations: usize,
    /// The largest `‖b − Ax‖/‖b‖` over the columns, measured, not estimated.
    pub residual: f64,
}

/// Solves `A X = B` for a symmetric positive definite `A` and `B` `[n, m]`, column by column but with one product for all:
/// preconditioned conjugate gradients from the start `x`, until every `‖b − Ax‖ ≤ tolerance·‖b‖`.
///
/// The residual that conjugate gradients update drifts from the true one, so the true one is computed at the end, and the
/// iteration starts over from there while that helps. What does not converge is an [`Error::NoConvergence`].
///
/// ```
/// use mercer::{apply::conjugate_gradients, spectrum::Silent};
/// let a = ndarray::array![[4.0, 1.0], [1.0, 3.0]];
/// let b = ndarray::array![[1.0], [2.0]];
/// let found = conjugate_gradients(&|v| a.dot(&v), &|v| v.to_owned(), b.view(), b.clone(), 1e-12, 10, &Silent)?;
/// assert!((found.x[[0, 0]] - 1.0 / 11.0).abs() < 1e-12 && (found.x[[1, 0]] - 7.0 / 11.0).abs() < 1e-12);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn conjugate_gradients(
    a: Map,
    precondition: Map,
    b: ArrayView2<f64>,
    mut x: Array2<f64>,
    tolerance: f64,
    limit: usize,
    progress: &dyn Progress,
) -> Result<Converged> {
    let goal = norms(b).mapv(|b| tolerance * b);
    let worst =
        |r: ArrayView2<f64>| Zip::from(&norms(r)).and(&goal).fold(0.0f64, |m, r, goal| m.max(excess(*r, *goal)));
    let mut iterations = 1;
    let mut before = f64::INFINITY;
    loop {
        let mut r = &b - &a(x.view());
        let now = worst(r.view());
        if now <= 1.0 {
            return Ok(Converged { x, iterations, residual: now * tolerance });
        }
        // A restart that does not halve the true residual has met the rounding of A; NaN is no progress either.
        if iterations >= limit || (before.is_finite() && now.is_nan() | (now > 0.5 * before)) {
            return Err(Error::NoConvergence {
                what: "conjugate gradients",
                iterations,
                residual: now * tolerance,
                tolerance,
                instead: "use a larger α, double precision, a preconditioner of higher rank, or the direct solver",
            });
        }
        before = now;
        let mut z = precondition(r.view());
        let mut p = z.clone();
        let mut rz = dots(r.view(), z.view());
        while worst(r.view()) > 1.0 && iterations < limit {
            let ap = a(p.view());
            iterations += 1;
            let curvature = dots(p.view(), ap.view());
            let active = |j: usize| rz[j] > 0.0 && curvature[j] > 0.0;
            let step: Array1<f64> =
                (0..b.ncols()).map(|j| if active(j) { rz[j] / curvature[j] } else { 0.0 }).collect();
            if step.iter().all(|s| *s == 0.0) {
                break;
            }
            x += &(&p * &step);
            r -= &(&ap * &step);
            z = precondition(r.view());
            let next = dots(r.view(), z.view());
            let turn: Array1<f64> = (0..b.ncols()).map(|j| if rz[j] > 0.0 { next[j] / rz[j] } else { 0.0 }).collect();
            p = &z + &(&p * &turn);
            rz = next;
            let residual = worst(r.view()) * tolerance;
            progress.step("conjugate gradients", iterations, limit, &format!("residual {residual:.1e}"));
        }
    }
}

/// How many times the residual norm `r` is above its goal.
fn excess(r: f64, goal: f64) -> f64 {
    if r == 0.0 { 0.0 } else { r / goal }
}

/// Column by column `a_j·b_j` `[m]`.
fn dots(a: ArrayView2<f64>, b: ArrayView2<f64>) -> Array1<f64> {
    let mut sums = Array1::zeros(a.ncols());
    for (a, b) in a.rows().into_iter().zip(b.rows()) {
        Zip::from(&mut sums).and(a).and(b).for_each(|s, a, b| *s += a * b);
    }
    sums
}

/// The norm of each column `[m]`.
fn norms(a: ArrayView2<f64>) -> Array1<f64> {
    a.map_axis(Axis(0), |column| column.dot(&column).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Cholesky;
    use crate::rng::Rng;
    use crate::spectrum::Silent;

    fn system(n: usize, seed: u64) -> (Array2<f64>, Array2<f64>) {
        let mut rng = Rng::new(seed);
        let f = Array2::from_shape_simple_fn((n, n), || rng.normal());
        let b = Array2::from_shape_simple_fn((n, 3), || rng.normal());
        (f.dot(&f.t()) + Array2::<f64>::eye(n), b)
    }

    #[test]
    fn agrees_with_cholesky_and_measures_its_residual() {
        let (a, mut b) = system(40, 1);
        b.column_mut(1).fill(0.0);
        let found = conjugate_gradients(
            &|v| a.dot(&v),
            &|v| v.to_owned(),
            b.view(),
            Array2::zeros((40, 3)),
            1e-10,
            500,
            &Silent,
        )
        .unwrap();
        let direct = Cholesky::new(a.view()).unwrap().solve(b.view());
        assert!((&found.x - &direct).iter().all(|d| d.abs() < 1e-7));
        assert!(found.x.column(1).iter().all(|&x| x == 0.0));
        let r = norms((&b - &a.dot(&found.x)).view()) / norms(b.view()).mapv(|b| b.max(1e-300));
        assert!((r.fold(0.0f64, |m, r| m.max(*r)) - found.residual).abs() < 1e-14);
    }

    #[test]
    fn a_perfect_preconditioner_needs_one_step() {
        let (a, b) = system(30, 2);
        let factor = Cholesky::new(a.view()).unwrap();
        let found = conjugate_gradients(
            &|v| a.dot(&v),
            &|v| factor.solve(v),
            b.view(),
            Array2::zeros((30, 3)),
            1e-9,
            20,
            &Silent,
        )
        .unwrap();
        assert!(found.iterations <= 3, "{}", found.iterations);
    }

    #[test]
    fn failure_says_how_far_it_came() {
        let (a, b) = system(60, 3);
        let run = |limit| {
            conjugate_gradients(
                &|v| a.dot(&v),
                &|v| v.to_owned(),
                b.view(),
                Array2::zeros((60, 3)),
                1e-12,
                limit,
                &Silent,
            )
        };
        match run(5).err().expect("five steps are too few") {
            Error::NoConvergence { iterations, residual, .. } => assert!(iterations <= 6 && residual > 1e-12),
            other => panic!("{other}"),
        }
        let indefinite = -&a;
        let zero = Array2::zeros((60, 3));
        assert!(
            conjugate_gradients(&|v| indefinite.dot(&v), &|v| v.to_owned(), b.view(), zero, 1e-8, 50, &Silent).is_err()
        );
    }
}
