//! Kernel PCA, Laplacian eigenmaps and diffusion maps against closed forms and other routes to the same numbers.

mod common;

use common::{Rng, *};
use mercer::apply::{Affinity, DiffusionMaps, EigenSolver, Fit, KernelPca, LaplacianEigenmaps, Transform};
use mercer::data::generate;
use mercer::linalg::eigh;
use mercer::operator::{Budget, DenseOperator, RandomWalk};
use ndarray::aview1;
use proptest::prelude::*;
use std::f64::consts::TAU;

/// The fitted estimator, on the CPU in double precision.
fn fitted<E: Fit<Target = ()>>(estimator: &E, x: ArrayView2<f64>) -> E::Fitted {
    estimator.fit(x, &(), &FitContext::default()).unwrap()
}

/// Kernel PCA with `k` components.
fn pca(text: &str, k: usize) -> KernelPca {
    KernelPca { k, ..KernelPca::new(kernel(text)) }
}

/// The largest difference when each column may have either sign.
fn worst_up_to_signs(a: ArrayView2<f64>, b: ArrayView2<f64>) -> f64 {
    let columns = a.columns().into_iter().zip(b.columns());
    columns.fold(0.0, |m, (a, b)| {
        let sign = if a.dot(&b) < 0.0 { -1.0 } else { 1.0 };
        m.max(a.iter().zip(b).fold(0.0, |m: f64, (a, b)| m.max((a - sign * b).abs())))
    })
}

#[test]
fn linear_kernel_pca_is_pca() {
    let x = normal(60, 4, 1) * aview1(&[3.0, 2.0, 1.0, 0.5]) + 5.0;
    let fitted = fitted(&pca("linear", 4), x.view());
    let centred = &x - &x.mean_axis(Axis(0)).unwrap();
    let (variances, axes) = eigh(Device::Cpu, centred.t().dot(&centred).view()).unwrap();
    assert!(fitted.eigenvalues.iter().zip(&variances).all(|(λ, v)| (λ - v).abs() < 1e-10 * variances[0]));
    assert!(worst_up_to_signs(fitted.embedding().view(), centred.dot(&axes).view()) < 1e-10);
    assert!((fitted.explained.iter().sum::<f64>() - 1.0).abs() < 1e-10);
    // New points are projected on the same axes, from the fitted mean.
    let new = normal(7, 4, 2);
    let want = (&new - &x.mean_axis(Axis(0)).unwrap()).dot(&axes);
    assert!(worst_up_to_signs(fitted.transform(new.view()).unwrap().view(), want.view()) < 1e-9);
}

#[test]
fn components_that_do_not_exist_are_left_out_with_a_note() {
    let x = normal(50, 4, 3);
    let fitted = fitted(&pca("linear", 9), x.view());
    assert_eq!(fitted.eigenvalues.len(), 4);
    assert!(fitted.notes[0].starts_with("5 of the 9 coordinates"), "{:?}", fitted.notes);
    assert!(fitted.transform(x.view()).unwrap().iter().all(|z| z.is_finite()));
    let same = Array2::from_elem((20, 2), 1.5);
    says(pca("rbf(1)", 2).fit(same.view(), &(), &FitContext::default()), &["no difference"]);
}

#[test]
fn both_solvers_and_both_forms_of_the_operator_agree() {
    let x = normal(600, 3, 4) * aview1(&[1.0, 0.7, 0.4]);
    let fit = |solver, budget| {
        let context = FitContext { budget, ..Default::default() };
        let pca = KernelPca { solver, tolerance: 1e-9, ..pca("rbf(1)", 4) };
        pca.fit(x.view(), &(), &context).unwrap()
    };
    let exact = fit(EigenSolver::Exact, Budget::of(1 << 30));
    let stored = fit(EigenSolver::Krylov, Budget::of(1 << 30));
    // Room for the basis, none for the matrix.
    let matrix_free = fit(EigenSolver::Krylov, Budget::of(2_000_000));
    for other in [&stored, &matrix_free] {
        for (a, b) in exact.eigenvalues.iter().zip(&other.eigenvalues) {
            assert!((a - b).abs() < 1e-9 * a, "{a} {b}");
        }
        assert!(worst(&exact.embedding(), &other.embedding()) < 1e-6);
    }
    let new = normal(9, 3, 5);
    assert!(worst(&exact.transform(new.view()).unwrap(), &stored.transform(new.view()).unwrap()) < 1e-6);
}

#[test]
fn fitted_points_keep_their_coordinates_in_any_order() {
    for precision in [Precision::F64, Precision::F32] {
        let x = normal(80, 3, 6) * aview1(&[1.0, 0.6, 0.3]);
        let context = FitContext { precision, ..Default::default() };
        let pca = pca("0.5*rbf(1.5) + poly(degree=2)", 3);
        let fitted = pca.fit(x.view(), &(), &context).unwrap();
        let single = if precision == Precision::F32 { 1e-4 } else { 1e-11 };
        assert!(worst(&fitted.transform(x.view()).unwrap(), &fitted.embedding()) < single);
        let order = Rng::new(7).sample(80, 80);
        let shuffled = pca.fit(x.select(Axis(0), &order).view(), &(), &context).unwrap();
        let want = fitted.embedding().select(Axis(0), &order);
        assert!(worst(&shuffled.embedding(), &want) < 10.0 * single);
        // Centred, with variances λ_j/n.
        for (z, λ) in fitted.embedding().columns().into_iter().zip(&fitted.eigenvalues) {
            assert!(z.sum().abs() < 1e-10 && (z.dot(&z) - λ).abs() < 1e-4 * λ);
            assert!(z.iter().fold(0.0f64, |m, &v| if v.abs() > m.abs() { v } else { m }) > 0.0);
        }
    }
}

#[test]
fn pre_images_remove_noise_from_digits() {
    let digits = mercer::data::digits();
    let clean = digits.x.to_f64().mapv(|v| v / 16.0);
    let (train, test) = (clean.slice(s![..600, ..]), clean.slice(s![600..700, ..]));
    let mut rng = Rng::new(8);
    let noisy = test.mapv(|v| v + 0.25 * rng.normal());
    let error = |p: &Array2<f64>| (p - &test).mapv(|e| e * e).mean().unwrap();
    // A single RBF (fixed point) and a sum (nearest neighbours only).
    for text in ["rbf(2)", "rbf(2) + 0.1*linear"] {
        let fitted = fitted(&pca(text, 30), train);
        let back = fitted.pre_image(fitted.transform(noisy.view()).unwrap().view()).unwrap();
        assert!(error(&back) < 0.6 * error(&noisy), "{text}: {} of {}", error(&back), error(&noisy));
    }
    // With nearly all components kept, a fitted point is its own pre-image.
    let few = train.slice(s![..60, ..]);
    let fitted = pca("rbf(2)", 59).fit(few, &(), &FitContext::default()).unwrap();
    let back = fitted.pre_image(fitted.embedding().view()).unwrap();
    assert!(worst(&back, &few) < 1e-3, "{}", worst(&back, &few));
}

/// The share of each column of `b` that lies outside of the span of the columns of `a`, both of unit norm.
fn outside(a: &Array2<f64>, b: &Array2<f64>) -> f64 {
    (b - &a.dot(&a.t().dot(b))).columns().into_iter().fold(0.0, |m: f64, c| m.max(c.dot(&c).sqrt()))
}

#[test]
fn a_ring_has_sines_and_cosines_in_pairs() {
    for (n, affinity, solver) in [
        (120, Affinity::Neighbours(4), EigenSolver::Auto),
        (900, Affinity::Neighbours(6), EigenSolver::Krylov),
        (500, Affinity::Kernel(kernel("rbf(0.3)")), EigenSolver::Krylov),
    ] {
        let maps = LaplacianEigenmaps { k: 4, affinity, solver, tolerance: 1e-8 };
        let fitted = maps.fit(ring(n).view(), &(), &FitContext::default()).unwrap();
        let e = &fitted.eigenvalues;
        assert!((e[0] - e[1]).abs() < 1e-9 && (e[2] - e[3]).abs() < 1e-9 && e[2] > e[1] + 1e-6, "{e:?}");
        if let Affinity::Neighbours(m) = maps.affinity {
            // Each point has m/2 neighbours on either side, all of weight one.
            let steps = |frequency: f64| {
                let cosines = (1..=m / 2).map(|s| (frequency * s as f64 * TAU / n as f64).cos());
                1.0 - 2.0 * cosines.sum::<f64>() / m as f64
            };
            assert!((e[0] - steps(1.0)).abs() < 1e-10 && (e[2] - steps(2.0)).abs() < 1e-10);
        }
        for pair in [0, 1] {
            let waves = Array2::from_shape_fn((n, 2), |(i, j)| {
                let angle = (pair + 1) as f64 * i as f64 * TAU / n as f64;
                (2.0 / n as f64).sqrt() * if j == 0 { angle.cos() } else { angle.sin() }
            });
            let found = fitted.embedding().slice(s![.., 2 * pair..2 * pair + 2]).to_owned() / (n as f64).sqrt();
            assert!(outside(&waves, &found) < 1e-5, "{}", outside(&waves, &found));
        }
        assert!(fitted.notes.is_empty());
    }
}

#[test]
fn pieces_of_a_graph_are_noted_and_separated() {
    let mut x = normal(60, 2, 9);
    x.slice_mut(s![30.., 0]).mapv_inplace(|v| v + 100.0);
    let maps = LaplacianEigenmaps { k: 1, affinity: Affinity::Neighbours(5), ..Default::default() };
    let fitted = fitted(&maps, x.view());
    assert!(fitted.notes[0].contains("2 pieces"), "{:?}", fitted.notes);
    assert!(fitted.eigenvalues[0].abs() < 1e-12);
    let z = fitted.embedding();
    assert!((0..30).all(|i| z[[i, 0]] * z[[0, 0]] > 0.0 && z[[i + 30, 0]] * z[[0, 0]] < 0.0));
    let narrow = LaplacianEigenmaps { affinity: Affinity::Kernel(kernel("rbf(1)")), ..maps };
    assert!(narrow.fit(x.view(), &(), &FitContext::default()).unwrap().notes[0].contains("2 or more parts"));
}

#[test]
fn new_points_fall_between_their_neighbours() {
    let x = ring(200);
    for affinity in [Affinity::Neighbours(6), Affinity::Kernel(kernel("rbf(0.3)"))] {
        let exact = matches!(affinity, Affinity::Kernel(_));
        let maps = LaplacianEigenmaps { k: 2, affinity, ..Default::default() };
        let fitted = fitted(&maps, x.view());
        let again = fitted.transform(x.view()).unwrap();
        // The nearest six of a fitted point are itself, two to one side and three to the other: half a step off.
        let tolerance = if exact { 1e-9 } else { 1.01 * 2f64.sqrt() * 0.5 * TAU / 200.0 };
        let off = worst(&again, &fitted.embedding());
        assert!(off < tolerance, "{off}");
        // Half a step along the ring the coordinates turn by half a step, and keep their norm √2.
        let half = ring(400);
        let z = fitted.transform(half.view()).unwrap();
        assert!(z.rows().into_iter().all(|r| (r.dot(&r).sqrt() - 2f64.sqrt()).abs() < 0.01));
    }
}

#[test]
fn diffusion_maps_tell_clusters_apart_and_obey_their_law() {
    let mut x = normal(150, 2, 10) * 0.5;
    x.slice_mut(s![75.., 0]).mapv_inplace(|v| v + 4.0);
    for alpha in [0.0, 0.5, 1.0] {
        let maps = |time, solver| {
            let maps = DiffusionMaps { kernel: kernel("rbf(1)"), k: 3, alpha, time, solver, tolerance: 1e-9 };
            maps.fit(x.view(), &(), &FitContext::default()).unwrap()
        };
        let one = maps(1.0, EigenSolver::Exact);
        let z = one.embedding();
        assert!((0..75).all(|i| z[[i, 0]] * z[[0, 0]] > 0.0 && z[[i + 75, 0]] * z[[0, 0]] < 0.0));
        assert!(one.eigenvalues.iter().all(|λ| (0.0..1.0).contains(λ)));
        // Fitted points keep their coordinates when they come as new ones.
        assert!(worst(&one.transform(x.view()).unwrap(), &z) < 1e-10);
        // More time damps each coordinate by its eigenvalue.
        let three = maps(3.0, EigenSolver::Exact).embedding();
        let squares: Vec<f64> = one.eigenvalues.iter().map(|λ| λ * λ).collect();
        assert!(worst(&three, &(&z * &aview1(&squares))) < 1e-12);
        let krylov = maps(1.0, EigenSolver::Krylov);
        assert!(worst(&krylov.embedding(), &z) < 1e-6);
    }
}

/// `D_t² = Σ_l (p_t(i,l) − p_t(j,l))²/π_l` is the squared distance of all diffusion coordinates.
#[test]
fn distances_of_all_coordinates_are_those_of_the_diffusion() {
    let x = normal(25, 2, 11);
    let k = matrix(&kernel("laplacian(1)"), x.view());
    let d = k.sum_axis(Axis(1));
    let p = &k / &d.view().insert_axis(Axis(1));
    let p2 = p.dot(&p);
    let π = &d / d.sum();
    let maps = DiffusionMaps { k: 24, alpha: 0.0, time: 2.0, ..DiffusionMaps::new(kernel("laplacian(1)")) };
    let z = maps.fit(x.view(), &(), &FitContext::default()).unwrap().embedding();
    for (i, j) in [(0, 1), (3, 17), (20, 24)] {
        let want: f64 = (0..25).map(|l| (p2[[i, l]] - p2[[j, l]]).powi(2) / π[l]).sum();
        let got = (&z.row(i) - &z.row(j)).mapv(|t| t * t).sum();
        assert!((want - got).abs() < 1e-10, "{want} {got}");
    }
}

#[test]
fn negative_affinities_and_isolated_points_are_refused() {
    let x = normal(40, 2, 12);
    let context = FitContext::default();
    let maps = |text| DiffusionMaps::new(kernel(text)).fit(x.view(), &(), &context);
    says(maps("linear"), &["affinities must be at least zero"]);
    says(RandomWalk::new(&DenseOperator::new(Array2::<f64>::zeros((4, 4))), 0.0), &["row 1"]);
    says(maps("rbf(1)").unwrap().transform(ndarray::array![[1e6, 0.0]].view()), &["row 1"]);
}

#[test]
fn the_swiss_roll_is_unrolled() {
    let roll = generate::swiss_roll(1500, 0.0, 0).unwrap();
    let maps = LaplacianEigenmaps { k: 1, affinity: Affinity::Neighbours(10), ..Default::default() };
    let fitted = maps.fit(roll.x.to_f64().view(), &(), &FitContext::default()).unwrap();
    // The slowest function runs along the roll: it orders the points as t does.
    let (t, z) = (roll.y.unwrap().values(), fitted.embedding().column(0).to_vec());
    let ranks = |v: &[f64]| {
        let mut order: Vec<usize> = (0..v.len()).collect();
        order.sort_by(|&a, &b| v[a].total_cmp(&v[b]));
        let mut rank = vec![0.0; v.len()];
        order.iter().enumerate().for_each(|(r, &i)| rank[i] = r as f64 / v.len() as f64 - 0.5);
        rank
    };
    let (a, b) = (ranks(&t), ranks(&z));
    let correlation = 12.0 * a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>() / t.len() as f64;
    assert!(correlation.abs() > 0.99, "{correlation}");
}

#[test]
fn stored_and_matrix_free_walks_agree() {
    let x = normal(70, 3, 13);
    let dense = DenseOperator::new(matrix(&kernel("rbf(1)"), x.view()));
    let free = on(&kernel("rbf(1)"), x.view());
    let v = normal(70, 2, 14);
    let apply = |operator: &dyn Operator| RandomWalk::new(operator, 1.0).unwrap().apply(v.view()).unwrap();
    assert!(worst(&apply(&dense), &apply(&free)) < 1e-12);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// All components together are the features themselves: `z(x)·z(x') = κ(x,x')` centred on the fitted points, for
    /// fitted points on both sides and for a new point on one.
    #[test]
    fn inner_products_of_all_components_are_the_centred_kernel(n in 3usize..40, d in 1usize..4, seed in 0u64..1000) {
        let (x, new) = (normal(n, d, seed), normal(3, d, seed + 1));
        let κ = "laplacian(1.3)";
        let fitted = fitted(&pca(κ, n), x.view());
        // Laplacian kernels of different points have full rank; centring takes one direction out.
        prop_assert_eq!(fitted.eigenvalues.len(), n - 1);
        let k = matrix(&kernel(κ), x.view());
        let (rows, mean) = (k.mean_axis(Axis(0)).unwrap(), k.mean().unwrap());
        let z = fitted.embedding();
        let centred = Array2::from_shape_fn((n, n), |(i, j)| k[[i, j]] - rows[i] - rows[j] + mean);
        prop_assert!(worst(&z.dot(&z.t()), &centred) < 1e-11);
        let c = gram_cross::<f64>(&kernel(κ), new.view(), x.view(), Device::Cpu).unwrap();
        let own = c.mean_axis(Axis(1)).unwrap();
        let centred = Array2::from_shape_fn((3, n), |(i, j)| c[[i, j]] - own[i] - rows[j] + mean);
        let at_new = fitted.transform(new.view()).unwrap();
        prop_assert!(worst(&at_new.dot(&z.t()), &centred) < 1e-10);
    }

    /// The walk conserves probability, so every function but the constant one has mean zero under its stationary law.
    #[test]
    fn slow_functions_are_orthonormal_under_the_stationary_law(n in 5usize..40, seed in 0u64..1000) {
        let x = normal(n, 2, seed);
        let maps = DiffusionMaps { k: 3, alpha: 0.0, time: 0.0, ..DiffusionMaps::new(kernel("laplacian(1)")) };
        let ψ = maps.fit(x.view(), &(), &FitContext::default()).unwrap().embedding();
        let d = matrix(&kernel("laplacian(1)"), x.view()).sum_axis(Axis(1));
        let π = &d / d.sum();
        prop_assert!(π.dot(&ψ).iter().all(|m| m.abs() < 1e-12));
        let weighted = &ψ * &π.insert_axis(Axis(1));
        prop_assert!(worst(&ψ.t().dot(&weighted), &Array2::<f64>::eye(3)) < 1e-11);
    }
}
