//! Arrays that stay in their file: an `.npy` of floating-point numbers, mapped into memory and read as it is used.

use super::bytes;
use super::npy::{Header, Kind, read_header};
use crate::{Error, Result};
use rayon::prelude::*;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An array `[S, …]` in an `.npy` file of `f4` or `f8` in C order, of any size: what is not looked at is not in memory.
///
/// The file must not be cut short while it is open: the system ends a program that reads past the end of a mapped file.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::data::{MappedArray, write_npy};
/// let path = folder.path().join("f.npy");
/// write_npy(&path, ndarray::array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]].view())?;
/// let array = MappedArray::open(&path)?;
/// assert_eq!(array.dims(), [2, 3]);
/// let mut part = [0.0; 2];
/// array.read(4, &mut part); // from the fifth number on
/// assert_eq!(part, [5.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MappedArray {
    map: Map,
    /// Where the elements start in the file.
    start: usize,
    single: bool,
    dims: Vec<usize>,
    path: PathBuf,
}

impl MappedArray {
    /// Maps a file, after a look at its header and its length.
    pub fn open(path: impl AsRef<Path>) -> Result<MappedArray> {
        let path = path.as_ref();
        let fail = |what: String| Error::file(path, what);
        let bytes::Source { mut reader, len } = bytes::open(path)?;
        let Some(len) = len else {
            return Err(fail("is gzipped, so that it cannot stay in its file; unpack it first".into()));
        };
        let (text, start) = read_header(path, &mut *reader, &fail)?;
        let Header { kind, big_endian, fortran, dims } = Header::parse(&text).map_err(fail)?;
        let single = match kind {
            Kind::F4 => true,
            Kind::F8 => false,
            _ => {
                return Err(fail(
                    "holds whole numbers; functions are f4 or f8: convert it with .astype(\"f4\")".into(),
                ));
            }
        };
        if big_endian || fortran {
            return Err(fail("must be little-endian and in C order; write it with numpy.ascontiguousarray(F)".into()));
        }
        if dims.is_empty() || dims.contains(&0) {
            return Err(fail(format!("is empty: its shape is {dims:?}")));
        }
        let size = if single { 4 } else { 8 };
        let promised = dims.iter().try_fold(size, |p: u64, &k| p.checked_mul(k as u64));
        match promised {
            Some(promised) if promised == len - start => {}
            Some(promised) => {
                let (how, got) = (if len - start < promised { "truncated" } else { "too long" }, len - start);
                return Err(fail(format!(
                    "is {how}: the header promises {promised} bytes of elements (shape {dims:?}), but there are {got}"
                )));
            }
            None => return Err(fail(format!("the header promises an impossible shape, {dims:?}"))),
        }
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let map = Map::new(&file, len as usize).map_err(|e| Error::io(path, e))?;
        Ok(MappedArray { map, start: start as usize, single, dims, path: path.to_owned() })
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `out ← a[at..at + out.len()]` of the flattened array.
    pub fn read(&self, at: usize, out: &mut [f64]) {
        let size = if self.single { 4 } else { 8 };
        let range = self.start + at * size..self.start + (at + out.len()) * size;
        let raw = self.map.bytes(range);
        if self.single {
            for (out, raw) in out.iter_mut().zip(raw.chunks_exact(4)) {
                *out = f64::from(f32::from_le_bytes(raw.try_into().expect("four bytes")));
            }
        } else {
            for (out, raw) in out.iter_mut().zip(raw.chunks_exact(8)) {
                *out = f64::from_le_bytes(raw.try_into().expect("eight bytes"));
            }
        }
    }

    /// [`Self::read`] on all threads, for large parts.
    pub fn read_in_parallel(&self, at: usize, out: &mut [f64]) {
        const PIECE: usize = 1 << 16;
        out.par_chunks_mut(PIECE).enumerate().for_each(|(i, out)| self.read(at + i * PIECE, out));
    }
}

/// A file in memory, read-only.
#[cfg(unix)]
#[derive(Debug)]
struct Map {
    start: *const u8,
    len: usize,
}

// SAFETY: the mapping is never written through, and lives until the one owner drops it.
#[cfg(unix)]
unsafe impl Send for Map {}
// SAFETY: as above.
#[cfg(unix)]
unsafe impl Sync for Map {}

#[cfg(unix)]
impl Map {
    /// Maps the first `len` bytes of the file; `len` is above zero and the file at least as long.
    fn new(file: &File, len: usize) -> std::io::Result<Map> {
        use std::os::fd::AsRawFd;
        // SAFETY: a fresh private, read-only mapping of an open file; nothing else refers to its addresses. It outlives
        // the descriptor by design of mmap.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Map { start: start.cast_const().cast(), len })
    }

    /// Bytes of the file. They are numbers of any value, so that another program's writing into the file can change results
    /// but not break a rule of the language; cutting it short ends this program (SIGBUS), which [`MappedArray`] says.
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        // SAFETY: the range lies within the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }
}

#[cfg(unix)]
impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the very range that was mapped, of which no slice outlives `self`.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.len) };
    }
}

/// Where files cannot be mapped, they are read.
#[cfg(not(unix))]
#[derive(Debug)]
struct Map(Vec<u8>);

#[cfg(not(unix))]
impl Map {
    fn new(mut file: &File, len: usize) -> std::io::Result<Map> {
        let mut bytes = Vec::with_capacity(len);
        std::io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(Map(bytes))
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write_npy;
    use ndarray::Array3;

    fn refused(bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.npy");
        std::fs::write(&path, bytes).unwrap();
        MappedArray::open(&path).unwrap_err().to_string()
    }

    #[test]
    fn both_precisions_are_read_from_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let f = Array3::from_shape_fn((3, 40, 5), |(s, n, c)| (s * 1000 + n * 10 + c) as f64 / 7.0);
        let (single, double) = (folder.path().join("f4.npy"), folder.path().join("f8.npy"));
        write_npy(&single, f.mapv(|v| v as f32).view()).unwrap();
        write_npy(&double, f.view()).unwrap();
        for (path, single) in [(single, true), (double, false)] {
            let mapped = MappedArray::open(&path).unwrap();
            assert_eq!(mapped.dims(), [3, 40, 5]);
            for (at, len) in [(0, 600), (7, 50), (599, 1), (600, 0)] {
                let mut part = vec![0.0; len];
                mapped.read(at, &mut part);
                for (got, want) in part.iter().zip(f.iter().skip(at)) {
                    assert_eq!(*got, if single { f64::from(*want as f32) } else { *want });
                }
            }
        }
    }

    #[test]
    fn what_does_not_hold_such_numbers_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_npy(&path, ndarray::array![[1.0, 2.0], [3.0, 4.0]].view()).unwrap();
        let good = std::fs::read(&path).unwrap();
        assert!(refused(&good[..good.len() - 3]).contains("truncated"));
        assert!(refused(&[&good[..], b"x"].concat()).contains("too long"));
        assert!(refused(&good[..20]).contains("truncated within its header"));
        assert!(refused(b"").contains("is empty"));
        let header = |from: &str, to: &str| {
            let text = String::from_utf8_lossy(&good[10..128]).replace(from, to);
            [&good[..10], text.as_bytes(), &good[128..]].concat()
        };
        assert!(refused(&header("<f8", ">f8")).contains("little-endian"));
        assert!(refused(&header("<f8", "<i8")).contains("whole numbers"));
        assert!(refused(&header("False", "True ")).contains("C order"));
        assert!(refused(&header("(2, 2)", "(2, 0)")).contains("empty"));
        assert!(MappedArray::open(folder.path()).is_err());
    }
}
