use super::couple::Couple;
use super::cuda::CudaKernel;
use super::matrix_free::{cross_block, gpu_for};
use super::memory::zeros;
use super::points::Plan;
use super::tile::{deal, make_symmetric, upper_tiles};
use super::{Operator, Precision, Real, in_precision, typed};
use crate::Result;
use crate::compute::Device;
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::linalg::matmul_into;
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use rayon::prelude::*;
use std::any::Any;

/// K in memory, in f32 or f64. Example: [`OnPoints`](super::OnPoints).
pub struct DenseOperator<T> {
    k: Array2<T>,
}

impl<T: Real> DenseOperator<T> {
    /// From a symmetric matrix `[n, n]`.
    pub fn new(k: Array2<T>) -> Self {
        assert!(k.is_square(), "an operator is square, got {:?}", k.dim());
        DenseOperator { k }
    }

    /// The matrix `[n, n]`.
    pub fn matrix(&self) -> ArrayView2<'_, T> {
        self.k.view()
    }
}

impl<T: Real> Operator for DenseOperator<T> {
    fn n(&self) -> usize {
        self.k.nrows()
    }

    /// Row blocks on threads; within one, partial sums over column chunks are added in f64.
    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        const ROWS: usize = 256;
        const COLUMNS: usize = 2048;
        let rounded = v.mapv(T::of);
        let mut y = Array2::zeros(v.dim());
        let blocks: Vec<_> =
            y.axis_chunks_iter_mut(Axis(0), ROWS).zip(self.k.axis_chunks_iter(Axis(0), ROWS)).collect();
        blocks.into_par_iter().for_each(|(mut y, k)| {
            let mut product = Array2::from_elem(y.dim(), T::default());
            for (k, v) in k.axis_chunks_iter(Axis(1), COLUMNS).zip(rounded.axis_chunks_iter(Axis(0), COLUMNS)) {
                matmul_into(product.view_mut(), Accum::Replace, k, v, T::one_impl(), Par::Seq);
                y.zip_mut_with(&product, |y, p| *y += p.wide());
            }
        });
        Ok(y)
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        Ok(Array2::from_shape_fn((rows.len(), columns.len()), |(a, b)| self.k[[rows[a], columns[b]]].wide()))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.k.diag().iter().map(|d| d.wide()).collect())
    }

    fn roundoff(&self) -> f64 {
        T::PRECISION.roundoff(Device::Cpu)
    }

    fn to_dense(&self) -> Result<Array2<f64>> {
        Ok(self.k.mapv(|k| k.wide()))
    }

    fn is_stored(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("a stored matrix of {} rows", self.n())
    }
}

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
    fn computed(precision: Precision, kernel: &Kernel, x: Rows<'_>, device: Device) -> Result<Box<dyn Any>> {
        Ok(in_precision!(precision, T => Box::new(symmetric::<T>(kernel, x, device)?)))
    }
    computed(T::PRECISION, kernel, x.into(), device).map(typed)
}

fn symmetric<T: Real>(kernel: &Kernel, x: Rows<'_>, device: Device) -> Result<Array2<T>> {
    if let Some(k) = on_gpu(kernel, x, x, true, device)? {
        return Ok(k);
    }
    let plan = Plan::new(kernel, x);
    let (points, diagonal) = (plan.points::<T>(x), plan.diagonal(x));
    let couple = Couple::new(&plan, &points, &points, |rows| diagonal.select(Axis(0), rows));
    let n = points.n;
    let mut out: Vec<T> = zeros(n * n);
    let target = Target { start: out.as_mut_ptr(), n };
    deal(&upper_tiles(n, plan.side()), |workspace, (rows, columns)| {
        let mut tile = workspace.tile(&couple, rows.clone(), columns.clone());
        if rows == columns {
            make_symmetric(&mut tile, diagonal.slice(s![rows.clone()]));
        }
        // SAFETY: the tiles on and above the diagonal are disjoint blocks, and so are the mirror images of those above it.
        unsafe {
            target.write(rows.start, columns.start, tile.view());
            if rows != columns {
                target.write_transposed(columns.start, rows.start, tile.view());
            }
        }
    });
    Ok(Array2::from_shape_vec((n, n), out).expect("n² values"))
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
    if let Some(k) = on_gpu(kernel, x, z, false, device)? {
        return Ok(k);
    }
    let plan = Plan::new(kernel, z);
    let (px, pz) = (plan.points(x), plan.points(z));
    Ok(cross_block(&Couple::new(&plan, &px, &pz, |rows| plan.diagonal(x.select(rows).rows()))))
}

/// With fewer values than this the CPU is done before the transfers are.
const WORTH_A_TRIP: usize = 1 << 20;

/// `κ(X,Z)` by the GPU, where `device` is one and there are enough values.
fn on_gpu<T: Real>(
    kernel: &Kernel,
    x: Rows<'_>,
    z: Rows<'_>,
    symmetric: bool,
    device: Device,
) -> Result<Option<Array2<T>>> {
    match gpu_for(kernel, device)? {
        Some(gpu) if x.n() * z.n() >= WORTH_A_TRIP => {
            let others = (!symmetric).then_some(x);
            CudaKernel::new(gpu, kernel, z, others, T::PRECISION).gram_to_host(x, z, symmetric).map(Some)
        }
        _ => Ok(None),
    }
}

/// A row-major `[n, n]` matrix that several threads fill, each its own blocks.
struct Target<T> {
    start: *mut T,
    n: usize,
}

// SAFETY: threads write disjoint blocks only; see `gram`.
unsafe impl<T: Send> Sync for Target<T> {}

impl<T: Copy> Target<T> {
    unsafe fn write(&self, row: usize, column: usize, tile: ArrayView2<T>) {
        for (i, values) in tile.rows().into_iter().enumerate() {
            let values = values.to_slice().expect("a tile lies row by row");
            // SAFETY: by the caller, this row segment is this thread's own and inside the matrix.
            unsafe {
                let to = self.start.add((row + i) * self.n + column);
                std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
            }
        }
    }

    /// Writes the transpose, in strips of 16 columns so that each line of the tile is read once from cache.
    unsafe fn write_transposed(&self, row: usize, column: usize, tile: ArrayView2<T>) {
        let (height, width) = tile.dim();
        let values = tile.to_slice().expect("a tile lies row by row");
        for strip in (0..width).step_by(16) {
            for j in strip..width.min(strip + 16) {
                // SAFETY: as in `write`; j < width and i < height stay inside the tile.
                unsafe {
                    let to = self.start.add((row + j) * self.n + column);
                    for i in 0..height {
                        *to.add(i) = *values.get_unchecked(i * width + j);
                    }
                }
            }
        }
    }
}
