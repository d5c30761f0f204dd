//! A Gaussian process by name: what it is built for, and what it becomes.

use super::fitted_process::FittedProcess;
use crate::apply::Fit;
use crate::data::Target;
use crate::kernel::Expression;
use crate::operator::Budget;
use crate::options::{Builds, Entry};
use crate::{FitContext, Result, fail_if};
use ndarray::ArrayView2;

/// A kernel and the rows that a Gaussian process is built for. Example: [`learn::processes`](crate::learn::processes).
#[derive(Clone, Debug)]
pub struct ProcessTask {
    /// κ, with numbers, `median`, `auto` or `ard` for its lengthscales.
    pub kernel: Expression,
    /// Rows.
    pub n: usize,
    /// Columns.
    pub d: usize,
    /// Whether the targets are classes.
    pub classes: bool,
    /// Whether the columns are the values of sampled functions.
    pub functions: bool,
    /// Memory that the fit may take.
    pub budget: Budget,
}

impl ProcessTask {
    /// For n rows of d columns with targets `y`.
    pub fn new(kernel: Expression, (n, d): (usize, usize), y: &Target, context: &FitContext) -> ProcessTask {
        let classes = matches!(y, Target::Classes { .. });
        ProcessTask { kernel, n, d, classes, functions: false, budget: context.budget }
    }

    /// For the values of S functions at n rows, `[n, S]`, under their kernel `x·x'/S`.
    pub fn of_functions((n, s): (usize, usize), y: &Target, context: &FitContext) -> Result<ProcessTask> {
        let kernel = Expression::parse(&format!("{}*linear", 1.0 / s as f64))?;
        Ok(ProcessTask { functions: true, ..ProcessTask::new(kernel, (n, s), y, context) })
    }
}

impl Builds for ProcessTask {
    type Built = Process;

    fn check(&self, entry: &Entry<ProcessTask>) -> Result<()> {
        fail_if!(
            self.classes && !entry.can.classes,
            "the method {} predicts numbers, and the target holds classes; use the method exact, or {logistic}",
            entry.name,
            logistic = crate::advice!(Logistic)
        );
        fail_if!(
            self.functions && !entry.can.functions,
            "the method {} is for kernels; with sampled functions the functions are the features; use the method auto",
            entry.name
        );
        Ok(())
    }
}

/// Fits a process to points `[n, d]` with their targets.
type FitProcess = dyn Fn(ArrayView2<f64>, &Target, &FitContext) -> Result<Box<dyn FittedProcess>> + Send + Sync;

/// A Gaussian process that was built by its name. Example: [`learn::processes`](crate::learn::processes).
pub struct Process {
    fit: Box<FitProcess>,
    /// Why the posterior is computed as it is; none where there is no choice.
    pub why: Option<String>,
}

impl Process {
    pub(crate) fn new<P>(process: P, why: impl Into<Option<String>>) -> Process
    where
        P: Fit<Target = Target, Fitted: FittedProcess + 'static> + Send + Sync + 'static,
    {
        let fit = move |x: ArrayView2<f64>, y: &Target, context: &FitContext| -> Result<Box<dyn FittedProcess>> {
            Ok(Box::new(process.fit(x, y, context)?))
        };
        Process { fit: Box::new(fit), why: why.into() }
    }

    /// The posterior given points `x` `[n, d]` and their targets `y` `[n]`.
    pub fn fit(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Box<dyn FittedProcess>> {
        (self.fit)(x, y, context)
    }
}
