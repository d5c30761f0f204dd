//! Kernel machines at scale on the first GPU: one job a size, with data that are made on the host.

use crate::Failure;
use mercer::apply::{Alpha, EpochSolver, Falkon, Fit, LandmarkSolver, Predict, Ridge, RidgeSolver};
use mercer::compute::Device;
use mercer::compute::cuda::gpu;
use mercer::data::Target;
use mercer::kernel::Kernel;
use mercer::operator::{Budget, Precision};
use mercer::rng::Rng;
use mercer::{FitContext, Progress};
use ndarray::{Array2, Axis, s};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Instant;

/// Keeps when each part of a fit was first and last heard of.
struct Clock {
    start: Instant,
    heard: Mutex<Vec<(String, usize, f64)>>,
}

impl Progress for Clock {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        let now = self.start.elapsed().as_secs_f64();
        let mut heard = self.heard.lock().expect("no panic");
        if heard.last().is_none_or(|(last, _, at)| last != what || now - at > 2.0) {
            eprintln!("{now:8.1} s  {what} {done}/{total} {note}");
            heard.push((what.to_owned(), done, now));
        }
    }
}

/// A number from the environment, to run a job at another size.
fn size(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Uniform points `[n, d]` of variance one, and targets: a smooth function of a few coordinates with noise of deviation 0.1.
fn data(n: usize, d: usize) -> (Array2<f64>, Target) {
    const ROWS: usize = 1024;
    let mut x = Array2::<f64>::zeros((n, d));
    let parts: Vec<_> = x.axis_chunks_iter_mut(Axis(0), ROWS).enumerate().collect();
    let y: Vec<Vec<f64>> = parts
        .into_par_iter()
        .map(|(i, mut part)| {
            let mut rng = Rng::new(1).fork(i as u64);
            part.mapv_inplace(|_| 12f64.sqrt() * (rng.uniform() - 0.5));
            part.rows().into_iter().map(|x| x[0].sin() + x[1] * x[2] + 0.1 * rng.normal()).collect()
        })
        .collect();
    (x, Target::Values(y.concat()))
}

/// One epoch of EigenPro on landmarks: n = 5 000 000, d = 1280, 65 536 of them.
pub fn landmark_epoch(precision: Precision, device: Device) -> Result<Value, Failure> {
    let [n, d, m] = [size("ROWS", 5_000_000), size("COLUMNS", 1280), size("CENTRES", 65_536)];
    let made = Instant::now();
    let (x, y) = data(n, d);
    let made = made.elapsed().as_secs_f64();
    let clock = Clock { start: Instant::now(), heard: Mutex::default() };
    let context =
        FitContext { precision, device, progress: &clock, budget: Budget::of(1 << 40), ..FitContext::default() };
    let kernel = Kernel::parse(&format!("rbf({})", (d as f64).sqrt()))?;
    let falkon = Falkon {
        alpha: Alpha::Fixed(n as f64 * 1e-6),
        solver: LandmarkSolver::EigenPro,
        iterations: 1,
        ..Falkon::eigenpro(kernel, m)
    };
    let fitted = falkon.fit(x.view(), &y, &context)?;
    let seconds = clock.start.elapsed().as_secs_f64();
    let few = x.slice(s![..20_000.min(n), ..]);
    let (scores, y) = (fitted.scores(few)?, y.values());
    let mean = y.iter().sum::<f64>() / n as f64;
    let square = |f: &dyn Fn(usize) -> f64| (0..few.nrows()).map(|i| (y[i] - f(i)).powi(2)).sum::<f64>();
    let explained = 1.0 - square(&|i| scores[[i, 0]]) / square(&|_| mean);
    // X and Z in f32, the matrix of the landmarks in f64 with its values in f32 while it is made.
    let estimate = 4 * (n + m) * (d + 3) + 12 * m * m;
    Ok(json!({
        "seconds_data": made, "seconds_fit": seconds, "residual": fitted.convergence.residual, "explained": explained,
        "heard": clock.heard.into_inner()?, "device_peak": peak(device)?, "device_estimate": estimate as u64,
        "operations": 2.5 * 2.0 * n as f64 * m as f64 * d as f64,
    }))
}

/// Full kernel ridge regression without landmarks by ASkotch: n = 10 000 000, d = 20.
pub fn askotch(precision: Precision, device: Device) -> Result<Value, Failure> {
    let [n, d, epochs] = [size("ROWS", 10_000_000), size("COLUMNS", 20), size("EPOCHS", 1)];
    let (x, y) = data(n, d);
    let clock = Clock { start: Instant::now(), heard: Mutex::default() };
    let context =
        FitContext { precision, device, progress: &clock, budget: Budget::of(1 << 40), ..FitContext::default() };
    let solver = RidgeSolver::Epochs { solver: EpochSolver::Askotch, tolerance: 1e-3, epochs };
    let kernel = Kernel::parse("rbf(6)")?;
    let ridge = Ridge { alpha: Alpha::Fixed(n as f64 * 1e-6), solver, centred: true, ..Ridge::new(kernel) };
    let fitted = ridge.fit(x.view(), &y, &context)?;
    let seconds = clock.start.elapsed().as_secs_f64();
    let few = x.slice(s![..20_000.min(n), ..]);
    let (scores, y) = (fitted.scores(few)?, y.values());
    let square: f64 = (0..few.nrows()).map(|i| (y[i] - scores[[i, 0]]).powi(2)).sum();
    Ok(json!({
        "seconds_fit": seconds, "residual": fitted.convergence.residual, "curve": fitted.convergence.curve,
        "rmse": (square / few.nrows() as f64).sqrt(), "heard": clock.heard.into_inner()?,
        "device_peak": peak(device)?, "device_estimate": (4 * n * (d.next_multiple_of(16) + 2) + 8 * 8 * n) as u64,
    }))
}

fn peak(device: Device) -> Result<u64, Failure> {
    match device {
        Device::Cuda(ordinal) => Ok(gpu(ordinal)?.peak_memory()),
        Device::Cpu => Ok(0),
    }
}
