//! Linearised Laplace of a LeNet on MNIST: every method beside the network alone and temperature scaling; Fashion-MNIST as the other
//! distribution, and digits that are turned.

use crate::statistics::mean_and_error;
use crate::{Options, Shown, report, sentence};
use mercer::apply::{Predict, softmax_rows};
use mercer::classifier::{Cases, Classifier, Detection, Measure, Settings, train};
use mercer::data::{Dataset, ReadOptions, open};
use mercer::laplace::{FittedLaplace, Laplace, Method, NetworkKind};
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::report::Table;
use mercer_figure::{Plot, text};
use ndarray::{Array2, ArrayView1, ArrayView2};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

config! {
    /// Digits that are learnt, that choose temperatures, and that are tested; images of clothes.
    n: usize = 5000; quick 300,
    validation: usize = 1000; quick 100,
    test: usize = 5000; quick 100,
    outside: usize = 2000; quick 60,
    /// Test digits that are turned.
    turned: usize = 1000; quick 40,
    angles: Vec<f64> = vec![0.0, 15.0, 30.0, 45.0, 60.0, 90.0]; quick vec![0.0, 60.0],
    net: String = "lenet".into(); quick "conv(4, 5, stride=2) relu maxpool(2) flatten dense(20) relu dense(10)".into(),
    epochs: u64 = 8; quick 2,
    seeds: u64 = 3; quick 2,
}

/// What one method was worth, once for each seed.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// NLL, ECE, adaptive ECE, Brier, accuracy, in the order of [`Measure::ALL`].
    measures: Vec<[f64; 5]>,
    auroc: Vec<f64>,
    /// NLL by angle.
    turned: Vec<Vec<f64>>,
    fit_seconds: Vec<f64>,
    predict_seconds: Vec<f64>,
}

/// All images of a seed.
struct Images {
    fit: Dataset,
    validation: Dataset,
    test: Dataset,
    outside: Array2<f64>,
    /// By angle.
    turned: Vec<Array2<f64>>,
}

fn images(config: &Config, seed: u64) -> Result<Images> {
    let all = |source: &str| open(source, &ReadOptions::default());
    let (digits, test, clothes) = (all("mnist")?, all("mnist(part=test)")?, all("fashion-mnist(part=test)")?);
    let mut rng = Rng::new(seed).fork(0x6d6e);
    let chosen = rng.sample(digits.n(), config.n + config.validation);
    let part = |data: &Dataset, rows: &[usize]| data.select(rows).with_classes();
    let first = |count: usize, n: usize| (0..count.min(n)).collect::<Vec<usize>>();
    let test = part(&test, &first(config.test, test.n()))?;
    let upright = test.x.rows().slice(0..config.turned.min(test.n())).to_f64();
    Ok(Images {
        fit: part(&digits, &chosen[..config.n])?,
        validation: part(&digits, &chosen[config.n..])?,
        outside: clothes.select(&first(config.outside, clothes.n())).x.into_f64(),
        turned: config.angles.iter().map(|angle| turned(upright.view(), *angle)).collect(),
        test,
    })
}

/// Images `[n, side²]` turned around their centre by degrees, by bilinear interpolation; zero beyond the edge.
fn turned(x: ArrayView2<f64>, degrees: f64) -> Array2<f64> {
    let side = (x.ncols() as f64).sqrt().round() as usize;
    let (sin, cos) = degrees.to_radians().sin_cos();
    let centre = 0.5 * (side as f64 - 1.0);
    let mut out = Array2::zeros(x.dim());
    for (from, mut to) in x.rows().into_iter().zip(out.rows_mut()) {
        for (place, to) in to.iter_mut().enumerate() {
            let (r, c) = ((place / side) as f64 - centre, (place % side) as f64 - centre);
            *to = bilinear(from, side, [cos * r - sin * c + centre, sin * r + cos * c + centre]);
        }
    }
    out
}

/// The value of an image at a place between its pixels.
fn bilinear(image: ArrayView1<f64>, side: usize, [r, c]: [f64; 2]) -> f64 {
    let mut sum = 0.0;
    for (row, column) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)] {
        let (i, j) = (r.floor() + row, c.floor() + column);
        if i >= 0.0 && j >= 0.0 && (i as usize) < side && (j as usize) < side {
            sum += (1.0 - (r - i).abs()) * (1.0 - (c - j).abs()) * image[i as usize * side + j as usize];
        }
    }
    sum
}

fn entropies(scores: Array2<f64>) -> Vec<f64> {
    mercer::apply::entropies(softmax_rows(scores).view())
}

impl Row {
    fn new(name: &'static str) -> Row {
        Row { name, measures: vec![], auroc: vec![], turned: vec![], fit_seconds: vec![], predict_seconds: vec![] }
    }

    fn measure(&mut self, fitted: &FittedLaplace, images: &Images, seed: u64) -> Result<()> {
        let start = Instant::now();
        let scores = fitted.scores(images.test.x.to_f64().view())?;
        self.predict_seconds.push(start.elapsed().as_secs_f64());
        let labels = images.test.target()?.labels_for(&fitted.network.classes)?;
        let cases = Cases::of(scores.view(), &labels);
        self.measures.push(Measure::ALL.map(|measure| cases.measure(measure)));
        let outside = entropies(fitted.scores(images.outside.view())?);
        self.auroc.push(Detection::of(&entropies(scores), &outside, seed).auroc.value);
        let nll = |x: &Array2<f64>| {
            Ok(Cases::of(fitted.scores(x.view())?.view(), &labels[..x.nrows()]).measure(Measure::Nll))
        };
        self.turned.push(images.turned.iter().map(nll).collect::<Result<_>>()?);
        Ok(())
    }

    /// Mean and standard error over seeds of a number.
    fn summary(&self, of: impl Fn(&Row, usize) -> f64) -> String {
        let n = self.measures.len();
        let values: Vec<f64> = (0..n).map(|seed| of(self, seed)).collect();
        let (mean, error) = mean_and_error(&values);
        format!("{mean:.4} ± {error:.4}")
    }
}

fn run(config: &Config, context: &FitContext) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> =
        Method::all_for(NetworkKind::default()).iter().map(|method| Row::new(method.name())).collect();
    for number in 0..config.seeds {
        let seed = config.seed + number;
        let context = FitContext { seed, ..*context };
        let images = images(config, seed)?;
        context.progress.step("training", number as usize, config.seeds as usize, "networks");
        let start = Classifier::new(&config.net, &images.fit, context.device, seed)?;
        let settings = Settings { epochs: config.epochs, batch: 64, learning_rate: 0.05, seed, ..Settings::default() };
        let network = Arc::new(train(start, &images.fit, None, &settings, &context, &|_| ())?.classifier);
        for (method, row) in Method::all_for(NetworkKind::default()).into_iter().zip(&mut rows) {
            let start = Instant::now();
            let fitted = Laplace::new(method).fit(&network, &images.fit, Some(&images.validation), &context)?;
            row.fit_seconds.push(start.elapsed().as_secs_f64());
            row.measure(&fitted, &images, seed)?;
        }
    }
    Ok(rows)
}

fn shown(rows: &[Row], config: &Config) -> [Table; 2] {
    let headings = ["method", "NLL", "ECE", "Brier", "accuracy", "AUROC, Fashion-MNIST", "fit", "prediction"];
    let cells = |row: &Row| {
        let measure = |place: usize| row.summary(|row, seed| row.measures[seed][place]);
        let seconds = |values: &[f64]| text::seconds(mean_and_error(values).0);
        vec![
            row.name.to_owned(),
            measure(0),
            measure(1),
            measure(3),
            measure(4),
            row.summary(|row, seed| row.auroc[seed]),
            seconds(&row.fit_seconds),
            seconds(&row.predict_seconds),
        ]
    };
    let first = Table::of(&headings, &rows.iter().map(cells).collect::<Vec<_>>()).lowest(1).lowest(2).highest(5);
    let angles: Vec<String> = config.angles.iter().map(|angle| format!("{angle}°")).collect();
    let headings: Vec<&str> = std::iter::once("method").chain(angles.iter().map(String::as_str)).collect();
    let cells = |row: &Row| {
        let at = |angle: usize| row.summary(move |row, seed| row.turned[seed][angle]);
        std::iter::once(row.name.to_owned()).chain((0..angles.len()).map(at)).collect::<Vec<_>>()
    };
    [first, Table::of(&headings, &rows.iter().map(cells).collect::<Vec<_>>())]
}

/// NLL over the angle, by method.
fn figure(rows: &[Row], config: &Config) -> String {
    let mut plot = Plot::new("NLL of digits that are turned").x("degrees").y("NLL").size(760.0, 420.0);
    for row in rows {
        let mean = |angle: usize| mean_and_error(&row.turned.iter().map(|all| all[angle]).collect::<Vec<_>>()).0;
        let ys: Vec<f64> = (0..config.angles.len()).map(mean).collect();
        plot = plot.line(row.name, &config.angles, &ys).markers();
    }
    plot.svg()
}

fn verdict(rows: &[Row]) -> String {
    let mean = |row: &Row, of: fn(&Row, usize) -> f64| {
        mean_and_error(&(0..row.measures.len()).map(|seed| of(row, seed)).collect::<Vec<_>>()).0
    };
    let nll: fn(&Row, usize) -> f64 = |row, seed| row.measures[seed][0];
    let auroc: fn(&Row, usize) -> f64 = |row, seed| row.auroc[seed];
    let best = rows.iter().min_by(|a, b| mean(a, nll).total_cmp(&mean(b, nll))).expect("methods");
    let finder = rows.iter().max_by(|a, b| mean(a, auroc).total_cmp(&mean(b, auroc))).expect("methods");
    let [map, temperature] = ["map", "temperature"]
        .map(|name| rows.iter().find(|row| row.name == name).map_or(f64::NAN, |row| mean(row, nll)));
    format!(
        "{} has the lowest NLL, {:.4} (the network alone {map:.4}, temperature scaling {temperature:.4}); {} tells Fashion-MNIST apart best, AUROC {:.3}",
        best.name,
        mean(best, nll),
        finder.name,
        mean(finder, auroc)
    )
}

fn setting(config: &Config) -> String {
    let Config { n, validation, test, epochs, seeds, net, outside, turned, .. } = config;
    format!(
        "{net}, trained on {n} digits of MNIST for {epochs} epochs; temperatures and prior precisions from {validation} digits that it has not seen; {test} test digits, \
         {turned} of them turned; {outside} images of Fashion-MNIST as the other distribution, found by the entropy of the probabilities. ± \
         is the standard error over {seeds} seeds of data, network and method."
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let rows = run(&config, context)?;
    let ([measures, angles], figure, verdict) = (shown(&rows, &config), figure(&rows, &config), verdict(&rows));
    let text = format!(
        "{}\n\n{}\nNLL of digits that are turned:\n{}\n{}\n",
        setting(&config),
        measures.text(),
        angles.text(),
        sentence(&verdict)
    );
    let report = report("Linearised Laplace of a LeNet on MNIST", &verdict, &setting(&config))
        .section("Test digits")
        .table(measures)
        .section("Digits that are turned")
        .table(angles.caption("NLL by angle."))
        .figure(&figure, "Mean NLL over seeds.");
    Ok(Shown { figure, report, numbers: json!({ "plan": config, "methods": rows, "verdict": verdict }), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_by_a_right_angle_moves_pixels_and_four_change_nothing() {
        let mut rng = Rng::new(1);
        let x = Array2::from_shape_simple_fn((2, 25), || rng.uniform());
        let once = turned(x.view(), 90.0);
        // The pixel in row 0 and column 1 comes from row r, column c with (r − 2, c − 2) turned.
        assert!((once[[0, 1]] - x[[0, 5 + 4]]).abs() < 1e-9 || (once[[0, 1]] - x[[0, 3 * 5]]).abs() < 1e-9);
        let again = (0..3).fold(once, |x, _| turned(x.view(), 90.0));
        assert!((&again - &x).iter().all(|v| v.abs() < 1e-9));
        // A constant image stays constant at its centre.
        assert!((turned(Array2::ones((1, 25)).view(), 33.0)[[0, 12]] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn means_have_standard_errors() {
        assert_eq!(mean_and_error(&[1.0, 3.0]), (2.0, 1.0));
    }
}
