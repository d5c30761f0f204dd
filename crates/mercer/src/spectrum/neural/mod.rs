//! Neural eigenfunctions: networks trained into the top eigenfunctions of an operator, under one loop.
//!
//! | file | what |
//! |---|---|
//! | [`Action`] | what the loop needs of an operator: [`KernelAction`], [`OperatorAction`], [`Schroedinger`] |
//! | [`Functions`] | networks as functions `ψ(x)` |
//! | [`Objective`] | from ψ and Kψ to a gradient; one file each: [`NeuralEf`], [`Spin`], [`Nested`], [`Ritz`] |
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
mod nested;
mod neuralef;
mod objective;
mod record;
mod ritz;
mod schroedinger;
mod spin;
mod training;

pub use action::{Action, Batch, KernelAction, OperatorAction, Standard, sample_rows};
pub use features::NetworkFeatures;
pub use finish::{Pairs, rayleigh_ritz};
pub use functions::{Envelope, Functions, Layout};
pub use nested::{Nested, Nesting};
pub use neuralef::NeuralEf;
pub use objective::{Objective, Outcome, Step, form, mix};
pub use record::{Stop, Training};
pub use ritz::Ritz;
pub use schroedinger::{Exponentials, Gaussian, Guide, Schroedinger};
pub use spin::Spin;
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
    /// [`Spin`]
    Spin {
        /// Share of the old value that the moving averages keep at each step.
        decay: f64,
    },
    /// [`Nested`]
    Nested {
        /// Sequential or joint; without it joint where networks share a trunk and sequential where they do not.
        nesting: Option<Nesting>,
    },
    /// [`Ritz`]
    Ritz,
}

impl Kind {
    /// The objectives by name, each with its usual constants.
    pub const ALL: [(&'static str, Kind); 4] = [
        ("neuralef", Kind::NeuralEf { averaged: false }),
        ("spin", Kind::Spin { decay: 0.99 }),
        ("nested", Kind::Nested { nesting: None }),
        ("ritz", Kind::Ritz),
    ];

    /// Its name in the program and in saved models.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NeuralEf { .. } => "neuralef",
            Kind::Spin { .. } => "spin",
            Kind::Nested { .. } => "nested",
            Kind::Ritz => "ritz",
        }
    }

    /// The objective for the top `k` pairs by `functions`, which [`Kind::functions`] made.
    pub fn objective(self, functions: &Functions, k: usize) -> Result<Box<dyn Objective>> {
        let shared = functions.share_parameters()?;
        Ok(match self {
            Kind::NeuralEf { averaged } => Box::new(NeuralEf::new(averaged)),
            Kind::Spin { .. } if shared => {
                return Err(Error::input(format!(
                    "SpIN needs networks that share nothing, and \"{}\" has a shared trunk; leave out the | or use another objective",
                    functions.network().expression()
                )));
            }
            Kind::Spin { decay } => Box::new(Spin::new(decay)?),
            Kind::Nested { nesting } => {
                let usual = if shared { Nesting::Joint } else { Nesting::Sequential };
                Box::new(Nested::new(nesting.unwrap_or(usual)))
            }
            Kind::Ritz => Box::new(Ritz::new(k)),
        })
    }

    /// The functions that this objective trains, by networks of one architecture on points of `d` columns: k
    /// normalised ones, k whose norm carries the eigenvalue (nested), or the last hidden units (Ritz).
    pub fn functions(self, architecture: &str, d: usize, k: usize, rng: &Rng) -> Result<Functions> {
        match self {
            Kind::NeuralEf { .. } | Kind::Spin { .. } => Functions::networks(architecture, d, k, true, rng),
            Kind::Nested { .. } => Functions::networks(architecture, d, k, false, rng),
            Kind::Ritz => {
                let functions = Functions::hidden_units(architecture, d, rng)?;
                if functions.count() < k {
                    return Err(Error::input(format!(
                        "{} hidden units cannot give k = {k} functions; widen the last hidden layer of \"{architecture}\"",
                        functions.count()
                    )));
                }
                Ok(functions)
            }
        }
    }
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
    /// With the usual settings: 2000 steps, and 200 for Ritz, whose last layer needs none.
    pub fn new(kind: Kind) -> Self {
        let mut settings = Settings::default();
        if kind == Kind::Ritz {
            settings.steps = 200;
        }
        Neural { kind, architecture: None, settings, finish: true, finish_points: 8192, interrupt: None }
    }

    /// The networks for points of `d` columns and `k` functions where none are given: two hidden layers of half sines,
    /// half cosines, 32 wide on the line and in the plane and 64 above. Ritz needs one network only, and has it wider.
    pub fn default_architecture(&self, d: usize, k: usize) -> String {
        let h = if d <= 2 { 32 } else { 64 };
        match self.kind {
            Kind::Ritz => format!("dense({h}) sincos dense({}) sincos dense(1)", (2 * h).max(4 * k)),
            _ => format!("dense({h}) sincos dense({h}) sincos dense(1) l2norm"),
        }
    }

    fn functions(&self, d: usize, k: usize, rng: &Rng) -> Result<Functions> {
        let architecture = self.architecture.clone().unwrap_or_else(|| self.default_architecture(d, k));
        let functions = self.kind.functions(&architecture, d, k, rng)?;
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
        self.kind.name().into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let seed = Rng::new(problem.seed);
        let functions = self.functions(problem.x.ncols(), problem.k, &seed.fork(1))?;
        let mut action = KernelAction::new(problem.kernel, problem.x, problem.precision)?;
        let mut objective = self.kind.objective(&functions, problem.k)?;
        let keep_best = self.settings.keep_best && self.finish;
        let settings = Settings { seed: problem.seed, keep_best, ..self.settings.clone() };
        let watch = Watch { progress: problem.progress, interrupt: self.interrupt };
        let Trained { mut functions, mut record } =
            train(&mut action, functions, objective.as_mut(), problem.k, &settings, watch)?;
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
