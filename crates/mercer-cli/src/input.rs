//! Reading of data: the options of the reader, and files whose columns must agree.

use crate::context::Context;
use crate::methods::choice;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mercer::data::{Dataset, MappedArray, ReadOptions, Scaler, Scaling, open};
use mercer::operator::FunctionSamples;
use mercer::{Error, Result, fail_if};
use ndarray::Array2;
use std::sync::Arc;

/// How files are read.
#[derive(Args)]
pub struct Reader {
    /// Column to predict, by name or by position (1 is the first, -1 the last); not used as a feature
    #[arg(long, value_name = "COLUMN", allow_negative_numbers = true)]
    pub target: Option<String>,

    /// Array of an .npz archive to read
    #[arg(long, value_name = "NAME")]
    pub key: Option<String>,

    /// Whether the first row of a table names its columns [default: detect]
    #[arg(long, value_name = "YES/NO", value_parser = choice(&[("yes", true), ("no", false)]))]
    pub header: Option<bool>,
}

impl Reader {
    /// Reads a file or a named set.
    pub fn open(&self, source: &str, context: &Context) -> Result<Dataset> {
        open(source, &self.options(context))
    }

    fn options(&self, context: &Context) -> ReadOptions {
        let Reader { target, key, header } = self;
        ReadOptions { target: target.clone(), header: *header, key: key.clone(), memory: Some(context.budget) }
    }

    /// Reads a second source with the features of `first`, in any order if both have headers; it may lack the target.
    pub fn open_like(&self, source: &str, first: &Dataset, context: &Context) -> Result<Dataset> {
        let without_target =
            || open(source, &ReadOptions { target: None, ..self.options(context) }).and_then(|d| align(d, first));
        match self.open(source, context) {
            Ok(data) => align(data, first).or_else(|error| without_target().map_err(|_| error)),
            Err(_) => without_target(),
        }
    }
}

/// Samples of functions: in their file where it can be mapped into memory, else read, `[S, n·C]`.
pub enum SampleSource {
    Mapped(Arc<MappedArray>),
    Read(Array2<f64>),
}

impl SampleSource {
    /// A file `[S, n]` or `[S, n, C]`.
    pub fn open(source: &str, reader: &Reader, context: &Context) -> Result<SampleSource> {
        let read = || reader.open(source, context).map(|rows| SampleSource::Read(rows.x.into_f64()));
        if !source.ends_with(".npy") {
            return read();
        }
        // Other types and orders cannot be mapped: the reader converts them, or says what is wrong.
        MappedArray::open(source).map_or_else(|_| read(), |file| Ok(SampleSource::Mapped(file.into())))
    }

    /// The samples at `n` points; else in the shape of their file, `[S, n]` or `[S, n, C]`, where a table has one output.
    pub fn samples(&self, n: Option<usize>) -> Result<FunctionSamples<'_>> {
        match (self, n) {
            (SampleSource::Read(rows), n) => FunctionSamples::from_rows(rows.view(), n.unwrap_or(rows.ncols())),
            (SampleSource::Mapped(file), Some(n)) if file.dims().get(1) != Some(&n) => Err(Error::input(format!(
                "samples of shape {:?} do not fit {n} points: they must be [S, {n}] or [S, {n}, C]",
                file.dims()
            ))),
            (SampleSource::Mapped(file), _) => FunctionSamples::in_file(file.clone()),
        }
    }
}

/// `data` with the columns of `first`: found by name where both tables name them, else by position.
fn align(data: Dataset, first: &Dataset) -> Result<Dataset> {
    let shares_a_name = data.columns.iter().any(|name| first.columns.contains(name));
    if has_names(first) && has_names(&data) && (shares_a_name || data.d() == first.d()) {
        let place = |name: &String| {
            data.columns.iter().position(|c| c == name).ok_or_else(|| {
                Error::input(format!("`{}` has no column called `{name}`, which `{}` has", data.name, first.name))
            })
        };
        let places = first.columns.iter().map(place).collect::<Result<Vec<usize>>>()?;
        if places.iter().copied().eq(0..data.d()) {
            return Ok(data);
        }
        return Ok(Dataset { x: data.x.select_columns(&places), columns: first.columns.clone(), ..data });
    }
    let (name, d, other, other_d) = (&data.name, data.d(), &first.name, first.d());
    fail_if!(d != other_d, "`{name}` has {d} columns, but `{other}` has {other_d}; they must have the same features");
    Ok(data)
}

/// Whether the columns have names of their own, and not just `x0`, `x1`, …
fn has_names(data: &Dataset) -> bool {
    data.columns.iter().any(|name| name.strip_prefix('x').is_none_or(|rest| rest.parse::<usize>().is_err()))
}

/// The names of the scalings.
pub fn scaling() -> impl TypedValueParser<Value = Scaling> {
    let words = ["none", "standard"].map(PossibleValue::new);
    PossibleValuesParser::new(words.into_iter().chain([PossibleValue::new("minmax").alias("min-max")]))
        .try_map(|word| word.parse::<Scaling>())
}

/// The scaling fitted to `data`; warns of constant columns.
pub fn fit_scaler(scaling: Scaling, data: &Dataset, warn: impl Fn(String)) -> Result<Option<Scaler>> {
    if scaling == Scaling::None {
        return Ok(None);
    }
    let scaler = Scaler::fit(scaling, &data.x)?;
    let constant = scaler.constant_columns();
    match constant.len() {
        0 => {}
        1..=3 => scaler.warnings(&data.columns).into_iter().for_each(warn),
        many => warn(format!(
            "{many} columns (the first is `{}`) have the same value in every row; they are mapped to zero",
            data.columns[constant[0]]
        )),
    }
    Ok(Some(scaler))
}

/// `data`, scaled where there is a scaling: in double precision then, and as it is stored otherwise.
pub fn scaled(scaler: Option<&Scaler>, data: Dataset) -> Result<Dataset> {
    match scaler {
        None => Ok(data),
        Some(scaler) => Ok(Dataset { x: scaler.apply(&data.x)?.into(), ..data }),
    }
}
