//! What was fitted.

use crate::array::{Held, matrix, samples, vector};
use crate::estimator;
use crate::method::method;
use crate::operator::Operator;
use crate::options::Options;
use crate::run::{Settings, evaluate, raised, run};
use mercer::apply::{Fitted, Predict, Saved, Transform};
use mercer::data::{Target, held_out_rows};
use mercer::kernel::Expression;
use mercer::model::{Bundle, Content};
use mercer::operator::{FunctionSamples, OnPoints};
use mercer::spectrum::{Problem, Spectrum};
use mercer::{Device, Error, Result};
use ndarray::Array2;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// A fitted value of any kind.
#[pyclass(frozen, module = "mercer._mercer")]
pub struct Model(Handle);

/// A fitted value, and what its file holds.
#[derive(Clone)]
pub struct Handle {
    content: Does,
    parts: Arc<Parts>,
    notes: Vec<String>,
}

#[derive(Clone)]
enum Does {
    Spectrum(Arc<Spectrum>),
    Predict(Arc<dyn Predict>),
    Transform(Arc<dyn Transform>),
}

/// Shows the bundle to a function.
type Parts = dyn Fn(&mut dyn FnMut(&Bundle) -> Result<()>) -> Result<()> + Send + Sync;

impl Handle {
    pub fn spectrum(spectrum: Spectrum) -> Handle {
        let (notes, shared) = (spectrum.notes.clone(), Arc::new(spectrum));
        let own = shared.clone();
        Handle { content: Does::Spectrum(shared), parts: Arc::new(move |look| look(&own.bundle()?)), notes }
    }

    pub fn predict(fitted: impl Predict + Saved + 'static) -> Handle {
        let (notes, shared) = (fitted.notes().to_vec(), Arc::new(fitted));
        let own = shared.clone();
        Handle { content: Does::Predict(shared), parts: Arc::new(move |look| look(&own.bundle()?)), notes }
    }

    pub fn transform(fitted: impl Transform + Saved + 'static) -> Handle {
        let (notes, shared) = (fitted.notes().to_vec(), Arc::new(fitted));
        let own = shared.clone();
        Handle { content: Does::Transform(shared), parts: Arc::new(move |look| look(&own.bundle()?)), notes }
    }

    fn loaded(bundle: Bundle<'static>) -> Result<Handle> {
        let content = match mercer::model::Model::of_bundle(&bundle, Device::Cpu)?.content {
            Content::Spectrum(spectrum) => Does::Spectrum(Arc::from(spectrum)),
            Content::Fitted(Fitted::Predict(fitted)) => Does::Predict(Arc::from(fitted)),
            Content::Fitted(Fitted::Transform(fitted)) => Does::Transform(Arc::from(fitted)),
            Content::Network(_) => {
                return Err(Error::input("a network is no fitted estimator; use the program for it"));
            }
        };
        Ok(Handle { content, parts: Arc::new(move |look| look(&bundle)), notes: vec![] })
    }

    /// What `look` makes of the bundle.
    fn look<T>(&self, mut look: impl FnMut(&Bundle) -> Result<T>) -> Result<T> {
        let mut seen = None;
        (self.parts)(&mut |bundle| {
            seen = Some(look(bundle)?);
            Ok(())
        })?;
        Ok(seen.expect("the bundle was shown"))
    }

    fn predicts(&self) -> PyResult<Arc<dyn Predict>> {
        match &self.content {
            Does::Predict(fitted) => Ok(fitted.clone()),
            _ => Err(PyValueError::new_err("the model gives coordinates; it does not predict")),
        }
    }

    /// Numbers that an evaluation at a point takes, about.
    fn cost(&self) -> usize {
        match &self.content {
            Does::Spectrum(spectrum) => spectrum.multiply_adds(),
            Does::Predict(fitted) => fitted.origin().n * (fitted.origin().d + 30),
            Does::Transform(fitted) => fitted.origin().n * (fitted.origin().d + 30),
        }
    }
}

/// Reads what [`Model::to_bytes`] returned.
#[pyfunction]
pub fn model_of_bytes(bytes: &[u8]) -> PyResult<Model> {
    Bundle::from_bytes(bytes).and_then(Handle::loaded).map(Model).map_err(raised)
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
        run(py, settings, move |context| estimator::fit(&kind, options, x.rows().to_f64().view(), y.as_ref(), context))
            .map(Model)
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
        let options = Options::parse(options).map_err(raised)?;
        run(py, settings, move |context| {
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
        .map(Model)
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
        let options = Options::parse(options).map_err(raised)?;
        let fitted = run(py, settings, move |context| {
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
        fitted.map(Model).map_err(|error| operator.0.raised(error))
    }

    /// Reads a file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Model> {
        let read = Bundle::read(&path).and_then(Handle::loaded);
        read.map(Model).map_err(raised)
    }

    /// Pickled as the content of its file.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let read = py.import("mercer._mercer")?.getattr("model_of_bytes")?;
        Ok((read, (self.to_bytes(py)?,)))
    }

    /// The content of its file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.look(|bundle| bundle.to_bytes()).map_err(raised)?))
    }

    /// Writes a file, whole or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        self.0.look(|bundle| bundle.write(&path)).map_err(raised)
    }

    /// The values of its file, as JSON.
    fn header(&self) -> PyResult<String> {
        let header = self.0.look(|bundle| Ok(serde_json::Value::Object(bundle.header().clone()).to_string()));
        header.map_err(raised)
    }

    /// A matrix of its file.
    fn matrix<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let values = self.0.look(|bundle| bundle.matrix(name)).map_err(raised)?;
        Ok(matrix(py, values).into_any())
    }

    /// Warnings of the fit.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    /// Coordinates `[n, k]` of points `[n, d]`.
    fn transform<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (content, x) = (self.0.content.clone(), Held::new(x)?);
        let cost = x.rows().n().saturating_mul(self.0.cost());
        let z = evaluate(py, cost, move || match &content {
            Does::Spectrum(spectrum) => spectrum.transform(x.rows()),
            Does::Transform(fitted) => fitted.transform(x.rows().to_f64().view()),
            Does::Predict(_) => Err(Error::input("the model predicts; it gives no coordinates")),
        })?;
        Ok(matrix(py, z).into_any())
    }

    /// Eigenfunctions `[n·C, k]` where the fitted functions are sampled again, `[S, n, C]`.
    fn transform_samples<'py>(&self, py: Python<'py>, f: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let Does::Spectrum(spectrum) = &self.0.content else {
            return Err(PyValueError::new_err("only a spectrum takes samples of functions"));
        };
        let values = spectrum.transform(&FunctionSamples::from(samples(f)?)).map_err(raised)?;
        Ok(matrix(py, values).into_any())
    }

    /// Coordinates `[n, k]` of the fitted points.
    fn embedding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.0.content {
            Does::Transform(fitted) => Ok(matrix(py, fitted.embedding()).into_any()),
            _ => Err(PyValueError::new_err("the model keeps no coordinates of the fitted points")),
        }
    }

    /// One column of numbers, or a score for each class, `[n, ·]`, at points `[n, d]`.
    fn scores<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (fitted, x) = (self.0.predicts()?, Held::new(x)?);
        let cost = x.rows().n().saturating_mul(self.0.cost());
        let scores = evaluate(py, cost, move || fitted.scores(x.rows().to_f64().view()))?;
        Ok(matrix(py, scores).into_any())
    }

    /// Probabilities of classes `[n, C]` from their scores, where there are some.
    fn probabilities<'py>(&self, py: Python<'py>, scores: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (fitted, scores) = (self.0.predicts()?, Held::new(scores)?);
        let found: Option<Array2<f64>> = fitted.probabilities(scores.rows().to_f64().view());
        Ok(found.map(|p| matrix(py, p).into_any()))
    }

    /// Standard deviations `[n]` at points `[n, d]`, where there are some.
    fn deviations<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (fitted, x) = (self.0.predicts()?, Held::new(x)?);
        let n = self.0.predicts()?.origin().n;
        let cost = x.rows().n().saturating_mul(self.0.cost()).saturating_mul(1 + n / 100);
        let found = evaluate(py, cost, move || fitted.deviations(x.rows().to_f64().view()))?;
        Ok(found.map(|values| vector(py, values).into_any()))
    }
}
