//! Reading of data: the options of the reader, what tables were taken for, and tables that must be like others.

mod blocks;

pub use blocks::{announce, announce_fit, model_memory, needs_out, say_ignored};

use crate::options::values::choice;
use crate::program::context::Context;
use crate::program::usage::with_options;
use crate::text::count;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mercer::data::{
    Dataset, Entry, Kind, MappedArray, Missing, ReadOptions, Scaling, Schema, Table, Target, Task, catalogue,
    is_array_file, open,
};
use mercer::operator::FunctionSamples;
use mercer::{Error, Result, fail_if};
use ndarray::{Array2, Axis};
use std::ops::Range;
use std::sync::Arc;

/// Which part of a source is read.
#[derive(Args, Clone)]
#[command(next_help_heading = "Data options")]
pub struct Source {
    /// Column to predict, by name or by position (1 is the first, -1 the last), or an .npy file with one number a row; not
    /// used as a feature
    #[arg(long, value_name = "COLUMN", allow_negative_numbers = true)]
    target: Option<String>,

    /// Columns to use, by name or position [default: all but the target]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', allow_negative_numbers = true)]
    columns: Option<Vec<String>>,

    /// Columns to leave out, by name or position
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', allow_negative_numbers = true)]
    drop: Vec<String>,

    /// Rows to use: the first N, or those from A to B, counted from 1 [default: all]
    #[arg(long, value_name = "N|A-B", value_parser = rows)]
    rows: Option<Range<usize>>,

    /// Array of an .npz archive to read
    #[arg(long, value_name = "NAME")]
    key: Option<String>,

    /// Whether the first row of a table names its columns [default: detect]
    #[arg(long, value_name = "YES/NO", value_parser = choice(&[("yes", true), ("no", false)]))]
    header: Option<bool>,
}

/// How a source is read where nothing says yet what its columns are.
#[derive(Args)]
#[command(next_help_heading = "Data options")]
pub struct Reader {
    #[command(flatten)]
    pub source: Source,

    /// Columns to take as categories though they hold numbers, by name or position
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', allow_negative_numbers = true)]
    categories: Vec<String>,

    /// Missing values (NA, N/A, ?, nan, null or nothing): refuse them, or impute the mean of the column, with one more column
    /// that says where
    #[arg(long, default_value = "refuse", value_parser = choice(&[("refuse", Missing::Refuse), ("impute", Missing::Impute)]))]
    missing: Missing,
}

/// Rows beside the data: the source that an option names, and the file of their targets, where `--OPTION-target` names one.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    pub option: &'static str,
    pub source: &'a str,
    pub target: Option<&'a str>,
}

impl Beside<'_> {
    /// Refuses rows of which none has a target.
    pub fn check(&self, data: &Dataset, schema: &Schema) -> Result<()> {
        let column = schema.target.as_ref().filter(|target| target.position.is_some());
        fail_if!(
            data.known().is_none(),
            "`{}` has no target; give one number for each row by --{}-target y.npy{}",
            self.source,
            self.option,
            column.map_or_else(String::new, |column| format!(", or add the column `{}`", column.name))
        );
        Ok(())
    }
}

/// Reads the name of a file of targets.
pub fn target_file(word: &str) -> Result<String, String> {
    if is_array_file(word) {
        Ok(word.into())
    } else {
        Err("it must be an .npy file with one number for each row".into())
    }
}

/// What a target of whole numbers is.
#[derive(Args)]
pub struct TaskChoice {
    /// Take whole numbers in the target as classes [default: if they have at most 20 different values, each 5 times on average]
    #[arg(long)]
    classify: bool,

    /// Take whole numbers in the target as numbers
    #[arg(long, conflicts_with = "classify")]
    regress: bool,
}

impl TaskChoice {
    /// What was asked for.
    pub fn task(&self) -> Option<Task> {
        match (self.classify, self.regress) {
            (true, _) => Some(Task::Classification),
            (_, true) => Some(Task::Regression),
            _ => None,
        }
    }

    /// The data with the target that is to be learnt; says what whole numbers were taken for.
    pub fn table(&self, reader: &Reader, source: &str, context: &Context) -> Result<Table> {
        let task = self.task();
        let table = reader.table(source, task, context)?;
        let Some(target) = &table.target else {
            return Err(no_target(source));
        };
        table.check_classes()?;
        let whole = |names: &[String]| names.iter().all(|name| name.parse::<i64>().is_ok());
        let note = match &target.values {
            Target::Classes { names, .. } if whole(names) => "taken as classes; --regress takes them as numbers",
            Target::Values(values) if values.iter().all(|v| v.fract() == 0.0) => {
                "taken as numbers; --classify takes them as classes"
            }
            _ => "",
        };
        if task.is_none() && table.is_tabular() && !note.is_empty() {
            context.note(format_args!("the target `{}` holds whole numbers, {note}", target.name));
        }
        warn_of_one_class(&target.values, context);
        Ok(table)
    }
}

/// Warns where there is nothing to learn of classes.
pub fn warn_of_one_class(target: &Target, context: &Context) {
    if let Target::Classes { names, .. } = target
        && let [one] = &names[..]
    {
        context
            .warn(format_args!("the target has the class `{one}` in every row: nothing can be learnt but that class"));
    }
}

/// The error that a table has no target.
pub fn no_target(name: &str) -> Error {
    Error::input(format!("`{name}` has no target to learn; name the column by --target (by position, -1 is the last)"))
}

/// `1000` is the rows `0..1000`, `201-1000` the rows `200..1000`.
fn rows(text: &str) -> Result<Range<usize>, String> {
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|row| *row > 0);
    let range = match text.split_once('-') {
        None => number(text).map(|end| 0..end),
        Some((first, last)) => number(first).zip(number(last)).map(|(first, last)| first - 1..last),
    };
    range.filter(|rows| !rows.is_empty()).ok_or_else(|| "write 1000 for the first rows, or 201-1000".into())
}

impl Source {
    fn options(&self, context: &Context) -> ReadOptions {
        let Source { target, columns, drop, rows, key, header } = self;
        ReadOptions {
            target: target.clone(),
            columns: columns.clone(),
            drop: drop.clone(),
            categories: vec![],
            rows: rows.clone(),
            header: *header,
            skip_unlabelled: false,
            key: key.clone(),
            memory: Some(context.budget),
        }
    }

    /// The first row that is read, counted from 0.
    pub fn first_row(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.start)
    }

    /// Whether any of the options is given.
    pub fn is_given(&self) -> bool {
        let Source { target, columns, drop, rows, key, header } = self;
        target.is_some() || columns.is_some() || !drop.is_empty() || rows.is_some() || key.is_some() || header.is_some()
    }

    /// How all rows of a source beside the data are read. A target in a file of its own is that of the data alone.
    pub fn beside(&self, target: Option<&str>) -> Source {
        let column = self.target.clone().filter(|target| !is_array_file(target));
        Source { rows: None, target: target.map(String::from).or(column), ..self.clone() }
    }

    /// How the partners of these rows are read, which have the same columns.
    pub fn of_pairs(&self) -> Source {
        Source { rows: self.rows.clone(), ..self.beside(None) }
    }

    /// How a file with something else for each of these rows is read, such as their labels.
    pub fn of_rows(&self) -> Source {
        Source { target: None, columns: None, drop: vec![], ..self.clone() }
    }

    /// How a file is read that has no rows of these columns, such as functions.
    pub fn of_arrays(&self) -> Source {
        Source { rows: None, ..self.of_rows() }
    }

    /// The features of a source by a schema; it may lack the target.
    pub fn open_like(&self, source: &str, schema: &Schema, context: &Context) -> Result<Dataset> {
        let table = Table::open_like(source, &self.options(context), schema)?;
        say_notes(&table, source, context);
        encoded(schema, table, context)
    }

    /// A source of numbers only.
    pub fn numbers(&self, source: &str, context: &Context) -> Result<Dataset> {
        open(source, &self.options(context))
    }
}

impl Reader {
    fn table_options(&self, context: &Context) -> ReadOptions {
        ReadOptions {
            categories: self.categories.clone(),
            skip_unlabelled: self.missing == Missing::Impute,
            ..self.source.options(context)
        }
    }

    /// Reads a file or a named set, its target as numbers or classes by `task`, or by what it holds.
    pub fn table(&self, source: &str, task: Option<Task>, context: &Context) -> Result<Table> {
        let table = Table::open(source, &self.table_options(context))?;
        say_notes(&table, source, context);
        if table.unlabelled > 0 {
            context.warn(format_args!("{} without a target left out", count(table.unlabelled, "row")));
        }
        if self.missing == Missing::Refuse {
            table.check_complete()?;
        }
        table.with_task(task)
    }

    /// How tables like `table` become features; says what its columns were taken for.
    pub fn schema(&self, table: &Table, scaling: Option<Scaling>, context: &Context) -> Result<Schema> {
        let scaling = scaling.unwrap_or_else(|| table.default_scaling());
        let schema = Schema::fit(table, self.missing, scaling)?;
        self.say_columns(&schema, table.is_tabular(), context);
        table.warnings().iter().for_each(|warning| context.warn(with_options(warning)));
        Ok(schema)
    }

    /// Says what the columns were taken for.
    fn say_columns(&self, schema: &Schema, tabular: bool, context: &Context) {
        if tabular {
            let scale = if schema.scaling == Scaling::None { "" } else { "--scale, " };
            let changed_by = format!("{scale}--columns, --drop, --categories");
            context.note(format_args!("columns: {}; to change: {changed_by}", described(schema)));
        }
        let words = schema.columns.iter().any(|column| matches!(column.kind, Kind::Category(_)));
        if words && !schema.named {
            context
                .note("the table has no header that is known as one; --header yes takes its first row for the names");
        }
        schema.warnings().into_iter().for_each(|warning| context.warn(warning));
    }

    /// The features of a file or a named set, and how they are made.
    pub fn features(&self, source: &str, scaling: Option<Scaling>, context: &Context) -> Result<(Dataset, Schema)> {
        let table = self.table(source, None, context)?;
        let schema = self.schema(&table, scaling, context)?;
        Ok((encoded(&schema, table, context)?, schema))
    }

    /// The features of a file or a named set, not scaled.
    pub fn open(&self, source: &str, context: &Context) -> Result<Dataset> {
        self.features(source, Some(Scaling::None), context).map(|(data, _)| data)
    }

    /// The features of a second source, all its rows, by the schema of the first; it may lack the target.
    pub fn open_like(&self, source: &str, schema: &Schema, context: &Context) -> Result<Dataset> {
        self.source.beside(None).open_like(source, schema, context)
    }

    /// As [`Self::open_like`], with the target where some rows have it.
    pub fn open_beside(&self, beside: Beside, schema: &Schema, context: &Context) -> Result<Dataset> {
        self.source.beside(beside.target).open_like(beside.source, schema, context)
    }

    /// The rows that have a target, of which there must be some.
    pub fn labelled_beside(&self, beside: Beside, schema: &Schema, context: &Context) -> Result<Dataset> {
        let data = self.open_beside(beside, schema, context)?;
        beside.check(&data, schema)?;
        Ok(labelled(data, context))
    }
}

/// Says how a source was read, where this is not the usual way.
fn say_notes(table: &Table, source: &str, context: &Context) {
    table.notes.iter().for_each(|note| context.note(format_args!("{source}: {}", with_options(note))));
}

/// Whether the data are a named set with a part for tests.
pub fn has_test_part(data: &str) -> bool {
    let set = |set: &Entry| set.name == data && set.parameters.contains("part=train");
    !std::path::Path::new(data).exists() && catalogue().iter().any(set)
}

/// The rows that have a target; says how many have none.
pub fn labelled(data: Dataset, context: &Context) -> Dataset {
    say_unscored(&data, context);
    data.labelled()
}

/// Says how many rows are not scored.
pub fn say_unscored(data: &Dataset, context: &Context) {
    if let Some(some) = &data.some_y {
        warn_unscored(&data.name, data.n() - some.rows.len(), context);
    }
}

/// The warning that so many rows are not scored.
pub fn warn_unscored(name: &str, rows: usize, context: &Context) {
    context.warn(format_args!("{name}: {} without a target left out of the score", count(rows, "row")));
}

/// The warning that rows are not scored, since their target is not what is predicted: classes or numbers.
pub fn warn_of_other_kind(name: &str, classes: bool, context: &Context) {
    let what = match classes {
        true => "numbers that are not whole, and classes are predicted",
        false => "words, and numbers are predicted",
    };
    context.warn(format_args!("{name}: the target holds {what}; no row is scored"));
}

/// Names that are shown of many.
const SHOWN: usize = 5;

/// The features of a table; warns of what is odd.
pub fn encoded(schema: &Schema, table: Table, context: &Context) -> Result<Dataset> {
    let (n, d) = (table.n() as u64, schema.d() as u64);
    let advice = "use fewer rows, or leave out categories of many levels";
    context.budget.require(format!("a table of {n} rows and {d} features"), (8 * n).saturating_mul(d), advice)?;
    say_ignored(&table.name, &table.ignored, context);
    let (data, notes) = schema.encode(table)?;
    notes.into_iter().for_each(|note| context.warn(note));
    Ok(data)
}

/// What the columns and the target were taken for, in words.
pub fn described(schema: &Schema) -> String {
    let of = |kind: fn(&Kind) -> bool| schema.columns.iter().filter(|column| kind(&column.kind)).count();
    let scaling = match schema.scaling {
        Scaling::None => "as they are",
        Scaling::Standard => "standardised",
        Scaling::MinMax => "scaled from 0 to 1",
    };
    let [numbers, truths, dates] =
        [of(|k| *k == Kind::Number), of(|k| *k == Kind::TrueFalse), of(|k| *k == Kind::Date)];
    let levels: Vec<usize> = schema.columns.iter().filter_map(|column| levels(&column.kind)).collect();
    let mut parts = vec![];
    if numbers > 0 {
        parts.push(format!("{} ({scaling})", count(numbers, "number")));
    }
    if dates > 0 {
        parts.push(format!("{} (days, {scaling})", count(dates, "date")));
    }
    if truths > 0 {
        parts.push(format!("{truths} true or false"));
    }
    match levels[..] {
        [] => {}
        [one] => parts.push(format!("1 category of {} (one-hot)", count(one, "level"))),
        _ => parts.push(format!(
            "{} categories of {} levels in all (one-hot)",
            levels.len(),
            levels.iter().sum::<usize>()
        )),
    }
    let mut said = parts.join(", ");
    if schema.with_missing() > 0 {
        said += &format!("; missing values imputed in {}", count(schema.with_missing(), "column"));
    }
    if let Some(target) = &schema.target {
        let kind = target.classes.as_ref().map_or_else(|| "numbers".into(), |classes| classes_in_words(classes));
        let name = if target.name == "target" { "" } else { &format!(" {}", target.name) };
        said += &format!("; target{name}: {kind}");
    }
    said
}

fn levels(kind: &Kind) -> Option<usize> {
    if let Kind::Category(levels) = kind { Some(levels.len()) } else { None }
}

/// `3 classes (a, b, c)`, the first few of them.
fn classes_in_words(classes: &[String]) -> String {
    let more = if classes.len() > SHOWN { ", …" } else { "" };
    let noun = if classes.len() == 1 { "class" } else { "classes" };
    format!("{} {noun} ({}{more})", classes.len(), classes[..classes.len().min(SHOWN)].join(", "))
}

/// Samples of functions: in their file where it can be mapped into memory, else read, `[S, n·C]`.
pub enum SampleSource {
    Mapped(Arc<MappedArray>),
    Read(Array2<f64>),
}

impl SampleSource {
    /// A file `[S, n]` or `[S, n, C]`.
    pub fn open(source: &str, reader: &Source, context: &Context) -> Result<SampleSource> {
        let read = || reader.of_arrays().numbers(source, context).map(|rows| SampleSource::Read(rows.x.into_f64()));
        if !source.ends_with(".npy") {
            return read();
        }
        // Other types and orders cannot be mapped: the reader converts them, or says what is wrong.
        MappedArray::open(source).map_or_else(|_| read(), |file| Ok(SampleSource::Mapped(file.into())))
    }

    /// The samples at `n` points; else in the shape of their file, `[S, n]` or `[S, n, C]`, where a table has one output.
    pub fn samples(&self, n: Option<usize>) -> Result<FunctionSamples<'_>> {
        match (self, n) {
            (SampleSource::Read(rows), n) => FunctionSamples::from_rows(rows.view(), n.unwrap_or(rows.ncols())),
            (SampleSource::Mapped(file), Some(n)) if file.dims().get(1) != Some(&n) => Err(Error::input(format!(
                "samples of shape {:?} do not fit {n} points: they must be [S, {n}] or [S, {n}, C]",
                file.dims()
            ))),
            (SampleSource::Mapped(file), _) => FunctionSamples::in_file(file.clone()),
        }
    }
}

impl SampleSource {
    /// The values of all functions at each of the points, `[n, S]`; of functions with one output.
    pub fn by_point(&self, n: Option<usize>, context: &Context) -> Result<Array2<f64>> {
        let samples = self.samples(n)?;
        let (functions, n, outputs) = samples.dim();
        fail_if!(
            outputs != 1,
            "the samples have {outputs} outputs at each point; a Gaussian process takes functions with one, an array [S, {n}]"
        );
        let bytes = 16 * (functions as u64).saturating_mul(n as u64);
        context.budget.require(
            format!("{functions} functions at {n} points"),
            bytes,
            "use fewer functions or points",
        )?;
        let all: Vec<usize> = (0..n).collect();
        Ok(samples.select(&all).remove_axis(Axis(2)).t().as_standard_layout().into_owned())
    }
}

/// The names of the scalings.
pub fn scaling() -> impl TypedValueParser<Value = Scaling> {
    let words = ["none", "standard"].map(PossibleValue::new);
    PossibleValuesParser::new(words.into_iter().chain([PossibleValue::new("minmax").alias("min-max")]))
        .try_map(|word| word.parse::<Scaling>())
}
