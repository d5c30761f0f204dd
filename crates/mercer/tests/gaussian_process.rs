//! Gaussian processes against their closed forms, and their intervals against the truth.

mod common;

use common::*;
use mercer::apply::{Fit, FittedGaussianProcess, GaussianProcess, IntervalReport, Predict, Saved, Tuning};
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
    assert!(refused(classes).contains("predicts numbers"));
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
