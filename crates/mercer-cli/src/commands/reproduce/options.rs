//! Options of some experiments.

use clap::Args;
use mercer::{Error, Result};
use std::path::PathBuf;

/// Options that only some experiments take.
#[derive(Args, Default)]
pub struct Options {
    /// ntk: the network, a file that `mercer train` wrote [default: a small one is trained on the two classes]
    #[arg(long, value_name = "FILE.safetensors")]
    pub net: Option<PathBuf>,

    /// cnn-gp, ntk: training images whose kernel is fitted
    #[arg(long, value_name = "N")]
    pub train: Option<usize>,

    /// cnn-gp, ntk: test images
    #[arg(long, value_name = "M")]
    pub test: Option<usize>,

    /// cnn-gp: training steps of NeuralEF; the published experiment has 20000, with --train 60000
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,

    /// ntk: number of random directions
    #[arg(long, value_name = "S")]
    pub directions: Option<usize>,
}

impl Options {
    /// The names and values of the options that were given.
    fn given(&self) -> Vec<(&'static str, String)> {
        let numbers = [
            ("train", self.train),
            ("test", self.test),
            ("steps", self.steps.map(|steps| steps as usize)),
            ("directions", self.directions),
        ];
        let net = self.net.as_ref().map(|net| ("net", net.display().to_string()));
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())));
        net.into_iter().chain(numbers).collect()
    }

    /// The options that were given, as on the command line.
    pub fn written(&self) -> String {
        self.given().into_iter().map(|(name, value)| format!(" --{name} {value}")).collect()
    }

    /// An error if an option was given that is not one of the `known` options of the experiment.
    pub fn check(&self, experiment: &str, known: &[&str]) -> Result<()> {
        match self.given().into_iter().find(|(name, _)| !known.contains(name)) {
            Some((name, _)) => Err(Error::input(format!("`mercer reproduce {experiment}` does not take --{name}"))),
            None => Ok(()),
        }
    }
}
