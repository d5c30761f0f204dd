//! The empirical NTK of a network on two classes of CIFAR-10: by NeuralEF, by random features, and as it is.

use super::{Options, Shown, command, indices, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::network_ntk::{self, Found, Plan};
use ndarray::Array2;
use serde_json::json;

fn plan(options: &Options, seed: u64, quick: bool) -> Plan {
    let plan = if quick { Plan::quick(seed) } else { Plan::full(seed) };
    Plan {
        file: options.net.clone(),
        train: options.train.unwrap_or(plan.train),
        test: options.test.unwrap_or(plan.test),
        directions: options.directions.unwrap_or(plan.directions),
        ..plan
    }
}

pub fn run(context: &Context, quick: bool, options: &Options) -> Result<Shown> {
    let plan = plan(options, context.seed, quick);
    let bar = context.bar();
    let found = network_ntk::run(&plan, &context.fit(&bar))?;
    drop(bar);
    let verdict = network_ntk::verdict(&plan, &found);
    let figure = matrices(&plan, &found);
    let report = Report::new("The empirical NTK of a trained network")
        .lead(&sentence(&verdict))
        .section("What was run")
        .text(&setting(&plan, &found))
        .section("The kernel at test images")
        .figure(
            &figure,
            "The kernel of test images, the airplanes first, then the automobiles; one scale of colours, blue negative, red \
             positive.",
        )
        .table(table(&plan, &found))
        .section("The spectrum")
        .figure(&spectrum(&found), "Eigenvalues of the sampled kernel over the training images.")
        .text(&format!(
            "The {} pairs hold {} of the sampled kernel's trace.",
            plan.k,
            text::percent(found.captured)
        ))
        .command(&format!("{}{}", command("ntk", context, quick), options.written()));
    let numbers = json!({ "plan": plan, "found": found, "verdict": verdict });
    let said = format!(
        "{}, {} parameters, right at {} of the test images\n{}\n{}\n",
        found.net,
        text::grouped(found.parameters),
        text::percent(found.accuracy),
        text::table(&HEADINGS, &cells(&found)),
        sentence(&verdict)
    );
    Ok(Shown { figure, report, text: said, numbers })
}

fn setting(plan: &Plan, found: &Found) -> String {
    let origin = match &plan.file {
        Some(file) => format!("The network comes from {}", file.display()),
        None => format!(
            "The network was trained here on {} images for {} epochs",
            text::grouped(plan.learnt.max(plan.train)),
            plan.epochs
        ),
    };
    let [network, truth, directions, neural] = found.seconds.map(text::seconds);
    format!(
        "{origin}: {}, {} parameters; batch norms are folded into the weights. Its output is taken to be g = logit(automobile) − \
         logit(airplane), which has the right sign at {} of the test images, and the kernel is Θ(x,x') = ∂g(x)·∂g(x') over all \
         parameters. The truth at {} test images is Θ itself, by each layer's structured derivatives. The sampled kernel FᵀF/S of \
         {} training images comes from derivatives, exact ones, along S = {} directions of random signs. NeuralEF trains {} networks \
         ({}) on it for {} steps with batches of {} images and ends in Rayleigh–Ritz; its kernel at new images is Σ μ ψ(x)ψ(x'). Exact \
         are the top {} pairs of the same sampled kernel by Krylov iteration, carried to new images by the same directions there; \
         Nyström has {} training images as landmarks and Θ itself. It took {network} to get the data and the network, {truth} for \
         the truth, {directions} for the directions and {neural} for NeuralEF.",
        found.net,
        text::grouped(found.parameters),
        text::percent(found.accuracy),
        text::grouped(plan.test),
        text::grouped(plan.train),
        text::grouped(plan.directions),
        plan.k,
        plan.functions,
        text::grouped(plan.steps as usize),
        plan.batch,
        plan.k,
        plan.k,
    )
}

/// The three kernels on one scale: the 99th percentile of the truth's absolute values, so that a few large ones do not drown
/// the rest.
fn matrices(plan: &Plan, found: &Found) -> String {
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
        .panel(panel("the truth".into(), &found.truth, ""))
        .panel(panel(format!("NeuralEF, k = {}: error {:.3}", plan.k, row(0)), &found.by_functions, ""))
        .panel(panel(format!("random features, S = {}: error {:.3}", plan.k, row(1)), &found.by_features, "Θ"))
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

fn table(plan: &Plan, found: &Found) -> Table {
    let table = cells(found).iter().fold(Table::new(&HEADINGS), |table, row| table.row(row));
    table.caption(format!(
        "Relative Frobenius errors at the {} test images, and what the features of a new image cost. A pass along a direction, \
         like a backward pass, takes the products of a forward pass twice.",
        text::grouped(plan.test)
    ))
}
