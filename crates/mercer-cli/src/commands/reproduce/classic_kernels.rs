//! Report: classic kernels by all methods.

use super::{Shown, indices, sentence};
use crate::context::Context;
use crate::text;
use mercer::Result;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use mercer_lab::classic_kernels::{self, Attempt, Config, Errors, FOUND, Family, Setting};
use serde_json::json;

pub fn run(context: &Context, quick: bool) -> Result<Shown> {
    let config = if quick { Config::quick(context.seed) } else { Config::full(context.seed) };
    let settings = context.fitting(|fit| classic_kernels::run(&config, fit))?;
    let verdict = classic_kernels::verdict(&settings);
    let figure =
        error_grid("Function error of each pair, against the exact functions of the points", &settings, function);
    let mut report = Report::new("Classic kernels by all methods")
        .lead(&sentence(&verdict))
        .section("What was run")
        .text(&description(&config))
        .section("Results")
        .text(&settings.iter().map(|s| sentence(&s.verdict())).collect::<Vec<_>>().join("\n\n"))
        .figure(&figure, "1 − |cos| of the angle between the function found and the exact one of the same points. Values below 1e-16 are drawn at 1e-16. Dotted: the functions of the last training step, if validation kept earlier ones.")
        .figure(
            &error_grid("Eigenvalue error of each pair", &settings, |a, j| Some(a.to_points.eigenvalue[j])),
            "Relative to the exact eigenvalue of the same points; if that is zero, relative to the largest eigenvalue.",
        );
    for setting in &settings {
        report = report
            .section(&format!("{}, n = {}", setting.case.name, setting.n))
            .table(summary(setting))
            .figure(
                &functions(setting),
                "Each function over the interval; for networks, that of the last training step. The exact function of the same points is dashed. Nyström's functions are not shown, because they coincide with the exact ones.",
            )
            .table(errors("relative to the exact spectrum of the points", setting, &setting.of_points, |a| &a.to_points))
            .table(errors("relative to the spectrum of the distribution", setting, &setting.of_population, |a| {
                &a.to_population
            }));
        for (name, why) in &setting.unsuited {
            report = report.text(&format!("Left out: {name}. {}.", sentence(why).trim_end_matches('.')));
        }
    }
    let numbers = json!({ "plan": config, "settings": settings, "verdict": verdict });
    Ok(Shown { figure, report, text: text_of(&settings, &verdict), numbers })
}

fn description(config: &Config) -> String {
    let sizes: Vec<String> = config.sizes.iter().map(|n| text::grouped(*n)).collect();
    format!(
        "The polynomial kernel (xx' + 1.5)⁴ on U[−1,1], of rank five, and the RBF exp(−(x−x')²/2) on U[−2,2], each at {} \
         random points; {} pairs. NeuralEF, SpIN and nested low-rank have one network per function, with two hidden layers \
         of 32 units (half sines, half cosines), trained by Adam at 1e-3 (cosine) on batches of {} for {} steps; their raw \
         eigenvalues are those of the objective at the end. Ritz has one network, whose last layer is solved and not \
         trained; it has {} steps. All networks start at the weight scale that validation prefers, end with Rayleigh–Ritz \
         over all points, and keep the functions of the best validation. The column \"kept\" gives the step of these functions; \
         0 means that training made them worse. The functions of the last step are shown too. There are {} random features or \
         landmarks, as many as Ritz has units in its last hidden layer.\n\nA pair counts as found if its eigenvalue and its \
         function are both within {FOUND:.0e} of the exact ones of the same points, and all pairs before it are found; a zero \
         eigenvalue must be found as exactly zero.",
        sizes.join(", "),
        config.k,
        config.batch,
        text::grouped(config.steps as usize),
        text::grouped(config.ritz_steps as usize),
        config.features,
    )
}

fn function(attempt: &Attempt, j: usize) -> Option<f64> {
    attempt.to_points.function[j].map(|e| e.max(1e-16))
}

/// The last colour, which is that of Nyström, or of the exact functions where Nyström is not shown.
const LAST: usize = 6;

/// The colour of a method, the same in all figures.
fn colour(name: &str) -> usize {
    let names = ["NeuralEF", "SpIN", "nested low-rank", "Ritz", "random Fourier features, Ritz", "Ritz, untrained"];
    names.iter().position(|n| *n == name).unwrap_or(LAST)
}

/// The errors over the pairs: one panel per setting, one line per method.
fn error_grid(title: &str, settings: &[Setting], error: fn(&Attempt, usize) -> Option<f64>) -> String {
    let columns = settings.len() / classic_kernels::CASES.len();
    let mut grid = Grid::new(title, columns).panel_size(250.0, 190.0).shared();
    for setting in settings {
        let mut plot = Plot::new(format!("{}, n = {}", setting.case.name, setting.n)).x("pair j").y_log("error");
        for attempt in &setting.attempts {
            let errors = |a: &Attempt| -> Vec<f64> {
                (0..setting.of_points.len()).map(|j| error(a, j).filter(|e| *e > 0.0).unwrap_or(f64::NAN)).collect()
            };
            let (js, colour) = (indices(setting.of_points.len()), colour(&attempt.name));
            if let Some(last) = &attempt.last_step {
                plot = plot.line("", &js, &errors(last)).dotted().colour(colour);
            }
            plot = plot.line(&attempt.name, &js, &errors(attempt)).markers().colour(colour);
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

/// One panel per pair: the functions of all methods and the exact one.
fn functions(setting: &Setting) -> String {
    let title = format!("{}, n = {}: functions over the exact ones", setting.case.name, setting.n);
    let mut grid = Grid::new(title, 5).panel_size(170.0, 120.0);
    for j in (0..setting.of_points.len()).filter(|j| setting.of_points[*j] > 0.0) {
        let mut plot = Plot::new(format!("ψ_{{{}}} (μ = {})", j + 1, text::number(setting.of_points[j], 3))).x("x");
        for attempt in setting.attempts.iter().filter(|a| a.family != Family::Landmarks) {
            let shown = attempt.last_step.as_deref().unwrap_or(attempt);
            let values = shown.functions.column(j).to_vec();
            plot = plot.line(&attempt.name, &setting.grid, &values).colour(colour(&attempt.name));
        }
        grid = grid.panel(plot.line("exact", &setting.grid, &setting.exact.column(j).to_vec()).dashed().colour(LAST));
    }
    grid.svg()
}

const HEADINGS: [&str; 9] = [
    "method",
    "steps",
    "kept",
    "pairs found",
    "by last step",
    "typical function error",
    "worst residual",
    "seconds",
    "multiply-adds",
];

fn cells(a: &Attempt) -> [String; 9] {
    let worst = a.residual.iter().flatten().fold(0.0f64, |worst, r| worst.max(*r));
    [
        a.name.clone(),
        a.steps.to_string(),
        a.kept.map_or(text::GAP.into(), |kept| kept.to_string()),
        a.pairs_found().to_string(),
        a.last_step.as_ref().map_or(text::GAP.into(), |last| last.pairs_found().to_string()),
        text::error(a.typical_function_error()),
        text::error(worst),
        format!("{:.3}", a.seconds),
        text::grouped(a.multiply_adds),
    ]
}

fn summary(setting: &Setting) -> Table {
    let table = setting.ranking().into_iter().fold(Table::new(&HEADINGS), |table, a| table.row(&cells(a)));
    table
        .highest(3)
        .lowest(5)
        .lowest(7)
        .lowest(8)
        .caption("Best first. The residual is measured on held-out points; multiply-adds are for one new point.")
}

/// Errors of each pair for each method: raw eigenvalues, eigenvalues after Rayleigh–Ritz, functions.
fn errors(what: &str, setting: &Setting, exact: &[f64], of: fn(&Attempt) -> &Errors) -> Table {
    let headings: Vec<String> =
        ["method", "error of"].map(String::from).into_iter().chain(exact.iter().map(|μ| text::number(*μ, 3))).collect();
    let row = |name: &str, what: &str, errors: Vec<Option<f64>>| -> Vec<String> {
        let errors = errors.into_iter().map(|e| e.map_or(text::GAP.into(), text::error));
        [name.to_owned(), what.to_owned()].into_iter().chain(errors).collect()
    };
    let all = |errors: &[f64]| errors.iter().copied().map(Some).collect();
    let mut table = Table::new(&headings).caption(format!("Errors {what}, whose eigenvalues are the headings."));
    for attempt in &setting.attempts {
        let Errors { eigenvalue, raw_eigenvalue, function } = of(attempt);
        if let Some(raw) = raw_eigenvalue.as_ref().filter(|_| attempt.steps > 0) {
            table = table.row(&row(&attempt.name, "eigenvalue, raw", all(raw)));
        }
        table = table.row(&row(&attempt.name, "eigenvalue", all(eigenvalue)));
        table = table.row(&row("", "function", function.clone()));
        if let Some(last) = &attempt.last_step {
            table = table.row(&row("", "eigenvalue, last step", all(&of(last).eigenvalue)));
            table = table.row(&row("", "function, last step", of(last).function.clone()));
        }
    }
    table
}

fn text_of(settings: &[Setting], verdict: &str) -> String {
    let mut all = String::new();
    for setting in settings {
        let rows: Vec<Vec<String>> = setting.ranking().into_iter().map(|a| cells(a).to_vec()).collect();
        all += &format!("{}, n = {}\n{}\n", setting.case.name, setting.n, text::table(&HEADINGS, &rows));
    }
    all + &sentence(verdict) + "\n"
}
