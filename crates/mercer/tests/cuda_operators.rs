//! The kernel operator on a GPU against f64 on the CPU. Without a GPU every test says so and passes.

mod common;
#[path = "common/cuda.rs"]
mod cuda;

use common::*;
use cuda::{cuda, double_bound, with_memory};
use mercer::kernel::catalogue;
use mercer::linalg::{Panel, Part};
use mercer::net::{Network, ntk::EmpiricalNtk};
use mercer::operator::{NtkOperator, cross_apply};

fn product(kernel: &Kernel, x: &Array2<f64>, v: &Array2<f64>, precision: Precision, device: Device) -> Array2<f64> {
    KernelOperator::new(kernel, x.view(), precision, device).unwrap().apply(v.view()).unwrap()
}

/// The error of a product relative to its norm, which must be below `bound`.
fn relative(got: &Array2<f64>, want: &Array2<f64>, bound: f64, what: &str) -> f64 {
    let norm = |a: &Array2<f64>| a.iter().map(|v| v * v).sum::<f64>().sqrt();
    let error = norm(&(got - want)) / norm(want).max(1e-300);
    assert!(error < bound, "{what}: {error:e}");
    error
}

/// The stated error of a product, relative to its norm, for points whose coordinates are of the order of one.
fn stated(precision: Precision) -> f64 {
    match precision {
        Precision::F64 => 1e-12,
        Precision::F32 => 2e-5,
        Precision::Tf32 => 5e-3,
    }
}

const PRECISIONS: [Precision; 3] = [Precision::F64, Precision::F32, Precision::Tf32];

#[test]
#[ignore = "needs a GPU"]
fn every_kernel_multiplies_as_on_the_cpu() {
    let (device, _held) = cuda();
    let others = [
        "rbf*linear + 2*laplacian + periodic",
        "0.5*rbf(2)*poly(2) + matern32",
        "3*arccos(2)",
        "ntk(depth=3, act=tanh, b_var=0.1)",
        "nngp(depth=2, act=sigmoid, w_var=3)",
        "ntk(depth=2, act=softplus)",
    ];
    let names = catalogue().into_iter().map(|entry| entry.name.to_string());
    for expression in names.chain(others.map(String::from)) {
        let kernel = kernel(&expression);
        for (n, d, columns) in [(777, 5, 16), (300, 64, 3)] {
            // Coordinates small enough that no kernel overflows or vanishes.
            let (x, v) = (normal(n, d, 1) / (d as f64).sqrt(), normal(n, columns, 2));
            let want = product(&kernel, &x, &v, Precision::F64, Device::Cpu);
            for precision in PRECISIONS {
                let got = product(&kernel, &x, &v, precision, device);
                let what = format!("{expression}, {n}×{d}, {columns}, {precision:?}");
                relative(&got, &want, stated(precision).max(double_bound(&expression)), &what);
            }
        }
    }
}

/// Every kernel with a lengthscale for each column, and the matrix of points on the device.
#[test]
#[ignore = "needs a GPU"]
fn every_kernel_divides_columns_as_on_the_cpu() {
    let (device, _held) = cuda();
    let (x, v) = (normal(500, 5, 21), normal(500, 8, 22));
    for entry in catalogue() {
        let kernel = kernel(&format!("{}(lengthscale=[2, 3, 4, 5, 6])", entry.name));
        let want = product(&kernel, &x, &v, Precision::F64, Device::Cpu);
        for precision in [Precision::F64, Precision::F32] {
            let got = product(&kernel, &x, &v, precision, device);
            relative(&got, &want, stated(precision), &format!("{kernel}, {precision:?}"));
        }
        let k = gram::<f64>(&kernel, x.view(), device).unwrap();
        relative(&k, &matrix(&kernel, x.view()), 1e-12, &kernel.to_string());
    }
}

/// Products with the empirical NTK of a network, whose vectors stay on the device.
#[test]
#[ignore = "needs a GPU"]
fn the_empirical_ntk_multiplies_vectors_of_the_device() {
    let (device, _held) = cuda();
    let (x, v) = (normal(300, 6, 23), normal(900, 4, 24));
    let net = Network::parse("dense(128) erf dense(64) relu dense(3)", 6, 1).unwrap();
    let product = |device: Device| {
        let theta = net.init(device, &Rng::new(5)).unwrap();
        let points: Vec<f32> = x.iter().map(|v| *v as f32).collect();
        let points = Tensor::from_host(device, &[300, 6], &points).unwrap();
        let operator = NtkOperator::new(EmpiricalNtk::new(&net, &theta).unwrap(), points).unwrap();
        let y = operator.apply_panel(&Panel::from_host(device, v.clone()).unwrap()).unwrap();
        assert_eq!(y.device(), device);
        assert_eq!(
            operator.apply(v.view()).unwrap(),
            y.to_host().unwrap(),
            "vectors of the host have the same products"
        );
        y.to_host().unwrap()
    };
    relative(&product(device), &product(Device::Cpu), 1e-4, "the empirical NTK");
}

#[test]
#[ignore = "needs a GPU"]
fn every_shape_multiplies_as_on_the_cpu() {
    let (device, _held) = cuda();
    let kernel = kernel("rbf(1.5)");
    let mut worst = [0.0f64; 3];
    for d in [1, 3, 16, 17, 64, 65, 100, 784] {
        for (n, columns) in [(1, 1), (63, 8), (769, 9), (2000, 16), (1536, 24), (1000, 33), (500, 100)] {
            let (x, v) = (normal(n, d, 3) / (d as f64).sqrt(), normal(n, columns, 4));
            let want = product(&kernel, &x, &v, Precision::F64, Device::Cpu);
            for (precision, worst) in PRECISIONS.into_iter().zip(&mut worst) {
                let apply = || product(&kernel, &x, &v, precision, device);
                let got = apply();
                let what = format!("{n}×{d}, {columns} columns, {precision:?}");
                *worst = worst.max(relative(&got, &want, stated(precision), &what));
                assert_eq!(got, apply(), "the same bits again");
            }
        }
    }
    eprintln!("worst relative errors of f64, f32, TF32: {:.1e} {:.1e} {:.1e}", worst[0], worst[1], worst[2]);
}

#[test]
#[ignore = "needs a GPU"]
fn gram_matrices_and_new_points() {
    let (device, _held) = cuda();
    for expression in ["rbf(2)", "poly(3)", "laplacian(2)", "rbf(1)*linear + periodic(3)"] {
        let kernel = kernel(expression);
        let (x, z, a) = (normal(1500, 7, 5), normal(1300, 7, 6), normal(1300, 4, 7));
        let single = |k: Array2<f32>| k.mapv(f64::from);
        let k = matrix(&kernel, x.view());
        let c = gram_cross::<f64>(&kernel, x.view(), z.view(), Device::Cpu).unwrap();
        let k64 = gram::<f64>(&kernel, x.view(), device).unwrap();
        let k32 = single(gram::<f32>(&kernel, x.view(), device).unwrap());
        let c64 = gram_cross::<f64>(&kernel, x.view(), z.view(), device).unwrap();
        let c32 = single(gram_cross::<f32>(&kernel, x.view(), z.view(), device).unwrap());
        for (got, want, bound) in [(&k64, &k, 1e-12), (&k32, &k, 1e-5), (&c64, &c, 1e-12), (&c32, &c, 1e-5)] {
            relative(got, want, bound, expression);
        }
        assert_eq!(k64, k64.t(), "{expression} is symmetric");
        for i in 0..x.nrows() {
            assert!((k32[[i, i]] - k[[i, i]]).abs() <= 1e-6 * k[[i, i]], "{expression}: the diagonal is exact");
        }
        for precision in PRECISIONS {
            let apply = |precision, device| cross_apply(&kernel, x.view(), z.view(), a.view(), precision, device);
            let want = apply(Precision::F64, Device::Cpu).unwrap();
            let got = apply(precision, device).unwrap();
            relative(&got, &want, 4.0 * stated(precision), &format!("{expression}, {precision:?}"));
        }
    }
}

/// Three clusters 1000 apart in every coordinate; every tenth point is equal to one before, every eleventh close to one.
fn clusters(n: usize, d: usize, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    let mut x = Array2::from_shape_fn((n, d), |(i, _)| 1000.3 * (i % 3) as f64 + rng.normal() / (d as f64).sqrt());
    for i in (12..n).step_by(11) {
        let (equal, close) = (x.row(i - 7).to_owned(), x.row(i - 4).mapv(|v| v + 1e-3 * rng.normal()));
        x.row_mut(i).assign(&equal);
        x.row_mut(i - 1).assign(&close);
    }
    x
}

/// Rows and columns of K by range and by list, whose points may be the same, against the matrix in f64; with clusters, entries are
/// computed anew and some points are equal. Little memory: the points are streamed.
#[test]
#[ignore = "needs a GPU"]
fn parts_of_a_kernel_matrix_multiply_as_its_blocks_do() {
    let (device, _held) = cuda();
    let (some, few): (Vec<usize>, Vec<usize>) = (Rng::new(8).sample(1500, 900), (0..70).map(|i| 20 * i + 3).collect());
    let parts = [Part::All, Part::Range(400..1300), Part::Rows(&some), Part::Rows(&few)];
    let [flat, wide, far] = [normal(1500, 7, 5) / 2.0, normal(1500, 100, 6) / 10.0, clusters(1500, 20, 2)];
    // Points whose products are those of `wide.rs`, and some of a rare category: a column that is large for three of them.
    let (wider, far_wide) = (normal(1500, 600, 6) / 25.0, clusters(1500, 600, 2));
    let rare =
        Array2::from_shape_fn(
            (1500, 20),
            |(i, j)| if j > 0 { flat[[i, j % 7]] } else { 400.0 * f64::from(i % 500 == 7) },
        );
    let cases: [(&str, &Array2<f64>, &[Precision]); 8] = [
        ("rbf(1.5)", &wider, &[Precision::Tf32]),
        ("matern12(2)", &far_wide, &[Precision::Tf32]),
        ("rbf(1.5)", &rare, &PRECISIONS),
        ("rbf(1.5)", &flat, &PRECISIONS),
        ("rbf(1.5)", &wide, &[Precision::Tf32]),
        ("matern12(2)", &far, &[Precision::F64, Precision::F32]),
        ("laplacian(2)", &flat, &[Precision::F32]),
        ("rbf(1)*linear + periodic(3)", &flat, &[Precision::F64]),
    ];
    for (expression, x, precisions) in cases {
        let kernel = kernel(expression);
        let k = matrix(&kernel, x.view());
        for &precision in precisions {
            let operator = KernelOperator::new(&kernel, x.view(), precision, device).unwrap();
            let small = with_memory(24 << 20, || {
                let operator = KernelOperator::new(&kernel, x.view(), precision, device)?;
                let v = Panel::from_host(device, Array2::ones((1500, 1)))?;
                operator.product_panel(&Part::Rows(&some), &Part::All, &v)?.into_host()
            });
            let want = k.select(Axis(0), &some).dot(&Array2::<f64>::ones((1500, 1)));
            let what = format!("{expression}, d = {}, {precision:?}", x.ncols());
            // Where even the workspace of a product does not fit, that is said.
            if let Ok(small) = small {
                relative(&small, &want, 4.0 * stated(precision), &format!("{what}, little memory"));
            }
            for rows in &parts {
                for columns in &parts {
                    let (rows_of, columns_of) = (rows.list(1500), columns.list(1500));
                    let want = k.select(Axis(0), &rows_of).select(Axis(1), &columns_of);
                    let v = normal(want.ncols(), 3, 9);
                    let panel = Panel::from_host(device, v.clone()).unwrap();
                    let got = operator.product_panel(rows, columns, &panel).unwrap();
                    assert_eq!(got.device(), device);
                    relative(&got.into_host().unwrap(), &want.dot(&v), 4.0 * stated(precision), &what);
                    let block = operator.block_panel(rows, columns, device).unwrap().into_host().unwrap();
                    relative(&block, &want, 4.0 * stated(precision), &what);
                    // The same point has the value of the diagonal.
                    let diagonal = operator.diagonal().unwrap();
                    for (a, i) in rows_of.iter().enumerate().step_by(37) {
                        if let Some(b) = columns_of.iter().position(|j| j == i) {
                            let bound = if precision == Precision::Tf32 { 1e-2 } else { 1e-6 };
                            assert!((block[[a, b]] - diagonal[*i]).abs() <= bound * diagonal[*i], "{what}: {i}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn distances_of_far_clusters_keep_their_digits() {
    let (device, _held) = cuda();
    let expressions = [
        "rbf(1.3)",
        "laplacian(1.7)",
        "matern12(1.3)",
        "matern52(2)",
        // Sums and products: their test for near entries has several parts, which a compiler once got wrong.
        "0.5*rbf(2) + 0.2*periodic(3, 0.5) + laplacian",
        "rbf(1.3) + laplacian(1.7)",
        "matern32(2)*periodic(3, 0.5) + rbf(1.3)*laplacian(9)",
    ];
    for expression in expressions {
        let kernel = kernel(expression);
        for d in [3, 64, 100] {
            let (x, z) = (clusters(1200, d, 1), clusters(1100, d, 1));
            let (k, c) =
                (matrix(&kernel, x.view()), gram_cross::<f64>(&kernel, x.view(), z.view(), Device::Cpu).unwrap());
            let what = format!("{expression}, d = {d}");
            let single = |k: Array2<f32>| k.mapv(f64::from);
            let (k32, k64) =
                (gram::<f32>(&kernel, x.view(), device).unwrap(), gram::<f64>(&kernel, x.view(), device).unwrap());
            let cross32 = single(gram_cross::<f32>(&kernel, x.view(), z.view(), device).unwrap());
            let cross64 = gram_cross::<f64>(&kernel, x.view(), z.view(), device).unwrap();
            for i in (12..1200).step_by(11) {
                assert_eq!(k32[[i, i - 7]], k32[[i, i]], "{what}: equal points");
                assert_eq!(k64[[i, i - 7]], k64[[i, i]], "{what}: equal points");
            }
            for (got, want, bound) in
                [(&single(k32), &k, 1e-5), (&k64, &k, 2e-14), (&cross32, &c, 1e-5), (&cross64, &c, 2e-14)]
            {
                let off = |(at, got): ((usize, usize), &f64)| ((got - want[at]).abs(), at, *got);
                let (far, at, value) = got.indexed_iter().map(off).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
                let wrong = got.indexed_iter().map(off).filter(|off| off.0 > bound).count();
                let shape = got.dim();
                assert!(
                    wrong == 0,
                    "{what}: {value:e} at {at:?} of {shape:?} is off by {far:e} for {bound:e}; {wrong} are"
                );
            }
            let v = normal(1200, 5, 2);
            let want = product(&kernel, &x, &v, Precision::F64, Device::Cpu);
            for precision in PRECISIONS {
                let got = product(&kernel, &x, &v, precision, device);
                relative(&got, &want, stated(precision), &format!("{what}, {precision:?}"));
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn points_that_do_not_fit_are_streamed_with_the_same_result() {
    let (device, _held) = cuda();
    let kernel = kernel("rbf(10)");
    let (x, v) = (normal(40_000, 400, 8), normal(40_000, 3, 9));
    for precision in [Precision::F32, Precision::F64] {
        let apply = || product(&kernel, &x, &v, precision, device);
        let whole = apply();
        let streamed = with_memory(256 << 20, apply);
        relative(&streamed, &whole, stated(precision), &format!("{precision:?}"));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn too_large_a_request_names_what_was_asked_and_what_is_free() {
    let (device, _held) = cuda();
    says(with_memory(64 << 20, || Tensor::zeros(device, &[1 << 26])), &["256.0 MiB", "free", "smaller batch"]);
    assert!(Tensor::zeros(device, &[1 << 26]).is_ok(), "the device goes on working");
}
