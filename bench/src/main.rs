//! Mercer's jobs of the benchmarks: `mercer-bench JOB DATA_FOLDER REPEATS` runs one job on stored arrays and prints one line
//! of JSON: the seconds of each repeat, the peak memory, and values of the result. `bench/run.py` compares it with the same
//! job of the peer.

use mercer::apply::{
    Alpha, ClassReport, Criterion, EigenSolver, FeatureLogistic, FeatureRidge, Fit, KernelPca, Learner, Predict, Ridge,
    RidgeSolver, SavedPredict, Transform, Tuning,
};
use mercer::compute::Device;
use mercer::data::{ReadOptions, Target, open};
use mercer::kernel::{Expression, Kernel};
use mercer::linalg::matmul;
use mercer::operator::{Budget, KernelOperator, Operator, Precision, Real, gram};
use mercer::retrieval::{ExactSearch, Metric};
use mercer::spectrum::{Krylov, Landmarks, Method, NystromFeatures, Problem, RandomFeatures, Sampling};
use mercer::{FitContext, Result};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

mod entk;
mod gpu;
#[cfg(feature = "usearch")]
mod graph;
mod kernels;
mod laplace;
mod neural;
mod ranks;
mod solvers;
mod views;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, job, folder, repeats] = &arguments[..] else {
        return Err("usage: mercer-bench JOB DATA_FOLDER REPEATS".into());
    };
    // Where the data are made and prepared for a GPU, all cores may help.
    if !["gpu-epoch", "gpu-askotch", "gpu-stages"].iter().any(|name| job.starts_with(name)) {
        let threads = if job == "ranks" { 1 } else { 2 };
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    let bench = Bench { folder: PathBuf::from(folder), repeats: repeats.parse()? };
    let mut result = bench.run(job)?;
    if result.is_null() {
        return Ok(());
    }
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
            "search-euclidean" => self.search(Metric::Euclidean),
            "search-cosine" => self.search(Metric::Cosine),
            #[cfg(feature = "usearch")]
            other if other.starts_with("graph-") => graph::run(other[6..].parse()?, self.repeats),
            "ranks" => ranks::run(self.repeats),
            "gp-step-2000" => self.process_step(),
            "covertype-ridge" => self.covertype(false),
            "covertype-logistic" => self.covertype(true),
            "top-k-50000" => top_k("rbf(7)", self.array("x50000x50")?.view(), 1, self.repeats),
            "ntk-top-k-50000" => {
                // Images of MNIST from the folder `$MERCER_DATA`. Run once, because it takes minutes.
                let images = open("mnist", &ReadOptions::default())?.x;
                top_k("ntk(depth=3, act=relu, w_var=2)", images.rows().slice(0..50_000).to_f64().view(), 0, 1)
            }
            other if other.starts_with("gpu-") => gpu::run(&other[4..], self.repeats),
            other if other.starts_with("laplace-") => {
                laplace::measure(&other[8..], self.repeats, |name| self.array(name))
            }
            other => match (other.strip_prefix("neural-"), other.strip_prefix("entk-")) {
                (Some(size), _) => neural::training_step(size, self.repeats),
                (_, Some(size)) => entk::exact(size, self.repeats),
                _ => kernels::infinite_network(other, self.repeats),
            },
        }
    }

    fn array(&self, name: &str) -> Result<Array2<f64>, Failure> {
        let path: PathBuf = Path::new(&self.folder).join(format!("{name}.npy"));
        Ok(open(&path.display().to_string(), &ReadOptions::default())?.x.into_f64())
    }

    /// Seconds of each repeat after one warm-up, and the last result.
    fn time<T>(&self, work: impl FnMut() -> Result<T>) -> Result<(Vec<f64>, T)> {
        time(1, self.repeats, work)
    }

    /// A matrix product of 2048³, which measures the peak speed of the machine.
    fn gemm<T: Real>(&self) -> Result<Value, Failure> {
        let n = 2048;
        let a = Array2::from_shape_fn((n, n), |(i, j)| T::of(((i * 31 + j * 17) % 101) as f64 / 101.0));
        let (seconds, c) = self.time(|| Ok(matmul(a.view(), a.view())))?;
        Ok(json!({ "seconds": seconds, "flop": 2.0 * (n as f64).powi(3), "check": c[[5, 7]].wide() }))
    }

    fn gram<T: Real>(&self) -> Result<Value, Failure> {
        let x = self.array("x8000x64")?;
        let kernel = Kernel::parse("rbf(8)")?;
        let (seconds, k) = self.time(|| gram::<T>(&kernel, x.view(), Device::Cpu))?;
        let check = json!([k[[0, 1]].wide(), k[[7999, 17]].wide(), k[[123, 4567]].wide()]);
        Ok(json!({ "seconds": seconds, "check": check }))
    }

    /// `K V` without forming K, 16 columns.
    fn kv(&self, precision: Precision) -> Result<Value, Failure> {
        let (x, v) = (self.array("x8000x64")?, self.array("v8000x16")?);
        let kernel = Kernel::parse("rbf(8)")?;
        let (seconds, y) =
            self.time(|| KernelOperator::new(&kernel, x.view(), precision, Device::Cpu)?.apply(v.view()))?;
        Ok(json!({ "seconds": seconds, "check": [y[[0, 0]], y[[7999, 15]]] }))
    }

    /// Fit and projections of all points. The eigenvalue error is of the order of the squared tolerance, here 1e-4, far below
    /// the error of the peer.
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

    /// Fit and transform of all points to 500 features, with uniform landmarks as in the peer.
    fn nystrom<T: Real>(&self) -> Result<Value, Failure> {
        let x = self.array("x100000x50")?;
        let kernel = Kernel::parse("rbf(7)")?;
        let context = FitContext { precision: T::PRECISION, ..FitContext::default() };
        let work = || {
            let operator = context.kernel_operator(&kernel, x.view())?;
            let chosen = Landmarks::Uniform.choose(&operator, 500, 0, T::PRECISION)?;
            let z = x.select(Axis(0), &chosen);
            NystromFeatures::new(&kernel, z.view(), &context)?.transform::<T>(x.view())
        };
        let (seconds, f) = self.time(work)?;
        Ok(json!({ "seconds": seconds, "kernel_error": kernel_error(&kernel, &f, x.view())? }))
    }

    fn rff<T: Real>(&self) -> Result<Value, Failure> {
        let x = self.array("x100000x50")?;
        let kernel = Kernel::parse("rbf(7)")?;
        let work = || RandomFeatures::fourier(&kernel, 50, 1000, Sampling::Plain, 0)?.transform::<T>(x.view());
        let (seconds, f) = self.time(work)?;
        Ok(json!({ "seconds": seconds, "kernel_error": kernel_error(&kernel, &f, x.view())? }))
    }

    /// `log p(y)/n` of a Gaussian process with its gradient, at lengthscales √d, amplitude 1 and noise 0.1.
    fn process_step(&self) -> Result<Value, Failure> {
        let (x, y) = (self.array("x5000x50")?, self.array("y5000x1")?);
        let x = x.slice(s![..2000, ..]);
        let y = Target::Values(y.column(0).slice(s![..2000]).to_vec());
        let kernel = Expression::parse("rbf(lengthscale=ard)")?;
        let tuning = Tuning { criterion: Criterion::Likelihood, ..Tuning::default() };
        let θ: Vec<f64> = [&[0.0][..], &[0.5 * 50f64.ln(); 50], &[0.1f64.ln()]].concat();
        let (seconds, (value, gradient)) = self.time(|| tuning.at(&kernel, x, &y, &θ, &FitContext::default()))?;
        Ok(json!({ "seconds": seconds, "check": [-value, -gradient[1]] }))
    }

    /// What `mercer regress` does by default: fit and predictions of new rows.
    fn covertype(&self, logistic: bool) -> Result<Value, Failure> {
        let (x, new) = (self.array("covertype-x")?, self.array("covertype-new")?);
        let classes = |name: &str| -> Result<Target, Failure> {
            Ok(Target::Values(self.array(name)?.column(0).to_vec()).as_classes()?)
        };
        let (y, truth, context) = (classes("covertype-y")?, classes("covertype-truth")?, FitContext::default());
        let work = || {
            let kernel = Expression::parse("rbf(lengthscale=median)")?.resolve(x.view(), 0)?;
            let fitted: Box<dyn SavedPredict> = match Learner::choose(&kernel, x.dim(), None, &context).0 {
                Learner::Features(map) if logistic => {
                    Box::new(FeatureLogistic::new(map).fit(x.view(), &y, &context)?)
                }
                Learner::Features(map) => Box::new(FeatureRidge::new(map).fit(x.view(), &y, &context)?),
                Learner::Ridge(_) => {
                    Box::new(Ridge { centred: true, ..Ridge::new(kernel) }.fit(x.view(), &y, &context)?)
                }
            };
            let scores = fitted.scores(new.view())?;
            Ok((fitted.decode(scores.view()), fitted.probabilities(scores.view())))
        };
        let (seconds, (predicted, p)) = self.time(work)?;
        let report = ClassReport::new(&truth, &predicted, p.as_ref().map(|p| p.view()))?;
        Ok(json!({ "seconds": seconds, "accuracy": report.accuracy, "log_loss": report.log_loss }))
    }

    /// The ten nearest of 100 000 items to each of 1000 queries, preparation included.
    fn search(&self, metric: Metric) -> Result<Value, Failure> {
        let [items, queries] =
            [self.array("x100000x64")?, self.array("q1000x64")?].map(|codes| codes.mapv(|v| v as f32));
        let (seconds, hits) = self.time(|| ExactSearch::new(items.view(), metric)?.nearest(queries.view(), 10))?;
        let places = hits.items.iter().sum::<usize>() as f64;
        Ok(json!({ "seconds": seconds, "check": [hits.scores[[0, 0]], hits.scores[[999, 9]], places] }))
    }

    fn ridge(&self) -> Result<Value, Failure> {
        let (x, y, new) = (self.array("x5000x50")?, self.array("y5000x1")?, self.array("new100x50")?);
        let y = Target::Values(y.column(0).to_vec());
        let kernel = Kernel::parse("rbf(7)")?;
        let ridge = Ridge { alpha: Alpha::Fixed(0.1), solver: RidgeSolver::Direct, ..Ridge::new(kernel) };
        let (seconds, fitted) = self.time(|| ridge.fit(x.view(), &y, &FitContext::default()))?;
        let check = fitted.scores(new.view())?.column(0).slice(s![..5]).to_vec();
        Ok(json!({ "seconds": seconds, "check": check }))
    }
}

/// Seconds of each repeat after so many runs for warm-up, and the last result.
fn time<T>(warm_up: usize, repeats: usize, mut work: impl FnMut() -> Result<T>) -> Result<(Vec<f64>, T)> {
    let (mut seconds, mut last) = (vec![], None);
    for run in 0..warm_up + repeats {
        drop(last.take());
        let start = Instant::now();
        last = Some(work()?);
        if run >= warm_up {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    Ok((seconds, last.expect("at least one run")))
}

/// The top ten pairs, in less than a third of the 2.5 GB that half the matrix of 50 000 points takes in single precision.
fn top_k(kernel: &str, x: ArrayView2<f64>, warm_up: usize, repeats: usize) -> Result<Value, Failure> {
    let kernel = Kernel::parse(kernel)?;
    let budget = Budget::parse("1.5GiB")?;
    let context = FitContext { precision: Precision::F32, budget, ..FitContext::default() };
    let (seconds, solution) = time(warm_up, repeats, || {
        let operator = context.kernel_operator(&kernel, x)?;
        Krylov::to(1e-4).solve(&Problem { operator: &operator, k: 10, context })
    })?;
    Ok(json!({ "seconds": seconds, "eigenvalues": solution.eigenvalues }))
}

/// Root mean square of `φφᵀ − K` over the first 1000 points.
fn kernel_error<T: Real>(kernel: &Kernel, f: &Array2<T>, x: ArrayView2<f64>) -> Result<f64> {
    let f = f.slice(s![..1000, ..]).mapv(|v| v.wide());
    let difference = matmul(f.view(), f.t()) - gram::<f64>(kernel, x.slice(s![..1000, ..]), Device::Cpu)?;
    Ok((difference.mapv(|d| d * d).sum() / 1e6).sqrt())
}

/// The peak resident memory of this process.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
