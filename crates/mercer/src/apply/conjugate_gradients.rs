use super::preconditioner::LowRankPreconditioner;
use crate::compute::Device;
use crate::linalg::{Panel, eigh};
use crate::operator::Operator;
use crate::{FitContext, Result};
use ndarray::Array2;

/// A linear map of columns `[n, m] → [n, m]`, on the device that they are on.
type Map<'a> = &'a dyn Fn(&Panel) -> Result<Panel>;

/// The solution of linear systems, with its cost and accuracy. Example: [`conjugate_gradients`].
pub struct Converged {
    /// `X` `[n, m]` with `AX = B`.
    pub x: Panel,
    /// Products with A, each with all columns.
    pub iterations: usize,
    /// The largest `‖b − Ax‖/‖b‖` over the columns, measured, not estimated.
    pub residual: f64,
    /// The largest relative residual after each iteration; for solvers that see a part of A at a time, as it was seen on the way.
    pub curve: Vec<f64>,
}

/// Solves `A X = B` for a symmetric positive definite `A` and `B` `[n, m]`, column by column but with one product for all:
/// preconditioned conjugate gradients from the start `x`, until every `‖b − Ax‖ ≤ tolerance·‖b‖`.
///
/// The residual that conjugate gradients update drifts from the true one, so the true one is computed at the end, and the
/// iteration restarts from there while that helps. Where it ends before it converges (after `limit` products, at the rounding of A, or
/// because the context is interrupted), the result is the best iterate, and its residual says how good that is.
///
/// Everything stays on the device of B; only numbers of each column come to the host.
///
/// ```
/// use mercer::{FitContext, apply::conjugate_gradients, linalg::Panel};
/// let a = ndarray::array![[4.0, 1.0], [1.0, 3.0]];
/// let b = Panel::from(ndarray::array![[1.0], [2.0]]);
/// let product = |v: &Panel| v.through_host(|v| Ok(a.dot(&v)));
/// let found = conjugate_gradients(&product, &Panel::try_clone, &b, b.try_clone()?, 1e-12, 10, &FitContext::default())?;
/// let x = found.x.into_host()?;
/// assert!((x[[0, 0]] - 1.0 / 11.0).abs() < 1e-12 && (x[[1, 0]] - 7.0 / 11.0).abs() < 1e-12);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn conjugate_gradients(
    a: Map,
    precondition: Map,
    b: &Panel,
    x: Panel,
    tolerance: f64,
    limit: usize,
    context: &FitContext,
) -> Result<Converged> {
    recorded(a, precondition, b, x, (tolerance, limit), None, context)
}

/// `A = K + αI`, and a preconditioner of K.
#[derive(Clone, Copy)]
pub(super) struct Shifted<'a> {
    pub operator: &'a dyn Operator,
    pub preconditioner: &'a LowRankPreconditioner,
    pub alpha: f64,
}

impl Shifted<'_> {
    /// `A⁻¹B` by [`conjugate_gradients`]; from the start zero, `record` gets the Krylov spaces.
    pub fn solve(
        &self,
        b: &Panel,
        start: Panel,
        accuracy: (f64, usize),
        record: Option<&mut Krylov>,
        context: &FitContext,
    ) -> Result<Converged> {
        let shift = vec![self.alpha; b.ncols()];
        let product = |v: &Panel| {
            let mut y = self.operator.apply_panel(v)?;
            y.axpy(&shift, v)?;
            Ok(y)
        };
        let precondition = |v: &Panel| self.preconditioner.solve(self.alpha, v);
        recorded(&product, &precondition, b, start, accuracy, record, context)
    }
}

/// The Krylov spaces of the columns, as conjugate gradients pass through them: for every iteration the steps and the turns of the columns.
#[derive(Default)]
pub(super) struct Krylov {
    steps: Vec<Vec<f64>>,
    turns: Vec<Vec<f64>>,
}

impl Krylov {
    /// `e₁ᵀ f(T) e₁` of a column with T the matrix of its Krylov space (Lanczos): Gauss quadrature of `vᵀf(B)v/vᵀv` with
    /// `B = M^{1/2}AM^{1/2}`, M the preconditioning map, and `v = M^{1/2}b`. With steps a and turns b,
    /// `T_jj = 1/a_j + b_{j−1}/a_{j−1}` and `T_{j,j+1} = √b_j/a_j`. Zero for an empty space.
    pub fn quadrature(&self, column: usize, f: impl Fn(f64) -> f64) -> Result<f64> {
        let of = |rows: &[Vec<f64>]| rows.iter().map(|row| row[column]).collect::<Vec<f64>>();
        let (steps, turns) = (of(&self.steps), of(&self.turns));
        // A column that is solved has no more steps.
        let size = steps.iter().take_while(|step| **step > 0.0).count();
        if size == 0 {
            return Ok(0.0);
        }
        let mut t = Array2::zeros((size, size));
        for j in 0..size {
            t[[j, j]] = 1.0 / steps[j] + if j > 0 { turns[j - 1] / steps[j - 1] } else { 0.0 };
            if j + 1 < size {
                t[[j + 1, j]] = turns[j].sqrt() / steps[j];
            }
        }
        let (θ, q) = eigh(Device::Cpu, t.view())?;
        Ok(θ.iter().zip(q.row(0)).map(|(θ, q)| q * q * f(*θ)).sum())
    }
}

/// [`conjugate_gradients`] that record what they do before the first restart.
fn recorded(
    a: Map,
    precondition: Map,
    b: &Panel,
    mut x: Panel,
    (tolerance, limit): (f64, usize),
    mut record: Option<&mut Krylov>,
    context: &FitContext,
) -> Result<Converged> {
    let goal = b.norms()?.mapv(|b| tolerance * b);
    let worst =
        |r: &Panel| -> Result<f64> { Ok(largest(r.norms()?.iter().zip(&goal).map(|(r, goal)| excess(*r, *goal)))) };
    let (mut iterations, mut keeps, mut curve) = (0, None, vec![]);
    let mut best: Option<(f64, Panel)> = None;
    loop {
        let mut r = b.try_clone()?;
        r.subtract(&a(&x)?);
        iterations += 1;
        let mut now = worst(&r)?;
        let before = best.as_ref().map_or(f64::INFINITY, |(residual, _)| *residual);
        if best.is_none() || now < before {
            best = Some((now, x.try_clone()?));
        }
        // A restart that does not halve the true residual has reached the rounding of A; NaN is no progress either.
        let stuck = now.is_nan() || now > 0.5 * before;
        if now <= 1.0 || stuck || iterations >= limit || context.interrupted() {
            let (residual, x) = best.expect("set above");
            return Ok(Converged { x, iterations, residual: residual * tolerance, curve });
        }
        let mut least = (now, x.try_clone()?);
        let mut z = precondition(&r)?;
        let mut p = z.try_clone()?;
        let mut rz = r.dots(&z)?;
        while now > 1.0 && iterations < limit && !context.interrupted() {
            let ap = a(&p)?;
            iterations += 1;
            let curvature = p.dots(&ap)?;
            // A column that is solved, or along which A is not positive, does not change.
            let step = |(rz, curvature): (&f64, &f64)| {
                if *rz > 0.0 && *curvature > 0.0 { rz / curvature } else { 0.0 }
            };
            let steps: Vec<f64> = rz.iter().zip(&curvature).map(step).collect();
            if steps.iter().all(|s| *s == 0.0) {
                break;
            }
            x.axpy(&steps, &p)?;
            r.axpy(&steps.iter().map(|s| -s).collect::<Vec<f64>>(), &ap)?;
            z = precondition(&r)?;
            let next = r.dots(&z)?;
            let turn = |(rz, next): (&f64, &f64)| if *rz > 0.0 { next / rz } else { 0.0 };
            // p ← z + p (r·z)/(r·z before)
            let turns: Vec<f64> = rz.iter().zip(&next).map(turn).collect();
            p.scale(&turns)?;
            p.axpy(&vec![1.0; b.ncols()], &z)?;
            rz = next;
            if let Some(krylov) = &mut record {
                krylov.steps.push(steps);
                krylov.turns.push(turns);
            }
            now = worst(&r)?;
            if now < least.0 {
                least = (now, x.try_clone()?);
            }
            curve.push(now * tolerance);
            keeps.get_or_insert_with(|| context.keeps_best());
            let note = format!("residual {:.1e}", now * tolerance);
            context.progress.iteration("conjugate gradients", iterations, limit, now, &note);
        }
        x = least.1;
        record = None;
    }
}

/// The largest magnitude, or NaN where there is one: unlike `f64::max`, which would hide it.
pub(super) fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |m, v| if v.abs() > m || v.is_nan() { v.abs() } else { m })
}

/// How many times the residual norm `r` is above its goal.
pub(super) fn excess(r: f64, goal: f64) -> f64 {
    if r == 0.0 { 0.0 } else { r / goal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Cholesky;
    use crate::rng::Rng;

    fn system(n: usize, seed: u64) -> (Array2<f64>, Array2<f64>) {
        let mut rng = Rng::new(seed);
        let f = Array2::from_shape_simple_fn((n, n), || rng.normal());
        let b = Array2::from_shape_simple_fn((n, 3), || rng.normal());
        (f.dot(&f.t()) + Array2::<f64>::eye(n), b)
    }

    /// Conjugate gradients from zero for the dense `a` `[n, n]`.
    fn solved(a: &Array2<f64>, precondition: Map, b: &Array2<f64>, tolerance: f64, limit: usize) -> Result<Converged> {
        let product = |v: &Panel| v.through_host(|v| Ok(a.dot(&v)));
        let start = Panel::from(Array2::zeros(b.dim()));
        conjugate_gradients(&product, precondition, &b.clone().into(), start, tolerance, limit, &FitContext::default())
    }

    #[test]
    fn agrees_with_cholesky_and_measures_its_residual() {
        let (a, mut b) = system(40, 1);
        b.column_mut(1).fill(0.0);
        let found = solved(&a, &Panel::try_clone, &b, 1e-10, 500).unwrap();
        let x = found.x.into_host().unwrap();
        let direct = Cholesky::new(Device::Cpu, a.view()).unwrap().solve(b.view()).unwrap();
        assert!((&x - &direct).iter().all(|d| d.abs() < 1e-7));
        assert!(x.column(1).iter().all(|&x| x == 0.0));
        let norms = |a: Array2<f64>| Panel::from(a).norms().unwrap();
        let r = norms(&b - &a.dot(&x)) / norms(b).mapv(|b| b.max(1e-300));
        assert!((r.fold(0.0f64, |m, r| m.max(*r)) - found.residual).abs() < 1e-14);
    }

    /// Once the Krylov space is whole, Gauss quadrature is exact: `bᵀ f(A) b/bᵀb` by eigenvalues.
    #[test]
    fn quadrature_in_the_krylov_space_is_the_function_of_the_matrix() {
        let (a, b) = system(12, 5);
        let (product, start) = (|v: &Panel| v.through_host(|v| Ok(a.dot(&v))), Panel::from(Array2::zeros(b.dim())));
        let mut krylov = Krylov::default();
        let context = FitContext::default();
        recorded(&product, &Panel::try_clone, &b.clone().into(), start, (1e-13, 40), Some(&mut krylov), &context)
            .unwrap();
        let (λ, u) = eigh(Device::Cpu, a.view()).unwrap();
        for column in 0..3 {
            let b = b.column(column);
            let share = u.t().dot(&b).mapv(|v| v * v / b.dot(&b));
            let want: f64 = share.iter().zip(&λ).map(|(share, λ)| share * λ.ln()).sum();
            let found = krylov.quadrature(column, f64::ln).unwrap();
            assert!((found - want).abs() < 1e-9, "{found} {want}");
        }
    }

    #[test]
    fn a_perfect_preconditioner_needs_one_step() {
        let (a, b) = system(30, 2);
        let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
        let found = solved(&a, &|v| v.through_host(|v| factor.solve(v)), &b, 1e-9, 20).unwrap();
        assert!(found.iterations <= 3, "{}", found.iterations);
    }

    #[test]
    fn an_early_end_returns_the_best_iterate_and_its_residual() {
        let (a, b) = system(60, 3);
        let norms = |a: Array2<f64>| Panel::from(a).norms().unwrap();
        let residual = |x: &Array2<f64>| largest(norms(&b - &a.dot(x)) / norms(b.clone()));
        let mut before = f64::INFINITY;
        for limit in [5, 9, 20] {
            let found = solved(&a, &Panel::try_clone, &b, 1e-12, limit).unwrap();
            assert!(found.iterations <= limit + 1 && found.residual > 1e-12);
            let x = found.x.into_host().unwrap();
            assert!((residual(&x) - found.residual).abs() < 1e-12 && found.residual <= before);
            before = found.residual;
        }
        assert!(before < 0.5, "{before}");
        // Of an indefinite matrix, the start is the best that is known.
        let indefinite = solved(&-&a, &Panel::try_clone, &b, 1e-8, 50).unwrap();
        assert_eq!(indefinite.residual, 1.0);
        let broken = &a * f64::NAN;
        assert!(solved(&broken, &Panel::try_clone, &b, 1e-8, 50).unwrap().residual.is_nan());
    }

    #[test]
    fn an_interrupt_ends_the_iteration_with_what_there_is() {
        let (a, b) = system(60, 4);
        let flag = crate::Interrupt::new();
        let context = FitContext { interrupt: Some(&flag), ..FitContext::default() };
        let count = std::cell::Cell::new(0);
        let product = |v: &Panel| {
            count.set(count.get() + 1);
            if count.get() == 20 {
                assert!(flag.request(), "there is an iterate to keep");
            }
            v.through_host(|v| Ok(a.dot(&v)))
        };
        let start = Panel::from(Array2::zeros(b.dim()));
        let b = Panel::from(b);
        let found = conjugate_gradients(&product, &Panel::try_clone, &b, start, 1e-10, 500, &context).unwrap();
        // Twenty products, and one that measures the residual.
        assert!(found.iterations == 21 && found.residual < 1.0 && found.residual > 1e-10, "{}", found.residual);
    }
}
