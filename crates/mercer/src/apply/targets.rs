//! Targets as columns of numbers, and scores back as targets.

use super::check_finite;
use crate::data::Target;
use crate::{Error, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// What the columns of an encoded target mean.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) enum Encoding {
    /// One column of numbers.
    Values,
    /// A column for each class, in this order.
    Classes(Vec<String>),
}

impl Encoding {
    /// The target of `n` rows as columns `[n, m]`: numbers as they are, classes as `on` in the column of the row's
    /// class and `off` in the others.
    pub fn encode(target: &Target, n: usize, off: f64, on: f64) -> Result<(Encoding, Array2<f64>)> {
        fail_if!(target.len() != n, "there are {n} points but {} targets", target.len());
        let (encoding, y) = match target {
            Target::Values(values) => (Encoding::Values, Array1::from_vec(values.clone()).insert_axis(Axis(1))),
            Target::Classes { labels, names } => {
                if let Some(i) = labels.iter().position(|&l| l >= names.len()) {
                    return Err(Error::input(format!(
                        "row {} (counted from 1) has class {}, but there are {} classes, counted from 0",
                        i + 1,
                        labels[i],
                        names.len()
                    )));
                }
                let y = Array2::from_shape_fn((n, names.len()), |(i, c)| if labels[i] == c { on } else { off });
                (Encoding::Classes(names.clone()), y)
            }
        };
        check_finite(y.view()).map_err(|e| Error::input(format!("the target is not finite: {e}")))?;
        Ok((encoding, y))
    }

    /// Columns `[n, m]` back as a target: the number, or the class of the largest column.
    pub fn decode(&self, scores: ArrayView2<f64>) -> Target {
        match self {
            Encoding::Values => Target::Values(scores.column(0).to_vec()),
            Encoding::Classes(names) => {
                let largest = |row: ndarray::ArrayView1<f64>| {
                    (0..row.len()).fold(0, |best, c| if row[c] > row[best] { c } else { best })
                };
                Target::Classes { labels: scores.rows().into_iter().map(largest).collect(), names: names.clone() }
            }
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
