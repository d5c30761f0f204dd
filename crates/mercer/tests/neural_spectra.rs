//! Neural spectra against the exact spectrum of the same points.

mod common;

use common::{fit_kernel as fit, same_eigenvalues as assert_close, *};
use mercer::operator::{LowRankOperator, OnPoints, Points};
use mercer::spectrum::neural::{
    FunctionOperator, Kind, Neural, NeuralEf, OnData, Ritz, Settings, Spin, Stop, rayleigh_ritz, train,
};
use mercer::spectrum::{Certified, Solution};

fn uniform(n: usize, d: usize, half_width: f64) -> Array2<f64> {
    common::uniform(n, d, half_width, 7)
}

/// The method with so many steps.
fn steps(kind: Kind, steps: u64) -> Neural {
    let mut method = Neural::new(kind);
    method.settings.steps = steps;
    method
}

/// All of so many steps, and the last functions, not the best: the first validation sees untrained ones.
fn all_steps(kind: Kind, count: u64) -> Neural {
    let mut method = steps(kind, count);
    method.settings.keep_best = false;
    method.settings.patience = usize::MAX;
    method
}

fn every_kind() -> impl Iterator<Item = Kind> {
    Kind::all().into_iter()
}

/// The objectives whose functions stand by themselves.
fn own_functions() -> impl Iterator<Item = Kind> {
    every_kind().filter(|kind| !kind.solves_last_layer())
}

/// The first k pairs by the method, of whose eigenvalues the first `count` are within `tolerance` of the exact ones.
fn close_to_exact(method: &Neural, kernel: &str, x: &Array2<f64>, k: usize, count: usize, tolerance: f64) -> Spectrum {
    let (exact, spectrum) = (fit(&Exact, kernel, x.view(), k), fit(method, kernel, x.view(), k));
    assert_close(&spectrum.eigenvalues[..count], &exact.eigenvalues[..count], tolerance, &method.name());
    spectrum
}

#[test]
fn the_first_pairs_are_found() {
    let x = uniform(1024, 1, 2.0);
    let exact = fit(&Exact, "rbf(1)", x.view(), 10).transform(x.view()).unwrap();
    // Pairs, those that are compared, the error of their eigenvalues, and the least |cos| of their functions.
    let mut cases: Vec<_> = every_kind().map(|kind| (all_steps(kind, 600), 6, 3, 0.01, 0.99)).collect();
    cases.extend([0, 100].map(|steps| (all_steps(Kind::Ritz(Ritz), steps), 10, 8, 1e-4, 0.9999)));
    for kind in own_functions() {
        let mut alone = Neural::new(kind);
        (alone.settings.finish, alone.settings.patience) = (false, usize::MAX);
        cases.push((alone, 4, 3, 0.02, 0.995));
    }
    for (method, k, count, tolerance, least) in cases {
        let spectrum = close_to_exact(&method, "rbf(1)", &x, k, count, tolerance);
        let found = spectrum.transform(x.view()).unwrap();
        (0..count).for_each(|j| assert!(cosine(&found, &exact, j) > least, "{} ψ_{}", method.name(), j + 1));
        let (record, steps) = (spectrum.training().unwrap(), method.settings.steps);
        assert_eq!((record.finished, record.steps), (method.settings.finish, steps));
        assert!(steps != 600 || (record.kept, record.stop) == (600, Stop::Budget), "{record:?}");
    }
}

#[test]
fn every_method_finds_the_rank_of_a_polynomial() {
    let x = uniform(600, 1, 1.0);
    for mut method in every_kind().map(Neural::new) {
        method.settings.steps = method.settings.steps.min(300);
        let spectrum = close_to_exact(&method, "poly(degree=4, offset=1.5)", &x, 10, 5, 1e-3);
        has_rank_five(&spectrum, x.view(), &method.name());
    }
}

#[test]
fn eigenvalues_over_eight_orders_of_magnitude() {
    let spectrum = close_to_exact(&Neural::new(Ritz), "rbf(1.5)", &uniform(700, 1, 2.0), 10, 10, 1e-2);
    assert!(spectrum.eigenvalues[9] < 1e-8 * spectrum.eigenvalues[0]);
}

#[test]
fn repeated_eigenvalues_are_told() {
    // A grid that a quarter turn maps to itself: the second and third eigenvalue are one.
    let x = Array2::from_shape_fn((400, 2), |(i, c)| ([i / 20, i % 20][c] as f64 - 9.5) / 5.0);
    let mut method = steps(Kind::Ritz(Ritz), 50);
    method.architecture = Some("dense(64) sincos dense(128) sincos dense(1)".into());
    let spectrum = close_to_exact(&method, "rbf(1)", &x, 6, 6, 1e-4);
    assert_eq!(spectrum.certificate.standing[..3], [Standing::Simple, Standing::Repeated, Standing::Repeated]);
    // Trained functions meet the two in any order; their span is what counts.
    close_to_exact(&steps(Kind::NeuralEf(NeuralEf::Joint), 400), "rbf(1)", &x, 3, 3, 0.02);
}

#[test]
fn few_points_few_functions_large_batches() {
    for (n, k) in [(1, 1), (2, 2), (5, 1), (5, 5), (40, 1)] {
        let x = uniform(n, 2, 1.0);
        for kind in every_kind() {
            for finish in [true, false] {
                if !finish && kind.solves_last_layer() {
                    continue;
                }
                let mut method = steps(kind, 20);
                method.settings.finish = finish;
                let compared = if finish && n <= 5 && k == n { k } else { 0 };
                let spectrum = close_to_exact(&method, "rbf(0.5)", &x, k, compared, 1e-3);
                assert!(spectrum.eigenvalues.iter().all(|v| v.is_finite()));
                assert!(spectrum.transform(x.view()).unwrap().iter().all(|v| v.is_finite()));
                let record = spectrum.training().unwrap();
                assert_eq!(record.batch, n.min(256));
                assert!(record.notes.iter().any(|note| note.contains("a batch of 256")), "{:?}", record.notes);
            }
        }
    }
}

#[test]
fn a_kernel_that_vanishes_has_no_pairs() {
    let x = Array2::zeros((30, 1));
    for kind in every_kind() {
        assert_eq!(fit(&steps(kind, 10), "linear", x.view(), 3).eigenvalues, [0.0; 3], "{kind:?}");
    }
}

#[test]
fn data_far_from_the_origin_and_of_any_size_trains_alike() {
    let x = uniform(300, 1, 2.0);
    let near = fit(&Neural::new(Ritz), "rbf(1)", x.view(), 5);
    let far = (&x + 1e4) * 1e3;
    let far = fit(&Neural::new(Ritz), "rbf(1000)", far.view(), 5);
    assert_close(&far.eigenvalues, &near.eigenvalues, 1e-5, "shifted and scaled");
}

#[test]
fn a_spectrum_is_saved_and_loaded_with_its_networks() {
    let (x, new) = (uniform(300, 2, 1.0), uniform(50, 2, 1.5));
    for method in every_kind().map(|kind| steps(kind, 30)) {
        let spectrum = fit(&method, "rbf(1)", x.view(), 4);
        let back = reloaded(&spectrum);
        assert_eq!(back.origin.method, method.name());
        assert_eq!(back.transform(new.view()).unwrap(), spectrum.transform(new.view()).unwrap());
        assert_eq!(back.transform(Array2::zeros((0, 2)).view()).unwrap().dim(), (0, 4));
    }
}

#[test]
fn certificates_of_neural_spectra_are_measured() {
    let (x, held_out) = (uniform(800, 1, 2.0), common::uniform(400, 1, 2.0, 99));
    let operator = on(&kernel("rbf(1)"), x.view());
    let certificate = fit_held_out(&Neural::new(Ritz), &operator, 5, held_out.view()).certificate;
    assert_eq!(certificate.held_out, 400);
    assert!(certificate.worst_residual() < 1e-3, "{:?}", certificate.residual);
    assert!(certificate.orthonormality < 0.3);
    assert!(certificate.trace_captured > 0.99);
}

#[test]
fn any_operator_with_points_can_be_trained_on() {
    // FᵀF/S of smooth random functions.
    let (n, s, k) = (400, 6, 3);
    let x = uniform(n, 1, 2.0);
    let f =
        Array2::from_shape_fn((s, n), |(s, i)| (0.5 * (s + 1) as f64 * x[[i, 0]] + s as f64).sin() / (1 + s) as f64);
    let operator = LowRankOperator::new(f.clone()).unwrap();
    let dense = f.t().dot(&f) / (s * n) as f64;
    let exact = mercer::linalg::eigh(Device::Cpu, dense.view()).unwrap().0;
    let on_points = OnPoints::new(&operator, x.view()).unwrap();
    let on_data = OnData::new(&on_points).unwrap();
    let architecture = "dense(32, w=0.7) sincos dense(32) sincos dense(1)";
    for kind in every_kind() {
        let settings =
            Settings { steps: 300, batch: 128, keep_best: false, patience: usize::MAX, ..Settings::default() };
        let functions = kind.functions(architecture, 1, k, Device::Cpu, &Rng::new(1)).unwrap();
        let objective = kind.objective(&functions, k).unwrap();
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
    let ef = Kind::NeuralEf(NeuralEf::Joint);
    for (message, word) in [
        (net("dense(8) rellu dense(1)", ef), "did you mean 'relu'"),
        (net("dense(8) relu dense(2)", ef), "2 outputs"),
        (net("dense(1)", Kind::Ritz(Ritz)), "no hidden layer"),
        (net("dense(2) tanh dense(1)", Kind::Ritz(Ritz)), "2 hidden units"),
        (net("dense(8) tanh | dense(1)", Kind::Spin(Spin { decay: 0.9 })), "shared trunk"),
        (error(&|m| m.settings.finish = false, Kind::Ritz(Ritz)), "ritz trains a span"),
        (error(&|_| {}, Kind::Spin(Spin { decay: 1.0 })), "got 1"),
        (error(&|m| m.settings.learning_rate = -1.0, ef), "got -1"),
        (error(&|m| m.settings.learning_rate = f64::NAN, ef), "got NaN"),
        (error(&|m| m.settings.batch = 0, ef), "at least one point"),
    ] {
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn a_shared_trunk_trains_under_every_objective_that_allows_it() {
    for kind in every_kind() {
        let mut method = steps(kind, 200);
        method.architecture = Some("dense(32) sincos l2norm dense(32) sincos | dense(1) l2norm".into());
        close_to_exact(&method, "rbf(1)", &uniform(400, 1, 2.0), 3, 2, 0.02);
    }
}

/// Mean residual on held-out digits after `count` steps, the last functions taken.
fn on_digits(kind: Kind, count: u64) -> f64 {
    let digits = mercer::data::digits();
    let x = digits.x.to_f64();
    let (x, held_out) = (x.slice(s![..800, ..]), x.slice(s![800..1100, ..]));
    let operator = on(&kernel("rbf(25)"), x);
    fit_held_out(&all_steps(kind, count), &operator, 8, held_out).certificate.mean_residual()
}

#[test]
fn the_usual_objectives_reach_what_the_published_ones_do_not() {
    let pairs: [[Kind; 2]; 2] =
        [[Spin::default().into(), Spin::PUBLISHED.into()], [NeuralEf::default().into(), NeuralEf::Published.into()]];
    for kinds in pairs {
        let [usual, published] = kinds.map(|kind| on_digits(kind, 400));
        assert!(usual < 0.15 && published > 1.5 * usual, "{kinds:?}: {usual} {published}");
    }
}

#[test]
fn without_a_finish_training_is_validated_by_the_functions_themselves() {
    // Fewer points than a validation takes: it sees all of them.
    let x = uniform(300, 1, 2.0);
    let k = matrix(&kernel("rbf(1)"), x.view()) / 300.0;
    for kind in own_functions() {
        let mut method = steps(kind, 100);
        method.settings.finish = false;
        let spectrum = fit(&method, "rbf(1)", x.view(), 4);
        let record = spectrum.training().unwrap();
        let kept = record.validation.iter().find(|v| v[0] == record.kept as f64).unwrap()[1];
        assert!(record.validation.iter().all(|v| v[1] >= kept), "{kind:?}: {:?}", record.validation);
        let psi = spectrum.transform(x.view()).unwrap();
        let image = k.dot(&psi);
        let residual = |j: usize| {
            let (psi, μ) = (psi.column(j), spectrum.eigenvalues[j]);
            let error = &image.column(j) - &(μ * &psi);
            (error.dot(&error) / psi.dot(&psi)).sqrt() / μ
        };
        let mean = (0..4).map(|j| residual(j).min(1.0)).sum::<f64>() / 4.0;
        // What functions share with earlier ones counts as well.
        assert!(kept > 0.999 * mean && kept < 2.0 * mean, "{kind:?}: validated {kept}, measured {mean}");
    }
}

/// Says that the exact functions are the untrained ones.
struct Worsened;

impl Method for Worsened {
    fn name(&self) -> String {
        "worsened".into()
    }

    fn solve(&self, problem: &Problem) -> mercer::Result<Solution> {
        let mut found = steps(NeuralEf::default().into(), 20).solve(problem)?;
        found.networks.as_mut().unwrap().untrained = Some(Box::new(Exact.solve(problem)?));
        Ok(found)
    }

    fn certify(&self, problem: &Problem, found: Solution, held_out: Option<Points<'_>>) -> mercer::Result<Certified> {
        steps(NeuralEf::default().into(), 20).certify(problem, found, held_out)
    }
}

#[test]
fn training_that_makes_held_out_points_worse_is_told_and_undone() {
    let (x, held_out) = (uniform(200, 1, 2.0), common::uniform(100, 1, 2.0, 99));
    let operator = on(&kernel("rbf(1)"), x.view());
    let exact = fit_held_out(&Exact, &operator, 3, held_out.view());
    let spectrum = fit_held_out(&Worsened, &operator, 3, held_out.view());
    assert_eq!((&spectrum.eigenvalues, &spectrum.certificate), (&exact.eigenvalues, &exact.certificate));
    let record = spectrum.training().unwrap();
    assert_eq!(record.kept, 0);
    assert!(record.notes.iter().any(|note| note.contains("worse")), "{:?}", record.notes);
    // Better, or no held-out points to tell: nothing is said.
    let method = steps(NeuralEf::default().into(), 200);
    let better = fit_held_out(&method, &operator, 3, held_out.view());
    let unknown = Spectrum::fit(&Worsened, &Problem::new(&operator, 3), None).unwrap();
    for spectrum in [better, unknown] {
        let record = spectrum.training().unwrap();
        assert!(record.kept > 0 && record.notes.iter().all(|note| !note.contains("worse")), "{record:?}");
    }
}

/// Steps so long that they lead away, and the last functions are asked for.
#[test]
fn last_functions_that_are_worse_than_the_first_are_told() {
    let mut method = all_steps(Kind::NeuralEf(NeuralEf::Joint), 20);
    method.settings.learning_rate = 10.0;
    let spectrum = fit(&method, "rbf(1)", uniform(300, 1, 2.0).view(), 4);
    let record = spectrum.training().unwrap();
    assert!(record.notes.iter().any(|note| note.contains("worse")), "{record:?}");
}
