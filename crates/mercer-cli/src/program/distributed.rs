//! Runs of several ranks: how they begin, what they must agree on, and how they end.

use crate::args::{Cli, Command};
use crate::program::context::{self, Context};
use crate::program::signals;
use crate::{exit_code, sentence};
use clap::CommandFactory;
use mercer::compute::Device;
use mercer::data::Dataset;
use mercer::group::{Launcher, Mpi, NcclRanks, Ranks, Rendezvous};
use mercer::{Error, Fingerprint, Group, Result, fail_if};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// The ranks of this run, where there are several.
static RANKS: OnceLock<&'static Mpi> = OnceLock::new();

/// The same as members of a group.
static MEMBERS: OnceLock<Arc<dyn Ranks>> = OnceLock::new();

/// The GPU of this rank, where the ranks go by NCCL alone.
static GPU: OnceLock<Device> = OnceLock::new();

/// Begins a run of several ranks, where a launcher started this process as one of them or `--distributed` is given.
pub fn begin(arguments: &[OsString]) -> Result<()> {
    let (launcher, asked) = (Launcher::detect(), arguments.iter().any(|word| word == "--distributed"));
    if asked {
        let given = Cli::command().ignore_errors(true).try_get_matches_from(arguments).ok();
        let command = given.as_ref().and_then(|given| given.subcommand_name());
        // Those of a file of options are known when it is read.
        fail_if!(command.is_some_and(|name| !["fit", "regress", "run", "help"].contains(&name)), "{}", NOT_ON_RANKS);
    }
    // torchrun says its name; other programs set the same variables where they mean something else.
    let by_torch = asked || std::env::var_os("TORCHELASTIC_RUN_ID").is_some();
    if launcher.is_none()
        && by_torch
        && let Some(rendezvous) = Rendezvous::detect()?
        && (asked || rendezvous.size > 1)
    {
        return join(&rendezvous);
    }
    if launcher.is_none() && !asked {
        return Ok(());
    }
    let ranks = Mpi::start(launcher).inspect_err(|_| {
        // One message for all.
        if launcher.and_then(|launcher| launcher.rank).is_some_and(|rank| rank > 0) {
            std::process::exit(crate::BAD_INPUT.into());
        }
    })?;
    MEMBERS.get_or_init(|| Arc::new(ranks));
    RANKS.get_or_init(|| ranks);
    Ok(())
}

/// Begins a run of ranks without MPI, each with a GPU of its own: that of its number on the host, or the only one that it sees.
fn join(rendezvous: &Rendezvous) -> Result<()> {
    let missing = |e: Error| Error::input(format!("ranks without MPI compute on a GPU each, and {e}"));
    let gpus = Device::count().map_err(missing)?;
    let gpu = Device::Cuda(if gpus == 1 { 0 } else { rendezvous.local_rank });
    let ranks = NcclRanks::join(rendezvous, gpu.open().map_err(missing)?, Rendezvous::PATIENCE)?;
    GPU.get_or_init(|| gpu);
    MEMBERS.get_or_init(|| Arc::new(ranks));
    Ok(())
}

/// The device of this rank, for `asked`.
pub fn device(asked: Device) -> Result<Device> {
    let Some(gpu) = GPU.get() else { return Ok(asked) };
    fail_if!(
        asked == Device::Cpu,
        "ranks without MPI compute on a GPU each; add --device cuda, or start them by mpirun"
    );
    Ok(*gpu)
}

/// The ranks that compute together.
pub fn group() -> Group<'static> {
    MEMBERS.get().map_or(Group::SINGLE, Group::new)
}

/// Why other commands do not.
const NOT_ON_RANKS: &str = "only `mercer fit` and `mercer regress` run on several ranks; start this command without a launcher and without \
                            --distributed";

/// Refuses the commands that do not run on several ranks.
pub fn check(cli: &Cli) -> Result<()> {
    let asked = cli.globals.distributed || !group().is_single();
    fail_if!(asked && !matches!(cli.command, Command::Fit(_) | Command::Regress(_)), "{}", NOT_ON_RANKS);
    Ok(())
}

/// Refuses `value` where a rank has another one: all must have the same `what`.
pub fn agree(what: &str, value: &[u8]) -> Result<()> {
    let other = group().first_other(value)?;
    other.map_or(Ok(()), |rank| {
        Err(Error::input(format!("rank {rank} has another {what} than rank 0; start all ranks with the same {what}")))
    })
}

/// Refuses ranks whose rows differ.
pub fn check_same_rows(train: &Dataset) -> Result<()> {
    if group().is_single() {
        return Ok(());
    }
    let x = train.x.to_f64();
    let known = format!("{:?} {:?}", train.x.rows().dim(), train.y);
    agree("data file", &checksum(known.bytes().chain(x.iter().flat_map(|v| v.to_le_bytes()))))
}

/// Refuses ranks of another program or with other arguments, and says which process each rank is: a launcher may name one that dies by its
/// process.
pub fn check_same_program(context: &Context) -> Result<()> {
    if group().is_single() {
        return Ok(());
    }
    // The code itself: builds of one version may differ.
    let code = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    agree("version of the program", &checksum(env!("CARGO_PKG_VERSION").bytes().chain(code)))?;
    agree("command line", context.command.as_bytes())?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let own = format!("{} {}", std::process::id(), host.trim());
    let all: Vec<String> =
        group().all_gather(own.as_bytes())?.iter().map(|own| String::from_utf8_lossy(own).into_owned()).collect();
    let ranks: Vec<(&str, &str)> = all.iter().filter_map(|own| own.split_once(' ')).collect();
    let mut first = 0;
    for of_host in ranks.chunk_by(|a, b| a.1 == b.1) {
        let processes: Vec<&str> = of_host.iter().map(|(process, _)| *process).collect();
        let last = first + of_host.len() - 1;
        context.note(format_args!("ranks {first} to {last} on {}: processes {}", of_host[0].1, processes.join(" ")));
        first = last + 1;
    }
    Ok(())
}

/// A checksum of bytes.
fn checksum(bytes: impl Iterator<Item = u8>) -> [u8; 8] {
    Fingerprint::of(bytes.map(u64::from)).to_bytes()
}

/// Ends the run with its result: one message where all ranks have failed, and else that of the rank that has, which ends all others.
pub fn end(result: Result<()>) -> ExitCode {
    match (result, RANKS.get()) {
        (Ok(()), ranks) => {
            ranks.iter().for_each(|ranks| ranks.finish());
            signals::exit_code()
        }
        // Without MPI, the launcher ends the others.
        (Err(error), None) if !group().is_single() => {
            failed(&format!("rank {} of {}: ", group().rank(), group().size()), &error)
        }
        (Err(error), None) => failed("", &error),
        (Err(error), Some(ranks)) if ranks.all_failed() => {
            if ranks.is_first() {
                failed("", &error);
            }
            // A launcher ends all ranks when one has ended with an error: it is to be told before.
            ranks.finish();
            ExitCode::from(exit_code(&error))
        }
        (Err(error), Some(ranks)) => {
            failed(&format!("rank {} of {}: ", group().rank(), group().size()), &error);
            ranks.abort(exit_code(&error))
        }
    }
}

/// Ends the run where the arguments ask for nothing but text, such as `--help`.
pub fn end_with_text(text: &clap::Error) -> ! {
    let first = RANKS.get().is_none_or(|ranks| ranks.is_first());
    let printed = if first { text.print().and_then(|()| std::io::stdout().flush()) } else { Ok(()) };
    RANKS.get().iter().for_each(|ranks| ranks.finish());
    // A closed pipe is no error.
    if let Err(error) = printed.or_else(|e| if e.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(e) }) {
        failed("", &Error::io("standard output".as_ref(), error));
        std::process::exit(crate::BAD_INPUT.into());
    }
    std::process::exit(text.exit_code())
}

fn failed(who: &str, error: &Error) -> ExitCode {
    context::say(format_args!("error: {who}{}", sentence(error)));
    ExitCode::from(exit_code(error))
}
