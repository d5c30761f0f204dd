//! Parquet: a flat table stored column by column. Built with the feature `parquet`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use ndarray::Array2;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::ReadOptions;
use super::bytes::require;
use super::csv::Column;
use super::dataset::{Dataset, cell, distinct, find_target};
use crate::{Error, Result};

/// Values decoded at a time.
const BATCH: usize = 1 << 13;
/// A run of equal values takes a few bytes however long it is. A table of more cells than this, and of more than
/// `CELLS_PER_BYTE` for each byte of the file, is refused as broken or malicious.
const CELLS: u64 = 1 << 27;
const CELLS_PER_BYTE: u64 = 1 << 15;

/// Reads a flat table of numbers; a target column of text becomes classes, as in a `.csv`.
pub(super) fn read(path: &Path, name: &str, options: &ReadOptions) -> Result<Dataset> {
    // The decoder returns errors for what it checks, but it asserts and slices on some corrupt pages.
    catch_unwind(AssertUnwindSafe(|| read_table(path, name, options)))
        .unwrap_or_else(|_| Err(Error::file(path, "is a corrupt parquet file: its pages cannot be decoded")))
}

fn read_table(path: &Path, name: &str, options: &ReadOptions) -> Result<Dataset> {
    let fail = |what: String| Err(Error::file(path, what));
    let corrupt =
        |e: ParquetError| Error::file(path, format!("is not a parquet file, or is truncated or corrupt ({e})"));
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let len = file.metadata().map_err(|e| Error::io(path, e))?.len();
    if len == 0 {
        return fail("is empty".into());
    }
    let file = SerializedFileReader::new(Bounded { file, len }).map_err(corrupt)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let mut columns: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
    let target = find_target(path, &columns, options)?;
    for (j, column) in schema.columns().iter().enumerate() {
        check_type(path, j, column, target == Some(j))?;
    }
    let rows = u64::try_from(file.metadata().file_metadata().num_rows()).unwrap_or(0);
    let cells = rows.saturating_mul(columns.len() as u64);
    if cells == 0 {
        return fail(format!("is empty: {rows} rows of {} columns", columns.len()));
    }
    if cells > CELLS && cells > len.saturating_mul(CELLS_PER_BYTE) {
        return fail(format!("promises {rows} rows in a file of {len} bytes, which is not plausible"));
    }

    // The columns, and the rows that are made of them.
    require(options.budget(), path, cells.saturating_mul(2 * 8))?;
    let mut table: Vec<Column> = columns.iter().map(|_| Column::default()).collect();
    let mut done = 0;
    for g in 0..file.num_row_groups() {
        let group = file.get_row_group(g).map_err(corrupt)?;
        let group_rows = u64::try_from(group.metadata().num_rows()).ok().filter(|r| done + r <= rows);
        let Some(group_rows) = group_rows else {
            return fail("is corrupt: its row groups hold more rows than the file promises".into());
        };
        if group.num_columns() != columns.len() {
            return fail(format!("is corrupt: row group {} lacks columns", g + 1));
        }
        for (j, column) in table.iter_mut().enumerate() {
            let reader = group.get_column_reader(j).map_err(corrupt)?;
            let place = Place { path, column: j, row: done as usize, rows: group_rows as usize };
            read_column(column, reader, is_unsigned(&schema.column(j)), &place)?;
        }
        done += group_rows;
    }
    if done != rows {
        return fail(format!("is corrupt: it promises {rows} rows and holds {done}"));
    }

    let y = target.map(|j| {
        columns.remove(j);
        table.remove(j).into_target()
    });
    let x = Array2::from_shape_fn((rows as usize, columns.len()), |(i, j)| table[j].values[i]);
    Ok(Dataset { name: name.into(), x: x.into(), y, columns: distinct(columns), shape: None })
}

/// A file that is never read beyond its end: a sound table has no reason to, and the decoder, which takes the end of
/// a file for a run of empty items, would otherwise count through whatever length a corrupt header promises.
struct Bounded {
    file: File,
    len: u64,
}

impl Length for Bounded {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Bounded {
    type T = BoundedReader;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.file.get_read(start).map(BoundedReader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} in a file of {}", self.len)));
        }
        self.file.get_bytes(start, length)
    }
}

struct BoundedReader(BufReader<File>);

impl Read for BoundedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Ok(0) if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        }
    }
}

/// Numbers throughout, one per row; text is for the target.
fn check_type(path: &Path, j: usize, column: &ColumnDescriptor, is_target: bool) -> Result<()> {
    use parquet::basic::Type;
    let fail = |what: &str| {
        let place = format!("column {} (counted from 1), `{}`,", j + 1, column.path().string());
        Err(Error::file(path, format!("{place} {what}")))
    };
    if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
        return fail("is nested; a flat table is needed");
    }
    use ConvertedType::{DATE, DECIMAL, TIME_MICROS, TIME_MILLIS, TIMESTAMP_MICROS, TIMESTAMP_MILLIS};
    let odd = matches!(
        column.converted_type(),
        DECIMAL | DATE | TIME_MILLIS | TIME_MICROS | TIMESTAMP_MILLIS | TIMESTAMP_MICROS
    );
    let plain_number = matches!(column.logical_type_ref(), None | Some(LogicalType::Integer(_))) && !odd;
    match column.physical_type() {
        Type::BOOLEAN | Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE if plain_number => Ok(()),
        Type::BYTE_ARRAY if is_target => Ok(()),
        Type::BYTE_ARRAY => fail("holds text; drop it, or make it the target if it holds classes"),
        other => fail(&format!("holds {other} that is not a plain number; convert it to whole numbers or floats")),
    }
}

fn is_unsigned(column: &ColumnDescriptor) -> bool {
    use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
    matches!(column.converted_type(), UINT_8 | UINT_16 | UINT_32 | UINT_64)
        || matches!(column.logical_type_ref(), Some(LogicalType::Integer(i)) if !i.is_signed)
}

/// Where a column chunk stands in the table.
struct Place<'a> {
    path: &'a Path,
    column: usize,
    /// Its first row, and how many it must have.
    row: usize,
    rows: usize,
}

/// Appends the part of a column that `reader` holds: numbers, or texts.
fn read_column(column: &mut Column, reader: ColumnReader, unsigned: bool, place: &Place) -> Result<()> {
    let values = &mut column.values;
    match reader {
        ColumnReader::BoolColumnReader(r) => numbers(r, place, values, |v| f64::from(u8::from(v))),
        ColumnReader::Int32ColumnReader(r) if unsigned => numbers(r, place, values, |v| f64::from(v as u32)),
        ColumnReader::Int32ColumnReader(r) => numbers(r, place, values, f64::from),
        ColumnReader::Int64ColumnReader(r) if unsigned => numbers(r, place, values, |v| v as u64 as f64),
        ColumnReader::Int64ColumnReader(r) => numbers(r, place, values, |v| v as f64),
        ColumnReader::FloatColumnReader(r) => numbers(r, place, values, f64::from),
        ColumnReader::DoubleColumnReader(r) => numbers(r, place, values, |v| v),
        ColumnReader::ByteArrayColumnReader(r) => each(r, place, |text, _| {
            column.push_text(text.data());
            Ok(())
        }),
        _ => Err(Error::file(place.path, "is corrupt: a column has another type than the schema says")),
    }
}

fn numbers<T: DataType>(
    reader: ColumnReaderImpl<T>,
    place: &Place,
    out: &mut Vec<f64>,
    number: impl Fn(T::T) -> f64,
) -> Result<()> {
    each(reader, place, |value, row| {
        let v = number(value);
        if !v.is_finite() {
            let what = format!("{} is {v}; drop the row or fill the value", cell(row, place.column));
            return Err(Error::file(place.path, what));
        }
        out.push(v);
        Ok(())
    })
}

/// Hands the values of a column chunk to `take` with their rows, and refuses missing ones.
fn each<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    place: &Place,
    mut take: impl FnMut(T::T, usize) -> Result<()>,
) -> Result<()> {
    let &Place { path, column, row, rows } = place;
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut done = 0;
    loop {
        values.clear();
        levels.clear();
        let (records, present, _) = reader
            .read_records(BATCH, Some(&mut levels), None, &mut values)
            .map_err(|e| Error::file(path, format!("column {} (counted from 1) is corrupt ({e})", column + 1)))?;
        if records > present {
            let missing = levels.iter().position(|&l| l == 0).unwrap_or(present);
            let what = format!("{} is missing; fill the value or drop the row", cell(row + done + missing, column));
            return Err(Error::file(path, what));
        }
        if records == 0 || done + records > rows {
            done += records;
            break;
        }
        for (i, value) in values.drain(..).enumerate() {
            take(value, row + done + i)?;
        }
        done += records;
    }
    if done != rows {
        let what = format!("is corrupt: column {} (counted from 1) holds {done} of {rows} rows", column + 1);
        return Err(Error::file(path, what));
    }
    Ok(())
}
