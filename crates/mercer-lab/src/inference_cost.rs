//! Where training earns its keep: the leading pairs of a kernel on real data, by trained networks, random features and
//! landmarks of equal inference cost.
//!
//! A new point costs a certain number of multiply-adds: `m(d+k)` for m landmarks, `M(d+2k)` for M random frequencies,
//! `dh + h² + hk` for a network with two hidden layers of h units. For a range of costs, every method is as large as it
//! may be, and its pairs are certified on points that it has not seen.

use mercer::FitContext;
use mercer::data::{ReadOptions, Scaler, Scaling, catalogue, open};
use mercer::kernel::Expression;
use mercer::operator::Precision;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Neural};
use mercer::spectrum::{Fourier, Krylov, Landmarks, Method, Nystrom, NystromRitz, Problem, Sampling, Spectrum};
use mercer::{Error, Result};
use ndarray::{Array2, Axis};
use serde::Serialize;

/// What is run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Name of the data.
    pub data: String,
    /// Whether columns are standardised.
    pub standardise: bool,
    /// Expression of the kernel.
    pub kernel: String,
    /// Points that are fitted.
    pub n: usize,
    /// Points that certify.
    pub held_out: usize,
    /// Pairs.
    pub k: usize,
    /// Most multiply-adds for a new point, one for each place on the curves.
    pub budgets: Vec<usize>,
    /// Training steps.
    pub steps: u64,
    /// Points of a batch.
    pub batch: usize,
    /// Largest learning rate.
    pub learning_rate: f64,
    /// Seed of everything random.
    pub seed: u64,
}

impl Plan {
    /// Ten pairs of an RBF on MNIST, or on the embedded digits where `$MERCER_DATA` has no MNIST.
    pub fn full(seed: u64) -> Plan {
        let mnist = catalogue().iter().any(|entry| entry.name == "mnist" && entry.present);
        let (data, n, budgets) = if mnist {
            ("mnist", 8192, vec![10_000, 20_000, 40_000, 80_000, 160_000])
        } else {
            ("digits", 1397, vec![1000, 2000, 4000, 8000, 16_000])
        };
        Plan {
            data: data.into(),
            standardise: false,
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

    /// The embedded digits, three costs and a few steps.
    pub fn quick(seed: u64) -> Plan {
        let budgets = vec![1500, 4000, 10_000];
        Plan { data: "digits".into(), n: 1000, held_out: 400, budgets, steps: 150, ..Plan::full(seed) }
    }
}

/// What a method found at a cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The method.
    pub method: &'static str,
    /// Whether it was trained.
    pub trained: bool,
    /// Hidden units, frequencies or landmarks.
    pub size: usize,
    /// Multiply-adds for a new point.
    pub multiply_adds: usize,
    /// Residual of each pair on held-out points; None where the eigenvalue is zero.
    pub residual: Vec<Option<f64>>,
    /// The mean of `min(1, residual)`, a missing pair counting as one.
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

/// The curves and what they say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was run.
    pub plan: Plan,
    /// The kernel, its parameters numbers.
    pub kernel: String,
    /// Columns of the data.
    pub d: usize,
    /// Exact eigenvalues of the fitted points.
    pub exact: Vec<f64>,
    /// The share of the trace that the exact pairs of the fitted points capture on the held-out points.
    pub exact_captured: f64,
    /// Multiply-adds of the exact functions.
    pub exact_multiply_adds: usize,
    /// For each budget, every method that fits into it.
    pub points: Vec<Vec<Point>>,
    /// What it shows, in words.
    pub verdict: String,
}

/// Runs every method at every cost.
pub fn run(plan: &Plan, context: &FitContext<'_>) -> Result<Report> {
    let (x, held_out) = data(plan)?;
    let kernel = Expression::parse(&plan.kernel)?.resolve(x.view(), plan.seed)?;
    let context = FitContext { precision: Precision::F32, seed: plan.seed, ..*context };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem { operator: &operator, k: plan.k, context };
    let exact = Spectrum::fit(&Krylov { tolerance: 1e-4 }, &problem, Some(held_out.view().into()))?;
    let mut points = vec![];
    for &budget in &plan.budgets {
        points.push(at_budget(plan, budget, &problem, &held_out)?);
    }
    Ok(Report {
        plan: plan.clone(),
        kernel: kernel.to_string(),
        d: x.ncols(),
        exact_captured: captured(&exact),
        exact_multiply_adds: exact.multiply_adds(),
        exact: exact.eigenvalues,
        verdict: verdict(&plan.budgets, &points),
        points,
    })
}

/// Points to fit `[n, d]` and to certify on `[h, d]`.
fn data(plan: &Plan) -> Result<(Array2<f64>, Array2<f64>)> {
    let x = open(&plan.data, &ReadOptions::default())?.x;
    let wanted = plan.n + plan.held_out;
    if x.nrows() < wanted {
        let (name, n) = (&plan.data, x.nrows());
        return Err(Error::input(format!("{name} has {n} points, and {wanted} are needed to fit and to certify")));
    }
    let rows = Rng::new(plan.seed).fork(0x6461_7461).sample(x.nrows(), wanted);
    let part = |rows: &[usize]| x.select(Axis(0), rows);
    let (fitted, held_out) = (part(&rows[..plan.n]), part(&rows[plan.n..]));
    if !plan.standardise {
        return Ok((fitted, held_out));
    }
    let scaler = Scaler::fit(Scaling::Standard, fitted.view())?;
    Ok((scaler.apply(fitted.view())?, scaler.apply(held_out.view())?))
}

/// Scale of the networks' first weights: the leading functions are smooth, and small weights serve the untrained networks
/// as they do the trained ones.
const FIRST_WEIGHTS: f64 = 0.35;

/// Every method, as large as `budget` allows for points of `d` columns; those that cannot give k pairs are left out.
fn at_budget(plan: &Plan, budget: usize, problem: &Problem, held_out: &Array2<f64>) -> Result<Vec<Point>> {
    let (d, k) = (held_out.ncols(), plan.k);
    // The largest h with dh + h² + hk ≤ budget; for a trunk with k heads the turn of the k functions costs k² more.
    let hidden = |budget: usize| {
        let b = (d + k) as f64;
        ((b * b + 4.0 * budget as f64).sqrt() / 2.0 - b / 2.0) as usize / 2 * 2
    };
    let (units, trunk) = (hidden(budget), hidden(budget.saturating_sub(k * k)));
    let (frequencies, landmarks) = (budget / (d + 2 * k), (budget / (d + k)).min(plan.n));
    let two_layers =
        |h: usize, bar: &str| format!("dense({h}, w={FIRST_WEIGHTS}) sincos dense({h}) sincos {bar} dense(1) l2norm");
    let neural = |kind: Kind, architecture: String, steps: u64| -> Box<dyn Method> {
        let mut method = Neural::new(kind);
        method.architecture = Some(architecture);
        let settings = &mut method.settings;
        (settings.steps, settings.batch, settings.learning_rate) = (steps, plan.batch, plan.learning_rate);
        settings.patience = usize::MAX;
        Box::new(method)
    };
    let nystrom = Nystrom { landmarks, choice: Landmarks::KMeansPlusPlus };
    let fourier = Fourier { features: 2 * frequencies, sampling: Sampling::Orthogonal, ritz: true };
    let neuralef = Kind::NeuralEf { averaged: false };
    let methods: [(&'static str, usize, bool, Box<dyn Method>); 6] = [
        ("Ritz, trained", units, true, neural(Kind::Ritz, two_layers(units, ""), plan.steps)),
        ("NeuralEF, shared trunk", trunk, true, neural(neuralef, two_layers(trunk, "|"), plan.steps)),
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

/// The middles of the held-out intervals of the eigenvalues, over the trace.
fn captured(spectrum: &Spectrum) -> f64 {
    let middles = spectrum.certificate.interval.iter().flatten().map(|[low, high]| 0.5 * (low + high));
    middles.sum::<f64>() / spectrum.certificate.trace
}

/// The best of the trained and of the untrained, by the mean residual.
pub fn best(points: &[Point], trained: bool) -> Option<&Point> {
    let residual = |p: &&Point| p.mean_residual;
    points.iter().filter(|p| p.trained == trained).min_by(|a, b| residual(a).total_cmp(&residual(b)))
}

/// A difference below this share says nothing.
const CLEAR: f64 = 0.05;

fn verdict(budgets: &[usize], points: &[Vec<Point>]) -> String {
    let (mut won, mut lost, mut told) = (vec![], vec![], vec![]);
    for (&budget, points) in budgets.iter().zip(points) {
        let (Some(trained), Some(untrained)) = (best(points, true), best(points, false)) else { continue };
        let ratio = trained.mean_residual / untrained.mean_residual;
        match ratio {
            r if r < 1.0 - CLEAR => won.push(budget),
            r if r > 1.0 + CLEAR => lost.push(budget),
            _ => {}
        }
        told.push(format!(
            "{budget} multiply-adds: {} {:.3}, {} {:.3}",
            trained.method, trained.mean_residual, untrained.method, untrained.mean_residual
        ));
    }
    let listed = |budgets: &[usize]| budgets.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let outcome = match (won.is_empty(), lost.is_empty()) {
        (false, true) => {
            format!("training earned its keep at every cost where there was a difference ({})", listed(&won))
        }
        (false, false) => format!(
            "training earned its keep at {} multiply-adds for a new point and did not at {}",
            listed(&won),
            listed(&lost)
        ),
        (true, false) => format!("training did not earn its keep at any cost, and was worse at {}", listed(&lost)),
        (true, true) => "training made no difference at any cost".into(),
    };
    let outcome = match untrained_equal(budgets, points) {
        Some((cost, None)) => {
            format!("{outcome}. No untrained method at any cost tried is as good as the trained at {cost}")
        }
        Some((cost, Some(equal))) if equal > cost => {
            format!("{outcome}. To be as good as the trained at {cost}, an untrained method needs up to {equal}")
        }
        _ => outcome,
    };
    format!("{outcome}. Mean held-out residual of the best trained and the best untrained method: {}", told.join("; "))
}

/// The smallest budget with a trained method, and the smallest at which an untrained one is as good as it is there.
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
    fn the_verdict_follows_the_figures() {
        let pair = |trained, untrained| vec![point("a", true, trained), point("b", false, untrained)];
        let say = |points: &[Vec<Point>]| verdict(&[100, 200][..points.len()], points);
        assert!(say(&[pair(0.1, 0.2)]).starts_with("training earned its keep at every cost"));
        assert!(say(&[pair(0.1, 0.2), pair(0.3, 0.2)]).starts_with("training earned its keep at 100 multiply-adds"));
        assert!(say(&[pair(0.3, 0.2)]).starts_with("training did not earn its keep"));
        assert!(say(&[pair(0.2, 0.201)]).starts_with("training made no difference"));
        assert!(say(&[pair(0.1, 0.2)]).ends_with("100 multiply-adds: a 0.100, b 0.200"));
        assert!(
            say(&[pair(0.1, 0.2)]).contains("No untrained method at any cost tried is as good as the trained at 100")
        );
        assert!(say(&[pair(0.1, 0.2), pair(0.1, 0.1)]).contains("at 100, an untrained method needs up to 200"));
    }
}
