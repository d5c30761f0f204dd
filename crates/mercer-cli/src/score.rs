//! Scores of predictions against the true targets.

use crate::text;
use mercer::data::Target;
use serde::Serialize;

/// A score, by the kind of target.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Score {
    /// Root of the mean squared error, and the share of the variance that is explained (none where the targets are constant).
    Regression { rmse: f64, r2: Option<f64> },
    /// Share of the rows whose class is right.
    Classification { accuracy: f64 },
}

/// The score of `predicted`, if the true targets are of the same kind; classes are compared by name.
pub fn score(truth: &Target, predicted: &Target) -> Option<Score> {
    if truth.is_empty() || truth.len() != predicted.len() {
        return None;
    }
    match (truth, predicted) {
        (Target::Values(truth), Target::Values(predicted)) => {
            // In units of the largest number, whose square may overflow; those of a power of two cost no digit.
            let largest = truth.iter().chain(predicted).fold(f64::MIN_POSITIVE, |m: f64, v| m.max(v.abs()));
            let largest = 2f64.powi(largest.log2().floor() as i32);
            let n = truth.len() as f64;
            let mean = truth.iter().map(|y| y / largest).sum::<f64>() / n;
            let error = truth.iter().zip(predicted).map(|(y, f)| (y / largest - f / largest).powi(2)).sum::<f64>() / n;
            let variance = truth.iter().map(|y| (y / largest - mean).powi(2)).sum::<f64>() / n;
            let rmse = error.sqrt() * largest;
            Some(Score::Regression { rmse, r2: (variance > 0.0).then(|| 1.0 - error / variance) })
        }
        (truth, Target::Classes { labels, names }) => {
            let Target::Classes { labels: true_labels, names: true_names } = truth.as_classes().ok()? else {
                return None;
            };
            let right = true_labels.iter().zip(labels).filter(|&(&a, &b)| true_names[a] == names[b]).count();
            Some(Score::Classification { accuracy: right as f64 / labels.len() as f64 })
        }
        _ => None,
    }
}

impl Score {
    /// The numbers, each under its heading.
    pub fn cells(&self) -> Vec<(&'static str, String)> {
        match self {
            Score::Regression { rmse, r2 } => {
                let r2 = r2.map_or_else(|| text::GAP.into(), |r2| format!("{r2:.4}"));
                vec![("RMSE", text::number(*rmse, 4)), ("R²", r2)]
            }
            Score::Classification { accuracy } => vec![("accuracy", text::percent(*accuracy))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_the_definitions() {
        let values = |v: &[f64]| Target::Values(v.to_vec());
        let score_of = |a, b| score(&a, &b).unwrap();
        let poor = Score::Regression { rmse: 2f64.sqrt(), r2: Some(-1.0) };
        assert_eq!(score_of(values(&[1.0, 3.0]), values(&[1.0, 1.0])), poor);
        assert_eq!(score_of(values(&[2.0, 2.0]), values(&[2.0, 2.0])), Score::Regression { rmse: 0.0, r2: None });
        for unit in [2f64.powi(1000), 2f64.powi(-1000)] {
            let poor = Score::Regression { rmse: 2f64.sqrt() * unit, r2: Some(-1.0) };
            assert_eq!(score_of(values(&[unit, 3.0 * unit]), values(&[unit, unit])), poor);
        }
        let classes = |labels: &[usize], names: &[&str]| Target::Classes {
            labels: labels.to_vec(),
            names: names.iter().map(|n| n.to_string()).collect(),
        };
        // The same names in another order are the same classes.
        let accuracy = score_of(classes(&[0, 1, 1], &["a", "b"]), classes(&[1, 0, 1], &["b", "a"]));
        assert_eq!(accuracy, Score::Classification { accuracy: 2.0 / 3.0 });
        assert_eq!(score_of(values(&[7.0]), classes(&[0], &["7"])), Score::Classification { accuracy: 1.0 });
        assert_eq!(score(&classes(&[0], &["a"]), &values(&[0.0])), None);
    }
}
