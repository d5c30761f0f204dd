//! Methods for eigenpairs by the names of the library's registry.

use crate::run::raised;
use mercer::options::{Options, Spelling};
use mercer::spectrum::{Method, Size};
use mercer::{Error, Result, learn};
use pyo3::prelude::*;

/// The names of all methods.
#[pyfunction]
pub fn methods() -> Vec<&'static str> {
    learn::spectra().entries.iter().map(|entry| entry.name).collect()
}

/// A family of the registry as data, in JSON: its entries, what they can do, and their options.
#[pyfunction]
pub fn family(name: &str) -> PyResult<String> {
    let described = match name {
        "spectra" => learn::spectra().describe(),
        "regressions" => learn::regressions().describe(),
        "processes" => learn::processes().describe(),
        "embeddings" => learn::embeddings().describe(),
        other => {
            let known = ["spectra", "regressions", "processes", "embeddings"];
            return Err(raised(Error::unknown("family", other, known)));
        }
    };
    Ok(described.to_string())
}

/// Options as a JSON object.
pub fn parsed(json: &str) -> Result<Options> {
    let values = serde_json::from_str(json).map_err(|e| Error::input(format!("options must be a JSON object: {e}")))?;
    Ok(Options::new(values, Spelling::Python))
}

/// The method of that name for n points and k pairs.
pub fn method(name: &str, options: Options, n: usize, k: usize) -> Result<Box<dyn Method + Send>> {
    learn::spectra().build(name, options, &Size::new(n, k))
}
