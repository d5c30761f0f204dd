//! Report: the Gaussian process of a convolutional network on MNIST, and classification by its first functions.

use super::{Options, Shown, indices, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::cnn_gp::{self, Candidate, Config, Found, JOINT, PUBLISHED, Row};
use serde_json::json;

fn config(options: &Options, seed: u64, quick: bool) -> Config {
    let config = if quick { Config::quick(seed) } else { Config::full(seed) };
    Config {
        n: options.train.unwrap_or(config.n),
        test: options.test.unwrap_or(config.test),
        steps: options.steps.unwrap_or(config.steps),
        ..config
    }
}

pub fn run(context: &Context, quick: bool, options: &Options) -> Result<Shown> {
    let config = config(options, context.seed, quick);
    let found = context.fitting(|fit| cnn_gp::run(&config, fit))?;
    let verdict = cnn_gp::verdict(&found);
    let figure = overview(&found);
    let report = Report::new("The Gaussian process of a convolutional network, on MNIST")
        .lead(&sentence(&verdict))
        .section("What was run")
        .text(&setting(&config, &found))
        .section("Accuracy and cost")
        .figure(
            &figure,
            "Left: test accuracy of logistic regression on the values of the functions, and the published values. Right: eigenvalues \
             of the CNN-GP kernel by each method.",
        )
        .table(table(&found))
        .text(&costs(&found))
        .section("The digits in the first coordinates")
        .figure(&embeddings(&found), "Test images in the coordinates of the functions, coloured by digit; no label was used to find them.")
        .section("Which network")
        .text(
            "The architecture determines the kernel, and so how well ten functions can classify. Each candidate was evaluated by its \
             exact functions on training images held out for validation; the test images were not used. The candidates are the \
             best of twelve that were compared in the same way before, so the accuracy of the best one is slightly optimistic.",
        )
        .table(candidate_table(&found.candidates));
    let numbers = json!({ "plan": config, "found": found, "verdict": verdict });
    Ok(Shown { figure, report, text: text_of(&found, &verdict), numbers })
}

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

fn setting(config: &Config, found: &Found) -> String {
    format!(
        "The kernel κ(x,x') = E[g(x,θ) g(x',θ)] of the network {} with random weights, by {} samples ({} networks, each output is a \
         sample) on {} training and {} test images of MNIST (each pixel centred, one scale for all), which took {}. The {} exact \
         pairs hold {} of its trace.\n\n\
         NeuralEF trains {} networks {} for {} steps on batches of {} and ends with Rayleigh–Ritz: once with the published \
         penalties Σ R_ij²/R_ii on function j, i < j, and once with joint penalties rᵀR⁻¹r, where R and r are those of all functions \
         before it. The two agree once the earlier functions are orthogonal. Before that, and on every batch, all functions have a \
         component of about 1/√B along the first one. The first eigenvalue of this kernel is so large that separate penalties count \
         this component several times, and the later functions need many more steps. Ritz trains the hidden units of {} \
         for {} steps and solves the last layer. Exact functions come from block Krylov iteration on FᵀF/S without forming the \
         matrix; the Nyström method uses {} landmarks drawn uniformly. The polynomial kernel is (x·x'/784 + 1.5)⁴; the \
         lengthscale of the RBF is the median distance.\n\n\
         The features are ψ(x), each scaled to mean 0 and variance 1, so that √μ ψ(x) gives the same result; multinomial logistic \
         regression on them has a ridge of 1e-5 on the mean loss and is solved by Newton's method to a gradient of 1e-8.",
        found.net,
        text::grouped(config.samples),
        text::grouped(found.networks),
        text::grouped(config.n),
        text::grouped(config.test),
        text::seconds(found.sampling_seconds),
        config.k,
        text::percent(found.captured),
        config.k,
        config.functions,
        text::grouped(config.steps as usize),
        config.batch,
        config.trunk,
        text::grouped(config.ritz_steps as usize),
        text::grouped(config.landmarks),
    )
}

/// The cost of a new image, in words.
fn costs(found: &Found) -> String {
    let of = |method: &str| found.rows.iter().find(|row| row.method == method);
    let (Some(neural), Some(exact)) = (of(JOINT), of("exact")) else { return String::new() };
    format!(
        "On the CNN-GP kernel, exact functions and the Nyström method take little time once the samples are computed, because \
         κ(x,x') = F(x)·F(x')/S. But each new image must pass through {} random networks, which costs {} times the multiply-adds \
         of the networks trained by NeuralEF.",
        text::grouped(found.networks),
        text::grouped(exact.multiply_adds / neural.multiply_adds.max(1)),
    )
}

fn label(row: &Row) -> String {
    format!("{}, {}", row.method, row.kernel)
}

fn published(row: &Row) -> Option<f64> {
    PUBLISHED
        .iter()
        .find(|(method, kernel, _)| *method == row.method && *kernel == row.kernel)
        .map(|(.., share)| *share)
}

fn overview(found: &Found) -> String {
    let names: Vec<String> = found.rows.iter().map(|row| format!("{} {}", short(row.kernel), row.method)).collect();
    let shares: Vec<f64> = found.rows.iter().map(|row| 100.0 * row.accuracy).collect();
    let published_shares: Vec<f64> =
        found.rows.iter().map(|row| published(row).map_or(f64::NAN, |p| 100.0 * p)).collect();
    let accuracy = Plot::new("Test accuracy").y("accuracy, %").y_range(0.0, 100.0).bars("here", &names, &shares).bars(
        "published",
        &names,
        &published_shares,
    );
    let mut spectrum = Plot::new("Eigenvalues of CNN-GP").x("pair").y_log("μ");
    for row in found.rows.iter().filter(|row| row.kernel == "CNN-GP") {
        spectrum = spectrum.line(row.method, &indices(row.eigenvalues.len()), &row.eigenvalues).markers();
    }
    Grid::new("Ten functions of a network's Gaussian process on MNIST", 2)
        .panel_size(460.0, 260.0)
        .panel(accuracy)
        .panel(spectrum)
        .svg()
}

/// The short name of a kernel under a bar.
fn short(kernel: &str) -> &str {
    match kernel {
        "CNN-GP" => "",
        "polynomial" => "poly:",
        _ => "RBF:",
    }
}

/// Number of test images in the figure.
const SHOWN: usize = 1500;

fn embeddings(found: &Found) -> String {
    let digits: Vec<String> = (0..10).map(|digit| digit.to_string()).collect();
    let mut grid = Grid::new("Test images in the coordinates of the eigenfunctions", 2).panel_size(300.0, 240.0);
    for row in found.rows.iter().filter(|row| [JOINT, "exact"].contains(&row.method)) {
        for (a, b) in [(0, 1), (2, 3)].into_iter().filter(|(_, b)| *b < row.functions.ncols()) {
            let [xs, ys] = [a, b].map(|j| row.functions.column(j).iter().copied().take(SHOWN).collect::<Vec<f64>>());
            let plot = Plot::new(label(row)).x(format!("ψ_{{{}}}", a + 1)).y(format!("ψ_{{{}}}", b + 1));
            grid = grid.panel(plot.classes(&xs, &ys, &found.labels[..xs.len()], &digits));
        }
    }
    grid.svg()
}

const HEADINGS: [&str; 9] = [
    "method",
    "kernel",
    "test accuracy, %",
    "published, %",
    "fitted images, %",
    "seconds to fit",
    "random networks per new image",
    "multiply-adds per new image",
    "mean residual",
];

fn cells(found: &Found) -> Vec<Vec<String>> {
    let cells = |row: &Row| {
        vec![
            row.method.into(),
            row.kernel.into(),
            percent(row.accuracy),
            published(row).map_or(text::GAP.into(), percent),
            percent(row.fitted),
            format!("{:.1}", row.seconds),
            text::grouped(row.networks),
            text::grouped(row.multiply_adds),
            text::error(row.residual),
        ]
    };
    found.rows.iter().map(cells).collect()
}

fn table(found: &Found) -> Table {
    Table::of(&HEADINGS, &cells(found)).highest(2).lowest(7).caption(
        "Residual: mean over the pairs of ‖Kψ − μψ‖/μ‖ψ‖ on the fitted images, each method with its own kernel. Seconds do not \
         include the time for the samples, which the methods on CNN-GP share.",
    )
}

const CANDIDATE_HEADINGS: [&str; 4] = ["network", "validation accuracy, %", "multiply-adds", "trace captured"];

fn candidate_table(candidates: &[Candidate]) -> Table {
    let row = |c: &Candidate| {
        [c.net.clone(), percent(c.accuracy), text::grouped(c.multiply_adds), format!("{:.3}", c.captured)]
    };
    Table::of(&CANDIDATE_HEADINGS, &candidates.iter().map(row).collect::<Vec<_>>()).highest(1)
}

fn text_of(found: &Found, verdict: &str) -> String {
    format!("CNN-GP of {}\n{}\n{}\n", found.net, text::table(&HEADINGS, &cells(found)), sentence(verdict))
}
