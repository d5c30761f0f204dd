//! When training pays off: the leading pairs of a kernel on real data, by trained networks, random features and landmarks
//! of equal inference cost.
//!
//! The cost of a new point is the number of multiply-adds: `m(d+k)` for m landmarks, `M(d+2k)` for M random frequencies,
//! `dh + h² + hk` for a network with two hidden layers of h units. For each cost, every method is made as large as the cost
//! allows, and its pairs are certified on held-out points.

use mercer::FitContext;
use mercer::data::{ReadOptions, catalogue, open};
use mercer::kernel::Expression;
use mercer::operator::Precision;
use mercer::rng::Rng;
use mercer::spectrum::neural::Kind;
use mercer::spectrum::{Fourier, Krylov, Landmarks, Method, Nystrom, NystromRitz, Problem, Sampling, Spectrum};
use mercer::{Error, Result};
use ndarray::Array2;
use serde::Serialize;

/// Data, kernel, sizes and seed of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Name of the data set.
    pub data: String,
    /// Expression of the kernel.
    pub kernel: String,
    /// Number of points that are fitted.
    pub n: usize,
    /// Number of held-out points for the certificate.
    pub held_out: usize,
    /// Number of eigenpairs.
    pub k: usize,
    /// The costs: largest numbers of multiply-adds for a new point.
    pub budgets: Vec<usize>,
    /// Training steps.
    pub steps: u64,
    /// Batch size.
    pub batch: usize,
    /// Largest learning rate.
    pub learning_rate: f64,
    /// Random seed.
    pub seed: u64,
}

impl Config {
    /// Ten pairs of an RBF on MNIST, or on the embedded digits if `$MERCER_DATA` has no MNIST.
    pub fn full(seed: u64) -> Config {
        let mnist = catalogue().iter().any(|entry| entry.name == "mnist" && entry.present);
        let (data, n, budgets) = if mnist {
            ("mnist", 8192, vec![10_000, 20_000, 40_000, 80_000, 160_000])
        } else {
            ("digits", 1397, vec![1000, 2000, 4000, 8000, 16_000])
        };
        Config {
            data: data.into(),
            kernel: "rbf(lengthscale=median)".into(),
            n,
            held_out: if mnist { 2000 } else { 400 },
            k: 10,
            budgets,
            steps: 1000,
            batch: 512,
            learning_rate: 3e-3,
            seed,
        }
    }

    /// A small experiment: the embedded digits, three costs and a few steps.
    pub fn quick(seed: u64) -> Config {
        let budgets = vec![1500, 4000, 10_000];
        Config { data: "digits".into(), n: 1000, held_out: 400, budgets, steps: 150, ..Config::full(seed) }
    }
}

/// The result of one method at one cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Name of the method.
    pub method: &'static str,
    /// Whether it is trained.
    pub trained: bool,
    /// Number of hidden units, frequencies or landmarks.
    pub size: usize,
    /// Multiply-adds for a new point.
    pub multiply_adds: usize,
    /// Residual of each pair on held-out points; `None` if the eigenvalue is zero.
    pub residual: Vec<Option<f64>>,
    /// The mean of `min(1, residual)`; a missing pair counts as 1.
    pub mean_residual: f64,
    /// `Σ_j ⟨ψ_j,Kψ_j⟩/⟨ψ_j,ψ_j⟩` over the trace, estimated on the held-out points.
    pub captured: f64,
    /// `Σ_j μ_j` over the trace.
    pub captured_fitted: f64,
    /// `max_ij |⟨ψ_i,ψ_j⟩ − δ_ij|` on held-out points.
    pub orthonormality: f64,
    /// Seconds of the fit.
    pub seconds: f64,
}

/// The result of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The configuration.
    #[serde(rename = "plan")]
    pub config: Config,
    /// The kernel with numerical parameters.
    pub kernel: String,
    /// Number of columns of the data.
    pub d: usize,
    /// Exact eigenvalues of the fitted points.
    pub exact: Vec<f64>,
    /// The share of the trace that the exact pairs of the fitted points capture on the held-out points.
    pub exact_captured: f64,
    /// Multiply-adds of the exact functions for a new point.
    pub exact_multiply_adds: usize,
    /// For each budget, the results of the methods that fit into it.
    pub points: Vec<Vec<Point>>,
    /// The result in words.
    pub verdict: String,
}

/// Runs every method at every cost.
pub fn run(config: &Config, context: &FitContext<'_>) -> Result<Report> {
    let (x, held_out) = data(config)?;
    let kernel = Expression::parse(&config.kernel)?.resolve(x.view(), config.seed)?;
    let context = FitContext { precision: Precision::F32, seed: config.seed, ..*context };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem { operator: &operator, k: config.k, context };
    let exact = Spectrum::fit(&Krylov { tolerance: 1e-4 }, &problem, Some(held_out.view().into()))?;
    let mut points = vec![];
    for &budget in &config.budgets {
        points.push(at_budget(config, budget, &problem, &held_out)?);
    }
    Ok(Report {
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
    let x = open(&config.data, &ReadOptions::default())?.x;
    let wanted = config.n + config.held_out;
    if x.n() < wanted {
        let (name, n) = (&config.data, x.n());
        return Err(Error::input(format!("{name} has {n} points, and {wanted} are needed to fit and to certify")));
    }
    let rows = Rng::new(config.seed).fork(0x6461_7461).sample(x.n(), wanted);
    let part = |rows: &[usize]| x.select(rows).into_f64();
    Ok((part(&rows[..config.n]), part(&rows[config.n..])))
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
    let neuralef = Kind::NeuralEf { averaged: false };
    let methods: [(&'static str, usize, bool, Box<dyn Method>); 6] = [
        ("Ritz, trained", units, true, neural(Kind::Ritz, two_layers(units, ""), config.steps)),
        ("NeuralEF, shared trunk", trunk, true, neural(neuralef, two_layers(trunk, "|"), config.steps)),
        ("Ritz, untrained", units, false, neural(Kind::Ritz, two_layers(units, ""), 0)),
        ("random Fourier features, Ritz", frequencies, false, Box::new(fourier)),
        ("Nyström", landmarks, false, Box::new(nystrom)),
        ("Nyström, Ritz", landmarks, false, Box::new(NystromRitz(nystrom))),
    ];
    let mut points = vec![];
    for (name, size, trained, method) in methods {
        let spans = if name.starts_with("random") { 2 * size } else { size };
        if spans >= k.max(2) {
            let spectrum = Spectrum::fit(method.as_ref(), problem, Some(held_out.view().into()))?;
            points.push(Point::new(name, trained, size, &spectrum));
        }
    }
    Ok(points)
}

impl Point {
    fn new(method: &'static str, trained: bool, size: usize, spectrum: &Spectrum) -> Point {
        let certificate = &spectrum.certificate;
        let residual = certificate.residual.clone();
        let capped = residual.iter().map(|r| r.map_or(1.0, |r| r.min(1.0)));
        Point {
            method,
            trained,
            size,
            multiply_adds: spectrum.multiply_adds(),
            mean_residual: capped.sum::<f64>() / residual.len() as f64,
            residual,
            captured: captured(spectrum),
            captured_fitted: certificate.trace_captured,
            orthonormality: certificate.orthonormality,
            seconds: spectrum.origin.seconds,
        }
    }
}

/// The sum of the midpoints of the held-out intervals of the eigenvalues, divided by the trace.
fn captured(spectrum: &Spectrum) -> f64 {
    let middles = spectrum.certificate.interval.iter().flatten().map(|[low, high]| 0.5 * (low + high));
    middles.sum::<f64>() / spectrum.certificate.trace
}

/// The best trained or untrained method, by the mean residual.
pub fn best(points: &[Point], trained: bool) -> Option<&Point> {
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
    let outcome = match (better.is_empty(), worse.is_empty()) {
        (false, true) => {
            format!("training was better at every cost where there was a difference ({})", list(&better))
        }
        (false, false) => format!(
            "training was better at {} multiply-adds for a new point and worse at {}",
            list(&better),
            list(&worse)
        ),
        (true, false) => format!("training was not better at any cost, and was worse at {}", list(&worse)),
        (true, true) => "training made no difference at any cost".into(),
    };
    let outcome = match untrained_equal(budgets, points) {
        Some((cost, None)) => {
            format!("{outcome}. No untrained method at any cost tried is as good as the best trained one at {cost}")
        }
        Some((cost, Some(equal))) if equal > cost => {
            format!(
                "{outcome}. To be as good as the best trained one at {cost}, an untrained method needs up to {equal}"
            )
        }
        _ => outcome,
    };
    format!(
        "{outcome}. Mean held-out residual of the best trained and the best untrained method: {}",
        details.join("; ")
    )
}

/// The smallest budget that has a trained method, and the smallest one at which an untrained method is as good as that.
fn untrained_equal(budgets: &[usize], points: &[Vec<Point>]) -> Option<(usize, Option<usize>)> {
    let mut all = budgets.iter().zip(points);
    let (cost, trained) = all.clone().find_map(|(b, p)| Some((*b, best(p, true)?.mean_residual)))?;
    let equal = all.find(|(_, p)| best(p, false).is_some_and(|p| p.mean_residual <= trained));
    Some((cost, equal.map(|(budget, _)| *budget)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(method: &'static str, trained: bool, mean_residual: f64) -> Point {
        Point {
            method,
            trained,
            size: 10,
            multiply_adds: 100,
            residual: vec![Some(mean_residual)],
            mean_residual,
            captured: 0.5,
            captured_fitted: 0.5,
            orthonormality: 0.0,
            seconds: 1.0,
        }
    }

    #[test]
    fn the_verdict_follows_the_numbers() {
        let pair = |trained, untrained| vec![point("a", true, trained), point("b", false, untrained)];
        let say = |points: &[Vec<Point>]| verdict(&[100, 200][..points.len()], points);
        assert!(say(&[pair(0.1, 0.2)]).starts_with("training was better at every cost"));
        assert!(say(&[pair(0.1, 0.2), pair(0.3, 0.2)]).starts_with("training was better at 100 multiply-adds"));
        assert!(say(&[pair(0.3, 0.2)]).starts_with("training was not better"));
        assert!(say(&[pair(0.2, 0.201)]).starts_with("training made no difference"));
        assert!(say(&[pair(0.1, 0.2)]).ends_with("100 multiply-adds: a 0.100, b 0.200"));
        assert!(
            say(&[pair(0.1, 0.2)])
                .contains("No untrained method at any cost tried is as good as the best trained one at 100")
        );
        assert!(say(&[pair(0.1, 0.2), pair(0.1, 0.1)]).contains("at 100, an untrained method needs up to 200"));
    }
}
