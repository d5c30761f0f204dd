//! A training step on pairs of views by ResNet-18 on the first GPU: the whole step, its network alone, and the views alone.

use crate::Failure;
use mercer::compute::halves::{self, HalfNorm, Halves};
use mercer::compute::{self, Convolution, Device, Math, Replay, Rule, Tensor, View, ViewLayout};
use mercer::net::{Description, Mode, Network, Optimizer, Schedule, named};
use mercer::rng::Rng;
use mercer::spectrum::neural::{FunctionOperator, Functions, PairObjective, Stepper, ViewPairs};
use ndarray::Array2;
use serde_json::{Value, json};
use std::time::Instant;

const IMAGE: [usize; 3] = [3, 32, 32];
const IMAGES: usize = 10_000;
/// Units of the hidden layer of the projector.
const HIDDEN: usize = 2048;

/// ResNet-18 without its classifier, then a projector to k outputs.
fn network(k: usize) -> mercer::Result<Description> {
    let mut description = named("resnet18", IMAGE, k)?.hidden_units();
    description.layers.extend(Description::parse(&format!("dense({HIDDEN}) bn relu dense({k})"))?.layers);
    Ok(description)
}

/// `objective-k-B`: one training step on B pairs, whose views are made in it.
pub fn step(size: &str, math: Math, device: Device, repeats: usize) -> Result<Value, Failure> {
    let (name, size) = size.split_once('-').ok_or("a size is OBJECTIVE-k-B")?;
    let [k, batch] = numbers(size)?;
    let known = |(known, _): &(&str, PairObjective)| known.replace('-', "") == name;
    let (_, objective) = PairObjective::named().into_iter().find(known).ok_or("unknown objective")?;
    let mut rng = Rng::new(0);
    let x = Array2::from_shape_simple_fn((IMAGES, 3072), || rng.below(256) as f64);
    let pairs = ViewPairs::augmented(x.view(), Some(IMAGE), "crops+flip+colour+grey".parse()?)?;
    let norms = [objective.normalises(), objective.centres()];
    let functions = Functions::units(&network(k)?, pairs.inputs(), norms, device, &rng)?;
    let run = objective.objective(&functions, k)?;
    let rule = Rule::Sgd { momentum: 0.9, weight_decay: 1e-4 };
    let optimizer = Optimizer::new(device, rule, Schedule::constant(1e-3), None, functions.network().parameters())?;
    let mut stepper = Stepper::new(&pairs, functions, run, optimizer, rng, batch, math)?;
    // The first chunks warm up: kernels are compiled, the step is recorded, and the length of a chunk is found.
    let mut made = 0;
    while made < 12 {
        made += stepper.steps(8)?.outcomes.len();
    }
    let (start, mut made) = (Instant::now(), 0);
    while made < repeats {
        let steps = stepper.steps(repeats - made)?;
        if let Some(failure) = steps.failure {
            return Err(failure.into());
        }
        made += steps.outcomes.len();
    }
    Ok(rate(start.elapsed().as_secs_f64() / made as f64, batch))
}

/// `k-B`: forward and backward of the network alone, on 2B views.
pub fn pass(size: &str, math: Math, device: Device, repeats: usize) -> Result<Value, Failure> {
    let [k, batch] = numbers(size)?;
    let net = Network::new(&network(k)?, 3072, 1)?;
    let theta = net.init(device, &Rng::new(1))?;
    let mut rng = Rng::new(2);
    let mut random = |shape: &[usize]| {
        let x: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
        Tensor::from_host(device, shape, &x)
    };
    let (x, g) = (random(&[2 * batch, 3072])?, random(&[1, 2 * batch, k])?);
    let mut workspace = if math == Math::Bf16 { net.workspace_in_bf16(device)? } else { net.workspace(device)? };
    let (mut grad, mut flow) = (Tensor::zeros(device, &[0])?, g.clone());
    let mut replay = Replay::new(device, true)?;
    let mut run = || {
        replay.run(|| {
            device.with_math(math, || {
                net.forward(&theta, &x, Mode::Train, &mut workspace)?;
                flow.reshape(g.shape())?;
                compute::copy(&g, &mut flow);
                net.vjp(&theta, &x, &mut workspace, &mut flow, &mut grad, None)
            })
        })
    };
    Ok(rate(timed(device, repeats, &mut run)?, batch))
}

/// `B`: the views of B pairs alone.
pub fn views(size: &str, device: Device, repeats: usize) -> Result<Value, Failure> {
    let batch: usize = size.parse()?;
    let mut rng = Rng::new(0);
    let x: Vec<f32> = (0..batch * 3072).map(|_| rng.below(256) as f32).collect();
    let x = Tensor::from_host(device, &[batch, 3072], &x)?;
    let one = View {
        part: [3.0, 5.0, 20.0, 24.0],
        mirror: true,
        colour: [1.1, 0.8, 1.2],
        hue: 0.3,
        ..View::plain(Some(IMAGE))
    };
    let numbers: Vec<f32> = (0..2 * batch).flat_map(|_| one.numbers()).collect();
    let numbers = Tensor::from_host(device, &[2 * batch, View::NUMBERS], &numbers)?;
    let centre = Tensor::from_host(device, &[3072], &[120.0; 3072])?;
    let layout = ViewLayout { image: Some(IMAGE), white: 255.0, centre, scale: 64.0 };
    let (mut work, mut out) = (Tensor::zeros(device, &[0])?, Tensor::zeros(device, &[0])?);
    let mut run = || compute::views(&x, &numbers, &layout, &mut work, &mut out);
    Ok(rate(timed(device, repeats, &mut run)?, batch))
}

fn numbers<const N: usize>(size: &str) -> Result<[usize; N], Failure> {
    let size: Vec<usize> = size.split('-').map(str::parse).collect::<Result<_, _>>()?;
    size.try_into().map_err(|_| "a size has other numbers".into())
}

/// Seconds of one run, after a few that warm up.
fn timed(device: Device, repeats: usize, run: &mut dyn FnMut() -> mercer::Result<()>) -> mercer::Result<f64> {
    (0..6).try_for_each(|_| run())?;
    device.synchronize()?;
    let start = Instant::now();
    (0..repeats).try_for_each(|_| run())?;
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() / repeats as f64)
}

fn rate(seconds: f64, batch: usize) -> Value {
    json!({ "ms": 1e3 * seconds, "views_per_second": 2.0 * batch as f64 / seconds })
}

/// `B`: every convolution of ResNet-18 in each direction, and batch norms, on 2B images in bf16: milliseconds, and TFLOP/s or GB/s.
pub fn parts(size: &str, device: Device, repeats: usize) -> Result<Value, Failure> {
    let images = 2 * size.parse::<usize>()?;
    let random = |len: usize| {
        let mut rng = Rng::new(3);
        let few: Vec<u16> = (0..4093).map(|_| halves::narrow(rng.normal() as f32)).collect();
        Halves::from_host(device, &[len], &few.iter().copied().cycle().take(len).collect::<Vec<u16>>())
    };
    let mut found = serde_json::Map::new();
    for (c, o, side, size, stride) in [
        (8, 64, 32, 3, 1),
        (64, 64, 32, 3, 1),
        (64, 128, 32, 3, 2),
        (64, 128, 32, 1, 2),
        (128, 128, 16, 3, 1),
        (128, 256, 16, 3, 2),
        (256, 256, 8, 3, 1),
        (256, 512, 8, 3, 2),
        (512, 512, 4, 3, 1),
    ] {
        let pad = [size / 2; 2];
        let shape = Convolution { image: [c, side, side], channels: o, size, stride, before: pad, after: pad };
        let plane = shape.out().iter().product::<usize>();
        let (mut x, mut w, mut y) =
            (random(images * c * side * side)?, random(o * shape.patch())?, random(images * o * plane)?);
        let tflop = 2e-12 * (images * plane * o * shape.patch()) as f64;
        let mut times = vec![];
        for direction in 0..3 {
            let mut run = || {
                match direction {
                    0 => halves::convolve(&shape, &x, &w, &mut y),
                    1 => halves::convolve_vjp_input(&shape, &y, &w, &mut x),
                    _ => halves::convolve_vjp_weights(&shape, &x, &y, &mut w),
                }
                Ok(())
            };
            let seconds = timed(device, repeats, &mut run)?;
            times.push(json!([1e3 * seconds, tflop / seconds]));
        }
        found.insert(format!("conv {c}-{o} {side} {size}/{stride}"), json!(times));
    }
    for (channels, side) in [(64, 32), (128, 16), (256, 8), (512, 4)] {
        let len = images * side * side * channels;
        let (z, plus, mut y, mut g, mut dz) = (random(len)?, random(len)?, random(len)?, random(len)?, random(len)?);
        let mut statistics = Tensor::zeros(device, &[1, 2, channels])?;
        let affine = Tensor::from_host(device, &[2, channels], &vec![0.5; 2 * channels])?;
        let mut grad = Tensor::zeros(device, &[2, channels])?;
        let gigabytes = 2e-9 * len as f64;
        let seconds = timed(device, repeats, &mut || {
            halves::statistics(&z, &mut statistics);
            Ok(())
        })?;
        let mut times = vec![json!([1e3 * seconds, gigabytes / seconds])];
        let norm = HalfNorm { z: &z, statistics: &statistics, affine: affine.stack(), relu: true };
        let seconds = timed(device, repeats, &mut || {
            halves::batch_norm(norm, Some(&plus), &mut y);
            Ok(())
        })?;
        times.push(json!([1e3 * seconds, 3.0 * gigabytes / seconds]));
        let seconds = timed(device, repeats, &mut || {
            halves::batch_norm_vjp(norm, &mut g, None, grad.stack_mut(), None);
            Ok(())
        })?;
        times.push(json!([1e3 * seconds, 5.0 * gigabytes / seconds]));
        let seconds = timed(device, repeats, &mut || {
            halves::batch_norm_vjp(norm, &mut g, Some(&plus), grad.stack_mut(), Some((&y, &mut dz)));
            Ok(())
        })?;
        times.push(json!([1e3 * seconds, 8.0 * gigabytes / seconds]));
        found.insert(format!("norm {channels} {side}"), json!(times));
    }
    Ok(Value::Object(found))
}
