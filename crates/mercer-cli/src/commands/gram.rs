//! `mercer gram`: the kernel matrix, written to a file.

use crate::options::input::{Reader, scaling};
use crate::options::values;
use crate::program::context::Context;
use crate::program::output::{self, NewFile, Output};
use crate::show::units;
use crate::text;
use clap::Args;
use mercer::data::{Dataset, Element, Scaling};
use mercer::kernel::{Expression, Kernel};
use mercer::operator::{Precision, Real, gram_rows};
use mercer::{Error, Result};
use serde_json::json;
use std::fmt::Display;
use std::time::Instant;

/// Write the kernel matrix of a data set; it may be larger than memory
#[derive(Args)]
pub struct Gram {
    /// File (.npy, .npz, .csv, IDX, CIFAR-10) or named set (see `mercer datasets`): the rows of the matrix
    data: String,

    /// Kernel expression (see `mercer kernels`)
    #[arg(long, value_name = "EXPRESSION", default_value = "rbf(lengthscale=median)")]
    kernel: String,

    /// Data for the columns of the matrix [default: the same]
    #[arg(long, value_name = "FILE")]
    cross: Option<String>,

    /// Precision of the matrix
    #[arg(long, default_value = "f64", value_parser = values::precision())]
    precision: Precision,

    /// Scaling of the columns, by those of the rows' data
    #[arg(long, default_value = "none", value_parser = scaling())]
    scale: Scaling,

    /// Matrix to write, .npy or .csv
    #[arg(long, short, value_name = "FILE")]
    out: NewFile,

    #[command(flatten)]
    reader: Reader,
}

impl Gram {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::table(&self.out)?;
        let kernel = Expression::parse(&self.kernel)?;
        let (rows, schema) = self.reader.features(&self.data, Some(self.scale), context)?;
        let columns = self.cross.as_ref().map(|file| self.reader.open_like(file, &schema, context)).transpose()?;
        let kernel =
            units::for_columns_said(&[kernel], Some(&schema), context).remove(0).resolve(&rows.x, context.seed)?;
        let (n, m) = (rows.n(), columns.as_ref().map_or(rows.n(), Dataset::n));
        let bytes = (n as u64).saturating_mul(m as u64).saturating_mul(self.precision.bytes());
        let start = Instant::now();
        let write = if self.precision == Precision::F64 { write::<f64> } else { write::<f32> };
        write(&kernel, &rows, columns.as_ref(), context, &out)?;
        let seconds = start.elapsed().as_secs_f64();
        let shown = units::as_written(&kernel.to_string(), Some(&schema));
        let object = json!({
            "kernel": shown, "rows": n, "columns": m, "bytes": bytes, "seconds": seconds, "out": out,
        });
        context.costly_result(&object, || {
            output::written(&self.out, &format!("{n} × {m}"), bytes, &text::rounded(&shown), seconds)
        })
    }
}

/// Writes the matrix as it is computed, some rows at a time.
fn write<T>(kernel: &Kernel, x: &Dataset, z: Option<&Dataset>, context: &Context, out: &Output) -> Result<()>
where
    T: Real + Element + Display,
{
    let (n, m) = (x.n(), z.map_or(x.n(), Dataset::n));
    context.fitting(|fit| {
        out.rows([n, m], &[], |put| {
            let mut done = 0;
            gram_rows::<T>(kernel, x.x.rows(), z.map(|z| z.x.rows()), fit, |rows| {
                if let Some(((i, j), value)) = rows.indexed_iter().find(|(_, v)| !v.finite()) {
                    return Err(Error::Numerical(format!(
                        "the kernel of row {} and column {} is {value}; scale the data or the kernel down",
                        done + i + 1,
                        j + 1
                    )));
                }
                done += rows.nrows();
                put(rows.as_slice().expect("whole rows"))
            })
        })
    })
}
