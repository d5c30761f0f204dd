//! The contract of every estimator: shapes, clear errors for bad input, files that give the same results, no dependence on the
//! order of the points, the same result for the same seed.

mod common;

use common::*;
use mercer::apply::{
    Affinity, Alpha, ClassReport, ClassWeights, DiffusionMaps, EpochSolver, Falkon, FeatureLogistic, FeatureMap,
    FeatureProcess, FeatureRidge, Fit, Fitted, FittedFeatureRidge, FittedKernelPca, FittedRidge, GaussianProcess,
    GaussianProcessClassifier, IterativeProcess, KernelPca, LaplacianEigenmaps, Logistic, MetricForm, NadarayaWatson,
    NtkEnsemble, Predict, ProcessFeatures, RecursiveFeatureMachine, Ridge, RidgeSolver, Saved, SpectralRidge,
    Transform,
};
use mercer::data::{Missing, ReadOptions, Scaler, Scaling, Schema, Table, Target};
use mercer::kernel::Expression;
use mercer::model::{Content, Model};
use mercer::spectrum::{Landmarks, Sampling};
use mercer::{Error, Result};
use std::path::Path;

/// Fits the points with their targets or k coordinates, and saves the result where a path is given.
type Estimator = Box<dyn Fn(ArrayView2<f64>, &Target, usize, Option<&Path>) -> Result<Fitted>>;

/// What the suite knows of an estimator.
struct Case {
    name: &'static str,
    estimator: Estimator,
    /// Whether its targets may be numbers.
    numbers: bool,
    /// Whether they may be classes.
    classes: bool,
    /// Whether it uses k.
    coordinates: bool,
}

impl Case {
    fn fit(&self, x: ArrayView2<f64>, y: &Target, k: usize) -> Result<Fitted> {
        (self.estimator)(x, y, k, None)
    }

    /// A target that it can learn, from the first coordinate of the points.
    fn target(&self, x: &Array2<f64>) -> Target {
        if self.numbers {
            return Target::Values(x.column(0).mapv(f64::sin).to_vec());
        }
        let labels = x.column(0).iter().map(|v| usize::from(*v > -0.4) + usize::from(*v > 0.4)).collect();
        Target::Classes { labels, names: ["a", "b", "c"].map(String::from).to_vec() }
    }

    #[track_caller]
    fn refuses<T>(&self, result: Result<T>, parts: &[&str]) {
        let text = result.err().unwrap_or_else(|| panic!("{} accepts what it should refuse", self.name)).to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{}: {text}", self.name);
    }
}

fn saved<F: Saved>(fitted: F, path: Option<&Path>) -> Result<F> {
    path.map_or(Ok(()), |path| fitted.save(path))?;
    Ok(fitted)
}

/// An estimator of coordinates, made for a k.
fn embeds<E: Fit<Target = ()>>(name: &'static str, make: impl Fn(usize) -> E + 'static) -> Case
where
    E::Fitted: Transform + 'static,
{
    let estimator: Estimator = Box::new(move |x, _, k, path| {
        Ok(Fitted::Transform(Box::new(saved(make(k).fit(x, &(), &FitContext::default())?, path)?)))
    });
    Case { name, estimator, numbers: true, classes: true, coordinates: true }
}

/// An estimator of targets, made for points.
fn predicts<E: Fit<Target = Target>>(name: &'static str, make: impl Fn(ArrayView2<f64>) -> Result<E> + 'static) -> Case
where
    E::Fitted: Predict + 'static,
{
    let estimator: Estimator = Box::new(move |x, y, _, path| {
        Ok(Fitted::Predict(Box::new(saved(make(x)?.fit(x, y, &FitContext::default())?, path)?)))
    });
    Case {
        name,
        estimator,
        numbers: !name.contains("logistic") && !name.contains("classifier"),
        classes: !(name.contains("process") || name.contains("ensemble")) || name.contains("classifier"),
        coordinates: false,
    }
}

fn rbf() -> Kernel {
    kernel("rbf(1.2)")
}

fn nystrom(landmarks: usize) -> FeatureMap {
    FeatureMap::Nystrom { kernel: rbf(), landmarks, choice: Landmarks::Uniform }
}

fn by_epochs(solver: EpochSolver) -> Ridge {
    let solver = RidgeSolver::Epochs { solver, tolerance: 1e-9, epochs: 5000 };
    Ridge { alpha: Alpha::Fixed(0.1), solver, ..Ridge::new(rbf()) }
}

fn cases() -> Vec<Case> {
    let laplacian =
        |affinity: Affinity| move |k| LaplacianEigenmaps { k, affinity: affinity.clone(), ..Default::default() };
    vec![
        embeds("kpca", |k| KernelPca { k, ..KernelPca::new(rbf()) }),
        embeds("laplacian", laplacian(Affinity::Kernel(rbf()))),
        embeds("laplacian of neighbours", laplacian(Affinity::Neighbours(8))),
        embeds("diffusion", |k| DiffusionMaps { k, ..DiffusionMaps::new(rbf()) }),
        predicts("nadaraya-watson", |_| Ok(NadarayaWatson::new(rbf()))),
        predicts("ridge", |_| Ok(Ridge::new(rbf()))),
        predicts("ridge by conjugate gradients", |_| {
            let solver = RidgeSolver::conjugate_gradients(Default::default());
            Ok(Ridge { alpha: Alpha::Fixed(0.1), solver, ..Ridge::new(rbf()) })
        }),
        predicts("ridge by askotch", |_| Ok(by_epochs(EpochSolver::Askotch))),
        predicts("ridge by eigenpro", |_| Ok(by_epochs(EpochSolver::EigenPro))),
        predicts("ridge by richardson", |_| Ok(by_epochs(EpochSolver::Richardson))),
        predicts("falkon", |x| {
            Ok(Falkon { tolerance: 1e-9, alpha: Alpha::Fixed(0.1), ..Falkon::new(rbf(), x.nrows()) })
        }),
        predicts("nystrom ridge", |x| Ok(FeatureRidge::new(nystrom(x.nrows())))),
        predicts("random features", |_| {
            let map = FeatureMap::Random { kernel: rbf(), features: 30, sampling: Sampling::Orthogonal };
            Ok(FeatureRidge::new(map))
        }),
        predicts("linear ridge", |_| Ok(FeatureRidge::new(FeatureMap::Linear { scale: 2.0 }))),
        predicts("logistic", |_| Ok(Logistic::default())),
        predicts("gaussian process", |_| Ok(GaussianProcess::new(Expression::parse("rbf(1.2)")?))),
        predicts("gaussian process classifier", |_| Ok(GaussianProcessClassifier::new(Expression::parse("rbf(1.2)")?))),
        predicts("gaussian process on features", |x| {
            Ok(FeatureProcess::new(Expression::parse("rbf(1.2)")?, ProcessFeatures::Landmarks(x.nrows())))
        }),
        predicts("gaussian process by conjugate gradients", |_| {
            Ok(IterativeProcess::new(Expression::parse("rbf(1.2)")?))
        }),
        predicts("ntk ensemble", |_| {
            Ok(NtkEnsemble { kernel: kernel("ntk(depth=2, act=erf, b_var=0.5)"), time: 100.0 })
        }),
        predicts("logistic on features", |x| {
            let alpha = Alpha::Fixed(0.1);
            Ok(FeatureLogistic { alpha, ..FeatureLogistic::new(nystrom(x.nrows())) })
        }),
        predicts("recursive feature machine", |_| {
            let (metric, rounds) = (Some(MetricForm::Full), Some(2));
            Ok(RecursiveFeatureMachine {
                metric,
                rounds,
                ..RecursiveFeatureMachine::new(Expression::parse("rbf(1.2)")?)
            })
        }),
        predicts("spectral ridge", |x| {
            let operator = FitContext::default().kernel_operator(&rbf(), x)?;
            let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 3), None)?.into();
            Ok(SpectralRidge::new(spectrum))
        }),
    ]
}

/// Scores or coordinates at new points.
fn at(fitted: &Fitted, x: ArrayView2<f64>) -> Result<Array2<f64>> {
    match fitted {
        Fitted::Predict(fitted) => fitted.scores(x),
        Fitted::Transform(fitted) => fitted.transform(x),
    }
}

fn points(n: usize, seed: u64) -> Array2<f64> {
    normal(n, 3, seed)
}

#[test]
fn answers_are_finite_and_have_a_row_for_each_point() {
    let (x, new) = (points(40, 1), points(7, 2));
    let names = ["a", "b", "c"].map(String::from).to_vec();
    let three = Target::Classes { labels: (0..40).map(|i| i % 3).collect(), names };
    for case in cases() {
        let (name, y) = (case.name, case.target(&x));
        let fitted = case.fit(x.view(), &y, 2).unwrap();
        let z = at(&fitted, new.view()).unwrap();
        let columns = match (case.coordinates, case.numbers) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 3,
        };
        assert_eq!(z.dim(), (7, columns), "{name}");
        assert!(z.iter().all(|v| v.is_finite()), "{name}");
        assert_eq!(at(&fitted, new.slice(s![..0, ..])).unwrap().nrows(), 0, "{name}");
        // The same seed gives the same bits.
        assert_eq!(at(&case.fit(x.view(), &y, 2).unwrap(), new.view()).unwrap(), z, "{name}");
        let origin = match &fitted {
            Fitted::Predict(fitted) => {
                assert_eq!(fitted.predict(new.view()).unwrap(), fitted.decode(z.view()), "{name}");
                // Classes have a column each, and probabilities that add up to one, the largest that of the predicted class.
                if case.classes {
                    let Fitted::Predict(classifier) = case.fit(x.view(), &three, 2).unwrap() else {
                        panic!("it predicts")
                    };
                    let scores = classifier.scores(new.view()).unwrap();
                    assert_eq!(scores.dim(), (7, 3), "{name}");
                    let p = classifier.probabilities(scores.view()).expect(name);
                    assert!(p.rows().into_iter().all(|row| (row.sum() - 1.0).abs() < 1e-12), "{name}");
                    if p.iter().any(|p| (p - 1.0 / 3.0).abs() > 1e-9) {
                        assert_eq!(classifier.decode(p.view()), classifier.decode(scores.view()), "{name}");
                    }
                }
                // Numbers have none; the case of the classifier that takes no numbers is about classes.
                assert_eq!(fitted.probabilities(z.view()).is_none(), case.numbers, "{name}");
                fitted.origin()
            }
            Fitted::Transform(fitted) => {
                assert_eq!((fitted.eigenvalues().len(), fitted.notes()), (2, &[][..]), "{name}");
                fitted.origin()
            }
        };
        assert_eq!((origin.n, origin.d), (40, 3), "{name}");
    }
}

#[test]
fn fitted_points_keep_their_coordinates_and_their_order_does_not_matter() {
    let (x, new) = (points(40, 12), points(6, 13));
    let order = Rng::new(14).sample(40, 40);
    for case in cases() {
        let (name, y) = (case.name, case.target(&x));
        let fitted = case.fit(x.view(), &y, 3).unwrap();
        let shuffled = case.fit(x.select(Axis(0), &order).view(), &y.select(&order), 3).unwrap();
        let off = worst(&at(&fitted, new.view()).unwrap(), &at(&shuffled, new.view()).unwrap());
        assert!(off < 1e-6, "{name}: {off}");
        // A graph of neighbours is not a function of two points, and is extended by averages only.
        if let (Fitted::Transform(fitted), false) = (&fitted, name.contains("neighbours")) {
            let off = worst(&fitted.transform(x.view()).unwrap(), &fitted.embedding());
            assert!(off < 1e-10, "{name}: {off}");
        }
    }
}

#[test]
fn bad_points_get_a_clear_sentence() {
    let x = points(40, 5);
    for case in cases() {
        let y = case.target(&x);
        let fitted = case.fit(x.view(), &y, 3).unwrap();
        for bad in [f64::NAN, f64::INFINITY] {
            let mut hole = x.clone();
            hole[[4, 1]] = bad;
            case.refuses(case.fit(hole.view(), &y, 3), &["row 5", "column 2"]);
            case.refuses(at(&fitted, hole.view()), &["row 5"]);
        }
        case.refuses(case.fit(x.slice(s![..0, ..]), &y.select(&[]), 3), &["empty"]);
        case.refuses(at(&fitted, x.slice(s![.., ..2])), &["3 columns", "2"]);
        for k in [0, 41].into_iter().filter(|_| case.coordinates) {
            case.refuses(case.fit(x.view(), &y, k), &[&k.to_string()]);
        }
    }
}

#[test]
fn bad_targets_get_a_clear_sentence() {
    let x = points(40, 15);
    for case in cases().into_iter().filter(|case| !case.coordinates) {
        let few = case.target(&x).select(&(0..39).collect::<Vec<_>>());
        case.refuses(case.fit(x.view(), &few, 3), &["40", "39"]);
        let words: &[&str] = if case.numbers { &["target", "NaN"] } else { &["target"] };
        case.refuses(case.fit(x.view(), &Target::Values(vec![f64::NAN; 40]), 3), words);
        let unknown = Target::Classes { labels: vec![2; 40], names: vec!["a".into(), "b".into()] };
        let words: &[&str] = if case.classes { &["class 2", "2 classes"] } else { &["numbers", "classes"] };
        case.refuses(case.fit(x.view(), &unknown, 3), words);
    }
}

#[test]
fn a_saved_model_gives_the_same_bits() {
    let (x, new) = (points(40, 6), points(9, 7));
    let folder = tempfile::tempdir().unwrap();
    let (path, half) = (folder.path().join("model.mercer"), folder.path().join("half.mercer"));
    for case in cases() {
        let fitted = (case.estimator)(x.view(), &case.target(&x), 3, Some(&path)).unwrap();
        let loaded = Fitted::load(&path, Device::Cpu).unwrap();
        assert_eq!(at(&loaded, new.view()).unwrap(), at(&fitted, new.view()).unwrap(), "{}", case.name);
        match (&fitted, &loaded) {
            (Fitted::Transform(a), Fitted::Transform(b)) => {
                assert_eq!(
                    (a.embedding(), a.eigenvalues(), a.notes(), a.origin()),
                    (b.embedding(), b.eigenvalues(), b.notes(), b.origin())
                );
            }
            (Fitted::Predict(a), Fitted::Predict(b)) => {
                assert_eq!((a.predict(new.view()).unwrap(), a.origin()), (b.predict(new.view()).unwrap(), b.origin()));
            }
            _ => panic!("{} comes back as another kind", case.name),
        }
        // A truncated file is an error, never a crash.
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
        assert!(matches!(Fitted::load(&half, Device::Cpu), Err(Error::File { .. })), "{}", case.name);
    }
    // The last was a spectral ridge: loading it as another kind names both.
    says(FittedKernelPca::load(&path, Device::Cpu), &["'spectral-ridge'", "'kpca'"]);
}

#[test]
fn parts_of_a_file_with_wrong_shapes_are_refused() {
    let x = points(20, 8);
    let y = Target::Values(x.column(0).to_vec());
    let (_folder, path) = scratch("model.mercer");
    let fitted = Ridge::new(rbf()).fit(x.view(), &y, &FitContext::default()).unwrap();
    let mut bundle = mercer::model::Bundle::default();
    bundle.set("kind", "ridge");
    fitted.pack(&mut bundle).unwrap();
    bundle.put("coefficients", Array2::zeros((19, 1)));
    bundle.write(&path).unwrap();
    says(FittedRidge::load(&path, Device::Cpu), &["coefficients", "19"]);
}

/// Scores of encoded rows are those of rows that were scaled by hand, before and after a file.
#[test]
fn the_schema_is_saved_with_the_model() {
    let (_folder, path) = scratch("t.csv");
    let write = |x: &Array2<f64>| {
        let rows: String = x.rows().into_iter().map(|r| format!("{},{},{}\n", r[0], r[1], r[2])).collect();
        std::fs::write(&path, format!("a,b,c\n{rows}")).unwrap();
        Table::open(path.to_str().unwrap(), &ReadOptions::default()).unwrap()
    };
    let (mut x, mut new) = (points(40, 9), points(5, 10));
    let y = Target::Values(x.column(0).to_vec());
    x.column_mut(2).mapv_inplace(|v| 1000.0 * v + 7.0);
    new.column_mut(2).mapv_inplace(|v| 1000.0 * v + 7.0);
    let scaler = Scaler::fit(Scaling::Standard, x.view()).unwrap();
    let (scaled, new_scaled) = (scaler.apply(x.view()).unwrap(), scaler.apply(new.view()).unwrap());
    let fitted = Ridge::new(rbf()).fit(scaled.view(), &y, &FitContext::default()).unwrap();
    let want = fitted.scores(new_scaled.view()).unwrap();
    let schema = Schema::fit(&write(&x), Missing::Refuse, Scaling::Standard).unwrap();
    let (_folder, model) = scratch("model.mercer");
    fitted.save_with(Some(&schema), &model).unwrap();
    let loaded = Model::load(&model, Device::Cpu).unwrap();
    let (encoded, notes) = loaded.schema.unwrap().encode(write(&new)).unwrap();
    let Content::Fitted(Fitted::Predict(again)) = loaded.content else { panic!("it predicts") };
    assert_eq!(again.scores(encoded.x.to_f64().view()).unwrap(), want);
    assert!(notes.is_empty());
    fitted.save(&model).unwrap();
    assert!(Model::load(&model, Device::Cpu).unwrap().schema.is_none());
}

#[test]
fn a_feature_ridge_refuses_parts_that_do_not_fit() {
    let x = points(40, 9);
    let y = Target::Values(x.column(0).to_vec());
    let fitted = FeatureRidge::new(nystrom(12)).fit(x.view(), &y, &FitContext::default()).unwrap();
    let (_folder, path) = scratch("model.mercer");
    for (name, matrix) in [("coefficients", Array2::zeros((11, 1))), ("offset", Array2::zeros((1, 2)))] {
        let mut bundle = fitted.bundle().unwrap();
        bundle.put(name, matrix);
        bundle.write(&path).unwrap();
        says(FittedFeatureRidge::load(&path, Device::Cpu), &[name, "do not fit together"]);
    }
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
    let (x, new, context) = (matrix("x"), matrix("new"), FitContext::default());
    let kernel = kernel("rbf(1.5)");
    let pca = KernelPca { k: 4, ..KernelPca::new(kernel.clone()) }.fit(x.view(), &(), &context).unwrap();
    for (a, b) in pca.eigenvalues.iter().zip(vector(&golden["kpca_eigenvalues"])) {
        assert!((a - b).abs() < 1e-10);
    }
    let close = |ours: Array2<f64>, theirs: Array2<f64>, signs: &[f64]| {
        ours.indexed_iter().all(|((i, j), z)| (z - signs[j] * theirs[[i, j]]).abs() < 1e-9)
    };
    // Its sign convention differs; ours is read off the fitted points and must hold for the new ones too.
    let (ours, theirs) = (pca.embedding(), matrix("kpca_projections"));
    let signs: Vec<f64> = (0..4).map(|j| ours.column(j).dot(&theirs.column(j)).signum()).collect();
    assert!(close(ours, theirs, &signs));
    assert!(close(pca.transform(new.view()).unwrap(), matrix("kpca_new"), &signs));
    let ridge = Ridge { alpha: Alpha::Fixed(0.1), solver: RidgeSolver::Direct, ..Ridge::new(kernel.clone()) };
    let fitted = ridge.fit(x.view(), &Target::Values(vector(&golden["y"])), &context).unwrap();
    let theirs = vector(&golden["ridge_coefficients"]);
    assert!(fitted.coefficients.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-9));
    let (ours, theirs) = (fitted.predict(new.view()).unwrap().values(), vector(&golden["ridge_new"]));
    assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-10));
    // Linear ridge regression, far from the origin.
    let linear = |alpha: f64| FeatureRidge {
        alpha: Alpha::Fixed(alpha),
        ..FeatureRidge::new(FeatureMap::Linear { scale: 1.0 })
    };
    let y = Target::Values(vector(&golden["y"]));
    let fitted = linear(0.7).fit((&x + 100.0).view(), &y, &context).unwrap();
    let ours = fitted.predict((&new + 100.0).view()).unwrap().values();
    assert!(ours.iter().zip(vector(&golden["linear_new"])).all(|(a, b)| (a - b).abs() < 1e-10));
    // Classes of equal weight.
    let whole = |name: &str| -> Vec<usize> { serde_json::from_value(golden[name].clone()).unwrap() };
    let names: Vec<String> = (0..3).map(|c| c.to_string()).collect();
    let classes = |labels: Vec<usize>| Target::Classes { labels, names: names.clone() };
    let truth = classes(whole("labels"));
    let balanced =
        FeatureRidge { class_weights: ClassWeights::Balanced, ..linear(0.7) }.fit(x.view(), &truth, &context).unwrap();
    assert!(worst(&balanced.scores(new.view()).unwrap(), &matrix("balanced_new")) < 1e-10);
    // Logistic regression; its intercept is a feature that is penalised with the others.
    let logistic = |alpha: f64, class_weights, map, x: &Array2<f64>| {
        FeatureLogistic { map, alpha: Alpha::Fixed(alpha), class_weights }.fit(x.view(), &truth, &context).unwrap()
    };
    let probabilities =
        |fitted: &dyn Predict, x: Array2<f64>| fitted.probabilities(fitted.scores(x.view()).unwrap().view()).unwrap();
    let line = FeatureMap::Linear { scale: 1.0 };
    let fitted = logistic(0.5, ClassWeights::Equal, line.clone(), &(&x + 100.0));
    assert!(worst(&probabilities(&fitted, &new + 100.0), &matrix("logistic_new")) < 1e-6);
    let fitted = logistic(0.02, ClassWeights::Balanced, line, &x);
    assert!(worst(&probabilities(&fitted, new.clone()), &matrix("logistic_balanced_new")) < 1e-6);
    let all = FeatureMap::Nystrom { kernel, landmarks: 30, choice: Landmarks::Uniform };
    let fitted = logistic(0.1, ClassWeights::Equal, all, &x);
    assert!(worst(&probabilities(&fitted, new.clone()), &matrix("logistic_kernel_new")) < 1e-6);
    assert!(fitted.steps < 20 && fitted.gradient < 1e-4);
    // And the measures of the balanced ridge's predictions.
    let predicted = balanced.predict(x.view()).unwrap();
    assert_eq!(predicted, classes(whole("balanced_predicted")));
    let report = ClassReport::new(&truth, &predicted, Some(matrix("softmax").view())).unwrap();
    assert!((report.log_loss.unwrap() - golden["log_loss"].as_f64().unwrap()).abs() < 1e-12);
    for (c, class) in report.classes.iter().enumerate() {
        assert!((class.precision.unwrap() - vector(&golden["precision"])[c]).abs() < 1e-15);
        assert!((class.recall.unwrap() - vector(&golden["recall"])[c]).abs() < 1e-15);
        assert_eq!(class.support, whole("support")[c]);
    }
    let confusion: Vec<Vec<usize>> = serde_json::from_value(golden["confusion"].clone()).unwrap();
    assert_eq!(report.confusion, confusion);
}
