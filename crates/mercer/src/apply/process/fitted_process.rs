//! What every fitted Gaussian process tells, whichever way its posterior was computed.

use crate::Result;
use crate::apply::{SavedPredict, SearchEnd};
use crate::data::Target;
use crate::kernel::Kernel;
use ndarray::Array2;
use serde::Serialize;

/// A fitted Gaussian process of any kind. Example: [`learn::processes`](crate::learn::processes).
pub trait FittedProcess: SavedPredict {
    /// The kernel with the hyper-parameters that were found.
    fn kernel(&self) -> &Kernel;

    /// How the search for hyper-parameters ended.
    fn search(&self) -> &SearchEnd;

    /// How well the process describes the fitted targets.
    fn likelihood(&self) -> Likelihood;

    /// The variance σ² of the noise; classes have none.
    fn noise(&self) -> Option<f64> {
        None
    }

    /// How conjugate gradients ended, where the posterior is theirs.
    fn iteration(&self) -> Option<Iteration> {
        None
    }

    /// Fitted rows, with targets `y` `[n]`, each predicted from rows without it.
    fn left_out(&self, y: &Target) -> Result<LeftOut>;
}

/// `log p(y)`, or what stands for it. Example: [`learn::processes`](crate::learn::processes).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// What it is, in words.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Its standard error, where it is an estimate.
    pub error: Option<f64>,
}

impl Likelihood {
    /// A value without an error of its own.
    pub(crate) fn new(name: &'static str, value: f64) -> Likelihood {
        Likelihood { name, value, error: None }
    }

    /// `log p(y)` itself.
    pub(crate) fn exact(value: f64) -> Likelihood {
        Likelihood::new("log marginal likelihood", value)
    }
}

/// How conjugate gradients ended. Example: [`IterativeProcess`](crate::apply::IterativeProcess).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Iteration {
    /// Rank of the preconditioner.
    pub rank: usize,
    /// Products with K that the last solution took.
    pub iterations: usize,
    /// Its relative residual.
    pub residual: f64,
    /// How far deviations are above the exact ones, on average: 0.02 is 2 %.
    pub deviation_excess: f64,
}

/// Predictions of fitted rows from rows without them. Example: [`learn::processes`](crate::learn::processes).
#[derive(Clone, Debug)]
pub enum LeftOut {
    /// Rows, each with the mean and the standard deviation of its target given all others.
    Numbers(Vec<(usize, [f64; 2])>),
    /// The scores `[n, C]` of every row given the folds that it is not in.
    Scores(Array2<f64>),
}
