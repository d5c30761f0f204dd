//! `mercer inspect`: the content of a model file.

use super::fit::{described, fitted};
use crate::context::Context;
use clap::Args;
use mercer::Result;
use mercer::spectrum::Spectrum;
use std::path::PathBuf;

/// Show what a fitted model holds: eigenvalues, certificate, origin
#[derive(Args)]
pub struct Inspect {
    /// Model file that `mercer fit` wrote
    model: PathBuf,
}

impl Inspect {
    pub fn run(self, context: &Context) -> Result<()> {
        let spectrum = Spectrum::load(&self.model, context.device)?;
        context.result(&fitted(&spectrum), || {
            let scaled = if spectrum.scaler.is_some() { "; new points are scaled as the fitted ones were" } else { "" };
            let origin = &spectrum.origin;
            let precision = format!("{:?}", origin.precision).to_lowercase();
            format!(
                "{}\nKernel: {}\nFitted with seed {}, kernel values in {precision}{scaled}.\n",
                described(&spectrum),
                origin.kernel,
                origin.seed
            )
        })
    }
}
