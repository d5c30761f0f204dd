//! The launches: a kernel's programs on an open GPU, and points in its memory.

use super::super::{Precision, Real};
use super::{Arithmetic, Card, Launch, NO_DIAGONAL, Program, Scalar, Tiling, columns_per_pass, padded};
use crate::Result;
use crate::compute::Device;
use crate::compute::cuda::{self, Arg, Buffer, Gpu, Source};
use crate::kernel::Kernel;
use crate::linalg::Panel;
use ndarray::{Array2, ArrayView2, s};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What to do where the GPU's memory is short.
const LESS: &str = "use fewer points or columns at a time, or compute on the CPU";
/// Bytes of points that are on their way to the GPU at a time.
const STAGING: usize = 256 << 20;

/// A kernel on a GPU: its formula compiled into the tiles of `product` and `gram`.
pub(crate) struct CudaKernel {
    gpu: &'static Gpu,
    program: Program,
    sources: Mutex<HashMap<Wanted, Source>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    Product(usize),
    Gram,
    Prepare(usize),
}

/// Points in a GPU's memory, in the layout of a program's tiles.
pub(crate) struct DevicePoints {
    /// `[padded(n), width]`
    x: Buffer,
    /// `[views, padded(n)]`
    xx: Buffer,
    n: usize,
}

fn card(gpu: &Gpu) -> Card {
    Card {
        multiprocessors: gpu.multiprocessors as usize,
        capability: gpu.architecture,
        shared: gpu.shared_memory as usize,
    }
}

impl CudaKernel {
    /// For points like `reference` `[n, d]`, see [`Program::new`].
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, reference: ArrayView2<f64>, precision: Precision) -> CudaKernel {
        let wanted = match precision {
            Precision::Tf32 => Arithmetic::Tf32,
            Precision::F32 => Arithmetic::Split,
            Precision::F64 => Arithmetic::F64,
        };
        CudaKernel { gpu, program: Program::new(kernel, reference, wanted, card(gpu)), sources: Mutex::default() }
    }

    fn source(&self, wanted: Wanted) -> Source {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let text = || match wanted {
            Wanted::Product(columns) => self.program.product_source(columns),
            Wanted::Gram => self.program.gram_source(),
            Wanted::Prepare(columns) => self.program.prepare_source(Scalar::F64, columns),
        };
        sources.entry(wanted).or_insert_with(|| Source::new(text())).clone()
    }

    fn launch(&self, wanted: Wanted, launch: Launch, arguments: &[Arg]) {
        let (x, y) = launch.grid;
        self.gpu.launch(&self.source(wanted), launch.name, [x, y, 1], launch.block, launch.shared, arguments);
    }

    /// Bytes that `n` points take.
    pub fn points_bytes(&self, n: usize) -> usize {
        padded(n) * (self.program.width() + self.program.views()) * self.program.arithmetic().bytes()
    }

    /// Bytes that a product of `[n, m]` with `columns` columns takes beside its points: values, partial sums.
    pub fn product_bytes(&self, n: usize, m: usize, columns: usize) -> usize {
        self.program.values_bytes(m, columns) + self.program.partial_bytes(n, m, columns)
    }

    /// Bytes of one point as it comes from the host.
    pub fn raw_bytes(&self) -> usize {
        8 * self.program.source_width()
    }

    /// Points as they go to the GPU, row by row in memory.
    fn pack(&self, x: ArrayView2<f64>) -> Array2<f64> {
        self.program.pack(x).as_standard_layout().into_owned()
    }

    /// Room for `n` points.
    pub fn room(&self, n: usize) -> Result<DevicePoints> {
        let t = self.program.arithmetic().bytes();
        let what = || format!("{n} points of {} columns", self.program.source_width());
        let x = self.gpu.allocate(padded(n) * self.program.width() * t, &what, LESS)?;
        let xx = self.gpu.allocate(padded(n) * self.program.views() * t, &what, LESS)?;
        Ok(DevicePoints { x, xx, n })
    }

    /// Room for the raw form of `n` points.
    pub fn raw_room(&self, n: usize) -> Result<Buffer> {
        self.gpu.allocate(n * self.raw_bytes(), &|| format!("{n} points on their way"), LESS)
    }

    /// Queues the layout of `n` raw points (`[·, source_width]` in f64 at `raw`, those of `rows` (i32) where given) into
    /// `points`.
    pub fn lay_out(&self, raw: u64, rows: Option<u64>, n: usize, points: &mut DevicePoints) {
        points.n = n;
        let arguments = [
            Arg::U64(raw),
            Arg::U64(rows.unwrap_or(0)),
            Arg::from(&points.x),
            Arg::from(&points.xx),
            Arg::size(n),
            Arg::size(padded(n)),
        ];
        self.launch(Wanted::Prepare(1), self.program.prepare_points(n), &arguments);
    }

    /// The points `x` `[n, d]` on the GPU, sent a quarter of a gigabyte at a time.
    pub fn upload(&self, x: ArrayView2<f64>) -> Result<DevicePoints> {
        let n = x.nrows();
        let strip = (STAGING / self.raw_bytes().max(1)).max(1);
        if n <= strip {
            let mut points = self.room(n)?;
            let mut raw = self.raw_room(n)?;
            raw.write(0, contiguous(&self.pack(x)));
            self.lay_out(raw.pointer(), None, n, &mut points);
            return Ok(points);
        }
        // All raw points must be there when the rows are laid out.
        let mut raw = self.raw_room(n)?;
        for start in (0..n).step_by(strip) {
            let part = self.pack(x.slice(s![start..n.min(start + strip), ..]));
            raw.write(start * self.raw_bytes(), contiguous(&part));
        }
        let mut points = self.room(n)?;
        self.lay_out(raw.pointer(), None, n, &mut points);
        Ok(points)
    }

    /// Queues `Y ← κ(A, B) V` for `V` `[m, columns]` and `Y` `[n, columns]`, f64 at these addresses. Element (i, j) is a
    /// point with itself where `i = j + diagonal`, if anywhere.
    pub fn product(
        &self,
        a: &DevicePoints,
        b: &DevicePoints,
        diagonal: Option<i32>,
        v: u64,
        columns: usize,
        y: u64,
    ) -> Result<()> {
        let (n, m) = (a.n, b.n);
        let what = || format!("a product of {n}×{m} kernel values with {columns} columns");
        let values = self.gpu.allocate(self.program.values_bytes(m, columns), &what, LESS)?;
        let partial = self.gpu.allocate(self.program.partial_bytes(n, m, columns), &what, LESS)?;
        let Tiling { launch, tiles, tiles_per_split, splits } = self.program.product(n, m, columns);
        let pass = columns_per_pass(columns);
        for c0 in (0..columns).step_by(pass) {
            let width = pass.min(columns - c0);
            let tail = [Arg::size(columns), Arg::size(c0), Arg::size(width)];
            let arguments = [Arg::U64(v), Arg::from(&values), Arg::size(m), Arg::size(padded(m))];
            let arguments = [&arguments[..], &tail].concat();
            self.launch(Wanted::Prepare(columns), self.program.prepare_values(m, columns), &arguments);
            let arguments = [
                Arg::from(&a.x),
                Arg::from(&a.xx),
                Arg::from(&b.x),
                Arg::from(&b.xx),
                Arg::size(padded(n)),
                Arg::size(padded(m)),
                Arg::size(tiles),
                Arg::size(tiles_per_split),
                Arg::I32(diagonal.unwrap_or(NO_DIAGONAL)),
                Arg::from(&values),
                Arg::from(&partial),
                Arg::I32(0),
            ];
            self.launch(Wanted::Product(columns), launch, &arguments);
            let arguments = [Arg::from(&partial), Arg::U64(y), Arg::size(splits), Arg::size(n), Arg::size(padded(n))];
            let arguments = [&arguments[..], &tail].concat();
            self.launch(Wanted::Prepare(columns), self.program.reduce(n, width), &arguments);
        }
        Ok(())
    }

    /// Queues `κ(A, B)` into `out` `[n, ld]` (f64 for [`Precision::F64`], else f32).
    pub fn gram(&self, a: &DevicePoints, b: &DevicePoints, diagonal: Option<i32>, out: u64, ld: usize) {
        let Tiling { launch, tiles, tiles_per_split, .. } = self.program.gram(a.n, b.n);
        let arguments = [
            Arg::from(&a.x),
            Arg::from(&a.xx),
            Arg::from(&b.x),
            Arg::from(&b.xx),
            Arg::size(padded(a.n)),
            Arg::size(padded(b.n)),
            Arg::size(tiles),
            Arg::size(tiles_per_split),
            Arg::I32(diagonal.unwrap_or(NO_DIAGONAL)),
            Arg::U64(out),
            Arg::size(a.n),
            Arg::size(b.n),
            Arg::long(ld),
        ];
        self.launch(Wanted::Gram, launch, &arguments);
    }

    /// `κ(A, B)` in host memory, a strip of rows at a time.
    pub fn gram_to_host<T: Real>(&self, a: ArrayView2<f64>, b: ArrayView2<f64>, symmetric: bool) -> Result<Array2<T>> {
        let (n, m) = (a.nrows(), b.nrows());
        let columns = self.upload(b)?;
        let strip = (STAGING / (m.max(1) * size_of::<T>())).clamp(1, n.max(1));
        let out =
            self.gpu.allocate(strip * m * size_of::<T>(), &|| format!("{strip} rows of a kernel matrix"), LESS)?;
        let mut k = Array2::from_elem((n, m), T::default());
        for start in (0..n).step_by(strip) {
            let rows = start..n.min(start + strip);
            let points = self.upload(a.slice(s![rows.clone(), ..]))?;
            self.gram(&points, &columns, symmetric.then_some(-(start as i32)), out.pointer(), m);
            let mut part = k.slice_mut(s![rows, ..]);
            out.read(0, part.as_slice_mut().expect("rows of an array of our own"))?;
        }
        Ok(k)
    }
}

fn contiguous(x: &Array2<f64>) -> &[f64] {
    x.as_slice().expect("an array that was just made lies row by row")
}

/// The kernel matrix of points that are on a GPU, or that go there chunk by chunk where it cannot hold them all.
pub(crate) struct CudaOperator {
    kernel: CudaKernel,
    points: Placement,
    n: usize,
}

enum Placement {
    Resident(DevicePoints),
    /// Raw points on the host, and how many go to the GPU at a time.
    Streamed {
        raw: Array2<f64>,
        chunk: usize,
    },
}

impl CudaOperator {
    /// The points `x` `[n, d]`; they are streamed where they, and a product with a few columns, do not fit.
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, x: ArrayView2<f64>, precision: Precision) -> Result<CudaOperator> {
        const FEW: usize = 32;
        let kernel = CudaKernel::new(gpu, kernel, x, precision);
        let n = x.nrows();
        let room = (gpu.memory().0 as usize) / 10 * 9;
        let vectors = 16 * n * FEW;
        let resident = kernel.points_bytes(n) + n * kernel.raw_bytes() + kernel.product_bytes(n, n, FEW) + vectors;
        let points = if resident <= room {
            Placement::Resident(kernel.upload(x)?)
        } else {
            // Three chunks of points (rows, and two of columns), each raw and laid out, with what a product takes.
            let needs = |chunk: usize| {
                3 * (kernel.points_bytes(chunk) + chunk * kernel.raw_bytes()) + kernel.product_bytes(chunk, chunk, FEW)
            };
            let rest = room.saturating_sub(vectors);
            let mut chunk = n.next_power_of_two();
            while chunk > 1024 && needs(chunk) > rest {
                chunk /= 2;
            }
            Placement::Streamed { raw: kernel.pack(x), chunk }
        };
        Ok(CudaOperator { kernel, points, n })
    }

    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.kernel.gpu
    }

    /// Queues `Y ← K V`, both `[n, columns]` in f64 at these addresses.
    pub fn product(&self, v: u64, columns: usize, y: u64) -> Result<()> {
        match &self.points {
            Placement::Resident(points) => self.kernel.product(points, points, Some(0), v, columns, y),
            Placement::Streamed { raw, chunk } => self.streamed(raw, *chunk, v, columns, y),
        }
    }

    /// Row chunk by row chunk, the column chunks going by in two buffers: while one is multiplied, the next arrives.
    fn streamed(&self, raw: &Array2<f64>, chunk: usize, v: u64, columns: usize, y: u64) -> Result<()> {
        let (kernel, gpu) = (&self.kernel, self.kernel.gpu);
        let chunks: Vec<Range<usize>> =
            (0..self.n).step_by(chunk).map(|start| start..self.n.min(start + chunk)).collect();
        let host = |rows: &Range<usize>| &contiguous(raw)[rows.start * raw.ncols()..rows.end * raw.ncols()];
        let mut arriving = [kernel.raw_room(chunk)?, kernel.raw_room(chunk)?];
        let (mut rows, mut cols) = (kernel.room(chunk)?, kernel.room(chunk)?);
        let what = || format!("sums of {chunk} points with {columns} columns");
        let term = gpu.allocate(8 * chunk * columns, &what, LESS)?;
        let mut raw_rows = kernel.raw_room(chunk)?;
        for of_rows in &chunks {
            raw_rows.write(0, host(of_rows));
            kernel.lay_out(raw_rows.pointer(), None, of_rows.len(), &mut rows);
            let to = y + (8 * of_rows.start * columns) as u64;
            gpu.copies_after_work();
            arriving[0].write_beside(0, host(&chunks[0]));
            for (j, of_cols) in chunks.iter().enumerate() {
                gpu.work_after_copies();
                // What is queued up to here used the other buffer; the next chunk may overwrite it after that.
                let before = gpu.mark();
                kernel.lay_out(arriving[j % 2].pointer(), None, of_cols.len(), &mut cols);
                let values = v + (8 * of_cols.start * columns) as u64;
                let diagonal = of_cols.start as i64 - of_rows.start as i64;
                let out = if j == 0 { to } else { term.pointer() };
                kernel.product(&rows, &cols, Some(diagonal as i32), values, columns, out)?;
                if j > 0 {
                    gpu.add_f64(of_rows.len() * columns, 1.0, term.pointer(), to);
                }
                if let Some(next) = chunks.get(j + 1) {
                    gpu.copies_after(before);
                    arriving[(j + 1) % 2].write_beside(0, host(next));
                }
            }
        }
        // The buffers go back to the pool, whose next owner is queued on the computing stream alone.
        gpu.work_after_copies();
        Ok(())
    }

    /// `K V` `[n, b]` for a panel `V` `[n, b]` on this GPU.
    pub fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        let shape = [self.n, v.ncols()];
        let from = v.buffer().expect("the panel lies on this GPU").pointer();
        let to = self.gpu().allocate(8 * shape[0] * shape[1], &|| format!("a panel of {shape:?}"), LESS)?;
        self.product(from, v.ncols(), to.pointer())?;
        Ok(Panel::from_buffer(shape, to))
    }

    /// `K V` for `V` `[n, b]` on the host.
    pub fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        through_device(self.kernel.gpu, v, self.n, |from, to| self.product(from, v.ncols(), to))
    }
}

/// `f` from the address of `v` `[m, b]` to that of the result `[n, b]`, with the host at both ends.
fn through_device(
    gpu: &'static Gpu,
    v: ArrayView2<f64>,
    n: usize,
    f: impl FnOnce(u64, u64) -> Result<()>,
) -> Result<Array2<f64>> {
    let what = || format!("vectors of {n} and {} by {}", v.nrows(), v.ncols());
    let mut from = gpu.allocate(8 * v.len(), &what, LESS)?;
    let to = gpu.allocate(8 * n * v.ncols(), &what, LESS)?;
    from.write(0, contiguous(&v.as_standard_layout().into_owned()));
    f(from.pointer(), to.pointer())?;
    let mut y = Array2::zeros((n, v.ncols()));
    to.read(0, y.as_slice_mut().expect("just made"))?;
    Ok(y)
}

/// `κ(X, Z) A` `[n, k]` on the GPU, the rows of `X` a strip at a time.
pub(crate) fn cross_apply(
    gpu: &'static Gpu,
    kernel: &Kernel,
    x: ArrayView2<f64>,
    z: ArrayView2<f64>,
    a: ArrayView2<f64>,
    precision: Precision,
) -> Result<Array2<f64>> {
    let kernel = CudaKernel::new(gpu, kernel, z, precision);
    let centres = kernel.upload(z)?;
    let columns = a.ncols();
    let strip = (STAGING / kernel.raw_bytes().max(1)).clamp(1, x.nrows().max(1));
    let mut from = gpu.allocate(8 * a.len(), &|| "coefficients".into(), LESS)?;
    from.write(0, contiguous(&a.as_standard_layout().into_owned()));
    let to = gpu.allocate(8 * strip * columns, &|| "function values".into(), LESS)?;
    let mut y = Array2::zeros((x.nrows(), columns));
    for start in (0..x.nrows()).step_by(strip) {
        let rows = start..x.nrows().min(start + strip);
        let points = kernel.upload(x.slice(s![rows.clone(), ..]))?;
        kernel.product(&points, &centres, None, from.pointer(), columns, to.pointer())?;
        let mut part = y.slice_mut(s![rows, ..]);
        to.read(0, part.as_slice_mut().expect("rows of an array of our own"))?;
    }
    Ok(y)
}

/// A product `Y = K V` timed on the GPU alone, with points and vectors there: for benchmarks.
#[derive(Debug)]
pub struct Timing {
    /// Milliseconds of each repeat.
    pub ms: Vec<f32>,
    /// `Y` `[n, columns]` of the last.
    pub y: Array2<f64>,
    /// Bytes on the device: points, vectors and what the product takes.
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
    let operator = CudaOperator::new(gpu, kernel, x, precision)?;
    let bytes = operator.kernel.points_bytes(n) + operator.kernel.product_bytes(n, n, columns) + 16 * n * columns;
    let mut ms = vec![];
    let y = through_device(gpu, v, n, |from, to| {
        for repeat in 0..repeats + 2 {
            let start = gpu.event();
            operator.product(from, columns, to)?;
            let end = gpu.event();
            gpu.synchronize()?;
            if let (Some(start), Some(end)) = (start, end)
                && repeat >= 2
            {
                ms.push(gpu.elapsed_ms(&start, &end)?);
            }
        }
        Ok(())
    })?;
    Ok(Timing { ms, y, bytes })
}
