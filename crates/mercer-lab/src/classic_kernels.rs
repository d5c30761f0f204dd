//! A polynomial and a Gaussian kernel on the line, whose spectra are known. All methods run on the same points and are
//! compared with the exact spectrum of those points and with that of their distribution.

use super::population::Population;
use mercer::FitContext;
use mercer::kernel::Kernel;
use mercer::rng::Rng;
use mercer::spectrum::neural::Kind;
use mercer::spectrum::{Exact, Fourier, Krylov, Landmarks, Method, Nystrom, Problem, Sampling, Spectrum};
use mercer::{Error, Result};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use serde::Serialize;

/// A kernel and the interval on which the points are uniform.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Case {
    /// Name of the kernel.
    pub name: &'static str,
    /// Expression of the kernel.
    pub kernel: &'static str,
    /// The interval.
    pub interval: [f64; 2],
}

/// `(xx' + 1.5)⁴` on U[−1,1], of rank five, and `exp(−(x−x')²/2)` on U[−2,2].
pub const CASES: [Case; 2] = [
    Case { name: "polynomial", kernel: "poly(degree=4, offset=1.5)", interval: [-1.0, 1.0] },
    Case { name: "RBF", kernel: "rbf(lengthscale=1)", interval: [-2.0, 2.0] },
];

/// Sizes and seed of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Numbers of points n.
    pub sizes: Vec<usize>,
    /// Number of eigenpairs.
    pub k: usize,
    /// Batch size.
    pub batch: usize,
    /// Training steps of the networks.
    pub steps: u64,
    /// Training steps of Ritz, whose last layer is solved.
    pub ritz_steps: u64,
    /// Number of landmarks and of random features: the number of units of Ritz's last hidden layer.
    pub features: usize,
    /// Random seed.
    pub seed: u64,
}

impl Config {
    /// Ten pairs, networks with two hidden layers of 32 (half sines, half cosines), batches of 256, 2000 steps, at 64, 512 and 8192 points.
    pub fn full(seed: u64) -> Config {
        Config { sizes: vec![64, 512, 8192], k: 10, batch: 256, steps: 2000, ritz_steps: 200, features: 64, seed }
    }

    /// The same with a tenth of the steps, at 64 and 512 points.
    pub fn quick(seed: u64) -> Config {
        Config { sizes: vec![64, 512], steps: 200, ritz_steps: 20, ..Config::full(seed) }
    }

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
            trained("NeuralEF", Kind::NeuralEf { averaged: false }, self.steps),
            trained("SpIN", Kind::Spin { decay: 0.99 }, self.steps),
            trained("nested low-rank", Kind::Nested { nesting: None }, self.steps),
            trained("Ritz", Kind::Ritz, self.ritz_steps),
            untrained("Ritz, untrained", Family::Random, self.neural(Kind::Ritz, 0, true)),
            untrained("random Fourier features, Ritz", Family::Random, Box::new(fourier)),
            untrained("Nyström", Family::Landmarks, Box::new(nystrom)),
        ]
    }
}

/// How a method works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Trained networks.
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
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Kernel and interval.
    pub case: Case,
    /// Number of points.
    pub n: usize,
    /// Exact eigenvalues of the n points.
    pub of_points: Vec<f64>,
    /// Exact eigenvalues of the distribution.
    pub of_population: Vec<f64>,
    /// A grid over the interval for figures, `[g]`.
    pub grid: Vec<f64>,
    /// The exact functions of the n points on the grid, `[g, k]`.
    #[serde(skip)]
    pub exact: Array2<f64>,
    /// The results of the methods that support the kernel.
    pub attempts: Vec<Attempt>,
    /// The methods that do not support the kernel, each with the reason.
    pub unsuited: Vec<(String, String)>,
}

/// The result of one method.
#[derive(Clone, Debug, Serialize)]
pub struct Attempt {
    /// Name of the method.
    pub name: String,
    /// Kind of the method.
    pub family: Family,
    /// Training steps.
    pub steps: u64,
    /// For networks, the step whose functions were kept: the best by validation. It may be 0, the untrained functions.
    pub kept: Option<u64>,
    /// Architecture of the networks.
    pub architecture: Option<String>,
    /// `μ_j`, after Rayleigh–Ritz if the method ends with it.
    pub eigenvalues: Vec<f64>,
    /// The objective's own eigenvalues, for trained networks.
    pub raw_eigenvalues: Option<Vec<f64>>,
    /// Errors relative to the exact spectrum of the points.
    pub to_points: Errors,
    /// Errors relative to the spectrum of the distribution.
    pub to_population: Errors,
    /// Residual of each pair on held-out points.
    pub residual: Vec<Option<f64>>,
    /// Wall time of the fit.
    pub seconds: f64,
    /// Multiply-adds for one new point.
    pub multiply_adds: usize,
    /// The functions on the grid `[g, k]`, with the signs of the exact ones.
    #[serde(skip)]
    pub functions: Array2<f64>,
    /// The result with the functions of the last step, if validation kept earlier ones.
    pub last_step: Option<Box<Attempt>>,
}

/// Errors of each pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// `|μ̂_j − μ_j|/μ_j`, or `|μ̂_j|/μ_1` if `μ_j = 0`.
    pub eigenvalue: Vec<f64>,
    /// The same for the objective's own eigenvalues.
    pub raw_eigenvalue: Option<Vec<f64>>,
    /// `1 − |cos|` of the angle between ψ̂_j and ψ_j; `None` if `μ_j = 0`, 1 if ψ̂_j is missing.
    pub function: Vec<Option<f64>>,
}

/// Runs all methods on all kernels and numbers of points.
///
/// ```
/// use mercer::FitContext;
/// use mercer_lab::classic_kernels::{Config, run};
/// let config = Config { sizes: vec![40], steps: 5, ritz_steps: 1, k: 4, ..Config::quick(0) };
/// let settings = run(&config, &FitContext::default())?;
/// assert_eq!(settings.len(), 2);
/// assert_eq!(settings[1].attempts[0].to_points.eigenvalue.len(), 4);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn run(config: &Config, context: &FitContext<'_>) -> Result<Vec<Setting>> {
    let mut settings = vec![];
    for case in CASES {
        for &n in &config.sizes {
            settings.push(setting(config, case, n, context)?);
        }
    }
    Ok(settings)
}

/// Number of points of the grid.
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
    let exact = exact(&problem, &held_out)?;
    let population = Population::on_interval(&kernel, case.interval, config.k)?;
    let grid = Array2::from_shape_fn((GRID, 1), |(i, _)| a + (b - a) * i as f64 / (GRID - 1) as f64);
    let [at_points, at_grid] = [exact.transform(x.view())?, exact.transform(grid.view())?];
    let reference = Reference { x: x.view(), grid: grid.view(), exact, at_points, at_grid, population };
    let (mut attempts, mut unsuited) = (vec![], vec![]);
    for contestant in config.contestants() {
        let attempt = |method: &dyn Method| {
            reference.compare(&contestant, &Spectrum::fit(method, &problem, Some(held_out.view().into()))?)
        };
        let mut found = match attempt(contestant.method.as_ref()) {
            Ok(found) => found,
            Err(Error::Input(why)) => {
                unsuited.push((contestant.name.into(), why));
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(method) = contestant.last_step.as_deref().filter(|_| found.kept < Some(contestant.steps)) {
            found.last_step = Some(Box::new(attempt(method)?));
        }
        attempts.push(found);
    }
    let Reference { exact, at_grid, population, .. } = reference;
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

/// The exact pairs of the points: by the dense method, or above 1024 points by Krylov iteration to a small tolerance.
fn exact(problem: &Problem, held_out: &Array2<f64>) -> Result<Spectrum> {
    let method: &dyn Method = if problem.operator.n() <= 1024 { &Exact } else { &Krylov { tolerance: 1e-8 } };
    Spectrum::fit(method, problem, Some(held_out.view().into()))
}

/// The reference solution that the methods are compared with.
struct Reference<'a> {
    /// `[n, 1]`
    x: ArrayView2<'a, f64>,
    /// `[g, 1]`
    grid: ArrayView2<'a, f64>,
    exact: Spectrum,
    /// `[n, k]`
    at_points: Array2<f64>,
    /// `[g, k]`
    at_grid: Array2<f64>,
    population: Population,
}

impl Reference<'_> {
    fn compare(&self, contestant: &Contestant, found: &Spectrum) -> Result<Attempt> {
        let Population { nodes, weights, values, .. } = &self.population;
        let raw = found.training().map(|training| training.raw_eigenvalues.clone());
        let errors = |exact: &[f64], function: Vec<Option<f64>>| Errors {
            eigenvalue: eigenvalue_errors(&found.eigenvalues, exact),
            raw_eigenvalue: raw.as_ref().map(|raw| eigenvalue_errors(raw, exact)),
            function,
        };
        let ψ = found.transform(self.x)?;
        let equal = vec![1.0; ψ.nrows()];
        let to_points = function_errors(&ψ, &self.at_points, &equal, &self.exact.eigenvalues);
        let to_population =
            function_errors(&found.transform(nodes.view())?, values, weights, &self.population.eigenvalues);
        let mut functions = found.transform(self.grid)?;
        for (j, mut function) in functions.axis_iter_mut(Axis(1)).enumerate() {
            if inner(ψ.column(j), self.at_points.column(j), &equal) < 0.0 {
                function *= -1.0;
            }
        }
        Ok(Attempt {
            name: contestant.name.into(),
            family: contestant.family,
            steps: contestant.steps,
            kept: found.training().map(|training| training.kept),
            architecture: found.training().map(|training| training.architecture.clone()),
            to_points: errors(&self.exact.eigenvalues, to_points),
            to_population: errors(&self.population.eigenvalues, to_population),
            eigenvalues: found.eigenvalues.clone(),
            raw_eigenvalues: raw,
            residual: found.certificate.residual.clone(),
            seconds: found.origin.seconds,
            multiply_adds: found.multiply_adds(),
            functions,
            last_step: None,
        })
    }
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
pub const FOUND: f64 = 1e-3;

impl Attempt {
    /// Whether the method was trained, but validation kept the untrained functions.
    pub fn kept_untrained(&self) -> bool {
        self.steps > 0 && self.kept == Some(0)
    }

    /// The number of leading pairs that are correct, before the first that is not: both errors, relative to the spectrum of
    /// the points, are at most [`FOUND`]. An eigenvalue that is zero must be exactly zero.
    pub fn pairs_found(&self) -> usize {
        let Errors { eigenvalue, function, .. } = &self.to_points;
        let correct = |j: &usize| match function[*j] {
            Some(function) => eigenvalue[*j] <= FOUND && function <= FOUND,
            None => self.eigenvalues[*j] == 0.0,
        };
        (0..eigenvalue.len()).take_while(correct).count()
    }

    /// Geometric mean of the function errors relative to the points, each at least 1e-12.
    pub fn typical_function_error(&self) -> f64 {
        let logs: Vec<f64> = self.to_points.function.iter().flatten().map(|e| e.max(1e-12).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
    }
}

impl Setting {
    /// The attempts from best to worst: more pairs found, then the smaller function error.
    pub fn ranking(&self) -> Vec<&Attempt> {
        let mut ranking: Vec<&Attempt> = self.attempts.iter().collect();
        ranking.sort_by(|a, b| {
            let error = a.typical_function_error().total_cmp(&b.typical_function_error());
            b.pairs_found().cmp(&a.pairs_found()).then(error)
        });
        ranking
    }

    /// The best trained attempt and the best one with random features.
    pub fn trained_and_random(&self) -> (Option<&Attempt>, Option<&Attempt>) {
        let ranking = self.ranking();
        let best = |family: Family| ranking.iter().copied().find(|a| a.family == family);
        (best(Family::Trained), best(Family::Random))
    }

    /// Whether training was better than random features: more pairs found, or equally many and half the function error,
    /// with functions that were trained.
    pub fn training_helped(&self) -> Option<bool> {
        let (Some(trained), Some(random)) = self.trained_and_random() else { return None };
        let closer = trained.typical_function_error() < 0.5 * random.typical_function_error();
        let (a, b) = (trained.pairs_found(), random.pairs_found());
        Some(!trained.kept_untrained() && (a > b || (a == b && closer)))
    }

    /// The best method, and whether training was better than random features, in words.
    pub fn verdict(&self) -> String {
        let describe = |a: &Attempt| {
            let kept = if a.kept_untrained() { "; validation kept its untrained functions" } else { "" };
            let (pairs, error) = (a.pairs_found(), a.typical_function_error());
            format!("{} ({pairs} pairs, typical function error {error:.0e}, {:.2} s{kept})", a.name, a.seconds)
        };
        let (ranking, (trained, random)) = (self.ranking(), self.trained_and_random());
        let mut text = format!("{} at {} points: ", self.case.name, self.n);
        text += &ranking.first().map_or("no method supports it".into(), |best| format!("best was {}", describe(best)));
        if let (Some(trained), Some(random), Some(helped)) = (trained, random, self.training_helped()) {
            let outcome =
                if helped { "training beat random features" } else { "training did not beat random features" };
            text += &format!("; {outcome}: {} against {}", describe(trained), describe(random));
        }
        text
    }
}

/// The result over all settings, in words.
pub fn verdict(settings: &[Setting]) -> String {
    let mut wins: Vec<(&str, usize)> = vec![];
    for best in settings.iter().filter_map(|s| s.ranking().first().copied()) {
        match wins.iter_mut().find(|(name, _)| *name == best.name) {
            Some((_, count)) => *count += 1,
            None => wins.push((&best.name, 1)),
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
