//! The Gaussian process of a convolutional network on MNIST: what its first functions say of the digits.

use super::{Options, Shown, command, indices, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::cnn_gp::{self, Candidate, Found, JOINT, PUBLISHED, Plan, Row};
use serde_json::json;

fn plan(options: &Options, seed: u64, quick: bool) -> Plan {
    let plan = if quick { Plan::quick(seed) } else { Plan::full(seed) };
    Plan {
        n: options.train.unwrap_or(plan.n),
        test: options.test.unwrap_or(plan.test),
        steps: options.steps.unwrap_or(plan.steps),
        ..plan
    }
}

pub fn run(context: &Context, quick: bool, options: &Options) -> Result<Shown> {
    let plan = plan(options, context.seed, quick);
    let bar = context.bar();
    let found = cnn_gp::run(&plan, &context.fit(&bar))?;
    drop(bar);
    let verdict = cnn_gp::verdict(&found);
    let figure = overview(&found);
    let report = Report::new("The Gaussian process of a convolutional network, on MNIST")
        .lead(&sentence(&verdict))
        .section("What was run")
        .text(&setting(&plan, &found))
        .section("Accuracy and cost")
        .figure(
            &figure,
            "Left: share of test images that logistic regression on the values of the functions names rightly, beside what is \
             published. Right: eigenvalues of the CNN-GP kernel by each method.",
        )
        .table(table(&found))
        .text(&costs(&found))
        .section("The digits in the first coordinates")
        .figure(&embeddings(&found), "Test images in the coordinates of the functions, coloured by digit; no label was used to find them.")
        .section("Which network")
        .text(
            "The architecture sets the kernel, and with it what ten functions can say. Each candidate was judged by its exact \
             functions on training images that were kept back; the test images had no part in it. These are the better of \
             twelve that were tried in the same way before, so that the best of them is judged a little too well.",
        )
        .table(tried(&found.candidates))
        .command(&format!("{}{}", command("cnn-gp", context, quick), options.written()));
    let numbers = json!({ "plan": plan, "found": found, "verdict": verdict });
    Ok(Shown { figure, report, text: said(&found, &verdict), numbers })
}

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

fn setting(plan: &Plan, found: &Found) -> String {
    format!(
        "The kernel κ(x,x') = E[g(x,θ) g(x',θ)] of the network {} with drawn weights, by {} samples ({} networks, each output a sample) on {} training and {} test \
         images of MNIST (every pixel centred, one scale for all), which took {}. The {} exact pairs hold {} of its trace.\n\n\
         NeuralEF trains {} networks {} for {} steps on batches of {} and ends in Rayleigh–Ritz: once with the published \
         penalties Σ R_ij²/R_ii on function j, i < j, once with rᵀR⁻¹r in their place, R and r those of all functions before it. The two agree once the earlier functions are apart. Before, and on every batch, \
         functions share some of the first one, a mean of 1/√B or so; this kernel's first eigenvalue is so large that penalties \
         one by one count this again and again, and the later functions take many more steps. Ritz trains the hidden units of {} \
         for {} steps and solves for the last layer. Exact functions come from block Krylov iteration on FᵀF/S, which is never formed; Nyström's method takes {} landmarks drawn uniformly. The polynomial kernel is \
         (x·x'/784 + 1.5)⁴, the RBF has the median distance as its lengthscale.\n\n\
         Features are ψ(x), each brought to mean 0 and variance 1, so that √μ ψ(x) would give the same; multinomial logistic \
         regression on them has a ridge of 1e-5 on the mean loss and is solved by Newton's method to a gradient of 1e-8.",
        found.net,
        text::grouped(plan.samples),
        text::grouped(found.networks),
        text::grouped(plan.n),
        text::grouped(plan.test),
        text::seconds(found.sampling_seconds),
        plan.k,
        text::percent(found.captured),
        plan.k,
        plan.functions,
        text::grouped(plan.steps as usize),
        plan.batch,
        plan.trunk,
        text::grouped(plan.ritz_steps as usize),
        text::grouped(plan.landmarks),
    )
}

/// What a new image costs, in words.
fn costs(found: &Found) -> String {
    let of = |method: &str| found.rows.iter().find(|row| row.method == method);
    let (Some(neural), Some(exact)) = (of(JOINT), of("exact")) else { return String::new() };
    format!(
        "On the CNN-GP kernel, exact functions and Nyström's method are at hand as soon as the samples are, because \
         κ(x,x') = F(x)·F(x')/S; what they cost is the {} drawn networks that every new image must pass through, {} times the \
         multiply-adds of the networks that NeuralEF has trained.",
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
    let theirs: Vec<f64> = found.rows.iter().map(|row| published(row).map_or(f64::NAN, |p| 100.0 * p)).collect();
    let accuracy = Plot::new("Test accuracy").y("right, %").y_range(0.0, 100.0).bars("here", &names, &shares).bars(
        "published",
        &names,
        &theirs,
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

/// A kernel's name under a bar.
fn short(kernel: &str) -> &str {
    match kernel {
        "CNN-GP" => "",
        "polynomial" => "poly:",
        _ => "RBF:",
    }
}

/// Test images that are shown.
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
    "drawn networks a new image",
    "multiply-adds a new image",
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
    let table = cells(found).iter().fold(Table::new(&HEADINGS), |table, row| table.row(row));
    table.highest(2).lowest(7).caption(
        "Residual: mean over the pairs of ‖Kψ − μψ‖/μ‖ψ‖ over the fitted images, each with its own kernel. Seconds are those of \
         finding the functions; the methods on CNN-GP share the time for the samples.",
    )
}

const TRIED: [&str; 4] = ["network", "kept back, %", "multiply-adds", "trace captured"];

fn tried(candidates: &[Candidate]) -> Table {
    let row = |c: &Candidate| {
        [c.net.clone(), percent(c.accuracy), text::grouped(c.multiply_adds), format!("{:.3}", c.captured)]
    };
    candidates.iter().fold(Table::new(&TRIED), |table, c| table.row(&row(c))).highest(1)
}

fn said(found: &Found, verdict: &str) -> String {
    format!("CNN-GP of {}\n{}\n{}\n", found.net, text::table(&HEADINGS, &cells(found)), sentence(verdict))
}
