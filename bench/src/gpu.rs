//! Jobs on the first GPU: products, top pairs and training steps, timed on the device with the data there.

use crate::Failure;
use mercer::compute::Device;
use mercer::kernel::Kernel;
use mercer::operator::Precision;
use mercer::operator::cuda::time_product;
use mercer::rng::Rng;
use ndarray::Array2;
use serde_json::{Value, json};

const N: usize = 65_536;
const MILLION: usize = 1_000_000;
const D: usize = 64;
const COLUMNS: usize = 16;
const RBF: &str = "rbf(8)";

/// Runs one job of `bench/gpu/run.py`: a name and an arithmetic, `rbf_tf32`.
pub fn run(job: &str, repeats: usize) -> Result<Value, Failure> {
    let device = Device::Cuda(0).open()?;
    let (name, arithmetic) = job.rsplit_once('_').ok_or("a job is NAME_ARITHMETIC, such as rbf_tf32")?;
    let precision = match arithmetic {
        "tf32" => Precision::Tf32,
        "f32" => Precision::F32,
        "f64" => Precision::F64,
        other => return Err(format!("unknown arithmetic '{other}'").into()),
    };
    let result = device.scope(|| match name {
        "rbf" => product(RBF, N, precision, repeats),
        "ntk" => product("ntk(depth=3, act=relu, w_var=2, b_var=0)", N, precision, repeats),
        "million" => product(RBF, MILLION, precision, 2),
        other => Err(format!("unknown job '{other}'").into()),
    });
    device.checked(Ok(()))?;
    result
}

fn normal(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    Array2::from_shape_simple_fn((rows, columns), || rng.normal())
}

fn product(kernel: &str, n: usize, precision: Precision, repeats: usize) -> Result<Value, Failure> {
    let kernel = Kernel::parse(kernel)?;
    let (x, v) = (normal(n, D, 0), normal(n, COLUMNS, 1));
    let timing = time_product(&kernel, x.view(), v.view(), precision, repeats)?;
    let mut result = json!({ "ms": timing.ms, "device_bytes": timing.bytes as f64 });
    if n == N && precision != Precision::F64 {
        let exact = time_product(&kernel, x.view(), v.view(), Precision::F64, 1)?.y;
        let norm = |a: &Array2<f64>| a.iter().map(|v| v * v).sum::<f64>().sqrt();
        result["error"] = json!(norm(&(&timing.y - &exact)) / norm(&exact));
    }
    Ok(result)
}
