//! Dense linear algebra on `ndarray` arrays: on the host, and on a GPU by cuSOLVER where a matrix is large. A [`Panel`] is a
//! set of vectors that stays on its device.

mod device;
mod panel;
mod sharding;

pub use crate::compute::Part;
pub use crate::dense::{eigenvalues, matmul, matmul_into, solve_lower, solve_lower_transposed, view, view_mut};
pub use panel::Panel;
pub use sharding::{Sharding, Shares};

use crate::Result;
use crate::compute::cuda::{Gpu, Number};
use crate::compute::{Device, ledger};
use crate::dense::{self, check_finite};
use device::DeviceFactor;
use faer::MatRef;
use faer::traits::RealField;
use ndarray::{Array2, ArrayView2};

/// Eigenvalues in descending order, and eigenvectors as columns, of a symmetric matrix (only its lower triangle is read).
/// Large matrices are decomposed on `device`.
pub fn eigh(device: Device, a: ArrayView2<f64>) -> Result<(Vec<f64>, Array2<f64>)> {
    let n = a.nrows();
    let gpu = device::gpu_for(device, n)?;
    tell("eigendecompositions", n, gpu);
    match gpu {
        Some(gpu) => check_finite(a).and_then(|()| device::eigh(gpu, a)),
        None => dense::eigh(a),
    }
}

/// Says where a matrix of order `n` was decomposed, if it is large enough for a GPU.
fn tell(work: &'static str, n: usize, gpu: Option<&'static Gpu>) {
    if n >= device::MIN_ORDER {
        ledger::ran(work, gpu.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.ordinal)), 1);
    }
}

/// A Cholesky factorization.
pub struct Cholesky<T: RealField + Number>(Factor<T>);

/// The factor, on the host or on a GPU.
enum Factor<T: RealField + Number> {
    Host(dense::Cholesky<T>),
    Device(DeviceFactor<T>),
}

impl<T: RealField + Number> Cholesky<T> {
    /// Factors a symmetric positive definite matrix (only its lower triangle is read). Large ones are factored on `device`.
    pub fn new(device: Device, a: ArrayView2<T>) -> Result<Self> {
        let gpu = device::gpu_for(device, a.nrows())?;
        tell("Cholesky factorisations", a.nrows(), gpu);
        let factor = match gpu {
            Some(gpu) => check_finite(a).and_then(|()| DeviceFactor::new(gpu, a)).map(Factor::Device),
            None => dense::Cholesky::new(a).map(Factor::Host),
        };
        factor.map(Cholesky)
    }

    /// `A⁻¹ B` `[n, m]`
    pub fn solve(&self, b: ArrayView2<T>) -> Result<Array2<T>> {
        match &self.0 {
            Factor::Host(factor) => Ok(factor.solve(b)),
            Factor::Device(factor) => factor.solve(b),
        }
    }

    /// `A⁻¹` `[n, n]`
    pub fn inverse(&self) -> Result<Array2<T>> {
        match &self.0 {
            Factor::Host(factor) => Ok(factor.inverse()),
            Factor::Device(factor) => factor.solve(Array2::eye(factor.lower()?.nrows()).view()),
        }
    }

    /// The factor `L` with `A = L Lᵀ`; entries above the diagonal are unspecified.
    pub fn lower(&self) -> Result<MatRef<'_, T>> {
        match &self.0 {
            Factor::Host(factor) => Ok(factor.lower()),
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

/// An orthonormal basis `[n, r]` of the span of the columns of `v` `[n, b]`, with `r < b` if they are linearly dependent:
/// [`Panel::orthonormal_basis`] on the CPU.
pub fn orthonormal_basis(v: Array2<f64>) -> Result<Array2<f64>> {
    Panel::from(v).orthonormal_basis()?.into_host()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::s;

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
