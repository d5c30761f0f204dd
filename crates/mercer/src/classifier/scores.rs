//! How good predicted class probabilities and numbers are.

use super::{Cases, Measure};
use crate::apply::{alike, r_squared};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

/// What logits are worth on labelled rows. Example: [the module](crate::classifier).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Rows.
    pub n: usize,
    /// Share of the rows whose likeliest class is right.
    pub accuracy: f64,
    /// Mean negative logarithm of the probability of the right class.
    pub nll: f64,
    /// Expected calibration error: over 15 bins of confidence, the mean gap between confidence and accuracy.
    pub ece: f64,
}

impl Scores {
    /// Of logits `[n, classes]` for labels `[n]`.
    pub fn of(logits: ArrayView2<f32>, labels: &[usize]) -> Scores {
        let cases = Cases::of(logits.mapv(f64::from).view(), labels);
        let [accuracy, nll, ece] =
            [Measure::Accuracy, Measure::Nll, Measure::Ece].map(|measure| cases.measure(measure));
        Scores { n: labels.len(), accuracy, nll, ece }
    }
}

/// How far predicted numbers are off. Example: [the module](crate::classifier).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Rows.
    pub n: usize,
    /// `√(mean (ŷ − y)²)`
    pub rmse: f64,
    /// `1 − Σ (ŷ − y)²/Σ (y − mean y)²`; none where all numbers are alike.
    pub r2: Option<f64>,
}

impl Errors {
    /// Of predictions `[n]` of the numbers `[n]`.
    pub fn of(predicted: &[f64], numbers: &[f64]) -> Errors {
        let n = numbers.len();
        let squares: f64 = predicted.iter().zip(numbers).map(|(p, y)| (p - y).powi(2)).sum();
        let mean = numbers.iter().sum::<f64>() / n as f64;
        let all: f64 = numbers.iter().map(|y| (y - mean).powi(2)).sum();
        Errors { n, rmse: (squares / n as f64).sqrt(), r2: r_squared(squares, all, alike(numbers)) }
    }
}

/// [`Scores`] of classes or [`Errors`] of numbers. Example: [the module](crate::classifier).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quality {
    /// Of classes.
    Classes(Scores),
    /// Of numbers.
    Numbers(Errors),
}

impl Quality {
    /// The scores of classes, where it is that.
    pub fn classes(self) -> Option<Scores> {
        if let Quality::Classes(scores) = self { Some(scores) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn scores_are_their_definitions() {
        // Confidences 3/4, 3/4, 1/2 (a tie: the first class is predicted).
        let l = 3f32.ln();
        let scores = Scores::of(array![[l, 0.0], [0.0, l], [5.0, 5.0]].view(), &[0, 0, 1]);
        assert!((scores.accuracy - 1.0 / 3.0).abs() < 1e-12);
        assert!((scores.nll - (-(0.75f64.ln()) - 0.25f64.ln() - 0.5f64.ln()) / 3.0).abs() < 1e-6);
        // One bin holds two rows of confidence 0.75 of which one is right, another one row of 0.5 that is wrong.
        assert!((scores.ece - ((1.5f64 - 1.0) + 0.5) / 3.0).abs() < 1e-6);
        // Errors 1 and 1; the numbers' own squares are 1 and 1.
        assert_eq!(Errors::of(&[2.0, 4.0], &[1.0, 3.0]), Errors { n: 2, rmse: 1.0, r2: Some(0.0) });
        assert_eq!(Errors::of(&[2.0], &[2.0]), Errors { n: 1, rmse: 0.0, r2: None });
        // Their mean differs from them by rounding.
        assert_eq!(Errors::of(&[0.2; 10], &[0.1; 10]).r2, None);
    }
}
