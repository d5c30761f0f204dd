//! The mercer program: parse, validate, call the library, show.

mod args;
mod certificate;
mod codes;
mod columns;
mod commands;
mod context;
mod distributed;
mod examples;
mod files;
mod function_files;
mod gp_page;
mod graph;
mod hits_page;
mod input;
mod judging;
mod keeping;
mod learning;
mod learnt;
mod memory;
mod network;
mod noted;
mod offered;
mod output;
mod page;
mod posterior;
mod precomputed;
mod process;
mod progress;
mod regress_page;
mod score;
mod signals;
mod solving;
mod training;
mod uncertainty;
mod uncertainty_page;
mod units;
mod usage;
mod values;
mod ways;

use args::{Cli, Command};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use context::Context;
use mercer::{Error, Result};
use mercer_figure::text;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    signals::explain_truncated_files();
    signals::listen();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    distributed::end(distributed::begin(&arguments).and_then(|()| run(arguments)))
}

/// The exit code where the user can put it right by asking otherwise.
const BAD_INPUT: u8 = 2;

fn run(arguments: Vec<OsString>) -> Result<()> {
    let (mut arguments, (mut cli, mut matches)) = (arguments.clone(), parsed(arguments)?);
    if let (Command::Run(file), Some((_, given))) = (&cli.command, matches.subcommand()) {
        files::check(&matches, None)?;
        arguments = file.arguments(given)?.into_iter().map(OsString::from).collect();
        let options = file.file.clone();
        (cli, matches) = parsed(arguments.clone())?;
        files::check(&matches, Some(&options))?;
    }
    files::check(&matches, None)?;
    distributed::check(&cli)?;
    if let Some(path) = &cli.globals.save_config {
        commands::run::save(path, &matches)?;
    }
    let context = Context::new(&cli.globals, &arguments)?;
    distributed::check_same_program(&context)?;
    context.device.checked(cli.command.run(&context))?;
    context.into_unwritten()
}

/// The arguments, understood; what is not a mistake, such as `--help`, ends the program.
fn parsed(arguments: Vec<OsString>) -> Result<(Cli, ArgMatches)> {
    let parsed = Cli::command().try_get_matches_from(arguments);
    parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches))).map_err(|error| {
        match usage::sentence(&error) {
            Some(sentence) => Error::Input(sentence),
            None => distributed::end_with_text(&error),
        }
    })
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
