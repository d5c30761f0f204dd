//! Kernel matrices: whole, or some rows at a time.

use super::cuda;
use super::kinds::matrix_free::{cross_block, cross_rows, gpu_for};
use super::memory::zeros;
use super::tile::point_pair::PointPair;
use super::tile::points::{Plan, Prepared};
use super::tile::workspace::{Workspace, area, for_each_task, make_symmetric, ranges, upper_tiles};
use super::{Precision, Real, in_precision, typed};
use crate::compute::Device;
use crate::compute::cuda::Gpu;
use crate::compute::ledger::ran;
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::{FitContext, Progress, Result, Silent};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, s};
use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

/// The kernel matrix `κ(X,X)` `[n, n]` of points `[n, d]`; each symmetric half is computed once.
///
/// Kernels of a distance are off by some tens of units of roundoff of κ(x,x), however far apart the points are (more where all
/// terms of a long sum are alike), and equal points have the value of the diagonal, bit for bit.
///
/// ```
/// use mercer::{Device, kernel::Kernel, operator::{gram, gram_cross}};
/// let (kernel, x) = (Kernel::parse("rbf(1)")?, ndarray::array![[0.0], [2.0]]);
/// let k = gram::<f64>(&kernel, x.view(), Device::Cpu)?;
/// assert_eq!(gram_cross::<f64>(&kernel, x.view(), x.view(), Device::Cpu)?, k);
/// assert_eq!(k[[0, 0]], 1.0);
/// assert!((k[[0, 1]] - (-2.0f64).exp()).abs() < 1e-15 && k[[0, 1]] == k[[1, 0]]);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn gram<'x, T: Real>(kernel: &Kernel, x: impl Into<Rows<'x>>, device: Device) -> Result<Array2<T>> {
    gram_reported(kernel, x.into(), device, &Silent)
}

/// [`gram`], with progress by tiles.
pub(crate) fn gram_reported<T: Real>(
    kernel: &Kernel,
    x: Rows<'_>,
    device: Device,
    progress: &dyn Progress,
) -> Result<Array2<T>> {
    fn computed(
        precision: Precision,
        kernel: &Kernel,
        x: Rows<'_>,
        device: Device,
        progress: &dyn Progress,
    ) -> Result<Box<dyn Any>> {
        Ok(in_precision!(precision, T => Box::new(symmetric::<T>(kernel, x, device, progress)?)))
    }
    computed(T::PRECISION, kernel, x, device, progress).map(typed)
}

fn symmetric<T: Real>(kernel: &Kernel, x: Rows<'_>, device: Device, progress: &dyn Progress) -> Result<Array2<T>> {
    if let Some(k) = on_gpu(kernel, x, None, device, progress)? {
        return Ok(k);
    }
    let plan = Plan::new(kernel, x);
    let (points, diagonal) = (plan.points::<T>(x), plan.diagonal(x));
    Ok(Symmetric::new(&plan, &points, &diagonal, false).band(0..points.n, progress))
}

/// `κ(X,X)`, some rows at a time.
struct Symmetric<'a, T> {
    point_pair: PointPair<'a, T>,
    diagonal: &'a Array1<f64>,
    /// The tiles whose mirror images are in rows to come, by their first row and column; none where each is computed twice.
    kept: Option<Mutex<Tiles<T>>>,
}

type Tiles<T> = HashMap<[usize; 2], Vec<T>>;

impl<'a, T: Real> Symmetric<'a, T> {
    fn new(plan: &'a Plan, points: &'a Prepared<T>, diagonal: &'a Array1<f64>, keeps: bool) -> Self {
        let point_pair = PointPair::new(plan, points, points, |rows| diagonal.select(Axis(0), rows));
        Symmetric { point_pair, diagonal, kept: keeps.then(Mutex::default) }
    }

    /// The rows `band` of the matrix, `[h, n]`; they begin and end where tiles do, and bands follow each other from the first
    /// row on.
    fn band(&self, band: Range<usize>, progress: &dyn Progress) -> Array2<T> {
        let n = self.point_pair.a.n;
        let mut out: Vec<T> = zeros(band.len() * n);
        let target = Target { start: out.as_mut_ptr(), first: band.start, n };
        let inside = |tile: &Range<usize>| band.contains(&tile.start);
        let mut tiles = upper_tiles(n, self.point_pair.plan.side());
        tiles.retain(|(rows, columns)| inside(rows) || inside(columns));
        // The largest first, so that all threads end at the same time.
        tiles.sort_by_key(|tile| std::cmp::Reverse(area(tile)));
        let done = Mutex::new(0);
        for_each_task(&tiles, |workspace, (rows, columns)| {
            let kept = self
                .kept
                .as_ref()
                .filter(|_| !inside(rows))
                .and_then(|kept| kept.lock().expect("no panic").remove(&[rows.start, columns.start]));
            let (mirrored, computed);
            let tile = match kept {
                Some(tile) => {
                    mirrored = Array2::from_shape_vec((rows.len(), columns.len()), tile).expect("a whole tile");
                    mirrored.view()
                }
                None => {
                    computed = self.tile(workspace, rows, columns);
                    computed.view()
                }
            };
            // SAFETY: the tiles on and above the diagonal are disjoint blocks, and so are the mirror images of those above it;
            // only those inside the band are written.
            unsafe {
                if inside(rows) {
                    target.write(rows.start, columns.start, tile);
                }
                if rows != columns && inside(columns) {
                    target.write_transposed(columns.start, rows.start, tile);
                }
            }
            if let Some(kept) = self.kept.as_ref().filter(|_| inside(rows) && !inside(columns)) {
                let tile = tile.iter().copied().collect();
                kept.lock().expect("no panic").insert([rows.start, columns.start], tile);
            }
            let mut done = done.lock().expect("no panic");
            *done += 1;
            progress.step("kernel matrix", *done, tiles.len(), "");
        });
        Array2::from_shape_vec((band.len(), n), out).expect("n values a row")
    }

    /// A tile on or above the diagonal.
    fn tile<'w>(
        &self,
        workspace: &'w mut Workspace<T>,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> ArrayViewMut2<'w, T> {
        let mut tile = workspace.tile(&self.point_pair, rows.clone(), columns.clone());
        if rows == columns {
            make_symmetric(&mut tile, self.diagonal.slice(s![rows.clone()]));
        }
        tile
    }
}

/// The kernel matrix `κ(X,Z)` `[n, m]` of points `[n, d]` and `[m, d]`. Example: [`gram`].
pub fn gram_cross<'x, 'z, T: Real>(
    kernel: &Kernel,
    x: impl Into<Rows<'x>>,
    z: impl Into<Rows<'z>>,
    device: Device,
) -> Result<Array2<T>> {
    fn computed(precision: Precision, kernel: &Kernel, [x, z]: [Rows<'_>; 2], device: Device) -> Result<Box<dyn Any>> {
        Ok(in_precision!(precision, T => Box::new(between::<T>(kernel, x, z, device)?)))
    }
    computed(T::PRECISION, kernel, [x.into(), z.into()], device).map(typed)
}

fn between<T: Real>(kernel: &Kernel, x: Rows<'_>, z: Rows<'_>, device: Device) -> Result<Array2<T>> {
    if let Some(k) = on_gpu(kernel, x, Some(z), device, &Silent)? {
        return Ok(k);
    }
    let plan = Plan::new(kernel, z);
    let (px, pz) = (plan.points(x), plan.points(z));
    Ok(cross_block(&PointPair::new(&plan, &px, &pz, |rows| plan.diagonal(x.select(rows).rows()))))
}

/// Calls `put` with the rows of the kernel matrix `κ(X,X)`, or `κ(X,Z)` where there is a `z`, in their order and some at a time,
/// `[h, m]`: the matrix may be larger than memory. The values are those of [`gram`] and [`gram_cross`], bit for bit. Rows are
/// computed while `put` takes those before them. Each symmetric half is computed once where the context's budget allows for a
/// quarter of the matrix to be kept, else twice.
///
/// ```
/// use mercer::{Device, FitContext, kernel::Kernel, operator::{gram, gram_rows}};
/// let (kernel, x) = (Kernel::parse("rbf(1)")?, ndarray::Array2::from_shape_fn((500, 1), |(i, _)| i as f64 / 100.0));
/// let mut rows = vec![];
/// gram_rows::<f64>(&kernel, x.view().into(), None, &FitContext::default(), |some| Ok(rows.extend(some.iter().copied())))?;
/// assert!(rows.iter().eq(&gram::<f64>(&kernel, x.view(), Device::Cpu)?));
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn gram_rows<T: Real>(
    kernel: &Kernel,
    x: Rows<'_>,
    z: Option<Rows<'_>>,
    context: &FitContext<'_>,
    mut put: impl FnMut(ArrayView2<T>) -> Result<()>,
) -> Result<()> {
    // Not generic, for the reason that `typed` gives.
    fn computed(
        precision: Precision,
        kernel: &Kernel,
        (x, z): (Rows<'_>, Option<Rows<'_>>),
        context: &FitContext<'_>,
        put: &mut dyn FnMut(&dyn Any) -> Result<()>,
    ) -> Result<()> {
        in_precision!(precision, T => bands::<T>(kernel, x, z, context, &mut |band| put(band)))
    }
    computed(T::PRECISION, kernel, (x, z), context, &mut |band| {
        put(band.downcast_ref::<Array2<T>>().expect("a matrix in the precision of T").view())
    })
}

/// Takes rows of a matrix.
type Put<'p, T> = &'p mut dyn FnMut(&Array2<T>) -> Result<()>;

fn bands<T: Real>(
    kernel: &Kernel,
    x: Rows<'_>,
    z: Option<Rows<'_>>,
    context: &FitContext<'_>,
    put: Put<'_, T>,
) -> Result<()> {
    let (n, columns) = (x.n(), z.unwrap_or(x));
    let mut done = 0;
    let mut put = |band: &Array2<T>| {
        put(band)?;
        done += band.nrows();
        context.progress.step("rows of the matrix", done, n, "");
        Ok(())
    };
    if let Some(gpu) = gpu_if_worth_it(kernel, n * columns.n(), context.device)? {
        return cuda::gram_strips(gpu, kernel, (x, z), &Silent, &mut put);
    }
    let plan = Plan::new(kernel, columns);
    let row_bytes = (columns.n() * size_of::<T>()) as u64;
    let bands = ranges(n, band_height(plan.side(), row_bytes, n, context)?);
    let points = plan.points::<T>(x);
    match z {
        None => {
            // Most are kept after half of the rows: n²/4 values.
            let keeps = context.budget.allows(n as u64 * row_bytes / 4 + 3 * bands[0].len() as u64 * row_bytes);
            let diagonal = plan.diagonal(x);
            let symmetric = Symmetric::new(&plan, &points, &diagonal, keeps);
            overlapped(bands, |band| symmetric.band(band, &Silent), &mut put)
        }
        Some(z) => {
            let others = plan.points(z);
            let point_pair = PointPair::new(&plan, &points, &others, |rows| plan.diagonal(x.select(rows).rows()));
            overlapped(bands, |band| cross_rows(&point_pair, band), &mut put)
        }
    }
}

/// The rows of a band: whole tiles of about 64 MiB, or less where the budget is small.
fn band_height(side: usize, row_bytes: u64, n: usize, context: &FitContext<'_>) -> Result<usize> {
    const BYTES: u64 = 64 << 20;
    // Two bands are in memory at a time: one that is computed and one that is written.
    let least = side.min(n) as u64 * row_bytes;
    let what = format!("the kernel matrix, {} rows at a time,", side.min(n));
    context.budget.require(what, 2 * least, concat!("use fewer columns or ", crate::advice!(MoreMemory)))?;
    let rows = BYTES.min(context.budget.bytes() / 4) / row_bytes.max(1);
    Ok((rows as usize / side).max(1) * side)
}

/// Fills bands one after the other on a thread of its own, while `put` takes those before them.
fn overlapped<T: Send>(
    bands: Vec<Range<usize>>,
    fill: impl Fn(Range<usize>) -> Array2<T> + Sync,
    put: Put<'_, T>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel(0);
        let fill = &fill;
        // Once `put` fails, nothing is received any more.
        scope.spawn(move || bands.into_iter().all(|band| send.send(fill(band)).is_ok()));
        receive.into_iter().try_for_each(|band| put(&band))
    })
}

/// With fewer values than this the CPU is done before the transfers are.
const WORTH_A_TRIP: usize = 1 << 20;
/// The same for kernels of images, whose values take a thousand times as long.
const IMAGES_WORTH_A_TRIP: usize = 64;

/// `κ(X,Z)`, or `κ(X,X)` without a `z`, by the GPU, where `device` is one and there are enough values.
pub(super) fn on_gpu<T: Real>(
    kernel: &Kernel,
    x: Rows<'_>,
    z: Option<Rows<'_>>,
    device: Device,
    progress: &dyn Progress,
) -> Result<Option<Array2<T>>> {
    let (n, m) = (x.n(), z.unwrap_or(x).n());
    let Some(gpu) = gpu_if_worth_it(kernel, n * m, device)? else { return Ok(None) };
    let mut all = Array2::from_shape_vec((n, m), zeros(n * m)).expect("n·m values");
    let mut done = 0;
    cuda::gram_strips(gpu, kernel, (x, z), progress, &mut |strip| {
        all.slice_mut(s![done..done + strip.nrows(), ..]).assign(strip);
        done += strip.nrows();
        Ok(())
    })?;
    Ok(Some(all))
}

/// The GPU that computes so many values, where `device` is one and they are enough.
fn gpu_if_worth_it(kernel: &Kernel, values: usize, device: Device) -> Result<Option<&'static Gpu>> {
    let least = if kernel.sees_images() { IMAGES_WORTH_A_TRIP } else { WORTH_A_TRIP };
    let gpu = gpu_for(kernel, device)?.filter(|_| values >= least);
    ran("kernel matrices", gpu.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.ordinal)), 1);
    Ok(gpu)
}

/// Rows of a row-major `[n, n]` matrix, from `first` on, that several threads fill, each its own blocks.
struct Target<T> {
    start: *mut T,
    first: usize,
    n: usize,
}

// SAFETY: threads write disjoint blocks only; see `Symmetric::band`.
unsafe impl<T: Send> Sync for Target<T> {}

impl<T: Copy> Target<T> {
    /// Writes a tile whose first value belongs at `row` and `column`.
    ///
    /// # Safety
    /// The tile lies inside the matrix, from row `first` on, and no other thread touches the block.
    unsafe fn write(&self, row: usize, column: usize, tile: ArrayView2<T>) {
        for (i, values) in tile.rows().into_iter().enumerate() {
            let values = values.to_slice().expect("a tile lies row by row");
            // SAFETY: by the caller, this row segment is this thread's own and inside the matrix.
            unsafe {
                let to = self.start.add((row - self.first + i) * self.n + column);
                std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
            }
        }
    }

    /// Writes the transpose, in strips of 16 columns so that each line of the tile is read once from cache.
    ///
    /// # Safety
    /// As of [`Target::write`], for the transpose of the tile.
    unsafe fn write_transposed(&self, row: usize, column: usize, tile: ArrayView2<T>) {
        let (height, width) = tile.dim();
        let values = tile.to_slice().expect("a tile lies row by row");
        for strip in (0..width).step_by(16) {
            for j in strip..width.min(strip + 16) {
                // SAFETY: as in `write`; j < width and i < height stay inside the tile.
                unsafe {
                    let to = self.start.add((row - self.first + j) * self.n + column);
                    for i in 0..height {
                        *to.add(i) = *values.get_unchecked(i * width + j);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Budget;
    use crate::rng::Rng;

    fn points(n: usize, seed: u64) -> Array2<f64> {
        let mut x = Rng::new(seed).normals((n, 3));
        // Equal points, whose values are those of the diagonal.
        let first = x.row(0).to_owned();
        x.row_mut(n - 1).assign(&first);
        x
    }

    /// All rows, and how many bands they came in.
    fn streamed<T: Real>(kernel: &Kernel, x: &Array2<f64>, z: Option<&Array2<f64>>, budget: u64) -> (Vec<T>, usize) {
        let context = FitContext { budget: Budget::of(budget), ..FitContext::default() };
        let (mut all, mut bands) = (vec![], 0);
        gram_rows::<T>(kernel, x.view().into(), z.map(|z| z.view().into()), &context, |rows| {
            all.extend(rows.iter().copied());
            bands += 1;
            Ok(())
        })
        .unwrap();
        (all, bands)
    }

    /// Budgets for which tiles are computed twice, kept, and all in one band.
    const TWICE: u64 = 8 << 20;
    const KEPT: u64 = 13 << 20;
    const WHOLE: u64 = 1 << 30;

    #[test]
    fn rows_have_the_bits_of_the_whole_matrix() {
        let (x, z) = (points(1000, 1), points(700, 2));
        for kernel in ["rbf(1)", "0.5*matern52(2) + linear", "laplacian(1)", "ntk(depth=2, act=relu)"] {
            let kernel = Kernel::parse(kernel).unwrap();
            let whole = gram::<f64>(&kernel, x.view(), Device::Cpu).unwrap();
            let single = gram::<f32>(&kernel, x.view(), Device::Cpu).unwrap();
            let cross = gram_cross::<f64>(&kernel, x.view(), z.view(), Device::Cpu).unwrap();
            for (budget, expected) in [(TWICE, 3), (KEPT, 3), (WHOLE, 1)] {
                let (rows, bands) = streamed::<f64>(&kernel, &x, None, budget);
                assert!(rows.iter().eq(&whole) && bands == expected, "{kernel} at {budget}: {bands} bands");
                assert!(streamed::<f32>(&kernel, &x, None, budget).0.iter().eq(&single), "{kernel} at {budget}");
                assert!(streamed::<f64>(&kernel, &x, Some(&z), budget).0.iter().eq(&cross), "{kernel} at {budget}");
            }
        }
    }

    #[test]
    fn tiles_are_kept_until_their_mirror_images_were_written() {
        let x = points(1000, 1);
        let plan = Plan::new(&Kernel::parse("rbf(1)").unwrap(), x.view().into());
        let (points, diagonal) = (plan.points::<f64>(x.view().into()), plan.diagonal(x.view().into()));
        let symmetric = Symmetric::new(&plan, &points, &diagonal, true);
        let count = || symmetric.kept.as_ref().unwrap().lock().unwrap().len();
        let counts: Vec<usize> =
            ranges(1000, plan.side()).into_iter().map(|band| (symmetric.band(band, &Silent), count()).1).collect();
        assert_eq!(counts, [2, 2, 0]);
    }

    #[test]
    fn an_error_of_the_caller_ends_the_work_and_a_budget_for_less_than_two_bands_is_refused() {
        let (kernel, x) = (Kernel::parse("rbf(1)").unwrap(), points(1000, 1));
        let mut calls = 0;
        let context = FitContext { budget: Budget::of(TWICE), ..FitContext::default() };
        let full = gram_rows::<f64>(&kernel, x.view().into(), None, &context, |_| {
            calls += 1;
            Err(crate::Error::input("the disk is full"))
        });
        assert!(full.unwrap_err().to_string().contains("disk is full") && calls == 1);
        let context = FitContext { budget: Budget::of(1 << 20), ..FitContext::default() };
        let refused = gram_rows::<f64>(&kernel, x.view().into(), None, &context, |_| Ok(())).unwrap_err().to_string();
        assert!(refused.contains("the kernel matrix, 384 rows at a time, needs 5.9 MiB"), "{refused}");
    }
}
