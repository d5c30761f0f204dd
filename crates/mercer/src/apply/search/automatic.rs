//! The estimator that suits the number of points, the kernel, the memory and the device.

use crate::apply::features::ridge_head::memory;
use crate::apply::regression::on_features::{Features, OnFeatures};
use crate::apply::regression::outcome::Outcome;
use crate::apply::regression::{IterationOptions, Objective, Points, Regression, RegressionTask, UnderKernel};
use crate::apply::ridge::regression::{OnAllPoints, SOLVER};
use crate::apply::{FeatureMap, RidgeSolver};
use crate::compute::Device;
use crate::kernel::{Base, Kernel};
use crate::operator::{Precision, compiles};
use crate::options::{Caps, Entry, Options};
use crate::spectrum::Landmarks;
use crate::{Error, FitContext, Result, fail_if};

/// Points up to which kernel ridge regression is solved exactly, in seconds on two cores.
pub(crate) const EXACT: usize = 4000;

/// Landmarks by default, at least and at most.
const LANDMARKS: usize = 1000;
const MOST_LANDMARKS: usize = 2000;

/// Landmarks by default for each √n: as n grows, the error of n points falls, and that of the landmarks must fall with it (Rudi, Camoriano and
/// Rosasco, 2015). Of 470 620 rows to learn and 52 291 others of covertype's training rows, 1.5 √n landmarks have 78.0 % right, 1.6 √n 78.4 %, 1.7 √n 78.6 %
/// and 1.9 √n 79.2 %; from 1.8 √n on, rounding makes the normal equations there need a slower way, three times as long.
const LANDMARKS_BY_ROOT: f64 = 1.7;

/// Landmarks for n points by default.
fn usual_landmarks(n: usize) -> usize {
    ((LANDMARKS_BY_ROOT * (n as f64).sqrt()) as usize).clamp(LANDMARKS, MOST_LANDMARKS)
}

/// Columns up to which a linear kernel is used in its primal form.
const MOST_COLUMNS: usize = 10_000;

/// Products that conjugate gradients take, as a rule, with a preconditioner of rank 2√n.
const PRODUCTS: f64 = 100.0;

/// Operations of a kernel's formula, and of the product with one column, for each pair of points, beside 2d for the distance.
const FORMULA: f64 = 22.0;

/// Seconds that the solution on all points may take on a GPU.
const SECONDS: f64 = 60.0;

/// How to learn under a kernel, and why.
///
/// Up to 4000 points, the choice is the exact solution; for linear kernels, their columns; for more points, a thousand landmarks, or 1.7√n where that is
/// more, up to 2000. On a GPU the choice is
/// kernel ridge regression on all points for as long as the following cost is below a minute:
///
/// ```text
/// seconds = 100 products · n² (2d + 22) operations / rate
/// ```
///
/// with the rates that were measured on an H200 (`bench/results/gpu.json`: products with the RBF kernel of 65 536 points of 64 columns): 1e13 operations a
/// second in f64, 6e13 in f32, 3e14 in tf32. With 54 columns that is up to 210 000 points in f64 and 520 000 in f32. Smaller GPUs take longer.
///
/// ```
/// use mercer::apply::{FeatureMap, Learner};
/// use mercer::{FitContext, kernel::Kernel};
/// let (rbf, linear) = (Kernel::parse("rbf(1)")?, Kernel::parse("linear")?);
/// let choose = |kernel: &Kernel, n| Learner::choose(kernel, (n, 5), None, &FitContext::default()).0;
/// assert!(matches!(choose(&rbf, 500), Learner::Ridge(_)));
/// assert!(matches!(choose(&rbf, 50_000), Learner::Features(FeatureMap::Nystrom { landmarks: 1000, .. })));
/// assert!(matches!(choose(&linear, 50_000), Learner::Features(FeatureMap::Linear { .. })));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Learner {
    /// Kernel ridge regression, [`Ridge`](crate::apply::Ridge), on all points.
    Ridge(RidgeSolver),
    /// Ridge regression on features, [`FeatureRidge`](crate::apply::FeatureRidge).
    Features(FeatureMap),
}

impl Learner {
    /// The way for n points of d columns, with `rank` features where it is given, and the reason in words.
    pub fn choose(
        kernel: &Kernel,
        (n, d): (usize, usize),
        rank: Option<usize>,
        context: &FitContext,
    ) -> (Learner, String) {
        let exact = rank.is_none() && n <= EXACT && context.budget.allows(4 * 8 * (n as u64).pow(2));
        if let Some(scale) = linear_scale(kernel)
            && d <= MOST_COLUMNS
            && !(exact && d > n)
            && context.budget.allows(memory(n, d, 1))
        {
            let why = format!("a linear kernel needs no more than its {d} columns");
            return (Learner::Features(FeatureMap::Linear { scale }), why);
        }
        if exact {
            return (Learner::Ridge(RidgeSolver::Direct), format!("{n} points are few enough for the exact solution"));
        }
        if let Some(why) = all_points_on_gpu(kernel, (n, d), context).filter(|_| rank.is_none()) {
            return (Learner::Ridge(RidgeSolver::Auto), why);
        }
        let (map, reason) = nystrom(kernel, (n, d), rank, context);
        let why = match (&map, n <= EXACT, reason) {
            (_, _, Some(reason)) => reason,
            (_, true, _) => "features were asked for".into(),
            (FeatureMap::Nystrom { landmarks, .. }, ..) => {
                format!(
                    "{n} points are too many for the exact solution in seconds; {landmarks} {stand}",
                    stand = crate::advice!(Landmarks)
                )
            }
            _ => String::new(),
        };
        (Learner::Features(map), why)
    }
}

/// By the method that suits the data, or by the solver that is named.
struct Automatic {
    features: OnFeatures,
    all_points: OnAllPoints,
}

impl Learner {
    pub(crate) fn entry() -> Entry<RegressionTask> {
        Entry {
            can: Caps {
                numbers: true,
                classes: true,
                weights: true,
                precision: true,
                blocks: true,
                matrix: true,
                shards: true,
                no_intercept: true,
                ..Caps::default()
            },
            ..Entry::<RegressionTask>::new(
                "auto",
                "By the number of points, the kernel, the memory and the device: ridge for few, linear for linear kernels, else nystrom; on a \
                 GPU ridge for many",
                OnAllPoints::options(),
                Automatic::of,
            )
        }
    }
}

impl Automatic {
    fn of(o: &mut Options, known: &RegressionTask) -> Result<Regression> {
        if known.matrix {
            return OnAllPoints::of_matrix(o, known);
        }
        let (solver, iterative) = (o.given(&[&SOLVER]).is_some(), o.given(&IterationOptions::OPTIONS));
        let (objective, all_points) = (Objective::of(o)?, OnAllPoints::of(o, known)?);
        if let Some(given) = iterative.filter(|_| !solver) {
            return Err(Error::input(format!(
                "{} is for iterative solvers; give {} or the method of one, or leave it out",
                o.option(given),
                o.spelling().set(SOLVER.name, "cg")
            )));
        }
        fail_if!(
            objective.is_logistic() && (solver || known.intercept == Some(false)),
            "{} is for methods on features, which have an intercept, and {} for ridge; leave one of them out",
            objective.logistic_in_words(),
            o.option(&SOLVER)
        );
        let features = OnFeatures { features: Features::ByKernel, rank: all_points.rank };
        Regression::searched(o, known, objective, Automatic { features, all_points })
    }

    /// Whether the options name the solver on all points.
    fn is_decided(&self) -> bool {
        self.all_points.solver.is_some() || !self.all_points.intercept
    }
}

impl UnderKernel for Automatic {
    fn fit(&self, kernel: Kernel, objective: &Objective, points: &Points) -> Result<Outcome> {
        if self.is_decided() {
            return self.all_points.fit_by(None, kernel, objective, points);
        }
        let (dim, rank, context) = (points.x.dim(), self.features.rank, points.context);
        let (learner, why) = Learner::choose(&kernel, dim, rank, context);
        match learner {
            Learner::Features(map) => {
                Ok(OnFeatures::fit_on(self.features.checked(map)?, objective, points)?.because(&why))
            }
            Learner::Ridge(_) if objective.is_logistic() => {
                let outcome = OnFeatures::fit_on(self.features.map(kernel, dim, context)?, objective, points)?;
                Ok(outcome.because("logistic regression is for methods on features"))
            }
            Learner::Ridge(solver) => {
                Ok(self.all_points.fit_by(Some(solver), kernel, objective, points)?.because(&why))
            }
        }
    }

    fn on_features(&self) -> Option<&OnFeatures> {
        Some(&self.features).filter(|_| !self.is_decided())
    }

    fn shards(&self) -> bool {
        self.all_points.shards()
    }
}

/// Why kernel ridge regression on all n points of d columns suits a GPU; none where it does not.
fn all_points_on_gpu(kernel: &Kernel, (n, d): (usize, usize), context: &FitContext) -> Option<String> {
    let rate = match context.precision {
        Precision::F64 => 1e13,
        Precision::F32 => 6e13,
        Precision::Tf32 => 3e14,
    };
    let seconds = PRODUCTS * (n as f64).powi(2) * (2.0 * d as f64 + FORMULA) / rate;
    // The factor of the preconditioner and its orthonormal form, each of 2√n columns, and a few vectors.
    let needed = 8 * n as u64 * (4 * n.isqrt() as u64 + 20);
    let small_rank = kernel.rank(d).is_some_and(|rank| rank <= LANDMARKS);
    let suits = matches!(context.device, Device::Cuda(_)) && seconds <= SECONDS && !small_rank;
    // A product with a kernel of images costs far more than these counts say.
    (suits && compiles(kernel) && !kernel.sees_images() && context.budget.allows(needed)).then(|| {
        format!("a GPU solves for all {n} points in about {} s by the rate of its products", seconds.max(1.0).round())
    })
}

/// Nyström's features under a kernel: `rank` landmarks where it is given, else as many as suit n, no more than the kernel's rank, and no more than
/// there is memory for. Also the reason for another number, where there is one.
fn nystrom(
    kernel: &Kernel,
    (n, d): (usize, usize),
    rank: Option<usize>,
    context: &FitContext,
) -> (FeatureMap, Option<String>) {
    let asked = rank.unwrap_or_else(|| usual_landmarks(n)).min(n);
    let full = kernel.rank(d).filter(|full| *full <= asked);
    let mut landmarks = full.unwrap_or(asked).max(1);
    while rank.is_none() && landmarks > 16 && !context.budget.allows(memory(n, landmarks, 1)) {
        landmarks /= 2;
    }
    let reason = match full {
        Some(full) if full == landmarks => {
            Some(format!("the kernel has rank {full} at most, and as many landmarks are exact"))
        }
        _ if landmarks < asked => Some(format!("{landmarks} landmarks are what the memory allows")),
        _ => None,
    };
    let choice = if full.is_some() { Landmarks::PivotedCholesky } else { Landmarks::KMeansPlusPlus };
    (FeatureMap::Nystrom { kernel: kernel.clone(), landmarks, choice }, reason)
}

impl FeatureMap {
    /// Features for a kernel: its columns where it is linear, else landmarks, as many as `rank` or as suit n.
    /// Example: [`Learner`].
    pub fn of_kernel(kernel: &Kernel, dim: (usize, usize), rank: Option<usize>, context: &FitContext) -> FeatureMap {
        match linear_scale(kernel).filter(|_| dim.1 <= MOST_COLUMNS) {
            Some(scale) => FeatureMap::Linear { scale },
            None => nystrom(kernel, dim, rank, context).0,
        }
    }
}

/// c of the kernel `c·x·x'`.
pub(crate) fn linear_scale(kernel: &Kernel) -> Option<f64> {
    match kernel {
        Kernel::Scale(c, inner) => linear_scale(inner).map(|scale| c * scale),
        Kernel::Base(Base::Linear(formula)) if formula.columns.is_none() => Some(formula.lengthscale.powi(-2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Budget;

    #[test]
    fn the_choice_follows_size_kernel_and_memory() {
        let context = FitContext { budget: Budget::of(8 << 30), ..FitContext::default() };
        let choose = |text: &str, n, d, context: &FitContext| {
            Learner::choose(&Kernel::parse(text).unwrap(), (n, d), None, context)
        };
        let landmarks = |chosen: (Learner, String)| match chosen.0 {
            Learner::Features(FeatureMap::Nystrom { landmarks, .. }) => landmarks,
            other => panic!("{other:?}"),
        };
        assert!(matches!(choose("rbf(1)", 4000, 9, &context).0, Learner::Ridge(_)));
        assert_eq!(landmarks(choose("rbf(1)", 4001, 9, &context)), 1000);
        assert_eq!(
            [300_000, 522_911, 10_000_000].map(|n| landmarks(choose("rbf(1)", n, 9, &context))),
            [1000, 1229, 2000]
        );
        let scaled = choose("2*linear", 100, 3, &context).0;
        assert_eq!(scaled, Learner::Features(FeatureMap::Linear { scale: 2.0 }));
        // More columns than points: the dual form is smaller.
        assert!(matches!(choose("linear", 100, 3000, &context).0, Learner::Ridge(_)));
        // C(3 + 2, 2) monomials of degree 2 at most.
        assert_eq!(landmarks(choose("poly(degree=2)", 9000, 3, &context)), 10);
        let gpu = |precision| FitContext { device: Device::Cuda(0), precision, ..context };
        for (n, d, precision, all) in [
            (4001, 9, Precision::F64, true),
            (210_000, 54, Precision::F64, true),
            (220_000, 54, Precision::F64, false),
            (220_000, 54, Precision::F32, true),
        ] {
            let (chosen, why) = choose("rbf(1)", n, d, &gpu(precision));
            assert_eq!(matches!(chosen, Learner::Ridge(_)), all, "{n} {why}");
            assert_eq!(why.contains("a GPU solves for all"), all, "{why}");
        }
        assert_eq!(landmarks(choose("poly(degree=2)", 9000, 3, &gpu(Precision::F64))), 10);
        // The factor of the preconditioner does not fit.
        let tight = FitContext { budget: Budget::of(2 << 30), ..gpu(Precision::F64) };
        assert_eq!(landmarks(choose("rbf(1)", 200_000, 9, &tight)), 1000);
        let small = FitContext { budget: Budget::of(20 << 20), ..context };
        assert!(landmarks(choose("rbf(1)", 3000, 9, &small)) < 1000);
    }
}
