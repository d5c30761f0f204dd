//! The empirical NTK of a fully connected ReLU network, for all pairs of outputs.

use crate::{Failure, time};
use mercer::compute::{Device, Tensor};
use mercer::net::Network;
use mercer::net::ntk::EmpiricalNtk;
use mercer::rng::Rng;
use serde_json::{Value, json};

/// Number of warm-up kernels.
const WARM_UP: usize = 3;

/// `size` is `d-h-h-c-N`: widths of the layers, then points.
pub fn exact(size: &str, repeats: usize) -> Result<Value, Failure> {
    let size: Vec<usize> = size.split('-').map(str::parse).collect::<Result<_, _>>()?;
    let [d, hidden @ .., c, n] = &size[..] else {
        return Err("a size is d-h-…-c-N, such as 784-512-512-10-64".into());
    };
    Ok(Device::Cpu.enter(|| measure(*d, hidden, *c, *n, repeats))?)
}

fn measure(d: usize, hidden: &[usize], c: usize, n: usize, repeats: usize) -> mercer::Result<Value> {
    let mut rng = Rng::new(0);
    let layers: String = hidden.iter().map(|h| format!("dense({h}) relu ")).collect();
    let net = Network::parse(&format!("{layers}dense({c})"), d, 1)?;
    let theta = net.init(Device::Cpu, &rng)?;
    let x: Vec<f32> = (0..n * d).map(|_| rng.normal() as f32).collect();
    let x = Tensor::from_host(Device::Cpu, &[n, d], &x)?;
    let (ntk, outputs) = (EmpiricalNtk::new(&net, &theta)?, (0..c).collect::<Vec<_>>());
    let (seconds, kernel) = time(WARM_UP, repeats, || ntk.exact(&x, None, &outputs))?;
    let diagonal = (0..n).flat_map(|i| (0..c).map(move |o| [i, i, o, o]));
    let trace: f64 = diagonal.map(|place| f64::from(kernel[place])).sum();
    // Forward, backward from the last hidden layer, and the products of signals, half of them by symmetry.
    let widths: Vec<usize> = [&[d], hidden, &[c]].concat();
    let forward: usize = widths.windows(2).map(|w| 2 * n * w[0] * w[1]).sum();
    let backward: usize = widths[1..].windows(2).map(|w| 2 * c * n * w[0] * w[1]).sum();
    let products: usize = widths[1..].iter().map(|w| c * (c + 1) * n * n * w).sum();
    let inputs: usize = widths[..widths.len() - 1].iter().map(|w| 2 * n * n * w).sum();
    Ok(json!({ "seconds": seconds, "flop": (forward + backward + products + inputs) as f64, "trace": trace }))
}
