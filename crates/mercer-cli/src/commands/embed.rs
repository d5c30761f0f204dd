//! `mercer embed`: a few coordinates for every point.

use crate::options::input::{Reader, scaling};
use crate::options::precomputed::{self, PRECOMPUTED};
use crate::options::values;
use crate::program::context::Context;
use crate::program::output::{NewFile, Output, numbered};
use crate::show::certificate;
use crate::show::page;
use crate::show::units;
use crate::text;
use clap::{Args, ValueEnum};
use mercer::apply::{Affinity, DiffusionMaps, Fit, KernelPca, LaplacianEigenmaps, Saved, Transform};
use mercer::data::{Dataset, Scaling, Schema};
use mercer::kernel::{Expression, Kernel};
use mercer::operator::Precision;
use mercer::{Error, FitContext, Result, fail_if};
use mercer_figure::Plot;
use ndarray::{Array2, ArrayView1, s};
use serde_json::json;
use std::path::Path;
use std::rc::Rc;

/// Give every point a few coordinates that keep what the kernel calls near
#[derive(Args)]
#[command(after_help = "Example:\n  mercer embed digits --method laplacian --k 2 --plot digits.svg")]
pub struct Embed {
    /// File (.npy, .npz, .csv, IDX, CIFAR-10) or named set (see `mercer datasets`)
    data: String,

    /// How the coordinates are found
    #[arg(long, default_value = "kpca")]
    method: Way,

    /// Kernel expression (see `mercer kernels`), or, for kpca, precomputed: the data is a kernel matrix [n, n], and new points
    /// are rows of their values with the n points, [m, n] [default: rbf(lengthscale=median); for laplacian a graph of neighbours]
    #[arg(long, value_name = "EXPRESSION")]
    kernel: Option<String>,

    /// laplacian: join every point to so many nearest others [default: 10, unless a kernel is given]
    #[arg(long, value_name = "N", conflicts_with = "kernel")]
    neighbours: Option<usize>,

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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Kernel principal components
    Kpca,
    /// Laplacian eigenmaps: the slowest functions on a graph of neighbours, or on a kernel
    Laplacian,
    /// Diffusion maps: distances are those of a diffusion over the points
    Diffusion,
}

/// Writes the model with its schema to a file.
type Save = dyn Fn(&Schema, &Path) -> Result<()>;

/// The fitted coordinates, and for kernel PCA the share of the variance of each.
struct Embedded {
    fitted: Rc<dyn Transform>,
    save: Box<Save>,
    explained: Option<Vec<f64>>,
}

impl Embedded {
    fn new(fitted: impl Transform + Saved + 'static, explained: Option<Vec<f64>>) -> Embedded {
        let fitted = Rc::new(fitted);
        let saved = fitted.clone();
        Embedded { fitted, save: Box::new(move |schema, path| saved.save_with(Some(schema), path)), explained }
    }
}

impl Embed {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::table).transpose()?;
        let plot = self.plot.as_ref().map(|path| Output::with_extension(path, &["svg", "png"])).transpose()?;
        let model = self.save.as_ref().map(Output::new).transpose()?;
        self.check()?;
        let precomputed = self.kernel.as_deref() == Some(PRECOMPUTED);
        let kernel = if precomputed { "linear" } else { self.kernel.as_deref().unwrap_or("rbf(lengthscale=median)") };
        let kernel = Expression::parse(kernel)?;
        let scale = if precomputed { Some(Scaling::None) } else { self.scale };
        let (data, schema) = self.reader.features(&self.data, scale, context)?;
        let kernel =
            units::for_columns_said(&[kernel], Some(&schema), context).remove(0).resolve(&data.x, context.seed)?;
        let Embedded { fitted, save, explained } = context.fitting(|fit| {
            self.embed(&kernel, &data, &FitContext { precision: self.precision, data: &self.data, ..*fit })
        })?;
        fitted.notes().iter().for_each(|note| context.warn(note));
        let z = fitted.embedding();
        if let Some(out) = &out {
            context.written(out, out.matrix(z.view(), &numbered("z", z.ncols())));
        }
        if let Some(model) = &model {
            context.written(model, save(&schema, model.path()));
        }
        if let Some(plot) = &plot {
            plot.figure(&figure(&data, &z, &fitted.origin().method)?)?;
            context.wrote(plot);
        }
        self.show((fitted.as_ref(), &schema), explained, (out, plot), context)
    }

    /// What can be refused before any work.
    fn check(&self) -> Result<()> {
        if self.neighbours.is_some() && self.method != Way::Laplacian {
            return Err(Error::input("--neighbours is for --method laplacian; leave it out"));
        }
        if self.kernel.as_deref() == Some(PRECOMPUTED) && (self.method != Way::Kpca || self.scale.is_some()) {
            return Err(Error::input("--kernel precomputed is for --method kpca, without --scale"));
        }
        fail_if!(self.plot.is_some() && self.k < 2, "--plot shows two coordinates, but --k is {}; use --k 2", self.k);
        Ok(())
    }

    fn embed(&self, kernel: &Kernel, data: &Dataset, fit: &FitContext<'_>) -> Result<Embedded> {
        let x = data.x.to_f64();
        let (k, x, kernel) = (self.k, x.view(), kernel.clone());
        Ok(match self.method {
            Way::Kpca => {
                let pca = KernelPca { k, ..KernelPca::new(kernel) };
                let fitted = match self.kernel.as_deref() {
                    Some(PRECOMPUTED) => pca.fit_matrix(precomputed::matrix(data)?.view(), fit)?,
                    _ => pca.fit(x, &(), fit)?,
                };
                let explained = Some(fitted.explained.clone());
                Embedded::new(fitted, explained)
            }
            Way::Laplacian => {
                let graph = Affinity::Neighbours(self.neighbours.unwrap_or(10));
                let affinity = if self.kernel.is_some() { Affinity::Kernel(kernel) } else { graph };
                Embedded::new(LaplacianEigenmaps { k, affinity, ..Default::default() }.fit(x, &(), fit)?, None)
            }
            Way::Diffusion => Embedded::new(DiffusionMaps { k, ..DiffusionMaps::new(kernel) }.fit(x, &(), fit)?, None),
        })
    }

    fn show(
        &self,
        (fitted, schema): (&dyn Transform, &Schema),
        explained: Option<Vec<f64>>,
        (out, plot): (Option<Output>, Option<Output>),
        context: &Context,
    ) -> Result<()> {
        let (origin, eigenvalues) = (&units::origin_as_written(fitted.origin(), Some(schema)), fitted.eigenvalues());
        let shows_rows = out.is_none() && plot.is_none() && self.save.is_none();
        let object = json!({
            "method": origin.method, "kernel": origin.kernel, "data": self.data, "n": origin.n, "d": origin.d,
            "k": eigenvalues.len(), "eigenvalues": eigenvalues, "explained": explained,
            "seconds": origin.seconds, "out": out, "plot": plot,
        });
        context.costly_result(&object, || {
            let row = |j: usize| {
                let mut cells = vec![(j + 1).to_string(), text::number(eigenvalues[j], 6)];
                cells.extend(explained.as_ref().map(|e| text::percent(e[j])));
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
