//! `mercer reproduce`: runs an experiment and writes its figures.

mod bound_states;
mod classic_kernels;
mod cnn_gp;
mod eigenvalue_decay;
mod graph_laplacian;
mod inference_cost;
mod mlp_gp;
mod ntk;
mod options;

use crate::context::Context;
use crate::output::Output;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mercer::{Error, Result};
use mercer_figure::report::Report;
use options::Options;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Run an experiment, and write its figure and report
#[derive(Args)]
pub struct Reproduce {
    /// The experiment
    #[arg(value_parser = by_name())]
    experiment: &'static Entry,

    /// Folder for the figure and the report
    #[arg(long, short, value_name = "FOLDER", default_value = "report")]
    out: PathBuf,

    /// A smaller run, in seconds rather than minutes
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    options: Options,
}

/// An experiment of the command line.
struct Entry {
    name: &'static str,
    help: &'static str,
    /// Names of the options that it takes.
    options: &'static [&'static str],
    /// Runs it with the context, whether the run is quick, and the options.
    run: fn(&Context, bool, &Options) -> Result<Shown>,
}

/// The output of an experiment: its main figure, the report, and the results as JSON and as text.
struct Shown {
    figure: String,
    report: Report,
    numbers: Value,
    text: String,
}

/// All experiments.
const EXPERIMENTS: &[Entry] = &[
    Entry {
        name: "classic-kernels",
        help: "a polynomial and an RBF on the line by all methods: which find the spectrum, and does training help?",
        options: &[],
        run: |context, quick, _| classic_kernels::run(context, quick),
    },
    Entry {
        name: "eigenvalue-decay",
        help: "the decay of eigenvalues depends on the dimension of the data, not of the ambient space",
        options: &[],
        run: |context, quick, _| eigenvalue_decay::run(context, quick),
    },
    Entry {
        name: "oscillator",
        help: "energies of the harmonic oscillator in the plane by all neural methods, and the exact ones",
        options: &[],
        run: |context, quick, _| bound_states::oscillator(context, quick),
    },
    Entry {
        name: "hydrogen",
        help: "energies of hydrogen in the plane by all neural methods, and the exact ones",
        options: &[],
        run: |context, quick, _| bound_states::hydrogen(context, quick),
    },
    Entry {
        name: "graph-laplacian",
        help: "the smallest eigenvalues of a neighbour graph by all neural methods, and those of the dense matrix",
        options: &[],
        run: |context, quick, _| graph_laplacian::run(context, quick),
    },
    Entry {
        name: "inference-cost",
        help: "trained networks, random features and landmarks of equal inference cost: does training pay off?",
        options: &[],
        run: |context, quick, _| inference_cost::run(context, quick),
    },
    Entry {
        name: "mlp-gp",
        help: "the Gaussian process of a network in the plane: its first functions by NeuralEF and exactly",
        options: &[],
        run: |context, quick, _| mlp_gp::run(context, quick),
    },
    Entry {
        name: "cnn-gp",
        help: "the Gaussian process of a convolutional network on MNIST: digits classified by its first ten functions",
        options: &["train", "test", "steps"],
        run: cnn_gp::run,
    },
    Entry {
        name: "ntk",
        help: "the empirical NTK of a network on airplanes and automobiles: by NeuralEF, by random features, and exactly",
        options: &["net", "train", "test", "directions"],
        run: ntk::run,
    },
];

fn by_name() -> impl TypedValueParser<Value = &'static Entry> {
    PossibleValuesParser::new(EXPERIMENTS.iter().map(|e| PossibleValue::new(e.name).help(e.help)))
        .map(|name| EXPERIMENTS.iter().find(|e| e.name == name).expect("one of the possible values"))
}

/// A verdict as a sentence with a capital letter and a full stop.
fn sentence(verdict: &str) -> String {
    let mut letters = verdict.chars();
    let first = letters.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// `1, …, n`.
fn indices(n: usize) -> Vec<f64> {
    (1..=n).map(|j| j as f64).collect()
}

impl Reproduce {
    pub fn run(self, context: &Context) -> Result<()> {
        self.options.check(self.experiment.name, self.experiment.options)?;
        std::fs::create_dir_all(&self.out).map_err(|e| Error::io(&self.out, e))?;
        let at = |extension: &str| Output::new(&self.out.join(format!("{}.{extension}", self.experiment.name)));
        let (figure, page) = (at("svg")?, at("html")?);
        let Shown { figure: svg, report, numbers, text } = (self.experiment.run)(context, self.quick, &self.options)?;
        let (name, quick) = (self.experiment.name, if self.quick { " --quick" } else { "" });
        let command = format!("mercer reproduce {name}{quick} --seed {}{}", context.seed, self.options.written());
        figure.text(&svg)?;
        page.text(&report.command(&command).html())?;
        [&figure, &page].into_iter().for_each(|file| context.wrote(file));
        let files = [figure.path(), page.path()];
        context.result(&json!({ "experiment": name, "result": numbers, "out": files }), || text)
    }
}
