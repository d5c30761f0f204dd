//! Networks as commands use them: one, given by its architecture, or as a file holds it.

use crate::context::Context;
use mercer::Result;
use mercer::classifier::{Classifier, Labelled, Standardizer, Unnamed};
use mercer::compute::Tensor;
use mercer::data::Dataset;
use mercer::net::{Network, Parameters};
use mercer::rng::Rng;
use std::path::Path;

/// One network, and what is done to rows before it sees them.
pub struct Single {
    pub net: Network,
    pub parameters: Parameters,
    standard: Option<Standardizer>,
}

impl Single {
    /// The network `net` for the rows of `data`: an architecture, its weights drawn from the seed; or a file that `mercer train`
    /// wrote; or, with the file `weights`, what that file does not say of itself. Batch norms of a file are folded.
    pub fn open(net: &str, weights: Option<&Path>, data: &Dataset, context: &Context) -> Result<Single> {
        let classifier = match weights {
            Some(file) => {
                let data = Labelled::of(data)?;
                Classifier::load(file, context.device, Some(Unnamed { net, data: &data }))?
            }
            None if net.trim().ends_with(".safetensors") => Classifier::load(Path::new(net), context.device, None)?,
            None => {
                let net = Network::parse(net, data.d(), 1)?;
                context.budget.require_network(&net, 2)?;
                let parameters = net.init(context.device, &Rng::new(context.seed))?;
                return Ok(Single { net, parameters, standard: None });
            }
        };
        let (net, parameters) = classifier.network.fold(&classifier.parameters)?;
        Ok(Single { net, parameters, standard: Some(classifier.standardizer) })
    }

    /// The rows `[n, d]` as the network takes them.
    pub fn points(&self, data: &Dataset, context: &Context) -> Result<Tensor> {
        match &self.standard {
            Some(standard) if data.d() == self.net.inputs() => standard.apply(data.x.to_f64().view(), context.device),
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
