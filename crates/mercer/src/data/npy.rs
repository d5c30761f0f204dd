//! NumPy's `.npy`: a magic string, a header written as a Python dictionary, then the raw elements.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ndarray::{Array2, ArrayD, ArrayView, Dimension, IxDyn, ShapeBuilder};

use super::atomic::{check_space, try_write_atomically, write_atomically};
use super::bytes::Source;
use super::dataset::{Dataset, generated_columns, non_finite, unfit};
use super::matrix::Matrix;
use crate::budget::Budget;
use crate::{Error, Result, fail_if};

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself refuses to evaluate longer headers.
const LONGEST_HEADER: u64 = 10_000;
/// Elements read at a time.
const PIECE: usize = 1 << 13;
/// The element types that can be read: a letter and the number of bytes.
const TYPES: [&str; 11] = ["f4", "f8", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1"];
const KNOWN_TYPES: &str = "f4, f8, u1, u2, u4, u8, i1, i2, i4, i8 or b1";

/// An array of a file: its rows flattened, and its shape.
pub(super) struct Array {
    /// `[n, product of the other dimensions]`, in row-major order, finite.
    pub x: Matrix,
    /// The dimensions in the file.
    pub dims: Vec<usize>,
}

/// Reads an `.npy` file, gzipped or not.
pub(super) fn read(path: &Path, name: &str, budget: Budget) -> Result<Dataset> {
    Ok(dataset(read_array(Source::open(path, budget)?)?, name))
}

/// The set of an array; an image shape is kept for `[n, h, w]` and for `[n, c, h, w]` of 1, 3 or 4 channels.
pub(super) fn dataset(Array { x, dims }: Array, name: &str) -> Dataset {
    let shape = match dims[..] {
        [_, h, w] => Some([1, h, w]),
        [_, c @ (1 | 3 | 4), h, w] => Some([c, h, w]),
        _ => None,
    };
    Dataset { name: name.into(), columns: generated_columns(x.d()), x, y: None, some_y: None, shape }
}

/// Reads one array.
pub(super) fn read_array(mut source: Source) -> Result<Array> {
    let header = Header::read(&mut source)?;
    header.check_dims(&source)?;
    // The length of a plain file is checked before memory is allocated for its elements.
    if let Some(len) = source.len {
        header.check_length(&source, len.saturating_sub(header.start))?;
    }
    let x = header.matrix(&mut source)?;
    let more = source.read_up_to(1)?.len() as u64;
    header.check_length(&source, header.bytes + more)?;
    match non_finite(x.rows()) {
        Some(what) => Err(source.fail(what)),
        None => Ok(Array { x, dims: header.dims }),
    }
}

/// An `.npy` file that is read some rows at a time.
pub(super) struct NpyRows {
    pub path: PathBuf,
    header: Header,
}

impl NpyRows {
    /// Opens a file whose rows lie one after the other.
    pub fn open(path: &Path) -> Result<NpyRows> {
        let mut source = Source::open(path, Budget::of(u64::MAX))?;
        let header = Header::read(&mut source)?;
        let Some(len) = source.len else {
            return Err(source.fail("is gzipped, and is read whole or not at all; unpack it first"));
        };
        header.check_dims(&source)?;
        header.check_length(&source, len.saturating_sub(header.start))?;
        fail_if!(header.fortran && header.dims.len() > 1; source.fail(
            "is in Fortran order, column by column, and cannot be read a few rows at a time; write it with \
             numpy.ascontiguousarray(X)"
        ));
        Ok(NpyRows { path: path.to_owned(), header })
    }

    pub fn n(&self) -> usize {
        self.header.dims[0]
    }

    /// Numbers of a row.
    pub fn d(&self) -> usize {
        self.header.dims[1..].iter().product()
    }

    /// The dimensions in the file.
    pub fn dims(&self) -> &[usize] {
        &self.header.dims
    }

    /// Bytes of a number in memory.
    pub fn element(&self) -> u64 {
        match self.header.kind {
            "f4" => 4,
            "u1" | "b1" => 1,
            _ => 8,
        }
    }

    /// Some rows, all finite.
    pub fn read(&self, rows: Range<usize>) -> Result<Array> {
        let Header { kind, big_endian, .. } = self.header;
        let dims: Vec<usize> = std::iter::once(rows.len()).chain(self.header.dims[1..].iter().copied()).collect();
        let row = self.header.bytes / self.header.dims[0] as u64;
        let (start, bytes) = (self.header.start + row * rows.start as u64, row * rows.len() as u64);
        let io = |e| Error::io(&self.path, e);
        let mut file = File::open(&self.path).map_err(io)?;
        file.seek(SeekFrom::Start(start)).map_err(io)?;
        let header = Header { kind, big_endian, fortran: false, dims, bytes, start };
        let mut source = Source::part(&self.path, file, bytes);
        let x = header.matrix(&mut source)?;
        match x.rows().non_finite() {
            Some((i, j, v)) => Err(source.fail(unfit(rows.start + i, j, v))),
            None => Ok(Array { x, dims: header.dims }),
        }
    }
}

pub(super) struct Header {
    /// One of [`TYPES`].
    pub kind: &'static str,
    pub big_endian: bool,
    pub fortran: bool,
    pub dims: Vec<usize>,
    /// Bytes of all elements.
    bytes: u64,
    /// Bytes before the elements.
    pub start: u64,
}

impl Header {
    /// Reads the header of an array.
    pub fn read(source: &mut Source) -> Result<Header> {
        let start = source.read_up_to(8)?;
        fail_if!(start.is_empty(); source.fail("is empty"));
        if start.len() < 8 || !start.starts_with(MAGIC) {
            return Err(source.fail("is not an .npy array: it does not start with the magic bytes \\x93NUMPY"));
        }
        let width = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(source.fail(format!("has the .npy version {version}; 1, 2 and 3 are known"))),
        };
        let length = source.read_header(width)?.iter().rev().fold(0u64, |l, &b| l << 8 | u64::from(b));
        fail_if!(length > LONGEST_HEADER;
            source.fail(format!("has a header of {length} bytes; more than {LONGEST_HEADER} is not plausible"))
        );
        let text = source.read_header(length)?;
        Header::parse(&String::from_utf8_lossy(&text), 8 + width + length).map_err(|what| source.fail(what))
    }

    /// Reads `{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }`.
    fn parse(text: &str, start: u64) -> Result<Header, String> {
        let descr = entry(text, "descr")?;
        let quote = descr.chars().next().filter(|q| matches!(q, '\'' | '"'));
        let Some(descr) = quote.and_then(|q| descr[1..].split(q).next()) else {
            return Err(format!("holds records, not numbers; the element type must be {KNOWN_TYPES}"));
        };
        let (order, code) = descr.split_at_checked(1).unwrap_or((descr, ""));
        let known = TYPES.into_iter().find(|known| *known == code);
        let Some(kind) = known.filter(|_| matches!(order, "<" | ">" | "|" | "=")) else {
            return Err(format!("has elements of type `{descr}`; convert them to {KNOWN_TYPES}"));
        };
        let fortran = entry(text, "fortran_order")?;
        let fortran = match (fortran.starts_with("True"), fortran.starts_with("False")) {
            (false, false) => return Err("has a header whose fortran_order is neither True nor False".into()),
            (fortran, _) => fortran,
        };
        let shape = entry(text, "shape")?;
        let dims = shape.strip_prefix('(').and_then(|s| s.split_once(')')).and_then(|(inside, _)| dimensions(inside));
        let dims = dims.ok_or("has a header whose shape is not a tuple of whole numbers")?;
        let element = u64::from(kind.as_bytes()[1] - b'0');
        let bytes = dims.iter().try_fold(element, |p, &k| p.checked_mul(k as u64));
        let bytes = bytes.filter(|&bytes| usize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or_else(|| format!("the header states an impossible shape, {dims:?}"))?;
        Ok(Header { kind, big_endian: order == ">", fortran, dims, bytes, start })
    }

    /// Refuses an array that has no rows, or too many dimensions.
    fn check_dims(&self, source: &Source) -> Result<()> {
        let dims = &self.dims;
        fail_if!(dims.is_empty() || dims.len() > 4; source.fail(format!("has {} dimensions; 1 to 4 can be read", dims.len())));
        fail_if!(dims.contains(&0); source.fail(format!("is empty: its shape is {dims:?}")));
        Ok(())
    }

    /// Refuses a file of another length: `got` bytes follow the header.
    pub fn check_length(&self, source: &Source, got: u64) -> Result<()> {
        let Header { bytes, dims, .. } = self;
        let (how, more) = match got.cmp(bytes) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => ("truncated", ""),
            Ordering::Greater => ("too long", " or more"),
        };
        Err(source.fail(format!(
            "is {how}: the header states {bytes} bytes of elements (shape {dims:?}), but there are {got}{more}"
        )))
    }

    /// Reads all elements in the type in which they are kept, `[n, product of the other dimensions]`.
    fn matrix(&self, from: &mut Source) -> Result<Matrix> {
        Ok(match self.kind {
            "f4" => self.elements(from, f32::from_le_bytes)?.into(),
            "f8" => self.elements(from, f64::from_le_bytes)?.into(),
            "u1" => Matrix::U8 { values: self.elements(from, |[b]| b)?, divisor: 1.0 },
            "b1" => Matrix::U8 { values: self.elements(from, |[b]| u8::from(b != 0))?, divisor: 1.0 },
            "u2" => self.elements(from, |b| f64::from(u16::from_le_bytes(b)))?.into(),
            "u4" => self.elements(from, |b| f64::from(u32::from_le_bytes(b)))?.into(),
            "i1" => self.elements(from, |b| f64::from(i8::from_le_bytes(b)))?.into(),
            "i2" => self.elements(from, |b| f64::from(i16::from_le_bytes(b)))?.into(),
            "i4" => self.elements(from, |b| f64::from(i32::from_le_bytes(b)))?.into(),
            // Whole numbers beyond 2^53 are rounded to the nearest double.
            "u8" => self.elements(from, |b| u64::from_le_bytes(b) as f64)?.into(),
            _ => self.elements(from, |b| i64::from_le_bytes(b) as f64)?.into(),
        })
    }

    /// Reads all elements, `[n, product of the other dimensions]` in row-major order. `number` converts the little-endian
    /// bytes of one element. The conversion goes piece by piece, so that no second copy of the file is held.
    fn elements<A: Copy, const S: usize>(
        &self,
        source: &mut Source,
        number: impl Fn([u8; S]) -> A,
    ) -> Result<Array2<A>> {
        let count: usize = self.dims.iter().product();
        // Elements in Fortran order are copied once more.
        let copies = if self.fortran { 2 } else { 1 };
        source.require((copies * size_of::<A>() as u64).saturating_mul(count as u64))?;
        // No memory is reserved where the length of the file is not known.
        let mut out = Vec::with_capacity(if source.len.is_some() { count } else { 0 });
        while out.len() < count {
            let want = PIECE.min(count - out.len());
            let mut piece = source.read_up_to((want * S) as u64)?;
            let (elements, _) = piece.as_chunks_mut::<S>();
            if self.big_endian {
                elements.iter_mut().for_each(|element| element.reverse());
            }
            out.extend(elements.iter().map(|&element| number(element)));
            if elements.len() < want {
                self.check_length(source, (out.len() * S) as u64)?;
            }
        }
        if self.fortran {
            let strided = ArrayD::from_shape_vec(IxDyn(&self.dims).f(), out).expect("counted above");
            out = strided.as_standard_layout().iter().copied().collect();
        }
        Ok(Array2::from_shape_vec((self.dims[0], count / self.dims[0]), out).expect("counted above"))
    }
}

/// What follows `'key':` in the header.
fn entry<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let at = [format!("'{key}'"), format!("\"{key}\"")].iter().find_map(|k| text.find(k).map(|i| i + k.len()));
    let value = at.and_then(|i| text[i..].trim_start().strip_prefix(':')).map(str::trim_start);
    value.ok_or_else(|| format!("has a header without `{key}`"))
}

/// `3, 4` or `3,` as whole numbers.
fn dimensions(inside: &str) -> Option<Vec<usize>> {
    let inside = inside.trim();
    let inside = inside.strip_suffix(',').unwrap_or(inside);
    if inside.trim().is_empty() {
        return Some(vec![]);
    }
    inside.split(',').map(|part| part.trim().parse().ok()).collect()
}

/// A number that can be written into an `.npy` file. Example: [`write_npy_rows`].
pub trait Element: bytemuck::NoUninit {
    /// NumPy's code of the type, little-endian.
    const CODE: &'static str;

    /// The same number with its bytes in little-endian order.
    fn little_endian(self) -> Self;

    /// Whether it is neither NaN nor infinite.
    fn finite(self) -> bool;
}

macro_rules! elements {
    ($($type:ty => $code:literal),*) => {$(
        impl Element for $type {
            const CODE: &'static str = $code;

            fn little_endian(self) -> Self {
                <$type>::from_ne_bytes(self.to_le_bytes())
            }

            fn finite(self) -> bool {
                (self as f64).is_finite()
            }
        }
    )*};
}
elements!(f32 => "<f4", f64 => "<f8", i64 => "<i8");

/// Writes the elements in row-major order, little-endian; those of a row-major array without a copy.
pub(crate) fn write_elements<A: Element, D: Dimension>(
    w: &mut dyn Write,
    array: ArrayView<'_, A, D>,
) -> io::Result<()> {
    if let Some(elements) = array.as_slice().filter(|_| cfg!(target_endian = "little")) {
        return w.write_all(bytemuck::cast_slice(elements));
    }
    array.iter().try_for_each(|value| w.write_all(bytemuck::bytes_of(&value.little_endian())))
}

/// Refuses to write numbers that are not finite, which no reader here accepts.
#[doc(hidden)]
pub fn check_finite<A: Element, D: Dimension>(path: &Path, array: ArrayView<'_, A, D>) -> Result<()> {
    match array.iter().position(|value| !value.finite()) {
        None => Ok(()),
        Some(i) => Err(Error::file(
            path,
            format!("is not written: number {} of {} (counted from 1) is not finite", i + 1, array.len()),
        )),
    }
}

/// Writes an array of any dimension as an `.npy` file, completely or not at all. Numbers that are not finite are refused.
/// Example: [`crate::data::MappedArray`].
pub fn write_npy<A: Element, D: Dimension>(path: impl AsRef<Path>, array: ArrayView<'_, A, D>) -> Result<()> {
    check_finite(path.as_ref(), array.view())?;
    check_space(path.as_ref(), bytes_of(A::CODE, array.shape()))?;
    write_atomically(path, |w| {
        w.write_all(&header_bytes(A::CODE, array.shape()))?;
        write_elements(w, array)
    })
}

/// Writes an `.npy` file of `shape` row by row, as `rows` passes them to its argument, so that the array is never in memory.
/// The file is written completely or not at all, and holds finite numbers only.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::data::{open, write_npy_rows, ReadOptions};
/// let path = folder.path().join("x.npy");
/// write_npy_rows(&path, &[3, 2], |put| (0..3).try_for_each(|i| put(&[i as f32, 0.5])))?;
/// assert_eq!(open(path.to_str().unwrap(), &ReadOptions::default())?.x.rows().get(2, 0), 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_npy_rows<A: Element>(
    path: impl AsRef<Path>,
    shape: &[usize],
    rows: impl FnOnce(&mut dyn FnMut(&[A]) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    check_space(path, bytes_of(A::CODE, shape))?;
    try_write_atomically(path, |w| {
        w.write_all(&header_bytes(A::CODE, shape)).map_err(|e| Error::io(path, e))?;
        let mut count = 0;
        rows(&mut |row| {
            count += row.len();
            check_finite(path, ArrayView::from(row))?;
            write_elements(w, ArrayView::from(row)).map_err(|e| Error::io(path, e))
        })?;
        let all: usize = shape.iter().product();
        fail_if!(count != all, "{count} numbers do not fill an array of shape {shape:?}");
        Ok(())
    })
}

/// The bytes of an array, whose code ends in those of a number, such as `<f8`.
fn bytes_of(code: &str, shape: &[usize]) -> u64 {
    let number = code.bytes().next_back().map_or(1, |digit| u64::from(digit - b'0'));
    shape.iter().fold(number, |bytes, &size| bytes.saturating_mul(size as u64))
}

/// Version 1 header of a row-major array, padded so that the elements start at a multiple of 64 bytes.
fn header_bytes(code: &str, shape: &[usize]) -> Vec<u8> {
    let dims: String = shape.iter().map(|k| format!("{k}, ")).collect();
    let dims = if shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': ({dims}), }}");
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}
