//! How well a score tells rows of another distribution from those of the known one.

use super::bootstrap::{Estimate, bootstraps};
use serde::Serialize;

/// How well a score, larger for rows from outside, tells these from rows from inside.
///
/// ```
/// use mercer::classifier::Detection;
/// let found = Detection::of(&[0.1, 0.2, 0.4], &[0.3, 0.9], 0);
/// assert_eq!(found.auroc.value, 5.0 / 6.0); // five of six pairs are in order
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Detection {
    /// Probability that a row from outside has a larger score than one from inside, ties counted half.
    pub auroc: Estimate,
    /// Area under the curve of precision over recall, rows from outside being those to find: `Σ (R_i − R_{i−1}) P_i` over the thresholds.
    pub aupr: Estimate,
}

impl Detection {
    /// Of the scores of rows from inside and from outside, with bootstrap intervals.
    pub fn of(inside: &[f64], outside: &[f64], seed: u64) -> Detection {
        let all: Vec<(f64, bool)> =
            inside.iter().map(|s| (*s, false)).chain(outside.iter().map(|s| (*s, true))).collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|&a, &b| all[b].0.total_cmp(&all[a].0));
        let scores: Vec<f64> = order.iter().map(|&i| all[i].0).collect();
        let ones: Vec<[f64; 2]> = order.iter().map(|&i| if all[i].1 { [0.0, 1.0] } else { [1.0, 0.0] }).collect();
        let [auroc, aupr] = areas(&scores, &ones);
        let intervals = bootstraps(all.len(), seed, |rows| {
            let mut counts = vec![[0.0; 2]; ones.len()];
            rows.iter().for_each(|&row| (0..2).for_each(|side| counts[row][side] += ones[row][side]));
            areas(&scores, &counts)
        });
        Detection {
            auroc: Estimate { value: auroc, interval: intervals[0] },
            aupr: Estimate { value: aupr, interval: intervals[1] },
        }
    }
}

/// Both areas for scores in descending order, with the number of rows from inside and outside at each.
fn areas(scores: &[f64], counts: &[[f64; 2]]) -> [f64; 2] {
    let total = |side: usize| counts.iter().map(|c| c[side]).sum::<f64>();
    let (inside, outside) = (total(0), total(1));
    let (mut seen, mut pairs, mut precision, mut i) = ([0.0; 2], 0.0, 0.0, 0);
    while i < scores.len() {
        // Equal scores are one threshold.
        let mut tied = [0.0; 2];
        let score = scores[i];
        while i < scores.len() && scores[i] == score {
            (0..2).for_each(|side| tied[side] += counts[i][side]);
            i += 1;
        }
        pairs += tied[0] * (seen[1] + 0.5 * tied[1]);
        (0..2).for_each(|side| seen[side] += tied[side]);
        if tied[1] > 0.0 {
            precision += tied[1] * seen[1] / (seen[0] + seen[1]);
        }
    }
    [pairs / (inside * outside), precision / outside]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::special::normal_cdf;

    #[test]
    fn areas_are_those_of_closed_forms() {
        let apart = Detection::of(&[0.0, 1.0], &[2.0, 3.0, 4.0], 0);
        assert_eq!((apart.auroc.value, apart.aupr.value), (1.0, 1.0));
        let alike = Detection::of(&[1.0; 6], &[1.0; 2], 0);
        assert_eq!((alike.auroc.value, alike.aupr.value), (0.5, 0.25));
        // In order of the score: outside, inside, outside: precisions 1 and 2/3 at the two steps of recall.
        assert_eq!(Detection::of(&[2.0], &[3.0, 1.0], 0).aupr.value, 0.5 * (1.0 + 2.0 / 3.0));
        let mut rng = Rng::new(4);
        let mut draw = |shift: f64| (0..2000).map(|_| shift + rng.normal()).collect::<Vec<f64>>();
        let found = Detection::of(&draw(0.0), &draw(1.0), 1).auroc;
        // Of N(0,1) and N(1,1): Φ(1/√2).
        let want = normal_cdf(0.5f64.sqrt());
        assert!(found.interval[0] < want && want < found.interval[1], "{found:?} {want}");
        let error = (found.interval[1] - found.interval[0]) / 3.92;
        assert!((error - 0.0075).abs() < 0.002, "{error}"); // √(A(1−A)+…)/n of Hanley and McNeil
    }
}
