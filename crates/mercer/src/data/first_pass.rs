//! What a first pass over the blocks of a table learns: means and spreads, levels, classes, and some rows.

mod meaning;
mod shared;

pub(super) use meaning::no_numbers;
pub(super) use shared::refuse_unlabelled;

use std::collections::BTreeMap;

use ndarray::{Array2, ArrayView1, ArrayView2};

use self::meaning::Meaning;
use super::blocks::TableBlocks;
use super::cells::Cells;
use super::dataset::{Dataset, Target};
use super::identifiers::identifiers;
use super::moment_tree::{LEAF, MomentTree, Node};
use super::scale::{Moments, Scaler, Scaling};
use super::schema::{MOST_LEVELS, Missing, Schema, check_classes, check_levels};
use super::table::{Column, Kind, Table, TableTarget, Task};
use crate::{Error, Result, fail_if};

/// What is known of a column so far, over the rows to fit; of its words over all rows.
struct Seen {
    /// Of numbers that are there.
    moments: MomentTree,
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
    /// Rows of the file so far, rows to fit so far, and rows that were left out for lack of a target.
    pub rows: usize,
    trained: usize,
    unlabelled: usize,
    /// Leaves of rows so far.
    leaves: u64,
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
    /// About columns that look like numbers of the rows.
    pub warnings: Vec<String>,
    /// The mean of each feature over the rows to fit `[d]`.
    pub mean: Vec<f64>,
    /// Rows to fit of each class.
    pub class_counts: Vec<u64>,
    /// The wanted rows, and their features.
    pub sample: (Vec<usize>, Dataset),
    pub held_out: Option<Dataset>,
}

impl<'a> FirstPass<'a> {
    /// A pass that begins at the row `start`, the first of a leaf.
    pub fn new(
        blocks: &'a TableBlocks,
        missing: Missing,
        held_out: &'a [usize],
        wanted: &'a [usize],
        start: usize,
    ) -> Self {
        let (outline, columns, target) = (None, vec![], None);
        let (rows, trained) = (start, start - held_out.partition_point(|&row| row < start));
        let (unlabelled, leaves, sample, held) = (0, (start / LEAF) as u64, Kept::default(), Kept::default());
        let wanted = &wanted[wanted.partition_point(|&row| row < trained)..];
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
            leaves,
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
        self.measure(x.view(), &fitted);
        (self.rows, self.trained) = (first + n, self.trained + fitted.len());
        Ok(())
    }

    /// Learns the columns of a table of some rows; they are not counted.
    pub fn begin(&mut self, table: &Table) {
        let words = |column: &Column| match column.kind {
            Kind::Category(_) if self.blocks.is_category(column.position) => Cells::words(),
            _ => Cells::default(),
        };
        let seen = |column| Seen { moments: MomentTree::default(), missing: 0, words: words(column), counts: vec![] };
        self.columns = table.columns.iter().map(seen).collect();
        self.target = table.target.as_ref().map(|target| SeenTarget {
            name: target.name.clone(),
            position: target.position,
            words: Cells::default(),
            counts: vec![],
            whole: BTreeMap::new(),
            other: None,
        });
        let first = self.blocks.first_row();
        self.outline = Some(Table { columns: table.columns.clone(), first, ..table.without_rows() });
    }

    /// The numbers of a block `[b, columns]`, in which a word is the order of its first appearance in the file.
    fn numbered(&mut self, table: &Table) -> Result<Array2<f64>> {
        let mut x = table.x.to_f64().into_owned();
        for (j, (column, seen)) in table.columns.iter().zip(&mut self.columns).enumerate() {
            let Kind::Category(levels) = &column.kind else { continue };
            let orders: Vec<f64> = levels.iter().map(|level| seen.words.word(level)).collect();
            let count = seen.words.word_count();
            fail_if!(count > MOST_LEVELS; table.fail(format!(
                "column {} (counted from 1), `{}`, holds more than {MOST_LEVELS} different words, such as `{}`: too many for a \
                 category; {leave_out}",
                column.position + 1, column.name, levels[0], leave_out = crate::advice!(LeaveOut))));
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
                let orders: Vec<f64> = names.iter().map(|name| seen.words.word(name)).collect();
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

    /// Adds the rows `fitted` of a block `x` `[b, columns]`, which begins with a leaf of its own, to the moments and the counts of words.
    fn measure(&mut self, x: ArrayView2<f64>, fitted: &[usize]) {
        for leaf in 0..x.nrows().div_ceil(LEAF) {
            let at = |row: usize| fitted.partition_point(|&i| i < row);
            let rows = &fitted[at(leaf * LEAF)..at((leaf + 1) * LEAF)];
            for (column, seen) in x.columns().into_iter().zip(&mut self.columns) {
                let there: Vec<f64> = rows.iter().map(|&i| column[i]).filter(|v| !v.is_nan()).collect();
                seen.missing += (rows.len() - there.len()) as u64;
                let is_word = seen.words.are_words();
                if is_word {
                    there.iter().for_each(|&order| seen.counts[order as usize] += 1);
                }
                let moments = if is_word { Moments::NONE } else { Moments::of(ArrayView1::from(&there)) };
                seen.moments.push(Node { level: 0, place: self.leaves, moments });
            }
            self.leaves += 1;
        }
    }

    /// What the whole file has taught, with its target as numbers or classes by `task`, or by what it holds.
    pub fn finish(self, scaling: Option<Scaling>, task: Option<Task>) -> Result<Learnt> {
        let FirstPass { missing, columns: seen, target, rows, trained: n, unlabelled, sample, held, .. } = self;
        let empty = || Error::file(self.blocks.path(), "has no row with a target");
        let mut outline = self.outline.filter(|_| n > 0).ok_or_else(empty)?;
        let scaling = scaling.unwrap_or_else(|| outline.default_scaling());
        let mut words = vec![];
        let (mut facts, mut present) = (vec![], vec![]);
        for (column, seen) in outline.columns.iter_mut().zip(seen) {
            let is_word = seen.words.are_words();
            let (kind, positions) = seen.words.finish();
            if is_word {
                column.kind = kind;
            }
            let positions = positions.filter(|_| is_word);
            present.push(seen.counts.iter().filter(|count| **count > 0).count());
            facts.push(Facts::new(
                &column.kind,
                seen.moments.total(),
                seen.missing,
                &seen.counts,
                positions.as_deref(),
            ));
            words.push(positions);
        }
        (0..facts.len()).try_for_each(|j| check_levels(&outline, j, [present[j], n]))?;
        let d = outline.columns.len();
        let warnings = identifiers(&outline, [sample.rows.len(), n], |i, j| sample.values[i * d + j]);
        let target = target.map(|target| target.meaning(&outline, rows, task)).transpose()?;
        if let Some(classes) = target.as_ref().and_then(|target| target.in_schema().classes) {
            let name = target.as_ref().map_or("", |target| &target.name);
            check_classes(&outline, name, &classes, rows)?;
        }
        let schema = Learnt::schema(&outline, &facts, target.as_ref(), (missing, scaling), n)?;
        let class_counts = target.as_ref().map_or_else(Vec::new, |target| target.counts.clone());
        let dataset = |kept: Kept| kept.dataset(&outline, &words, target.as_ref(), &schema);
        let (kept_rows, held_rows) = (sample.rows.clone(), held.rows.len());
        let sample = (kept_rows, dataset(sample)?);
        let held_out = if held_rows > 0 { Some(dataset(held)?) } else { None };
        let mean = Learnt::mean(&schema, &facts, n);
        let tabular = outline.is_tabular();
        let warnings = if tabular { warnings } else { vec![] };
        Ok(Learnt { schema, n, unlabelled, tabular, warnings, mean, class_counts, sample, held_out })
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
                "column {}, `{}`, has no values; {leave_out}", column.position + 1, column.name, leave_out = crate::advice!(LeaveOut))));
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
