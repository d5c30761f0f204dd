//! A model of every kind, as the bytes of its file and what it says.

use crate::common::*;
use mercer::Result;
use mercer::apply::{
    Affinity, DiffusionMaps, EmbeddingCode, FeatureLogistic, FeatureMap, FeatureRidge, Fit, Fitted, IterativeProcess,
    KernelPca, LaplacianEigenmaps, Logistic, MetricForm, NadarayaWatson, NtkEnsemble, RecursiveFeatureMachine, Ridge,
    Saved, SpectralRidge, Together, ViewEigenmap, ViewRows,
};
use mercer::classifier::Classifier;
use mercer::data::{Dataset, Missing, ReadOptions, Scaling, Schema, Table, Target};
use mercer::kernel::{self, Expression};
use mercer::laplace::{
    Diagonal, Eigenfunctions, Ella, Kfac, Laplace, LastLayer, Method as LaplaceMethod, NetworkFunctions,
};
use mercer::model::{Content, Model as AnyModel};
use mercer::operator::{DenseOperator, FunctionSamples, LowRankOperator, OnPoints};
use mercer::spectrum::neural::{Neural, NeuralEf};
use mercer::spectrum::{Fourier, Landmarks, Nystrom, Positive, Sampling};
use mercer::trajectory::{Method as TrajectoryMethod, Settings, Trajectory};
use std::path::Path;

/// Everything that a loaded model says, as text: numbers with all their digits.
pub type Answer = Box<dyn Fn(&Path) -> Result<String>>;

pub struct Model {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    pub answer: Answer,
}

impl Model {
    fn of(name: &'static str, save: impl FnOnce(&Path) -> Result<()>, answer: Answer) -> Model {
        let (_folder, path) = scratch("model");
        save(&path).unwrap();
        Model { name, bytes: std::fs::read(&path).unwrap(), answer }
    }
}

pub fn points() -> Array2<f64> {
    normal(30, 2, 1)
}

pub fn new_points() -> Array2<f64> {
    normal(4, 2, 2)
}

/// Three functions with two outputs at the points.
pub fn functions(x: &Array2<f64>) -> Array3<f64> {
    Array3::from_shape_fn((3, x.nrows(), 2), |(s, n, c)| ((s + 1) as f64 * x[[n, 0]] + c as f64).sin())
}

pub fn spectrum(name: &'static str, spectrum: Spectrum) -> Model {
    spectrum_with(name, None, spectrum)
}

pub fn spectrum_with(name: &'static str, schema: Option<Schema>, spectrum: Spectrum) -> Model {
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
pub fn table() -> Table {
    let (_folder, path) = scratch("table.csv");
    std::fs::write(&path, "size,sold,y\n1,yes,a\nNA,no,b\n4,no,a\n").unwrap();
    let options = ReadOptions { target: Some("y".into()), ..Default::default() };
    Table::open(path.to_str().unwrap(), &options).unwrap()
}

/// Three columns that make five features: a number, a date and a category.
pub fn estimator_schema() -> Schema {
    let (_folder, path) = scratch("table.csv");
    std::fs::write(&path, "colour,size,when\nred,1,2024-01-01\nblue,2,2024-01-03\ngreen,5,2024-02-01\n").unwrap();
    let table = Table::open(path.to_str().unwrap(), &ReadOptions::default()).unwrap();
    Schema::fit(&table, Missing::Refuse, Scaling::MinMax).unwrap()
}

/// An estimator of five features, with the schema that makes them.
pub fn estimator_with_schema() -> Model {
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

pub fn estimator(name: &'static str, fitted: impl Saved) -> Model {
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

/// Classes of the points in turn.
fn three_classes() -> Target {
    Target::Classes { labels: (0..30).map(|i| i % 3).collect(), names: ["a", "b", "c"].map(String::from).into() }
}

pub fn classifier() -> Model {
    let data = Dataset::new("points", points(), Some(three_classes())).unwrap();
    let classifier = Classifier::new("dense(6) bn relu dense(3)", &data, Device::Cpu, 0).unwrap();
    let answer = |path: &Path| -> Result<String> {
        let loaded = Classifier::load(path, Device::Cpu, None)?;
        let logits = loaded.logits(new_points().view())?;
        Ok(format!("{logits:?} {:?} {:?} {}", loaded.classes, loaded.standardizer, loaded.network.expression()))
    };
    Model::of("classifier", |path| classifier.save(path), Box::new(answer))
}

pub fn laplace(name: &'static str, method: impl Into<LaplaceMethod>, number: bool) -> Model {
    let x = points();
    let y = if number { Target::Values(x.column(0).to_vec()) } else { three_classes() };
    let data = Dataset::new("points", x, Some(y)).unwrap();
    let net = if number { "dense(6) tanh dense(1)" } else { "dense(6) bn relu dense(3)" };
    let network = Classifier::new(net, &data, Device::Cpu, 0).unwrap();
    let fitted = Laplace::new(method).fit(&network.into(), &data, Some(&data), &FitContext::default()).unwrap();
    Model::of(name, |path| fitted.save(path), Box::new(predicted))
}

/// A posterior of three networks.
pub fn trajectory(name: &'static str, method: TrajectoryMethod) -> Model {
    let data = Dataset::new("points", points(), Some(three_classes())).unwrap();
    let network = |seed: u64| Classifier::new("dense(6) bn relu dense(3)", &data, Device::Cpu, seed).unwrap().into();
    let networks = Trajectory::of((0..3).map(network).collect()).unwrap();
    let fitted = Settings::new(method).fit(&networks, &data, &data, &FitContext::default()).unwrap();
    Model::of(name, |path| fitted.save(path), Box::new(predicted))
}

/// What a file predicts.
pub fn predicted(path: &Path) -> Result<String> {
    let AnyModel { content: Content::Fitted(Fitted::Predict(fitted)), .. } = AnyModel::load(path, Device::Cpu)? else {
        panic!("it predicts")
    };
    let (scores, deviations) = (fitted.scores(new_points().view())?, fitted.deviations(new_points().view())?);
    let (origin, decoded) = (fitted.origin(), fitted.decode(scores.view()));
    Ok(format!("{origin:?} {scores:?} {decoded:?} {deviations:?} {:?}", fitted.notes()))
}

/// A network of another program, by three functions.
pub fn function_laplace() -> Model {
    let x = points();
    let z = Array2::from_shape_fn((30, 2), |(n, c)| x[[n, c]]);
    let f = functions(&x);
    let y = Target::Classes { labels: (0..30).map(|i| i % 2).collect(), names: ["a", "b"].map(String::from).into() };
    let network = NetworkFunctions::samples(z.view(), f.view()).unwrap();
    let laplace = Laplace::new(Eigenfunctions { functions: 2, rows: 1 });
    let fitted = laplace.fit_functions(&network, &y, Some((&network, &y)), &FitContext::default()).unwrap();
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
pub fn models() -> Vec<Model> {
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
        spectrum("positive", by(&Positive { features: 20, sampling, exact_norm: true }, "expdot(2)")),
        spectrum("networks", network),
        spectrum("samples", fit(&Exact, &plain, 3)),
        spectrum("factorised samples", fit(&Exact, &samples(true), 3)),
        spectrum("networks on samples", on_samples),
        spectrum("a stored matrix", fit(&Exact, &stored, 3)),
        estimator("code", {
            let eigenmap = ViewEigenmap { epochs: 1, ..ViewEigenmap::new("dense(6) tanh", 2) };
            eigenmap.fit(&ViewRows::new(x.clone()), None, &context).unwrap()
        }),
        estimator("ordered embeddings", EmbeddingCode::new(2, Together::Linear).fit(x.view(), &context).unwrap()),
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
        laplace("last layer", LastLayer, false),
        laplace("kfac", Kfac, false),
        laplace("diagonal of a number", Diagonal, true),
        laplace("ella", Ella { samples: 10, rank: 3 }, false),
        laplace("eigenfunctions", Eigenfunctions { functions: 3, rows: 20 }, false),
        function_laplace(),
        trajectory("snapshots", TrajectoryMethod::Networks),
        trajectory("eigenfunctions of a trajectory", TrajectoryMethod::Eigenfunctions { functions: 2 }),
        trajectory("ritz of a trajectory", TrajectoryMethod::Ritz { functions: 2 }),
        // The last one: a file of its own format.
        classifier(),
    ]
}
