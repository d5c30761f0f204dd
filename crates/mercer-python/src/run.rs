//! Computations: settings, threads, interrupts and errors.

use mercer::operator::{Budget, Precision};
use mercer::{Device, Error, FitContext, Interrupt, Progress, Result};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
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

/// Runs work that takes long on a thread of its own, without the GIL. At Ctrl-C it is asked to end early with the best result so
/// far; where it has none, or at a second Ctrl-C, `KeyboardInterrupt` is raised at once, and what the thread still computes is
/// dropped.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    settings: &Settings,
    work: impl FnOnce(&FitContext) -> Result<T> + Send + 'static,
) -> PyResult<T> {
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
        let _ = send.send(catch_unwind(AssertUnwindSafe(|| work(&context))));
    });
    let mut asked = false;
    loop {
        let (receiver, received) = py.detach(move || {
            let received = receive.recv_timeout(LOOK);
            (receive, received)
        });
        receive = receiver;
        match received {
            Ok(Ok(result)) => return result.map_err(raised),
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(panicked()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(interrupted) = py.check_signals() {
            let kept = shared.interrupt.request();
            if asked || !kept {
                return Err(interrupted);
            }
            asked = true;
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
        let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
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
