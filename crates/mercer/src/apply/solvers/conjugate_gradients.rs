//! Preconditioned conjugate gradients, for several right-hand sides at once.

use crate::apply::HeldOutError;
use crate::apply::reference::matrix;
use crate::apply::solvers::low_rank_preconditioner::LowRankPreconditioner;
use crate::apply::solvers::monitor::{Course, Monitor, load_panel, save_panel};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::linalg::{Panel, eigh};
use crate::operator::Operator;
use crate::training::{Identity, Run, Task};
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, Axis};

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
    /// The error on held-out rows along the way, where some were given.
    pub held_out: Vec<HeldOutError>,
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
    monitored([a, precondition], b, x, (tolerance, limit), Monitor::default(), context)
}

/// `A = K + αI`, and a preconditioner of K.
#[derive(Clone, Copy)]
pub(crate) struct Shifted<'a> {
    pub operator: &'a dyn Operator,
    pub preconditioner: &'a LowRankPreconditioner,
    pub alpha: f64,
}

impl Shifted<'_> {
    /// `A⁻¹B` by [`conjugate_gradients`].
    pub fn solve(
        &self,
        b: &Panel,
        start: Panel,
        accuracy: (f64, usize),
        monitor: Monitor,
        context: &FitContext,
    ) -> Result<Converged> {
        let shift = vec![self.alpha; b.ncols()];
        let product = |v: &Panel| {
            let mut y = self.operator.apply_panel(v)?;
            y.axpy(&shift, v)?;
            Ok(y)
        };
        let precondition = |v: &Panel| self.preconditioner.solve(self.alpha, v);
        monitored([&product, &precondition], b, start, accuracy, monitor, context)
    }
}

/// The Krylov spaces of the columns, as conjugate gradients pass through them: for every iteration the steps and the turns of the columns.
#[derive(Default)]
pub(crate) struct Krylov {
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

/// [`conjugate_gradients`] with checkpoints, held-out errors and a record of what they do before the first restart. `maps` are A and the
/// preconditioner.
pub(crate) fn monitored(
    maps: [Map; 2],
    b: &Panel,
    start: Panel,
    (tolerance, limit): (f64, usize),
    monitor: Monitor,
    context: &FitContext,
) -> Result<Converged> {
    let goal = b.norms()?.mapv(|b| tolerance * b);
    let saving = monitor.saving();
    let mut iteration = Iteration {
        maps,
        b,
        goal,
        tolerance,
        limit,
        course: monitor.begin(),
        x: start,
        descent: None,
        iterations: 0,
        measured: false,
        done: false,
    };
    let mut run = Run::new(&mut iteration, saving, context)?;
    run.run(&mut iteration)?;
    iteration.finish()
}

/// Conjugate gradients between two products. Residuals are in units of their goal.
struct Iteration<'a> {
    /// A and the preconditioner.
    maps: [Map<'a>; 2],
    b: &'a Panel,
    /// `tolerance·‖b‖` `[m]`
    goal: Array1<f64>,
    tolerance: f64,
    limit: usize,
    /// Its best iterate is that with the least true residual.
    course: Course<'a>,
    /// The iterate `[n, m]`.
    x: Panel,
    /// None before a start, and before a restart.
    descent: Option<Descent>,
    /// Products with A.
    iterations: usize,
    /// Whether the true residual of `x` is known.
    measured: bool,
    /// Whether it has converged, or a restart does not help.
    done: bool,
}

/// The recursion since the last start.
struct Descent {
    /// The residual as it is updated `[n, m]`.
    r: Panel,
    /// The direction `[n, m]`.
    p: Panel,
    /// `r·z` of the columns `[m]`, z the preconditioned residual.
    rz: Array1<f64>,
    /// The residual.
    now: f64,
    /// The iterate with the least residual.
    least: (f64, Panel),
}

impl Iteration<'_> {
    fn worst(&self, r: &Panel) -> Result<f64> {
        Ok(largest(r.norms()?.iter().zip(&self.goal).map(|(r, goal)| excess(*r, *goal))))
    }

    /// The true residual `[n, m]` of `x` and its size; `x` is the best if no other is better.
    fn measure(&mut self) -> Result<(Panel, f64)> {
        let mut r = self.b.try_clone()?;
        r.subtract(&(self.maps[0])(&self.x)?);
        self.iterations += 1;
        self.measured = true;
        let now = self.worst(&r)?;
        if self.course.best.as_ref().is_none_or(|(least, _)| now < *least) {
            self.course.best = Some((now, self.x.try_clone()?));
        }
        Ok((r, now))
    }

    /// Begins at `x`, unless it is good enough.
    fn start(&mut self) -> Result<()> {
        let before = self.course.least();
        let (r, now) = self.measure()?;
        // A restart that does not halve the true residual has reached the rounding of A; NaN is no progress either.
        let stuck = now.is_nan() || now > 0.5 * before;
        self.done = now <= 1.0 || stuck;
        if !self.done {
            let p = (self.maps[1])(&r)?;
            let rz = r.dots(&p)?;
            self.descent = Some(Descent { r, p, rz, now, least: (now, self.x.try_clone()?) });
        }
        Ok(())
    }

    /// One product with A.
    fn descend(&mut self, mut d: Descent) -> Result<()> {
        let ap = (self.maps[0])(&d.p)?;
        self.iterations += 1;
        let curvature = d.p.dots(&ap)?;
        // A column that is solved, or along which A is not positive, does not change.
        let step = |(rz, curvature): (&f64, &f64)| if *rz > 0.0 && *curvature > 0.0 { rz / curvature } else { 0.0 };
        let steps: Vec<f64> = d.rz.iter().zip(&curvature).map(step).collect();
        if steps.iter().all(|s| *s == 0.0) {
            return self.restart(d);
        }
        self.measured = false;
        self.x.axpy(&steps, &d.p)?;
        d.r.axpy(&steps.iter().map(|s| -s).collect::<Vec<f64>>(), &ap)?;
        let z = (self.maps[1])(&d.r)?;
        let next = d.r.dots(&z)?;
        let turn = |(rz, next): (&f64, &f64)| if *rz > 0.0 { next / rz } else { 0.0 };
        // p ← z + p (r·z)/(r·z before)
        let turns: Vec<f64> = d.rz.iter().zip(&next).map(turn).collect();
        d.p.scale(&turns)?;
        d.p.axpy(&vec![1.0; z.ncols()], &z)?;
        d.rz = next;
        if let Some(krylov) = &mut self.course.monitor.record {
            krylov.steps.push(steps);
            krylov.turns.push(turns);
        }
        d.now = self.worst(&d.r)?;
        if d.now < d.least.0 {
            d.least = (d.now, self.x.try_clone()?);
        }
        self.course.curve.push(d.now * self.tolerance);
        if d.now > 1.0 {
            self.descent = Some(d);
            return Ok(());
        }
        self.restart(d)
    }

    /// Makes the best iterate of a recursion that ended the next start.
    fn restart(&mut self, d: Descent) -> Result<()> {
        self.x = d.least.1;
        self.course.monitor.record = None;
        Ok(())
    }

    /// The best iterate, its true residual measured.
    fn finish(mut self) -> Result<Converged> {
        if let Some(d) = self.descent.take().filter(|_| !self.measured) {
            self.x = d.least.1;
        }
        if !self.measured {
            self.measure()?;
        }
        let Course { best, curve, held_out, .. } = self.course;
        let (residual, x) = best.expect("measured");
        Ok(Converged { x, iterations: self.iterations, residual: residual * self.tolerance, curve, held_out })
    }
}

impl Task for Iteration<'_> {
    fn name(&self) -> String {
        "conjugate gradients".into()
    }

    fn identity(&self) -> Identity {
        self.course.monitor.identity()
    }

    fn steps(&self) -> (u64, u64) {
        (self.iterations as u64, self.limit as u64)
    }

    fn advance(&mut self) -> Result<()> {
        match self.descent.take() {
            None => self.start(),
            Some(descent) => self.descend(descent),
        }
    }

    fn due(&self) -> bool {
        self.course.due(self.done)
    }

    fn validate(&mut self) -> Result<()> {
        self.course.validate(&self.x)
    }

    fn converged(&self) -> bool {
        self.done
    }

    fn excess(&self) -> Option<f64> {
        let now = self.descent.as_ref().map(|d| d.now).or(self.course.curve.last().map(|now| now / self.tolerance));
        Some(now.unwrap_or(f64::INFINITY))
    }

    fn has_result(&self) -> bool {
        !self.course.curve.is_empty()
    }

    fn report(&mut self, _: f64, _: f64) -> Result<String> {
        Ok(self.course.note())
    }

    fn save(&mut self, bundle: &mut Bundle) -> Result<()> {
        self.course.save(bundle)?;
        bundle.set("iterations", (self.iterations, self.measured, self.done));
        save_panel(bundle, "x", &self.x)?;
        bundle.set("descent", self.descent.as_ref().map(|d| (d.now, d.least.0)));
        if let Some(d) = &self.descent {
            save_panel(bundle, "residual", &d.r)?;
            save_panel(bundle, "direction", &d.p)?;
            bundle.put("products", d.rz.clone().insert_axis(Axis(0)));
            save_panel(bundle, "least", &d.least.1)?;
        }
        Ok(())
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        let panel = |name: &str| load_panel(bundle, name, self.b);
        self.x = panel("x")?;
        self.course.load(bundle, self.b)?;
        self.descent = match bundle.value("descent")? {
            Some((now, least)) => Some(Descent {
                r: panel("residual")?,
                p: panel("direction")?,
                rz: matrix(bundle, "products", (1, self.b.ncols()))?.remove_axis(Axis(0)),
                now,
                least: (least, panel("least")?),
            }),
            None => None,
        };
        (self.iterations, self.measured, self.done) = bundle.value("iterations")?;
        Ok(())
    }
}

/// The largest magnitude, or NaN where there is one: unlike `f64::max`, which would hide it.
pub(crate) fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |m, v| if v.abs() > m || v.is_nan() { v.abs() } else { m })
}

/// How many times the residual norm `r` is above its goal.
pub(crate) fn excess(r: f64, goal: f64) -> f64 {
    if r == 0.0 { 0.0 } else { r / goal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Cholesky;
    use crate::rng::Rng;

    fn system(n: usize, seed: u64) -> (Array2<f64>, Array2<f64>) {
        let mut rng = Rng::new(seed);
        let f = rng.normals((n, n));
        let b = rng.normals((n, 3));
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
        let monitor = Monitor { record: Some(&mut krylov), ..Monitor::default() };
        monitored([&product, &Panel::try_clone], &b.clone().into(), start, (1e-13, 40), monitor, &context).unwrap();
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
