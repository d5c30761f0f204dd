//! `mercer ntk`: the empirical neural tangent kernel of a finite network.

use crate::options::input::Reader;
use crate::options::network::{Foreign, Single, network_file};
use crate::options::values::{choice, positive};
use crate::program::context::Context;
use crate::program::output::{self, NewFile, Output};
use crate::text;
use clap::{Args, ValueEnum};
use mercer::Progress;
use mercer::classifier::Classifier;
use mercer::data::{Scaling, write_npy, write_npy_rows};
use mercer::net::Network;
use mercer::net::ntk::{Derivative, Directions, EmpiricalNtk, Law, Parameterisation};
use mercer::{Error, Result};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// Write the empirical NTK of a network on data: the kernel, or derivatives along random directions
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer ntk digits --net \"dense(512) relu dense(10)\" --method directions -o F.npy\n  mercer fit digits --samples F.npy --k 10\n  mercer ntk digits --net trained.safetensors --outputs 1 -o K.npy"
)]
pub struct Ntk {
    /// File (.npy, .npz, .csv, IDX, CIFAR-10) or named set (see `mercer datasets`)
    data: String,

    /// The network: layers such as "dense(512) relu dense(10)" with random weights (--seed), or a .safetensors file that
    /// `mercer train` wrote; batch norms of a file are folded into the weights
    #[arg(long, value_name = "NET")]
    net: String,

    /// File with the weights of the network that --net names, as PyTorch saves them; the network sees rows as they are (pixels
    /// from 0 to 1), unless --mean and --std are given
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// How the kernel is computed
    #[arg(long, default_value = "exact")]
    method: Method,

    /// Outputs of the network, counted from 0, such as 0,3
    #[arg(long, value_name = "LIST", default_value = "all")]
    outputs: String,

    /// exact, mean: points for the columns of the kernel [default: the same points as for the rows]
    #[arg(long, value_name = "FILE")]
    cross: Option<String>,

    /// directions: number of random directions [default: 4000]
    #[arg(long, value_name = "S")]
    directions: Option<usize>,

    /// directions: their distribution [default: rademacher]
    #[arg(long, value_parser = choice(&[("rademacher", Law::Rademacher), ("gaussian", Law::Gaussian)]))]
    law: Option<Law>,

    /// directions: (g(x, θ+εv) − g(x, θ))/ε instead of the exact derivative
    #[arg(long, value_name = "EPS", value_parser = positive)]
    finite_difference: Option<f64>,

    /// The parameters: the weights (standard), or the weights divided by their standard deviation (ntk)
    #[arg(long, default_value = "standard", value_parser = choice(&PARAMETERISATIONS))]
    parameterisation: Parameterisation,

    /// Array to write: Θ [n, m, c, c] by exact, [n, m] by mean, F [S, n, c] by directions
    #[arg(long, short, value_name = "FILE.npy")]
    out: NewFile,

    #[command(flatten)]
    foreign: Foreign,

    #[command(flatten)]
    reader: Reader,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    /// Θ of all pairs of outputs
    Exact,
    /// the mean of Θ over equal outputs
    Mean,
    /// derivatives F along random directions, with Θ ≈ FᵀF/S; for `fit --samples`
    Directions,
}

const PARAMETERISATIONS: [(&str, Parameterisation); 2] =
    [("standard", Parameterisation::Standard), ("ntk", Parameterisation::Ntk)];

impl Ntk {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::with_extension(&self.out, &["npy"])?;
        self.check()?;
        let file = self.weights.as_deref().or_else(|| network_file(&self.net));
        let (data, schema) = match file.map(Classifier::schema_of).transpose()?.flatten() {
            Some(schema) => (self.reader.source.open_like(&self.data, &schema, context)?, schema),
            None => self.reader.features(&self.data, Some(Scaling::None), context)?,
        };
        let other = self.cross.as_ref().map(|file| self.reader.open_like(file, &schema, context)).transpose()?;
        let single = Single::open(&self.net, self.weights.as_deref(), &self.foreign, &data, context)?;
        let input = single.input(&data);
        let net = &single.net;
        let outputs = chosen(&self.outputs, net)?;
        let x = single.points(&data, context)?;
        let other = other.as_ref().map(|other| single.points(other, context)).transpose()?;
        let ntk = EmpiricalNtk::new(net, &single.parameters)?.parameterised(self.parameterisation);
        let (n, m, c) = (data.n(), other.as_ref().map_or(data.n(), |x| x.shape()[0]), outputs.len());
        let start = Instant::now();
        let shape = match self.method {
            Method::Exact | Method::Mean => {
                let exact = self.method == Method::Exact;
                let shape = if exact { vec![n, m, c, c] } else { vec![n, m] };
                context.budget.require(
                    format!("the NTK of shape {shape:?}"),
                    shape.iter().fold(4, |bytes: u64, &size| bytes.saturating_mul(size as u64)),
                    "use fewer rows, --outputs, --method mean, or --method directions, which writes its result step by step",
                )?;
                let kernel = context.device.enter(|| match exact {
                    true => Ok(ntk.exact(&x, other.as_ref(), &outputs)?.into_dyn()),
                    false => ntk.mean(&x, other.as_ref(), &outputs).map(|kernel| kernel.into_dyn()),
                })?;
                write_npy(out.path(), kernel.view())?;
                shape
            }
            Method::Directions => {
                let difference = |step: f64| Derivative::Difference { step: step as f32 };
                let directions = Directions {
                    count: self.directions.unwrap_or(4000),
                    law: self.law.unwrap_or_default(),
                    derivative: self.finite_difference.map_or(Derivative::Exact, difference),
                    seed: context.seed,
                };
                let shape = vec![directions.count, n, c];
                let (bar, all) = (context.bar(), net.outputs());
                write_npy_rows(out.path(), &shape, |put| {
                    ntk.directions(&x, &directions, |s, values| {
                        bar.step("directions", s + 1, directions.count, "");
                        let picked = values.chunks_exact(all).flat_map(|point| outputs.iter().map(|o| point[*o]));
                        put(&picked.collect::<Vec<f32>>())
                    })
                })?;
                shape
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let bytes = 4 * shape.iter().product::<usize>() as u64;
        let object = json!({
            "net": net.expression(), "parameters": net.parameters(), "outputs": outputs, "shape": shape,
            "input": input.as_ref().map(|input| &input.object), "seconds": seconds, "out": out,
        });
        context.result(&object, || {
            let input = input.map(|input| format!("\n{}", input.words)).unwrap_or_default();
            let content = format!("of {} with {} parameters", net.expression(), text::grouped(net.parameters()));
            output::written(&self.out, &format!("{shape:?}"), bytes, &content, seconds) + &input
        })
    }

    /// An error if an option was given that the method does not take.
    fn check(&self) -> Result<()> {
        let random = [
            ("--directions", self.directions.is_some()),
            ("--law", self.law.is_some()),
            ("--finite-difference", self.finite_difference.is_some()),
        ];
        match random.into_iter().find(|(_, given)| *given) {
            _ if self.method == Method::Directions && self.cross.is_some() => {
                Err(Error::input("--method directions does not take --cross"))
            }
            Some((name, _)) if self.method != Method::Directions => {
                Err(Error::input(format!("{name} is an option of --method directions only")))
            }
            _ => Ok(()),
        }
    }
}

/// The outputs of a list such as `0,3`, or `all`.
fn chosen(text: &str, net: &Network) -> Result<Vec<usize>> {
    let all = net.outputs();
    if text == "all" {
        return Ok((0..all).collect());
    }
    let bad = || {
        let last = all - 1;
        Error::input(format!("--outputs {text}: name outputs from 0 to {last}, such as 0,{last}, each once, or all"))
    };
    let chosen: Vec<usize> = text.split(',').map(|o| o.trim().parse().map_err(|_| bad())).collect::<Result<_>>()?;
    let distinct: BTreeSet<usize> = chosen.iter().copied().filter(|o| *o < all).collect();
    if distinct.len() == chosen.len() { Ok(chosen) } else { Err(bad()) }
}
