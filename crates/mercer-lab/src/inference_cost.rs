//! When training pays off: the leading pairs of a kernel on real data, by trained networks, random features and landmarks
//! of equal inference cost.
//!
//! The cost of a new point is the number of multiply-adds: `m(d+k)` for m landmarks, `M(d+2k)` for M random frequencies,
//! `dh + h² + hk` for a network with two hidden layers of h units. For each cost, every method is made as large as the cost
//! allows, and its pairs are certified on held-out points.

use crate::{Options, Shown, report, sentence, table, two_parts};
use mercer::data::catalogue;
use mercer::kernel::Expression;
use mercer::operator::Precision;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, NeuralEf, Ritz};
use mercer::spectrum::{Fourier, Krylov, Landmarks, Method, Nystrom, NystromRitz, Problem, Sampling, Spectrum};
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::Array2;
use serde::Serialize;
use serde_json::json;

config! {
    /// Name of the data set: MNIST, or the embedded digits if `$MERCER_DATA` has no MNIST.
    data: String = if mnist() { "mnist" } else { "digits" }.into(); quick "digits".into(),
    kernel: String = "rbf(lengthscale=median)".into(),
    n: usize = if mnist() { 8192 } else { 1397 }; quick 1000,
    /// Number of held-out points for the certificate.
    held_out: usize = if mnist() { 2000 } else { 400 }; quick 400,
    /// Number of eigenpairs.
    k: usize = 10,
    /// The costs: largest numbers of multiply-adds for a new point.
    budgets: Vec<usize> = if mnist() { [10, 20, 40, 80, 160] } else { [1, 2, 4, 8, 16] }.map(|b| 1000 * b).to_vec();
        quick vec![1500, 4000, 10_000],
    steps: u64 = 1000; quick 150,
    batch: usize = 512,
    learning_rate: f64 = 3e-3,
}

fn mnist() -> bool {
    catalogue().iter().any(|entry| entry.name == "mnist" && entry.present)
}

/// The result of one method at one cost.
#[derive(Default, Serialize)]
struct Point {
    method: &'static str,
    trained: bool,
    /// Number of hidden units, frequencies or landmarks.
    size: usize,
    multiply_adds: usize,
    /// Residual of each pair on held-out points; `None` if the eigenvalue is zero.
    residual: Vec<Option<f64>>,
    mean_residual: f64,
    /// `Σ_j ⟨ψ_j,Kψ_j⟩/⟨ψ_j,ψ_j⟩` over the trace, estimated on the held-out points.
    captured: f64,
    /// `Σ_j μ_j` over the trace.
    captured_fitted: f64,
    /// `max_ij |⟨ψ_i,ψ_j⟩ − δ_ij|` on held-out points.
    orthonormality: f64,
    seconds: f64,
}

#[derive(Serialize)]
struct Results {
    #[serde(rename = "plan")]
    config: Config,
    /// The kernel with numerical parameters.
    kernel: String,
    d: usize,
    /// Exact eigenvalues of the fitted points.
    exact: Vec<f64>,
    /// The share of the trace that the exact pairs of the fitted points capture on the held-out points.
    exact_captured: f64,
    exact_multiply_adds: usize,
    /// For each budget, the results of the methods that fit into it.
    points: Vec<Vec<Point>>,
    verdict: String,
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let found = run(&config, context)?;
    let budgets = config.budgets.iter().zip(&found.points);
    let rows: Vec<(usize, &Point)> = budgets.flat_map(|(b, points)| points.iter().map(|p| (*b, p))).collect();
    let points = table(
        &rows,
        &[
            ("at most", |(budget, _)| text::grouped(*budget)),
            ("method", |(_, p)| p.method.into()),
            ("size", |(_, p)| p.size.to_string()),
            ("multiply-adds", |(_, p)| text::grouped(p.multiply_adds)),
            ("mean residual", |(_, p)| format!("{:.4}", p.mean_residual)),
            ("captured", |(_, p)| format!("{:.4}", p.captured)),
            ("seconds", |(_, p)| format!("{:.2}", p.seconds)),
        ],
    );
    let figure = curves(&found);
    let text = format!("{}\n{}\n", points.text(), sentence(&found.verdict));
    let report = report("When training pays off", &found.verdict, &description(&found))
        .section("Curves")
        .figure(
            &figure,
            "Left: mean over the pairs of min(1, r), r the residual on held-out points. Right: share of the kernel's trace that the \
             functions capture on these points; the line shows the share of the exact functions of the fitted points.",
        )
        .table(points.caption(format!(
            "Size: hidden units, frequencies or landmarks. The exact functions capture {:.4} of the trace on the held-out points.",
            found.exact_captured
        )));
    Ok(Shown { figure, report, text, numbers: json!(found) })
}

fn description(found: &Results) -> String {
    let Config { data, k, batch, .. } = &found.config;
    let Results { kernel, d, .. } = found;
    let Config { n, held_out, steps, .. } = found.config;
    let [n, held_out, steps, exact] = [n, held_out, steps as usize, found.exact_multiply_adds].map(text::grouped);
    format!(
        "The {k} leading pairs of {kernel} on {data} ({n} points of {d} columns, {held_out} more held out). The cost of a new point \
         is counted in multiply-adds of matrix products: m(d+k) for m landmarks, M(d+2k) for M random frequencies, dh + h² + hk for a \
         network with two hidden layers of h units (half sines, half cosines) and a last layer of k. At each cost every method is as \
         large as the cost allows. Ritz solves the last layer, on random hidden layers or on hidden layers trained for {steps} steps \
         on batches of {batch} to capture more of the trace; NeuralEF trains all layers, with a trunk shared by the functions, and \
         ends with Rayleigh–Ritz. Landmarks are chosen by k-means++. The exact functions, with all points as landmarks, cost {exact} \
         multiply-adds."
    )
}

fn curves(found: &Results) -> String {
    let cost = "multiply-adds for a new point";
    let mut residual = Plot::new("Certified residual").x_log(cost).y_log("mean residual");
    let mut captured = Plot::new("Captured trace").x_log(cost).y("share of the trace");
    // A method that fits into one budget fits into every larger one.
    let methods = found.points.iter().max_by_key(|points| points.len()).into_iter().flatten().map(|p| p.method);
    for (i, method) in methods.enumerate() {
        let of_method: Vec<&Point> = found.points.iter().flatten().filter(|p| p.method == method).collect();
        let values = |value: fn(&Point) -> f64| of_method.iter().map(|p| value(p)).collect::<Vec<f64>>();
        let costs = values(|p| p.multiply_adds as f64);
        residual = residual.line(method, &costs, &values(|p| p.mean_residual)).markers().colour(i);
        captured = captured.line(method, &costs, &values(|p| p.captured)).markers().colour(i);
        if !of_method.iter().all(|p| p.trained) {
            residual = residual.dashed();
            captured = captured.dashed();
        }
    }
    let ends = [found.config.budgets[0] as f64, found.config.budgets[found.config.budgets.len() - 1] as f64];
    captured = captured.line("exact", &ends, &[found.exact_captured; 2]).colour(6);
    let title = format!("{} on {}: trained (solid) and untrained (dashed)", found.config.kernel, found.config.data);
    Grid::new(title, 2).panel_size(330.0, 260.0).panel(residual).panel(captured).svg()
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let (x, held_out) = data(config)?;
    let kernel = Expression::parse(&config.kernel)?.resolve(x.view(), config.seed)?;
    let context = FitContext { precision: Precision::F32, seed: config.seed, ..*context };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem { operator: &operator, k: config.k, context };
    let exact = Spectrum::fit(&Krylov::to(1e-4), &problem, Some(held_out.view().into()))?;
    let mut points = vec![];
    for &budget in &config.budgets {
        points.push(at_budget(config, budget, &problem, &held_out)?);
    }
    Ok(Results {
        config: config.clone(),
        kernel: kernel.to_string(),
        d: x.ncols(),
        exact_captured: captured(&exact),
        exact_multiply_adds: exact.multiply_adds(),
        exact: exact.eigenvalues,
        verdict: verdict(&config.budgets, &points),
        points,
    })
}

/// Points to fit `[n, d]` and to certify on `[h, d]`.
fn data(config: &Config) -> Result<(Array2<f64>, Array2<f64>)> {
    let rng = Rng::new(config.seed).fork(0x6461_7461);
    let (set, [fitted, held_out]) = two_parts(&config.data, [config.n, config.held_out], rng)?;
    Ok((set.x.select(&fitted).into_f64(), set.x.select(&held_out).into_f64()))
}

/// Scale of the weights of the first layer. The leading functions are smooth, so small weights suit both untrained and
/// trained networks.
const FIRST_WEIGHTS: f64 = 0.35;

/// Every method, as large as `budget` allows for points of `d` columns; those that cannot give k pairs are left out.
fn at_budget(config: &Config, budget: usize, problem: &Problem, held_out: &Array2<f64>) -> Result<Vec<Point>> {
    let (d, k) = (held_out.ncols(), config.k);
    // The largest h with dh + h² + hk ≤ budget; for a trunk with k heads the turn of the k functions costs k² more.
    let hidden = |budget: usize| {
        let b = (d + k) as f64;
        ((b * b + 4.0 * budget as f64).sqrt() / 2.0 - b / 2.0) as usize / 2 * 2
    };
    let (units, trunk) = (hidden(budget), hidden(budget.saturating_sub(k * k)));
    let (frequencies, landmarks) = (budget / (d + 2 * k), (budget / (d + k)).min(config.n));
    let two_layers = |h: usize, trunk_end: &str| {
        format!("dense({h}, w={FIRST_WEIGHTS}) sincos dense({h}) sincos {trunk_end} dense(1) l2norm")
    };
    let neural = |kind: Kind, architecture: String, steps: u64| -> Box<dyn Method> {
        let mut method = crate::neural(kind, Some(&architecture), steps, config.batch);
        method.settings.learning_rate = config.learning_rate;
        Box::new(method)
    };
    let nystrom = Nystrom { landmarks, choice: Landmarks::KMeansPlusPlus };
    let fourier = Fourier { features: 2 * frequencies, sampling: Sampling::Orthogonal, ritz: true };
    let neuralef = Kind::from(NeuralEf::Joint);
    let methods: [(&'static str, usize, bool, Box<dyn Method>); 6] = [
        ("Ritz, trained", units, true, neural(Ritz.into(), two_layers(units, ""), config.steps)),
        ("NeuralEF, shared trunk", trunk, true, neural(neuralef, two_layers(trunk, "|"), config.steps)),
        ("Ritz, untrained", units, false, neural(Ritz.into(), two_layers(units, ""), 0)),
        ("random Fourier features, Ritz", frequencies, false, Box::new(fourier)),
        ("Nyström", landmarks, false, Box::new(nystrom)),
        ("Nyström, Ritz", landmarks, false, Box::new(NystromRitz(nystrom))),
    ];
    let mut points = vec![];
    for (name, size, trained, method) in methods {
        let spans = if name.starts_with("random") { 2 * size } else { size };
        if spans >= k.max(2) {
            let spectrum = Spectrum::fit(method.as_ref(), problem, Some(held_out.view().into()))?;
            points.push(Point {
                method: name,
                trained,
                size,
                multiply_adds: spectrum.multiply_adds(),
                mean_residual: spectrum.certificate.mean_residual(),
                captured: captured(&spectrum),
                captured_fitted: spectrum.certificate.trace_captured,
                orthonormality: spectrum.certificate.orthonormality,
                seconds: spectrum.origin.seconds,
                residual: spectrum.certificate.residual,
            });
        }
    }
    Ok(points)
}

/// The sum of the midpoints of the held-out intervals of the eigenvalues, divided by the trace.
fn captured(spectrum: &Spectrum) -> f64 {
    let middles = spectrum.certificate.interval.iter().flatten().map(|[low, high]| 0.5 * (low + high));
    middles.sum::<f64>() / spectrum.certificate.trace
}

/// The best trained or untrained method, by the mean residual.
fn best(points: &[Point], trained: bool) -> Option<&Point> {
    let residual = |p: &&Point| p.mean_residual;
    points.iter().filter(|p| p.trained == trained).min_by(|a, b| residual(a).total_cmp(&residual(b)))
}

/// Smaller relative differences count as no difference.
const SIGNIFICANT: f64 = 0.05;

fn verdict(budgets: &[usize], points: &[Vec<Point>]) -> String {
    let (mut better, mut worse, mut details) = (vec![], vec![], vec![]);
    for (&budget, points) in budgets.iter().zip(points) {
        let (Some(trained), Some(untrained)) = (best(points, true), best(points, false)) else { continue };
        let ratio = trained.mean_residual / untrained.mean_residual;
        match ratio {
            r if r < 1.0 - SIGNIFICANT => better.push(budget),
            r if r > 1.0 + SIGNIFICANT => worse.push(budget),
            _ => {}
        }
        details.push(format!(
            "{budget} multiply-adds: {} {:.3}, {} {:.3}",
            trained.method, trained.mean_residual, untrained.method, untrained.mean_residual
        ));
    }
    let list = |budgets: &[usize]| budgets.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let (better, worse, details) = (list(&better), list(&worse), details.join("; "));
    let outcome = match (better.is_empty(), worse.is_empty()) {
        (false, true) => format!("training was better at every cost where there was a difference ({better})"),
        (false, false) => {
            format!("training was better at {better} multiply-adds for a new point and worse at {worse}")
        }
        (true, false) => format!("training was not better at any cost, and was worse at {worse}"),
        (true, true) => "training made no difference at any cost".into(),
    };
    // The smallest budget that has a trained method, and the smallest one at which an untrained method is as good as that.
    let mut all = budgets.iter().zip(points);
    let first = all.clone().find_map(|(b, p)| Some((*b, best(p, true)?.mean_residual)));
    let mut as_good = |trained: f64| all.find(|(_, p)| best(p, false).is_some_and(|p| p.mean_residual <= trained));
    let equal = match first.map(|(cost, trained)| (cost, as_good(trained).map(|(budget, _)| *budget))) {
        Some((cost, None)) => {
            format!(" No untrained method at any cost tried is as good as the best trained one at {cost}.")
        }
        Some((cost, Some(equal))) if equal > cost => {
            format!(" To be as good as the best trained one at {cost}, an untrained method needs up to {equal}.")
        }
        _ => String::new(),
    };
    format!("{outcome}.{equal} Mean held-out residual of the best trained and the best untrained method: {details}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_follows_the_numbers() {
        let point = |method, trained, mean_residual| Point { method, trained, mean_residual, ..Point::default() };
        let pair = |(trained, untrained)| vec![point("a", true, trained), point("b", false, untrained)];
        for (residuals, said) in [
            (vec![(0.1, 0.2)], "training was better at every cost"),
            (vec![(0.1, 0.2), (0.3, 0.2)], "training was better at 100 multiply-adds"),
            (vec![(0.3, 0.2)], "training was not better"),
            (vec![(0.2, 0.201)], "training made no difference"),
            (vec![(0.1, 0.2)], "100 multiply-adds: a 0.100, b 0.200"),
            (vec![(0.1, 0.2)], "No untrained method at any cost tried is as good as the best trained one at 100"),
            (vec![(0.1, 0.2), (0.1, 0.1)], "at 100, an untrained method needs up to 200"),
        ] {
            let points: Vec<Vec<Point>> = residuals.into_iter().map(pair).collect();
            let verdict = verdict(&[100, 200][..points.len()], &points);
            assert!(verdict.contains(said), "{verdict}");
        }
    }

    #[test]
    fn methods_of_equal_cost_are_compared_on_held_out_points() {
        let config = Config { budgets: vec![1500, 6000], ..Config::new(true, 0) };
        let found = run(&config, &FitContext::default()).unwrap();
        for (budget, points) in config.budgets.iter().zip(&found.points) {
            assert_eq!(points.len(), 6);
            for p in points {
                // Each method is about as large as the budget allows, and not larger.
                assert!(p.multiply_adds <= *budget, "{} costs {}", p.method, p.multiply_adds);
                assert!(p.multiply_adds > budget * 3 / 5, "{} costs {} only", p.method, p.multiply_adds);
                assert!(p.residual.iter().flatten().all(|r| r.is_finite() && *r >= 0.0));
                // No method captures more of the trace than the exact functions, up to the noise of 400 points.
                assert!(
                    p.captured < found.exact_captured + 0.01 && p.captured_fitted <= found.exact.iter().sum::<f64>()
                );
            }
        }
        let residual = |budget: usize, method: &str| {
            found.points[budget].iter().find(|p| p.method == method).unwrap().mean_residual
        };
        // With the same landmarks or networks, Rayleigh–Ritz and training improve the result, and so does a larger budget.
        for budget in [0, 1] {
            assert!(residual(budget, "Nyström, Ritz") < residual(budget, "Nyström"));
            assert!(residual(budget, "Ritz, trained") < residual(budget, "Ritz, untrained"));
        }
        for method in ["Nyström, Ritz", "random Fourier features, Ritz", "Ritz, untrained"] {
            assert!(residual(1, method) < residual(0, method), "{method}");
        }
    }

    #[test]
    fn data_that_is_too_small_is_an_error() {
        let config = Config { n: 1700, held_out: 200, ..Config::new(true, 0) };
        let error = run(&config, &FitContext::default()).err().unwrap().to_string();
        assert!(error.contains("1797") && error.contains("1900"), "{error}");
    }
}
