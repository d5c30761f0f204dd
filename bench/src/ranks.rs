//! A product with K and a spectrum on the ranks of an MPI job, one thread each: `bench/ranks.py` starts it on several.

use super::{Failure, peak_memory, time};
use mercer::group::{Launcher, Mpi, Ranks};
use mercer::kernel::Kernel;
use mercer::operator::{Operator, ShardedOperator};
use mercer::rng::Rng;
use mercer::spectrum::{Krylov, Problem, Spectrum, top_pairs};
use mercer::{Device, FitContext, Group};
use ndarray::{Array2, s};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Points, their coordinates, pairs, and vectors of a product.
const N: usize = 50_000;
const D: usize = 20;
const K: usize = 10;
const BLOCK: usize = K + 8;

/// The result on rank 0, and nothing on the others.
pub fn run(repeats: usize) -> Result<Value, Failure> {
    let Some(launcher) = Launcher::detect() else { return measured(Group::SINGLE, repeats) };
    let mpi = Mpi::start(Some(launcher))?;
    let members: Arc<dyn Ranks> = Arc::new(mpi);
    let found = measured(Group::new(&members), repeats)?;
    mpi.finish();
    Ok(if members.place().rank == 0 { found } else { Value::Null })
}

fn measured(group: Group<'_>, repeats: usize) -> Result<Value, Failure> {
    let context = FitContext { group, ..FitContext::default() };
    let normal = |n: usize, d: usize, seed: u64| {
        let mut rng = Rng::new(seed);
        Array2::from_shape_simple_fn((n, d), || rng.normal())
    };
    let own = normal(N, D, 1).slice(s![group.share(N), ..]).to_owned();
    let operator = ShardedOperator::of(&Kernel::parse("rbf(4)")?, own.into(), &context)?;
    let v = operator.sharding().panel(Device::Cpu, normal(N, BLOCK, 2).view())?;
    let (product, _) = time(1, repeats, || operator.apply_panel(&v))?;
    drop(v);
    let start = Instant::now();
    let top = top_pairs(&operator, K, 1e-6, &context)?;
    let krylov = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let fresh = normal(2000, D, 3);
    let problem = Problem { operator: &operator, k: K, context };
    let spectrum = Spectrum::fit(&Krylov::default(), &problem, Some(fresh.view().into()))?;
    let fit = start.elapsed().as_secs_f64();
    let peaks = group.concatenated(&[peak_memory() as f64])?;
    let peak = peaks.iter().copied().fold(0.0, f64::max);
    Ok(json!({
        "ranks": group.size(), "product": product, "krylov": krylov, "products": top.products, "fit": fit,
        "peak_bytes_of_a_rank": peak, "eigenvalues": spectrum.eigenvalues,
    }))
}
