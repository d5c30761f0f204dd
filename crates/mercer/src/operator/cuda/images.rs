//! Kernels of images on a GPU. A pair of images takes as long as millions of pairs of points, so K is computed once, each
//! symmetric half once, and kept in device memory where it fits.

use super::image_source::{PairSource, combine_source};
use super::launch::{Card, Launch, NO_DIAGONAL};
use super::{ADVICE, Arithmetic, STAGING};
use crate::compute::Device;
use crate::compute::cuda::{Arg, Buffer, Gpu, Source};
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::linalg::Panel;
use crate::operator::tile::duplicates::{Names, keys};
use crate::operator::tile::points::Plan;
use crate::operator::{Precision, Real};
use crate::operator::{in_precision, ranges};
use crate::{Progress, Result, Silent};
use ndarray::{Array2, ArrayView2, s};
use std::ops::Range;
use std::sync::OnceLock;

/// Pairs of a launch: about a second, between two reports of progress.
const PAIRS: usize = 1 << 16;

/// A kernel whose base kernels all see images, on a GPU.
pub(super) struct ImageKernel {
    gpu: &'static Gpu,
    plan: Plan,
    precision: Precision,
    /// For each base kernel that differs from the others.
    pairs: Vec<(Source, PairSource)>,
    combine: Source,
}

/// Images in GPU memory: for each network `[n, record]`, and their names, `[n]`.
pub(super) struct DeviceImages {
    records: Vec<Buffer>,
    names: Buffer,
    /// `κ(x,x)` `[n]` in f64, where some entry is known.
    known: Option<Buffer>,
    n: usize,
}

/// Which pairs of a launch are computed, in the order of `images.cu`.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    All,
    /// `A = B`: those on and above the diagonal.
    Upper,
    /// `A = B`: those below the diagonal by the one above it, so that K is symmetric to the last bit.
    Mirrored,
    /// Each image with itself.
    Paired,
}

impl ImageKernel {
    /// For `kernel` with `reference` on one side.
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, reference: Rows<'_>, precision: Precision) -> ImageKernel {
        ImageKernel::of_plan(gpu, Plan::new(kernel, reference), precision)
    }

    fn of_plan(gpu: &'static Gpu, plan: Plan, precision: Precision) -> ImageKernel {
        let arithmetic = match precision {
            Precision::F64 => Arithmetic::F64,
            Precision::F32 => Arithmetic::F32,
            Precision::Tf32 => Arithmetic::Tf32,
        };
        let pair = |view: usize| {
            let images = plan.images[view].as_ref().expect("every base kernel sees images");
            let source = PairSource::new(images, arithmetic, Card::of(gpu)).expect("the kernel compiles");
            (Source::new(source.text.clone()), source)
        };
        let pairs = plan.statistics.iter().map(|&(view, _)| pair(view)).collect();
        let combine = Source::new(combine_source(&plan, arithmetic));
        ImageKernel { gpu, plan, precision, pairs, combine }
    }

    fn bytes(&self) -> usize {
        self.precision.bytes() as usize
    }

    /// Uploads the images `x` `[n, d]`, which have these names. Their `κ(x,x)` are computed if asked for.
    fn upload(&self, x: Rows<'_>, names: &Names, diagonal: bool) -> Result<DeviceImages> {
        let n = x.n();
        let what = || format!("{n} images with the variances of their layers");
        let mut records = vec![];
        for (_, source) in &self.pairs {
            records.push(self.gpu.allocate(n * source.record * self.bytes(), &what, ADVICE)?);
        }
        let widest = self.pairs.iter().map(|(_, source)| source.record).max().unwrap_or(1);
        for rows in ranges(n, (STAGING / (8 * widest)).max(1)) {
            in_precision!(self.precision, T => self.fill::<T>(x.slice(rows.clone()), rows.start, &mut records));
        }
        let name = |key: &u128| names.find(*key).map_or(0, |name| 1 + name as i32);
        let of_points: Vec<i32> = keys(x).iter().map(name).collect();
        let names = self.gpu.upload(&of_points, &what, ADVICE)?;
        let known = diagonal.then(|| self.gpu.upload(&self.diagonal(x)?, &what, ADVICE)).transpose()?;
        Ok(DeviceImages { records, names, known, n })
    }

    /// Writes the records of the images `x` from place `first` on.
    fn fill<T: Real>(&self, x: Rows<'_>, first: usize, records: &mut [Buffer]) {
        let points = self.plan.points::<f64>(x);
        for ((buffer, &(view, _)), (_, source)) in records.iter_mut().zip(&self.plan.statistics).zip(&self.pairs) {
            let (images, seen) = (self.plan.images[view].as_ref().expect("a network of images"), &points.views[view]);
            let record = |i: usize| images.record(seen.x.row(i).iter().copied(), seen.side(i..i + 1).profile);
            let all: Vec<T> = (0..points.n).flat_map(record).map(T::of).collect();
            buffer.write(first * source.record * size_of::<T>(), &all);
        }
    }

    /// `κ(x,x)` `[n]` in f64.
    pub fn diagonal(&self, x: Rows<'_>) -> Result<Vec<f64>> {
        let double = ImageKernel::of_plan(self.gpu, self.plan.clone(), Precision::F64);
        let mut all = vec![];
        for rows in ranges(x.n(), 4096) {
            let images = double.upload(x.slice(rows.clone()), &Names::default(), false)?;
            let values = double.allocate(1, images.n)?;
            double.pairs([&images, &images], 0..1, Which::Paired, &values, &Silent)?;
            double.combine([&images, &images], 0..1, Which::Paired, &values);
            let mut part = vec![0.0; images.n];
            values.read(0, &mut part)?;
            all.extend(part);
        }
        Ok(all)
    }

    /// Memory for `[n, m]` values of every base kernel.
    fn allocate(&self, n: usize, m: usize) -> Result<Buffer> {
        let what = || format!("{n}×{m} kernel values of images");
        self.gpu.allocate(self.pairs.len() * n * m * self.bytes(), &what, ADVICE)
    }

    /// Queues the values of the base kernels for `rows` of A with all of B: `[base kernels, rows, m]`.
    fn pairs(
        &self,
        [a, b]: [&DeviceImages; 2],
        rows: Range<usize>,
        which: Which,
        values: &Buffer,
        progress: &dyn Progress,
    ) -> Result<()> {
        let (n, m) = (rows.len(), b.n);
        for part in ranges(n, (PAIRS / m.max(1)).clamp(1, 65_535)) {
            for (index, (source, pair)) in self.pairs.iter().enumerate() {
                let (a, b) = (Arg::from(&a.records[index]), Arg::from(&b.records[index]));
                let out = Arg::U64(values.pointer() + ((index * n + part.start) * m * self.bytes()) as u64);
                let [first, columns] = [rows.start + part.start, m].map(Arg::size);
                let launch = pair.launch(part.len(), m);
                let what = || "the values between layers that pool".to_string();
                let room = launch.grid[0] as usize * pair.scratch;
                let scratch = (room > 0).then(|| self.gpu.allocate(room, &what, ADVICE)).transpose()?;
                let between = Arg::U64(scratch.as_ref().map_or(0, Buffer::pointer));
                let [rows, which] = [Arg::size(part.len()), Arg::I32(which as i32)];
                let arguments = [a, b, first, columns, which, out, rows, between];
                // SAFETY: the arguments are those of `image_pairs`; the records, `values` and the scratch were allocated for n, m and the grid.
                unsafe { launch.run(self.gpu, source, &arguments) };
            }
            self.gpu.synchronize()?;
            progress.step("rows of the kernel matrix", rows.start + part.end, a.n.max(rows.end), "");
        }
        Ok(())
    }

    /// Queues the kernel from the values of its base kernels, in place; entries that are known replace those computed.
    fn combine(&self, [a, b]: [&DeviceImages; 2], rows: Range<usize>, which: Which, values: &Buffer) {
        let (n, m) = (rows.len(), b.n);
        let mirrors = i32::from(which == Which::Upper);
        let diagonal = if which == Which::All { NO_DIAGONAL } else { -(rows.start as i32) };
        let from = |buffer: &Buffer, bytes: usize| Arg::U64(buffer.pointer() + (bytes * rows.start) as u64);
        let known = a.known.as_ref().map_or(Arg::U64(0), |known| from(known, 8));
        let names = [from(&a.names, 4), Arg::from(&b.names)];
        let sizes = [Arg::from(values), Arg::size(n), Arg::size(m), Arg::I32(diagonal), Arg::I32(mirrors), known];
        let launch = Launch::elementwise("combine", n * m);
        // SAFETY: the arguments are those of `combine`; `values`, the names and what is known were allocated for n and m.
        unsafe { launch.run(self.gpu, &self.combine, &[&sizes[..], &names].concat()) };
    }

    /// Queues `Y ← K V` for K `[n, m]` in `matrix`, V `[m, columns]` and Y `[n, columns]` in f64 at the addresses `v` and `y`.
    fn multiply(&self, matrix: &Buffer, [n, m]: [usize; 2], v: u64, columns: usize, y: u64) {
        let grid = [n.div_ceil(4) as u32, columns.div_ceil(8) as u32];
        let launch = Launch { name: "multiply", grid, block: 256, shared: 0 };
        let sizes = [n, m, columns].map(Arg::size);
        let arguments = [&[Arg::from(matrix), Arg::U64(v), Arg::U64(y)][..], &sizes].concat();
        // SAFETY: the arguments are those of `multiply`; the caller's memory has these extents.
        unsafe { launch.run(self.gpu, &self.combine, &arguments) };
    }

    /// `κ(A, B)` for some rows of A, `[rows, m]`.
    fn rows(
        &self,
        sides: [&DeviceImages; 2],
        rows: Range<usize>,
        which: Which,
        progress: &dyn Progress,
    ) -> Result<Buffer> {
        let values = self.allocate(rows.len(), sides[1].n)?;
        self.pairs(sides, rows.clone(), which, &values, progress)?;
        self.combine(sides, rows, which, &values);
        Ok(values)
    }

    /// Rows of a matrix of `m` columns that are computed at a time.
    fn strip(&self, m: usize) -> usize {
        (STAGING / (self.pairs.len() * m * self.bytes()).max(1)).max(1)
    }

    /// The rows of `κ(X, Z)`, or of `κ(X, X)` without a `z`, a strip at a time.
    pub fn gram_strips<T: Real>(
        &self,
        x: Rows<'_>,
        z: Option<Rows<'_>>,
        progress: &dyn Progress,
        put: &mut dyn FnMut(&Array2<T>) -> Result<()>,
    ) -> Result<()> {
        let mut give = |matrix: &Buffer, first: usize, rows: usize, m: usize| {
            let mut strip = Array2::from_elem((rows, m), T::default());
            matrix.read(first * m * size_of::<T>(), strip.as_slice_mut().expect("contiguous rows"))?;
            put(&strip)
        };
        let Some(z) = z else {
            let images = ImageMatrix::new(self, x)?;
            let whole = images.whole(self, progress)?;
            return ranges(x.n(), self.strip(x.n())).into_iter().try_for_each(|rows| match whole {
                Some(whole) => give(whole, rows.start, rows.len(), x.n()),
                None => give(&images.rows(self, rows.clone(), progress)?, 0, rows.len(), x.n()),
            });
        };
        self.cross_strips(x, z, progress, |matrix, rows| give(matrix, 0, rows.len(), z.n()))
    }

    /// Calls `take` with strips of the rows of `κ(X, Z)` in device memory.
    pub fn cross_strips(
        &self,
        x: Rows<'_>,
        z: Rows<'_>,
        progress: &dyn Progress,
        mut take: impl FnMut(&Buffer, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let names = Names::shared(&keys(x), &keys(z));
        let centres = self.upload(z, &names, false)?;
        for rows in ranges(x.n(), self.strip(z.n()).min(4096)) {
            let images = self.upload(x.slice(rows.clone()), &names, !names.is_empty())?;
            let matrix = self.rows([&images, &centres], 0..rows.len(), Which::All, &Silent)?;
            take(&matrix, rows.clone())?;
            progress.step("rows of the kernel matrix", rows.end, x.n(), "");
        }
        Ok(())
    }
}

/// `K = κ(X, X)` of images in device memory.
pub(super) struct ImageMatrix {
    images: DeviceImages,
    whole: OnceLock<Buffer>,
}

impl ImageMatrix {
    /// Of the images `x` `[n, d]`.
    pub fn new(kernel: &ImageKernel, x: Rows<'_>) -> Result<ImageMatrix> {
        let names = Names::repeated(&keys(x));
        Ok(ImageMatrix { images: kernel.upload(x, &names, true)?, whole: OnceLock::new() })
    }

    /// All of K, computed once; none where it would take more than half of the free memory.
    fn whole(&self, kernel: &ImageKernel, progress: &dyn Progress) -> Result<Option<&Buffer>> {
        let (n, sides) = (self.images.n, [&self.images; 2]);
        let needed = (kernel.pairs.len() * n * n * kernel.bytes()) as u64;
        if self.whole.get().is_none() && needed <= kernel.gpu.memory().0 / 2 {
            // Where two threads come at once, one matrix is dropped.
            let _ = self.whole.set(kernel.rows(sides, 0..n, Which::Upper, progress)?);
        }
        Ok(self.whole.get())
    }

    /// Bytes of device memory of the images and the matrix.
    pub fn bytes(&self, kernel: &ImageKernel) -> usize {
        let records: usize = self.images.records.iter().map(Buffer::bytes).sum();
        records + self.whole.get().map_or(0, Buffer::bytes).max(kernel.strip(self.images.n) * self.images.n)
    }

    /// Some rows of K, with the bits of the whole.
    fn rows(&self, kernel: &ImageKernel, rows: Range<usize>, progress: &dyn Progress) -> Result<Buffer> {
        kernel.rows([&self.images; 2], rows, Which::Mirrored, progress)
    }

    /// Queues `Y ← K V`, both f64 `[n, columns]` at the addresses `v` and `y`.
    pub fn product(&self, kernel: &ImageKernel, v: u64, columns: usize, y: u64) -> Result<()> {
        let n = self.images.n;
        if let Some(whole) = self.whole(kernel, &Silent)? {
            kernel.multiply(whole, [n, n], v, columns, y);
            return Ok(());
        }
        for rows in ranges(n, kernel.strip(n)) {
            let matrix = self.rows(kernel, rows.clone(), &Silent)?;
            kernel.multiply(&matrix, [rows.len(), n], v, columns, y + (8 * rows.start * columns) as u64);
        }
        Ok(())
    }
}

/// `κ(X, Z) A` `[n, k]`, one strip of the rows of X at a time.
pub(super) fn cross_apply(kernel: &ImageKernel, x: Rows<'_>, z: Rows<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
    let columns = a.ncols();
    let a = Panel::from_host(Device::Cuda(kernel.gpu.ordinal), a.to_owned())?;
    let from = a.buffer().expect("the panel is on this GPU").pointer();
    let mut all = Array2::zeros((x.n(), columns));
    kernel.cross_strips(x, z, &Silent, |matrix, rows| {
        let what = || format!("{} rows of {columns} values", rows.len());
        let out = kernel.gpu.allocate(8 * rows.len() * columns, &what, ADVICE)?;
        kernel.multiply(matrix, [rows.len(), z.n()], from, columns, out.pointer());
        out.read(0, all.slice_mut(s![rows, ..]).as_slice_mut().expect("contiguous rows"))
    })?;
    Ok(all)
}
