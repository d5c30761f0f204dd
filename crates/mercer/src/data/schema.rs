//! How a table becomes features. A model keeps its schema, so that new tables become features in the same way.
//!
//! A reader returns a [`Table`]: one number a cell (the position of a category among its levels, the days of a date, NaN where it is missing) and
//! the kind of each column. A [`Schema`] is fitted to a table and makes a [`Dataset`](super::Dataset) of it: one-hot columns, imputed values, scaled
//! columns. It is the only way from a table to features, and every model file stores it under `schema`. Estimators see features only.
//!
//! A file larger than memory is a `TableBlocks`, which hands out 4096 rows at a time. A first pass (`first_pass.rs`) finds the same schema
//! from moments and levels; `BlockDataset` keeps it with a sample of rows, and encodes each block in further passes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::str::FromStr;

use ndarray::Array2;
use serde::{Deserialize, Serialize};

use super::dataset::{Dataset, SomeTargets, Target};
use super::matrix::Matrix;
use super::notation::mostly;
use super::scale::{Scaler, Scaling};
use super::table::{Column, Kind, Role, Table};
use crate::error::{did_you_mean, excerpt};
use crate::{Error, Result, fail_if};

/// How a table becomes features: what each column holds, what is done with missing values, and the scaling of numbers.
///
/// | column | features |
/// |---|---|
/// | numbers | the number, scaled |
/// | dates | the days since 1970, scaled |
/// | true or false | 1 or 0 |
/// | a category | one feature per level, 1 for that of the row and 0 for the others |
///
/// Where missing values are imputed, a number becomes the mean of its column, and so does a date or a truth value; a category
/// becomes 0 for all levels. A column with missing values among the fitted rows has one more feature, 1 where its value is missing.
///
/// The columns of a new table are found by name where both tables name theirs, else by position. A column that is missing or
/// holds something else, and a missing value that is not to be imputed, are errors. A level that the fitted table did not have
/// becomes 0 for all levels, and a note says so.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::data::{Missing, ReadOptions, Scaling, Schema, Table};
/// let open = |text: &str| {
///     let file = folder.path().join("t.csv");
///     std::fs::write(&file, text).unwrap();
///     Table::open(file.to_str().unwrap(), &ReadOptions::default())
/// };
/// let table = open("size,colour\n1,red\n3,blue\n")?;
/// let schema = Schema::fit(&table, Missing::Refuse, Scaling::Standard)?;
/// assert_eq!(schema.features(), ["size", "colour=blue", "colour=red"]);
/// let (new, notes) = schema.encode(open("colour,size\nred,5\ngreen,1\n")?)?;
/// assert_eq!(new.x.to_f64(), ndarray::array![[3.0, 0.0, 1.0], [-1.0, 0.0, 0.0]]);
/// assert!(notes[0].contains("`green`"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// The columns that were fitted, in their order.
    pub columns: Vec<Column>,
    /// Whether the fitted table names its columns.
    pub named: bool,
    /// The target that was fitted, where there is one.
    pub target: Option<SchemaTarget>,
    /// What is done with missing values.
    pub missing: Missing,
    /// The scaling of numbers and dates.
    pub scaling: Scaling,
    /// What missing values become, `[columns]`; none for a category, and where they are refused.
    pub(super) fill: Vec<Option<f64>>,
    /// Whether a column has a feature that says where its value is missing, `[columns]`.
    pub(super) indicator: Vec<bool>,
    /// The scaling of the features; those of categories, truth values and missing values stay as they are.
    pub(super) scaler: Option<Scaler>,
}

/// The target of a [`Schema`]. Example: [`Schema`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaTarget {
    /// The name of its column.
    pub name: String,
    /// The position of its column in the fitted source, counted from 0; none where it was no column.
    pub position: Option<usize>,
    /// The names of its classes; none where it holds numbers.
    pub classes: Option<Vec<String>>,
}

/// What is done with missing values. Example: [`Schema`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// They are errors.
    #[default]
    Refuse,
    /// They become the mean of their column, and a feature says where they are.
    Impute,
}

impl FromStr for Missing {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "refuse" => Ok(Missing::Refuse),
            "impute" => Ok(Missing::Impute),
            _ => Err(Error::unknown("treatment of missing values", word, ["refuse", "impute"])),
        }
    }
}

/// A category of more levels than this is refused, and so is one that has a level for every other row.
pub(super) const MOST_LEVELS: usize = 1000;
const FEW_LEVELS: usize = 20;

impl Schema {
    /// Learns from a table how tables like it become features.
    pub fn fit(table: &Table, missing: Missing, scaling: Scaling) -> Result<Schema> {
        let (d, n) = (table.columns.len(), table.n());
        let mut schema = Schema {
            columns: table.columns.clone(),
            named: table.named,
            target: table.target.as_ref().map(|target| SchemaTarget {
                name: target.name.clone(),
                position: target.position,
                classes: match &target.values {
                    Target::Values(_) => None,
                    Target::Classes { names, .. } => Some(names.clone()),
                },
            }),
            missing,
            scaling,
            fill: vec![None; d],
            indicator: vec![false; d],
            scaler: None,
        };
        for (j, column) in table.columns.iter().enumerate() {
            if matches!(column.kind, Kind::Category(_)) {
                let rows = table.x.rows();
                let present: HashSet<u64> =
                    (0..n).map(|i| rows.get(i, j)).filter(|v| !v.is_nan()).map(f64::to_bits).collect();
                check_levels(table, j, [present.len(), n])?;
            }
            if missing == Missing::Impute {
                let values: Vec<f64> = table.x.column(j).into_iter().filter(|v| !v.is_nan()).collect();
                fail_if!(values.is_empty(); table.fail(format!(
                    "column {}, `{}`, has no values; {leave_out}", column.position + 1, column.name, leave_out = crate::advice!(LeaveOut))));
                schema.indicator[j] = values.len() < n;
                // The sum itself might overflow.
                let mean = values.iter().map(|v| v / values.len() as f64).sum();
                schema.fill[j] = (!matches!(column.kind, Kind::Category(_))).then_some(mean);
            }
        }
        if scaling != Scaling::None {
            schema.scaler = Some(schema.fit_scaler(table)?);
        }
        Ok(schema)
    }

    /// The scaling of the features, where there is one.
    #[doc(hidden)]
    pub fn scaler(&self) -> Option<&Scaler> {
        self.scaler.as_ref()
    }

    /// The scaling of the features: numbers and dates only.
    fn fit_scaler(&self, table: &Table) -> Result<Scaler> {
        let (x, _) = self.matrix(table)?;
        let mut scaler = Scaler::fit(self.scaling, &*x).map_err(|e| table.fail(e.to_string()))?;
        let mut at = 0;
        for j in 0..self.columns.len() {
            let scaled = matches!(self.columns[j].kind, Kind::Number | Kind::Date);
            let width = self.width(j);
            for f in at + usize::from(scaled)..at + width {
                (scaler.shift[f], scaler.scale[f]) = (0.0, 1.0);
            }
            at += width;
        }
        Ok(scaler)
    }

    /// The features of a table, its target, and notes on what the user should know.
    pub fn encode(&self, table: Table) -> Result<(Dataset, Vec<String>)> {
        let (x, notes) = self.matrix(&table)?;
        let made = if let Cow::Owned(x) = x { Some(x) } else { None };
        // A matrix that is as it was read is moved, and scaled in place, not copied.
        let mut x = made.unwrap_or(table.x);
        if let Some(scaler) = &self.scaler {
            let mut scaled = x.into_f64();
            scaler.apply_in_place(&mut scaled);
            x = scaled.into();
            if let Some((i, j, _)) = x.rows().non_finite() {
                let (row, feature) = (table.first + i + 1, &self.features()[j]);
                return Err(Error::file(
                    Path::new(&table.source),
                    format!(
                        "row {row} (counted from 1) of `{feature}` is too large to be scaled as the fitted table was; leave it out"
                    ),
                ));
            }
        }
        let coded = |y: Target| match self.target.as_ref().and_then(|t| t.classes.as_ref()) {
            Some(_) => y.as_classes().unwrap_or(y),
            None => y,
        };
        let y = table.target.map(|target| coded(target.values));
        let some_y = table.some_target.map(|some| SomeTargets { y: coded(some.y), ..some });
        let (features, unchanged) = (self.features(), self.columns.len() == self.d());
        let shape = table.shape.filter(|_| unchanged);
        Ok((Dataset { name: table.name, x, y, some_y, columns: features, shape }, notes))
    }

    /// The names of the features: those of the columns, `colour=red` for the levels of a category, `age=missing` for missing values.
    pub fn features(&self) -> Vec<String> {
        let of_column = |(j, column): (usize, &Column)| {
            let mut names = match &column.kind {
                Kind::Category(levels) => levels.iter().map(|level| format!("{}={level}", column.name)).collect(),
                _ => vec![column.name.clone()],
            };
            names.extend(self.indicator[j].then(|| format!("{}=missing", column.name)));
            names
        };
        self.columns.iter().enumerate().flat_map(of_column).collect()
    }

    /// Number of features.
    pub fn d(&self) -> usize {
        (0..self.columns.len()).map(|j| self.width(j)).sum()
    }

    /// Columns with missing values among the fitted rows.
    pub fn with_missing(&self) -> usize {
        self.indicator.iter().filter(|has| **has).count()
    }

    /// Warnings for columns of numbers or dates with the same value in every fitted row, and for words that look like numbers or dates.
    pub fn warnings(&self) -> Vec<String> {
        let constant = self.scaler.as_ref().map_or_else(Vec::new, |scaler| {
            let (constant, features) = (scaler.constant_columns(), self.features());
            match constant.len() {
                0..=3 => scaler.warnings(&features),
                many => vec![format!(
                    "{many} columns (the first is `{}`) have the same value in every row; they are mapped to zero",
                    features[constant[0]]
                )],
            }
        });
        constant.into_iter().chain(self.misread()).collect()
    }

    /// A warning for categories, and classes, most of whose words look like numbers or dates.
    fn misread(&self) -> Option<String> {
        let of_column = |column: &'_ Column| match &column.kind {
            Kind::Category(levels) => mostly(levels).map(|(word, what)| (column.name.clone(), word.to_owned(), what)),
            _ => None,
        };
        let of_target = |target: &SchemaTarget| {
            let (word, what) = mostly(target.classes.as_deref()?)?;
            Some((target.name.clone(), word.to_owned(), what))
        };
        let found: Vec<_> =
            self.columns.iter().filter_map(of_column).chain(self.target.iter().filter_map(of_target)).collect();
        let (name, word, what) = found.first()?;
        let more = match found.len() - 1 {
            0 => String::new(),
            1 => " (and of 1 column more)".into(),
            more => format!(" (and of {more} columns more)"),
        };
        Some(format!(
            "the words of the column `{name}`{more} look like numbers or dates but are taken as words without order: `{word}` looks like \
             {what}; write numbers as 1234.5 and dates as 2024-05-31"
        ))
    }

    /// Number of features of column `j`.
    pub(super) fn width(&self, j: usize) -> usize {
        let levels = if let Kind::Category(levels) = &self.columns[j].kind { levels.len() } else { 1 };
        levels + usize::from(self.indicator[j])
    }

    /// The features `[n, d]` before scaling, and notes.
    fn matrix<'t>(&self, table: &'t Table) -> Result<(Cow<'t, Matrix>, Vec<String>)> {
        let places = self.places(table)?;
        let plain = self.columns.iter().all(|column| column.kind == Kind::Number);
        let missing = table.x.rows().non_finite().is_some();
        if plain && !missing && self.d() == places.len() {
            self.check_kinds(table, &places)?;
            let as_read = places.iter().copied().eq(0..table.columns.len());
            let x = if as_read { Cow::Borrowed(&table.x) } else { Cow::Owned(table.x.select_columns(&places)) };
            return Ok((x, vec![]));
        }
        self.check_kinds(table, &places)?;
        let (mut x, mut notes, mut at) = (Array2::zeros((table.n(), self.d())), vec![], 0);
        for (j, &place) in places.iter().enumerate() {
            notes.extend(self.encode_column(j, table, place, &mut x, at)?);
            at += self.width(j);
        }
        Ok((Cow::Owned(x.into()), notes))
    }

    /// Writes the features of column `j`, which is at `place` in the table, from column `at` of `x` on. Returns notes on levels that
    /// are not known, and on values that are missing where no fitted one was.
    fn encode_column(
        &self,
        j: usize,
        table: &Table,
        place: usize,
        x: &mut Array2<f64>,
        at: usize,
    ) -> Result<Vec<String>> {
        let rows = table.x.rows();
        let levels = self.levels_of(j, table, place);
        let indicator = at + self.width(j) - 1;
        let (mut unknown, mut imputed) = (FirstOfMany::default(), FirstOfMany::default());
        for i in 0..table.n() {
            let value = rows.get(i, place);
            if value.is_nan() {
                fail_if!(self.missing == Missing::Refuse; table.missing(i, place));
                match self.indicator[j] {
                    true => x[[i, indicator]] = 1.0,
                    false => imputed.add(i),
                }
                if let Some(fill) = self.fill[j] {
                    x[[i, at]] = fill;
                }
                continue;
            }
            match &levels {
                None => x[[i, at]] = value,
                Some(levels) => match levels[value as usize] {
                    Some(level) => x[[i, at + level]] = 1.0,
                    None => unknown.add(i),
                },
            }
        }
        let unknown = unknown.first.map(|first| {
            let Kind::Category(known) = &table.columns[place].kind else { unreachable!("only categories have levels") };
            let level = &known[rows.get(first, place) as usize];
            let more = unknown.more("such a level");
            let at = table.place(first, place);
            format!("{}: {at} is `{level}`, a level that the fitted table did not have{more}; it counts as none of the levels", table.source)
        });
        let imputed = imputed.first.map(|first| {
            let by = if self.fill[j].is_some() {
                "the mean of the fitted rows stands for it"
            } else {
                "it counts as none of the levels"
            };
            let (at, more) = (table.place(first, place), imputed.more("no value there"));
            format!("{}: {at} is missing, where no fitted row lacked it{more}; {by}", table.source)
        });
        Ok(unknown.into_iter().chain(imputed).collect())
    }

    /// The level here of each level of the table, for a category.
    fn levels_of(&self, j: usize, table: &Table, place: usize) -> Option<Vec<Option<usize>>> {
        let (Kind::Category(ours), Kind::Category(theirs)) = (&self.columns[j].kind, &table.columns[place].kind) else {
            return None;
        };
        Some(theirs.iter().map(|level| ours.iter().position(|known| known == level)).collect())
    }

    /// The place of each column in the table: by name where both name theirs, else by position.
    fn places(&self, table: &Table) -> Result<Vec<usize>> {
        let (d, got) = (self.columns.len(), table.columns.len());
        if !(self.named && table.named) {
            fail_if!(d != got; table.fail(format!(
                "has {got} columns, where {d} were fitted{}",
                if got == d + 1 { concat!("; ", crate::advice!(NameTarget)) } else { "" }
            )));
            return Ok((0..d).collect());
        }
        let names = || table.columns.iter().map(|column| column.name.as_str());
        let known: HashMap<&str, usize> = names().enumerate().map(|(j, name)| (name, j)).collect();
        let place = |column: &Column| {
            let found = known.get(column.name.as_str()).copied();
            found.ok_or_else(|| table.fail(no_column(&column.name, names())))
        };
        self.columns.iter().map(place).collect()
    }

    /// Refuses a column that holds something else than the fitted one.
    fn check_kinds(&self, table: &Table, places: &[usize]) -> Result<()> {
        for (ours, &place) in self.columns.iter().zip(places) {
            let theirs = &table.columns[place];
            let values = || table.x.column(place);
            let fits = match (&ours.kind, &theirs.kind) {
                (Kind::Category(_), Kind::Category(_)) => true,
                (Kind::TrueFalse, Kind::Number) => values().iter().all(|v| v.is_nan() || *v == 0.0 || *v == 1.0),
                (a, b) if a == b => true,
                (_, Kind::Category(levels)) if levels.is_empty() => true,
                // A column without any value has no kind.
                (_, Kind::Number) => values().iter().all(|v| v.is_nan()),
                _ => false,
            };
            if !fits {
                let row = values().iter().position(|v| !v.is_nan()).unwrap_or(0);
                let found = match &theirs.kind {
                    Kind::Category(levels) => format!("`{}`, a word", levels[values()[row] as usize]),
                    other => format!("one of {}", other.plural()),
                };
                let (at, fitted) = (table.place(row, place), ours.kind.plural());
                return Err(table.fail(format!("{at} is {found}, where {fitted} were fitted; correct the column")));
            }
        }
        Ok(())
    }

    /// The roles of the columns of a new source: those that were not fitted are passed over, and categories are words. The error
    /// says which column is not there.
    pub(super) fn adapt(&self, roles: &mut [Role], names: &[String], named: bool) -> Result<(), String> {
        let is_category = |column: &Column| matches!(column.kind, Kind::Category(_));
        let free = |role: &Role| !matches!(role, Role::Skipped | Role::Target);
        if self.named && named {
            let known: HashSet<&str> = names.iter().map(String::as_str).collect();
            if let Some(column) = self.columns.iter().find(|column| !known.contains(column.name.as_str())) {
                return Err(no_column(&column.name, names.iter().map(String::as_str)));
            }
            let fitted: HashMap<&str, &Column> = self.columns.iter().map(|c| (c.name.as_str(), c)).collect();
            for (role, name) in roles.iter_mut().zip(names).filter(|(role, _)| free(role)) {
                *role = match fitted.get(name.as_str()) {
                    None => Role::Skipped,
                    Some(column) if is_category(column) => Role::Category,
                    Some(_) => Role::Any,
                };
            }
        } else {
            let free = roles.iter_mut().filter(|role| free(role));
            free.zip(&self.columns)
                .filter(|(_, column)| is_category(column))
                .for_each(|(role, _)| *role = Role::Category);
        }
        Ok(())
    }

    /// Where the target is among the columns of a new source, if it is there.
    pub(super) fn target_in(&self, names: &[String], named: bool) -> Option<usize> {
        let target = self.target.as_ref()?;
        if self.named && named {
            return names.iter().position(|name| *name == target.name);
        }
        target.position.filter(|j| *j < names.len() && names.len() != self.columns.len())
    }

    /// Whether the first row of a table holds the names of all columns.
    pub(super) fn is_named_by<'c>(&self, first: impl Iterator<Item = &'c str>) -> bool {
        let first: HashSet<&str> = first.collect();
        self.named && self.columns.iter().all(|column| first.contains(column.name.as_str()))
    }

    /// Refuses a schema whose parts do not fit together, or that makes other than `d` features.
    pub(crate) fn check(&self, d: usize) -> Result<()> {
        let columns = self.columns.len();
        let lists = self.fill.len() == columns && self.indicator.len() == columns;
        fail_if!(
            !lists || self.d() != d,
            "its parts do not fit together: a schema of {columns} columns and {} features, where {d} were fitted",
            if lists { self.d() } else { 0 }
        );
        if let Some(Scaler { shift, scale }) = &self.scaler {
            let (a, b) = (shift.len(), scale.len());
            fail_if!(
                (a, b) != (d, d),
                "its parts do not fit together: a scaling of {a} and {b} features, where {d} were fitted"
            );
        }
        let levels = |column: &Column| matches!(&column.kind, Kind::Category(levels) if levels.is_empty());
        fail_if!(self.columns.iter().any(levels), "its schema has a category without levels");
        let scaled = (self.scaling == Scaling::None) == self.scaler.is_none();
        fail_if!(!scaled, "its schema has a scaling without numbers, or numbers without a scaling");
        let imputes = self.missing == Missing::Impute;
        let filled =
            |j: usize| self.fill[j].is_some() == (imputes && !matches!(self.columns[j].kind, Kind::Category(_)));
        fail_if!(
            !(0..columns).all(filled) || !imputes && self.with_missing() > 0,
            "its schema does not say what missing values become"
        );
        let target = self.target.as_ref().and_then(|target| target.classes.as_ref());
        fail_if!(target.is_some_and(Vec::is_empty), "its schema has a target without classes");
        Ok(())
    }
}

/// The first of some rows, and how many there are.
#[derive(Clone, Copy, Default)]
struct FirstOfMany {
    first: Option<usize>,
    count: usize,
}

impl FirstOfMany {
    fn add(&mut self, row: usize) {
        self.first = self.first.or(Some(row));
        self.count += 1;
    }

    /// ` (and 3 more rows have such a level)`, where there are more.
    fn more(self, what: &str) -> String {
        if self.count > 1 { format!(" (and {} more rows have {what})", self.count - 1) } else { String::new() }
    }
}

/// The message that a fitted column is not among `names`.
fn no_column<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> String {
    format!("has no column `{name}`, which was fitted{}; rename or add the column", did_you_mean(name, names))
}

/// Refuses a target of `n` rows whose classes are names of rows: more than every other row has one of its own.
pub(super) fn check_classes(table: &Table, name: &str, classes: &[String], n: usize) -> Result<()> {
    let count = classes.len();
    fail_if!(count > FEW_LEVELS && 2 * count > n; table.fail(format!(
        "the target `{name}` has {count} classes in {n} rows, such as `{}`: too many to learn; choose another column as the target",
        excerpt(&classes[0])
    )));
    Ok(())
}

/// Refuses a category that has too many levels to be one, by how many of them are `present` in `n` rows.
pub(super) fn check_levels(table: &Table, j: usize, [present, n]: [usize; 2]) -> Result<()> {
    let Column { name, position, kind: Kind::Category(levels) } = &table.columns[j] else { return Ok(()) };
    let place = format!("column {} (counted from 1), `{name}`,", position + 1);
    fail_if!(levels.is_empty(); table.fail(format!("{place} has no values; {leave_out}", leave_out = crate::advice!(LeaveOut))));
    let many = present > FEW_LEVELS && 2 * present > n;
    if !many && levels.len() <= MOST_LEVELS {
        return Ok(());
    }
    let held = if many {
        format!("{present} different words in {n} rows")
    } else {
        format!("{} different words", levels.len())
    };
    let (word, like) = match mostly(levels) {
        Some((word, _)) => (word, "; they look like numbers or dates, so write them as 1234.5 or 2024-05-31, or"),
        None => (levels[0].as_str(), ";"),
    };
    Err(table.fail(format!(
        "{place} holds {held}, such as `{word}`: too many for a category{like} {leave_out}",
        leave_out = crate::advice!(LeaveOut)
    )))
}
