//! Arrays that stay in their file: an `.npy` file of floating-point numbers, mapped into memory and read on demand.

use super::bytes::Source;
use super::npy::Header;
use crate::budget::Budget;
use crate::{Error, Result};
use memmap2::Mmap;
use rayon::prelude::*;
use std::fs::File;
use std::path::{Path, PathBuf};

/// An array `[S, …]` in an `.npy` file of `f4` or `f8` in C order. It may be larger than memory: parts are loaded when read.
///
/// The file must not be truncated while it is open. No check can exclude that: the system ends a program that reads past the
/// end of a mapped file (by SIGBUS on Unix), unless the program handles that signal, as `mercer` does to name the reason.
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
    map: Mmap,
    /// Position of the first element in the file, in bytes.
    start: usize,
    /// Whether the elements are f32; else they are f64.
    single: bool,
    dims: Vec<usize>,
    path: PathBuf,
}

impl MappedArray {
    /// Maps a file, after checking its header and its length.
    pub fn open(path: impl AsRef<Path>) -> Result<MappedArray> {
        let path = path.as_ref();
        // The elements stay in the file.
        let mut source = Source::open(path, Budget::of(u64::MAX))?;
        let Some(len) = source.len else {
            return Err(source.fail("is gzipped and cannot be mapped into memory; unpack it first"));
        };
        let header = Header::read(&mut source)?;
        if !matches!(header.kind, "f4" | "f8") {
            return Err(source.fail("holds whole numbers; functions are f4 or f8: convert it with .astype(\"f4\")"));
        }
        if header.big_endian || header.fortran {
            let what = "must be little-endian and in C order; write it with numpy.ascontiguousarray(F)";
            return Err(source.fail(what));
        }
        if header.dims.is_empty() || header.dims.contains(&0) {
            return Err(source.fail(format!("is empty: its shape is {:?}", header.dims)));
        }
        header.check_length(&source, len - header.start)?;
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        // SAFETY: the mapping is read-only, and any bytes are valid numbers. A file that another program changes can change
        // results; one that it truncates ends this program, as the documentation says.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        let (start, single) = (header.start as usize, header.kind == "f4");
        Ok(MappedArray { map, start, single, dims: header.dims, path: path.to_owned() })
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
        fn convert<const S: usize>(raw: &[u8], out: &mut [f64], number: impl Fn([u8; S]) -> f64) {
            out.iter_mut().zip(raw.as_chunks().0).for_each(|(out, &raw)| *out = number(raw));
        }
        let size = if self.single { 4 } else { 8 };
        let raw = &self.map[self.start + at * size..self.start + (at + out.len()) * size];
        if self.single {
            convert(raw, out, |raw| f64::from(f32::from_le_bytes(raw)));
        } else {
            convert(raw, out, f64::from_le_bytes);
        }
    }

    /// The same as [`Self::read`], on all threads; for large parts.
    pub fn read_in_parallel(&self, at: usize, out: &mut [f64]) {
        const PIECE: usize = 1 << 16;
        out.par_chunks_mut(PIECE).enumerate().for_each(|(i, out)| self.read(at + i * PIECE, out));
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
    fn other_files_are_refused_with_the_reason() {
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
