//! What kernels cannot learn from few examples, and networks can: functions of few hidden directions.
//!
//! `f*(x) = g(Ux)` with `U: R^d → R^r`, r ≪ d, g a polynomial of degree p, x standard normal. Kernels that know nothing of U need
//! `n ~ d^p` examples. A network whose first layer makes one step of gradient descent finds span U, if the average Hessian of f*
//! has rank r, and needs `n ~ d²r + d r^p`. A recursive feature machine is a kernel that learns a metric; theory says nothing of it here.

mod figures;
mod targets;
mod two_step;

use crate::chosen_ridge::chosen_ridge;
use crate::statistics::{Interval, Line, least_cosine};
use crate::{Findings, Options, Shown, table};
use mercer::apply::{Alpha, Fit, MetricForm, Predict, RecursiveFeatureMachine};
use mercer::data::Target;
use mercer::kernel::Expression;
use mercer::linalg::eigh;
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::text;
use ndarray::{Array2, ArrayView2, s};
use serde::Serialize;
use serde_json::json;
use targets::{Hidden, Link};
use two_step::TwoStep;

config! {
    /// Dimensions d, for two hidden directions.
    dimensions: Vec<usize> = vec![6, 9, 13, 18]; quick vec![4, 6]; published vec![8, 12, 18, 27, 40],
    /// Numbers r of hidden directions, at the dimension `at_dimension`.
    ranks: Vec<usize> = vec![1, 4]; quick vec![1]; published vec![1, 3, 6],
    at_dimension: usize = 13; quick 6; published 27,
    /// The largest number of examples of kernels, and of networks.
    most_kernel: usize = 4096; quick 256; published 16_384,
    most_network: usize = 16_384; quick 1024; published 131_072,
    /// The same of recursive feature machines.
    most_machine: usize = 2048; quick 128; published 4096,
    /// Hidden units of the networks.
    width: usize = 600; quick 100; published 2000,
    /// Draws of target and examples.
    runs: usize = 3; quick 2; published 5,
}

/// Hidden directions, where their number is not varied.
const RANK: usize = 2;
/// The smallest number of examples.
const FIRST: usize = 16;
/// A target is learnt when the error is this share of its variance. The part of degree two of a cubic target has one half.
const LEARNT: f64 = 0.25;
/// Test points.
const TEST: usize = 1000;
/// Ridges of kernels that are tried, on a fifth of the examples.
const RIDGES: [f64; 3] = [1e-6, 1e-2, 1.0];

/// Who learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Learner {
    Rbf,
    Ntk,
    /// The recursive feature machine: kernel ridge regression under a metric that it learns.
    Machine,
    Network,
}

impl Learner {
    const ALL: [Learner; 4] = [Learner::Rbf, Learner::Ntk, Learner::Machine, Learner::Network];

    fn name(self) -> &'static str {
        match self {
            Learner::Rbf => "RBF kernel",
            Learner::Ntk => "NTK",
            Learner::Machine => "feature machine",
            Learner::Network => "two-step network",
        }
    }

    fn most(self, config: &Config) -> usize {
        match self {
            Learner::Rbf | Learner::Ntk => config.most_kernel,
            Learner::Machine => config.most_machine,
            Learner::Network => config.most_network,
        }
    }

    /// The test error over the variance of the target, and the cosine of the largest angle between span U and what the learner found of
    /// it, where it looks for it.
    fn error(
        self,
        sample: &Sample,
        config: &Config,
        context: &FitContext,
        rng: &mut Rng,
    ) -> Result<(f64, Option<f64>)> {
        let Sample { target, x, y, new, truth } = sample;
        let ridge = |kernel: &str| Ok((chosen_ridge(kernel, &RIDGES, x.view(), y, new.view(), context)?, None));
        let (predicted, found) = match self {
            Learner::Rbf => ridge("rbf(lengthscale=median)"),
            Learner::Ntk => ridge("ntk(depth=1, act=relu, w_var=2, b_var=0.5)"),
            Learner::Machine => machine(target, x.view(), y, new.view(), context),
            Learner::Network => {
                let net = TwoStep::fit(x.view(), y, config.width, rng)?;
                Ok((net.predict(new.view()).to_vec(), Some(net.recovered(target.u.view())?)))
            }
        }?;
        let squares: f64 = predicted.iter().zip(truth).map(|(p, t)| (p - t).powi(2)).sum();
        Ok((squares / truth.iter().map(|t| t * t).sum::<f64>(), found))
    }
}

/// Rounds of the recursive feature machine.
const ROUNDS: usize = 4;

/// Predictions of a recursive feature machine, and the cosine between span U and the r leading directions of its metric.
fn machine(
    target: &Hidden,
    x: ArrayView2<f64>,
    y: &[f64],
    new: ArrayView2<f64>,
    context: &FitContext,
) -> Result<(Vec<f64>, Option<f64>)> {
    let machine = RecursiveFeatureMachine {
        metric: Some(MetricForm::Full),
        rounds: Some(ROUNDS),
        alpha: Alpha::Fixed(1e-2),
        ..RecursiveFeatureMachine::new(Expression::parse("rbf(lengthscale=median)")?)
    };
    let context = FitContext { progress: &mercer::Silent, ..*context };
    let fitted = machine.fit(x, &Target::Values(y.to_vec()), &context)?;
    let (_, directions) = eigh(context.device, fitted.metric().view())?;
    let cosine = least_cosine(target.u.view(), directions.slice(s![.., ..target.u.nrows()]))?;
    Ok((fitted.scores(new)?.column(0).to_vec(), Some(cosine)))
}

/// Examples of a target, and test points with its values.
struct Sample {
    target: Hidden,
    x: Array2<f64>,
    y: Vec<f64>,
    new: Array2<f64>,
    truth: Vec<f64>,
}

/// One target, dimension and learner.
#[derive(Serialize)]
struct Curve {
    link: Link,
    d: usize,
    r: usize,
    learner: Learner,
    n: Vec<usize>,
    /// Errors by n and run.
    errors: Vec<Vec<f64>>,
    /// The cosine between span U and what the learner found of it, by n.
    recovered: Vec<Option<f64>>,
}

impl Curve {
    /// The number of examples at which the error of run i falls below [`LEARNT`]: between two numbers, by a line in their logarithms.
    fn needed(&self, run: usize) -> Option<f64> {
        let error = |i: usize| self.errors[i][run].ln();
        let after = (0..self.n.len()).find(|&i| error(i) <= LEARNT.ln())?;
        let at = |i: usize| (self.n[i] as f64).ln();
        if after == 0 {
            return Some(at(0).exp());
        }
        let share = (error(after - 1) - LEARNT.ln()) / (error(after - 1) - error(after));
        Some((at(after - 1) + share * (at(after) - at(after - 1))).exp())
    }

    /// Over all runs, if all get there.
    fn all_needed(&self) -> Option<Vec<f64>> {
        (0..self.errors[0].len()).map(|run| self.needed(run)).collect()
    }

    fn means(&self) -> Vec<f64> {
        self.errors.iter().map(|e| e.iter().sum::<f64>() / e.len() as f64).collect()
    }

    /// With the most examples.
    fn last_recovered(&self) -> Option<f64> {
        self.recovered.last().copied().flatten()
    }

    fn examples(&self) -> Vec<f64> {
        self.n.iter().map(|n| *n as f64).collect()
    }
}

/// Doubles n until the error is far below [`LEARNT`] or n is at its largest.
fn curve(link: Link, d: usize, r: usize, learner: Learner, config: &Config, context: &FitContext) -> Result<Curve> {
    let mut curve = Curve { link, d, r, learner, n: vec![], errors: vec![], recovered: vec![] };
    let mut n = FIRST;
    while n <= learner.most(config) {
        let mut found = vec![];
        for run in 0..config.runs {
            let rng = Rng::new(config.seed).fork(run as u64).fork((d * 100 + r * 10 + link.degree()) as u64);
            let target = Hidden::draw(link, d, r, &mut rng.fork(1))?;
            let (x, y) = target.sample(n, &mut rng.fork(2));
            let (new, truth) = target.sample(TEST, &mut rng.fork(3));
            found.push(learner.error(&Sample { target, x, y, new, truth }, config, context, &mut rng.fork(4))?);
        }
        curve.n.push(n);
        curve.errors.push(found.iter().map(|f| f.0).collect());
        let cosines: Option<Vec<f64>> = found.iter().map(|f| f.1).collect();
        curve.recovered.push(cosines.map(|c| c.iter().sum::<f64>() / c.len() as f64));
        if found.iter().all(|f| f.0 < 0.3 * LEARNT) {
            break;
        }
        n *= 2;
    }
    Ok(curve)
}

/// The exponent of the number of examples in d.
#[derive(Serialize)]
struct Exponent {
    link: Link,
    learner: Learner,
    measured: Option<Interval>,
    /// Dimensions at which all runs got there.
    dimensions: Vec<usize>,
    /// None where theory says nothing.
    predicted: Option<usize>,
}

struct Results {
    /// By dimension, for both links that can be learnt.
    curves: Vec<Curve>,
    exponents: Vec<Exponent>,
    /// By the number of hidden directions.
    ranks: Vec<Curve>,
    degenerate: Vec<Curve>,
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let mut plan = vec![];
    for link in [Link::Quadratic, Link::Cubic] {
        plan.extend(config.dimensions.iter().flat_map(|d| Learner::ALL.map(|learner| (link, *d, RANK, learner))));
    }
    let by_dimension = plan.len();
    let ranks =
        config.ranks.iter().flat_map(|r| Learner::ALL.map(|learner| (Link::Cubic, config.at_dimension, *r, learner)));
    plan.extend(ranks);
    let with_ranks = plan.len();
    plan.extend(Learner::ALL.map(|learner| (Link::Degenerate, config.at_dimension, RANK, learner)));
    let mut curves = vec![];
    for (i, &(link, d, r, learner)) in plan.iter().enumerate() {
        context.progress.step("feature-learning", i, plan.len(), &format!("{}, d = {d}", learner.name()));
        curves.push(curve(link, d, r, learner, config, context)?);
    }
    let degenerate = curves.split_off(with_ranks);
    let ranks = curves.split_off(by_dimension);
    let exponents =
        [Link::Quadratic, Link::Cubic].into_iter().flat_map(|link| Learner::ALL.map(|learner| (link, learner)));
    let exponents = exponents.map(|(link, learner)| exponent(link, learner, &curves)).collect();
    Ok(Results { curves, exponents, ranks, degenerate })
}

fn exponent(link: Link, learner: Learner, curves: &[Curve]) -> Exponent {
    let of = curves.iter().filter(|c| c.link == link && c.learner == learner);
    let reached: Vec<(usize, Vec<f64>)> = of.filter_map(|c| Some((c.d, c.all_needed()?))).collect();
    let dimensions: Vec<usize> = reached.iter().map(|(d, _)| *d).collect();
    let d: Vec<f64> = dimensions.iter().map(|d| *d as f64).collect();
    let measured = (d.len() > 1).then(|| {
        let slope = |run: usize| Line::power(&d, &reached.iter().map(|(_, n)| n[run]).collect::<Vec<f64>>()).slope;
        Interval::of(&(0..reached[0].1.len()).map(slope).collect::<Vec<f64>>())
    });
    // n ~ d^p for kernels; d²r + d r^p for the network.
    let predicted = match learner {
        Learner::Rbf | Learner::Ntk => Some(link.degree()),
        Learner::Machine => None,
        Learner::Network => Some(2),
    };
    Exponent { link, learner, measured, dimensions, predicted }
}

fn needed_text(curve: &Curve) -> String {
    match curve.all_needed() {
        Some(needed) => Interval::of(&needed).text(),
        None => format!("above {}", text::grouped(curve.n.last().copied().unwrap_or(0))),
    }
}

const EXPECTATION: &str = "kernels need n ~ d^p examples, whatever r is; the two-step network n ~ d²r + d r^p: the same power of d at p = 2, and a \
     lower one at p = 3. Its first layer finds span U. Where the average Hessian is zero (h₃ alone), the step finds nothing, and the \
     network is no better than its random features.";

fn observation(found: &Results) -> String {
    let exponents = found.exponents.iter().map(|e| {
        let measured = e.measured.map_or("not measured".into(), |m| m.text());
        let predicted = e.predicted.map_or("nothing predicted".into(), |p| format!("predicted {p}"));
        let held = match (e.measured, e.predicted) {
            (Some(m), Some(p)) if m.holds(p as f64) => ", agrees",
            (Some(m), Some(p)) if m.mean < p as f64 => ", lower",
            (Some(_), Some(_)) => ", higher",
            _ => "",
        };
        format!("{} for the {} on {} ({predicted}{held})", measured, e.learner.name(), e.link.name())
    });
    let degenerate = found.degenerate.iter().find(|c| c.learner == Learner::Network);
    let (n, error, cosine) = degenerate.map_or((0, f64::NAN, f64::NAN), |c| {
        let last = c.n.len() - 1;
        (c.n[last], c.means()[last], c.last_recovered().unwrap_or(0.0))
    });
    let least = |learner: Learner| {
        let of = found.curves.iter().filter(|c| c.learner == learner && c.link == Link::Cubic);
        of.filter_map(Curve::last_recovered).fold(1.0, f64::min)
    };
    let (network, machine) = (least(Learner::Network), least(Learner::Machine));
    let largest = found.curves.iter().map(|c| c.d).max().unwrap_or(0);
    let needed = Learner::ALL.map(|learner| {
        let of = found.curves.iter().find(|c| c.link == Link::Cubic && c.learner == learner && c.d == largest);
        format!("the {} {}", learner.name(), of.map_or(text::GAP.into(), needed_text))
    });
    let needed = needed.join(", ");
    format!(
        "the exponents of n in d are {}. At d = {largest}, h₂ + h₃ takes this many examples: {needed}. With the most examples, the cosine between span U and what the network found is at least {network:.2} \
         for h₂ + h₃, and {machine:.2} for the feature machine. For h₃ alone it is {cosine:.2} with {} examples, where the network's error is still {error:.2} of the variance.",
        exponents.collect::<Vec<_>>().join("; "),
        text::grouped(n)
    )
}

fn verdict(found: &Results) -> String {
    let of = |learner: Learner| {
        let e = found.exponents.iter().find(|e| e.link == Link::Cubic && e.learner == learner);
        e.and_then(|e| e.measured).map_or("an unknown power".into(), |m| m.text())
    };
    format!(
        "to learn a cubic function of two hidden directions, the RBF kernel needs n ~ d^({}), the NTK d^({}), the recursive feature machine \
         d^({}) and the two-step network d^({})",
        of(Learner::Rbf),
        of(Learner::Ntk),
        of(Learner::Machine),
        of(Learner::Network)
    )
}

fn setting(config: &Config) -> String {
    format!(
        "Targets g(Ux) of {RANK} hidden directions (others where it is said), g a sum of Hermite polynomials of each, with variance one; \
         standard normal inputs, no noise; {} draws. The network has {} hidden units and is trained in two steps: symmetric start, linear \
         part removed, one step on W with η₁ = √d and λ₁ = 1/η₁, biases drawn from N(0, 1), ridge regression of the head. Kernels: ridge \
         regression. The recursive feature machine: {ROUNDS} rounds of an RBF with a full metric, \
         with the ridge 0.01. The other ridges are chosen on a fifth of the examples. A target is learnt at {LEARNT} of its variance; n between two \
         sizes by a line in the logarithms. ± is a 95 % interval over draws.",
        config.runs, config.width
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let figure = figures::errors(&found);
    let (setting, observation, verdict) = (setting(&config), observation(&found), verdict(&found));
    let title = "What kernels cannot learn from few examples";
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let columns: [crate::Column<Curve>; 6] = [
        ("target", |c| c.link.name().into()),
        ("d", |c| c.d.to_string()),
        ("r", |c| c.r.to_string()),
        ("learner", |c| c.learner.name().into()),
        ("examples needed", needed_text),
        ("cosine to span U", |c| c.last_recovered().map_or(text::GAP.into(), |cosine| format!("{cosine:.3}"))),
    ];
    let needed = table(found.curves.iter().chain(&found.ranks).chain(&found.degenerate), &columns);
    let exponents = table(
        &found.exponents,
        &[
            ("target", |e| e.link.name().into()),
            ("learner", |e| e.learner.name().into()),
            ("exponent of d", |e| e.measured.map_or(text::GAP.into(), |m| m.text())),
            ("predicted", |e| e.predicted.map_or(text::GAP.into(), |p| p.to_string())),
            ("at d", |e| e.dimensions.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", ")),
        ],
    );
    let text = findings.text(&[&exponents, &needed]);
    let report = findings
        .report(&[
            "f*(x) = g(Ux):  n ~ d^p for kernels,  n ~ d^2 r + d r^p for the network",
            "W^{(1)} = −η_1 ∇_W L,  ∇_{w_j} L = −2 a_j H w_j/√(2π) + O(√r/d),  H = E ∇^2 f*",
        ])
        .section("Errors")
        .figure(&figure, "Means over draws; the variance of the target is 1.")
        .section("Examples needed")
        .table(exponents)
        .figure(&figures::needed(&found, &config), "Left: examples at which a quarter of the variance is left, and the predicted powers (dashed). Middle: the cosine of the largest angle between span U and the leading directions of the first layer. Right: the target that violates Assumption 2.")
        .table(needed);
    let numbers = json!({
        "plan": config, "curves": found.curves, "ranks": found.ranks, "degenerate": found.degenerate,
        "exponents": found.exponents, "verdict": findings.verdict,
    });
    Ok(Shown { figure, report, numbers, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_needed_are_interpolated() {
        let curve = |errors: Vec<f64>| Curve {
            link: Link::Cubic,
            d: 3,
            r: 1,
            learner: Learner::Rbf,
            n: vec![100, 200, 400],
            errors: errors.into_iter().map(|e| vec![e]).collect(),
            recovered: vec![None; 3],
        };
        // The error falls like n^{−2} between 200 and 400: it is 1/4 at 200·√2.
        assert!((curve(vec![1.0, 0.5, 0.125]).needed(0).unwrap() - 200.0 * 2f64.sqrt()).abs() < 1e-9);
        assert_eq!(curve(vec![1.0, 0.9, 0.8]).all_needed(), None);
        assert!((curve(vec![0.1, 0.1, 0.1]).needed(0).unwrap() - 100.0).abs() < 1e-9);
    }
}
