//! Networks as commands use them: one, given by its architecture, or as a file holds it.

use crate::program::context::Context;
use crate::text;
use clap::Args;
use mercer::classifier::{Classifier, Standardizer, Unnamed};
use mercer::compute::Tensor;
use mercer::data::{Dataset, Rows, Target};
use mercer::net::{Network, Parameters};
use mercer::rng::Rng;
use mercer::{Result, fail_if};
use serde_json::{Value, json};
use std::path::Path;

/// What a file that another program wrote does not say of its network.
#[derive(Args)]
pub struct Foreign {
    /// Subtracted from the input of a network that PyTorch saved: one number, or one for each channel, such as
    /// 0.4914,0.4822,0.4465 [default: nothing]
    #[arg(long, value_name = "NUMBERS", allow_hyphen_values = true, value_parser = numbers)]
    mean: Option<Numbers>,

    /// Divides the input of a network that PyTorch saved, after --mean: one number, or one for each channel [default: nothing]
    #[arg(long, value_name = "NUMBERS", allow_hyphen_values = true, value_parser = numbers)]
    std: Option<Numbers>,

    /// Names of the tensors in a file that PyTorch saved: "old=new,…" puts new for old where a name, or a part of it after a
    /// dot, begins with old; "module.=" takes module. away
    #[arg(long, value_name = "OLD=NEW,…", value_parser = renames)]
    rename: Option<Renames>,
}

/// Rules of names.
#[derive(Clone, Debug)]
struct Renames(Vec<(String, String)>);

fn renames(text: &str) -> Result<Renames, String> {
    let rule = |rule: &str| {
        let (old, new) = rule.split_once('=').filter(|(old, _)| !old.trim().is_empty())?;
        Some((old.trim().to_owned(), new.trim().to_owned()))
    };
    let all: Option<Vec<(String, String)>> = text.split(',').map(rule).collect();
    all.map(Renames).ok_or_else(|| "it must be old=new, or several with commas between them".into())
}

/// Numbers with commas between them.
#[derive(Clone, Debug)]
struct Numbers(Vec<f64>);

fn numbers(text: &str) -> Result<Numbers, String> {
    let number = |word: &str| word.trim().parse().ok().filter(|v: &f64| v.is_finite());
    let all: Option<Vec<f64>> = text.split(',').map(number).collect();
    all.map(Numbers).ok_or_else(|| "it must be a number, or numbers with commas between them".into())
}

impl Foreign {
    /// The network of a file; `net` is what a file of another program does not name.
    pub fn load(&self, file: &Path, net: Option<&str>, data: &Dataset, context: &Context) -> Result<Classifier> {
        let all = |numbers: &Option<Numbers>| numbers.as_ref().map(|n| n.0.clone()).unwrap_or_default();
        let (mean, spread) = (all(&self.mean), all(&self.std));
        let rename = self.rename.as_ref().map(|rules| &rules.0[..]).unwrap_or_default();
        let classes = match data.y.as_ref().map(Target::as_classes) {
            Some(Ok(Target::Classes { names, .. })) => names,
            _ => vec![],
        };
        let unnamed = net.map(|net| Unnamed {
            net,
            inputs: data.d(),
            image: data.shape,
            classes: &classes,
            mean: &mean,
            spread: &spread,
            rename,
        });
        fail_if!(
            unnamed.is_none() && !self.is_empty(),
            "--mean, --std and --rename are for a network that PyTorch saved; give its layers or name too (--net)"
        );
        Classifier::load(file, context.device, unnamed)
    }

    fn is_empty(&self) -> bool {
        self.mean.is_none() && self.std.is_none() && self.rename.is_none()
    }
}

/// What a network sees of rows: in words, and as an object.
pub struct Input {
    pub words: String,
    pub object: Value,
}

impl Input {
    /// Of the rows `x` `[n, d]` in a network with this scaling, from a file of another program or not.
    pub fn new(standardizer: &Standardizer, foreign: bool, x: Rows<'_>) -> Input {
        let Standardizer { mean, spread } = standardizer;
        let list = |numbers: &[f64]| numbers.iter().map(|v| text::short(*v)).collect::<Vec<_>>().join(", ");
        let by = format!("mean {}; std {}", list(mean), list(spread));
        let (scaling, words) = match (foreign, standardizer.is_identity()) {
            (false, _) => ("stored", format!("input scaled as in training: {by}")),
            (true, false) => ("given", format!("input scaled as --mean and --std say: {by}")),
            (true, true) => {
                let [least, most] = range(x).map(text::short);
                ("none", format!("input as the data have it, from {least} to {most}; --mean and --std would scale it"))
            }
        };
        Input { words, object: json!({ "scaling": scaling, "mean": mean, "std": spread, "range": range(x) }) }
    }
}

/// The least and the largest value of the rows.
fn range(x: Rows<'_>) -> [f64; 2] {
    let blocks = (0..x.n()).step_by(256).map(|start| x.slice(start..x.n().min(start + 256)).to_f64());
    blocks.fold([f64::INFINITY, f64::NEG_INFINITY], |range, block| {
        block.iter().fold(range, |[least, most], &v| [least.min(v), most.max(v)])
    })
}

/// The file that a network is named by, unless it is an architecture.
pub fn network_file(net: &str) -> Option<&Path> {
    let extensions = [".safetensors", ".pt", ".pth", ".bin"];
    extensions.iter().any(|extension| net.trim().ends_with(extension)).then(|| Path::new(net.trim()))
}

/// One network, and what is done to rows before it sees them.
pub struct Single {
    pub net: Network,
    pub parameters: Parameters,
    /// The scaling of a network from a file, and whether another program wrote it.
    standard: Option<(Standardizer, bool)>,
}

impl Single {
    /// The network `net` for the rows of `data`: an architecture, its weights drawn from the seed; or a file that `mercer train`
    /// wrote; or, with the file `weights`, what that file does not say of itself. Batch norms of a file are folded.
    pub fn open(
        net: &str,
        weights: Option<&Path>,
        foreign: &Foreign,
        data: &Dataset,
        context: &Context,
    ) -> Result<Single> {
        let classifier = match (weights, network_file(net)) {
            (Some(file), _) => foreign.load(file, Some(net), data, context)?,
            (None, Some(file)) => foreign.load(file, None, data, context)?,
            (None, None) => {
                fail_if!(!foreign.is_empty(), "--mean, --std and --rename are for the network of a file (--weights)");
                let net = Network::parse(net, data.d(), 1)?;
                context.budget.require_network(&net, 2, 0)?;
                let parameters = net.init(context.device, &Rng::new(context.seed))?;
                return Ok(Single { net, parameters, standard: None });
            }
        };
        let (net, parameters) = classifier.network.fold(&classifier.parameters)?;
        Ok(Single { net, parameters, standard: Some((classifier.standardizer, classifier.foreign)) })
    }

    /// What a network from a file sees of the rows.
    pub fn input(&self, data: &Dataset) -> Option<Input> {
        self.standard.as_ref().map(|(standardizer, foreign)| Input::new(standardizer, *foreign, data.x.rows()))
    }

    /// The rows `[n, d]` as the network takes them.
    pub fn points(&self, data: &Dataset, context: &Context) -> Result<Tensor> {
        match &self.standard {
            Some((standard, _)) if data.d() == self.net.inputs() => {
                standard.apply(data.x.to_f64().view(), context.device)
            }
            // Rows of another length are refused where they are used.
            _ => points(data, context),
        }
    }
}

/// The features `[n, d]` in single precision where networks run.
pub fn points(data: &Dataset, context: &Context) -> Result<Tensor> {
    let values = data.x.rows().to_f32();
    Tensor::from_host(context.device, &[data.n(), data.d()], values.as_slice().expect("rows in order"))
}
