//! `mercer evaluate`: scores a trained network on labelled rows.

use crate::context::Context;
use crate::input::Reader;
use crate::output::Output;
use crate::text;
use clap::Args;
use mercer::Result;
use mercer::classifier::{Classifier, Labelled, Scores, Unnamed};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Score a trained network on labelled rows, and write its logits
#[derive(Args)]
pub struct Evaluate {
    /// Network file: one that `mercer train` wrote, or a state dict of PyTorch as safetensors
    network: PathBuf,

    /// Labelled rows, such as "mnist(part=test)"
    data: String,

    /// Network of a file that does not name it, as for `mercer train`; rows are then standardized by their own mean and
    /// standard deviation
    #[arg(long, value_name = "NET")]
    net: Option<String>,

    /// Table of logits to write, .npy or .csv, with one row per data row and one column per class
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    reader: Reader,
}

impl Evaluate {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_deref().map(Output::table).transpose()?;
        let data = Labelled::of(&self.reader.open(&self.data, context)?)?;
        let unnamed = self.net.as_deref().map(|net| Unnamed { net, data: &data });
        let classifier = Classifier::load(&self.network, context.device, unnamed)?;
        let data = match &classifier.schema {
            Some(schema) => Labelled::of(&self.reader.source.open_like(&self.data, schema, context)?)?,
            None => data,
        };
        let labels = data.labels_for(&classifier.classes)?;
        let start = Instant::now();
        let logits = classifier.logits(data.x.view())?;
        let seconds = start.elapsed().as_secs_f64();
        let scores = Scores::of(logits.view(), &labels);
        if let Some(out) = &out {
            out.matrix(logits.view(), &classifier.classes)?;
        }
        let object = json!({
            "network": self.network.to_string_lossy(),
            "net": classifier.network.expression(),
            "data": self.data,
            "test": scores,
            "seconds": seconds,
            "out": out,
        });
        context.result(&object, || {
            let wrote = self.out.as_ref().map(|out| format!("\nwrote {}", out.display())).unwrap_or_default();
            format!("{}: {} in {}{wrote}", self.data, sentence(&scores), text::seconds(seconds))
        })
    }
}

/// The scores in words.
pub fn sentence(scores: &Scores) -> String {
    let Scores { n, accuracy, nll, ece } = scores;
    format!("accuracy {:.2} %, NLL {nll:.4}, ECE {ece:.4} on {}", 100.0 * accuracy, text::count(*n, "row"))
}
