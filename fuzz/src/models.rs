//! Models, checkpoints and classifiers: seeds in their present format, and what must hold of those that are accepted.

use crate::targets::refused;
use mercer::apply::{
    Affinity, FeatureLogistic, FeatureMap, FeatureRidge, Fit, Fitted, KernelPca, LaplacianEigenmaps, Logistic,
    NadarayaWatson, RecursiveFeatureMachine, Ridge, Saved, SpectralRidge,
};
use mercer::classifier::Classifier;
use mercer::compute::Device;
use mercer::data::{Dataset, Missing, ReadOptions, Scaling, Schema, Table, Target as Labels};
use mercer::kernel::{Expression, Kernel};
use mercer::model::Model;
use mercer::operator::FunctionSamples;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Neural, NeuralEf, OnData, Settings, Spin, train};
use mercer::spectrum::{Exact, Fourier, Landmarks, Problem, Sampling, Spectrum};
use mercer::{FitContext, Result};
use ndarray::{Array2, ArrayView2};
use std::path::{Path, PathBuf};

/// Points `[n, 2]`.
fn points(n: usize) -> Array2<f64> {
    let mut rng = Rng::new(3);
    Array2::from_shape_simple_fn((n, 2), || 2.0 * rng.uniform() - 1.0)
}

/// Writes one file of each kind of model, of checkpoint and of classifier, and returns their folders.
pub fn write_seeds(scratch: &Path) -> Result<[PathBuf; 3]> {
    let folders = ["models", "checkpoints", "classifiers"].map(|name| scratch.join(name));
    for folder in &folders {
        std::fs::create_dir_all(folder).expect("the folder is ours");
    }
    write_models(&folders[0])?;
    resume(&folders[1].join("neuralef"), false).map(drop)?;
    let x = points(12);
    let labels = (0..12).map(|i| i % 3).collect();
    let classes = ["a", "b", "c"].map(String::from).to_vec();
    let data = Dataset::new("rows", x, Some(Labels::Classes { labels, names: classes }))?;
    Classifier::new("dense(4) relu dense(3)", &data, Device::Cpu, 0)?.save(&folders[2].join("dense.safetensors"))?;
    Ok(folders)
}

/// A schema of two features: a truth value, and a number.
fn schema(folder: &Path) -> Result<Schema> {
    let path = folder.with_extension("csv");
    std::fs::write(&path, "sold,size,y\nyes,1,low\nno,2.5,high\n").expect("the folder is ours");
    let options = ReadOptions { target: Some("y".into()), ..Default::default() };
    Schema::fit(&Table::open(&path.display().to_string(), &options)?, Missing::Impute, Scaling::Standard)
}

fn write_models(folder: &Path) -> Result<()> {
    let (x, context, kernel) = (points(12), FitContext::default(), Kernel::parse("rbf(1)")?);
    let values = Labels::Values(x.column(0).to_vec());
    let classes = Labels::Classes {
        labels: x.column(0).iter().map(|v| usize::from(*v > 0.0)).collect(),
        names: ["low", "high"].map(String::from).to_vec(),
    };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem::new(&operator, 2);
    let held_out = points(30);
    Spectrum::fit(&Exact, &problem, Some(held_out.view().into()))?.save(&folder.join("exact.mercer"))?;
    Spectrum::fit(&Fourier { features: 8, sampling: Sampling::Plain, ritz: false }, &problem, None)?
        .save(&folder.join("rff.mercer"))?;
    let mut neural = Neural::new(Kind::NeuralEf(NeuralEf::Joint));
    neural.settings = Settings { steps: 2, batch: 8, ..Settings::default() };
    Spectrum::fit(&neural, &problem, None)?.save(&folder.join("neural.mercer"))?;
    let spectrum = Spectrum::fit(&Exact, &problem, None)?.into();
    SpectralRidge::new(spectrum).fit(x.view(), &values, &context)?.save(&folder.join("spectral.mercer"))?;
    let schema = schema(folder)?;
    Ridge::new(kernel.clone())
        .fit(x.view(), &classes, &context)?
        .save_with(Some(&schema), &folder.join("ridge.mercer"))?;
    let map = FeatureMap::Nystrom { kernel: kernel.clone(), landmarks: 4, choice: Landmarks::Uniform };
    FeatureLogistic::new(map.clone())
        .fit(x.view(), &classes, &context)?
        .save(&folder.join("feature-logistic.mercer"))?;
    FeatureRidge::new(map).fit(x.view(), &classes, &context)?.save(&folder.join("features.mercer"))?;
    let machine = RecursiveFeatureMachine::new(Expression::parse("rbf(1)")?);
    RecursiveFeatureMachine { rounds: Some(1), ..machine }
        .fit(x.view(), &values, &context)?
        .save(&folder.join("machine.mercer"))?;
    NadarayaWatson::new(kernel.clone()).fit(x.view(), &values, &context)?.save(&folder.join("averages.mercer"))?;
    Logistic::default().fit(x.view(), &classes, &context)?.save(&folder.join("logistic.mercer"))?;
    KernelPca { k: 2, ..KernelPca::new(kernel.clone()) }
        .fit(x.view(), &(), &context)?
        .save(&folder.join("kpca.mercer"))?;
    let eigenmaps = LaplacianEigenmaps { k: 2, affinity: Affinity::Kernel(kernel), ..Default::default() };
    eigenmaps.fit(x.view(), &(), &context)?.save(&folder.join("eigenmaps.mercer"))?;
    Ok(())
}

/// Columns of models that are evaluated.
const FEW: usize = 64;

fn assert_finite(what: &str, values: ArrayView2<f64>) {
    assert!(values.iter().all(|v| v.is_finite()), "{what} of an accepted model are not finite");
}

/// A spectrum or an estimator that is accepted can be evaluated, and what it returns is finite.
pub fn model(path: &Path) -> Result<(), String> {
    let new = |d: usize| Array2::from_shape_fn((3, d), |(i, j)| (i as f64 - 1.0) * 0.4 + 0.1 * j as f64);
    match Spectrum::load(path, Device::Cpu) {
        Ok(spectrum) => {
            assert!(spectrum.eigenvalues.iter().all(|v| v.is_finite()), "an eigenvalue is not finite");
            let _ = (spectrum.multiply_adds(), format!("{:?}", spectrum.certificate));
            if spectrum.takes_coordinates() && (1..=FEW).contains(&spectrum.origin.d) {
                let values = spectrum.transform(new(spectrum.origin.d).view()).map_err(|e| refused(&e))?;
                assert_eq!(values.dim(), (3, spectrum.k()), "the shape of the values");
                assert_finite("values", values.view());
            }
            if spectrum.takes_samples() {
                let rows = new(3);
                let samples = FunctionSamples::from_rows(rows.view(), 3).map_err(|e| refused(&e))?;
                assert_finite("values", spectrum.transform(&samples).map_err(|e| refused(&e))?.view());
            }
            return Ok(());
        }
        Err(error) if !error.to_string().contains("not a spectrum") => return Err(refused(&error)),
        Err(_) => {}
    }
    Model::load(path, Device::Cpu).map_err(|e| refused(&e))?;
    match Fitted::load(path, Device::Cpu).map_err(|e| refused(&e))? {
        Fitted::Predict(fitted) if (1..=FEW).contains(&fitted.origin().d) => {
            let x = new(fitted.origin().d);
            let scores = fitted.scores(x.view()).map_err(|e| refused(&e))?;
            assert_finite("scores", scores.view());
            fitted.decode(scores.view());
        }
        Fitted::Transform(fitted) if (1..=FEW).contains(&fitted.origin().d) => {
            let x = new(fitted.origin().d);
            assert_finite("coordinates", fitted.embedding().view());
            let values = fitted.transform(x.view()).map_err(|e| refused(&e))?;
            assert_finite("coordinates", values.view());
        }
        _ => {}
    }
    Ok(())
}

/// Two steps of training with a checkpoint at `path`, continued from there where `resume`. Returns the trained numbers.
fn resume(path: &Path, resume: bool) -> Result<Vec<f32>> {
    let (x, context) = (points(16), FitContext::default());
    let operator = context.kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
    let operator = OnData::new(&operator)?;
    let kind = Kind::Spin(Spin::PUBLISHED);
    let functions = kind.functions("dense(4) sincos dense(1)", 2, 2, Device::Cpu, &Rng::new(2))?;
    let objective = kind.objective(&functions, 2)?;
    let settings = Settings {
        steps: 2,
        batch: 8,
        validation_points: 8,
        checkpoint: Some(path.to_owned()),
        resume,
        ..Settings::default()
    };
    let trained = train(&operator, functions, objective, 2, &settings, &context)?;
    trained.functions.parameters().trained.to_host()
}

/// Training goes on from a checkpoint that is accepted, and its numbers are finite.
pub fn checkpoint(path: &Path) -> Result<(), String> {
    let numbers = resume(path, true).map_err(|e| refused(&e))?;
    assert!(numbers.iter().all(|v| v.is_finite()), "a trained number is not finite");
    Ok(())
}

/// A classifier that is accepted puts out finite logits.
pub fn classifier(path: &Path) -> Result<(), String> {
    let classifier = Classifier::load(path, Device::Cpu, None).map_err(|e| refused(&e))?;
    let d = classifier.network.inputs();
    if d <= FEW {
        let logits = classifier.logits(Array2::from_elem((2, d), 0.5).view()).map_err(|e| refused(&e))?;
        assert!(logits.iter().all(|v| v.is_finite()), "a logit is not finite");
    }
    Ok(())
}
