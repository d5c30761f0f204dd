//! The mercer program: parse, validate, call the library, show.

mod args;
mod commands;
mod options;
mod program;
mod show;

use args::{Cli, Command};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use mercer::{Error, Result};
use mercer_figure::text;
use program::context::Context;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    program::signals::explain_truncated_files();
    program::signals::listen();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    program::distributed::end(program::distributed::begin(&arguments).and_then(|()| run(arguments)))
}

/// The exit code where the user can put it right by asking otherwise.
const BAD_INPUT: u8 = 2;

fn run(arguments: Vec<OsString>) -> Result<()> {
    let (mut arguments, (mut cli, mut matches)) = (arguments.clone(), parsed(arguments)?);
    if let (Command::Run(file), Some((_, given))) = (&cli.command, matches.subcommand()) {
        program::files::check(&matches, None)?;
        arguments = file.arguments(given)?.into_iter().map(OsString::from).collect();
        let options = file.file.clone();
        (cli, matches) = parsed(arguments.clone())?;
        program::files::check(&matches, Some(&options))?;
    }
    program::files::check(&matches, None)?;
    program::distributed::check(&cli)?;
    if let Some(path) = &cli.globals.save_config {
        commands::run::save(path, &matches)?;
    }
    let context = Context::new(&cli.globals, &arguments)?;
    program::distributed::check_same_program(&context)?;
    context.device.checked(cli.command.run(&context))?;
    context.into_unwritten()
}

/// The arguments, understood; what is not a mistake, such as `--help`, ends the program.
fn parsed(arguments: Vec<OsString>) -> Result<(Cli, ArgMatches)> {
    let parsed = Cli::command().try_get_matches_from(arguments);
    parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches))).map_err(|error| {
        match program::usage::sentence(&error) {
            Some(sentence) => Error::Input(sentence),
            None => program::distributed::end_with_text(&error),
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
        other => program::usage::with_options(&other.to_string()),
    }
}
