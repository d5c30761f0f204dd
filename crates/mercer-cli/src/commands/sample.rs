//! `mercer sample`: values of freshly drawn networks, whose kernel is that of the prior.

use crate::options::input::Reader;
use crate::options::network::points;
use crate::program::context::Context;
use crate::program::output::{self, NewFile, Output};
use crate::text;
use clap::Args;
use mercer::Progress;
use mercer::Result;
use mercer::data::write_npy_rows;
use mercer::net::Network;
use mercer::net::ntk::sample_networks;
use serde_json::json;
use std::time::Instant;

/// Write the values of freshly drawn networks on data: functions whose kernel is the network's Gaussian process
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer sample moons --net \"dense(512) relu dense(512) relu dense(1)\" --count 2000 -o F.npy\n  mercer fit moons --samples F.npy --method neuralef --k 3"
)]
pub struct Sample {
    /// File (.npy, .npz, .csv, IDX, CIFAR-10) or named set (see `mercer datasets`)
    data: String,

    /// The networks, such as "dense(512, w=1.4, b=0.1) relu dense(1)": weights N(0, w²/fan-in), biases N(0, b²)
    #[arg(long, value_name = "LAYERS")]
    net: String,

    /// How many networks are drawn
    #[arg(long, value_name = "S", default_value_t = 2000)]
    count: usize,

    /// Array to write: F [S, n, c]
    #[arg(long, short, value_name = "FILE.npy")]
    out: NewFile,

    #[command(flatten)]
    reader: Reader,
}

impl Sample {
    pub fn run(self, context: &Context) -> Result<()> {
        let out = Output::with_extension(&self.out, &["npy"])?;
        let data = self.reader.open(&self.data, context)?;
        let net = Network::parse(&self.net, data.d(), 1)?;
        // Sixteen networks are drawn at a time.
        context.budget.require_network(&net, 2 * 16, data.n())?;
        let x = points(&data, context)?;
        let shape = [self.count, data.n(), net.outputs()];
        let (start, bar) = (Instant::now(), context.bar());
        write_npy_rows(out.path(), &shape, |put| {
            sample_networks(&self.net, &x, self.count, context.seed, |s, values| {
                bar.step("networks", s + 1, self.count, "");
                put(values)
            })
        })?;
        drop(bar);
        let seconds = start.elapsed().as_secs_f64();
        let object = json!({ "net": net.expression(), "shape": shape, "seconds": seconds, "out": out });
        context.result(&object, || {
            let content = format!("of {} networks {}", text::grouped(self.count), net.expression());
            let bytes = 4 * shape.iter().product::<usize>() as u64;
            output::written(&self.out, &format!("{shape:?}"), bytes, &content, seconds)
        })
    }
}
