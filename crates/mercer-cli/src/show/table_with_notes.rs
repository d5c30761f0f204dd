//! Tables with lines of words below them, for the terminal and for reports.

use mercer_figure::report::{Report, Table};

/// A table, where there is one, and what is said below it.
#[derive(Default)]
pub struct TableWithNotes {
    pub table: Option<Table>,
    pub notes: Vec<String>,
}

impl TableWithNotes {
    /// A table of these rows; none where there are no rows.
    pub fn of(headings: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> TableWithNotes {
        TableWithNotes { table: (!rows.is_empty()).then(|| Table::of(headings, rows)), notes: vec![] }
    }

    /// With one more line below, where there is one.
    pub fn note(mut self, note: impl Into<Option<String>>) -> TableWithNotes {
        self.notes.extend(note.into());
        self
    }

    /// As plain text; each note is a line.
    pub fn text(&self) -> String {
        let table = self.table.as_ref().map_or_else(String::new, Table::text);
        self.notes.iter().fold(table, |text, note| text + note + "\n")
    }

    /// Adds it to a page.
    pub fn onto(self, page: Report) -> Report {
        let words = self.notes.join("; ");
        match self.table {
            Some(table) => page.table(table.caption(words)),
            None => page.text(&words),
        }
    }
}

/// Several as plain text, with empty lines between them.
pub fn joined(all: &[TableWithNotes]) -> String {
    let texts: Vec<String> = all.iter().map(TableWithNotes::text).filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}
