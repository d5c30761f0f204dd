//! Jobs on the first GPU: products, top pairs and training steps, with the data on the GPU and timed there.

use crate::{Failure, neural, solvers, views};
use mercer::FitContext;
use mercer::compute::{Device, Math};
use mercer::kernel::Kernel;
use mercer::operator::cuda::time_product;
use mercer::operator::{Precision, gram};
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Neural, Ritz, Stepper};
use mercer::spectrum::{Krylov, Problem, Spectrum};
use ndarray::Array2;
use serde_json::{Value, json};
use std::time::Instant;

const N: usize = 65_536;
const MILLION: usize = 1_000_000;
const D: usize = 64;
const COLUMNS: usize = 16;
const RBF: &str = "rbf(8)";

/// Runs one job of `bench/gpu/run.py`: a name and an arithmetic, such as `rbf_tf32`.
pub fn run(job: &str, repeats: usize) -> Result<Value, Failure> {
    let device = Device::Cuda(0).open()?;
    let (name, arithmetic) = job.rsplit_once('_').ok_or("a job is NAME_ARITHMETIC, such as rbf_tf32")?;
    let (precision, math) = match arithmetic {
        "bf16" => (Precision::Tf32, Math::Bf16),
        "tf32" => (Precision::Tf32, Math::Tf32),
        "f32" => (Precision::F32, Math::F32),
        "f64" => (Precision::F64, Math::F32),
        other => return Err(format!("unknown arithmetic '{other}'").into()),
    };
    let result = match name {
        "rbf" => product(RBF, N, precision, device, repeats),
        "ntk" => product("ntk(depth=3, act=relu, w_var=2, b_var=0)", N, precision, device, repeats),
        "top10" => top_pairs(precision, device),
        "million" => product(RBF, MILLION, precision, device, 2),
        "images" => images(precision, device, repeats),
        "certificate" => certificate(math, device),
        "epoch" => solvers::landmark_epoch(precision, device),
        "askotch" => solvers::askotch(precision, device),
        "stages" => solvers::stages(precision, device),
        other => match other.split_once('_') {
            Some(("neuralef", size)) => training_step(neural::NEURALEF, size, math, device),
            Some(("ritz", size)) => training_step(Kind::Ritz(Ritz), size, math, device),
            Some(("resnet18", size)) => views::step(size, math, device, repeats),
            Some(("pass", size)) => views::pass(size, math, device, repeats),
            Some(("parts", size)) => views::parts(size, device, repeats),
            Some(("views", size)) => views::views(size, device, repeats),
            _ => Err(format!("unknown job '{other}'").into()),
        },
    };
    device.checked(Ok(()))?;
    result
}

fn normal(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    Array2::from_shape_simple_fn((rows, columns), || rng.normal())
}

fn product(kernel: &str, n: usize, precision: Precision, device: Device, repeats: usize) -> Result<Value, Failure> {
    let kernel = Kernel::parse(kernel)?;
    let (x, v) = (normal(n, D, 0), normal(n, COLUMNS, 1));
    let timing = time_product(&kernel, x.view(), v.view(), precision, device, repeats)?;
    let mut result = json!({ "ms": timing.ms, "device_bytes": timing.bytes as f64 });
    if n == N && precision != Precision::F64 {
        let exact = time_product(&kernel, x.view(), v.view(), Precision::F64, device, 1)?.y;
        let norm = |a: &Array2<f64>| a.iter().map(|v| v * v).sum::<f64>().sqrt();
        result["error"] = json!(norm(&(&timing.y - &exact)) / norm(&exact));
    }
    Ok(result)
}

/// The exact kernel of three convolutions and global average pooling between 1000 images of 32×32×3: pairs a second of the whole
/// matrix, with the upload of the images and, for f32, the diagonal in f64.
fn images(precision: Precision, device: Device, repeats: usize) -> Result<Value, Failure> {
    const IMAGES: usize = 1000;
    let kernel = Kernel::parse("ntk('conv(3) relu conv(3) relu conv(3) relu gap dense', w_var=2, shape=32x32x3)")?;
    let mut rng = Rng::new(0);
    let x = Array2::from_shape_simple_fn((IMAGES, 3072), || rng.uniform());
    let run = || -> Result<f64, Failure> {
        let start = Instant::now();
        match precision {
            Precision::F64 => drop(gram::<f64>(&kernel, x.view(), device)?),
            _ => drop(gram::<f32>(&kernel, x.view(), device)?),
        }
        Ok(1e3 * start.elapsed().as_secs_f64())
    };
    run()?;
    let ms = (0..repeats).map(|_| run()).collect::<Result<Vec<f64>, Failure>>()?;
    let pairs = (IMAGES * (IMAGES + 1) / 2) as f64;
    let rates: Vec<f64> = ms.iter().map(|ms| 1e3 * pairs / ms).collect();
    Ok(json!({ "ms": ms, "pairs_per_second": rates }))
}

/// The top ten pairs with their certificate on held-out points, everything included.
fn top_pairs(precision: Precision, device: Device) -> Result<Value, Failure> {
    let (x, held_out) = (normal(N, D, 0), normal(2048, D, 2));
    let kernel = Kernel::parse(RBF)?;
    let context = FitContext { precision, device, ..FitContext::default() };
    let start = Instant::now();
    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem { operator: &operator, k: 10, context };
    let spectrum = Spectrum::fit(&Krylov::to(1e-6), &problem, Some(held_out.view().into()))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(json!({
        "ms": [1e3 * seconds],
        "seconds": seconds,
        "worst_residual": spectrum.certificate.worst_residual(),
        "eigenvalues": spectrum.eigenvalues,
    }))
}

/// The effect of the precision of the networks' products on functions that are trained for 2000 steps: their certified
/// residuals, which are always computed with networks in f32 and kernel values in f64.
fn certificate(math: Math, device: Device) -> Result<Value, Failure> {
    let (x, held_out) = (normal(16_384, 3, 0), normal(4096, 3, 2));
    let kernel = Kernel::parse("rbf(1.5)")?;
    let mut method = Neural::new(neural::NEURALEF);
    method.settings.math = math;
    let context = FitContext { device, ..FitContext::default() };
    let start = Instant::now();
    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem { operator: &operator, k: 8, context };
    let spectrum = Spectrum::fit(&method, &problem, Some(held_out.view().into()))?;
    let seconds = start.elapsed().as_secs_f64();
    let residuals = spectrum.certificate.residual.clone();
    Ok(json!({ "ms": [1e3 * seconds], "residuals": residuals, "eigenvalues": spectrum.eigenvalues }))
}

/// A training step, `size` = d-h-k-B, as training makes it: drawing of batches and reading of losses included. Ritz has the h
/// hidden units of one network.
fn training_step(kind: Kind, size: &str, math: Math, device: Device) -> Result<Value, Failure> {
    let size = neural::parse_size(size)?;
    Ok(neural::with_stepper(kind, size, device, math, |stepper| measure(stepper, size[3]))?)
}

/// Milliseconds of a step in five runs, on batches of `b` points.
fn measure(stepper: &mut Stepper<'_>, b: usize) -> mercer::Result<Value> {
    let mut loss = f64::NAN;
    let mut run = |steps: usize| -> mercer::Result<f64> {
        let (start, mut made) = (Instant::now(), 0);
        while made < steps {
            let done = stepper.steps(steps - made)?;
            if let Some(error) = done.failure {
                return Err(error);
            }
            made += done.outcomes.len();
            loss = done.outcomes.last().map_or(loss, |o| o.loss);
        }
        Ok(1e3 * start.elapsed().as_secs_f64() / made as f64)
    };
    run(64)?;
    let each = if b > 4096 { 20 } else { 1000 };
    let ms = (0..5).map(|_| run(each)).collect::<mercer::Result<Vec<f64>>>()?;
    Ok(json!({ "ms": ms, "loss": loss }))
}
