//! The nightly run: see the library's page.

use mercer_fuzz::{Failure, Report, Target, fuzz, replay, targets};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "usage: mercer-fuzz [TARGET…] [--inputs N | --quick] [--seed S] [--processes P] | --replay FILE";

struct Options {
    targets: Vec<String>,
    inputs: u64,
    seed: u64,
    processes: u64,
    replay: Option<PathBuf>,
}

fn options() -> Result<Options, String> {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let processes = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut options = Options { targets: vec![], inputs: 1_000_000, seed, processes, replay: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("{argument} needs a whole number; {USAGE}"))
        };
        match argument.as_str() {
            "--inputs" => options.inputs = number()?,
            "--quick" => options.inputs = 2000,
            "--seed" => options.seed = number()?,
            "--processes" => options.processes = number()?.max(1),
            "--replay" => options.replay = Some(arguments.next().ok_or(USAGE)?.into()),
            name if !name.starts_with('-') => options.targets.push(name.into()),
            other => return Err(format!("unknown option {other}; {USAGE}")),
        }
    }
    Ok(options)
}

/// Where failing inputs go.
fn failures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("failures")
}

fn main() -> ExitCode {
    if let Some(job) = std::env::var_os("MERCER_FUZZ_WORKER") {
        return work(&job.to_string_lossy());
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Memory in place of a disk, where there is such a folder.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a folder for temporary files")
}

fn run() -> Result<bool, String> {
    let options = options()?;
    let folder = scratch();
    let all = targets(folder.path()).map_err(|e| format!("the seeds cannot be made: {e}"))?;
    if let Some(file) = &options.replay {
        return replayed(&all, file, folder.path());
    }
    let known: Vec<&str> = all.iter().map(|target| target.name).collect();
    if let Some(name) = options.targets.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no target {name}; there are {}", known.join(", ")));
    }
    println!("seed {}, {} inputs of each target, {} processes", options.seed, options.inputs, options.processes);
    let mut sound = true;
    for target in &all {
        if !options.targets.is_empty() && !options.targets.iter().any(|name| name == target.name) {
            continue;
        }
        let start = Instant::now();
        let report = spread(target, &options);
        let Report { inputs, accepted, answers, failures } = &report;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{:14} {inputs:>9} inputs, {accepted:>8} accepted, {answers:>4} answers, {seconds:>7.1} s",
            target.name
        );
        for Failure { what, path, times } in failures {
            println!("    FAILED {times} times: {what}\n        {}", path.display());
        }
        sound &= failures.is_empty();
    }
    Ok(sound)
}

fn replayed(all: &[Target], file: &Path, folder: &Path) -> Result<bool, String> {
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let target = all.iter().find(|target| name.starts_with(target.name));
    let target = target.ok_or_else(|| format!("{name} does not begin with the name of a target"))?;
    match replay(target, file, folder) {
        Ok(Ok(())) => println!("accepted"),
        Ok(Err(message)) => println!("refused: {message}"),
        Err(what) => {
            println!("FAILED: {what}");
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs the inputs of a target in processes, each its part, and adds up what they report.
fn spread(target: &Target, options: &Options) -> Report {
    let part = |p: u64| options.inputs * p / options.processes;
    let reports = std::thread::scope(|scope| {
        let parts = (0..options.processes).map(|p| part(p)..part(p + 1));
        let running: Vec<_> = parts.map(|range| scope.spawn(|| supervised(target, options.seed, range))).collect();
        running.into_iter().map(|thread| thread.join().expect("a supervisor does not panic")).collect::<Vec<_>>()
    });
    let mut all = Report::default();
    let mut failures = BTreeMap::<String, Failure>::new();
    for report in reports {
        all.inputs += report.inputs;
        all.accepted += report.accepted;
        all.answers = all.answers.max(report.answers);
        for failure in report.failures {
            let place = failure.what.split(": ").next().unwrap_or_default().to_owned();
            failures.entry(place).and_modify(|known| known.times += failure.times).or_insert(failure);
        }
    }
    Report { failures: failures.into_values().collect(), ..all }
}

/// Processes that may end before their part is done.
const MOST_RESTARTS: usize = 20;

/// Runs a part in a process of its own, and again from the next input on whenever one ends the process.
fn supervised(target: &Target, seed: u64, mut range: std::ops::Range<u64>) -> Report {
    let mut all = Report::default();
    for _ in 0..MOST_RESTARTS {
        let folder = scratch();
        let job = [target.name, &seed.to_string(), &range.start.to_string(), &range.end.to_string()].join(" ");
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program)
            .env("MERCER_FUZZ_WORKER", job)
            .env("MERCER_FUZZ_FOLDER", folder.path())
            .env("RAYON_NUM_THREADS", "1")
            .stderr(Stdio::null())
            .output()
            .expect("a worker can be started");
        if child.status.success() {
            let report = parsed(&String::from_utf8_lossy(&child.stdout));
            all.inputs += report.inputs;
            all.accepted += report.accepted;
            all.answers = all.answers.max(report.answers);
            all.failures.extend(report.failures);
            return all;
        }
        let at = read_index(&folder.path().join("index")).unwrap_or(range.start);
        let bytes = std::fs::read(folder.path().join("current")).unwrap_or_default();
        std::fs::create_dir_all(failures()).expect("the folder of failures can be made");
        let name = std::fs::read_to_string(folder.path().join("name")).unwrap_or_default();
        let path = failures().join(format!("{}-ended-{seed}-{at}-{name}", target.name));
        std::fs::write(&path, bytes).expect("the folder of failures can be written to");
        all.failures.push(Failure { what: format!("the process ended: {}", child.status), path, times: 1 });
        all.inputs += at + 1 - range.start;
        range.start = at + 1;
        if range.is_empty() {
            break;
        }
    }
    all
}

fn read_index(path: &Path) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// An input that takes longer ends its process.
const LONGEST: Duration = Duration::from_secs(60);

/// A worker: reads its part, with the present input in the file `current`, its name in `name` and its number in `index`.
fn work(job: &str) -> ExitCode {
    let words: Vec<&str> = job.split(' ').collect();
    let [name, seed, first, end] = words[..] else { return ExitCode::from(2) };
    let number = |text: &str| text.parse::<u64>().expect("a number of the supervisor");
    let folder = PathBuf::from(std::env::var_os("MERCER_FUZZ_FOLDER").expect("set by the supervisor"));
    let seeds = folder.join("seeds");
    let all = targets(&seeds).expect("the supervisor has made the same seeds");
    let target = all.iter().find(|target| target.name == name).expect("a target of the supervisor");
    let index = std::fs::File::create(folder.join("index")).expect("the folder is ours");
    let started = std::sync::Arc::new(std::sync::Mutex::new(Instant::now()));
    let watched = started.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            if watched.lock().is_ok_and(|at| at.elapsed() > LONGEST) {
                std::process::abort();
            }
        }
    });
    let report = fuzz(target, number(seed), number(first)..number(end), [&folder, &failures()], |at, input| {
        *started.lock().expect("no panic while it is held") = Instant::now();
        index.write_all_at(&at.to_le_bytes(), 0).expect("the folder is ours");
        std::fs::write(folder.join("current"), &input.bytes).expect("the folder is ours");
        std::fs::write(folder.join("name"), &input.name).expect("the folder is ours");
    });
    println!("{} {} {}", report.inputs, report.accepted, report.answers);
    for Failure { what, path, times } in report.failures {
        println!("{times}\t{}\t{}", path.display(), what.replace(['\n', '\t'], " "));
    }
    ExitCode::SUCCESS
}

/// The report that a worker has printed.
fn parsed(text: &str) -> Report {
    let mut lines = text.lines();
    let totals: Vec<u64> = lines.next().unwrap_or_default().split(' ').filter_map(|n| n.parse().ok()).collect();
    let [inputs, accepted, answers] = totals[..] else { return Report::default() };
    let failure = |line: &str| {
        let mut parts = line.splitn(3, '\t');
        let (times, path, what) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Failure { what: what.into(), path: path.into(), times: times.parse().ok()? })
    };
    Report { inputs, accepted, answers: answers as usize, failures: lines.filter_map(failure).collect() }
}
