//! Averages over a batch, `(Kψ)(x_b) = (1/Bcτ) Σ_b' κ(x_b,x_b') ψ(x_b')`, on the device.

use crate::Result;
use crate::compute::cuda::{Gpu, action, gather_rows_at, resident};
use crate::compute::{Device, Math, Store, Tensor, gemm};
use crate::kernel::Kernel;
use crate::operator::cuda::BatchGram;
use crate::operator::{LowRankOperator, Operator};
use crate::rng::Rng;
use crate::spectrum::neural::sample_rows;
use ndarray::{ArrayView2, Axis};
use resident::{Chunk, Estimate};

/// Where the values of a kernel between points of a batch come from.
#[derive(Clone, Copy)]
pub enum Values<'a> {
    /// Its formula.
    Kernel(&'a Kernel),
    /// `FᵀF/S` of functions sampled at the points, the outputs of a point side by side.
    Samples(&'a LowRankOperator),
    /// A matrix of all of them, by its blocks.
    Stored(&'a dyn Operator),
}

/// A kernel on the device, and the buffers of its action on a batch.
pub(super) struct Average {
    gpu: &'static Gpu,
    form: Form,
    trace: f64,
    points: usize,
}

enum Form {
    Kernel {
        kernel: Box<BatchGram>,
        constant: bool,
        /// `κ(x_b,x_b')` `[B, B]`
        gram: Tensor,
    },
    Stored {
        /// K `[n, n]`
        k: Tensor,
        gram: Tensor,
    },
    Samples {
        /// `(F/√S)ᵀ` `[n, c·S]`
        f: Tensor,
        /// The batch's, `[B, c·S]`.
        batch: Tensor,
        /// `ψ_j·F/√S` `[k, S]`
        inner: Tensor,
        /// `κ(x_b,x_b)` `[B, c, c]`
        own: Tensor,
    },
}

/// Share of the free memory that an operator may take, so that networks and batches find room.
const SHARE: f64 = 0.75;
/// Numbers that are on their way to the device at a time.
const STRIP: usize = 1 << 24;

impl Average {
    /// For `k` functions on batches of `b` of the points `x` `[n, d]`, with kernels of points that are rounded as `math`
    /// says; `None` where the operator's numbers do not fit.
    pub fn new(
        gpu: &'static Gpu,
        values: Values<'_>,
        x: ArrayView2<f64>,
        trace: f64,
        [k, b]: [usize; 2],
        math: Math,
    ) -> Result<Option<Average>> {
        let (device, n) = (Device::Cuda(gpu.ordinal), x.nrows());
        let zeros = |shape: &[usize]| Tensor::zeros(device, shape);
        let fits = |rows: usize, columns: usize| 4.0 * rows as f64 * columns as f64 <= SHARE * gpu.memory().0 as f64;
        let form = match values {
            Values::Kernel(kernel) => Form::Kernel {
                kernel: Box::new(BatchGram::new(gpu, kernel, x, b, math)?),
                constant: kernel.is_shift_invariant(),
                gram: zeros(&[b, b])?,
            },
            Values::Stored(_) if !fits(n, n) => return Ok(None),
            Values::Stored(operator) => Form::Stored { k: stored(gpu, operator)?, gram: zeros(&[b, b])? },
            Values::Samples(f) => {
                let (samples, values) = f.dim();
                if !fits(values, samples) {
                    return Ok(None);
                }
                let c = values / n;
                Form::Samples {
                    f: laid_out(gpu, f, n)?,
                    batch: zeros(&[b, c * samples])?,
                    inner: zeros(&[k, samples])?,
                    own: zeros(&[b, c, c])?,
                }
            }
        };
        Ok(Some(Average { gpu, form, trace, points: n }))
    }

    /// The rows of the next batch.
    pub fn draw(&self, rng: &mut Rng, batch: usize) -> Vec<usize> {
        sample_rows(rng, self.points, batch)
    }

    /// Queues what a batch takes of the operator, whatever the functions.
    pub fn begin(&mut self, chunk: &Chunk) {
        let (gpu, rows) = (self.gpu, chunk.step_rows());
        match &mut self.form {
            Form::Kernel { kernel, gram, .. } => kernel.gram(rows, gram),
            Form::Stored { k, gram } => action::gather_block(gpu, k, rows, gram),
            Form::Samples { f, batch, own, .. } => {
                let (b, c) = (chunk.batch, chunk.outputs);
                gather_rows_at(gpu, f, rows, b, batch);
                let point = batch.matrices(0, f.shape()[1], c, f.shape()[1] / c);
                gemm(1.0, point, point.t(), Store::Replace, own.matrices_mut(0, c * c, b, c, c));
            }
        }
    }

    /// Queues `kpsi ← Kψ`; `psi`, `kpsi` `[k, B, c]`.
    pub fn apply(&mut self, psi: &Tensor, kpsi: &mut Tensor) {
        let (k, m) = (psi.shape()[0], psi.shape()[1] * psi.shape()[2]);
        let scale = (1.0 / (m as f64 * self.trace)) as f32;
        match &mut self.form {
            Form::Kernel { gram, .. } | Form::Stored { gram, .. } => resident::image(self.gpu, scale, psi, gram, kpsi),
            Form::Samples { batch, inner, .. } => {
                let samples = inner.shape()[1];
                let f = batch.matrices(0, 0, m, samples);
                gemm(1.0, psi.matrices(0, 0, k, m), f, Store::Replace, inner.stack_mut());
                gemm(scale, inner.stack(), f.t(), Store::Replace, kpsi.matrices_mut(0, 0, 1, k, m));
            }
        }
    }

    /// What `⟨ψ,Kψ⟩` over a batch of `drawn` points is an estimate of.
    pub fn estimate(&self, drawn: usize) -> Estimate<'_> {
        let (gram, constant) = match &self.form {
            Form::Kernel { gram, constant, .. } => (gram, *constant),
            Form::Stored { gram, .. } => (gram, false),
            Form::Samples { own, .. } => (own, false),
        };
        Estimate { gram, constant, drawn, trace: self.trace, points: self.points }
    }
}

/// Every entry of `operator` on the device, `[n, n]`, a strip of rows at a time.
fn stored(gpu: &Gpu, operator: &dyn Operator) -> Result<Tensor> {
    let n = operator.n();
    let mut k = Tensor::zeros(Device::Cuda(gpu.ordinal), &[n, n])?;
    let all: Vec<usize> = (0..n).collect();
    for rows in all.chunks((STRIP / n).max(1)) {
        let strip: Vec<f32> = operator.block(rows, &all)?.iter().map(|v| *v as f32).collect();
        k.write(rows[0] * n, &strip);
    }
    Ok(k)
}

/// `(F/√S)ᵀ` on the device, `[n, c·S]`: what a point takes of all functions lies together, so that a batch takes rows.
fn laid_out(gpu: &Gpu, f: &LowRankOperator, n: usize) -> Result<Tensor> {
    let ((samples, m), device) = (f.dim(), Device::Cuda(gpu.ordinal));
    let mut out = Tensor::zeros(device, &[n, m / n * samples])?;
    let few = (STRIP / m).clamp(1, samples);
    let mut part = Tensor::zeros(device, &[few, m])?;
    f.for_each_strip(|first, strip| {
        for (i, rows) in strip.axis_chunks_iter(Axis(0), few).enumerate() {
            let values: Vec<f32> = rows.iter().map(|v| *v as f32).collect();
            part.write(0, &values);
            action::lay_samples(gpu, &part, rows.nrows(), [samples, first + i * few], &mut out);
        }
    });
    Ok(out)
}
