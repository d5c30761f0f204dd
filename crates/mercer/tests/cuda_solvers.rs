//! Solvers on a CUDA device against the same on the CPU. Without a device every test says so and passes.

mod common;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "cuda_solvers/panels.rs"]
mod panels;

use common::*;
use cuda::cuda;
use mercer::apply::{
    Alpha, ClassWeights, EpochSolver, Falkon, Fit, HeldOutRows, KernelPca, LandmarkSolver, LowRankPreconditioner,
    Monitoring, Predict, Ridge, RidgeSolver, conjugate_gradients,
};
use mercer::compute::cuda::gpu;
use mercer::data::Target;
use mercer::linalg::{Cholesky, Panel, Part, eigh, matmul, solve_lower, solve_lower_transposed, view};
use mercer::operator::{Centred, DenseOperator};
use mercer::spectrum::{Fourier, Landmarks, Nystrom, Sampling, top_pairs};
use mercer::{Error, Result};

fn at(device: Device) -> FitContext<'static> {
    FitContext { device, ..FitContext::default() }
}

/// The largest difference of two arrays, relative to the largest number of the second.
fn error(a: ArrayView2<f64>, b: ArrayView2<f64>) -> f64 {
    assert_eq!(a.dim(), b.dim());
    largest(&(&a - &b)) / largest(&b).max(1e-300)
}

#[track_caller]
fn close(a: ArrayView2<f64>, b: ArrayView2<f64>, tolerance: f64, what: &str) {
    let error = error(a, b);
    assert!(error <= tolerance, "{what}: {error:.2e} is above {tolerance:.1e}");
}

fn column(values: impl IntoIterator<Item = f64>) -> Array2<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    Array2::from_shape_vec((values.len(), 1), values).unwrap()
}

#[test]
#[ignore = "needs a GPU"]
fn bases_are_orthonormal_and_span_their_vectors() {
    let (device, _held) = cuda();
    for (n, b) in [(50, 8), (5000, 18), (20_000, 64)] {
        let v = normal(n, b, 5);
        let q = Panel::from_host(device, v.clone()).unwrap().orthonormal_basis().unwrap();
        assert_eq!(q.ncols(), b);
        close(q.t_matmul(&q).unwrap().view(), Array2::eye(b).view(), 1e-13, "QᵀQ");
        let outside = Panel::from_host(device, v).unwrap().outside(&q).unwrap();
        assert!(outside.all_within(1e-12).unwrap());
    }
    // Eight vectors in three dimensions, and one of zeros.
    let mut v = normal(300, 3, 6).dot(&normal(3, 8, 7));
    v.column_mut(2).fill(0.0);
    assert_eq!(Panel::from_host(device, v).unwrap().orthonormal_basis().unwrap().ncols(), 3);
    let zeros = Panel::from_host(device, Array2::zeros((300, 4))).unwrap();
    assert_eq!(zeros.orthonormal_basis().unwrap().ncols(), 0);
}

/// Symmetric with known eigenvalues: a few that repeat, small ones, and negative ones.
fn symmetric(n: usize) -> (Array2<f64>, Vec<f64>) {
    let q = mercer::linalg::orthonormal_basis(normal(n, n, 8)).unwrap();
    let mut λ: Vec<f64> = (0..n).map(|i| if i < 4 { 2.0 } else { (-(i as f64) / 40.0).exp() - 0.01 }).collect();
    λ.sort_by(|a, b| b.total_cmp(a));
    let a = matmul((&q * &ndarray::aview1(&λ)).view(), q.t());
    ((&a + &a.t()) * 0.5, λ)
}

#[test]
#[ignore = "needs a GPU"]
fn eigendecompositions_agree_with_what_was_put_in() {
    let (device, _held) = cuda();
    // Below the order from which the device is used, at it, and above with a remainder in every tile.
    for n in [100, 512, 777] {
        let (a, λ) = symmetric(n);
        let mut lower = a.clone();
        (0..n).for_each(|i| lower.slice_mut(s![i, i + 1..]).fill(1e3));
        let wide = Array2::from_shape_fn((2 * n, 2 * n), |(i, j)| a[[i / 2, j / 2]]);
        let forms = [a.view(), a.t(), lower.view(), wide.slice(s![..;2, ..;2])];
        for (form, a_form) in forms.into_iter().enumerate() {
            let (values, u) = eigh(device, a_form).unwrap();
            let what = format!("order {n}, form {form}");
            assert!(u.is_standard_layout());
            close(column(values.clone()).view(), column(λ.clone()).view(), 1e-12, &format!("values, {what}"));
            close(matmul(u.t(), u.view()).view(), Array2::eye(n).view(), 1e-12, &format!("UᵀU, {what}"));
            let rebuilt = matmul((&u * &ndarray::aview1(&values)).view(), u.t());
            close(rebuilt.view(), a.view(), 1e-12, &format!("UΛUᵀ, {what}"));
        }
    }
    let mut broken = symmetric(600).0;
    broken[[5, 3]] = f64::NAN;
    let refused = eigh(device, broken.view()).unwrap_err();
    assert!(matches!(refused, Error::Numerical(_)), "{refused}");
    device.synchronize().unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn cholesky_factors_solve_and_name_the_pivot() {
    let (device, _held) = cuda();
    for n in [512, 777] {
        let f = normal(n, n, 9);
        let a = matmul(f.view(), f.t()) / n as f64 + Array2::<f64>::eye(n);
        let b = normal(n, 3, 10);
        let want = Cholesky::new(Device::Cpu, a.view()).unwrap().solve(b.view()).unwrap();
        // What is above the diagonal is not read.
        let mut lower = a.clone();
        (0..n).for_each(|i| lower.slice_mut(s![i, i + 1..]).fill(f64::NAN));
        let turned = lower.t().as_standard_layout().into_owned();
        for (form, a) in [a.view(), a.t(), lower.view(), turned.t()].into_iter().enumerate() {
            let factor = Cholesky::new(device, a).unwrap();
            close(factor.solve(b.view()).unwrap().view(), want.view(), 1e-12, &format!("A⁻¹B, order {n}, form {form}"));
            close(factor.solve(b.slice(s![.., ..1])).unwrap().view(), want.slice(s![.., ..1]), 1e-12, "one column");
            let mut z = b.clone();
            solve_lower(factor.lower().unwrap(), z.view_mut());
            solve_lower_transposed(factor.lower().unwrap(), z.view_mut());
            close(z.view(), want.view(), 1e-12, &format!("by L, order {n}, form {form}"));
            assert_eq!(factor.lower().unwrap().nrows(), view(a).nrows());
        }
        let single = a.mapv(|v| v as f32);
        let factor = Cholesky::new(device, single.t()).unwrap();
        let x = factor.solve(b.mapv(|v| v as f32).view()).unwrap().mapv(f64::from);
        close(x.view(), want.view(), 1e-4, "in single precision");

        // The minor of order 101 is the first that is not positive definite; the CPU says the same.
        let mut indefinite = Array2::<f64>::eye(n);
        indefinite[[100, 100]] = -1.0;
        let [here, there] = [Device::Cpu, device].map(|at| message(Cholesky::new(at, indefinite.view())));
        assert_eq!(there, here);
        indefinite[[100, 100]] = f64::NAN;
        assert!(matches!(Cholesky::new(device, indefinite.view()), Err(Error::Numerical(_))));
    }
    device.synchronize().unwrap();
}

fn points(n: usize) -> Array2<f64> {
    normal(n, 3, 11)
}

#[test]
#[ignore = "needs a GPU"]
fn krylov_pairs_agree_with_the_cpu() {
    let (device, _held) = cuda();
    let kernel = kernel("rbf(1)");
    let x = points(1500);
    let dense = DenseOperator::new(matrix(&kernel, x.view()));
    let free = KernelOperator::new(&kernel, x.view(), Precision::F64, Device::Cpu).unwrap();
    let free_there = KernelOperator::new(&kernel, x.view(), Precision::F64, device).unwrap();
    let centred = Centred::new(&dense).unwrap();
    let operators: [(&str, &dyn Operator, &dyn Operator); 3] =
        [("dense", &dense, &dense), ("matrix-free", &free, &free_there), ("centred", &centred, &centred)];
    for (name, operator, operator_there) in operators {
        for k in [1, 10, 40] {
            let here = top_pairs(operator, k, 1e-9, &at(Device::Cpu)).unwrap();
            let there = top_pairs(operator_there, k, 1e-9, &at(device)).unwrap();
            let values = |v: &[f64]| column(v.iter().copied());
            close(values(&there.values).view(), values(&here.values).view(), 1e-12, &format!("{name}, k = {k}"));
            close(matmul(there.vectors.t(), there.vectors.view()).view(), Array2::eye(k).view(), 1e-12, "UᵀU");
            close(operator.apply(there.vectors.view()).unwrap().view(), there.images.view(), 1e-10, "KU");
            assert!(there.residuals.iter().all(|r| *r <= 1e-9), "{:?}", there.residuals);
            // The spans agree: eigenvectors up to sign, and up to rotation where values repeat.
            let (u, v) = (here.vectors.view(), there.vectors.view());
            let outside = largest(&(&v - &matmul(u, matmul(u.t(), v).view())));
            assert!(outside <= 1e-6, "{outside:.2e} of the vectors lies outside");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn an_operator_of_low_rank_ends_early_and_is_padded() {
    let (device, _held) = cuda();
    let f = normal(700, 4, 12);
    let k = DenseOperator::new(matmul(f.view(), f.t()));
    let top = top_pairs(&k, 9, 1e-9, &at(device)).unwrap();
    assert_eq!(top.values.len(), 9);
    assert!(top.values[3] > 100.0 && top.values[4..].iter().all(|v| v.abs() < 1e-9 * top.values[0]));
}

#[test]
#[ignore = "needs a GPU"]
fn exact_and_krylov_spectra_on_the_device_are_those_of_the_cpu() {
    let (device, _held) = cuda();
    let kernel = kernel("matern32(1)");
    let x = points(900);
    let fit = |method: &dyn Method, device: Device| {
        let operator = at(device).kernel_operator(&kernel, x.view()).unwrap();
        let problem = Problem { operator: &operator, k: 4, context: at(device) };
        let spectrum = Spectrum::fit(method, &problem, None).unwrap();
        (column(spectrum.eigenvalues.iter().copied()), spectrum.transform(x.slice(s![..50, ..])).unwrap())
    };
    let want = fit(&Exact, Device::Cpu);
    // Eigenvalues are off by the square of the residual. Functions are compared through their projector ψψᵀ, which no
    // sign changes; they are off by the residual over the gap, and the fifth eigenvalue is well below the fourth.
    let projector = |ψ: &Array2<f64>| matmul(ψ.view(), ψ.t());
    let krylov = Krylov::to(1e-8);
    let methods: [(&str, &dyn Method, f64); 2] = [("exact", &Exact, 1e-9), ("krylov", &krylov, 1e-5)];
    for (name, method, tolerance) in methods {
        let got = fit(method, device);
        close(got.0.view(), want.0.view(), 1e-10, &format!("eigenvalues, {name}"));
        close(projector(&got.1).view(), projector(&want.1).view(), tolerance, &format!("functions, {name}"));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn preconditioned_conjugate_gradients_agree_with_cholesky() {
    let (device, _held) = cuda();
    let kernel = kernel("rbf(1)");
    let x = points(800);
    let (alpha, y) = (1e-2, normal(800, 4, 13));
    let k = matrix(&kernel, x.view());
    let shifted = &k + &(Array2::<f64>::eye(800) * alpha);
    let want = Cholesky::new(Device::Cpu, shifted.view()).unwrap().solve(y.view()).unwrap();
    let operator = DenseOperator::new(k);
    let preconditioner = LowRankPreconditioner::new(&operator, 60, &at(device)).unwrap();
    let product = |v: &Panel| {
        let mut y = operator.apply_panel(v)?;
        y.axpy(&[alpha; 4], v)?;
        Ok(y)
    };
    let precondition = |v: &Panel| preconditioner.solve(alpha, v);
    let panel = |a: Array2<f64>| Panel::from_host(device, a).unwrap();
    let (b, start) = (panel(y.clone()), panel(Array2::zeros(y.dim())));
    let found = conjugate_gradients(&product, &precondition, &b, start, 1e-10, 500, &at(device)).unwrap();
    assert_eq!(found.x.device(), device);
    assert!(found.residual <= 1e-10 && found.iterations < 200, "{} {}", found.residual, found.iterations);
    // The error of a solution is the residual times the condition number, ‖K‖/α < 1e5.
    close(found.x.into_host().unwrap().view(), want.view(), 1e-6, "coefficients");
}

#[test]
#[ignore = "needs a GPU"]
fn estimators_on_the_device_agree_with_the_cpu() {
    let (device, _held) = cuda();
    let kernel = kernel("rbf(1)");
    let (x, z) = (points(1200), points(40));
    let y = Target::Values(
        x.rows().into_iter().zip(normal(1200, 1, 14)).map(|(r, noise)| r.sum().sin() + 0.1 * noise).collect(),
    );
    let iterative = RidgeSolver::conjugate_gradients(Precision::F64);
    // Predictions are off by no more than the residual, 1e-8 of ‖y‖, for conjugate gradients; by rounding otherwise.
    let cases = [
        ("direct", Alpha::Fixed(1e-3), RidgeSolver::Direct, 1e-9),
        ("leave-one-out", Alpha::LeaveOneOut, RidgeSolver::Direct, 1e-7),
        ("conjugate gradients", Alpha::Fixed(1e-3), iterative, 1e-6),
    ];
    for (name, alpha, solver, tolerance) in cases {
        let fit = |device: Device| {
            let ridge = Ridge { alpha, solver, ..Ridge::new(kernel.clone()) };
            let fitted = ridge.fit(x.view(), &y, &at(device)).unwrap();
            (fitted.alpha, fitted.scores(z.view()).unwrap())
        };
        let (here, there) = (fit(Device::Cpu), fit(device));
        assert_eq!(here.0, there.0, "{name}");
        close(there.1.view(), here.1.view(), tolerance, name);
    }
    let pca = KernelPca { k: 3, ..KernelPca::new(kernel.clone()) };
    let values = |device: Device| pca.fit(x.view(), &(), &at(device)).unwrap().eigenvalues;
    close(column(values(device)).view(), column(values(Device::Cpu)).view(), 1e-6, "kernel PCA");
}

/// Passes over features, and choices of landmarks, against the CPU in f64: the same landmarks and the same eigenvalues.
#[test]
#[ignore = "needs a GPU"]
fn features_and_landmarks_on_the_device_are_those_of_the_cpu() {
    let (device, _held) = cuda();
    let (kernel, x) = (kernel("matern32(1)"), points(3000));
    for choice in [Landmarks::KMeansPlusPlus, Landmarks::PivotedCholesky, Landmarks::LeverageScores] {
        let chosen = |device: Device| {
            let operator = at(device).kernel_operator(&kernel, x.view()).unwrap();
            choice.choose(&operator, 150, 3, Precision::F64).unwrap()
        };
        assert_eq!(chosen(device), chosen(Device::Cpu), "{choice:?}");
    }
    let nystrom = Nystrom { landmarks: 120, choice: Landmarks::KMeansPlusPlus };
    let fourier = Fourier { features: 200, sampling: Sampling::default(), ritz: false };
    let methods: [(&str, &dyn Method); 2] = [("nystrom", &nystrom), ("rff", &fourier)];
    for (name, method) in methods {
        let values = |device: Device| {
            let operator = at(device).kernel_operator(&kernel, x.view()).unwrap();
            let problem = Problem { operator: &operator, k: 6, context: at(device) };
            column(Spectrum::fit(method, &problem, None).unwrap().eigenvalues)
        };
        close(values(device).view(), values(Device::Cpu).view(), 1e-9, name);
    }
}

/// A factor in a panel's own memory, and solutions that stay on the device.
#[test]
#[ignore = "needs a GPU"]
fn factors_of_panels_solve_as_on_the_cpu() {
    let (device, _held) = cuda();
    for n in [1, 65, 700] {
        let a = matrix(&kernel("matern32(1)"), points(n).view()) + Array2::<f64>::eye(n) * 0.1;
        let b = normal(n, 3, 4);
        let want = Cholesky::new(Device::Cpu, a.view()).unwrap().solve(b.view()).unwrap();
        let factor = Cholesky::of_panel(Panel::from_host(device, a.clone()).unwrap()).unwrap();
        let got = factor.solve_panel(&Panel::from_host(device, b).unwrap()).unwrap();
        assert_eq!(got.device(), device);
        close(got.into_host().unwrap().view(), want.view(), 1e-10, &format!("order {n}"));
        let indefinite = Panel::from_host(device, &a - &(Array2::<f64>::eye(n) * 5.0)).unwrap();
        assert!(Cholesky::of_panel(indefinite).is_err());
        assert!(Cholesky::of_panel(Panel::from_host(device, a * f64::NAN).unwrap()).is_err());
    }
}

/// Triangles of more than a few blocks, whose last one is not full, and of one that cuBLAS solves; few columns and many.
#[test]
#[ignore = "needs a GPU"]
fn triangles_of_panels_solve_by_blocks_as_on_the_cpu() {
    let (device, _held) = cuda();
    for (n, m) in [(700, 2), (2100, 1), (2100, 2), (2100, 7), (2100, 20), (2560, 3)] {
        let a = matrix(&kernel("matern32(1)"), points(n).view()) + Array2::<f64>::eye(n) * 1e-3;
        let b = normal(n, m, 4);
        let host = Cholesky::new(Device::Cpu, a.view()).unwrap();
        let half = host.solve_triangle(false, &Panel::from(b.clone())).unwrap().into_host().unwrap();
        let factor = Cholesky::of_panel(Panel::from_host(device, a).unwrap()).unwrap();
        let right = Panel::from_host(device, b.clone()).unwrap();
        let got = factor.solve_triangle(false, &right).unwrap();
        close(got.to_host().unwrap().view(), half.view(), 1e-11, &format!("L⁻¹B, order {n}, {m} columns"));
        let whole = factor.solve_triangle(true, &got).unwrap();
        let want = host.solve(b.view()).unwrap();
        close(whole.into_host().unwrap().view(), want.view(), 1e-10, &format!("A⁻¹B, order {n}, {m} columns"));
        assert_eq!(factor.solve_triangle(false, &right).unwrap().to_host().unwrap(), got.to_host().unwrap());
    }
}

/// Points of many coordinates on landmarks in TF32: inner products are kept for two products, of more than one strip of rows.
#[test]
#[ignore = "needs a GPU"]
fn landmarks_of_wide_points_agree_with_the_cpu() {
    let (device, _held) = cuda();
    let (n, d) = (9000, 600);
    let mut x = normal(n, d, 7);
    // A few rows are equal to others.
    for i in 0..20 {
        let row = x.row(i).to_owned();
        x.row_mut(n - 1 - i).assign(&row);
    }
    let y = Target::Values(x.rows().into_iter().map(|r| r[0].sin() + 0.3 * r[1] * r[2]).collect());
    let few = x.slice(s![..500, ..]);
    for solver in [LandmarkSolver::Falkon, LandmarkSolver::EigenPro] {
        let fit = |device: Device, precision: Precision| {
            let falkon = Falkon {
                alpha: Alpha::Fixed(1.0),
                solver,
                iterations: 4,
                ..Falkon::new(kernel(&format!("rbf({})", (d as f64).sqrt())), 700)
            };
            let fitted = falkon.fit(x.view(), &y, &FitContext { precision, ..at(device) }).unwrap();
            (fitted.scores(few).unwrap(), fitted.convergence.residual.unwrap())
        };
        let (here, there) = (fit(Device::Cpu, Precision::F64), fit(device, Precision::Tf32));
        close(there.0.view(), here.0.view(), 2e-2, &format!("{solver:?} on wide points"));
        assert!((there.1 - here.1).abs() <= 0.05 * here.1 + 1e-3, "{solver:?}: {} and {}", there.1, here.1);
    }
}

/// Randomly pivoted Cholesky draws the same pivots on both devices.
#[test]
#[ignore = "needs a GPU"]
fn low_rank_preconditioners_of_a_kernel_are_those_of_the_cpu() {
    let (device, _held) = cuda();
    let (x, v) = (points(1500), normal(1500, 3, 5));
    for expression in ["matern32(1)", "laplacian(1)"] {
        let solved = |device: Device| {
            let operator = at(device).kernel_operator(&kernel(expression), x.view()).unwrap();
            let preconditioner = LowRankPreconditioner::new(&operator, 150, &at(device)).unwrap();
            preconditioner.solve(1e-2, &Panel::from_host(device, v.clone()).unwrap()).unwrap().into_host().unwrap()
        };
        close(solved(device).view(), solved(Device::Cpu).view(), 1e-6, expression);
    }
}

/// The solvers that see a part of K at a time, with classes, weights and held-out rows: the same steps on both devices.
#[test]
#[ignore = "needs a GPU"]
fn solvers_of_parts_take_the_same_steps_on_the_device() {
    let (device, _held) = cuda();
    let (x, z) = (points(1600), points(40));
    let labels = x.rows().into_iter().map(|r| usize::from(r.sum().sin() > 0.2)).collect();
    let y = Target::Classes { labels, names: vec!["low".into(), "high".into()] };
    let monitoring = || Monitoring {
        checkpoint: None,
        held_out: Some(HeldOutRows {
            x: x.slice(s![..200, ..]).to_owned(),
            y: y.select(&(0..200).collect::<Vec<_>>()),
        }),
    };
    for expression in ["rbf(1)", "laplacian(2)"] {
        for method in [EpochSolver::Richardson, EpochSolver::EigenPro, EpochSolver::Askotch] {
            let solver = RidgeSolver::Epochs { solver: method, tolerance: 1e-10, epochs: 5 };
            let fit = |device: Device| {
                let (alpha, monitoring) = (Alpha::Fixed(0.1), monitoring());
                let ridge = Ridge {
                    alpha,
                    solver,
                    monitoring,
                    class_weights: ClassWeights::Balanced,
                    ..Ridge::new(kernel(expression))
                };
                let fitted = ridge.fit(x.view(), &y, &at(device)).unwrap();
                (fitted.scores(z.view()).unwrap(), fitted.convergence)
            };
            let (here, there) = (fit(Device::Cpu), fit(device));
            let what = format!("{method:?} on {expression}");
            close(there.0.view(), here.0.view(), 1e-6, &what);
            close(column(there.1.curve.clone()).view(), column(here.1.curve.clone()).view(), 1e-6, &what);
            assert_eq!(there.1.held_out, here.1.held_out, "{what}");
        }
        for solver in [LandmarkSolver::Falkon, LandmarkSolver::Krill, LandmarkSolver::EigenPro] {
            let fit = |device: Device| {
                let falkon = Falkon {
                    alpha: Alpha::Fixed(0.1),
                    solver,
                    iterations: 6,
                    monitoring: monitoring(),
                    class_weights: ClassWeights::Balanced,
                    ..Falkon::new(kernel(expression), 250)
                };
                let fitted = falkon.fit(x.view(), &y, &at(device)).unwrap();
                (fitted.scores(z.view()).unwrap(), fitted.convergence.curve.clone())
            };
            let (here, there) = (fit(Device::Cpu), fit(device));
            let what = format!("{solver:?} on {expression}");
            close(there.0.view(), here.0.view(), 1e-6, &what);
            close(column(there.1).view(), column(here.1).view(), 1e-5, &what);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn what_does_not_fit_says_so_and_the_device_goes_on() {
    let (device, _held) = cuda();
    // Twice the device's memory: the request fails whatever other tests hold at the moment.
    const COLUMNS: usize = 65_536;
    let rows = 2 * gpu(0).unwrap().memory().1 as usize / (8 * COLUMNS);
    let tall = Panel::from_host(device, Array2::ones((rows, 1))).unwrap();
    let refused = tall.matmul(Array2::ones((1, COLUMNS)).view()).unwrap_err();
    match &refused {
        Error::DeviceMemory { needed, free, .. } => assert!(needed > free, "{refused}"),
        other => panic!("{other}"),
    }
    let small = Panel::from_host(device, Array2::ones((3, 2))).unwrap();
    assert_eq!(small.t_matmul(&small).unwrap(), Array2::from_elem((2, 2), 3.0));
    device.synchronize().unwrap();
}
