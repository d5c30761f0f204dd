//! What a ranking is worth: precision, average precision, and recall beside the exact search.

use super::exact_search::{ExactSearch, Hits};
use crate::measures::Estimate;
use crate::{Result, fail_if};
use ndarray::{ArrayView1, ArrayView2};

/// How well items of the query's class are found: one number a query.
///
/// ```
/// use mercer::retrieval::{ExactSearch, Metric, Relevance};
/// let codes = ndarray::array![[0.0f32], [1.0], [2.0]];
/// let search = ExactSearch::new(codes.view(), Metric::Euclidean)?;
/// // The nearest item is of another class, the next two are right: AP = (1/2 + 2/3)/2.
/// let found = Relevance::of(&search, &[1, 0, 0], ndarray::array![[-1.0f32]].view(), &[0], 2)?;
/// assert!((found.average_precision[0] - 7.0 / 12.0).abs() < 1e-12);
/// assert_eq!(found.precision[0], 0.5);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Relevance {
    /// Average precision over the whole ranking: `AP = (1/R) Σ_r r/rank_r` over the ranks of the R items of the query's class;
    /// 0 where there are none. Its mean is the mAP.
    pub average_precision: Vec<f64>,
    /// Share of the first `top` items that are of the query's class.
    pub precision: Vec<f64>,
}

impl Relevance {
    /// Of queries `[m, k]` with their classes `[m]` among items with theirs `[n]`; precision is of the first `top`.
    pub fn of(
        search: &ExactSearch,
        items: &[usize],
        queries: ArrayView2<f32>,
        classes: &[usize],
        top: usize,
    ) -> Result<Relevance> {
        fail_if!(
            queries.nrows() != classes.len(),
            "{} queries have {} classes; each needs one",
            queries.nrows(),
            classes.len()
        );
        let of_query = |q: usize, ranking: &[usize]| {
            let relevant: Vec<bool> = ranking.iter().map(|&item| items.get(item) == Some(&classes[q])).collect();
            let first = &relevant[..top.min(relevant.len())];
            let precision = first.iter().filter(|r| **r).count() as f64 / first.len().max(1) as f64;
            (average_precision(&relevant), precision)
        };
        let (average_precision, precision) = search.ranked(queries, of_query)?.into_iter().unzip();
        Ok(Relevance { average_precision, precision })
    }

    /// The mean average precision, with its bootstrap interval over queries.
    pub fn map(&self, seed: u64) -> Estimate {
        Estimate::of_mean(&self.average_precision, seed)
    }

    /// The mean precision of the first items, with its bootstrap interval over queries.
    pub fn mean_precision(&self, seed: u64) -> Estimate {
        Estimate::of_mean(&self.precision, seed)
    }
}

/// `AP = (1/R) Σ_r r/rank_r`
fn average_precision(relevant: &[bool]) -> f64 {
    let ranks = relevant.iter().enumerate().filter(|(_, relevant)| **relevant).map(|(place, _)| place + 1);
    let (sum, count) = ranks.fold((0.0, 0), |(sum, count), rank| (sum + (count + 1) as f64 / rank as f64, count + 1));
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// The share of the `exact` nearest items of each query that were found. Example: [`ExactSearch::by_shortlist`] finds some of
/// what [`ExactSearch::nearest`] does.
///
/// ```
/// use mercer::retrieval::{Hits, recall};
/// let hits = |items| Hits { items, scores: ndarray::Array2::zeros((1, 3)) };
/// assert_eq!(recall(&hits(ndarray::array![[4, 1, 2]]), &hits(ndarray::array![[1, 2, 3]])), [2.0 / 3.0]);
/// ```
pub fn recall(found: &Hits, exact: &Hits) -> Vec<f64> {
    let of_query = |(found, exact): (ArrayView1<usize>, ArrayView1<usize>)| {
        let common = exact.iter().filter(|item| found.iter().any(|f| f == *item)).count();
        common as f64 / exact.len().max(1) as f64
    };
    found.items.rows().into_iter().zip(exact.items.rows()).map(of_query).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Metric;
    use crate::rng::Rng;
    use ndarray::Array2;

    #[test]
    fn average_precision_is_its_definition() {
        assert_eq!(average_precision(&[true, true, false]), 1.0);
        assert_eq!(average_precision(&[false, false]), 0.0);
        // scikit-learn's average_precision_score([0, 1, 0, 1, 1], [5, 4, 3, 2, 1]) of version 1.7.
        assert!((average_precision(&[false, true, false, true, true]) - 0.533_333_333_333_333_3).abs() < 1e-15);
    }

    #[test]
    fn codes_that_say_nothing_have_the_share_of_the_class() {
        let mut rng = Rng::new(1);
        let mut normal = |n| Array2::from_shape_simple_fn((n, 4), || rng.normal() as f32);
        let (codes, queries) = (normal(2000), normal(200));
        let (items, classes): (Vec<usize>, Vec<usize>) =
            ((0..2000).map(|i| i % 4).collect(), (0..200).map(|q| q % 4).collect());
        let search = ExactSearch::new(codes.view(), Metric::Cosine).unwrap();
        let found = Relevance::of(&search, &items, queries.view(), &classes, 50).unwrap();
        for estimate in [found.map(0), found.mean_precision(0)] {
            assert!((estimate.value - 0.25).abs() < 0.02, "{estimate:?}");
            assert!(estimate.interval[0] < estimate.value && estimate.value < estimate.interval[1]);
        }
    }

    #[test]
    fn items_of_the_query_s_class_at_one_place_are_found_first() {
        let codes = Array2::from_shape_fn((90, 3), |(i, j)| f32::from(u8::from(i % 3 == j)));
        let classes: Vec<usize> = (0..90).map(|i| i % 3).collect();
        let search = ExactSearch::new(codes.view(), Metric::Euclidean).unwrap();
        let found = Relevance::of(&search, &classes, codes.view(), &classes, 30).unwrap();
        assert!(found.average_precision.iter().chain(&found.precision).all(|v| *v == 1.0));
    }
}
