//! The uncertainty of a network that was trained on CIFAR-10 by others: every method of `mercer laplace` on one checkpoint.
//!
//! The checkpoint has seen all training images, so prior precisions, amplitudes and temperatures are found on the test images, in folds: on all
//! folds but one, by the loss, and measured on that one. All folds together are the test set. This holds for every method alike.
//!
//! What does not depend on the folds is done once for each method: its structure, and the passes over all images.

use crate::uncertainty::{angles, folds, rotated};
use crate::{Column, Options, Shown, report, sentence, table};
use mercer::apply::Predict;
use mercer::classifier::{Cases, Classifier, Detection, Estimate, Measure, Unnamed};
use mercer::data::{Dataset, ReadOptions, open};
use mercer::laplace::{Laplace, Method, NetworkKind, Outputs, Prior, Structured};
use mercer::{Error, FitContext, Result, fail_if};
use mercer_figure::report::Table;
use mercer_figure::{Plot, text};
use ndarray::{Array2, ArrayView2, s};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

config! {
    /// The checkpoint, as PyTorch saved it; its name is the network's.
    file: PathBuf = PathBuf::new(),
    /// Training images that curvatures are taken at.
    train: usize = 10_000; quick 200,
    /// Test images.
    test: usize = 10_000; quick 200,
    folds: usize = 5; quick 2,
    /// Images are turned by up to so many degrees.
    degrees: Vec<f64> = vec![10.0, 20.0, 30.0, 60.0, 90.0, 180.0]; quick vec![30.0],
    /// Test images that are turned by any other angle than the published one, and images of each other distribution, at most.
    others: usize = 2000; quick 100,
    /// Methods that take more passes than this to predict see the test images and those turned by up to `published_degrees` only.
    passes: f64 = 3.0,
    /// The angle that published figures are for.
    published_degrees: f64 = 30.0,
    /// Whether methods of more passes than that take part.
    many_passes: bool = true; quick false,
    /// Names of the methods beside the baselines; all if there are none.
    methods: Vec<String> = vec![],
}

/// What the network's author subtracted from images in [0, 1], and divided them by.
const MEAN: [f64; 3] = [0.4914, 0.4822, 0.4465];
const SPREAD: [f64; 3] = [0.2023, 0.1994, 0.2010];

/// Published on the same checkpoints, means of five seeds: network, method, NLL, ECE, NLL of images turned by up to 30°.
const PUBLISHED: [(&str, &str, f64, f64, Option<f64>); 12] = [
    ("resnet20", "MAP", 0.2815, 0.0390, Some(1.550)),
    ("resnet20", "last layer", 0.2566, 0.0204, None),
    ("resnet20", "last layer, Kronecker", 0.2659, 0.0239, None),
    ("resnet20", "ELLA, lowest of each over its settings", 0.231, 0.005, Some(1.20)),
    ("resnet20", "VaLLA", 0.2273, 0.0131, None),
    ("resnet20", "FMGP", 0.2275, 0.0074, Some(1.133)),
    ("resnet56", "MAP", 0.2523, 0.0374, None),
    ("resnet56", "last layer", 0.2002, 0.0152, None),
    ("resnet56", "last layer, Kronecker", 0.2037, 0.0241, None),
    ("resnet56", "ELLA, lowest of each over its settings", 0.188, 0.007, None),
    ("resnet56", "VaLLA", 0.1837, 0.0100, None),
    ("resnet56", "FMGP", 0.1830, 0.0096, None),
];

/// The images of a run.
struct Images {
    network: Arc<Classifier>,
    train: Dataset,
    test: Dataset,
    /// For each of the settings' degrees, turned test images, the first ones.
    turned: Vec<Array2<f64>>,
    /// Images of other distributions, with their names.
    others: Vec<(String, Array2<f64>)>,
}

/// A method over all folds.
#[derive(Serialize)]
struct Measured {
    method: String,
    nll: Estimate,
    ece: Estimate,
    adaptive_ece: Estimate,
    brier: Estimate,
    accuracy: Estimate,
    /// NLL less that of temperature scaling, by paired bootstrap.
    against_temperature: Option<Estimate>,
    /// For each of the settings' degrees; none where the method did not see these images.
    turned_nll: Vec<Option<f64>>,
    /// For each other distribution, how well the entropy of the probabilities separates its images from the test images.
    detections: Vec<Option<Detection>>,
    /// Mean seconds of a fit by itself, the pass over the validation images and the search on them included.
    fit_seconds: f64,
    /// Seconds to predict the test images of a fold, in those of the network alone.
    relative_time: f64,
    #[serde(skip)]
    predict_seconds: f64,
    #[serde(skip)]
    cases: Cases,
}

/// Scores `[n, C]` of a method over all folds; none for images that it did not see.
struct Scores {
    test: Array2<f64>,
    turned: Vec<Option<Array2<f64>>>,
    others: Vec<Option<Array2<f64>>>,
    fit_seconds: f64,
    predict_seconds: f64,
}

/// What one structure says of the images, whatever is found on the folds; none for images that its method does not see.
struct Passed {
    structured: Structured,
    test: Outputs,
    turned: Vec<Option<Outputs>>,
    others: Vec<Option<Outputs>>,
    /// Seconds of the structure, and of the pass over the test images.
    seconds: [f64; 2],
}

fn load(config: &Config, context: &FitContext) -> Result<Images> {
    context.progress.step("reading CIFAR-10", 0, 1, "");
    let few = |source: &str, n: usize| -> Result<Dataset> {
        let all = open(source, &ReadOptions::default())?;
        all.select(&(0..n.min(all.n())).collect::<Vec<_>>()).with_classes()
    };
    let (train, test) = (few("cifar-10", config.train)?, few("cifar-10(part=test)", config.test)?);
    let name = name(config);
    let unnamed = Unnamed { mean: &MEAN, spread: &SPREAD, ..Unnamed::new(&name, &train) };
    let network = Arc::new(Classifier::load(&config.file, context.device, Some(unnamed))?);
    let image = test.shape.ok_or_else(|| Error::input("the rows of CIFAR-10 are no images"))?;
    // What is outside an image is zero after its author's scaling.
    let turn = |degrees: &f64| {
        let n = if *degrees == config.published_degrees { test.n() } else { config.others.min(test.n()) };
        let angles = &angles(test.n(), *degrees, context.seed)[..n];
        rotated(test.x.rows().slice(0..n).to_f64().view(), image, angles, &network.standardizer.mean)
    };
    let turned = config.degrees.iter().map(turn).collect();
    let others = others(config)?;
    Ok(Images { network, train, test, turned, others })
}

/// The name of the checkpoint without its extension.
fn name(config: &Config) -> String {
    config.file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The images of the folder `ood` beside the data, bytes scaled to [0, 1].
fn others(config: &Config) -> Result<Vec<(String, Array2<f64>)>> {
    let Some(folder) = data_folder() else { return Ok(vec![]) };
    let mut found = vec![];
    for (name, file) in [("SVHN", "svhn-crops.npz"), ("CIFAR-100", "cifar100-test.npz")] {
        let path = folder.join("ood").join(file);
        if path.is_file() {
            let all: Dataset = open(&path.to_string_lossy(), &ReadOptions::default())?;
            let x = all.select(&(0..config.others.min(all.n())).collect::<Vec<_>>()).x.to_f64().into_owned();
            let scale = if x.iter().any(|v| *v > 1.0) { 255.0 } else { 1.0 };
            found.push((name.to_owned(), x / scale));
        }
    }
    Ok(found)
}

fn data_folder() -> Option<PathBuf> {
    std::env::var_os("MERCER_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Whether a method predicts in so few passes that it sees every set of images.
fn takes_few_passes(laplace: &Laplace, images: &Images, config: &Config) -> Result<bool> {
    Ok(laplace.cost(&images.network, images.train.n())?.predict <= config.passes)
}

/// The structure of a method, and the passes over the images that it sees.
fn passed(laplace: &Laplace, images: &Images, config: &Config, context: &FitContext) -> Result<Passed> {
    let sees_all = takes_few_passes(laplace, images, config)?;
    let (name, sets) =
        (laplace.method.name(), if sees_all { 2 + images.turned.len() + images.others.len() } else { 3 });
    let start = Instant::now();
    context.progress.step(name, 0, sets, "the structure");
    let structured = laplace.structured(&images.network, &images.train, context)?;
    let structure = start.elapsed().as_secs_f64();
    let mut done = 0;
    let mut pass = |x: ArrayView2<f64>| {
        done += 1;
        context.progress.step(name, done, sets, "passes over sets of images");
        structured.outputs(x)
    };
    let start = Instant::now();
    let test = pass(images.test.x.to_f64().view())?;
    let seconds = [structure, start.elapsed().as_secs_f64()];
    let mut turned = vec![];
    for (x, degrees) in images.turned.iter().zip(&config.degrees) {
        let sees = sees_all || *degrees == config.published_degrees;
        turned.push(sees.then(|| pass(x.view())).transpose()?);
    }
    let others =
        images.others.iter().map(|(_, x)| sees_all.then(|| pass(x.view())).transpose()).collect::<Result<_>>()?;
    Ok(Passed { structured, test, turned, others, seconds })
}

/// Tunes a method on every choice of folds but one and predicts that one.
fn scores(laplace: &Laplace, passed: &Passed, images: &Images, config: &Config, seed: u64) -> Result<Scores> {
    let c = images.network.network.outputs();
    let empty = |outputs: &Outputs| Array2::zeros((outputs.n(), c));
    let all_empty = |sets: &[Option<Outputs>]| sets.iter().map(|set| set.as_ref().map(empty)).collect();
    let mut found = Scores {
        test: empty(&passed.test),
        turned: all_empty(&passed.turned),
        others: all_empty(&passed.others),
        fit_seconds: passed.seconds[0],
        predict_seconds: 0.0,
    };
    let parts = folds(images.test.n(), config.folds, seed);
    for (k, part) in parts.iter().enumerate() {
        let rest: Vec<usize> =
            (0..parts.len()).filter(|other| *other != k).flat_map(|other| parts[other].clone()).collect();
        let start = Instant::now();
        let (outputs, validation) = (passed.test.select(&rest), images.test.select(&rest));
        let fitted = passed.structured.tuned(laplace, Some((&outputs, &validation)))?;
        // Of a fit by itself: the pass over its validation images, and what is found there.
        let share = rest.len() as f64 / images.test.n() as f64;
        found.fit_seconds += (start.elapsed().as_secs_f64() + share * passed.seconds[1]) / parts.len() as f64;
        if k == 0 {
            let x = images.test.x.select(part).into_f64();
            let start = Instant::now();
            fitted.scores(x.view())?;
            found.predict_seconds = start.elapsed().as_secs_f64();
        }
        let fill = |scores: &mut Array2<f64>, outputs: &Outputs, rows: &[usize]| -> Result<()> {
            let new = fitted.scores_of(&outputs.select(rows))?;
            rows.iter().zip(new.rows()).for_each(|(&row, new)| scores.slice_mut(s![row, ..]).assign(&new));
            Ok(())
        };
        fill(&mut found.test, &passed.test, part)?;
        for (scores, outputs) in found.turned.iter_mut().flatten().zip(passed.turned.iter().flatten()) {
            let rows: Vec<usize> = part.iter().copied().filter(|row| *row < outputs.n()).collect();
            fill(scores, outputs, &rows)?;
        }
        for (scores, outputs) in found.others.iter_mut().flatten().zip(passed.others.iter().flatten()) {
            fill(scores, outputs, &(k..outputs.n()).step_by(parts.len()).collect::<Vec<_>>())?;
        }
    }
    Ok(found)
}

/// The entropies `[n]` of `softmax(s)`.
fn entropies(scores: &Array2<f64>) -> Vec<f64> {
    let entropy = |s: ndarray::ArrayView1<f64>| {
        let most = s.fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        let total: f64 = s.iter().map(|s| (s - most).exp()).sum();
        let log_p = s.mapv(|s| s - most - total.ln());
        -log_p.iter().map(|l| l * l.exp()).sum::<f64>()
    };
    scores.rows().into_iter().map(entropy).collect()
}

fn measured(name: String, found: &Scores, images: &Images, seed: u64) -> Result<Measured> {
    let labels = images.test.target()?.labels_for(&images.network.classes)?;
    let cases = Cases::of(found.test.view(), &labels);
    let turned = |scores: &Array2<f64>| Cases::of(scores.view(), &labels[..scores.nrows()]).measure(Measure::Nll);
    let inside = entropies(&found.test);
    let detection = |scores: &Array2<f64>| Detection::of(&inside, &entropies(scores), seed);
    let [nll, ece, adaptive_ece, brier, accuracy] = cases.estimates(Measure::ALL, seed);
    Ok(Measured {
        method: name,
        nll,
        ece,
        adaptive_ece,
        brier,
        accuracy,
        against_temperature: None,
        turned_nll: found.turned.iter().map(|scores| scores.as_ref().map(turned)).collect(),
        detections: found.others.iter().map(|scores| scores.as_ref().map(detection)).collect(),
        fit_seconds: found.fit_seconds,
        relative_time: 1.0,
        predict_seconds: found.predict_seconds,
        cases,
    })
}

/// The methods that are compared, those of few multiply-adds to predict first.
fn methods(images: &Images, config: &Config) -> Result<Vec<Laplace>> {
    let mut all = vec![];
    for method in Method::all_for(NetworkKind::default()) {
        let laplace = Laplace { prior: Prior::Validation, ..Laplace::new(method) };
        let cost = laplace.cost(&images.network, images.train.n())?.predict;
        let named = config.methods.iter().any(|name| *name == method.name());
        let wanted = if config.methods.is_empty() { config.many_passes || cost <= config.passes } else { named };
        if wanted || !method.has_posterior() {
            all.push((cost, laplace));
        }
    }
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    Ok(all.into_iter().map(|(_, laplace)| laplace).collect())
}

/// Measures each method by itself and, where it has a posterior, with a temperature.
fn run(config: &Config, images: &Images, context: &FitContext) -> Result<Vec<Measured>> {
    let mut all = vec![];
    for laplace in methods(images, config)? {
        let (name, passed) = (laplace.method.name(), passed(&laplace, images, config, context)?);
        let mut measure = |name: String, laplace: &Laplace| -> Result<()> {
            context.progress.step(&name, 0, 1, "precisions and temperatures on the folds");
            let found = scores(laplace, &passed, images, config, context.seed)?;
            all.push(measured(name, &found, images, context.seed)?);
            Ok(())
        };
        measure(name.to_owned(), &laplace)?;
        if laplace.method.has_posterior() {
            measure(format!("{name}, tempered"), &Laplace { tempered: true, ..laplace })?;
        }
    }
    let place = |name: &str| all.iter().position(|m: &Measured| m.method == name).expect("baselines come first");
    let (alone, temperature) = (all[place("map")].predict_seconds, all[place("temperature")].cases.clone());
    for measured in &mut all {
        measured.relative_time = measured.predict_seconds / alone;
        if measured.method != "temperature" {
            measured.against_temperature = Some(measured.cases.difference(&temperature, Measure::Nll, context.seed));
        }
    }
    Ok(all)
}

fn range(Estimate { value, interval: [low, high] }: Estimate, digits: usize) -> String {
    format!("{value:.digits$} ({low:.digits$} … {high:.digits$})")
}

fn signed(Estimate { value, interval: [low, high] }: Estimate) -> String {
    format!("{value:+.4} ({low:+.4} … {high:+.4})")
}

fn measures(all: &[Measured]) -> Table {
    let columns: [Column<Measured>; 8] = [
        ("method", |m| m.method.clone()),
        ("NLL", |m| range(m.nll, 4)),
        ("ECE", |m| range(m.ece, 4)),
        ("Brier", |m| range(m.brier, 4)),
        ("accuracy", |m| text::percent(m.accuracy.value)),
        ("NLL − temperature", |m| m.against_temperature.map_or_else(|| text::GAP.into(), signed)),
        ("fit", |m| text::seconds(m.fit_seconds)),
        ("prediction", |m| format!("{}× MAP", text::number(m.relative_time, 2))),
    ];
    table(all, &columns)
}

/// NLL of turned images, and images of other distributions.
fn shifts(all: &[Measured], images: &Images, config: &Config) -> Table {
    let mut headings = vec!["method".to_owned()];
    headings.extend(config.degrees.iter().map(|degrees| format!("±{degrees}°")));
    headings.extend(images.others.iter().map(|(name, _)| format!("{name}, AUROC / AUPR")));
    let gap = || text::GAP.to_owned();
    let row = |m: &Measured| {
        let mut cells = vec![m.method.clone()];
        cells.extend(m.turned_nll.iter().map(|nll| nll.map_or_else(gap, |nll| format!("{nll:.3}"))));
        let detected = |d: &Detection| format!("{:.3} / {:.3}", d.auroc.value, d.aupr.value);
        cells.extend(m.detections.iter().map(|d| d.as_ref().map_or_else(gap, detected)));
        cells
    };
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    Table::of(&headings, &all.iter().map(row).collect::<Vec<_>>())
}

fn published(config: &Config) -> Table {
    let name = name(config);
    let row = |(_, method, nll, ece, turned): &(&str, &str, f64, f64, Option<f64>)| {
        let turned = turned.map_or_else(|| text::GAP.into(), |nll| format!("{nll:.3}"));
        vec![(*method).to_owned(), format!("{nll:.4}"), format!("{ece:.4}"), turned]
    };
    let rows: Vec<Vec<String>> = PUBLISHED.iter().filter(|(network, ..)| *network == name).map(row).collect();
    Table::of(&["published", "NLL", "ECE", "NLL at ±30°"], &rows)
}

fn figure(all: &[Measured], config: &Config) -> String {
    let mut plot = Plot::new("Turned images").x("largest angle").y("NLL");
    for m in all.iter().filter(|m| !m.method.contains("tempered")) {
        let seen = config.degrees.iter().zip(&m.turned_nll).filter_map(|(degrees, nll)| Some((*degrees, (*nll)?)));
        let (angles, values): (Vec<f64>, Vec<f64>) = std::iter::once((0.0, m.nll.value)).chain(seen).unzip();
        plot = plot.line(m.method.clone(), &angles, &values).markers();
    }
    plot.svg()
}

fn verdict(all: &[Measured]) -> String {
    let best = all.iter().min_by(|a, b| a.nll.value.total_cmp(&b.nll.value)).expect("there are methods");
    let against = best
        .against_temperature
        .map_or_else(String::new, |gap| format!("; against temperature scaling that is {}", signed(gap)));
    let (nll, ece) = (range(best.nll, 4), best.ece.value);
    format!("{} has the lowest NLL, {nll}, with ECE {ece:.4}{against}", best.method)
}

fn setting(config: &Config) -> String {
    let Config { train, test, folds, .. } = config;
    let [train, test] = [*train, *test].map(text::grouped);
    format!(
        "The checkpoint {} with the scaling of its author. Curvatures are taken at {train} training images. What is searched for \
         (prior precisions, amplitudes, temperatures) has the least loss on {} of {folds} folds of {test} test images and is measured on the other \
         one, for every method alike; the folds together are the test set. Turned images have an angle each, uniform within the bounds, the \
         nearest pixel, and the mean colour outside, as the published figures have; nothing is searched for on them. Methods that take more \
         than {} passes to predict see, besides the test images, only those turned by up to {}°. Intervals of 95 % are by bootstrap, differences \
         by paired bootstrap. The form of fixed-mean, the numbers that its temperature and amplitude depend on and the prior on its covariance, was chosen \
         after results on these folds, turned images included, were seen.",
        name(config),
        folds - 1,
        config.passes,
        config.published_degrees
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let usual = || data_folder().map(|folder| folder.join("cifar10-resnets/resnet20.safetensors"));
    let file = options.net.clone().or_else(usual).unwrap_or_default();
    let (train, test) = (options.train.unwrap_or(config.train), options.test.unwrap_or(config.test));
    let config = Config { file, train, test, methods: options.methods.clone(), ..config };
    let all = Method::all_for(NetworkKind::default());
    let possible: Vec<&str> = all.iter().filter(|method| method.has_posterior()).map(Method::name).collect();
    if let Some(unknown) = config.methods.iter().find(|name| !possible.contains(&name.as_str())) {
        return Err(Error::input(format!("there is no method {unknown:?}; choose among {}", possible.join(", "))));
    }
    fail_if!(
        !Path::new(&config.file).is_file(),
        "this experiment needs a checkpoint of a network for CIFAR-10, such as resnet20.safetensors; name its file"
    );
    fail_if!(config.test < 2 * config.folds, "{} test images are too few for {} folds", config.test, config.folds);
    let images = load(&config, context)?;
    let all = run(&config, &images, context)?;
    let (figure, verdict) = (figure(&all, &config), verdict(&all));
    let tables = [measures(&all), shifts(&all, &images, &config), published(&config)];
    let texts: Vec<String> = tables.iter().map(Table::text).collect();
    let text = format!("{}\n\n{}\n{}\n", setting(&config), texts.join("\n"), sentence(&verdict));
    let [measures, shifts, published] = tables;
    let report = report("Uncertainty of a network on CIFAR-10", &verdict, &setting(&config))
        .section("Test images")
        .table(measures.caption("In brackets, intervals of 95 %."))
        .table(published.caption("Published figures on the same checkpoint, means of five seeds; not measured here."))
        .section("Turned images and other distributions")
        .table(shifts.caption("NLL of test images turned by up to so many degrees; other images found by the entropy."))
        .figure(&figure, "NLL over the largest angle by which test images are turned.");
    Ok(Shown { figure, report, numbers: json!({ "plan": config, "methods": all, "verdict": verdict }), text })
}
