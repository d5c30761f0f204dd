//! `mercer regress`: numbers or classes, learnt from examples.

mod learnt;

use crate::context::Context;
use crate::input::{Reader, fit_scaler, scaled, scaling};
use crate::methods::{self, positive};
use crate::output::{Output, optional};
use crate::score::Score;
use crate::text;
use clap::{Args, ValueEnum};
use learnt::Learnt;
use mercer::FitContext;
use mercer::apply::{Alpha, Bandwidth, Fit, NadarayaWatson, Ridge, RidgeSolver};
use mercer::data::{Dataset, Scaling, Target};
use mercer::kernel::{Expression, Kernel};
use mercer::operator::Precision;
use mercer::{Error, Result};
use serde_json::json;
use std::path::PathBuf;

/// Learn to predict a column: numbers by regression, words by classification
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer regress train.csv --target price --kernel \"matern52(2)\" --predict test.csv --out y.npy"
)]
pub struct Regress {
    /// Examples: a file (.npy, .npz, .csv, IDX, CIFAR-10) or named set (see `mercer datasets`)
    data: String,

    /// How to learn
    #[arg(long, default_value = "ridge")]
    method: Way,

    /// Kernel expression (see `mercer kernels`)
    #[arg(long, value_name = "EXPRESSION", default_value = "rbf(lengthscale=median)")]
    kernel: String,

    /// ridge: number added to the kernel matrix's diagonal, or auto for the least left-out error [default: auto]
    #[arg(long, value_name = "NUMBER", value_parser = auto_or_ridge, allow_negative_numbers = true)]
    alpha: Option<Choice>,

    /// ridge: how the linear system is solved [default: by size and memory]
    #[arg(long)]
    solver: Option<Solver>,

    /// nadaraya-watson: factor on the kernel's width, or auto for the least left-out error [default: auto]
    #[arg(long, value_name = "NUMBER", value_parser = auto_or_positive, allow_negative_numbers = true)]
    bandwidth: Option<Choice>,

    /// Take whole numbers in the target as classes
    #[arg(long)]
    classify: bool,

    /// Precision of kernel values; sums are always taken in f64
    #[arg(long, default_value = "f64", value_parser = methods::precision())]
    precision: Precision,

    /// Scaling of the columns
    #[arg(long, default_value = "none", value_parser = scaling())]
    scale: Scaling,

    /// Share of the rows held out to score the result
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, allow_negative_numbers = true)]
    holdout: f64,

    /// Points to predict; the target may be missing
    #[arg(long, value_name = "FILE")]
    predict: Option<String>,

    /// Predictions to write, .npy or .csv
    #[arg(long, short, value_name = "FILE", requires = "predict")]
    out: Option<PathBuf>,

    #[command(flatten)]
    reader: Reader,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Kernel ridge regression
    Ridge,
    /// Averages of the targets, weighted by the kernel
    NadarayaWatson,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Solver {
    /// Dense factorisation
    Direct,
    /// Preconditioned conjugate gradients; the kernel matrix need not be stored
    Cg,
}

/// A number, or whatever leaves the least error.
#[derive(Clone, Copy)]
enum Choice {
    Auto,
    Value(f64),
}

fn auto_or_ridge(word: &str) -> Result<Choice, String> {
    match word.parse::<f64>() {
        _ if word == "auto" => Ok(Choice::Auto),
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(Choice::Value(value)),
        _ => Err("it must be a number of at least 0, or auto".into()),
    }
}

fn auto_or_positive(word: &str) -> Result<Choice, String> {
    if word == "auto" {
        Ok(Choice::Auto)
    } else {
        positive(word).map(Choice::Value).map_err(|e| format!("{e}, or auto"))
    }
}

/// Above this many points the dense way to α takes too long.
const MOST_DENSE: usize = 10_000;

/// The rows to learn from, to score on, and to predict; all of them scaled.
struct Parts {
    train: Dataset,
    held_out: Option<Dataset>,
    new: Option<Dataset>,
}

impl Regress {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = optional(self.out.as_deref(), Output::table)?;
        self.check()?;
        let kernel = Expression::parse(&self.kernel)?;
        let Parts { train, held_out, new } = self.read(context)?;
        let kernel = kernel.resolve(&train.x, context.seed)?;
        let learnt =
            context.fitting(|fit| self.learn(&kernel, &train, &FitContext { precision: self.precision, ..*fit }))?;
        let judged = |data: &Dataset| learnt.judged(data, context);
        let (_, on_train) = judged(&train)?;
        let on_held_out = held_out.as_ref().map(judged).transpose()?.and_then(|(_, score)| score);
        let on_new = new.as_ref().map(judged).transpose()?;
        if let (Some(out), Some((predicted, _))) = (&out, &on_new) {
            out.predictions(predicted)?.into_iter().for_each(|note| context.note(note));
            let written = text::count(predicted.len(), "prediction");
            context.note(format_args!("wrote {}: {written}", out.path().display()));
        }
        let scores = [("train", on_train), ("holdout", on_held_out), ("test", on_new.and_then(|(_, score)| score))];
        self.show(&learnt, train.y.as_ref(), &scores, context)
    }

    fn read(&self, context: &Context) -> Result<Parts> {
        let data = self.with_target(self.reader.open(&self.data)?)?;
        let new = self.predict.as_ref().map(|file| self.reader.open_like(file, &data)).transpose()?;
        if let Some(new) = new.as_ref().filter(|new| new.y.is_none() && self.out.is_none()) {
            return Err(Error::input(format!(
                "`{}` has no target to score against; name a file for its predictions by --out",
                new.name
            )));
        }
        let (train, held_out) = match self.holdout {
            0.0 => (data, None),
            fraction => data.split(fraction, context.seed).map(|(train, held_out)| (train, Some(held_out)))?,
        };
        let scaler = fit_scaler(self.scale, &train, |warning| context.warn(warning))?;
        let scaled = |data: Dataset| scaled(scaler.as_ref(), data);
        Ok(Parts {
            held_out: held_out.map(scaled).transpose()?,
            new: new.map(scaled).transpose()?,
            train: scaled(train)?,
        })
    }

    /// What can be refused before any work.
    fn check(&self) -> Result<()> {
        let refuse = |option: &str, method: &str| {
            Err(Error::input(format!("--{option} is for --method {method}; leave it out")))
        };
        match self.method {
            Way::Ridge if self.bandwidth.is_some() => refuse("bandwidth", "nadaraya-watson"),
            Way::NadarayaWatson if self.alpha.is_some() => refuse("alpha", "ridge"),
            Way::NadarayaWatson if self.solver.is_some() => refuse("solver", "ridge"),
            _ if !(0.0..1.0).contains(&self.holdout) => {
                Err(Error::input(format!("--holdout must lie from 0 to below 1, not {}", self.holdout)))
            }
            _ => Ok(()),
        }
    }

    /// The data with the target that is to be learnt.
    fn with_target(&self, data: Dataset) -> Result<Dataset> {
        let y = match (&data.y, self.classify) {
            (None, _) => {
                return Err(Error::input(format!(
                    "`{}` has no target to learn; name the column by --target (by position, -1 is the last)",
                    data.name
                )));
            }
            (Some(y), true) => y.as_classes()?,
            (Some(y), false) => y.clone(),
        };
        Ok(Dataset { y: Some(y), ..data })
    }

    fn learn(&self, kernel: &Kernel, train: &Dataset, fit: &FitContext<'_>) -> Result<Learnt> {
        let x = train.x.to_f64();
        let (x, y) = (x.view(), train.y.as_ref().expect("checked"));
        let kernel = kernel.clone();
        match self.method {
            Way::NadarayaWatson => {
                let bandwidth = match self.bandwidth {
                    Some(Choice::Value(h)) => Bandwidth::Fixed(h),
                    _ => Bandwidth::LeaveOneOut,
                };
                Ok(NadarayaWatson { kernel, bandwidth }.fit(x, y, fit)?.into())
            }
            Way::Ridge => {
                let n = train.n();
                let dense =
                    n <= MOST_DENSE && fit.budget.allows(32 * (n as u64).pow(2)) && self.solver != Some(Solver::Cg);
                let alpha = match self.alpha {
                    Some(Choice::Value(value)) => Alpha::Fixed(value),
                    _ if dense || self.solver == Some(Solver::Direct) => Alpha::LeaveOneOut,
                    _ => Alpha::CrossValidation { folds: 5 },
                };
                let solver = match self.solver {
                    None => RidgeSolver::Auto,
                    Some(Solver::Direct) => RidgeSolver::Direct,
                    Some(Solver::Cg) => RidgeSolver::conjugate_gradients(self.precision),
                };
                Ok(Ridge { kernel, alpha, solver }.fit(x, y, fit)?.into())
            }
        }
    }

    fn show(
        &self,
        learnt: &Learnt,
        y: Option<&Target>,
        scores: &[(&str, Option<Score>)],
        context: &Context,
    ) -> Result<()> {
        let origin = &learnt.origin;
        let left_out = learnt.tried.iter().map(|t| t.error).filter(|e| e.is_finite()).reduce(f64::min);
        let (name, value) = learnt.parameter;
        let mut object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": self.data, "n": origin.n, "d": origin.d,
            name: value, "left_out_mse": left_out, "iterations": learnt.iterations,
            "seconds": origin.seconds, "out": self.out,
        });
        for (part, score) in scores {
            object[*part] = json!(score);
        }
        context.result(&object, || {
            let task = match y {
                Some(Target::Classes { names, .. }) => format!("{} classes", names.len()),
                _ => "numbers".into(),
            };
            let mut said = format!(
                "{} on {}: {}\n{name} {}{}\n",
                text::rounded(&origin.kernel),
                self.data,
                text::origin(origin, &format!(", {task}")),
                text::short(value),
                left_out.map_or_else(String::new, |e| format!(
                    ", chosen for its mean squared error {} on left-out points",
                    text::short(e)
                ))
            );
            if let Some(iterations) = learnt.iterations {
                said += &format!("conjugate gradients took {}\n", text::count(iterations, "product"));
            }
            let rows: Vec<Vec<String>> =
                scores.iter().filter_map(|(part, score)| Some(score.as_ref()?.row(part))).collect();
            let headings = scores.iter().find_map(|(_, score)| score.as_ref()).map_or(&[][..], Score::headings);
            said + "\n" + &text::table(headings, &rows)
        })
    }
}
