//! A data set that stays in its file: its schema, a sample of its rows, and passes over all of them.

use super::blocks::TableBlocks;
use super::dataset::{Dataset, Target};
use super::first_pass::{FirstPass, Learnt, refuse_unlabelled};
use super::matrix::Matrix;
use super::moment_tree::LEAF;
use super::scale::Scaling;
use super::schema::{Missing, Schema};
use super::table::Task;
use crate::rng::Rng;
use crate::{Error, Group, Progress, Result, fail_if};
use ndarray::ArrayView1;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How the rows of a file become a [`BlockDataset`]. Example: [`BlockDataset`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockOptions {
    /// What is done with missing values.
    pub missing: Missing,
    /// The scaling of numbers and dates; with `None`, that which suits the source.
    pub scaling: Option<Scaling>,
    /// Whether the target is numbers or classes; with `None`, by what it holds.
    pub task: Option<Task>,
    /// Rows that are held out, drawn at random; they are kept in memory.
    pub held_out: usize,
    /// Seed of the rows that are held out.
    pub seed: u64,
}

/// A data set larger than memory, in an `.npy` or `.parquet` file. One pass over the file finds its schema, with the same results as
/// [`Schema::fit`] up to rounding, and keeps some rows in memory; others go over all of it, a few thousand rows at a time.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use mercer::apply::{FeatureMap, FeatureRidge, Predict};
/// use mercer::data::{BlockDataset, BlockOptions, ReadOptions, TableBlocks, write_npy};
/// use mercer::{FitContext, Group, Silent};
/// let file = folder.path().join("xy.npy");
/// write_npy(&file, ndarray::Array2::from_shape_fn((9000, 2), |(i, j)| (i + 7 * j) as f32).view())?;
/// let options = ReadOptions { target: Some("2".into()), ..Default::default() };
/// let blocks = TableBlocks::open(file.to_str().unwrap(), &options)?;
/// let ridge = FeatureRidge::new(FeatureMap::Linear { scale: 1.0 });
/// let data = BlockDataset::fit(blocks, &BlockOptions::default(), &|n| FeatureRidge::rows_in_memory(n, 0, 0), Group::SINGLE, &Silent)?;
/// let fitted = ridge.fit_blocks(&data, &FitContext::default())?;
/// let (x, _) = data.schema().encode(mercer::data::Table::open(file.to_str().unwrap(), &options)?)?;
/// assert!((fitted.scores(x.x.to_f64().view())?[[100, 0]] - 107.0).abs() < 1e-3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockDataset {
    blocks: TableBlocks,
    learnt: Learnt,
    /// Rows that are held out, ascending.
    held_out_rows: Vec<usize>,
    /// The number of rows that those in memory were drawn of.
    drawn_of: usize,
    passes: AtomicUsize,
}

impl BlockDataset {
    /// The first pass over a file, in which each rank of `group` reads its own rows, and all learn what one process would, to the bit. `keep` says which of n rows
    /// to fit are kept in memory beside those that are held out. Collective.
    pub fn fit(
        blocks: TableBlocks,
        options: &BlockOptions,
        keep: &dyn Fn(usize) -> Vec<usize>,
        group: Group<'_>,
        progress: &dyn Progress,
    ) -> Result<BlockDataset> {
        let (n, held_out) = (blocks.n(), options.held_out);
        fail_if!(held_out >= n, "{held_out} of {n} rows are to be held out; leave some to fit");
        let mut held_out_rows = Rng::new(options.seed).sample(n, held_out);
        held_out_rows.sort_unstable();
        let mut wanted = keep(n - held_out);
        wanted.sort_unstable();
        wanted.dedup();
        blocks.check_same(group)?;
        // Whole leaves of rows.
        let leaves = group.share(n.div_ceil(LEAF));
        let part = leaves.start * LEAF..n.min(leaves.end * LEAF);
        let mut first = FirstPass::new(&blocks, options.missing, &held_out_rows, &wanted, part.start);
        let passed = blocks.pass(None, part.clone(), &mut |table| {
            first.add(&table)?;
            progress.step("first pass: columns", first.rows - part.start, part.len(), "");
            Ok(true)
        });
        // A rank without rows learns the columns from the first.
        let begun = |_| match leaves.is_empty() {
            true => blocks.pass(None, 0..1, &mut |table| {
                first.begin(&table);
                Ok(true)
            }),
            false => Ok(()),
        };
        group.all_succeed(passed.and_then(begun))?;
        let learnt = first.over(group)?.finish(options.scaling, options.task)?;
        Ok(BlockDataset { blocks, learnt, held_out_rows, drawn_of: n - held_out, passes: AtomicUsize::new(1) })
    }

    /// Rows to fit.
    pub fn n(&self) -> usize {
        self.learnt.n
    }

    /// The number of rows that those in memory were drawn of: more than [`Self::n`] where rows without a target were left out.
    pub fn drawn_of(&self) -> usize {
        self.drawn_of
    }

    /// Number of features.
    pub fn d(&self) -> usize {
        self.learnt.mean.len()
    }

    /// How rows become features.
    pub fn schema(&self) -> &Schema {
        &self.learnt.schema
    }

    /// Whether it is a table, whose columns have units of their own; else images.
    #[doc(hidden)]
    pub fn is_tabular(&self) -> bool {
        self.learnt.tabular
    }

    /// Warnings about columns that look like numbers of the rows, by the rows in memory, as [`Table::warnings`](super::Table::warnings).
    pub fn warnings(&self) -> &[String] {
        &self.learnt.warnings
    }

    /// Rows that were left out because their target is missing.
    pub fn unlabelled(&self) -> usize {
        self.learnt.unlabelled
    }

    /// The mean of each feature `[d]`.
    pub fn mean(&self) -> ArrayView1<'_, f64> {
        ArrayView1::from(&self.learnt.mean)
    }

    /// The rows that are held out, where there are some.
    pub fn held_out(&self) -> Option<&Dataset> {
        self.learnt.held_out.as_ref()
    }

    /// The file.
    pub(crate) fn blocks(&self) -> &TableBlocks {
        &self.blocks
    }

    /// Rows to fit of each class; none where the target is numbers.
    pub(crate) fn class_counts(&self) -> &[u64] {
        &self.learnt.class_counts
    }

    /// The rows to fit that are in memory, ascending, and what they hold.
    pub fn sample(&self) -> (&[usize], &Dataset) {
        (&self.learnt.sample.0, &self.learnt.sample.1)
    }

    /// Some rows that are in memory, in the given order, each by its number among the rows to fit; those that are not are left out. Also
    /// the numbers of those that are there.
    pub fn rows(&self, rows: &[usize]) -> (Vec<usize>, Dataset) {
        let (kept, data) = self.sample();
        let found = rows.iter().filter_map(|row| kept.binary_search(row).ok().map(|at| (*row, at)));
        let (rows, places): (Vec<usize>, Vec<usize>) = found.unzip();
        (rows, data.select(&places))
    }

    /// How often the rows were read so far, the first pass included.
    pub fn passes(&self) -> usize {
        self.passes.load(Ordering::Relaxed)
    }

    /// Hands the rows to fit that belong to this rank of `group` to `each`, block by block and in their order, until it returns false;
    /// progress is that of `what`. Returns how many rows there were on all ranks.
    pub fn pass(
        &self,
        what: &str,
        group: Group<'_>,
        progress: &dyn Progress,
        each: &mut dyn FnMut(Dataset) -> Result<bool>,
    ) -> Result<usize> {
        refuse_unlabelled(group, self.unlabelled())?;
        self.passes.fetch_add(1, Ordering::Relaxed);
        let part = group.share(self.blocks.n());
        let (mut read, mut fitted, n) = (part.start, 0, if group.is_single() { self.n() } else { part.len() });
        self.blocks.encoded_part(self.schema(), part, &mut |block, _| {
            let first = read;
            read += block.n();
            let block = self.without_held_out(block, first);
            if block.n() == 0 {
                return Ok(true);
            }
            fitted += block.n();
            let goes_on = each(self.with_known_target(block)?)?;
            progress.step(what, fitted, n, "");
            Ok(goes_on)
        })?;
        let mut all = [fitted as f64];
        group.sum(&mut all)?;
        Ok(all[0] as usize)
    }

    /// The features of the rows to fit that belong to this rank of `group`, in the type in which they are stored. Collective.
    pub fn own_rows(&self, group: Group<'_>, progress: &dyn Progress) -> Result<Matrix> {
        self.collected(group, progress).map(|(own, _)| own)
    }

    /// The same, with the targets of the rows to fit of all ranks, where there are some. Collective.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// use mercer::data::{BlockDataset, BlockOptions, ReadOptions, TableBlocks, write_npy};
    /// use mercer::{Silent, group::on_threads};
    /// let file = folder.path().join("xy.npy");
    /// write_npy(&file, ndarray::Array2::from_shape_fn((10, 2), |(i, j)| (i + 7 * j) as f32).view())?;
    /// let options = ReadOptions { target: Some("2".into()), ..Default::default() };
    /// for rank in on_threads(2, |group| {
    ///     let blocks = TableBlocks::open(file.to_str().unwrap(), &options)?;
    ///     let data = BlockDataset::fit(blocks, &BlockOptions::default(), &|_| vec![], group, &Silent)?;
    ///     data.own_examples(group, &Silent)
    /// }) {
    ///     let (own, y) = rank?;
    ///     assert_eq!((own.n(), y.unwrap().len()), (5, 10));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn own_examples(&self, group: Group<'_>, progress: &dyn Progress) -> Result<(Matrix, Option<Target>)> {
        let (own, y) = self.collected(group, progress)?;
        let Some(target) = &self.schema().target else { return Ok((own, None)) };
        let y = group.concatenated(&y)?;
        let y = match &target.classes {
            None => Target::Values(y),
            Some(names) => {
                Target::Classes { labels: y.into_iter().map(|label| label as usize).collect(), names: names.clone() }
            }
        };
        Ok((own, Some(y)))
    }

    /// The features of the rows to fit of this rank, and their targets as numbers.
    fn collected(&self, group: Group<'_>, progress: &dyn Progress) -> Result<(Matrix, Vec<f64>)> {
        let (mut own, mut y, rows) = (None, vec![], group.share(self.blocks.n()).len());
        self.pass("points of this rank", group, progress, &mut |block| {
            y.extend(block.y.iter().flat_map(Target::values));
            match &mut own {
                None => own = Some(block.x.with_room(rows)),
                Some(own) => own.append(block.x),
            }
            Ok(true)
        })?;
        Ok((own.unwrap_or_else(|| self.sample().1.x.select(&[])), y))
    }

    /// The rows of a block, of which `first` is the first, that are to be fitted.
    fn without_held_out(&self, block: Dataset, first: usize) -> Dataset {
        let held = &self.held_out_rows;
        let start = held.partition_point(|&row| row < first);
        if held.get(start).is_none_or(|&row| row >= first + block.n()) {
            return block;
        }
        let fitted: Vec<usize> =
            (0..block.n()).filter(|i| held[start..].binary_search(&(first + i)).is_err()).collect();
        block.select(&fitted)
    }

    /// The rows of a block with the classes of the whole file, or with words that are numbers as numbers.
    fn with_known_target(&self, block: Dataset) -> Result<Dataset> {
        let changed = || Error::file(self.blocks.path(), "was changed while it was read; let no program change it");
        let Some(y) = &block.y else { return Ok(block) };
        let classes = self.schema().target.as_ref().and_then(|target| target.classes.as_deref());
        let y = match (classes, y) {
            (None, Target::Values(_)) => return Ok(block),
            (None, Target::Classes { labels, names }) => {
                let numbers = names.iter().map(|name| name.parse().ok()).collect::<Option<Vec<f64>>>();
                let numbers = numbers.ok_or_else(changed)?;
                Target::Values(labels.iter().map(|&label| numbers[label]).collect())
            }
            (Some(classes), y) => y.among(classes).ok_or_else(changed)?,
        };
        Ok(Dataset { y: Some(y), ..block })
    }
}

impl Target {
    /// The same classes by their position among `names`; none where one is not among them.
    fn among(&self, names: &[String]) -> Option<Target> {
        let Ok(Target::Classes { labels, names: own }) = self.as_classes() else { return None };
        let place = |name: &String| names.iter().position(|known| known == name);
        let places: Vec<usize> = own.iter().map(place).collect::<Option<_>>()?;
        Some(Target::Classes { labels: labels.iter().map(|&l| places[l]).collect(), names: names.to_vec() })
    }
}
