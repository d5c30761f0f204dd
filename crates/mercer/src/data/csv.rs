//! Tables of text: separated by commas, semicolons or tabs, with or without a header, gzipped or not.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};
use ndarray::Array2;

use super::ReadOptions;
use super::bytes::{Lines, Source, read_error, require};
use super::dataset::{Dataset, Target, cell, distinct, find_target, generated_columns};
use crate::budget::Budget;
use crate::{Error, Result, fail_if};

/// Bytes that are read ahead to find the separator.
const HEAD: u64 = 1 << 16;

/// Reads a table of numbers. A target column of text becomes classes in the order of their names, one of numbers values.
pub(super) fn read(path: &Path, name: &str, options: &ReadOptions) -> Result<Dataset> {
    let budget = options.budget();
    let mut source = Source::open(path, budget)?;
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
    let header = options.header.unwrap_or_else(|| looks_like_header(first, lead.get(1)));
    let columns = if header { column_names(first) } else { generated_columns(first.len()) };
    let target = find_target(path, &columns, options)?;
    let mut table = Table { path, budget, columns, target, rows: 0, x: Vec::new(), y: Column::default() };
    for record in &lead[usize::from(header)..] {
        table.push(record)?;
    }
    while next(&mut record)? {
        table.push(&record)?;
    }
    table.finish(name)
}

/// The separator that occurs most in the first line; a comma if none does.
fn delimiter(head: &[u8]) -> u8 {
    let line = head.split(|&b| b == b'\n').find(|l| !l.is_empty()).unwrap_or(head);
    let count = |d: u8| line.iter().filter(|&&b| b == d).count();
    // max_by_key keeps the last of equals: the comma.
    [b'\t', b';', b','].into_iter().max_by_key(|&d| count(d)).unwrap_or(b',')
}

/// Whether the first row is a header: it has no number, and the second row, if there is one, has a number.
fn looks_like_header(first: &ByteRecord, second: Option<&ByteRecord>) -> bool {
    let no_number = first.iter().all(|c| number(c).is_none());
    no_number && second.is_none_or(|s| s.iter().any(|c| number(c).is_some()))
}

fn column_names(header: &ByteRecord) -> Vec<String> {
    let name = |(j, c): (usize, &[u8])| match String::from_utf8_lossy(c).trim() {
        "" => format!("x{j}"),
        name => name.to_string(),
    };
    header.iter().enumerate().map(name).collect()
}

fn number(cell: &[u8]) -> Option<f64> {
    std::str::from_utf8(cell.trim_ascii()).ok()?.parse().ok()
}

/// The rows read so far.
struct Table<'a> {
    path: &'a Path,
    budget: Budget,
    columns: Vec<String>,
    target: Option<usize>,
    rows: usize,
    /// Features, row by row.
    x: Vec<f64>,
    y: Column,
}

/// A column as far as it has been read: numbers, or labels of texts.
#[derive(Default)]
pub(super) struct Column {
    pub values: Vec<f64>,
    labels: Vec<usize>,
    known: HashMap<Vec<u8>, usize>,
}

impl Column {
    pub fn push_text(&mut self, text: &[u8]) {
        let label = self.known.get(text).copied().unwrap_or(self.known.len());
        if label == self.known.len() {
            self.known.insert(text.to_vec(), label);
        }
        self.labels.push(label);
    }

    /// Texts become classes in the order of their names, whatever the order of the rows.
    pub fn into_target(self) -> Target {
        if self.labels.is_empty() {
            return Target::Values(self.values);
        }
        let mut order: Vec<(Vec<u8>, usize)> = self.known.into_iter().collect();
        order.sort_unstable();
        let mut position = vec![0; order.len()];
        for (new, (_, old)) in order.iter().enumerate() {
            position[*old] = new;
        }
        Target::Classes {
            labels: self.labels.into_iter().map(|l| position[l]).collect(),
            names: order.iter().map(|(text, _)| String::from_utf8_lossy(text).into_owned()).collect(),
        }
    }
}

impl Table<'_> {
    fn push(&mut self, record: &ByteRecord) -> Result<()> {
        let (width, got, row) = (self.columns.len(), record.len(), self.rows + 1);
        if got != width {
            let what = format!("is ragged: row {row} (counted from 1) has {got} columns, where {width} are expected");
            return Err(Error::file(self.path, what));
        }
        if self.x.capacity() - self.x.len() < width {
            // The vector grows to twice its size, beside the old one.
            let more = self.x.capacity().max(width);
            require(self.budget, self.path, 8 * (2 * self.x.capacity() + more) as u64)?;
            self.x.reserve_exact(more);
        }
        for (j, cell) in record.iter().enumerate() {
            let is_target = Some(j) == self.target;
            match number(cell) {
                Some(v) if !v.is_finite() => return Err(self.bad_cell(j, cell)),
                Some(v) if !is_target => self.x.push(v),
                // The first row decides whether the target is numbers or text.
                Some(v) if self.y.labels.is_empty() => self.y.values.push(v),
                None if !is_target || cell.trim_ascii().is_empty() => return Err(self.bad_cell(j, cell)),
                None if self.y.values.is_empty() => self.y.push_text(cell.trim_ascii()),
                value => return Err(self.mixed_target(j, cell, value.is_some())),
            }
        }
        self.rows += 1;
        Ok(())
    }

    fn finish(self, name: &str) -> Result<Dataset> {
        let Table { path, mut columns, target, rows, x, y, .. } = self;
        fail_if!(rows == 0; Error::file(path, "holds a header but no rows"));
        let y = target.map(|j| {
            columns.remove(j);
            y.into_target()
        });
        let columns = distinct(columns);
        let x = Array2::from_shape_vec((rows, columns.len()), x).expect("each row was counted");
        Ok(Dataset { name: name.into(), x: x.into(), y, columns, shape: None })
    }

    /// `row 3, column 5 (counted from 1), \`age\`,` with the name only where the file gives one.
    fn place(&self, j: usize) -> String {
        let name = &self.columns[j];
        let named = if *name == format!("x{j}") { String::new() } else { format!(", `{name}`,") };
        format!("{}{named}", cell(self.rows, j))
    }

    fn bad_cell(&self, j: usize, cell: &[u8]) -> Error {
        let place = self.place(j);
        let first = "; if the first row is a header, set the header option, and if the column holds classes, make it the target";
        let advice = if self.rows == 0 { first } else { "" };
        let what = match number(cell) {
            _ if cell.trim_ascii().is_empty() => "is empty; fill the value or drop the row".into(),
            Some(v) => format!("is {v}; fill the value or drop the row"),
            None => format!("is `{}`, not a number{advice}", shown(cell)),
        };
        Error::file(self.path, format!("{place} {what}"))
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
