//! The Gaussian process of a convolutional network on MNIST: logistic regression on the values of its first eigenfunctions,
//! which are found without labels.
//!
//! The kernel is given by S random networks, `κ(x,x') = (1/S) Σ_s g(x,θ_s) g(x',θ_s)`. Its first k functions are computed by
//! NeuralEF (with the published penalties and with joint penalties), by Rayleigh–Ritz over the hidden units of a trained
//! network, exactly, and by the Nyström method, all from the same samples `F` `[S, n]`. They are compared with the polynomial
//! and the RBF kernel by the Nyström method. The architecture is chosen on training images only.

mod figures;

use crate::wide::tensor;
use crate::{Column, Options, Shown, report, sentence, table};
use figures::{ACCURACY, COLUMNS, COMPARED, COST, embeddings, overview};
use mercer::apply::{Fit, Logistic, Predict};
use mercer::compute::Device;
use mercer::data::{Dataset, ReadOptions, Target, open};
use mercer::kernel::Expression;
use mercer::net::Network;
use mercer::net::ntk::sample_networks;
use mercer::operator::{FunctionSamples, LowRankOperator, OnPoints, Precision};
use mercer::spectrum::neural::{Kind, NeuralEf, Ritz};
use mercer::spectrum::{Krylov, Landmarks, Nystrom, Problem, Spectrum};
use mercer::{Error, FitContext, Result, fail_if};
use mercer_figure::text;
use ndarray::{Array2, ArrayView2, Axis, s};
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

config! {
    /// Number of training images that are fitted, the first of the data set. The published experiment has 60 000.
    n: usize = 10_000; quick 1500,
    test: usize = 10_000; quick 500,
    /// S; each output of a random network counts as one sample.
    samples: usize = 2000; quick 200,
    /// Number of eigenfunctions.
    k: usize = 10,
    /// Candidate architectures of the random networks.
    candidates: Vec<String> = CANDIDATES.map(str::to_owned).to_vec();
        quick CANDIDATES[..2].iter().map(|net| (*net).to_owned()).collect(),
    /// Number of training images on which each candidate is fitted, and of validation images (the last training images).
    choice: usize = 2000; quick 500,
    /// S of each candidate.
    choice_samples: usize = 800; quick 100,
    /// NeuralEF has one network per function. In a shared trunk, the first function would dominate Adam's steps.
    functions: String = "conv(16, 7, stride=4) bn relu flatten dense(32) bn relu dense(1) l2norm".into(),
    /// Ritz has one wider network, whose last layer is solved.
    trunk: String = "conv(32, 7, stride=4) relu flatten dense(128) sincos dense(1)".into(),
    /// Training steps of NeuralEF. The published experiment has 20 000.
    steps: u64 = 1000; quick 100,
    ritz_steps: u64 = 300; quick 20,
    batch: usize = 256,
    landmarks: usize = 1000; quick 100,
}

/// The candidate networks: ReLU and erf, filters of two sizes, max or average pooling or strides. Each has twenty outputs,
/// because the hidden layers take most of the time.
const CANDIDATES: [&str; 5] = [
    "conv(16, 7, stride=2, pad=3, b=0.3) relu maxpool(2) conv(32, 3, b=0.3) relu maxpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, pad=2, b=0.3) relu maxpool(2) conv(32, 3, b=0.3) relu maxpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, pad=2, b=0.3) relu avgpool(2) conv(32, 3, b=0.3) relu avgpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, pad=2, w=3, b=0.3) erf avgpool(2) conv(32, 3, w=3, b=0.3) erf avgpool(2) flatten dense(20)",
    "conv(16, 5, stride=2, pad=2, b=0.3) relu conv(32, 3, stride=2, pad=1, b=0.3) relu flatten dense(20)",
];

#[derive(Serialize)]
struct Candidate {
    net: String,
    /// Accuracy of the exact functions on the validation images.
    accuracy: f64,
    /// Multiply-adds of one network on one image.
    multiply_adds: usize,
    /// Share of the kernel's trace in the k pairs.
    captured: f64,
}

#[derive(Serialize)]
struct Row {
    method: &'static str,
    kernel: &'static str,
    /// Accuracy on the test images.
    accuracy: f64,
    /// Accuracy on the fitted images.
    fitted: f64,
    /// Seconds to find the functions, without the time for the samples.
    seconds: f64,
    /// Number of random networks to evaluate for a new image.
    networks: usize,
    multiply_adds: usize,
    /// Mean over the pairs on the fitted images.
    residual: f64,
    eigenvalues: Vec<f64>,
    /// ψ at the test images `[test, k]`.
    #[serde(skip)]
    functions: Array2<f64>,
}

#[derive(Serialize)]
struct Found {
    candidates: Vec<Candidate>,
    /// The architecture that was chosen.
    net: String,
    networks: usize,
    /// Seconds to evaluate them on all images.
    sampling_seconds: f64,
    /// Share of the kernel's trace in the k exact pairs.
    captured: f64,
    rows: Vec<Row>,
    #[serde(skip)]
    labels: Vec<usize>,
}

impl Found {
    fn row(&self, method: &str) -> &Row {
        self.rows.iter().find(|row| row.method == method).expect("every method has a row")
    }
}

/// Images and their classes; the first `n` are fitted.
struct Images {
    /// `[points, d]`; over the fitted images each pixel has mean zero, and the mean square of all pixels is one.
    x: Array2<f64>,
    labels: Vec<usize>,
    n: usize,
}

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
    fail_if!(range.end > set.n(), "`{}` has {} images, but {} are needed", set.name, set.n(), range.end);
    Ok(set.select(&range.collect::<Vec<_>>()))
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
    let (networks, network) = drawn(net, x.ncols(), samples)?;
    let c = network.outputs();
    let device = context.device;
    // On the CPU few enough for the cache, on a GPU enough to keep it busy.
    let at_once = if device == Device::Cpu { 1000 } else { 10_000 };
    let parts = x.nrows().div_ceil(at_once);
    let each = x.axis_chunks_iter(Axis(0), at_once).zip(f.axis_chunks_iter_mut(Axis(0), at_once));
    for (part, (x, mut f)) in each.enumerate() {
        context.progress.step("random networks", part, parts, "");
        let pixels = tensor(x, device)?;
        sample_networks(net, &pixels, networks, seed, |s, values| {
            let mut outputs = f.slice_mut(s![.., s * c..(s + 1) * c]);
            outputs.iter_mut().zip(values).for_each(|(f, v)| *f = f64::from(*v));
            Ok(())
        })?;
    }
    Ok(f)
}

/// Number of random networks for S samples, and one of them.
fn drawn(net: &str, inputs: usize, samples: usize) -> Result<(usize, Network)> {
    let network = Network::parse(net, inputs, 1)?;
    let c = network.outputs();
    match samples.is_multiple_of(c) {
        true => Ok((samples / c, network)),
        false => Err(Error::input(format!("{samples} samples are not a multiple of the {c} outputs of \"{net}\""))),
    }
}

/// `Fᵀ` `[points, S]` as samples `[S, points, 1]`, without a copy.
fn as_samples(f: ArrayView2<'_, f64>) -> FunctionSamples<'_> {
    f.reversed_axes().insert_axis(Axis(2)).into()
}

/// Evaluates all candidates: exact functions are fitted on training images and validated on other training images.
fn candidates(config: &Config, train: &Dataset, context: &FitContext<'_>) -> Result<Vec<Candidate>> {
    let kept_back = train.n().saturating_sub(config.choice).max(config.choice)..train.n();
    let images = Images::new(&rows(train, 0..config.choice)?, &rows(train, kept_back)?)?;
    let judge = |net: &String| {
        let f = values_of_networks(net, images.x.view(), config.choice_samples, config.seed, context)?;
        let samples = LowRankOperator::of_samples(&as_samples(f.slice(s![..images.n, ..])), false)?;
        let context = FitContext { seed: config.seed, ..*context };
        let problem = Problem { operator: &samples, k: config.k, context };
        let exact = Spectrum::fit(&Krylov::to(TOLERANCE), &problem, None)?;
        let [_, accuracy] = images.accuracies(exact.transform(&as_samples(f.view()))?.view())?;
        Ok(Candidate {
            net: net.clone(),
            accuracy,
            multiply_adds: drawn(net, images.x.ncols(), config.choice_samples)?.1.multiply_adds(),
            captured: exact.certificate.trace_captured,
        })
    };
    config.candidates.iter().map(judge).collect()
}

const TOLERANCE: f64 = 1e-6;

/// Runs the experiment on MNIST from the folder `$MERCER_DATA`: chooses the architecture, samples random networks, and
/// computes the functions by all methods.
fn run(config: &Config, context: &FitContext<'_>) -> Result<Found> {
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
    let (networks, network) = drawn(&net, images.x.ncols(), config.samples)?;
    let multiply_adds = networks * network.multiply_adds() + config.samples * config.k;
    let experiment = Experiment { config, images: &images, networks, multiply_adds };
    let samples = LowRankOperator::of_samples(&as_samples(f.slice(s![..images.n, ..])), false)?;
    let operator = OnPoints::new(&samples, images.fitted())?;
    let context = FitContext { seed: config.seed, ..*context };
    let problem = Problem { operator: &operator, k: config.k, context };
    let everywhere = as_samples(f.view());

    let exact = Spectrum::fit(&Krylov::to(TOLERANCE), &problem, None)?;
    let captured = exact.certificate.trace_captured;
    let neural = |kind: Kind, network: &str, steps: u64| {
        Spectrum::fit(&crate::neural(kind, Some(network), steps, config.batch), &problem, None)
    };
    let neuralef = neural(NeuralEf::Published.into(), &config.functions, config.steps)?;
    let joint = neural(NeuralEf::Joint.into(), &config.functions, config.steps)?;
    let ritz = neural(Ritz.into(), &config.trunk, config.ritz_steps)?;
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

struct Experiment<'a> {
    config: &'a Config,
    images: &'a Images,
    networks: usize,
    /// Multiply-adds of all networks on one image, and of `F(x)ᵀW`.
    multiply_adds: usize,
}

impl Experiment<'_> {
    /// The accuracies of ψ `[points, k]`, which take the drawn networks at a new image.
    fn row(&self, method: &'static str, found: &Spectrum, psi: Array2<f64>) -> Result<Row> {
        let [fitted, accuracy] = self.images.accuracies(psi.view())?;
        Ok(Row {
            method,
            kernel: "CNN-GP",
            accuracy,
            fitted,
            seconds: found.origin.seconds,
            networks: self.networks,
            multiply_adds: self.multiply_adds,
            residual: found.certificate.mean_residual(),
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
const PUBLISHED: [(&str, &str, f64); 3] =
    [("NeuralEF", "CNN-GP", 0.8498), ("Nyström", "polynomial", 0.7800), ("Nyström", "RBF", 0.7755)];

/// Name of NeuralEF with joint penalties.
const JOINT: &str = "joint NeuralEF";

/// What was found; compared with the published value unless the run is a `quick` one, which is too small for that.
fn verdict(found: &Found, quick: bool) -> String {
    let (plain, joint) = (found.row(PUBLISHED[0].0), found.row(JOINT));
    let best = found.rows.iter().max_by(|a, b| a.accuracy.total_cmp(&b.accuracy)).unwrap_or(joint);
    let side = if plain.accuracy >= PUBLISHED[0].2 { "above" } else { "below" };
    let [of_plain, published, of_joint, of_best] =
        [plain.accuracy, PUBLISHED[0].2, joint.accuracy, best.accuracy].map(percent);
    let compared = if quick { String::new() } else { format!(", {side} the published {published} %") };
    let (k, Row { method, kernel, .. }) = (plain.eigenvalues.len(), best);
    format!(
        "logistic regression on NeuralEF's {k} functions of the CNN-GP kernel has a test accuracy of {of_plain} %{compared}, \
         and of {of_joint} % with joint penalties; the best, {method} ({kernel}), has {of_best} %"
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let config = Config {
        n: options.train.unwrap_or(config.n),
        test: options.test.unwrap_or(config.test),
        steps: options.steps.unwrap_or(config.steps),
        ..config
    };
    let found = run(&config, context)?;
    let verdict = verdict(&found, options.quick);
    let columns: Vec<Column<Row>> =
        COLUMNS.into_iter().filter(|(name, _)| !options.quick || *name != COMPARED).collect();
    let place = |heading: &str| columns.iter().position(|(name, _)| *name == heading).unwrap_or(0);
    let methods = table(&found.rows, &columns).key(2);
    let text = format!("CNN-GP of {}\n{}\n{}\n", found.net, methods.text(), sentence(&verdict));
    let candidates = table(
        &found.candidates,
        &[
            ("network", |c| c.net.clone()),
            ("validation accuracy, %", |c| percent(c.accuracy)),
            ("multiply-adds", |c| text::grouped(c.multiply_adds)),
            ("trace captured", |c| format!("{:.3}", c.captured)),
        ],
    );
    let figure = overview(&found, options.quick);
    let compared = if options.quick { "" } else { ", and the published values" };
    let title = "The Gaussian process of a convolutional network, on MNIST";
    let report = report(title, &verdict, &setting(&config, &found))
        .section("Accuracy and cost")
        .figure(
            &figure,
            &format!(
                "Left: test accuracy of logistic regression on the values of the functions{compared}. Right: eigenvalues of the \
                 CNN-GP kernel by each method."
            ),
        )
        .table(methods.highest(place(ACCURACY)).lowest(place(COST)).caption(
            "Residual: mean over the pairs on the fitted images, each method with its own kernel. Seconds do not \
             include the time for the samples, which the methods on CNN-GP share.",
        ))
        .text(&costs(&found))
        .section("The digits in the first coordinates")
        .figure(&embeddings(&found), "Test images in the coordinates of the functions, coloured by digit; no label was used to find them.")
        .section("Which network")
        .text(
            "The architecture determines the kernel, and so how well ten functions can classify. Each candidate was evaluated by its \
             exact functions on training images held out for validation; the test images were not used. The candidates are the \
             best of twelve that were compared in the same way before, so the accuracy of the best one is slightly optimistic.",
        )
        .table(candidates.highest(1));
    let numbers = json!({ "plan": config, "found": found, "verdict": verdict });
    Ok(Shown { figure, report, text, numbers })
}

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

fn setting(config: &Config, found: &Found) -> String {
    let [samples, networks, n, test, steps, ritz_steps, landmarks] = [
        config.samples,
        found.networks,
        config.n,
        config.test,
        config.steps as usize,
        config.ritz_steps as usize,
        config.landmarks,
    ]
    .map(text::grouped);
    let Config { k, functions, batch, trunk, .. } = config;
    let (net, time, captured) = (&found.net, text::seconds(found.sampling_seconds), text::percent(found.captured));
    format!(
        "The kernel κ(x,x') = E[g(x,θ) g(x',θ)] of the network {net} with random weights, by {samples} samples ({networks} networks, \
         each output is a sample) on {n} training and {test} test images of MNIST (each pixel centred, one scale for all), which took \
         {time}. The {k} exact pairs hold {captured} of its trace.\n\n\
         NeuralEF trains {k} networks {functions} for {steps} steps on batches of {batch} and ends with Rayleigh–Ritz: once with the \
         published penalties Σ R_ij²/R_ii on function j, i < j, and once with joint penalties rᵀR⁻¹r, where R and r are those of all \
         functions before it. The two agree once the earlier functions are orthogonal. Before that, and on every batch, all functions \
         have a component of about 1/√B along the first one. The first eigenvalue of this kernel is so large that separate penalties \
         count this component several times, and the later functions need many more steps. Ritz trains the hidden units of {trunk} \
         for {ritz_steps} steps and solves the last layer. Exact functions come from block Krylov iteration on FᵀF/S without forming \
         the matrix; the Nyström method uses {landmarks} landmarks drawn uniformly. The polynomial kernel is (x·x'/784 + 1.5)⁴; the \
         lengthscale of the RBF is the median distance.\n\n\
         The features are ψ(x), each scaled to mean 0 and variance 1, so that √μ ψ(x) gives the same result; multinomial logistic \
         regression on them has a ridge of 1e-5 on the mean loss and is solved by Newton's method to a gradient of 1e-8."
    )
}

/// The cost of a new image, in words.
fn costs(found: &Found) -> String {
    let (neural, exact) = (found.row(JOINT), found.row("exact"));
    let times = text::grouped(exact.multiply_adds / neural.multiply_adds.max(1));
    format!(
        "On the CNN-GP kernel, exact functions and the Nyström method take little time once the samples are computed, because \
         κ(x,x') = F(x)·F(x')/S. But each new image must pass through {} random networks, which costs {times} times the multiply-adds \
         of the networks trained by NeuralEF.",
        text::grouped(found.networks)
    )
}
