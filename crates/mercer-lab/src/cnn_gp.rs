//! What the Gaussian process of a convolutional network sees in MNIST without labels: logistic regression on the values of
//! its first eigenfunctions.
//!
//! The kernel is known by S drawn networks, `κ(x,x') = (1/S) Σ_s g(x,θ_s) g(x',θ_s)`, and its first k functions are found by
//! NeuralEF, with its penalties as published and taken together, by Rayleigh–Ritz over the hidden units of a trained network,
//! exactly, and by Nyström's method, all from the same numbers `F` `[S, n]`. Beside them stand the polynomial and the RBF kernel
//! by Nyström's method. Which network is drawn is settled on training images alone.

use mercer::FitContext;
use mercer::apply::{Fit, Logistic, Predict};
use mercer::compute::{Device, Tensor};
use mercer::data::{Dataset, ReadOptions, Target, open};
use mercer::kernel::Expression;
use mercer::net::Network;
use mercer::net::ntk::sample_networks;
use mercer::operator::{FunctionSamples, LowRankOperator, OnPoints, Precision};
use mercer::spectrum::neural::{Kind, Neural};
use mercer::spectrum::{Krylov, Landmarks, Nystrom, Problem, Spectrum};
use mercer::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde::Serialize;
use std::time::Instant;

/// How much is run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Training images that are fitted, the first of the set.
    pub n: usize,
    /// Test images.
    pub test: usize,
    /// S, every output of a drawn network counted.
    pub samples: usize,
    /// Eigenfunctions.
    pub k: usize,
    /// Networks that might be drawn.
    pub candidates: Vec<String>,
    /// Training images on which each of them is fitted, and as many of the last ones on which it is judged.
    pub choice: usize,
    /// S of each candidate.
    pub choice_samples: usize,
    /// The k networks of NeuralEF.
    pub functions: String,
    /// The network whose hidden units Ritz combines.
    pub trunk: String,
    /// NeuralEF's steps.
    pub steps: u64,
    /// Those of Ritz.
    pub ritz_steps: u64,
    /// Images of a batch.
    pub batch: usize,
    /// Landmarks of Nyström's method.
    pub landmarks: usize,
    /// Of everything.
    pub seed: u64,
}

/// Each of NeuralEF's functions: a network of its own. In a trunk that all share, Adam's steps are those of the first one.
const FUNCTIONS: &str = "conv(16, 7, stride=4) bn relu flatten dense(32) bn relu dense(1) l2norm";
/// Ritz solves for the last layer of one wider network.
const TRUNK: &str = "conv(32, 7, stride=4) relu flatten dense(128) sincos dense(1)";

impl Plan {
    /// The whole experiment, in minutes on two cores. Published are 60 000 images and 20 000 steps.
    pub fn full(seed: u64) -> Plan {
        Plan {
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

    /// A small one, in seconds.
    pub fn quick(seed: u64) -> Plan {
        let candidates = CANDIDATES[..2].iter().map(|net| (*net).to_owned()).collect();
        let small =
            Plan { n: 1500, test: 500, samples: 200, candidates, choice: 500, choice_samples: 100, ..Plan::full(seed) };
        Plan { steps: 100, ritz_steps: 20, landmarks: 100, ..small }
    }
}

/// The networks that are tried: rectifiers and steps, filters of two sizes, pooled in two ways or with strides. Twenty outputs
/// each, because the hidden layers are what takes time.
const CANDIDATES: [&str; 5] = [
    "conv(16, 7, stride=2, b=0.3) relu maxpool(2) conv(32, 3, b=0.3) relu maxpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, b=0.3) relu maxpool(2) conv(32, 3, b=0.3) relu maxpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, b=0.3) relu avgpool(2) conv(32, 3, b=0.3) relu avgpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, w=3, b=0.3) erf avgpool(2) conv(32, 3, w=3, b=0.3) erf avgpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, b=0.3) relu conv(32, 3, stride=2, b=0.3) relu flatten dense(20)",
];

/// A candidate and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The network that is drawn.
    pub net: String,
    /// Share of right classes on the training images that were kept back, by exact functions.
    pub accuracy: f64,
    /// Multiply-adds of one network on one image.
    pub multiply_adds: usize,
    /// Share of the kernel's trace in the k pairs.
    pub captured: f64,
}

/// A method and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The method.
    pub method: &'static str,
    /// The kernel.
    pub kernel: &'static str,
    /// Share of right classes among the test images.
    pub accuracy: f64,
    /// The same among the images that were fitted.
    pub fitted: f64,
    /// Seconds to find the functions, those for the samples not among them.
    pub seconds: f64,
    /// Drawn networks that must be run on a new image.
    pub networks: usize,
    /// Multiply-adds for a new image, in all.
    pub multiply_adds: usize,
    /// Mean over the pairs of `‖Kψ − μψ‖/μ‖ψ‖` over the fitted images, each at most one.
    pub residual: f64,
    /// `μ`, descending.
    pub eigenvalues: Vec<f64>,
    /// ψ at the test images `[test, k]`.
    #[serde(skip)]
    pub functions: Array2<f64>,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The networks that were tried.
    pub candidates: Vec<Candidate>,
    /// The one that was drawn.
    pub net: String,
    /// How many of it were drawn.
    pub networks: usize,
    /// Seconds that they took on all images.
    pub sampling_seconds: f64,
    /// Share of the kernel's trace in the k exact pairs.
    pub captured: f64,
    /// One a method.
    pub rows: Vec<Row>,
    /// Classes of the test images.
    #[serde(skip)]
    pub labels: Vec<usize>,
}

/// Images and their classes; the first `n` are fitted.
struct Images {
    /// `[points, d]`, every pixel of mean zero over the fitted ones, and all together of mean square one.
    x: Array2<f64>,
    labels: Vec<usize>,
    n: usize,
}

/// Logistic regression's classes.
const CLASSES: usize = 10;

impl Images {
    /// From images to fit and others.
    fn new(fit: &Dataset, other: &Dataset) -> Result<Images> {
        let mut labels = vec![];
        for set in [fit, other] {
            match &set.y {
                Some(Target::Classes { labels: of_set, names }) if names.len() == CLASSES => labels.extend(of_set),
                _ => return Err(Error::input(format!("`{}` does not have {CLASSES} classes", set.name))),
            }
        }
        let mut x = ndarray::concatenate(Axis(0), &[fit.x.view(), other.x.view()])
            .map_err(|_| Error::input("the images differ in size"))?;
        x -= &fit.x.mean_axis(Axis(0)).expect("there are images");
        let square = x.slice(s![..fit.n(), ..]).iter().map(|v| v * v).sum::<f64>() / fit.x.len() as f64;
        x /= square.sqrt().max(f64::MIN_POSITIVE);
        Ok(Images { x, labels, n: fit.n() })
    }

    fn fitted(&self) -> ArrayView2<'_, f64> {
        self.x.slice(s![..self.n, ..])
    }

    /// Shares of right classes by logistic regression on ψ `[points, k]`: at the fitted images and at the others.
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

/// Rows `from..to` of the named set.
fn rows(set: &Dataset, range: std::ops::Range<usize>) -> Result<Dataset> {
    if range.end > set.n() {
        return Err(Error::input(format!("`{}` has {} images; {} were asked for", set.name, set.n(), range.end)));
    }
    Ok(set.select(&range.collect::<Vec<_>>()))
}

/// Images that networks see at the same time: few enough for the cache, enough to share the work of drawing, or enough to
/// keep a GPU busy.
fn together(device: Device) -> usize {
    if device == Device::Cpu { 1000 } else { 10_000 }
}

/// `Fᵀ` `[points, S]`: the numbers of an image side by side, because batches gather images. Every output of a network is a
/// sample of its own. Outputs of one network are independent given its hidden layers only: S of them are worth fewer networks.
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
    let (together, parts) = (together(device), x.nrows().div_ceil(together(device)));
    let each = x.axis_chunks_iter(Axis(0), together).zip(f.axis_chunks_iter_mut(Axis(0), together));
    for (part, (x, mut f)) in each.enumerate() {
        context.progress.step("drawn networks", part, parts, "");
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

/// Networks to draw for S samples, and outputs of each.
fn drawn(net: &str, inputs: usize, samples: usize) -> Result<(usize, usize)> {
    let c = Network::parse(net, inputs, 1)?.outputs();
    match samples.is_multiple_of(c) {
        true => Ok((samples / c, c)),
        false => Err(Error::input(format!("{samples} samples are no multiple of the {c} outputs of \"{net}\""))),
    }
}

/// `Fᵀ` `[points, S]` as samples `[S, points, 1]`, without a copy.
fn as_samples(f: ArrayView2<'_, f64>) -> FunctionSamples<'_> {
    f.reversed_axes().insert_axis(Axis(2)).into()
}

/// Every candidate, by exact functions of training images and judged on other training images.
pub fn candidates(plan: &Plan, train: &Dataset, context: &FitContext<'_>) -> Result<Vec<Candidate>> {
    let kept_back = train.n().saturating_sub(plan.choice).max(plan.choice)..train.n();
    let images = Images::new(&rows(train, 0..plan.choice)?, &rows(train, kept_back)?)?;
    let judge = |net: &String| {
        let f = values_of_networks(net, images.x.view(), plan.choice_samples, plan.seed, context)?;
        let samples = LowRankOperator::of_samples(&as_samples(f.slice(s![..images.n, ..])), false)?;
        let context = FitContext { seed: plan.seed, ..*context };
        let problem = Problem { operator: &samples, k: plan.k, context };
        let exact = Spectrum::fit(&Krylov { tolerance: TOLERANCE }, &problem, None)?;
        let [_, accuracy] = images.accuracies(exact.transform(&as_samples(f.view()))?.view())?;
        Ok(Candidate {
            net: net.clone(),
            accuracy,
            multiply_adds: cost(net, &images)?,
            captured: exact.certificate.trace_captured,
        })
    };
    plan.candidates.iter().map(judge).collect()
}

/// Of the exact pairs' residuals.
const TOLERANCE: f64 = 1e-6;

/// Multiply-adds of one network on one image.
fn cost(net: &str, images: &Images) -> Result<usize> {
    Ok(Network::parse(net, images.x.ncols(), 1)?.multiply_adds())
}

/// MNIST from the folder `$MERCER_DATA`: chooses the network, draws S of it, and finds the functions by every method.
pub fn run(plan: &Plan, context: &FitContext<'_>) -> Result<Found> {
    let read = |name: &str| open(name, &ReadOptions::default());
    let (train, test) = (read("mnist")?, read("mnist(part=test)")?);
    let tried = candidates(plan, &train, context)?;
    let best = tried.iter().max_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    let net = best.ok_or_else(|| Error::input("there is no network to draw"))?.net.clone();
    let images = Images::new(&rows(&train, 0..plan.n)?, &rows(&test, 0..plan.test)?)?;
    drop((train, test));

    let start = Instant::now();
    // Other networks than those by which the architecture was chosen.
    let f = values_of_networks(&net, images.x.view(), plan.samples, plan.seed + 1, context)?;
    let sampling_seconds = start.elapsed().as_secs_f64();
    let (networks, _) = drawn(&net, images.x.ncols(), plan.samples)?;
    let multiply_adds = networks * cost(&net, &images)? + plan.samples * plan.k;
    let experiment = Experiment { plan, images: &images, networks, multiply_adds };
    let samples = LowRankOperator::of_samples(&as_samples(f.slice(s![..images.n, ..])), false)?;
    let operator = OnPoints::new(&samples, images.fitted())?;
    let context = FitContext { seed: plan.seed, ..*context };
    let problem = Problem { operator: &operator, k: plan.k, context };
    let everywhere = as_samples(f.view());

    let exact = Spectrum::fit(&Krylov { tolerance: TOLERANCE }, &problem, None)?;
    let captured = exact.certificate.trace_captured;
    let neural = |kind: Kind, network: &str, steps: u64| {
        let mut method = Neural::new(kind);
        method.architecture = Some(network.into());
        method.settings.steps = steps;
        method.settings.batch = plan.batch;
        // The published recipe has no early end.
        method.settings.patience = usize::MAX;
        Spectrum::fit(&method, &problem, None)
    };
    let neuralef = neural(Kind::NeuralEf { averaged: false }, &plan.functions, plan.steps)?;
    let joint = neural(Kind::NeuralEfJoint, &plan.functions, plan.steps)?;
    let ritz = neural(Kind::Ritz, &plan.trunk, plan.ritz_steps)?;
    let nystrom = Nystrom { landmarks: plan.landmarks, choice: Landmarks::Uniform };
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

/// What the methods share.
struct Experiment<'a> {
    plan: &'a Plan,
    images: &'a Images,
    /// How many were drawn.
    networks: usize,
    /// Multiply-adds of all of them on one image, and of `F(x)ᵀW`.
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

    /// Another kernel by Nyström's method with as many landmarks.
    fn landmarks(&self, name: &'static str, kernel: &str, context: &FitContext<'_>) -> Result<Row> {
        let (x, plan) = (self.images.fitted(), self.plan);
        let kernel = Expression::parse(kernel)?.resolve(x, plan.seed)?;
        let context = FitContext { precision: Precision::F32, ..*context };
        let operator = context.kernel_operator(&kernel, x)?;
        let method = Nystrom { landmarks: plan.landmarks, choice: Landmarks::Uniform };
        let found = Spectrum::fit(&method, &Problem { operator: &operator, k: plan.k, context }, None)?;
        Ok(Row { kernel: name, ..self.by_coordinates("Nyström", &found)? })
    }
}

/// The share of right classes that is published for NeuralEF on the kernel of such a network, and those of Nyström's method on
/// the polynomial and the RBF kernel.
pub const PUBLISHED: [(&str, &str, f64); 3] =
    [("NeuralEF", "CNN-GP", 0.8498), ("Nyström", "polynomial", 0.7800), ("Nyström", "RBF", 0.7755)];

/// NeuralEF with all penalties of a function taken together.
pub const JOINT: &str = "joint NeuralEF";

/// What was found, in a sentence.
pub fn verdict(found: &Found) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let of = |method: &str| found.rows.iter().find(|row| row.method == method);
    let (Some(plain), Some(joint)) = (of(PUBLISHED[0].0), of(JOINT)) else { return String::new() };
    let best = found.rows.iter().max_by(|a, b| a.accuracy.total_cmp(&b.accuracy)).unwrap_or(joint);
    let published = PUBLISHED[0].2;
    let side = if plain.accuracy >= published { "above" } else { "below" };
    format!(
        "logistic regression on NeuralEF's {} functions of the CNN-GP kernel is right on {} of the test images, {side} the \
         published {}, and on {} where a function's penalties are taken together; the best, {} ({}), on {}",
        plain.eigenvalues.len(),
        percent(plain.accuracy),
        percent(published),
        percent(joint.accuracy),
        best.method,
        best.kernel,
        percent(best.accuracy),
    )
}
