//! Nearest neighbours, and the graph that they form.

use crate::operator::Operator;
use crate::operator::nearest::{Items, Metric, search_bytes};
use crate::{Progress, Result, Silent};
use ndarray::{Array1, Array2, ArrayView2};
use rayon::prelude::*;

/// The `k` points of `x` `[n, d]` nearest to each of `z` `[m, d]`, as `(row of x, squared distance)`, nearest first;
/// of equally near ones, those with the smaller row.
///
/// ```
/// let x = ndarray::array![[0.0], [1.0], [5.0]];
/// let near = mercer::operator::nearest_neighbours(x.view(), ndarray::array![[4.0]].view(), 2);
/// assert_eq!(near[0], [(2, 1.0), (1, 9.0)]);
/// ```
pub fn nearest_neighbours(x: ArrayView2<f64>, z: ArrayView2<f64>, k: usize) -> Vec<Vec<(usize, f64)>> {
    Items::new(x, Metric::Euclidean).nearest(z, k, false, &Silent)
}

/// The symmetric graph of nearest neighbours: `W = (A + Aᵀ)/2`, where `A_ij = 1` when j is among the nearest of i.
///
/// Its matrix is sparse and not positive semi-definite. Example: [`RandomWalk`](crate::operator::RandomWalk).
pub struct NeighbourGraph {
    /// Where the neighbours of each point begin, `[n + 1]`.
    starts: Vec<usize>,
    /// Neighbour and weight, sorted by neighbour.
    edges: Vec<(usize, f64)>,
}

impl NeighbourGraph {
    /// Joins each point of `x` `[n, d]` to its `neighbours` nearest others.
    pub fn new(x: ArrayView2<f64>, neighbours: usize) -> NeighbourGraph {
        NeighbourGraph::reported(x, neighbours, &Silent)
    }

    /// [`Self::new`] with progress.
    pub(crate) fn reported(x: ArrayView2<f64>, neighbours: usize, progress: &dyn Progress) -> NeighbourGraph {
        let near = Items::new(x, Metric::Euclidean).nearest(x, neighbours, true, progress);
        let mut lists: Vec<Vec<(usize, f64)>> = vec![Vec::with_capacity(2 * neighbours); x.nrows()];
        for (i, near) in near.iter().enumerate() {
            for &(j, _) in near {
                lists[i].push((j, 0.5));
                lists[j].push((i, 0.5));
            }
        }
        let (mut starts, mut edges) = (vec![0], Vec::with_capacity(2 * neighbours * x.nrows()));
        for mut list in lists {
            list.sort_unstable_by_key(|&(j, _)| j);
            for (j, w) in list {
                match edges[starts[starts.len() - 1]..].last_mut() {
                    Some((last, weight)) if *last == j => *weight += w,
                    _ => edges.push((j, w)),
                }
            }
            starts.push(edges.len());
        }
        NeighbourGraph { starts, edges }
    }

    /// Bytes that making the graph of `n` points of `d` columns takes at most.
    pub(crate) fn bytes(n: usize, d: usize, neighbours: usize) -> u64 {
        let search = search_bytes(n, d, neighbours);
        let [n, m] = [n, neighbours].map(|v| v as u64);
        // The neighbours as they are found and in their order, both ends of each edge in lists, and the edges.
        search + 2 * n * (16 * m + 24) + n * (32 * m + 24) + n * (32 * m + 8)
    }

    /// The neighbours of `i` with the weights of their edges, by row.
    pub fn of(&self, i: usize) -> &[(usize, f64)] {
        &self.edges[self.starts[i]..self.starts[i + 1]]
    }

    /// `d_i = Σ_j w_ij`
    pub fn degree(&self, i: usize) -> f64 {
        self.of(i).iter().map(|(_, w)| w).sum()
    }

    /// One step of the random walk `D⁻¹W` from `i`: its neighbours `j` with their probabilities `w_ij/d_i`.
    pub fn steps(&self, i: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let degree = self.degree(i);
        self.of(i).iter().map(move |(j, w)| (*j, w / degree))
    }

    /// Number of connected components.
    pub fn components(&self) -> usize {
        let mut seen = vec![false; self.n()];
        let mut count = 0;
        for first in 0..self.n() {
            if seen[first] {
                continue;
            }
            count += 1;
            seen[first] = true;
            let mut open = vec![first];
            while let Some(i) = open.pop() {
                for &(j, _) in self.of(i) {
                    if !std::mem::replace(&mut seen[j], true) {
                        open.push(j);
                    }
                }
            }
        }
        count
    }
}

impl Operator for NeighbourGraph {
    fn n(&self) -> usize {
        self.starts.len() - 1
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        const ROWS: usize = 512;
        let width = v.ncols();
        let v = v.as_standard_layout();
        let values = v.as_slice().expect("standard layout");
        let mut y = vec![0.0; values.len()];
        y.par_chunks_mut(ROWS * width.max(1)).enumerate().for_each(|(s, y)| {
            for (r, y) in y.chunks_exact_mut(width).enumerate() {
                for &(j, w) in self.of(s * ROWS + r) {
                    y.iter_mut().zip(&values[j * width..(j + 1) * width]).for_each(|(y, v)| *y += w * v);
                }
            }
        });
        Ok(Array2::from_shape_vec(v.dim(), y).expect("as many as there were"))
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        Ok(Array2::from_shape_fn((rows.len(), columns.len()), |(a, b)| {
            let edges = self.of(rows[a]);
            edges.binary_search_by_key(&columns[b], |&(j, _)| j).map_or(0.0, |e| edges[e].1)
        }))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(Array1::zeros(self.n()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn neighbours_agree_with_sorting_all_distances() {
        let mut rng = Rng::new(1);
        // Far off the origin, where dot products alone would lose the order.
        let x = Array2::from_shape_simple_fn((300, 3), || 1e6 + rng.normal());
        let near = nearest_neighbours(x.view(), x.view(), 7);
        for (q, near) in near.iter().enumerate() {
            let mut all: Vec<(f64, usize)> =
                (0..300).map(|i| ((&x.row(q) - &x.row(i)).mapv(|t| t * t).sum(), i)).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            let want: Vec<usize> = all[..7].iter().map(|p| p.1).collect();
            assert_eq!(near.iter().map(|p| p.0).collect::<Vec<_>>(), want);
        }
    }

    #[test]
    fn a_list_takes_the_memory_of_its_own_length() {
        let x = Rng::new(5).normals((500, 2));
        let near = nearest_neighbours(x.view(), x.view(), 3);
        assert!(near.iter().all(|list| list.len() == 3 && list.capacity() <= 8));
    }

    #[test]
    fn the_graph_is_symmetric_and_its_product_is_its_matrix() {
        let mut rng = Rng::new(2);
        let x = rng.normals((60, 2));
        let graph = NeighbourGraph::new(x.view(), 4);
        let all: Vec<usize> = (0..60).collect();
        let w = graph.block(&all, &all).unwrap();
        assert_eq!(w, w.t());
        assert_eq!(w.sum(), 60.0 * 4.0);
        assert!((0..60).all(|i| (graph.steps(i).map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-15));
        let v = rng.normals((60, 3));
        assert!((graph.apply(v.view()).unwrap() - w.dot(&v)).iter().all(|d| d.abs() < 1e-13));
    }

    #[test]
    fn components_are_counted() {
        let x = ndarray::array![[0.0], [1.0], [2.0], [100.0], [101.0], [102.0]];
        assert_eq!(NeighbourGraph::new(x.view(), 2).components(), 2);
        assert_eq!(NeighbourGraph::new(x.view(), 3).components(), 1);
    }
}
