//! Report: the Gaussian process of a fully connected network, by NeuralEF and exactly.

use super::{Shown, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::mlp_gp::{self, Case, Config};
use ndarray::Array2;
use serde_json::json;

pub fn run(context: &Context, quick: bool) -> Result<Shown> {
    let config = if quick { Config::quick(context.seed) } else { Config::full(context.seed) };
    let cases = context.fitting(|fit| mlp_gp::run(&config, fit))?;
    let verdict = mlp_gp::verdict(&cases);
    let figure = maps(&cases, config.side);
    let mut report = Report::new("The Gaussian process of a network, in the plane")
        .lead(&sentence(&verdict))
        .section("What was run")
        .text(&setting(&config, &cases))
        .section("The functions over the plane")
        .figure(&figure, "NeuralEF's functions above, the exact ones below; blue is negative, red positive; dots are some of the new points. NeuralEF is trained on the circles or the moons only, so away from them its networks are arbitrary.")
        .section("At new points")
        .figure(&points(&cases), "The same functions at new points: NeuralEF above, exact below.")
        .figure(&projections(&cases), "The points in the coordinates of the functions, coloured by class.");
    for case in &cases {
        report = report.section(case.name).table(table(case)).text(&format!(
            "The {} pairs hold {} of the kernel's trace. The smallest cosine between the spans of all {} functions, which does not \
             depend on rotations among functions of nearly equal eigenvalue, is {:.4}. NeuralEF took {}, with its final \
             Rayleigh–Ritz step.",
            case.exact.len(),
            text::percent(case.captured),
            case.exact.len(),
            case.span,
            text::seconds(case.seconds)
        ));
    }
    let numbers = json!({ "plan": config, "cases": cases, "verdict": verdict });
    Ok(Shown { figure, report, text: text_of(&cases, &verdict), numbers })
}

fn setting(config: &Config, cases: &[Case]) -> String {
    let nets: Vec<String> = cases.iter().map(|c| format!("{} with {}", c.name, c.net)).collect();
    format!(
        "The kernel κ(x,x') = E[g(x,θ) g(x',θ)] of a network with random weights, sampled by {} networks: {}. {} points are fitted. \
         NeuralEF trains {} networks for {} steps on batches of {} and ends with Rayleigh–Ritz; exact is the eigendecomposition of \
         the same kernel on the same points. At {} new points and over the plane, NeuralEF's functions are its networks, and the \
         exact ones are (1/nμ) Σ κ(x,xᵢ) ψ(xᵢ), with the same random networks.",
        text::grouped(config.samples),
        nets.join("; "),
        text::grouped(config.n),
        config.k,
        text::grouped(config.steps as usize),
        config.batch,
        text::grouped(config.n),
    )
}

/// The two rows of a case: a name, the functions over the plane, and at the new points.
fn rows(case: &Case) -> [(&'static str, &Array2<f64>, &Array2<f64>); 2] {
    [("NeuralEF", &case.neural_map, &case.neural_functions), ("exact", &case.exact_map, &case.exact_functions)]
}

fn maps(cases: &[Case], side: usize) -> String {
    let k = cases.first().map_or(1, |c| c.exact.len());
    let mut grid = Grid::new("Eigenfunctions of the networks' Gaussian process", k).panel_size(210.0, 160.0);
    for case in cases {
        // The first points show both classes, which alternate.
        let [xs, ys] = [0, 1].map(|axis| case.x.column(axis).iter().copied().take(SHOWN).collect::<Vec<f64>>());
        for (name, map, _) in rows(case) {
            for j in 0..k {
                let title = format!("{}, {name}: ψ_{{{}}}", case.name, j + 1);
                let values = map.column(j).to_vec();
                let [x, y] = case.ranges;
                let plot = Plot::new(title).field("", (x[0], x[1]), (y[0], y[1]), [side, side], &values).diverging();
                grid = grid.panel(plot.scatter("", &xs, &ys).colour(LAST));
            }
        }
    }
    grid.svg()
}

/// The colour of the points on the maps.
const LAST: usize = 6;
/// Number of points on the maps.
const SHOWN: usize = 120;

fn points(cases: &[Case]) -> String {
    let k = cases.first().map_or(1, |c| c.exact.len());
    let mut grid = Grid::new("Eigenfunctions at new points", k).panel_size(210.0, 160.0);
    for case in cases {
        let [xs, ys] = [0, 1].map(|axis| case.x.column(axis).to_vec());
        for (name, _, functions) in rows(case) {
            for j in 0..k {
                let title = format!("{}, {name}: ψ_{{{}}}", case.name, j + 1);
                grid = grid.panel(Plot::new(title).values("", &xs, &ys, &functions.column(j).to_vec()).diverging());
            }
        }
    }
    grid.svg()
}

fn projections(cases: &[Case]) -> String {
    let pairs = [(0, 1), (0, 2), (1, 2)];
    let mut grid =
        Grid::new("The points in the coordinates of their eigenfunctions", pairs.len()).panel_size(210.0, 160.0);
    for case in cases {
        for (name, _, functions) in rows(case) {
            for (a, b) in pairs.into_iter().filter(|(_, b)| *b < functions.ncols()) {
                let [xs, ys] = [a, b].map(|j| functions.column(j).to_vec());
                let plot = Plot::new(format!("{}, {name}", case.name))
                    .x(format!("ψ_{{{}}}", a + 1))
                    .y(format!("ψ_{{{}}}", b + 1))
                    .classes(&xs, &ys, &case.labels, &case.classes);
                grid = grid.panel(plot);
            }
        }
    }
    grid.svg()
}

const HEADINGS: [&str; 7] = [
    "pair",
    "exact eigenvalue",
    "closed form",
    "NeuralEF",
    "NeuralEF, raw",
    "|cos|, fitted points",
    "|cos|, new points",
];

fn cells(case: &Case) -> Vec<Vec<String>> {
    (0..case.exact.len())
        .map(|j| {
            vec![
                (j + 1).to_string(),
                text::number(case.exact[j], 5),
                text::number(case.closed_form[j], 5),
                text::number(case.neural[j], 5),
                case.raw.get(j).map_or(text::GAP.into(), |μ| text::number(*μ, 5)),
                format!("{:.5}", case.fitted[j]),
                format!("{:.5}", case.new[j]),
            ]
        })
        .collect()
}

fn table(case: &Case) -> Table {
    Table::of(&HEADINGS, &cells(case)).caption(format!(
        "{}: eigenvalues of the kernel on the points, and agreement of NeuralEF's functions with the exact ones. Raw eigenvalues \
         are the moving averages of training; the closed form is the kernel of infinitely many, infinitely wide networks.",
        case.name
    ))
}

fn text_of(cases: &[Case], verdict: &str) -> String {
    let tables: String = cases
        .iter()
        .map(|case| format!("{}, {}\n{}\n", case.name, case.net, text::table(&HEADINGS, &cells(case))))
        .collect();
    tables + &sentence(verdict) + "\n"
}
