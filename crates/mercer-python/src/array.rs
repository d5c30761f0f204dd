//! NumPy arrays, read where they lie.

use crate::dlpack::Imported;
use mercer::data::Rows;
use ndarray::{Array1, Array2, ArrayView2, ArrayView3};
use numpy::{PyArray1, PyArray2, PyArray3, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The rows `[n, d]` of a C-contiguous array of f32 or f64, which stays alive and is not copied.
pub struct Held {
    start: Start,
    shape: [usize; 2],
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

enum Start {
    F64(*const f64),
    F32(*const f32),
}

// SAFETY: the memory is only read, and the reference that keeps it is dropped under the GIL by PyO3.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Held {
    /// The array `x`, which must be one of `[n, d]` f32 or f64 in C order.
    pub fn new(x: &Bound<'_, PyAny>) -> PyResult<Held> {
        let (start, shape, contiguous) = if let Ok(x) = x.cast::<PyArray2<f64>>() {
            (Start::F64(x.data()), [x.shape()[0], x.shape()[1]], x.is_c_contiguous())
        } else if let Ok(x) = x.cast::<PyArray2<f32>>() {
            (Start::F32(x.data()), [x.shape()[0], x.shape()[1]], x.is_c_contiguous())
        } else {
            return Err(PyValueError::new_err("points must be an array [n, d] of float32 or float64"));
        };
        if !contiguous {
            return Err(PyValueError::new_err("points must lie row by row; use numpy.ascontiguousarray"));
        }
        Ok(Held { start, shape, _owner: x.clone().unbind() })
    }

    /// The rows, for as long as the value lives.
    pub fn rows(&self) -> Rows<'_> {
        let [n, d] = self.shape;
        // SAFETY: the array was checked to be whole and in C order, and the owner keeps its memory.
        unsafe {
            match self.start {
                Start::F64(start) => Rows::F64(ArrayView2::from_shape_ptr((n, d), start)),
                Start::F32(start) => Rows::F32(ArrayView2::from_shape_ptr((n, d), start)),
            }
        }
    }

    /// The rows, for whatever is dropped before this value.
    ///
    /// # Safety
    /// The caller keeps `self` for longer than what it makes of the rows.
    pub unsafe fn rows_that_outlive(&self) -> Rows<'static> {
        // SAFETY: promised by the caller.
        unsafe { std::mem::transmute::<Rows<'_>, Rows<'static>>(self.rows()) }
    }

    /// Numbers in all.
    pub fn len(&self) -> usize {
        self.shape[0] * self.shape[1]
    }
}

/// Where the library reads the numbers of an array: the address of the array itself where it is not copied. It may be in the memory
/// of a GPU.
#[pyfunction]
pub fn address(x: &Bound<'_, PyAny>) -> PyResult<usize> {
    if !x.is_instance_of::<PyUntypedArray>() && x.hasattr("__dlpack__")? {
        return Ok(Imported::new(x)?.array.address() as usize);
    }
    Ok(match Held::new(x)?.rows() {
        Rows::F64(x) => x.as_ptr().addr(),
        Rows::F32(x) => x.as_ptr().addr(),
        Rows::U8 { values, .. } => values.as_ptr().addr(),
    })
}

/// Samples `[S, n, C]` of f64 in C order, copied by what takes them.
pub fn samples<'py>(f: &'py Bound<'_, PyAny>) -> PyResult<ArrayView3<'py, f64>> {
    let f = f
        .cast::<PyArray3<f64>>()
        .map_err(|_| PyValueError::new_err("samples must be an array [S, n, C] of float64"))?;
    // SAFETY: the view ends with the borrow of the array, and Python runs nothing meanwhile.
    Ok(unsafe { f.as_array() })
}

/// A matrix as an array, not copied.
pub fn matrix<'py, T: numpy::Element>(py: Python<'py>, values: Array2<T>) -> Bound<'py, PyArray2<T>> {
    PyArray2::from_owned_array(py, values)
}

/// A list of numbers as an array, not copied.
pub fn vector<'py>(py: Python<'py>, values: Array1<f64>) -> Bound<'py, PyArray1<f64>> {
    PyArray1::from_owned_array(py, values)
}
