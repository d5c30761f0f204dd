//! Kernels of infinite networks: the matrix in f32.

use crate::Failure;
use mercer::compute::Device;
use mercer::kernel::{Expression, Kernel};
use mercer::operator::gram;
use ndarray::Array2;
use serde_json::{Value, json};
use std::time::Instant;

const CONVOLUTIONAL: &str = "ntk('conv(3) relu conv(3) relu conv(3) relu gap dense', w_var=2)";

/// `ntk-N`: three hidden layers of ReLUs on N points of 784 numbers; `conv-N`: three convolutions and global average pooling
/// on N pictures of 32×32×3. `kernel_peers.py` has the same numbers. `conv-1000` takes the pictures of CIFAR-10.
pub fn infinite_network(job: &str, repeats: usize) -> Result<Value, Failure> {
    if job == "conv-1000" {
        return thousand_pictures();
    }
    let (kind, n) = job.split_once('-').ok_or("a job is ntk-N or conv-N")?;
    let n: usize = n.parse()?;
    let (x, text) = match kind {
        "ntk" => (values(n * 784, |i| i, n), "ntk(depth=3, act=relu, w_var=2)"),
        // The peer's pictures end with the channels, ours begin with them.
        "conv" => {
            let peers = |i: usize| (i / 3072) * 3072 + i % 1024 * 3 + i / 1024 % 3;
            (values(n * 3072, peers, n), CONVOLUTIONAL)
        }
        other => return Err(format!("unknown job '{other}'").into()),
    };
    let kernel: Kernel = Expression::parse(text)?.resolve(x.view(), 0)?;
    let mut k = gram::<f32>(&kernel, x.view(), Device::Cpu)?;
    let mut seconds = vec![];
    for _ in 0..repeats {
        drop(k);
        let start = Instant::now();
        k = gram::<f32>(&kernel, x.view(), Device::Cpu)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(json!({ "seconds": seconds, "check": [k[[0, 1]], k[[3, 7]]] }))
}

/// The kernel matrix of the first 1000 test pictures of CIFAR-10, from `$MERCER_DATA/cifar-10`; once, as it takes minutes.
fn thousand_pictures() -> Result<Value, Failure> {
    const RECORD: usize = 1 + 3072;
    let folder = std::env::var("MERCER_DATA").map_err(|_| "set MERCER_DATA to the folder that holds cifar-10")?;
    let bytes = std::fs::read(std::path::Path::new(&folder).join("cifar-10/test_batch.bin"))?;
    // A record is a label and the pixels, channel by channel.
    let pixels = bytes.chunks_exact(RECORD).take(1000).flat_map(|record| &record[1..]).map(|&p| f64::from(p) / 255.0);
    let x = Array2::from_shape_vec((1000, RECORD - 1), pixels.collect())?;
    let kernel = Expression::parse(CONVOLUTIONAL)?.resolve(x.view(), 0)?;
    let start = Instant::now();
    let k = gram::<f32>(&kernel, x.view(), Device::Cpu)?;
    Ok(json!({ "seconds": [start.elapsed().as_secs_f64()], "check": [k[[0, 1]], k[[3, 7]]] }))
}

/// `[n, length/n]` of numbers between 0 and 1; `place` gives the peer's place of each.
fn values(length: usize, place: impl Fn(usize) -> usize, n: usize) -> Array2<f64> {
    let value = |i: usize| {
        let x = (place(i) as f64 * 12.9898 + 0.5).sin() * 43758.5453;
        f64::from((x - x.floor()) as f32)
    };
    Array2::from_shape_vec((n, length / n), (0..length).map(value).collect()).expect("n rows")
}
