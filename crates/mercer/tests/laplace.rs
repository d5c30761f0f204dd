//! Linearised Laplace: against laplace-torch, against dense computations with finite differences, and its files.

mod common;

use common::{labels, of_classes, of_numbers, says, scratch, targets};
use mercer::apply::{Fitted, Predict, Saved, interval_factor};
use mercer::classifier::{Classifier, Number, Settings, Standardizer, train};
use mercer::compute::Device;
use mercer::data::Dataset;
use mercer::laplace::{
    Diagonal, Eigenfunctions, Ella, FittedLaplace, FixedMean, GivenFunctions, Kfac, Laplace, LastLayer, LastLayerKfac,
    Map, Method, NetworkFunctions, NetworkKind, Predictive, Prior, Temperature,
};
use mercer::model::{Content, Model};
use mercer::net::Network;
use mercer::operator::Budget;
use mercer::rng::Rng;
use mercer::{FitContext, data};
use ndarray::{Array1, Array2, Array3, ArrayView1, Axis, s};
use serde_json::Value;
use std::sync::Arc;

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        number => vec![number.as_f64().expect("a number")],
    }
}

fn rows(value: &Value) -> Array2<f64> {
    let all = numbers(value);
    let n = value.as_array().expect("a list").len();
    Array2::from_shape_vec((n, all.len() / n), all).expect("rows are alike in length")
}

fn classes(c: usize) -> Vec<String> {
    (0..c).map(|c| c.to_string()).collect()
}

/// The network and the rows of one entry of the golden file.
fn golden(entry: &Value) -> (Arc<Classifier>, Dataset, Array2<f64>) {
    let (x, new, y) = (rows(&entry["x"]), rows(&entry["new"]), numbers(&entry["y"]));
    let network = Network::parse(entry["net"].as_str().unwrap(), x.ncols(), 1).unwrap();
    let start = network.init(Device::Cpu, &Rng::new(0)).unwrap();
    let mut tensors = network.tensors(&start).unwrap();
    for tensor in &mut tensors {
        tensor.data = numbers(&entry["weights"][&tensor.name]).into_iter().map(|v| v as f32).collect();
    }
    let parameters = network.parameters_named(Device::Cpu, &tensors).unwrap();
    let number = (network.outputs() == 1).then_some(Number { mean: 0.0, spread: 1.0 });
    let names = if number.is_some() { vec![] } else { classes(network.outputs()) };
    let labels = || y.iter().map(|y| *y as usize).collect();
    let data = if number.is_some() { of_numbers(x, y) } else { of_classes(x, labels(), names.clone()) };
    let standardizer = Standardizer::identity();
    let classifier = Classifier {
        network,
        parameters,
        standardizer,
        classes: names,
        schema: None,
        number,
        foreign: true,
        displacement: None,
    };
    (Arc::new(classifier), data, new)
}

fn golden_file() -> Value {
    serde_json::from_str(include_str!("golden/laplace_torch.json")).unwrap()
}

fn close(found: impl IntoIterator<Item = f64>, wanted: impl IntoIterator<Item = f64>, tolerance: f64, what: &str) {
    let (found, wanted): (Vec<f64>, Vec<f64>) = (found.into_iter().collect(), wanted.into_iter().collect());
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let error = found.iter().zip(&wanted).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(error < tolerance * scale, "{what}: off by {error:.2e} of {scale:.2e}\n{found:?}\n{wanted:?}");
}

fn given(method: impl Into<Method>, file: &Value) -> Laplace {
    let noise = file["noise"].as_f64().unwrap().powi(2);
    let prior = Prior::Given { precision: file["precision"].as_f64().unwrap(), noise };
    Laplace { prior, ..Laplace::new(method) }
}

fn by_likelihood(method: impl Into<Method>) -> Laplace {
    Laplace { prior: Prior::Likelihood, ..Laplace::new(method) }
}

#[test]
fn every_structure_has_the_covariances_and_the_evidence_of_laplace_torch() {
    let file = golden_file();
    for name in ["dense", "conv", "number"] {
        let (network, data, new) = golden(&file[name]);
        for method in [Method::from(LastLayer), LastLayerKfac.into(), Kfac.into(), Diagonal.into()] {
            let what = format!("{name}, {}", method.name());
            let want = &file[name]["structures"][method.name()];
            let fitted = given(method, &file).fit(&network, &data, None, &FitContext::default()).unwrap();
            let c = network.network.outputs();
            let covariance = Array3::from_shape_vec((new.nrows(), c, c), numbers(&want["covariance"])).unwrap();
            let variances = covariance.axis_iter(Axis(0)).flat_map(|s| s.diag().to_vec()).collect::<Vec<_>>();
            let (_, found) = fitted.outputs(new.view()).unwrap();
            close(found.iter().copied(), variances, 2e-5, &what);
            close([fitted.evidence.unwrap()], [want["evidence"].as_f64().unwrap()], 1e-5, &what);
            if name == "number" {
                let deviations = fitted.deviations(new.view()).unwrap().unwrap();
                let noise = file["noise"].as_f64().unwrap().powi(2);
                close(deviations.to_vec(), covariance.iter().map(|v| (v + noise).sqrt()), 2e-5, &what);
                continue;
            }
            let scores = fitted.scores(new.view()).unwrap();
            let p = fitted.probabilities(scores.view()).unwrap();
            close(p.iter().copied(), numbers(&want["probabilities"]), 2e-5, &what);
            // Draws from the same covariance, with its off-diagonal entries.
            let sampling = Laplace { predictive: Predictive::Sampling { count: 20_000 }, ..given(method, &file) };
            let sampled = sampling.fit(&network, &data, None, &FitContext::default()).unwrap();
            let p = sampled.probabilities(sampled.scores(new.view()).unwrap().view()).unwrap();
            let z = network.logits(new.view()).unwrap().mapv(f64::from);
            let drawn = mean_of_draws(&z, &covariance, 20_000);
            close(p.iter().copied(), drawn.iter().copied(), 0.03, &what);
        }
    }
}

/// The mean of `softmax(z)` over draws, by the Cholesky factor of each covariance.
fn mean_of_draws(z: &Array2<f64>, covariance: &Array3<f64>, count: usize) -> Array2<f64> {
    let (mut rng, c) = (Rng::new(99), z.ncols());
    let mut means = Array2::zeros(z.dim());
    for (i, mut mean) in means.rows_mut().into_iter().enumerate() {
        let mut l = Array2::<f64>::zeros((c, c));
        for (a, b) in (0..c).flat_map(|a| (0..=a).map(move |b| (a, b))) {
            let rest: f64 = (0..b).map(|k| l[[a, k]] * l[[b, k]]).sum();
            let value = covariance[[i, a, b]] - rest;
            l[[a, b]] = if a == b { value.max(0.0).sqrt() } else { value / l[[b, b]].max(1e-12) };
        }
        for _ in 0..count {
            let noise = Array1::from_shape_simple_fn(c, || rng.normal());
            let p = (&z.row(i) + &l.dot(&noise)).mapv(f64::exp);
            mean.scaled_add(1.0 / (count as f64 * p.sum()), &p);
        }
    }
    means
}

/// A network in double precision: parameters and a row to outputs.
type Net = dyn Fn(&[f64], ArrayView1<f64>) -> Vec<f64>;

/// `J` `[n·C, P]` by central differences in double precision of `net(θ, x)`.
fn differences(net: &Net, theta: &[f64], x: &Array2<f64>) -> Array2<f64> {
    let c = net(theta, x.row(0)).len();
    let mut j = Array2::zeros((x.nrows() * c, theta.len()));
    for p in 0..theta.len() {
        let moved = |by: f64| {
            let mut theta = theta.to_vec();
            theta[p] += by;
            theta
        };
        let (up, down) = (moved(1e-5), moved(-1e-5));
        for (n, row) in x.rows().into_iter().enumerate() {
            for (o, (a, b)) in net(&up, row).into_iter().zip(net(&down, row)).enumerate() {
                j[[n * c + o, p]] = (a - b) / 2e-5;
            }
        }
    }
    j
}

/// `J(x)(JᵀJ/σ² + τ)⁻¹J(x)ᵀ`, its diagonal, for one output, and the logarithm of the marginal likelihood.
fn full(j: &Array2<f64>, new: &Array2<f64>, noise: f64, τ: f64) -> Vec<f64> {
    let mut h = j.t().dot(j) / noise;
    h.diag_mut().mapv_inplace(|v| v + τ);
    let solved = mercer::linalg::Cholesky::new(Device::Cpu, h.view()).unwrap().solve(new.t()).unwrap();
    new.rows().into_iter().zip(solved.columns()).map(|(a, b)| a.dot(&b)).collect()
}

/// A network `dense(h) φ dense(1)` in double precision: W1 `[d, h]`, b1, W2 `[h, 1]`, b2.
fn plain(h: usize, φ: fn(f64) -> f64) -> impl Fn(&[f64], ArrayView1<f64>) -> Vec<f64> {
    move |theta, x| {
        let d = x.len();
        let unit = |k: usize| φ((0..d).map(|i| x[i] * theta[i * h + k]).sum::<f64>() + theta[d * h + k]);
        let second = (d + 1) * h;
        vec![(0..h).map(|k| unit(k) * theta[second + k]).sum::<f64>() + theta[second + h]]
    }
}

fn theta(network: &Classifier) -> Vec<f64> {
    network.parameters.trained.to_host().unwrap().into_iter().map(f64::from).collect()
}

#[test]
fn ella_with_all_rows_is_the_full_posterior_there() {
    let file = golden_file();
    let (network, data, new) = golden(&file["number"]);
    let net = plain(5, f64::tanh);
    let j = differences(&net, &theta(&network), &data.x.to_f64().into_owned());
    let noise = file["noise"].as_f64().unwrap().powi(2);
    let want = full(&j, &j, noise, 0.7);
    let method = Ella { samples: 40, rank: 40 };
    let fitted = given(method, &file).fit(&network, &data, None, &FitContext::default()).unwrap();
    let (_, found) = fitted.outputs(data.x.to_f64().view()).unwrap();
    close(found.iter().copied(), want, 1e-3, "ELLA at the rows of the fit");
    // laplace-torch's full posterior is this dense one, and ELLA's variance is no larger elsewhere.
    let at_new = full(&j, &differences(&net, &theta(&network), &new), noise, 0.7);
    let torch = &file["number"]["structures"]["full"];
    close(numbers(&torch["covariance"]), at_new.clone(), 1e-5, "the dense posterior");
    let (_, found) = fitted.outputs(new.view()).unwrap();
    assert!(found.iter().zip(&at_new).all(|(a, b)| *a < b * (1.0 + 1e-3)), "{found:?} {at_new:?}");
    close([fitted.evidence.unwrap()], [torch["evidence"].as_f64().unwrap()], 1e-3, "the evidence");
}

#[test]
fn eigenfunctions_that_span_the_kernel_are_the_full_posterior() {
    // g = W2ᵀ(W1 x + b1) + b2 has the NTK h·h' + 1 + |W2|²(x·x' + 1), which its hidden units and a one span.
    let mut rng = Rng::new(3);
    let x = Array2::from_shape_simple_fn((30, 3), || f64::from(rng.normal() as f32));
    let y = x.rows().into_iter().map(|x| x.sum() + 0.1 * rng.normal()).collect();
    let data = of_numbers(x, y);
    let mut network = Classifier::new("dense(3) dense(1)", &data, Device::Cpu, 1).unwrap();
    network.standardizer = Standardizer::identity();
    let network = Arc::new(network);
    let net = plain(3, |z| z);
    let new = Array2::from_shape_simple_fn((6, 3), || f64::from(rng.normal() as f32));
    let [j, at_new] = [&data.x.to_f64().into_owned(), &new].map(|x| differences(&net, &theta(&network), x));
    let prior = Prior::Given { precision: 0.4, noise: 0.05 };
    let laplace = Laplace { prior, ..Laplace::new(Eigenfunctions { functions: 10, rows: 30 }) };
    let fitted = laplace.fit(&network, &data, None, &FitContext::default()).unwrap();
    let (_, found) = fitted.outputs(new.view()).unwrap();
    close(found.iter().copied(), full(&j, &at_new, 0.05, 0.4), 1e-4, "eigenfunctions");
}

/// With orthogonal weights in its last layer, `dense(3) dense(3)` has an NTK that is the same for every output and zero between them.
#[test]
fn eigenfunctions_of_classes_are_the_full_posterior_of_differences_of_logits() {
    let mut rng = Rng::new(8);
    let x = Array2::from_shape_simple_fn((30, 3), || f64::from(rng.normal() as f32));
    let labels = (0..30).map(|i| i % 3).collect();
    let data = of_classes(x, labels, classes(3));
    let mut network = Classifier::new("dense(3) dense(3)", &data, Device::Cpu, 1).unwrap();
    network.standardizer = Standardizer::identity();
    let mut numbers = network.parameters.trained.to_host().unwrap();
    (0..9).for_each(|i| numbers[12 + i] = if i % 4 == 0 { 1.5 } else { 0.0 });
    network.parameters = network.network.parameters_from(Device::Cpu, &numbers, &[]).unwrap();
    let network = Arc::new(network);
    let net = |theta: &[f64], x: ArrayView1<f64>| {
        let layer = |x: &[f64], theta: &[f64]| {
            (0..3).map(|k| (0..3).map(|i| x[i] * theta[3 * i + k]).sum::<f64>() + theta[9 + k]).collect::<Vec<f64>>()
        };
        layer(&layer(&x.to_vec(), &theta[..12]), &theta[12..])
    };
    let new = Array2::from_shape_simple_fn((5, 3), || f64::from(rng.normal() as f32));
    let [j, at_new] = [&data.x.to_f64().into_owned(), &new].map(|x| differences(&net, &theta(&network), x));
    let mut h = Array2::eye(24) * 0.4;
    for (i, row) in data.x.to_f64().rows().into_iter().enumerate() {
        let p = Array1::from(net(&theta(&network), row)).mapv(f64::exp);
        let p = &p / p.sum();
        let λ = Array2::from_shape_fn((3, 3), |(a, b)| p[a] * (f64::from(u8::from(a == b)) - p[b]));
        let j = j.slice(s![3 * i..3 * i + 3, ..]);
        h += &j.t().dot(&λ.dot(&j));
    }
    let centring = Array2::from_shape_fn((3, 3), |(a, b)| f64::from(u8::from(a == b)) - 1.0 / 3.0);
    let solved = mercer::linalg::Cholesky::new(Device::Cpu, h.view()).unwrap().solve(at_new.t()).unwrap();
    let covariance = at_new.dot(&solved);
    let of_row = |i: usize| {
        let rows = s![3 * i..3 * i + 3, 3 * i..3 * i + 3];
        centring.dot(&covariance.slice(rows)).dot(&centring).diag().to_vec()
    };
    let prior = Prior::Given { precision: 0.4, noise: 1.0 };
    let laplace = Laplace { prior, ..Laplace::new(Eigenfunctions { functions: 10, rows: 30 }) };
    let fitted = laplace.fit(&network, &data, None, &FitContext::default()).unwrap();
    let (_, found) = fitted.outputs(new.view()).unwrap();
    close(found.iter().copied(), (0..5).flat_map(of_row), 1e-4, "eigenfunctions of classes");
}

#[test]
fn the_precision_and_the_noise_have_the_largest_marginal_likelihood() {
    let file = golden_file();
    let (network, data, _) = golden(&file["number"]);
    for method in [Method::from(LastLayer), Diagonal.into()] {
        let at = |precision: f64, noise: f64| {
            let laplace = Laplace { prior: Prior::Given { precision, noise }, ..Laplace::new(method) };
            laplace.fit(&network, &data, None, &FitContext::default()).unwrap().evidence.unwrap()
        };
        let fitted = by_likelihood(method).fit(&network, &data, None, &FitContext::default()).unwrap();
        let (τ, noise, best) = (fitted.found.value, fitted.noise, fitted.evidence.unwrap());
        assert!((fitted.found.loss + best).abs() < 1e-9);
        for (a, b) in [(1.05, 1.0), (0.95, 1.0), (1.0, 1.05), (1.0, 0.95)] {
            assert!(at(a * τ, b * noise) < best, "{} at {τ} {noise}", method.name());
        }
    }
}

#[test]
fn the_temperature_and_the_validated_precision_have_the_least_loss() {
    let file = golden_file();
    let (network, data, _) = golden(&file["dense"]);
    let part = |rows: std::ops::Range<usize>| data.select(&rows.collect::<Vec<_>>());
    let (fit, mut validation) = (part(0..20), part(20..40));
    // The network was trained on all rows: some wrong classes, as new rows would have, so that doubt pays.
    labels(&mut validation).iter_mut().step_by(3).for_each(|label| *label = (*label + 1) % 3);
    let truth = labels(&mut validation).clone();
    let loss = |scores: &Array2<f64>| {
        let p = |(row, &y): (ArrayView1<f64>, &usize)| row[y] - row.mapv(f64::exp).sum().ln();
        -scores.rows().into_iter().zip(&truth).map(p).sum::<f64>() / 20.0
    };
    let temperature = Laplace::new(Temperature);
    let fitted = temperature.fit(&network, &fit, Some(&validation), &FitContext::default()).unwrap();
    let z = network.logits(validation.x.to_f64().view()).unwrap().mapv(f64::from);
    let best = loss(&fitted.scores(validation.x.to_f64().view()).unwrap());
    assert!((best - fitted.found.loss).abs() < 1e-6);
    let (t, best_temperature) = (fitted.found.value, best);
    assert!(best <= loss(&(&z / (1.02 * t))) && best <= loss(&(&z / (0.98 * t))) && best <= loss(&z), "T = {t}");
    let by_validation = Laplace { prior: Prior::Validation, ..Laplace::new(LastLayer) };
    let fitted = by_validation.fit(&network, &fit, Some(&validation), &FitContext::default()).unwrap();
    let best = loss(&fitted.scores(validation.x.to_f64().view()).unwrap());
    assert!((best - fitted.found.loss).abs() < 1e-6 && !fitted.found.at_end, "{:?}", fitted.found);
    for factor in [0.9, 1.1] {
        let prior = Prior::Given { precision: factor * fitted.found.value, noise: 1.0 };
        let other = Laplace { prior, ..Laplace::new(LastLayer) };
        let other = other.fit(&network, &fit, None, &FitContext::default()).unwrap();
        assert!(loss(&other.scores(validation.x.to_f64().view()).unwrap()) >= best);
    }
    // A temperature beside the posterior can only lower the loss, of either alone.
    let both = Laplace { tempered: true, ..by_validation };
    let tempered = both.fit(&network, &fit, Some(&validation), &FitContext::default()).unwrap();
    let lowest = loss(&tempered.scores(validation.x.to_f64().view()).unwrap());
    assert!(lowest < fitted.found.loss.min(best_temperature) + 1e-5, "{lowest}");
    assert!((lowest - tempered.found.loss).abs() < 1e-6 && tempered.temperature != 1.0);
    for laplace in [temperature, by_validation] {
        says(laplace.fit(&network, &fit, None, &FitContext::default()), &["not trained on"]);
    }
}

/// `−log N(y; z, s²)`, averaged over rows of numbers.
fn normal_loss(fitted: &FittedLaplace, rows: &Dataset) -> f64 {
    let (z, s) =
        (fitted.scores(rows.x.to_f64().view()).unwrap(), fitted.deviations(rows.x.to_f64().view()).unwrap().unwrap());
    let terms = z.iter().zip(&s).zip(targets(rows));
    terms.map(|((z, s), y)| 0.5 * ((y - z) / s).powi(2) + s.ln() + 0.5 * std::f64::consts::TAU.ln()).sum::<f64>()
        / rows.n() as f64
}

#[test]
fn the_precision_and_the_noise_of_numbers_have_the_least_loss_on_the_validation_rows_by_default() {
    let file = golden_file();
    let (network, data, _) = golden(&file["number"]);
    // The network was trained on these rows: others are further from it.
    let validation = of_numbers(data.x.clone().into_f64(), targets(&data).iter().map(|y| 2.0 * y + 0.3).collect());
    for method in [Method::from(LastLayer), Kfac.into(), Map.into()] {
        let fit = |laplace: Laplace| laplace.fit(&network, &data, Some(&validation), &FitContext::default()).unwrap();
        let fitted = fit(Laplace::new(method));
        let best = normal_loss(&fitted, &validation);
        for (a, b) in [(1.3, 1.0), (0.7, 1.0), (1.0, 1.1), (1.0, 0.9)] {
            let prior = Prior::Given { precision: a * fitted.found.value, noise: b * fitted.noise };
            if method.has_posterior() && !(fitted.found.at_end && b == 1.0) {
                assert!(
                    normal_loss(&fit(Laplace { prior, ..Laplace::new(method) }), &validation) >= best - 1e-5,
                    "{method:?}"
                );
            }
        }
        // No posterior is worse than the network alone.
        assert!(best <= normal_loss(&fit(Laplace::new(Map)), &validation) + 1e-6, "{method:?}: {best}");
    }
}

/// A network of one layer is linear in its parameters, whose derivatives are the columns and a one.
#[test]
fn the_network_and_its_functions_have_one_posterior() {
    let mut rng = Rng::new(8);
    let mut rows = |n: usize| {
        let x = rng.normals((n, 2));
        let numbers = x.rows().into_iter().map(|x| x[0] - 0.5 * x[1] + 0.5 * rng.normal()).collect();
        of_numbers(x, numbers)
    };
    let (fit, other) = (rows(40), rows(60));
    let net = Network::parse("dense(1)", 2, 1).unwrap();
    let parameters = net.init(Device::Cpu, &Rng::new(3)).unwrap();
    let network = Arc::new(Classifier {
        network: net,
        parameters,
        standardizer: Standardizer::identity(),
        classes: vec![],
        schema: None,
        number: Some(Number { mean: 0.0, spread: 1.0 }),
        foreign: true,
        displacement: None,
    });
    let whole = Laplace::new(LastLayer).fit(&network, &fit, Some(&other), &FitContext::default()).unwrap();
    let z = |x: &Array2<f64>| network.logits(x.view()).unwrap().mapv(f64::from);
    let jacobian =
        |x: &Array2<f64>| Array3::from_shape_fn((x.nrows(), 3, 1), |(i, j, _)| if j < 2 { x[[i, j]] } else { 1.0 });
    let parts = [&fit, &other].map(|rows| rows.x.clone().into_f64()).map(|x| (z(&x), jacobian(&x)));
    let [functions, elsewhere] =
        parts.each_ref().map(|(z, j)| NetworkFunctions::jacobians(z.view(), j.view()).unwrap());
    let target = |rows: &Dataset| rows.target().unwrap().clone();
    let by_functions = Laplace::new(GivenFunctions)
        .fit_functions(&functions, &target(&fit), Some((&elsewhere, &target(&other))), &FitContext::default())
        .unwrap();
    close([whole.noise], [by_functions.noise], 5e-3, "noise");
    let wanted = elsewhere.deviations_of(&by_functions).unwrap().unwrap();
    close(whole.deviations(other.x.to_f64().view()).unwrap().unwrap(), wanted, 5e-3, "deviations");
}

/// Fits on choices of the validation rows are those with these rows alone, whatever is found on them.
#[test]
fn fits_on_some_validation_rows_do_not_see_the_others() {
    let file = golden_file();
    let context = FitContext::default();
    for (name, methods) in [
        ("dense", [Method::from(Temperature), LastLayer.into(), FixedMean.into(), Map.into()]),
        ("number", [Method::from(LastLayer), FixedMean.into(), Diagonal.into(), Map.into()]),
    ] {
        let (network, data, new) = golden(&file[name]);
        let halves = [(0..data.n()).step_by(2).collect::<Vec<_>>(), (1..data.n()).step_by(2).collect()];
        for method in methods {
            let tempered = method.has_posterior();
            let laplace = Laplace { prior: Prior::Validation, tempered, ..Laplace::new(method) };
            let fits = laplace.fit_on(&network, &data, &data, &halves, &context).unwrap();
            assert_eq!(fits.len(), 2);
            for (fitted, rows) in fits.iter().zip(&halves) {
                let alone = laplace.fit(&network, &data, Some(&data.select(rows)), &context).unwrap();
                let what = format!("{name} {}", method.name());
                close(fitted.scores(new.view()).unwrap(), alone.scores(new.view()).unwrap(), 1e-12, &what);
                assert_eq!(fitted.deviations(new.view()).unwrap(), alone.deviations(new.view()).unwrap(), "{what}");
            }
            let differs = fits[0].scores(new.view()).unwrap() != fits[1].scores(new.view()).unwrap();
            assert_eq!(differs, name == "dense" && method.name() != "map", "{name} {}", method.name());
        }
    }
}

#[test]
fn a_file_predicts_the_same_bits() {
    let (_folder, path) = scratch("m.mercer");
    let file = golden_file();
    for name in ["conv", "number"] {
        let (network, data, new) = golden(&file[name]);
        for method in Method::all_for(NetworkKind { number: name == "number", functions: false }) {
            for predictive in [Predictive::Probit, Predictive::Sampling { count: 7 }] {
                let laplace = Laplace { predictive, ..Laplace::new(method) };
                let fitted = laplace.fit(&network, &data, Some(&data), &FitContext::default()).unwrap();
                fitted.save(&path).unwrap();
                let Content::Fitted(Fitted::Predict(again)) = Model::load(&path, Device::Cpu).unwrap().content else {
                    panic!("it predicts")
                };
                assert_eq!(again.scores(new.view()).unwrap(), fitted.scores(new.view()).unwrap(), "{name} {method:?}");
                assert_eq!(again.deviations(new.view()).unwrap(), fitted.deviations(new.view()).unwrap());
                assert_eq!(FittedLaplace::load(&path, Device::Cpu).unwrap().found, fitted.found);
            }
        }
    }
}

/// Residual blocks and norms: every structure works, the last layer's does not see them, and probabilities add up to one.
#[test]
fn residual_networks_have_every_structure() {
    let (fit, held_out) = data::digits().with_classes().unwrap().split(0.5, 0).unwrap();
    let few = |data: &Dataset, n: usize| data.select(&(0..n).collect::<Vec<_>>());
    let net = "conv(4, 3) bn relu res(conv(4, 3) bn relu conv(4, 3) bn) relu \
               res(conv(6, 3, stride=2) bn relu conv(6, 3) bn; conv(6, 1, stride=2) bn) relu gap flatten dense(10)";
    let start = Classifier::new(net, &fit, Device::Cpu, 0).unwrap();
    let settings = Settings { epochs: 4, batch: 64, ..Settings::default() };
    let network = Arc::new(train(start, &fit, None, &settings, &FitContext::default(), &|_| ()).unwrap().classifier);
    let (fit, held_out) = (few(&fit, 200), few(&held_out, 60));
    let logits = network.logits(held_out.x.to_f64().view()).unwrap().mapv(f64::from);
    for method in Method::all_for(NetworkKind::default()).into_iter().filter(|method| method.has_posterior()) {
        let fitted = Laplace::new(method).fit(&network, &fit, Some(&held_out), &FitContext::default()).unwrap();
        let (mean, variances) = fitted.outputs(held_out.x.to_f64().view()).unwrap();
        // Eigenfunctions and fixed means are of differences of logits.
        let centred = |z: &Array2<f64>| z - &z.mean_axis(Axis(1)).unwrap().insert_axis(Axis(1));
        // A fixed mean is divided by a temperature, with so few rows the same for all of them.
        let norm = |z: Array2<f64>| z.mapv(|v| v * v).sum().sqrt();
        let temperature = norm(centred(&logits)) / norm(centred(&mean));
        assert!(method.name() == "fixed-mean" || (temperature - 1.0).abs() < 1e-4, "{method:?}: {temperature}");
        close(centred(&mean) * temperature, centred(&logits), 1e-4, method.name());
        assert!(variances.iter().all(|v| *v > 0.0 && v.is_finite()), "{method:?}");
        check_outputs(method, &network, [&fit, &held_out]);
    }
}

/// One structure with the outputs of one pass is tuned as a fit is, and predicts what that does.
fn check_outputs(method: Method, network: &Arc<Classifier>, [fit, held_out]: [&Dataset; 2]) {
    let laplace = Laplace { prior: Prior::Validation, tempered: true, ..Laplace::new(method) };
    let structured = laplace.structured(network, fit, &FitContext::default()).unwrap();
    let outputs = structured.outputs(held_out.x.to_f64().view()).unwrap();
    let tuned = structured.tuned(&laplace, Some((&outputs, held_out))).unwrap();
    let fitted = laplace.fit(network, fit, Some(held_out), &FitContext::default()).unwrap();
    assert_eq!((&tuned.found, tuned.temperature), (&fitted.found, fitted.temperature), "{method:?}");
    let scores = fitted.scores(held_out.x.to_f64().view()).unwrap();
    close(tuned.scores_of(&outputs).unwrap(), scores, 1e-4, method.name());
    let other = Laplace::new(if method.name() == "last-layer" { Method::from(Diagonal) } else { LastLayer.into() });
    says(structured.tuned(&other, None), &[method.name(), other.method.name()]);
    says(structured.tuned(&laplace, Some((&outputs.select(&[3, 1]), held_out))), &["2 rows", "60"]);
}

#[test]
fn intervals_of_numbers_cover_what_they_say() {
    let mut rng = Rng::new(5);
    let mut draw = |n: usize| {
        let x = Array2::from_shape_simple_fn((n, 2), || 2.0 * rng.uniform() - 1.0);
        let y = x.rows().into_iter().map(|x| (3.0 * x[0]).sin() + x[1] + 0.2 * rng.normal()).collect();
        of_numbers(x, y)
    };
    let (fit, test) = (draw(400), draw(2000));
    let start = Classifier::new("dense(20) tanh dense(20) tanh dense(1)", &fit, Device::Cpu, 0).unwrap();
    let settings = Settings { epochs: 150, batch: 64, learning_rate: 0.02, ..Settings::default() };
    let network = Arc::new(train(start, &fit, None, &settings, &FitContext::default(), &|_| ()).unwrap().classifier);
    for method in [Method::from(LastLayer), Ella { samples: 400, rank: 40 }.into()] {
        let fitted = by_likelihood(method).fit(&network, &fit, None, &FitContext::default()).unwrap();
        let (mean, deviations) = (
            fitted.scores(test.x.to_f64().view()).unwrap(),
            fitted.deviations(test.x.to_f64().view()).unwrap().unwrap(),
        );
        let truth = targets(&test);
        let z = interval_factor(0.95).unwrap();
        let inside = (0..test.n()).filter(|&i| (mean[[i, 0]] - truth[i]).abs() <= z * deviations[i]).count();
        let coverage = inside as f64 / test.n() as f64;
        assert!((0.93..0.97).contains(&coverage), "{}: {coverage}", method.name());
    }
}

#[test]
fn rows_that_are_not_finite_or_of_another_length_are_named() {
    let file = golden_file();
    let (network, data, mut new) = golden(&file["number"]);
    let fitted = by_likelihood(LastLayer).fit(&network, &data, None, &FitContext::default()).unwrap();
    new[[3, 1]] = f64::NAN;
    says(fitted.scores(new.view()), &["row 4", "NaN"]);
    says(fitted.deviations(new.view()), &["row 4", "NaN"]);
    says(fitted.scores(Array2::zeros((2, 3)).view()), &["takes rows of 2 numbers", "have 3"]);
}

#[test]
fn many_classes_ask_for_memory_first() {
    let c = 3100;
    let x = Rng::new(1).normals((20, 4));
    let data = of_classes(x, (0..20).collect(), classes(c));
    let network = Arc::new(Classifier::new("dense(8) tanh dense(3100)", &data, Device::Cpu, 0).unwrap());
    let context = FitContext { budget: Budget::parse("2GiB").unwrap(), ..FitContext::default() };
    says(Laplace::new(LastLayer).fit(&network, &data, None, &context), &["last-layer-kfac"]);
    // Neither makes [n, C, C], which would take 1.5 GB.
    let small = FitContext { budget: Budget::parse("1GiB").unwrap(), ..context };
    for method in [Method::from(LastLayerKfac), Ella { samples: 20, rank: 3 }.into()] {
        let fitted = by_likelihood(method).fit(&network, &data, None, &small).unwrap();
        assert_eq!(fitted.outputs(data.x.to_f64().view()).unwrap().1.dim(), (20, c));
    }
    // A pass back from every output takes C² numbers for a row, however few parameters there are.
    let tiny = FitContext { budget: Budget::parse("64MiB").unwrap(), ..context };
    says(Laplace::new(Diagonal).fit(&network, &data, None, &tiny), &["the diagonal posterior", "last-layer-kfac"]);
    let cost = Laplace::new(Diagonal).cost(&network, 20).unwrap();
    assert!(cost.bytes > 12 * (c * c) as u64 && cost.bytes < 1 << 30, "{cost:?}");
}

/// The diagonal of 8 million parameters takes 32 bytes each, not the square of their number.
#[test]
fn a_large_diagonal_takes_what_it_says() {
    let x = Array2::zeros((4, 1000));
    let data = of_classes(x, (0..4).collect(), classes(4));
    let network = Arc::new(Classifier::new("dense(8000) relu dense(4)", &data, Device::Cpu, 0).unwrap());
    let cost = Laplace::new(Diagonal).cost(&network, 4).unwrap();
    let least = 32 * network.network.parameters() as u64;
    assert!((least..least + least / 20).contains(&cost.bytes), "{cost:?}");
    let context = FitContext { budget: Budget::parse("100MiB").unwrap(), ..FitContext::default() };
    says(Laplace::new(Diagonal).fit(&network, &data, None, &context), &["the diagonal posterior", "last-layer-kfac"]);
}
