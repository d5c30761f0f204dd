//! Kernels of sampled functions: in memory and in files, at the points and beyond them.

mod common;

use common::*;
use mercer::data::{MappedArray, generate, write_npy, write_npy_rows};
use mercer::linalg::{eigh, matmul};
use mercer::net::{Network, ntk::Derivative, ntk::Directions, ntk::EmpiricalNtk, ntk::Law};
use mercer::operator::{FunctionSamples, LowRankOperator, NtkOperator, OnPoints};
use mercer::spectrum::neural::{Kind, Neural, NeuralEf, Ritz, Settings};
use mercer::spectrum::{Landmarks, Nystrom, NystromRitz, top_pairs};
use ndarray::ArrayView3;
use std::path::Path;

fn smooth(x: &Array2<f64>, count: usize, outputs: usize) -> Array3<f64> {
    let mut rng = Rng::new(3);
    let laws: Vec<[f64; 3]> = (0..count * outputs).map(|_| [rng.normal(), rng.normal(), rng.normal()]).collect();
    Array3::from_shape_fn((count, x.nrows(), outputs), |(s, n, c)| {
        let [a, w, b] = laws[s * outputs + c];
        a * (w * x[[n, 0]] + b).sin()
    })
}

/// n points, uniform on [−2, 2].
fn points(n: usize, seed: u64) -> Array2<f64> {
    generate::uniform(n, -2.0, 2.0, seed).unwrap().x.into_f64()
}

fn operator(f: ArrayView3<f64>, factorised: bool) -> LowRankOperator {
    LowRankOperator::of_samples(&f.into(), factorised).unwrap()
}

fn mapped(path: &Path) -> FunctionSamples<'static> {
    FunctionSamples::in_file(MappedArray::open(path).unwrap()).unwrap()
}

#[test]
fn samples_in_a_file_are_the_same_operator_as_in_memory() {
    let (_folder, path) = scratch("f.npy");
    let x = points(23, 1);
    for outputs in [1, 3] {
        // Exact in single precision too.
        let f = smooth(&x, 17, outputs).mapv(|v| f64::from(v as f32));
        for single in [false, true] {
            match single {
                true => write_npy(&path, f.mapv(|v| v as f32).view()).unwrap(),
                false if outputs == 1 => write_npy(&path, f.index_axis(Axis(2), 0)).unwrap(),
                false => write_npy(&path, f.view()).unwrap(),
            }
            let file = mapped(&path);
            assert_eq!(file.dim(), (17, 23, outputs));
            for by_output in [false, true] {
                let held = LowRankOperator::of_samples(&f.view().into(), by_output).unwrap();
                let file = LowRankOperator::of_samples(&file, by_output).unwrap();
                assert_eq!((file.dim(), file.n()), (held.dim(), held.n()));
                let n = held.n();
                let (v, w, some) = (normal(n, 4, 8), normal(held.dim().0, 2, 9), [5, 0, n - 1, 5]);
                let close = |a: Array2<f64>, b: Array2<f64>| {
                    assert!(worst(&a, &b) < 1e-12, "{outputs} {single} {by_output}");
                };
                close(file.apply(v.view()).unwrap(), held.apply(v.view()).unwrap());
                close(file.pushed(v.view()), held.pushed(v.view()));
                close(file.pulled(w.view()), held.pulled(w.view()));
                close(file.columns(&some), held.columns(&some));
                close(file.block(&some, &[1, 2]).unwrap(), held.block(&some, &[1, 2]).unwrap());
                close(file.smaller_gram(), held.smaller_gram());
                close(file.diagonal().unwrap().insert_axis(Axis(0)), held.diagonal().unwrap().insert_axis(Axis(0)));
            }
        }
    }
}

#[test]
fn a_file_of_many_strips_is_summed_over_all_of_them() {
    let (_folder, path) = scratch("f.npy");
    let (count, n) = (310, 30_000); // 74 MB in double precision, two strips
    let value = |s: usize, i: usize| ((s * 37 + i * 11) % 19) as f32 - 9.0;
    let row = |s: usize| (0..n).map(|i| value(s, i)).collect::<Vec<f32>>();
    write_npy_rows(&path, &[count, n], |put| (0..count).try_for_each(|s| put(&row(s)))).unwrap();
    let operator = LowRankOperator::of_samples(&mapped(&path), false).unwrap();
    let v = Array2::from_shape_fn((n, 1), |(i, _)| ((i % 7) as f64) - 3.0);
    let inner: Vec<f64> = (0..count).map(|s| (0..n).map(|i| f64::from(value(s, i)) * v[[i, 0]]).sum()).collect();
    let (image, diagonal) = (operator.apply(v.view()).unwrap(), operator.diagonal().unwrap());
    for i in [0, 1, 12_345, n - 1] {
        let want: f64 = (0..count).map(|s| f64::from(value(s, i)) * inner[s]).sum::<f64>() / count as f64;
        assert!((image[[i, 0]] - want).abs() < 1e-9 * (1.0 + want.abs()), "{i}: {} {want}", image[[i, 0]]);
        let want: f64 = (0..count).map(|s| f64::from(value(s, i)).powi(2)).sum::<f64>() / count as f64;
        assert!((diagonal[i] - want).abs() < 1e-10 * want);
    }
}

#[test]
fn krylov_finds_what_the_dense_decomposition_finds() {
    let x = points(120, 2);
    for (count, outputs) in [(40, 2), (300, 1)] {
        let f = smooth(&x, count, outputs);
        let operator = operator(f.view(), false);
        let (dense, krylov) = (fit(&Exact, &operator, 4), fit(&Krylov::to(1e-9), &operator, 4));
        same_eigenvalues(&dense.eigenvalues, &krylov.eigenvalues, 1e-9, "krylov");
        assert!(krylov.certificate.worst_residual() < 1e-8);
        let [a, b] = [&dense, &krylov].map(|found| found.transform(&f.view().into()).unwrap());
        let overlap = (&a * &b).mean_axis(Axis(0)).unwrap();
        assert!(overlap.iter().all(|cosine| (cosine.abs() - 1.0).abs() < 1e-8), "{overlap}");
    }
}

/// With every value a landmark, Nyström's method is exact, whatever chooses them; with few, it is close.
#[test]
fn nystrom_takes_samples_as_it_takes_kernels() {
    let x = points(120, 2);
    let f = smooth(&x, 12, 2);
    for factorised in [false, true] {
        let operator = operator(f.view(), factorised);
        let exact = fit(&Exact, &operator, 4);
        use Landmarks::{KMeansPlusPlus, LeverageScores, PivotedCholesky, Uniform};
        for choice in [Uniform, KMeansPlusPlus, LeverageScores, PivotedCholesky] {
            for landmarks in [operator.n(), 60] {
                let nystrom = Nystrom { landmarks, choice };
                for method in [&nystrom as &dyn Method, &NystromRitz(nystrom)] {
                    let found = fit(method, &operator, 4);
                    // 24 functions have rank 24 at most, so that sixty landmarks span all of it.
                    let what = format!("{} {choice:?} {landmarks}", method.name());
                    same_eigenvalues(&exact.eigenvalues, &found.eigenvalues, 1e-6, &what);
                    assert!(found.certificate.worst_residual() < 1e-3, "{:?}", found.certificate.residual);
                }
            }
        }
    }
}

#[test]
fn a_model_takes_the_functions_to_new_points() {
    let x = points(90, 3);
    let all = smooth(&x, 30, 2);
    let (fitted, new) = (all.slice(s![.., ..60, ..]), all.slice(s![.., 60.., ..]));
    let at = x.slice(s![..60, ..]);
    for factorised in [false, true] {
        let samples = operator(fitted, factorised);
        let problem = Problem::new(&samples, 3);
        let at_points = Exact.solve(&problem).unwrap().at_points.unwrap();
        let found = fit(&Exact, &samples, 3);
        let model = reloaded(&found);
        let c = if factorised { 1 } else { 2 };
        assert_eq!((model.origin.n, model.origin.outputs, model.takes_samples()), (60, c, true));
        // At the points themselves the extension is the function.
        let back = model.transform(&fitted.into()).unwrap();
        assert!(worst(&back, &at_points) < 1e-9);
        // Elsewhere it is (1/(mμ)) Σ κ(x,x_i) ψ(x_i).
        let everywhere = operator(all.view(), factorised);
        let [old_rows, new_rows] = [0..60 * c, 60 * c..90 * c].map(|r| r.collect::<Vec<usize>>());
        let mut want = matmul(everywhere.block(&new_rows, &old_rows).unwrap().view(), at_points.view());
        for (mut column, μ) in want.columns_mut().into_iter().zip(&found.eigenvalues) {
            column /= (60 * c) as f64 * μ;
        }
        let got = model.transform(&new.into()).unwrap();
        assert_eq!(got.dim(), (30 * c, 3));
        assert!(worst(&got, &want) < 1e-9);
        let fewer = all.slice(s![..29, .., ..]);
        says(model.transform(&fewer.into()), &["30 functions with 2 outputs"]);
        says(model.transform(at), &["no networks"]);
        // The certificate can be measured where the same functions are sampled again.
        let held_out = FunctionSamples::from(new);
        let certified = Spectrum::fit(&Exact, &problem, Some((&held_out).into())).unwrap().certificate;
        assert_eq!(certified.held_out, 30);
        assert!(certified.worst_residual() < 1e-8 && certified.interval[0].is_some());
    }
    // Networks are functions of the points.
    let samples = operator(fitted, false);
    let mut method = Neural::new(NeuralEf::Joint);
    method.settings.steps = 60;
    let found = fit(&method, &OnPoints::new(&samples, at).unwrap(), 2);
    let model = reloaded(&found);
    assert_eq!(model.transform(at).unwrap(), found.transform(at).unwrap());
    // Where the functions are sampled again, ψ_j is the kernel's average of the networks at the fitted points.
    let mut want = samples.apply(model.transform(at).unwrap().view()).unwrap();
    for (mut column, μ) in want.columns_mut().into_iter().zip(&model.eigenvalues) {
        column /= samples.n() as f64 * μ;
    }
    assert!(worst(&model.transform(&fitted.into()).unwrap(), &want) < 1e-12);
    says(model.transform(Array2::zeros((2, 5)).view()), &["1 columns"]);
    says(Spectrum::fit(&method, &Problem::new(&samples, 2), None), &["coordinates"]);
}

/// Left out of its own average, a point's own outputs do not count: for functions that are independent from point to point
/// the residual beyond the sample is that of wrong pairs, not of small ones.
#[test]
fn the_certificate_leaves_out_all_outputs_of_a_point() {
    let mut rng = Rng::new(9);
    let f = Array3::from_shape_simple_fn((4000, 40, 3), || rng.normal());
    let spectrum = fit(&Exact, &operator(f.view(), false), 2);
    for ([low, high], μ) in spectrum.certificate.interval.iter().flatten().zip(&spectrum.eigenvalues) {
        assert!(*high < 0.5 * μ, "{low} {high} {μ}");
    }
}

#[test]
fn spectra_of_samples_agree_with_the_dense_matrix() {
    let (n, count, k) = (150, 60, 5);
    let x = points(n, 4);
    let f = smooth(&x, count, 2);
    for (factorised, size) in [(false, 2 * n), (true, n)] {
        let flat = match factorised {
            false => f.to_shape((count, size)).unwrap().to_owned(),
            true => f.view().permuted_axes([0, 2, 1]).to_shape((2 * count, size)).unwrap().to_owned(),
        };
        let dense = flat.t().dot(&flat) / (flat.nrows() * size) as f64;
        let (exact, _) = eigh(Device::Cpu, dense.view()).unwrap();
        let worst = |found: &[f64]| found.iter().zip(&exact).fold(0.0, |w, (a, b)| f64::max(w, (a / b - 1.0).abs()));
        let samples = operator(f.view(), factorised);
        let operator = OnPoints::new(&samples, x.view()).unwrap();
        let found = fit(&Exact, &operator, k);
        assert!(worst(&found.eigenvalues) < 1e-10);
        let trace = found.certificate.trace;
        assert!((trace - exact.iter().sum::<f64>()).abs() < 1e-10 * trace);
        // The residual is measured on all points; that of the exact pairs is rounding.
        assert!(found.certificate.worst_residual() < 1e-8);
        for kind in [Kind::Ritz(Ritz), Kind::NeuralEf(NeuralEf::Joint)] {
            let mut method = Neural::new(kind);
            // All of the training, and its last functions: the residual, which calls a pair wrong by a half as bad as any,
            // would stop it early.
            let steps = if kind.solves_last_layer() { 0 } else { 1000 };
            method.settings =
                Settings { steps, learning_rate: 3e-3, patience: 1000, keep_best: false, ..method.settings };
            let context = FitContext { seed: 1, ..FitContext::default() };
            let by_networks = Spectrum::fit(&method, &Problem { operator: &operator, k, context }, None).unwrap();
            let found = &by_networks.eigenvalues[..3];
            assert!(worst(found) < 0.01, "{} {factorised}: {found:?} {:?}", kind.name(), &exact[..3]);
            assert_eq!(by_networks.origin.outputs, size / n);
            assert!(by_networks.certificate.residual[0].unwrap() < 0.1, "{:?}", by_networks.certificate.residual);
        }
    }
    // More pairs than functions: the rest are zero.
    let few = operator(f.slice(s![..2, .., ..]), false);
    let found = fit(&Exact, &few, 4);
    assert_eq!((found.eigenvalues[2], found.certificate.residual[3]), (0.0, None));
    assert!(FunctionSamples::from_rows(Array2::zeros((3, 10)).view(), 4).is_err());
}

#[test]
fn samples_that_do_not_fit_are_refused() {
    let (_folder, path) = scratch("f.npy");
    let mut f = Array3::zeros((4, 5, 3));
    says(OnPoints::new(&operator(f.view(), false), Array2::<f64>::zeros((4, 1)).view()), &["5 points"]);
    write_npy(&path, f.mapv(|v| v as f32).view()).unwrap();
    f[[2, 3, 1]] = f64::INFINITY;
    let mut bytes = std::fs::read(&path).unwrap();
    // Number 41 of 60; no file with it can be written.
    let at = bytes.len() - 20 * 4;
    bytes[at..at + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    for (samples, by_output) in [(mapped(&path), false), (mapped(&path), true), (f.view().into(), false)] {
        says(LowRankOperator::of_samples(&samples, by_output), &["sample 3, point 4, output 2 is inf"]);
    }
    says(LowRankOperator::of_samples(&Array3::zeros((0, 4, 3)).view().into(), false), &["empty"]);
    write_npy(&path, ndarray::array![1.0, 2.0].view()).unwrap();
    says(FunctionSamples::in_file(MappedArray::open(&path).unwrap()), &["[S, n] or [S, n, C]"]);
}

#[test]
fn directions_of_a_network_give_the_spectrum_of_its_ntk() {
    // The whole way: F from a network's random directions, then the pairs of FᵀF/S beside those of Θ itself.
    let x = generate::moons(40, 0.05, 1).unwrap().x.into_f64();
    let net = Network::parse("dense(32) erf dense(2)", 2, 1).unwrap();
    let theta = net.init(Device::Cpu, &Rng::new(1)).unwrap();
    let points = tensor(x.view());
    let ntk = EmpiricalNtk::new(&net, &theta).unwrap();
    let directions = Directions { count: 4000, law: Law::Rademacher, derivative: Derivative::Exact, seed: 2 };
    let mut f = vec![];
    ntk.directions(&points, &directions, |_, values| {
        f.extend(values.iter().map(|v| f64::from(*v)));
        Ok(())
    })
    .unwrap();
    let f = Array3::from_shape_vec((4000, 40, 2), f).unwrap();
    let found = fit(&Exact, &operator(f.view(), false), 2);
    let exact = ntk.exact(&points, None, &[0, 1]).unwrap();
    let dense = Array2::from_shape_fn((80, 80), |(a, b)| f64::from(exact[[a / 2, b / 2, a % 2, b % 2]]) / 80.0);
    let (values, _) = eigh(Device::Cpu, dense.view()).unwrap();
    for j in 0..2 {
        // The relative error of an eigenvalue from S directions is about √(2/S), 2 %.
        assert!((found.eigenvalues[j] / values[j] - 1.0).abs() < 0.08, "{:?} {:?}", found.eigenvalues, &values[..2]);
    }
}

#[test]
fn the_ntk_as_an_operator_is_its_dense_matrix() {
    let mut rng = Rng::new(2);
    let net = Network::parse("dense(24) tanh dense(3)", 2, 1).unwrap();
    let theta = net.init(Device::Cpu, &rng).unwrap();
    let x = tensor(rng.normals((30, 2)).view());
    let exact = EmpiricalNtk::new(&net, &theta).unwrap().exact(&x, None, &[0, 1, 2]).unwrap();
    let dense = Array2::from_shape_fn((90, 90), |(a, b)| f64::from(exact[[a / 3, b / 3, a % 3, b % 3]]));
    let operator = NtkOperator::new(EmpiricalNtk::new(&net, &theta).unwrap(), x).unwrap();
    let scale = largest(&dense);
    let close = |a: &Array2<f64>, b: &Array2<f64>, scale: f64| worst(a, b) < 1e-5 * scale;
    let v = rng.normals((90, 2));
    assert!(close(&operator.apply(v.view()).unwrap(), &dense.dot(&v), 90.0 * scale));
    assert_eq!(operator.apply(Array2::zeros((90, 1)).view()).unwrap(), Array2::<f64>::zeros((90, 1)));
    let (rows, columns) = ([7, 3, 88, 7], [0, 45]);
    let want = dense.select(Axis(0), &rows).select(Axis(1), &columns);
    assert!(close(&operator.block(&rows, &columns).unwrap(), &want, scale));
    assert!((operator.diagonal().unwrap() - dense.diag()).iter().all(|d| d.abs() < 1e-5 * scale));
    let (values, _) = eigh(Device::Cpu, dense.view()).unwrap();
    let top = top_pairs(&operator, 3, 1e-5, &FitContext::default()).unwrap();
    assert!((0..3).all(|j| (top.values[j] / values[j] - 1.0).abs() < 1e-5), "{:?} {:?}", top.values, &values[..3]);
    // As a spectrum, its functions are given at new points by their kernel values with the sample.
    let spectrum = fit(&Krylov::to(1e-5), &operator, 3);
    assert!((0..3).all(|j| (spectrum.eigenvalues[j] * 90.0 / values[j] - 1.0).abs() < 1e-5));
    assert_eq!(spectrum.origin.outputs, 3);
    assert_eq!(spectrum.transform(dense.slice(s![..6, ..])).unwrap().dim(), (6, 3));
}
