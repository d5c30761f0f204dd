//! The arguments of the program; help, completions and the man page are made from them.

use crate::commands::{
    completions, datasets, demo, devices, embed, evaluate, fit, gram, inspect, kernels, man, ntk, regress, reproduce,
    sample, train, transform,
};
use clap::{Args, Parser, Subcommand};

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
}

#[derive(Subcommand)]
pub enum Command {
    /// Find the leading eigenvalues and eigenfunctions of a kernel on data
    Fit(Box<fit::Fit>),
    /// Evaluate the eigenfunctions of a fitted model at new points
    Transform(transform::Transform),
    /// Show what a fitted model holds: eigenvalues, certificate, origin
    Inspect(inspect::Inspect),
    /// Write the kernel matrix of a data set
    Gram(gram::Gram),
    /// Write the empirical NTK of a network on data: the kernel itself, or functions whose kernel it is
    Ntk(Box<ntk::Ntk>),
    /// Write the values of freshly drawn networks on data: functions whose kernel is the network's Gaussian process
    Sample(sample::Sample),
    /// Learn to predict a column: numbers by regression, words by classification
    Regress(regress::Regress),
    /// Give every point a few coordinates that keep what the kernel calls near
    Embed(embed::Embed),
    /// Train a network to tell classes apart, and score it on rows that it has not seen
    Train(Box<train::Train>),
    /// Score a trained network on labelled rows, and write its logits
    Evaluate(evaluate::Evaluate),
    /// List the kernels, with their parameters
    Kernels(kernels::Kernels),
    /// List the data sets that have a name
    Datasets(datasets::Datasets),
    /// List the devices that can be computed on, with their memory and versions
    Devices(devices::Devices),
    /// Decompose a kernel on embedded data by every method, and write a report
    Demo(demo::Demo),
    /// Run an experiment of the theory, and write its figure and report
    Reproduce(reproduce::Reproduce),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Print the man page
    Man(man::Man),
}
