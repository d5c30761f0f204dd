//! Products with the kernel matrix on a GPU: uploads points and launches the kernels of a [`Program`].

use super::launch::{Card, Launch, NO_DIAGONAL, Tiling, columns_per_pass, padded};
use super::program::{Kind, Program};
use super::wide;
use super::{ADVICE, Arithmetic, STAGING};
use crate::Result;
use crate::compute::cuda::{Arg, Buffer, Gpu, Source, Staging, panel};
use crate::compute::{Math, Tensor};
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::linalg::Panel;
use crate::operator::tile::workspace::ranges;
use crate::operator::{Precision, Real};
use ndarray::{Array2, s};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A kernel on a GPU, with its formula compiled into the tiles of `product` and `gram`.
pub(crate) struct CudaKernel {
    pub(super) gpu: &'static Gpu,
    pub(super) program: Program,
    sources: Mutex<HashMap<Kind, Source>>,
}

/// Points in GPU memory, in the layout of a program's tiles.
pub(super) struct DevicePoints {
    /// `[padded(n), width]` in the order of the arithmetic, and as many low parts where the program has some.
    pub(super) x: Buffer,
    /// `[norms, padded(n)]`
    pub(super) xx: Buffer,
    pub n: usize,
}

/// The points A and B of κ(A, B).
pub(super) type Sides<'a> = [&'a DevicePoints; 2];

/// `Y ← κ(A, B) V` for n and m points and vectors on the device.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub sides: Sides<'a>,
    /// Where the points are in their sets, i32 `[padded(n)]` and `[padded(m)]` on the device (0: in their own order).
    pub places: Option<[u64; 2]>,
    /// Point i of A is point j of B where `i = j + diagonal`, of their places where they have some.
    pub diagonal: Option<i32>,
    /// The addresses of `V` `[m, columns]` and of `Y` `[n, columns]`, both in f64 if `double`, else in f32.
    pub v: u64,
    pub y: u64,
    pub columns: usize,
    pub double: bool,
}

impl Product<'_> {
    /// n and m.
    pub fn shape(&self) -> (usize, usize) {
        (self.sides[0].n, self.sides[1].n)
    }
}

impl CudaKernel {
    /// For the points `reference` `[n, d]`, and `others` if there are two sets; see [`Program::new`].
    pub fn new(
        gpu: &'static Gpu,
        kernel: &Kernel,
        reference: Rows<'_>,
        others: Option<Rows<'_>>,
        precision: Precision,
    ) -> CudaKernel {
        CudaKernel::of_program(gpu, Program::new(kernel, reference, others, precision.into(), Card::of(gpu)))
    }

    /// With a program that was made for this GPU.
    pub(super) fn of_program(gpu: &'static Gpu, program: Program) -> CudaKernel {
        CudaKernel { gpu, program, sources: Mutex::default() }
    }

    /// For two sets of points, each of which may be on either side; see [`Program::for_sets`].
    pub fn for_sets(gpu: &'static Gpu, kernel: &Kernel, [x, z]: [Rows<'_>; 2], precision: Precision) -> CudaKernel {
        let program = Program::for_sets(kernel, x, z, precision.into(), Card::of(gpu));
        CudaKernel { gpu, program, sources: Mutex::default() }
    }

    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Queues a function of the source `kind`. The callers, all in this file and in `wide.rs`, pass the arguments that the table in `mod.rs`
    /// lists, with memory that was allocated for the numbers of points and columns which they also pass.
    pub(super) fn launch(&self, kind: Kind, launch: Launch, arguments: &[Arg]) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let source = sources.entry(kind).or_insert_with(|| Source::new(self.program.source(kind)));
        // SAFETY: as said above.
        unsafe { launch.run(self.gpu, source, arguments) };
    }

    /// Whether points have so many coordinates that their inner products are computed by cuBLAS, see [`wide`].
    pub fn is_wide(&self) -> bool {
        self.program.is_wide()
    }

    /// Bytes of `n` points in the layout of the tiles.
    pub fn points_bytes(&self, n: usize) -> usize {
        self.program.points_requests(n).iter().sum()
    }

    /// Temporary memory in bytes of a product `[n, m]` with `columns` columns: values and partial sums.
    pub fn product_bytes(&self, n: usize, m: usize, columns: usize) -> usize {
        let nc = columns_per_pass(columns);
        let block = if self.program.is_wide() { wide::block_bytes(n, m) } else { 0 };
        self.program.values_bytes(m, nc) + self.program.partial_bytes(n, m, nc) + block
    }

    /// Raw points, as they are copied from the host; see [`Program::pack`].
    pub fn pack(&self, x: Rows<'_>) -> Array2<f64> {
        self.program.pack::<f64>(x)
    }

    /// Bytes of one raw point in f64.
    pub fn raw_bytes(&self) -> usize {
        8 * self.program.source_width()
    }

    /// Memory for `n` points.
    pub fn allocate_points(&self, n: usize) -> Result<DevicePoints> {
        let what = || format!("{n} points of {} columns", self.program.source_width());
        let [points, norms] = self.program.points_requests(n);
        let x = self.gpu.allocate(points, &what, ADVICE)?;
        let xx = self.gpu.allocate(norms, &what, ADVICE)?;
        Ok(DevicePoints { x, xx, n })
    }

    /// Memory for `n` raw points in f64.
    pub fn allocate_raw(&self, n: usize) -> Result<Buffer> {
        self.gpu.allocate(n * self.raw_bytes(), &|| format!("the upload of {n} points"), ADVICE)
    }

    /// Queues the conversion of raw points at the address `raw` (`[·, source_width]`, f64 if `double`, else f32) to the layout
    /// of the tiles: those with the indices (i32) at the address `rows`, or all in order if that is 0.
    pub fn prepare_points(&self, double: bool, raw: u64, rows: u64, points: &DevicePoints) {
        let [x, xx] = [&points.x, &points.xx].map(Arg::from);
        let [n, pad] = [points.n, padded(points.n)].map(Arg::size);
        let launch = Launch::elementwise("prepare_points", 32 * padded(points.n));
        let written = [Arg::I32(0), pad];
        self.launch(
            Kind::Prepare { nc: 8, double },
            launch,
            &[&[Arg::U64(raw), Arg::U64(rows), x, xx, n, pad][..], &written].concat(),
        );
    }

    /// Uploads the points `x` `[n, d]`, at most [`STAGING`] bytes at a time, in f32 where that is enough.
    pub fn upload(&self, x: Rows<'_>) -> Result<DevicePoints> {
        let points = self.allocate_points(x.n())?;
        match self.program.single() {
            true => self.upload_as::<f32>(x, &points)?,
            false => self.upload_as::<f64>(x, &points)?,
        }
        Ok(points)
    }

    /// A strip is packed while the one before is copied and prepared.
    fn upload_as<T: Real>(&self, x: Rows<'_>, points: &DevicePoints) -> Result<()> {
        let (n, n_pad, width) = (points.n, padded(points.n), self.program.source_width());
        let row_bytes = width * size_of::<T>();
        let strip = (STAGING / 4 / row_bytes.max(1)).clamp(1, n.max(1));
        let what = || format!("the upload of {strip} points");
        let prepare = Kind::Prepare { nc: 8, double: size_of::<T>() == 8 };
        let queue = |raw: u64, rows: Range<usize>| {
            // The last strip is followed by the padding.
            let count = if rows.end == n { n_pad } else { rows.end } - rows.start;
            let sizes = [n, n_pad, rows.start, count].map(Arg::size);
            let arguments = [&[Arg::U64(raw), Arg::U64(0), Arg::from(&points.x), Arg::from(&points.xx)][..], &sizes];
            self.launch(prepare, Launch::elementwise("prepare_points", 32 * count), &arguments.concat());
        };
        // Locking pages takes longer than copying few of them does.
        let staging = if n > strip { Staging::new(self.gpu, strip * row_bytes, &what, ADVICE)? } else { None };
        if let Some(mut staging) = staging {
            for rows in ranges(n, strip) {
                let few = x.slice(rows.clone());
                let pack = |raw: &mut [T]| self.program.pack_into(few, raw);
                staging.pass(rows.len() * width, pack, |raw| queue(raw, rows.clone()));
            }
            return Ok(());
        }
        let mut raw = self.gpu.allocate(strip * row_bytes, &what, ADVICE)?;
        for rows in ranges(n, strip) {
            // The next strip overwrites the buffer after this one was prepared: all of it is in the order of one stream.
            raw.write(0, self.program.pack::<T>(x.slice(rows.clone())).as_slice().expect("the array is row-major"));
            queue(raw.pointer(), rows);
        }
        Ok(())
    }

    /// Points of a set that is on the device: those at the numbers (i32) in `rows`, or those from `first` on.
    pub fn gather(&self, from: &DevicePoints, rows: Option<&Buffer>, first: usize, n: usize) -> Result<DevicePoints> {
        let points = self.allocate_points(n)?;
        let [x, xx, out, out_xx] = [&from.x, &from.xx, &points.x, &points.xx].map(Arg::from);
        let [x_pad, first, count, n_pad] = [padded(from.n), first, n, padded(n)].map(Arg::size);
        let rows = rows.map_or(Arg::U64(0), Arg::from);
        let launch = Launch::elementwise("gather_points", 32 * padded(n));
        let prepare = Kind::Prepare { nc: 8, double: true };
        self.launch(prepare, launch, &[x, xx, x_pad, rows, first, out, out_xx, count, n_pad]);
        Ok(points)
    }

    /// Queues `Y ← κ(A, B) V` for `V` `[m, columns]` and `Y` `[n, columns]`, in f64 at the addresses `v` and `y`. With
    /// `diagonal`, point i of A is point j of B where `i = j + diagonal`.
    pub fn product(&self, sides: Sides<'_>, diagonal: Option<i32>, v: u64, columns: usize, y: u64) -> Result<()> {
        self.placed_product(&Product { sides, places: None, diagonal, v, y, columns, double: true })
    }

    /// Queues a product of points that may have places.
    pub fn placed_product(&self, product: &Product<'_>) -> Result<()> {
        if self.program.is_wide() {
            return self.wide_product(product);
        }
        let Product { sides, places, diagonal, v, y, columns, double } = *product;
        let (n, m) = product.shape();
        let what = || format!("a product of {n}×{m} kernel values with {columns} columns");
        let nc = columns_per_pass(columns);
        let values = self.gpu.allocate(self.program.values_bytes(m, nc), &what, ADVICE)?;
        let partial = self.gpu.allocate(self.program.partial_bytes(n, m, nc), &what, ADVICE)?;
        let kind = if places.is_some() { Kind::GatheredProduct { nc } } else { Kind::Product { nc } };
        let tiling = self.program.tiling(kind, n, m);
        let prepare = Kind::Prepare { nc, double };
        let (v, y, values, partial) = (Arg::U64(v), Arg::U64(y), Arg::from(&values), Arg::from(&partial));
        for c0 in (0..columns).step_by(nc) {
            let width = nc.min(columns - c0);
            let [m_pad, n_pad] = [padded(m), padded(n)];
            let sizes = [m, m_pad, columns, c0, width].map(Arg::size);
            let launch = Launch::elementwise("prepare_values", m_pad * nc);
            self.launch(prepare, launch, &[&[v, values][..], &sizes].concat());
            let arguments = [&tile_arguments(sides, &tiling, diagonal, places)[..], &[values, partial]].concat();
            self.launch(kind, tiling.launch, &arguments);
            let sizes = [tiling.splits(), n, n_pad, columns, c0, width].map(Arg::size);
            let launch = Launch::elementwise("reduce_partials", n * width);
            self.launch(prepare, launch, &[&[partial, y][..], &sizes].concat());
        }
        Ok(())
    }

    /// Queues the Gram matrix `kind` of A and B into `out` `[n, ld]` (f64 for [`Precision::F64`], else f32).
    pub(super) fn gram(&self, kind: Kind, [a, b]: Sides<'_>, diagonal: Option<i32>, out: u64, ld: usize) {
        let tiling = self.program.tiling(kind, a.n, b.n);
        let out = [Arg::U64(out), Arg::size(a.n), Arg::size(b.n), Arg::long(ld)];
        self.launch(kind, tiling.launch, &[&tile_arguments([a, b], &tiling, diagonal, None)[..], &out].concat());
    }

    /// `κ(A, B)` `[n, m]` in f64 on the device, or its transpose; `places` and `diagonal` as in [`Product`].
    pub fn block(&self, [a, b]: Sides<'_>, places: [u64; 2], diagonal: Option<i32>, transposed: bool) -> Result<Panel> {
        let (n, m, double) = (a.n, b.n, self.program.arithmetic == Arithmetic::F64);
        let what = || format!("{n}×{m} kernel values");
        let values = self.gpu.allocate(n * m * if double { 8 } else { 4 }, &what, ADVICE)?;
        let tiling = self.program.tiling(Kind::GatheredGram, n, m);
        let out = [Arg::from(&values), Arg::size(n), Arg::size(m), Arg::long(m)];
        let arguments = tile_arguments([a, b], &tiling, diagonal, Some(places));
        self.launch(Kind::GatheredGram, tiling.launch, &[&arguments[..], &out].concat());
        if double && !transposed {
            return Ok(Panel::from_buffer([n, m], values));
        }
        let mut wide = self.gpu.allocate(8 * n * m, &what, ADVICE)?;
        if transposed {
            panel::transpose([n, m], double, &values, &mut wide);
            return Ok(Panel::from_buffer([m, n], wide));
        }
        panel::widen(n * m, &values, &mut wide);
        Ok(Panel::from_buffer([n, m], wide))
    }

    /// The rows of `κ(A, B)`, a strip at a time; with `symmetric`, A is B.
    pub fn gram_strips<T: Real>(
        &self,
        a: Rows<'_>,
        b: Rows<'_>,
        symmetric: bool,
        put: &mut dyn FnMut(&Array2<T>) -> Result<()>,
    ) -> Result<()> {
        let (m, columns) = (b.n(), self.upload(b)?);
        let queue = |points: &DevicePoints, start: usize, out: u64| {
            self.gram(Kind::Gram, [points, &columns], symmetric.then_some(-(start as i32)), out, m);
            Ok(())
        };
        self.each_strip::<T>(a, m, m * size_of::<T>(), queue, |rows, out| {
            let mut strip = Array2::from_elem((rows.len(), m), T::default());
            out.read(0, strip.as_slice_mut().expect("contiguous rows"))?;
            put(&strip)
        })
    }

    /// Values `[n, width]` at the points `x` `[n, d]` on the host; see [`Self::each_strip`].
    pub fn by_strips<T: Real>(
        &self,
        x: Rows<'_>,
        width: usize,
        row_bytes: usize,
        queue: impl Fn(&DevicePoints, usize, u64) -> Result<()>,
    ) -> Result<Array2<T>> {
        let mut all = Array2::from_elem((x.n(), width), T::default());
        self.each_strip::<T>(x, width, row_bytes, queue, |rows, out| {
            out.read(0, all.slice_mut(s![rows, ..]).as_slice_mut().expect("contiguous rows"))
        })?;
        Ok(all)
    }

    /// Values at the points `x` `[n, d]`, `width` each, a strip at a time: `queue(points, first, out)` computes those of the
    /// points from `first` on, and `take` gets them. `row_bytes` of a row count towards [`STAGING`].
    fn each_strip<T: Real>(
        &self,
        x: Rows<'_>,
        width: usize,
        row_bytes: usize,
        queue: impl Fn(&DevicePoints, usize, u64) -> Result<()>,
        mut take: impl FnMut(Range<usize>, &Buffer) -> Result<()>,
    ) -> Result<()> {
        let n = x.n();
        let strip = (STAGING / row_bytes.max(1)).clamp(1, n.max(1));
        let what = || format!("{strip} rows of {width} values");
        let out = self.gpu.allocate(strip * width * size_of::<T>(), &what, ADVICE)?;
        for start in (0..n).step_by(strip) {
            let rows = start..n.min(start + strip);
            queue(&self.upload(x.slice(rows.clone()))?, start, out.pointer())?;
            take(rows, &out)?;
        }
        Ok(())
    }
}

/// The arguments that products and Gram matrices have in common.
fn tile_arguments([a, b]: Sides<'_>, tiling: &Tiling, diagonal: Option<i32>, places: Option<[u64; 2]>) -> Vec<Arg> {
    let [ax, axx, bx, bxx] = [&a.x, &a.xx, &b.x, &b.xx].map(Arg::from);
    let [a_pad, b_pad] = [a.n, b.n].map(|n| Arg::size(padded(n)));
    let [tiles, each] = [tiling.tiles, tiling.tiles_per_split].map(Arg::size);
    let common = [ax, axx, bx, bxx, a_pad, b_pad, tiles, each, Arg::I32(diagonal.unwrap_or(NO_DIAGONAL))];
    common.into_iter().chain(places.into_iter().flatten().map(Arg::U64)).collect()
}

pub(super) fn contiguous(x: &Array2<f64>) -> &[f64] {
    x.as_slice().expect("the array is row-major")
}

/// All points on a GPU, and the kernel matrices of batches of them.
pub(crate) struct BatchGram {
    kernel: CudaKernel,
    /// All points, transformed for the kernel: `[n, source width]`, f64 if their low parts count, else f32.
    raw: Buffer,
    /// The points of the batch in the layout of the tiles.
    points: DevicePoints,
    batch: usize,
}

impl BatchGram {
    /// For batches of `batch` of the points `x` `[n, d]`, on tensor cores if the GPU has them. Values are as accurate as f32;
    /// if `math` is not f32, they are the values at points rounded to 11 bits.
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, x: Rows<'_>, batch: usize, math: Math) -> Result<BatchGram> {
        let precision = if math == Math::F32 { Precision::F32 } else { Precision::Tf32 };
        let kernel = CudaKernel::new(gpu, kernel, x, None, precision);
        let (what, advice) = (|| "the points of the kernel".into(), "use fewer points or a smaller batch");
        let raw = if kernel.program.low() {
            gpu.upload(contiguous(&kernel.pack(x)), &what, advice)?
        } else {
            gpu.upload(kernel.program.pack::<f32>(x).as_slice().expect("the array is row-major"), &what, advice)?
        };
        Ok(BatchGram { points: kernel.allocate_points(batch)?, kernel, raw, batch })
    }

    /// `out ← κ(x_b,x_b')` `[batch, batch]` for the points with the indices (i32 `[batch]`) at the device address `rows`.
    pub fn gram(&self, rows: u64, out: &mut Tensor) {
        assert_eq!(out.len(), self.batch * self.batch, "the kernel matrix of a batch into {out}");
        self.kernel.prepare_points(self.kernel.program.low(), self.raw.pointer(), rows, &self.points);
        self.kernel.gram(Kind::MirroredGram, [&self.points; 2], Some(0), out.address(), self.batch);
    }
}
