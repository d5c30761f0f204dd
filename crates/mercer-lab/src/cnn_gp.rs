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
use mercer::net::Network;
use mercer::net::ntk::sample_networks;
use mercer::operator::{FunctionSamples, LowRankOperator, OnPoints, Precision};
use mercer::spectrum::neural::Kind;
use mercer::spectrum::{Krylov, Landmarks, Nystrom, Problem, Spectrum};
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

/// Evaluates all candidates: exact functions are fitted on training images and validated on other training images.
pub fn candidates(config: &Config, train: &Dataset, context: &FitContext<'_>) -> Result<Vec<Candidate>> {
    let kept_back = train.n().saturating_sub(config.choice).max(config.choice)..train.n();
    let images = Images::new(&rows(train, 0..config.choice)?, &rows(train, kept_back)?)?;
    let judge = |net: &String| {
        let f = values_of_networks(net, images.x.view(), config.choice_samples, config.seed, context)?;
        let samples = LowRankOperator::of_samples(&as_samples(f.slice(s![..images.n, ..])), false)?;
        let context = FitContext { seed: config.seed, ..*context };
        let problem = Problem { operator: &samples, k: config.k, context };
        let exact = Spectrum::fit(&Krylov { tolerance: TOLERANCE }, &problem, None)?;
        let [_, accuracy] = images.accuracies(exact.transform(&as_samples(f.view()))?.view())?;
        Ok(Candidate {
            net: net.clone(),
            accuracy,
            multiply_adds: cost(net, &images)?,
            captured: exact.certificate.trace_captured,
        })
    };
    config.candidates.iter().map(judge).collect()
}

/// Tolerance of the exact pairs.
const TOLERANCE: f64 = 1e-6;

/// Multiply-adds of one network on one image.
fn cost(net: &str, images: &Images) -> Result<usize> {
    Ok(Network::parse(net, images.x.ncols(), 1)?.multiply_adds())
}

/// Runs the experiment on MNIST from the folder `$MERCER_DATA`: chooses the architecture, samples random networks, and
/// computes the functions by all methods.
pub fn run(config: &Config, context: &FitContext<'_>) -> Result<Found> {
    let read = |name: &str| open(name, &ReadOptions::default());
    let (train, test) = (read("mnist")?, read("mnist(part=test)")?);
    let tried = candidates(config, &train, context)?;
    let best = tried.iter().max_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let net = best.ok_or_else(|| Error::input("there are no candidate networks"))?.net.clone();
    let images = Images::new(&rows(&train, 0..config.n)?, &rows(&test, 0..config.test)?)?;
    drop((train, test));

    let start = Instant::now();
    // A new seed: not the networks that were used to choose the architecture.
    let f = values_of_networks(&net, images.x.view(), config.samples, config.seed + 1, context)?;
    let sampling_seconds = start.elapsed().as_secs_f64();
    let (networks, _) = drawn(&net, images.x.ncols(), config.samples)?;
    let multiply_adds = networks * cost(&net, &images)? + config.samples * config.k;
    let experiment = Experiment { config, images: &images, networks, multiply_adds };
    let samples = LowRankOperator::of_samples(&as_samples(f.slice(s![..images.n, ..])), false)?;
    let operator = OnPoints::new(&samples, images.fitted())?;
    let context = FitContext { seed: config.seed, ..*context };
    let problem = Problem { operator: &operator, k: config.k, context };
    let everywhere = as_samples(f.view());

    let exact = Spectrum::fit(&Krylov { tolerance: TOLERANCE }, &problem, None)?;
    let captured = exact.certificate.trace_captured;
    let neural = |kind: Kind, network: &str, steps: u64| {
        Spectrum::fit(&crate::neural(kind, Some(network), steps, config.batch), &problem, None)
    };
    let neuralef = neural(Kind::NeuralEf { averaged: false }, &config.functions, config.steps)?;
    let joint = neural(Kind::NeuralEfJoint, &config.functions, config.steps)?;
    let ritz = neural(Kind::Ritz, &config.trunk, config.ritz_steps)?;
    let nystrom = Nystrom { landmarks: config.landmarks, choice: Landmarks::Uniform };
    let nystrom = Spectrum::fit(&nystrom, &problem, None)?;
    let rows = vec![
        experiment.by_coordinates(PUBLISHED[0].0, &neuralef)?,
        experiment.by_coordinates(JOINT, &joint)?,
        experiment.by_coordinates("Ritz", &ritz)?,
        experiment.row("exact", &exact, exact.transform(&everywhere)?)?,
        experiment.row("Nyström", &nystrom, nystrom.transform(&everywhere)?)?,
        experiment.landmarks(
            "polynomial",
            &format!("poly(degree=4, scale={}, offset=1.5)", 1.0 / images.x.ncols() as f64),
            &context,
        )?,
        experiment.landmarks("RBF", "rbf(lengthscale=median)", &context)?,
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
    config: &'a Config,
    images: &'a Images,
    /// Number of random networks.
    networks: usize,
    /// Multiply-adds of all networks on one image, and of `F(x)ᵀW`.
    multiply_adds: usize,
}

impl Experiment<'_> {
    /// The accuracies of ψ `[points, k]`, which take the drawn networks at a new image.
    fn row(&self, method: &'static str, found: &Spectrum, psi: Array2<f64>) -> Result<Row> {
        let [fitted, accuracy] = self.images.accuracies(psi.view())?;
        let residuals = &found.certificate.residual;
        let residual = residuals.iter().map(|r| r.map_or(1.0, |r| r.min(1.0))).sum::<f64>() / residuals.len() as f64;
        Ok(Row {
            method,
            kernel: "CNN-GP",
            accuracy,
            fitted,
            seconds: found.origin.seconds,
            networks: self.networks,
            multiply_adds: self.multiply_adds,
            residual,
            eigenvalues: found.eigenvalues.clone(),
            functions: psi.slice(s![self.images.n.., ..]).to_owned(),
        })
    }

    /// By functions of the images themselves: no drawn network is needed any more.
    fn by_coordinates(&self, method: &'static str, found: &Spectrum) -> Result<Row> {
        let row = self.row(method, found, found.transform(self.images.x.view())?)?;
        Ok(Row { networks: 0, multiply_adds: found.multiply_adds(), ..row })
    }

    /// Another kernel by the Nyström method with the same number of landmarks.
    fn landmarks(&self, name: &'static str, kernel: &str, context: &FitContext<'_>) -> Result<Row> {
        let (x, config) = (self.images.fitted(), self.config);
        let kernel = Expression::parse(kernel)?.resolve(x, config.seed)?;
        let context = FitContext { precision: Precision::F32, ..*context };
        let operator = context.kernel_operator(&kernel, x)?;
        let method = Nystrom { landmarks: config.landmarks, choice: Landmarks::Uniform };
        let found = Spectrum::fit(&method, &Problem { operator: &operator, k: config.k, context }, None)?;
        Ok(Row { kernel: name, ..self.by_coordinates("Nyström", &found)? })
    }
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
