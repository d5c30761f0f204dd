//! Training steps that stay on a CUDA device, for every operator that has such, against the same steps on the CPU. Without a
//! device every test says so and passes.

mod common;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use cuda::{Case, DESCENT, K, KINDS, NETWORKS, cuda, with_memory};
use mercer::compute::{Math, Rule};
use mercer::operator::{DenseOperator, FunctionSamples, LowRankOperator, NeighbourGraph, OnPoints};
use mercer::spectrum::neural::{
    Exponentials, FunctionOperator, Functions, Gaussian, GraphLaplacian, Kind, OnData, Schroedinger, Settings, Stop,
};
use mercer::{Progress, Silent};
use neural::{Stopper, bits, trained};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn random(shape: (usize, usize)) -> Array2<f64> {
    uniform(shape.0, shape.1, 2.0, 4)
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

/// Functions for an objective, of so many inputs, on a device.
type Make<'a> = &'a dyn Fn(Kind, usize, Device) -> Functions;

/// One step has the gradient, loss and eigenvalues of the CPU; ten go where its steps go; a recorded step has the bits of one
/// that is not.
fn agree(
    device: Device,
    name: &str,
    operator: &dyn FunctionOperator,
    functions: Make<'_>,
    kinds: &[Kind],
    batch: usize,
) {
    for kind in kinds.iter().copied() {
        let name = format!("{name} {kind:?}");
        let case = Case { operator, functions, kind, rule: DESCENT, rate: 1.0, batch };
        for at in [Device::Cpu, device] {
            assert_eq!(case.stepper(at, Math::F32).is_recorded(), at != Device::Cpu, "{name}: a step that is recorded");
        }
        let [here, there] = case.both(device, 1);
        here.agrees(&there, 2e-4, 1e-3, &name);
        let case = Case { rule: Rule::ADAM, rate: 1e-3, ..case };
        case.first_steps_agree(device, &name);
        let [recorded, plain] = [true, false].map(|graph| case.steps(device, 40, Math::F32, graph));
        assert_eq!(recorded.bits(), plain.bits(), "{name}");
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
    let Some((device, _held)) = cuda() else { return };
    let x = random((200, 2));
    for samples in [5, 130] {
        let f = LowRankOperator::new(smooth(samples, &x, 1).remove_axis(Axis(2))).unwrap();
        let on_points = OnPoints::new(&f, x.view()).unwrap();
        let operator = OnData::new(&on_points).unwrap();
        let name = format!("{samples} functions");
        agree(device, &name, &operator, &networks(NETWORKS), &KINDS, 48);
    }
}

/// Networks of convolutions, whose products are a library's.
#[test]
fn images() {
    let Some((device, _held)) = cuda() else { return };
    let x = random((200, 32));
    let f = LowRankOperator::new(smooth(60, &x, 1).remove_axis(Axis(2))).unwrap();
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    let functions =
        networks("image(2, 4, 4) conv(4, 3, stride=2) sincos conv(4, 2) sincos flatten dense(8) sincos dense(1)");
    agree(device, "images", &operator, &functions, &KINDS[..6], 48);
}

#[test]
fn a_stored_matrix() {
    let Some((device, _held)) = cuda() else { return };
    let x = random((200, 2));
    let stored = DenseOperator::new(matrix(&kernel("poly(2) + laplacian(2)"), x.view()));
    let on_points = OnPoints::new(&stored, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    agree(device, "a stored matrix", &operator, &networks(NETWORKS), &KINDS, 48);
}

#[test]
fn kernels_of_matrices() {
    let Some((device, _held)) = cuda() else { return };
    let x = random((150, 2));
    let f = outputs(&smooth(40, &x, 3));
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    // An odd batch, whose halves are of different size. Ritz has units of one output.
    let functions = networks("dense(16) sincos dense(3)");
    agree(device, "three outputs", &operator, &functions, &KINDS[..6], 33);
}

/// A batch whose neighbours are fewer than all points, and one that sees the whole graph.
#[test]
fn graph_laplacians() {
    let Some((device, _held)) = cuda() else { return };
    let x = random((400, 2));
    let graph = NeighbourGraph::new(x.view(), 5);
    for batch in [20, 150] {
        let operator = GraphLaplacian::new(&graph, x.view(), 0.3).unwrap();
        let name = format!("a graph, batches of {batch}");
        agree(device, &name, &operator, &networks(NETWORKS), &KINDS, batch);
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
    let Some((device, _held)) = cuda() else { return };
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
        agree(device, name, &operator, &functions, &kinds, 64);
    }
}

/// Functions that vanish on a circle, on a kernel, on samples of two outputs and at the neighbours of a graph.
#[test]
fn envelopes() {
    let Some((device, _held)) = cuda() else { return };
    let x = random((300, 2));
    let vanishing = |architecture: &'static str| {
        move |kind: Kind, inputs: usize, device: Device| {
            let envelope = |x: &[f32]| 1.0 - 0.3 * (x[0] * x[0] + x[1] * x[1]);
            networks(architecture)(kind, inputs, device).with_envelope(Arc::new(envelope))
        }
    };
    let (one, two) = (vanishing(NETWORKS), vanishing("dense(16) sincos dense(2)"));
    let kernel = on(&kernel("rbf(1)"), x.view());
    let on_kernel = OnData::new(&kernel).unwrap();
    agree(device, "a kernel", &on_kernel, &one, &KINDS, 48);
    let f = outputs(&smooth(30, &x, 2));
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let on_samples = OnData::new(&on_points).unwrap();
    agree(device, "two outputs", &on_samples, &two, &KINDS[..6], 48);
    let graph = NeighbourGraph::new(x.view(), 5);
    let on_graph = GraphLaplacian::new(&graph, x.view(), 0.3).unwrap();
    agree(device, "a graph", &on_graph, &one, &KINDS, 20);
}

/// Samples that do not fit beside the networks leave steps to the host, with the same result.
#[test]
fn samples_that_do_not_fit_pass_through_the_host() {
    let Some((device, _held)) = cuda() else { return };
    let x = random((4000, 2));
    let f = LowRankOperator::new(smooth(3000, &x, 1).remove_axis(Axis(2))).unwrap();
    let kind = Kind::NeuralEf { averaged: false };
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    let functions = networks(NETWORKS)(kind, 2, device);
    let recordable = with_memory(60 << 20, || operator.batches(&functions, 48, Math::F32).unwrap().recordable());
    assert!(!recordable, "46 MiB are more than three quarters of what is free");
}

/// On the device, with validations in between, which evaluate the same functions at more points.
#[test]
fn an_interrupted_run_resumes_with_the_same_bits() {
    let Some((device, _held)) = cuda() else { return };
    let x = random((300, 2));
    let (f, graph) = (outputs(&smooth(30, &x, 2)), NeighbourGraph::new(x.view(), 5));
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operators: [&dyn FunctionOperator; 3] =
        [&OnData::new(&on_points).unwrap(), &GraphLaplacian::new(&graph, x.view(), 0.3).unwrap(), &oscillator()];
    let (folder, kind) = (tempfile::tempdir().unwrap(), Kind::NeuralEf { averaged: true });
    for (i, operator) in operators.into_iter().enumerate() {
        let run = |settings: &Settings, progress: &dyn Progress, interrupt: Option<&AtomicBool>| {
            let architecture = format!("dense(16) sincos dense({})", operator.outputs());
            let context = FitContext { device, progress, interrupt, ..FitContext::default() };
            trained(kind, &architecture, operator, K, settings, &context).unwrap()
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
