//! The one error type of the library. Each message names the offending value and what to do.

use std::path::{Path, PathBuf};

/// Shorthand for results of this library. Example: [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, grouped by what the caller can do about it.
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
        /// The error of the operating system.
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

    /// A matrix that must be positive definite, or an iterate that must be finite, is not.
    #[error("{0}")]
    Numerical(String),
}

impl Error {
    /// An [`Error::Input`] from anything that can be shown.
    pub fn input(message: impl Into<String>) -> Self {
        Error::Input(shortened(message.into()))
    }

    /// An [`Error::Input`]: there is no `what` called `word` among the `known` ones.
    ///
    /// ```
    /// let error = mercer_engine::Error::unknown("kernel", "rfb", ["rbf", "poly"]);
    /// assert_eq!(error.to_string(), "unknown kernel 'rfb'; did you mean 'rbf'? (known: rbf, poly)");
    /// ```
    pub fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Error::Input(format!("unknown {what} '{}'{}", excerpt(word), did_you_mean(word, known)))
    }

    /// An [`Error::File`]: `path` is not what it should be.
    pub fn file(path: &Path, what: impl Into<String>) -> Self {
        Error::File { path: path.to_owned(), what: shortened(what.into()) }
    }

    /// An [`Error::Io`] on `path`.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        Error::Io { path: path.to_owned(), source }
    }
}

/// A message that quotes an input of any length: without its middle, if it is longer than a page.
fn shortened(message: String) -> String {
    const ENDS: usize = 700;
    let count = message.chars().count();
    if count <= 2 * ENDS {
        return message;
    }
    message.chars().take(ENDS).chain(" … ".chars()).chain(message.chars().skip(count - ENDS)).collect()
}

/// `fail_if!(condition, "message {value}")`: if the condition holds, the function returns an [`Error::Input`] that says so.
/// `fail_if!(condition; error)` returns another error.
#[macro_export]
macro_rules! fail_if {
    ($condition:expr, $($message:tt)*) => {
        $crate::fail_if!($condition; $crate::Error::input(format_args!($($message)*).to_string()));
    };
    ($condition:expr; $error:expr) => {
        if $condition {
            return Err($error);
        }
    };
}

/// Bytes as a person reads them: `1.5 GiB`.
///
/// ```
/// assert_eq!(mercer_engine::error::human_bytes(1536 * 1024 * 1024), "1.5 GiB");
/// ```
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    // The largest power of 1024 that is not above `bytes`.
    let power = (bytes.max(1).ilog2() / 10).min(4);
    let value = bytes as f64 / 1024f64.powi(power as i32);
    if power == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[power as usize]) }
}

/// Characters before and behind the place of a mistake that a message shows.
pub(crate) const SHOWN: usize = 60;

/// A text as messages quote it: its two ends, if it is long.
///
/// ```
/// use mercer_engine::error::excerpt;
/// assert_eq!(excerpt(" dense(8) relu "), "dense(8) relu");
/// assert!(excerpt(&"relu ".repeat(1000)).chars().count() < 130);
/// ```
pub fn excerpt(text: &str) -> String {
    let text = text.trim();
    let count = text.chars().count();
    if count <= 2 * SHOWN {
        return text.into();
    }
    let ends = text.chars().take(SHOWN).chain(" … ".chars()).chain(text.chars().skip(count - SHOWN));
    ends.collect()
}

/// What follows a name that is not known: `; did you mean 'rbf'? (known: rbf, poly)`. The guess is left out where no
/// candidate is close, and long lists are shortened.
///
/// ```
/// use mercer_engine::error::did_you_mean;
/// assert_eq!(did_you_mean("banana", ["rbf", "poly"]), " (known: rbf, poly)");
/// assert_eq!(did_you_mean("banana", []), " (there are none)");
/// ```
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let list = match known[..] {
        [] => return " (there are none)".into(),
        [ref first @ .., last] if known.len() > 30 => format!("{}, … {last}", first[..6].join(", ")),
        _ => known.join(", "),
    };
    let guess = nearest(word, known).map_or(String::new(), |near| format!("; did you mean '{near}'?"));
    format!("{guess} (known: {list})")
}

/// The candidate that is nearest to `word` in the optimal string alignment distance, if it is near enough for a typing error.
fn nearest<'a>(word: &str, candidates: Vec<&'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distance = |c: &&str| strsim::osa_distance(&word, c);
    candidates.into_iter().filter(|c| distance(c) <= 1 + c.len().max(word.len()) / 4).min_by_key(distance)
}
