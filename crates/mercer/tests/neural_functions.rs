//! Batches, the operator's action on them, and networks as functions.

use mercer::FitContext;
use mercer::compute::{Control, Device, Math, Rule, Small, Tensor, small};
use mercer::kernel::Kernel;
use mercer::linalg::eigh;
use mercer::operator::{DenseOperator, OnPoints, gram};
use mercer::rng::Rng;
use mercer::spectrum::neural::{FunctionOperator, Functions, OnData, Points, Standardizer, rayleigh_ritz, sample_rows};
use ndarray::{Array2, ArrayView2};
use std::sync::Arc;

fn normal(n: usize, d: usize, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    Array2::from_shape_simple_fn((n, d), || rng.normal())
}

fn empty() -> Tensor {
    Tensor::zeros(Device::Cpu, &[0]).unwrap()
}

fn tensor(x: ArrayView2<f64>) -> Tensor {
    let data: Vec<f32> = x.iter().map(|v| *v as f32).collect();
    Tensor::from_host(Device::Cpu, &[x.nrows(), x.ncols()], &data).unwrap()
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

/// What batches that `operator` draws with `rng` give: Kψ, R, and R without its bias.
fn on_batch(
    operator: &dyn FunctionOperator,
    functions: &mut Functions,
    rng: &mut Rng,
    batch: usize,
) -> (Vec<f32>, Array2<f64>, Array2<f64>) {
    let k = functions.count();
    let mut batches = operator.batches(functions, batch, Math::F32).unwrap();
    let mut control = Control::new(Device::Cpu, 1, k).unwrap();
    control.start(Rule::ADAM, 0, std::iter::repeat(0.0));
    batches.draw(rng);
    batches.bring().unwrap();
    let (mut points, mut psi, mut kpsi) = (Points::empty(functions).unwrap(), empty(), empty());
    batches.begin(&control, &mut points).unwrap();
    functions.forward(&points.x, &mut psi).unwrap();
    batches.apply(&control, &points, functions, &psi, &mut kpsi).unwrap();
    let form = |a: &Tensor, b: &Tensor| {
        let mut form = Small::zeros(Device::Cpu, [k, k]).unwrap();
        small::form(a, b, 0..psi.len() / k, &mut form).unwrap();
        form
    };
    let (c, r, mut room) = (form(&psi, &psi), form(&psi, &kpsi), Small::zeros(Device::Cpu, [k, k]).unwrap());
    let unbiased = batches.unbiased(&psi, &c, &r, &mut room).unwrap().to_host().unwrap();
    (kpsi.to_host().unwrap(), r.to_host().unwrap(), unbiased)
}

#[test]
fn the_mean_of_the_unbiased_form_over_batches_is_the_form_over_all_points() {
    // A kernel whose diagonal varies, functions that are no eigenfunctions, and many batches of 3 out of 6.
    let x = normal(6, 2, 2);
    let kernel = Kernel::parse("poly(degree=2, offset=1) + rbf(1)").unwrap();
    let kernel = FitContext::default().kernel_operator(&kernel, x.view()).unwrap();
    let operator = OnData::new(&kernel).unwrap();
    let mut functions = Functions::networks("dense(4) tanh dense(1)", 2, 2, false, Device::Cpu, &Rng::new(1)).unwrap();
    let mut rng = Rng::new(1);
    let (_, biased, whole) = on_batch(&operator, &mut functions, &mut rng, 6);
    assert!((&whole - &biased).iter().all(|d| d.abs() < 1e-6), "all points have no bias");
    // Each of the 20 sets of three points once, whichever order they are drawn in.
    let mut means: std::collections::HashMap<Vec<usize>, Array2<f64>> = Default::default();
    while means.len() < 20 {
        let mut rows = sample_rows(&mut rng.clone(), 6, 3);
        rows.sort_unstable();
        let (_, _, unbiased) = on_batch(&operator, &mut functions, &mut rng, 3);
        means.insert(rows, unbiased);
    }
    let mean = means.values().fold(Array2::<f64>::zeros((2, 2)), |sum, one| sum + one) / 20.0;
    assert!((mean - whole).iter().all(|d| d.abs() < 1e-5));
}

#[test]
fn a_kernel_and_its_stored_matrix_act_alike() {
    let x = normal(40, 3, 5);
    let kernel = Kernel::parse("2*rbf(1.5) + linear").unwrap();
    let stored = DenseOperator::new(gram::<f64>(&kernel, x.view(), Device::Cpu).unwrap());
    let mut functions = Functions::networks("dense(5) sincos dense(1)", 3, 2, true, Device::Cpu, &Rng::new(3)).unwrap();
    let (mut results, mut images) = (vec![], vec![]);
    let kernel = FitContext::default().kernel_operator(&kernel, x.view()).unwrap();
    let stored = OnPoints::new(&stored, x.view()).unwrap();
    let (direct, through_blocks) = (OnData::new(&kernel).unwrap(), OnData::new(&stored).unwrap());
    for operator in [&direct, &through_blocks] {
        results.push(on_batch(operator, &mut functions, &mut Rng::new(8), 16).0);
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
    let kernel = Kernel::parse("rbf(1)").unwrap();
    let exact = eigh(Device::Cpu, (gram::<f64>(&kernel, x.view(), Device::Cpu).unwrap() / 12.0).view()).unwrap().0;
    let kernel = FitContext::default().kernel_operator(&kernel, x.view()).unwrap();
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
    let gram = pairs.values.t().dot(&pairs.values) / 12.0 - Array2::<f64>::eye(12);
    assert!(gram.iter().all(|d| d.abs() < 1e-12));
    // Pairs that were asked for and are not there count as wrong.
    assert!(pairs.mean_residual(12, 1e-15) < 1e-6 && (pairs.mean_residual(24, 1e-15) - 0.5).abs() < 1e-6);
}

/// Two functions of two outputs, with an envelope that vanishes on the unit circle.
fn enveloped(normalise: bool) -> Functions {
    let functions = Functions::networks("dense(6) tanh dense(2)", 2, 2, normalise, Device::Cpu, &Rng::new(4)).unwrap();
    functions.with_envelope(Arc::new(|x: &[f32]| 1.0 - x[0] * x[0] - x[1] * x[1]))
}

#[test]
fn an_envelope_multiplies_and_the_norm_is_over_points_and_outputs() {
    let x = tensor((normal(30, 2, 9) * 0.3).view());
    let (mut plain, mut psi, mut unit) = (empty(), empty(), empty());
    Functions::networks("dense(6) tanh dense(2)", 2, 2, false, Device::Cpu, &Rng::new(4))
        .unwrap()
        .forward(&x, &mut plain)
        .unwrap();
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
    let mut functions =
        Functions::networks("dense(6) tanh dense(1) l2norm", 2, 3, true, Device::Cpu, &Rng::new(2)).unwrap();
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
        let one = functions.columns(&tensor(x.slice(ndarray::s![i..=i, ..]))).unwrap();
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
