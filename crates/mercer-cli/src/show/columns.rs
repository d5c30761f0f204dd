//! What fitted models say of the columns.

use crate::show::table_with_notes::TableWithNotes;
use crate::show::units;
use crate::text;
use mercer::Result;
use mercer::apply::{Direction, Importances, Metrics, SavedPredict, TriedMetric};
use mercer::data::{Dataset, Schema};
use mercer::kernel::Kernel;
use mercer::rng::Rng;
use ndarray::{ArrayView2, Axis};
use serde::Serialize;
use serde_json::{Value, json};

/// Columns that a table shows.
const MOST: usize = 20;

/// A lengthscale of one column, in the unit that the kernel sees and in the column's own.
#[derive(Serialize)]
struct Lengthscale {
    /// The base kernel that has it.
    kernel: &'static str,
    column: String,
    lengthscale: f64,
    /// None where columns are not scaled, or this one is constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_unit: Option<f64>,
    /// The share of the column in the mean squared gradient of the prediction.
    importance: f64,
}

/// The lengthscales that a search found, those of the most important columns first.
pub struct Lengthscales {
    rows: Vec<Lengthscale>,
    /// What a lengthscale of 1 is, where columns are scaled.
    unit: Option<&'static str>,
}

impl Lengthscales {
    /// Of the kernel of `model` and the rows `x` `[n, d]` of its fit; none where there is nothing to say of single columns: one lengthscale for all of
    /// them in their own units, or for too many to list.
    pub fn of(
        kernel: &Kernel,
        model: &dyn SavedPredict,
        rows_of_fit: &Dataset,
        schema: Option<&Schema>,
        seed: u64,
    ) -> Result<Option<Lengthscales>> {
        let (columns, scaler) = (&rows_of_fit.columns, schema.and_then(Schema::scaler));
        let (d, mut rows) = (columns.len(), vec![]);
        if kernel.sees_images() {
            return Ok(None);
        }
        for (kernel, each) in kernel.lengthscales(d).into_iter().filter(|(_, each)| each.len() == d) {
            let differ = each.windows(2).any(|two| two[0] != two[1]);
            for (j, lengthscale) in each.into_iter().enumerate() {
                let scale = scaler.map(|scaler| scaler.scale[j]);
                // One lengthscale for all columns is news only in the units of those that were scaled.
                if differ || d <= MOST && scale.is_some_and(|scale| scale != 0.0 && scale != 1.0) {
                    let own_unit = scale.filter(|scale| *scale != 0.0).map(|scale| lengthscale / scale);
                    let column = columns[j].clone();
                    rows.push((j, Lengthscale { kernel, column, lengthscale, own_unit, importance: 0.0 }));
                }
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let importance = gradients(model, rows_of_fit.x.to_f64().view(), seed)?;
        let with = |(j, row): (usize, Lengthscale)| Lengthscale { importance: importance[j], ..row };
        let mut rows: Vec<Lengthscale> = rows.into_iter().map(with).collect();
        rows.sort_by(|a, b| b.importance.total_cmp(&a.importance));
        Ok(Some(Lengthscales { rows, unit: units::scaled_unit(schema) }))
    }

    pub fn object(&self) -> Value {
        json!(self.rows)
    }

    /// A table, and what its columns mean.
    pub fn table(&self) -> TableWithNotes {
        let several = self.rows.iter().any(|row| row.kernel != self.rows[0].kernel);
        let mut headings = if several { vec!["kernel"] } else { vec![] };
        headings.extend(["column", "lengthscale"]);
        headings.extend(self.unit.map(|_| "in its unit"));
        headings.push("importance");
        let row = |row: &Lengthscale| {
            let mut cells = if several { vec![row.kernel.to_owned()] } else { vec![] };
            cells.extend([row.column.clone(), text::number(row.lengthscale, 4)]);
            cells.extend(self.unit.map(|_| row.own_unit.map_or_else(|| text::GAP.into(), |own| text::number(own, 4))));
            cells.push(format!("{:.4}", row.importance));
            cells
        };
        let rows: Vec<Vec<String>> = self.rows.iter().take(MOST).map(row).collect();
        let more = self.rows.len() - rows.len();
        let unit =
            self.unit.map(|unit| format!("lengthscales are in {unit}, and beside it in the unit of each column"));
        TableWithNotes::of(&headings, &rows)
            .note((more > 0).then(|| format!("{more} more are less important")))
            .note(unit)
            .note("importance: share of the mean squared gradient of the prediction, by scaled columns".to_owned())
    }
}

/// The share of each column in the mean squared gradient of what `model` predicts, `[d]`, from central differences at some of the rows `x` `[n, d]`.
fn gradients(model: &dyn SavedPredict, x: ArrayView2<f64>, seed: u64) -> Result<Vec<f64>> {
    /// Rows at which gradients are taken: their mean is known to some percent.
    const ROWS: usize = 200;
    /// Of the spread of a column: small beside lengthscales, and large beside rounding.
    const STEP: f64 = 1e-3;
    let rows = Rng::new(seed).fork(0x6772_6164).sample(x.nrows(), ROWS.min(x.nrows()));
    let x = x.select(Axis(0), &rows);
    let square = |j: usize| -> Result<f64> {
        let spread = x.column(j).std(0.0);
        let h = STEP * if spread > 0.0 { spread } else { 1.0 };
        let scores = |step: f64| {
            let mut moved = x.clone();
            moved.column_mut(j).mapv_inplace(|v| v + step);
            model.scores(moved.view())
        };
        Ok(((scores(h)? - scores(-h)?) / (2.0 * h)).mapv(|slope| slope * slope).sum())
    };
    let squares: Vec<f64> = (0..x.ncols()).map(square).collect::<Result<_>>()?;
    let total: f64 = squares.iter().sum();
    Ok(squares.iter().map(|square| if total > 0.0 { square / total } else { 0.0 }).collect())
}

/// How much each column changes the prediction, the most important first, and along which directions.
pub fn importances_of(importances: &Importances, columns: &[String]) -> [TableWithNotes; 2] {
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
    let columns_shown = TableWithNotes::of(&["column", "importance", "± (halves)"], &rows)
        .note((more > 0).then(|| format!("{more} more are less important")))
        .note(meaning.to_owned())
        .note(agree);
    let directions: Vec<Vec<String>> = importances.directions.iter().map(|d| direction(d, columns)).collect();
    [columns_shown, TableWithNotes::of(&["direction", "share", "agreement"], &directions)]
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
pub fn metrics_of(Metrics { tried, form, rounds }: &Metrics) -> TableWithNotes {
    let chosen = match *rounds {
        0 => "metric: none, for none is better on left-out rows than the plain kernel by two standard errors".into(),
        _ => format!("metric: {}, after {}", form.name(), text::count(*rounds, "round")),
    };
    let name = |tried: &TriedMetric| if tried.rounds == 0 { "none" } else { tried.form.name() };
    let row = |t: &TriedMetric| vec![name(t).to_owned(), t.rounds.to_string(), text::number(t.error, 4)];
    let rows: Vec<Vec<String>> = tried.iter().map(row).collect();
    TableWithNotes::of(&["metric tried", "rounds", "left-out MSE"], &rows).note(chosen)
}
