//! Report: the empirical NTK of a network on two classes of CIFAR-10, by NeuralEF, by random features, and exactly.

use super::{Options, Shown, indices, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::network_ntk::{self, Config, Found};
use ndarray::Array2;
use serde_json::json;

fn config(options: &Options, seed: u64, quick: bool) -> Config {
    let config = if quick { Config::quick(seed) } else { Config::full(seed) };
    Config {
        file: options.net.clone(),
        train: options.train.unwrap_or(config.train),
        test: options.test.unwrap_or(config.test),
        directions: options.directions.unwrap_or(config.directions),
        ..config
    }
}

pub fn run(context: &Context, quick: bool, options: &Options) -> Result<Shown> {
    let config = config(options, context.seed, quick);
    let found = context.fitting(|fit| network_ntk::run(&config, fit))?;
    let verdict = network_ntk::verdict(&config, &found);
    let figure = matrices(&config, &found);
    let report = Report::new("The empirical NTK of a trained network")
        .lead(&sentence(&verdict))
        .section("What was run")
        .text(&setting(&config, &found))
        .section("The kernel at test images")
        .figure(
            &figure,
            "The kernel at test images, first airplanes, then automobiles. All panels have one colour scale; blue is negative, red \
             positive.",
        )
        .table(table(&config, &found))
        .section("The spectrum")
        .figure(&spectrum(&found), "Eigenvalues of the sampled kernel over the training images.")
        .text(&format!(
            "The {} pairs hold {} of the sampled kernel's trace.",
            config.k,
            text::percent(found.captured)
        ));
    let numbers = json!({ "plan": config, "found": found, "verdict": verdict });
    let text = format!(
        "{}, {} parameters, test accuracy {}\n{}\n{}\n",
        found.net,
        text::grouped(found.parameters),
        text::percent(found.accuracy),
        text::table(&HEADINGS, &cells(&found)),
        sentence(&verdict)
    );
    Ok(Shown { figure, report, text, numbers })
}

fn setting(config: &Config, found: &Found) -> String {
    let origin = match &config.file {
        Some(file) => format!("The network comes from {}", file.display()),
        None => format!(
            "The network was trained here on {} images for {} epochs",
            text::grouped(config.learnt.max(config.train)),
            config.epochs
        ),
    };
    let [network, truth, directions, neural] = found.seconds.map(text::seconds);
    format!(
        "{origin}: {}, {} parameters; batch norms are folded into the weights. The output is g = logit(automobile) − \
         logit(airplane), which has the right sign at {} of the test images, and the kernel is Θ(x,x') = ∂g(x)·∂g(x') over all \
         parameters. The reference at {} test images is Θ itself, by the structured derivatives of each layer. The sampled kernel \
         FᵀF/S of {} training images comes from exact derivatives along S = {} directions of random signs. NeuralEF trains {} networks \
         ({}) on it for {} steps with batches of {} images and ends with Rayleigh–Ritz; its kernel at new images is Σ μ ψ(x)ψ(x'). \
         The exact top {} pairs of the same sampled kernel come from Krylov iteration and are extended to new images by derivatives \
         along the same directions. Nyström uses {} training images as landmarks and Θ itself. The data and the network took \
         {network}, the reference {truth}, the directions {directions} and NeuralEF {neural}.",
        found.net,
        text::grouped(found.parameters),
        text::percent(found.accuracy),
        text::grouped(config.test),
        text::grouped(config.train),
        text::grouped(config.directions),
        config.k,
        config.functions,
        text::grouped(config.steps as usize),
        config.batch,
        config.k,
        config.k,
    )
}

/// The three kernels on one colour scale: the 99th percentile of the absolute values of the reference, so that a few large
/// values do not hide the others.
fn matrices(config: &Config, found: &Found) -> String {
    let mut sizes: Vec<f64> = found.truth.iter().map(|v| v.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let scale = sizes[(sizes.len() - 1) * 99 / 100];
    let panel = |title: String, kernel: &Array2<f64>, label: &str| {
        let values: Vec<f64> = kernel.iter().copied().collect();
        Plot::new(title).matrix(label, [kernel.nrows(), kernel.ncols()], &values).diverging().scale(-scale, scale)
    };
    let row = |i: usize| found.rows[i].error;
    Grid::new("The empirical NTK at test images, airplanes first", 3)
        .panel_size(260.0, 260.0)
        .panel(panel("exact".into(), &found.truth, ""))
        .panel(panel(format!("NeuralEF, k = {}: error {:.3}", config.k, row(0)), &found.by_functions, ""))
        .panel(panel(format!("random features, S = {}: error {:.3}", config.k, row(1)), &found.by_features, "Θ"))
        .svg()
}

fn spectrum(found: &Found) -> String {
    let j = indices(found.exact.len());
    Plot::new("Eigenvalues over the training images")
        .x("pair")
        .y_log("eigenvalue")
        .line("exact", &j, &found.exact)
        .markers()
        .line("NeuralEF", &j, &found.neural)
        .markers()
        .dashed()
        .svg()
}

const HEADINGS: [&str; 5] =
    ["kernel", "‖K̂−K‖/‖K‖", "off the diagonal", "passes for a new image", "multiply-adds for a new image"];

fn cells(found: &Found) -> Vec<Vec<String>> {
    let row = |row: &network_ntk::Row| {
        vec![
            row.name.clone(),
            format!("{:.4}", row.error),
            format!("{:.4}", row.off_diagonal),
            row.passes.clone(),
            text::grouped(row.multiply_adds),
        ]
    };
    found.rows.iter().map(row).collect()
}

fn table(config: &Config, found: &Found) -> Table {
    Table::of(&HEADINGS, &cells(found)).caption(format!(
        "Relative Frobenius errors at the {} test images, and the cost of the features of a new image. A derivative along a \
         direction costs two forward passes, and so does a backward pass.",
        text::grouped(config.test)
    ))
}
