//! `mercer reproduce`: runs an experiment, or all of them, and writes their figures.

use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::text;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mercer::{Error, FitContext, Result};
use mercer_figure::report::{Book, Report};
use mercer_lab::{EXPERIMENTS, Experiment, Options, Shown};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Run an experiment, and write its figure (.svg and .png) and report
#[derive(Args)]
pub struct Reproduce {
    /// The experiment
    #[arg(value_parser = by_name(), required_unless_present_any = ["list", "all"])]
    experiment: Option<&'static Experiment>,

    /// Show all experiments with the time that they take on two cores
    #[arg(long, conflicts_with_all = ["experiment", "all"])]
    list: bool,

    /// Run all experiments, and write one book of them too, book.html; those whose data are missing are left out
    #[arg(long, conflicts_with = "experiment")]
    all: bool,

    /// Folder for the figure and the report
    #[arg(long, short, value_name = "FOLDER", default_value = "report")]
    out: NewFile,

    /// A smaller run, in seconds rather than minutes
    #[arg(long)]
    quick: bool,

    /// eigenmap, sgd-trajectory, gp-uci and experiments on the theory of wide networks: the published size, for a GPU
    #[arg(long, conflicts_with = "quick")]
    published: bool,

    /// ntk: the network, a file that `mercer train` wrote [default: a small one is trained on the two classes]; lla-cifar10: the
    /// checkpoint, a state dict of PyTorch whose file is called after its network [default: cifar10-resnets/resnet20.safetensors]
    #[arg(long, value_name = "FILE.safetensors")]
    net: Option<PathBuf>,

    /// cnn-gp, ntk: training images whose kernel is fitted; lla-cifar10: training images that curvatures are taken at; eigenmap --published: training images
    #[arg(long = "train-images", value_name = "N")]
    train: Option<usize>,

    /// cnn-gp, ntk, lla-cifar10, eigenmap --published: test images
    #[arg(long = "test-images", value_name = "N")]
    test: Option<usize>,

    /// cnn-gp: training steps of NeuralEF; the published experiment has 20000, with --train-images 60000; eigenmap --published: training steps [default: 400 epochs]
    #[arg(long, value_name = "N")]
    steps: Option<u64>,

    /// ntk: number of random directions
    #[arg(long, value_name = "S")]
    directions: Option<usize>,

    /// lla-cifar10: the methods beside map and temperature, such as last-layer,fixed-mean [default: all]
    #[arg(long, value_name = "METHODS", value_delimiter = ',')]
    methods: Vec<String>,

    /// gp-uci: the tables, such as boston,yacht [default: all]
    #[arg(long, value_name = "TABLES", value_delimiter = ',')]
    tables: Vec<String>,

    /// eigenmap --published: file to keep the state of the training in; where it is there already, the training is continued
    #[arg(long, value_name = "FILE", requires = "published")]
    checkpoint: Option<NewFile>,
}

fn by_name() -> impl TypedValueParser<Value = &'static Experiment> {
    PossibleValuesParser::new(EXPERIMENTS.iter().map(|e| PossibleValue::new(e.name).help(e.help)))
        .map(|name| EXPERIMENTS.iter().find(|e| e.name == name).expect("one of the possible values"))
}

/// Experiments with a published size.
const SIZED: [&str; 11] = [
    "bnn-to-gp",
    "eigenmap",
    "feature-learning",
    "gp-uci",
    "gradient-flow",
    "heaviside",
    "lazy",
    "low-dimensional-support",
    "ntk-width",
    "sgd-trajectory",
    "wide-ensemble",
];

/// What is said of a quick run.
const SMALL: &str = "A quick run: fewer points and steps than in the experiment itself, and other numbers.";

impl Reproduce {
    /// The options that only some experiments take, if they were given: name, experiments, value.
    fn given(&self) -> Vec<(&'static str, &'static [&'static str], String)> {
        // The small eigenmap has its own digits and steps.
        let [net, images, steps]: [&[&str]; 3] = match self.published {
            false => [&["ntk", "lla-cifar10"], &["cnn-gp", "ntk", "lla-cifar10"], &["cnn-gp"]],
            true => [&["ntk", "lla-cifar10"], &["cnn-gp", "eigenmap", "ntk", "lla-cifar10"], &["cnn-gp", "eigenmap"]],
        };
        let options = [
            ("published", &SIZED[..], self.published.then(String::new)),
            ("net", net, self.net.as_ref().map(|net| net.display().to_string())),
            ("train-images", images, self.train.map(|n| n.to_string())),
            ("test-images", images, self.test.map(|n| n.to_string())),
            ("steps", steps, self.steps.map(|n| n.to_string())),
            ("directions", &["ntk"], self.directions.map(|n| n.to_string())),
            ("methods", &["lla-cifar10"], (!self.methods.is_empty()).then(|| self.methods.join(","))),
            ("tables", &["gp-uci"], (!self.tables.is_empty()).then(|| self.tables.join(","))),
            ("checkpoint", &["eigenmap"], self.checkpoint.as_ref().map(|file| file.display().to_string())),
        ];
        options.into_iter().filter_map(|(name, experiments, value)| Some((name, experiments, value?))).collect()
    }

    pub fn run(self, context: &Context) -> Result<()> {
        match self.experiment {
            _ if self.list => list(context),
            Some(experiment) => {
                let (_, object, text) = self.one(experiment, context)?;
                context.result(&object, || text)
            }
            None => self.book(context),
        }
    }

    /// Runs one experiment and writes its files: its report, what `--json` shows of it, and its text.
    fn one(&self, experiment: &Experiment, context: &Context) -> Result<(Report, Value, String)> {
        let (Experiment { name, run, .. }, given) = (experiment, self.given());
        if let Some((option, ..)) = given.iter().find(|(_, experiments, _)| !experiments.contains(name)) {
            return Err(Error::input(format!("`mercer reproduce {name}` does not take --{option}")));
        }
        std::fs::create_dir_all(&*self.out).map_err(|e| Error::io(&self.out, e))?;
        let at = |extension: &str| Output::new(&self.out.inside(&format!("{name}.{extension}")));
        let (figures, page) = ([at("svg")?, at("png")?], at("html")?);
        let Reproduce { quick, published, train, test, steps, directions, .. } = *self;
        let (net, checkpoint) = (self.net.clone(), self.checkpoint.as_deref().map(Path::to_owned));
        let (methods, tables) = (self.methods.clone(), self.tables.clone());
        let options = Options { quick, published, net, train, test, steps, directions, methods, tables, checkpoint };
        // An experiment with parts cut short would be another one: an interrupt ends it.
        let Shown { figure: svg, mut report, numbers, mut text } =
            context.fitting(|fit| run(&options, &FitContext { interrupt: None, ..*fit }))?;
        if quick {
            report = report.notice(SMALL);
            text = format!("{SMALL}\n\n{text}");
        }
        let mut command =
            format!("mercer reproduce {name}{} --seed {}", if quick { " --quick" } else { "" }, context.seed);
        given.iter().for_each(|(option, _, value)| command += format!(" --{option} {value}").trim_end());
        report = report.command(&command);
        figures.iter().try_for_each(|figure| figure.figure(&svg))?;
        page.text(&report.html())?;
        let out = [&figures[0], &figures[1], &page];
        out.into_iter().for_each(|file| context.wrote(file));
        Ok((report, json!({ "experiment": name, "result": numbers, "out": out }), text))
    }

    /// Runs all experiments and makes a book of them.
    fn book(&self, context: &Context) -> Result<()> {
        if let Some((option, ..)) = self.given().iter().find(|(option, ..)| *option != "published") {
            return Err(Error::input(format!("`mercer reproduce --all` does not take --{option}")));
        }
        std::fs::create_dir_all(&*self.out).map_err(|e| Error::io(&self.out, e))?;
        let page = Output::new(&self.out.inside("book.html"))?;
        let mut book = Book::new("Experiments on kernels and wide networks");
        if self.quick {
            book = book.notice(SMALL);
        }
        let (mut rows, mut left_out) = (vec![], vec![]);
        for experiment in EXPERIMENTS {
            // Experiments without a published size run at their own.
            let published = self.published && SIZED.contains(&experiment.name);
            let options = Reproduce {
                published,
                out: self.out.clone(),
                net: None,
                methods: vec![],
                tables: vec![],
                checkpoint: None,
                ..*self
            };
            let start = Instant::now();
            match options.one(experiment, context) {
                Ok((report, ..)) => {
                    let seconds = start.elapsed().as_secs_f64();
                    context.note(format_args!("{}: {}", experiment.name, text::seconds(seconds)));
                    rows.push(json!({ "experiment": experiment.name, "seconds": seconds }));
                    book = book.chapter(report);
                }
                Err(error) => {
                    context.warn(format_args!("{} is left out: {error}", experiment.name));
                    left_out.push(json!({ "experiment": experiment.name, "why": error.to_string() }));
                }
            }
            // What is there is kept, should a later experiment be interrupted.
            page.text(&book.html())?;
        }
        context.wrote(&page);
        let done = text::count(rows.len(), "experiment");
        context.result(&json!({ "experiments": rows, "left_out": left_out, "out": page }), || {
            format!("{done} in {}", page.path().display())
        })
    }
}

/// The experiments with their times.
fn list(context: &Context) -> Result<()> {
    let object = |e: &Experiment| json!({ "name": e.name, "time": e.time, "help": e.help });
    let all: Vec<Value> = EXPERIMENTS.iter().map(object).collect();
    let time = |e: &Experiment| if e.time.is_empty() { text::GAP } else { e.time }.to_owned();
    let row = |e: &Experiment| vec![e.name.to_owned(), time(e), e.help.to_owned()];
    let rows: Vec<Vec<String>> = EXPERIMENTS.iter().map(row).collect();
    context.result(&json!({ "experiments": all }), || text::table(&["experiment", "time", "what it shows"], &rows))
}
