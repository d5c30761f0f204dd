//! `mercer eigenmap`: a code in the order of importance, from unlabelled rows and a way to disturb them, or from embeddings.

use super::embeddings::Embeddings;
use crate::options::checkpoint_options::CheckpointOptions;
use crate::options::input::{Beside, Reader, has_test_part, scaling, target_file};
use crate::options::training;
use crate::options::values::{choice, non_negative, positive};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::show::certificate;
use crate::text;
use clap::Args;
use clap::builder::PossibleValuesParser;
use mercer::apply::{CodeFinish, FittedCode, PairCertificate, Saved, ViewEigenmap, ViewRows, Weighting};
use mercer::compute::{Math, Rule};
use mercer::data::{Dataset, Scaling, Target};
use mercer::net::ScheduleKind;
use mercer::spectrum::neural::{Augmentation, PairObjective, Settings};
use mercer::{Error, FitContext, Result, fail_if};
use serde_json::json;

/// Learn a code without labels: eigenfunctions of the kernel of augmented views, whose first m values are the code of length m
#[derive(Args)]
#[command(after_help = "Examples:\n  mercer eigenmap digits --net \"dense(128) relu\" --k 16 --out m.mercer\n  \
                        mercer eigenmap --embeddings e.npy --pairs e2.npy --k 32 --out m.mercer")]
pub struct Eigenmap {
    /// Rows without labels: a file or a named set (see `mercer datasets`); classes, where there are some, are only used to watch
    #[arg(required_unless_present = "embeddings", conflicts_with = "embeddings")]
    data: Option<String>,

    /// Network before the projector: mlp, lenet, resnet18, resnet20, …, or layers such as "conv(32, 3) bn relu gap"
    #[arg(long, value_name = "NET", required_unless_present = "embeddings", conflicts_with = "embeddings")]
    net: Option<String>,

    /// Number of coordinates
    #[arg(long, short, value_name = "N", default_value_t = 64)]
    k: usize,

    /// How views are made: crops, flip, colour, grey, blur, solarise of images; noise, mask, columns of rows; with + between them
    /// [default: crops+flip+colour+grey of colour images, crops(0.4)+noise of grey ones, noise+mask of rows]
    #[arg(long, value_name = "PARTS", conflicts_with = "pairs")]
    augment: Option<Augmentation>,

    /// The other views of the same things, where pairs are known: row i of this file belongs to row i of the data
    #[arg(long, value_name = "FILE")]
    pairs: Option<String>,

    /// What trains the network
    #[arg(long, value_name = "NAME", default_value = "eigenmap", value_parser = PossibleValuesParser::new(PairObjective::named().into_iter().map(|(name, _)| name)))]
    objective: String,

    /// Take the functions of the objective in its own order, without a final Rayleigh–Ritz on the pairs
    #[arg(long)]
    no_ritz: bool,

    /// Units of the hidden layer of the projector; 0 for no projector [default: 8 times as many as coordinates, from 64 to 2048]
    #[arg(long, value_name = "N")]
    projector: Option<usize>,

    /// Take the code from the network's units before the projector, in the order that Rayleigh–Ritz on the pairs gives them
    #[arg(long, conflicts_with_all = ["no_ritz", "embeddings"])]
    drop_projector: bool,

    /// How functions become a code: plain as they are; units by their directions, with a ridge of 0.1 and biharmonic weights [default: units with --drop-projector and
    /// for embeddings whose neighbours are pairs, else plain]
    #[arg(long, value_name = "NAME", value_parser = choice(FINISHES), conflicts_with = "no_ritz")]
    finish: Option<CodeFinish>,

    /// Noise that Rayleigh–Ritz assumes on the functions that it orders, as a share of their mean variance: 0 orders by agreement between views alone,
    /// large values by the variance that views share [default: as --finish]
    #[arg(long, value_name = "SHARE", value_parser = non_negative, allow_negative_numbers = true, conflicts_with = "no_ritz")]
    ridge: Option<f64>,

    /// Weights of the coordinates by their eigenvalue m: kernel is sqrt(m), commute sqrt(m/(1-m)), biharmonic sqrt(m)/(1-m) [default: as --finish]
    #[arg(long, value_name = "NAME", value_parser = choice(&Weighting::NAMED))]
    weighting: Option<Weighting>,

    /// Times that every row is seen, as two views each
    #[arg(long, value_name = "N", default_value_t = 100)]
    epochs: u64,

    /// Pairs of a batch
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(2..))]
    batch: u32,

    /// Largest learning rate
    #[arg(long, alias = "lr", value_name = "RATE", default_value_t = 1e-3, value_parser = positive, allow_negative_numbers = true)]
    rate: f64,

    /// How the learning rate changes over the steps; warmup rises over the first twentieth of them
    #[arg(long, default_value = "warmup", value_parser = choice(&ScheduleKind::NAMED))]
    schedule: ScheduleKind,

    /// Optimizer
    #[arg(long, alias = "optimizer", default_value = "adam", value_parser = choice(&Rule::NAMED))]
    optimiser: Rule,

    /// Weight decay of the optimizer [default: 1e-6 for lars, which spares biases and norms, 0.01 for adamw, else 0]
    #[arg(long, value_name = "RATE", value_parser = non_negative, allow_negative_numbers = true)]
    weight_decay: Option<f64>,

    /// How a GPU rounds in training steps: bf16 is fastest, and keeps images in bf16 from layer to layer; the CPU has f32
    #[arg(long, default_value = "tf32", value_parser = choice(&[("bf16", Math::Bf16), ("tf32", Math::Tf32), ("f32", Math::F32)]))]
    precision: Math,

    /// Rows for the certificate and the accuracy of neighbours [default: the test part of the set, else a tenth, held out]
    #[arg(long, value_name = "DATA", conflicts_with = "pairs")]
    test: Option<String>,

    /// Classes of these rows, an .npy file with one number a row [default: the column of the target]
    #[arg(long, value_name = "FILE.npy", requires = "test", value_parser = target_file)]
    test_target: Option<String>,

    /// Scaling of the columns [default: standard for tables, none for images and generated sets]
    #[arg(long, value_parser = scaling())]
    scale: Option<Scaling>,

    #[command(flatten)]
    checkpointing: CheckpointOptions,

    /// Model file to write, for `mercer transform`
    #[arg(long, short, visible_alias = "model", value_name = "FILE")]
    out: Option<NewFile>,

    #[command(flatten)]
    embeddings: Embeddings,

    #[command(flatten)]
    reader: Reader,
}

impl Eigenmap {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::new).transpose()?;
        self.checkpointing.check()?;
        let Some(data) = &self.data else {
            return self.embeddings.run(
                self.k,
                &|usual| self.finish(usual),
                self.pairs.as_deref(),
                &self.reader,
                out,
                context,
            );
        };
        let (rows, schema) = self.reader.features(data, self.scale, context)?;
        let test = match &self.test {
            Some(source) => {
                let beside = Beside { option: "test", source, target: self.test_target.as_deref() };
                Some(self.reader.open_beside(beside, &schema, context)?)
            }
            None if has_test_part(data) => {
                Some(self.reader.open_like(&format!("{data}(part=test)"), &schema, context)?)
            }
            None => None,
        };
        let test = test.filter(|_| self.pairs.is_none()).map(|test| view_rows(&test, None)).transpose()?;
        let partners = self.pairs.as_ref().map(|file| self.reader.open_like(file, &schema, context)).transpose()?;
        let rows = view_rows(&rows, partners.as_ref())?;
        let eigenmap = self.estimator()?;
        let code = context.fitting(|fit| eigenmap.fit(&rows, test.as_ref(), &FitContext { data, ..*fit }))?;
        code.notes.iter().for_each(|note| context.warn(note));
        if let Some(out) = &out {
            context.written(out, code.save_with(Some(&schema), out.path()));
        }
        let object = json!({
            "data": data, "origin": code.origin, "eigenvalues": code.eigenvalues, "certificate": code.certificate,
            "training": code.training, "out": out,
        });
        context.costly_result(&object, || said(&code))
    }

    /// The finish that is asked for, where the usual one is this.
    fn finish(&self, usual: CodeFinish) -> CodeFinish {
        let named = self.finish.unwrap_or(usual);
        CodeFinish {
            ridge: self.ridge.unwrap_or(named.ridge),
            weighting: self.weighting.unwrap_or(named.weighting),
            ..named
        }
    }

    fn estimator(&self) -> Result<ViewEigenmap> {
        let rule = match self.weight_decay {
            None => Some(self.optimiser),
            Some(decay) => self.optimiser.with_weight_decay(decay as f32),
        };
        let rule = rule.ok_or_else(|| Error::input("rmsprop has no weight decay; use sgd, lars or adamw"))?;
        let named = PairObjective::named().into_iter().find(|(name, _)| *name == self.objective);
        let usual = Settings::default();
        Ok(ViewEigenmap {
            projector: self.projector,
            drop_projector: self.drop_projector,
            augmentation: self.augment.clone(),
            objective: named.expect("a name that the option allows").1,
            ritz: !self.no_ritz,
            finish: Some(self.finish(if self.drop_projector { CodeFinish::UNITS } else { CodeFinish::PLAIN })),
            epochs: self.epochs,
            settings: Settings {
                batch: self.batch as usize,
                rule,
                learning_rate: self.rate,
                schedule: self.schedule,
                math: self.precision,
                checkpoint: self.checkpointing.path(),
                checkpoint_seconds: self.checkpointing.checkpoint_every.unwrap_or(usual.checkpoint_seconds),
                resume: self.checkpointing.resume,
                overwrite: self.checkpointing.overwrite,
                ..usual
            },
            ..ViewEigenmap::new(self.net.clone().unwrap_or_default(), self.k)
        })
    }
}

/// Finishes by name.
const FINISHES: &[(&str, CodeFinish)] = &[("plain", CodeFinish::PLAIN), ("units", CodeFinish::UNITS)];

/// Rows for an eigenmap, with their classes where they have some.
fn view_rows(data: &Dataset, partners: Option<&Dataset>) -> Result<ViewRows> {
    if let Some(partners) = partners {
        fail_if!(
            partners.n() != data.n(),
            "--pairs has {} rows and the data have {}; row i of one belongs to row i of the other",
            partners.n(),
            data.n()
        );
    }
    let labels = match &data.y {
        Some(Target::Classes { labels, .. }) => Some(labels.clone()),
        _ => None,
    };
    let partners = partners.map(|partners| partners.x.to_f64().into_owned());
    Ok(ViewRows { x: data.x.to_f64().into_owned(), image: data.shape, labels, partners })
}

/// Coordinates that are shown.
const SHOWN: usize = 16;

fn said(code: &FittedCode) -> String {
    let origin = certificate::origin(&code.origin, &format!("of {}", code.origin.data), "");
    let mut said =
        format!("{origin}\nKernel: {}\n\n{}", code.origin.kernel, table(&code.eigenvalues, &code.certificate));
    if let Some(training) = &code.training {
        training::sentences(training).iter().for_each(|sentence| said += &format!("{sentence}\n"));
        if let Some([_, share]) = training.accuracy.last() {
            said += &format!("Accuracy of 20 nearest neighbours on held-out rows: {}.\n", text::percent(*share));
        }
    }
    said
}

/// Eigenvalues with their certificate, and what holds for all.
pub fn table(eigenvalues: &[f64], certificate: &PairCertificate) -> String {
    let row = |j: usize| {
        let [low, high] = certificate.intervals[j];
        let numbers = [eigenvalues[j], certificate.quotients[j], low, high, certificate.residuals[j]];
        std::iter::once((j + 1).to_string()).chain(numbers.map(|v| text::number(v, 4))).collect::<Vec<String>>()
    };
    let shown = eigenvalues.len().min(SHOWN);
    let rows: Vec<Vec<String>> = (0..shown).map(row).collect();
    let more = match eigenvalues.len() - shown {
        0 => String::new(),
        more => format!("and {more} more\n"),
    };
    let on = if certificate.held_out { "held-out" } else { "fitted (there are too few to hold some out)" };
    format!(
        "{}{more}\nMeasured on {} {on} pairs: the residual is the part of Kψ − μψ in the span of the functions, relative to μ; orthonormal to {}; captured trace of κ − 1: {}.\n",
        text::table(&["j", "eigenvalue", "held out", "from", "to", "residual"], &rows),
        text::grouped(certificate.pairs),
        text::number(certificate.orthonormality, 2),
        text::number(certificate.captured, 4),
    )
}
