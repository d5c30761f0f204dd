use super::reference::Reference;
use super::ridge_system::{Iteration, Solved, System};
use super::targets::Encoding;
use super::traits::{fields, saved};
use super::{Alpha, Fit, Predict, Tried, check_points};
use crate::data::Target;
use crate::kernel::Kernel;
use crate::operator::Precision;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result};
use ndarray::{Array2, ArrayView2};
use std::time::Instant;

/// Kernel ridge regression and classification, `f(x) = κ(x,X)(K + αI)⁻¹y`; α is added to the diagonal of K as it is
/// (scikit-learn's convention).
///
/// Single precision is used where it is precise enough: small α make large coefficients, and with them the rounding of kernel
/// values grows. Where it would change predictions by more than a thousandth of the targets, double precision is used
/// instead, and the origin of the fitted value says so.
///
/// With classes, y is +1 in the column of the class and −1 in the others, and the answer is the class whose column of
/// `f(x)` is the largest.
///
/// ```
/// use mercer::apply::{Alpha, Fit, Predict, Ridge, RidgeSolver};
/// use mercer::{FitContext, data::Target, kernel::Kernel};
/// let x = ndarray::Array2::from_shape_fn((50, 1), |(i, _)| i as f64 / 10.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let (alpha, solver) = (Alpha::Fixed(1e-6), RidgeSolver::Direct);
/// let ridge = Ridge { kernel: Kernel::parse("rbf(1)")?, alpha, solver };
/// let fitted = ridge.fit(x.view(), &y, &FitContext::default())?;
/// let at = fitted.scores(ndarray::array![[2.22]].view())?[[0, 0]];
/// assert!((at - 2.22f64.sin()).abs() < 1e-5);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ridge {
    /// κ
    pub kernel: Kernel,
    /// α
    pub alpha: Alpha,
    /// How the linear system is solved.
    pub solver: RidgeSolver,
}

impl Ridge {
    /// Under `kernel`, with α by leave-one-out.
    pub fn new(kernel: Kernel) -> Self {
        Ridge { kernel, alpha: Alpha::LeaveOneOut, solver: RidgeSolver::Auto }
    }
}

/// How `(K + αI) c = y` is solved. Example: [`Ridge`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RidgeSolver {
    /// [`Direct`](RidgeSolver::Direct) up to ten thousand points where it fits the memory, or where α is chosen by
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

/// Coefficients over the fitted points, ready to predict. Example: [`Ridge`].
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
    pub coefficients: Array2<f64>,
}

impl Fit for Ridge {
    type Target = Target;
    type Fitted = FittedRidge;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedRidge> {
        let start = Instant::now();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let (encoding, y) = Encoding::encode(y, x.nrows(), -1.0, 1.0)?;
        let double = FitContext { precision: Precision::F64, ..*context };
        let in_double = System { kernel: &self.kernel, x, y: y.view(), context: &double };
        let system = System { context, ..in_double };
        let iteration = match self.solver.chosen(x.nrows(), self.alpha, context) {
            RidgeSolver::ConjugateGradients { tolerance, iterations, rank } => {
                let rank = rank.unwrap_or(2 * x.nrows().isqrt()).min(x.nrows());
                Some(Iteration { tolerance, limit: iterations, rank })
            }
            _ => None,
        };
        let (solved, context) = match &iteration {
            // The coefficients are in double precision whatever the precision of predictions.
            None => {
                let solved = system.direct(self.alpha)?;
                let coarse = system.too_coarse(solved.coefficients.view());
                (solved, if coarse { &double } else { context })
            }
            Some(iteration) => match system.iterative(self.alpha, iteration) {
                Ok(solved) if system.too_coarse(solved.coefficients.view()) => {
                    let again = in_double.iterative(Alpha::Fixed(solved.alpha), iteration)?;
                    (Solved { tried: solved.tried, ..again }, &double)
                }
                Err(Error::NoConvergence { .. }) if context.precision == Precision::F32 => {
                    (in_double.iterative(self.alpha, iteration)?, &double)
                }
                solved => (solved?, context),
            },
        };
        let Solved { alpha, tried, coefficients, iterations, residual } = solved;
        let kernel = self.kernel.clone();
        let reference = Reference::new(Origin::new("ridge", &kernel, x.dim(), context, start), x, context);
        Ok(FittedRidge { alpha, tried, iterations, residual, reference, kernel, encoding, coefficients })
    }
}

impl Predict for FittedRidge {
    fields! { origin: Origin = reference.origin; }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.reference.expand(&self.kernel, 1.0, x, self.coefficients.view())
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        self.encoding.decode(scores)
    }
}

saved! {
    FittedRidge, "ridge":
    reference: Reference = whole(Reference::unpack);
    encoding: Encoding = value("target", Encoding::checked);
    alpha: f64 = value("alpha");
    tried: Vec<Tried> = value("tried");
    iterations: Option<usize> = value("iterations");
    residual: Option<f64> = value("residual");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, encoding.width()));
}
