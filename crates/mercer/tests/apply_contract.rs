//! What every estimator owes its user: clear errors for bad input, and a file that predicts the same.

use mercer::apply::{
    Affinity, Alpha, DiffusionMaps, FitContext, FittedDiffusionMaps, FittedKernelPca, FittedLaplacianEigenmaps,
    FittedNadarayaWatson, FittedRidge, FittedSpectralRidge, KernelPca, LaplacianEigenmaps, NadarayaWatson, Ridge,
    RidgeSolver, Saved, SpectralRidge,
};
use mercer::data::{Scaler, Scaling, Target};
use mercer::kernel::Kernel;
use mercer::rng::Rng;
use mercer::spectrum::{Exact, Problem, Spectrum};
use mercer::{Error, Result};
use ndarray::{Array2, ArrayView2};
use std::path::Path;

type Predict = Box<dyn Fn(ArrayView2<f64>) -> Result<Array2<f64>>>;
type Reload = Box<dyn Fn(&Path) -> Result<Predict>>;

/// A fitted estimator as the suite sees it: it predicts, and it is saved and read back.
struct Fitted {
    predict: Predict,
    reload: Reload,
}

fn erase<F: Saved + 'static>(
    fitted: F,
    predict: impl Fn(&F, ArrayView2<f64>) -> Result<Array2<f64>> + Clone + 'static,
) -> Fitted {
    let fitted = std::rc::Rc::new(fitted);
    let (again, predict_again) = (fitted.clone(), predict.clone());
    Fitted {
        predict: Box::new(move |x| predict(&fitted, x)),
        reload: Box::new(move |path| {
            again.save(path)?;
            let (loaded, predict) = (F::load(path)?, predict_again.clone());
            Ok(Box::new(move |x| predict(&loaded, x)))
        }),
    }
}

type Fit = fn(ArrayView2<f64>, &Target, usize) -> Result<Fitted>;

fn rbf() -> Kernel {
    Kernel::parse("rbf(1.2)").unwrap()
}

/// Every estimator: from points, targets and k to a fitted value; those without targets or k ignore them.
fn estimators() -> Vec<(&'static str, Fit)> {
    vec![
        ("kpca", |x, _, k| {
            let fitted = KernelPca { k, ..Default::default() }.fit(&rbf(), x, &FitContext::default())?;
            Ok(erase(fitted, FittedKernelPca::transform))
        }),
        ("laplacian", |x, _, k| {
            let maps = LaplacianEigenmaps { k, affinity: Affinity::Kernel(rbf()), ..Default::default() };
            Ok(erase(maps.fit(x, &FitContext::default())?, FittedLaplacianEigenmaps::transform))
        }),
        ("laplacian of neighbours", |x, _, k| {
            let maps = LaplacianEigenmaps { k, affinity: Affinity::Neighbours(8), ..Default::default() };
            Ok(erase(maps.fit(x, &FitContext::default())?, FittedLaplacianEigenmaps::transform))
        }),
        ("diffusion", |x, _, k| {
            let maps = DiffusionMaps { k, ..Default::default() };
            Ok(erase(maps.fit(&rbf(), x, &FitContext::default())?, FittedDiffusionMaps::transform))
        }),
        ("nadaraya-watson", |x, y, _| {
            let fitted = NadarayaWatson::default().fit(&rbf(), x, y, &FitContext::default())?;
            Ok(erase(fitted, |f: &FittedNadarayaWatson, x| Ok(f.scores(x)?.0)))
        }),
        ("ridge", |x, y, _| {
            let fitted = Ridge::default().fit(&rbf(), x, y, &FitContext::default())?;
            Ok(erase(fitted, FittedRidge::scores))
        }),
        ("ridge by conjugate gradients", |x, y, _| {
            let solver = RidgeSolver::conjugate_gradients(Default::default());
            let fitted = Ridge { alpha: Alpha::Fixed(0.1), solver }.fit(&rbf(), x, y, &FitContext::default())?;
            Ok(erase(fitted, FittedRidge::scores))
        }),
        ("spectral ridge", |x, y, k| {
            let spectrum = Spectrum::fit(&Exact, &Problem::new(&rbf(), x, k), None)?;
            let fitted = SpectralRidge { alpha: Alpha::LeaveOneOut }.fit(spectrum, x, y)?;
            Ok(erase(fitted, FittedSpectralRidge::scores))
        }),
    ]
}

fn points(n: usize, seed: u64) -> (Array2<f64>, Target) {
    let mut rng = Rng::new(seed);
    let x = Array2::from_shape_simple_fn((n, 3), || rng.normal());
    let y = Target::Values(x.column(0).mapv(f64::sin).to_vec());
    (x, y)
}

fn uses_targets(name: &str) -> bool {
    name.contains("ridge") || name.contains("nadaraya")
}

fn message(result: Result<Fitted>, name: &str, what: &str) -> String {
    match result {
        Ok(_) => panic!("{name} accepts {what}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn answers_are_finite_and_have_a_row_for_each_point() {
    let ((x, y), (new, _)) = (points(40, 1), points(7, 2));
    for (name, fit) in estimators() {
        let fitted = fit(x.view(), &y, 3).unwrap();
        let z = (fitted.predict)(new.view()).unwrap();
        assert_eq!(z.dim(), (7, if uses_targets(name) { 1 } else { 3 }), "{name}");
        assert!(z.iter().all(|v| v.is_finite()), "{name}");
        assert_eq!((fitted.predict)(new.slice(ndarray::s![..0, ..])).unwrap().nrows(), 0, "{name}");
        // The same seed gives the same bits.
        assert_eq!((fit(x.view(), &y, 3).unwrap().predict)(new.view()).unwrap(), z, "{name}");
    }
}

#[test]
fn classes_have_a_column_each() {
    let ((x, _), (new, _)) = (points(40, 3), points(7, 4));
    let names = ["a", "b", "c"].map(String::from).to_vec();
    let y = Target::Classes { labels: (0..40).map(|i| i % 3).collect(), names };
    for (name, fit) in estimators().into_iter().filter(|(name, _)| uses_targets(name)) {
        assert_eq!((fit(x.view(), &y, 3).unwrap().predict)(new.view()).unwrap().dim(), (7, 3), "{name}");
    }
}

#[test]
fn bad_input_gets_a_clear_sentence() {
    let (x, y) = points(40, 5);
    let mut hole = x.clone();
    hole[[4, 1]] = f64::NAN;
    let mut infinite = x.clone();
    infinite[[4, 1]] = f64::INFINITY;
    for (name, fit) in estimators() {
        for bad in [&hole, &infinite] {
            let text = message(fit(bad.view(), &y, 3), name, "NaN");
            assert!(text.contains("row 5") && text.contains("column 2"), "{name}: {text}");
        }
        let text = message(fit(x.slice(ndarray::s![..0, ..]), &Target::Values(vec![]), 3), name, "no rows");
        assert!(text.contains("empty"), "{name}: {text}");
        if uses_targets(name) {
            let text = message(fit(x.view(), &Target::Values(vec![1.0; 39]), 3), name, "39 targets for 40 rows");
            assert!(text.contains("40") && text.contains("39"), "{name}: {text}");
            let text = message(fit(x.view(), &Target::Values(vec![f64::NAN; 40]), 3), name, "targets of NaN");
            assert!(text.contains("target") && text.contains("NaN"), "{name}: {text}");
        }
        if !name.contains("ridge") && !name.contains("nadaraya") {
            for k in [0, 41] {
                let text = message(fit(x.view(), &y, k), name, "k out of range");
                assert!(text.contains(&k.to_string()), "{name}: {text}");
            }
        }
        let fitted = fit(x.view(), &y, 3).unwrap();
        let text = (fitted.predict)(x.slice(ndarray::s![.., ..2])).unwrap_err().to_string();
        assert!(text.contains('3') && text.contains('2'), "{name}: {text}");
        let text = (fitted.predict)(hole.view()).unwrap_err().to_string();
        assert!(text.contains("row 5"), "{name}: {text}");
    }
}

#[test]
fn a_saved_model_predicts_the_same_bits() {
    let ((x, y), (new, _)) = (points(40, 6), points(9, 7));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.mercer");
    for (name, fit) in estimators() {
        let fitted = fit(x.view(), &y, 3).unwrap();
        let loaded = (fitted.reload)(&path).unwrap();
        assert_eq!(loaded(new.view()).unwrap(), (fitted.predict)(new.view()).unwrap(), "{name}");
        // A truncated file is an error, never a crash.
        let bytes = std::fs::read(&path).unwrap();
        let half = folder.path().join("half.mercer");
        std::fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
        assert!(matches!(FittedRidge::load(&half), Err(Error::File { .. })), "{name}");
    }
    // The last was a spectral ridge: another estimator says what it found.
    let error = FittedKernelPca::load(&path).err().unwrap().to_string();
    assert!(error.contains("'spectral-ridge'") && error.contains("'kpca'"), "{error}");
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let (x, y) = points(20, 8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.mercer");
    let fitted = Ridge::default().fit(&rbf(), x.view(), &y, &FitContext::default()).unwrap();
    let mut bundle = mercer::model::Bundle::default();
    bundle.set("kind", "ridge");
    fitted.pack(&mut bundle);
    bundle.put("coefficients", Array2::zeros((19, 1)));
    bundle.write(&path).unwrap();
    let error = FittedRidge::load(&path).err().unwrap().to_string();
    assert!(error.contains("coefficients") && error.contains("19"), "{error}");
}

#[test]
fn the_scaler_travels_with_the_model() {
    let ((mut x, y), (mut new, _)) = (points(40, 9), points(5, 10));
    x.column_mut(2).mapv_inplace(|v| 1000.0 * v + 7.0);
    new.column_mut(2).mapv_inplace(|v| 1000.0 * v + 7.0);
    let scaler = Scaler::fit(Scaling::Standard, x.view()).unwrap();
    let (scaled, new_scaled) = (scaler.apply(x.view()).unwrap(), scaler.apply(new.view()).unwrap());
    let mut fitted = Ridge::default().fit(&rbf(), scaled.view(), &y, &FitContext::default()).unwrap();
    let want = fitted.scores(new_scaled.view()).unwrap();
    fitted.reference.scaler = Some(scaler);
    assert_eq!(fitted.scores(new.view()).unwrap(), want);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.mercer");
    fitted.save(&path).unwrap();
    assert_eq!(FittedRidge::load(&path).unwrap().scores(new.view()).unwrap(), want);
}

/// Values by scikit-learn; the file says of which version, and the script beside it makes them.
#[test]
fn numbers_agree_with_scikit_learn() {
    let golden: serde_json::Value = serde_json::from_str(include_str!("golden/apply_sklearn.json")).unwrap();
    let vector = |v: &serde_json::Value| -> Vec<f64> { serde_json::from_value(v.clone()).unwrap() };
    let matrix = |name: &str| {
        let rows: Vec<Vec<f64>> = golden[name].as_array().unwrap().iter().map(vector).collect();
        Array2::from_shape_fn((rows.len(), rows[0].len()), |(i, j)| rows[i][j])
    };
    let (x, new) = (matrix("x"), matrix("new"));
    let kernel = Kernel::parse("rbf(1.5)").unwrap();
    let pca = KernelPca { k: 4, ..Default::default() }.fit(&kernel, x.view(), &FitContext::default()).unwrap();
    for (a, b) in pca.eigenvalues.iter().zip(vector(&golden["kpca_eigenvalues"])) {
        assert!((a - b).abs() < 1e-10);
    }
    let close = |ours: Array2<f64>, theirs: Array2<f64>, signs: &[f64]| {
        ours.indexed_iter().all(|((i, j), z)| (z - signs[j] * theirs[[i, j]]).abs() < 1e-9)
    };
    // Its sign convention is another; ours is read off the fitted points and must hold for the new ones too.
    let (ours, theirs) = (pca.projections(), matrix("kpca_projections"));
    let signs: Vec<f64> = (0..4).map(|j| ours.column(j).dot(&theirs.column(j)).signum()).collect();
    assert!(close(ours, theirs, &signs));
    assert!(close(pca.transform(new.view()).unwrap(), matrix("kpca_new"), &signs));
    let ridge = Ridge { alpha: Alpha::Fixed(0.1), solver: RidgeSolver::Direct };
    let fitted = ridge.fit(&kernel, x.view(), &Target::Values(vector(&golden["y"])), &FitContext::default()).unwrap();
    let theirs = vector(&golden["ridge_coefficients"]);
    assert!(fitted.coefficients().iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-9));
    let (ours, theirs) = (fitted.predict(new.view()).unwrap().values(), vector(&golden["ridge_new"]));
    assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-10));
}
