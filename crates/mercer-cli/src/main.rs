//! The mercer program: parse, validate, call the library, show.

mod args;
mod certificate;
mod commands;
mod context;
mod files;
mod input;
mod learning;
mod methods;
mod network;
mod output;
mod precomputed;
mod score;
mod signals;
mod training;
mod usage;

use args::Cli;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use context::Context;
use mercer::{Error, Result};
use mercer_figure::text;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    signals::explain_truncated_files();
    let parsed = Cli::command().try_get_matches();
    let (cli, matches) = match parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches))) {
        Ok(parsed) => parsed,
        Err(error) => match usage::sentence(&error) {
            Some(sentence) => return failed(&sentence, BAD_INPUT),
            None => error.exit(),
        },
    };
    match run(cli, &matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&sentence(&error), exit_code(&error)),
    }
}

fn failed(sentence: &str, code: u8) -> ExitCode {
    context::say(format_args!("error: {sentence}"));
    ExitCode::from(code)
}

/// The exit code where the user can put it right by asking otherwise.
const BAD_INPUT: u8 = 2;

fn run(cli: Cli, matches: &ArgMatches) -> Result<()> {
    files::check(matches)?;
    let context = Context::new(&cli.globals)?;
    context.device.checked(cli.command.run(&context))
}

/// [`BAD_INPUT`], or 1 where the computation itself failed.
fn exit_code(error: &Error) -> u8 {
    use Error::{DeviceMemory, File, Input, Io, Memory};
    if matches!(error, Input(_) | File { .. } | Io { .. } | Memory { .. } | DeviceMemory { .. }) {
        BAD_INPUT
    } else {
        1
    }
}

fn sentence(error: &Error) -> String {
    match error {
        Error::Io { path, source } if source.kind() == ErrorKind::NotFound => {
            format!("{}: there is no such file; check the path", path.display())
        }
        other => usage::with_options(&other.to_string()),
    }
}
