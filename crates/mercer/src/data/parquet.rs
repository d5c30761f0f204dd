//! Parquet: a flat table stored column by column. Built with the feature `parquet`.

mod arrow;
mod bounded;
mod guarded;

use std::fs::File;
use std::path::{Path, PathBuf};

use ndarray::Array2;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use self::bounded::{Bounded, TooLarge};
use self::guarded::guarded;
use super::bytes::require;
use super::cells::Cells;
use super::dataset::{SomeTargets, cell};
use super::table::{Column, Kind, Request, Role, Table, TableTarget, distinct_but, twice};
use crate::budget::Budget;
use crate::{Error, Result, fail_if};

/// Values decoded at a time.
const BATCH: usize = 1 << 13;
/// A run of equal values takes a few bytes however long it is. A table of more cells than this, and of more than
/// `CELLS_PER_BYTE` for each byte of the file, is refused as broken or malicious.
const CELLS: u64 = 1 << 27;
const CELLS_PER_BYTE: u64 = 1 << 15;

/// Reads a flat table; a target column of text becomes classes, as in a `.csv`.
pub(super) fn read(path: &Path, name: &str, request: &Request) -> Result<Table> {
    let mut reader = Reader::open(path, name, request)?;
    // The columns, and the rows that are made of them.
    let used = reader.roles.iter().filter(|role| **role != Role::Skipped).count() as u64;
    let bytes = (reader.rows as u64).saturating_mul(used).saturating_mul(2 * 8);
    require(request.options.budget(), path, bytes)?;
    let (table, labelled) = reader.next(reader.rows, request)?;
    let Some(labelled) = labelled else { return table.in_range(request) };
    fail_if!(!labelled.contains(&true); Error::file(path, "has no row with a target"));
    table.labelled(&labelled, request)
}

/// A file whose rows are read in their order, some at a time.
pub(super) struct Reader {
    path: PathBuf,
    name: String,
    file: SerializedFileReader<Bounded>,
    /// The names of all columns.
    pub columns: Vec<String>,
    pub roles: Vec<Role>,
    units: Vec<Unit>,
    /// How many there are.
    pub rows: usize,
    done: usize,
    /// Row groups that were begun.
    groups: usize,
    /// The columns of the present row group that are read, and how many of its rows are left.
    readers: Vec<Option<ColumnReader>>,
    left: usize,
}

impl Reader {
    pub fn open(path: &Path, name: &str, request: &Request) -> Result<Reader> {
        guarded(path, || Reader::opened(path, name, request))
    }

    fn opened(path: &Path, name: &str, request: &Request) -> Result<Reader> {
        let fail = |what: String| Err(Error::file(path, what));
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let meta = file.metadata().map_err(|e| Error::io(path, e))?;
        fail_if!(!meta.is_file(); Error::file(path, "is a pipe, a device or a folder; a parquet file is read at many places, so give it as a file"));
        let len = meta.len();
        if len == 0 {
            return fail("is empty".into());
        }
        let file = SerializedFileReader::new(Bounded { file, len, budget: request.options.budget() })
            .map_err(|e| corrupt(path, e))?;
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let columns: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
        let roles = request.roles(path, &columns, true, false)?;
        let kept = file.metadata().file_metadata().key_value_metadata().into_iter().flatten();
        let arrow = kept.filter(|pair| pair.key == "ARROW:schema").find_map(|pair| pair.value.as_deref());
        let durations = arrow.map(arrow::durations).unwrap_or_default();
        let mut read = columns.iter().zip(&roles).filter(|(_, role)| **role != Role::Skipped);
        if let Some((name, _)) = read.find(|(name, _)| durations.contains(*name)) {
            return fail(format!(
                "the column `{name}` holds durations; convert it to a number of seconds, or {leave_out}",
                leave_out = crate::advice!(LeaveOut)
            ));
        }
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
        let of_group = |sum: u64, group: &RowGroupMetaData| sum.checked_add(u64::try_from(group.num_rows()).ok()?);
        match file.metadata().row_groups().iter().try_fold(0, of_group) {
            Some(held) if held == rows => {}
            Some(held) if held < rows => {
                return fail(format!("is corrupt: it promises {rows} rows and holds {held}"));
            }
            _ => return fail("is corrupt: its row groups hold more rows than the file promises".into()),
        }
        let (path, name, rows) = (path.to_owned(), name.to_owned(), rows as usize);
        let (done, groups, readers, left) = (0, 0, vec![], 0);
        Ok(Reader { path, name, file, columns, roles, units, rows, done, groups, readers, left })
    }

    /// The next `count` rows, which must be there; and which of them have a target, where those without one are to be left out.
    pub fn next(&mut self, count: usize, request: &Request) -> Result<(Table, Option<Vec<bool>>)> {
        let path = self.path.clone();
        guarded(&path, || {
            let first = self.done;
            let values = self.values(count, request)?;
            Ok(self.table(values, first, count, request))
        })
    }

    /// Goes on by `count` rows, which must be there. Row groups and pages that are passed over as a whole are not unpacked.
    pub fn skip(&mut self, count: usize) -> Result<()> {
        let path = self.path.clone();
        guarded(&path, || {
            let end = self.done + count;
            while self.done < end {
                if self.left == 0 {
                    let rows = self.file.metadata().row_group(self.groups).num_rows() as usize;
                    if self.done + rows <= end {
                        (self.done, self.groups) = (self.done + rows, self.groups + 1);
                        continue;
                    }
                    self.next_group()?;
                }
                let rows = self.left.min(end - self.done);
                for (j, reader) in self.readers.iter_mut().enumerate() {
                    let Some(reader) = reader else { continue };
                    skip_column(reader, &path, j, rows)?;
                }
                (self.done, self.left) = (self.done + rows, self.left - rows);
            }
            Ok(())
        })
    }

    /// The columns of the next row group that has rows.
    fn next_group(&mut self) -> Result<()> {
        while self.left == 0 {
            let group = self.file.get_row_group(self.groups).map_err(|e| corrupt(&self.path, e))?;
            self.groups += 1;
            if group.num_columns() != self.columns.len() {
                let what = format!("is corrupt: row group {} lacks columns", self.groups);
                return Err(Error::file(&self.path, what));
            }
            let used = self.roles.iter().enumerate().map(|(j, role)| match role {
                Role::Skipped => Ok(None),
                _ => group.get_column_reader(j).map(Some).map_err(|e| corrupt(&self.path, e)),
            });
            self.readers = used.collect::<Result<_>>()?;
            self.left = group.metadata().num_rows() as usize;
        }
        Ok(())
    }

    /// The next `count` values of each column.
    fn values(&mut self, count: usize, request: &Request) -> Result<Vec<Values>> {
        let of_column = |(role, unit): (&Role, &Unit)| Values::of(*role, *unit, request);
        let mut table: Vec<Values> = self.roles.iter().zip(&self.units).map(of_column).collect();
        let (end, budget) = (self.done + count, request.options.budget());
        let mut words = 0;
        while self.done < end {
            self.next_group()?;
            let rows = self.left.min(end - self.done);
            for (j, (values, reader)) in table.iter_mut().zip(&mut self.readers).enumerate() {
                let Some(reader) = reader else { continue };
                words -= values.cells.bytes();
                let ends = rows == self.left;
                let place = Place { path: &self.path, column: j, row: self.done, rows, ends, budget, words };
                read_column(values, reader, self.units[j], &place)?;
                words += values.cells.bytes();
            }
            (self.done, self.left) = (self.done + rows, self.left - rows);
        }
        Ok(table)
    }

    /// The table of `rows` rows from the row `first` on, and which of them have a target, where that is asked.
    fn table(&self, values: Vec<Values>, first: usize, rows: usize, request: &Request) -> (Table, Option<Vec<bool>>) {
        let Reader { columns, roles, units, .. } = self;
        let target = roles.iter().position(|role| *role == Role::Target);
        let names = distinct_but(columns, target);
        let is_there = |j: usize| values[j].values.iter().map(|v| !v.is_nan()).collect();
        let labelled: Option<Vec<bool>> = target.filter(|_| request.skips_unlabelled()).map(is_there);
        let (mut kept, mut kinds, mut y, mut some_target) = (vec![], vec![], None, None);
        for (j, column) in values.into_iter().enumerate() {
            match roles[j] {
                Role::Skipped => {}
                Role::Target if labelled.is_none() && column.values.iter().any(|v| v.is_nan()) => {
                    let known: Vec<usize> = (0..rows).filter(|&i| !column.values[i].is_nan()).collect();
                    let values = known.iter().map(|&i| column.values[i]).collect();
                    some_target =
                        (!known.is_empty()).then(|| SomeTargets { rows: known, y: column.cells.into_target(values) });
                }
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
        let x = Array2::from_shape_fn((rows, kept.len()), |(i, j)| kept[j][i]).into();
        let table = Table {
            columns: kinds,
            named: true,
            target: y,
            some_target,
            notes: twice(columns).into_iter().collect(),
            ignored: request.ignored(roles, &names),
            first,
            tabular: true,
            ..Table::bare(self.name.clone(), self.path.to_string_lossy().into_owned(), x)
        };
        (table, labelled)
    }
}

fn corrupt(path: &Path, e: ParquetError) -> Error {
    Error::file(path, format!("is not a parquet file, or is truncated or corrupt ({e})"))
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
    fn of(role: Role, unit: Unit, request: &Request) -> Values {
        let (words_only, any) = (role == Role::Category, matches!(role, Role::Any | Role::Category));
        let undecided = request.in_blocks && request.like.is_none();
        let words = words_only || undecided && unit == Unit::Text && role != Role::Target;
        let cells = if words { Cells::words() } else { Cells::default() };
        let lacks = request.like.is_some() || request.skips_unlabelled();
        Values { values: vec![], cells, words_only, may_miss: any || role == Role::Target && lacks }
    }

    fn push(&mut self, value: f64) {
        let value = if self.words_only { self.cells.word(&value.to_string()) } else { value };
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
    /// Whether these rows are the last of the chunk.
    ends: bool,
    budget: Budget,
    /// Bytes of the words of other columns.
    words: u64,
}

/// Passes over the next rows of a column.
fn skip_column(reader: &mut ColumnReader, path: &Path, column: usize, rows: usize) -> Result<()> {
    let skipped = match reader {
        ColumnReader::BoolColumnReader(r) => r.skip_records(rows),
        ColumnReader::Int32ColumnReader(r) => r.skip_records(rows),
        ColumnReader::Int64ColumnReader(r) => r.skip_records(rows),
        ColumnReader::FloatColumnReader(r) => r.skip_records(rows),
        ColumnReader::DoubleColumnReader(r) => r.skip_records(rows),
        ColumnReader::ByteArrayColumnReader(r) => r.skip_records(rows),
        _ => return Err(other_type(path)),
    };
    let done = skipped.map_err(|e| corrupt_column(path, column, e))?;
    fail_if!(done != rows; lacks_rows(path, column, (done, rows)));
    Ok(())
}

fn other_type(path: &Path) -> Error {
    Error::file(path, "is corrupt: a column has another type than the schema says")
}

fn corrupt_column(path: &Path, column: usize, e: ParquetError) -> Error {
    if let ParquetError::External(cause) = &e
        && let Some(page) = cause.downcast_ref::<TooLarge>()
    {
        return Error::file(path, format!("column {} (counted from 1) has {page}", column + 1));
    }
    Error::file(path, format!("column {} (counted from 1) is corrupt ({e})", column + 1))
}

fn lacks_rows(path: &Path, column: usize, (done, rows): (usize, usize)) -> Error {
    Error::file(path, format!("is corrupt: column {} (counted from 1) holds {done} of {rows} rows", column + 1))
}

/// Appends the next rows of a column: numbers, or texts.
fn read_column(column: &mut Values, reader: &mut ColumnReader, unit: Unit, place: &Place) -> Result<()> {
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
        ColumnReader::ByteArrayColumnReader(r) => each(r, place, column, |column, text, row| {
            let Ok(word) = text.as_utf8() else {
                let what = format!(
                    "{} holds bytes that are not UTF-8 text; store it as text, or drop the column",
                    cell(row, place.column)
                );
                return Err(Error::file(place.path, what));
            };
            let value = column.cells.word(word);
            column.values.push(value);
            Ok(())
        }),
        _ => Err(other_type(place.path)),
    }
}

fn numbers<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
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
    reader: &mut ColumnReaderImpl<T>,
    place: &Place,
    out: &mut Values,
    mut take: impl FnMut(&mut Values, T::T, usize) -> Result<()>,
) -> Result<()> {
    let &Place { path, column, row, rows, ends, budget, words } = place;
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut done = 0;
    while done < rows || ends {
        values.clear();
        levels.clear();
        // At the end of a chunk one more row is asked for, which must not be there.
        let most = BATCH.min(rows - done + usize::from(ends));
        let (records, present, _) = reader
            .read_records(most, Some(&mut levels), None, &mut values)
            .map_err(|e| corrupt_column(path, column, e))?;
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
        require(budget, path, words + out.cells.bytes())?;
    }
    fail_if!(done != rows; lacks_rows(path, column, (done, rows)));
    Ok(())
}
