//! `mercer completions`: a completion script for a shell.

use crate::args::Cli;
use crate::context::print;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use mercer::Result;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "Example:\n  mercer completions bash > ~/.local/share/bash-completion/completions/mercer")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "mercer", &mut script);
        print(&script)
    }
}
