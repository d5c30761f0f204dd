//! `mercer transform`: the eigenfunctions of a model at new points.

use super::fit::by_output;
use crate::context::Context;
use crate::input::{Reader, SampleSource};
use crate::output::{Output, numbered};
use crate::text;
use clap::Args;
use mercer::data::{Dataset, write_npy};
use mercer::spectrum::Spectrum;
use mercer::{Error, Result, fail_if};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Evaluate the eigenfunctions of a fitted model at new points
#[derive(Args)]
pub struct Transform {
    /// Model file that `mercer fit` wrote
    model: PathBuf,

    /// New points, with the columns that the model was fitted on
    #[arg(required_unless_present = "samples")]
    data: Option<String>,

    /// Table to write, .npy or .csv: a row per point, a column per eigenfunction
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,

    /// For a model of sampled functions: the same functions at the new points, an array [S, n] or [S, n, C]
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    samples: Option<String>,

    #[command(flatten)]
    reader: Reader,
}

impl Transform {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::table(&self.out)?;
        let spectrum = Spectrum::load(&self.model, context.device)?;
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
        let (psi, n, seconds) = match &self.samples {
            Some(samples) => {
                let source = SampleSource::open(samples, &self.reader, context)?;
                let samples = source.samples(None)?;
                let start = Instant::now();
                (spectrum.transform(&samples)?, samples.dim().1, start.elapsed().as_secs_f64())
            }
            None => {
                let data = self.points(self.data.as_deref().unwrap_or_default(), &spectrum, context)?;
                let start = Instant::now();
                (spectrum.transform(data.x.rows())?, data.n(), start.elapsed().as_secs_f64())
            }
        };
        let (c, k) = (spectrum.origin.outputs, spectrum.k());
        match c {
            1 => out.matrix(psi.view(), &numbered("psi", k)),
            _ if out.is("npy") => write_npy(out.path(), by_output(&spectrum, psi).view()),
            _ => Err(Error::file(out.path(), format!("functions with {c} outputs do not fit a table; use .npy"))),
        }?;
        let object = json!({
            "model": self.model.to_string_lossy(), "data": self.data, "samples": self.samples, "n": n, "outputs": c, "k": k,
            "seconds": seconds, "out": out,
        });
        context.result(&object, || {
            let (functions, points) = (text::count(k, "function"), text::count(n, "point"));
            format!("wrote {}: {functions} at {points} in {}", self.out.display(), text::seconds(seconds))
        })
    }

    /// The new points, where their table fits into memory.
    fn points(&self, data: &str, spectrum: &Spectrum, context: &Context) -> Result<Dataset> {
        let data = self.reader.open(data, context)?;
        fail_if!(
            data.d() == spectrum.origin.d + 1 && data.y.is_none(),
            "the model was fitted on {}, the new points have {}; if one of them is the target, name it by --target",
            text::count(spectrum.origin.d, "column"),
            data.d()
        );
        let (n, k) = (data.n() * spectrum.origin.outputs, spectrum.k());
        context.budget.require(
            format!("a table of {n} rows and {k} columns"),
            8 * (n * k) as u64,
            "transform fewer rows at a time",
        )?;
        Ok(data)
    }
}
