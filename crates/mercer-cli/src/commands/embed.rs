//! `mercer embed`: a few coordinates for every point.

use crate::certificate;
use crate::context::Context;
use crate::input::{Reader, scaling};
use crate::methods;
use crate::output::{Output, numbered};
use crate::page;
use crate::precomputed::{self, PRECOMPUTED};
use crate::text;
use clap::{Args, ValueEnum};
use mercer::apply::{Affinity, DiffusionMaps, Fit, KernelPca, LaplacianEigenmaps, Saved, Transform};
use mercer::data::{Dataset, Scaling, Schema};
use mercer::kernel::{Expression, Kernel};
use mercer::operator::Precision;
use mercer::{Error, FitContext, Result, fail_if};
use mercer_figure::Plot;
use ndarray::Array2;
use serde_json::json;
use std::path::{Path, PathBuf};
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
    #[arg(long, default_value = "f64", value_parser = methods::precision())]
    precision: Precision,

    /// Scaling of the columns [default: standard for tables, none for images and generated sets]
    #[arg(long, value_parser = scaling())]
    scale: Option<Scaling>,

    /// Table to write, .npy or .csv: one row a point
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Model file to write, for `mercer transform`
    #[arg(long = "model", value_name = "FILE")]
    save: Option<PathBuf>,

    /// Figure of the first two coordinates to write, .svg or .png; coloured by the target where there is one
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

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
        let out = self.out.as_deref().map(Output::table).transpose()?;
        let plot = self.plot.as_deref().map(|path| Output::with_extension(path, &["svg", "png"])).transpose()?;
        let model = self.save.as_deref().map(Output::new).transpose()?;
        self.check()?;
        let precomputed = self.kernel.as_deref() == Some(PRECOMPUTED);
        let kernel = if precomputed { "linear" } else { self.kernel.as_deref().unwrap_or("rbf(lengthscale=median)") };
        let kernel = Expression::parse(kernel)?;
        let scale = if precomputed { Some(Scaling::None) } else { self.scale };
        let (data, schema) = self.reader.features(&self.data, scale, context)?;
        let kernel = kernel.resolve(&data.x, context.seed)?;
        let Embedded { fitted, save, explained } = context.fitting(|fit| {
            self.embed(&kernel, &data, &FitContext { precision: self.precision, data: &self.data, ..*fit })
        })?;
        fitted.notes().iter().for_each(|note| context.warn(note));
        let z = fitted.embedding();
        if let Some(out) = &out {
            out.matrix(z.view(), &numbered("z", z.ncols()))?;
            context.wrote(out);
        }
        if let Some(model) = &model {
            save(&schema, model.path())?;
            context.wrote(model);
        }
        if let Some(plot) = &plot {
            plot.figure(&figure(&data, &z, &fitted.origin().method)?)?;
            context.wrote(plot);
        }
        self.show(fitted.as_ref(), explained, (out, plot), context)
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
        if self.out.is_none() && self.plot.is_none() && self.save.is_none() {
            return Err(Error::input("there is nothing to write; give --out z.npy, --plot z.svg or --model m.mercer"));
        }
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
        fitted: &dyn Transform,
        explained: Option<Vec<f64>>,
        (out, plot): (Option<Output>, Option<Output>),
        context: &Context,
    ) -> Result<()> {
        let (origin, eigenvalues) = (fitted.origin(), fitted.eigenvalues());
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
            format!("{origin}\n\n{}", text::table(headings, &rows))
        })
    }
}

fn figure(data: &Dataset, z: &Array2<f64>, method: &str) -> Result<String> {
    fail_if!(z.ncols() < 2, "the embedding has one coordinate only, which cannot be drawn; try another kernel");
    let plot = Plot::new(format!("{}: {method}", data.name)).x("first coordinate").y("second coordinate");
    Ok(page::scatter(plot, z.view(), data.y.as_ref()))
}
