//! What was fitted.

use crate::array::{Held, matrix, samples, vector};
use crate::estimator;
use crate::method::{method, parsed};
use crate::operator::Operator;
use crate::options::Options;
use crate::run::{Ended, Settings, evaluate, here, raised, run_to_interrupt};
use crate::table::{self, Values};
use mercer::apply::{Fitted, Predict, SavedPredict, SavedTransform, Transform, softmax_rows};
use mercer::classifier::Classifier;
use mercer::data::{Schema, Target, held_out_rows};
use mercer::kernel::Expression;
use mercer::model::{Bundle, Content};
use mercer::operator::{FunctionSamples, OnPoints};
use mercer::spectrum::{Problem, Spectrum};
use mercer::{Device, Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A fitted value of any kind.
#[pyclass(frozen, module = "mercer._mercer")]
pub struct Model {
    fitted: Handle,
    /// The exception of the Ctrl-C that ended the fit early.
    interrupted: Option<PyErr>,
}

/// A fitted value, and what its file holds.
#[derive(Clone)]
pub struct Handle {
    content: Does,
    /// How tables become features, of a model that was read.
    schema: Option<Arc<Schema>>,
    parts: Arc<Parts>,
    notes: Vec<String>,
}

#[derive(Clone)]
enum Does {
    Spectrum(Arc<Spectrum>),
    Predict(Arc<dyn Predict>),
    Transform(Arc<dyn Transform>),
    Network(Arc<Classifier>),
}

/// Shows the bundle to a function.
type Parts = dyn Fn(&mut dyn FnMut(&Bundle) -> Result<()>) -> Result<()> + Send + Sync;

impl Handle {
    pub fn spectrum(spectrum: Spectrum) -> Handle {
        let (notes, shared) = (spectrum.notes.clone(), Arc::new(spectrum));
        let own = shared.clone();
        Handle {
            content: Does::Spectrum(shared),
            schema: None,
            parts: Arc::new(move |look| look(&own.bundle()?)),
            notes,
        }
    }

    pub fn predict(fitted: impl SavedPredict + 'static) -> Handle {
        Handle::predicts(Box::new(fitted))
    }

    pub fn transform(fitted: impl SavedTransform + 'static) -> Handle {
        Handle::transforms(Box::new(fitted))
    }

    /// An estimator of the registry that predicts.
    pub fn predicts(fitted: Box<dyn SavedPredict>) -> Handle {
        let (notes, shared): (_, Arc<dyn SavedPredict>) = (fitted.notes().to_vec(), fitted.into());
        let own = shared.clone();
        Handle { content: Does::Predict(shared), schema: None, parts: Arc::new(move |look| look(&own.parts()?)), notes }
    }

    /// An estimator of the registry that gives coordinates.
    pub fn transforms(fitted: Box<dyn SavedTransform>) -> Handle {
        let (notes, shared): (_, Arc<dyn SavedTransform>) = (fitted.notes().to_vec(), fitted.into());
        let own = shared.clone();
        Handle {
            content: Does::Transform(shared),
            schema: None,
            parts: Arc::new(move |look| look(&own.parts()?)),
            notes,
        }
    }

    fn loaded(bundle: Bundle<'static>) -> Result<Handle> {
        let model = mercer::model::Model::of_bundle(&bundle, Device::Cpu)?;
        Ok(Handle::of(model, Arc::new(move |look| look(&bundle))))
    }

    /// The model of a file.
    fn read(path: &Path) -> Result<Handle> {
        if path.extension().is_none_or(|e| e != "safetensors") {
            let named = |e: Error| Error::file(path, e.to_string());
            return Handle::loaded(Bundle::read(path)?).map_err(named);
        }
        let model = mercer::model::Model::load(path, Device::Cpu)?;
        let mut known = Bundle::default();
        known.set("kind", NETWORK);
        known.set("schema", &model.schema);
        if let Content::Network(network) = &model.content {
            known.set("net", network.network.expression());
            known.set("classes", &network.classes);
        }
        Ok(Handle::of(model, Arc::new(move |look| look(&known))))
    }

    fn of(model: mercer::model::Model, parts: Arc<Parts>) -> Handle {
        let content = match model.content {
            Content::Spectrum(spectrum) => Does::Spectrum(Arc::from(spectrum)),
            Content::Fitted(Fitted::Predict(fitted)) => Does::Predict(Arc::from(fitted)),
            Content::Fitted(Fitted::Transform(fitted)) => Does::Transform(Arc::from(fitted)),
            Content::Network(network) => Does::Network(Arc::from(network)),
        };
        Handle { content, schema: model.schema.map(Arc::new), parts, notes: vec![] }
    }

    /// What `look` makes of the bundle of its file, which `names` names the columns of, where it has no schema.
    fn look_at_file<T: Send>(
        &self,
        names: Option<Vec<String>>,
        look: impl Fn(&Bundle) -> Result<T> + Send + Sync,
    ) -> PyResult<T> {
        let fails = matches!(self.content, Does::Network(_));
        let network = || Error::input("a network is not written again; copy its file, and load it where it is needed");
        let looked = here(|| match (fails, names) {
            (true, _) => Err(network()),
            (false, Some(names)) if self.schema.is_none() => self.look(|bundle| {
                let mut named = bundle.clone();
                named.set("schema", Schema::of_numbers(names.clone()));
                look(&named)
            }),
            (false, _) => self.look(&look),
        });
        looked.map_err(raised)
    }

    /// What `look` makes of the bundle.
    fn look<T>(&self, look: impl Fn(&Bundle) -> Result<T>) -> Result<T> {
        let mut seen = None;
        (self.parts)(&mut |bundle| {
            seen = Some(look(bundle)?);
            Ok(())
        })?;
        Ok(seen.expect("the bundle was shown"))
    }

    /// One column of numbers, or a score for each class, `[m, ·]`, at points `[m, d]`.
    fn scores(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        match &self.content {
            Does::Predict(fitted) => fitted.scores(x),
            Does::Network(network) if network.number.is_some() => {
                Ok(Array1::from(network.predict(x)?).insert_axis(Axis(1)))
            }
            Does::Network(network) => Ok(network.logits(x)?.mapv(f64::from)),
            Does::Spectrum(_) | Does::Transform(_) => {
                Err(Error::input("the model gives coordinates; it does not predict"))
            }
        }
    }

    /// Scores `[m, ·]` as numbers or classes.
    fn decode(&self, scores: ArrayView2<f64>) -> Result<Target> {
        match &self.content {
            Does::Predict(fitted) => Ok(fitted.decode(scores)),
            Does::Network(network) => Ok(Target::of_scores(scores, &network.classes)),
            Does::Spectrum(_) | Does::Transform(_) => {
                Err(Error::input("the model gives coordinates; it does not predict"))
            }
        }
    }

    /// Numbers that an evaluation at a point takes, about.
    fn cost(&self) -> usize {
        match &self.content {
            Does::Spectrum(spectrum) => spectrum.multiply_adds(),
            Does::Predict(fitted) => fitted.origin().n * (fitted.origin().d + 30),
            Does::Transform(fitted) => fitted.origin().n * (fitted.origin().d + 30),
            Does::Network(network) => network.network.parameters(),
        }
    }
}

/// The kind of a network in what Python sees of its file.
const NETWORK: &str = "network";

impl From<Handle> for Model {
    fn from(fitted: Handle) -> Model {
        Model { fitted, interrupted: None }
    }
}

impl From<Ended<Handle>> for Model {
    fn from(Ended { result: fitted, interrupted }: Ended<Handle>) -> Model {
        Model { fitted, interrupted }
    }
}

/// Reads what [`Model::to_bytes`] returned.
#[pyfunction]
pub fn model_of_bytes(bytes: &[u8]) -> PyResult<Model> {
    here(|| Bundle::from_bytes(bytes).and_then(Handle::loaded)).map(Model::from).map_err(raised)
}

#[pymethods]
impl Model {
    /// Fits the estimator of that kind to points `[n, d]` and numbers `values` `[n]`, or classes `labels` `[n]` with their names.
    #[staticmethod]
    #[pyo3(signature = (kind, options, x, values, labels, names, settings))]
    #[allow(clippy::too_many_arguments, reason = "called by the package alone")]
    fn fit(
        py: Python<'_>,
        kind: String,
        options: &str,
        x: &Bound<'_, PyAny>,
        values: Option<PyReadonlyArray1<'_, f64>>,
        labels: Option<PyReadonlyArray1<'_, i64>>,
        names: Vec<String>,
        settings: &Settings,
    ) -> PyResult<Model> {
        let (options, x) = (Options::parse(options).map_err(raised)?, Held::new(x)?);
        let y = match (values, labels) {
            (Some(values), _) => Some(Target::Values(values.as_array().to_vec())),
            (None, Some(labels)) => {
                let labels = labels.as_array().iter().map(|&label| label as usize).collect();
                Some(Target::Classes { labels, names })
            }
            (None, None) => None,
        };
        run_to_interrupt(py, settings, move |context| {
            estimator::fit(&kind, options, x.rows().to_f64().view(), y.as_ref(), context)
        })
        .map(Model::from)
    }

    /// The k leading pairs of a kernel on points `[n, d]`, certified on a share of them that is held out.
    #[staticmethod]
    #[allow(clippy::too_many_arguments, reason = "called by the package alone")]
    fn spectrum_of_points(
        py: Python<'_>,
        kernel: &str,
        x: &Bound<'_, PyAny>,
        k: usize,
        name: String,
        options: &str,
        holdout: f64,
        settings: &Settings,
    ) -> PyResult<Model> {
        let (expression, x) = (Expression::parse(kernel).map_err(raised)?, Held::new(x)?);
        let options = parsed(options).map_err(raised)?;
        run_to_interrupt(py, settings, move |context| {
            let x = x.rows();
            let parts = held_out_rows(x.n(), holdout, context.seed)?.map(|parts| parts.map(|rows| x.select(&rows)));
            let (fitted, held_out) = match &parts {
                None => (x, None),
                Some([fitted, held_out]) => (fitted.rows(), Some(held_out.rows().into())),
            };
            let kernel = expression.resolve(fitted, context.seed)?;
            let operator = context.kernel_operator(&kernel, fitted)?;
            let method = method(&name, options, fitted.n(), k)?;
            let problem = Problem { operator: &operator, k, context: *context };
            Spectrum::fit(method.as_ref(), &problem, held_out).map(Handle::spectrum)
        })
        .map(Model::from)
    }

    /// The k leading pairs of an operator, on points `[n, d]` where they have coordinates.
    #[staticmethod]
    #[pyo3(signature = (operator, x, k, name, options, settings))]
    fn spectrum_of_operator(
        py: Python<'_>,
        operator: &Operator,
        x: Option<&Bound<'_, PyAny>>,
        k: usize,
        name: String,
        options: &str,
        settings: &Settings,
    ) -> PyResult<Model> {
        let (inner, x) = (operator.0.clone(), x.map(Held::new).transpose()?);
        let options = parsed(options).map_err(raised)?;
        let fitted = run_to_interrupt(py, settings, move |context| {
            let on_points;
            let operator = match &x {
                None => inner.operator.as_ref(),
                Some(x) => {
                    on_points = OnPoints::new(inner.operator.as_ref(), x.rows())?;
                    &on_points
                }
            };
            let method = method(&name, options, operator.n(), k)?;
            let problem = Problem { operator, k, context: *context };
            Spectrum::fit(method.as_ref(), &problem, None).map(Handle::spectrum)
        });
        fitted.map(Model::from).map_err(|error| operator.0.raised(error))
    }

    /// Reads a file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Model> {
        here(|| Handle::read(&path)).map(Model::from).map_err(raised)
    }

    /// Pickled as the content of its file.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let read = py.import("mercer._mercer")?.getattr("model_of_bytes")?;
        Ok((read, (self.to_bytes(py)?,)))
    }

    /// The content of its file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.fitted.look_at_file(None, |bundle| bundle.to_bytes())?))
    }

    /// Writes a file, whole or not at all, with the names of the columns that were fitted, where they have some.
    #[pyo3(signature = (path, names=None))]
    fn save(&self, path: PathBuf, names: Option<Vec<String>>) -> PyResult<()> {
        self.fitted.look_at_file(names, |bundle| bundle.write(&path))
    }

    /// The exception of the Ctrl-C that ended the fit early with the best result so far.
    #[getter]
    fn interrupted(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.interrupted.as_ref().map(|error| error.value(py).clone().into_any().unbind())
    }

    /// The features of an array `[m, columns]` by the schema of its file, and notes on it.
    #[pyo3(signature = (x, names))]
    fn features<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'_, PyAny>,
        names: Option<Vec<String>>,
    ) -> PyResult<table::Features<'py>> {
        table::of_array(py, self.schema()?, x, names)
    }

    /// The features of columns, numbers or text, by the schema of its file, and notes on them.
    #[pyo3(signature = (columns, names))]
    fn features_of_columns<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<Values<'_>>,
        names: Option<Vec<String>>,
    ) -> PyResult<table::Features<'py>> {
        table::of_columns(py, self.schema()?, columns, names)
    }

    /// The values of its file, as JSON.
    fn header(&self) -> PyResult<String> {
        let header =
            here(|| self.fitted.look(|bundle| Ok(serde_json::Value::Object(bundle.header().clone()).to_string())));
        header.map_err(raised)
    }

    /// A matrix of its file.
    fn matrix<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let values = here(|| self.fitted.look(|bundle| bundle.matrix(name))).map_err(raised)?;
        Ok(matrix(py, values).into_any())
    }

    /// Warnings of the fit.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.fitted.notes.clone()
    }

    /// Coordinates `[n, k]` of points `[n, d]`.
    fn transform<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (content, x) = (self.fitted.content.clone(), Held::new(x)?);
        let cost = x.rows().n().saturating_mul(self.fitted.cost());
        let z = evaluate(py, cost, move || match &content {
            Does::Spectrum(spectrum) => spectrum.transform(x.rows()),
            Does::Transform(fitted) => fitted.transform(x.rows().to_f64().view()),
            Does::Predict(_) | Does::Network(_) => Err(Error::input("the model predicts; it gives no coordinates")),
        })?;
        Ok(matrix(py, z).into_any())
    }

    /// Eigenfunctions `[n·C, k]` where the fitted functions are sampled again, `[S, n, C]`.
    fn transform_samples<'py>(&self, py: Python<'py>, f: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let Does::Spectrum(spectrum) = &self.fitted.content else {
            return Err(PyValueError::new_err("only a spectrum takes samples of functions"));
        };
        let f = FunctionSamples::from(samples(f)?);
        let values = here(|| spectrum.transform(&f)).map_err(raised)?;
        Ok(matrix(py, values).into_any())
    }

    /// Coordinates `[n, k]` of the fitted points.
    fn embedding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.fitted.content {
            Does::Transform(fitted) => Ok(matrix(py, here(|| fitted.embedding())).into_any()),
            _ => Err(PyValueError::new_err("the model keeps no coordinates of the fitted points")),
        }
    }

    /// One column of numbers, or a score for each class, `[n, ·]`, at points `[n, d]`.
    fn scores<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (fitted, x) = (self.fitted.clone(), Held::new(x)?);
        let cost = x.rows().n().saturating_mul(fitted.cost());
        let scores = evaluate(py, cost, move || fitted.scores(x.rows().to_f64().view()))?;
        Ok(matrix(py, scores).into_any())
    }

    /// Scores `[n, ·]` as numbers `[n]`, or as the position `[n]` of each class among names.
    fn decode<'py>(&self, py: Python<'py>, scores: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Vec<String>)> {
        let scores = Held::new(scores)?;
        Ok(match self.fitted.decode(scores.rows().to_f64().view()).map_err(raised)? {
            Target::Values(values) => (vector(py, values.into()).into_any(), vec![]),
            Target::Classes { labels, names } => (PyArray1::from_vec(py, labels).into_any(), names),
        })
    }

    /// Probabilities of classes `[n, C]` from their scores, where there are some.
    fn probabilities<'py>(&self, py: Python<'py>, scores: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let scores = Held::new(scores)?;
        let found: Option<Array2<f64>> = here(|| match &self.fitted.content {
            Does::Predict(fitted) => fitted.probabilities(scores.rows().to_f64().view()),
            Does::Network(network) if network.number.is_none() => {
                Some(softmax_rows(scores.rows().to_f64().into_owned()))
            }
            _ => None,
        });
        Ok(found.map(|p| matrix(py, p).into_any()))
    }

    /// Standard deviations `[n]` at points `[n, d]`, where there are some.
    fn deviations<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Does::Predict(fitted) = self.fitted.content.clone() else { return Ok(None) };
        let (x, n) = (Held::new(x)?, fitted.origin().n);
        let cost = x.rows().n().saturating_mul(self.fitted.cost()).saturating_mul(1 + n / 100);
        let found = evaluate(py, cost, move || fitted.deviations(x.rows().to_f64().view()))?;
        Ok(found.map(|values| vector(py, values).into_any()))
    }
}

impl Model {
    /// The schema of its file.
    fn schema(&self) -> PyResult<&Schema> {
        self.fitted
            .schema
            .as_deref()
            .ok_or_else(|| PyValueError::new_err("the model has no schema; give it an array of numbers"))
    }
}
