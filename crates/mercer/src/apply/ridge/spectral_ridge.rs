//! Ridge regression on the eigenfunctions of a spectrum.

use crate::apply::class_weights::ClassWeights;
use crate::apply::features::ridge_head::{Head, Solved, memory};
use crate::apply::probabilities::left_out_sharpness;
use crate::apply::reference::check_new;
use crate::apply::regression::on_features::OnFeatures;
use crate::apply::regression::outcome::Outcome;
use crate::apply::regression::{KernelOptions, Objective, Points, RANK, Regression, RegressionTask, UnderKernel};
use crate::apply::targets::Encoding;
use crate::apply::traits::{encoded_scores, fields, not_kept, saved};
use crate::apply::{Alpha, FeatureMap, Fit, Predict, Tried, check_points};
use crate::data::Target;
use crate::kernel::Kernel;
use crate::linalg::matmul;
use crate::options::{Caps, Entry};
use crate::spectrum::{Krylov, Origin, Problem, Spectrum};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, aview1};
use std::sync::Arc;

/// Ridge regression on the eigenfunctions of a spectrum, however it was found: kernel ridge regression with the kernel
/// `Σ_j μ_j ψ_j(x)ψ_j(x')`. With the features `φ = √μ ψ`, `f(x) = φ(x)(ΦᵀΦ + αI)⁻¹Φᵀy`: a k×k system.
///
/// α has the convention of [`Ridge`](crate::apply::Ridge): with all n pairs of the exact method, the answers are the same.
///
/// ```
/// use mercer::apply::{Alpha, Fit, Predict, SpectralRidge};
/// use mercer::{FitContext, data::Target, kernel::Kernel, spectrum::{Exact, Problem, Spectrum}};
/// let x = ndarray::Array2::from_shape_fn((80, 1), |(i, _)| i as f64 / 20.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 12), None)?;
/// let ridge = SpectralRidge { alpha: Alpha::Fixed(1e-4), ..SpectralRidge::new(spectrum.into()) };
/// let fitted = ridge.fit(x.view(), &y, &FitContext::default())?;
/// assert!((fitted.scores(ndarray::array![[1.23]].view())?[[0, 0]] - 1.23f64.sin()).abs() < 1e-3);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone)]
pub struct SpectralRidge {
    /// The eigenfunctions, shared with the fitted value.
    pub spectrum: Arc<Spectrum>,
    /// α
    pub alpha: Alpha,
    /// Whether a constant, which is not penalised, is added to the functions.
    pub intercept: bool,
    /// How much the rows of each class count.
    pub class_weights: ClassWeights,
}

impl SpectralRidge {
    /// On the eigenfunctions of this spectrum, with α by leave-one-out, no constant and equal classes.
    pub fn new(spectrum: Arc<Spectrum>) -> Self {
        SpectralRidge { spectrum, alpha: Alpha::LeaveOneOut, intercept: false, class_weights: ClassWeights::Equal }
    }
}

/// Eigenfunctions by default.
const PAIRS: usize = 200;

impl SpectralRidge {
    pub(crate) fn entry() -> Entry<RegressionTask> {
        let can = Caps {
            numbers: true,
            classes: true,
            weights: true,
            precision: true,
            no_intercept: true,
            ..Caps::default()
        };
        Entry {
            can,
            ..Entry::<RegressionTask>::new(
                "spectrum",
                "Ridge regression on the leading eigenfunctions",
                [&Objective::OPTIONS[..], &[&RANK], &KernelOptions::OPTIONS].concat(),
                |o, known| {
                    let (objective, rank) = (Objective::of(o)?, o.take(&RANK)?);
                    let intercept = known.intercept.unwrap_or(true);
                    fail_if!(
                        objective.is_logistic() && !intercept,
                        "logistic regression always has an intercept; leave one of them out"
                    );
                    Regression::searched(o, known, objective, OnEigenfunctions { rank, intercept })
                },
            )
        }
    }
}

/// Regression on the leading eigenfunctions.
struct OnEigenfunctions {
    /// How many, where that is given.
    rank: Option<usize>,
    intercept: bool,
}

impl UnderKernel for OnEigenfunctions {
    fn fit(&self, kernel: Kernel, objective: &Objective, points: &Points) -> Result<Outcome> {
        let Points { x, y, context, .. } = points;
        let k = self.rank.unwrap_or(PAIRS).min(x.nrows());
        if objective.is_logistic() {
            let outcome = OnFeatures::fit_on(FeatureMap::Eigenfunctions { kernel, pairs: k }, objective, points)?;
            return Ok(Outcome { rank: Some(k), ..outcome });
        }
        let operator = context.kernel_operator(&kernel, *x)?;
        let problem = Problem { operator: &operator, k, context: **context };
        let spectrum = Spectrum::fit(&Krylov::default(), &problem, None)?.into();
        let Objective { alpha, class_weights, .. } = objective.clone();
        let fitted = SpectralRidge { spectrum, alpha, intercept: self.intercept, class_weights }.fit(*x, y, context)?;
        let (alpha, tried) = (fitted.alpha, fitted.tried.clone());
        Ok(Outcome { rank: Some(k), ..Outcome::new(fitted, alpha, tried) })
    }
}

/// Weights of the eigenfunctions, ready to predict. Example: [`SpectralRidge`].
pub struct FittedSpectralRidge {
    /// α, given or found.
    pub alpha: f64,
    /// What was tried on the way to α.
    pub tried: Vec<Tried>,
    /// The eigenfunctions.
    pub spectrum: Arc<Spectrum>,
    encoding: Encoding,
    /// t of `softmax(t f(x))`, for classes.
    sharpness: Option<f64>,
    /// The constant `[m]`.
    offset: Array1<f64>,
    /// Weights of `ψ` `[k, m]`.
    weights: Array2<f64>,
    /// Warnings of the fit; a file does not keep them.
    notes: Vec<String>,
}

impl Fit for SpectralRidge {
    type Target = Target;
    type Fitted = FittedSpectralRidge;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedSpectralRidge> {
        let spectrum = self.spectrum.clone();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        let context = &context.beside_classes(y)?;
        let (encoding, encoded) = Encoding::encode(y, x.nrows(), -1.0, 1.0)?;
        let root: Vec<f64> = spectrum.eigenvalues.iter().map(|μ| μ.max(0.0).sqrt()).collect();
        context.budget.require(
            format!("ridge regression on {} eigenfunctions", spectrum.k()),
            memory(x.nrows(), spectrum.k(), encoding.width()),
            "use fewer of them",
        )?;
        // φ = √μ ψ
        let at_rows = |rows: &[usize]| Ok(spectrum.transform(x.select(Axis(0), rows).view())? * aview1(&root));
        let (weights, intercept) = (self.class_weights.of_rows(y)?, self.intercept);
        let (y_view, weights) = (encoded.view(), weights.as_deref());
        let head = Head { features: &at_rows, combined: None, on_device: None, y: y_view, weights, intercept, context };
        let Solved { alpha, tried, weights, offset, left_out: (rows, scores), mut notes } = head.solve(self.alpha)?;
        notes.splice(..0, spectrum.notes.iter().cloned());
        let sharpness = left_out_sharpness(y, Some(&rows), scores.view());
        let weights = weights * aview1(&root).insert_axis(Axis(1));
        Ok(FittedSpectralRidge { alpha, tried, spectrum, encoding, sharpness, offset, weights, notes })
    }
}

impl Predict for FittedSpectralRidge {
    fields! {
        origin: Origin = spectrum.origin;
        notes: [String] = notes;
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.spectrum.origin.d)?;
        Ok(matmul(self.spectrum.transform(x)?.view(), self.weights.view()) + &self.offset)
    }

    encoded_scores!(encoding);
}

saved! {
    FittedSpectralRidge, "spectral-ridge":
    spectrum: Arc<Spectrum> = whole(Spectrum::unpack);
    encoding: Encoding = value("target", Encoding::checked);
    alpha: f64 = value("alpha");
    tried: Vec<Tried> = value("tried");
    sharpness: Option<f64> = value("sharpness");
    offset: Array1<f64> = vector("offset", encoding.width());
    weights: Array2<f64> = matrix("weights", (spectrum.k(), encoding.width()));
    notes: Vec<String> = known(not_kept, ());
}
