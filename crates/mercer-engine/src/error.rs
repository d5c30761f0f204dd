//! The one error type of the library. Each message names the offending value and what to do.

use std::path::{Path, PathBuf};

/// Shorthand for results of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, sorted by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's input (an argument, an option, an expression) cannot be used as given.
    #[error("{0}")]
    Input(String),

    /// A file does not hold what its name or header promises.
    #[error("{}: {what}", path.display())]
    File {
        /// The file that was read.
        path: PathBuf,
        /// What is wrong with it, and where.
        what: String,
    },

    /// The operating system refused a file operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file that was touched.
        path: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },

    /// The method does not fit into the memory budget.
    #[error("{what} needs {} but the memory budget is {}; {instead}", human_bytes(*needed), human_bytes(*budget))]
    Memory {
        /// What was to be allocated.
        what: String,
        /// Bytes it takes.
        needed: u64,
        /// Bytes it may take.
        budget: u64,
        /// What fits instead.
        instead: String,
    },

    /// A device has not enough memory left.
    #[error("{device}: {what} needs {}, but only {} are free; {instead}", human_bytes(*needed), human_bytes(*free))]
    DeviceMemory {
        /// The device.
        device: String,
        /// What was to be allocated.
        what: String,
        /// Bytes it takes.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// What fits instead.
        instead: String,
    },

    /// A device is not there, or has failed.
    #[error("{0}")]
    Device(String),

    /// An iteration ended before it reached its tolerance.
    #[error(
        "{what} did not converge: residual {residual:.3e} after {iterations} iterations (tolerance {tolerance:.1e}); {instead}"
    )]
    NoConvergence {
        /// The iteration.
        what: &'static str,
        /// Iterations done.
        iterations: usize,
        /// Residual reached.
        residual: f64,
        /// Residual wanted.
        tolerance: f64,
        /// What to try.
        instead: &'static str,
    },

    /// A matrix that must be positive definite, or an iterate that must be finite, is not.
    #[error("{0}")]
    Numerical(String),
}

impl Error {
    /// An [`Error::Input`] from anything that can be shown.
    pub fn input(message: impl Into<String>) -> Self {
        Error::Input(message.into())
    }

    /// An [`Error::File`]: `path` is not what it should be.
    pub fn file(path: &Path, what: impl Into<String>) -> Self {
        Error::File { path: path.to_owned(), what: what.into() }
    }

    /// An [`Error::Io`] on `path`.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Error::Io { path: path.to_owned(), source }
    }
}

/// Bytes as a person reads them: `1.5 GiB`.
///
/// ```
/// assert_eq!(mercer_engine::error::human_bytes(1536 * 1024 * 1024), "1.5 GiB");
/// ```
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The candidate closest to `word` in edit distance, if it is close enough to be a slip of the fingers.
///
/// ```
/// assert_eq!(mercer_engine::error::nearest("rfb", ["rbf", "poly"]), Some("rbf"));
/// assert_eq!(mercer_engine::error::nearest("banana", ["rbf", "poly"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|c| (edit_distance(&word.to_lowercase(), c), c))
        .filter(|&(distance, c)| distance <= 1 + c.len().max(word.len()) / 4)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, c)| c)
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost one.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut d = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            d[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let substitution = d[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = substitution.min(d[i - 1][j] + 1).min(d[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(d[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    d[a.len()][b.len()]
}
