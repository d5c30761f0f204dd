//! Dense linear algebra on `ndarray` arrays: faer on the CPU, cuSOLVER for large factorizations on a GPU. A [`Panel`] is a
//! set of vectors that stays on its device.

mod device;
mod panel;
mod part;
mod sharding;

pub use panel::Panel;
pub use part::Part;
pub use sharding::{Sharding, Shares};

use crate::compute::cuda::{Gpu, Number};
use crate::compute::{Device, ledger};
use crate::{Error, Result};
use device::DeviceFactor;
use faer::linalg::matmul::matmul as faer_matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_inverse::invert_lower_triangular;
use faer::prelude::{ReborrowMut, Solve};
use faer::traits::RealField;
use faer::{Accum, MatMut, MatRef, Par, Side};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, Zip, s};

/// A faer view of an array, without a copy.
pub fn view<'a, T>(a: ArrayView2<'a, T>) -> MatRef<'a, T> {
    let ((n, m), strides) = (a.dim(), a.strides());
    // SAFETY: pointer, shape and strides are those of a live view of lifetime 'a.
    unsafe { MatRef::from_raw_parts(a.as_ptr(), n, m, strides[0], strides[1]) }
}

/// A writable faer view of an array, without a copy.
pub fn view_mut<'a, T>(mut a: ArrayViewMut2<'a, T>) -> MatMut<'a, T> {
    let (n, m) = a.dim();
    let strides = [a.strides()[0], a.strides()[1]];
    // SAFETY: as in `view`, and the borrow is unique.
    unsafe { MatMut::from_raw_parts_mut(a.as_mut_ptr(), n, m, strides[0], strides[1]) }
}

/// `A B` `[n, m]` from `A` `[n, p]` and `B` `[p, m]`, on all threads.
pub fn matmul<T: RealField>(a: ArrayView2<T>, b: ArrayView2<T>) -> Array2<T> {
    let mut out = Array2::from_elem((a.nrows(), b.ncols()), T::zero_impl());
    matmul_into(out.view_mut(), Accum::Replace, a, b, T::one_impl(), faer::get_global_parallelism());
    out
}

/// `out ← α A B`, or `out ← out + α A B`.
pub fn matmul_into<T: RealField>(
    out: ArrayViewMut2<T>,
    accumulate: Accum,
    a: ArrayView2<T>,
    b: ArrayView2<T>,
    alpha: T,
    threads: Par,
) {
    faer_matmul(view_mut(out), accumulate, view(a), view(b), alpha, threads);
}

/// Eigenvalues in descending order, and eigenvectors as columns, of a symmetric matrix (only its lower triangle is read).
/// Large matrices are decomposed on `device`.
pub fn eigh(device: Device, a: ArrayView2<f64>) -> Result<(Vec<f64>, Array2<f64>)> {
    let n = a.nrows();
    if n == 0 {
        return Ok((vec![], Array2::zeros((0, 0))));
    }
    check_finite(a)?;
    let gpu = device::gpu_for(device, n)?;
    tell("eigendecompositions", n, gpu);
    if let Some(gpu) = gpu {
        return device::eigh(gpu, a);
    }
    let evd = view(a).self_adjoint_eigen(Side::Lower).map_err(|_| not_decomposed(n))?;
    let (u, s) = (evd.U(), evd.S().column_vector());
    let values = (0..n).rev().map(|i| s[i]).collect();
    Ok((values, Array2::from_shape_fn((n, n), |(i, j)| u[(i, n - 1 - j)])))
}

/// Eigenvalues, in descending order, of a symmetric matrix (only its lower triangle is read).
pub fn eigenvalues(a: ArrayView2<f64>) -> Result<Vec<f64>> {
    check_finite(a)?;
    let values = view(a).self_adjoint_eigenvalues(Side::Lower).map_err(|_| not_decomposed(a.nrows()))?;
    Ok(values.into_iter().rev().collect())
}

/// Refuses a matrix with an entry in its lower triangle that is not finite: a decomposition would iterate on it for long.
fn check_finite<T: Number>(a: ArrayView2<T>) -> Result<()> {
    let mut lower = (0..a.nrows()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    match lower.find(|&(i, j)| !a[[i, j]].finite()) {
        None => Ok(()),
        Some((i, j)) => Err(Error::Numerical(format!(
            "the {n}×{n} matrix to decompose has an entry that is not finite, in row {}, column {} (counted from 1); scale the data, or use \
             another parameter of the kernel",
            i + 1,
            j + 1,
            n = a.nrows()
        ))),
    }
}

/// Says where a matrix of order `n` was decomposed, if it is large enough for a GPU.
fn tell(work: &'static str, n: usize, gpu: Option<&'static Gpu>) {
    if n >= device::MIN_ORDER {
        ledger::ran(work, gpu.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.ordinal)), 1);
    }
}

fn not_decomposed(n: usize) -> Error {
    Error::Numerical(format!(
        "the eigendecomposition of a {n}×{n} matrix did not converge: an entry is too large; scale the data, or \
         use another parameter of the kernel"
    ))
}

/// A Cholesky factorization.
pub struct Cholesky<T: RealField + Number>(Factor<T>);

/// The factor, on the host or on a GPU.
enum Factor<T: RealField + Number> {
    Host(faer::linalg::solvers::Llt<T>),
    Device(DeviceFactor<T>),
}

impl<T: RealField + Number> Cholesky<T> {
    /// Factors a symmetric positive definite matrix (only its lower triangle is read). Large ones are factored on `device`.
    pub fn new(device: Device, a: ArrayView2<T>) -> Result<Self> {
        check_finite(a)?;
        let n = a.nrows();
        let gpu = device::gpu_for(device, n)?;
        tell("Cholesky factorisations", n, gpu);
        if let Some(gpu) = gpu {
            return DeviceFactor::new(gpu, a).map(|factor| Cholesky(Factor::Device(factor)));
        }
        view(a).llt(Side::Lower).map(|factor| Cholesky(Factor::Host(factor))).map_err(|e| {
            let faer::linalg::cholesky::llt::factor::LltError::NonPositivePivot { index } = e;
            not_positive_definite(n, index)
        })
    }

    /// `A⁻¹ B` `[n, m]`
    pub fn solve(&self, b: ArrayView2<T>) -> Result<Array2<T>> {
        match &self.0 {
            Factor::Host(factor) => {
                let x = factor.solve(view(b));
                Ok(Array2::from_shape_fn(b.dim(), |(i, j)| x[(i, j)]))
            }
            Factor::Device(factor) => factor.solve(b),
        }
    }

    /// `A⁻¹` `[n, n]`
    pub fn inverse(&self) -> Result<Array2<T>> {
        match &self.0 {
            Factor::Host(factor) => Ok(inverse_of_product(factor.L())),
            Factor::Device(factor) => factor.solve(Array2::eye(factor.lower()?.nrows()).view()),
        }
    }

    /// The factor `L` with `A = L Lᵀ`; entries above the diagonal are unspecified.
    pub fn lower(&self) -> Result<MatRef<'_, T>> {
        match &self.0 {
            Factor::Host(factor) => Ok(factor.L()),
            Factor::Device(factor) => factor.lower().map(view),
        }
    }
}

impl Cholesky<f64> {
    /// Factors a symmetric positive definite panel `[n, n]` on its own device, in its own memory.
    pub fn of_panel(a: Panel) -> Result<Self> {
        let n = a.nrows();
        ledger::ran("Cholesky factorisations", a.device(), 1);
        match a.device() {
            Device::Cpu => Cholesky::new(Device::Cpu, a.into_host()?.view()),
            Device::Cuda(_) => DeviceFactor::of_panel(n, a).map(|factor| Cholesky(Factor::Device(factor))),
        }
    }

    /// `A⁻¹ B` for `B` `[n, m]`, on the device of `B`.
    pub fn solve_panel(&self, b: &Panel) -> Result<Panel> {
        match &self.0 {
            Factor::Device(factor) if b.device() == factor.device() => factor.solve_panel(b),
            _ => b.through_host(|b| self.solve(b)),
        }
    }

    /// `L⁻¹ B`, or `L⁻ᵀ B` if `transposed`, for `B` `[n, m]` and `A = LLᵀ`, on the device of `B`.
    pub fn solve_triangle(&self, transposed: bool, b: &Panel) -> Result<Panel> {
        match &self.0 {
            Factor::Device(factor) if b.device() == factor.device() => factor.solve_triangle(transposed, b),
            _ => b.through_host(|b| {
                let (l, mut x) = (self.lower()?, b.to_owned());
                if transposed {
                    solve_lower_transposed(l, x.view_mut());
                } else {
                    solve_lower(l, x.view_mut());
                }
                Ok(x)
            }),
        }
    }
}

/// `(LLᵀ)⁻¹ = L⁻ᵀL⁻¹` `[n, n]` for `L` lower triangular.
fn inverse_of_product<T: RealField>(l: MatRef<T>) -> Array2<T> {
    let (n, threads) = (l.nrows(), faer::get_global_parallelism());
    let zeros = || Array2::from_elem((n, n), T::zero_impl());
    // By columns, as faer computes fastest: what is below the diagonal there is above it in the array.
    let (mut inverse_l, mut out) = (zeros(), zeros());
    invert_lower_triangular(view_mut(inverse_l.view_mut().reversed_axes()), l, threads);
    let inverse_l = view(inverse_l.t());
    let product = view_mut(out.view_mut().reversed_axes());
    triangular::matmul(
        product,
        BlockStructure::TriangularLower,
        Accum::Replace,
        inverse_l.transpose(),
        BlockStructure::TriangularUpper,
        inverse_l,
        BlockStructure::TriangularLower,
        T::one_impl(),
        threads,
    );
    mirror_upper(&mut out);
    out
}

/// Copies what is above the diagonal of a square array to below it, tile by tile.
fn mirror_upper<T: RealField>(a: &mut Array2<T>) {
    const SIDE: usize = 64;
    let n = a.nrows();
    for first in (0..n).step_by(SIDE) {
        let end = n.min(first + SIDE);
        let (above, mut below) = a.view_mut().split_at(Axis(0), end);
        for (tile, start) in below.axis_chunks_iter_mut(Axis(0), SIDE).zip((end..n).step_by(SIDE)) {
            let columns = start..start + tile.nrows();
            let source = above.slice(s![first..end, columns]);
            Zip::from(tile.slice_move(s![.., first..end])).and(source.t()).for_each(|to, from| *to = from.clone());
        }
        let mut own = above.slice_move(s![first..end, first..end]);
        for i in 0..own.nrows() {
            for j in 0..i {
                own[[i, j]] = own[[j, i]].clone();
            }
        }
    }
}

fn not_positive_definite(n: usize, pivot: usize) -> Error {
    Error::Numerical(format!("the {n}×{n} matrix is not positive definite (pivot {pivot}); add a larger ridge α"))
}

/// Solves `L X = B` in place, for `L` lower triangular `[n, n]` and `B` `[n, m]`.
pub fn solve_lower<T: RealField>(l: MatRef<T>, b: ArrayViewMut2<T>) {
    faer::linalg::triangular_solve::solve_lower_triangular_in_place(
        l,
        view_mut(b).rb_mut(),
        faer::get_global_parallelism(),
    );
}

/// Solves `Lᵀ X = B` in place, for `L` lower triangular `[n, n]` and `B` `[n, m]`.
pub fn solve_lower_transposed<T: RealField>(l: MatRef<T>, b: ArrayViewMut2<T>) {
    faer::linalg::triangular_solve::solve_upper_triangular_in_place(
        l.transpose(),
        view_mut(b).rb_mut(),
        faer::get_global_parallelism(),
    );
}

/// An orthonormal basis `[n, r]` of the span of the columns of `v` `[n, b]`, with `r < b` if they are linearly dependent:
/// [`Panel::orthonormal_basis`] on the CPU.
pub fn orthonormal_basis(v: Array2<f64>) -> Result<Array2<f64>> {
    Panel::from(v).orthonormal_basis()?.into_host()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Equal to 1e-12.
    pub(super) fn close(a: &Array2<f64>, b: &Array2<f64>) {
        assert_eq!(a.dim(), b.dim());
        assert!((a - b).iter().all(|d| d.abs() < 1e-12), "{a} is not {b}");
    }

    pub(super) fn random(n: usize, m: usize, seed: u64) -> Array2<f64> {
        Rng::new(seed).normals((n, m))
    }

    #[test]
    fn products_of_strided_views_agree_with_ndarray() {
        let (a, b) = (random(7, 5, 1), random(7, 4, 2));
        for b in [b.view(), b.slice(s![.., ..;2])] {
            assert!((matmul(a.t(), b) - a.t().dot(&b)).iter().all(|d| d.abs() < 1e-13));
        }
    }

    #[test]
    fn eigenpairs_rebuild_the_matrix() {
        let a = random(12, 12, 3);
        let a = &a + &a.t();
        let (values, u) = eigh(Device::Cpu, a.view()).unwrap();
        assert!(values.windows(2).all(|w| w[0] >= w[1]));
        let rebuilt = (&u * &ndarray::aview1(&values)).dot(&u.t());
        assert!((rebuilt - a).iter().all(|d| d.abs() < 1e-12));
    }

    /// At once, whichever entry it is; what is above the diagonal is not read.
    #[test]
    fn matrices_that_are_not_finite_are_refused_before_they_are_decomposed() {
        for bad in [f64::NAN, f64::INFINITY] {
            let mut a = Array2::<f64>::eye(1000);
            a[[3, 700]] = bad;
            assert!(Cholesky::new(Device::Cpu, a.view()).is_ok() && eigenvalues(a.view()).is_ok());
            a[[700, 3]] = bad;
            let refused = [
                eigh(Device::Cpu, a.view()).err(),
                eigenvalues(a.view()).err(),
                Cholesky::new(Device::Cpu, a.view()).err(),
            ];
            for error in refused {
                assert!(error.unwrap().to_string().contains("row 701, column 4"));
            }
        }
    }

    #[test]
    fn the_inverse_is_symmetric_and_inverts() {
        for n in [1, 9, 64, 65, 200] {
            let a = random(n, n, 8);
            let a = a.dot(&a.t()) + Array2::<f64>::eye(n) * n as f64;
            let inverse = Cholesky::new(Device::Cpu, a.view()).unwrap().inverse().unwrap();
            assert_eq!(inverse, inverse.t());
            assert!((a.dot(&inverse) - Array2::<f64>::eye(n)).iter().all(|d| d.abs() < 1e-12), "{n}");
        }
    }

    #[test]
    fn basis_of_dependent_columns_has_their_rank() {
        let a = random(50, 3, 4);
        let v = a.dot(&random(3, 8, 5));
        let q = orthonormal_basis(v.clone()).unwrap();
        assert_eq!(q.ncols(), 3);
        let gram = q.t().dot(&q) - Array2::<f64>::eye(3);
        assert!(gram.iter().all(|d| d.abs() < 1e-13));
        let outside = &v - &q.dot(&q.t().dot(&v));
        assert!(outside.iter().all(|d| d.abs() < 1e-10));
    }

    #[test]
    fn cholesky_solves_and_names_the_pivot() {
        let a = random(9, 9, 6);
        let a = a.dot(&a.t()) + Array2::<f64>::eye(9);
        let b = random(9, 2, 7);
        let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
        assert!((a.dot(&factor.solve(b.view()).unwrap()) - &b).iter().all(|d| d.abs() < 1e-11));
        let mut z = b.clone();
        solve_lower(factor.lower().unwrap(), z.view_mut());
        solve_lower_transposed(factor.lower().unwrap(), z.view_mut());
        assert!((z - factor.solve(b.view()).unwrap()).iter().all(|d| d.abs() < 1e-11));
        assert!(Cholesky::new(Device::Cpu, (-a).view()).is_err());
        // The error names the pivot counted from zero, for small and large matrices.
        for (n, pivot) in [(9, 4), (600, 100)] {
            let mut indefinite = Array2::<f64>::eye(n);
            indefinite[[pivot, pivot]] = -1.0;
            let error = Cholesky::new(Device::Cpu, indefinite.view()).err().expect("not positive definite").to_string();
            assert!(error.contains(&format!("(pivot {pivot})")), "{error}");
        }
    }
}
