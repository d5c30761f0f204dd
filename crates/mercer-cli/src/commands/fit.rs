//! `mercer fit`: data in, spectrum out.

use super::report::{self, Shown};
use crate::args::Ranks;
use crate::options::input::{Reader, SampleSource, announce_fit, encoded, scaling};
use crate::options::offered::{self, Given};
use crate::options::precomputed::{self, PRECOMPUTED};
use crate::options::training;
use crate::options::values::{self, Precisions};
use crate::program::context::Context;
use crate::program::distributed;
use crate::program::output::{NewFile, Output};
use crate::program::usage::with_options;
use crate::show::certificate::{self, HEADINGS, rows, sentences};
use crate::show::units;
use crate::text;
use clap::Args;
use mercer::data::{BlockDataset, Scaling, Schema, Table, TableBlocks, held_out_count, held_out_rows, write_npy};
use mercer::kernel::{Expression, Kernel};
use mercer::operator::{DenseOperator, FunctionSamples, OnPoints, Operator, Points, Precision, ShardedOperator};
use mercer::spectrum::neural::Training;
use mercer::spectrum::{BlockProblem, BlockSize, Certificate, Method, Problem, Size, Spectrum};
use mercer::{Error, FitContext, Result, fail_if, learn};
use ndarray::{Array2, Array3};
use serde::Serialize;

/// Find the leading eigenvalues and eigenfunctions of a kernel on data
#[derive(Args)]
#[command(after_help = "Example:\n  mercer fit digits --kernel \"rbf(lengthscale=median)\" --k 20 --out digits.mercer")]
pub struct Fit {
    /// File (.npy, .npz, .csv, IDX, CIFAR-10) or named set (see `mercer datasets`)
    data: String,

    /// Kernel expression (see `mercer kernels`, with the units of its numbers), or precomputed: the data is a kernel matrix [n, n], and new points are rows of
    /// their values with the n points, [m, n]
    #[arg(long, value_name = "EXPRESSION", default_value = "rbf(lengthscale=median)")]
    kernel: String,

    /// How the pairs are found
    #[arg(long, default_value = "krylov", value_parser = offered::name::<Size>())]
    method: &'static str,

    /// Number of eigenpairs
    #[arg(long, short, value_name = "N", default_value_t = 10)]
    k: usize,

    /// Precision of kernel values, bf16 for networks only; sums are always taken in f64. Without it, kernel values are
    /// f64 and networks train in tf32 on a GPU
    #[arg(long, value_parser = values::precisions())]
    precision: Option<Precisions>,

    /// Scaling of the columns before the fit; stored in the model [default: standard for tables, none for images and generated sets]
    #[arg(long, value_parser = scaling())]
    scale: Option<Scaling>,

    /// Share of the rows held out to certify the result, at most 2000 rows; 0 for none
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1, allow_negative_numbers = true)]
    holdout: f64,

    /// Certify on the points of this file instead of held-out rows
    #[arg(long, value_name = "FILE", conflicts_with = "holdout")]
    certify: Option<String>,

    /// Model file to write; with --samples and a name in .npy the functions at the points, an array [n, C, k]
    #[arg(long, short, visible_alias = "model", value_name = "FILE")]
    out: Option<NewFile>,

    /// Report to write: spectrum, certificate, eigenfunctions over the data, embedding, training
    #[arg(long, value_name = "FILE.html")]
    report: Option<NewFile>,

    /// Functions sampled at the points, an array [S, n] or [S, n, C]: their kernel FᵀF/S instead of --kernel. Averages are over
    /// points and outputs, n·C values: eigenvalues are 1/C of those with sums over outputs. An .npy of f4 or f8 stays in its file
    /// and may be larger than memory
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "certify", "scale", "precision"])]
    samples: Option<String>,

    /// Take the kernel of samples with C outputs to be one number times the identity
    #[arg(long, requires = "samples")]
    factorised: bool,

    #[command(flatten)]
    reader: Reader,

    #[command(flatten)]
    options: Given<Size>,

    #[command(flatten)]
    ranks: Ranks,
}

fn is_one(outputs: &usize) -> bool {
    *outputs == 1
}

/// What `--json` prints.
#[derive(Serialize)]
pub struct Fitted<'a> {
    method: &'a str,
    kernel: String,
    data: &'a str,
    n: usize,
    d: usize,
    #[serde(skip_serializing_if = "is_one")]
    outputs: usize,
    k: usize,
    precision: Precision,
    seed: u64,
    eigenvalues: &'a [f64],
    certificate: &'a Certificate,
    #[serde(skip_serializing_if = "Option::is_none")]
    training: Option<&'a Training>,
    seconds: f64,
}

impl Fit {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = self.out.as_ref().map(Output::new).transpose()?;
        let kernel = if self.kernel == PRECOMPUTED { None } else { Some(Expression::parse(&self.kernel)?) };
        let page = self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?;
        let entry = learn::spectra().find(self.method)?;
        learn::spectra().check(entry, self.options.options())?;
        let bar = context.bar();
        let fit_context = FitContext {
            precision: self.precision.map_or(Precision::F64, |precision| precision.kernel),
            data: &self.data,
            ..context.fit(&bar)
        };
        fail_if!(
            !context.group.is_single() && (self.samples.is_some() || kernel.is_none()),
            "samples and kernel matrices are decomposed in one process; start this command without a launcher"
        );
        if let Some(file) = &self.samples {
            let (data, schema) = self.reader.features(&self.data, Some(Scaling::None), context)?;
            let source = SampleSource::open(file, &self.reader.source, context)?;
            let samples = source.samples(Some(data.n()))?;
            let mut functions = fit_context.sample_operator(&samples, self.factorised)?;
            let rows = self.held_out_rows(data.n(), context)?;
            let parts = rows.map(|rows| rows.map(|rows| (data.select(&rows), rows)));
            if let Some([(_, fitted), _]) = &parts {
                functions = functions.at_points(fitted);
            }
            let operator = OnPoints::new(&functions, parts.as_ref().map_or(&data.x, |[(fitted, _), _]| &fitted.x))?;
            let fresh = parts.as_ref().map(|[_, (_, rows)]| samples.select(rows));
            let fresh = fresh.as_ref().map(|f| FunctionSamples::from(f.view()));
            let held_out = parts.as_ref().zip(fresh.as_ref()).map(|([_, (data, _)], f)| Points::Both(data.x.rows(), f));
            let mut spectrum = self.spectrum(&operator, held_out, fit_context, context)?;
            spectrum.origin.kernel = format!("{} in {file}", operator.describe());
            let psi = match page.is_some() || out.as_ref().is_some_and(|out| out.is("npy")) {
                true if spectrum.takes_coordinates() => Some(spectrum.transform(data.x.rows())?),
                true => Some(spectrum.transform(&samples)?),
                false => None,
            };
            let shown = psi.as_ref().filter(|_| page.is_some()).map(|psi| Shown::with(&spectrum, &data, psi));
            write_report(&spectrum, &schema, shown, page, context)?;
            return show(&spectrum, &schema, psi, out, context);
        }
        let Some(kernel) = kernel else { return self.fit_matrix(fit_context, out, page, context) };
        // Each rank has all points of a method that trains networks, and its part of every batch.
        let in_parts = context.group.is_single() || !entry.can.trains;
        if let Some(large) = in_parts.then(|| self.reader.large(&self.data, |_| 0, context)).transpose()?.flatten() {
            match self.method(large.n())?.blocks() {
                Some(size) => {
                    fail_if!(
                        page.is_some(),
                        "--report needs all rows in memory; leave it out, and give `mercer report` a part of them"
                    );
                    return self.fit_blocks((large, size), &kernel, fit_context, out, context);
                }
                None if !context.group.is_single() => {
                    fail_if!(
                        !entry.can.shards || page.is_some(),
                        "{} not run on several ranks; the methods krylov, exact, nystrom, rff (without --ritz) and those that train networks do",
                        if page.is_some() { "--report does".into() } else { format!("--method {} does", entry.name) }
                    );
                    return self.fit_ranks(large, &kernel, fit_context, out, context);
                }
                None => context.note("methods that read such a file in blocks: rff (without --ritz) and nystrom"),
            }
        }
        let table = self.reader.table(&self.data, None, context)?;
        let whole = page.as_ref().map(|_| table.clone());
        let (train, held_out) = self.split(table, context)?;
        let schema = self.reader.schema(&train, self.scale, context)?;
        let train = encoded(&schema, train, context)?;
        distributed::check_same_rows(&train)?;
        let held_out = match &self.certify {
            Some(file) => Some(self.reader.open_like(file, &schema, context)?),
            None => held_out.map(|table| encoded(&schema, table, context)).transpose()?,
        };
        let kernel =
            units::for_columns_said(&[kernel], Some(&schema), context).remove(0).resolve(&train.x, context.seed)?;
        let operator = fit_context.kernel_operator(&kernel, &train.x)?;
        let held_out = held_out.as_ref().map(|data| data.x.rows().into());
        let spectrum = self.spectrum(&operator, held_out, fit_context, context)?;
        drop(bar);
        let shown = match whole {
            Some(table) => Some(Shown::at(&spectrum, report::sample(&schema.encode(table)?.0, context.seed))?),
            None => None,
        };
        write_report(&spectrum, &schema, shown, page, context)?;
        show(&spectrum, &schema, None, out, context)
    }

    /// The pairs of rows that do not fit into memory, from `(features, landmarks)`.
    fn fit_blocks(
        &self,
        (large, BlockSize { features, landmarks }): (TableBlocks, BlockSize),
        kernel: &Expression,
        fit_context: FitContext,
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let (n, d) = (large.n(), self.reader.features_of(&large));
        let held_out = if self.certify.is_some() { 0 } else { self.held_out_count(n, context)? };
        self.check_k(n - held_out, n)?;
        let bytes = BlockProblem::memory(&large, (d, features), self.k, fit_context.precision);
        announce_fit(
            &self.data,
            &large,
            (Some(3), "for the columns, the pairs and their certificate"),
            bytes,
            context,
        )?;
        let keep = |n: usize| BlockProblem::rows_in_memory(n, landmarks, context.seed);
        let data = self.reader.first_pass(large, (self.scale, None, held_out), &keep, context)?;
        let kernel = resolved(kernel, &data, context)?;
        let fresh =
            self.certify.as_ref().map(|file| self.reader.open_like(file, data.schema(), context)).transpose()?;
        let fresh = fresh.as_ref().or(data.held_out()).map(|data| data.x.rows().into());
        let method = self.method(data.n())?;
        // A pass that ends early on one rank ends at another block on the next.
        let interrupt = fit_context.interrupt.filter(|_| context.group.is_single());
        let fit_context = FitContext { interrupt, ..fit_context };
        let problem = BlockProblem { data: &data, kernel: &kernel, k: self.k, context: fit_context };
        let spectrum = Spectrum::fit_blocks(method.as_ref(), &problem, fresh)?;
        show(&self.noted(spectrum, context), data.schema(), None, out, context)
    }

    /// The pairs of rows of which each rank has a part.
    fn fit_ranks(
        &self,
        large: TableBlocks,
        kernel: &Expression,
        fit_context: FitContext,
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let n = large.n();
        let held_out = if self.certify.is_some() { 0 } else { self.held_out_count(n, context)? };
        self.check_k(n - held_out, n)?;
        let data = self.reader.first_pass(
            large,
            (self.scale, None, held_out),
            &|n| Expression::rows(n, context.seed),
            context,
        )?;
        let kernel = resolved(kernel, &data, context)?;
        let fresh =
            self.certify.as_ref().map(|file| self.reader.open_like(file, data.schema(), context)).transpose()?;
        let fresh = fresh.as_ref().or(data.held_out()).map(|data| data.x.rows().into());
        let own = data.own_rows(fit_context.group, fit_context.progress)?;
        let operator = ShardedOperator::of(&kernel, own, &fit_context)?;
        let spectrum = self.spectrum(&operator, fresh, fit_context, context)?;
        show(&spectrum, data.schema(), None, out, context)
    }

    /// The pairs of the kernel matrix that the data is; none of its rows are held out.
    fn fit_matrix(
        &self,
        fit_context: FitContext,
        out: Option<Output>,
        page: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        fail_if!(
            self.certify.is_some() || self.scale.is_some(),
            "--kernel precomputed takes neither --certify nor --scale; leave them out"
        );
        let (data, schema) = self.reader.features(&self.data, Some(Scaling::None), context)?;
        let matrix = precomputed::matrix(&data)?;
        self.check_k(data.n(), data.n())?;
        context.note("no rows of a precomputed matrix are held out; the certificate is measured on the fitted points");
        let dense = DenseOperator::new(matrix.clone());
        let operator = OnPoints::new(&dense, matrix.view())?;
        let spectrum = self.spectrum(&operator, None, fit_context, context)?;
        write_report(&spectrum, &schema, None, page, context)?;
        show(&spectrum, &schema, None, out, context)
    }

    /// The method that was asked for, for `n` points.
    fn method(&self, n: usize) -> Result<Box<dyn Method + Send>> {
        let math = self.precision.map(|precision| precision.networks);
        learn::spectra().build(self.method, self.options.options(), &Size { math, ..Size::new(n, self.k) })
    }

    /// The pairs of any operator, by the method that was asked for.
    fn spectrum(
        &self,
        operator: &dyn Operator,
        held_out: Option<Points>,
        context: FitContext,
        program: &Context,
    ) -> Result<Spectrum> {
        let method = self.method(operator.n())?;
        let problem = Problem { operator, k: self.k, context };
        Ok(self.noted(Spectrum::fit(method.as_ref(), &problem, held_out)?, program))
    }

    /// The spectrum with the command that found it; says its warnings.
    fn noted(&self, mut spectrum: Spectrum, program: &Context) -> Spectrum {
        spectrum.origin.command = program.command.clone();
        spectrum.notes.iter().for_each(|note| program.warn(with_options(note)));
        spectrum
    }

    /// How many of n rows in blocks to hold out.
    fn held_out_count(&self, n: usize, context: &Context) -> Result<usize> {
        fail_if!(!(0.0..1.0).contains(&self.holdout), "--holdout must lie from 0 to below 1, not {}", self.holdout);
        let count = held_out_count(n, self.holdout);
        if self.holdout > 0.0 && count == 0 {
            self.too_few(n, context);
        }
        Ok(count)
    }

    /// Says that no rows are held out.
    fn too_few(&self, n: usize, context: &Context) {
        context.note(format_args!(
            "{} are too few to hold any out; the certificate is measured on the fitted points",
            text::count(n, "row")
        ));
    }

    /// The rows to fit and the rows to hold out; none where all are fitted.
    fn held_out_rows(&self, n: usize, context: &Context) -> Result<Option<[Vec<usize>; 2]>> {
        fail_if!(!(0.0..1.0).contains(&self.holdout), "--holdout must lie from 0 to below 1, not {}", self.holdout);
        let rows = held_out_rows(n, self.holdout, context.seed)?;
        if self.holdout > 0.0 && rows.is_none() {
            self.too_few(n, context);
        }
        Ok(rows)
    }

    /// The rows to fit, and the rows of the same table to certify on.
    fn split(&self, table: Table, context: &Context) -> Result<(Table, Option<Table>)> {
        let n = table.n();
        self.check_k(n, n)?;
        let rows = if self.certify.is_some() { None } else { self.held_out_rows(n, context)? };
        let (train, held_out) = match rows {
            None => (table, None),
            Some([fitted, held_out]) => (table.select(&fitted), Some(table.select(&held_out))),
        };
        self.check_k(train.n(), n)?;
        Ok((train, held_out))
    }

    /// Refuses more pairs than there are rows `fitted` of `n`.
    fn check_k(&self, fitted: usize, n: usize) -> Result<()> {
        if (1..=fitted).contains(&self.k) {
            return Ok(());
        }
        let reason = match n - fitted {
            0 => format!("there are {}", text::count(n, "row")),
            held => format!("{fitted} of the {n} rows are fitted, {held} are held out (--holdout 0 holds none out)"),
        };
        Err(Error::input(format!("--k must lie between 1 and {fitted}, not {}: {reason}", self.k)))
    }
}

/// The kernel with lengthscales that suit the rows of `data`.
fn resolved(kernel: &Expression, data: &BlockDataset, context: &Context) -> Result<Kernel> {
    let (_, some) = data.rows(&Expression::rows(data.drawn_of(), context.seed));
    let kernel = units::for_columns_said(std::slice::from_ref(kernel), Some(data.schema()), context).remove(0);
    kernel.resolve(&some.x, context.seed)
}

/// Writes the report, where one was asked for.
fn write_report(
    spectrum: &Spectrum,
    schema: &Schema,
    shown: Option<Shown>,
    page: Option<Output>,
    context: &Context,
) -> Result<()> {
    let Some(page) = page else { return Ok(()) };
    context.written(&page, page.text(&report::write(spectrum, Some(schema), shown.as_ref(), context).html()));
    Ok(())
}

/// Writes the model, or to an `.npy` the functions `psi` at the points, and says what was found.
fn show(
    spectrum: &Spectrum,
    schema: &Schema,
    psi: Option<Array2<f64>>,
    out: Option<Output>,
    context: &Context,
) -> Result<()> {
    if let Some(out) = &out {
        let outcome = match psi.filter(|_| out.is("npy")) {
            Some(psi) => write_npy(out.path(), by_output(spectrum, psi).view()),
            None => spectrum.save_with(Some(schema), out.path()),
        };
        context.written(out, outcome);
    }
    context.costly_result(&fitted(spectrum, Some(schema)), || described(spectrum, Some(schema)))
}

/// Functions `[n·C, k]` as `[n, C, k]`.
pub fn by_output(spectrum: &Spectrum, psi: Array2<f64>) -> Array3<f64> {
    let (c, (values, k)) = (spectrum.origin.outputs, psi.dim());
    psi.into_shape_with_order((values / c, c, k)).expect("C values at every point")
}

/// The spectrum as an object.
pub fn fitted<'a>(spectrum: &'a Spectrum, schema: Option<&Schema>) -> Fitted<'a> {
    let origin = &spectrum.origin;
    Fitted {
        method: &origin.method,
        kernel: units::as_written(&origin.kernel, schema),
        data: &origin.data,
        n: origin.n,
        d: origin.d,
        outputs: origin.outputs,
        k: spectrum.k(),
        precision: origin.precision,
        seed: origin.seed,
        eigenvalues: &spectrum.eigenvalues,
        certificate: &spectrum.certificate,
        training: spectrum.training(),
        seconds: origin.seconds,
    }
}

/// The spectrum as a table with its certificate in words.
pub fn described(spectrum: &Spectrum, schema: Option<&Schema>) -> String {
    let origin = &units::origin_as_written(&spectrum.origin, schema);
    let data = if origin.data.is_empty() { "unnamed data" } else { &origin.data };
    let mut said = certificate::origin(origin, &format!("of {data}"), "") + "\n\n";
    said += &text::table(&HEADINGS, &rows(&spectrum.eigenvalues, &spectrum.certificate));
    said.push('\n');
    let trained = spectrum.training().map(training::sentences).unwrap_or_default();
    said + &[sentences(&spectrum.certificate), trained].concat().join("\n") + "\n"
}
