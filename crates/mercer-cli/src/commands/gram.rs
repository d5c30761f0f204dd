//! `mercer gram`: the kernel matrix, written to a file.

use crate::context::Context;
use crate::input::{Reader, scaling};
use crate::methods;
use crate::output::{self, Output};
use crate::text;
use clap::Args;
use mercer::compute::Device;
use mercer::data::{Dataset, Element, Scaling};
use mercer::kernel::{Expression, Kernel};
use mercer::operator::{Precision, Real, gram, gram_cross};
use mercer::{Error, Result};
use serde_json::json;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Instant;

/// Write the kernel matrix of a data set
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
    #[arg(long, default_value = "f64", value_parser = methods::precision())]
    precision: Precision,

    /// Scaling of the columns, by those of the rows' data
    #[arg(long, default_value = "none", value_parser = scaling())]
    scale: Scaling,

    /// Matrix to write, .npy or .csv
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    reader: Reader,
}

impl Gram {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::table(&self.out)?;
        let kernel = Expression::parse(&self.kernel)?;
        let (rows, schema) = self.reader.features(&self.data, Some(self.scale), context)?;
        let columns = self.cross.as_ref().map(|file| self.reader.open_like(file, &schema, context)).transpose()?;
        let kernel = kernel.resolve(&rows.x, context.seed)?;
        let (n, m) = (rows.n(), columns.as_ref().map_or(rows.n(), Dataset::n));
        let bytes = (n as u64).saturating_mul(m as u64).saturating_mul(self.precision.bytes());
        context.budget.require(
            format!("the {n} × {m} kernel matrix"),
            bytes,
            "use --precision f32 or fewer rows, or `mercer fit`, which does not store the matrix",
        )?;
        let start = Instant::now();
        let write = if self.precision == Precision::F64 { write::<f64> } else { write::<f32> };
        write(&kernel, &rows, columns.as_ref(), context.device, &out)?;
        let seconds = start.elapsed().as_secs_f64();
        let object = json!({
            "kernel": kernel.to_string(), "rows": n, "columns": m, "bytes": bytes, "seconds": seconds, "out": out,
        });
        context.result(&object, || {
            output::written(&self.out, &format!("{n} × {m}"), bytes, &text::rounded(&kernel.to_string()), seconds)
        })
    }
}

fn write<T>(kernel: &Kernel, x: &Dataset, z: Option<&Dataset>, device: Device, out: &Output) -> Result<()>
where
    T: Real + Element + Display,
{
    let k = match z {
        None => gram::<T>(kernel, &x.x, device)?,
        Some(z) => gram_cross::<T>(kernel, &x.x, &z.x, device)?,
    };
    if let Some(((i, j), value)) = k.indexed_iter().find(|(_, v)| !v.wide().is_finite()) {
        return Err(Error::Numerical(format!(
            "the kernel of row {} and column {} is {value}; scale the data or the kernel down",
            i + 1,
            j + 1
        )));
    }
    out.matrix(k.view(), &[])
}
