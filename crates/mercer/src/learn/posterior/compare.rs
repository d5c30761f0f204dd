//! Posteriors side by side: each is fitted to all validation rows and to each half of them, so that what is found on one half is judged on
//! the other.

use super::Plan;
use crate::apply::{Predict, SavedPredict, entropies, softmax_rows};
use crate::classifier::{Cases, Detection, Estimate, Measure, NumberCases, NumberMeasure};
use crate::data::{Dataset, Target, split_rows};
use crate::laplace::{FittedFunctionLaplace, FittedLaplace, Laplace, Method, NetworkFunctions};
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Level of the intervals of numbers.
const LEVEL: f64 = 0.95;

/// One part of the rows of a comparison: a table, or a network's outputs and functions. Example: [`posteriors`](super::posteriors).
pub trait Split: Sized {
    /// Rows.
    fn n(&self) -> usize;

    /// Some of the rows, in the given order.
    fn select(&self, rows: &[usize]) -> Self;

    /// The target, which must be there.
    fn target(&self) -> Result<&Target>;

    /// What a model says of all rows.
    fn answers(&self, model: &dyn Predict) -> Result<Answers>;
}

impl Split for Dataset {
    fn n(&self) -> usize {
        Dataset::n(self)
    }

    fn select(&self, rows: &[usize]) -> Dataset {
        Dataset::select(self, rows)
    }

    fn target(&self) -> Result<&Target> {
        Dataset::target(self)
    }

    fn answers(&self, model: &dyn Predict) -> Result<Answers> {
        let x = self.x.to_f64();
        Ok(Answers { scores: model.scores(x.view())?, deviations: model.deviations(x.view())? })
    }
}

/// Rows at which a network is known by its outputs and functions. Example: [`Laplace::fit_functions`].
#[derive(Clone)]
pub struct FunctionRows<'a> {
    /// The network at the rows.
    pub network: NetworkFunctions<'a>,
    /// Their targets, where they are known.
    pub y: Option<Target>,
}

impl<'a> FunctionRows<'a> {
    /// The network and the targets, which must be there.
    pub(super) fn known(&self) -> Result<(&NetworkFunctions<'a>, &Target)> {
        Ok((&self.network, self.target()?))
    }
}

impl Split for FunctionRows<'_> {
    fn n(&self) -> usize {
        self.network.n()
    }

    fn select(&self, rows: &[usize]) -> Self {
        FunctionRows { network: self.network.clone().at(rows), y: self.y.as_ref().map(|y| y.select(rows)) }
    }

    fn target(&self) -> Result<&Target> {
        self.y.as_ref().ok_or_else(|| Error::input("the rows of the network's outputs have no targets; give them too"))
    }

    fn answers(&self, model: &dyn Predict) -> Result<Answers> {
        Ok(Answers { scores: self.network.scores_of(model)?, deviations: self.network.deviations_of(model)? })
    }
}

/// The rows of a comparison, by what they are for. Example: [`posteriors`](super::posteriors).
#[derive(Clone, Debug)]
pub struct Splits<R> {
    /// Rows that posteriors are fitted to.
    pub fit: R,
    /// Rows that precisions, temperatures and the best method are found on: others than those that the network was trained on.
    pub validation: R,
    /// Rows to measure on; without them, it is on the validation rows.
    pub test: Option<R>,
    /// Rows of another distribution, to be told from those that are measured on.
    pub ood: Option<R>,
}

impl<R> Splits<R> {
    /// The rows that posteriors are measured on.
    pub fn measured(&self) -> &R {
        self.test.as_ref().unwrap_or(&self.validation)
    }
}

/// What a model says of rows. Example: [`Judged`].
#[derive(Clone, Debug)]
pub struct Answers {
    /// Scores of classes, or numbers, `[n, ·]`.
    pub scores: Array2<f64>,
    /// Deviations of numbers `[n]`.
    pub deviations: Option<Array1<f64>>,
}

impl Answers {
    /// Scores of classes.
    pub fn of_classes(scores: Array2<f64>) -> Answers {
        Answers { scores, deviations: None }
    }

    /// Of all rows, from those of the rows of each half.
    fn joined(halves: &Halves, parts: [Answers; 2]) -> Answers {
        let n = halves.0.iter().map(Vec::len).sum();
        let mut scores = Array2::zeros((n, parts[0].scores.ncols()));
        let mut deviations = parts[0].deviations.as_ref().map(|_| Array1::zeros(n));
        for (rows, part) in halves.0.iter().zip(parts) {
            for (i, &row) in rows.iter().enumerate() {
                scores.row_mut(row).assign(&part.scores.row(i));
                if let (Some(all), Some(some)) = (&mut deviations, &part.deviations) {
                    all[row] = some[i];
                }
            }
        }
        Answers { scores, deviations }
    }

    /// `−Σ_c p_c log p_c` `[n]`
    fn entropies(&self) -> Vec<f64> {
        entropies(softmax_rows(self.scores.clone()).view())
    }
}

/// The validation rows in two halves, drawn at random: what is found on one is judged on the other.
pub(super) struct Halves([Vec<usize>; 2]);

impl Halves {
    pub fn of(n: usize, seed: u64) -> Result<Halves> {
        fail_if!(
            n < 2,
            "there is {n} validation row; two at least are needed, to judge on one what is found on the other"
        );
        split_rows(n, 0.5, seed).map(Halves)
    }

    /// The rows that a method is fitted with: all, for the model that is kept, and each half.
    pub fn choices(&self) -> [Vec<usize>; 3] {
        let n = self.0.iter().map(Vec::len).sum();
        [(0..n).collect(), self.0[0].clone(), self.0[1].clone()]
    }

    /// What is said of all rows, those of each half by the fit to the other: `of(rows, place of that fit among the choices)`.
    pub fn crossed(&self, of: impl Fn(&[usize], usize) -> Result<Answers>) -> Result<Answers> {
        Ok(Answers::joined(self, [of(&self.0[0], 2)?, of(&self.0[1], 1)?]))
    }
}

/// What the predictions of a fitted posterior are worth. Example: [`posteriors`](super::posteriors).
#[derive(Clone, Debug)]
pub struct Judged {
    /// The method's name.
    pub name: &'static str,
    /// What is known of the fit, by name.
    pub facts: Map<String, Value>,
    /// Seconds of the fit and of a prediction of the rows that are measured on.
    pub seconds: [f64; 2],
    /// The NLL on the validation rows, each half by what was found on the other.
    pub validation_nll: f64,
    test: Quality,
    /// Entropies of the probabilities of measured rows, and of rows of another distribution.
    entropies: Option<[Vec<f64>; 2]>,
}

#[derive(Clone, Debug)]
enum Quality {
    Classes(Cases),
    Numbers(NumberCases),
}

impl Quality {
    fn of(answers: &Answers, y: &Target, classes: &[String]) -> Result<Quality> {
        let Some(deviations) = &answers.deviations else {
            return Ok(Quality::Classes(Cases::of(answers.scores.view(), &y.labels_for(classes)?)));
        };
        let mean = answers.scores.column(0).to_vec();
        NumberCases::of(&y.values(), &mean, &deviations.to_vec(), LEVEL).map(Quality::Numbers)
    }

    fn nll(&self) -> f64 {
        match self {
            Quality::Classes(cases) => cases.measure(Measure::Nll),
            Quality::Numbers(cases) => cases.measure(NumberMeasure::Nll),
        }
    }
}

/// What is said of the rows of a comparison.
pub(super) struct Said<'a> {
    /// Names of the classes; none of a number.
    pub classes: &'a [String],
    pub validation: &'a Answers,
    /// Of the rows that are measured on.
    pub measured: &'a Answers,
    pub ood: Option<&'a Answers>,
}

impl Judged {
    pub(super) fn new<R: Split>(
        (name, facts, seconds): (&'static str, Map<String, Value>, [f64; 2]),
        rows: &Splits<R>,
        said: Said,
    ) -> Result<Judged> {
        let validation_nll = Quality::of(said.validation, rows.validation.target()?, said.classes)?.nll();
        let entropies = said.ood.map(|ood| [said.measured.entropies(), ood.entropies()]);
        let test = Quality::of(said.measured, rows.measured().target()?, said.classes)?;
        Ok(Judged { name, facts, seconds, validation_nll, test, entropies })
    }

    /// The measures of classes; none of numbers.
    pub fn cases(&self) -> Option<&Cases> {
        if let Quality::Classes(cases) = &self.test { Some(cases) } else { None }
    }

    /// Every measure under its name, with its interval.
    pub fn estimates(&self, seed: u64) -> Vec<(String, Estimate)> {
        let word = |measure: Value| measure.as_str().expect("a word").to_owned();
        match &self.test {
            Quality::Classes(cases) => {
                let named = |(m, estimate): (Measure, Estimate)| (word(json!(m)), estimate);
                Measure::ALL.into_iter().zip(cases.estimates(Measure::ALL, seed)).map(named).collect()
            }
            Quality::Numbers(cases) => {
                NumberMeasure::ALL.iter().map(|m| (word(json!(m)), cases.estimate(*m, seed))).collect()
            }
        }
    }

    /// How much larger the NLL is than that of another method on the same rows.
    pub fn behind(&self, other: &Judged, seed: u64) -> Option<Estimate> {
        match (&self.test, &other.test) {
            (Quality::Classes(a), Quality::Classes(b)) => Some(a.difference(b, Measure::Nll, seed)),
            (Quality::Numbers(a), Quality::Numbers(b)) => Some(a.difference(b, NumberMeasure::Nll, seed)),
            _ => None,
        }
    }

    /// How well the entropy of its probabilities tells the rows of another distribution, where there are some.
    pub fn detection(&self, seed: u64) -> Option<Detection> {
        self.entropies.as_ref().map(|[inside, outside]| Detection::of(inside, outside, seed))
    }
}

/// The place of the method with the lowest NLL on the validation rows; the first of equals. Example: [`posteriors`](super::posteriors).
pub fn least_loss(all: &[&Judged]) -> usize {
    (0..all.len()).fold(0, |best, i| if all[i].validation_nll < all[best].validation_nll { i } else { best })
}

/// A fitted posterior, and what it is worth. Example: [`posteriors`](super::posteriors).
pub struct Compared {
    /// It, fitted with all validation rows.
    pub model: Box<dyn SavedPredict>,
    /// What its predictions are worth.
    pub judged: Judged,
}

/// Fitted posteriors, baselines first. Example: [`posteriors`](super::posteriors).
pub struct Comparison {
    /// All that were fitted.
    pub all: Vec<Compared>,
    /// The place of the one that is kept.
    pub kept: usize,
    /// Those that turned out to need more memory than there is, and why.
    pub left_out: Vec<(&'static str, Error)>,
}

/// A posterior that knows what was found.
pub(super) trait Found: SavedPredict + Sized + 'static {
    /// By name.
    fn facts(&self) -> Map<String, Value>;

    /// Names of the classes; none of a number.
    fn classes(&self) -> &[String];
}

impl Found for FittedLaplace {
    fn facts(&self) -> Map<String, Value> {
        let noise = self.network.number.map(|number| self.noise * number.spread.powi(2));
        let mut facts = facts(&self.method, noise, self.temperature, self.found.value);
        facts.insert("evidence".into(), json!(self.evidence));
        facts
    }

    fn classes(&self) -> &[String] {
        &self.network.classes
    }
}

impl Found for FittedFunctionLaplace {
    fn facts(&self) -> Map<String, Value> {
        let noise = self.classes.is_empty().then_some(self.noise);
        facts(&self.method, noise, self.temperature, self.found.value)
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }
}

/// The noise σ² of a number in units of the target, or the temperature of classes; and the precision of the prior.
fn facts(method: &Method, noise: Option<f64>, temperature: f64, precision: f64) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("method".into(), method.name().into());
    match noise {
        Some(noise) => facts.insert("noise".into(), json!(noise)),
        None => facts.insert("temperature".into(), json!(temperature)),
    };
    if method.has_posterior() {
        facts.insert("prior_precision".into(), json!(precision));
    }
    facts
}

/// Fits the posteriors of a plan, by `fits` to the three choices of validation rows, and measures each. A comparison of all leaves out those that
/// need more memory than was estimated.
pub(super) fn compared<R: Split, M: Found>(
    plan: &Plan,
    rows: &Splits<R>,
    context: &FitContext,
    fits: impl Fn(&Laplace, &[Vec<usize>; 3], &FitContext) -> Result<Vec<M>>,
) -> Result<Comparison> {
    let halves = Halves::of(rows.validation.n(), context.seed)?;
    let (mut all, mut left_out): (Vec<Compared>, _) = (vec![], vec![]);
    for (i, laplace) in plan.fitted.iter().enumerate() {
        let name = laplace.method.name();
        let stage = context.stage(name, i + 1, plan.fitted.len());
        let context = FitContext { progress: &stage, ..*context };
        match measured(name, rows, &halves, || fits(laplace, &halves.choices(), &context)) {
            Ok(compared) => all.push(compared),
            Err(error @ Error::Memory { .. }) if plan.asked.is_none() => left_out.push((name, error)),
            Err(error) => return Err(error),
        }
    }
    let judged: Vec<&Judged> = all.iter().map(|compared| &compared.judged).collect();
    let asked = plan.asked.and_then(|asked| judged.iter().position(|judged| judged.name == asked));
    let kept = asked.unwrap_or_else(|| least_loss(&judged));
    Ok(Comparison { kept, all, left_out })
}

/// The first of the fits, and what it is worth.
fn measured<R: Split, M: Found>(
    name: &'static str,
    rows: &Splits<R>,
    halves: &Halves,
    fits: impl FnOnce() -> Result<Vec<M>>,
) -> Result<Compared> {
    let start = Instant::now();
    let mut fits = fits()?;
    let fit_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let validation = halves.crossed(|half, fit| rows.validation.select(half).answers(&fits[fit]))?;
    let mut predict_seconds = start.elapsed().as_secs_f64();
    let fitted = fits.swap_remove(0);
    let start = Instant::now();
    let test = rows.test.as_ref().map(|test| test.answers(&fitted)).transpose()?;
    if test.is_some() {
        predict_seconds = start.elapsed().as_secs_f64();
    }
    let ood = rows.ood.as_ref().map(|ood| ood.answers(&fitted)).transpose()?;
    let mut facts = fitted.facts();
    facts.insert("seconds".into(), json!(fit_seconds));
    let said = Said {
        classes: fitted.classes(),
        validation: &validation,
        measured: test.as_ref().unwrap_or(&validation),
        ood: ood.as_ref(),
    };
    let judged = Judged::new((name, facts, [fit_seconds, predict_seconds]), rows, said)?;
    Ok(Compared { model: Box::new(fitted), judged })
}
