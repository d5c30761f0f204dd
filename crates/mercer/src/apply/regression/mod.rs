//! What the regressions of the registry are built for, and what they become.
//!
//! An entry of the family becomes a [`Regression`]: the kernels to choose among, and an [`Estimator`] that fits the best of them. Most
//! estimators fit points under a kernel whose parameters are numbers ([`UnderKernel`]); [`Searched`] finds these first.

pub(crate) mod in_blocks;
pub(crate) mod of_matrix;
pub(crate) mod on_features;
pub(crate) mod on_landmarks;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod searched;

pub(crate) use options::{IterationOptions, KernelOptions, Objective, RANK};
pub(crate) use searched::{Searched, UnderKernel};

use crate::apply::{HeldOutRows, Monitoring};
use crate::data::{BlockDataset, Rows, Target};
use crate::kernel::Expression;
use crate::operator::Precision;
use crate::options::{Builds, Entry, Options};
use crate::{Error, FitContext, Result, fail_if};
use in_blocks::InBlocks;
use ndarray::ArrayView2;
use outcome::Outcome;

/// The kernel where none is given.
pub(crate) const KERNEL: &str = "rbf(lengthscale=median)";

/// What a regression is built for. Example: [`Regression`].
#[derive(Clone, Debug, Default)]
pub struct RegressionTask {
    /// The kernel expression, where one is given.
    pub kernel: Option<String>,
    /// Whether a kernel matrix takes the place of points and a kernel.
    pub matrix: bool,
    /// Whether a constant is fitted; without it, as the method does.
    pub intercept: Option<bool>,
    /// Precision of kernel values.
    pub precision: Precision,
}

impl Builds for RegressionTask {
    type Built = Regression;

    fn check(&self, entry: &Entry<Self>) -> Result<()> {
        let name = entry.name;
        fail_if!(
            self.precision != Precision::F64 && !entry.can.precision,
            "precision {} is for methods on kernel values; the method {name} computes in f64",
            self.precision.name()
        );
        fail_if!(
            self.matrix && !entry.can.matrix,
            "the method {name} needs a kernel expression; a kernel matrix is for the method ridge"
        );
        fail_if!(
            self.intercept == Some(false) && !entry.can.no_intercept,
            "the method {name} always has an intercept; take another one, such as ridge, to leave it out"
        );
        Ok(())
    }
}

/// A regression that an entry of the registry became.
///
/// ```
/// use mercer::apply::{Examples, RegressionTask};
/// use mercer::{FitContext, data::Target, learn, options::{Options, Spelling}};
/// let given = serde_json::from_str(r#"{"rank": 20, "alpha": 1e-3}"#).unwrap();
/// let known = RegressionTask { kernel: Some("rbf(1)".into()), ..RegressionTask::default() };
/// let nystrom = learn::regressions().build("nystrom", Options::new(given, Spelling::Python), &known)?;
/// let x = ndarray::Array2::from_shape_fn((80, 1), |(i, _)| i as f64 / 20.0);
/// let y = Target::Values(x.iter().map(|x| x.sin()).collect());
/// let examples = Examples { x: x.view().into(), y: &y, watched: None };
/// let outcome = nystrom.learn(learn::Source::Memory(examples), &FitContext::default())?;
/// assert_eq!((outcome.rank, outcome.parameter), (Some(20), ("alpha", 1e-3)));
/// assert!((outcome.model.scores(ndarray::array![[2.22]].view())?[[0, 0]] - 2.22f64.sin()).abs() < 1e-3);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct Regression {
    /// The kernels to choose among, as they are written.
    pub kernels: Vec<Expression>,
    estimator: Box<dyn Estimator>,
}

/// Rows to learn from, all of them in memory. Example: [`Regression`].
#[derive(Clone)]
pub struct Examples<'a> {
    /// `[n, d]`
    pub x: Rows<'a>,
    /// `[n]`
    pub y: &'a Target,
    /// Rows whose error an iterative solver measures along the way.
    pub watched: Option<HeldOutRows>,
}

/// What fits examples under the best of some kernels, where the rows allow it.
pub(crate) trait Estimator: Send + Sync {
    /// Fits rows in memory.
    fn learn(&self, kernels: &[Expression], examples: &Examples, context: &FitContext) -> Result<Outcome>;

    /// How rows in blocks are fitted, where they can be.
    fn in_blocks<'a>(&'a self, _: &'a [Expression]) -> Option<InBlocks<'a>> {
        None
    }

    /// Whether ranks can each hold a part of the points.
    fn shards(&self, _: &[Expression]) -> bool {
        false
    }

    /// Fits points of which each rank reads its own.
    fn learn_shards(
        &self,
        _: &[Expression],
        _: &BlockDataset,
        _: Option<HeldOutRows>,
        _: &FitContext,
    ) -> Result<Outcome> {
        Err(Error::input("the method needs all rows in one process"))
    }
}

impl Regression {
    /// Fits what `kernels` says by `estimator`.
    pub(crate) fn new(kernels: Vec<Expression>, estimator: impl Estimator + 'static) -> Regression {
        Regression { kernels, estimator: Box::new(estimator) }
    }

    /// By the best of the kernels that the options name, whose parameters the search finds where they are open.
    pub(crate) fn searched(
        o: &mut Options,
        known: &RegressionTask,
        objective: Objective,
        estimator: impl UnderKernel + 'static,
    ) -> Result<Regression> {
        let KernelOptions { kernels, criterion } = KernelOptions::of(o, known.kernel.as_deref(), KERNEL)?;
        Ok(Regression::new(kernels, Searched { criterion, objective, estimator }))
    }

    /// Under one kernel, of which the estimator finds what is open itself.
    pub(crate) fn of_one(
        known: &RegressionTask,
        usual: &str,
        estimator: impl Estimator + 'static,
    ) -> Result<Regression> {
        let kernel = Expression::parse(known.kernel.as_deref().unwrap_or(usual))?;
        Ok(Regression::new(vec![kernel], estimator))
    }

    /// How rows in blocks are fitted; an error where the method or its options need all rows in memory.
    pub fn in_blocks(&self) -> Result<InBlocks<'_>> {
        let refused =
            || Error::input("the method needs all rows in memory; nystrom, random-features and linear do not");
        self.estimator.in_blocks(&self.kernels).ok_or_else(refused)
    }

    /// Whether ranks can each hold a part of the points, under a kernel that is known.
    pub fn shards(&self) -> bool {
        self.estimator.shards(&self.kernels)
    }

    pub(crate) fn estimator(&self) -> &dyn Estimator {
        self.estimator.as_ref()
    }
}

/// Points under a kernel whose parameters are numbers.
pub(crate) struct Points<'a> {
    /// `[n, d]`, or the rows of this rank
    pub x: ArrayView2<'a, f64>,
    pub y: &'a Target,
    pub watched: Option<&'a HeldOutRows>,
    /// Whether each rank has some of the points.
    pub is_sharded: bool,
    pub context: &'a FitContext<'a>,
}

impl Points<'_> {
    /// What an iterative solver keeps and measures.
    pub fn monitoring(&self, iteration: &IterationOptions) -> Monitoring {
        Monitoring { checkpoint: iteration.checkpoint.clone(), held_out: self.watched.cloned() }
    }
}
