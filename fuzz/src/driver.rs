//! The loop: inputs are made and read, and a failure is noticed, named and saved.

use crate::targets::{Input, Target};
use crate::watch::{MOST_MEMORY, take_largest};
use mercer::rng::Rng;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// A kind of failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What happened, and where.
    pub what: String,
    /// The first input that did it.
    pub path: PathBuf,
    /// How many inputs did it.
    pub times: u64,
}

/// What a run has seen.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Inputs read, the seeds among them.
    pub inputs: u64,
    /// Inputs that were accepted.
    pub accepted: u64,
    /// Different answers, up to the numbers in them.
    pub answers: usize,
    /// One entry for each kind of failure.
    pub failures: Vec<Failure>,
}

/// No refusal is longer, however long its input is.
const LONGEST_MESSAGE: usize = 2000;
/// No input takes longer.
const LONGEST: Duration = Duration::from_secs(10);
/// Inputs that are kept because of their answer.
const MOST_KEPT: usize = 400;

/// Reads the seeds of `target` and then the inputs `range` that follow from `seed`, in files of the folder `scratch`. Failing
/// inputs are saved in the folder `failures`. `begin` is called before each input is read.
pub fn fuzz(
    target: &Target,
    seed: u64,
    range: Range<u64>,
    [scratch, failures]: [&Path; 2],
    mut begin: impl FnMut(u64, &Input),
) -> Report {
    let (mut report, mut answers) = (Report::default(), HashSet::new());
    let (mut pool, mut found) = (target.seeds.clone(), BTreeMap::<String, Failure>::new());
    assert!(!pool.is_empty(), "the corpus of {} is empty", target.name);
    let (base, first) = (Rng::new(seed).fork(hash(target.name)), range.start);
    let seeds: Vec<Input> = pool.clone();
    let mut next = seeds.into_iter();
    let mut index = range.start;
    while index < range.end {
        // The seeds come first, and are not counted.
        let (at, input) = match next.next() {
            Some(seed) => (first, seed),
            None => {
                index += 1;
                (index - 1, target.input(&mut base.fork(index - 1), &pool, &scratch.join("edited")))
            }
        };
        begin(at, &input);
        report.inputs += 1;
        let answer = match attempt(target, &input, scratch) {
            Ok(answer) => answer,
            Err(what) => {
                let failure = found.entry(shape(&what)).or_insert_with(|| {
                    let path = save(target, &input, failures);
                    Failure { what, path, times: 0 }
                });
                failure.times += 1;
                continue;
            }
        };
        report.accepted += u64::from(answer.is_ok());
        let kind = answer.err().map_or("accepted".into(), |message| shape(&message));
        if answers.insert(kind) && pool.len() < target.seeds.len() + MOST_KEPT {
            pool.push(input);
        }
    }
    Report { answers: answers.len(), failures: found.into_values().collect(), ..report }
}

/// Reads one file as `target` would.
pub fn replay(target: &Target, file: &Path, scratch: &Path) -> Result<Result<(), String>, String> {
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let bytes = std::fs::read(file).map_err(|e| e.to_string())?;
    attempt(target, &Input { name, bytes }, scratch)
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// From now on, the message and the place of a panic are kept.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
            let (text, owned) = (info.payload().downcast_ref::<&str>(), info.payload().downcast_ref::<String>());
            let what = text.copied().or(owned.map(String::as_str)).unwrap_or("a panic");
            *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = format!("{place}: {what}");
            if std::env::var_os("MERCER_FUZZ_WORKER").is_none() {
                before(info);
            }
        }));
    });
}

/// Whether the input is accepted or refused; an error if that is not how it ends.
fn attempt(target: &Target, input: &Input, scratch: &Path) -> Result<Result<(), String>, String> {
    keep_panics();
    let path = scratch.join(&input.name);
    std::fs::write(&path, &input.bytes).expect("the scratch folder can be written to");
    take_largest();
    let start = Instant::now();
    let answer = catch_unwind(AssertUnwindSafe(|| (target.check)(&path)));
    let (largest, seconds) = (take_largest(), start.elapsed());
    let answer = answer.map_err(|_| LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
    if largest > MOST_MEMORY {
        return Err(format!("asked for {} MB at once", largest >> 20));
    }
    let length = answer.as_ref().err().map_or(0, |message| message.chars().count());
    if length > LONGEST_MESSAGE {
        return Err(format!("a message of {length} characters"));
    }
    if seconds > LONGEST {
        return Err(format!("took {} s", seconds.as_secs()));
    }
    Ok(answer)
}

/// A message without its numbers and names, so that two inputs with the same fault count as one.
pub(crate) fn shape(message: &str) -> String {
    let place = message.find(".rs:").and_then(|at| message[at..].find(": ").map(|end| at + end));
    // The place of a panic says which it is.
    if let Some(end) = place {
        return message[..end].to_owned();
    }
    let (mut shape, mut quoted) = (String::new(), None);
    for c in message.chars() {
        match quoted {
            Some(end) if c == end => quoted = None,
            Some(_) => {}
            None if matches!(c, '"' | '\'') => quoted = Some(c),
            None if c.is_ascii_digit() => {}
            None => shape.push(c),
        }
    }
    shape.truncate(shape.char_indices().nth(200).map_or(shape.len(), |(at, _)| at));
    shape
}

pub(crate) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Saves a failing input as `TARGET-HASH-NAME`.
pub(crate) fn save(target: &Target, input: &Input, failures: &Path) -> PathBuf {
    std::fs::create_dir_all(failures).expect("the folder of failures can be made");
    let path = failures.join(format!("{}-{:08x}-{}", target.name, hash(&input.bytes) as u32, input.name));
    std::fs::write(&path, &input.bytes).expect("the folder of failures can be written to");
    path
}
