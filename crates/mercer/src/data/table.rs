//! A table as its source holds it: numbers, true or false, categories and dates, some of them perhaps missing.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cells::Cells;
use super::dataset::{Dataset, SomeTargets, Target, cell, distinct, find_column, find_target, split_rows};
use super::first_pass::no_numbers;
use super::matrix::Matrix;
use super::scale::Scaling;
use super::schema::{Schema, check_classes};
use super::{ReadOptions, read};
use crate::{Error, Result, fail_if};

/// A table as its source holds it. A [`Schema`] makes features of it.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::data::{Kind, ReadOptions, Table};
/// let file = folder.path().join("t.csv");
/// std::fs::write(&file, "colour,size,sold\nred,1.5,yes\nblue,NA,no\n")?;
/// let table = Table::open(file.to_str().unwrap(), &ReadOptions::default())?;
/// assert_eq!(table.columns[0].kind, Kind::Category(vec!["blue".into(), "red".into()]));
/// assert_eq!((&table.columns[1].kind, &table.columns[2].kind), (&Kind::Number, &Kind::TrueFalse));
/// assert!(table.x.rows().get(1, 1).is_nan());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Shown in tables and plots: the name of the set, or of the file without its folder and extension.
    pub name: String,
    /// `[n, d]`: numbers; 1 for true and 0 for false; the position of a category among its levels; the days since 1970 of a date;
    /// NaN where the value is missing.
    pub x: Matrix,
    /// What each column holds, `[d]`.
    pub columns: Vec<Column>,
    /// Whether the source names its columns.
    pub named: bool,
    /// The quantity to predict, where there is one.
    pub target: Option<TableTarget>,
    /// The targets of some rows, where others lack it ([`Table::open_like`]); `target` is none then.
    pub some_target: Option<SomeTargets>,
    /// Channels, height and width, where each row is an image.
    pub shape: Option<[usize; 3]>,
    /// Rows that were left out because their target is missing ([`ReadOptions::skip_unlabelled`]).
    pub unlabelled: usize,
    /// Columns that were passed over because the schema does not need them ([`Table::open_like`]).
    pub ignored: Vec<String>,
    /// What the user should know of how the source was read: its encoding, names that occur twice.
    pub notes: Vec<String>,
    /// What the source is called in messages.
    pub(super) source: String,
    /// The row of the source that is its first, counted from 0.
    pub(super) first: usize,
    /// Whether it is a table, whose columns have units of their own; else images, or points that were generated.
    pub(super) tabular: bool,
    /// Whether the source says by itself if its target holds numbers or classes.
    pub(super) decided: bool,
}

/// A column of a [`Table`]. Example: [`Table`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name; `x0`, `x1`, … where the source gives none.
    pub name: String,
    /// Its position in the source, counted from 0.
    pub position: usize,
    /// What it holds.
    pub kind: Kind,
}

/// What a column holds. Example: [`Table`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Numbers.
    Number,
    /// `true` or `false`, `yes` or `no`.
    TrueFalse,
    /// Dates, as `2024-05-31` or `2024-05-31T12:00:00`; as numbers, the days since 1970.
    Date,
    /// One of these words, which are in order.
    Category(Vec<String>),
}

impl Kind {
    /// What the column holds, in words.
    pub(super) fn plural(&self) -> &'static str {
        match self {
            Kind::Number => "numbers",
            Kind::TrueFalse => "true or false",
            Kind::Date => "dates",
            Kind::Category(_) => "words",
        }
    }
}

/// The target of a [`Table`]. Example: [`Table::with_task`].
#[derive(Clone, Debug, PartialEq)]
pub struct TableTarget {
    /// The name of its column.
    pub name: String,
    /// The position of its column in the source, counted from 0; none where it is no column.
    pub position: Option<usize>,
    /// One entry per row.
    pub values: Target,
}

/// What is to be predicted. Example: [`Table::with_task`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Numbers.
    Regression,
    /// Classes.
    Classification,
}

/// Whole numbers in a target are classes if they have so few different values …
const MOST_CLASSES: usize = 20;
/// … and each of them so many rows on average.
const ROWS_PER_CLASS: usize = 5;

impl Table {
    /// Reads a table; the page of the [module](super) lists the sources. Columns need not be numbers, and values may be missing.
    pub fn open(source: &str, options: &ReadOptions) -> Result<Table> {
        read(source, &Request::new(options, None))
    }

    /// Reads a second table, for `schema` to encode: columns that it does not need are passed over, and the target may be missing.
    pub fn open_like(source: &str, options: &ReadOptions, schema: &Schema) -> Result<Table> {
        read(source, &Request::new(options, Some(schema)))
    }

    /// The table of a data set.
    pub(super) fn of(data: Dataset, source: &str, tabular: bool) -> Table {
        let named = data.columns.iter().any(|name| name.strip_prefix('x').is_none_or(|j| j.parse::<usize>().is_err()));
        let column = |(position, name)| Column { name, position, kind: Kind::Number };
        let columns = data.columns.into_iter().enumerate().map(column).collect();
        let target = data.y.map(|values| TableTarget { name: "target".into(), position: None, values });
        let (shape, some_target, bare) = (data.shape, data.some_y, Table::bare(data.name, source.to_owned(), data.x));
        Table { columns, named, target, some_target, shape, tabular, ..bare }
    }

    /// Rows of which nothing else is known.
    pub(super) fn bare(name: String, source: String, x: Matrix) -> Table {
        let (columns, target, some_target, shape, ignored, notes) = (vec![], None, None, None, vec![], vec![]);
        let (named, unlabelled, first, tabular, decided) = (false, 0, 0, false, false);
        Table {
            name,
            x,
            columns,
            named,
            target,
            some_target,
            shape,
            unlabelled,
            ignored,
            notes,
            source,
            first,
            tabular,
            decided,
        }
    }

    /// A table of numbers, none missing, as a data set.
    pub(super) fn into_numbers(self) -> Dataset {
        let columns = self.columns.into_iter().map(|column| column.name).collect();
        let (y, some_y) = (self.target.map(|target| target.values), self.some_target);
        Dataset { name: self.name, x: self.x, y, some_y, columns, shape: self.shape }
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.x.n()
    }

    /// The scaling that suits the source: standardised columns for a table, none for images and generated points.
    pub fn default_scaling(&self) -> Scaling {
        if self.tabular { Scaling::Standard } else { Scaling::None }
    }

    /// Whether it is a table, whose columns have units of their own; else images, or points that were generated.
    #[doc(hidden)]
    pub fn is_tabular(&self) -> bool {
        self.tabular
    }

    /// The given rows, in the given order. Levels of categories and classes stay, so that all parts of a table know the same.
    pub fn select(&self, rows: &[usize]) -> Table {
        let target = self.target.as_ref().map(|t| TableTarget { values: t.values.select(rows), ..t.clone() });
        let some_target = self.some_target.as_ref().map(|some| some.select(rows, self.n()));
        let (columns, ignored, notes) = (self.columns.clone(), self.ignored.clone(), self.notes.clone());
        Table { x: self.x.select(rows), target, some_target, columns, ignored, notes, ..self.without_rows() }
    }

    /// The table without a share of its rows, and those rows, as [`Dataset::split_rows`] draws them; none for a share of zero.
    pub fn held_out(self, fraction: f64, seed: u64) -> Result<(Table, Option<Table>)> {
        if fraction == 0.0 {
            return Ok((self, None));
        }
        let [rest, held_out] = self.split_rows(fraction, seed)?;
        Ok((self.select(&rest), Some(self.select(&held_out))))
    }

    /// The rows of two parts, `[rest, held-out]`, as [`Dataset::split_rows`] draws them.
    pub fn split_rows(&self, fraction: f64, seed: u64) -> Result<[Vec<usize>; 2]> {
        split_rows(self.n(), fraction, seed)
    }

    /// Everything but columns, rows and target.
    pub(super) fn without_rows(&self) -> Table {
        let Table { named, shape, first, tabular, decided, .. } = *self;
        let x = ndarray::Array2::<f64>::zeros((0, 0)).into();
        Table { named, shape, first, tabular, decided, ..Table::bare(self.name.clone(), self.source.clone(), x) }
    }

    /// The target as numbers or as classes. Without a task, words are classes, and so are whole numbers of at most 20 different
    /// values with 5 rows each on average; other numbers are numbers.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::data::{ReadOptions, Table, Target, Task};
    /// let file = folder.path().join("t.csv");
    /// std::fs::write(&file, format!("x,y\n{}", "1,0\n2,1\n".repeat(5)))?;
    /// let options = ReadOptions { target: Some("y".into()), ..Default::default() };
    /// let table = Table::open(file.to_str().unwrap(), &options)?;
    /// let classes = table.clone().with_task(None)?.target.unwrap().values;
    /// assert!(matches!(classes, Target::Classes { names, .. } if names == ["0", "1"]));
    /// let numbers = table.with_task(Some(Task::Regression))?.target.unwrap().values;
    /// assert!(matches!(numbers, Target::Values(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_task(mut self, task: Option<Task>) -> Result<Table> {
        let Some(target) = &mut self.target else { return Ok(self) };
        let classify =
            task == Some(Task::Classification) || task.is_none() && !self.decided && target.values.few_whole();
        if classify {
            target.values =
                target.values.as_classes().map_err(|e| Error::file(Path::new(&self.source), e.to_string()))?;
        }
        if let (Some(Task::Regression), Target::Classes { names, .. }) = (task, &target.values) {
            let numbers: Option<Vec<f64>> = names.iter().map(|name| name.parse().ok()).collect();
            let Some(numbers) = numbers else {
                let what = no_numbers(&target.name, names);
                return Err(Error::file(Path::new(&self.source), what));
            };
            target.values =
                Target::Values(target.values.values().iter().map(|&label| numbers[label as usize]).collect());
        }
        Ok(self)
    }

    /// The columns, the target and the rows that are asked for.
    pub(super) fn arranged(mut self, request: &Request) -> Result<Table> {
        let names: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        let source = self.source.clone();
        let has_target = self.target.is_some();
        let roles = request.roles(Path::new(&source), &names, self.named, has_target)?;
        if let Some(j) = roles.iter().position(|role| *role == Role::Target) {
            let values = Target::Values(self.x.column(j));
            self.target = Some(TableTarget { name: names[j].clone(), position: Some(j), values });
        }
        self.ignored = request.ignored(&roles, &names);
        let kept: Vec<usize> =
            (0..roles.len()).filter(|&j| !matches!(roles[j], Role::Skipped | Role::Target)).collect();
        if kept.len() < roles.len() {
            self.x = self.x.select_columns(&kept);
            self.columns = kept.iter().map(|&j| self.columns[j].clone()).collect();
            self.shape = None;
        }
        for (at, &j) in kept.iter().enumerate().filter(|(_, j)| roles[**j] == Role::Category) {
            let mut cells = Cells::words();
            let word = |v: &f64| if v.is_nan() { *v } else { cells.word(&v.to_string()) };
            let values: Vec<f64> = self.x.column(at).iter().map(word).collect();
            let (kind, positions) = cells.finish();
            let positions = positions.unwrap_or_default();
            let mut x = self.x.into_f64();
            let level = |v: f64| if v.is_nan() { v } else { positions[v as usize] };
            x.column_mut(at).iter_mut().zip(&values).for_each(|(x, v)| *x = level(*v));
            self.x = x.into();
            self.columns[at].kind = kind;
            debug_assert_eq!(self.columns[at].position, j);
        }
        self.in_range(request)
    }

    /// The rows that are asked for.
    pub(super) fn in_range(self, request: &Request) -> Result<Table> {
        let Some(rows) = &request.options.rows else { return Ok(self) };
        let (n, first) = (self.n(), rows.start + 1);
        fail_if!(rows.start >= n; Error::file(Path::new(&self.source), format!("has {n} rows; there is no row {first}")));
        Ok(self.select(&(rows.start..rows.end.min(n)).collect::<Vec<_>>()))
    }

    /// The rows that are asked for and have a target, which `labelled` `[n]` says; the others are counted.
    #[cfg(feature = "parquet")]
    pub(super) fn labelled(self, labelled: &[bool], request: &Request) -> Result<Table> {
        let asked = request.options.rows.as_ref().map_or(0..self.n(), |rows| rows.start..rows.end.min(self.n()));
        let fail = |what: String| Err(Error::file(Path::new(&self.source), what));
        if asked.is_empty() {
            return fail(format!("has {} rows; there is no row {}", self.n(), asked.start + 1));
        }
        let kept: Vec<usize> = asked.clone().filter(|&i| labelled[i]).collect();
        if kept.is_empty() {
            return fail("has no row with a target".into());
        }
        Ok(Table { unlabelled: asked.len() - kept.len(), ..self.select(&kept) })
    }

    /// Refuses a target whose classes are names of rows, which none could learn.
    pub fn check_classes(&self) -> Result<()> {
        match &self.target {
            Some(TableTarget { name, values: Target::Classes { labels, names }, .. }) => {
                check_classes(self, name, names, labels.len())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a table with a missing value, and names the first.
    pub fn check_complete(&self) -> Result<()> {
        match self.x.rows().non_finite() {
            None => Ok(()),
            Some((row, j, _)) => Err(self.missing(row, j)),
        }
    }

    /// The error for a missing value.
    pub(super) fn missing(&self, row: usize, j: usize) -> Error {
        let advice = concat!("fill the value, drop the row, or fit with the option to ", crate::advice!(Impute));
        self.fail(format!("{} is missing; {advice}", self.place(row, j)))
    }

    /// A cell, counted from 1: `row 3, column 5 (counted from 1), \`age\`,` with the name where the source gives one.
    pub(super) fn place(&self, row: usize, j: usize) -> String {
        place(self.first + row, &self.columns[j].name, self.columns[j].position)
    }

    /// The error that says `what` is wrong with the source.
    pub(super) fn fail(&self, what: impl Into<String>) -> Error {
        Error::file(Path::new(&self.source), what)
    }
}

/// A cell, counted from 1: `row 3, column 5 (counted from 1), \`age\`,` with the name where the source gives one.
pub(super) fn place(row: usize, name: &str, position: usize) -> String {
    let named = if *name == format!("x{position}") { String::new() } else { format!(", `{name}`,") };
    format!("{}{named}", cell(row, position))
}

impl Target {
    /// Whether these are whole numbers of few different values, each with several rows.
    fn few_whole(&self) -> bool {
        let Target::Values(values) = self else { return false };
        let mut distinct: Vec<f64> = Vec::with_capacity(MOST_CLASSES + 1);
        for value in values {
            if value.fract() != 0.0 {
                return false;
            }
            if !distinct.contains(value) {
                distinct.push(*value);
            }
            if distinct.len() > MOST_CLASSES {
                return false;
            }
        }
        few_classes(distinct.len(), values.len())
    }
}

/// Whether so many different whole numbers in so many rows are classes.
pub(super) fn few_classes(distinct: usize, rows: usize) -> bool {
    distinct <= MOST_CLASSES && rows >= ROWS_PER_CLASS * distinct
}

/// What is asked of a reader.
pub(super) struct Request<'a> {
    pub options: &'a ReadOptions,
    /// Whether every column must hold numbers, none missing.
    pub numbers_only: bool,
    /// The schema that is to encode the table.
    pub like: Option<&'a Schema>,
    /// Whether the source is read a few rows at a time. Where no schema says what its columns are, text is then words, for whether all of
    /// it is true or false is known at the end.
    pub in_blocks: bool,
}

impl<'a> Request<'a> {
    /// For a whole table, to be encoded by a schema that is known or not.
    pub fn new(options: &'a ReadOptions, like: Option<&'a Schema>) -> Request<'a> {
        Request { options, numbers_only: false, like, in_blocks: false }
    }
}

/// What is done with a column of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Skipped,
    /// Numbers, none missing.
    Number,
    /// Whatever it holds.
    Any,
    /// Words, numbers too.
    Category,
    Target,
}

impl Request<'_> {
    /// Whether rows whose target is missing are left out.
    pub fn skips_unlabelled(&self) -> bool {
        self.options.skip_unlabelled && (self.like.is_none() || self.in_blocks)
    }

    /// The columns that the schema does not need, but for those that the user left out.
    pub fn ignored(&self, roles: &[Role], names: &[String]) -> Vec<String> {
        let named =
            |words: &[String]| -> HashSet<usize> { words.iter().filter_map(|w| find_column(names, w).ok()).collect() };
        let (dropped, chosen) = (named(&self.options.drop), self.options.columns.as_deref().map(named));
        let left_out = |j: usize| dropped.contains(&j) || chosen.as_ref().is_some_and(|chosen| !chosen.contains(&j));
        let skipped = (0..names.len()).filter(|&j| self.like.is_some() && roles[j] == Role::Skipped && !left_out(j));
        skipped.map(|j| names[j].clone()).collect()
    }

    /// The role of each column; `has_target` where the source has a target that is no column.
    pub fn roles(&self, path: &Path, names: &[String], named: bool, has_target: bool) -> Result<Vec<Role>> {
        let at = |word: &String| find_column(names, word).map_err(|e| Error::file(path, e.to_string()));
        let usual = if self.numbers_only { Role::Number } else { Role::Any };
        let mut roles = vec![usual; names.len()];
        let target = if has_target { None } else { self.target(path, names, named)? };
        if let Some(chosen) = &self.options.columns {
            roles.fill(Role::Skipped);
            chosen.iter().try_for_each(|word| at(word).map(|j| roles[j] = usual))?;
        }
        for word in &self.options.categories {
            let j = at(word)?;
            fail_if!(roles[j] == Role::Skipped; Error::file(path, format!("the column `{word}` is not among those to be used")));
            roles[j] = Role::Category;
        }
        self.options.drop.iter().try_for_each(|word| at(word).map(|j| roles[j] = Role::Skipped))?;
        if let Some(j) = target {
            roles[j] = Role::Target;
        }
        if let Some(schema) = self.like {
            let names = distinct_but(names, target);
            schema.adapt(&mut roles, &names, named).map_err(|what| Error::file(path, what))?;
        }
        let left = roles.iter().any(|role| !matches!(role, Role::Skipped | Role::Target));
        fail_if!(!left; Error::file(path, "has no column left to be a feature"));
        Ok(roles)
    }

    fn target(&self, path: &Path, names: &[String], named: bool) -> Result<Option<usize>> {
        match self.like {
            Some(schema) if schema.target.is_some() => Ok(schema.target_in(names, named)),
            _ => find_target(path, names, self.options),
        }
    }
}

/// The names, no two alike but for that of the target.
pub(super) fn distinct_but(names: &[String], target: Option<usize>) -> Vec<String> {
    let mut rest = names.to_vec();
    let name = target.map(|j| (j, rest.remove(j)));
    let mut rest = distinct(rest);
    if let Some((j, name)) = name {
        rest.insert(j, name);
    }
    rest
}

/// A note on the names that occur twice, which [`distinct`] numbers.
pub(super) fn twice(names: &[String]) -> Option<String> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    names.iter().enumerate().for_each(|(j, name)| places.entry(name).or_default().push(j));
    let (name, places) = places.into_iter().filter(|(_, at)| at.len() > 1).min_by_key(|(_, at)| at[0])?;
    let (first, second) = (places[0] + 1, places[1] + 1);
    Some(format!(
        "columns {first} and {second} (counted from 1) are both called `{name}`; a name that occurs again gets a number, as in `{name}.2`"
    ))
}
