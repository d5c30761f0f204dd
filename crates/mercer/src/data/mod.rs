//! Data sets: files, embedded and generated sets, named sets in a folder; scalings and splits.
//!
//! One function, [`open`], reads them all. A [`Dataset`] holds finite numbers only, in row-major order and in the type
//! of its source. Other values are refused, and the message names the file, the row and the column. Messages and options
//! count rows and columns from 1; the header of a table is not a row.
//!
//! | source | read as |
//! |---|---|
//! | `.npy` | numbers (`f4 f8 u1 u2 u4 u8 i1 i2 i4 i8 b1`), C or Fortran order; 1-D is one column; 3-D `[n, h, w]` and 4-D `[n, c, h, w]` are flattened row by row and keep their image shape |
//! | `.npz` | the array `X` (or the only one, or [`ReadOptions::key`]), with `y` beside it as the target |
//! | `.csv`, `.tsv`, `.data`, `.txt` | a table separated by commas, semicolons or tabs, with or without a header |
//! | `…-idx3-ubyte`, `.idx` | images, bytes scaled to [0, 1], with the labels file beside it as the target |
//! | `.bin`, or a folder of `data_batch_*.bin` | CIFAR-10 images, bytes scaled to [0, 1], with labels |
//! | `.parquet` | a flat table of numbers (needs the feature `parquet`) |
//! | a name, such as `digits` or `moons(n=500, noise=0.1)` | see [`catalogue`] |
//!
//! Tables, `.npy`, IDX and `.bin` files may be compressed with gzip (`.csv.gz`).

use std::path::Path;

use crate::budget::Budget;
use crate::syntax::Call;
use crate::{Error, Result, fail_if};

mod atomic;
mod bytes;
mod cifar;
mod csv;
mod dataset;
mod embedded;
pub mod generate;
mod idx;
mod mapped;
mod matrix;
mod named;
mod npy;
mod npz;
#[cfg(feature = "parquet")]
mod parquet;
mod scale;
mod splits;

#[doc(hidden)]
pub use atomic::{check_writable, try_write_atomically, write_atomically};
pub use dataset::{Dataset, Target};
pub use embedded::digits;
pub use mapped::MappedArray;
pub(crate) use matrix::CowRows;
pub use matrix::{Matrix, Rows};
pub use named::{Entry, Origin, catalogue};
#[doc(hidden)]
pub use npy::check_finite;
pub(crate) use npy::write_elements;
pub use npy::{Element, write_npy, write_npy_rows};
pub use scale::{Scaler, Scaling};

/// How a source is read; the default is right for most. Example: [`open`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The column to predict: its name, or its position (1 is the first, −1 the last). In an `.npz` also the name of
    /// an array. Without it a table has no target.
    pub target: Option<String>,
    /// Whether the first row of a table names the columns; with `None`, if it has no number and the next row has one.
    pub header: Option<bool>,
    /// The array of an `.npz` to read.
    pub key: Option<String>,
    /// The memory that the data may take; with `None`, 70 % of what is free.
    pub memory: Option<Budget>,
}

impl ReadOptions {
    fn budget(&self) -> Budget {
        self.memory.unwrap_or_else(Budget::of_free_memory)
    }
}

/// Opens a file, a folder of CIFAR-10 files, or a named set; the module's page lists what can be read.
///
/// A name of the [`catalogue`] has priority over a file of that name; write `./digits` to open the file.
///
/// ```
/// use mercer::data::{open, ReadOptions};
/// let moons = open("moons(n=500, noise=0.1)", &ReadOptions::default())?;
/// assert_eq!((moons.n(), moons.d()), (500, 2));
/// let typo = open("mons", &ReadOptions::default()).unwrap_err();
/// assert!(typo.to_string().starts_with("unknown file or data set 'mons'; did you mean 'moons'?"));
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn open(source: &str, options: &ReadOptions) -> Result<Dataset> {
    let call = Call::parse("data set", source);
    let name = source.split('(').next().unwrap_or_default().trim();
    let path = Path::new(source);
    match named::find(name) {
        Ok(set) => set.open(&call?, options),
        Err(_) if path.exists() || format_of(path).is_some() || source.contains(['/', '\\']) => {
            open_file(path, options)
        }
        Err(unknown) => Err(unknown),
    }
}

/// The formats of files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Npy,
    Npz,
    Table,
    Idx,
    Cifar,
    Parquet,
}

/// The format of a file, by its name.
fn format_of(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    if name.ends_with("-ubyte") {
        return Some(Format::Idx);
    }
    Some(match Path::new(name).extension()?.to_str()? {
        "npy" => Format::Npy,
        "npz" => Format::Npz,
        "csv" | "tsv" | "data" | "txt" => Format::Table,
        "idx" => Format::Idx,
        "bin" => Format::Cifar,
        "parquet" => Format::Parquet,
        _ => return None,
    })
}

fn open_file(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let format = match format_of(path) {
        _ if path.is_dir() => Format::Cifar,
        Some(format) => format,
        None if !path.exists() => return Err(Error::io(path, std::io::ErrorKind::NotFound.into())),
        None => {
            let known = ".npy, .npz, .csv, .tsv, .idx, .bin (CIFAR-10) or .parquet";
            return Err(Error::file(path, format!("has an unknown extension; use {known}")));
        }
    };
    check_options(path, format, options)?;
    let name = stem(path);
    let budget = options.budget();
    match (format, &options.target) {
        (Format::Npy, None) => npy::read(path, &name, budget),
        (Format::Npy, Some(target)) => {
            npy::read(path, &name, budget)?.take_target(target).map_err(|e| Error::file(path, e.to_string()))
        }
        (Format::Npz, _) => npz::read(path, &name, options),
        (Format::Table, _) => csv::read(path, &name, options),
        (Format::Idx, _) => idx::read(path, &name, budget),
        (Format::Cifar, _) => cifar::read(path, &name, budget),
        #[cfg(feature = "parquet")]
        (Format::Parquet, _) => parquet::read(path, &name, options),
        #[cfg(not(feature = "parquet"))]
        (Format::Parquet, _) => Err(Error::file(
            path,
            "cannot be read: this build lacks the feature `parquet`; build with it, or convert the file to .csv or .npy",
        )),
    }
}

/// Refuses options that do not apply to the format.
fn check_options(path: &Path, format: Format, options: &ReadOptions) -> Result<()> {
    let images = matches!(format, Format::Idx | Format::Cifar);
    for (option, given, applies, place) in [
        ("key", options.key.is_some(), format == Format::Npz, ".npz archives"),
        ("header", options.header.is_some(), format == Format::Table, "tables of text, such as .csv"),
        ("target", options.target.is_some(), !images, "tables; images have their own labels"),
    ] {
        fail_if!(given && !applies; Error::file(path, format!("the option `{option}` is for {place}")));
    }
    Ok(())
}

/// The file's name without folder and extensions.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    Path::new(plain).file_stem().map_or(name.clone(), |s| s.to_string_lossy().into_owned())
}
