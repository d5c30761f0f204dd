//! Matrix products by cuBLAS.

use super::gpu::{Gpu, lock};
use super::memory::Buffer;
use super::primitives::{scratch, to_bf16, transpose_at};
use crate::compute::Math;
use crate::{Error, Result};
use cudarc::cublas::{result, sys};
use std::ffi::c_void;
use std::sync::MutexGuard;

/// cuBLAS on the compute stream, created by the first product, and its workspace. The workspace is ours, because recording
/// products into a graph requires that.
#[derive(Default)]
pub struct Blas(Option<(sys::cublasHandle_t, Buffer)>);

const WORKSPACE: usize = 32 << 20;

impl Blas {
    /// The handle; the first call creates it.
    fn handle(&mut self, gpu: &'static Gpu) -> Result<sys::cublasHandle_t> {
        if let Some((handle, _)) = self.0 {
            return Ok(handle);
        }
        let what = || "cuBLAS's workspace".into();
        let workspace = gpu.allocate(WORKSPACE, &what, "close other programs on the device")?;
        let failed = |e: result::CublasError| Error::Device(format!("cuBLAS cannot be initialized: {:?}", e.0));
        let handle = result::create_handle().map_err(failed)?;
        // SAFETY: the handle was just created; stream and workspace live as long as it does.
        unsafe {
            result::set_stream(handle, gpu.stream.cu_stream().cast()).map_err(failed)?;
            sys::cublasSetWorkspace_v2(handle, workspace.pointer() as *mut c_void, WORKSPACE);
        }
        self.0 = Some((handle, workspace));
        Ok(handle)
    }
}

/// A stack of row-major matrices in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// Address of the first element.
    pub pointer: u64,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Elements from one matrix of the stack to the next; zero if all share one matrix.
    pub stride: usize,
    /// Whether each matrix is read as its transpose.
    pub transposed: bool,
}

impl Matrix {
    /// One matrix whose rows have `row_stride` elements.
    pub fn new(pointer: u64, row_stride: usize) -> Matrix {
        Matrix { pointer, row_stride, stride: 0, transposed: false }
    }

    /// The transpose.
    pub fn t(self) -> Matrix {
        Matrix { transposed: !self.transposed, ..self }
    }

    fn operation(self) -> sys::cublasOperation_t {
        if self.transposed { sys::cublasOperation_t::CUBLAS_OP_T } else { sys::cublasOperation_t::CUBLAS_OP_N }
    }
}

impl Gpu {
    /// Makes cuBLAS ready. Products report no error of their own: where its workspace does not fit, this says so.
    pub(super) fn blas_ready(&'static self) -> Result<()> {
        self.bind();
        lock(&self.blas).handle(self).map(drop)
    }

    /// cuBLAS for a call on this thread alone, as long as the lock is held; none where it cannot be had, and the device has failed.
    fn locked_blas(&'static self) -> Option<(MutexGuard<'static, Blas>, sys::cublasHandle_t)> {
        let mut blas = lock(&self.blas);
        let handle = blas.handle(self).map_err(|error| self.fail(error.to_string())).ok()?;
        self.bind();
        Some((blas, handle))
    }

    /// `C_j ← α A_j B_j + β C_j`, `A` `[m, p]`, `B` `[p, n]`, `C` `[m, n]`, for `count` matrices, in f32 with factors rounded
    /// as [`Gpu::math`] says.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn gemm_f32(
        &'static self,
        [m, p, n]: [usize; 3],
        count: usize,
        alpha: f32,
        a: Matrix,
        b: Matrix,
        beta: f32,
        c: Matrix,
    ) {
        use sys::cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
        use sys::cudaDataType_t::{CUDA_R_16BF, CUDA_R_32F};
        let (shape, scalars) = ([m, p, n], [(&raw const alpha).cast(), (&raw const beta).cast()]);
        if self.math() == Math::Bf16 {
            // cuBLAS's own bf16 mode is not used, because it computes in TF32 on devices that have it.
            let copies = (self.rounded(a, [m, p], count), self.rounded(b, [p, n], count));
            let (Some((_a, a)), Some((_b, b))) = copies else { return };
            return self.gemm(shape, count, scalars, [a, b, c], [CUDA_R_16BF, CUDA_R_32F], CUBLAS_COMPUTE_32F);
        }
        let fast = self.math() == Math::Tf32;
        let turned = if fast { self.turned(b, [m, p, n], a.transposed, count) } else { None };
        let b = turned.as_ref().map_or(b, |(_, b)| *b);
        let compute = if fast { CUBLAS_COMPUTE_32F_FAST_TF32 } else { CUBLAS_COMPUTE_32F };
        self.gemm(shape, count, scalars, [a, b, c], [CUDA_R_32F; 2], compute);
    }

    /// The right factor `[p, n]` of a product in TF32 with many rows m, stored transposed, and the memory that holds it. Tensor cores of
    /// compute capability 9.0 read both factors along the sum; a product that finds them stored so is an eighth faster, which pays for
    /// the copy from some thousand rows on.
    fn turned(
        &'static self,
        b: Matrix,
        [m, p, n]: [usize; 3],
        transposed: bool,
        count: usize,
    ) -> Option<(Buffer, Matrix)> {
        let pays = m >= 4096 && p >= 256 && n >= 256 && p.is_multiple_of(4);
        if self.architecture != 90 || transposed || b.transposed || b.row_stride != n || !pays {
            return None;
        }
        let matrices = if b.stride == 0 { 1 } else { count };
        let buffer = scratch(self, 4 * matrices * p * n)?;
        transpose_at(self, [matrices, p, n], (b.pointer, b.stride), buffer.pointer());
        let stride = if b.stride == 0 { 0 } else { p * n };
        let copy = Matrix { pointer: buffer.pointer(), row_stride: p, stride, transposed: true };
        Some((buffer, copy))
    }

    /// A bf16 copy of `count` factors `[rows, cols]`, and the memory that holds it.
    fn rounded(&'static self, x: Matrix, [rows, cols]: [usize; 2], count: usize) -> Option<(Buffer, Matrix)> {
        let stored = if x.transposed { [cols, rows] } else { [rows, cols] };
        let size = stored[0].saturating_sub(1) * x.row_stride + stored[1];
        let matrices = if x.stride == 0 { 1 } else { count };
        // Matrices start at multiples of 16 bytes, which tensor cores need.
        let stride = size.next_multiple_of(8);
        let buffer = scratch(self, 2 * matrices * stride)?;
        to_bf16(self, [matrices, size], x, buffer.pointer(), stride);
        let copy = Matrix { pointer: buffer.pointer(), stride: if x.stride == 0 { 0 } else { stride }, ..x };
        Some((buffer, copy))
    }

    /// `C ← α A B + β C`, `A` `[m, p]`, `B` `[p, n]`, `C` `[m, n]`, in f64.
    pub(crate) fn gemm_f64(&'static self, shape: [usize; 3], alpha: f64, a: Matrix, b: Matrix, beta: f64, c: Matrix) {
        let scalars = [(&raw const alpha).cast(), (&raw const beta).cast()];
        let kinds = [sys::cudaDataType_t::CUDA_R_64F; 2];
        self.gemm(shape, 1, scalars, [a, b, c], kinds, sys::cublasComputeType_t::CUBLAS_COMPUTE_64F);
    }

    /// Replaces the rows of `B` `[m, n]` by solutions x of `L x = b`, or of `Lᵀ x = b` if `transposed`, for the row-major lower triangle
    /// `L` `[n, n]`, in f64.
    pub(crate) fn solve_triangular_f64(
        &'static self,
        [n, m]: [usize; 2],
        l: &Buffer,
        transposed: bool,
        b: &mut Buffer,
    ) {
        assert!(l.bytes() >= 8 * n * n && b.bytes() >= 8 * n * m, "trsm: the buffers are too small for [{n}, {m}]");
        self.solve_triangular_at([n, m], (l.pointer(), n), transposed, (b.pointer(), n));
    }

    /// The same with matrices at these addresses, whose rows are as many elements apart.
    pub(super) fn solve_triangular_at(
        &'static self,
        [n, m]: [usize; 2],
        (l, l_stride): (u64, usize),
        transposed: bool,
        (b, b_stride): (u64, usize),
    ) {
        if n * m == 0 {
            return;
        }
        let Some((_held, handle)) = self.locked_blas() else { return };
        // Column-major, the memory of L is the upper triangle Lᵀ.
        let operation =
            if transposed { sys::cublasOperation_t::CUBLAS_OP_N } else { sys::cublasOperation_t::CUBLAS_OP_T };
        let one = 1.0f64;
        // SAFETY: the caller promises that the matrices lie within their buffers.
        let status = unsafe {
            sys::cublasDtrsm_v2(
                handle,
                sys::cublasSideMode_t::CUBLAS_SIDE_LEFT,
                sys::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
                operation,
                sys::cublasDiagType_t::CUBLAS_DIAG_NON_UNIT,
                n as i32,
                m as i32,
                &raw const one,
                l as *const f64,
                l_stride as i32,
                b as *mut f64,
                b_stride as i32,
            )
        };
        if status != sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
            self.fail(format!("cuBLAS: {status:?} in solving for {m} columns with a triangle of order {n}"));
        }
    }

    fn gemm(
        &'static self,
        [m, p, n]: [usize; 3],
        count: usize,
        [alpha, beta]: [*const c_void; 2],
        [a, b, c]: [Matrix; 3],
        [factor, product]: [sys::cudaDataType_t; 2],
        compute: sys::cublasComputeType_t,
    ) {
        if m == 0 || n == 0 || count == 0 {
            return;
        }
        let Some((_held, handle)) = self.locked_blas() else { return };
        // cuBLAS is column-major and sees the transposes of our matrices, so we ask it for Cᵀ = Bᵀ Aᵀ.
        // SAFETY: the caller promises that the matrices lie within their buffers.
        let queued = unsafe {
            result::gemm_strided_batched_ex(
                handle,
                b.operation(),
                a.operation(),
                n as i32,
                m as i32,
                p as i32,
                alpha,
                b.pointer as *const c_void,
                factor,
                b.row_stride.max(1) as i32,
                b.stride as i64,
                a.pointer as *const c_void,
                factor,
                a.row_stride.max(1) as i32,
                a.stride as i64,
                beta,
                c.pointer as *mut c_void,
                product,
                c.row_stride.max(1) as i32,
                c.stride as i64,
                count as i32,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        if let Err(error) = queued {
            self.fail(format!("cuBLAS: {:?} in a product of [{m}, {p}] and [{p}, {n}]", error.0));
        }
    }
}
