//! Factorizations on a GPU, with the same results and errors as on the CPU.

use super::Panel;
use crate::compute::Device;
use crate::compute::cuda::solver::{Half, allocate};
use crate::compute::cuda::triangle::Inverses;
use crate::compute::cuda::{Buffer, Gpu, Number, gpu, panel};
use crate::dense::{not_decomposed, not_positive_definite};
use crate::{Result, fail_if};
use faer::traits::RealField;
use ndarray::{Array2, ArrayView2, ShapeBuilder};
use std::borrow::Cow;
use std::sync::OnceLock;

/// Smaller matrices are factored faster on the CPU, because of the transfers and of cuSOLVER's many small kernels.
pub(super) const MIN_ORDER: usize = 512;

/// The GPU of `device`, if it is one and matrices of order `n` are large enough for it.
pub(super) fn gpu_for(device: Device, n: usize) -> Result<Option<&'static Gpu>> {
    match device {
        Device::Cuda(ordinal) if n >= MIN_ORDER => gpu(ordinal).map(Some),
        _ => Ok(None),
    }
}

/// The elements of `a` in memory order, and the triangle that holds the lower triangle of `a` when they are read in
/// column-major order. The elements are copied only if `a` is contiguous in neither order.
fn elements<'a, T: Number>(a: ArrayView2<'a, T>) -> (Cow<'a, [T]>, Half) {
    if let Some(rows) = a.to_slice() {
        return (Cow::Borrowed(rows), Half::Upper);
    }
    match a.reversed_axes().to_slice() {
        Some(columns) => (Cow::Borrowed(columns), Half::Lower),
        None => (Cow::Owned(a.iter().copied().collect()), Half::Upper),
    }
}

/// The first row with a non-finite number in the lower triangle.
fn first_non_finite_row<T: Number>(n: usize, elements: &[T], half: Half) -> Option<usize> {
    let non_finite = |elements: &[T]| elements.iter().position(|v| !v.finite());
    match half {
        // Row-major: line i is row i.
        Half::Upper => (0..n).find(|&i| non_finite(&elements[i * n..=i * n + i]).is_some()),
        // Column-major: line j is column j.
        Half::Lower => (0..n).filter_map(|j| Some(j + non_finite(&elements[j * n + j..(j + 1) * n])?)).min(),
    }
}

/// [`super::eigh`] on a GPU.
pub(super) fn eigh(gpu: &'static Gpu, a: ArrayView2<f64>) -> Result<(Vec<f64>, Array2<f64>)> {
    gpu.check()?;
    let n = a.nrows();
    let (elements, half) = elements(a);
    fail_if!(first_non_finite_row(n, &elements, half).is_some(); not_decomposed(n));
    let what = || format!("the eigendecomposition of a {n}×{n} matrix");
    let mut rows = allocate::<f64>(gpu, n * n, &what)?;
    let mut spectrum = allocate::<f64>(gpu, n, &what)?;
    rows.write(0, &elements);
    drop(elements);
    fail_if!(gpu.syevd(n, &mut rows, half, &mut spectrum)? != 0; not_decomposed(n));
    let mut columns = allocate::<f64>(gpu, n * n, &what)?;
    panel::eigenvectors_as_columns(n, &rows, &mut columns);
    let (mut values, mut vectors) = (vec![0.0f64; n], Array2::zeros((n, n)));
    spectrum.read(0, &mut values)?;
    columns.read(0, vectors.as_slice_mut().expect("own array"))?;
    values.reverse();
    if values.iter().all(|v| v.is_finite()) { Ok((values, vectors)) } else { Err(not_decomposed(n)) }
}

/// A Cholesky factor in device memory.
pub(super) struct DeviceFactor<T> {
    n: usize,
    factor: Buffer,
    half: Half,
    /// A copy on the host, made by the first call of [`Self::lower`].
    host: OnceLock<Array2<T>>,
    /// Of the blocks on its diagonal, made by the first solve for few columns.
    inverses: OnceLock<Inverses>,
}

impl<T: RealField + Number> DeviceFactor<T> {
    pub fn new(gpu: &'static Gpu, a: ArrayView2<T>) -> Result<Self> {
        gpu.check()?;
        let n = a.nrows();
        let (elements, half) = elements(a);
        if let Some(row) = first_non_finite_row(n, &elements, half) {
            return Err(not_positive_definite(n, row));
        }
        let mut factor = allocate::<T>(gpu, n * n, &|| format!("the Cholesky factor of a {n}×{n} matrix"))?;
        factor.write(0, &elements);
        match gpu.potrf::<T>(n, &mut factor, half)? {
            0 => Ok(DeviceFactor { n, factor, half, host: OnceLock::new(), inverses: OnceLock::new() }),
            minor => Err(not_positive_definite(n, minor as usize - 1)),
        }
    }

    /// `A⁻¹ B` for `B` `[n, m]`.
    pub fn solve(&self, b: ArrayView2<T>) -> Result<Array2<T>> {
        let ((n, m), gpu) = (b.dim(), self.factor.gpu());
        assert_eq!(n, self.n, "a factor of order {} used with columns of length {n}", self.n);
        gpu.check()?;
        // cuSOLVER takes column-major matrices: the rows of Bᵀ.
        let mut columns: Vec<T> = b.t().iter().copied().collect();
        let mut x = allocate::<T>(gpu, n * m, &|| format!("{m} right-hand sides of {n} numbers"))?;
        x.write(0, &columns);
        gpu.potrs::<T>([n, m], &self.factor, self.half, &mut x)?;
        x.read(0, &mut columns)?;
        Ok(Array2::from_shape_fn((n, m), |(i, j)| columns[j * n + i]))
    }

    /// `L` `[n, n]` on the host; entries above its diagonal are unspecified.
    pub fn lower(&self) -> Result<ArrayView2<'_, T>> {
        if let Some(factor) = self.host.get() {
            return Ok(factor.view());
        }
        let mut elements = vec![T::default(); self.n * self.n];
        self.factor.read(0, &mut elements)?;
        let row_major = self.half == Half::Upper;
        let factor = Array2::from_shape_vec((self.n, self.n).set_f(!row_major), elements).expect("n² elements");
        Ok(self.host.get_or_init(|| factor).view())
    }
}

impl DeviceFactor<f64> {
    /// Of a symmetric panel `[n, n]`, in its memory. Its row-major lower triangle is the upper one of cuSOLVER.
    pub fn of_panel(n: usize, a: Panel) -> Result<Self> {
        // NaN fails the factorization; an infinite number would not always.
        fail_if!(!a.all_within(f64::MAX)?; not_positive_definite(n, 0));
        let mut factor = a.into_buffer().expect("the panel is on a GPU");
        let half = Half::Upper;
        match factor.gpu().potrf::<f64>(n, &mut factor, half)? {
            0 => Ok(DeviceFactor { n, factor, half, host: OnceLock::new(), inverses: OnceLock::new() }),
            minor => Err(not_positive_definite(n, minor as usize - 1)),
        }
    }

    /// The device of the factor.
    pub fn device(&self) -> Device {
        Device::Cuda(self.factor.gpu().ordinal)
    }

    /// `A⁻¹ B` for `B` `[n, m]` on the same device.
    pub fn solve_panel(&self, b: &Panel) -> Result<Panel> {
        let [n, m] = [b.nrows(), b.ncols()];
        assert_eq!(n, self.n, "a factor of order {} used with columns of length {n}", self.n);
        // cuSOLVER takes column-major matrices: the rows of Bᵀ.
        let mut columns = b.transposed()?.into_buffer().expect("the panel is on a GPU");
        self.factor.gpu().potrs::<f64>([n, m], &self.factor, self.half, &mut columns)?;
        Panel::from_buffer([m, n], columns).transposed()
    }

    /// `L⁻¹ B`, or `L⁻ᵀ B`, for `B` `[n, m]` on the same device; the factor must be that of a panel.
    pub fn solve_triangle(&self, transposed: bool, b: &Panel) -> Result<Panel> {
        let [n, m] = [b.nrows(), b.ncols()];
        assert!(
            n == self.n && self.half == Half::Upper,
            "a factor of order {} used with columns of length {n}",
            self.n
        );
        if Inverses::suit(n, m) {
            let mut left = b.try_clone()?.into_buffer().expect("the panel is on a GPU");
            let x = self.inverses()?.solve(&self.factor, transposed, &mut left, m)?;
            return Ok(Panel::from_buffer([n, m], x));
        }
        let mut columns = b.transposed()?.into_buffer().expect("the panel is on a GPU");
        self.factor.gpu().solve_triangular_f64([n, m], &self.factor, transposed, &mut columns);
        Panel::from_buffer([m, n], columns).transposed()
    }

    fn inverses(&self) -> Result<&Inverses> {
        if let Some(inverses) = self.inverses.get() {
            return Ok(inverses);
        }
        let inverses = Inverses::new(self.n, &self.factor)?;
        Ok(self.inverses.get_or_init(|| inverses))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{array, s};

    #[test]
    fn contiguous_views_are_not_copied() {
        let a = array![[1.0, 2.0], [3.0, 4.0]];
        assert_eq!(elements(a.view()), (Cow::Borrowed(&[1.0, 2.0, 3.0, 4.0][..]), Half::Upper));
        // The transpose is column-major: [1, 3] and [2, 4] are its rows.
        let (columns, half) = elements(a.t());
        assert!(matches!(columns, Cow::Borrowed([1.0, 2.0, 3.0, 4.0])) && half == Half::Lower);
        let wide = array![[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]];
        let (copied, half) = elements(wide.slice(s![..;2, ..;2]));
        assert!(matches!(&copied, Cow::Owned(v) if v == &[1.0, 2.0, 3.0, 4.0]) && half == Half::Upper);
    }

    #[test]
    fn non_finite_numbers_are_searched_in_the_lower_triangle_only() {
        let mut a = Array2::<f64>::eye(4);
        a[[1, 3]] = f64::NAN;
        let row = |a: ArrayView2<f64>| {
            let (elements, half) = elements(a);
            first_non_finite_row(4, &elements, half)
        };
        assert_eq!([row(a.view()), row(a.t())], [None, Some(3)]);
        a[[2, 0]] = f64::INFINITY;
        assert_eq!([row(a.view()), row(a.t())], [Some(2), Some(3)]);
    }
}
