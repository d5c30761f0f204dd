//! `mercer reproduce`: an experiment of the theory, with its figures.

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

/// Run an experiment of the theory, and write its figure and report
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

/// An experiment, as the program offers it.
struct Entry {
    name: &'static str,
    help: &'static str,
    /// The options that it has a use for.
    options: &'static [&'static str],
    /// Given the context, whether the smaller run is wanted, and options.
    run: fn(&Context, bool, &Options) -> Result<Shown>,
}

/// What an experiment shows: one figure that says it all, the whole report, and what it found in numbers and words.
struct Shown {
    figure: String,
    report: Report,
    numbers: Value,
    text: String,
}

/// Every experiment there is.
const EXPERIMENTS: &[Entry] = &[
    Entry {
        name: "classic-kernels",
        help: "a polynomial and an RBF on the line by every method: who finds the spectrum, and does training help?",
        options: &[],
        run: |context, quick, _| classic_kernels::run(context, quick),
    },
    Entry {
        name: "eigenvalue-decay",
        help: "eigenvalues fall with the dimension of the data, not of the space around it",
        options: &[],
        run: |context, quick, _| eigenvalue_decay::run(context, quick),
    },
    Entry {
        name: "oscillator",
        help: "energies of the harmonic oscillator in the plane by every neural method, beside the exact ones",
        options: &[],
        run: |context, quick, _| bound_states::oscillator(context, quick),
    },
    Entry {
        name: "hydrogen",
        help: "energies of hydrogen in the plane by every neural method, beside the exact ones",
        options: &[],
        run: |context, quick, _| bound_states::hydrogen(context, quick),
    },
    Entry {
        name: "graph-laplacian",
        help: "the smallest eigenvalues of a neighbour graph by every neural method, beside those of the dense matrix",
        options: &[],
        run: |context, quick, _| graph_laplacian::run(context, quick),
    },
    Entry {
        name: "inference-cost",
        help: "trained networks, random features and landmarks of equal cost for a new point: does training earn its keep?",
        options: &[],
        run: |context, quick, _| inference_cost::run(context, quick),
    },
    Entry {
        name: "mlp-gp",
        help: "the Gaussian process of a network in the plane: its first functions by NeuralEF beside the exact ones",
        options: &[],
        run: |context, quick, _| mlp_gp::run(context, quick),
    },
    Entry {
        name: "cnn-gp",
        help: "the Gaussian process of a convolutional network on MNIST: digits told apart by its first ten functions",
        options: &["train", "test", "steps"],
        run: cnn_gp::run,
    },
    Entry {
        name: "ntk",
        help: "the empirical NTK of a network on airplanes and automobiles: ten functions by NeuralEF, ten random features, the truth",
        options: &["net", "train", "test", "directions"],
        run: ntk::run,
    },
];

fn by_name() -> impl TypedValueParser<Value = &'static Entry> {
    PossibleValuesParser::new(EXPERIMENTS.iter().map(|e| PossibleValue::new(e.name).help(e.help)))
        .map(|name| EXPERIMENTS.iter().find(|e| e.name == name).expect("one of the possible values"))
}

/// A verdict as a sentence.
fn sentence(verdict: &str) -> String {
    let mut letters = verdict.chars();
    let first = letters.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// The command that makes a report again.
fn command(experiment: &str, context: &Context, quick: bool) -> String {
    format!("mercer reproduce {experiment}{} --seed {}", if quick { " --quick" } else { "" }, context.seed)
}

/// `1, …, n`
fn indices(n: usize) -> Vec<f64> {
    (1..=n).map(|j| j as f64).collect()
}

impl Reproduce {
    pub fn run(self, context: &Context) -> Result<()> {
        self.options.check(self.experiment.name, self.experiment.options)?;
        std::fs::create_dir_all(&self.out).map_err(|e| Error::io(&self.out, e))?;
        let at = |extension: &str| Output::new(&self.out.join(format!("{}.{extension}", self.experiment.name)));
        let (figure, page) = (at("svg")?, at("html")?);
        let shown = (self.experiment.run)(context, self.quick, &self.options)?;
        figure.text(&shown.figure)?;
        page.text(&shown.report.html())?;
        for file in [&figure, &page] {
            context.note(format_args!("wrote {}", file.path().display()));
        }
        let files = [figure.path(), page.path()];
        context.result(&json!({ "experiment": self.experiment.name, "result": shown.numbers, "out": files }), || {
            shown.text
        })
    }
}
