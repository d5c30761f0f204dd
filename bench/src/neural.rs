//! The training step of NeuralEF: a batch, its kernel matrix, forward, gradient, back, Adam.

use crate::{Failure, time};
use mercer::FitContext;
use mercer::compute::{Device, Math, Rule};
use mercer::kernel::Kernel;
use mercer::net::{Optimizer, Schedule};
use mercer::operator::Precision;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, NeuralEf, OnData, Stepper};
use ndarray::Array2;
use serde_json::{Value, json};

/// Number of warm-up steps.
const WARM_UP: usize = 5;
/// Number of batches in the data.
const BATCHES: usize = 16;

/// `d-h-k-B`: k networks d → h → h → 1 on batches of B.
pub fn parse_size(size: &str) -> Result<[usize; 4], Failure> {
    let size: Vec<usize> = size.split('-').map(str::parse).collect::<Result<_, _>>()?;
    size.try_into().map_err(|_| "a size is d-h-k-B, such as 1-32-10-256".into())
}

/// Seconds of each of `steps` training steps on the CPU.
pub fn training_step(size: &str, steps: usize) -> Result<Value, Failure> {
    let size = parse_size(size)?;
    Ok(Device::Cpu.enter(|| with_stepper(NEURALEF, size, Device::Cpu, Math::F32, |s| measure(s, size, steps)))?)
}

/// The objective of most jobs.
pub const NEURALEF: Kind = Kind::NeuralEf(NeuralEf::Published);

/// Runs `work` with the training of networks by `kind` on normal points.
pub fn with_stepper<T>(
    kind: Kind,
    [d, h, k, b]: [usize; 4],
    device: Device,
    math: Math,
    work: impl FnOnce(&mut Stepper<'_>) -> mercer::Result<T>,
) -> mercer::Result<T> {
    let mut rng = Rng::new(0);
    let x = Array2::from_shape_simple_fn((BATCHES * b, d), || rng.normal());
    let kernel = Kernel::parse(&format!("rbf({})", (d as f64).sqrt()))?;
    let context = FitContext { device, precision: Precision::F32, ..FitContext::default() };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let operator = OnData::new(&operator)?;
    let architecture = format!("dense({h}) sincos dense({h}) sincos dense(1) l2norm");
    let functions = kind.functions(&architecture, d, k, device, &rng)?;
    let objective = kind.objective(&functions, k)?;
    let parameters = functions.network().parameters();
    let optimizer = Optimizer::new(device, Rule::ADAM, Schedule::constant(1e-3), None, parameters)?;
    work(&mut Stepper::new(&operator, functions, objective, optimizer, rng, b, math)?)
}

fn measure(stepper: &mut Stepper<'_>, size: [usize; 4], steps: usize) -> mercer::Result<Value> {
    let (seconds, last) = time(WARM_UP, steps, || stepper.steps(1))?;
    Ok(json!({ "seconds": seconds, "flop": flop(size), "loss": last.outcomes[0].loss }))
}

/// Multiplications and additions of the matrix products of a step: forward and backward through the networks, half of the
/// batch's symmetric kernel matrix, `Kψ`, `R = ψᵀKψ` and the combination of its columns.
fn flop([d, h, k, b]: [usize; 4]) -> f64 {
    let (forward, backward) = (d * h + h * h + h, d * h + 2 * h * h + 2 * h);
    (2 * k * b * (forward + backward) + b * b * d + 2 * k * b * b + 4 * k * k * b) as f64
}
