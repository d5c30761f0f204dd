//! Tables: columns of numbers are aligned to the right, and the best value of a column can be bold. One that would not fit the
//! page is set in smaller type, and then cut into parts with fewer columns.

use super::element;
use crate::svg::escape;
use crate::text::{longest_word, parts};

/// Tables of more characters across, padding included, are set in small type.
const WIDE: usize = 80;

/// Tables in small type of more characters across than a printed page has are cut into parts.
const WIDEST: usize = 105;

/// Long text is broken into lines of about so many characters.
const TEXT: usize = 24;

/// The better of two values.
type Better = fn(f64, f64) -> f64;

/// A table under construction. Columns count from 0.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Number of first columns that every part of a wide table repeats.
    key: usize,
    /// Columns whose best value is bold, and the better of two values.
    best: Vec<(usize, Better)>,
    caption: String,
}

impl Table {
    /// An empty table with these headings.
    pub fn new(headings: &[impl AsRef<str>]) -> Table {
        Table { headings: owned(headings), rows: vec![], key: 1, best: vec![], caption: String::new() }
    }

    /// A table with these headings and rows.
    pub fn of(headings: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> Table {
        rows.iter().fold(Table::new(headings), |table, row| table.row(row.as_ref()))
    }

    /// Adds a row; missing cells are empty, surplus cells are dropped.
    pub fn row(mut self, cells: &[impl AsRef<str>]) -> Table {
        let mut cells = owned(cells);
        cells.resize(self.headings.len(), String::new());
        self.rows.push(cells);
        self
    }

    /// Makes the lowest value of a column bold.
    pub fn lowest(mut self, column: usize) -> Table {
        self.best.push((column, f64::min));
        self
    }

    /// Makes the highest value of a column bold.
    pub fn highest(mut self, column: usize) -> Table {
        self.best.push((column, f64::max));
        self
    }

    /// Says that the first `columns` columns, not only the first one, name the row: each part of a wide table repeats them.
    pub fn key(mut self, columns: usize) -> Table {
        self.key = columns;
        self
    }

    /// A caption below the table.
    pub fn caption(mut self, text: impl Into<String>) -> Table {
        self.caption = text.into();
        self
    }

    /// The table as plain text, without its caption.
    pub fn text(&self) -> String {
        crate::text::table(&self.headings, &self.rows)
    }

    /// The table in HTML.
    pub(super) fn html(&self) -> String {
        let class = |column: usize| if self.is_numeric(column) { " class=\"number\"" } else { "" };
        let heading = |(i, text): (usize, &String)| format!("<th scope=\"col\"{}>{}</th>", class(i), escape(text));
        let cell = |(i, text): (usize, &String)| {
            let best = number(text).is_some_and(|v| Some(v) == self.best_of(i));
            let text = escape(text);
            format!("<td{}>{}</td>", class(i), if best { format!("<strong>{text}</strong>") } else { text })
        };
        let part = |columns: &Vec<usize>| {
            let row = |cells: &Vec<String>| {
                format!("<tr>{}</tr>\n", columns.iter().map(|&i| cell((i, &cells[i]))).collect::<String>())
            };
            let head: String = columns.iter().map(|&i| heading((i, &self.headings[i]))).collect();
            let body: String = self.rows.iter().map(row).collect();
            format!(
                "<div class=\"wide\"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
            )
        };
        // The caption is no part of the table, which may be wider than the page on a small screen.
        let caption = element("figcaption", &escape(&self.caption));
        let wide = self.widths(3).iter().sum::<usize>() > WIDE;
        let all: String = parts(&self.widths(2), self.key, WIDEST).iter().map(part).collect();
        format!("<figure class=\"table{}\">\n{all}{caption}</figure>\n", if wide { " dense" } else { "" })
    }

    /// The characters that each column takes across, with `padding`.
    fn widths(&self, padding: usize) -> Vec<usize> {
        let cell = |column: usize, cell: &str| match self.is_numeric(column) {
            true => cell.chars().count(),
            false => cell.chars().count().min(TEXT).max(longest_word(cell)),
        };
        let cells = |j: usize| self.rows.iter().map(|row| cell(j, &row[j])).max().unwrap_or(0);
        let width = |(j, heading): (usize, &String)| cells(j).max(longest_word(heading)) + padding;
        self.headings.iter().enumerate().map(width).collect()
    }

    /// A column is numeric when it holds a number and, apart from gaps, nothing else.
    fn is_numeric(&self, column: usize) -> bool {
        let cells: Vec<&str> =
            self.rows.iter().map(|row| row[column].trim()).filter(|c| !["", "—", "-", "–"].contains(c)).collect();
        !cells.is_empty() && cells.iter().all(|c| number(c).is_some())
    }

    fn best_of(&self, column: usize) -> Option<f64> {
        let (_, better) = self.best.iter().find(|b| b.0 == column)?;
        self.rows.iter().filter_map(|row| number(&row[column])).reduce(better)
    }
}

fn owned(cells: &[impl AsRef<str>]) -> Vec<String> {
    cells.iter().map(|c| c.as_ref().to_owned()).collect()
}

/// The number that a cell begins with: `1.2`, `−3e-4`, `60 000`, `1.21 ± 0.03`, `97 %`, `12 s`.
fn number(cell: &str) -> Option<f64> {
    let cell = cell.trim().replace('−', "-");
    let is_digit = |c: &char| c.is_ascii_digit();
    let (mut digits, mut rest) = (String::new(), cell.chars().peekable());
    while let Some(c) = rest.next() {
        match c {
            '0'..='9' | '.' | '-' | '+' | 'e' | 'E' => digits.push(c),
            // A space between digits groups thousands; any other ends the number.
            c if c.is_whitespace()
                && rest.peek().is_some_and(is_digit)
                && digits.chars().last().is_some_and(|d| is_digit(&d)) => {}
            c if c.is_whitespace() || "±%×".contains(c) => break,
            _ => return None,
        }
    }
    // What follows is a unit or an error, not a sentence.
    let follows: String = rest.collect();
    if follows.split_whitespace().count() > 2 {
        return None;
    }
    digits.parse().ok().filter(|v: &f64| v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_people_write_them() {
        let cells = ["1.5", "−3e-4", "60 000", "60\u{202f}000", "1.2 ± 0.3", "97%", "12 s"];
        assert_eq!(cells.map(number), [1.5, -3e-4, 6e4, 6e4, 1.2, 97.0, 12.0].map(Some));
        for cell in ["", "—", "RBF", "3d", "n = 3", "inf", "NaN", "0.7 a - 0.2 b"] {
            assert_eq!(number(cell), None, "{cell}");
        }
    }

    #[test]
    fn the_best_are_bold_numbers_are_on_the_right_and_rows_have_one_length() {
        let table =
            Table::new(&["a", "b", "c"]).row(&["x", "2", "0.9"]).row(&["y", "10", "—"]).row(&["<z>", "2", "0.7"]);
        let html = table.lowest(1).highest(2).highest(9).html();
        assert_eq!(html.matches("<strong>").count(), 3);
        assert_eq!(html.matches("<strong>2</strong>").count(), 2);
        assert!(html.contains("<strong>0.9</strong>") && html.contains("<td>&lt;z&gt;</td>"));
        assert!(html.contains("<th scope=\"col\">a</th><th scope=\"col\" class=\"number\">b</th>"));
        // Captions stand outside: the width of the page, not that of the table, is theirs.
        assert!(html.starts_with("<figure class=\"table\">\n<div class=\"wide\"><table>") && !html.contains("caption"));
        let ragged = Table::new(&["a", "b"]).row(&["1"]).row(&["1", "2", "3"]).html();
        assert_eq!(ragged.matches("<td").count(), 4, "rows are filled or cut");
    }

    #[test]
    fn wide_tables_are_set_in_small_type_and_then_cut_into_parts_that_repeat_their_key() {
        let columns = |n: usize| {
            let headings: Vec<String> =
                ["method", "error of"].map(String::from).into_iter().chain((0..n).map(|j| format!("h{j}"))).collect();
            let row: Vec<String> = ["spin", "function"]
                .map(String::from)
                .into_iter()
                .chain((0..n).map(|j| format!("1.23{j}e-14")))
                .collect();
            Table::new(&headings).row(&row).key(2).caption("what it shows").html()
        };
        let (small, dense, cut) = (columns(3), columns(6), columns(12));
        assert!(!small.contains("dense") && small.matches("<table>").count() == 1, "{small}");
        assert!(dense.contains("dense") && dense.matches("<table>").count() == 1, "{dense}");
        assert_eq!(
            [cut.matches("<table>").count(), cut.matches("<td>spin</td><td>function</td>").count()],
            [2, 2],
            "{cut}"
        );
        assert_eq!(cut.matches("e-14").count(), 12);
        assert_eq!(cut.matches("<figcaption>what it shows</figcaption></figure>").count(), 1);
    }
}
