//! Arrays in the memory of a GPU, exchanged with other libraries by the DLPack protocol, not copied.
//!
//! The four structs of `dlpack.h` are written here: a crate for them is larger than they are.

use mercer::compute::cuda::{Buffer, gpu};
use mercer::data::{Matrix, Rows};
use mercer::operator::cuda::ExternalArray;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

use crate::array::{Held, matrix};
use crate::run::raised;

#[repr(C)]
struct DLDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    /// In numbers; null where the array lies row by row.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensor {
    tensor: DLTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// `kDLCUDA`, and `kDLCUDAManaged`, which a GPU reads as well.
const CUDA: [i32; 2] = [2, 13];
/// `kDLFloat`
const FLOAT: u8 = 2;
/// The name of a capsule whose array nobody has taken yet, and of one that was taken.
const FRESH: &CStr = c"dltensor";
const TAKEN: &CStr = c"used_dltensor";

/// An array of another library in the memory of a GPU. It stays alive, and is not copied.
pub struct Imported {
    managed: *mut DLManagedTensor,
    pub array: ExternalArray,
    /// 1 for a vector, which is one column; else 2.
    pub dimensions: usize,
}

// SAFETY: the memory is only read; the deleter runs under the GIL.
unsafe impl Send for Imported {}
// SAFETY: as above.
unsafe impl Sync for Imported {}

impl Imported {
    /// The array `[n, d]` or `[n]` of f32 or f64 of an object with `__dlpack__`. Work that the other library has queued on it is done
    /// before ours begins.
    pub fn new(x: &Bound<'_, PyAny>) -> PyResult<Imported> {
        let py = x.py();
        let (kind, ordinal): (i32, i32) = x.call_method0("__dlpack_device__")?.extract()?;
        if !CUDA.contains(&kind) {
            return Err(PyValueError::new_err("the array is not in the memory of a CUDA device"));
        }
        let stream = gpu(ordinal as usize).map_err(raised)?.stream_handle();
        let options = PyDict::new(py);
        options.set_item("stream", stream)?;
        let capsule = x.call_method("__dlpack__", (), Some(&options))?;
        // SAFETY: the pointer of a capsule with this name is a managed tensor; whoever renames the capsule owns it.
        unsafe {
            let managed = ffi::PyCapsule_GetPointer(capsule.as_ptr(), FRESH.as_ptr()).cast::<DLManagedTensor>();
            if managed.is_null() {
                return Err(PyErr::fetch(py));
            }
            if ffi::PyCapsule_SetName(capsule.as_ptr(), TAKEN.as_ptr()) != 0 {
                return Err(PyErr::fetch(py));
            }
            Imported::of(managed).inspect_err(|_| delete(managed))
        }
    }

    /// # Safety
    /// `managed` is a tensor that the caller owns.
    unsafe fn of(managed: *mut DLManagedTensor) -> PyResult<Imported> {
        // SAFETY: promised by the caller; shape and strides have a number for each dimension.
        unsafe {
            let tensor = &(*managed).tensor;
            let DLDataType { code, bits, lanes } = tensor.dtype;
            if code != FLOAT || lanes != 1 || (bits != 32 && bits != 64) {
                return Err(PyValueError::new_err("an array on a GPU must be of float32 or float64; convert it"));
            }
            let dimensions = tensor.ndim as usize;
            if dimensions != 1 && dimensions != 2 {
                let sentence =
                    format!("an array on a GPU must have one or two dimensions, and this one has {dimensions}");
                return Err(PyValueError::new_err(sentence));
            }
            let extent = |i: usize| if i < dimensions { *tensor.shape.add(i) as usize } else { 1 };
            let shape = [extent(0), extent(1)];
            let strides = match (tensor.strides.is_null(), dimensions) {
                (true, _) => [shape[1] as isize, 1],
                (false, 1) => [*tensor.strides as isize, 1],
                (false, _) => [*tensor.strides as isize, *tensor.strides.add(1) as isize],
            };
            let address = tensor.data.addr() as u64 + tensor.byte_offset;
            let array = ExternalArray::new(tensor.device.id as usize, address, bits == 64, shape, strides);
            Ok(Imported { managed, array: array.map_err(raised)?, dimensions })
        }
    }

    /// Points `[n, d]`.
    pub fn points(x: &Bound<'_, PyAny>) -> PyResult<Imported> {
        let found = Imported::new(x)?;
        if found.dimensions != 2 {
            let n = found.array.shape()[0];
            let sentence = format!("points must be an array [n, d], and this one has the shape ({n},)");
            return Err(PyValueError::new_err(sentence));
        }
        Ok(found)
    }
}

/// # Safety
/// `managed` is a tensor that the caller owns and does not use again.
unsafe fn delete(managed: *mut DLManagedTensor) {
    // SAFETY: promised by the caller.
    unsafe {
        if let Some(deleter) = (*managed).deleter {
            deleter(managed);
        }
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the tensor was taken from its capsule, and this is its only owner.
        Python::attach(|_| unsafe { delete(self.managed) });
    }
}

/// An array in the memory of a GPU that Mercer has made. Other libraries take it by `__dlpack__`.
#[pyclass(frozen, module = "mercer._mercer")]
pub struct CudaArray {
    memory: Arc<Buffer>,
    shape: Vec<i64>,
    double: bool,
}

impl CudaArray {
    /// Numbers of this shape, f64 if `double`, else f32, row by row. The work that writes them is done.
    pub fn new(memory: Buffer, shape: &[usize], double: bool) -> CudaArray {
        CudaArray { memory: Arc::new(memory), shape: shape.iter().map(|&n| n as i64).collect(), double }
    }
}

/// What an exported tensor keeps.
struct Export {
    managed: DLManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    memory: Arc<Buffer>,
    /// The stream on which the other library uses it.
    stream: u64,
}

impl Drop for Export {
    fn drop(&mut self) {
        // The memory is used again by work on Mercer's stream.
        self.memory.gpu().follow_stream(self.stream);
    }
}

/// Frees an exported tensor.
///
/// # Safety
/// The tensor was made by this module, and nobody uses it any more.
unsafe extern "C" fn release(managed: *mut DLManagedTensor) {
    // SAFETY: `context` is the export that `__dlpack__` has leaked, and a tensor is deleted once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Export>()) });
}

/// Frees the tensor of a capsule that nobody took.
///
/// # Safety
/// The capsule was made by this module, and Python is about to free it.
unsafe extern "C" fn release_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that still has this name owns its tensor.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr()).cast());
        }
    }
}

#[pymethods]
impl CudaArray {
    /// A copy of a NumPy array `[n, d]` of float32 or float64 on a device.
    #[staticmethod]
    fn of_host(x: &Bound<'_, PyAny>, ordinal: usize) -> PyResult<CudaArray> {
        let (held, gpu) = (Held::new(x)?, gpu(ordinal).map_err(raised)?);
        let (n, d) = held.rows().dim();
        let (what, advice) = (|| format!("an array of {n} × {d} numbers"), "use the CPU");
        let (memory, double) = match held.rows() {
            Rows::F32(x) => (gpu.upload(x.as_slice().expect("row by row"), &what, advice), false),
            x => (gpu.upload(x.to_f64().as_slice().expect("row by row"), &what, advice), true),
        };
        let memory = memory.and_then(|memory| gpu.synchronize().map(|()| memory)).map_err(raised)?;
        Ok(CudaArray::new(memory, &[n, d], double))
    }

    /// Kind and number of the device.
    fn __dlpack_device__(&self) -> (i32, usize) {
        (CUDA[0], self.memory.gpu().ordinal)
    }

    /// A capsule with the array. `stream` is the one on which it will be used; the numbers are there already.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<(i32, usize)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = max_version; // An array without a version is within every version.
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) || copy == Some(true) {
            return Err(PyBufferError::new_err("the array is handed over where it lies; copy it then"));
        }
        let (shape, memory) = (self.shape.clone(), self.memory.clone());
        let strides = (0..shape.len()).map(|i| shape[i + 1..].iter().product()).collect();
        let dtype = DLDataType { code: FLOAT, bits: if self.double { 64 } else { 32 }, lanes: 1 };
        let tensor = DLTensor {
            data: std::ptr::without_provenance_mut(memory.pointer() as usize),
            device: DLDevice { kind: CUDA[0], id: memory.gpu().ordinal as i32 },
            ndim: shape.len() as i32,
            dtype,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = DLManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(release) };
        let stream = stream.filter(|&stream| stream >= 0).unwrap_or(1) as u64;
        let export = Box::into_raw(Box::new(Export { managed, shape, strides, memory, stream }));
        // SAFETY: the export lives until its deleter runs; its vectors stay where they are.
        unsafe {
            (*export).managed.context = export.cast();
            (*export).managed.tensor.shape = (*export).shape.as_mut_ptr();
            (*export).managed.tensor.strides = (*export).strides.as_mut_ptr();
            let pointer = (&raw mut (*export).managed).cast::<c_void>();
            let capsule = ffi::PyCapsule_New(pointer, FRESH.as_ptr(), Some(release_capsule));
            if capsule.is_null() {
                drop(Box::from_raw(export));
                return Err(PyErr::fetch(py));
            }
            Ok(Bound::from_owned_ptr(py, capsule))
        }
    }

    #[getter]
    fn shape(&self) -> Vec<i64> {
        self.shape.clone()
    }
}

/// A copy on the host of an array `[n, d]` or `[n]` in the memory of a GPU, as a NumPy array `[n, d]`; a vector is one column.
#[pyfunction]
pub fn to_host<'py>(py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let x = Imported::new(x)?;
    let copy = py.detach(|| x.array.to_host(None)).map_err(raised)?;
    Ok(match copy {
        Matrix::F32(x) => matrix(py, x).into_any(),
        other => matrix(py, other.into_f64()).into_any(),
    })
}
