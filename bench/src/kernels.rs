//! Kernels of infinite networks: the matrix in f32.

use crate::{Failure, time};
use mercer::compute::Device;
use mercer::kernel::{Expression, Kernel};
use mercer::operator::gram;
use ndarray::Array2;
use serde_json::{Value, json};

const CONVOLUTIONAL: &str = "ntk('conv(3) relu conv(3) relu conv(3) relu gap dense', w_var=2)";

/// `ntk-N`: three hidden ReLU layers on N points of 784 columns; `conv-N`: three convolutions and global average pooling on N
/// images of 32×32×3. `kernel_peers.py` has the same data. `conv-1000` uses images of CIFAR-10 and runs once, because it takes
/// minutes.
pub fn infinite_network(job: &str, repeats: usize) -> Result<Value, Failure> {
    let (kind, n) = job.split_once('-').ok_or("a job is ntk-N or conv-N")?;
    let n: usize = n.parse()?;
    let (x, text) = match (kind, n) {
        ("ntk", _) => (values(n * 784, |i| i, n), "ntk(depth=3, act=relu, w_var=2)"),
        ("conv", 1000) => (thousand_images()?, CONVOLUTIONAL),
        // The last index of the peer's images is the channel; in ours it is the first.
        ("conv", _) => {
            let peers = |i: usize| (i / 3072) * 3072 + i % 1024 * 3 + i / 1024 % 3;
            (values(n * 3072, peers, n), CONVOLUTIONAL)
        }
        (other, _) => return Err(format!("unknown job '{other}'").into()),
    };
    let kernel: Kernel = Expression::parse(text)?.resolve(x.view(), 0)?;
    let (warm_up, repeats) = if job == "conv-1000" { (0, 1) } else { (1, repeats) };
    let (seconds, k) = time(warm_up, repeats, || gram::<f32>(&kernel, x.view(), Device::Cpu))?;
    Ok(json!({ "seconds": seconds, "check": [k[[0, 1]], k[[3, 7]]] }))
}

/// The first 1000 test images of CIFAR-10 `[1000, 3072]`, from `$MERCER_DATA/cifar-10`.
fn thousand_images() -> Result<Array2<f64>, Failure> {
    const RECORD: usize = 1 + 3072;
    let folder = std::env::var("MERCER_DATA").map_err(|_| "set MERCER_DATA to the folder that holds cifar-10")?;
    let bytes = std::fs::read(std::path::Path::new(&folder).join("cifar-10/test_batch.bin"))?;
    // A record is a label and the pixels `[3, 32, 32]`.
    let pixels = bytes.chunks_exact(RECORD).take(1000).flat_map(|record| &record[1..]).map(|&p| f64::from(p) / 255.0);
    Ok(Array2::from_shape_vec((1000, RECORD - 1), pixels.collect())?)
}

/// `[n, length/n]` numbers between 0 and 1; `place` gives the index of each in the peer's data.
fn values(length: usize, place: impl Fn(usize) -> usize, n: usize) -> Array2<f64> {
    let value = |i: usize| {
        let x = (place(i) as f64 * 12.9898 + 0.5).sin() * 43758.5453;
        f64::from((x - x.floor()) as f32)
    };
    Array2::from_shape_vec((n, length / n), (0..length).map(value).collect()).expect("n rows")
}
