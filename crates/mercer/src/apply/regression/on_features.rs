//! Ridge and logistic regression on features: nystrom, random-features, linear.

use super::outcome::Outcome;
use super::{KernelOptions, Objective, Points, RANK, Regression, RegressionTask, UnderKernel};
use crate::apply::{Alpha, FeatureLogistic, FeatureMap, FeatureRidge, Fit, FittedFeatureLogistic, FittedFeatureRidge};
use crate::kernel::Kernel;
use crate::options::{Caps, Entry, Opt, Options};
use crate::{Error, FitContext, Result, fail_if};

/// Random features by default.
const RANDOM_FEATURES: usize = 2000;

/// Which features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    /// Those that suit the kernel: the columns where it is linear, else landmarks.
    ByKernel,
    Nystrom,
    Random,
    Linear,
}

/// Regression on features.
#[derive(Clone, Debug)]
pub(crate) struct OnFeatures {
    pub features: Features,
    /// How many, where that is given.
    pub rank: Option<usize>,
}

impl OnFeatures {
    pub(crate) fn entries() -> [Entry<RegressionTask>; 3] {
        let entry = |name, aliases, about, features, own: &[&'static Opt]| Entry {
            aliases,
            can: Caps {
                numbers: true,
                classes: true,
                weights: true,
                blocks: true,
                precision: features == Features::Nystrom,
                ..Caps::default()
            },
            ..Entry::<RegressionTask>::new(
                name,
                about,
                [own, &Objective::OPTIONS, &KernelOptions::OPTIONS].concat(),
                move |o, known| OnFeatures::of(features, o, known),
            )
        };
        [
            entry(
                "nystrom",
                &[],
                "Ridge regression on features of landmark points; time grows like n",
                Features::Nystrom,
                &[&RANK],
            ),
            entry(
                "random-features",
                &["rff"],
                "Ridge regression on random Fourier features, as rff in `mercer fit`; for shift-invariant kernels",
                Features::Random,
                &[&RANK],
            ),
            entry(
                "linear",
                &[],
                "Ridge regression on the columns themselves; for linear kernels",
                Features::Linear,
                &[],
            ),
        ]
    }

    fn of(features: Features, o: &mut Options, known: &RegressionTask) -> Result<Regression> {
        let (rank, objective) = (o.take(&RANK)?, Objective::of(o)?);
        Regression::searched(o, known, objective, OnFeatures { features, rank })
    }

    /// Whether the features are those that suit the kernel.
    pub fn is_chosen(&self) -> bool {
        self.features == Features::ByKernel
    }

    /// The features of `dim` n points of d columns.
    pub fn map(&self, kernel: Kernel, dim: (usize, usize), context: &FitContext) -> Result<FeatureMap> {
        if self.features == Features::Random {
            let features = self.rank.unwrap_or(RANDOM_FEATURES).next_multiple_of(2);
            return Ok(FeatureMap::Random { kernel, features, sampling: Default::default() });
        }
        match (self.features, FeatureMap::of_kernel(&kernel, dim, self.rank, context)) {
            (Features::Linear, map) if !matches!(map, FeatureMap::Linear { .. }) => {
                Err(Error::input(format!("the method linear is for the kernel linear, not for {kernel}")))
            }
            (Features::Nystrom, FeatureMap::Linear { .. }) => {
                Err(Error::input("a linear kernel needs no landmarks; use the method linear"))
            }
            (_, map) => self.checked(map),
        }
    }

    /// Refuses a number of features where they are the columns.
    pub fn checked(&self, map: FeatureMap) -> Result<FeatureMap> {
        fail_if!(
            self.rank.is_some() && matches!(map, FeatureMap::Linear { .. }),
            "a linear kernel takes the columns themselves and no rank; leave it out"
        );
        Ok(map)
    }

    /// The regression of points on the features of a map.
    pub fn fit_on(map: FeatureMap, objective: &Objective, points: &Points) -> Result<Outcome> {
        let Points { x, y, context, .. } = points;
        match objective.is_logistic() {
            true => Ok(OnFeatures::logistic(objective.logistic(map).fit(*x, y, context)?)),
            false => Ok(OnFeatures::ridge(objective.ridge(map).fit(*x, y, context)?)),
        }
    }

    pub fn ridge(fitted: FittedFeatureRidge) -> Outcome {
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        Outcome { rank: Some(rank), ..Outcome::new(fitted, alpha, tried) }
    }

    pub fn logistic(fitted: FittedFeatureLogistic) -> Outcome {
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha, fitted.tried.clone());
        Outcome { rank: Some(rank), measure: "log loss", ..Outcome::new(fitted, alpha, tried) }
    }
}

impl UnderKernel for OnFeatures {
    fn fit(&self, kernel: Kernel, objective: &Objective, points: &Points) -> Result<Outcome> {
        OnFeatures::fit_on(self.map(kernel, points.x.dim(), points.context)?, objective, points)
    }

    fn on_features(&self) -> Option<&OnFeatures> {
        Some(self)
    }
}

impl Objective {
    /// Ridge regression on the features of a map.
    pub fn ridge(&self, map: FeatureMap) -> FeatureRidge {
        FeatureRidge { map, alpha: self.alpha, class_weights: self.class_weights.clone() }
    }

    /// Logistic regression on the features of a map. There is no leave-one-out error in closed form.
    pub fn logistic(&self, map: FeatureMap) -> FeatureLogistic {
        let usual = FeatureLogistic::new(map);
        let alpha = if self.alpha == Alpha::LeaveOneOut { usual.alpha } else { self.alpha };
        FeatureLogistic { alpha, class_weights: self.class_weights.clone(), ..usual }
    }
}
