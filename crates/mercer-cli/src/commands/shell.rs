//! `mercer completions` and `mercer man`: a completion script and the man page, made from the definitions of the arguments.

use crate::args::Cli;
use crate::context::{Context, print};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use mercer::{Error, Result};
use std::path::PathBuf;

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

/// Print the man page
#[derive(Args)]
#[command(after_help = "Examples:\n  mercer man | man -l -\n  mercer man --out ~/.local/share/man/man1")]
pub struct Man {
    /// Write a page for every command into this folder instead
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Man {
    pub fn run(self, _: &Context) -> Result<()> {
        match self.out {
            Some(folder) => clap_mangen::generate_to(Cli::command(), &folder).map_err(|e| Error::io(&folder, e)),
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command())
                    .render(&mut page)
                    .map_err(|e| Error::io("standard output".as_ref(), e))?;
                print(&page)
            }
        }
    }
}
