//! Every objective and every baseline on five kernels, with equal budgets and over several seeds: the residual on held-out
//! points, the time, and the cost of a new point.

use crate::{Column, Options, Shown, report, sentence, table, two_parts};
use mercer::data::catalogue;
use mercer::kernel::Expression;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Ritz};
use mercer::spectrum::{Fourier, Krylov, Landmarks, Method, Nystrom, NystromRitz, Problem, Sampling, Spectrum};
use mercer::{Error, FitContext, Result};
use mercer_figure::report::Table;
use mercer_figure::{Grid, Plot, text};
use ndarray::Array2;
use serde::Serialize;
use serde_json::json;

config! {
    /// Number of fitted points.
    n: usize = 1397; quick 300,
    /// Number of held-out points.
    held_out: usize = 400; quick 100,
    /// Number of eigenpairs.
    k: usize = 10; quick 5,
    /// Number of runs. Each draws its own points, networks, batches and landmarks.
    runs: u64 = 5; quick 2,
    /// Training steps; Ritz, whose last layer is solved, makes a tenth.
    steps: u64 = 2000; quick 60,
    batch: usize = 256; quick 128,
    /// Number of landmarks and of random Fourier features.
    features: usize = 500; quick 100,
}

/// A kernel on a data set.
#[derive(Clone, Serialize)]
struct Case {
    data: String,
    kernel: &'static str,
}

/// Dominant and flat spectra, smooth and rough kernels, one of rank 20; a table of the folder `$MERCER_DATA` where there is one.
fn cases(config: &Config) -> Vec<Case> {
    let table = catalogue().iter().any(|entry| entry.name == "kin8nm" && entry.present);
    let generated = |name: &str| format!("{name}(n={})", config.n + config.held_out);
    let case = |data: String, kernel| Case { data, kernel };
    vec![
        case("digits".into(), "rbf(lengthscale=median)"),
        case("digits".into(), "laplacian(lengthscale=median)"),
        case("digits".into(), "ntk(depth=3, act=relu)"),
        case(if table { "kin8nm".into() } else { generated("moons") }, "matern32(lengthscale=median)"),
        case(generated("swiss-roll"), "poly(degree=3, scale=0.01)"),
    ]
}

/// A method over all runs.
#[derive(Serialize)]
struct Entry {
    method: &'static str,
    trained: bool,
    /// Mean over the pairs of `min(1, residual)` on held-out points, of each run, ascending.
    residuals: Vec<f64>,
    /// Of each run, ascending.
    seconds: Vec<f64>,
    /// Multiply-adds of `ψ` at a new point.
    multiply_adds: usize,
}

impl Entry {
    fn residual(&self) -> f64 {
        median(&self.residuals)
    }
}

/// The middle of ascending numbers.
fn median(ascending: &[f64]) -> f64 {
    let middle = ascending.len() / 2;
    match ascending.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => 0.5 * (ascending[middle - 1] + ascending[middle]),
        _ => ascending[middle],
    }
}

#[derive(Serialize)]
struct Compared {
    #[serde(flatten)]
    case: Case,
    entries: Vec<Entry>,
}

impl Compared {
    fn best(&self, trained: bool) -> Option<&Entry> {
        // The exact functions are what the others approximate.
        let rivals = self.entries.iter().filter(|e| e.trained == trained && e.method != EXACT);
        rivals.min_by(|a, b| a.residual().total_cmp(&b.residual()))
    }

    fn table(&self) -> Table {
        table(&self.entries, &COLUMNS)
    }

    fn title(&self) -> String {
        format!("{} on {}", self.case.kernel, self.case.data)
    }
}

const EXACT: &str = "Krylov, extended";

const COLUMNS: [Column<Entry>; 5] = [
    ("method", |e| e.method.into()),
    ("residual", |e| text::error(e.residual())),
    ("range", |e| match &e.residuals[..] {
        [first, .., last] => format!("{} … {}", text::error(*first), text::error(*last)),
        _ => text::GAP.into(),
    }),
    ("seconds", |e| format!("{:.2}", median(&e.seconds))),
    ("multiply-adds", |e| text::grouped(e.multiply_adds)),
];

/// Every method as `mercer fit` makes it, the trained ones first.
fn methods(config: &Config) -> Vec<(&'static str, bool, Box<dyn Method>)> {
    let network =
        |kind: Kind, steps: u64| -> Box<dyn Method> { Box::new(crate::neural(kind, None, steps, config.batch)) };
    let trained = |kind: Kind| {
        let steps = if kind.solves_last_layer() { config.steps / 10 } else { config.steps };
        (kind.name(), true, network(kind, steps))
    };
    let fourier = Fourier { features: config.features, sampling: Sampling::Orthogonal, ritz: true };
    let nystrom = Nystrom { landmarks: config.features.min(config.n), choice: Landmarks::KMeansPlusPlus };
    let baselines: [(&'static str, bool, Box<dyn Method>); 5] = [
        ("random features", false, network(Ritz.into(), 0)),
        ("random Fourier features", false, Box::new(fourier)),
        ("Nyström", false, Box::new(nystrom)),
        ("Nyström–Ritz", false, Box::new(NystromRitz(nystrom))),
        (EXACT, false, Box::new(Krylov::default())),
    ];
    Kind::all().into_iter().map(trained).chain(baselines).collect()
}

/// All methods on one case; those that do not suit the kernel are left out.
fn compare(case: &Case, config: &Config, context: &FitContext<'_>) -> Result<Compared> {
    let mut entries: Vec<Entry> = methods(config)
        .iter()
        .map(|(method, trained, _)| {
            let (residuals, seconds) = (vec![], vec![]);
            Entry { method, trained: *trained, residuals, seconds, multiply_adds: 0 }
        })
        .collect();
    for run in 0..config.runs {
        let context = FitContext { seed: config.seed + run, ..*context };
        let (x, held_out) = points(case, config, context.seed)?;
        let kernel = Expression::parse(case.kernel)?.resolve(x.view(), context.seed)?;
        let operator = context.kernel_operator(&kernel, x.view())?;
        let problem = Problem { operator: &operator, k: config.k, context };
        for (entry, (.., method)) in entries.iter_mut().zip(methods(config)) {
            match Spectrum::fit(method.as_ref(), &problem, Some(held_out.view().into())) {
                Ok(spectrum) => {
                    entry.residuals.push(spectrum.certificate.mean_residual());
                    entry.seconds.push(spectrum.origin.seconds);
                    entry.multiply_adds = spectrum.multiply_adds();
                }
                // Random Fourier features are for shift-invariant kernels only.
                Err(Error::Input(_)) if entry.method.starts_with("random Fourier") => {}
                Err(error) => return Err(error),
            }
        }
    }
    entries.retain(|entry| !entry.residuals.is_empty());
    for entry in &mut entries {
        entry.residuals.sort_by(f64::total_cmp);
        entry.seconds.sort_by(f64::total_cmp);
    }
    Ok(Compared { case: case.clone(), entries })
}

/// Points to fit `[n, d]` and to certify on `[h, d]`.
fn points(case: &Case, config: &Config, seed: u64) -> Result<(Array2<f64>, Array2<f64>)> {
    let rng = Rng::new(seed).fork(0x7365_6564);
    let (set, [fitted, held_out]) = two_parts(&case.data, [config.n, config.held_out], rng)?;
    Ok((set.x.select(&fitted).into_f64(), set.x.select(&held_out).into_f64()))
}

/// The best trained method and the best baseline of each case.
fn verdict(found: &[Compared]) -> String {
    let line = |compared: &Compared| {
        let said = |trained: bool| match compared.best(trained) {
            Some(best) => {
                let cost = text::grouped(best.multiply_adds);
                format!("{} {} at {cost} multiply-adds", best.method, text::error(best.residual()))
            }
            None => "none".into(),
        };
        format!("{}: {} trained, {} untrained", compared.title(), said(true), said(false))
    };
    let lines: Vec<String> = found.iter().map(line).collect();
    format!("median residual of the best method on held-out points: {}", lines.join("; "))
}

/// Residual over the cost of a new point, a panel for each case.
fn figure(found: &[Compared]) -> String {
    let mut grid = Grid::new("Residual and cost of a new point", 2).panel_size(420.0, 300.0).shared();
    let most = found.iter().max_by_key(|compared| compared.entries.len());
    let methods: Vec<&str> = most.iter().flat_map(|compared| &compared.entries).map(|entry| entry.method).collect();
    for compared in found {
        let mut plot = Plot::new(compared.title()).x_log("multiply-adds for a new point").y_log("median residual");
        // A method that does not suit the kernel has no point here, so that all others keep their colours.
        for method in &methods {
            let entry: Vec<&Entry> = compared.entries.iter().filter(|entry| entry.method == *method).collect();
            let x: Vec<f64> = entry.iter().map(|entry| entry.multiply_adds as f64).collect();
            let y: Vec<f64> = entry.iter().map(|entry| entry.residual()).collect();
            plot = plot.scatter(*method, &x, &y);
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

fn setting(config: &Config) -> String {
    let Config { n, held_out, k, runs, steps, batch, features, .. } = config;
    let [n, steps] = [*n, *steps as usize].map(text::grouped);
    format!(
        "{k} pairs of five kernels, {n} points fitted and {held_out} held out, {runs} runs that draw their own points, networks, \
         batches and landmarks. Every objective makes {steps} steps on batches of {batch}, Ritz a tenth, with the networks that \
         `mercer fit` takes by default, and ends with Rayleigh–Ritz; random features are Ritz without steps. There are {features} \
         landmarks and {features} random Fourier features, the latter with Rayleigh–Ritz; Krylov finds the exact functions, which a \
         new point reaches through all {n} fitted ones. The residual is the mean over the pairs of min(1, r), r that of \
         the certificate on the held-out points: its median over the runs, and its range."
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let found = cases(&config).iter().map(|case| compare(case, &config, context)).collect::<Result<Vec<_>>>()?;
    let (figure, verdict) = (figure(&found), verdict(&found));
    let mut report = report("Neural methods and their baselines", &verdict, &setting(&config))
        .section("Residual and cost")
        .figure(&figure, "Down and to the left is better.");
    let mut text = format!("{}\n", setting(&config));
    for compared in &found {
        report = report.section(&compared.title()).table(compared.table().lowest(1));
        text += &format!("\n{}\n{}", compared.title(), compared.table().text());
    }
    text += &format!("\n{}\n", sentence(&verdict));
    Ok(Shown { figure, report, numbers: json!({ "plan": config, "cases": found }), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(method: &'static str, trained: bool, residuals: &[f64]) -> Entry {
        Entry { method, trained, residuals: residuals.to_vec(), seconds: vec![1.0], multiply_adds: 100 }
    }

    #[test]
    fn the_verdict_follows_the_medians() {
        assert_eq!((median(&[1.0, 2.0, 9.0]), median(&[1.0, 3.0])), (2.0, 2.0));
        let entries = vec![
            entry("a", true, &[0.01, 0.5, 0.6]),
            entry("b", true, &[0.2, 0.3, 0.9]),
            entry("c", false, &[0.4]),
            entry(EXACT, false, &[1e-9]),
        ];
        let compared = Compared { case: Case { data: "points".into(), kernel: "rbf(1)" }, entries };
        assert_eq!([true, false].map(|trained| compared.best(trained).unwrap().method), ["b", "c"]);
        assert!(verdict(&[compared]).contains("rbf(1) on points: b 0.3"));
    }

    #[test]
    fn every_method_is_measured_in_every_run_at_its_cost() {
        let config = Config { n: 200, held_out: 60, k: 4, features: 60, ..Config::new(true, 3) };
        let case = |kernel| Case { data: "digits".into(), kernel };
        let found = compare(&case("rbf(lengthscale=median)"), &config, &FitContext::default()).unwrap();
        assert_eq!(found.entries.len(), Kind::all().len() + 5);
        let of = |name: &str| found.entries.iter().find(|e| e.method == name).unwrap();
        for e in &found.entries {
            assert_eq!([e.residuals.len(), e.seconds.len()], [2, 2], "{}", e.method);
            assert!(e.residuals.is_sorted() && e.residuals.iter().all(|r| (0.0..=1.0).contains(r)), "{}", e.method);
        }
        // m(d+k) for landmarks; the exact functions have all points as landmarks.
        assert_eq!([of("Nyström"), of(EXACT)].map(|e| e.multiply_adds), [60 * (64 + 4), 200 * (64 + 4)]);
        assert!(of(EXACT).residual() < 1e-4 && of("Nyström–Ritz").residual() < of("Nyström").residual());
        assert!(of("ritz").residual() < of("random features").residual());
        // A kernel that random Fourier features cannot have.
        let found = compare(&case("ntk(depth=2, act=relu)"), &Config { runs: 1, ..config }, &FitContext::default());
        assert!(found.unwrap().entries.iter().all(|e| !e.method.starts_with("random Fourier")));
    }

    #[test]
    fn data_that_is_too_small_is_an_error() {
        let config = Config { n: 1700, held_out: 200, ..Config::new(true, 0) };
        let case = Case { data: "digits".into(), kernel: "rbf(1)" };
        let error = points(&case, &config, 0).err().unwrap().to_string();
        assert!(error.contains("1797") && error.contains("1900"), "{error}");
    }
}
