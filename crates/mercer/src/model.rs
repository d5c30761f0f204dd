//! Saved models: safetensors with a versioned JSON header. Written whole or not at all; read with suspicion.

use crate::data::write_atomically;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The newest file format that this version writes and reads.
pub const FORMAT_VERSION: u64 = 1;

/// What a saved model consists of: named values and named f64 matrices.
///
/// ```
/// use mercer::model::Bundle;
/// let path = std::env::temp_dir().join(format!("doc-{}.mercer", std::process::id()));
/// let mut bundle = Bundle::default();
/// bundle.set("kind", "example");
/// bundle.put("weights", ndarray::array![[1.0, 2.0]].view());
/// bundle.write(&path)?;
/// let back = Bundle::read(&path)?;
/// assert_eq!(back.text("kind")?, "example");
/// assert_eq!(back.matrix("weights")?[[0, 1]], 2.0);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    header: Map<String, Value>,
    matrices: BTreeMap<String, Array2<f64>>,
}

impl Bundle {
    /// Names a value.
    pub fn set(&mut self, key: &str, value: impl Serialize) {
        let value = serde_json::to_value(value).expect("headers are plain data");
        self.header.insert(key.to_owned(), value);
    }

    /// Names a matrix.
    pub fn put(&mut self, name: &str, matrix: ArrayView2<f64>) {
        self.matrices.insert(name.to_owned(), matrix.to_owned());
    }

    /// A named value.
    pub fn value<V: DeserializeOwned>(&self, key: &str) -> Result<V> {
        let value = self.header.get(key).ok_or_else(|| Error::input(format!("the model has no '{key}'")))?;
        serde_json::from_value(value.clone())
            .map_err(|e| Error::input(format!("the model's '{key}' cannot be read: {e}")))
    }

    /// A named text.
    pub fn text(&self, key: &str) -> Result<&str> {
        let text = self.header.get(key).and_then(Value::as_str);
        text.ok_or_else(|| Error::input(format!("the model has no text '{key}'")))
    }

    /// A named matrix.
    pub fn matrix(&self, name: &str) -> Result<Array2<f64>> {
        self.matrices.get(name).cloned().ok_or_else(|| Error::input(format!("the model has no matrix '{name}'")))
    }

    /// Writes a file: to a temporary one beside it first, then renamed, so that no reader ever sees half of it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let bytes: Vec<(&String, Vec<usize>, Vec<u8>)> = self
            .matrices
            .iter()
            .map(|(name, m)| (name, vec![m.nrows(), m.ncols()], m.iter().flat_map(|v| v.to_le_bytes()).collect()))
            .collect();
        let views = bytes.iter().map(|(name, shape, data)| {
            (name.as_str(), TensorView::new(Dtype::F64, shape.clone(), data).expect("f64 bytes"))
        });
        let header = Value::Object(self.header.clone()).to_string();
        let metadata = HashMap::from([
            ("format".to_owned(), "mercer".to_owned()),
            ("version".to_owned(), FORMAT_VERSION.to_string()),
            ("header".to_owned(), header),
        ]);
        let file = safetensors::serialize(views, Some(metadata)).map_err(|e| Error::file(path, e.to_string()))?;
        write_atomically(path, |w| w.write_all(&file))
    }

    /// Reads a file; a truncated, foreign or newer one is an error that says which.
    pub fn read(path: &Path) -> Result<Bundle> {
        let file = std::fs::read(path).map_err(|e| Error::io(path, e))?;
        let broken = |what: &str| Error::file(path, format!("not a readable Mercer model: {what}"));
        let (_, metadata) =
            SafeTensors::read_metadata(&file).map_err(|e| broken(&format!("truncated or foreign ({e})")))?;
        let entries = metadata.metadata().clone().unwrap_or_default();
        if entries.get("format").map(String::as_str) != Some("mercer") {
            return Err(broken("it is a safetensors file of another program"));
        }
        let version: u64 =
            entries.get("version").and_then(|v| v.parse().ok()).ok_or_else(|| broken("it names no version"))?;
        if version > FORMAT_VERSION {
            return Err(broken(&format!(
                "its format is version {version}, newer than the {FORMAT_VERSION} this program knows; update mercer"
            )));
        }
        let header = entries.get("header").ok_or_else(|| broken("it has no header"))?;
        let header = serde_json::from_str(header).map_err(|e| broken(&format!("its header is not JSON ({e})")))?;
        let tensors = SafeTensors::deserialize(&file).map_err(|e| broken(&format!("truncated or foreign ({e})")))?;
        let matrices = tensors.iter().map(|(name, view)| Ok((name.to_owned(), matrix(&view).map_err(|e| broken(&e))?)));
        Ok(Bundle { header, matrices: matrices.collect::<Result<_>>()? })
    }
}

fn matrix(view: &TensorView) -> Result<Array2<f64>, String> {
    let (Dtype::F64, &[n, m]) = (view.dtype(), view.shape()) else {
        return Err(format!("a tensor is {:?} {:?}, not an f64 matrix", view.dtype(), view.shape()));
    };
    let values: Vec<f64> =
        view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect();
    if values.iter().any(|v| !v.is_finite()) {
        return Err("a tensor holds values that are not finite".into());
    }
    Array2::from_shape_vec((n, m), values).map_err(|e| e.to_string())
}
