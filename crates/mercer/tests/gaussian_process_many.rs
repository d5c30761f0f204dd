//! Gaussian processes for many points (conjugate gradients), on sampled functions, and with kernels of infinite networks, against the dense
//! posterior.

mod common;

use common::*;
use mercer::apply::{
    FeatureProcess, Fit, FittedGaussianProcess, FittedIterativeProcess, FittedProcess, GaussianProcess,
    GaussianProcessClassifier, IntervalReport, IterativeProcess, Predict, ProcessFeatures, Saved, Tuning,
};
use mercer::data::Target;
use mercer::kernel::Expression;
use mercer::linalg::Cholesky;
use mercer::operator::Budget;
use mercer::{Interrupt, Progress};

/// A wavy function of two columns with noise of standard deviation 0.3, at n points.
fn waves(n: usize, seed: u64) -> (Array2<f64>, Vec<f64>) {
    let x = uniform(n, 2, 3.0, seed);
    let mut rng = Rng::new(seed + 1);
    let y = x.rows().into_iter().map(|x| 5.0 + (2.0 * x[0]).sin() + (x[0] * x[1]).cos() + 0.3 * rng.normal()).collect();
    (x, y)
}

fn iterative(text: &str, rank: Option<usize>, x: ArrayView2<f64>, y: &[f64]) -> FittedIterativeProcess {
    let process = IterativeProcess::new(Expression::parse(text).unwrap());
    let tuning = Tuning { restarts: 0, rows: 150, ..process.tuning };
    let process = IterativeProcess { tuning, rank, ..process };
    process.fit(x, &Target::Values(y.to_vec()), &FitContext::default()).unwrap()
}

/// The dense posterior of a kernel with this noise: mean and variance at `new`, and `log p(y)`.
fn dense(
    kernel: &Kernel,
    noise: f64,
    x: ArrayView2<f64>,
    y: &[f64],
    new: ArrayView2<f64>,
) -> (Array1<f64>, Array1<f64>, f64) {
    let n = y.len();
    let mut a = gram::<f64>(kernel, x, Device::Cpu).unwrap();
    a.diag_mut().mapv_inplace(|k| k + noise);
    let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
    let mean = y.iter().sum::<f64>() / n as f64;
    let centred = Array2::from_shape_fn((n, 1), |(i, _)| y[i] - mean);
    let solved = factor.solve(centred.view()).unwrap();
    let cross = gram_cross::<f64>(kernel, x, new, Device::Cpu).unwrap();
    let known = (&cross * &factor.solve(cross.view()).unwrap()).sum_axis(Axis(0));
    let l = factor.lower().unwrap();
    let determinant: f64 = (0..n).map(|i| 2.0 * l[(i, i)].ln()).sum();
    let likelihood = -0.5 * ((&centred * &solved).sum() + determinant + n as f64 * std::f64::consts::TAU.ln());
    (cross.t().dot(&solved).column(0).to_owned() + mean, kernel.diagonal(new) - known, likelihood)
}

/// With a preconditioner of low rank: the mean is that of the dense posterior, variances are not below its, the likelihood is its within
/// the standard error, and the amplitude and the noise are where it is largest, within theirs.
#[test]
fn conjugate_gradients_give_the_dense_posterior() {
    let ((x, y), new) = (waves(700, 1), uniform(40, 2, 3.0, 3));
    let fitted = iterative("matern32(auto)", Some(60), x.view(), &y);
    let (mean, variance, likelihood) = dense(fitted.kernel(), fitted.noise, x.view(), &y, new.view());
    let scores = fitted.scores(new.view()).unwrap();
    assert!(
        (&scores.column(0) - &mean).iter().all(|d| d.abs() < 1e-4),
        "{}",
        worst(&scores, &mean.insert_axis(Axis(1)))
    );
    let ours = fitted.variance(new.view()).unwrap();
    assert!(ours.iter().zip(&variance).all(|(a, b)| *a >= b - 1e-9), "{ours} {variance}");
    assert!(excess(&ours, &variance, fitted.noise) < 0.01 && fitted.excess < 0.01, "{}", fitted.excess);
    let error = (fitted.likelihood - likelihood).abs();
    assert!(fitted.likelihood_error < 5.0, "{}", fitted.likelihood_error);
    assert!(error < 4.0 * fitted.likelihood_error + 0.05, "{error} {}", fitted.likelihood_error);
    assert!(fitted.residual <= 1e-6 && fitted.iterations > 3, "{} {}", fitted.residual, fitted.iterations);
    // No better amplitude and noise, but for the noise of the gradient.
    for (c, s) in [(1.1, 1.0), (1.0 / 1.1, 1.0), (1.0, 1.1), (1.0, 1.0 / 1.1), (1.1, 1.1), (1.1, 1.0 / 1.1)] {
        let kernel = Kernel::Scale(c, Box::new(fitted.kernel().clone()));
        let other = dense(&kernel, s * fitted.noise, x.view(), &y, new.view()).2;
        assert!(other < likelihood + 0.05, "{c} {s}: {other} {likelihood}");
    }
}

/// With a preconditioner of full rank nothing is random, and everything is that of the exact process, left-out rows too.
#[test]
fn full_rank_is_the_exact_process() {
    let ((x, y), new) = (waves(120, 4), uniform(15, 2, 3.0, 5));
    let ours = iterative("rbf(auto)", Some(120), x.view(), &y);
    let process = GaussianProcess::new(Expression::parse("rbf(auto)").unwrap());
    let process = GaussianProcess { tuning: Tuning { restarts: 0, ..process.tuning }, ..process };
    let exact: FittedGaussianProcess =
        process.fit(x.view(), &Target::Values(y.clone()), &FitContext::default()).unwrap();
    assert!((ours.noise / exact.noise - 1.0).abs() < 1e-3, "{} {}", ours.noise, exact.noise);
    assert!((ours.likelihood - exact.likelihood).abs() < 1e-3, "{} {}", ours.likelihood, exact.likelihood);
    assert!(ours.likelihood_error < 1e-3 && ours.excess < 1e-3, "{} {}", ours.likelihood_error, ours.excess);
    assert!(worst(&ours.scores(new.view()).unwrap(), &exact.scores(new.view()).unwrap()) < 1e-3);
    let [a, b] = [ours.deviations(new.view()), exact.deviations(new.view())].map(|s| s.unwrap().unwrap());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-3), "{a} {b}");
    let all = exact.leave_one_out(&y).unwrap();
    assert_eq!(ours.left_out.len(), 120);
    assert!(ours.left_out.iter().all(|(i, [f, s])| (f - all[[*i, 0]]).abs() < 3e-3 && (s - all[[*i, 1]]).abs() < 3e-3));
}

/// How far deviations of targets are above the exact ones, on average: from variances of the function.
fn excess(ours: &Array1<f64>, exact: &Array1<f64>, noise: f64) -> f64 {
    ours.iter().zip(exact).map(|(ours, exact)| ((ours + noise) / (exact + noise)).sqrt() - 1.0).sum::<f64>()
        / ours.len() as f64
}

/// Deviations under a preconditioner of low rank, at new and at left-out rows, against the dense ones: never below, and within one per cent, for
/// smooth and rough functions, small and large noise, repeated points and irrelevant columns. What is reported is what the dense posterior says.
#[test]
fn deviations_are_those_of_the_dense_posterior() {
    // Kernel, columns, deviation of the noise, share of distinct points, and rank.
    let cases = [
        ("rbf(1.5)", 2, 0.3, 1.0, 60),
        ("rbf(0.3)", 2, 0.1, 1.0, 60),
        ("rbf(0.6)", 2, 0.01, 1.0, 150),
        ("rbf(2)", 5, 0.1, 1.0, 300),
        ("rbf(3)", 5, 2.0, 1.0, 60),
        ("matern12(1)", 2, 0.1, 1.0, 60),
        ("matern12(2)", 5, 0.001, 1.0, 300),
        ("matern32(1)", 3, 0.001, 0.5, 300),
        ("matern52(ard)", 4, 0.1, 1.0, 60),
    ];
    for (text, d, noise, distinct, rank) in cases {
        let n = 1000;
        let first = uniform((distinct * n as f64) as usize, d, 3.0, 21);
        let x = Array2::from_shape_fn((n, d), |(i, j)| first[[i % first.nrows(), j]]);
        let mut rng = Rng::new(22);
        let truth = |x: ArrayView1<f64>| (2.0 * x[0]).sin() + (x[0] * x[1]).cos();
        let y: Vec<f64> = x.rows().into_iter().map(|x| truth(x) + noise * rng.normal()).collect();
        let fitted = iterative(text, Some(rank), x.view(), &y);
        let new = uniform(60, d, 3.0, 23);
        let (_, exact, _) = dense(fitted.kernel(), fitted.noise, x.view(), &y, new.view());
        let ours = fitted.variance(new.view()).unwrap();
        let scale = fitted.kernel().diagonal(new.view());
        for ((ours, exact), scale) in ours.iter().zip(&exact).zip(&scale) {
            assert!(*ours >= 0.0 && ours - exact > -1e-7 * scale, "{text} {noise}: {ours} {exact}");
        }
        let at_new = excess(&ours, &exact, fitted.noise);
        let mut a = gram::<f64>(fitted.kernel(), x.view(), Device::Cpu).unwrap();
        a.diag_mut().mapv_inplace(|k| k + fitted.noise);
        let q = Cholesky::new(Device::Cpu, a.view()).unwrap().inverse().unwrap();
        let ratios: Vec<f64> = fitted.left_out.iter().map(|(i, [_, s])| s * q[[*i, *i]].sqrt()).collect();
        assert!(ratios.iter().all(|ratio| *ratio > 1.0 - 1e-6), "{text} {noise}");
        let left_out = ratios.iter().sum::<f64>() / ratios.len() as f64 - 1.0;
        assert!(at_new < 0.01 && left_out < 0.01, "{text} {noise}: {at_new} {left_out}");
        assert!(
            (fitted.excess - left_out).abs() < 0.3 * left_out + 0.002,
            "{text} {noise}: {} {left_out}",
            fitted.excess
        );
        assert!(fitted.notes().iter().all(|note| !note.contains("upper bounds")), "{:?}", fitted.notes());
    }
}

/// 95 % intervals contain 93 to 97 % of new targets, in both precisions.
#[test]
fn intervals_by_conjugate_gradients_contain_what_they_say() {
    let (x, y) = waves(2400, 7);
    let (train, test) = (x.slice(s![..1200, ..]), x.slice(s![1200.., ..]));
    for precision in [Precision::F64, Precision::F32] {
        let process = IterativeProcess::new(Expression::parse("rbf(auto)").unwrap());
        let process = IterativeProcess { tuning: Tuning { restarts: 0, rows: 200, ..process.tuning }, ..process };
        let context = FitContext { precision, ..FitContext::default() };
        let fitted = process.fit(train, &Target::Values(y[..1200].to_vec()), &context).unwrap();
        let (means, deviations) = (fitted.scores(test).unwrap(), fitted.deviations(test).unwrap().unwrap());
        let report = IntervalReport::new(&y[1200..], &means.column(0).to_vec(), &deviations.to_vec(), 0.95).unwrap();
        assert!((0.93..0.97).contains(&report.coverage) && report.rmse < 0.34, "{precision:?}: {report:?}");
        assert!((fitted.noise.sqrt() - 0.3).abs() < 0.02 && fitted.excess < 0.02, "{} {}", fitted.noise, fitted.excess);
    }
}

#[test]
fn a_saved_iterative_process_predicts_the_same() {
    let (x, y) = waves(90, 8);
    let fitted = iterative("2*rbf(ard) + linear", None, x.view(), &y);
    let (_folder, path) = scratch("iterative.mercer");
    fitted.save(&path).unwrap();
    let again = FittedIterativeProcess::load(&path, Device::Cpu).unwrap();
    let new = normal(9, 2, 10);
    assert_eq!(again.scores(new.view()).unwrap(), fitted.scores(new.view()).unwrap());
    assert_eq!(again.deviations(new.view()).unwrap(), fitted.deviations(new.view()).unwrap());
    assert_eq!((again.noise, again.likelihood, again.excess), (fitted.noise, fitted.likelihood, fitted.excess));
}

/// What the memory has no room for is an error with its numbers.
#[test]
fn what_conjugate_gradients_cannot_do_is_said() {
    let (x, y) = waves(300, 9);
    let process = IterativeProcess::new(Expression::parse("rbf(auto)").unwrap());
    let process = IterativeProcess { tuning: Tuning { restarts: 0, rows: 50, ..process.tuning }, ..process };
    let y = Target::Values(y);
    let small = FitContext { budget: Budget::of(100_000), ..FitContext::default() };
    let refused = process.fit(x.view(), &y, &small).err().unwrap().to_string();
    assert!(refused.contains("conjugate gradients on 300 points") && refused.contains("memory budget"), "{refused}");
    let process = IterativeProcess { rank: Some(299), ..process };
    let small = FitContext { budget: Budget::of(2_000_000), ..FitContext::default() };
    says(process.fit(x.view(), &y, &small), &["a preconditioner of rank 299", "use a smaller rank"]);
    let classes = Target::Classes { labels: vec![0; 300], names: vec!["a".into()] };
    says(process.fit(x.view(), &classes, &FitContext::default()), &["classes", "predicts numbers"]);
}

/// An interrupt of the search for the noise keeps its best value, and the posterior is computed with it.
#[test]
fn an_interrupted_search_for_the_noise_still_predicts() {
    struct Second<'a>(&'a Interrupt);
    impl Progress for Second<'_> {
        fn step(&self, what: &str, done: usize, _: usize, _: &str) {
            if what.starts_with("noise 2 of") && done == 2 {
                assert!(self.0.request(), "there is a result to keep");
            }
        }
    }
    let (x, y) = waves(400, 10);
    let interrupt = Interrupt::new();
    let progress = Second(&interrupt);
    let context = FitContext { progress: &progress, interrupt: Some(&interrupt), ..FitContext::default() };
    let process = IterativeProcess::new(Expression::parse("matern32(auto)").unwrap());
    let tuning = Tuning { restarts: 0, rows: 60, ..process.tuning };
    let process = IterativeProcess { tuning, rank: Some(20), ..process };
    let fitted = process.fit(x.view(), &Target::Values(y), &context).unwrap();
    assert!(fitted.notes()[0].contains("the search for the noise on all rows was interrupted"), "{:?}", fitted.notes());
    assert!(fitted.residual <= 1e-6 && !context.interrupted());
}

/// The values of S random functions at points, `[n, S]`, and targets that are a combination of them with noise of standard deviation 0.2.
fn sampled(n: usize, functions: usize) -> (Array2<f64>, Vec<f64>) {
    let (x, w) = (uniform(n, 1, 3.0, 11), normal(functions, 2, 12));
    let f = Array2::from_shape_fn((n, functions), |(i, s)| (2.0 * w[[s, 0]] * x[[i, 0]] + 3.0 * w[[s, 1]]).cos());
    let mut rng = Rng::new(13);
    let weights: Vec<f64> = (0..functions).map(|_| rng.normal() * (2.0 / functions as f64).sqrt()).collect();
    let y = f
        .rows()
        .into_iter()
        .map(|f| -1.0 + f.iter().zip(&weights).map(|(f, w)| f * w).sum::<f64>() + 0.2 * rng.normal());
    let y = y.collect();
    (f, y)
}

/// A process on sampled functions is the exact one with the kernel FᵀF/S, and its intervals hold.
#[test]
fn sampled_functions_are_the_kernel_of_their_values() {
    let (f, y) = sampled(1500, 60);
    let kernel = Expression::parse("0.016666666666666666*linear").unwrap();
    let process = FeatureProcess::new(kernel, ProcessFeatures::Columns);
    let process = FeatureProcess { tuning: Tuning { restarts: 0, rows: 200, ..process.tuning }, ..process };
    let (few, rest) = (f.slice(s![..400, ..]), f.slice(s![400.., ..]));
    let fitted = process.fit(few, &Target::Values(y[..400].to_vec()), &FitContext::default()).unwrap();
    let (mean, variance, likelihood) = dense(fitted.kernel(), fitted.noise, few, &y[..400], rest);
    let (scores, ours) = (fitted.scores(rest).unwrap(), fitted.variance(rest).unwrap());
    assert!((&scores.column(0) - &mean).iter().all(|d| d.abs() < 1e-7));
    assert!((&ours - &variance).iter().all(|d| d.abs() < 1e-7));
    assert!((fitted.bound - likelihood).abs() < 1e-5, "{} {likelihood}", fitted.bound);
    assert!((fitted.noise.sqrt() - 0.2).abs() < 0.02, "{}", fitted.noise);
    let deviations = fitted.deviations(rest).unwrap().unwrap().to_vec();
    let report = IntervalReport::new(&y[400..], &scores.column(0).to_vec(), &deviations, 0.95).unwrap();
    assert!((0.93..0.97).contains(&report.coverage), "{report:?}");
    let refused = FeatureProcess::new(Expression::parse("rbf(1)").unwrap(), ProcessFeatures::Columns);
    let refused = refused.fit(few, &Target::Values(y[..400].to_vec()), &FitContext::default()).err().unwrap();
    assert!(refused.to_string().contains("the kernel linear"), "{refused}");
}

/// Kernels of infinite networks, sums and products: exact, by conjugate gradients and on features alike, and for classes.
#[test]
fn every_kind_of_kernel_makes_a_process() {
    let ((x, y), new) = (waves(150, 14), uniform(60, 2, 3.0, 15));
    let truth = |x: ndarray::ArrayView1<f64>| 5.0 + (2.0 * x[0]).sin() + (x[0] * x[1]).cos();
    let kernels = [
        "nngp(depth=3, b_var=0.1)",
        "ntk(depth=2, act=erf, b_var=0.5)",
        "rbf(auto) + 0.5*linear",
        "rbf(auto) * nngp(depth=1, act=erf, b_var=1)",
    ];
    for text in kernels {
        let kernel = Expression::parse(text).unwrap();
        let values = Target::Values(y.clone());
        let exact = GaussianProcess::new(kernel.clone());
        let tuning = Tuning { restarts: 0, ..exact.tuning };
        let exact = GaussianProcess { tuning, ..exact }.fit(x.view(), &values, &FitContext::default()).unwrap();
        let ours = iterative(text, None, x.view(), &y);
        let features = FeatureProcess::new(kernel.clone(), ProcessFeatures::Landmarks(150));
        let features = FeatureProcess { tuning, ..features }.fit(x.view(), &values, &FitContext::default()).unwrap();
        let (scores, deviations) = (exact.scores(new.view()).unwrap(), exact.deviations(new.view()).unwrap().unwrap());
        // Better than the mean of the targets, 0.9 on average.
        let errors = new.rows().into_iter().zip(scores.column(0)).map(|(x, f)| (f - truth(x)).powi(2));
        let rmse = (errors.sum::<f64>() / 60.0).sqrt();
        assert!(rmse < 0.65, "{text}: {rmse}");
        for (name, process) in [("cg", &ours as &dyn Predict), ("features", &features)] {
            let off = worst(&process.scores(new.view()).unwrap(), &scores);
            let others = process.deviations(new.view()).unwrap().unwrap();
            assert!(off < 0.01, "{text}, {name}: {off}");
            assert!((&others - &deviations).iter().all(|d| d.abs() < 0.01), "{text}, {name}: {others} {deviations}");
        }
        let labels = x.rows().into_iter().map(|x| usize::from(x[0] + 0.5 * x[1] > 0.3)).collect();
        let classes = Target::Classes { labels, names: ["low", "high"].map(String::from).to_vec() };
        let process = GaussianProcessClassifier::new(kernel);
        let process = GaussianProcessClassifier {
            tuning: Tuning { restarts: 0, rows: 60, steps: 10, ..process.tuning },
            ..process
        };
        let fitted = process.fit(x.view(), &classes, &FitContext::default()).unwrap();
        assert!(fitted.accuracy(x.view(), &classes).unwrap() > 0.9, "{text}");
    }
}
