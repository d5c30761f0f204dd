//! Dense factorizations by cuSOLVER.
//!
//! We use its 64-bit interface, because the workspace of an eigendecomposition has more than 2³¹ elements from n = 32 768
//! on. cuSOLVER is column-major, so the lower triangle of a row-major matrix is the upper triangle for it.

use super::gpu::{Gpu, lock};
use super::memory::{Buffer, Plain};
use crate::{Error, Result};
use cudarc::cusolver::{result, sys};
use std::ffi::c_void;

/// cuSOLVER on the compute stream and its parameters, created by the first factorization.
#[derive(Default)]
pub struct Solver(Option<(sys::cusolverDnHandle_t, sys::cusolverDnParams_t)>);

impl Solver {
    /// The handle and its parameters; the first call creates them.
    fn handle(&mut self, gpu: &Gpu) -> Result<(sys::cusolverDnHandle_t, sys::cusolverDnParams_t)> {
        gpu.bind();
        if let Some(created) = self.0 {
            return Ok(created);
        }
        let failed = |e: result::CusolverError| Error::Device(format!("cuSOLVER cannot be initialized: {:?}", e.0));
        let parameters = result::dn_create_params().map_err(failed)?;
        let handle = result::dn_create().map_err(failed)?;
        // SAFETY: the handle was just created; the stream lives as long as the device.
        unsafe { result::dn_set_stream(handle, gpu.stream.cu_stream().cast()) }.map_err(failed)?;
        Ok(*self.0.insert((handle, parameters)))
    }
}

/// `f32` or `f64`, the number types of cuSOLVER.
pub trait Number: Plain {
    /// Whether the type is `f64`.
    const DOUBLE: bool;

    /// Whether the number is neither infinite nor NaN.
    fn finite(self) -> bool;
}

macro_rules! number {
    ($($type:ty: $double:expr),*) => {
        $(impl Number for $type {
            const DOUBLE: bool = $double;

            fn finite(self) -> bool {
                self.is_finite()
            }
        })*
    };
}
number!(f32: false, f64: true);

fn kind<T: Number>() -> sys::cudaDataType {
    if T::DOUBLE { sys::cudaDataType::CUDA_R_64F } else { sys::cudaDataType::CUDA_R_32F }
}

/// The triangle of a symmetric matrix that cuSOLVER reads, when the matrix is seen as *column-major*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Below the diagonal.
    Lower,
    /// Above the diagonal.
    Upper,
}

impl Half {
    fn mode(self) -> sys::cublasFillMode_t {
        match self {
            Half::Lower => sys::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
            Half::Upper => sys::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
        }
    }
}

/// Advice when a dense matrix does not fit into device memory.
const ADVICE: &str =
    concat!("use a method that stores no matrix (Krylov, Nyström, conjugate gradients), or ", advice!(UseCpu));

/// Memory for `len` elements of a factorization.
pub fn allocate<T: Number>(gpu: &'static Gpu, len: usize, what: &dyn Fn() -> String) -> Result<Buffer> {
    gpu.allocate(size_of::<T>() * len, what, ADVICE)
}

fn address(buffer: &Buffer) -> *mut c_void {
    buffer.pointer() as *mut c_void
}

/// The error of a call that cuSOLVER rejected. An accepted call may still fail later; the stream reports that.
fn accepted(status: sys::cusolverStatus_t, what: &dyn Fn() -> String) -> Result<()> {
    status.result().map_err(|e| Error::Device(format!("cuSOLVER: {:?} in {}", e.0, what())))
}

/// Calls `run` with the address of a status word on the device, waits, and returns the status; 0 is success.
fn status(
    gpu: &'static Gpu,
    what: &dyn Fn() -> String,
    run: impl FnOnce(*mut i32) -> sys::cusolverStatus_t,
) -> Result<i32> {
    match gpu.status(|word| accepted(run(word.pointer() as *mut i32), what))? {
        status if status < 0 => {
            Err(Error::Device(format!("cuSOLVER rejected argument {} of {}", status.unsigned_abs(), what())))
        }
        status => Ok(status),
    }
}

/// The status of `$run` with the workspace that `$size` asks for; the arguments in braces come first in both.
macro_rules! factorize {
    ($gpu:expr, $what:expr, $size:ident, $run:ident, { $($argument:expr),* }) => {{
        let (mut on_device, mut on_host) = (0, 0);
        accepted(sys::$size($($argument),*, &mut on_device, &mut on_host), $what)?;
        let device = $gpu.allocate(on_device, &|| format!("the workspace of {}", $what()), ADVICE)?;
        let mut host = vec![0u64; on_host.div_ceil(8).max(1)];
        let host = host.as_mut_ptr().cast();
        status($gpu, $what, |info| sys::$run($($argument),*, address(&device), on_device, host, on_host, info))
    }};
}

impl Gpu {
    /// Eigendecomposition of the symmetric `a` `[n, n]`: ascending eigenvalues in `values` `[n]`, and the eigenvectors as the
    /// rows of `a`. Returns cuSOLVER's status; a positive one means that it did not converge.
    pub(crate) fn syevd(&'static self, n: usize, a: &mut Buffer, half: Half, values: &mut Buffer) -> Result<i32> {
        assert!(a.bytes() >= 8 * n * n && values.bytes() >= 8 * n, "syevd: the buffers are too small for n = {n}");
        let what = || format!("the eigendecomposition of a {n}×{n} matrix");
        let mut solver = lock(&self.solver);
        let (handle, parameters) = solver.handle(self)?;
        let (real, vectors) = (kind::<f64>(), sys::cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR);
        let (order, matrix, spectrum) = (n as i64, address(a), address(values));
        // SAFETY: the handle exists, and the sizes of the buffers were checked.
        unsafe {
            factorize!(self, &what, cusolverDnXsyevd_bufferSize, cusolverDnXsyevd, {
                handle, parameters, vectors, half.mode(), order, real, matrix, order, real, spectrum, real
            })
        }
    }

    /// Replaces the triangle `half` of `a` `[n, n]` by its Cholesky factor. Returns cuSOLVER's status; a positive one is the
    /// order of the first leading minor that is not positive definite.
    pub(crate) fn potrf<T: Number>(&'static self, n: usize, a: &mut Buffer, half: Half) -> Result<i32> {
        assert!(a.bytes() >= size_of::<T>() * n * n, "potrf: the buffer is too small for n = {n}");
        let what = || format!("the Cholesky factor of a {n}×{n} matrix");
        let mut solver = lock(&self.solver);
        let (handle, parameters) = solver.handle(self)?;
        let (real, order, matrix) = (kind::<T>(), n as i64, address(a));
        // SAFETY: as in `syevd`.
        unsafe {
            factorize!(self, &what, cusolverDnXpotrf_bufferSize, cusolverDnXpotrf, {
                handle, parameters, half.mode(), order, real, matrix, order, real
            })
        }
    }

    /// Replaces `B` `[n, m]` (column-major) by `A⁻¹B`, with the factor of `A` from [`Gpu::potrf`].
    pub(crate) fn potrs<T: Number>(
        &'static self,
        [n, m]: [usize; 2],
        factor: &Buffer,
        half: Half,
        b: &mut Buffer,
    ) -> Result<()> {
        let size = size_of::<T>();
        assert!(
            factor.bytes() >= size * n * n && b.bytes() >= size * n * m,
            "potrs: the buffers are too small for [{n}, {m}]"
        );
        if n * m == 0 {
            return Ok(());
        }
        let what = || format!("solving for {m} columns with a Cholesky factor of order {n}");
        let mut solver = lock(&self.solver);
        let (handle, parameters) = solver.handle(self)?;
        let (real, n, m) = (kind::<T>(), n as i64, m as i64);
        let (matrix, columns) = (address(factor), address(b));
        // SAFETY: as in `syevd`.
        let solve = |info| unsafe {
            sys::cusolverDnXpotrs(handle, parameters, half.mode(), n, m, real, matrix, n, real, columns, n, info)
        };
        status(self, &what, solve).map(drop)
    }
}
