//! Linearised Laplace of networks that are given by their functions: against laplace-torch, against a dense computation, and its laws.

mod common;

use common::{says, scratch};
use mercer::FitContext;
use mercer::apply::{Predict, Saved};
use mercer::compute::Device;
use mercer::data::{MappedArray, Target, write_npy};
use mercer::laplace::{
    Eigenfunctions, FittedFunctionLaplace, GivenFunctions, Laplace, Map, Method, NetworkFunctions, Predictive, Prior,
    Searched, Temperature,
};
use mercer::operator::{Budget, FunctionSamples};
use mercer::rng::Rng;
use ndarray::{Array2, Array3, Axis, array, s};
use serde_json::Value;

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        number => vec![number.as_f64().expect("a number")],
    }
}

fn matrix(value: &Value) -> Array2<f64> {
    let (all, n) = (numbers(value), value.as_array().expect("a list").len());
    Array2::from_shape_vec((n, all.len() / n), all).expect("rows are alike in length")
}

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/laplace_torch.json")).unwrap()
}

/// Outputs `[n, C]` and derivatives by all parameters `[n, C, P]` of the golden network `W2 tanh(W1 x + b1) + b2`, in closed form.
fn perceptron(entry: &Value, x: &Array2<f64>) -> (Array2<f64>, Array3<f64>) {
    let weights = &entry["weights"];
    let (w1, b1) = (matrix(&weights["fc1.weight"]), numbers(&weights["fc1.bias"]));
    let (w2, b2) = (matrix(&weights["fc2.weight"]), numbers(&weights["fc2.bias"]));
    let ((h, d), c) = (w1.dim(), w2.nrows());
    let units = (x.dot(&w1.t()) + &array_of(&b1)).mapv(f64::tanh);
    let z = units.dot(&w2.t()) + &array_of(&b2);
    let mut j = Array3::zeros((x.nrows(), c, h * (d + 1) + c * (h + 1)));
    for ((i, o, p), value) in j.indexed_iter_mut() {
        let slope = |k: usize| w2[[o, k]] * (1.0 - units[[i, k]].powi(2));
        let second = h * (d + 1);
        *value = match p {
            p if p < h * d => slope(p / d) * x[[i, p % d]],
            p if p < second => slope(p - h * d),
            p if p < second + c * h => {
                if (p - second) / h == o {
                    units[[i, (p - second) % h]]
                } else {
                    0.0
                }
            }
            p => f64::from(u8::from(p - second - c * h == o)),
        };
    }
    (z, j)
}

fn array_of(values: &[f64]) -> Array2<f64> {
    Array2::from_shape_vec((1, values.len()), values.to_vec()).unwrap()
}

fn close(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let scale = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let error = found.iter().zip(wanted).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(error < tolerance * scale, "{what}: off by {error:.2e} of {scale:.2e}");
}

#[test]
fn all_derivatives_give_the_full_posterior_of_laplace_torch() {
    let file = golden();
    let precision = file["precision"].as_f64().unwrap();
    let noise = file["noise"].as_f64().unwrap().powi(2);
    for name in ["dense", "number"] {
        let entry = &file[name];
        let (x, new, y) = (matrix(&entry["x"]), matrix(&entry["new"]), numbers(&entry["y"]));
        let ((z, j), (at_new, j_new)) = (perceptron(entry, &x), perceptron(entry, &new));
        let y = Target::Values(y);
        let y = if name == "dense" { y.as_classes().unwrap() } else { y };
        let network = NetworkFunctions::jacobians(z.view(), j.view()).unwrap();
        let elsewhere = NetworkFunctions::jacobians(at_new.view(), j_new.view()).unwrap();
        let want = &entry["structures"]["full"];
        // The full posterior, and that over all eigenfunctions of the same kernel.
        for method in [Method::from(GivenFunctions), Eigenfunctions { functions: 1000, rows: 1 }.into()] {
            let laplace = Laplace { prior: Prior::Given { precision, noise }, ..Laplace::new(method) };
            let fitted = laplace.fit_functions(&network, &y, None, &FitContext::default()).unwrap();
            let scores = elsewhere.scores_of(&fitted).unwrap();
            let what = format!("{name}, {}", method.name());
            // Functions that vanish at all rows of the fit are in no eigenfunction: laplace-torch's prior is wider there.
            let tolerance = if method == GivenFunctions.into() { 1e-6 } else { 0.2 };
            if name == "number" {
                let want: Vec<f64> = numbers(&want["covariance"]).iter().map(|v| (v + noise).sqrt()).collect();
                close(&elsewhere.deviations_of(&fitted).unwrap().unwrap().to_vec(), &want, tolerance, &what);
                continue;
            }
            let p = fitted.probabilities(scores.view()).unwrap();
            close(p.as_slice().unwrap(), &numbers(&want["probabilities"]), tolerance, &what);
        }
    }
}

/// A random linear model: outputs, derivatives, and targets drawn from it.
fn linear(n: usize, c: usize, k: usize, seed: u64) -> (Array2<f64>, Array3<f64>, Target) {
    let mut rng = Rng::new(seed);
    let j = Array3::from_shape_simple_fn((n, c, k), || rng.normal());
    let w = Array2::from_shape_fn((k, 1), |(i, _)| ((7 * i + 1) as f64).sin());
    let z = j.to_shape((n * c, k)).unwrap().dot(&w).into_shape_with_order((n, c)).unwrap();
    let y = match c {
        1 => Target::Values(z.iter().map(|z| z + 0.3 * rng.normal()).collect()),
        _ => {
            let draw = |z: ndarray::ArrayView1<f64>| {
                let p = z.mapv(f64::exp);
                let (mut left, total) = (rng.uniform() * p.sum(), p.len());
                p.iter()
                    .position(|p| {
                        left -= p;
                        left < 0.0
                    })
                    .unwrap_or(total - 1)
            };
            let labels = z.rows().into_iter().map(draw).collect();
            Target::Classes { labels, names: (0..c).map(|c| c.to_string()).collect() }
        }
    };
    (z, j, y)
}

#[test]
fn samples_and_derivatives_of_one_kernel_in_memory_and_in_files_are_the_same_posterior() {
    let (z, j, y) = linear(60, 3, 5, 1);
    // F_s = √S J_s has FᵀF/S = JJᵀ.
    let f = j.view().permuted_axes([2, 0, 1]).mapv(|v| v * 5f64.sqrt());
    let (_folder, path) = scratch("f.npy");
    write_npy(&path, f.view()).unwrap();
    let (_other, written) = scratch("j.npy");
    write_npy(&written, j.view()).unwrap();
    let mapped = |path: &std::path::Path| FunctionSamples::in_file(MappedArray::open(path).unwrap()).unwrap();
    let all = [
        NetworkFunctions::jacobians(z.view(), j.view()).unwrap(),
        NetworkFunctions::samples(z.view(), f.view()).unwrap(),
        NetworkFunctions::samples(z.view(), mapped(&path)).unwrap(),
        NetworkFunctions::jacobians(z.view(), mapped(&written)).unwrap(),
    ];
    let laplace = Laplace::new(GivenFunctions);
    let scores: Vec<Array2<f64>> = all
        .iter()
        .map(|network| {
            let fitted = laplace.fit_functions(network, &y, Some((network, &y)), &FitContext::default()).unwrap();
            network.scores_of(&fitted).unwrap()
        })
        .collect();
    for other in &scores[1..] {
        close(other.as_slice().unwrap(), scores[0].as_slice().unwrap(), 1e-10, "the same kernel");
    }
    // Some rows of a network are those rows.
    let [first, second, ..] = all;
    let (some, same) = (first.at(&[7, 3]), second.at(&[7, 3, 9]).at(&[0, 1]));
    close(some.rows(0..2).unwrap().as_slice().unwrap(), same.rows(0..2).unwrap().as_slice().unwrap(), 1e-12, "rows");
    assert_eq!((some.n(), some.outputs(), some.functions(), some.width()), (2, 3, 5, 18));
}

#[test]
fn the_precision_and_the_noise_have_the_least_loss_on_the_validation_rows() {
    // The network's weights are wrong by 0.6 each, and three rows tell little of four weights: the prior decides.
    let (z, j, y) = linear(80, 1, 4, 2);
    let z = z + &(j.index_axis(Axis(1), 0).sum_axis(Axis(1)) * 0.6).insert_axis(Axis(1));
    let network = NetworkFunctions::jacobians(z.view(), j.view()).unwrap();
    let few = NetworkFunctions::jacobians(z.view(), j.view()).unwrap().at(&[0, 1, 2]);
    let fitted = |prior| {
        let laplace = Laplace { prior, ..Laplace::new(GivenFunctions) };
        laplace.fit_functions(&few, &y.select(&[0, 1, 2]), Some((&network, &y)), &FitContext::default()).unwrap()
    };
    let loss = |fitted: &FittedFunctionLaplace| {
        let (mean, s) = (network.scores_of(fitted).unwrap(), network.deviations_of(fitted).unwrap().unwrap());
        let terms = mean.iter().zip(&s).zip(y.values());
        terms.map(|((m, s), y)| 0.5 * ((y - m) / s).powi(2) + s.ln() + 0.5 * std::f64::consts::TAU.ln()).sum::<f64>()
            / 80.0
    };
    let best = fitted(Prior::Validation);
    let Searched { value, loss: least, at_end } = best.found;
    assert!(!at_end && (loss(&best) - least).abs() < 1e-9, "{} {least}", loss(&best));
    for (a, b) in [(1.3, 1.0), (0.7, 1.0), (1.0, 1.1), (1.0, 0.9)] {
        let other = fitted(Prior::Given { precision: a * value, noise: b * best.noise });
        assert!(loss(&other) >= least - 1e-9);
    }
    // Numbers ten times as large have the tenfold deviations.
    let (z, y) = (&z * 10.0, Target::Values(y.values().iter().map(|v| 10.0 * v).collect()));
    let tenfold = NetworkFunctions::jacobians(z.view(), j.view()).unwrap();
    let few = NetworkFunctions::jacobians(z.view(), j.view()).unwrap().at(&[0, 1, 2]);
    let laplace = Laplace::new(GivenFunctions);
    let some = y.select(&[0, 1, 2]);
    let scaled = laplace.fit_functions(&few, &some, Some((&tenfold, &y)), &FitContext::default()).unwrap();
    let [a, b] = [network.deviations_of(&best), tenfold.deviations_of(&scaled)].map(|s| s.unwrap().unwrap());
    close(&b.to_vec(), &(a * 10.0).to_vec(), 1e-6, "deviations");
}

/// Fits on several sets of validation rows are those with each of them alone.
#[test]
fn fits_on_halves_are_those_with_each_half_alone() {
    let (z, j, y) = linear(200, 3, 4, 3);
    let network = NetworkFunctions::jacobians(z.view(), j.view()).unwrap();
    let halves = [(0..200).step_by(2).collect::<Vec<_>>(), (1..200).step_by(2).collect()];
    let parts = halves.each_ref().map(|rows| (network.clone().at(rows), y.select(rows)));
    let leading = Eigenfunctions { functions: 3, rows: 1 };
    for method in [Method::from(Map), Temperature.into(), GivenFunctions.into(), leading.into()] {
        let laplace = Laplace { tempered: true, ..Laplace::new(method) };
        let choices = parts.each_ref().map(|(network, y)| Some((network, y)));
        let fits = laplace.fit_functions_on(&network, &y, &choices, &FitContext::default()).unwrap();
        let scores = |fitted: &FittedFunctionLaplace| network.scores_of(fitted).unwrap();
        for (fitted, part) in fits.iter().zip(choices) {
            let alone = laplace.fit_functions(&network, &y, part, &FitContext::default()).unwrap();
            assert_eq!(scores(fitted), scores(&alone), "{}", method.name());
        }
        assert!(scores(&fits[0]) != scores(&fits[1]), "{}", method.name());
    }
}

#[test]
fn classes_with_a_temperature_and_draws_and_a_file() {
    let (z, j, y) = linear(200, 3, 4, 3);
    let sharp = &z * 3.0;
    let network = NetworkFunctions::jacobians(sharp.view(), j.view()).unwrap();
    let fit =
        |laplace: Laplace| laplace.fit_functions(&network, &y, Some((&network, &y)), &FitContext::default()).unwrap();
    // Targets are drawn from the logits before they were multiplied by three.
    let temperature = fit(Laplace::new(Temperature));
    assert!((temperature.temperature - 3.0).abs() < 0.8, "{}", temperature.temperature);
    let plain = Laplace::new(GivenFunctions);
    let drawn = fit(Laplace { predictive: Predictive::Sampling { count: 4000 }, tempered: true, ..plain });
    let probit = fit(Laplace { tempered: true, ..plain });
    let [a, b] = [&drawn, &probit].map(|f| f.probabilities(network.scores_of(f).unwrap().view()).unwrap());
    assert!((&a - &b).iter().all(|v| v.abs() < 0.1));
    let (_folder, path) = scratch("m.mercer");
    drawn.save(&path).unwrap();
    let again = FittedFunctionLaplace::load(&path, Device::Cpu).unwrap();
    assert_eq!(network.scores_of(&again).unwrap(), network.scores_of(&drawn).unwrap());
    // A class without a row is still an output.
    let few = Target::Values(vec![0.0, 2.0, 2.0, 0.0]);
    let four = NetworkFunctions::jacobians(sharp.slice(s![..4, ..]), j.slice(s![..4, .., ..])).unwrap();
    let fitted = plain.fit_functions(&four, &few, Some((&four, &few)), &FitContext::default()).unwrap();
    assert_eq!(fitted.classes, ["0", "1", "2"]);
}

#[test]
fn what_does_not_fit_is_said() {
    let (z, j, y) = linear(20, 2, 3, 4);
    let context = FitContext::default();
    says(NetworkFunctions::samples(z.view(), j.view()), &["[20, 2, 3]", "[S, 20, 2]"]);
    says(NetworkFunctions::jacobians(z.slice(s![..4, ..]), j.view()), &["[20, 2, 3]", "[4, 2, P]"]);
    let network = NetworkFunctions::jacobians(z.view(), j.view()).unwrap();
    let laplace = Laplace::new(GivenFunctions);
    says(laplace.fit_functions(&network, &y, None, &context), &["not trained on"]);
    let likelihood = Laplace { prior: Prior::Likelihood, ..laplace };
    says(likelihood.fit_functions(&network, &y, None, &context), &["norm of the parameters", "validation"]);
    let three = Target::Classes { labels: vec![0; 20], names: ["a", "b", "c"].map(String::from).into() };
    says(laplace.fit_functions(&network, &three, None, &context), &["2 outputs", "3 classes"]);
    let short = Target::Values(vec![1.0; 3]);
    says(laplace.fit_functions(&network, &short, None, &context), &["3 targets", "20 rows"]);
    // Labels that are no positions among the names, such as −1 read as an unsigned number.
    for label in [2, usize::MAX] {
        let labels = (0..20).map(|i| if i == 6 { label } else { i % 2 }).collect();
        let wrong = Target::Classes { labels, names: vec!["0".into(), "1".into()] };
        says(laplace.fit_functions(&network, &wrong, None, &context), &["row 7", "numbered from 0 to 1"]);
    }
    let mut broken = j.clone();
    broken[[4, 1, 2]] = f64::NAN;
    let network = NetworkFunctions::jacobians(z.view(), broken.view()).unwrap();
    says(laplace.fit_functions(&network, &y, Some((&network, &y)), &context), &["row 5", "NaN"]);
    // 40 000 functions would take 51 GB; it is said before they are read.
    let (_folder, path) = scratch("j.npy");
    write_npy(&path, Array2::<f32>::zeros((3, 40_000)).view()).unwrap();
    let mapped = FunctionSamples::in_file(MappedArray::open(&path).unwrap()).unwrap();
    let outputs = array![[1.0], [2.0], [3.0]];
    let many = NetworkFunctions::jacobians(outputs.view(), mapped).unwrap();
    let small = FitContext { budget: Budget::parse("1GiB").unwrap(), ..FitContext::default() };
    let y = Target::Values(vec![1.0, 2.0, 3.0]);
    says(laplace.fit_functions(&many, &y, Some((&many, &y)), &small), &["40000 functions", "fewer functions"]);
    assert_eq!(many.rows(1..2).unwrap().index_axis(Axis(0), 0)[0], 2.0);
}
