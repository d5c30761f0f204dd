//! Convolutions by cuDNN, where it is installed.

use super::gpu::{Gpu, lock};
use super::primitives::scratch;
use crate::compute::{Convolution, Math};
use cudarc::cudnn::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// cuDNN on the computing stream, started at the first convolution.
#[derive(Default)]
pub struct Dnn {
    handle: Option<Handle>,
    /// How each convolution is done; `None` where cuDNN cannot do it.
    plans: HashMap<Key, Option<Plan>>,
}

enum Handle {
    Missing,
    Started(sys::cudnnHandle_t),
}

/// What a convolution computes: `y = w ⋆ x` or one of its adjoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    /// y from x and w.
    Forward,
    /// x from w and y.
    Input,
    /// w from x and y.
    Weights,
}

/// The convolution, the number of images, what is computed, and whether TF32 is allowed.
type Key = (Convolution, usize, Direction, bool);

/// Descriptors, which live as long as the process, and the algorithm.
#[derive(Clone, Copy)]
struct Plan {
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

/// Most memory that an algorithm may use beside the tensors.
const WORKSPACE: usize = 512 << 20;
/// Algorithms that cuDNN ranks.
const RANKED: usize = 10;

/// cuDNN's version, `None` where it is missing or older than 9, whose status codes are others.
pub(super) fn version() -> Option<usize> {
    // SAFETY: opens the library, whose initialisers are meant to run in any process.
    let present = unsafe { sys::is_culib_present() };
    present.then(result::get_version).filter(|&version| version >= 90_000)
}

impl Dnn {
    fn started(&mut self, gpu: &Gpu) -> Option<sys::cudnnHandle_t> {
        let start = || {
            version()?;
            let handle = result::create_handle().ok()?;
            // SAFETY: the handle was just created, and the stream lives as long as it does.
            unsafe { result::set_stream(handle, gpu.stream.cu_stream().cast()) }.ok()?;
            Some(handle)
        };
        match self.handle.get_or_insert_with(|| start().map_or(Handle::Missing, Handle::Started)) {
            Handle::Started(handle) => Some(*handle),
            Handle::Missing => None,
        }
    }
}

impl Gpu {
    /// Queues one convolution of `batch` images in f32 (or TF32 where [`Gpu::math`] allows it); what is computed is
    /// multiplied by one and added to `beta` times what was there. `x`, `w` and `y` are addresses. Whether cuDNN did it:
    /// it wants to be installed, frames of zeros of equal width before and after, and addresses of 16 bytes.
    pub(super) fn convolve(
        &'static self,
        shape: &Convolution,
        batch: usize,
        direction: Direction,
        [x, w, y]: [u64; 3],
        beta: f32,
    ) -> bool {
        if shape.before != shape.after || [x, w, y].iter().any(|address| address % 16 != 0) {
            return false;
        }
        let mut dnn = lock(&self.dnn);
        self.bind();
        let Some(handle) = dnn.started(self) else { return false };
        let key = (*shape, batch, direction, self.math() != Math::F32);
        let found = *dnn.plans.entry(key).or_insert_with(|| Plan::new(handle, key).ok());
        let Some(plan) = found else { return false };
        let Some(workspace) = scratch(self, plan.workspace) else { return true };
        // SAFETY: the addresses cover what the descriptors say, which is the caller's promise; the workspace has the size
        // that cuDNN asked for.
        let queued = unsafe { plan.queue(handle, [x, w, y], workspace.pointer(), beta) };
        if let Err(error) = queued {
            self.fail(format!("cuDNN: {:?} in {:?} of {batch} images by {shape:?}", error.0, plan.algorithm));
        }
        true
    }
}

impl Plan {
    fn new(handle: sys::cudnnHandle_t, (shape, batch, direction, tf32): Key) -> Result<Plan, result::CudnnError> {
        use sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION as CORRELATION;
        use sys::cudnnDataType_t::CUDNN_DATA_FLOAT as FLOAT;
        use sys::cudnnMathType_t::{CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH};
        use sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW as NCHW;
        let int = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let ([channels, height, width], [down, across]) = (shape.image, shape.out());
        let (pad, stride, size) = (int(shape.before), int(shape.stride), int(shape.size));
        let math = if tf32 { CUDNN_DEFAULT_MATH } else { CUDNN_FMA_MATH };
        // SAFETY: every descriptor is created before it is set, and handed to cuDNN with the handle that is alive.
        unsafe {
            let x = result::create_tensor_descriptor()?;
            result::set_tensor4d_descriptor(x, NCHW, FLOAT, [batch, channels, height, width].map(int))?;
            let w = result::create_filter_descriptor()?;
            result::set_filter4d_descriptor(w, FLOAT, NCHW, [int(shape.channels), int(channels), size, size])?;
            let y = result::create_tensor_descriptor()?;
            result::set_tensor4d_descriptor(y, NCHW, FLOAT, [batch, shape.channels, down, across].map(int))?;
            let convolution = result::create_convolution_descriptor()?;
            result::set_convolution2d_descriptor(convolution, pad, pad, stride, stride, 1, 1, CORRELATION, FLOAT)?;
            result::set_convolution_math_type(convolution, math)?;
            let mut plan = Plan { x, w, y, convolution, algorithm: usual(direction), workspace: 0 };
            if let Some((algorithm, math)) = plan.ranked(handle, direction, tf32) {
                plan.algorithm = algorithm;
                result::set_convolution_math_type(convolution, math)?;
            }
            plan.workspace = plan.workspace(handle)?;
            Ok(plan)
        }
    }

    /// cuDNN's first choice among those that give the same bits every time. It ranks by rule, not by measurement, so that
    /// the choice too is the same every time.
    unsafe fn ranked(
        &self,
        handle: sys::cudnnHandle_t,
        direction: Direction,
        tf32: bool,
    ) -> Option<(Algorithm, sys::cudnnMathType_t)> {
        let Plan { x, w, y, convolution, .. } = *self;
        let mut found = 0;
        macro_rules! choice {
            ($rank:path, $answer:ty, $variant:path, $($descriptor:expr),*) => {{
                let mut all = [MaybeUninit::<$answer>::uninit(); RANKED];
                // SAFETY: the descriptors are set, and there is room for RANKED answers.
                unsafe { $rank(handle, $($descriptor),*, RANKED as i32, &mut found, all.as_mut_ptr().cast()) }.ok()?;
                let mut all = all[..(found.max(0) as usize).min(RANKED)].iter().map(|one| {
                    // SAFETY: cuDNN has written that many.
                    unsafe { one.assume_init() }
                });
                all.find(|one| good(one.status, one.memory, one.determinism, one.mathType, tf32))
                    .map(|one| ($variant(one.algo), one.mathType))
            }};
        }
        match direction {
            Direction::Forward => {
                choice!(
                    result::get_convolution_forward_algorithm,
                    sys::cudnnConvolutionFwdAlgoPerf_t,
                    Algorithm::Forward,
                    x,
                    w,
                    convolution,
                    y
                )
            }
            Direction::Input => {
                choice!(
                    result::get_convolution_backward_data_algorithm,
                    sys::cudnnConvolutionBwdDataAlgoPerf_t,
                    Algorithm::Input,
                    w,
                    y,
                    convolution,
                    x
                )
            }
            Direction::Weights => {
                choice!(
                    result::get_convolution_backward_filter_algorithm,
                    sys::cudnnConvolutionBwdFilterAlgoPerf_t,
                    Algorithm::Weights,
                    x,
                    y,
                    convolution,
                    w
                )
            }
        }
    }

    unsafe fn workspace(&self, handle: sys::cudnnHandle_t) -> Result<usize, result::CudnnError> {
        let Plan { x, w, y, convolution, .. } = *self;
        // SAFETY: the descriptors are set.
        unsafe {
            match self.algorithm {
                Algorithm::Forward(a) => {
                    result::get_convolution_forward_workspace_size(handle, x, w, convolution, y, a)
                }
                Algorithm::Input(a) => {
                    result::get_convolution_backward_data_workspace_size(handle, w, y, convolution, x, a)
                }
                Algorithm::Weights(a) => {
                    result::get_convolution_backward_filter_workspace_size(handle, x, y, convolution, w, a)
                }
            }
        }
    }

    unsafe fn queue(
        &self,
        handle: sys::cudnnHandle_t,
        [x, w, y]: [u64; 3],
        workspace: u64,
        beta: f32,
    ) -> Result<(), result::CudnnError> {
        let alpha = 1.0f32;
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        let (px, pw, py, room) = (x as *mut c_void, w as *mut c_void, y as *mut c_void, workspace as *mut c_void);
        let Plan { x, w, y, convolution, algorithm, workspace } = *self;
        // SAFETY: the caller's promise.
        unsafe {
            match algorithm {
                Algorithm::Forward(a) => result::convolution_forward(
                    handle,
                    alpha,
                    x,
                    px,
                    w,
                    pw,
                    convolution,
                    a,
                    room,
                    workspace,
                    beta,
                    y,
                    py,
                ),
                Algorithm::Input(a) => result::convolution_backward_data(
                    handle,
                    alpha,
                    w,
                    pw,
                    y,
                    py,
                    convolution,
                    a,
                    room,
                    workspace,
                    beta,
                    x,
                    px,
                ),
                Algorithm::Weights(a) => result::convolution_backward_filter(
                    handle,
                    alpha,
                    x,
                    px,
                    y,
                    py,
                    convolution,
                    a,
                    room,
                    workspace,
                    beta,
                    w,
                    pw,
                ),
            }
        }
    }
}

/// Where cuDNN ranks nothing that will do: algorithms that it has for every shape, with the same bits every time.
fn usual(direction: Direction) -> Algorithm {
    match direction {
        Direction::Forward => {
            Algorithm::Forward(sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
        }
        Direction::Input => Algorithm::Input(sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1),
        Direction::Weights => {
            Algorithm::Weights(sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1)
        }
    }
}

/// Whether an algorithm works, gives the same bits every time, needs no more memory than it may, and keeps f32 unless TF32 is
/// allowed.
fn good(
    status: sys::cudnnStatus_t,
    memory: usize,
    determinism: sys::cudnnDeterminism_t,
    math: sys::cudnnMathType_t,
    tf32: bool,
) -> bool {
    status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
        && memory <= WORKSPACE
        && determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC
        && (tf32 || math == sys::cudnnMathType_t::CUDNN_FMA_MATH)
}
