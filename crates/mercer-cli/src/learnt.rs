//! What `mercer regress` fitted.

use crate::show::units;
use mercer::Result;
use mercer::apply::{
    Convergence, FittedNadarayaWatson, FoundKernel, Memory, MetricForm, Predict as _, SavedPredict, Tried, TriedMetric,
};
use mercer::data::Schema;
use mercer::kernel::Kernel;
use mercer::spectrum::Origin;
use ndarray::{Array2, ArrayView2};
use serde::Serialize;

/// A fitted model, and how it was chosen.
pub struct Learnt {
    pub model: Model,
    /// Why the method was chosen, where it was not given.
    pub why: Option<String>,
    pub tried: Vec<Tried>,
    /// The error of what was tried, in words.
    pub measure: &'static str,
    /// The number that was given or chosen.
    pub parameter: (&'static str, f64),
    /// How an iterative solver went.
    pub convergence: Convergence,
    /// Landmarks, features or eigenfunctions.
    pub rank: Option<usize>,
    /// The search for the kernel, where there was one.
    pub search: Option<FoundKernel>,
    /// The metrics that a recursive feature machine tried, and how often its own was replaced.
    pub metrics: Option<(Vec<TriedMetric>, MetricForm, usize)>,
    /// How often the file was read, where that was in blocks, the bytes of memory that were expected, and the rows that the score on
    /// training rows is measured on.
    pub blocks: Option<InBlocks>,
    /// The memory that was expected at most, where the solver estimates it.
    pub expected: Option<Memory>,
}

/// A fit to rows in blocks.
#[derive(Serialize)]
pub struct InBlocks {
    pub passes: usize,
    pub expected_memory: u64,
    pub train_rows: usize,
}

/// A fitted estimator; averages also tell which points no example reaches.
pub enum Model {
    Average(Box<FittedNadarayaWatson>),
    Other(Box<dyn SavedPredict>),
}

impl Learnt {
    /// What predicts, and can be saved.
    pub fn model(&self) -> &dyn SavedPredict {
        match &self.model {
            Model::Average(model) => model.as_ref(),
            Model::Other(model) => model.as_ref(),
        }
    }

    pub fn origin(&self) -> &Origin {
        self.model().origin()
    }

    /// Writes the kernels that were tried with periods in the units of the columns.
    pub fn in_units_of(&mut self, schema: Option<&Schema>) {
        for tried in self.search.iter_mut().flat_map(|found| &mut found.tried) {
            tried.kernel = units::as_written(&tried.kernel, schema);
        }
    }

    /// The kernel of averages with the bandwidth in it, where that is not 1.
    pub fn stretched(&self) -> Option<String> {
        let Model::Average(average) = &self.model else { return None };
        let kernel = Kernel::parse(&average.origin().kernel).ok()?.stretched(average.bandwidth).ok()?;
        (average.bandwidth != 1.0).then(|| kernel.to_string())
    }

    /// Scores at points `[m, d]`, and the rows that no example reaches.
    pub fn scores(&self, x: ArrayView2<f64>) -> Result<(Array2<f64>, Vec<usize>)> {
        match &self.model {
            Model::Average(model) => model.averages(x).map(|averages| (averages.scores, averages.unreached)),
            Model::Other(model) => Ok((model.scores(x)?, vec![])),
        }
    }

    pub fn new(model: impl SavedPredict + 'static, alpha: f64, tried: Vec<Tried>) -> Learnt {
        Learnt {
            model: Model::Other(Box::new(model)),
            why: None,
            tried,
            measure: "mean squared error",
            parameter: ("alpha", alpha),
            convergence: Convergence::default(),
            rank: None,
            search: None,
            metrics: None,
            blocks: None,
            expected: None,
        }
    }
}
