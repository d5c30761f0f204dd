//! What fitted models say of the columns.

use crate::text;
use mercer::apply::{Direction, Importances, MetricForm, TriedMetric};

/// Columns that a table shows.
const MOST: usize = 20;

/// The lengthscales of the columns, the shortest first: along that column the prediction changes the fastest.
pub fn lengthscale_table(lengthscales: &[f64], columns: &[String]) -> String {
    let mut order: Vec<usize> = (0..lengthscales.len().min(columns.len())).collect();
    order.sort_by(|a, b| lengthscales[*a].total_cmp(&lengthscales[*b]));
    let row = |i: &usize| vec![columns[*i].clone(), text::number(lengthscales[*i], 4)];
    let rows: Vec<Vec<String>> = order.iter().take(MOST).map(row).collect();
    let more = order.len() - rows.len();
    let table = text::table(&["column", "lengthscale"], &rows);
    if more > 0 { format!("{table}{more} more are longer\n") } else { table }
}

/// How much each column changes the prediction, the most important first, and along which directions.
pub fn importance_table(importances: &Importances, columns: &[String]) -> String {
    let shares = &importances.columns;
    let mut order: Vec<usize> = (0..shares.len().min(columns.len())).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let spread = |i: usize| importances.spread.as_ref().and_then(|spread| spread.get(i));
    let row = |i: &usize| {
        let spread = spread(*i).map_or_else(|| text::GAP.into(), |spread| format!("{spread:.4}"));
        vec![columns[*i].clone(), format!("{:.4}", shares[*i]), spread]
    };
    let rows: Vec<Vec<String>> = order.iter().take(MOST).map(row).collect();
    let mut said = text::table(&["column", "importance", "± (halves)"], &rows);
    if order.len() > rows.len() {
        said += &format!("{} more are less important\n", order.len() - rows.len());
    }
    said += "shares of the mean squared gradient; ±: how far machines for two halves of the rows are from their mean\n";
    if let Some(agreement) = importances.agreement {
        said += &format!("the two halves agree to a cosine of {agreement:.3}\n");
    }
    let directions: Vec<Vec<String>> = importances.directions.iter().map(|d| direction(d, columns)).collect();
    if directions.is_empty() {
        return said;
    }
    said + "\n" + &text::table(&["direction", "share", "agreement"], &directions)
}

/// A direction by its largest entries.
fn direction(direction: &Direction, columns: &[String]) -> Vec<String> {
    const ENTRIES: usize = 4;
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
pub fn metric_table(tried: &[TriedMetric], form: MetricForm, rounds: usize) -> String {
    let chosen = match rounds {
        0 => "metric: none, for no learnt metric is better on left-out rows than the plain kernel\n".into(),
        _ => format!("metric: {}, after {}\n", form.name(), text::count(rounds, "round")),
    };
    if tried.is_empty() {
        return chosen;
    }
    let name = |tried: &TriedMetric| if tried.rounds == 0 { "none" } else { tried.form.name() };
    let row = |t: &TriedMetric| vec![name(t).to_owned(), t.rounds.to_string(), text::number(t.error, 4)];
    let rows: Vec<Vec<String>> = tried.iter().map(row).collect();
    format!("{}{chosen}", text::table(&["metric tried", "rounds", "left-out MSE"], &rows))
}
