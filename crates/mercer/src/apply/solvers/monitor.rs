//! What is kept and measured while an iterative solver runs: checkpoints, and the error on rows that are not fitted.

use crate::apply::reference::matrix;
use crate::apply::solvers::conjugate_gradients::{Converged, Krylov};
use crate::apply::targets::Encoding;
use crate::apply::{ClassReport, check_points};
use crate::bundle::Bundle;
use crate::data::Target;
use crate::linalg::Panel;
use crate::training::{Checkpoint, Fingerprint, Identity, Saving};
use crate::{Result, compute::Device, fail_if};
use ndarray::{Array1, Array2, Axis};
use serde::{Deserialize, Serialize};

/// What is kept and measured while an iterative solver runs.
///
/// ```
/// use mercer::apply::{Alpha, Checkpoint, Fit, HeldOutRows, Monitoring, Predict, Ridge, RidgeSolver};
/// use mercer::{FitContext, data::Target, kernel::Kernel, operator::Precision};
/// let x = ndarray::Array2::from_shape_fn((80, 1), |(i, _)| i as f64 / 20.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let held_out = HeldOutRows { x: ndarray::array![[0.51], [1.77]], y: Target::Values(vec![0.51f64.sin(), 1.77f64.sin()]) };
/// let file = std::env::temp_dir().join(format!("doc-{}.checkpoint", std::process::id()));
/// let mut monitoring = Monitoring { checkpoint: Some(Checkpoint::new(&file)), held_out: Some(held_out) };
/// let (alpha, solver) = (Alpha::Fixed(1e-3), RidgeSolver::conjugate_gradients(Precision::F64));
/// let ridge = Ridge { alpha, solver, monitoring: monitoring.clone(), ..Ridge::new(Kernel::parse("rbf(1)")?) };
/// let fitted = ridge.fit(x.view(), &y, &FitContext::default())?;
/// assert!(fitted.convergence.held_out.last().unwrap().error < 1e-2);
/// // The state of a run that was interrupted is continued; that of a finished one is its result.
/// monitoring.checkpoint.as_mut().unwrap().resume = true;
/// let again = Ridge { monitoring, ..ridge }.fit(x.view(), &y, &FitContext::default())?;
/// assert_eq!(again.coefficients, fitted.coefficients);
/// # std::fs::remove_file(&file).unwrap();
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Monitoring {
    /// Where the state of the solver is kept. A solver that factors a matrix has none.
    pub checkpoint: Option<Checkpoint>,
    /// Rows that are not fitted; their error is measured along the iterations.
    pub held_out: Option<HeldOutRows>,
}

/// Rows with their targets that are not fitted. Example: [`Monitoring`].
#[derive(Clone, Debug, PartialEq)]
pub struct HeldOutRows {
    /// `[m, d]`
    pub x: Array2<f64>,
    /// `[m]`
    pub y: Target,
}

/// An iterative solver in words. Example: [`Regression`](crate::apply::Regression).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolverName {
    /// Its name.
    pub name: &'static str,
    /// What it counts, one of them.
    pub unit: &'static str,
}

impl Default for SolverName {
    fn default() -> SolverName {
        SolverName { name: "conjugate gradients", unit: "product" }
    }
}

/// How an iterative solver went; all empty for a direct one. Example: [`Monitoring`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Convergence {
    /// Products with the matrix, or passes over it.
    pub iterations: Option<usize>,
    /// The relative residual that was reached.
    pub residual: Option<f64>,
    /// The relative residual after each of them.
    pub curve: Vec<f64>,
    /// The error on held-out rows along the way; a file does not keep it.
    pub held_out: Vec<HeldOutError>,
}

/// The error on held-out rows at some point of an iteration. Example: [`Monitoring`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOutError {
    /// Iterations done; the place in the curve of residuals, counted from 1.
    pub iteration: usize,
    /// The root of the mean squared error of numbers, or the share of the rows whose class is wrong.
    pub error: f64,
}

impl Convergence {
    pub(crate) fn of(found: &Converged) -> Convergence {
        let (curve, held_out) = (found.curve.clone(), found.held_out.clone());
        Convergence { iterations: Some(found.iterations), residual: Some(found.residual), curve, held_out }
    }

    /// A warning where an iteration ended above its tolerance: the solver's name, whether it `was` or `were`, and its unit; whether it was interrupted,
    /// and with a checkpoint; and what else helps.
    pub(crate) fn early_end(
        &self,
        [name, was, unit]: [&str; 3],
        tolerance: f64,
        (interrupted, kept): (bool, bool),
        advice: &str,
    ) -> Option<String> {
        let (iterations, residual) = (self.iterations?, self.residual.filter(|residual| *residual > tolerance)?);
        let ended = if interrupted { format!("{was} interrupted") } else { "stopped".into() };
        let advice =
            if interrupted && kept { concat!(crate::advice!(ContinueRun), " from its checkpoint") } else { advice };
        Some(format!(
            "{name} {ended} after {iterations} {unit} at a relative residual of {residual:.1e}, above the {tolerance:.0e} asked for; this best \
             iterate is used: {advice} for a better one"
        ))
    }

    pub(crate) fn pack(&self, bundle: &mut Bundle<'_>) -> Result<()> {
        bundle.set("iterations", self.iterations);
        bundle.set("residual", self.residual);
        bundle.set("curve", &self.curve);
        Ok(())
    }

    pub(crate) fn unpack(bundle: &Bundle, _: Device) -> Result<Convergence> {
        let (iterations, residual) = (bundle.value("iterations")?, bundle.value("residual")?);
        Ok(Convergence { iterations, residual, curve: bundle.value("curve")?, held_out: vec![] })
    }
}

/// Rows whose error is measured, at most: that many tell a share of classes to about a hundredth.
const MOST_ROWS: usize = 2000;

/// The share of the solver's own work that measuring may take.
const SHARE: f64 = 0.1;

/// Held-out rows, and what their predictions mean.
pub(crate) struct HeldOut<'a> {
    /// `[m, d]`
    pub x: Array2<f64>,
    truth: Target,
    encoding: &'a Encoding,
    /// What is added to every prediction `[c]`.
    offset: &'a Array1<f64>,
}

impl<'a> HeldOut<'a> {
    /// At most [`MOST_ROWS`] of `rows`, at equal distances, for a model of points with `d` columns.
    pub fn new(rows: &HeldOutRows, d: usize, encoding: &'a Encoding, offset: &'a Array1<f64>) -> Result<HeldOut<'a>> {
        check_points(rows.x.view())?;
        let (m, columns) = rows.x.dim();
        fail_if!(columns != d, "the held-out rows have {columns} columns, and the points {d}");
        fail_if!(rows.y.len() != m, "there are {m} held-out rows but {} targets", rows.y.len());
        let same = matches!((encoding, &rows.y), (Encoding::Values, Target::Values(_)) | (Encoding::Classes(_), _));
        fail_if!(!same, "the targets of the held-out rows are classes, and those of the points are numbers");
        let chosen: Vec<usize> = (0..m).step_by(m.div_ceil(MOST_ROWS)).collect();
        Ok(HeldOut { x: rows.x.select(Axis(0), &chosen), truth: rows.y.select(&chosen), encoding, offset })
    }

    /// The error of predictions `[m, c]` before the offset is added.
    pub fn error(&self, predicted: Array2<f64>) -> Result<f64> {
        let scores = predicted + self.offset;
        match (&self.truth, self.encoding.decode(scores.view())) {
            (Target::Values(truth), Target::Values(found)) => {
                let squares = truth.iter().zip(&found).map(|(y, f)| (y - f) * (y - f)).sum::<f64>();
                Ok((squares / truth.len() as f64).sqrt())
            }
            (truth, found) => Ok(1.0 - ClassReport::new(truth, &found, None)?.accuracy),
        }
    }

    /// Of the points and their targets.
    pub fn fingerprint(&self) -> Fingerprint {
        let y: Vec<u64> = match &self.truth {
            Target::Values(values) => values.iter().map(|v| v.to_bits()).collect(),
            Target::Classes { labels, .. } => labels.iter().map(|&label| label as u64).collect(),
        };
        Fingerprint::of(self.x.iter().map(|v| v.to_bits())).then(y)
    }

    /// Iterations between two measurements, each of which takes `m/n` of an iteration on n points.
    pub fn every(&self, n: usize) -> usize {
        ((self.x.nrows() as f64 / n as f64 / SHARE).ceil() as usize).max(1)
    }
}

/// Measures the error on held-out rows along an iteration.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'a> {
    /// Iterations between two measurements.
    pub every: usize,
    /// The error of an iterate `[n, c]`.
    pub error: &'a dyn Fn(&Panel) -> Result<f64>,
}

impl Watch<'_> {
    /// Whether a measurement is due after `done` iterations; one is, where they have converged.
    pub fn due(&self, done: usize, found: &[HeldOutError], converged: bool) -> bool {
        let due = done > 0 && (converged || done.is_multiple_of(self.every));
        due && found.last().is_none_or(|last| last.iteration != done)
    }
}

/// Where the state of an iteration is kept, and whose it is.
pub(crate) struct Kept<'a> {
    pub saving: Saving<'a>,
    pub identity: Identity,
    /// What was found before the iteration began.
    pub plan: serde_json::Value,
}

/// What an iteration does beside its steps.
#[derive(Default)]
pub(crate) struct Monitor<'a> {
    pub kept: Option<&'a Kept<'a>>,
    pub watch: Option<Watch<'a>>,
    /// Gets the Krylov spaces of conjugate gradients from the start zero.
    pub record: Option<&'a mut Krylov>,
}

impl<'a> Monitor<'a> {
    pub fn saving(&self) -> Saving<'a> {
        self.kept.map_or(Saving::NONE, |kept| kept.saving)
    }

    pub fn identity(&self) -> Identity {
        self.kept.map_or(vec![], |kept| kept.identity.clone())
    }

    /// How an iteration stands that has measured nothing yet.
    pub fn begin(self) -> Course<'a> {
        Course { monitor: self, curve: vec![], held_out: vec![], best: None }
    }
}

/// What an iteration has measured so far, and its best iterate.
pub(crate) struct Course<'a> {
    pub monitor: Monitor<'a>,
    /// The relative residual after each iteration.
    pub curve: Vec<f64>,
    pub held_out: Vec<HeldOutError>,
    /// The iterate with the least residual, and that residual.
    pub best: Option<(f64, Panel)>,
}

impl Course<'_> {
    /// Whether an error on held-out rows is due.
    pub fn due(&self, ended: bool) -> bool {
        self.monitor.watch.is_some_and(|watch| watch.due(self.curve.len(), &self.held_out, ended))
    }

    /// Measures the error of the iterate `x` `[n, c]` on held-out rows, where there are some.
    pub fn validate(&mut self, x: &Panel) -> Result<()> {
        if let Some(watch) = self.monitor.watch {
            let error = (watch.error)(x)?;
            self.held_out.push(HeldOutError { iteration: self.curve.len(), error });
        }
        Ok(())
    }

    /// The least residual so far; infinite before the first.
    pub fn least(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |(least, _)| *least)
    }

    /// How the iteration stands, in words.
    pub fn note(&self) -> String {
        let residual = self.curve.last().map(|now| format!("residual {now:.1e}")).unwrap_or_default();
        let held_out = self.held_out.last().map(|last| format!(", held-out error {:.4}", last.error));
        residual + &held_out.unwrap_or_default()
    }

    /// Puts it into a checkpoint.
    pub fn save(&self, bundle: &mut Bundle) -> Result<()> {
        bundle.set("plan", self.monitor.kept.map(|kept| &kept.plan));
        bundle.set("curve", &self.curve);
        bundle.set("held_out", &self.held_out);
        bundle.set("best", self.best.as_ref().map(|(residual, _)| residual));
        if let Some((_, best)) = &self.best {
            save_panel(bundle, "best", best)?;
        }
        Ok(())
    }

    /// Takes it out again, for iterates like this one.
    pub fn load(&mut self, bundle: &Bundle, like: &Panel) -> Result<()> {
        (self.curve, self.held_out) = (bundle.value("curve")?, bundle.value("held_out")?);
        self.best = match bundle.value("best")? {
            Some(residual) => Some((residual, load_panel(bundle, "best", like)?)),
            None => None,
        };
        Ok(())
    }
}

/// Puts vectors into a checkpoint; those that ranks share, a part at a time.
pub(crate) fn save_panel(bundle: &mut Bundle, name: &str, panel: &Panel) -> Result<()> {
    bundle.put_sharded(name, panel.own_rows()?, panel.sharding());
    Ok(())
}

/// Takes vectors out of a checkpoint again, of the shape, on the device and sharded as those of `like`.
pub(crate) fn load_panel(bundle: &Bundle, name: &str, like: &Panel) -> Result<Panel> {
    let whole = matrix(bundle, name, (like.nrows(), like.ncols()))?;
    like.sharding().panel(like.device(), whole.view())
}
