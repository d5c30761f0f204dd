//! Scores of predictions against the true targets.

use crate::show::table_with_notes::TableWithNotes;
use crate::text;
use mercer::data::{Dataset, Target};
use mercer::measures::{ClassMeasures, ClassReport, Errors, RunningErrors};
use ndarray::{ArrayView2, Axis};
use serde::Serialize;

/// A score, by the kind of target.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Score {
    /// Root of the mean squared error, and the share of the variance that is explained (none where the targets are constant).
    Regression { rmse: f64, r2: Option<f64> },
    /// Accuracy, log loss, precision and recall.
    Classification(ClassReport),
}

/// The score of `predicted`, with the probabilities `[n, C]` of classes where there are some, if the true targets are of the same
/// kind; classes are compared by name.
pub fn score(truth: &Target, predicted: &Target, probabilities: Option<ArrayView2<f64>>) -> Option<Score> {
    if truth.is_empty() || truth.len() != predicted.len() {
        return None;
    }
    match (truth, predicted) {
        (Target::Values(truth), Target::Values(predicted)) => Errors::of(predicted, truth).map(Score::of_numbers),
        (truth, Target::Classes { .. }) => {
            ClassReport::new(truth, predicted, probabilities).ok().map(Score::Classification)
        }
        _ => None,
    }
}

/// The score of predictions for the rows of `data`, on those that have a target.
pub fn score_of(data: &Dataset, predicted: &Target, probabilities: Option<ArrayView2<f64>>) -> Option<Score> {
    match data.known()? {
        (truth, None) => score(truth, predicted, probabilities),
        (truth, Some(rows)) => {
            let of_rows = probabilities.map(|p| p.select(Axis(0), rows));
            score(truth, &predicted.select(rows), of_rows.as_ref().map(|p| p.view()))
        }
    }
}

/// The score of rows that come a few at a time.
#[derive(Default)]
pub struct RunningScore {
    /// Rows without a target, which are left out.
    pub left_out: usize,
    /// Whether the target of some rows is of another kind.
    unknown: bool,
    report: Option<ClassReport>,
    numbers: RunningErrors,
}

impl RunningScore {
    /// Adds the rows of `data` that have a target, as [`score_of`] takes them.
    pub fn add(&mut self, data: &Dataset, predicted: &Target, probabilities: Option<ArrayView2<f64>>) {
        let Some((truth, rows)) = data.known() else { return self.left_out += data.n() };
        let Some(rows) = rows else { return self.add_known(truth, predicted, probabilities) };
        self.left_out += data.n() - rows.len();
        let of_rows = probabilities.map(|p| p.select(Axis(0), rows));
        self.add_known(truth, &predicted.select(rows), of_rows.as_ref().map(|p| p.view()));
    }

    fn add_known(&mut self, truth: &Target, predicted: &Target, probabilities: Option<ArrayView2<f64>>) {
        match (truth, predicted) {
            (Target::Values(truth), Target::Values(predicted)) => self.numbers.add(predicted, truth),
            (truth, Target::Classes { .. }) => match ClassReport::new(truth, predicted, probabilities) {
                Ok(report) => self.report = Some(self.report.take().map_or(report.clone(), |all| all.merged(&report))),
                Err(_) => self.unknown = true,
            },
            _ => self.unknown = true,
        }
    }

    /// The score of all rows that have a target.
    pub fn finish(self) -> Option<Score> {
        match self.report {
            _ if self.unknown => None,
            Some(report) => Some(Score::Classification(report)),
            None => self.numbers.finish().map(Score::of_numbers),
        }
    }
}

impl Score {
    fn of_numbers(Errors { rmse, r2, .. }: Errors) -> Score {
        Score::Regression { rmse, r2 }
    }

    /// The numbers, each under its heading.
    pub fn cells(&self) -> Vec<(&'static str, String)> {
        let or_gap = |value: Option<f64>| value.map_or_else(|| text::GAP.into(), |value| format!("{value:.4}"));
        match self {
            Score::Regression { rmse, r2 } => vec![("RMSE", text::number(*rmse, 4)), ("R²", or_gap(*r2))],
            Score::Classification(report) => {
                vec![("accuracy", text::percent(report.accuracy)), ("log loss", or_gap(report.log_loss))]
            }
        }
    }

    /// What is known of each class, and which are taken for each other; nothing for numbers.
    pub fn details(&self) -> Vec<TableWithNotes> {
        match self {
            Score::Regression { .. } => vec![],
            Score::Classification(report) => vec![classes(report), confusion(report)],
        }
    }
}

/// Precision, recall and support of the classes: of all, or of the [`MOST_CLASSES`] with the lowest recall.
fn classes(report: &ClassReport) -> TableWithNotes {
    const MOST_CLASSES: usize = 20;
    let mut shown: Vec<&ClassMeasures> = report.classes.iter().collect();
    let all = shown.len();
    let mut note = None;
    if all > MOST_CLASSES {
        shown.sort_by(|a, b| a.recall.unwrap_or(2.0).total_cmp(&b.recall.unwrap_or(2.0)));
        shown.truncate(MOST_CLASSES);
        note = Some(format!("the {MOST_CLASSES} of {all} classes with the lowest recall; --json has all of them"));
    }
    let share = |value: Option<f64>| value.map_or_else(|| text::GAP.into(), |value| format!("{value:.3}"));
    let row = |class: &&ClassMeasures| {
        vec![class.name.clone(), share(class.precision), share(class.recall), text::grouped(class.support)]
    };
    TableWithNotes::of(&["class", "precision", "recall", "support"], &shown.iter().map(row).collect::<Vec<_>>())
        .note(note)
}

/// The confusion matrix, or the most frequent confusions where it would not fit.
fn confusion(report: &ClassReport) -> TableWithNotes {
    const MOST_COLUMNS: usize = 10;
    const MOST_PAIRS: usize = 10;
    let name = |c: usize| report.classes[c].name.clone();
    let k = report.classes.len();
    let widths = report.classes.iter().map(|class| 2 + class.name.chars().count().max(6)).sum::<usize>();
    if k <= MOST_COLUMNS && widths <= 80 {
        let headings: Vec<String> = std::iter::once("true \\ predicted".into()).chain((0..k).map(name)).collect();
        let row = |a: usize| {
            std::iter::once(name(a)).chain(report.confusion[a].iter().map(|&count| text::grouped(count))).collect()
        };
        return TableWithNotes::of(&headings, &(0..k).map(row).collect::<Vec<Vec<String>>>());
    }
    let mut pairs: Vec<(usize, usize, usize)> = (0..k)
        .flat_map(|a| (0..k).filter(move |&b| a != b).map(move |b| (a, b)))
        .map(|(a, b)| (report.confusion[a][b], a, b))
        .filter(|(count, ..)| *count > 0)
        .collect();
    pairs.sort_by(|a, b| b.cmp(a));
    pairs.truncate(MOST_PAIRS);
    let rows: Vec<Vec<String>> =
        pairs.iter().map(|&(count, a, b)| vec![name(a), name(b), text::grouped(count)]).collect();
    TableWithNotes::of(&["true", "predicted", "most frequent"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::table_with_notes::joined;
    use mercer::data::SomeTargets;

    fn classes(labels: &[usize], names: &[&str]) -> Target {
        Target::Classes { labels: labels.to_vec(), names: names.iter().map(|n| n.to_string()).collect() }
    }

    #[test]
    fn scores_are_those_of_the_definitions() {
        let values = |v: &[f64]| Target::Values(v.to_vec());
        let score_of = |a, b| score(&a, &b, None).unwrap();
        let poor = Score::Regression { rmse: 2f64.sqrt(), r2: Some(-1.0) };
        assert_eq!(score_of(values(&[1.0, 3.0]), values(&[1.0, 1.0])), poor);
        assert_eq!(score_of(values(&[2.0, 2.0]), values(&[2.0, 2.0])), Score::Regression { rmse: 0.0, r2: None });
        for unit in [2f64.powi(1000), 2f64.powi(-1000)] {
            let poor = Score::Regression { rmse: 2f64.sqrt() * unit, r2: Some(-1.0) };
            assert_eq!(score_of(values(&[unit, 3.0 * unit]), values(&[unit, unit])), poor);
        }
        let accuracy = |score: Score| match score {
            Score::Classification(report) => report.accuracy,
            Score::Regression { .. } => panic!("classes"),
        };
        // The same names in another order are the same classes.
        let found = score_of(classes(&[0, 1, 1], &["a", "b"]), classes(&[1, 0, 1], &["b", "a"]));
        assert_eq!(accuracy(found), 2.0 / 3.0);
        assert_eq!(accuracy(score_of(values(&[7.0]), classes(&[0], &["7"]))), 1.0);
        assert_eq!(score(&classes(&[0], &["a"]), &values(&[0.0]), None), None);
    }

    /// `n` rows with these targets.
    fn rows(y: Option<Target>, n: usize) -> Dataset {
        let x = ndarray::Array2::<f64>::zeros((n, 1)).into();
        Dataset { name: "rows".into(), x, y, some_y: None, columns: vec!["a".into()], shape: None }
    }

    /// The score of parts is that of all rows that have a target.
    #[test]
    fn parts_add_up() {
        let truth: Vec<f64> = (0..50).map(|i| 3.0 + f64::from(i * i % 11)).collect();
        let guess: Vec<f64> = truth.iter().enumerate().map(|(i, y)| y + (i as f64).sin()).collect();
        let mut running = RunningScore::default();
        for (a, b) in [(0, 7), (7, 8), (8, 50)] {
            let part = rows(Some(Target::Values(truth[a..b].to_vec())), b - a);
            running.add(&part, &Target::Values(guess[a..b].to_vec()), None);
        }
        let whole = score(&Target::Values(truth), &Target::Values(guess), None).unwrap();
        let (Some(Score::Regression { rmse, r2 }), Score::Regression { rmse: want, r2: share }) =
            (running.finish(), whole)
        else {
            panic!("numbers")
        };
        assert!((rmse - want).abs() < 1e-14 && (r2.unwrap() - share.unwrap()).abs() < 1e-14);
        let mut running = RunningScore::default();
        running.add(&rows(Some(classes(&[0, 1], &["a", "b"])), 2), &classes(&[0, 0], &["a", "b"]), None);
        running.add(&rows(None, 2), &classes(&[0, 0], &["a", "b"]), None);
        let mut some = rows(None, 3);
        some.some_y = Some(SomeTargets { rows: vec![2], y: classes(&[1], &["a", "b"]) });
        running.add(&some, &classes(&[0, 0, 1], &["a", "b"]), None);
        assert_eq!(running.left_out, 4);
        let Some(Score::Classification(report)) = running.finish() else { panic!("classes") };
        assert_eq!(report.accuracy, 2.0 / 3.0);
    }

    #[test]
    fn many_classes_are_cut_and_few_are_shown_whole() {
        let few = score(&classes(&[0, 1, 1], &["a", "b"]), &classes(&[0, 0, 1], &["a", "b"]), None).unwrap().details();
        let few = joined(&few);
        assert!(few.contains("true \\ predicted  a  b\na                 1  0\nb                 1  1"), "{few}");
        let names: Vec<String> = (0..30).map(|c| format!("c{c}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let truth: Vec<usize> = (0..60).map(|i| i % 30).collect();
        let predicted: Vec<usize> = truth.iter().map(|&t| if t == 3 { 4 } else { t }).collect();
        let many = score(&classes(&truth, &names), &classes(&predicted, &names), None).unwrap().details();
        let many = joined(&many);
        assert!(many.contains("the 20 of 30 classes") && many.contains("c3    c4"), "{many}");
        assert!(many.lines().all(|line| line.chars().count() <= 80) && many.lines().count() < 40, "{many}");
    }
}
