//! Mercer's side of the comparisons: `mercer-bench JOB DATA_FOLDER REPEATS` runs one job on stored arrays and prints
//! one line of JSON: the seconds of each repeat, peak memory, and what the result was. `bench/run.py` runs it beside
//! the peer's side of the same job.

use mercer::FitContext;
use mercer::apply::{Alpha, EigenSolver, Fit, KernelPca, Predict, Ridge, RidgeSolver, Transform};
use mercer::compute::Device;
use mercer::data::{ReadOptions, Target, open};
use mercer::kernel::Kernel;
use mercer::linalg::matmul;
use mercer::operator::{Budget, KernelOperator, Operator, Precision, Real, gram};
use mercer::spectrum::{FourierFeatures, Krylov, Landmarks, Method, NystromFeatures, Problem, Sampling};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

mod entk;
mod gpu;
mod kernels;
mod neural;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, job, folder, repeats] = &arguments[..] else {
        return Err("usage: mercer-bench JOB DATA_FOLDER REPEATS".into());
    };
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global()?;
    let bench = Bench { folder: PathBuf::from(folder), repeats: repeats.parse()? };
    let mut result = bench.run(job)?;
    result["peak_bytes"] = json!(peak_memory());
    println!("{result}");
    Ok(())
}

struct Bench {
    folder: PathBuf,
    repeats: usize,
}

impl Bench {
    fn run(&self, job: &str) -> Result<Value, Failure> {
        match job {
            "gemm-f32" => self.gemm::<f32>(),
            "gemm-f64" => self.gemm::<f64>(),
            "gram-f32" => self.gram::<f32>(),
            "gram-f64" => self.gram::<f64>(),
            "kv-f32" => self.kv(Precision::F32),
            "kv-f64" => self.kv(Precision::F64),
            "kpca-5000" => self.kernel_pca("x5000x50", Precision::F64),
            "kpca-20000" => self.kernel_pca("x20000x50", Precision::F32),
            "nystrom-f32" => self.nystrom::<f32>(),
            "nystrom-f64" => self.nystrom::<f64>(),
            "rff-f32" => self.rff::<f32>(),
            "rff-f64" => self.rff::<f64>(),
            "ridge-5000" => self.ridge(),
            "top-k-50000" => self.top_k("x50000x50"),
            "ntk-top-k-50000" => ntk_top_k(50_000),
            other if other.starts_with("gpu-") => gpu::run(&other[4..], self.repeats),
            other => match (other.strip_prefix("neural-"), other.strip_prefix("entk-")) {
                (Some(size), _) => neural::training_step(size, self.repeats),
                (_, Some(size)) => entk::exact(size, self.repeats),
                _ => kernels::infinite_network(other, self.repeats),
            },
        }
    }

    fn array(&self, name: &str) -> Result<Array2<f64>, Failure> {
        let path: PathBuf = Path::new(&self.folder).join(format!("{name}.npy"));
        Ok(open(&path.display().to_string(), &ReadOptions::default())?.x)
    }

    /// Seconds of each repeat after one that is not counted, and the last result.
    fn time<T>(&self, mut work: impl FnMut() -> Result<T, Failure>) -> Result<(Vec<f64>, T), Failure> {
        let mut last = work()?;
        let mut seconds = vec![];
        for _ in 0..self.repeats {
            drop(last);
            let start = Instant::now();
            last = work()?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok((seconds, last))
    }

    /// The machine's own matrix product, 2048³: the peak that shares are taken of.
    fn gemm<T: Real>(&self) -> Result<Value, Failure> {
        let n = 2048;
        let a = Array2::from_shape_fn((n, n), |(i, j)| T::of(((i * 31 + j * 17) % 101) as f64 / 101.0));
        let (seconds, c) = self.time(|| Ok(matmul(a.view(), a.view())))?;
        Ok(json!({ "seconds": seconds, "flop": 2.0 * (n as f64).powi(3), "check": c[[5, 7]].wide() }))
    }

    fn gram<T: Real>(&self) -> Result<Value, Failure> {
        let x = self.array("x8000x64")?;
        let kernel = Kernel::parse("rbf(8)")?;
        let (seconds, k) = self.time(|| Ok(gram::<T>(&kernel, x.view(), Device::Cpu)?))?;
        let check = json!([k[[0, 1]].wide(), k[[7999, 17]].wide(), k[[123, 4567]].wide()]);
        Ok(json!({ "seconds": seconds, "check": check }))
    }

    /// `K V` without forming K, 16 columns.
    fn kv(&self, precision: Precision) -> Result<Value, Failure> {
        let (x, v) = (self.array("x8000x64")?, self.array("v8000x16")?);
        let kernel = Kernel::parse("rbf(8)")?;
        let (seconds, y) =
            self.time(|| Ok(KernelOperator::new(&kernel, x.view(), precision, Device::Cpu)?.apply(v.view())?))?;
        Ok(json!({ "seconds": seconds, "check": [y[[0, 0]], y[[7999, 15]]] }))
    }

    /// Fit and projections of all points. The eigenvalue error is of the order of the tolerance squared: here that is 1e-4,
    /// far below the peer's own.
    fn kernel_pca(&self, name: &str, precision: Precision) -> Result<Value, Failure> {
        let x = self.array(name)?;
        let kernel = Kernel::parse("rbf(7)")?;
        let context = FitContext { precision, ..FitContext::default() };
        let pca = KernelPca { kernel, k: 10, solver: EigenSolver::Krylov, tolerance: 1e-2 };
        let work = || {
            let fitted = pca.fit(x.view(), &(), &context)?;
            let projections = fitted.embedding();
            Ok((fitted, projections))
        };
        let (seconds, (fitted, _)) = self.time(work)?;
        Ok(json!({ "seconds": seconds, "eigenvalues": fitted.eigenvalues }))
    }

    /// Fit and transform of all points to 500 features, uniform landmarks as the peer takes them.
    fn nystrom<T: Real>(&self) -> Result<Value, Failure> {
        let x = self.array("x100000x50")?;
        let kernel = Kernel::parse("rbf(7)")?;
        let context = FitContext { precision: T::PRECISION, ..FitContext::default() };
        let work = || {
            let operator = context.kernel_operator(&kernel, x.view())?;
            let chosen = Landmarks::Uniform.choose(&operator, 500, 0, T::PRECISION)?;
            let z = x.select(Axis(0), &chosen);
            Ok(NystromFeatures::new(&kernel, z.view(), &context)?.transform::<T>(x.view())?)
        };
        let (seconds, f) = self.time(work)?;
        Ok(json!({ "seconds": seconds, "kernel_error": kernel_error(&kernel, &f, x.view())? }))
    }

    fn rff<T: Real>(&self) -> Result<Value, Failure> {
        let x = self.array("x100000x50")?;
        let kernel = Kernel::parse("rbf(7)")?;
        let work = || Ok(FourierFeatures::new(&kernel, 50, 1000, Sampling::Plain, 0)?.transform::<T>(x.view())?);
        let (seconds, f) = self.time(work)?;
        Ok(json!({ "seconds": seconds, "kernel_error": kernel_error(&kernel, &f, x.view())? }))
    }

    fn ridge(&self) -> Result<Value, Failure> {
        let (x, y, new) = (self.array("x5000x50")?, self.array("y5000x1")?, self.array("new100x50")?);
        let y = Target::Values(y.column(0).to_vec());
        let kernel = Kernel::parse("rbf(7)")?;
        let ridge = Ridge { kernel, alpha: Alpha::Fixed(0.1), solver: RidgeSolver::Direct };
        let (seconds, fitted) = self.time(|| Ok(ridge.fit(x.view(), &y, &FitContext::default())?))?;
        let check = fitted.scores(new.view())?.column(0).slice(s![..5]).to_vec();
        Ok(json!({ "seconds": seconds, "check": check }))
    }

    fn top_k(&self, name: &str) -> Result<Value, Failure> {
        let x = self.array(name)?;
        let kernel = Kernel::parse("rbf(7)")?;
        // Less than a third of the 2.5 GB that half the matrix would take in single precision.
        let budget = Budget::parse("1.5GiB")?;
        let context = FitContext { precision: Precision::F32, budget, ..FitContext::default() };
        let work = || {
            let operator = context.kernel_operator(&kernel, x.view())?;
            Ok(Krylov { tolerance: 1e-4 }.solve(&Problem { operator: &operator, k: 10, context })?)
        };
        let (seconds, s) = self.time(work)?;
        Ok(json!({ "seconds": seconds, "eigenvalues": s.eigenvalues }))
    }
}

/// The top ten pairs of the NTK of three hidden ReLU layers over the first `n` images of MNIST, in the folder `$MERCER_DATA`,
/// from the images as they are read to the pairs. Once: it takes minutes.
fn ntk_top_k(n: usize) -> Result<Value, Failure> {
    let images = open("mnist", &ReadOptions::default())?.x;
    let x = images.slice(s![..n, ..]);
    let kernel = Kernel::parse("ntk(depth=3, act=relu, w_var=2)")?;
    let budget = Budget::parse("1.5GiB")?;
    let context = FitContext { precision: Precision::F32, budget, ..FitContext::default() };
    let start = Instant::now();
    let operator = context.kernel_operator(&kernel, x)?;
    let solution = Krylov { tolerance: 1e-4 }.solve(&Problem { operator: &operator, k: 10, context })?;
    Ok(json!({ "seconds": [start.elapsed().as_secs_f64()], "eigenvalues": solution.eigenvalues }))
}

/// Root mean square of `φφᵀ − K` over the first 1000 points.
fn kernel_error<T: Real>(kernel: &Kernel, f: &Array2<T>, x: ArrayView2<f64>) -> mercer::Result<f64> {
    let f = f.slice(s![..1000, ..]).mapv(|v| v.wide());
    let difference = matmul(f.view(), f.t()) - gram::<f64>(kernel, x.slice(s![..1000, ..]), Device::Cpu)?;
    Ok((difference.mapv(|d| d * d).sum() / 1e6).sqrt())
}

/// The largest resident size that this process has had.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
