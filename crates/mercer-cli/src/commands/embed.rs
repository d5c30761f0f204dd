//! `mercer embed`: a few coordinates for every point.

use crate::options::input::{Reader, scaling};
use crate::options::offered::{self, Given};
use crate::options::precomputed::{self, PRECOMPUTED};
use crate::options::values;
use crate::program::context::Context;
use crate::program::output::{NewFile, Output, numbered};
use crate::show::certificate;
use crate::show::page;
use crate::show::units;
use crate::text;
use clap::Args;
use mercer::apply::{EmbeddingTask, SavedTransform};
use mercer::data::{Dataset, Scaling, Schema};
use mercer::kernel::Expression;
use mercer::operator::Precision;
use mercer::{FitContext, Result, fail_if, learn};
use mercer_figure::Plot;
use ndarray::{Array2, ArrayView1, s};
use serde_json::json;

/// Give every point a few coordinates that keep what the kernel calls near
#[derive(Args)]
#[command(after_help = "Example:\n  mercer embed digits --method laplacian --k 2 --plot digits.svg")]
pub struct Embed {
    /// File (.npy, .npz, .csv, IDX, CIFAR-10) or named set (see `mercer datasets`)
    data: String,

    /// How the coordinates are found
    #[arg(long, default_value = "kpca", value_parser = offered::name::<EmbeddingTask>())]
    method: &'static str,

    /// Kernel expression (see `mercer kernels`), or, for kpca, precomputed: the data is a kernel matrix [n, n], and new points
    /// are rows of their values with the n points, [m, n] [default: rbf(lengthscale=median); for laplacian a graph of neighbours]
    #[arg(long, value_name = "EXPRESSION")]
    kernel: Option<String>,

    #[command(flatten)]
    options: Given<EmbeddingTask>,

    /// Number of coordinates
    #[arg(long, short, value_name = "N", default_value_t = 2)]
    k: usize,

    /// Precision of kernel values; sums are always taken in f64
    #[arg(long, default_value = "f64", value_parser = values::precision())]
    precision: Precision,

    /// Scaling of the columns [default: standard for tables, none for images and generated sets]
    #[arg(long, value_parser = scaling())]
    scale: Option<Scaling>,

    /// Table to write, .npy or .csv: one row a point
    #[arg(long, short, value_name = "FILE")]
    out: Option<NewFile>,

    /// Model file to write, for `mercer transform`
    #[arg(long = "model", value_name = "FILE")]
    save: Option<NewFile>,

    /// Figure of the first two coordinates to write, .svg or .png; coloured by the target where there is one
    #[arg(long, value_name = "FILE")]
    plot: Option<NewFile>,

    #[command(flatten)]
    reader: Reader,
}

impl Embed {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::table).transpose()?;
        let plot = self.plot.as_ref().map(|path| Output::with_extension(path, &["svg", "png"])).transpose()?;
        let model = self.save.as_ref().map(Output::new).transpose()?;
        let precomputed = self.kernel.as_deref() == Some(PRECOMPUTED);
        let kernel = self.kernel.as_deref().filter(|_| !precomputed).map(Expression::parse).transpose()?;
        let task = match precomputed {
            true => EmbeddingTask::of_matrix(self.k),
            false => EmbeddingTask::new(self.k, kernel),
        };
        self.check(&task)?;
        let scale = if precomputed { Some(Scaling::None) } else { self.scale };
        let (data, schema) = self.reader.features(&self.data, scale, context)?;
        let kernel = task.kernel.map(|kernel| units::for_columns_said(&[kernel], Some(&schema), context).remove(0));
        let embedding =
            learn::embeddings().build(self.method, self.options.options(), &EmbeddingTask { kernel, ..task })?;
        let fitted = context.fitting(|fit| {
            let fit = FitContext { precision: self.precision, data: &self.data, ..*fit };
            match precomputed {
                true => embedding.fit(precomputed::matrix(&data)?.view(), &fit),
                false => embedding.fit(data.x.to_f64().view(), &fit),
            }
        })?;
        fitted.notes().iter().for_each(|note| context.warn(note));
        let z = fitted.embedding();
        if let Some(out) = &out {
            context.written(out, out.matrix(z.view(), &numbered("z", z.ncols())));
        }
        if let Some(model) = &model {
            context.written(model, fitted.write(Some(&schema), model.path()));
        }
        if let Some(plot) = &plot {
            plot.figure(&figure(&data, &z, &fitted.origin().method)?)?;
            context.wrote(plot);
        }
        self.show(fitted.as_ref(), &schema, (out, plot), context)
    }

    /// What can be refused before any work.
    fn check(&self, task: &EmbeddingTask) -> Result<()> {
        learn::embeddings().build(self.method, self.options.options(), task)?;
        fail_if!(
            task.matrix && self.scale.is_some(),
            "--kernel precomputed has no columns to scale; leave --scale out"
        );
        fail_if!(self.plot.is_some() && self.k < 2, "--plot shows two coordinates, but --k is {}; use --k 2", self.k);
        Ok(())
    }

    fn show(
        &self,
        fitted: &dyn SavedTransform,
        schema: &Schema,
        (out, plot): (Option<Output>, Option<Output>),
        context: &Context,
    ) -> Result<()> {
        let origin = &units::origin_as_written(fitted.origin(), Some(schema));
        let (eigenvalues, explained) = (fitted.eigenvalues(), fitted.explained());
        let shows_rows = out.is_none() && plot.is_none() && self.save.is_none();
        let object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": self.data, "n": origin.n, "d": origin.d,
            "k": eigenvalues.len(), "eigenvalues": eigenvalues, "explained": explained,
            "seconds": origin.seconds, "out": out, "plot": plot,
        });
        context.costly_result(&object, || {
            let row = |j: usize| {
                let mut cells = vec![(j + 1).to_string(), text::number(eigenvalues[j], 6)];
                cells.extend(explained.map(|e| text::percent(e[j])));
                cells
            };
            let rows: Vec<Vec<String>> = (0..eigenvalues.len()).map(row).collect();
            let headings = &["j", "eigenvalue", "variance"][..if explained.is_some() { 3 } else { 2 }];
            let origin = certificate::origin(origin, &format!("of {}", self.data), "");
            let mut said = format!("{origin}\n\n{}", text::table(headings, &rows));
            if shows_rows {
                said += &first_rows(&fitted.embedding());
            }
            said
        })
    }
}

/// The coordinates of the first rows.
fn first_rows(z: &Array2<f64>) -> String {
    const ROWS: usize = 10;
    const COLUMNS: usize = 8;
    let (rows, columns) = (z.nrows().min(ROWS), z.ncols().min(COLUMNS));
    let shown = z.slice(s![..rows, ..columns]);
    let row = |(i, z): (usize, ArrayView1<f64>)| {
        [vec![(i + 1).to_string()], z.iter().map(|v| text::number(*v, 4)).collect()].concat()
    };
    let rows: Vec<Vec<String>> = shown.rows().into_iter().enumerate().map(row).collect();
    let headings = [vec!["row".to_owned()], numbered("z", columns)].concat();
    let of = format!(
        "{} of {} and {columns} of {}",
        rows.len(),
        text::count(z.nrows(), "row"),
        text::count(z.ncols(), "coordinate")
    );
    format!(
        "\n{}{of}; --out z.npy writes all, --plot z.svg draws two, --model m.mercer keeps the model\n",
        text::table(&headings, &rows)
    )
}

fn figure(data: &Dataset, z: &Array2<f64>, method: &str) -> Result<String> {
    fail_if!(z.ncols() < 2, "the embedding has one coordinate only, which cannot be drawn; try another kernel");
    let plot = Plot::new(format!("{}: {method}", data.name)).x("first coordinate").y("second coordinate");
    Ok(page::scatter(plot, z.view(), data.y.as_ref()))
}
