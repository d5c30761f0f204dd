//! Operators `v ↦ Kv`.

use crate::array::{Held, matrix, samples, vector};
use crate::dlpack::{CudaArray, Imported};
use crate::kernel::{check_finite, cost_on_device};
use crate::run::{Settings, evaluate, here, raised, run};
use mercer::kernel::Expression;
use mercer::operator::cuda::DeviceOperator;
use mercer::operator::{DenseOperator, FunctionSamples, Operator as Library};
use mercer::{Error, Result, Silent};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// An operator of the library, or one that Python computes.
#[pyclass(frozen, module = "mercer._mercer")]
pub struct Operator(pub Arc<Inner>);

/// What a handle shares with the threads that use it. The operator is dropped before the points that it reads.
pub struct Inner {
    pub operator: Arc<dyn Library>,
    /// The exception that Python raised in a product.
    failure: Arc<Mutex<Option<PyErr>>>,
    cost: usize,
    /// The same operator, where it is of points in the memory of a GPU.
    on_device: Option<Arc<DeviceOperator>>,
    _points: Option<Held>,
}

impl Inner {
    /// The exception that Python raised while the operator was used, else `error`.
    pub fn raised(&self, error: PyErr) -> PyErr {
        self.failure.lock().expect("no panic").take().unwrap_or(error)
    }
}

impl Operator {
    fn new(operator: impl Library + 'static, cost: usize, points: Option<Held>) -> Operator {
        let operator = Arc::new(operator);
        Operator(Arc::new(Inner { operator, failure: Arc::default(), cost, on_device: None, _points: points }))
    }
}

#[pymethods]
impl Operator {
    /// `κ(X,X)` of points `[n, d]`, never stored.
    #[staticmethod]
    fn of_kernel(kernel: &str, x: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Operator> {
        let x = Held::new(x)?;
        check_finite(&x)?;
        // SAFETY: `Inner` drops the operator before the points.
        let rows = unsafe { x.rows_that_outlive() };
        let context = settings.brief();
        let operator = here(|| {
            let kernel = Expression::parse(kernel)?.resolve(rows, context.seed)?;
            context.kernel_operator(&kernel, rows)
        })
        .map_err(raised)?;
        let (n, d) = rows.dim();
        Ok(Operator::new(operator, n * n * (d + 30), Some(x)))
    }

    /// `κ(X,X)` of points `[n, d]` in the memory of a GPU, never stored; none where the host alone can prepare points for the kernel.
    #[staticmethod]
    fn of_kernel_on_device(
        py: Python<'_>,
        kernel: &str,
        x: &Bound<'_, PyAny>,
        settings: &Settings,
    ) -> PyResult<Option<Operator>> {
        let x = Imported::points(x)?;
        let [n, d] = x.array.shape();
        let (text, seed, precision) = (kernel.to_owned(), settings.seed, settings.precision);
        let operator = evaluate(py, cost_on_device(n, d), move || {
            DeviceOperator::new(&x.array.resolve(&text, seed)?, &x.array, precision)
        })?;
        Ok(operator.map(|operator| {
            let (operator, cost) = (Arc::new(operator), cost_on_device(n * n, d));
            let on_device = Some(operator.clone());
            Operator(Arc::new(Inner { operator, failure: Arc::default(), cost, on_device, _points: None }))
        }))
    }

    /// The number of the GPU that holds the points, where one does.
    #[getter]
    fn device(&self) -> Option<usize> {
        self.0.on_device.as_ref().map(|operator| operator.gpu().ordinal)
    }

    /// `K V` for `V` `[n, b]` or `[n]` in the memory of the GPU that holds the points, in the type of `V`.
    fn apply_on_device(&self, py: Python<'_>, v: &Bound<'_, PyAny>) -> PyResult<CudaArray> {
        let operator = self.0.on_device.clone().ok_or_else(|| {
            raised(Error::input("the points of the operator are on the host; multiply a vector on the host"))
        })?;
        let v = Imported::new(v)?;
        let ([n, b], double, dimensions) = (v.array.shape(), v.array.is_double(), v.dimensions);
        let cost = self.0.cost.saturating_mul(b.max(1));
        let memory = evaluate(py, cost, move || operator.multiply(&v.array))?;
        Ok(CudaArray::new(memory, &[n, b][..dimensions], double))
    }

    /// A symmetric matrix `[n, n]`.
    #[staticmethod]
    fn of_matrix(k: &Bound<'_, PyAny>) -> PyResult<Operator> {
        let held = Held::new(k)?;
        check_finite(&held)?;
        let (n, m) = held.rows().dim();
        if n != m {
            let sentence = format!("a kernel matrix must be square, but this one has {n} rows and {m} columns");
            return Err(raised(Error::input(sentence)));
        }
        let operator = here(|| DenseOperator::new(held.rows().to_f64().into_owned()));
        Ok(Operator::new(operator, n * n, None))
    }

    /// `FᵀF/S` of function samples `[S, n, C]`; `factorised` takes the kernel to be one number times the identity.
    #[staticmethod]
    fn of_samples(f: &Bound<'_, PyAny>, factorised: bool, settings: &Settings) -> PyResult<Operator> {
        let f = samples(f)?;
        let context = settings.brief();
        let operator = here(|| context.sample_operator(&FunctionSamples::from(f), factorised)).map_err(raised)?;
        Ok(Operator::new(operator, f.len(), None))
    }

    /// An object with `matmat`, such as scipy's `LinearOperator`, on n values.
    #[staticmethod]
    fn of_python(operator: Py<PyAny>, n: usize) -> Operator {
        let failure: Arc<Mutex<Option<PyErr>>> = Arc::default();
        let inner = FromPython { operator, n, failure: failure.clone() };
        let (operator, cost) = (Arc::new(inner), usize::MAX / 1024);
        Operator(Arc::new(Inner { operator, failure, cost, on_device: None, _points: None }))
    }

    /// Rows and columns.
    #[getter]
    fn n(&self) -> usize {
        self.0.operator.n()
    }

    /// Values at each point.
    #[getter]
    fn outputs(&self) -> usize {
        self.0.operator.outputs()
    }

    /// What it is, in a few words.
    fn describe(&self) -> String {
        self.0.operator.describe()
    }

    /// `K V` `[n, b]` for `V` `[n, b]`.
    fn apply<'py>(&self, py: Python<'py>, v: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (inner, v) = (self.0.clone(), Held::new(v)?);
        if v.rows().n() != inner.operator.n() {
            let (rows, n) = (v.rows().n(), inner.operator.n());
            return Err(raised(Error::input(format!("the operator is on {n} values, and the vectors have {rows}"))));
        }
        let cost = inner.cost.saturating_mul(v.rows().d().max(1));
        let product = evaluate(py, cost, move || inner.operator.apply(v.rows().to_f64().view()));
        Ok(matrix(py, product.map_err(|error| self.0.raised(error))?).into_any())
    }

    /// `K[rows, columns]`.
    fn block<'py>(&self, py: Python<'py>, rows: Vec<usize>, columns: Vec<usize>) -> PyResult<Bound<'py, PyAny>> {
        let (inner, n) = (self.0.clone(), self.n());
        if let Some(row) = rows.iter().chain(&columns).find(|row| **row >= n) {
            return Err(raised(Error::input(format!("there is no row {row}: the operator is on {n} values"))));
        }
        let block = evaluate(py, usize::MAX, move || inner.operator.block(&rows, &columns));
        Ok(matrix(py, block.map_err(|error| self.0.raised(error))?).into_any())
    }

    /// All of K `[n, n]`.
    fn to_dense<'py>(&self, py: Python<'py>, settings: &Settings) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.0.clone();
        let dense = run(py, settings, move |context| {
            let n = inner.operator.n() as u64;
            let what = format!("a {n} × {n} matrix");
            context.budget.require(what, 8 * n.saturating_mul(n), "use products with the operator")?;
            inner.operator.to_dense(&Silent)
        });
        Ok(matrix(py, dense.map_err(|error| self.0.raised(error))?).into_any())
    }

    /// The diagonal `[n]`.
    fn diagonal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.0.clone();
        let diagonal = evaluate(py, usize::MAX, move || inner.operator.diagonal());
        Ok(vector(py, diagonal.map_err(|error| self.0.raised(error))?).into_any())
    }
}

/// An operator whose products Python computes.
struct FromPython {
    operator: Py<PyAny>,
    n: usize,
    failure: Arc<Mutex<Option<PyErr>>>,
}

impl FromPython {
    fn asked<T>(&self, ask: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
        Python::attach(|py| {
            ask(py).map_err(|error| {
                let sentence = format!("the operator raised {error}");
                *self.failure.lock().expect("no panic") = Some(error);
                Error::input(sentence)
            })
        })
    }
}

impl Library for FromPython {
    fn n(&self) -> usize {
        self.n
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let wanted = v.dim();
        let product = self.asked(|py| {
            let product = self.operator.bind(py).call_method1("matmat", (PyArray2::from_array(py, &v),))?;
            let product = py.import("numpy")?.call_method1("asarray", (product, "float64"))?;
            Ok(product.cast::<PyArray2<f64>>()?.to_owned_array())
        })?;
        if product.dim() != wanted {
            return Err(Error::input(format!("the operator gave {:?} for vectors {wanted:?}", product.dim())));
        }
        Ok(product)
    }

    /// By products with unit vectors.
    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        const FEW: usize = 256;
        let mut block = Array2::zeros((rows.len(), columns.len()));
        for (few, mut out) in columns.chunks(FEW).zip(block.axis_chunks_iter_mut(Axis(1), FEW)) {
            let mut units = Array2::zeros((self.n, few.len()));
            few.iter().enumerate().for_each(|(j, &column)| units[[column, j]] = 1.0);
            out.assign(&self.apply(units.view())?.select(Axis(0), rows));
        }
        Ok(block)
    }

    /// Its own method where it has one; else by products with unit vectors.
    fn diagonal(&self) -> Result<Array1<f64>> {
        const FEW: usize = 256;
        let own = self.asked(|py| {
            let operator = self.operator.bind(py);
            if !operator.hasattr("diagonal")? {
                return Ok(None);
            }
            let diagonal =
                py.import("numpy")?.call_method1("asarray", (operator.call_method0("diagonal")?, "float64"))?;
            let diagonal: PyReadonlyArray1<f64> = diagonal.cast::<PyArray1<f64>>()?.readonly();
            Ok(Some(diagonal.as_array().to_owned()))
        })?;
        if let Some(own) = own.filter(|own| own.len() == self.n) {
            return Ok(own);
        }
        let mut diagonal = Array1::zeros(self.n);
        for start in (0..self.n).step_by(FEW) {
            let few: Vec<usize> = (start..self.n.min(start + FEW)).collect();
            diagonal.slice_mut(s![start..start + few.len()]).assign(&self.block(&few, &few)?.diag());
        }
        Ok(diagonal)
    }

    fn describe(&self) -> String {
        format!("a Python operator on {} values", self.n)
    }
}
