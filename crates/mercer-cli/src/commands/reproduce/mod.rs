//! `mercer reproduce`: an experiment of the theory, with its figures.

mod eigenvalue_decay;

use crate::context::Context;
use crate::output::Output;
use crate::report::Report;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mercer::{Error, Result};
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
}

/// An experiment, as the program offers it.
struct Entry {
    name: &'static str,
    help: &'static str,
    run: fn(&Context) -> Result<Shown>,
}

impl Clone for &'static Entry {
    fn clone(&self) -> Self {
        self
    }
}

/// What an experiment shows: one figure that says it all, the whole report, and what it found in numbers and words.
struct Shown {
    figure: String,
    report: Report,
    numbers: Value,
    text: String,
}

/// Every experiment there is.
const EXPERIMENTS: &[Entry] = &[Entry {
    name: "eigenvalue-decay",
    help: "eigenvalues fall with the dimension of the data, not of the space around it",
    run: eigenvalue_decay::run,
}];

fn by_name() -> impl TypedValueParser<Value = &'static Entry> {
    PossibleValuesParser::new(EXPERIMENTS.iter().map(|e| PossibleValue::new(e.name).help(e.help)))
        .map(|name| EXPERIMENTS.iter().find(|e| e.name == name).expect("one of the possible values"))
}

impl Reproduce {
    pub fn run(self, context: &Context) -> Result<()> {
        std::fs::create_dir_all(&self.out).map_err(|e| Error::io(&self.out, e))?;
        let at = |extension: &str| Output::new(&self.out.join(format!("{}.{extension}", self.experiment.name)));
        let (figure, page) = (at("svg")?, at("html")?);
        let shown = (self.experiment.run)(context)?;
        figure.text(&shown.figure)?;
        shown.report.write(page.path())?;
        for file in [&figure, &page] {
            context.note(format_args!("wrote {}", file.path().display()));
        }
        let files = [figure.path(), page.path()];
        context.result(&json!({ "experiment": self.experiment.name, "result": shown.numbers, "out": files }), || {
            shown.text
        })
    }
}
