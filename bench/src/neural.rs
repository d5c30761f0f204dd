//! The training step of NeuralEF: a batch, its kernel matrix, forward, gradient, back, Adam.

use crate::Failure;
use mercer::FitContext;
use mercer::compute::{Device, Rule};
use mercer::kernel::Kernel;
use mercer::net::{Optimizer, Schedule};
use mercer::operator::Precision;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Stepper, action};
use ndarray::Array2;
use serde_json::{Value, json};
use std::time::Instant;

/// Steps that are not counted.
const WARM_UP: usize = 5;
/// The data holds this many batches.
const BATCHES: usize = 16;

/// `size` is `d-h-k-B`: k networks d → h → h → 1 on batches of B.
pub fn training_step(size: &str, steps: usize) -> Result<Value, Failure> {
    let size: Vec<usize> = size.split('-').map(str::parse).collect::<Result<_, _>>()?;
    let [d, h, k, b] = size[..] else { return Err("a size is d-h-k-B, such as 1-32-10-256".into()) };
    Ok(Device::Cpu.enter(|| measure([d, h, k, b], steps))?)
}

fn measure([d, h, k, b]: [usize; 4], steps: usize) -> mercer::Result<Value> {
    let mut rng = Rng::new(0);
    let x = Array2::from_shape_simple_fn((BATCHES * b, d), || rng.normal());
    let kernel = Kernel::parse(&format!("rbf({})", (d as f64).sqrt()))?;
    let context = FitContext { precision: Precision::F32, ..FitContext::default() };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let mut action = action(&operator, &context)?;
    let kind = Kind::NeuralEf { averaged: false };
    let architecture = format!("dense({h}) sincos dense({h}) sincos dense(1) l2norm");
    let mut functions = kind.functions(&architecture, d, k, Device::Cpu, &rng)?;
    let mut objective = kind.objective(&functions, k)?;
    let parameters = functions.network().parameters();
    let mut optimizer = Optimizer::new(Device::Cpu, Rule::ADAM, Schedule::Constant { rate: 1e-3 }, None, parameters)?;
    let mut stepper = Stepper::new(Device::Cpu)?;
    let mut seconds = Vec::with_capacity(steps);
    let mut loss = 0.0;
    for step in 0..WARM_UP + steps {
        let start = Instant::now();
        let (outcome, _) =
            stepper.step(action.as_mut(), &mut functions, objective.as_mut(), &mut optimizer, &mut rng, b)?;
        if step >= WARM_UP {
            seconds.push(start.elapsed().as_secs_f64());
        }
        loss = outcome.loss;
    }
    Ok(json!({ "seconds": seconds, "flop": flop([d, h, k, b]), "loss": loss }))
}

/// Multiplications and additions that the step's matrix products cannot do without: forward and back through the
/// networks, half of the batch's symmetric kernel matrix, `Kψ`, `R = ψᵀKψ` and the mixing of its columns.
fn flop([d, h, k, b]: [usize; 4]) -> f64 {
    let (forward, backward) = (d * h + h * h + h, d * h + 2 * h * h + 2 * h);
    (2 * k * b * (forward + backward) + b * b * d + 2 * k * b * b + 4 * k * k * b) as f64
}
