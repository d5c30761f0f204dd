//! Compiled kernels on disk, so that a second start compiles none.
//!
//! An entry is one file. It holds the whole key (source, options, architecture, versions), so that two keys of one hash are told apart, the
//! code, and a checksum. Files are written under another name and renamed: another process sees a whole entry or none. An entry
//! that is damaged counts as missing and is replaced. The cache is only a help: what goes wrong with it is never an error.
//!
//! It lies in `mercer/kernels` below `$XDG_CACHE_HOME`, or below `~/.cache`. `CUDA_CACHE_DISABLE=1`, which turns off the driver's own
//! cache of compiled code, turns off this one too.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The first bytes of an entry.
const MAGIC: &[u8; 16] = b"mercer kernels 1";

/// Bytes that all entries may take; a kernel's numbers are part of its source, so that there is an entry for each.
const MOST: u64 = 256 << 20;

/// The age from which an unfinished file belongs to nobody.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// A folder of compiled kernels.
#[derive(Clone, Debug)]
pub(super) struct CodeCache {
    folder: PathBuf,
    most: u64,
}

impl CodeCache {
    /// The user's; none where there is no folder for it, or none is wanted.
    pub fn of_user() -> Option<CodeCache> {
        folder_of(|name| std::env::var_os(name)).map(|folder| CodeCache { folder, most: MOST })
    }

    /// The code for a key, where there is a whole entry for it.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key);
        let code = decoded(&fs::read(&path).ok()?, key)?;
        // The oldest entries go first.
        let _ = File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(code)
    }

    /// Keeps the code for a key, if that is possible.
    pub fn put(&self, key: &str, code: &[u8]) {
        if self.write(key, code).is_ok() {
            self.shrink();
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{:016x}.cubin", hash(key.as_bytes())))
    }

    fn write(&self, key: &str, code: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.folder)?;
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let temporary = self.folder.join(format!("{:016x}.{pid}.{number}.tmp", hash(key.as_bytes())));
        let written = File::options().write(true).create_new(true).open(&temporary).and_then(|mut file| {
            file.write_all(&encoded(key, code))?;
            fs::rename(&temporary, self.path(key))
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the entries that were not used for the longest time, until the others fit, and files that a killed process left.
    fn shrink(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let file = |entry: io::Result<fs::DirEntry>| {
            let (entry, meta) = entry.and_then(|entry| entry.metadata().map(|meta| (entry, meta))).ok()?;
            Some((meta.modified().ok()?, meta.len(), entry.path()))
        };
        let (mut files, unfinished): (Vec<_>, Vec<_>) =
            entries.filter_map(file).partition(|(_, _, path)| path.extension().is_some_and(|e| e == "cubin"));
        for (modified, _, path) in unfinished {
            let is_ours = path.extension().is_some_and(|e| e == "tmp");
            if is_ours && modified.elapsed().is_ok_and(|age| age > FORGOTTEN) {
                let _ = fs::remove_file(path);
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total <= self.most {
                break;
            }
            let _ = fs::remove_file(path);
            total -= size;
        }
    }
}

/// The folder of the cache, from the variables of the environment.
fn folder_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if variable("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1") {
        return None;
    }
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    let caches = caches.or_else(|| folder("LOCALAPPDATA"))?;
    Some(caches.join("mercer").join("kernels"))
}

/// An entry: the magic bytes, the lengths of key and code, the key, the code, the hash of all that.
fn encoded(key: &str, code: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((key.len() as u64).to_le_bytes());
    bytes.extend((code.len() as u64).to_le_bytes());
    bytes.extend(key.as_bytes());
    bytes.extend(code);
    bytes.extend(hash(&bytes).to_le_bytes());
    bytes
}

/// The code of an entry for `key`; none where it is another's, or damaged.
fn decoded(bytes: &[u8], key: &str) -> Option<Vec<u8>> {
    let (content, checksum) = bytes.split_last_chunk::<8>()?;
    if hash(content) != u64::from_le_bytes(*checksum) {
        return None;
    }
    let (key_length, rest) = content.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let (code_length, rest) = rest.split_first_chunk::<8>()?;
    let [key_length, code_length] = [key_length, code_length].map(|length| u64::from_le_bytes(*length) as usize);
    let (found, code) = rest.split_at_checked(key_length)?;
    (found == key.as_bytes() && code.len() == code_length && !code.is_empty()).then(|| code.to_vec())
}

/// FNV-1a: the same on every machine and in every version.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A cache in a folder of its own, removed at the end.
    struct Scratch(CodeCache);

    impl Scratch {
        fn new(name: &str, most: u64) -> Scratch {
            let folder = std::env::temp_dir().join(format!("mercer-code-cache-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Scratch(CodeCache { folder, most })
        }

        fn entries(&self) -> usize {
            let is_entry = |path: PathBuf| path.extension().is_some_and(|e| e == "cubin");
            fs::read_dir(&self.0.folder).unwrap().filter(|e| is_entry(e.as_ref().unwrap().path())).count()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.folder);
        }
    }

    #[test]
    fn code_comes_back_for_its_key_alone() {
        let scratch = Scratch::new("keys", MOST);
        let cache = &scratch.0;
        assert_eq!(cache.get("sm_90 source"), None);
        cache.put("sm_90 source", b"code");
        assert_eq!(cache.get("sm_90 source").unwrap(), b"code");
        assert_eq!(cache.get("sm_80 source"), None);
        // Another key of the same hash.
        fs::copy(cache.path("sm_90 source"), cache.path("sm_80 source")).unwrap();
        assert_eq!(cache.get("sm_80 source"), None);
        cache.put("sm_90 source", b"new code");
        assert_eq!(cache.get("sm_90 source").unwrap(), b"new code");
    }

    #[test]
    fn a_damaged_entry_is_missing_and_is_replaced() {
        let scratch = Scratch::new("damaged", MOST);
        let (cache, path) = (&scratch.0, scratch.0.path("key"));
        cache.put("key", b"some code");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            fs::write(&path, &changed).unwrap();
            assert_eq!(cache.get("key"), None, "byte {at} was changed");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.get("key"), None, "{at} bytes are left");
        }
        // Lengths that do not fit, under a right checksum.
        let mut lengths = whole[..whole.len() - 8].to_vec();
        lengths[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        lengths.extend(hash(&lengths).to_le_bytes());
        fs::write(&path, &lengths).unwrap();
        assert_eq!(cache.get("key"), None);
        cache.put("key", b"some code");
        assert_eq!(cache.get("key").unwrap(), b"some code");
    }

    #[test]
    fn writers_at_the_same_time_leave_a_whole_entry() {
        let scratch = Scratch::new("writers", MOST);
        let cache = &scratch.0;
        let codes: Vec<Vec<u8>> = (0..4u8).map(|i| vec![i; 40_000]).collect();
        cache.put("key", &codes[0]);
        std::thread::scope(|scope| {
            for code in &codes {
                scope.spawn(move || (0..20).for_each(|_| cache.put("key", code)));
            }
            scope.spawn(|| (0..100).for_each(|_| assert!(codes.contains(&cache.get("key").unwrap()))));
        });
        assert_eq!((scratch.entries(), fs::read_dir(&cache.folder).unwrap().count()), (1, 1));
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let scratch = Scratch::new("room", 3000);
        let cache = &scratch.0;
        let aged = |key: &str, seconds: u64| {
            let file = File::options().append(true).open(cache.path(key)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        for (key, age) in [("a", 300), ("b", 200)] {
            cache.put(key, &[7; 1200]);
            aged(key, age);
        }
        // Used again, a is younger than b.
        assert!(cache.get("a").is_some());
        fs::write(cache.folder.join("x.tmp"), b"half").unwrap();
        let left = File::options().append(true).open(cache.folder.join("x.tmp")).unwrap();
        left.set_modified(SystemTime::now() - 2 * FORGOTTEN).unwrap();
        fs::write(cache.folder.join("other.txt"), b"not ours").unwrap();
        cache.put("c", &[7; 1200]);
        assert_eq!(["a", "b", "c"].map(|key| cache.get(key).is_some()), [true, false, true]);
        assert!(!cache.folder.join("x.tmp").exists() && cache.folder.join("other.txt").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_error() {
        let scratch = Scratch::new("file", MOST);
        fs::write(&scratch.0.folder, b"a file").unwrap();
        let cache = CodeCache { folder: scratch.0.folder.join("below"), most: MOST };
        cache.put("key", b"code");
        assert_eq!(cache.get("key"), None);
        fs::remove_file(&scratch.0.folder).unwrap();
    }

    #[test]
    fn the_folder_is_that_of_the_user() {
        let of = |variables: &[(&str, &str)]| {
            folder_of(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
        };
        assert_eq!(of(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]).unwrap(), Path::new("/c/mercer/kernels"));
        assert_eq!(of(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]).unwrap(), Path::new("/h/.cache/mercer/kernels"));
        assert_eq!(of(&[("XDG_CACHE_HOME", "relative")]), None);
        assert_eq!(of(&[("HOME", "/h"), ("CUDA_CACHE_DISABLE", "1")]), None);
        assert!(of(&[("HOME", "/h"), ("CUDA_CACHE_DISABLE", "0")]).is_some());
    }
}
