//! Measures of predictions with their uncertainty, as `mercer laplace` and `mercer trajectory` show them: tables and objects.

use crate::text;
use mercer::classifier::{Detection, Estimate};
use mercer::learn::{Comparison, Judged};
use mercer_figure::report::Table;
use serde_json::{Value, json};

/// The smallest difference of two NLLs that is shown.
const LEAST_GAP: f64 = 5e-5;

/// What is said where there are no test rows.
pub const WITHOUT_TEST: &str =
    "without --test, methods are measured on the validation rows, each half by what was found on the other half";

/// Why a method is kept: it was asked for, or it has the lowest NLL on so many validation rows, each half judged by what was found on the other.
pub fn why(found: &Comparison, method: &str, rows: usize) -> String {
    if method != "auto" {
        return format!("{method} was asked for");
    }
    let named = |i: usize| (found.all[i].judged.name, found.all[i].judged.validation_nll);
    let others = (0..found.all.len()).filter(|i| *i != found.kept).map(named);
    let (best, least) = named(found.kept);
    format!(
        "{best} has the lowest NLL on {}: {least:.4} ({}); each half of these rows was judged by what was found on the other half, and the method was \
         then fitted with all of them",
        text::count(rows, "validation row"),
        others.map(|(name, nll)| format!("{name} {nll:.4}")).collect::<Vec<_>>().join(", ")
    )
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

impl Row {
    fn new(judged: &Judged, [baseline, network]: [Option<&Judged>; 2], seed: u64) -> Row {
        let behind = |other: Option<&Judged>| {
            other.filter(|other| other.name != judged.name).and_then(|other| judged.behind(other, seed))
        };
        let estimates = judged.estimates(seed);
        let (gap, network_gap, detection) = (behind(baseline), behind(network), judged.detection(seed));
        let mut object = Value::Object(judged.facts.clone());
        object["validation_nll"] = json!(judged.validation_nll);
        object["predict_seconds"] = json!(judged.seconds[1]);
        object["test"] = estimates.iter().map(|(name, estimate)| (name.clone(), json!(estimate))).collect();
        for (other, gap) in [(baseline, gap), (network, network_gap)] {
            if let Some(other) = other {
                object[format!("nll_minus_{}", other.name)] = json!(gap);
            }
        }
        let (mut reliability, mut confidence) = (vec![], vec![]);
        if let Some(cases) = judged.cases() {
            object["ood"] = json!(detection);
            (reliability, confidence) = (cases.reliability(), cases.confidence.clone());
        }
        Row {
            name: judged.name,
            object,
            estimates: estimates.into_iter().map(|(_, estimate)| estimate).collect(),
            gap,
            network_gap,
            detection,
            reliability,
            confidence,
            seconds: judged.seconds,
        }
    }
}

impl Judgement {
    pub fn new(found: &Comparison, seed: u64) -> Judgement {
        let all: Vec<&Judged> = found.all.iter().map(|compared| &compared.judged).collect();
        let named = |name: &str| all.iter().copied().find(|judged| judged.name == name);
        let network = named("map");
        let baseline = named("temperature").or(network);
        Judgement {
            rows: all.iter().map(|judged| Row::new(judged, [baseline, network], seed)).collect(),
            chosen: found.kept,
            numbers: all.iter().any(|judged| judged.cases().is_none()),
            baseline: baseline.map_or("map", |judged| judged.name),
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
