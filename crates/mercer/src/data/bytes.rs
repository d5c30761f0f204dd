//! Reading of files that may be gzipped, and writing of files completely or not at all.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::{Error, Result};

/// An opened file, unpacked on the fly where it is gzipped.
pub(super) struct Source {
    pub reader: Box<dyn Read>,
    /// Its length in bytes; unknown for a gzipped file.
    pub len: Option<u64>,
}

/// Opens a file, gzipped or not; the first two bytes decide.
pub(super) fn open(path: &Path) -> Result<Source> {
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let meta = file.metadata().map_err(|e| Error::io(path, e))?;
    if meta.is_dir() {
        return Err(Error::file(path, "is a folder, not a file"));
    }
    let mut magic = Vec::new();
    (&mut file).take(2).read_to_end(&mut magic).map_err(|e| Error::io(path, e))?;
    file.rewind().map_err(|e| Error::io(path, e))?;
    let file = BufReader::with_capacity(1 << 16, file);
    if magic == [0x1f, 0x8b] {
        let unpacked = BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file));
        return Ok(Source { reader: Box::new(unpacked), len: None });
    }
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
        return Err(Error::file(path, "is called .gz but is not gzipped: it does not start with the bytes 1f 8b"));
    }
    Ok(Source { reader: Box::new(file), len: Some(meta.len()) })
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

/// Up to `most` bytes, fewer at the end of the file. Memory grows with the bytes that are read, not with `most`.
pub(super) fn read_up_to(path: &Path, reader: &mut dyn Read, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most).read_to_end(&mut bytes).map_err(|e| read_error(path, e))?;
    Ok(bytes)
}

/// Exactly `count` bytes and then the end of the file; `what` names them in the message.
pub(super) fn read_exactly(path: &Path, reader: &mut dyn Read, count: u64, what: &str) -> Result<Vec<u8>> {
    let bytes = read_up_to(path, reader, count.saturating_add(1))?;
    let got = bytes.len() as u64;
    if got < count {
        return Err(Error::file(path, format!("is truncated: {what} take {count} bytes, but only {got} are there")));
    }
    if got > count {
        return Err(Error::file(path, format!("is too long: bytes follow after the {count} bytes of {what}")));
    }
    Ok(bytes)
}

/// Writes a file completely or not at all: first a temporary file beside it, which is then renamed.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("note.txt");
/// mercer::data::write_atomically(&path, |w| w.write_all(b"complete"))?;
/// assert_eq!(std::fs::read(&path)?, b"complete");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_atomically(path: impl AsRef<Path>, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let path = path.as_ref();
    let Some(name) = path.file_name() else {
        return Err(Error::input(format!("`{}` does not name a file to write", path.display())));
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = write_and_sync(&temporary, content).and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| {
        // The temporary file may not exist; the first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
        Error::io(path, e)
    })
}

fn write_and_sync(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 16, File::create(path)?);
    content(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_atomically(&path, |w| w.write_all(b"old")).unwrap();
        let failed = write_atomically(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("disk full"))
        });
        assert!(failed.unwrap_err().to_string().contains("disk full"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_atomically(folder.path().join("no/such/folder.npy"), |_| Ok(())).is_err());
        assert!(write_atomically("/", |_| Ok(())).is_err());
    }

    #[test]
    fn false_gzip_and_folders_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv.gz");
        std::fs::write(&path, "1,2\n").unwrap();
        assert!(open(&path).err().unwrap().to_string().contains("not gzipped"));
        assert!(open(folder.path()).err().unwrap().to_string().contains("is a folder"));
        assert!(matches!(open(&folder.path().join("none")).err().unwrap(), Error::Io { .. }));
    }
}
