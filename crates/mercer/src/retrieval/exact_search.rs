//! Exact search, and search by a short code whose shortlist the long code puts in order.

use crate::operator::{Items, Metric, check_rows};
use crate::{Result, Silent, fail_if};
use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;

/// The nearest items of each query, nearest first. Example: [`ExactSearch`].
#[derive(Clone, Debug, PartialEq)]
pub struct Hits {
    /// Rows of the items, `[queries, top]`.
    pub items: Array2<usize>,
    /// Cosines or distances, `[queries, top]`.
    pub scores: Array2<f64>,
}

/// A short code and how many items it keeps for the long one. Example: [`ExactSearch::by_shortlist`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortlist {
    /// Number of first coordinates that make the shortlist.
    pub dims: usize,
    /// Items on it.
    pub items: usize,
}

/// Search among codes `[n, k]`.
///
/// Tiles of products in f32 find candidates, and f64 decides between them: the answer is that of comparing the codes in f64 pair
/// by pair, on any number of threads. Of equally near items, those with the smaller row come first.
///
/// ```
/// use mercer::retrieval::{ExactSearch, Metric};
/// let codes = ndarray::array![[0.0f32, 0.0], [3.0, 4.0], [1.0, 0.0]];
/// let hits = ExactSearch::new(codes.view(), Metric::Euclidean)?.nearest(ndarray::array![[3.0f32, 4.0]].view(), 3)?;
/// assert_eq!(hits.items, ndarray::array![[1, 2, 0]]);
/// assert_eq!(hits.scores[[0, 2]], 5.0);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct ExactSearch<'a> {
    codes: ArrayView2<'a, f32>,
    metric: Metric,
    items: Items<'a, f32>,
}

impl<'a> ExactSearch<'a> {
    /// Of codes `[n, k]`; every number must be finite.
    pub fn new(codes: ArrayView2<'a, f32>, metric: Metric) -> Result<ExactSearch<'a>> {
        check_rows("codes", codes, None)?;
        Ok(ExactSearch { codes, metric, items: Items::new(codes, metric) })
    }

    /// The same items by their first `m` coordinates.
    pub fn first(&self, m: usize) -> Result<ExactSearch<'a>> {
        let k = self.codes.ncols();
        fail_if!(m == 0 || m > k, "a code of {m} coordinates is asked for; it must have between 1 and {k}");
        let codes = self.codes.slice_move(s![.., ..m]);
        Ok(ExactSearch { codes, metric: self.metric, items: Items::new(codes, self.metric) })
    }

    /// The `top` items nearest to each of `queries` `[m, k]`; all items, where there are fewer.
    pub fn nearest(&self, queries: ArrayView2<f32>, top: usize) -> Result<Hits> {
        self.check(queries, top)?;
        Ok(self.hits(self.items.nearest(queries, top.min(self.codes.nrows()), false, &Silent)))
    }

    /// Of each of `queries` `[m, k]`, what `of` makes of all items in their order, nearest first.
    pub(super) fn ranked<R: Send>(
        &self,
        queries: ArrayView2<f32>,
        of: impl Fn(usize, &[usize]) -> R + Sync,
    ) -> Result<Vec<R>> {
        self.check(queries, 1)?;
        Ok(self.items.ranked(queries, of))
    }

    /// The nearest of a shortlist, which the first coordinates make and all coordinates put in order.
    ///
    /// ```
    /// use mercer::retrieval::{ExactSearch, Metric, Shortlist};
    /// let codes = ndarray::array![[0.1f32, 9.0], [0.2, 0.0], [5.0, 0.0]];
    /// let search = ExactSearch::new(codes.view(), Metric::Euclidean)?;
    /// let hits = search.by_shortlist(ndarray::array![[0.0f32, 0.0]].view(), Shortlist { dims: 1, items: 2 }, 2)?;
    /// assert_eq!(hits.items, ndarray::array![[1, 0]]); // row 2 is nearer than row 0, but not on the list
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn by_shortlist(&self, queries: ArrayView2<f32>, shortlist: Shortlist, top: usize) -> Result<Hits> {
        self.check(queries, top)?;
        let Shortlist { dims, items } = shortlist;
        fail_if!(items < top, "a shortlist of {items} items cannot hold the {top} nearest; keep at least {top}");
        let short = self.first(dims)?.nearest(queries.slice(s![.., ..dims]), items)?;
        Ok(self.ordered(queries, short.items.view(), top))
    }

    /// The nearest of given items `[m, c]` of each query `[m, k]`.
    pub(super) fn ordered(&self, queries: ArrayView2<f32>, given: ArrayView2<usize>, top: usize) -> Hits {
        let of_query = |q: usize| {
            let key = |&i: &usize| (i, self.items.key(queries.row(q), i));
            let mut list: Vec<(usize, f64)> = given.row(q).iter().map(key).collect();
            list.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            list.truncate(top);
            list
        };
        self.hits((0..queries.nrows()).into_par_iter().map(of_query).collect())
    }

    fn check(&self, queries: ArrayView2<f32>, top: usize) -> Result<()> {
        fail_if!(top == 0, "at least one item must be asked for");
        check_rows("queries", queries, Some(self.codes.ncols()))
    }

    /// Lists of rows and keys as rows and scores.
    fn hits(&self, lists: Vec<Vec<(usize, f64)>>) -> Hits {
        let shape = (lists.len(), lists.first().map_or(0, Vec::len));
        let score = |key: f64| match self.metric {
            Metric::Euclidean => key.sqrt(),
            Metric::Cosine => -key,
        };
        Hits {
            items: Array2::from_shape_fn(shape, |(q, j)| lists[q][j].0),
            scores: Array2::from_shape_fn(shape, |(q, j)| score(lists[q][j].1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn normal(shape: (usize, usize), seed: u64) -> Array2<f32> {
        let mut rng = Rng::new(seed);
        Array2::from_shape_simple_fn(shape, || rng.normal() as f32)
    }

    /// All pairs in f64, sorted.
    fn naive(codes: &Array2<f32>, queries: &Array2<f32>, metric: Metric, top: usize) -> Vec<Vec<usize>> {
        let rows = |a: &Array2<f32>| -> Vec<Vec<f64>> {
            a.rows().into_iter().map(|row| row.iter().map(|&v| f64::from(v)).collect()).collect()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let key = |z: &[f64], x: &[f64]| match metric {
            Metric::Euclidean => z.iter().zip(x).map(|(z, x)| (z - x) * (z - x)).sum(),
            Metric::Cosine if dot(z, x) == 0.0 => 0.0,
            Metric::Cosine => -dot(z, x) / (dot(z, z).sqrt() * dot(x, x).sqrt()),
        };
        let codes = rows(codes);
        let of_query = |z: &Vec<f64>| {
            let mut all: Vec<(f64, usize)> = codes.iter().enumerate().map(|(i, x)| (key(z, x), i)).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            all[..top].iter().map(|(_, i)| *i).collect()
        };
        rows(queries).iter().map(of_query).collect()
    }

    fn check(codes: &Array2<f32>, queries: &Array2<f32>, top: usize) {
        for metric in [Metric::Euclidean, Metric::Cosine] {
            let hits = ExactSearch::new(codes.view(), metric).unwrap().nearest(queries.view(), top).unwrap();
            for (q, want) in naive(codes, queries, metric, top).iter().enumerate() {
                assert_eq!(hits.items.row(q).to_vec(), *want, "{metric:?}, query {q}");
            }
        }
    }

    #[test]
    fn the_nearest_are_those_of_all_pairs_in_double_precision() {
        // One tile and many, few queries and more than a block of them, whole rankings too.
        for (n, m, k, top) in [(40, 3, 5, 7), (3000, 270, 16, 10), (1100, 2, 64, 1100), (5, 600, 3, 1)] {
            check(&normal((n, k), 1), &normal((m, k), 2), top);
        }
    }

    #[test]
    fn items_that_are_prepared_in_several_rounds_are_all_found() {
        // 32 MiB hold 1024 of these items.
        let (codes, queries) = (normal((1300, 8192), 1), normal((3, 8192), 2));
        check(&codes, &queries, 5);
        // Of the second round.
        check(&codes, &codes.slice(s![1290..1292, ..]).to_owned(), 1);
    }

    #[test]
    fn rankings_are_those_of_all_pairs_in_double_precision() {
        let (codes, queries) = (normal((1100, 6), 11), normal((70, 6), 12));
        for metric in [Metric::Euclidean, Metric::Cosine] {
            let search = ExactSearch::new(codes.view(), metric).unwrap();
            let found = search.ranked(queries.view(), |q, order| (q, order.to_vec())).unwrap();
            for ((i, (q, order)), want) in found.into_iter().enumerate().zip(naive(&codes, &queries, metric, 1100)) {
                assert_eq!((q, order), (i, want), "{metric:?}");
            }
        }
        // Equal items come in the order of their rows.
        let same = Array2::from_shape_fn((600, 3), |(i, j)| if i % 2 == 0 { j as f32 } else { 1.0 });
        let search = ExactSearch::new(same.view(), Metric::Euclidean).unwrap();
        let order = search.ranked(same.slice(s![..1, ..]), |_, order| order.to_vec()).unwrap();
        let want: Vec<usize> = (0..600).step_by(2).chain((1..600).step_by(2)).collect();
        assert_eq!(order, [want]);
    }

    #[test]
    fn rounding_hides_no_neighbour() {
        // Far from the origin, close together, and one item far away: products in f32 tell nothing apart.
        let mut codes = normal((2000, 8), 3).mapv(|v| 1000.0 + 1e-3 * v);
        codes.row_mut(77).fill(-3e4);
        let queries = codes.slice(s![..40, ..]).mapv(|v| v + 1e-4);
        check(&codes, &queries, 12);
        // So many queries that items are rounded to bytes, which leave nearly all of them here, and f32 follows.
        check(&codes, &codes.slice(s![..90, ..]).mapv(|v| v + 1e-4), 12);
        let close = Array2::from_shape_fn((3000, 8), |(i, j)| {
            [1.0, -1.0][i % 2] * (j as f32 + 1.0) + 1e-3 * codes[[i % 2000, j]]
        });
        check(&close, &close.slice(s![..100, ..]).mapv(|v| v * 1.001), 5);
        // A query beyond the range of f32.
        check(&normal((600, 3), 4), &ndarray::array![[3e38f32, -3e38, 3e38], [1e-30, 0.0, 1e-38]], 9);
    }

    #[test]
    fn equal_items_come_in_the_order_of_their_rows() {
        let one = normal((1, 6), 5);
        let codes = Array2::from_shape_fn((1500, 6), |(i, j)| if i % 3 == 0 { one[[0, j]] } else { -one[[0, j]] });
        let search = ExactSearch::new(codes.view(), Metric::Cosine).unwrap();
        let hits = search.nearest(one.view(), 600).unwrap();
        let want: Vec<usize> = (0..1500).step_by(3).chain((0..1500).filter(|i| i % 3 != 0).take(100)).collect();
        assert_eq!(hits.items.row(0).to_vec(), want);
        let zeros = Array2::<f32>::zeros((4, 2));
        let hits = ExactSearch::new(zeros.view(), Metric::Cosine).unwrap().nearest(zeros.view(), 2).unwrap();
        assert_eq!((hits.items.row(3).to_vec(), hits.scores[[3, 1]]), (vec![0, 1], 0.0));
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let (codes, queries) = (normal((5000, 12), 6), normal((300, 12), 7));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let search = ExactSearch::new(codes.view(), Metric::Euclidean).unwrap();
            pool.install(|| search.nearest(queries.view(), 20)).unwrap()
        };
        let one = with(1);
        assert_eq!(one, with(2));
        assert_eq!(one, with(5));
        // Nor does the block that a query is in.
        let search = ExactSearch::new(codes.view(), Metric::Euclidean).unwrap();
        let alone = search.nearest(queries.slice(s![200..201, ..]), 20).unwrap();
        assert_eq!(alone.scores.row(0), one.scores.row(200));
    }

    #[test]
    fn a_shortlist_of_all_items_is_the_exact_search() {
        let (codes, queries) = (normal((700, 10), 8), normal((20, 10), 9));
        let search = ExactSearch::new(codes.view(), Metric::Cosine).unwrap();
        let exact = search.nearest(queries.view(), 5).unwrap();
        let all = Shortlist { dims: 2, items: 700 };
        assert_eq!(search.by_shortlist(queries.view(), all, 5).unwrap(), exact);
        // A short one keeps the order among the items that it has.
        let few = search.by_shortlist(queries.view(), Shortlist { dims: 5, items: 50 }, 5).unwrap();
        assert_ne!(few, exact);
        assert!(few.scores.rows().into_iter().all(|row| row.windows(2).into_iter().all(|w| w[0] >= w[1])));
    }

    #[test]
    fn wrong_codes_and_queries_are_refused_by_name() {
        let codes = normal((10, 3), 10);
        let search = ExactSearch::new(codes.view(), Metric::Cosine).unwrap();
        let message = |result: Result<Hits>| result.unwrap_err().to_string();
        assert!(message(search.nearest(normal((2, 4), 0).view(), 3)).contains("4 columns, but the items have 3"));
        assert!(message(search.nearest(codes.view(), 0)).contains("at least one"));
        let list = Shortlist { dims: 1, items: 2 };
        assert!(message(search.by_shortlist(codes.view(), list, 3)).contains("keep at least 3"));
        let list = Shortlist { dims: 4, items: 5 };
        assert!(message(search.by_shortlist(codes.view(), list, 3)).contains("between 1 and 3"));
        let mut odd = codes.clone();
        odd[[4, 1]] = f32::NAN;
        let refused = ExactSearch::new(odd.view(), Metric::Cosine).err().unwrap().to_string();
        assert!(refused.contains("row 5"), "{refused}");
    }
}
