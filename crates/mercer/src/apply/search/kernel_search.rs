//! The search for a kernel and its lengthscales, by the error on left-out points or by the marginal likelihood.

use crate::apply::features::ridge_head::memory;
use crate::apply::search::automatic::EXACT;
use crate::apply::{Alpha, ClassWeights, Criterion, FeatureMap, FeatureRidge, Fit, Ridge, RidgeSolver, Tuning};
use crate::data::Target;
use crate::kernel::{Expression, Kernel};
use crate::rng::Rng;
use crate::spectrum::Landmarks;
use crate::{Error, FitContext, KeepsBest, Progress, Result, Silent};
use ndarray::{ArrayView2, Axis};
use serde::Serialize;

/// Rows that the search looks at, at most.
const ROWS: usize = 4000;

/// Rows that the search looks at where the exact solution follows: candidates are judged by the exact solution on these, because landmarks hide the
/// short lengthscales that data without noise ask for.
const FEW: usize = 1000;

/// Landmarks for a candidate.
const LANDMARKS: usize = 500;

/// The search for the kernel with the least left-out error in ridge regression, or the largest marginal likelihood, on a sample of
/// the points.
///
/// By the left-out error, a lengthscale `auto` is tried at powers of two times the median distance, for as long as the error falls, and then
/// refined to an eighth of an octave. Up to 4000 points each candidate is the exact solution on a thousand of them; above, that on 500 landmarks of 4000
/// rows. Lengthscales `ard`, and everything by the likelihood, are found along the gradient ([`Tuning`]).
/// Every candidate has its own α.
///
/// ```
/// use mercer::apply::KernelSearch;
/// use mercer::{FitContext, data::Target, kernel::Expression};
/// let x = ndarray::Array2::from_shape_fn((300, 1), |(i, _)| i as f64 / 30.0);
/// let y = Target::Values(x.iter().map(|x| (6.0 * x).sin()).collect());
/// let candidates = ["linear", "rbf(lengthscale=auto)"].map(|text| Expression::parse(text).unwrap()).to_vec();
/// let found = KernelSearch::new(candidates).best(x.view(), &y, &FitContext::default())?;
/// assert!(found.kernel.to_string().starts_with("rbf") && found.tried.len() > 8);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct KernelSearch {
    /// The kernels, with numbers, `median`, `auto` or `ard` for their lengthscales.
    pub candidates: Vec<Expression>,
    /// What they are compared by.
    pub criterion: Criterion,
    /// How α is found for each.
    pub alpha: Alpha,
    /// How much the rows of each class count.
    pub class_weights: ClassWeights,
}

/// What a search found. Example: [`KernelSearch`].
#[derive(Clone, Debug)]
pub struct FoundKernel {
    /// The best kernel.
    pub kernel: Kernel,
    /// Its lengthscales `auto` over the median distance of the rows that were looked at; 1 where it has none.
    pub factor: f64,
    /// What was compared.
    pub criterion: Criterion,
    /// Everything that was tried, the best first.
    pub tried: Vec<TriedKernel>,
    /// Rows that were looked at.
    pub rows: usize,
    /// Whether the search was interrupted; the kernel is then the best of those that were tried.
    pub cut_short: bool,
}

/// A kernel that was tried. Example: [`KernelSearch`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TriedKernel {
    /// The kernel, every parameter a number.
    pub kernel: String,
    /// The best α under it.
    pub alpha: f64,
    /// The criterion: its mean squared error on left-out points, or `−log p(y)/n`.
    pub error: f64,
}

impl KernelSearch {
    /// Among these kernels by the error on left-out points, with α by leave-one-out and equal classes.
    pub fn new(candidates: Vec<Expression>) -> Self {
        let criterion = Criterion::LeftOut;
        KernelSearch { candidates, criterion, alpha: Alpha::LeaveOneOut, class_weights: ClassWeights::Equal }
    }

    /// Bytes that the search takes for points of `d` columns: the rows that are looked at, and a fit on features of landmarks; along gradients, eight
    /// matrices of the rows that [`Tuning`] looks at.
    pub fn memory(&self, d: usize) -> u64 {
        let rows = 3 * 8 * (ROWS * d) as u64;
        let tuning = if self.is_tuned() { 8 * 8 * (Tuning::default().rows as u64).pow(2) } else { 0 };
        rows.saturating_add(memory(ROWS, LANDMARKS, 1).max(tuning))
    }

    /// Whether some hyper-parameters are found along gradients.
    fn is_tuned(&self) -> bool {
        self.criterion == Criterion::Likelihood || self.candidates.iter().any(Expression::has_ard)
    }

    /// The best for the points `x` `[n, d]` and their targets.
    pub fn best(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FoundKernel> {
        let n = x.nrows();
        let exact = n <= EXACT && !self.is_tuned();
        let rows = Rng::new(context.seed).fork(0x7365_6172).sample(n, n.min(if exact { FEW } else { ROWS }));
        let (x, y) = (x.select(Axis(0), &rows), y.select(&rows));
        let mut all = AllTried::default();
        for (i, candidate) in self.candidates.iter().enumerate() {
            let stage = context.stage("kernel", i + 1, self.candidates.len());
            all.of_candidate = 0;
            Sample { search: self, exact, x: x.view(), y: &y, context, progress: &stage }
                .try_all(candidate, &mut all)?;
        }
        let AllTried { mut tried, cut_short, keeps, .. } = all;
        // What follows the search was not asked to end.
        if let Some(keeps) = keeps {
            keeps.cut_short();
        }
        tried.sort_by(|(_, a), (_, b)| a.error.total_cmp(&b.error));
        let best = tried.first().map(|(resolved, _)| resolved.clone());
        let tried = tried.into_iter().map(|(_, tried)| tried).collect();
        let (kernel, factor) =
            best.ok_or_else(|| Error::input("there is no kernel to choose among; name at least one"))?;
        Ok(FoundKernel { kernel, factor, criterion: self.criterion, tried, rows: rows.len(), cut_short })
    }
}

/// The points that candidates are tried on.
struct Sample<'a, 'c> {
    search: &'a KernelSearch,
    /// Whether candidates are judged by the exact solution.
    exact: bool,
    /// `[n, d]`
    x: ArrayView2<'a, f64>,
    y: &'a Target,
    context: &'c FitContext<'c>,
    progress: &'a dyn Progress,
}

/// What was tried so far.
#[derive(Default)]
struct AllTried<'a> {
    /// Each kernel with its factor on the median distance, and its error.
    tried: Vec<((Kernel, f64), TriedKernel)>,
    /// How many of them are of the present candidate.
    of_candidate: usize,
    /// From the first that was tried on.
    keeps: Option<KeepsBest<'a>>,
    /// Whether some were left out, because of an interrupt.
    cut_short: bool,
}

impl AllTried<'_> {
    /// Whether there is a result and an interrupt.
    fn ends_here(&mut self, context: &FitContext) -> bool {
        let ends = self.keeps.is_some() && context.interrupted();
        self.cut_short |= ends;
        ends
    }
}

/// Octaves about the median that are tried in any case, and at most.
const NEAR: i32 = 3;
const FAR: f64 = 10.0;

/// Parts of an octave to which the best is refined, on both sides of it.
const REFINED: [f64; 3] = [0.5, 0.25, 0.125];

impl<'c> Sample<'_, 'c> {
    /// Tries one candidate at all its lengthscales.
    fn try_all(&self, candidate: &Expression, tried: &mut AllTried<'c>) -> Result<()> {
        if self.search.criterion == Criterion::Likelihood || candidate.has_ard() {
            return self.try_tuned(candidate, tried);
        }
        if !candidate.is_automatic() {
            self.try_at(candidate, 0.0, tried)?;
            return Ok(());
        }
        let mut errors: Vec<(f64, f64)> = Vec::new();
        let mut at = |octave: f64| -> Result<(f64, f64)> { Ok((octave, self.try_at(candidate, octave, tried)?)) };
        for octave in -NEAR..=NEAR {
            errors.push(at(f64::from(octave))?);
        }
        let least = |errors: &[(f64, f64)]| errors.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).expect("seven");
        // Beyond the ends for as long as that helps.
        let mut best = least(&errors);
        while best.0.abs() >= f64::from(NEAR) && best.0.abs() < FAR {
            let next = at(best.0 + best.0.signum())?;
            if next.1 >= best.1 {
                break;
            }
            best = next;
        }
        for step in REFINED {
            best = least(&[best, at(best.0 - step)?, at(best.0 + step)?]);
        }
        Ok(())
    }

    /// Tries one candidate with the hyper-parameters that the criterion's gradient leads to; not once there is a result and an interrupt.
    fn try_tuned(&self, candidate: &Expression, all: &mut AllTried<'c>) -> Result<()> {
        if all.ends_here(self.context) {
            return Ok(());
        }
        let criterion = self.search.criterion;
        let context = FitContext { progress: self.progress, ..*self.context };
        let found = Tuning { criterion, ..Tuning::default() }.best(candidate, self.x, self.y, &context)?;
        if criterion == Criterion::LeftOut {
            // Judged as all others are.
            return self.try_kernel((found.kernel, 1.0), candidate, all).map(|_| ());
        }
        let text = found.kernel.to_string();
        all.tried.push(((found.kernel, 1.0), TriedKernel { kernel: text, alpha: found.noise, error: found.value }));
        all.keeps.get_or_insert_with(|| self.context.keeps_best());
        Ok(())
    }

    /// The left-out error with an automatic lengthscale of `2^octave` times the median distance; infinite, and not tried, once there is
    /// a result and an interrupt.
    fn try_at(&self, candidate: &Expression, octave: f64, all: &mut AllTried<'c>) -> Result<f64> {
        if all.ends_here(self.context) {
            return Ok(f64::INFINITY);
        }
        let factor = octave.exp2();
        self.try_kernel((candidate.resolve_scaled(self.x, self.context.seed, factor)?, factor), candidate, all)
    }

    /// The left-out error under a kernel, which has a factor on the median distance.
    fn try_kernel(
        &self,
        (kernel, factor): (Kernel, f64),
        candidate: &Expression,
        all: &mut AllTried<'c>,
    ) -> Result<f64> {
        let quiet = FitContext { progress: &Silent, interrupt: None, ..*self.context };
        let map = match FeatureMap::of_kernel(&kernel, self.x.dim(), Some(LANDMARKS), &quiet) {
            FeatureMap::Nystrom { kernel, landmarks, .. } => {
                // The same landmarks for every kernel.
                FeatureMap::Nystrom { kernel, landmarks, choice: Landmarks::Uniform }
            }
            other => other,
        };
        // A number for α is for the kernel that is used in the end; here, each has its best.
        let alpha = if matches!(self.search.alpha, Alpha::Fixed(_)) { Alpha::LeaveOneOut } else { self.search.alpha };
        let class_weights = self.search.class_weights.clone();
        let (alpha, tried) = if self.exact && !matches!(map, FeatureMap::Linear { .. }) {
            let (solver, centred) = (RidgeSolver::Direct, true);
            let ridge = Ridge { alpha, solver, centred, class_weights, ..Ridge::new(kernel.clone()) };
            let fitted = ridge.fit(self.x, self.y, &quiet)?;
            (fitted.alpha, fitted.tried)
        } else {
            let fitted = FeatureRidge { map, alpha, class_weights }.fit(self.x, self.y, &quiet)?;
            (fitted.alpha, fitted.tried)
        };
        let error = tried.iter().map(|t| t.error).fold(f64::INFINITY, f64::min);
        let text = kernel.to_string();
        all.tried.push(((kernel, factor), TriedKernel { kernel: text, alpha, error }));
        all.keeps.get_or_insert_with(|| self.context.keeps_best());
        all.of_candidate += 1;
        let total = if candidate.is_automatic() { (2 * NEAR + 1) as usize + 2 * REFINED.len() } else { 1 };
        let least = all.tried.iter().map(|(_, tried)| tried.error).fold(f64::INFINITY, f64::min);
        let note = format!("least error {least:.4e}");
        self.progress.step(&candidate.to_string(), all.of_candidate, total.max(all.of_candidate), &note);
        Ok(error)
    }
}
