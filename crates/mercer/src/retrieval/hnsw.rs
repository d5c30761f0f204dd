//! Approximate search for many items: a hierarchical graph of neighbours (HNSW) by the crate `usearch`.

use super::exact_search::{ExactSearch, Hits};
use super::{Metric, Rounding};
use crate::{Error, Result, fail_if};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;
use std::path::Path;
use usearch::{IndexOptions, MetricKind, ScalarKind, b1x8};

/// Items of a shortlist for each that is asked for, where codes are rounded.
const OVERSAMPLED: usize = 10;

/// Candidates that a walk keeps, unless told otherwise.
const CANDIDATES: usize = 128;

/// A graph of neighbours over codes `[n, k]`. Its answers are put in order by the codes themselves, so that rounding costs only items
/// that are not on the list.
///
/// ```
/// use mercer::retrieval::{ExactSearch, Graph, Metric, Rounding};
/// let codes = ndarray::Array2::from_shape_fn((200, 4), |(i, j)| ((i * (j + 3)) % 17) as f32);
/// let search = ExactSearch::new(codes.view(), Metric::Cosine)?;
/// let graph = Graph::new(codes.view(), Metric::Cosine, Rounding::F32)?;
/// let hits = graph.nearest(&search, codes.view(), 1)?;
/// assert!(hits.scores.iter().all(|cosine| *cosine > 0.999_999));
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Graph {
    graph: usearch::Index,
    rounding: Rounding,
    k: usize,
    candidates: usize,
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Numerical(format!("usearch failed: {e}"))
}

impl Graph {
    fn empty(k: usize, metric: Metric, rounding: Rounding) -> Result<Graph> {
        let (metric, quantization) = match (rounding, metric) {
            (Rounding::Binary, _) => (MetricKind::Hamming, ScalarKind::B1),
            (_, Metric::Cosine) => (MetricKind::Cos, scalar(rounding)),
            (_, Metric::Euclidean) => (MetricKind::L2sq, scalar(rounding)),
        };
        let options = IndexOptions {
            dimensions: k,
            metric,
            quantization,
            connectivity: 16,
            expansion_add: 128,
            expansion_search: CANDIDATES,
            multi: false,
        };
        Ok(Graph { graph: usearch::Index::new(&options).map_err(failed)?, rounding, k, candidates: CANDIDATES })
    }

    /// Builds the graph on all threads; which of equally good graphs depends on their order. Bytes and bits round coordinates for
    /// their sign or direction, so that they are for cosines.
    pub fn new(codes: ArrayView2<f32>, metric: Metric, rounding: Rounding) -> Result<Graph> {
        let (n, k) = codes.dim();
        fail_if!(
            rounding != Rounding::F32 && metric == Metric::Euclidean,
            "codes of bytes or bits are compared by cosine; distances need single precision"
        );
        let graph = Graph::empty(k, metric, rounding)?;
        graph.graph.reserve_capacity_and_threads(n, rayon::current_num_threads()).map_err(failed)?;
        let codes = codes.as_standard_layout();
        let rows = codes.as_slice().expect("standard layout").par_chunks_exact(k).enumerate();
        rows.try_for_each(|(i, row)| match rounding {
            Rounding::Binary => graph.graph.add(i as u64, b1x8::from_u8s(&bits(row))).map_err(failed),
            _ => graph.graph.add(i as u64, row).map_err(failed),
        })?;
        Ok(graph)
    }

    /// Writes the graph to a file.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.graph.save(&path.to_string_lossy()).map_err(|e| Error::file(path, format!("cannot be written: {e}")))
    }

    /// Maps a file that [`Self::save`] wrote, for codes of `k` coordinates.
    pub fn open(path: &Path, k: usize, metric: Metric, rounding: Rounding) -> Result<Graph> {
        let graph = Graph::empty(k, metric, rounding)?;
        graph.graph.view(&path.to_string_lossy()).map_err(|e| Error::file(path, format!("cannot be read: {e}")))?;
        Ok(graph)
    }

    /// Lets walks through the graph keep so many candidates, 128 by default: with more they find more of the nearest, and take longer.
    ///
    /// ```
    /// use mercer::retrieval::{ExactSearch, Graph, Metric, Rounding};
    /// let codes = ndarray::Array2::from_shape_fn((200, 4), |(i, j)| ((i * (j + 3)) % 17) as f32);
    /// let search = ExactSearch::new(codes.view(), Metric::Euclidean)?;
    /// let graph = Graph::new(codes.view(), Metric::Euclidean, Rounding::F32)?.keeping(200);
    /// let row = codes.slice(ndarray::s![7..8, ..]);
    /// assert_eq!(graph.nearest(&search, row, 5)?.scores, search.nearest(row, 5)?.scores);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn keeping(self, candidates: usize) -> Graph {
        Graph { candidates, ..self }
    }

    /// Bytes of the graph in memory.
    pub fn bytes(&self) -> usize {
        self.graph.memory_usage()
    }

    /// Almost the nearest items of each of `queries` `[m, k]`, in the order of the codes of `search`.
    pub fn nearest(&self, search: &ExactSearch, queries: ArrayView2<f32>, top: usize) -> Result<Hits> {
        let n = self.graph.size();
        fail_if!(
            queries.ncols() != self.k,
            "the queries have {} columns, but the items have {}",
            queries.ncols(),
            self.k
        );
        // The walk keeps at least as many candidates as it returns.
        let kept = self.candidates.max(top);
        let wanted = if self.rounding == Rounding::F32 { top } else { kept.min(OVERSAMPLED * top) }.min(n);
        self.graph.change_expansion_search(kept);
        let queries = queries.as_standard_layout();
        let of_query = |row: &[f32]| {
            let found = match self.rounding {
                Rounding::Binary => self.graph.search(b1x8::from_u8s(&bits(row)), wanted),
                _ => self.graph.search(row, wanted),
            };
            found.map(|found| found.keys.iter().map(|&key| key as usize).collect::<Vec<usize>>()).map_err(failed)
        };
        let rows = queries.as_slice().expect("standard layout").par_chunks_exact(self.k);
        let lists = rows.map(of_query).collect::<Result<Vec<_>>>()?;
        let shortest = lists.iter().map(Vec::len).min().unwrap_or(0);
        let given = Array2::from_shape_fn((lists.len(), shortest), |(q, j)| lists[q][j]);
        Ok(search.ordered(queries.view(), given.view(), top))
    }
}

fn scalar(rounding: Rounding) -> ScalarKind {
    if rounding == Rounding::I8 { ScalarKind::I8 } else { ScalarKind::F32 }
}

/// Whether each coordinate is above zero, eight in a byte.
fn bits(row: &[f32]) -> Vec<u8> {
    row.chunks(8).map(|eight| eight.iter().enumerate().fold(0, |byte, (i, v)| byte | u8::from(*v > 0.0) << i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retrieval::recall;
    use crate::rng::Rng;

    #[test]
    fn graphs_find_almost_all_neighbours_and_come_back_from_disk() {
        let mut rng = Rng::new(4);
        let mut codes = |n| Array2::from_shape_fn((n, 24), |(_, j)| (rng.normal() / (1.0 + 0.2 * j as f64)) as f32);
        let (items, queries) = (codes(3000), codes(50));
        let search = ExactSearch::new(items.view(), Metric::Cosine).unwrap();
        let exact = search.nearest(queries.view(), 10).unwrap();
        let folder = tempfile::tempdir().unwrap();
        // Of 24 bits little can be asked; a list of as many items at random has a recall of 0.03.
        for (rounding, least) in [(Rounding::F32, 0.97), (Rounding::I8, 0.97), (Rounding::Binary, 0.2)] {
            let graph = Graph::new(items.view(), Metric::Cosine, rounding).unwrap();
            let path = folder.path().join("a.usearch");
            graph.save(&path).unwrap();
            let back = Graph::open(&path, 24, Metric::Cosine, rounding).unwrap();
            let hits = back.nearest(&search, queries.view(), 10).unwrap();
            assert_eq!(hits, graph.nearest(&search, queries.view(), 10).unwrap());
            let found = recall(&hits, &exact);
            let mean = found.iter().sum::<f64>() / found.len() as f64;
            assert!(mean >= least, "{rounding:?}: recall {mean}");
        }
        assert!(Graph::new(items.view(), Metric::Euclidean, Rounding::I8).is_err());
        assert!(Graph::open(&folder.path().join("none"), 24, Metric::Cosine, Rounding::F32).is_err());
    }
}
