//! Weights of classes: against rows that are repeated, and against dense systems.

mod common;

use common::{Rng, *};
use mercer::apply::{Alpha, ClassWeights, FeatureMap, FeatureRidge, Fit, Predict, Ridge, RidgeSolver, SpectralRidge};
use mercer::data::Target;
use mercer::linalg::Cholesky;
use ndarray::Array1;

fn problem(n: usize, seed: u64) -> (Array2<f64>, Vec<f64>) {
    let mut rng = Rng::new(seed);
    let x = rng.normals((n, 2));
    let y = x.rows().into_iter().map(|r| (2.0 * r[0]).sin() + r[1] + 0.2 * rng.normal()).collect();
    (x, y)
}

/// A weight of two is the row twice.
#[test]
fn class_weights_repeat_rows() {
    let (x, y) = problem(80, 16);
    let labels: Vec<usize> = y.iter().map(|y| usize::from(*y > 0.3)).collect();
    let names: Vec<String> = ["a", "b"].map(String::from).to_vec();
    let twice: Vec<usize> = (0..80).flat_map(|i| vec![i; 1 + labels[i]]).collect();
    let target =
        |rows: &[usize]| Target::Classes { labels: rows.iter().map(|&i| labels[i]).collect(), names: names.clone() };
    let scores = |rows: &[usize], class_weights| {
        let ridge = FeatureRidge { alpha: Alpha::Fixed(0.3), class_weights, map: FeatureMap::Linear { scale: 1.0 } };
        let fitted = ridge.fit(x.select(Axis(0), rows).view(), &target(rows), &FitContext::default()).unwrap();
        fitted.scores(x.view()).unwrap()
    };
    let all: Vec<usize> = (0..80).collect();
    let weighted = scores(&all, ClassWeights::Given(vec![("b".into(), 2.0)]));
    assert!(worst(&weighted, &scores(&twice, ClassWeights::Equal)) < 1e-10);
    assert!(worst(&weighted, &scores(&all, ClassWeights::Equal)) > 1e-3);
}

/// `f(x) = κ(x,X)(K + αW⁻¹)⁻¹y`, dense, for kernel ridge regression by both solvers and on all eigenfunctions.
#[test]
fn class_weights_of_a_kernel_ridge_are_those_of_the_dense_system() {
    let ((x, y), (z, _), rbf) = (problem(60, 21), problem(9, 22), kernel("rbf(1)"));
    let labels: Vec<usize> = y.iter().map(|y| usize::from(*y > 0.3)).collect();
    let target = |rows: &[usize]| Target::Classes {
        labels: rows.iter().map(|&i| labels[i]).collect(),
        names: ["a", "b"].map(String::from).to_vec(),
    };
    let class_weights = || ClassWeights::Given(vec![("b".into(), 3.0)]);
    let w: Array1<f64> = labels.iter().map(|&l| if l == 1 { 3.0 } else { 1.0 }).collect();
    let encoded = Array2::from_shape_fn((60, 2), |(i, c)| if labels[i] == c { 1.0 } else { -1.0 });
    let all: Vec<usize> = (0..60).collect();
    let dense = |rows: &[usize], centred: bool, alpha: f64, z: ArrayView2<f64>| {
        let (x, y, w) = (x.select(Axis(0), rows), encoded.select(Axis(0), rows), w.select(Axis(0), rows));
        let offset = if centred { y.t().dot(&w) / w.sum() } else { Array1::zeros(2) };
        let mut a = matrix(&rbf, x.view());
        a.diag_mut().zip_mut_with(&w, |a, w| *a += alpha / w);
        let c = Cholesky::new(Device::Cpu, a.view()).unwrap().solve((y - &offset).view()).unwrap();
        gram_cross::<f64>(&rbf, z, x.view(), Device::Cpu).unwrap().dot(&c) + &offset
    };
    let context = FitContext::default();
    let solvers = [RidgeSolver::Direct, RidgeSolver::conjugate_gradients(Precision::F64)];
    let ridge = |alpha, solver, centred| {
        let ridge = Ridge { alpha, solver, centred, class_weights: class_weights(), ..Ridge::new(rbf.clone()) };
        ridge.fit(x.view(), &target(&all), &context).unwrap()
    };
    for (alpha, solver, centred) in [(0.01, 0, false), (0.3, 0, true), (0.3, 1, true)] {
        let found = ridge(Alpha::Fixed(alpha), solvers[solver], centred).scores(z.view()).unwrap();
        let off = worst(&found, &dense(&all, centred, alpha, z.view()));
        assert!(off < 1e-6, "α = {alpha}, solver {solver}: {off}");
    }
    let operator = context.kernel_operator(&rbf, x.view()).unwrap();
    let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 60), None).unwrap();
    let alpha = Alpha::Fixed(0.3);
    let spectral = SpectralRidge { alpha, class_weights: class_weights(), ..SpectralRidge::new(spectrum.into()) };
    let found = spectral.fit(x.view(), &target(&all), &context).unwrap().scores(z.view()).unwrap();
    assert!(worst(&found, &dense(&all, false, 0.3, z.view())) < 1e-6);
    // The weighted mean of the squared errors of points that were left out, in closed form, by folds, and one by one.
    let loo = ridge(Alpha::LeaveOneOut, solvers[0], false);
    let folds = [0, 1].map(|solver| ridge(Alpha::CrossValidation { folds: 60 }, solvers[solver], false).tried);
    for tried in loo.tried.iter().filter(|t| t.value > 1e-3 && t.value < 10.0).step_by(2) {
        let error = |i: usize| {
            let rest: Vec<usize> = all.iter().copied().filter(|&j| j != i).collect();
            let off = dense(&rest, false, tried.value, x.select(Axis(0), &[i]).view()) - encoded.select(Axis(0), &[i]);
            w[i] * off.mapv(|e| e * e).sum()
        };
        let want = all.iter().map(|&i| error(i)).sum::<f64>() / w.sum();
        assert!((tried.error - want).abs() < 1e-8 * want, "α = {}: {} for {want}", tried.value, tried.error);
        for (folds, tolerance) in folds.iter().zip([1e-8, 1e-2]) {
            let Some(same) = folds.iter().find(|t| (t.value / tried.value - 1.0).abs() < 1e-9) else { continue };
            assert!((same.error - want).abs() < tolerance * want, "α = {}: {} for {want}", same.value, same.error);
        }
    }
}
