//! `mercer probe`: what codes of each length say of the classes.

use crate::options::input::{Source, say_unscored, target_file};
use crate::options::values::choice;
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::show::codes::{Coded, Coder, METRICS, labels};
use crate::show::page as parts;
use crate::text;
use clap::Args;
use mercer::classifier::Estimate;
use mercer::data::{Target, split_rows};
use mercer::retrieval::{Choice, Index, Metric, Probe as Measured, Probed};
use mercer::{Error, Result, fail_if};
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use ndarray::{Array2, ArrayView1, Axis};
use serde_json::json;
use std::path::Path;

/// Share of the rows that is held out to measure on, where no others are given.
const HELD_OUT: f64 = 0.2;

/// Measure what a model's codes say of classes, against their length, beside PCA and random coordinates of the same code
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer embed mnist --rows 5000 --k 64 --model m.mercer\n  mercer probe m.mercer 'mnist(part=train)' --test 'mnist(part=test)' --report probe.html"
)]
pub struct Probe {
    /// Model file that `mercer fit` or `embed` wrote; without DATA codes with their classes: an index, or a file such as an .npz with X and y
    model: String,

    /// Rows with their classes to learn from, which are the items that are searched
    data: Option<String>,

    /// Rows with their classes to measure on, all of them [default: a fifth of DATA, drawn at random and held out]
    #[arg(long, value_name = "DATA")]
    test: Option<String>,

    /// Classes of the test rows, an .npy file with one number a row [default: the column or array of the target]
    #[arg(long, value_name = "FILE.npy", requires = "test", value_parser = target_file)]
    test_target: Option<String>,

    /// Lengths of the codes [default: 1, 2, 4, … and the whole code]
    #[arg(long, value_name = "M,…", value_delimiter = ',')]
    lengths: Option<Vec<usize>>,

    /// Nearest neighbours that vote
    #[arg(long, value_name = "N", default_value_t = 20)]
    neighbours: usize,

    /// How codes are compared
    #[arg(long, default_value = "cosine", value_parser = choice(METRICS))]
    metric: Metric,

    /// Test rows, drawn at random, whose whole ranking gives the mean average precision
    #[arg(long, value_name = "N", default_value_t = 500)]
    ranked: usize,

    /// Figure to write, .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<NewFile>,

    /// Report to write
    #[arg(long, value_name = "FILE.html")]
    report: Option<NewFile>,

    #[command(flatten)]
    source: Source,
}

/// Codes and the name of each row's class.
struct Rows {
    codes: Array2<f64>,
    labels: Vec<usize>,
    names: Vec<String>,
}

impl Probe {
    pub fn run(self, context: &Context) -> Result<()> {
        let plot = self.plot.as_ref().map(|path| Output::with_extension(path, &["svg", "png"])).transpose()?;
        let report = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let coder = || match &self.data {
            Some(_) => Coder::of_model(Path::new(&self.model), context),
            None => Ok(Coder::given()),
        };
        let (train, test) = match Index::open(Path::new(&self.model)) {
            Ok(index) => held_out(self.of_index(&index)?, context)?,
            Err(_) => self.rows(&coder()?, context)?,
        };
        let place = |label: &usize| train.names.iter().position(|name| *name == test.names[*label]);
        let labels: Option<Vec<usize>> = test.labels.iter().map(place).collect();
        let Some(labels) = labels else {
            return Err(Error::input(format!("{} has classes that `{}` has not", self.tested(), self.items())));
        };
        let k = train.codes.ncols();
        let lengths = self.lengths.clone().unwrap_or_else(|| doubled(k));
        let &Probe { neighbours, metric, ranked, .. } = &self;
        fail_if!(neighbours == 0, "--neighbours must be at least 1");
        let probe = Measured { lengths, neighbours, metric, ranked, ..Measured::default() };
        let found =
            context.fitting(|fit| probe.run((train.codes.view(), &train.labels), (test.codes.view(), &labels), fit))?;
        let figure = figure(&found);
        if let Some(plot) = &plot {
            plot.figure(&figure)?;
            context.wrote(plot);
        }
        let table = table(&found);
        if let Some(report) = &report {
            report.text(
                &self
                    .page(table.clone(), &figure, [train.labels.len(), labels.len()], k, &found)
                    .command(&context.command)
                    .html(),
            )?;
            context.wrote(report);
        }
        let object = json!({
            "model": self.model, "data": self.items(), "test": self.test, "n": train.labels.len(),
            "test_rows": labels.len(), "k": k, "neighbours": neighbours, "metric": metric, "codes": found, "plot": plot,
            "report": report,
        });
        context.costly_result(&object, || format!("{}\n{}\n", table.text(), said(&found)))
    }

    /// The rows that are searched.
    fn items(&self) -> &str {
        self.data.as_deref().unwrap_or(&self.model)
    }

    /// The rows that are measured on, in words.
    fn tested(&self) -> String {
        self.test.as_ref().map_or_else(|| "the held-out fifth".into(), |test| format!("`{test}`"))
    }

    /// Rows to learn from and rows to measure on.
    fn rows(&self, coder: &Coder, context: &Context) -> Result<(Rows, Rows)> {
        let all = rows(coder, &self.source, self.items(), "--target", context)?;
        if let Some(test) = &self.test {
            let source = self.source.beside(self.test_target.as_deref());
            return Ok((all, rows(coder, &source, test, "--test-target", context)?));
        }
        held_out(all, context)
    }

    /// The codes and classes of the items of an index.
    fn of_index(&self, index: &Index) -> Result<Rows> {
        let file = &self.model;
        fail_if!(
            self.data.is_some() || self.test.is_some() || self.source.is_given(),
            "`{file}` is an index and measured by its own items; leave out other data and its options, or give the model or the codes \
             that it was made of"
        );
        index.verify()?;
        let Some(labels) = index.labels() else {
            return Err(Error::input(format!("the items of `{file}` have no classes; index rows with classes")));
        };
        let mut codes = index.codes().mapv(f64::from);
        if let Some(centre) = index.centre() {
            codes += &ArrayView1::from(centre);
        }
        Ok(Rows { codes, labels, names: index.classes.clone() })
    }

    fn page(&self, table: Table, figure: &str, [n, m]: [usize; 2], k: usize, found: &[Probed]) -> Report {
        let model = &self.model;
        let setting = format!(
            "Codes of {k} coordinates by {model}. {} of {} vote or are ranked for each of {} of {}; the vote is that of the {} nearest \
             by {}. The linear classifier is multinomial logistic regression on the standardised coordinates. In brackets, \
             intervals of 95 % by bootstrap over the test rows.",
            text::count(n, "item"),
            self.items(),
            text::count(m, "row"),
            self.tested(),
            self.neighbours,
            if self.metric == Metric::Cosine { "cosine" } else { "distance" },
        );
        Report::new(format!("What codes of {model} say of the classes"))
            .lead(&said(found))
            .section("What was measured")
            .text(&setting)
            .section("Accuracy and retrieval")
            .figure(figure, "Bands are intervals of 95 % over the test rows; random coordinates are means over draws.")
            .table(table.key(2))
            .section("How it was made")
            .table(parts::facts(&[("program", parts::program())]))
    }
}

/// Rows to learn from, and a fifth to measure on.
fn held_out(all: Rows, context: &Context) -> Result<(Rows, Rows)> {
    let [rest, held_out] = split_rows(all.labels.len(), HELD_OUT, context.seed)?;
    let part = |rows: &[usize]| Rows {
        codes: all.codes.select(Axis(0), rows),
        labels: rows.iter().map(|&row| all.labels[row]).collect(),
        names: all.names.clone(),
    };
    Ok((part(&rest), part(&held_out)))
}

/// The codes of the rows of `data` that have a class, which `option` names.
fn rows(coder: &Coder, source: &Source, data: &str, option: &str, context: &Context) -> Result<Rows> {
    let Coded { data: rows, mut codes } = coder.code(source, data, None, context)?;
    say_unscored(&rows, context);
    if let Some((_, Some(known))) = rows.known() {
        codes = codes.select(Axis(0), known);
    }
    match labels(rows.labelled().y) {
        Some(Target::Classes { labels, names }) => Ok(Rows { codes, labels, names }),
        _ => Err(Error::input(format!(
            "`{data}` has no classes; name the column or the file that holds them by {option}"
        ))),
    }
}

/// 1, 2, 4, … and `k`.
fn doubled(k: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = std::iter::successors(Some(1), |m| Some(2 * m)).take_while(|m| *m < k).collect();
    lengths.push(k);
    lengths
}

fn table(found: &[Probed]) -> Table {
    let shown = |e: &Estimate| format!("{:.3} ({:.3}–{:.3})", e.value, e.interval[0], e.interval[1]);
    let row = |p: &Probed| {
        vec![
            p.length.to_string(),
            p.choice.name().to_owned(),
            shown(&p.neighbours),
            shown(&p.linear),
            shown(&p.map),
            shown(&p.precision),
            format!("{:.3}", p.milliseconds),
            p.bytes.to_string(),
        ]
    };
    let headings = ["length", "code", "neighbours", "linear", "mAP", "precision@10", "ms a query", "bytes"];
    Table::of(&headings, &found.iter().map(row).collect::<Vec<_>>())
}

/// The measures against the length of the code, a panel each.
fn figure(found: &[Probed]) -> String {
    type Part = (&'static str, fn(&Probed) -> &Estimate);
    let measures: [Part; 3] = [
        ("accuracy of the neighbours", |p| &p.neighbours),
        ("accuracy of a linear classifier", |p| &p.linear),
        ("mean average precision", |p| &p.map),
    ];
    let mut grid = Grid::new("", 3).panel_size(270.0, 220.0);
    for (name, measure) in measures {
        let mut plot = Plot::new(name).x_log("length of the code").y("");
        for (i, choice) in Choice::ALL.into_iter().enumerate() {
            // The whole code is the same code for every choice.
            let whole = found.iter().map(|p| p.length).max().unwrap_or(0);
            let of_choice = |p: &&Probed| p.choice == choice || p.length == whole && p.choice == Choice::First;
            let points: Vec<&Probed> = found.iter().filter(of_choice).collect();
            let xs: Vec<f64> = points.iter().map(|p| p.length as f64).collect();
            let of = |value: &dyn Fn(&Estimate) -> f64| points.iter().map(|p| value(measure(p))).collect::<Vec<f64>>();
            let band = [of(&|e| e.interval[0]), of(&|e| e.interval[1])];
            plot = plot.line(choice.name(), &xs, &of(&|e| e.value)).band(&band[0], &band[1]).markers().colour(i);
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

/// The shortest code of first coordinates whose neighbours come within a hundredth of the best.
fn said(found: &[Probed]) -> String {
    let first: Vec<&Probed> = found.iter().filter(|p| p.choice == Choice::First).collect();
    let best = first.iter().map(|p| p.neighbours.value).fold(0.0, f64::max);
    let Some(enough) = first.iter().filter(|p| p.neighbours.value >= best - 0.01).min_by_key(|p| p.length) else {
        return String::new();
    };
    format!(
        "The first {} give neighbours an accuracy of {:.3}, within 0.01 of the best of all lengths, {best:.3}.",
        text::count(enough.length, "coordinate"),
        enough.neighbours.value
    )
}
