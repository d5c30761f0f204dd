//! NumPy's `.npy`: a magic string, a header written as a Python dictionary, then the raw elements.

use std::io::{self, Read, Write};
use std::path::Path;

use ndarray::{Array2, ArrayD, ArrayView, Dimension, IxDyn, ShapeBuilder};

use super::bytes::{self, Source, read_up_to};
use super::dataset::{Dataset, generated_columns, non_finite};
use super::matrix::Matrix;
use crate::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself refuses to evaluate longer headers.
const LONGEST_HEADER: u64 = 10_000;
/// Elements read or written at a time.
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
pub(super) fn read(path: &Path, name: &str) -> Result<Dataset> {
    let Source { mut reader, len } = bytes::open(path)?;
    Ok(dataset(read_array(path, "", &mut *reader, len)?, name))
}

/// The set of an array; an image shape is kept for `[n, h, w]` and for `[n, c, h, w]` of 1, 3 or 4 channels.
pub(super) fn dataset(Array { x, dims }: Array, name: &str) -> Dataset {
    let shape = match dims[..] {
        [_, h, w] => Some([1, h, w]),
        [_, c @ (1 | 3 | 4), h, w] => Some([c, h, w]),
        _ => None,
    };
    Dataset { name: name.into(), columns: generated_columns(x.d()), x, y: None, shape }
}

/// Reads one array from a stream of `len` bytes (where that is known). `within` names the array in an archive.
pub(super) fn read_array(path: &Path, within: &str, reader: &mut dyn Read, len: Option<u64>) -> Result<Array> {
    let fail = |what: String| Error::file(path, format!("{within}{what}"));
    let (header, header_len) = read_header(path, reader, &fail)?;
    let header = Header::parse(&header).map_err(fail)?;
    let (n, d) = header.rows_and_columns().map_err(fail)?;
    let promised = header.bytes().map_err(fail)?;
    let size_error = |got: u64| fail(header.wrong_length(promised, got));
    // The length of a plain file is checked before memory is allocated for its elements.
    if let Some(got) = len.map(|len| len.saturating_sub(header_len)).filter(|&got| got != promised) {
        return Err(size_error(got));
    }
    let mut elements =
        Elements { path, reader, header: &header, dim: (n, d), reserved: if len.is_some() { n * d } else { 0 } };
    let x = match header.kind {
        "f4" => elements.read(f32::from_le_bytes).map(Matrix::F32),
        "f8" => elements.read(f64::from_le_bytes).map(Matrix::F64),
        "u1" => elements.read(|[b]| b).map(|values| Matrix::U8 { values, divisor: 1.0 }),
        "b1" => elements.read(|[b]| u8::from(b != 0)).map(|values| Matrix::U8 { values, divisor: 1.0 }),
        "u2" => elements.read(|b| f64::from(u16::from_le_bytes(b))).map(Matrix::F64),
        "u4" => elements.read(|b| f64::from(u32::from_le_bytes(b))).map(Matrix::F64),
        "i1" => elements.read(|b| f64::from(i8::from_le_bytes(b))).map(Matrix::F64),
        "i2" => elements.read(|b| f64::from(i16::from_le_bytes(b))).map(Matrix::F64),
        "i4" => elements.read(|b| f64::from(i32::from_le_bytes(b))).map(Matrix::F64),
        // Whole numbers beyond 2^53 are rounded to the nearest double.
        "u8" => elements.read(|b| u64::from_le_bytes(b) as f64).map(Matrix::F64),
        _ => elements.read(|b| i64::from_le_bytes(b) as f64).map(Matrix::F64),
    };
    let x = x.map_err(|fault| match fault {
        Fault::Short(got) => size_error(got),
        Fault::Io(error) => error,
    })?;
    if !read_up_to(path, reader, 1)?.is_empty() {
        return Err(size_error(promised + 1));
    }
    if let Some(what) = non_finite(x.rows()) {
        return Err(fail(what));
    }
    Ok(Array { x, dims: header.dims })
}

/// The text of the header, and how many bytes precede the elements.
pub(super) fn read_header(path: &Path, reader: &mut dyn Read, fail: &dyn Fn(String) -> Error) -> Result<(String, u64)> {
    let truncated = || fail("is truncated within its header".into());
    let start = read_up_to(path, reader, 8)?;
    if start.is_empty() {
        return Err(fail("is empty".into()));
    }
    if start.len() < 8 || !start.starts_with(MAGIC) {
        return Err(fail("is not an .npy array: it does not start with the magic bytes \\x93NUMPY".into()));
    }
    let width = match start[6] {
        1 => 2,
        2 | 3 => 4,
        version => return Err(fail(format!("has the .npy version {version}; 1, 2 and 3 are known"))),
    };
    let length = read_up_to(path, reader, width)?;
    if length.len() as u64 != width {
        return Err(truncated());
    }
    let length = length.iter().rev().fold(0u64, |l, &b| l << 8 | u64::from(b));
    if length > LONGEST_HEADER {
        return Err(fail(format!("has a header of {length} bytes; more than {LONGEST_HEADER} is not plausible")));
    }
    let text = read_up_to(path, reader, length)?;
    if text.len() as u64 != length {
        return Err(truncated());
    }
    Ok((String::from_utf8_lossy(&text).into_owned(), 8 + width + length))
}

/// The elements of an array, still to be read.
struct Elements<'a> {
    path: &'a Path,
    reader: &'a mut dyn Read,
    header: &'a Header,
    /// Rows and columns of the flattened array.
    dim: (usize, usize),
    /// Elements to reserve memory for: none where the length of the file is not known.
    reserved: usize,
}

/// Why elements could not be read.
enum Fault {
    /// There are only so many bytes of whole elements.
    Short(u64),
    Io(Error),
}

impl Elements<'_> {
    /// Reads all elements, `[n, d]` in row-major order. `number` converts the little-endian bytes of one element. The
    /// conversion goes piece by piece, so that no second copy of the file is held.
    fn read<A: Copy, const S: usize>(&mut self, number: impl Fn([u8; S]) -> A) -> Result<Array2<A>, Fault> {
        let count = self.dim.0 * self.dim.1;
        let mut out = Vec::with_capacity(self.reserved);
        let mut piece = vec![[0u8; S]; PIECE.min(count)];
        while out.len() < count {
            let want = piece.len().min(count - out.len());
            let got = self.fill(piece[..want].as_flattened_mut()).map_err(Fault::Io)? / S;
            if self.header.big_endian {
                piece[..got].iter_mut().for_each(|element| element.reverse());
            }
            out.extend(piece[..got].iter().map(|&element| number(element)));
            if got < want {
                return Err(Fault::Short((out.len() * S) as u64));
            }
        }
        if self.header.fortran {
            let strided = ArrayD::from_shape_vec(IxDyn(&self.header.dims).f(), out).expect("counted above");
            out = strided.as_standard_layout().iter().copied().collect();
        }
        Ok(Array2::from_shape_vec(self.dim, out).expect("counted above"))
    }

    /// Reads until `piece` is full or the file ends; the number of bytes read.
    fn fill(&mut self, piece: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < piece.len() {
            match self.reader.read(&mut piece[got..]).map_err(|e| bytes::read_error(self.path, e))? {
                0 => break,
                k => got += k,
            }
        }
        Ok(got)
    }
}

pub(super) struct Header {
    /// One of [`TYPES`].
    pub kind: &'static str,
    pub big_endian: bool,
    pub fortran: bool,
    pub dims: Vec<usize>,
}

impl Header {
    /// Reads `{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }`.
    pub(super) fn parse(text: &str) -> Result<Header, String> {
        let descr = entry(text, "descr")?;
        let quote = descr.chars().next().filter(|q| matches!(q, '\'' | '"'));
        let Some(descr) = quote.and_then(|q| descr[1..].split(q).next()) else {
            return Err(format!("holds records, not numbers; the element type must be {KNOWN_TYPES}"));
        };
        let (order, code) = descr.split_at_checked(1).unwrap_or((descr, ""));
        let known = TYPES.into_iter().find(|known| *known == code);
        let kind = known.filter(|_| matches!(order, "<" | ">" | "|" | "="));
        let Some(kind) = kind else {
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
        Ok(Header { kind, big_endian: order == ">", fortran, dims })
    }

    /// Bytes of all elements.
    pub(super) fn bytes(&self) -> Result<u64, String> {
        let element = u64::from(self.kind.as_bytes()[1] - b'0');
        let bytes = self.dims.iter().try_fold(element, |p, &k| p.checked_mul(k as u64));
        bytes.ok_or_else(|| format!("the header states an impossible shape, {:?}", self.dims))
    }

    /// What is wrong with a file of `got` instead of `promised` bytes of elements.
    pub(super) fn wrong_length(&self, promised: u64, got: u64) -> String {
        let (how, more) = if got < promised { ("truncated", "") } else { ("too long", " or more") };
        format!(
            "is {how}: the header states {promised} bytes of elements (shape {:?}), but there are {got}{more}",
            self.dims
        )
    }

    /// `[n, d]` of the flattened rows.
    fn rows_and_columns(&self) -> Result<(usize, usize), String> {
        let dims = &self.dims;
        if dims.is_empty() || dims.len() > 4 {
            return Err(format!("has {} dimensions; 1 to 4 can be read", dims.len()));
        }
        if dims.contains(&0) {
            return Err(format!("is empty: its shape is {dims:?}"));
        }
        let d = dims[1..].iter().try_fold(1usize, |p, &k| p.checked_mul(k));
        let d = d.ok_or_else(|| format!("the header states an impossible shape, {dims:?}"))?;
        Ok((dims[0], d))
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

/// A number that can be written into an `.npy` file.
pub trait Element: sealed::Sealed {
    /// NumPy's code of the type, little-endian.
    const CODE: &'static str;
}

mod sealed {
    pub trait Sealed: bytemuck::NoUninit {
        /// The same number with its bytes in little-endian order.
        fn little_endian(self) -> Self;
    }
}

macro_rules! elements {
    ($($type:ty => $code:literal),*) => {$(
        impl sealed::Sealed for $type {
            fn little_endian(self) -> Self {
                <$type>::from_ne_bytes(self.to_le_bytes())
            }
        }
        impl Element for $type {
            const CODE: &'static str = $code;
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
    let mut piece = Vec::with_capacity(PIECE);
    let mut elements = array.iter().map(|value| value.little_endian()).peekable();
    while elements.peek().is_some() {
        piece.clear();
        piece.extend(elements.by_ref().take(PIECE));
        w.write_all(bytemuck::cast_slice(&piece))?;
    }
    Ok(())
}

/// Writes an array of any dimension as an `.npy` file, completely or not at all.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::data::{open, write_npy, ReadOptions};
/// let path = folder.path().join("x.npy");
/// write_npy(&path, ndarray::array![[1.0f32, 2.0], [3.0, 4.0]].view())?;
/// let back = open(path.to_str().unwrap(), &ReadOptions::default())?;
/// assert_eq!(back.x, ndarray::array![[1.0f32, 2.0], [3.0, 4.0]].into());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_npy<A: Element, D: Dimension>(path: impl AsRef<Path>, array: ArrayView<'_, A, D>) -> Result<()> {
    bytes::write_atomically(path, |w| {
        w.write_all(&header_bytes(A::CODE, array.shape()))?;
        write_elements(w, array)
    })
}

/// Writes an `.npy` file of `shape` row by row, as `rows` passes them to its argument, so that the array is never in memory.
/// The file is written completely or not at all.
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
    let mut failure = None;
    let written = bytes::write_atomically(path, |w| {
        w.write_all(&header_bytes(A::CODE, shape))?;
        let mut count = 0;
        let done = rows(&mut |row| {
            count += row.len();
            write_elements(w, ArrayView::from(row)).map_err(|e| Error::io(path, e))
        });
        let promised: usize = shape.iter().product();
        let done = done.and_then(|()| match count == promised {
            true => Ok(()),
            false => Err(Error::input(format!("{count} numbers do not fill an array of shape {shape:?}"))),
        });
        done.map_err(|error| {
            failure = Some(error);
            std::io::Error::other("the rows could not be made")
        })
    });
    failure.map_or(written, Err)
}

/// Version 1 header of a row-major array, padded so that the elements start at a multiple of 64 bytes.
fn header_bytes(code: &str, shape: &[usize]) -> Vec<u8> {
    let dims: String = shape.iter().map(|k| format!("{k}, ")).collect();
    let dims = if shape.len() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut text = format!("{{'descr': '{code}', 'fortran_order': False, 'shape': ({dims}), }}");
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    let mut header = [MAGIC, &[1, 0]].concat();
    header.extend_from_slice(&(text.len() as u16).to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header
}
