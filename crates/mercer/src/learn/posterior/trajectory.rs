//! What is made of the snapshots of a training run: candidates by name, and their comparison.

use super::compare::{Answers, Compared, Comparison, Halves, Judged, Said, Sample, Samples, least_loss};
use crate::apply::Predict;
use crate::data::Dataset;
use crate::options::{Builds, Caps, Entry, Family, Opt, Options};
use crate::trajectory::{FittedTrajectory, Made, Method, Settings, Trajectory};
use crate::{Error, FitContext, Result};
use ndarray::{Array2, Axis};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use std::time::Instant;

/// What is known of snapshots. Example: [`trajectories`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// How many there are.
    pub count: usize,
    /// Networks of several runs beside them; zero where there are none.
    pub members: usize,
    /// Whether the networks have a hidden layer.
    pub hidden: bool,
}

/// Something to make of snapshots, and its settings. Example: [`trajectories`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrajectoryCandidate {
    /// Its name, and that with a temperature.
    pub names: [&'static str; 2],
    /// What it is, in a few words.
    pub about: &'static str,
    /// Its settings.
    pub settings: Settings,
    /// Passes through a network that a new row takes.
    pub passes: usize,
    /// Whether it is made of networks of several runs.
    pub of_ensemble: bool,
}

/// What to compare, the last snapshot first, and what is kept. Example: [`trajectories`].
#[derive(Clone, Debug, PartialEq)]
pub struct TrajectoryCandidates {
    /// Each is measured without and with a temperature.
    pub all: Vec<TrajectoryCandidate>,
    /// The one that was asked for; none for that with the lowest NLL on the validation rows.
    pub asked: Option<&'static str>,
}

/// Everything that is made of snapshots: `auto` first, which compares all of it.
///
/// ```
/// use mercer::learn::{Snapshots, trajectories};
/// use mercer::options::{Options, Spelling};
/// let snapshots = Snapshots { count: 8, members: 0, hidden: true };
/// let given = serde_json::from_str(r#"{"k": 4}"#).unwrap();
/// let candidates = trajectories().build("ritz-tempered", Options::new(given, Spelling::Python), &snapshots)?;
/// let names: Vec<&str> = candidates.all.iter().map(|candidate| candidate.names[0]).collect();
/// assert_eq!((names, candidates.asked), (vec!["map", "ritz"], Some("ritz-tempered")));
/// assert_eq!(candidates.all[1].settings.method.functions(), Some(4));
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn trajectories() -> &'static Family<Snapshots> {
    static TRAJECTORIES: LazyLock<Family<Snapshots>> = LazyLock::new(|| {
        let named = Made::ALL.into_iter().flat_map(|made| [(made.name, made.about), (made.tempered, made.about)]);
        Family {
            noun: "method",
            entries: std::iter::once(("auto", "what has the lowest NLL on the validation rows"))
                .chain(named)
                .map(|(name, about)| entry(name, about))
                .collect(),
            renamed: &[],
        }
    });
    &TRAJECTORIES
}

impl Builds for Snapshots {
    type Built = TrajectoryCandidates;
}

fn entry(name: &'static str, about: &'static str) -> Entry<Snapshots> {
    let options = Made::ALL.iter().filter(|made| is_named(made, name)).flat_map(|made| made.options());
    let mut own: Vec<&'static Opt> = vec![];
    for option in options {
        if !own.iter().any(|known| known.name == option.name) {
            own.push(option);
        }
    }
    let build = move |o: &mut Options, snapshots: &Snapshots| candidates(name, o, snapshots);
    Entry { can: Caps { networks: true, classes: true, ..Caps::default() }, ..Entry::new(name, about, own, build) }
}

/// Whether `name` asks for it, `auto` for all.
fn is_named(made: &Made, name: &str) -> bool {
    name == "auto" || [made.name, made.tempered].contains(&name)
}

fn candidates(name: &'static str, o: &mut Options, snapshots: &Snapshots) -> Result<TrajectoryCandidates> {
    let mut all = vec![];
    for (i, made) in Made::ALL.iter().enumerate() {
        let settings = made.settings(&mut o.clone(), snapshots.count)?;
        let is_missing = made.of_ensemble && snapshots.members == 0;
        if name != "auto" && is_named(made, name) && is_missing {
            let option = o.spelling().option("ensemble");
            return Err(Error::input(format!(
                "{} needs the networks of several runs; name their files by {option}",
                o.spelling().set("method", name)
            )));
        }
        let is_possible = !is_missing && (snapshots.hidden || !matches!(settings.method, Method::Ritz { .. }));
        if i > 0 && !(is_named(made, name) && (is_possible || name != "auto")) {
            continue;
        }
        let networks = if made.of_ensemble { snapshots.members } else { snapshots.count };
        all.push(TrajectoryCandidate {
            names: [made.name, made.tempered],
            about: made.about,
            settings,
            passes: settings.method.passes(networks),
            of_ensemble: made.of_ensemble,
        });
    }
    Ok(TrajectoryCandidates { all, asked: (name != "auto").then_some(name) })
}

impl TrajectoryCandidates {
    /// Fits each to the snapshots, or to networks of several runs, and measures it without and with a temperature.
    pub fn fit(
        &self,
        snapshots: &Trajectory,
        ensemble: Option<&Trajectory>,
        rows: &Samples<Dataset>,
        context: &FitContext,
    ) -> Result<Comparison> {
        let halves = Halves::of(rows.validation.n(), context.seed)?;
        let mut all = vec![];
        for (i, candidate) in self.all.iter().enumerate() {
            let stage = context.stage(candidate.names[0], i + 1, self.all.len());
            let context = FitContext { progress: &stage, ..*context };
            let networks = if candidate.of_ensemble { ensemble.unwrap_or(snapshots) } else { snapshots };
            all.extend(candidate.fitted(networks, rows, &halves, &context)?);
        }
        let judged: Vec<&Judged> = all.iter().map(|compared| &compared.judged).collect();
        let asked = self.asked.and_then(|asked| judged.iter().position(|judged| judged.name == asked));
        let kept = asked.unwrap_or_else(|| least_loss(&judged));
        Ok(Comparison { all, kept, left_out: vec![] })
    }
}

impl TrajectoryCandidate {
    /// It without and with its temperature.
    fn fitted(
        &self,
        networks: &Trajectory,
        rows: &Samples<Dataset>,
        halves: &Halves,
        context: &FitContext,
    ) -> Result<[Compared; 2]> {
        let (start, validation, choices) = (Instant::now(), &rows.validation, halves.choices());
        let mut fits = self.settings.fit_on(networks, &rows.fit, validation, &choices, context)?;
        let fit_seconds = start.elapsed().as_secs_f64();
        let (start, x) = (Instant::now(), validation.x.to_f64());
        let first = fits[0].scores(x.view())?;
        let mut predict_seconds = start.elapsed().as_secs_f64();
        // Without functions nothing but the temperature differs between the fits.
        let again = |fit: &FittedTrajectory| match self.settings.method.functions() {
            Some(_) => fit.scores(x.view()),
            None => Ok(first.clone()),
        };
        let validated = [first.clone(), again(&fits[1])?, again(&fits[2])?];
        let mut temperatures = vec![];
        for (fit, (scores, rows)) in fits.iter().zip(validated.iter().zip(&choices)) {
            let mut tempered = fit.clone();
            tempered.temper(scores.select(Axis(0), rows).view(), &validation.select(rows))?;
            temperatures.push(tempered.temperature);
        }
        let mut plain = fits.swap_remove(0);
        let start = Instant::now();
        let test = rows.test.as_ref().map(|test| test.answers(&plain)).transpose()?;
        if test.is_some() {
            predict_seconds = start.elapsed().as_secs_f64();
        }
        let ood = rows.ood.as_ref().map(|ood| ood.answers(&plain)).transpose()?;
        plain.temper(first.view(), validation)?;
        let tempered = plain.clone();
        plain.temperature = 1.0;
        let compared = |place: usize, model: FittedTrajectory| -> Result<Compared> {
            let divide = |fit: usize| if place == 1 { temperatures[fit] } else { 1.0 };
            let crossed = |half: &[usize], fit: usize| {
                Ok(Answers::of_classes(validated[fit].select(Axis(0), half) / divide(fit)))
            };
            let crossed = halves.crossed(crossed)?;
            let divided = |scores: &Array2<f64>| Answers::of_classes(scores / model.temperature);
            let (test, ood) =
                (test.as_ref().map(|test| divided(&test.scores)), ood.as_ref().map(|ood| divided(&ood.scores)));
            let said = Said {
                classes: &networks.last().classes,
                validation: &crossed,
                measured: test.as_ref().unwrap_or(&crossed),
                ood: ood.as_ref(),
            };
            let about =
                (self.names[place], facts(self.names[place], &model, fit_seconds), [fit_seconds, predict_seconds]);
            let judged = Judged::new(about, rows, said)?;
            Ok(Compared { model: Box::new(model), judged })
        };
        Ok([compared(0, plain)?, compared(1, tempered)?])
    }
}

/// What is known of a fit.
fn facts(name: &str, fitted: &FittedTrajectory, seconds: f64) -> Map<String, Value> {
    let mut facts = Map::new();
    for (key, value) in [
        ("method", json!(name)),
        ("passes", json!(fitted.passes())),
        ("seconds", json!(seconds)),
        ("temperature", json!(fitted.temperature)),
    ] {
        facts.insert(key.into(), value);
    }
    if fitted.method.functions().is_some() {
        facts.insert("scale".into(), json!(fitted.found.value));
        facts.insert("eigenvalues".into(), json!(fitted.eigenvalues()));
    }
    facts
}
