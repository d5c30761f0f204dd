//! Predictions for files that do not fit into memory: a block of rows at a time, written as they are made.

use super::predict::Predictions;
use crate::options::input::{say_ignored, warn_of_other_kind, warn_unscored};
use crate::program::context::Context;
use crate::program::output::{Output, class_numbers};
use crate::show::score::{RunningScore, Score};
use mercer::data::{Dataset, Schema, TableBlocks, Target, write_npy_rows};
use mercer::{Error, Progress, Result};

/// The rows to predict.
pub struct Rows<'a> {
    pub blocks: &'a TableBlocks,
    pub schema: &'a Schema,
    /// What is called in messages.
    pub name: &'a str,
}

/// The score of the rows that have a target, and how many these are.
#[derive(Default)]
pub struct Scored {
    pub score: Option<Score>,
    pub rows: usize,
}

/// Notes on the rows that are shown at most.
const MOST_NOTES: usize = 5;

impl Rows<'_> {
    /// Hands predictions of all rows to `take`, block by block; the score of those that have a target.
    fn pass(
        &self,
        predict: &dyn Fn(&Dataset) -> Result<Predictions>,
        context: &Context,
        take: &mut dyn FnMut(&Predictions) -> Result<()>,
    ) -> Result<Scored> {
        let (bar, n) = (context.bar(), self.blocks.n());
        let (mut score, mut done, mut notes) = (RunningScore::default(), 0, 0);
        self.blocks.encoded(self.schema, &mut |block, said| {
            said.iter().take(MOST_NOTES.saturating_sub(notes)).for_each(|note| context.warn(note));
            notes += said.len();
            let predictions = predict(&block).map_err(|e| at_rows(e, self.name, done, block.n()))?;
            let p = predictions.probabilities.as_ref().map(|p| p.view());
            score.add(&block, &predictions.values, p);
            take(&predictions)?;
            done += block.n();
            bar.step("predictions", done, n, "");
            Ok(true)
        })?;
        drop(bar);
        if notes > MOST_NOTES {
            context.warn(format_args!("{} such notes on {} are not shown", notes - MOST_NOTES, self.name));
        }
        let left_out = score.left_out;
        if score.unknown {
            let classes = self.schema.target.as_ref().is_some_and(|target| target.classes.is_some());
            warn_of_other_kind(self.name, classes, context);
        }
        let score = score.finish();
        if score.is_some() && left_out > 0 {
            warn_unscored(self.name, left_out, context);
        }
        Ok(Scored { score, rows: n - left_out })
    }

    /// Writes the predictions of all rows where there is a file for them; a `.csv` has everything that is known. Returns the score of
    /// those that have a target.
    pub fn predict(
        &self,
        predict: &dyn Fn(&Dataset) -> Result<Predictions>,
        out: Option<&Output>,
        context: &Context,
    ) -> Result<Scored> {
        say_ignored(self.name, self.blocks.ignored(), context);
        let mut scored = Scored::default();
        let mut pass = |take: &mut dyn FnMut(&Predictions) -> Result<()>| -> Result<()> {
            scored = self.pass(predict, context, take)?;
            Ok(())
        };
        match out {
            None => pass(&mut |_| Ok(()))?,
            Some(out) if out.is("csv") => out.pieces(|put| {
                let mut begun = false;
                pass(&mut |predictions| {
                    if !begun {
                        put(&predictions.header())?;
                    }
                    begun = true;
                    put(&predictions.lines())
                })
            })?,
            Some(out) => self.write_npy(out, &mut pass, context)?,
        }
        Ok(scored)
    }

    /// Numbers, or whole numbers that stand for classes.
    fn write_npy(&self, out: &Output, pass: Pass, context: &Context) -> Result<()> {
        let shape = [self.blocks.n()];
        let classes = self.schema.target.as_ref().and_then(|target| target.classes.as_ref());
        let other = || Error::input("the model's target is of another kind than its schema says");
        let Some(classes) = classes else {
            return write_npy_rows(out.path(), &shape, |put| {
                pass(&mut |predictions| match &predictions.values {
                    Target::Values(values) => put(values),
                    Target::Classes { .. } => Err(other()),
                })
            });
        };
        let (numbers, note) = class_numbers(classes);
        write_npy_rows(out.path(), &shape, |put| {
            pass(&mut |predictions| match &predictions.values {
                Target::Classes { labels, names } if names == classes => {
                    put(&labels.iter().map(|&label| numbers[label]).collect::<Vec<i64>>())
                }
                _ => Err(other()),
            })
        })?;
        note.into_iter().for_each(|note| context.note(note));
        Ok(())
    }
}

/// Hands predictions to its argument, block by block.
type Pass<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&Predictions) -> Result<()>) -> Result<()>;

/// An error about some row of a block, with the rows of the file that it is about.
pub fn at_rows(error: Error, name: &str, done: usize, rows: usize) -> Error {
    Error::input(format!("{name}, in the {rows} rows after row {done}: {error}"))
}
