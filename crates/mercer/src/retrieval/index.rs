//! An index on disk: a safetensors file with the codes of items, what is known of each, and where they come from.
//!
//! | tensor | content |
//! |---|---|
//! | `codes` | f32 `[n, k]` |
//! | `centre` | f64 `[k]`, what was subtracted from codes before they were rounded |
//! | `labels` | u32 `[n]`, the place of each item's class among the classes of the header; or `values`, f64 `[n]` |
//! | `name_ends`, `names` | u64 `[n]` and bytes: where each name ends in the names, one after the other |
//!
//! The header is checked when a file is opened, whose codes stay on disk until they are read; [`Index::verify`] checks all of it.

use super::kept::{blurred_queries, rounded};
use super::{Blurred, Metric};
use crate::bundle::{check, checksum, header_bytes, map};
use crate::data::{Schema, Target, check_finite, write_atomically};
use crate::finite::finite_json;
use crate::{Error, Result, fail_if};
use memmap2::Mmap;
use ndarray::{Array2, ArrayView1, ArrayView2};
use safetensors::tensor::{Dtype, SafeTensors, TensorInfo, TensorView};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The file format of codes that are kept as they are, and of those with a centre, which programs that know the first only must not search.
const VERSIONS: [&str; 2] = ["1", "2"];

/// What an index says of its codes. Example: [`Index`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// How codes are compared.
    pub metric: Metric,
    /// The rows that the items are.
    pub source: Option<Source>,
    /// The model that made the codes; none where they were given.
    pub model: Option<ModelFile>,
    /// How tables become the model's features.
    pub schema: Option<Schema>,
    /// How the graph of neighbours beside the index keeps codes, where there is one.
    pub graph: Option<Rounding>,
}

/// How a graph of neighbours keeps codes. Example: [`Index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// Single precision.
    F32,
    /// A byte a coordinate.
    I8,
    /// A bit a coordinate: whether it is above zero.
    Binary,
}

/// The rows that the items are, to show them. Example: [`Index`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// A file or a named data set.
    pub data: String,
    /// The first of its rows that is an item, counted from 0.
    pub first: usize,
    /// Channels, height and width, where each row is an image.
    pub shape: Option<[usize; 3]>,
}

/// The model that made the codes. Example: [`Index`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFile {
    /// Its file at that time.
    pub path: String,
    /// Its checksum ([`stated_checksum`](crate::model::stated_checksum)).
    pub checksum: String,
}

/// What an index holds of its items. Example: [`Index`].
#[derive(Clone, Copy, Debug)]
pub struct Items<'a> {
    /// `[n, k]`, less the centre.
    pub codes: ArrayView2<'a, f32>,
    /// What was subtracted from all codes, `[k]` ([`Kept`](super::Kept)).
    pub centre: Option<&'a [f64]>,
    /// A class or a number of each.
    pub labels: Option<&'a Target>,
    /// A name of each.
    pub names: Option<&'a [String]>,
}

/// An index that is mapped into memory.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::retrieval::{About, ExactSearch, Index, Items};
/// let path = folder.path().join("a.index");
/// let codes = ndarray::array![[1.0f32, 0.0], [0.0, 1.0]];
/// let names = ["east".to_string(), "north".to_string()];
/// Index::write(&path, &About::default(), &Items { codes: codes.view(), centre: None, labels: None, names: Some(&names) })?;
/// let index = Index::open(&path)?;
/// let hits = ExactSearch::new(index.codes(), index.about.metric)?.nearest(ndarray::array![[0.1f32, 2.0]].view(), 1)?;
/// assert_eq!(index.name(hits.items[[0, 0]]).as_deref(), Some("north"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Index {
    /// What it says of its codes.
    pub about: About,
    /// Names of the classes; empty where items have none.
    pub classes: Vec<String>,
    path: PathBuf,
    file: Mmap,
    shape: [usize; 2],
    codes: Range<usize>,
    centre: Option<Vec<f64>>,
    labels: Option<Range<usize>>,
    values: Option<Range<usize>>,
    names: Option<[Range<usize>; 2]>,
}

/// The header of a file.
#[derive(Serialize, Deserialize)]
struct Header {
    about: About,
    classes: Vec<String>,
}

/// A tensor to be written.
struct Part<'a> {
    name: &'static str,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl Index {
    /// Writes a file, completely or not at all.
    pub fn write(path: &Path, about: &About, items: &Items) -> Result<()> {
        let (n, k) = items.codes.dim();
        fail_if!(n == 0 || k == 0, "an index needs at least one item with one coordinate, not {n} with {k}");
        check_finite(path, items.codes)?;
        if let Some(centre) = items.centre {
            fail_if!(centre.len() != k, "the centre has {} coordinates, the codes {k}", centre.len());
            check_finite(path, ArrayView1::from(centre))?;
        }
        let labels = items.labels.map(Target::len).filter(|&labels| labels != n);
        let names = items.names.map(<[String]>::len).filter(|&names| names != n);
        if let Some(given) = labels.or(names) {
            return Err(Error::input(format!("{n} items have {given} labels or names; each needs one")));
        }
        let classes = match items.labels {
            Some(Target::Classes { names, .. }) => names.clone(),
            _ => vec![],
        };
        let header = finite_json(&Header { about: about.clone(), classes }).map_err(|e| Error::file(path, e))?;
        let parts = parts(items);
        let file_header = file_header(&header, &parts).map_err(|e| Error::file(path, e))?;
        write_atomically(path, |w| {
            w.write_all(&(file_header.len() as u64).to_le_bytes())?;
            w.write_all(&file_header)?;
            parts.iter().try_for_each(|part| w.write_all(&part.bytes))
        })
    }

    /// Maps a file. Its header is checked, and its codes stay on disk until they are read.
    pub fn open(path: &Path) -> Result<Index> {
        fail_if!(cfg!(target_endian = "big"), "an index is read by machines with little-endian numbers only");
        let file = map(path)?;
        let broken = |what: String| Error::file(path, format!("not a readable index: {what}"));
        let tensors = SafeTensors::deserialize(&file).map_err(|e| broken(format!("truncated or foreign ({e})")))?;
        let entries = entries(&file).map_err(broken)?;
        let entry = |key: &str| entries.get(key).map(String::as_str);
        fail_if!(entry("format") != Some("mercer-index"); broken("it is a file of another kind; `mercer index` makes one".into()));
        let version = entry("version").unwrap_or("none");
        fail_if!(!VERSIONS.contains(&version); broken(format!(
            "its format is version {version}, and this program reads {}; make the index again", VERSIONS.join(" and ")
        )));
        let header = entry("header").unwrap_or_default();
        let infos = tensors.iter().map(|(name, view)| (name.to_owned(), view.dtype(), view.shape().to_vec()));
        let outline = outline(header, infos);
        fail_if!(entry("outline") != Some(outline.as_str()); broken("its header was changed after it was written".into()));
        let Header { about, classes } =
            serde_json::from_str(header).map_err(|e| broken(format!("its header cannot be read ({e})")))?;
        let place = |name: &str, dtype: Dtype, width: usize| -> Result<Option<(Range<usize>, Vec<usize>)>> {
            let Ok(view) = tensors.tensor(name) else { return Ok(None) };
            fail_if!(view.dtype() != dtype || view.shape().len() != width; broken(format!(
                "'{name}' is {:?} {:?}, not {dtype:?}", view.dtype(), view.shape()
            )));
            let start = view.data().as_ptr().addr() - file.as_ptr().addr();
            Ok(Some((start..start + view.data().len(), view.shape().to_vec())))
        };
        let (codes, shape) = place("codes", Dtype::F32, 2)?.ok_or_else(|| broken("it has no codes".into()))?;
        let shape = [shape[0], shape[1]];
        let centre = match place("centre", Dtype::F64, 1)? {
            None => None,
            Some((range, found)) => {
                fail_if!(found[0] != shape[1]; broken(format!("its centre has {} coordinates, its codes {}", found[0], shape[1])));
                Some(file[range].as_chunks().0.iter().map(|&v| f64::from_le_bytes(v)).collect())
            }
        };
        let of_items = |name: &str, dtype: Dtype| -> Result<Option<Range<usize>>> {
            let Some((range, found)) = place(name, dtype, 1)? else { return Ok(None) };
            fail_if!(found[0] != shape[0]; broken(format!("it has {} {name} of {} items", found[0], shape[0])));
            Ok(Some(range))
        };
        let (labels, values) = (of_items("labels", Dtype::U32)?, of_items("values", Dtype::F64)?);
        let names = of_items("name_ends", Dtype::U64)?.zip(place("names", Dtype::U8, 1)?.map(|(range, _)| range));
        let aligned = (file.as_ptr().addr() + codes.start).is_multiple_of(align_of::<f32>());
        fail_if!(shape.contains(&0) || !aligned; broken("its codes are empty or not where they should be".into()));
        let names = names.map(|(ends, names)| [ends, names]);
        Ok(Index { about, classes, path: path.to_owned(), file, shape, codes, centre, labels, values, names })
    }

    /// Refuses a file that was changed after it was written: one pass over all of it.
    pub fn verify(&self) -> Result<()> {
        let broken = |what: String| Error::file(&self.path, format!("not a readable index: {what}"));
        let tensors = SafeTensors::deserialize(&self.file).map_err(|e| broken(e.to_string()))?;
        let entries = entries(&self.file).map_err(broken)?;
        check(entries.get("checksum"), entries.get("header").map_or("", String::as_str), &tensors).map_err(broken)
    }

    /// Number of items.
    pub fn n(&self) -> usize {
        self.shape[0]
    }

    /// Number of coordinates of a code.
    pub fn k(&self) -> usize {
        self.shape[1]
    }

    /// What was subtracted from all codes, where something was.
    pub fn centre(&self) -> Option<&[f64]> {
        self.centre.as_deref()
    }

    /// Codes `[m, j]` of queries, j ≤ k first coordinates, as those of the items are kept.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::retrieval::{About, ExactSearch, Index, Items, Kept, Metric};
    /// let path = folder.path().join("a.index");
    /// let far = ndarray::array![[1e9, 0.0], [1e9 + 0.25, 0.0], [1e9 + 1.0, 0.5]];
    /// let about = About { metric: Metric::Euclidean, ..About::default() };
    /// let Kept { codes, centre } = Kept::of(far.view(), about.metric);
    /// Index::write(&path, &about, &Items { codes: codes.view(), centre: centre.as_deref(), labels: None, names: None })?;
    /// let index = Index::open(&path)?;
    /// let hits = ExactSearch::new(index.codes(), about.metric)?.nearest(index.prepared(far.view()).view(), 1)?;
    /// assert_eq!(hits.items, ndarray::array![[0], [1], [2]]);
    /// assert_eq!(index.blurred(far.view(), hits.scores.view()).rows, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepared(&self, codes: ArrayView2<f64>) -> Array2<f32> {
        rounded(codes, self.centre())
    }

    /// How many codes `[m, j]` of queries [`Self::prepared`] moves too far for neighbours with these distances or cosines `[m, top]`.
    pub fn blurred(&self, codes: ArrayView2<f64>, scores: ArrayView2<f64>) -> Blurred {
        blurred_queries(codes, self.centre(), scores, self.about.metric)
    }

    /// The codes `[n, k]`, in the file, less the [centre](Self::centre).
    pub fn codes(&self) -> ArrayView2<'_, f32> {
        let codes = bytemuck::cast_slice(&self.file[self.codes.clone()]);
        ArrayView2::from_shape(self.shape, codes).expect("checked when the file was opened")
    }

    /// The classes of the items, `[n]`, where they have some.
    pub fn labels(&self) -> Option<Vec<usize>> {
        let labels = self.file[self.labels.clone()?].as_chunks().0;
        Some(labels.iter().map(|&label| u32::from_le_bytes(label) as usize).collect())
    }

    /// The class or the number of item `i` in words, where it has one.
    pub fn label(&self, i: usize) -> Option<String> {
        if let Some(labels) = &self.labels {
            let label = u32::from_le_bytes(*self.file[labels.clone()].as_chunks().0.get(i)?);
            return self.classes.get(label as usize).cloned();
        }
        let value = *self.file[self.values.clone()?].as_chunks().0.get(i)?;
        Some(f64::from_le_bytes(value).to_string())
    }

    /// The name of item `i`, where it has one.
    pub fn name(&self, i: usize) -> Option<String> {
        let [ends, names] = self.names.clone()?;
        let end = |i: usize| Some(u64::from_le_bytes(*self.file[ends.clone()].as_chunks().0.get(i)?) as usize);
        let start = if i == 0 { 0 } else { end(i - 1)? };
        self.file[names].get(start..end(i)?).map(|name| String::from_utf8_lossy(name).into_owned())
    }
}

/// The metadata of a file.
fn entries(file: &[u8]) -> Result<HashMap<String, String>, String> {
    let (_, metadata) = SafeTensors::read_metadata(file).map_err(|e| format!("truncated or foreign ({e})"))?;
    Ok(metadata.metadata().clone().unwrap_or_default())
}

/// The tensors of items.
fn parts<'a>(items: &'a Items) -> Vec<Part<'a>> {
    let (n, k) = items.codes.dim();
    let bytes = match items.codes.as_slice().filter(|_| cfg!(target_endian = "little")) {
        Some(codes) => Cow::Borrowed(bytemuck::cast_slice(codes)),
        None => items.codes.iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let mut parts = vec![Part { name: "codes", dtype: Dtype::F32, shape: vec![n, k], bytes }];
    let mut add = |name, dtype, shape: usize, bytes: Vec<u8>| {
        parts.push(Part { name, dtype, shape: vec![shape], bytes: bytes.into() });
    };
    if let Some(centre) = items.centre {
        add("centre", Dtype::F64, k, centre.iter().flat_map(|v| v.to_le_bytes()).collect());
    }
    match items.labels {
        Some(Target::Classes { labels, .. }) => {
            add("labels", Dtype::U32, n, labels.iter().flat_map(|&label| (label as u32).to_le_bytes()).collect());
        }
        Some(Target::Values(values)) => {
            add("values", Dtype::F64, n, values.iter().flat_map(|v| v.to_le_bytes()).collect());
        }
        None => {}
    }
    if let Some(names) = items.names {
        let ends = names.iter().scan(0u64, |end, name| {
            *end += name.len() as u64;
            Some(*end)
        });
        add("name_ends", Dtype::U64, n, ends.flat_map(u64::to_le_bytes).collect());
        let all = names.concat().into_bytes();
        add("names", Dtype::U8, all.len(), all);
    }
    parts
}

/// The checksum of a header with names, types and shapes of the tensors.
fn outline(header: &str, infos: impl Iterator<Item = (String, Dtype, Vec<usize>)>) -> String {
    let mut infos: Vec<String> = infos.map(|(name, dtype, shape)| format!("{name:?} {dtype:?} {shape:?}")).collect();
    infos.sort_unstable();
    checksum(&format!("{header}\n{}", infos.join("\n")), std::iter::empty())
}

/// The JSON header of the safetensors file, padded so that the codes are aligned.
fn file_header(header: &str, parts: &[Part]) -> Result<Vec<u8>, String> {
    let mut end = 0;
    let info = |part: &Part| {
        let start = end;
        end += part.bytes.len();
        (part.name.to_owned(), TensorInfo { dtype: part.dtype, shape: part.shape.clone(), data_offsets: (start, end) })
    };
    let infos = parts.iter().map(info).collect();
    let mut views = vec![];
    for part in parts {
        let view = TensorView::new(part.dtype, part.shape.clone(), &part.bytes).map_err(|e| e.to_string())?;
        views.push((part.name, view));
    }
    let outlined = parts.iter().map(|part| (part.name.to_owned(), part.dtype, part.shape.clone()));
    let entries = HashMap::from([
        ("format".to_owned(), "mercer-index".to_owned()),
        ("version".to_owned(), VERSIONS[usize::from(parts.iter().any(|part| part.name == "centre"))].to_owned()),
        ("header".to_owned(), header.to_owned()),
        ("outline".to_owned(), outline(header, outlined)),
        ("checksum".to_owned(), checksum(header, views.into_iter())),
    ]);
    header_bytes(entries, infos)
}
