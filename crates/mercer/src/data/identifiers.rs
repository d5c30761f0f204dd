//! Columns of numbers that name or count the rows: the index that other programs write, and keys. As features they tell nothing of new rows,
//! and of sorted ones too much.

use std::collections::HashSet;

use super::table::{Column, Kind, Table};

/// In fewer rows, whole numbers that differ are no sign of a key.
const FEWEST: usize = 10;
/// Names of such columns, in lower case, beside those that end in `id`.
const NAMES: [&str; 9] =
    ["unnamed: 0", "index", "idx", "__index_level_0__", "rownames", "row_names", "rowid", "row", "key"];

impl Table {
    /// Warnings about columns that look like numbers of the rows: whole numbers, all different, which count on or are named so.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::data::{ReadOptions, Table};
    /// let file = folder.path().join("t.csv");
    /// let rows: String = (0..20).map(|i| format!("{i},{}\n", i * i % 7)).collect();
    /// std::fs::write(&file, format!(",size\n{rows}"))?;
    /// let table = Table::open(file.to_str().unwrap(), &ReadOptions::default())?;
    /// assert!(table.warnings()[0].starts_with("column 1 (counted from 1), `x0`, holds a different whole number in every row"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn warnings(&self) -> Vec<String> {
        let rows = self.x.rows();
        if !self.tabular { vec![] } else { identifiers(self, [self.n(); 2], |i, j| rows.get(i, j)) }
    }
}

/// The warnings for the columns of `table`, of which `n` rows of `all` are looked at, in their order.
pub(super) fn identifiers(table: &Table, [n, all]: [usize; 2], value: impl Fn(usize, usize) -> f64) -> Vec<String> {
    if n < FEWEST || table.columns.len() < 2 {
        return vec![];
    }
    let is_identifier = |j: usize| {
        let whole = |i: usize| value(i, j).fract() == 0.0;
        let counts = (1..n).all(|i| whole(i) && value(i - 1, j) < value(i, j));
        let counts = counts && whole(0) && value(n - 1, j) - value(0, j) < 2.0 * all as f64;
        let differs = || {
            let mut seen = HashSet::new();
            (0..n).all(|i| whole(i) && seen.insert(value(i, j).to_bits()))
        };
        counts || is_named(&table.columns[j], table.named) && differs()
    };
    let numbers = (0..table.columns.len()).filter(|&j| table.columns[j].kind == Kind::Number);
    let warning = |j: usize| {
        let Column { name, position, .. } = &table.columns[j];
        format!(
            "column {} (counted from 1), `{name}`, holds a different whole number in every row, as an index or a key does; if it \
             measures nothing, {leave_out}",
            position + 1,
            leave_out = crate::advice!(LeaveOut)
        )
    };
    numbers.filter(|&j| is_identifier(j)).map(warning).collect()
}

/// Whether a column has the name of a key, or none where others have one.
fn is_named(column: &Column, named: bool) -> bool {
    let Column { name, position, .. } = column;
    let lower = name.to_lowercase();
    let ends = name.ends_with("ID") || name.ends_with("Id") || lower == "id";
    let ends = ends || ["_id", ".id", "-id", " id"].iter().any(|end| lower.ends_with(end));
    named && (ends || NAMES.contains(&lower.as_str()) || *name == format!("x{position}"))
}
