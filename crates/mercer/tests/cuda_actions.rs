//! Training steps that stay on a CUDA device, for every operator that has such, against the processor's steps. Without a
//! device every test says so and passes.

#[macro_use]
#[path = "contract/cuda.rs"]
mod cuda;

use cuda::After;
use mercer::compute::cuda::gpu;
use mercer::compute::{Device, Math, Rule};
use mercer::kernel::Kernel;
use mercer::net::{Optimizer, Schedule};
use mercer::operator::{DenseOperator, FunctionSamples, LowRankOperator, NeighbourGraph, OnPoints, gram};
use mercer::rng::Rng;
use mercer::spectrum::neural::{
    Exponentials, FunctionOperator, Functions, Gaussian, GraphLaplacian, Kind, Nesting, OnData, Schroedinger, Settings,
    Stepper, Stop, Trained, train,
};
use mercer::{FitContext, Progress, Silent};
use ndarray::{Array2, Array3};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const K: usize = 3;
const NETWORKS: &str = "dense(16) sincos dense(16) sincos dense(1)";
const KINDS: [Kind; 7] = [
    Kind::NeuralEf { averaged: false },
    Kind::NeuralEfJoint,
    Kind::NeuralEf { averaged: true },
    Kind::Nested { nesting: Some(Nesting::Sequential) },
    Kind::Nested { nesting: Some(Nesting::Joint) },
    Kind::Spin { decay: 0.9 },
    Kind::Ritz,
];

fn random(shape: (usize, usize)) -> Array2<f64> {
    let mut rng = Rng::new(4);
    Array2::from_shape_simple_fn(shape, || 4.0 * rng.uniform() - 2.0)
}

/// S smooth functions of c outputs at the points `x` `[n, d]`: `[S, n, c]`.
fn smooth(samples: usize, x: &Array2<f64>, c: usize) -> Array3<f64> {
    let mut rng = Rng::new(6);
    let waves = Array2::from_shape_simple_fn((samples * c, x.ncols() + 1), || rng.normal());
    Array3::from_shape_fn((samples, x.nrows(), c), |(s, i, o)| {
        let wave = waves.row(s * c + o);
        let phase: f64 = x.row(i).iter().zip(wave).map(|(x, w)| x * w).sum();
        (phase + 3.0 * wave[x.ncols()]).sin() + 0.3 * o as f64
    })
}

/// `S` functions of c outputs as an operator on their values.
fn outputs(f: &Array3<f64>) -> LowRankOperator {
    LowRankOperator::of_samples(&FunctionSamples::from(f.view()), false).unwrap()
}

/// A problem: an operator, functions for it, and how they are trained.
struct Case<'a> {
    name: &'a str,
    operator: &'a dyn FunctionOperator,
    functions: &'a dyn Fn(Kind, usize, Device) -> Functions,
    kinds: &'a [Kind],
    batch: usize,
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, b| a.max(b.abs()))
}

impl Case<'_> {
    /// `steps` steps on `device`.
    fn steps(&self, device: Device, kind: Kind, rule: Rule, rate: f64, steps: usize, graph: bool) -> After {
        let functions = (self.functions)(kind, self.operator.inputs(), device);
        let objective = kind.objective(&functions, K).unwrap();
        let (parameters, schedule) = (functions.network().parameters(), Schedule::Constant { rate });
        let optimizer = Optimizer::new(device, rule, schedule, None, parameters).unwrap();
        let stepper =
            Stepper::new(self.operator, functions, objective, optimizer, Rng::new(7), self.batch, Math::F32).unwrap();
        assert_eq!(stepper.is_recorded(), device != Device::Cpu, "{}: a step that is recorded", self.name);
        After::of(if graph { stepper } else { stepper.without_graph().unwrap() }, steps)
    }

    /// One step has the processor's gradient, loss and eigenvalues; ten go where its steps go; a recorded step has the
    /// bits of one that is not.
    fn agrees(&self, device: Device) {
        for kind in self.kinds.iter().copied() {
            let name = format!("{} {kind:?}", self.name);
            let descent = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
            let [here, there] = [Device::Cpu, device].map(|at| self.steps(at, kind, descent, 1.0, 1, true));
            let (want, got) = (here.moved(), there.moved());
            for (i, (w, g)) in want.iter().zip(&got).enumerate() {
                assert!((w - g).abs() < 2e-4 * largest(&want) + 1e-6, "{name}, gradient {i}: {g} for {w}");
            }
            let (want, got) = (&here.outcomes[0], &there.outcomes[0]);
            assert!((want.loss - got.loss).abs() < 1e-4 * want.loss.abs().max(1e-3), "{name}: {got:?} for {want:?}");
            for (w, g) in want.eigenvalues.iter().zip(&got.eigenvalues) {
                assert!((w - g).abs() < 1e-4 * w.abs().max(1e-2), "{name}: {got:?} for {want:?}");
            }

            let [here, there] = [Device::Cpu, device].map(|at| self.steps(at, kind, Rule::ADAM, 1e-3, 10, true));
            let far = largest(&here.moved());
            for (want, got) in here.parameters.iter().zip(&there.parameters) {
                assert!((want - got).abs() < 2e-2 * far, "{name}: {got} for {want} after ten steps, moved {far}");
            }

            let recorded = self.steps(device, kind, Rule::ADAM, 1e-3, 40, true);
            assert_eq!(recorded.bits(), self.steps(device, kind, Rule::ADAM, 1e-3, 40, false).bits(), "{name}");
        }
    }
}

/// The functions that a kind wants, of this architecture. Ritz's gradient is divided by the eigenvalues of Σ, which come from
/// sums in f32: it has few units that differ much, so that they are far above rounding.
fn networks(architecture: &str) -> impl Fn(Kind, usize, Device) -> Functions {
    move |kind, inputs, device| {
        let few = architecture.replace("dense(16) sincos dense(16)", "dense(16)").replace("dense(16)", "dense(6, w=3)");
        let architecture = if kind == Kind::Ritz { &few } else { architecture };
        kind.functions(architecture, inputs, K, device, &Rng::new(2)).unwrap()
    }
}

#[test]
fn sampled_functions() {
    let (device, _held) = device!();
    let x = random((200, 2));
    for samples in [5, 130] {
        let f = LowRankOperator::new(smooth(samples, &x, 1).remove_axis(ndarray::Axis(2))).unwrap();
        let on_points = OnPoints::new(&f, x.view()).unwrap();
        let operator = OnData::new(&on_points).unwrap();
        let name = format!("{samples} functions");
        Case { name: &name, operator: &operator, functions: &networks(NETWORKS), kinds: &KINDS, batch: 48 }
            .agrees(device);
    }
}

/// Networks of convolutions, whose products are a library's.
#[test]
fn images() {
    let (device, _held) = device!();
    let x = random((200, 32));
    let f = LowRankOperator::new(smooth(60, &x, 1).remove_axis(ndarray::Axis(2))).unwrap();
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    let functions =
        networks("image(2, 4, 4) conv(4, 3, stride=2) sincos conv(4, 2) sincos flatten dense(8) sincos dense(1)");
    Case { name: "images", operator: &operator, functions: &functions, kinds: &KINDS[..6], batch: 48 }.agrees(device);
}

#[test]
fn a_stored_matrix() {
    let (device, _held) = device!();
    let x = random((200, 2));
    let kernel = Kernel::parse("poly(2) + laplacian(2)").unwrap();
    let stored = DenseOperator::new(gram::<f64>(&kernel, x.view(), Device::Cpu).unwrap());
    let on_points = OnPoints::new(&stored, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    Case { name: "a stored matrix", operator: &operator, functions: &networks(NETWORKS), kinds: &KINDS, batch: 48 }
        .agrees(device);
}

#[test]
fn kernels_of_matrices() {
    let (device, _held) = device!();
    let x = random((150, 2));
    let f = outputs(&smooth(40, &x, 3));
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    // An odd batch, whose halves are of different size. Ritz has units of one output.
    let functions = networks("dense(16) sincos dense(3)");
    Case { name: "three outputs", operator: &operator, functions: &functions, kinds: &KINDS[..6], batch: 33 }
        .agrees(device);
}

/// A batch whose neighbours are fewer than all points, and one that sees the whole graph.
#[test]
fn graph_laplacians() {
    let (device, _held) = device!();
    let x = random((400, 2));
    let graph = NeighbourGraph::new(x.view(), 5);
    for batch in [20, 150] {
        let operator = GraphLaplacian::new(&graph, x.view(), 0.3).unwrap();
        let name = format!("a graph, batches of {batch}");
        Case { name: &name, operator: &operator, functions: &networks(NETWORKS), kinds: &KINDS, batch }.agrees(device);
    }
}

fn oscillator() -> Schroedinger {
    let guide = Box::new(Gaussian { dimension: 3, width: 1.0 });
    Schroedinger::new("-Δ + |x|²", Box::new(|x| x.iter().map(|x| x * x).sum()), guide, 9.0, 9.0).unwrap()
}

fn hydrogen() -> Schroedinger {
    let guide = Box::new(Exponentials::with_cusp(0.5, 0.8, 4.0).unwrap());
    Schroedinger::new("-Δ - 1/|x|", Box::new(|x| -1.0 / x[0].hypot(x[1])), guide, 0.0, 1.0).unwrap()
}

#[test]
fn schroedinger_operators() {
    let (device, _held) = device!();
    let cases: [(&str, &dyn Fn() -> Schroedinger, &str); 3] = [
        ("an oscillator", &oscillator, NETWORKS),
        ("an oscillator, a shared trunk", &oscillator, "dense(16) tanh | dense(16) gelu dense(1)"),
        ("hydrogen", &hydrogen, "radial(scale=2) dense(16) sincos dense(16) sincos dense(1)"),
    ];
    for (name, operator, architecture) in cases {
        let operator = operator();
        // SpIN wants networks that share nothing.
        let shared = architecture.contains('|');
        let kinds: Vec<Kind> =
            KINDS.into_iter().filter(|kind| !(shared && matches!(kind, Kind::Spin { .. }))).collect();
        let functions = networks(architecture);
        Case { name, operator: &operator, functions: &functions, kinds: &kinds, batch: 64 }.agrees(device);
    }
}

/// Functions that vanish on a circle, on a kernel, on samples of two outputs and at the neighbours of a graph.
#[test]
fn envelopes() {
    let (device, _held) = device!();
    let x = random((300, 2));
    let vanishing = |architecture: &'static str| {
        move |kind: Kind, inputs: usize, device: Device| {
            let envelope = |x: &[f32]| 1.0 - 0.3 * (x[0] * x[0] + x[1] * x[1]);
            networks(architecture)(kind, inputs, device).with_envelope(Arc::new(envelope))
        }
    };
    let (one, two) = (vanishing(NETWORKS), vanishing("dense(16) sincos dense(2)"));
    let kernel = Kernel::parse("rbf(1)").unwrap();
    let kernel = FitContext::default().kernel_operator(&kernel, x.view()).unwrap();
    let on_kernel = OnData::new(&kernel).unwrap();
    Case { name: "a kernel", operator: &on_kernel, functions: &one, kinds: &KINDS, batch: 48 }.agrees(device);
    let f = outputs(&smooth(30, &x, 2));
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let on_samples = OnData::new(&on_points).unwrap();
    Case { name: "two outputs", operator: &on_samples, functions: &two, kinds: &KINDS[..6], batch: 48 }.agrees(device);
    let graph = NeighbourGraph::new(x.view(), 5);
    let on_graph = GraphLaplacian::new(&graph, x.view(), 0.3).unwrap();
    Case { name: "a graph", operator: &on_graph, functions: &one, kinds: &KINDS, batch: 20 }.agrees(device);
}

/// Samples that do not fit beside the networks leave steps to the host, with the same result.
#[test]
fn samples_that_do_not_fit_pass_through_the_host() {
    let (device, _held) = device!();
    let Device::Cuda(ordinal) = device else { return };
    let x = random((4000, 2));
    let f = LowRankOperator::new(smooth(3000, &x, 1).remove_axis(ndarray::Axis(2))).unwrap();
    let kind = Kind::NeuralEf { averaged: false };
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    let functions = networks(NETWORKS)(kind, 2, device);
    gpu(ordinal).unwrap().limit_memory(Some(60 << 20));
    let refused = !operator.batches(&functions, 48, Math::F32).unwrap().recordable();
    gpu(ordinal).unwrap().limit_memory(None);
    assert!(refused, "46 MiB are more than three quarters of what is free");
}

/// Interrupts once some steps are done.
struct Stopper<'a>(&'a AtomicBool);

impl Progress for Stopper<'_> {
    fn step(&self, _: &str, done: usize, _: usize, _: &str) {
        self.0.store(done >= 1, Ordering::Relaxed);
    }
}

/// On the device, with validations in between, which evaluate the same functions at more points.
#[test]
fn an_interrupted_run_resumes_with_the_same_bits() {
    let (device, _held) = device!();
    let x = random((300, 2));
    let (f, graph) = (outputs(&smooth(30, &x, 2)), NeighbourGraph::new(x.view(), 5));
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operators: [&dyn FunctionOperator; 3] =
        [&OnData::new(&on_points).unwrap(), &GraphLaplacian::new(&graph, x.view(), 0.3).unwrap(), &oscillator()];
    let (folder, kind) = (tempfile::tempdir().unwrap(), Kind::NeuralEf { averaged: true });
    for (i, operator) in operators.into_iter().enumerate() {
        let run = |settings: &Settings, progress: &dyn Progress, interrupt: Option<&AtomicBool>| {
            let architecture = format!("dense(16) sincos dense({})", operator.outputs());
            let functions = kind.functions(&architecture, operator.inputs(), K, device, &Rng::new(2)).unwrap();
            let objective = kind.objective(&functions, K).unwrap();
            let context = FitContext { device, progress, interrupt, ..FitContext::default() };
            train(operator, functions, objective, K, settings, &context).unwrap()
        };
        let bits = |trained: &Trained| -> (Vec<u32>, Vec<u64>) {
            let parameters = trained.functions.parameters().trained.to_host().unwrap();
            let numbers = trained.record.raw_eigenvalues.iter().chain(trained.record.validation.iter().flatten());
            (parameters.iter().map(|v| v.to_bits()).collect(), numbers.map(|v| v.to_bits()).collect())
        };
        let settings = Settings { steps: 60, batch: 32, patience: usize::MAX, keep_best: false, ..Settings::default() };
        let whole = run(&settings, &Silent, None);
        let checkpoint = Some(folder.path().join(format!("checkpoint-{i}")));
        let settings = Settings { checkpoint, resume: true, ..settings };
        let flag = AtomicBool::new(false);
        let part = run(&settings, &Stopper(&flag), Some(&flag));
        assert_eq!(part.record.stop, Stop::Interrupted);
        assert!((1..60).contains(&part.record.steps), "{}", part.record.steps);
        let resumed = run(&settings, &Silent, None);
        assert_eq!(resumed.record.steps, 60);
        assert_eq!(bits(&whole), bits(&resumed), "operator {i}");
    }
}
