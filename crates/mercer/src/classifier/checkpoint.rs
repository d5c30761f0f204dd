//! The state of a training run in a file.

use super::training::Run;
use crate::model::Bundle;
use crate::net::{Optimizer, OptimizerState};
use crate::{Error, Result};
use ndarray::Array2;
use std::path::Path;

/// Everything that changes from step to step. Single precision is kept exactly in the bundle's double precision.
pub(super) struct Mark(Bundle<'static>);

impl Mark {
    /// The run as it stands.
    pub fn of(run: &Run<'_>) -> Result<Mark> {
        let mut bundle = Bundle::default();
        bundle.set("kind", "classifier-checkpoint");
        bundle.set("identity", run.identity());
        put(&mut bundle, "theta", &run.classifier.parameters.trained.to_host()?);
        put(&mut bundle, "constants", &run.classifier.parameters.constants.to_host()?);
        put(&mut bundle, "totals", &run.totals.to_host()?);
        let mut state = run.optimizer.state()?;
        for (name, moment) in ["moment.first", "moment.second"].into_iter().zip(&mut state.moments) {
            put(&mut bundle, name, &std::mem::take(moment));
        }
        bundle.set("optimizer", &state);
        bundle.set("history", &run.history);
        bundle.set("seconds", run.seconds());
        Ok(Mark(bundle))
    }

    /// Puts `run` where the one stood that was saved, which must be the same one.
    pub fn restore(&self, run: &mut Run<'_>, path: &Path) -> Result<()> {
        let bundle = &self.0;
        let named = |e: Error| Error::file(path, format!("is not a checkpoint: {e}"));
        let (there, here) = (bundle.text("identity").map_err(named)?, run.identity());
        if there != here {
            return Err(Error::file(
                path,
                format!(
                    "is the checkpoint of another run ({there}); this one is {here}. Give the same options, or another checkpoint"
                ),
            ));
        }
        let device = run.totals.device();
        run.classifier.parameters.trained.copy_from_host(&numbers(bundle, "theta")?)?;
        run.classifier.parameters.constants.copy_from_host(&numbers(bundle, "constants")?)?;
        run.totals.copy_from_host(&numbers(bundle, "totals")?)?;
        let mut state: OptimizerState = bundle.value("optimizer")?;
        state.moments = [numbers(bundle, "moment.first")?, numbers(bundle, "moment.second")?];
        run.optimizer = Optimizer::from_state(device, &state)?;
        run.history = bundle.value("history")?;
        run.seconds_before = bundle.value("seconds")?;
        Ok(())
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.0.write(path)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Mark> {
        Bundle::read(path).map(Mark)
    }
}

fn put(bundle: &mut Bundle, name: &str, numbers: &[f32]) {
    bundle.put(name, Array2::from_shape_fn((1, numbers.len()), |(_, i)| f64::from(numbers[i])));
}

fn numbers(bundle: &Bundle, name: &str) -> Result<Vec<f32>> {
    Ok(bundle.matrix(name)?.iter().map(|v| *v as f32).collect())
}
