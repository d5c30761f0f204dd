//! `mercer transform`: the functions of a model at new points.

use super::fit::by_output;
use super::predict_blocks::at_rows;
use crate::options::input::{SampleSource, Source, announce, model_memory, say_ignored};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output, numbered};
use crate::show::codes::first;
use crate::text;
use clap::Args;
use mercer::apply::Fitted;
use mercer::data::{Dataset, Schema, TableBlocks, write_npy};
use mercer::model::{Content, Model};
use mercer::spectrum::Spectrum;
use mercer::{Error, Progress, Result};
use ndarray::s;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Evaluate the eigenfunctions or the coordinates of a fitted model at new points
#[derive(Args)]
pub struct Transform {
    /// Model file that `mercer fit`, `mercer embed` or `mercer eigenmap` wrote
    model: PathBuf,

    /// New points, with the columns that the model was fitted on; found by name where both tables name theirs
    #[arg(required_unless_present = "samples")]
    data: Option<String>,

    /// Table to write, .npy or .csv: a row per point, a column per function
    #[arg(long, short, value_name = "FILE")]
    out: NewFile,

    /// For a model of sampled functions: the same functions at the new points, an array [S, n] or [S, n, C]
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    samples: Option<String>,

    /// Coordinates to write, the first ones [default: all]
    #[arg(long, value_name = "M", conflicts_with = "samples")]
    dims: Option<usize>,

    #[command(flatten)]
    source: Source,
}

/// What was computed: how many functions of how many outputs at how many points, and in how many seconds.
struct Done {
    k: usize,
    outputs: usize,
    n: usize,
    seconds: f64,
}

impl Transform {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::table(&self.out)?;
        let Model { schema, content } = Model::load(&self.model, context.device)?;
        if let (Some(data), Some(schema)) = (&self.data, &schema)
            && let Some(blocks) = self.source.large_like(data, schema, context)?
        {
            return self.in_blocks(&blocks, schema, &content, out, context);
        }
        let Done { k, outputs, n, seconds } = match content {
            Content::Spectrum(spectrum) => self.functions(&spectrum, schema.as_ref(), &out, context)?,
            Content::Fitted(Fitted::Transform(_)) if self.samples.is_some() => {
                return Err(Error::input("the model is an embedding, which takes no --samples; give it new points"));
            }
            Content::Fitted(Fitted::Transform(fitted)) => {
                let all = fitted.eigenvalues().len();
                let k = first(self.dims, all)?;
                let data = self.points(schema.as_ref(), all, context)?;
                let start = Instant::now();
                let z = fitted.transform(data.x.to_f64().view())?;
                let seconds = start.elapsed().as_secs_f64();
                out.matrix(z.slice(s![.., ..k]), &numbered("z", k))?;
                Done { k, outputs: 1, n: data.n(), seconds }
            }
            Content::Fitted(Fitted::Predict(_)) | Content::Network(_) => {
                return Err(self.predicts());
            }
        };
        self.say(&Done { k, outputs, n, seconds }, out, context)
    }

    fn say(&self, &Done { k, outputs, n, seconds }: &Done, out: Output, context: &Context) -> Result<()> {
        let object = json!({
            "model": self.model.to_string_lossy(), "data": self.data, "samples": self.samples, "n": n, "outputs": outputs,
            "k": k, "seconds": seconds, "out": out,
        });
        context.result(&object, || {
            let (functions, points) = (text::count(k, "function"), text::count(n, "point"));
            format!("wrote {}: {functions} at {points} in {}", self.out.display(), text::seconds(seconds))
        })
    }

    /// Functions or coordinates at points that do not fit into memory, written as they are made.
    fn in_blocks(
        &self,
        blocks: &TableBlocks,
        schema: &Schema,
        content: &Content,
        out: Output,
        context: &Context,
    ) -> Result<()> {
        let (start, n, name) = (Instant::now(), blocks.n(), self.data.as_deref().unwrap_or_default());
        let letter = match content {
            Content::Spectrum(_) if content.code_length().is_err() => {
                return Err(Error::file(&self.model, "needs all points in memory; use fewer rows"));
            }
            Content::Spectrum(_) => "psi",
            Content::Fitted(Fitted::Transform(_)) => "z",
            Content::Fitted(Fitted::Predict(_)) | Content::Network(_) => return Err(self.predicts()),
        };
        let k = first(self.dims, content.code_length()?)?;
        announce(name, blocks, (Some(1), ""), model_memory(&self.model, blocks), context);
        say_ignored(name, blocks.ignored(), context);
        let (bar, mut done) = (context.bar(), 0);
        out.rows([n, k], &numbered(letter, k), |put| {
            blocks.encoded(schema, &mut |block, notes| {
                notes.iter().for_each(|note| context.warn(note));
                let values = content.codes(block.x.rows()).map_err(|e| at_rows(e, name, done, block.n()))?;
                let values = values.slice(s![.., ..k]).to_owned();
                done += block.n();
                put(values.as_slice().expect("rows lie in order"))?;
                bar.step("functions", done, n, "");
                Ok(true)
            })
        })?;
        drop(bar);
        self.say(&Done { k, outputs: 1, n, seconds: start.elapsed().as_secs_f64() }, out, context)
    }

    fn predicts(&self) -> Error {
        Error::file(&self.model, "holds a model that predicts; use `mercer predict`")
    }

    /// Writes the eigenfunctions at the new points.
    fn functions(&self, spectrum: &Spectrum, schema: Option<&Schema>, out: &Output, context: &Context) -> Result<Done> {
        let refused = match self.samples {
            Some(_) if !spectrum.takes_samples() => {
                "the model was fitted to a kernel, not to --samples; give it new points"
            }
            None if !spectrum.takes_coordinates() => {
                "the model holds no networks, so that it needs the sampled functions at the new points; give --samples, or fit \
                 by --method neuralef"
            }
            _ => "",
        };
        if !refused.is_empty() {
            return Err(Error::input(refused));
        }
        let outputs = spectrum.origin.outputs;
        let k = first(self.dims, spectrum.k())?;
        let (psi, n, seconds) = match &self.samples {
            Some(samples) => {
                let source = SampleSource::open(samples, &self.source, context)?;
                let samples = source.samples(None)?;
                let start = Instant::now();
                (spectrum.transform(&samples)?, samples.dim().1, start.elapsed().as_secs_f64())
            }
            None => {
                let data = self.points(schema, outputs * spectrum.k(), context)?;
                let start = Instant::now();
                (spectrum.transform(data.x.rows())?, data.n(), start.elapsed().as_secs_f64())
            }
        };
        match outputs {
            1 => out.matrix(psi.slice(s![.., ..k]), &numbered("psi", k)),
            _ if self.dims.is_some() => Err(Error::input(format!(
                "--dims takes the first coordinates of a row; these functions have {outputs} outputs"
            ))),
            _ if out.is("npy") => write_npy(out.path(), by_output(spectrum, psi).view()),
            _ => Err(Error::file(out.path(), format!("functions with {outputs} outputs do not fit a table; use .npy"))),
        }?;
        Ok(Done { k, outputs, n, seconds })
    }

    /// The new points, where a table of them with `width` columns fits into memory.
    fn points(&self, schema: Option<&Schema>, width: usize, context: &Context) -> Result<Dataset> {
        let data = self.data.as_deref().unwrap_or_default();
        let data = match schema {
            Some(schema) => self.source.open_like(data, schema, context)?,
            None => self.source.numbers(data, context)?,
        };
        let n = data.n();
        context.budget.require(
            format!("a table of {n} rows and {width} columns"),
            8 * (n * width) as u64,
            "transform fewer rows at a time",
        )?;
        Ok(data)
    }
}
