//! What several suites share: frequent imports, random points, kernels and comparisons.
#![allow(dead_code, unused_imports, reason = "each suite uses a part")]

pub use mercer::FitContext;
pub use mercer::compute::{Device, Tensor};
use mercer::data::{Dataset, Target};
pub use mercer::kernel::Kernel;
pub use mercer::operator::{KernelOperator, Operator, Precision, gram, gram_cross};
pub use mercer::rng::Rng;
pub use mercer::spectrum::{Exact, Krylov, Method, Problem, Spectrum, Standing};
pub use ndarray::{Array1, Array2, Array3, ArrayBase, ArrayView1, ArrayView2, Axis, Data, Ix2, s};
use std::path::PathBuf;

/// Rows `[n, d]` with a class each, by its place among names.
pub fn of_classes(x: Array2<f64>, labels: Vec<usize>, names: Vec<String>) -> Dataset {
    Dataset::new("rows", x, Some(Target::Classes { labels, names })).unwrap()
}

/// Rows `[n, d]` with a number each.
pub fn of_numbers(x: Array2<f64>, numbers: Vec<f64>) -> Dataset {
    Dataset::new("rows", x, Some(Target::Values(numbers))).unwrap()
}

/// The classes of rows, to look at or to change.
pub fn labels(data: &mut Dataset) -> &mut Vec<usize> {
    let Some(Target::Classes { labels, .. }) = &mut data.y else { panic!("the rows have no classes") };
    labels
}

/// The classes of rows by their places, or their numbers.
pub fn targets(data: &Dataset) -> Vec<f64> {
    data.target().unwrap().values()
}

/// Standard normal numbers `[n, d]`.
pub fn normal(n: usize, d: usize, seed: u64) -> Array2<f64> {
    Rng::new(seed).normals((n, d))
}

/// Uniform on `[−half_width, half_width]`, `[n, d]`.
pub fn uniform(n: usize, d: usize, half_width: f64, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    Array2::from_shape_simple_fn((n, d), || half_width * (2.0 * rng.uniform() - 1.0))
}

/// Uniform on a cube about (0.3, …), shrunk with the dimension: `exp(x·x')` and fourth powers stay within the range of f32,
/// and the points are off the origin, so that shifts matter.
pub fn bounded(n: usize, d: usize, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    Array2::from_shape_simple_fn((n, d), || 0.3 + (2.0 * rng.uniform() - 1.0) / (d as f64).sqrt())
}

/// n equally spaced points of the unit circle, `[n, 2]`.
pub fn ring(n: usize) -> Array2<f64> {
    Array2::from_shape_fn((n, 2), |(i, j)| {
        let angle = i as f64 * std::f64::consts::TAU / n as f64;
        if j == 0 { angle.cos() } else { angle.sin() }
    })
}

/// Numbers in single precision on the CPU, as networks take them.
pub fn tensor(x: ArrayView2<f64>) -> Tensor {
    let data: Vec<f32> = x.iter().map(|v| *v as f32).collect();
    Tensor::from_host(Device::Cpu, &[x.nrows(), x.ncols()], &data).unwrap()
}

/// A folder that goes away with the test, and the path of a file in it.
pub fn scratch(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

/// Runs `work` on so many threads.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

pub fn kernel(text: &str) -> Kernel {
    Kernel::parse(text).unwrap()
}

/// The kernel as an operator on the points, on the CPU in double precision.
pub fn on<'a>(kernel: &Kernel, x: ArrayView2<'a, f64>) -> KernelOperator<'a> {
    FitContext::default().kernel_operator(kernel, x).unwrap()
}

/// As [`on`], with points that the operator owns.
pub fn on_own(kernel: &Kernel, x: Array2<f64>) -> KernelOperator<'static> {
    on(kernel, x.view()).select(&(0..x.nrows()).collect::<Vec<_>>()).unwrap()
}

/// The first `k` pairs of an operator.
pub fn fit(method: &dyn Method, operator: &dyn Operator, k: usize) -> Spectrum {
    Spectrum::fit(method, &Problem::new(operator, k), None).unwrap()
}

/// The first `k` pairs of a kernel on the points.
pub fn fit_kernel(method: &dyn Method, text: &str, x: ArrayView2<f64>, k: usize) -> Spectrum {
    fit(method, &on(&kernel(text), x), k)
}

/// The first `k` pairs of a kernel on the points, with this precision.
pub fn fit_in(precision: Precision, method: &dyn Method, kernel: &Kernel, x: ArrayView2<f64>, k: usize) -> Spectrum {
    let context = FitContext { precision, ..FitContext::default() };
    let operator = context.kernel_operator(kernel, x).unwrap();
    Spectrum::fit(method, &Problem { operator: &operator, k, context }, None).unwrap()
}

/// The first `k` pairs, certified on other points.
pub fn fit_held_out(method: &dyn Method, operator: &dyn Operator, k: usize, held_out: ArrayView2<f64>) -> Spectrum {
    Spectrum::fit(method, &Problem::new(operator, k), Some(held_out.into())).unwrap()
}

/// What a file gives back of a spectrum: everything that it says of itself is the same.
pub fn reloaded(spectrum: &Spectrum) -> Spectrum {
    let (_folder, path) = scratch("spectrum.mercer");
    spectrum.save(&path).unwrap();
    let back = Spectrum::load(&path, Device::Cpu).unwrap();
    assert_eq!((&back.eigenvalues, &back.origin), (&spectrum.eigenvalues, &spectrum.origin));
    assert_eq!((&back.certificate, back.training()), (&spectrum.certificate, spectrum.training()));
    back
}

/// A spectrum of a kernel of rank five: what is beyond has eigenvalue zero, and functions that vanish.
pub fn has_rank_five(spectrum: &Spectrum, x: ArrayView2<f64>, what: &str) {
    let (eigenvalues, certificate) = (&spectrum.eigenvalues, &spectrum.certificate);
    assert!(eigenvalues[..5].iter().all(|μ| *μ > 0.0) && eigenvalues[5..].iter().all(|μ| *μ == 0.0), "{what}");
    assert!(certificate.standing[5..].iter().all(|s| *s == Standing::Zero), "{what}");
    assert!(certificate.residual[5..].iter().all(Option::is_none), "{what}");
    let psi = spectrum.transform(x).unwrap();
    assert!(psi.iter().all(|v| v.is_finite()) && psi.slice(s![.., 5..]).iter().all(|v| *v == 0.0), "{what}");
}

/// κ(X,X) on the CPU.
pub fn matrix(kernel: &Kernel, x: ArrayView2<f64>) -> Array2<f64> {
    gram(kernel, x, Device::Cpu).unwrap()
}

/// κ(X,Z), value by value from the formula.
pub fn by_formula(kernel: &Kernel, x: ArrayView2<f64>, z: ArrayView2<f64>) -> Array2<f64> {
    Array2::from_shape_fn((x.nrows(), z.nrows()), |(i, j)| kernel.value(&x.row(i).to_vec(), &z.row(j).to_vec()))
}

/// The largest absolute number, NaN where there is one.
pub fn largest<A: Data<Elem = f64>>(a: &ArrayBase<A, Ix2>) -> f64 {
    a.iter().fold(0.0f64, |m, v| if v.abs() > m || v.is_nan() { v.abs() } else { m })
}

/// The largest difference.
pub fn worst<A: Data<Elem = f64>, B: Data<Elem = f64>>(a: &ArrayBase<A, Ix2>, b: &ArrayBase<B, Ix2>) -> f64 {
    assert_eq!(a.dim(), b.dim());
    largest(&(a - b))
}

/// `|cos|` between the j-th columns.
pub fn cosine(a: &Array2<f64>, b: &Array2<f64>, j: usize) -> f64 {
    let (a, b) = (a.column(j), b.column(j));
    a.dot(&b).abs() / (a.dot(&a) * b.dot(&b)).sqrt()
}

/// Eigenvalues agree within a relative tolerance.
pub fn same_eigenvalues(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    for (j, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got / want - 1.0).abs() <= tolerance, "{what}: μ_{} is {got} for {want}", j + 1);
    }
}

/// The message of a result that must be an error.
#[track_caller]
pub fn message<T>(result: mercer::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

/// A result must be an error whose message contains each of `parts`.
#[track_caller]
pub fn says<T>(result: mercer::Result<T>, parts: &[&str]) {
    let message = message(result);
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
}
