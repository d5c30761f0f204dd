//! Writing of files completely or not at all.
//!
//! The new content goes to a temporary file in the same folder, which then takes the place of the old file. On Linux that file
//! has no name until it is complete, so that a run that is killed leaves nothing behind. Where the file system has no
//! such files, they are called `.NAME.PID.tmp`, and the next write of NAME removes those whose process is gone.
//!
//! A link is followed: what it points to is replaced, and the link stays. Devices and pipes are written to as they are.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::human_bytes;
use crate::{Error, Result, fail_if};

/// Writes a file completely or not at all. A file that is there keeps its mode; a device or a pipe takes the bytes as they come.
pub fn write_atomically(path: impl AsRef<Path>, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let path = path.as_ref();
    let target = Target::of(path)?;
    let written = match &target.found {
        Some(found) if !found.is_file() => write_through(&target.path, content),
        found => replace(&target.path, found.as_ref(), content),
    };
    written.map_err(|e| Error::io(path, e))
}

/// As [`write_atomically`], for content that may fail for reasons other than writing.
pub fn try_write_atomically(path: impl AsRef<Path>, content: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut failure = None;
    let written = write_atomically(path, |w| {
        content(w).map_err(|error| {
            failure = Some(error);
            io::Error::other("the content could not be made")
        })
    });
    failure.map_or(written, Err)
}

/// Fails unless a file can be written at `path`, as far as this can be told without writing it.
pub fn check_writable(path: &Path) -> Result<()> {
    let target = Target::of(path)?;
    let folder = target.folder();
    fail_if!(!folder.is_dir(); Error::file(
        path,
        format!("cannot be written: there is no folder `{}`; create it first", folder.display())
    ));
    let tried = match &target.found {
        // Opening a pipe would wait for its reader.
        Some(found) if !found.is_file() => Ok(()),
        Some(_) => {
            OpenOptions::new().write(true).open(&target.path).and_then(|_| Temporary::new(&target.path)).map(drop)
        }
        None => Temporary::new(&target.path).map(drop),
    };
    tried.map_err(|e| Error::file(path, format!("cannot be written: {e}")))
}

/// Refuses a file of `bytes` that the file system of `path` has no space for, beside one that it replaces. Devices and pipes take what comes.
#[doc(hidden)]
pub fn check_space(path: &Path, bytes: u64) -> Result<()> {
    let target = Target::of(path)?;
    let is_file = target.found.as_ref().is_none_or(Metadata::is_file);
    let free = free_space(target.folder()).filter(|_| is_file);
    match free.filter(|free| *free < bytes) {
        None => Ok(()),
        Some(free) => Err(Error::file(
            path,
            format!(
                "would take {}, and its file system has {} free; ask for less, or name a file on another disk",
                human_bytes(bytes),
                human_bytes(free)
            ),
        )),
    }
}

/// The bytes that the user may still write to the file system of a folder, where it says so.
#[cfg(unix)]
fn free_space(folder: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name ends with a zero, and the call writes all of the structure where it returns 0.
    let found = unsafe {
        if libc::statvfs(name.as_ptr(), found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    // File systems that do not count their blocks have none.
    (found.f_blocks > 0).then(|| (found.f_bavail as u64).saturating_mul(found.f_frsize as u64))
}

#[cfg(not(unix))]
fn free_space(_: &Path) -> Option<u64> {
    None
}

/// Where the bytes go: the path itself, or what its links lead to.
struct Target {
    path: PathBuf,
    /// What is there, where there is something.
    found: Option<Metadata>,
}

impl Target {
    fn of(path: &Path) -> Result<Target> {
        let found = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(Error::io(path, e)),
        };
        fail_if!(
            found.as_ref().is_some_and(Metadata::is_dir) || path.file_name().is_none();
            Error::file(path, "is a folder; name a file to write")
        );
        let path = match &found {
            // The target of a link in /proc, such as that of /dev/stdout, may have no name.
            Some(found) if !found.is_file() => path.to_owned(),
            _ => followed(path).map_err(|e| Error::io(path, e))?,
        };
        Ok(Target { path, found })
    }

    fn folder(&self) -> &Path {
        folder(&self.path)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What the links at `path` lead to, whether it exists or not.
fn followed(path: &Path) -> io::Result<PathBuf> {
    const MOST_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = folder(&path).join(next),
            // No link: a file, or nothing yet.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("there are too many links"))
}

fn write_through(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 16, OpenOptions::new().write(true).open(path)?);
    content(&mut writer)?;
    writer.flush()
}

/// Puts a new file in the place of the one that was `found` at `path`, or of none.
fn replace(
    path: &Path,
    found: Option<&Metadata>,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if found.is_some() {
        // What may not be changed may not be replaced either.
        OpenOptions::new().write(true).open(path)?;
    }
    remove_stale(path);
    let mut temporary = Temporary::new(path)?;
    let mut writer = BufWriter::with_capacity(1 << 16, &temporary.file);
    content(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    if let Some(found) = found {
        adopt(&temporary.file, found)?;
    }
    temporary.file.sync_all()?;
    temporary.take_the_place_of(path)
}

/// Gives a file the mode of the one that it replaces, and its owner where that is permitted.
fn adopt(file: &File, found: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        // Only the superuser may give files away.
        let _ = fchown(file, Some(found.uid()), Some(found.gid()));
    }
    file.set_permissions(found.permissions())
}

/// A file that goes away unless it takes the place of another.
struct Temporary {
    file: File,
    /// Its name, where it has one.
    name: Option<PathBuf>,
}

impl Temporary {
    /// A new file beside `path`.
    fn new(path: &Path) -> io::Result<Temporary> {
        if let Some(file) = nameless(folder(path)) {
            return Ok(Temporary { file, name: None });
        }
        let name = temporary_name(path);
        Ok(Temporary { file: File::create(&name)?, name: Some(name) })
    }

    fn take_the_place_of(&mut self, path: &Path) -> io::Result<()> {
        if self.name.is_none() {
            // A new name cannot be that of another file, but a file can be renamed to it.
            let name = temporary_name(path);
            let _ = fs::remove_file(&name);
            give_name(&self.file, &name)?;
            self.name = Some(name);
        }
        if let Some(name) = &self.name {
            fs::rename(name, path)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // There is no one to report to; the first error is the one that matters.
            let _ = fs::remove_file(name);
        }
    }
}

/// `.NAME.PID.tmp` beside `path`.
fn temporary_name(path: &Path) -> PathBuf {
    let [mut name, end] = temporary_parts(path);
    name.push(std::process::id().to_string());
    name.push(end);
    path.with_file_name(name)
}

/// What is before and after the number of the process in the name of a temporary file.
fn temporary_parts(path: &Path) -> [OsString; 2] {
    let mut start = OsString::from(".");
    start.push(path.file_name().unwrap_or_default());
    start.push(".");
    [start, ".tmp".into()]
}

/// Removes the temporary files of `path` whose process is gone.
fn remove_stale(path: &Path) {
    let [start, end] = temporary_parts(path);
    let (start, end) = (start.as_encoded_bytes(), end.as_encoded_bytes());
    // A folder that cannot be listed has nothing that could be removed.
    for entry in fs::read_dir(folder(path)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.as_encoded_bytes().strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
        let process: Option<u32> = number.and_then(|n| std::str::from_utf8(n).ok()?.parse().ok());
        if process.is_some_and(|id| !is_running(id)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether there is such a process; true where that cannot be told.
fn is_running(id: u32) -> bool {
    !cfg!(target_os = "linux") || Path::new("/proc").join(id.to_string()).exists() || !Path::new("/proc/self").exists()
}

/// A file in `folder` that has no name, where the system can make one.
#[cfg(target_os = "linux")]
fn nameless(folder: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).mode(0o666).custom_flags(libc::O_TMPFILE).open(folder).ok()
}

/// Gives a file from [`nameless`] a name.
#[cfg(target_os = "linux")]
fn give_name(file: &File, name: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(name.as_os_str().as_bytes())?;
    // SAFETY: both are strings that end in zero and outlive the call.
    let failed = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
fn nameless(_: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn give_name(_: &File, _: &Path) -> io::Result<()> {
    unreachable!("there are no files without a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, bytes: &[u8]) {
        write_atomically(path, |w| w.write_all(bytes)).unwrap();
    }

    fn count(folder: &tempfile::TempDir) -> usize {
        fs::read_dir(folder.path()).unwrap().count()
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write(&path, b"old");
        let failed = write_atomically(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("disk full"))
        });
        assert!(failed.unwrap_err().to_string().contains("disk full"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(count(&folder), 1);
        assert!(write_atomically(folder.path().join("no/such/folder.npy"), |_| Ok(())).is_err());
        assert!(write_atomically("/", |_| Ok(())).is_err());
        assert!(write_atomically(folder.path(), |_| Ok(())).is_err());
    }

    #[test]
    fn a_file_that_is_being_written_has_no_name_yet_or_a_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_atomically(&path, |w| {
            w.write_all(b"half")?;
            assert!(!path.exists());
            Ok(())
        })
        .unwrap();
        assert_eq!((fs::read(&path).unwrap(), count(&folder)), (b"half".to_vec(), 1));
    }

    #[test]
    fn temporary_files_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let own = format!(".a.npy.{}.tmp", std::process::id() + 1_000_000_000);
        let kept = [".b.npy.4000000000.tmp".to_owned(), ".a.npy.x.tmp".into(), ".a.npy.1.tmp".into()];
        fs::write(at(&own), "").unwrap();
        kept.iter().for_each(|name| fs::write(at(name), "").unwrap());
        write(&at("a.npy"), b"new");
        assert_eq!(at(&own).exists(), !cfg!(target_os = "linux"));
        assert!(kept.iter().all(|name| at(name).exists()));
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_modes_are_kept_and_what_is_read_only_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("deep/real"), "old").unwrap();
        fs::set_permissions(at("deep/real"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("deep/real", at("once")).unwrap();
        symlink("once", at("twice")).unwrap();
        symlink("deep/none-yet", at("open")).unwrap();
        write(&at("twice"), b"new");
        write(&at("open"), b"made");
        assert_eq!((fs::read(at("deep/real")).unwrap(), mode(&at("deep/real"))), (b"new".to_vec(), 0o640));
        assert_eq!(fs::read(at("deep/none-yet")).unwrap(), b"made");
        for link in ["once", "twice", "open"] {
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link}");
        }
        symlink("circle", at("circle")).unwrap();
        assert!(check_writable(&at("circle")).is_err());
        // The superuser may write everywhere.
        fs::set_permissions(at("deep/real"), fs::Permissions::from_mode(0o440)).unwrap();
        if OpenOptions::new().write(true).open(at("deep/real")).is_err() {
            assert!(check_writable(&at("once")).unwrap_err().to_string().contains("cannot be written"));
            assert!(write_atomically(at("once"), |_| Ok(())).is_err());
        }
    }

    #[cfg(unix)]
    #[test]
    fn pipes_take_the_bytes_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        check_writable(&pipe).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write(&pipe, b"through");
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(!fs::metadata(&pipe).unwrap().is_file());
        assert_eq!(count(&folder), 1);
    }
}
