//! What a first pass over the blocks of a table learns: means and spreads, levels, classes, and some rows.

use std::collections::BTreeMap;

use ndarray::{Array2, ArrayView1, ArrayView2, Axis};

use super::blocks::TableBlocks;
use super::cells::Cells;
use super::dataset::{Dataset, Target};
use super::scale::{Moments, Scaler, Scaling};
use super::schema::{MOST_LEVELS, Missing, Schema, SchemaTarget, check_levels};
use super::table::{Column, Kind, Table, TableTarget, Task, few_classes};
use crate::{Error, Result, fail_if};

/// What is known of a column so far, over the rows to fit; of its words over all rows.
struct Seen {
    /// Of numbers that are there.
    moments: Moments,
    missing: u64,
    words: Cells,
    /// Rows of each word, by the order of its first appearance.
    counts: Vec<u64>,
}

/// What is known of the target so far.
struct SeenTarget {
    name: String,
    position: Option<usize>,
    words: Cells,
    /// Rows to fit of each word, by the order of its first appearance.
    counts: Vec<u64>,
    /// Rows to fit of each whole number; no more than [`MOST_NUMBERS`] are kept.
    whole: BTreeMap<i64, u64>,
    /// The first number that cannot be a class, with its row: it is not whole, or one of too many.
    other: Option<(usize, f64)>,
}

/// Different whole numbers that are looked at as classes.
const MOST_NUMBERS: usize = 10_000;

/// Rows that are kept, in their order.
#[derive(Default)]
struct Kept {
    rows: Vec<usize>,
    /// Numbers of the columns; a word is the order of its first appearance.
    values: Vec<f64>,
    target: Vec<f64>,
}

/// A pass on its way.
pub(super) struct FirstPass<'a> {
    blocks: &'a TableBlocks,
    missing: Missing,
    /// Rows that are held out, ascending.
    held_out: &'a [usize],
    /// Rows to keep, ascending, counted among those to fit.
    wanted: &'a [usize],
    /// The table without its rows.
    outline: Option<Table>,
    columns: Vec<Seen>,
    target: Option<SeenTarget>,
    /// Rows so far, rows to fit so far, and rows that were left out for lack of a target.
    pub rows: usize,
    trained: usize,
    unlabelled: usize,
    sample: Kept,
    held: Kept,
}

/// What the pass has learnt.
pub(super) struct Learnt {
    pub schema: Schema,
    /// Rows to fit.
    pub n: usize,
    pub unlabelled: usize,
    /// Whether it is a table, whose columns have units of their own.
    pub tabular: bool,
    /// The mean of each feature over the rows to fit `[d]`.
    pub mean: Vec<f64>,
    /// Rows to fit of each class.
    pub class_counts: Vec<u64>,
    /// The wanted rows, and their features.
    pub sample: (Vec<usize>, Dataset),
    pub held_out: Option<Dataset>,
}

impl<'a> FirstPass<'a> {
    pub fn new(blocks: &'a TableBlocks, missing: Missing, held_out: &'a [usize], wanted: &'a [usize]) -> Self {
        let (outline, columns, target) = (None, vec![], None);
        let (rows, trained, unlabelled, sample, held) = (0, 0, 0, Kept::default(), Kept::default());
        FirstPass {
            blocks,
            missing,
            held_out,
            wanted,
            outline,
            columns,
            target,
            rows,
            trained,
            unlabelled,
            sample,
            held,
        }
    }

    /// Looks at the next rows.
    pub fn add(&mut self, table: &Table) -> Result<()> {
        if self.missing == Missing::Refuse {
            table.check_complete()?;
        }
        self.unlabelled += table.unlabelled;
        if self.outline.is_none() {
            self.begin(table);
        }
        let x = self.numbered(table)?;
        let y = self.target_values(table);
        let (first, n) = (self.rows, table.n());
        let is_held = |i: &usize| self.held_out.binary_search(&(first + i)).is_ok();
        let (held, fitted): (Vec<usize>, Vec<usize>) = (0..n).partition(is_held);
        self.count_classes(table, &fitted, &y);
        for (at, &i) in fitted.iter().enumerate() {
            if self.wanted.get(self.sample.rows.len()) == Some(&(self.trained + at)) {
                self.sample.push(self.trained + at, x.row(i), y.as_ref().map(|y| y[i]));
            }
        }
        held.iter().for_each(|&i| self.held.push(first + i, x.row(i), y.as_ref().map(|y| y[i])));
        self.measure(if held.is_empty() { x } else { x.select(Axis(0), &fitted) }.view());
        (self.rows, self.trained) = (first + n, self.trained + fitted.len());
        Ok(())
    }

    fn begin(&mut self, table: &Table) {
        let words = |column: &Column| match column.kind {
            Kind::Category(_) if self.blocks.is_category(column.position) => Cells::words(),
            _ => Cells::default(),
        };
        let seen = |column| Seen { moments: Moments::NONE, missing: 0, words: words(column), counts: vec![] };
        self.columns = table.columns.iter().map(seen).collect();
        self.target = table.target.as_ref().map(|target| SeenTarget {
            name: target.name.clone(),
            position: target.position,
            words: Cells::default(),
            counts: vec![],
            whole: BTreeMap::new(),
            other: None,
        });
        self.outline = Some(Table { columns: table.columns.clone(), ..table.without_rows() });
    }

    /// The numbers of a block `[b, columns]`, in which a word is the order of its first appearance in the file.
    fn numbered(&mut self, table: &Table) -> Result<Array2<f64>> {
        let mut x = table.x.to_f64().into_owned();
        for (j, (column, seen)) in table.columns.iter().zip(&mut self.columns).enumerate() {
            let Kind::Category(levels) = &column.kind else { continue };
            let orders: Vec<f64> = levels.iter().map(|level| seen.words.word(level.as_bytes())).collect();
            let count = seen.words.word_count();
            fail_if!(count > MOST_LEVELS; table.fail(format!(
                "column {} (counted from 1), `{}`, holds more than {MOST_LEVELS} different words, such as `{}`: too many for a \
                 category; leave the column out",
                column.position + 1, column.name, levels[0]
            )));
            seen.counts.resize(count, 0);
            x.column_mut(j).iter_mut().filter(|v| !v.is_nan()).for_each(|v| *v = orders[*v as usize]);
        }
        Ok(x)
    }

    /// The target of a block `[b]` as numbers, in which a word is the order of its first appearance in the file.
    fn target_values(&mut self, table: &Table) -> Option<Vec<f64>> {
        let seen = self.target.as_mut()?;
        Some(match &table.target.as_ref()?.values {
            Target::Values(values) => values.clone(),
            Target::Classes { labels, names } => {
                let orders: Vec<f64> = names.iter().map(|name| seen.words.word(name.as_bytes())).collect();
                seen.counts.resize(seen.words.word_count(), 0);
                labels.iter().map(|&label| orders[label]).collect()
            }
        })
    }

    /// Counts the classes of the rows `fitted` of a block, and looks at all of `y` `[b]` for whether its numbers can be classes.
    fn count_classes(&mut self, table: &Table, fitted: &[usize], y: &Option<Vec<f64>>) {
        let (Some(seen), Some(y)) = (&mut self.target, y) else { return };
        if seen.words.are_words() {
            return fitted.iter().for_each(|&i| seen.counts[y[i] as usize] += 1);
        }
        for (i, &value) in y.iter().enumerate() {
            if seen.other.is_some() {
                return;
            }
            match whole(value) {
                Some(class) => *seen.whole.entry(class).or_insert(0) += 0,
                None => seen.other = Some((table.first + i, value)),
            }
            if seen.whole.len() > MOST_NUMBERS {
                seen.other = Some((table.first + i, value));
            }
        }
        let classes = fitted.iter().filter_map(|&i| whole(y[i]));
        classes.for_each(|class| *seen.whole.entry(class).or_insert(0) += 1);
    }

    /// Adds the rows `x` `[b, columns]` to the moments and the counts of words.
    fn measure(&mut self, x: ArrayView2<f64>) {
        for (column, seen) in x.columns().into_iter().zip(&mut self.columns) {
            let there: Vec<f64> = column.iter().copied().filter(|v| !v.is_nan()).collect();
            seen.missing += (column.len() - there.len()) as u64;
            if seen.words.are_words() {
                there.iter().for_each(|&order| seen.counts[order as usize] += 1);
            } else {
                seen.moments = seen.moments.merged(Moments::of(ArrayView1::from(&there)));
            }
        }
    }

    /// What the whole file has taught, with its target as numbers or classes by `task`, or by what it holds.
    pub fn finish(self, scaling: Option<Scaling>, task: Option<Task>) -> Result<Learnt> {
        let FirstPass { missing, columns: seen, target, rows, trained: n, unlabelled, sample, held, .. } = self;
        let empty = || Error::file(self.blocks.path(), "has no row with a target");
        let mut outline = self.outline.filter(|_| n > 0).ok_or_else(empty)?;
        let scaling = scaling.unwrap_or_else(|| outline.default_scaling());
        let mut words = vec![];
        let mut facts = vec![];
        for (column, seen) in outline.columns.iter_mut().zip(seen) {
            let is_word = seen.words.are_words();
            let (kind, positions) = seen.words.finish();
            if is_word {
                column.kind = kind;
            }
            let positions = positions.filter(|_| is_word);
            facts.push(Facts::new(&column.kind, seen.moments, seen.missing, &seen.counts, positions.as_deref()));
            words.push(positions);
        }
        (0..facts.len()).try_for_each(|j| check_levels(&outline, j, n))?;
        let target = target.map(|target| target.meaning(&outline, rows, task)).transpose()?;
        let schema = Learnt::schema(&outline, &facts, target.as_ref(), (missing, scaling), n)?;
        let class_counts = target.as_ref().map_or_else(Vec::new, |target| target.counts.clone());
        let dataset = |kept: Kept| kept.dataset(&outline, &words, target.as_ref(), &schema);
        let (kept_rows, held_rows) = (sample.rows.clone(), held.rows.len());
        let sample = (kept_rows, dataset(sample)?);
        let held_out = if held_rows > 0 { Some(dataset(held)?) } else { None };
        let mean = Learnt::mean(&schema, &facts, n);
        let tabular = outline.is_tabular();
        Ok(Learnt { schema, n, unlabelled, tabular, mean, class_counts, sample, held_out })
    }
}

/// The whole number that `value` is, if it is one; above 2^53, neighbouring whole numbers have the same f64.
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
}

impl Kept {
    fn push(&mut self, row: usize, x: ArrayView1<f64>, y: Option<f64>) {
        self.rows.push(row);
        self.values.extend(x);
        self.target.extend(y);
    }

    /// The features of the rows; `words` says what position the order of a word's first appearance is.
    fn dataset(
        self,
        outline: &Table,
        words: &[Option<Vec<f64>>],
        target: Option<&Meaning>,
        schema: &Schema,
    ) -> Result<Dataset> {
        let mut x = Array2::from_shape_vec((self.rows.len(), words.len()), self.values).expect("whole rows");
        for (mut column, positions) in x.columns_mut().into_iter().zip(words) {
            let Some(positions) = positions else { continue };
            column.iter_mut().filter(|v| !v.is_nan()).for_each(|v| *v = positions[*v as usize]);
        }
        let target = target.map(|target| TableTarget {
            name: target.name.clone(),
            position: target.position,
            values: target.of(self.target),
        });
        let columns = outline.columns.clone();
        schema.encode(Table { x: x.into(), target, columns, ..outline.without_rows() }).map(|(data, _)| data)
    }
}

/// What a schema needs to know of a column.
struct Facts {
    /// Of its numbers.
    moments: Moments,
    missing: u64,
    /// Rows of each level.
    levels: Vec<u64>,
}

impl Facts {
    /// `counts` are the rows of each word by the order of its first appearance, `positions` what the word stands for.
    fn new(kind: &Kind, moments: Moments, missing: u64, counts: &[u64], positions: Option<&[f64]>) -> Facts {
        let places = positions.unwrap_or_default();
        let mut facts = Facts { moments, missing, levels: vec![0; counts.len()] };
        match kind {
            Kind::Category(_) => places.iter().zip(counts).for_each(|(&at, count)| facts.levels[at as usize] = *count),
            // Words that are true or false count as one and zero.
            _ if positions.is_some() => {
                let count: u64 = counts.iter().sum();
                let ones: f64 = places.iter().zip(counts).map(|(value, &count)| value * count as f64).sum();
                facts.moments = Moments { count, mean: ones / count as f64, ..Moments::NONE };
            }
            _ => {}
        }
        facts
    }

    /// Rows with a value.
    fn present(&self) -> u64 {
        self.moments.count + self.levels.iter().sum::<u64>()
    }
}

impl Learnt {
    /// The schema of `n` rows, as [`Schema::fit`] makes it of a table that is in memory.
    fn schema(
        outline: &Table,
        facts: &[Facts],
        target: Option<&Meaning>,
        (missing, scaling): (Missing, Scaling),
        n: usize,
    ) -> Result<Schema> {
        let imputes = missing == Missing::Impute;
        let is_category = |column: &Column| matches!(column.kind, Kind::Category(_));
        for (column, facts) in outline.columns.iter().zip(facts).filter(|_| imputes) {
            fail_if!(facts.present() == 0; outline.fail(format!(
                "column {}, `{}`, has no values; leave the column out", column.position + 1, column.name
            )));
        }
        let fill = |(column, facts): (&Column, &Facts)| (imputes && !is_category(column)).then_some(facts.moments.mean);
        let mut schema = Schema {
            columns: outline.columns.clone(),
            named: outline.named,
            target: target.map(Meaning::in_schema),
            missing,
            scaling,
            fill: outline.columns.iter().zip(facts).map(fill).collect(),
            indicator: facts.iter().map(|facts| imputes && facts.missing > 0).collect(),
            scaler: None,
        };
        if scaling != Scaling::None {
            let of_column = |j: usize| {
                let scaled = matches!(schema.columns[j].kind, Kind::Number | Kind::Date);
                let own = facts[j].moments.filled(n as u64).scaling(scaling);
                let first = if scaled { own } else { (0.0, 1.0) };
                std::iter::once(first).chain(std::iter::repeat_n((0.0, 1.0), schema.width(j) - 1))
            };
            let scaler = Scaler::of_columns((0..facts.len()).flat_map(of_column));
            schema.scaler = Some(scaler.map_err(|e| outline.fail(e.to_string()))?);
        }
        Ok(schema)
    }

    /// The mean of each feature over `n` rows `[d]`.
    fn mean(schema: &Schema, facts: &[Facts], n: usize) -> Vec<f64> {
        let mut mean = vec![];
        for (j, facts) in facts.iter().enumerate() {
            match schema.columns[j].kind {
                Kind::Category(_) => mean.extend(facts.levels.iter().map(|&count| count as f64 / n as f64)),
                _ => mean.push(facts.moments.mean),
            }
            mean.extend(schema.indicator[j].then_some(facts.missing as f64 / n as f64));
        }
        if let Some(Scaler { shift, scale }) = &schema.scaler {
            mean.iter_mut().zip(shift).zip(scale).for_each(|((m, shift), scale)| *m = (*m - shift) * scale);
        }
        mean
    }
}

/// What the target of a file is.
struct Meaning {
    name: String,
    position: Option<usize>,
    values: Values,
    /// Rows to fit of each class.
    counts: Vec<u64>,
}

enum Values {
    /// As they are read.
    Numbers,
    /// Words that are numbers, by the order of their first appearance.
    Named(Vec<f64>),
    /// Whole numbers that are classes, in increasing order.
    Whole(Vec<i64>),
    /// Words that are classes: their names, and the position there of each by the order of its first appearance.
    Words(Vec<String>, Vec<f64>),
}

impl SeenTarget {
    /// As [`Table::with_task`], of `rows` rows.
    fn meaning(self, outline: &Table, rows: usize, task: Option<Task>) -> Result<Meaning> {
        let SeenTarget { name, position, words, counts: by_order, whole, other } = self;
        let (mut counts, classify) = (vec![], task == Some(Task::Classification));
        let values = if words.are_words() {
            let Target::Classes { labels, names } = words.into_target((0..by_order.len()).map(|i| i as f64).collect())
            else {
                unreachable!("words are classes")
            };
            let numbers: Option<Vec<f64>> = labels.iter().map(|&at| names[at].parse().ok()).collect();
            match (task, numbers) {
                (Some(Task::Regression), Some(numbers)) => Values::Named(numbers),
                (Some(Task::Regression), None) => return Err(outline.fail(no_numbers(&name, &names))),
                _ => {
                    counts = vec![0; names.len()];
                    labels.iter().zip(&by_order).for_each(|(&at, count)| counts[at] = *count);
                    Values::Words(names, labels.into_iter().map(|at| at as f64).collect())
                }
            }
        } else {
            if let (true, Some((row, value))) = (classify, other) {
                // The words of the in-memory reader, and of the row in the file.
                let refused = Target::Values(vec![value]).as_classes().err();
                let what = refused.map_or_else(
                    || {
                        format!(
                            "holds more than {MOST_NUMBERS} different whole numbers in its target: too many for classes"
                        )
                    },
                    |e| e.to_string().replace("row 1 ", &format!("row {} ", row + 1)),
                );
                return Err(outline.fail(what));
            }
            match classify || task.is_none() && other.is_none() && few_classes(whole.len(), rows) {
                false => Values::Numbers,
                true => {
                    counts = whole.values().copied().collect();
                    Values::Whole(whole.into_keys().collect())
                }
            }
        };
        Ok(Meaning { name, position, values, counts })
    }
}

/// The message that words cannot be regressed on.
pub(super) fn no_numbers(name: &str, names: &[String]) -> String {
    let first = names.first().map_or("", String::as_str);
    format!("the target `{name}` holds words, such as `{first}`, which are no numbers to regress on")
}

impl Meaning {
    fn in_schema(&self) -> SchemaTarget {
        let classes = match &self.values {
            Values::Numbers | Values::Named(_) => None,
            Values::Whole(classes) => Some(classes.iter().map(i64::to_string).collect()),
            Values::Words(names, _) => Some(names.clone()),
        };
        SchemaTarget { name: self.name.clone(), position: self.position, classes }
    }

    /// The target of rows that were kept.
    fn of(&self, values: Vec<f64>) -> Target {
        match &self.values {
            Values::Numbers => Target::Values(values),
            Values::Named(numbers) => Target::Values(values.iter().map(|&order| numbers[order as usize]).collect()),
            Values::Whole(classes) => {
                let label = |v: &f64| classes.binary_search(&(*v as i64)).expect("every class was seen");
                let labels = values.iter().map(label).collect();
                Target::Classes { labels, names: classes.iter().map(i64::to_string).collect() }
            }
            Values::Words(names, positions) => {
                let labels = values.iter().map(|&order| positions[order as usize] as usize).collect();
                Target::Classes { labels, names: names.clone() }
            }
        }
    }
}
