//! Softmax attention in linear time, by positive random features.
//!
//! Attention weighs the values of a sequence by `exp(q·k/√d)`: a kernel. With features `φ(q)·φ(k) ≈ exp(q·k/√d)`,
//!
//! ```text
//! out_i = Σ_j exp(q_i·k_j/√d) v_j / Σ_j exp(q_i·k_j/√d)  ≈  φ(q_i) (Σ_j φ(k_j) v_jᵀ) / φ(q_i) (Σ_j φ(k_j))
//! ```
//!
//! where the sums over j are taken once for all i: `O(n m d)` instead of `O(n² d)`.
//!
//! Run with `cargo run --release --example linear_attention`.

use mercer::Device;
use mercer::Result;
use mercer::kernel::Kernel;
use mercer::operator::gram_cross;
use mercer::rng::Rng;
use mercer::spectrum::{RandomFeatures, Sampling};
use mercer_engine::linalg::matmul;
use ndarray::{Array2, ArrayView2, Axis};
use std::time::Instant;

/// Queries, keys or values `[n, d]`.
type Rows<'a> = ArrayView2<'a, f64>;

/// Draws of the features over which the error is averaged.
const SEEDS: u64 = 5;

fn main() -> Result<()> {
    let (n, d) = (4096, 16);
    let mut rng = Rng::new(1);
    let mut random = |rows: usize, size: f64| Array2::from_shape_simple_fn((rows, d), || size * rng.normal());
    let (q, k) = (random(n, 0.6), random(n, 0.6));
    // As in a network, the values are a linear image of what the keys are made of.
    let v = k.dot(&random(d, 1.0));
    let softmax = Kernel::parse(&format!("expdot({})", (d as f64).sqrt()))?;

    let start = Instant::now();
    let exact = attention(&softmax, q.view(), k.view(), v.view())?;
    println!("exact attention, n = {n}, d = {d}: {:.0} ms", 1e3 * start.elapsed().as_secs_f64());
    println!("{:>9} {:>16} {:>9}", "features", "relative error", "ms");
    let mut errors = vec![];
    for m in [16, 64, 256, 1024] {
        let (mut squared, start) = (0.0, Instant::now());
        for seed in 0..SEEDS {
            let map = RandomFeatures::positive(&softmax, d, m, Sampling::Orthogonal, seed)?;
            let out = linear_attention(&map, q.view(), k.view(), v.view())?;
            squared += (norm(&(&out - &exact)) / norm(&exact)).powi(2) / SEEDS as f64;
        }
        let (error, milliseconds) = (squared.sqrt(), 1e3 * start.elapsed().as_secs_f64() / SEEDS as f64);
        println!("{m:>9} {error:>16.4} {milliseconds:>9.1}");
        errors.push(error);
    }
    assert!(errors.windows(2).all(|e| e[1] < e[0]), "more features must bring the error down: {errors:?}");
    assert!(errors[3] < errors[0] / 3.0, "64 times the features must bring it well down: {errors:?}");
    Ok(())
}

/// `softmax(q kᵀ/√d) v` `[n, d]`, every weight computed.
fn attention(softmax: &Kernel, q: Rows, k: Rows, v: Rows) -> Result<Array2<f64>> {
    let weights = gram_cross::<f64>(softmax, q, k, Device::Cpu)?;
    let totals = weights.sum_axis(Axis(1)).insert_axis(Axis(1));
    Ok(matmul(weights.view(), v) / totals)
}

/// The same through features, without any `[n, n]` matrix.
fn linear_attention(map: &RandomFeatures, q: Rows, k: Rows, v: Rows) -> Result<Array2<f64>> {
    let (phi_q, phi_k) = (map.transform::<f64>(q)?, map.transform::<f64>(k)?);
    let values = matmul(phi_k.t(), v);
    let totals = phi_q.dot(&phi_k.sum_axis(Axis(0))).insert_axis(Axis(1));
    Ok(matmul(phi_q.view(), values.view()) / totals)
}

fn norm(a: &Array2<f64>) -> f64 {
    a.iter().map(|v| v * v).sum::<f64>().sqrt()
}
