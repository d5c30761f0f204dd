use super::alpha::{best, cross_validate, filtered_inverse, grid, leave_one_out_kernel, parts, squared_error};
use super::conjugate_gradients::{Converged, conjugate_gradients};
use super::preconditioner::LowRankPreconditioner;
use super::reference::{Reference, Saved, fits};
use super::refinement::solve_positive_definite;
use super::targets::Encoding;
use super::{Alpha, FitContext, Tried, check_points};
use crate::compute::Device;
use crate::data::Target;
use crate::kernel::Kernel;
use crate::linalg::{Panel, eigh, matmul};
use crate::model::Bundle;
use crate::operator::{Operator, Precision, cross_apply, gram};
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis};
use std::time::Instant;

/// Kernel ridge regression and classification, `f(x) = κ(x,X)(K + αI)⁻¹y`; α is added to the diagonal of K as it is
/// (scikit-learn's convention).
///
/// With classes, y is +1 in the column of the class and −1 in the others, and the answer is the class whose column of
/// `f(x)` is the largest.
///
/// ```
/// use mercer::apply::{Alpha, FitContext, Ridge, RidgeSolver};
/// use mercer::{data::Target, kernel::Kernel};
/// let x = ndarray::Array2::from_shape_fn((50, 1), |(i, _)| i as f64 / 10.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let ridge = Ridge { alpha: Alpha::Fixed(1e-6), solver: RidgeSolver::Direct };
/// let fitted = ridge.fit(&Kernel::parse("rbf(1)")?, x.view(), &y, &FitContext::default())?;
/// let at = fitted.scores(ndarray::array![[2.22]].view())?[[0, 0]];
/// assert!((at - 2.22f64.sin()).abs() < 1e-5);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ridge {
    /// α
    pub alpha: Alpha,
    /// How the linear system is solved.
    pub solver: RidgeSolver,
}

impl Default for Ridge {
    fn default() -> Self {
        Ridge { alpha: Alpha::LeaveOneOut, solver: RidgeSolver::Auto }
    }
}

/// How `(K + αI) c = y` is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RidgeSolver {
    /// [`Direct`](RidgeSolver::Direct) up to ten thousand points where it fits the memory, or where α is asked of
    /// leave-one-out; else [`ConjugateGradients`](RidgeSolver::ConjugateGradients) with their defaults.
    #[default]
    Auto,
    /// By Cholesky, or by eigendecomposition where α is to be found; stores K.
    Direct,
    /// By preconditioned conjugate gradients on the operator; stores K only where it fits easily. Above 20 000 points,
    /// cross-validation of α looks at the first fold only.
    ConjugateGradients {
        /// `‖(K + αI)c − y‖/‖y‖` at which a column is solved.
        tolerance: f64,
        /// Most products with K.
        iterations: usize,
        /// Rank of the preconditioner; none chooses `2√n`.
        rank: Option<usize>,
    },
}

impl RidgeSolver {
    /// Conjugate gradients to a residual of 1e-8. In single precision to 1e-4: the rounding of `Kc` is about `1e-7·‖K‖‖c‖`,
    /// and c grows as α falls. The predictions for the fitted points are off by no more than the residual.
    pub fn conjugate_gradients(precision: Precision) -> RidgeSolver {
        let tolerance = if precision == Precision::F64 { 1e-8 } else { 1e-4 };
        RidgeSolver::ConjugateGradients { tolerance, iterations: 1000, rank: None }
    }

    fn chosen(self, n: usize, alpha: Alpha, context: &FitContext) -> RidgeSolver {
        let fits = context.budget.allows(2 * (n as u64).pow(2) * 8);
        match self {
            RidgeSolver::Auto if alpha == Alpha::LeaveOneOut || (n <= 10_000 && fits) => RidgeSolver::Direct,
            RidgeSolver::Auto => RidgeSolver::conjugate_gradients(context.precision),
            chosen => chosen,
        }
    }
}

/// Coefficients over the fitted points, ready to predict.
pub struct FittedRidge {
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α.
    pub tried: Vec<Tried>,
    /// Products with K that conjugate gradients took.
    pub iterations: Option<usize>,
    /// `‖(K + αI)c − y‖/‖y‖` that they reached.
    pub residual: Option<f64>,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    encoding: Encoding,
    /// c `[n, m]`
    coefficients: Array2<f64>,
}

/// c, and how it was found.
struct Solved {
    alpha: f64,
    tried: Vec<Tried>,
    coefficients: Array2<f64>,
    iterations: Option<usize>,
    residual: Option<f64>,
}

/// A regression to be solved.
struct System<'a> {
    kernel: &'a Kernel,
    /// `[n, d]`
    x: ArrayView2<'a, f64>,
    /// `[n, m]`
    y: ArrayView2<'a, f64>,
    context: &'a FitContext<'a>,
}

impl Ridge {
    /// Fits the points `x` `[n, d]` with their targets.
    pub fn fit(&self, kernel: &Kernel, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedRidge> {
        let start = Instant::now();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let (encoding, y) = Encoding::encode(y, x.nrows(), -1.0, 1.0)?;
        let system = System { kernel, x, y: y.view(), context };
        let solved = match self.solver.chosen(x.nrows(), self.alpha, context) {
            RidgeSolver::ConjugateGradients { tolerance, iterations, rank } => {
                let rank = rank.unwrap_or(2 * x.nrows().isqrt()).min(x.nrows());
                system.iterative(self.alpha, &Iteration { tolerance, limit: iterations, rank })?
            }
            _ => system.direct(self.alpha)?,
        };
        Ok(FittedRidge {
            alpha: solved.alpha,
            tried: solved.tried,
            iterations: solved.iterations,
            residual: solved.residual,
            reference: Reference::new("ridge", kernel, x, context, start),
            kernel: kernel.clone(),
            encoding,
            coefficients: solved.coefficients,
        })
    }
}

/// Points above which cross-validation by conjugate gradients looks at one fold only.
const MANY: usize = 20_000;

/// Of conjugate gradients.
struct Iteration {
    tolerance: f64,
    limit: usize,
    rank: usize,
}

impl System<'_> {
    fn direct(&self, alpha: Alpha) -> Result<Solved> {
        let n = self.x.nrows();
        // Cholesky holds K and its factor; an eigendecomposition two more.
        let matrices = if matches!(alpha, Alpha::Fixed(_)) { 2 } else { 4 };
        self.context.budget.require(
            format!("direct ridge regression on {n} points"),
            matrices * (n as u64).pow(2) * 8,
            "solve by conjugate gradients with α given or by cross-validation, or fit fewer points",
        )?;
        let mut k = gram::<f64>(self.kernel, self.x, self.context.device)?;
        let scale = k.diag().sum() / n as f64;
        let (alpha, tried) = match alpha {
            Alpha::Fixed(alpha) => (alpha, vec![]),
            Alpha::LeaveOneOut => return self.by_leave_one_out(k, &grid(scale)),
            Alpha::CrossValidation { folds } => {
                let tried = self.cross_validated(k.view(), folds, &grid(scale))?;
                (best(&tried)?, tried)
            }
        };
        k.diag_mut().mapv_inplace(|d| d + alpha);
        let coefficients = solve_positive_definite(self.context.device, k, self.y, alpha)?;
        Ok(Solved { alpha, tried, coefficients, iterations: None, residual: None })
    }

    /// One eigendecomposition serves every α, and the solution.
    fn by_leave_one_out(&self, k: Array2<f64>, grid: &[f64]) -> Result<Solved> {
        let (λ, u) = eigh(self.context.device, k.view())?;
        drop(k);
        let tried = leave_one_out_kernel(u.view(), &λ, self.y, grid);
        let alpha = best(&tried)?;
        let coefficients = filtered_inverse(u.view(), &λ, matmul(u.t(), self.y).view(), alpha);
        Ok(Solved { alpha, tried, coefficients, iterations: None, residual: None })
    }

    /// One eigendecomposition a fold serves every α.
    fn cross_validated(&self, k: ArrayView2<f64>, folds: usize, grid: &[f64]) -> Result<Vec<Tried>> {
        let mut done = 0;
        cross_validate(self.x.nrows(), folds, self.context.seed, grid, |rest, out| {
            let rows = k.select(Axis(0), rest);
            let (λ, u) = eigh(self.context.device, rows.select(Axis(1), rest).view())?;
            let uy = matmul(u.t(), self.y.select(Axis(0), rest).view());
            // Predictions K[out, rest] U (Λ + α)⁻¹ Uᵀy.
            let ku = matmul(rows.select(Axis(1), out).t(), u.view());
            let truth = self.y.select(Axis(0), out);
            done += 1;
            self.context.progress.step("cross-validation", done, folds, "");
            let error =
                |&alpha: &f64| squared_error(filtered_inverse(ku.view(), &λ, uy.view(), alpha).view(), truth.view());
            Ok(grid.iter().map(error).collect())
        })
    }

    fn iterative(&self, alpha: Alpha, iteration: &Iteration) -> Result<Solved> {
        let (alpha, tried) = match alpha {
            Alpha::Fixed(alpha) => (alpha, vec![]),
            Alpha::LeaveOneOut => {
                return Err(Error::input(
                    "leave-one-out has a closed form only for the direct solver; with conjugate gradients give α as a \
                     number or use cross-validation",
                ));
            }
            Alpha::CrossValidation { folds } => {
                let tried = self.held_out(folds, iteration)?;
                (best(&tried)?, tried)
            }
        };
        if alpha == 0.0 {
            return Err(Error::input("conjugate gradients need a ridge α above 0; use the direct solver for α = 0"));
        }
        let (operator, preconditioner) = self.prepared(iteration)?;
        let start = Array2::zeros(self.y.dim());
        let found = self.iterate(operator.as_ref(), &preconditioner, alpha, start, iteration)?;
        let (iterations, residual) = (Some(found.iterations), Some(found.residual));
        Ok(Solved { alpha, tried, coefficients: found.x.into_host()?, iterations, residual })
    }

    /// The operator, and a preconditioner for any α.
    fn prepared(&self, iteration: &Iteration) -> Result<(Box<dyn Operator + '_>, LowRankPreconditioner)> {
        let n = self.x.nrows() as u64;
        // The factor, its orthonormal form, and about eight blocks of vectors.
        let other = 8 * n * (2 * iteration.rank as u64 + 8 * self.y.ncols() as u64);
        self.context.budget.require(
            format!("the preconditioner of rank {} for {n} points", iteration.rank),
            other,
            "use a smaller rank",
        )?;
        let operator = self.context.operator(self.kernel, self.x, other)?;
        let preconditioner = LowRankPreconditioner::new(operator.as_ref(), iteration.rank, self.context)?;
        Ok((operator, preconditioner))
    }

    fn iterate(
        &self,
        operator: &dyn Operator,
        preconditioner: &LowRankPreconditioner,
        alpha: f64,
        start: Array2<f64>,
        iteration: &Iteration,
    ) -> Result<Converged> {
        let shift = vec![alpha; self.y.ncols()];
        let shifted = |v: &Panel| {
            let mut y = operator.apply_panel(v)?;
            y.axpy(&shift, v)?;
            Ok(y)
        };
        let precondition = |v: &Panel| preconditioner.solve(alpha, v);
        let Iteration { tolerance, limit, .. } = *iteration;
        let (y, start) =
            (Panel::from_host(self.context.device, self.y.to_owned())?, Panel::from_host(self.context.device, start)?);
        conjugate_gradients(&shifted, &precondition, &y, start, tolerance, limit, self.context.progress)
    }

    /// Cross-validation by conjugate gradients, over the α that every fold has tried. Above [`MANY`] points a single fold
    /// is looked at: it holds thousands of points, and all of them would take `folds` times as long.
    fn held_out(&self, folds: usize, iteration: &Iteration) -> Result<Vec<Tried>> {
        let n = self.x.nrows();
        let looked_at = if n > MANY { 1 } else { folds };
        let mut paths = Vec::new();
        for out in parts(n, folds, self.context.seed).into_iter().take(looked_at) {
            paths.push(self.path(&out, iteration)?);
        }
        let shortest = paths.iter().map(Vec::len).min().unwrap_or(0);
        let mean = |i: usize| paths.iter().map(|p| p[i].error).sum::<f64>() / looked_at as f64;
        Ok((0..shortest).rev().map(|i| Tried { value: paths[0][i].value, error: mean(i) }).collect())
    }

    /// The error on the rows `out` when the others are fitted, from large α to small, each solution the start of the
    /// next, until the error has risen twice in a row.
    fn path(&self, out: &[usize], iteration: &Iteration) -> Result<Vec<Tried>> {
        let mut kept = vec![true; self.x.nrows()];
        out.iter().for_each(|&i| kept[i] = false);
        let rest: Vec<usize> = (0..kept.len()).filter(|&i| kept[i]).collect();
        let (x, y) = (self.x.select(Axis(0), &rest), self.y.select(Axis(0), &rest));
        let (x_out, y_out) = (self.x.select(Axis(0), out), self.y.select(Axis(0), out));
        let system = System { kernel: self.kernel, x: x.view(), y: y.view(), context: self.context };
        // α is found to half a decade, for which three digits of the solution are plenty.
        let rough = Iteration {
            tolerance: iteration.tolerance.max(1e-4),
            limit: iteration.limit,
            rank: iteration.rank.min(x.nrows()),
        };
        let (operator, preconditioner) = system.prepared(&rough)?;
        let mut tried: Vec<Tried> = Vec::new();
        let mut c = Array2::zeros(y.dim());
        for alpha in grid(self.mean_diagonal()).into_iter().rev() {
            match system.iterate(operator.as_ref(), &preconditioner, alpha, c.clone(), &rough) {
                Ok(found) => c = found.x.into_host()?,
                // Smaller α are harder still; those that were solved stand.
                Err(Error::NoConvergence { .. }) if !tried.is_empty() => break,
                Err(error) => return Err(error),
            }
            let predicted = cross_apply(
                self.kernel,
                x_out.view(),
                x.view(),
                c.view(),
                self.context.precision,
                self.context.device,
            )?;
            let error = squared_error(predicted.view(), y_out.view()) / out.len() as f64;
            tried.push(Tried { value: alpha, error });
            let rising = tried.windows(2).rev().take(2).filter(|w| w[1].error > w[0].error).count();
            if rising == 2 {
                break;
            }
        }
        Ok(tried)
    }

    /// The mean of `κ(x_i, x_i)`.
    fn mean_diagonal(&self) -> f64 {
        let diagonal = self.x.rows().into_iter().map(|r| self.kernel.value(&r.to_vec(), &r.to_vec()));
        diagonal.sum::<f64>() / self.x.nrows() as f64
    }
}

impl FittedRidge {
    /// `f(x)` `[m, ·]` at new points `[m, d]`: one column for numbers, one for each class.
    pub fn scores(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let x = self.reference.prepare(x)?;
        let precision = self.reference.origin.precision;
        cross_apply(
            &self.kernel,
            x.view(),
            self.reference.points(),
            self.coefficients.view(),
            precision,
            self.reference.device,
        )
    }

    /// Predictions at new points `[m, d]`: numbers or classes, as it was fitted.
    pub fn predict(&self, x: ArrayView2<f64>) -> Result<Target> {
        Ok(self.encoding.decode(self.scores(x)?.view()))
    }

    /// c `[n, m]`
    pub fn coefficients(&self) -> ArrayView2<'_, f64> {
        self.coefficients.view()
    }
}

impl Saved for FittedRidge {
    const KIND: &'static str = "ridge";

    fn pack(&self, bundle: &mut Bundle) {
        self.reference.pack(bundle);
        self.encoding.pack(bundle);
        bundle.set("alpha", self.alpha);
        bundle.set("tried", &self.tried);
        bundle.set("iterations", self.iterations);
        bundle.set("residual", self.residual);
        bundle.put("coefficients", self.coefficients.view());
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<Self> {
        let reference = Reference::unpack(bundle, device)?;
        let encoding = Encoding::unpack(bundle)?;
        let coefficients = bundle.matrix("coefficients")?;
        fits("coefficients", coefficients.dim(), (reference.origin.n, encoding.width()))?;
        Ok(FittedRidge {
            alpha: bundle.value("alpha")?,
            tried: bundle.value("tried")?,
            iterations: bundle.value("iterations")?,
            residual: bundle.value("residual")?,
            kernel: reference.kernel()?,
            reference,
            encoding,
            coefficients,
        })
    }
}
