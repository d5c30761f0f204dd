//! The normalised Laplacian of a neighbour graph, in the same loop as kernels.

use super::{Action, Batch, DeviceAction, Functions, Standard, sample_rows};
use crate::compute::Device;
use crate::compute::Tensor;
use crate::linalg::matmul;
use crate::operator::NeighbourGraph;
use crate::operator::Operator;
use crate::rng::Rng;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2};

/// `L = I − P` with the random walk `P = D⁻¹W` on a graph whose points have coordinates, as `K = (s − L)/s`, whose largest
/// eigenvalues are the smallest of L. Those sought are often a few hundredths apart while L reaches up to 2; a shift `s`
/// not far above them tells them apart.
///
/// P is self-adjoint under the walk's stationary law `π_i ∝ d_i`, so that batches must have that distribution: they are
/// ends of edges. A [`NeighbourGraph`] has weights ½ and 1, thus `2d_i` is a whole number, and point i stands for `2d_i`
/// ends; all of them together are the law itself. On every point of the batch `(Pf)(x_i) = Σ_j (w_ij/d_i) f(x_j)` is
/// exact, with f taken at neighbours outside the batch as well: nothing is lost to a small batch, and nothing in memory
/// grows with n but the graph.
pub struct GraphLaplacian<'a> {
    walk: RandomWalk<'a>,
    x: ArrayView2<'a, f64>,
    standard: Standard,
}

/// P, its law and its shift.
pub struct RandomWalk<'a> {
    graph: &'a NeighbourGraph,
    /// Ends of edges at the points before i, `[n + 1]`.
    pub(super) ends: Vec<usize>,
    pub(super) shift: f64,
}

impl RandomWalk<'_> {
    /// All ends of edges.
    pub(super) fn all_ends(&self) -> usize {
        self.ends[self.graph.n()]
    }

    /// `(j, w_ij/d_i)` for the neighbours j of i.
    pub(super) fn steps(&self, i: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let degree = 0.5 * (self.ends[i + 1] - self.ends[i]) as f64;
        self.graph.of(i).iter().map(move |(j, w)| (*j, w / degree))
    }

    /// `Kf = (s f − (f − Pf))/s`
    fn shifted(&self, f: f64, walked: f64) -> f64 {
        f + (walked - f) / self.shift
    }
}

impl<'a> GraphLaplacian<'a> {
    /// The Laplacian of `graph` over its points `x` `[n, d]`; the eigenvalues sought lie below `shift`.
    pub fn new(graph: &'a NeighbourGraph, x: ArrayView2<'a, f64>, shift: f64) -> Result<Self> {
        if !(shift > 0.0 && shift.is_finite()) {
            return Err(Error::input(format!("the shift of a Laplacian must be above 0, got {shift}")));
        }
        if graph.n() != x.nrows() {
            return Err(Error::input(format!("a graph on {} points was given {} points", graph.n(), x.nrows())));
        }
        let mut ends = vec![0];
        for i in 0..graph.n() {
            let degree: f64 = graph.of(i).iter().map(|(_, w)| w).sum();
            if degree == 0.0 {
                return Err(Error::input(format!("point {} has no neighbour; use at least one", i + 1)));
            }
            ends.push(ends[i] + (2.0 * degree).round() as usize);
        }
        Ok(GraphLaplacian { walk: RandomWalk { graph, ends, shift }, x, standard: Standard::of(x) })
    }

    /// All ends of edges: with so many points a sample is the whole graph.
    pub fn ends(&self) -> usize {
        self.walk.all_ends()
    }

    /// The points joined to any of `rows`, each once, in order.
    fn neighbours(&self, rows: &[usize]) -> Vec<usize> {
        let mut all: Vec<usize> = rows.iter().flat_map(|i| self.walk.graph.of(*i).iter().map(|(j, _)| *j)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// `(place of j in neighbours, w_ij/d_i)` for the neighbours j of i.
    fn steps<'s>(&'s self, i: usize, neighbours: &'s [usize]) -> impl Iterator<Item = (usize, f64)> + 's {
        let place = |j: usize| neighbours.binary_search(&j).expect("a neighbour");
        self.walk.steps(i).map(move |(j, p)| (place(j), p))
    }
}

/// The points at `batch` different ends of edges; `ends` `[n + 1]` counts those before each point.
pub(super) fn end_rows(ends: &[usize], rng: &mut Rng, batch: usize) -> Vec<usize> {
    let at = |end: usize| ends.partition_point(|first| *first <= end) - 1;
    sample_rows(rng, ends[ends.len() - 1], batch).into_iter().map(at).collect()
}

impl Action for GraphLaplacian<'_> {
    fn inputs(&self) -> usize {
        self.x.ncols()
    }

    fn standard(&self) -> Standard {
        self.standard.clone()
    }

    fn identity(&self) -> String {
        let mixed = |hash: u64, bits: u64| (hash ^ bits).wrapping_mul(0x0000_0100_0000_01b3);
        let (graph, s) = (self.walk.graph, self.walk.shift);
        let edges = (0..graph.n()).flat_map(|i| graph.of(i));
        let hash = edges.fold(0xcbf2_9ce4_8422_2325, |hash, (j, w)| mixed(mixed(hash, *j as u64), w.to_bits()));
        let hash = self.x.iter().fold(hash, |hash, v| mixed(hash, v.to_bits()));
        let (n, ends) = (graph.n(), self.ends());
        format!("graph Laplacian on {n} points with {ends} ends, ({s} − L)/{s}, checksum {hash:016x}")
    }

    fn sample(&mut self, device: Device, rng: &mut Rng, batch: usize) -> Result<Batch> {
        let rows = end_rows(&self.walk.ends, rng, batch);
        Ok(Batch { x: self.standard.gather(device, self.x, rows.iter().copied())?, rows })
    }

    fn apply(&mut self, batch: &Batch, psi: &Tensor, functions: &mut Functions, out: &mut Tensor) -> Result<()> {
        let neighbours = self.neighbours(&batch.rows);
        let there =
            functions.evaluate(&self.standard.gather(functions.device(), self.x, neighbours.iter().copied())?)?;
        let (mut image, there, m) = (psi.to_host()?, there.to_host()?, neighbours.len());
        let steps: Vec<Vec<(usize, f64)>> = batch.rows.iter().map(|i| self.steps(*i, &neighbours).collect()).collect();
        for (f, there) in image.chunks_exact_mut(steps.len()).zip(there.chunks_exact(m)) {
            for (f, steps) in f.iter_mut().zip(&steps) {
                let walked: f64 = steps.iter().map(|(j, p)| p * f64::from(there[*j])).sum();
                *f = self.walk.shifted(f64::from(*f), walked) as f32;
            }
        }
        out.reshape(psi.shape())?;
        out.copy_from_host(&image)
    }

    fn image(
        &mut self,
        batch: &Batch,
        q: ArrayView2<f64>,
        w: ArrayView2<f64>,
        functions: &mut Functions,
    ) -> Result<Array2<f64>> {
        let neighbours = self.neighbours(&batch.rows);
        let there =
            functions.columns(&self.standard.gather(functions.device(), self.x, neighbours.iter().copied())?)?;
        let there = matmul(there.view(), w);
        let mut walked = Array2::zeros(q.dim());
        for (mut walked, i) in walked.rows_mut().into_iter().zip(&batch.rows) {
            self.steps(*i, &neighbours).for_each(|(j, p)| walked.scaled_add(p, &there.row(j)));
        }
        walked.zip_mut_with(&q, |walked, f| *walked = self.walk.shifted(*f, *walked));
        Ok(walked)
    }

    fn on_device(&self) -> Option<DeviceAction<'_>> {
        Some(DeviceAction::Walk { graph: &self.walk, x: self.x })
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.walk.shift * (1.0 - mu)
    }
}
