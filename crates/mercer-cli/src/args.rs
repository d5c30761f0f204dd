//! The arguments of the program; help, completions and the man page are made from them.

use crate::commands::*;
use crate::program::context::Context;
use crate::program::output::NewFile;
use clap::{Args, Parser, Subcommand};
use mercer::Result;

/// Spectral kernel learning: eigenvalues and eigenfunctions of kernels, each with its error, and what they are good for.
#[derive(Parser)]
#[command(name = "mercer", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// Seed of everything random; the same seed gives the same result
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Threads to use [default: all cores]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,

    /// Where to compute: cpu, or cuda:0, cuda:1, … (`mercer devices` lists them)
    #[arg(long, global = true, default_value = "cpu")]
    pub device: String,

    /// Memory that may be used, such as 2GiB [default: 70 % of what is free]
    #[arg(long, global = true, value_name = "SIZE")]
    pub memory: Option<String>,

    /// Print the result as one JSON object
    #[arg(long, global = true)]
    pub json: bool,

    /// No progress, notes or warnings on standard error
    #[arg(long, short, global = true)]
    pub quiet: bool,

    /// File to write this command's options to, for `mercer run`
    #[arg(long, global = true, value_name = "FILE.toml")]
    pub save_config: Option<NewFile>,

    /// That of [`Ranks`], for `mercer run` and for messages about other commands
    #[arg(long, global = true, hide = true)]
    pub distributed: bool,

    /// Lines about progress on standard error where that is not a terminal, such as in a log
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

/// The option of the commands that run on several ranks.
#[derive(Args)]
#[command(next_help_heading = "Global options")]
pub struct Ranks {
    /// Compute with all processes that mpirun, srun or torchrun started
    #[arg(long, global = true)]
    distributed: bool,
}

/// The enum of the commands, and how each is run; the doc comment of a type is its help.
macro_rules! commands {
    ($($name:ident($arguments:ty),)*) => {
        #[derive(Subcommand)]
        pub enum Command {
            $($name(Box<$arguments>),)*
        }

        impl Command {
            pub fn run(self, context: &Context) -> Result<()> {
                match self {
                    $(Command::$name(arguments) => arguments.run(context),)*
                }
            }
        }
    };
}

commands! {
    Fit(fit::Fit),
    Transform(transform::Transform),
    Predict(predict::Predict),
    Inspect(inspect::Inspect),
    Report(report::Report),
    Gram(gram::Gram),
    Ntk(ntk::Ntk),
    Sample(sample::Sample),
    Regress(regress::Regress),
    Gp(gp::Gp),
    Embed(embed::Embed),
    Eigenmap(eigenmap::Eigenmap),
    Train(train::Train),
    Evaluate(evaluate::Evaluate),
    Laplace(laplace::Laplace),
    Trajectory(trajectory::Trajectory),
    Index(index::Index),
    Search(search::Search),
    Probe(probe::Probe),
    Kernels(kernels::Kernels),
    Datasets(datasets::Datasets),
    Devices(devices::Devices),
    Demo(demo::Demo),
    Reproduce(reproduce::Reproduce),
    Run(run::Run),
    Completions(shell::Completions),
    Man(shell::Man),
}
