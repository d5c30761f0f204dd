//! Kernel matrices of batches of points on a GPU.

use super::super::Precision;
use super::device::{CudaKernel, DevicePoints};
use super::program::Kind;
use crate::Result;
use crate::compute::cuda::{Buffer, Gpu};
use crate::compute::{Math, Tensor};
use crate::kernel::Kernel;
use ndarray::ArrayView2;

/// All points on a GPU, and the kernel matrices of batches of them.
pub(crate) struct BatchGram {
    kernel: CudaKernel,
    /// All points, transformed for the kernel: f32 `[n, source width]`.
    raw: Buffer,
    /// The points of the batch in the layout of the tiles.
    points: DevicePoints,
    batch: usize,
}

impl BatchGram {
    /// For batches of `batch` of the points `x` `[n, d]`, on tensor cores if the GPU has them. Values are as accurate as f32;
    /// if `math` is not f32, they are the values at points rounded to TF32.
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, x: ArrayView2<f64>, batch: usize, math: Math) -> Result<BatchGram> {
        let precision = if math == Math::F32 { Precision::F32 } else { Precision::Tf32 };
        let kernel = CudaKernel::new(gpu, kernel, x, precision);
        let packed: Vec<f32> = kernel.program.pack(x).iter().map(|v| *v as f32).collect();
        let what = || "the points of the kernel".into();
        let mut raw = gpu.allocate(4 * packed.len(), &what, "use fewer points or a smaller batch")?;
        raw.write(0, &packed);
        Ok(BatchGram { points: kernel.allocate_points(batch)?, kernel, raw, batch })
    }

    /// `out ← κ(x_b,x_b')` `[batch, batch]` for the points with the indices (i32 `[batch]`) at the device address `rows`.
    pub fn gram(&self, rows: u64, out: &mut Tensor) {
        self.kernel.prepare_points(false, self.raw.pointer(), rows, &self.points);
        self.kernel.gram(Kind::MirroredGram, &self.points, &self.points, Some(0), out.address(), self.batch);
    }
}
