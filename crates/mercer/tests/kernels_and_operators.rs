//! Contract suites: every kernel of the catalogue, and every form of operator, against a dense f64 oracle.

mod common;

use common::{Rng, bounded as points, by_formula as oracle, *};
use mercer::compute::Device::Cpu;
use mercer::kernel::catalogue;
use mercer::linalg::{Part, eigh};
use mercer::operator::{Centred, DenseOperator, LowRankOperator, cross_apply};
use proptest::prelude::*;
use proptest::sample::select;

/// Every base kernel with its default parameters, with others, and expressions that share and mix statistics.
fn kernels() -> Vec<Kernel> {
    let others = [
        "rbf(0.7)",
        "poly(degree=4, scale=0.5, offset=1.5)",
        "periodic(period=1.7, lengthscale=0.8)",
        "arccos(0)",
        "arccos(2)",
        "0.5*rbf(1) + poly(degree=3)",
        "rbf(2)*periodic(3) + 0.1*laplacian(2)",
        "2*(linear + cosine)*matern32(1.5)",
        "periodic(2)*periodic(3)",
        "ntk(depth=2, act=erf, w_var=1.5, b_var=0.1)",
        "nngp(depth=1, act=gelu, b_var=0.3) + 0.5*rbf(2)",
        "ntk('dense sin res(dense relu dense; dense) leaky_relu dense', w_var=1.2, b_var=0.2)",
    ];
    let names = catalogue().into_iter().map(|e| e.name);
    names.chain(others).map(kernel).collect()
}

fn assert_close(got: &Array2<f64>, want: &Array2<f64>, tolerance: f64, what: &str) {
    assert_eq!(got.dim(), want.dim(), "{what}");
    let scale = largest(want).max(1e-300);
    for ((index, got), want) in got.indexed_iter().zip(want) {
        assert!((got - want).abs() <= tolerance * scale, "{what} at {index:?}: {got} for {want}");
    }
}

/// What single precision can keep. An exponent `‖x−x'‖²/2ℓ²` cancels from terms of up to 60 (the periodic kernel in
/// 20 dimensions), each rounded to 6e-8; arccos(0) has an infinite slope at x = x' and keeps half its digits there, and so
/// does the NTK of ReLUs: where all points lie on a line, a cosine of 1 − 3ε turns into an angle of √(6ε) = 6e-4 in each layer.
fn single_precision(kernel: &Kernel) -> f64 {
    let shown = kernel.to_string();
    match shown {
        _ if shown.contains("ntk") && shown.contains("relu") => 6e-4,
        _ if shown.contains("order=0") => 2e-4,
        _ => 1e-5,
    }
}

#[test]
fn tiles_agree_with_the_formula() {
    for kernel in kernels() {
        for (n, m, d) in [(1, 1, 1), (5, 3, 1), (390, 7, 3), (401, 395, 20)] {
            let (x, z) = (points(n, d, 1), points(m, d, 2));
            let (k, c) = (oracle(&kernel, x.view(), x.view()), oracle(&kernel, x.view(), z.view()));
            let what = format!("{kernel}, n = {n}, d = {d}");
            assert_close(&matrix(&kernel, x.view()), &k, 1e-13, &what);
            assert_close(&gram_cross::<f64>(&kernel, x.view(), z.view(), Cpu).unwrap(), &c, 1e-13, &what);
            let single = single_precision(&kernel);
            assert_close(&gram::<f32>(&kernel, x.view(), Cpu).unwrap().mapv(f64::from), &k, single, &what);
            let cross = gram_cross::<f32>(&kernel, x.view(), z.view(), Cpu).unwrap().mapv(f64::from);
            assert_close(&cross, &c, single, &what);
        }
    }
}

#[test]
fn the_diagonal_is_exact_in_both_precisions() {
    let x = points(50, 6, 3);
    for kernel in kernels() {
        let want: Array1<f64> = x.rows().into_iter().map(|r| kernel.value(&r.to_vec(), &r.to_vec())).collect();
        for precision in [Precision::F32, Precision::F64] {
            let got = KernelOperator::new(&kernel, x.view(), precision, Cpu).unwrap().diagonal().unwrap();
            assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= 1e-12 * w.abs()), "{kernel}");
        }
    }
}

/// What every operator must do, checked against its dense matrix.
fn operator_contract(operator: &dyn Operator, dense: &Array2<f64>, tolerance: f64, what: &str) {
    let n = operator.n();
    assert_eq!(dense.dim(), (n, n), "{what}");
    let mut rng = Rng::new(4);
    for columns in [1, 5] {
        let v = rng.normals((n, columns));
        assert_close(&operator.apply(v.view()).unwrap(), &dense.dot(&v), tolerance, what);
    }
    let (rows, columns) = (rng.sample(n, 20), rng.sample(n, 30));
    let sub = dense.select(Axis(0), &rows).select(Axis(1), &columns);
    assert_close(&operator.block(&rows, &columns).unwrap(), &sub, tolerance, what);
    let diagonal = operator.diagonal().unwrap().insert_axis(Axis(1));
    assert_close(&diagonal, &dense.diag().to_owned().insert_axis(Axis(1)), tolerance, what);
    assert_close(&operator.to_dense(&mercer::Silent).unwrap(), dense, tolerance, what);
    let (some, others) = (n / 2..n, 0..n / 2);
    let v = rng.normals((others.len(), 3));
    let want = dense.slice(s![some.clone(), others.clone()]).dot(&v);
    assert_close(&operator.product(some, others, v.view()).unwrap(), &want, tolerance, what);
    // Parts by list and by range, on panels; the error of a sum is relative to that of the magnitudes of its terms.
    let (some, others) = (Part::Rows(&rows), Part::Rows(&columns));
    for (a, b) in [(&some, &Part::All), (&Part::Range(n / 3..n), &others), (&others, &some)] {
        let want = dense.select(Axis(0), &a.list(n)).select(Axis(1), &b.list(n));
        let v = rng.normals((want.ncols(), 2));
        let got = operator.product_panel(a, b, &v.clone().into()).unwrap().into_host().unwrap();
        let size = want.mapv(f64::abs).dot(&v.mapv(f64::abs)) + 1e-300;
        assert_close(&((got - want.dot(&v)) / &size + 1.0), &Array2::ones(size.dim()), tolerance, what);
        let block = operator.block_panel(a, b, Device::Cpu).unwrap().into_host().unwrap();
        assert_close(&block, &want, tolerance, what);
    }
    // On some of its points it is the sub-matrix.
    let part = operator.restricted(&rows).unwrap();
    let sub = dense.select(Axis(0), &rows).select(Axis(1), &rows);
    let v = rng.normals((rows.len(), 2));
    assert_close(&part.apply(v.view()).unwrap(), &sub.dot(&v), tolerance, what);
    assert_close(&part.to_dense(&mercer::Silent).unwrap(), &sub, tolerance, what);
}

#[test]
fn every_operator_keeps_the_contract() {
    for n in [1, 30, 801] {
        let x = points(n, 4, 5);
        for kernel in kernels() {
            let dense = oracle(&kernel, x.view(), x.view());
            let double = on(&kernel, x.view());
            operator_contract(&double, &dense, 1e-13, &format!("matrix-free f64, {kernel}"));
            let single = single_precision(&kernel);
            let operator = KernelOperator::new(&kernel, x.view(), Precision::F32, Cpu).unwrap();
            operator_contract(&operator, &dense, single, &format!("matrix-free f32, {kernel}"));
            let centring = Array2::<f64>::eye(n) - 1.0 / n as f64;
            let centred = centring.dot(&dense).dot(&centring);
            // Differences of numbers of the size of K.
            let tolerance = 1e-12 * (largest(&dense) / largest(&centred).max(1e-9)).max(1.0);
            operator_contract(&Centred::new(&double).unwrap(), &centred, tolerance, &format!("centred, {kernel}"));
        }
        let dense = oracle(&kernels()[2], x.view(), x.view());
        operator_contract(&DenseOperator::new(dense.clone()), &dense, 1e-13, "dense f64");
        operator_contract(&DenseOperator::new(dense.mapv(|v| v as f32)), &dense, 1e-6, "dense f32");
        let f = points(7, n, 6);
        operator_contract(&LowRankOperator::new(f.clone()).unwrap(), &(f.t().dot(&f) / 7.0), 1e-13, "low rank");
    }
}

#[test]
fn products_with_new_points_agree_with_the_formula() {
    let (x, z, a) = (points(500, 5, 7), points(410, 5, 8), points(410, 3, 9));
    for kernel in kernels() {
        let want = oracle(&kernel, x.view(), z.view()).dot(&a);
        let got = cross_apply(&kernel, x.view(), z.view(), a.view(), Precision::F64, Cpu).unwrap();
        assert_close(&got, &want, 1e-12, &kernel.to_string());
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let x = points(3000, 8, 10);
    let v = points(3000, 6, 11);
    let product = |threads: usize| {
        on_threads(threads, || {
            KernelOperator::new(&kernel("rbf(1)"), x.view(), Precision::F32, Cpu).unwrap().apply(v.view()).unwrap()
        })
    };
    let one = product(1);
    for threads in [2, 3] {
        assert!(product(threads).iter().zip(&one).all(|(a, b)| a.to_bits() == b.to_bits()), "{threads} threads");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn kernel_matrices_are_symmetric_and_positive_semi_definite(
        kernel in select(kernels()), n in 2usize..40, d in 1usize..5, seed in any::<u64>(),
    ) {
        let k = matrix(&kernel, points(n, d, seed).view());
        prop_assert!(k.indexed_iter().all(|((i, j), v)| v.to_bits() == k[[j, i]].to_bits()), "{kernel} is not symmetric");
        let (values, _) = eigh(Cpu, k.view()).unwrap();
        prop_assert!(values[n - 1] >= -1e-12 * n as f64 * values[0], "{kernel}: eigenvalue {}", values[n - 1]);
    }

    #[test]
    fn shift_invariant_kernels_are_shift_invariant(
        kernel in select(kernels().into_iter().filter(Kernel::is_shift_invariant).collect::<Vec<_>>()),
        shift in -50.0..50.0f64,
        seed in any::<u64>(),
    ) {
        let x = points(20, 3, seed);
        prop_assert!(worst(&matrix(&kernel, x.view()), &matrix(&kernel, (&x + shift).view())) < 1e-10, "{kernel}");
    }

    #[test]
    fn permuting_the_points_permutes_the_matrix(kernel in select(kernels()), seed in any::<u64>()) {
        let x = points(30, 3, seed);
        let order = Rng::new(seed).sample(30, 30);
        let want = matrix(&kernel, x.view()).select(Axis(0), &order).select(Axis(1), &order);
        prop_assert!(worst(&matrix(&kernel, x.select(Axis(0), &order).view()), &want) < 1e-12, "{kernel}");
    }
}
