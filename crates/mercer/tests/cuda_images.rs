//! Kernels of images on a GPU against f64 on the CPU.

mod common;
#[path = "common/cuda.rs"]
mod cuda;

use common::*;
use cuda::{cuda, double_bound, with_memory};
use mercer::operator::cross_apply;
use std::time::Instant;

/// Networks of every kind that a GPU runs.
const NETWORKS: [&str; 15] = [
    "ntk('conv(3) relu conv(3) relu conv(3) relu gap dense', shape=10x32x3)",
    "nngp('conv(3) relu conv(3) relu gap dense', shape=9x14x1)",
    "ntk('conv(3) relu conv(3) relu flatten dense', shape=12x28x1)",
    "ntk('conv(3) erf gap dense', shape=6x5x2)",
    "ntk('conv(3, stride=2, pad=1) relu conv(3, stride=2, pad=same) relu gap dense', shape=16x16x1)",
    "nngp('conv(3, stride=2) erf flatten dense relu dense', shape=7x6x1)",
    "ntk('conv(3) res(relu conv(3, stride=2); conv(1, stride=2)) gelu gap res(dense) dense', shape=12x12x2)",
    "nngp('conv(3, pad=valid, stride=2) res(leaky_relu conv(3)) sin gap dense', shape=11x12x1)",
    "ntk('conv(3, pad=2) leaky_relu(0.2) conv(4, stride=2, pad=3) abs conv(3, stride=3, pad=1) relu gap dense', shape=8x9x1)",
    "ntk('conv(2, pad=1) relu conv(3, stride=2, pad=2) polynomial(0, 1, 0.3) flatten dense relu dense', shape=10x10x1)",
    "ntk('conv(3) relu avgpool(2) conv(3) relu gap dense', b_var=0.1, shape=12x10x2)",
    "nngp('conv(3) erf avgpool(2) conv(3, stride=2) relu avgpool(2, stride=1) flatten dense relu dense', shape=16x15x1)",
    "ntk('avgpool(2) conv(3) res(relu conv(3)) gap dense', shape=32x32x3)",
    "ntk('conv(3) tanh conv(3) softplus gap dense', b_var=0.1, shape=6x7x1)",
    "0.5*ntk('conv(3) relu gap dense', shape=8x8x1) + 2*nngp('conv(3) erf gap dense', shape=8x8x1)",
];

/// The images of a network's shape, the last equal to the first.
fn images(expression: &str, n: usize, seed: u64) -> Array2<f64> {
    let shape = expression.split("shape=").nth(1).unwrap().split(')').next().unwrap();
    let d = shape.split('x').map(|side| side.parse::<usize>().unwrap()).product();
    let mut x = normal(n, d, seed) + 0.3;
    let first = x.row(0).to_owned();
    x.row_mut(n - 1).assign(&first);
    x
}

fn off(got: &Array2<f64>, want: &Array2<f64>) -> f64 {
    worst(got, want) / want.iter().fold(0.0f64, |m, v| m.max(v.abs()))
}

#[test]
#[ignore = "needs a GPU"]
fn every_network_has_the_values_of_the_cpu() {
    let (device, _held) = cuda();
    for expression in NETWORKS {
        let kernel = kernel(expression);
        // Neither a whole number of blocks nor few.
        let (x, z) = (images(expression, 19, 1), images(expression, 11, 2));
        let (want, cross) =
            (matrix(&kernel, x.view()), gram_cross::<f64>(&kernel, x.view(), z.view(), Device::Cpu).unwrap());
        let (v, a) = (normal(19, 9, 3), normal(11, 3, 4));
        let double = double_bound(expression);
        for (precision, bound) in [(Precision::F64, double), (Precision::F32, 2e-5), (Precision::Tf32, 2e-4)] {
            let what = format!("{expression}, {precision:?}");
            let operator = KernelOperator::new(&kernel, x.view(), precision, device).unwrap();
            let y = operator.apply(v.view()).unwrap();
            let error = off(&y, &want.dot(&v));
            assert!(error < bound, "{what}: products are off by {error:e}");
            assert_eq!(operator.apply(v.view()).unwrap(), y, "{what}: the same bits again");
            let again = KernelOperator::new(&kernel, x.view(), precision, device).unwrap();
            assert_eq!(again.apply(v.view()).unwrap(), y, "{what}: the same bits of another operator");
            let block = operator.block(&[3, 5, 18, 7, 1, 0, 2, 8], &(0..19).collect::<Vec<_>>()).unwrap();
            let error = off(&block, &want.select(Axis(0), &[3, 5, 18, 7, 1, 0, 2, 8]));
            assert!(error < bound, "{what}: a block is off by {error:e}");
            assert_eq!(block[[2, 0]], block[[2, 18]], "{what}: equal images");
            let got = cross_apply(&kernel, x.view(), z.view(), a.view(), precision, device).unwrap();
            let error = off(&got, &cross.dot(&a));
            assert!(error < 4.0 * bound, "{what}: products with new images are off by {error:e}");
        }
        let bound = double;
        let double = gram::<f64>(&kernel, x.view(), device).unwrap();
        let single = gram::<f32>(&kernel, x.view(), device).unwrap().mapv(f64::from);
        eprintln!("{:.1e} {:.1e} {expression}", off(&double, &want), off(&single, &want));
        assert!(off(&double, &want) < bound && off(&single, &want) < 2e-5, "{expression}");
        assert!(double == double.t() && single == single.t(), "{expression} is symmetric");
        for i in 0..19 {
            assert!((single[[i, i]] / want[[i, i]] - 1.0).abs() < 1e-6, "{expression}: the diagonal is exact");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_matrix_that_does_not_fit_has_the_same_bits() {
    let (device, _held) = cuda();
    let expression = "ntk('conv(3) relu conv(3) relu gap dense', shape=8x8x1)";
    let (kernel, x, v) = (kernel(expression), images(expression, 3000, 5), normal(3000, 2, 6));
    let apply = || KernelOperator::new(&kernel, x.view(), Precision::F32, device).unwrap().apply(v.view()).unwrap();
    assert_eq!(with_memory(60 << 20, apply), apply());
    let whole = || gram::<f32>(&kernel, x.view(), device).unwrap();
    assert_eq!(with_memory(60 << 20, whole), whole());
}

/// Says how many pairs of images a second the GPU computes.
#[test]
#[ignore = "needs a GPU"]
fn the_rate_is_shown() {
    let (device, _held) = cuda();
    for layers in ["conv(3) relu gap", "conv(3) relu flatten", "avgpool(2) conv(3) relu gap"] {
        let expression = &format!("ntk('conv(3) relu conv(3) relu {layers} dense', shape=32x32x3)");
        let kernel = kernel(expression);
        let x = images(expression, 1000, 7);
        for precision in [Precision::F32, Precision::Tf32, Precision::F64] {
            let v = normal(1000, 1, 8);
            let time = || {
                let operator = KernelOperator::new(&kernel, x.view(), precision, device).unwrap();
                let start = Instant::now();
                operator.apply(v.view()).unwrap();
                start.elapsed().as_secs_f64()
            };
            let all = [time(), time(), time()];
            let rates = all.map(|seconds| 500_500.0 / seconds);
            eprintln!("{precision:?}: {rates:.0?} pairs/s by products, all included, {expression}");
        }
    }
}
