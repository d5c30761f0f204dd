//! The report on predictions with their uncertainty: measures, reliability, confidence, the posterior itself.

use crate::show::page as parts;
use crate::show::uncertainty::Judgement;
use mercer_figure::report::Report;
use mercer_figure::{Grid, Plot};

/// Bins of the histograms of confidence.
const BINS: usize = 10;

/// Mean confidence, accuracy and number of the rows in a bin of confidence.
type Bin = (f64, f64, usize);

/// The report: `drawn` is a figure of the posterior, with its caption.
pub fn page(judged: &Judgement, title: &str, why: &str, rows: &str, drawn: Option<(String, &str)>) -> Report {
    let caption = "In brackets, intervals of 95 % by bootstrap; differences by paired bootstrap on the same rows.";
    let more = match judged.numbers {
        true => " Coverage and mean width are of intervals of 95 %, noise included.",
        false => " AUROC and AUPR: rows of the other distribution found by the entropy of their probabilities.",
    };
    let table = judged.measures().caption(format!("{caption}{more}"));
    let mut page = Report::new(title).lead(&format!("Measured on {rows}. {why}.")).section("Measures").table(table);
    for warning in judged.warnings() {
        page = page.text(&format!("Warning: {warning}."));
    }
    if !judged.numbers {
        let of_rows = judged.rows.iter();
        let reliability: Vec<_> = of_rows.clone().map(|row| (row.name, &row.reliability[..])).collect();
        let confidence: Vec<_> = of_rows.map(|row| (row.name, &row.confidence[..])).collect();
        page = calibration(page, &reliability, &confidence);
    }
    if let Some((figure, caption)) = drawn {
        page = page.section("Posterior").figure(&figure, caption);
    }
    page.section("How it was made").table(parts::facts(&[("program", parts::program())]))
}

/// Reliability diagrams, of mean confidence, accuracy and rows of bins, and histograms of the confidence of rows, by name.
pub fn calibration(page: Report, reliability: &[(&str, &[Bin])], confidence: &[(&str, &[f64])]) -> Report {
    let columns = reliability.len().clamp(1, 3);
    let mut diagrams = Grid::new("Reliability", columns).panel_size(230.0, 200.0).shared();
    for (name, bins) in reliability {
        let [xs, ys]: [Vec<f64>; 2] = [bins.iter().map(|bin| bin.0).collect(), bins.iter().map(|bin| bin.1).collect()];
        let plot = Plot::new(*name).x("confidence").y("accuracy").y_range(0.0, 1.0);
        diagrams = diagrams.panel(plot.line("", &[0.0, 1.0], &[0.0, 1.0]).dashed().line("", &xs, &ys).markers());
    }
    let names: Vec<String> = (0..BINS).map(|bin| format!("{:.2}", (bin as f64 + 0.5) / BINS as f64)).collect();
    let mut histograms = Grid::new("Confidence", columns).panel_size(230.0, 160.0).shared();
    for (name, confidence) in confidence {
        let mut shares = [0.0; BINS];
        confidence.iter().for_each(|c| shares[((c * BINS as f64) as usize).min(BINS - 1)] += 1.0);
        let shares = shares.map(|count| count / confidence.len() as f64);
        histograms =
            histograms.panel(Plot::new(*name).x("confidence").y("share of the rows").bars("", &names, &shares));
    }
    page.section("Reliability")
        .figure(
            &diagrams.svg(),
            "Accuracy over the mean confidence of the rows in 15 bins of confidence: calibrated methods lie on the diagonal.",
        )
        .figure(&histograms.svg(), "Share of the rows in each bin of confidence.")
}
