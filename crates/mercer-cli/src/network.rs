//! Networks as commands use them: one, given by its architecture.

use crate::context::Context;
use mercer::Result;
use mercer::compute::Tensor;
use mercer::data::Dataset;
use mercer::net::{Network, Parameters};
use mercer::rng::Rng;

/// The network of the architecture on `inputs` columns, its weights drawn from the seed.
pub fn single(architecture: &str, inputs: usize, context: &Context) -> Result<(Network, Parameters)> {
    let net = Network::parse(architecture, inputs, 1)?;
    let theta = net.init(context.device, &Rng::new(context.seed))?;
    Ok((net, theta))
}

/// The features `[n, d]` in single precision where networks run.
pub fn points(data: &Dataset, context: &Context) -> Result<Tensor> {
    let values: Vec<f32> = data.x.iter().map(|v| *v as f32).collect();
    Tensor::from_host(context.device, &[data.n(), data.d()], &values)
}
