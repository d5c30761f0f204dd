//! Output files: checked before the computation, and then written completely or not at all.

use crate::program::distributed;
use crate::text::seconds;
use clap::builder::{MapValueParser, PathBufValueParser, TypedValueParser, ValueParserFactory};
use mercer::data::{
    Element, Target, check_finite, check_space, check_writable, try_write_atomically, write_atomically, write_npy,
    write_npy_rows,
};
use mercer::error::human_bytes;
use mercer::{Error, Result};
use ndarray::{ArrayView2, Axis, aview1};
use serde::{Serialize, Serializer};
use std::fmt::Display;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The name of a file to write, or of a folder to write to. Every argument that names one has this type: by it the program knows
/// what a command writes, see `files::check`.
#[derive(Clone, Debug)]
pub struct NewFile(PathBuf);

impl NewFile {
    /// A file of this name in a folder that is written to.
    pub fn inside(&self, name: &str) -> NewFile {
        NewFile(self.0.join(name))
    }
}

impl Deref for NewFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl ValueParserFactory for NewFile {
    type Parser = MapValueParser<PathBufValueParser, fn(PathBuf) -> NewFile>;

    fn value_parser() -> Self::Parser {
        PathBufValueParser::new().map(NewFile)
    }
}

/// Whether this process writes files: of several ranks, the first writes for all.
pub fn writes() -> bool {
    distributed::group().rank() == 0
}

/// An output file that can be written, as far as this can be checked in advance.
#[derive(Clone, Debug)]
pub struct Output {
    /// As the user named it.
    name: PathBuf,
    /// Where this process writes: to the file, or on a rank that is not the first, which makes the same, to nowhere.
    path: PathBuf,
}

/// The device that takes all bytes and keeps none.
const NOWHERE: &str = "/dev/null";

impl Output {
    /// Fails unless a file can be written at `path`.
    pub fn new(path: &NewFile) -> Result<Output> {
        let name = path.0.clone();
        let path = if writes() { name.clone() } else { NOWHERE.into() };
        check_writable(&path)?;
        Ok(Output { name, path })
    }

    /// The same as [`Self::new`], for a table of numbers: `.npy` or `.csv`.
    pub fn table(path: &NewFile) -> Result<Output> {
        Output::with_extension(path, &["npy", "csv"])
    }

    /// The same as [`Self::new`], for a file whose name must end in one of `extensions`.
    pub fn with_extension(path: &NewFile, extensions: &[&str]) -> Result<Output> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        if !extensions.contains(&extension) {
            let known: Vec<String> = extensions.iter().map(|e| format!(".{e}")).collect();
            return Err(Error::file(path, format!("must end in {}", known.join(" or "))));
        }
        Output::new(path)
    }

    /// Where this process writes it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the name ends in this extension.
    pub fn is(&self, extension: &str) -> bool {
        self.name.extension().is_some_and(|e| e == extension)
    }

    /// Writes text.
    pub fn text(&self, text: &str) -> Result<()> {
        write_atomically(&self.path, |w| w.write_all(text.as_bytes()))
    }

    /// Writes a figure, an SVG document: as it is, or its pixels where the name ends in `.png`.
    pub fn figure(&self, svg: &str) -> Result<()> {
        if !self.is("png") {
            return self.text(svg);
        }
        let png = mercer_figure::to_png(svg);
        write_atomically(&self.path, |w| w.write_all(&png))
    }

    /// Writes `values` `[n, m]`; in a `.csv` under the given names of its columns, where there are any.
    pub fn matrix<T: Element + Display>(&self, values: ArrayView2<T>, columns: &[String]) -> Result<()> {
        if self.is("csv") { self.csv(values, columns) } else { write_npy(&self.path, values) }
    }

    /// Writes a matrix `[n, m]` row by row, as `rows` passes them to its argument, so that it is never in memory; in a `.csv` under the
    /// given names of its columns, where there are any.
    pub fn rows<T: Element + Display>(
        &self,
        [n, m]: [usize; 2],
        columns: &[String],
        rows: impl FnOnce(&mut dyn FnMut(&[T]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        if !self.is("csv") {
            return write_npy_rows(&self.path, &[n, m], rows);
        }
        // A number takes a digit and a separator at least.
        check_space(&self.path, 2 * (n as u64).saturating_mul(m as u64))?;
        try_write_atomically(&self.path, |w| {
            if !columns.is_empty() {
                writeln!(w, "{}", columns.join(",")).map_err(|e| Error::io(&self.path, e))?;
            }
            rows(&mut |some| {
                let rows = ArrayView2::from_shape((some.len() / m, m), some).expect("whole rows");
                check_finite(&self.path, rows)?;
                csv_rows(w, rows).map_err(|e| Error::io(&self.path, e))
            })
        })
    }

    /// Writes text piece by piece, as `pieces` passes them to its argument.
    pub fn pieces(&self, pieces: impl FnOnce(&mut dyn FnMut(&str) -> Result<()>) -> Result<()>) -> Result<()> {
        try_write_atomically(&self.path, |w| {
            pieces(&mut |piece| w.write_all(piece.as_bytes()).map_err(|e| Error::io(&self.path, e)))
        })
    }

    /// Writes predictions, one per row. A `.csv` gets the names of the classes. An `.npy` gets whole numbers: the names
    /// where they are whole numbers, else their positions, which the returned note explains.
    pub fn predictions(&self, predicted: &Target) -> Result<Option<String>> {
        let is_csv = self.is("csv");
        match predicted {
            Target::Values(values) if is_csv => self.csv(aview1(values).insert_axis(Axis(1)), &["prediction".into()]),
            Target::Values(values) => write_npy(&self.path, aview1(values)),
            Target::Classes { labels, names } if is_csv => {
                let rows: String = labels.iter().map(|&l| quoted(&names[l]) + "\n").collect();
                self.text(&format!("prediction\n{rows}"))
            }
            Target::Classes { labels, names } => {
                let (numbers, note) = class_numbers(names);
                write_npy(&self.path, aview1(&labels.iter().map(|&l| numbers[l]).collect::<Vec<i64>>()))?;
                return Ok(note);
            }
        }?;
        Ok(None)
    }

    fn csv<T: Element + Display>(&self, values: ArrayView2<T>, columns: &[String]) -> Result<()> {
        check_finite(&self.path, values)?;
        write_atomically(&self.path, |w| {
            if !columns.is_empty() {
                writeln!(w, "{}", columns.join(","))?;
            }
            csv_rows(w, values)
        })
    }
}

/// The number that stands for each class in an `.npy`: its name where all are whole numbers, else its position, and a note says so.
pub fn class_numbers(names: &[String]) -> (Vec<i64>, Option<String>) {
    if let Some(numbers) = names.iter().map(|name| name.parse().ok()).collect::<Option<Vec<i64>>>() {
        return (numbers, None);
    }
    let listed = names.iter().enumerate().map(|(i, name)| format!("{i} = {name}")).collect::<Vec<_>>();
    ((0..names.len() as i64).collect(), Some(format!("classes are written as numbers: {}", listed.join(", "))))
}

fn csv_rows<T: Display>(w: &mut dyn Write, values: ArrayView2<T>) -> io::Result<()> {
    values.rows().into_iter().try_for_each(|row| {
        let cells: Vec<String> = row.iter().map(T::to_string).collect();
        writeln!(w, "{}", cells.join(","))
    })
}

/// The path as text; what is not UTF-8 in it is replaced.
impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name.to_string_lossy())
    }
}

/// A cell of a `.csv`, quoted where necessary.
pub fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.into() }
}

/// `prefix1`, `prefix2`, …
pub fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|j| format!("{prefix}{j}")).collect()
}

/// The array that was written to a file: its shape, its size, what it holds, and the time it took.
pub fn written(file: &Path, shape: &str, bytes: u64, content: &str, taken: f64) -> String {
    format!("wrote {}: {shape}, {}, {content}, in {}", file.display(), human_bytes(bytes), seconds(taken))
}
