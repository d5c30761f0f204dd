//! Convolutions by cuDNN, if it is installed.

use super::dnn_graph;
use super::gpu::{Gpu, lock};
use super::primitives::scratch;
use crate::compute::{Convolution, Math};
use cudarc::cudnn::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// cuDNN on the compute stream, created by the first convolution.
#[derive(Default)]
pub struct Dnn {
    /// `None` before the first convolution, `Some(None)` if cuDNN is missing.
    handle: Option<Option<sys::cudnnHandle_t>>,
    /// The plan of each convolution; `None` if cuDNN cannot compute it.
    plans: HashMap<Key, Option<ConvolutionPlan>>,
    /// The same for images in bf16; why cuDNN cannot compute one.
    pub(super) graph_plans: HashMap<dnn_graph::Key, Result<dnn_graph::GraphPlan, sys::cudnnStatus_t>>,
}

/// What is computed: `y = w ⋆ x` or one of its adjoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// y from x and w.
    Forward,
    /// x from w and y.
    Input,
    /// w from x and y.
    Weights,
}

/// A convolution of `batch` images: `result ← new + beta·result`, where the direction says which of x, w and y is the result.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub shape: &'a Convolution,
    pub batch: usize,
    pub direction: Direction,
    /// Addresses of x, w and y.
    pub addresses: [u64; 3],
    pub beta: f32,
}

/// The convolution, the number of images, the direction, and whether TF32 is allowed.
type Key = (Convolution, usize, Direction, bool);

/// The descriptors and the algorithm of a convolution. Plans are never freed.
#[derive(Clone, Copy)]
struct ConvolutionPlan {
    x: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
    algorithm: Algorithm,
    workspace: usize,
}

#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Input(sys::cudnnConvolutionBwdDataAlgo_t),
    Weights(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// Largest workspace of an algorithm, in bytes.
const WORKSPACE: usize = 512 << 20;
/// Number of algorithms that cuDNN is asked to rank.
const RANKED: usize = 10;

/// cuDNN's version; `None` if it is missing or older than 9 (older versions have other status codes).
pub(super) fn version() -> Option<usize> {
    // SAFETY: opens the library, whose initializers may run in any process.
    let present = unsafe { sys::is_culib_present() };
    present.then(result::get_version).filter(|&version| version >= 90_000)
}

impl Dnn {
    /// The handle, or `None` if cuDNN is missing; the first call creates it.
    pub(super) fn handle(&mut self, gpu: &Gpu) -> Option<sys::cudnnHandle_t> {
        let start = || {
            version()?;
            let handle = result::create_handle().ok()?;
            // SAFETY: the handle was just created, and the stream lives as long as it does.
            unsafe { result::set_stream(handle, gpu.stream.cu_stream().cast()) }.ok()?;
            Some(handle)
        };
        *self.handle.get_or_insert_with(start)
    }
}

impl Gpu {
    /// Queues a convolution in f32, or in TF32 if [`Gpu::math`] allows it. Returns false if cuDNN cannot compute it: it must be
    /// installed, the padding must be symmetric, and the addresses must be multiples of 16 bytes.
    pub(super) fn convolve(&'static self, job: Job<'_>) -> bool {
        let Job { shape, batch, direction, addresses, beta } = job;
        if shape.before != shape.after || addresses.iter().any(|address| address % 16 != 0) {
            return false;
        }
        let mut dnn = lock(&self.dnn);
        self.bind();
        let Some(handle) = dnn.handle(self) else { return false };
        let key = (*shape, batch, direction, self.math() != Math::F32);
        let plan = *dnn.plans.entry(key).or_insert_with(|| ConvolutionPlan::new(handle, key).ok());
        let Some(plan) = plan else { return false };
        let Some(workspace) = scratch(self, plan.workspace) else { return true };
        // SAFETY: the caller promises memory of the descriptors' sizes; the workspace has the size that cuDNN asked for.
        let queued = unsafe { plan.queue(handle, addresses, workspace.pointer(), beta) };
        if let Err(error) = queued {
            self.fail(format!("cuDNN: {:?} in {:?} of {batch} images by {shape:?}", error.0, plan.algorithm));
        }
        true
    }
}

impl ConvolutionPlan {
    fn new(handle: sys::cudnnHandle_t, (shape, batch, direction, tf32): Key) -> Result<Self, result::CudnnError> {
        use sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION as CORRELATION;
        use sys::cudnnDataType_t::CUDNN_DATA_FLOAT as FLOAT;
        use sys::cudnnMathType_t::{CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH};
        use sys::cudnnStatus_t::CUDNN_STATUS_NOT_SUPPORTED;
        use sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW as NCHW;
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let ([channels, height, width], [down, across]) = (shape.image, shape.out());
        let (pad, stride, size) = (shape.before.map(int), int(shape.stride), int(shape.size));
        let math = if tf32 { CUDNN_DEFAULT_MATH } else { CUDNN_FMA_MATH };
        // SAFETY: each descriptor is created before it is set, and the handle is valid.
        unsafe {
            let x = result::create_tensor_descriptor()?;
            result::set_tensor4d_descriptor(x, NCHW, FLOAT, [batch, channels, height, width].map(int))?;
            let w = result::create_filter_descriptor()?;
            result::set_filter4d_descriptor(w, FLOAT, NCHW, [int(shape.channels), int(channels), size, size])?;
            let y = result::create_tensor_descriptor()?;
            result::set_tensor4d_descriptor(y, NCHW, FLOAT, [batch, shape.channels, down, across].map(int))?;
            let convolution = result::create_convolution_descriptor()?;
            result::set_convolution2d_descriptor(
                convolution,
                pad[0],
                pad[1],
                stride,
                stride,
                1,
                1,
                CORRELATION,
                FLOAT,
            )?;
            result::set_convolution_math_type(convolution, math)?;
            let best = best_algorithm(handle, (x, w, y), convolution, direction, tf32);
            let (algorithm, workspace, math) = best.ok_or(result::CudnnError(CUDNN_STATUS_NOT_SUPPORTED))?;
            result::set_convolution_math_type(convolution, math)?;
            Ok(ConvolutionPlan { x, w, y, convolution, algorithm, workspace })
        }
    }

    /// Queues the convolution of the arrays at the addresses `x`, `w` and `y`, two of which it reads and one of which it writes.
    ///
    /// # Safety
    /// The handle is of the current context; the addresses are of device memory with the sizes of the plan, and `workspace` has its bytes; all
    /// of it lives until the queue has passed.
    unsafe fn queue(
        &self,
        handle: sys::cudnnHandle_t,
        [x, w, y]: [u64; 3],
        workspace: u64,
        beta: f32,
    ) -> Result<(), result::CudnnError> {
        let alpha = 1.0f32;
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        let [px, pw, py, scratch] = [x, w, y, workspace].map(|address| address as *mut c_void);
        let ConvolutionPlan { x, w, y, convolution, algorithm, workspace } = *self;
        macro_rules! queue {
            ($run:ident, $algorithm:expr, $left:expr, $right:expr, $result:expr) => {{
                let ((a, pa), (b, pb), (c, pc)) = ($left, $right, $result);
                // SAFETY: promised by the caller.
                unsafe {
                    result::$run(handle, alpha, a, pa, b, pb, convolution, $algorithm, scratch, workspace, beta, c, pc)
                }
            }};
        }
        match algorithm {
            Algorithm::Forward(a) => queue!(convolution_forward, a, (x, px), (w, pw), (y, py)),
            Algorithm::Input(a) => queue!(convolution_backward_data, a, (w, pw), (y, py), (x, px)),
            Algorithm::Weights(a) => queue!(convolution_backward_filter, a, (x, px), (y, py), (w, pw)),
        }
    }
}

/// cuDNN's highest-ranked algorithm that works, is deterministic, fits into the workspace, and computes in f32 unless TF32 is
/// allowed; the bytes of its workspace, and its arithmetic. The ranking does not depend on measurements.
///
/// # Safety
/// The handle and the descriptors exist, and the descriptors are set.
unsafe fn best_algorithm(
    handle: sys::cudnnHandle_t,
    (x, w, y): (sys::cudnnTensorDescriptor_t, sys::cudnnFilterDescriptor_t, sys::cudnnTensorDescriptor_t),
    convolution: sys::cudnnConvolutionDescriptor_t,
    direction: Direction,
    tf32: bool,
) -> Option<(Algorithm, usize, sys::cudnnMathType_t)> {
    /// The algorithms that `rank` writes to an array of [`RANKED`] elements, and their number.
    fn ranked<T: Copy>(rank: impl FnOnce(&mut i32, *mut T) -> Result<(), result::CudnnError>) -> Vec<T> {
        let (mut found, mut all) = (0, [MaybeUninit::<T>::uninit(); RANKED]);
        let count = rank(&mut found, all.as_mut_ptr().cast()).map_or(0, |()| found.max(0) as usize);
        // SAFETY: cuDNN has written the first `found` elements.
        all.iter().take(count).map(|one| unsafe { one.assume_init() }).collect()
    }
    macro_rules! choice {
        ($variant:ident, $rank:ident, [$($descriptor:expr),*]) => {{
            // SAFETY: the descriptors are set, and the array has RANKED elements.
            let all = ranked(|n, all| unsafe { result::$rank(handle, $($descriptor),*, RANKED as i32, n, all) });
            let best = all.into_iter().find(|one| {
                one.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                    && one.memory <= WORKSPACE
                    && one.determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC
                    && (tf32 || one.mathType == sys::cudnnMathType_t::CUDNN_FMA_MATH)
            });
            best.map(|one| (Algorithm::$variant(one.algo), one.memory, one.mathType))
        }};
    }
    match direction {
        Direction::Forward => choice!(Forward, get_convolution_forward_algorithm, [x, w, convolution, y]),
        Direction::Input => choice!(Input, get_convolution_backward_data_algorithm, [w, y, convolution, x]),
        Direction::Weights => choice!(Weights, get_convolution_backward_filter_algorithm, [x, y, convolution, w]),
    }
}
