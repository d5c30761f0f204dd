//! `mercer transform`: the eigenfunctions of a model at new points.

use crate::context::Context;
use crate::input::Reader;
use crate::output::{Output, numbered};
use crate::text;
use clap::Args;
use mercer::spectrum::Spectrum;
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
    data: String,

    /// Table to write, .npy or .csv: one row a point, one column an eigenfunction
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    reader: Reader,
}

impl Transform {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::table(&self.out)?;
        let spectrum = Spectrum::load(&self.model)?;
        let data = self.reader.open(&self.data)?;
        if data.d() == spectrum.origin.d + 1 && data.y.is_none() {
            return Err(Error::input(format!(
                "the model was fitted on {}, the new points have {}; if one of them is the target, name it by --target",
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
        let z = spectrum.transform(data.x.view())?;
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
}
