//! Training steps that stay on a CUDA device, for every operator that has such, against the same steps on the CPU. Without a
//! device every test says so and passes.

mod common;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use cuda::{Case, K, KINDS, NETWORKS, RITZ, cuda, has_averages, with_memory};
use mercer::compute::Math;
use mercer::operator::{DenseOperator, FunctionSamples, LowRankOperator, NeighbourGraph, OnPoints};
use mercer::spectrum::neural::{
    Exponentials, FunctionOperator, Functions, Gaussian, GraphLaplacian, Kind, NeuralEf, OnData, Schroedinger,
    Settings, Spin,
};
use neural::{resumes_with_the_same_bits, trained};
use std::sync::Arc;

fn random(shape: (usize, usize)) -> Array2<f64> {
    uniform(shape.0, shape.1, 2.0, 4)
}

/// S smooth functions of c outputs at the points `x` `[n, d]`: `[S, n, c]`.
fn smooth(samples: usize, x: &Array2<f64>, c: usize) -> Array3<f64> {
    let waves = Rng::new(6).normals((samples * c, x.ncols() + 1));
    Array3::from_shape_fn((samples, x.nrows(), c), |(s, i, o)| {
        let wave = waves.row(s * c + o);
        let phase: f64 = x.row(i).iter().zip(wave).map(|(x, w)| x * w).sum();
        (phase + 3.0 * wave[x.ncols()]).sin() + 0.3 * o as f64
    })
}

/// [`smooth`] functions as an operator on their values.
fn sampled(samples: usize, x: &Array2<f64>, c: usize) -> LowRankOperator {
    LowRankOperator::of_samples(&FunctionSamples::from(smooth(samples, x, c).view()), false).unwrap()
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
        let case = Case::descent(operator, functions, kind, batch);
        for at in [Device::Cpu, device] {
            assert_eq!(case.stepper(at, Math::F32).is_recorded(), at != Device::Cpu, "{name}: a step that is recorded");
        }
        let [here, there] = case.both(device, 1);
        here.agrees(&there, 2e-4, 1e-3, &name);
        let case = case.adam();
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
        let architecture = if kind.solves_last_layer() { &few } else { architecture };
        kind.functions(architecture, inputs, K, device, &Rng::new(2)).unwrap()
    }
}

#[test]
#[ignore = "needs a GPU"]
fn operators_on_points() {
    let (device, _held) = cuda();
    let (few, many, x32) = (random((150, 2)), random((200, 2)), random((200, 32)));
    let stored = DenseOperator::new(matrix(&kernel("poly(2) + laplacian(2)"), many.view()));
    let one =
        |samples: usize, x: &Array2<f64>| LowRankOperator::new(smooth(samples, x, 1).remove_axis(Axis(2))).unwrap();
    // Networks of convolutions have products that are a library's. Ritz has units of one output.
    let images = "image(2, 4, 4) conv(4, 3, stride=2) sincos conv(4, 2) sincos flatten dense(8) sincos dense(1)";
    // An odd batch has halves of different size.
    type Case<'a> = (&'a str, &'a dyn Operator, &'a Array2<f64>, &'a str, &'a [Kind], usize);
    let cases: [Case<'_>; 5] = [
        ("5 functions", &one(5, &many), &many, NETWORKS, &KINDS, 48),
        ("130 functions", &one(130, &many), &many, NETWORKS, &KINDS, 48),
        ("images", &one(60, &x32), &x32, images, &KINDS[..RITZ], 48),
        ("a stored matrix", &stored, &many, NETWORKS, &KINDS, 48),
        ("three outputs", &sampled(40, &few, 3), &few, "dense(16) sincos dense(3)", &KINDS[..RITZ], 33),
    ];
    for (name, operator, x, architecture, kinds, batch) in cases {
        let on_points = OnPoints::new(operator, x.view()).unwrap();
        agree(device, name, &OnData::new(&on_points).unwrap(), &networks(architecture), kinds, batch);
    }
}

/// A batch whose neighbours are fewer than all points, and one that sees the whole graph.
#[test]
#[ignore = "needs a GPU"]
fn graph_laplacians() {
    let (device, _held) = cuda();
    let x = random((400, 2));
    let graph = NeighbourGraph::new(x.view(), 5);
    let operator = GraphLaplacian::new(&graph, x.view(), 0.3).unwrap();
    for batch in [20, 150] {
        agree(device, &format!("a graph, batches of {batch}"), &operator, &networks(NETWORKS), &KINDS, batch);
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
#[ignore = "needs a GPU"]
fn schroedinger_operators() {
    let (device, _held) = cuda();
    let cases = [
        ("an oscillator", oscillator(), NETWORKS),
        ("an oscillator, a shared trunk", oscillator(), "dense(16) tanh | dense(16) gelu dense(1)"),
        ("hydrogen", hydrogen(), "radial(scale=2) dense(16) sincos dense(16) sincos dense(1)"),
    ];
    for (name, operator, architecture) in cases {
        // SpIN wants networks that share nothing.
        let shared = architecture.contains('|');
        let kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| !(shared && has_averages(kind))).collect();
        agree(device, name, &operator, &networks(architecture), &kinds, 64);
    }
}

/// Functions that vanish on a circle, on a kernel, on samples of two outputs and at the neighbours of a graph.
#[test]
#[ignore = "needs a GPU"]
fn envelopes() {
    let (device, _held) = cuda();
    let x = random((300, 2));
    let vanishing = |architecture: &'static str| {
        move |kind: Kind, inputs: usize, device: Device| {
            let envelope = |x: &[f32]| 1.0 - 0.3 * (x[0] * x[0] + x[1] * x[1]);
            networks(architecture)(kind, inputs, device).with_envelope(Arc::new(envelope))
        }
    };
    let (one, two) = (vanishing(NETWORKS), vanishing("dense(16) sincos dense(2)"));
    let kernel = on(&kernel("rbf(1)"), x.view());
    agree(device, "a kernel", &OnData::new(&kernel).unwrap(), &one, &KINDS, 48);
    let f = sampled(30, &x, 2);
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    agree(device, "two outputs", &OnData::new(&on_points).unwrap(), &two, &KINDS[..RITZ], 48);
    let graph = NeighbourGraph::new(x.view(), 5);
    let on_graph = GraphLaplacian::new(&graph, x.view(), 0.3).unwrap();
    agree(device, "a graph", &on_graph, &one, &KINDS, 20);
}

/// Samples that do not fit beside the networks leave steps to the host, with the same result.
#[test]
#[ignore = "needs a GPU"]
fn samples_that_do_not_fit_pass_through_the_host() {
    let (device, _held) = cuda();
    let x = random((4000, 2));
    let f = LowRankOperator::new(smooth(3000, &x, 1).remove_axis(Axis(2))).unwrap();
    let kind = Kind::NeuralEf(NeuralEf::Joint);
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operator = OnData::new(&on_points).unwrap();
    let functions = networks(NETWORKS)(kind, 2, device);
    let recordable = with_memory(60 << 20, || operator.batches(&functions, 48, Math::F32).unwrap().recordable());
    assert!(!recordable, "46 MiB are more than three quarters of what is free");
}

/// On the device, with validations in between, which evaluate the same functions at more points.
#[test]
#[ignore = "needs a GPU"]
fn an_interrupted_run_resumes_with_the_same_bits() {
    let (device, _held) = cuda();
    let x = random((300, 2));
    let (f, graph) = (sampled(30, &x, 2), NeighbourGraph::new(x.view(), 5));
    let on_points = OnPoints::new(&f, x.view()).unwrap();
    let operators: [&dyn FunctionOperator; 3] =
        [&OnData::new(&on_points).unwrap(), &GraphLaplacian::new(&graph, x.view(), 0.3).unwrap(), &oscillator()];
    for (i, operator) in operators.into_iter().enumerate() {
        let settings = Settings { steps: 60, batch: 32, patience: usize::MAX, keep_best: false, ..Settings::default() };
        resumes_with_the_same_bits(settings, &format!("operator {i}"), |settings, progress, interrupt| {
            let architecture = format!("dense(16) sincos dense({})", operator.outputs());
            let context = FitContext { device, progress, interrupt, ..FitContext::default() };
            trained(Kind::Spin(Spin::PUBLISHED), &architecture, operator, K, settings, &context).unwrap()
        });
    }
}
