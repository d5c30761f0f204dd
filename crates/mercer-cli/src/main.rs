//! The mercer program: parse, validate, call the library, show.

mod args;
mod certificate;
mod commands;
mod context;
#[allow(dead_code)]
mod figure;
mod input;
mod methods;
mod output;
mod progress;
#[allow(dead_code)]
mod report;
mod text;

use args::{Cli, Command};
use clap::Parser;
use context::Context;
use mercer::{Error, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(exit_code(&error))
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    let context = Context::new(&cli.globals)?;
    match cli.command {
        Command::Fit(fit) => fit.run(&context),
        Command::Transform(transform) => transform.run(&context),
        Command::Inspect(inspect) => inspect.run(&context),
        Command::Gram(gram) => gram.run(&context),
        Command::Kernels(kernels) => kernels.run(&context),
        Command::Datasets(datasets) => datasets.run(&context),
        Command::Demo(demo) => demo.run(&context),
        Command::Completions(completions) => completions.run(),
        Command::Man(man) => man.run(),
    }
}

/// 2 where the user can put it right by asking otherwise, 1 where the computation itself failed.
fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Input(_) | Error::File { .. } | Error::Io { .. } | Error::Memory { .. } => 2,
        _ => 1,
    }
}
