//! The block of an operator on a batch of its points, times functions there: what training needs of an operator on data.
//!
//! | the operator | its block on a batch |
//! |---|---|
//! | a kernel | `κ(x_b,x_b')` `[B, B]`, by its formula |
//! | a stored matrix | rows and columns gathered |
//! | sampled functions | never formed: `ψᵀF`, then `F` |
//! | any other | by [`Operator::block`] on the host |
//!
//! On a GPU the first three stay on the device, so that a training step can be recorded; the last passes through the host.

use super::cuda::{BatchGram, compiles};
use super::{KernelOperator, LowRankOperator, Operator, gram};
use crate::Result;
use crate::compute::cuda::{gpu, points::place_columns};
use crate::compute::ledger::ran;
use crate::compute::{self, Device, Indices, Math, Store, Tensor, gemm};
use ndarray::{Array2, Axis};

/// An operator `K` on functions with c outputs, by its blocks on batches of B points, divided by its mean diagonal entry τ.
pub trait BatchOperator: Send {
    /// Takes up the batch of the points `rows` `[B]`.
    fn begin(&mut self, rows: &Indices) -> Result<()>;

    /// `out ← K[rows, rows] ψ/(Bcτ)`; `psi`, `out` `[k, B, c]`.
    fn apply(&mut self, psi: &Tensor, out: &mut Tensor) -> Result<()>;

    /// The entries of K that pair a point of the batch with itself.
    fn own(&self) -> Own<'_>;

    /// Whether nothing passes through the host, so that the work can be recorded.
    fn recordable(&self) -> bool;
}

/// Entries that pair a point with itself.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// On the diagonal of `[B, B]`, or as blocks `[B, c, c]`.
    pub entries: &'a Tensor,
    /// Whether all of them are the first entry.
    pub constant: bool,
    /// `Bc` times what the entries are still to be divided by.
    pub size: f64,
}

/// Sizes of a batch: k functions of c outputs at B points, and n points in all.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// k
    pub functions: usize,
    /// B
    pub batch: usize,
    /// c
    pub outputs: usize,
    /// n
    pub points: usize,
}

/// Share of the free memory that an operator may take, so that networks and batches find room.
const SHARE: f64 = 0.75;
/// Numbers that are on their way to the device at a time.
const STRIP: usize = 1 << 24;

/// `operator` for batches on `device`. On a GPU, kernels see points that are rounded as `math` says.
pub fn batch_operator<'a>(
    operator: &'a dyn Operator,
    trace: f64,
    device: Device,
    sizes: Sizes,
    math: Math,
) -> Result<Box<dyn BatchOperator + 'a>> {
    let free = device.free_memory()?;
    let fits = |numbers: usize| free.is_some_and(|free| 4.0 * numbers as f64 <= SHARE * free as f64);
    let (n, c) = (sizes.points, sizes.outputs);
    if let Some(f) = operator.low_rank()
        && (fits(f.dim().0 * f.dim().1) || (device == Device::Cpu && c > 1))
    {
        return Ok(Box::new(Samples::new(f, trace, device, sizes)?));
    }
    let source = match (operator.kernel(), device) {
        (Some(kernel), Device::Cuda(ordinal)) if compiles(kernel.formula()) && !kernel.formula().sees_images() => {
            let gram = BatchGram::new(gpu(ordinal)?, kernel.formula(), kernel.x(), sizes.batch, math)?;
            Source::Compiled(Box::new(gram), kernel.formula().is_shift_invariant())
        }
        (None, Device::Cuda(_)) if operator.is_stored() && c == 1 && fits(n * n) => {
            Source::OnDevice(stored_matrix(device, operator)?)
        }
        (Some(kernel), _) => Source::Kernel(kernel),
        (None, _) => Source::Host(operator),
    };
    let own = (c > 1).then(|| Tensor::zeros(device, &[sizes.batch, c, c])).transpose()?;
    let constant = matches!(source, Source::Compiled(_, true));
    let block = Tensor::zeros(device, &[sizes.batch * c, sizes.batch * c])?;
    let operator = Block { source, sizes, trace, block, own, constant };
    ran("operators on training batches", if operator.recordable() { device } else { Device::Cpu }, 1);
    Ok(Box::new(operator))
}

/// A batch's block, formed.
struct Block<'a> {
    source: Source<'a>,
    sizes: Sizes,
    trace: f64,
    /// `[Bc, Bc]`; on the host it is divided by τ.
    block: Tensor,
    /// `[B, c, c]` where `c > 1`.
    own: Option<Tensor>,
    constant: bool,
}

enum Source<'a> {
    /// A kernel whose matrices pass through the host.
    Kernel(&'a KernelOperator<'a>),
    /// Blocks from the host, whatever the device.
    Host(&'a dyn Operator),
    /// A kernel that the device computes, and whether its diagonal is constant.
    Compiled(Box<BatchGram>, bool),
    /// K `[n, n]` in the device's memory.
    OnDevice(Tensor),
}

impl Block<'_> {
    /// Brings a block `[Bc, Bc]` from the host.
    fn bring(&mut self, block: &[f32]) -> Result<()> {
        let (b, c) = (self.sizes.batch, self.sizes.outputs);
        let m = b * c;
        self.block.copy_from_host(block)?;
        match &mut self.own {
            None => self.constant = (0..b).all(|i| block[i * m + i] == block[0]),
            Some(own) => {
                let rows = (0..m).flat_map(|i| &block[i * m + i / c * c..][..c]);
                own.copy_from_host(&rows.copied().collect::<Vec<f32>>())?;
            }
        }
        Ok(())
    }
}

impl BatchOperator for Block<'_> {
    fn begin(&mut self, rows: &Indices) -> Result<()> {
        match &mut self.source {
            Source::Compiled(kernel, _) => kernel.gram(rows.address(), &mut self.block),
            Source::OnDevice(k) => compute::gather_block(k, rows, &mut self.block)?,
            Source::Kernel(kernel) => {
                let points = kernel.x().select(&numbers(rows, 1)?);
                let mut block: Array2<f32> = gram(kernel.formula(), &points, kernel.runs_on())?;
                let inverse = (1.0 / self.trace) as f32;
                block.mapv_inplace(|v| v * inverse);
                self.bring(block.as_slice().expect("row by row"))?;
            }
            Source::Host(operator) => {
                let rows = numbers(rows, self.sizes.outputs)?;
                let block = operator.block(&rows, &rows)?;
                let block: Vec<f32> = block.iter().map(|v| (v / self.trace) as f32).collect();
                self.bring(&block)?;
            }
        }
        Ok(())
    }

    fn apply(&mut self, psi: &Tensor, out: &mut Tensor) -> Result<()> {
        let (k, m) = (psi.shape()[0], self.block.shape()[0]);
        out.reshape(psi.shape())?;
        let scale = (1.0 / self.own().size) as f32;
        let psi = psi.matrices(0, 0, k, m);
        gemm(scale, psi, self.block.stack(), Store::Replace, out.matrices_mut(0, 0, 1, k, m));
        Ok(())
    }

    fn own(&self) -> Own<'_> {
        let m = self.block.shape()[0] as f64;
        let size = if self.recordable() { m * self.trace } else { m };
        Own { entries: self.own.as_ref().unwrap_or(&self.block), constant: self.constant, size }
    }

    fn recordable(&self) -> bool {
        matches!(self.source, Source::Compiled(..) | Source::OnDevice(_))
    }
}

/// The values of the points `rows`, c of each, on the host.
fn numbers(rows: &Indices, c: usize) -> Result<Vec<usize>> {
    Ok(rows.to_host()?.into_iter().flat_map(|row| row as usize * c..(row as usize + 1) * c).collect())
}

/// `FᵀF/S` of sampled functions, never formed.
struct Samples<'a> {
    f: &'a LowRankOperator,
    sizes: Sizes,
    trace: f64,
    /// `(F/√S)ᵀ` `[n, c·S]` in a GPU's memory.
    all: Option<Tensor>,
    /// The batch's, `[B, c·S]`.
    batch: Tensor,
    /// `ψ_j·F/√S` `[k, S]`
    inner: Tensor,
    /// `[B, c, c]`
    own: Tensor,
}

impl<'a> Samples<'a> {
    fn new(f: &'a LowRankOperator, trace: f64, device: Device, sizes: Sizes) -> Result<Samples<'a>> {
        let (b, c, samples) = (sizes.batch, sizes.outputs, f.dim().0);
        let all = match device {
            Device::Cpu => None,
            Device::Cuda(_) => Some(transposed_samples(device, f, sizes.points)?),
        };
        Ok(Samples {
            f,
            sizes,
            trace,
            all,
            batch: Tensor::zeros(device, &[b, c * samples])?,
            inner: Tensor::zeros(device, &[sizes.functions, samples])?,
            own: Tensor::zeros(device, &[b, c, c])?,
        })
    }
}

impl BatchOperator for Samples<'_> {
    fn begin(&mut self, rows: &Indices) -> Result<()> {
        let (b, c, samples) = (self.sizes.batch, self.sizes.outputs, self.f.dim().0);
        match &self.all {
            Some(all) => compute::gather(all, rows, &mut self.batch)?,
            None => {
                let f = self.f.columns(&numbers(rows, c)?);
                self.batch.copy_from_host(&f.t().iter().map(|v| *v as f32).collect::<Vec<f32>>())?;
            }
        }
        let point = self.batch.matrices(0, c * samples, c, samples);
        gemm(1.0, point, point.t(), Store::Replace, self.own.matrices_mut(0, c * c, b, c, c));
        Ok(())
    }

    fn apply(&mut self, psi: &Tensor, out: &mut Tensor) -> Result<()> {
        let (k, m, samples) = (psi.shape()[0], psi.shape()[1] * psi.shape()[2], self.f.dim().0);
        out.reshape(psi.shape())?;
        let f = self.batch.matrices(0, 0, m, samples);
        gemm(1.0, psi.matrices(0, 0, k, m), f, Store::Replace, self.inner.stack_mut());
        let scale = (1.0 / (m as f64 * self.trace)) as f32;
        gemm(scale, self.inner.stack(), f.t(), Store::Replace, out.matrices_mut(0, 0, 1, k, m));
        Ok(())
    }

    fn own(&self) -> Own<'_> {
        let m = (self.sizes.batch * self.sizes.outputs) as f64;
        Own { entries: &self.own, constant: false, size: m * self.trace }
    }

    fn recordable(&self) -> bool {
        self.all.is_some()
    }
}

/// Every entry of `operator` on the device, `[n, n]`, a strip of rows at a time.
fn stored_matrix(device: Device, operator: &dyn Operator) -> Result<Tensor> {
    let n = operator.n();
    let mut k = Tensor::zeros(device, &[n, n])?;
    let all: Vec<usize> = (0..n).collect();
    for rows in all.chunks((STRIP / n).max(1)) {
        let strip: Vec<f32> = operator.block(rows, &all)?.iter().map(|v| *v as f32).collect();
        k.write(rows[0] * n, &strip);
    }
    Ok(k)
}

/// `(F/√S)ᵀ` on a GPU, `[n, c·S]`: what a point takes of all functions lies together, so that a batch takes rows.
fn transposed_samples(device: Device, f: &LowRankOperator, n: usize) -> Result<Tensor> {
    let Device::Cuda(ordinal) = device else { unreachable!("samples on the host stay where they are") };
    let ((samples, m), gpu) = (f.dim(), gpu(ordinal)?);
    let mut out = Tensor::zeros(device, &[n, m / n * samples])?;
    let few = (STRIP / m).clamp(1, samples);
    let mut part = Tensor::zeros(device, &[few, m])?;
    f.for_each_strip(|first, strip| {
        for (i, rows) in strip.axis_chunks_iter(Axis(0), few).enumerate() {
            let values: Vec<f32> = rows.iter().map(|v| *v as f32).collect();
            part.write(0, &values);
            place_columns(gpu, &part, rows.nrows(), [samples, first + i * few], &mut out);
        }
    });
    Ok(out)
}
