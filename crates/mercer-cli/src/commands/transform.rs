//! `mercer transform`: the eigenfunctions of a model at new points.

use crate::context::Context;
use crate::input::{Reader, SampleSource};
use crate::output::{Output, numbered};
use crate::text;
use clap::Args;
use mercer::data::write_npy;
use mercer::model::Bundle;
use mercer::spectrum::Spectrum;
use mercer::spectrum::neural::SampledModel;
use mercer::{Error, Result};
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
        let bundle = Bundle::read(&self.model)?;
        let named = |e: Error| Error::file(&self.model, e.to_string());
        if let Some(model) = SampledModel::from_bundle(&bundle).map_err(named)? {
            return self.sampled(&model, out, context);
        }
        let spectrum = Spectrum::from_bundle(&bundle).map_err(named)?;
        let Some(data) = &self.data else {
            return Err(Error::input("the model was fitted to a kernel, not to --samples; give it new points"));
        };
        let data = self.reader.open(data)?;
        if data.d() == spectrum.origin.d + 1 && data.y.is_none() {
            return Err(Error::input(format!(
                "the model was fitted on {}, the new points have {}; if one of them is the target, name it with --target",
                text::count(spectrum.origin.d, "column"),
                data.d()
            )));
        }
        let (n, k) = (data.n(), spectrum.k());
        context.budget.require(
            format!("a table of {n} rows and {k} columns"),
            8 * (n * k) as u64,
            "transform fewer rows at a time",
        )?;
        let start = Instant::now();
        let z = spectrum.transform(data.x.to_f64().view())?;
        let seconds = start.elapsed().as_secs_f64();
        out.matrix(z.view(), &numbered("psi", k))?;
        let object =
            json!({ "model": self.model, "data": self.data, "n": n, "k": k, "seconds": seconds, "out": self.out });
        context.result(&object, || {
            format!(
                "wrote {}: {} functions at {} in {}",
                self.out.display(),
                k,
                text::count(n, "point"),
                text::seconds(seconds)
            )
        })
    }

    /// The eigenfunctions of a model of samples: from samples of the same functions at the new points, or by its networks.
    fn sampled(&self, model: &SampledModel, out: Output, context: &Context) -> Result<()> {
        let start = Instant::now();
        let psi = match (&self.samples, &self.data) {
            (Some(samples), _) => {
                let source = SampleSource::open(samples, &self.reader)?;
                model.at_samples(&source.as_they_are()?)?
            }
            (None, data) => {
                model.at_points(self.reader.open(data.as_deref().unwrap_or_default())?.x.to_f64().view())?
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let (n, c, k) = psi.dim();
        match c {
            1 => out.matrix(psi.index_axis(ndarray::Axis(1), 0), &numbered("psi", k))?,
            _ if out.path().extension().is_some_and(|e| e == "npy") => write_npy(out.path(), psi.view())?,
            _ => {
                return Err(Error::file(
                    out.path(),
                    format!("functions with {c} outputs do not fit a table; use .npy"),
                ));
            }
        }
        let object = json!({
            "model": self.model, "data": self.data, "samples": self.samples, "n": n, "outputs": c, "k": k,
            "seconds": seconds, "out": self.out,
        });
        context.result(&object, || {
            let (functions, points) = (text::count(k, "function"), text::count(n, "point"));
            format!("wrote {}: {functions} at {points} in {}", self.out.display(), text::seconds(seconds))
        })
    }
}
