//! Networks of other programs, given by files of their outputs and functions.

use crate::program::context::Context;
use clap::Args;
use mercer::data::{MappedArray, ReadOptions, open};
use mercer::laplace::NetworkFunctions;
use mercer::operator::FunctionSamples;
use mercer::{Error, Result, fail_if};
use ndarray::{Array2, Array3};
use std::sync::Arc;

/// Files of a network's outputs and functions, one for each set of rows.
#[derive(Args)]
#[command(next_help_heading = "A network of another program, by its functions")]
pub struct FunctionFiles {
    /// Its outputs at the rows, an array [n, C] of logits, or [n] of numbers; one file for each set of rows, with commas
    #[arg(long, value_name = "Z.npy,…", value_delimiter = ',')]
    pub logits: Vec<String>,

    /// Functions whose kernel FᵀF/S is the network's NTK, such as its derivatives along S random directions: an array [S, n, C], or
    /// [S, n] of numbers; files as for --logits
    #[arg(long, value_name = "F.npy,…", value_delimiter = ',', conflicts_with = "jacobians")]
    pub samples: Vec<String>,

    /// Its derivatives by P parameters, or values of P eigenfunctions: an array [n, C, P], or [n, P] of numbers; files as for --logits
    #[arg(long, value_name = "J.npy,…", value_delimiter = ',', requires = "logits")]
    jacobians: Vec<String>,
}

/// Outputs `[n, C]` in memory, and functions in their file where it can be mapped.
pub struct Opened {
    outputs: Array2<f64>,
    functions: Functions,
    by_row: bool,
}

enum Functions {
    Mapped(Arc<MappedArray>),
    /// `[S, n, C]` or `[n, C, P]`
    Read(Array3<f64>),
}

impl FunctionFiles {
    /// Whether a network is given by its functions.
    pub fn given(&self) -> bool {
        !self.logits.is_empty()
    }

    /// The network at as many sets of rows as `sets` names.
    pub fn open(&self, sets: &[&str], context: &Context) -> Result<Vec<Opened>> {
        let by_row = self.samples.is_empty();
        let (option, files) = if by_row { ("--jacobians", &self.jacobians) } else { ("--samples", &self.samples) };
        fail_if!(files.is_empty(), "--logits needs the network's functions too; give --samples or --jacobians");
        for (option, files) in [("--logits", &self.logits), (option, files)] {
            fail_if!(
                files.len() != sets.len(),
                "{option} has {} files; give one for each of {}, with commas between them",
                files.len(),
                sets.join(", ")
            );
        }
        self.logits.iter().zip(files).map(|(logits, file)| Opened::read(logits, file, by_row, context)).collect()
    }
}

impl Opened {
    fn read(logits: &str, file: &str, by_row: bool, context: &Context) -> Result<Opened> {
        let options = ReadOptions { memory: Some(context.budget), ..ReadOptions::default() };
        let outputs = open(logits, &options)?.x.into_f64();
        let functions = match MappedArray::open(file) {
            Ok(mapped) => Functions::Mapped(mapped.into()),
            // Other types and orders cannot be mapped: the reader converts them, or says what is wrong.
            Err(_) => {
                let rows = open(file, &options)?.x.into_f64();
                let (n, c) = outputs.dim();
                let (a, numbers) = rows.dim();
                let (b, d) = if by_row { (c, numbers / c) } else { (n, numbers / n) };
                let shaped = rows.into_shape_with_order((a, b, d));
                Functions::Read(shaped.map_err(|_| {
                    Error::input(format!("{file} has rows of {numbers} numbers, which do not fit outputs [{n}, {c}]"))
                })?)
            }
        };
        Ok(Opened { outputs, functions, by_row })
    }

    /// C
    pub fn width(&self) -> usize {
        self.outputs.ncols()
    }

    /// n
    pub fn n(&self) -> usize {
        self.outputs.nrows()
    }

    /// The network at these rows.
    pub fn network(&self) -> Result<NetworkFunctions<'_>> {
        let functions = match &self.functions {
            Functions::Mapped(file) => FunctionSamples::in_file(file.clone())?,
            Functions::Read(array) => array.view().into(),
        };
        match self.by_row {
            true => NetworkFunctions::jacobians(self.outputs.view(), functions),
            false => NetworkFunctions::samples(self.outputs.view(), functions),
        }
    }
}
