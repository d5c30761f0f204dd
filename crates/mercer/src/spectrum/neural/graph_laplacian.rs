//! The normalised Laplacian of a neighbour graph, in the same loop as kernels.

use super::function_operator::sample_rows;
use super::rows::Rows;
use super::{Batches, FunctionOperator, Functions, Points, Sample, Standardizer};
use crate::compute::{Control, Device, Math, SparseRows, Tensor};
use crate::linalg::matmul;
use crate::net::Workspace;
use crate::operator::{NeighbourGraph, Operator};
use crate::rng::Rng;
use crate::training::Fingerprint;
use crate::{Error, Result, fail_if};
use ndarray::{Array2, ArrayView2};

/// `L = I − P` with the random walk `P = D⁻¹W` on a graph whose points have coordinates, as `K = (s − L)/s`, whose largest
/// eigenvalues are the smallest of L. Those sought are often a few hundredths apart while L reaches up to 2; a shift `s`
/// not far above them tells them apart.
///
/// P is self-adjoint under the walk's stationary law `π_i ∝ d_i`, so that batches must have that distribution: they are
/// ends of edges. A [`NeighbourGraph`] has weights ½ and 1, thus `2d_i` is a whole number, and point i stands for `2d_i`
/// ends; all of them together are the law itself. On every point of the batch `(Pf)(x_i) = Σ_j (w_ij/d_i) f(x_j)` is
/// exact, with f taken at neighbours outside the batch as well: nothing is lost to a small batch, and nothing in memory
/// grows with n but the graph. Example: [the module](super), with this operator.
pub struct GraphLaplacian<'a> {
    graph: &'a NeighbourGraph,
    x: ArrayView2<'a, f64>,
    standardizer: Standardizer,
    /// Ends of edges at the points before i, `[n + 1]`.
    ends: Vec<usize>,
    shift: f64,
}

impl<'a> GraphLaplacian<'a> {
    /// The Laplacian of `graph` over its points `x` `[n, d]`; the eigenvalues sought lie below `shift`.
    pub fn new(graph: &'a NeighbourGraph, x: ArrayView2<'a, f64>, shift: f64) -> Result<Self> {
        fail_if!(!(shift > 0.0 && shift.is_finite()), "the shift of a Laplacian must be above 0, got {shift}");
        fail_if!(graph.n() != x.nrows(), "a graph on {} points was given {} points", graph.n(), x.nrows());
        let mut ends = vec![0];
        for i in 0..graph.n() {
            let degree = graph.degree(i);
            fail_if!(degree == 0.0, "point {} has no neighbour; use at least one", i + 1);
            ends.push(ends[i] + (2.0 * degree).round() as usize);
        }
        Ok(GraphLaplacian { graph, x, standardizer: Standardizer::of(x), ends, shift })
    }

    /// All ends of edges: with so many points a sample is the whole graph.
    pub fn ends(&self) -> usize {
        self.ends[self.graph.n()]
    }

    /// The points at `batch` different ends of edges.
    fn end_rows(&self, rng: &mut Rng, batch: usize) -> Vec<usize> {
        let at = |end: usize| self.ends.partition_point(|first| *first <= end) - 1;
        sample_rows(rng, self.ends(), batch).into_iter().map(at).collect()
    }

    /// P as a sparse matrix: where rows begin, columns, entries.
    fn sparse(&self) -> Result<(Vec<u32>, Vec<u32>, Vec<f64>)> {
        let (mut starts, mut columns, mut values) = (vec![0u32], vec![], vec![]);
        for i in 0..self.graph.n() {
            for (j, share) in self.graph.steps(i) {
                columns.push(j as u32);
                values.push(share);
            }
            let end = u32::try_from(columns.len());
            starts.push(end.map_err(|_| Error::input("the graph has too many edges for training"))?);
        }
        Ok((starts, columns, values))
    }
}

impl FunctionOperator for GraphLaplacian<'_> {
    fn inputs(&self) -> usize {
        self.x.ncols()
    }

    fn standardizer(&self) -> Standardizer {
        self.standardizer.clone()
    }

    fn identity(&self) -> String {
        let (graph, s) = (self.graph, self.shift);
        let edges = (0..graph.n()).flat_map(|i| graph.of(i)).flat_map(|(j, w)| [*j as u64, w.to_bits()]);
        let print = Fingerprint::of(edges.chain(self.x.iter().map(|v| v.to_bits())));
        let (n, ends) = (graph.n(), self.ends());
        format!("graph Laplacian on {n} points with {ends} ends, ({s} − L)/{s}, {print}")
    }

    fn batches<'a>(&'a self, functions: &Functions, batch: usize, _: Math) -> Result<Box<dyn Batches + 'a>> {
        let (device, batch) = (functions.device(), batch.min(self.ends()));
        let rows = Rows::new(self.x.into(), self.standardizer.clone(), functions, batch)?;
        Ok(Box::new(EndBatches {
            laplacian: self,
            sparse: SparseRows::new(device, self.sparse()?, [rows.most(), batch])?,
            rows,
            near: Points::empty(functions)?,
            listed: false,
            there: Tensor::zeros(device, &[0])?,
            probe: functions.network().workspace(device)?,
        }))
    }

    fn sample(&self, device: Device, rng: &mut Rng, points: usize) -> Result<Sample> {
        let rows = self.end_rows(rng, points);
        Ok(Sample { x: self.standardizer.gather(device, self.x, rows.iter().copied())?, rows, kernel: None })
    }

    fn image(
        &self,
        sample: &Sample,
        q: ArrayView2<f64>,
        w: ArrayView2<f64>,
        functions: &mut Functions,
    ) -> Result<Array2<f64>> {
        let mut near: Vec<usize> = sample.rows.iter().flat_map(|i| self.graph.of(*i).iter().map(|(j, _)| *j)).collect();
        near.sort_unstable();
        near.dedup();
        let x = self.standardizer.gather(functions.device(), self.x, near.iter().copied())?;
        let there = matmul(functions.columns(&x)?.view(), w);
        let place = |j: usize| near.binary_search(&j).expect("a neighbour");
        let mut walked = Array2::zeros(q.dim());
        for (mut walked, i) in walked.rows_mut().into_iter().zip(&sample.rows) {
            self.graph.steps(*i).for_each(|(j, p)| walked.scaled_add(p, &there.row(place(j))));
        }
        // Kf = (s f − (f − Pf))/s
        walked.zip_mut_with(&q, |walked, f| *walked = f + (*walked - f) / self.shift);
        Ok(walked)
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.shift * (1.0 - mu)
    }
}

/// Batches of ends of edges; functions are evaluated at the neighbours of their points too.
struct EndBatches<'a, 'g> {
    laplacian: &'a GraphLaplacian<'g>,
    rows: Rows<'g>,
    sparse: SparseRows,
    /// The neighbours of a batch, where they are listed.
    near: Points,
    listed: bool,
    /// Functions at the neighbours, `[k, ·, 1]`.
    there: Tensor,
    probe: Workspace,
}

impl Batches for EndBatches<'_, '_> {
    fn size(&self) -> usize {
        self.rows.now.len()
    }

    fn most(&self) -> usize {
        self.rows.most()
    }

    fn draw(&mut self, rng: &mut Rng) {
        self.rows.push(self.laplacian.end_rows(rng, self.size()));
    }

    fn bring(&mut self) -> Result<()> {
        let rows = self.rows.bring();
        self.sparse.bring(&rows);
        Ok(())
    }

    fn begin(&mut self, control: &Control, points: &mut Points) -> Result<()> {
        self.rows.begin(control, points)?;
        let list = self.sparse.list(control, &self.rows.now)?;
        self.listed = list.is_some();
        list.map_or(Ok(()), |list| self.rows.gather(list, &mut self.near))
    }

    /// `Kf = f + (Pf − f)/s`
    fn apply(
        &mut self,
        control: &Control,
        _: &Points,
        functions: &Functions,
        psi: &Tensor,
        out: &mut Tensor,
    ) -> Result<()> {
        let near = self.rows.all.as_ref().filter(|_| !self.listed).unwrap_or(&self.near);
        functions.evaluate_in(&mut self.probe, &near.x, near.envelope.as_ref(), &mut self.there)?;
        self.sparse.apply(control, &self.rows.now, self.laplacian.shift, &self.there, psi, out)
    }

    /// Kψ is made of differences.
    fn math(&self, _: Math) -> Math {
        Math::F32
    }

    fn recordable(&self) -> bool {
        true
    }
}
