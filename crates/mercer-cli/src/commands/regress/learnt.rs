//! What was learnt, whichever way.

use crate::context::Context;
use crate::score::{Score, score};
use crate::text;
use mercer::Result;
use mercer::apply::{FittedNadarayaWatson, FittedRidge, Predict, Tried};
use mercer::data::{Dataset, Target};
use mercer::spectrum::Origin;
use ndarray::ArrayView2;

/// A fitted model that predicts.
pub enum Learnt {
    Ridge(FittedRidge),
    Average(FittedNadarayaWatson),
}

impl Learnt {
    /// Predictions, and the rows that no example reaches.
    fn predict(&self, x: ArrayView2<f64>) -> Result<(Target, Vec<usize>)> {
        match self {
            Learnt::Ridge(ridge) => Ok((ridge.predict(x)?, vec![])),
            Learnt::Average(average) => {
                let averages = average.averages(x)?;
                Ok((average.decode(averages.scores.view()), averages.unreached))
            }
        }
    }

    pub fn origin(&self) -> &Origin {
        match self {
            Learnt::Ridge(ridge) => ridge.origin(),
            Learnt::Average(average) => average.origin(),
        }
    }

    pub fn tried(&self) -> &[Tried] {
        match self {
            Learnt::Ridge(ridge) => &ridge.tried,
            Learnt::Average(average) => &average.tried,
        }
    }

    /// The number that was given or chosen.
    pub fn parameter(&self) -> (&'static str, f64) {
        match self {
            Learnt::Ridge(ridge) => ("alpha", ridge.alpha),
            Learnt::Average(average) => ("bandwidth", average.bandwidth),
        }
    }

    pub fn iterations(&self) -> Option<usize> {
        match self {
            Learnt::Ridge(ridge) => ridge.iterations,
            Learnt::Average(_) => None,
        }
    }

    /// Predictions for `data`, and their score where it has the targets.
    pub fn judged(&self, data: &Dataset, context: &Context) -> Result<(Target, Option<Score>)> {
        let (predicted, far) = self.predict(data.x.to_f64().view())?;
        if !far.is_empty() {
            context.warn(format_args!(
                "{} of `{}` out of reach of every example: predicted as the mean",
                text::count(far.len(), "row"),
                data.name
            ));
        }
        let known = data.y.as_ref().and_then(|truth| score(truth, &predicted));
        Ok((predicted, known))
    }
}
