//! Probes: what the first coordinates of a code say of the classes, beside other codes of the same length.

use super::exact_search::ExactSearch;
use super::measures::Relevance;
use super::{Hits, Metric};
use crate::apply::{Fit, Logistic, Predict};
use crate::data::Target;
use crate::linalg::{eigh, matmul};
use crate::measures::Estimate;
use crate::rng::Rng;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use serde::Serialize;
use std::time::Instant;

/// Items whose share of the query's class is the precision.
const TOP: usize = 10;

/// How coordinates are chosen from a code. Example: [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The first ones.
    First,
    /// Principal components of the whole code, by the covariance of the training rows.
    Principal,
    /// Some at random; measures are means over [`Probe::draws`].
    Random,
}

impl Choice {
    /// All of them.
    pub const ALL: [Choice; 3] = [Choice::First, Choice::Principal, Choice::Random];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Choice::First => "first coordinates",
            Choice::Principal => "PCA of the code",
            Choice::Random => "random coordinates",
        }
    }
}

/// Accuracy of nearest neighbours and of a linear classifier, and retrieval, against the length of the code.
///
/// ```
/// use mercer::retrieval::{Choice, Probe};
/// // The first coordinate says the class, the second nothing.
/// let code = |i: usize, j: usize| if j == 0 { (i % 2) as f64 + 0.01 * i as f64 } else { (i * 7 % 5) as f64 };
/// let codes = ndarray::Array2::from_shape_fn((40, 2), |(i, j)| code(i, j));
/// let labels: Vec<usize> = (0..40).map(|i| i % 2).collect();
/// let probe = Probe { lengths: vec![1], neighbours: 3, metric: mercer::retrieval::Metric::Euclidean, ..Probe::default() };
/// let found = probe.run((codes.view(), &labels), (codes.view(), &labels), &Default::default())?;
/// assert_eq!((found[0].choice, found[0].neighbours.value), (Choice::First, 1.0));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Probe {
    /// Lengths of codes, each at most that of the code.
    pub lengths: Vec<usize>,
    /// Neighbours that vote.
    pub neighbours: usize,
    /// How codes are compared.
    pub metric: Metric,
    /// Queries of the mean average precision at most: those rows of the test set, drawn at random.
    pub ranked: usize,
    /// Draws of random coordinates.
    pub draws: usize,
}

/// Lengths 1, 2, 4, … 64; 20 neighbours by cosine; 500 ranked queries; 3 draws.
impl Default for Probe {
    fn default() -> Self {
        let lengths = (0..7).map(|i| 1 << i).collect();
        Probe { lengths, neighbours: 20, metric: Metric::Cosine, ranked: 500, draws: 3 }
    }
}

/// What was measured of one code. Example: [`Probe`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probed {
    /// How its coordinates were chosen.
    pub choice: Choice,
    /// Their number.
    pub length: usize,
    /// Accuracy of the vote of the nearest neighbours.
    pub neighbours: Estimate,
    /// Accuracy of multinomial logistic regression.
    pub linear: Estimate,
    /// Mean average precision of the ranked queries.
    pub map: Estimate,
    /// Share of the query's class among the ten nearest items.
    pub precision: Estimate,
    /// Milliseconds of a query for its nearest neighbours, all queries at once.
    pub milliseconds: f64,
    /// Bytes of an item's code.
    pub bytes: usize,
}

/// Rows of numbers, and what belongs to each.
type Labelled<'a> = (ArrayView2<'a, f64>, &'a [usize]);

/// One number a test row, or a ranked row, of each measure.
#[derive(Default)]
struct Rows {
    neighbours: Vec<f64>,
    linear: Vec<f64>,
    map: Vec<f64>,
    precision: Vec<f64>,
    seconds: f64,
}

impl Probe {
    /// Of the codes `[n, k]` of labelled items and those `[m, k]` of labelled queries.
    pub fn run(&self, train: Labelled<'_>, test: Labelled<'_>, context: &FitContext) -> Result<Vec<Probed>> {
        let k = train.0.ncols();
        for (codes, labels) in [train, test] {
            fail_if!(codes.nrows() != labels.len(), "{} codes have {} labels", codes.nrows(), labels.len());
            fail_if!(codes.ncols() != k, "the test codes have {} coordinates, the others {k}", codes.ncols());
        }
        fail_if!(train.1.is_empty() || test.1.is_empty(), "a probe needs rows with classes to learn and to test");
        let ranked = Rng::new(context.seed).fork(0x70_726f_6265).sample(test.1.len(), self.ranked.min(test.1.len()));
        let mut found = vec![];
        let planned: Vec<(usize, Choice)> =
            self.lengths.iter().flat_map(|&m| Choice::ALL.map(|choice| (m, choice))).collect();
        for (i, &(m, choice)) in planned.iter().enumerate() {
            fail_if!(m == 0 || m > k, "a code of {m} coordinates is asked for; it must have between 1 and {k}");
            context.progress.step("codes", i, planned.len(), choice.name());
            // The whole code, turned or in another order, is the same code.
            if m == k && choice != Choice::First {
                continue;
            }
            let draws = if choice == Choice::Random { self.draws.max(1) } else { 1 };
            let mut rows = Rows::default();
            for draw in 0..draws {
                let map = chosen(choice, m, train.0, context.seed + draw as u64)?;
                let codes = [train.0, test.0].map(&map);
                let of_draw = self.measure((codes[0].view(), train.1), (codes[1].view(), test.1), &ranked, context)?;
                rows.add(&of_draw, 1.0 / draws as f64);
            }
            found.push(rows.probed(choice, m, test.1.len(), context.seed));
        }
        Ok(found)
    }

    fn measure(&self, train: Labelled, test: Labelled, ranked: &[usize], context: &FitContext) -> Result<Rows> {
        let [codes, queries] = [train.0, test.0].map(|codes| codes.mapv(|v| v as f32));
        let search = ExactSearch::new(codes.view(), self.metric)?;
        let start = Instant::now();
        let hits = search.nearest(queries.view(), self.neighbours)?;
        let seconds = start.elapsed().as_secs_f64();
        let right = |(predicted, &label): (usize, &usize)| f64::from(u8::from(predicted == label));
        let neighbours = votes(&hits, train.1).into_iter().zip(test.1).map(right).collect();
        let classes = train.1.iter().chain(test.1).max().map_or(0, |last| last + 1);
        let target = Target::Classes { labels: train.1.to_vec(), names: (0..classes).map(|c| c.to_string()).collect() };
        let logistic = Logistic { tolerance: 1e-6, ..Logistic::default() };
        let Target::Classes { labels, .. } = logistic.fit(train.0, &target, context)?.predict(test.0)? else {
            unreachable!("it was fitted to classes")
        };
        let linear = labels.into_iter().zip(test.1).map(right).collect();
        let of_ranked: Vec<usize> = ranked.iter().map(|&row| test.1[row]).collect();
        let some = queries.select(Axis(0), ranked);
        let Relevance { average_precision, precision } = Relevance::of(&search, train.1, some.view(), &of_ranked, TOP)?;
        Ok(Rows { neighbours, linear, map: average_precision, precision, seconds })
    }
}

impl Rows {
    /// `self + weight·other`
    fn add(&mut self, other: &Rows, weight: f64) {
        let add = |sum: &mut Vec<f64>, values: &[f64]| {
            sum.resize(values.len(), 0.0);
            sum.iter_mut().zip(values).for_each(|(sum, v)| *sum += weight * v);
        };
        add(&mut self.neighbours, &other.neighbours);
        add(&mut self.linear, &other.linear);
        add(&mut self.map, &other.map);
        add(&mut self.precision, &other.precision);
        self.seconds += weight * other.seconds;
    }

    fn probed(&self, choice: Choice, length: usize, queries: usize, seed: u64) -> Probed {
        let mean = |values: &[f64]| Estimate::of_mean(values, seed);
        Probed {
            choice,
            length,
            neighbours: mean(&self.neighbours),
            linear: mean(&self.linear),
            map: mean(&self.map),
            precision: mean(&self.precision),
            milliseconds: 1e3 * self.seconds / queries as f64,
            bytes: 4 * length,
        }
    }
}

/// From whole codes `[n, k]` to shorter ones `[n, m]`.
type CodeMap = Box<dyn Fn(ArrayView2<f64>) -> Array2<f64>>;

/// The map from whole codes to codes of `m` coordinates, by the training rows.
fn chosen(choice: Choice, m: usize, train: ArrayView2<f64>, seed: u64) -> Result<CodeMap> {
    let k = train.ncols();
    Ok(match choice {
        Choice::First => Box::new(move |codes| codes.slice(s![.., ..m]).to_owned()),
        Choice::Random => {
            let columns = Rng::new(seed).fork(0x636f_6465).sample(k, m);
            Box::new(move |codes| codes.select(Axis(1), &columns))
        }
        Choice::Principal => {
            let (mean, components) = principal(train)?;
            let components = components.slice(s![.., ..m]).to_owned();
            Box::new(move |codes| matmul((&codes - &mean).view(), components.view()))
        }
    })
}

/// The mean `[k]` of rows `[n, k]`, and the eigenvectors of their covariance as columns `[k, k]`, the largest eigenvalue first.
fn principal(rows: ArrayView2<f64>) -> Result<(Array1<f64>, Array2<f64>)> {
    let mean = rows.mean_axis(Axis(0)).expect("there are rows");
    let centred = &rows - &mean;
    let covariance = matmul(centred.t(), centred.view()) / rows.nrows() as f64;
    let (_, components) = eigh(crate::Device::Cpu, covariance.view())?;
    Ok((mean, components))
}

/// The class of most of the nearest items of each query; of classes with as many, that of the nearest item.
fn votes(hits: &Hits, labels: &[usize]) -> Vec<usize> {
    let classes = labels.iter().max().map_or(0, |last| last + 1);
    let of_query = |near: ndarray::ArrayView1<usize>| {
        let mut counts = vec![0; classes];
        near.iter().for_each(|&i| counts[labels[i]] += 1);
        let most = counts.iter().max().copied().unwrap_or(0);
        near.iter().map(|&i| labels[i]).find(|&label| counts[label] == most).unwrap_or(0)
    };
    hits.items.rows().into_iter().map(of_query).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_are_majorities_and_ties_go_to_the_nearest() {
        let labels = [0, 1, 1, 2];
        let hits = |items: Array2<usize>| Hits { scores: Array2::zeros(items.dim()), items };
        assert_eq!(votes(&hits(ndarray::array![[0, 1, 2], [3, 0, 1]]), &labels), [1, 2]);
    }

    #[test]
    fn principal_components_find_the_direction_of_the_variance() {
        let mut rng = Rng::new(3);
        // A strong direction (1, 1)/√2 hidden in the last two of four columns.
        let hidden: Vec<f64> = (0..500).map(|_| 10.0 * rng.normal()).collect();
        let rows = Array2::from_shape_fn((500, 4), |(i, j)| if j > 1 { hidden[i] } else { 0.1 * ((i * j) % 7) as f64 });
        let map = chosen(Choice::Principal, 1, rows.view(), 0).unwrap();
        let found = map(rows.view());
        let mean = hidden.iter().sum::<f64>() / 500.0;
        let sign = (found[[0, 0]] / (hidden[0] - mean)).signum();
        for (z, h) in found.column(0).iter().zip(&hidden) {
            assert!((z * sign - 2f64.sqrt() * (h - mean)).abs() < 1e-2, "{z} {h}");
        }
    }
}
