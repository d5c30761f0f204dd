//! Saved models: safetensors files with a versioned JSON header.
//!
//! A file is written completely or not at all. A file that is truncated, foreign or newer than this version is refused.

use crate::data::{write_atomically, write_elements};
use crate::{Error, Result, fail_if};
use memmap2::Mmap;
use ndarray::{Array2, CowArray, Ix2};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo, TensorView};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The newest file format that this version writes and reads.
#[doc(hidden)]
pub const FORMAT_VERSION: u64 = 1;

/// The content of a saved model: named values and named f64 matrices.
///
/// Matrices are borrowed until they are written. A file that was read stays mapped into memory, and a matrix is copied
/// out of it when it is asked for.
///
/// ```
/// use mercer::model::Bundle;
/// let path = std::env::temp_dir().join(format!("doc-{}.mercer", std::process::id()));
/// let weights = ndarray::array![[1.0, 2.0]];
/// let mut bundle = Bundle::default();
/// bundle.set("kind", "example");
/// bundle.put("weights", weights.view());
/// bundle.write(&path)?;
/// let back = Bundle::read(&path)?;
/// assert_eq!(back.text("kind")?, "example");
/// assert_eq!(back.matrix("weights")?[[0, 1]], 2.0);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bundle<'a> {
    header: Map<String, Value>,
    matrices: BTreeMap<String, Matrix<'a>>,
}

/// A matrix in memory, or in a file.
#[derive(Clone, Debug)]
enum Matrix<'a> {
    Array(CowArray<'a, f64, Ix2>),
    /// Little-endian elements in row-major order, all finite.
    Mapped {
        file: Arc<Mmap>,
        bytes: Range<usize>,
        shape: [usize; 2],
    },
}

impl<'a> Bundle<'a> {
    /// Stores a value under a name.
    pub fn set(&mut self, key: &str, value: impl Serialize) {
        let value = serde_json::to_value(value).expect("headers are plain data");
        self.header.insert(key.to_owned(), value);
    }

    /// Stores a matrix under a name: an `ArrayView2`, which is borrowed, or an `Array2`.
    pub fn put(&mut self, name: &str, matrix: impl Into<CowArray<'a, f64, Ix2>>) {
        self.matrices.insert(name.to_owned(), Matrix::Array(matrix.into()));
    }

    /// The value of that name.
    pub fn value<V: DeserializeOwned>(&self, key: &str) -> Result<V> {
        let value = self.header.get(key).ok_or_else(|| Error::input(format!("the model has no '{key}'")))?;
        V::deserialize(value).map_err(|e| Error::input(format!("the model's '{key}' cannot be read: {e}")))
    }

    /// The text of that name.
    pub fn text(&self, key: &str) -> Result<&str> {
        let text = self.header.get(key).and_then(Value::as_str);
        text.ok_or_else(|| Error::input(format!("the model has no text '{key}'")))
    }

    /// A copy of the matrix of that name.
    pub fn matrix(&self, name: &str) -> Result<Array2<f64>> {
        match self.matrices.get(name) {
            None => Err(Error::input(format!("the model has no matrix '{name}'"))),
            Some(Matrix::Array(array)) => Ok(array.to_owned()),
            Some(Matrix::Mapped { file, bytes, shape }) => {
                let values = numbers(&file[bytes.clone()]).collect();
                Ok(Array2::from_shape_vec(*shape, values).expect("checked when the file was opened"))
            }
        }
    }

    /// Writes a file: first to a temporary file beside it, which is then renamed, so that no reader sees half of it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let header = self.file_header().map_err(|e| Error::file(path, e))?;
        write_atomically(path, |w| {
            w.write_all(&(header.len() as u64).to_le_bytes())?;
            w.write_all(&header)?;
            self.matrices.values().try_for_each(|matrix| matrix.write(w))
        })
    }

    /// The JSON header of a safetensors file, padded to a multiple of 8 bytes.
    fn file_header(&self) -> Result<Vec<u8>, String> {
        let mut end = 0;
        let info = |(name, matrix): (&String, &Matrix)| {
            let [n, m] = matrix.shape();
            let start = end;
            end += 8 * n * m;
            (name.clone(), TensorInfo { dtype: Dtype::F64, shape: vec![n, m], data_offsets: (start, end) })
        };
        let tensors = self.matrices.iter().map(info).collect();
        let entries = HashMap::from([
            ("format".to_owned(), "mercer".to_owned()),
            ("version".to_owned(), FORMAT_VERSION.to_string()),
            ("header".to_owned(), Value::Object(self.header.clone()).to_string()),
        ]);
        let metadata = Metadata::new(Some(entries), tensors).map_err(|e| e.to_string())?;
        let mut text = serde_json::to_vec(&metadata).map_err(|e| e.to_string())?;
        text.resize(text.len().next_multiple_of(8), b' ');
        Ok(text)
    }
}

impl Bundle<'static> {
    /// Reads a file. The error on a truncated, foreign or newer file says which of these it is.
    pub fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        fail_if!(file.metadata().is_ok_and(|meta| meta.is_dir()); Error::file(path, "is a folder, not a file"));
        // SAFETY: the mapping is read-only, and any bytes are valid numbers. Models are replaced by renaming, never
        // changed in place.
        let file = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        let broken = |what: &str| Error::file(path, format!("not a readable Mercer model: {what}"));
        let foreign = |e| broken(&format!("truncated or foreign ({e})"));
        let (_, metadata) = SafeTensors::read_metadata(&file).map_err(foreign)?;
        let entries = metadata.metadata().as_ref();
        let entry = |key: &str| entries.and_then(|entries| entries.get(key));
        if entry("format").map(String::as_str) != Some("mercer") {
            return Err(broken("it is a safetensors file of another program"));
        }
        let version: u64 =
            entry("version").and_then(|v| v.parse().ok()).ok_or_else(|| broken("it names no version"))?;
        fail_if!(version > FORMAT_VERSION; broken(&format!(
            "its format is version {version}, newer than the {FORMAT_VERSION} this program knows; update mercer"
        )));
        let header = entry("header").ok_or_else(|| broken("it has no header"))?;
        let header = serde_json::from_str(header).map_err(|e| broken(&format!("its header is not JSON ({e})")))?;
        let file = Arc::new(file);
        let tensors = SafeTensors::deserialize(&file).map_err(foreign)?;
        let matrices = tensors
            .iter()
            .map(|(name, view)| Ok((name.to_owned(), Matrix::mapped(&file, &view).map_err(|e| broken(&e))?)));
        Ok(Bundle { header, matrices: matrices.collect::<Result<_>>()? })
    }
}

impl Matrix<'_> {
    /// The matrix of a tensor in a file, checked but not copied.
    fn mapped(file: &Arc<Mmap>, view: &TensorView) -> Result<Matrix<'static>, String> {
        let (Dtype::F64, &[n, m]) = (view.dtype(), view.shape()) else {
            return Err(format!("a tensor is {:?} {:?}, not an f64 matrix", view.dtype(), view.shape()));
        };
        fail_if!(numbers(view.data()).any(|v| !v.is_finite()); "a tensor holds values that are not finite".into());
        let start = view.data().as_ptr().addr() - file.as_ptr().addr();
        Ok(Matrix::Mapped { file: file.clone(), bytes: start..start + view.data().len(), shape: [n, m] })
    }

    fn shape(&self) -> [usize; 2] {
        match self {
            Matrix::Array(array) => array.dim().into(),
            Matrix::Mapped { shape, .. } => *shape,
        }
    }

    fn write(&self, w: &mut dyn io::Write) -> io::Result<()> {
        match self {
            Matrix::Array(array) => write_elements(w, array.view()),
            Matrix::Mapped { file, bytes, .. } => w.write_all(&file[bytes.clone()]),
        }
    }
}

/// The numbers of little-endian bytes.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes")))
}
