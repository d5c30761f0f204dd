//! The file format of models: safetensors with a versioned JSON header.
//!
//! A file is written completely or not at all, and holds finite numbers only. A file that is truncated, foreign, of another
//! version, or changed since it was written (its checksum says so) is refused.

use crate::data::{write_atomically, write_elements};
use crate::finite::{non_finite, non_finite_row};
use crate::group::bytes;
use crate::linalg::Sharding;
use crate::{Error, Registry, Result, fail_if};
use memmap2::{Mmap, MmapMut};
use ndarray::{Array2, CowArray, Ix2};
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo, TensorView};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The file format that this version writes and reads. Version 1 had no checksum, version 2 a scaling instead of a schema.
#[doc(hidden)]
pub const FORMAT_VERSION: u64 = 3;

/// What errors call a model that is in memory.
const BYTES: &str = "the bytes of a model";

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
    /// The first value that was stored with a number that is not finite. JSON has none: the header could not hold it.
    non_finite: Option<String>,
    /// What names from outside the crate mean in it.
    registry: Registry,
}

/// A matrix in memory, or in a file.
#[derive(Clone, Debug)]
enum Matrix<'a> {
    Array(CowArray<'a, f64, Ix2>),
    /// The rows of this rank, of those of a group.
    Sharded {
        own: CowArray<'a, f64, Ix2>,
        sharding: Sharding,
    },
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
        self.non_finite = self.non_finite.take().or_else(|| non_finite(key, &value));
        let value = serde_json::to_value(value).expect("headers are plain data");
        self.header.insert(key.to_owned(), value);
    }

    /// Stores a matrix under a name: an `ArrayView2`, which is borrowed, or an `Array2`.
    pub fn put(&mut self, name: &str, matrix: impl Into<CowArray<'a, f64, Ix2>>) {
        self.matrices.insert(name.to_owned(), Matrix::Array(matrix.into()));
    }

    /// Stores a matrix of which this process has the rows `own`. What is made of the bundle is then collective, and rank 0 makes it.
    pub(crate) fn put_sharded(&mut self, name: &str, own: impl Into<CowArray<'a, f64, Ix2>>, sharding: &Sharding) {
        let (own, sharding) = (own.into(), sharding.clone());
        let matrix = if sharding.is_whole() { Matrix::Array(own) } else { Matrix::Sharded { own, sharding } };
        self.matrices.insert(name.to_owned(), matrix);
    }

    /// The value of that name.
    pub fn value<V: DeserializeOwned>(&self, key: &str) -> Result<V> {
        let value = self.header.get(key).ok_or_else(|| Error::input(format!("the model has no '{key}'")))?;
        V::deserialize(value).map_err(|e| Error::input(format!("the model's '{key}' cannot be read: {e}")))
    }

    /// Every value, by its name.
    pub fn header(&self) -> &Map<String, Value> {
        &self.header
    }

    /// The same bundle, in which kernels and features of `registry` are known.
    fn with_registry(self, registry: &Registry) -> Self {
        Bundle { registry: registry.clone(), ..self }
    }

    /// What names from outside the crate mean in it.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
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
            Some(Matrix::Sharded { own, sharding }) => sharding.gathered(own.to_owned()),
            Some(Matrix::Mapped { file, bytes, shape }) => {
                let values = numbers(&file[bytes.clone()]).collect();
                Ok(Array2::from_shape_vec(*shape, values).expect("checked when the file was opened"))
            }
        }
    }

    /// Refuses a bundle with a number that is NaN or infinite; `what` is what it holds.
    pub(crate) fn require_finite(&self, what: &str) -> Result<()> {
        match self.non_finite() {
            None => Ok(()),
            Some(number) => Err(Error::Numerical(format!(
                "{what} is not finite: {number}; the data, or a parameter of the kernel, is too large or too small to compute \
                 with: scale the data, or use another parameter"
            ))),
        }
    }

    /// The first number that is NaN or infinite, and where it is.
    fn non_finite(&self) -> Option<String> {
        let in_matrix = |(name, matrix): (&String, &Matrix)| match matrix {
            Matrix::Array(array) | Matrix::Sharded { own: array, .. } => {
                let first = matrix.first();
                non_finite_row(array.view()).map(|(i, value)| format!("{name}, row {}, is {value}", first + i + 1))
            }
            Matrix::Mapped { .. } => None,
        };
        self.non_finite.clone().or_else(|| self.matrices.iter().find_map(in_matrix))
    }

    /// Writes a file: first to a temporary file beside it, which is then renamed, so that no reader sees half of it. A
    /// bundle with a number that is not finite is refused.
    pub fn write(&self, path: &Path) -> Result<()> {
        let header = self.checked_header().map_err(|e| Error::file(path, e))?;
        if self.is_of_another_rank() {
            return self.write_to(&mut io::sink(), &header).map_err(|e| Error::io(path, e));
        }
        write_atomically(path, |w| self.write_to(w, &header))
    }

    /// Whether ranks share a part of it.
    pub(crate) fn is_sharded(&self) -> bool {
        self.matrices.values().any(|matrix| matches!(matrix, Matrix::Sharded { .. }))
    }

    /// Whether a part of it is on several ranks, of which another one writes the file.
    pub(crate) fn is_of_another_rank(&self) -> bool {
        let elsewhere =
            |matrix: &Matrix| matches!(matrix, Matrix::Sharded { sharding, .. } if sharding.group().rank() > 0);
        self.matrices.values().any(elsewhere)
    }

    /// What [`Self::write`] writes, in memory.
    ///
    /// ```
    /// use mercer::model::Bundle;
    /// let mut bundle = Bundle::default();
    /// bundle.set("kind", "example");
    /// bundle.put("weights", ndarray::array![[1.0, 2.0]]);
    /// let back = Bundle::from_bytes(&bundle.to_bytes()?)?;
    /// assert_eq!((back.header()["kind"].as_str(), back.matrix("weights")?[[0, 1]]), (Some("example"), 2.0));
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let header = self.checked_header().map_err(|e| Error::file(Path::new(BYTES), e))?;
        let mut bytes = vec![];
        self.write_to(&mut bytes, &header).expect("memory takes every byte");
        Ok(bytes)
    }

    /// The JSON header of the file of a bundle whose numbers are all finite.
    fn checked_header(&self) -> Result<Vec<u8>, String> {
        match self.non_finite() {
            Some(what) => Err(format!("is not written, because a number in it is not finite ({what})")),
            None => self.file_header(),
        }
    }

    fn write_to(&self, w: &mut dyn io::Write, header: &[u8]) -> io::Result<()> {
        w.write_all(&(header.len() as u64).to_le_bytes())?;
        w.write_all(header)?;
        self.matrices.values().try_for_each(|matrix| matrix.write(w))
    }

    /// The JSON header of its file.
    fn file_header(&self) -> Result<Vec<u8>, String> {
        let mut end = 0;
        let info = |(name, matrix): (&String, &Matrix)| {
            let [n, m] = matrix.shape();
            let start = end;
            end += 8 * n * m;
            (name.clone(), TensorInfo { dtype: Dtype::F64, shape: vec![n, m], data_offsets: (start, end) })
        };
        let tensors = self.matrices.iter().map(info).collect();
        let header = Value::Object(self.header.clone()).to_string();
        let mut checksum = Checksum::of(&header);
        for (name, matrix) in &self.matrices {
            checksum.tensor(name, Dtype::F64, &matrix.shape(), |w| matrix.write(w));
        }
        let entries = HashMap::from([
            ("format".to_owned(), "mercer".to_owned()),
            ("version".to_owned(), FORMAT_VERSION.to_string()),
            ("header".to_owned(), header),
            ("checksum".to_owned(), checksum.finish()),
        ]);
        header_bytes(entries, tensors)
    }
}

/// The JSON header of a safetensors file, padded to a multiple of 8 bytes.
pub(crate) fn header_bytes(
    entries: HashMap<String, String>,
    tensors: Vec<(String, TensorInfo)>,
) -> Result<Vec<u8>, String> {
    let metadata = Metadata::new(Some(entries), tensors).map_err(|e| e.to_string())?;
    // By way of a value, whose entries are in order: the same model gives the same bytes.
    let metadata = serde_json::to_value(&metadata).map_err(|e| e.to_string())?;
    let mut text = metadata.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok(text)
}

impl Bundle<'static> {
    /// Reads a file. The error on a truncated, foreign, changed, older or newer file says which of these it is.
    pub fn read(path: &Path) -> Result<Self> {
        Bundle::mapped(map(path)?, path)
    }

    /// What `unpack` makes of the bundle and the kind that it names, read from a file with the names of `registry`; errors name the file.
    pub(crate) fn read_as<F>(
        path: &Path,
        registry: &Registry,
        unpack: impl Fn(&Bundle, &str) -> Result<F>,
    ) -> Result<F> {
        let bundle = Bundle::read(path)?.with_registry(registry);
        bundle.text("kind").and_then(|kind| unpack(&bundle, kind)).map_err(|e| Error::file(path, e.to_string()))
    }

    /// Reads what [`Self::to_bytes`] returned. Example: there.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Bundle::from_bytes_of(Path::new(BYTES), bytes)
    }

    /// Reads the bytes of the file at `path`, which errors name.
    pub(crate) fn from_bytes_of(path: &Path, bytes: &[u8]) -> Result<Self> {
        let mut memory = MmapMut::map_anon(bytes.len().max(1)).map_err(|e| Error::io(path, e))?;
        memory[..bytes.len()].copy_from_slice(bytes);
        Bundle::mapped(memory.make_read_only().map_err(|e| Error::io(path, e))?, path)
    }

    /// The bundle of a file that is mapped into memory, or of bytes that are there; errors name `path`.
    fn mapped(file: Mmap, path: &Path) -> Result<Self> {
        let broken = |what: &str| Error::file(path, format!("not a readable Mercer model: {what}"));
        let foreign = |e| broken(&format!("truncated or foreign ({e})"));
        let (_, metadata) = SafeTensors::read_metadata(&file).map_err(foreign)?;
        let entries = metadata.metadata().as_ref();
        let entry = |key: &str| entries.and_then(|entries| entries.get(key));
        match entry("format").map(String::as_str) {
            Some("mercer") => {}
            Some("mercer-index") => {
                return Err(broken("it is an index, which is searched; give the model that made its codes"));
            }
            _ => return Err(broken("it is a safetensors file of another program")),
        }
        let version: u64 =
            entry("version").and_then(|v| v.parse().ok()).ok_or_else(|| broken("it names no version"))?;
        fail_if!(version > FORMAT_VERSION; broken(&format!(
            "its format is version {version}, newer than the {FORMAT_VERSION} this program knows; update mercer"
        )));
        fail_if!(version < FORMAT_VERSION; broken(&format!(
            "its format is version {version}, of an earlier mercer; fit and save the model again"
        )));
        let text = entry("header").ok_or_else(|| broken("it has no header"))?;
        let file = Arc::new(file);
        let tensors = SafeTensors::deserialize(&file).map_err(foreign)?;
        check(entry("checksum"), text, &tensors).map_err(|e| broken(&e))?;
        let header = serde_json::from_str(text).map_err(|e| broken(&format!("its header is not JSON ({e})")))?;
        let matrices = tensors
            .iter()
            .map(|(name, view)| Ok((name.to_owned(), Matrix::mapped(&file, &view).map_err(|e| broken(&e))?)));
        Ok(Bundle {
            header,
            matrices: matrices.collect::<Result<_>>()?,
            non_finite: None,
            registry: Registry::default(),
        })
    }
}

/// A model or an index, mapped into memory.
pub(crate) fn map(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    fail_if!(file.metadata().is_ok_and(|meta| meta.is_dir()); Error::file(path, "is a folder, not a file"));
    // SAFETY: the mapping is read-only, and any bytes are valid numbers. Such files are replaced by renaming, never changed in
    // place.
    unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))
}

/// The checksum that the file of a model states: two files with the same one hold the same model.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::model::{Bundle, stated_checksum};
/// let [a, b] = ["a.mercer", "b.mercer"].map(|name| folder.path().join(name));
/// let mut bundle = Bundle::default();
/// bundle.set("kind", "example");
/// bundle.write(&a)?;
/// bundle.write(&b)?;
/// assert_eq!(stated_checksum(&a)?, stated_checksum(&b)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn stated_checksum(path: &Path) -> Result<String> {
    let file = map(path)?;
    let metadata = SafeTensors::read_metadata(&file).ok().and_then(|(_, metadata)| metadata.metadata().clone());
    let stated = metadata.and_then(|mut entries| entries.remove("checksum"));
    stated.ok_or_else(|| Error::file(path, "states no checksum; it is not a Mercer model"))
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

    /// The first row that is here.
    fn first(&self) -> usize {
        match self {
            Matrix::Sharded { own, sharding } => sharding.rows(own.nrows()).start,
            _ => 0,
        }
    }

    fn shape(&self) -> [usize; 2] {
        match self {
            Matrix::Array(array) => array.dim().into(),
            Matrix::Sharded { own, sharding } => {
                [sharding.shares().map_or(own.nrows(), |shares| shares.n()), own.ncols()]
            }
            Matrix::Mapped { shape, .. } => *shape,
        }
    }

    fn write(&self, w: &mut dyn io::Write) -> io::Result<()> {
        match self {
            Matrix::Array(array) => write_elements(w, array.view()),
            Matrix::Sharded { own, sharding } => {
                let rows = own.as_standard_layout();
                sharding.to_first(bytes(rows.as_slice().expect("row by row")), &mut |bytes| w.write_all(bytes))
            }
            Matrix::Mapped { file, bytes, .. } => w.write_all(&file[bytes.clone()]),
        }
    }
}

/// CRC-32 of the content of a file: its header, and name, type, shape and bytes of every tensor in the order of their names.
struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Begins with the header.
    fn of(header: &str) -> Checksum {
        let mut checksum = Checksum(crc32fast::Hasher::new());
        checksum.0.update(header.as_bytes());
        checksum
    }

    /// Goes on with a tensor, whose bytes `content` writes.
    fn tensor(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: &[usize],
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) {
        let about = format!("\n{name:?} {dtype:?} {shape:?}\n");
        self.0.update(about.as_bytes());
        content(self).expect("nothing is written anywhere");
    }

    /// Eight hexadecimal digits.
    fn finish(self) -> String {
        format!("{:08x}", self.0.finalize())
    }
}

impl Write for Checksum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The checksum of a header and of tensors in any order.
#[doc(hidden)]
pub fn checksum<'t>(header: &str, tensors: impl Iterator<Item = (&'t str, TensorView<'t>)>) -> String {
    let mut tensors: Vec<(&str, TensorView)> = tensors.collect();
    tensors.sort_unstable_by_key(|(name, _)| *name);
    let mut checksum = Checksum::of(header);
    for (name, view) in &tensors {
        checksum.tensor(name, view.dtype(), view.shape(), |w| w.write_all(view.data()));
    }
    checksum.finish()
}

/// Refuses a file whose header and tensors are not those that its checksum was taken of.
pub(crate) fn check(stated: Option<&String>, header: &str, tensors: &SafeTensors) -> Result<(), String> {
    let (wanted, found) = (stated.map_or("missing", String::as_str), checksum(header, tensors.iter()));
    fail_if!(wanted != found; format!(
        "it was changed after it was written: its checksum is {wanted}, that of its content {found}; use a good copy"
    ));
    Ok(())
}

/// The numbers of little-endian bytes.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes")))
}
