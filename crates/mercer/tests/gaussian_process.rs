//! Gaussian processes against their closed forms, and their intervals against the truth.

mod common;

use common::*;
use mercer::apply::{
    ClassReport, FeatureProcess, Fit, FittedFeatureProcess, FittedGaussianProcess, FittedGaussianProcessClassifier,
    FittedProcess, GaussianProcess, GaussianProcessClassifier, IntervalReport, Predict, ProcessFeatures, Saved, Tuning,
};
use mercer::data::Target;
use mercer::kernel::Expression;
use mercer::linalg::Cholesky;
use mercer::operator::Budget;
use mercer::{Interrupt, Progress};

/// Functions drawn from a Gaussian process with this kernel at points `x`, plus noise of variance `noise`.
fn drawn(text: &str, x: ArrayView2<f64>, noise: f64, seed: u64) -> Vec<f64> {
    let mut k = gram::<f64>(&kernel(text), x, Device::Cpu).unwrap();
    k.diag_mut().mapv_inplace(|k| k + 1e-10);
    let factor = Cholesky::new(Device::Cpu, k.view()).unwrap();
    let (l, mut rng) = (factor.lower().unwrap(), Rng::new(seed));
    let z: Vec<f64> = (0..x.nrows()).map(|_| rng.normal()).collect();
    (0..x.nrows()).map(|i| (0..=i).map(|j| l[(i, j)] * z[j]).sum::<f64>() + noise.sqrt() * rng.normal()).collect()
}

fn fitted(text: &str, x: ArrayView2<f64>, y: &[f64]) -> FittedGaussianProcess {
    let process = GaussianProcess::new(Expression::parse(text).unwrap());
    let tuning = Tuning { restarts: 0, ..process.tuning };
    let process = GaussianProcess { tuning, ..process };
    process.fit(x, &Target::Values(y.to_vec()), &FitContext::default()).unwrap()
}

/// `A⁻¹` with `A = K + σ²I`.
fn inverse(fitted: &FittedGaussianProcess, x: ArrayView2<f64>) -> Array2<f64> {
    let mut a = gram::<f64>(fitted.kernel(), x, Device::Cpu).unwrap();
    a.diag_mut().mapv_inplace(|k| k + fitted.noise);
    Cholesky::new(Device::Cpu, a.view()).unwrap().solve(Array2::eye(x.nrows()).view()).unwrap()
}

#[test]
fn the_posterior_is_the_closed_form() {
    let (x, new) = (normal(60, 2, 1), normal(15, 2, 2));
    let y: Vec<f64> = drawn("2*rbf(1.2)", x.view(), 0.05, 3).into_iter().map(|y| y + 7.0).collect();
    let fitted = fitted("rbf(ard)", x.view(), &y);
    let (q, mean) = (inverse(&fitted, x.view()), y.iter().sum::<f64>() / 60.0);
    let centred = Array1::from_iter(y.iter().map(|y| y - mean));
    let cross = gram_cross::<f64>(fitted.kernel(), new.view(), x.view(), Device::Cpu).unwrap();
    let expected = cross.dot(&q.dot(&centred)) + mean;
    let scores = fitted.scores(new.view()).unwrap();
    let variance = fitted.variance(new.view()).unwrap();
    let deviations = fitted.deviations(new.view()).unwrap().unwrap();
    for i in 0..15 {
        assert!((scores[[i, 0]] - expected[i]).abs() < 1e-9, "{} {}", scores[[i, 0]], expected[i]);
        let row = cross.row(i);
        let point = new.row(i).to_vec();
        let known = fitted.kernel().value(&point, &point) - row.dot(&q.dot(&row));
        assert!((variance[i] - known).abs() < 1e-9 && variance[i] >= 0.0);
        assert!((deviations[i] - (known + fitted.noise).sqrt()).abs() < 1e-9);
    }
    // log p(y) from the definition, by eigenvalues.
    let (λ, _) = mercer::linalg::eigh(Device::Cpu, q.view()).unwrap();
    let determinant: f64 = λ.iter().map(|λ| -λ.ln()).sum();
    let expected = -0.5 * (centred.dot(&q.dot(&centred)) + determinant + 60.0 * std::f64::consts::TAU.ln());
    assert!((fitted.likelihood - expected).abs() < 1e-7, "{} {expected}", fitted.likelihood);
    // The search maximises it: the best start reached the same for each row.
    assert!((fitted.search.starts[0] * 60.0 - expected).abs() < 1e-6, "{:?}", fitted.search);
    assert!(fitted.search.converged && fitted.search.gradient < 1e-4, "{:?}", fitted.search);
}

/// Each left-out prediction is that of a process with the same kernel on the other points.
#[test]
fn leave_one_out_is_what_the_others_predict() {
    let x = normal(25, 1, 4);
    let y = drawn("rbf(0.8)", x.view(), 0.02, 5);
    let fitted = fitted("rbf(auto)", x.view(), &y);
    let left_out = fitted.leave_one_out(&y).unwrap();
    let mean = y.iter().sum::<f64>() / 25.0;
    for i in [0, 7, 24] {
        let rest: Vec<usize> = (0..25).filter(|&j| j != i).collect();
        let others = x.select(Axis(0), &rest);
        let q = inverse(&fitted, others.view());
        let row = gram_cross::<f64>(fitted.kernel(), x.slice(s![i..i + 1, ..]), others.view(), Device::Cpu).unwrap();
        let centred = Array1::from_iter(rest.iter().map(|&j| y[j] - mean));
        let expected = row.row(0).dot(&q.dot(&centred)) + mean;
        let point = x.row(i).to_vec();
        let variance = fitted.kernel().value(&point, &point) - row.row(0).dot(&q.dot(&row.row(0))) + fitted.noise;
        assert!((left_out[[i, 0]] - expected).abs() < 1e-8);
        assert!((left_out[[i, 1]] - variance.sqrt()).abs() < 1e-8);
    }
}

/// 95 % intervals contain 93 to 97 % of new targets whose truth is such a process.
#[test]
fn intervals_contain_what_they_say() {
    let (mut truths, mut means, mut deviations) = (vec![], vec![], vec![]);
    for seed in 0..8 {
        let x = uniform(250, 2, 3.0, 100 + seed);
        let y = drawn("1.5*matern52(1.3)", x.view(), 0.1, 200 + seed);
        let (train, test) = (x.slice(s![..120, ..]), x.slice(s![120.., ..]));
        let fitted = fitted("matern52(auto)", train, &y[..120]);
        truths.extend_from_slice(&y[120..]);
        means.extend(fitted.scores(test).unwrap().column(0));
        deviations.extend(fitted.deviations(test).unwrap().unwrap());
    }
    let report = IntervalReport::new(&truths, &means, &deviations, 0.95).unwrap();
    assert!((0.93..0.97).contains(&report.coverage), "{report:?}");
}

/// The mean and the covariance of many posterior samples.
#[test]
fn samples_have_the_posterior_law() {
    let x = normal(20, 1, 6);
    let y = drawn("rbf(1)", x.view(), 0.1, 7);
    let fitted = fitted("rbf(auto)", x.view(), &y);
    let new = ndarray::array![[-0.5], [0.3], [4.0]];
    let count = 40_000;
    let samples = fitted.samples(new.view(), count, 1).unwrap();
    let (mean, variance) = (fitted.scores(new.view()).unwrap(), fitted.variance(new.view()).unwrap());
    for i in 0..3 {
        let error = samples.row(i).mean().unwrap() - mean[[i, 0]];
        assert!(error.abs() < 5.0 * (variance[i] / count as f64).sqrt() + 1e-9, "{error}");
        let ratio = samples.row(i).var(0.0) / variance[i];
        assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    }
}

#[test]
fn a_saved_process_predicts_the_same() {
    let x = normal(30, 2, 8);
    let y = drawn("rbf(1)", x.view(), 0.1, 9);
    let fitted = fitted("2*rbf(ard) + linear", x.view(), &y);
    let (_folder, path) = scratch("process.mercer");
    fitted.save(&path).unwrap();
    let again = FittedGaussianProcess::load(&path, Device::Cpu).unwrap();
    let new = normal(9, 2, 10);
    assert_eq!(again.scores(new.view()).unwrap(), fitted.scores(new.view()).unwrap());
    assert_eq!(again.deviations(new.view()).unwrap(), fitted.deviations(new.view()).unwrap());
    assert_eq!((again.noise, again.likelihood), (fitted.noise, fitted.likelihood));
}

#[test]
fn what_no_process_fits_is_refused() {
    let x = normal(10, 2, 11);
    let process = GaussianProcess::new(Expression::parse("rbf(auto)").unwrap());
    let refused = |y: Target| process.fit(x.view(), &y, &FitContext::default()).err().unwrap().to_string();
    assert!(refused(Target::Values(vec![2.0; 10])).contains("every target is 2"));
    assert!(refused(Target::Values(vec![2.0; 9])).contains("10 points but 9 targets"));
    let classes = Target::Classes { labels: vec![0; 10], names: vec!["a".into()] };
    assert!(refused(classes).contains("the Gaussian process for classes"));
    let small = FitContext { budget: Budget::of(1000), ..FitContext::default() };
    let refused = process.fit(x.view(), &Target::Values(x.column(0).to_vec()), &small).err().unwrap().to_string();
    assert!(refused.contains("the exact posterior of 10 points") && refused.contains("memory budget"), "{refused}");
}

/// An interrupt of the search keeps the best hyper-parameters so far, and the posterior is computed with them.
#[test]
fn an_interrupted_search_still_predicts() {
    struct Third<'a>(&'a Interrupt);
    impl Progress for Third<'_> {
        fn step(&self, what: &str, done: usize, _: usize, _: &str) {
            if what.contains("hyper-parameters") && done == 3 {
                assert!(self.0.request(), "there is a result to keep");
            }
        }
    }
    let x = normal(60, 2, 12);
    let y = drawn("rbf(1)", x.view(), 0.1, 13);
    let interrupt = Interrupt::new();
    let progress = Third(&interrupt);
    let context = FitContext { progress: &progress, interrupt: Some(&interrupt), ..FitContext::default() };
    let process = GaussianProcess::new(Expression::parse("rbf(ard)").unwrap());
    let fitted = process.fit(x.view(), &Target::Values(y), &context).unwrap();
    assert_eq!((fitted.search.starts.len(), fitted.search.steps, fitted.search.converged), (1, 3, false));
    assert!(fitted.notes()[0].contains("was interrupted after 1 starts and 3 steps"), "{:?}", fitted.notes());
    assert!(fitted.deviations(x.view()).unwrap().unwrap().iter().all(|s| *s > 0.0));
    assert!(!context.interrupted());
}

fn on_features(text: &str, features: ProcessFeatures, x: ArrayView2<f64>, y: &[f64]) -> FittedFeatureProcess {
    let process = FeatureProcess::new(Expression::parse(text).unwrap(), features);
    let tuning = Tuning { restarts: 0, ..process.tuning };
    FeatureProcess { tuning, ..process }.fit(x, &Target::Values(y.to_vec()), &FitContext::default()).unwrap()
}

/// With every point a landmark, the features are the kernel: the posterior, its likelihood and its left-out predictions are exact.
#[test]
fn all_landmarks_give_the_exact_posterior() {
    let (x, new) = (normal(70, 2, 21), normal(12, 2, 22));
    let y: Vec<f64> = drawn("2*matern32(1.2)", x.view(), 0.05, 23).into_iter().map(|y| y - 3.0).collect();
    let exact = fitted("matern32(auto)", x.view(), &y);
    let ours = on_features("matern32(auto)", ProcessFeatures::Landmarks(70), x.view(), &y);
    // The amplitude and the noise, found twice, are the same.
    assert!((ours.noise / exact.noise - 1.0).abs() < 1e-3, "{} {}", ours.noise, exact.noise);
    assert!((ours.bound - exact.likelihood).abs() < 1e-4, "{} {}", ours.bound, exact.likelihood);
    let close = |a: &Array2<f64>, b: &Array2<f64>| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3);
    assert!(close(&ours.scores(new.view()).unwrap(), &exact.scores(new.view()).unwrap()));
    let [a, b] = [ours.deviations(new.view()), exact.deviations(new.view())].map(|s| s.unwrap().unwrap());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-3), "{a} {b}");
    let all = exact.leave_one_out(&y).unwrap();
    assert_eq!(ours.left_out.len(), 70);
    assert!(ours.left_out.iter().all(|(i, [f, s])| (f - all[[*i, 0]]).abs() < 2e-3 && (s - all[[*i, 1]]).abs() < 2e-3));
}

/// The posterior on features from its definition, `A = cΦΦᵀ + σ²I` written out, and its bound.
#[test]
fn few_landmarks_give_the_posterior_of_their_kernel() {
    let (x, new) = (normal(90, 2, 24), normal(8, 2, 25));
    let y = drawn("rbf(1)", x.view(), 0.1, 26);
    let fitted = on_features("rbf(auto)", ProcessFeatures::Landmarks(12), x.view(), &y);
    let (kernel, n) = (fitted.kernel(), 90);
    // The landmarks are those of the fit: read them from the model.
    let (_folder, path) = scratch("features.mercer");
    fitted.save(&path).unwrap();
    let again = FittedFeatureProcess::load(&path, Device::Cpu).unwrap();
    assert_eq!(again.scores(new.view()).unwrap(), fitted.scores(new.view()).unwrap());
    assert_eq!(again.deviations(new.view()).unwrap(), fitted.deviations(new.view()).unwrap());
    let bytes = mercer::model::Bundle::read(&path).unwrap();
    let z = bytes.matrix("centres").unwrap();
    assert_eq!(z.dim(), (12, 2));
    let cross = |a: ArrayView2<f64>, b: ArrayView2<f64>| gram_cross::<f64>(kernel, a, b, Device::Cpu).unwrap();
    let inverse = Cholesky::new(Device::Cpu, cross(z.view(), z.view()).view()).unwrap().inverse().unwrap();
    let low = |a: ArrayView2<f64>, b: ArrayView2<f64>| cross(a, z.view()).dot(&inverse).dot(&cross(z.view(), b));
    let q = low(x.view(), x.view());
    let mut a = q.clone();
    a.diag_mut().mapv_inplace(|v| v + fitted.noise);
    let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
    let mean = y.iter().sum::<f64>() / n as f64;
    let centred = Array2::from_shape_fn((n, 1), |(i, _)| y[i] - mean);
    let solved = factor.solve(centred.view()).unwrap();
    let k_new = low(new.view(), x.view());
    let expected = k_new.dot(&solved) + mean;
    let scores = fitted.scores(new.view()).unwrap();
    let variance = fitted.variance(new.view()).unwrap();
    let explained = k_new.dot(&factor.solve(k_new.t()).unwrap());
    for i in 0..8 {
        assert!((scores[[i, 0]] - expected[[i, 0]]).abs() < 1e-6, "{} {}", scores[[i, 0]], expected[[i, 0]]);
        let point = new.row(i).to_vec();
        // κ(x,x) − Q(x,x) + [Q(x,x) − Q(x,X)A⁻¹Q(X,x)]
        let wanted = kernel.value(&point, &point) - explained[[i, i]];
        assert!((variance[i] - wanted).abs() < 1e-6, "{} {wanted}", variance[i]);
    }
    let l = factor.lower().unwrap();
    let determinant: f64 = (0..n).map(|i| 2.0 * l[(i, i)].ln()).sum();
    let likelihood = -0.5 * ((&centred * &solved).sum() + determinant + n as f64 * std::f64::consts::TAU.ln());
    let rest: f64 = (0..n).map(|i| kernel.value(&x.row(i).to_vec(), &x.row(i).to_vec()) - q[[i, i]]).sum();
    let bound = likelihood - rest / (2.0 * fitted.noise);
    assert!((fitted.bound - bound).abs() < 1e-5, "{} {bound}", fitted.bound);
    // The amplitude and the noise are where the bound is largest.
    let at = |c: f64, noise: f64| {
        let mut a = &q * c;
        a.diag_mut().mapv_inplace(|v| v + noise);
        let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
        let l = factor.lower().unwrap();
        let determinant: f64 = (0..n).map(|i| 2.0 * l[(i, i)].ln()).sum();
        -0.5 * ((&centred * &factor.solve(centred.view()).unwrap()).sum() + determinant) - c * rest / (2.0 * noise)
    };
    let best = at(1.0, fitted.noise);
    for (c, noise) in [(1.02, 1.0), (0.98, 1.0), (1.0, 1.02), (1.0, 0.98)] {
        assert!(at(c, noise * fitted.noise) < best + 1e-9, "{c} {noise}");
    }
}

/// 95 % intervals on features contain 93 to 97 % of new targets, for thousands of points and each kind of features.
#[test]
fn intervals_on_features_contain_what_they_say() {
    let x = uniform(4000, 2, 3.0, 31);
    let mut rng = Rng::new(32);
    // A random function of few waves, with noise.
    let waves: Vec<[f64; 4]> =
        (0..40).map(|_| [rng.normal(), rng.normal(), 7.0 * rng.uniform(), rng.normal()]).collect();
    let f = |x: ndarray::ArrayView1<f64>| -> f64 {
        waves.iter().map(|w| w[3] * (w[0] * x[0] + w[1] * x[1] + w[2]).cos()).sum()
    };
    let y: Vec<f64> = x.rows().into_iter().map(|x| 0.2 * f(x) + 0.3 * rng.normal()).collect();
    let (train, test) = (x.slice(s![..3000, ..]), x.slice(s![3000.., ..]));
    let kinds = [ProcessFeatures::Landmarks(100), ProcessFeatures::Random(300), ProcessFeatures::Eigenfunctions(80)];
    for features in kinds {
        let process = FeatureProcess::new(Expression::parse("rbf(auto)").unwrap(), features);
        let process = FeatureProcess { tuning: Tuning { restarts: 0, rows: 300, ..process.tuning }, ..process };
        let fitted = process.fit(train, &Target::Values(y[..3000].to_vec()), &FitContext::default()).unwrap();
        let (means, deviations) = (fitted.scores(test).unwrap(), fitted.deviations(test).unwrap().unwrap());
        let report = IntervalReport::new(&y[3000..], &means.column(0).to_vec(), &deviations.to_vec(), 0.95).unwrap();
        assert!((0.93..0.97).contains(&report.coverage) && report.rmse < 0.33, "{features:?}: {report:?}");
        assert!((fitted.noise.sqrt() - 0.3).abs() < 0.02, "{features:?}: {}", fitted.noise);
    }
}

/// Classes drawn from latent functions with the kernel `text` at points `x` `[n, d]`.
fn drawn_classes(text: &str, x: ArrayView2<f64>, classes: usize, seed: u64) -> Target {
    let latent: Vec<Vec<f64>> = (0..classes).map(|c| drawn(text, x, 0.0, seed + 1000 * c as u64)).collect();
    let mut rng = Rng::new(seed + 7);
    let label = |i: usize| {
        let weights: Vec<f64> = latent.iter().map(|f| f[i].exp()).collect();
        let at = rng.uniform() * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        weights.iter().position(|w| {
            sum += w;
            sum > at
        })
    };
    let labels = (0..x.nrows()).map(label).map(|l| l.unwrap_or(classes - 1)).collect();
    Target::Classes { labels, names: (0..classes).map(|c| format!("class {c}")).collect() }
}

fn classifier(text: &str, x: ArrayView2<f64>, y: &Target) -> FittedGaussianProcessClassifier {
    let process = GaussianProcessClassifier::new(Expression::parse(text).unwrap());
    let tuning = Tuning { restarts: 0, ..process.tuning };
    GaussianProcessClassifier { tuning, ..process }.fit(x, y, &FitContext::default()).unwrap()
}

/// Probabilities are as good as those of the latent functions' own kernel, left-out ones agree with those of new points, and the
/// search has found about that kernel.
#[test]
fn classes_get_the_probabilities_of_their_process() {
    let x = uniform(900, 2, 2.0, 41);
    let y = drawn_classes("9*rbf(1)", x.view(), 3, 42);
    let rows: Vec<usize> = (0..300).collect();
    let new: Vec<usize> = (300..900).collect();
    let (train, test) = (x.select(Axis(0), &rows), x.select(Axis(0), &new));
    let log_loss = |text: &str| {
        let fitted = classifier(text, train.view(), &y.select(&rows));
        let scores = fitted.scores(test.view()).unwrap();
        let p = fitted.probabilities(scores.view()).unwrap();
        assert!(p.rows().into_iter().all(|row| (row.sum() - 1.0).abs() < 1e-9));
        let on_new = ClassReport::new(&y.select(&new), &fitted.decode(scores.view()), Some(p.view())).unwrap();
        let left = fitted.left_out.view();
        let p = fitted.probabilities(left).unwrap();
        let left_out = ClassReport::new(&y.select(&rows), &fitted.decode(left), Some(p.view())).unwrap();
        (on_new.log_loss.unwrap(), left_out.log_loss.unwrap(), fitted)
    };
    let (found, left_out, fitted) = log_loss("rbf(auto)");
    // 3000 draws of the log loss of a row have a standard deviation of about 0.8.
    assert!((found - left_out).abs() < 0.12, "{found} {left_out}");
    assert!(fitted.search.converged, "{:?}", fitted.search);
    let narrow = log_loss("rbf(0.1)").0;
    let wide = log_loss("rbf(20)").0;
    assert!(found < 0.95 * narrow && found < 0.95 * wide, "{found} {narrow} {wide}");
    assert!(found < 0.8 * 3f64.ln(), "{found}");
    // Far from the points nothing is known.
    let far = fitted.probabilities(fitted.scores(ndarray::array![[50.0, 50.0]].view()).unwrap().view()).unwrap();
    assert!(far.iter().all(|p| (p - 1.0 / 3.0).abs() < 0.03), "{far}");
}

/// Each left-out probability is that of a process with the same kernel on the other parts of the points: of five points, on the other four.
#[test]
fn left_out_classes_are_what_the_others_predict() {
    let x = ndarray::array![[-1.5], [-0.7], [0.1], [0.8], [1.9]];
    let y = Target::Classes { labels: vec![0, 1, 0, 0, 1], names: vec!["a".into(), "b".into()] };
    let all = classifier("rbf(0.7)", x.view(), &y);
    for i in 0..5 {
        let rest: Vec<usize> = (0..5).filter(|&j| j != i).collect();
        let others = x.select(Axis(0), &rest);
        // The same amplitude, and no search.
        let process = GaussianProcessClassifier::new(Expression::parse(&all.kernel().to_string()).unwrap());
        let tuning = Tuning { restarts: 0, steps: 0, ..process.tuning };
        let fitted = GaussianProcessClassifier { tuning, ..process }
            .fit(others.view(), &y.select(&rest), &FitContext::default())
            .unwrap();
        let expected = fitted.scores(x.slice(s![i..i + 1, ..])).unwrap();
        assert!((all.left_out[[i, 0]] - expected[[0, 0]]).abs() < 1e-6, "{i}: {} {expected}", all.left_out.row(i));
    }
}

/// Noisy classes that overlap a little: the amplitude is large, and left-out rows still say what new rows are like.
#[test]
fn left_out_classes_are_as_uncertain_as_new_ones() {
    let moons = |n: usize, seed: u64| {
        mercer::data::open(&format!("moons(n={n}, noise=0.2, seed={seed})"), &Default::default()).unwrap()
    };
    let (train, test) = (moons(210, 0), moons(2000, 100));
    let fitted = classifier("rbf(auto)", train.x.to_f64().view(), train.y.as_ref().unwrap());
    let loss = |scores: ArrayView2<f64>, y: &Target| {
        let p = fitted.probabilities(scores).unwrap();
        ClassReport::new(y, &fitted.decode(scores), Some(p.view())).unwrap().log_loss.unwrap()
    };
    let left_out = loss(fitted.left_out.view(), train.y.as_ref().unwrap());
    let new = loss(fitted.scores(test.x.to_f64().view()).unwrap().view(), test.y.as_ref().unwrap());
    assert!(new < 0.2 && (left_out - new).abs() < 0.08, "{left_out} {new}");
}

#[test]
fn a_saved_classifier_predicts_the_same() {
    let x = normal(50, 2, 45);
    let y = drawn_classes("4*rbf(1)", x.view(), 3, 46);
    let fitted = classifier("rbf(ard)", x.view(), &y);
    let (_folder, path) = scratch("classes.mercer");
    fitted.save(&path).unwrap();
    let again = FittedGaussianProcessClassifier::load(&path, Device::Cpu).unwrap();
    let new = normal(9, 2, 47);
    let (a, b) = (again.scores(new.view()).unwrap(), fitted.scores(new.view()).unwrap());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12), "{a} {b}");
    assert_eq!((again.likelihood, &again.search), (fitted.likelihood, &fitted.search));
    let one = Target::Classes { labels: vec![0; 50], names: vec!["a".into()] };
    let process = GaussianProcessClassifier::new(Expression::parse("rbf(1)").unwrap());
    let refused = process.fit(x.view(), &one, &FitContext::default()).err().unwrap().to_string();
    assert!(refused.contains("same class"), "{refused}");
}

/// Where classes are far apart, Laplace's means are too cautious; probabilities are fitted to left-out rows.
#[test]
fn well_separated_classes_get_confident_probabilities() {
    let mut rng = Rng::new(48);
    let labels: Vec<usize> = (0..150).map(|i| i % 3).collect();
    let x = Array2::from_shape_fn((150, 2), |(i, j)| [[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]][i % 3][j] + rng.normal());
    let y = Target::Classes { labels, names: vec!["a".into(), "b".into(), "c".into()] };
    let (rows, new): (Vec<usize>, Vec<usize>) = (0..150).partition(|i| *i < 75);
    let fitted = classifier("rbf(auto)", x.select(Axis(0), &rows).view(), &y.select(&rows));
    let scores = fitted.scores(x.select(Axis(0), &new).view()).unwrap();
    let log_loss = |p: Array2<f64>| {
        ClassReport::new(&y.select(&new), &fitted.decode(scores.view()), Some(p.view())).unwrap().log_loss.unwrap()
    };
    let ours = log_loss(fitted.probabilities(scores.view()).unwrap());
    let cautious = log_loss(scores.mapv(f64::exp));
    assert!(fitted.notes().iter().all(|note| !note.contains("noise")), "{:?}", fitted.notes());
    assert!(ours < 0.1 && ours < 0.5 * cautious, "{ours} {cautious}");
}
