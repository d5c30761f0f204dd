//! What fitted models say of the columns.

use crate::noted::Noted;
use crate::text;
use mercer::apply::{Direction, Importances, MetricForm, TriedMetric};

/// Columns that a table shows.
const MOST: usize = 20;

/// The lengthscales of the columns, the shortest first: along that column the prediction changes the fastest.
pub fn lengthscales_of(lengthscales: &[f64], columns: &[String]) -> Noted {
    let mut order: Vec<usize> = (0..lengthscales.len().min(columns.len())).collect();
    order.sort_by(|a, b| lengthscales[*a].total_cmp(&lengthscales[*b]));
    let row = |i: &usize| vec![columns[*i].clone(), text::number(lengthscales[*i], 4)];
    let rows: Vec<Vec<String>> = order.iter().take(MOST).map(row).collect();
    let more = order.len() - rows.len();
    Noted::of(&["column", "lengthscale"], &rows).note((more > 0).then(|| format!("{more} more are longer")))
}

/// How much each column changes the prediction, the most important first, and along which directions.
pub fn importances_of(importances: &Importances, columns: &[String]) -> [Noted; 2] {
    let shares = &importances.columns;
    let mut order: Vec<usize> = (0..shares.len().min(columns.len())).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let spread = |i: usize| importances.spread.as_ref().and_then(|spread| spread.get(i));
    let row = |i: &usize| {
        let spread = spread(*i).map_or_else(|| text::GAP.into(), |spread| format!("{spread:.4}"));
        vec![columns[*i].clone(), format!("{:.4}", shares[*i]), spread]
    };
    let rows: Vec<Vec<String>> = order.iter().take(MOST).map(row).collect();
    let more = order.len() - rows.len();
    let meaning =
        "shares of the mean squared gradient; ±: how far machines for two halves of the rows are from their mean";
    let agree = importances.agreement.map(|cosine| format!("the two halves agree to a cosine of {cosine:.3}"));
    let columns_shown = Noted::of(&["column", "importance", "± (halves)"], &rows)
        .note((more > 0).then(|| format!("{more} more are less important")))
        .note(meaning.to_owned())
        .note(agree);
    let directions: Vec<Vec<String>> = importances.directions.iter().map(|d| direction(d, columns)).collect();
    [columns_shown, Noted::of(&["direction", "share", "agreement"], &directions)]
}

/// A direction by its largest entries.
fn direction(direction: &Direction, columns: &[String]) -> Vec<String> {
    const ENTRIES: usize = 3;
    let vector = &direction.vector;
    let mut order: Vec<usize> = (0..vector.len().min(columns.len())).collect();
    order.sort_by(|a, b| vector[*b].abs().total_cmp(&vector[*a].abs()));
    let term = |(k, i): (usize, &usize)| {
        let sign = match (vector[*i] < 0.0, k) {
            (true, 0) => "-",
            (true, _) => " - ",
            (false, 0) => "",
            (false, _) => " + ",
        };
        format!("{sign}{:.2} {}", vector[*i].abs(), columns[*i])
    };
    let mut words: String = order.iter().take(ENTRIES).enumerate().map(term).collect();
    if order.len() > ENTRIES {
        words += " …";
    }
    let agreement = direction.agreement.map_or_else(|| text::GAP.into(), |agreement| format!("{agreement:.3}"));
    vec![words, text::percent(direction.share), agreement]
}

/// The metrics that a recursive feature machine tried.
pub fn metrics_of(tried: &[TriedMetric], form: MetricForm, rounds: usize) -> Noted {
    let chosen = match rounds {
        0 => "metric: none, for none is better on left-out rows than the plain kernel by two standard errors".into(),
        _ => format!("metric: {}, after {}", form.name(), text::count(rounds, "round")),
    };
    let name = |tried: &TriedMetric| if tried.rounds == 0 { "none" } else { tried.form.name() };
    let row = |t: &TriedMetric| vec![name(t).to_owned(), t.rounds.to_string(), text::number(t.error, 4)];
    let rows: Vec<Vec<String>> = tried.iter().map(row).collect();
    Noted::of(&["metric tried", "rounds", "left-out MSE"], &rows).note(chosen)
}
