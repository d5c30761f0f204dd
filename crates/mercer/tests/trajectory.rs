//! Trajectories of training: snapshots, SWA, SWAG and the kernel of the snapshots' functions, against dense computations.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::{labels, of_numbers, says};
use mercer::apply::{Predict, Saved, softmax_rows};
use mercer::classifier::{Cases, Classifier, Measure, Settings as Training, Snapshots, Stop, snapshot_files, train};
use mercer::data::Dataset;
use mercer::linalg::eigh;
use mercer::operator::{FunctionSamples, LowRankOperator};
use mercer::rng::Rng;
use mercer::spectrum::{Exact, Problem, Spectrum};
use mercer::trajectory::{FittedTrajectory, Method, Predictive, Settings, Swag, Trajectory};
use mercer::{Device, FitContext, Interrupt, data};
use ndarray::{Array1, Array2, Array3, Axis, CowArray, Ix2, s};
use neural::Stopper;
use std::path::Path;
use std::sync::Arc;

const NET: &str = "dense(12) bn tanh dense(10)";

/// Few digits to learn, others to validate on.
fn digits() -> (Dataset, Dataset) {
    let (fit, other) = data::digits().with_classes().unwrap().split(0.3, 0).unwrap();
    let some = |data: Dataset, n: usize| data.select(&(0..n).collect::<Vec<_>>());
    (some(fit, 300), some(other, 150))
}

fn training(folder: &Path) -> Training {
    let snapshots = Snapshots { every: Some(6), from: 0.5, ..Snapshots::new(folder) };
    Training { epochs: 8, batch: 32, learning_rate: 0.1, snapshots: Some(snapshots), ..Training::default() }
}

fn run(folder: &Path, net: &str, seed: u64) -> Trajectory {
    let (fit, _) = digits();
    let start = Classifier::new(net, &fit, Device::Cpu, seed).unwrap();
    train(start, &fit, None, &Training { seed, ..training(folder) }, &FitContext::default(), &|_| ()).unwrap();
    Trajectory::open(folder, Device::Cpu).unwrap()
}

fn trajectory() -> Trajectory {
    run(tempfile::tempdir().unwrap().path(), NET, 0)
}

/// The parameters `[M, P]` of the snapshots.
fn parameters(folder: &Path) -> Array2<f64> {
    let load = |file: &std::path::PathBuf| Classifier::load(file, Device::Cpu, None).unwrap();
    let rows: Vec<Vec<f32>> =
        snapshot_files(folder).unwrap().iter().map(|f| load(f).parameters.trained.to_host().unwrap()).collect();
    Array2::from_shape_fn((rows.len(), rows[0].len()), |(i, j)| f64::from(rows[i][j]))
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    snapshot_files(folder).unwrap().iter().map(|file| (name(file), std::fs::read(file).unwrap())).collect()
}

#[test]
fn an_interrupted_run_keeps_its_snapshots_and_a_resumed_one_writes_the_same() {
    let (fit, _) = digits();
    let start = || Classifier::new(NET, &fit, Device::Cpu, 0).unwrap();
    let (whole, parts, state) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let done = train(start(), &fit, None, &training(whole.path()), &FitContext::default(), &|_| ()).unwrap();
    // 80 steps: after 40, counted from the last.
    let names: Vec<String> = contents(whole.path()).into_iter().map(|(name, _)| name).collect();
    let want: Vec<String> = (44..=80).step_by(6).map(|step| format!("step-{step:08}.safetensors")).collect();
    assert_eq!((done.steps, names), (80, want));
    let last = Classifier::load(&snapshot_files(whole.path()).unwrap()[6], Device::Cpu, None).unwrap();
    let numbers = |c: &Classifier| (c.parameters.trained.to_host().unwrap(), c.parameters.constants.to_host().unwrap());
    assert_eq!(numbers(&last), numbers(&done.classifier));
    let checkpoint = Some(state.path().join("state"));
    let settings = Training { checkpoint, resume: true, ..training(parts.path()) };
    let mut counts = vec![];
    loop {
        let flag = Interrupt::new();
        let epoch = |_: &mercer::classifier::Epoch| {
            flag.request();
        };
        let context = FitContext { progress: &Stopper(&flag), interrupt: Some(&flag), ..FitContext::default() };
        let part = train(start(), &fit, None, &settings, &context, &epoch).unwrap();
        counts.push(snapshot_files(parts.path()).unwrap().len());
        if part.stop == Stop::Budget {
            break;
        }
    }
    assert!(counts.len() > 2 && counts.windows(2).all(|pair| pair[0] <= pair[1]), "{counts:?}");
    // The same networks; the entries of a file's header have no order.
    for (part, whole) in snapshot_files(parts.path()).unwrap().iter().zip(snapshot_files(whole.path()).unwrap()) {
        assert_eq!(part.file_name(), whole.file_name());
        let load = |file: &Path| numbers(&Classifier::load(file, Device::Cpu, None).unwrap());
        assert_eq!(load(part), load(&whole), "{part:?}");
    }
    assert_eq!(contents(parts.path()).len(), 7);
    // A folder in use is not mixed with another run, and other snapshots make another run.
    says(
        train(start(), &fit, None, &training(whole.path()), &FitContext::default(), &|_| ()),
        &["holds networks already"],
    );
    let other = Training { snapshots: None, ..settings };
    says(train(start(), &fit, None, &other, &FitContext::default(), &|_| ()), &["another run", "snapshots"]);
}

#[test]
fn averages_and_moments_are_those_of_the_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let (trajectory, theta) = (run(folder.path(), NET, 0), parameters(folder.path()));
    let (m, p) = theta.dim();
    assert_eq!((m, trajectory.count()), (7, 7));
    let swag = Swag::of(&trajectory, 4).unwrap();
    let mean = theta.mean_axis(Axis(0)).unwrap();
    let variances = theta.var_axis(Axis(0), 0.0);
    let close = |a: &Array1<f64>, b: &Array1<f64>| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(close(&swag.mean, &mean) && close(&swag.variances, &variances));
    assert_eq!(swag.deviations.len(), 4);
    for (j, deviation) in swag.deviations.iter().enumerate() {
        let i = m - 4 + j;
        let so_far = theta.slice(s![..=i, ..]).mean_axis(Axis(0)).unwrap();
        assert!(close(deviation, &(&theta.row(i) - &so_far)), "{j}");
    }
    // The covariance of draws: Σ/2 + DDᵀ/(2(K−1)).
    let mut rng = Rng::new(1);
    let draws: Vec<Array1<f64>> = (0..4000).map(|_| swag.draw(&mut rng) - &mean).collect();
    for (a, b) in [(0, 0), (3, 3), (p - 1, p - 1), (3, 4), (p - 2, p - 1)] {
        let product = |d: &Array1<f64>| d[a] * d[b];
        let found = draws.iter().map(product).sum::<f64>() / draws.len() as f64;
        let low_rank: f64 = swag.deviations.iter().map(product).sum::<f64>() / 6.0;
        let want = low_rank + if a == b { variances[a] / 2.0 } else { 0.0 };
        let scale =
            |i: usize| (variances[i] / 2.0 + swag.deviations.iter().map(|d| d[i] * d[i]).sum::<f64>() / 6.0).sqrt();
        assert!((found - want).abs() < 0.1 * scale(a) * scale(b), "{a} {b}: {found} {want}");
    }
    // SWA: the mean of the weights, and the statistics of batch norm at rows in batches of 256.
    let (fit, _) = digits();
    let average = trajectory.average(fit.x.to_f64().view()).unwrap();
    assert!(average.parameters.trained.to_host().unwrap().iter().zip(&mean).all(|(a, b)| *a == *b as f32));
    let tensors = average.network.tensors(&average.parameters).unwrap();
    let tensor = |name: &str| {
        tensors.iter().find(|t| t.name == name).map(|t| t.data.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>())
    };
    let weights = Array2::from_shape_vec((12, 64), tensor("fc1.weight").unwrap()).unwrap();
    let bias = tensor("fc1.bias").map_or(Array1::zeros(12), Array1::from_vec);
    let standard = average.standardizer.apply(fit.x.to_f64().view(), Device::Cpu).unwrap().to_host().unwrap();
    let x = Array2::from_shape_fn((300, 64), |(i, j)| f64::from(standard[64 * i + j]));
    let hidden = x.dot(&weights.t()) + &bias;
    let (first, rest) = (hidden.slice(s![..256, ..]), hidden.slice(s![256.., ..]));
    let shared = |of: fn(&ndarray::ArrayView2<f64>) -> Array1<f64>| (of(&first) * 256.0 + of(&rest) * 44.0) / 300.0;
    let want = [shared(|h| h.mean_axis(Axis(0)).unwrap()), shared(|h| h.var_axis(Axis(0), 0.0))];
    let found = average.parameters.constants.to_host().unwrap();
    for (found, want) in found.iter().zip(want.iter().flatten()) {
        assert!((f64::from(*found) - want).abs() < 1e-4 * want.abs().max(1.0), "{found} {want}");
    }
    says(Swag::of(&trajectory, 1), &["two snapshots"]);
}

/// The kernel `[n·C, n·C]` of the functions of outputs `[M, n, C]`, term by term.
fn dense_kernel(g: &Array3<f64>) -> Array2<f64> {
    let (m, n, c) = g.dim();
    let mean = g.mean_axis(Axis(0)).unwrap();
    let gap = |i: usize, at: usize| g[[i, at / c, at % c]] - mean[[at / c, at % c]];
    let entry = |(a, b): (usize, usize)| (0..m).map(|i| gap(i, a) * gap(i, b)).sum::<f64>() / m as f64;
    Array2::from_shape_fn((n * c, n * c), entry)
}

fn outputs(trajectory: &Trajectory, x: &CowArray<f64, Ix2>) -> Array3<f64> {
    trajectory.outputs(x.view(), &FitContext::default()).unwrap()
}

#[test]
fn eigenfunctions_are_those_of_the_dense_kernel() {
    let (trajectory, (mut fit, other)) = (trajectory(), digits());
    fit = fit.select(&(0..20).collect::<Vec<_>>());
    let kernel = dense_kernel(&outputs(&trajectory, &fit.x.to_f64()));
    let (values, vectors) = eigh(Device::Cpu, (&kernel / 200.0).view()).unwrap();
    let settings = Settings { rows: 1000, ..Settings::new(Method::Eigenfunctions { functions: 4 }) };
    let fitted = settings.fit(&trajectory, &fit, &other, &FitContext::default()).unwrap();
    for (found, want) in fitted.eigenvalues().iter().zip(&values) {
        assert!((found - want).abs() < 1e-9 * values[0], "{found} {want}");
    }
    // At the fitted rows the covariance is that of the four pairs, and its mean ḡ; with all six, the kernel itself.
    let rank = |k: usize| {
        let u = vectors.slice(s![.., ..k]);
        let scaled = &u * &Array1::from_iter(values[..k].iter().map(|v| v * 200.0));
        scaled.dot(&u.t())
    };
    let whole = Settings { rows: 1000, ..Settings::new(Method::Eigenfunctions { functions: 6 }) };
    let whole = whole.fit(&trajectory, &fit, &other, &FitContext::default()).unwrap();
    for (fitted, want) in [(&fitted, rank(4)), (&whole, kernel.clone())] {
        let (mean, covariance) = fitted.moments(fit.x.to_f64().view()).unwrap().unwrap();
        let g = outputs(&trajectory, &fit.x.to_f64()).mean_axis(Axis(0)).unwrap();
        assert!((mean - g).iter().all(|gap| gap.abs() < 1e-9));
        for i in 0..20 {
            let block = want.slice(s![10 * i..10 * i + 10, 10 * i..10 * i + 10]);
            let gap = &covariance.index_axis(Axis(0), i) / fitted.found.value - block;
            assert!(gap.iter().all(|gap| gap.abs() < 1e-8 * values[0] * 200.0), "{i}");
        }
    }
    // The samples are those of any low-rank kernel: its spectrum is the same, and orthonormal.
    let f = trajectory.samples(fit.x.to_f64().view(), &FitContext::default()).unwrap();
    let operator = LowRankOperator::of_samples(&FunctionSamples::from(f.view()), false).unwrap();
    let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 4), None).unwrap();
    assert!(spectrum.eigenvalues.iter().zip(fitted.eigenvalues()).all(|(a, b)| (a - b).abs() < 1e-12 * values[0]));
    let psi = spectrum.transform(&FunctionSamples::from(f.view())).unwrap();
    let gram = psi.t().dot(&psi) / 200.0;
    assert!((gram - Array2::<f64>::eye(4)).iter().all(|gap| gap.abs() < 1e-9));
}

/// With as many hidden units as rows every function on the rows is in their span: Ritz is exact there.
#[test]
fn ritz_functions_are_exact_where_hidden_units_span_everything_and_smaller_elsewhere() {
    let (folder, (mut fit, other)) = (tempfile::tempdir().unwrap(), digits());
    let trajectory = run(folder.path(), "dense(60) tanh dense(10)", 1);
    fit = fit.select(&(0..25).collect::<Vec<_>>());
    let settings = |method| Settings { rows: 1000, predictive: Predictive::Probit, ..Settings::new(method) };
    let fitted = |method| settings(method).fit(&trajectory, &fit, &other, &FitContext::default()).unwrap();
    let (exact, ritz) = (fitted(Method::Eigenfunctions { functions: 3 }), fitted(Method::Ritz { functions: 3 }));
    assert_eq!((exact.passes(), ritz.passes()), (trajectory.count(), 1));
    let largest = exact.eigenvalues()[0];
    assert!(exact.eigenvalues().iter().zip(ritz.eigenvalues()).all(|(a, b)| (a - b).abs() < 1e-4 * largest));
    let [(_, a), (mean, b)] = [&exact, &ritz].map(|fitted| fitted.moments(fit.x.to_f64().view()).unwrap().unwrap());
    let scale = (&a / exact.found.value).iter().fold(0.0f64, |most, v| most.max(v.abs()));
    let gap = a / exact.found.value - b / ritz.found.value;
    assert!(gap.iter().all(|gap| gap.abs() < 1e-3 * scale));
    // Its mean is SWA's.
    let average =
        trajectory.average(fit.x.to_f64().view()).unwrap().logits(fit.x.to_f64().view()).unwrap().mapv(f64::from);
    assert!((mean - average).iter().all(|gap| gap.abs() < 1e-4));
    // Few units for many rows: a projection.
    let (fit, other) = digits();
    let few = |method| settings(method).fit(&self::trajectory(), &fit, &other, &FitContext::default()).unwrap();
    let (exact, ritz) = (few(Method::Eigenfunctions { functions: 4 }), few(Method::Ritz { functions: 4 }));
    let sum = |fitted: &FittedTrajectory| fitted.eigenvalues().iter().sum::<f64>();
    assert!(sum(&ritz) <= sum(&exact) && sum(&ritz) > 0.2 * sum(&exact), "{} {}", sum(&ritz), sum(&exact));
}

#[test]
fn the_scale_and_the_temperature_have_the_least_loss() {
    let (trajectory, (fit, other)) = (trajectory(), digits());
    let loss = |fitted: &FittedTrajectory| {
        Cases::of(fitted.scores(other.x.to_f64().view()).unwrap().view(), labels(&mut other.clone()))
            .measure(Measure::Nll)
    };
    for predictive in [Predictive::Probit, Predictive::Sampling { count: 40 }] {
        for method in [Method::Eigenfunctions { functions: 4 }, Method::Ritz { functions: 4 }] {
            let settings = Settings { predictive, ..Settings::new(method) };
            let mut fitted = settings.fit(&trajectory, &fit, &other, &FitContext::default()).unwrap();
            let (least, best) = (loss(&fitted), fitted.found.value);
            assert!((least - fitted.found.loss).abs() < 1e-9);
            for factor in [0.5, 0.9, 1.1, 2.0] {
                fitted.found.value = best * factor;
                assert!(loss(&fitted) >= least - 1e-6, "{method:?} {factor}");
            }
            fitted.found.value = best;
            let scores = fitted.scores(other.x.to_f64().view()).unwrap();
            fitted.temper(scores.view(), &other).unwrap();
            let (least, t) = (loss(&fitted), fitted.temperature);
            for factor in [0.8, 1.0 / t, 1.2] {
                fitted.temperature = t * factor;
                assert!(loss(&fitted) >= least - 1e-6, "{method:?} {factor}");
            }
        }
    }
}

/// Fits on choices of the validation rows are those with these rows alone.
#[test]
fn fits_on_halves_are_those_with_each_half_alone() {
    let (trajectory, (fit, mut other)) = (trajectory(), digits());
    let halves = [(0..other.n()).step_by(2).collect::<Vec<_>>(), (1..other.n()).step_by(2).collect()];
    // Wrong classes in one half only: it asks for far more doubt.
    halves[1].iter().step_by(3).for_each(|&row| labels(&mut other)[row] = (labels(&mut other)[row] + 1) % 10);
    for method in [Method::Swa, Method::Eigenfunctions { functions: 4 }, Method::Ritz { functions: 4 }] {
        let settings = Settings { predictive: Predictive::Probit, ..Settings::new(method) };
        let context = FitContext::default();
        let fits = settings.fit_on(&trajectory, &fit, &other, &halves, &context).unwrap();
        for (fitted, rows) in fits.iter().zip(&halves) {
            let alone = settings.fit(&trajectory, &fit, &other.select(rows), &context).unwrap();
            assert!((fitted.found.value / alone.found.value - 1.0).abs() < 1e-9, "{method:?}");
        }
        assert_eq!(fits[0].found.value != fits[1].found.value, method.functions().is_some(), "{method:?}");
    }
}

#[test]
fn networks_are_averaged_and_files_hold_every_method() {
    let (trajectory, (fit, other)) = (trajectory(), digits());
    let g = outputs(&trajectory, &other.x.to_f64());
    let p = g.outer_iter().map(|g| softmax_rows(g.to_owned())).fold(Array2::<f64>::zeros((150, 10)), |sum, p| sum + p)
        / 7.0;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.mercer");
    let swag = Method::Swag { draws: 3, rank: 4 };
    let functions = 3;
    for (method, passes) in [
        (Method::Last, 1),
        (Method::Swa, 1),
        (swag, 3),
        (Method::Networks, 7),
        (Method::Eigenfunctions { functions }, 7),
        (Method::Ritz { functions }, 1),
    ] {
        let mut fitted = Settings::new(method).fit(&trajectory, &fit, &other, &FitContext::default()).unwrap();
        let scores = fitted.scores(other.x.to_f64().view()).unwrap();
        fitted.temper(scores.view(), &other).unwrap();
        assert_eq!(fitted.passes(), passes, "{method:?}");
        let found = fitted.probabilities(scores.view()).unwrap();
        match method {
            Method::Networks => assert!((found - &p).iter().all(|gap| gap.abs() < 1e-12)),
            Method::Last => assert!((scores - g.index_axis(Axis(0), 6)).iter().all(|gap| gap.abs() < 1e-12)),
            _ => assert!(
                Cases::of(scores.view(), labels(&mut other.clone())).measure(Measure::Accuracy) > 0.8,
                "{method:?}"
            ),
        }
        fitted.save(&path).unwrap();
        let loaded = FittedTrajectory::load(&path, Device::Cpu).unwrap();
        let (ours, theirs) =
            (fitted.scores(other.x.to_f64().view()).unwrap(), loaded.scores(other.x.to_f64().view()).unwrap());
        assert_eq!(ours, theirs, "{method:?}");
        assert_eq!((loaded.method, loaded.temperature, &loaded.found), (method, fitted.temperature, &fitted.found));
        assert_eq!(fitted.origin(), loaded.origin());
    }
}

#[test]
fn what_does_not_fit_is_said_in_a_sentence() {
    let (trajectory, (fit, other)) = (trajectory(), digits());
    let fitted = |method| Settings::new(method).fit(&trajectory, &fit, &other, &FitContext::default());
    says(fitted(Method::Eigenfunctions { functions: 7 }), &["7 eigenfunctions", "the 6 that 7 snapshots span"]);
    says(fitted(Method::Ritz { functions: 0 }), &["at least one eigenfunction"]);
    says(fitted(Method::Swag { draws: 0, rank: 4 }), &["at least one draw"]);
    let folder = tempfile::tempdir().unwrap();
    says(Trajectory::open(folder.path(), Device::Cpu), &["no networks"]);
    says(Trajectory::open(&folder.path().join("missing"), Device::Cpu), &["missing"]);
    let network = |net: &str| Classifier::new(net, &fit, Device::Cpu, 0).unwrap();
    network(NET).save(&folder.path().join("a.safetensors")).unwrap();
    says(Trajectory::open(folder.path(), Device::Cpu), &["single network"]);
    network("dense(5) relu dense(10)").save(&folder.path().join("b.safetensors")).unwrap();
    says(Trajectory::open(folder.path(), Device::Cpu), &["network 2", "dense(5)", "one architecture"]);
    let mut other = network(NET);
    other.classes.reverse();
    says(Trajectory::of(vec![Arc::new(network(NET)), Arc::new(other)]), &["other classes"]);
    let numbers = of_numbers(fit.x.clone().into_f64(), fit.x.column(20));
    let number = || Arc::new(Classifier::new("dense(3) tanh dense(1)", &numbers, Device::Cpu, 0).unwrap());
    says(Trajectory::of(vec![number(), number()]), &["predict a number"]);
    let flat = || Arc::new(network("dense(10)"));
    let flat = Trajectory::of(vec![flat(), flat()]).unwrap();
    let ritz = Settings::new(Method::Ritz { functions: 1 }).fit(&flat, &fit, &fit, &FitContext::default());
    says(ritz, &["no hidden layer"]);
    let mut bad = fit.x.select(&[0, 1]).into_f64();
    bad[[1, 3]] = f64::NAN;
    says(fitted(Method::Swa).unwrap().scores(bad.view()), &["row 2", "NaN"]);
}
