//! Files that do not fit into memory as a whole: how they are opened, and what is said of them.

use super::{Beside, Reader, SHOWN, Source};
use crate::program::context::Context;
use crate::program::usage::with_options;
use crate::text::{count, grouped};
use mercer::data::{BlockDataset, BlockOptions, Scaling, Schema, TableBlocks, Task, is_array_file};
use mercer::error::human_bytes;
use mercer::operator::memory::resident_memory;
use mercer::{Error, Result, fail_if};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The file, where it can be read in blocks and is too large for memory, together with the bytes that the work on it takes `beside` it. One that cannot be
/// opened is an error where it is too large, and else for the usual reader to judge.
fn large(
    source: &str,
    context: &Context,
    open: impl FnOnce() -> Result<TableBlocks>,
    beside: impl FnOnce(&TableBlocks) -> u64,
) -> Result<Option<TableBlocks>> {
    if !TableBlocks::can_open(source) {
        return Ok(None);
    }
    let bytes = fs::metadata(source).map_or(0, |file| file.len());
    match open() {
        Ok(blocks) => {
            let whole = blocks.memory().saturating_add(beside(&blocks));
            Ok(Some(blocks).filter(|_| !context.budget.allows(whole)))
        }
        Err(error) if !context.budget.allows(bytes) => Err(error),
        Err(_) => Ok(None),
    }
}

impl Source {
    /// A file with the columns of a schema, where it is too large for memory.
    pub fn large_like(&self, source: &str, schema: &Schema, context: &Context) -> Result<Option<TableBlocks>> {
        large(source, context, || TableBlocks::open_like(source, &self.options(context), schema), |_| 0)
    }
}

impl Reader {
    /// A file, where it is too large for memory together with what the work on it takes `beside` it, or where several ranks read it.
    pub fn large(
        &self,
        source: &str,
        beside: impl FnOnce(&TableBlocks) -> u64,
        context: &Context,
    ) -> Result<Option<TableBlocks>> {
        let open = || TableBlocks::open(source, &self.table_options(context));
        if context.group.is_single() {
            return large(source, context, open, beside);
        }
        let path = Path::new(source);
        fail_if!(path.extension().is_some() && !path.exists(); Error::io(path, ErrorKind::NotFound.into()));
        fail_if!(
            !TableBlocks::can_open(source),
            "each of several ranks reads a part of the rows, of an .npy or a .parquet file, and `{source}` is none of these"
        );
        open().map(Some)
    }

    /// All rows of a second file with the columns of a schema, where it is too large for memory.
    pub fn large_beside(&self, beside: Beside, schema: &Schema, context: &Context) -> Result<Option<TableBlocks>> {
        self.source.beside(beside.target).large_like(beside.source, schema, context)
    }

    /// The first pass over a file: its schema, `held_out` rows and those that `keep` names. Says what its columns were taken for.
    pub fn first_pass(
        &self,
        blocks: TableBlocks,
        (scaling, task, held_out): (Option<Scaling>, Option<Task>, usize),
        keep: &dyn Fn(usize) -> Vec<usize>,
        context: &Context,
    ) -> Result<BlockDataset> {
        let options = BlockOptions { missing: self.missing, scaling, task, held_out, seed: context.seed };
        let bar = context.bar();
        let data = BlockDataset::fit(blocks, &options, keep, context.group, &bar)?;
        drop(bar);
        if data.unlabelled() > 0 {
            context.warn(format_args!("{} without a target left out", count(data.unlabelled(), "row")));
        }
        self.say_columns(data.schema(), data.is_tabular(), context);
        data.warnings().iter().for_each(|warning| context.warn(with_options(warning)));
        Ok(data)
    }

    /// Columns of features, as far as they are known before the first pass.
    pub fn features_of(&self, blocks: &TableBlocks) -> usize {
        let is_column = self.source.target.as_ref().is_some_and(|target| !is_array_file(target));
        (blocks.columns() - usize::from(is_column)).max(1)
    }
}

/// Says that a file is read in blocks: how often, and the most memory that is expected, `needed` bytes beside what the program has now.
/// Returns the expected memory.
pub fn announce(
    source: &str,
    blocks: &TableBlocks,
    (passes, why): (Option<usize>, &str),
    needed: u64,
    context: &Context,
) -> u64 {
    /// What the program reads of itself on the way.
    const CODE: u64 = 5 << 19;
    let expected = needed.saturating_add(resident_memory() + CODE);
    if !context.group.is_single() {
        let each = grouped(blocks.n().div_ceil(context.group.size()));
        context.note(format_args!(
            "{source}: {} rows on {} ranks, {each} on each, with an estimated peak memory of {} a rank",
            grouped(blocks.n()),
            context.group.size(),
            human_bytes(expected)
        ));
        return expected;
    }
    let (rows, budget) = (blocks.memory(), context.budget.bytes());
    let (what, whole) =
        if rows > budget { ("rows take", rows) } else { ("rows and the fit take", rows.saturating_add(needed)) };
    let [whole, budget, memory] = [whole, budget, expected].map(human_bytes);
    let times = match passes {
        None => format!("many times ({why})"),
        Some(1) => "once".into(),
        Some(passes) => format!("{passes} times ({why})"),
    };
    context.note(format_args!(
        "{source}: {} {what} {whole}, more than the memory budget of {budget}; they are read in blocks, {times}, with an estimated \
         peak memory of {memory}",
        grouped(blocks.n())
    ));
    expected
}

/// As [`announce`], for a fit: an error where it needs too much.
pub fn announce_fit(
    source: &str,
    blocks: &TableBlocks,
    passes: (Option<usize>, &str),
    needed: u64,
    context: &Context,
) -> Result<u64> {
    let expected = announce(source, blocks, passes, needed, context);
    context.budget.require("the fit in blocks of rows".to_string(), expected, "use fewer features")?;
    Ok(expected)
}

/// Bytes that a model takes at a block of rows, as far as its file tells: no more features than a row of it has numbers, and no more than
/// the tiles of kernel values take.
pub fn model_memory(model: &Path, blocks: &TableBlocks) -> u64 {
    const MOST: u64 = 100 << 20;
    let numbers = fs::metadata(model).map_or(0, |file| file.len()) / 8;
    let features = 2 * numbers / blocks.columns().max(1) as u64;
    (8 * TableBlocks::BLOCK as u64).saturating_mul(features).min(MOST)
}

/// Names the columns of a file that a model does not need.
pub fn say_ignored(name: &str, ignored: &[String], context: &Context) {
    if ignored.is_empty() {
        return;
    }
    let (columns, more) = (ignored.len(), if ignored.len() > SHOWN { ", …" } else { "" });
    let names = ignored.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    context.note(format_args!(
        "{name}: {} ignored, for the model was fitted without {}: {names}{more}",
        count(columns, "column"),
        if columns == 1 { "it" } else { "them" }
    ));
}

/// The error that predictions or functions of many rows need a file.
pub fn needs_out(n: usize) -> Error {
    Error::input(format!(
        "the results for {} rows are written as they are made; name a file for them by --out",
        grouped(n)
    ))
}
