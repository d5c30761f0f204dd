//! Measures of predictions with their uncertainty, as `mercer laplace` and `mercer trajectory` show them: tables and objects.

use crate::show::posterior::entropies_of;
use crate::text;
use mercer::apply::softmax_rows;
use mercer::classifier::{Cases, Detection, Estimate, Measure, NumberCases, NumberMeasure};
use mercer::data::{Dataset, split_rows};
use mercer::{Result, fail_if};
use mercer_figure::report::Table;
use ndarray::{Array1, Array2};
use serde_json::{Value, json};

/// Level of the intervals of numbers.
pub const LEVEL: f64 = 0.95;

/// The smallest difference of two NLLs that is shown.
const LEAST_GAP: f64 = 5e-5;

/// What a method says of rows: scores of classes or numbers `[n, ·]`, and deviations `[n]` of numbers.
pub struct Answers {
    pub scores: Array2<f64>,
    pub deviations: Option<Array1<f64>>,
}

impl Answers {
    /// Of all rows, from those of the rows of each half.
    pub fn joined(halves: &Halves, parts: [Answers; 2]) -> Answers {
        let n = halves.iter().map(Vec::len).sum();
        let mut scores = Array2::zeros((n, parts[0].scores.ncols()));
        let mut deviations = parts[0].deviations.as_ref().map(|_| Array1::zeros(n));
        for (rows, part) in halves.iter().zip(parts) {
            for (i, &row) in rows.iter().enumerate() {
                scores.row_mut(row).assign(&part.scores.row(i));
                if let (Some(all), Some(some)) = (&mut deviations, &part.deviations) {
                    all[row] = some[i];
                }
            }
        }
        Answers { scores, deviations }
    }

    /// `−Σ_c p_c log p_c` `[n]`
    fn entropies(&self) -> Vec<f64> {
        entropies_of(softmax_rows(self.scores.clone()).view())
    }
}

/// The rows of the two halves of the validation rows: what is found on one of them is judged on the other.
pub type Halves = [Vec<usize>; 2];

/// The halves of n validation rows, drawn at random.
pub fn halves(n: usize, seed: u64) -> Result<Halves> {
    fail_if!(n < 2, "there is {n} validation row; two at least are needed, to judge on one what is found on the other");
    split_rows(n, 0.5, seed)
}

/// The choices of n validation rows that a method is fitted with: all, for the model that is kept, and each half.
pub fn choices(n: usize, halves: &Halves) -> [Vec<usize>; 3] {
    [(0..n).collect(), halves[0].clone(), halves[1].clone()]
}

/// What is said where there are no test rows.
pub const WITHOUT_TEST: &str =
    "without --test, methods are measured on the validation rows, each half by what was found on the other half";

/// A fitted method: its name, what else is known of it, its classes (none of a number), and the seconds of fit and prediction.
pub struct About {
    pub name: &'static str,
    pub object: Value,
    pub classes: Vec<String>,
    pub seconds: [f64; 2],
}

/// What a method's predictions are worth.
pub struct Judged {
    about: About,
    pub validation_nll: f64,
    test: Quality,
    /// Entropies of the probabilities of test rows, and of rows of another distribution.
    entropies: Option<[Vec<f64>; 2]>,
}

enum Quality {
    Classes(Cases),
    Numbers(NumberCases),
}

impl Quality {
    fn of(answers: &Answers, rows: &Dataset, classes: &[String]) -> Result<Quality> {
        let Some(deviations) = &answers.deviations else {
            return Ok(Quality::Classes(Cases::of(answers.scores.view(), &rows.target()?.labels_for(classes)?)));
        };
        let mean = answers.scores.column(0).to_vec();
        NumberCases::of(&rows.target()?.values(), &mean, &deviations.to_vec(), LEVEL).map(Quality::Numbers)
    }

    fn nll(&self) -> f64 {
        match self {
            Quality::Classes(cases) => cases.measure(Measure::Nll),
            Quality::Numbers(cases) => cases.measure(NumberMeasure::Nll),
        }
    }

    /// Every measure under its name, with its interval.
    fn estimates(&self, seed: u64) -> Vec<(String, Estimate)> {
        let word = |measure: Value| measure.as_str().expect("a word").to_owned();
        match self {
            Quality::Classes(cases) => {
                let named = |(m, estimate): (Measure, Estimate)| (word(json!(m)), estimate);
                Measure::ALL.into_iter().zip(cases.estimates(Measure::ALL, seed)).map(named).collect()
            }
            Quality::Numbers(cases) => {
                NumberMeasure::ALL.iter().map(|m| (word(json!(m)), cases.estimate(*m, seed))).collect()
            }
        }
    }

    /// How much larger the NLL is than that of another method on the same rows.
    fn behind(&self, other: &Quality, seed: u64) -> Option<Estimate> {
        match (self, other) {
            (Quality::Classes(a), Quality::Classes(b)) => Some(a.difference(b, Measure::Nll, seed)),
            (Quality::Numbers(a), Quality::Numbers(b)) => Some(a.difference(b, NumberMeasure::Nll, seed)),
            _ => None,
        }
    }
}

impl Judged {
    /// Of answers on the rows of `test`; the loss on those of `validation`, each half by what was found on the other; how it tells the rows
    /// of other answers from `test`.
    pub fn new(
        about: About,
        validation: (&Dataset, &Answers),
        test: (&Dataset, &Answers),
        ood: Option<&Answers>,
    ) -> Result<Judged> {
        let validation_nll = Quality::of(validation.1, validation.0, &about.classes)?.nll();
        let entropies = ood.map(|ood| [test.1.entropies(), ood.entropies()]);
        let test = Quality::of(test.1, test.0, &about.classes)?;
        Ok(Judged { about, validation_nll, test, entropies })
    }

    /// The method's name.
    pub fn name(&self) -> &'static str {
        self.about.name
    }

    /// How much larger its NLL is than that of another method, unless it is that method.
    fn behind(&self, other: Option<&Judged>, seed: u64) -> Option<Estimate> {
        other.filter(|other| other.about.name != self.about.name).and_then(|other| self.test.behind(&other.test, seed))
    }

    fn row(&self, baseline: Option<&Judged>, network: Option<&Judged>, seed: u64) -> Row {
        let estimates = self.test.estimates(seed);
        let (gap, network_gap) = (self.behind(baseline, seed), self.behind(network, seed));
        let detection = self.entropies.as_ref().map(|[inside, outside]| Detection::of(inside, outside, seed));
        let mut object = self.about.object.clone();
        object["validation_nll"] = json!(self.validation_nll);
        object["predict_seconds"] = json!(self.about.seconds[1]);
        object["test"] = estimates.iter().map(|(name, estimate)| (name.clone(), json!(estimate))).collect();
        for (other, gap) in [(baseline, gap), (network, network_gap)] {
            if let Some(other) = other {
                object[format!("nll_minus_{}", other.about.name)] = json!(gap);
            }
        }
        let (mut reliability, mut confidence) = (vec![], vec![]);
        if let Quality::Classes(cases) = &self.test {
            object["ood"] = json!(detection);
            (reliability, confidence) = (cases.reliability(), cases.confidence.clone());
        }
        Row {
            name: self.about.name,
            object,
            estimates: estimates.into_iter().map(|(_, estimate)| estimate).collect(),
            gap,
            network_gap,
            detection,
            reliability,
            confidence,
            seconds: self.about.seconds,
        }
    }
}

/// The place of the method that was asked for, or, for `auto`, of the one with the lowest NLL on so many validation rows, each half judged by
/// what was found on the other; and why.
pub fn chosen(all: &[&Judged], method: &str, rows: usize) -> (usize, String) {
    if method != "auto" {
        let place = all.iter().position(|judged| judged.name() == method);
        return (place.expect("it was planned"), format!("{method} was asked for"));
    }
    let losses: Vec<f64> = all.iter().map(|judged| judged.validation_nll).collect();
    let best = (0..losses.len()).fold(0, |best, i| if losses[i] < losses[best] { i } else { best });
    let others = (0..losses.len()).filter(|i| *i != best).map(|i| format!("{} {:.4}", all[i].name(), losses[i]));
    let why = format!(
        "{} has the lowest NLL on {}: {:.4} ({}); each half of these rows was judged by what was found on the other half, and the method was \
         then fitted with all of them",
        all[best].name(),
        text::count(rows, "validation row"),
        losses[best],
        others.collect::<Vec<_>>().join(", ")
    );
    (best, why)
}

/// Every method, with intervals of its measures, and differences from the baseline: temperature scaling, or the network alone.
pub struct Judgement {
    pub rows: Vec<Row>,
    chosen: usize,
    pub numbers: bool,
    baseline: &'static str,
}

pub struct Row {
    pub name: &'static str,
    object: Value,
    /// In the order of [`Measure::ALL`] or [`NumberMeasure::ALL`].
    estimates: Vec<Estimate>,
    /// How much larger the NLL is than the baseline's, and than that of the network alone.
    gap: Option<Estimate>,
    network_gap: Option<Estimate>,
    detection: Option<Detection>,
    pub reliability: Vec<(f64, f64, usize)>,
    pub confidence: Vec<f64>,
    seconds: [f64; 2],
}

impl Judgement {
    pub fn new<'a>(all: impl Iterator<Item = &'a Judged>, chosen: usize, seed: u64) -> Judgement {
        let all: Vec<&Judged> = all.collect();
        let named = |name: &str| all.iter().copied().find(|judged| judged.about.name == name);
        let network = named("map");
        let baseline = named("temperature").or(network);
        let numbers = all.iter().any(|judged| matches!(judged.test, Quality::Numbers(_)));
        Judgement {
            rows: all.iter().map(|judged| judged.row(baseline, network, seed)).collect(),
            chosen,
            numbers,
            baseline: baseline.map_or("map", |judged| judged.about.name),
        }
    }

    /// The methods as values of JSON.
    pub fn objects(&self) -> Vec<&Value> {
        self.rows.iter().map(|row| &row.object).collect()
    }

    /// What is said of methods whose NLL is above that of the network alone, by as much as the table shows: of those that are worse, and of
    /// those whose difference may be chance.
    pub fn warnings(&self) -> Vec<String> {
        let said = |sure: bool, verdict: &str| {
            let gaps = self.rows.iter().filter_map(|row| Some((row.name, row.network_gap?)));
            let worse = gaps.filter(|(_, gap)| gap.value >= LEAST_GAP && (gap.interval[0] > 0.0) == sure);
            let named: Vec<String> = worse.map(|(name, gap)| format!("{name} {}", range(gap, 4, true))).collect();
            (!named.is_empty()).then(|| {
                format!("the NLL is higher than the NLL of the network alone: {}; {verdict}", named.join(", "))
            })
        };
        let both = [said(true, "take another method"), said(false, "the difference may be chance")];
        both.into_iter().flatten().collect()
    }

    fn detects(&self) -> bool {
        self.rows.iter().any(|row| row.detection.is_some())
    }

    /// The measures in short, as text.
    pub fn table(&self) -> String {
        let row = |(i, row): (usize, &Row)| {
            let name = if i == self.chosen { format!("{} *", row.name) } else { row.name.to_owned() };
            let gap = row.gap.map_or_else(|| text::GAP.into(), |gap| range(gap, 4, true));
            let mut cells = vec![name, range(row.estimates[0], 4, false)];
            let value = |place: usize| row.estimates[place].value;
            match self.numbers {
                true => cells.extend([text::number(value(1), 4), text::percent(value(2)), text::number(value(3), 4)]),
                false => {
                    cells.extend([1, 3].map(|place| format!("{:.4}", value(place))));
                    cells.push(text::percent(value(4)));
                }
            }
            cells.push(gap);
            cells.extend(row.detection.map(|found| format!("{:.3}", found.auroc.value)));
            cells
        };
        let difference = format!("NLL − {}", self.baseline);
        let mut headings = vec!["method", "NLL (95 %)"];
        headings.extend(match self.numbers {
            true => ["RMSE", "coverage", "width"],
            false => ["ECE", "Brier", "accuracy"],
        });
        headings.push(&difference);
        headings.extend(self.detects().then_some("AUROC"));
        text::table(&headings, &self.rows.iter().enumerate().map(row).collect::<Vec<_>>())
    }

    /// All measures with their intervals, for the report.
    pub fn measures(&self) -> Table {
        let difference = format!("NLL − {}", self.baseline);
        let mut headings = vec!["method"];
        match self.numbers {
            true => headings.extend(["NLL", "RMSE", "coverage", "width"]),
            false => headings.extend(["NLL", "ECE", "adaptive ECE", "Brier", "accuracy"]),
        }
        headings.push(&difference);
        headings.extend(if self.detects() { &["AUROC", "AUPR"][..] } else { &[] });
        headings.push("fit, prediction");
        let row = |row: &Row| {
            let mut cells = vec![row.name.to_owned()];
            let digits = |place: usize| if place == 0 { 4 } else { 3 };
            cells.extend(row.estimates.iter().enumerate().map(|(i, estimate)| range(*estimate, digits(i), false)));
            cells.push(row.gap.map_or_else(|| text::GAP.into(), |gap| range(gap, 4, true)));
            let areas = row.detection.iter().flat_map(|found| [found.auroc, found.aupr]);
            cells.extend(areas.map(|area| range(area, 3, false)));
            cells.push(row.seconds.map(text::seconds).join(", "));
            cells
        };
        Table::of(&headings, &self.rows.iter().map(row).collect::<Vec<_>>())
    }
}

/// A value with its interval in brackets.
fn range(Estimate { value, interval: [low, high] }: Estimate, digits: usize, signed: bool) -> String {
    match signed {
        true => format!("{value:+.digits$} ({low:+.digits$} … {high:+.digits$})"),
        false => format!("{value:.digits$} ({low:.digits$} … {high:.digits$})"),
    }
}
