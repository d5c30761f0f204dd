//! Time of one NeuralEF training step (forward, gradient by ψ from a given K_XX, vjp, Adam) of k networks
//! d → h → h → 1 on a batch of B, and the share of the machine's own GEMM speed that its products reach:
//! `cargo run --release -p mercer --example neural_step`

use mercer::compute::{Device, Rule, Store, Tensor, fill_normal, gemm};
use mercer::net::{Mode, Network, Optimizer, Schedule};
use mercer::rng::Rng;
use std::time::Instant;

fn main() -> mercer::Result<()> {
    Device::Cpu.enter(measure)
}

fn measure() -> mercer::Result<()> {
    let peak = gemm_peak()?;
    println!("threads {}, peak {peak:.0} GFLOP/s (f32, 2048³)", rayon::current_num_threads());
    for (d, h, k, b) in [(1, 32, 10, 256), (784, 256, 16, 512), (64, 128, 32, 1024)] {
        for phi in ["sincos", "relu"] {
            let (median, best) = step_time(d, h, k, b, phi)?;
            let [forward, backward] = [d * h + h * h + h, d * h + 2 * h * h + 2 * h].map(|n| 2 * k * b * n);
            let flops = (forward + backward + 4 * k * b * b / 2 + 4 * k * k * b) as f64;
            let share = flops / (median * 1e-3) / (peak * 1e9);
            println!(
                "(d,h,k,B)=({d},{h},{k},{b}) {phi:6}: median {median:8.3} ms, best {best:8.3} ms, {:.0} % of peak",
                100.0 * share
            );
        }
    }
    Ok(())
}

/// GFLOP/s of a 2048³ product, best of several.
fn gemm_peak() -> mercer::Result<f64> {
    let n = 2048;
    let mut rng = Rng::new(0);
    let (mut a, mut c) = (Tensor::zeros(Device::Cpu, &[n, n])?, Tensor::zeros(Device::Cpu, &[n, n])?);
    fill_normal(&mut a, &mut rng);
    let best = (0..7).map(|_| {
        let start = Instant::now();
        gemm(1.0, a.stack(), a.stack().t(), Store::Replace, c.stack_mut());
        start.elapsed().as_secs_f64()
    });
    Ok(2.0 * (n as f64).powi(3) / best.fold(f64::INFINITY, f64::min) / 1e9)
}

/// Median and best milliseconds of a step.
fn step_time(d: usize, h: usize, k: usize, b: usize, phi: &str) -> mercer::Result<(f64, f64)> {
    let device = Device::Cpu;
    let mut rng = Rng::new(1);
    let net = Network::parse(&format!("dense({h}) {phi} dense({h}) {phi} dense(1) l2norm"), d, k)?;
    let mut theta = net.init(device, &rng)?;
    let mut workspace = net.workspace(device)?;
    let mut optimizer = Optimizer::new(device, Rule::ADAM, Schedule::Constant { rate: 1e-3 }, None, net.parameters())?;
    let zeros = |shape: &[usize]| Tensor::zeros(device, shape);
    let (mut x, mut kernel, mut grad) = (zeros(&[b, d])?, zeros(&[b, b])?, zeros(&[net.parameters()])?);
    let (mut kpsi, mut g, mut r, mut mix) = (zeros(&[k, b])?, zeros(&[k, b])?, zeros(&[k, k])?, zeros(&[k, k])?);
    fill_normal(&mut x, &mut rng);
    // Any positive semidefinite matrix will do.
    gemm(1.0 / d as f32, x.stack(), x.stack().t(), Store::Replace, kernel.stack_mut());
    let (mut rh, mut mixh) = (vec![0.0f32; k * k], vec![0.0f32; k * k]);
    let mut times = Vec::new();
    for _ in 0..if b * h > 10_000 { 30 } else { 1000 } {
        let start = Instant::now();
        let psi = net.forward(&theta, &x, Mode::Train, &mut workspace)?;
        let psi = psi.matrices(0, 0, k, b);
        gemm(1.0, psi, kernel.stack(), Store::Replace, kpsi.stack_mut());
        gemm(1.0, psi, kpsi.stack().t(), Store::Replace, r.stack_mut());
        // ∂ℓ/∂ψ_j = −(2/B²) K (ψ_j − Σ_{i<j} (R_ij/R_ii) ψ_i)
        r.copy_to_host(&mut rh)?;
        let scale = -2.0 / (b * b) as f32;
        for j in 0..k {
            for i in 0..k {
                mixh[j * k + i] = match i.cmp(&j) {
                    std::cmp::Ordering::Less => -scale * rh[i * k + j] / rh[i * k + i].max(1e-12),
                    std::cmp::Ordering::Equal => scale,
                    std::cmp::Ordering::Greater => 0.0,
                };
            }
        }
        mix.copy_from_host(&mixh)?;
        gemm(1.0, mix.stack(), kpsi.stack(), Store::Replace, g.stack_mut());
        net.vjp(&theta, &x, &mut workspace, &g, &mut grad, None)?;
        optimizer.step(&mut theta.trained, &grad);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[0]))
}
