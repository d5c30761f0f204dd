//! Data sets: files, embedded and generated sets, named sets in a folder; scalings and splits.
//!
//! [`open`] reads them all into a [`Dataset`], which holds finite numbers only, in row-major order and in the type of its source.
//! Other values are refused, and the message names the file, the row and the column. [`Table::open`] reads tables as they are:
//! categories, true or false, dates (`2024-05-31`, `2024-05-31T12:00:00`) and missing values (`NA`, `N/A`, `?`, `nan`, `null`, or
//! nothing), of which a [`Schema`] makes features. Messages and options count rows and columns from 1; the header of a table is
//! not a row.
//!
//! | source | read as |
//! |---|---|
//! | `.npy` | numbers (`f4 f8 u1 u2 u4 u8 i1 i2 i4 i8 b1`), C or Fortran order; 1-D is one column; 3-D `[n, h, w]` and 4-D `[n, c, h, w]` are flattened row by row and keep their image shape |
//! | `.npz` | the array `X` (or the only one, or [`ReadOptions::key`]), with `y` beside it as the target |
//! | `.csv`, `.tsv`, `.data`, `.txt` | a table separated by commas, semicolons, tabs or `\|`, with or without a header, in UTF-8, UTF-16 or Windows-1252 |
//! | `…-idx3-ubyte`, `.idx` | images, bytes scaled to [0, 1], with the labels file beside it as the target |
//! | `.bin`, or a folder of `data_batch_*.bin` | CIFAR-10 images, bytes scaled to [0, 1], with labels |
//! | `.parquet` | a flat table (needs the feature `parquet`) |
//! | `-` | standard input: a table of text, or an `.npy` |
//! | a name, such as `digits` or `moons(n=500, noise=0.1)` | see [`catalogue`] |
//!
//! Tables, `.npy`, IDX and `.bin` files may be compressed with gzip (`.csv.gz`).

use std::ops::Range;
use std::path::Path;

use crate::budget::Budget;
use crate::syntax::Call;
use crate::{Error, Result, fail_if};
use bytes::{STANDARD_INPUT, Source};
use table::Request;

mod atomic;
mod block_dataset;
mod blocks;
mod bytes;
mod cells;
mod cifar;
mod columns;
mod csv;
mod dataset;
mod embedded;
mod first_pass;
pub mod generate;
mod header;
mod identifiers;
mod idx;
mod lines;
mod mapped;
mod matrix;
mod moment_tree;
mod named;
mod notation;
mod npy;
mod npz;
#[cfg(feature = "parquet")]
mod parquet;
mod scale;
mod schema;
mod splits;
mod table;
mod text;

#[doc(hidden)]
pub use atomic::{check_space, check_writable, try_write_atomically, write_atomically};
pub use block_dataset::{BlockDataset, BlockOptions};
pub(crate) use blocks::BLOCK;
pub use blocks::TableBlocks;
pub use columns::ColumnValues;
pub use dataset::{Dataset, SomeTargets, Target};
#[doc(hidden)]
pub use dataset::{held_out_count, held_out_rows, split_rows};
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
pub use schema::{Missing, Schema, SchemaTarget};
pub use table::{Column, Kind, Table, TableTarget, Task};

/// How a source is read; the default is right for most. Example: [`open`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The column to predict: its name, or its position (1 is the first, −1 the last). In an `.npz` also the name of
    /// an array. For any file also an `.npy` with one number per row. Without it a table has no target.
    pub target: Option<String>,
    /// The columns to read, by name or position; with `None`, all.
    pub columns: Option<Vec<String>>,
    /// Columns to pass over, by name or position.
    pub drop: Vec<String>,
    /// Columns to take as categories, by name or position, though they may hold numbers.
    pub categories: Vec<String>,
    /// The rows to read, counted from 0; with `None`, all.
    pub rows: Option<Range<usize>>,
    /// Whether the first row of a table names the columns; with `None`, by what the first rows hold: see the guide's page on tables.
    pub header: Option<bool>,
    /// Whether rows of a `.csv` or `.parquet` whose target is missing are left out; else they are errors.
    pub skip_unlabelled: bool,
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
    read(source, &Request { numbers_only: true, ..Request::new(options, None) }).map(Table::into_numbers)
}

/// Reads what `source` names, as far as `request` asks for it.
fn read(source: &str, request: &Request) -> Result<Table> {
    let call = Call::parse("data set", source);
    let name = source.split('(').next().unwrap_or_default().trim();
    let path = Path::new(source);
    match named::find(name) {
        Ok(set) => {
            let whole =
                ReadOptions { columns: None, drop: vec![], categories: vec![], rows: None, ..request.options.clone() };
            let table = Table { decided: true, ..Table::of(set.open(&call?, &whole)?, source, set.is_table()) };
            table.arranged(request)
        }
        Err(_) if source == STANDARD_INPUT => read_standard_input(request),
        Err(_) if path.exists() || format_of(path).is_some() || source.contains(['/', '\\']) => {
            read_file(path, request)
        }
        Err(unknown) => Err(unknown),
    }
}

/// A table of text, or an `.npy`, from standard input.
fn read_standard_input(request: &Request) -> Result<Table> {
    let mut source = Source::open(Path::new(STANDARD_INPUT), request.options.budget())?;
    if !source.peek(npy::MAGIC.len() as u64)?.starts_with(npy::MAGIC) {
        return csv::read(source, "standard input", request);
    }
    let data = npy::dataset(npy::read_array(source)?, "standard input");
    Table::of(data, STANDARD_INPUT, true).arranged(request)
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

fn read_file(path: &Path, request: &Request) -> Result<Table> {
    let options = request.options;
    let format = match format_of(path) {
        _ if path.is_dir() => Format::Cifar,
        Some(format) => format,
        None if !path.exists() => return Err(Error::io(path, std::io::ErrorKind::NotFound.into())),
        None => {
            let known = ".npy, .npz, .csv, .tsv, .idx, .bin (CIFAR-10) or .parquet";
            return Err(Error::file(path, format!("has an unknown extension; use {known}")));
        }
    };
    if let Some(target) = options.target.as_ref().filter(|target| is_array_file(target)) {
        let features = ReadOptions { target: None, rows: None, ..options.clone() };
        let table = read_file(path, &Request { options: &features, ..*request })?;
        return with_target_file(table, Path::new(target), request);
    }
    check_options(path, format, options)?;
    let (name, budget) = (stem(path), options.budget());
    let data = match format {
        Format::Table => return csv::read(Source::open(path, budget)?, &name, request),
        #[cfg(feature = "parquet")]
        Format::Parquet => return parquet::read(path, &name, request),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(Error::file(
            path,
            "cannot be read: this build lacks the feature `parquet`; build with it, or convert the file to .csv or .npy",
        )),
        Format::Npy => npy::read(path, &name, budget),
        Format::Npz => npz::read(path, &name, options),
        Format::Idx => idx::read(path, &name, budget),
        Format::Cifar => cifar::read(path, &name, budget),
    }?;
    // Bytes are pixels more often than measurements.
    let tabular = data.shape.is_none() && !matches!(data.x, Matrix::U8 { .. });
    Table::of(data, &path.to_string_lossy(), tabular).arranged(request)
}

/// Whether a target is a file of its own.
#[doc(hidden)]
pub fn is_array_file(target: &str) -> bool {
    format_of(Path::new(target)) == Some(Format::Npy)
}

/// The table with the numbers of an `.npy` as its target, one per row.
fn with_target_file(mut table: Table, path: &Path, request: &Request) -> Result<Table> {
    let values = npy::read_array(Source::open(path, request.options.budget())?)?;
    let (n, dims) = (table.n(), &values.dims);
    fail_if!(values.x.d() != 1 || values.x.n() != n; Error::file(
        path,
        format!("has the shape {dims:?}, but there are {n} rows: one number per row is needed")
    ));
    table.target = Some(TableTarget { name: stem(path), position: None, values: Target::Values(values.x.column(0)) });
    table.in_range(request)
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
