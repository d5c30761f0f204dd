//! A polynomial and a Gaussian kernel on the line, whose spectra are known. All methods run on the same points and are
//! compared with the exact spectrum of those points and with that of their distribution.

mod figures;

use crate::population::Population;
use crate::{Options, Shown, report, sentence, table};
use figures::{SUMMARY, error_grid, errors, functions};
use mercer::kernel::Kernel;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Nested, NeuralEf, Ritz, Spin};
use mercer::spectrum::{Exact, Fourier, Krylov, Landmarks, Method, Nystrom, Problem, Sampling, Spectrum};
use mercer::{Error, FitContext, Result};
use mercer_figure::text;
use ndarray::{Array1, Array2, ArrayView1, Axis};
use serde::Serialize;
use serde_json::json;

/// A kernel and the interval on which the points are uniform.
#[derive(Clone, Copy, Serialize)]
struct Case {
    name: &'static str,
    /// Expression of the kernel.
    kernel: &'static str,
    interval: [f64; 2],
}

/// `(xx' + 1.5)⁴` on U[−1,1], of rank five, and `exp(−(x−x')²/2)` on U[−2,2].
const CASES: [Case; 2] = [
    Case { name: "polynomial", kernel: "poly(degree=4, offset=1.5)", interval: [-1.0, 1.0] },
    Case { name: "RBF", kernel: "rbf(lengthscale=1)", interval: [-2.0, 2.0] },
];

config! {
    /// Numbers of points n.
    sizes: Vec<usize> = vec![64, 512, 8192]; quick vec![64, 512],
    /// Number of eigenpairs.
    k: usize = 10,
    batch: usize = 256,
    /// Training steps of the networks, which have two hidden layers of 32 units (half sines, half cosines).
    steps: u64 = 2000; quick 200,
    /// Training steps of Ritz, whose last layer is solved.
    ritz_steps: u64 = 200; quick 20,
    /// Number of landmarks and of random features: the number of units of Ritz's last hidden layer.
    features: usize = 64,
}

impl Config {
    fn neural(&self, kind: Kind, steps: u64, keep_best: bool) -> Box<dyn Method> {
        let mut method = crate::neural(kind, None, steps, self.batch);
        method.settings.keep_best = keep_best;
        Box::new(method)
    }

    /// All methods, the trained ones first.
    fn contestants(&self) -> Vec<Contestant> {
        let trained = |name, kind, steps| Contestant {
            name,
            family: Family::Trained,
            steps,
            method: self.neural(kind, steps, true),
            last_step: Some(self.neural(kind, steps, false)),
        };
        let untrained = |name, family, method| Contestant { name, family, steps: 0, method, last_step: None };
        let fourier = Fourier { features: self.features, sampling: Sampling::Orthogonal, ritz: true };
        let nystrom = Nystrom { landmarks: self.features, choice: Landmarks::KMeansPlusPlus };
        vec![
            trained("NeuralEF", NeuralEf::Joint.into(), self.steps),
            trained("SpIN", Spin::default().into(), self.steps),
            trained("nested low-rank", Nested::default().into(), self.steps),
            trained("Ritz", Ritz.into(), self.ritz_steps),
            untrained("Ritz, untrained", Family::Random, self.neural(Ritz.into(), 0, true)),
            untrained("random Fourier features, Ritz", Family::Random, Box::new(fourier)),
            untrained("Nyström", Family::Landmarks, Box::new(nystrom)),
        ]
    }
}

/// How a method works.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Family {
    Trained,
    /// Random features that are not trained, followed by Rayleigh–Ritz.
    Random,
    /// Kernel values at landmarks.
    Landmarks,
}

struct Contestant {
    name: &'static str,
    family: Family,
    steps: u64,
    method: Box<dyn Method>,
    /// The same training, but the functions of the last step are used, not the best ones.
    last_step: Option<Box<dyn Method>>,
}

/// The results of all methods for one kernel and one number of points.
#[derive(Serialize)]
struct Setting {
    case: Case,
    n: usize,
    /// Exact eigenvalues of the n points.
    of_points: Vec<f64>,
    of_population: Vec<f64>,
    /// A grid over the interval for figures, `[g]`.
    grid: Vec<f64>,
    /// The exact functions of the n points on the grid, `[g, k]`.
    #[serde(skip)]
    exact: Array2<f64>,
    attempts: Vec<Attempt>,
    /// The methods that do not support the kernel, each with the reason.
    unsuited: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
struct Attempt {
    name: &'static str,
    family: Family,
    steps: u64,
    /// For networks, the step whose functions were kept: the best by validation. It may be 0, the untrained functions.
    kept: Option<u64>,
    architecture: Option<String>,
    /// `μ_j`, after Rayleigh–Ritz if the method ends with it.
    eigenvalues: Vec<f64>,
    /// The objective's own eigenvalues, for trained networks.
    raw_eigenvalues: Option<Vec<f64>>,
    /// Errors relative to the exact spectrum of the points.
    to_points: Errors,
    to_population: Errors,
    /// Residual of each pair on held-out points.
    residual: Vec<Option<f64>>,
    seconds: f64,
    /// Multiply-adds for one new point.
    multiply_adds: usize,
    /// The functions on the grid `[g, k]`, with the signs of the exact ones.
    #[serde(skip)]
    functions: Array2<f64>,
    /// The result with the functions of the last step, if validation kept earlier ones.
    last_step: Option<Box<Attempt>>,
}

#[derive(Serialize)]
struct Errors {
    /// `|μ̂_j − μ_j|/μ_j`, or `|μ̂_j|/μ_1` if `μ_j = 0`.
    eigenvalue: Vec<f64>,
    /// The same for the objective's own eigenvalues.
    raw_eigenvalue: Option<Vec<f64>>,
    /// `1 − |cos|` of the angle between ψ̂_j and ψ_j; `None` if `μ_j = 0`, 1 if ψ̂_j is missing.
    function: Vec<Option<f64>>,
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Vec<Setting>> {
    let settings = CASES.iter().flat_map(|case| config.sizes.iter().map(move |n| (*case, *n)));
    settings.map(|(case, n)| setting(config, case, n, context)).collect()
}

const GRID: usize = 161;
/// Number of held-out points for the certificate.
const HELD_OUT: usize = 1024;

fn setting(config: &Config, case: Case, n: usize, context: &FitContext<'_>) -> Result<Setting> {
    let kernel = Kernel::parse(case.kernel)?;
    let [a, b] = case.interval;
    let mut rng = Rng::new(config.seed).fork(n as u64);
    let mut draw = |n: usize| Array2::from_shape_simple_fn((n, 1), || a + (b - a) * rng.uniform());
    let (x, held_out) = (draw(n), draw(HELD_OUT));
    let context = FitContext { seed: config.seed, ..*context };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem { operator: &operator, k: config.k, context };
    // The exact pairs of the points: by the dense method, or above 1024 points by Krylov iteration to a small tolerance.
    let method: &dyn Method = if n <= 1024 { &Exact } else { &Krylov::to(1e-8) };
    let exact = Spectrum::fit(method, &problem, Some(held_out.view().into()))?;
    let population = Population::on_interval(&kernel, case.interval, config.k)?;
    let grid = Array2::from_shape_fn((GRID, 1), |(i, _)| a + (b - a) * i as f64 / (GRID - 1) as f64);
    let [at_points, at_grid] = [exact.transform(x.view())?, exact.transform(grid.view())?];
    let equal = vec![1.0; n];
    let attempt = |contestant: &Contestant, method: &dyn Method| -> Result<Attempt> {
        let found = Spectrum::fit(method, &problem, Some(held_out.view().into()))?;
        let [ψ, at_nodes] = [found.transform(x.view())?, found.transform(population.nodes.view())?];
        let mut functions = found.transform(grid.view())?;
        for (j, mut function) in functions.axis_iter_mut(Axis(1)).enumerate() {
            if inner(ψ.column(j), at_points.column(j), &equal) < 0.0 {
                function *= -1.0;
            }
        }
        let training = found.training();
        let raw = training.map(|training| training.raw_eigenvalues.clone());
        let errors = |exact: &[f64], function: Vec<Option<f64>>| Errors {
            eigenvalue: eigenvalue_errors(&found.eigenvalues, exact),
            raw_eigenvalue: raw.as_ref().map(|raw| eigenvalue_errors(raw, exact)),
            function,
        };
        let of_population = &population.eigenvalues;
        let to_points = function_errors(&ψ, &at_points, &equal, &exact.eigenvalues);
        let to_population = function_errors(&at_nodes, &population.values, &population.weights, of_population);
        Ok(Attempt {
            name: contestant.name,
            family: contestant.family,
            steps: contestant.steps,
            kept: training.map(|training| training.kept),
            architecture: training.map(|training| training.architecture.clone()),
            to_points: errors(&exact.eigenvalues, to_points),
            to_population: errors(of_population, to_population),
            multiply_adds: found.multiply_adds(),
            eigenvalues: found.eigenvalues.clone(),
            raw_eigenvalues: raw,
            residual: found.certificate.residual.clone(),
            seconds: found.origin.seconds,
            functions,
            last_step: None,
        })
    };
    let (mut attempts, mut unsuited) = (vec![], vec![]);
    for contestant in config.contestants() {
        let mut found = match attempt(&contestant, contestant.method.as_ref()) {
            Ok(found) => found,
            Err(Error::Input(why)) => {
                unsuited.push((contestant.name, why));
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(method) = contestant.last_step.as_deref().filter(|_| found.kept < Some(contestant.steps)) {
            found.last_step = Some(Box::new(attempt(&contestant, method)?));
        }
        attempts.push(found);
    }
    Ok(Setting {
        case,
        n,
        of_points: exact.eigenvalues,
        of_population: population.eigenvalues,
        grid: grid.into_iter().collect(),
        exact: at_grid,
        attempts,
        unsuited,
    })
}

fn eigenvalue_errors(found: &[f64], exact: &[f64]) -> Vec<f64> {
    let scale = |μ: f64| if μ > 0.0 { μ } else { exact[0] };
    exact.iter().enumerate().map(|(j, &μ)| (found.get(j).unwrap_or(&0.0) - μ).abs() / scale(μ)).collect()
}

/// `Σ_i w_i a_i b_i`.
fn inner(a: ArrayView1<f64>, b: ArrayView1<f64>, w: &[f64]) -> f64 {
    a.iter().zip(b).zip(w).map(|((a, b), w)| w * a * b).sum()
}

/// `1 − |⟨ψ̂_j,ψ_j⟩|/(‖ψ̂_j‖‖ψ_j‖)`, written as `½‖ψ̂_j/‖ψ̂_j‖ ∓ ψ_j/‖ψ_j‖‖²` so that small angles are not lost to
/// rounding; functions `[m, k]` under weights `w` `[m]`.
fn function_errors(found: &Array2<f64>, exact: &Array2<f64>, w: &[f64], μ: &[f64]) -> Vec<Option<f64>> {
    let error = |j: usize| {
        let (f, e) = (found.column(j), exact.column(j));
        let norms = (inner(f, f, w).sqrt(), inner(e, e, w).sqrt());
        if norms.0 == 0.0 {
            return 1.0;
        }
        let sign = inner(f, e, w).signum();
        let difference: Array1<f64> = &f / norms.0 - &e * (sign / norms.1);
        0.5 * inner(difference.view(), difference.view(), w)
    };
    (0..μ.len()).map(|j| (μ[j] > 0.0).then(|| error(j))).collect()
}

/// Largest error, in eigenvalue and in function, at which a pair counts as found.
const FOUND: f64 = 1e-3;

impl Attempt {
    /// Whether the method was trained, but validation kept the untrained functions.
    fn kept_untrained(&self) -> bool {
        self.steps > 0 && self.kept == Some(0)
    }

    /// The number of leading pairs that are correct, before the first that is not: both errors, relative to the spectrum of
    /// the points, are at most [`FOUND`]. An eigenvalue that is zero must be exactly zero.
    fn pairs_found(&self) -> usize {
        let Errors { eigenvalue, function, .. } = &self.to_points;
        let correct = |j: &usize| match function[*j] {
            Some(function) => eigenvalue[*j] <= FOUND && function <= FOUND,
            None => self.eigenvalues[*j] == 0.0,
        };
        (0..eigenvalue.len()).take_while(correct).count()
    }

    /// Geometric mean of the function errors relative to the points, each at least 1e-12.
    fn typical_function_error(&self) -> f64 {
        let logs: Vec<f64> = self.to_points.function.iter().flatten().map(|e| e.max(1e-12).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
    }
}

impl Setting {
    /// The attempts from best to worst: more pairs found, then the smaller function error.
    fn ranking(&self) -> Vec<&Attempt> {
        let mut ranking: Vec<&Attempt> = self.attempts.iter().collect();
        ranking.sort_by(|a, b| {
            let error = a.typical_function_error().total_cmp(&b.typical_function_error());
            b.pairs_found().cmp(&a.pairs_found()).then(error)
        });
        ranking
    }

    /// The best trained attempt and the best one with random features.
    fn trained_and_random(&self) -> Option<(&Attempt, &Attempt)> {
        let ranking = self.ranking();
        let best = |family: Family| ranking.iter().copied().find(|a| a.family == family);
        best(Family::Trained).zip(best(Family::Random))
    }

    /// Whether training was better than random features: more pairs found, or equally many and half the function error,
    /// with functions that were trained.
    fn training_helped(&self) -> Option<bool> {
        let (trained, random) = self.trained_and_random()?;
        let closer = trained.typical_function_error() < 0.5 * random.typical_function_error();
        let (a, b) = (trained.pairs_found(), random.pairs_found());
        Some(!trained.kept_untrained() && (a > b || (a == b && closer)))
    }

    fn title(&self) -> String {
        format!("{}, n = {}", self.case.name, self.n)
    }

    /// The best method, and whether training was better than random features, in words.
    fn verdict(&self) -> String {
        let describe = |a: &Attempt| {
            let kept = if a.kept_untrained() { "; validation kept its untrained functions" } else { "" };
            let (pairs, error) = (a.pairs_found(), a.typical_function_error());
            format!("{} ({pairs} pairs, typical function error {error:.0e}, {:.2} s{kept})", a.name, a.seconds)
        };
        let best = self.ranking().first().map(|best| format!("best was {}", describe(best)));
        let mut text = format!("{} at {} points: ", self.case.name, self.n);
        text += &best.unwrap_or("no method supports it".into());
        if let (Some((trained, random)), Some(helped)) = (self.trained_and_random(), self.training_helped()) {
            let outcome = if helped { "beat" } else { "did not beat" };
            let (trained, random) = (describe(trained), describe(random));
            text += &format!("; training {outcome} random features: {trained} against {random}");
        }
        text
    }
}

fn verdict(settings: &[Setting]) -> String {
    let mut wins: Vec<(&str, usize)> = vec![];
    for best in settings.iter().filter_map(|s| s.ranking().first().copied()) {
        match wins.iter_mut().find(|(name, _)| *name == best.name) {
            Some((_, count)) => *count += 1,
            None => wins.push((best.name, 1)),
        }
    }
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let wins: Vec<String> = wins.iter().map(|(name, count)| format!("{name} in {count}")).collect();
    let judged: Vec<bool> = settings.iter().filter_map(Setting::training_helped).collect();
    let helped = judged.iter().filter(|helped| **helped).count();
    format!(
        "of {} settings the best method was {}; training beat random features with a solved last layer in {helped} of {}",
        settings.len(),
        wins.join(", "),
        judged.len()
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let settings = run(&config, context)?;
    let verdict = verdict(&settings);
    let title = "Function error of each pair, against the exact functions of the points";
    let figure = error_grid(title, &settings, |a, j| a.to_points.function[j].map(|e| e.max(1e-16)));
    let mut report = report("Classic kernels by all methods", &verdict, &description(&config))
        .section("Results")
        .text(&settings.iter().map(|s| sentence(&s.verdict())).collect::<Vec<_>>().join("\n\n"))
        .figure(&figure, "1 − |cos| of the angle between the function found and the exact one of the same points. Values below 1e-16 are drawn at 1e-16. Dotted: the functions of the last training step, if validation kept earlier ones.")
        .figure(
            &error_grid("Eigenvalue error of each pair", &settings, |a, j| Some(a.to_points.eigenvalue[j])),
            "Relative to the exact eigenvalue of the same points; if that is zero, relative to the largest eigenvalue.",
        );
    let mut text = String::new();
    for setting in &settings {
        let summary = table(setting.ranking(), &SUMMARY);
        text += &format!("{}\n{}\n", setting.title(), summary.text());
        report = report
            .section(&setting.title())
            .table(summary.highest(3).lowest(5).lowest(7).lowest(8).caption(
                "Best first. The residual is measured on held-out points; multiply-adds are for one new point.",
            ))
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
    Ok(Shown { figure, report, text: text + &sentence(&verdict) + "\n", numbers })
}

fn description(config: &Config) -> String {
    let sizes = config.sizes.iter().map(|n| text::grouped(*n)).collect::<Vec<String>>().join(", ");
    let [steps, ritz_steps] = [config.steps, config.ritz_steps].map(|steps| text::grouped(steps as usize));
    let Config { k, batch, features, .. } = config;
    format!(
        "The polynomial kernel (xx' + 1.5)⁴ on U[−1,1], of rank five, and the RBF exp(−(x−x')²/2) on U[−2,2], each at {sizes} \
         random points; {k} pairs. NeuralEF, SpIN and nested low-rank have one network per function, with two hidden layers \
         of 32 units (half sines, half cosines), trained by Adam at 1e-3 (cosine) on batches of {batch} for {steps} steps; their raw \
         eigenvalues are those of the objective at the end. Ritz has one network, whose last layer is solved and not \
         trained; it has {ritz_steps} steps. All networks start at the weight scale that validation prefers, end with Rayleigh–Ritz \
         over all points, and keep the functions of the best validation. The column \"kept\" gives the step of these functions; \
         0 means that training made them worse. The functions of the last step are shown too. There are {features} random features or \
         landmarks, as many as Ritz has units in its last hidden layer.\n\nA pair counts as found if its eigenvalue and its \
         function are both within {FOUND:.0e} of the exact ones of the same points, and all pairs before it are found; a zero \
         eigenvalue must be found as exactly zero."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_measured_against_both_spectra() {
        let settings = run(&Config { sizes: vec![300], ..Config::new(true, 1) }, &FitContext::default()).unwrap();
        let [poly, rbf] = &settings[..] else { panic!("two kernels") };

        // The spectrum of 300 random points differs by a few percent from that of the distribution. A method that solves for the
        // points is close to the first and far from the second.
        let nystrom = rbf.attempts.iter().find(|a| a.family == Family::Landmarks).unwrap();
        assert!(nystrom.pairs_found() >= 8 && nystrom.to_points.eigenvalue[0] < 1e-8);
        assert!(nystrom.to_population.eigenvalue[0] > 1e-4 && nystrom.to_population.eigenvalue[0] < 0.2);
        assert!((rbf.of_population[0] - 0.5212157).abs() < 1e-7);

        // Random features with Rayleigh–Ritz find most of the spectrum without training.
        let (trained, random) = rbf.trained_and_random().unwrap();
        assert!(random.pairs_found() >= 6);
        assert!(trained.steps > 0 && trained.pairs_found() >= 2);

        // The kernel has rank five, so ten pairs are found only if the other eigenvalues are exactly zero.
        assert!(poly.of_points[4] > 0.0 && poly.of_points[5] == 0.0);
        for attempt in &poly.attempts {
            assert!(attempt.to_points.function[..5].iter().all(Option::is_some));
            assert!(attempt.eigenvalues[5..].iter().all(|μ| *μ == 0.0), "{}: {:?}", attempt.name, attempt.eigenvalues);
            assert_eq!(attempt.pairs_found() > 5, attempt.pairs_found() == 10, "{}", attempt.name);
        }
        assert!(poly.unsuited.iter().any(|(name, why)| name.contains("Fourier") && why.contains("poly")));

        // Figures show the functions that were measured.
        for setting in &settings {
            for attempt in &setting.attempts {
                assert_eq!(attempt.functions.dim(), setting.exact.dim());
                // If the function is right on the points, its curve agrees with the exact one, with the same sign and scale.
                for j in (0..10).filter(|j| attempt.to_points.function[*j].is_some_and(|e| e < 1e-6)) {
                    let gap = &attempt.functions.column(j) - &setting.exact.column(j);
                    let worst = gap.iter().fold(0.0f64, |worst, g| worst.max(g.abs()));
                    assert!(worst < 0.05, "{} {} ψ_{}: {worst}", setting.case.name, attempt.name, j + 1);
                }
            }
            let ranking = setting.ranking();
            let best = format!("best was {}", ranking[0].name);
            assert!(setting.verdict().contains(&best), "{}", setting.verdict());
            assert!(ranking.windows(2).all(|w| w[0].pairs_found() >= w[1].pairs_found()));
        }
    }
}
