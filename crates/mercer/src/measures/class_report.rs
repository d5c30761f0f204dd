//! How good predictions of classes are.

use crate::data::Target;
use crate::{Error, Result, fail_if};
use ndarray::ArrayView2;
use serde::Serialize;

/// Predicted classes against the true ones.
///
/// ```
/// use mercer::{apply::ClassReport, data::Target};
/// let classes = |labels: &[usize]| Target::Classes { labels: labels.to_vec(), names: vec!["cat".into(), "dog".into()] };
/// let p = ndarray::array![[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]];
/// let report = ClassReport::new(&classes(&[0, 1, 1, 0]), &classes(&[0, 0, 1, 0]), Some(p.view()))?;
/// assert_eq!((report.accuracy, report.confusion[1][0]), (0.75, 1)); // one dog was taken for a cat
/// assert_eq!((report.classes[0].precision, report.classes[1].recall), (Some(2.0 / 3.0), Some(0.5)));
/// let loss = -(0.9f64.ln() + 0.4f64.ln() + 0.8f64.ln() + 0.5f64.ln()) / 4.0;
/// assert!((report.log_loss.unwrap() - loss).abs() < 1e-15);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// Share of the rows whose class is right.
    pub accuracy: f64,
    /// The mean of `−log p` of the true class, p no less than 1e-15; none without probabilities, or where a true class is unknown to
    /// the model.
    pub log_loss: Option<f64>,
    /// Each class: those of the predictions, then those that only the truth has.
    pub classes: Vec<ClassMeasures>,
    /// `confusion[a][b]`: rows of class a that were predicted as b.
    pub confusion: Vec<Vec<usize>>,
}

/// How well one class was found. Example: [`ClassReport`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassMeasures {
    /// Its name.
    pub name: String,
    /// Share of the rows predicted as this class that are of it; none where there are no such rows.
    pub precision: Option<f64>,
    /// Share of the rows of this class that are predicted as it; none where there are no such rows.
    pub recall: Option<f64>,
    /// Rows of this class.
    pub support: usize,
}

impl ClassReport {
    /// Compares the classes `predicted`, with their probabilities `[n, C]` where there are some, with the `truth`, by name.
    pub fn new(truth: &Target, predicted: &Target, probabilities: Option<ArrayView2<f64>>) -> Result<ClassReport> {
        let truth = truth.as_classes()?;
        let (Target::Classes { labels: a, names: true_names }, Target::Classes { labels: b, names }) =
            (&truth, predicted)
        else {
            return Err(Error::input("classes can only be compared with classes"));
        };
        fail_if!(
            a.len() != b.len() || a.is_empty(),
            "there are {} true classes and {} predicted ones",
            a.len(),
            b.len()
        );
        let mut names = names.clone();
        let known = names.len();
        let places = places(&mut names, true_names.iter());
        let mut confusion = vec![vec![0; names.len()]; names.len()];
        a.iter().zip(b).for_each(|(&a, &b)| confusion[places[a]][b] += 1);
        let log_loss = probabilities.filter(|_| a.iter().all(|&a| places[a] < known)).map(|p| {
            a.iter().enumerate().map(|(i, &a)| -p[[i, places[a]]].max(1e-15).ln()).sum::<f64>() / a.len() as f64
        });
        Ok(ClassReport::of(names, confusion, log_loss))
    }

    /// From the names of the classes and their confusion.
    fn of(names: Vec<String>, confusion: Vec<Vec<usize>>, log_loss: Option<f64>) -> ClassReport {
        let right: usize = (0..names.len()).map(|c| confusion[c][c]).sum();
        let all: usize = confusion.iter().flatten().sum();
        let classes = names.into_iter().enumerate().map(|(c, name)| measures(name, c, &confusion)).collect();
        ClassReport { accuracy: right as f64 / all as f64, log_loss, classes, confusion }
    }

    /// The report on the rows of both.
    ///
    /// ```
    /// use mercer::{apply::ClassReport, data::Target};
    /// let classes = |labels: &[usize]| Target::Classes { labels: labels.to_vec(), names: vec!["cat".into(), "dog".into()] };
    /// let part = |truth: &[usize], predicted: &[usize]| ClassReport::new(&classes(truth), &classes(predicted), None);
    /// let both = part(&[0, 1], &[0, 0])?.merged(&part(&[1], &[1])?);
    /// assert_eq!(both, part(&[0, 1, 1], &[0, 0, 1])?);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn merged(&self, other: &ClassReport) -> ClassReport {
        let mut names: Vec<String> = self.classes.iter().map(|class| class.name.clone()).collect();
        let places = places(&mut names, other.classes.iter().map(|class| &class.name));
        let mut confusion = vec![vec![0; names.len()]; names.len()];
        for (a, row) in self.confusion.iter().enumerate() {
            row.iter().enumerate().for_each(|(b, count)| confusion[a][b] += count);
        }
        for (a, row) in other.confusion.iter().enumerate() {
            row.iter().enumerate().for_each(|(b, count)| confusion[places[a]][places[b]] += count);
        }
        let [n, m] = [self, other].map(|part| part.confusion.iter().flatten().sum::<usize>() as f64);
        let log_loss = self.log_loss.zip(other.log_loss).map(|(a, b)| (a * n + b * m) / (n + m));
        ClassReport::of(names, confusion, log_loss)
    }
}

/// The place of each of `others` among `names`, to which those that are not there are added.
fn places<'n>(names: &mut Vec<String>, others: impl Iterator<Item = &'n String>) -> Vec<usize> {
    let mut place = |name: &String| {
        names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.clone());
            names.len() - 1
        })
    };
    others.map(&mut place).collect()
}

fn measures(name: String, c: usize, confusion: &[Vec<usize>]) -> ClassMeasures {
    let support: usize = confusion[c].iter().sum();
    let taken: usize = confusion.iter().map(|row| row[c]).sum();
    let share = |of: usize| (of > 0).then(|| confusion[c][c] as f64 / of as f64);
    ClassMeasures { name, precision: share(taken), recall: share(support), support }
}
