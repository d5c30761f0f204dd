//! Tables of text: separated by commas, semicolons, tabs or `|`, with or without a header, gzipped or not.

use std::io::{self, Read};
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};
use ndarray::Array2;

use super::bytes::{Source, read_error};
use super::cells::{Cells, Unfit, is_missing, is_typed, number};
use super::dataset::{Dataset, SomeTargets, generated_columns};
use super::header::{counts_columns, is_header};
use super::lines::Lines;
use super::table::{Column, Request, Role, Table, TableTarget, distinct_but, place, twice};
use super::text::Text;
use super::{ReadOptions, bytes};
use crate::budget::Budget;
use crate::{Error, Result, fail_if};

/// Bytes that are read ahead to find the separator.
const HEAD: u64 = 1 << 16;
/// Rows, at most, that are read ahead to find whether the first is a header.
const LEAD: usize = 200;

/// Reads a table of numbers. A target column of text becomes classes in the order of their names, one of numbers values.
pub(super) fn read_numbers(path: &Path, name: &str, options: &ReadOptions) -> Result<Dataset> {
    let request = Request { numbers_only: true, ..Request::new(options, None) };
    read(Source::open(path, options.budget())?, name, &request).map(Table::into_numbers)
}

/// Reads a table.
pub(super) fn read(source: Source, name: &str, request: &Request) -> Result<Table> {
    let (path, options, budget) = (source.path, request.options, source.budget);
    let (mut text, mut head) = (Text::new(source.reader), vec![]);
    let room = budget.bytes().min(HEAD);
    text.by_ref().take(room).read_to_end(&mut head).map_err(|e| read_error(path, e))?;
    let separator = separator(&head);
    if separator.is_none() && has_blanks(&head) {
        let what = "has blanks between the values of its rows, which do not separate columns; separate them by commas";
        return Err(Error::file(path, what));
    }
    let separator = separator.unwrap_or(b',');
    let mut rows = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true) // ragged rows are refused below, with their row number
        .delimiter(separator)
        .from_reader(Lines::new(io::Cursor::new(head).chain(text), separator, budget));
    let mut next = |record: &mut StringRecord| {
        rows.read_record(record).map_err(|e| match e.into_kind() {
            csv::ErrorKind::Io(e) => read_error(path, e),
            kind => Error::file(path, format!("{kind:?}")),
        })
    };
    let (mut lead, mut size, mut record) = (Vec::new(), 0, StringRecord::new());
    while (lead.len() < 2 || lead.len() < LEAD && size < HEAD) && next(&mut record)? {
        size += record.as_slice().len() as u64 + 8 * record.len() as u64;
        lead.push(record.clone());
    }
    let Some(first) = lead.first() else { return Err(Error::file(path, "is empty")) };
    let known = request.like.is_some_and(|schema| schema.is_named_by(first.iter().map(str::trim)));
    let header = options.header.unwrap_or_else(|| known || is_header(&lead, options));
    let mut reading = Reading::new(path, budget, first, header, request)?;
    if !header && options.header.is_none() && counts_columns(first) {
        let what = concat!(
            "its first row counts the columns and is taken for data; if it is a header, ",
            crate::advice!(SetHeader)
        );
        reading.notes.push(what.into());
    }
    let range = options.rows.clone().unwrap_or(0..usize::MAX);
    for record in &lead[usize::from(header)..] {
        reading.push(record, &range)?;
    }
    while reading.rows < range.end && next(&mut record)? {
        reading.push(&record, &range)?;
    }
    reading.notes.extend(rows.get_ref().reader.get_ref().1.note());
    reading.finish(name, &range)
}

/// The separator that occurs most in the first line; `|` if no other does.
fn separator(head: &[u8]) -> Option<u8> {
    let line = head.split(|&b| b == b'\n').find(|l| !l.is_empty()).unwrap_or(head);
    let count = |d: u8| line.iter().filter(|&&b| b == d).count();
    // max_by_key keeps the last of equals: the comma.
    let most = [b'\t', b';', b','].into_iter().max_by_key(|&d| count(d)).filter(|&d| count(d) > 0);
    most.or_else(|| line.contains(&b'|').then_some(b'|'))
}

/// Whether blanks separate columns in lines that nothing else separates: each line has as many words, and all but the first have a number.
fn has_blanks(head: &[u8]) -> bool {
    let text =
        std::str::from_utf8(head).unwrap_or_else(|e| std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or(""));
    let whole = text.rsplit_once('\n').map_or(text, |(whole, _)| whole);
    let mut lines = whole.lines().filter(|line| !line.trim_ascii().is_empty());
    let Some(width) = lines.next().map(|line| line.split_ascii_whitespace().count()) else { return false };
    let mut fits = |line: &str| {
        line.split_ascii_whitespace().count() == width && line.split_ascii_whitespace().any(|w| number(w).is_some())
    };
    width > 1 && lines.clone().next().is_some() && lines.all(&mut fits)
}

fn column_names(header: &StringRecord) -> Vec<String> {
    let name = |(j, c): (usize, &str)| match c.trim() {
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
    /// Rows that are kept so far, and those of them that have a target; whether a row may lack it.
    kept: usize,
    labelled: Vec<usize>,
    may_lack_target: bool,
    /// The target whose rows are left out where it is missing, and how many were.
    skipped_without: Option<usize>,
    unlabelled: usize,
    /// Columns that the schema of another table does not need.
    ignored: Vec<String>,
    notes: Vec<String>,
}

impl<'a> Reading<'a> {
    fn new(
        path: &'a Path,
        budget: Budget,
        first: &StringRecord,
        header: bool,
        request: &Request,
    ) -> Result<Reading<'a>> {
        let names = if header { column_names(first) } else { generated_columns(first.len()) };
        let roles = request.roles(path, &names, header, false)?;
        let notes = twice(&names).into_iter().collect();
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
            kept: 0,
            labelled: vec![],
            skipped_without,
            unlabelled: 0,
            ignored,
            notes,
        })
    }

    fn push(&mut self, record: &StringRecord, range: &std::ops::Range<usize>) -> Result<()> {
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

    fn push_cells(&mut self, record: &StringRecord) -> Result<()> {
        let width = self.features.len();
        if self.x.capacity() - self.x.len() < width {
            // The vector grows to twice its size, beside the old one.
            let more = self.x.capacity().max(width);
            let words: u64 = self.features.iter().chain([&self.target]).map(Cells::bytes).sum();
            bytes::require(self.budget, self.path, words + 8 * (2 * self.x.capacity() + more) as u64)?;
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
        self.kept += 1;
        Ok(())
    }

    fn push_target(&mut self, j: usize, cell: &str) -> Result<()> {
        if is_missing(cell) && self.may_lack_target {
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
        self.labelled.push(self.kept);
        Ok(())
    }

    fn finish(self, name: &str, range: &std::ops::Range<usize>) -> Result<Table> {
        let Reading {
            path,
            names,
            named,
            roles,
            rows,
            x,
            features,
            y,
            target,
            kept: n,
            labelled,
            unlabelled,
            ignored,
            notes,
            ..
        } = self;
        fail_if!(rows == 0; Error::file(path, "holds a header but no rows"));
        let first = range.start + 1;
        fail_if!(rows <= range.start; Error::file(path, format!("has {rows} rows; there is no row {first}")));
        let position = roles.iter().position(|role| *role == Role::Target);
        let (target, some_target) = match position {
            Some(j) if labelled.len() == n => {
                let values = target.into_target(y);
                (Some(TableTarget { name: names[j].clone(), position, values }), None)
            }
            Some(_) if !labelled.is_empty() => (None, Some(SomeTargets { rows: labelled, y: target.into_target(y) })),
            _ => (None, None),
        };
        let d = features.len();
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
        let bare = Table::bare(name.to_owned(), path.to_string_lossy().into_owned(), x.into());
        Ok(Table { columns, named, target, some_target, unlabelled, ignored, notes, tabular: true, ..bare })
    }

    /// `row 3, column 5 (counted from 1), \`age\`,` with the name only where the file gives one.
    fn place(&self, j: usize) -> String {
        place(self.rows, &self.names[j], j)
    }

    fn bad_cell(&self, j: usize, cell: &str) -> Error {
        let place = self.place(j);
        let first = concat!(
            "; if the first row is a header, ",
            crate::advice!(SetHeader),
            ", and if the column holds classes, make it the target"
        );
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
    fn mixed(&self, j: usize, cell: &str, before: &str) -> Error {
        let found = match number(cell) {
            Some(_) => "a number",
            None if is_typed(cell) => "a date or a truth value",
            None => "a word",
        };
        let (place, cell) = (self.place(j), shown(cell));
        let header = if self.rows == 1 && !self.named {
            concat!("; if the first row is a header, ", crate::advice!(SetHeader))
        } else {
            ""
        };
        let advice = concat!("correct it, ", crate::advice!(TakeAsCategory), ", or ", crate::advice!(LeaveOut));
        let what = format!("{place} is `{cell}`, {found}, but the rows above hold {before}; {advice}{header}");
        Error::file(self.path, what)
    }

    fn mixed_target(&self, j: usize, cell: &str, is_number: bool) -> Error {
        let (this, before) = if is_number { ("a number", "text") } else { ("text", "a number") };
        let (place, cell) = (self.place(j), shown(cell));
        let rule = "a target is numbers throughout or text throughout";
        Error::file(self.path, format!("{place} is `{cell}`, {this}, but the target of row 1 is {before}; {rule}"))
    }
}

/// The cell as text, shortened for a message.
fn shown(cell: &str) -> String {
    let mut short: String = cell.trim().chars().take(40).flat_map(char::escape_debug).collect();
    if cell.trim().chars().nth(40).is_some() {
        short.push('…');
    }
    short
}
