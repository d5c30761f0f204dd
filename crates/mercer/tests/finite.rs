//! No method returns, and no file holds, a number that is not finite: the answer is an error that says what to do.

mod common;

use common::*;
use mercer::apply::{
    Affinity, Alpha, Bandwidth, DiffusionMaps, Fit, KernelPca, LaplacianEigenmaps, Logistic, NadarayaWatson, Predict,
    Ridge, RidgeSolver, Transform,
};
use mercer::data::{Target, write_npy, write_npy_rows};
use mercer::spectrum::neural::{Neural, NeuralEf};
use mercer::spectrum::{Fourier, Landmarks, Nystrom, Positive, Sampling};
use mercer::{Error, Result};

fn methods() -> Vec<Box<dyn Method>> {
    let mut neural = Neural::new(NeuralEf::Joint);
    neural.settings.steps = 5;
    vec![
        Box::new(Exact),
        Box::new(Krylov::default()),
        Box::new(Nystrom { landmarks: 20, choice: Landmarks::Uniform }),
        Box::new(neural),
    ]
}

/// The error must be about numbers, and say what to do.
fn refused<T>(result: Result<T>, what: &str) {
    match result {
        Ok(_) => panic!("{what} is accepted"),
        Err(error) => {
            let text = error.to_string();
            assert!(matches!(error, Error::Numerical(_)), "{what}: {text}");
            assert!(text.contains("scale the data"), "{what}: {text}");
        }
    }
}

#[test]
fn kernels_that_overflow_or_vanish_are_refused_by_every_method() {
    let x = normal(60, 3, 1);
    let huge = &x * 1e160;
    for (text, x) in [
        ("expdot(0.001)", &x * 2.0),
        ("poly(63)", &x * 100.0),
        ("rbf(1e-300)", x.clone()),
        ("1e-200*rbf(1)", x.clone()),
        ("rbf(1)", huge.clone()),
        ("rbf(1e160)", huge.clone()),
        ("linear", huge.clone()),
        ("linear", &x * 1e100),
        ("linear", &x * 1e-100),
        ("matern32(1)", huge.clone()),
    ] {
        for method in methods() {
            let operator = on(&kernel(text), x.view());
            refused(
                Spectrum::fit(method.as_ref(), &Problem::new(&operator, 2), None),
                &format!("{text} by {} at {:.0e}", method.name(), x[[0, 0]]),
            );
        }
    }
    let fourier = Fourier { features: 20, sampling: Sampling::Plain, ritz: false };
    refused(Spectrum::fit(&fourier, &Problem::new(&on(&kernel("rbf(1e-300)"), x.view()), 2), None), "rff");
    let positive = Positive { features: 20, sampling: Sampling::Plain, exact_norm: false };
    let operator = on(&kernel("expdot(0.001)"), x.view());
    refused(Spectrum::fit(&positive, &Problem::new(&operator, 2), None), "positive");
}

#[test]
fn single_precision_has_a_smaller_range() {
    let x = normal(60, 3, 2);
    for (text, scale) in [("poly(20)", 30.0), ("linear", 1e20), ("linear", 1e-20)] {
        let x = &x * scale;
        for method in [&Exact as &dyn Method, &Krylov::default()] {
            let context = FitContext { precision: Precision::F32, ..FitContext::default() };
            let operator = context.kernel_operator(&kernel(text), x.view()).unwrap();
            let found = Spectrum::fit(method, &Problem { operator: &operator, k: 2, context }, None);
            refused(found, &format!("{text} at {scale}"));
        }
    }
}

/// The limits are wide: a kernel whose values are large, but not too large, is decomposed as any other.
#[test]
fn large_and_small_kernels_are_decomposed() {
    let x = normal(60, 3, 3);
    let one = fit_kernel(&Krylov::default(), "rbf(1)", x.view(), 3);
    for factor in [1e-100, 1e100] {
        for method in [&Exact as &dyn Method, &Krylov::default()] {
            let other = fit_kernel(method, &format!("{factor:e}*rbf(1)"), x.view(), 3);
            let back: Vec<f64> = other.eigenvalues.iter().map(|μ| μ / factor).collect();
            same_eigenvalues(&back, &one.eigenvalues, 1e-9, "scaled");
            assert!(other.certificate.residual.iter().all(|r| r.unwrap() < 1e-5));
        }
    }
}

#[test]
fn points_too_far_to_certify_on_or_to_evaluate_at_are_named() {
    let x = normal(60, 3, 4);
    let operator = on(&kernel("poly(3)"), x.view());
    let far = normal(20, 3, 5) * 1e120;
    let problem = Problem::new(&operator, 2);
    for method in methods() {
        let certified = Spectrum::fit(method.as_ref(), &problem, Some(far.view().into()));
        // Networks are bounded functions; the kernel at the far points is not.
        refused(certified, &format!("{} certified far away", method.name()));
    }
    let spectrum = fit(&Exact, &operator, 2);
    let mut new = normal(5, 3, 6);
    new[[3, 1]] = 1e120;
    says(spectrum.transform(new.view()), &["row 4", "scale the data"]);
    assert!(spectrum.transform(new.slice(s![..3, ..])).is_ok());
}

#[test]
fn estimators_refuse_what_is_not_finite() {
    let (x, context) = (normal(40, 3, 7), FitContext::default());
    let poly = || kernel("poly(3)");
    let y = Target::Values(x.column(0).to_vec());
    let mut new = normal(5, 3, 8);
    new[[3, 1]] = 1e120;
    let ridge = Ridge { alpha: Alpha::Fixed(0.1), solver: RidgeSolver::Direct, ..Ridge::new(poly()) };
    let fitted = ridge.fit(x.view(), &y, &context).unwrap();
    says(fitted.scores(new.view()), &["the prediction of row 4", "scale"]);
    says(fitted.predict(new.view()), &["row 4"]);
    let pca = KernelPca::new(poly()).fit(x.view(), &(), &context).unwrap();
    says(pca.transform(new.view()), &["the coordinate of row 4"]);

    let huge = &x * 1e160;
    let rbf = || kernel("rbf(1)");
    let finite = |what: &str, message: String| assert!(message.contains("scale"), "{what}: {message}");
    finite("kpca", message(KernelPca::new(rbf()).fit(huge.view(), &(), &context)));
    finite("ridge", message(Ridge::new(rbf()).fit(huge.view(), &y, &context)));
    let cg = Ridge {
        alpha: Alpha::Fixed(0.1),
        solver: RidgeSolver::conjugate_gradients(Precision::F64),
        ..Ridge::new(rbf())
    };
    assert!(cg.fit(huge.view(), &y, &context).is_err());
    assert!(DiffusionMaps::new(rbf()).fit(huge.view(), &(), &context).is_err());
    let affinity = Affinity::Kernel(rbf());
    assert!(LaplacianEigenmaps { affinity, ..Default::default() }.fit(huge.view(), &(), &context).is_err());
    let classes = Target::Values((0..40).map(|i| f64::from(i % 2)).collect()).as_classes().unwrap();
    assert!(Logistic::default().fit(huge.view(), &classes, &context).is_err());
}

/// Averages whose weights overflow are no averages, whether the bandwidth is given or sought.
#[test]
fn averages_are_finite_or_refused() {
    let (x, context) = (normal(40, 3, 9), FitContext::default());
    let y = Target::Values(x.column(0).to_vec());
    let huge = &x * 1e160;
    let average = |bandwidth| NadarayaWatson { kernel: kernel("rbf(1)"), bandwidth };
    says(average(Bandwidth::LeaveOneOut).fit(huge.view(), &y, &context), &["too large", "scale"]);
    let poly = NadarayaWatson { kernel: kernel("poly(2)"), bandwidth: Bandwidth::Fixed(1.0) };
    let fitted = poly.fit(x.view(), &y, &context).unwrap();
    says(fitted.averages(huge.slice(s![..2, ..])), &["the average of row 1", "scale"]);
    // Squared errors of such targets overflow at every bandwidth.
    let y = Target::Values(x.column(0).iter().map(|v| v * 1e200).collect());
    says(average(Bandwidth::LeaveOneOut).fit(x.view(), &y, &context), &["no bandwidth", "targets"]);
    let fitted = average(Bandwidth::Fixed(0.5)).fit(x.view(), &y, &context).unwrap();
    assert!(fitted.predict(x.view()).unwrap().values().iter().all(|v| v.is_finite()));
}

#[test]
fn arrays_are_written_with_finite_numbers_only() {
    let (folder, path) = scratch("a.npy");
    says(write_npy(&path, ndarray::array![[1.0, f64::NAN]].view()), &["number 2 of 2", "not finite", "a.npy"]);
    says(write_npy_rows(&path, &[2, 1], |put| put(&[1.0f32]).and_then(|()| put(&[f32::INFINITY]))), &["not finite"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    write_npy(&path, ndarray::array![1i64, i64::MAX].view()).unwrap();
}
