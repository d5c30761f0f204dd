//! Computations: settings, threads, forks, interrupts and errors.

use mercer::operator::{Budget, Precision};
use mercer::{Device, Error, FitContext, Interrupt, Progress, Result};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Settings of a computation: seed, device, precision, memory, progress.
#[pyclass(frozen, module = "mercer._mercer")]
pub struct Settings {
    pub seed: u64,
    pub device: Device,
    pub precision: Precision,
    memory: Option<Budget>,
    progress: Option<Py<PyAny>>,
}

#[pymethods]
impl Settings {
    /// `progress(what, done, total, note)` is called a few times a second.
    #[new]
    #[pyo3(signature = (seed=0, device="cpu", precision="f64", memory=None, progress=None))]
    fn new(
        seed: u64,
        device: &str,
        precision: &str,
        memory: Option<&str>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Settings> {
        let precision = match precision {
            "f64" => Precision::F64,
            "f32" => Precision::F32,
            "tf32" => Precision::Tf32,
            other => return Err(raised(Error::unknown("precision", other, ["f64", "f32", "tf32"]))),
        };
        let device = Device::parse(device).and_then(Device::open).map_err(raised)?;
        let memory = memory.map(Budget::parse).transpose().map_err(raised)?;
        Ok(Settings { seed, device, precision, memory, progress })
    }
}

impl Settings {
    /// What may be allocated; asked for where it matters, because the system takes its time to say what is free.
    pub fn budget(&self) -> Budget {
        self.memory.unwrap_or_else(Budget::of_free_memory)
    }

    /// A context without progress and interrupts, for work that takes no time.
    pub fn brief(&self) -> FitContext<'static> {
        let budget = self.memory.unwrap_or(Budget::of(u64::MAX));
        let interrupt = None;
        FitContext {
            device: self.device,
            precision: self.precision,
            budget,
            seed: self.seed,
            data: "",
            progress: &mercer::Silent,
            interrupt,
            group: mercer::Group::SINGLE,
        }
    }
}

/// The exception of an error: a `ValueError` with its sentence, or an `OSError` where a file cannot be reached.
pub fn raised(error: Error) -> PyErr {
    match error {
        Error::Io { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// The newest progress, and the request to end early.
#[derive(Default)]
struct Shared {
    interrupt: Interrupt,
    latest: Mutex<Option<(String, usize, usize, String)>>,
}

impl Progress for Shared {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        *self.latest.lock().expect("no panic") = Some((what.to_owned(), done, total, note.to_owned()));
    }
}

/// The threads of a process that was forked: the pool that it has from its parent has none there. Null in any other process.
static OWN_THREADS: AtomicPtr<OnceLock<ThreadPool>> = AtomicPtr::new(null_mut());

/// Tells a process that it was forked: it gets threads of its own when it first needs them.
#[pyfunction]
pub fn forked() {
    OWN_THREADS.store(Box::into_raw(Box::default()), Ordering::Release);
}

/// Does work of the library on threads that this process has.
pub fn here<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // SAFETY: what is stored there is never freed.
    match unsafe { OWN_THREADS.load(Ordering::Acquire).as_ref() } {
        None => work(),
        Some(own) => {
            own.get_or_init(|| ThreadPoolBuilder::new().build().expect("threads can be started")).install(work)
        }
    }
}

/// What came of a computation, and the exception of the Ctrl-C that ended it early.
pub struct Ended<T> {
    pub result: T,
    pub interrupted: Option<PyErr>,
}

/// As [`run_to_interrupt`], where a result that is not complete is of no use: the exception of a Ctrl-C is raised.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    settings: &Settings,
    work: impl FnOnce(&FitContext) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let Ended { result, interrupted } = run_to_interrupt(py, settings, work)?;
    interrupted.map_or(Ok(result), Err)
}

/// Runs work that takes long on a thread of its own, without the GIL. At Ctrl-C it is asked to end early with the best result so
/// far; where it has none, or at a second Ctrl-C, `KeyboardInterrupt` is raised at once, and what the thread still computes is
/// dropped.
pub fn run_to_interrupt<T: Send + 'static>(
    py: Python<'_>,
    settings: &Settings,
    work: impl FnOnce(&FitContext) -> Result<T> + Send + 'static,
) -> PyResult<Ended<T>> {
    const LOOK: Duration = Duration::from_millis(50);
    let shared = Arc::new(Shared::default());
    let (send, mut receive) = channel();
    let (device, precision, seed, budget) = (settings.device, settings.precision, settings.seed, settings.budget());
    let own = shared.clone();
    std::thread::spawn(move || {
        let (progress, interrupt) = (&*own, Some(&own.interrupt));
        let context =
            FitContext { device, precision, budget, seed, data: "", progress, interrupt, group: mercer::Group::SINGLE };
        // Where nobody waits any more, the result is dropped.
        let _ = send.send(catch_unwind(AssertUnwindSafe(|| here(|| work(&context)))));
    });
    let mut asked = None;
    loop {
        let (receiver, received) = py.detach(move || {
            let received = receive.recv_timeout(LOOK);
            (receive, received)
        });
        receive = receiver;
        match received {
            Ok(Ok(Ok(result))) => return Ok(Ended { result, interrupted: asked }),
            Ok(Ok(Err(error))) => return Err(asked.unwrap_or_else(|| raised(error))),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(panicked()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(interrupted) = py.check_signals() {
            let kept = shared.interrupt.request();
            if asked.is_some() || !kept {
                return Err(interrupted);
            }
            asked = Some(interrupted);
        }
        if let Some(progress) = &settings.progress {
            let latest = shared.latest.lock().expect("no panic").take();
            if let Some(latest) = latest {
                progress.call1(py, latest)?;
            }
        }
    }
}

/// Multiply-adds up to which [`evaluate`] starts no thread.
const FEW: usize = 100_000_000;

/// Evaluates what was fitted, without the GIL; `cost` is a number of multiply-adds. What takes long can be interrupted.
pub fn evaluate<T: Send + 'static>(
    py: Python<'_>,
    cost: usize,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    if cost <= FEW {
        let done = py.detach(|| catch_unwind(AssertUnwindSafe(|| here(work))));
        return done.map_err(|_| panicked())?.map_err(raised);
    }
    let brief = Settings {
        seed: 0,
        device: Device::Cpu,
        precision: Precision::F64,
        memory: Some(Budget::of(u64::MAX)),
        progress: None,
    };
    run(py, &brief, |_| work())
}

fn panicked() -> PyErr {
    PyRuntimeError::new_err("the computation ended by a mistake in Mercer; please report it with the message above")
}
