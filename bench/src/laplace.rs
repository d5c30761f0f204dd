//! Linearised Laplace of a network 64-64-64-10 (8970 parameters): fit to 2000 rows, prediction of 500.

use crate::Failure;
use mercer::apply::Predict;
use mercer::classifier::{Cases, Classifier, Measure, Standardizer};
use mercer::compute::Device;
use mercer::data::{Dataset, Target};
use mercer::laplace::{Ella, Laplace, Method, NetworkKind, Prior};
use mercer::net::Network;
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use ndarray::Array2;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const NET: &str = "dense(64) tanh dense(64) tanh dense(10)";
/// That of the peer.
const PRECISION: f64 = 1.0;

/// `array` reads the rows and the weights that `laplace_peers.py prepare` wrote.
pub fn measure(
    method: &str,
    repeats: usize,
    array: impl Fn(&str) -> Result<Array2<f64>, Failure>,
) -> Result<Value, Failure> {
    let method = match method {
        "ella" => Ella { samples: 200, rank: 20 }.into(),
        other => Method::all_for(NetworkKind::default())
            .into_iter()
            .find(|method| method.name() == other)
            .ok_or("there is no such method")?,
    };
    let classes: Vec<String> = (0..10).map(|c| c.to_string()).collect();
    let labels = |y: Array2<f64>| y.iter().map(|y| *y as usize).collect::<Vec<_>>();
    let (y, truth) = (labels(array("laplace-y")?), labels(array("laplace-truth")?));
    let (x, new) = (array("laplace-x")?, array("laplace-new")?);
    let network = Network::parse(NET, x.ncols(), 1)?;
    let mut tensors = network.tensors(&network.init(Device::Cpu, &Rng::new(0))?)?;
    for (i, tensor) in tensors.iter_mut().enumerate() {
        let kind = if tensor.name.ends_with("weight") { "weight" } else { "bias" };
        tensor.data = array(&format!("laplace-{kind}{}", i / 2))?.iter().map(|v| *v as f32).collect();
    }
    let parameters = network.parameters_named(Device::Cpu, &tensors)?;
    let standardizer = Standardizer::identity();
    let network = Classifier {
        network,
        parameters,
        standardizer,
        classes: classes.clone(),
        schema: None,
        number: None,
        foreign: true,
        displacement: None,
    };
    let data = Dataset::new("rows", x, Some(Target::Classes { labels: y, names: classes }))?;
    let network = Arc::new(network);
    let prior = Prior::Given { precision: PRECISION, noise: 1.0 };
    let laplace = Laplace { prior, ..Laplace::new(method) };
    let (mut fit, mut predict, mut nll) = (vec![], vec![], 0.0);
    for run in 0..=repeats {
        let start = Instant::now();
        let fitted = laplace.fit(&network, &data, None, &FitContext::default())?;
        let middle = Instant::now();
        let scores = fitted.scores(new.view())?;
        let end = Instant::now();
        nll = Cases::of(scores.view(), &truth).measure(Measure::Nll);
        if run > 0 {
            fit.push((middle - start).as_secs_f64());
            predict.push((end - middle).as_secs_f64());
        }
    }
    Ok(json!({ "fit": fit, "predict": predict, "nll": nll }))
}
