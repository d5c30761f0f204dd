//! `mercer completions` and `mercer man`: a completion script and the man page, made from the definitions of the arguments.

use crate::args::Cli;
use crate::program::context::{Context, print};
use crate::program::output::NewFile;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use mercer::error::did_you_mean;
use mercer::{Error, Result};

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "Example:\n  mercer completions bash > ~/.local/share/bash-completion/completions/mercer")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self, _: &Context) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "mercer", &mut script);
        print(&script)
    }
}

/// Print the man page of the program, or of one of its commands
#[derive(Args)]
#[command(after_help = "Examples:\n  mercer man fit | man -l -\n  mercer man --out ~/.local/share/man/man1")]
pub struct Man {
    /// The command [default: the program itself]
    command: Option<String>,

    /// Write a page for every command into this folder instead
    #[arg(long, short, value_name = "FOLDER", conflicts_with = "command")]
    out: Option<NewFile>,
}

impl Man {
    pub fn run(self, _: &Context) -> Result<()> {
        if let Some(folder) = self.out {
            return clap_mangen::generate_to(Cli::command(), &*folder).map_err(|e| Error::io(&folder, e));
        }
        let mut program = Cli::command();
        // The options of every command become options of each.
        program.build();
        let command = match &self.command {
            None => &program,
            Some(name) => subcommand(&program, name)?,
        };
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone())
            .render(&mut page)
            .map_err(|e| Error::io("standard output".as_ref(), e))?;
        print(&page)
    }
}

/// The command of this name.
pub fn subcommand<'c>(program: &'c Command, name: &str) -> Result<&'c Command> {
    let known = program.get_subcommands().map(Command::get_name);
    program
        .find_subcommand(name)
        .ok_or_else(|| Error::input(format!("unknown command '{name}'{}", did_you_mean(name, known))))
}
