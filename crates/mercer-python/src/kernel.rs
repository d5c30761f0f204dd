//! Kernel expressions and their matrices.

use crate::array::{Held, matrix, vector};
use crate::dlpack::{CudaArray, Imported};
use crate::run::{Settings, evaluate, here, raised};
use mercer::Error;
use mercer::kernel::{Expression, catalogue};
use mercer::operator::cuda::{DeviceOperator, device_gram};
use mercer::operator::{KernelOperator, Operator as _, Precision, gram, gram_cross};
use pyo3::prelude::*;

/// A kernel expression; lengthscales may still wait for data.
#[pyclass(frozen, module = "mercer._mercer")]
pub struct Kernel {
    text: String,
    expression: Expression,
}

#[pymethods]
impl Kernel {
    /// Reads an expression.
    #[new]
    fn new(text: &str) -> PyResult<Kernel> {
        Ok(Kernel { text: text.to_owned(), expression: Expression::parse(text).map_err(raised)? })
    }

    fn __str__(&self) -> &str {
        &self.text
    }

    /// Whether a lengthscale is to be found by how well a target is predicted.
    fn is_automatic(&self) -> bool {
        self.expression.is_automatic()
    }

    /// The expression with every parameter a number, by points `[n, d]`.
    fn resolve(&self, x: &Bound<'_, PyAny>, seed: u64) -> PyResult<String> {
        let held = Held::new(x)?;
        here(|| self.expression.resolve(held.rows(), seed)).map(|kernel| kernel.to_string()).map_err(raised)
    }

    /// `κ(X,X)` `[n, n]`, or `κ(X,Z)` `[n, m]` where there is a `z`, in the precision of the settings.
    #[pyo3(signature = (x, z, settings))]
    fn matrix<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        z: Option<&Bound<'py, PyAny>>,
        settings: &Settings,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, z) = (Held::new(x)?, z.map(Held::new).transpose()?);
        let ((n, d), m) = (x.rows().dim(), z.as_ref().map_or(x.rows().n(), |z| z.rows().n()));
        if let Some(columns) = z.as_ref().map(|z| z.rows().d()).filter(|columns| *columns != d) {
            return Err(raised(Error::input(format!(
                "X has {d} columns and Y has {columns}; they must have the same"
            ))));
        }
        check_finite(&x)?;
        z.as_ref().map_or(Ok(()), check_finite)?;
        let kernel = here(|| {
            let kernel = self.expression.resolve(x.rows(), settings.seed)?;
            // One row is enough to see whether the kernel's lengthscales fit the columns.
            KernelOperator::new(&kernel, x.rows().slice(0..1), Precision::F64, settings.device)?;
            Ok(kernel)
        })
        .map_err(raised)?;
        let bytes = (n as u64).saturating_mul(m as u64).saturating_mul(settings.precision.bytes());
        if bytes > LARGE {
            let advice = "use mercer.operator, which stores no matrix";
            settings.budget().require(format!("a {n} × {m} kernel matrix"), bytes, advice).map_err(raised)?;
        }
        let (cost, device) = (n * m * (d + 30), settings.device);
        Ok(if settings.precision == Precision::F64 {
            let values = evaluate(py, cost, move || match &z {
                None => gram::<f64>(&kernel, x.rows(), device),
                Some(z) => gram_cross::<f64>(&kernel, x.rows(), z.rows(), device),
            })?;
            matrix(py, values).into_any()
        } else {
            let values = evaluate(py, cost, move || match &z {
                None => gram::<f32>(&kernel, x.rows(), device),
                Some(z) => gram_cross::<f32>(&kernel, x.rows(), z.rows(), device),
            })?;
            matrix(py, values).into_any()
        })
    }

    /// As [`Self::matrix`], of points in the memory of a GPU, where the matrix stays; none where the host alone can prepare points for the
    /// kernel.
    #[pyo3(signature = (x, z, settings))]
    fn matrix_on_device(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        z: Option<&Bound<'_, PyAny>>,
        settings: &Settings,
    ) -> PyResult<Option<CudaArray>> {
        let (x, z) = (Imported::points(x)?, z.map(Imported::points).transpose()?);
        let ([n, d], m) = (x.array.shape(), z.as_ref().unwrap_or(&x).array.shape()[0]);
        let (text, seed, precision) = (self.text.clone(), settings.seed, settings.precision);
        let matrix = evaluate(py, cost_on_device(n * m, d), move || {
            let kernel = x.array.resolve(&text, seed)?;
            device_gram(&kernel, &x.array, z.as_ref().map(|z| &z.array), precision)
        })?;
        Ok(matrix.map(|memory| CudaArray::new(memory, &[n, m], precision == Precision::F64)))
    }

    /// `κ(x_i,x_i)` `[n]` in f64 of points in the memory of a GPU, where it stays; none where the host alone can prepare points for
    /// the kernel.
    fn diagonal_on_device(&self, py: Python<'_>, x: &Bound<'_, PyAny>, seed: u64) -> PyResult<Option<CudaArray>> {
        let x = Imported::points(x)?;
        let ([n, d], text) = (x.array.shape(), self.text.clone());
        let values = evaluate(py, cost_on_device(n, d), move || {
            let kernel = x.array.resolve(&text, seed)?;
            DeviceOperator::new(&kernel, &x.array, Precision::F64)?.map(|k| k.diagonal_on_device()).transpose()
        })?;
        Ok(values.map(|memory| CudaArray::new(memory, &[n], true)))
    }

    /// `κ(x_i,x_i)` `[n]`.
    fn diagonal<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>, seed: u64) -> PyResult<Bound<'py, PyAny>> {
        let x = Held::new(x)?;
        check_finite(&x)?;
        let kernel = here(|| self.expression.resolve(x.rows(), seed)).map_err(raised)?;
        let values = evaluate(py, x.len(), move || {
            KernelOperator::new(&kernel, x.rows(), Precision::F64, mercer::Device::Cpu)?.diagonal()
        })?;
        Ok(vector(py, values).into_any())
    }
}

/// The cost of `entries` kernel values of `d` columns on a GPU, in multiply-adds of the host that take as long.
pub fn cost_on_device(entries: usize, d: usize) -> usize {
    entries.saturating_mul(d + 30) / 100
}

/// Bytes of a matrix from which on the memory is asked for.
const LARGE: u64 = 1 << 28;

/// Refuses points that are empty or not finite.
pub fn check_finite(x: &Held) -> PyResult<()> {
    let (n, d) = x.rows().dim();
    if n == 0 || d == 0 {
        return Err(raised(Error::input(format!("the data is empty: {n} rows of {d} columns"))));
    }
    match here(|| x.rows().non_finite()) {
        None => Ok(()),
        Some((i, j, value)) => {
            let (row, column) = (i + 1, j + 1);
            Err(raised(Error::input(format!(
                "the data must be finite: row {row}, column {column} (counted from 1) is {value}"
            ))))
        }
    }
}

/// Name and formula of every kernel.
#[pyfunction]
pub fn kernels() -> Vec<(&'static str, &'static str)> {
    catalogue().into_iter().map(|entry| (entry.name, entry.help)).collect()
}
