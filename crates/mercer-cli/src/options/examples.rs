//! What a command that learns to predict reads and writes: examples, rows to score on, rows to predict, a model.

use crate::commands::predict::Predictions;
use crate::commands::predict_blocks::Rows;
use crate::options::input::{
    Beside, Reader, SampleSource, TaskChoice, announce_fit, encoded, no_target, say_unscored, scaling, target_file,
    warn_of_one_class,
};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::show::score::Score;
use crate::text;
use clap::Args;
use mercer::apply::{BlockwiseSize, FeatureRidge, InBlocks, SavedPredict};
use mercer::data::{BlockDataset, Dataset, Scaling, Schema, TableBlocks};
use mercer::error::human_bytes;
use mercer::kernel::Expression;
use mercer::{Error, Result, Silent, fail_if};

#[derive(Args)]
pub struct Examples {
    /// Examples: a file (.npy, .npz, .csv, .parquet, IDX, CIFAR-10) or named set (see `mercer datasets`)
    pub data: String,

    #[command(flatten)]
    task: TaskChoice,

    /// Scaling of the columns [default: standard for tables, none for images and generated sets]
    #[arg(long, value_parser = scaling())]
    pub scale: Option<Scaling>,

    /// Share of the rows held out to score the result
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, allow_negative_numbers = true)]
    pub holdout: f64,

    /// Points to predict; the target may be missing
    #[arg(long, value_name = "FILE")]
    predict: Option<String>,

    /// Targets of these points, an .npy file with one number a row [default: the column of the target, where the file has it]
    #[arg(long, value_name = "FILE.npy", requires = "predict", value_parser = target_file)]
    predict_target: Option<String>,

    /// Predictions to write, .npy or .csv; a .csv has deviations and the probability of every class too
    #[arg(long, short, value_name = "FILE", requires = "predict")]
    out: Option<NewFile>,

    /// Model file to write, for `mercer predict`
    #[arg(long = "model", value_name = "FILE")]
    save: Option<NewFile>,

    #[command(flatten)]
    reader: Reader,
}

/// How tables become features, and the rows to learn from, to score on, and to predict.
pub struct Parts {
    /// None where the rows are values of sampled functions.
    pub schema: Option<Schema>,
    pub train: Dataset,
    pub held_out: Option<Dataset>,
    pub new: Option<Dataset>,
}

/// Files to write.
pub struct Outputs {
    /// Predictions.
    pub out: Option<Output>,
    model: Option<Output>,
}

impl Examples {
    /// The files to write, checked before any work.
    pub fn outputs(&self) -> Result<Outputs> {
        fail_if!(!(0.0..1.0).contains(&self.holdout), "--holdout must lie from 0 to below 1, not {}", self.holdout);
        let out = self.out.as_ref().map(Output::table).transpose()?;
        Ok(Outputs { out, model: self.save.as_ref().map(Output::new).transpose()? })
    }

    /// The rows, scaled as `scale` says, or by their kind.
    pub fn read(&self, scale: Option<Scaling>, context: &Context) -> Result<Parts> {
        let table = self.task.table(&self.reader, &self.data, context)?;
        let (train, held_out) = table.held_out(self.holdout, context.seed)?;
        let schema = self.reader.schema(&train, scale, context)?;
        let new = self.new_rows(&schema, context)?;
        let encoded = |table| encoded(&schema, table, context);
        let (train, held_out) = (encoded(train)?, held_out.map(encoded).transpose()?);
        Ok(Parts { schema: Some(schema), train, held_out, new })
    }

    /// The rows to predict, in the features of a schema.
    fn new_rows(&self, schema: &Schema, context: &Context) -> Result<Option<Dataset>> {
        let Some(beside) = self.beside() else { return Ok(None) };
        let new = self.reader.open_beside(beside, schema, context)?;
        fail_if!(
            new.known().is_none() && self.out.is_none(),
            "`{}` has no target to score against; name a file for its predictions by --out, or its targets by --predict-target",
            beside.source
        );
        say_unscored(&new, context);
        Ok(Some(new))
    }

    /// The points to predict.
    fn beside(&self) -> Option<Beside<'_>> {
        let (option, target) = ("predict", self.predict_target.as_deref());
        self.predict.as_deref().map(|source| Beside { option, source, target })
    }

    /// Whether each of several ranks can read its own rows.
    pub fn can_share(&self) -> bool {
        TableBlocks::can_open(&self.data)
    }

    /// The rows of a file of which each rank reads its own. Those to learn from stay there but for some, which are scored.
    pub fn read_shared(&self, context: &Context) -> Result<(Parts, BlockDataset)> {
        let blocks = self.reader.large(&self.data, |_| 0, context)?.expect("several ranks read it");
        let held_out = self.held_out_count(&blocks, context);
        let keep = |n: usize| Expression::rows(n, context.seed);
        let data = self.reader.first_pass(blocks, (self.scale, self.task.task(), held_out), &keep, context)?;
        if data.schema().target.is_none() {
            return Err(no_target(&self.data));
        }
        let (schema, train) = (data.schema().clone(), data.sample().1.clone());
        let new = self.new_rows(&schema, context)?;
        Ok((Parts { schema: Some(schema), train, held_out: data.held_out().cloned(), new }, data))
    }

    /// How many rows of a file in blocks are held out.
    fn held_out_count(&self, blocks: &TableBlocks, context: &Context) -> usize {
        /// Rows that are held out at most: their score is known to about one percent.
        const MOST: f64 = 20_000.0;
        let n = blocks.n() as f64;
        let held_out = (self.holdout.min(MOST / n) * n).round() as usize;
        if self.holdout * n > MOST + 0.5 {
            context.note(format_args!("{} are held out, as many as fit into memory", text::count(held_out, "row")));
        }
        held_out
    }

    /// The rows, where they do not fit into memory: beside the `fit` of rows in blocks, where there is one.
    pub fn large(&self, fit: Option<&InBlocks>, context: &Context) -> Result<Option<TableBlocks>> {
        let bytes = |blocks: &TableBlocks| {
            let d = self.reader.features_of(blocks);
            let size = fit.and_then(|fit| fit.size(blocks, d, &context.fit(&Silent)).ok());
            size.unwrap_or_default().bytes
        };
        self.reader.large(&self.data, bytes, context)
    }

    /// The error that `option` needs rows in memory that do not fit.
    pub fn needs_all_rows(&self, large: &TableBlocks, option: &str, context: &Context) -> Error {
        let [whole, budget] = [large.memory(), context.budget.bytes()].map(human_bytes);
        Error::input(format!(
            "{}: {} rows take {whole}, more than the memory budget of {budget}, and {option} needs all rows in memory; without it, the methods \
             nystrom, random-features and linear read such a file in blocks",
            self.data,
            text::grouped(large.n())
        ))
    }

    /// Rows in blocks, after a first pass over them; says what is to come. Returns the expected memory too.
    pub fn read_blocks(&self, blocks: TableBlocks, fit: &InBlocks, context: &Context) -> Result<(BlockDataset, u64)> {
        let d = self.reader.features_of(&blocks);
        let BlockwiseSize { landmarks, bytes } = fit.size(&blocks, d, &context.fit(&Silent))?;
        let expected = announce_fit(&self.data, &blocks, fit.passes(), bytes, context)?;
        let held_out = self.held_out_count(&blocks, context);
        let keep = |n: usize| FeatureRidge::rows_in_memory(n, landmarks, context.seed);
        let data = self.reader.first_pass(blocks, (self.scale, self.task.task(), held_out), &keep, context)?;
        if data.schema().target.is_none() {
            return Err(no_target(&self.data));
        }
        data.sample().1.y.iter().for_each(|y| warn_of_one_class(y, context));
        Ok((data, expected))
    }

    /// Predicts the rows of the second file, where there is one, and writes the predictions; the score where it has the target.
    pub fn predict_blocks(
        &self,
        model: &dyn SavedPredict,
        schema: &Schema,
        out: Option<&Output>,
        context: &Context,
    ) -> Result<Option<Score>> {
        let Some(beside) = self.beside() else { return Ok(None) };
        let Some(blocks) = self.reader.large_beside(beside, schema, context)? else {
            let data = self.reader.open_beside(beside, schema, context)?;
            say_unscored(&data, context);
            let predictions = Predictions::of(model, &data)?;
            if let Some(out) = out {
                predictions.write(out, context)?;
                Outputs::wrote(out, data.n(), context);
            }
            return Ok(predictions.score(&data));
        };
        let rows = Rows { blocks: &blocks, schema, name: beside.source };
        let score = rows.predict(&|data| Predictions::of(model, data), out, context)?;
        if let Some(out) = out {
            Outputs::wrote(out, blocks.n(), context);
        }
        Ok(score)
    }

    /// The rows as the values of functions sampled at them, `[n, S]`, with the target of the data.
    pub fn read_samples(&self, file: &str, context: &Context) -> Result<Parts> {
        let table = self.task.table(&self.reader, &self.data, context)?;
        let x = SampleSource::open(file, &self.reader.source, context)?.by_point(Some(table.n()), context)?;
        let y = table.target.map(|target| target.values);
        let all = Dataset::new(table.name, x, y)?;
        let (train, held_out) = match self.holdout {
            0.0 => (all, None),
            share => all.split(share, context.seed).map(|(train, held_out)| (train, Some(held_out)))?,
        };
        Ok(Parts { schema: None, train, held_out, new: None })
    }
}

impl Outputs {
    /// Writes the model, where one is asked for. To be done before scores are computed: an interrupt does not lose it then.
    pub fn write_model(&self, fitted: &dyn SavedPredict, schema: Option<&Schema>, context: &Context) {
        if let Some(model) = &self.model {
            context.written(model, fitted.write(schema, model.path()));
        }
    }

    /// Says that `count` predictions were written.
    pub fn wrote(out: &Output, count: usize, context: &Context) {
        context.note(format_args!("wrote {}: {}", out.path().display(), text::count(count, "prediction")));
    }
}
