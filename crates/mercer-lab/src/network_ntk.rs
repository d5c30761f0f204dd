//! The empirical NTK of a trained network on airplanes and automobiles, approximated at test images by a few functions.
//!
//! The network is reduced to one output, `g(x)` = logit(automobile) − logit(airplane), and `Θ(x,x') = ∂_θg(x)·∂_θg(x')` over all
//! weights, with batch norms folded. The reference is Θ at test images, by the structured derivatives of each layer. The methods
//! use the training images only, with the sampled kernel `FᵀF/S`, `F_s(x) = ∂_θg(x)·v_s` for S random sign vectors `v_s`.

use crate::{Options, Shown, indices, method_colour, report, sentence, table};
use mercer::classifier::{Classifier, Settings, train};
use mercer::compute::{Device, Math, Tensor};
use mercer::data::{Dataset, ReadOptions, Target, catalogue, open};
use mercer::linalg::{eigh, matmul};
use mercer::net::Network;
use mercer::net::ntk::{Derivative, Directions, EmpiricalNtk, Law};
use mercer::operator::{LowRankOperator, OnPoints};
use mercer::rng::Rng;
use mercer::spectrum::neural::{Neural, NeuralEf};
use mercer::spectrum::{Krylov, Problem, Spectrum};
use mercer::{Error, FitContext, Result, fail_if};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array2, Array3, ArrayView2, Axis, concatenate, s};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

config! {
    /// A file with a trained network ([`Classifier::load`]); without it, [`Config::architecture`] is trained.
    file: Option<PathBuf> = None,
    /// The network that is trained if no file is given.
    architecture: String = "conv(16, 3, stride=2, pad=1) bn relu conv(32, 3, stride=2, pad=1) bn relu conv(32, 3, stride=2, pad=1) bn relu \
                            gap dense(2)".into(),
    /// Number of images that it is trained on.
    learnt: usize = 4000; quick 600,
    epochs: u64 = 8; quick 3,
    /// Number of training images whose kernel is fitted.
    train: usize = 600; quick 200,
    /// Number of test images at which the kernels are compared.
    test: usize = 200; quick 60,
    /// Number S of random directions.
    directions: usize = 600; quick 200,
    /// Number of eigenfunctions, of random features and of landmarks.
    k: usize = 10,
    /// Architecture of NeuralEF's networks.
    functions: String = "conv(8, 3, stride=2, pad=1) relu conv(16, 3, stride=2, pad=1) relu conv(32, 3, stride=2, pad=1) relu flatten \
                         dense(1) l2norm".into(),
    steps: u64 = 300; quick 60,
    batch: usize = 128; quick 64,
}

/// One approximation of the kernel at the test images.
#[derive(Serialize)]
struct Row {
    name: String,
    /// `‖K̂ − K‖/‖K‖` in the Frobenius norm.
    error: f64,
    /// The same without the diagonal.
    off_diagonal: f64,
    /// The passes that a new image needs, in words.
    passes: String,
    multiply_adds: usize,
}

#[derive(Serialize)]
struct Found {
    /// The network with batch norms folded.
    net: String,
    parameters: usize,
    /// Accuracy of the network (sign of g) on the test images.
    accuracy: f64,
    rows: Vec<Row>,
    /// Largest eigenvalues of the sampled kernel on the training images.
    exact: Vec<f64>,
    neural: Vec<f64>,
    /// Share of the sampled kernel's trace in the k exact pairs.
    captured: f64,
    /// Number of airplanes among the test images; they come first.
    airplanes: usize,
    /// Seconds for the network, the reference, the directions and NeuralEF.
    seconds: [f64; 4],
    /// Θ, NeuralEF's kernel and that of k random features at the test images, `[n, n]` each.
    #[serde(skip)]
    kernels: [Array2<f64>; 3],
}

/// The two classes, in the order of the images.
const CLASSES: [&str; 2] = ["airplane", "automobile"];

fn run(config: &Config, context: &FitContext<'_>) -> Result<Found> {
    let device = context.device;
    fail_if!(
        config.train < config.k || config.test < config.k || config.directions < config.k,
        "{} training images, {} test images and {} directions are too few for {} functions",
        config.train,
        config.test,
        config.directions,
        config.k
    );
    let start = Instant::now();
    let (classifier, fit, test) = trained(config, device, context)?;
    let network_seconds = start.elapsed().as_secs_f64();
    let pair = pair_of_logits(&classifier)?;
    let (net, theta) = classifier.network.fold(&classifier.parameters)?;
    let ntk = EmpiricalNtk::new(&net, &theta)?;

    // The reference, and the values of Θ at test images and landmarks that Nyström needs.
    let (start, x) = (Instant::now(), classifier.standardizer.apply(&test.x, device)?);
    context.progress.step("the kernel at the test images", 0, 1, "");
    let truth = of_difference(&ntk, &x, None, pair)?;
    let chosen = Rng::new(config.seed).fork(5).sample(config.train, config.k);
    let landmarks = classifier.standardizer.apply(&fit.x.select(&chosen), device)?;
    let across = of_difference(&ntk, &x, Some(&landmarks), pair)?;
    let among = of_difference(&ntk, &landmarks, None, pair)?;
    let truth_seconds = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let all = concatenate(Axis(0), &[fit.x.to_f64().view(), test.x.to_f64().view()]).expect("rows of equal length");
    let f = derivatives(&ntk, &net, &classifier.standardizer.apply(all.view(), device)?, pair, config, context)?;
    let direction_seconds = start.elapsed().as_secs_f64();
    let (f_fit, f_test) = (f.slice(s![.., ..config.train, ..]), f.slice(s![.., config.train.., ..]));

    let samples = LowRankOperator::of_samples(&f_fit.into(), false)?;
    let x = fit.x.to_f64();
    let operator = OnPoints::new(&samples, x.view())?;
    let problem = Problem { operator: &operator, k: config.k, context: FitContext { seed: config.seed, ..*context } };
    let exact = Spectrum::fit(&Krylov::to(1e-6), &problem, None)?;
    let mut method = Neural::new(NeuralEf::Joint);
    method.architecture = Some(config.functions.clone());
    (method.settings.steps, method.settings.batch) = (config.steps, config.batch);
    let neural = Spectrum::fit(&method, &problem, None)?;

    let by_functions = of_pairs(&neural.eigenvalues, &neural.transform(test.x.rows())?);
    let by_extension = of_pairs(&exact.eigenvalues, &exact.transform(&f_test.into())?);
    let features = f_test.index_axis(Axis(2), 0);
    let by_features = of_features(features.slice(s![..config.k, ..]));

    // A JVP costs two forward passes, and so does a gradient.
    let (forward, k, count) = (net.multiply_adds(), config.k, config.directions);
    let functions = Network::parse(&config.functions, net.inputs(), k)?.multiply_adds();
    let row = |name: String, kernel: &Array2<f64>, passes: String, multiply_adds: usize| Row {
        error: relative_error(kernel, &truth, true),
        off_diagonal: relative_error(kernel, &truth, false),
        name,
        passes,
        multiply_adds,
    };
    let along = |s: usize| format!("1 forward pass and {s} along directions");
    let rows = vec![
        row(format!("NeuralEF, k = {k}"), &by_functions, format!("{k} forward passes of its networks"), functions),
        row(format!("random features, S = {k}"), &by_features, along(k), (2 * k + 1) * forward),
        row(
            format!("Nyström, {k} landmarks"),
            &nystroem(&across, &among)?,
            format!("1 forward and 1 backward pass, {k} stored gradients"),
            3 * forward + k * net.parameters(),
        ),
        row(format!("exact top {k} of FᵀF/S, extended"), &by_extension, along(count), (2 * count + 1) * forward),
        row(format!("random features, S = {count}"), &of_features(features), along(count), (2 * count + 1) * forward),
        row(format!("best of rank {k}, from Θ itself"), &best_of_rank(&truth, k)?, "all of Θ".into(), 3 * forward),
    ];
    let logits = classifier.logits(&test.x)?;
    let labels = test.target()?.labels_for(&classifier.classes)?;
    let correct = (0..test.n()).filter(|&i| (logits[[i, pair[1]]] > logits[[i, pair[0]]]) == (labels[i] == 1));
    Ok(Found {
        net: net.expression(),
        parameters: net.trained(),
        accuracy: correct.count() as f64 / test.n() as f64,
        rows,
        captured: exact.certificate.trace_captured,
        exact: exact.eigenvalues.clone(),
        neural: neural.eigenvalues.clone(),
        airplanes: labels.iter().filter(|l| **l == 0).count(),
        seconds: [network_seconds, truth_seconds, direction_seconds, neural.origin.seconds],
        kernels: [truth, by_functions, by_features],
    })
}

/// The network, the images to fit and the test images.
fn trained(config: &Config, device: Device, context: &FitContext<'_>) -> Result<(Classifier, Dataset, Dataset)> {
    if !catalogue().iter().any(|entry| entry.name == "cifar-10" && entry.present) {
        return Err(Error::input(
            "this experiment needs CIFAR-10: unpack https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, and set the \
             environment variable MERCER_DATA to the folder that holds its files in a folder called cifar-10",
        ));
    }
    context.progress.step("reading CIFAR-10", 0, 1, "");
    let images = open("cifar-10", &ReadOptions::default())?;
    let fit = two_classes(&images, config.train)?;
    let classifier = match &config.file {
        Some(file) => Classifier::load(file, device, None)?,
        None => {
            let all = two_classes(&images, config.learnt.max(config.train))?;
            let start = Classifier::new(&config.architecture, &all, device, config.seed)?;
            let settings = Settings { epochs: config.epochs, augment: true, seed: config.seed, ..Settings::default() };
            train(start, &all, None, &settings, context, &|_| ())?.classifier
        }
    };
    fail_if!(
        classifier.network.inputs() != fit.d(),
        "the network takes rows of {} numbers; images of CIFAR-10 have {}",
        classifier.network.inputs(),
        fit.d()
    );
    let test = two_classes(&open("cifar-10(part=test)", &ReadOptions::default())?, config.test)?;
    Ok((classifier, fit, test))
}

/// The first `n` images of the two classes, equally many of each, sorted by class.
fn two_classes(set: &Dataset, n: usize) -> Result<Dataset> {
    let Some(Target::Classes { labels, names }) = &set.y else {
        return Err(Error::input("the images of CIFAR-10 have no classes"));
    };
    let rows = CLASSES.map(|class| (0..set.n()).filter(|i| names[labels[*i]] == class).collect::<Vec<usize>>());
    let wanted = [n.div_ceil(2), n / 2];
    fail_if!(
        (0..2).any(|c| rows[c].len() < wanted[c]),
        "{n} airplanes and automobiles are needed, but the files of CIFAR-10 have {}",
        rows[0].len() + rows[1].len()
    );
    let x = set.x.select(&[&rows[0][..wanted[0]], &rows[1][..wanted[1]]].concat()).into_f64();
    let labels = (0..n).map(|i| usize::from(i >= wanted[0])).collect();
    let classes = CLASSES.map(String::from).to_vec();
    let y = Target::Classes { labels, names: classes };
    Ok(Dataset { shape: set.shape, ..Dataset::new(&set.name, x, Some(y))? })
}

/// The indices of the two classes among the outputs of the network.
fn pair_of_logits(classifier: &Classifier) -> Result<[usize; 2]> {
    let classes = &classifier.classes;
    let [Some(a), Some(b)] = CLASSES.map(|class| classes.iter().position(|c| c == class)) else {
        let found = classes.join(", ");
        return Err(Error::input(format!("the network must have the classes airplane and automobile; it has {found}")));
    };
    Ok([a, b])
}

/// Θ `[n, m]` of `g = g_b − g_a`: `Θ_aa − Θ_ab − Θ_ba + Θ_bb`.
fn of_difference(ntk: &EmpiricalNtk, x: &Tensor, other: Option<&Tensor>, pair: [usize; 2]) -> Result<Array2<f64>> {
    let theta = x.device().enter(|| ntk.exact(x, other, &pair))?;
    let (n, m, ..) = theta.dim();
    let entry = |i: usize, j: usize, a: usize, b: usize| f64::from(theta[[i, j, a, b]]);
    Ok(Array2::from_shape_fn((n, m), |(i, j)| {
        entry(i, j, 0, 0) - entry(i, j, 0, 1) - entry(i, j, 1, 0) + entry(i, j, 1, 1)
    }))
}

/// Largest memory of a pass over a block of points, in bytes.
const PASS: usize = 8 << 30;

/// `F_s(x_n) = ∂_θg(x_n)·v_s` `[S, n, 1]`. Products are in TF32 if the device has it; its relative error of 1e-3 is far below the
/// error of S random directions.
fn derivatives(
    ntk: &EmpiricalNtk,
    net: &Network,
    x: &Tensor,
    [a, b]: [usize; 2],
    config: &Config,
    context: &FitContext<'_>,
) -> Result<Array3<f64>> {
    let (n, c, device) = (x.shape()[0], net.outputs(), x.device());
    let seed = Rng::new(config.seed).fork(2).next_u64();
    let directions = Directions { count: config.directions, law: Law::Rademacher, derivative: Derivative::Exact, seed };
    // A residual block stores the outputs of its layers, which are several times as large as its own output.
    let block = (PASS / (8 * net.bytes_per_point())).clamp(1, n);
    let mut f = Array3::zeros((config.directions, n, 1));
    for start in (0..n).step_by(block) {
        let rows: Vec<usize> = (start..n.min(start + block)).collect();
        let mut points = Tensor::zeros(device, &[0])?;
        mercer::compute::gather_rows(x, &rows, &mut points)?;
        let (end, f) = (start + rows.len(), &mut f);
        device.with_math(Math::Tf32, || {
            device.enter(|| {
                ntk.directions(&points, &directions, |s, values| {
                    context.progress.step(&format!("directions at {end} of {n} images"), s + 1, config.directions, "");
                    let to = f.slice_mut(s![s, start..end, 0]).into_iter();
                    to.zip(values.chunks_exact(c)).for_each(|(f, v)| *f = f64::from(v[b]) - f64::from(v[a]));
                    Ok(())
                })
            })
        })?;
    }
    Ok(f)
}

/// `Σ_j μ_j ψ_j(x) ψ_j(x')` for ψ `[n, k]`.
fn of_pairs(values: &[f64], psi: &Array2<f64>) -> Array2<f64> {
    let mut scaled = psi.clone();
    scaled.columns_mut().into_iter().zip(values).for_each(|(mut column, μ)| column *= *μ);
    matmul(scaled.view(), psi.t())
}

/// `FᵀF/S` for F `[S, n]`.
fn of_features(f: ArrayView2<f64>) -> Array2<f64> {
    matmul(f.t(), f) / f.nrows() as f64
}

/// `K_nm K_mm⁺ K_mn`.
fn nystroem(across: &Array2<f64>, among: &Array2<f64>) -> Result<Array2<f64>> {
    let (values, vectors) = eigh(Device::Cpu, among.view())?;
    let least = 1e-6 * values.first().copied().unwrap_or(0.0);
    let inverse: Vec<f64> = values.iter().map(|λ| if *λ > least { 1.0 / λ } else { 0.0 }).collect();
    Ok(of_pairs(&inverse, &matmul(across.view(), vectors.view())))
}

/// The best approximation of `K` of rank k.
fn best_of_rank(kernel: &Array2<f64>, k: usize) -> Result<Array2<f64>> {
    let (values, vectors) = eigh(Device::Cpu, kernel.view())?;
    Ok(of_pairs(&values[..k], &vectors.slice(s![.., ..k]).to_owned()))
}

/// `‖K̂ − K‖/‖K‖` over all entries, or only those off the diagonal.
fn relative_error(kernel: &Array2<f64>, truth: &Array2<f64>, diagonal: bool) -> f64 {
    let sum = |value: &dyn Fn(f64, f64) -> f64| -> f64 {
        let entries = kernel.indexed_iter().zip(truth).filter(|(((i, j), _), _)| diagonal || i != j);
        entries.map(|((_, k), t)| value(*k, *t).powi(2)).sum()
    };
    (sum(&|k, t| k - t) / sum(&|_, t| t)).sqrt()
}

fn verdict(config: &Config, found: &Found) -> String {
    let error = |i: usize| format!("{:.3}", found.rows[i].error);
    let [neural, features, landmarks, best] = [0, 1, 2, 5].map(error);
    let Config { test, k, .. } = config;
    format!(
        "at {test} test images the relative Frobenius error of the empirical NTK is {neural} with {k} functions of NeuralEF and \
         {features} with {k} random features; it is {landmarks} for Nyström with {k} landmarks, and at best {best} for rank {k}"
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let config = Config {
        file: options.net.clone(),
        train: options.train.unwrap_or(config.train),
        test: options.test.unwrap_or(config.test),
        directions: options.directions.unwrap_or(config.directions),
        ..config
    };
    let found = run(&config, context)?;
    let verdict = verdict(&config, &found);
    let kernels = table(
        &found.rows,
        &[
            ("kernel", |row| row.name.clone()),
            ("‖K̂−K‖/‖K‖", |row| format!("{:.4}", row.error)),
            ("off the diagonal", |row| format!("{:.4}", row.off_diagonal)),
            ("passes for a new image", |row| row.passes.clone()),
            ("multiply-adds for a new image", |row| text::grouped(row.multiply_adds)),
        ],
    );
    let figure = matrices(&config, &found);
    let text = format!(
        "{}, {} parameters, test accuracy {}\n{}\n{}\n",
        found.net,
        text::grouped(found.parameters),
        text::percent(found.accuracy),
        kernels.text(),
        sentence(&verdict)
    );
    let report = report("The empirical NTK of a trained network", &verdict, &setting(&config, &found))
        .section("The kernel at test images")
        .figure(
            &figure,
            "The kernel at test images, first airplanes, then automobiles. All panels have one colour scale; blue is negative, red \
             positive.",
        )
        .table(kernels.caption(format!(
            "Relative Frobenius errors at the {} test images, and the cost of the features of a new image. A derivative along a \
             direction costs two forward passes, and so does a backward pass.",
            text::grouped(config.test)
        )))
        .section("The spectrum")
        .figure(&spectrum(&found), "Eigenvalues of the sampled kernel over the training images.")
        .text(&format!(
            "The {} pairs hold {} of the sampled kernel's trace.",
            config.k,
            text::percent(found.captured)
        ));
    let numbers = json!({ "plan": config, "found": found, "verdict": verdict });
    Ok(Shown { figure, report, text, numbers })
}

fn setting(config: &Config, found: &Found) -> String {
    let [learnt, steps, parameters, train, test, directions] = [
        config.learnt.max(config.train),
        config.steps as usize,
        found.parameters,
        config.train,
        config.test,
        config.directions,
    ]
    .map(text::grouped);
    let Config { epochs, k, functions, batch, .. } = config;
    let origin = match &config.file {
        Some(file) => format!("The network comes from {}", file.display()),
        None => format!("The network was trained here on {learnt} images for {epochs} epochs"),
    };
    let (net, accuracy) = (&found.net, text::percent(found.accuracy));
    let [network_time, truth_time, directions_time, neural_time] = found.seconds.map(text::seconds);
    format!(
        "{origin}: {net}, {parameters} parameters; batch norms are folded into the weights. The output is g = logit(automobile) − \
         logit(airplane), which has the right sign at {accuracy} of the test images, and the kernel is Θ(x,x') = ∂g(x)·∂g(x') over \
         all parameters. The reference at {test} test images is Θ itself, by the structured derivatives of each layer. The sampled \
         kernel FᵀF/S of {train} training images comes from exact derivatives along S = {directions} directions of random signs. \
         NeuralEF trains {k} networks ({functions}) on it for {steps} steps with batches of {batch} images and ends with \
         Rayleigh–Ritz; its kernel at new images is Σ μ ψ(x)ψ(x'). The exact top {k} pairs of the same sampled kernel come from \
         Krylov iteration and are extended to new images by derivatives along the same directions. Nyström uses {k} training images \
         as landmarks and Θ itself. The data and the network took {network_time}, the reference {truth_time}, the directions \
         {directions_time} and NeuralEF {neural_time}."
    )
}

/// The three kernels on one colour scale: the 99th percentile of the absolute values of the reference, so that a few large
/// values do not hide the others.
fn matrices(config: &Config, found: &Found) -> String {
    let [truth, by_functions, by_features] = &found.kernels;
    let mut sizes: Vec<f64> = truth.iter().map(|v| v.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let scale = sizes[(sizes.len() - 1) * 99 / 100];
    let panel = |title: String, kernel: &Array2<f64>| {
        let values: Vec<f64> = kernel.iter().copied().collect();
        Plot::new(title).matrix("", [kernel.nrows(), kernel.ncols()], &values).diverging().scale(-scale, scale)
    };
    let row = |i: usize| found.rows[i].error;
    Grid::new("The empirical NTK at test images, airplanes first", 3)
        .panel_size(260.0, 260.0)
        .one_scale("Θ")
        .panel(panel("exact".into(), truth))
        .panel(panel(format!("NeuralEF, k = {}: error {:.3}", config.k, row(0)), by_functions))
        .panel(panel(format!("random features, S = {}: error {:.3}", config.k, row(1)), by_features))
        .svg()
}

fn spectrum(found: &Found) -> String {
    let j = indices(found.exact.len());
    Plot::new("Eigenvalues over the training images")
        .x("pair")
        .y_log("eigenvalue")
        .line("exact", &j, &found.exact)
        .markers()
        .colour(method_colour("exact"))
        .line("NeuralEF", &j, &found.neural)
        .markers()
        .colour(method_colour("NeuralEF"))
        .dashed()
        .svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_approximations_follow_their_formulas() {
        let f = ndarray::array![[1.0, 2.0, 0.5], [0.0, 1.0, -1.0]];
        let kernel = of_features(f.view());
        assert!((kernel[[0, 1]] - 1.0).abs() < 1e-15 && (kernel[[1, 2]] - 0.0).abs() < 1e-15);
        // The kernel has rank two, so rank two and two landmarks both reproduce it.
        let best = best_of_rank(&kernel, 2).unwrap();
        let by_landmarks =
            nystroem(&kernel.slice(s![.., ..2]).to_owned(), &kernel.slice(s![..2, ..2]).to_owned()).unwrap();
        for all in [best, by_landmarks] {
            assert!(relative_error(&all, &kernel, true) < 1e-12);
        }
        let zero = Array2::zeros((3, 3));
        assert_eq!(relative_error(&zero, &kernel, true), 1.0);
        let mut changed = kernel.clone();
        changed[[1, 1]] = 7.0;
        assert_eq!(relative_error(&changed, &kernel, false), 0.0);
    }
}
