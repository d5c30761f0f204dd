//! Model files that were changed: whatever is done to a file, it is refused or gives the same bits, and nothing panics.

mod common;
#[path = "model_files/registry.rs"]
mod registry;

use common::*;
use mercer::apply::{
    Affinity, DiffusionMaps, EmbeddingCode, FeatureLogistic, FeatureMap, FeatureRidge, Fit, Fitted, FittedEigenmaps,
    FittedRidge, IterativeProcess, KernelPca, LaplacianEigenmaps, Logistic, MetricForm, NadarayaWatson, NtkEnsemble,
    Predict, RecursiveFeatureMachine, Ridge, Saved, SpectralRidge, Together, Transform, ViewEigenmap, ViewRows,
};
use mercer::classifier::{Classifier, Labelled};
use mercer::data::{Dataset, Missing, ReadOptions, Scaling, Schema, Table, Target};
use mercer::kernel::{self, Expression, Formula, Kind, Pair, Parameter, Statistic};
use mercer::laplace::{FunctionLaplace, FunctionMethod, Laplace, Method as LaplaceMethod, NetworkFunctions};
use mercer::model::{Bundle, Content, Model as AnyModel, checksum};
use mercer::operator::{DenseOperator, FunctionSamples, LowRankOperator, OnPoints};
use mercer::spectrum::neural::{Neural, NeuralEf};
use mercer::spectrum::{Fourier, Landmarks, Nystrom, Positive, Sampling};
use mercer::trajectory::{Method as TrajectoryMethod, Settings, Trajectory};
use mercer::{Registry, Result};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Everything that a loaded model says, as text: numbers with all their digits.
type Answer = Box<dyn Fn(&Path) -> Result<String>>;

struct Model {
    name: &'static str,
    bytes: Vec<u8>,
    answer: Answer,
}

impl Model {
    fn of(name: &'static str, save: impl FnOnce(&Path) -> Result<()>, answer: Answer) -> Model {
        let (_folder, path) = scratch("model");
        save(&path).unwrap();
        Model { name, bytes: std::fs::read(&path).unwrap(), answer }
    }
}

fn points() -> Array2<f64> {
    normal(30, 2, 1)
}

fn new_points() -> Array2<f64> {
    normal(4, 2, 2)
}

/// Three functions with two outputs at the points.
fn functions(x: &Array2<f64>) -> Array3<f64> {
    Array3::from_shape_fn((3, x.nrows(), 2), |(s, n, c)| ((s + 1) as f64 * x[[n, 0]] + c as f64).sin())
}

fn spectrum(name: &'static str, spectrum: Spectrum) -> Model {
    spectrum_with(name, None, spectrum)
}

fn spectrum_with(name: &'static str, schema: Option<Schema>, spectrum: Spectrum) -> Model {
    let answer = |path: &Path| -> Result<String> {
        let AnyModel { schema, content } = AnyModel::load(path, Device::Cpu)?;
        let Content::Spectrum(loaded) = content else { panic!("not a spectrum") };
        let (new, f) = (new_points(), functions(&new_points()));
        let mut said = format!("{:?} {:?} {:?}", loaded.eigenvalues, loaded.certificate, loaded.origin);
        said += &format!(" {:?} {:?} {}", loaded.training(), schema, loaded.multiply_adds());
        if let Some(schema) = schema {
            said += &format!(" {:?}", schema.encode(table())?);
        }
        if loaded.takes_samples() {
            said += &format!(" {:?}", loaded.transform(&FunctionSamples::from(f.view()))?);
        }
        // A kernel without a formula takes the new points' kernel values with the 30 fitted ones.
        let rows = normal(4, 30, 3);
        let three = normal(4, 3, 4);
        let new = match loaded.origin.d {
            3 => &three,
            _ if loaded.origin.kernel.starts_with("a stored matrix") => &rows,
            _ => &new,
        };
        if loaded.takes_coordinates() {
            said += &format!(" {:?}", loaded.transform(new.view())?);
        }
        Ok(said)
    };
    Model::of(name, |path| spectrum.save_with(schema.as_ref(), path), Box::new(answer))
}

/// Two columns with every kind of feature but categories: a number with missing values, and a truth value.
fn table() -> Table {
    let (_folder, path) = scratch("table.csv");
    std::fs::write(&path, "size,sold,y\n1,yes,a\nNA,no,b\n4,no,a\n").unwrap();
    let options = ReadOptions { target: Some("y".into()), ..Default::default() };
    Table::open(path.to_str().unwrap(), &options).unwrap()
}

/// Three columns that make five features: a number, a date and a category.
fn estimator_schema() -> Schema {
    let (_folder, path) = scratch("table.csv");
    std::fs::write(&path, "colour,size,when\nred,1,2024-01-01\nblue,2,2024-01-03\ngreen,5,2024-02-01\n").unwrap();
    let table = Table::open(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
    Schema::fit(&table, Missing::Refuse, Scaling::MinMax).unwrap()
}

/// An estimator of five features, with the schema that makes them.
fn estimator_with_schema() -> Model {
    let x = normal(30, 5, 4);
    let y = Target::Values(x.column(0).to_vec());
    let fitted = Ridge::new(kernel("rbf(2)")).fit(x.view(), &y, &FitContext::default()).unwrap();
    let answer = |path: &Path| -> Result<String> {
        let AnyModel { schema, content } = AnyModel::load(path, Device::Cpu)?;
        let Content::Fitted(Fitted::Predict(fitted)) = content else { panic!("it predicts") };
        Ok(format!("{schema:?} {:?} {:?}", fitted.origin(), fitted.scores(normal(2, 5, 5).view())?))
    };
    Model::of("ridge of a table", |path| fitted.save_with(Some(&estimator_schema()), path), Box::new(answer))
}

fn estimator(name: &'static str, fitted: impl Saved) -> Model {
    let answer = |path: &Path| -> Result<String> {
        let new = new_points();
        Ok(match Fitted::load(path, Device::Cpu)? {
            Fitted::Predict(fitted) => format!(
                "{:?} {:?} {:?} {:?}",
                fitted.origin(),
                fitted.scores(new.view())?,
                fitted.predict(new.view())?,
                fitted.deviations(new.view())?
            ),
            Fitted::Transform(fitted) => format!(
                "{:?} {:?} {:?} {:?} {:?}",
                fitted.origin(),
                fitted.eigenvalues(),
                fitted.notes(),
                fitted.embedding(),
                fitted.transform(new.view())?
            ),
        })
    };
    Model::of(name, |path| fitted.save(path), Box::new(answer))
}

fn classifier() -> Model {
    let y =
        Target::Classes { labels: (0..30).map(|i| i % 3).collect(), names: ["a", "b", "c"].map(String::from).into() };
    let data = Labelled::of(&Dataset::new("points", points(), Some(y)).unwrap()).unwrap();
    let classifier = Classifier::new("dense(6) bn relu dense(3)", &data, Device::Cpu, 0).unwrap();
    let answer = |path: &Path| -> Result<String> {
        let loaded = Classifier::load(path, Device::Cpu, None)?;
        let logits = loaded.logits(new_points().view())?;
        Ok(format!("{logits:?} {:?} {:?} {}", loaded.classes, loaded.standardizer, loaded.network.expression()))
    };
    Model::of("classifier", |path| classifier.save(path), Box::new(answer))
}

fn laplace(name: &'static str, method: LaplaceMethod, number: bool) -> Model {
    let x = points();
    let (labels, classes) = ((0..30).map(|i| i % 3).collect(), ["a", "b", "c"].map(String::from).into());
    let (labels, classes, numbers) =
        if number { (vec![], vec![], x.column(0).to_vec()) } else { (labels, classes, vec![]) };
    let data = Labelled { x, labels, classes, numbers, image: None };
    let net = if number { "dense(6) tanh dense(1)" } else { "dense(6) bn relu dense(3)" };
    let network = Classifier::new(net, &data, Device::Cpu, 0).unwrap();
    let fitted = Laplace::new(method).fit(&network.into(), &data, None, &FitContext::default()).unwrap();
    Model::of(name, |path| fitted.save(path), Box::new(predicted))
}

/// A posterior of three networks.
fn trajectory(name: &'static str, method: TrajectoryMethod) -> Model {
    let (labels, classes) = ((0..30).map(|i| i % 3).collect(), ["a", "b", "c"].map(String::from).into());
    let data = Labelled { x: points(), labels, classes, numbers: vec![], image: None };
    let network = |seed: u64| Classifier::new("dense(6) bn relu dense(3)", &data, Device::Cpu, seed).unwrap().into();
    let networks = Trajectory::of((0..3).map(network).collect()).unwrap();
    let fitted = Settings::new(method).fit(&networks, &data, &data, &FitContext::default()).unwrap();
    Model::of(name, |path| fitted.save(path), Box::new(predicted))
}

/// What a file predicts.
fn predicted(path: &Path) -> Result<String> {
    let AnyModel { content: Content::Fitted(Fitted::Predict(fitted)), .. } = AnyModel::load(path, Device::Cpu)? else {
        panic!("it predicts")
    };
    let (scores, deviations) = (fitted.scores(new_points().view())?, fitted.deviations(new_points().view())?);
    let (origin, decoded) = (fitted.origin(), fitted.decode(scores.view()));
    Ok(format!("{origin:?} {scores:?} {decoded:?} {deviations:?} {:?}", fitted.notes()))
}

/// A network of another program, by three functions.
fn function_laplace() -> Model {
    let x = points();
    let z = Array2::from_shape_fn((30, 2), |(n, c)| x[[n, c]]);
    let f = functions(&x);
    let y = Target::Classes { labels: (0..30).map(|i| i % 2).collect(), names: ["a", "b"].map(String::from).into() };
    let network = NetworkFunctions::samples(z.view(), f.view()).unwrap();
    let laplace = FunctionLaplace::new(FunctionMethod::Eigenfunctions { count: 2 });
    let fitted = laplace.fit(&network, &y, Some((&network, &y)), &FitContext::default()).unwrap();
    let answer = |path: &Path| -> Result<String> {
        let AnyModel { content: Content::Fitted(Fitted::Predict(fitted)), .. } = AnyModel::load(path, Device::Cpu)?
        else {
            panic!("it predicts")
        };
        let scores = fitted.scores(normal(4, 8, 5).view())?;
        Ok(format!("{:?} {scores:?} {:?} {:?}", fitted.origin(), fitted.decode(scores.view()), fitted.notes()))
    };
    Model::of("functions of a network", |path| fitted.save(path), Box::new(answer))
}

/// A model of every kind.
fn models() -> Vec<Model> {
    let (x, context) = (points(), FitContext::default());
    let rbf = kernel("rbf(1.2)");
    let rbf = || rbf.clone();
    let by = |method: &dyn Method, text: &str| fit_kernel(method, text, x.view(), 3);
    let sampling = Sampling::Orthogonal;
    let three = fit_kernel(&Krylov::default(), "matern52(1) + 0.5*linear", normal(30, 3, 1).view(), 3);
    let schema = Schema::fit(&table(), Missing::Impute, Scaling::Standard).unwrap();
    let f = functions(&x);
    let samples = |factorised| LowRankOperator::of_samples(&f.view().into(), factorised).unwrap();
    let mut neural = Neural::new(NeuralEf::Joint);
    neural.settings.steps = 3;
    neural.architecture = Some("dense(4) sincos dense(1) l2norm".into());
    let network = by(&neural, "rbf(1)");
    neural.architecture = Some("dense(4) sincos dense(2) l2norm".into());
    let plain = samples(false);
    let on_samples = fit(&neural, &OnPoints::new(&plain, x.view()).unwrap(), 3);
    let stored = DenseOperator::new(matrix(&rbf(), x.view()));
    let values = Target::Values(x.column(0).mapv(f64::sin).to_vec());
    let classes = Target::Classes {
        labels: x.column(0).iter().map(|v| usize::from(*v > 0.0)).collect(),
        names: vec!["no".into(), "yes".into()],
    };
    let ridge_on = SpectralRidge::new(by(&Exact, "rbf(1)").into());
    let features = |map: FeatureMap| FeatureRidge::new(map).fit(x.view(), &classes, &context).unwrap();
    let nystrom_map = FeatureMap::Nystrom { kernel: rbf(), landmarks: 8, choice: Landmarks::Uniform };
    let logistic = FeatureLogistic::new(nystrom_map.clone());
    let random_map = FeatureMap::Random { kernel: rbf(), features: 8, sampling };
    let process = IterativeProcess::new(Expression::parse("rbf(1.2)").unwrap());
    let ensemble = NtkEnsemble { kernel: kernel("ntk(depth=1, act=erf)"), time: 50.0 };
    let laplacian = LaplacianEigenmaps { affinity: Affinity::Neighbours(8), ..Default::default() };
    let machine = RecursiveFeatureMachine {
        metric: Some(MetricForm::Full),
        rounds: Some(1),
        ..RecursiveFeatureMachine::new(kernel::Expression::parse("rbf(1)").unwrap())
    };
    vec![
        spectrum("exact", by(&Exact, "rbf(1)")),
        spectrum_with("krylov of a table", Some(schema), three),
        estimator_with_schema(),
        spectrum("nystrom", by(&Nystrom { landmarks: 10, choice: Landmarks::Uniform }, "rbf(1)")),
        spectrum("rff", by(&Fourier { features: 20, sampling, ritz: false }, "rbf(1)")),
        spectrum("positive", by(&Positive { features: 20, sampling }, "expdot(2)")),
        spectrum("networks", network),
        spectrum("samples", fit(&Exact, &plain, 3)),
        spectrum("factorised samples", fit(&Exact, &samples(true), 3)),
        spectrum("networks on samples", on_samples),
        spectrum("a stored matrix", fit(&Exact, &stored, 3)),
        estimator("code", {
            let eigenmap = ViewEigenmap { epochs: 1, ..ViewEigenmap::new("dense(6) tanh", 2) };
            eigenmap.fit(&ViewRows::new(x.clone()), None, &context).unwrap()
        }),
        estimator(
            "ordered embeddings",
            EmbeddingCode { k: 2, together: Together::Linear }.fit(x.view(), &context).unwrap(),
        ),
        estimator("kpca", KernelPca::new(rbf()).fit(x.view(), &(), &context).unwrap()),
        estimator("laplacian", laplacian.fit(x.view(), &(), &context).unwrap()),
        estimator("diffusion", DiffusionMaps::new(rbf()).fit(x.view(), &(), &context).unwrap()),
        estimator("nadaraya-watson", NadarayaWatson::new(rbf()).fit(x.view(), &values, &context).unwrap()),
        estimator("ntk ensemble", ensemble.fit(x.view(), &values, &context).unwrap()),
        estimator("ridge", Ridge::new(rbf()).fit(x.view(), &values, &context).unwrap()),
        estimator("ridge of classes", Ridge::new(rbf()).fit(x.view(), &classes, &context).unwrap()),
        estimator("nystrom ridge", features(nystrom_map)),
        estimator("random features", features(random_map)),
        estimator("linear ridge", features(FeatureMap::Linear { scale: 1.0 })),
        estimator("logistic on features", logistic.fit(x.view(), &classes, &context).unwrap()),
        estimator("logistic", Logistic::default().fit(x.view(), &classes, &context).unwrap()),
        estimator("recursive feature machine", machine.fit(x.view(), &values, &context).unwrap()),
        estimator("spectral ridge", ridge_on.fit(x.view(), &values, &context).unwrap()),
        estimator("gaussian process by conjugate gradients", process.fit(x.view(), &values, &context).unwrap()),
        laplace("last layer", LaplaceMethod::LastLayer, false),
        laplace("kfac", LaplaceMethod::Kfac, false),
        laplace("diagonal of a number", LaplaceMethod::Diagonal, true),
        laplace("ella", LaplaceMethod::Ella { samples: 10, rank: 3 }, false),
        laplace("eigenfunctions", LaplaceMethod::Eigenfunctions { functions: 3, rows: 20 }, false),
        function_laplace(),
        trajectory("snapshots", TrajectoryMethod::Networks),
        trajectory("eigenfunctions of a trajectory", TrajectoryMethod::Eigenfunctions { functions: 2 }),
        trajectory("ritz of a trajectory", TrajectoryMethod::Ritz { functions: 2 }),
        // The last one: a file of its own format.
        classifier(),
    ]
}

/// The answer of a file of these bytes; a panic fails the test.
fn answered(model: &Model, path: &Path, bytes: &[u8], what: &str) -> Result<String> {
    std::fs::write(path, bytes).unwrap();
    let answer = catch_unwind(AssertUnwindSafe(|| (model.answer)(path)));
    answer.unwrap_or_else(|_| panic!("{}: {what} makes it panic", model.name))
}

/// The length of a file's header, which follows the first eight bytes.
fn header_length(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize
}

/// One random change of some bytes: anywhere, or within the header only.
fn changed(bytes: &[u8], rng: &mut Rng) -> (Vec<u8>, String) {
    let mut bytes = bytes.to_vec();
    let within = if rng.below(3) == 0 { bytes.len() } else { 8 + header_length(&bytes) };
    let at = rng.below(within);
    let what = match rng.below(7) {
        0 => {
            bytes[at] ^= 1 << rng.below(8);
            "a flipped bit"
        }
        1 => {
            bytes[at] = rng.below(256) as u8;
            "another byte"
        }
        2 => {
            bytes.remove(at);
            "a byte less"
        }
        3 => {
            bytes.insert(at, rng.below(256) as u8);
            "a byte more"
        }
        4 => {
            bytes.truncate(at);
            "a truncation"
        }
        5 => {
            let other = rng.below(within);
            bytes.swap(at, other);
            "two bytes exchanged"
        }
        // Another digit where there is one: what an edited number looks like.
        _ => {
            let digits: Vec<usize> = (8..8 + header_length(&bytes)).filter(|&i| bytes[i].is_ascii_digit()).collect();
            bytes[digits[rng.below(digits.len())]] = b'0' + rng.below(10) as u8;
            "another digit"
        }
    };
    (bytes, format!("{what} at {at}"))
}

#[test]
fn a_changed_file_is_refused_or_gives_the_same_bits() {
    const MUTANTS: usize = 250;
    let (_folder, path) = scratch("mutant");
    let mut rng = Rng::new(18);
    for model in models() {
        let right = answered(&model, &path, &model.bytes, "nothing").unwrap();
        let mut accepted = 0;
        for _ in 0..MUTANTS {
            let (bytes, what) = changed(&model.bytes, &mut rng);
            if let Ok(said) = answered(&model, &path, &bytes, &what) {
                accepted += 1;
                assert!(said == right, "{}: {what} gives another answer", model.name);
            }
        }
        // Only what stands for the same numbers passes, such as a space in the header.
        assert!(accepted < MUTANTS / 4, "{}: {accepted} of {MUTANTS} pass", model.name);
    }
}

/// The values of a tree that are not lists or records, or are short lists, by their places.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    all.push(at.clone());
    match value {
        Value::Array(list) => {
            list.iter().enumerate().take(3).for_each(|(i, inner)| places(inner, format!("{at}/{i}"), all));
        }
        Value::Object(map) => map.iter().for_each(|(name, inner)| places(inner, format!("{at}/{name}"), all)),
        _ => {}
    }
}

/// Another value in the place of one of a header.
fn another(value: &Value, rng: &mut Rng) -> Value {
    match (value, rng.below(4)) {
        (_, 0) => [Value::Null, json!(0), json!("x"), json!([]), json!(-1), json!(1e300)][rng.below(6)].clone(),
        (Value::Number(number), 1) => json!(number.as_f64().unwrap() + 1.0),
        (Value::Number(number), 2) if number.is_u64() => json!(number.as_u64().unwrap() + 1 + rng.below(3) as u64),
        (Value::Number(number), _) if number.is_u64() => json!([0, 1, u64::MAX / 3, 1 << 40][rng.below(4)]),
        (Value::Number(_), _) => json!([0.0, -1.0, 1e-300, 1e300][rng.below(4)]),
        (Value::Array(list), 1) => list[..list.len().saturating_sub(1)].to_vec().into(),
        (Value::Array(list), 2) => [&list[..], &list[..list.len().min(1)]].concat().into(),
        (Value::String(text), 1) => text.chars().rev().collect::<String>().into(),
        (Value::String(text), 2) => {
            let digit = char::from(b'0' + rng.below(10) as u8);
            text.chars()
                .map(|c| if c.is_ascii_digit() && rng.below(3) == 0 { digit } else { c })
                .collect::<String>()
                .into()
        }
        (Value::String(text), _) => text[..text.len() / 2].to_owned().into(),
        (Value::Bool(b), _) => json!(!b),
        (Value::Object(map), _) => {
            let mut map = map.clone();
            if let Some(name) = map.keys().nth(rng.below(map.len().max(1))).cloned() {
                map.remove(&name);
            }
            map.into()
        }
        _ => Value::Null,
    }
}

/// The file with another header, and the checksum of the new content: what somebody makes who knows the format.
fn resealed(bytes: &[u8], edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let length = header_length(bytes);
    let mut file: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let metadata = &mut file["__metadata__"];
    let key = if metadata["mercer"].is_string() { "mercer" } else { "header" };
    let mut header: Value = serde_json::from_str(metadata[key].as_str().unwrap()).unwrap();
    edit(&mut header);
    let header = header.to_string();
    let sum = checksum(&header, SafeTensors::deserialize(bytes).unwrap().iter());
    (metadata[key], metadata["checksum"]) = (header.into(), sum.into());
    let mut text = file.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes(), &text[..], &bytes[8 + length..]].concat()
}

#[test]
fn headers_that_contradict_the_rest_are_refused_without_a_panic() {
    const MUTANTS: usize = 150;
    let (_folder, path) = scratch("mutant");
    let mut rng = Rng::new(19);
    for model in models() {
        let right = answered(&model, &path, &resealed(&model.bytes, |_| ()), "a new seal").unwrap();
        assert_eq!(right, answered(&model, &path, &model.bytes, "nothing").unwrap(), "{}", model.name);
        for _ in 0..MUTANTS {
            let mut what = String::new();
            let bytes = resealed(&model.bytes, |header| {
                let mut all = vec![];
                places(header, String::new(), &mut all);
                let place = &all[1 + rng.below(all.len() - 1)];
                let value = header.pointer_mut(place).unwrap();
                let other = another(value, &mut rng);
                what = format!("{place} = {other} instead of {value}");
                *value = other;
            });
            // A number that stands for itself alone, such as a time, may be any other.
            let _ = answered(&model, &path, &bytes, &what);
        }
    }
}

#[test]
fn parts_that_do_not_fit_together_are_named() {
    let (_folder, path) = scratch("edited");
    let models = models();
    let refused = |name: &str, place: &str, value: Value, words: &[&str]| {
        let model = models.iter().find(|model| model.name == name).unwrap();
        let bytes = resealed(&model.bytes, |header| *header.pointer_mut(place).unwrap() = value);
        says(answered(model, &path, &bytes, place), words);
    };
    refused("exact", "/certificate/residual", json!([0.1]), &["certificate.residual", "1 entries", "3 pairs"]);
    refused("exact", "/eigenvalues", json!([0.5, 0.2]), &["coefficients"]);
    refused("exact", "/origin/d", json!(3), &["3 columns", "2"]);
    refused("exact", "/origin/outputs", json!(2), &["2 outputs"]);
    let table = "krylov of a table";
    refused(table, "/schema/scaler/shift", json!([0.0]), &["scaling of 1 and 3", "3 were fitted"]);
    refused(table, "/schema/fill", json!([0.0]), &["schema of 2 columns", "3 were fitted"]);
    refused(table, "/schema/fill", json!([0.0, null]), &["missing values"]);
    refused(table, "/schema/indicator", json!([false, false]), &["2 features", "3 were fitted"]);
    refused(table, "/schema/missing", json!("refuse"), &["missing values"]);
    refused(table, "/schema/missing", json!("guess"), &["schema", "guess"]);
    refused(table, "/schema/columns", json!([]), &["schema of 0 columns"]);
    refused(table, "/schema/scaling", json!("none"), &["scaling"]);
    refused(table, "/schema/target/classes", json!([]), &["without classes"]);
    refused("ridge of a table", "/schema/columns/0/kind", json!({"category": []}), &["2 features", "5 were fitted"]);
    refused("rff", "/features.centre", json!([0.0]), &["centre"]);
    refused("networks", "/features.standard/scale", json!(0.0), &["scale above 0", "not 0"]);
    refused("networks", "/features.standard/centre", json!([]), &["0 inputs"]);
    refused("networks", "/features.networks", json!(4), &["numbers"]);
    refused("samples", "/features.functions", json!(4), &["3×3"]);
    refused("networks on samples", "/features.outputs", json!(3), &["by_samples", "outputs"]);
    refused("kpca", "/explained", json!([0.5]), &["explained", "1 entries"]);
    refused("laplacian", "/walk.eigenvalues", json!([]), &["walk.eigenvalues", "0 entries"]);
    refused("laplacian", "/time", json!(-1e308), &["the coordinate of row", "inf"]);
    refused("laplacian", "/origin/kernel", json!("neighbours(30)"), &["between 1 and 29"]);
    refused("ridge of classes", "/target", json!({"Classes": []}), &["no classes"]);
    refused("ridge", "/origin/n", json!(29), &["points", "30×2"]);
    let brackets = json!(format!("{}rbf(1){}", "(".repeat(8000), ")".repeat(8000)));
    refused("exact", "/features.kernel", brackets, &["nested deeper than 32"]);
    refused("kfac", "/blocks/0/start", json!(1), &["1 of 2 blocks"]);
    refused("ella", "/network/net", json!("dense(7) bn relu dense(3)"), &["trained numbers"]);
    refused("classifier", "/standard/spread", json!([0.0]), &["contradicts itself"]);
}

#[test]
fn files_of_other_versions_are_refused_with_what_to_do() {
    let (_folder, path) = scratch("version");
    let models = models();
    let edited = |model: &Model, from: &str, to: &str| {
        let end = 8 + header_length(&model.bytes);
        let text = std::str::from_utf8(&model.bytes[8..end]).unwrap().replace(from, to);
        [&model.bytes[..8], text.as_bytes(), &model.bytes[end..]].concat()
    };
    let (first, last) = (&models[0], models.last().unwrap());
    for (model, from, to, words) in [
        (first, r#""version":"3""#, r#""version":"2""#, ["version 2", "fit and save the model again"]),
        (first, r#""version":"3""#, r#""version":"4""#, ["version 4", "update mercer"]),
        (last, r#"\"version\":2"#, r#"\"version\":1"#, ["version 1", "save the network again"]),
        (last, r#"\"version\":2"#, r#"\"version\":9"#, ["version 9", "update mercer"]),
        (first, r#""header":"#, r#""haeder":"#, ["has no header", ""]),
    ] {
        let bytes = edited(model, from, to);
        assert_ne!(bytes, model.bytes, "{from}");
        says(answered(model, &path, &bytes, to), &words);
    }
}

/// The same model gives the same bytes, and a bundle with a number that is not finite gives no file at all.
#[test]
fn files_hold_finite_numbers_only() {
    let (folder, path) = scratch("bundle");
    let weights = ndarray::array![[1.0, 2.0], [3.0, f64::NAN]];
    let mut bundle = Bundle::default();
    bundle.put("weights", weights.view());
    says(bundle.write(&path), &["weights", "row 2", "NaN", "not written"]);
    let mut bundle = Bundle::default();
    bundle.set("certificate", json!({"a": 1.0}));
    bundle.set("interval", [Some([0.0, f64::INFINITY])]);
    says(bundle.write(&path), &["interval", "inf", "not written"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut bundle = Bundle::default();
    bundle.set("none", None::<f64>);
    bundle.put("weights", weights.slice(s![..1, ..]));
    bundle.write(&path).unwrap();
    let first = std::fs::read(&path).unwrap();
    bundle.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    let back = Bundle::read(&path).unwrap();
    back.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
}
