//! Nearest neighbours, and the graph that they form.

use super::Operator;
use crate::linalg::matmul_into;
use crate::{Progress, Result, Silent};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use rayon::prelude::*;
use std::sync::Mutex;

/// The `k` points of `x` `[n, d]` nearest to each of `z` `[m, d]`, as `(row of x, squared distance)`, nearest first;
/// of equally near ones, those with the smaller row.
///
/// ```
/// let x = ndarray::array![[0.0], [1.0], [5.0]];
/// let near = mercer::operator::nearest_neighbours(x.view(), ndarray::array![[4.0]].view(), 2);
/// assert_eq!(near[0], [(2, 1.0), (1, 9.0)]);
/// ```
pub fn nearest_neighbours(x: ArrayView2<f64>, z: ArrayView2<f64>, k: usize) -> Vec<Vec<(usize, f64)>> {
    search(x, z, k, |_, _| true, &Silent)
}

/// Strips of queries on threads: `‖x‖² − 2 x·z` orders the points; the distances of the few best are then taken exactly.
fn search(
    x: ArrayView2<f64>,
    z: ArrayView2<f64>,
    k: usize,
    allowed: impl Fn(usize, usize) -> bool + Sync,
    progress: &dyn Progress,
) -> Vec<Vec<(usize, f64)>> {
    let (n, queries) = (x.nrows(), strip(x.nrows()));
    // Centred first: far from the origin, dot products lose digits.
    let centre = x.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(x.ncols()));
    let (xc, zc) = (&x - &centre, &z - &centre);
    let xx: Vec<f64> = xc.rows().into_iter().map(|r| r.dot(&r)).collect();
    // A few candidates beyond k, so that rounding in this order loses no true neighbour.
    let candidates = (k + 4).min(n);
    let nearer = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let strips: Vec<_> = zc.axis_chunks_iter(Axis(0), queries).enumerate().collect();
    let (done, all) = (Mutex::new(0), strips.len());
    let of_strip = |(s, strip): (usize, ArrayView2<f64>)| {
        let mut dots = Array2::zeros((strip.nrows(), n));
        matmul_into(dots.view_mut(), Accum::Replace, strip, xc.t(), -2.0, Par::Seq);
        let mut order: Vec<(f64, usize)> = Vec::with_capacity(n);
        let mut of_row = |(r, dots): (usize, ndarray::ArrayView1<f64>)| {
            let q = s * queries + r;
            order.clear();
            order.extend((0..n).filter(|&i| allowed(q, i)).map(|i| (dots[i] + xx[i], i)));
            if order.len() > candidates {
                order.select_nth_unstable_by(candidates, nearer);
                order.truncate(candidates);
            }
            let exact = |i: usize| z.row(q).iter().zip(x.row(i)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
            order.iter_mut().for_each(|(δ2, i)| *δ2 = exact(*i));
            order.sort_unstable_by(nearer);
            // A list of its own, no longer than needed: there are as many as there are queries.
            order.iter().take(k).map(|&(δ2, i)| (i, δ2)).collect::<Vec<_>>()
        };
        let near = dots.rows().into_iter().enumerate().map(&mut of_row).collect::<Vec<_>>();
        let mut done = done.lock().expect("no panic");
        *done += 1;
        progress.step("nearest neighbours", *done, all, "");
        near
    };
    strips.into_par_iter().flat_map_iter(of_strip).collect()
}

/// Queries that a thread compares with n points at once: 8 MiB of products, where that is neither few nor many queries.
fn strip(n: usize) -> usize {
    ((1 << 20) / n.max(1)).clamp(8, 128)
}

/// The symmetric graph of nearest neighbours: `W = (A + Aᵀ)/2`, where `A_ij = 1` when j is among the nearest of i.
///
/// Its matrix is sparse and not positive semi-definite. Example: [`RandomWalk`](super::RandomWalk).
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
        let near = search(x, x, neighbours, |q, i| q != i, progress);
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
        let [n, d, m, queries] = [n, d, neighbours, strip(n)].map(|v| v as u64);
        // Points less their mean, as points and as queries; then what each thread has of products and candidates.
        let search = 16 * n * d + rayon::current_num_threads() as u64 * n * (8 * queries + 16);
        // The lists of neighbours, both ends of each edge in lists, and the edges.
        search + n * (16 * m + 24) + n * (32 * m + 24) + n * (32 * m + 8)
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
        let mut rng = Rng::new(5);
        let x = Array2::from_shape_simple_fn((500, 2), || rng.normal());
        let near = nearest_neighbours(x.view(), x.view(), 3);
        assert!(near.iter().all(|list| list.len() == 3 && list.capacity() <= 8));
    }

    #[test]
    fn the_graph_is_symmetric_and_its_product_is_its_matrix() {
        let mut rng = Rng::new(2);
        let x = Array2::from_shape_simple_fn((60, 2), || rng.normal());
        let graph = NeighbourGraph::new(x.view(), 4);
        let all: Vec<usize> = (0..60).collect();
        let w = graph.block(&all, &all).unwrap();
        assert_eq!(w, w.t());
        assert_eq!(w.sum(), 60.0 * 4.0);
        assert!((0..60).all(|i| (graph.steps(i).map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-15));
        let v = Array2::from_shape_simple_fn((60, 3), || rng.normal());
        assert!((graph.apply(v.view()).unwrap() - w.dot(&v)).iter().all(|d| d.abs() < 1e-13));
    }

    #[test]
    fn components_are_counted() {
        let x = ndarray::array![[0.0], [1.0], [2.0], [100.0], [101.0], [102.0]];
        assert_eq!(NeighbourGraph::new(x.view(), 2).components(), 2);
        assert_eq!(NeighbourGraph::new(x.view(), 3).components(), 1);
    }
}
