//! Gaussian-process regression on features: time linear in the number of points.

use crate::apply::features::feature_map::{FeatureFunctions, FeatureMap, Map};
use crate::apply::features::ridge_head::BLOCK;
use crate::apply::process::gaussian_process::{moments, notes, numbers, positive, scaled};
use crate::apply::search::automatic::linear_scale;
use crate::apply::search::lbfgs::minimise;
use crate::apply::search::tuning::LEAST_NOISE;
use crate::apply::targets::Encoding;
use crate::apply::traits::{fields, not_kept, posterior_of_numbers, saved};
use crate::apply::{
    Criterion, Fit, FittedProcess, LeftOut, Likelihood, Predict, Process, ProcessTask, SearchEnd, Tuning, check_points,
};
use crate::context::ONE_STEP;
use crate::data::Target;
use crate::kernel::{Expression, Kernel};
use crate::linalg::{eigh, matmul};
use crate::operator::Precision;
use crate::options::{Caps, Entry, Kind, Opt, Options};
use crate::rng::Rng;
use crate::spectrum::{Landmarks, Origin, Sampling, add_gram};
use crate::{Error, FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};
use std::f64::consts::TAU;
use std::time::Instant;

/// Rows that are predicted from all the others, at most.
pub(crate) const MOST_LEFT_OUT: usize = 2000;

/// Landmarks, random features and eigenfunctions by default.
const LANDMARKS: usize = 1000;
const RANDOM: usize = 2000;
const EIGENFUNCTIONS: usize = 200;

static RANK: Opt = Opt::new(
    "rank",
    "N",
    Kind::Count(1),
    "nystrom: landmarks [default: 1000]; random-features: features [default: 2000]; spectrum: eigenfunctions [default: 200]; \
           cg: rank of the preconditioner [default: 4√n, 500 at least, up to four times that where it helps]",
)
.also(&["landmarks", "features"]);

/// Features that stand for the kernel of a [`FeatureProcess`]. Example: [`FeatureProcess`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFeatures {
    /// Nyström's, of so many landmarks (inducing points) among the fitted points.
    Landmarks(usize),
    /// So many random Fourier features, an even number.
    Random(usize),
    /// So many leading eigenfunctions.
    Eigenfunctions(usize),
    /// The columns of the points themselves, for the kernel `linear`: no approximation. With the values of S sampled functions as columns, the
    /// kernel is that of the functions, `FᵀF/S`.
    Columns,
}

impl ProcessFeatures {
    /// Number of features, or rank of the preconditioner of a process without them.
    pub(crate) const RANK: &'static Opt = &RANK;

    fn of(self, kernel: Kernel, n: usize) -> Result<FeatureMap> {
        Ok(match self {
            ProcessFeatures::Landmarks(m) => {
                FeatureMap::Nystrom { kernel, landmarks: m.min(n), choice: Landmarks::KMeansPlusPlus }
            }
            ProcessFeatures::Random(features) => {
                FeatureMap::Random { kernel, features, sampling: Sampling::Orthogonal }
            }
            ProcessFeatures::Eigenfunctions(pairs) => FeatureMap::Eigenfunctions { kernel, pairs: pairs.min(n) },
            ProcessFeatures::Columns => {
                let scale = linear_scale(&kernel).ok_or_else(|| {
                    Error::input(format!("columns are the features of the kernel linear, not of {kernel}"))
                })?;
                FeatureMap::Linear { scale }
            }
        })
    }
}

/// Gaussian-process regression on p features with `φ(x)·φ(x') ≈ κ(x,x')`, for any number of points: one pass over them, in time `O(n p²)` and memory
/// `O(p²)`.
///
/// Lengthscales are those of the largest marginal likelihood on some rows ([`Tuning`]). The amplitude c of the kernel and the noise
/// σ² are found again on all rows, by the largest lower bound of the marginal likelihood (Titsias),
///
/// `log N(y; m, cΦΦᵀ + σ²I) − (c/2σ²) Σ_i (κ(x_i,x_i) − ‖φ(x_i)‖²)`,
///
/// and the variance of a prediction is `c(κ(x,x) − ‖φ(x)‖²) + c φ(x)(I + cΦᵀΦ/σ²)⁻¹φ(x)ᵀ`: what the features leave out of the kernel is uncertain as
/// it was before the data.
///
/// ```
/// use mercer::apply::{FeatureProcess, Fit, Predict, ProcessFeatures};
/// use mercer::{FitContext, data::Target, kernel::Expression};
/// let x = ndarray::Array2::from_shape_fn((3000, 1), |(i, _)| i as f64 / 500.0);
/// let y = Target::Values(x.iter().enumerate().map(|(i, x)| x.sin() + 0.1 * ((i * 37 % 11) as f64 / 5.0 - 1.0)).collect());
/// let mut process = FeatureProcess::new(Expression::parse("rbf(lengthscale=auto)")?, ProcessFeatures::Landmarks(40));
/// process.tuning.rows = 200;
/// let fitted = process.fit(x.view(), &y, &FitContext::default())?;
/// let new = ndarray::array![[2.22], [30.0]];
/// assert!((fitted.scores(new.view())?[[0, 0]] - 2.22f64.sin()).abs() < 0.02);
/// let deviations = fitted.deviations(new.view())?.unwrap();
/// assert!((deviations[0] - 0.06).abs() < 0.01 && deviations[1] > 0.3); // the noise alone, and far from the points
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureProcess {
    /// κ, with numbers, `median`, `auto` or `ard` for its lengthscales.
    pub kernel: Expression,
    /// φ
    pub features: ProcessFeatures,
    /// How hyper-parameters are found.
    pub tuning: Tuning,
}

impl FeatureProcess {
    /// With lengthscales by the marginal likelihood, from three starts and 2000 rows at most.
    pub fn new(kernel: Expression, features: ProcessFeatures) -> Self {
        FeatureProcess { kernel, features, tuning: Tuning { criterion: Criterion::Likelihood, ..Tuning::default() } }
    }

    pub(crate) fn entries() -> [Entry<ProcessTask>; 3] {
        let entry = |name, about, build: fn(&mut Options, &ProcessTask) -> Result<Process>| Entry {
            can: Caps { numbers: true, ..Caps::default() },
            ..Entry::<ProcessTask>::new(name, about, [&[&RANK][..], &Tuning::OPTIONS].concat(), build)
        };
        let nystrom =
            entry("nystrom", "On features of landmark points (inducing points); time grows like n", |o, task| {
                FeatureProcess::of_landmarks(o, task, &format!("{} rows", task.n))
            });
        let random = entry("random-features", "On random Fourier features; for shift-invariant kernels", |o, task| {
            let count = o.take(&RANK)?.unwrap_or(RANDOM);
            let why = format!("method random-features: {count} features stand for the kernel");
            FeatureProcess::built(ProcessFeatures::Random(count), o, task, why)
        });
        let spectrum = entry("spectrum", "On the leading eigenfunctions", |o, task| {
            let count = o.take(&RANK)?.unwrap_or(EIGENFUNCTIONS).min(task.n);
            let why = format!("method spectrum: {count} eigenfunctions stand for the kernel");
            FeatureProcess::built(ProcessFeatures::Eigenfunctions(count), o, task, why)
        });
        [nystrom, Entry { aliases: &["rff"], ..random }, spectrum]
    }

    /// On landmarks, and why.
    pub(crate) fn of_landmarks(o: &mut Options, task: &ProcessTask, why: &str) -> Result<Process> {
        let count = o.take(&RANK)?.unwrap_or(LANDMARKS).min(task.n);
        let why = format!("method nystrom: {why}; {count} {landmarks}", landmarks = crate::advice!(Landmarks));
        FeatureProcess::built(ProcessFeatures::Landmarks(count), o, task, why)
    }

    /// On sampled functions, of which there are no more than rows.
    pub(crate) fn of_columns(o: &mut Options, task: &ProcessTask) -> Result<Process> {
        let ProcessTask { n, d, .. } = task;
        let why = format!("method linear: {n} rows are more than the {d} functions, each of which has a weight");
        FeatureProcess::built(ProcessFeatures::Columns, o, task, why)
    }

    fn built(features: ProcessFeatures, o: &mut Options, task: &ProcessTask, why: String) -> Result<Process> {
        let usual = FeatureProcess::new(task.kernel.clone(), features);
        let tuning = usual.tuning.with_options(o)?;
        Ok(Process::new(FeatureProcess { tuning, ..usual }, why))
    }
}

/// The posterior, ready to predict. Example: [`FeatureProcess`].
pub struct FittedFeatureProcess {
    /// σ²
    pub noise: f64,
    /// The lower bound of `log p(y)`; of random features, whose kernel is not below κ, `log p(y)` under their own kernel, which is no bound.
    pub bound: f64,
    /// How the search for hyper-parameters ended.
    pub search: SearchEnd,
    /// For some fitted rows: the row, and the mean and the standard deviation of its target given all others. A file does not keep them.
    pub left_out: Vec<(usize, [f64; 2])>,
    kernel: Kernel,
    notes: Vec<String>,
    /// The mean.
    functions: FeatureFunctions,
    /// r
    directions: usize,
    /// R `[p, r]` with `Var[f(x)|y] = κ(x,x) − ‖φ(x)R‖²`.
    explained: Array2<f64>,
}

impl Fit for FeatureProcess {
    type Target = Target;
    type Fitted = FittedFeatureProcess;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedFeatureProcess> {
        let start = Instant::now();
        check_points(x)?;
        let context = &FitContext { precision: Precision::F64, ..*context };
        let values = numbers(y, x.nrows(), concat!("use ", crate::advice!(Logistic)))?;
        let (mean, variance) = moments(values)?;
        let found = self.tuning.best(&self.kernel, x, y, context)?;
        // A request to end early was about the search; the posterior is computed.
        let interrupted = context.keeps_best().cut_short();
        let kernel = scaled(found.kernel.clone(), variance);
        let map_of_kernel = self.features.of(kernel.clone(), x.nrows())?;
        let map = map_of_kernel.prepare(x, 1, context)?;
        let y: Array1<f64> = values.iter().map(|y| y - mean).collect();
        let data = Data { map: &map, x, y: &y, kernel: &kernel, context };
        let sums = Sums::new(&data)?;
        let (c, noise) = sums.best((1.0, found.noise * variance), variance)?;
        let posterior = sums.posterior(c, noise);
        let left_out = sums.left_out(&data, c, noise)?;
        let left_out = left_out.into_iter().map(|(row, [f, deviation])| (row, [f + mean, deviation])).collect();
        let extension = map.functions(posterior, x.ncols(), context)?;
        let (weights, explained) = extension.coefficients.view().split_at(Axis(1), 1);
        let (weights, explained) = (weights.to_owned(), explained.to_owned());
        let kernel = scaled(kernel, c);
        let origin = Origin::new(map_of_kernel.name(), &kernel, x.dim(), context, start);
        let functions = FeatureFunctions {
            origin,
            encoding: Encoding::Values,
            functions: crate::operator::Extension { coefficients: weights, ..extension },
            offset: Array1::from_elem(1, mean),
        };
        Ok(FittedFeatureProcess {
            noise,
            bound: -sums.loss(c, noise).0,
            search: SearchEnd::new(&found, variance),
            left_out,
            notes: notes(&found, interrupted),
            kernel,
            functions,
            directions: explained.ncols(),
            explained,
        })
    }
}

/// Points `x` `[n, d]` with centred targets `y` `[n]`, and the features for them.
struct Data<'a> {
    map: &'a Map,
    x: ArrayView2<'a, f64>,
    y: &'a Array1<f64>,
    kernel: &'a Kernel,
    context: &'a FitContext<'a>,
}

impl Data<'_> {
    /// φ `[b, p]` at some rows of the points, and what it leaves out of `κ(x,x)` `[b]`, zero at least.
    fn features(&self, x: Array2<f64>) -> Result<(Array2<f64>, Array1<f64>)> {
        let prior = self.kernel.diagonal(x.view());
        let phi = self.map.at(x)?;
        let rest = (prior - phi.map_axis(Axis(1), |row| row.dot(&row))).mapv(|v| v.max(0.0));
        Ok((phi, rest))
    }
}

/// What the posterior needs of all rows: `ΦᵀΦ = QΛQᵀ` and sums.
struct Sums {
    n: f64,
    /// `[r]`
    λ: Array1<f64>,
    /// `[p, r]`
    q: Array2<f64>,
    /// `QᵀΦᵀy` `[r]`
    z: Array1<f64>,
    /// `yᵀy`
    yy: f64,
    /// `Σ_i (κ(x_i,x_i) − ‖φ(x_i)‖²)`, zero at least.
    rest: f64,
}

impl Sums {
    fn new(data: &Data) -> Result<Sums> {
        let (Data { x, y, context, .. }, n) = (data, data.x.nrows());
        let mut sums: Option<(Array2<f64>, Array2<f64>, Array1<f64>)> = None;
        let mut rest = 0.0;
        for start in (0..n).step_by(BLOCK) {
            let rows = start..n.min(start + BLOCK);
            let (phi, left) = data.features(x.slice(s![rows.clone(), ..]).to_owned())?;
            let p = phi.ncols();
            let (gram, product, cross) =
                sums.get_or_insert_with(|| (Array2::zeros((p, p)), Array2::zeros((p, p)), Array1::zeros(p)));
            add_gram(gram, product, phi.view());
            *cross += &phi.t().dot(&y.slice(s![rows.clone()]));
            rest += left.sum();
            context.progress.step("gaussian process on features", rows.end, n, "");
        }
        let (gram, product, cross) = sums.expect("there are rows");
        drop(product);
        context.progress.step("eigendecomposition", 0, 1, ONE_STEP);
        let (λ, q) = eigh(context.device, gram.view())?;
        let λ: Array1<f64> = λ.into_iter().map(|λ| λ.max(0.0)).collect();
        let z = q.t().dot(&cross);
        Ok(Sums { n: n as f64, λ, q, z, yy: y.dot(*y), rest })
    }

    /// The negative lower bound, and its derivatives by the logarithms of c and σ²:
    ///
    /// `½[n log 2π + (n−r) log σ² + Σ_j log(cλ_j + σ²) + (yᵀy − Σ_j c z_j²/(cλ_j + σ²))/σ² + c·rest/σ²]`
    fn loss(&self, c: f64, noise: f64) -> (f64, [f64; 2]) {
        let Sums { n, λ, z, yy, rest, .. } = self;
        let free = n - λ.len() as f64;
        let mut loss = n * TAU.ln() + free * noise.ln() + (yy + c * rest) / noise;
        let mut by_c = rest / noise;
        let mut by_noise = free / noise - (yy + c * rest) / (noise * noise);
        for (λ, z) in λ.iter().zip(z) {
            let (a, zz) = (c * λ + noise, z * z);
            loss += a.ln() - c * zz / (a * noise);
            by_c += λ / a - zz / (a * a);
            by_noise += 1.0 / a + c * zz * (a + noise) / (a * a * noise * noise);
        }
        (0.5 * loss, [0.5 * c * by_c, 0.5 * noise * by_noise])
    }

    /// c and σ² with the largest bound, from a start, for targets of this variance.
    fn best(&self, (c, noise): (f64, f64), variance: f64) -> Result<(f64, f64)> {
        let start = vec![c.ln(), noise.max(LEAST_NOISE * variance).ln()];
        let bounds = [(c.ln() - 10.0, c.ln() + 10.0), ((LEAST_NOISE * variance).ln(), (1e3 * variance).ln())];
        let at = |θ: &[f64]| {
            let (loss, slope) = self.loss(θ[0].exp(), θ[1].exp());
            Ok(loss.is_finite().then(|| (loss / self.n, slope.iter().map(|s| s / self.n).collect())))
        };
        let found = minimise(start, &bounds, (1e-9, 200), at, |_, _, _| true)?;
        let found = found.ok_or_else(|| Error::Numerical("the likelihood of the features is not finite".into()))?;
        Ok((found.x[0].exp(), found.x[1].exp()))
    }

    /// `[w | R]` `[p, 1 + r]` with the mean `φw` and the explained variance `‖φR‖²`:
    /// `w = c Q(cΛ + σ²)⁻¹z`, `R = Q·diag(√(c·cλ_j/(cλ_j + σ²)))`.
    fn posterior(&self, c: f64, noise: f64) -> Array2<f64> {
        let share = self.λ.mapv(|λ| c / (c * λ + noise));
        let w = self.q.dot(&(&share * &self.z));
        let r = &self.q * &(&share * &self.λ * c).mapv(f64::sqrt);
        concatenate![Axis(1), w.insert_axis(Axis(1)), r]
    }

    /// Some rows, each predicted from all others: with `h_i = Σ_j c (φQ)_ij²/(cλ_j + σ²)`, the mean is `y_i − (y_i − ŷ_i)/(1 − h_i)` and
    /// the variance `σ²/(1 − h_i)`, with what the features leave out of the kernel.
    fn left_out(&self, data: &Data, c: f64, noise: f64) -> Result<Vec<(usize, [f64; 2])>> {
        let (n, y) = (data.x.nrows(), data.y);
        let rows = Rng::new(data.context.seed).fork(0x006c_6f6f).sample(n, MOST_LEFT_OUT.min(n));
        let (phi, rest) = data.features(data.x.select(Axis(0), &rows))?;
        let rotated = matmul(phi.view(), self.q.view());
        let share = self.λ.mapv(|λ| c / (c * λ + noise));
        let fitted = rotated.dot(&(&share * &self.z));
        let h = rotated.mapv(|v| v * v).dot(&share);
        let at = |(i, &row): (usize, &usize)| {
            let left = (1.0 - h[i]).max(f64::EPSILON);
            (row, [y[row] - (y[row] - fitted[i]) / left, (noise / left + c * rest[i]).sqrt()])
        };
        Ok(rows.iter().enumerate().map(at).collect())
    }
}

impl FittedFeatureProcess {
    /// Number of features, or of landmarks.
    pub fn rank(&self) -> usize {
        self.functions.rank()
    }

    /// `Var[f(x)|y]` `[m]` at new points `x` `[m, d]`, without the noise; never negative.
    pub fn variance(&self, x: ArrayView2<f64>) -> Result<Array1<f64>> {
        let explained = self.functions.functions.features.project(x.into(), self.explained.view())?;
        Ok((self.kernel.diagonal(x) - explained.map_axis(Axis(1), |row| row.dot(&row))).mapv(|v| v.max(0.0)))
    }
}

impl Predict for FittedFeatureProcess {
    fields! {
        origin: Origin = functions.origin;
        notes: [String] = notes;
    }
    posterior_of_numbers!();

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.functions.evaluate(x)
    }
}

impl FittedProcess for FittedFeatureProcess {
    fields! {
        kernel: Kernel = kernel;
        search: SearchEnd = search;
    }

    fn likelihood(&self) -> Likelihood {
        match self.origin().method.as_str() {
            // Columns are the features of a linear kernel: nothing is left out.
            "linear" => Likelihood::exact(self.bound),
            // Their kernel is not below the one that they approximate.
            "random-features" => {
                Likelihood::new("log marginal likelihood under the kernel of the random features", self.bound)
            }
            _ => Likelihood::new("lower bound of the log marginal likelihood", self.bound),
        }
    }

    fn noise(&self) -> Option<f64> {
        Some(self.noise)
    }

    fn left_out(&self, _: &Target) -> Result<LeftOut> {
        Ok(LeftOut::Numbers(self.left_out.clone()))
    }
}

saved! {
    FittedFeatureProcess, "feature-process":
    functions: FeatureFunctions = whole(FeatureFunctions::unpack);
    noise: f64 = value("noise", positive);
    bound: f64 = value("bound");
    search: SearchEnd = value("search");
    notes: Vec<String> = value("notes");
    left_out: Vec<(usize, [f64; 2])> = known(not_kept, ());
    kernel: Kernel = known(Kernel::of_model, &functions.origin.kernel, functions.origin.d);
    directions: usize = value("directions");
    explained: Array2<f64> = matrix("explained", (functions.rank(), directions));
}
