//! Tables of text: separated by commas, semicolons or tabs, with or without a header, gzipped or not.

use std::io::Read;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};
use ndarray::Array2;

use super::bytes::{Lines, Source, read_error};
use super::cells::{Cells, Unfit, is_missing, is_typed, number};
use super::dataset::{Dataset, generated_columns};
use super::table::{Column, Request, Role, Table, TableTarget, distinct_but, place};
use super::{ReadOptions, bytes};
use crate::budget::Budget;
use crate::{Error, Result, fail_if};

/// Bytes that are read ahead to find the separator.
const HEAD: u64 = 1 << 16;

/// Reads a table of numbers. A target column of text becomes classes in the order of their names, one of numbers values.
pub(super) fn read_numbers(path: &Path, name: &str, options: &ReadOptions) -> Result<Dataset> {
    let request = Request { numbers_only: true, ..Request::new(options, None) };
    read(Source::open(path, options.budget())?, name, &request).map(Table::into_numbers)
}

/// Reads a table.
pub(super) fn read(mut source: Source, name: &str, request: &Request) -> Result<Table> {
    let (path, options, budget) = (source.path, request.options, source.budget);
    let mut head = source.read_up_to(HEAD)?;
    if head.starts_with(b"\xef\xbb\xbf") {
        head.drain(..3);
    }
    let mut rows = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true) // ragged rows are refused below, with their row number
        .delimiter(delimiter(&head))
        .from_reader(Lines { reader: std::io::Cursor::new(head).chain(source.reader), budget, since: 0 });
    let mut next = |record: &mut ByteRecord| {
        rows.read_byte_record(record).map_err(|e| match e.into_kind() {
            csv::ErrorKind::Io(e) => read_error(path, e),
            kind => Error::file(path, format!("{kind:?}")),
        })
    };
    let (mut lead, mut record) = (Vec::new(), ByteRecord::new());
    while lead.len() < 2 && next(&mut record)? {
        lead.push(record.clone());
    }
    let Some(first) = lead.first() else { return Err(Error::file(path, "is empty")) };
    let known = request.like.is_some_and(|schema| schema.is_named_by(first.iter().map(<[u8]>::trim_ascii)));
    let header = options.header.unwrap_or_else(|| known || looks_like_header(first, lead.get(1)));
    let mut reading = Reading::new(path, budget, first, header, request)?;
    let range = options.rows.clone().unwrap_or(0..usize::MAX);
    for record in &lead[usize::from(header)..] {
        reading.push(record, &range)?;
    }
    while reading.rows < range.end && next(&mut record)? {
        reading.push(&record, &range)?;
    }
    reading.finish(name, &range)
}

/// The separator that occurs most in the first line; a comma if none does.
fn delimiter(head: &[u8]) -> u8 {
    let line = head.split(|&b| b == b'\n').find(|l| !l.is_empty()).unwrap_or(head);
    let count = |d: u8| line.iter().filter(|&&b| b == d).count();
    // max_by_key keeps the last of equals: the comma.
    [b'\t', b';', b','].into_iter().max_by_key(|&d| count(d)).unwrap_or(b',')
}

/// Whether the first row is a header: it has words only, and the second row, if there is one, has something else.
fn looks_like_header(first: &ByteRecord, second: Option<&ByteRecord>) -> bool {
    let words_only = first.iter().all(|cell| !is_typed(cell));
    words_only && second.is_none_or(|second| second.iter().any(is_typed))
}

fn column_names(header: &ByteRecord) -> Vec<String> {
    let name = |(j, c): (usize, &[u8])| match String::from_utf8_lossy(c).trim() {
        "" => format!("x{j}"),
        name => name.to_string(),
    };
    header.iter().enumerate().map(name).collect()
}

/// The rows read so far.
struct Reading<'a> {
    path: &'a Path,
    budget: Budget,
    names: Vec<String>,
    named: bool,
    roles: Vec<Role>,
    /// Rows that were read, those passed over included.
    rows: usize,
    /// Features, row by row.
    x: Vec<f64>,
    /// How the cells of each feature are read.
    features: Vec<Cells>,
    y: Vec<f64>,
    target: Cells,
    /// Whether rows may lack the target, and whether one does.
    may_lack_target: bool,
    lacks_target: bool,
    /// The target whose rows are left out where it is missing, and how many were.
    skipped_without: Option<usize>,
    unlabelled: usize,
    /// Columns that the schema of another table does not need.
    ignored: Vec<String>,
}

impl<'a> Reading<'a> {
    fn new(path: &'a Path, budget: Budget, first: &ByteRecord, header: bool, request: &Request) -> Result<Reading<'a>> {
        let names = if header { column_names(first) } else { generated_columns(first.len()) };
        let roles = request.roles(path, &names, header, false)?;
        let names = distinct_but(&names, roles.iter().position(|role| *role == Role::Target));
        let target = roles.iter().position(|role| *role == Role::Target);
        let skipped_without = target.filter(|_| request.skips_unlabelled());
        let ignored = request.ignored(&roles, &names);
        let features = roles.iter().filter(|role| !matches!(role, Role::Skipped | Role::Target));
        let cells = |role: &Role| if *role == Role::Category { Cells::words() } else { Cells::default() };
        Ok(Reading {
            path,
            budget,
            names,
            named: header,
            features: features.map(cells).collect(),
            roles,
            rows: 0,
            x: vec![],
            y: vec![],
            target: Cells::default(),
            may_lack_target: request.like.is_some(),
            lacks_target: false,
            skipped_without,
            unlabelled: 0,
            ignored,
        })
    }

    fn push(&mut self, record: &ByteRecord, range: &std::ops::Range<usize>) -> Result<()> {
        let (width, got, row) = (self.roles.len(), record.len(), self.rows + 1);
        if got != width {
            let what = format!("is ragged: row {row} (counted from 1) has {got} columns, where {width} are expected");
            return Err(Error::file(self.path, what));
        }
        if range.contains(&self.rows) {
            if self.skipped_without.is_some_and(|target| is_missing(&record[target])) {
                self.unlabelled += 1;
            } else {
                self.push_cells(record)?;
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn push_cells(&mut self, record: &ByteRecord) -> Result<()> {
        let width = self.features.len();
        if self.x.capacity() - self.x.len() < width {
            // The vector grows to twice its size, beside the old one.
            let more = self.x.capacity().max(width);
            bytes::require(self.budget, self.path, 8 * (2 * self.x.capacity() + more) as u64)?;
            self.x.reserve_exact(more);
        }
        let mut feature = 0;
        for (j, cell) in record.iter().enumerate() {
            let value = match self.roles[j] {
                Role::Skipped => continue,
                Role::Target => {
                    self.push_target(j, cell)?;
                    continue;
                }
                Role::Number => number(cell).filter(|v| v.is_finite()).ok_or_else(|| self.bad_cell(j, cell))?,
                Role::Any | Role::Category => match self.features[feature].value(cell) {
                    Ok(value) => value,
                    Err(Unfit::Infinite) => return Err(self.bad_cell(j, cell)),
                    Err(Unfit::Mixed) => return Err(self.mixed(j, cell, self.features[feature].so_far())),
                },
            };
            self.x.push(value);
            feature += 1;
        }
        Ok(())
    }

    fn push_target(&mut self, j: usize, cell: &[u8]) -> Result<()> {
        if is_missing(cell) && self.may_lack_target {
            self.lacks_target = true;
            return Ok(());
        }
        // The first row decides whether the target is numbers or text.
        let value = match number(cell) {
            Some(v) if !v.is_finite() => return Err(self.bad_cell(j, cell)),
            None if is_missing(cell) => return Err(self.bad_cell(j, cell)),
            Some(v) if !self.target.are_words() => v,
            None if self.y.is_empty() || self.target.are_words() => self.target.word(cell),
            found => return Err(self.mixed_target(j, cell, found.is_some())),
        };
        self.y.push(value);
        Ok(())
    }

    fn finish(self, name: &str, range: &std::ops::Range<usize>) -> Result<Table> {
        let Reading { path, names, named, roles, rows, x, features, y, target, unlabelled, ignored, .. } = self;
        fail_if!(rows == 0; Error::file(path, "holds a header but no rows"));
        let first = range.start + 1;
        fail_if!(rows <= range.start; Error::file(path, format!("has {rows} rows; there is no row {first}")));
        let position = roles.iter().position(|role| *role == Role::Target).filter(|_| !self.lacks_target);
        let target =
            position.map(|j| TableTarget { name: names[j].clone(), position: Some(j), values: target.into_target(y) });
        let d = features.len();
        let n = rows.min(range.end) - range.start - unlabelled;
        fail_if!(n == 0; Error::file(path, "has no row with a target"));
        let mut x = Array2::from_shape_vec((n, d), x).expect("each row was counted");
        let kept = (0..roles.len()).filter(|&j| !matches!(roles[j], Role::Skipped | Role::Target));
        let mut columns = vec![];
        for ((position, cells), mut column) in kept.zip(features).zip(x.columns_mut()) {
            let (kind, positions) = cells.finish();
            if let Some(positions) = positions {
                let known = column.iter_mut().filter(|v| !v.is_nan());
                known.for_each(|v| *v = positions[*v as usize]);
            }
            columns.push(Column { name: names[position].clone(), position, kind });
        }
        let (name, source) = (name.to_owned(), path.to_string_lossy().into_owned());
        Ok(Table {
            name,
            x: x.into(),
            columns,
            named,
            target,
            shape: None,
            unlabelled,
            ignored,
            source,
            tabular: true,
            first: 0,
            decided: false,
        })
    }

    /// `row 3, column 5 (counted from 1), \`age\`,` with the name only where the file gives one.
    fn place(&self, j: usize) -> String {
        place(self.rows, &self.names[j], j)
    }

    fn bad_cell(&self, j: usize, cell: &[u8]) -> Error {
        let place = self.place(j);
        let first = "; if the first row is a header, set the header option, and if the column holds classes, make it the target";
        let advice = if self.rows == 0 { first } else { "" };
        let what = match number(cell) {
            _ if cell.trim_ascii().is_empty() => "is empty; fill the value or drop the row".into(),
            None if is_missing(cell) => format!("is `{}`, a missing value; fill it or drop the row", shown(cell)),
            Some(v) => format!("is {v}; fill the value or drop the row"),
            None => format!("is `{}`, not a number{advice}", shown(cell)),
        };
        Error::file(self.path, format!("{place} {what}"))
    }

    /// A cell that is not what the cells before it are.
    fn mixed(&self, j: usize, cell: &[u8], before: &str) -> Error {
        let found = match number(cell) {
            Some(_) => "a number",
            None if is_typed(cell) => "a date or a truth value",
            None => "a word",
        };
        let (place, cell) = (self.place(j), shown(cell));
        let header =
            if self.rows == 1 && !self.named { "; if the first row is a header, set the header option" } else { "" };
        let advice = "correct it, take the column as a category, or leave the column out";
        let what = format!("{place} is `{cell}`, {found}, but the rows above hold {before}; {advice}{header}");
        Error::file(self.path, what)
    }

    fn mixed_target(&self, j: usize, cell: &[u8], is_number: bool) -> Error {
        let (this, before) = if is_number { ("a number", "text") } else { ("text", "a number") };
        let (place, cell) = (self.place(j), shown(cell));
        let rule = "a target is numbers throughout or text throughout";
        Error::file(self.path, format!("{place} is `{cell}`, {this}, but the target of row 1 is {before}; {rule}"))
    }
}

/// The cell as text, shortened for a message.
fn shown(cell: &[u8]) -> String {
    let text = String::from_utf8_lossy(cell);
    let mut short: String = text.trim().chars().take(40).flat_map(char::escape_debug).collect();
    if text.trim().chars().nth(40).is_some() {
        short.push('…');
    }
    short
}
