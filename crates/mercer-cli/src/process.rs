//! A fitted Gaussian process of any kind, and how well its predictions describe the targets.

use crate::show::score::{Score, score};
use crate::text;
use mercer::Result;
use mercer::apply::{
    FittedFeatureProcess, FittedGaussianProcess, FittedGaussianProcessClassifier, FittedIterativeProcess,
    IntervalReport, Predict, SavedPredict, SearchEnd,
};
use mercer::data::Dataset;
use mercer::kernel::Kernel;
use serde_json::{Value, json};

/// A fitted process.
pub enum Process {
    Exact(FittedGaussianProcess),
    Features(FittedFeatureProcess),
    Iterative(Box<FittedIterativeProcess>),
    Classes(Box<FittedGaussianProcessClassifier>),
}

/// The same expression for the fitted value of each kind.
macro_rules! each {
    ($process:expr, $fitted:ident => $value:expr) => {
        match $process {
            Process::Exact($fitted) => $value,
            Process::Features($fitted) => $value,
            Process::Iterative($fitted) => $value,
            Process::Classes($fitted) => $value,
        }
    };
}

impl Process {
    pub fn model(&self) -> &dyn SavedPredict {
        match self {
            Process::Exact(fitted) => fitted,
            Process::Features(fitted) => fitted,
            Process::Iterative(fitted) => &**fitted,
            Process::Classes(fitted) => &**fitted,
        }
    }

    pub fn kernel(&self) -> &Kernel {
        each!(self, fitted => fitted.kernel())
    }

    pub fn search(&self) -> &SearchEnd {
        each!(self, fitted => &fitted.search)
    }

    /// `log p(y)`, what it is, and its standard error where it is an estimate.
    pub fn likelihood(&self) -> (&'static str, f64, Option<f64>) {
        match self {
            Process::Exact(fitted) => ("log marginal likelihood", fitted.likelihood, None),
            // Columns are the features of a linear kernel: nothing is left out.
            Process::Features(fitted) if fitted.origin().method == "linear" => {
                ("log marginal likelihood", fitted.bound, None)
            }
            // Their kernel is not below the one that they approximate.
            Process::Features(fitted) if fitted.origin().method == "random-features" => {
                ("log marginal likelihood under the kernel of the random features", fitted.bound, None)
            }
            Process::Features(fitted) => ("lower bound of the log marginal likelihood", fitted.bound, None),
            Process::Iterative(fitted) => ("log marginal likelihood", fitted.likelihood, Some(fitted.likelihood_error)),
            Process::Classes(fitted) => ("log marginal likelihood (Laplace approximation)", fitted.likelihood, None),
        }
    }

    /// The variance of the noise; classes have none.
    pub fn noise(&self) -> Option<f64> {
        match self {
            Process::Exact(fitted) => Some(fitted.noise),
            Process::Features(fitted) => Some(fitted.noise),
            Process::Iterative(fitted) => Some(fitted.noise),
            Process::Classes(_) => None,
        }
    }

    /// What conjugate gradients did, as an object and in words.
    pub fn iteration(&self) -> Option<(Value, String)> {
        let Process::Iterative(fitted) = self else { return None };
        let (rank, iterations, residual, excess) = (fitted.rank, fitted.iterations, fitted.residual, fitted.excess);
        let said = format!(
            "conjugate gradients: {iterations} products, relative residual {residual:.1e}, preconditioner of rank {rank}; deviations {} above \
             the exact ones on average",
            text::percent(excess)
        );
        let object =
            json!({ "rank": rank, "iterations": iterations, "residual": residual, "deviation_excess": excess });
        Some((object, said))
    }

    /// The report on fitted rows, each predicted from all others.
    pub fn left_out(&self, train: &Dataset, level: f64) -> Result<Option<Judged>> {
        let Some(y) = &train.y else { return Ok(None) };
        let predicted: Vec<(usize, [f64; 2])> = match self {
            Process::Exact(fitted) => {
                let all = fitted.leave_one_out(&y.values())?;
                all.rows().into_iter().enumerate().map(|(i, row)| (i, [row[0], row[1]])).collect()
            }
            Process::Features(fitted) => fitted.left_out.clone(),
            Process::Iterative(fitted) => fitted.left_out.clone(),
            Process::Classes(fitted) => {
                let scores = fitted.left_out.view();
                let p = fitted.probabilities(scores);
                let score = score(y, &fitted.decode(scores), p.as_ref().map(|p| p.view()));
                return Ok(score.map(Judged::Classes));
            }
        };
        let column = |j: usize| predicted.iter().map(|(_, row)| row[j]).collect::<Vec<_>>();
        let truth: Vec<f64> = predicted.iter().map(|(i, _)| y.values()[*i]).collect();
        IntervalReport::new(&truth, &column(0), &column(1), level).map(|report| Some(Judged::Numbers(report)))
    }
}

/// How well predictions describe the targets.
pub enum Judged {
    Numbers(IntervalReport),
    Classes(Score),
}

impl Judged {
    pub fn object(&self) -> Value {
        match self {
            Judged::Numbers(report) => json!(report),
            Judged::Classes(score) => json!(score),
        }
    }

    /// The numbers, each under its heading.
    pub fn cells(&self) -> Vec<(String, String)> {
        match self {
            Judged::Numbers(report) => {
                let number = |v: f64| text::number(v, 4);
                vec![
                    ("RMSE".into(), number(report.rmse)),
                    ("NLL".into(), number(report.nll)),
                    (format!("in {} interval", text::percent(report.level)), text::percent(report.coverage)),
                    ("its width".into(), number(report.width)),
                ]
            }
            Judged::Classes(score) => score.cells().into_iter().map(|(name, cell)| (name.into(), cell)).collect(),
        }
    }
}
