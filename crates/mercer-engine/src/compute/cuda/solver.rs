//! Dense factorisations by cuSOLVER.
//!
//! Its 64-bit interface is used: the workspace of an eigendecomposition has more than 2³¹ numbers from n = 32 768 on. It
//! reads columns where we have rows, so the lower half of a row-major matrix is the upper half for it.

use super::gpu::{Gpu, lock};
use super::memory::Buffer;
use crate::{Error, Result};
use cudarc::cusolver::{result, sys};
use std::ffi::c_void;

/// cuSOLVER on the computing stream, started at the first factorisation.
pub struct Solver {
    handle: sys::cusolverDnHandle_t,
    parameters: sys::cusolverDnParams_t,
}

impl Solver {
    pub fn none() -> Solver {
        Solver { handle: std::ptr::null_mut(), parameters: std::ptr::null_mut() }
    }

    fn started(&mut self, gpu: &Gpu) -> Result<(sys::cusolverDnHandle_t, sys::cusolverDnParams_t)> {
        gpu.bind();
        if self.handle.is_null() {
            let failed = |e: result::CusolverError| Error::Device(format!("cuSOLVER does not start: {:?}", e.0));
            let parameters = result::dn_create_params().map_err(failed)?;
            let handle = result::dn_create().map_err(failed)?;
            // SAFETY: the handle was just created; the stream lives as long as the device.
            unsafe { result::dn_set_stream(handle, gpu.stream.cu_stream().cast()) }.map_err(failed)?;
            (self.handle, self.parameters) = (handle, parameters);
        }
        Ok((self.handle, self.parameters))
    }
}

/// `f32` or `f64`, in which cuSOLVER computes.
pub trait Number: Copy + Default + 'static {
    /// Whether it has 64 bits.
    const DOUBLE: bool;

    /// Whether it is neither infinite nor NaN.
    fn finite(self) -> bool;
}

impl Number for f32 {
    const DOUBLE: bool = false;

    fn finite(self) -> bool {
        self.is_finite()
    }
}

impl Number for f64 {
    const DOUBLE: bool = true;

    fn finite(self) -> bool {
        self.is_finite()
    }
}

fn kind<T: Number>() -> sys::cudaDataType {
    if T::DOUBLE { sys::cudaDataType::CUDA_R_64F } else { sys::cudaDataType::CUDA_R_32F }
}

/// The half of a symmetric matrix that is meant, of the matrix whose *columns* lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Lower,
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

/// What to do where a dense matrix does not fit.
const NO_ROOM: &str = "use a method that stores no matrix (Krylov, Nyström, conjugate gradients), or use the CPU";

/// Memory of `numbers` numbers for a factorisation.
pub fn allocate<T: Number>(gpu: &'static Gpu, numbers: usize, what: &dyn Fn() -> String) -> Result<Buffer> {
    gpu.allocate(size_of::<T>() * numbers, what, NO_ROOM)
}

/// Workspace on the device and on the host.
struct Workspace {
    device: Buffer,
    device_bytes: usize,
    host: Vec<u64>,
    host_bytes: usize,
    /// Where cuSOLVER says how it went.
    info: Buffer,
}

impl Workspace {
    fn new(gpu: &'static Gpu, device_bytes: usize, host_bytes: usize, what: &dyn Fn() -> String) -> Result<Workspace> {
        let mut info = gpu.allocate(4, what, NO_ROOM)?;
        info.zero(0, 4);
        let device = gpu.allocate(device_bytes, &|| format!("the workspace of {}", what()), NO_ROOM)?;
        Ok(Workspace { device, device_bytes, host: vec![0; host_bytes.div_ceil(8)], host_bytes, info })
    }

    fn device(&self) -> *mut c_void {
        address(&self.device)
    }

    fn host(&mut self) -> *mut c_void {
        if self.host_bytes == 0 { std::ptr::null_mut() } else { self.host.as_mut_ptr().cast() }
    }

    fn info(&self) -> *mut i32 {
        self.info.pointer() as *mut i32
    }

    /// Waits, and reads how it went: 0 is well.
    fn answer(&self, what: &dyn Fn() -> String) -> Result<i32> {
        let mut info = [0i32];
        self.info.read(0, &mut info)?;
        match info[0] {
            wrong if wrong < 0 => {
                Err(Error::Device(format!("cuSOLVER refused argument {} of {}", wrong.unsigned_abs(), what())))
            }
            info => Ok(info),
        }
    }
}

fn address(buffer: &Buffer) -> *mut c_void {
    buffer.pointer() as *mut c_void
}

/// A call that cuSOLVER refused; one that it accepted may still fail later, which the stream tells.
fn accepted(status: sys::cusolverStatus_t, what: &dyn Fn() -> String) -> Result<()> {
    status.result().map_err(|e| Error::Device(format!("cuSOLVER: {:?} in {}", e.0, what())))
}

impl Gpu {
    /// Eigenvalues, ascending, of the symmetric `a` `[n, n]` into `values` `[n]`, and the eigenvectors, one after the other,
    /// in the place of `a`. Returns how it went: above 0, it did not converge.
    pub fn syevd(&'static self, n: usize, a: &mut Buffer, half: Half, values: &mut Buffer) -> Result<i32> {
        assert!(a.bytes() >= 8 * n * n && values.bytes() >= 8 * n, "an eigendecomposition of {n} needs its room");
        let what = || format!("the eigendecomposition of a {n}×{n} matrix");
        let mut solver = lock(&self.solver);
        let (handle, parameters) = solver.started(self)?;
        let (real, vectors) = (kind::<f64>(), sys::cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR);
        let (order, matrix, spectrum) = (n as i64, address(a), address(values));
        let (mut on_device, mut on_host) = (0, 0);
        // SAFETY: the handle is started, the buffers have the room that was checked, the workspace that is asked for.
        unsafe {
            let status = sys::cusolverDnXsyevd_bufferSize(
                handle,
                parameters,
                vectors,
                half.mode(),
                order,
                real,
                matrix,
                order,
                real,
                spectrum,
                real,
                &mut on_device,
                &mut on_host,
            );
            accepted(status, &what)?;
            let mut work = Workspace::new(self, on_device, on_host, &what)?;
            let status = sys::cusolverDnXsyevd(
                handle,
                parameters,
                vectors,
                half.mode(),
                order,
                real,
                matrix,
                order,
                real,
                spectrum,
                real,
                work.device(),
                work.device_bytes,
                work.host(),
                work.host_bytes,
                work.info(),
            );
            accepted(status, &what)?;
            work.answer(&what)
        }
    }

    /// The Cholesky factor of `a` `[n, n]` in the place of its half. Returns how it went: above 0, the minor of that order
    /// is not positive definite.
    pub fn potrf<T: Number>(&'static self, n: usize, a: &mut Buffer, half: Half) -> Result<i32> {
        assert!(a.bytes() >= size_of::<T>() * n * n, "a factor of order {n} needs its room");
        let what = || format!("the Cholesky factor of a {n}×{n} matrix");
        let mut solver = lock(&self.solver);
        let (handle, parameters) = solver.started(self)?;
        let (real, order, matrix) = (kind::<T>(), n as i64, address(a));
        let (mut on_device, mut on_host) = (0, 0);
        // SAFETY: as in `syevd`.
        unsafe {
            let status = sys::cusolverDnXpotrf_bufferSize(
                handle,
                parameters,
                half.mode(),
                order,
                real,
                matrix,
                order,
                real,
                &mut on_device,
                &mut on_host,
            );
            accepted(status, &what)?;
            let mut work = Workspace::new(self, on_device, on_host, &what)?;
            let status = sys::cusolverDnXpotrf(
                handle,
                parameters,
                half.mode(),
                order,
                real,
                matrix,
                order,
                real,
                work.device(),
                work.device_bytes,
                work.host(),
                work.host_bytes,
                work.info(),
            );
            accepted(status, &what)?;
            work.answer(&what)
        }
    }

    /// `A⁻¹B` in the place of `b`, whose `m` columns of `n` numbers lie one after the other, from the factor of
    /// [`Gpu::potrf`].
    pub fn potrs<T: Number>(
        &'static self,
        [n, m]: [usize; 2],
        factor: &Buffer,
        half: Half,
        b: &mut Buffer,
    ) -> Result<()> {
        let size = size_of::<T>();
        assert!(factor.bytes() >= size * n * n && b.bytes() >= size * n * m, "a solution [{n}, {m}] needs its room");
        if n * m == 0 {
            return Ok(());
        }
        let what = || format!("solving for {m} columns with a Cholesky factor of order {n}");
        let mut solver = lock(&self.solver);
        let (handle, parameters) = solver.started(self)?;
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
        work.answer(&what).map(drop)
    }
}
