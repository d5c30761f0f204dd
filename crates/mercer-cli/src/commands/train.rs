//! `mercer train`: trains a network to predict the class, or the number, of labelled rows.

use crate::options::checkpoint_options::CheckpointOptions;
use crate::options::input::{Beside, Reader, TaskChoice, encoded, has_test_part, scaling, target_file};
use crate::options::values::{non_negative, number, positive};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::text;
use clap::Args;
use clap::builder::PossibleValuesParser;
use mercer::classifier::{
    Classifier, Epoch, Quality, Settings, Snapshots, Standardizer, Stop, Trained, snapshot_files, train,
};
use mercer::compute::Rule;
use mercer::data::{Dataset, Scaler, Scaling, Schema, Target};
use mercer::{Result, Silent, fail_if};
use serde_json::json;
use std::time::Instant;

/// Share of the rows that is held out if there is no test set.
const HELD_OUT: f64 = 0.2;

/// Train a network to predict a class or a number, and score it on test rows
#[derive(Args)]
pub struct Train {
    /// Labelled rows: a file or a named set; the test part of a set such as mnist or cifar-10 is used for scores
    data: String,

    /// Network: mlp, lenet, resnet18, resnet20, resnet32, resnet44, resnet56, resnet110, or layers such as "conv(16, 3) bn relu gap dense(10)"
    #[arg(long, value_name = "NET")]
    net: String,

    /// Rows to score the network on [default: the test part of the set, else a fifth of the rows, held out]
    #[arg(long, value_name = "DATA")]
    test: Option<String>,

    /// Targets of the test rows, an .npy file with one number a row [default: the column of the target]
    #[arg(long, value_name = "FILE.npy", requires = "test", value_parser = target_file)]
    test_target: Option<String>,

    #[command(flatten)]
    task: TaskChoice,

    /// Scaling of the columns of the training rows, which the network's file keeps [default: standard; images by channel]
    #[arg(long, value_name = "SCALING", value_parser = scaling())]
    scale: Option<Scaling>,

    /// Number of passes over the rows
    #[arg(long, value_name = "N", default_value_t = 10)]
    epochs: u64,

    /// Rows per batch
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,

    /// Largest learning rate: linear warm-up over the first 5 % of the steps, then half a cosine down to zero [default: sgd
    /// 0.1 with batch norm and 0.02 without, adam 1e-3]
    #[arg(long, alias = "lr", value_name = "RATE", value_parser = positive, allow_negative_numbers = true)]
    rate: Option<f64>,

    /// Optimizer
    #[arg(long, alias = "optimizer", default_value = "sgd", value_parser = PossibleValuesParser::new(["sgd", "adam"]))]
    optimiser: String,

    /// Momentum of sgd [default: 0.9]
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    momentum: Option<f64>,

    /// Weight decay: added to the gradient in sgd, decoupled in adam [default: sgd 5e-4, adam 0]
    #[arg(long, value_name = "RATE", value_parser = non_negative, allow_negative_numbers = true)]
    weight_decay: Option<f64>,

    /// Train the network's linearisation at its start, f(x, w0) + f'(x, w0)(w - w0), which is linear in the weights
    #[arg(long, alias = "linearized", conflicts_with = "snapshots")]
    linearised: bool,

    /// Do not augment colour images (random shifts by up to four pixels, and mirroring)
    #[arg(long)]
    no_augment: bool,

    /// Folder for snapshots of the network along the last part of training, for `mercer trajectory`
    #[arg(long, value_name = "FOLDER")]
    snapshots: Option<NewFile>,

    /// Steps between snapshots [default: such that there are 20]
    #[arg(long, value_name = "N", requires = "snapshots", value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_every: Option<u64>,

    /// Share of the steps after which snapshots begin
    #[arg(long, value_name = "SHARE", requires = "snapshots", default_value_t = 0.75, value_parser = share, allow_negative_numbers = true)]
    snapshot_from: f64,

    /// Learning rate while snapshots are written, constant; before, the cosine goes down to it [default: a fifth of --rate]
    #[arg(long, value_name = "RATE", requires = "snapshots", value_parser = positive, allow_negative_numbers = true)]
    snapshot_rate: Option<f64>,

    #[command(flatten)]
    checkpointing: CheckpointOptions,

    /// Network file to write: safetensors, with PyTorch's names for the tensors
    #[arg(long, short, visible_alias = "model", value_name = "FILE")]
    out: Option<NewFile>,

    #[command(flatten)]
    reader: Reader,
}

impl Train {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(|path| Output::with_extension(path, &["safetensors"])).transpose()?;
        self.checkpointing.check()?;
        let start = Instant::now();
        let (data, test, schema) = self.read(context)?;
        let mut classifier = Classifier::within(&self.net, &data, &context.fit(&Silent))?;
        classifier.schema = Some(schema);
        if let Some(standardizer) = self.standardizer(&data)? {
            classifier.standardizer = standardizer;
        }
        if self.linearised {
            classifier = classifier.linearised()?;
        }
        let settings = self.settings(&classifier, context.seed)?;
        let network = &classifier.network;
        context.note(format_args!(
            "{}{}: {} parameters, {} multiply-adds per row; {} for training, {} for testing; {}{}",
            if self.linearised { "linearised " } else { "" },
            text::rounded(&self.net),
            text::grouped(network.trained()),
            text::grouped(network.multiply_adds()),
            text::count(data.n(), "row"),
            text::grouped(test.n()),
            match classifier.number {
                Some(_) => "the target is a number: squared error".to_owned(),
                None => format!("the target is one of {} classes: cross-entropy", classifier.classes.len()),
            },
            if settings.augment { "; shifted and mirrored at random" } else { "" }
        ));
        let (epochs, rows) = (self.epochs, data.n());
        let report = |epoch: &Epoch| context.note(line(epoch, epochs, rows));
        let trained = context.fitting(|fit| train(classifier, &data, Some(&test), &settings, fit, &report))?;
        let scores = trained.classifier.score(&test)?;
        if let Some(out) = &out {
            context.written(out, trained.classifier.save(out.path()));
        }
        let object = json!({
            "data": self.data,
            "net": trained.classifier.network.expression(),
            "linearised": self.linearised,
            "parameters": trained.classifier.network.trained(),
            "n": data.n(),
            "stop": if trained.stop == Stop::Interrupted { "interrupted" } else { "done" },
            "steps": trained.steps,
            "test": scores,
            "history": trained.history,
            "seconds": start.elapsed().as_secs_f64(),
            "snapshots": self.snapshots.as_deref().map(snapshot_files).transpose()?,
            "out": out,
        });
        context.costly_result(&object, || {
            let scores = super::evaluate::sentence(&scores);
            format!("{}: {scores}{}", self.scored(), self.ending(&trained, start.elapsed().as_secs_f64()))
        })
    }

    /// The scaling that was asked for.
    fn standardizer(&self, data: &Dataset) -> Result<Option<Standardizer>> {
        Ok(match self.scale {
            None | Some(Scaling::Standard) => None,
            Some(Scaling::None) => Some(Standardizer::identity()),
            Some(Scaling::MinMax) => Some(Standardizer::of_scaler(&Scaler::fit(Scaling::MinMax, &data.x)?)),
        })
    }

    fn ending(&self, trained: &Trained, seconds: f64) -> String {
        let epochs = text::count(trained.history.len(), "epoch");
        let mut text =
            format!("\n{epochs}, {} in {}", text::count(trained.steps as usize, "step"), text::seconds(seconds));
        if trained.stop == Stop::Interrupted {
            text += &match &self.checkpointing.checkpoint {
                Some(path) => format!("; interrupted; continue with --checkpoint {} --resume", path.display()),
                None => "; interrupted".to_owned(),
            };
        }
        if let Some(folder) = &self.snapshots {
            let count = snapshot_files(folder).map_or(0, |files| files.len());
            text += &format!("\n{} in {}", text::count(count, "snapshot"), folder.display());
        }
        text
    }

    fn settings(&self, classifier: &Classifier, seed: u64) -> Result<Settings> {
        let sgd = self.optimiser == "sgd";
        fail_if!(!sgd && self.momentum.is_some(), "--momentum is an option of --optimiser sgd, not of adam");
        let normed = classifier.network.constants() > 0;
        let weight_decay = self.weight_decay.map_or(if sgd { 5e-4 } else { 0.0 }, |w| w as f32);
        let momentum = self.momentum.unwrap_or(0.9) as f32;
        let (rate, rule) = match sgd {
            true => (if normed { 0.1 } else { 0.02 }, Rule::Sgd { momentum, weight_decay }),
            false => (1e-3, Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay }),
        };
        Ok(Settings {
            epochs: self.epochs,
            batch: self.batch as usize,
            rule,
            learning_rate: self.rate.unwrap_or(rate),
            augment: !self.no_augment
                && classifier.network.description().image.is_some_and(|[channels, ..]| channels == 3),
            snapshots: self.snapshots.as_ref().map(|folder| Snapshots {
                folder: folder.to_path_buf(),
                from: self.snapshot_from,
                every: self.snapshot_every,
                rate: self.snapshot_rate,
            }),
            seed,
            checkpoint: self.checkpointing.path(),
            checkpoint_seconds: self.checkpointing.checkpoint_every.unwrap_or(Settings::default().checkpoint_seconds),
            resume: self.checkpointing.resume,
            overwrite: self.checkpointing.overwrite,
        })
    }

    /// The training rows, the test rows, and how tables become such rows.
    fn read(&self, context: &Context) -> Result<(Dataset, Dataset, Schema)> {
        // Classes are named before the split, so that both parts know the same.
        let table = self.task.table(&self.reader, &self.data, context)?;
        // The network's file keeps the scaling of its input.
        let schema = self.reader.schema(&table, Some(Scaling::None), context)?;
        let data = encoded(&schema, table, context)?;
        let (data, test) = match &self.test {
            Some(source) => {
                let beside = Beside { option: "test", source, target: self.test_target.as_deref() };
                (data, self.reader.labelled_beside(beside, &schema, context)?)
            }
            None if has_test_part(&self.data) => {
                self.reader.open(&format!("{}(part=test)", data.name), context).map(|test| (data, test))?
            }
            None => data.split(HELD_OUT, context.seed)?,
        };
        let labelled = match &data.y {
            Some(Target::Values(_)) => Dataset::with_numbers,
            _ => Dataset::with_classes,
        };
        Ok((labelled(data)?, labelled(test)?, schema))
    }

    /// The rows that the network is scored on.
    fn scored(&self) -> String {
        match &self.test {
            Some(test) => test.clone(),
            None if has_test_part(&self.data) => format!("{}(part=test)", self.data),
            None => format!("{}, the fifth that was held out", self.data),
        }
    }
}

fn line(epoch: &Epoch, epochs: u64, rows: usize) -> String {
    let test = epoch.test.map(|test| match test {
        Quality::Classes(t) => format!("; test accuracy {}, NLL {:.4}", text::percent(t.accuracy), t.nll),
        Quality::Numbers(t) => format!("; test RMSE {}", text::short(t.rmse)),
    });
    format!(
        "epoch {}/{epochs}: loss {:.4}{}{}; {} at {:.0} rows/s",
        epoch.epoch,
        epoch.loss,
        epoch.accuracy.map(|share| format!(", accuracy {}", text::percent(share))).unwrap_or_default(),
        test.unwrap_or_default(),
        text::seconds(epoch.seconds),
        rows as f64 / epoch.seconds.max(1e-9)
    )
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |v| (0.0..1.0).contains(&v), "must lie from 0 to below 1")
}
