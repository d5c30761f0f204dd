//! Tables that the schema of a model makes features of.

use crate::array::{Held, matrix};
use crate::run::{here, raised};
use mercer::data::{ColumnValues, Matrix, Schema, Table};
use mercer::{Result, data::Dataset};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// A column: numbers, or text as a table of text has it.
#[derive(FromPyObject)]
pub enum Values<'py> {
    Numbers(PyReadonlyArray1<'py, f64>),
    Text(Vec<Option<String>>),
}

/// Features `[m, d]`, in single precision where the table is and nothing is scaled, and notes on the table.
pub type Features<'py> = (Bound<'py, PyAny>, Vec<String>);

/// The features of an array `[m, columns]`, whose columns have these names or the order of the schema.
pub fn of_array<'py>(
    py: Python<'py>,
    schema: &Schema,
    x: &Bound<'_, PyAny>,
    names: Option<Vec<String>>,
) -> PyResult<Features<'py>> {
    let x = Held::new(x)?;
    let rows = x.rows();
    let all: Vec<usize> = (0..rows.n()).collect();
    encoded(py, schema, || Table::of_matrix_like(rows.select(&all), names, schema))
}

/// The features of columns.
pub fn of_columns<'py>(
    py: Python<'py>,
    schema: &Schema,
    columns: Vec<Values<'_>>,
    names: Option<Vec<String>>,
) -> PyResult<Features<'py>> {
    let values = |column: Values<'_>| match column {
        Values::Numbers(values) => ColumnValues::Numbers(values.as_array().to_vec()),
        Values::Text(cells) => ColumnValues::Text(cells),
    };
    let columns = columns.into_iter().map(values).collect();
    encoded(py, schema, || Table::of_columns_like(columns, names, schema))
}

fn encoded<'py>(
    py: Python<'py>,
    schema: &Schema,
    table: impl FnOnce() -> Result<Table> + Send,
) -> PyResult<Features<'py>> {
    let (Dataset { x, .. }, notes) = here(|| schema.encode(table()?)).map_err(raised)?;
    Ok(match x {
        Matrix::F32(x) => (matrix(py, x).into_any(), notes),
        other => (matrix(py, other.into_f64()).into_any(), notes),
    })
}
