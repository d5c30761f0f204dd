//! `mercer reproduce`: runs an experiment and writes its figures.

use crate::context::Context;
use crate::output::Output;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mercer::{Error, FitContext, Result};
use mercer_lab::{EXPERIMENTS, Experiment, Options, Shown};
use serde_json::json;
use std::path::PathBuf;

/// Run an experiment, and write its figure (.svg and .png) and report
#[derive(Args)]
pub struct Reproduce {
    /// The experiment
    #[arg(value_parser = by_name())]
    experiment: &'static Experiment,

    /// Folder for the figure and the report
    #[arg(long, short, value_name = "FOLDER", default_value = "report")]
    out: PathBuf,

    /// A smaller run, in seconds rather than minutes
    #[arg(long)]
    quick: bool,

    /// ntk: the network, a file that `mercer train` wrote [default: a small one is trained on the two classes]; lla-cifar10: the
    /// checkpoint, a state dict of PyTorch whose file is called after its network [default: cifar10-resnets/resnet20.safetensors]
    #[arg(long, value_name = "FILE.safetensors")]
    net: Option<PathBuf>,

    /// cnn-gp, ntk: training images whose kernel is fitted; lla-cifar10: training images that curvatures are taken at
    #[arg(long = "train-images", value_name = "N")]
    train: Option<usize>,

    /// cnn-gp, ntk, lla-cifar10: test images
    #[arg(long = "test-images", value_name = "N")]
    test: Option<usize>,

    /// cnn-gp: training steps of NeuralEF; the published experiment has 20000, with --train-images 60000
    #[arg(long, value_name = "N")]
    steps: Option<u64>,

    /// ntk: number of random directions
    #[arg(long, value_name = "S")]
    directions: Option<usize>,

    /// sgd-trajectory: the published size, ResNet-20 on CIFAR-10, for a GPU
    #[arg(long, conflicts_with = "quick")]
    published: bool,
}

fn by_name() -> impl TypedValueParser<Value = &'static Experiment> {
    PossibleValuesParser::new(EXPERIMENTS.iter().map(|e| PossibleValue::new(e.name).help(e.help)))
        .map(|name| EXPERIMENTS.iter().find(|e| e.name == name).expect("one of the possible values"))
}

/// What is said of a quick run.
const SMALL: &str = "A quick run: fewer points and steps than in the experiment itself, and other numbers.";

impl Reproduce {
    /// The options that only some experiments take, if they were given: name, experiments, value.
    fn given(&self) -> Vec<(&'static str, &'static [&'static str], String)> {
        let options = [
            ("net", &["ntk", "lla-cifar10"][..], self.net.as_ref().map(|net| net.display().to_string())),
            ("train-images", &["cnn-gp", "ntk", "lla-cifar10"], self.train.map(|n| n.to_string())),
            ("test-images", &["cnn-gp", "ntk", "lla-cifar10"], self.test.map(|n| n.to_string())),
            ("steps", &["cnn-gp"], self.steps.map(|n| n.to_string())),
            ("directions", &["ntk"], self.directions.map(|n| n.to_string())),
            ("published", &["sgd-trajectory"], self.published.then(String::new)),
        ];
        options.into_iter().filter_map(|(name, experiments, value)| Some((name, experiments, value?))).collect()
    }

    pub fn run(self, context: &Context) -> Result<()> {
        let (Experiment { name, run, .. }, given) = (self.experiment, self.given());
        if let Some((option, ..)) = given.iter().find(|(_, experiments, _)| !experiments.contains(name)) {
            return Err(Error::input(format!("`mercer reproduce {name}` does not take --{option}")));
        }
        std::fs::create_dir_all(&self.out).map_err(|e| Error::io(&self.out, e))?;
        let at = |extension: &str| Output::new(&self.out.join(format!("{name}.{extension}")));
        let (figures, page) = ([at("svg")?, at("png")?], at("html")?);
        let Reproduce { quick, net, train, test, steps, directions, published, .. } = self;
        let options = Options { quick, net, train, test, steps, directions, published };
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
        figures.iter().try_for_each(|figure| figure.figure(&svg))?;
        page.text(&report.command(&command).html())?;
        let out = [&figures[0], &figures[1], &page];
        out.into_iter().for_each(|file| context.wrote(file));
        context.result(&json!({ "experiment": name, "result": numbers, "out": out }), || text)
    }
}
