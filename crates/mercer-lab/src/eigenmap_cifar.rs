//! The published size of `eigenmap`: ResNet-18 trained on views of CIFAR-10, its ordered code beside random units and principal components of the
//! same network, on CIFAR-10 and, without training again, on CIFAR-100.

use crate::retrieval::{Code, Judge, Pair, classes, in_words, principal, with_codes};
use crate::{Options, Shown, compared, report, sentence, table};
use mercer::apply::{EmbeddingCode, Fit, FittedCode, Logistic, Predict, Together, Transform, ViewEigenmap, ViewRows};
use mercer::compute::{Math, Rule};
use mercer::data::{Dataset, ReadOptions, open};
use mercer::net::ScheduleKind;
use mercer::rng::Rng;
use mercer::spectrum::neural::{PairObjective, Settings, SimClr, neighbour_accuracy};
use mercer::{Error, FitContext, Result};
use mercer_figure::report::Table;
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array2, Axis, s};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

config! {
    net: &'static str = "resnet18",
    /// Coordinates: all units of the network before the projector.
    k: usize = 512,
    projector: usize = 2048,
    epochs: u64 = 400,
    batch: usize = 512,
    learning_rate: f64 = 0.24,
    weight_decay: f32 = 5e-4,
    /// Training and test images at most.
    train: usize = 50_000,
    test: usize = 10_000,
    lengths: Vec<usize> = vec![4, 8, 16, 32],
    /// How many times as long the random codes are, and how many are drawn.
    factor: usize = 16,
    draws: usize = 3,
    /// Test images whose whole ranking gives the mean average precision.
    ranked: usize = 2000,
    /// Images of CIFAR-100 that are looked for among the others.
    queries: usize = 2000,
    /// Of which nearest images each of a pair must be, where units are ordered by their neighbours. Chosen on training images of CIFAR-10.
    neighbours: usize = 20,
    /// Of the weights of linear classifiers.
    decay: f64 = 1e-4,
}

/// What neighbours and a linear classifier tell by the first coordinates.
#[derive(Serialize)]
struct Accuracy {
    length: usize,
    /// Whether they are units and not coordinates of the code.
    units: bool,
    neighbours: f64,
    linear: f64,
}

/// Mean average precision of the codes of one set.
#[derive(Serialize)]
struct Retrieved {
    set: &'static str,
    items: usize,
    queries: usize,
    codes: Vec<Code>,
}

#[derive(Serialize)]
struct Results {
    #[serde(rename = "plan")]
    config: Config,
    augmentation: String,
    /// Seconds of training, the finish and the certificate.
    seconds: f64,
    eigenvalues: Vec<f64>,
    captured: f64,
    residual: f64,
    /// Seconds of everything after that.
    judging: f64,
    accuracy: Vec<Accuracy>,
    /// By all units themselves.
    units: Accuracy,
    retrieved: Vec<Retrieved>,
}

/// Ordered by views of the training images.
const ORDERED: &str = "first m of the code";
/// The units of the set itself, ordered by its neighbours, without labels and without training.
const NEAR: &str = "first m of the code by neighbours";
const PRINCIPAL: &str = "PCA of the units";
const RANDOM: &str = "16 m random units";

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let mut config = Config::new(options, context.seed);
    config.train = options.train.unwrap_or(config.train);
    config.test = options.test.unwrap_or(config.test);
    if let Some(steps) = options.steps {
        config.epochs = steps.saturating_mul(config.batch as u64).div_ceil(config.train as u64);
    }
    let found = run(config, options.checkpoint.clone(), context)?;
    let verdict = format!(
        "on the test images of CIFAR-10 twenty neighbours by the units have {}, a linear classifier {}; {}",
        text::percent(found.units.neighbours),
        text::percent(found.units.linear),
        found.retrieved.iter().map(against).collect::<Vec<_>>().join("; ")
    );
    let Config { net, k, projector, epochs, batch, .. } = &found.config;
    let other = match found.retrieved.len() {
        1 => "CIFAR-100 is not there (ood/cifar100-test.npz in the folder of the data) and is left out.".into(),
        _ => format!(
            "of CIFAR-100, which training does not see, {} test images are looked for among the others, by the same code, and by the units of these others, ordered by their own neighbours.",
            text::grouped(found.config.queries)
        ),
    };
    let setting = format!(
        "{} images of CIFAR-10 without their classes, views by {}; {net} with a projector of {projector} and {k} units, {epochs} epochs of SimCLR by SGD in batches of {batch} pairs, \
         ended by Rayleigh–Ritz on views by the units before the projector: {} in all. The code by neighbours is Rayleigh–Ritz on pairs of items, each \
         among the {} nearest of the other by angle, without labels: it needs no views and no training. Items are the training images and the queries test images; {other} An item is relevant if it has the query's class. Random units are means over {} draws; principal components are those of the items' units.",
        text::grouped(found.config.train),
        found.augmentation,
        text::seconds(found.seconds),
        found.config.neighbours,
        found.config.draws,
    );
    let (accuracies, codes) = (accuracy_table(&found), retrieval_table(&found));
    let figure = figure(&found);
    let text = format!("{}\n{setting}\n{}\n{}", sentence(&verdict), accuracies.text(), codes.text());
    let page = report("Codes from views of CIFAR-10", &verdict, &setting)
        .section("Codes")
        .figure(&figure, "Mean average precision over the whole ranking of all items, against the length m.")
        .table(accuracies.caption("Accuracy on the test images by the first coordinates of the code."))
        .table(codes.key(3).caption("In brackets, intervals of 95 % by bootstrap over queries."));
    let expected = "the first m coordinates of an ordered code tell at least as much as 16 m random coordinates of a code without order, and as m principal components.";
    let report = compared(page, expected, &sentence(&verdict));
    Ok(Shown { figure, report, numbers: json!(found), text })
}

/// At which lengths ordered codes are at least as good as the others, in words.
fn against(found: &Retrieved) -> String {
    let of = |name: &'static str| found.codes.iter().filter(move |c| c.code == name);
    let at = |first: &'static str, other: &'static str| -> String {
        let better = of(first).zip(of(other)).filter(|(a, b)| a.map.value >= b.map.value);
        let lengths: Vec<String> = better.map(|(a, _)| a.length.to_string()).collect();
        if lengths.is_empty() { "at no m".into() } else { format!("at m = {}", lengths.join(", ")) }
    };
    let said = |first: &&'static str| {
        format!(
            "on {} the {first} are at least as good as {RANDOM} {}, and as {PRINCIPAL} {}",
            found.set,
            at(first, RANDOM),
            at(first, PRINCIPAL)
        )
    };
    [ORDERED, NEAR].iter().filter(|name| of(name).next().is_some()).map(said).collect::<Vec<_>>().join("; ")
}

fn accuracy_table(found: &Results) -> Table {
    table(
        found.accuracy.iter().chain([&found.units]),
        &[
            ("coordinates", |a| if a.units { format!("all {} units", a.length) } else { a.length.to_string() }),
            ("20 neighbours", |a| text::percent(a.neighbours)),
            ("linear", |a| text::percent(a.linear)),
        ],
    )
}

fn retrieval_table(found: &Results) -> Table {
    let rows: Vec<(&str, &Code)> =
        found.retrieved.iter().flat_map(|set| set.codes.iter().map(|code| (set.set, code))).collect();
    table(
        &rows,
        &[
            ("set", |(set, _)| (*set).into()),
            ("m", |(_, c)| c.length.to_string()),
            ("code", |(_, c)| c.code.into()),
            ("coordinates", |(_, c)| c.coordinates.to_string()),
            ("mAP", |(_, c)| in_words(&c.map)),
        ],
    )
}

fn figure(found: &Results) -> String {
    let mut grid = Grid::new("Codes of any length", 2).panel_size(340.0, 270.0);
    for set in &found.retrieved {
        let mut plot = Plot::new(set.set).x_log("m").y("mean average precision");
        for (i, name) in [ORDERED, PRINCIPAL, RANDOM, NEAR].into_iter().enumerate() {
            let of: Vec<&Code> = set.codes.iter().filter(|c| c.code == name).collect();
            if !of.is_empty() {
                plot = with_codes(plot, name, |c| c.length as f64, &of).colour(i);
            }
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

fn run(config: Config, checkpoint: Option<PathBuf>, context: &FitContext<'_>) -> Result<Results> {
    let start = Instant::now();
    let [train, test] = [("train", config.train), ("test", config.test)]
        .map(|(part, most)| first(open(&format!("cifar-10(part={part})"), &ReadOptions::default()), most));
    let (train, test) = (train?, test?);
    let [fit, held_out] = [rows(&train)?, rows(&test)?];
    let code = estimator(&config, checkpoint).fit(&fit, Some(&held_out), context)?;
    let augmentation = code.origin.kernel.trim_start_matches("views by ").to_owned();
    let seconds = start.elapsed().as_secs_f64();
    let (labels, wanted) = (classes(&train)?, classes(&test)?);
    let [codes, units] = both(&code, [&fit.x, &held_out.x])?;
    let known = Known { train: &train, test: &test, labels: &labels, wanted: &wanted, decay: config.decay };
    let centred = centred(&units);
    let of_units = Accuracy { units: true, ..known.accuracy(&centred, units[0].ncols(), context)? };
    context.progress.step("accuracy of all units", 1, 1, &of_units.words());
    let ranked = Rng::new(config.seed).fork(0x7261_6e6b).sample(test.n(), config.ranked.min(test.n()));
    let few = |pair: &Pair| [pair[0].clone(), pair[1].select(Axis(0), &ranked)];
    let asked = ranked.iter().map(|&i| wanted[i]).collect();
    let judge = Judge { items: labels.clone(), queries: asked, seed: config.seed };
    let ordered = [(ORDERED, few(&codes)), (NEAR, by_neighbours(&few(&units), &config, context)?)];
    let mut retrieved = vec![compare("CIFAR-10", &judge, &ordered, &few(&units), &config, context)?];
    if let Some(other) = cifar100()? {
        let (items, queries) = apart(&other, &config)?;
        let [codes, units] = both(&code, [&rows(&items)?.x, &rows(&queries)?.x])?;
        let judge = Judge { items: classes(&items)?, queries: classes(&queries)?, seed: config.seed };
        let near = by_neighbours(&units, &config, context)?;
        retrieved.push(compare("CIFAR-100", &judge, &[(ORDERED, codes), (NEAR, near)], &units, &config, context)?);
    }
    let mut lengths = config.lengths.clone();
    lengths.extend([64, 128, 256].into_iter().filter(|m| *m < codes[0].ncols()));
    lengths.push(codes[0].ncols());
    let mut accuracy = vec![];
    for (i, &m) in lengths.iter().enumerate() {
        accuracy.push(known.accuracy(&codes, m, context)?);
        context.progress.step(&format!("accuracy, m = {m}"), i + 1, lengths.len(), &accuracy[i].words());
    }
    let FittedCode { eigenvalues, certificate, .. } = &code;
    let (eigenvalues, captured, residual) = (eigenvalues.clone(), certificate.captured, certificate.mean_residual());
    let (units, judging) = (of_units, start.elapsed().as_secs_f64() - seconds);
    Ok(Results { config, augmentation, seconds, eigenvalues, captured, residual, judging, accuracy, units, retrieved })
}

/// Images whose classes are known, and those whose classes are wanted.
struct Known<'a> {
    train: &'a Dataset,
    test: &'a Dataset,
    labels: &'a [usize],
    wanted: &'a [usize],
    decay: f64,
}

impl Known<'_> {
    /// By the first m coordinates of codes of both.
    fn accuracy(&self, codes: &Pair, m: usize, context: &FitContext) -> Result<Accuracy> {
        let [known, asked] = codes.each_ref().map(|codes| codes.slice(s![.., ..m.min(codes.ncols())]));
        let neighbours = neighbour_accuracy((asked, self.wanted), (known, self.labels));
        let logistic = Logistic { alpha: self.decay, tolerance: 1e-6, ..Logistic::default() };
        let linear = match (&self.train.y, &self.test.y) {
            (Some(y), Some(wanted)) => logistic.fit(known, y, context)?.accuracy(asked, wanted)?,
            _ => unreachable!("both have classes"),
        };
        Ok(Accuracy { length: m, units: false, neighbours, linear })
    }
}

impl Accuracy {
    fn words(&self) -> String {
        let [neighbours, linear] = [self.neighbours, self.linear].map(text::percent);
        format!("20 neighbours {neighbours}, linear {linear}")
    }
}

/// Units less the means of the items.
fn centred(units: &Pair) -> Pair {
    let mean = units[0].mean_axis(Axis(0)).expect("there are items");
    units.each_ref().map(|units| units - &mean)
}

/// Units in the order that neighbours among the items give them.
fn by_neighbours(units: &Pair, config: &Config, context: &FitContext) -> Result<Pair> {
    let code = EmbeddingCode::new(units[0].ncols(), Together::Neighbours(config.neighbours));
    let code = code.fit(units[0].view(), context)?;
    Ok([code.transform(units[0].view())?, code.transform(units[1].view())?])
}

fn estimator(config: &Config, checkpoint: Option<PathBuf>) -> ViewEigenmap {
    ViewEigenmap {
        projector: Some(config.projector),
        drop_projector: true,
        objective: PairObjective::from(SimClr::default()),
        epochs: config.epochs,
        settings: Settings {
            batch: config.batch,
            rule: Rule::Sgd { momentum: 0.9, weight_decay: config.weight_decay },
            learning_rate: config.learning_rate,
            schedule: ScheduleKind::WarmupCosine,
            math: Math::Bf16,
            resume: checkpoint.is_some(),
            checkpoint,
            ..Settings::default()
        },
        ..ViewEigenmap::new(config.net, config.k)
    }
}

/// Codes and units of items and queries.
fn both(code: &FittedCode, images: [&Array2<f64>; 2]) -> Result<[Pair; 2]> {
    let [items, queries] = images;
    let codes = [code.transform(items.view())?, code.transform(queries.view())?];
    Ok([codes, [code.units(items.view())?, code.units(queries.view())?]])
}

/// The first coordinates of ordered codes beside principal components and random units.
fn compare(
    set: &'static str,
    judge: &Judge,
    ordered: &[(&'static str, Pair)],
    units: &Pair,
    config: &Config,
    context: &FitContext,
) -> Result<Retrieved> {
    let (p, components) = (units[0].ncols(), principal(units.each_ref())?);
    let centred = centred(units);
    let mut rng = Rng::new(config.seed).fork(0x756e_6974);
    let drawn: Vec<Pair> = (0..config.draws)
        .map(|_| {
            let order = rng.sample(p, p);
            centred.each_ref().map(|units| units.select(Axis(1), &order))
        })
        .collect();
    let mut found = vec![];
    for (i, &m) in config.lengths.iter().enumerate() {
        for (name, codes) in ordered {
            found.push(judge.code(m, name, m.min(codes[0].ncols()), std::slice::from_ref(codes))?);
        }
        found.push(judge.code(m, PRINCIPAL, m.min(p), std::slice::from_ref(&components))?);
        found.push(judge.code(m, RANDOM, (config.factor * m).min(p), &drawn)?);
        let words = |c: &Code| format!("{} {:.4}", c.code, c.map.value);
        let of_length: Vec<String> = found.iter().filter(|c| c.length == m).map(words).collect();
        context.progress.step(&format!("{set}, m = {m}"), i + 1, config.lengths.len(), &of_length.join(", "));
    }
    Ok(Retrieved { set, items: judge.items.len(), queries: judge.queries.len(), codes: found })
}

fn first(data: Result<Dataset>, most: usize) -> Result<Dataset> {
    let data = data?;
    Ok(if data.n() > most { data.select(&(0..most).collect::<Vec<_>>()) } else { data })
}

fn rows(data: &Dataset) -> Result<ViewRows> {
    let x = data.x.to_f64().into_owned();
    Ok(ViewRows { image: data.shape, labels: Some(classes(data)?), ..ViewRows::new(x) })
}

/// The test images of CIFAR-100 in the folder `ood` beside the data, where they are there; bytes are scaled to [0, 1], as those of CIFAR-10 are.
fn cifar100() -> Result<Option<Dataset>> {
    let folder = std::env::var_os("MERCER_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let Some(path) = folder.map(|folder| folder.join("ood/cifar100-test.npz")).filter(|path| path.is_file()) else {
        return Ok(None);
    };
    let mut data = open(&path.to_string_lossy(), &ReadOptions::default())?;
    data.y = data.y.map(|y| y.as_classes()).transpose()?;
    let x = data.x.to_f64().into_owned();
    if x.iter().any(|v| *v > 1.0) {
        data.x = (x / 255.0).into();
    }
    Ok(Some(data))
}

/// Items and queries, drawn at random.
fn apart(data: &Dataset, config: &Config) -> Result<(Dataset, Dataset)> {
    let n = data.n();
    if n < config.queries + 2 {
        return Err(Error::input(format!(
            "CIFAR-100 has {n} images, and {} are looked for among the others",
            config.queries
        )));
    }
    let order = Rng::new(config.seed).fork(0x6f74_6865).sample(n, n);
    let (queries, items) = order.split_at(config.queries);
    Ok((data.select(items), data.select(queries)))
}
