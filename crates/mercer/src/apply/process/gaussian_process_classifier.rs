//! Classification by Gaussian processes.

use crate::apply::alpha::splits;
use crate::apply::probabilities::{left_out_sharpness, softmax};
use crate::apply::process::gaussian_process::notes;
use crate::apply::process::softmax_laplace::Mode;
use crate::apply::reference::{Reference, check_new};
use crate::apply::targets::Encoding;
use crate::apply::traits::{encoded_scores, fields, not_kept, saved};
use crate::apply::{
    Criterion, Fit, FittedProcess, LeftOut, Likelihood, Predict, Process, ProcessTask, SearchEnd, Tuning, check_points,
};
use crate::compute::Device;
use crate::data::Target;
use crate::kernel::{Expression, Kernel};
use crate::linalg::eigh;
use crate::operator::{Precision, gram, gram_cross};
use crate::options::Options;
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s};
use std::sync::OnceLock;
use std::time::Instant;

/// New points whose posterior is computed together.
const BLOCK: usize = 256;
/// Draws of the latent functions, in pairs `f̄ ± δ`, of which probabilities are the mean.
const PAIRS: usize = 1000;
/// Parts of the rows, each left out once.
const FOLDS: usize = 5;

/// Gaussian-process classification: one latent function `f_c ~ GP(0, κ)` for each class, and classes with the probabilities
/// `softmax(f(x))`.
///
/// The posterior of the latent functions is approximated by a normal distribution at its mode (Laplace). The amplitudes, and the lengthscales that
/// are `auto` or `ard`, are those of the largest marginal likelihood under that approximation. Scores are the logarithms of the mean q of the
/// softmax over the posterior, so that they are uncertain far from the data. Laplace's approximation makes q too cautious where classes are well
/// separated, so probabilities are `p ∝ q^t`, with the t of the least log loss on left-out rows.
///
/// It takes about C·n² numbers, and C·n³ operations for each of some thirty Newton steps, so that it is for a few thousand points.
///
/// ```
/// use mercer::apply::{Fit, GaussianProcessClassifier, Predict};
/// use mercer::{FitContext, data::Target, kernel::Expression};
/// let x = ndarray::Array2::from_shape_fn((40, 1), |(i, _)| i as f64 / 10.0);
/// let labels = x.iter().map(|x| usize::from(*x > 2.0)).collect();
/// let y = Target::Classes { labels, names: vec!["low".into(), "high".into()] };
/// let process = GaussianProcessClassifier::new(Expression::parse("rbf(lengthscale=auto)")?);
/// let fitted = process.fit(x.view(), &y, &FitContext::default())?;
/// let scores = fitted.scores(ndarray::array![[0.5], [2.05], [100.0]].view())?;
/// let p = fitted.probabilities(scores.view()).unwrap();
/// assert!(p[[0, 0]] > 0.9 && (p[[1, 0]] - 0.5).abs() < 0.3 && (p[[2, 0]] - 0.5).abs() < 0.1);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GaussianProcessClassifier {
    /// κ, with numbers, `median`, `auto` or `ard` for its lengthscales.
    pub kernel: Expression,
    /// How hyper-parameters are found; the criterion is always the marginal likelihood.
    pub tuning: Tuning,
}

impl GaussianProcessClassifier {
    /// With hyper-parameters from three starts and 500 rows at most.
    pub fn new(kernel: Expression) -> Self {
        let tuning = Tuning { criterion: Criterion::Likelihood, rows: 500, ..Tuning::default() };
        GaussianProcessClassifier { kernel, tuning }
    }

    /// The process as the options want it: what the method `exact` is for classes.
    pub(crate) fn built(o: &mut Options, task: &ProcessTask) -> Result<Process> {
        let usual = GaussianProcessClassifier::new(task.kernel.clone());
        let tuning = usual.tuning.with_options(o)?;
        Ok(Process::new(GaussianProcessClassifier { tuning, ..usual }, None))
    }
}

/// The posterior of the latent functions, ready to predict. Example: [`GaussianProcessClassifier`].
pub struct FittedGaussianProcessClassifier {
    /// The approximate `log p(y)` of the fitted points.
    pub likelihood: f64,
    /// How the search for hyper-parameters ended.
    pub search: SearchEnd,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    notes: Vec<String>,
    encoding: Encoding,
    /// t
    sharpness: Option<f64>,
    /// The scores `[n, C]` of each fitted point given the four fifths of the points that it is not in. A file does not keep them.
    pub left_out: Array2<f64>,
    /// `K⁻¹f = y − π` at the mode `[n, C]`
    coefficients: Array2<f64>,
    /// The mode with its curvature, made when it is first asked for.
    mode: OnceLock<Mode>,
}

impl Fit for GaussianProcessClassifier {
    type Target = Target;
    type Fitted = FittedGaussianProcessClassifier;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedGaussianProcessClassifier> {
        let start = Instant::now();
        check_points(x)?;
        let context = &FitContext { precision: Precision::F64, ..*context };
        let y = &y.as_classes()?;
        let context = &context.beside_classes(y)?;
        let encoding = Encoding::of(y, x.nrows())?;
        let classes = encoding.width();
        fail_if!(classes < 2, "every row has the same class; classification needs at least two");
        context.budget.require(
            format!("the posterior of {classes} latent functions at {} points", x.nrows()),
            (2 * classes as u64 + 4) * 8 * (x.nrows() as u64).pow(2),
            concat!("use fewer points, or ", crate::advice!(Logistic)),
        )?;
        let (_, encoded) = Encoding::encode(y, x.nrows(), 0.0, 1.0)?;
        let found = self.tuning.best_for_classes(&self.kernel, x, y, context)?;
        // A request to end early was about the search; the posterior is computed.
        let interrupted = context.keeps_best().cut_short();
        let k = gram::<f64>(&found.kernel, x, context.device)?;
        let left_out = cross_validated(k.view(), encoded.view(), context)?;
        context.progress.step("gaussian process", FOLDS, FOLDS + 1, "mode of the latent functions");
        let (mode, likelihood) = Mode::find(k.view(), encoded.view(), Array2::zeros(encoded.dim()), context.device)?;
        let origin = Origin::new("gaussian-process", &found.kernel, x.dim(), context, start);
        Ok(FittedGaussianProcessClassifier {
            likelihood,
            search: SearchEnd::new(&found, 1.0),
            reference: Reference::new(origin, x, context),
            notes: notes(&found, interrupted),
            kernel: found.kernel,
            encoding,
            sharpness: left_out_sharpness(y, None, left_out.view()),
            left_out,
            coefficients: mode.coefficients.clone(),
            mode: OnceLock::from(mode),
        })
    }
}

impl FittedGaussianProcessClassifier {
    /// The mode with its curvature.
    fn mode(&self) -> Result<&Mode> {
        if let Some(mode) = self.mode.get() {
            return Ok(mode);
        }
        let k = gram::<f64>(&self.kernel, self.reference.points(), self.reference.device)?;
        let mode = Mode::at(k.view(), self.coefficients.clone(), self.reference.device)?;
        Ok(self.mode.get_or_init(|| mode))
    }

    /// The means `[m, C]` and, point by point, the covariances `[C, C]` of the latent functions at new points `x` `[m, d]`.
    pub fn latent(&self, x: ArrayView2<f64>) -> Result<(Array2<f64>, Vec<Array2<f64>>)> {
        check_new(x, self.reference.origin.d)?;
        let cross = gram_cross::<f64>(&self.kernel, self.reference.points(), x, self.reference.device)?;
        self.mode()?.posterior(cross.view(), &self.kernel.diagonal(x))
    }
}

/// The scores `[n, C]` of each point given the other parts of the rows, for the kernel matrix `k` `[n, n]` and one-hot classes `y` `[n, C]`.
///
/// Taking a point's own term out of the posterior would need no new mode, but is far too confident where the amplitude is large.
fn cross_validated(k: ArrayView2<f64>, y: ArrayView2<f64>, context: &FitContext) -> Result<Array2<f64>> {
    let mut scores = Array2::zeros(y.dim());
    for (fold, (rest, out)) in splits(y.nrows(), FOLDS.min(y.nrows()), context.seed).enumerate() {
        context.progress.step("gaussian process", fold, FOLDS, "left-out rows");
        let among = k.select(Axis(0), &rest);
        let (inside, cross) = (among.select(Axis(1), &rest), among.select(Axis(1), &out));
        let y = y.select(Axis(0), &rest);
        let (mode, _) = Mode::find(inside.view(), y.view(), Array2::zeros(y.dim()), context.device)?;
        let (means, covariances) = mode.posterior(cross.view(), &out.iter().map(|&i| k[[i, i]]).collect())?;
        for (row, &i) in mean_scores(&means, &covariances)?.rows().into_iter().zip(&out) {
            scores.row_mut(i).assign(&row);
        }
    }
    Ok(scores)
}

/// `log E[softmax(f)]` `[m, C]` for latent functions with these means `[m, C]` and, row by row, covariances `[C, C]`.
fn mean_scores(means: &Array2<f64>, covariances: &[Array2<f64>]) -> Result<Array2<f64>> {
    let (z, mut scores) = (draws(means.ncols()), Array2::zeros(means.dim()));
    for ((mut out, mean), covariance) in scores.rows_mut().into_iter().zip(means.rows()).zip(covariances) {
        out.assign(&log_mean_softmax(mean, &root(covariance)?, &z));
    }
    Ok(scores)
}

/// R `[C, C]` with `RRᵀ` the covariance `[C, C]`; what rounding leaves below zero is zero.
fn root(covariance: &Array2<f64>) -> Result<Array2<f64>> {
    let (λ, u) = eigh(Device::Cpu, covariance.view())?;
    Ok(&u * &λ.iter().map(|λ| λ.max(0.0).sqrt()).collect::<Array1<f64>>())
}

/// Normal draws `[PAIRS, C]`, the same for every point.
fn draws(classes: usize) -> Array2<f64> {
    let mut rng = Rng::new(0).fork(0x6c61_7465);
    Array2::from_shape_simple_fn((PAIRS, classes), || rng.normal())
}

/// `log E[softmax(f)]` `[C]` for `f ~ N(mean, RRᵀ)`, over the normal draws `z` `[draws, C]` and their negatives.
fn log_mean_softmax(mean: ArrayView1<f64>, root: &Array2<f64>, z: &Array2<f64>) -> Array1<f64> {
    let mut sum = Array1::zeros(mean.len());
    for δ in z.dot(&root.t()).rows() {
        for mut f in [&mean + &δ, &mean - &δ] {
            softmax(f.as_slice_mut().expect("in order"));
            sum += &f;
        }
    }
    sum.mapv(|p: f64| (p / (2 * z.nrows()) as f64).max(f64::MIN_POSITIVE).ln())
}

impl Predict for FittedGaussianProcessClassifier {
    fields! {
        origin: Origin = reference.origin;
        notes: [String] = notes;
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let mut scores = Array2::zeros((x.nrows(), self.encoding.width()));
        for start in (0..x.nrows()).step_by(BLOCK) {
            let end = x.nrows().min(start + BLOCK);
            let (means, covariances) = self.latent(x.slice(s![start..end, ..]))?;
            scores.slice_mut(s![start..end, ..]).assign(&mean_scores(&means, &covariances)?);
        }
        Ok(scores)
    }

    encoded_scores!(encoding);
}

impl FittedProcess for FittedGaussianProcessClassifier {
    fields! {
        kernel: Kernel = kernel;
        search: SearchEnd = search;
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::new("log marginal likelihood (Laplace approximation)", self.likelihood)
    }

    fn left_out(&self, _: &Target) -> Result<LeftOut> {
        Ok(LeftOut::Scores(self.left_out.clone()))
    }
}

saved! {
    FittedGaussianProcessClassifier, "gaussian-process-classifier":
    reference: Reference = whole(Reference::unpack);
    encoding: Encoding = value("target", Encoding::checked);
    sharpness: Option<f64> = value("sharpness");
    left_out: Array2<f64> = known(not_kept, ());
    likelihood: f64 = value("likelihood");
    search: SearchEnd = value("search");
    notes: Vec<String> = value("notes");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, encoding.width()));
    mode: OnceLock<Mode> = known(not_kept, ());
}
