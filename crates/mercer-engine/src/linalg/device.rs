//! Factorisations on a GPU, with the answers and the errors of those on the processor.

use super::{not_decomposed, not_positive_definite};
use crate::Result;
use crate::compute::Device;
use crate::compute::cuda::solver::{Half, allocate};
use crate::compute::cuda::{Buffer, Gpu, Number, gpu, panel};
use faer::traits::RealField;
use ndarray::{Array2, ArrayView2, ShapeBuilder};
use std::borrow::Cow;
use std::sync::OnceLock;

/// Below this order the transfers, and cuSOLVER's hundreds of small launches, take longer than the processor takes.
const WORTH: usize = 512;

/// The GPU of `device`, where it is one and a factorisation of order `n` is worth the transfers.
pub(super) fn worth(device: Device, n: usize) -> Result<Option<&'static Gpu>> {
    match device {
        Device::Cuda(ordinal) if n >= WORTH => gpu(ordinal).map(Some),
        _ => Ok(None),
    }
}

/// The numbers of `a` in the order in which they lie in memory, and the half that is our lower one where these are read as
/// columns. Only a view that is neither rows nor columns is copied.
fn numbers<'a, T: Number>(a: ArrayView2<'a, T>) -> (Cow<'a, [T]>, Half) {
    if let Some(rows) = a.to_slice() {
        return (Cow::Borrowed(rows), Half::Upper);
    }
    match a.reversed_axes().to_slice() {
        Some(columns) => (Cow::Borrowed(columns), Half::Lower),
        None => (Cow::Owned(a.iter().copied().collect()), Half::Upper),
    }
}

/// The first row of our lower half that holds a number that is not finite.
fn first_broken_row<T: Number>(n: usize, numbers: &[T], half: Half) -> Option<usize> {
    let broken = |numbers: &[T]| numbers.iter().position(|v| !v.finite());
    match half {
        // Line i is row i.
        Half::Upper => (0..n).find(|&i| broken(&numbers[i * n..=i * n + i]).is_some()),
        // Line j is column j.
        Half::Lower => (0..n).filter_map(|j| Some(j + broken(&numbers[j * n + j..(j + 1) * n])?)).min(),
    }
}

/// As [`super::eigh`].
pub(super) fn eigh(gpu: &'static Gpu, a: ArrayView2<f64>) -> Result<(Vec<f64>, Array2<f64>)> {
    gpu.check()?;
    let n = a.nrows();
    let (numbers, half) = numbers(a);
    if first_broken_row(n, &numbers, half).is_some() {
        return Err(not_decomposed(n));
    }
    let what = || format!("the eigendecomposition of a {n}×{n} matrix");
    let mut rows = allocate::<f64>(gpu, n * n, &what)?;
    let mut spectrum = allocate::<f64>(gpu, n, &what)?;
    rows.write(0, &numbers);
    drop(numbers);
    if gpu.syevd(n, &mut rows, half, &mut spectrum)? != 0 {
        return Err(not_decomposed(n));
    }
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
    /// The same on the host, once it has been asked for.
    host: OnceLock<Array2<T>>,
}

impl<T: RealField + Number> DeviceFactor<T> {
    pub fn new(gpu: &'static Gpu, a: ArrayView2<T>) -> Result<Self> {
        gpu.check()?;
        let n = a.nrows();
        let (numbers, half) = numbers(a);
        if let Some(row) = first_broken_row(n, &numbers, half) {
            return Err(not_positive_definite(n, row));
        }
        let mut factor = allocate::<T>(gpu, n * n, &|| format!("the Cholesky factor of a {n}×{n} matrix"))?;
        factor.write(0, &numbers);
        match gpu.potrf::<T>(n, &mut factor, half)? {
            0 => Ok(DeviceFactor { n, factor, half, host: OnceLock::new() }),
            minor => Err(not_positive_definite(n, minor as usize - 1)),
        }
    }

    /// `A⁻¹ B` for `B` `[n, m]`.
    pub fn solve(&self, b: ArrayView2<T>) -> Result<Array2<T>> {
        let ((n, m), gpu) = (b.dim(), self.factor.gpu());
        assert_eq!(n, self.n, "a factor of order {} meets columns of {n}", self.n);
        gpu.check()?;
        // cuSOLVER wants each column in one piece: the rows of Bᵀ.
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
        let mut numbers = vec![T::default(); self.n * self.n];
        self.factor.read(0, &mut numbers)?;
        let rows = self.half == Half::Upper;
        let factor = Array2::from_shape_vec((self.n, self.n).set_f(!rows), numbers).expect("n² numbers");
        Ok(self.host.get_or_init(|| factor).view())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{array, s};

    #[test]
    fn numbers_are_taken_as_they_lie() {
        let a = array![[1.0, 2.0], [3.0, 4.0]];
        assert_eq!(numbers(a.view()), (Cow::Borrowed(&[1.0, 2.0, 3.0, 4.0][..]), Half::Upper));
        // The transpose lies as columns: [1, 3] and [2, 4] are its rows.
        let (columns, half) = numbers(a.t());
        assert!(matches!(columns, Cow::Borrowed([1.0, 2.0, 3.0, 4.0])) && half == Half::Lower);
        let wide = array![[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]];
        let (copied, half) = numbers(wide.slice(s![..;2, ..;2]));
        assert!(matches!(&copied, Cow::Owned(v) if v == &[1.0, 2.0, 3.0, 4.0]) && half == Half::Upper);
    }

    #[test]
    fn broken_numbers_are_found_in_the_lower_half_alone() {
        let mut a = Array2::<f64>::eye(4);
        a[[1, 3]] = f64::NAN;
        let row = |a: ArrayView2<f64>| {
            let (numbers, half) = numbers(a);
            first_broken_row(4, &numbers, half)
        };
        assert_eq!([row(a.view()), row(a.t())], [None, Some(3)]);
        a[[2, 0]] = f64::INFINITY;
        assert_eq!([row(a.view()), row(a.t())], [Some(2), Some(3)]);
    }
}
