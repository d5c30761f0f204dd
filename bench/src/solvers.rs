//! Kernel machines at scale on the first GPU: one job a size, with data that are made on the host.

use crate::Failure;
use mercer::apply::{
    Alpha, EpochSolver, Falkon, Fit, LandmarkSolver, LowRankPreconditioner, Predict, Ridge, RidgeSolver,
};
use mercer::compute::Device;
use mercer::compute::cuda::gpu;
use mercer::data::{ReadOptions, Target, open};
use mercer::kernel::Kernel;
use mercer::linalg::{Cholesky, Panel, Part};
use mercer::operator::{Budget, KernelOperator, Operator, Precision};
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
    let estimate = falkon.memory([n, d], &y, &context).device;
    let fitted = falkon.fit(x.view(), &y, &context)?;
    let (seconds, device_peak) = (clock.start.elapsed().as_secs_f64(), peak(device)?);
    let few = x.slice(s![..20_000.min(n), ..]);
    let (scores, y) = (fitted.scores(few)?, y.values());
    let mean = y.iter().sum::<f64>() / n as f64;
    let square = |f: &dyn Fn(usize) -> f64| (0..few.nrows()).map(|i| (y[i] - f(i)).powi(2)).sum::<f64>();
    let explained = 1.0 - square(&|i| scores[[i, 0]]) / square(&|_| mean);
    Ok(json!({
        "seconds_data": made, "seconds_fit": seconds, "residual": fitted.convergence.residual, "explained": explained,
        "heard": clock.heard.into_inner()?, "device_peak": device_peak, "device_estimate": estimate,
        "operations": 2.5 * 2.0 * n as f64 * m as f64 * d as f64,
    }))
}

/// Full kernel ridge regression without landmarks by ASkotch: n = 10 000 000, d = 20; 20 000 more rows are held out.
pub fn askotch(precision: Precision, device: Device) -> Result<Value, Failure> {
    const OUT: usize = 20_000;
    let [n, d, epochs] = [size("ROWS", 10_000_000), size("COLUMNS", 20), size("EPOCHS", 1)];
    let (x, y) = data(n + OUT, d);
    let y = y.values();
    let clock = Clock { start: Instant::now(), heard: Mutex::default() };
    let context =
        FitContext { precision, device, progress: &clock, budget: Budget::of(1 << 40), ..FitContext::default() };
    let solver = RidgeSolver::Epochs { solver: EpochSolver::Askotch, tolerance: 1e-3, epochs };
    let kernel = Kernel::parse("rbf(6)")?;
    let ridge = Ridge { alpha: Alpha::Fixed(n as f64 * 1e-6), solver, centred: true, ..Ridge::new(kernel) };
    let estimate = ridge.memory([n, d], &Target::Values(vec![]), &context).device;
    let fitted = ridge.fit(x.slice(s![..n, ..]), &Target::Values(y[..n].to_vec()), &context)?;
    let (seconds, device_peak) = (clock.start.elapsed().as_secs_f64(), peak(device)?);
    let (scores, truth) = (fitted.scores(x.slice(s![n.., ..]))?, &y[n..]);
    let square: f64 = truth.iter().zip(scores.column(0)).map(|(y, f)| (y - f).powi(2)).sum();
    let mean = truth.iter().sum::<f64>() / OUT as f64;
    let deviation = (truth.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / OUT as f64).sqrt();
    Ok(json!({
        "seconds_fit": seconds, "residual": fitted.convergence.residual, "curve": fitted.convergence.curve,
        "rmse_held_out": (square / OUT as f64).sqrt(), "deviation_held_out": deviation, "heard": clock.heard.into_inner()?,
        "device_peak": device_peak, "device_estimate": estimate,
    }))
}

/// Seconds of the parts of conjugate gradients with the full kernel on covertype: operator, preconditioner, product, blocks.
pub fn stages(precision: Precision, device: Device) -> Result<Value, Failure> {
    let clock = Clock { start: Instant::now(), heard: Mutex::default() };
    let mut done: Vec<(String, f64)> = vec![];
    let mut last = 0.0;
    let mut tell = |what: &str| -> Result<(), Failure> {
        device.synchronize()?;
        let now = clock.start.elapsed().as_secs_f64();
        eprintln!("{now:8.2} s  {what}: {:.3} s", now - last);
        done.push((what.to_owned(), now - last));
        last = now;
        Ok(())
    };
    let set = open("covtype", &ReadOptions::default())?;
    tell("reading")?;
    let mut x = set.x.to_f64();
    let (mean, deviation) = (x.mean_axis(Axis(0)).ok_or("no rows")?, x.std_axis(Axis(0), 0.0));
    x = (x - mean) / deviation;
    let x = x.slice_move(s![..522_911, ..]).as_standard_layout().into_owned();
    tell("standardising")?;
    let kernel = Kernel::parse("rbf(1.5)")?;
    let context =
        FitContext { precision, device, progress: &clock, budget: Budget::of(1 << 40), ..FitContext::default() };
    let operator = KernelOperator::new(&kernel, x.view(), precision, device)?;
    tell("operator")?;
    let n = operator.n();
    let v = Panel::from_host(device, Array2::from_shape_fn((n, 7), |(i, j)| ((i * 7 + j) as f64).sin()))?;
    tell("vectors")?;
    for what in ["first product", "product", "product"] {
        operator.apply_panel(&v)?;
        tell(what)?;
    }
    operator.diagonal()?;
    tell("diagonal")?;
    let rows: Vec<usize> = (0..64).map(|i| i * 8000).collect();
    for what in ["first block", "block"] {
        operator.block_panel(&Part::All, &Part::Rows(&rows), device)?;
        tell(what)?;
    }
    let block: Vec<usize> = (0..8192).map(|i| i * 60).collect();
    for what in ["first rows", "rows"] {
        operator.product_panel(&Part::Rows(&block), &Part::All, &v)?;
        tell(what)?;
    }
    for what in ["first block of ASkotch", "block of ASkotch"] {
        let mut k = operator.block_panel(&Part::Rows(&block), &Part::Rows(&block), device)?;
        tell(what)?;
        k.shift_diagonal(0.1);
        Cholesky::of_panel(k)?;
        tell("its factor")?;
    }
    let low_rank = LowRankPreconditioner::new(&operator, 1446, &context)?;
    tell("preconditioner")?;
    for what in ["first solve", "solve"] {
        low_rank.solve(0.1, &v)?;
        tell(what)?;
    }
    Ok(json!({ "stages": done, "device_peak": peak(device)? }))
}

fn peak(device: Device) -> Result<u64, Failure> {
    match device {
        Device::Cuda(ordinal) => Ok(gpu(ordinal)?.peak_memory()),
        Device::Cpu => Ok(0),
    }
}
