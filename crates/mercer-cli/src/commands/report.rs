//! `mercer report`: what a model found, as a page for a browser or a printer.

use super::fit::by_output;
use crate::options::input::{Source, described};
use crate::options::training;
use crate::program::context::Context;
use crate::program::output::{NewFile, Output};
use crate::show::{certificate, page, units};
use crate::text;
use clap::Args;
use mercer::data::{Dataset, Schema};
use mercer::model::{Content, Model};
use mercer::rng::Rng;
use mercer::spectrum::Spectrum;
use mercer::{Error, Result};
use mercer_figure::Plot;
use mercer_figure::report::Report as Page;
use ndarray::{Array2, Axis};
use serde_json::json;
use std::path::PathBuf;

/// Write a report on a fitted model: spectrum, certificate, eigenfunctions over the data, embedding, training
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer fit digits --out digits.mercer\n  mercer report digits.mercer --out digits.html"
)]
pub struct Report {
    /// Model file that `mercer fit` wrote
    model: PathBuf,

    /// Points at which the eigenfunctions are shown [default: the data that the model was fitted on]
    data: Option<String>,

    /// Report to write
    #[arg(long, short, value_name = "FILE.html")]
    out: NewFile,

    #[command(flatten)]
    source: Source,
}

impl Report {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::with_extension(&self.out, &["html"])?;
        let Model { schema, content: Content::Spectrum(spectrum) } = Model::load(&self.model, context.device)? else {
            return Err(Error::file(&self.model, "holds no eigenfunctions; reports are for what `mercer fit` wrote"));
        };
        let schema = schema.as_ref();
        let shown = match &self.data {
            Some(data) => Some(Shown::at(&spectrum, sample(&self.open(data, schema, context)?, context.seed))?),
            None => self.fitted_data(&spectrum, schema, context),
        };
        out.text(&write(&spectrum, schema, shown.as_ref(), context).html())?;
        let object = json!({
            "model": self.model.to_string_lossy(),
            "data": shown.as_ref().map(|shown| &shown.data.name),
            "shown": shown.as_ref().map(|shown| shown.data.n()),
            "out": out,
        });
        context.result(&object, || format!("wrote {}; open it in a browser", self.out.display()))
    }

    /// The features of a source, as the model sees them.
    fn open(&self, source: &str, schema: Option<&Schema>, context: &Context) -> Result<Dataset> {
        match schema {
            Some(schema) => self.source.open_like(source, schema, context),
            None => self.source.numbers(source, context),
        }
    }

    /// The data of the fit, where it can be read and evaluated; else a warning says why not.
    fn fitted_data(&self, spectrum: &Spectrum, schema: Option<&Schema>, context: &Context) -> Option<Shown> {
        let name = &spectrum.origin.data;
        if !spectrum.takes_coordinates() {
            context.warn("the model holds functions of samples, not of coordinates; the report does not show them");
            return None;
        }
        let opened = self.open(name, schema, context).and_then(|data| Shown::at(spectrum, sample(&data, context.seed)));
        opened
            .map_err(|error| {
                context.warn(format_args!(
                    "the eigenfunctions are not shown, as those of the fitted data `{name}` cannot be found: {error}; name \
                     the points after the model"
                ));
            })
            .ok()
    }
}

/// Points, and the functions there.
pub struct Shown {
    data: Dataset,
    /// `[n, k]`, the first output where there are several.
    psi: Array2<f64>,
}

/// More points than this are thinned: a figure shows no more.
const MOST: usize = 3000;

/// Rows for a figure, in their order.
pub fn sample(data: &Dataset, seed: u64) -> Dataset {
    let mut rows: Vec<usize> = match data.n() {
        n if n <= MOST => (0..n).collect(),
        n => Rng::new(seed).fork(0x7368_6f77).sample(n, MOST),
    };
    rows.sort_unstable();
    data.select(&rows)
}

impl Shown {
    /// The functions of a spectrum at the rows of `data`.
    pub fn at(spectrum: &Spectrum, data: Dataset) -> Result<Shown> {
        let psi = spectrum.transform(data.x.rows())?;
        Ok(Shown::with(spectrum, &data, &psi))
    }

    /// The functions `psi` `[n·C, k]` at the rows of `data`.
    pub fn with(spectrum: &Spectrum, data: &Dataset, psi: &Array2<f64>) -> Shown {
        Shown { data: data.clone(), psi: by_output(spectrum, psi.clone()).index_axis_move(Axis(1), 0) }
    }
}

/// What the figure of eigenvalues shows: without held-out points there are no intervals.
fn eigenvalue_caption(spectrum: &Spectrum) -> &'static str {
    match spectrum.certificate.interval.iter().any(Option::is_some) {
        true => {
            "Eigenvalues on a logarithmic axis; the band is the 95 % interval of each function's Rayleigh quotient on fresh points."
        }
        false => "Eigenvalues on a logarithmic axis.",
    }
}

/// The report on a spectrum, with its functions where they are shown.
pub fn write(spectrum: &Spectrum, schema: Option<&Schema>, shown: Option<&Shown>, context: &Context) -> Page {
    let origin = &units::origin_as_written(&spectrum.origin, schema);
    let data = if origin.data.is_empty() { "unnamed data" } else { &origin.data };
    let mut page = Page::new(format!("{} on {data}", text::rounded(&origin.kernel)))
        .lead(&(certificate::origin(origin, &format!("of {data}"), "") + "."))
        .section("Spectrum")
        .figure(&page::eigenvalues(spectrum, &[]), eigenvalue_caption(spectrum))
        .figure(&page::residuals([spectrum]), &residual_caption(spectrum))
        .section("Certificate");
    let ranges = if certificate::has_ranges(spectrum.k()) { "; ranges have their largest residual" } else { "" };
    page = page::certificate(page, spectrum, &format!("Pair by pair{ranges}."));
    if let Some(shown) = shown {
        page = functions(page, spectrum, shown);
    }
    if let Some(trained) = spectrum.training() {
        page = page
            .section("Training")
            .figure(
                &page::learning(trained),
                "Loss of the batches, and the mean residual of the pairs on validation points.",
            )
            .text(&training::sentences(trained).join("\n\n"));
    }
    page.section("How it was made").table(made(spectrum, schema)).command(&context.command)
}

fn residual_caption(spectrum: &Spectrum) -> String {
    let place = match spectrum.certificate.held_out {
        0 => "the fitted points themselves, as none were held out".into(),
        held_out => format!("{} held out", text::count(held_out, "point")),
    };
    format!("How far each pair is from solving Kψ = μψ, relative to μ, on {place}.")
}

/// The eigenfunctions over the points: over the line or the plane, else over the embedding; and the embedding.
fn functions(mut page: Page, spectrum: &Spectrum, Shown { data, psi }: &Shown) -> Page {
    let points = match data.n() {
        MOST => format!("{} drawn at random", text::count(MOST, "point")),
        n => text::count(n, "point"),
    };
    let outputs = if spectrum.origin.outputs > 1 { "; the first output of each function" } else { "" };
    let (x, k) = (data.x.to_f64(), psi.ncols());
    let embedded = page::embedding(&spectrum.eigenvalues, psi.view());
    let column = |j: usize| data.columns.get(j).map_or("", String::as_str);
    let title = format!("The first {} over {}", text::count(k.min(8), "eigenfunction"), data.name);
    let beyond = "values beyond ±3 have the colours of the ends";
    page = page.section("Eigenfunctions");
    page = match (data.d(), &embedded) {
        (1, _) => page.figure(
            &page::functions_on_line(&title, column(0), x.column(0), psi.view()),
            &format!("The functions at {points}{outputs}."),
        ),
        (2, _) => page.figure(
            &page::functions_on_plane(&title, [column(0), column(1)], x.view(), psi.view()),
            &format!("The functions at {points}{outputs}; {beyond}."),
        ),
        (_, Some((z, [a, b]))) => page.figure(
            &page::functions_on_plane(&title, [a, b], z.view(), psi.view()),
            &format!("The functions at {points}{outputs}, in the two coordinates √μ ψ that vary most; {beyond}."),
        ),
        (_, None) => {
            page.text("Fewer than two functions vary over the points, so that there is no plane to show them on.")
        }
    };
    if let Some(images) = page::extremes("The images at both ends of each function", data, psi.view()) {
        page = page
            .figure(&images, "The images where each function is lowest (left) and highest (right), with its values.");
    }
    let Some((z, [a, b])) = embedded else { return page };
    let coloured = if data.y.is_some() { ", coloured by target" } else { "" };
    let plot = Plot::new("Embedding").x(a).y(b);
    page.section("Embedding").figure(
        &page::scatter(plot, z.view(), data.y.as_ref()),
        &format!("{points} in the two coordinates √μ ψ that vary most{coloured}."),
    )
}

/// Everything that says where the spectrum came from.
fn made(spectrum: &Spectrum, schema: Option<&Schema>) -> mercer_figure::report::Table {
    let origin = &units::origin_as_written(&spectrum.origin, schema);
    let mut facts = vec![
        ("kernel", origin.kernel.clone()),
        ("data", origin.data.clone()),
        ("fitted", format!("{} of {}", text::count(origin.n, "point"), text::count(origin.d, "column"))),
        ("held out", text::count(spectrum.certificate.held_out, "point")),
        ("method", origin.method.clone()),
        ("precision of kernel values", format!("{:?}", origin.precision).to_lowercase()),
        ("columns", schema.map_or_else(|| "numbers as they are".into(), described)),
        ("seed", origin.seed.to_string()),
        ("time of the fit", text::seconds(origin.seconds)),
    ];
    if !origin.command.is_empty() {
        facts.push(("command of the fit", origin.command.clone()));
    }
    facts.push(("program", page::program()));
    page::facts(&facts)
}
