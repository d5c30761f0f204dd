//! Convolutions of images in bf16, channel last, by cuDNN's graph interface, which has kernels that the older one does not.
//!
//! The first time that a convolution is met on a machine, cuDNN's best engines are timed on it. The choice is kept on disk beside the compiled
//! kernels, so that later runs there, a resumed one among them, have the same bits. Without that cache the first in cuDNN's ranking is taken.

use super::code_cache::CodeCache;
use super::dnn::{self, Direction, Dnn};
use super::gpu::{Gpu, lock};
use super::primitives::scratch;
use crate::compute::Convolution;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t,
    cudnnBackendDescriptorType_t as Kind, cudnnStatus_t as Status,
};
use std::ffi::c_void;

/// The convolution, the number of images, and the direction.
pub(super) type Key = (Convolution, usize, Direction);

/// A plan of cuDNN for one convolution. Plans are never freed.
#[derive(Clone, Copy)]
pub(super) struct GraphPlan {
    plan: cudnnBackendDescriptor_t,
    workspace: usize,
}

/// Engines that cuDNN is asked to rank.
const RANKED: usize = 24;
/// Engines that are timed, and runs of each, after one that is not.
const TIMED: usize = 8;
const RUNS: usize = 5;
/// Largest workspace of an engine, in bytes.
const WORKSPACE: i64 = 1 << 30;
/// What the plans call x, w and y.
const NAMES: [i64; 3] = [1, 2, 3];

impl Gpu {
    /// Queues a convolution in bf16 with sums in f32; `addresses` are those of x, w and y, of which the direction says the result.
    pub(super) fn convolve_halves(
        &'static self,
        shape: &Convolution,
        batch: usize,
        direction: Direction,
        addresses: [u64; 3],
    ) {
        let mut dnn = lock(&self.dnn);
        self.bind();
        let Some(handle) = dnn.handle(self) else { return self.fail("cuDNN was not found".into()) };
        let key = (*shape, batch, direction);
        let Dnn { graph_plans, .. } = &mut *dnn;
        let plan = *graph_plans.entry(key).or_insert_with(|| self.choose(handle, key, addresses));
        let plan = match plan {
            Ok(plan) => plan,
            Err(status) => {
                return self.fail(format!("cuDNN has no deterministic convolution in bf16 of {shape:?}: {status:?}"));
            }
        };
        if let Err(status) = self.queue(handle, plan, addresses) {
            self.fail(format!("cuDNN: {status:?} in a convolution of {batch} images by {shape:?}"));
        }
    }

    fn queue(&'static self, handle: sys::cudnnHandle_t, plan: GraphPlan, addresses: [u64; 3]) -> Result<(), Status> {
        let Some(workspace) = scratch(self, plan.workspace) else { return Ok(()) };
        // SAFETY: the primitive has found memory of these sizes at the addresses; the workspace has the size that cuDNN asked for.
        unsafe { plan.queue(handle, addresses, workspace.pointer()) }
    }

    /// The plan that was fastest when this convolution was first met on this machine; the arrays at `addresses` have its sizes, and the
    /// result among them is overwritten.
    fn choose(&'static self, handle: sys::cudnnHandle_t, key: Key, addresses: [u64; 3]) -> Result<GraphPlan, Status> {
        let plans = GraphPlan::ranked(handle, key)?;
        let Some(cache) = CodeCache::of_user().filter(|_| plans.len() > 1 && !self.is_recording()) else {
            return Ok(plans[0]);
        };
        let (architecture, processors) = (self.architecture, self.multiprocessors);
        let name = format!(
            "engine of cuDNN {:?} on sm_{architecture} with {processors} multiprocessors for {key:?} in bf16",
            dnn::version()
        );
        let kept = || String::from_utf8(cache.get(&name)?).ok()?.parse::<usize>().ok().and_then(|i| plans.get(i));
        if let Some(plan) = kept() {
            return Ok(*plan);
        }
        let mut best = (f32::INFINITY, 0);
        for (i, plan) in plans.iter().enumerate() {
            let run = || self.queue(handle, *plan, addresses).is_ok();
            if !run() {
                continue;
            }
            let start = self.record_event();
            let worked = (0..RUNS).all(|_| run());
            let elapsed = self.elapsed_ms(start, self.record_event()).ok().filter(|ms| worked && ms.is_finite());
            best = elapsed.filter(|ms| *ms < best.0).map_or(best, |ms| (ms, i));
        }
        cache.put(&name, best.1.to_string().as_bytes());
        Ok(plans[best.1])
    }
}

impl GraphPlan {
    /// The plans of the first engines in cuDNN's ranking that are deterministic, sum in f32 and fit into the workspace, at least one. The
    /// ranking does not depend on measurements.
    fn ranked(handle: sys::cudnnHandle_t, key: Key) -> Result<Vec<GraphPlan>, Status> {
        // SAFETY: the handle is valid, and `operation_graph` returns a finished graph.
        unsafe {
            let graph = operation_graph(handle, key)?;
            let (mut last, mut plans) = (Status::CUDNN_STATUS_NOT_SUPPORTED, vec![]);
            for mode in [
                sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_B,
                sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A,
                sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_FALLBACK,
            ] {
                for engine in ranked(graph, mode).unwrap_or_default() {
                    if !is_exact(engine) {
                        continue;
                    }
                    match planned(handle, engine) {
                        Ok(plan) => plans.push(plan),
                        Err(status) => last = status,
                    }
                    if plans.len() == TIMED {
                        return Ok(plans);
                    }
                }
                if !plans.is_empty() {
                    return Ok(plans);
                }
            }
            Err(last)
        }
    }

    /// Queues the plan on the arrays at the addresses, in the order of their names.
    ///
    /// # Safety
    /// The handle is of the current context; the addresses are of device memory with the sizes of the plan, and `workspace` has its bytes; all
    /// of it lives until the queue has passed.
    unsafe fn queue(&self, handle: sys::cudnnHandle_t, addresses: [u64; 3], workspace: u64) -> Result<(), Status> {
        // SAFETY: promised by the caller; the pack is freed after the call that reads it.
        unsafe {
            let pack = create(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
            let queued = set(pack, Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, Type::CUDNN_TYPE_INT64, &NAMES)
                .and_then(|()| {
                    let name = Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS;
                    set(pack, name, Type::CUDNN_TYPE_VOID_PTR, &addresses.map(|a| a as *mut c_void))
                })
                .and_then(|()| {
                    let name = Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE;
                    set(pack, name, Type::CUDNN_TYPE_VOID_PTR, &[workspace as *mut c_void])
                })
                .and_then(|()| finish(pack))
                .and_then(|()| done(sys::cudnnBackendExecute(handle, self.plan, pack)));
            sys::cudnnBackendDestroyDescriptor(pack);
            queued
        }
    }
}

fn done(status: Status) -> Result<(), Status> {
    if status == Status::CUDNN_STATUS_SUCCESS { Ok(()) } else { Err(status) }
}

/// An empty descriptor.
///
/// # Safety
/// cuDNN is loaded, and the caller destroys the descriptor.
unsafe fn create(kind: Kind) -> Result<cudnnBackendDescriptor_t, Status> {
    let mut descriptor = std::ptr::null_mut();
    // SAFETY: writes the descriptor.
    done(unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut descriptor) })?;
    Ok(descriptor)
}

/// Sets an attribute whose elements are those of `values`.
///
/// # Safety
/// The descriptor exists and is not finished, and elements of this attribute are of type `T`, which `kind` names.
unsafe fn set<T>(to: cudnnBackendDescriptor_t, name: Name, kind: Type, values: &[T]) -> Result<(), Status> {
    // SAFETY: reads as many elements as there are; the caller gives them the type that `kind` says.
    done(unsafe { sys::cudnnBackendSetAttribute(to, name, kind, values.len() as i64, values.as_ptr().cast()) })
}

/// Reads at most as many elements of an attribute as `values` has; returns how many there were.
///
/// # Safety
/// The descriptor exists and is finished, and elements of this attribute are of type `T`, which `kind` names.
unsafe fn get<T>(from: cudnnBackendDescriptor_t, name: Name, kind: Type, values: &mut [T]) -> Result<usize, Status> {
    let mut count = 0;
    let to = values.as_mut_ptr().cast();
    // SAFETY: writes at most as many elements as there are; the caller gives them the type that `kind` says.
    done(unsafe { sys::cudnnBackendGetAttribute(from, name, kind, values.len() as i64, &raw mut count, to) })?;
    Ok((count.max(0) as usize).min(values.len()))
}

/// Ends the settings of a descriptor.
///
/// # Safety
/// The descriptor exists, and so do those that its attributes name.
unsafe fn finish(descriptor: cudnnBackendDescriptor_t) -> Result<(), Status> {
    // SAFETY: the caller has created it.
    done(unsafe { sys::cudnnBackendFinalize(descriptor) })
}

/// An array of bf16 in which the second of the extents `[n, c, h, w]` varies fastest, by its number among [`NAMES`].
///
/// # Safety
/// cuDNN is loaded, and the caller destroys the descriptor.
unsafe fn array(name: i64, extents: [usize; 4]) -> Result<cudnnBackendDescriptor_t, Status> {
    let extents = extents.map(|n| n as i64);
    let [_, c, h, w] = extents;
    // SAFETY: each attribute has elements of its type.
    unsafe {
        let tensor = create(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        let float = [sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16];
        set(tensor, Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &float)?;
        set(tensor, Name::CUDNN_ATTR_TENSOR_DIMENSIONS, Type::CUDNN_TYPE_INT64, &extents)?;
        set(tensor, Name::CUDNN_ATTR_TENSOR_STRIDES, Type::CUDNN_TYPE_INT64, &[h * w * c, 1, w * c, c])?;
        set(tensor, Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, Type::CUDNN_TYPE_INT64, &[name])?;
        set(tensor, Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, Type::CUDNN_TYPE_INT64, &[16i64])?;
        finish(tensor)?;
        Ok(tensor)
    }
}

/// The graph of one convolution.
///
/// # Safety
/// The handle is of the current context, and the caller destroys the descriptor.
unsafe fn operation_graph(
    handle: sys::cudnnHandle_t,
    (shape, batch, direction): Key,
) -> Result<cudnnBackendDescriptor_t, Status> {
    use Name as N;
    let ([c, h, w], [down, across], size) = (shape.image, shape.out(), shape.size);
    let pair = |n: usize| [n as i64; 2];
    // SAFETY: each attribute has elements of its type, and all descriptors are finished before they are used.
    unsafe {
        let images = [batch, c, h, w];
        let x = array(NAMES[0], images)?;
        let filters = array(NAMES[1], [shape.channels, c, size, size])?;
        let y = array(NAMES[2], [batch, shape.channels, down, across])?;
        let convolution = create(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        let float = [sys::cudnnDataType_t::CUDNN_DATA_FLOAT];
        let mode = [sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION];
        let int = Type::CUDNN_TYPE_INT64;
        set(convolution, N::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int, &[2i64])?;
        set(convolution, N::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &float)?;
        set(convolution, N::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &mode)?;
        set(convolution, N::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, int, &shape.before.map(|n| n as i64))?;
        set(convolution, N::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, int, &shape.after.map(|n| n as i64))?;
        set(convolution, N::CUDNN_ATTR_CONVOLUTION_DILATIONS, int, &pair(1))?;
        set(convolution, N::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, int, &pair(shape.stride))?;
        finish(convolution)?;
        let (kind, names) = match direction {
            Direction::Forward => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                ],
            ),
            Direction::Input => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                ],
            ),
            Direction::Weights => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    N::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                ],
            ),
        };
        let operation = create(kind)?;
        for (name, descriptor) in names.into_iter().zip([x, filters, y, convolution]) {
            set(operation, name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[descriptor])?;
        }
        set(operation, names[4], Type::CUDNN_TYPE_FLOAT, &[1.0f32])?;
        set(operation, names[5], Type::CUDNN_TYPE_FLOAT, &[0.0f32])?;
        finish(operation)?;
        let graph = create(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        set(graph, N::CUDNN_ATTR_OPERATIONGRAPH_OPS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[operation])?;
        set(graph, N::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?;
        finish(graph)?;
        Ok(graph)
    }
}

/// Configurations of engines in cuDNN's order.
///
/// # Safety
/// The graph exists and is finished, and the caller destroys the descriptors.
unsafe fn ranked(
    graph: cudnnBackendDescriptor_t,
    mode: sys::cudnnBackendHeurMode_t,
) -> Result<Vec<cudnnBackendDescriptor_t>, Status> {
    // SAFETY: the graph is finished, and `get` fills descriptors that were created for it.
    unsafe {
        let heuristics = create(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        let descriptor = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
        set(heuristics, Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, descriptor, &[graph])?;
        set(heuristics, Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[mode])?;
        finish(heuristics)?;
        let mut all = Vec::with_capacity(RANKED);
        for _ in 0..RANKED {
            all.push(create(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?);
        }
        let count = get(heuristics, Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, descriptor, &mut all)?;
        all.truncate(count);
        Ok(all)
    }
}

/// Whether an engine has the same bits every time and does not sum in bf16.
///
/// # Safety
/// The configuration exists and is finished.
unsafe fn is_exact(configuration: cudnnBackendDescriptor_t) -> bool {
    use sys::cudnnBackendNumericalNote_t as Note;
    // SAFETY: the configuration is one of cuDNN's own, and the elements have the types that are asked for.
    let notes = unsafe {
        let engine = create(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        engine.and_then(|engine| {
            let (name, kind) = (Name::CUDNN_ATTR_ENGINECFG_ENGINE, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR);
            let mut engine = [engine];
            get(configuration, name, kind, &mut engine)?;
            let mut notes = [i32::MAX; 16];
            let (name, kind) = (Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, Type::CUDNN_TYPE_NUMERICAL_NOTE);
            let count = get(engine[0], name, kind, &mut notes)?;
            Ok(notes[..count].to_vec())
        })
    };
    let refused = [Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION];
    notes.is_ok_and(|notes| refused.iter().all(|note| !notes.contains(&(*note as i32))))
}

/// The plan of a configuration, if it fits into the workspace.
///
/// # Safety
/// The handle is of the current context, and the configuration exists and is finished.
unsafe fn planned(handle: sys::cudnnHandle_t, configuration: cudnnBackendDescriptor_t) -> Result<GraphPlan, Status> {
    // SAFETY: handle and configuration are valid, and the elements have the types that are asked for.
    unsafe {
        let plan = create(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        set(plan, Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?;
        let name = Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
        set(plan, name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[configuration])?;
        finish(plan)?;
        let mut bytes = [0i64];
        get(plan, Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Type::CUDNN_TYPE_INT64, &mut bytes)?;
        if bytes[0] > WORKSPACE {
            return Err(Status::CUDNN_STATUS_NOT_SUPPORTED);
        }
        Ok(GraphPlan { plan, workspace: bytes[0].max(0) as usize })
    }
}
