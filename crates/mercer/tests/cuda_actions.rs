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
use mercer::operator::{DenseOperator, LowRankOperator, NeighbourGraph, Precision, gram};
use mercer::rng::Rng;
use mercer::spectrum::neural::{
    Action, Exponentials, Functions, Gaussian, GraphLaplacian, KernelAction, Kind, MatrixValued, Nesting,
    OperatorAction, Resident, Schroedinger, Settings, Stepper, Stop, Trained, Watch, train,
};
use mercer::spectrum::{Progress, Silent};
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

/// A problem: an operator, functions for it, and how they are trained.
struct Case<'a> {
    name: &'a str,
    action: &'a dyn Fn() -> Box<dyn Action + 'a>,
    functions: &'a dyn Fn(Kind, usize) -> Functions,
    kinds: &'a [Kind],
    batch: usize,
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, b| a.max(b.abs()))
}

impl Case<'_> {
    /// `steps` steps, on `device` by itself or on the processor.
    fn steps(&self, device: Device, kind: Kind, rule: Rule, rate: f64, steps: usize, graph: bool) -> After {
        device.scope(|| {
            let mut action = (self.action)();
            let mut functions = (self.functions)(kind, action.inputs());
            let mut objective = kind.objective(&functions, K).unwrap();
            let schedule = Schedule::Constant { rate };
            let parameters = functions.network().parameters();
            let mut optimizer = Optimizer::new(device, rule, schedule, None, parameters).unwrap();
            let before = functions.parameters().trained.to_host().unwrap();
            let (mut rng, mut outcomes) = (Rng::new(7), vec![]);
            let resident = Resident::new(action.as_ref(), &functions, objective.as_mut(), self.batch, Math::F32);
            let mut resident = resident.unwrap().map(|r| if graph { r } else { r.without_graph() });
            assert_eq!(resident.is_some(), device != Device::Cpu, "{}: a form on the device", self.name);
            let mut stepper = Stepper::new(device).unwrap();
            while outcomes.len() < steps {
                let (left, objective) = (steps - outcomes.len(), objective.as_mut());
                match &mut resident {
                    Some(resident) => {
                        let made = resident.steps(&mut functions, objective, &mut optimizer, &mut rng, left).unwrap();
                        assert!(made.failure.is_none(), "{}: {:?}", self.name, made.failure);
                        outcomes.extend(made.outcomes);
                    }
                    None => {
                        let action = action.as_mut();
                        let made =
                            stepper.step(action, &mut functions, objective, &mut optimizer, &mut rng, self.batch);
                        outcomes.push(made.unwrap().0);
                    }
                }
            }
            After { before, parameters: functions.parameters().trained.to_host().unwrap(), outcomes }
        })
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
fn networks(architecture: &str) -> impl Fn(Kind, usize) -> Functions {
    move |kind, inputs| {
        let few = architecture.replace("dense(16) sincos dense(16)", "dense(16)").replace("dense(16)", "dense(6, w=3)");
        let architecture = if kind == Kind::Ritz { &few } else { architecture };
        kind.functions(architecture, inputs, K, &Rng::new(2)).unwrap()
    }
}

#[test]
fn sampled_functions() {
    let (device, _held) = device!();
    let x = random((200, 2));
    for samples in [5, 130] {
        let f = LowRankOperator::new(smooth(samples, &x, 1).remove_axis(ndarray::Axis(2))).unwrap();
        let action = || Box::new(OperatorAction::new(&f, x.view()).unwrap()) as Box<dyn Action + '_>;
        let name = format!("{samples} functions");
        Case { name: &name, action: &action, functions: &networks(NETWORKS), kinds: &KINDS, batch: 48 }.agrees(device);
    }
}

/// Networks of convolutions, whose products are a library's.
#[test]
fn images() {
    let (device, _held) = device!();
    let x = random((200, 32));
    let f = LowRankOperator::new(smooth(60, &x, 1).remove_axis(ndarray::Axis(2))).unwrap();
    let action = || Box::new(OperatorAction::new(&f, x.view()).unwrap()) as Box<dyn Action + '_>;
    let functions =
        networks("image(2, 4, 4) conv(4, 3, stride=2) sincos conv(4, 2) sincos flatten dense(8) sincos dense(1)");
    Case { name: "images", action: &action, functions: &functions, kinds: &KINDS[..6], batch: 48 }.agrees(device);
}

#[test]
fn a_stored_matrix() {
    let (device, _held) = device!();
    let x = random((200, 2));
    let kernel = Kernel::parse("poly(2) + laplacian(2)").unwrap();
    let stored = DenseOperator::new(gram::<f64>(&kernel, x.view()));
    let action = || Box::new(OperatorAction::new(&stored, x.view()).unwrap()) as Box<dyn Action + '_>;
    Case { name: "a stored matrix", action: &action, functions: &networks(NETWORKS), kinds: &KINDS, batch: 48 }
        .agrees(device);
}

#[test]
fn kernels_of_matrices() {
    let (device, _held) = device!();
    let x = random((150, 2));
    let f = smooth(40, &x, 3);
    let action = || Box::new(MatrixValued::new(f.view(), x.view()).unwrap()) as Box<dyn Action + '_>;
    // An odd batch, whose halves are of different size. Ritz has units of one output.
    let functions = networks("dense(16) sincos dense(3)");
    Case { name: "three outputs", action: &action, functions: &functions, kinds: &KINDS[..6], batch: 33 }
        .agrees(device);
}

/// A batch whose neighbours are fewer than all points, and one that sees the whole graph.
#[test]
fn graph_laplacians() {
    let (device, _held) = device!();
    let x = random((400, 2));
    let graph = NeighbourGraph::new(x.view(), 5);
    for batch in [20, 150] {
        let action = || Box::new(GraphLaplacian::new(&graph, x.view(), 0.3).unwrap()) as Box<dyn Action + '_>;
        let name = format!("a graph, batches of {batch}");
        Case { name: &name, action: &action, functions: &networks(NETWORKS), kinds: &KINDS, batch }.agrees(device);
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
        let action = || Box::new(operator()) as Box<dyn Action>;
        // SpIN wants networks that share nothing.
        let shared = architecture.contains('|');
        let kinds: Vec<Kind> =
            KINDS.into_iter().filter(|kind| !(shared && matches!(kind, Kind::Spin { .. }))).collect();
        let functions = networks(architecture);
        Case { name, action: &action, functions: &functions, kinds: &kinds, batch: 64 }.agrees(device);
    }
}

/// Functions that vanish on a circle, on a kernel, on samples of two outputs and at the neighbours of a graph.
#[test]
fn envelopes() {
    let (device, _held) = device!();
    let x = random((300, 2));
    let vanishing = |architecture: &'static str| {
        move |kind: Kind, inputs: usize| {
            let envelope = |x: &[f32]| 1.0 - 0.3 * (x[0] * x[0] + x[1] * x[1]);
            networks(architecture)(kind, inputs).with_envelope(Arc::new(envelope))
        }
    };
    let (one, two) = (vanishing(NETWORKS), vanishing("dense(16) sincos dense(2)"));
    let kernel = Kernel::parse("rbf(1)").unwrap();
    let on_kernel = || Box::new(KernelAction::new(&kernel, x.view(), Precision::F64).unwrap()) as Box<dyn Action + '_>;
    Case { name: "a kernel", action: &on_kernel, functions: &one, kinds: &KINDS, batch: 48 }.agrees(device);
    let f = smooth(30, &x, 2);
    let on_samples = || Box::new(MatrixValued::new(f.view(), x.view()).unwrap()) as Box<dyn Action + '_>;
    Case { name: "two outputs", action: &on_samples, functions: &two, kinds: &KINDS[..6], batch: 48 }.agrees(device);
    let graph = NeighbourGraph::new(x.view(), 5);
    let on_graph = || Box::new(GraphLaplacian::new(&graph, x.view(), 0.3).unwrap()) as Box<dyn Action + '_>;
    Case { name: "a graph", action: &on_graph, functions: &one, kinds: &KINDS, batch: 20 }.agrees(device);
}

/// Samples that do not fit beside the networks leave steps to the host, with the same result.
#[test]
fn samples_that_do_not_fit_pass_through_the_host() {
    let (device, _held) = device!();
    let Device::Cuda(ordinal) = device else { return };
    let x = random((4000, 2));
    let f = LowRankOperator::new(smooth(3000, &x, 1).remove_axis(ndarray::Axis(2))).unwrap();
    let kind = Kind::NeuralEf { averaged: false };
    gpu(ordinal).unwrap().limit_memory(Some(60 << 20));
    let refused = device.scope(|| {
        let action = OperatorAction::new(&f, x.view()).unwrap();
        let functions = networks(NETWORKS)(kind, 2);
        let mut objective = kind.objective(&functions, K).unwrap();
        Resident::new(&action, &functions, objective.as_mut(), 48, Math::F32).unwrap().is_none()
    });
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
    let (f, graph) = (smooth(30, &x, 2), NeighbourGraph::new(x.view(), 5));
    type Make<'a> = &'a dyn Fn() -> Box<dyn Action + 'a>;
    let actions: [Make<'_>; 3] = [
        &|| Box::new(MatrixValued::new(f.view(), x.view()).unwrap()),
        &|| Box::new(GraphLaplacian::new(&graph, x.view(), 0.3).unwrap()),
        &|| Box::new(oscillator()),
    ];
    let (folder, kind) = (tempfile::tempdir().unwrap(), Kind::NeuralEf { averaged: true });
    for (i, action) in actions.into_iter().enumerate() {
        let run = |settings: &Settings, progress: &dyn Progress, interrupt: Option<&AtomicBool>| {
            device.scope(|| {
                let mut action = action();
                let architecture = format!("dense(16) sincos dense({})", action.outputs());
                let functions = kind.functions(&architecture, action.inputs(), K, &Rng::new(2)).unwrap();
                let mut objective = kind.objective(&functions, K).unwrap();
                let watch = Watch { progress, interrupt };
                train(action.as_mut(), functions, objective.as_mut(), K, settings, watch).unwrap()
            })
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
        assert_eq!(bits(&whole), bits(&resumed), "action {i}");
    }
}
