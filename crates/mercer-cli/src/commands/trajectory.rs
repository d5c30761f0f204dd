//! `mercer trajectory`: calibrated probabilities from the snapshots of a training run.

use crate::options::input::{Reader, labelled};
use crate::options::network::{Foreign, Input};
use crate::options::offered::{Given, plain_name};
use crate::options::validation_rows::ValidationRows;
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::show::uncertainty::{Judgement, why};
use crate::show::uncertainty_page::page;
use crate::text;
use clap::Args;
use mercer::classifier::{Classifier, snapshot_files};
use mercer::data::{Dataset, Scaling, Schema, write_npy};
use mercer::learn::{Samples, Snapshots, TrajectoryCandidate, TrajectoryCandidates, trajectories};
use mercer::trajectory::Trajectory as Networks;
use mercer::{Error, FitContext, Result, fail_if};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    #[arg(long, default_value = "auto", value_parser = plain_name::<Snapshots>())]
    method: &'static str,

    /// Networks of several training runs, to be compared as a deep ensemble
    #[arg(long, value_name = "A.safetensors,…", value_delimiter = ',')]
    ensemble: Vec<PathBuf>,

    #[command(flatten)]
    options: Given<Snapshots>,

    #[command(flatten)]
    validation_rows: ValidationRows,

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

/// The networks that the command is given, and how tables become their rows.
struct Runs {
    snapshots: Networks,
    ensemble: Option<Networks>,
    schema: Schema,
}

impl Trajectory {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::new).transpose()?;
        let report = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let samples = self.samples.as_ref().map(|path| Output::with_extension(path, &["npy"])).transpose()?;
        let (runs, rows) = self.read(samples.as_ref(), context)?;
        let candidates = self.candidates(&runs)?;
        context.note(passes(&candidates, runs.snapshots.count()));
        let found = context.fitting(|fit| {
            let fit = FitContext { data: &self.data, ..*fit };
            candidates.fit(&runs.snapshots, runs.ensemble.as_ref(), &rows, &fit)
        })?;
        // Both of a pair have the notes of their fit.
        for compared in found.all.iter().step_by(2) {
            compared
                .model
                .notes()
                .iter()
                .for_each(|note| context.warn(format_args!("{}: {note}", compared.judged.name)));
        }
        let why = why(&found, self.method, rows.validation.n());
        let judgement = Judgement::new(&found, context.seed);
        let warnings = judgement.warnings();
        warnings.iter().for_each(|warning| context.warn(warning));
        let kept = &found.all[found.kept];
        let table = format!("{}\n{why}\n", judgement.table());
        if let Some(out) = &out {
            context.written(out, kept.model.write(Some(&runs.schema), out.path()));
        }
        if let Some(report) = &report {
            let title = format!("Snapshots {} on {}", self.snapshots.display(), self.data);
            let page =
                page(&judgement, &title, &why, self.validation_rows.measured_on(), None).command(&context.command);
            context.written(report, report.text(&page.html()));
        }
        let object = json!({
            "snapshots": self.snapshots.to_string_lossy(), "count": runs.snapshots.count(), "data": self.data,
            "n": rows.fit.n(), "validation": rows.validation.n(), "measured_on": self.validation_rows.measured_on(),
            "rows": rows.measured().n(), "method": kept.judged.name, "why": why, "methods": judgement.objects(),
            "warnings": warnings, "samples": samples, "out": out, "report": report,
        });
        context.costly_result(&object, || table)
    }

    /// Reads the networks and the rows; writes the samples where they are asked for.
    fn read(&self, samples: Option<&Output>, context: &Context) -> Result<(Runs, Samples<Dataset>)> {
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
        Ok((Runs { snapshots, ensemble, schema }, rows))
    }

    fn networks(&self, files: &[PathBuf], data: &Dataset, place: &Path, context: &Context) -> Result<Networks> {
        let load = |file: &PathBuf| self.foreign.load(file, self.net.as_deref(), data, context).map(Arc::new);
        let networks = files.iter().map(load).collect::<Result<Vec<_>>>()?;
        Networks::of(networks).map_err(|e| Error::file(place, format!("cannot be read as networks of one kind: {e}")))
    }

    /// What to make of the networks.
    fn candidates(&self, runs: &Runs) -> Result<TrajectoryCandidates> {
        let known = Snapshots {
            count: runs.snapshots.count(),
            members: runs.ensemble.as_ref().map_or(0, Networks::count),
            hidden: runs.snapshots.last().network.affine_layers().len() > 1,
        };
        trajectories().build(self.method, self.options.options(), &known)
    }
}

/// What a new row takes by each candidate.
fn passes(candidates: &TrajectoryCandidates, count: usize) -> String {
    let row = |candidate: &TrajectoryCandidate| {
        vec![candidate.names[0].to_owned(), candidate.passes.to_string(), candidate.about.to_owned()]
    };
    let rows: Vec<Vec<String>> = candidates.all.iter().map(row).collect();
    let table = text::table(&["method", "passes", "probabilities"], &rows);
    format!("{}; passes through the network for a new row:\n{}", text::count(count, "snapshot"), table.trim_end())
}
