//! Settings and output that all commands share: seed, device, memory, results and messages.

use crate::args::Globals;
use crate::output::Output;
use crate::signals::INTERRUPTED;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mercer::compute::Device;
use mercer::operator::Budget;
use mercer::{Error, FitContext, Progress, Result, fail_if};
use serde::Serialize;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// Number of parts that a dense factorisation is divided into.
const PIECES: usize = 8;

/// Most threads for each core.
const MOST_PER_CORE: usize = 8;

/// The global options, checked.
pub struct Context {
    pub seed: u64,
    pub device: Device,
    pub budget: Budget,
    pub json: bool,
    quiet: bool,
}

impl Context {
    /// Checks the options and sets the number of threads.
    pub fn new(globals: &Globals) -> Result<Context> {
        // A missing device is a mistake in the input, not a failure of the computation.
        let device = Device::parse(&globals.device)?.open().map_err(|e| Error::input(e.to_string()))?;
        if let Some(threads) = globals.threads {
            check_threads(threads.into())?;
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global();
            pool.map_err(|e| Error::input(format!("--threads {threads}: {e}")))?;
        }
        // Factorisations are divided into a fixed number of parts, so that the number of threads does not change the result.
        faer::set_global_parallelism(faer::Par::rayon(PIECES));
        let budget = globals.memory.as_deref().map_or_else(|| Ok(Budget::of_free_memory()), Budget::parse)?;
        Ok(Context { seed: globals.seed, device, budget, json: globals.json, quiet: globals.quiet })
    }

    /// The result of a command, on standard output: one JSON object, or text.
    pub fn result(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let mut shown = if self.json { serde_json::to_string(object).expect("results are plain data") } else { text() };
        if !shown.ends_with('\n') {
            shown.push('\n');
        }
        print(shown.as_bytes())
    }

    /// Prints a note on standard error.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            say(text);
        }
    }

    /// Says on standard error that a file was written.
    pub fn wrote(&self, file: &Output) {
        self.note(format_args!("wrote {}", file.path().display()));
    }

    /// Prints a warning on standard error.
    pub fn warn(&self, text: impl Display) {
        self.note(format_args!("warning: {text}"));
    }

    /// What fits are given: the global options, f64, and `progress`.
    pub fn fit<'a>(&self, progress: &'a dyn Progress) -> FitContext<'a> {
        FitContext {
            device: self.device,
            budget: self.budget,
            seed: self.seed,
            progress,
            interrupt: Some(&INTERRUPTED),
            ..FitContext::default()
        }
    }

    /// Runs a computation that shows a progress bar until it ends.
    pub fn fitting<T>(&self, compute: impl FnOnce(&FitContext<'_>) -> Result<T>) -> Result<T> {
        compute(&self.fit(&self.bar()))
    }

    /// A progress bar on standard error; hidden when `quiet`, or when that is not a terminal.
    pub fn bar(&self) -> Bar {
        let target = if self.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{spinner} {prefix} [{bar:24}] {pos}/{len} {elapsed} {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template").progress_chars("━╸ "));
        Bar(bar)
    }
}

/// Shows the steps that the library reports.
pub struct Bar(ProgressBar);

impl Progress for Bar {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        if self.0.prefix() != what {
            self.0.set_prefix(what.to_owned());
            self.0.enable_steady_tick(Duration::from_millis(120));
        }
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
        self.0.set_message(note.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Refuses so many threads that they would mostly wait for each other.
fn check_threads(threads: usize) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = (MOST_PER_CORE * cores).max(PIECES);
    fail_if!(threads > most, "--threads {threads} is too many for {cores} cores; use at most {most}");
    Ok(())
}

/// Writes a line to standard error. Where that is full or closed, the result still matters.
pub fn say(text: impl Display) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Writes to standard output. A closed pipe (`mercer kernels | head`) is not an error.
pub fn print(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::io("standard output".as_ref(), e)),
        _ => Ok(()),
    }
}
