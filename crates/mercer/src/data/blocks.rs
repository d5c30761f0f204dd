//! Tables that stay in their file and are read a few rows at a time.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::dataset::{Dataset, Target};
use super::npy::{self, NpyRows};
use super::schema::Schema;
use super::table::{Request, Table, TableTarget};
use super::{Format, Matrix, ReadOptions, format_of, is_array_file, stem};
use crate::{Error, Group, Result, fail_if};

/// Rows that are read at a time.
pub(crate) const BLOCK: usize = 4096;

/// A table in an `.npy` or `.parquet` file that is read a few thousand rows at a time. Example: [`BlockDataset`](super::BlockDataset).
pub struct TableBlocks {
    path: PathBuf,
    name: String,
    /// Without the rows, and without a target that is a file of its own.
    options: ReadOptions,
    content: Content,
    target: Option<NpyRows>,
    /// The rows that are read.
    rows: Range<usize>,
}

enum Content {
    Npy(NpyRows),
    #[cfg(feature = "parquet")]
    Parquet {
        rows: usize,
        /// Columns that are read.
        used: usize,
        /// Positions of those that are categories whatever they hold.
        categories: Vec<usize>,
        ignored: Vec<String>,
    },
}

impl TableBlocks {
    /// Rows that are read at a time.
    pub const BLOCK: usize = BLOCK;

    /// Whether a source is a file that can be read in blocks, by its name.
    pub fn can_open(source: &str) -> bool {
        let path = Path::new(source);
        let packed = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        let format = match format_of(path) {
            Some(Format::Npy) => !packed,
            Some(Format::Parquet) => cfg!(feature = "parquet"),
            _ => false,
        };
        format && path.is_file()
    }

    /// Opens a file: its header is read, and what the options name is looked for.
    pub fn open(source: &str, options: &ReadOptions) -> Result<TableBlocks> {
        TableBlocks::opened(source, options, None)
    }

    /// As [`Self::open`], for a file with the columns of a schema; the target may be missing.
    pub fn open_like(source: &str, options: &ReadOptions, schema: &Schema) -> Result<TableBlocks> {
        TableBlocks::opened(source, options, Some(schema))
    }

    fn opened(source: &str, options: &ReadOptions, like: Option<&Schema>) -> Result<TableBlocks> {
        let (path, name) = (Path::new(source), stem(Path::new(source)));
        fail_if!(!TableBlocks::can_open(source); Error::file(path, "cannot be read in blocks; .npy and .parquet files can"));
        let file = options.target.as_ref().filter(|target| is_array_file(target));
        let target = file.map(|file| NpyRows::open(Path::new(file))).transpose()?;
        let asked = options.rows.clone();
        let options = ReadOptions {
            target: options.target.clone().filter(|_| file.is_none()),
            rows: None,
            skip_unlabelled: options.skip_unlabelled && like.is_none(),
            ..options.clone()
        };
        let content = Content::open(path, &name, &Request { in_blocks: true, ..Request::new(&options, like) })?;
        let n = content.rows();
        if let Some(target) = target.as_ref().filter(|target| target.d() != 1 || target.n() != n) {
            let what =
                format!("has the shape {:?}, but there are {n} rows: one number per row is needed", target.dims());
            return Err(Error::file(&target.path, what));
        }
        let rows = asked.unwrap_or(0..n);
        fail_if!(rows.start >= n; Error::file(path, format!("has {n} rows; there is no row {}", rows.start + 1)));
        let rows = rows.start..rows.end.min(n);
        Ok(TableBlocks { path: path.to_owned(), name, options, content, target, rows })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.rows.len()
    }

    /// Number of columns, that of a target included.
    pub fn columns(&self) -> usize {
        match &self.content {
            Content::Npy(npy) => npy.d(),
            #[cfg(feature = "parquet")]
            Content::Parquet { used, .. } => *used,
        }
    }

    /// The name of the file, without folder and extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The row of the file that is the first, counted from 0.
    pub(super) fn first_row(&self) -> usize {
        self.rows.start
    }

    /// Refuses ranks whose files differ. Compares the length, the number of rows and samples of the bytes, not the whole files. Collective.
    pub(super) fn check_same(&self, group: Group<'_>) -> Result<()> {
        if group.is_single() {
            return Ok(());
        }
        let target = self.target.as_ref().map(|target| spread(&target.path)).transpose()?;
        let rows = format!("{:?} of {}", self.rows, self.content.rows()).into_bytes();
        let other = group.first_other(&[rows, spread(&self.path)?, target.unwrap_or_default()].concat())?;
        other.map_or(Ok(()), |rank| {
            Err(Error::input(format!(
                "rank {rank} has another data file than rank 0; start all ranks with the same one"
            )))
        })
    }

    /// Columns that are passed over because the schema does not need them.
    pub fn ignored(&self) -> &[String] {
        match &self.content {
            Content::Npy(_) => &[],
            #[cfg(feature = "parquet")]
            Content::Parquet { ignored, .. } => ignored,
        }
    }

    /// Bytes that the table would take as a whole: as it is read, and as features of eight bytes each.
    pub fn memory(&self) -> u64 {
        self.bytes_of(self.n())
    }

    /// Bytes that a block takes, and what reads it.
    pub(crate) fn block_memory(&self) -> u64 {
        /// Pages of a column that the decoder of parquet files holds, unpacked and not, of about a megabyte each.
        #[cfg(feature = "parquet")]
        const PAGES: u64 = 2 << 20;
        let pages = match &self.content {
            Content::Npy(_) => 0,
            #[cfg(feature = "parquet")]
            Content::Parquet { used, .. } => PAGES * *used as u64,
        };
        self.bytes_of(BLOCK.min(self.n())).saturating_add(pages)
    }

    fn bytes_of(&self, rows: usize) -> u64 {
        let element = match &self.content {
            Content::Npy(npy) => npy.element(),
            #[cfg(feature = "parquet")]
            Content::Parquet { .. } => 16,
        };
        (rows as u64).saturating_mul(self.columns() as u64).saturating_mul(element + 8)
    }

    /// Whether a column, by its position in the file, is a category whatever it holds.
    #[cfg_attr(not(feature = "parquet"), expect(unused_variables))]
    pub(super) fn is_category(&self, position: usize) -> bool {
        match &self.content {
            // Where there are only numbers, categories were asked for.
            Content::Npy(_) => true,
            #[cfg(feature = "parquet")]
            Content::Parquet { categories, .. } => categories.contains(&position),
        }
    }

    /// Hands `part` of the rows to `each`, block by block and in their order, until it returns false. Levels and classes of a block are
    /// those that occur in it. Rows without a target are left out where the options say so, and counted. With a schema, the columns are
    /// those that it names.
    pub(super) fn pass(
        &self,
        like: Option<&Schema>,
        part: Range<usize>,
        each: &mut dyn FnMut(Table) -> Result<bool>,
    ) -> Result<()> {
        let request = Request { in_blocks: true, ..Request::new(&self.options, like) };
        let rows = self.rows.start + part.start..self.rows.start + part.end;
        match &self.content {
            Content::Npy(npy) => {
                for rows in blocks(rows) {
                    if !each(self.npy_block(npy, rows, &request)?)? {
                        break;
                    }
                }
                Ok(())
            }
            #[cfg(feature = "parquet")]
            Content::Parquet { .. } => self.parquet_blocks(rows, &request, each),
        }
    }

    /// Hands the features of the rows to `each`, block by block and in their order, with notes on what the user should know, until it
    /// returns false. Classes of a block are those that occur in it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::data::{Missing, ReadOptions, Scaling, Schema, Table, TableBlocks, write_npy};
    /// let (file, options) = (folder.path().join("x.npy"), ReadOptions::default());
    /// write_npy(&file, ndarray::Array2::from_shape_fn((5000, 2), |(i, j)| (i * (j + 1)) as f32).view())?;
    /// let source = file.to_str().unwrap();
    /// let schema = Schema::fit(&Table::open(source, &options)?, Missing::Refuse, Scaling::MinMax)?;
    /// let mut largest = 0.0f64;
    /// TableBlocks::open_like(source, &options, &schema)?.encoded(&schema, &mut |block, _| {
    ///     largest = block.x.to_f64().iter().copied().fold(largest, f64::max);
    ///     Ok(true)
    /// })?;
    /// assert_eq!(largest, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encoded(&self, schema: &Schema, each: &mut dyn FnMut(Dataset, Vec<String>) -> Result<bool>) -> Result<()> {
        self.encoded_part(schema, 0..self.n(), each)
    }

    /// As [`Self::encoded`], for `part` of the rows.
    pub(super) fn encoded_part(
        &self,
        schema: &Schema,
        part: Range<usize>,
        each: &mut dyn FnMut(Dataset, Vec<String>) -> Result<bool>,
    ) -> Result<()> {
        self.pass(Some(schema), part, &mut |table| {
            let (data, notes) = schema.encode(table)?;
            each(data, notes)
        })
    }

    fn npy_block(&self, npy: &NpyRows, rows: Range<usize>, request: &Request) -> Result<Table> {
        let data = npy::dataset(npy.read(rows.clone())?, &self.name);
        let tabular = data.shape.is_none() && !matches!(data.x, Matrix::U8 { .. });
        let table = Table::of(data, &self.path.to_string_lossy(), tabular).arranged(request)?;
        self.with_target(Table { first: rows.start, ..table }, rows)
    }

    /// The table of some rows with the numbers of the target's file, where it has one.
    fn with_target(&self, mut table: Table, rows: Range<usize>) -> Result<Table> {
        if let Some(file) = &self.target {
            let values = Target::Values(file.read(rows)?.x.column(0));
            table.target = Some(TableTarget { name: stem(&file.path), position: None, width: None, values });
        }
        Ok(table)
    }

    #[cfg(feature = "parquet")]
    fn parquet_blocks(
        &self,
        part: Range<usize>,
        request: &Request,
        each: &mut dyn FnMut(Table) -> Result<bool>,
    ) -> Result<()> {
        let mut reader = super::parquet::Reader::open(&self.path, &self.name, request)?;
        reader.skip(part.start)?;
        for rows in blocks(part) {
            let (table, labelled) = reader.next(rows.len(), request)?;
            let table = self.with_target(table, rows)?;
            let kept = labelled.map(|labelled| (0..labelled.len()).filter(|&i| labelled[i]).collect::<Vec<_>>());
            let table = match kept.filter(|kept| kept.len() < table.n()) {
                Some(kept) => Table { unlabelled: table.n() - kept.len(), ..table.select(&kept) },
                None => table,
            };
            if !each(table)? {
                break;
            }
        }
        Ok(())
    }
}

/// The length of a file, and samples of its bytes at equal distances, from its start to its end.
fn spread(path: &Path) -> Result<Vec<u8>> {
    const PLACES: u64 = 64;
    const BYTES: u64 = 512;
    let io = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let mut found = length.to_le_bytes().to_vec();
    for place in 0..PLACES {
        let at = length.saturating_sub(BYTES) as u128 * u128::from(place) / u128::from(PLACES - 1);
        file.seek(SeekFrom::Start(at as u64)).map_err(io)?;
        (&mut file).take(BYTES).read_to_end(&mut found).map_err(io)?;
    }
    Ok(found)
}

/// A range of rows, a few thousand at a time.
fn blocks(Range { start, end }: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    (start..end).step_by(BLOCK).map(move |at| at..end.min(at + BLOCK))
}

impl Content {
    fn open(path: &Path, name: &str, request: &Request) -> Result<Content> {
        #[cfg(feature = "parquet")]
        if format_of(path) == Some(Format::Parquet) {
            use super::table::Role;
            let reader = super::parquet::Reader::open(path, name, request)?;
            let used = reader.roles.iter().filter(|role| **role != Role::Skipped).count();
            let categories = (0..reader.roles.len()).filter(|&j| reader.roles[j] == Role::Category).collect();
            let ignored = request.ignored(&reader.roles, &reader.columns);
            return Ok(Content::Parquet { rows: reader.rows, used, categories, ignored });
        }
        let npy = NpyRows::open(path)?;
        // The first row has the names of the columns, and what the options name is looked for among them.
        let first = npy::dataset(npy.read(0..1)?, name);
        Table::of(first, &path.to_string_lossy(), true).arranged(request)?;
        Ok(Content::Npy(npy))
    }

    fn rows(&self) -> usize {
        match self {
            Content::Npy(npy) => npy.n(),
            #[cfg(feature = "parquet")]
            Content::Parquet { rows, .. } => *rows,
        }
    }
}
