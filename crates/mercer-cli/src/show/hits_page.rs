//! The page of a search: every row with its neighbours, as pictures where the rows are pictures, else as a table.

use crate::program::context::Context;
use crate::show::page as parts;
use crate::text;
use mercer::Result;
use mercer::data::{Dataset, Matrix, ReadOptions, Target, open};
use mercer::retrieval::{Hits, Index, Metric};
use mercer_figure::Gallery;
use mercer_figure::report::{Report, Table};

/// Queries on the page, and neighbours of each.
const QUERIES: usize = 30;
const NEIGHBOURS: usize = 12;

/// What was searched and found.
pub struct Found<'a> {
    pub index: &'a Index,
    /// The queries.
    pub data: &'a Dataset,
    pub query: &'a str,
    /// The first of their rows, counted from 0.
    pub first_query: usize,
    pub hits: &'a Hits,
}

impl Found<'_> {
    /// The row of a query in its file, counted from 1.
    pub fn query_row(&self, q: usize) -> usize {
        self.first_query + q + 1
    }

    /// The row of an item in the file that the index was made of, counted from 1.
    pub fn item_row(&self, item: usize) -> usize {
        self.index.about.source.as_ref().map_or(0, |source| source.first) + item + 1
    }
}

/// The page; `what` is how it was found.
pub fn page(found: &Found, what: &str, context: &Context) -> Result<Report> {
    let Found { index, data, query, hits, .. } = found;
    let score = if index.about.metric == Metric::Cosine { "cosine" } else { "distance" };
    let report = Report::new(format!("Nearest to {query}")).lead(what.trim()).section("Neighbours");
    let (queries, neighbours) = (data.n().min(QUERIES), hits.items.ncols().min(NEIGHBOURS));
    let cut = if data.n() > queries { format!(" The first {queries} of {} rows.", data.n()) } else { String::new() };
    let report = match pictures(found, (queries, neighbours), context) {
        Some(gallery) => {
            let caption = format!(
                "Each line: a row of {query}, then its nearest items from the nearest on, with {score} and label.{cut}"
            );
            report.figure(&gallery, &caption)
        }
        None => {
            let shown = |q: usize, j: usize| {
                let (item, value) = (hits.items[[q, j]], hits.scores[[q, j]]);
                let name = index.name(item).unwrap_or_else(|| format!("row {}", found.item_row(item)));
                let label = index.label(item).unwrap_or_default();
                vec![found.query_row(q).to_string(), (j + 1).to_string(), name, label, text::number(value, 5)]
            };
            let rows: Vec<Vec<String>> =
                (0..queries).flat_map(|q| (0..neighbours).map(move |j| (q, j))).map(|(q, j)| shown(q, j)).collect();
            let caption = format!("Rows are those of the files; rows and ranks count from 1.{cut}");
            report.table(Table::of(&["query row", "rank", "item", "label", score], &rows).key(2).caption(caption))
        }
    };
    let about = &index.about;
    let from = |text: Option<String>| text.unwrap_or_else(|| "given".into());
    let facts = [
        ("items", about.source.as_ref().map_or_else(|| "unknown".into(), |source| source.data.clone())),
        ("codes", from(about.model.as_ref().map(|model| format!("{} (checksum {})", model.path, model.checksum)))),
        ("program", parts::program()),
    ];
    Ok(report.section("How it was made").table(parts::facts(&facts)))
}

/// The queries and their neighbours as pictures; none where they are not pictures of one shape, or their source is gone.
fn pictures(found: &Found, (queries, neighbours): (usize, usize), context: &Context) -> Option<String> {
    let source = found.index.about.source.as_ref()?;
    let shape @ [channels, height, width] = source.shape?;
    if found.data.shape != Some(shape) || !(channels == 1 || channels == 3) {
        return None;
    }
    let options = ReadOptions { memory: Some(context.budget), ..ReadOptions::default() };
    let items = match open(&source.data, &options) {
        Ok(items) if items.shape == Some(shape) && items.n() >= source.first + found.index.n() => items,
        _ => {
            context.warn(format_args!("`{}` cannot be read any more: the page has no pictures", source.data));
            return None;
        }
    };
    let mut gallery = Gallery::new("", [height, width]);
    if channels == 3 {
        gallery = gallery.coloured();
    }
    for q in 0..queries {
        let near: Vec<usize> = found.hits.items.row(q).iter().take(neighbours).copied().collect();
        let of_items: Vec<usize> = near.iter().map(|item| source.first + item).collect();
        let pixels = [pixels(&found.data.x, &[q]), pixels(&items.x, &of_items)].concat();
        let label = |item: &usize| found.index.label(*item).map_or_else(String::new, |label| format!(" · {label}"));
        let caption = |(j, item): (usize, &usize)| format!("{:.3}{}", found.hits.scores[[q, j]], label(item));
        let captions: Vec<String> =
            std::iter::once(own_label(found.data, q)).chain(near.iter().enumerate().map(caption)).collect();
        gallery = gallery.row(found.query_row(q).to_string(), &pixels).captions(&captions);
    }
    Some(gallery.svg())
}

/// The class of a query, where it is known.
fn own_label(data: &Dataset, q: usize) -> String {
    match &data.y {
        Some(Target::Classes { labels, names }) => format!("query · {}", names[labels[q]]),
        _ => "query".into(),
    }
}

/// The numbers of some rows, one after the other.
fn pixels(x: &Matrix, rows: &[usize]) -> Vec<f64> {
    x.select(rows).into_f64().into_iter().collect()
}
