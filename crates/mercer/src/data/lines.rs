//! Lines of a table of text as they are handed to the parser: rows that do not fit into memory, and quotes that swallow rows, are refused before.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr2};

use crate::budget::Budget;

/// Bytes that a column takes beside its values: its name, its role, and the ends of its cells.
const COLUMN: u64 = 512;
/// Lines that a quoted cell may have.
const MOST_LINES: usize = 1000;
/// A quoted cell that holds so many whole lines, all with the separators of a row, and so many separators in all, has swallowed rows.
const ROWS: usize = 3;
const SEPARATORS: usize = 6;

/// Text whose rows fit into the budget, and whose quoted cells end.
pub(super) struct Lines<R> {
    pub reader: R,
    separator: u8,
    budget: Budget,
    place: Place,
    /// The byte before.
    previous: u8,
    /// Lines so far.
    line: usize,
    /// Bytes and separators of the present row.
    bytes: u64,
    separators: usize,
    /// Separators of the first row, once it has ended.
    width: Option<usize>,
}

enum Place {
    Plain,
    Quoted(Quoted),
    /// After a quote within a quoted cell, which ends it unless another one follows.
    Closing(Quoted),
}

/// A quoted cell so far.
#[derive(Clone, Copy)]
struct Quoted {
    /// The line where it begins, counted from 1.
    line: usize,
    /// Ends of lines, and whole lines with as many separators as the first row.
    ends: usize,
    rows: usize,
    /// Separators of the present line.
    separators: usize,
}

impl<R> Lines<R> {
    pub fn new(reader: R, separator: u8, budget: Budget) -> Self {
        let (place, previous, line) = (Place::Plain, b'\n', 1);
        Lines { reader, separator, budget, place, previous, line, bytes: 0, separators: 0, width: None }
    }

    fn see(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let quote = memchr(b'"', rest);
            let end = quote.unwrap_or(rest.len());
            match self.place {
                Place::Plain => {
                    self.plain(&rest[..end]);
                    let opens = [self.separator, b'\n', b'\r'].contains(&self.previous);
                    if quote.is_some() {
                        (self.previous, self.bytes) = (b'"', self.bytes + 1);
                        if opens {
                            self.place = Place::Quoted(Quoted { line: self.line, ends: 0, rows: 0, separators: 0 });
                        }
                    }
                    at += end + usize::from(quote.is_some());
                }
                Place::Quoted(cell) => {
                    let cell = self.within(cell, &rest[..end])?;
                    self.place = if quote.is_some() { Place::Closing(cell) } else { Place::Quoted(cell) };
                    at += end + usize::from(quote.is_some());
                }
                Place::Closing(cell) if quote == Some(0) => {
                    self.place = Place::Quoted(cell);
                    at += 1;
                }
                Place::Closing(cell) => {
                    let ends = [self.separator, b'\n', b'\r'].contains(&rest[0]);
                    self.check_closed(cell, ends)?;
                    (self.place, self.previous) = (Place::Plain, b'"');
                }
            }
        }
        Ok(())
    }

    /// Bytes outside of quotes.
    fn plain(&mut self, bytes: &[u8]) {
        let separators = |bytes: &[u8]| memchr_iter(self.separator, bytes).count();
        if self.width.is_none() {
            let first = bytes.iter().position(|b| matches!(b, b'\n' | b'\r'));
            self.width = first.map(|end| self.separators + separators(&bytes[..end]));
        }
        (self.bytes, self.separators) = match memrchr2(b'\n', b'\r', bytes) {
            Some(end) => ((bytes.len() - end) as u64, separators(&bytes[end..])),
            None => (self.bytes + bytes.len() as u64, self.separators + separators(bytes)),
        };
        self.line += memchr_iter(b'\n', bytes).count();
        self.previous = bytes.last().copied().unwrap_or(self.previous);
    }

    /// Bytes of a quoted cell.
    fn within(&mut self, mut cell: Quoted, bytes: &[u8]) -> Result<Quoted, String> {
        self.bytes += bytes.len() as u64;
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            cell.separators += memchr_iter(self.separator, line).count();
            if line.ends_with(b"\n") {
                cell.rows += usize::from(cell.ends > 0 && Some(cell.separators) == self.width);
                (cell.ends, cell.separators, self.line) = (cell.ends + 1, 0, self.line + 1);
            }
        }
        let line = cell.line;
        match cell.ends > MOST_LINES {
            true => Err(format!("line {line} opens a quote that is not closed within {MOST_LINES} lines; {REMEDY}")),
            false => Ok(cell),
        }
    }

    /// Refuses a cell of several lines whose quote `ends` it in the midst of other text, or that holds whole rows.
    fn check_closed(&self, cell: Quoted, ends: bool) -> Result<(), String> {
        let whole =
            cell.rows >= ROWS && cell.rows + 1 == cell.ends && cell.rows * self.width.unwrap_or(0) >= SEPARATORS;
        let (opened, closed) = (cell.line, self.line);
        match cell.ends > 0 && (whole || !ends) {
            true => Err(format!("line {opened} opens a quote that swallows rows up to line {closed}; {REMEDY}")),
            false => Ok(()),
        }
    }
}

const REMEDY: &str = "remove the quote, or put two in its place inside quotes";

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(buffer)?;
        self.see(&buffer[..got]).map_err(io::Error::other)?;
        if let (Place::Quoted(cell), true) = (&self.place, got == 0 && !buffer.is_empty()) {
            return Err(io::Error::other(format!("line {} opens a quote that is never closed; {REMEDY}", cell.line)));
        }
        let needed = self.bytes.max(COLUMN.saturating_mul(self.separators as u64));
        if self.budget.allows(needed) { Ok(got) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }
}
