//! `mercer trajectory`: calibrated probabilities from the snapshots of a training run.

use crate::options::input::{Reader, labelled};
use crate::options::network::{Foreign, Input};
use crate::options::validation_rows::{JudgedRows, ValidationRows};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::show::uncertainty::{About, Answers, Judged, Judgement, choices, chosen, halves};
use crate::show::uncertainty_page::page;
use crate::text;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use mercer::apply::{Predict, Saved};
use mercer::classifier::{Classifier, snapshot_files};
use mercer::data::{Dataset, Scaling, Schema, write_npy};
use mercer::trajectory::{FittedTrajectory, Method, Predictive, Settings, Trajectory as Networks};
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::{Array2, Axis};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What can be made of snapshots: its name, that with a temperature, and what it is.
const METHODS: [(&str, &str, &str); 7] = [
    ("map", "temperature", "the last snapshot"),
    ("swa", "swa-tempered", "the network at the mean of the weights"),
    ("swag", "swag-tempered", "networks at draws from the weights' normal distribution"),
    ("snapshots", "snapshots-tempered", "the mean of all snapshots' probabilities"),
    ("ensemble", "ensemble-tempered", "the mean of the probabilities of --ensemble"),
    ("eigenfunctions", "eigenfunctions-tempered", "eigenfunctions of the trajectory's kernel, by all snapshots"),
    ("ritz", "ritz-tempered", "the same in the span of the averaged network's hidden units"),
];

/// Give a network calibrated probabilities by the snapshots of its training run
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer train mnist --net lenet --snapshots run --out net.safetensors\n  mercer trajectory run mnist --test 'mnist(part=test)' --out m.mercer\n  mercer predict m.mercer new.npy --out p.csv"
)]
pub struct Trajectory {
    /// Folder of snapshots that `mercer train --snapshots` wrote: networks as safetensors, in the order of their names
    snapshots: PathBuf,

    /// Rows that the network was trained on, with their classes
    data: String,

    /// Network of files that do not name it, as for `mercer train`; it sees rows as they are, unless --mean and --std are given
    #[arg(long, value_name = "NET")]
    net: Option<String>,

    /// What is kept: auto takes what has the lowest NLL on the validation rows; the baselines map and temperature are always measured
    #[arg(long, default_value = "auto", value_parser = methods())]
    method: String,

    /// Networks of several training runs, to be compared as a deep ensemble
    #[arg(long, value_name = "A.safetensors,…", value_delimiter = ',')]
    ensemble: Vec<PathBuf>,

    /// Eigenfunctions of the trajectory's kernel [default: 10, or as many as the snapshots span]
    #[arg(long, short, value_name = "K")]
    k: Option<usize>,

    #[command(flatten)]
    validation_rows: ValidationRows,

    /// Draws of functions whose mean probabilities are taken
    #[arg(long, value_name = "N", default_value_t = 100)]
    draws: usize,

    /// Take the probit approximation of these means instead
    #[arg(long, conflicts_with = "draws")]
    probit: bool,

    /// File for the functions g(x,θ_i) − ḡ(x) at the data, an array [M, n, C] for `mercer fit --samples`
    #[arg(long, value_name = "FILE.npy")]
    samples: Option<NewFile>,

    /// Model file to write, for `mercer predict`
    #[arg(long, short, visible_alias = "model", value_name = "FILE")]
    out: Option<NewFile>,

    /// Report to write, with reliability diagrams
    #[arg(long, value_name = "FILE.html")]
    report: Option<NewFile>,

    #[command(flatten)]
    foreign: Foreign,

    #[command(flatten)]
    reader: Reader,
}

fn methods() -> impl TypedValueParser<Value = String> {
    let names = METHODS.iter().flat_map(|(name, tempered, _)| [*name, *tempered]);
    PossibleValuesParser::new(std::iter::once("auto").chain(names))
}

/// The networks and all rows that the command is given.
struct Given {
    snapshots: Networks,
    ensemble: Option<Networks>,
    schema: Schema,
    rows: JudgedRows,
}

/// A method to fit, by its place among [`METHODS`].
#[derive(Clone, Copy)]
struct Planned {
    place: usize,
    method: Method,
}

/// A fitted method, without and with its temperature.
struct Fitted {
    plain: FittedTrajectory,
    temperature: f64,
    judged: [Judged; 2],
}

impl Trajectory {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::new).transpose()?;
        let report = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let samples = self.samples.as_ref().map(|path| Output::with_extension(path, &["npy"])).transpose()?;
        let given = self.read(samples.as_ref(), context)?;
        let planned = self.planned(&given, context)?;
        let mut all = vec![];
        for (i, method) in planned.iter().enumerate() {
            all.push(self.fitted(*method, (i, planned.len()), &given, context)?);
        }
        let judged: Vec<&Judged> = all.iter().flat_map(|fitted| &fitted.judged).collect();
        let (chosen, why) = chosen(&judged, &self.method, given.rows.validation.n());
        let judgement = Judgement::new(judged.iter().copied(), chosen, context.seed);
        let warnings = judgement.warnings();
        warnings.iter().for_each(|warning| context.warn(warning));
        let name = judged[chosen].name();
        let table = format!("{}\n{why}\n", judgement.table());
        if let Some(out) = &out {
            let Fitted { plain, temperature, .. } = &mut all[chosen / 2];
            plain.temperature = if chosen % 2 == 1 { *temperature } else { 1.0 };
            context.written(out, plain.save_with(Some(&given.schema), out.path()));
        }
        if let Some(report) = &report {
            let title = format!("Snapshots {} on {}", self.snapshots.display(), self.data);
            let page =
                page(&judgement, &title, &why, self.validation_rows.measured_on(), None).command(&context.command);
            context.written(report, report.text(&page.html()));
        }
        let object = json!({
            "snapshots": self.snapshots.to_string_lossy(), "count": given.snapshots.count(), "data": self.data,
            "n": given.rows.fit.n(), "validation": given.rows.validation.n(), "measured_on": self.validation_rows.measured_on(),
            "rows": given.rows.measured().n(), "method": name, "why": why, "methods": judgement.objects(),
            "warnings": warnings, "samples": samples, "out": out, "report": report,
        });
        context.costly_result(&object, || table)
    }

    /// Reads the networks and the rows; writes the samples where they are asked for.
    fn read(&self, samples: Option<&Output>, context: &Context) -> Result<Given> {
        let files = snapshot_files(&self.snapshots)?;
        let schema = files.last().map(|file| Classifier::schema_of(file)).transpose()?.flatten();
        let (data, schema) = match schema {
            Some(schema) => (labelled(self.reader.source.open_like(&self.data, &schema, context)?, context), schema),
            None => self.reader.features(&self.data, Some(Scaling::None), context)?,
        };
        let snapshots = self.networks(&files, &data, &self.snapshots, context)?;
        let last = snapshots.last();
        context.note(Input::new(&last.standardizer, last.foreign, data.x.rows()).words);
        let ensemble = match &self.ensemble[..] {
            [] => None,
            files => Some(self.networks(files, &data, "--ensemble".as_ref(), context)?),
        };
        if let Some(other) = ensemble.as_ref().map(|networks| networks.last()) {
            fail_if!(
                other.classes != last.classes || other.network.inputs() != last.network.inputs(),
                "the networks of --ensemble have other classes or columns than the snapshots"
            );
        }
        if let Some(out) = samples {
            let f = context.fitting(|fit| snapshots.samples(data.x.to_f64().view(), fit))?;
            write_npy(out.path(), f.view())?;
            context.wrote(out);
        }
        let rows = self.validation_rows.read(data, &self.data, last, (&self.reader, &schema), context)?;
        Ok(Given { snapshots, ensemble, schema, rows })
    }

    fn networks(&self, files: &[PathBuf], data: &Dataset, place: &Path, context: &Context) -> Result<Networks> {
        let load = |file: &PathBuf| self.foreign.load(file, self.net.as_deref(), data, context).map(Arc::new);
        let networks = files.iter().map(load).collect::<Result<Vec<_>>>()?;
        Networks::of(networks).map_err(|e| Error::file(place, format!("cannot be read as networks of one kind: {e}")))
    }

    /// The methods to fit, baselines first. Says what a new row takes by each.
    fn planned(&self, given: &Given, context: &Context) -> Result<Vec<Planned>> {
        let count = given.snapshots.count();
        let functions = self.k.unwrap_or(10.min(count - 1));
        let (draws, members) = (30, given.ensemble.as_ref().map_or(0, Networks::count));
        let hidden = given.snapshots.last().network.affine_layers().len() > 1;
        let all = [
            (Method::Last, 1),
            (Method::Swa, 1),
            (Method::Swag { draws, rank: 20 }, draws),
            (Method::Networks, count),
            (Method::Networks, members),
            (Method::Eigenfunctions { functions }, count),
            (Method::Ritz { functions }, 1),
        ];
        let wanted = |place: usize| {
            let (name, tempered, _) = METHODS[place];
            let possible = !(name == "ensemble" && members == 0 || name == "ritz" && !hidden);
            name == "map" || self.method == name || self.method == tempered || self.method == "auto" && possible
        };
        fail_if!(
            self.method.starts_with("ensemble") && members == 0,
            "--method {} needs the networks of several runs; name their files by --ensemble",
            self.method
        );
        let places: Vec<usize> = (0..all.len()).filter(|place| wanted(*place)).collect();
        let row = |place: &usize| {
            let (name, _, what) = METHODS[*place];
            vec![name.to_owned(), all[*place].1.to_string(), what.to_owned()]
        };
        let table = text::table(&["method", "passes", "probabilities"], &places.iter().map(row).collect::<Vec<_>>());
        context.note(format_args!(
            "{}; passes through the network for a new row:\n{}",
            text::count(count, "snapshot"),
            table.trim_end()
        ));
        Ok(places.into_iter().map(|place| Planned { place, method: all[place].0 }).collect())
    }

    /// Fits a method, the `i`-th of `count`, and measures it without and with a temperature.
    fn fitted(
        &self,
        Planned { place, method }: Planned,
        (i, count): (usize, usize),
        given: &Given,
        context: &Context,
    ) -> Result<Fitted> {
        let (name, tempered_name, _) = METHODS[place];
        let networks = match name {
            "ensemble" => given.ensemble.as_ref().expect("it was planned"),
            _ => &given.snapshots,
        };
        let predictive = if self.probit { Predictive::Probit } else { Predictive::Sampling { count: self.draws } };
        let settings = Settings { predictive, ..Settings::new(method) };
        let JudgedRows { fit: data, validation, ood, .. } = &given.rows;
        let start = Instant::now();
        let halves = halves(validation.n(), context.seed)?;
        let choices = choices(validation.n(), &halves);
        let mut fits = context.fitting(|fit| {
            let stage = fit.stage(name, i + 1, count);
            let fit = FitContext { data: &self.data, progress: &stage, ..*fit };
            settings.fit_on(networks, data, validation, &choices, &fit)
        })?;
        let fit_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let x = validation.x.to_f64();
        let first = fits[0].scores(x.view())?;
        let mut predict_seconds = start.elapsed().as_secs_f64();
        // Without functions nothing but the temperature differs between the fits.
        let again = |fit: &FittedTrajectory| match method.functions() {
            Some(_) => fit.scores(x.view()),
            None => Ok(first.clone()),
        };
        let validated = [again(&fits[1])?, again(&fits[2])?];
        let mut temperatures = vec![];
        for (fit, (scores, rows)) in fits.iter().zip([&first, &validated[0], &validated[1]].into_iter().zip(&choices)) {
            let mut tempered = fit.clone();
            tempered.temper(scores.select(Axis(0), rows).view(), &validation.select(rows))?;
            temperatures.push(tempered.temperature);
        }
        // Each half by the fit to the other half.
        let crossed = |divide: bool| {
            let part = |half: usize| {
                let t = if divide { temperatures[2 - half] } else { 1.0 };
                Answers { scores: validated[1 - half].select(Axis(0), &halves[half]) / t, deviations: None }
            };
            Answers::joined(&halves, [part(0), part(1)])
        };
        let mut plain = fits.swap_remove(0);
        let test = given.rows.measured();
        let start = Instant::now();
        let scores = given.rows.test.as_ref().map(|rows| plain.scores(rows.x.to_f64().view())).transpose()?;
        if scores.is_some() {
            predict_seconds = start.elapsed().as_secs_f64();
        }
        let seconds = [fit_seconds, predict_seconds];
        let outside = ood.as_ref().map(|rows| plain.scores(rows.x.to_f64().view())).transpose()?;
        plain.temper(first.view(), validation)?;
        let temperature = std::mem::replace(&mut plain.temperature, 1.0);
        plain.notes().iter().for_each(|note| context.warn(format_args!("{name}: {note}")));
        let classes = &given.snapshots.last().classes;
        let judged = |name: &'static str, t: f64| {
            let mut object =
                json!({ "method": name, "passes": plain.passes(), "seconds": fit_seconds, "temperature": t });
            if method.functions().is_some() {
                object["scale"] = json!(plain.found.value);
                object["eigenvalues"] = json!(plain.eigenvalues());
            }
            let divided = |scores: &Array2<f64>| Answers { scores: scores / t, deviations: None };
            let about = About { name, object, classes: classes.clone(), seconds };
            let (ood, crossed) = (outside.as_ref().map(divided), crossed(name == tempered_name));
            let scores = scores.as_ref().map(divided);
            let answers = scores.as_ref().unwrap_or(&crossed);
            Judged::new(about, (validation, &crossed), (test, answers), ood.as_ref())
        };
        let judged = [judged(name, 1.0)?, judged(tempered_name, temperature)?];
        Ok(Fitted { plain, temperature, judged })
    }
}
