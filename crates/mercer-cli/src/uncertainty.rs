//! Measures of predictions with their uncertainty: tables, objects and the page of `mercer laplace` and `mercer trajectory`.

use crate::page as parts;
use crate::text;
use mercer::Result;
use mercer::apply::{IntervalReport, Predict, softmax_rows};
use mercer::classifier::{Cases, Detection, Estimate, Labelled, Measure};
use mercer::laplace::FittedLaplace;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot};
use ndarray::{Array2, ArrayView2, Axis};
use serde_json::{Value, json};
use std::time::Instant;

/// Level of the intervals of numbers.
const LEVEL: f64 = 0.95;

/// What a method's predictions are worth.
pub struct Judged {
    name: &'static str,
    fitted: Value,
    fit_seconds: f64,
    predict_seconds: f64,
    pub validation_nll: f64,
    test: Quality,
    /// Entropies of the probabilities of test rows, and of rows of another distribution.
    entropies: Option<[Vec<f64>; 2]>,
}

enum Quality {
    Classes(Cases),
    Numbers(IntervalReport),
}

impl Judged {
    /// Of a method for classes with this name and these facts, by its scores `[n, C]` at labelled rows, and at rows of another distribution;
    /// `seconds` are those of the fit and of the prediction.
    pub fn of_scores(
        (name, fitted): (&'static str, Value),
        [fit_seconds, predict_seconds]: [f64; 2],
        validation_nll: f64,
        (scores, labels): (ArrayView2<f64>, &[usize]),
        ood: Option<ArrayView2<f64>>,
    ) -> Judged {
        let test = Quality::Classes(Cases::of(scores, labels));
        let entropies = ood.map(|ood| [entropies(softmax(scores)), entropies(softmax(ood))]);
        Judged { name, fitted, fit_seconds, predict_seconds, validation_nll, test, entropies }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Of a fitted method on the rows of `test`; its loss on those of `validation`; how it tells the rows `ood` `[m, d]` from `test`.
    pub fn new(
        fitted: &FittedLaplace,
        fit_seconds: f64,
        validation: &Labelled,
        test: &Labelled,
        ood: Option<ArrayView2<f64>>,
    ) -> Result<Judged> {
        let quality = |data: &Labelled| match fitted.network.number {
            None => {
                let labels = data.labels_for(&fitted.network.classes)?;
                Ok(Quality::Classes(Cases::of(fitted.scores(data.x.view())?.view(), &labels)))
            }
            Some(_) => {
                let (mean, deviations) = (fitted.scores(data.x.view())?, fitted.deviations(data.x.view())?);
                let deviations = deviations.expect("numbers have deviations").to_vec();
                IntervalReport::new(&data.numbers, &mean.column(0).to_vec(), &deviations, LEVEL).map(Quality::Numbers)
            }
        };
        let validation_nll = match quality(validation)? {
            Quality::Classes(cases) => cases.measure(Measure::Nll),
            Quality::Numbers(report) => report.nll,
        };
        let start = Instant::now();
        let test_quality = quality(test)?;
        let predict_seconds = start.elapsed().as_secs_f64();
        let entropies = |x: ArrayView2<f64>| -> Result<Vec<f64>> {
            Ok(entropies(fitted.probabilities(fitted.scores(x)?.view()).expect("classes have probabilities")))
        };
        let entropies =
            ood.map(|ood| Ok::<_, mercer::Error>([entropies(test.x.view())?, entropies(ood)?])).transpose()?;
        let mut object = json!({ "method": fitted.method.name(), "evidence": fitted.evidence, "seconds": fit_seconds });
        if fitted.method.has_posterior() {
            object["prior_precision"] = json!(fitted.found.value);
        }
        let (name, value) = match fitted.network.number {
            Some(_) => ("noise", fitted.noise),
            None => ("temperature", fitted.temperature),
        };
        object[name] = json!(value);
        let name = fitted.method.name();
        Ok(Judged { name, fitted: object, fit_seconds, predict_seconds, validation_nll, test: test_quality, entropies })
    }
}

/// `−Σ_c p_c log p_c` of the rows of probabilities `[n, C]`.
fn entropies(p: Array2<f64>) -> Vec<f64> {
    p.map_axis(Axis(1), |p| p.iter().map(|p| if *p > 0.0 { -p * p.ln() } else { 0.0 }).sum()).to_vec()
}

fn softmax(scores: ArrayView2<f64>) -> Array2<f64> {
    softmax_rows(scores.as_standard_layout().into_owned())
}

/// Every method, with intervals of its measures, and differences from temperature scaling.
pub struct Judgement {
    rows: Vec<Row>,
    chosen: usize,
}

struct Row {
    name: &'static str,
    object: Value,
    numbers: Option<IntervalReport>,
    /// In the order of [`Measure::ALL`].
    measures: Vec<Estimate>,
    against_temperature: Option<Estimate>,
    detection: Option<Detection>,
    reliability: Vec<(f64, f64, usize)>,
    confidence: Vec<f64>,
    seconds: [f64; 2],
}

impl Judgement {
    pub fn new<'a>(all: impl Iterator<Item = &'a Judged>, chosen: usize, seed: u64) -> Judgement {
        let all: Vec<&Judged> = all.collect();
        let temperature = all.iter().find(|judged| judged.name == "temperature").and_then(|judged| judged.cases());
        Judgement { rows: all.iter().map(|judged| judged.row(temperature, seed)).collect(), chosen }
    }

    /// The methods as values of JSON.
    pub fn objects(&self) -> Vec<&Value> {
        self.rows.iter().map(|row| &row.object).collect()
    }

    /// The measures in short, as text.
    pub fn table(&self) -> String {
        let chosen = |i: usize, name: &str| if i == self.chosen { format!("{name} *") } else { name.to_owned() };
        let four = |v: f64| format!("{v:.4}");
        if self.rows.iter().any(|row| row.numbers.is_some()) {
            let row = |(i, row): (usize, &Row)| {
                let report = row.numbers.as_ref().expect("all methods predict numbers");
                let number = |v: f64| text::number(v, 4);
                let cells =
                    [number(report.rmse), four(report.nll), text::percent(report.coverage), number(report.width)];
                std::iter::once(chosen(i, row.name)).chain(cells).collect::<Vec<_>>()
            };
            let rows: Vec<Vec<String>> = self.rows.iter().enumerate().map(row).collect();
            let covered = format!("in {} interval", text::percent(LEVEL));
            return text::table(&["method", "RMSE", "NLL", &covered, "its width"], &rows);
        }
        let row = |(i, row): (usize, &Row)| {
            let [nll, ece, _, brier, accuracy] = row.measures[..] else { unreachable!("five measures") };
            let gap = row.against_temperature.map_or_else(|| text::GAP.into(), |gap| range(gap, 4, true));
            let mut cells = vec![chosen(i, row.name), range(nll, 4, false), four(ece.value), four(brier.value)];
            cells.extend([text::percent(accuracy.value), gap]);
            cells.extend(row.detection.map(|found| format!("{:.3}", found.auroc.value)));
            cells
        };
        let mut headings = vec!["method", "NLL (95 %)", "ECE", "Brier", "accuracy", "NLL − temperature"];
        if self.rows.iter().any(|row| row.detection.is_some()) {
            headings.push("AUROC");
        }
        text::table(&headings, &self.rows.iter().enumerate().map(row).collect::<Vec<_>>())
    }
}

impl Judged {
    fn cases(&self) -> Option<&Cases> {
        if let Quality::Classes(cases) = &self.test { Some(cases) } else { None }
    }

    fn row(&self, temperature: Option<&Cases>, seed: u64) -> Row {
        let mut object = self.fitted.clone();
        object["validation_nll"] = json!(self.validation_nll);
        object["predict_seconds"] = json!(self.predict_seconds);
        let mut row = Row {
            name: self.name,
            object,
            numbers: None,
            measures: vec![],
            against_temperature: None,
            detection: self.entropies.as_ref().map(|[inside, outside]| Detection::of(inside, outside, seed)),
            reliability: vec![],
            confidence: vec![],
            seconds: [self.fit_seconds, self.predict_seconds],
        };
        match &self.test {
            Quality::Numbers(report) => {
                row.object["test"] = json!(report);
                row.numbers = Some(*report);
            }
            Quality::Classes(cases) => {
                row.measures = Measure::ALL.iter().map(|measure| cases.estimate(*measure, seed)).collect();
                let named = Measure::ALL.iter().zip(&row.measures);
                let name = |measure: &Measure| json!(measure).as_str().expect("a word").to_owned();
                row.object["test"] = named.map(|(measure, estimate)| (name(measure), json!(estimate))).collect();
                let gap = temperature.map(|other| cases.difference(other, Measure::Nll, seed));
                row.against_temperature = gap.filter(|_| self.name != "temperature");
                row.object["nll_minus_temperature"] = json!(row.against_temperature);
                row.object["ood"] = json!(row.detection);
                (row.reliability, row.confidence) = (cases.reliability(), cases.confidence.clone());
            }
        }
        row
    }
}

/// A value with its interval in brackets.
fn range(Estimate { value, interval: [low, high] }: Estimate, digits: usize, signed: bool) -> String {
    match signed {
        true => format!("{value:+.digits$} ({low:+.digits$} … {high:+.digits$})"),
        false => format!("{value:.digits$} ({low:.digits$} … {high:.digits$})"),
    }
}

/// The report: measures, reliability, confidence.
pub fn page(judged: &Judgement, title: &str, why: &str, rows: &str) -> Report {
    let mut page = Report::new(title).lead(&format!("Measured on {rows}. {why}.")).section("Measures");
    if judged.rows.iter().any(|row| row.numbers.is_some()) {
        let row = |row: &Row| {
            let report = row.numbers.as_ref().expect("all methods predict numbers");
            vec![
                row.name.to_owned(),
                text::number(report.rmse, 4),
                format!("{:.4}", report.nll),
                text::percent(report.coverage),
                text::number(report.width, 4),
            ]
        };
        let all: Vec<Vec<String>> = judged.rows.iter().map(row).collect();
        let covered = format!("in {} interval", text::percent(LEVEL));
        let table = Table::of(&["method", "RMSE", "NLL", &covered, "its width"], &all).lowest(2);
        page = page.table(table.caption("Coverage and mean width of the intervals."));
    } else {
        page = page.table(measures(judged)).section("Reliability").figure(
            &reliability(judged),
            "Accuracy over the mean confidence of the rows in 15 bins of confidence: calibrated methods lie on the diagonal.",
        );
        page = page.figure(&confidence(judged), "Share of the rows in each bin of confidence.");
    }
    page.section("How it was made").table(parts::facts(&[("program", parts::program())]))
}

fn measures(judged: &Judgement) -> Table {
    let detected = judged.rows.iter().any(|row| row.detection.is_some());
    let mut headings = vec!["method", "NLL", "ECE", "adaptive ECE", "Brier", "accuracy", "NLL − temperature"];
    if detected {
        headings.extend(["AUROC", "AUPR"]);
    }
    headings.extend(["fit", "prediction"]);
    let row = |row: &Row| {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.measures.iter().map(|estimate| range(*estimate, 4, false)));
        cells.push(row.against_temperature.map_or_else(|| text::GAP.into(), |gap| range(gap, 4, true)));
        cells
            .extend(row.detection.iter().flat_map(|found| [found.auroc, found.aupr].map(|area| range(area, 3, false))));
        cells.extend(row.seconds.map(text::seconds));
        cells
    };
    let rows: Vec<Vec<String>> = judged.rows.iter().map(row).collect();
    let caption = "In brackets, intervals of 95 % by bootstrap; differences by paired bootstrap on the same rows. AUROC and AUPR: rows of the other \
                   distribution found by the entropy of their probabilities.";
    Table::of(&headings, &rows).caption(caption)
}

fn reliability(judged: &Judgement) -> String {
    let mut grid = Grid::new("Reliability", 3).panel_size(230.0, 200.0).shared();
    for row in &judged.rows {
        let [xs, ys]: [Vec<f64>; 2] =
            [row.reliability.iter().map(|bin| bin.0).collect(), row.reliability.iter().map(|bin| bin.1).collect()];
        let plot = Plot::new(row.name).x("confidence").y("accuracy").y_range(0.0, 1.0);
        grid = grid.panel(plot.line("", &[0.0, 1.0], &[0.0, 1.0]).dashed().line("", &xs, &ys).markers());
    }
    grid.svg()
}

fn confidence(judged: &Judgement) -> String {
    const BINS: usize = 10;
    let names: Vec<String> = (0..BINS).map(|bin| format!("{:.1}", (bin as f64 + 0.5) / BINS as f64)).collect();
    let mut grid = Grid::new("Confidence", 3).panel_size(230.0, 160.0).shared();
    for row in &judged.rows {
        let mut shares = [0.0; BINS];
        let count = row.confidence.len() as f64;
        row.confidence.iter().for_each(|c| shares[((c * BINS as f64) as usize).min(BINS - 1)] += 1.0 / count);
        grid = grid.panel(Plot::new(row.name).x("confidence").y("share of the rows").bars("", &names, &shares));
    }
    grid.svg()
}
