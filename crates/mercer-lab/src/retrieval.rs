//! Retrieval with codes of any length: the first m coordinates of a kernel's spectrum, beside other codes of the same data.
//!
//! The whole representation is `Φ(x) = (√μ_1 ψ_1(x), …, √μ_K ψ_K(x))`, whose products are the kernel's. Turned by a random orthogonal
//! matrix it has the same products and no order: what a representation is that nothing has ordered.

use crate::{Options, Shown, compared, report, sentence, table, two_parts};
use mercer::classifier::Estimate;
use mercer::data::{Dataset, Target, catalogue};
use mercer::kernel::Expression;
use mercer::linalg::{eigh, matmul};
use mercer::operator::Precision;
use mercer::retrieval::{ExactSearch, Metric, Relevance};
use mercer::rng::Rng;
use mercer::spectrum::{Exact, Landmarks, Method, Nystrom, Problem, Spectrum};
use mercer::{Device, Error, FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

config! {
    /// Name of the data set: MNIST, or the embedded digits if `$MERCER_DATA` has no MNIST.
    data: String = if mnist() { "mnist" } else { "digits" }.into(); quick "digits".into(),
    kernel: String = "rbf(lengthscale=median)".into(),
    /// Items, which the kernel is fitted on, and queries.
    items: usize = if mnist() { 10_000 } else { 1397 }; quick 1200,
    queries: usize = if mnist() { 1000 } else { 400 }; quick 200,
    /// Landmarks of Nyström's method; none where all items are.
    landmarks: Option<usize> = mnist().then_some(2000); quick None,
    /// K, the whole code.
    k: usize = 512,
    lengths: Vec<usize> = vec![4, 8, 16, 32],
    /// How many times as long the random codes are.
    factor: usize = 16,
    draws: usize = 5; quick 2,
}

fn mnist() -> bool {
    catalogue().iter().any(|entry| entry.name == "mnist" && entry.present)
}

/// One code at one length.
#[derive(Serialize)]
pub(crate) struct Code {
    /// m
    pub length: usize,
    pub code: &'static str,
    /// Its own number of coordinates.
    pub coordinates: usize,
    pub map: Estimate,
    precision: Estimate,
    /// mAP of the first m coordinates less its own, query by query.
    lead: Estimate,
    bytes: usize,
    milliseconds: f64,
    #[serde(skip)]
    average_precision: Vec<f64>,
}

#[derive(Serialize)]
struct Results {
    #[serde(rename = "plan")]
    config: Config,
    kernel: String,
    d: usize,
    codes: Vec<Code>,
    whole: Estimate,
    verdict: String,
}

/// Codes of items and of queries.
pub(crate) type Pair = [Array2<f64>; 2];

const ORDERED: &str = "first m of the spectrum";
const RANDOM: &str = "m random coordinates";
const LONG: &str = "16 m random coordinates";
const PRINCIPAL: &str = "PCA of the columns";

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let found = run(&config, context)?;
    let codes = table(
        &found.codes,
        &[
            ("m", |c| c.length.to_string()),
            ("code", |c| c.code.into()),
            ("coordinates", |c| c.coordinates.to_string()),
            ("mAP", |c| in_words(&c.map)),
            ("precision@10", |c| in_words(&c.precision)),
            ("lead of the first m", |c| if c.code == ORDERED { text::GAP.into() } else { in_words(&c.lead) }),
            ("bytes", |c| c.bytes.to_string()),
            ("ms a query", |c| format!("{:.3}", c.milliseconds)),
        ],
    );
    let figure = curves(&found);
    let text = format!("{}\n{}\n", codes.text(), sentence(&found.verdict));
    let expected = format!(
        "eigenfunctions are ordered by importance, so that the first m say more than m others; {} times as many random coordinates \
         of the same representation are no better.",
        config.factor
    );
    let page = report("Retrieval with codes of any length", &found.verdict, &description(&found))
        .section("Codes")
        .figure(
            &figure,
            "Left: mean average precision over the whole ranking of all items; the line shows the whole representation. Right: the \
             same against the bytes of an item's code. Bands are intervals of 95 % by bootstrap over queries.",
        )
        .table(codes.key(2).caption(
            "In brackets, intervals of 95 % by bootstrap over queries. The lead is the mAP of the first m coordinates less that of the \
             code, query by query. Random codes are means over draws.",
        ));
    let report = compared(page, &expected, &sentence(&found.verdict));
    Ok(Shown { figure, report, text, numbers: json!(found) })
}

/// An estimate with its interval.
pub(crate) fn in_words(e: &Estimate) -> String {
    format!("{:.3} ({:.3} to {:.3})", e.value, e.interval[0], e.interval[1])
}

fn description(found: &Results) -> String {
    let Config { data, k, factor, draws, .. } = &found.config;
    let [items, queries] = [found.config.items, found.config.queries].map(text::grouped);
    let method = match found.config.landmarks {
        Some(landmarks) => format!("Nyström's method with {} landmarks", text::grouped(landmarks)),
        None => "the exact method".into(),
    };
    format!(
        "{items} items and {queries} queries of {data} ({} columns), no item among the queries. The {k} leading pairs of {} by {method} on the \
         items are the representation √μ_j ψ_j. An item is relevant for a query if it has its class; classes are used for nothing \
         else. Codes are compared by cosine. Random coordinates are those of the same {k} numbers, turned by a random orthogonal \
         matrix, which changes no cosine of the whole and takes the order away; {draws} turns, {factor} m coordinates at most {k}. \
         PCA of the {k} numbers would find the same order again, as the spectrum is that order; PCA here is that of the columns.",
        found.d,
        text::rounded(&found.kernel)
    )
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let [items, queries] = data(config)?;
    let (x, z) = (items.x.to_f64().into_owned(), queries.x.to_f64().into_owned());
    let kernel = Expression::parse(&config.kernel)?.resolve(x.view(), config.seed)?;
    let context = &FitContext { precision: Precision::F32, seed: config.seed, ..*context };
    let operator = context.kernel_operator(&kernel, x.view())?;
    let method: Box<dyn Method> = match config.landmarks {
        Some(landmarks) => Box::new(Nystrom { landmarks, choice: Landmarks::KMeansPlusPlus }),
        None => Box::new(Exact),
    };
    let spectrum =
        Spectrum::fit(method.as_ref(), &Problem { operator: &operator, k: config.k, context: *context }, None)?;
    let scales = spectrum.eigenvalues.iter().map(|mu| mu.max(0.0).sqrt()).collect::<ndarray::Array1<f64>>();
    let whole: Pair = [spectrum.transform(x.view())? * &scales, spectrum.transform(z.view())? * &scales];
    let judge = Judge { items: classes(&items)?, queries: classes(&queries)?, seed: config.seed };
    let (full, ..) = judge.measure(&whole, config.k)?;
    let plain: Pair = principal([&x, &z])?;
    let mut rng = Rng::new(config.seed).fork(0x7475_726e);
    let mut turned = vec![];
    for draw in 0..config.draws {
        context.progress.step("turned representations", draw, config.draws, "");
        let turn = orthogonal(config.k, &mut rng)?;
        turned.push(whole.each_ref().map(|codes| matmul(codes.view(), turn.view())));
    }
    let mut codes = vec![];
    for (i, &m) in config.lengths.iter().enumerate() {
        context.progress.step("lengths", i, config.lengths.len(), "");
        let long = (config.factor * m).min(config.k);
        let mut of_length = vec![
            judge.code(m, ORDERED, m, std::slice::from_ref(&whole))?,
            judge.code(m, PRINCIPAL, m.min(plain[0].ncols()), std::slice::from_ref(&plain))?,
            judge.code(m, RANDOM, m, &turned)?,
            judge.code(m, LONG, long, &turned)?,
        ];
        let first = of_length[0].average_precision.clone();
        for code in &mut of_length {
            let leads: Vec<f64> = first.iter().zip(&code.average_precision).map(|(a, b)| a - b).collect();
            code.lead = Estimate::of_mean(&leads, config.seed);
        }
        codes.append(&mut of_length);
    }
    let (kernel, d, config) = (kernel.to_string(), x.ncols(), config.clone());
    let verdict = verdict(&codes);
    Ok(Results { config, kernel, d, codes, whole: Estimate::of_mean(&full.average_precision, judge.seed), verdict })
}

/// Items and queries, drawn at random from one set.
fn data(config: &Config) -> Result<[Dataset; 2]> {
    let rng = Rng::new(config.seed).fork(0x6461_7461);
    let (set, parts) = two_parts(&config.data, [config.items, config.queries], rng)?;
    Ok(parts.map(|rows| set.select(&rows)))
}

pub(crate) fn classes(data: &Dataset) -> Result<Vec<usize>> {
    match &data.y {
        Some(Target::Classes { labels, .. }) => Ok(labels.clone()),
        _ => Err(Error::input(format!("{} has no classes", data.name))),
    }
}

/// The classes of items and queries, by which codes are judged.
pub(crate) struct Judge {
    pub items: Vec<usize>,
    pub queries: Vec<usize>,
    pub seed: u64,
}

impl Judge {
    /// The first `m` coordinates of codes, and the seconds of a search for ten neighbours of all queries.
    fn measure(&self, codes: &Pair, m: usize) -> Result<(Relevance, f64)> {
        let [items, queries] = codes.each_ref().map(|codes| codes.slice(s![.., ..m]).mapv(|v| v as f32));
        let search = ExactSearch::new(items.view(), Metric::Cosine)?;
        let start = Instant::now();
        search.nearest(queries.view(), 10)?;
        let seconds = start.elapsed().as_secs_f64();
        Ok((Relevance::of(&search, &self.items, queries.view(), &self.queries, 10)?, seconds))
    }

    /// A code of `coordinates` at length `m`: the mean over several representations, query by query.
    pub fn code(&self, m: usize, code: &'static str, coordinates: usize, of: &[Pair]) -> Result<Code> {
        let n = self.queries.len();
        let (mut average_precision, mut precision, mut seconds) = (vec![0.0; n], vec![0.0; n], 0.0);
        let add = |sum: &mut [f64], values: &[f64]| {
            sum.iter_mut().zip(values).for_each(|(sum, v)| *sum += v / of.len() as f64);
        };
        for codes in of {
            let (found, taken) = self.measure(codes, coordinates)?;
            add(&mut average_precision, &found.average_precision);
            add(&mut precision, &found.precision);
            seconds += taken / of.len() as f64;
        }
        let mean = |values: &[f64]| Estimate::of_mean(values, self.seed);
        Ok(Code {
            length: m,
            code,
            coordinates,
            map: mean(&average_precision),
            precision: mean(&precision),
            lead: Estimate { value: 0.0, interval: [0.0; 2] },
            bytes: 4 * coordinates,
            milliseconds: 1e3 * seconds / n as f64,
            average_precision,
        })
    }
}

/// Principal components of the items' columns, for items and queries; as many as there are columns.
pub(crate) fn principal([x, z]: [&Array2<f64>; 2]) -> Result<Pair> {
    let mean = x.mean_axis(Axis(0)).expect("there are items");
    let centred = [x, z].map(|rows| rows - &mean);
    let covariance = matmul(centred[0].t(), centred[0].view()) / x.nrows() as f64;
    let (_, components) = eigh(Device::Cpu, covariance.view())?;
    Ok(centred.each_ref().map(|rows| matmul(rows.view(), components.view())))
}

/// A random orthogonal matrix `[k, k]`: the eigenvectors of a symmetric matrix of normal numbers.
fn orthogonal(k: usize, rng: &mut Rng) -> Result<Array2<f64>> {
    let normal = rng.normals((k, k));
    let symmetric = &normal + &normal.t();
    eigh(Device::Cpu, ArrayView2::from(&symmetric)).map(|(_, vectors)| vectors)
}

/// A line of the mean average precision of codes, with its intervals.
pub(crate) fn with_codes(plot: Plot, name: &str, x: fn(&Code) -> f64, codes: &[&Code]) -> Plot {
    let values = |value: &dyn Fn(&Code) -> f64| codes.iter().map(|c| value(c)).collect::<Vec<f64>>();
    let [low, high] = [0, 1].map(|end| values(&|c| c.map.interval[end]));
    plot.line(name, &values(&x), &values(&|c| c.map.value)).band(&low, &high).markers()
}

fn curves(found: &Results) -> String {
    let names = [ORDERED, PRINCIPAL, RANDOM, LONG];
    let mut by_length = Plot::new("By the length m").x_log("m").y("mean average precision");
    let mut by_bytes = Plot::new("By the bytes of a code").x_log("bytes").y("mean average precision");
    for (i, name) in names.iter().enumerate() {
        let of: Vec<&Code> = found.codes.iter().filter(|c| c.code == *name).collect();
        by_length = with_codes(by_length, name, |c| c.length as f64, &of).colour(i);
        by_bytes = with_codes(by_bytes, "", |c| c.bytes as f64, &of).colour(i);
        if *name == LONG {
            by_bytes = by_bytes.dashed();
        }
    }
    let m: Vec<f64> = found.config.lengths.iter().map(|m| *m as f64).collect();
    let line = vec![found.whole.value; m.len()];
    by_length = by_length.line(format!("all {}", found.config.k), &m, &line).dashed().colour(6);
    Grid::new(format!("{} on {}", found.config.kernel, found.config.data), 2)
        .panel_size(340.0, 270.0)
        .panel(by_length)
        .panel(by_bytes)
        .svg()
}

/// Against which codes the first m coordinates lead, trail, or neither.
fn verdict(codes: &[Code]) -> String {
    let ordered = codes.iter().filter(|c| c.code == ORDERED);
    let list = |values: Vec<String>| values.join(", ");
    let lengths = list(ordered.clone().map(|c| c.length.to_string()).collect());
    let maps = list(ordered.map(|c| format!("{:.3}", c.map.value)).collect());
    let against = |name: &str, what: &str| {
        let of: Vec<&Code> = codes.iter().filter(|c| c.code == name).collect();
        let at = |which: &dyn Fn(&Code) -> bool| {
            list(of.iter().filter(|c| which(c)).map(|c| c.length.to_string()).collect::<Vec<_>>())
        };
        let [better, worse] = [at(&|c| c.lead.interval[0] > 0.0), at(&|c| c.lead.interval[1] < 0.0)];
        let maps = list(of.iter().map(|c| format!("{:.3}", c.map.value)).collect());
        let said = match (better.is_empty(), worse.is_empty()) {
            (false, true) => format!("the first m are better at m = {better}"),
            (true, false) => format!("the first m are worse at m = {worse}"),
            (false, false) => format!("the first m are better at m = {better} and worse at m = {worse}"),
            (true, true) => "neither is better".into(),
        };
        format!("{what} have {maps}: {said}")
    };
    format!(
        "the first m = {lengths} coordinates have a mean average precision of {maps}; {}; {}; {}",
        against(LONG, "16 m random coordinates"),
        against(RANDOM, "m random coordinates"),
        against(PRINCIPAL, "m principal components of the columns")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_orthogonal_and_a_turned_code_ranks_alike() {
        let turn = orthogonal(6, &mut Rng::new(1)).unwrap();
        let product = matmul(turn.t(), turn.view());
        assert!((&product - &Array2::<f64>::eye(6)).iter().all(|v| v.abs() < 1e-12));
        let mut rng = Rng::new(2);
        let mut normal = |n| rng.normals((n, 6));
        let whole = [normal(60), normal(10)];
        let turned = whole.each_ref().map(|codes| matmul(codes.view(), turn.view()));
        let judge =
            Judge { items: (0..60).map(|i| i % 3).collect(), queries: (0..10).map(|i| i % 3).collect(), seed: 0 };
        let [a, b] = [whole, turned].map(|codes| judge.measure(&codes, 6).unwrap().0);
        assert_eq!(a, b);
    }

    #[test]
    fn the_quick_experiment_orders_its_codes() {
        let mut config = Config::new(true, 0);
        (config.items, config.queries, config.k, config.lengths) = (300, 60, 64, vec![2, 4]);
        let found = run(&config, &FitContext::default()).unwrap();
        assert_eq!(found.codes.len(), 8);
        let of = |length: usize, name: &str| found.codes.iter().find(|c| c.length == length && c.code == name).unwrap();
        assert!(of(4, ORDERED).map.value > of(4, RANDOM).map.value);
        assert!(of(4, ORDERED).map.value > of(2, ORDERED).map.value);
        assert!((of(4, LONG).map.value - found.whole.value).abs() < 1e-9, "64 turned coordinates are the whole code");
    }
}
