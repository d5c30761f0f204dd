//! Options that some experiments have a use for.

use clap::Args;
use mercer::{Error, Result};
use std::path::PathBuf;

/// Sizes and means of single experiments.
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

    /// cnn-gp: steps of NeuralEF; published are 20000, on --train 60000
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,

    /// ntk: random directions
    #[arg(long, value_name = "S")]
    pub directions: Option<usize>,
}

impl Options {
    /// The names and values that were given.
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

    /// The options that were given, as they are written.
    pub fn written(&self) -> String {
        self.given().into_iter().map(|(name, value)| format!(" --{name} {value}")).collect()
    }

    /// Refuses what an experiment has no use for; it has one for the options `known`.
    pub fn check(&self, experiment: &str, known: &[&str]) -> Result<()> {
        match self.given().into_iter().find(|(name, _)| !known.contains(name)) {
            Some((name, _)) => {
                Err(Error::input(format!("`mercer reproduce {experiment}` has no use for --{name}; leave it out")))
            }
            None => Ok(()),
        }
    }
}
