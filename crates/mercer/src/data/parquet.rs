//! Parquet: a flat table stored column by column. Built with the feature `parquet`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use ndarray::Array2;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::bytes::require;
use super::cells::Cells;
use super::dataset::cell;
use super::table::{Column, Kind, Request, Role, Table, TableTarget, distinct_but};
use crate::{Error, Result};

/// Values decoded at a time.
const BATCH: usize = 1 << 13;
/// A run of equal values takes a few bytes however long it is. A table of more cells than this, and of more than
/// `CELLS_PER_BYTE` for each byte of the file, is refused as broken or malicious.
const CELLS: u64 = 1 << 27;
const CELLS_PER_BYTE: u64 = 1 << 15;
/// A page that promises more bytes than this, and more than `PAGE_PER_BYTE` for each byte of the file, is refused: the decoder
/// would ask for that memory before it unpacks the page. Writers make pages of about 1 MiB.
const PAGE: u64 = 1 << 26;
const PAGE_PER_BYTE: u64 = 1 << 12;

/// Reads a flat table; a target column of text becomes classes, as in a `.csv`.
pub(super) fn read(path: &Path, name: &str, request: &Request) -> Result<Table> {
    // The decoder returns errors for what it checks, but it asserts and slices on some corrupt pages.
    catch_unwind(AssertUnwindSafe(|| read_table(path, name, request)))
        .unwrap_or_else(|_| Err(Error::file(path, "is a corrupt parquet file: its pages cannot be decoded")))
}

fn read_table(path: &Path, name: &str, request: &Request) -> Result<Table> {
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
    let columns: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
    let roles = request.roles(path, &columns, true, false)?;
    let units = schema.columns().iter().zip(&roles).enumerate();
    let units = units.map(|(j, (column, role))| unit(path, j, column, *role)).collect::<Result<Vec<Unit>>>()?;
    let rows = u64::try_from(file.metadata().file_metadata().num_rows()).unwrap_or(0);
    let cells = rows.saturating_mul(columns.len() as u64);
    if cells == 0 {
        return fail(format!("is empty: {rows} rows of {} columns", columns.len()));
    }
    if cells > CELLS && cells > len.saturating_mul(CELLS_PER_BYTE) {
        return fail(format!("promises {rows} rows in a file of {len} bytes, which is not plausible"));
    }

    // The columns, and the rows that are made of them.
    let used = roles.iter().filter(|role| **role != Role::Skipped).count() as u64;
    require(request.options.budget(), path, rows.saturating_mul(used).saturating_mul(2 * 8))?;
    let mut table: Vec<Values> = roles.iter().map(|role| Values::of(*role, request)).collect();
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
        for (j, column) in table.iter_mut().enumerate().filter(|(j, _)| roles[*j] != Role::Skipped) {
            let reader = group.get_column_reader(j).map_err(corrupt)?;
            let place = Place { path, column: j, row: done as usize, rows: group_rows as usize };
            read_column(column, reader, units[j], &place)?;
        }
        done += group_rows;
    }
    if done != rows {
        return fail(format!("is corrupt: it promises {rows} rows and holds {done}"));
    }

    let target = roles.iter().position(|role| *role == Role::Target);
    let names = distinct_but(&columns, target);
    let labelled: Option<Vec<bool>> =
        target.filter(|_| request.skips_unlabelled()).map(|j| table[j].values.iter().map(|v| !v.is_nan()).collect());
    if labelled.as_ref().is_some_and(|labelled| !labelled.contains(&true)) {
        return fail("has no row with a target".into());
    }
    let (mut kept, mut kinds, mut y) = (vec![], vec![], None);
    for (j, column) in table.into_iter().enumerate() {
        match roles[j] {
            Role::Skipped => {}
            Role::Target if labelled.is_none() && column.values.iter().any(|v| v.is_nan()) => {}
            Role::Target => {
                let values = column.cells.into_target(column.values);
                y = Some(TableTarget { name: columns[j].clone(), position: Some(j), values });
            }
            role => {
                let (kind, values) = column.finish(units[j], role);
                kinds.push(Column { name: names[j].clone(), position: j, kind });
                kept.push(values);
            }
        }
    }
    let x = Array2::from_shape_fn((rows as usize, kept.len()), |(i, j)| kept[j][i]).into();
    let (name, source) = (name.to_owned(), path.to_string_lossy().into_owned());
    let table = Table {
        name,
        x,
        columns: kinds,
        named: true,
        target: y,
        shape: None,
        unlabelled: 0,
        ignored: request.ignored(&roles, &names),
        source,
        tabular: true,
        decided: false,
    };
    match labelled {
        Some(labelled) => table.labelled(&labelled, request),
        None => table.in_range(request),
    }
}

/// A column as far as it has been read.
struct Values {
    values: Vec<f64>,
    cells: Cells,
    /// Whether numbers are words.
    words_only: bool,
    /// Whether values may be missing.
    may_miss: bool,
}

impl Values {
    fn of(role: Role, request: &Request) -> Values {
        let (words_only, any) = (role == Role::Category, matches!(role, Role::Any | Role::Category));
        let cells = if words_only { Cells::words() } else { Cells::default() };
        let lacks = request.like.is_some() || request.skips_unlabelled();
        Values { values: vec![], cells, words_only, may_miss: any || role == Role::Target && lacks }
    }

    fn push(&mut self, value: f64) {
        let value = if self.words_only { self.cells.word(value.to_string().as_bytes()) } else { value };
        self.values.push(value);
    }

    /// The kind of the column, and its values.
    fn finish(self, unit: Unit, role: Role) -> (Kind, Vec<f64>) {
        let mut values = self.values;
        let kind = match (unit, role) {
            (_, Role::Category) | (Unit::Text, _) => {
                let (kind, positions) = self.cells.finish();
                let positions = positions.unwrap_or_default();
                values.iter_mut().filter(|v| !v.is_nan()).for_each(|v| *v = positions[*v as usize]);
                kind
            }
            (Unit::TrueFalse, Role::Any) => Kind::TrueFalse,
            (Unit::Days(_), _) => Kind::Date,
            _ => Kind::Number,
        };
        (kind, values)
    }
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

    /// From `start`, where a page begins with its header.
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let header = self.get_bytes(start, 16.min(self.len.saturating_sub(start)) as usize)?;
        match unpacked_size(&header) {
            Some(size) if size > PAGE && size > self.len.saturating_mul(PAGE_PER_BYTE) => {
                let (page, len) = (size >> 20, self.len);
                Err(ParquetError::General(format!("a page promises {page} MiB in a file of {len} bytes")))
            }
            _ => self.file.get_read(start).map(BoundedReader),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} in a file of {}", self.len)));
        }
        self.file.get_bytes(start, length)
    }
}

/// The size that a page header promises for its content when unpacked: the second field, after the kind of page. Each field begins with
/// a byte of Thrift's compact protocol whose upper half says that it follows the field before; the decoder does not look at the lower
/// half, the type. Whole numbers are in groups of seven bits, the sign in the lowest one.
fn unpacked_size(header: &[u8]) -> Option<u64> {
    let next = |bytes: &[u8]| bytes.first().is_some_and(|byte| byte >> 4 == 1);
    let (_, rest) = seven_bit_groups(next(header).then(|| &header[1..])?)?;
    let (size, _) = seven_bit_groups(next(rest).then(|| &rest[1..])?)?;
    Some(size >> 1)
}

/// A whole number in groups of seven bits, lowest first, and what follows it.
fn seven_bit_groups(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let value = bytes[..=end].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, &bytes[end + 1..]))
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

/// What the numbers of a column mean.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Signed,
    Unsigned,
    TrueFalse,
    Text,
    /// Time since 1970, of which so much is a day.
    Days(f64),
}

/// What a column holds; for a set of numbers, text is for the target only.
fn unit(path: &Path, j: usize, column: &ColumnDescriptor, role: Role) -> Result<Unit> {
    use parquet::basic::Type;
    let fail = |what: &str| {
        let place = format!("column {} (counted from 1), `{}`,", j + 1, column.path().string());
        Err(Error::file(path, format!("{place} {what}")))
    };
    if role == Role::Skipped {
        return Ok(Unit::Signed);
    }
    if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
        return fail("is nested; a flat table is needed");
    }
    use ConvertedType::{DATE, DECIMAL, TIME_MICROS, TIME_MILLIS, TIMESTAMP_MICROS, TIMESTAMP_MILLIS};
    let day = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Date), _) | (None, DATE) => Some(1.0),
        (Some(LogicalType::Timestamp(time)), _) => Some(match time.unit {
            TimeUnit::MILLIS => 86_400e3,
            TimeUnit::MICROS => 86_400e6,
            TimeUnit::NANOS => 86_400e9,
        }),
        (None, TIMESTAMP_MILLIS) => Some(86_400e3),
        (None, TIMESTAMP_MICROS) => Some(86_400e6),
        _ => None,
    };
    let any = matches!(role, Role::Any | Role::Category);
    let odd = day.is_some() || matches!(column.converted_type(), DECIMAL | TIME_MILLIS | TIME_MICROS);
    let plain_number = matches!(column.logical_type_ref(), None | Some(LogicalType::Integer(_))) && !odd;
    match (column.physical_type(), day) {
        (Type::BOOLEAN, _) if plain_number => Ok(Unit::TrueFalse),
        (Type::INT32 | Type::INT64 | Type::FLOAT | Type::DOUBLE, _) if plain_number => {
            Ok(if is_unsigned(column) { Unit::Unsigned } else { Unit::Signed })
        }
        (Type::INT32 | Type::INT64, Some(day)) if any => Ok(Unit::Days(day)),
        (Type::BYTE_ARRAY, _) if any || role == Role::Target => Ok(Unit::Text),
        (Type::BYTE_ARRAY, _) => fail("holds text; drop it, or make it the target if it holds classes"),
        (other, _) => fail(&format!("holds {other} that is not a plain number; convert it to whole numbers or floats")),
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
fn read_column(column: &mut Values, reader: ColumnReader, unit: Unit, place: &Place) -> Result<()> {
    let day = if let Unit::Days(day) = unit { day } else { 1.0 };
    let unsigned = unit == Unit::Unsigned;
    match reader {
        ColumnReader::BoolColumnReader(r) => numbers(r, place, column, |v| f64::from(u8::from(v))),
        ColumnReader::Int32ColumnReader(r) if unsigned => numbers(r, place, column, |v| f64::from(v as u32)),
        ColumnReader::Int32ColumnReader(r) => numbers(r, place, column, |v| f64::from(v) / day),
        ColumnReader::Int64ColumnReader(r) if unsigned => numbers(r, place, column, |v| v as u64 as f64),
        ColumnReader::Int64ColumnReader(r) => numbers(r, place, column, |v| v as f64 / day),
        ColumnReader::FloatColumnReader(r) => numbers(r, place, column, f64::from),
        ColumnReader::DoubleColumnReader(r) => numbers(r, place, column, |v| v),
        ColumnReader::ByteArrayColumnReader(r) => each(r, place, column, |column, text, _| {
            let value = column.cells.word(text.data());
            column.values.push(value);
            Ok(())
        }),
        _ => Err(Error::file(place.path, "is corrupt: a column has another type than the schema says")),
    }
}

fn numbers<T: DataType>(
    reader: ColumnReaderImpl<T>,
    place: &Place,
    column: &mut Values,
    number: impl Fn(T::T) -> f64,
) -> Result<()> {
    each(reader, place, column, |column, value, row| {
        let v = number(value);
        if v.is_nan() && column.may_miss {
            column.values.push(v);
        } else if v.is_finite() {
            column.push(v);
        } else {
            let what = format!("{} is {v}; drop the row or fill the value", cell(row, place.column));
            return Err(Error::file(place.path, what));
        }
        Ok(())
    })
}

/// Hands the values of a column chunk to `take` with their rows; missing ones become NaN, or are refused.
fn each<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    place: &Place,
    out: &mut Values,
    mut take: impl FnMut(&mut Values, T::T, usize) -> Result<()>,
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
        if records > present && !out.may_miss {
            let missing = levels.iter().position(|&l| l == 0).unwrap_or(present);
            let what = format!("{} is missing; fill the value or drop the row", cell(row + done + missing, column));
            return Err(Error::file(path, what));
        }
        if records == 0 || done + records > rows {
            done += records;
            break;
        }
        let mut values = values.drain(..);
        for i in 0..records {
            let missing = records > present && levels.get(i).is_none_or(|&level| level == 0);
            match if missing { None } else { values.next() } {
                Some(value) => take(out, value, row + done + i)?,
                None => out.values.push(f64::NAN),
            }
        }
        done += records;
    }
    if done != rows {
        let what = format!("is corrupt: column {} (counted from 1) holds {done} of {rows} rows", column + 1);
        return Err(Error::file(path, what));
    }
    Ok(())
}
