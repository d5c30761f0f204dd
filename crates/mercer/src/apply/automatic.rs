//! The estimator that suits the number of points, the kernel and the memory.

use super::ridge_head::memory;
use super::{FeatureMap, RidgeSolver};
use crate::FitContext;
use crate::kernel::Kernel;
use crate::spectrum::Landmarks;

/// Points up to which kernel ridge regression is solved exactly, in seconds on two cores.
const EXACT: usize = 4000;

/// Landmarks by default.
const LANDMARKS: usize = 1000;

/// Columns up to which a linear kernel is used in its primal form.
const MOST_COLUMNS: usize = 10_000;

/// How to learn under a kernel, and why.
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
    /// Kernel ridge regression, [`Ridge`](super::Ridge), on all points.
    Ridge(RidgeSolver),
    /// Ridge regression on features, [`FeatureRidge`](super::FeatureRidge).
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
            && context.budget.allows(memory(d))
        {
            let why = format!("a linear kernel needs no more than its {d} columns");
            return (Learner::Features(FeatureMap::Linear { scale }), why);
        }
        if exact {
            return (Learner::Ridge(RidgeSolver::Direct), format!("{n} points are few enough for the exact solution"));
        }
        let (map, reason) = nystrom(kernel, (n, d), rank, context);
        let why = match (&map, n <= EXACT, reason) {
            (_, _, Some(reason)) => reason,
            (_, true, _) => "features were asked for".into(),
            (FeatureMap::Nystrom { landmarks, .. }, ..) => {
                format!(
                    "{n} points are too many for the exact solution in seconds; {landmarks} landmarks stand for them"
                )
            }
            _ => String::new(),
        };
        (Learner::Features(map), why)
    }
}

/// Nyström's features under a kernel: `rank` landmarks where it is given, else a thousand, no more than the kernel's rank, and no more than
/// there is memory for. Also the reason for another number, where there is one.
fn nystrom(
    kernel: &Kernel,
    (n, d): (usize, usize),
    rank: Option<usize>,
    context: &FitContext,
) -> (FeatureMap, Option<String>) {
    let asked = rank.unwrap_or(LANDMARKS).min(n);
    let full = kernel.rank(d).filter(|full| *full <= asked);
    let mut landmarks = full.unwrap_or(asked).max(1);
    while rank.is_none() && landmarks > 16 && !context.budget.allows(memory(landmarks)) {
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
    /// Features for a kernel: its columns where it is linear, else landmarks, as many as `rank` or a thousand.
    /// Example: [`Learner`].
    pub fn of_kernel(kernel: &Kernel, dim: (usize, usize), rank: Option<usize>, context: &FitContext) -> FeatureMap {
        match linear_scale(kernel).filter(|_| dim.1 <= MOST_COLUMNS) {
            Some(scale) => FeatureMap::Linear { scale },
            None => nystrom(kernel, dim, rank, context).0,
        }
    }
}

/// c of the kernel `c·x·x'`.
pub(super) fn linear_scale(kernel: &Kernel) -> Option<f64> {
    match kernel {
        Kernel::Scale(c, inner) => linear_scale(inner).map(|scale| c * scale),
        kernel => (kernel.to_string() == "linear").then_some(1.0),
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
        let scaled = choose("2*linear", 100, 3, &context).0;
        assert_eq!(scaled, Learner::Features(FeatureMap::Linear { scale: 2.0 }));
        // More columns than points: the dual form is smaller.
        assert!(matches!(choose("linear", 100, 3000, &context).0, Learner::Ridge(_)));
        // C(3 + 2, 2) monomials of degree 2 at most.
        assert_eq!(landmarks(choose("poly(degree=2)", 9000, 3, &context)), 10);
        let small = FitContext { budget: Budget::of(20 << 20), ..context };
        assert!(landmarks(choose("rbf(1)", 3000, 9, &small)) < 1000);
    }
}
