//! What the training loop needs of an operator: points to look at, and the operator's action on functions there.

use super::objective::form;
use super::{DeviceAction, Functions, MatrixValued, Values};
use crate::compute::{self, Device, Store, Tensor, gemm};
use crate::kernel::Kernel;
use crate::linalg::matmul;
use crate::operator::cuda::compiles;
use crate::operator::{KernelOperator, Operator, Precision, gram};
use crate::rng::Rng;
use crate::{Error, FitContext, Result};
use ndarray::{Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Points at which functions are looked at together.
#[derive(Debug)]
pub struct Batch {
    /// `[B, d]`, as the networks see them (see [`Standard`]).
    pub x: Tensor,
    /// Which of the data's points they are, where there is data.
    pub rows: Vec<usize>,
}

/// A self-adjoint operator `K` on functions with `c` outputs, known by its action on a batch.
///
/// The inner product is the average over points *and* outputs, `⟨f,g⟩ = (1/Bc) Σ_b Σ_o f_o(x_b) g_o(x_b)`, so that
/// `c` outputs are `c` times as many points. The loop finds the largest eigenvalues of `K`; [`Action::eigenvalue`]
/// turns them into those that were asked for. For a differential operator `H` bounded from below, take
/// `K = (shift − H)/scale`: `∇⟨ψ,Kψ⟩ = 2⟨∂ψ,Kψ⟩` holds for any self-adjoint `K`, and `Hψ` comes from
/// [`Functions::evaluate`] at shifted points.
pub trait Action: Send {
    /// Columns d of a point.
    fn inputs(&self) -> usize;

    /// Outputs c of a function.
    fn outputs(&self) -> usize {
        1
    }

    /// What the networks see of a data point.
    fn standard(&self) -> Standard {
        Standard::identity(self.inputs())
    }

    /// What the operator is, in words that differ where the operator or its data differ; a checkpoint keeps it.
    fn identity(&self) -> String;

    /// Draws `batch` different points onto `device`, or all of them when there are fewer.
    fn sample(&mut self, device: Device, rng: &mut Rng, batch: usize) -> Result<Batch>;

    /// `out ← Kψ` on the batch, for a kernel `(1/B) Σ_b' κ(x_b, x_b') ψ(x_b')`; `psi` and `out` `[k, B, c]`.
    /// `functions` are those whose values `psi` holds.
    fn apply(&mut self, batch: &Batch, psi: &Tensor, functions: &mut Functions, out: &mut Tensor) -> Result<()>;

    /// `R_ij = ⟨ψ_i,Kψ_j⟩` `[k, k]` of the last [`Action::apply`] without the bias of the batch: a kernel's batch
    /// average has too large a share of pairs of a point with itself.
    fn unbiased(
        &mut self,
        _batch: &Batch,
        _psi: &Tensor,
        _covariance: &Array2<f64>,
        r: &Array2<f64>,
    ) -> Result<Array2<f64>> {
        Ok(r.clone())
    }

    /// `K(ΦW)` `[B·c, r]` on the batch in double precision, given the values `q = ΦW` and `W` `[p, r]` of combinations
    /// of the p functions.
    fn image(
        &mut self,
        batch: &Batch,
        _q: ArrayView2<f64>,
        w: ArrayView2<f64>,
        functions: &mut Functions,
    ) -> Result<Array2<f64>> {
        let psi = functions.evaluate(&batch.x)?;
        let mut out = Tensor::zeros(psi.device(), psi.shape())?;
        self.apply(batch, &psi, functions, &mut out)?;
        Ok(matmul(wide(&out)?.view(), w))
    }

    /// The operator as a device can follow it by itself, where there is such a way.
    fn on_device(&self) -> Option<DeviceAction<'_>> {
        None
    }

    /// The eigenvalue asked for that belongs to the eigenvalue μ of `K`.
    fn eigenvalue(&self, mu: f64) -> f64 {
        mu
    }

    /// Relative error of [`Action::image`]: below it, times the largest eigenvalue, eigenvalues are not told from zero.
    fn roundoff(&self) -> f64 {
        Precision::F32.roundoff(Device::Cpu)
    }
}

/// Values `[k, B, c]` of functions as columns `[B·c, k]` in double precision.
pub(super) fn wide(values: &Tensor) -> Result<Array2<f64>> {
    let (k, host) = (values.shape()[0], values.to_host()?);
    let points = host.len() / k.max(1);
    Ok(Array2::from_shape_fn((points, k), |(b, j)| f64::from(host[j * points + b])))
}

/// What networks see of a point: `(x − centre)/scale`, with one scale for all columns, because the kernels weigh all
/// columns alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standard {
    centre: Vec<f64>,
    scale: f64,
}

impl Standard {
    /// Points as they are, of `d` columns.
    pub fn identity(d: usize) -> Standard {
        Standard { centre: vec![0.0; d], scale: 1.0 }
    }

    /// Mean zero, and mean variance one over the columns, on the points `x` `[n, d]`.
    pub fn of(x: ArrayView2<f64>) -> Standard {
        let centre: Vec<f64> = x.axis_iter(Axis(1)).map(|column| column.mean().unwrap_or(0.0)).collect();
        let squares: f64 =
            x.rows().into_iter().flat_map(|r| r.into_iter().zip(&centre)).map(|(v, c)| (v - c).powi(2)).sum();
        let scale = (squares / x.len().max(1) as f64).sqrt();
        Standard { centre, scale: if scale > 0.0 && scale.is_finite() { scale } else { 1.0 } }
    }

    /// The points `rows` of `x` `[n, d]`, as a tensor `[rows, d]` on `device`.
    pub fn gather(
        &self,
        device: Device,
        x: ArrayView2<f64>,
        rows: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Tensor> {
        let shape = [rows.len(), x.ncols()];
        let mut data = Vec::with_capacity(shape[0] * shape[1]);
        for row in rows {
            data.extend(x.row(row).iter().zip(&self.centre).map(|(v, c)| ((v - c) / self.scale) as f32));
        }
        Tensor::from_host(device, &shape, &data)
    }

    /// Columns d.
    pub fn inputs(&self) -> usize {
        self.centre.len()
    }
}

/// `batch` different rows out of `0..n` in O(batch) (Floyd), in random order; all of them, shuffled, when there are no
/// more.
pub fn sample_rows(rng: &mut Rng, n: usize, batch: usize) -> Vec<usize> {
    if batch >= n {
        let mut rows: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut rows);
        return rows;
    }
    let mut seen = HashSet::with_capacity(batch);
    let mut rows: Vec<usize> = (n - batch..n)
        .map(|last| {
            let row = rng.below(last + 1);
            let row = if seen.insert(row) { row } else { last };
            seen.insert(row);
            row
        })
        .collect();
    rng.shuffle(&mut rows);
    rows
}

/// A number that changes when any bit of the data does (FNV-1a over the values).
fn checksum(x: ArrayView2<f64>) -> u64 {
    x.iter().fold(0xcbf2_9ce4_8422_2325, |hash, v| (hash ^ v.to_bits()).wrapping_mul(0x0000_0100_0000_01b3))
}

/// `out ← (1/B) G ψ` for a batch's symmetric matrix `G` `[B, B]`; `psi`, `out` `[k, B, 1]`.
fn average(g: &Tensor, psi: &Tensor, out: &mut Tensor) -> Result<()> {
    let (k, b) = (psi.shape()[0], g.shape()[0]);
    out.reshape(psi.shape())?;
    gemm(1.0 / b as f32, psi.matrices(0, 0, k, b), g.stack(), Store::Replace, out.matrices_mut(0, 0, 1, k, b));
    Ok(())
}

/// The unbiased estimate, from B of n points, of `R = (1/n²) Σ_ab ψ_i(x_a) κ(x_a,x_b) ψ_j(x_b)` over all n: from the
/// batch's own `R` and its part `D = (1/B²) Σ_b ψ_i κ(x_b,x_b) ψ_j`,
/// `(1 − 1/n) (R − D) B/(B−1) + D B/n`.
fn without_bias(
    psi: &Tensor,
    covariance: &Array2<f64>,
    r: &Array2<f64>,
    diagonal: &[f32],
    n: usize,
) -> Result<Array2<f64>> {
    let b = diagonal.len();
    if b < 2 {
        return Ok(r.clone());
    }
    let own = if diagonal.iter().all(|d| *d == diagonal[0]) {
        covariance * f64::from(diagonal[0])
    } else {
        let mut weighted = Tensor::from_host(psi.device(), psi.shape(), &diagonal.repeat(psi.shape()[0]))?;
        compute::multiply(&mut weighted, psi);
        form(&weighted, psi)?
    } / b as f64;
    let (b, n) = (b as f64, n as f64);
    Ok((r - &own) * ((1.0 - 1.0 / n) * b / (b - 1.0)) + own * (b / n))
}

/// A kernel and its data: `(Kψ)(x) = E_q[κ(x,x') ψ(x')]/τ` with `τ = E_q[κ(x,x)]`, so that eigenvalues lie between 0
/// and 1 whatever the kernel's units. Batches take `B²` kernel values; nothing grows with n.
pub struct KernelAction<'a> {
    kernel: &'a Kernel,
    x: ArrayView2<'a, f64>,
    precision: Precision,
    device: Device,
    standard: Standard,
    trace: f64,
    /// `κ(x_b,x_b)/τ` of the last batch.
    diagonal: Vec<f32>,
}

impl<'a> KernelAction<'a> {
    /// The operator of `kernel` under the points `x` `[n, d]`; quadratic forms over large samples use the context's precision and device.
    pub fn new(kernel: &'a Kernel, x: ArrayView2<'a, f64>, context: &FitContext<'_>) -> Result<Self> {
        let few = x.slice(ndarray::s![..x.nrows().min(4096), ..]);
        let trace = kernel.diagonal(few).mean().unwrap_or(0.0);
        if !trace.is_finite() {
            return Err(Error::input(format!("the kernel {kernel} is not finite at these points; scale the data")));
        }
        let trace = if trace > 0.0 { trace } else { 1.0 };
        let FitContext { precision, device, .. } = *context;
        Ok(KernelAction { kernel, x, precision, device, standard: Standard::of(x), trace, diagonal: vec![] })
    }

    /// `τ`, the mean of `κ(x,x)`.
    pub fn trace(&self) -> f64 {
        self.trace
    }
}

impl Action for KernelAction<'_> {
    fn inputs(&self) -> usize {
        self.x.ncols()
    }

    fn standard(&self) -> Standard {
        self.standard.clone()
    }

    fn identity(&self) -> String {
        let (n, d) = self.x.dim();
        format!("{} on {n} points of {d} columns, checksum {:016x}", self.kernel, checksum(self.x))
    }

    fn sample(&mut self, device: Device, rng: &mut Rng, batch: usize) -> Result<Batch> {
        let rows = sample_rows(rng, self.x.nrows(), batch);
        Ok(Batch { x: self.standard.gather(device, self.x, rows.iter().copied())?, rows })
    }

    fn apply(&mut self, batch: &Batch, psi: &Tensor, _: &mut Functions, out: &mut Tensor) -> Result<()> {
        let points = self.x.select(Axis(0), &batch.rows);
        let mut g: Array2<f32> = gram(self.kernel, points.view(), Device::Cpu)?;
        let inverse = (1.0 / self.trace) as f32;
        g.mapv_inplace(|v| v * inverse);
        self.diagonal = g.diag().to_vec();
        let b = batch.rows.len();
        let g = Tensor::from_host(psi.device(), &[b, b], g.as_slice().expect("row by row"))?;
        average(&g, psi, out)
    }

    fn on_device(&self) -> Option<DeviceAction<'_>> {
        let follows = compiles(self.kernel) && !self.kernel.sees_pictures();
        let values = Values::Kernel(self.kernel);
        follows.then_some(DeviceAction::Average { values, x: self.x, trace: self.trace })
    }

    fn unbiased(&mut self, _: &Batch, psi: &Tensor, covariance: &Array2<f64>, r: &Array2<f64>) -> Result<Array2<f64>> {
        without_bias(psi, covariance, r, &self.diagonal, self.x.nrows())
    }

    fn image(
        &mut self,
        batch: &Batch,
        q: ArrayView2<f64>,
        _: ArrayView2<f64>,
        _: &mut Functions,
    ) -> Result<Array2<f64>> {
        let points = self.x.select(Axis(0), &batch.rows);
        let operator = KernelOperator::new(self.kernel, points.view(), self.precision, self.device)?;
        Ok(operator.apply(q)? / (batch.rows.len() as f64 * self.trace))
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.trace * mu
    }

    fn roundoff(&self) -> f64 {
        self.precision.roundoff(self.device)
    }
}

/// What the loop needs of `operator`, whose points must have coordinates.
pub fn action<'a>(operator: &'a dyn Operator, context: &FitContext<'_>) -> Result<Box<dyn Action + 'a>> {
    match operator.kernel() {
        Some(kernel) => {
            let context = FitContext { precision: kernel.precision(), device: kernel.device(), ..*context };
            Ok(Box::new(KernelAction::new(kernel.formula(), kernel.x(), &context)?))
        }
        None if operator.outputs() == 1 => Ok(Box::new(OperatorAction::new(operator)?)),
        None => Ok(Box::new(MatrixValued::new(operator)?)),
    }
}

/// The points that the networks are functions of.
pub(super) fn coordinates(operator: &dyn Operator) -> Result<ArrayView2<'_, f64>> {
    operator.points().ok_or_else(|| {
        Error::input(format!("networks need coordinates of the points, and {} has none", operator.describe()))
    })
}

/// Any [`Operator`] over points with coordinates, through its blocks: `FᵀF/S` of function samples, a stored matrix, a
/// centred one.
pub struct OperatorAction<'a> {
    operator: &'a dyn Operator,
    x: ArrayView2<'a, f64>,
    standard: Standard,
    trace: f64,
    /// Of the operator's diagonal.
    checksum: u64,
    diagonal: Vec<f32>,
}

impl<'a> OperatorAction<'a> {
    /// The operator over the points that have coordinates, which the networks are functions of.
    pub fn new(operator: &'a dyn Operator) -> Result<Self> {
        let x = coordinates(operator)?;
        let diagonal = operator.diagonal()?;
        let checksum = checksum(diagonal.view().insert_axis(Axis(0)));
        let trace = diagonal.mean().unwrap_or(0.0);
        if !trace.is_finite() {
            return Err(Error::input(format!("the operator's trace is {trace}; its entries must be finite")));
        }
        let trace = if trace > 0.0 { trace } else { 1.0 };
        Ok(OperatorAction { operator, x, standard: Standard::of(x), trace, checksum, diagonal: vec![] })
    }
}

impl Action for OperatorAction<'_> {
    fn inputs(&self) -> usize {
        self.x.ncols()
    }

    fn standard(&self) -> Standard {
        self.standard.clone()
    }

    fn identity(&self) -> String {
        let ((n, d), operator) = (self.x.dim(), self.checksum);
        format!("operator {operator:016x} on {n} points of {d} columns, checksum {:016x}", checksum(self.x))
    }

    fn sample(&mut self, device: Device, rng: &mut Rng, batch: usize) -> Result<Batch> {
        let rows = sample_rows(rng, self.x.nrows(), batch);
        Ok(Batch { x: self.standard.gather(device, self.x, rows.iter().copied())?, rows })
    }

    fn apply(&mut self, batch: &Batch, psi: &Tensor, _: &mut Functions, out: &mut Tensor) -> Result<()> {
        let block = self.operator.block(&batch.rows, &batch.rows)?;
        let values: Vec<f32> = block.iter().map(|v| (v / self.trace) as f32).collect();
        let b = batch.rows.len();
        self.diagonal = (0..b).map(|i| values[i * b + i]).collect();
        average(&Tensor::from_host(psi.device(), &[b, b], &values)?, psi, out)
    }

    fn on_device(&self) -> Option<DeviceAction<'_>> {
        let values = match self.operator.low_rank() {
            Some(f) => Values::Samples(f),
            None if self.operator.is_stored() => Values::Stored(self.operator),
            None => return None,
        };
        Some(DeviceAction::Average { values, x: self.x, trace: self.trace })
    }

    fn unbiased(&mut self, _: &Batch, psi: &Tensor, covariance: &Array2<f64>, r: &Array2<f64>) -> Result<Array2<f64>> {
        without_bias(psi, covariance, r, &self.diagonal, self.x.nrows())
    }

    fn image(
        &mut self,
        batch: &Batch,
        q: ArrayView2<f64>,
        _: ArrayView2<f64>,
        _: &mut Functions,
    ) -> Result<Array2<f64>> {
        let b = batch.rows.len();
        let mut image = Array2::zeros(q.dim());
        // Strips of rows, so that a large sample's block is never whole in memory.
        for (rows, mut out) in batch.rows.chunks(1024).zip(image.axis_chunks_iter_mut(Axis(0), 1024)) {
            out.assign(&matmul(self.operator.block(rows, &batch.rows)?.view(), q));
        }
        Ok(image / (b as f64 * self.trace))
    }

    fn eigenvalue(&self, mu: f64) -> f64 {
        self.trace * mu
    }

    fn roundoff(&self) -> f64 {
        self.operator.roundoff()
    }
}
