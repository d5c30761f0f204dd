//! An open CUDA device.

use super::blas::Blas;
use super::dnn::{self, Dnn};
use super::memory::Pool;
use super::module::Modules;
use super::solver::Solver;
use crate::compute::Math;
use crate::{Error, Result, fail_if};
use cudarc::driver::result::{self, event};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// An open CUDA device. Queued work runs on one stream in program order.
pub struct Gpu {
    /// The number of the device.
    pub ordinal: usize,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability as `10·major + minor`: 90 for Hopper.
    pub architecture: u32,
    /// Largest dynamic shared memory of a block, in bytes.
    pub shared_memory: u32,
    pub(super) context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
    /// The stream of transfers that overlap with computation.
    pub(super) copies: Arc<CudaStream>,
    pub(super) pool: Mutex<Pool>,
    pub(super) modules: Mutex<Modules>,
    pub(super) blas: Mutex<Blas>,
    pub(super) solver: Mutex<Solver>,
    pub(super) dnn: Mutex<Dnn>,
    /// The first error of queued work.
    failure: Mutex<Option<Error>>,
}

// SAFETY: a thread may use the context after making it current, which every method does first; cuBLAS, cuSOLVER, cuDNN,
// the pool and the modules are behind locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// The device `ordinal`. The first call opens it.
pub fn gpu(ordinal: usize) -> Result<&'static Gpu> {
    static OPEN: Mutex<BTreeMap<usize, &'static Gpu>> = Mutex::new(BTreeMap::new());
    let mut open = lock(&OPEN);
    if let Some(gpu) = open.get(&ordinal) {
        return Ok(gpu);
    }
    let gpu: &'static Gpu = Box::leak(Box::new(Gpu::open(ordinal)?));
    open.insert(ordinal, gpu);
    Ok(gpu)
}

/// Locks `mutex`, ignoring poisoning: no holder panics in the middle of an update.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns an error unless the driver and the libraries are installed. Without them, calls of cudarc panic.
fn require_libraries() -> Result<()> {
    // SAFETY: opens and closes libraries whose initializers may run in any process.
    let (driver, libraries) = unsafe {
        let nvrtc = ("NVRTC", cudarc::nvrtc::sys::is_culib_present());
        let blas = ("cuBLAS", cudarc::cublas::sys::is_culib_present());
        let solver = ("cuSOLVER", cudarc::cusolver::sys::is_culib_present());
        (sys::is_culib_present(), [nvrtc, blas, solver])
    };
    if !driver {
        let what = concat!("there is no NVIDIA driver on this machine (libcuda was not found); ", advice!(UseCpu));
        return Err(Error::Device(what.into()));
    }
    let missing: Vec<&str> = libraries.into_iter().filter(|(_, found)| !found).map(|(name, _)| name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Device(format!(
        "{} was not found; install the CUDA 12 or 13 runtime libraries (or add their folder to LD_LIBRARY_PATH), or {use_cpu}",
        missing.join(" and "),
        use_cpu = advice!(UseCpu)
    )))
}

thread_local! {
    static MATH: Cell<Math> = const { Cell::new(Math::F32) };
}

impl Gpu {
    fn open(ordinal: usize) -> Result<Gpu> {
        require_libraries()?;
        let count = count()?;
        if ordinal >= count {
            let available = match count {
                0 => concat!("this machine has no CUDA device; ", advice!(UseCpu)).into(),
                1 => "this machine has cuda:0 only".into(),
                _ => format!("this machine has cuda:0 to cuda:{}", count - 1),
            };
            return Err(Error::Device(format!("there is no cuda:{ordinal}: {available}")));
        }
        let opened = || -> Result<Gpu, DriverError> {
            use sys::CUdevice_attribute as A;
            let context = CudaContext::new(ordinal)?;
            // SAFETY: no events are needed, because the pool reuses memory in the order of the one stream of work.
            unsafe { context.disable_event_tracking() };
            let (major, minor) = context.compute_capability()?;
            let multiprocessors = context.attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
            let shared = context.attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32;
            let (stream, copies) = (context.new_stream()?, context.new_stream()?);
            Ok(Gpu {
                ordinal,
                multiprocessors,
                architecture: (10 * major + minor) as u32,
                shared_memory: shared,
                pool: Mutex::default(),
                modules: Mutex::default(),
                blas: Mutex::default(),
                solver: Mutex::default(),
                dnn: Mutex::default(),
                context,
                stream,
                copies,
                failure: Mutex::default(),
            })
        };
        let gpu = opened().map_err(|e| Error::Device(format!("cuda:{ordinal} cannot be opened: {}", message(e))))?;
        fail_if!(gpu.architecture < 75; Error::Device(format!(
            "cuda:{ordinal} has compute capability {}.{}; at least 7.5 is needed; {use_cpu}",
            gpu.architecture / 10,
            gpu.architecture % 10, use_cpu = advice!(UseCpu))));
        Ok(gpu)
    }

    /// Makes the device current on this thread.
    pub(super) fn bind(&self) {
        self.note(self.context.bind_to_thread());
    }

    /// Keeps the first error of queued work for [`Gpu::check`].
    pub(super) fn note<T>(&self, result: std::result::Result<T, DriverError>) -> Option<T> {
        result.map_err(|e| self.fail(message(e))).ok()
    }

    /// Keeps a failure of the device, unless there is an earlier error.
    pub(super) fn fail(&self, what: String) {
        self.defer(Error::Device(format!("cuda:{} has failed: {what}", self.ordinal)));
    }

    /// Keeps an error of queued work for [`Gpu::check`], unless there is an earlier one.
    pub(super) fn defer(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
    }

    /// The first error of the work queued so far. A failure of the device is returned by every call, because the device
    /// cannot compute any more; an out-of-memory error is returned once.
    pub fn check(&self) -> Result<()> {
        let mut failure = lock(&self.failure);
        let error = failure.take();
        if let Some(Error::Device(what)) = &error {
            *failure = Some(Error::Device(what.clone()));
        }
        error.map_or(Ok(()), Err)
    }

    /// Waits for all queued work.
    pub fn synchronize(&self) -> Result<()> {
        self.bind();
        self.note(self.stream.synchronize());
        self.note(self.copies.synchronize());
        self.check()
    }

    /// The precision of matrix products queued by this thread.
    pub(crate) fn math(&self) -> Math {
        MATH.get()
    }

    /// Sets the precision of matrix products queued by this thread; returns the previous one.
    pub(crate) fn set_math(&self, math: Math) -> Math {
        MATH.replace(math)
    }

    /// Records an event with a time stamp after all work queued so far.
    pub fn record_event(&self) -> Option<CudaEvent> {
        self.bind();
        self.note(self.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)))
    }

    /// Records an event after all copies queued so far on the copy stream.
    pub(super) fn record_copies(&self) -> Option<CudaEvent> {
        self.bind();
        self.note(self.copies.record_event(None))
    }

    /// Copies queued after this call wait for the work before `event`.
    pub fn copies_wait_for(&self, event: Option<CudaEvent>) {
        if let Some(event) = event {
            self.note(self.copies.wait(&event));
        }
    }

    /// Work queued after this call waits for all copies queued so far.
    pub fn work_waits_for_copies(&self) {
        self.bind();
        self.note(self.stream.join(&self.copies));
    }

    /// The driver's handle of the stream on which work is queued, for libraries that order their own work before it.
    pub fn stream_handle(&self) -> u64 {
        self.stream.cu_stream().addr() as u64
    }

    /// Work queued after this call waits for what another library has queued on `stream`, the handle of a stream of this device.
    /// The driver's default streams (handles 0, 1 and 2) are waited for by the device; others may be gone by now, so that the
    /// host waits for the whole device.
    pub fn follow_stream(&self, stream: u64) {
        self.bind();
        if stream > 2 {
            self.note(self.context.synchronize());
            return;
        }
        let stream = std::ptr::without_provenance_mut::<sys::CUstream_st>(stream as usize);
        // SAFETY: the default streams always exist; the event is destroyed once, and the driver keeps it until it has passed.
        self.note(unsafe {
            event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).and_then(|mark| {
                let queued = event::record(mark, stream).and_then(|()| {
                    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                    result::stream::wait_event(self.stream.cu_stream(), mark, flags)
                });
                event::destroy(mark).and(queued)
            })
        });
    }

    /// What tells this device from all others, on every machine.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let found = self.context.uuid().map_err(|e| Error::Device(message(e)))?;
        Ok(found.bytes.map(|byte| byte as u8))
    }

    /// Milliseconds between two events; waits for the second.
    pub fn elapsed_ms(&self, from: Option<CudaEvent>, to: Option<CudaEvent>) -> Result<f32> {
        let elapsed = from.zip(to).and_then(|(from, to)| self.note(from.elapsed_ms(&to)));
        self.check()?;
        Ok(elapsed.unwrap_or(f32::NAN))
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{}", self.ordinal)
    }
}

/// The driver's message for an error.
pub(super) fn message(error: DriverError) -> String {
    match error.error_string() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => format!("error {:?}", error.0),
    }
}

/// Number of CUDA devices.
fn count() -> Result<usize> {
    let count = cudarc::driver::result::init().and_then(|()| CudaContext::device_count());
    let failed = |e| Error::Device(format!("the NVIDIA driver cannot be initialized: {}", message(e)));
    count.map(|n| n.max(0) as usize).map_err(failed)
}

/// Properties of a CUDA device.
#[derive(Clone, Debug)]
pub struct Description {
    /// Name of the device in Mercer, such as `cuda:0`.
    pub device: String,
    /// Name of the model.
    pub name: String,
    /// Compute capability, such as 9.0.
    pub capability: String,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Free and total memory in bytes.
    pub memory: [u64; 2],
}

/// How many GPUs this process sees, or an error that says why there are none.
pub fn visible() -> Result<usize> {
    require_libraries()?;
    count()
}

/// All CUDA devices, and the versions of the driver and the libraries, or an error that says why there are none.
pub fn describe_all() -> Result<(Vec<Description>, Vec<String>)> {
    require_libraries()?;
    let mut devices = Vec::new();
    for ordinal in 0..count()? {
        let gpu = gpu(ordinal)?;
        devices.push(Description {
            device: format!("cuda:{ordinal}"),
            name: gpu.note(gpu.context.name()).unwrap_or_default(),
            capability: format!("{}.{}", gpu.architecture / 10, gpu.architecture % 10),
            multiprocessors: gpu.multiprocessors,
            memory: gpu.memory().into(),
        });
        gpu.check()?;
    }
    Ok((devices, versions()))
}

fn versions() -> Vec<String> {
    // The version of a library that `require_libraries` has found.
    macro_rules! version {
        ($library:ident, $get:ident) => {{
            use cudarc::$library::sys::{libraryPropertyType_t as Property, $get};
            let properties = [Property::MAJOR_VERSION, Property::MINOR_VERSION, Property::PATCH_LEVEL];
            let parts = properties.map(|property| {
                let mut value = 0;
                // SAFETY: writes one integer.
                unsafe { $get(property, &mut value) };
                value.to_string()
            });
            parts.join(".")
        }};
    }
    let (mut driver, mut major, mut minor) = (0, 0, 0);
    // SAFETY: each call writes integers.
    unsafe {
        sys::cuDriverGetVersion(&mut driver);
        cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor);
    }
    vec![
        format!("driver for CUDA {}.{}", driver / 1000, driver % 1000 / 10),
        format!("NVRTC {major}.{minor}"),
        format!("cuBLAS {}", version!(cublas, cublasGetProperty)),
        format!("cuSOLVER {}", version!(cusolver, cusolverGetProperty)),
        dnn::version().map_or("no cuDNN 9: convolutions are slower without it".into(), |v| {
            format!("cuDNN {}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
        }),
    ]
}
