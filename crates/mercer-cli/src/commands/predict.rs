//! `mercer predict`: numbers or classes for new rows, by a fitted model.

use super::predict_blocks::Rows;
use crate::options::function_files::FunctionFiles;
use crate::options::input::{SampleSource, Source, announce, model_memory, needs_out, say_unscored};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output, quoted};
use crate::show::score::{Score, score_of};
use crate::text;
use clap::Args;
use mercer::apply::{Fitted, softmax_rows};
use mercer::classifier::Classifier;
use mercer::data::{Dataset, Target};
use mercer::model::{Content, Model};
use mercer::{Error, Result, fail_if};
use ndarray::{Array1, Array2, Axis, concatenate};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Predict numbers or classes for new rows by a fitted model, and score them where the target is known
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer regress train.csv --target price --model m.mercer\n  mercer predict m.mercer new.csv --out p.csv"
)]
pub struct Predict {
    /// Model file that `mercer regress`, `gp`, `train` or `laplace` wrote
    model: PathBuf,

    /// New rows, with the columns that the model was fitted on; found by name where both tables name theirs. They may lack the
    /// target
    #[arg(required_unless_present_any = ["logits", "samples"])]
    data: Option<String>,

    /// Predictions to write, .npy or .csv; a .csv has the score or the probability of every class too [default: print them]
    #[arg(long, short, value_name = "FILE")]
    out: Option<NewFile>,

    #[command(flatten)]
    files: FunctionFiles,

    #[command(flatten)]
    source: Source,
}

/// Predictions, and for classes the scores `[n, C]` behind them and their probabilities `[n, C]`, where there are some.
pub struct Predictions {
    pub values: Target,
    scores: Option<Array2<f64>>,
    pub probabilities: Option<Array2<f64>>,
    /// Standard deviations `[n]` of numbers, where the model has some.
    deviations: Option<Array1<f64>>,
}

impl Predict {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::table).transpose()?;
        let Model { schema, content } = Model::load(&self.model, context.device)?;
        if let (Some(data), Some(schema), false) = (&self.data, &schema, self.files.given())
            && let Some(blocks) = self.source.large_like(data, schema, context)?
        {
            return self.in_blocks(&Rows { blocks: &blocks, schema, name: data }, &content, out, context);
        }
        let alone = !self.files.given() && !self.files.samples.is_empty();
        fail_if!(alone && self.data.is_some(), "give new rows or --samples, the functions there, not both");
        let data = match (&self.data, &schema) {
            (Some(data), Some(schema)) => Some(self.source.open_like(data, schema, context)?),
            (Some(data), None) => Some(self.source.numbers(data, context)?),
            (None, _) if self.files.given() => None,
            (None, schema) => Some(self.sampled(schema.is_some(), context)?),
        };
        let start = Instant::now();
        let rows = || data.as_ref().ok_or_else(|| Error::input("the model needs new rows, not a network's functions"));
        let predictions = match content {
            Content::Fitted(Fitted::Predict(fitted)) if self.files.given() => self.of_functions(&*fitted, context)?,
            Content::Fitted(Fitted::Predict(fitted)) => Predictions::of(&*fitted, rows()?)?,
            Content::Network(network) => of_network(&network, rows()?)?,
            Content::Fitted(Fitted::Transform(_)) | Content::Spectrum(_) => return Err(self.no_predictions()),
        };
        let seconds = start.elapsed().as_secs_f64();
        if let Some(out) = &out {
            predictions.write(out, context)?;
            let written = text::count(predictions.values.len(), "prediction");
            context.note(format_args!("wrote {}: {written} in {}", out.path().display(), text::seconds(seconds)));
        }
        let known = data.as_ref().and_then(|data| predictions.score(data));
        data.iter().for_each(|data| say_unscored(data, context));
        let scored = data.as_ref().and_then(Dataset::known).map_or(0, |(y, _)| y.len());
        let name = self.data.as_deref().unwrap_or_default();
        if let Some(score) = &known {
            let cells: Vec<String> = score.cells().iter().map(|(name, value)| format!("{name} {value}")).collect();
            context.note(format_args!("{name}: {} on {}", cells.join(", "), text::count(scored, "row")));
        }
        let mut object = json!({
            "model": self.model.to_string_lossy(), "data": self.data, "n": predictions.values.len(),
            "predictions": predictions.shown(),
            "test": known, "seconds": seconds, "out": out,
        });
        if let Some(deviations) = &predictions.deviations {
            object["deviations"] = json!(deviations.to_vec());
        }
        context.result(&object, || if out.is_some() { String::new() } else { predictions.table() })
    }
}

impl Predict {
    fn no_predictions(&self) -> Error {
        Error::file(&self.model, "holds functions that do not predict; use `mercer transform`")
    }

    /// Predictions for rows that do not fit into memory, written as they are made.
    fn in_blocks(&self, rows: &Rows, content: &Content, out: Option<Output>, context: &Context) -> Result<()> {
        let (start, n) = (Instant::now(), rows.blocks.n());
        let out = out.ok_or_else(|| needs_out(n))?;
        let predict = |data: &Dataset| match content {
            Content::Fitted(Fitted::Predict(fitted)) => Predictions::of(&**fitted, data),
            Content::Network(network) => of_network(network, data),
            Content::Fitted(Fitted::Transform(_)) | Content::Spectrum(_) => Err(self.no_predictions()),
        };
        announce(rows.name, rows.blocks, (Some(1), ""), model_memory(&self.model, rows.blocks), context);
        let known = rows.predict(&predict, Some(&out), context)?;
        let seconds = start.elapsed().as_secs_f64();
        let (path, written) = (out.path().display(), text::count(n, "prediction"));
        context.note(format_args!("wrote {path}: {written} in {}", text::seconds(seconds)));
        if let Some(score) = &known {
            let cells: Vec<String> = score.cells().iter().map(|(name, value)| format!("{name} {value}")).collect();
            context.note(format_args!("{}: {} on {}", rows.name, cells.join(", "), text::count(n, "row")));
        }
        let object = json!({
            "model": self.model.to_string_lossy(), "data": self.data, "n": n, "test": known, "seconds": seconds, "out": out,
        });
        context.result(&object, String::new)
    }

    /// The values of sampled functions at new rows, for a model of such functions.
    fn sampled(&self, has_columns: bool, context: &Context) -> Result<Dataset> {
        fail_if!(has_columns, "the model was fitted to columns, not to --samples; give it new rows");
        let [file] = &self.files.samples[..] else {
            return Err(Error::input("--samples must name one file here: the functions at the new rows"));
        };
        let values = SampleSource::open(file, &self.source, context)?.by_point(None, context)?;
        Dataset::new(file, values, None)
    }

    /// Predictions from the outputs and functions of a network, a few rows at a time.
    fn of_functions(&self, fitted: &dyn mercer::apply::Predict, context: &Context) -> Result<Predictions> {
        let opened = self.files.open(&["the new rows"], context)?;
        let network = opened[0].network()?;
        let (mut scores, mut deviations) = (vec![], vec![]);
        for rows in network.batches() {
            let x = network.rows(rows)?;
            scores.push(fitted.scores(x.view())?);
            deviations.extend(fitted.deviations(x.view())?.into_iter().flatten());
        }
        let views: Vec<_> = scores.iter().map(|part| part.view()).collect();
        let scores = concatenate(Axis(0), &views).map_err(|_| Error::input("there are no rows"))?;
        let (values, probabilities) = (fitted.decode(scores.view()), fitted.probabilities(scores.view()));
        let numbers = matches!(values, Target::Values(_));
        let deviations = numbers.then(|| deviations.into());
        Ok(Predictions { values, scores: (!numbers).then_some(scores), probabilities, deviations })
    }
}

fn of_network(network: &Classifier, data: &Dataset) -> Result<Predictions> {
    if network.number.is_some() {
        let values = Target::Values(network.predict(&data.x)?);
        return Ok(Predictions { values, scores: None, probabilities: None, deviations: None });
    }
    let logits = network.logits(&data.x)?.mapv(f64::from);
    let values = Target::of_scores(logits.view(), &network.classes);
    let probabilities = Some(softmax_rows(logits.clone()));
    Ok(Predictions { values, probabilities, scores: Some(logits), deviations: None })
}

impl Predictions {
    /// Of a fitted estimator for the rows of `data`.
    pub fn of(fitted: &dyn mercer::apply::Predict, data: &Dataset) -> Result<Predictions> {
        Predictions::of_scores(fitted, data, fitted.scores(data.x.to_f64().view())?)
    }

    /// Of a fitted estimator whose scores `[n, m]` for the rows of `data` are known.
    pub fn of_scores(fitted: &dyn mercer::apply::Predict, data: &Dataset, scores: Array2<f64>) -> Result<Predictions> {
        let deviations = fitted.deviations(data.x.to_f64().view())?;
        let (values, probabilities) = (fitted.decode(scores.view()), fitted.probabilities(scores.view()));
        let scores = matches!(values, Target::Classes { .. }).then_some(scores);
        Ok(Predictions { values, scores, probabilities, deviations })
    }

    /// The score on the rows of `data` that have the target.
    pub fn score(&self, data: &Dataset) -> Option<Score> {
        score_of(data, &self.values, self.probabilities.as_ref().map(|p| p.view()))
    }

    /// Writes a `.csv` with everything, or the predictions alone.
    pub fn write(&self, out: &Output, context: &Context) -> Result<()> {
        match out.is("csv") {
            true => out.text(&self.table()),
            false => {
                out.predictions(&self.values)?.into_iter().for_each(|note| context.note(note));
                Ok(())
            }
        }
    }

    /// The predictions as values of JSON.
    fn shown(&self) -> serde_json::Value {
        match &self.values {
            Target::Values(values) => json!(values),
            Target::Classes { labels, names } => json!(labels.iter().map(|&l| &names[l]).collect::<Vec<_>>()),
        }
    }

    /// The predictions as a `.csv`.
    fn table(&self) -> String {
        self.header() + &self.lines()
    }

    /// What a `.csv` shows of each class, in words, and the numbers `[n, C]`.
    fn shown_scores(&self) -> (&'static str, Option<&Array2<f64>>) {
        match (&self.probabilities, &self.scores) {
            (Some(p), _) => ("probability", Some(p)),
            (None, scores) => ("score", scores.as_ref()),
        }
    }

    /// The first line of a `.csv`.
    pub fn header(&self) -> String {
        match &self.values {
            Target::Values(_) if self.deviations.is_some() => "prediction,deviation\n".into(),
            Target::Values(_) => "prediction\n".into(),
            Target::Classes { names, .. } => {
                let (meaning, _) = self.shown_scores();
                let scored: Vec<String> = names.iter().map(|name| quoted(&format!("{meaning} {name}"))).collect();
                format!("prediction,{}\n", scored.join(","))
            }
        }
    }

    /// The other lines of a `.csv`, one for each row.
    pub fn lines(&self) -> String {
        let Target::Classes { labels, names } = &self.values else {
            let values = self.values.values();
            return match &self.deviations {
                None => values.iter().map(|value| format!("{value}\n")).collect(),
                Some(deviations) => values.iter().zip(deviations).map(|(value, s)| format!("{value},{s}\n")).collect(),
            };
        };
        let (_, shown) = self.shown_scores();
        let mut table = String::new();
        for (i, label) in labels.iter().enumerate() {
            let scores = shown.iter().flat_map(|scores| scores.row(i).to_vec());
            let cells: Vec<String> = scores.map(|score| score.to_string()).collect();
            table += &format!("{},{}\n", quoted(&names[*label]), cells.join(","));
        }
        table
    }
}
