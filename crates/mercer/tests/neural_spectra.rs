//! Neural spectra against the exact spectrum of the same points.

mod common;

use common::{fit_kernel as fit, same_eigenvalues as assert_close, *};
use mercer::operator::{LowRankOperator, OnPoints};
use mercer::spectrum::neural::{FunctionOperator, Kind, Neural, OnData, Settings, Stop, rayleigh_ritz, train};

fn uniform(n: usize, d: usize, half_width: f64) -> Array2<f64> {
    common::uniform(n, d, half_width, 7)
}

fn every_method() -> impl Iterator<Item = Neural> {
    Kind::ALL.into_iter().map(|(_, kind)| Neural::new(kind))
}

/// The first `count` pairs of both spectra agree: eigenvalues within `tolerance`, functions at `x` with `|cos|` above `least`.
fn agree(got: &Spectrum, want: &Spectrum, x: &Array2<f64>, count: usize, tolerance: f64, least: f64, what: &str) {
    assert_close(&got.eigenvalues[..count], &want.eigenvalues[..count], tolerance, what);
    let (a, b) = (got.transform(x.view()).unwrap(), want.transform(x.view()).unwrap());
    (0..count).for_each(|j| assert!(cosine(&a, &b, j) > least, "{what} ψ_{}", j + 1));
}

#[test]
fn trained_functions_and_the_finish_find_the_first_three() {
    let x = uniform(1024, 1, 2.0);
    let exact = fit(&Exact, "rbf(1)", x.view(), 6);
    for mut method in every_method() {
        // The last functions, not the best: the first validation sees untrained ones.
        method.settings.keep_best = false;
        method.settings.patience = usize::MAX;
        method.settings.steps = 600;
        let spectrum = fit(&method, "rbf(1)", x.view(), 6);
        let record = spectrum.training().unwrap();
        assert_eq!((record.steps, record.kept, record.stop), (600, 600, Stop::Budget));
        agree(&spectrum, &exact, &x, 3, 0.01, 0.99, &method.name());
    }
}

#[test]
fn neuralef_by_itself_finds_the_first_three() {
    let x = uniform(1024, 1, 2.0);
    let exact = fit(&Exact, "rbf(1)", x.view(), 4);
    let mut method = Neural::new(Kind::NeuralEf { averaged: false });
    method.finish = false;
    method.settings.patience = usize::MAX;
    let spectrum = fit(&method, "rbf(1)", x.view(), 4);
    assert!(!spectrum.training().unwrap().finished);
    assert_eq!(spectrum.eigenvalues, spectrum.training().unwrap().raw_eigenvalues);
    agree(&spectrum, &exact, &x, 3, 0.02, 0.995, "neuralef");
}

#[test]
fn ritz_finds_eight_with_and_without_training() {
    let x = uniform(1024, 1, 2.0);
    let exact = fit(&Exact, "rbf(1)", x.view(), 10);
    for steps in [0, 100] {
        let mut method = Neural::new(Kind::Ritz);
        method.settings.steps = steps;
        method.settings.patience = usize::MAX;
        method.settings.keep_best = false;
        let spectrum = fit(&method, "rbf(1)", x.view(), 10);
        assert_eq!(spectrum.training().unwrap().steps, steps);
        agree(&spectrum, &exact, &x, 8, 1e-4, 0.9999, "ritz");
    }
}

#[test]
fn every_method_finds_the_rank_of_a_polynomial() {
    let x = uniform(600, 1, 1.0);
    let kernel = "poly(degree=4, offset=1.5)";
    let exact = fit(&Exact, kernel, x.view(), 10);
    for mut method in every_method() {
        method.settings.steps = method.settings.steps.min(300);
        let spectrum = fit(&method, kernel, x.view(), 10);
        assert_close(&spectrum.eigenvalues[..5], &exact.eigenvalues[..5], 1e-3, &method.name());
        assert_eq!(spectrum.eigenvalues[5..], [0.0; 5], "{}", method.name());
        assert!(spectrum.certificate.standing[5..].iter().all(|s| *s == Standing::Zero));
        let psi = spectrum.transform(x.view()).unwrap();
        assert!(psi.iter().all(|v| v.is_finite()) && psi.column(7).iter().all(|v| *v == 0.0));
    }
}

#[test]
fn eigenvalues_over_eight_orders_of_magnitude() {
    let x = uniform(700, 1, 2.0);
    let exact = fit(&Exact, "rbf(1.5)", x.view(), 10);
    assert!(exact.eigenvalues[9] < 1e-8 * exact.eigenvalues[0]);
    let spectrum = fit(&Neural::new(Kind::Ritz), "rbf(1.5)", x.view(), 10);
    assert_close(&spectrum.eigenvalues, &exact.eigenvalues, 1e-2, "ritz");
}

#[test]
fn repeated_eigenvalues_are_told() {
    // A grid that a quarter turn maps to itself: the second and third eigenvalue are one.
    let x = Array2::from_shape_fn((400, 2), |(i, c)| ([i / 20, i % 20][c] as f64 - 9.5) / 5.0);
    let exact = fit(&Exact, "rbf(1)", x.view(), 6);
    let mut method = Neural::new(Kind::Ritz);
    method.settings.steps = 50;
    method.architecture = Some("dense(64) sincos dense(128) sincos dense(1)".into());
    let spectrum = fit(&method, "rbf(1)", x.view(), 6);
    assert_close(&spectrum.eigenvalues, &exact.eigenvalues, 1e-4, "ritz");
    assert_eq!(spectrum.certificate.standing[..3], [Standing::Simple, Standing::Repeated, Standing::Repeated]);
    // Trained functions meet the two in any order; their span is what counts.
    let mut method = Neural::new(Kind::NeuralEf { averaged: false });
    method.settings.steps = 400;
    let spectrum = fit(&method, "rbf(1)", x.view(), 3);
    assert_close(&spectrum.eigenvalues, &exact.eigenvalues[..3], 0.02, "neuralef");
}

#[test]
fn few_points_few_functions_large_batches() {
    for (n, k) in [(1, 1), (2, 2), (5, 1), (5, 5), (40, 1)] {
        let x = uniform(n, 2, 1.0);
        let exact = fit(&Exact, "rbf(0.5)", x.view(), k);
        for mut method in every_method() {
            method.settings.steps = 20;
            for finish in [true, false] {
                method.finish = finish;
                let spectrum = fit(&method, "rbf(0.5)", x.view(), k);
                assert!(spectrum.eigenvalues.iter().all(|v| v.is_finite()));
                assert!(spectrum.transform(x.view()).unwrap().iter().all(|v| v.is_finite()));
                let record = spectrum.training().unwrap();
                assert_eq!(record.batch, n.min(256));
                assert!(
                    n > 256 || record.notes.iter().any(|note| note.contains("a batch of 256")),
                    "{:?}",
                    record.notes
                );
                if finish && n <= 5 && k == n {
                    assert_close(&spectrum.eigenvalues, &exact.eigenvalues, 1e-3, &method.name());
                }
            }
        }
    }
}

#[test]
fn a_kernel_that_vanishes_has_no_pairs() {
    let x = Array2::zeros((30, 1));
    for mut method in every_method() {
        method.settings.steps = 10;
        let spectrum = fit(&method, "linear", x.view(), 3);
        assert_eq!(spectrum.eigenvalues, [0.0; 3], "{}", method.name());
    }
}

#[test]
fn data_far_from_the_origin_and_of_any_size_trains_alike() {
    let x = uniform(300, 1, 2.0);
    let near = fit(&Neural::new(Kind::Ritz), "rbf(1)", x.view(), 5);
    let far = (&x + 1e4) * 1e3;
    let far = fit(&Neural::new(Kind::Ritz), "rbf(1000)", far.view(), 5);
    assert_close(&far.eigenvalues, &near.eigenvalues, 1e-5, "shifted and scaled");
}

#[test]
fn a_spectrum_is_saved_and_loaded_with_its_networks() {
    let (x, folder) = (uniform(300, 2, 1.0), tempfile::tempdir().unwrap());
    let path = folder.path().join("neural.mercer");
    for mut method in every_method() {
        method.settings.steps = 30;
        let spectrum = fit(&method, "rbf(1)", x.view(), 4);
        spectrum.save(&path).unwrap();
        let back = Spectrum::load(&path, Device::Cpu).unwrap();
        assert_eq!(back.training(), spectrum.training());
        assert_eq!(back.origin.method, method.name());
        let new = uniform(50, 2, 1.5);
        assert_eq!(back.transform(new.view()).unwrap(), spectrum.transform(new.view()).unwrap());
        assert_eq!(back.transform(Array2::zeros((0, 2)).view()).unwrap().dim(), (0, 4));
    }
}

#[test]
fn certificates_of_neural_spectra_are_measured() {
    let x = uniform(800, 1, 2.0);
    let held_out = common::uniform(400, 1, 2.0, 99);
    let operator = on(&kernel("rbf(1)"), x.view());
    let problem = Problem::new(&operator, 5);
    let spectrum = Spectrum::fit(&Neural::new(Kind::Ritz), &problem, Some(held_out.view().into())).unwrap();
    assert_eq!(spectrum.certificate.held_out, 400);
    assert!(spectrum.certificate.worst_residual() < 1e-3, "{:?}", spectrum.certificate.residual);
    assert!(spectrum.certificate.orthonormality < 0.3);
    assert!(spectrum.certificate.trace_captured > 0.99);
}

#[test]
fn any_operator_with_points_can_be_trained_on() {
    // FᵀF/S of smooth random functions.
    let (n, s) = (400, 6);
    let x = uniform(n, 1, 2.0);
    let f =
        Array2::from_shape_fn((s, n), |(s, i)| (0.5 * (s + 1) as f64 * x[[i, 0]] + s as f64).sin() / (1 + s) as f64);
    let operator = LowRankOperator::new(f.clone()).unwrap();
    let dense = f.t().dot(&f) / (s * n) as f64;
    let exact = mercer::linalg::eigh(Device::Cpu, dense.view()).unwrap().0;
    for (_, kind) in Kind::ALL {
        let k = 3;
        let on_points = OnPoints::new(&operator, x.view()).unwrap();
        let on_data = OnData::new(&on_points).unwrap();
        let functions = kind
            .functions("dense(32, w=0.7) sincos dense(32) sincos dense(1)", 1, k, Device::Cpu, &Rng::new(1))
            .unwrap();
        let objective = kind.objective(&functions, k).unwrap();
        let settings =
            Settings { steps: 300, batch: 128, keep_best: false, patience: usize::MAX, ..Settings::default() };
        let mut trained = train(&on_data, functions, objective, k, &settings, &FitContext::default()).unwrap();
        let sample = on_data.sample(Device::Cpu, &mut Rng::new(2), n).unwrap();
        let pairs = rayleigh_ritz(&on_data, &mut trained.functions, &sample, k).unwrap();
        let found: Vec<f64> = pairs.eigenvalues.iter().map(|μ| on_data.eigenvalue(*μ)).collect();
        assert_close(&found[..2], &exact[..2], 0.02, kind.name());
    }
}

#[test]
fn mistakes_are_named() {
    let x = uniform(30, 1, 1.0);
    let operator = on(&kernel("rbf(1)"), x.view());
    let error = |change: &dyn Fn(&mut Neural), kind: Kind| {
        let mut method = Neural::new(kind);
        change(&mut method);
        message(Spectrum::fit(&method, &Problem::new(&operator, 3), None))
    };
    let net = |text: &str, kind: Kind| error(&|m| m.architecture = Some(text.into()), kind);
    let ef = Kind::NeuralEf { averaged: false };
    for (message, word) in [
        (net("dense(8) rellu dense(1)", ef), "did you mean 'relu'"),
        (net("dense(8) relu dense(2)", ef), "2 outputs"),
        (net("dense(1)", Kind::Ritz), "no hidden layer"),
        (net("dense(2) tanh dense(1)", Kind::Ritz), "2 hidden units"),
        (net("dense(8) tanh | dense(1)", Kind::Spin { decay: 0.9 }), "shared trunk"),
        (error(&|_| {}, Kind::Spin { decay: 1.0 }), "got 1"),
        (error(&|m| m.settings.learning_rate = -1.0, ef), "got -1"),
        (error(&|m| m.settings.learning_rate = f64::NAN, ef), "got NaN"),
        (error(&|m| m.settings.batch = 0, ef), "at least one point"),
    ] {
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn a_shared_trunk_trains_under_every_objective_that_allows_it() {
    let x = uniform(400, 1, 2.0);
    let exact = fit(&Exact, "rbf(1)", x.view(), 3);
    for kind in [Kind::NeuralEf { averaged: true }, Kind::Nested { nesting: None }, Kind::Ritz] {
        let mut method = Neural::new(kind);
        method.architecture = Some("dense(32) sincos l2norm dense(32) sincos | dense(1) l2norm".into());
        method.settings.steps = 200;
        let spectrum = fit(&method, "rbf(1)", x.view(), 3);
        assert_close(&spectrum.eigenvalues[..2], &exact.eigenvalues[..2], 0.02, kind.name());
    }
}
