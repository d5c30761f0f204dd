//! The state of a run at one step, in memory (to go back to) and in a file (to resume from).

use super::training::{Best, Run};
use crate::model::Bundle;
use crate::net::{Optimizer, OptimizerState};
use crate::{Error, Result};
use ndarray::Array2;
use std::path::Path;

/// Everything that changes from step to step. Single precision is kept exactly in the bundle's double precision.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark(Bundle<'static>);

impl Mark {
    /// The run as it stands.
    pub fn of(run: &Run<'_>) -> Result<Mark> {
        let mut bundle = Bundle::default();
        bundle.set("kind", "checkpoint");
        bundle.set("identity", run.identity());
        put_numbers(&mut bundle, "theta", &run.functions.parameters().trained.to_host()?);
        let mut state = run.optimizer.state()?;
        for (name, moment) in ["moment.first", "moment.second"].into_iter().zip(&mut state.moments) {
            put_numbers(&mut bundle, name, &std::mem::take(moment));
        }
        bundle.set("optimizer", &state);
        bundle.set("rng", &run.rng);
        run.raw.save("raw", &mut bundle);
        run.objective.save(&mut bundle);
        bundle.set("best", run.best.as_ref().map(|best| (best.step, best.residual)));
        if let Some(best) = &run.best {
            put_numbers(&mut bundle, "best.theta", &best.trained);
        }
        bundle.set("patience", run.patience);
        bundle.set("recoveries", run.recoveries);
        bundle.set("loss", &run.loss);
        bundle.set("validations", &run.validations);
        bundle.set("notes", &run.notes);
        bundle.set("seconds", run.seconds());
        Ok(Mark(bundle))
    }

    /// Puts the run back to where it stood.
    pub fn restore(&self, run: &mut Run<'_>) -> Result<()> {
        let bundle = &self.0;
        run.functions.parameters_mut().trained.copy_from_host(&numbers(bundle, "theta")?)?;
        let mut state: OptimizerState = bundle.value("optimizer")?;
        state.moments = [numbers(bundle, "moment.first")?, numbers(bundle, "moment.second")?];
        run.optimizer = Optimizer::from_state(run.functions.parameters().trained.device(), &state)?;
        run.rng = bundle.value("rng")?;
        run.raw.load("raw", bundle)?;
        run.objective.load(bundle)?;
        let best: Option<(u64, f64)> = bundle.value("best")?;
        run.best = match best {
            Some((step, residual)) => Some(Best { step, residual, trained: numbers(bundle, "best.theta")? }),
            None => None,
        };
        run.patience = bundle.value("patience")?;
        run.recoveries = bundle.value("recoveries")?;
        run.loss = bundle.value("loss")?;
        run.validations = bundle.value("validations")?;
        run.notes = bundle.value("notes")?;
        run.seconds_before = bundle.value("seconds")?;
        Ok(())
    }

    /// Whether the mark is one of this very run.
    pub fn check_identity(&self, run: &Run<'_>, path: &Path) -> Result<()> {
        let named = |e: Error| Error::file(path, format!("is not a checkpoint: {e}"));
        let (there, here) = (self.0.text("identity").map_err(named)?, run.identity());
        if there == here {
            return Ok(());
        }
        Err(Error::file(
            path,
            format!(
                "is the checkpoint of another run ({there}); this one is {here}. Give the same options, or another checkpoint"
            ),
        ))
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

fn put_numbers(bundle: &mut Bundle, name: &str, numbers: &[f32]) {
    bundle.put(name, Array2::from_shape_fn((1, numbers.len()), |(_, i)| f64::from(numbers[i])));
}

fn numbers(bundle: &Bundle, name: &str) -> Result<Vec<f32>> {
    let wide: Array2<f64> = bundle.matrix(name)?;
    Ok(wide.iter().map(|v| *v as f32).collect())
}
