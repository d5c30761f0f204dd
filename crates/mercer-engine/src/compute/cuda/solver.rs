//! Dense factorizations by cuSOLVER.
//!
//! We use its 64-bit interface, because the workspace of an eigendecomposition has more than 2³¹ elements from n = 32 768
//! on. cuSOLVER is column-major, so the lower triangle of a row-major matrix is the upper triangle for it.

use super::gpu::{Gpu, lock};
use super::memory::Buffer;
use crate::{Error, Result};
use cudarc::cusolver::{result, sys};
use std::ffi::c_void;

/// cuSOLVER on the compute stream, created by the first factorization.
pub struct Solver {
    handle: sys::cusolverDnHandle_t,
    parameters: sys::cusolverDnParams_t,
}

impl Solver {
    /// Without a handle; the first use opens one.
    pub(super) fn new() -> Solver {
        Solver { handle: std::ptr::null_mut(), parameters: std::ptr::null_mut() }
    }

    /// The handle and its parameters; the first call creates them.
    fn handle(&mut self, gpu: &Gpu) -> Result<(sys::cusolverDnHandle_t, sys::cusolverDnParams_t)> {
        gpu.bind();
        if self.handle.is_null() {
            let failed = |e: result::CusolverError| Error::Device(format!("cuSOLVER cannot be initialized: {:?}", e.0));
            let parameters = result::dn_create_params().map_err(failed)?;
            let handle = result::dn_create().map_err(failed)?;
            // SAFETY: the handle was just created; the stream lives as long as the device.
            unsafe { result::dn_set_stream(handle, gpu.stream.cu_stream().cast()) }.map_err(failed)?;
            (self.handle, self.parameters) = (handle, parameters);
        }
        Ok((self.handle, self.parameters))
    }
}

/// `f32` or `f64`, the number types of cuSOLVER.
pub trait Number: Copy + Default + 'static {
    /// Whether the type is `f64`.
    const DOUBLE: bool;

    /// Whether the number is neither infinite nor NaN.
    fn finite(self) -> bool;
}

macro_rules! number {
    ($type:ty, $double:expr) => {
        impl Number for $type {
            const DOUBLE: bool = $double;

            fn finite(self) -> bool {
                self.is_finite()
            }
        }
    };
}
number!(f32, false);
number!(f64, true);

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
const ADVICE: &str = "use a method that stores no matrix (Krylov, Nyström, conjugate gradients), or use the CPU";

/// Memory for `len` elements of a factorization.
pub fn allocate<T: Number>(gpu: &'static Gpu, len: usize, what: &dyn Fn() -> String) -> Result<Buffer> {
    gpu.allocate(size_of::<T>() * len, what, ADVICE)
}

/// Workspace on the device and on the host.
struct Workspace {
    device: Buffer,
    host: Vec<u64>,
    /// The status that cuSOLVER writes, `[1]`.
    info: Buffer,
}

impl Workspace {
    fn new(gpu: &'static Gpu, device_bytes: usize, host_bytes: usize, what: &dyn Fn() -> String) -> Result<Workspace> {
        let mut info = gpu.allocate(4, what, ADVICE)?;
        info.zero(0, 4);
        let device = gpu.allocate(device_bytes, &|| format!("the workspace of {}", what()), ADVICE)?;
        Ok(Workspace { device, host: vec![0; host_bytes.div_ceil(8)], info })
    }

    fn device(&self) -> *mut c_void {
        address(&self.device)
    }

    fn host(&mut self) -> *mut c_void {
        if self.host.is_empty() { std::ptr::null_mut() } else { self.host.as_mut_ptr().cast() }
    }

    fn info(&self) -> *mut i32 {
        self.info.pointer() as *mut i32
    }

    /// Waits for the device and returns cuSOLVER's status; 0 is success.
    fn status(&self, what: &dyn Fn() -> String) -> Result<i32> {
        let mut info = [0i32];
        self.info.read(0, &mut info)?;
        match info[0] {
            info if info < 0 => {
                Err(Error::Device(format!("cuSOLVER rejected argument {} of {}", info.unsigned_abs(), what())))
            }
            info => Ok(info),
        }
    }
}

fn address(buffer: &Buffer) -> *mut c_void {
    buffer.pointer() as *mut c_void
}

/// The error of a call that cuSOLVER rejected. An accepted call may still fail later; the stream reports that.
fn accepted(status: sys::cusolverStatus_t, what: &dyn Fn() -> String) -> Result<()> {
    status.result().map_err(|e| Error::Device(format!("cuSOLVER: {:?} in {}", e.0, what())))
}

/// Calls `$run` with the workspace that `$size` asks for; the arguments in braces come first in both. Returns cuSOLVER's
/// status.
macro_rules! factorize {
    ($gpu:expr, $what:expr, $size:ident, $run:ident, { $($argument:expr),* }) => {{
        let (mut on_device, mut on_host) = (0, 0);
        accepted(sys::$size($($argument),*, &mut on_device, &mut on_host), $what)?;
        let mut work = Workspace::new($gpu, on_device, on_host, $what)?;
        let (device, host, info) = (work.device(), work.host(), work.info());
        accepted(sys::$run($($argument),*, device, on_device, host, on_host, info), $what)?;
        work.status($what)
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
        let work = Workspace::new(self, 0, 0, &what)?;
        // SAFETY: as in `syevd`.
        let status = unsafe {
            sys::cusolverDnXpotrs(
                handle,
                parameters,
                half.mode(),
                n as i64,
                m as i64,
                kind::<T>(),
                address(factor),
                n as i64,
                kind::<T>(),
                address(b),
                n as i64,
                work.info(),
            )
        };
        accepted(status, &what)?;
        work.status(&what).map(drop)
    }
}
