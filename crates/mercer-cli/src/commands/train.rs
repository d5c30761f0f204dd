//! `mercer train`: a network that classifies, from labelled rows.

use crate::context::Context;
use crate::input::Reader;
use crate::methods::positive;
use crate::output::{Output, optional};
use crate::{text, training};
use clap::Args;
use clap::builder::PossibleValuesParser;
use mercer::classifier::{Classifier, Epoch, Labelled, Settings, Stop, Trained, train};
use mercer::compute::Rule;
use mercer::data::catalogue;
use mercer::{Error, Result};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Share of the rows that are held out where there is no test set.
const HELD_OUT: f64 = 0.2;

/// Train a network to tell classes apart, and score it on rows that it has not seen
#[derive(Args)]
pub struct Train {
    /// Labelled rows: a file or a named set, such as mnist or cifar-10, whose test part is then used for scores
    data: String,

    /// Network: mlp, lenet, resnet20, resnet32, resnet44, resnet56, resnet110, or layers such as "conv(16, 3) bn relu gap dense(10)"
    #[arg(long, value_name = "NET")]
    net: String,

    /// Rows to score the network on [default: the set's own test part, else a fifth of the rows, held out]
    #[arg(long, value_name = "DATA")]
    test: Option<String>,

    /// Times that every row is seen
    #[arg(long, value_name = "N", default_value_t = 10)]
    epochs: u64,

    /// Rows of a batch
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,

    /// Largest learning rate: up to it over a twentieth of the steps, then half a cosine down to zero [default: sgd 0.1
    /// with batch norm and 0.02 without, adam 1e-3]
    #[arg(long, value_name = "RATE", value_parser = positive, allow_negative_numbers = true)]
    lr: Option<f64>,

    /// Optimiser
    #[arg(long, default_value = "sgd", value_parser = PossibleValuesParser::new(["sgd", "adam"]))]
    rule: String,

    /// Momentum of sgd [default: 0.9]
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    momentum: Option<f64>,

    /// Weight decay: part of the gradient in sgd, decoupled from it in adam [default: sgd 5e-4, adam 0]
    #[arg(long, value_name = "RATE", value_parser = non_negative, allow_negative_numbers = true)]
    weight_decay: Option<f64>,

    /// Show colour images as they are, not shifted by up to four pixels and mirrored at random
    #[arg(long)]
    no_augment: bool,

    /// File to keep the state of training in
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,

    /// Continue from the checkpoint; the result is the same to the bit as that of an uninterrupted run
    #[arg(long, requires = "checkpoint")]
    resume: bool,

    /// Network file to write: safetensors, with the tensors under PyTorch's names
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    reader: Reader,
}

impl Train {
    pub fn run(self, context: &Context) -> Result<()> {
        let safetensors = |path: &std::path::Path| Output::with_extension(path, &["safetensors"]);
        let out = optional(self.out.as_deref(), safetensors)?;
        if let Some(path) = &self.checkpoint {
            Output::new(path)?;
        }
        let start = Instant::now();
        let (data, test) = self.read(context)?;
        let classifier = Classifier::new(&self.net, &data, context.device, context.seed)?;
        let settings = self.settings(&classifier, context.seed)?;
        let network = &classifier.network;
        context.note(format_args!(
            "{}: {} parameters, {} multiply-adds a row; {} to learn, {} to be scored on{}",
            text::rounded(&self.net),
            text::grouped(network.trained()),
            text::grouped(network.multiply_adds()),
            text::count(data.n(), "row"),
            text::grouped(test.n()),
            if settings.augment { "; shifted and mirrored at random" } else { "" }
        ));
        let (epochs, rows) = (self.epochs, data.n());
        let told = |epoch: &Epoch| context.note(line(epoch, epochs, rows));
        let bar = context.bar();
        training::listen();
        let trained = train(classifier, &data, Some(&test), &settings, &context.fit(&bar), &told)?;
        drop(bar);
        let scores = trained.classifier.score(&test)?;
        if let Some(out) = &out {
            trained.classifier.save(out.path())?;
        }
        let object = json!({
            "data": self.data,
            "net": trained.classifier.network.expression(),
            "parameters": trained.classifier.network.trained(),
            "n": data.n(),
            "stop": trained.stop,
            "steps": trained.steps,
            "test": scores,
            "history": trained.history,
            "seconds": start.elapsed().as_secs_f64(),
            "out": self.out,
        });
        context.result(&object, || {
            let mut said = format!("{}: {}", self.data, super::evaluate::sentence(&scores));
            said += &self.ending(&trained, start.elapsed().as_secs_f64());
            said
        })
    }

    fn ending(&self, trained: &Trained, seconds: f64) -> String {
        let epochs = text::count(trained.history.len(), "epoch");
        let mut said =
            format!("\n{epochs}, {} in {}", text::count(trained.steps as usize, "step"), text::seconds(seconds));
        if trained.stop == Stop::Interrupted {
            said += &match &self.checkpoint {
                Some(path) => format!("; interrupted, to be continued with --checkpoint {} --resume", path.display()),
                None => "; interrupted".to_owned(),
            };
        }
        if let Some(out) = &self.out {
            said += &format!("\nwrote {}", out.display());
        }
        said
    }

    fn settings(&self, classifier: &Classifier, seed: u64) -> Result<Settings> {
        let sgd = self.rule == "sgd";
        if !sgd && self.momentum.is_some() {
            return Err(Error::input("--momentum is for --rule sgd; adam has its own"));
        }
        let normed = classifier.network.constants() > 0;
        let rate = if !sgd {
            1e-3
        } else if normed {
            0.1
        } else {
            0.02
        };
        let decay = self.weight_decay.map_or(if sgd { 5e-4 } else { 0.0 }, |w| w as f32);
        let rule = if sgd {
            Rule::Sgd { momentum: self.momentum.unwrap_or(0.9) as f32, weight_decay: decay }
        } else {
            Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: decay }
        };
        Ok(Settings {
            epochs: self.epochs,
            batch: self.batch as usize,
            rule,
            learning_rate: self.lr.unwrap_or(rate),
            augment: !self.no_augment && classifier.network.image().is_some_and(|[channels, ..]| channels == 3),
            seed,
            checkpoint: self.checkpoint.clone(),
            resume: self.resume,
            ..Settings::default()
        })
    }

    /// The rows to learn, and those to be scored on.
    fn read(&self, context: &Context) -> Result<(Labelled, Labelled)> {
        let data = self.reader.open(&self.data)?;
        if let Some(test) = &self.test {
            let test = self.reader.open_like(test, &data)?;
            return Ok((Labelled::of(&data)?, Labelled::of(&test)?));
        }
        let own = catalogue().into_iter().any(|set| set.name == data.name && set.parameters == "part=train");
        if own && !self.data.contains('(') && !std::path::Path::new(&self.data).exists() {
            let test = self.reader.open(&format!("{}(part=test)", data.name))?;
            return Ok((Labelled::of(&data)?, Labelled::of(&test)?));
        }
        let (data, test) = data.split(HELD_OUT, context.seed)?;
        Ok((Labelled::of(&data)?, Labelled::of(&test)?))
    }
}

fn line(epoch: &Epoch, epochs: u64, rows: usize) -> String {
    let test = epoch.test.map(|t| format!("; test accuracy {}, NLL {:.4}", text::percent(t.accuracy), t.nll));
    format!(
        "epoch {}/{epochs}: loss {:.4}, accuracy {}{}; {} at {:.0} rows/s",
        epoch.epoch,
        epoch.loss,
        text::percent(epoch.accuracy),
        test.unwrap_or_default(),
        text::seconds(epoch.seconds),
        rows as f64 / epoch.seconds.max(1e-9)
    )
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|v| (0.0..1.0).contains(v)).ok_or_else(|| "must lie from 0 to below 1".into())
}

fn non_negative(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0).ok_or_else(|| "must be a number from 0".into())
}
