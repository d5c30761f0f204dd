//! Files that are written: checked before the long work, there whole or not at all after it.

use mercer::data::{Element, write_atomically, write_npy};
use mercer::{Error, Result};
use ndarray::ArrayView2;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// An output file that can be written, as far as can be known beforehand.
#[derive(Clone, Debug)]
pub struct Output(PathBuf);

impl Output {
    /// Fails unless a file can be made at `path`: the folder is there and lets us write.
    pub fn new(path: &Path) -> Result<Output> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(Error::file(
                path,
                format!("cannot be written: there is no folder `{}`; make it first", folder.display()),
            ));
        }
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(Error::file(path, "is a folder; name a file to write"));
        };
        let mut trial = std::ffi::OsString::from(".");
        trial.push(name);
        trial.push(format!(".{}.trial", std::process::id()));
        let trial = folder.join(trial);
        std::fs::File::create(&trial).map_err(|e| Error::file(path, format!("cannot be written: {e}")))?;
        let _ = std::fs::remove_file(&trial);
        Ok(Output(path.to_owned()))
    }

    /// As [`Self::new`], for a table of numbers: `.npy` or `.csv`.
    pub fn table(path: &Path) -> Result<Output> {
        Output::with_extension(path, &["npy", "csv"])
    }

    /// As [`Self::new`], for a file whose name must end in one of `extensions`.
    pub fn with_extension(path: &Path, extensions: &[&str]) -> Result<Output> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        if !extensions.contains(&extension) {
            let known: Vec<String> = extensions.iter().map(|e| format!(".{e}")).collect();
            return Err(Error::file(path, format!("must end in {}", known.join(" or "))));
        }
        Output::new(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes text.
    pub fn text(&self, text: &str) -> Result<()> {
        write_atomically(&self.0, |w| w.write_all(text.as_bytes()))
    }

    /// Writes `values` `[n, m]`; in a `.csv` under the given names of its columns, where there are any.
    pub fn matrix<T: Element + Display>(&self, values: ArrayView2<T>, columns: &[String]) -> Result<()> {
        if self.0.extension().is_some_and(|e| e == "csv") {
            self.csv(values, columns)
        } else {
            write_npy(&self.0, values)
        }
    }

    fn csv<T: Display + Copy>(&self, values: ArrayView2<T>, columns: &[String]) -> Result<()> {
        write_atomically(&self.0, |w| {
            if !columns.is_empty() {
                writeln!(w, "{}", columns.join(","))?;
            }
            for row in values.rows() {
                let cells: Vec<String> = row.iter().map(T::to_string).collect();
                writeln!(w, "{}", cells.join(","))?;
            }
            Ok(())
        })
    }
}

/// The checked output, where one is wanted.
pub fn optional(path: Option<&Path>, check: fn(&Path) -> Result<Output>) -> Result<Option<Output>> {
    path.map(check).transpose()
}

/// `prefix1`, `prefix2`, …
pub fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|j| format!("{prefix}{j}")).collect()
}
