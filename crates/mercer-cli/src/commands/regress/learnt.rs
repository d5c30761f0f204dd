//! A fitted model of either method.

use crate::context::Context;
use crate::score::{Score, score};
use crate::text;
use mercer::Result;
use mercer::apply::{FittedNadarayaWatson, FittedRidge, Predict, Tried};
use mercer::data::{Dataset, Target};
use mercer::spectrum::Origin;
use ndarray::ArrayView2;

/// Predictions, and the rows that no example reaches.
type Predicted = (Target, Vec<usize>);

/// Predicts at new points `[m, d]`.
type Prediction = dyn Fn(ArrayView2<f64>) -> Result<Predicted>;

/// A fitted model that predicts, and how it was chosen.
pub struct Learnt {
    /// At points `[n, d]`.
    predict: Box<Prediction>,
    pub origin: Origin,
    pub tried: Vec<Tried>,
    /// The number that was given or chosen.
    pub parameter: (&'static str, f64),
    pub iterations: Option<usize>,
}

impl From<FittedRidge> for Learnt {
    fn from(ridge: FittedRidge) -> Learnt {
        Learnt {
            origin: ridge.origin().clone(),
            tried: ridge.tried.clone(),
            parameter: ("alpha", ridge.alpha),
            iterations: ridge.iterations,
            predict: Box::new(move |x| Ok((ridge.predict(x)?, vec![]))),
        }
    }
}

impl From<FittedNadarayaWatson> for Learnt {
    fn from(average: FittedNadarayaWatson) -> Learnt {
        Learnt {
            origin: average.origin().clone(),
            tried: average.tried.clone(),
            parameter: ("bandwidth", average.bandwidth),
            iterations: None,
            predict: Box::new(move |x| {
                let averages = average.averages(x)?;
                Ok((average.decode(averages.scores.view()), averages.unreached))
            }),
        }
    }
}

impl Learnt {
    /// Predictions for `data`, and their score where it has the targets.
    pub fn judged(&self, data: &Dataset, context: &Context) -> Result<(Target, Option<Score>)> {
        let (predicted, far) = (self.predict)(data.x.to_f64().view())?;
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
