//! Targets as columns of numbers, and scores back as targets.

use super::check_finite;
use crate::data::Target;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// Arrays `[n, m]` that a fit to m classes, or the score of its predictions, holds at once: the encoded target and its centred copy; fitted values,
/// those of left-out points, their errors, and probabilities.
const ARRAYS: u64 = 6;

/// Bytes of the columns of `m` classes for `n` points in a fit.
pub(super) fn class_columns(n: usize, m: usize) -> u64 {
    (8 * ARRAYS).saturating_mul(n as u64).saturating_mul(m as u64)
}

impl<'c> FitContext<'c> {
    /// The context of a fit to this target: the columns of its classes are in use of the budget. Refuses more classes than the memory has room for.
    pub(super) fn beside_classes(&self, y: &Target) -> Result<FitContext<'c>> {
        let Target::Classes { labels, names } = y else { return Ok(*self) };
        let (n, m) = (labels.len(), names.len());
        let bytes = class_columns(n, m);
        let advice = concat!("use fewer rows, join rare classes, or allow ", crate::advice!(MoreMemory));
        self.budget.require(format!("the target of {n} points in {m} classes"), bytes, advice)?;
        Ok(FitContext { budget: self.budget.beside(bytes), ..*self })
    }
}

/// What the columns of an encoded target mean.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Encoding {
    /// One column of numbers.
    Values,
    /// A column for each class, in this order.
    Classes(Vec<String>),
}

/// The square of an error of 1e-12 of such a target is still a normal number.
const LEAST: f64 = 1e-140;

impl Encoding {
    /// The target of `n` rows as columns `[n, m]`: numbers as they are, classes as `on` in the column of the row's
    /// class and `off` in the others.
    pub fn encode(target: &Target, n: usize, off: f64, on: f64) -> Result<(Encoding, Array2<f64>)> {
        let encoding = Encoding::of(target, n)?;
        let y = match target {
            Target::Values(values) => Array1::from_vec(values.clone()).insert_axis(Axis(1)),
            Target::Classes { labels, names } => {
                Array2::from_shape_fn((n, names.len()), |(i, c)| if labels[i] == c { on } else { off })
            }
        };
        Ok((encoding, y))
    }

    /// What the columns of the target of `n` rows mean; refuses one that does not fit the rows, or is not finite.
    pub fn of(target: &Target, n: usize) -> Result<Encoding> {
        fail_if!(target.len() != n, "there are {n} points but {} targets", target.len());
        match target {
            Target::Values(values) => {
                check_finite(ArrayView2::from_shape((n, 1), values).expect("n values"))
                    .map_err(|e| Error::input(format!("the target is not finite: {e}")))?;
                let largest = values.iter().fold(0.0f64, |most, y| most.max(y.abs()));
                fail_if!(
                    largest > 0.0 && largest < LEAST,
                    "the targets are {largest:e} at most, so small that their squared errors are lost in double precision; multiply \
                     them by a number"
                );
                Ok(Encoding::Values)
            }
            Target::Classes { labels, names } => match labels.iter().position(|&l| l >= names.len()) {
                Some(i) => Err(Error::input(format!(
                    "row {} (counted from 1) has class {}, but there are {} classes, counted from 0",
                    i + 1,
                    labels[i],
                    names.len()
                ))),
                None => Ok(Encoding::Classes(names.clone())),
            },
        }
    }

    /// Columns `[n, m]` back as a target: the number, or the class of the largest column.
    pub fn decode(&self, scores: ArrayView2<f64>) -> Target {
        match self {
            Encoding::Values => Target::of_scores(scores, &[]),
            Encoding::Classes(names) => Target::of_scores(scores, names),
        }
    }

    /// Refuses classes without a name, which no score can choose among.
    pub fn checked(self) -> Result<Encoding> {
        fail_if!(self.width() == 0, "the model's 'target' has no classes");
        Ok(self)
    }

    /// Columns of an encoded target.
    pub fn width(&self) -> usize {
        match self {
            Encoding::Values => 1,
            Encoding::Classes(names) => names.len(),
        }
    }
}
