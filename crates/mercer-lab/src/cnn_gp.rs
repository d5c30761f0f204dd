//! The Gaussian process of a convolutional network on MNIST: logistic regression on the values of its first eigenfunctions,
//! which are found without labels.
//!
//! The kernel is given by S random networks, `κ(x,x') = (1/S) Σ_s g(x,θ_s) g(x',θ_s)`. Its first k functions are computed by
//! NeuralEF (with the published penalties and with joint penalties), by Rayleigh–Ritz over the hidden units of a trained
//! network, exactly, and by the Nyström method, all from the same samples `F` `[S, n]`. They are compared with the polynomial
//! and the RBF kernel by the Nyström method. The architecture is chosen on training images only.

use mercer::FitContext;
use mercer::apply::{Fit, Logistic, Predict};
use mercer::compute::{Device, Tensor};
use mercer::data::{Dataset, ReadOptions, Target, open};
use mercer::kernel::Expression;
use mercer::linalg::{eigh, matmul};
use mercer::net::Network;
use mercer::net::ntk::sample_networks;
use mercer::operator::{FunctionSamples, LowRankOperator, Operator, Precision};
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Neural, SampledSpectrum, Samples};
use mercer::spectrum::{Landmarks, Nystrom, Problem, Spectrum};
use mercer::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde::Serialize;
use std::time::Instant;

/// Sizes, networks and seed of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// Number of training images that are fitted, the first of the data set.
    pub n: usize,
    /// Number of test images.
    pub test: usize,
    /// S; each output of a random network counts as one sample.
    pub samples: usize,
    /// Number of eigenfunctions.
    pub k: usize,
    /// Candidate architectures of the random networks.
    pub candidates: Vec<String>,
    /// Number of training images on which each candidate is fitted, and of validation images (the last training images).
    pub choice: usize,
    /// S of each candidate.
    pub choice_samples: usize,
    /// Architecture of NeuralEF's k networks.
    pub functions: String,
    /// Architecture of the network whose hidden units Ritz combines.
    pub trunk: String,
    /// Training steps of NeuralEF.
    pub steps: u64,
    /// Training steps of Ritz.
    pub ritz_steps: u64,
    /// Images per batch.
    pub batch: usize,
    /// Number of landmarks of the Nyström method.
    pub landmarks: usize,
    /// Random seed.
    pub seed: u64,
}

/// NeuralEF has one network per function. In a shared trunk, the first function would dominate Adam's steps.
const FUNCTIONS: &str = "conv(16, 7, stride=4) bn relu flatten dense(32) bn relu dense(1) l2norm";
/// Ritz has one wider network, whose last layer is solved.
const TRUNK: &str = "conv(32, 7, stride=4) relu flatten dense(128) sincos dense(1)";

impl Config {
    /// The whole experiment, minutes on two cores. The published one has 60 000 images and 20 000 steps.
    pub fn full(seed: u64) -> Config {
        Config {
            n: 10_000,
            test: 10_000,
            samples: 2000,
            k: 10,
            candidates: CANDIDATES.map(str::to_owned).to_vec(),
            choice: 2000,
            choice_samples: 800,
            functions: FUNCTIONS.into(),
            trunk: TRUNK.into(),
            steps: 1000,
            ritz_steps: 300,
            batch: 256,
            landmarks: 1000,
            seed,
        }
    }

    /// A small experiment, a few seconds.
    pub fn quick(seed: u64) -> Config {
        let candidates = CANDIDATES[..2].iter().map(|net| (*net).to_owned()).collect();
        let small = Config {
            n: 1500,
            test: 500,
            samples: 200,
            candidates,
            choice: 500,
            choice_samples: 100,
            ..Config::full(seed)
        };
        Config { steps: 100, ritz_steps: 20, landmarks: 100, ..small }
    }
}

/// The candidate networks: ReLU and erf, filters of two sizes, max or average pooling or strides. Each has twenty outputs,
/// because the hidden layers take most of the time.
const CANDIDATES: [&str; 5] = [
    "conv(16, 7, stride=2, b=0.3) relu maxpool(2) conv(32, 3, b=0.3) relu maxpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, b=0.3) relu maxpool(2) conv(32, 3, b=0.3) relu maxpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, b=0.3) relu avgpool(2) conv(32, 3, b=0.3) relu avgpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, w=3, b=0.3) erf avgpool(2) conv(32, 3, w=3, b=0.3) erf avgpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, b=0.3) relu conv(32, 3, stride=2, b=0.3) relu flatten dense(20)",
];

/// The result of a candidate network.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Architecture of the network.
    pub net: String,
    /// Accuracy of the exact functions on the validation images.
    pub accuracy: f64,
    /// Multiply-adds of one network on one image.
    pub multiply_adds: usize,
    /// Share of the kernel's trace in the k pairs.
    pub captured: f64,
}

/// The result of a method.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the method.
    pub method: &'static str,
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Accuracy on the test images.
    pub accuracy: f64,
    /// Accuracy on the fitted images.
    pub fitted: f64,
    /// Seconds to find the functions, without the time for the samples.
    pub seconds: f64,
    /// Number of random networks to evaluate for a new image.
    pub networks: usize,
    /// Multiply-adds for a new image.
    pub multiply_adds: usize,
    /// Mean over the pairs of `min(1, ‖Kψ − μψ‖/μ‖ψ‖)` on the fitted images.
    pub residual: f64,
    /// `μ`, descending.
    pub eigenvalues: Vec<f64>,
    /// ψ at the test images `[test, k]`.
    #[serde(skip)]
    pub functions: Array2<f64>,
}

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The candidate networks.
    pub candidates: Vec<Candidate>,
    /// The architecture that was chosen.
    pub net: String,
    /// Number of random networks.
    pub networks: usize,
    /// Seconds to evaluate them on all images.
    pub sampling_seconds: f64,
    /// Share of the kernel's trace in the k exact pairs.
    pub captured: f64,
    /// One row per method.
    pub rows: Vec<Row>,
    /// Classes of the test images.
    #[serde(skip)]
    pub labels: Vec<usize>,
}

/// Images and their classes; the first `n` are fitted.
struct Images {
    /// `[points, d]`; over the fitted images each pixel has mean zero, and the mean square of all pixels is one.
    x: Array2<f64>,
    labels: Vec<usize>,
    n: usize,
}

/// Number of classes.
const CLASSES: usize = 10;

impl Images {
    /// From the images to fit and the other images.
    fn new(fit: &Dataset, other: &Dataset) -> Result<Images> {
        let mut labels = vec![];
        for set in [fit, other] {
            match &set.y {
                Some(Target::Classes { labels: of_set, names }) if names.len() == CLASSES => labels.extend(of_set),
                _ => return Err(Error::input(format!("`{}` does not have {CLASSES} classes", set.name))),
            }
        }
        let fit_x = fit.x.to_f64();
        let mut x = ndarray::concatenate(Axis(0), &[fit_x.view(), other.x.to_f64().view()])
            .map_err(|_| Error::input("the images differ in size"))?;
        x -= &fit_x.mean_axis(Axis(0)).expect("there are images");
        let square = x.slice(s![..fit.n(), ..]).iter().map(|v| v * v).sum::<f64>() / fit_x.len() as f64;
        x /= square.sqrt().max(f64::MIN_POSITIVE);
        Ok(Images { x, labels, n: fit.n() })
    }

    fn fitted(&self) -> ArrayView2<'_, f64> {
        self.x.slice(s![..self.n, ..])
    }

    /// Accuracies of logistic regression on ψ `[points, k]`, on the fitted and on the other images.
    fn accuracies(&self, psi: ArrayView2<f64>) -> Result<[f64; 2]> {
        let (fit, other) = psi.split_at(Axis(0), self.n);
        let target = |labels: &[usize]| Target::Classes {
            labels: labels.to_vec(),
            names: (0..CLASSES).map(|class| class.to_string()).collect(),
        };
        let (fit_labels, other_labels) = self.labels.split_at(self.n);
        let (fit_labels, other_labels) = (target(fit_labels), target(other_labels));
        let classifier = Logistic::default().fit(fit, &fit_labels, &FitContext::default())?;
        Ok([classifier.accuracy(fit, &fit_labels)?, classifier.accuracy(other, &other_labels)?])
    }
}

/// The rows `range` of a data set.
fn rows(set: &Dataset, range: std::ops::Range<usize>) -> Result<Dataset> {
    if range.end > set.n() {
        return Err(Error::input(format!("`{}` has {} images, but {} are needed", set.name, set.n(), range.end)));
    }
    Ok(set.select(&range.collect::<Vec<_>>()))
}

/// Number of images that are evaluated at once: on the CPU few enough for the cache, on a GPU enough to keep it busy.
fn images_at_once(device: Device) -> usize {
    if device == Device::Cpu { 1000 } else { 10_000 }
}

/// `Fᵀ` `[points, S]`; the values of one image are contiguous, because batches gather images. Each output of a network is a
/// sample. Outputs of one network share its hidden layers, so they carry less information than outputs of different networks.
fn values_of_networks(
    net: &str,
    x: ArrayView2<f64>,
    samples: usize,
    seed: u64,
    context: &FitContext<'_>,
) -> Result<Array2<f64>> {
    let mut f = Array2::zeros((x.nrows(), samples));
    let (networks, c) = drawn(net, x.ncols(), samples)?;
    let device = context.device;
    let at_once = images_at_once(device);
    let parts = x.nrows().div_ceil(at_once);
    let each = x.axis_chunks_iter(Axis(0), at_once).zip(f.axis_chunks_iter_mut(Axis(0), at_once));
    for (part, (x, mut f)) in each.enumerate() {
        context.progress.step("random networks", part, parts, "");
        let pixels: Vec<f32> = x.iter().map(|v| *v as f32).collect();
        let pixels = Tensor::from_host(device, &[x.nrows(), x.ncols()], &pixels)?;
        sample_networks(net, &pixels, networks, seed, |s, values| {
            let mut outputs = f.slice_mut(s![.., s * c..(s + 1) * c]);
            outputs.iter_mut().zip(values).for_each(|(f, v)| *f = f64::from(*v));
            Ok(())
        })?;
    }
    Ok(f)
}

/// Number of random networks for S samples, and number of outputs of each.
fn drawn(net: &str, inputs: usize, samples: usize) -> Result<(usize, usize)> {
    let c = Network::parse(net, inputs, 1)?.outputs();
    match samples.is_multiple_of(c) {
        true => Ok((samples / c, c)),
        false => Err(Error::input(format!("{samples} samples are not a multiple of the {c} outputs of \"{net}\""))),
    }
}

/// `Fᵀ` `[points, S]` as samples `[S, points, 1]`, without a copy.
fn as_samples(f: ArrayView2<'_, f64>) -> FunctionSamples<'_> {
    f.reversed_axes().insert_axis(Axis(2)).into()
}

/// ψ `[points, k]` at all points, `ψ(x) = (1/nμ) Σ κ(x,x_i) ψ(x_i)`.
fn extended(found: &SampledSpectrum, f: &Array2<f64>) -> Result<Array2<f64>> {
    Ok(found.model.at_samples(&as_samples(f.view()))?.index_axis_move(Axis(1), 0))
}

/// Evaluates all candidates: exact functions are fitted on training images and validated on other training images.
pub fn candidates(plan: &Config, train: &Dataset, context: &FitContext<'_>) -> Result<Vec<Candidate>> {
    let kept_back = train.n().saturating_sub(plan.choice).max(plan.choice)..train.n();
    let images = Images::new(&rows(train, 0..plan.choice)?, &rows(train, kept_back)?)?;
    let judge = |net: &String| {
        let f = values_of_networks(net, images.x.view(), plan.choice_samples, plan.seed, context)?;
        let exact = problem(plan, &images, &f).krylov(TOLERANCE, &FitContext { seed: plan.seed, ..*context })?;
        let [_, accuracy] = images.accuracies(extended(&exact, &f)?.view())?;
        Ok(Candidate {
            net: net.clone(),
            accuracy,
            multiply_adds: cost(net, &images)?,
            captured: exact.eigenvalues.iter().sum::<f64>() / exact.trace,
        })
    };
    plan.candidates.iter().map(judge).collect()
}

/// Tolerance of the exact pairs.
const TOLERANCE: f64 = 1e-6;

/// The fitted images with their rows of `Fᵀ` `[points, S]`.
fn problem<'a>(plan: &Config, images: &'a Images, f: &'a Array2<f64>) -> Samples<'a> {
    Samples { f: as_samples(f.slice(s![..images.n, ..])), x: images.fitted(), factorised: false, k: plan.k }
}

/// Multiply-adds of one network on one image.
fn cost(net: &str, images: &Images) -> Result<usize> {
    Ok(Network::parse(net, images.x.ncols(), 1)?.multiply_adds())
}

/// Runs the experiment on MNIST from the folder `$MERCER_DATA`: chooses the architecture, samples random networks, and
/// computes the functions by all methods.
pub fn run(plan: &Config, context: &FitContext<'_>) -> Result<Found> {
    let read = |name: &str| open(name, &ReadOptions::default());
    let (train, test) = (read("mnist")?, read("mnist(part=test)")?);
    let tried = candidates(plan, &train, context)?;
    let best = tried.iter().max_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let net = best.ok_or_else(|| Error::input("there are no candidate networks"))?.net.clone();
    let images = Images::new(&rows(&train, 0..plan.n)?, &rows(&test, 0..plan.test)?)?;
    drop((train, test));

    let start = Instant::now();
    // A new seed: not the networks that were used to choose the architecture.
    let f = values_of_networks(&net, images.x.view(), plan.samples, plan.seed + 1, context)?;
    let sampling_seconds = start.elapsed().as_secs_f64();
    let (networks, _) = drawn(&net, images.x.ncols(), plan.samples)?;
    let multiply_adds = networks * cost(&net, &images)? + plan.samples * plan.k;
    let experiment = Experiment { plan, images: &images, networks, multiply_adds };
    let samples = problem(plan, &images, &f);

    let exact = samples.krylov(TOLERANCE, &FitContext { seed: plan.seed, ..*context })?;
    let captured = exact.eigenvalues.iter().sum::<f64>() / exact.trace;
    let neural = |kind: Kind, network: &str, steps: u64| {
        let mut method = Neural::new(kind);
        method.architecture = Some(network.into());
        method.settings.steps = steps;
        method.settings.batch = plan.batch;
        // The published method has no early stopping.
        method.settings.patience = usize::MAX;
        samples.neural(&method, &FitContext { seed: plan.seed, ..*context })
    };
    let neuralef = neural(Kind::NeuralEf { averaged: false }, &plan.functions, plan.steps)?;
    let joint = neural(Kind::NeuralEfJoint, &plan.functions, plan.steps)?;
    let ritz = neural(Kind::Ritz, &plan.trunk, plan.ritz_steps)?;
    let rows = vec![
        experiment.trained(PUBLISHED[0].0, &neuralef)?,
        experiment.trained(JOINT, &joint)?,
        experiment.trained("Ritz", &ritz)?,
        experiment.exact(&exact, &f)?,
        experiment.nystrom(&f)?,
        experiment.landmarks(
            "polynomial",
            &format!("poly(degree=4, scale={}, offset=1.5)", 1.0 / images.x.ncols() as f64),
            context,
        )?,
        experiment.landmarks("RBF", "rbf(lengthscale=median)", context)?,
    ];
    Ok(Found {
        candidates: tried,
        net,
        networks,
        sampling_seconds,
        captured,
        rows,
        labels: images.labels[images.n..].to_vec(),
    })
}

/// The data shared by all methods.
struct Experiment<'a> {
    plan: &'a Config,
    images: &'a Images,
    /// Number of random networks.
    networks: usize,
    /// Multiply-adds of all networks on one image, and of `F(x)ᵀW`.
    multiply_adds: usize,
}

impl Experiment<'_> {
    /// A row with the accuracies of ψ `[points, k]` and the cost of evaluating the random networks.
    fn row(
        &self,
        method: &'static str,
        eigenvalues: &[f64],
        residuals: &[Option<f64>],
        seconds: f64,
        psi: &Array2<f64>,
    ) -> Result<Row> {
        let [fitted, accuracy] = self.images.accuracies(psi.view())?;
        let residual = residuals.iter().map(|r| r.map_or(1.0, |r| r.min(1.0))).sum::<f64>() / residuals.len() as f64;
        let functions = psi.slice(s![self.images.n.., ..]).to_owned();
        let (kernel, eigenvalues) = ("CNN-GP", eigenvalues.to_vec());
        Ok(Row {
            method,
            kernel,
            accuracy,
            fitted,
            seconds,
            networks: self.networks,
            multiply_adds: self.multiply_adds,
            residual,
            eigenvalues,
            functions,
        })
    }

    /// Trained networks, which need no random networks for new images.
    fn trained(&self, method: &'static str, found: &SampledSpectrum) -> Result<Row> {
        let psi = found.model.at_points(self.images.x.view())?.index_axis_move(Axis(1), 0);
        let row = self.row(method, &found.eigenvalues, &found.residuals, found.seconds, &psi)?;
        Ok(Row { networks: 0, multiply_adds: found.model.multiply_adds(), ..row })
    }

    fn exact(&self, found: &SampledSpectrum, f: &Array2<f64>) -> Result<Row> {
        self.row("exact", &found.eigenvalues, &found.residuals, found.seconds, &extended(found, f)?)
    }

    /// Nyström's method on the samples `Fᵀ` `[points, S]`: with landmarks Z and `κ(Z,Z) = UΛUᵀ`, features
    /// `Φ = κ(X,Z) UΛ^{−1/2}` are `FᵀB` with `B = F_Z UΛ^{−1/2}/S`, and the pairs are those of `ΦᵀΦ/n`.
    fn nystrom(&self, f: &Array2<f64>) -> Result<Row> {
        let start = Instant::now();
        let (n, k, count) = (self.images.n, self.plan.k, f.ncols() as f64);
        let chosen = Rng::new(self.plan.seed).fork(7).sample(n, self.plan.landmarks);
        let z = f.select(Axis(0), &chosen);
        let (λ, u) = eigh(Device::Cpu, (matmul(z.view(), z.t()) / count).view())?;
        let rank = λ.iter().take_while(|l| **l > 1e-10 * λ[0]).count();
        let mut turn = u.slice(s![.., ..rank]).to_owned();
        turn.columns_mut().into_iter().zip(&λ).for_each(|(mut column, l)| column /= l.sqrt());
        let b = matmul(z.t(), turn.view()) / count;
        let fitted = f.slice(s![..n, ..]);
        let phi = matmul(fitted, b.view());
        let (μ, v) = eigh(Device::Cpu, (matmul(phi.t(), phi.view()) / n as f64).view())?;
        // ψ_j = Φ v_j/√μ_j, for all images by one matrix `[S, k]`.
        let mut coefficients = matmul(b.view(), v.slice(s![.., ..k]));
        coefficients.columns_mut().into_iter().zip(&μ).for_each(|(mut column, μ)| column /= μ.sqrt());
        let seconds = start.elapsed().as_secs_f64();
        let psi = matmul(f.view(), coefficients.view());
        let residuals =
            residuals(&LowRankOperator::of_samples(&as_samples(fitted), false)?, psi.slice(s![..n, ..]), &μ)?;
        self.row("Nyström", &μ[..k], &residuals, seconds, &psi)
    }

    /// Another kernel by the Nyström method with the same number of landmarks.
    fn landmarks(&self, name: &'static str, kernel: &str, context: &FitContext<'_>) -> Result<Row> {
        let (x, plan) = (self.images.fitted(), self.plan);
        let kernel = Expression::parse(kernel)?.resolve(x, plan.seed)?;
        let (precision, method) = (Precision::F32, Nystrom { landmarks: plan.landmarks, choice: Landmarks::Uniform });
        let problem = Problem {
            context: FitContext { precision, seed: plan.seed, ..*context },
            ..Problem::new(&kernel, x, plan.k)
        };
        let found = Spectrum::fit(&method, &problem, None)?;
        let psi = found.transform(self.images.x.view())?;
        let row = self.row("Nyström", &found.eigenvalues, &found.certificate.residual, found.origin.seconds, &psi)?;
        Ok(Row { kernel: name, networks: 0, multiply_adds: found.multiply_adds(), ..row })
    }
}

/// `‖Kψ_j/n − μ_jψ_j‖/(μ_j‖ψ_j‖)` of ψ `[n, k]`.
fn residuals(operator: &LowRankOperator, psi: ArrayView2<f64>, μ: &[f64]) -> Result<Vec<Option<f64>>> {
    let image = operator.apply(psi)? / psi.nrows() as f64;
    let columns = psi.columns().into_iter().zip(image.columns()).zip(μ);
    let one = |((psi, image), μ): ((ndarray::ArrayView1<f64>, ndarray::ArrayView1<f64>), &f64)| {
        let error = &image - &(&psi * *μ);
        (error.dot(&error) / psi.dot(&psi)).sqrt() / μ
    };
    Ok(columns.map(one).map(Some).collect())
}

/// Published accuracies as `(method, kernel, accuracy)`.
pub const PUBLISHED: [(&str, &str, f64); 3] =
    [("NeuralEF", "CNN-GP", 0.8498), ("Nyström", "polynomial", 0.7800), ("Nyström", "RBF", 0.7755)];

/// Name of NeuralEF with joint penalties.
pub const JOINT: &str = "joint NeuralEF";

/// The result in one sentence.
pub fn verdict(found: &Found) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let of = |method: &str| found.rows.iter().find(|row| row.method == method);
    let (Some(plain), Some(joint)) = (of(PUBLISHED[0].0), of(JOINT)) else { return String::new() };
    let best = found.rows.iter().max_by(|a, b| a.accuracy.total_cmp(&b.accuracy)).unwrap_or(joint);
    let published = PUBLISHED[0].2;
    let side = if plain.accuracy >= published { "above" } else { "below" };
    format!(
        "logistic regression on NeuralEF's {} functions of the CNN-GP kernel has a test accuracy of {}, {side} the published \
         {}, and of {} with joint penalties; the best, {} ({}), has {}",
        plain.eigenvalues.len(),
        percent(plain.accuracy),
        percent(published),
        percent(joint.accuracy),
        best.method,
        best.kernel,
        percent(best.accuracy),
    )
}
