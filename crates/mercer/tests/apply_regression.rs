//! Ridge regression by every route, leave-one-out against brute force, averages against a loop.

mod common;

use common::{Rng, *};
use mercer::apply::{
    Alpha, Bandwidth, ClassWeights, Falkon, FeatureMap, FeatureRidge, Fit, KernelSearch, LandmarkSolver,
    NadarayaWatson, Predict, Ridge, RidgeSolver, SpectralRidge, filter,
};
use mercer::data::{Target, generate};
use mercer::linalg::Cholesky;
use mercer::operator::Budget;
use mercer::spectrum::{Landmarks, Sampling};
use ndarray::Array1;
use proptest::prelude::*;

/// The first `k` pairs of the kernel on the points.
fn exact(kernel: &Kernel, x: ArrayView2<f64>, k: usize) -> Spectrum {
    fit(&Exact, &on(kernel, x), k)
}

/// A fitted estimator of numbers, on the CPU in double precision.
fn fitted<E: Fit<Target = Target>>(estimator: &E, x: ArrayView2<f64>, y: &[f64]) -> E::Fitted {
    estimator.fit(x, &Target::Values(y.to_vec()), &FitContext::default()).unwrap()
}

fn problem(n: usize, seed: u64) -> (Array2<f64>, Vec<f64>) {
    let mut rng = Rng::new(seed);
    let x = rng.normals((n, 2));
    let y = x.rows().into_iter().map(|r| (2.0 * r[0]).sin() + r[1] + 0.2 * rng.normal()).collect();
    (x, y)
}

/// The mean square error of predicting each of n targets from the others: `without(i, rest)` predicts the i-th.
fn brute_force(y: &[f64], without: impl Fn(usize, &[usize]) -> f64) -> f64 {
    let n = y.len();
    let error = |i: usize| (without(i, &(0..n).filter(|&j| j != i).collect::<Vec<_>>()) - y[i]).powi(2);
    (0..n).map(error).sum::<f64>() / n as f64
}

fn at(y: &[f64], rows: &[usize]) -> Vec<f64> {
    rows.iter().map(|&i| y[i]).collect()
}

/// `κ(z,X)(K + αI)⁻¹y` written out.
fn by_hand(kernel: &Kernel, x: ArrayView2<f64>, y: &[f64], alpha: f64, z: ArrayView2<f64>) -> Array2<f64> {
    let mut k = matrix(kernel, x);
    k.diag_mut().mapv_inplace(|d| d + alpha);
    let y = Array1::from(y.to_vec()).insert_axis(Axis(1));
    let c = Cholesky::new(Device::Cpu, k.view()).unwrap().solve(y.view()).unwrap();
    gram_cross::<f64>(kernel, z, x, Device::Cpu).unwrap().dot(&c)
}

/// With every point a landmark, Falkon is ridge regression with the targets' mean subtracted, and so are its left-out errors: those of predicting each
/// point from the others, the mean kept, by solving for the others.
#[test]
fn left_out_errors_of_falkon_are_of_the_model_that_it_fits() {
    let (x, y) = problem(60, 5);
    let kernel = kernel("matern32(1.5)");
    let mean = y.iter().sum::<f64>() / 60.0;
    let centred: Vec<f64> = y.iter().map(|y| y - mean).collect();
    for solver in [LandmarkSolver::Falkon, LandmarkSolver::Krill] {
        let falkon = fitted(&Falkon { solver, ..Falkon::new(kernel.clone(), 60) }, x.view(), &y);
        for tried in falkon.tried.iter().filter(|tried| tried.value > 1e-4).step_by(4) {
            let want = brute_force(&centred, |i, rest| {
                let (points, point) = (x.select(Axis(0), rest), x.select(Axis(0), &[i]));
                by_hand(&kernel, points.view(), &at(&centred, rest), tried.value, point.view())[[0, 0]]
            });
            assert!((tried.error / want - 1.0).abs() < 1e-6, "{}: {} {want}", tried.value, tried.error);
        }
    }
}

/// f = b + κ(x,X)c minimises `‖y − f‖² + α cᵀKc`. Ridge, Falkon and KRILL take the mean of y for b. Features have the b that minimises it too, and the
/// two differ: at a large α by far.
#[test]
fn the_two_conventions_of_the_intercept_are_as_documented() {
    let (x, y) = problem(80, 6);
    let (kernel, alpha) = (kernel("rbf(1)"), 5.0);
    let n = y.len();
    let mut a = matrix(&kernel, x.view());
    let k = a.clone();
    a.diag_mut().mapv_inplace(|d| d + alpha);
    let factor = Cholesky::new(Device::Cpu, a.view()).unwrap();
    let predicted = |b: f64| {
        let rest = Array1::from(y.clone()).insert_axis(Axis(1)) - b;
        k.dot(&factor.solve(rest.view()).unwrap()) + b
    };
    let mean = y.iter().sum::<f64>() / n as f64;
    // b = 1ᵀA⁻¹y / 1ᵀA⁻¹1
    let ones = Array2::ones((n, 1));
    let weights = factor.solve(ones.view()).unwrap();
    let free = weights.column(0).dot(&Array1::from(y.clone())) / weights.sum();
    let (centred, unpenalised) = (predicted(mean), predicted(free));
    let apart = (&centred - &unpenalised).fold(0.0f64, |m, e| m.max(e.abs()));
    assert!(apart > 1e-3, "{apart}");
    let alpha = Alpha::Fixed(alpha);
    let off = |scores: Array2<f64>, want: &Array2<f64>| (scores - want).fold(0.0f64, |m, e| m.max(e.abs()));
    let ridge = fitted(&Ridge { alpha, centred: true, ..Ridge::new(kernel.clone()) }, x.view(), &y);
    assert!(off(ridge.scores(x.view()).unwrap(), &centred) < 1e-9);
    for solver in [LandmarkSolver::Falkon, LandmarkSolver::Krill] {
        let falkon = Falkon { alpha, solver, tolerance: 1e-10, ..Falkon::new(kernel.clone(), n) };
        assert!(off(fitted(&falkon, x.view(), &y).scores(x.view()).unwrap(), &centred) < 1e-6);
    }
    let map = FeatureMap::Nystrom { kernel: kernel.clone(), landmarks: n, choice: Landmarks::Uniform };
    let features = fitted(&FeatureRidge { alpha, ..FeatureRidge::new(map) }, x.view(), &y);
    assert!(off(features.scores(x.view()).unwrap(), &unpenalised) < 1e-6);
}

/// Squared errors of targets of 1e-165 are all 0 in double precision, and any α would look best.
#[test]
fn targets_too_small_for_their_squares_are_refused() {
    let (x, y) = problem(40, 7);
    let ridge = Ridge { centred: true, ..Ridge::new(kernel("rbf(1)")) };
    let small = |factor: f64| Target::Values(y.iter().map(|y| y * factor).collect());
    for factor in [1e-142, 1e-165, 1e-300] {
        says(ridge.fit(x.view(), &small(factor), &FitContext::default()), &["the targets are", "multiply them"]);
    }
    let [usual, scaled] = [1.0, 1e-130].map(|f| ridge.fit(x.view(), &small(f), &FitContext::default()).unwrap());
    assert_eq!(usual.alpha, scaled.alpha);
    let off = usual.scores(x.view()).unwrap() - scaled.scores(x.view()).unwrap() * 1e130;
    assert!(off.iter().all(|e| e.abs() < 1e-9));
    let zero = Target::Values(vec![0.0; 40]);
    assert!(ridge.fit(x.view(), &zero, &FitContext::default()).is_ok());
}

#[test]
fn direct_iterative_and_spectral_ridge_agree() {
    let (x, y) = problem(150, 1);
    let (z, _) = problem(20, 2);
    let kernel = kernel("rbf(1)");
    for alpha in [1e-3, 0.1, 10.0] {
        let want = by_hand(&kernel, x.view(), &y, alpha, z.view());
        let fit =
            |solver| fitted(&Ridge { alpha: Alpha::Fixed(alpha), solver, ..Ridge::new(kernel.clone()) }, x.view(), &y);
        let direct = fit(RidgeSolver::Direct);
        assert!(worst(&direct.scores(z.view()).unwrap(), &want) < 1e-9);
        let cg = fit(RidgeSolver::ConjugateGradients { tolerance: 1e-11, iterations: 500, rank: Some(40) });
        assert!(worst(&cg.scores(z.view()).unwrap(), &want) < 1e-6, "α = {alpha}");
        assert!(cg.convergence.residual.unwrap() <= 1e-11 && cg.convergence.iterations.unwrap() < 200);
        // All pairs of the exact spectrum; directions below rounding are cut off, which α outweighs.
        let spectrum = exact(&kernel, x.view(), 150).into();
        let ridge = SpectralRidge { alpha: Alpha::Fixed(alpha), ..SpectralRidge::new(spectrum) };
        assert!(worst(&fitted(&ridge, x.view(), &y).scores(z.view()).unwrap(), &want) < 1e-6, "α = {alpha}");
    }
}

/// A constant in the targets changes nothing: their mean is subtracted for a kernel matrix, and functions have an intercept that is not penalised.
#[test]
fn an_intercept_makes_a_constant_no_matter() {
    let ((x, y), (z, _)) = (problem(150, 1), problem(20, 2));
    let high: Vec<f64> = y.iter().map(|y| y + 300.0).collect();
    let mean = y.iter().sum::<f64>() / 150.0;
    let centred: Vec<f64> = y.iter().map(|y| y - mean).collect();
    let want = by_hand(&kernel("rbf(1)"), x.view(), &centred, 0.1, z.view()) + mean + 300.0;
    for solver in [RidgeSolver::Direct, RidgeSolver::conjugate_gradients(Precision::F64)] {
        let ridge = Ridge { alpha: Alpha::Fixed(0.1), solver, centred: true, ..Ridge::new(kernel("rbf(1)")) };
        assert!(worst(&fitted(&ridge, x.view(), &high).scores(z.view()).unwrap(), &want) < 1e-5);
    }
    let spectrum = exact(&kernel("rbf(1)"), x.view(), 150).into();
    let ridge = SpectralRidge { alpha: Alpha::Fixed(0.1), intercept: true, ..SpectralRidge::new(spectrum) };
    let want = with_intercept(&kernel("rbf(1)"), x.view(), &high, 0.1, z.view());
    assert!(worst(&fitted(&ridge, x.view(), &high).scores(z.view()).unwrap(), &want) < 1e-5);
}

/// They add up to tr K(K + αI)⁻¹.
#[test]
fn filter_factors_are_the_eigenvalues_of_the_smoother() {
    let (x, _) = problem(80, 3);
    let kernel = kernel("matern32(1)");
    let spectrum = exact(&kernel, x.view(), 80);
    let k = matrix(&kernel, x.view());
    let shifted = &k + &(0.3 * Array2::<f64>::eye(80));
    let smoother = Cholesky::new(Device::Cpu, shifted.view()).unwrap().solve(k.view()).unwrap();
    let want: f64 = smoother.diag().sum();
    let factors = filter::factors(&spectrum.eigenvalues, 0.3, 80);
    assert!((factors.iter().sum::<f64>() - want).abs() < 1e-9);
}

#[test]
fn closed_form_leave_one_out_is_brute_force() {
    let (x, y) = problem(40, 4);
    let kernel = kernel("rbf(0.8)");
    let fitted = fitted(&Ridge { solver: RidgeSolver::Direct, ..Ridge::new(kernel.clone()) }, x.view(), &y);
    let brute = |alpha: f64| {
        brute_force(&y, |i, rest| {
            let new = x.select(Axis(0), &[i]);
            by_hand(&kernel, x.select(Axis(0), rest).view(), &at(&y, rest), alpha, new.view())[[0, 0]]
        })
    };
    for tried in fitted.tried.iter().filter(|t| t.value > 1e-7) {
        let want = brute(tried.value);
        assert!((tried.error - want).abs() < 1e-6 * want, "α = {}: {} for {want}", tried.value, tried.error);
    }
    // The one chosen is the best, and the prediction is that of ridge regression with it.
    assert!(fitted.tried.iter().all(|t| t.error >= brute(fitted.alpha) * (1.0 - 1e-6)));
    let (z, _) = problem(5, 5);
    let want = by_hand(&kernel, x.view(), &y, fitted.alpha, z.view());
    assert!(worst(&fitted.scores(z.view()).unwrap(), &want) < 1e-9);
}

#[test]
fn spectral_leave_one_out_is_brute_force() {
    let (x, y) = problem(60, 6);
    let kernel = kernel("rbf(1)");
    // Eigenfunctions of other points: fixed features.
    let (w, _) = problem(100, 7);
    let spectrum = || exact(&kernel, w.view(), 15);
    let fit = |alpha, x: ArrayView2<f64>, y: &[f64]| {
        fitted(&SpectralRidge { alpha, ..SpectralRidge::new(spectrum().into()) }, x, y)
    };
    let fitted = fit(Alpha::LeaveOneOut, x.view(), &y);
    for tried in fitted.tried.iter().step_by(5) {
        let want = brute_force(&y, |i, rest| {
            let without = fit(Alpha::Fixed(tried.value), x.select(Axis(0), rest).view(), &at(&y, rest));
            without.scores(x.select(Axis(0), &[i]).view()).unwrap()[[0, 0]]
        });
        assert!((tried.error - want).abs() < 1e-6 * want, "α = {}: {} for {want}", tried.value, tried.error);
    }
}

#[test]
fn cross_validation_with_as_many_folds_as_points_is_leave_one_out() {
    let (x, y) = problem(30, 8);
    let fit =
        |alpha| fitted(&Ridge { alpha, solver: RidgeSolver::Direct, ..Ridge::new(kernel("rbf(1)")) }, x.view(), &y);
    let (loo, cv) = (fit(Alpha::LeaveOneOut), fit(Alpha::CrossValidation { folds: 30 }));
    for (a, b) in loo.tried.iter().zip(&cv.tried).filter(|(a, _)| a.value > 1e-7) {
        assert!((a.error - b.error).abs() < 1e-6 * a.error, "α = {}: {} {}", a.value, a.error, b.error);
    }
    assert_eq!(loo.alpha, cv.alpha);
}

#[test]
fn the_iterative_solver_finds_alpha_and_needs_no_stored_matrix() {
    let (x, y) = problem(700, 9);
    let (z, truth) = problem(300, 10);
    let target = Target::Values(y);
    let fit = |alpha, solver, budget, precision| {
        let context = FitContext { budget, precision, ..Default::default() };
        Ridge { alpha, solver, ..Ridge::new(kernel("rbf(1)")) }.fit(x.view(), &target, &context).unwrap()
    };
    let error = |predicted: Target| {
        predicted.values().iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / truth.len() as f64
    };
    let exact = fit(Alpha::LeaveOneOut, RidgeSolver::Auto, Budget::of(1 << 30), Precision::F64);
    for precision in [Precision::F64, Precision::F32] {
        // 700² numbers are 4 MB in double precision: a third of the budget is less.
        let solver = RidgeSolver::conjugate_gradients(precision);
        let cg = fit(Alpha::CrossValidation { folds: 5 }, solver, Budget::of(3_000_000), precision);
        assert!(cg.convergence.iterations.is_some() && !cg.tried.is_empty());
        let (a, b) = (error(cg.predict(z.view()).unwrap()), error(exact.predict(z.view()).unwrap()));
        assert!(a < 1.05 * b, "{a} {b}, α = {} {}", cg.alpha, exact.alpha);
    }
    // Leave-one-out by the preconditioner's low rank, which this smooth kernel is.
    let solver = RidgeSolver::ConjugateGradients { tolerance: 1e-8, iterations: 500, rank: Some(300) };
    let cg = fit(Alpha::LeaveOneOut, solver, Budget::of(30_000_000), Precision::F64);
    assert_eq!(cg.alpha, exact.alpha);
    for (a, b) in cg.tried.iter().zip(&exact.tried).filter(|(a, _)| a.value > 1e-4) {
        assert!((a.error - b.error).abs() < 1e-3 * b.error, "α = {}: {} {}", a.value, a.error, b.error);
    }
}

/// `b + φ(z)W` by the kernel of the features alone: with `H = I − 11ᵀ/n`, `c = (HKH + αI)⁻¹Hy` and `W = Φᵀ H c`.
fn with_intercept(kernel: &Kernel, x: ArrayView2<f64>, y: &[f64], alpha: f64, z: ArrayView2<f64>) -> Array2<f64> {
    let n = x.nrows();
    let centre = Array2::<f64>::eye(n) - 1.0 / n as f64;
    let k = matrix(kernel, x);
    let y = Array1::from(y.to_vec()).insert_axis(Axis(1));
    let shifted = centre.dot(&k).dot(&centre) + Array2::<f64>::eye(n) * alpha;
    let c = centre.dot(&Cholesky::new(Device::Cpu, shifted.view()).unwrap().solve(centre.dot(&y).view()).unwrap());
    let cross = gram_cross::<f64>(kernel, z, x, Device::Cpu).unwrap() - k.mean_axis(Axis(0)).unwrap();
    cross.dot(&c) + y.mean().unwrap()
}

#[test]
fn ridge_on_features_is_that_of_their_kernel() {
    let ((x, y), (z, _)) = (problem(150, 1), problem(20, 2));
    let y: Vec<f64> = y.iter().map(|y| y + 50.0).collect();
    let all = |text: &str, choice| FeatureMap::Nystrom { kernel: kernel(text), landmarks: 150, choice };
    for alpha in [1e-3, 0.1, 10.0] {
        // An intercept makes a shift of the points no matter to a linear kernel, and none to the others.
        let check = |map: FeatureMap, text: &str, shift: f64| {
            let want = with_intercept(&kernel(text), x.view(), &y, alpha, z.view());
            let ridge = FeatureRidge { alpha: Alpha::Fixed(alpha), ..FeatureRidge::new(map) };
            let found = fitted(&ridge, (&x + shift).view(), &y).scores((&z + shift).view()).unwrap();
            let off = worst(&found, &want);
            assert!(off < 1e-6, "{text}, α = {alpha}: {off}");
        };
        check(all("rbf(1)", Landmarks::Uniform), "rbf(1)", 0.0);
        check(all("matern32(2)", Landmarks::KMeansPlusPlus), "matern32(2)", 0.0);
        check(FeatureMap::Linear { scale: 0.5 }, "0.5*linear", 0.0);
        check(FeatureMap::Linear { scale: 1.0 }, "linear", 1e4);
        // Six landmarks are all that a quadratic of two columns needs.
        let map =
            FeatureMap::Nystrom { kernel: kernel("poly(degree=2)"), landmarks: 6, choice: Landmarks::PivotedCholesky };
        check(map, "poly(degree=2)", 0.0);
    }
}

#[test]
fn leave_one_out_on_features_is_brute_force() {
    let (x, y) = problem(60, 6);
    let labels: Vec<usize> = y.iter().map(|y| usize::from(*y > 0.3)).collect();
    let names: Vec<String> = ["a", "b"].map(String::from).to_vec();
    let target =
        |rows: &[usize]| Target::Classes { labels: rows.iter().map(|&i| labels[i]).collect(), names: names.clone() };
    let all: Vec<usize> = (0..60).collect();
    for class_weights in [ClassWeights::Equal, ClassWeights::Given(vec![("b".into(), 3.0)])] {
        let weight = |i: usize| if class_weights != ClassWeights::Equal && labels[i] == 1 { 3.0 } else { 1.0 };
        let map = FeatureMap::Random { kernel: kernel("rbf(1)"), features: 20, sampling: Sampling::Plain };
        let fit = |alpha, rows: &[usize]| {
            // The centre of the waves is that of the points; without one row it would be another, and only turn the features.
            let ridge = FeatureRidge { map: map.clone(), alpha, class_weights: class_weights.clone() };
            ridge.fit(x.select(Axis(0), rows).view(), &target(rows), &FitContext::default()).unwrap()
        };
        let fitted = fit(Alpha::LeaveOneOut, &all);
        for tried in fitted.tried.iter().filter(|t| t.value > 1e-6).step_by(4) {
            let (mut sum, mut total) = (0.0, 0.0);
            for (i, &label) in labels.iter().enumerate().take(60) {
                let rest: Vec<usize> = all.iter().copied().filter(|&j| j != i).collect();
                let scores = fit(Alpha::Fixed(tried.value), &rest).scores(x.select(Axis(0), &[i]).view()).unwrap();
                let error = |c: usize| (scores[[0, c]] - if label == c { 1.0 } else { -1.0 }).powi(2);
                sum += weight(i) * (error(0) + error(1));
                total += weight(i);
            }
            let want = sum / total;
            assert!((tried.error - want).abs() < 1e-6 * want, "α = {}: {} for {want}", tried.value, tried.error);
        }
    }
}

#[test]
fn cross_validation_on_features_with_a_fold_for_each_point_is_leave_one_out() {
    let (x, y) = problem(40, 8);
    let fit =
        |alpha| fitted(&FeatureRidge { alpha, ..FeatureRidge::new(FeatureMap::Linear { scale: 1.0 }) }, x.view(), &y);
    let (loo, cv) = (fit(Alpha::LeaveOneOut), fit(Alpha::CrossValidation { folds: 40 }));
    for (a, b) in loo.tried.iter().zip(&cv.tried) {
        assert!((a.error - b.error).abs() < 1e-9 * a.error, "α = {}: {} {}", a.value, a.error, b.error);
    }
}

/// Blocks of rows add up: more points than one block holds.
#[test]
fn many_points_are_summed_block_by_block() {
    let (x, y) = problem(9000, 17);
    let (z, truth) = problem(500, 18);
    let map = FeatureMap::Nystrom { kernel: kernel("rbf(1)"), landmarks: 80, choice: Landmarks::KMeansPlusPlus };
    let found = fitted(&FeatureRidge::new(map), x.view(), &y);
    let values = found.predict(z.view()).unwrap().values();
    let error = values.iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / 500.0;
    // The noise has variance 0.04.
    assert!((error - 0.04).abs() < 0.01, "{error}");
    let linear = fitted(
        &FeatureRidge { alpha: Alpha::Fixed(2.0), ..FeatureRidge::new(FeatureMap::Linear { scale: 1.0 }) },
        x.view(),
        &y,
    );
    let design = ndarray::concatenate![Axis(1), Array2::ones((9000, 1)), x];
    let mut normal = design.t().dot(&design);
    (1..3).for_each(|j| normal[[j, j]] += 2.0);
    let right = design.t().dot(&Array1::from(y.clone()).insert_axis(Axis(1)));
    let w = Cholesky::new(Device::Cpu, normal.view()).unwrap().solve(right.view()).unwrap();
    let want = ndarray::concatenate![Axis(1), Array2::ones((500, 1)), z].dot(&w);
    assert!(worst(&linear.scores(z.view()).unwrap(), &want) < 1e-10);
}

#[test]
fn the_search_finds_the_lengthscale_that_brute_force_finds() {
    let (x, _) = problem(300, 19);
    let mut rng = Rng::new(20);
    let y: Vec<f64> = x.rows().into_iter().map(|r| (5.0 * r[0]).sin() + 0.1 * rng.normal()).collect();
    let target = Target::Values(y.clone());
    let texts = ["linear", "rbf(lengthscale=auto)", "rbf(lengthscale=median)"];
    let candidates = texts.map(|text| mercer::kernel::Expression::parse(text).unwrap()).to_vec();
    let found = KernelSearch::new(candidates).best(x.view(), &target, &FitContext::default()).unwrap();
    assert!(found.tried.windows(2).all(|w| w[0].error <= w[1].error));
    assert_eq!(found.kernel.to_string(), found.tried[0].kernel);
    let left_out = |text: &str| {
        let map = FeatureMap::Nystrom { kernel: kernel(text), landmarks: 300, choice: Landmarks::Uniform };
        fitted(&FeatureRidge::new(map), x.view(), &y).tried.iter().map(|t| t.error).fold(f64::INFINITY, f64::min)
    };
    let least =
        (-20..20).map(|i| left_out(&format!("rbf({})", (f64::from(i) / 4.0).exp2()))).fold(f64::INFINITY, f64::min);
    assert!(found.tried[0].error < 1.01 * least, "{} {least}", found.tried[0].error);
    let error = mercer::kernel::Expression::parse("rbf(auto)").unwrap().resolve(x.view(), 0).unwrap_err().to_string();
    assert!(error.contains("use median or a number"), "{error}");
}

#[test]
fn an_early_end_of_conjugate_gradients_is_a_result_with_a_note() {
    let (x, y) = problem(300, 11);
    let target = Target::Values(y);
    let fit = |iterations| {
        let solver = RidgeSolver::ConjugateGradients { tolerance: 1e-12, iterations, rank: Some(5) };
        let ridge = Ridge { alpha: Alpha::Fixed(1e-6), solver, ..Ridge::new(kernel("rbf(1)")) };
        ridge.fit(x.view(), &target, &FitContext::default()).unwrap()
    };
    let early = fit(3);
    let note = early.notes().join("");
    let residual = early.convergence.residual.unwrap();
    assert!(residual > 1e-12 && residual < 1.0);
    assert!(
        note.contains(&format!("{residual:.1e}")) && note.contains("a preconditioner of higher rank or a larger α"),
        "{note}"
    );
    assert!(fit(40).convergence.residual.unwrap() < residual);
}

#[test]
fn single_precision_is_used_only_where_it_is_precise_enough() {
    let (x, y) = problem(800, 12);
    let (z, _) = problem(100, 13);
    let target = Target::Values(y);
    let fit = |alpha: f64, solver, precision| {
        let context = FitContext { precision, ..Default::default() };
        let ridge = Ridge { alpha: Alpha::Fixed(alpha), solver, ..Ridge::new(kernel("rbf(1)")) };
        ridge.fit(x.view(), &target, &context).unwrap()
    };
    // Small α: the coefficients are as large as 1/α, and so is what rounding does to the predictions.
    for (alpha, solver, used) in [
        (1e-6, RidgeSolver::Direct, Precision::F64),
        (1e-4, RidgeSolver::conjugate_gradients(Precision::F32), Precision::F64),
        (10.0, RidgeSolver::Direct, Precision::F32),
    ] {
        let [double, single] = [Precision::F64, Precision::F32].map(|precision| fit(alpha, solver, precision));
        assert_eq!(single.origin().precision, used, "α = {alpha}");
        let [a, b] = [double, single].map(|fitted| fitted.scores(z.view()).unwrap());
        let worst = (&a - &b).iter().fold(0.0f64, |worst, d| worst.max(d.abs()));
        assert!(worst < 3e-3, "α = {alpha}: off by {worst}");
    }
}

#[test]
fn failures_have_clear_messages() {
    let (x, y) = problem(300, 11);
    let target = Target::Values(y);
    let ridge = |alpha, solver| Ridge { alpha: Alpha::Fixed(alpha), solver, ..Ridge::new(kernel("rbf(1)")) };
    let context = FitContext { budget: Budget::of(1000), ..Default::default() };
    says(ridge(1.0, RidgeSolver::Direct).fit(x.view(), &target, &context), &["conjugate gradients"]);
    // A singular matrix at α = 0: the same point twice.
    let twice = ndarray::array![[0.0], [0.0]];
    let y = Target::Values(vec![0.0, 1.0]);
    says(ridge(0.0, RidgeSolver::Direct).fit(twice.view(), &y, &FitContext::default()), &["larger ridge"]);
}

#[test]
fn classes_are_separated() {
    let (train, test) = generate::moons(300, 0.15, 1).unwrap().split(0.5, 2).unwrap();
    let (x, new) = (train.x.into_f64(), test.x.into_f64());
    let (y, truth) = (train.y.unwrap(), test.y.unwrap());
    let (kernel, context) = (kernel("rbf(0.5)"), FitContext::default());
    let ridge = Ridge::new(kernel.clone()).fit(x.view(), &y, &context).unwrap();
    assert!(ridge.accuracy(new.view(), &truth).unwrap() > 0.96);
    assert_eq!(ridge.scores(new.view()).unwrap().dim(), (150, 2));
    let average = NadarayaWatson::new(kernel).fit(x.view(), &y, &context).unwrap();
    assert!(average.accuracy(new.view(), &truth).unwrap() > 0.96);
    let averages = average.averages(new.view()).unwrap();
    assert!(averages.unreached.is_empty());
    assert!(averages.scores.sum_axis(Axis(1)).iter().all(|s| (s - 1.0).abs() < 1e-12));
}

/// Σ κ y / Σ κ over `rows`, κ stretched by h.
fn average(kernel: &Kernel, x: &Array2<f64>, y: &[f64], h: f64, at: &[f64], rows: &[usize]) -> f64 {
    let stretch = |v: &[f64]| v.iter().map(|v| v / h).collect::<Vec<_>>();
    let weights: Vec<f64> = rows.iter().map(|&i| kernel.value(&stretch(at), &stretch(&x.row(i).to_vec()))).collect();
    rows.iter().zip(&weights).map(|(&i, w)| w * y[i]).sum::<f64>() / weights.iter().sum::<f64>()
}

#[test]
fn averages_and_their_leave_one_out_agree_with_a_loop() {
    let (x, y) = problem(60, 12);
    let (z, _) = problem(9, 13);
    for text in ["rbf(1)", "laplacian(0.7)", "0.3*matern52(2) + rbf(0.5)"] {
        let kernel = kernel(text);
        let fitted = fitted(&NadarayaWatson::new(kernel.clone()), x.view(), &y);
        let all: Vec<usize> = (0..60).collect();
        let scores = fitted.scores(z.view()).unwrap();
        for (i, row) in z.rows().into_iter().enumerate() {
            let want = average(&kernel, &x, &y, fitted.bandwidth, &row.to_vec(), &all);
            assert!((scores[[i, 0]] - want).abs() < 1e-11, "{text}");
        }
        let loo = |h: f64| brute_force(&y, |i, rest| average(&kernel, &x, &y, h, &x.row(i).to_vec(), rest));
        // Below a tenth of a lengthscale the weights of all others may vanish, and the mean is used.
        for tried in fitted.tried.iter().filter(|t| t.value > 0.1) {
            let want = loo(tried.value);
            assert!((tried.error - want).abs() < 1e-6 * want, "{text}, h = {}: {} {want}", tried.value, tried.error);
        }
        // The section found a minimum.
        let (h, best) = (fitted.bandwidth, loo(fitted.bandwidth));
        assert!([0.7, 0.9, 1.1, 1.4].iter().all(|s| loo(s * h) >= best - 1e-9), "{text}");
    }
    let linear = NadarayaWatson::new(kernel("linear"));
    says(linear.fit(x.view(), &Target::Values(y), &FitContext::default()), &["negative values"]);
}

#[test]
fn a_wide_bandwidth_gives_the_mean_and_a_narrow_one_the_nearest() {
    let (x, y) = problem(50, 14);
    let mean = y.iter().sum::<f64>() / 50.0;
    let [wide, narrow] = [1e6, 1e-5].map(|h| {
        let average = NadarayaWatson { kernel: kernel("rbf(1)"), bandwidth: Bandwidth::Fixed(h) };
        fitted(&average, x.view(), &y).scores(x.view()).unwrap()
    });
    assert!(wide.iter().all(|s| (s - mean).abs() < 1e-9));
    assert!(narrow.iter().zip(&y).all(|(s, y)| (s - y).abs() < 1e-12));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Ridge regression is linear in y and does not know the order of the points, and conjugate gradients find the same.
    #[test]
    fn ridge_is_linear_and_ignores_the_order(n in 3usize..60, seed in 0u64..1000, log_alpha in -3.0..2.0f64) {
        let ((x, y), (z, _)) = (problem(n, seed), problem(4, seed + 1));
        let mut rng = Rng::new(seed + 2);
        let other: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let fit = |x: ArrayView2<f64>, y: &[f64], solver| {
            let ridge = Ridge { alpha: Alpha::Fixed(10f64.powf(log_alpha)), solver, ..Ridge::new(kernel("matern52(1.5)")) };
            fitted(&ridge, x, y).scores(z.view()).unwrap()
        };
        let direct = fit(x.view(), &y, RidgeSolver::Direct);
        let sum: Vec<f64> = y.iter().zip(&other).map(|(a, b)| 2.0 * a - b).collect();
        let want = 2.0 * &direct - fit(x.view(), &other, RidgeSolver::Direct);
        prop_assert!(worst(&fit(x.view(), &sum, RidgeSolver::Direct), &want) < 1e-9);
        let order = rng.sample(n, n);
        let again = fit(x.select(Axis(0), &order).view(), &at(&y, &order), RidgeSolver::Direct);
        prop_assert!(worst(&again, &direct) < 1e-9);
        let cg = fit(x.view(), &y, RidgeSolver::conjugate_gradients(Precision::F64));
        prop_assert!(worst(&cg, &direct) < 1e-5);
    }

    /// An average lies between the smallest and the largest of its terms.
    #[test]
    fn averages_stay_within_the_targets(n in 2usize..50, seed in 0u64..1000, h in 0.01..50.0f64) {
        let ((x, y), (z, _)) = (problem(n, seed), problem(6, seed + 1));
        let (low, high) = y.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        let average = NadarayaWatson { kernel: kernel("matern32(1)"), bandwidth: Bandwidth::Fixed(h) };
        let scores = fitted(&average, x.view(), &y).scores(z.view()).unwrap();
        prop_assert!(scores.iter().all(|s| (low - 1e-12..=high + 1e-12).contains(s)));
    }
}

/// Eigenfunctions as a feature map are those of the spectrum: ridge regression on either is the same.
#[test]
fn eigenfunctions_are_features_like_others() {
    let (x, new) = (normal(80, 2, 31), normal(20, 2, 32));
    let y = Target::Values(x.column(0).mapv(|v| (2.0 * v).sin()).to_vec());
    let (kernel, context, alpha) = (kernel("rbf(1)"), FitContext::default(), Alpha::Fixed(0.3));
    let operator = context.kernel_operator(&kernel, x.view()).unwrap();
    let spectrum = Spectrum::fit(&Krylov::default(), &Problem::new(&operator, 12), None).unwrap();
    let spectral =
        SpectralRidge { spectrum: spectrum.into(), alpha, intercept: true, class_weights: ClassWeights::Equal };
    let map = FeatureMap::Eigenfunctions { kernel, pairs: 12 };
    let features = FeatureRidge { alpha, ..FeatureRidge::new(map) };
    let ours = features.fit(x.view(), &y, &context).unwrap().scores(new.view()).unwrap();
    let theirs = spectral.fit(x.view(), &y, &context).unwrap().scores(new.view()).unwrap();
    assert!((&ours - &theirs).iter().all(|e| e.abs() < 1e-9), "{}", &ours - &theirs);
}
