//! Kernel matrices as operators on a GPU, and products with new points.

use super::device::{CudaKernel, DevicePoints, contiguous};
use super::images::{self, ImageKernel, ImageMatrix};
use super::sets::{Kept, Sets};
use super::{ADVICE, STAGING};
use crate::compute::Device;
use crate::compute::cuda::{self, Gpu};
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::linalg::{Panel, Part};
use crate::operator::{Precision, Real};
use crate::{Progress, Result};
use ndarray::{Array2, ArrayView2};
use std::ops::Range;

/// A kernel matrix on a GPU.
pub(crate) struct CudaOperator {
    gpu: &'static Gpu,
    n: usize,
    form: Form,
}

enum Form {
    /// The matrix is never stored: products compute it anew.
    Fused(Sets),
    Images(ImageKernel, ImageMatrix),
}

pub(super) enum Placement {
    Resident(DevicePoints),
    /// Raw points on the host, and the number of points of a chunk.
    Streamed {
        raw: Array2<f64>,
        chunk: usize,
    },
}

impl Placement {
    /// Of the points `x` `[n, d]`. They are streamed if they and a product with 32 columns do not fit into device memory.
    fn new(gpu: &'static Gpu, kernel: &CudaKernel, x: Rows<'_>) -> Result<Placement> {
        const COLUMNS: usize = 32;
        let n = x.n();
        let available = (gpu.memory().0 as usize) / 10 * 9;
        let vectors = 16 * n * COLUMNS;
        let resident = kernel.points_bytes(n) + STAGING + kernel.product_bytes(n, n, COLUMNS) + vectors;
        if resident <= available {
            return Ok(Placement::Resident(kernel.upload(x)?));
        }
        // Three chunks of points (one of rows, two of columns), raw and prepared, and the memory of a product.
        let needed = |chunk: usize| {
            let points = kernel.points_bytes(chunk) + chunk * kernel.raw_bytes();
            3 * points + kernel.product_bytes(chunk, chunk, COLUMNS)
        };
        let available = available.saturating_sub(vectors);
        let mut chunk = n.next_power_of_two();
        while chunk > 1024 && needed(chunk) > available {
            chunk /= 2;
        }
        Ok(Placement::Streamed { raw: kernel.pack(x), chunk })
    }
}

impl CudaOperator {
    /// For the points `x` `[n, d]`.
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, x: Rows<'_>, precision: Precision) -> Result<CudaOperator> {
        let form = if kernel.sees_images() {
            let kernel = ImageKernel::new(gpu, kernel, x, precision);
            let matrix = ImageMatrix::new(&kernel, x)?;
            Form::Images(kernel, matrix)
        } else {
            let kernel = CudaKernel::new(gpu, kernel, x, None, precision);
            let placed = vec![Placement::new(gpu, &kernel, x)?];
            Form::Fused(Sets { kernel, placed })
        };
        Ok(CudaOperator { gpu, n: x.n(), form })
    }

    /// The device of the operator.
    pub fn device(&self) -> Device {
        Device::Cuda(self.gpu.ordinal)
    }

    /// Queues `Y ← K V`, both f64 `[n, columns]` at the addresses `v` and `y`.
    fn product(&self, v: u64, columns: usize, y: u64) -> Result<()> {
        match &self.form {
            Form::Fused(Sets { kernel, placed }) => match &placed[0] {
                Placement::Resident(points) => kernel.product([points; 2], Some(0), v, columns, y),
                Placement::Streamed { raw, chunk } => self.streamed(kernel, raw, *chunk, v, columns, y),
            },
            Form::Images(kernel, matrix) => matrix.product(kernel, v, columns, y),
        }
    }

    /// For each chunk of rows, all chunks of columns pass through two buffers: one is multiplied while the next is uploaded.
    fn streamed(
        &self,
        kernel: &CudaKernel,
        raw: &Array2<f64>,
        chunk: usize,
        v: u64,
        columns: usize,
        y: u64,
    ) -> Result<()> {
        let gpu = self.gpu;
        let chunks: Vec<Range<usize>> =
            (0..self.n).step_by(chunk).map(|start| start..self.n.min(start + chunk)).collect();
        let host = |rows: &Range<usize>| &contiguous(raw)[rows.start * raw.ncols()..rows.end * raw.ncols()];
        let mut uploads = [kernel.allocate_raw(chunk)?, kernel.allocate_raw(chunk)?];
        let (mut rows, mut cols) = (kernel.allocate_points(chunk)?, kernel.allocate_points(chunk)?);
        let what = || format!("sums of {chunk} points with {columns} columns");
        let term = gpu.allocate(8 * chunk * columns, &what, ADVICE)?;
        let mut raw_rows = kernel.allocate_raw(chunk)?;
        for of_rows in &chunks {
            raw_rows.write(0, host(of_rows));
            rows.n = of_rows.len();
            kernel.prepare_points(true, raw_rows.pointer(), 0, &rows);
            let to = y + (8 * of_rows.start * columns) as u64;
            gpu.copies_wait_for(gpu.record_event());
            uploads[0].write_on_copy_stream(0, host(&chunks[0]));
            for (j, of_cols) in chunks.iter().enumerate() {
                gpu.work_waits_for_copies();
                // Work before this event uses the other buffer; the next upload overwrites it and must wait.
                let other_buffer_used = gpu.record_event();
                cols.n = of_cols.len();
                kernel.prepare_points(true, uploads[j % 2].pointer(), 0, &cols);
                let values = v + (8 * of_cols.start * columns) as u64;
                let diagonal = of_cols.start as i64 - of_rows.start as i64;
                let out = if j == 0 { to } else { term.pointer() };
                kernel.product([&rows, &cols], Some(diagonal as i32), values, columns, out)?;
                if j > 0 {
                    // SAFETY: `term` has room for a chunk of rows, and `to` is where this chunk's rows of Y begin.
                    unsafe { gpu.add_f64(of_rows.len() * columns, 1.0, term.pointer(), to) };
                }
                if let Some(next) = chunks.get(j + 1) {
                    gpu.copies_wait_for(other_buffer_used);
                    uploads[(j + 1) % 2].write_on_copy_stream(0, host(next));
                }
            }
        }
        // The buffers return to the pool, and their next user waits for the compute stream only.
        gpu.work_waits_for_copies();
        Ok(())
    }

    /// `K V` `[n, b]` for a panel `V` `[n, b]` on this GPU.
    pub fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        let shape = [self.n, v.ncols()];
        assert_eq!(v.nrows(), self.n, "a product with vectors of another length");
        let from = v.buffer().expect("the panel is on this GPU").pointer();
        let to = self.gpu.allocate(8 * shape[0] * shape[1], &|| format!("a panel of {shape:?}"), ADVICE)?;
        self.product(from, v.ncols(), to.pointer())?;
        Ok(Panel::from_buffer(shape, to))
    }

    /// `K[rows, columns] V` `[rows, b]` for a panel `V` `[columns, b]` on this GPU. Images have all of K in device memory, or compute
    /// it anew: V is one of all columns there.
    pub fn product_panel(&self, rows: &Part<'_>, columns: &Part<'_>, v: &Panel) -> Result<Panel> {
        if rows.is_all(self.n) && columns.is_all(self.n) {
            return self.apply_panel(v);
        }
        match &self.form {
            Form::Fused(sets) => sets.product(&(0, rows.clone()), &(0, columns.clone()), v),
            Form::Images(..) => {
                let mut all = Panel::zeros(self.device(), [self.n, v.ncols()])?;
                all.add_to_rows(columns, 1.0, v)?;
                self.apply_panel(&all)?.rows(rows)
            }
        }
    }

    /// `K[rows, columns]` on this GPU; none for images.
    pub fn block_panel(&self, rows: &Part<'_>, columns: &Part<'_>) -> Result<Option<Panel>> {
        match &self.form {
            Form::Fused(sets) => sets.block(&(0, rows.clone()), &(0, columns.clone())).map(Some),
            Form::Images(..) => Ok(None),
        }
    }

    /// `K V` for `V` `[n, b]` on the host.
    pub fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.apply_panel(&Panel::from_host(self.device(), v.to_owned())?)?.into_host()
    }
}

/// Two sets of points X and Z on a GPU, each prepared once.
pub(crate) struct CudaPair(Sets);

impl CudaPair {
    /// Of `x` `[n, d]` and `z` `[m, d]`, for a kernel of points.
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, [x, z]: [Rows<'_>; 2], precision: Precision) -> Result<CudaPair> {
        let kernel = CudaKernel::for_sets(gpu, kernel, [x, z], precision);
        // The larger set may have to be streamed, and sees what the other one left of the memory.
        let (larger, smaller) = if x.n() > z.n() { (x, z) } else { (z, x) };
        let smaller = Placement::new(gpu, &kernel, smaller)?;
        let larger = Placement::new(gpu, &kernel, larger)?;
        let placed = if x.n() > z.n() { vec![larger, smaller] } else { vec![smaller, larger] };
        Ok(CudaPair(Sets { kernel, placed }))
    }

    /// The device of the points.
    pub fn device(&self) -> Device {
        Device::Cuda(self.0.kernel.gpu().ordinal)
    }

    /// `κ(A, B) V` for parts A and B of the sets (0: X, 1: Z) and a panel on this GPU.
    pub fn product(&self, a: &(usize, Part<'_>), b: &(usize, Part<'_>), v: &Panel) -> Result<Panel> {
        self.0.product(a, b, v)
    }

    /// Inner products that serve several products, see [`Sets::keep`].
    pub fn keep(&self, a: &(usize, Part<'_>), b: &(usize, Part<'_>)) -> Result<Option<Kept<'_>>> {
        self.0.keep(a, b)
    }

    /// Whether points are so wide that inner products are worth keeping.
    pub fn keeps(&self) -> bool {
        self.0.kernel.is_wide()
    }

    /// `κ(A, B)` on this GPU.
    pub fn block(&self, a: &(usize, Part<'_>), b: &(usize, Part<'_>)) -> Result<Panel> {
        self.0.block(a, b)
    }
}

/// `κ(x,x)` `[n]` of images by the GPU, in f64.
pub(crate) fn image_diagonal(gpu: &'static Gpu, kernel: &Kernel, x: Rows<'_>) -> Result<Vec<f64>> {
    ImageKernel::new(gpu, kernel, x, Precision::F64).diagonal(x)
}

/// The rows of `κ(X, Z)`, or of `κ(X, X)` without a `z`, a strip at a time.
pub(crate) fn gram_strips<T: Real>(
    gpu: &'static Gpu,
    kernel: &Kernel,
    (x, z): (Rows<'_>, Option<Rows<'_>>),
    progress: &dyn Progress,
    put: &mut dyn FnMut(&Array2<T>) -> Result<()>,
) -> Result<()> {
    let columns = z.unwrap_or(x);
    if kernel.sees_images() {
        return ImageKernel::new(gpu, kernel, columns, T::PRECISION).gram_strips(x, z, progress, put);
    }
    CudaKernel::new(gpu, kernel, columns, z.map(|_| x), T::PRECISION).gram_strips(x, columns, z.is_none(), put)
}

/// `κ(X, Z) A` `[n, k]` on the GPU, one strip of the rows of `X` at a time.
pub(crate) fn cross_apply(
    gpu: &'static Gpu,
    kernel: &Kernel,
    x: Rows<'_>,
    z: Rows<'_>,
    a: ArrayView2<f64>,
    precision: Precision,
) -> Result<Array2<f64>> {
    if kernel.sees_images() {
        return images::cross_apply(&ImageKernel::new(gpu, kernel, z, precision), x, z, a);
    }
    let kernel = CudaKernel::new(gpu, kernel, z, Some(x), precision);
    let centres = kernel.upload(z)?;
    let columns = a.ncols();
    let a = Panel::from_host(Device::Cuda(gpu.ordinal), a.to_owned())?;
    let from = a.buffer().expect("the panel is on this GPU").pointer();
    kernel.by_strips(x, columns, kernel.raw_bytes(), |points, _, to| {
        kernel.product([points, &centres], None, from, columns, to)
    })
}

/// The time of a product `Y = K V` whose points and vectors are on the GPU; for benchmarks.
#[derive(Debug)]
pub struct Timing {
    /// Milliseconds of each repeat.
    pub ms: Vec<f32>,
    /// `Y` `[n, columns]` of the last repeat.
    pub y: Array2<f64>,
    /// Device memory in bytes: points, vectors and temporary memory.
    pub bytes: usize,
}

/// Times `κ(X, X) V` for `x` `[n, d]` and `v` `[n, columns]` on `device`, which must be a GPU.
pub fn time_product(
    kernel: &Kernel,
    x: ArrayView2<f64>,
    v: ArrayView2<f64>,
    precision: Precision,
    device: Device,
    repeats: usize,
) -> Result<Timing> {
    let Device::Cuda(ordinal) = device else {
        return Err(crate::Error::input("only products on a GPU can be timed"));
    };
    let gpu = cuda::gpu(ordinal)?;
    let (n, columns) = v.dim();
    let operator = CudaOperator::new(gpu, kernel, x.into(), precision)?;
    let of_product = match &operator.form {
        Form::Fused(Sets { kernel, .. }) => kernel.points_bytes(n) + kernel.product_bytes(n, n, columns),
        Form::Images(kernel, matrix) => matrix.bytes(kernel),
    };
    let bytes = of_product + 16 * n * columns;
    let v = Panel::from_host(device, v.to_owned())?;
    let (mut ms, mut y) = (vec![], operator.apply_panel(&v)?);
    for repeat in 0..=repeats {
        let start = gpu.record_event();
        y = operator.apply_panel(&v)?;
        let elapsed = gpu.elapsed_ms(start, gpu.record_event())?;
        if repeat > 0 {
            ms.push(elapsed);
        }
    }
    Ok(Timing { ms, y: y.into_host()?, bytes })
}
