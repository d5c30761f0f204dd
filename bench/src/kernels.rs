//! Kernels of infinite networks: the matrix in f32.

use crate::Failure;
use mercer::kernel::{Expression, Kernel};
use mercer::operator::gram;
use ndarray::Array2;
use serde_json::{Value, json};
use std::time::Instant;

/// `ntk-N`: three hidden layers of ReLUs on N points of 784 numbers; `conv-N`: three convolutions and global average pooling
/// on N pictures of 32×32×3. `kernel_peers.py` has the same numbers.
pub fn infinite_network(job: &str, repeats: usize) -> Result<Value, Failure> {
    let (kind, n) = job.split_once('-').ok_or("a job is ntk-N or conv-N")?;
    let n: usize = n.parse()?;
    let (x, text) = match kind {
        "ntk" => (values(n * 784, |i| i, n), "ntk(depth=3, act=relu, w_var=2)"),
        // The peer's pictures end with the channels, ours begin with them.
        "conv" => {
            let peers = |i: usize| (i / 3072) * 3072 + i % 1024 * 3 + i / 1024 % 3;
            (values(n * 3072, peers, n), "ntk('conv(3) relu conv(3) relu conv(3) relu gap dense', w_var=2)")
        }
        other => return Err(format!("unknown job '{other}'").into()),
    };
    let kernel: Kernel = Expression::parse(text)?.resolve(x.view(), 0)?;
    let mut k = gram::<f32>(&kernel, x.view());
    let mut seconds = vec![];
    for _ in 0..repeats {
        drop(k);
        let start = Instant::now();
        k = gram::<f32>(&kernel, x.view());
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(json!({ "seconds": seconds, "check": [k[[0, 1]], k[[3, 7]]] }))
}

/// `[n, length/n]` of numbers between 0 and 1; `place` gives the peer's place of each.
fn values(length: usize, place: impl Fn(usize) -> usize, n: usize) -> Array2<f64> {
    let value = |i: usize| {
        let x = (place(i) as f64 * 12.9898 + 0.5).sin() * 43758.5453;
        f64::from((x - x.floor()) as f32)
    };
    Array2::from_shape_vec((n, length / n), (0..length).map(value).collect()).expect("n rows")
}
