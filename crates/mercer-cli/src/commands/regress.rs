//! `mercer regress`: numbers or classes, learnt from examples.

use crate::certificate;
use crate::context::Context;
use crate::input::{Reader, fit_scaler, scaled, scaling};
use crate::methods::{self, number};
use crate::output::Output;
use crate::score::{Score, score};
use crate::text;
use clap::{Args, ValueEnum};
use mercer::apply::{Alpha, Bandwidth, Fit, NadarayaWatson, Predict, Ridge, RidgeSolver, Tried};
use mercer::data::{Dataset, Scaling, Target};
use mercer::kernel::{Expression, Kernel};
use mercer::operator::Precision;
use mercer::spectrum::Origin;
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::ArrayView2;
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

/// A number, or `None` for whatever leaves the least error.
type Choice = Option<f64>;

fn auto_or_ridge(word: &str) -> Result<Choice, String> {
    if word == "auto" {
        Ok(None)
    } else {
        number(word, |v| v >= 0.0, "it must be a number of at least 0, or auto").map(Some)
    }
}

fn auto_or_positive(word: &str) -> Result<Choice, String> {
    if word == "auto" { Ok(None) } else { number(word, |v| v > 0.0, "it must be a number above 0, or auto").map(Some) }
}

/// Above this many points the dense way to α takes too long.
const MOST_DENSE: usize = 10_000;

/// Predictions at points `[m, d]`, and the rows that no example reaches.
type Prediction = dyn Fn(ArrayView2<f64>) -> Result<(Target, Vec<usize>)>;

/// A fitted model of either method, and how it was chosen.
struct Learnt {
    predict: Box<Prediction>,
    origin: Origin,
    tried: Vec<Tried>,
    /// The number that was given or chosen.
    parameter: (&'static str, f64),
    iterations: Option<usize>,
}

/// The score on each part of the data, where it has targets.
type Scores<'a> = [(&'a str, Option<Score>)];

impl Learnt {
    /// Predictions for `data`, and their score where it has the targets.
    fn judged(&self, data: &Dataset, context: &Context) -> Result<(Target, Option<Score>)> {
        let (predicted, far) = (self.predict)(data.x.to_f64().view())?;
        if !far.is_empty() {
            context.warn(format_args!(
                "{} of `{}` out of reach of every example: predicted as the mean",
                text::count(far.len(), "row"),
                data.name
            ));
        }
        let known = data.y.as_ref().and_then(|truth| score(truth, &predicted));
        Ok((predicted, known))
    }
}

impl Regress {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_deref().map(Output::table).transpose()?;
        self.check()?;
        let kernel = Expression::parse(&self.kernel)?;
        let (train, held_out, new) = self.read(context)?;
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
        self.show(&learnt, train.y.as_ref(), &scores, out, context)
    }

    /// The rows to learn from, to score on, and to predict; all of them scaled.
    fn read(&self, context: &Context) -> Result<(Dataset, Option<Dataset>, Option<Dataset>)> {
        let data = self.with_target(self.reader.open(&self.data, context)?)?;
        let new = self.predict.as_ref().map(|file| self.reader.open_like(file, &data, context)).transpose()?;
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
        Ok((scaled(train)?, held_out.map(scaled).transpose()?, new.map(scaled).transpose()?))
    }

    /// What can be refused before any work.
    fn check(&self) -> Result<()> {
        let misplaced = |option: &str, method: &str| {
            Err(Error::input(format!("--{option} is for --method {method}; leave it out")))
        };
        match self.method {
            Way::Ridge if self.bandwidth.is_some() => misplaced("bandwidth", "nadaraya-watson"),
            Way::NadarayaWatson if self.alpha.is_some() => misplaced("alpha", "ridge"),
            Way::NadarayaWatson if self.solver.is_some() => misplaced("solver", "ridge"),
            _ if !(0.0..1.0).contains(&self.holdout) => {
                Err(Error::input(format!("--holdout must lie from 0 to below 1, not {}", self.holdout)))
            }
            _ => Ok(()),
        }
    }

    /// The data with the target that is to be learnt.
    fn with_target(&self, data: Dataset) -> Result<Dataset> {
        fail_if!(
            data.y.is_none(),
            "`{}` has no target to learn; name the column by --target (by position, -1 is the last)",
            data.name
        );
        if self.classify { data.with_classes() } else { Ok(data) }
    }

    fn learn(&self, kernel: &Kernel, train: &Dataset, fit: &FitContext<'_>) -> Result<Learnt> {
        let x = train.x.to_f64();
        let (x, y) = (x.view(), train.y.as_ref().expect("checked"));
        let kernel = kernel.clone();
        match self.method {
            Way::NadarayaWatson => {
                let bandwidth = self.bandwidth.flatten().map_or(Bandwidth::LeaveOneOut, Bandwidth::Fixed);
                let average = NadarayaWatson { kernel, bandwidth }.fit(x, y, fit)?;
                Ok(Learnt {
                    origin: average.origin().clone(),
                    tried: average.tried.clone(),
                    parameter: ("bandwidth", average.bandwidth),
                    iterations: None,
                    predict: Box::new(move |x| {
                        let averages = average.averages(x)?;
                        Ok((average.decode(averages.scores.view()), averages.unreached))
                    }),
                })
            }
            Way::Ridge => {
                let n = train.n();
                let dense =
                    n <= MOST_DENSE && fit.budget.allows(32 * (n as u64).pow(2)) && self.solver != Some(Solver::Cg);
                let alpha = match self.alpha.flatten() {
                    Some(value) => Alpha::Fixed(value),
                    _ if dense || self.solver == Some(Solver::Direct) => Alpha::LeaveOneOut,
                    _ => Alpha::CrossValidation { folds: 5 },
                };
                let solver = match self.solver {
                    None => RidgeSolver::Auto,
                    Some(Solver::Direct) => RidgeSolver::Direct,
                    Some(Solver::Cg) => RidgeSolver::conjugate_gradients(self.precision),
                };
                let ridge = Ridge { kernel, alpha, solver }.fit(x, y, fit)?;
                Ok(Learnt {
                    origin: ridge.origin().clone(),
                    tried: ridge.tried.clone(),
                    parameter: ("alpha", ridge.alpha),
                    iterations: ridge.iterations,
                    predict: Box::new(move |x| Ok((ridge.predict(x)?, vec![]))),
                })
            }
        }
    }

    fn show(
        &self,
        learnt: &Learnt,
        y: Option<&Target>,
        scores: &Scores,
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let origin = &learnt.origin;
        let left_out = learnt.tried.iter().map(|t| t.error).filter(|e| e.is_finite()).reduce(f64::min);
        let (name, value) = learnt.parameter;
        let mut object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": self.data, "n": origin.n, "d": origin.d,
            name: value, "left_out_mse": left_out, "iterations": learnt.iterations,
            "seconds": origin.seconds, "out": out,
        });
        for (part, score) in scores {
            object[*part] = json!(score);
        }
        context.costly_result(&object, || {
            let task = match y {
                Some(Target::Classes { names, .. }) => format!("{} classes", names.len()),
                _ => "numbers".into(),
            };
            let origin = certificate::origin(origin, &format!("on {}", self.data), &format!(", {task}"));
            let chosen = left_out.map(text::short).map_or_else(String::new, |error| {
                format!(", chosen for its mean squared error {error} on left-out points")
            });
            let mut said = format!("{origin}\n{name} {}{chosen}\n", text::short(value));
            if let Some(iterations) = learnt.iterations {
                said += &format!("conjugate gradients took {}\n", text::count(iterations, "product"));
            }
            let (mut headings, mut rows) = (vec![], vec![]);
            for (part, score) in scores.iter().filter_map(|(part, score)| Some((part, score.as_ref()?))) {
                let (names, cells): (Vec<&str>, Vec<String>) = score.cells().into_iter().unzip();
                headings = [&["rows"][..], &names].concat();
                rows.push([vec![part.to_string()], cells].concat());
            }
            said + "\n" + &text::table(&headings, &rows)
        })
    }
}
