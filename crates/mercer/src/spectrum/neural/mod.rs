//! Neural eigenfunctions: networks trained into the top eigenfunctions of an operator, under one loop.
//!
//! | file | what |
//! |---|---|
//! | [`Action`] | what the loop needs of an operator: [`KernelAction`], [`OperatorAction`], [`Schroedinger`] |
//! | [`Functions`] | networks as functions `ψ(x)` |
//! | [`Objective`] | from ψ and Kψ to a gradient; one file each: [`NeuralEf`] |
//! | [`train`] | the loop: batches, validation, checkpoints, recovery |
//! | [`rayleigh_ritz`] | the finish: the best pairs within the span of the functions |
//! | [`NetworkFeatures`] | the result as features of a [`crate::spectrum::Spectrum`] |
//!
//! To add an objective: one file that implements [`Objective`], and its line in [`Kind`]. To train on another operator:
//! implement [`Action`], then [`train`] and [`rayleigh_ritz`].

mod action;
mod checkpoint;
mod features;
mod finish;
mod functions;
mod neuralef;
mod objective;
mod record;
mod schroedinger;
mod training;

pub use action::{Action, Batch, KernelAction, OperatorAction, Standard, sample_rows};
pub use features::NetworkFeatures;
pub use finish::{Pairs, rayleigh_ritz};
pub use functions::{Envelope, Functions, Layout};
pub use neuralef::NeuralEf;
pub use objective::{Objective, Outcome, Step, form, mix};
pub use record::{Stop, Training};
pub use schroedinger::{Exponentials, Gaussian, Guide, Schroedinger};
pub use training::{Course, Settings, Trained, Watch, train};

use super::{Method, Problem, Solution, zero_threshold};
use crate::rng::Rng;
use crate::{Error, Result};
use ndarray::{Array2, Axis};
use std::sync::atomic::AtomicBool;

/// Which objective trains the networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// [`NeuralEf`]
    NeuralEf {
        /// Moving averages for the Gram–Schmidt coefficients rather than the batch's own.
        averaged: bool,
    },
}

/// Eigenfunctions by trained networks.
///
/// ```
/// use mercer::{kernel::Kernel, spectrum::{Problem, Spectrum, neural::{Kind, Neural}}};
/// let x = ndarray::Array2::from_shape_fn((300, 1), |(i, _)| i as f64 / 75.0 - 2.0);
/// let kernel = Kernel::parse("rbf(1)")?;
/// let mut method = Neural::new(Kind::NeuralEf { averaged: false });
/// method.settings.steps = 100;
/// let spectrum = Spectrum::fit(&method, &Problem::new(&kernel, x.view(), 3), None)?;
/// assert!((spectrum.eigenvalues[0] - 0.52).abs() < 0.02);
/// assert_eq!(spectrum.training().unwrap().raw_eigenvalues.len(), 3);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Neural<'a> {
    /// The objective.
    pub kind: Kind,
    /// The networks, see [`crate::net`]; without it [`Neural::default_architecture`].
    pub architecture: Option<String>,
    /// Budget, optimiser, checkpoints. Its seed is replaced by the problem's.
    pub settings: Settings,
    /// Whether Rayleigh–Ritz over a large sample ends the training; otherwise the functions and eigenvalues are those
    /// of the objective itself.
    pub finish: bool,
    /// Most points of that sample.
    pub finish_points: usize,
    /// Set from outside to end training early with what there is.
    pub interrupt: Option<&'a AtomicBool>,
}

impl Neural<'_> {
    /// With the usual settings.
    pub fn new(kind: Kind) -> Self {
        Neural {
            kind,
            architecture: None,
            settings: Settings::default(),
            finish: true,
            finish_points: 8192,
            interrupt: None,
        }
    }

    /// The networks for points of `d` columns and `k` functions where none are given: two hidden layers of half sines,
    /// half cosines, 32 wide on the line and wider above it.
    pub fn default_architecture(&self, d: usize, _k: usize) -> String {
        let h = if d <= 2 { 32 } else { 64 };
        format!("dense({h}) sincos dense({h}) sincos dense(1) l2norm")
    }

    fn objective(&self) -> Box<dyn Objective> {
        match self.kind {
            Kind::NeuralEf { averaged } => Box::new(NeuralEf::new(averaged)),
        }
    }

    fn functions(&self, d: usize, k: usize, rng: &Rng) -> Result<Functions> {
        let architecture = self.architecture.clone().unwrap_or_else(|| self.default_architecture(d, k));
        let functions = Functions::networks(&architecture, d, k, true, rng)?;
        if functions.outputs() != 1 {
            return Err(Error::input(format!(
                "\"{architecture}\" has {} outputs; an eigenfunction of a scalar kernel has one: end it with dense(1)",
                functions.outputs()
            )));
        }
        Ok(functions)
    }
}

impl Method for Neural<'_> {
    fn name(&self) -> String {
        self.objective().name().into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let seed = Rng::new(problem.seed);
        let functions = self.functions(problem.x.ncols(), problem.k, &seed.fork(1))?;
        let mut action = KernelAction::new(problem.kernel, problem.x, problem.precision)?;
        let settings = Settings { seed: problem.seed, keep_best: self.finish, ..self.settings.clone() };
        let watch = Watch { progress: problem.progress, interrupt: self.interrupt };
        let Trained { mut functions, mut record } =
            train(&mut action, functions, self.objective().as_mut(), problem.k, &settings, watch)?;
        let sample = action.sample(&mut seed.fork(4), self.finish_points)?;
        let pairs = rayleigh_ritz(&mut action, &mut functions, &sample, problem.k)?;
        record.finished = self.finish;
        let (eigenvalues, coefficients) = if self.finish {
            finished(&action, pairs, problem.k)
        } else {
            unfinished(&mut functions, &sample, &record.raw_eigenvalues)?
        };
        let features = Box::new(NetworkFeatures::new(&functions, action.standard(), record));
        Ok(Solution { eigenvalues, features, coefficients, at_points: None })
    }
}

/// Eigenvalues and coefficients `[p, k]` of the pairs; what is not told from zero is zero.
fn finished(action: &dyn Action, pairs: Pairs, k: usize) -> (Vec<f64>, Array2<f64>) {
    let largest = pairs.eigenvalues.first().copied().unwrap_or(0.0);
    let threshold = zero_threshold(action.roundoff(), largest);
    let mut eigenvalues = vec![0.0; k];
    let mut coefficients = Array2::zeros((pairs.coefficients.nrows(), k));
    for (j, &μ) in pairs.eigenvalues.iter().enumerate().filter(|(_, μ)| **μ > threshold) {
        eigenvalues[j] = action.eigenvalue(μ);
        coefficients.column_mut(j).assign(&pairs.coefficients.column(j));
    }
    (eigenvalues, coefficients)
}

/// The objective's own eigenvalues in descending order, and the functions brought to norm one over the sample.
fn unfinished(functions: &mut Functions, sample: &Batch, raw: &[f64]) -> Result<(Vec<f64>, Array2<f64>)> {
    let phi = functions.columns(&sample.x)?;
    let norms = phi.map_axis(Axis(0), |column| (column.dot(&column) / column.len() as f64).sqrt());
    let mut order: Vec<usize> = (0..raw.len()).collect();
    order.sort_by(|a, b| raw[*b].total_cmp(&raw[*a]));
    let mut coefficients = Array2::zeros((phi.ncols(), raw.len()));
    let mut eigenvalues = vec![0.0; raw.len()];
    for (place, &j) in order.iter().enumerate().filter(|(_, j)| raw[**j] > 0.0 && norms[**j] > 0.0) {
        eigenvalues[place] = raw[j];
        coefficients[[j, place]] = 1.0 / norms[j];
    }
    Ok((eigenvalues, coefficients))
}
