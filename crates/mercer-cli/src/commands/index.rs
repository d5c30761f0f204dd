//! `mercer index`: the codes of rows in a file that is searched.

use crate::options::input::Source as Rows;
use crate::options::values::choice;
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::show::codes::{Coded, Coder, METRICS, absolute, labels};
use crate::show::graph::{self, ROUNDINGS};
use crate::text;
use clap::Args;
use mercer::data::Target;
use mercer::error::human_bytes;
use mercer::retrieval::{About, Blurred, Index as File, Items, Kept, Metric, Rounding, Source};
use mercer::{Error, Result, fail_if};
use ndarray::Array2;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Write the codes of rows to an index for `mercer search`
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer embed digits --k 32 --model m.mercer\n  mercer index m.mercer digits --dims 16 --out digits.index\n  mercer search digits.index new.npy --top 10 --report hits.html"
)]
pub struct Index {
    /// Model file that `mercer fit` or `embed` wrote, whose coordinates are the codes; without DATA the codes themselves, such as
    /// an .npy of embeddings
    model: String,

    /// Rows to index: a file or a named set (see `mercer datasets`)
    data: Option<String>,

    /// Coordinates to keep, the first ones [default: all]
    #[arg(long, value_name = "M")]
    dims: Option<usize>,

    /// How codes are compared
    #[arg(long, default_value = "cosine", value_parser = choice(METRICS))]
    metric: Metric,

    /// Text file with the name of each row, one a line
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    /// Also write a graph of neighbours, FILE.graph, for `mercer search --approximate` among more than 100 000 items: codes in
    /// single precision, as bytes or as bits (needs a program that was built with --features usearch)
    #[arg(long, value_name = "CODES", value_parser = choice(ROUNDINGS))]
    graph: Option<Rounding>,

    /// Index to write
    #[arg(long, short, value_name = "FILE")]
    out: NewFile,

    #[command(flatten)]
    source: Rows,
}

impl Index {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::new(&self.out)?;
        if self.graph.is_some() {
            graph::check()?;
        }
        let coder = match &self.data {
            Some(_) => Coder::of_model(Path::new(&self.model), context)?,
            None => Coder::given(),
        };
        let start = Instant::now();
        let rows = self.data.as_deref().unwrap_or(&self.model);
        let Coded { data, codes } = coder.code(&self.source, rows, self.dims, context)?;
        let seconds = start.elapsed().as_secs_f64();
        let names = self.names.as_deref().map(|path| names(path, data.n())).transpose()?;
        let (n, k, shape) = (data.n(), codes.ncols(), data.shape);
        let source = Path::new(rows);
        let source = if source.exists() { absolute(source) } else { rows.to_owned() };
        let about = About {
            metric: self.metric,
            source: (rows != "-").then_some(Source { data: source, first: self.source.first_row(), shape }),
            model: coder.model_file()?,
            schema: coder.model().and_then(|model| model.schema.clone()),
            graph: self.graph,
        };
        if let Some(some) = &data.some_y {
            let without = text::count(n - some.rows.len(), "row");
            context.warn(format_args!("{rows}: {without} without a class; the items are written without classes"));
        }
        let labels = labels(data.y);
        let Kept { codes, centre } = self.kept(codes, rows, context);
        let items =
            Items { codes: codes.view(), centre: centre.as_deref(), labels: labels.as_ref(), names: names.as_deref() };
        if let Some(rounding) = self.graph {
            graph::write(&graph::beside(&self.out), codes.view(), self.metric, rounding)?;
        }
        File::write(out.path(), &about, &items)?;
        let bytes = std::fs::metadata(out.path()).map_or(0, |file| file.len());
        let classes = match &labels {
            Some(Target::Classes { names, .. }) => names.len(),
            _ => 0,
        };
        let object = json!({
            "model": about.model, "data": rows, "n": n, "dims": k, "metric": self.metric, "classes": classes,
            "names": names.is_some(), "pictures": shape, "graph": self.graph, "bytes": bytes, "seconds": seconds, "out": out,
        });
        context.result(&object, || {
            let items = text::count(n, "item");
            format!(
                "wrote {}: codes of {} of {items}, {}, in {}",
                self.out.display(),
                text::count(k, "coordinate"),
                human_bytes(bytes),
                text::seconds(seconds)
            )
        })
    }
}

impl Index {
    /// Codes in single precision. Says so where that may change the order of neighbours.
    fn kept(&self, codes: Array2<f64>, rows: &str, context: &Context) -> Kept {
        let kept = Kept::of(codes.view(), self.metric);
        let Blurred { rows: moved, of } = kept.blurred(codes.view(), self.metric, context.seed);
        if moved > 0 {
            let remedy = match self.metric {
                Metric::Cosine => "subtract the mean of each column, or take --metric euclidean, which does",
                Metric::Euclidean => "such codes are too close together for an index",
            };
            context.warn(format_args!(
                "{moved} of {of} codes of `{rows}`, drawn at random, are rounded to single precision by more than a thousandth of the \
                 distance to their nearest item: hits may come in another order; {remedy}"
            ));
        }
        kept
    }
}

/// The lines of a file, one for each of `n` rows.
fn names(path: &Path, n: usize) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    let names: Vec<String> = text.lines().map(String::from).collect();
    fail_if!(names.len() != n; Error::file(path, format!("has {} lines, but there are {n} rows to name", names.len())));
    Ok(names)
}
