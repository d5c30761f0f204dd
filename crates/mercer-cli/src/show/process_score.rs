//! How well the predictions of a Gaussian process describe the targets, and what conjugate gradients did.

use crate::show::score::{Score, score};
use crate::text;
use mercer::Result;
use mercer::apply::{FittedProcess, IntervalReport, Iteration, LeftOut};
use mercer::data::Dataset;
use serde_json::{Value, json};

/// What conjugate gradients did, in words.
pub fn iteration(done: &Iteration) -> String {
    let Iteration { rank, iterations, residual, deviation_excess } = *done;
    format!(
        "conjugate gradients: {iterations} products, relative residual {residual:.1e}, preconditioner of rank {rank}; deviations {} above \
         the exact ones on average",
        text::percent(deviation_excess)
    )
}

/// How well predictions describe the targets.
pub enum ProcessScore {
    Numbers(IntervalReport),
    Classes(Score),
}

impl ProcessScore {
    /// Of fitted rows, each predicted from others.
    pub fn left_out(process: &dyn FittedProcess, train: &Dataset, level: f64) -> Result<Option<ProcessScore>> {
        let Some(y) = &train.y else { return Ok(None) };
        match process.left_out(y)? {
            LeftOut::Numbers(predicted) => {
                let column = |j: usize| predicted.iter().map(|(_, row)| row[j]).collect::<Vec<_>>();
                let truth: Vec<f64> = predicted.iter().map(|(i, _)| y.values()[*i]).collect();
                let report = IntervalReport::new(&truth, &column(0), &column(1), level)?;
                Ok(Some(ProcessScore::Numbers(report)))
            }
            LeftOut::Scores(scores) => {
                let p = process.probabilities(scores.view());
                let score = score(y, &process.decode(scores.view()), p.as_ref().map(|p| p.view()));
                Ok(score.map(ProcessScore::Classes))
            }
        }
    }

    pub fn object(&self) -> Value {
        match self {
            ProcessScore::Numbers(report) => json!(report),
            ProcessScore::Classes(score) => json!(score),
        }
    }

    /// The numbers, each under its heading.
    pub fn cells(&self) -> Vec<(String, String)> {
        match self {
            ProcessScore::Numbers(report) => {
                let number = |v: f64| text::number(v, 4);
                vec![
                    ("RMSE".into(), number(report.rmse)),
                    ("NLL".into(), number(report.nll)),
                    (format!("in {} interval", text::percent(report.level)), text::percent(report.coverage)),
                    ("its width".into(), number(report.width)),
                ]
            }
            ProcessScore::Classes(score) => score.cells().into_iter().map(|(name, cell)| (name.into(), cell)).collect(),
        }
    }
}
