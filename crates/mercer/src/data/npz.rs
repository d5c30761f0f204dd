//! NumPy's `.npz`: a zip archive of `.npy` arrays, one of which is `x` and another perhaps `y`.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use zip::ZipArchive;

use super::ReadOptions;
use super::bytes::Source;
use super::dataset::{Dataset, Target, find_column};
use super::npy::{self, Array};
use crate::budget::Budget;
use crate::error::did_you_mean;
use crate::{Error, Result, fail_if};

/// Names of the features and the target where the user gives none.
const FEATURES: [&str; 4] = ["X", "x", "data", "arr_0"];
const TARGETS: [&str; 5] = ["y", "Y", "target", "labels", "label"];

/// Reads the array `options.key` with the target `options.target`, an array or a column of it.
///
/// Without a key: `X`, `x`, `data`, `arr_0` or the only array, and then `y`, `target` or `labels` as the target.
pub(super) fn read(path: &Path, name: &str, options: &ReadOptions) -> Result<Dataset> {
    let mut archive = Archive::open(path, options.budget())?;
    let key = archive.key(options.key.as_deref())?;
    let set = npy::dataset(archive.read(&key)?, name);
    let y = match &options.target {
        Some(target) if archive.names.contains(target) => target.clone(),
        Some(column) => {
            let neither = |e| Error::file(path, format!("{e}; nor is it an array{}", archive.hint(column)));
            // The column is taken with the others that are asked for.
            return find_column(&set.columns, column).map(|_| set).map_err(neither);
        }
        None if options.key.is_some() => return Ok(set),
        None => match TARGETS.iter().find(|t| archive.names.iter().any(|n| n == *t && *n != key)) {
            Some(y) => y.to_string(),
            None => return Ok(set),
        },
    };
    let Array { x: values, dims } = archive.read(&y)?;
    if values.d() != 1 || values.n() != set.n() {
        let n = set.n();
        let what =
            format!("the target `{y}` has shape {dims:?}, but `{key}` has {n} rows: one number per row is needed");
        return Err(Error::file(path, what));
    }
    Ok(Dataset { y: Some(Target::Values(values.column(0))), ..set })
}

struct Archive<'a> {
    path: &'a Path,
    zip: ZipArchive<BufReader<File>>,
    /// Names of the arrays, without `.npy`.
    names: Vec<String>,
    budget: Budget,
}

impl<'a> Archive<'a> {
    fn open(path: &'a Path, budget: Budget) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        fail_if!(file.metadata().map_err(|e| Error::io(path, e))?.len() == 0; Error::file(path, "is empty"));
        let zip = ZipArchive::new(BufReader::new(file))
            .map_err(|e| Error::file(path, format!("is not an .npz archive, or is truncated ({e})")))?;
        let names: Vec<String> = zip.file_names().filter_map(|n| n.strip_suffix(".npy")).map(String::from).collect();
        fail_if!(names.is_empty(); Error::file(path, "holds no .npy array"));
        Ok(Archive { path, zip, names, budget })
    }

    /// The name of the array that is asked for, else of the one that holds the features.
    fn key(&self, asked: Option<&str>) -> Result<String> {
        let fail = |what: String| Err(Error::file(self.path, what));
        let has = |name: &str| self.names.iter().any(|n| n == name);
        match (asked, &self.names[..]) {
            (Some(key), _) if has(key) => Ok(key.into()),
            (Some(key), _) => fail(format!("holds no array '{key}'{}", self.hint(key))),
            (None, [only]) => Ok(only.clone()),
            (None, names) => match FEATURES.into_iter().find(|name| has(name)) {
                Some(name) => Ok(name.into()),
                None => fail(format!("holds several arrays; name one of {} as the key", names.join(", "))),
            },
        }
    }

    /// The arrays, and the one whose name is like `word`.
    fn hint(&self, word: &str) -> String {
        did_you_mean(word, self.names.iter().map(String::as_str))
    }

    fn read(&mut self, key: &str) -> Result<Array> {
        let entry = self.zip.by_name(&format!("{key}.npy"));
        let entry = entry.map_err(|e| Error::file(self.path, format!("the array `{key}` cannot be read ({e})")))?;
        let len = entry.size();
        npy::read_array(Source::array(self.path, key, entry, len, self.budget))
    }
}
