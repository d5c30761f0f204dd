//! Dense linear algebra of `ndarray` arrays on the host, by faer: products, eigenvalues, Cholesky factors, triangular solves.

use crate::{Error, Result};
use faer::linalg::cholesky::llt::factor::LltError;
use faer::linalg::matmul::matmul as faer_matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::solvers::Llt;
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
pub fn eigh(a: ArrayView2<f64>) -> Result<(Vec<f64>, Array2<f64>)> {
    let n = a.nrows();
    if n == 0 {
        return Ok((vec![], Array2::zeros((0, 0))));
    }
    check_finite(a)?;
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
pub(crate) fn check_finite<T: RealField>(a: ArrayView2<T>) -> Result<()> {
    let mut lower = (0..a.nrows()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    match lower.find(|&(i, j)| !T::is_finite_impl(&a[[i, j]])) {
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

pub(crate) fn not_decomposed(n: usize) -> Error {
    Error::Numerical(format!(
        "the eigendecomposition of a {n}×{n} matrix did not converge: an entry is too large; scale the data, or \
         use another parameter of the kernel"
    ))
}

/// A Cholesky factorization in memory of the host.
pub struct Cholesky<T: RealField>(Llt<T>);

impl<T: RealField> Cholesky<T> {
    /// Factors a symmetric positive definite matrix (only its lower triangle is read).
    pub fn new(a: ArrayView2<T>) -> Result<Self> {
        check_finite(a)?;
        view(a).llt(Side::Lower).map(Cholesky).map_err(|e| {
            let LltError::NonPositivePivot { index } = e;
            not_positive_definite(a.nrows(), index)
        })
    }

    /// `A⁻¹ B` `[n, m]`
    pub fn solve(&self, b: ArrayView2<T>) -> Array2<T> {
        let x = self.0.solve(view(b));
        Array2::from_shape_fn(b.dim(), |(i, j)| x[(i, j)].clone())
    }

    /// `A⁻¹` `[n, n]`
    pub fn inverse(&self) -> Array2<T> {
        inverse_of_product(self.lower())
    }

    /// The factor `L` with `A = L Lᵀ`; entries above the diagonal are unspecified.
    pub fn lower(&self) -> MatRef<'_, T> {
        self.0.L()
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

pub(crate) fn not_positive_definite(n: usize, pivot: usize) -> Error {
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
