//! The fit: networks, functions, and the scale of their covariance.

use super::functions::{Functions, Values};
use super::networks::centred;
use super::{FittedTrajectory, Method, Settings, Swag, Trajectory, predictive};
use crate::classifier::Classifier;
use crate::data::Dataset;
use crate::laplace::fit as laplace;
use crate::laplace::likelihood::Likelihood;
use crate::laplace::passes::{Hidden, Passes};
use crate::laplace::search::{Searched, search};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{FitContext, Result, fail_if};
use ndarray::{ArrayView2, Axis, CowArray, Ix2};
use std::sync::Arc;
use std::time::Instant;

impl Settings {
    /// Fits the posterior of a trajectory. `data` are training rows, at which functions are found and batch norms measured;
    /// `validation` are rows that training has not seen, for the scale of the covariance.
    pub fn fit(
        &self,
        trajectory: &Trajectory,
        data: &Dataset,
        validation: &Dataset,
        context: &FitContext,
    ) -> Result<FittedTrajectory> {
        let all = (0..validation.n()).collect();
        self.fit_on(trajectory, data, validation, &[all], context).map(|mut fits| fits.remove(0))
    }

    /// One fit for each choice of validation rows, with the scale found on these: predictions of the other rows compare methods fairly. The
    /// networks, the functions, and one pass over all validation rows serve all fits.
    pub fn fit_on(
        &self,
        trajectory: &Trajectory,
        data: &Dataset,
        validation: &Dataset,
        choices: &[Vec<usize>],
        context: &FitContext,
    ) -> Result<Vec<FittedTrajectory>> {
        let start = Instant::now();
        self.check(trajectory, data)?;
        let x = self.chosen(data, context.seed);
        let (networks, functions) = self.parts(trajectory, x.view(), context)?;
        let last = trajectory.last();
        let kernel = format!("the trajectory of {} networks \"{}\"", trajectory.count(), last.network.expression());
        let origin =
            Origin::new(format!("trajectory ({})", self.method.name()), kernel, (data.n(), data.d()), context, start);
        let untuned = FittedTrajectory {
            networks,
            method: self.method,
            predictive: self.predictive,
            functions,
            found: Searched { value: 1.0, loss: 0.0, at_end: false },
            temperature: 1.0,
            origin: Origin { outputs: last.network.outputs(), ..origin },
            notes: vec![],
        };
        let values = match untuned.functions {
            Some(_) => Some(untuned.values(validation.x.to_f64().view(), context)?),
            None => None,
        };
        let tuned = |rows: &Vec<usize>| {
            let mut fitted = untuned.clone();
            if let Some((mean, f)) = &values {
                let likelihood = Likelihood::of(last, &validation.select(rows))?;
                let values = (mean.select(Axis(0), rows), f.select(Axis(0), rows));
                fitted.found = self.scale(&values, &likelihood, context.seed)?;
                fitted.notes.extend(fitted.found.note_of_end("scale of the covariance"));
            }
            fitted.origin.seconds = start.elapsed().as_secs_f64();
            Ok(fitted)
        };
        choices.iter().map(tuned).collect()
    }

    fn check(&self, trajectory: &Trajectory, data: &Dataset) -> Result<()> {
        fail_if!(data.n() == 0, "there are no rows to fit the posterior at");
        fail_if!(self.rows < 2, "at least two rows are needed for the eigenfunctions, not {}", self.rows);
        fail_if!(!self.predictive.is_possible(), "draws must be one at least, and a million at most");
        fail_if!(matches!(self.method, Method::Swag { draws: 0, .. }), "at least one draw is needed");
        let most = trajectory.count() - 1;
        if let Some(k) = self.method.functions() {
            fail_if!(k == 0, "at least one eigenfunction is needed");
            fail_if!(
                k > most,
                "{k} eigenfunctions are more than the {most} that {} snapshots span; ask for fewer",
                most + 1
            );
        }
        Ok(())
    }

    /// Rows of `data`, drawn at random where there are too many.
    fn chosen<'a>(&self, data: &'a Dataset, seed: u64) -> CowArray<'a, f64, Ix2> {
        if data.n() <= self.rows {
            return data.x.to_f64();
        }
        let mut rows = Rng::new(seed).fork(0x726f_7773).sample(data.n(), self.rows);
        rows.sort_unstable();
        data.x.select(&rows).into_f64().into()
    }

    /// The networks that predictions pass through, and functions of them, at rows `x` `[n, d]`.
    fn parts(
        &self,
        trajectory: &Trajectory,
        x: ArrayView2<f64>,
        context: &FitContext,
    ) -> Result<(Vec<Arc<Classifier>>, Option<Functions>)> {
        Ok(match self.method {
            Method::Last => (vec![trajectory.last().clone()], None),
            Method::Swa => (vec![Arc::new(trajectory.average(x)?)], None),
            Method::Swag { draws, rank } => {
                let swag = Swag::of(trajectory, rank)?;
                let rng = Rng::new(context.seed).fork(0x7377_6167);
                let drawn = |i: usize| {
                    context.progress.step("SWAG", i, draws, "draws");
                    swag.network(&swag.draw(&mut rng.fork(i as u64)), x).map(Arc::new)
                };
                ((0..draws).map(drawn).collect::<Result<_>>()?, None)
            }
            Method::Networks => (trajectory.networks.clone(), None),
            Method::Eigenfunctions { functions } => {
                let f = trajectory.samples(x, context)?;
                (trajectory.networks.clone(), Some(Functions::exact(f.view(), functions, context)?))
            }
            Method::Ritz { functions } => {
                let average = trajectory.average(x)?;
                let (_, units) = Passes::new(&average)?.forward(x, Hidden::Means)?;
                fail_if!(units.ncols() < 2, "the network has no hidden layer whose units could span eigenfunctions");
                let f = centred(trajectory.outputs(x, context)?);
                let functions = Functions::ritz(units.view(), f.view(), functions, context)?;
                (vec![Arc::new(average)], Some(functions))
            }
        })
    }

    /// s with the least loss at rows where the process has these values.
    fn scale(&self, (mean, f): &Values, likelihood: &Likelihood, seed: u64) -> Result<Searched> {
        search(|all| {
            let loss = |s: &f64| {
                let scores = predictive::scores(mean, f, *s, self.predictive, seed);
                likelihood.mean_loss(scores.view())
            };
            Ok(all.iter().map(loss).collect())
        })
    }
}

/// The temperature with the least loss of `softmax(s/T)` for scores `[n, C]` of labelled rows.
pub(super) fn temperature(network: &Classifier, scores: ArrayView2<f64>, data: &Dataset) -> Result<Searched> {
    laplace::temperature(&scores.to_owned(), &Likelihood::of(network, data)?)
}
