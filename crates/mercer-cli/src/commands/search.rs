//! `mercer search`: the items of an index that are nearest to given rows.

use crate::options::input::{Source, say_unscored};
use crate::program::context::Context;
use crate::program::output::{NewFile, Output, quoted};
use crate::show::codes::{Coded, Coder};
use crate::show::graph;
use crate::show::hits_page::{Found, page};
use crate::text;
use clap::Args;
use mercer::classifier::Estimate;
use mercer::data::{Dataset, Target, write_npy};
use mercer::model::stated_checksum;
use mercer::retrieval::{Blurred, ExactSearch, Hits, Index, Shortlist, recall};
use mercer::{Error, Result, fail_if};
use ndarray::s;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Rows of the table on standard output.
const SHOWN: usize = 20;

/// Find the items of an index that are nearest to each row
#[derive(Args)]
#[command(after_help = "Example:\n  mercer search digits.index new.npy --top 10 --report hits.html --out hits.csv")]
pub struct Search {
    /// Index that `mercer index` wrote
    index: PathBuf,

    /// Rows to find neighbours of: a file or a named set; for an index of given codes, codes of the same length
    query: String,

    /// Items to find for each row
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Coordinates to compare, the first ones [default: all of the index]
    #[arg(long, value_name = "M")]
    dims: Option<usize>,

    /// Adaptive length: a short code keeps so many items, and the long one puts them in order
    #[arg(long, value_name = "N")]
    shortlist: Option<usize>,

    /// Coordinates of the short code [default: a quarter of the long one]
    #[arg(long, value_name = "M", requires = "shortlist")]
    short_dims: Option<usize>,

    /// Search the graph of neighbours that `mercer index --graph` wrote, which may miss some of the nearest items
    #[arg(long, conflicts_with_all = ["shortlist", "dims"])]
    approximate: bool,

    /// Measure how many of the nearest items were found by the shortlist or the graph, by an exact search
    #[arg(long)]
    recall: bool,

    /// Model that made the codes [default: the file that the index names]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Hits to write: a table with query_row, rank, item_row, score, and label and name where items have them; its rows are those of
    /// the files, counted from 1. Or an .npy array of the items' rows, a line for each query, counted from 0
    #[arg(long, short, value_name = "FILE.csv|.npy")]
    out: Option<NewFile>,

    /// Page to write: each row with its neighbours and scores, as pictures where the rows are pictures
    #[arg(long, value_name = "FILE.html")]
    report: Option<NewFile>,

    #[command(flatten)]
    source: Source,
}

impl Search {
    pub fn run(self, context: &Context) -> Result<()> {
        if self.approximate {
            graph::check()?;
        }
        let out = self.out.as_ref().map(Output::table).transpose()?;
        let report = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let start = Instant::now();
        let index = Index::open(&self.index)?;
        let opened = start.elapsed().as_secs_f64();
        let coder = self.coder(&index, context)?;
        let m = crate::show::codes::first(self.dims, index.k())?;
        index.verify()?;
        let Coded { data, codes } = coder.code(&self.source, &self.query, None, context)?;
        fail_if!(
            codes.ncols() < index.k(),
            "codes of `{}` have {} coordinates, those of the index {}",
            self.query,
            codes.ncols(),
            index.k()
        );
        let codes = codes.slice_move(s![.., ..m]);
        let queries = index.prepared(codes.view());
        let items = index.codes();
        let search = ExactSearch::new(items.slice(s![.., ..m]), index.about.metric)?;
        let shortlist = self.shortlist(m, index.n())?;
        let found = self.shortlist.unwrap_or(self.top).min(index.n());
        context.budget.require(
            format!("lists of {found} items for {} rows", data.n()),
            (64 * found as u64).saturating_mul(data.n() as u64),
            "ask for fewer items, or search fewer rows at a time",
        )?;
        let start = Instant::now();
        let hits = match shortlist {
            _ if self.approximate => graph::nearest(&self.index, &index, &search, queries.view(), self.top)?,
            Some(shortlist) => search.by_shortlist(queries.view(), shortlist, self.top)?,
            None => search.nearest(queries.view(), self.top)?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let Blurred { rows: moved, of } = index.blurred(codes.view(), hits.scores.view());
        if moved > 0 {
            context.warn(format_args!(
                "{moved} of {of} codes of `{}` are rounded to single precision by more than a thousandth of the distance to their nearest \
                 item: hits may come in another order",
                self.query
            ));
        }
        let recall = match self.recall {
            false => None,
            true => {
                let exact = search.nearest(queries.view(), self.top)?;
                Some(Estimate::of_mean(&recall(&hits, &exact), context.seed))
            }
        };
        let precision = precision(&index, &data, &hits, context.seed);
        if precision.is_some() {
            say_unscored(&data, context);
        }
        let first_query = self.source.first_row();
        let found = Found { index: &index, data: &data, query: &self.query, first_query, hits: &hits };
        if let Some(out) = &out {
            match out.is("npy") {
                true => write_npy(out.path(), hits.items.mapv(|item| (found.item_row(item) - 1) as i64).view())?,
                false => write_table(out, &found)?,
            }
            context.wrote(out);
        }
        let measured = said_measures(precision.as_ref(), recall.as_ref(), hits.items.ncols());
        let what = format!(
            "{} in {} of {}{}: {} ms a query; the index was opened in {}",
            if data.n() == 1 { "1 query".into() } else { format!("{} queries", text::grouped(data.n())) },
            text::count(index.n(), "code"),
            text::count(m, "coordinate"),
            shortlist.map_or_else(String::new, |s| format!(", shortlists of {} by {}", s.items, s.dims)),
            text::number(1e3 * seconds / data.n() as f64, 2),
            text::seconds(opened),
        );
        if let Some(report) = &report {
            let page = page(&found, &format!("{what}. {measured}"), context)?.command(&context.command);
            report.text(&page.html())?;
            context.wrote(report);
        }
        let lists: Vec<Vec<usize>> =
            hits.items.rows().into_iter().map(|row| row.iter().map(|&i| found.item_row(i)).collect()).collect();
        let query_rows: Vec<usize> = (0..data.n()).map(|q| found.query_row(q)).collect();
        let scores: Vec<Vec<f64>> = hits.scores.rows().into_iter().map(|row| row.to_vec()).collect();
        let object = json!({
            "index": self.index.to_string_lossy(), "query": self.query, "n": index.n(), "queries": data.n(), "dims": m,
            "metric": index.about.metric, "query_rows": query_rows, "item_rows": lists, "scores": scores, "precision": precision, "recall": recall,
            "open_seconds": opened, "seconds": seconds, "out": out, "report": report,
        });
        context.result(&object, || format!("{}\n{what}.\n{measured}\n", table(&found)))
    }

    /// What makes codes of the queries: the model of the index, or nothing, where its codes were given.
    fn coder(&self, index: &Index, context: &Context) -> Result<Coder> {
        let Some(made_by) = &index.about.model else {
            fail_if!(self.model.is_some(), "the index holds codes that no model made; leave out --model");
            return Ok(Coder::given());
        };
        let path = self.model.clone().unwrap_or_else(|| PathBuf::from(&made_by.path));
        fail_if!(!path.exists(); Error::file(&path, "made the codes of the index and is missing; name its file by --model"));
        fail_if!(stated_checksum(&path)? != made_by.checksum; Error::file(
            Path::new(&path),
            "is another model than the one that made the codes of the index; name that one by --model, or make the index again"
        ));
        Coder::of_model(&path, context)
    }

    fn shortlist(&self, m: usize, n: usize) -> Result<Option<Shortlist>> {
        let Some(items) = self.shortlist else { return Ok(None) };
        let dims = self.short_dims.unwrap_or(m.div_ceil(4));
        fail_if!(dims == 0 || dims > m, "--short-dims {dims}: the code has {m} coordinates; use 1 to {m}");
        let top = self.top.min(n);
        fail_if!(items < top, "--shortlist {items} cannot hold the {top} nearest items; use at least {top}");
        Ok(Some(Shortlist { dims, items }))
    }
}

/// The share of the found items that are of the query's class, where both have classes of the same names.
fn precision(index: &Index, data: &Dataset, hits: &Hits, seed: u64) -> Option<Estimate> {
    let items = index.labels()?;
    let (y, known) = data.known()?;
    let Some(Target::Classes { labels, names }) = crate::show::codes::labels(Some(y.clone())) else { return None };
    let class = |label: usize| index.classes.iter().position(|name| *name == names[label]);
    let of_query = |(i, &label): (usize, &usize)| {
        let row = hits.items.row(known.map_or(i, |known| known[i]));
        let right = row.iter().filter(|&&item| Some(items[item]) == class(label)).count();
        right as f64 / row.len().max(1) as f64
    };
    let shares: Vec<f64> = labels.iter().enumerate().map(of_query).collect();
    Some(Estimate::of_mean(&shares, seed))
}

fn said_measures(precision: Option<&Estimate>, recall: Option<&Estimate>, top: usize) -> String {
    let said =
        |what: &str, e: &Estimate| format!("{what} {:.4} ({:.4} to {:.4})", e.value, e.interval[0], e.interval[1]);
    let right = precision.map(|e| said(&format!("Share of the query's class among the first {top}:"), e) + ".");
    let kept = recall.map(|e| said("Recall beside the exact search:", e) + ".");
    [right, kept].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Headings of what is said of an item, and what is: row, score, label and name.
fn columns(index: &Index) -> Vec<&'static str> {
    let mut columns = vec!["query_row", "rank", "item_row", "score"];
    columns.extend(index.label(0).map(|_| "label"));
    columns.extend(index.name(0).map(|_| "name"));
    columns
}

/// The hits of all queries, one a row.
fn rows<'f>(found: &'f Found) -> impl Iterator<Item = Vec<String>> + 'f {
    found.hits.items.indexed_iter().map(|((q, j), &item)| {
        let score = found.hits.scores[[q, j]];
        let mut row: Vec<String> =
            [found.query_row(q), j + 1, found.item_row(item)].iter().map(usize::to_string).collect();
        row.push(score.to_string());
        row.extend(found.index.label(item));
        row.extend(found.index.name(item));
        row
    })
}

fn table(found: &Found) -> String {
    let mut shown: Vec<Vec<String>> = rows(found).take(SHOWN).collect();
    shown.iter_mut().for_each(|row| row[3] = row[3].parse().map_or_else(|_| row[3].clone(), |v| text::number(v, 6)));
    let more = found.hits.items.len().saturating_sub(SHOWN);
    let rest = if more == 0 { String::new() } else { format!("… and {more} more; --out writes all\n") };
    format!("{}{rest}", text::table(&columns(found.index), &shown))
}

fn write_table(out: &Output, found: &Found) -> Result<()> {
    out.pieces(|put| {
        put(&format!("{}\n", columns(found.index).join(",")))?;
        rows(found).try_for_each(|row| {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            put(&format!("{}\n", cells.join(",")))
        })
    })
}
