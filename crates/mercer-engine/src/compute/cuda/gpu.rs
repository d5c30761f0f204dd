//! A device that is open.

use super::blas::Blas;
use super::dnn::{self, Dnn};
use super::memory::Pool;
use super::module::Modules;
use super::solver::Solver;
use crate::compute::Math;
use crate::{Error, Result};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// One open CUDA device: everything queued on it runs on one stream in program order.
pub struct Gpu {
    /// Which device it is.
    pub ordinal: usize,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability, `major·10 + minor`: 90 for Hopper.
    pub architecture: u32,
    /// Most dynamic shared memory of a block, in bytes.
    pub shared_memory: u32,
    pub(super) context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
    /// Transfers that overlap with computation.
    pub(super) copies: Arc<CudaStream>,
    pub(super) pool: Mutex<Pool>,
    pub(super) modules: Mutex<Modules>,
    pub(super) blas: Mutex<Blas>,
    pub(super) solver: Mutex<Solver>,
    pub(super) dnn: Mutex<Dnn>,
    /// The first error of queued work.
    failure: Mutex<Option<Error>>,
}

// SAFETY: the context may be used from any thread that has made it current, which every entry point does first; cuBLAS,
// cuSOLVER, cuDNN, the pool and the modules are behind locks.
unsafe impl Send for Gpu {}
unsafe impl Sync for Gpu {}

/// The open device `ordinal`; the first call opens it.
pub fn gpu(ordinal: usize) -> Result<&'static Gpu> {
    static OPEN: OnceLock<Mutex<BTreeMap<usize, &'static Gpu>>> = OnceLock::new();
    let mut open = lock(OPEN.get_or_init(Default::default));
    if let Some(gpu) = open.get(&ordinal) {
        return Ok(gpu);
    }
    let gpu: &'static Gpu = Box::leak(Box::new(Gpu::open(ordinal)?));
    open.insert(ordinal, gpu);
    Ok(gpu)
}

/// A lock whose holder cannot leave it half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Whether the driver's library is there; without it every call of cudarc would panic.
fn driver_is_present() -> bool {
    // SAFETY: opens and closes the driver's library, whose initialisers are meant to run in any process.
    unsafe { sys::is_culib_present() }
}

/// The libraries beside the driver, `(name, whether it was found)`.
fn libraries() -> [(&'static str, bool); 3] {
    // SAFETY: as in `driver_is_present`.
    unsafe {
        [
            ("NVRTC", cudarc::nvrtc::sys::is_culib_present()),
            ("cuBLAS", cudarc::cublas::sys::is_culib_present()),
            ("cuSOLVER", cudarc::cusolver::sys::is_culib_present()),
        ]
    }
}

fn require_libraries() -> Result<()> {
    if !driver_is_present() {
        return Err(Error::Device(
            "there is no NVIDIA driver on this machine (libcuda was not found); use the CPU".into(),
        ));
    }
    let missing: Vec<&str> = libraries().into_iter().filter(|(_, found)| !found).map(|(name, _)| name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Device(format!(
        "{} was not found; install the CUDA 12 or 13 runtime libraries (or put their folder into LD_LIBRARY_PATH), or use the CPU",
        missing.join(" and ")
    )))
}

thread_local! {
    static MATH: Cell<Math> = const { Cell::new(Math::F32) };
}

impl Gpu {
    fn open(ordinal: usize) -> Result<Gpu> {
        require_libraries()?;
        let count = count().map_err(|e| Error::Device(format!("the NVIDIA driver does not start: {}", words(e))))?;
        if ordinal >= count {
            let there = match count {
                0 => "this machine has no CUDA device; use the CPU".into(),
                1 => "this machine has cuda:0 only".into(),
                _ => format!("this machine has cuda:0 to cuda:{}", count - 1),
            };
            return Err(Error::Device(format!("there is no cuda:{ordinal}: {there}")));
        }
        let opened = || -> Result<Gpu, DriverError> {
            use sys::CUdevice_attribute as A;
            let context = CudaContext::new(ordinal)?;
            // One stream in program order needs no events between tensors.
            // SAFETY: memory is handed out and taken back by our own pool in the order of that stream.
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
                pool: Mutex::new(Pool::default()),
                modules: Mutex::default(),
                blas: Mutex::new(Blas::none()),
                solver: Mutex::new(Solver::none()),
                dnn: Mutex::default(),
                context,
                stream,
                copies,
                failure: Mutex::new(None),
            })
        };
        let gpu = opened().map_err(|e| Error::Device(format!("cuda:{ordinal} cannot be opened: {}", words(e))))?;
        if gpu.architecture < 75 {
            return Err(Error::Device(format!(
                "cuda:{ordinal} has compute capability {}.{}; at least 7.5 is needed, use the CPU",
                gpu.architecture / 10,
                gpu.architecture % 10
            )));
        }
        Ok(gpu)
    }

    /// Makes the device current on this thread.
    pub(super) fn bind(&self) {
        self.note(self.context.bind_to_thread());
    }

    /// Keeps the first error of queued work for [`Gpu::check`].
    pub(super) fn note<T>(&self, result: std::result::Result<T, DriverError>) -> Option<T> {
        result.map_err(|e| self.fail(words(e))).ok()
    }

    /// Keeps a failure of the device in words, if it is the first error.
    pub(super) fn fail(&self, what: String) {
        self.defer(Error::Device(format!("cuda:{} has failed: {what}", self.ordinal)));
    }

    /// Keeps an error of queued work, if it is the first, for [`Gpu::check`].
    pub(super) fn defer(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
    }

    /// The first error of the work queued so far. A failure of the device is returned every time, since the device
    /// computes nothing more; missing memory is returned once.
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

    /// How products that this thread queues round their factors.
    pub fn math(&self) -> Math {
        MATH.get()
    }

    /// Chooses how products that this thread queues round their factors; returns what was before.
    pub fn set_math(&self, math: Math) -> Math {
        MATH.replace(math)
    }

    /// A mark of all work queued so far.
    pub fn mark(&self) -> Option<CudaEvent> {
        self.bind();
        self.note(self.stream.record_event(None))
    }

    /// Copies that are queued from now on wait for the work up to `mark`.
    pub fn copies_after(&self, mark: Option<CudaEvent>) {
        if let Some(mark) = mark {
            self.note(self.copies.wait(&mark));
        }
    }

    /// Copies that are queued from now on wait for all work queued so far.
    pub fn copies_after_work(&self) {
        self.copies_after(self.mark());
    }

    /// Work that is queued from now on waits for all copies queued so far.
    pub fn work_after_copies(&self) {
        self.bind();
        self.note(self.stream.join(&self.copies));
    }

    /// An event on the computing stream; [`Gpu::elapsed_ms`] measures between two.
    pub fn event(&self) -> Option<CudaEvent> {
        self.bind();
        self.note(self.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)))
    }

    /// Milliseconds between two events; waits for the second.
    pub fn elapsed_ms(&self, from: &CudaEvent, to: &CudaEvent) -> Result<f32> {
        let elapsed = self.note(from.elapsed_ms(to));
        self.check()?;
        Ok(elapsed.unwrap_or(f32::NAN))
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{}", self.ordinal)
    }
}

/// The driver's own words for an error.
pub(super) fn words(error: DriverError) -> String {
    match error.error_string() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => format!("error {:?}", error.0),
    }
}

fn count() -> Result<usize, DriverError> {
    cudarc::driver::result::init()?;
    Ok(CudaContext::device_count()?.max(0) as usize)
}

/// One CUDA device as `mercer devices` shows it.
#[derive(Clone, Debug)]
pub struct Description {
    /// `cuda:0`
    pub device: String,
    /// The maker's name.
    pub name: String,
    /// Compute capability, such as 9.0.
    pub capability: String,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes that are free, and all there are.
    pub memory: [u64; 2],
}

/// Every CUDA device, and the versions of the driver and the libraries, or one sentence that says why there is none.
pub fn describe_all() -> Result<(Vec<Description>, Vec<String>)> {
    require_libraries()?;
    let count = count().map_err(|e| Error::Device(format!("the NVIDIA driver does not start: {}", words(e))))?;
    let mut devices = Vec::new();
    for ordinal in 0..count {
        let gpu = gpu(ordinal)?;
        let name = gpu.note(gpu.context.name()).unwrap_or_default();
        let (free, total) = gpu.memory();
        devices.push(Description {
            device: format!("cuda:{ordinal}"),
            name,
            capability: format!("{}.{}", gpu.architecture / 10, gpu.architecture % 10),
            multiprocessors: gpu.multiprocessors,
            memory: [free, total],
        });
        gpu.check()?;
    }
    Ok((devices, versions()))
}

fn versions() -> Vec<String> {
    let cuda = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
    let (mut driver, mut major, mut minor) = (0, 0, 0);
    let (mut blas, mut solver) = ([0; 3], [0; 3]);
    // SAFETY: each call writes one integer; the libraries were found by `require_libraries`.
    unsafe {
        sys::cuDriverGetVersion(&mut driver);
        cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor);
        for (i, what) in {
            use cudarc::cublas::sys::libraryPropertyType_t as P;
            [P::MAJOR_VERSION, P::MINOR_VERSION, P::PATCH_LEVEL]
        }
        .into_iter()
        .enumerate()
        {
            cudarc::cublas::sys::cublasGetProperty(what, &mut blas[i]);
        }
        for (i, what) in {
            use cudarc::cusolver::sys::libraryPropertyType_t as P;
            [P::MAJOR_VERSION, P::MINOR_VERSION, P::PATCH_LEVEL]
        }
        .into_iter()
        .enumerate()
        {
            cudarc::cusolver::sys::cusolverGetProperty(what, &mut solver[i]);
        }
    }
    let dotted = |v: [i32; 3]| format!("{}.{}.{}", v[0], v[1], v[2]);
    vec![
        format!("driver for CUDA {}", cuda(driver)),
        format!("NVRTC {major}.{minor}"),
        format!("cuBLAS {}", dotted(blas)),
        format!("cuSOLVER {}", dotted(solver)),
        dnn::version().map_or("no cuDNN 9: convolutions are slower without it".into(), |v| {
            format!("cuDNN {}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
        }),
    ]
}
