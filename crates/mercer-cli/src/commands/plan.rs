//! `mercer plan`: what a spectrum of many points would take on many ranks.

use crate::options::values::{self, positive};
use crate::program::context::Context;
use crate::text;
use clap::Args;
use mercer::error::human_bytes;
use mercer::kernel::Expression;
use mercer::linalg::{Panel, eigh};
use mercer::operator::{Operator, Precision, ProductCost};
use mercer::rng::Rng;
use mercer::{Device, FitContext, Result, Silent};
use ndarray::Array2;
use serde::Serialize;
use std::time::Instant;

/// Estimate the time of `mercer fit --method krylov` on many ranks, from rates measured on this machine
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer plan --rows 1000000 --columns 64 --kernel \"rbf(8)\" --bandwidth 12 --latency 2"
)]
pub struct Plan {
    /// Points
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    rows: u64,

    /// Their coordinates
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..100_000))]
    columns: u32,

    /// Number of eigenpairs
    #[arg(long, short, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..1000))]
    k: u32,

    /// Kernel expression
    #[arg(long, value_name = "EXPRESSION", default_value = "rbf(lengthscale=median)")]
    kernel: String,

    /// Precision of kernel values
    #[arg(long, default_value = "f64", value_parser = values::precision())]
    precision: Precision,

    /// Numbers of ranks, each with the threads of this run
    #[arg(long, value_name = "N,M,…", value_delimiter = ',', default_value = "1,2,4,16,64,256,1024",
          value_parser = clap::value_parser!(u32).range(1..100_000))]
    ranks: Vec<u32>,

    /// What a rank sends over the network, in gigabytes a second
    #[arg(long, value_name = "GB/S", default_value_t = 10.0, value_parser = positive)]
    bandwidth: f64,

    /// What a message takes before its first byte, in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 5.0, value_parser = positive)]
    latency: f64,
}

/// Seconds of one step of block Krylov iteration on so many ranks.
#[derive(Serialize)]
struct Step {
    ranks: usize,
    /// Entries of K, shared.
    kernel: f64,
    /// The algebra of the basis, shared.
    vectors: f64,
    /// The eigendecomposition of a small matrix, the same on every rank.
    small: f64,
    /// Bytes over the network.
    network: f64,
    /// Waiting for messages.
    waiting: f64,
    seconds: f64,
    speedup: f64,
    /// Bytes of points on a rank: as they are stored, and as they are prepared.
    points: u64,
}

/// Points and vectors on which the rates are measured.
const POINTS: usize = 4000;
const LONG: usize = 20_000;

/// Multiply-adds of a step beside the product, a row and a square of the block's width: Ritz vectors and their images, the small matrix, and two
/// orthogonalisations, with a basis of three and a half blocks on average.
const ALGEBRA: f64 = 50.0;

/// Blocks of which the basis consists on average.
const BASIS: usize = 4;

/// Gatherings that all ranks wait for in a step: twelve sums of two each, ten comparisons of two each.
const GATHERINGS: f64 = 44.0;

impl Plan {
    pub fn run(self, context: &Context) -> Result<()> {
        let block = self.k as usize + 8;
        let fit = FitContext { precision: self.precision, ..context.fit(&Silent) };
        let (entry, multiply_add) = (self.seconds_of_entry(block, &fit)?, seconds_of_multiply_add(block, context)?);
        let (vectors, small) = (ALGEBRA * (block * block) as f64 * multiply_add, seconds_of_eigenpairs(block)?);
        let row = self.columns as usize * self.precision.bytes() as usize;
        let step = |ranks: usize| {
            let cost = ProductCost::new(self.rows as usize, row, block, ranks);
            let own = (self.rows as f64 / ranks as f64).ceil();
            // Twice the numbers that are summed, which are small matrices.
            let sums = if ranks > 1 { 16.0 * 2.0 * ((BASIS * block) as f64).powi(2) } else { 0.0 };
            let (kernel, network) = (cost.entries * entry, (cost.bytes + sums) / (1e9 * self.bandwidth));
            let waiting = (cost.messages + GATHERINGS * (ranks as f64).log2().ceil()) * 1e-6 * self.latency;
            let vectors = vectors * own;
            let points = 2 * (self.rows * row as u64).div_ceil(ranks as u64);
            Step {
                ranks,
                kernel,
                vectors,
                small,
                network,
                waiting,
                seconds: kernel + vectors + small + network + waiting,
                speedup: 1.0,
                points,
            }
        };
        let alone = step(1).seconds;
        let steps: Vec<Step> = self
            .ranks
            .iter()
            .map(|&ranks| step(ranks as usize))
            .map(|step| Step { speedup: alone / step.seconds, ..step })
            .collect();
        context.result(&steps, || shown(&steps, block))
    }

    /// Seconds of an entry of K with its share in both products, measured on a few points.
    fn seconds_of_entry(&self, block: usize, fit: &FitContext<'_>) -> Result<f64> {
        let (n, d) = ((self.rows as usize).min(POINTS), self.columns as usize);
        let x = normal(n, d);
        let kernel = Expression::parse(&self.kernel)?.resolve(&x, 0)?;
        let operator = fit.kernel_operator(&kernel, &x)?;
        let v = normal(n, block);
        // The first product prepares the points.
        operator.apply(v.view())?;
        Ok(least_seconds(|| operator.apply(v.view()).map(|_| ()))? / (n as f64 * (n as f64 + 1.0) / 2.0))
    }
}

/// Seconds of a multiply-add in products of long vectors.
fn seconds_of_multiply_add(block: usize, context: &Context) -> Result<f64> {
    let (basis, v) = (normal(LONG, BASIS * block), normal(LONG, block));
    let basis = Panel::from_host(context.device, basis)?;
    let v = Panel::from_host(context.device, v)?;
    let seconds = least_seconds(|| basis.matmul(basis.t_matmul(&v)?.view()).map(|_| ()))?;
    Ok(seconds / (2 * LONG * BASIS * block * block) as f64)
}

/// Seconds of the eigendecompositions of a step: that of the basis, and four of a block.
fn seconds_of_eigenpairs(block: usize) -> Result<f64> {
    let of_order = |order: usize| {
        let a = normal(order, order);
        let a = &a + &a.t();
        least_seconds(|| eigh(Device::Cpu, a.view()).map(|_| ()))
    };
    Ok(of_order(BASIS * block)? + 4.0 * of_order(block)?)
}

/// The least time of three runs.
fn least_seconds(run: impl Fn() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        run()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least)
}

fn normal(n: usize, d: usize) -> Array2<f64> {
    let mut rng = Rng::new(0);
    Array2::from_shape_simple_fn((n, d), || rng.normal())
}

fn shown(steps: &[Step], block: usize) -> String {
    let row = |step: &Step| {
        let parts =
            [step.seconds, step.kernel, step.vectors, step.small, step.network, step.waiting].map(text::seconds);
        let share = text::percent(step.speedup / step.ranks as f64);
        let rest = [text::number(step.speedup, 3), share, human_bytes(step.points)];
        [&[step.ranks.to_string()][..], &parts, &rest].concat()
    };
    let headings = [
        "ranks",
        "a step",
        "entries of K",
        "vectors",
        "small",
        "network",
        "latency",
        "speed-up",
        "efficiency",
        "points a rank",
    ];
    let table = text::table(&headings, &steps.iter().map(row).collect::<Vec<_>>());
    let limit = steps.iter().find(|step| step.speedup < 0.5 * step.ranks as f64).map_or_else(String::new, |step| {
        let others = [
            (step.small, "the small matrices, which every rank decomposes"),
            (step.network, "the network"),
            (step.waiting, "latency"),
        ];
        let most = others.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("three");
        format!("\n{} ranks are used to less than half: most of the rest is {}\n", step.ranks, most.1)
    });
    format!("{table}\na step is a product with {block} vectors; a spectrum takes ten to some hundred\n{limit}")
}
