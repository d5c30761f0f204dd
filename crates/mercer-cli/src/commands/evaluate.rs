//! `mercer evaluate`: scores a trained network on labelled rows.

use crate::options::input::{Reader, labelled};
use crate::options::network::{Foreign, Input};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::text;
use clap::Args;
use mercer::classifier::{Classifier, Errors, Quality, Scores};
use mercer::data::Target;
use mercer::{Error, Result};
use ndarray::Axis;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Score a trained network on labelled rows, and write its logits or predictions
#[derive(Args)]
pub struct Evaluate {
    /// Network file: one that `mercer train` wrote, or a state dict of PyTorch as safetensors
    network: PathBuf,

    /// Labelled rows, such as "mnist(part=test)"
    data: String,

    /// Network of a file that does not name it, as for `mercer train`; it sees rows as they are (pixels from 0 to 1), unless
    /// --mean and --std are given
    #[arg(long, value_name = "NET")]
    net: Option<String>,

    /// Table to write, .npy or .csv, with one row per data row: a column of logits per class, or the predicted number
    #[arg(long, short, value_name = "FILE")]
    out: Option<NewFile>,

    #[command(flatten)]
    foreign: Foreign,

    #[command(flatten)]
    reader: Reader,
}

impl Evaluate {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::table).transpose()?;
        let rows = match &Classifier::schema_of(&self.network)? {
            Some(schema) => self.reader.source.open_like(&self.data, schema, context)?,
            None => self.reader.open(&self.data, context)?,
        };
        let classifier = self.foreign.load(&self.network, self.net.as_deref(), &rows, context)?;
        let input = Input::new(&classifier.standardizer, classifier.foreign, rows.x.rows());
        let start = Instant::now();
        let known =
            rows.known().map_or_else(Vec::new, |(y, some)| some.map_or_else(|| (0..y.len()).collect(), <[_]>::to_vec));
        let scores = if classifier.number.is_some() {
            let predicted = classifier.predict(&rows.x)?;
            let data = labelled(rows, context).with_numbers()?;
            let scored: Vec<f64> = known.iter().map(|&i| predicted[i]).collect();
            if let Some(out) = &out {
                out.predictions(&Target::Values(predicted))?;
            }
            let found = Errors::of(&scored, &data.target()?.values());
            Quality::Numbers(found.ok_or_else(|| Error::input("there are no rows to score"))?)
        } else {
            let logits = classifier.logits(&rows.x)?;
            let data = labelled(rows, context).with_classes()?;
            let labels = data.target()?.labels_for(&classifier.classes)?;
            if let Some(out) = &out {
                out.matrix(logits.view(), &classifier.classes)?;
            }
            Quality::Classes(Scores::of(logits.select(Axis(0), &known).view(), &labels))
        };
        let seconds = start.elapsed().as_secs_f64();
        let object = json!({
            "network": self.network.to_string_lossy(),
            "net": classifier.network.expression(),
            "data": self.data,
            "input": input.object,
            "test": scores,
            "seconds": seconds,
            "out": out,
        });
        context.result(&object, || {
            let wrote = self.out.as_ref().map(|out| format!("\nwrote {}", out.display())).unwrap_or_default();
            let (network, scores) = (self.network.display(), sentence(&scores));
            format!("{network} on {}: {scores} in {}\n{}{wrote}", self.data, text::seconds(seconds), input.words)
        })
    }
}

/// The scores in words.
pub fn sentence(quality: &Quality) -> String {
    match quality {
        Quality::Classes(Scores { n, accuracy, nll, ece }) => {
            format!("accuracy {:.2} %, NLL {nll:.4}, ECE {ece:.4} on {}", 100.0 * accuracy, text::count(*n, "row"))
        }
        Quality::Numbers(Errors { n, rmse, r2 }) => {
            let r2 = r2.map_or_else(|| text::GAP.into(), text::short);
            format!("RMSE {}, R² {r2} on {}", text::short(*rmse), text::count(*n, "row"))
        }
    }
}
