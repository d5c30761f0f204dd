//! Batches, the operator's action on them, and networks as functions.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use mercer::linalg::eigh;
use mercer::operator::{DenseOperator, LowRankOperator, OnPoints};
use mercer::spectrum::neural::{FunctionOperator, Functions, OnData, Standardizer, rayleigh_ritz, sample_rows};
use neural::Batch;
use std::collections::HashMap;
use std::sync::Arc;

/// k networks as functions.
fn networks(architecture: &str, inputs: usize, k: usize, normalise: bool, seed: u64) -> Functions {
    Functions::networks(architecture, inputs, k, normalise, Device::Cpu, &Rng::new(seed)).unwrap()
}

fn empty() -> Tensor {
    Tensor::zeros(Device::Cpu, &[0]).unwrap()
}

#[test]
fn rows_are_different_and_every_row_is_as_likely_as_another() {
    let (n, batch, draws) = (20, 6, 20_000);
    let mut rng = Rng::new(1);
    let (mut drawn, mut first) = (vec![0usize; n], vec![0usize; n]);
    for _ in 0..draws {
        let rows = sample_rows(&mut rng, n, batch);
        let mut unique = rows.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), batch);
        rows.iter().for_each(|r| drawn[*r] += 1);
        first[rows[0]] += 1;
    }
    let within = |counts: &[usize], p: f64| {
        let sd = (draws as f64 * p * (1.0 - p)).sqrt();
        counts.iter().all(|c| (*c as f64 - draws as f64 * p).abs() < 5.0 * sd)
    };
    assert!(within(&drawn, batch as f64 / n as f64) && within(&first, 1.0 / n as f64));
    let mut all = sample_rows(&mut rng, 5, 9);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
}

/// The mean of the form without bias over all batches of three is the form over all points: for a kernel whose diagonal
/// varies, and for samples of two outputs, whose form is matrix-valued. The functions are no eigenfunctions.
#[test]
fn the_mean_of_the_unbiased_form_over_batches_is_the_form_over_all_points() {
    let (x, z) = (normal(6, 2, 2), uniform(12, 1, 2.0, 2));
    let kernel = on(&kernel("poly(degree=2, offset=1) + rbf(1)"), x.view());
    let f = Array3::from_shape_fn((30, 12, 2), |(s, i, c)| (0.2 * s as f64 * z[[i, 0]] + (s + c) as f64).cos());
    let samples = LowRankOperator::of_samples(&f.view().into(), false).unwrap();
    let samples = OnPoints::new(&samples, z.view()).unwrap();
    for (operator, n, architecture) in [
        (OnData::new(&kernel).unwrap(), 6, "dense(4) tanh dense(1)"),
        (OnData::new(&samples).unwrap(), 12, "dense(8) tanh dense(2)"),
    ] {
        let mut functions = networks(architecture, operator.inputs(), 2, false, 1);
        let mut rng = Rng::new(1);
        let all = Batch::draw(&operator, &mut functions, &mut rng, n);
        let whole = all.unbiased;
        assert!(worst(&whole, &all.r) < 1e-6, "all points have no bias");
        // Each set of three points once, whichever order they are drawn in.
        let mut forms: HashMap<Vec<usize>, Array2<f64>> = HashMap::new();
        while forms.len() < n * (n - 1) * (n - 2) / 6 {
            let mut rows = sample_rows(&mut rng.clone(), n, 3);
            rows.sort_unstable();
            forms.insert(rows, Batch::draw(&operator, &mut functions, &mut rng, 3).unbiased);
        }
        let mean = forms.values().fold(Array2::<f64>::zeros((2, 2)), |sum, one| sum + one) / forms.len() as f64;
        assert!(worst(&mean, &whole) < 1e-5 * largest(&whole), "{architecture}: {mean:.5} for {whole:.5}");
    }
}

#[test]
fn a_kernel_and_its_stored_matrix_act_alike() {
    let x = normal(40, 3, 5);
    let kernel = kernel("2*rbf(1.5) + linear");
    let stored = DenseOperator::new(matrix(&kernel, x.view()));
    let mut functions = networks("dense(5) sincos dense(1)", 3, 2, true, 3);
    let (mut results, mut images) = (vec![], vec![]);
    let kernel = on(&kernel, x.view());
    let stored = OnPoints::new(&stored, x.view()).unwrap();
    let (direct, through_blocks) = (OnData::new(&kernel).unwrap(), OnData::new(&stored).unwrap());
    for operator in [&direct, &through_blocks] {
        let batch = Batch::draw(operator, &mut functions, &mut Rng::new(8), 16);
        results.push(batch.image.to_host().unwrap());
        let sample = operator.sample(Device::Cpu, &mut Rng::new(8), 16).unwrap();
        let pairs = rayleigh_ritz(operator, &mut functions, &sample, 2).unwrap();
        images.push(pairs.eigenvalues.iter().map(|μ| operator.eigenvalue(*μ)).collect::<Vec<_>>());
    }
    assert!(results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() < 1e-5));
    assert!(images[0].iter().zip(&images[1]).all(|(a, b)| (a / b - 1.0).abs() < 1e-9));
}

#[test]
fn rayleigh_ritz_over_enough_functions_is_the_eigendecomposition() {
    let x = normal(12, 2, 6);
    let kernel = kernel("rbf(1)");
    let exact = eigh(Device::Cpu, (matrix(&kernel, x.view()) / 12.0).view()).unwrap().0;
    let kernel = on(&kernel, x.view());
    let operator = OnData::new(&kernel).unwrap();
    let mut functions =
        Functions::hidden_units("dense(60, w=2) sincos dense(1)", 2, Device::Cpu, &Rng::new(3)).unwrap();
    let sample = operator.sample(Device::Cpu, &mut Rng::new(0), 12).unwrap();
    let pairs = rayleigh_ritz(&operator, &mut functions, &sample, 12).unwrap();
    assert_eq!(pairs.eigenvalues.len(), 12);
    for (got, want) in pairs.eigenvalues.iter().zip(&exact) {
        assert!((operator.eigenvalue(*got) - want).abs() < 1e-12, "{got} {want}");
    }
    assert!(pairs.residuals.iter().all(|r| *r < 1e-12));
    assert!(worst(&(pairs.values.t().dot(&pairs.values) / 12.0), &Array2::eye(12)) < 1e-12);
    // Pairs that were asked for and are not there count as wrong.
    assert!(pairs.mean_residual(12, 1e-15) < 1e-6 && (pairs.mean_residual(24, 1e-15) - 0.5).abs() < 1e-6);
}

/// Two functions of two outputs, with an envelope that vanishes on the unit circle.
fn enveloped(normalise: bool) -> Functions {
    let functions = networks("dense(6) tanh dense(2)", 2, 2, normalise, 4);
    functions.with_envelope(Arc::new(|x: &[f32]| 1.0 - x[0] * x[0] - x[1] * x[1]))
}

#[test]
fn an_envelope_multiplies_and_the_norm_is_over_points_and_outputs() {
    let x = tensor((normal(30, 2, 9) * 0.3).view());
    let (mut plain, mut psi, mut unit) = (empty(), empty(), empty());
    networks("dense(6) tanh dense(2)", 2, 2, false, 4).forward(&x, &mut plain).unwrap();
    enveloped(false).forward(&x, &mut psi).unwrap();
    enveloped(true).forward(&x, &mut unit).unwrap();
    assert_eq!(psi.shape(), [2, 30, 2]);
    let [plain, psi, unit] = [plain, psi, unit].map(|t| t.to_host().unwrap());
    let points = x.to_host().unwrap();
    for (i, (plain, psi)) in plain.iter().zip(&psi).enumerate() {
        let b = i / 2 % 30;
        let w = 1.0 - points[2 * b].powi(2) - points[2 * b + 1].powi(2);
        assert!((w * plain - psi).abs() < 1e-6);
    }
    for j in 0..2 {
        let mean = |v: &[f32]| v[60 * j..60 * (j + 1)].iter().map(|v| v * v).sum::<f32>() / 60.0;
        assert!((mean(&unit) - 1.0).abs() < 1e-5);
        let factor = 1.0 / mean(&psi).sqrt();
        assert!((0..60).all(|i| (unit[60 * j + i] - factor * psi[60 * j + i]).abs() < 1e-5));
    }
}

#[test]
fn the_gradient_goes_back_through_norm_and_envelope() {
    let x = tensor((normal(20, 2, 10) * 0.3).view());
    for normalise in [false, true] {
        let mut functions = enveloped(normalise);
        let g = tensor(normal(2, 40, 11).view());
        let (mut psi, mut gradient) = (empty(), empty());
        functions.forward(&x, &mut psi).unwrap();
        // Looking elsewhere in between must not disturb it.
        functions.evaluate(&tensor(normal(7, 2, 12).view())).unwrap();
        functions.vjp(&x, &psi, &g, &mut gradient).unwrap();
        let theta = functions.parameters().trained.to_host().unwrap();
        let g = g.to_host().unwrap();
        let mut rng = Rng::new(13);
        let d: Vec<f32> = theta.iter().map(|_| rng.normal() as f32).collect();
        let mut along = |h: f32| -> f64 {
            let moved: Vec<f32> = theta.iter().zip(&d).map(|(t, d)| t + h * d).collect();
            functions.parameters_mut().trained.copy_from_host(&moved).unwrap();
            functions.forward(&x, &mut psi).unwrap();
            psi.to_host().unwrap().iter().zip(&g).map(|(p, g)| f64::from(p * g)).sum()
        };
        let h = 0.005;
        let difference = (along(h) - along(-h)) / (2.0 * f64::from(h));
        let analytic: f64 = gradient.to_host().unwrap().iter().zip(&d).map(|(g, d)| f64::from(g * d)).sum();
        assert!((analytic - difference).abs() < 2e-3 * (1.0 + difference.abs()), "{analytic} {difference}");
    }
}

#[test]
fn evaluation_keeps_the_factors_of_the_last_pass() {
    let (x, elsewhere) = (tensor(normal(25, 2, 14).view()), tensor(normal(9, 2, 15).view()));
    let mut functions = networks("dense(6) tanh dense(1) l2norm", 2, 3, true, 2);
    let mut psi = empty();
    functions.forward(&x, &mut psi).unwrap();
    let again = functions.evaluate(&x).unwrap();
    assert!(psi.to_host().unwrap().iter().zip(again.to_host().unwrap()).all(|(a, b)| (a - b).abs() < 1e-6));
    // ψ = s f with one s for all points.
    let with = functions.evaluate(&elsewhere).unwrap().to_host().unwrap();
    functions.forget_norm().unwrap();
    let (bare, bare_x) = (functions.evaluate(&elsewhere).unwrap().to_host().unwrap(), functions.evaluate(&x).unwrap());
    for j in 0..3 {
        let f = &bare_x.to_host().unwrap()[25 * j..25 * (j + 1)];
        let s = 1.0 / (f.iter().map(|v| v * v).sum::<f32>() / 25.0).sqrt();
        assert!((0..9).all(|b| (with[9 * j + b] - s * bare[9 * j + b]).abs() < 1e-5));
    }
}

#[test]
fn many_points_are_evaluated_in_strips_as_in_one_piece() {
    let x = normal(9000, 1, 16);
    let mut functions = Functions::hidden_units("dense(6) sincos dense(1)", 1, Device::Cpu, &Rng::new(2)).unwrap();
    let columns = functions.columns(&tensor(x.view())).unwrap();
    assert_eq!(columns.dim(), (9000, 6));
    for i in [0, 4095, 4096, 8999] {
        let one = functions.columns(&tensor(x.slice(s![i..=i, ..]))).unwrap();
        assert!((&one.row(0) - &columns.row(i)).iter().all(|d| d.abs() < 1e-6));
    }
}

#[test]
fn standardised_points_have_mean_zero_and_mean_variance_one() {
    let x = normal(200, 3, 17) * 7.0 + 1e6;
    let standardizer = Standardizer::of(x.view());
    let seen = standardizer.gather(Device::Cpu, x.view(), 0..200).unwrap().to_host().unwrap();
    let mean = seen.iter().sum::<f32>() / 600.0;
    let variance = seen.iter().map(|v| v * v).sum::<f32>() / 600.0;
    assert!(mean.abs() < 1e-3 && (variance - 1.0).abs() < 1e-3, "{mean} {variance}");
    let constant = Array2::from_elem((4, 2), 3.0);
    let seen = Standardizer::of(constant.view()).gather(Device::Cpu, constant.view(), 0..4).unwrap().to_host().unwrap();
    assert_eq!(seen, [0.0; 8]);
}
