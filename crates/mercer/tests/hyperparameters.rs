//! Lengthscales for each column, derivatives with respect to hyper-parameters, and the search along them.

use mercer::apply::{Criterion, KernelSearch, Tuning};
use mercer::data::Target;
use mercer::kernel::{Expression, Kernel, Tunable};
use mercer::operator::{KernelOperator, Precision, gram, gram_cross};
use mercer::rng::Rng;
use mercer::spectrum::{RandomFeatures, Sampling};
use mercer::{Device, FitContext};
use ndarray::{Array1, Array2};

fn normals(n: usize, d: usize, seed: u64) -> Array2<f64> {
    Rng::new(seed).normals((n, d))
}

const LENGTHSCALES: [f64; 3] = [0.5, 2.0, 7.0];

/// Kernels with a lengthscale for each column, and the same kernels of columns that were divided by them.
const PAIRS: [(&str, &str); 20] = [
    ("rbf([0.5, 2, 7])", "rbf(1)"),
    ("laplacian([0.5, 2, 7])", "laplacian(1)"),
    ("matern12([0.5, 2, 7])", "matern12(1)"),
    ("matern32([0.5, 2, 7])", "matern32(1)"),
    ("matern52([0.5, 2, 7])", "matern52(1)"),
    (
        "2*rbf([0.5, 2, 7])*matern32([0.5, 2, 7]) + laplacian(lengthscale=[0.5, 2, 7])",
        "2*rbf(1)*matern32(1) + laplacian(1)",
    ),
    ("linear([0.5, 2, 7])", "linear"),
    ("poly(2, 0.5, 0.3, [0.5, 2, 7])", "poly(2, 0.5, 0.3)"),
    ("expdot(3, [0.5, 2, 7])", "expdot(3)"),
    ("cosine([0.5, 2, 7])", "cosine"),
    ("arccos(0, [0.5, 2, 7])", "arccos(0)"),
    ("arccos(1, [0.5, 2, 7])", "arccos(1)"),
    ("arccos(2, [0.5, 2, 7])", "arccos(2)"),
    ("nngp(depth=2, act=erf, b_var=0.2, lengthscale=[0.5, 2, 7])", "nngp(depth=2, act=erf, b_var=0.2)"),
    ("ntk(depth=2, b_var=0.2, lengthscale=[0.5, 2, 7])", "ntk(depth=2, b_var=0.2)"),
    ("ntk(depth=1, act=tanh, lengthscale=[0.5, 2, 7])", "ntk(depth=1, act=tanh)"),
    (
        "ntk(\"dense relu res(dense relu dense) dense\", lengthscale=[0.5, 2, 7])",
        "ntk(\"dense relu res(dense relu dense) dense\")",
    ),
    (
        "ntk(\"conv(2) relu gap dense\", shape=1x3x1, lengthscale=[0.5, 2, 7])",
        "ntk(\"conv(2) relu gap dense\", shape=1x3x1)",
    ),
    (
        "nngp(\"conv(2) relu flatten dense\", shape=1x1x3, lengthscale=[0.5, 2, 7])",
        "nngp(\"conv(2) relu flatten dense\", shape=1x1x3)",
    ),
    ("linear([0.5, 2, 7])*rbf([0.5, 2, 7]) + arccos(1, [0.5, 2, 7])", "linear*rbf(1) + arccos(1)"),
];

#[test]
fn a_lengthscale_for_each_column_divides_that_column() {
    let (x, z) = (normals(60, 3, 1), normals(40, 3, 2));
    let divided = |x: &Array2<f64>| x / &Array1::from(LENGTHSCALES.to_vec());
    for (each, one) in PAIRS {
        let (each, one) = (Kernel::parse(each).unwrap(), Kernel::parse(one).unwrap());
        let ours = gram_cross::<f64>(&each, x.view(), z.view(), Device::Cpu).unwrap();
        let theirs = gram_cross::<f64>(&one, divided(&x).view(), divided(&z).view(), Device::Cpu).unwrap();
        let worst = (&ours - &theirs).iter().fold(0.0f64, |m, e| m.max(e.abs()));
        let largest = theirs.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        assert!(worst < 1e-14 * largest, "{each}: {worst}");
        let (ours, theirs) =
            (each.value(&[1.0, 2.0, 3.0], &[0.0, 1.0, 5.0]), one.value(&[2.0, 1.0, 3.0 / 7.0], &[0.0, 0.5, 5.0 / 7.0]));
        assert!((ours - theirs).abs() < 1e-15 * theirs.abs().max(1.0), "{each}: {ours} {theirs}");
        assert_eq!(Kernel::parse(&each.to_string()).unwrap(), each);
    }
}

/// The same for one lengthscale of all columns, and kernels that are usually written without one are written as before.
#[test]
fn one_lengthscale_divides_all_columns() {
    let (x, z) = (normals(30, 3, 1), normals(20, 3, 2));
    for (scaled, plain) in [
        ("linear(lengthscale=2.5)", "linear"),
        ("poly(2, 0.5, 0.3, 2.5)", "poly(degree=2, scale=0.5, offset=0.3)"),
        ("expdot(3, 2.5)", "expdot(scale=3)"),
        ("cosine(2.5)", "cosine"),
        ("arccos(2, 2.5)", "arccos(order=2)"),
        ("ntk(depth=2, b_var=0.3, lengthscale=2.5)", "ntk(depth=2, act=relu, w_var=2, b_var=0.3)"),
        (
            "nngp(\"conv(2) relu gap dense\", shape=1x3x1, lengthscale=2.5)",
            "nngp(\"conv(2) relu gap dense\", w_var=2, b_var=0, shape=1x3x1)",
        ),
    ] {
        let (scaled, plain) = (Kernel::parse(scaled).unwrap(), Kernel::parse(plain).unwrap());
        let ours = gram_cross::<f64>(&scaled, x.view(), z.view(), Device::Cpu).unwrap();
        let theirs = gram_cross::<f64>(&plain, (&x / 2.5).view(), (&z / 2.5).view(), Device::Cpu).unwrap();
        let worst = (&ours - &theirs).iter().fold(0.0f64, |m, e| m.max(e.abs()));
        assert!(worst < 1e-14, "{scaled}: {worst}");
        assert_eq!(Kernel::parse(&scaled.to_string()).unwrap(), scaled);
        assert!(!plain.to_string().contains("lengthscale"), "{plain}");
    }
}

/// `exp(−2 Σ_i sin²(π(x_i−x'_i)/p)/ℓ_i²)`, by its definition and by random features.
#[test]
fn a_periodic_kernel_has_a_smoothness_for_each_column() {
    let x = normals(30, 3, 1);
    let kernel = Kernel::parse("periodic(1.7, [0.5, 2, 7])").unwrap();
    let ours = gram::<f64>(&kernel, x.view(), Device::Cpu).unwrap();
    for ((i, j), ours) in ours.indexed_iter() {
        let term = |c: usize| ((std::f64::consts::PI * (x[[i, c]] - x[[j, c]]) / 1.7).sin() / LENGTHSCALES[c]).powi(2);
        let defined = (-2.0 * (0..3).map(term).sum::<f64>()).exp();
        assert!((ours - defined).abs() < 1e-13, "{ours} {defined}");
        assert!((kernel.value(&x.row(i).to_vec(), &x.row(j).to_vec()) - defined).abs() < 1e-13);
    }
    let map = RandomFeatures::fourier(&kernel, 3, 20_000, Sampling::default(), 0).unwrap();
    let phi = map.transform::<f64>(x.view()).unwrap();
    let worst = (phi.dot(&phi.t()) - &ours).iter().fold(0.0f64, |m, e| m.max(e.abs()));
    assert!(worst < 0.05, "{worst}");
}

/// `exp(−2 Σ_i sin²(π(x_i−x'_i)/p_i)/ℓ²)`, by its definition and by random features.
#[test]
fn a_periodic_kernel_has_a_period_for_each_column() {
    let (x, periods) = (normals(30, 3, 1), [1.7, 0.9, 30.0]);
    let kernel = Kernel::parse("periodic([1.7, 0.9, 30], 0.8)").unwrap();
    assert_eq!(Kernel::parse(&kernel.to_string()).unwrap(), kernel);
    let ours = gram::<f64>(&kernel, x.view(), Device::Cpu).unwrap();
    for ((i, j), ours) in ours.indexed_iter() {
        let term = |c: usize| (std::f64::consts::PI * (x[[i, c]] - x[[j, c]]) / periods[c]).sin().powi(2);
        let defined = (-2.0 * (0..3).map(term).sum::<f64>() / 0.64).exp();
        assert!((ours - defined).abs() < 1e-13, "{ours} {defined}");
    }
    let map = RandomFeatures::fourier(&kernel, 3, 20_000, Sampling::default(), 0).unwrap();
    let phi = map.transform::<f64>(x.view()).unwrap();
    let worst = (phi.dot(&phi.t()) - &ours).iter().fold(0.0f64, |m, e| m.max(e.abs()));
    assert!(worst < 0.05, "{worst}");
    let two = Expression::parse("periodic([1, 2])").unwrap();
    assert!(two.resolve(x.view(), 0).unwrap_err().to_string().contains("2 periods, and the points have 3 columns"));
}

/// A kernel on columns that were scaled, with its periods in their units, is the kernel on the columns themselves.
#[test]
fn periods_are_in_the_units_of_the_columns() {
    let (x, scale) = (normals(20, 3, 2), [0.25, 4.0, 0.0]);
    let mut scaled = &x * &ndarray::arr1(&scale);
    // A constant column.
    let mut x = x;
    x.column_mut(2).fill(0.0);
    scaled.column_mut(2).fill(0.0);
    for text in [
        "periodic(3)",
        "periodic([3, 0.2, 1], [0.5, 2, 7])",
        "0.5*periodic(0.7)*periodic",
        "periodic(2) + 3*periodic(1, auto)",
    ] {
        let expression = Expression::parse(text).unwrap();
        let kernel = expression.in_units_of(&scale).resolve_scaled(scaled.view(), 0, 1.0).unwrap();
        let plain = expression.resolve_scaled(x.view(), 0, 1.0).unwrap();
        let ours = gram::<f64>(&kernel, scaled.view(), Device::Cpu).unwrap();
        let worst = (ours - gram::<f64>(&plain, x.view(), Device::Cpu).unwrap()).fold(0.0f64, |m, e| m.max(e.abs()));
        assert!(worst < 1e-12, "{text}: {worst:e}");
        assert_eq!(kernel.in_own_units(&scale).unwrap().to_string(), plain.to_string());
    }
    // Lengthscales stay as they are written.
    let kernel = Expression::parse("rbf(2)").unwrap().in_units_of(&scale).resolve(scaled.view(), 0).unwrap();
    assert_eq!(kernel.to_string(), "rbf(lengthscale=2)");
}

/// Points far from the origin lose no digits in f32: the mean is subtracted before they are divided.
#[test]
fn points_far_from_the_origin_keep_their_digits() {
    let near = normals(50, 3, 3);
    let far = &near + 1e4;
    let kernel = Kernel::parse("rbf([0.5, 2, 7])").unwrap();
    let exact = gram::<f64>(&kernel, far.view(), Device::Cpu).unwrap();
    let single = gram::<f32>(&kernel, far.view(), Device::Cpu).unwrap();
    let worst = exact.iter().zip(&single).fold(0.0f64, |m, (a, b)| m.max((a - f64::from(*b)).abs()));
    assert!(worst < 1e-5, "{worst}");
}

#[test]
fn random_features_know_the_lengthscale_of_each_column() {
    let x = normals(30, 3, 4);
    for text in ["rbf([0.5, 2, 7])", "laplacian([0.5, 2, 7])", "matern32([0.5, 2, 7])"] {
        let kernel = Kernel::parse(text).unwrap();
        let map = RandomFeatures::fourier(&kernel, 3, 20_000, Sampling::default(), 0).unwrap();
        let phi = map.transform::<f64>(x.view()).unwrap();
        let error = phi.dot(&phi.t()) - gram::<f64>(&kernel, x.view(), Device::Cpu).unwrap();
        let worst = error.iter().fold(0.0f64, |m, e| m.max(e.abs()));
        assert!(worst < 0.05, "{text}: {worst}");
    }
}

#[test]
fn another_number_of_columns_is_refused() {
    let (kernel, x) = (Kernel::parse("rbf([1, 2])").unwrap(), normals(5, 3, 5));
    let refused = KernelOperator::new(&kernel, x.view(), Precision::F64, Device::Cpu).err().unwrap().to_string();
    assert!(refused.contains("2 columns") && refused.contains("the points have 3"), "{refused}");
    let refused = Expression::parse("rbf([1, 2])").unwrap().resolve(x.view(), 0).unwrap_err().to_string();
    assert!(refused.contains("2 lengthscales") && refused.contains("3 columns"), "{refused}");
    for (text, said) in [
        ("rbf([1, -2])", "above 0"),
        ("rbf([1, x])", "lengthscale must be"),
        ("rbf([])", "lengthscale must be"),
        ("rbf([1, 2)", "no closing bracket"),
        ("poly(degree=[1, 2])", "whole number"),
        ("rbf(ard)", "needs data"),
    ] {
        let refused = Kernel::parse(text).unwrap_err().to_string();
        assert!(refused.contains(said), "{text}: {refused}");
    }
    let refused = Expression::parse("rbf(ard)").unwrap().resolve(x.view(), 0).unwrap_err().to_string();
    assert!(refused.contains("lengthscale=ard is found by how well a target is predicted"), "{refused}");
}

/// The gradient of `Σ_ij g_ij K_ij(θ)` by central differences.
#[test]
fn derivatives_of_kernel_matrices_are_those_of_differences() {
    let x = normals(23, 3, 6);
    let g = normals(23, 23, 7);
    let g = &g + &g.t();
    for text in [
        "rbf(ard)",
        "rbf(auto)",
        "2*matern12(ard) + linear",
        "laplacian(ard)",
        "laplacian(auto) + 0.3*matern52(auto)",
        "matern32(ard)*rbf(auto)*linear + periodic(2, 1)*laplacian(ard)",
        "(rbf(ard) + 0.5*linear)*(matern52(auto) + cosine)",
        "rbf(median)*matern32(auto) + ntk(2)",
        "linear(ard)",
        "linear(auto) + poly(2, 0.5, 1, ard)",
        "poly(3, 0.3, 0.5, auto)",
        "expdot(3, ard)",
        "cosine(ard)",
        "arccos(0, ard)",
        "arccos(1, ard) + arccos(2, ard)",
        "periodic(2, ard)",
        "periodic(2, auto)",
        "ntk(depth=3, b_var=0.1, lengthscale=ard)",
        "ntk(depth=2, act=erf, b_var=0.2, lengthscale=auto)",
        "nngp(depth=2, act=tanh, b_var=0.2, lengthscale=ard)",
        "ntk(\"dense gelu res(dense relu dense) dense\", lengthscale=ard)*(rbf(ard) + linear(ard))",
    ] {
        let kernel = Tunable::new(&Expression::parse(text).unwrap(), x.view(), 0).unwrap();
        let mut rng = Rng::new(8);
        let θ: Vec<f64> = kernel.start().iter().map(|θ| θ + 0.3 * rng.normal()).collect();
        let value = |θ: &[f64]| (&gram::<f64>(&kernel.at(θ).unwrap(), x.view(), Device::Cpu).unwrap() * &g).sum();
        let k = gram::<f64>(&kernel.at(&θ).unwrap(), x.view(), Device::Cpu).unwrap();
        let gradient = kernel.gradient(&θ, x.view(), k.view(), g.view(), Device::Cpu).unwrap();
        assert_eq!(gradient.len(), θ.len());
        for (i, derivative) in gradient.iter().enumerate() {
            let at = |h: f64| {
                let mut moved = θ.clone();
                moved[i] += h;
                value(&moved)
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            assert!(
                (derivative - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                "{text}, θ_{i}: {derivative}, {difference}"
            );
        }
    }
}

/// The gradients of both criteria are those of central differences, where points repeat too: there the angle between two points stays zero.
#[test]
fn gradients_of_the_criteria_are_those_of_differences() {
    let (mut x, y) = additive(25, 21);
    for (from, to) in [(0, 1), (2, 3)] {
        let row = x.row(from).to_owned();
        x.row_mut(to).assign(&row);
    }
    let row = &x.row(4) * -1.5;
    x.row_mut(5).assign(&row);
    for text in [
        "ntk(depth=2, lengthscale=ard)",
        "ntk(depth=2, b_var=0.3, lengthscale=ard)",
        "arccos(0, ard) + linear(ard)",
        "poly(2, 0.3, 1, ard)*cosine(ard)",
        "periodic(3, ard)",
        "matern32(ard)",
    ] {
        let expression = Expression::parse(text).unwrap();
        for criterion in [Criterion::Likelihood, Criterion::LeftOut] {
            let tuning = Tuning { criterion, ..Tuning::default() };
            let at = |θ: &[f64]| tuning.at(&expression, x.view(), &y, θ, &FitContext::default()).unwrap();
            let mut rng = Rng::new(22);
            let mut θ = Tunable::new(&expression, x.view(), 0).unwrap().start();
            θ.iter_mut().for_each(|θ| *θ += 0.3 * rng.normal());
            θ.push(0.3f64.ln());
            for (i, derivative) in at(&θ).1.iter().enumerate() {
                let moved = |h: f64| {
                    let mut θ = θ.clone();
                    θ[i] += h;
                    at(&θ).0
                };
                let difference = (moved(1e-4) - moved(-1e-4)) / 2e-4;
                assert!(
                    (derivative - difference).abs() < 1e-6 * (1.0 + difference.abs()),
                    "{text}, {criterion:?}, θ_{i}: {derivative}, {difference}"
                );
            }
        }
    }
}

/// Kernels of inner products find the columns that matter too, and kernels of images say that they do not search along gradients.
#[test]
fn other_kernels_find_the_columns_that_matter() {
    let (x, y) = additive(150, 23);
    let tuning = Tuning { criterion: Criterion::Likelihood, restarts: 0, ..Tuning::default() };
    for text in [
        "ntk(depth=2, b_var=0.5, lengthscale=ard)",
        "poly(3, lengthscale=ard)",
        "nngp(depth=1, act=erf, b_var=0.5, lengthscale=ard)",
    ] {
        let found = tuning.best(&Expression::parse(text).unwrap(), x.view(), &y, &FitContext::default()).unwrap();
        let lengthscales = &found.parameters[1..];
        let least = lengthscales[2..].iter().fold(f64::INFINITY, |m, v| m.min(*v));
        assert!(lengthscales[..2].iter().all(|scale| 3.0 * scale < least), "{text}: {lengthscales:?}");
    }
    let images = Expression::parse("ntk(\"conv(2) relu gap dense\", shape=1x5x1, lengthscale=ard)").unwrap();
    let refused = tuning.best(&images, x.view(), &y, &FitContext::default()).unwrap_err().to_string();
    assert!(refused.contains("not differentiated by its points"), "{refused}");
}

/// A target of the first two of five columns, with noise of variance 0.01.
fn additive(n: usize, seed: u64) -> (Array2<f64>, Target) {
    let x = normals(n, 5, seed);
    let mut rng = Rng::new(seed + 1);
    let y = x.rows().into_iter().map(|x| (1.5 * x[0]).sin() + 0.3 * x[1] + 0.1 * rng.normal()).collect();
    (x, Target::Values(y))
}

/// Each criterion finds which columns matter; the likelihood finds the noise too.
#[test]
fn the_search_finds_the_columns_that_matter() {
    let (x, y) = additive(150, 9);
    for criterion in [Criterion::Likelihood, Criterion::LeftOut] {
        let tuning = Tuning { criterion, restarts: 1, ..Tuning::default() };
        let found = tuning.best(&Expression::parse("rbf(ard)").unwrap(), x.view(), &y, &FitContext::default()).unwrap();
        let lengthscales = &found.parameters[1..];
        assert!(found.converged, "{found:?}");
        assert!(lengthscales[0] < 2.5 && lengthscales[0] < lengthscales[1], "{criterion:?}: {lengthscales:?}");
        assert!(lengthscales[2..].iter().all(|scale| *scale > 8.0), "{criterion:?}: {lengthscales:?}");
        if criterion == Criterion::Likelihood {
            let Target::Values(values) = &y else { unreachable!() };
            let noise = found.noise * Array1::from(values.clone()).var(0.0);
            assert!((0.005..0.02).contains(&noise), "{noise}");
        }
    }
}

/// At the optimum no single change of a hyper-parameter raises the likelihood, computed from its definition by eigenvalues.
#[test]
fn the_likelihood_is_that_of_the_definition() {
    let (x, y) = additive(40, 10);
    let tuning = Tuning { criterion: Criterion::Likelihood, restarts: 0, ..Tuning::default() };
    let found =
        tuning.best(&Expression::parse("matern52(auto)").unwrap(), x.view(), &y, &FitContext::default()).unwrap();
    let Target::Values(values) = y else { unreachable!() };
    let mut order: Vec<usize> = Rng::new(0).fork(0x7475_6e65).sample(40, 40);
    order.sort_unstable();
    assert_eq!(order, (0..40).collect::<Vec<_>>());
    let y = Array1::from(values);
    let y = (&y - y.mean().unwrap()) / y.std(0.0);
    let mut a = gram::<f64>(&found.kernel, x.view(), Device::Cpu).unwrap();
    a.diag_mut().mapv_inplace(|k| k + found.noise);
    let (λ, u) = mercer::linalg::eigh(Device::Cpu, a.view()).unwrap();
    let coefficients = u.t().dot(&y);
    let fit: f64 = coefficients.iter().zip(&λ).map(|(c, λ)| c * c / λ).sum();
    let determinant: f64 = λ.iter().map(|λ| λ.ln()).sum();
    let expected = 0.5 * (fit + determinant + 40.0 * std::f64::consts::TAU.ln()) / 40.0;
    assert!((found.value - expected).abs() < 1e-10, "{} {expected}", found.value);
}

#[test]
fn a_search_by_likelihood_and_one_with_ard_prefer_the_right_kernel() {
    let (x, y) = additive(150, 11);
    let candidates = ["linear", "rbf(lengthscale=auto)", "rbf(lengthscale=ard)"];
    for criterion in [Criterion::Likelihood, Criterion::LeftOut] {
        let candidates = candidates.map(|text| Expression::parse(text).unwrap()).to_vec();
        let search = KernelSearch { criterion, ..KernelSearch::new(candidates) };
        let found = search.best(x.view(), &y, &FitContext::default()).unwrap();
        let best = &found.tried[0].kernel;
        assert!(best.contains("rbf(lengthscale=["), "{criterion:?}: {best}");
        assert!(found.tried.iter().any(|tried| tried.kernel.contains("linear")));
    }
}

/// Classes are columns of ±1 under one kernel.
#[test]
fn hyperparameters_are_found_for_classes() {
    let x = normals(120, 3, 12);
    let labels = x.rows().into_iter().map(|x| usize::from(x[0] > 0.0) + usize::from(x[0] > 1.0)).collect();
    let y = Target::Classes { labels, names: ["low", "middle", "high"].map(String::from).to_vec() };
    let found =
        Tuning::default().best(&Expression::parse("rbf(ard)").unwrap(), x.view(), &y, &FitContext::default()).unwrap();
    let lengthscales = &found.parameters[1..];
    assert!(lengthscales[1].min(lengthscales[2]) > 4.0 * lengthscales[0], "{lengthscales:?}");
}
