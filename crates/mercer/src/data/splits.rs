//! The published train and test rows of named tables.

use std::path::Path;

use super::named::at;
use super::{ReadOptions, csv};
use crate::syntax::Call;
use crate::{Error, Result, fail_if};

/// How the train and test rows of a table are given.
#[derive(Clone, Copy)]
pub(super) enum Splits {
    /// They are not given.
    None,
    /// The first rows are for training.
    First(usize),
    /// The text file `uci/splits/NAME.test.txt`: line k lists the test rows of split k, counted from 0.
    Lists,
    /// The CSV `tabular/uci_gp/NAME.test_mask.csv.gz` of zeros and ones: column k marks the test rows of split k.
    Masks,
}

/// Whether the parameter `part` asks for the test rows, where it is given.
pub(super) fn asks_for_test(call: &Call) -> Result<Option<bool>> {
    match call.value("part") {
        None => Ok(None),
        Some("train") => Ok(Some(false)),
        Some("test") => Ok(Some(true)),
        Some(other) => Err(Error::input(format!("`{}`: part must be train or test, not `{other}`", call.name))),
    }
}

impl Splits {
    /// The rows out of `n` that the parameters `split` (counted from 1) and `part` ask for; `None` for the whole table.
    pub fn rows(self, folder: Option<&Path>, call: &Call, n: usize) -> Result<Option<Vec<usize>>> {
        let name = call.name;
        let (wanted, split) = match call.value("part") {
            Some("all") => (None, None),
            _ => (asks_for_test(call)?, call.number::<usize>("split")?),
        };
        let test = match (self, split) {
            (Splits::None, _) => return Ok(None),
            (Splits::First(_), _) | (_, None) if wanted.is_none() => return Ok(None),
            (Splits::First(train), _) => (0..n).map(|i| i >= train).collect(),
            (_, None) => {
                return Err(Error::input(format!(
                    "`{name}` has several splits; choose one, as in {name}(split=1, part=test)"
                )));
            }
            (Splits::Lists, Some(split)) => {
                listed(&at(folder, name, &format!("uci/splits/{name}.test.txt"))?, split, n)?
            }
            (Splits::Masks, Some(split)) => {
                masked(&at(folder, name, &format!("tabular/uci_gp/{name}.test_mask.csv.gz"))?, split, n)?
            }
        };
        Ok(Some((0..n).filter(|&i| test[i] == wanted.unwrap_or(false)).collect()))
    }
}

/// Line `split` (from 1) of the file lists the test rows, counted from 0; `[n]`.
fn listed(path: &Path, split: usize, n: usize) -> Result<Vec<bool>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    let lines: Vec<&str> = text.lines().collect();
    let line = lines[position(path, split, lines.len())?];
    let mut test = vec![false; n];
    for word in line.split_whitespace() {
        let row = word.parse::<usize>().ok().and_then(|i| test.get_mut(i));
        *row.ok_or_else(|| {
            Error::file(path, format!("line {split} lists `{word}`, which is not a row from 0 to {}", n - 1))
        })? = true;
    }
    Ok(test)
}

/// Column `split` (from 1) of the file marks the test rows by 1; `[n]`.
fn masked(path: &Path, split: usize, n: usize) -> Result<Vec<bool>> {
    let masks = csv::read_numbers(path, "mask", &ReadOptions { header: Some(false), ..Default::default() })?;
    fail_if!(masks.n() != n; Error::file(path, format!("has {} rows, but the table has {n}", masks.n())));
    let column = masks.x.column(position(path, split, masks.d())?);
    Ok(column.iter().map(|&v| v != 0.0).collect())
}

/// The position, from 0, of a split that is counted from 1.
fn position(path: &Path, split: usize, count: usize) -> Result<usize> {
    let none = || Error::file(path, format!("has the splits 1 to {count}, not {split}"));
    split.checked_sub(1).filter(|&k| k < count).ok_or_else(none)
}
