//! Reading of files that may be gzipped.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::budget::Budget;
use crate::{Error, Result, fail_if};

/// The source that stands for standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// An opened file, unpacked on the fly where it is gzipped, or an array in an archive.
pub(super) struct Source<'a> {
    pub path: &'a Path,
    /// Names the array in messages, for one in an archive; else empty.
    within: String,
    pub reader: Box<dyn Read + 'a>,
    /// Its length in bytes; unknown where it is compressed.
    pub len: Option<u64>,
    /// What its content may take.
    pub budget: Budget,
}

impl<'a> Source<'a> {
    /// Opens a file, gzipped or not; the first two bytes decide.
    pub fn open(path: &'a Path, budget: Budget) -> Result<Self> {
        let io = |e| Error::io(path, e);
        if path == Path::new(STANDARD_INPUT) {
            return Source::standard_input(path, budget);
        }
        let file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        fail_if!(meta.is_dir(); Error::file(path, "is a folder, not a file"));
        let (reader, packed) = unpacked(file).map_err(io)?;
        let called = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        fail_if!(called && !packed; Error::file(
            path, "is called .gz but is not gzipped: it does not start with the bytes 1f 8b"
        ));
        // A pipe or a device has no length.
        let len = (!packed && meta.is_file()).then_some(meta.len());
        Ok(Source { path, within: String::new(), reader, len, budget })
    }

    /// What a program before this one in a pipe writes, gzipped or not.
    fn standard_input(path: &'a Path, budget: Budget) -> Result<Self> {
        let (reader, _) = unpacked(io::stdin()).map_err(|e| Error::io(path, e))?;
        Ok(Source { path, within: String::new(), reader, len: None, budget })
    }

    /// The first bytes, up to `count`, which are read again afterwards.
    pub fn peek(&mut self, count: u64) -> Result<Vec<u8>> {
        let head = self.read_up_to(count)?;
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(io::Cursor::new(head.clone()).chain(rest));
        Ok(head)
    }

    /// The array `key` of an archive, which says that it has `len` bytes.
    pub fn array(path: &'a Path, key: &str, reader: impl Read + 'a, len: u64, budget: Budget) -> Self {
        Source { path, within: format!("array `{key}`: "), reader: Box::new(reader), len: Some(len), budget }
    }

    /// The next `len` bytes of an open file, of which the caller knows that they fit into memory.
    pub fn part(path: &'a Path, file: File, len: u64) -> Self {
        let reader = Box::new(BufReader::with_capacity(1 << 16, file.take(len)));
        Source { path, within: String::new(), reader, len: Some(len), budget: Budget::of(u64::MAX) }
    }

    /// The error that says `what` is wrong with the content.
    pub fn fail(&self, what: impl std::fmt::Display) -> Error {
        Error::file(self.path, format!("{}{what}", self.within))
    }

    /// Refuses a content of so many bytes in memory, if the budget has no room for it.
    pub fn require(&self, bytes: u64) -> Result<()> {
        require(self.budget, self.path, bytes)
    }

    /// Up to `most` bytes, fewer at the end of the file. Memory grows with the bytes that are read, not with `most`.
    pub fn read_up_to(&mut self, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(most.min(1 << 16) as usize);
        let room = self.budget.bytes().saturating_add(1);
        self.reader.by_ref().take(most.min(room)).read_to_end(&mut bytes).map_err(|e| read_error(self.path, e))?;
        self.require(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// The next `count` bytes of a header.
    pub fn read_header(&mut self, count: u64) -> Result<Vec<u8>> {
        let bytes = self.read_up_to(count)?;
        fail_if!((bytes.len() as u64) < count; self.fail("is truncated within its header"));
        Ok(bytes)
    }
}

/// A stream, unpacked where its first two bytes say that it is gzipped, and whether they do.
fn unpacked<'a>(mut stream: impl Read + 'a) -> io::Result<(Box<dyn Read + 'a>, bool)> {
    let mut magic = Vec::new();
    stream.by_ref().take(2).read_to_end(&mut magic)?;
    let packed = magic == [0x1f, 0x8b];
    let whole = BufReader::with_capacity(1 << 16, io::Cursor::new(magic).chain(stream));
    let reader: Box<dyn Read> =
        if packed { Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(whole))) } else { Box::new(whole) };
    Ok((reader, packed))
}

/// Refuses a content of `path` that takes so many bytes, if the budget has no room for it.
pub(super) fn require(budget: Budget, path: &Path, bytes: u64) -> Result<()> {
    let what = format!("the content of {}", path.display());
    budget.require(what, bytes, concat!("allow ", crate::advice!(MoreMemory), ", or use a smaller file"))
}

/// The error for a failed read of `path`: corrupt content, or an error of the system.
pub(super) fn read_error(path: &Path, e: io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, OutOfMemory, UnexpectedEof};
    match e.kind() {
        Other => Error::file(path, e.to_string()),
        OutOfMemory => Error::file(path, "has a row that is larger than the memory budget; is it a table?"),
        UnexpectedEof | InvalidData | InvalidInput => {
            Error::file(path, format!("the compressed data is truncated or corrupt ({e})"))
        }
        _ => Error::io(path, e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_gzip_and_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv.gz");
        std::fs::write(&path, "1,2\n").unwrap();
        let open = |path: &Path| Source::open(path, Budget::of(1 << 20)).err().unwrap();
        assert!(open(&path).to_string().contains("not gzipped"));
        assert!(open(folder.path()).to_string().contains("is a folder"));
        assert!(matches!(open(&folder.path().join("none")), Error::Io { .. }));
    }
}
