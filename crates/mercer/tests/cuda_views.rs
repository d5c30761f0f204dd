//! Training on pairs of views on a CUDA device, against the CPU and in bf16.

mod common;
#[path = "common/cuda.rs"]
mod cuda;

use common::*;
use cuda::{After, cuda};
use mercer::apply::{FittedCode, ViewEigenmap, ViewRows};
use mercer::compute::{Math, Rule, Tensor};
use mercer::data::{ReadOptions, Target, open};
use mercer::net::{Description, Mode, Network, Optimizer, Schedule, named};
use mercer::spectrum::neural::{
    Augmentation, FunctionOperator, Functions, PairObjective, Settings, Stepper, ViewPairs,
};

/// A small residual network of every kind of block, on 3×12×10.
const TRUNK: &str = "image(3, 12, 10) conv(8, 3) bn relu res(conv(8, 3) bn relu conv(8, 3) bn) relu \
    res(conv(16, 3, stride=2, pad=1) bn relu conv(16, 3) bn; conv(16, 1, stride=2) bn) relu gap";
const IMAGE: [usize; 3] = [3, 12, 10];
const K: usize = 6;
const BATCH: usize = 40;

fn network() -> Description {
    Description::parse(&format!("{TRUNK} dense(24) bn relu dense({K})")).unwrap()
}

/// Images of a few waves each, from 0 to 1.
fn images(n: usize) -> Array2<f64> {
    let mut rng = Rng::new(4);
    let mut wave = || [rng.uniform(), rng.uniform(), rng.uniform(), rng.uniform()];
    let waves: Vec<[f64; 4]> = (0..3 * n).map(|_| wave()).collect();
    Array2::from_shape_fn((n, 360), |(i, at)| {
        let ([a, b, c, d], row, col) = (waves[3 * i + at / 120], (at / 10 % 12) as f64, (at % 10) as f64);
        0.5 + 0.5 * (d * (a * row + b * col + 6.0 * c)).sin()
    })
}

fn pairs(x: &Array2<f64>) -> ViewPairs<'_> {
    let augmentation: Augmentation = "crops+flip+colour+grey+blur(0.3)+solarise(0.2)+noise(0.05)".parse().unwrap();
    ViewPairs::augmented(x.view(), Some(IMAGE), augmentation).unwrap()
}

fn stepper<'a>(
    pairs: &'a ViewPairs<'a>,
    objective: PairObjective,
    device: Device,
    math: Math,
    rule: Rule,
    rate: f64,
) -> Stepper<'a> {
    let norms = [objective.normalises(), objective.centres()];
    let functions = Functions::units(&network(), pairs.inputs(), norms, device, &Rng::new(2)).unwrap();
    let run = objective.objective(&functions, K).unwrap();
    let parameters = functions.network().parameters();
    let optimizer = Optimizer::new(device, rule, Schedule::constant(rate), None, parameters).unwrap();
    Stepper::new(pairs, functions, run, optimizer, Rng::new(7), BATCH, math).unwrap()
}

const DESCENT: Rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };

/// `‖a − b‖/‖b‖`
fn off(a: &[f32], b: &[f32]) -> f64 {
    let square = |v: f32| f64::from(v).powi(2);
    let gap: f64 = a.iter().zip(b).map(|(a, b)| square(a - b)).sum();
    (gap / b.iter().map(|b| square(*b)).sum::<f64>()).sqrt()
}

/// The gradient of one step in f32 by every objective is that of the CPU; in bf16 it is near it.
#[test]
#[ignore = "needs a GPU"]
fn steps_on_views_have_the_gradients_of_the_cpu() {
    let (device, _held) = cuda();
    let x = images(120);
    let pairs = pairs(&x);
    for (name, objective) in PairObjective::named() {
        let step = |device, math| After::of(stepper(&pairs, objective, device, math, DESCENT, 1.0), 1);
        let [here, there, rounded] = [(Device::Cpu, Math::F32), (device, Math::F32), (device, Math::Bf16)]
            .map(|(device, math)| step(device, math));
        let [exact, bf16] = [&there, &rounded].map(|other| off(&other.moved(), &here.moved()));
        eprintln!(
            "{name}: gradient off by {exact:.1e} in f32, {bf16:.1e} in bf16; losses {} {} {}",
            here.outcomes[0].loss, there.outcomes[0].loss, rounded.outcomes[0].loss
        );
        assert!(exact < 2e-3, "{name}: {exact}");
        assert!(bf16 < 0.3, "{name}: {bf16}");
        let (want, got) = (&here.outcomes[0], &there.outcomes[0]);
        assert!((want.loss - got.loss).abs() < 1e-3 * want.loss.abs().max(0.1), "{name}: {got:?} for {want:?}");
        assert!(
            want.eigenvalues.iter().zip(&got.eigenvalues).all(|(w, g)| (w - g).abs() < 2e-3),
            "{name}: {got:?} for {want:?}"
        );
    }
}

/// Recorded steps have the bits of those that are not, and of themselves again.
#[test]
#[ignore = "needs a GPU"]
fn recorded_steps_on_views_have_the_bits_of_others() {
    let (device, _held) = cuda();
    let x = images(120);
    let pairs = pairs(&x);
    for (name, objective) in PairObjective::named() {
        for math in [Math::Tf32, Math::Bf16] {
            let start = || stepper(&pairs, objective, device, math, Rule::ADAM, 1e-3);
            assert!(start().is_recorded());
            let recorded = After::of(start(), 24);
            assert_eq!(recorded.bits(), After::of(start().without_graph().unwrap(), 24).bits(), "{name} {math:?}");
            assert_eq!(recorded.bits(), After::of(start(), 24).bits(), "{name} {math:?}, repeated");
        }
    }
}

fn passes(net: &Network, device: Device, b: usize, in_bf16: bool) -> [Vec<f32>; 2] {
    let theta = net.init(device, &Rng::new(1)).unwrap();
    let mut rng = Rng::new(5);
    let mut random = |shape: &[usize]| {
        let x: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
        Tensor::from_host(device, shape, &x).unwrap()
    };
    let (x, mut g) = (random(&[b, net.inputs()]), random(&[1, b, net.outputs()]));
    let workspace = if in_bf16 { net.workspace_in_bf16(device) } else { net.workspace(device) };
    let (mut workspace, mut grad) = (workspace.unwrap(), Tensor::zeros(device, &[0]).unwrap());
    let y = net.forward(&theta, &x, Mode::Train, &mut workspace).unwrap().to_host().unwrap();
    net.vjp(&theta, &x, &mut workspace, &mut g, &mut grad, None).unwrap();
    [y, grad.to_host().unwrap()]
}

/// A pass in bf16 on the device is that of the CPU, where plain loops round as it does; and ResNet-18 in bf16 is as near f32 as with
/// PyTorch's autocast, whose gradient of the same network is off by 0.31, and of one tensor by 0.43, of its norm.
#[test]
#[ignore = "needs a GPU"]
fn passes_in_bf16_have_the_gradients_of_the_cpu() {
    let (device, _held) = cuda();
    let small = Network::new(&network(), 360, 1).unwrap();
    let [here, there, exact] =
        [(Device::Cpu, true), (device, true), (device, false)].map(|(at, in_bf16)| passes(&small, at, BATCH, in_bf16));
    for (what, i) in [("values", 0), ("gradient", 1)] {
        let [gap, rounding] = [off(&there[i], &here[i]), off(&here[i], &exact[i])];
        eprintln!("{what}: {gap:.1e} from the CPU in bf16, which is {rounding:.1e} from f32");
        assert!(gap < 0.5 * rounding.max(0.01), "{what}: {gap}");
    }
    let resnet = Network::new(&named("resnet18", [3, 32, 32], 10).unwrap(), 3072, 1).unwrap();
    let [rounded, exact] = [true, false].map(|in_bf16| passes(&resnet, device, 96, in_bf16));
    eprintln!(
        "resnet18: values off by {:.1e}, gradient by {:.1e}",
        off(&rounded[0], &exact[0]),
        off(&rounded[1], &exact[1])
    );
    for (name, range, _) in resnet.trained_tensors().unwrap() {
        let gap = off(&rounded[1][range.clone()], &exact[1][range]);
        assert!(gap < 0.6, "{name}: {gap}");
    }
    assert!(off(&rounded[0], &exact[0]) < 0.05 && off(&rounded[1], &exact[1]) < 0.4);
}

/// A code of digits that a device trains in bf16 is as good as that of the CPU.
#[test]
#[ignore = "needs a GPU"]
fn an_eigenmap_of_digits_in_bf16() {
    let (device, _held) = cuda();
    let digits = open("digits", &ReadOptions::default()).unwrap();
    let Some(Target::Classes { labels, .. }) = &digits.y else { panic!("digits have classes") };
    let mut rows = ViewRows::new(digits.x.to_f64().into_owned());
    (rows.image, rows.labels) = (digits.shape, Some(labels.clone()));
    let code = |device, math| {
        let net = "conv(16, 3) bn relu res(conv(16, 3) bn relu conv(16, 3) bn) relu gap";
        let settings = Settings { math, ..Settings::default() };
        let eigenmap = ViewEigenmap { epochs: 10, settings, ..ViewEigenmap::new(net, 8) };
        eigenmap.fit(&rows, None, &FitContext { device, ..FitContext::default() }).unwrap()
    };
    let last = |code: &FittedCode| code.training.as_ref().unwrap().accuracy.last().unwrap()[1];
    let (here, there) = (code(Device::Cpu, Math::F32), code(device, Math::Bf16));
    eprintln!("neighbours: {:.3} on the CPU, {:.3} in bf16", last(&here), last(&there));
    eprintln!("eigenvalues: {:.3?} on the CPU, {:.3?} in bf16", here.eigenvalues, there.eigenvalues);
    assert!(last(&there) > last(&here) - 0.06);
    assert!((here.eigenvalues[0] - there.eigenvalues[0]).abs() < 0.1);
}
