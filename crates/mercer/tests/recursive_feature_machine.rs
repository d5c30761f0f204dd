//! Recursive feature machines: against plain numpy, ridge regression, and functions whose direction is known.

mod common;

use common::*;
use mercer::Interrupt;
use mercer::apply::{
    Alpha, ClassWeights, Fit, FittedRecursiveFeatureMachine, MetricForm, Predict, RecursiveFeatureMachine, Ridge, Saved,
};
use mercer::data::Target;
use mercer::kernel::Expression;

fn machine(kernel: &str) -> RecursiveFeatureMachine {
    RecursiveFeatureMachine::new(Expression::parse(kernel).unwrap())
}

fn fixed(kernel: &str, form: MetricForm, rounds: usize) -> RecursiveFeatureMachine {
    RecursiveFeatureMachine { metric: Some(form), rounds: Some(rounds), ..machine(kernel) }
}

/// A function of one direction u: `sin(2 u·x)` in d columns.
fn along(n: usize, d: usize, seed: u64) -> (Array2<f64>, Vec<f64>, Target) {
    let x = normal(n, d, seed);
    let mut u = vec![0.0; d];
    (u[0], u[1], u[2]) = (2.0 / 3.0, -2.0 / 3.0, 1.0 / 3.0);
    let y = x.rows().into_iter().map(|x| (2.0 * dot(x, &u)).sin()).collect();
    (x, u, Target::Values(y))
}

fn dot(x: ArrayView1<f64>, u: &[f64]) -> f64 {
    x.iter().zip(u).map(|(x, u)| x * u).sum()
}

fn mean_square(fitted: &dyn Predict, x: ArrayView2<f64>, y: &Target) -> f64 {
    let scores = fitted.scores(x).unwrap();
    scores.column(0).iter().zip(y.values()).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / x.nrows() as f64
}

#[test]
fn machines_are_those_of_numpy() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("golden/recursive_feature_machine.json")).unwrap();
    let matrix = |value: &serde_json::Value| -> Array2<f64> {
        let rows: Vec<Vec<f64>> = serde_json::from_value(value.clone()).unwrap();
        Array2::from_shape_vec((rows.len(), rows[0].len()), rows.concat()).unwrap()
    };
    let (x, new) = (matrix(&golden["x"]), matrix(&golden["new"]));
    let y = Target::Values(serde_json::from_value(golden["y"].clone()).unwrap());
    let alpha = Alpha::Fixed(golden["alpha"].as_f64().unwrap());
    for case in golden["cases"].as_array().unwrap() {
        let form = if case["diagonal"] == true { MetricForm::Diagonal } else { MetricForm::Full };
        let rounds = case["rounds"].as_u64().unwrap() as usize;
        let machine = RecursiveFeatureMachine { alpha, ..fixed(case["kernel"].as_str().unwrap(), form, rounds) };
        let fitted = machine.fit(x.view(), &y, &FitContext::default()).unwrap();
        let off = worst(&fitted.metric(), &matrix(&case["metric"]));
        assert!(off < 1e-9, "the metric of {case} is off by {off}");
        let want: Vec<f64> = serde_json::from_value(case["new"].clone()).unwrap();
        let got = fitted.scores(new.view()).unwrap();
        let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-9, "predictions of {case} are off by {off}");
    }
}

#[test]
fn no_rounds_are_ridge_regression() {
    let (x, _, y) = along(60, 4, 1);
    let new = normal(9, 4, 2);
    for kernel_text in ["rbf(lengthscale=median)", "ntk(depth=2)"] {
        let fitted = fixed(kernel_text, MetricForm::Full, 0).fit(x.view(), &y, &FitContext::default()).unwrap();
        let kernel = Expression::parse(kernel_text).unwrap().resolve(x.view(), 0).unwrap();
        let ridge = Ridge { centred: true, ..Ridge::new(kernel) }.fit(x.view(), &y, &FitContext::default()).unwrap();
        assert_eq!(fitted.scores(new.view()).unwrap(), ridge.scores(new.view()).unwrap(), "{kernel_text}");
        assert_eq!((fitted.alpha(), fitted.tried()), (ridge.alpha, &ridge.tried[..]));
        assert_eq!(fitted.metric(), Array2::<f64>::eye(4));
    }
}

/// Every kernel finds the direction, in all columns and on landmarks, and predicts better for it.
#[test]
fn a_direction_is_found_and_helps() {
    let (x, u, y) = along(200, 8, 3);
    let (new, _, truth) = along(300, 8, 4);
    let context = FitContext::default();
    for (text, rank) in [
        ("rbf(lengthscale=median)", None),
        ("rbf(lengthscale=median)", Some(80)),
        ("laplacian(lengthscale=median)", None),
        ("matern12(lengthscale=median)", None),
        ("matern52(lengthscale=median)", None),
        ("ntk(depth=2, act=relu, b_var=0.1)", None),
        ("nngp(depth=1, act=erf, w_var=4)", None),
    ] {
        let machine = RecursiveFeatureMachine { rank, ..fixed(text, MetricForm::Full, 4) };
        let fitted = machine.fit(x.view(), &y, &context).unwrap();
        let importances = fitted.importances().unwrap();
        let direction = &importances.directions[0];
        let cosine = dot(ArrayView1::from(&direction.vector), &u).abs();
        assert!(cosine > 0.97 && direction.share > 0.7, "{text}: cosine {cosine}, share {}", direction.share);
        assert!(importances.agreement.unwrap() > 0.8 && direction.agreement.unwrap() > 0.8, "{text}: {importances:?}");
        assert!((importances.columns.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let plain = RecursiveFeatureMachine { rounds: Some(0), ..machine };
        let plain = plain.fit(x.view(), &y, &context).unwrap();
        let [learnt, plain] = [&fitted, &plain].map(|fitted| mean_square(fitted, new.view(), &truth));
        assert!(learnt < 0.7 * plain, "{text}: {learnt} for {plain}");
        assert_eq!(fitted.rank(), rank);
    }
}

#[test]
fn columns_without_influence_lose_their_weight() {
    let x = normal(200, 6, 5);
    let y = Target::Values(x.rows().into_iter().map(|x| (2.0 * x[1]).sin() + x[4]).collect());
    let fitted = machine("matern32(lengthscale=auto)").fit(x.view(), &y, &FitContext::default()).unwrap();
    assert!(fitted.rounds > 0 && fitted.metrics.len() == 11, "{:?}", fitted.metrics);
    let metric = fitted.metric();
    let idle = [0, 2, 3, 5].map(|j| metric[[j, j]]).into_iter().fold(0.0, f64::max);
    assert!(idle < 0.05 * metric[[1, 1]].min(metric[[4, 4]]), "{}", metric.diag());
    let importances = fitted.importances().unwrap();
    assert!(importances.columns[1] + importances.columns[4] > 0.97, "{importances:?}");
    assert!(importances.spread.as_ref().unwrap().iter().all(|s| *s < 0.1), "{importances:?}");
}

#[test]
fn classes_are_learnt_with_their_weights() {
    let x = normal(240, 5, 6);
    let class = |x: ArrayView1<f64>| usize::from(x[0] * x[1] > 0.0) + usize::from(x[0] > 1.0);
    let labels: Vec<usize> = x.rows().into_iter().map(class).collect();
    let y = Target::Classes { labels, names: ["a", "b", "c"].map(String::from).into() };
    let machine = RecursiveFeatureMachine { class_weights: ClassWeights::Balanced, ..machine("matern52(median)") };
    let fitted = machine.fit(x.view(), &y, &FitContext::default()).unwrap();
    let columns = &fitted.importances().unwrap().columns;
    assert!(columns[0] + columns[1] > 0.8, "{columns:?}");
    assert!(fitted.accuracy(x.view(), &y).unwrap() > 0.95);
    let scores = fitted.scores(x.view()).unwrap();
    assert!(fitted.probabilities(scores.view()).unwrap().rows().into_iter().all(|p| (p.sum() - 1.0).abs() < 1e-12));
}

#[test]
fn a_saved_machine_says_the_same() {
    let (x, _, y) = along(40, 3, 7);
    let new = normal(5, 3, 8);
    let (_folder, path) = scratch("machine.mercer");
    for (form, rank) in [(MetricForm::Full, None), (MetricForm::Diagonal, Some(20))] {
        let machine = RecursiveFeatureMachine { rank, ..fixed("rbf(2)", form, 2) };
        let fitted = machine.fit(x.view(), &y, &FitContext::default()).unwrap();
        fitted.save(&path).unwrap();
        let loaded = FittedRecursiveFeatureMachine::load(&path, Device::Cpu).unwrap();
        assert_eq!(loaded.scores(new.view()).unwrap(), fitted.scores(new.view()).unwrap());
        assert_eq!((loaded.importances(), loaded.metric()), (fitted.importances(), fitted.metric()));
        assert_eq!((loaded.origin().method.as_str(), loaded.form(), loaded.rounds), ("rfm", form, 2));
        let mut bundle = fitted.bundle().unwrap();
        bundle.put("root", Array2::zeros((2, 3)));
        bundle.write(&path).unwrap();
        says(FittedRecursiveFeatureMachine::load(&path, Device::Cpu), &["root", "do not fit together"]);
    }
}

#[test]
fn what_cannot_be_learnt_is_named() {
    let (x, _, y) = along(30, 3, 9);
    let context = FitContext::default();
    let refused = |kernel: &str| fixed(kernel, MetricForm::Full, 1).fit(x.view(), &y, &context);
    says(refused("rbf(ard)"), &["auto", "ard"]);
    says(refused("periodic(1)"), &["periodic", "not differentiated"]);
    for kernel in ["cosine", "arccos(1)", "poly(2, lengthscale=2)"] {
        refused(kernel).unwrap_or_else(|error| panic!("{kernel}: {error}"));
    }
    says(refused("linear"), &["linear", "no metric"]);
    // A target that does not change has no gradient: the metric stays as it is.
    let constant = Target::Values(vec![3.0; 30]);
    let fitted = fixed("rbf(1)", MetricForm::Full, 2).fit(x.view(), &constant, &context).unwrap();
    assert_eq!(fitted.metric(), Array2::<f64>::eye(3));
    assert!((fitted.scores(x.view()).unwrap() - 3.0).iter().all(|v| v.abs() < 1e-9));
}

/// From the first fit on there is a result.
#[test]
fn an_interrupt_keeps_what_there_is() {
    let (x, _, y) = along(100, 3, 10);
    let interrupt = Interrupt::new();
    struct After<'a>(&'a Interrupt, std::sync::atomic::AtomicBool);
    impl mercer::Progress for After<'_> {
        fn step(&self, what: &str, _: usize, _: usize, _: &str) {
            if what.contains("fit 3 of") && !self.1.swap(true, std::sync::atomic::Ordering::SeqCst) {
                assert!(self.0.request());
            }
        }
    }
    let progress = After(&interrupt, false.into());
    let context = FitContext { interrupt: Some(&interrupt), progress: &progress, ..FitContext::default() };
    let fitted = machine("rbf(median)").fit(x.view(), &y, &context).unwrap();
    assert_eq!(fitted.metrics.len(), 3);
    assert!(fitted.notes()[0].contains("interrupted"), "{:?}", fitted.notes());
    assert!(fitted.importances().unwrap().agreement.is_some());
}
