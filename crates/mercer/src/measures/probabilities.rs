//! What probabilities of classes are worth, row by row, with bootstrap intervals.

use super::bootstrap::{Estimate, bootstrap, bootstraps};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

/// Bins of the calibration errors.
const BINS: usize = 15;

/// A measure of probabilities; the lower the better, but for the accuracy. Example: [`Cases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Share of the rows whose likeliest class is right.
    Accuracy,
    /// Mean negative logarithm of the probability of the right class.
    Nll,
    /// Expected calibration error: the mean gap between confidence and accuracy over 15 bins of equal width.
    Ece,
    /// The same over 15 bins of equally many rows.
    AdaptiveEce,
    /// Mean of `Σ_c (p_c − 1[c is right])²`.
    Brier,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 5] = [Measure::Nll, Measure::Ece, Measure::AdaptiveEce, Measure::Brier, Measure::Accuracy];
}

/// Predicted probabilities of rows whose class is known.
///
/// ```
/// use mercer::classifier::{Cases, Measure};
/// // softmax of the scores: confidence 3/4 twice, one of them wrong
/// let scores = ndarray::array![[3f64.ln(), 0.0], [3f64.ln(), 0.0]];
/// let cases = Cases::of(scores.view(), &[0, 1]);
/// assert_eq!(cases.measure(Measure::Accuracy), 0.5);
/// assert!((cases.measure(Measure::Ece) - 0.25).abs() < 1e-12);
/// let same = cases.difference(&cases, Measure::Nll, 0);
/// assert_eq!((same.value, same.interval), (0.0, [0.0, 0.0]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Cases {
    /// Whether the likeliest class is right.
    pub hits: Vec<bool>,
    /// Probability of the likeliest class.
    pub confidence: Vec<f64>,
    nll: Vec<f64>,
    brier: Vec<f64>,
    /// Places in the order of the confidence, and each row's place among them.
    order: Vec<usize>,
    rank: Vec<usize>,
}

impl Cases {
    /// Of the probabilities `softmax(s)` for scores `[n, C]` and the right classes `[n]`; the first of equal scores is the predicted class.
    pub fn of(scores: ArrayView2<f64>, labels: &[usize]) -> Cases {
        let n = labels.len();
        let (mut hits, mut confidence, mut nll, mut brier) = (vec![], vec![], vec![], vec![]);
        for (z, &label) in scores.rows().into_iter().zip(labels) {
            let most = z.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
            let normaliser = most + z.iter().map(|z| (z - most).exp()).sum::<f64>().ln();
            hits.push(z.iter().position(|&z| z == most) == Some(label));
            confidence.push((most - normaliser).exp());
            nll.push(normaliser - z[label]);
            let square = |(c, z): (usize, &f64)| ((z - normaliser).exp() - f64::from(u8::from(c == label))).powi(2);
            brier.push(z.iter().enumerate().map(square).sum());
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| confidence[a].total_cmp(&confidence[b]));
        let mut rank = vec![0; n];
        order.iter().enumerate().for_each(|(place, &row)| rank[row] = place);
        Cases { hits, confidence, nll, brier, order, rank }
    }

    /// Rows.
    pub fn n(&self) -> usize {
        self.hits.len()
    }

    /// A measure on all rows.
    pub fn measure(&self, measure: Measure) -> f64 {
        self.on(measure, &self.order)
    }

    /// A measure with its bootstrap interval.
    pub fn estimate(&self, measure: Measure, seed: u64) -> Estimate {
        let [estimate] = self.estimates([measure], seed);
        estimate
    }

    /// Several measures with their intervals, all on the same resamples.
    pub fn estimates<const K: usize>(&self, measures: [Measure; K], seed: u64) -> [Estimate; K] {
        let gaps = measures.map(|measure| self.gaps(measure, &self.order));
        let intervals = bootstraps::<K>(self.n(), seed, |rows| {
            let rows = self.sorted(rows);
            std::array::from_fn(|k| match measures[k] {
                // |Σ_b |g_b| − Σ_b |δ_b|| ≤ Σ_b |g_b − δ_b| for the gaps g_b of the rows and δ_b of all rows there are; resamples, whose own error
                // is biased upwards, tell how large the right side is.
                Measure::Ece | Measure::AdaptiveEce => {
                    self.gaps(measures[k], &rows).iter().zip(&gaps[k]).map(|(a, b)| (a - b).abs()).sum()
                }
                measure => self.on(measure, &rows),
            })
        });
        std::array::from_fn(|k| {
            let value = self.measure(measures[k]);
            let interval = match measures[k] {
                Measure::Ece | Measure::AdaptiveEce => {
                    let [_, bound] = intervals[k];
                    [(value - bound).max(0.0), value + bound]
                }
                _ => intervals[k],
            };
            Estimate { value, interval }
        })
    }

    /// How much larger a measure is than that of `other` on the same rows, by paired bootstrap: both see the same resamples.
    pub fn difference(&self, other: &Cases, measure: Measure, seed: u64) -> Estimate {
        let gap = |rows: &[usize]| self.on(measure, &self.sorted(rows)) - other.on(measure, &other.sorted(rows));
        Estimate { value: self.measure(measure) - other.measure(measure), interval: bootstrap(self.n(), seed, gap) }
    }

    /// Mean confidence and accuracy, and the number of rows, of the bins of confidence that hold rows.
    pub fn reliability(&self) -> Vec<(f64, f64, usize)> {
        let bins = self.bins(&self.order).into_iter().filter(|bin| bin.2 > 0);
        bins.map(|(confidence, hits, count)| (confidence / count as f64, hits / count as f64, count)).collect()
    }

    /// Rows in the order of the confidence.
    fn sorted(&self, rows: &[usize]) -> Vec<usize> {
        let mut counts = vec![0u32; self.n()];
        rows.iter().for_each(|&row| counts[self.rank[row]] += 1);
        let repeated = |(place, &count): (usize, &u32)| std::iter::repeat_n(self.order[place], count as usize);
        counts.iter().enumerate().flat_map(repeated).collect()
    }

    /// A measure on rows in the order of their confidence.
    fn on(&self, measure: Measure, rows: &[usize]) -> f64 {
        let n = rows.len() as f64;
        let mean = |values: &[f64]| rows.iter().map(|&row| values[row]).sum::<f64>() / n;
        match measure {
            Measure::Accuracy => rows.iter().filter(|&&row| self.hits[row]).count() as f64 / n,
            Measure::Nll => mean(&self.nll),
            Measure::Brier => mean(&self.brier),
            Measure::Ece | Measure::AdaptiveEce => self.gaps(measure, rows).iter().map(|gap| gap.abs()).sum(),
        }
    }

    /// `(count/n) (mean confidence − mean accuracy)` of every bin of a calibration error, for rows in the order of their confidence; the
    /// counts cancel.
    fn gaps(&self, measure: Measure, rows: &[usize]) -> [f64; BINS] {
        let n = rows.len() as f64;
        if measure == Measure::AdaptiveEce {
            let end = |bin: usize| bin * rows.len() / BINS;
            return std::array::from_fn(|b| rows[end(b)..end(b + 1)].iter().map(|&row| self.gap(row)).sum::<f64>() / n);
        }
        self.bins(rows).map(|(confidence, hits, _)| (confidence - hits) / n)
    }

    fn gap(&self, row: usize) -> f64 {
        self.confidence[row] - f64::from(u8::from(self.hits[row]))
    }

    /// Sums of confidence and hits, and the number of rows, over bins of equal width.
    fn bins(&self, rows: &[usize]) -> [(f64, f64, usize); BINS] {
        let mut bins = [(0.0, 0.0, 0); BINS];
        for &row in rows {
            let bin = &mut bins[((self.confidence[row] * BINS as f64) as usize).min(BINS - 1)];
            *bin = (bin.0 + self.confidence[row], bin.1 + f64::from(u8::from(self.hits[row])), bin.2 + 1);
        }
        bins
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::{Array2, Axis, array};

    #[test]
    fn measures_are_their_definitions() {
        // Confidences 3/4, 3/4, 1/2 (a tie: the first class is predicted).
        let l = 3f64.ln();
        let cases = Cases::of(array![[l, 0.0], [0.0, l], [5.0, 5.0]].view(), &[0, 0, 1]);
        let close = |measure, want: f64| assert!((cases.measure(measure) - want).abs() < 1e-12, "{measure:?}");
        close(Measure::Accuracy, 1.0 / 3.0);
        close(Measure::Nll, (-(0.75f64.ln()) - 0.25f64.ln() - 0.5f64.ln()) / 3.0);
        // One bin holds two rows of confidence 0.75 of which one is right, another one row of 0.5 that is wrong.
        close(Measure::Ece, ((1.5f64 - 1.0) + 0.5) / 3.0);
        // Each row is a bin of its own.
        close(Measure::AdaptiveEce, (0.25 + 0.75 + 0.5) / 3.0);
        close(Measure::Brier, (2.0 * 0.25f64.powi(2) + 2.0 * 0.75f64.powi(2) + 2.0 * 0.25) / 3.0);
        for ((confidence, accuracy, count), want) in
            cases.reliability().into_iter().zip([(0.5, 0.0, 1), (0.75, 0.5, 2)])
        {
            assert!((confidence - want.0).abs() < 1e-12 && (accuracy, count) == (want.1, want.2), "{confidence}");
        }
        assert_eq!(cases.reliability().len(), 2);
    }

    #[test]
    fn scores_of_logits_are_the_measures() {
        let l = 3f32.ln();
        let scores = Scores::of(array![[l, 0.0], [0.0, l], [5.0, 5.0]].view(), &[0, 0, 1]);
        assert!((scores.accuracy - 1.0 / 3.0).abs() < 1e-12);
        assert!((scores.nll - (-(0.75f64.ln()) - 0.25f64.ln() - 0.5f64.ln()) / 3.0).abs() < 1e-6);
        assert!((scores.ece - ((1.5f64 - 1.0) + 0.5) / 3.0).abs() < 1e-6);
    }

    #[test]
    fn bootstrap_intervals_are_those_of_the_central_limit() {
        let (n, mut rng) = (2000, Rng::new(2));
        let scores = Array2::from_shape_simple_fn((n, 3), || 2.0 * rng.normal());
        let exps = scores.mapv(f64::exp);
        let p = &exps / &exps.sum_axis(Axis(1)).insert_axis(Axis(1));
        let draw = |row: ndarray::ArrayView1<f64>| {
            let u = rng.uniform();
            usize::from(u > row[0]) + usize::from(u > row[0] + row[1])
        };
        let labels: Vec<usize> = p.rows().into_iter().map(draw).collect();
        let cases = Cases::of(scores.view(), &labels);
        for measure in [Measure::Nll, Measure::Accuracy] {
            let values: Vec<f64> = match measure {
                Measure::Nll => cases.nll.clone(),
                _ => cases.hits.iter().map(|h| f64::from(u8::from(*h))).collect(),
            };
            let mean = values.iter().sum::<f64>() / n as f64;
            let error = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64 / n as f64).sqrt();
            let Estimate { value, interval: [low, high] } = cases.estimate(measure, 1);
            assert!((value - mean).abs() < 1e-12);
            assert!(
                (low - mean + 1.96 * error).abs() < 0.3 * error && (high - mean - 1.96 * error).abs() < 0.3 * error
            );
        }
        // A pair has the interval of the differences of its rows, far narrower than that of either.
        let other = Cases::of((&scores * 1.1).view(), &labels);
        let gaps: Vec<f64> = cases.nll.iter().zip(&other.nll).map(|(a, b)| a - b).collect();
        let mean = gaps.iter().sum::<f64>() / n as f64;
        let error = (gaps.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64 / n as f64).sqrt();
        let [low, high] = cases.difference(&other, Measure::Nll, 1).interval;
        assert!((high - low - 3.92 * error).abs() < 0.4 * error);
    }
}
