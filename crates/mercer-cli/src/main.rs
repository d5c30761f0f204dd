//! The mercer program: parse, validate, call the library, show.

mod args;
mod certificate;
mod commands;
mod context;
mod input;
mod methods;
mod network;
mod output;
mod progress;
mod score;
mod training;
mod usage;

use args::{Cli, Command};
use clap::Parser;
use context::Context;
use mercer::{Error, Result};
use mercer_figure::text;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match usage::sentence(&error) {
            Some(sentence) => return failed(&sentence, BAD_INPUT),
            None => error.exit(),
        },
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&sentence(&error), exit_code(&error)),
    }
}

fn failed(sentence: &str, code: u8) -> ExitCode {
    eprintln!("error: {sentence}");
    ExitCode::from(code)
}

/// The exit code where the user can put it right by asking otherwise.
const BAD_INPUT: u8 = 2;

fn run(cli: Cli) -> Result<()> {
    let context = Context::new(&cli.globals)?;
    context.device.checked(command(cli.command, &context))
}

fn command(command: Command, context: &Context) -> Result<()> {
    match command {
        Command::Fit(fit) => fit.run(context),
        Command::Transform(transform) => transform.run(context),
        Command::Inspect(inspect) => inspect.run(context),
        Command::Gram(gram) => gram.run(context),
        Command::Ntk(ntk) => ntk.run(context),
        Command::Sample(sample) => sample.run(context),
        Command::Regress(regress) => regress.run(context),
        Command::Embed(embed) => embed.run(context),
        Command::Train(train) => train.run(context),
        Command::Evaluate(evaluate) => evaluate.run(context),
        Command::Kernels(kernels) => kernels.run(context),
        Command::Datasets(datasets) => datasets.run(context),
        Command::Demo(demo) => demo.run(context),
        Command::Reproduce(reproduce) => reproduce.run(context),
        Command::Devices(devices) => devices.run(context),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    }
}

/// [`BAD_INPUT`], or 1 where the computation itself failed.
fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Input(_) | Error::File { .. } | Error::Io { .. } | Error::Memory { .. } | Error::DeviceMemory { .. } => {
            BAD_INPUT
        }
        _ => 1,
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
