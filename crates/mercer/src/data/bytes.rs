//! Reading of files that may be gzipped.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::{Error, Result, fail_if};

/// An opened file, unpacked on the fly where it is gzipped, or an array in an archive.
pub(super) struct Source<'a> {
    path: &'a Path,
    /// Names the array in messages, for one in an archive; else empty.
    within: String,
    pub reader: Box<dyn Read + 'a>,
    /// Its length in bytes; unknown where it is compressed.
    pub len: Option<u64>,
}

impl<'a> Source<'a> {
    /// Opens a file, gzipped or not; the first two bytes decide.
    pub fn open(path: &'a Path) -> Result<Self> {
        let io = |e| Error::io(path, e);
        let mut file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        fail_if!(meta.is_dir(); Error::file(path, "is a folder, not a file"));
        let mut magic = Vec::new();
        (&mut file).take(2).read_to_end(&mut magic).map_err(io)?;
        file.rewind().map_err(io)?;
        let file = BufReader::with_capacity(1 << 16, file);
        let (reader, len): (Box<dyn Read>, _) = if magic == [0x1f, 0x8b] {
            (Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))), None)
        } else if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
            return Err(Error::file(path, "is called .gz but is not gzipped: it does not start with the bytes 1f 8b"));
        } else {
            (Box::new(file), Some(meta.len()))
        };
        Ok(Source { path, within: String::new(), reader, len })
    }

    /// The array `key` of an archive.
    pub fn array(path: &'a Path, key: &str, reader: impl Read + 'a) -> Self {
        Source { path, within: format!("array `{key}`: "), reader: Box::new(reader), len: None }
    }

    /// The error that says `what` is wrong with the content.
    pub fn fail(&self, what: impl std::fmt::Display) -> Error {
        Error::file(self.path, format!("{}{what}", self.within))
    }

    /// Up to `most` bytes, fewer at the end of the file. Memory grows with the bytes that are read, not with `most`.
    pub fn read_up_to(&mut self, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(most.min(1 << 16) as usize);
        self.reader.by_ref().take(most).read_to_end(&mut bytes).map_err(|e| read_error(self.path, e))?;
        Ok(bytes)
    }

    /// The next `count` bytes of a header.
    pub fn read_header(&mut self, count: u64) -> Result<Vec<u8>> {
        let bytes = self.read_up_to(count)?;
        fail_if!((bytes.len() as u64) < count; self.fail("is truncated within its header"));
        Ok(bytes)
    }
}

/// The error for a failed read of `path`: corrupt content, or an error of the system.
pub(super) fn read_error(path: &Path, e: io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match e.kind() {
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
        assert!(Source::open(&path).err().unwrap().to_string().contains("not gzipped"));
        assert!(Source::open(folder.path()).err().unwrap().to_string().contains("is a folder"));
        assert!(matches!(Source::open(&folder.path().join("none")).err().unwrap(), Error::Io { .. }));
    }
}
