//! Tables that are in memory, for a schema that is known to make features of.

use std::path::Path;

use ndarray::Array2;

use super::ReadOptions;
use super::cells::{Cells, Unfit};
use super::dataset::{Dataset, distinct};
use super::matrix::Matrix;
use super::scale::Scaling;
use super::schema::{Missing, Schema};
use super::table::{Column, Kind, Request, Role, Table, place};
use crate::{Error, Result, fail_if};

/// What messages call a table in memory.
const SOURCE: &str = "the table";

/// The values of a column in memory. Example: [`Table::of_columns_like`].
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// Numbers `[n]`, NaN where one is missing.
    Numbers(Vec<f64>),
    /// Text `[n]` as a `.csv` has it (numbers, dates, words), none where it is missing.
    Text(Vec<Option<String>>),
}

impl ColumnValues {
    fn n(&self) -> usize {
        match self {
            ColumnValues::Numbers(values) => values.len(),
            ColumnValues::Text(cells) => cells.len(),
        }
    }
}

impl Table {
    /// A table of numbers `[n, d]` in memory, NaN where one is missing, for `schema` to encode: as [`Table::open_like`] reads one from a
    /// file. Without names its columns are those of the schema in their order.
    ///
    /// ```
    /// use mercer::data::{Matrix, Schema, Table};
    /// let schema = Schema::of_numbers(vec!["a".into(), "b".into()]);
    /// let names = Some(vec!["b".into(), "a".into()]);
    /// let new = Table::of_matrix_like(Matrix::F64(ndarray::array![[1.0, 2.0]]), names, &schema)?;
    /// assert_eq!(schema.encode(new)?.0.x.to_f64(), ndarray::array![[2.0, 1.0]]);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn of_matrix_like(x: Matrix, names: Option<Vec<String>>, schema: &Schema) -> Result<Table> {
        let (d, named) = (x.d(), names.is_some());
        let columns = named_columns(names, d)?;
        let data = Dataset { name: SOURCE.into(), x, y: None, some_y: None, columns, shape: None };
        let table = Table { named, ..Table::of(data, SOURCE, true) };
        for i in 0..table.n() {
            if let Some(j) = (0..d).find(|&j| table.x.rows().get(i, j).is_infinite()) {
                return Err(infinite(&table.columns[j].name, j, i));
            }
        }
        table.arranged(&Request::new(&ReadOptions::default(), Some(schema)))
    }

    /// A table of columns in memory, for `schema` to encode: as [`Table::open_like`] reads one from a file. Without names they are the
    /// columns of the schema in their order.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::data::{ColumnValues, Missing, ReadOptions, Scaling, Schema, Table};
    /// let file = folder.path().join("t.csv");
    /// std::fs::write(&file, "size,colour\n1,red\n3,blue\n")?;
    /// let table = Table::open(file.to_str().unwrap(), &ReadOptions::default())?;
    /// let schema = Schema::fit(&table, Missing::Refuse, Scaling::Standard)?;
    /// let colours = ColumnValues::Text(vec![Some("red".into())]);
    /// let names = Some(vec!["colour".into(), "size".into()]);
    /// let new = Table::of_columns_like(vec![colours, ColumnValues::Numbers(vec![5.0])], names, &schema)?;
    /// assert_eq!(schema.encode(new)?.0.x.to_f64(), ndarray::array![[3.0, 0.0, 1.0]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_columns_like(columns: Vec<ColumnValues>, names: Option<Vec<String>>, schema: &Schema) -> Result<Table> {
        let (options, named, n) = (ReadOptions::default(), names.is_some(), columns.first().map_or(0, ColumnValues::n));
        let names = named_columns(names, columns.len())?;
        let request = Request::new(&options, Some(schema));
        let roles = request.roles(Path::new(SOURCE), &names, named, false)?;
        let (mut kept, mut kinds) = (vec![], vec![]);
        for (j, values) in columns.into_iter().enumerate() {
            let (name, rows) = (&names[j], values.n());
            fail_if!(rows != n; Error::file(
                Path::new(SOURCE),
                format!("has {n} rows, but the column `{name}` has {rows}; give every column a value for each row")
            ));
            if matches!(roles[j], Role::Skipped | Role::Target) {
                continue;
            }
            let (kind, values) = read(values, roles[j], name, j)?;
            kinds.push(Column { name: name.clone(), position: j, kind });
            kept.push(values);
        }
        let x = Array2::from_shape_fn((n, kept.len()), |(i, j)| kept[j][i]).into();
        let data = Dataset { name: SOURCE.into(), x, y: None, some_y: None, columns: vec![], shape: None };
        let ignored = request.ignored(&roles, &names);
        Ok(Table { columns: kinds, named, ignored, ..Table::of(data, SOURCE, true) })
    }
}

impl Schema {
    /// The schema of columns of these names, which hold numbers that were fitted as they are. Example: [`Table::of_matrix_like`].
    pub fn of_numbers(names: Vec<String>) -> Schema {
        let d = names.len();
        let column = |(position, name)| Column { name, position, kind: Kind::Number };
        Schema {
            columns: distinct(names).into_iter().enumerate().map(column).collect(),
            named: true,
            target: None,
            missing: Missing::Refuse,
            scaling: Scaling::None,
            fill: vec![None; d],
            indicator: vec![false; d],
            scaler: None,
        }
    }
}

/// The names of d columns, no two alike; `x0`, `x1`, … where none are given.
fn named_columns(names: Option<Vec<String>>, d: usize) -> Result<Vec<String>> {
    let names = names.unwrap_or_else(|| (0..d).map(|j| format!("x{j}")).collect());
    fail_if!(names.len() != d; Error::file(Path::new(SOURCE), format!("has {d} columns and {} names", names.len())));
    Ok(distinct(names))
}

/// What a column holds, and the numbers `[n]` that stand for its values.
fn read(values: ColumnValues, role: Role, name: &str, j: usize) -> Result<(Kind, Vec<f64>)> {
    let texts = match values {
        ColumnValues::Numbers(values) => {
            if let Some(i) = values.iter().position(|v| v.is_infinite()) {
                return Err(infinite(name, j, i));
            }
            if role != Role::Category {
                return Ok((Kind::Number, values));
            }
            values.iter().map(|v| (!v.is_nan()).then(|| v.to_string())).collect()
        }
        ColumnValues::Text(texts) => texts,
    };
    let mut cells = if role == Role::Category { Cells::words() } else { Cells::default() };
    let mut values = Vec::with_capacity(texts.len());
    for (i, text) in texts.iter().enumerate() {
        let text = text.as_deref().unwrap_or_default();
        values.push(match cells.value(text) {
            Ok(value) => value,
            Err(Unfit::Infinite) => return Err(infinite(name, j, i)),
            Err(Unfit::Mixed) => {
                let (at, before) = (place(i, name, j), cells.so_far());
                let what = format!("{at} is `{text}`, but the rows above hold {before}; correct the column");
                return Err(Error::file(Path::new(SOURCE), what));
            }
        });
    }
    let (kind, positions) = cells.finish();
    if let Some(positions) = positions {
        values.iter_mut().filter(|v| !v.is_nan()).for_each(|v| *v = positions[*v as usize]);
    }
    Ok((kind, values))
}

/// The error for a number that is not finite.
fn infinite(name: &str, j: usize, row: usize) -> Error {
    Error::file(Path::new(SOURCE), format!("{} is infinite; correct the value or drop the row", place(row, name, j)))
}
