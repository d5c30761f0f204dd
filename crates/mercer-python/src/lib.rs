//! Mercer for Python: handles over the library, on which the classes of the package `mercer` stand.
//!
//! | file | handle |
//! |---|---|
//! | `array.rs` | the rows of a NumPy array, where they lie |
//! | `dlpack.rs` | arrays in the memory of a GPU, exchanged with other libraries |
//! | `run.rs` | settings of a computation; it runs without the GIL and after a fork, ends by Ctrl-C, and fails with a `ValueError` |
//! | `kernel.rs` | a kernel expression, and its matrices |
//! | `operator.rs` | `v ↦ Kv`: a kernel, a matrix, function samples, or a Python object |
//! | `features.rs` | Nyström's and random features |
//! | `method.rs` | methods for eigenpairs by name, with their options |
//! | `estimator.rs` | estimators by name, with their options |
//! | `model.rs` | what was fitted: predictions, coordinates, bytes |
//! | `table.rs` | tables that the schema of a model makes features of |
//! | `figure.rs` | figures as SVG |
//!
//! A handle passes names, options as JSON, and arrays where they lie to the library. It gives back arrays and the values of a model's file, of
//! which the classes take their attributes. Whatever is fitted is pickled as the bytes of its file. A fit runs on a thread of its own; the
//! calling thread looks for Ctrl-C and shows progress.

mod array;
mod dlpack;
mod estimator;
mod features;
mod figure;
mod kernel;
mod method;
mod model;
mod operator;
mod options;
mod run;
mod table;

use pyo3::prelude::*;

/// Number of parts that a dense factorisation is divided into: that of the program, so that the bits are the same.
const PIECES: usize = 8;

/// The compiled part of the package.
#[pymodule]
fn _mercer(module: &Bound<'_, PyModule>) -> PyResult<()> {
    faer::set_global_parallelism(faer::Par::rayon(PIECES));
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<run::Settings>()?;
    module.add_class::<kernel::Kernel>()?;
    module.add_class::<operator::Operator>()?;
    module.add_class::<dlpack::CudaArray>()?;
    module.add_class::<features::Features>()?;
    module.add_class::<model::Model>()?;
    module.add_function(wrap_pyfunction!(model::model_of_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(run::forked, module)?)?;
    module.add_function(wrap_pyfunction!(array::address, module)?)?;
    module.add_function(wrap_pyfunction!(dlpack::to_host, module)?)?;
    module.add_function(wrap_pyfunction!(figure::spectrum_figure, module)?)?;
    module.add_function(wrap_pyfunction!(figure::scatter_figure, module)?)?;
    module.add_function(wrap_pyfunction!(kernel::kernels, module)?)?;
    module.add_function(wrap_pyfunction!(method::methods, module)?)?;
    module.add_function(wrap_pyfunction!(method::family, module)?)?;
    Ok(())
}
