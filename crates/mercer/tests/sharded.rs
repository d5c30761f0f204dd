//! Points and products that several ranks share, against the same in one process. Ranks are threads here; `.ci/distributed` runs processes
//! under MPI.

#[path = "sharded/continued.rs"]
mod continued;

use mercer::apply::{
    Alpha, Checkpoint, ClassWeights, EpochSolver, FeatureMap, FeatureRidge, Fit, FittedRidge, HeldOutRows, Monitoring,
    Predict, Ridge, RidgeSolver, Saved,
};
use mercer::data::{BlockDataset, BlockOptions, Matrix, ReadOptions, Rows, TableBlocks, Target, write_npy};
use mercer::group::on_threads;
use mercer::kernel::Kernel;
use mercer::linalg::Part;
use mercer::operator::{KernelOperator, Operator, Precision, ShardedOperator};
use mercer::rng::Rng;
use mercer::spectrum::{BlockProblem, Certificate, Exact, Krylov, Method, Nystrom, Problem, Spectrum, top_pairs};
use mercer::{Device, FitContext, Group, Interrupt, Progress, Silent};
use ndarray::{Array2, Axis, concatenate, s};
use std::path::Path;

/// Points far from the origin, of which every seventh is the same as another one, as a rule on another rank.
fn points(n: usize, d: usize) -> Array2<f64> {
    let mut rng = Rng::new(3);
    let mut x = Array2::from_shape_simple_fn((n, d), || 100.0 + rng.normal());
    for i in (0..n / 2).step_by(7) {
        let duplicate = x.row(i).to_owned();
        x.row_mut(n - 1 - i).assign(&duplicate);
    }
    x
}

fn vectors(n: usize, b: usize) -> Array2<f64> {
    Rng::new(4).normals((n, b))
}

fn close(got: &Array2<f64>, want: &Array2<f64>, tolerance: f64, what: &str) {
    let largest = want.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    let error = (got - want).iter().fold(0.0f64, |most, v| most.max(v.abs()));
    assert!(got.dim() == want.dim() && error <= tolerance * largest, "{what}: off by {error:e} of {largest:e}");
}

/// Runs `check` on every rank with the operator on its share of `x`, and one on all points.
fn with_both(
    size: usize,
    kernel: &str,
    x: Rows<'_>,
    precision: Precision,
    check: impl Fn(&ShardedOperator<'_>, &KernelOperator<'_>, Group<'_>) + Sync,
) {
    let kernel = Kernel::parse(kernel).unwrap();
    let whole = KernelOperator::new(&kernel, x, precision, Device::Cpu).unwrap();
    on_threads(size, |group| {
        let context = FitContext { group, precision, ..FitContext::default() };
        let sharded = ShardedOperator::new(&kernel, x.slice(group.share(x.n())), &context).unwrap();
        check(&sharded, &whole, group);
    });
}

#[test]
fn products_are_those_of_one_process() {
    let n = 1001;
    let (x, v) = (points(n, 3), vectors(n, 2));
    for kernel in ["rbf(1)", "matern12(2) + 0.1*poly(degree=2, offset=1)", "laplacian(1.5)", "ntk(depth=2)", "linear"] {
        for size in [1, 2, 3, 4, 5, 6] {
            with_both(size, kernel, (&x).into(), Precision::F64, |sharded, whole, _| {
                let what = format!("{kernel} on {size} ranks");
                let got = sharded.apply(v.view()).unwrap();
                close(&got, &whole.apply(v.view()).unwrap(), 1e-12, &what);
                assert_eq!(got, sharded.apply(v.view()).unwrap(), "{what}: other bits the second time");
                assert_eq!(sharded.diagonal().unwrap(), whole.diagonal().unwrap(), "{what}");
                assert_eq!((sharded.n(), sharded.coordinates()), (n, 3));
            });
        }
    }
}

#[test]
fn stored_types_and_single_precision_are_kept() {
    let n = 500;
    let bytes = Array2::from_shape_fn((n, 4), |(i, j)| (i * (j + 3) % 251) as u8);
    let stored = [Matrix::F32(points(n, 4).mapv(|v| v as f32)), Matrix::U8 { values: bytes, divisor: 255.0 }];
    let v = vectors(n, 2);
    for x in &stored {
        for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
            with_both(3, "rbf(1)", x.rows(), precision, |sharded, whole, _| {
                close(&sharded.apply(v.view()).unwrap(), &whole.apply(v.view()).unwrap(), tolerance, "stored");
            });
        }
    }
}

/// More rows on a rank than visit another one at a time.
#[test]
fn points_visit_in_parts() {
    let n = 8100;
    let (x, v) = (points(n, 2), vectors(n, 1));
    with_both(2, "matern32(1)", (&x).into(), Precision::F64, |sharded, whole, group| {
        let got = sharded.apply(v.view()).unwrap();
        if group.rank() == 0 {
            close(&got, &whole.apply(v.view()).unwrap(), 1e-12, "two ranks");
        }
    });
}

/// One rank of three has a row more than the others, which fills one more part: 384 such points visit at a time.
#[test]
fn ranks_visit_each_other_in_as_many_parts() {
    let n = 3 * 384 + 1;
    let (x, v) = (points(n, 1400), vectors(n, 1));
    with_both(3, "rbf(40)", (&x).into(), Precision::F64, |sharded, whole, group| {
        let got = sharded.apply(v.view()).unwrap();
        if group.rank() == 0 {
            close(&got, &whole.apply(v.view()).unwrap(), 1e-12, "three ranks");
        }
    });
}

#[test]
fn blocks_parts_and_functions_are_those_of_one_process() {
    let n = 300;
    let (x, new) = (points(n, 3), points(40, 3));
    let (few, all): (Vec<usize>, Vec<usize>) = (vec![299, 0, 150, 7, 292], (0..n).collect());
    let (rest, a) = (vectors(5, 2), vectors(n, 2));
    for size in [2, 4] {
        with_both(size, "matern12(1)", (&x).into(), Precision::F64, |sharded, whole, _| {
            for (rows, columns) in [(&all, &few), (&few, &all), (&few, &few)] {
                close(&sharded.block(rows, columns).unwrap(), &whole.block(rows, columns).unwrap(), 1e-14, "block");
            }
            let parts = [(0..n, 40..45, rest.view()), (40..45, 0..n, a.view()), (0..n, 0..n, a.view())];
            for (rows, columns, v) in parts {
                let want = whole.product(rows.clone(), columns.clone(), v).unwrap();
                close(&sharded.product(rows, columns, v).unwrap(), &want, 1e-13, "product");
            }
            close(
                &sharded.cross(new.view().into(), a.view()).unwrap(),
                &whole.cross(new.view().into(), a.view()).unwrap(),
                1e-13,
                "cross",
            );
            let functions = |operator: &dyn Operator, rows: Option<&[usize]>, a: &Array2<f64>| {
                let functions = operator.extend(rows, a.clone()).unwrap();
                let features = functions.features;
                let values = features.project(new.view().into(), functions.coefficients.view()).unwrap();
                (values, features.eval(new.view().into()).unwrap())
            };
            let [got, want] = [sharded as &dyn Operator, whole].map(|operator| functions(operator, None, &a));
            close(&got.0, &want.0, 1e-13, "functions");
            close(&got.1, &want.1, 1e-14, "features of the same centres");
            let [got, want] = [sharded as &dyn Operator, whole].map(|operator| functions(operator, Some(&few), &rest));
            assert_eq!(got, want, "functions of a few centres");
            // Vectors that are sharded as the points are.
            let sharding = sharded.sharding();
            assert!(!sharding.is_whole());
            let panel = sharding.panel(Device::Cpu, a.view()).unwrap();
            let product =
                |rows: &Part<'_>| sharded.product_panel(rows, &Part::All, &panel).unwrap().into_host().unwrap();
            close(&product(&Part::All), &whole.apply(a.view()).unwrap(), 1e-13, "all rows of sharded vectors");
            let want = whole.product_panel(&Part::Rows(&few), &Part::All, &a.clone().into()).unwrap();
            close(&product(&Part::Rows(&few)), &want.into_host().unwrap(), 1e-13, "some rows of sharded vectors");
            let block = sharded.block_panel(&Part::All, &Part::Rows(&few), Device::Cpu).unwrap();
            assert!(block.sharding().is(&sharding));
            close(&block.into_host().unwrap(), &whole.block(&all, &few).unwrap(), 1e-14, "a block of all rows");
        });
    }
}

#[test]
fn vectors_that_differ_are_refused_with_the_rank() {
    let x = points(60, 2);
    with_both(3, "rbf(1)", (&x).into(), Precision::F64, |sharded, _, group| {
        let mut v = vectors(60, 1);
        v[[5, 0]] += if group.rank() == 2 { 1e-16 * 8.0 } else { 0.0 };
        let refused = sharded.apply(v.view()).unwrap_err().to_string();
        assert!(refused.starts_with("rank 2 computes with other vectors"), "{refused}");
    });
    let kernel = Kernel::parse("rbf(1)").unwrap();
    let refused = on_threads(3, |group| {
        let context = FitContext { group, ..FitContext::default() };
        let own = x.slice(s![group.share(2), ..]);
        ShardedOperator::new(&kernel, own, &context).err().map(|error| error.to_string())
    });
    assert!(refused.iter().all(|why| why.as_deref() == Some("2 points are too few for 3 ranks; use fewer ranks")));
}

/// By Krylov with held-out points and without, and by the exact method: eigenvalues, functions, certificates, and the file of the model.
#[test]
fn a_spectrum_its_certificate_and_its_file_are_those_of_one_process() {
    let (x, new) = (points(400, 2), points(60, 2));
    let (kernel, folder) = (Kernel::parse("rbf(1)").unwrap(), tempfile::tempdir().unwrap());
    for (exact, held_out) in [(false, true), (false, false), (true, true)] {
        let fit = |group: Group<'_>| {
            let context = FitContext { group, seed: 5, ..FitContext::default() };
            let operator = ShardedOperator::new(&kernel, x.slice(s![group.share(400), ..]), &context).unwrap();
            let problem = Problem { operator: &operator, k: 6, context };
            let method: &dyn Method = if exact { &Exact } else { &Krylov::to(1e-10) };
            let spectrum = Spectrum::fit(method, &problem, held_out.then(|| new.view().into())).unwrap();
            let functions = spectrum.transform(new.view()).unwrap();
            let file = folder.path().join(format!("{}-of-{}.mercer", group.rank(), group.size()));
            spectrum.save(&file).unwrap();
            (spectrum.eigenvalues, spectrum.certificate, spectrum.origin, functions, file)
        };
        let one = fit(Group::SINGLE);
        for size in [2, 4] {
            let all = on_threads(size, fit);
            for other in &all {
                for (a, b) in one.0.iter().zip(&other.0) {
                    assert!((a - b).abs() < 1e-12 * one.0[0], "{a} {b} on {size} ranks");
                }
                assert_eq!((other.2.n, other.2.d), (400, 2));
                // Duplicate points make no pair equal; signs are those of the same start.
                let signs = (&one.3 * &other.3).sum_axis(Axis(0)).mapv(f64::signum);
                close(&(&other.3 * &signs), &one.3, 1e-9, "functions");
                assert!((one.1.trace - other.1.trace).abs() < 1e-13);
                assert_eq!(one.1.standing, other.1.standing);
                let residuals = one.1.population_residual.iter().zip(&other.1.population_residual);
                for (a, b) in residuals {
                    // Without held-out points nothing is said of fresh ones.
                    assert_eq!((a.is_some(), b.is_some()), (held_out, held_out));
                    assert!(a.zip(*b).is_none_or(|(a, b)| (a - b).abs() < 1e-7), "{a:?} {b:?}");
                }
                assert_eq!(other.3, all[0].3, "all ranks have the same bits");
            }
            // Rank 0 writes the model of all ranks, which one process reads.
            let read = Spectrum::load(&all[0].4, Device::Cpu).unwrap();
            close(&read.transform(new.view()).unwrap(), &all[0].3, 1e-12, "the functions of the file");
        }
    }
}

/// Eigenvalues that SLEPc found on two ranks of MPI (`golden/slepc.py`).
#[test]
fn eigenvalues_are_those_of_slepc() {
    let golden: serde_json::Value = serde_json::from_str(include_str!("golden/slepc.json")).unwrap();
    let [n, d] = ["n", "d"].map(|name| golden[name].as_u64().unwrap() as usize);
    let x = Array2::from_shape_fn((n, d), |(i, j)| {
        let (i, j) = (i as f64, j as f64);
        (1.3 * i * (j + 1.0) + j).sin() + 0.5 * (0.7 * i + 2.0 * j).cos()
    });
    let kernels = golden["eigenvalues"].as_object().unwrap();
    assert_eq!(kernels.len(), 3);
    for (name, want) in kernels {
        let want: Vec<f64> = want.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        for size in [1, 2, 4] {
            let found = on_threads(size, |group| {
                let context = FitContext { group, ..FitContext::default() };
                let own = x.slice(s![group.share(n), ..]);
                let operator = ShardedOperator::new(&Kernel::parse(name).unwrap(), own, &context).unwrap();
                top_pairs(&operator, want.len(), 1e-10, &context).unwrap().values
            });
            for (found, want) in found[0].iter().map(|value| value / n as f64).zip(&want) {
                assert!((found - want).abs() < 1e-10 * want, "{name} on {size} ranks: {found} {want}");
            }
        }
    }
}

/// Solvers that see a part of K at a time ask for products with some rows, which the ranks share as well.
#[test]
fn solvers_by_epochs_are_those_of_one_process() {
    let x = points(300, 2);
    let y = Target::Values(x.axis_iter(Axis(0)).map(|x| (x[0] + 0.5 * x[1]).sin()).collect());
    // Those two divide by eigenvalues of a sample.
    let tolerances = [(EpochSolver::Askotch, 1e-12), (EpochSolver::EigenPro, 1e-8), (EpochSolver::Richardson, 1e-8)];
    for (solver, tolerance) in tolerances {
        let by_epochs = RidgeSolver::Epochs { solver, tolerance: 1e-15, epochs: 4 };
        let (alpha, kernel) = (Alpha::Fixed(1e-2), Kernel::parse("rbf(1)").unwrap());
        let ridge = Ridge { alpha, solver: by_epochs, ..Ridge::new(kernel) };
        let fit = |group: Group<'_>| {
            let context = FitContext { group, ..FitContext::default() };
            ridge.fit(x.view(), &y, &context).unwrap().coefficients
        };
        let one = fit(Group::SINGLE);
        on_threads(3, fit).iter().for_each(|other| close(other, &one, tolerance, &format!("{solver:?}")));
    }
}

/// Passes over rows in a file, of which each rank takes its part; one process reads the same file in blocks.
#[test]
fn passes_over_features_are_those_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.npy");
    let mut rng = Rng::new(9);
    let mut rows = Array2::from_shape_simple_fn((9001, 3), || 20.0 + rng.normal());
    rows.rows_mut().into_iter().for_each(|mut row| row[2] = (row[0] * row[1] / 100.0).sin());
    write_npy(&file, rows.view()).unwrap();
    let options = ReadOptions { target: Some("3".into()), ..Default::default() };
    let kernel = Kernel::parse("rbf(1)").unwrap();
    let fit = |group: Group<'_>| {
        let blocks = TableBlocks::open(file.to_str().unwrap(), &options).unwrap();
        let keep = |n| FeatureRidge::rows_in_memory(n, 30, 0);
        let options = BlockOptions { held_out: 200, ..Default::default() };
        let data = BlockDataset::fit(blocks, &options, &keep, group, &Silent).unwrap();
        let context = FitContext { group, ..FitContext::default() };
        let problem = BlockProblem { data: &data, kernel: &kernel, k: 4, context };
        let held_out = data.held_out().map(|held_out| held_out.x.rows().into());
        let nystrom = Nystrom { landmarks: 30, ..Nystrom::usual(9001, 4) };
        let spectrum = Spectrum::fit_blocks(&nystrom, &problem, held_out).unwrap();
        let map = FeatureMap::Random { kernel: kernel.clone(), features: 40, sampling: Default::default() };
        let ridge = FeatureRidge::new(map).fit_blocks(&data, &context).unwrap();
        let own = data.own_rows(group, &Silent).unwrap().into_f64();
        let x = data.held_out().unwrap().x.to_f64().into_owned();
        let Certificate { trace, residual, .. } = spectrum.certificate;
        let measured = Array2::from_shape_fn((1, 5), |(_, j)| if j == 0 { trace } else { residual[j - 1].unwrap() });
        let eigenvalues = Array2::from_shape_fn((1, 4), |(_, j)| spectrum.eigenvalues[j]);
        (eigenvalues, measured, ridge.alpha, ridge.scores(x.view()).unwrap(), own)
    };
    let one = fit(Group::SINGLE);
    for size in [2, 3] {
        let all = on_threads(size, fit);
        let shares: Vec<_> = all.iter().map(|rank| rank.4.view()).collect();
        assert_eq!(concatenate(Axis(0), &shares).unwrap(), one.4, "the rows of the ranks are all rows, in their order");
        for other in &all {
            assert!((other.2 - one.2).abs() < 1e-12 * one.2);
            close(&other.0, &one.0, 1e-12, "eigenvalues");
            close(&other.1, &one.1, 1e-10, "trace and residuals");
            close(&other.3, &one.3, 1e-9, "predictions");
        }
    }
}

#[test]
fn ridge_regression_by_conjugate_gradients_is_that_of_one_process() {
    let x = points(300, 2);
    let y = Target::Values(x.axis_iter(Axis(0)).map(|x| (x[0] + 0.5 * x[1]).sin()).collect());
    let solver = RidgeSolver::ConjugateGradients { tolerance: 1e-13, iterations: 500, rank: Some(50) };
    let ridge = Ridge { alpha: Alpha::Fixed(1e-2), solver, ..Ridge::new(Kernel::parse("rbf(1)").unwrap()) };
    let fit = |group: Group<'_>| {
        let context = FitContext { group, ..FitContext::default() };
        ridge.fit(x.view(), &y, &context).unwrap().coefficients
    };
    let one = fit(Group::SINGLE);
    for size in [2, 4] {
        for other in on_threads(size, fit) {
            close(&other, &one, 1e-12, "coefficients");
        }
    }
}

/// Points of which each rank has some, not as many as the others: α by every rule, weights of classes, errors on held-out rows, predictions
/// and the file, against the fit of one process on all points.
#[test]
fn ridge_regression_on_sharded_points_is_that_of_one_process() {
    let (x, new, folder) = (points(300, 2), points(40, 2), tempfile::tempdir().unwrap());
    let class = |x: ndarray::ArrayView1<f64>| usize::from((x[0] + 0.5 * x[1]).sin() > 0.3);
    let classes = |x: &Array2<f64>| {
        let labels = x.axis_iter(Axis(0)).map(class).collect();
        Target::Classes { labels, names: vec!["a".into(), "b".into()] }
    };
    let (y, held_out) = (classes(&x), HeldOutRows { x: new.clone(), y: classes(&new) });
    let cg = RidgeSolver::ConjugateGradients { tolerance: 1e-13, iterations: 500, rank: Some(50) };
    let askotch = RidgeSolver::Epochs { solver: EpochSolver::Askotch, tolerance: 1e-13, epochs: 6 };
    let rules = [Alpha::Fixed(1e-2), Alpha::LeaveOneOut, Alpha::CrossValidation { folds: 3 }];
    for (alpha, solver) in rules.into_iter().map(|alpha| (alpha, cg)).chain([(rules[0], askotch)]) {
        let monitoring = Monitoring { checkpoint: None, held_out: Some(held_out.clone()) };
        let kernel = Kernel::parse("matern32(1)").unwrap();
        let class_weights = ClassWeights::Balanced;
        let ridge = Ridge { alpha, solver, centred: true, class_weights, monitoring, ..Ridge::new(kernel) };
        let fit = |group: Group<'_>| {
            let context = FitContext { group, ..FitContext::default() };
            let fitted = match group.size() {
                1 => ridge.fit(x.view(), &y, &context).unwrap(),
                _ => {
                    let cut = |rank: usize| if rank == group.size() { 300 } else { rank * rank * 30 };
                    let own = x.slice(s![cut(group.rank())..cut(group.rank() + 1), ..]);
                    ridge.fit_sharded(own, &y, &context).unwrap()
                }
            };
            let file = folder.path().join(format!("{}-of-{}.mercer", group.rank(), group.size()));
            fitted.save(&file).unwrap();
            let errors: Vec<f64> = fitted.convergence.held_out.iter().map(|at| at.error).collect();
            assert!(!errors.is_empty());
            let scores = fitted.scores(new.view()).unwrap();
            (fitted.alpha, fitted.coefficients.clone(), scores, errors, fitted.reference.origin.n, file)
        };
        let one = fit(Group::SINGLE);
        for size in [2, 3] {
            let all = on_threads(size, fit);
            for other in &all {
                assert!((other.0 - one.0).abs() < 1e-12 * one.0, "{alpha}: {} {}", other.0, one.0);
                close(&other.1, &one.1, 1e-10, "coefficients");
                close(&other.2, &one.2, 1e-11, "predictions");
                // Roundings may take or save an iteration at the end.
                let first = |errors: &[f64]| errors[..errors.len().min(5)].to_vec();
                assert_eq!((first(&other.3), other.4), (first(&one.3), 300));
                assert_eq!(other.2, all[0].2, "all ranks have the same bits");
            }
            let read = FittedRidge::load(&all[0].5, Device::Cpu).unwrap();
            assert_eq!(read.reference.points(), x.view());
            close(&read.scores(new.view()).unwrap(), &all[0].2, 1e-12, "the predictions of the file");
        }
    }
}
