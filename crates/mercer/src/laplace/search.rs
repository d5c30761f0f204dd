//! The prior precision: a search on the logarithmic scale.

use crate::Result;
use serde::{Deserialize, Serialize};

/// Ends of the first grid, as powers of ten.
pub(super) const ENDS: [f64; 2] = [-6.0, 6.0];
/// Its step, in powers of ten.
const STEP: f64 = 0.5;
/// Values of every finer grid, between the neighbours of the best value so far.
const FINER: usize = 11;
/// Finer grids: each has a fifth of the step of the one before.
const ROUNDS: usize = 3;

/// A number that was searched for. Example: [the module](super).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// The value found.
    pub value: f64,
    /// What was minimised, there.
    pub loss: f64,
    /// Whether it is an end of the range that was searched: the loss may be lower beyond it.
    pub at_end: bool,
}

impl Searched {
    /// What is said of a value that is an end of the range.
    pub(crate) fn note_of_end(&self, what: &str) -> Option<String> {
        self.at_end.then(|| format!("the {what} {:.1e} is at the end of the range that was searched", self.value))
    }

    /// What is said of a prior precision that is an end of the range; `value` is its place in that range.
    pub(super) fn note_of_precision(&self, value: f64) -> Option<String> {
        let τ = self.value;
        self.at_end.then(|| match value > 1.0 {
            true => format!("the prior precision {τ:.1e} is the largest that is tried: the posterior adds next to no doubt to the network alone"),
            false => format!("the prior precision {τ:.1e} is the smallest that is tried: more doubt might be better"),
        })
    }
}

/// The value from 1e-6 to 1e6 with the least loss: on a grid, then on finer ones around its best value. `losses` takes all values of a
/// grid at once.
pub(crate) fn search(mut losses: impl FnMut(&[f64]) -> Result<Vec<f64>>) -> Result<Searched> {
    let count = ((ENDS[1] - ENDS[0]) / STEP) as usize + 1;
    let (mut low, mut high) = (ENDS[0], ENDS[1]);
    let mut best = (f64::INFINITY, 0.0);
    for round in 0..=ROUNDS {
        let n = if round == 0 { count } else { FINER };
        let step = (high - low) / (n - 1) as f64;
        let powers: Vec<f64> = (0..n).map(|i| low + step * i as f64).collect();
        let values: Vec<f64> = powers.iter().map(|power| 10f64.powf(*power)).collect();
        for (loss, power) in losses(&values)?.into_iter().zip(powers) {
            if loss < best.0 {
                best = (loss, power);
            }
        }
        (low, high) = ((best.1 - step).max(ENDS[0]), (best.1 + step).min(ENDS[1]));
    }
    let at_end = (best.1 - ENDS[0]).abs() < 1e-9 || (best.1 - ENDS[1]).abs() < 1e-9;
    Ok(Searched { value: 10f64.powf(best.1), loss: best.0, at_end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_a_parabola_in_the_logarithm_is_found() {
        for (least, end) in [(0.37, false), (-5.99, false), (9.0, true)] {
            let found = search(|values| Ok(values.iter().map(|v| (v.log10() - least).powi(2)).collect())).unwrap();
            assert!(found.at_end == end && (end || (found.value.log10() - least).abs() < 0.005), "{found:?}");
        }
        // NaN is no minimum.
        let found = search(|v| Ok(v.iter().map(|v| if *v > 1.0 { f64::NAN } else { -v }).collect())).unwrap();
        assert!((found.value - 1.0).abs() < 0.02);
    }
}
