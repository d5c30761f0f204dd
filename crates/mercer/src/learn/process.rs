//! Gaussian processes by the way in which their posterior is computed.

use crate::apply::{
    FeatureProcess, GaussianProcess, GaussianProcessClassifier, IterativeProcess, Process, ProcessFeatures,
    ProcessTask, Tuning,
};
use crate::options::{Caps, Entry, Family, Options};
use crate::{Error, Result};
use std::sync::LazyLock;

/// Every way to compute the posterior of a Gaussian process, the choice among them first.
///
/// ```
/// use mercer::apply::ProcessTask;
/// use mercer::{FitContext, data::Target, kernel::Expression, learn, options::Options};
/// let x = ndarray::Array2::from_shape_fn((40, 1), |(i, _)| i as f64 / 8.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let context = FitContext::default();
/// let task = ProcessTask::new(Expression::parse("rbf(lengthscale=auto)")?, x.dim(), &y, &context);
/// let process = learn::processes().build("auto", Options::none(), &task)?;
/// assert!(process.why.as_ref().unwrap().starts_with("method exact: 40 rows are few enough"));
/// let fitted = process.fit(x.view(), &y, &context)?;
/// assert_eq!(fitted.likelihood().name, "log marginal likelihood");
/// assert!((fitted.scores(ndarray::array![[2.03]].view())?[[0, 0]] - 2.03f64.sin()).abs() < 1e-3);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn processes() -> &'static Family<ProcessTask> {
    static PROCESSES: LazyLock<Family<ProcessTask>> = LazyLock::new(|| Family {
        noun: "method",
        entries: [automatic(), GaussianProcess::entry(), IterativeProcess::entry()]
            .into_iter()
            .chain(FeatureProcess::entries())
            .collect(),
        renamed: &[],
    });
    &PROCESSES
}

/// Most rows of the exact posterior by default: its factorisation takes seconds there.
const EXACT: usize = 8000;

fn automatic() -> Entry<ProcessTask> {
    Entry {
        can: Caps { numbers: true, classes: true, functions: true, ..Caps::default() },
        ..Entry::<ProcessTask>::new(
            "auto",
            "exact up to 8000 rows and for classes, else nystrom; with sampled functions by the smaller of rows and functions",
            [&[ProcessFeatures::RANK][..], &Tuning::OPTIONS].concat(),
            choice,
        )
    }
}

/// The posterior that suits the rows, and why.
fn choice(o: &mut Options, task: &ProcessTask) -> Result<Process> {
    let (n, d) = (task.n, task.d);
    let all_rows = o.spelling().set("method", "cg");
    match o.given(&[ProcessFeatures::RANK]).map(|rank| o.option(rank)) {
        Some(rank) if task.classes || task.functions => {
            Err(Error::input(format!("{rank} is for numbers under a kernel, of which features are made; leave it out")))
        }
        Some(rank) => FeatureProcess::of_landmarks(o, task, &format!("{rank} was given")),
        None if task.classes => GaussianProcessClassifier::built(o, task),
        None if task.functions && d <= n => FeatureProcess::of_columns(o, task),
        None if task.functions => {
            GaussianProcess::built(o, task, &format!("{n} rows are fewer than the {d} functions"))
        }
        None if n > EXACT => {
            let why =
                format!("{n} rows are too many for the exact posterior in seconds ({all_rows} takes all of them)");
            FeatureProcess::of_landmarks(o, task, &why)
        }
        None if !task.budget.allows(GaussianProcess::memory(n)) => {
            let why = format!("the matrix of {n} rows does not fit the memory ({all_rows} takes all without it)");
            FeatureProcess::of_landmarks(o, task, &why)
        }
        None => {
            GaussianProcess::built(o, task, &format!("{n} rows are few enough for the posterior given all of them"))
        }
    }
}
