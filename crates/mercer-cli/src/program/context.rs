//! Settings and output that all commands share: seed, device, memory, results and messages.

use crate::args::Globals;
use crate::program::distributed;
use crate::program::output::Output;
use crate::program::progress::Shown;
use crate::program::signals::{self, INTERRUPT};
use crate::text;
use mercer::apply::Memory;
use mercer::compute::cuda::gpu;
use mercer::compute::{Device, ledger};
use mercer::error::human_bytes;
use mercer::operator::Budget;
use mercer::operator::memory::peak_memory;
use mercer::{Error, FitContext, Group, Progress, Result, fail_if};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Instant;

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
    /// The command line, as a shell takes it.
    pub command: String,
    /// The ranks that run it; the first of them prints.
    pub group: Group<'static>,
    quiet: bool,
    verbose: bool,
    started: Instant,
    /// Why the first of the files that could not be written was not.
    unwritten: OnceLock<Error>,
}

/// A result, and what all of it cost.
#[derive(Serialize)]
struct WithCost<'a, T> {
    #[serde(flatten)]
    object: &'a T,
    /// Seconds since the program started: reading, fitting, certifying and writing.
    total_seconds: f64,
    /// The most memory that the program held at a time, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory: Option<u64>,
    /// The same of a GPU's memory, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_memory: Option<u64>,
    /// Where a GPU was asked for: what ran there, and what ran on the CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    work: Vec<Work>,
}

/// Work that ran on a device, `times` times.
#[derive(Serialize)]
struct Work {
    work: &'static str,
    device: String,
    times: u64,
}

impl Context {
    /// Checks the options and sets the number of threads.
    pub fn new(globals: &Globals, arguments: &[OsString]) -> Result<Context> {
        // A missing device is a mistake in the input, not a failure of the computation.
        let device = distributed::device(Device::parse(&globals.device)?)?;
        let device = device.open().map_err(|e| Error::input(e.to_string()))?;
        if let Some(threads) = globals.threads {
            check_threads(threads.into())?;
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global();
            pool.map_err(|e| Error::input(format!("--threads {threads}: {e}")))?;
        }
        // Factorisations are divided into a fixed number of parts, so that the number of threads does not change the result.
        faer::set_global_parallelism(faer::Par::rayon(PIECES));
        let budget = globals.memory.as_deref().map_or_else(|| Ok(Budget::of_free_memory()), Budget::parse)?;
        let command = command_line(arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()));
        let Globals { seed, json, quiet, verbose, .. } = *globals;
        let group = distributed::group();
        let quiet = quiet || group.rank() > 0;
        Ok(Context {
            seed,
            device,
            budget,
            json,
            command,
            group,
            quiet,
            verbose,
            started: Instant::now(),
            unwritten: OnceLock::new(),
        })
    }

    /// The result of a command, on standard output: one JSON object, or text.
    pub fn result(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        signals::agree(self.group)?;
        if self.group.rank() > 0 {
            return Ok(());
        }
        let mut shown = if self.json { json_of(object) } else { visible(&text()) };
        if !shown.is_empty() && !shown.ends_with('\n') {
            shown.push('\n');
        }
        print(shown.as_bytes())
    }

    /// The result of a command that takes long: as [`Self::result`], with its whole time and the most memory that it held.
    pub fn costly_result(&self, object: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        self.estimated_result(object, None, text)
    }

    /// The same, beside the memory that was expected.
    pub fn estimated_result(
        &self,
        object: &impl Serialize,
        expected: Option<Memory>,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        let (total_seconds, peak_memory) = (self.started.elapsed().as_secs_f64(), peak_memory());
        let (work, device_memory) = (self.work(), self.device_memory());
        let where_it_ran = sentence(&work);
        self.result(&WithCost { object, total_seconds, peak_memory, device_memory, work }, text)?;
        let said = |held: Option<u64>, of: &str, expected: Option<u64>| {
            let expected = expected.map(|bytes| format!(" (expected {})", human_bytes(bytes))).unwrap_or_default();
            held.map(|bytes| format!("{} of {of}{expected}", human_bytes(bytes)))
        };
        let host = said(peak_memory, "memory", expected.map(|memory| memory.host));
        let device = said(device_memory, &self.device.to_string(), expected.and_then(|memory| memory.device));
        let parts: Vec<String> = host.into_iter().chain(device).collect();
        let memory = if parts.is_empty() { String::new() } else { format!(", at most {}", parts.join(" and ")) };
        self.note(format_args!("total: {}{memory}", text::seconds(total_seconds)));
        if !where_it_ran.is_empty() {
            self.note(where_it_ran);
        }
        Ok(())
    }

    /// The most memory of the GPU that the program held at a time, where a GPU was asked for.
    fn device_memory(&self) -> Option<u64> {
        match self.device {
            Device::Cuda(ordinal) => gpu(ordinal).ok().map(|gpu| gpu.peak_memory()),
            Device::Cpu => None,
        }
    }

    /// What ran on the GPU and what on the CPU, where a GPU was asked for.
    fn work(&self) -> Vec<Work> {
        if self.device == Device::Cpu {
            return vec![];
        }
        let told = ledger::work().into_iter();
        told.map(|(work, device, times)| Work { work, device: device.to_string(), times }).collect()
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

    /// Says that a file of the result was written. One that could not be written ends the program with an error, after it has printed the
    /// result.
    pub fn written(&self, file: &Output, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.wrote(file),
            // The first one is told in the end.
            Err(error) => drop(self.unwritten.set(error)),
        }
    }

    /// The error of a file that could not be written.
    pub fn into_unwritten(self) -> Result<()> {
        self.unwritten.into_inner().map_or(Ok(()), Err)
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
            interrupt: Some(&INTERRUPT),
            group: self.group,
            ..FitContext::default()
        }
    }

    /// Runs a computation that shows a progress bar until it ends.
    pub fn fitting<T>(&self, compute: impl FnOnce(&FitContext<'_>) -> Result<T>) -> Result<T> {
        compute(&self.fit(&self.bar()))
    }

    /// Progress on standard error, until it is dropped.
    pub fn bar(&self) -> Shown {
        Shown::new(self.quiet, self.verbose)
    }
}

/// An object on one line; it says so where the run was cut short.
fn json_of(object: &impl Serialize) -> String {
    let mut text = serde_json::to_string(object).expect("results are plain data");
    if signals::cut_short() {
        let mut object: Value = serde_json::from_str(&text).expect("it was just written");
        object["stop"] = "interrupted".into();
        text = object.to_string();
    }
    // Controls stand in strings only, where JSON has its own form for them.
    escaped(&text, |c| format!("\\u{:04x}", c as u32))
}

/// Text for a terminal: control characters, which a name in a file may hold, are shown as in `\u{1b}` and not sent.
fn visible(text: &str) -> String {
    escaped(text, |c| c.escape_default().to_string())
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let is_harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(is_harmless) {
        return text.to_owned();
    }
    text.chars().map(|c| if is_harmless(c) { c.to_string() } else { escape(c) }).collect()
}

/// `ran on cuda:0: products with the kernel matrix (12); on cpu: choices of landmarks (1)`, or nothing.
fn sentence(work: &[Work]) -> String {
    let mut devices: Vec<&str> = work.iter().map(|work| work.device.as_str()).collect();
    // GPUs first.
    devices.sort_unstable_by(|a, b| b.cmp(a));
    devices.dedup();
    let of = |device: &str| {
        let here = work.iter().filter(|work| work.device == device);
        let list: Vec<String> = here.map(|work| format!("{} ({})", work.work, work.times)).collect();
        format!("on {device}: {}", list.join(", "))
    };
    match devices.is_empty() {
        true => String::new(),
        false => format!("ran {}", devices.into_iter().map(of).collect::<Vec<_>>().join("; ")),
    }
}

/// Refuses so many threads that they would mostly wait for each other.
fn check_threads(threads: usize) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = (MOST_PER_CORE * cores).max(PIECES);
    fail_if!(threads > most, "--threads {threads} is too many for {cores} cores; use at most {most}");
    Ok(())
}

/// The command line of the program with these arguments, as a shell takes it.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    ["mercer".to_owned()].into_iter().chain(arguments.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// Writes a line to standard error. Where that is full or closed, the result still matters.
pub fn say(text: impl Display) {
    let _ = std::io::stderr().write_all((visible(&text.to_string()) + "\n").as_bytes());
}

/// Writes to standard output. A closed pipe (`mercer kernels | head`) is not an error.
pub fn print(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Error::io("standard output".as_ref(), e)),
        _ => Ok(()),
    }
}

#[test]
fn command_lines_are_quoted_for_a_shell() {
    let words = ["fit", "a b.csv", "--kernel", "rbf(1)", "--net", "it's", ""].map(String::from);
    assert_eq!(command_line(words.into_iter()), r"mercer fit 'a b.csv' --kernel 'rbf(1)' --net 'it'\''s' ''");
}

#[test]
fn work_is_told_device_by_device() {
    let of = |work, device: &str, times| Work { work, device: device.into(), times };
    let work = [of("choices of landmarks", "cpu", 1), of("products", "cpu", 2), of("products", "cuda:0", 30)];
    assert_eq!(sentence(&work), "ran on cuda:0: products (30); on cpu: choices of landmarks (1), products (2)");
    assert_eq!(sentence(&[]), "");
}

#[test]
fn control_characters_are_shown_and_not_sent() {
    assert_eq!(visible("a\u{1b}[31m\u{7f}\u{9b}\r\n\tä"), "a\\u{1b}[31m\\u{7f}\\u{9b}\\r\n\tä");
    let object = serde_json::json!({ "name": "a\u{1b}\u{9b}\u{7f}" });
    let text = json_of(&object);
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
}
